"""What a machine file says in place of the data sheet: kernels and collectives measured, as factors on the model's own times.

    found = probed.of(cluster)                            None where the cluster names no machine file
    found.product_factor("forward", codes, rows, cols, inner, batch)

The model carries how time depends on the shape; the file says by how much it is off at the shapes that were measured. Between
them the factor's logarithm is interpolated in the logarithms of the sides. What was never measured keeps the data sheet, and
`gaps` names it.
"""
from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seatrial import fields, presets
from seatrial import machine as files
from seatrial.errors import BadInput
from seatrial.plan.configs import PRECISIONS, Configs, Floats, Ints
from seatrial.spec import Cluster, Device

KIN = {"fp32": ("tf32",), "bf16": ("fp16",), "fp16": ("bf16",), "fp8": ()}
"""Whose figures stand in for a type that was not measured: the same units do the work."""

NEAR = 1e-3
"""Squared distance in doublings at which two shapes are one."""

class Points:
    """Factors at measured places, interpolated by the fourth power of the inverse distance."""

    def __init__(self, places: Any, factors: Any):
        self.places = np.log2(np.asarray(places, dtype=np.float64))
        self.logs = np.log(np.asarray(factors, dtype=np.float64))

    def at(self, *sides: Any) -> Floats:
        asked = np.log2(np.stack(np.broadcast_arrays(*[np.asarray(s, dtype=np.float64) for s in sides]), axis=-1))
        apart = np.zeros((len(asked), len(self.places)))
        for axis in range(asked.shape[1]):
            apart += (asked[:, axis, None] - self.places[None, :, axis]) ** 2
        weight = (apart + NEAR) ** -2.0
        return np.exp(weight @ self.logs / weight.sum(axis=1))


class Curve:
    """Seconds, or a rate, by size: straight between measured sizes on two logarithmic scales, level outside."""

    def __init__(self, sizes: Iterable[float], values: Iterable[float]):
        pairs = sorted(zip(sizes, values))
        self.sizes = np.log([size for size, _ in pairs])
        self.values = np.log([value for _, value in pairs])

    def at(self, sizes: Any) -> Floats:
        return np.exp(np.interp(np.log(np.maximum(np.asarray(sizes, dtype=np.float64), 1.0)), self.sizes, self.values))

    def grown(self, sizes: Any) -> Floats:
        """As `at`, but beyond the largest in proportion to the size: seconds of ever larger messages."""
        sizes = np.asarray(sizes, dtype=np.float64)
        return self.at(sizes) * np.maximum(sizes / math.exp(self.sizes[-1]), 1.0)


class Talk(NamedTuple):
    """One kind of group: how far the ring model is off, by the bytes of one call."""

    size: float
    nodes: float
    factor: Curve


