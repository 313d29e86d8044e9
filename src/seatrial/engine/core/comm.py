"""Talking between ranks: collectives with counters, and the conjugate pairs of tensor parallelism.

    comm = Comm(mesh, timers)
    comm.all_reduce(x, mesh.dp, timer="grad_reduce")            in place
    tp = TensorParallel(comm, sequence_parallel=False)
    y = leave(enter(x, tp) @ w, tp)                             forward sums at the end, backward at the start

Counters and the watch live here, outside anything that is compiled. Collectives of a group must come in one order on all of its
ranks; `check_order` (debug) compares what each rank is about to do before it does it.
"""
from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from seatrial.engine.core.eager import eager
from seatrial.engine.core.mesh import Group, Mesh
from seatrial.engine.core.params import Held
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.engine.watch.timers import Timers

# Newer torch renamed both; older ones have only these names.
all_gather_tensor = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_tensor = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def gather_json(value: object, device: torch.device) -> list[Any] | None:
    """Plain data from every rank to rank 0, a list by rank there and None elsewhere; JSON bytes: no pickle is sent."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [value]
    data = _json_bytes(value, device)
    size = torch.tensor([data.numel()], dtype=torch.int64, device=device)
    sizes = [torch.zeros_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    longest = max(int(s) for s in sizes)
    padded = torch.zeros(longest, dtype=torch.uint8, device=device)
    padded[: data.numel()] = data
    is_root = dist.get_rank() == 0
    parts = [torch.empty_like(padded) for _ in sizes] if is_root else None
    dist.gather(padded, parts, dst=0)
    if parts is None:
        return None
    return [json.loads(bytes(part[: int(n)].tolist())) for part, n in zip(parts, sizes)]


def broadcast_json(value: object, device: torch.device) -> Any:
    """Rank 0's plain data, on every rank."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return value
    data = _json_bytes(value, device)
    size = torch.tensor([data.numel()], dtype=torch.int64, device=device)
    dist.broadcast(size, src=0)
    if dist.get_rank() != 0:
        data = torch.empty(int(size), dtype=torch.uint8, device=device)
    dist.broadcast(data, src=0)
    return json.loads(bytes(data.tolist()))


