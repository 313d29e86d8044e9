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

from seatrial.errors import BadInput
from seatrial.files import save

SCHEMA = 1
KIND = "seatrial machine"
PARTS = ("host", "launch", "memory", "optimizer", "copies", "collectives", "p2p", "matmul", "attention")
"""In the order in which they are measured: what is short and always needed first."""
MOST_BYTES = 16 * 2**20

_NUMBERS = {
    "host": ("forward_s", "backward_s", "fixed_s"),
    "launch": ("s",),
    "memory": ("bytes", "s"),
    "optimizer": ("parameters", "s"),
    "copies": ("bytes", "s"),
    "collectives": ("size", "per_node", "nodes", "groups", "bytes", "s"),
    "p2p": ("nodes", "bytes", "s"),
    "matmul": ("rows", "cols", "inner", "batch", "s"),
    "attention": ("batch", "heads", "kv_heads", "seq", "head_dim", "forward_s", "backward_s"),
}
"""What every entry of a part must have, above 0."""


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
        if os.path.getsize(path) > MOST_BYTES:
            raise BadInput(f"{path}: {os.path.getsize(path)} bytes is too large for a machine file (limit 16 MiB)")
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (ValueError, RecursionError) as e:
        raise BadInput(f"{path}: not JSON: {str(e) or 'nested too deeply'}; `seatrial probe -o {path}` writes one") from None
    except OSError as e:
        raise BadInput(f"{path}: {e.strerror or e}; `seatrial probe -o {path}` writes one") from None
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
        if not isinstance(device.get(key), kind) or kind is not str and not device[key] > 0:
            raise BadInput(f"{where}: device.{key} is {device.get(key)!r}: probe the machine again")
    for key in ("procs_per_node", "nodes"):
        if not isinstance(found.get(key), int) or found[key] < 1:
            raise BadInput(f"{where}: {key} is {found.get(key)!r}: probe the machine again")
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
    return found


def _above_zero(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


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
