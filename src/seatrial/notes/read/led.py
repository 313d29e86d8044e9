"""Sections without a heading: paragraphs that begin with words in bold, numbered captions, and the dates of a diary, each with
a table of its own before the next.

    **Week 17** Booster, 13B, sequences of 2048:        ###### Week 17
    | nodes | s/it |                                    Booster, 13B, sequences of 2048:
    ...
    **Week 19** another machine, 8B:

They are led in by what stands there as a heading of the lowest level would: what one of them says is of its own tables. One
that has no table is a remark, and text as any other, unless such sections stand above it; and those who speak in turns speak of
the same thing.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

Line = tuple[int, str]
_LEAD = re.compile(r"\s{0,3}(?:\*\*(?P<bold>[^*|]{2,80}?)[.:]?\*\*[.:]?(?P<rest>\s(?!(?:commented|replied|wrote|opened)\b).*)?|"
                   r"(?P<number>\d{1,2}[.)] \S[^|]{3,80}))")  # fmt: skip
_MONTH = r"(?:jan|feb|m[aä]r|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-z]{0,6}\.?"
_DAY = re.compile(rf"\s{{0,3}}(?P<date>(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{{0,6}}\.?,? )?"
                  rf"(?:\d{{1,2}}(?:st|nd|rd|th|\.)? {_MONTH}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?|"
                  rf"\d{{4}}-\d{{2}}-\d{{2}})(?:,? \d{{4}})?)\s*:?\s*", re.IGNORECASE)
"""A line that is a date and nothing else."""
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
FEWEST = 2
"""Leads of one section that have a table, before they are taken for sections."""


def led_sections(lines: Iterable[Line]) -> Iterator[Line]:
    section: list[Line] = []
    fenced = False
    for number, line in lines:
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if not fenced and line.lstrip()[:1] == "#" and _HEADING.match(line):
            yield from _led(section)
            section = []
        section.append((number, line))
    yield from _led(section)


def _led(lines: list[Line]) -> Iterator[Line]:
    leads, first = {}, False
    before = ""
    for at, (_, line) in enumerate(lines):
        if not before.strip() and line and (match := _lead(line)):
            leads[at] = match
        before = line
    ends = [*leads, len(lines)][1:]
    tables = {at for at, end in zip(leads, ends) if any(line.lstrip()[:1] == "|" for _, line in lines[at:end])}
    for at, (number, line) in enumerate(lines):
        match = leads.get(at) if len(tables) >= FEWEST else None
        first = first or match is not None and at in tables
        if match is None or not first:
            yield number, line
            continue
        said = match.groupdict()
        yield number, f"###### {said.get('bold') or said.get('number') or said['date']}"
        if (said.get("rest") or "").strip():
            yield number, said["rest"].strip()


def _lead(line: str) -> re.Match[str] | None:
    if line.lstrip()[:1] in "*0123456789" and (match := _LEAD.fullmatch(line)):
        return match
    return _DAY.fullmatch(line) if len(line) < LONGEST_DATE and not line.isspace() else None


LONGEST_DATE = 40
