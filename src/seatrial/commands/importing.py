"""`seatrial import`: benchmark notes, logs, CSV and JSON into a logbook, all of it or nothing.

seatrial import notes.md train.log --logbook runs
seatrial import rows.csv --logbook runs --json
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import typer

SHOWN = 20
"""Problems printed for one file; the rest is counted."""


def register(app: typer.Typer) -> None:
    app.command("import", help="Tables, logs, CSV and JSON of runs into a logbook.")(import_command)


def import_command(
    files: list[Path] = typer.Argument(..., metavar="FILE...", help="Notes with tables, Megatron logs, CSV, TSV or JSON."),
    logbook: Path = typer.Option(..., "--logbook", metavar="DIR", help="Where the records go; made if it is not there."),
    as_json: bool = typer.Option(False, "--json", help="One JSON document: counts, and every problem."),
    largest_mib: float = typer.Option(64, "--largest-mib", metavar="N", help="Refuse notes and tables above this size."),
) -> int:
    """Every file is read before anything is written. Exit status 1 when a cell or a row could not be read."""
    from seatrial.errors import BadInput
    from seatrial.importers import Problem, iter_file
    from seatrial.logbook import Logbook

    rows: list[dict[str, Any]] = []
    problems: list[tuple[Path, list[Problem]]] = []
    counts: list[int] = []
    for path in files:
        before, found = len(rows), []
        for item in iter_file(path, largest_mib=largest_mib):
            if isinstance(item, Problem):
                found.append(item)
            else:
                rows.append(item.to_dict())
        if len(rows) == before and not any(problem.rows for problem in found):
            raise BadInput(f"{path}: no table of runs, log line or row in it")
        problems.append((path, found))
        counts.append(len(rows) - before)
    with Logbook(logbook, create=True) as book:
        held = len(book)
        book.append_many(rows)
        new = len(book) - held
    states = Counter(row["state"] for row in rows)
    unread = any(problem.level != "note" for _, found in problems for problem in found)
    if as_json:
        _print_json(logbook, rows, new, states, list(zip(problems, counts)))
    else:
        for _, found in problems:
            _print_problems(found)
        said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        print(f"{len(rows)} records from {len(files)} file{'s' if len(files) > 1 else ''} in {logbook} ({said}); {new} are new")
    return 1 if unread else 0


def _print_problems(found: list[Any]) -> None:
    for problem in found[:SHOWN]:
        print(problem, file=sys.stderr)
    if len(found) > SHOWN:
        print(f"{found[0].file}: {len(found) - SHOWN} more like these", file=sys.stderr)


def _print_json(logbook: Path, rows: list[dict[str, Any]], new: int, states: Counter[str], files: list[Any]) -> None:
    import json
    from dataclasses import asdict

    listed = [
        {"file": str(path), "records": count, "problems": [asdict(problem) for problem in found]}
        for (path, found), count in files
    ]
    counted = {"records": len(rows), "new": new, "states": dict(sorted(states.items()))}
    print(json.dumps({"logbook": str(logbook), **counted, "files": listed}))
