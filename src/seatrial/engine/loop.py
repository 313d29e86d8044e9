"""The run around the step: start or resume, train, validate, save, report, and leave cleanly when asked to.

    python -m seatrial.engine out/run.json          one process of it a rank, under any launcher

A SIGTERM on any rank is agreed on by all after the step, so that they leave together, with a checkpoint.
"""
from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from seatrial import fields
from seatrial.engine import runfile
from seatrial.engine.core.mesh import Mesh, Pool
from seatrial.engine.core.step import Engine
from seatrial.engine.fast import choose
from seatrial.engine.io import checkpoint
from seatrial.engine.io.checkpoint import Checkpointer
from seatrial.engine.io.data import Batches
from seatrial.engine.rendezvous import RankInfo, device_of, join, rank_from_env
from seatrial.engine.runfile import RunFile
from seatrial.engine.watch import failure, memory
from seatrial.engine.watch.fault import Fault
from seatrial.engine.watch.heartbeat import END, Heartbeat, so_far
from seatrial.engine.watch.report import Report
from seatrial.engine.watch.timers import Timers
from seatrial.errors import BadInput
from seatrial.median import median_of
from seatrial.recipe import Recipe

FIRST_LOOKS = 3
"""Iterations after the warm-up before a run can be called slow: the fastest of them is compared."""
PATIENCE = timedelta(days=7)
"""Of collectives in a run that is watched: the watch knows who stands still, and whom a slow save keeps waiting."""


def main(argv: list[str]) -> int:
    info = RankInfo()
    heartbeat: Heartbeat | None = None
    out: str | None = None
    try:
        info = rank_from_env()
        if len(argv) != 1:
            raise BadInput("expected one argument, the run file: python -m seatrial.engine out/run.json")
        run = runfile.read(argv[0])
        out = run.out
        compiles = run.trial.execution.compile
        recipe = run.recipe
        heartbeat = Heartbeat(out, info.rank, recipe.stall_s, world=info.world, slow_steps=int(compiles),
                              start_s=recipe.compile_s if compiles else recipe.start_s, save_s=recipe.save_s,
                              load_s=recipe.load_s, fault=Fault.from_env())
        device = device_of(run.trial.execution.device, info)
        if run.trial.execution.threads or "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(run.trial.execution.threads or max(1, len(os.sched_getaffinity(0)) // info.local_world))
        heartbeat.beat(phase="join")
        join(info, device, timeout_s=PATIENCE.total_seconds())
        train(run, info, device, heartbeat)
    except BaseException as error:
        status = failure.report(error, out=out, rank=info.rank, heartbeat=heartbeat)
        if heartbeat is not None:
            heartbeat.close()
        sys.stdout.flush()
        # The usual way out would wait for threads of a process group whose peers are gone.
        os._exit(status)
    heartbeat.beat(phase=END)
    heartbeat.close()
    if dist.is_initialized():
        dist.destroy_process_group()
        sys.stdout.flush()
        # Interpreter and libraries would now take themselves apart; on a busy machine gloo's threads were seen to abort there.
        os._exit(0)
    return 0


