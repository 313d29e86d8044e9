"""Lint: what is wrong in a table of benchmark results, with the evidence and, where it points to one value, a proposal.

    from seatrial.notes import lint, read
    imported = read.import_file("notes.md")
    lint.lint(imported.records, imported.problems, prose={"notes.md": text})

Rules run from the certain to the plausible, and what an earlier one proposes is used by the later ones, so that a wrong DP is
reported once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from seatrial.notes.lint import (
    consensus,
    derived,
    divisible,
    duplicates,
    layout,
    model_size,
    plausible,
    shapes,
    status,
    syntax,
    throughput,
)
from seatrial.notes.lint.finding import CODES, Finding, in_order
from seatrial.notes.lint.prose import Prose
from seatrial.notes.lint.sheet import Sheet
from seatrial.record import Record
from seatrial.tables import Problem

__all__ = ["CODES", "Finding", "lint", "look"]


def lint(
    records: Iterable[Record], problems: Iterable[Problem] = (), *, prose: Mapping[str, str] | None = None
) -> list[Finding]:
    """`prose` is the whole text of each file by the name that its records carry: it may state the device and usable memory."""
    return look(records, problems, prose=prose)[0]


def look(
    records: Iterable[Record], problems: Iterable[Problem] = (), *, prose: Mapping[str, str] | None = None
) -> tuple[list[Finding], Sheet]:
    """The findings, and the rows with what the findings propose for them."""
    sheet = Sheet.of(records, {name: Prose.of(text) for name, text in (prose or {}).items()})
    found = syntax.check(sheet, problems)
    layout.count_processes(sheet)
    shapes.fill(sheet)
    found += consensus.establish(sheet)
    for rule in (layout, throughput, duplicates, divisible, derived, plausible, model_size, status):
        found += rule.check(sheet)  # type: ignore[attr-defined]
    return in_order(found, list(sheet.prose) or list(sheet.files)), sheet
