"""What the text of a file says about its rows: headings as scopes, the settings stated in them, the legends of marks.

    outline = Outline()
    for number, line in ...: outline.read(number, line)        every line that is neither a row nor a log line
    outline.around(line=30, label="7B")                        what holds for a row there

A statement holds from its line to the end of its section, subsections included; the innermost section wins, and in a section
what stands nearest above the row. A section without rows speaks for nobody, but for one that by its title only sets up what
follows (Setup, Model hyperparameters): it speaks for the section it is part of. Two lines between the same two tables that
disagree state nothing: they are a question, and named. A file of several chapters has an outline for each: what one of them
says, how it writes numbers and what its columns mean say nothing of another.
"""
from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from seatrial.errors import BadInput
from seatrial.notes.read.statements import Statements, machine_cues, read_statements, read_status
from seatrial.record import Stated
from seatrial.tables.headings import Column, clean, normal, without_version
from seatrial.tables.names import form
from seatrial.tables.tongues import in_english, plain_letters

LOCAL = frozenset({"nodes", "gpus", "dp", "optimizer"})
"""What a line of text says of the case it introduces, not of every table in the subsections after it."""
MOST_STATEMENTS, MOST_CACHED, MOST_CHAPTERS = 10_000, 4096, 64
_SETS_UP = frozenset(
    "overview setup setting settings configuration configurations config configs hyperparameters "
    "hyperparameter parameters params model architecture hardware environment defaults entorno "
    "configuracion configuraciones modelo arquitectura hiperparametros ajustes environnement materiel "
    "modele reglages hyperparametres umgebung aufbau versuchsaufbau versuchsumgebung konfiguration modell "
    "hyperparameter einstellungen ambiente configurazione modello architettura iperparametri impostazioni "
    "configuracao arquitetura hiperparametros omgeving configuratie opstelling srodowisko konfiguracja "
    "среда окружение конфигурация модель настроики оборудование "
    "環境 実験環境 計測環境 設定 実験設定 構成 モデル 环境 实验环境 硬件环境 "
    "配置 实验配置 设置 实验设置 模型 환경 실험환경 설정 모델".split()
)
_BESIDE = frozenset(
    "hyper training train trained pretraining benchmark benchmarking experiment experimental common "
    "general default software cluster machine system notation notations details information info and the "
    "of for our used all de del la el los y entrenamiento du des le les et d entrainement experimentale "
    "experimentales der die das und des zum di e do da dell van en het i и для".split()
)
"""The words of a title such as `Model hyperparameters` or `2. Training setup`, which is about all the runs that follow: at
least one of the first, and none but those beside it."""
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

    @cached_property
    def sets_up(self) -> bool:
        words = set(re.findall(r"[^\W\d_]+", plain_letters(self.title).casefold()))
        return bool(words & _SETS_UP) and words <= _SETS_UP | _BESIDE