@dataclass(frozen=True, kw_only=True)
class Probed:
    path: str
    file: Mapping[str, Any]
    device: Device
    """The cluster's device with the memory that was found."""
    products: dict[tuple[str, str], Points]
    """By type and kind."""
    attention: dict[tuple[str, bool, str], Points]
    """By type, bias, and way."""
    copy_rate: Curve | None
    """Bytes a second by the bytes of a tensor, of kernels that copy or add …"""
    element_rate: Curve | None
    """… and of kernels that work on each element."""
    logits_rate: float | None
    optimizer_s: dict[str, float]
    """Seconds a parameter, by type."""
    host_s: tuple[float, float, float] | None
    """One layer forward, backward, and one iteration."""
    launch_s: float | None
    rings: dict[tuple[int, bool], tuple[Talk, ...]]
    """By passes and whether nodes are crossed."""
    messages: dict[bool, Curve]
    """Seconds, by whether a node is left."""

    @property
    def noise(self) -> float:
        """The median figure's spread, and what others on the machine may make of it: a kernel is short enough to run between
        them, a step is not. A file that does not say so was made by hand."""
        noise, share = (v if isinstance(v, int | float) else d for v, d in
                        ((self.file.get("noise"), 0.0), (self.file.get("core_share"), 1.0)))
        return math.hypot(noise, math.log(min(max(share, 0.05), 1.0)))

    def best_flops(self, precision: str) -> float | None:
        """The fastest product of a type, in operations a second."""
        for name in (precision, *KIN[precision]):
            rates = [2.0 * p["rows"] * p["cols"] * p["inner"] * p["batch"] / p["s"] for p in self.file["figures"]["matmul"]
                     if p["dtype"] == name]
            if rates:
                return max(rates)
        return None

    def share(self, procs_per_node: Any) -> Any:
        """A process's part of a CPU node relative to the process that was measured."""
        cores = float(self.file.get("cores", self.file["device"]["units"]))
        had = min(float(self.file.get("threads", 1)), cores / self.file["procs_per_node"])
        return cores / np.asarray(procs_per_node, dtype=np.float64) / had

    def crowding(self, procs_per_node: Any) -> Any:
        """How many processes wait for one core of a CPU node."""
        cores = float(self.file.get("cores", self.file["device"]["units"]))
        return np.maximum(np.asarray(procs_per_node, dtype=np.float64) / cores, 1.0)

    def product_factor(self, kind: str, precision: Ints, rows: Any, cols: Any, inner: Any, batch: Any) -> Floats:
        found = np.ones(len(precision))
        for code in np.unique(precision):
            points = _first(self.products, [(name, kind) for name in _names(code)])
            if points is None:
                continue
            where = precision == code
            sides = [np.broadcast_to(side, found.shape)[where] for side in (rows, cols, inner, batch)]
            found[where] = points.at(*sides)
        return found

    def attention_factor(self, way: str, c: Configs) -> Floats:
        found = np.ones(len(c))
        biased = (c.rope == 0) & (c.learned == 0)
        for code in np.unique(c.precision):
            for bias in (False, True):
                where = (c.precision == code) & (biased == bias)
                keys = [(name, with_bias, way) for with_bias in (bias, not bias) for name in _names(code)]
                points = _first(self.attention, keys)
                if points is not None and where.any():
                    heads = np.maximum(c.mbs * c.heads // c.tp, 1)
                    found[where] = points.at(heads[where], c.seq[where], c.head_size[where])
        return found

    def ring_factor(self, passes: int, size: Ints, nodes: Ints, call_bytes: Any) -> Floats:
        found = np.ones(len(size))
        call_bytes = np.broadcast_to(np.asarray(call_bytes, dtype=np.float64), found.shape)
        for across in (False, True):
            known = self.rings.get((passes, across))
            where = (nodes > 1) == across
            if not known or not where.any():
                continue
            wide, deep = np.log2(np.maximum(size[where], 1)), np.log2(np.maximum(nodes[where], 1))
            apart = [np.abs(wide - math.log2(talk.size)) + np.abs(deep - math.log2(talk.nodes)) for talk in known]
            nearest = np.argmin(apart, axis=0)
            mine = np.ones(len(wide))
            for i, talk in enumerate(known):
                chosen = nearest == i
                if chosen.any():
                    mine[chosen] = talk.factor.at(call_bytes[where][chosen])
            found[where] = mine
        return found

    def optimizer_rate(self, precision: str) -> float | None:
        """Seconds a parameter: what the types have in common is most of it."""
        return _first(self.optimizer_s, [precision, "bf16" if precision != "fp32" else "fp32", "fp32", "bf16"])


def _names(code: int) -> tuple[str, ...]:
    return (PRECISIONS[code], *KIN[PRECISIONS[code]])


def _first(table: Mapping[Any, Any], keys: Iterable[Any]) -> Any:
    return next((table[key] for key in keys if key in table), None)


_LAST: tuple[Cluster, Probed | None] | None = None
_KNOWN: dict[str, Probed] = {}


def of(cluster: Cluster) -> Probed | None:
    """What was measured of this cluster's machine. The file is read once for each cluster, and again when it changes."""
    global _LAST
    if cluster.machine is None:
        return None
    if _LAST is not None and _LAST[0] is cluster:
        return _LAST[1]
    path = presets.machine_path(cluster.machine)
    try:
        stamp = os.stat(path).st_mtime_ns
    except OSError as e:
        raise BadInput(f"{path}: {e.strerror}; `seatrial probe -o {path}` writes one") from None
    key = f"{stamp} {path} {fields.canonical(fields.plain(replace(cluster, nodes=1)))}"
    if key not in _KNOWN:
        if len(_KNOWN) > 64:
            _KNOWN.clear()
        _KNOWN[key] = read(path, cluster)
    _LAST = (cluster, _KNOWN[key])
    return _KNOWN[key]


def device_of(cluster: Cluster) -> Device:
    """The cluster's device, with its memory as it was found where that was measured."""
    found = of(cluster)
    return cluster.device if found is None else found.device


def read(path: str | Path, cluster: Cluster) -> Probed:
    file = presets.machine_for(cluster, path)
    figures = {part: file["figures"].get(part, []) for part in files.PARTS}
    bare = replace(cluster, machine=None)
    first = Probed(path=str(path), file=file, device=_device(file, cluster), products={}, attention={}, rings={}, messages={},
                     copy_rate=_rates(figures["memory"], ("copy", "add")),
                     element_rate=_rates(figures["memory"], ("norm", "norm_backward", "gelu", "gelu_backward")),
                     logits_rate=next((m["moved"] / m["s"] for m in figures["memory"] if m["name"] == "cross_entropy"), None),
                     optimizer_s={o["dtype"]: o["s"] / o["parameters"] for o in figures["optimizer"]},
                     host_s=next(((h["forward_s"], h["backward_s"], h["fixed_s"]) for h in figures["host"]), None),
                     launch_s=next((launch["s"] for launch in figures["launch"]), None))
    return replace(first, products=_products(figures["matmul"], first, bare),
                   attention=_attention(figures["attention"], first, bare),
                   rings=_rings(figures["collectives"], bare), messages=_messages(figures["p2p"]))


def _device(file: Mapping[str, Any], cluster: Cluster) -> Device:
    found, device = file["device"], cluster.device
    if device.kind == "gpu":
        return replace(device, usable_gib=found["usable_gib"], context_gib=found.get("context_gib", device.context_gib))
    # A CPU's processes share the node: the file speaks of all of it.
    return replace(device, usable_gib=found["usable_gib"] / cluster.procs_per_node)


def _rates(entries: list[dict[str, Any]], names: tuple[str, ...]) -> Curve | None:
    """Bytes a second of these kernels one after the other, by size."""
    moved: dict[float, float] = {}
    seconds: dict[float, float] = {}
    for entry in entries:
        if entry["name"] in names:
            moved[entry["bytes"]] = moved.get(entry["bytes"], 0.0) + entry["moved"]
            seconds[entry["bytes"]] = seconds.get(entry["bytes"], 0.0) + entry["s"]
    return Curve(moved, [moved[size] / seconds[size] for size in moved]) if moved else None


def _machine(file: Probed, cluster: Cluster, precisions: list[str]) -> Any:
    """The model's own machine for so many figures, as the process was that measured them."""
    from seatrial.plan import kernels

    n = len(precisions)
    procs = file.file["procs_per_node"]
    codes = np.array([PRECISIONS.index(p) for p in precisions])
    configs = Configs.from_columns(n, layers=1, hidden=1024, heads=8, seq=1024, vocab=1024, gbs=1, procs_per_node=procs,
                                   precision=codes)
    return kernels.Machine.of(configs, cluster, file, corrected=False)


def _products(entries: list[dict[str, Any]], first: Probed, cluster: Cluster) -> dict[tuple[str, str], Points]:
    from seatrial.plan import kernels

    known = [e for e in entries if e["dtype"] in PRECISIONS]
    if not known:
        return {}
    machine = _machine(first, cluster, [e["dtype"] for e in known])
    rows, cols, inner, batch = (np.array([e[side] for e in known]) for side in ("rows", "cols", "inner", "batch"))
    weight = np.array([e["kind"] == "weight" for e in known])
    align = kernels.alignment_bytes(machine, cols, np.where(weight, rows, inner))
    factors = np.array([e["s"] for e in known]) / kernels.matmul_s(machine, rows, cols, inner, align, batch)
    found = {}
    for key in dict.fromkeys((e["dtype"], e["kind"]) for e in known):
        mine = np.array([(e["dtype"], e["kind"]) == key for e in known])
        found[key] = Points(np.stack([rows, cols, inner, batch], axis=1)[mine], factors[mine])
    return found


def _attention(entries: list[dict[str, Any]], first: Probed, cluster: Cluster) -> dict[tuple[str, bool, str], Points]:
    from seatrial.plan import layer

    known = [e for e in entries if e["dtype"] in PRECISIONS]
    if not known:
        return {}
    machine = _machine(first, cluster, [e["dtype"] for e in known])
    heads = np.array([e["batch"] * e["heads"] for e in known])
    seq, dim = (np.array([e[side] for e in known]) for side in ("seq", "head_dim"))
    modelled = dict(zip(("forward_s", "backward_s"), layer.fused_attention_s(machine, heads, seq, dim)))
    places = np.stack([heads, seq, dim], axis=1)
    found = {}
    for way, model_s in modelled.items():
        factors = np.array([e[way] for e in known]) / model_s
        for dtype, bias in dict.fromkeys((e["dtype"], bool(e["bias"])) for e in known):
            mine = np.array([e["dtype"] == dtype and e["bias"] == bias for e in known])
            found[dtype, bias, way] = Points(places[mine], factors[mine])
    return found


def _rings(entries: list[dict[str, Any]], cluster: Cluster) -> dict[tuple[int, bool], tuple[Talk, ...]]:
    from seatrial.plan import network

    found: dict[tuple[int, bool], list[Talk]] = {}
    kinds = dict.fromkeys((e["size"], e["per_node"], e["nodes"], e["groups"]) for e in entries)
    for size, per_node, nodes, groups in kinds:
        for passes, ops in ((2, ("all_reduce",)), (1, ("all_gather", "reduce_scatter"))):
            seconds: dict[float, list[float]] = {}
            for e in entries:
                if (e["size"], e["per_node"], e["nodes"]) == (size, per_node, nodes) and e["op"] in ops:
                    seconds.setdefault(e["bytes"], []).append(e["s"])
            if not seconds:
                continue
            group = network.Group(size=np.array([size]), per_node=np.array([per_node]), sharers=np.array([groups]))
            modelled = {b: float(network.ring_s(cluster, group, b, passes=passes)[0]) for b in seconds}
            # Where one half of the pair is missing the other stands for both.
            factors = [float(np.mean(s)) / modelled[b] for b, s in seconds.items()]
            found.setdefault((passes, nodes > 1), []).append(Talk(size=size, nodes=nodes, factor=Curve(seconds, factors)))
    return {key: tuple(talks) for key, talks in found.items()}


def _messages(entries: list[dict[str, Any]]) -> dict[bool, Curve]:
    found = {}
    for across in (False, True):
        mine = [e for e in entries if (e["nodes"] > 1) == across]
        if mine:
            found[across] = Curve([e["bytes"] for e in mine], [e["s"] for e in mine])
    return found


def told(cluster: Cluster, *, precision: str, processes: int) -> dict[str, Any] | None:
    """What a forecast rests on where a machine was measured, as plain data."""
    found = of(cluster)
    if found is None:
        return None
    file = found.file
    return {"file": found.path, "device": file["device"]["name"], "when": file.get("when"), "noise": file.get("noise"),
            "shipped": str(cluster.machine) == Path(str(cluster.machine)).stem,
            "not_measured": gaps(found, cluster, precision=precision, processes=processes)}


def gaps(found: Probed, cluster: Cluster, *, precision: str, processes: int) -> list[str]:
    """What a forecast for so many processes takes from the data sheet all the same, in words."""
    nodes = -(-processes // cluster.procs_per_node)
    said = []
    named = [name for name in (precision, *KIN[precision]) if any(dtype == name for dtype, _ in found.products)]
    if not named:
        said.append(f"products in {precision}")
    elif named[0] != precision:
        said.append(f"products in {precision} (taken as {named[0]})")
    if not found.attention:
        said.append("attention")
    for what, there in (("memory-bound kernels", found.element_rate), ("the optimizer", found.optimizer_s),
                        ("the host's time", found.host_s)):
        if not there:
            said.append(what)
    if processes > 1:
        for across, words in ((False, "collectives inside a node"), (True, "collectives across nodes")):
            if across and nodes == 1 or not across and cluster.procs_per_node == 1:
                continue
            known = found.rings.get((2, across))
            needed = processes if across else min(processes, cluster.procs_per_node)
            if not known:
                said.append(words)
            elif (largest := max(talk.size for talk in known)) < needed:
                said.append(f"{words} over more than {largest:g} processes")
        if (nodes > 1) not in found.messages:
            said.append("messages between stages")
    return said
