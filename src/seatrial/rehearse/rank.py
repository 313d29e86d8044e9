"""One rank rehearsed: the engine without its peers, each action's time on real tensors, bytes by part over the schedule.

    with fake_world(rank=rank, world=trial.topology.world):
        time_actions(trial, recipe, device, repeats=3, as_gpu=False)          moments, to be replayed with a network
        measure_memory(trial, recipe, device, fake=True, as_gpu=False)        bytes by part at the fullest moment

Time needs each action a few times; memory needs the true number of micro-batches in flight, and no more:
`microbatches_to_peak` says how many of a long batch show the fullest moment.
"""
from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.attention import SDPBackend

from seatrial.arith.footprint import workspaces
from seatrial.arith.layout import Layout
from seatrial.documents import CORPUS
from seatrial.engine.core.comm import Comm, Dealt, Pending
from seatrial.engine.core.layers import swiglu_by_autograd
from seatrial.engine.core.mesh import Group, Mesh
from seatrial.engine.core.ops import Ops
from seatrial.engine.core.params import Held, fill
from seatrial.engine.core.pipeline import Messages, Order
from seatrial.engine.core.step import Engine
from seatrial.engine.fast import choose
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.experts import FastExperts
from seatrial.engine.fast.ops import FastOps
from seatrial.engine.io.data import Batches
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.engine.watch.timers import Timers
from seatrial.engine.watch.tracker import tracker
from seatrial.errors import SeatrialError
from seatrial.recipe import Recipe
from seatrial.rehearse import fake
from seatrial.rehearse.fake import Answers, FakeGrouped, no_memory
from seatrial.rehearse.load import BALANCED, Load, pairs_of
from seatrial.rehearse.recorder import Moment, Recorder
from seatrial.schedule import KINDS, Action, Kind, peak_activations, schedule, splits_backward
from seatrial.spec import GIB, Batch, Topology, Trial

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

    def __init__(self, pending: Pending, comm: _Comm, number: int):
        super().__init__(None, pending.wait, comm.timers, "")
        self._recorder, self._number = comm.recorder, number

    def wait(self) -> Tensor:
        if self._number:
            self._recorder.wait(self._number)
            self._number = 0
        return super().wait()