class Tree:
    """The headings of a file as the sections they open; the first stands for what is above them all."""

    def __init__(self) -> None:
        self.sections = [Section(0, 0, "", -1)]
        self._starts: list[int] = []

    def open(self, number: int, level: int, title: str, label: str = "") -> None:
        parent = len(self.sections) - 1
        while self.sections[parent].level >= level:
            parent = self.sections[parent].parent
        self.sections.append(Section(number, level, clean(title), parent, label=label))

    def mark_rows(self) -> None:
        """A row stands here: this section and those around it are not mere overviews."""
        index = len(self.sections) - 1
        while index >= 0 and not self.sections[index].has_rows:
            self.sections[index].has_rows = True
            index = self.sections[index].parent

    def at(self, line: int) -> int:
        """The innermost section of a line."""
        if len(self._starts) != len(self.sections):
            self._starts = [section.line for section in self.sections]
        return max(0, bisect.bisect_left(self._starts, line) - 1)

    def chain(self, section: int) -> list[int]:
        """The section and those around it, the innermost first."""
        chain = []
        while section >= 0:
            chain.append(section)
            section = self.sections[section].parent
        return chain

    def scope(self, section: int) -> int:
        """Where text of a section holds: there, or for one that sets up others in the nearest around it that has rows."""
        while self.sections[section].sets_up and not self.sections[section].has_rows:
            section = self.sections[section].parent
        return section

    def bearer(self, section: int) -> int:
        """The section itself where it has rows, else the nearest around it that has: what its legends explain."""
        return next((index for index in self.chain(section) if self.sections[index].has_rows), 0)

    def chapters(self, lines: Iterable[int]) -> Chapters:
        """The sections that stand by themselves, of rows at these lines: several titles, or sections with some of their own."""
        inside = {section for place in {self.at(line) for line in lines} for section in self.chain(place)}
        parents = {section.parent for section in self.sections}
        found: set[int] = set()
        todo = [0] if len(self.sections) > 2 else []
        while todo:
            around = todo.pop()
            side = [index for index in inside if self.sections[index].parent == around and not self.sections[index].sets_up]
            parted = [index for index in side if index in parents]
            titles = [index for index in side if self.sections[index].level == 1]  # a document has one
            found.update(titles if len(titles) > 1 else parted if len(parted) > 1 else ())
            todo += parted
        return Chapters(self, frozenset(found) if len(found) <= MOST_CHAPTERS else frozenset())

    def title(self, section: int) -> str:
        return " / ".join(self.sections[index].title for index in reversed(self.chain(section)) if self.sections[index].title)


@dataclass(frozen=True)
class Chapters:
    """The parts of a file that say nothing of each other; what is in none of them is part 0, and speaks for all."""

    tree: Tree
    sections: frozenset[int]

    @cached_property
    def _parts(self) -> list[int]:
        return [next((index for index in self.tree.chain(section) if index in self.sections), 0)
                for section in range(len(self.tree.sections))]  # fmt: skip

    def at(self, line: int) -> int:
        """The part of a line; a heading belongs to what it opens."""
        return self._parts[self.tree.at(line + 1)]

    def runs(self) -> Iterator[tuple[int, int]]:
        """From which line on the file is of which part, in order."""
        return ((max(section.line, 1), part) for section, part in zip(self.tree.sections, self._parts))

    def heard(self, part: int) -> set[int]:
        """The parts whose text speaks for a part: itself and those around it."""
        return {index for index in self.tree.chain(part) if index in self.sections} | {0}


@dataclass
class Statement:
    line: int
    section: int
    content: Statements
    heading: bool
    after: int = 0
    """How many tables stand above it."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A field for which the text gives several values, each with its line."""

    field: str
    values: tuple[Stated, ...]

    def __str__(self) -> str:
        said = " and ".join(f"{stated.value} (line {stated.line})" for stated in self.values)
        return f"the text above says {self.field} {said}: which of them holds is a question, so none is taken"


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
    questions: tuple[Question, ...] = ()


class Rough(str):
    """A rounded figure, such as a vocabulary of 32k: text, not a value."""


_COMMA = re.compile(r"(?<![\d.,])\d{1,4},\d{1,2}(?![\d,.])")
_POINT = re.compile(r"(?<![\d.,])\d+\.\d{1,2}(?![\d,.])")
_COMMA_CELL, _POINT_CELL = (re.compile(rf"[|>]\s*[~≈]?\d{{1,4}}[{mark}]\d{{1,2}}(?: ?[%x×]| [^\W\d][\w/]*)?\s*(?=[|<])")
                            for mark in (",", "."))  # fmt: skip
