"""A search in words and as one JSON document.

    print(line(step, label, width))                           after each trial
    found = document(tuner, ended, trials, spent)       what --json prints
    print(closing(found))                               the same for people
"""
from __future__ import annotations

from typing import Any

from seatrial.terminal import plain_table
from seatrial.tune.candidates import knobs, label
from seatrial.tune.posterior import By
from seatrial.tune.search import Ended, Spent, Step
from seatrial.tune.tuner import Expected, Standing, Tuner

WHY: dict[str, str] = {
    "settled": "settled", "trials": "the budget of trials is spent", "seconds": "the budget of time is spent",
    "device-hours": "the budget of device-hours is spent", "nothing left": "every candidate was tried",
}


def digits(value: float, count: int = 4) -> str:
    """So many significant digits, never as a power of ten: 3535, 0.5037, 12,950."""
    return f"{float(f'{value:.{count}g}'):,.10g}"


def percent(share: float) -> str:
    if 0 < share < 0.01:
        return "under 1 %"
    return f"{100 * share:.0f} %"


def names(tuner: Tuner) -> dict[str, dict[str, str]]:
    """Run id -> what sets the candidate apart."""
    return dict(zip((trial.run_id() for trial in tuner.trials), tuner.named or knobs(tuner.trials)))


def line(step: Step, named: str, width: int) -> str:
    record, status = step.record, step.record.outcome.status if step.record.outcome else "ok"
    if record.sec_per_it is not None and status == "ok":
        f = step.forecast
        came = f"{digits(record.sec_per_it)} s/it, forecast {digits(f.sec_per_it)} ({digits(f.low_s, 3)}-{digits(f.high_s, 3)})"
    else:
        came = record.outcome.message if record.outcome is not None else ""
    return f"{step.number:3d}  {status:<10} {named:<{width}}  {came}; {stands(step)}"


def relearned(factor: float) -> str:
    """After the first trial that lies far outside what was forecast of it."""
    off = f"{digits(factor, 2)} times" if factor >= 1 else f"1/{digits(1 / factor, 2)} of"
    return f"     far outside the forecasts ({off} what they say): learned anew from what was measured, with more doubt"


def stands(step: Step) -> str:
    s = step.standing
    if s.best is None:
        return "nothing ran so far"
    ran = step.record.outcome is None or step.record.outcome.status == "ok"
    mine = "best so far" if s.best.run_id() == step.trial.run_id() else "not the best" if ran else "the best stays"
    return f"{mine}, odds of better {percent(s.odds)}"


def standing_line(s: Standing, named: dict[str, dict[str, str]], by: By = "time") -> str:
    """For the live page."""
    if s.best is None or s.best_s is None:
        return "nothing ran so far"
    which = "best by cost" if by == "cost" else "best"
    return f"{which} {label(named[s.best.run_id()])} at {digits(s.best_s)} s/it, odds of better {percent(s.odds)}"


def trial_entry(step: Step, named: dict[str, str]) -> dict[str, Any]:
    record = step.record
    status = record.outcome.status if record.outcome is not None else "ok"
    where = {"source": f"{record.source_file}:{record.source_line}"} if record.source_file else {}
    message = {"message": record.outcome.message} if record.outcome is not None and record.outcome.message else {}
    return {"number": step.number, "run_id": step.trial.run_id(), **named, "status": status, **message, **where,
            "sec_per_it": record.sec_per_it if status == "ok" else None, "mem_gib": record.mem_gib,
            "forecast": _expected(step.forecast), "best_run_id": step.standing.best.run_id() if step.standing.best else None,
            "odds_of_better": round(step.standing.odds, 4)}


def document(tuner: Tuner, ended: Ended | str, trials: list[dict[str, Any]], spent: Spent, *, top: int = 5) -> dict[str, Any]:
    named, s = names(tuner), tuner.standing()
    return {
        "ended": ended, "settled": s.settled, "candidates": len(tuner.trials), "left": s.left, "margin": s.margin,
        "sure": tuner.sure, "by": tuner.by, "odds_of_better": round(s.odds, 4), "best": _best(s, named),
        "fastest": _fastest(tuner, named),
        "spent": {"trials": spent.trials, "seconds": round(spent.seconds, 1), "device_hours": round(spent.device_hours, 4)},
        "trials": trials,
        "expected": [{**named[e.trial.run_id()], "run_id": e.trial.run_id(), **_expected(e)} for e in tuner.expected(top)],
        "calibration": tuner.view.seen.fit.describe(), "relearned": s.relearned,
    }


