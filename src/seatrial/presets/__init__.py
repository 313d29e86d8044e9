"""Models and clusters by name, from the TOML files beside this one and from the user's own file.

    from seatrial import presets
    presets.model("bloom-181b", {"layers": 70})
    presets.model("Llama-3.1-8B/config.json")    also its folder, a TOML file with a [model], a logbook's row (book:run-id)
    presets.cluster("jz-a100", nodes=4)
    presets.cluster("mine.toml")                 a file with one [cluster] table, which may say base = "jz-a100"
    presets.cluster("machine.json")              what `seatrial probe` found; "here" is the one in this folder

A preset may be built on another with `base`; a circle is refused and shown.
"""
from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial import fields, machine, plaindata
from seatrial.errors import BadInput
from seatrial.presets import foreign
from seatrial.spec import Cluster, Device, Model

Book = Mapping[str, Mapping[str, Any]]
"""Kind (`models`, `forms`, `clusters`, `devices`, `links`) -> name -> plain values."""

KINDS = ("models", "forms", "clusters", "devices", "links")


@functools.cache
def shipped() -> Book:
    here = Path(__file__).parent
    return {**read_toml(here / "models.toml"), **read_toml(here / "clusters.toml")}


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A TOML file as plain data, or one line that says why not."""
    found = plaindata.read_toml(path)
    if isinstance(found.get("cluster"), dict):
        found["cluster"] = beside(path, found["cluster"])
    return found


def with_user(user: Book) -> Book:
    """The shipped presets with a user's [models.X], [clusters.X], … added or put in their place."""
    for kind in KINDS:
        if not isinstance(user.get(kind, {}), Mapping):
            raise BadInput(f"{kind}: expected tables [{kind}.NAME], found {fields.shown(user[kind])}")
    return {kind: {**shipped().get(kind, {}), **user.get(kind, {})} for kind in KINDS}


def resolve(kind: str, name: str, book: Book) -> dict[str, Any]:
    """The values of one preset with those of its bases under them."""
    chain: list[str] = []
    layers: list[Mapping[str, Any]] = []
    while True:
        if not isinstance(name, str):
            raise BadInput(f"{kind}: base must be the name of a preset, found {fields.shown(name)}")
        if name in chain:
            raise BadInput(f"preset {kind}.{chain[0]} is built on itself: {' -> '.join([*chain, name])}")
        known = book.get(kind, {})
        if name not in known:
            wanted = f"{kind}.{chain[-1]} names base {name!r}" if chain else f"{name!r}"
            raise BadInput(f"{wanted}: no such preset among {kind}; {fields.nearest(name, known)}")
        if not isinstance(known[name], Mapping):
            raise BadInput(f"{kind}.{name}: expected a table, found {fields.shown(known[name])}")
        chain.append(name)
        layers.append(known[name])
        base = known[name].get("base")
        if base is None:
            break
        name = base
    merged: dict[str, Any] = {}
    for values in reversed(layers):
        # A device's rates are a whole: one that is left out is not its base's.
        merged = _over(merged, values) if kind == "models" else {**merged, **values}
    merged.pop("base", None)
    return merged


def _over(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A model's values with others put over them; of a table (`router`, `latent`) those keys that are given."""
    return {**values, **{key: {**own, **change} if isinstance(change, Mapping) and isinstance(own := values.get(key), Mapping)
                         else change for key, change in changes.items()}}


def _lineage(kind: str, name: str, book: Book) -> list[str]:
    names = [name]
    while (base := book.get(kind, {}).get(names[-1], {}).get("base")) and base not in names:
        names.append(base)
    return names


def model(name: str, changes: Mapping[str, Any] | None = None, *, book: Book | None = None) -> Model:
    """A model with other values: by the name of a preset, the path of a TOML file with a [model] table, a Hugging Face
    config.json or the folder of one, or a row of a logbook (`book:run-id`)."""
    seq = (changes or {}).get("seq")
    if (values := foreign.values_of(name, seq=seq if isinstance(seq, int) else None)) is not None:
        return fields.build(Model, _over(values, changes or {}), where="model")
    if name.endswith(".toml") or os.sep in name:
        name, changes, book = _model_file(name, changes or {})
        if not name:
            return fields.build(Model, changes, where="model")
    book = book or shipped()
    values = _over(resolve("models", name, book), changes or {})
    family = fields.convert(values.get("family", "gpt2"), str, where="model.family")
    for ancestor in reversed(_lineage("models", name, book)):
        forms = fields.convert(book.get("forms", {}).get(ancestor, {}), dict, where=f"forms.{ancestor}")
        values = {**fields.convert(forms.get(family, {}), dict, where=f"forms.{ancestor}.{family}"), **values}
    values.setdefault("name", name)
    return fields.build(Model, values, where="model")


def _model_file(path: str, changes: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], Book]:
    """The preset that a file's [model] is built on, empty where it is none; its values with the changes; its presets."""
    data = read_toml(path)
    values = data.get("model")
    if isinstance(values, str):
        values = {"base": values}
    if not isinstance(values, Mapping):
        raise BadInput(f"{path}: a model file needs a [model] table; base = \"bloom-181b\" is a start")
    own = {key: value for key, value in values.items() if key != "base"}
    if "base" not in values:
        own = {"name": Path(path).stem, **own}
    return fields.convert(values.get("base", ""), str, where="model.base"), _over(own, changes), with_user(data)


