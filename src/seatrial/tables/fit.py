"""A markdown table made as narrow as a terminal: what all rows have alike is a line of words below it, the rest is named.

    print(fitted(to_short(records), width=80))
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from seatrial.tables.markdown import aligned, text_width

CELL = re.compile(r"(?<!\\)\|")
SHORTEST = 12
"""Letters that a cell of words is cut to at least."""
FIRST_OUT = ("Notes", "Samples/s", "Tokens/s", "Mem", "Session", "Machine", "Source")
"""Columns that others say as well, or that are the first to go; then from the right what is no figure of the result."""
LAST_OUT = ("#", "DP", "TP", "PP", "MBS", "Sec/it", "TFLOPs", "MFU", "Tok/s/device", "Outcome")


def fitted(text: str, width: int) -> str:
    """Its tables; lines of words are folded at spaces."""
    out: list[str] = []
    for table, group in groupby(text.split("\n"), lambda line: line.startswith("|")):
        lines = list(group)
        out += _table(lines, width) if table else [part for line in lines for part in folded(line, width)]
    return "\n".join(out)


def folded(line: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [line]


def _table(lines: list[str], width: int) -> Iterator[str]:
    cells = [[cell.strip() for cell in CELL.split(line.strip()[1:-1])] for line in lines]
    headings, rows = cells[0], cells[2:]
    if any(len(row) != len(headings) for row in rows):
        yield from lines
        return
    alike: list[str] = []
    if len(rows) > 1:
        for heading in [h for h in headings if _base(h) not in ("Sec/it", "Outcome")]:
            if _wide(headings, rows) > width and len({row[headings.index(heading)] for row in rows}) == 1:
                value = rows[0][headings.index(heading)]
                alike += [f"{heading} {value}"] if value else []
                _take_out(headings, rows, heading)
    rows = _cut(headings, rows, width)
    gone: list[str] = []
    order = sorted(reversed(headings), key=lambda h: (h not in FIRST_OUT) + (_base(h) in LAST_OUT))
    for heading in order[: len(headings) - 1]:
        if _wide(headings, rows) > width:
            gone.append(heading)
            _take_out(headings, rows, heading)
    yield from aligned(headings, rows).rstrip("\n").split("\n")
    if alike:
        yield from ["", *folded(f"All of them: {', '.join(alike)}.", width)]
    if gone:
        yield from ["", *folded(f"No room for {', '.join(gone)}: --columns chooses, --wide has every one.", width)]


def _base(heading: str) -> str:
    return heading.split(" (")[0]


def _wide(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    return 1 + sum(max(3, *map(text_width, column)) + 3 for column in zip(headings, *rows))


def _take_out(headings: list[str], rows: list[list[str]], heading: str) -> None:
    place = headings.index(heading)
    for line in (headings, *rows):
        del line[place]


def _cut(headings: list[str], rows: list[list[str]], width: int) -> list[list[str]]:
    """The widest columns of words shortened, as far as that helps."""
    for _ in headings:  # each at most once, so that what cannot be cut is no endless loop
        longest = [max(len(cell) for cell in column) for column in zip(*rows)]
        place = max(range(len(longest)), key=longest.__getitem__)
        most = max(longest[place] - (_wide(headings, rows) - width), SHORTEST, len(headings[place]))
        if most >= longest[place]:
            break
        rows = [[_shortened(cell, most) if i == place else cell for i, cell in enumerate(row)] for row in rows]
    return rows


def _shortened(cell: str, most: int) -> str:
    bold = cell.startswith("**") and cell.endswith("**")
    return cell if bold or len(cell) <= most else cell[: most - 1].rstrip("\\ ") + "…"
