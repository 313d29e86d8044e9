"""Published figures as a machine file: thinned to what the planner can use, with where they come from and how far they are off.

    made = imported.build([published.read(path)], device="h100-80gb")
    machine.write(made, "device.json")                  plan --machine device.json takes it as it takes a probe's

A table of GEMMs has tens of thousands of shapes, and the planner interpolates a factor that hardly changes within a doubling of
each side. So one measurement stands for each such cell: the one whose factor is the median of the cell's. `error` says what
that is worth: how far the planner is off at the measurements that were not kept, by the data sheet and with the file.
"""
from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seatrial import __version__, fields, machine, presets
from seatrial.errors import BadInput
from seatrial.plan import kernels, network, probed
from seatrial.plan.configs import PRECISIONS, Configs, Floats
from seatrial.plan.facts import newest
from seatrial.plan.layer import fused_attention_s
from seatrial.probe.published import Reading, merged
from seatrial.spec import Cluster, Device

CHUNK = 4096
FORWARD_ALONE = "the tables have the forward pass; taken to be off by as much"
FEW = 512
"""So many figures of a part are kept as they are."""


def device_for(readings: Sequence[Reading], name: str | None) -> tuple[str, Device]:
    """The preset that the files speak of: the one that is named, or the only one that their device's name fits."""
    book = presets.shipped()
    every = {key: fields.build(Device, presets.resolve("devices", key, book), where=f"device {key}") for key in book["devices"]}
    seen = list(dict.fromkeys(device for reading in readings for device in reading.devices))
    if name is not None and name not in every:
        raise BadInput(f"--base {name!r}: no such device; {fields.nearest(name, every)}")
    if name is None:
        fitting = [key for key, device in every.items() if seen and all(_same(s, device, readings) for s in seen)]
        if len(fitting) != 1:
            said = f"the files name {', '.join(seen)}" if seen else "the files name no device"
            raise BadInput(f"{said}: --base says which it is: {', '.join(fitting or every)}")
        name = fitting[0]
    wrong = [s for s in seen if not _same(s, every[name], readings)]
    if wrong:
        raise BadInput(f"measured on {', '.join(wrong)}, and --base is {name} ({every[name].name})")
    return name, every[name]


def _same(seen: str, device: Device, readings: Sequence[Reading]) -> bool:
    """A log says a name, where `NVIDIA H100 PCIe` is not `H100-SXM5`; a machine file also says how much memory there is."""
    gib = next((r.file["device"]["memory_gib"] for r in readings if r.file and r.file["device"]["name"] == seen), None)
    sized = next((float(n) for n in _sizes(seen)), None)
    told = {"name": seen, "kind": device.kind, "memory_gib": gib or sized or device.memory_gib}
    pcie = ("pcie" in seen.lower()) == ("pcie" in device.name.lower())
    return pcie and machine.same_device(told, name=device.name, kind=device.kind, memory_gib=device.memory_gib)


def _sizes(name: str) -> list[str]:
    return [word[:-2] for word in name.lower().replace("-", " ").split() if word.endswith("gb") and word[:-2].isdigit()]


def cluster_of(device: Device) -> Cluster:
    """Some cluster with this device, of today's software if there is one: what its figures are compared with."""
    having = [found for name in presets.shipped()["clusters"] if (found := presets.cluster(name)).device == device]
    having.sort(key=lambda found: found.intra.half_rate_mb is None)
    return replace(having[0] if having else presets.cluster("dgx-h100"), device=device, machine=None)


def build(readings: Sequence[Reading], *, device: str | None = None, when: str | None = None) -> dict[str, Any]:
    name, found = device_for(readings, device)
    cluster = cluster_of(found)
    figures = merged(readings)
    _check_rates(figures["matmul"], found)
    kept = {**figures, "matmul": _thinned_gemms(figures["matmul"], cluster),
            "attention": _thinned_attention(figures["attention"], cluster)}
    own = next((reading.file for reading in readings if reading.file is not None), None)
    talks = figures["collectives"]
    spreads = [e["spread"] for entries in kept.values() for e in entries if "spread" in e]
    made: dict[str, Any] = {
        "kind": machine.KIND, "schema": machine.SCHEMA, "seatrial": __version__, "mode": "imported", "base": name,
        "device": own["device"] if own else _sheet(found, readings),
        "when": when or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "world": max((e["size"] for e in talks), default=1), "nodes": max((e["nodes"] for e in talks), default=1),
        "procs_per_node": max((e["per_node"] for e in talks), default=1),
        "sources": [reading.provenance() for reading in readings],
        "noise": 0.0, "figures": kept, "missing": _missing(kept),
    }  # fmt: skip
    made["error"] = _errors(made, figures, cluster)
    gemms = [of["after"] for of in made["error"].get("matmul", {}).values() if of["after"] is not None]
    made["figures"] = {part: [_rounded(e) for e in entries] for part, entries in kept.items()}
    made["noise"] = round(math.hypot(float(np.median(spreads)) if spreads else 0.0, max(gemms, default=0.0)), 4)
    return made


