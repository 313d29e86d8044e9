"""Context parallelism: who holds which tokens of a sequence, and attention of queries over the keys of other ranks.

    context = Context(model, topology, comm)            every rank calls it, in the same order
    context.own                                         this rank's stretches of a sequence
    out = context.attend(q, k, v)                       [batch, tokens of this rank, heads, head size], differentiable
    context.use(((0, 7), (0, 3, 12)))                   where documents begin in the micro-batch that comes next

`u` neighbours share heads by all-to-all, and r = CP / u such neighbourhoods are the members of a ring (`spec.context_split`).
Ring member j has stretches j and 2r - 1 - j of 2r equal ones: of the pairs that a causal mask leaves, each member has as many,
and as many with the keys of each other one. Its tokens are dealt to its u neighbours in their order.

Kept for the backward pass: queries, keys and values as they were attended, the output and its log-sum-exp; keys of others come
again. The next block of keys travels while this one is attended, and gradients of keys follow them one step behind, in fp32.

Where documents are packed, a micro-batch has pieces of its own. `use` comes before its forward and before its backward pass,
where blocks may be recomputed; what one attention did forward it keeps for its own way back. One rank alone is a ring of one.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.attention import SDPBackend

from seatrial.engine.core.comm import Comm, Pending
from seatrial.engine.core.eager import eager
from seatrial.engine.core.lse_kernels import Kernel, Squares, kernel_for
from seatrial.engine.core.mesh import Group
from seatrial.engine.core.pieces import Bias, Piece, Softmax, SoftmaxBackward, Starts, Stretch, packed, pieces
from seatrial.engine.core.window import sinks_gradient, with_sinks
from seatrial.spec import Model, Topology, context_split

TIMER, ATTENTION = "cp_comm", "attention"


def ring_stretches(seq: int, ring: int, member: int) -> tuple[Stretch, ...]:
    """What one member of a ring attends from: one stretch from either end."""
    if ring == 1:
        return (Stretch(0, 0, seq),)
    length = seq // (2 * ring)
    return Stretch(0, member * length, length), Stretch(length, (2 * ring - 1 - member) * length, length)


def cut(stretches: Sequence[Stretch], low: int, high: int) -> tuple[Stretch, ...]:
    """Tokens `low` to `high` - 1 of a tensor that the stretches lie in, as a tensor of their own."""
    found = []
    for one in stretches:
        a, b = max(low, one.at), min(high, one.at + one.length)
        if a < b:
            found.append(Stretch(a - low, one.start + a - one.at, b - a))
    return tuple(found)


def own_stretches(seq: int, *, heads: int, ring: int, rank: int) -> tuple[Stretch, ...]:
    """Of one context-parallel rank."""
    member, place = divmod(rank, heads)
    part = seq // (heads * ring)
    return cut(ring_stretches(seq, ring, member), place * part, (place + 1) * part)


def positions_of(stretches: Sequence[Stretch], device: torch.device | None = None) -> Tensor:
    return torch.cat([torch.arange(one.start, one.start + one.length, device=device) for one in stretches])


class Layout(NamedTuple):
    """What this rank attends of a micro-batch."""

    pieces: list[list[Piece]]
    """Of its queries with the keys of each source."""
    squares: Squares | None = None
    """Those with its own keys, where all are causal squares: a GPU may take them in one call."""
    pairs: int = 0
    """Of queries and keys, in all samples."""


class Context:
    def __init__(self, model: Model, topology: Topology, comm: Comm, *, packs: bool = False):
        """`packs`: whether attention stays inside documents."""
        mesh, (heads, ring) = comm.mesh, context_split(model, topology)
        self.seq, self.batch, self.packs, self.timers = model.seq, topology.mbs, packs, comm.timers
        self.neighbours = Neighbours(comm, mesh.neighbours(heads, mesh.cp, "heads"))
        across = mesh.across(heads, mesh.cp, "ring")
        self.keys: Keys = (Gathered if topology.cp_kind == "gather" and ring > 1 else Ring)(comm, across, model.seq)
        self.own = own_stretches(model.seq, heads=heads, ring=ring, rank=mesh.cp.rank)
        self.positions = positions_of(self.own, mesh.device)
        self.layout = self.whole = Layout([pieces(self.keys.queries, keys) for keys in self.keys.of])
        self.layout_of = lru_cache(maxsize=4 * topology.pp * topology.vp)(self._layout_of)
        self.slopes: Tensor | None = None
        """ALiBi's, of the heads that this rank attends …"""
        self.biases: dict[tuple[int, Piece], Tensor] = {}
        """… and what they make of each piece, by source of the keys: the same in every layer, while nothing is packed."""
        self.dtype = torch.float32
        self.attended = 0
        """Pairs of queries and keys that passed here, in one layer: what makes ranks differ where documents are packed."""

    def use_alibi(self, slopes: Tensor, dtype: torch.dtype) -> None:
        """`slopes`: of this rank's heads, of which it attends some."""
        self.slopes, self.dtype = slopes.chunk(self.neighbours.size)[self.neighbours.group.rank], dtype
        if not self.packs:
            self.biases = {(source, piece): self._bias(source, piece) for source, found in enumerate(self.whole.pieces)
                           for piece in found}

    def _bias(self, source: int, p: Piece) -> Tensor:
        assert self.slopes is not None
        q, k = (positions_of(one, self.slopes.device).float() for one in (self.keys.queries, self.keys.of[source]))
        return alibi_bias(self.slopes, q[p.q : p.q + p.q_len], k[p.k : p.k + p.k_len]).to(self.dtype)

    def use(self, documents: Starts | None) -> Layout:
        """Those of the micro-batch whose pass comes next."""
        self.layout = self.whole if documents is None else self.layout_of(documents)
        return self.layout

    def _layout_of(self, documents: Starts) -> Layout:
        keys, (batch, tokens) = self.keys, (len(documents), sum(one.length for one in self.keys.queries))
        found = [packed(keys.queries, of, documents, self.seq) for of in keys.of]
        pairs = sum(piece.pairs(batch) for one in found for piece in one)
        own = found[keys.group.rank] if len(found) == keys.group.size else []
        squares = None
        if own:
            alike = range(batch) if own[0].sample is None else (0,)
            ends = [*((sample + (piece.sample or 0)) * tokens + piece.q for sample in alike for piece in own), batch * tokens]
            at = torch.tensor(ends, dtype=torch.int32).to(self.positions.device, non_blocking=True)
            squares = Squares(at, max(b - a for a, b in pairwise(ends)))
        return Layout(found, squares, pairs)

    def attend(self, q_BSND: Tensor, k_BSND: Tensor, v_BSND: Tensor, *, backend: SDPBackend | None = None,
               sinks: Tensor | None = None) -> Tensor:
        """`sinks`: of this rank's heads, of which it attends some."""
        if sinks is not None:
            sinks = sinks.chunk(self.neighbours.size)[self.neighbours.group.rank]
        return _attend(q_BSND, k_BSND, v_BSND, sinks, self, backend)

    def timed(self) -> AbstractContextManager:
        """Where documents are packed ranks have more or less of it, and those with less wait."""
        return self.timers(ATTENTION) if self.packs else nullcontext()

    def bias_of(self, source: int) -> Bias | None:
        if self.slopes is None:
            return None
        return lambda piece: self._bias(source, piece) if self.packs else self.biases[source, piece]

    def how(self, layout: Layout, source: int, q: Tensor, kernel: Kernel) -> tuple[list[Piece], Bias | None, Squares | None]:
        """The pieces of this source's keys, and how they are attended."""
        squares = layout.squares if source == self.keys.group.rank else None
        together = squares is not None and squares.taken_by(kernel, q)
        return layout.pieces[source], self.bias_of(source), squares if together else None


    def own_in_two(self, layout: Layout) -> list[list[Piece]]:
        """Own queries with own keys, those of the stretch in front first, a quarter of the work: the others are left for where
        the last gradients of keys are still on their way. Empty where all is attended at once."""
        if layout is not self.whole or self.slopes is not None or len(self.keys.of) == 1:
            return []
        front, behind = self.keys.queries
        return [pieces([front], [front]), pieces([behind], self.keys.queries)]