class _Comm(Comm):
    def __init__(self, mesh: Mesh, timers: Timers, recorder: Recorder, trial: Trial, load: Load, *, fake: bool):
        super().__init__(mesh, timers, _Beats(mesh.rank, recorder))
        self.recorder, self.trial, self.load, self.fake = recorder, trial, load, fake

    def all_reduce(self, x: Tensor, group: Group, *, timer: str, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
                   wait: bool = True) -> Pending:
        number = self._issue("all_reduce", x, group)
        pending = _Recorded(super().all_reduce(x, group, timer=timer, op=op, wait=False), self, number)
        if wait:
            pending.wait()
        return pending

    def all_gather(self, out: Tensor, part: Tensor, group: Group, *, timer: str, wait: bool = True) -> Pending:
        if group.size == 1:
            return super().all_gather(out, part, group, timer=timer, wait=wait)
        number = self._issue("all_gather", out, group)
        # What leaves is held until it has.
        made = Pending(None, lambda _leaves=part: out, self.timers, timer)  # type: ignore[misc]
        if timer != UPDATED:
            # The fake backend copies this rank's part to where the others' would come.
            with self.recorder.aside():
                made = super().all_gather(out, part, group, timer=timer, wait=False)
        pending = _Recorded(made, self, number)
        if wait:
            pending.wait()
        return pending

    def reduce_scatter(self, x: Tensor, group: Group, *, timer: str) -> Pending:
        number = self._issue("reduce_scatter" if self.scatters else "all_reduce", x, group)
        return _Recorded(super().reduce_scatter(x, group, timer=timer), self, number)

    def all_to_all(self, out: Tensor, x: Tensor, group: Group, *, timer: str) -> Pending:
        return self._passed(self._issue("all_to_all", x, group), out, x, timer)

    def deal(self, mine_E: Tensor, group: Group, held: Held, *, layer: int, timer: str) -> Dealt:
        """This rank's go where its router sends them; where no number is real, to all alike."""
        here_E, parties = self.load.rows(self.trial, self.mesh.rank, layer=layer), held.experts // held.count
        here_RE = [[_share(rows, rank, group.size) for rows in here_E] for rank in range(group.size)]
        pairs = pairs_of(self.trial)
        to_each = ([_share(pairs, rank, parties) for rank in range(parties)] if self.fake
                   else mine_E.view(parties, -1).sum(-1).tolist())
        return Dealt(to_each, torch.tensor(here_RE, device=mine_E.device), [sum(line) for line in here_RE])

    def arrived(self, counts_E: Tensor, group: Group, *, layer: int) -> tuple[Tensor, int]:
        if group.size == 1 and not self.fake:
            return super().arrived(counts_E, group, layer=layer)
        here_E = self.load.rows(self.trial, self.mesh.rank, layer=layer)
        return torch.tensor(here_E, device=counts_E.device), sum(here_E)

    def exchange_rows(self, x_NH: Tensor, group: Group, sends: list[int], receives: list[int], *, timer: str) -> Pending:
        """This rank's own rows stand for those of the others."""
        out = x_NH.new_empty(sum(receives), x_NH.shape[1])
        number = self._issue("all_to_all", x_NH if len(x_NH) > len(out) else out, group)
        with self.recorder.aside():
            for part in out.split(max(1, len(x_NH))):
                part.copy_(x_NH[: len(part)])
        made = Pending(None, lambda _leaves=x_NH: out, self.timers, timer)  # type: ignore[misc]
        return _Recorded(made, self, number) if group.size > 1 else made

    def shift(self, out: Tensor, x: Tensor, group: Group, *, timer: str) -> Pending:
        return self._passed(self._issue("shift", x, group), out, x, timer)

    def _passed(self, number: int, out: Tensor, x: Tensor, timer: str) -> Pending:
        """As much as was sent comes back: keys and gradients of this rank stand for those of the others."""
        with self.recorder.aside():
            out.copy_(x)
        return _Recorded(Pending(None, lambda: out, self.timers, timer), self, number)

    def _issue(self, name: str, x: Tensor, group: Group) -> int:
        """0 where there is nobody to talk to."""
        return self.recorder.issue(name, group.name, x.numel() * x.element_size()) if group.size > 1 else 0


def _share(whole: int, number: int, ways: int) -> int:
    """Part `number` of so many that are as alike as whole numbers can be."""
    return (number + 1) * whole // ways - number * whole // ways


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

    def exchange_tied(self, mine: Tensor, theirs: Tensor) -> None:
        number = self.recorder.issue("sum_tied", "pp", mine.numel() * mine.element_size())
        with self.recorder.aside():
            theirs.zero_()
        self.recorder.wait(number)


class StandIn(Engine):
    def __init__(self, trial: Trial, recipe: Recipe, mesh: Mesh, recorder: Recorder, ops: Ops, *, load: Load, fake: bool):
        """`fake`: first values are not made, nobody reads them."""
        self.whole, self.recorder, first_values = True, recorder, not fake
        comm = _Comm(mesh, Timers(mesh.device.type), recorder, trial, load, fake=fake)
        super().__init__(trial, recipe, mesh, comm=comm, ops=ops, first_values=first_values)
        for bucket in self.buckets:
            # The shards of the other replicas, whose first values would have come from them.
            for piece in bucket.pieces(*bucket.weights_at) if first_values and bucket.weights_at != bucket.shard else ():
                start = piece.start - bucket.weights_at[0]
                fill(bucket.kept[start : start + piece.numel], piece.spec, piece.segment, row=piece.row, seed=recipe.seed)
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


