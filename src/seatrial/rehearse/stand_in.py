"""The engine on a rank whose peers are not there: it records what it does, and what it would receive is made up.

    engine = StandIn(trial, training, mesh, Recorder("cpu"))
    engine.take_part(shorter, whole=True)                   the schedule as it stands, for memory
    engine.take_part(shorter, whole=False)                  each action in turn, for time
    engine.step(1, first_sample=0, batches=batches)
"""
from __future__ import annotations

from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor

from seatrial.engine.core import init
from seatrial.engine.core.comm import Comm, Pending
from seatrial.engine.core.mesh import Group, Mesh
from seatrial.engine.core.messages import Messages, Order
from seatrial.engine.core.ops import Ops
from seatrial.engine.core.step import Engine
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.engine.watch.timers import Timers
from seatrial.rehearse.recorder import Recorder
from seatrial.schedule import Action, Kind, splits_backward
from seatrial.spec import Topology, Trial
from seatrial.training import Training

UPDATED = "optimizer"
"""The timer of weights that come back from the ranks that updated them: here they stay as they were."""


class _Beats(Heartbeat):
    """The engine says what it begins; that is when one action ends and the next starts."""

    def __init__(self, rank: int, recorder: Recorder):
        super().__init__(None, rank)
        self._recorder = recorder

    def beat(self, *, step: int | None = None, phase: str | None = None, microbatch: int | None = None) -> None:
        if phase is not None:
            self._recorder.mark(phase, microbatch or 0)


class _Recorded(Pending):
    """A collective whose wait is recorded."""

    def __init__(self, pending: Pending, recorder: Recorder, number: int):
        self.__dict__.update(pending.__dict__)
        self._recorder, self._number = recorder, number

    def wait(self) -> Tensor:
        if self._number:
            self._recorder.wait(self._number)
            self._number = 0
        return super().wait()


class _Comm(Comm):
    def __init__(self, mesh: Mesh, timers: Timers, recorder: Recorder):
        super().__init__(mesh, timers, _Beats(mesh.rank, recorder))
        self.recorder = recorder

    def all_reduce(self, x: Tensor, group: Group, *, timer: str, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
                   wait: bool = True) -> Pending:
        number = self._issue("all_reduce", x, group)
        pending = _Recorded(super().all_reduce(x, group, timer=timer, op=op, wait=False), self.recorder, number)
        if wait:
            pending.wait()
        return pending

    def all_gather(self, out: Tensor, part: Tensor, group: Group, *, timer: str, wait: bool = True) -> Pending:
        if group.size == 1:
            return super().all_gather(out, part, group, timer=timer, wait=wait)
        number = self._issue("all_gather", out, group)
        made = Pending(None, lambda: out, self.timers, timer)
        if timer != UPDATED:
            # The fake backend copies this rank's part to where the others' would come.
            with self.recorder.aside():
                made = super().all_gather(out, part, group, timer=timer, wait=False)
        pending = _Recorded(made, self.recorder, number)
        if wait:
            pending.wait()
        return pending

    def reduce_scatter(self, x: Tensor, group: Group, *, timer: str) -> Pending:
        number = self._issue("reduce_scatter" if self.scatters else "all_reduce", x, group)
        return _Recorded(super().reduce_scatter(x, group, timer=timer), self.recorder, number)

    def _issue(self, name: str, x: Tensor, group: Group) -> int:
        """0 where there is nobody to talk to."""
        return self.recorder.issue(name, group.name, x.numel() * x.element_size()) if group.size > 1 else 0


class _Arrived:
    """A message that has left, as NCCL says when it has; gloo says so only when asked to wait."""

    def wait(self) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class _Messages(Messages):
    def __init__(self, comm: _Comm, like: Messages, *, gradient_std: float):
        super().__init__(comm, shape=like.shape, dtype=like.dtype)
        self.recorder, self.keeps = comm.recorder, True
        """`keeps`: what is sent is held as long as a real rank would hold it."""
        self._std = {Kind.FORWARD: 1.0, Kind.BACKWARD: gradient_std}
        # Made once, and before anybody counts: random numbers take a CPU longer than a layer of a small model.
        on_cpu = comm.mesh.device.type == "cpu" and self.pp > 1
        self._values = {kind: torch.randn(self.shape[1:]).mul_(std).to(self.dtype) for kind, std in self._std.items() if on_cpu}

    def post_receive(self, buffer: Tensor, kind: Kind, source: int) -> dist.Work | None:
        work = super().post_receive(buffer, kind, source)
        with self.recorder.aside():
            self._fill(buffer, kind)
        return work

    def _fill(self, buffer: Tensor, kind: Kind) -> None:
        """With numbers as plausible as their size: the fake backend leaves what was there, which may be anything."""
        if kind in self._values:
            buffer.copy_(self._values[kind])
        else:
            buffer.normal_(0.0, self._std[kind])

    def post_send(self, result: Tensor, kind: Kind, target: int) -> dist.Work:
        work = super().post_send(result, kind, target)
        return cast(dist.Work, _Arrived()) if self.comm.mesh.backend == "nccl" else work

    def _let_go(self, received: Action, order: Order) -> None:
        if self.keeps:
            super()._let_go(received, order)
        else:
            self._outbox.clear()

    def exchange_ends(self, mine: Tensor, theirs: Tensor) -> None:
        number = self.recorder.issue("sum_of_ends", "pp", mine.numel() * mine.element_size())
        with self.recorder.aside():
            theirs.zero_()
        self.recorder.wait(number)


class StandIn(Engine):
    def __init__(self, trial: Trial, training: Training, mesh: Mesh, recorder: Recorder, ops: Ops | None = None):
        self.whole, self.recorder = True, recorder
        comm = _Comm(mesh, Timers(mesh.device.type), recorder)
        super().__init__(trial, training, mesh, comm=comm, ops=ops)
        for bucket in self.buckets:
            # The shards of the other replicas, whose first values would have come from them.
            for piece in bucket.pieces(0, bucket.layout.size) if bucket.zero in (1, 2) else ():
                init.fill(bucket.flat[piece.start : piece.start + piece.numel], piece.spec, piece.segment, row=piece.row,
                          seed=training.seed)
        scale = self.loss_scale.value / (trial.batch.gbs * trial.model.seq)
        self.made_up = self.pipeline.messages = _Messages(comm, self.pipeline.messages, gradient_std=scale)

    def take_part(self, trial: Trial, *, whole: bool) -> None:
        """The same layout on another batch, by its schedule or one action after the other."""
        self.trial, self.whole, self.made_up.keeps = trial, whole, whole

    def plan(self, gbs: int) -> list[Action]:
        return super().plan(gbs) if self.whole else one_by_one(self.trial.topology, self.microbatches(gbs))


def one_by_one(topology: Topology, microbatches: int) -> list[Action]:
    """Every micro-batch through all of this rank's stages and back before the next."""
    t, found = topology, []
    for m in range(microbatches):
        found += [Action(Kind.FORWARD, m, c) for c in range(t.vp)]
        for c in reversed(range(t.vp)):
            found.append(Action(Kind.BACKWARD, m, c))
            if splits_backward(t.schedule):
                found.append(Action(Kind.WEIGHT, m, c))
    return found