def _best(s: Standing, named: dict[str, dict[str, str]]) -> dict[str, Any] | None:
    if s.best is None or s.best_s is None:
        return None
    return {**named[s.best.run_id()], "run_id": s.best.run_id(), "sec_per_it": s.best_s,
            "ms_per_sample": 1000 * s.best_s / s.best.batch.gbs,
            "device_s_per_sample": s.best_s * s.best.topology.world / s.best.batch.gbs}


def _fastest(tuner: Tuner, named: dict[str, dict[str, str]]) -> dict[str, Any] | None:
    """Of all measurements the one with the most samples per second: what a table of them has in bold."""
    seen = [(one.sec_per_it, tuner.trials[i]) for i, several in tuner.observations.items() for one in several
            if one.sec_per_it is not None]
    if not seen:
        return None
    seconds, trial = min(seen, key=lambda pair: pair[0] / pair[1].batch.gbs)
    return {**named[trial.run_id()], "run_id": trial.run_id(), "sec_per_it": seconds,
            "ms_per_sample": 1000 * seconds / trial.batch.gbs}


def _expected(e: Expected) -> dict[str, Any]:
    return {"sec_per_it": round(e.sec_per_it, 6), "sec_lo": round(e.low_s, 6), "sec_hi": round(e.high_s, 6),
            "runs": round(e.ok, 4), "chance_of_best": round(e.best, 4), "measured": e.measured}


def closing(found: dict[str, Any]) -> str:
    """The answer, and what is left of the doubt."""
    spent, best = found["spent"], found["best"]
    took = f"{spent['trials']} of {found['candidates']} candidates tried"
    if spent["seconds"]:
        took += f" in {spent['seconds']:.0f} s ({spent['device_hours']:.3g} device-hours)"
    lines = [f"\n{took}: {WHY.get(found['ended'], found['ended'])}."]
    if best is None:
        return "\n".join([*lines, "No trial ran to its end: there is no best."])
    own = {k: v for k, v in best.items() if k not in ("run_id", "sec_per_it", "ms_per_sample", "device_s_per_sample")}
    each = (f"{digits(best['ms_per_sample'])} ms per sample" if found["by"] == "time" else
            f"{digits(best['device_s_per_sample'])} device-seconds per sample")
    by_cost = " by device-seconds per sample" if found["by"] == "cost" else ""
    lines.append(f"Best{by_cost}: {label(own)}, {digits(best['sec_per_it'])} s/it, {each}.")
    if (fastest := found["fastest"])["run_id"] != best["run_id"]:
        why = "costs more" if by_cost else "believed no better, by what all trials together say of it"
        lines.append(f"Fastest as measured, so in bold in a table: {label({k: fastest[k] for k in own})}, "
                     f"{digits(fastest['sec_per_it'])} s/it, {digits(fastest['ms_per_sample'])} ms per sample; {why}.")
    if found["relearned"] is not None:
        lines.append(f"Measurements are {digits(found['relearned'], 2)} times the cold forecasts, which were learned anew from "
                     "them.")
    lines.append(f"Odds that one of the {found['left']} left is more than {100 * found['margin']:.2g} % better: "
                 f"{percent(found['odds_of_better'])}.")
    rows = []
    for e in found["expected"]:
        own = {k: e[k] for k in own}
        rows.append((label(own), digits(e["sec_per_it"]), f"{digits(e['sec_lo'], 3)}-{digits(e['sec_hi'], 3)}",
                     percent(e["runs"]), percent(e["chance_of_best"]), "yes" if e["measured"] else ""))
    head = ("as it looks now", "s/it", "90 %", "runs", "is the best", "measured")
    return "\n".join([*lines, "", plain_table(head, rows, left=(0,))])