def _part(kind: str, value: Any, book: Book) -> Any:
    """A device or link: a name, a table, or a table on a base."""
    if isinstance(value, str):
        return resolve(kind, value, book)
    if isinstance(value, Mapping) and "base" in value:
        return {**resolve(kind, value["base"], book), **{k: v for k, v in value.items() if k != "base"}}
    return value


def cluster(name: str, changes: Mapping[str, Any] | None = None, *, nodes: int | None = None, procs_per_node: int | None = None,
            book: Book | None = None) -> Cluster:
    """A cluster by the name of a preset or the path of a TOML file, with other values, nodes or processes per node."""
    book = book or shipped()
    if name == "local":
        values = local_cluster()
    elif name == HERE or name.endswith(".json"):
        values = probed_cluster(name)
    elif name.endswith(".toml") or os.sep in name:
        data = read_toml(name)
        book = with_user(data)
        values = data.get("cluster", {})
        if not isinstance(values, Mapping) or not values:
            raise BadInput(f"{name}: a cluster file needs a [cluster] table; base = \"jz-a100\" is a start")
        if "base" in values:
            # As an option would: the processes of a CPU node share it anew.
            counts = {key: fields.convert(values.get(key), int | None, where=f"cluster.{key}")
                      for key in ("nodes", "procs_per_node")}
            nodes, procs_per_node = nodes or counts["nodes"], procs_per_node or counts["procs_per_node"]
            own = {k: v for k, v in values.items() if k not in ("base", *counts)}
            values = {**resolve("clusters", values["base"], book), **own}
        values = {"name": Path(name).stem, **values}
    else:
        values = {"name": name, **resolve("clusters", name, book)}
    built = cluster_from({**values, **_onto(values, changes or {})}, book)
    if procs_per_node is not None:
        fields.positive("cluster", procs_per_node=procs_per_node)
        built = built.with_procs(procs_per_node)
    if nodes is not None:
        fields.positive("cluster", nodes=nodes)
        built = built.with_nodes(nodes)
    return built


