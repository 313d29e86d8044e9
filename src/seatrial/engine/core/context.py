"""Context parallelism: who holds which tokens of a sequence, and attention of queries over the keys of other ranks.

    context = Context(model, topology, comm)            every rank calls it, in the same order
    context.own                                         this rank's stretches of a sequence
    out = context.attend(q, k, v)                       [batch, tokens of this rank, heads, head size], differentiable

`u` neighbours share heads by all-to-all, and r = CP / u such neighbourhoods are the members of a ring (`spec.context_split`).
Ring member j has stretches j and 2r - 1 - j of 2r equal ones: of the pairs that a causal mask leaves, each member has as many,
and as many with the keys of each other one. Its tokens are dealt to its u neighbours in their order.

Kept for the backward pass: queries, keys and values as they were attended, the output and its log-sum-exp; keys of others come
again. The next block of keys travels while this one is attended, and gradients of keys follow them one step behind, in fp32.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.attention import SDPBackend

from seatrial.engine.core.comm import Comm, Pending
from seatrial.engine.core.lse_kernels import kernel_for
from seatrial.engine.core.mesh import Group
from seatrial.engine.core.pieces import Bias, Piece, Softmax, SoftmaxBackward, Stretch, pieces
from seatrial.spec import Model, Topology, context_split

TIMER = "cp_comm"


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


class Context:
    def __init__(self, model: Model, topology: Topology, comm: Comm):
        mesh, (heads, ring) = comm.mesh, context_split(model, topology)
        self.neighbours = Neighbours(comm, mesh.neighbours(heads, mesh.cp, "heads"))
        across = mesh.across(heads, mesh.cp, "ring")
        self.keys: Keys = (Gathered if topology.cp_kind == "gather" else Ring)(comm, across, model.seq)
        self.own = own_stretches(model.seq, heads=heads, ring=ring, rank=mesh.cp.rank)
        self.positions = positions_of(self.own, mesh.device)
        self.biases: dict[tuple[int, Piece], Tensor] = {}
        """ALiBi's, by source of the keys and piece: the same in every layer."""

    def use_alibi(self, slopes: Tensor, dtype: torch.dtype) -> None:
        """`slopes`: of this rank's heads, of which it attends some."""
        here = slopes.chunk(self.neighbours.size)[self.neighbours.group.rank]
        q = positions_of(self.keys.queries, slopes.device).float()
        for source, (keys, found) in enumerate(zip(self.keys.of, self.keys.pieces)):
            k = positions_of(keys, slopes.device).float()
            for p in found:
                bias = alibi_bias(here, q[p.q : p.q + p.q_len], k[p.k : p.k + p.k_len])
                self.biases[source, p] = bias.to(dtype)

    def attend(self, q_BSND: Tensor, k_BSND: Tensor, v_BSND: Tensor, *, backend: SDPBackend | None = None) -> Tensor:
        return _attend(q_BSND, k_BSND, v_BSND, self, backend)

    def bias_of(self, source: int) -> Bias | None:
        return (lambda piece: self.biases[source, piece]) if self.biases else None


def alibi_bias(slopes_N: Tensor, q_S: Tensor, k_T: Tensor) -> Tensor:
    """[1, heads, queries, keys], minus infinity where the future is; positions in fp32."""
    distance = (k_T[None, :] - q_S[:, None]).masked_fill_(k_T[None, :] > q_S[:, None], -torch.inf)
    return (slopes_N[:, None, None] * distance)[None]


class _Attend(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, context: Context, backend: SDPBackend | None) -> Tensor:
        ctx.context = context
        ctx.kernel = kernel_for(q.device, q.dtype, backend=backend, biased=bool(context.biases))
        q, kv = context.neighbours.enter(q, k, v)
        softmax = Softmax(q, ctx.kernel)
        for source, found, (keys, values) in context.keys.blocks(kv):
            softmax.add(keys, values, found, context.bias_of(source))
        out, lse = softmax.result()
        ctx.save_for_backward(q, kv, out, lse)
        return context.neighbours.to_tokens(out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (q, kv, out, lse), context = ctx.saved_tensors, ctx.context
        backward = SoftmaxBackward(context.neighbours.to_heads(grads[0]), q, out, lse, ctx.kernel)
        gradients = context.keys.gradients(kv)
        for source, found, (keys, values) in context.keys.blocks(kv, own_in_two=not context.biases):
            gradients.add(source, *backward.add(keys, values, found, context.bias_of(source)))
        return *context.neighbours.leave(backward.result(), gradients.result()), None, None


@torch.compiler.disable
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


Block = tuple[int, list[Piece], Tensor]
"""A source of keys, what of them is attended now, and the keys over the values."""


class Keys(Protocol):
    queries: tuple[Stretch, ...]
    of: list[tuple[Stretch, ...]]
    """The keys of each source."""
    pieces: list[list[Piece]]
    """Of this rank's queries with them."""

    def blocks(self, kv: Tensor, *, own_in_two: bool = False) -> Iterator[Block]:
        """Each source of keys. `own_in_two`: some of the work with this rank's own keys is left for the end, where gradients of
        others' are still on their way."""

    def gradients(self, kv: Tensor) -> Gradients: ...


class Ring:
    """Each member's keys go round to the next and the next."""

    def __init__(self, comm: Comm, group: Group, seq: int):
        self.comm, self.group = comm, group
        self.of = [ring_stretches(seq, group.size, member) for member in range(group.size)]
        self.queries = self.of[group.rank]
        self.pieces = [pieces(self.queries, keys) for keys in self.of]

    def pass_on(self, x: Tensor) -> Pending:
        return self.comm.shift(torch.empty_like(x), x, self.group, timer=TIMER)

    def blocks(self, kv: Tensor, *, own_in_two: bool = False) -> Iterator[Block]:
        held, own = kv, self.group.rank
        first, last = self._halves() if own_in_two and self.group.size > 1 else (self.pieces[own], [])
        for step in range(self.group.size):
            coming = self.pass_on(held) if step + 1 < self.group.size else None
            source = (own - step) % self.group.size
            yield source, self.pieces[source] if step else first, held
            if coming is not None:
                held = coming.wait()
        if last:
            yield own, last, kv

    def _halves(self) -> tuple[list[Piece], list[Piece]]:
        """Own queries with own keys: those of the stretch in front, a quarter of the work, and the others."""
        front, behind = self.queries
        return pieces([front], [front]), pieces([behind], self.queries)

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
        self.pieces = [pieces(self.queries, self.of[0])]

    def blocks(self, kv: Tensor, *, own_in_two: bool = False) -> Iterator[Block]:
        parts = kv.new_empty(self.group.size, *kv.shape)
        self.comm.all_gather(parts, kv, self.group, timer=TIMER)
        whole = kv.new_empty(*kv.shape[:2], self.group.size * kv.shape[2], *kv.shape[3:])
        for stretches, part in zip(self.members, parts):
            for one in stretches:
                whole[:, :, one.start : one.start + one.length] = part[:, :, one.at : one.at + one.length]
        del parts, part
        yield 0, self.pieces[0], whole

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
