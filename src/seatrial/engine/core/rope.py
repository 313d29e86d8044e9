"""Rotary positions: radians that each pair of a head turns by a position, as they are or scaled to longer sequences.

    cos, sin = cos_sin(model, positions)                [tokens, half of what is rotated]
    q = rotate(q_BSND, cos, sin)
    score_scale(model)                                  what scores are multiplied by

llama3 slows waves that are long beside the original sequence; yarn does so by a ramp over the pairs, and makes scores larger by
a factor that grows with the logarithm of how much is slowed: on queries and keys alike, or in latent attention on the scores.
"""
from __future__ import annotations

import math

import torch
from torch import Tensor

from seatrial.spec import Model


def rotate(x_BSND: Tensor, cos_SD: Tensor, sin_SD: Tensor) -> Tensor:
    """With the two halves of a head as the pairs' coordinates."""
    one, two = x_BSND.chunk(2, -1)
    cos, sin = cos_SD[:, None], sin_SD[:, None]
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)


def cos_sin(model: Model, at_S: Tensor) -> tuple[Tensor, Tensor]:
    """At positions in fp32; with yarn's factor in them."""
    angles, factor = at_S[:, None] * frequencies(model, at_S.device), _rotated_factor(model)
    return angles.cos() * factor, angles.sin() * factor


def frequencies(model: Model, device: torch.device | None = None) -> Tensor:
    """Radians a position of each pair."""
    half = (model.rope_dim or model.head_size) // 2
    plain = model.rope_theta ** (-torch.arange(half, dtype=torch.float32, device=device) / half)
    if model.rope_factor is None:
        return plain
    kept = _kept_by_yarn(model, half, device) if model.yarn else _kept_by_llama3(model, plain)
    return plain * (kept + (1 - kept) / model.rope_factor)


def _kept_by_llama3(model: Model, plain: Tensor) -> Tensor:
    """Full waves in the original sequence: few of them are slowed, many are left alone, and between the two in part."""
    waves = model.rope_original_seq * plain / (2 * math.pi)
    return ((waves - model.rope_low_freq) / (model.rope_high_freq - model.rope_low_freq)).clamp(0.0, 1.0)


def _kept_by_yarn(model: Model, half: int, device: torch.device | None) -> Tensor:
    """The same by a ramp between two pairs: those that turn `rope_beta_fast` and `rope_beta_slow` times in that sequence."""

    def pair(turns: float) -> float:
        return half * math.log(model.rope_original_seq / (turns * 2 * math.pi)) / math.log(model.rope_theta)

    low, high = pair(model.rope_beta_fast), pair(model.rope_beta_slow)
    if model.rope_truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * half - 1)
    ramp = (torch.arange(half, dtype=torch.float32, device=device) - low) / (high - low if high != low else 0.001)
    return 1 - ramp.clamp(0.0, 1.0)


def _sharper(factor: float, by: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0


def _rotated_factor(model: Model) -> float:
    if not model.yarn or model.rope_factor is None:
        return 1.0
    if model.rope_mscale and model.rope_mscale_all_dim:
        return _sharper(model.rope_factor, model.rope_mscale) / _sharper(model.rope_factor, model.rope_mscale_all_dim)
    return _sharper(model.rope_factor)


def score_scale(model: Model) -> float:
    """One over the root of a head's size; latent attention, of which a part alone is rotated, has yarn's factor here."""
    plain = 1.0 / math.sqrt(model.head_size + model.rope_dim)
    if not model.is_latent or not model.yarn or model.rope_factor is None or not model.rope_mscale_all_dim:
        return plain
    return plain * _sharper(model.rope_factor, model.rope_mscale_all_dim) ** 2
