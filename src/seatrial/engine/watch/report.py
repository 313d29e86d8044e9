"""What rank 0 tells of a run: events, iteration lines, traces and scalars, out of what all ranks gathered.

    report = Report(run, rank=0, device=device)
    report.start(step=0, backend="gloo")
    report.iteration(step=3, result=…, seconds=0.1, taken=timers.take(), consumed_samples=48)
    report.end("finished", step=10)

Every rank calls every method (there are collectives inside); rank 0 writes. Between log lines nothing is exchanged.
"""
from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from seatrial import arith, fields
from seatrial.engine.core.comm import gather_json
from seatrial.engine.core.experts import Balance
from seatrial.engine.runfile import RunFile
from seatrial.engine.watch import events, memory
from seatrial.engine.watch.timers import Span, Timers


class Result(Protocol):
    """One step, as `step.StepResult` has it."""

    @property
    def loss(self) -> float: ...
    @property
    def grad_norm(self) -> float: ...
    @property
    def lr(self) -> float: ...
    @property
    def gbs(self) -> int: ...
    @property
    def loss_scale(self) -> float: ...
    @property
    def skipped(self) -> bool: ...
    @property
    def balance(self) -> Balance | None: ...


class Report:
    def __init__(self, run: RunFile, *, rank: int, device: torch.device, label: str = "",
                 say: Callable[[str], None] = lambda line: print(line, flush=True)):
        self.run, self.rank, self.device, self.label, self.say = run, rank, device, label, say
        self.out = Path(run.out)
        is_root = rank == 0
        self.events = events.EventWriter(self.out / events.FILE_NAME if is_root else None)
        self.scalars = Scalars(self.out / "tensorboard" if is_root and run.recipe.tensorboard else None)
        self.skipped = self.nan = 0
        """Since the last line, as the line prints them."""
        self._seconds: list[float] = []
        self._taken: dict[str, float] = {}
        self._pairs = 0

    def start(self, *, step: int, backend: str) -> None:
        trial = self.run.trial
        self.events.write("start", schema=events.SCHEMA, run_id=self.run.run_id, step=step, world=trial.topology.world,
                          device=self._device_name(), backend=backend, torch=torch.__version__,
                          python=platform.python_version(), host=platform.node(), threads=torch.get_num_threads(),
                          trial=trial.to_dict(),
                          recipe=fields.plain(self.run.recipe))
        if self.run.recipe.tensorboard and self.rank == 0 and not self.scalars.available:
            self.events.write("note", message="recipe.tensorboard is set, but TensorBoard is not installed here")

    def kernels(self, config: Mapping[str, object], notes: dict[str, str]) -> None:
        """What all ranks compute with, why, and which kernels of rank 0's device fell back to plain torch."""
        self.events.write("kernels", config=dict(config), compile=self.run.trial.execution.compile)
        for name, note in notes.items():
            if not name.startswith("kernel ") or "plain torch is used" in note:
                self.events.write("note", message=f"{name}: {note}")

    def _device_name(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.processor() or "cpu"

    def iteration(self, *, step: int, result: Result, seconds: float, taken: dict[str, float], consumed_samples: int,
                  nan_here: bool = False, pairs: int = 0) -> None:
        """`pairs`: of queries and keys that this rank attended, where documents are packed."""
        recipe, model, topology = self.run.recipe, self.run.trial.model, self.run.trial.topology
        self._seconds.append(seconds)
        self._pairs += pairs
        for name, value in taken.items():
            self._taken[name] = self._taken.get(name, 0.0) + value
        is_nan = not math.isfinite(result.loss)
        self.skipped, self.nan = self.skipped + (result.skipped and not is_nan), self.nan + is_nan
        event: dict[str, Any] = {
            "step": step, "loss": result.loss, "grad_norm": result.grad_norm, "lr": result.lr, "gbs": result.gbs,
            "sec": seconds, "consumed_samples": consumed_samples, "consumed_tokens": consumed_samples * model.seq,
            "skipped": result.skipped,
        }  # fmt: skip
        if topology.precision == "fp16":
            event["loss_scale"] = result.loss_scale
        if result.balance is not None:
            event["balance"] = asdict(result.balance)
        logs = step % recipe.log_every == 0 or step == recipe.steps
        if logs or is_nan:
            count = len(self._seconds)
            mine = {"timers": {n: round(v / count, 7) for n, v in self._taken.items()},
                    "sec": round(sum(self._seconds) / count, 7), "nan": nan_here, "pairs": self._pairs // count}
            every = gather_json(mine, self.device)
            if every is not None:
                names = dict.fromkeys(n for r in every for n in r["timers"])
                event["timers"] = {n: sum(r["timers"].get(n, 0.0) for r in every) / len(every) for n in names}
                event["ranks"] = [{"sec": r["sec"], **r["timers"]} for r in every]
                if self._pairs:
                    attended = [r["pairs"] for r in every]
                    mean = sum(attended) / len(attended)
                    event["attended_pairs"] = {"min": min(attended), "mean": mean, "max": max(attended)}
                if is_nan:
                    event["nan_ranks"] = [rank for rank, r in enumerate(every) if r["nan"]]
        if self.rank == 0:
            mean_s = sum(self._seconds) / len(self._seconds)
            event["formula"] = arith.FORMULA
            event["tflops"] = arith.tflops(event["formula"], model, samples=result.gbs, sec_per_it=mean_s,
                                           processes=topology.world, recompute=topology.recompute, tp=topology.tp,
                                           pp=topology.pp)
            self.events.write("iteration", **event)
            self.scalars.write(step, {name: event[name] for name in ("loss", "grad_norm", "lr", "sec", "tflops")})
            if logs:
                self.say(events.iteration_line(
                    step=step, steps=recipe.steps, consumed_samples=consumed_samples,
                    consumed_tokens=consumed_samples * model.seq, sec_per_it=mean_s, lr=result.lr, gbs=result.gbs,
                    loss=None if is_nan else result.loss, grad_norm=result.grad_norm,
                    loss_scale=result.loss_scale if topology.precision == "fp16" else None, tflops=event["tflops"],
                    skipped=self.skipped, nan=self.nan))
        if logs:
            self._seconds, self._taken, self._pairs, self.skipped, self.nan = [], {}, 0, 0, 0

    def memory(self, *, step: int, parts: dict[str, int]) -> None:
        """Peaks of all ranks; `mem_gib` is the fullest one's."""
        every = gather_json({**memory.peaks(self.device), "parts": parts}, self.device)
        if every is None:
            return
        fullest = max(range(len(every)), key=lambda r: memory.used_gib(every[r]))
        self.events.write("memory", step=step, mem_gib=memory.used_gib(every[fullest]), rank=fullest, fullest=every[fullest],
                          ranks=every)

    def trace(self, *, step: int, origin_s: float, timers: Timers) -> None:
        """The spans that the timers kept of this step, from every rank into one file."""
        mine = {"origin_s": origin_s, "label": self.label, "spans": [list(s) for s in timers.spans]}
        every = gather_json(mine, self.device)
        if every is not None:
            ranks = [RankSpans(rank=rank, origin_s=r["origin_s"], label=r["label"], spans=[Span(*s) for s in r["spans"]])
                     for rank, r in enumerate(every)]
            write_trace(self.out / f"trace.step{step}.json", step=step, ranks=ranks)

    def validation(self, *, step: int, loss: float, samples: int) -> None:
        self.events.write("validation", step=step, loss=loss, samples=samples)
        self.scalars.write(step, {"validation_loss": loss})
        if self.rank == 0:
            self.say(f" validation loss at iteration {step} | lm loss value: {loss:.6E} | samples: {samples} |")

    def checkpoint(self, *, step: int, seconds: float) -> None:
        """A save has begun; `seconds` is what training waited for it."""
        self.events.write("checkpoint", step=step, wait_s=seconds)

    def enough(self, *, step: int, reason: str) -> None:
        """Rank 0 has measured enough (`loop.Enough`); the next step tells the others."""
        self.events.write("enough", step=step, reason=reason)

    def end(self, status: str, *, step: int) -> None:
        self.events.write("end", status=status, step=step, at=round(time.time(), 3))
        self.scalars.close()
        self.events.close()


@dataclass(frozen=True, kw_only=True)
class RankSpans:
    """What the timers of one rank did when in one iteration."""

    rank: int
    origin_s: float
    """Wall clock when the spans' own clock was zero."""
    spans: Sequence[Span]
    label: str = ""


def write_trace(path: Path, *, step: int, ranks: Iterable[RankSpans]) -> None:
    """A Chrome trace, which Perfetto opens: one process a rank, so that bubbles and waits stand under each other."""
    every = sorted(ranks, key=lambda r: r.rank)
    start = min((r.origin_s for r in every), default=0.0)
    events: list[dict[str, object]] = []
    for r in every:
        events.append({"ph": "M", "name": "process_name", "pid": r.rank, "args": {"name": f"rank {r.rank} {r.label}".strip()}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": r.rank, "args": {"sort_index": r.rank}})
        for span in r.spans:
            events.append({"ph": "X", "name": span.name, "cat": "timer", "pid": r.rank, "tid": 0,
                           "ts": round((r.origin_s - start + span.start_s) * 1e6, 3),
                           "dur": round((span.end_s - span.start_s) * 1e6, 3)})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "metadata": {"step": step}}))


class Scalars:
    """TensorBoard scalars, when TensorBoard is installed; silence otherwise."""

    def __init__(self, folder: Path | None):
        """`None`, or no TensorBoard here: every call does nothing, and `available` says so."""
        self._writer: Any = None
        if folder is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            self._writer = SummaryWriter(str(folder))

    @property
    def available(self) -> bool:
        return self._writer is not None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
