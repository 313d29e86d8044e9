"""What the planner will ask about: the GEMMs and attentions of one rank's layer, for a model, TP and micro-batch.

    gemms(model, tp=8, mbs=4)        [GemmShape(kind="forward", rows=8192, cols=5376, inner=14336), …]

A test holds this list to what `plan/layer.py` really asks.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from seatrial.arith import layer
from seatrial.spec import Model, kv_fits


class GemmShape(NamedTuple):
    """[rows, inner] x [inner, cols], `batch` times."""

    kind: str
    """`forward` x Wᵀ, `input` dy W, `weight` dyᵀ x, `batched` of attention that stores its scores."""
    rows: int
    cols: int
    inner: int
    batch: int = 1


class Attention(NamedTuple):
    """Causal, fused."""

    batch: int
    heads: int
    kv_heads: int
    seq: int
    head_dim: int
    bias: bool
    """With ALiBi's bias, which other kernels serve."""


class RankShape(NamedTuple):
    """A model as one rank sees it."""

    model: Model
    tp: int
    mbs: int


def gemms(model: Model, *, tp: int, mbs: int) -> list[GemmShape]:
    """The four linears of a layer; three GEMMs each."""
    return [shape for gemm in layer.gemms(model, tp) for shape in _three(mbs * model.seq, gemm.cols, gemm.inner)]


def head(model: Model, *, tp: int, tokens: int) -> list[GemmShape]:
    """Logits. They are long; a part of the tokens tells their rate."""
    gemm = layer.head_gemm(model, model.padded_vocab(tp) // tp)
    return _three(tokens, gemm.cols, gemm.inner)


def _three(tokens: int, cols: int, inner: int) -> list[GemmShape]:
    return [GemmShape("forward", tokens, cols, inner), GemmShape("input", tokens, inner, cols),
            GemmShape("weight", cols, inner, tokens)]


def stored(model: Model, *, tp: int, mbs: int) -> list[GemmShape]:
    """Scores and their weighted sum, where they are not fused."""
    heads = mbs * model.heads // tp
    return [GemmShape("batched", model.seq, model.seq, model.head_size, heads),
            GemmShape("batched", model.seq, model.head_size, model.seq, heads)]


def attention(model: Model, *, tp: int, mbs: int) -> Attention:
    return Attention(batch=mbs, heads=model.heads // tp, kv_heads=-(-model.kv // tp), seq=model.seq,
                     head_dim=model.head_size, bias=model.alibi)


def possible(models: Iterable[Model], tps: Iterable[int], mbss: Iterable[int]) -> list[RankShape]:
    """The combinations that a layout could have."""
    return [RankShape(model, tp, mbs) for model in models for tp in tps for mbs in mbss
            if model.heads % tp == 0 and kv_fits(model.kv, tp) and model.dense_inner % tp == 0]
