"""One block that takes each of a model's choices by itself, and a Stage: the layers that one pipeline stage holds.

    Stage(shared, first=0, last=3, has_embedding=True, has_head=False)      layers 0 to 2, under their global numbers

Which matrices a block has, and how tensor parallelism cuts them, is `arith/layer.py`'s description of a layer. A Block is a
pure function of its input and can be compiled; gathering weights, recompute and counters are around it. `Ops.block` may have
another implementation of a block, with a backward pass of its own.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from torch import Tensor, nn

from seatrial.arith import experts, layer
from seatrial.engine.core.attention import Positions, attend
from seatrial.engine.core.comm import TensorParallel
from seatrial.engine.core.experts import ExpertParallel, Experts
from seatrial.engine.core.latent import LatentAttention
from seatrial.engine.core.layers import Discarded, LayerNorm, RmsNorm, column_linear, embedding, gelu, row_linear
from seatrial.engine.core.ops import Ops
from seatrial.engine.core.params import matrix, split_vector, vocabulary, whole_matrix, whole_vector
from seatrial.spec import Model

TOKENS = "embed.tokens.weight"


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What every block of a rank uses."""

    model: Model
    tp: TensorParallel
    positions: Positions
    std: float
    """Of the initial weights; those that lead back into the residual stream start smaller, by √(2 layers)."""
    recompute: str = "none"
    selective: bool = False
    """Whether a block's own forward pass throws away what is cheap to make again."""
    ops: Ops = field(default_factory=Ops)
    experts: ExpertParallel | None = None

    @property
    def activation(self) -> Callable[[Tensor], Tensor]:
        return {"gelu": gelu, "swiglu": self.ops.swiglu, "swiglu-clamped": self.ops.clamped_swiglu}[self.model.architecture.mlp]

    def through(self, cheap: Callable[[Tensor], Tensor], x: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """product(cheap(x)), where selective recompute does not keep what is between the two."""
        if not self.selective:
            return product(cheap(x))
        between = Discarded(cheap, x, self.tp.comm.timers)
        return between.free(product(between.value))


def norm(name: str, shared: Shared) -> LayerNorm | RmsNorm:
    m = shared.model
    return LayerNorm(name, m.hidden, m.norm_eps) if m.layernorm else RmsNorm(name, m.hidden, m.norm_eps, shared.ops.rms_norm)


def head_norm(name: str, shared: Shared) -> LayerNorm | RmsNorm:
    """Over each head of queries or keys."""
    m = shared.model
    if m.layernorm:
        return LayerNorm(name, m.head_size, m.norm_eps, partial=True)
    return RmsNorm(name, m.head_size, m.norm_eps, shared.ops.rms_norm, partial=True)


def end_norm(name: str, shared: Shared) -> LayerNorm | RmsNorm:
    """One outside the blocks."""
    m = shared.model
    return LayerNorm(name, m.hidden, m.norm_eps, shared.ops.layer_norm) if m.layernorm else norm(name, shared)


class Linear(nn.Module):
    """A weight and perhaps a bias; whether it is used by rows or by columns is the caller's choice."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None):
        super().__init__()
        self.weight, self.bias = weight, bias


def _linear(at: str, described: layer.Linear, shared: Shared) -> Linear:
    m, cut = shared.model, {"rank": shared.tp.rank, "size": shared.tp.size}
    parts = {f"{at}.{part.name}": part for part in described.parts if part.rows}
    std = shared.std if described.column else shared.std / math.sqrt(2 * m.layers)
    weight = matrix({f"{name}.weight": part for name, part in parts.items()}, m.hidden, std=std, **cut)
    if not described.bias:
        return Linear(weight, None)
    if described.column:
        return Linear(weight, split_vector({f"{name}.bias": part for name, part in parts.items()}, **cut))
    return Linear(weight, whole_vector(f"{at}.{described.parts[0].name}.bias", m.hidden, "zeros"))


class Block(nn.Module):
    def __init__(self, number: int, shared: Shared, at: str | None = None):
        super().__init__()
        m, tp = shared.model, shared.tp
        self.shared = shared
        at = at or f"layers.{number}"
        self.norm1, self.norm2 = norm(f"{at}.norm1", shared), norm(f"{at}.norm2", shared)
        qkv, out, *mlp = layer.linears(m)
        cut = {"rank": tp.rank, "size": tp.size}
        self.sinks = split_vector({f"{at}.attn.sinks": layer.Part("attn.sinks", m.heads)}, **cut) if m.sinks else None
        self.window = m.window(number)
        self.latent = LatentAttention(at, shared) if m.is_latent else None
        """In place of the next five."""
        if self.latent is None:
            self.q_norm, self.k_norm = (head_norm(f"{at}.attn.{n}_norm", shared) if m.normed_qk else None for n in "qk")
            self.qkv, self.out = _linear(at, qkv, shared), _linear(at, out, shared)
            self.heads, self.kv_heads = (part.held(tp.size) // m.head_size for part in qkv.parts[:2])
        self.experts: Experts | None = None
        if m.has_experts(number):
            beside = [_linear(at, linear, shared) for linear in experts.shared_linears(m)] if m.shared_inner else [None, None]
            self.experts = Experts(number, at, shared, *beside)
        else:
            self.up, self.down = (_linear(at, linear, shared) for linear in mlp)
        self.impl = shared.ops.block(self) if self.experts is None else None

    def forward(self, x_BSH: Tensor) -> Tensor:
        if self.impl is not None:
            return self.impl(x_BSH)
        tp, through = self.shared.tp, self.shared.through
        x_BSH = x_BSH + (self._attention(x_BSH) if self.latent is None else self.latent(x_BSH, self.norm1))
        if self.experts is not None:
            return x_BSH + through(self.norm2, x_BSH, self.experts)
        inner = through(self.norm2, x_BSH, lambda h: column_linear(h, self.up.weight, self.up.bias, tp))
        return x_BSH + through(self.shared.activation, inner, lambda h: row_linear(h, self.down.weight, self.down.bias, tp))

    def _attention(self, x_BSH: Tensor) -> Tensor:
        tp = self.shared.tp
        qkv = self.shared.through(self.norm1, x_BSH, lambda h: column_linear(h, self.qkv.weight, self.qkv.bias, tp))
        mixed = attend(qkv, heads=self.heads, kv_heads=self.kv_heads, positions=self.shared.positions,
                       backend=self.shared.ops.attention, q_norm=self.q_norm, k_norm=self.k_norm, window=self.window,
                       sinks=self.sinks)
        return row_linear(mixed, self.out.weight, self.out.bias, tp)


class Tokens(nn.Module):
    """The vocabulary's rows; also the head's matrix when the two are tied."""

    def __init__(self, name: str, shared: Shared, *, uses: int = 1, copy: bool = False):
        super().__init__()
        m, tp = shared.model, shared.tp
        self.tp = tp
        self.add_rows = shared.ops.add_rows
        self.weight = vocabulary(name, m.vocab, m.padded_vocab(tp.size), m.hidden, rank=tp.rank, size=tp.size, std=shared.std,
                                 uses=uses, copy=copy)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        return embedding(tokens_BS, self.weight, self.tp, self.add_rows)


class Entry(nn.Module):
    """What follows the embedding: learned positions, a norm, or both."""

    def __init__(self, shared: Shared):
        super().__init__()
        m, self.tp, self.add_positions, self.rows = shared.model, shared.tp, shared.ops.add_positions, shared.positions.rows
        self.norm = end_norm("embed.norm", shared) if m.normed_embedding else None
        self.positions = whole_matrix({"embed.positions.weight": m.seq}, m.hidden, std=shared.std) if m.learned else None

    def forward(self, x_BSH: Tensor) -> Tensor:
        if self.positions is not None:
            first = self.tp.rank * x_BSH.shape[1] if self.tp.sequence_parallel else 0
            x_BSH = self.add_positions(x_BSH, self.positions, self.rows(first, x_BSH.shape[1]))
        return x_BSH if self.norm is None else self.norm(x_BSH)


class Stage(nn.Module):
    """Layers `first` to `last` - 1, with the embedding when they are the model's first and the head when its last."""

    def __init__(self, shared: Shared, *, first: int, last: int, has_embedding: bool, has_head: bool):
        super().__init__()
        m = shared.model
        self.shared, self.has_embedding, self.has_head = shared, has_embedding, has_head
        further = m.mtp if has_head else 0
        heads = 1 + further if has_head and m.ties else 0
        self.tokens = Tokens(TOKENS, shared, uses=1 + further + heads) if has_embedding else None
        self.entry = Entry(shared) if has_embedding and (m.learned or m.normed_embedding) else None
        self.layers = nn.ModuleDict({str(i): Block(i, shared) for i in range(first, last)})
        self.final_norm = end_norm("final_norm", shared) if has_head else None
        self.head: Tokens | None = None
        if has_head:
            tied = self.tokens if m.ties else Tokens("head.weight", shared, uses=1 + further)
            self.head = tied or Tokens(TOKENS, shared, uses=1 + 2 * further, copy=True)
        self.lookup: Tokens | None = None
        """What embeds the tokens of multi-token prediction."""
        if further:
            self.lookup = self.tokens or (self.head if m.ties else Tokens(TOKENS, shared, uses=further, copy=True))
        self.further = nn.ModuleDict()
        """Its layers, by name; whoever makes the stage puts them here."""

    def blocks(self) -> list[tuple[str, Block]]:
        return [(f"layers.{number}", cast(Block, block)) for number, block in self.layers.items()]

    def further_blocks(self) -> list[tuple[str, Block]]:
        return [(f"mtp.{depth}", cast(Block, layer.block)) for depth, layer in self.further.items()]

    def units(self) -> list[tuple[str, nn.Module]]:
        """The pieces that are gathered and reduced as one, in the order of the forward pass."""
        named: list[tuple[str, nn.Module | None]] = [("tokens", self.tokens), ("entry", self.entry)]
        named += self.blocks()
        named += [("final_norm", self.final_norm), *((f"mtp.{depth}", layer) for depth, layer in self.further.items())]
        found = [(name, module) for name, module in named if module is not None]
        for name, rows in (("lookup", self.lookup), ("head", self.head)):
            if rows is not None and rows is not self.tokens and (name == "head" or rows is not self.head):
                found.append((name, rows))
        return found

    def path(self) -> list[tuple[str, nn.Module]]:
        """The units that a forward pass goes through; the others are the loss's."""
        return [(name, module) for name, module in self.units()
                if name not in ("lookup", "head") and not name.startswith("mtp.")]
