"""Rows (tokens x hidden numbers) that a block keeps of a micro-batch, and those that its passes make for a while.

    Block.of(layout, gpu=True).kept     a GPT block keeps 16 of them
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from seatrial.arith import layer
from seatrial.arith.counts import Count, ever, larger, pick
from seatrial.arith.layout import FP32, Layout
from seatrial.arith.routed import Routed

TOKEN = 8
"""Bytes of a token's number."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """In rows on one tensor-parallel rank."""

    kept: Count
    """From its forward pass to its backward pass."""
    inside_mlp: Count
    """What the backward pass adds at its fullest: what it makes again, and gradients of the MLP's inner width …"""
    gone: Count
    """… of which this is gone when the first gradient of a weight comes …"""
    at_weight: Count
    """… when the gradient of the MLP's first matrix is computed …"""
    at_norm: Count
    """… in the norm before the MLP …"""
    at_scores: Count
    """… in attention that keeps its scores, or norms its heads …"""
    at_input: Count
    """… and, where weights' gradients wait, in its last GEMM."""
    forward: Count
    """What the forward pass adds to what it keeps, at the end of the MLP."""
    gemms: Count
    """Inputs and gradients of the four GEMMs, which a split backward pass keeps for the weights …"""
    last_gemm: Count
    """… and of the one that it comes to last."""

    @classmethod
    def of(cls, lay: Layout, *, gpu: bool, routed: Routed | None = None) -> Block:
        """norm in and out twice, query-key-value, attention out, the MLP's inner width before and after its activation; or in
        the MLP's place what experts keep."""
        s, o, cuts, splits, full, selective = lay.shape, lay.outside, lay.cuts, lay.splits, lay.full, lay.selective
        qkv, rotated, context, up, inner = (width / s.hidden for width in layer.widths(s, lay.topology.tp))
        grouped = (s.kv != s.heads) * 1
        fused = gpu * lay.fuses if routed is None else 0
        # A fused SwiGLU puts its result where the backward pass has its gradient, which it makes where the input was.
        gated = s.gated * (1 - fused)
        product = pick(s.gated * fused, 0, inner)
        """What is kept of the activation's output."""
        # No fused kernel of a GPU takes grouped heads in fp32: scores are kept, and queries, keys and values for each head.
        stored = gpu * (1 - lay.half) * grouped * (1 - lay.divided)
        scores = stored * s.heads * lay.seq / s.hidden / lay.topology.tp
        attention = pick(stored, scores + 4 * context + s.normed_qk * qkv,
                         qkv + pick(fused, s.normed_qk, 1) * rotated + context)
        # Of a divided sequence queries, keys and values are copies; what some heads attended is kept beside its tokens.
        shared = (lay.neighbours > 1) * 1
        attention = pick(lay.divided, (1 + s.normed_qk) * qkv + (1 + shared) * context, attention)
        # Of each token: a number a head of attention, one or two of each norm, and one a head of a norm of queries and keys.
        small = (1 - stored) * s.heads / lay.topology.tp + 2 * (1 + s.layernorm)
        over_each = s.heads // lay.topology.tp + -(-s.kv // lay.topology.tp)
        small = small + (1 - fused) * s.normed_qk * (1 + s.layernorm) * over_each
        silu = gated * gpu * inner
        between, last = 2 * o, 1 + qkv
        """Norms' results, and the last GEMM's factors."""
        if ever(s.is_latent):
            short = Short.of(lay, gpu=gpu)
            attention, between = pick(s.is_latent, short.kept, attention), between + s.is_latent * short.normed
            small, qkv = small + s.is_latent * 2 * o, pick(s.is_latent, short.gemms, qkv)
            last = pick(s.is_latent, o + short.down, 1 + qkv)
        whole = 4 * o + attention + up + product + silu + small * FP32 / lay.element / s.hidden
        # In eight bits norms and the activation are always made again.
        selective = larger(selective, lay.fp8 * (1 - full))
        made = lay.fp8 * (2 * o + product)
        if routed is not None:
            return cls._routed(lay, routed, whole=whole - up - product - silu + routed.kept, between=between,
                               gemms=qkv + context, gpu=gpu)
        kept = pick(full, o, whole - selective * (between + product))
        again = full * (whole - o - made)
        # The gradient of the activation's output and, for a gated one, of its input with products between.
        gradients = pick(gated, (2 if gpu else 4) * inner, inner) + selective * (1 - lay.fp8) * product
        gradients = gradients + lay.fp8 * (up + 0.5 * inner + 1)
        # What the weights' GEMMs wait for is not let go as the pass goes on.
        waits = splits * (1 - fused) * inner
        gathered = cuts * pick(gated, splits, 1 - lay.fp8)
        # The MLP's own is gone by then, but what waits.
        gone = up + silu + pick(splits, product - inner - selective * product, (1 - selective) * product)
        # A cut sequence is put together in the order of the ranks, and then in its own.
        copies = cuts * (1 + (lay.topology.mbs > 1) * pick(fused, 1, 2 if gpu else 1) + larger(splits, fused))
        at_weight = again - gone + up + 1 + copies + selective * o
        rms = (1 - s.layernorm) * (0 if gpu else 1) * o * pick(lay.half, 10, 4)
        waiting = pick(splits, up + selective * o + 2 * cuts, -(1 - selective) * o)
        at_norm = again - gone + waiting + rms + o
        at_scores = stored * (again + 2 * scores - gone + waiting - o - context)
        # A norm over heads sees the whole sequence.
        over_heads = s.normed_qk * (1 - s.layernorm) * (0 if gpu else 1)
        at_heads = over_heads * (again - gone + waiting - o - context - rotated + qkv + context * pick(lay.half, 10, 4))
        at_keys = lay.divided * (again - gone + waiting - o - shared * context + Keys.of(lay, context).backward)
        gemms = (4 + qkv + context + up + inner) * pick(lay.fp8, 0.5, 1)
        at_input = splits * (gemms - kept + (2 + fused) * o + larger(1 + cuts * (lay.topology.mbs > 1), rms + o))
        forward = 1 + o + selective * (1 - lay.fp8) * (o + product) + full * (2 * o + up + product) + inner - product
        used = fused * (1 - splits) * pick(lay.fp8, up + inner, (1 - s.gated) * up)
        return cls(
            kept=kept, inside_mlp=again + gradients + waits + gathered + o, gone=used, at_weight=at_weight + o,
            at_norm=at_norm + o, at_scores=larger(at_scores, at_heads, at_keys) + o, at_input=at_input, forward=forward,
            gemms=gemms, last_gemm=last * pick(lay.fp8, 0.5, 1),
        )  # fmt: skip


    @classmethod
    def _routed(cls, lay: Layout, routed: Routed, *, whole: Count, between: Count, gemms: Count, gpu: bool) -> Block:
        """The norm's result is made again before all that the experts do with it."""
        o, full, selective, splits = lay.outside, lay.full, lay.selective, lay.splits
        again = full * (whole - o)
        kept = pick(full, o, whole - selective * (between + routed.cheap))
        gone = routed.kept - selective * routed.cheap
        rms = (1 - lay.shape.layernorm) * (0 if gpu else 1) * o * pick(lay.half, 10, 4)
        at_norm = again - gone + pick(splits, routed.waits, -(1 - selective) * o) + rms + routed.norm + o
        gemms = 2 + gemms + routed.waits
        return cls(
            kept=kept, gone=0, at_weight=0,
            inside_mlp=again + larger(routed.backward, full * routed.forward) + selective * o + splits * routed.late + o,
            at_norm=at_norm + o, at_scores=0, at_input=splits * (gemms - kept + 2 * o + rms + o),
            forward=routed.forward + o + selective * (o + routed.cheap) + full * (whole - 2 * o), gemms=gemms,
            last_gemm=0,
        )  # fmt: skip