def _onto(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes where a device or link given in part takes the rest from the one it changes."""
    merged = dict(changes)
    for key in ("device", "intra", "inter"):
        change, own = changes.get(key), values.get(key)
        if isinstance(change, Mapping) and "base" not in change:
            merged[key] = {"base": own, **change} if isinstance(own, str) else {**(own or {}), **change}
    return merged


@functools.cache
def device_called(name: str) -> Device | None:
    """The device that its driver calls so, as `NVIDIA H100 80GB HBM3`; None where it is not one of ours, or a part of one."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    sizes = {word for word in words if re.fullmatch(r"\d+gb", word)}
    if words & {"nvl", "mig"}:
        return None
    found = [key for key in names("devices") if (parts := key.split("-"))[0] in words and ("pcie" in parts) == ("pcie" in words)
             and (not sizes or parts[1:2] and parts[1] in sizes)]
    return fields.build(Device, resolve("devices", found[0], shipped()), where="device") if len(found) == 1 else None


def cluster_from(values: Mapping[str, Any], book: Book) -> Cluster:
    """A cluster from its own values, device and links by name or as tables."""
    values = dict(values)
    for key, kind in (("device", "devices"), ("intra", "links"), ("inter", "links")):
        if key in values:
            values[key] = _part(kind, values[key], book)
    built = fields.build(Cluster, values, where="cluster")
    if built.machine is not None:
        machine_for(built, machine_path(built.machine))
    return built


HERE = "here"
MACHINE_FILE = "machine.json"


def machine_path(name: str) -> Path:
    """A machine file by its path, or by the name of one that comes with the presets."""
    return Path(name) if name.endswith(".json") or os.sep in name else Path(__file__).parent / "machines" / f"{name}.json"


def beside(file: str | os.PathLike[str], values: dict[str, Any]) -> dict[str, Any]:
    """A cluster's values, its machine file found beside the file that names it where it is not in the current folder."""
    name = values.get("machine")
    if not isinstance(name, str) or not name.endswith(".json") or os.path.exists(name):
        return values
    near = Path(file).parent / name
    return {**values, "machine": str(near)} if os.path.exists(near) else values


def machine_for(cluster: Cluster, path: str | os.PathLike[str]) -> dict[str, Any]:
    """A machine file, once it is known to speak of this cluster's device."""
    found, device = machine.read(path), cluster.device
    if not machine.same_device(found["device"], name=device.name, kind=device.kind, memory_gib=device.memory_gib):
        seen = found["device"]
        raise BadInput(f"{path}: measured on {seen['name']} ({seen['memory_gib']:.0f} GiB), {cluster.name} has {device.name} "
                       f"({device.memory_gib:.0f} GiB): leave the cluster out to plan for what was measured, or say that they "
                       f"are the same with --set cluster.device.name={seen['name']!r}")
    return found


def probed_cluster(name: str) -> dict[str, Any]:
    """A cluster out of a machine file alone: as many nodes and processes as measured it, links as fast as they were."""
    path = MACHINE_FILE if name == HERE else name
    if name == HERE and not Path(path).exists():
        raise BadInput(f"--cluster here: no {MACHINE_FILE} in this folder; `seatrial probe` writes it, and --cluster local "
                       "goes without")
    found = machine.read(path)
    device, figures, procs = found["device"], found["figures"], found["procs_per_node"]
    peaks: dict[str, float] = {}
    for p in figures.get("matmul", []):
        rate = 2e-12 * p["rows"] * p["cols"] * p["inner"] * p["batch"] / p["s"]
        peaks[p["dtype"]] = max(peaks.get(p["dtype"], 0.0), rate)
    if not peaks:
        raise BadInput(f"{path}: no GEMM was measured: a cluster cannot be made of it; probe again, or name a --cluster")
    if found.get("mode") == "imported" and not figures.get("memory"):
        raise BadInput(f"{path}: published figures say nothing of memory and links between nodes, so they make no cluster: "
                       f"name one with {device['name']} as --cluster, and this file as --machine")
    gpu = device["kind"] == "gpu"
    split = 1 if gpu else procs
    copied = max((m["moved"] / m["s"] / 1e9 for m in figures.get("memory", []) if m["name"] in ("copy", "add")), default=10.0)
    values: dict[str, Any] = {
        "name": str(found.get("host") or HERE), "nodes": found["nodes"], "procs_per_node": procs, "machine": str(path),
        "memory_convention": "device" if gpu else "node",
        "device": {"name": device["name"], "kind": device["kind"], "peak_tflops": peaks, "matmul_efficiency": 1.0,
                   "memory_gib": device["memory_gib"] / split, "usable_gib": device["usable_gib"] / split,
                   "context_gib": device.get("context_gib", 0.0), "memory_gb_s": copied / 0.85, "units": device["units"],
                   "fused_attention": bool(figures.get("attention")), "source": f"measured {found.get('when', '')}".strip()},
        "intra": _measured_link(figures, nodes=1), "inter": _measured_link(figures, nodes=2),
    }  # fmt: skip
    if "clock_ghz" in device:
        values["device"]["clock_ghz"] = device["clock_ghz"]
    if not gpu:
        values["host_memory_gib"] = device["memory_gib"]
    return values


def _measured_link(figures: Mapping[str, Any], *, nodes: int) -> Any:
    """Of the largest group here: what a large all-reduce carries and a small one takes; a guess where there was none."""
    heard = [e for e in figures.get("collectives", []) if e["op"] == "all_reduce" and (e["nodes"] > 1) == (nodes > 1)]
    if not heard:
        return "numa"
    size = max(e["size"] for e in heard)
    mine = sorted((e for e in heard if e["size"] == size), key=lambda e: e["bytes"])
    carried = 2 * (size - 1) / size * mine[-1]["bytes"] / mine[-1]["s"] / 1e9
    return {"name": "measured", "bandwidth_gb_s": carried, "latency_us": mine[0]["s"] * 1e6, "efficiency": 1.0}


def local_cluster() -> dict[str, Any]:
    """This machine's CPU as a cluster of one node and one process, from what the kernel says; probing makes it exact."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    flags, clock_ghz = _cpuinfo()
    flops_a_cycle = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    peak = cores * clock_ghz * flops_a_cycle / 1000
    source = f"{cores} cores at {clock_ghz:.1f} GHz, {flops_a_cycle} fp32 operations a cycle; not measured"
    return {
        "name": "local", "nodes": 1, "procs_per_node": 1, "memory_convention": "node", "host_memory_gib": round(memory_gib, 1),
        "device": {"name": "cpu", "kind": "cpu", "peak_tflops": {"fp32": peak, "bf16": peak},
                   "memory_gib": round(memory_gib, 1), "memory_gb_s": 12.0 * cores, "units": cores,
                   "clock_ghz": clock_ghz, "launch_us": 5.0, "source": source},
        "intra": "numa", "inter": "numa",
    }


def _cpuinfo() -> tuple[frozenset[str], float]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset(), 2.0
    flags = frozenset(next((line.split(":", 1)[1].split() for line in text.splitlines() if line.startswith("flags")), []))
    clocks = [float(line.split(":", 1)[1]) for line in text.splitlines() if line.startswith("cpu MHz")]
    return flags, (max(clocks) / 1000 if clocks else 2.0)


def names(kind: str) -> list[str]:
    return [*shipped()[kind], *(["local"] if kind == "clusters" else [])]
