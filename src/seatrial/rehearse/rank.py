"""One rank rehearsed: the time of each of its distinct actions on real tensors, and its bytes by part over the schedule.

    with fake_world(rank=rank, world=trial.topology.world):
        actions(trial, training, device, repeats=3, as_gpu=False)       moments, to be replayed with a network
        held(trial, training, device, fake=True, as_gpu=False)          bytes by part at the fullest moment

Time needs each action a few times; memory needs the true number of micro-batches in flight, and no more: `enough` says how many
of a long batch show the fullest moment.
"""
from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.ops import Ops
from seatrial.engine.fast import choose
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.ops import FastOps
from seatrial.engine.io.data import Batches
from seatrial.engine.loop import tracker
from seatrial.errors import SeatrialError
from seatrial.rehearse import results
from seatrial.rehearse.fakes import Answers, no_memory
from seatrial.rehearse.recorder import Moment, Recorder
from seatrial.rehearse.stand_in import StandIn
from seatrial.schedule import KINDS, peak_activations, schedule
from seatrial.spec import GIB, Batch, Trial
from seatrial.training import Training


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


def with_microbatches(trial: Trial, count: int) -> Trial:
    """The same layout on a shorter batch."""
    return replace(trial, batch=Batch(gbs=count * trial.topology.dp * trial.topology.mbs))


def enough(trial: Trial, pp_rank: int) -> int:
    """Micro-batches after which the fullest moment has been: the rank is full and has turned over."""
    t, there = trial.topology, trial.microbatches
    if KINDS[t.schedule].grouped:
        return min(there, 4 * t.pp)
    most = peak_activations(schedule(t.schedule, pp=t.pp, rank=pp_rank, microbatches=there, virtual=t.vp))
    return min(there, most.activations + most.weight_inputs + 2)


def actions(trial: Trial, training: Training, device: torch.device, *, repeats: int, as_gpu: bool) -> list[Moment]:
    """A step to warm up, and one of `repeats` micro-batches, one after the other through this rank's stages.

    `as_gpu`: whether the ranks that it stands for talk through NCCL, whose ways of sending and scattering differ from gloo's.
    """
    with _told(trial, device):
        engine = _engine(trial, training, device, as_gpu)
        # The first step makes the gradients' buckets and picks kernels.
        _one_by_one(engine, trial, training, 1)
        return _one_by_one(engine, trial, training, repeats)


def held(trial: Trial, training: Training, device: torch.device, *, fake: bool, as_gpu: bool) -> Memory:
    """Over as much of the schedule as shows its fullest moment."""
    with _told(trial, device), no_memory() if fake else contextlib.nullcontext():
        engine = _engine(trial, training, device, as_gpu, gpu_ops(trial, training) if fake and as_gpu else None)
        return _watched(engine, trial, training, fake=fake)


def both(trial: Trial, training: Training, device: torch.device, *, repeats: int,
         as_gpu: bool) -> tuple[list[Moment], Memory]:
    """On one engine, where the schedule fits and runs quickly enough: it is made once."""
    with _told(trial, device):
        engine = _engine(trial, training, device, as_gpu)
        memory = _watched(engine, trial, training, fake=False)
        return _one_by_one(engine, trial, training, repeats), memory


def gpu_ops(trial: Trial, training: Training) -> Ops:
    """What a GPU keeps and lets go; its kernels and GEMMs hand back what they would, and compute nothing."""
    config = KernelConfig.of(torch.device("cuda"), precision=trial.topology.precision, compiled=False)
    config = replace(config, triton=(), attention="default", one_pass_update=True)
    return choose.build(config, trial, training, torch.device("cpu"), kernels=results.kernels(),
                        gemm=results.FakeGemm() if config.fused else None, scaled_gemm=results.scaled_gemm)


def _engine(trial: Trial, training: Training, device: torch.device, as_gpu: bool, ops: Ops | None = None) -> StandIn:
    """`ops`: those of a GPU that is not there."""
    acts_as = ("nccl" if as_gpu else "gloo") if trial.topology.world > 1 else None
    _let_go(device)  # of the rank before
    mesh = Mesh(trial.topology, device=device, acts_as=acts_as)
    if ops is None:
        ops = choose.build(choose.choose(trial, training, device)[0], trial, training, device)
    return StandIn(trial, training, mesh, Recorder(device.type), ops)


def _one_by_one(engine: StandIn, trial: Trial, training: Training, count: int) -> list[Moment]:
    engine.take_part(with_microbatches(trial, count), whole=False)
    engine.recorder.take()
    engine.step(1, first_sample=0, batches=Batches(training, trial.model, training.seed))
    engine.recorder.mark("end")
    return engine.recorder.take()


def _watched(engine: StandIn, trial: Trial, training: Training, *, fake: bool) -> Memory:
    device, count = engine.mesh.device, enough(trial, engine.mesh.pp_rank)
    on_gpu = device.type == "cuda"
    engine.take_part(with_microbatches(trial, count), whole=True)
    # Tokens without values need no corpus.
    batches = Batches(replace(training, data=None) if fake else training, trial.model, training.seed)
    if isinstance(engine.ops, FastOps) and engine.ops.scales is not None:
        # The first step of all computes in bf16 and looks; memory is that of the others, with weights in eight bits.
        engine.ops.scales.updates += 1
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    with tracker(engine) as live, Answers(engine) if fake else contextlib.nullcontext():
        engine.step(1, first_sample=0, batches=batches)
    engine.recorder.take()
    allocated = reserved = None
    if on_gpu:
        stats = torch.cuda.memory_stats(device)
        allocated, reserved = stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]
    return Memory(peak_bytes=live.peak_bytes, at_peak=dict(live.at_peak), parts=live.by_part(), microbatches=count, fake=fake,
                  allocated_bytes=allocated, reserved_bytes=reserved)


@contextlib.contextmanager
def _told(trial: Trial, device: torch.device) -> Iterator[None]:
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
        _let_go(device)


def _let_go(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _words(trial: Trial, device: torch.device, error: BaseException) -> str:
    from seatrial.arith import footprint

    t = trial.topology
    needs = max(footprint(trial, rank=r, gpu=device.type == "cuda").total for r in {0, t.pp - 1}) / GIB
    said = str(error).split(". ")[0].splitlines()[0] if str(error) else type(error).__name__
    return (f"{trial.model.name or 'this model'} at TP {t.tp}, PP {t.pp}, DP {t.dp}, MBS {t.mbs} needs about {needs:.1f} GiB a "
            f"rank, which {device.type} does not have ({said}): --memory-only counts the bytes without allocating them")
