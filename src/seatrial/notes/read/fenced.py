"""Rows with commas, semicolons, tabs or bars between their cells, as the rows between pipes that everything else reads.

    for number, line in pipes_of_fences(read_lines(path)): ...

In a code fence or as a paragraph: a table where the first line reads as headings of runs and most lines below have as many
cells.
"""
from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from seatrial.notes.read.exported import delimiter_of
from seatrial.notes.read.htmltables import row_text
from seatrial.notes.read.rows import is_table_of_runs
from seatrial.tables.headings import NUMBER, clean, read_heading, settle

LONGEST = 20_000
FENCES = ("```", "~~~")
Line = tuple[int, str]


def pipes_of_fences(lines: Iterable[Line]) -> Iterator[Line]:
    stream = iter(lines)
    held: Line | None = None
    fence = ""
    while (found := held or next(stream, None)) is not None:
        held = None
        bare = found[1].strip()
        if bare[:3] in FENCES:
            fence = "" if fence == bare[:3] else fence or bare[:3]
        if not _heads(bare, bool(fence)):
            yield found
            continue
        block = [found]
        for held in stream:
            if len(block) >= LONGEST or not held[1].strip() and not fence or held[1].strip()[:3] in FENCES:
                break
            block.append(held)
            held = None
        yield from _rows(block)


def _between(line: str) -> str:
    """What stands between the cells of a line."""
    return "|" if "|" in line else delimiter_of(line)


def _heads(bare: str, fenced: bool) -> bool:
    """Whether a line can only be headings of runs; `# GPUs` opens a section, but not in a fence or before a tab."""
    if bare[:1] in ("|", ">", "+", "") or len(bare) > 1000 or "||" in bare:
        return False
    if bare[0] == "#" and not fenced and "\t" not in bare and bare.lstrip("#")[:1] == " ":
        return False
    titles = _cells(bare, _between(bare))
    named = [title for title in titles if title]
    if len(titles) < 3 or any(NUMBER.match(clean(title)) or len(title) > 40 or title.count("(") != title.count(")")
                              for title in named):  # fmt: skip
        return False
    columns = settle([read_heading(title) for title in titles])
    return 2 * sum(bool(column.field) for column in columns) >= len(titles) and is_table_of_runs(columns)


def _cells(line: str, between: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line.strip("\r\n ")], delimiter=between), [])]


def _rows(block: list[Line]) -> list[Line]:
    (top, line), *below = block
    between = _between(line)
    told = [(number, _cells(text, between)) for number, text in below if text.strip()]
    titles = _cells(line, between)
    ruled = bool(told) and not set("".join(told[0][1])) - set("-:=+ ")
    whole = [(number, cells) for number, cells in told[ruled:] if len(cells) == len(titles)]
    if between == "|" and ruled or not whole or 2 * len(whole) <= len(told) - ruled:
        return block
    rows = [(number, row_text(cells)) for number, cells in told[ruled:]]
    return [(top, ""), (top, row_text(titles)), (top, row_text(["---"] * len(titles))), *rows, (block[-1][0], "")]
