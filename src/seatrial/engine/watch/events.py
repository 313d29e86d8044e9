"""What a run says: one JSON object a line in `events.jsonl`, and the iteration line that existing parsers read.

    events = EventWriter(Path("out/events.jsonl"))
    events.write("iteration", step=3, loss=2.5)         {"event": "iteration", "time": …, "step": 3, "loss": 2.5}
    iteration_line(step=3, steps=10, …)                 " iteration        3/      10 | consumed samples: …"

Rank 0 writes what all ranks gathered; another rank writes only when it fails, into a file of its own (`for_rank`).
"""
from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from seatrial.files import naming

SCHEMA = 1
FILE_NAME = "events.jsonl"


def rank_file_name(rank: int) -> str:
    """Where a rank other than 0 reports its own failure."""
    return FILE_NAME if rank == 0 else f"events.rank{rank}.jsonl"


class EventWriter:
    """Appends events to a file, each flushed at once: a rank that dies next has still said it. `None` says nothing."""

    def __init__(self, path: Path | str | None):
        self.path = None if path is None else Path(path)
        self._file: IO[str] | None = None

    def write(self, kind: str, **fields: object) -> None:
        if self.path is None:
            return
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Line by line in append mode: a resumed run continues the file, and readers never see half an object.
            self._file = self.path.open("a", encoding="utf-8")
        event = {"event": kind, "time": round(time.time(), 6), **fields}
        with naming(self.path):
            self._file.write(json.dumps(_finite(event), ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n")
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _finite(value: object) -> object:
    """JSON has no NaN: a loss that is not finite is written as its name, so that a reader cannot take it for a number."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def read_events(path: Path | str) -> list[dict]:
    """All whole events of a file; a last line that a dying rank did not finish is left out."""
    return list(iter_events(path))


def iter_events(path: Path | str, *, after: int = 0) -> Iterator[dict]:
    """The same one by one; those behind the first `after` bytes, which were there before a run was resumed."""
    with open(path, "rb") as file:
        file.seek(after)
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def iteration_line(
    *,
    step: int,
    steps: int,
    consumed_samples: int,
    consumed_tokens: int,
    sec_per_it: float,
    lr: float,
    gbs: int,
    loss: float | None,
    tflops: float,
    loss_scale: float | None = None,
    grad_norm: float | None = None,
    num_zeros: float | None = None,
    params_norm: float | None = None,
    skipped: int = 0,
    nan: int = 0,
) -> str:
    """One iteration in the words and widths of the training logs, so that what reads them reads ours.

    `loss` is left out when every iteration since the last line was skipped, `loss_scale` when the precision has none.
    """
    parts = [
        f" iteration {step:8d}/{steps:8d}",
        f"consumed samples: {consumed_samples:12d}",
        f"consumed tokens: {consumed_tokens:12d}",
        f"elapsed time per iteration (s): {sec_per_it:.2f}",
        f"learning rate: {lr:.3E}",
        f"global batch size: {gbs:5d}",
    ]
    if loss is not None and loss > 0:
        parts.append(f"lm loss: {loss:.6E}")
    if loss_scale is not None:
        parts.append(f"loss scale: {loss_scale:.1f}")
    if grad_norm is not None:
        parts.append(f"grad norm: {grad_norm:.3f}")
    if num_zeros is not None:
        parts.append(f"num zeros: {num_zeros:.1f}")
    if params_norm is not None:
        parts.append(f"params norm: {params_norm:.3f}")
    parts += [
        f"number of skipped iterations: {skipped:3d}",
        f"number of nan iterations: {nan:3d}",
        f"samples per second: {gbs / sec_per_it if sec_per_it > 0 else 0.0:.3f}",
        f"TFLOPs: {tflops:.2f}",
    ]
    return " | ".join(parts) + " |"
