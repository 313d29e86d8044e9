"""What the text of a file says about its rows: headings as scopes, the settings stated in them, the legends of marks.

    outline = Outline()
    for number, line in ...: outline.read(number, line)        every line that is neither a row nor a log line
    outline.around(line=30, label="7B")                        what holds for a row there

A statement holds from its line to the end of its section, subsections included; the nearest one before a row wins. A section
without any rows (an overview, a list of hyperparameters) speaks for the section that it is part of.
"""
from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field

from seatrial.errors import BadInput
from seatrial.notes.read.statements import Statements, machine_cues, read_statements, read_status
from seatrial.record import Stated
from seatrial.tables.headings import clean, normal

LOCAL = frozenset({"nodes", "gpus", "dp", "optimizer"})
"""What a line of text says of the case it introduces, not of every table in the subsections after it."""
MOST_STATEMENTS, MOST_CACHED = 10_000, 4096
ROWS_SEARCHED = 500
"""How many rows are searched for words that tell a machine of CPUs from one of devices."""
SHAPE = frozenset({"layers", "hidden", "heads", "kv_heads", "ffn"})
MODEL = SHAPE | {"seq", "vocab", "tp", "pp"}
"""What a line such as `7B model: …` defines wherever in the file that size is named again."""


@dataclass
class Section:
    line: int
    level: int
    title: str
    parent: int
    label: str = ""
    has_rows: bool = False


@dataclass
class Statement:
    line: int
    section: int
    content: Statements
    heading: bool


