"""Bytes by part that one rank of this engine holds at its fullest, counted from the shapes alone.

    footprint(trial, rank=0).total                  at the fullest moment; rank: of the pipeline, those of a stage are alike
    footprint(trial, rank=0).activations            each part's own peak, as the engine's tracker reports it
    footprint(trial, rank=0).at_peak                parts that add up to the total

A step is a few moments that can be the fullest: a block's backward pass (in its MLP, in a norm, in attention that keeps its
scores) wherever the schedule holds most (`held.py`), the loss, the embedding, the optimizer's own. Each is arithmetic on the
layout: a `Layout` of numbers gives numbers, and one of the planner's columns (`plan/ours.py`) gives arrays. Rows below are
tokens x hidden numbers: a GPT block keeps 16 of them (see `Block`).
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from seatrial.arith import experts, layer
from seatrial.arith.counts import Count, ever, larger, pick, smaller
from seatrial.arith.held import Held, held_by
from seatrial.arith.routed import Routed
from seatrial.schedule import splits_backward
from seatrial.spec import BYTES, Trial, context_split, experts_of_stages, stages_of

FP32 = 4
TOKEN = 8
"""Bytes of a token's number."""
LOGITS_BYTES = 2**31
MATRICES = 4
"""Of a block."""
PIECES, LEAST_PIECE = 32, 4096
"""Of moments that are widened for the update (`engine/core/optim.py`)."""

EVEN = (1.0, 1.0)
"""Rows that experts receive over an even share: over layers and micro-batches, and most in the layer that a backward pass
begins with, when all others are still held."""

PARTS = ("weights", "gradients", "optimizer", "activations", "working", "logits", "communication", "buffers", "workspaces")
WORKSPACE = 32 * 2**20
"""Of cuBLAS on Hopper and later (a quarter of it before), one a thread that issues GEMMs; and of our own choice of algorithms
(`engine/fast/tuned_gemm.py`)."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the count asks of a trial. Choices are 0 or 1."""

    shape: layer.Shape
    """A Model …"""
    topology: Any
    """… and a Topology, or columns under the same names."""
    vocab: Count
    """Rows of the embedding as stored, padding included."""
    microbatches: Count
    selective: Count
    full: Count
    splits: Count
    """Whether the schedule splits the backward pass."""
    element: Count
    """Bytes of a weight as it is computed with."""
    bf16: Count
    """… whether these are upper halves of fp32 …"""
    fp8: Count
    """… and whether blocks compute in eight bits."""
    moments: Count
    """Bytes."""
    plain: Count
    """adamw-plain"""
    bucket: Count
    """Numbers in a full bucket."""
    logits_chunk: Count
    neighbours: Count = 1
    """Context-parallel ranks that share heads …"""
    gathers_keys: Count = 0
    """… and whether keys of the others are gathered, where they do not come round a ring."""
    packs: Count = 0
    """Whether documents are packed: one rank alone then attends as a ring of one does."""
    mixture: bool = False
    """Whether there are experts anywhere …"""
    gathers_tokens: Count = 0
    """… whether all tokens are gathered for them …"""
    load: Count = 1.0
    """… and rows that they receive over an even share, over layers and micro-batches …"""
    most_load: Count = 1.0
    """… and where they are most."""

    @classmethod
    def of(cls, trial: Trial, load: tuple[float, float] = EVEN) -> Layout:
        m, t, execution = trial.model, trial.topology, trial.execution
        return cls(
            shape=m, topology=t, vocab=m.padded_vocab(t.tp), microbatches=trial.microbatches,
            selective=int(t.recompute == "selective"), full=int(t.recompute == "full"), splits=int(splits_backward(t.schedule)),
            element=max(2, BYTES[t.precision]), bf16=int(t.precision in ("bf16", "fp8")), fp8=int(t.precision == "fp8"),
            moments=BYTES[execution.moments], plain=int(execution.optimizer == "adamw-plain"),
            bucket=int(execution.bucket_mib * 2**20 / FP32), logits_chunk=execution.logits_chunk,
            neighbours=context_split(m, t)[0], gathers_keys=int(t.cp_kind == "gather"),
            packs=int(trial.batch.documents is not None), mixture=m.mixture,
            gathers_tokens=int(t.moe_dispatcher == "allgather"), load=load[0], most_load=load[1],
        )  # fmt: skip

    @cached_property
    def seq(self) -> Count:
        """Tokens of a sequence that a rank has."""
        return self.shape.seq // self.topology.cp

    @cached_property
    def divided(self) -> Count:
        """Whether other ranks have the rest, or attention is in pieces all the same."""
        return ((self.topology.cp > 1) | (self.packs > 0)) * 1

    @cached_property
    def fuses(self) -> Count:
        """Whether a GPU runs a block as one function (`engine/fast/config.py`)."""
        s = self.shape
        return (1 - s.is_latent) * (1 - s.has_sinks) * (1 - s.normed_qk * s.layernorm) * self.half

    @cached_property
    def rows(self) -> Count:
        """Numbers of the vocabulary's matrix on one rank."""
        return self.vocab // self.topology.tp * self.shape.hidden

    @cached_property
    def row(self) -> Count:
        """Bytes."""
        return self.topology.mbs * self.seq * self.shape.hidden * self.element

    @cached_property
    def cuts(self) -> Count:
        """Whether norms see a stretch of the sequence."""
        return self.topology.sequence_parallel * (self.topology.tp > 1)

    @cached_property
    def outside(self) -> Count:
        """Rows of the residual stream."""
        return 1 / pick(self.cuts, self.topology.tp, 1)

    @cached_property
    def over(self) -> tuple[Count, Count, Count]:
        """Ranks that weights, gradients and optimizer state are divided over."""
        found: tuple[Count, Count, Count] = self.topology.divided_over
        return found

    @cached_property
    def experts_over(self) -> tuple[Count, Count, Count]:
        """The same of experts."""
        found: tuple[Count, Count, Count] = self.topology.experts_divided_over
        return found

    @cached_property
    def half(self) -> Count:
        return (self.element < FP32) * 1