_THREE = re.compile(r"(?<![\d.,])\d{1,3}([.,])\d{3}(?![\d,.])")
_OF_EACH = re.compile(
    r"(?<![\w/])[`\"]?(tps|wps|tgs|tok(?:en)?s?(?:/| per )s(?:ec(?:ond)?)?|throughputs?)[`\")]?"
    r"(?:,? (?:and|et|und|y|e|i) [`\w/]{1,12})?"
    r"(?: ?[=:–—]|,? (?:is|are|means?|denotes?|counts?|refers?|given|reported|quoted|shown|"
    r"figures|numbers|values|always|est|sont|ist|sind|jest|es|son)\b)"
    r"(?:(?!\b(?:not|all|whole|total|together|job|sum|hours?|mem\w*|MFU|TFLOP\w*|batch\w*|with|nodes?)\b)[^.;|%\d]){0,40}?"
    r"(?:\b(?:per|one|each|single)\W{1,3}|/ ?)(?:GPU|device|chip|card|NPU|HPU|TPU|accelerator|rank|worker)\b"
    r"(?! ?(?:[x×*·]|times\b))", re.IGNORECASE
)  # fmt: skip
_ONE_DEVICE = re.compile(r"GPU|device|chip|card|NPU|HPU|TPU|accelerator|rank|worker|Karte|kart|carte|tarjeta", re.IGNORECASE)
_RATES = {"tps": "tokens", "wps": "tokens", "tgs": "tokens", "throughputs": "throughput"}


def _rate(name: str) -> str:
    """`wps`, `tok/s` and `tokens per second` are one name."""
    said = form(name)
    return _RATES.get(said, "tokens" if said == "tokens per s" else said)


_SPACED = re.compile(r"\|\s*\d{1,3}(?: \d{3})+\s*(?=\|)")
MANY = 3
LONGEST_LEGEND, LONGEST_SENTENCE = 200, 2000
HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_LEGEND = re.compile(r"\s*(?:[-*+]\s+)?(\^+|†+|‡+|§+|¶+|\\\*{1,3}|\*{1,3}(?=[^\s*]))\s*[:=]?\s*(\S.*)$")
_VALUE_LEGEND = re.compile(r"\s*(?:[-*+]\s+)?([\w -]+?)\s*[/:=]\s*(\w+)\s*==?>?\s*`?([A-Za-z_][\w-]*)=([^\s`,]+)`?")


