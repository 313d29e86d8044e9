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

from seatrial.engine.data import Batches
from seatrial.engine.loop import tracker
from seatrial.engine.mesh import Mesh
from seatrial.errors import SeatrialError
from seatrial.rehearse.fakes import Answers, no_memory
from seatrial.rehearse.recorder import Moment, Recorder
from seatrial.rehearse.stand_in import StandIn
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


def enough(trial: Trial) -> int:
    """Micro-batches after which the fullest moment has been: the pipeline is full and has turned over once."""
    t, there = trial.topology, trial.microbatches
    if t.schedule == "gpipe":
        return there
    return min(there, 4 * t.pp if t.schedule == "interleaved" else t.pp + 2)


def actions(trial: Trial, training: Training, device: torch.device, *, repeats: int, as_gpu: bool) -> list[Moment]:
    """One micro-batch to warm up and `repeats` that count, one after the other through this rank's stages; then the update.

    `as_gpu`: whether the ranks that it stands for talk through NCCL, whose ways of sending and scattering differ from gloo's.
    """
    short = with_microbatches(trial, repeats + 1)
    recorder = Recorder(device.type)
    with _told(trial, device):
        engine = StandIn(short, training, _mesh(trial, device, as_gpu), recorder, whole=False)
        batches = Batches(training, trial.model, training.seed)
        # The first step makes the gradients' buckets and picks kernels; the second is one of many.
        for number in (1, 2):
            recorder.take()
            engine.step(number, first_sample=0, batches=batches)
            recorder.mark("end")
        moments = recorder.take()
        engine.mesh.close()
    return moments


def held(trial: Trial, training: Training, device: torch.device, *, fake: bool, as_gpu: bool) -> Memory:
    """Over as much of the schedule as shows its fullest moment."""
    count = enough(trial)
    short = with_microbatches(trial, count)
    recorder = Recorder("cpu")
    recorder.on = False
    allocated = reserved = None
    with _told(trial, device), no_memory() if fake else contextlib.nullcontext():
        if device.type == "cuda" and not fake:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        engine = StandIn(short, training, _mesh(trial, device, as_gpu), recorder, whole=True)
        # Tokens without values need no corpus.
        batches = Batches(replace(training, data=None) if fake else training, trial.model, training.seed)
        with tracker(engine) as live, Answers(engine) if fake else contextlib.nullcontext():
            engine.step(1, first_sample=0, batches=batches)
        if device.type == "cuda" and not fake:
            torch.cuda.synchronize(device)
            stats = torch.cuda.memory_stats(device)
            allocated, reserved = stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]
        engine.mesh.close()
    return Memory(peak_bytes=live.peak_bytes, at_peak=dict(live.at_peak), parts=live.by_part(), microbatches=count, fake=fake,
                  allocated_bytes=allocated, reserved_bytes=reserved)


def _mesh(trial: Trial, device: torch.device, as_gpu: bool) -> Mesh:
    acts_as = ("nccl" if as_gpu else "gloo") if trial.topology.world > 1 else None
    return Mesh(trial.topology, device=device, acts_as=acts_as)


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