# what the buckets hold


class Chunk(NamedTuple):
    """Virtual stages of a rank that are alike."""

    count: Count
    layers: Count
    first: Count
    last: Count
    mixed: Count = 0
    """Layers that have experts."""


class State(NamedTuple):
    """Numbers on one rank."""

    flat: Count
    """In all buckets, with what rounding adds."""
    block: Count
    """A block's parameters, each at a multiple of hidden …"""
    gathered: Count
    """… and rounded up to be cut over replicas."""
    deep: Count
    """Blocks of a full bucket."""
    bucket: Count
    """The fullest of blocks."""
    several: Count
    """Whether there is more than one as full …"""
    chained: Count
    """… and one after the other."""
    tail: Count
    """What the optimizer updates right before the embedding or the head, if anything."""
    joined: Count
    """Whether the last norm lies in a bucket with blocks."""
    owns_head: Count
    """Whether the head is a matrix of its own here."""


def state_of(lay: Layout, chunks: list[Chunk]) -> State:
    s, tp = lay.shape, lay.topology.tp
    unit = s.hidden * lay.over[2]
    tensors, entries = layer.tensors(s, tp), layer.entry(s)
    block, raw = _aligned(tensors, s), layer.numbers(tensors)
    if lay.mixture:
        rest, mixed = [*experts.rest_split(s, tp), *experts.rest_whole(s)], sum(c.count * c.mixed for c in chunks)
        every = larger(1, sum(c.count * c.layers for c in chunks))
        # Layers of both kinds lie in the same buckets.
        block, raw = (both + mixed * (own - both) // every for both, own in
                      ((block, _aligned(rest, s)), (raw, layer.numbers(rest))))
    entry, raw_entry, norm = _aligned(entries, s), layer.numbers(entries), layer.norm(s, s.hidden)
    alone = (lay.topology.zero == 3) * 1
    deep = pick(alone, 1, larger(1, lay.bucket // raw))
    flat = owns_head = fullest = buckets = stages = tail = chained = 0
    for count, layers, first, last, _ in chunks:
        own_head = last * (1 - s.ties * first)
        begins = last * (1 - alone) * smaller(layers, larger(0, (lay.bucket - norm) // raw))
        """Blocks in the bucket of the last norm."""
        left = layers - begins
        rest = left % deep
        open_blocks = pick((rest > 0) * 1, rest, pick((left > 0) * 1, deep, begins))
        open_norm = last * norm * (left == 0)
        joins = (1 - alone) * (open_blocks * raw + open_norm + raw_entry <= lay.bucket) * ((open_blocks > 0) | (open_norm > 0))
        apart = _up(entry, unit)
        joined = _up(open_blocks * block + open_norm + entry, unit) - _up(open_blocks * block + open_norm, unit)
        path = last * _up(norm + begins * block, unit) + left // deep * _up(deep * block, unit) + _up(rest * block, unit)
        path = path + first * (entry > 0) * pick(joins, joined, apart)
        flat = flat + count * (path + (first + own_head) * _up(lay.rows, unit))
        owns_head = owns_head + count * own_head
        buckets = buckets + count * (layers // larger(1, smaller(deep, layers)))
        chained = larger(chained, (layers >= 2 * deep) * 1)
        stages = stages + count
        tail = tail + count * first * pick(larger(joins, 1 - s.learned), open_blocks * block, 0)
        fullest = larger(fullest, (count > 0) * _up(smaller(deep, layers) * block, unit))
    return State(
        flat=flat, block=block, gathered=_up(block, unit), deep=deep, bucket=fullest, several=(buckets > 1) * 1,
        chained=larger(chained, (buckets > 1) * (1 - owns_head)), tail=larger(tail, owns_head * (stages > 1) * fullest),
        owns_head=owns_head, joined=(1 - alone) * (norm + raw <= lay.bucket),
    )  # fmt: skip


class Routes(NamedTuple):
    """The same of experts, whose buckets are their own."""

    flat: Count = 0
    block: Count = 0
    """Of a layer that has some …"""
    mean: Count = 0
    """… and over all layers of the rank."""
    gathered: Count = 0
    deep: Count = 1
    bucket: Count = 0

    @classmethod
    def of(cls, lay: Layout, chunks: list[Chunk]) -> Routes:
        if not lay.mixture:
            return cls()
        s, unit = lay.shape, lay.shape.hidden * lay.experts_over[2]
        tensors = experts.expert_tensors(s, lay.topology.ep, lay.topology.expert_tp)
        block, raw = _aligned(tensors, s), larger(1, layer.numbers(tensors))
        deep = pick((lay.topology.zero == 3) * 1, 1, larger(1, lay.bucket // raw))
        flat = fullest = 0
        for chunk in chunks:
            flat = flat + chunk.count * (chunk.mixed // deep * _up(deep * block, unit) + _up(chunk.mixed % deep * block, unit))
            fullest = larger(fullest, (chunk.count > 0) * _up(smaller(deep, chunk.mixed) * block, unit))
        mean = flat // larger(1, sum(chunk.count * chunk.layers for chunk in chunks))
        return cls(flat=flat, block=block, mean=mean, gathered=_up(block, unit), deep=deep, bucket=fullest)


def _up(value: Count, multiple: Count) -> Count:
    return -(-value // multiple) * multiple


def _aligned(tensors: list[layer.Tensor], s: layer.Shape) -> Count:
    return sum(_up(tensor.numbers, s.hidden) for tensor in tensors)


# what a block keeps


@dataclass(frozen=True, kw_only=True)
class Block:
    """In rows on one tensor-parallel rank."""

    kept: Count
    """From its forward pass to its backward pass."""
    inside_mlp: Count
    """What the backward pass adds at its fullest: what it makes again, and gradients of the MLP's inner width …"""
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
        return cls(
            kept=kept, inside_mlp=again + gradients + waits + gathered + o, at_weight=at_weight + o, at_norm=at_norm + o,
            at_scores=larger(at_scores, at_heads, at_keys) + o, at_input=at_input, forward=forward, gemms=gemms,
            last_gemm=last * pick(lay.fp8, 0.5, 1),
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
            kept=kept, at_weight=0,
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


def _positions(lay: Layout) -> Count:
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


# the moments of a step


def workspaces(lay: Layout) -> Count:
    """What libraries keep on a GPU that no tensor of the engine is: forward and backward passes run on a thread each."""
    return WORKSPACE * (2 + lay.fuses)


class Moment(NamedTuple):
    """Bytes that are there at once."""

    weights: Count
    gradients: Count
    optimizer: Count
    activations: Count
    working: Count
    logits: Count
    communication: Count
    buffers: Count
    workspaces: Count


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One pipeline rank's own, whatever its schedule holds. Bytes, and numbers where it says so."""

    weights: Count
    optimizer: Count
    buffers: Count
    workspaces: Count
    row: Count
    outside: Count
    """Rows of the residual stream."""
    tokens: Count
    """A micro-batch's."""
    words: Count
    """Numbers of the vocabulary's matrix."""
    number: Count
    """Bytes of a weight …"""
    gradient: Count
    """… and of its gradient, where that stays whole."""
    shares: Count
    """1 where gradients are cut …"""
    gathers: Count
    """… and weights too; so is the next one 1 for what it says."""
    splits: Count
    small: Count
    """Vectors of a block: their gradients come with the backward pass, those of the matrices may wait."""
    head_travels: Count
    """Whether the last norm lies in a bucket with blocks: alone it is soon complete, and the head's has arrived by then."""
    tied: Count
    """Whether one matrix is both embedding and head here."""
    flat: Count
    """Numbers in all buckets …"""
    summed: Count
    """… and of the gradients that stay, where they are cut."""
    block: Count
    """Numbers of a block …"""
    gathered: Count
    """… and bytes of it as it is gathered."""
    cast: Count
    """In eight bits beside it, with ZeRO 3."""
    deep: Count
    """Blocks of a full bucket."""
    bucket: Count
    """Numbers of the fullest."""
    routes: Routes
    """The same of experts, bytes of what is gathered …"""
    routes_share: Count
    """… 1 where their gradients are cut …"""
    routes_gradient: Count
    """… bytes of one where they are not …"""
    routes_summed: Count
    """… and numbers that stay where they are."""
    kept: Count
    """Of a block's forward pass …"""
    waits: Count
    """… and what its weights' GEMMs wait with …"""
    last_gemm: Count
    """… the last one of them."""
    normed: Count
    """Of the first stage, and …"""
    ends: Count
    """… of the last one: what a micro-batch keeps outside the blocks."""
    in_mlp: Count
    """A block's backward pass, before the first gradient of a norm …"""
    after: Count
    """… and from there on."""
    forward: Count
    loss: Count
    logits: Count
    to_words: Count
    """At the end of a backward pass, what leads to the embedding's gradient."""
    exchanged: Count
    """Gradients of a tied embedding that come from the other end of the pipeline."""
    update: Count
    """What the optimizer makes for a while …"""
    published: Count
    """… and copies of new weights on their way to the ranks that keep them: gloo's."""

    @classmethod
    def of(cls, lay: Layout, chunks: list[Chunk], *, gpu: bool) -> Rank:
        s, row, o, element = lay.shape, lay.row, lay.outside, lay.element
        state, block, routes = state_of(lay, chunks), Block.of(lay, gpu=gpu), Routes.of(lay, chunks)
        by_weights, by_gradients, shards = lay.over
        own, whole = state.flat // shards, (by_weights == 1) * 1
        has_words, has_head, layers = (sum(c.count * what for c, what in zip(chunks, which)) for which in (
            [c.first for c in chunks], [c.last for c in chunks], [c.layers for c in chunks]))  # fmt: skip
        # Of the largest bucket, what is left when it was summed among those that share the weights and travels on.
        largest = larger(state.bucket, (has_words + has_head > 0) * _up(lay.rows, s.hidden * shards))
        between = (1 - whole) * (by_gradients > by_weights) * (largest // by_weights)
        # Moments, and what masters take beside the weights: on a GPU the 16 bits that these leave out.
        split = gpu * lay.bf16 * (1 - lay.plain)
        # On a GPU gradients stay in 16 bits where nothing is added to them.
        alone = (lay.topology.data_ranks == 1) * (lay.topology.pp == 1) * (lay.microbatches == 1) * (1 - lay.cuts)
        narrow = gpu * lay.bf16 * alone
        # Eight bits beside the sixteen, as they are and transposed; with ZeRO 3 of the block at work.
        eight = lay.fp8 * 2 * layer.matrices(s, lay.topology.tp)
        half_on_cpu = 0 if gpu else lay.half
        # Weight gradients that are not fp32 themselves are made in 16 bits before they are added up.
        temporary = half_on_cpu * (1 - lay.splits) * s.hidden * element
        widths = layer.widths(s, lay.topology.tp)
        in_mlp = larger(block.inside_mlp * row + (1 - s.gated) * temporary * widths.inner,
                        block.at_weight * row + temporary * widths.up)
        kept, waits, forward = block.kept, block.gemms, block.forward
        after = larger(block.at_norm, block.at_scores, block.at_input)
        routed_weights, routed_gradients, routed_shards = (1, 1, 1)
        if lay.mixture:
            routed_weights, routed_gradients, routed_shards = lay.experts_over
            mixed = sum(c.count * c.mixed for c in chunks)
            share, has = mixed / larger(1, layers), (mixed > 0) * 1
            plain = (mixed < layers) * 1
            mean, most = (Block.of(lay, gpu=gpu, routed=Routed.of(lay, load, gpu=gpu)) for load in (lay.load, lay.most_load))
            kept, waits = kept + share * (mean.kept - kept), waits + share * (mean.gemms - waits)
            in_mlp = larger(plain * in_mlp, has * most.inside_mlp * row)
            after = larger(plain * after, has * larger(most.at_norm, most.at_input))
            forward = larger(plain * forward, has * most.forward)
        logits = logits_of(lay, gpu=gpu)
        # In eight bits the logits' gradient as it is and transposed, the first until the other's GEMM; and the head's matrix.
        made, temporary = lay.rows * pick(narrow, element, FP32), lay.rows * element * (1 - narrow)
        both = 2 * lay.rows + larger(2 * logits - (lay.microbatches == 1) * made, 1.5 * logits + temporary)
        logits = pick(lay.fp8, both, logits)
        routed_own = routes.flat // routed_shards
        # Those of a rank that shares its experts with none stay narrow too.
        routed_alone = (lay.topology.pp == 1) * (lay.microbatches == 1)
        routed_narrow = gpu * lay.bf16 * routed_alone * (lay.topology.edp == 1) if lay.mixture else 0
        return cls(
            weights=(state.flat // by_weights + routes.flat // routed_weights) * element + whole * layers * eight,
            optimizer=(own + routed_own) * (2 * lay.moments + lay.half * pick(split, FP32 - element, FP32)),
            buffers=_positions(lay),
            workspaces=workspaces(lay) if gpu else 0,
            row=row, outside=o, tokens=lay.topology.mbs * lay.seq * TOKEN, words=lay.rows, number=element,
            gradient=pick(narrow, element, FP32), shares=(by_gradients > 1) * 1, gathers=1 - whole, splits=lay.splits,
            small=(2 + 2 * s.normed_qk) * (1 + s.layernorm) + s.qkv_bias + s.out_bias + 2 * s.mlp_bias,
            head_travels=state.joined,
            tied=has_head * has_words * s.ties, flat=state.flat, summed=state.flat // by_gradients + between,
            block=state.block, gathered=state.gathered * element, cast=eight, deep=state.deep, bucket=state.bucket,
            routes=routes._replace(gathered=routes.gathered * element * (routed_weights > 1) * (routes.flat > 0)),
            routes_share=(routed_gradients > 1) * (routes.flat > 0), routes_gradient=pick(routed_narrow, element, FP32),
            routes_summed=routes.flat // routed_gradients,
            kept=kept * row, waits=waits * row, last_gemm=block.last_gemm * row,
            normed=s.normed_embedding * o * row, ends=2 * o * row,
            in_mlp=in_mlp, after=after * row, forward=forward * row,
            loss=(1 + lay.cuts) * row + half_on_cpu * lay.rows * element, logits=logits,
            to_words=(1 + half_on_cpu + (lay.topology.tp > 1)) * row,
            exchanged=s.ties * (lay.topology.pp > 1) * (has_head + has_words > 0) * (lay.rows // shards) * FP32,
            update=_update(lay, state, has_words, shards, routes.bucket // routed_shards, gpu=gpu),
            published=0 if gpu else ((shards > by_weights) * own + (routed_shards > routed_weights) * routed_own) * element,
        )  # fmt: skip

    def moment(self, *, gathered: Count = 0, gradients: Count, held: Count = 0, working: Count = 0, logits: Count = 0,
               messages: Count = 0) -> Moment:
        return Moment(weights=self.weights + gathered, gradients=gradients, optimizer=self.optimizer,
                      activations=held, working=working, logits=logits, communication=messages * self.outside * self.row,
                      buffers=self.buffers, workspaces=self.workspaces)

    def update_moments(self) -> list[Moment]:
        """After the last micro-batch."""
        gradients = pick(self.shares, self.summed * FP32, self.flat * self.gradient)
        gradients = gradients + pick(self.routes_share, self.routes_summed * FP32, self.routes.flat * self.routes_gradient)
        return [self.moment(gradients=gradients + self.exchanged), self.moment(gradients=gradients, working=self.published),
                self.moment(gradients=gradients, working=self.update)]

    def moments(self, h: Held, *, gpu: bool) -> list[Moment]:
        """Around a backward pass, with what the schedule holds then."""
        held = (h.layers * self.kept + h.deferred * self.waits + h.lingers * self.last_gemm + h.words * self.normed
                + h.heads * self.ends + (h.words + h.heads) * self.tokens)
        works = (h.running > 0) * 1
        # On a GPU gradients come as the pass goes on; where weight gradients wait, a norm's is a bucket's first.
        reached = pick(h.low, h.running, smaller(self.deep, h.running))
        before = larger(0, reached - self.splits * smaller(self.deep, h.running))
        gathered = (pick(h.low, 1, smaller(2, h.running)) * (self.gathers * self.gathered + self.routes.gathered)
                    + self.gathers * self.cast * works)
        on_the_way = self._on_the_way(h)
        found = []
        # Where gradients are cut, also with the first bucket on its way and the second one filling.
        second = self.shares * (1 - self.splits) * (h.running > self.deep)
        without = self._of_experts(h, 0, gpu=gpu)
        for further in (0, second) if ever(second) else (0,):
            for working, blocks in ((self.in_mlp, before), (self.after, reached)):
                gradients = self._gradients(h, blocks, on_the_way, further=further, gpu=gpu)
                gradients = gradients + self._of_experts(h, blocks, gpu=gpu)
                found.append(self.moment(gathered=gathered, gradients=gradients, messages=h.messages,
                                         held=held - further * self.deep * self.kept,
                                         working=pick(works, working, self.outside * self.row)))
        found.append(self.moment(held=held, messages=h.messages + (h.messages > 0), working=h.follows * works * self.forward,
                                 gradients=self._gradients(h, 0, on_the_way, begun=0, gpu=gpu) + without))
        if ever(h.head):
            loss = h.head * (1 - h.low)
            gradients = loss * (self._gradients(h, 0, on_the_way, at_loss=True, gpu=gpu) + without)
            found.append(self.moment(gathered=self.gathers * loss * self.words * self.number, held=held, messages=h.messages,
                                     gradients=gradients, working=loss * self.loss, logits=loss * self.logits))
        if ever(h.starts) or ever(h.enters):
            found += self._at_embedding(h, gpu=gpu)
        return found

    def _at_embedding(self, h: Held, *, gpu: bool) -> list[Moment]:
        """At the end of a backward pass and, where weights are gathered, in the forward pass."""
        last = pick(h.low, 1, h.running)
        left = (h.layers - last) * self.kept + h.deferred * self.waits + h.lingers * self.last_gemm
        travels = self.summed + h.left_words * (1 - self.splits) * self.words
        came = self._end_gradients(h, gpu=gpu) + self._of_experts(h, (1 - self.routes_share) * h.running, gpu=gpu)
        return [
            self.moment(gradients=h.starts * came, messages=h.messages,
                        held=left + self.splits * last * self.waits, working=h.starts * self.to_words),
            self.moment(gathered=self.gathers * h.enters * self.words * self.number, held=left, messages=h.messages,
                        gradients=pick(self.shares, travels, 0 if gpu else self.flat) * FP32 + self._of_experts(h, 0, gpu=gpu),
                        working=h.enters * 2 * self.outside * self.row),
        ]  # fmt: skip

    def _on_the_way(self, h: Held) -> tuple[Count, Count]:
        """Where weight gradients wait, buckets stay open until as many gradients came as one micro-batch gives: whether they
        are, and whether this pass completes them."""
        came, uses = h.number * self.small + h.updated * MATRICES, self.small + MATRICES
        over = came % uses
        return self.splits * (over > 0), self.splits * (over + self.small >= uses) * h.low

    def _gradients(self, h: Held, blocks: Count, on_the_way: tuple[Count, Count], *, begun: int = 1, at_loss: bool = False,
                   further: Count = 0, gpu: bool) -> Count:
        """`blocks`: of the chunk at work. Cut, there are those that stay, a bucket that fills and one that travels."""
        whole = self._on_gpu(h, blocks, larger(h.head_ready, begun * h.head), h.words_ready) if gpu else self.flat * FP32
        if not ever(self.shares):
            return whole
        apart, (is_open, completes) = 1 - self.tied, on_the_way
        # What travels: the head's, or what the backward pass before this one came to last; but the same bucket twice in a row
        # does not travel beside itself.
        other = 1 if at_loss else (h.running > self.deep) * 1
        travels = (h.number > 0) * apart * pick(h.left_words * (1 - self.splits), self.words, self.bucket * other)
        waits = is_open * h.running * self.block
        if at_loss:
            travels, fills = (1 - is_open) * travels, h.head * self.words + waits
        else:
            travels = (1 - larger(is_open, self.splits * h.low)) * travels
            # Of a layer alone, experts' come before the rest and are on their way while these fill.
            alone = self.routes_share * (self.deep <= 1)
            travels = pick(h.head * apart, self.head_travels * self.words, (1 - alone) * travels)
            travels = pick(further, (1 - alone) * self.bucket, travels)
            filling = larger(waits, pick(self.splits, blocks, smaller(self.deep, blocks)) * self.block)
            fills = self.tied * h.head * self.words + pick(completes, smaller(filling, 2 * self.bucket), filling)
        return pick(self.shares, (self.summed + travels + fills) * FP32, whole)

    def _of_experts(self, h: Held, blocks: Count, *, gpu: bool) -> Count:
        """Of so many layers of the chunk at work; where they are cut, of the layers of a bucket."""
        routes = self.routes
        came = h.ready + h.fresh * blocks
        whole = smaller(came * routes.mean, routes.flat) if gpu else routes.flat
        whole = pick(self.shares, routes.flat, whole) * self.routes_gradient
        filling = smaller(routes.bucket, blocks * routes.block)
        return pick(self.routes_share, (self.routes_summed + filling) * FP32, whole)

    def _end_gradients(self, h: Held, *, gpu: bool) -> Count:
        """When the embedding's come."""
        shared = (self.summed + self.words + pick(self.splits, h.running * self.block, self.bucket)) * FP32
        whole = self._on_gpu(h, h.running, larger(h.head_ready, h.head), 1) if gpu else self.flat * FP32
        return pick(self.shares, shared, whole)

    def _on_gpu(self, h: Held, blocks: Count, head: Count, words: Count) -> Count:
        """They go back to the allocator after every update, and come with their first use."""
        ends = pick(self.tied, larger(head, words), head + words) * self.words
        return smaller((h.ready + h.fresh * blocks) * self.block + ends, self.flat) * self.gradient


def _update(lay: Layout, state: State, has_words: Count, shards: Count, routed: Count, *, gpu: bool) -> Count:
    """What AdamW makes beside its state, for the longest stretch that it updates at once."""
    path, words = state.bucket // shards, larger(has_words, state.owns_head) * lay.rows // shards
    longest = larger(path, words, routed)
    # A gradient, two steps of the root, and the root of the stretch before; means that are not fp32 are widened.
    wide = (lay.moments < FP32) * 1
    before = pick(state.chained, path, state.several * smaller(path, words))
    plain = (3 + 2 * wide) * longest + pick((words > path) * 1, state.tail // shards, before)
    pieces = 0 if gpu else wide * 4 * larger(LEAST_PIECE, longest // PIECES)
    return pick(lay.plain, plain, pieces) * FP32


def logits_of(lay: Layout, *, gpu: bool) -> Count:
    """One chunk in fp32, beside its 16-bit form where there is one; on a GPU in 16 bits that form alone, two GiB at most."""
    columns, tokens = lay.vocab // lay.topology.tp, lay.topology.mbs * lay.seq
    if not gpu:
        return smaller(lay.logits_chunk, tokens) * columns * (FP32 + lay.half * lay.element)
    # The largest power of two that fits.
    fit = 0
    for power in range(31):
        fit = larger(fit, 2**power * (2**power * 2 * columns <= LOGITS_BYTES))
    asked = larger(lay.logits_chunk, lay.half * fit)
    return smaller(asked, tokens) * columns * lay.element


# one trial


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Each part's own peak; together they may be more than there ever was at once."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    buffers: int
    workspaces: int
    at_peak: dict[str, int]
    """By part of PARTS at the fullest moment."""

    @property
    def parts(self) -> dict[str, int]:
        """Workspaces are a GPU's alone."""
        return {part: size for part, size in vars(self).items() if part != "at_peak" and (size or part != "workspaces")}

    @property
    def total(self) -> int:
        """At the fullest moment."""
        return sum(self.at_peak.values())


def footprint(trial: Trial, *, rank: int = 0, gpu: bool = False, load: tuple[float, float] = EVEN) -> Footprint:
    t = trial.topology
    layers, mixed = (split(trial.model, t)[rank :: t.pp] for split in (stages_of, experts_of_stages))
    chunks = chunks_of(layers, mixed, first=rank == 0, last=rank == t.pp - 1)
    own = Rank.of(Layout.of(trial, load), chunks, gpu=gpu)
    held = held_by(t.schedule, pp=t.pp, rank=rank, microbatches=trial.microbatches, layers=layers, gpu=gpu,
                   cut=t.divided_over[1] > 1)
    found = [*(one for h in held for one in own.moments(h, gpu=gpu)), *own.update_moments()]
    fullest = max(found, key=sum)
    peaks = {part: max(round(getattr(one, part)) for one in found)
             for part in ("weights", "gradients", "optimizer", "logits", "buffers", "workspaces")}
    # The optimizer's own is not among a pass's.
    activations = max(round(one.activations + one.working + one.communication) for one in found[:-1])
    return Footprint(**peaks, activations=activations, at_peak={part: round(size) for part, size in fullest._asdict().items()})


def chunks_of(layers: tuple[int, ...], mixed: tuple[int, ...], *, first: bool, last: bool) -> list[Chunk]:
    """Of a rank's virtual stages, those that are alike as one; `mixed`: their layers that have experts."""
    found: dict[tuple[int, int, int, int], int] = {}
    for number, (count, routed) in enumerate(zip(layers, mixed)):
        key = count, int(first and number == 0), int(last and number == len(layers) - 1), routed
        found[key] = found.get(key, 0) + 1
    return [Chunk(count, *key) for key, count in found.items()]
