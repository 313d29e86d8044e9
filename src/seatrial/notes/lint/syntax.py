"""What the importer could not read as it stands, in lint's words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from seatrial.notes.lint.finding import Finding, Level
from seatrial.notes.lint.sheet import Sheet, field_of
from seatrial.tables import Problem, codec
from seatrial.tables.codec import PLAIN


def check(sheet: Sheet, problems: Iterable[Problem]) -> list[Finding]:
    found = []
    for problem in problems:
        cells = re.search(r"\bcells?\b.*\b(headings?|headers?|columns?)\b", problem.message)
        code = "cells-vs-header" if cells else "unreadable"
        level: Level = "error" if cells else "info" if problem.level == "note" else "warning"
        found.append(
            Finding(
                file=problem.file,
                line=problem.line,
                code=code,
                level=level,
                message=problem.message,
                column=problem.column or None,
                printed=problem.cell or None,
            )
        )
    told: set[tuple[str, str]] = set()
    for mates in sheet.tables.values():
        if mates[0].record.table is None:
            continue
        for heading in mates[0].record.printed:
            where = (mates[0].record.source_file, heading)
            if heading.strip() and where not in told and not _known(heading):
                told.add(where)
                found.append(
                    mates[0].find(
                        "unknown-column", "info", f'nothing is known about the column "{heading}": its cells are kept as text'
                    )
                )
    return found


def _known(heading: str) -> bool:
    """Also by the name of a record's field, as collections of rows have them, with the corrected value beside (`dp_fixed`)."""
    name = heading.removesuffix("_fixed")
    return bool(field_of(heading)) or name in codec.TYPES or name in PLAIN
