"""CSV and TSV files of runs: our own, which come back to the last bit, and anybody's, read like the rows of a table.

    for found in read_csv(path, "rows.csv"): ...

A column named as a field of a record (`dp`, `sec_per_it`, `mem_unit`) is that field; other headings go through the same names
as a table's; metrics a step are a run (`series.py`), and runs may stand side by side (`reshaped.py`). Lines above the headings
that begin with `#` are text about the rows. `activation_ckpt`, `status` and `line_no` are known from hand-kept collections.
"""
from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from seatrial.errors import BadInput
from seatrial.notes.read.files import LONGEST_LINE, read_lines
from seatrial.notes.read.outline import ROWS_SEARCHED, Outline
from seatrial.notes.read.reshaped import LONGEST_TABLE, is_turned, turned
from seatrial.notes.read.rows import as_above, blank_row, columns_left, is_table_of_runs, left_record, refit, row_record
from seatrial.notes.read.series import is_series, runs_of_rows
from seatrial.plaindata import MOST_FIGURE, parse_json
from seatrial.record import ABOVE_ZERO, Record
from seatrial.tables import Problem, Where, codec
from seatrial.tables.codec import LISTS, PLAIN, STRUCTURED
from seatrial.tables.csvjson import OWN_MARK, own_row, printed_digits
from seatrial.tables.headings import NUMBER, read_heading, settle

_STATUS: dict[str, tuple[str, str]] = {
    "ok": ("measured", ""), "measured": ("measured", ""), "estimated": ("estimated", ""), "not_run": ("planned", ""),
    "planned": ("planned", ""), "oom": ("failed", "oom_device"), "hang": ("failed", "hang"), "fail": ("failed", "crash"),
}  # fmt: skip
"""A collection's status -> state, and the outcome's status where it failed."""
_FORMULAS = {"old": "megatron-2022-old", "new": "sc21"}


def read_csv(path: Path, name: str, *, each: bool = False) -> Iterator[Record | Problem]:
    csv.field_size_limit(LONGEST_LINE)
    lines, outline = read_lines(path), Outline()
    first = next(lines, None)
    while first is not None and is_comment(first[1]):
        outline.read(first[0], first[1].lstrip("# "))
        first = next(lines, None)
    if first is None:
        return
    delimiter = delimiter_of(first[1])
    counter = _Counter(first, lines)
    reader = csv.reader(counter, delimiter=delimiter)
    try:
        headings = [heading.strip() for heading in next(reader)]
        if is_series(headings):
            steps = ((counter.line, dict(zip(headings, cells))) for cells in reader)
            for run in runs_of_rows(name, steps):
                yield from run.records(each=each)
            return
        rows = counter.rows(reader)
        first_rows = list(islice(rows, ROWS_SEARCHED))
        for _, cells in first_rows:
            outline.rows_at(" | ".join(cells))
        rows = chain(first_rows, rows)
        try:
            read = _row_reader(headings, path, outline)
        except BadInput:
            numbered = list(islice(rows, LONGEST_TABLE))
            below = [[cell.strip() for cell in cells] for _, cells in numbered]
            if len(below) < LONGEST_TABLE and not is_turned(headings, below) and _is_of_figures(headings, below):
                yield _left(headings, numbered, outline, Where(file=name, line=first[0], table=0))
                return
            if len(below) == LONGEST_TABLE or not is_turned(headings, below):
                raise
            headings, *made = turned(headings, below)
            read, rows = _row_reader(headings, path, outline), ((first[0], cells) for cells in made)
        yield from columns_left(headings, Where(file=name, line=first[0]))
        for line, cells in rows:
            yield from read(cells, Where(file=name, line=line, table=0))
    except csv.Error as error:
        raise BadInput(f"{path}:{counter.line}: {error}") from error


def _is_of_figures(headings: list[str], rows: list[list[str]]) -> bool:
    """Whether a table that is none of runs has columns of numbers beside a count of training, as budgets and phases do."""
    whole = len(rows) > 2 and all(len(cells) == len(headings) for cells in rows)
    figures = sum(all(NUMBER.match(cells[at]) for cells in rows) for at in range(len(headings))) if whole else 0
    return figures > 2 and any(read_heading(heading).field for heading in headings)


def _left(headings: list[str], rows: list[tuple[int, list[str]]], outline: Outline, where: Where) -> Problem:
    columns = settle([read_heading(heading) for heading in headings])
    left = tuple(left_record(columns, cells, outline=outline, where=replace(where, line=line)) for line, cells in rows)
    message = f"a table that is not one of runs ({', '.join(headings)[:80]}): {len(rows)} rows left out"
    return Problem(file=where.file, line=where.line, message=message, level="note", rows=len(rows), left=left)


