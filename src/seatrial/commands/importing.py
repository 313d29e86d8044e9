"""`seatrial import`: benchmark notes, logs, CSV and JSON into a logbook, all of it or nothing.

seatrial import notes.md train.log --logbook runs
seatrial import rows.csv --logbook runs --json
seatrial import train.log --logbook runs --per-iteration
seatrial import mine.log --logbook runs --format mine.toml
"""
from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import typer

from seatrial.options import FORMAT
from seatrial.terminal import say

BATCH = 10_000
"""Records in one write: fewer are all or nothing, more are written once all were read, and writing again adds none twice."""
SHOWN = 20
"""Problems printed for one file; the rest is counted."""


def register(app: typer.Typer) -> None:
    app.command("import", help="Tables, logs, CSV and JSON of runs into a logbook.")(import_command)


def import_command(
    files: list[Path] = typer.Argument(..., metavar="FILE...", help="Notes with tables, logs, event files, CSV, TSV or JSON."),
    logbook: Path = typer.Option(..., "--logbook", metavar="DIR", help="Where the records go; made if it is not there."),
    as_json: bool = typer.Option(False, "--json", help="One JSON document: counts, and every problem."),
    per_iteration: bool = typer.Option(False, "--per-iteration", help="A record for each step of a log, not for each run."),
    form: Path | None = FORMAT,
    largest_mib: float = typer.Option(64, "--largest-mib", metavar="N", help="Refuse notes and tables above this size."),
) -> int:
    """Every file is read before anything is written. Exit status 1 when a cell, a row or one of several logs could not be
    read."""
    from seatrial.logbook import Logbook
    from seatrial.notes.read import Problem, iter_file
    from seatrial.notes.read.files import SilentLog, nothing

    problems: list[tuple[Path, list[Problem], list[str]]] = []
    counts: list[int] = []
    states: Counter[str] = Counter()
    silent: SilentLog | None = None
    with _Waiting() as rows:
        for path in files:
            before, found, columns = len(rows), [], dict[str, None]()
            try:
                for item in iter_file(path, largest_mib=largest_mib, each=per_iteration, format=form):
                    if isinstance(item, Problem) and item.columns:
                        columns.update(dict.fromkeys(item.columns))
                    elif isinstance(item, Problem):
                        found.append(item)
                    else:
                        rows.add(item.to_dict())
                        states[item.state] += 1
                if len(rows) == before and not any(problem.rows for problem in found):
                    raise nothing(path, "no table of runs, log line or row in it; --format FILE.toml describes a log format")
            except SilentLog as error:
                silent = silent or error
                found.append(Problem(file=str(path), line=1, message=str(error).removeprefix(f"{path}: ")))
            problems.append((path, found, list(columns)))
            counts.append(len(rows) - before)
        if silent is not None and not len(rows):
            raise silent
        with Logbook(logbook, create=True) as book:
            held = len(book)
            for batch in rows.batches():
                book.append_many(batch)
            new = len(book) - held
    unread = any(problem.level != "note" for _, found, _ in problems for problem in found)
    if as_json:
        _print_json(logbook, len(rows), new, states, list(zip(problems, counts)))
    else:
        for path, found, unknown in problems:
            _print_problems(found)
            if unknown:
                say(f"{path}: no field takes {', '.join(unknown)}: kept as text", to=sys.stderr)
        said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        say(f"{len(rows)} records from {len(files)} file{'s' if len(files) > 1 else ''} in {logbook} ({said}); {new} are new")
    return 1 if unread else 0


class _Waiting:
    """Records that wait until every file is read: a batch in memory, and what is more in a file that vanishes with us."""

    def __init__(self) -> None:
        self._batch: list[dict[str, Any]] = []
        self._file: IO[str] | None = None
        self._count = 0

    def __enter__(self) -> _Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return self._count

    def add(self, row: dict[str, Any]) -> None:
        self._batch.append(row)
        self._count += 1
        if len(self._batch) == BATCH:
            self._file = self._file or tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed on exit)
            self._file.writelines(json.dumps(row) + "\n" for row in self._batch)
            self._batch = []

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        if self._file is not None:
            self._file.seek(0)
            while batch := [json.loads(line) for line in itertools.islice(self._file, BATCH)]:
                yield batch
        if self._batch:
            yield self._batch


def _print_problems(found: list[Any]) -> None:
    for problem in found[:SHOWN]:
        say(str(problem), to=sys.stderr)
    if len(found) > SHOWN:
        print(f"{found[0].file}: {len(found) - SHOWN} more like these", file=sys.stderr)


def _print_json(logbook: Path, records: int, new: int, states: Counter[str], files: list[Any]) -> None:
    from dataclasses import asdict, replace

    listed = [
        {"file": str(path), "records": count, "unknown_columns": unknown,
         "problems": [{key: value for key, value in asdict(replace(problem, left=())).items() if key not in ("columns", "left")}
                      for problem in found]}
        for (path, found, unknown), count in files
    ]
    counted = {"records": records, "new": new, "states": dict(sorted(states.items()))}
    print(json.dumps({"logbook": str(logbook), **counted, "files": listed}))
