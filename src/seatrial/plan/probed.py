"""What a machine file says in place of the data sheet: kernels and collectives measured, as factors on the model's own times.

    found = probed.of(cluster)                            None where the cluster names no machine file
    found.copy_rate, found.entries("matmul")

The model carries how time depends on the shape; the file says by how much it is off at the shapes that were measured. Between
them the factor's logarithm is interpolated in the logarithms of the sides. What was never measured keeps the data sheet, and
`gaps` names it.
"""
from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from seatrial import fields, presets
from seatrial import machine as files
from seatrial.errors import BadInput
from seatrial.plan.configs import PRECISIONS, Floats
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Probed:
    """A machine file, for one cluster. What the model of kernels and networks is off by is worked out where the model is:
    `kernels`, `layer` and `network` compare their own times with `entries`."""

    path: str
    file: Mapping[str, Any]
    cluster: Cluster
    """The one it corrects, by its data sheet alone."""
    device: Device
    """The cluster's device with the memory that was found."""
    copy_rate: Curve | None
    """Bytes per second by the bytes of a tensor, of kernels that copy or add …"""
    element_rate: Curve | None
    """… and of kernels that work on each element."""
    logits_rate: float | None
    optimizer_s: dict[str, float]
    """Seconds per parameter, by type."""
    host_s: tuple[float, float, float] | None
    """One layer forward, backward, and one iteration."""
    launch_s: float | None
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
        """The fastest GEMM of a type, in operations per second."""
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

    def entries(self, part: str) -> list[dict[str, Any]]:
        """What was measured of a part, in types that the planner knows."""
        return [e for e in self.file["figures"].get(part, []) if e.get("dtype", "fp32") in PRECISIONS]

    def optimizer_rate(self, precision: str) -> float | None:
        """Seconds per parameter: what the types have in common is most of it."""
        return first_of(self.optimizer_s, [precision, "bf16" if precision != "fp32" else "fp32", "fp32", "bf16"])


def types(code: int) -> tuple[str, ...]:
    """A precision, and those whose figures may stand in for it."""
    return PRECISIONS[code], *KIN[PRECISIONS[code]]


def first_of(table: Mapping[Any, Any], keys: Iterable[Any]) -> Any:
    return next((table[key] for key in keys if key in table), None)


class _Asked:
    """A cluster as the key of what was read for it: all of it but the number of its nodes."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.key = fields.canonical(fields.plain(replace(cluster, nodes=1)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@functools.lru_cache(maxsize=64)
def _read(path: Path, stamp: int, asked: _Asked) -> Probed:
    return read(path, asked.cluster)


def of(cluster: Cluster) -> Probed | None:
    """What was measured of this cluster's machine. The file is read once for each cluster, and again when it changes."""
    if cluster.machine is None:
        return None
    path = presets.machine_path(cluster.machine)
    try:
        stamp = os.stat(path).st_mtime_ns
    except OSError as e:
        raise BadInput(f"{path}: {e.strerror}; `seatrial probe -o {path}` writes one") from None
    return _read(path, stamp, _Asked(cluster))


def device_of(cluster: Cluster) -> Device:
    """The cluster's device, with its memory as it was found where that was measured."""
    found = of(cluster)
    return cluster.device if found is None else found.device


def read(path: str | Path, cluster: Cluster) -> Probed:
    return made(presets.machine_for(cluster, path), path, cluster)


def made(file: Mapping[str, Any], path: str | Path, cluster: Cluster) -> Probed:
    """What a machine file says, once it is known to speak of this cluster."""
    figures = {part: file["figures"].get(part, []) for part in files.PARTS}
    return Probed(
        path=str(path), file=file, cluster=replace(cluster, machine=None), device=_device(file, cluster),
        copy_rate=_rates(figures["memory"], ("copy", "add")),
        element_rate=_rates(figures["memory"], ("norm", "norm_backward", "gelu", "gelu_backward")),
        logits_rate=next((m["moved"] / m["s"] for m in figures["memory"] if m["name"] == "cross_entropy"), None),
        optimizer_s={o["dtype"]: o["s"] / o["parameters"] for o in figures["optimizer"]},
        host_s=next(((h["forward_s"], h["backward_s"], h["fixed_s"]) for h in figures["host"]), None),
        launch_s=next((launch["s"] for launch in figures["launch"]), None), messages=_messages(figures["p2p"]),
    )  # fmt: skip


def _device(file: Mapping[str, Any], cluster: Cluster) -> Device:
    found, device = file["device"], cluster.device
    if device.kind == "gpu":
        return replace(device, usable_gib=found["usable_gib"], context_gib=found.get("context_gib", device.context_gib))
    # A CPU's processes share the node: the file speaks of all of it.
    return replace(device, usable_gib=found["usable_gib"] / cluster.procs_per_node)


def _rates(entries: list[dict[str, Any]], names: tuple[str, ...]) -> Curve | None:
    """Bytes per second of these kernels one after the other, by size."""
    moved: dict[float, float] = {}
    seconds: dict[float, float] = {}
    for entry in entries:
        if entry["name"] in names:
            moved[entry["bytes"]] = moved.get(entry["bytes"], 0.0) + entry["moved"]
            seconds[entry["bytes"]] = seconds.get(entry["bytes"], 0.0) + entry["s"]
    return Curve(moved, [moved[size] / seconds[size] for size in moved]) if moved else None


def _messages(entries: list[dict[str, Any]]) -> dict[bool, Curve]:
    found = {}
    for across in (False, True):
        mine = [e for e in entries if (e["nodes"] > 1) == across]
        if mine:
            found[across] = Curve([e["bytes"] for e in mine], [e["s"] for e in mine])
    return found


def basis(cluster: Cluster, *, precision: str, processes: int) -> dict[str, Any] | None:
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
    missing = []
    named = [name for name in (precision, *KIN[precision]) if any(e["dtype"] == name for e in found.entries("matmul"))]
    if not named:
        missing.append(f"GEMMs in {precision}")
    elif named[0] != precision:
        missing.append(f"GEMMs in {precision} (taken as {named[0]})")
    if not found.entries("attention"):
        missing.append("attention")
    for what, there in (("memory-bound kernels", found.element_rate), ("the optimizer", found.optimizer_s),
                        ("the host's time", found.host_s)):
        if not there:
            missing.append(what)
    if processes > 1:
        for across, what_across in ((False, "collectives inside a node"), (True, "collectives across nodes")):
            if across and nodes == 1 or not across and cluster.procs_per_node == 1:
                continue
            known = [e["size"] for e in found.entries("collectives") if e["op"] == "all_reduce" and (e["nodes"] > 1) == across]
            needed = processes if across else min(processes, cluster.procs_per_node)
            if not known:
                missing.append(what_across)
            elif (largest := max(known)) < needed:
                missing.append(f"{what_across} over more than {largest:g} processes")
        if (nodes > 1) not in found.messages:
            missing.append("messages between stages")
    return missing
