"""Tables and CSV files of our own, read back to the last bit: each heading is one field, an empty cell is nothing said.

    row_record(["Nodes", "Sec/it", "State"], ["2", "1.25", ""], where=...)

`seatrial.table` writes what this reads. Text is kept whole by entities (`&#124;` for a pipe), so that no cell can be mistaken.
"""
from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields as dataclass_fields
from typing import Any

from seatrial.errors import BadInput
from seatrial.importers.rows import Problem, Where
from seatrial.record import Record

HEADINGS: dict[str, str] = {
    "nodes": "Nodes", "gpus": "GPUs", "procs_per_node": "Procs/node", "size_label": "Size", "family": "Family",
    "layers": "Layers", "hidden": "Hidden", "heads": "Heads", "kv_heads": "KV heads", "ffn": "FFN", "seq": "Seq",
    "vocab": "Vocab", "dp": "DP", "tp": "TP", "pp": "PP", "vp": "VP", "mbs": "MBS", "gbs": "GBS", "zero_stage": "ZS",
    "recompute": "AC", "schedule": "Schedule", "dtype": "Precision", "sequence_parallel": "SP", "optimizer": "Optimizer",
    "engine": "Engine", "machine": "Machine", "freq_ghz": "Freq", "torch_version": "PyTorch", "env": "Env",
    "mem_value": "Mem", "mem_scope": "Mem of", "sec_per_it": "Sec/it", "time_unit": "Time unit", "tflops": "TFLOPs",
    "formula": "Formula", "tflops_per": "TFLOPs of", "aggr_pflops": "Est. Aggr. PetaFLOPs", "samples_per_s": "Samples/s",
    "tokens_per_s": "Tokens/s", "tokens_per_s_per_process": "Tokens/s/GPU", "mfu": "MFU", "hfu": "HFU", "loss": "Loss",
    "iteration": "Iteration", "state": "State", "outcome": "Outcome", "flags": "Flags", "estimated": "Estimated",
    "inferred": "Inferred", "extra": "Also", "session": "Session", "run_id": "Run", "source": "Source", "notes": "Notes",
}  # fmt: skip
"""Field -> heading, in the order the columns stand."""
FIELD_OF = {heading: name for name, heading in HEADINGS.items()}
TYPES = {f.name: str(f.type) for f in dataclass_fields(Record)}
TFLOPS_HEADING = re.compile(r"TFLOPs \((.*)\)")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d|\d\d-\d\d)(?:, (.*))?", re.DOTALL)
_ENTITY = re.compile(r"&#(\d+);")
_ODD = r"&(?=#\d+;)|[|│┃║*<\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]|^\s|\s$|^-+$"


def is_heading(heading: str) -> bool:
    return heading in FIELD_OF or TFLOPS_HEADING.fullmatch(heading) is not None


def encode(text: str, also: str = "") -> str:
    """Text that survives a markdown cell; `also` are letters that part lists."""
    pattern = f"{_ODD}|[{re.escape(also)}]" if also else _ODD
    return re.sub(pattern, lambda m: "".join(f"&#{ord(letter)};" for letter in m.group()), text)


def decode(text: str) -> str:
    return _ENTITY.sub(lambda m: chr(int(m.group(1))), text)


def encode_pairs(pairs: dict[str, str]) -> str:
    return ", ".join(f"{encode(key, also=',=')}={encode(value, also=',')}" for key, value in pairs.items())


def decode_pairs(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(", ") if part)
    return {decode(key): decode(value) for key, _, value in pairs}


def encode_outcome(outcome: dict[str, Any]) -> str:
    """`hang: always hangs`, with anything more as JSON in brackets."""
    more = {key: value for key, value in outcome.items() if key not in ("status", "message")}
    tail = f" {encode(json.dumps(more, sort_keys=True, ensure_ascii=False), also='{')}" if more else ""
    message = encode(str(outcome.get("message", "")), also="{")
    return outcome["status"] + tail + (f": {message}" if message else "")