def train(run: RunFile, info: RankInfo, device: torch.device, heartbeat: Heartbeat, *, pool: Pool | None = None) -> None:
    """The whole run; `pool` keeps its process groups for another one in this process."""
    trial, recipe = run.trial, run.recipe
    mesh = Mesh(trial.topology, device=device, pool=pool, timeout=PATIENCE if heartbeat.watched else None)
    timers = Timers(device.type)
    heartbeat.beat(phase="build")
    ops, kernels, notes = choose.ops_for(trial, mesh)
    engine = Engine(trial, recipe, mesh, ops=ops, timers=timers, heartbeat=heartbeat)
    memory.forget_peaks(device)
    label = trial.topology.label(info.rank)
    report = Report(run, rank=info.rank, device=device, label=label)
    fault = heartbeat.fault or Fault()
    if recipe.checkpoint_dir is not None:
        heartbeat.beat(phase="load")
    progress = Progress(run, engine, info, device)
    why = progress.resume()
    report.start(step=progress.step, backend=mesh.backend)
    if why and info.rank == 0:
        report.events.write("resume", step=progress.step, message=why)
        report.say(f" resumes from {why}")
    report.kernels(kernels.summary(), notes)
    heartbeat.beat(phase="data")
    batches = Batches(recipe, trial.model, recipe.seed, documents=trial.batch.documents)
    fault.arm(info.rank, batches)
    held_out = None
    if recipe.eval_every:
        held_out = Batches(recipe, trial.model, recipe.seed, split="valid", documents=trial.batch.documents)
    parts = partial(memory.parts, trial, pp_rank=mesh.place.pp, device=device)
    first, lost = True, False
    sound = Sound(recipe)
    enough = Enough(recipe, gbs=trial.batch.gbs)
    heartbeat.beat(phase="meet")
    if dist.is_initialized():
        # Some build longer than others; who waits for them in the first step would time that wait, or take it for a stall.
        dist.barrier()
    with _stopping(engine):
        timers.take()
        while progress.step < recipe.steps:
            step = progress.step + 1
            heartbeat.beat(step=step, phase="start", microbatch=0)
            engine.comm.skip_next = fault.takes("skip")
            timers.keep_spans = step in recipe.trace_steps
            began, origin_s = time.perf_counter(), time.time()
            timers.take()
            result = engine.step(step, first_sample=progress.consumed, batches=batches, poison=fault.takes("nan"))
            progress.done(result.gbs, skipped=result.skipped)
            lost = sound.lost_after(result.loss)
            # Steps that are not finite change no weight: what was learned before them is worth keeping.
            saved = progress.save(last=result.stop or step == recipe.steps or lost and sound.ever)
            taken = timers.take()
            seconds = time.perf_counter() - began
            heartbeat.beat(phase="report")
            report.iteration(step=step, result=result, seconds=seconds, taken=taken, consumed_samples=progress.consumed,
                             nan_here=not math.isfinite(engine.local_loss), pairs=engine.take_pairs())
            if saved is not None:
                report.checkpoint(step=step, seconds=saved)
            progress.say_whole(report)
            if timers.keep_spans:
                report.trace(step=step, origin_s=origin_s, timers=timers)
            if first:
                report.memory(step=step, parts=parts())
                first = False
            if held_out is not None and step % recipe.eval_every == 0:
                heartbeat.beat(phase="evaluation")
                samples = recipe.eval_batches * trial.batch.gbs
                loss = engine.evaluate(held_out, first_sample=0, samples=samples)
                report.validation(step=step, loss=loss, samples=samples)
            if result.stop or lost:
                break
            if info.rank == 0 and not enough.reason and enough.after(seconds, gbs=result.gbs):
                report.enough(step=step, reason=enough.reason)
                engine.stop_asked = True
        progress.finish(report)
    heartbeat.beat(phase="report")
    report.memory(step=progress.step, parts=parts())
    whole = progress.step >= recipe.steps or enough.reason
    report.end("lost" if lost else "finished" if whole else "stopped", step=progress.step)
    mesh.close()


class Progress:
    """How far the run is, and its checkpoints."""

    def __init__(self, run: RunFile, engine: Engine, info: RankInfo, device: torch.device):
        self.recipe, self.engine, self.device = run.recipe, engine, device
        self.step = self.consumed = self.skipped = 0
        self.heartbeat = engine.comm.heartbeat
        self._said = 0
        """Of the checkpoints that are whole, those that were reported."""
        self.keeper: Checkpointer | None = None
        if run.recipe.checkpoint_dir is not None:
            self.keeper = Checkpointer(
                run.recipe.checkpoint_dir, rank=info.rank, world=info.world, keep=run.recipe.keep, model=run.trial.model,
                about={"run_id": run.run_id, "topology": fields.plain(run.trial.topology)}, background=run.recipe.async_save,
                heartbeat=self.heartbeat,
                timeout_s=math.inf if self.heartbeat.watched else run.recipe.save_s,  # the watch names who stands still
                barrier=lambda: dist.barrier() if dist.is_initialized() else None)

    def resume(self) -> str:
        """What it goes on from and why, in a line; empty for a start."""
        if not self.recipe.resume or self.keeper is None:
            return ""
        found, why = checkpoint.choose(self.keeper.folder)
        if found is None:
            return ""
        checkpoint.check_model(found, self.engine.trial.model)
        only_weights = bool(found.state.get("weights_only"))
        shards = [s for s in self.engine.shards() if s.kind == "weight" or not only_weights]
        with self.heartbeat.work("load", total=sum(s.nbytes for s in shards)):
            checkpoint.fill(found.reader(self.heartbeat.moved), shards)
        self.keeper.after = found.digest
        self.engine.loaded()
        self.step, self.consumed = found.step, int(found.state["consumed_samples"])
        self.skipped = int(found.state.get("skipped", 0))
        self.engine.optimizer.steps_done.fill_(0.0 if only_weights else self.step - self.skipped)
        if found.about.get("topology", {}).get("precision") == "fp16":  # others wrote a scale too, of 1
            self.engine.loss_scale.restore(found.state.get("loss_scale", {}))
        return why

    def done(self, samples: int, *, skipped: bool) -> None:
        self.step += 1
        self.consumed += samples
        self.skipped += skipped

    def save(self, *, last: bool) -> float | None:
        """Seconds that training waited, or None when nothing was due."""
        if self.keeper is None:
            return None
        self.keeper.check()
        if not (last or self.recipe.save_every and self.step % self.recipe.save_every == 0):
            return None
        self.heartbeat.beat(phase="checkpoint")
        began = time.perf_counter()
        state = {"step": self.step, "consumed_samples": self.consumed, "skipped": self.skipped, "seed": self.recipe.seed,
                 "loss_scale": self.engine.loss_scale.state()}
        with self.engine.timers("checkpoint"):
            self.keeper.save(self.step, checkpoint.chunks_of(s for s in self.engine.shards() if s.primary), state)
        return time.perf_counter() - began

    def say_whole(self, report: Report) -> None:
        """Which checkpoints are on disk by now; rank 0 knows."""
        for step in self.keeper.saved[self._said :] if self.keeper is not None else ():
            report.events.write("saved", step=step)
            self._said += 1

    def finish(self, report: Report) -> None:
        if self.keeper is not None:
            self.heartbeat.beat(phase="finish")
            self.keeper.wait(lambda: self._tell(report))
            self.say_whole(report)


    def _tell(self, report: Report) -> None:
        beat = self.heartbeat
        far = so_far(beat.done, beat.total) if beat.work_name else "waiting for the parts of other ranks"
        if beat.rank == 0:
            report.say(f" the checkpoint of iteration {self.step} is being written | {far} |")


