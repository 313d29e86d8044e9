"""A search as one JSON document; `tell.py` makes it a page of text.

    document = answer(found, request, top=5, by="time")
    document["candidates"][0]["dp"], document["considered"], document["rejected"]

`tie` is true for all who cannot be told from the first (within 1 %), the first included when it has company.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from seatrial import arith, rules
from seatrial.arith import TIE
from seatrial.columns import DEGREES
from seatrial.plan import cost, memory, step
from seatrial.plan.calibrate import Calibration
from seatrial.plan.configs import Configs, decoded
from seatrial.plan.nearest import Way
from seatrial.plan.odds import limit_gib, percent, word
from seatrial.plan.reasons import reasons
from seatrial.plan.request import Request
from seatrial.plan.rows import Row
from seatrial.plan.search import By, Found, configs_of, learned
from seatrial.plan.space import not_searched
from seatrial.spec import GIB, Batch, Topology, Trial

Document = dict[str, Any]

Key = tuple[tuple[int, ...], Topology, int, int]


@dataclass(frozen=True)
class Measured:
    """What was measured of a layout: rows whose model, topology, batch and nodes are the same."""

    by_layout: dict[Key, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Measured:
        """Only rows that count: measured, no estimate, no copy of another."""
        found: dict[Key, list[float]] = {}
        for row in rows:
            if row.counts and row.trial is not None and row.sec_per_it is not None:
                found.setdefault(_key(row.trial), []).append(row.sec_per_it)
        return cls(found)

    def seconds(self, trial: Trial) -> tuple[float, ...]:
        """Oldest row first; nothing where nobody ran it."""
        return tuple(self.by_layout.get(_key(trial), ()))


def _key(trial: Trial) -> Key:
    m = trial.model
    shape = (m.layers, m.hidden, m.heads, m.kv, m.inner, m.seq, m.vocab, *(value or 0 for value in (
        m.experts, m.chosen, m.expert_inner, m.shared)))
    return shape, trial.topology, trial.batch.gbs, trial.cluster.nodes if trial.cluster is not None else 0


def answer(found: Found, request: Request, *, top: int, by: By, tokens: float | None = None, price: float | None = None,
           fit: Calibration | None = None, ways: list[Way] | None = None, known: Measured = Measured()) -> Document:
    cluster, several = request.cluster, len(found.space.models) > 1
    price = price if price is not None else cluster.price_per_device_hour
    coefficients = learned(fit)
    shown = min(top, len(found))
    priced = [] if tokens is None else sorted({*range(shown), 0, min(found.ties, len(found) - 1)} if len(found) else set())
    runs = {i: _run(found, i, request, tokens, price, coefficients) for i in priced if tokens is not None}
    parts = _parts(found, shown, coefficients)
    candidates = [{**_candidate(found, i, several), "parts_s": parts[i],
                   "measured_s": list(known.seconds(found.trial(i))),
                   **_cost(runs.get(i), found.normal(i) if several else None)} for i in range(shown)]  # fmt: skip
    document: Document = {
        "considered": found.considered,
        "rejected": dict(sorted(found.rejected.items(), key=lambda item: -item[1])),
        "accepted": found.accepted,
        "candidates": candidates,
        "ties": found.ties,
        "tie_within": TIE,
        "runner_up": _runner_up(found, runs),
        "reasons": reasons(found, fit),
        "by": by,
        "engine": found.space.facts.name,
        "attention": found.space.execution.attention or found.space.facts.attention_on(cluster.device),
        "not_searched": not_searched(request.space, found.precision),
        "mem_limit_gib": round(limit_gib(cluster, found.space.headroom), 3),
        "model": request.model.name or None,
        "cluster": cluster.name,
        "precision": found.precision,
        "tflops_formula": found.formula,
    }
    if request.model.mixture and not several:
        size = arith.parameters(request.model)
        document |= {"parameters": size.total, "active_parameters": size.active, "mtp_parameters": size.mtp}
    if fit is not None:
        document["calibration"] = fit.describe()
    if not candidates:
        document["nearest"] = [{"freed": way.freed, **_candidate(way.found, way.index, False)} for way in ways or []]
        document["reason"] = reason(found)
    return document


def _candidate(found: Found, i: int, several: bool) -> dict[str, Any]:
    c = {name: int(column[i]) for name, column in found.ranked.items()}
    trial = found.trial(i)
    shape = {"layers": trial.model.layers, "hidden": trial.model.hidden, "heads": trial.model.heads,
             "parameters": arith.parameters(trial.model).total,
             "sec_normalised": round(float(found.sec[i]) * found.normal(i), 6)} if several else {}
    if not trial.model.mixture:
        c = {name: value for name, value in c.items() if name not in ("ep", "etp")}
    return {
        **shape,
        **decoded(c) | ({"stage_layers": trial.topology.stages_said} if trial.topology.stage_layers else {}),
        "nodes": c["nodes"],
        "microbatches": trial.microbatches,
        "sec_per_it": round(float(found.sec[i]), 6),
        "sec_lo": round(float(found.lo[i]), 6),
        "sec_hi": round(float(found.hi[i]), 6),
        "mem_gib": round(float(found.mem_gib[i]), 3),
        "fits": word(float(found.odds[i])),
        "fit_odds": round(float(found.odds[i]), 4),
        "tflops": round(found.tflops(i), 3),
        **_rates(trial, float(found.sec[i])),
        "tie": found.ties > 1 and i < found.ties,
        "worse_by": round(found.excess(i), 6),
        "warnings": [violation.code for violation in rules.violations(trial) if violation.level == "warning"],
    }


def _rates(trial: Trial, sec: float) -> dict[str, float | None]:
    """What other teams' tables are compared by."""
    assert trial.cluster is not None
    t, peak = trial.topology, trial.cluster.device.peak_tflops.get(trial.topology.precision)
    found = arith.rates("model", trial.model, samples=trial.batch.gbs, sec_per_it=sec, processes=t.world, tp=t.tp, pp=t.pp,
                        peak_tflops=peak)
    return {"tokens_per_s_per_process": round(found.tokens_per_s / t.world, 3),
            "mfu": None if found.mfu is None else round(found.mfu, 5)}