class Outline:
    def __init__(self) -> None:
        self.tree = Tree()
        self.statements: list[Statement] = []
        self.legends: dict[str, str] = {}
        self.value_legends: dict[tuple[str, str], tuple[str, str]] = {}
        """(column, cell) -> the environment variable and value that the cell means."""
        self.rules: list[KnownFailure] = []
        self._each: list[tuple[int, str]] = []
        """Section and heading of each rate that the text says is that of one device."""
        self._host = self._device = False
        self._searched = self._tables = self._commas = self._points = self._spaces = 0
        self._in_table = self._foreign = False
        self._threes: set[str] = set()
        self._begun: list[int] = []
        self._cells: list[list[str]] = []
        """The line in which each table begins, and its rows as they are printed."""
        self._by_comma: dict[int, bool] = {}
        self._cache: dict[tuple[int, int, str], Around] = {}
        self._lines: list[int] = []

    @classmethod
    def of(cls, lines: Iterable[str]) -> Outline:
        """Of the lines of tables alone: how they write numbers."""
        outline = cls()
        for number, line in enumerate(lines, 1):
            if "|" in line or "<td" in line or line.count(";") > 2:
                outline.rows_at(line.replace(";", " | "), number)
            elif line.strip():
                outline.note_language(line)
                outline._in_table = outline._in_table and ("<t" in line or "</t" in line)
        return outline

    def note_language(self, line: str) -> None:
        self._foreign = self._foreign or not line.isascii() and in_english(line) != line

    @property
    def comma(self) -> bool:
        """Whether the file writes 27,92 for 27.92, so that 27.823 are thousands.

        Where 3,788 stands beside 138.409 and nothing else tells which is the point, the language of the text does."""
        either = self._foreign and self._commas == self._points == 0 and len(self._threes) == 2
        return either or self._commas > 2 * self._points

    def comma_at(self, line: int) -> bool:
        """The same of the table at a line, which may tell itself where a file has both."""
        if not self._commas or not self._points:
            return self.comma
        table = bisect.bisect_right(self._begun, line) - 1
        if table < 0:
            return self.comma
        if table not in self._by_comma:
            text = "\n".join(self._cells[table])
            commas, points = len(_COMMA_CELL.findall(text)), len(_POINT_CELL.findall(text))
            self._by_comma[table] = commas > points if commas + points > 1 and commas != points else self.comma
        return self._by_comma[table]

    def settled(self, columns: list[Column], line: int) -> list[Column]:
        """The columns of a table at a line, where the text says that a rate is of one device."""
        chain = self.tree.chain(self.tree.at(line)) if self._each else []
        of_each = {rate for section, rate in self._each if self.tree.bearer(section) in chain}
        if not of_each or any(one.field == "tokens_per_s_per_process" for one in columns):
            return columns
        rates = {one: [_rate(part) for part in re.split(r"[()\[\]]", without_version(clean(one.heading)))]
                 for one in columns if one.field == "tokens_per_s"}  # fmt: skip
        each = {one for one, said in rates.items() if not of_each.isdisjoint(said)}
        return [replace(one, field="tokens_per_s_per_process") if one in each else one for one in columns]

    @property
    def spaced(self) -> bool:
        """Whether the file parts thousands by spaces: 365 136. One such cell may be two figures."""
        return self._foreign or self.comma or self._spaces >= MANY

    @property
    def on_host(self) -> bool:
        """Whether the file is about a machine that computes on its CPUs, so that memory means the host's."""
        return self._host and not self._device

    def heading(self, number: int, level: int, title: str) -> None:
        content = read_statements(title, heading=True)
        self.tree.open(number, level, title, content.label)
        self._state(number, content, heading=True)

    def _state(self, number: int, content: Statements, *, heading: bool) -> None:
        if content:
            self.statements.append(Statement(number, len(self.tree.sections) - 1, content, heading, self._tables))

    def read(self, number: int, line: str, *, code: bool = False) -> None:
        """One line that is neither a row of a table nor part of a log; in code `#` begins a comment, which states nothing."""
        if not line.strip() or (code and line.lstrip().startswith("#")):
            return
        self._in_table = False
        self.note_language(line)
        if len(self.statements) + len(self.tree.sections) > MOST_STATEMENTS:
            raise BadInput(f"line {number}: over {MOST_STATEMENTS} headings and settings, which is more than notes have")
        host, device = machine_cues(line)
        self._host, self._device = self._host or host, self._device or device
        if len(line) < LONGEST_SENTENCE and _ONE_DEVICE.search(line):
            said = map(_rate, _OF_EACH.findall(in_english(line).replace("*", "")))
            self._each += [(len(self.tree.sections) - 1, rate) for rate in said]
        match = HEADING.match(line)
        if match:
            self.heading(number, len(match.group(1)), match.group(2))
        elif not self._read_legend(line):
            content = read_statements(line, heading=False)
            failed = read_status(line).failed if content else ""
            if failed:
                self.rules.append(KnownFailure(fields=content.fields, failed=failed, text=clean(line.lstrip(" -*+>"))))
            else:
                self._state(number, content, heading=False)

    def rows_at(self, line: str, number: int | None = None, *, begins: bool = False) -> None:
        """A row or log line stands here, so this section and those around it are not mere overviews."""
        if number is not None:
            if begins or not self._in_table:
                self._begun.append(number)
                self._cells.append([])
            self._cells[-1].append(line)
        self._commas += len(_COMMA.findall(line)) if "," in line else 0
        self._points += len(_POINT.findall(line))
        self._spaces += len(_SPACED.findall(line)) if self._spaces < MANY else 0
        if self._foreign and len(self._threes) < 2:
            self._threes.update(_THREE.findall(line))
        self._tables += not self._in_table
        self._in_table = True
        if self._searched < ROWS_SEARCHED and not (self._host and self._device):
            self._searched += 1
            host, device = machine_cues(line)
            self._host, self._device = self._host or host, self._device or device
        self.tree.mark_rows()

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
        if len(self._lines) != len(self.statements):
            self._lines = [statement.line for statement in self.statements]
            self._cache.clear()
        key = bisect.bisect_left(self._lines, line), self.tree.at(line), label
        if len(self._cache) > MOST_CACHED:
            self._cache.clear()
        if key not in self._cache:
            self._cache[key] = self._work_out(*key)
        return self._cache[key]

    def _scope(self, statement: Statement) -> int:
        return statement.section if statement.heading else self.tree.scope(statement.section)

    def _work_out(self, position: int, section: int, label: str) -> Around:
        chain = self.tree.chain(section)
        depth = {scope: -place for place, scope in enumerate(chain)}
        scoped = ((statement, self._scope(statement)) for statement in self.statements[:position])
        # The innermost section is the nearest, and in it the last line.
        in_scope = sorted((pair for pair in scoped if pair[1] in depth), key=lambda pair: depth[pair[1]])
        labels = [Stated(value=s.content.label, line=s.line) for s, _ in in_scope if s.content.label]
        about = label or str(labels[-1].value if labels else "")
        said: dict[str, dict[Stated, tuple[int, int]]] = {"size_label": dict.fromkeys(labels[-1:], (0, 0))} if labels else {}
        env: dict[str, str] = {}
        for statement, scope in in_scope:
            content = statement.content
            if content.label and not statement.heading and content.label != about:
                continue
            other_model = self._other_model(statement, about)
            place = scope, statement.after
            rough = {name: Rough(text) for name, text in content.inexact.items()}
            for name, value in {**content.machine_wide, **content.fields, **rough}.items():
                if (name in LOCAL and scope != section) or (other_model and name in SHAPE):
                    continue
                said.setdefault(name, {})[Stated(value=value, line=statement.line)] = place
            env.update(content.env)
        values: dict[str, Stated] = {}
        extra: dict[str, str] = {}
        questions = []
        for name, by in said.items():
            *_, last = by
            rivals = {stated.value: stated for stated, place in by.items() if place == by[last]}
            if len(rivals) > 1 and name not in LOCAL:
                questions.append(Question(field=name, values=tuple(rivals.values())))
            elif isinstance(last.value, Rough):
                extra[name] = str(last.value)
            else:
                values[name] = last
        asked = {question.field for question in questions}
        inferred = self._infer(position, section, about, values, extra, asked)
        return Around(values=values, inferred=inferred, env=env, extra=extra, section=self.tree.title(section),
                      questions=tuple(questions))  # fmt: skip

    def _other_model(self, statement: Statement, about: str) -> bool:
        """Whether a heading above the statement names another size than the row: its shape is not this row's then."""
        for index in self.tree.chain(self._scope(statement)):
            label = self.tree.sections[index].label
            if label:
                return bool(about) and label != about
        return False

    def _infer(
        self, position: int, section: int, about: str, values: dict[str, Stated], extra: dict[str, str], asked: set[str]
    ) -> frozenset[str]:
        """Values from beyond the row's own sections: a model defined elsewhere, the machine, a later `above too`."""
        defined: dict[str, dict[object, Stated]] = {}
        for statement in self.statements[:position]:
            content = statement.content
            if content.label and content.label == about and not statement.heading:
                for name, value in content.fields.items():
                    if name in MODEL:
                        defined.setdefault(name, {})[value] = Stated(value=value, line=statement.line)
                for name, text in content.inexact.items():
                    if name in MODEL and name not in values:
                        extra.setdefault(name, text)
        found = {name: stated for name, by in defined.items() if len(by) == 1 for stated in by.values()}
        for statement in self.statements[position:]:
            if statement.content.backward and self._before(section, self._scope(statement)):
                for name, value in statement.content.fields.items():
                    found.setdefault(name, Stated(value=value, line=statement.line))
        machine = {(name, value): s.line for s in reversed(self.statements) for name, value in s.content.machine_wide.items()}
        for (name, value), line in machine.items():
            if sum(other == name for other, _ in machine) == 1:
                found.setdefault(name, Stated(value=value, line=line))
        inferred = {name: stated for name, stated in found.items() if name not in values and name not in asked}
        values.update(inferred)
        return frozenset(inferred)

    def _before(self, section: int, other: int) -> bool:
        """Whether `section` (or one around it) is `other` itself or the one just before it, under the same parent."""
        parent = self.tree.sections[other].parent
        siblings = [index for index, s in enumerate(self.tree.sections) if s.parent == parent and index <= other]
        return any(index in siblings[-2:] for index in self.tree.chain(section))