def _rounded(e: dict[str, Any]) -> dict[str, Any]:
    """Five digits: more than a clock gives."""
    return {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in e.items()}


def _sheet(device: Device, readings: Sequence[Reading]) -> dict[str, Any]:
    """The data sheet's device under the name that the files have for it."""
    seen = next((s for reading in readings for s in reading.devices), device.name)
    return {"name": seen, "kind": device.kind, "memory_gib": float(device.memory_gib), "usable_gib": float(device.limit_gib),
            "context_gib": device.context_gib, "units": device.units,
            **({"clock_ghz": device.clock_ghz} if device.clock_ghz else {})}


def _check_rates(entries: list[dict[str, Any]], device: Device) -> None:
    """Milliseconds that were taken for something else show in the best rate."""
    for dtype in dict.fromkeys(e["dtype"] for e in entries):
        peak = device.peak_tflops.get(dtype) or max(device.peak_tflops.values())
        best = max((e for e in entries if e["dtype"] == dtype), key=_tflops)
        if not 0.05 * peak < _tflops(best) < 1.05 * peak:
            shape = " x ".join(str(best[side]) for side in ("rows", "cols", "inner"))
            raise BadInput(f"the best GEMM in {dtype} ({shape}) runs at {_tflops(best):.4g} TFLOP/s, and {device.name} has "
                           f"{peak:g}: another device, or another unit than milliseconds")


def _tflops(e: dict[str, Any]) -> float:
    return float(2e-12 * e["rows"] * e["cols"] * e["inner"] * e["batch"] / e["s"])


def _column(entries: list[dict[str, Any]], name: str) -> Any:
    return np.array([e[name] for e in entries])


def _gemm_s(entries: list[dict[str, Any]], cluster: Cluster, found: probed.Probed | None = None) -> Floats:
    """What the planner says of these GEMMs."""
    seconds = []
    for start in range(0, len(entries), CHUNK):
        part = entries[start : start + CHUNK]
        codes = np.array([PRECISIONS.index(e["dtype"]) for e in part])
        c = Configs.from_columns(len(part), layers=1, hidden=1024, heads=8, seq=1024, vocab=1024, gbs=1,
                                 procs_per_node=cluster.procs_per_node, precision=codes)
        of = kernels.Machine.of(c, cluster, found)
        rows, cols, inner, batch = (_column(part, side) for side in ("rows", "cols", "inner", "batch"))
        seconds.append(kernels.matmul_s(of, rows, cols, inner, kernels.alignment_bytes(of, cols, inner), batch))
    return np.concatenate(seconds) if seconds else np.zeros(0)