@dataclass(frozen=True, kw_only=True)
class KnownFailure:
    """A comment such as `mp=2 with zero=3 does not work`."""

    fields: dict[str, object]
    failed: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Around:
    """What holds for a row: values by field, those of them that are only inferred, environment, other settings."""

    values: dict[str, Stated] = field(default_factory=dict)
    inferred: frozenset[str] = frozenset()
    env: dict[str, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    section: str = ""


LONGEST_LEGEND = 200
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_LEGEND = re.compile(r"\s*(?:[-*+]\s+)?(\^+|†+|‡+|§+|¶+|\\\*{1,3}|\*{1,3}(?=[^\s*]))\s*[:=]?\s*(\S.*)$")
_VALUE_LEGEND = re.compile(r"\s*(?:[-*+]\s+)?([\w -]+?)\s*[/:=]\s*(\w+)\s*==?>?\s*`?([A-Za-z_][\w-]*)=([^\s`,]+)`?")


class Outline:
    def __init__(self) -> None:
        self.sections: list[Section] = [Section(0, 0, "", -1)]
        self.statements: list[Statement] = []
        self.legends: dict[str, str] = {}
        self.value_legends: dict[tuple[str, str], tuple[str, str]] = {}
        """(column, cell) -> the environment variable and value that the cell means."""
        self.rules: list[KnownFailure] = []
        self._host = self._device = False
        self._searched = 0
        self._cache: dict[tuple[int, int, str], Around] = {}
        self._starts: list[int] = []
        self._lines: list[int] = []

    @property
    def on_host(self) -> bool:
        """Whether the file is about a machine that computes on its CPUs, so that memory means the host's."""
        return self._host and not self._device

    def heading(self, number: int, level: int, title: str) -> None:
        parent = len(self.sections) - 1
        while self.sections[parent].level >= level:
            parent = self.sections[parent].parent
        content = read_statements(title, heading=True)
        self.sections.append(Section(number, level, clean(title), parent, label=content.label))
        if content:
            self.statements.append(Statement(number, len(self.sections) - 1, content, heading=True))

    def read(self, number: int, line: str) -> None:
        """One line that is neither a row of a table nor part of a log."""
        if not line.strip():
            return
        if len(self.statements) + len(self.sections) > MOST_STATEMENTS:
            raise BadInput(f"line {number}: over {MOST_STATEMENTS} headings and settings, which is more than notes have")
        host, device = machine_cues(line)
        self._host, self._device = self._host or host, self._device or device
        match = _HEADING.match(line)
        if match:
            self.heading(number, len(match.group(1)), match.group(2))
        elif not self._read_legend(line):
            content = read_statements(line, heading=False)
            failed = read_status(line).failed if content else ""
            if failed:
                self.rules.append(KnownFailure(fields=content.fields, failed=failed, text=clean(line.lstrip(" -*+>"))))
            elif content:
                self.statements.append(Statement(number, len(self.sections) - 1, content, heading=False))

    def rows_at(self, line: str) -> None:
        """A row or log line stands here, so this section and those around it are not mere overviews."""
        if self._searched < ROWS_SEARCHED and not (self._host and self._device):
            self._searched += 1
            host, device = machine_cues(line)
            self._host, self._device = self._host or host, self._device or device
        index = len(self.sections) - 1
        while index >= 0 and not self.sections[index].has_rows:
            self.sections[index].has_rows = True
            index = self.sections[index].parent

    def _read_legend(self, line: str) -> bool:
        match = _VALUE_LEGEND.match(line) if "==" in line and len(line) < LONGEST_LEGEND else None
        if match:
            self.value_legends[normal(match.group(1)), match.group(2).lower()] = (match.group(3), match.group(4))
            return True
        match = _LEGEND.match(line)
        if match is None or line.lstrip().startswith("**"):
            return False
        self.legends.setdefault(match.group(1).lstrip("\\"), clean(match.group(2)))
        return not match.group(1).startswith("*")

    # ---- asked by the rows, once everything is read

    def around(self, line: int, label: str = "") -> Around:
        if len(self._lines) != len(self.statements) or len(self._starts) != len(self.sections):
            self._lines = [statement.line for statement in self.statements]
            self._starts = [section.line for section in self.sections]
            self._cache.clear()
        position, section = bisect.bisect_left(self._lines, line), bisect.bisect_left(self._starts, line) - 1
        key = position, max(section, 0), label
        if len(self._cache) > MOST_CACHED:
            self._cache.clear()
        if key not in self._cache:
            self._cache[key] = self._work_out(*key)
        return self._cache[key]

    def _chain(self, section: int) -> list[int]:
        chain = []
        while section >= 0:
            chain.append(section)
            section = self.sections[section].parent
        return chain

    def _scope(self, statement: Statement) -> int:
        """The section a statement holds in: its own, or the nearest around it that has rows at all."""
        section = statement.section
        while not statement.heading and section > 0 and not self.sections[section].has_rows:
            section = self.sections[section].parent
        return section

    def _work_out(self, position: int, section: int, label: str) -> Around:
        chain = self._chain(section)
        in_scope = []
        for statement in self.statements[:position]:
            scope = self._scope(statement)
            if scope in chain:
                in_scope.append((statement, scope == section))
        values: dict[str, Stated] = {}
        env: dict[str, str] = {}
        extra: dict[str, str] = {}
        for statement, _ in in_scope:
            if statement.content.label:
                values["size_label"] = Stated(value=statement.content.label, line=statement.line)
        about = label or str(values["size_label"].value if "size_label" in values else "")
        for statement, here in in_scope:
            content = statement.content
            if content.label and not statement.heading and content.label != about:
                continue
            other_model = self._other_model(statement, about)
            for name, value in {**content.machine_wide, **content.fields}.items():
                if (name in LOCAL and not here) or (other_model and name in SHAPE):
                    continue
                values[name] = Stated(value=value, line=statement.line)
                extra.pop(name, None)
            for name, text in content.inexact.items():
                extra[name] = text
                values.pop(name, None)
            env.update(content.env)
        inferred = self._infer(position, section, about, values, extra)
        title = " / ".join(self.sections[index].title for index in reversed(chain) if self.sections[index].title)
        return Around(values=values, inferred=inferred, env=env, extra=extra, section=title)

    def _other_model(self, statement: Statement, about: str) -> bool:
        """Whether a heading above the statement names another size than the row: its shape is not this row's then."""
        for index in self._chain(self._scope(statement)):
            label = self.sections[index].label
            if label:
                return bool(about) and label != about
        return False

    def _infer(
        self, position: int, section: int, about: str, values: dict[str, Stated], extra: dict[str, str]
    ) -> frozenset[str]:
        """Values from beyond the row's own sections: a model defined elsewhere, the machine, a later `above too`."""
        found: dict[str, Stated] = {}
        for statement in self.statements:
            content = statement.content
            above = not statement.heading and statement.line < self._line_of(position)
            if content.label and content.label == about and above:
                for name, value in content.fields.items():
                    if name in MODEL:
                        found[name] = Stated(value=value, line=statement.line)
                for name, text in content.inexact.items():
                    if name in MODEL and name not in values:
                        extra.setdefault(name, text)
        for statement in self.statements[position:]:
            if statement.content.backward and self._before(section, self._scope(statement)):
                for name, value in statement.content.fields.items():
                    found.setdefault(name, Stated(value=value, line=statement.line))
        machine = {(name, value): s.line for s in reversed(self.statements) for name, value in s.content.machine_wide.items()}
        for (name, value), line in machine.items():
            if sum(other == name for other, _ in machine) == 1:
                found.setdefault(name, Stated(value=value, line=line))
        inferred = {name: stated for name, stated in found.items() if name not in values}
        values.update(inferred)
        return frozenset(inferred)

    def _line_of(self, position: int) -> int:
        return self._lines[position] if position < len(self._lines) else 1 << 62

    def _before(self, section: int, other: int) -> bool:
        """Whether `section` (or one around it) is `other` itself or the one just before it, under the same parent."""
        parent = self.sections[other].parent
        siblings = [index for index, s in enumerate(self.sections) if s.parent == parent and index <= other]
        return any(index in siblings[-2:] for index in self._chain(section))
