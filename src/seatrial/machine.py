"""machine.json: what was measured, on what, when, and what was not.

    found = machine.read("machine.json")        one line of BadInput for anything else
    found["figures"]["matmul"][0]               {"dtype": "bf16", "kind": "forward", "rows": …, "s": …, "spread": …}
    machine.write(found, "machine.json")        whole or not at all

`figures` has a list per part, each entry with the seconds it took (`s`, the median) and `spread` (half of the range that two
thirds of the repeats lie in, as a share of the median). `missing` names what was not measured, and why. `between` is the
GEMM that collectives were measured among; in a file without it they were measured back to back.
"""
from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from seatrial import plaindata
from seatrial.errors import BadInput
from seatrial.fields import shown
from seatrial.files import save
from seatrial.plaindata import MOST_WHOLE

SCHEMA = 1
KIND = "seatrial machine"
PARTS = ("host", "launch", "memory", "optimizer", "copies", "collectives", "p2p", "matmul", "attention")
"""In the order in which they are measured: what is short and always needed first."""
MOST_BYTES = 16 * 2**20
MOST_PROCESSES = 1_000_000
MOST_COUNT = 10**12

_NUMBERS = {
    "host": ("forward_s", "backward_s", "fixed_s"),
    "launch": ("s",),
    "memory": ("bytes", "moved", "s"),
    "optimizer": ("parameters", "s"),
    "copies": ("bytes", "s"),
    "collectives": ("size", "per_node", "nodes", "groups", "bytes", "s"),
    "p2p": ("nodes", "bytes", "s"),
    "matmul": ("rows", "cols", "inner", "batch", "s"),
    "attention": ("batch", "heads", "kv_heads", "seq", "head_dim", "forward_s", "backward_s"),
}
"""What every entry of a part must have, above 0."""
_COUNTS = frozenset({"parameters", "size", "per_node", "nodes", "groups", "rows", "cols", "inner", "batch", "heads", "kv_heads",
                     "seq", "head_dim"})  # fmt: skip
"""Of these, whole numbers."""
_WORDS = {"memory": ("name",), "optimizer": ("dtype",), "collectives": ("op",), "matmul": ("dtype", "kind"),
          "attention": ("dtype",)}  # fmt: skip
"""What it must have as text."""
_PLAIN = {"noise": False, "core_share": False, "cores": False, "threads": False, "mode": True, "when": True, "host": True}
"""What a file may say beside, and whether as text."""


def write(found: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """The whole file takes the old one's place, or the old one stays."""
    save(path, dumps(found))


def dumps(found: Mapping[str, Any]) -> str:
    """JSON with one figure per line, so that two machines can be compared with a diff."""
    return "".join(_lines(found)) + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield "{\n"
    rest = {k: v for k, v in found.items() if k not in ("figures", "missing")}
    for key, value in rest.items():
        yield f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)},\n"
    yield ' "figures": {'
    for i, (part, entries) in enumerate(found["figures"].items()):
        rows = ",\n   ".join(json.dumps(entry, allow_nan=False) for entry in entries)
        yield ("," if i else "") + f"\n  {json.dumps(part)}: " + (f"[\n   {rows}\n  ]" if entries else "[]")
    yield "\n },\n"
    yield f' "missing": {json.dumps(found["missing"])}\n}}'


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        found = plaindata.read_json(path, most=MOST_BYTES, what="machine file")
    except BadInput as error:
        raise BadInput(f"{error}; `seatrial probe -o {path}` writes one") from None
    return checked(found, str(path))


