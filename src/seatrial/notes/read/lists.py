"""Results given as a short list under the case they belong to, such as memory on the first node and on all.

    4 nodes:
    - 1st node:  30GB
    - all nodes: 20GB
    - performance: 90 TFLOPs

Each part of the job that has its own figure is a record; a figure of the whole job belongs to all of them.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from seatrial.notes.read.outline import Outline
from seatrial.notes.read.parsing import read_cell
from seatrial.record import Record
from seatrial.tables.headings import MEASURES, Column, read_heading

_ITEM = re.compile(r"\s*[-*+]\s+([^:|=]{1,40}?)\s*[:=]\s*(\S.{0,60})$")
LONGEST_ITEM, MOST_ITEMS = 120, 100
_PART = re.compile(r"\b(?:nodes?|gpus?|ranks?|stages?|devices?|hosts?)\b", re.IGNORECASE)
_MEMORY = Column(field="mem_value", kind="memory", heading="Mem")
_TFLOPS = Column(field="tflops", kind="figure", heading="TFLOPs")


class ListReader:
    """Fed with the lines of text; gives records where a list of results ends."""

    def __init__(self, file: str, outline: Outline):
        self.file, self.outline = file, outline
        self._items: list[tuple[int, str, str]] = []

    def feed(self, number: int, line: str) -> Iterator[Record]:
        match = _ITEM.match(line) if len(line) < LONGEST_ITEM and len(self._items) < MOST_ITEMS else None
        if match:
            self._items.append((number, match.group(1).strip("*_` "), match.group(2).strip()))
        elif self._items:
            yield from self.flush()

    def flush(self) -> Iterator[Record]:
        items, self._items = self._items, []
        parts: list[tuple[int, str, str, Any]] = []
        shared: dict[str, Any] = {}
        first = 0
        for number, key, text in items:
            cell = read_cell(_MEMORY, text)
            if _PART.search(key) and cell.value is not None and cell.unit:
                parts.append((number, key, text, cell))
                continue
            column = _TFLOPS if key.lower() in ("performance", "perf") else read_heading(key)
            if column.field in MEASURES:
                cell = read_cell(column, text)
                if cell.value is not None and not cell.unread and (column is not _TFLOPS or "flop" in cell.unit.lower()):
                    first = first or number
                    shared[column.field] = cell.value
                    if column.field == "mem_value":
                        shared["mem_unit"] = cell.unit
                    elif column.field == "sec_per_it":
                        shared["time_unit"] = cell.unit or "s"
        for number, key, text, cell in parts:
            own = {**shared, "mem_value": cell.value, "mem_unit": cell.unit, "mem_scope": key}
            yield self._record(number, {key: text}, own)
        if not parts and len(shared.keys() & set(MEASURES)) > 1:
            yield self._record(first, {key: text for _, key, text in items}, shared)

    def _record(self, line: int, printed: dict[str, str], own: dict[str, Any]) -> Record:
        around = self.outline.around(line)
        values = {**{name: stated.value for name, stated in around.values.items()}, **own}
        return Record(
            state="measured", source_file=self.file, source_line=line, section=around.section, printed=printed, env=around.env,
            extra=around.extra, context=around.values, inferred=tuple(sorted(around.inferred - own.keys())), **values,
        )  # fmt: skip
