"""Executes a schedule: the list of actions of `schedule/lists.py`, as it stands, for this rank's virtual stages.

A stage's forward keeps its input and a root to start the backward pass from; what it sends on is not held. The last stage
computes the loss, with its gradients, at the start of the backward action, so that a chunk of one micro-batch's logits is the
most that ever exists. Schedules that split the backward pass collect the GEMMs of the weight gradients in B and run them in W.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from seatrial.engine.core import autograd
from seatrial.engine.core.comm import Comm, TensorParallel
from seatrial.engine.core.layers import recompute_block
from seatrial.engine.core.loss import token_loss
from seatrial.engine.core.mesh import Group, Mesh
from seatrial.engine.core.model import Block, Stage
from seatrial.engine.core.pieces import Starts, Stretch
from seatrial.engine.core.zero import EXPERTS, Bucket, with_weights
from seatrial.engine.io.data import Batches
from seatrial.schedule import Action, Kind, comes_from, goes_to, schedule, splits_backward
from seatrial.spec import Topology


class Feed(Protocol):
    def __call__(self, number: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets of a micro-batch of this rank's replica."""

    def documents(self, number: int) -> Starts | None:
        """Where documents begin in it; any stage can ask, none needs the tokens for it."""


class _Root(Function):
    """Where a stage's backward pass starts: a single number, so that the output itself need not be kept."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, gradients: list[Tensor]) -> Tensor:
        ctx.gradient = gradients
        return out.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        return ctx.gradient.pop(), None


class Chunk:
    """One virtual stage of this rank: its layers, and the bucket that each unit lies in."""

    def __init__(self, stage: Stage, buckets: dict[str, Bucket], *, full_recompute: bool, logits_chunk: int):
        self.stage, self.buckets, self.logits_chunk = stage, buckets, logits_chunk
        self.tp: TensorParallel = stage.shared.tp
        self.full_recompute = full_recompute
        """Each block keeps its input alone."""

    def forward(self, x: Tensor) -> Tensor:
        for name, unit in self.stage.path():
            run: Callable[[Tensor], Tensor] = unit
            if self.full_recompute and isinstance(unit, Block) and unit.impl is None:
                def run(x: Tensor, unit: torch.nn.Module = unit) -> Tensor:
                    return recompute_block(unit, x, self.tp.comm.timers)
            x = self._with_weights(name, run, x)
        return x

    def _with_weights(self, name: str, run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        for bucket in (self.buckets.get(name + EXPERTS), self.buckets[name]):
            if bucket is not None:
                run = partial(with_weights, bucket, run)
        return run(x)

    def loss(self, hidden: Tensor, targets: Tensor, scale: float | None) -> tuple[Tensor, Tensor | None]:
        """Summed over the tokens, and `scale` x its gradient; where it is asked for, of tokens further on too."""
        loss, gradient = self._token_loss(hidden, targets, scale)
        if scale is None or not self.stage.further:
            return loss, gradient
        further, d_hidden = self._further(hidden, targets, scale)
        return loss + further, d_hidden if gradient is None else gradient + d_hidden

    def _token_loss(self, hidden: Tensor, targets: Tensor, scale: float | None,
                    counted: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        assert self.stage.head is not None
        bucket = self.buckets["tokens" if self.stage.head is self.stage.tokens else "head"]
        bucket.gather()
        result = token_loss(hidden, self.stage.head.weight, targets, self.tp, vocab=self.stage.shared.model.vocab,
                            chunk=self.logits_chunk, scale=scale, ops=self.stage.shared.ops, counted_BS=counted)
        bucket.release()
        return result

    def _further(self, hidden: Tensor, targets: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """The losses of multi-token prediction, each of as many tokens as the sequence has of them, and their gradient."""
        stage, m, seq = self.stage, self.stage.shared.model, targets.shape[1]
        assert stage.lookup is not None
        lookup = "tokens" if stage.lookup is stage.tokens else "head" if stage.lookup is stage.head else "lookup"
        start, weight = hidden.detach().requires_grad_(), m.mtp_loss / m.mtp
        total, roots, gradients = torch.zeros((), device=hidden.device), [], []
        with torch.enable_grad():
            h = start
            for depth, layer in enumerate(stage.further.values()):
                # What is rolled round to the end belongs to no token of this sequence, and none before it looks there.
                embedded = self._with_weights(lookup, stage.lookup, targets.roll(-depth, 1))
                h, normed = self._with_weights(f"mtp.{depth}", layer, torch.cat((h, embedded), -1)).chunk(2, -1)
                counted = (torch.arange(seq, device=hidden.device) < seq - 1 - depth).float().expand_as(targets)
                with torch.no_grad():
                    loss, gradient = self._token_loss(normed, targets.roll(-1 - depth, 1), weight * scale, counted)
                total += weight * loss
                assert gradient is not None
                roots.append(normed)
                gradients.append(gradient)
            autograd.backward(roots, gradients)
        assert start.grad is not None
        return total, start.grad


class Feeder:
    """Micro-batches of this rank's replica, on its device."""

    def __init__(self, topology: Topology, mesh: Mesh, *, stretches: tuple[Stretch, ...] | None = None, ahead: bool):
        """`stretches`: of a sequence, those of this rank. `ahead`: whether it reads any, so that `prepare` is worth it."""
        self.topology, self.mesh = topology, mesh
        self.spans = None if stretches is None else [(one.start, one.length) for one in stretches]
        self.ahead = ahead and mesh.device.type == "cuda"
        self._prepared: tuple[Batches, int, tuple[Tensor, Tensor]] | None = None

    def feed(self, batches: Batches, first_sample: int) -> Feed:
        return _Feed(self, batches, first_sample)

    def first_of(self, number: int) -> int:
        """A micro-batch's first sample, counted from the batch's."""
        t = self.topology
        return (number * t.dp + self.mesh.place.dp) * t.mbs

    def load(self, batches: Batches, first: int) -> tuple[Tensor, Tensor]:
        prepared, self._prepared = self._prepared, None
        return prepared[2] if prepared is not None and prepared[:2] == (batches, first) else self._load(batches, first)

    def prepare(self, batches: Batches, first_sample: int) -> None:
        """The next step's first micro-batch, while the device still works on this one's: it then starts at once."""
        if self.ahead:
            first = first_sample + self.first_of(0)
            self._prepared = batches, first, self._load(batches, first)

    def _load(self, batches: Batches, first: int) -> tuple[Tensor, Tensor]:
        tokens, targets = batches.microbatch(first, self.topology.mbs, self.spans)
        if self.mesh.device.type == "cuda":
            # From pageable memory the copy would wait for the device.
            tokens, targets = tokens.pin_memory(), targets.pin_memory()
        return tokens.to(self.mesh.device, non_blocking=True), targets.to(self.mesh.device, non_blocking=True)


