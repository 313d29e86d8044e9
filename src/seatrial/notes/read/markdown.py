"""Benchmark notes: their tables, log lines and lists as records, with the settings that the text around them states.

    for found in read_markdown(path, "notes.md"): ...        a Record or a Problem, in the order of the file

The lines are gone through twice: first their text (legends and `above too` stand after the rows they explain), then their rows.
"""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from seatrial.errors import BadInput
from seatrial.notes.read.logs import LogReader
from seatrial.notes.read.outline import HEADING, Chapters, Outline, Question, Tree
from seatrial.notes.read.parsing import read_cell
from seatrial.notes.read.reshaped import reshaped
from seatrial.notes.read.rows import as_above, blank_row, columns_left, is_table_of_runs, left_record, refit, row_record
from seatrial.notes.read.scan import Token, lines_of, scan, split_row
from seatrial.notes.read.sentences import Hints
from seatrial.notes.read.told import Told
from seatrial.record import Record
from seatrial.tables import Problem, Where, codec
from seatrial.tables.headings import MEASURES, Column, read_heading, settle
from seatrial.tables.markdown import MARK, read_own_row

MOST_LEFT = 200
"""Rows of a table that is not one of runs which are kept."""


def read_markdown(path: Path, name: str) -> Iterator[Record | Problem]:
    return _read(list(scan(lines_of(path))), path, name)


def read_piped(lines: Iterable[tuple[int, str]], path: Path, name: str) -> Iterator[Record | Problem]:
    """The same of tables that stand between pipes already."""
    return _read(list(scan(reshaped(lines))), path, name)


def _read(tokens: list[Token], path: Path, name: str) -> Iterator[Record | Problem]:
    chapters = _chapters(tokens)
    part = {token.line: chapters.at(token.line) for token in tokens} if chapters.sections else {}
    table = -1
    outlines: dict[int, Outline] = {}
    hints = Hints.of(tokens)
    for chapter, own in groupby(tokens, key=lambda token: part.get(token.line, 0)) if part else [(0, iter(tokens))]:
        if chapter not in outlines:
            heard = chapters.heard(chapter)
            outlines[chapter] = _outline(path, (token for token in tokens if not part or part[token.line] in heard))
        walk = _Walk(name, outlines[chapter], table)
        told = Told(hints.heard(chapters, chapter) if part else hints)
        for found in walk.read(own):
            yield _told(found, told, outlines[chapter]) if isinstance(found, Record) else found
        table = walk.table


def _told(record: Record, told: Told, outline: Outline) -> Record:
    """With what sentences say of it, where no line above that is little else has said so, or two have disagreed."""
    around = outline.around(record.source_line or 0, record.size_label)
    return told.of(record, {question.field for question in around.questions})


def _chapters(tokens: Iterable[Token]) -> Chapters:
    """By the headings, and the rows of tables of runs and of logs under them."""
    tree, rows, of_runs = Tree(), set[int](), False
    for token in tokens:
        if token.kind == "text":
            heading = HEADING.match(token.text) if "#" in token.text and not token.fenced else None
            if heading:
                tree.open(token.line, len(heading.group(1)), heading.group(2))
        elif len(tree.sections) > 1:
            if token.kind.startswith("header"):
                of_runs = is_table_of_runs(settle([read_heading(heading) for heading in split_row(token.text)]))
            if token.kind == "log" or of_runs and token.kind == "row":
                rows.add(token.line)
    return tree.chapters(rows)


def _outline(path: Path, tokens: Iterable[Token]) -> Outline:
    outline = Outline()
    own = False
    for token in tokens:
        if token.kind == "mark":
            own = True
        elif token.kind == "text":
            try:
                outline.read(token.line, token.text, code=token.fenced)
            except BadInput as error:
                raise BadInput(f"{path}: {error}") from None
            own = own and not token.text.strip()
        elif not own:
            outline.rows_at(token.text, token.line, begins=token.kind.startswith("header"))
    return outline


