"""A rehearsal as one JSON object, and as a record of the logbook that says of itself what it is.

    document(found, training, seconds=12.0)         plain data
    record(found, training)                         state `estimated`, never `measured`: no iteration was run
"""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from seatrial import arith, columns, fields
from seatrial.arith import footprint
from seatrial.launch import environment
from seatrial.measurement import FORMULA, digits
from seatrial.record import Outcome, Record
from seatrial.rehearse.assemble import RankTimes, Timed
from seatrial.rehearse.beside import Forecast, kind
from seatrial.rehearse.whole import Rank, Rehearsal
from seatrial.spec import GIB
from seatrial.training import Training


def document(found: Rehearsal, training: Training, *, seconds: float) -> dict[str, Any]:
    t = found.trial.topology
    forecast = Forecast.of(found.trial, found.cluster) if found.cluster is not None else None
    made: dict[str, Any] = {
        "kind": "rehearsed", "model": found.trial.model.name or None,
        "cluster": found.cluster.name if found.cluster is not None else None, "topology": fields.plain(t),
        "gbs": found.trial.batch.gbs, "microbatches": found.trial.microbatches, "world": t.world, "device": found.device,
        "threads": found.threads if found.device_type == "cpu" else None, "took_s": seconds, "notes": list(found.notes),
        "ranks": [_rank(one, found, training, forecast) for one in found.ranks],
        "iteration": None, "forecast": None,
    }  # fmt: skip
    if found.iteration is not None:
        made["iteration"] = {
            "sec_per_it": found.iteration.sec, "parts_s": found.iteration.parts,
            "busiest_pipeline_rank": found.iteration.busiest, "send_s": found.send_s,
            "charged": found.cluster is not None, "stages_taken_alike": found.assumes_alike,
            "tflops": _tflops(found), "formula": FORMULA, "tflops_per": "process",
        }  # fmt: skip
    if forecast is not None:
        made["forecast"] = {"sec_per_it": forecast.sec, "sec_lo": forecast.lo, "sec_hi": forecast.hi, "parts_s": forecast.parts,
                            "memory_gib": forecast.memory}
    return made


def _tflops(found: Rehearsal) -> float | None:
    t, iteration = found.trial.topology, found.iteration
    if iteration is None:
        return None
    return arith.tflops(FORMULA, found.trial.model, samples=found.trial.batch.gbs, sec_per_it=iteration.sec, processes=t.world,
                        recompute=t.recompute, tp=t.tp, pp=t.pp)


def _rank(one: Rank, found: Rehearsal, training: Training, forecast: Forecast | None) -> dict[str, Any]:
    memory = one.memory
    kind_of_cluster = found.cluster.device.kind if found.cluster is not None else "cpu"
    counted = footprint(found.trial, rank=one.pp_rank,
                        gpu=found.device_type == "cuda" or memory.fake and kind_of_cluster == "gpu")
    made: dict[str, Any] = {
        "rank": one.rank, "pipeline_rank": one.pp_rank, "stands_for": list(one.alike), "layers": list(one.layers),
        "has_embedding": one.has_embedding, "has_head": one.has_head, "in_flight": one.in_flight,
        "memory": {
            "peak_gib": memory.peak_bytes / GIB, "peak_bytes": memory.peak_bytes, "at_peak_bytes": memory.at_peak,
            "parts_bytes": memory.parts, "counted_bytes": {part: getattr(counted, part) for part in memory.parts},
            "by": "tensors without memory" if memory.fake else "real tensors", "microbatches_run": memory.microbatches,
            "allocated_gib": None if memory.allocated_bytes is None else memory.allocated_bytes / GIB,
            "reserved_gib": None if memory.reserved_bytes is None else memory.reserved_bytes / GIB,
        },
        "actions": None if one.times is None else _actions(one.times),
        "forecast": None,
    }  # fmt: skip
    if forecast is not None:
        at = kind(one.pp_rank, found.trial.topology.pp)
        made["forecast"] = {"forward_s": forecast.forward_s[at], "backward_s": forecast.backward_s[at],
                            "compute_s": forecast.compute_s[at], "mem_gib": forecast.by_rank_gib[at]}
    return made


def _actions(times: RankTimes) -> dict[str, Any]:
    def plain(timed: Timed) -> dict[str, Any]:
        return {"compute_s": timed.compute_s, "charged_s": timed.charged_s, "repeats_s": list(timed.repeats)}

    made: dict[str, Any] = {name: [plain(timed) for timed in getattr(times, name) if timed.repeats]
                            for name in ("forward", "backward", "weight")}
    return {**made, "reduce": plain(times.reduce), "update": plain(times.update)}


def record(found: Rehearsal, training: Training, *, session: str = "") -> Record:
    trial = found.trial if found.cluster is None else replace(found.trial, cluster=found.cluster)
    iteration, tflops = found.iteration, _tflops(found)
    fullest = max(found.ranks, key=lambda one: one.memory.peak_bytes)
    names = ("mem_value", *(("sec_per_it", "tflops") if iteration is not None else ()))
    host = environment.machine()
    return Record(
        state="estimated", outcome=Outcome(status="ok", message="rehearsed: one rank at a time, its peers made up"),
        run_id=found.trial.run_id(), session=session, date=time.strftime("%Y-%m-%d", time.gmtime()),
        machine=str(host.get("name", "")), mem_unit="GiB",
        **{name: value for name, value in columns.flat(trial).items() if value is not None},
        mem_value=digits(fullest.memory.peak_bytes / GIB),
        sec_per_it=None if iteration is None else digits(iteration.sec), time_unit="s" if iteration is not None else "",
        tflops=None if tflops is None else digits(tflops), formula=FORMULA if tflops else "",
        tflops_per="process" if tflops else "", notes="rehearsed", estimated=names, inferred=names,
        trial=environment.public(found.trial).to_dict(),
        measurement={"kind": "rehearsed", "device": found.device, "ranks": [one.rank for one in found.ranks],
                     "stages_taken_alike": found.assumes_alike,
                     "network": found.cluster.name if found.cluster is not None else ""},
        memory={"by_part": fullest.memory.at_peak, "pipeline_rank": fullest.pp_rank},
        breakdown={} if iteration is None else iteration.parts, versions=environment.versions(), host=host)  # fmt: skip