class _Feed:
    def __init__(self, feeder: Feeder, batches: Batches, first_sample: int):
        self.feeder, self.batches, self.first_sample = feeder, batches, first_sample

    def __call__(self, number: int) -> tuple[Tensor, Tensor]:
        return self.feeder.load(self.batches, self.first_sample + self.feeder.first_of(number))

    def documents(self, number: int) -> Starts | None:
        return self.batches.documents(self.first_sample + self.feeder.first_of(number), self.feeder.topology.mbs)


@lru_cache(maxsize=64)
def plan_of(topology: Topology, rank: int, microbatches: int) -> list[Action]:
    t = topology
    return schedule(t.schedule, pp=t.pp, rank=rank, microbatches=microbatches, virtual=t.vp)


@lru_cache(maxsize=64)
def positions_in_plan(topology: Topology, rank: int, microbatches: int) -> dict[Action, int]:
    return {action: position for position, action in enumerate(plan_of(topology, rank, microbatches))}


class Pipeline:
    def __init__(self, chunks: list[Chunk], messages: Messages, *, kind: str):
        self.chunks, self.messages = chunks, messages
        self.splits = splits_backward(kind)
        self.comm, self.tp = messages.comm, chunks[0].tp
        self.timers = self.comm.timers
        self.has_head = chunks[-1].stage.has_head
        self.context = chunks[0].stage.shared.positions.context
        self.experts = chunks[0].stage.shared.experts

    def run(self, plan: list[Action], feed: Feed, *, scale: float | None, order: Order | None = None) -> Tensor:
        """The summed loss of this rank's micro-batches (zero where there is no head). `scale` None: forward alone."""
        kept: dict[tuple[int, int], tuple[Tensor, Tensor, list[Tensor]]] = {}
        weight_gemms: dict[tuple[int, int], list[Callable[[], None]]] = {}
        batches: dict[int, tuple[Tensor, Tensor]] = {}
        total = torch.zeros((), device=self.comm.mesh.device)
        if self.experts is not None:
            self.experts.scale = scale or 0.0

        def batch(microbatch: int) -> tuple[Tensor, Tensor]:
            if microbatch not in batches:
                with self.timers("data"):
                    batches[microbatch] = feed(microbatch)
            return batches[microbatch]

        for position, action in enumerate(plan):
            # The action's own timer covers all of it; waits, messages, data and the loss take themselves out.
            with self.timers("forward" if action.kind is Kind.FORWARD else "backward"):
                self.comm.heartbeat.beat(phase=action.kind.name.lower(), microbatch=action.microbatch)
                self.messages.expect(action)
                if position + 1 < len(plan):
                    self.messages.expect(plan[position + 1])
                chunk, at = self.chunks[action.chunk], (action.microbatch, action.chunk)
                if self.context is not None and self.context.packs and action.kind is not Kind.WEIGHT:
                    with self.timers("data"):
                        found = self.context.use(feed.documents(action.microbatch))
                    if action.kind is Kind.FORWARD and action.chunk == 0 and scale is not None:
                        self.context.attended += found.pairs
                if action.kind is Kind.FORWARD:
                    if chunk.stage.has_embedding:
                        x = batch(action.microbatch)[0]
                    else:
                        x = self.messages.receive(action, order).requires_grad_(scale is not None)
                    with torch.set_grad_enabled(scale is not None):
                        out = chunk.forward(x)
                        gradients: list[Tensor] = []
                        root = out if chunk.stage.has_head or scale is None else _Root.apply(out, gradients)
                    if chunk.stage.has_head and scale is None:
                        total += self._loss(chunk, out, batch(action.microbatch)[1], None)[0]
                    self.messages.send(action, out.detach(), order)
                    if scale is not None:
                        kept[at] = x, root, gradients
                    if scale is None or not self.has_head:
                        batches.pop(action.microbatch, None)
                elif action.kind is Kind.BACKWARD:
                    x, root, gradients = kept.pop(at)
                    gradient: Tensor | None = None
                    if chunk.stage.has_head:
                        loss, gradient = self._loss(chunk, root.detach(), batch(action.microbatch)[1], scale)
                        total += loss
                        batches.pop(action.microbatch)
                    else:
                        gradients.append(self.messages.receive(action, order))
                    self.tp.deferred = weight_gemms.setdefault(at, []) if self.splits else None
                    if gradient is None:
                        root.backward()
                    else:
                        autograd.backward([root], [gradient])
                    self.tp.deferred = None
                    if x.grad is not None:
                        self.messages.send(action, x.grad, order)
                else:
                    for gemm in weight_gemms.pop(at):
                        gemm()
        self.messages.finish()
        return total

    def _loss(self, chunk: Chunk, hidden: Tensor, targets: Tensor, scale: float | None) -> tuple[Tensor, Tensor | None]:
        with self.timers("loss"), torch.no_grad():
            return chunk.loss(hidden, targets, scale)