def alibi_bias(slopes_N: Tensor, q_S: Tensor, k_T: Tensor) -> Tensor:
    """[1, heads, queries, keys], minus infinity where the future is; positions in fp32."""
    distance = (k_T[None, :] - q_S[:, None]).masked_fill_(k_T[None, :] > q_S[:, None], -torch.inf)
    return (slopes_N[:, None, None] * distance)[None]


class _Attend(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, context: Context,
                backend: SDPBackend | None) -> Tensor:
        ctx.context, ctx.layout = context, context.layout
        ctx.kernel = kernel_for(q.device, q.dtype, backend=backend, biased=context.slopes is not None)
        q, kv = context.neighbours.enter(q, k, v)
        softmax = Softmax(q, ctx.kernel)
        with context.timed():
            for source, (keys, values) in context.keys.blocks(kv):
                softmax.add(keys, values, *context.how(ctx.layout, source, q, ctx.kernel))
            out, lse = softmax.result()
            if sinks is not None:
                out, lse = with_sinks(out, lse, sinks)
        ctx.save_for_backward(q, kv, out, lse)
        ctx.sinks = sinks
        return context.neighbours.to_tokens(out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (q, kv, out, lse), context = ctx.saved_tensors, ctx.context
        d_out = context.neighbours.to_heads(grads[0])
        backward = SoftmaxBackward(d_out, q, out, lse, ctx.kernel)
        gradients = context.keys.gradients(kv)
        with context.timed():
            own = context.own_in_two(ctx.layout)
            for source, (keys, values) in context.keys.blocks(kv, own_again=bool(own)):
                found, *how = context.how(ctx.layout, source, q, ctx.kernel)
                if own and source == context.keys.group.rank:
                    found = own.pop(0)
                gradients.add(source, *backward.add(keys, values, found, *how))
        d_sinks = None if ctx.sinks is None else sinks_gradient(d_out, out, lse, ctx.sinks)
        return *context.neighbours.leave(backward.result(), gradients.result()), d_sinks, None, None


@eager
def _attend(*given: Any) -> Tensor:
    return _Attend.apply(*given)  # type: ignore[no-any-return]


# ---- heads: neighbours give each other heads for tokens


class Neighbours:
    def __init__(self, comm: Comm, group: Group):
        self.comm, self.group, self.size = comm, group, group.size

    def to_heads(self, x_BSND: Tensor) -> Tensor:
        """Some heads of all the neighbours' tokens, for all heads of this rank's own."""
        if self.size == 1:
            return x_BSND.contiguous()
        by_rank = x_BSND.unflatten(2, (self.size, -1)).permute(2, 0, 1, 3, 4)
        return self._all_to_all(by_rank).transpose(0, 1).flatten(1, 2)

    def to_tokens(self, x_BSND: Tensor) -> Tensor:
        """The way back."""
        if self.size == 1:
            return x_BSND
        by_rank = x_BSND.unflatten(1, (self.size, -1)).transpose(0, 1)
        return self._all_to_all(by_rank).permute(1, 2, 0, 3, 4).flatten(2, 3)

    def _all_to_all(self, by_rank: Tensor) -> Tensor:
        by_rank = by_rank.contiguous()
        return self.comm.all_to_all(torch.empty_like(by_rank), by_rank, self.group, timer=TIMER).wait()

    def enter(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, and keys over values in one tensor: all that this rank attends from, each by itself in memory."""
        if self.size > 1:
            # Of each neighbour's heads queries, keys and values side by side: one all-to-all carries all three.
            parts = [x.unflatten(2, (self.size, -1)) for x in (q, k, v)]
            mixed = self.to_heads(torch.cat(parts, 3).flatten(2, 3))
            q, k, v = mixed.split([part.shape[3] for part in parts], 2)
        return q.contiguous(), torch.stack((k, v))

    def leave(self, dq: Tensor, d_kv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients, back to whose they are."""
        dk, dv = d_kv.to(dq.dtype)
        if self.size == 1:
            return dq, dk, dv
        heads = [part.shape[2] for part in (dq, dk, dv)]
        mixed = self.to_tokens(torch.cat((dq, dk, dv), 2)).unflatten(2, (self.size, -1))
        dq, dk, dv = (part.flatten(2, 3) for part in mixed.split(heads, 3))
        return dq, dk, dv


# ---- keys of other ranks: they come by, or are gathered


class Gradients(Protocol):
    """Of this rank's keys over values, [2, batch, tokens, heads, head size], while those of others go where they belong."""

    def add(self, source: int, dk: Tensor, dv: Tensor) -> None: ...

    def result(self) -> Tensor: ...


class Keys(Protocol):
    group: Group
    queries: tuple[Stretch, ...]
    of: list[tuple[Stretch, ...]]
    """The keys of each source: of each member of the group, or all at once."""

    def blocks(self, kv: Tensor, *, own_again: bool = False) -> Iterator[tuple[int, Tensor]]:
        """Each source of keys, with what comes from there; `own_again`: this rank's own once more, at the end."""

    def gradients(self, kv: Tensor) -> Gradients: ...


class Ring:
    """Each member's keys go round to the next and the next."""

    def __init__(self, comm: Comm, group: Group, seq: int):
        self.comm, self.group = comm, group
        self.of = [ring_stretches(seq, group.size, member) for member in range(group.size)]
        self.queries = self.of[group.rank]

    def pass_on(self, x: Tensor) -> Pending:
        return self.comm.shift(torch.empty_like(x), x, self.group, timer=TIMER)

    def blocks(self, kv: Tensor, *, own_again: bool = False) -> Iterator[tuple[int, Tensor]]:
        held = kv
        for step in range(self.group.size):
            coming = self.pass_on(held) if step + 1 < self.group.size else None
            yield (self.group.rank - step) % self.group.size, held
            if coming is not None:
                held = coming.wait()
        if own_again:
            yield self.group.rank, kv

    def gradients(self, kv: Tensor) -> Gradients:
        return _Travelling(self, kv)


class _Travelling:
    def __init__(self, ring: Ring, kv: Tensor):
        self.ring = ring
        self._shape, self._wide = kv.shape, torch.promote_types(kv.dtype, torch.float32)
        self._own: Tensor | None = None
        self._coming: Pending | None = None

    def add(self, source: int, dk: Tensor, dv: Tensor) -> None:
        both = dk.new_empty(self._shape, dtype=self._wide)
        both[0], both[1] = dk, dv
        if source == self.ring.group.rank:
            self._own = both if self._own is None else self._own.add_(both)
            return
        if self._coming is not None:
            both += self._coming.wait()
        self._coming = self.ring.pass_on(both)

    def result(self) -> Tensor:
        assert self._own is not None
        return self._own if self._coming is None else self._own.add_(self._coming.wait())


class Gathered:
    """All keys at once, in the order of the sequence."""

    def __init__(self, comm: Comm, group: Group, seq: int):
        self.comm, self.group = comm, group
        self.members = [ring_stretches(seq, group.size, member) for member in range(group.size)]
        self.queries = self.members[group.rank]
        self.of: list[tuple[Stretch, ...]] = [(Stretch(0, 0, seq),)]

    def blocks(self, kv: Tensor, *, own_again: bool = False) -> Iterator[tuple[int, Tensor]]:
        parts = kv.new_empty(self.group.size, *kv.shape)
        self.comm.all_gather(parts, kv, self.group, timer=TIMER)
        whole = kv.new_empty(*kv.shape[:2], self.group.size * kv.shape[2], *kv.shape[3:])
        for stretches, part in zip(self.members, parts):
            for one in stretches:
                whole[:, :, one.start : one.start + one.length] = part[:, :, one.at : one.at + one.length]
        del parts, part
        yield 0, whole

    def gradients(self, kv: Tensor) -> Gradients:
        return _Scattered(self, kv)


class _Scattered:
    def __init__(self, gathered: Gathered, kv: Tensor):
        self.gathered = gathered
        self._shape, self._wide = kv.shape, torch.promote_types(kv.dtype, torch.float32)
        self._coming: Pending | None = None

    def add(self, source: int, dk: Tensor, dv: Tensor) -> None:
        parts = dk.new_empty(self.gathered.group.size, *self._shape, dtype=self._wide)
        for stretches, part in zip(self.gathered.members, parts):
            for one in stretches:
                for mine, whole in zip(part, (dk, dv)):
                    mine[:, one.at : one.at + one.length] = whole[:, one.start : one.start + one.length]
        self._coming = self.gathered.comm.reduce_scatter(parts.view(-1), self.gathered.group, timer=TIMER)

    def result(self) -> Tensor:
        assert self._coming is not None
        return self._coming.wait().view(self._shape)
