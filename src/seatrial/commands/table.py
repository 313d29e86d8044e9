"""`seatrial table`: the records of logbooks and files as tables.

seatrial table runs                          markdown: own trials short, imported rows as the notes have them
seatrial table runs --wide                   every column and digit
seatrial table runs --columns dp,tp,mfu      these alone
seatrial table notes.md --format csv         one row per record, to compute with
seatrial table runs notes.md --format json
"""
from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from seatrial.record import Record


class Format(StrEnum):
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


def register(app: typer.Typer) -> None:
    app.command("table", help="Records as a table: markdown, CSV or JSON.")(table_command)


def table_command(
    sources: list[Path] = typer.Argument(..., metavar="DIR|FILE...", help="Logbooks, and files that `seatrial import` reads."),
    form: Format = typer.Option(Format.MARKDOWN, "--format", help="How to write them."),
    source: bool = typer.Option(False, "--source", help="In markdown, a column with each row's file and line."),
    wide: bool = typer.Option(False, "--wide", help="In markdown, every column and digit of our own trials too."),
    columns: str = typer.Option("", help="In markdown, these alone, with commas: dp,sec_per_it, an axis, memory.weights."),
) -> int:
    """Exit status 1 when a file had a cell or a row that could not be read."""
    from seatrial.errors import BadInput
    from seatrial.tables.csvjson import to_csv, to_json
    from seatrial.tables.markdown import to_markdown
    from seatrial.tables.short import to_short

    if columns and (wide or source or form is not Format.MARKDOWN):
        raise BadInput("--columns chooses columns of a markdown table: leave out --wide, --source and --format")

    records: list[Record] = []
    unread = False
    for path in sources:
        for item in _read(path):
            if isinstance(item, str):
                print(item, file=sys.stderr)
                unread = True
            else:
                records.append(item)
    if form is Format.MARKDOWN:
        chosen = [name for name in columns.split(",") if name.strip()]
        every = wide or source
        sys.stdout.write(to_markdown(records, source=source) if every else to_short(records, columns=chosen))
    else:
        sys.stdout.write(to_csv(records) if form is Format.CSV else to_json(records))
    if not records:
        print(f"seatrial: no records in {', '.join(map(str, sources))}", file=sys.stderr)
    return 1 if unread else 0


def _read(path: Path) -> Iterator[Record | str]:
    """Records, and a line for each thing that could not be read."""
    from seatrial.errors import BadInput
    from seatrial.record import Record

    if path.is_dir():
        from seatrial.logbook import Logbook

        with Logbook(path) as book:
            for data in book.records():
                try:
                    yield Record.from_dict({key: value for key, value in data.items() if key != "schema"}, where=str(path))
                except BadInput as error:
                    yield str(error)
            for problem in book.problems():
                yield str(problem)
        return
    from seatrial.notes.read import iter_file

    for found in iter_file(path):
        if isinstance(found, Record):
            yield found
        elif found.level != "note":
            yield str(found)
