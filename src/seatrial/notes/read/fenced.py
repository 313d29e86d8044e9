"""Rows with commas, semicolons or tabs in a code fence, as the rows between pipes that everything else reads.

    for number, line in pipes_of_fences(read_lines(path)): ...

A fence is such a table where its first line reads as headings of runs and the lines below have as many cells.
"""
from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from seatrial.notes.read.csvfile import delimiter_of
from seatrial.notes.read.htmltables import row_text
from seatrial.notes.read.rows import is_table_of_runs
from seatrial.tables.headings import read_heading, settle

LONGEST = 20_000
FENCES = ("```", "~~~")


def pipes_of_fences(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    stream = iter(lines)
    for found in stream:
        yield found
        fence = found[1].strip()[:3]
        if fence not in FENCES:
            continue
        block: list[tuple[int, str]] = []
        for inside in stream:
            block.append(inside)
            if inside[1].strip()[:3] == fence or len(block) >= LONGEST:
                break
        yield from _rows(block)


def _rows(block: list[tuple[int, str]]) -> list[tuple[int, str]]:
    told = [(number, line) for number, line in block if line.strip() and line.strip()[:3] not in FENCES]
    if len(told) < 2 or "|" in told[0][1]:
        return block
    delimiter = delimiter_of(told[0][1])
    cells = [next(csv.reader([line], delimiter=delimiter)) for _, line in told]
    wide = len(cells[0])
    if wide < 3 or 2 * sum(len(row) == wide for row in cells) <= len(cells):
        return block
    if not is_table_of_runs(settle([read_heading(cell.strip()) for cell in cells[0]])):
        return block
    (top, _), *below = told
    rows = [(number, row_text(row)) for (number, _), row in zip(below, cells[1:], strict=True)]
    return [(top, row_text(cells[0])), (top, row_text(["---"] * wide)), *rows, *(one for one in block[-1:] if one not in told)]
