"""A layer, the embedding and the head, described once: linears, tensors, GEMMs, and what a micro-batch leaves behind.

    gemms(model, tp=8)                  [Gemm(name="qkv", cols=5376, inner=14336), …] of one tensor-parallel rank
    tensors(model, tp=8)                every parameter of one layer as a rank holds it
    numbers(tensors(model, tp=8))       how many numbers these have

All of it is arithmetic on a model's effective choices (`kv`, `head_size`, `inner`, `gated`, `qkv_bias`, …), so it takes a
`Model` and gives numbers, and takes the planner's columns (`plan.configs.Configs`) and gives arrays. A choice counts as 0 or 1:
what a model does not have is there with 0 numbers.
"""
from __future__ import annotations

from typing import Any, NamedTuple

from seatrial.arith.counts import Count

Shape = Any
"""A Model, or columns under the same names."""


class Part(NamedTuple):
    """One global matrix [units x size, hidden]."""

    name: str
    """Inside a layer, the same on every topology."""
    units: Count
    """What tensor parallelism deals out: heads, or single rows."""
    size: Count = 1
    """Rows of a unit."""

    @property
    def rows(self) -> Count:
        return self.units * self.size

    def held(self, tp: Count) -> Count:
        """Rows on one rank. Where there are fewer units than ranks, several ranks hold the same one."""
        return -(-self.units // tp) * self.size


class Linear(NamedTuple):
    """Matrices that one GEMM computes with, one under the other."""

    name: str
    label: str
    """What people call it."""
    parts: tuple[Part, ...]
    column: bool
    """Column-parallel: out of the residual stream, its outputs cut. Else row-parallel: back into it, its inputs cut."""
    bias: Count

    def width(self, tp: Count) -> Count:
        """Outputs (column-parallel) or inputs (row-parallel) on one rank; the other side is hidden."""
        return sum(part.held(tp) for part in self.parts)


def linears(s: Shape) -> tuple[Linear, ...]:
    """In the order of the forward pass."""
    size = s.head_size
    return (
        Linear("qkv", "query, key, value", (Part("attn.q", s.heads, size), Part("attn.k", s.kv, size),
                                            Part("attn.v", s.kv, size)), True, s.qkv_bias),
        Linear("out", "attention output", (Part("attn.out", s.heads, size),), False, s.out_bias),
        Linear("up", "MLP up", (Part("mlp.gate", s.gated * s.inner), Part("mlp.up", s.inner)), True, s.mlp_bias),
        Linear("down", "MLP down", (Part("mlp.down", s.inner),), False, s.mlp_bias),
    )  # fmt: skip


class Gemm(NamedTuple):
    """[tokens, inner] x [inner, cols], forward, on one rank; backward has one for the input and one for the weight."""

    name: str
    label: str
    cols: Count
    inner: Count


def gemms(s: Shape, tp: Count) -> list[Gemm]:
    found = []
    for linear in linears(s):
        width = linear.width(tp)
        found.append(Gemm(linear.name, linear.label, *((width, s.hidden) if linear.column else (s.hidden, width))))
    return found


def head_gemm(s: Shape, rows: Count) -> Gemm:
    """The logits; `rows`: of the vocabulary's matrix on one rank."""
    return Gemm("head", "logits", rows, s.hidden)


class Tensor(NamedTuple):
    """One parameter as a rank holds it."""

    name: str
    numbers: Count


def norm(s: Shape, width: Count) -> Count:
    """Numbers of a norm: its weight, and LayerNorm's bias."""
    return (1 + s.layernorm) * width


def _norm(s: Shape, name: str, width: Count, there: Count = 1) -> list[Tensor]:
    return [Tensor(f"{name}.weight", there * width), Tensor(f"{name}.bias", there * s.layernorm * width)]


def tensors(s: Shape, tp: Count) -> list[Tensor]:
    """Of one layer on one rank."""
    of = linears(s)
    return [*split_tensors(s, tp, of), *whole_tensors(s, of)]


Of = tuple[Linear, ...]
"""The linears of a layer where they are at hand."""


def split_tensors(s: Shape, tp: Count, of: Of = ()) -> list[Tensor]:
    """Those that tensor parallelism divides …"""
    of = of or linears(s)
    return [*attention_split(s, tp, of), *divided(of[2:], s, tp)]


def whole_tensors(s: Shape, of: Of = ()) -> list[Tensor]:
    """… and those that every rank holds whole."""
    of = of or linears(s)
    return [*attention_whole(s, of), *whole_biases(of[2:], s), *norm_tensors(s)]


def attention_split(s: Shape, tp: Count, of: Of = ()) -> list[Tensor]:
    """The same of attention alone."""
    return [*divided((of or linears(s))[:2], s, tp, 1 - s.is_latent), *latent_split(s, tp), *sinks(s, tp)]


def attention_whole(s: Shape, of: Of = ()) -> list[Tensor]:
    return [*whole_biases((of or linears(s))[:2], s), *latent_whole(s)]


def divided(of: tuple[Linear, ...], s: Shape, tp: Count, there: Count = 1) -> list[Tensor]:
    found = []
    for linear in of:
        width = linear.width(tp)
        found.append(Tensor(f"{linear.name}.weight", there * width * s.hidden))
        if linear.column:
            found.append(Tensor(f"{linear.name}.bias", there * linear.bias * width))
    return found


def whole_biases(of: tuple[Linear, ...], s: Shape) -> list[Tensor]:
    return [Tensor(f"{linear.name}.bias", linear.bias * s.hidden) for linear in of if not linear.column]


def norm_tensors(s: Shape) -> list[Tensor]:
    """Of the residual stream and, where they are, of queries and keys."""
    found = [*_norm(s, "norm1", s.hidden), *_norm(s, "norm2", s.hidden)]
    return [*found, *_norm(s, "q_norm", s.head_size, s.normed_qk), *_norm(s, "k_norm", s.head_size, s.normed_qk)]


def latent_split(s: Shape, tp: Count) -> list[Tensor]:
    """Latent attention: what makes each head's queries, keys and values out of the compressed ones (or the queries out of the
    residual stream), and leads back."""
    held, query = -(-s.heads // tp), s.head_size + s.rope_dim
    inner = s.q_rank + (s.q_rank == 0) * s.hidden
    return [Tensor("q_up.weight", s.is_latent * held * query * inner),
            Tensor("kv_up.weight", s.is_latent * held * (s.head_size + s.value_dim) * s.kv_rank),
            Tensor("out.weight", s.is_latent * held * s.value_dim * s.hidden)]


def latent_whole(s: Shape) -> list[Tensor]:
    """… and what compresses, with its norms."""
    return [Tensor("q_down.weight", s.is_latent * s.q_rank * s.hidden), *_norm(s, "q_down_norm", s.q_rank, s.is_latent),
            Tensor("kv_down.weight", s.is_latent * (s.kv_rank + s.rope_dim) * s.hidden),
            *_norm(s, "kv_down_norm", s.kv_rank, s.is_latent)]


def sinks(s: Shape, tp: Count) -> list[Tensor]:
    """A number of each head."""
    return [Tensor("sinks", s.has_sinks * -(-s.heads // tp))]


def entry(s: Shape) -> list[Tensor]:
    """What follows the word embedding on the first stage, whole on every rank."""
    return [Tensor("positions", s.learned * s.seq * s.hidden), *_norm(s, "norm", s.hidden, s.normed_embedding)]


def matrices(s: Shape, tp: Count = 1) -> Count:
    """Numbers in the matrices of one dense layer on one rank."""
    return attention_matrices(s, tp) + (2 + s.gated) * -(-s.inner // tp) * s.hidden


def attention_matrices(s: Shape, tp: Count = 1) -> Count:
    """Numbers in the matrices of one layer's attention."""
    plain = 2 * (-(-s.heads // tp) + -(-s.kv // tp)) * s.head_size * s.hidden
    if s.is_latent is False:  # of a model, and not of columns
        return plain
    compressed = [tensor for tensor in (*latent_split(s, tp), *latent_whole(s)) if "norm" not in tensor.name]
    return (1 - s.is_latent) * plain + numbers(compressed)


def vectors(s: Shape) -> Count:
    """Numbers of one dense layer that are in no matrix: biases, norms and sinks. With those these are all its tensors."""
    norms = 2 * s.hidden + 2 * s.normed_qk * s.head_size + s.is_latent * (s.q_rank + s.kv_rank)
    qkv = (1 - s.is_latent) * (s.heads + 2 * s.kv) * s.head_size
    biases = s.qkv_bias * qkv + s.out_bias * s.hidden + s.mlp_bias * ((1 + s.gated) * s.inner + s.hidden)
    return norm(s, norms) + biases + s.has_sinks * s.heads


def numbers(tensors: list[Tensor]) -> Count:
    return sum(tensor.numbers for tensor in tensors)


class Widths(NamedTuple):
    """Numbers a token that one layer computes inside its linears, on one rank. Around them are four of width hidden: what goes
    into either norm and what comes out of it."""

    qkv: Count
    rotated: Count
    """Queries and keys made anew, by rotary positions or by norms of their own."""
    context: Count
    up: Count
    """Into the activation, gate included …"""
    inner: Count
    """… and out of it."""

    @property
    def linears(self) -> Count:
        """Of the four linears: their matrices have so many rows of hidden."""
        return self.qkv + self.context + self.up + self.inner


def widths(s: Shape, tp: Count) -> Widths:
    qkv, out, up, down = linears(s)
    query, key, _ = qkv.parts
    anew, plain = s.rope + s.normed_qk - s.rope * s.normed_qk, 1 - s.is_latent
    # Latent attention computes with keys as wide as its queries, of every head, and values of another width.
    held = s.is_latent * -(-s.heads // tp)
    wide, value = held * (s.head_size + s.rope_dim), held * s.value_dim
    return Widths(qkv=plain * qkv.width(tp) + 2 * wide + value,
                  rotated=plain * anew * (query.held(tp) + key.held(tp)) + 2 * wide,
                  context=plain * out.width(tp) + value, up=up.width(tp), inner=down.width(tp))