def decode_outcome(text: str) -> dict[str, Any]:
    match = re.match(r"([a-z_]+)(?: (&#123;.*?&#125;|&#123;.*?\}))?(?:: (.*))?$", text, re.DOTALL)
    if match is None:
        raise BadInput(f"outcome {text!r}: expected a status such as ok, hang or oom_device")
    outcome: dict[str, Any] = {"status": match.group(1)}
    if match.group(2):
        outcome.update(json.loads(decode(match.group(2))))
    if match.group(3):
        outcome["message"] = decode(match.group(3))
    return outcome


def read_value(name: str, text: str) -> Any:
    """One field's value from its text; the types are those of the record."""
    kind = TYPES[name]
    try:
        if kind.startswith("int"):
            return int(text)
        if kind.startswith("float"):
            return float(text)
    except ValueError:
        raise BadInput(f"{name}: {text!r} is not a number") from None
    if kind.startswith("bool"):
        if text.lower() not in ("yes", "no", "true", "false"):
            raise BadInput(f"{name}: {text!r} is neither yes nor no")
        return text.lower() in ("yes", "true")
    return decode(text)


def row_record(headings: Sequence[str], cells: Sequence[str], *, where: Where, section: str = "") -> Record | Problem:
    try:
        return _record(headings, cells, where, section)
    except (BadInput, ValueError, OverflowError) as error:
        return Problem(file=where.file, line=where.line, message=str(error), level="row", rows=1, cell=" | ".join(cells)[:80])


def _record(headings: Sequence[str], cells: Sequence[str], where: Where, section: str) -> Record:
    if len(cells) != len(headings):
        raise BadInput(f"{len(cells)} cells under {len(headings)} headings in a table of our own")
    data: dict[str, Any] = {"state": "measured"}
    printed = {}
    for heading, cell in zip(headings, cells):
        cell = cell[2:-2] if cell.startswith("**") and cell.endswith("**") and len(cell) > 4 else cell
        printed[heading] = cell
        tflops = TFLOPS_HEADING.fullmatch(heading)
        name = "tflops" if tflops else FIELD_OF.get(heading)
        if name is None:
            raise BadInput(f"no heading {heading!r} in a table of our own")
        if cell in ("", "-"):
            continue
        if name == "mem_value":
            value, _, unit = cell.partition(" ")
            data["mem_value"], data["mem_unit"] = None if value == "-" else float(value), decode(unit)
        elif name == "freq_ghz":
            data[name] = float(cell.removesuffix("GHz"))
        elif name == "recompute":
            data[name] = {"Yes": "full", "No": "none"}.get(cell, decode(cell))
        elif name in ("env", "extra"):
            data[name] = decode_pairs(cell)
        elif name == "outcome":
            data[name] = decode_outcome(cell)
        elif name in ("flags", "estimated", "inferred"):
            data[name] = [decode(part) for part in cell.split(" ")]
        elif name == "notes":
            data["date"], data["notes"] = _dated(cell)
        elif name == "source":
            file, _, line = cell.rpartition(":")
            data["source_file"], data["source_line"] = decode(file), int(line)
        else:
            data[name] = read_value(name, cell)
            if name == "tflops" and tflops:
                data.update(_formula(tflops.group(1)))
    if "sec_per_it" in data and HEADINGS["time_unit"] not in headings:
        data.setdefault("time_unit", "s")
    data = {key: value for key, value in data.items() if value != ""}
    data.setdefault("source_file", where.file)
    data.setdefault("source_line", where.line)
    data["section"], data["table"], data["printed"] = section, where.table, printed
    return Record.from_dict({key: value for key, value in data.items() if value is not None})


def _dated(cell: str) -> tuple[str, str]:
    """The date and the notes after it, as `seatrial.table` puts them into one cell."""
    match = _DATE.fullmatch(cell)
    if match:
        return match.group(1), decode(match.group(2) or "")
    match = re.fullmatch(r"\(([^)]*)\)(?: (.*))?", cell, re.DOTALL)
    return (decode(match.group(1)), decode(match.group(2) or "")) if match else ("", decode(cell))


def _formula(text: str) -> dict[str, str]:
    found = {}
    for part in text.split(", "):
        if part.startswith("per "):
            found["tflops_per"] = decode(part[4:])
        else:
            found["formula"] = decode(part)
    return found
