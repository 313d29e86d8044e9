"""Tables of reStructuredText (grid, simple, list-table, csv-table) as the rows between pipes that everything else reads.

    for number, line in pipes_of_rst(read_lines(path)): ...

A cell of several lines is joined; a row keeps the line that it starts on. What has not the form is left as it is.
"""
from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from seatrial.notes.read.htmltables import row_text, titles_of

Line = tuple[int, str]
Lines = Iterable[Line]
Row = tuple[int, list[str]]
LONGEST_TABLE = 20_000
_GRID = re.compile(r"\s*\+(?:[-=]+\+){2,}\s*$")
_SIMPLE = re.compile(r"\s*=+(?: +=+)+\s*$")
_DIRECTIVE = re.compile(r"\s*\.\. (list-table|csv-table)::")
_TYPE = re.compile(r"-+|[iuf]\d{1,2}|str|bool|cat|date|object|int\d*|float\d*")
_OPTION = re.compile(r"\s+:([\w-]+):\s*(.*)$")


def pipes_of_rst(lines: Lines) -> Iterator[tuple[int, str]]:
    stream = iter(lines)
    held: tuple[int, str] | None = None
    while (found := held or next(stream, None)) is not None:
        held = None
        line = found[1]
        edge = line[:40].lstrip(" >")[:2]
        if edge in ("+-", "+=") and _GRID.match(line):
            block, held = _taken(found, stream, lambda text: text.lstrip()[:1] in ("+", "|"))
            yield from _shown(block, _grid(block))
        elif edge[:1] == "=" and _SIMPLE.match(line):
            block, held = _simple_block(found, stream)
            yield from _shown(block, _simple(block))
        elif edge == ".." and (match := _DIRECTIVE.match(line)):
            block, held = _taken(found, stream, lambda text: not text.strip() or text[:1].isspace())
            yield from _shown(block, _listed(block) if match.group(1) == "list-table" else _csv(block))
        else:
            yield found


def _taken(first: Line, stream: Iterator[Line], goes_on: Callable[[str], bool]) -> tuple[list[Line], Line | None]:
    block = [first]
    for found in stream:
        if not goes_on(found[1]) or len(block) >= LONGEST_TABLE:
            return block, found
        block.append(found)
    return block, None


def _simple_block(first: Line, stream: Iterator[Line]) -> tuple[list[Line], Line | None]:
    """From one border to the third, or to the second where no heading stands between."""
    block, borders = [first], 1
    for found in stream:
        if borders >= 2 and not found[1].strip() and _SIMPLE.match(block[-1][1]):
            return block, found
        block.append(found)
        borders += bool(_SIMPLE.match(found[1]))
        if borders == 3 or len(block) >= LONGEST_TABLE:
            return block, None
    return block, None


def _shown(block: list[tuple[int, str]], rows: list[Row] | None) -> Iterator[tuple[int, str]]:
    if not rows or len(rows) < 2 or len({len(cells) for _, cells in rows}) != 1:
        yield from block
        return
    (number, titles), *body = rows
    yield number, ""
    yield number, row_text(titles)
    yield number, row_text(["---"] * len(titles))
    for number, cells in body:
        yield number, row_text(cells)
    yield block[-1][0], ""


def _grid(block: list[tuple[int, str]]) -> list[Row] | None:
    edges = [at for at, letter in enumerate(block[0][1]) if letter == "+"]
    rows: list[Row] = []
    cells: list[list[str]] = []
    start = 0
    headings = 1
    drawn = _is_box(block)
    for number, line in block[1:]:
        if line.lstrip().startswith("+"):
            if cells:
                rows.append((start, [" ".join(filter(None, parts)) for parts in cells]))
            if set(line.strip()) == {"+", "="}:
                headings = len(rows)
            cells = []
            continue
        if any(line[at : at + 1] != "|" for at in (edges[0], edges[-1])):
            return None
        pieces = [line[a + 1 : b].strip() for a, b in pairwise(edges)]
        if not rows and cells and all(_TYPE.fullmatch(piece) for piece in pieces):
            continue  # what a data frame prints below its headings
        if any(line[at : at + 1] != "|" for at in edges):
            return None
        if cells and drawn and rows:
            rows.append((start, [" ".join(filter(None, parts)) for parts in cells]))
            cells = []
        if not cells:
            cells, start = [[] for _ in pieces], number
        for parts, piece in zip(cells, pieces):
            parts.append(piece)
    return _joined(rows, headings)


def _is_box(block: list[tuple[int, str]]) -> bool:
    """Whether lines are drawn around the headings and around all rows, as programs print tables, and not around each row."""
    borders = [at for at, (_, line) in enumerate(block) if line.lstrip().startswith("+")]
    inside = block[borders[1] + 1 : borders[2]] if len(borders) == 3 else []
    # A cell of several lines leaves the others empty.
    return len(inside) > 1 and 2 * sum(bool(line.lstrip()[1:].split("|", 1)[0].strip()) for _, line in inside) > len(inside)


def _joined(rows: list[Row], headings: int) -> list[Row]:
    """With the rows of headings as one."""
    if headings < 2 or not rows:
        return rows
    titles = titles_of([cells for _, cells in rows[:headings]])
    return [(rows[0][0], titles), *rows[headings:]]


def _simple(block: list[tuple[int, str]]) -> list[Row] | None:
    spans = [match.span() for match in re.finditer(r"=+", block[0][1])]
    rows: list[Row] = []
    borders = [at for at, (_, line) in enumerate(block) if _SIMPLE.match(line)]
    if len(borders) < 3:
        return None
    for at, (number, line) in enumerate(block[1:], 1):
        if at in borders or not line.strip() or re.fullmatch(r"[\s-]+", line):
            continue
        cells = [line[a:b].strip() for a, b in spans[:-1]] + [line[spans[-1][0] :].strip()]
        if at > borders[1] and not cells[0] and rows:
            rows[-1] = rows[-1][0], [" ".join(filter(None, pair)) for pair in zip(rows[-1][1], cells)]
        else:
            rows.append((number, cells))
    return _joined(rows, sum(1 for at, (_, line) in enumerate(block) if 0 < at < borders[1] and line.strip("- ")))


def _listed(block: list[tuple[int, str]]) -> list[Row] | None:
    rows: list[Row] = []
    headings = 1
    for number, line in block[1:]:
        text = line.strip()
        if option := _OPTION.match(line):
            if option.group(1) == "header-rows" and option.group(2).isdecimal():
                headings = int(option.group(2)[:4])
        elif text.startswith("* -"):
            rows.append((number, [text[3:].strip()]))
        elif text.startswith("- ") or text == "-":
            if not rows:
                return None
            rows[-1][1].append(text[1:].strip())
        elif text and rows:
            rows[-1][1][-1] = f"{rows[-1][1][-1]} {text}".strip()
    return _joined(rows, headings)


def _csv(block: list[tuple[int, str]]) -> list[Row] | None:
    rows: list[Row] = []
    options = [option for _, line in block[1:] if (option := _OPTION.match(line))]
    between = next((option.group(2) for option in options if option.group(1) == "delim" and len(option.group(2)) == 1), ",")
    for number, line in block[1:]:
        option = _OPTION.match(line)
        if option and option.group(1) == "header":
            rows.insert(0, (number, _cells(option.group(2), between)))
        elif line.strip() and not option:
            rows.append((number, _cells(line, between)))
    return rows


def _cells(line: str, between: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line.strip()], delimiter=between, skipinitialspace=True), [])]
    except csv.Error:
        return []
