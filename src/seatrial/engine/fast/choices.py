"""What a run computes with beside the trial itself: each choice can be switched off alone, so that its gain can be measured.

    choices = Choices.of(device, precision="bf16", compiled=False)
    replace(choices, attention="flash")                 one choice changed, for a benchmark or a test

On a CPU nothing is switched on: there the blocks are those of `layers.py`, number for number.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from seatrial.spec import Model

Attention = Literal["measured", "default", "cudnn", "flash", "efficient"]


def fusable(model: Model) -> bool:
    """Whether a block can run as one function: LayerNorm, GELU, biases everywhere, as many keys as queries, none rotated."""
    whole = model.kv == model.heads and model.heads * model.head_size == model.hidden
    return (whole and model.layernorm and model.architecture.biases == "all"
            and not (model.gated or model.rope or model.normed_qk))


@dataclass(frozen=True, kw_only=True)
class Choices:
    fused: bool = False
    """A block is one function with its backward pass written out (`fused.py`); gpt2 and bloom."""
    triton: bool = False
    """Triton's kernels where they agree with plain torch."""
    narrow_gradients: bool = False
    """Gradients stay in 16 bits where nothing is added to them: one micro-batch, one replica."""
    wide_products: bool = False
    """Where gradients are added up, products of 16-bit numbers come out in fp32."""
    residual_in_product: bool = False
    """The residual stream is what the product adds to, instead of an addition of its own."""
    split_masters: bool = False
    """A master is its bf16 weight and the 16 bits that are missing to fp32 (`masters.py`); with `adamw-fused`."""
    release_gradients: bool = False
    """Gradients' memory goes back to the allocator after the update: activations of the next step can have it."""
    attention: Attention = "default"
    products: Literal["measured", "library"] = "library"
    """Which of cuBLASLt's kernels computes each product: the fastest of those it offers, or its own choice."""
    fast_accumulation: Literal["none", "forward", "all"] = "all"
    """Which fp8 products add up without the detour through fp32 registers."""
    logits_bytes: int = 0
    """Logits of so many bytes are made at once, where that is more than `execution.logits_chunk` tokens."""

    @classmethod
    def of(cls, device: torch.device, *, precision: str, compiled: bool) -> Choices:
        if device.type != "cuda":
            return cls(fused=precision == "fp8")
        half = precision != "fp32"
        return cls(fused=half and not compiled, triton=half, narrow_gradients=precision in ("bf16", "fp8"), wide_products=half,
                   residual_in_product=True, split_masters=precision in ("bf16", "fp8"), release_gradients=True,
                   attention="measured", products="measured" if half else "library", logits_bytes=2**30 if half else 0)
