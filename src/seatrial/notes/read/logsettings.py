"""What a log says was asked: lines of configuration as settings of a run.

    say(settings, format, line, match, number)            `  num_layers ........ 24` and its like, one or many to a line
    read_setting("gbs", "1,024")                          1024
    worked_out("dp * tp or last + 1", settings)           what follows from others
"""
from __future__ import annotations

import re
from typing import Any

from seatrial.columns import COLUMNS
from seatrial.notes.read.logformat import Format, Line
from seatrial.notes.read.parsing import read_cell
from seatrial.record import Stated
from seatrial.tables.codec import TYPES
from seatrial.tables.headings import Column, read_heading, setting

NOTHING = ("", "None", "null", "[]", "{}", "auto", "-1", "~")


def say(settings: dict[str, Stated], format: Format, line: Line, match: re.Match[str], number: int) -> None:
    """What a line of configuration states."""
    said = {name: text for name, text in match.groupdict().items() if text is not None}
    if "names" in said:
        words = re.findall(r"[\w]+", said.pop("names"))
        said |= dict(zip(words, re.findall(r"[\w.-]+", said.pop("values", ""))))
        said = {format.settings.get(name, name): text for name, text in said.items()}
    key, value = said.pop("key", None), said.pop("value", None)
    if key is not None and value is not None:
        meant = format.settings.get(key)
        if isinstance(meant, dict):
            word = value.strip().strip("\"',")
            meant = meant.get(word) or (f"{meant['*']}={word}" if "*" in meant else None)
            for pair in meant.split() if isinstance(meant, str) else ():
                name, _, said_value = pair.partition("=")
                _state(settings, name, said_value, number)
        elif isinstance(meant, str):
            _state(settings, meant, value, number)
        elif format.named and (column := setting(key)) is not None:
            _state(settings, column.field, value, number)
    for name, text in said.items():
        _state(settings, name, text, number)


def _state(settings: dict[str, Stated], name: str, text: str, number: int) -> None:
    if text == "" and name:
        settings.pop(name, None)
        settings[f"no {name}"] = Stated(value=True, line=number)
    elif name and f"no {name}" not in settings and (value := read_setting(name, text)) is not None:
        settings[name] = Stated(value=value, line=number)


def read_setting(name: str, text: object) -> Any:
    """A setting's value by what its field is; None where the text says nothing."""
    said = str(text).strip().strip("\"',").strip()
    if said in NOTHING:
        return None
    if name not in TYPES:
        digits = said.replace(",", "").replace("_", "")
        return int(digits.split(".")[0]) if re.fullmatch(r"\d{1,15}(?:\.0*)?", digits) else None
    cell = read_cell(_column(name), said.replace(",", "") if TYPES[name].startswith("int") else said)
    if cell.unread or cell.value in (None, "") or (cell.text and TYPES[name].startswith(("int", "float"))):
        return None
    return cell.value


def _column(name: str) -> Column:
    label = COLUMNS[name].label if name in COLUMNS else name
    return setting(label) or Column(field=name, kind=read_heading(label).kind, heading=label)


def worked_out(formula: str, values: dict[str, Any]) -> int | None:
    """`dp * cp? / tp or last + 1` of whole numbers, from the left; one with ? is 1 where nobody said."""
    for part in formula.split(" or "):
        parts = re.split(r"\s*([*/+])\s*", part.strip())
        found = 1.0
        for operator, name in zip(["*", *parts[1::2]], parts[0::2]):
            value = float(name) if name.isdecimal() else values.get(name.rstrip("?"), 1 if name.endswith("?") else None)
            if not isinstance(value, int | float) or value < 0 or operator == "/" and not value:
                break
            found = found * value if operator == "*" else found + value if operator == "+" else found / value
        else:
            if 1 <= found < 2**53 and found == int(found):
                return int(found)
    return None