def _parts(found: Found, count: int, coefficients: step.Coefficients) -> list[dict[str, float]]:
    """What the seconds of each of the first `count` are made of."""
    if not count:
        return []
    first = {name: column[:count] for name, column in found.ranked.items()}
    timed = step.time(configs_of(first, found.space, found.precision), found.space.cluster, coefficients)
    return [{name: round(float(values[i]), 6) for name, values in timed.parts.items()} for i in range(count)]


def _run(found: Found, i: int, request: Request, tokens: float, price: float | None,
         coefficients: step.Coefficients) -> cost.WholeRun:
    trial = found.trial(i)
    ramp = request.batch if trial.batch.gbs == request.batch.gbs else trial.batch
    return whole_run(trial, ramp, tokens=tokens, price=price, coefficients=coefficients)


def whole_run(trial: Trial, ramp: Batch, *, tokens: float, price: float | None,
              coefficients: step.Coefficients = step.COLD) -> cost.WholeRun:
    """Each size of the ramp-up is forecast for itself: a small batch has more bubble."""
    assert trial.cluster is not None
    sizes = sorted({size for _, size in cost.ramp_stages(ramp)} | {ramp.gbs})
    configs = Configs.from_trials([replace(trial, batch=Batch(gbs=size, documents=trial.batch.documents)) for size in sizes])
    seconds = dict(zip(sizes, step.time(configs, trial.cluster, coefficients).sec.tolist()))
    return cost.whole_run(seconds.__getitem__, ramp, tokens=tokens, seq=trial.model.seq, devices=trial.world, price=price,
                          power_w=trial.cluster.device.power_w)


def _cost(run: cost.WholeRun | None, normal: float | None) -> dict[str, Any]:
    if run is None:
        return {}
    normalised = {} if normal is None else {"days_normalised": round(run.days * normal, 3)}
    return {**normalised, "iterations": run.iterations, "days": round(run.days, 3), "device_hours": round(run.device_hours, 1),
            "money": None if run.money is None else round(run.money, 2),
            "energy_mwh": None if run.energy_mwh is None else round(run.energy_mwh, 3)}


def _runner_up(found: Found, runs: dict[int, cost.WholeRun]) -> dict[str, Any] | None:
    """The first that is worse beyond doubt, and what taking it would cost."""
    i = found.ties
    if not 0 < i < len(found):
        return None
    here, there = found.normal(0), found.normal(i)
    priced: dict[str, Any] = {"rank": i + 1, "worse_by": round(found.excess(i), 6),
                              "sec_more": round(float(found.sec[i] * there - found.sec[0] * here), 6)}
    first, second = runs.get(0), runs.get(i)
    if first is not None and second is not None:
        priced["days_more"] = round(second.days * there - first.days * here, 3)
        if first.money is not None and second.money is not None:
            priced["money_more"] = round(second.money * there - first.money * here, 2)
    return priced


def reason(found: Found) -> str:
    """Why nothing is left, in one line."""
    if found.closest is not None:
        layout, gib, odds = found.closest
        limit = limit_gib(found.space.cluster, found.space.headroom)
        states = float(memory.states_gib(configs_of(layout, found.space, found.precision))[0])
        alone = f": weights, gradients and optimizer alone take {states:.1f} GiB ({states * GIB / 1e9:.0f} GB)"
        return (f"nothing fits: the lightest layout needs {gib:.1f} GiB and {found.space.cluster.device.name} has {limit:.1f} "
                f"(odds {percent(odds)}){alone if states > limit else ''}")
    if not found.considered:
        nodes = found.space.nodes or (found.space.cluster.nodes,)
        worlds = sorted({n * found.space.cluster.procs_per_node for n in nodes})
        asked = " x ".join(f"{name.upper()} {','.join(map(str, values))}" for name in (*DEGREES, "ep", "etp")
                           if (values := getattr(found.space, name)) is not None)
        there = f"{worlds[0]}" if len(worlds) == 1 else f"{worlds[0]} to {worlds[-1]}"
        product = "DP x TP x PP" + (" x CP" if found.space.cp is not None else "")
        experts = "" if found.space.ep is None and found.space.etp is None else ", and ETP x EP divide DP x CP x TP"
        return (f"no layout has {asked or 'that shape'} on {there} processes: {product} must equal nodes x processes per node"
                f"{experts}")
    most = ", ".join(f"{code} {count}" for code, count in sorted(found.rejected.items(), key=lambda item: -item[1])[:3])
    return f"all {found.considered} layouts break a rule: {most}"