class _Counter:
    """Feeds the csv module and remembers which line a row began on: a quoted cell may run over several."""

    def __init__(self, first: tuple[int, str], rest: Iterator[tuple[int, str]]):
        self._first: tuple[int, str] | None = first
        self._rest = rest
        self.line = 0

    def __iter__(self) -> Iterator[str]:
        if self._first is not None:
            self.line, text = self._first
            self._first = None
            yield text + "\n"
        for number, text in self._rest:
            self.line = number
            yield text + "\n"

    def rows(self, reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
        """Those that are not blank, each with the line it began on."""
        start = self.line + 1
        for cells in reader:
            if not blank_row(cells):
                yield start, cells
            start = self.line + 1


def delimiter_of(line: str) -> str:
    return max("\t;,", key=line.count)


def is_comment(line: str) -> bool:
    """Whether a line above the headings is text, and not headings the first of which is `# GPUs`."""
    cells = [cell.strip() for cell in line.split(delimiter_of(line))]
    text = not line.strip() or line.startswith("#") and len(cells) < 3
    return text or line.startswith("#") and not is_table_of_runs(settle([read_heading(cell) for cell in cells]))


def _row_reader(headings: list[str], path: Path, outline: Outline) -> Any:
    if headings and headings[-1] == OWN_MARK:
        return lambda cells, where: iter([own_row(headings, cells, where)])
    fields = [PLAIN.get(heading, heading) for heading in headings]
    known = sum(name in codec.TYPES or name == "status" for name in fields)
    # `sec/it` or `mem` beside `dp` and `tp` is a person's table: a cell such as `22GB` has to be read, not kept as text.
    named = all(name in codec.TYPES or name == "status" or not read_heading(name).field for name in fields)
    if known >= 4 and 2 * known > len(fields) and named:
        return lambda cells, where: _named_row(fields, headings, cells, where)
    columns = settle([read_heading(heading) for heading in headings])
    if not is_table_of_runs(columns):
        raise BadInput(
            f"{path}: no column of a run among {', '.join(headings)[:100]}; known are DP, TP, PP, MBS, GBS, Sec/it, TFLOPs …"
        )
    above: list[str] = []

    def foreign_row(cells: Sequence[str], where: Where) -> Iterator[Record | Problem]:
        if len(cells) != len(columns):
            cells, message = refit(columns, cells)
            yield Problem(file=where.file, line=where.line, message=message, level="note")
        above[:] = as_above(cells, above)
        record, problems = row_record(columns, above, outline=outline, where=where)
        yield from problems
        if record is not None:
            yield record

    return foreign_row


def _settings(cell: str) -> dict[str, str]:
    """`2.2GHz, LD_PRELOAD=libtcmalloc.so`: what has a name and a value."""
    pairs = (part.strip().strip('"').partition("=") for part in cell.split(","))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}


def _named_row(
    fields: Sequence[str], headings: Sequence[str], cells: Sequence[str], where: Where
) -> Iterator[Record | Problem]:
    """A row of a collection whose columns are named as the fields of a record, kept by hand or by another program."""
    try:
        data: dict[str, Any] = {"state": "measured"}
        extra: dict[str, str] = {}
        failed = ""
        for name, heading, cell in zip(fields, headings, cells):
            cell = cell.strip()
            if not cell or cell == "unstated":
                continue
            if name == "status":
                data["state"], failed = _STATUS.get(cell, ("measured", ""))
                extra[heading] = cell
            elif name == "recompute":
                data[name] = {"true": "full", "false": "none"}.get(cell.lower(), cell)
            elif name == "formula":
                data[name] = _FORMULAS.get(cell, cell)
            elif name == "flags":
                data[name] = cell.split()
            elif name == "context":
                data[name] = parse_json(cell)
            elif name == "env":
                data[name] = _settings(cell)
                extra[heading] = cell
            elif name in codec.TYPES and name not in STRUCTURED and name not in LISTS:
                value = codec.read_value(name, cell)
                if name in ABOVE_ZERO and not 0 < value <= MOST_FIGURE:
                    message = f"{heading}: {cell[:60]} is not above 0, or beyond any number"
                    yield Problem(file=where.file, line=where.line, column=heading, cell=cell, message=message)
                else:
                    data[name] = value
            else:
                extra[heading] = cell
        if failed:
            # A clock speed is what tables of machines without devices give.
            data["outcome"] = {"status": "oom_host" if failed == "oom_device" and "freq_ghz" in data else failed}
        if data["state"] == "failed" and (data.get("sec_per_it") or data.get("tflops")):
            data["state"] = "measured"
        data.setdefault("source_file", where.file)
        data.setdefault("source_line", where.line)
        yield Record.from_dict({**data, "extra": extra, "printed": printed_digits(headings, cells)})
    except (BadInput, ValueError) as error:
        yield Problem(file=where.file, line=where.line, message=str(error), level="row", rows=1, cell=",".join(cells)[:80])
