"""One trial on this machine, from words to a summary: check, write run.json, start the ranks, judge, add up.

    run(trial, training, out=Path("out"), timeout_s=600)      {"status": "ok", "losses": […], "sec_per_it": …, …}

The summary is plain data with the same keys whatever happened: what was measured before a failure is kept.
"""
from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seatrial import arith, fields
from seatrial.engine import events, runfile, watch
from seatrial.errors import BadInput
from seatrial.launch import environment, local, preflight
from seatrial.launch.outcome import judge, read_all
from seatrial.record import Outcome
from seatrial.spec import Trial
from seatrial.training import Training

FORMULA = "sc21"
"""That of the iteration line, so that one run prints one number."""
RUN_FILE = "run.json"


def run(trial: Trial, training: Training, *, out: Path, timeout_s: float, env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None, python: str = sys.executable) -> dict[str, Any]:
    """Raises BadInput for what cannot start; everything later is in the summary."""
    preflight.check(trial, training)
    if (out / events.FILE_NAME).exists() and not training.resume:
        raise BadInput(f"{out / events.FILE_NAME}: is already there; name another folder with --out")
    runfile.write(runfile.RunFile(trial=environment.public(trial), training=training, out=str(out)), out / RUN_FILE)
    watch.clear(out)
    for stale in out.glob("events.rank*.jsonl"):
        stale.unlink()
    began = len(read_all(out))
    finished = local.launch([python, "-m", "seatrial.engine", str(out / RUN_FILE)], world=trial.topology.world, out=out,
                            timeout_s=timeout_s, env=env, threads=training.threads, on_line=on_line)
    said = read_all(out)[began:]
    return summary(trial, training, judge(out, finished, trial=trial, said=said), said, out=out)


def summary(trial: Trial, training: Training, outcome: Outcome, said: list[dict[str, Any]], *, out: Path) -> dict[str, Any]:
    iterations = [e for e in said if e["event"] == "iteration"]
    timed = iterations[training.warmup_iterations :] or iterations
    sec_per_it = statistics.median(e["sec"] for e in timed) if timed else None
    memory: dict[str, Any] = next((e for e in reversed(said) if e["event"] == "memory"), {})
    found: dict[str, Any] = {
        "status": outcome.status, "run_id": trial.run_id(),
        "losses": [e["loss"] for e in iterations], "grad_norms": [e["grad_norm"] for e in iterations],
        "sec_per_it": sec_per_it, "tflops": None, "formula": FORMULA, "tflops_per": "process",
        "mem_gib": memory.get("mem_gib"), "memory": memory.get("fullest", {}),
        "breakdown": _mean([e["timers"] for e in timed if "timers" in e]), "events": str(out / events.FILE_NAME),
        "iterations": [{"step": e["step"], "sec": e["sec"]} for e in iterations],
        "validation": [{"step": e["step"], "loss": e["loss"]} for e in said if e["event"] == "validation"],
        "checkpoints": [e["step"] for e in said if e["event"] == "checkpoint"],
    }  # fmt: skip
    if sec_per_it:
        t = trial.topology
        samples = statistics.median(e["gbs"] for e in timed)
        found["tflops"] = arith.tflops(FORMULA, trial.model, samples=samples, sec_per_it=sec_per_it, processes=t.world,
                                       recompute=t.recompute, tp=t.tp, pp=t.pp)
    if outcome.status != "ok":
        found |= {"message": outcome.message, "rank": outcome.rank, "iteration": outcome.iteration, "phase": outcome.phase,
                  "evidence": fields.plain(outcome.evidence)}
    return found


def invalid(error: BadInput) -> dict[str, Any]:
    """The summary of what never started."""
    return {"status": "invalid", "losses": [], "grad_norms": [], "sec_per_it": None, "tflops": None, "formula": FORMULA,
            "mem_gib": None, "breakdown": {}, "events": None, "message": str(error), "rank": None}


def _mean(tables: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: sum(t.get(name, 0.0) for t in tables) / len(tables) for name in names}
