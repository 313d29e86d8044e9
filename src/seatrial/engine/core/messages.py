"""Messages between pipeline stages: receives are posted one action ahead, sends are let go when they must have arrived.

Every channel (from rank, to rank, direction) is read in the order in which it is fed (`schedule.arrivals_in_order`), so a
message needs no name of its own: gloo tells the directions apart by tag, NCCL by a communicator for each. gloo does not say
when a message has left, but the schedule does: whoever sends us the result of an action has read all that it needed before.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from seatrial.engine.core.comm import Comm
from seatrial.engine.core.mesh import Group
from seatrial.schedule import Action, Kind, comes_from, goes_to

Order = Callable[[int], Mapping[Action, int]]
"""The position of each action in the list of another pipeline rank."""


class Messages:
    def __init__(self, comm: Comm, *, shape: tuple[int, ...], dtype: torch.dtype):
        self.comm, self.shape, self.dtype = comm, shape, dtype
        self.pp, self.rank = comm.mesh.topology.pp, comm.mesh.pp_rank
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
