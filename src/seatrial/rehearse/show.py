"""A rehearsal as one JSON object, as a record of the logbook, and for a person; with the planner's figures beside it.

    doc = document(found, recipe, seconds=12.0)          plain data
    tell(doc)                                              printed
    record(found, recipe)                                 state `estimated`, never `measured`: no iteration was run
    Forecast.of(trial, cluster).sec                         what the planner says of the same layout

The planner forecasts the cluster's devices, and memory as the trial's engine keeps it; a rehearsal runs this device and this
engine.
Beside the planner's GiB stand the bytes that this engine's own accounting counts from the shapes (`arith.footprint`).
"""
from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seatrial import arith, columns, fields, terminal
from seatrial.arith import FORMULA, footprint
from seatrial.engines.model import model_of
from seatrial.launch import environment
from seatrial.measurement import digits
from seatrial.plan import memory, step
from seatrial.plan.configs import Configs, Floats
from seatrial.recipe import Recipe
from seatrial.record import Outcome, Record
from seatrial.rehearse import theirs
from seatrial.rehearse.asked import Rank, Rehearsal
from seatrial.rehearse.iteration import RankTimes, Timed
from seatrial.rehearse.load import pairs_of
from seatrial.spec import GIB, Cluster, Topology, Trial


@dataclass(frozen=True, kw_only=True)
class Forecast:
    sec: float
    lo: float
    hi: float
    parts: dict[str, float]
    """Seconds of an iteration."""
    forward_s: tuple[float, float, float]
    """One micro-batch on the first pipeline rank, one in between, the last; with tensor-parallel traffic and messages."""
    backward_s: tuple[float, float, float]
    compute_s: tuple[float, float, float]
    """Forward and backward of one micro-batch without any communication."""
    by_rank_gib: tuple[float, float, float]
    memory: dict[str, float]
    """GiB by part on the fullest rank."""

    @classmethod
    def of(cls, trial: Trial, cluster: Cluster) -> Forecast:
        configs = Configs.from_trials([replace(trial, cluster=cluster)])
        timed, kept = step.time(configs, cluster), memory.peak(configs, cluster)
        assert timed.stages is not None
        talk = step.communication_s(configs, cluster)
        forward, backward = (_ranks(seconds[:, 0], trial.topology.pp) for seconds in timed.stages.seconds(np.zeros(1, int)))
        return cls(
            sec=float(timed.sec[0]), lo=float(timed.lo[0]), hi=float(timed.hi[0]),
            parts={name: float(values[0]) for name, values in timed.parts.items()},
            forward_s=_three(forward), backward_s=_three(backward), compute_s=_three(forward + backward - talk),
            by_rank_gib=_three(kept.by_rank[:, 0]),
            memory={name: float(values[0]) for name, values in kept.parts.items()},
        )  # fmt: skip


def _ranks(stages: Floats, pp: int) -> Floats:
    """[3]: the first rank, the slowest in between and the last of seconds by stage; 0 where there is no such rank."""
    ranks = stages.reshape(-1, pp).sum(axis=0)
    return np.array([ranks[0], ranks[1:-1].max(initial=0.0), ranks[-1] if pp > 1 else 0.0])


def _three(values: Floats) -> tuple[float, float, float]:
    first, middle, last = (float(v) for v in values)
    return first, middle, last


def kind(pp_rank: int, pp: int) -> int:
    """Which of the planner's three ranks this one is."""
    return step.FIRST if pp_rank == 0 else step.LAST if pp_rank == pp - 1 else step.MIDDLE




