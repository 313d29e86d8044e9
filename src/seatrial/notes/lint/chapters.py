"""Chapters of one file as so many files: none of them says anything of another.

    records, problems, prose, names = apart(records, problems, prose)       under the names of their chapters
    together(findings, sheet, names)                                        under the name of their file again

Units, conventions, devices and formulas hold in the chapter whose text or rows have them. What no chapter has to itself, such
as the text above the first, speaks for all of them: see `Tree.chapters`.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.prose import Prose
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.read.outline import Chapters
from seatrial.record import Record
from seatrial.tables import Problem


def apart(
    records: Iterable[Record], problems: Iterable[Problem], prose: Mapping[str, Prose]
) -> tuple[list[Record], list[Problem], dict[str, Prose], dict[str, str]]:
    """Rows, problems and texts, and the file of each chapter by the name that it goes under."""
    records, problems, parts, names = list(records), list(problems), dict(prose), dict[str, str]()
    for file, text in prose.items():
        titled = text.has("\n#", "\n==", "\n--")
        lines = {record.source_line or 0 for record in records if record.source_file == file} if titled else ()
        chapters = text.hints.sections.chapters(lines) if lines else None
        if chapters is None or not chapters.sections:
            continue
        own = {part: f"{file}, chapter {number}" for number, part in enumerate(sorted(chapters.sections), 1)}
        parts |= {name: _heard(text, chapters, part) for part, name in {0: file, **own}.items()}
        names |= dict.fromkeys(own.values(), file)
        records = [replace(one, source_file=own.get(chapters.at(one.source_line or 0), file))
                   if one.source_file == file else one for one in records]  # fmt: skip
        problems = [replace(one, file=own.get(chapters.at(one.line), file)) if one.file == file else one for one in problems]
    return records, problems, parts, names


def _heard(text: Prose, chapters: Chapters, part: int) -> Prose:
    """The text of a chapter and what speaks for it, each line where it was."""
    heard = chapters.heard(part)
    return Prose(tuple(line if chapters.at(number) in heard else "" for number, line in enumerate(text.lines, 1)))


def together(findings: Iterable[Finding], sheet: Sheet, names: Mapping[str, str]) -> list[Finding]:
    if not names:
        return list(findings)
    for row in sheet.rows:
        if row.record.source_file in names:
            row.record = replace(row.record, source_file=names[row.record.source_file])
    sheet.prose = {file: text for file, text in sheet.prose.items() if file not in names}
    sheet.__dict__.pop("files", None)
    return [replace(one, file=names.get(one.file, one.file)) for one in findings]
