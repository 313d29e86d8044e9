"""Tables whose columns are set by spaces alone, as the rows between pipes that everything else reads.

    nodes   s/it   TFLOPs
              (s)
        4   9.31    141.2
        8   9.40    139.9

The first line reads as headings of runs, or the first column does; a line of units and one of dashes may follow. A cell belongs
to the heading that it stands under, so that one may be empty.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from seatrial.notes.read.htmltables import one_title, row_text, titles_of
from seatrial.notes.read.reshaped import is_second, is_turned, turned
from seatrial.notes.read.rows import is_table_of_runs
from seatrial.tables.headings import NUMBER, clean, read_heading, settle

Line = tuple[int, str]
Spans = list[tuple[int, int, str]]
"""Where each cell of a line begins and ends, and its text."""
FEWEST, LONGEST, WIDEST, MOST_TURNED = 3, 2000, 400, 100
"""Columns of a table; lines of one; letters of a line; lines of a table whose runs stand side by side."""
_GAP = re.compile(r"\S(?: {2,}|\t+)\S")
_CELLS = {"gaps": re.compile(r"[^ \t]+(?: [^ \t]+)*"), "words": re.compile(r"[^ \t]+")}
"""A narrow space is part of a cell."""
_RULE = re.compile(r"[-=_─━\s+]+")
_OTHER = ("|", ">", "```", "~~~", "<", "- ", "* ", "+ ")
_HEADING = re.compile(r"#{1,6} (?!.*\S {2,}\S)")
"""Of a section; `# GPUs   s/it` is one of a column."""


def pipes_of_gaps(lines: Iterable[Line]) -> Iterator[Line]:
    stream = iter(lines)
    held: Line | None = None
    while (found := held or next(stream, None)) is not None:
        held = None
        if not may_begin(found[1]):
            yield found
            continue
        block = [found]
        for held in stream:
            if not held[1].strip() or _begins_else(held[1].lstrip()) or len(block) >= LONGEST:
                break
            block.append(held)
            held = None
        yield from _made(block)


def _begins_else(bare: str) -> bool:
    return bare.startswith(_OTHER) or bare[:1] == "#" and _HEADING.match(bare) is not None


def may_begin(line: str) -> bool:
    """Whether a line has gaps, or is a few words that all read as headings, and nothing else that tables are made of."""
    if not line or "|" in line:  # most lines of notes
        return False
    bare = line.strip()
    if len(bare) > WIDEST or _begins_else(bare) or bare[:1].isdigit():
        return False
    return _GAP.search(bare) is not None or len(bare) < 80 and (len(words := bare.split()) > FEWEST) and all(
        read_heading(word).field for word in words)  # fmt: skip


def _made(block: list[Line]) -> list[Line]:
    """The block with a table from its first line on that reads as headings; as it is where it has none."""
    for at in range(min(len(block) - 1, 30)):
        rows = _rows(block[at:]) if may_begin(block[at][1]) else []
        if rows:
            number = block[at][0]
            titles, *body = rows
            shown = [(number, row_text(titles[1])), (number, row_text(["---"] * len(titles[1])))]
            after = block[at + titles[0] + len(body) :]
            return [*block[:at], (number, ""), *shown, *((n, row_text(cells)) for n, cells in body),
                    *([(body[-1][0], ""), *after] if after else [])]  # fmt: skip
    return block


_RULER = re.compile(r"\s*[-=─━]{2,}(?: +[-=─━]+){2,}\s*")
"""A line of dashes under each column."""


def _ruled(block: list[Line]) -> list[tuple[int, list[str]]]:
    """The same of a table whose columns a ruler tells, so that its headings may have several lines."""
    at = next((at for at, (_, line) in enumerate(block[:5]) if _RULER.fullmatch(line)), 0)
    if not at:
        return []
    spans = [match.span() for match in re.finditer(r"[-=─━]+", block[at][1].expandtabs())]
    edges: Spans = [(start, end, "") for start, end in spans]
    heads = [_under(edges, line, "gaps") for _, line in block[:at]]
    if None in heads:
        heads = [[line.expandtabs()[a:b].strip() for a, b in spans] for _, line in block[:at]]
    titles = titles_of([cells for cells in heads if cells])
    rows: list[tuple[int, list[str]]] = []
    for number, line in block[at + 1 :]:
        cells = None if _RULE.fullmatch(line) else _under(edges, line, "gaps")
        if cells is None:
            break
        rows.append((number, cells))
    return [(at + 1, titles), *rows] if _are_of_runs(titles) and _is_figured([cells for _, cells in rows]) else []


def _rows(block: list[Line]) -> list[tuple[int, list[str]]]:
    """How many lines hold headings, and these; then each row with its line. Nothing where it is no table."""
    if ruled := _ruled(block):
        return ruled
    for kind in _CELLS:
        heads = _spans(block[0][1], kind)
        first = _spans(block[1][1], kind)[:1]
        if first and heads and first[0][1] < heads[0][0] and kind == "gaps":
            heads = [(*first[0][:2], ""), *heads]  # nothing stands above the first column
        if len(heads) < FEWEST:
            continue
        lines = 1
        rest = block[1:]
        heads = _with_unnamed(heads, [_spans(line, kind) for _, line in rest[:MOST_ASKED]]) if kind == "gaps" else heads
        if _RULE.fullmatch(rest[0][1]):
            lines, rest = lines + 1, rest[1:]
        units = _under(heads, rest[0][1], kind) if rest else None
        titles = [text for _, _, text in heads]
        if units and len(rest) > 1 and not _figures(units) and is_second(titles, units):
            titles = [one_title(texts) for texts in zip(titles, units)]
            lines, rest = lines + 1, rest[1:]
        if rest and _RULE.fullmatch(rest[0][1]):
            lines, rest = lines + 1, rest[1:]
        runs = _are_of_runs(titles)
        if not runs and kind != "gaps":
            continue
        rows: list[tuple[int, list[str]]] = []
        for number, line in rest if runs else rest[: MOST_TURNED + 1]:
            cells = None if _RULE.fullmatch(line) else _under(heads, line, kind)
            if cells is None:
                break
            rows.append((number, cells))
        if runs and _is_figured([cells for _, cells in rows]):
            return [(lines, titles), *rows]
        if kind == "gaps" and FEWEST <= len(rows) <= MOST_TURNED and is_turned(titles, [cells for _, cells in rows]):
            made = turned(titles, [cells for _, cells in rows])
            return [(lines + len(rows) - len(made) + 1, made[0]), *((rows[0][0], cells) for cells in made[1:])]
    return []


MOST_ASKED = 40
"""Lines of a table that are asked whether a column of it has no heading."""
_RAN = re.compile(r"ok|fits|done|passed|fail(?:ed)?|oom|hang|hung|nan|crash(?:ed)?|timeout|✓|✗|x", re.IGNORECASE)


def _with_unnamed(heads: Spans, lines: list[Spans]) -> Spans:
    """With a column that stands between headings and has none, as what came of a run: `sum       s/step` over `96  OOM  -`."""
    more = [line for line in lines if len(line) == len(heads) + 1]
    if len(more) < 2 or 3 * len(more) < 2 * len(lines):
        return heads
    at = {next((at for at, (a, b, _) in enumerate(line) if all(b < start or a > end for start, end, _ in heads)), -1)
          for line in more}  # fmt: skip
    place = at.pop()
    if at or place < 1:
        return heads
    name = "status" if all(_RAN.fullmatch(line[place][2]) for line in more) else ""
    return [*heads[:place], (more[0][place][0], more[0][place][1], name), *heads[place:]]


def _are_of_runs(titles: list[str]) -> bool:
    return len(titles) >= max(FEWEST, 2 * _figures(titles)) and is_table_of_runs(settle([read_heading(one) for one in titles]))


def _is_figured(rows: list[list[str]]) -> bool:
    figured = sum(2 * _figures(cells) >= len([cell for cell in cells if cell]) for cells in rows)
    return figured > max(1, len(rows) / 2)


def _figures(cells: list[str]) -> int:
    return sum(NUMBER.match(clean(cell)) is not None for cell in cells)


def _spans(line: str, kind: str) -> Spans:
    line = line.expandtabs()
    return [(match.start(), match.end(), match.group()) for match in _CELLS[kind].finditer(line)]


def _under(heads: Spans, line: str, kind: str) -> list[str] | None:
    """The cells of a line under the headings they stand under; None where two of them would share one."""
    spans = _spans(line, kind)
    if len(spans) == len(heads):
        return [text for _, _, text in spans]
    if not spans or kind == "words":
        return None
    if len(words := _spans(line, "words")) == len(heads):
        return [text for _, _, text in words]  # two cells with but one space between them
    cells = [""] * len(heads)
    for start, end, text in spans:
        near = [max(start - b, a - end, 0) + abs(start + end - a - b) / 1000 for a, b, _ in heads]
        at = near.index(min(near))
        if near[at] > 2 or cells[at]:
            return None
        cells[at] = text
    return cells