class Short(NamedTuple):
    """Latent attention: rows that short vectors and the heads made of them take (`engine/core/latent.py`)."""

    kept: Count
    normed: Count
    """Of it, results of the norms between."""
    gemms: Count
    """Inputs and gradients of its GEMMs but that back into the residual stream …"""
    down: Count
    """… of them, what the first one gave."""

    @classmethod
    def of(cls, lay: Layout, *, gpu: bool) -> Short:
        s, o = lay.shape, lay.outside
        heads, wide = -(-s.heads // lay.topology.tp) / s.hidden, s.head_size + s.rope_dim
        padded = lay.divided if gpu else 1
        """Values are made as wide as keys, and cut again."""
        as_wide = larger(wide, s.value_dim)
        values = pick(padded * (as_wide > s.value_dim), as_wide, pick(padded, 0, s.head_size) + s.value_dim)
        mixed = s.value_dim + padded * (as_wide > s.value_dim) * as_wide
        down, normed = o * (s.q_rank + s.kv_rank + s.rope_dim) / s.hidden, o * (s.q_rank + s.kv_rank) / s.hidden
        query = heads * wide
        return cls(down=down, kept=down + normed + 2 * query + heads * (values + mixed), normed=normed,
                   gemms=down + normed + query + heads * (s.head_size + s.value_dim))


class Keys(NamedTuple):
    """What attention over the keys of other ranks makes for a while, in rows (`engine/core/context.py`)."""

    backward: Count

    @classmethod
    def of(cls, lay: Layout, queries: Count) -> Keys:
        wide = larger(FP32 / lay.element, 1)
        both = 2 * -(-lay.shape.kv // lay.topology.tp) * lay.shape.head_size / lay.shape.hidden
        """Keys and values of this rank's tokens."""
        ring = lay.topology.cp // lay.neighbours
        more, several = (ring > 2) * 1, (ring > 1) * 1
        mixed = queries + both
        # At hand and on their way; gradients of this rank's own, of others on their way, and of those just attended.
        round_ = queries * wide + (1 + more) * both + (1 + 2 * more) * both * wide + larger(mixed, 2 * both * wide)
        gathered = queries * wide + ring * both + larger(2 * ring * both * wide, ring * both * wide + mixed)
        alone = queries + both + both * wide
        found = queries + pick(several, pick(lay.gathers_keys, gathered, round_), alone)
        # Gradients on their way back to whose tokens they are of: side by side, by rank, and as they come.
        return cls(backward=larger(found, (lay.neighbours > 1) * (2 * queries + both * wide + 3 * mixed + both)))


def positions(lay: Layout) -> Count:
    """Bytes of what all blocks share: angles, or the biases of every piece of attention; and where the tokens stand."""
    s, ring = lay.shape, lay.topology.cp // lay.neighbours
    heads = s.heads // lay.topology.tp // lay.neighbours
    member = lay.seq * lay.neighbours
    # Of its own keys all pairs, of the others' half; gathered, of two stretches the keys up to each.
    pairs = member * member * pick(lay.gathers_keys * (ring > 1), (2 * ring + 1) / 4, (ring + 1) / 2)
    # Inside documents biases are made for each piece as it is attended.
    alibi = (1 - s.learned - s.rope) * (1 - lay.packs)
    angles = pick(s.is_latent, s.rope_dim, s.head_size)
    return (alibi * heads * pairs + s.rope * angles * lay.seq) * lay.element + lay.divided * lay.seq * TOKEN
