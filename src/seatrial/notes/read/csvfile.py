"""CSV and TSV files of runs: our own, which come back to the last bit, and anybody's, read like the tables in notes.

    for found in read_csv(path, "rows.csv"): ...

Columns of a collection that are named as the fields of a record (`dp`, `sec_per_it`, `mem_unit`) are those fields; metrics a
step are a run (`series.py`); everything else is a table as any in notes (`exported.py`), with the comments and titles around it
as its text. `activation_ckpt`, `status` and `line_no` are known from hand-kept collections.
"""
from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seatrial.errors import BadInput
from seatrial.notes.read.exported import Export, pipes_of_export
from seatrial.notes.read.files import LONGEST_LINE, read_lines
from seatrial.notes.read.markdown import read_piped
from seatrial.notes.read.rows import columns_left
from seatrial.notes.read.series import is_series, runs_of_rows
from seatrial.plaindata import MOST_FIGURE, parse_json
from seatrial.record import ABOVE_ZERO, Record
from seatrial.tables import Problem, Where, codec
from seatrial.tables.codec import LISTS, PLAIN, STRUCTURED
from seatrial.tables.csvjson import OWN_MARK, own_row, printed_digits
from seatrial.tables.headings import NUMBER, read_heading

_STATUS: dict[str, tuple[str, str]] = {
    "ok": ("measured", ""), "measured": ("measured", ""), "estimated": ("estimated", ""), "not_run": ("planned", ""),
    "planned": ("planned", ""), "oom": ("failed", "oom_device"), "hang": ("failed", "hang"), "fail": ("failed", "crash"),
}  # fmt: skip
"""A collection's status -> state, and the outcome's status where it failed."""
_FORMULAS = {"old": "megatron-2022-old", "new": "sc21"}


def read_csv(path: Path, name: str, *, each: bool = False) -> Iterator[Record | Problem]:
    csv.field_size_limit(LONGEST_LINE)
    export: Export | None = None
    try:
        export = Export(read_lines(path))
        headings = export.headings
        if is_series(headings):
            steps = ((row.line, dict(zip(headings, row.raw))) for row in export.below())
            for run in runs_of_rows(name, steps):
                yield from run.records(each=each)
        elif (read := _row_reader(headings)) is not None:
            yield from columns_left(headings, Where(file=name, line=export.top))
            for row in export.below():
                yield from read(row.raw, Where(file=name, line=row.line, table=0))
        else:
            yield from _anybodys(export, path, name)
    except csv.Error as error:
        raise BadInput(f"{path}:{export.line if export else 1}: {error}") from error


def _anybodys(export: Export, path: Path, name: str) -> Iterator[Record | Problem]:
    """Read as tables in notes are; a file in which none has figures is not one of runs."""
    found = list(read_piped(pipes_of_export(export), path, name))
    if export.headings and not any(isinstance(one, Record) or one.rows and not _is_idle(one) for one in found):
        told = ", ".join(export.headings)[:100]
        raise BadInput(f"{path}: no column of a run among {told}; known are DP, TP, PP, MBS, GBS, Sec/it, TFLOPs …")
    yield from found


def _is_idle(problem: Problem) -> bool:
    """Whether the rows of a table that was left have hardly a figure."""
    figures = sum(NUMBER.match(cell) is not None for record in problem.left for cell in record.printed.values())
    return bool(problem.left) and figures < 2 * len(problem.left)


Reader = Callable[[Sequence[str], Where], Iterator[Record | Problem]]


def _row_reader(headings: list[str]) -> Reader | None:
    """Of our own files, and of collections whose columns are the fields of a record."""
    if headings and headings[-1] == OWN_MARK:
        return lambda cells, where: iter([own_row(headings, cells, where)])
    fields = [PLAIN.get(heading, heading) for heading in headings]
    known = sum(name in codec.TYPES or name == "status" for name in fields)
    # `sec/it` or `mem` beside `dp` and `tp` is a person's table: a cell such as `22GB` has to be read, not kept as text.
    named = all(name in codec.TYPES or name == "status" or not read_heading(name).field for name in fields)
    if known >= 4 and 2 * known > len(fields) and named:
        return lambda cells, where: _named_row(fields, headings, cells, where)
    return None


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