# ---- messages between pipeline stages: receives are posted one action ahead, sends are let go when they must have arrived


Order = Callable[[int], Mapping[Action, int]]
"""The position of each action in the list of another pipeline rank."""


class Messages:
    def __init__(self, comm: Comm, *, shape: tuple[int, ...], dtype: torch.dtype):
        self.comm, self.shape, self.dtype = comm, shape, dtype
        self.pp, self.rank = comm.mesh.topology.pp, comm.mesh.place.pp
        self.virtual = comm.mesh.topology.vp
        self._inbox: dict[Action, tuple[Tensor, dist.Work | None]] = {}
        self._outbox: list[tuple[tuple[int, Action], Tensor, dist.Work]] = []
        """Who needs it for what, the message, its sending."""

    def expect(self, action: Action) -> None:
        """Post the receive of this action's input, if it has one."""
        source = comes_from(action, pp=self.pp, rank=self.rank, virtual=self.virtual)
        if source is None or action in self._inbox:
            return
        with self.comm.timers("pp_wait"):
            buffer = torch.empty(self.shape, dtype=self.dtype, device=self.comm.mesh.device)
            work = self.post_receive(buffer, action.kind, source[0])
        self._inbox[action] = buffer, work

    def post_receive(self, buffer: Tensor, kind: Kind, source: int) -> dist.Work | None:
        group = self._channel(kind, source, self.rank)
        return dist.irecv(buffer, src=self.comm.mesh.pp.ranks[source], group=group.handle, tag=_tag(kind))

    def receive(self, action: Action, order: Order | None) -> Tensor:
        self.expect(action)
        buffer, work = self._inbox.pop(action)
        with self.comm.timers("pp_wait"):
            if work is not None:
                work.wait()
            if order is not None:
                self._let_go(action, order)
        self.comm.count("receive", buffer, self.comm.mesh.pp)
        return buffer

    def _let_go(self, received: Action, order: Order) -> None:
        """Of what the sender of this message had read when it made it."""
        source = comes_from(received, pp=self.pp, rank=self.rank, virtual=self.virtual)
        assert source is not None
        positions = order(source[0])
        made = positions[source[1]]
        still = []
        for target, message, work in self._outbox:
            if target[0] == source[0] and positions[target[1]] < made:
                work.wait()
            else:
                still.append((target, message, work))
        self._outbox = still

    def send(self, action: Action, result: Tensor, order: Order | None) -> None:
        """Pass the result of `action` on to whoever waits for it. Without an order (forward passes alone, where nothing
        comes back) the oldest message is waited for once there are more than a pipeline can be apart."""
        target = goes_to(action, pp=self.pp, rank=self.rank, virtual=self.virtual)
        if target is None:
            return
        with self.comm.timers("pp_send"):
            result = result.contiguous()
            work = self.post_send(result, action.kind, target[0])
            self._outbox = [sent for sent in self._outbox if not sent[2].is_completed()]
            self._outbox.append((target, result, work))
            if order is None and len(self._outbox) > 2 * self.pp * self.virtual:
                self._outbox.pop(0)[2].wait()

    def post_send(self, result: Tensor, kind: Kind, target: int) -> dist.Work:
        group = self._channel(kind, self.rank, target)
        work = dist.isend(result, dst=self.comm.mesh.pp.ranks[target], group=group.handle, tag=_tag(kind))
        assert work is not None
        return work

    def finish(self) -> None:
        """Wait until everything sent has left."""
        with self.comm.timers("pp_wait"):
            for _, _, work in self._outbox:
                work.wait()
        self._outbox.clear()

    def sum_tied(self, x: Tensor) -> None:
        """On the first and the last stage: `x` becomes the sum of both, in place and in the same order on both."""
        theirs = torch.empty_like(x)
        self.exchange_tied(x, theirs)
        self.comm.count("sum_tied", x, self.comm.mesh.pp)
        x.add_(theirs)

    def exchange_tied(self, mine: Tensor, theirs: Tensor) -> None:
        is_first = self.rank == 0
        other = self.comm.mesh.pp.ranks[-1 if is_first else 0]
        both = ((dist.isend, mine), (dist.irecv, theirs))
        calls = [dist.P2POp(call, tensor, other, self.comm.mesh.pp.handle, TIED) for call, tensor in both]
        for work in dist.batch_isend_irecv(calls if is_first else calls[::-1]):
            work.wait()

    def _channel(self, kind: Kind, source: int, target: int) -> Group:
        forward = kind is Kind.FORWARD
        # With two ranks the way round is the way back: it needs a channel that is not the neighbour's.
        wraps = (source, target) == ((self.pp - 1, 0) if forward else (0, self.pp - 1))
        return self.comm.mesh.channels[(0 if forward else 1) + (2 if wraps else 0)]


TIED = 2
"""The tag of the tied embedding's gradients."""


def _tag(kind: Kind) -> int:
    return 0 if kind is Kind.FORWARD else 1
