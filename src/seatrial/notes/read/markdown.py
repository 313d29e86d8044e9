"""Benchmark notes: their tables, log lines and lists as records, with the settings that the text around them states.

    for found in read_markdown(path): a Record or a Problem, in the order of the file

The file is read twice, line by line: first its text (legends and `above too` stand after the rows they explain), then its
rows. Memory holds the text's statements and never the tables.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from seatrial.errors import BadInput
from seatrial.notes.read.files import read_lines
from seatrial.notes.read.lists import ListReader
from seatrial.notes.read.megatron import LogReader
from seatrial.notes.read.outline import Outline
from seatrial.notes.read.rows import blank_row, fits, row_record
from seatrial.notes.read.tables import Token, is_table_of_runs, scan, split_row
from seatrial.record import Record
from seatrial.tables import Problem, Where, codec
from seatrial.tables.headings import Column, read_heading, settle
from seatrial.tables.markdown import MARK, read_own_row

Found = Record | Problem
MOST_TOO_MANY = 4
"""Cells too many up to which an empty one among them is looked for."""


def read_markdown(path: Path, name: str) -> Iterator[Found]:
    outline = Outline()
    own = False
    for token in scan(read_lines(path)):
        if token.kind == "mark":
            own = True
        elif token.kind == "text":
            try:
                outline.read(token.line, token.text)
            except BadInput as error:
                raise BadInput(f"{path}: {error}") from None
            own = own and not token.text.strip()
        elif not own:
            outline.rows_at(token.text)
    yield from _Walk(name, outline).read(scan(read_lines(path)))


class _Walk:
    """The second reading: rows, log lines and lists, each with what holds around it."""

    def __init__(self, file: str, outline: Outline):
        self.file, self.outline = file, outline
        self.log = LogReader(file, outline, alone=False)
        self.lists = ListReader(file, outline)
        self.table = -1
        self.columns: list[Column] = []
        self.header: Token | None = None
        self.own = self.of_runs = False
        self.title = self.own_section = ""
        """The last heading, and the one that a table of our own belongs to."""
        self.unknown = 0
        """Rows of a table that is not one of runs."""
        self.strays: tuple[Token, int] | None = None
        """The first of the rows outside any table, and how many they are."""
        self.logged: list[Record] = []
        """Iterations of the current section, for tables that repeat them without their time."""

    def read(self, tokens: Iterator[Token]) -> Iterator[Found]:
        marked = False
        handlers: dict[str, Callable[[Token], Iterator[Found]]] = {"row": self._row, "log": self._log_line, "text": self._text}
        for token in tokens:
            if token.kind != "stray" and self.strays:
                yield from self._end_strays()
            if token.kind == "mark":
                marked = True
                self.own_section = self.title if token.text.strip() == MARK else ""
            elif token.kind.startswith("header"):
                yield from self._begin_table(token, own=marked)
                marked = False
            elif token.kind == "stray":
                self.strays = (self.strays[0], self.strays[1] + 1) if self.strays else (token, 1)
            else:
                yield from handlers[token.kind](token)
        yield from self._end_strays()
        yield from self._end_table()
        yield from self.lists.flush()
        yield from self._logs(self.log.flush(end=True))

    def _begin_table(self, token: Token, *, own: bool) -> Iterator[Found]:
        yield from self._end_table()
        yield from self.lists.flush()
        yield from self._logs(self.log.flush())
        headings = split_row(token.text)
        # A table of ours that somebody gave a column of their own is read like anybody's.
        self.header, self.own = token, own and all(map(codec.is_heading, headings))
        self.columns = settle([read_heading(heading) for heading in headings])
        self.of_runs = is_table_of_runs(self.columns)
        self.table += 1
        if token.kind == "header without alignment":
            message = "no alignment row (| --- | --- |) under these headings; read as a table all the same"
            yield Problem(file=self.file, line=token.line, cell=token.text[:80], message=message, level="note")

    def _end_table(self) -> Iterator[Found]:
        if self.unknown and self.header is not None:
            names = ", ".join(column.heading for column in self.columns)[:80]
            message = f"a table that is not one of runs ({names}): {self.unknown} rows left out"
            yield Problem(file=self.file, line=self.header.line, message=message, level="note", rows=self.unknown)
        self.header, self.columns, self.unknown = None, [], 0

    def _end_strays(self) -> Iterator[Found]:
        if self.strays is None:
            return
        (first, count), self.strays = self.strays, None
        message = f"{count} rows outside any table: there are no headings above them"
        level: Literal["note", "row"] = "note" if first.fenced else "row"
        yield Problem(file=self.file, line=first.line, cell=first.text[:80], message=message, level=level, rows=count)

    def _row(self, token: Token) -> Iterator[Found]:
        cells = split_row(token.text)
        if blank_row(cells):
            return
        where = Where(file=self.file, line=token.line, table=self.table)
        if self.own:
            headings = [column.heading for column in self.columns]
            yield read_own_row(headings, cells, where=where, section=self.own_section)
            return
        if not self.of_runs:
            self.unknown += 1
            return
        problems: list[Problem] = []
        if len(cells) != len(self.columns):
            cells, message = refit(self.columns, cells)
            problems.append(Problem(file=self.file, line=token.line, cell=token.text[:120], message=message, level="note"))
        record, more = row_record(self.columns, cells, outline=self.outline, where=where)
        yield from problems
        yield from more
        if record is not None:
            yield self._with_logged_time(record)

    def _with_logged_time(self, record: Record) -> Record:
        """A table that repeats a log line's rate without its time: the time is the log's, and marked as inferred."""
        if (
            record.sec_per_it is not None
            or record.tflops is None
            or any(column.field == "sec_per_it" for column in self.columns)
        ):
            return record
        same = [r for r in self.logged if r.section == record.section and r.tflops == record.tflops]
        same = [r for r in same if not (r.size_label and record.size_label) or r.size_label == record.size_label]
        if len(same) != 1:
            return record
        inferred = tuple(sorted({*record.inferred, "sec_per_it"}))
        return dataclasses.replace(record, sec_per_it=same[0].sec_per_it, time_unit=same[0].time_unit, inferred=inferred)

    def _log_line(self, token: Token) -> Iterator[Found]:
        yield from self._end_table()
        yield from self.lists.flush()
        yield from self._logs(self.log.feed(token.line, token.text))

    def _logs(self, found: Iterator[Found]) -> Iterator[Found]:
        for item in found:
            if isinstance(item, Record):
                self.logged = [*self.logged[-63:], item]
            yield item

    def _text(self, token: Token) -> Iterator[Found]:
        if token.text.strip():
            yield from self._end_table()
            if token.text.lstrip().startswith("#"):
                self.title = codec.decode(token.text.strip().lstrip("#").strip())
                yield from self._logs(self.log.flush())
        yield from self.lists.feed(token.line, token.text)


def refit(columns: Sequence[Column], cells: Sequence[str]) -> tuple[list[str], str]:
    """The cells under their headings when there are more or fewer than headings, and what was done."""
    counts = f"{len(cells)} cells under {len(columns)} headings"
    if len(cells) < len(columns):
        return [*cells, *[""] * (len(columns) - len(cells))], f"{counts}: the last {len(columns) - len(cells)} taken as empty"
    kept, dropped = list(cells), []
    if len(cells) > len(columns) + MOST_TOO_MANY:
        return [*kept[: len(columns) - 1], " ".join(kept[len(columns) - 1 :])], f"{counts}: the last ones read as one"
    while len(kept) > len(columns):
        empty = [i for i, cell in enumerate(kept) if cell.strip("-–— ") == ""]
        if not empty:
            rest = " ".join(kept[len(columns) - 1 :])
            return [*kept[: len(columns) - 1], rest], f"{counts}: the last ones read as one"
        # The empty cell without which most of the others stand under a heading they can belong to; of equals the last.
        best = max(empty, key=lambda i: (sum(fits(c, cell) for c, cell in zip(columns, kept[:i] + kept[i + 1 :])), i))
        dropped.append(best + 1)
        del kept[best]
    return kept, f"{counts}: empty cell {', '.join(map(str, dropped))} left out"