def _json_bytes(value: object, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(device)


class OrderMismatch(RuntimeError):
    """Ranks of one group were about to enter different collectives: the next thing would have been a hang."""


@dataclass
class Traffic:
    """What one group carried since the last `take`, as this rank saw it."""

    calls: int = 0
    payload_bytes: int = 0
    """Bytes of the tensors handed over, not of what the algorithm sends."""


class Pending:
    """A collective under way; `wait` gives its result."""

    def __init__(self, work: dist.Work | list[dist.Work] | None, finish: Callable[[], Tensor], timers: Timers, timer: str):
        self._works = work if isinstance(work, list) else [] if work is None else [work]
        self._finish, self._timers, self._timer = finish, timers, timer

    def wait(self) -> Tensor:
        if self._works:
            with self._timers(self._timer):
                for work in self._works:
                    work.wait()
            self._works = []
        done = self._finish()
        # What was sent is let go of: only the result is asked for again.
        self._finish = lambda: done
        return done

    def then(self, change: Callable[[Tensor], Tensor]) -> Pending:
        """The same, with its result changed when it is there."""
        finish = self._finish
        self._finish = lambda: change(finish())
        return self


class Dealt(NamedTuple):
    """Rows of one micro-batch on their way to a layer's experts."""

    to_each: list[int]
    """To the ranks of each EP rank's experts …"""
    here_RE: Tensor
    """… from each rank of the group to each expert of this one …"""
    receives: list[int]
    """… and from each rank in all."""


class Comm:
    def __init__(self, mesh: Mesh, timers: Timers, heartbeat: Heartbeat | None = None, *, check_order: bool = False):
        self.mesh, self.timers, self.check_order = mesh, timers, check_order
        self.heartbeat = heartbeat or Heartbeat(None, mesh.rank)
        self.traffic: dict[str, Traffic] = {}
        self.skip_next = False
        """Tests only: leave out the next collective, as a rank that lost its way would."""
        self._strayed = False
        self._numbers: dict[str, int] = {}
        self.scatters = mesh.backend not in ("gloo", "none")
        """gloo has no reduce-scatter of its own: there the sum goes to all, and each takes its part."""

    def all_reduce(self, x: Tensor, group: Group, *, timer: str, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
                   wait: bool = True) -> Pending:
        work = None
        if group.size > 1 and self._enter("all_reduce", x, group):
            with self.timers(timer):
                work = dist.all_reduce(x, op=op, group=group.handle, async_op=True)
        pending = Pending(work, lambda: x, self.timers, timer)
        if wait:
            pending.wait()
        return pending

    def all_gather(self, out: Tensor, part: Tensor, group: Group, *, timer: str, wait: bool = True) -> Pending:
        """`out` becomes the parts of all ranks one after the other."""
        work = None
        if group.size == 1:
            if out.data_ptr() != part.data_ptr():
                out.view(-1).copy_(part.view(-1))
        elif self._enter("all_gather", part, group):
            with self.timers(timer):
                work = all_gather_tensor(out.view(-1), part.reshape(-1), group=group.handle, async_op=True)
        pending = Pending(work, lambda: out, self.timers, timer)
        if wait:
            pending.wait()
        return pending

    def reduce_scatter(self, x: Tensor, group: Group, *, timer: str) -> Pending:
        """The sum's part of this rank, out of a flat `x` that is used up."""
        part = x.view(group.size, -1)[group.rank]
        work = None
        if group.size > 1 and self._enter("reduce_scatter", x, group):
            with self.timers(timer):
                if self.scatters:
                    work = reduce_scatter_tensor(part, x, group=group.handle, async_op=True)
                else:
                    work = dist.all_reduce(x, group=group.handle, async_op=True)
        return Pending(work, lambda: part, self.timers, timer)

    def all_to_all(self, out: Tensor, x: Tensor, group: Group, *, timer: str) -> Pending:
        """Part i of `x` goes to rank i, whose own part for this rank becomes part i of `out`."""
        work = None
        if self._enter("all_to_all", x, group):
            with self.timers(timer):
                work = dist.all_to_all_single(out.view(-1), x.view(-1), group=group.handle, async_op=True)
        return Pending(work, lambda: out, self.timers, timer)

    def deal(self, mine_E: Tensor, group: Group, held: Held, *, layer: int, timer: str) -> Dealt:
        """`mine_E`: how many of this rank's rows go to each expert of all; `held`: those that this rank has."""
        every_RE = mine_E.new_empty(group.size, held.experts)
        self.all_gather(every_RE, mine_E, group, timer=timer)
        # Here the host waits for the device: it must say how much is sent.
        to_RG = every_RE.view(group.size, -1, held.count).sum(-1).tolist()
        return Dealt(to_RG[group.rank], every_RE[:, held.first : held.first + held.count],
                     [to_RG[rank][held.first // held.count] for rank in range(group.size)])

    def arrived(self, counts_E: Tensor, group: Group, *, layer: int) -> tuple[Tensor, int]:
        """Rows for each expert of this rank, and of all of them, which the host must know."""
        return counts_E, int(counts_E.sum())

    def exchange_rows(self, x_NH: Tensor, group: Group, sends: list[int], receives: list[int], *, timer: str) -> Pending:
        """The same with as many rows to and from each rank as is said."""
        out = x_NH.new_empty(sum(receives), x_NH.shape[1])
        work = None
        if self._enter("exchange_rows", x_NH, group, alike=False):
            with self.timers(timer):
                work = dist.all_to_all_single(out, x_NH, receives, sends, group=group.handle, async_op=True)
        return Pending(work, lambda: _after(x_NH, out), self.timers, timer)

    def shift(self, out: Tensor, x: Tensor, group: Group, *, timer: str) -> Pending:
        """`x` to the next rank of a ring; `out` becomes what the one before sends. `x` stays as it is until then."""
        works: list[dist.Work] = []
        if self._enter("shift", x, group):
            after, before = (group.ranks[(group.rank + step) % group.size] for step in (1, -1))
            with self.timers(timer):
                # gloo asks for a message on the connection that its own leaves by: asked after, it would come after.
                works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, out, before, group.handle, SHIFT),
                                                dist.P2POp(dist.isend, x, after, group.handle, SHIFT)])
        return Pending(works, lambda: _after(x, out), self.timers, timer)

    def _enter(self, name: str, x: Tensor, group: Group, *, alike: bool = True) -> bool:
        """Count it, tell the watch, and say whether to go ahead. `alike`: all ranks have as much."""
        if self.skip_next:
            self.skip_next, self._strayed = False, True
            return False
        while self._strayed and not self.scatters:
            # NCCL waits for ever when ranks are out of step; gloo may end the process or pair what does not belong together.
            time.sleep(1.0)
        self.count(name, x, group)
        if self.check_order:
            self._compare(f"{self._numbers[group.name]} {name} {tuple(x.shape) if alike else ''} {x.dtype}", group)
        return True

    def count(self, name: str, x: Tensor, group: Group) -> None:
        number = self._numbers[group.name] = self._numbers.get(group.name, 0) + 1
        traffic = self.traffic.setdefault(group.name, Traffic())
        traffic.calls += 1
        traffic.payload_bytes += x.numel() * x.element_size()
        self.heartbeat.collective(name, group.name, number)

    def take(self) -> dict[str, Traffic]:
        taken, self.traffic = self.traffic, {}
        return taken

    def _compare(self, what: str, group: Group) -> None:
        mine = torch.tensor([zlib.crc32(what.encode())], device=self.mesh.device)
        every = torch.empty(group.size, dtype=mine.dtype, device=self.mesh.device)
        all_gather_tensor(every, mine, group=group.handle)
        if bool((every != mine).any()):
            others = [r for r, h in zip(group.ranks, every.tolist()) if h != mine.item()]
            raise OrderMismatch(f"rank {self.mesh.rank} is at collective {what} of group {group.name}, "
                                f"ranks {others} are elsewhere")


SHIFT = 3
"""The tag of what goes round a ring."""


def _after(_sent: Tensor, received: Tensor) -> Tensor:
    """Both live until both are done."""
    return received


class TensorParallel:
    """The tensor-parallel group as the layers see it. Activations are [batch, sequence, hidden]."""

    def __init__(self, comm: Comm, *, sequence_parallel: bool = False, direct: bool = True):
        self.comm, self.group = comm, comm.mesh.tp
        self.size, self.rank = self.group.size, self.group.rank
        self.sequence_parallel = sequence_parallel and self.size > 1
        self.direct = direct
        """Whether weight gradients go straight into their buckets; compiled blocks leave them to autograd."""
        self.deferred: list[Callable[[], None]] | None = None
        """While a list, weight gradients are put here for later (zero-bubble schedules)."""

    def sum(self, x: Tensor) -> Pending:
        return self.comm.all_reduce(x, self.group, timer="tp_comm", wait=False)

    def gather(self, x_BsH: Tensor) -> Pending:
        """The whole sequence out of every rank's stretch of it."""
        batch, part, hidden = x_BsH.shape
        parts = x_BsH.new_empty(self.size, batch, part, hidden)
        pending = self.comm.all_gather(parts, x_BsH.contiguous(), self.group, timer="tp_comm", wait=False)
        return pending.then(lambda parts: parts.transpose(0, 1).reshape(batch, self.size * part, hidden))

    def scatter_sum(self, x_BSH: Tensor) -> Pending:
        """This rank's stretch of the sum over the ranks."""
        batch, seq, hidden = x_BSH.shape
        part = seq // self.size
        if not self.comm.scatters:
            return self.sum(x_BSH).then(lambda whole: _own(whole[:, self.rank * part : (self.rank + 1) * part]))
        by_rank = x_BSH.view(batch, self.size, part, hidden).transpose(0, 1).reshape(-1)
        pending = self.comm.reduce_scatter(by_rank, self.group, timer="tp_comm")
        return pending.then(lambda mine: _own(mine.view(batch, part, hidden)))

    def out_of_region(self, x: Tensor) -> Pending:
        """Partial results become what the residual stream holds: the sum, or its stretch of it."""
        return self.scatter_sum(x) if self.sequence_parallel else self.sum(x)

    def into_region(self, x: Tensor) -> Tensor:
        return self.gather(x).wait() if self.sequence_parallel else x


def _own(part: Tensor) -> Tensor:
    """A copy: a view would keep the whole sequence for as long as its stretch lives."""
    return part.clone(memory_format=torch.contiguous_format)


class _Enter(Function):
    """Forward: the whole sequence (or nothing to do). Backward: the sum of the ranks' input gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: TensorParallel) -> Tensor:
        ctx.tp = tp
        return tp.into_region(x) if tp.sequence_parallel else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.tp.out_of_region(grads[0].contiguous().clone()).wait(), None


class _Leave(Function):
    """Forward: the sum of the ranks' partial results. Backward: the whole gradient (or nothing to do)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: TensorParallel) -> Tensor:
        ctx.tp = tp
        return tp.out_of_region(x.clone()).wait()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.tp.into_region(grads[0]), None


@eager
def _apply(pair: type[Function], x: Tensor, tp: TensorParallel) -> Tensor:
    return pair.apply(x, tp)


def enter(x: Tensor, tp: TensorParallel) -> Tensor:
    """Into a region where each rank has a part of the columns."""
    return x if tp.size == 1 else _apply(_Enter, x, tp)


def leave(x: Tensor, tp: TensorParallel) -> Tensor:
    """Out of it again."""
    return x if tp.size == 1 else _apply(_Leave, x, tp)
