"""Chapters of one file as so many files: none of them says anything of another.

    records, problems, prose, names = apart(records, problems, prose)       under the names of their chapters
    sheet = Sheet.of(records, prose, names)                                 row.file is that of all its chapters

Units, conventions, devices and formulas hold in the chapter whose text or rows have them. What no chapter has to itself, such
as the text above the first, speaks for all of them: see `Tree.chapters`.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from seatrial.notes.lint.text.prose import Prose
from seatrial.record import Record
from seatrial.tables import Problem


def apart(
    records: Iterable[Record], problems: Iterable[Problem], prose: Mapping[str, Prose]
) -> tuple[list[Record], list[Problem], dict[str, Prose], dict[str, str]]:
    """Rows, problems and texts, and the file of each chapter by the name that it goes under."""
    records, problems, parts, names = list(records), list(problems), dict(prose), dict[str, str]()
    rows: dict[str, list[int]] = {}
    for at, record in enumerate(records):
        rows.setdefault(record.source_file, []).append(at)
    for file, text in prose.items():
        places = rows.get(file, []) if text.has("\n#", "\n==", "\n--") else []
        chapters = text.hints.sections.chapters({records[at].source_line or 0 for at in places}) if places else None
        if chapters is None or not chapters.sections:
            continue
        own = {part: f"{file}, chapter {number}" for number, part in enumerate(sorted(chapters.sections), 1)}
        parts |= {name: text.heard(chapters, part) for part, name in {0: file, **own}.items()}
        names |= dict.fromkeys(own.values(), file)
        for at in places:
            if part := chapters.at(records[at].source_line or 0):
                records[at] = records[at].changed({"source_file": own[part]})
        problems = [replace(one, file=own.get(chapters.at(one.line), file)) if one.file == file else one for one in problems]
    return records, problems, parts, names
