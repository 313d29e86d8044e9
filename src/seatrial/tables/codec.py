"""The text of one field and back: what the tables and CSV files of our own are made of.

    encode("a|b"), decode("a&#124;b")             text is kept whole by entities, so that no cell can be mistaken
    read_value("dp", "8")                         a field's value by the type that it has in a record
    number(record, "sec_per_it")                  a figure with the digits it was printed with
"""
from __future__ import annotations

import functools
import json
import re
from dataclasses import fields as dataclass_fields
from typing import Any

from seatrial.columns import COLUMNS
from seatrial.errors import BadInput
from seatrial.plaindata import parse_json
from seatrial.record import Record
from seatrial.tables.headings import NUMBER, decimal, read_heading
from seatrial.terminal import UNSEEN

_LAST = ("state", "outcome", "flags", "estimated", "inferred", "extra", "session", "run_id", "source", "notes")
"""Columns about the row itself; its source is its file and line."""
HEADINGS: dict[str, str] = {name: column.label for name, column in COLUMNS.items() if name not in (*_LAST, "date")}
HEADINGS |= {name: COLUMNS[name].label if name in COLUMNS else "Source" for name in _LAST}
"""Field -> heading, in the order the columns stand."""
FIELD_OF = {heading: name for name, heading in HEADINGS.items()}
TYPES = {f.name: str(f.type) for f in dataclass_fields(Record)}
PLAIN = {"activation_ckpt": "recompute", "line_no": "source_line"}
"""Names in hand-kept collections -> fields."""
STRUCTURED = (
    "outcome", "env", "extra", "printed", "context", "trial", "iterations", "measurement", "memory", "breakdown",
    "versions", "host", "forecast",
)  # fmt: skip
LISTS = ("flags", "estimated", "inferred")
TFLOPS_HEADING = re.compile(r"TFLOPs \((.*)\)")
_ENTITY = re.compile(r"&#(\d{1,7});")
_ODD = rf"&(?=#\d+;)|[|│┃║*<\n\t{UNSEEN}]|^\s|\s$|^-+$"
_CSV_ODD = re.compile(rf"[\n\t{UNSEEN}]|&(?=#\d+;)")
_FORMULA = re.compile(r"[=+@-](?!\d*\.?\d+(?:[eE][+-]?\d+)?\Z)")
"""What a spreadsheet would compute: a text that begins so and is no number."""


def is_heading(heading: str) -> bool:
    return heading in FIELD_OF or TFLOPS_HEADING.fullmatch(heading) is not None


def encode(text: str, also: str = "") -> str:
    """Text that survives a markdown cell; `also` are letters that part lists."""
    pattern = f"{_ODD}|[{re.escape(also)}]" if also else _ODD
    return re.sub(pattern, lambda m: "".join(f"&#{ord(letter)};" for letter in m.group()), text)


def decode(text: str) -> str:
    return _ENTITY.sub(_letter, text)


def _letter(entity: re.Match[str]) -> str:
    """What is no letter stays as it stands: half of a pair, or a number beyond all of them."""
    code = int(entity.group(1))
    return chr(code) if code < 0xD800 or 0xE000 <= code <= 0x10FFFF else entity.group()


def encode_csv(text: str) -> str:
    """Text that survives a CSV cell on any machine and is never a formula: letters that nobody sees, and a first = + - @ of
    what is no number, are masked by entities, which every reader here undoes."""
    return no_formula(_CSV_ODD.sub(lambda m: f"&#{ord(m.group())};", text))


def no_formula(text: str) -> str:
    return f"&#{ord(text[0])};{text[1:]}" if _FORMULA.match(text) else text


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
        try:
            more = parse_json(decode(match.group(2)))
        except ValueError as error:
            raise BadInput(f"outcome {text!r}: {error}") from None
        outcome |= {key: value for key, value in more.items() if key not in ("status", "message")}
    if match.group(3):
        outcome["message"] = decode(match.group(3))
    return outcome


def read_value(name: str, text: str) -> Any:
    """One field's value from its text; the types are those of the record."""
    kind = TYPES[name]
    try:
        if kind.startswith(("int", "float")):
            typed = decimal(text) if NUMBER.fullmatch(text) else text
            return int(typed) if kind.startswith("int") else float(typed)
    except ValueError:
        raise BadInput(f"{name}: {text[:60]!r} is not a number") from None
    if kind.startswith("bool"):
        if text.lower() not in ("yes", "no", "true", "false"):
            raise BadInput(f"{name}: {text!r} is neither yes nor no")
        return text.lower() in ("yes", "true")
    return decode(text)


def number(record: Record, name: str) -> str:
    """A figure with the digits it was printed with (1.10 stays 1.10), or the shortest text that is exactly it."""
    value = getattr(record, name)
    if value is None:
        return ""
    for heading in _headings(tuple(record.printed), name):
        match = NUMBER.match(record.printed[heading].strip("*` ~"))
        digits = decimal(match.group()) if match else ""
        if re.fullmatch(r"\d+\.?\d*|\.\d+", digits) and float(digits) == value:
            return digits
    return shortest(value)


@functools.lru_cache(maxsize=4096)
def _headings(printed: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The columns of a table that a field's figures stand under: the same few for thousands of rows."""
    return tuple(heading for heading in printed if read_heading(heading).field == name or heading == HEADINGS.get(name))


def shortest(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return repr(int(value)) if value or str(value)[0] != "-" else "-0.0"
    return repr(value)
