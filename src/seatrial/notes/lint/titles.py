"""Names of runs that carry settings: `13B_a100x128_tp2pp2_s4k` in a table whose other names keep to their rows.

    settings_in("13B_a100x128_tp2pp2_s4k")      {"gpus": 128, "tp": 2, "pp": 2, "seq": 4096}
    said(row)                                   the same of a row, where most names of its table are right about it
    agrees(row, "gpus", 128)                    1
    fill(sheet)                                 takes the size of the model from names that each have one, where no cell does
"""
from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet

_FIELDS = {"tp": "tp", "mp": "tp", "pp": "pp", "dp": "dp", "cp": "cp", "mbs": "mbs", "mb": "mbs", "gbs": "gbs",
           "s": "seq", "seq": "seq", "ctx": "seq"}  # fmt: skip
_PART = re.compile(r"(?<![a-z0-9])((?:(?:tp|mp|pp|dp|cp|mbs|mb|gbs|seq|ctx|s)[=:]?\d+k?(?![a-z0-9]*\.))+)(?![a-z0-9])|"
                   r"(?<=[a-z0-9])x(\d{1,5})(?![a-z0-9])|(?<![a-z0-9])(\d{1,5})(?:gpus?|g)(?![a-z0-9])|"
                   r"(?<![a-z0-9])n(\d{1,4})(?![a-z0-9])")  # fmt: skip
_ONE = re.compile(r"(tp|mp|pp|dp|cp|mbs|mb|gbs|seq|ctx|s)[=:]?(\d+)(k?)")
FEWEST, MOST_ODD, MOST_ASKED, LONGEST = 3, 0.25, 500, 80
"""Rows whose names are as their cells, the share of those that are not, how many rows are asked, letters of a name."""


_SIZE = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,2})?[BM])(?![a-z0-9])", re.IGNORECASE)


def fill(sheet: Sheet) -> None:
    """`1.5B before` and `7B before` in the headings of a table that stands turned round: rows of models that differ."""
    for mates in sheet.tables.values():
        turned = len(mates) > 1 and mates[0].record.source_line == mates[1].record.source_line
        if not turned or len(mates) > MOST_ASKED or any(row.record.size_label for row in mates):
            continue
        sizes = [{*map(str.upper, _SIZE.findall(next(iter(row.cells.values()), "")))} for row in mates]
        if all(len(its) == 1 for its in sizes) and len(set.union(*sizes)) > 1:
            for row, its in zip(mates, sizes):
                new = {"size_label": next(iter(its)), "inferred": (*row.record.inferred, "size_label")}
                row.record = row.record.changed(new)


@lru_cache(maxsize=4096)
def settings_in(name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for match in _PART.finditer(name.lower()) if len(name) <= LONGEST else ():
        if match[1]:
            parts = [(_FIELDS[key], int(count) * (1024 if kilo else 1)) for key, count, kilo in _ONE.findall(match[1])]
        else:
            parts = [("nodes", int(match[4]))] if match[4] else [("gpus", int(match[2] or match[3]))]
        for field, count in parts:
            if count and found.setdefault(field, count) != count:
                return {}
    return found


def said(row: Row) -> dict[str, int]:
    """What the name of a row says of fields that its table's names are right about."""
    names = row.sheet.titled.get(row.key)
    if names is None:
        names = row.sheet.titled[row.key] = _trusted(row.mates[:MOST_ASKED])
    return {field: count for field, count in _named(row).items() if field in names} if names else {}


def _named(row: Row) -> dict[str, int]:
    found: dict[str, int] = {}
    for heading, cell in row.worded.items():
        if heading in row.record.extra or heading == row.columns.get("run_id") or heading == next(iter(row.cells), ""):
            found = settings_in(cell) | found
    return found


def _trusted(mates: list[Row]) -> frozenset[str]:
    right, wrong = Counter[str](), Counter[str]()
    for row in mates if len(mates) >= FEWEST else ():
        for field, count in _named(row).items():
            if row.cell(field) and (value := getattr(row.record, field)):
                (right if value == count else wrong)[field] += 1
    return frozenset(field for field, often in right.items() if often >= FEWEST
                     and wrong[field] <= max(1, MOST_ODD * (often + wrong[field])))  # fmt: skip


def agrees(row: Row, field: str, value: int) -> int:
    """Whether the row's name says a value (1), another one (-1), or nothing (0)."""
    count = said(row).get(field)
    return 0 if count is None else 1 if count == value else -1
