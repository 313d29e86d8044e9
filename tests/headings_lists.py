"""What our reading makes of headings that somebody composed without having read the rules, and how much of it is right.

    python tests/headings_lists.py english [-v]      {"named": 0.93, "traps": 0.95, ...}; -v: each heading that is read wrongly
"""
from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from seatrial.notes.lint.columns import named
from seatrial.notes.lint.headings import kind_beside
from seatrial.notes.lint.phases.quantities import meanings
from seatrial.notes.read import units
from seatrial.tables.headings import batch_of_tokens, rate_of_each, read_heading, settle

LISTS = Path(__file__).parent / "data" / "headings"
FIELDS = {
    "sec_per_it": "step_time", "tokens_per_s": "throughput_tokens", "tokens_per_s_per_process": "throughput_tokens",
    "samples_per_s": "throughput_samples", "tflops": "tflops", "aggr_pflops": "tflops", "mfu": "mfu", "hfu": "hfu",
    "mem_value": "memory", "gpus": "gpus", "nodes": "nodes", "procs_per_node": "gpus_per_node", "tp": "tp", "pp": "pp",
    "dp": "dp", "cp": "cp", "ep": "ep", "vp": "vp", "mbs": "mbs", "gbs": "gbs", "seq": "seq", "layers": "layers",
    "hidden": "hidden", "heads": "heads", "vocab": "vocab", "ffn": "ffn", "size_label": "params", "iteration": "steps",
    "dtype": "precision", "zero_stage": "zero", "recompute": "recompute", "schedule": "schedule", "engine": "engine",
    "outcome": "status", "state": "status", "loss": "loss", "throughput": "throughput",
}  # fmt: skip
"""A field of a record -> what the lists call it."""
BESIDE = {"shard": "dp", "replicate": "dp"}
AMOUNTS = {
    "hours": "hours", "device hours": "gpu_hours", "money": "cost", "price of a device hour": "price",
    "price of a node hour": "price", "price of an hour": "price", "energy": "energy", "energy of the site": "energy",
    "power": "power", "power of a device": "power", "power of a node": "power", "tokens": "tokens", "steps": "steps",
    "tokens of a step": "gbs_tokens", "tokens a second": "throughput_tokens", "device tokens a second": "throughput_tokens",
    "samples a second": "throughput_samples", "step seconds": "step_time",
}  # fmt: skip
NOT_HELD = frozenset({"bubble", "active_params"})
"""What no field and no law of amounts takes: it is right where it is taken for nothing else."""
NO_SCOPE = frozenset({("energy", "device"), ("memory", "total"), ("throughput_tokens", "replica")})
COUNTED = ("throughput_tokens", "throughput_samples", "steps", "seq", "gbs_tokens", "params", "tokens")
"""What is counted one by one where the heading names no unit."""
DEVICE = frozenset({"tokens_per_s_per_process", "power of a device", "price of a device hour", "device tokens a second"})
NODE = frozenset({"power of a node", "price of a node hour"})
WHOLE = frozenset({"tokens_per_s", "samples_per_s", "aggr_pflops", "power", "tokens a second"})
UNITS = {
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0, "days": 86400.0, "d": 86400.0, "steps/s": -1.0, "it/s": -1.0,
    "tokens/s": 1.0, "ktokens/s": 1e3, "Mtokens/s": 1e6, "tokens/min": 1 / 60, "Mtokens/min": 1e6 / 60, "tokens/hour": 1 / 3600,
    "tokens/day": 1 / 86400, "samples/s": 1.0, "samples/min": 1 / 60, "s/sample": -1.0, "ms/token": -1e-3, "us/token": -1e-6,
    "FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15, "EFLOP/s": 1e18,
    "GFLOPS": 1e9, "TFLOPS": 1e12, "PFLOPS": 1e15, "EFLOPS": 1e18, "FLOPS": 1.0,
    "%": 1.0, "fraction": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "1e8": 1e8, "億": 1e8,
    "kWh": 1.0, "MWh": 1e3, "J": 1 / 3.6e6,
    "W": 1e-3, "kW": 1.0, "MW": 1e3, "USD": 1.0, "EUR": 1.0, "CNY": 1.0, "BRL": 1.0, "RUB": 1.0, "KRW": 1.0, "PLN": 1.0,
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What a heading is taken for; `of` is our own word for it."""

    field: str
    of: str = ""
    unit: float | str | None = None
    """In seconds, tokens, FLOP/s, hours and so on; below zero where one over the figure is the quantity."""
    per: str = ""


def readings(heading: str) -> list[Reading]:
    """What the heading is taken for, the likeliest first; none where it is left alone."""
    column = settle([read_heading(heading)])[0]
    if column.field == "gbs" and column.per == "sequence":
        return [Reading("gbs_tokens", "gbs", UNITS.get(column.unit, 1.0))]
    if column.field in FIELDS:
        return [Reading(FIELDS[column.field], column.field, _unit(column.field, column.unit), column.per)]
    if column.field:
        return [Reading(column.field, column.field)]
    if kind := kind_beside(heading):
        return [Reading(BESIDE.get(kind, kind), kind)]
    if rate := rate_of_each(heading):
        return [Reading(FIELDS[rate.field], rate.field, _rate(rate.unit), rate.per)]
    if (unit := batch_of_tokens(heading)) is not None:
        return [Reading("gbs_tokens", "gbs", UNITS.get(unit, 1.0))]
    if meant := meanings(heading):
        return [Reading(AMOUNTS.get(kind, kind), kind, unit) for kind, unit in meant]
    shared = (named._kind(heading) or ("",))[0]
    return [Reading("speedup or efficiency", shared)] if shared == "base" else []


def _unit(field: str, unit: str) -> float | str | None:
    if field == "mem_value":
        return unit
    if field in ("tokens_per_s", "tokens_per_s_per_process", "samples_per_s"):
        return _rate(unit)
    if field in ("tflops", "aggr_pflops"):
        return UNITS[unit or ("TFLOPS" if field == "tflops" else "PFLOPS")]
    return UNITS.get(unit, 1.0)


def _rate(unit: str) -> float:
    return -1 / units.rate(1.0, unit) if units.inverts(unit) else units.rate(1.0, unit)


def is_right(said: dict[str, str | None], heading: list[Reading]) -> bool:
    """Whether field, unit and scope are what an expert says; of several readings that a heading has one must be."""
    if said["f"] == "none":
        return not any(reading.field in {*FIELDS.values(), *AMOUNTS.values()} - {"throughput"} or
                       reading.field == "speedup or efficiency" for reading in heading)  # fmt: skip
    scoped = said["f"], said["per"]
    if said["f"] in NOT_HELD or scoped in NO_SCOPE or (said["f"], said["u"]) == ("memory", "%"):
        return not any(reading.field in {*FIELDS.values(), *AMOUNTS.values()} - {"throughput"} for reading in heading)
    return any(_is(said, reading) for reading in heading)


def _is(said: dict[str, str | None], reading: Reading) -> bool:
    field, unit, per = said["f"], said["u"], said["per"]
    if reading.field == "speedup or efficiency":
        return field in ("speedup", "efficiency")
    if reading.field != ("params" if field == "model" else field):
        return False
    if unit is not None and field not in ("mfu", "hfu", "cost", "price", "efficiency"):
        if field == "memory":
            if {"bytes": "B"}.get(unit, unit) != reading.unit:
                return False
        else:
            hours = field in ("hours", "gpu_hours") and unit in ("s", "min", "h", "days")
            times = UNITS[unit] / 3600.0 if hours else UNITS[unit]
            if not isinstance(reading.unit, float) or abs(reading.unit / times - 1) > 1e-6:
                return False
    elif unit is None and field in COUNTED and reading.unit not in (None, 1.0):
        return False
    if field in ("throughput_tokens", "throughput_samples", "power", "price"):
        scope = "device" if reading.of in DEVICE else "node" if reading.of in NODE else reading.per.replace("process", "device")
        return scope == {"process": "device", "total": ""}.get(per or "", per or "") or field in ("power", "price") and not per
    if field == "tflops":
        scope = "total" if reading.of == "aggr_pflops" else {"process": "device"}.get(reading.per, reading.per)
        return scope == (per or "") or not per or per == "total" and reading.of == "aggr_pflops"
    return not (field == "memory" and (per == "node") != (reading.per == "node"))


def judged(name: str) -> tuple[dict[str, float], list[tuple[dict[str, str | None], list[Reading]]]]:
    """Of a list: how much is named right and how many traps are left alone; and what is read wrongly."""
    lines = [json.loads(line) for line in (LISTS / f"{name}.jsonl").read_text().splitlines()]
    of = {line["h"]: readings(line["h"]) for line in lines}
    wrong = [line for line in lines if not is_right(line, of[line["h"]])]
    traps = sum(line["f"] == "none" for line in lines)
    caught = sum(line["f"] == "none" for line in wrong)
    share = {"named": 1 - (len(wrong) - caught) / (len(lines) - traps), "traps": 1 - caught / traps}
    return {**share, "headings": len(lines) - traps, "all traps": traps}, [(line, of[line["h"]]) for line in wrong]


if __name__ == "__main__":
    score, wrong = judged(sys.argv[1])
    print(json.dumps(score))
    for line, found in wrong if "-v" in sys.argv else ():
        said = " ".join(filter(None, (line["f"], line["u"], line["per"], line["lang"] if line["lang"] != "en" else "")))
        read = "; ".join(f"{one.field} ({one.of}) {one.unit or ''} {one.per}" for one in found) or "-"
        print(f"{line['h']!r:60}  {said:36} {read}")
