"""Bytes by part that one rank of this engine holds at its fullest, counted from the shapes alone.

    footprint(trial, rank=0).total                  at the fullest moment; rank: of the pipeline, those of a stage are alike
    footprint(trial, rank=0).activations            each part's own peak, as the engine's tracker reports it
    footprint(trial, rank=0).at_peak                parts that add up to the total

A step is a few moments that can be the fullest: a block's backward pass (in its MLP, in a norm, in attention that keeps its
scores) wherever the schedule holds most (`held.py`), the loss, the embedding, the optimizer's own. Each is arithmetic on the
layout (`layout.py`): numbers give numbers, and the planner's columns (`plan/ours.py`) arrays. What buckets hold is in
`states.py`, what a block keeps in `block.py`.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from seatrial.arith import layer
from seatrial.arith.block import TOKEN, Block, positions
from seatrial.arith.counts import Count, ever, larger, pick, smaller
from seatrial.arith.held import Held, held_by
from seatrial.arith.layout import EVEN, FP32, Layout
from seatrial.arith.routed import Routed
from seatrial.arith.states import Chunk, Routes, State, chunks_of, state_of, up
from seatrial.spec import Trial, experts_of_stages, stages_of

LOGITS_BYTES = 2**31
MATRICES = 4
"""Of a block."""
PIECES, LEAST_PIECE = 32, 4096
"""Of moments that are widened for the update (`engine/core/optim.py`)."""
PARTS = ("weights", "gradients", "optimizer", "activations", "working", "logits", "communication", "buffers", "workspaces")
WORKSPACE = 32 * 2**20
"""Of cuBLAS on Hopper and later (a quarter of it before), one a thread that issues GEMMs; and of our own choice of algorithms
(`engine/fast/tuned_gemm.py`)."""


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
    before: Count
    """A block's backward pass, before the first gradient of a weight …"""
    in_mlp: Count
    """… of a norm …"""
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
        largest = larger(state.bucket, (has_words + has_head > 0) * up(lay.rows, s.hidden * shards))
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
        before = block.inside_mlp * row
        in_mlp = larger(before - block.gone * row + (1 - s.gated) * temporary * widths.inner,
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
            before, in_mlp = plain * before, larger(plain * in_mlp, has * most.inside_mlp * row)
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
            buffers=positions(lay),
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
            before=before, in_mlp=in_mlp, after=after * row, forward=forward * row,
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
        fewer = larger(0, reached - smaller(self.deep, h.running))
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
        found.append(self.moment(gathered=gathered, held=held, messages=h.messages, working=works * self.before,
                                 gradients=self._gradients(h, fewer, on_the_way, gpu=gpu) + without))
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
