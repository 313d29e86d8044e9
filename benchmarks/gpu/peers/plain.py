"""A GPT and a llama as one would write them without us: modules, autograd, one optimizer from torch, all of it compiled."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from benchmarks.gpu.peers import ADAMW, CLIP
from benchmarks.gpu.shapes import Row
from torch import Tensor, nn

from seatrial.spec import Model, Trial


def build(row: Row, trial: Trial, tokens: Tensor, targets: Tensor) -> Callable[[], Tensor]:
    torch.set_default_dtype(torch.bfloat16 if row.precision == "bf16" else torch.float32)
    with tokens.device:
        model = Plain(trial.model)
    torch.set_default_dtype(torch.float32)
    return trained(model, torch.compile(model, disable=not row.compiled), tokens, targets, casts=row.precision == "autocast")


def trained(model: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor], tokens: Tensor, targets: Tensor, *,
            casts: bool) -> Callable[[], Tensor]:
    """One step by torch's own means."""
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW, fused=True)

    def step() -> Tensor:
        with torch.autocast(tokens.device.type, torch.bfloat16) if casts else nullcontext():
            loss = loss_of(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


class Block(nn.Module):
    def __init__(self, m: Model):
        super().__init__()
        self.head, bias = m.head_size, m.architecture.biases == "all"
        self.norm1, self.norm2 = _norm(m), _norm(m)
        self.split = (m.heads * m.head_size, m.kv * m.head_size, m.kv * m.head_size)
        self.qkv, self.out = nn.Linear(m.hidden, sum(self.split), bias=bias), nn.Linear(self.split[0], m.hidden, bias=bias)
        self.up, self.down = nn.Linear(m.hidden, (1 + m.gated) * m.inner, bias=bias), nn.Linear(m.inner, m.hidden, bias=bias)
        self.gated, self.grouped = m.gated, m.kv != m.heads

    def forward(self, x: Tensor, turn: Tensor | None) -> Tensor:
        q, k, v = (t.unflatten(-1, (-1, self.head)).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(self.split, -1))
        if turn is not None:
            q, k = _turned(q, turn), _turned(k, turn)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        up = self.up(self.norm2(x))
        return x + self.down(_swiglu(up) if self.gated else F.gelu(up, approximate="tanh"))


class Plain(nn.Module):
    """Targets in, loss out; the choices of gpt2 and llama."""

    def __init__(self, m: Model):
        super().__init__()
        self.tokens = nn.Embedding(m.vocab, m.hidden)
        self.positions = None if m.rope else nn.Embedding(m.seq, m.hidden)
        self.blocks = nn.ModuleList(Block(m) for _ in range(m.layers))
        self.final = _norm(m)
        self.head = nn.Linear(m.hidden, m.vocab, bias=False)
        if m.ties:
            self.head.weight = self.tokens.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        if m.rope:
            each = m.rope_theta ** (-torch.arange(0, m.head_size, 2, dtype=torch.float32) / m.head_size)
            angle = torch.outer(torch.arange(m.seq, dtype=torch.float32), each).repeat(1, 2)
            self.register_buffer("turn", torch.stack([angle.cos(), angle.sin()]))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x, None if self.positions is not None else self.turn)
        logits = self.head(self.final(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _norm(m: Model) -> nn.Module:
    return nn.LayerNorm(m.hidden, m.norm_eps) if m.layernorm else nn.RMSNorm(m.hidden, m.norm_eps)


def _swiglu(up: Tensor) -> Tensor:
    gate, value = up.chunk(2, -1)
    return F.silu(gate) * value


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    cos, sin = turn.to(x.dtype)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
