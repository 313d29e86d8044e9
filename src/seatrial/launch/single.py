"""One trial now: `run_trial` with what `seatrial run` and `train` print of it.

    run(trial, training, out=Path("out"), timeout_s=600)      {"status": "ok", "losses": […], "sec_per_it": …, …}

The summary is plain data with the same keys whatever happened: what was measured before a failure is kept.
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seatrial import fields
from seatrial.engines import engine_for
from seatrial.engines.base import Event
from seatrial.errors import BadInput
from seatrial.launch import files
from seatrial.launch.base import Launcher
from seatrial.launch.local import Local
from seatrial.launch.outcome import Fits
from seatrial.launch.trial import Limits, attempt
from seatrial.measurement import FORMULA, measure
from seatrial.record import Record
from seatrial.spec import Trial
from seatrial.training import Training


def run(trial: Trial, training: Training, *, out: Path, timeout_s: float, on_line: Callable[[str], None] | None = None,
        launcher: Launcher | None = None, fits: Fits | None = None) -> dict[str, Any]:
    """Raises BadInput for what cannot start; everything later is in the summary. On this machine unless told otherwise."""
    if (out / files.EVENTS).exists() and not training.resume:
        # A checkpoint to resume from is the better thing to say.
        engine_for(trial).check(trial, training, here=launcher is None or launcher.here)
        raise BadInput(f"{out / files.EVENTS}: is already there; name another folder with --out")
    earlier = len(engine_for(trial).events(out)) if training.resume else 0
    own = None if launcher is not None else Local()
    try:
        record = attempt(trial, training, launcher or own or Local(), out, limits=Limits(time_limit_s=timeout_s),
                         on_line=on_line, fits=fits)
    finally:
        if own is not None:
            own.close()
    return summary(trial, record, training, engine_for(trial).events(out)[earlier:], out=out)


def summary(trial: Trial, record: Record, training: Training, said: list[Event], *, out: Path) -> dict[str, Any]:
    assert record.outcome is not None
    got, outcome = measure(said, trial, training), record.outcome
    found: dict[str, Any] = {
        "status": outcome.status, "run_id": record.run_id,
        "losses": [i.get("loss") for i in got.iterations], "grad_norms": [i.get("grad_norm") for i in got.iterations],
        "sec_per_it": record.sec_per_it, "tflops": record.tflops, "formula": FORMULA, "tflops_per": "process",
        "mem_gib": got.memory.get("mem_gib"), "memory": got.memory.get("fullest", {}), "breakdown": record.breakdown,
        "events": str(out / files.EVENTS),
        "iterations": [{k: i[k] for k in ("step", "sec") if k in i} for i in got.iterations],
        "validation": [{"step": e["step"], "loss": e["loss"]} for e in said if e["event"] == "validation"],
        "checkpoints": [e["step"] for e in said if e["event"] == "checkpoint"],
    }  # fmt: skip
    if outcome.status != "ok":
        found |= {"message": outcome.message, "rank": outcome.rank, "iteration": outcome.iteration, "phase": outcome.phase,
                  "evidence": fields.plain(outcome.evidence)}
    return found


def invalid(error: BadInput) -> dict[str, Any]:
    """The summary of what never started."""
    return {"status": "invalid", "losses": [], "grad_norms": [], "sec_per_it": None, "tflops": None, "formula": FORMULA,
            "mem_gib": None, "breakdown": {}, "events": None, "message": str(error), "rank": None}