class Sound:
    """Whether a run still learns something: the loss of `nan_steps` steps in a row was a number once.

        sound = Sound(recipe)
        sound.lost_after(result.loss)       the same on all ranks, as the loss is

    A step that fp16 skips because a gradient overflowed has a loss, and does not count.
    """

    def __init__(self, recipe: Recipe):
        self.most, self.row, self.ever = recipe.nan_steps, 0, False

    def lost_after(self, loss: float) -> bool:
        finite = math.isfinite(loss)
        self.ever |= finite
        self.row = 0 if finite else self.row + 1
        return 0 < self.most <= self.row


class Enough:
    """When a run has been measured long enough: its median is known, its time is spent, or it is certain to lose.

        enough = Enough(recipe, gbs=16)
        enough.after(0.52, gbs=16)          "" to go on, else the reason in a word: known, time, slow

    Rank 0 asks after every iteration. What it decides reaches the other ranks with the next iteration's own sum, so one more is
    run; it counts like the others.
    """

    def __init__(self, recipe: Recipe, *, gbs: int):
        self.recipe, self.gbs = recipe, gbs
        self.asked = recipe.known_to > 0 or recipe.measure_s is not None or recipe.slow_s is not None
        self.reason = ""
        self.spent_s = 0.0
        self._size = 0
        self._timings: list[float] = []
        self._next_look = 6

    def after(self, seconds: float, *, gbs: int) -> str:
        if self.asked:
            self.reason = self._reason(seconds, gbs)
        return self.reason

    def _reason(self, seconds: float, gbs: int) -> str:
        """A smaller batch (ramp-up) is another measurement: it is neither mixed in nor stopped at."""
        self.spent_s += seconds
        if gbs != self._size:
            self._size, self._timings, self._next_look = gbs, [], 6
        self._timings.append(seconds)
        timed = self._timings[self.recipe.warmup_iterations :]
        if self.recipe.measure_s is not None and self.spent_s >= self.recipe.measure_s and timed and gbs == self.gbs:
            return "time"
        if gbs < self.gbs:
            return ""
        if self.recipe.slow_s is not None and len(timed) >= FIRST_LOOKS and min(timed) > self.recipe.slow_s:
            return "slow"
        if self.recipe.known_to and len(timed) >= self._next_look:
            # Looking after every iteration would sooner or later find a narrow interval by luck.
            self._next_look = len(timed) * 4 // 3 + 1
            if median_of(timed).within(self.recipe.known_to):
                return "known"
        return ""


@contextlib.contextmanager
def _stopping(engine: Engine) -> Iterator[None]:
    """SIGTERM becomes a wish, which the step's own sum carries to all ranks: they hear of it at different moments."""

    def ask(_number: int, _frame: object) -> None:
        engine.stop_asked = True

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
