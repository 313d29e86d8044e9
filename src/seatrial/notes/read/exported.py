"""Tables with commas, semicolons, tabs or bars between their cells, as programs export them, as rows between pipes.

    for number, line in pipes_of_export(read_lines(path)): ...       text, headings, alignment and rows, each with its line
    text_of_export(lines)                                           the same as one text whose lines are those of the file

What stands above the headings, between the rows or below them without being cells (comments, a title, who exported it when)
is text. Headings are the first line without figures that has as many cells as the rows have; where they come again they are
left out, and others after a gap begin another table.
"""
from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from seatrial.notes.read.htmltables import row_text
from seatrial.tables.headings import NUMBER, clean

Line = tuple[int, str]
SEARCHED = 200
"""Lines from which the separator and the number of columns are told."""
_COMMENT = re.compile(r"\s*(?:#|//|%(?= ))+")
_SPACED = re.compile(r"\s*(?:#|//|%)+\s")
_QUOTED = re.compile(r'"[^"]*"')
_SEPARATOR = re.compile(r"\s*\"?sep=(.)\"?\s*", re.IGNORECASE)
"""What Excel writes in the first line."""
LONGEST_NAME = 40
"""Letters of a cell that stands alone, beyond which it is a remark."""
_SENTENCE = re.compile(r"\S+ \S+ .*\S[.!]$")


class Row(NamedTuple):
    line: int
    raw: list[str]
    cells: list[str]
    """Without the spaces around them; a blank line has none."""


def delimiter_of(line: str) -> str:
    return max("\t;,", key=line.count)


class Export:
    """The rows of a file, with what stands between their cells and what stands above them."""

    def __init__(self, lines: Iterable[Line]) -> None:
        stream = iter(lines)
        head = list(islice(stream, SEARCHED))
        said = _SEPARATOR.fullmatch(head[0][1]) if head else None
        texts = [line for _, line in head[said is not None :] if line.strip()]
        bare = [line for line in texts if not _COMMENT.match(line)] or texts
        self.delimiter = said[1] if said else self._most_alike(bare)
        self.line = 0
        self.rows = self._read(chain(head[said is not None :], stream))
        self.first = list(islice(self.rows, SEARCHED))
        widths = Counter(len(row.cells) for row in self.first if len(row.cells) > 1 and not _COMMENT.match(row.cells[0]))
        most = max(widths, key=lambda width: (widths[width], width), default=0)
        self.widths = {width for width, rows in widths.items()
                       if width == most or rows > 2 < width and 3 * rows >= widths[most]}  # fmt: skip
        numbered = list(enumerate(self.first))
        self.heads = next((at for most in (3, 1) for at, row in numbered if self._are_headings(at, row, most)), None)

    @staticmethod
    def _most_alike(lines: Sequence[str]) -> str:
        """What parts most lines into equally many cells."""
        def alike(mark: str) -> tuple[int, int]:
            counts = Counter(_QUOTED.sub("", line).count(mark) for line in lines)
            count = max(counts, key=lambda many: (many > 0, counts[many], many), default=0)
            return (counts[count], count) if count else (0, 0)

        return max("\t;,|", key=alike)

    def _read(self, stream: Iterable[Line]) -> Iterator[Row]:
        """Each with the line it began on: a quoted cell may run over several. Blank ones have no cells."""
        def fed() -> Iterator[str]:
            for number, text in stream:
                if begun == self.line and _COMMENT.match(text):  # `# separator ";", decimals with a comma` opens no cell
                    text = text.replace(f'{self.delimiter}"', f"{self.delimiter}“")
                self.line = number
                yield text + "\n"

        begun, lines = 0, fed()
        for cells in csv.reader(lines, delimiter=self.delimiter):
            bare = [cell.strip().replace("\n", " ") for cell in cells]
            yield Row(begun + 1, cells, bare if any(bare) else [])
            begun = self.line

    def _are_headings(self, at: int, row: Row, most: int) -> bool:
        """At most a third of them figures, or as many as there are. A line that begins with `#` may be headings the first of
        which is `# GPUs`: then a row of figures stands below it."""
        cells = row.cells
        named = [cell for cell in cells if cell]
        whole = any(abs(len(cells) - width) <= 1 for width in self.widths) and 2 * len(named) >= max(4, len(cells))
        if not whole or most * sum(map(_figure, named)) > len(named):
            return False
        below = next((other.cells for other in self.first[at + 1 :] if other.cells), [])
        return not _COMMENT.match(cells[0]) or len(below) == len(cells) and not _COMMENT.match(below[0]) and (
            any(map(_figure, below)) and max(map(len, cells)) <= LONGEST_NAME)  # fmt: skip

    @property
    def headings(self) -> list[str]:
        return self.first[self.heads].cells if self.heads is not None else []

    @property
    def top(self) -> int:
        return self.first[self.heads or 0].line

    def below(self) -> Iterator[Row]:
        """Every row below the headings that is not blank."""
        rows = chain(self.first[(self.heads or 0) + 1 :], self.rows)
        return (row for row in rows if row.cells)

    def is_text(self, row: Row, width: int) -> bool:
        """Whether a row below headings of so many cells is a remark: a comment, or one cell alone that is no name."""
        named = [cell for cell in row.cells if cell]
        marked = _COMMENT.match(row.cells[0]) and (len(row.cells) != width or _SPACED.match(row.cells[0]))
        return bool(marked) or len(named) == 1 and bool(row.cells[0]) and width > 2 and (
            len(row.cells) < width or len(named[0]) > LONGEST_NAME or _SENTENCE.match(named[0]) is not None)  # fmt: skip

    def said(self) -> Iterator[tuple[str, Row]]:
        """(`blank`, `text`, `heading` or `row`; the row), in the order of the file."""
        gap, headings = True, self.headings
        following = chain(self.first, self.rows)
        row = next(following, None)
        at = 0
        while row is not None:
            below = next(following, None)
            if not row.cells:
                kind = "blank"
            elif at == self.heads:
                kind = "heading"
            elif self.heads is None or at < self.heads:
                kind = "text"
            elif row.cells == headings:
                kind = "again"
            elif self.is_text(row, len(headings)):
                kind = "text"
            else:
                kind = "heading" if gap and below is not None and _heads_another(row.cells, below.cells) else "row"
            headings = row.cells if kind == "heading" else headings
            if kind != "again":
                yield kind, row
            gap, row, at = kind in ("blank", "text"), below, at + 1