def checked(found: Any, where: str) -> dict[str, Any]:
    """The same data, once it is known to be a machine file that this version can use."""
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise BadInput(f"{where}: not a machine file: it has no kind {KIND!r}; `seatrial probe` writes one")
    if found.get("schema") != SCHEMA:
        raise BadInput(f"{where}: schema {found.get('schema')!r}, and this version reads {SCHEMA}: probe the machine again")
    device, figures = found.get("device"), found.get("figures")
    if not isinstance(device, dict) or not isinstance(figures, dict) or not isinstance(found.get("missing"), list):
        raise BadInput(f"{where}: device, figures or missing is not what a probe writes: probe the machine again")
    for key, kind in (("name", str), ("kind", str), ("memory_gib", float), ("usable_gib", float), ("units", int)):
        if not isinstance(device.get(key), kind) or kind is not str and not _above_zero(device[key]):
            raise BadInput(f"{where}: device.{key} is {shown(device.get(key))}: probe the machine again")
    if device["kind"] not in ("gpu", "cpu"):
        raise BadInput(f"{where}: device.kind is {shown(device['kind'])}, neither gpu nor cpu: probe the machine again")
    for key in ("context_gib", "clock_ghz"):
        if key in device and not (_above_zero(device[key]) or key == "context_gib" and device[key] == 0):
            raise BadInput(f"{where}: device.{key} is {shown(device[key])}: probe the machine again")
    for key in ("procs_per_node", "nodes"):
        if not isinstance(found.get(key), int) or not 1 <= found[key] <= MOST_PROCESSES:
            raise BadInput(f"{where}: {key} is {shown(found.get(key))}: probe the machine again")
    for key, is_text in _PLAIN.items():
        if key not in found:
            continue
        value = found[key]
        usable = isinstance(value, str) if is_text else _above_zero(value) or key == "noise" and value == 0
        if not usable:
            raise BadInput(f"{where}: {key} is {shown(value)}: probe the machine again")
    between = found.get("between", {"s": 1.0})
    if not isinstance(between, dict) or not _above_zero(between.get("s")):
        raise BadInput(f"{where}: between is not what a probe writes: probe the machine again")
    for part, names in _NUMBERS.items():
        entries = figures.get(part, [])
        if not isinstance(entries, list):
            raise BadInput(f"{where}: figures.{part} is no list: probe the machine again")
        for i, entry in enumerate(entries):
            bad = [name for name in names if not isinstance(entry, dict) or not _above_zero(entry.get(name))]
            if bad:
                raise BadInput(f"{where}: figures.{part}[{i}].{bad[0]} is no number above 0: probe the machine again")
            bad = [name for name in _COUNTS.intersection(names)
                   if not isinstance(entry[name], int) or entry[name] > MOST_COUNT]  # fmt: skip
            if bad:
                raise BadInput(f"{where}: figures.{part}[{i}].{bad[0]} is {shown(entry[bad[0]])}, no count: probe it again")
            bad = [name for name in _WORDS.get(part, ()) if not isinstance(entry.get(name), str)]
            if bad or not isinstance(entry.get("bias", False), bool) or not isinstance(entry.get("spread", 0.0), int | float):
                name = next(iter(bad), "bias" if not isinstance(entry.get("bias", False), bool) else "spread")
                raise BadInput(f"{where}: figures.{part}[{i}].{name} is {shown(entry.get(name))}: probe the machine again")
    return found


def _above_zero(value: object) -> bool:
    """A number that something can be divided by, and whose product with others is one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 1e-18 <= value <= MOST_WHOLE


VENDORS = ("nvidia", "tesla", "amd", "intel", "geforce", "instinct", "radeon", "quadro", "rtx", "r", "tm", "corp")
GENERIC = ("cpu",)
"""Names of a device that stand for whatever is here."""


def same_device(measured: Mapping[str, Any], *, name: str, kind: str, memory_gib: float) -> bool:
    """Whether a machine file speaks of a cluster's device: `NVIDIA H200` is `H200-SXM-141GB`; memory tells sizes apart."""
    if measured["kind"] != kind:
        return False
    if str(measured["name"]).lower() == name.lower() or kind == "cpu" and name.lower() in GENERIC:
        return True
    if _family(str(measured["name"])) != _family(name):
        return False
    return kind == "cpu" or abs(math.log(measured["memory_gib"] / memory_gib)) < 0.15


def _family(name: str) -> str:
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    return next((word for word in words if word not in VENDORS), "")
