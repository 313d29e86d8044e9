"""Tables written in HTML, alone or inside notes, as the rows between pipes that everything else reads.

    for number, line in pipes_of_html(read_lines(path)): ...

Rows keep the line that they start on; cells that span others are repeated, headings of two rows are joined. Headings of a page
become headings of notes. What stands in a fence is left as it is.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser

from seatrial.notes.read.composed import composed
from seatrial.tables.headings import read_heading, short_entities
from seatrial.tables.unknown import axes_lacking

Lines = Iterable[tuple[int, str]]
LONGEST_TABLE = 20_000
"""Lines after which a table that is never closed is none."""
MOST_SPANNED, MOST_COLUMNS = 64, 256
_TABLE = re.compile(r"<table\b", re.IGNORECASE)
_END = re.compile(r"</table\s*>", re.IGNORECASE)
_TITLE = re.compile(r"\s*<h([1-6])\b[^>]*>(.*?)</h\1\s*>\s*$", re.IGNORECASE)


def pipes_of_html(lines: Lines) -> Iterator[tuple[int, str]]:
    stream = iter(lines)
    fence = ""
    for number, line in stream:
        bare = line.lstrip(" >")
        if bare.startswith(("```", "~~~")):
            fence = "" if fence else bare[:3]
        if fence or "<" not in line:
            yield number, line
        elif title := _TITLE.match(line):
            yield number, f"{'#' * int(title.group(1))} {title.group(2)}"
        elif match := _TABLE.search(line):
            if line[: match.start()].strip():
                yield number, line[: match.start()]
            block = [(number, line[match.start() :])]
            while not _END.search(block[-1][1]) and len(block) < LONGEST_TABLE and (more := next(stream, None)) is not None:
                block.append(more)
            yield from _table(block)
        else:
            yield number, line


def _table(block: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    reader = _Rows()
    for number, line in block:
        reader.number = number
        # The parser knows few words between <![ and [, and stops at any other; to a browser each is a comment.
        reader.feed(short_entities(line).replace("<![", "<! [") + "\n")
    reader.close()
    rows = _spread(reader.rows)
    if not rows:
        yield from block
        return
    heads = max(1, next((at for at, (_, heading, _) in enumerate(rows) if not heading), len(rows)))
    columns = max(len(cells) for _, _, cells in rows)
    titles = titles_of([[*cells, *[""] * (columns - len(cells))] for _, _, cells in rows[:heads]])
    number = rows[0][0]
    yield number, ""
    yield number, row_text(titles)
    yield number, row_text(["---"] * columns)
    for number, _, cells in rows[heads:]:
        yield number, row_text([*cells, *[""] * (columns - len(cells))])
    yield block[-1][0], ""


def one_title(texts: Iterable[str]) -> str:
    """Headings that stand above each other as one: `Memory` over `(GB)`; under a mere group (`Parallel`), the last alone."""
    parts = list(dict.fromkeys(text for text in texts if text))
    whole = " ".join(parts)
    known = len(parts) > 1 and (read_heading(parts[-1]).field or axes_lacking((parts[-1],)))
    return parts[-1] if known and not read_heading(whole).field else whole


def titles_of(heads: Sequence[Sequence[str]]) -> list[str]:
    """The headings of lines that stand above each other; under groups that are settings each keeps the name of its own."""
    titles = [one_title(texts) for texts in zip(*heads)]
    if len(heads) < 2 or len({*titles}) == len(titles):
        return titles
    groups = [group if group != head and composed(group) else "" for group, head in zip(heads[-2], heads[-1])]
    several = len({*groups} - {""}) > 1
    return [f"{group} {head}" if several and group else title for group, head, title in zip(groups, heads[-1], titles)]


def row_text(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


Cell = tuple[str, int, int]
"""Text, columns, rows."""


def _spread(rows: list[tuple[int, bool, list[Cell]]]) -> list[tuple[int, bool, list[str]]]:
    """Cells at every place that they span."""
    made = []
    held: dict[int, tuple[str, int]] = {}
    for number, heading, cells in rows:
        out: list[str] = []
        waiting = list(cells)
        while (waiting or len(out) in held) and len(out) < MOST_COLUMNS:
            if len(out) in held:
                text, left = held.pop(len(out))
                if left > 1:
                    held[len(out)] = text, left - 1
                out.append(text)
                continue
            text, wide, high = waiting.pop(0)
            for _ in range(wide):
                if high > 1:
                    held[len(out)] = text, high - 1
                out.append(text)
        made.append((number, heading, out))
    return made


class _Rows(HTMLParser):
    """The rows of one table: line, whether all of it are headings, cells. Tables inside cells are text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.number = self.depth = 0
        self.rows: list[tuple[int, bool, list[Cell]]] = []
        self._cells: list[Cell] | None = None
        self._text: list[str] | None = None
        self._span = 1, 1
        self._heading = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.depth += 1
        if self.depth != 1:
            return
        if tag == "tr":
            self._end_row()
            self._cells, self._start, self._heading = [], self.number, True
        elif tag in ("td", "th"):
            self._end_cell()
            if self._cells is None:
                self._cells, self._start, self._heading = [], self.number, True
            given = dict(attrs)
            self._span = _count(given.get("colspan")), _count(given.get("rowspan"))
            self._text = []
            self._heading = self._heading and tag == "th"
        elif tag in ("br", "p", "li") and self._text is not None:
            self._text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.depth -= 1
            if self.depth == 0:
                self._end_row()
        elif self.depth == 1 and tag in ("td", "th"):
            self._end_cell()
        elif self.depth == 1 and tag in ("tr", "thead", "tbody"):
            self._end_row()

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def close(self) -> None:
        super().close()
        self._end_row()

    def _end_cell(self) -> None:
        if self._text is not None and self._cells is not None:
            self._cells.append((" ".join("".join(self._text).split()), *self._span))
        self._text = None

    def _end_row(self) -> None:
        self._end_cell()
        if self._cells:
            self.rows.append((self._start, self._heading, self._cells))
        self._cells = None


def _count(text: str | None) -> int:
    return min(int(text), MOST_SPANNED) if text and text.strip().isdecimal() and len(text) < 9 and int(text) > 0 else 1