class OutOfMemory(SeatrialError):
    """The device could not hold the rank."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    peak_bytes: int
    """At the fullest moment, all parts together."""
    at_peak: dict[str, int]
    """By part at that moment."""
    parts: dict[str, int]
    """Each part's own peak; together they may be more than there ever was at once."""
    microbatches: int
    """Of the schedule that was walked through."""
    fake: bool
    """Whether the tensors had no memory: shapes and lifetimes alone."""
    allocated_bytes: int | None = None
    """What the device's allocator gave out at most, and …"""
    reserved_bytes: int | None = None
    """… what it took from the device."""
    over_time: tuple[dict[str, int], ...] = ()
    """By part, through a step of an engine that is not ours …"""
    start_bytes: int | None = None
    """… and its fullest moment before the first one."""


def with_microbatches(trial: Trial, count: int) -> Trial:
    """The same layout on a shorter batch."""
    gbs = count * trial.topology.dp * trial.topology.mbs
    return replace(trial, batch=Batch(gbs=gbs, documents=trial.batch.documents))


def microbatches_to_peak(trial: Trial, pp_rank: int) -> int:
    """Micro-batches after which the fullest moment has been: the rank is full and has turned over."""
    t, there = trial.topology, trial.microbatches
    if KINDS[t.schedule].grouped:
        return min(there, 4 * t.pp)
    most = peak_activations(schedule(t.schedule, pp=t.pp, rank=pp_rank, microbatches=there, virtual=t.vp))
    return min(there, most.activations + most.weight_inputs + 2)


def time_actions(trial: Trial, recipe: Recipe, device: torch.device, *, repeats: int, as_gpu: bool,
                 load: Load = BALANCED) -> list[Moment]:
    """A step to warm up, and one of `repeats` micro-batches, one after the other through this rank's stages.

    `as_gpu`: whether the ranks that it stands for talk through NCCL, whose ways of sending and scattering differ from gloo's.
    """
    with _explained(trial, device):
        engine = _engine(trial, recipe, device, as_gpu=as_gpu, load=load)
        # The first step makes the gradients' buckets and picks kernels.
        _one_by_one(engine, trial, recipe, 1)
        return _one_by_one(engine, trial, recipe, repeats)


def measure_memory(trial: Trial, recipe: Recipe, device: torch.device, *, fake: bool, as_gpu: bool,
                   load: Load = BALANCED) -> Memory:
    """Over as much of the schedule as shows its fullest moment."""
    with _explained(trial, device), no_memory() if fake else contextlib.nullcontext():
        engine = _engine(trial, recipe, device, as_gpu=as_gpu, load=load, fake=fake)
        return _watched(engine, trial, recipe, fake=fake, workspaces=workspaces(Layout.of(trial)) if fake and as_gpu else 0)


def time_and_memory(trial: Trial, recipe: Recipe, device: torch.device, *, repeats: int, as_gpu: bool,
                    load: Load = BALANCED) -> tuple[list[Moment], Memory]:
    """On one engine, where the schedule fits and runs quickly enough: it is made once."""
    with _explained(trial, device):
        engine = _engine(trial, recipe, device, as_gpu=as_gpu, load=load)
        memory = _watched(engine, trial, recipe, fake=False)
        return _one_by_one(engine, trial, recipe, repeats), memory


def gpu_ops(trial: Trial) -> Ops:
    """What a GPU keeps and lets go; its kernels and GEMMs hand back what they would, and compute nothing."""
    config = KernelConfig.of(torch.device("cuda"), trial.topology.precision)
    config = replace(config, triton=(), attention="default", one_pass_update=True)
    ops = choose.build(config, trial, torch.device("cpu"), kernels=fake.kernels(),
                       gemm=fake.FakeGemm() if config.fused else None, scaled_gemm=fake.scaled_gemm)
    # No fused kernel of a GPU takes grouped heads in fp32.
    grouped = trial.topology.precision == "fp32" and trial.model.kv != trial.model.heads
    rms_norm = ops.rms_norm if config.fused else fake.rms_norm
    return replace(ops, rms_norm=rms_norm, narrow_values=fake.narrow_values, swiglu=swiglu_by_autograd,
                   attention=SDPBackend.MATH if grouped else None)


