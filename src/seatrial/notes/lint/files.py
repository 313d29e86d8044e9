"""Lint over files, by the names they were given with.

findings, sheet = files.look_at(["a100.md", "fugaku.md"])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from seatrial.notes.lint import Finding, look
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.read import LARGEST_MIB, import_file


def look_at(paths: Iterable[str]) -> tuple[list[Finding], Sheet]:
    """All files together, so that a row copied from one into another is seen."""
    records, problems, prose = [], [], {}
    for path in dict.fromkeys(paths):
        imported = import_file(path)
        # A collection of rows names the notes that each was taken from: those lines are not lines of this file.
        name = Path(path).name
        records += [replace(record, source_file=path) if record.source_file == name else record for record in imported.records]
        problems += [replace(problem, file=path) for problem in imported.problems]
        # A log of many gigabytes has no sentences that would say anything about it.
        small = Path(path).stat().st_size <= LARGEST_MIB * 2**20
        prose[path] = Path(path).read_text(encoding="utf-8", errors="replace") if small else ""
    return look(records, problems, prose=prose)