def document(found: Rehearsal, recipe: Recipe, *, seconds: float) -> dict[str, Any]:
    t = found.trial.topology
    forecast = Forecast.of(found.trial, found.cluster) if found.cluster is not None else None
    made: dict[str, Any] = {
        "kind": "rehearsed", "engine": found.trial.engine, "model": found.trial.model.name or None,
        "cluster": found.cluster.name if found.cluster is not None else None, "topology": fields.plain(t),
        "gbs": found.trial.batch.gbs, "microbatches": found.trial.microbatches, "world": t.world, "device": found.device,
        "threads": found.threads if found.device_type == "cpu" else None, "took_s": seconds, "notes": list(found.notes),
        "ranks": [_rank(one, found, recipe, forecast) for one in found.ranks],
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


def _rank(one: Rank, found: Rehearsal, recipe: Recipe, forecast: Forecast | None) -> dict[str, Any]:
    memory = one.memory
    kind_of_cluster = found.cluster.device.kind if found.cluster is not None else "cpu"
    ours = theirs.adapter_of(found.trial) is None
    counted = footprint(found.trial, rank=one.pp_rank,
                        gpu=found.device_type == "cuda" or memory.fake and kind_of_cluster == "gpu",
                        load=found.load.of_balance(found.trial, one.rank)) if ours else None
    by_shapes = {part: getattr(counted, part) for part in memory.parts} if ours else {}
    made: dict[str, Any] = {
        "rank": one.rank, "pipeline_rank": one.pp_rank, "stands_for": list(one.alike), "layers": list(one.layers),
        "expert_layers": list(one.expert_layers), "received_tokens": _received(one, found),
        "has_embedding": one.has_embedding, "has_head": one.has_head, "in_flight": one.in_flight,
        "memory": {
            "peak_gib": memory.peak_bytes / GIB, "peak_bytes": memory.peak_bytes, "at_peak_bytes": memory.at_peak,
            "parts_bytes": memory.parts, "counted_bytes": by_shapes,
            "by": "tensors without memory" if memory.fake else "real tensors", "microbatches_run": memory.microbatches,
            "allocated_gib": None if memory.allocated_bytes is None else memory.allocated_bytes / GIB,
            "reserved_gib": None if memory.reserved_bytes is None else memory.reserved_bytes / GIB,
            "over_time_bytes": list(memory.over_time), "start_bytes": memory.start_bytes,
        },
        "collectives": [vars(collective) for collective in one.collectives],
        "actions": None if one.times is None else _actions(one.times),
        "forecast": None,
    }  # fmt: skip
    if forecast is not None:
        at = kind(one.pp_rank, found.trial.topology.pp)
        made["forecast"] = {"engine": model_of(found.trial.engine).name, "forward_s": forecast.forward_s[at],
                            "backward_s": forecast.backward_s[at],
                            "compute_s": forecast.compute_s[at], "mem_gib": forecast.by_rank_gib[at]}
    return made


def _received(one: Rank, found: Rehearsal) -> float | None:
    """(Token, choice) pairs that the experts of one layer are sent in a micro-batch, over the layers."""
    trial = found.trial
    if not trial.model.mixture:
        return None
    return found.load.of_balance(trial, one.rank)[0] * pairs_of(trial) * trial.topology.expert_tp


def _actions(times: RankTimes) -> dict[str, Any]:
    def plain(timed: Timed) -> dict[str, Any]:
        return {"compute_s": timed.compute_s, "charged_s": timed.charged_s, "repeats_s": list(timed.repeats)}

    made: dict[str, Any] = {name: [plain(timed) for timed in getattr(times, name) if timed.repeats]
                            for name in ("forward", "backward", "weight")}
    return {**made, "reduce": plain(times.reduce), "update": plain(times.update)}


def record(found: Rehearsal, recipe: Recipe, *, session: str = "") -> Record:
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


MANY = 4
"""With more ranks than this one table of all of them is enough."""


def print_rehearsal(doc: dict[str, Any]) -> None:
    t = fields.build(Topology, doc["topology"], where="topology")
    said = [columns.BY_FIELD[name].text(getattr(t, name))
            for name in ("zero", "zero_group", "recompute", "cp_kind", "schedule", "precision")
            if name != "cp_kind" or t.cp > 1]
    product = t.product if t.world > 1 else t.product.removesuffix("es")
    print(f"{doc['model'] or 'the model'}: {product}, MBS {t.mbs}, batch {doc['gbs']} = {doc['microbatches']} micro-batches, "
          f"{', '.join(filter(None, said))}")
    threads = f", {doc['threads']} thread{'s' if doc['threads'] > 1 else ''}" if doc["threads"] else ""
    network = f"network of {doc['cluster']}" if doc["cluster"] else "no network"
    print(f"rehearsed on {doc['device']}{threads}; {network}")
    for note in doc["notes"]:
        print(f"  {note}")
    if len(doc["ranks"]) > MANY:
        _print_many(doc)
    else:
        for one in doc["ranks"]:
            _print_rank(one, doc["topology"])
    if doc["iteration"] is not None:
        _print_iteration(doc)


def _print_rank(one: dict[str, Any], topology: dict[str, Any]) -> None:
    ends = [word for word, there in (("embedding", one["has_embedding"]), ("head", one["has_head"])) if there]
    layers = sum(one["layers"])
    has = ", ".join([f"{layers} layer{'s' if layers > 1 else ''}", *ends, f"{one['in_flight']} in flight"])
    print(f"\nrank {one['rank']}: pipeline rank {one['pipeline_rank']} of {topology.get('pp', 1)}, {has}")
    memory = one["memory"]
    if one["received_tokens"] is not None:
        print(f"  experts: in {sum(one['expert_layers'])} layers, each time {one['received_tokens']:,.0f} tokens"
              " of a micro-batch")
    print(f"  memory: {_bytes(memory['peak_bytes'])} at the fullest moment of {memory['microbatches_run']} micro-batches, "
          f"by {memory['by']}" + _allocator(memory))
    shown = {"at_peak_bytes": "then", "parts_bytes": "its own peak", "counted_bytes": "counted from the shapes"}
    shown = {column: label for column, label in shown.items() if memory[column]}
    parts = [p for p in memory["parts_bytes"] if any(memory[column][p] for column in shown)]
    _table(["part", *shown.values()], [[p, *(_bytes(memory[column][p]) for column in shown)] for p in parts])
    if memory["start_bytes"] is not None:
        print(f"  before the first step: {_bytes(memory['start_bytes'])} at most")
    forecast = one["forecast"]
    if forecast is not None:
        print(f"  the planner expects {forecast['mem_gib']:.2f} GiB in use there, as {forecast['engine']} keeps it, "
              "with context and slack")
    if one["actions"] is not None:
        _print_actions(one["actions"], forecast)
    if one["collectives"]:
        _print_collectives(one["collectives"])


def _print_collectives(collectives: list[dict[str, Any]]) -> None:
    """Of one step, those of a kind together, in the order in which the first of each came."""
    kinds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in collectives:
        kinds.setdefault((one["phase"], one["name"], tuple(one["ranks"])), []).append(one)
    rows = [[phase, name, f"{len(ranks)} ranks, {ranks[1] - ranks[0]} apart", str(len(every)),
             _bytes(sum(one["size_bytes"] for one in every)), _time(sum(one["seconds"] for one in every))]
            for (phase, name, ranks), every in kinds.items()]
    print("  collectives of a step:")
    _table(["phase", "collective", "group", "calls", "size", "network"], rows)


def _allocator(memory: dict[str, Any]) -> str:
    if memory["allocated_gib"] is None:
        return ""
    return f"; the allocator gave out {memory['allocated_gib']:.2f} GiB and held {memory['reserved_gib']:.2f}"


def _print_actions(actions: dict[str, Any], forecast: dict[str, Any] | None) -> None:
    rows = []
    for name in ("forward", "backward", "weight"):
        chunks = actions[name]
        for i, timed in enumerate(chunks):
            label = name if len(chunks) == 1 else f"{name} of stage {i}"
            beside = _time(forecast[f"{name}_s"]) if forecast and f"{name}_s" in forecast and len(chunks) == 1 else ""
            rows.append([label, _time(timed["compute_s"]), _time(timed["charged_s"]), _spread(timed["repeats_s"]), beside])
    for name in ("reduce", "update"):
        rows.append([name, _time(actions[name]["compute_s"]), _time(actions[name]["charged_s"]), "", ""])
    headers = ["action", "compute", "network", "repeats"] + (["planner, both"] if forecast else [])
    _table(headers, [row[: len(headers)] for row in rows])


def _print_many(doc: dict[str, Any]) -> None:
    rows = []
    for one in doc["ranks"]:
        actions, forecast = one["actions"], one["forecast"]
        both = sum(t["compute_s"] for name in ("forward", "backward", "weight") for t in actions[name]) if actions else None
        rows.append([_range(one["stands_for"]), str(sum(one["layers"])), str(one["in_flight"]),
                     _bytes(one["memory"]["peak_bytes"]), f"{forecast['mem_gib']:.2f} GiB" if forecast else "",
                     "" if both is None else _time(both), _time(forecast["compute_s"]) if forecast else ""])
    headers = ["pipeline rank", "layers", "in flight", "memory", "planner", "compute a micro-batch", "planner"]
    kept = [i for i in range(len(headers)) if any(row[i] for row in rows)]
    print()
    _table([headers[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _print_iteration(doc: dict[str, Any]) -> None:
    found, forecast = doc["iteration"], doc["forecast"]
    print(f"\niteration: {terminal.seconds(found['sec_per_it'])} s put together from these actions, "
          f"{found['tflops']:.3g} TFLOPs per process ({found['formula']})"
          + ("" if found["charged"] else "; communication not charged"))
    if found["stages_taken_alike"]:
        print("  every stage taken to be like this one; --all-stages rehearses each")
    print(terminal.breakdown(found["parts_s"], "s"))
    if forecast is not None:
        print(f"the planner expects {terminal.seconds(forecast['sec_per_it'])} s on {doc['cluster']}'s own devices "
              f"(90 %: {terminal.seconds(forecast['sec_lo'])} to {terminal.seconds(forecast['sec_hi'])})")
        print(terminal.breakdown(forecast["parts_s"], "s"))
    if forecast is not None:
        print(f"and in memory, on its fullest rank, {sum(forecast['memory_gib'].values()):.2f} GiB")
        print(terminal.breakdown(forecast["memory_gib"], "GiB"))


def _range(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _table(headers: list[str], rows: list[list[str]]) -> None:
    print("\n".join(f"    {line}" for line in terminal.plain_table(headers, rows, left=(0,)).splitlines()))


def _bytes(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.2f} MiB"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds else "0"


def _spread(repeats: list[float]) -> str:
    return f"{_time(min(repeats))} to {_time(max(repeats))}" if len(repeats) > 1 else ""