def _engine(trial: Trial, recipe: Recipe, device: torch.device, *, as_gpu: bool, load: Load, fake: bool = False) -> StandIn:
    """`fake`: its tensors have no memory, and its GPU may not be there."""
    acts_as = ("nccl" if as_gpu else "gloo") if trial.topology.world > 1 else None
    _free(device)  # of the rank before
    mesh = Mesh(trial.topology, device=device, acts_as=acts_as)
    ops = gpu_ops(trial) if fake and as_gpu else choose.build(choose.choose(trial, device)[0], trial, device)
    if fake:
        grouped = FakeGrouped(narrow=not as_gpu)
        fast = replace(ops.experts, grouped=grouped) if isinstance(ops.experts, FastExperts) else ops.experts
        ops = replace(ops, grouped=grouped, experts=fast)
    return StandIn(trial, recipe, mesh, Recorder(device.type), ops, load=load, fake=fake)


def _one_by_one(engine: StandIn, trial: Trial, recipe: Recipe, count: int) -> list[Moment]:
    engine.take_part(with_microbatches(trial, count), whole=False)
    engine.recorder.take()
    batches = Batches(recipe, trial.model, recipe.seed, documents=trial.batch.documents)
    engine.step(1, first_sample=0, batches=batches)
    engine.recorder.mark("end")
    return engine.recorder.take()


def _watched(engine: StandIn, trial: Trial, recipe: Recipe, *, fake: bool, workspaces: int = 0) -> Memory:
    """`workspaces` of libraries: a GPU's allocator says itself what it holds beside tensors."""
    device, count = engine.mesh.device, microbatches_to_peak(trial, engine.mesh.place.pp)
    on_gpu = device.type == "cuda"
    engine.take_part(with_microbatches(trial, count), whole=True)
    # Tokens without values need no corpus; documents that are in none are taken for one.
    documents = None if fake and trial.batch.documents == CORPUS else trial.batch.documents
    batches = Batches(replace(recipe, data=None) if fake else recipe, trial.model, recipe.seed, documents=documents)
    if isinstance(engine.ops, FastOps) and engine.ops.scales is not None:
        # The first step of all computes in bf16 and looks; memory is that of the others, with weights in eight bits.
        engine.ops.scales.updates += 1
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    if not engine.ops.release_gradients:
        # They stay from the first step on, and the others are as full as it gets.
        for bucket in engine.buckets:
            bucket.keep_gradients()
    with tracker(engine) as live, Answers(engine) if fake else contextlib.nullcontext():
        engine.step(1, first_sample=0, batches=batches)
    engine.recorder.take()
    allocated = reserved = None
    if on_gpu:
        stats = torch.cuda.memory_stats(device)
        allocated, reserved = stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]
        workspaces = max(0, stats["allocated_bytes.all.current"] - sum(live.live.values()))
    fixed = {"workspaces": workspaces}
    return Memory(peak_bytes=live.peak_bytes + workspaces, at_peak=live.at_peak | fixed, parts=live.by_part() | fixed,
                  microbatches=count, fake=fake, allocated_bytes=allocated, reserved_bytes=reserved)


@contextlib.contextmanager
def _explained(trial: Trial, device: torch.device) -> Iterator[None]:
    """An allocation that fails is one line; what the rank held is let go either way."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfMemory(_words(trial, device, error)) from None
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        raise OutOfMemory(_words(trial, device, error)) from None
    finally:
        _free(device)


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _words(trial: Trial, device: torch.device, error: BaseException) -> str:
    from seatrial.arith import footprint

    t = trial.topology
    needs = max(footprint(trial, rank=r, gpu=device.type == "cuda").total for r in {0, t.pp - 1}) / GIB
    said = str(error).split(". ")[0].splitlines()[0] if str(error) else type(error).__name__
    return (f"{trial.model.name or 'this model'} at TP {t.tp}, PP {t.pp}, DP {t.dp}, MBS {t.mbs} needs about {needs:.1f} "
            f"GiB per rank, which {device.type} does not have ({said}): --memory-only counts the bytes without allocating them")
