"""`seatrial table`: the records of logbooks and files as tables.

seatrial table runs                          markdown: own trials short, imported rows as the notes have them
seatrial table runs --where "status == 'ok' and tp == 2" --sort -mfu --top 5
seatrial table runs --wide                   every column and digit
seatrial table runs --columns dp,tp,mfu      these alone
seatrial table notes.md --format csv         one row per record, to compute with
seatrial table runs notes.md --format json
"""
from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path

import typer

WHERE = "Rows for which this holds, as \"tp == 2 and status == 'ok' and mfu > 0.3\": of any field, axis or setting; repeatable."


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
    where: list[str] = typer.Option([], "--where", show_default=False, help=WHERE),
    sort: str = typer.Option("", "--sort", metavar="COL[,-COL]", help="By these; - before one for the largest first.",
                             show_default=False),
    top: int = typer.Option(None, "--top", min=1, help="The first so many.", show_default=False),
) -> int:
    """Exit status 1 when a file had a cell or a row that could not be read."""
    from seatrial import terminal
    from seatrial.errors import BadInput
    from seatrial.report.read import read
    from seatrial.tables.choose import chosen as chosen_rows
    from seatrial.tables.csvjson import to_csv, to_json
    from seatrial.tables.markdown import to_markdown
    from seatrial.tables.short import to_short

    if columns and (wide or source or form is not Format.MARKDOWN):
        raise BadInput("--columns chooses columns of a markdown table: leave out --wide, --source and --format")

    records, unread = read(sources)
    for line in unread:
        print(line, file=sys.stderr)
    there = len(records)
    records = chosen_rows(records, where=where, sort=sort, top=top)
    if form is Format.MARKDOWN:
        chosen = [name for name in columns.split(",") if name.strip()]
        every = wide or source
        text = to_markdown(records, source=source) if every else to_short(records, columns=chosen)
        if sys.stdout.isatty() and not every:
            from seatrial.tables.fit import fitted

            text = fitted(text, terminal.width())
        sys.stdout.write(text)
    else:
        sys.stdout.write(to_csv(records) if form is Format.CSV else to_json(records))
    if there and not records:
        print(f"seatrial: none of {there} rows is so: {' and '.join(where)}", file=sys.stderr)
    elif not records:
        print(f"seatrial: no records in {', '.join(map(str, sources))}", file=sys.stderr)
    return 1 if unread else 0