_FIGURE = re.compile(rf"[$€£~≈]? ?(?:{NUMBER.pattern})(?:[:/-]\d[\d:/.T-]*)*\s?(?:[^\W\d_]{{1,3}}|%|\W)?")


def _figure(cell: str) -> bool:
    """Whether a cell is a number, a date or a time, perhaps with a short unit, and no name."""
    return _FIGURE.fullmatch(clean(cell)) is not None


def _heads_another(cells: list[str], below: list[str]) -> bool:
    named = [cell for cell in cells if cell]
    return len(named) > 2 and len(cells) == len(below) and not any(map(_figure, named)) and (
        2 * sum(map(_figure, below)) >= len(named))  # fmt: skip


def pipes_of_export(export: Export) -> Iterator[Line]:
    """What is remarked between the rows of a table comes above it, for nothing to part them."""
    above: list[Line] = []
    table: list[Line] = []
    between: list[Line] = []
    for kind, row in export.said():
        line = row.line, _told(kind, row, export)
        if kind == "heading":
            yield from chain(above, table, between)
            above, between = [], []
            table = [(row.line, ""), line, (row.line, row_text(["---"] * len(row.cells)))]
        elif kind == "row" and table:
            above += [remark for remark in between if remark[1]]
            table.append(line)
            between = []
        else:
            (between if table else above).append(line)
    yield from chain(above, table, between)


def _told(kind: str, row: Row, export: Export) -> str:
    if kind != "text":
        return row_text(row.cells) if row.cells else ""
    # A comment's commas are its own; a setting that has its value in the next cell is told with a colon.
    if _COMMENT.match(row.cells[0]):
        return _COMMENT.sub("", f"{export.delimiter} ".join(row.cells), count=1).strip()
    return ": ".join(cell.rstrip(":") for cell in row.cells if cell)


def text_of_export(lines: Iterable[Line]) -> str:
    export = Export(lines)
    texts: list[str] = []
    for kind, row in export.said():
        texts += [""] * (row.line - 1 - len(texts)) + [_told(kind, row, export)]
    return "\n".join(texts)
