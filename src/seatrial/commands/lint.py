"""`seatrial lint`: what is wrong in benchmark tables, with the evidence and a proposal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from seatrial.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from seatrial.options import FORMAT
from seatrial.terminal import say


def register(app: typer.Typer) -> None:
    app.command("lint", help="Find what is wrong in benchmark tables, and propose the value with the evidence.")(lint)


def lint(
    files: list[str] = typer.Argument(..., metavar="FILES...", help="Notes with tables, CSV files or logs."),
    as_json: bool = typer.Option(
        False, "--json", help="One JSON list: file, line, code, level, message, column, printed, proposed."
    ),
    level: str = typer.Option("info", "--level", help="The least that is shown: error, warning or info."),
    corrected: Path | None = typer.Option(
        None, "--corrected", metavar="OUT.csv", help="Also write the rows with what is proposed."
    ),
    reasons: Path | None = typer.Option(
        None, "--reasons", metavar="OUT.csv", help="Also write one line per proposed cell: field, was, is, why."
    ),
    form: Path | None = FORMAT,
) -> int:
    """Exit status 1 when there are errors, 0 otherwise."""
    from seatrial.fields import nearest
    from seatrial.notes.lint import look_at
    from seatrial.notes.lint.corrected import write, write_reasons
    from seatrial.notes.lint.findings import LEVELS

    if level not in LEVELS:
        raise BadInput(f"--level {level!r} is unknown; {nearest(level, LEVELS)}")
    for option, out in (("corrected", corrected), ("reasons", reasons)):
        if out is not None and str(out) in files:
            raise BadInput(f"--{option} {out} is one of the files that are read; name another")
    findings, sheet = look_at(files, format=form)
    errors = sum(finding.level == "error" for finding in findings)
    shown = [finding for finding in findings if LEVELS.index(finding.level) <= LEVELS.index(level)]  # type: ignore[arg-type]
    if corrected is not None:
        changed = write(sheet, findings, corrected)
        print(f"{corrected}: {changed} of {len(sheet.rows)} rows changed", file=sys.stderr)
    if reasons is not None:
        print(f"{reasons}: {write_reasons(sheet, findings, reasons)} cells changed", file=sys.stderr)
    if as_json:
        print(json.dumps([finding.to_dict() for finding in shown], indent=2, ensure_ascii=False))
    else:
        for finding in shown:
            at = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
            say(f"{at}: {finding.level} {finding.code}: {finding.message}")
        counts = {name: sum(finding.level == name for finding in findings) for name in LEVELS}
        said = ", ".join(f"{n} {name}{'s' if n != 1 and name != 'info' else ''}" for name, n in counts.items())
        print(f"{len(sheet.rows)} rows in {len(dict.fromkeys(files))} files: {said}", file=sys.stderr)
    return EXIT_FINDINGS if errors else EXIT_GOOD