class _Walk:
    """The second reading: rows, log lines and lists, each with what holds around it."""

    def __init__(self, file: str, outline: Outline, table: int = -1):
        self.file, self.outline, self.table = file, outline, table
        self.log = LogReader(file, outline, alone=False)
        self.lists = ListReader(file, outline)
        self.columns: list[Column] = []
        self.header: Token | None = None
        self.own = self.of_runs = False
        self.title = self.own_section = ""
        """The last heading, and the one that a table of our own belongs to."""
        self.above: list[str] = []
        self.unknown = 0
        """Rows of a table that is not one of runs."""
        self.left: list[Record] = []
        """The first of them, as they would be read."""
        self.strays: tuple[Token, int] | None = None
        """The first of the rows outside any table, and how many they are."""
        self.asked: set[Question] = set()
        self.logged: list[Record] = []
        """Iterations of the current section, for tables that repeat them without their time."""

    def read(self, tokens: Iterable[Token]) -> Iterator[Record | Problem]:
        marked = False
        handlers = {"row": self._row, "log": self._log_line, "text": self._text}
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

    def _begin_table(self, token: Token, *, own: bool) -> Iterator[Record | Problem]:
        yield from self._end_table()
        yield from self.lists.flush()
        yield from self._logs(self.log.flush())
        headings = split_row(token.text)
        # A table of ours that somebody gave a column of their own is read like anybody's.
        self.header, self.own = token, own and all(map(codec.is_heading, headings))
        self.columns = self.outline.settled(settle([read_heading(heading) for heading in headings]), token.line)
        self.of_runs = is_table_of_runs(self.columns)
        self.table += 1
        if token.kind == "header without alignment":
            message = "no alignment row (| --- | --- |) under these headings; read as a table all the same"
            yield Problem(file=self.file, line=token.line, cell=token.text[:80], message=message, level="note")
        if self.of_runs and not self.own:
            yield from columns_left(headings, Where(file=self.file, line=token.line))

    def _end_table(self) -> Iterator[Record | Problem]:
        if self.unknown and self.header is not None:
            names = ", ".join(column.heading for column in self.columns)[:80]
            message = f"a table that is not one of runs ({names}): {self.unknown} rows left out"
            yield Problem(file=self.file, line=self.header.line, message=message, level="note", rows=self.unknown,
                          left=tuple(self.left))  # fmt: skip
        self.header, self.columns, self.above, self.unknown, self.left = None, [], [], 0, []

    def _end_strays(self) -> Iterator[Record | Problem]:
        if self.strays is None:
            return
        (first, count), self.strays = self.strays, None
        message = f"{count} rows outside any table: there are no headings above them"
        level: Literal["note", "row"] = "note" if first.fenced else "row"
        yield Problem(file=self.file, line=first.line, cell=first.text[:80], message=message, level=level, rows=count)

    def _row(self, token: Token) -> Iterator[Record | Problem]:
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
            if len(self.left) < MOST_LEFT and len(cells) == len(self.columns):
                self.left.append(left_record(self.columns, cells, outline=self.outline, where=where))
            return
        problems: list[Problem] = []
        if len(cells) != len(self.columns):
            cells, message = refit(self.columns, cells)
            problems.append(Problem(file=self.file, line=token.line, cell=token.text[:120], message=message, level="note"))
        cells = self.above = as_above(self.columns, cells, self.above)
        record, more = row_record(self.columns, cells, outline=self.outline, where=where)
        yield from problems
        yield from more
        yield from self._questions(token.line, record)
        if record is not None:
            yield self._with_logged_time(record)

    def _questions(self, line: int, record: Record | None) -> Iterator[Problem]:
        """What the text above says in two ways, where the row leaves it open; once for all the rows under it."""
        for question in self.outline.around(line, record.size_label if record else "").questions:
            open_ = record is not None and getattr(record, question.field, "") in (None, "")
            if open_ and question not in self.asked:
                self.asked.add(question)
                yield Problem(file=self.file, line=question.values[-1].line, message=str(question), level="note")

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

    def _log_line(self, token: Token) -> Iterator[Record | Problem]:
        yield from self._end_table()
        yield from self.lists.flush()
        yield from self._logs(self.log.feed(token.line, token.text))

    def _logs(self, found: Iterator[Record | Problem]) -> Iterator[Record | Problem]:
        for item in found:
            if isinstance(item, Record):
                self.logged = [*self.logged[-63:], item]
            yield item

    def _text(self, token: Token) -> Iterator[Record | Problem]:
        if token.text.strip():
            yield from self._end_table()
            if token.text.lstrip().startswith("#") and not token.fenced:
                self.title = codec.decode(token.text.strip().lstrip("#").strip())
                yield from self._logs(self.log.flush())
        yield from self.lists.feed(token.line, token.text)


_ITEM = re.compile(r"\s*[-*+]\s+([^:|=]{1,40}?)\s*[:=]\s*(\S.{0,60})$")
LONGEST_ITEM, MOST_ITEMS = 120, 100
_PARTS = r"(?:nodes?|gpus?|ranks?|stages?|devices?|hosts?)"
_PART = re.compile(
    rf"(?:\d+(?:st|nd|rd|th)|first|last|middle|other|all|each|every|max|min|worst)\b.*\b{_PARTS}\b|"
    rf"{_PARTS}\W?\d[\d,–-]*",
    re.IGNORECASE,
)
"""Which part of a job a figure is of: `1st node`, `rank 0`. `GPU memory` alone is what the machine has."""
_HAS = re.compile(r"\b(?:per|a|each)\b|/|\b[x×]\b", re.IGNORECASE)
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
            if _PART.fullmatch(key) and cell.value is not None and cell.unit:
                parts.append((number, key, text, cell))
                continue
            column = _TFLOPS if key.lower() in ("performance", "perf") else read_heading(key)
            if column.field in MEASURES:
                cell = read_cell(column, text)
                if (
                    cell.value is not None
                    and not cell.unread
                    and (column is not _TFLOPS or "flop" in cell.unit.lower())
                    and not (column.field == "mem_value" and _HAS.search(text))
                ):
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
        return Record(state="measured", source_file=self.file, source_line=line, section=around.section,
                      printed=printed, env=around.env, extra=around.extra, context=around.values,
                      inferred=tuple(sorted(around.inferred - own.keys())), **values)  # fmt: skip