def known_gemms(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Forward, in types that the planner has."""
    return [e for e in entries if e["dtype"] in PRECISIONS and e["kind"] == "forward"]


def _thinned_gemms(entries: list[dict[str, Any]], cluster: Cluster) -> list[dict[str, Any]]:
    mine = known_gemms(entries)
    rest = [e for e in entries if e["kind"] != "forward" or e["dtype"] not in PRECISIONS]
    return [*_one_a_cell(mine, _gemm_s(mine, cluster), ("rows", "cols", "inner"), ("dtype", "batch")), *rest]


def _one_a_cell(entries: list[dict[str, Any]], modelled: Floats, sides: tuple[str, ...], exact: tuple[str, ...], way: str = "s",
                ) -> list[dict[str, Any]]:
    """The entry with the median factor of each cell of a doubling; `of` says how many it stands for."""
    if len(entries) <= FEW:
        return entries
    cells: dict[tuple[Any, ...], list[int]] = {}
    for i, e in enumerate(entries):
        cells.setdefault((*(round(math.log2(e[side])) for side in sides), *(e[name] for name in exact)), []).append(i)
    kept = []
    for members in cells.values():
        by_factor = sorted(members, key=lambda i: entries[i][way] / modelled[i])
        kept.append({**entries[by_factor[(len(by_factor) - 1) // 2]], "of": len(members)})
    return kept


def _thinned_attention(entries: list[dict[str, Any]], cluster: Cluster) -> list[dict[str, Any]]:
    """Tables of inference have no backward pass: it is taken to be off by as much as the forward pass."""
    if not entries:
        return []
    c = Configs.from_columns(len(entries), layers=1, hidden=1024, heads=8, seq=1024, vocab=1024, gbs=1,
                             procs_per_node=cluster.procs_per_node,
                             precision=np.array([PRECISIONS.index(e["dtype"]) for e in entries]))
    heads = _column(entries, "batch") * _column(entries, "heads")
    forward, backward = fused_attention_s(kernels.Machine.of(c, cluster), np.full(len(entries), newest(cluster.device)), heads,
                                          _column(entries, "seq"), _column(entries, "head_dim"))
    ratio = backward / forward
    filled = [e if "backward_s" in e else {**e, "backward_s": e["forward_s"] * float(more), "derived": "backward_s"}
              for e, more in zip(entries, ratio)]
    counted = [{**e, "all_heads": int(count)} for e, count in zip(filled, heads)]
    kept = _one_a_cell(counted, forward, ("all_heads", "seq"), ("dtype", "head_dim", "bias"), way="forward_s")
    return [{key: value for key, value in e.items() if key != "all_heads"} for e in kept]


def _missing(kept: dict[str, list[dict[str, Any]]]) -> list[dict[str, str]]:
    missing = [{"what": part, "why": "in none of the files"} for part in machine.PARTS if not kept[part]]
    if kept["matmul"] and not any(e["kind"] == "weight" for e in kept["matmul"]):
        missing.append({"what": "GEMMs of the backward pass", "why": FORWARD_ALONE})
    if any(e.get("derived") for e in kept["attention"]):
        missing.append({"what": "attention backward", "why": FORWARD_ALONE})
    return missing


def _errors(made: dict[str, Any], figures: dict[str, list[dict[str, Any]]], cluster: Cluster) -> dict[str, Any]:
    """Median |planner / measured - 1| by the data sheet (`before`) and with the file (`after`), there at what was not kept."""
    found = probed.made(made, "imported", _named(cluster, made))
    errors: dict[str, Any] = {}
    kept = {_place(e) for e in made["figures"]["matmul"]}
    for dtype in dict.fromkeys(e["dtype"] for e in known_gemms(figures["matmul"])):
        every = [e for e in known_gemms(figures["matmul"]) if e["dtype"] == dtype]
        others = [e for e in every if _place(e) not in kept]
        errors.setdefault("matmul", {})[dtype] = {
            "measured": len(every), "kept": len(every) - len(others), "before": _off(_gemm_s(every, cluster), every),
            "after": _off(_gemm_s(others, found.cluster, found), others) if others else None}
    for op in ("all_reduce", "all_gather", "reduce_scatter"):
        mine = [e for e in figures["collectives"] if e["op"] == op]
        if mine:
            size, per_node, groups = (_column(mine, name) for name in ("size", "per_node", "groups"))
            group = network.Group(size=size, per_node=per_node, sharers=groups)
            seconds = network.ring_s(cluster, group, _column(mine, "bytes"), passes=2 if op == "all_reduce" else 1)
            errors.setdefault("collectives", {})[op] = {"measured": len(mine), "kept": len(mine), "before": _off(seconds, mine),
                                                        "after": None}
    return errors


def _named(cluster: Cluster, made: dict[str, Any]) -> Cluster:
    return replace(cluster, device=replace(cluster.device, name=made["device"]["name"]))


def _place(e: dict[str, Any]) -> tuple[Any, ...]:
    return e["dtype"], e["kind"], e["rows"], e["cols"], e["inner"], e["batch"]


def _off(seconds: Floats, entries: list[dict[str, Any]]) -> float:
    return round(float(np.median(np.abs(seconds / _column(entries, "s") - 1))), 4)
