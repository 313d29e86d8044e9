"""The one table of fields: what each is called in a record, a table, an option, a rule, a sentence, and where a trial has it.

    COLUMNS["zero_stage"].path                  topology.zero
    COLUMNS["zero_stage"].label                 ZS
    flat(trial)                                 {"nodes": 2, "dp": 8, "zero_stage": 1, ...}: a trial as a row, with its types
    SHAPE, LAYOUT, AROUND, ASKED                the columns that say what was asked, by what they are about
    SEARCHED                                    the knobs that `plan` and `tune` search, by their names in a topology
    BY_FIELD["schedule"].choices, .help         what options, rules and the planner's columns are made of

Declared with the fields themselves: those of a trial in `spec/`, those that only a record has in `record.py`. A new field
there is an option, a TOML key, a rule name, a CSV column, an importer's heading and a column of the page.
"""
from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from seatrial.fields import ABOUT, About, meanings
from seatrial.record import Record
from seatrial.spec import Batch, Cluster, Environment, Execution, Model, Topology, Trial

TABLES: dict[str, type] = {"model": Model, "topology": Topology, "batch": Batch, "cluster": Cluster, "environment": Environment,
                           "execution": Execution}  # fmt: skip
"""The tables of a trial whose fields have columns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A field of a record."""

    name: str
    """In a record, a logbook and a CSV file: zero_stage."""
    field: str
    """In its table of a trial, in rules, options and the planner's answer: zero."""
    table: str
    """topology, …; "trial" where the trial itself has it, empty where only a record does."""
    about: About
    default: Any = None

    @property
    def label(self) -> str:
        return self.about.label

    @property
    def title(self) -> str:
        return self.about.title or self.about.label

    @property
    def word(self) -> str:
        return self.about.label if self.about.word is None else self.about.word

    def text(self, value: Any) -> str:
        """A value in a sentence: `DP 8`, `ZeRO 1`, `1f1b`, `2.2 GHz`, `sequence parallel`, or nothing."""
        if value is True:
            return self.title.lower()
        if value is None or value is False or value == "":
            return ""
        return " ".join(part for part in (self.word, str(value), self.about.unit) if part)

    @property
    def path(self) -> str:
        """As `--set` has it; empty where a trial has none."""
        return "" if not self.table else self.field if self.table == "trial" else f"{self.table}.{self.field}"

    @property
    def type(self) -> Any:
        """As its table has it, None left out."""
        hint = _types(TABLES[self.table])[self.field]
        return next((one for one in get_args(hint) if one is not type(None)), hint) if type(None) in get_args(hint) else hint

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it can be; none for numbers and free text."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def help(self) -> str:
        """A sentence, and the words it can be."""
        said = meanings(TABLES[self.table]).get(self.field, "")
        return f"{said} {', '.join(self.choices)}.".strip() if self.choices else said

    def of(self, trial: Trial) -> Any:
        """What a trial says; for the execution None where it is the default, as a record of it leaves it out."""
        value = operator.attrgetter(self.about.of_trial or self.path)(trial)
        return None if self.table == "execution" and value == self.default else value


@functools.cache
def _types(table: Any) -> dict[str, Any]:
    return get_type_hints(table)


def _declared() -> dict[str, Column]:
    """In the order in which a record has them."""
    asked: dict[str, Column] = {}
    for table, cls in {**TABLES, "trial": Trial}.items():
        for field in dataclasses.fields(cls):
            if about := field.metadata.get(ABOUT):
                name = about.column or field.name
                asked[name] = Column(name=name, field=field.name, table=table, about=about, default=field.default)
    found = {}
    for field in dataclasses.fields(Record):
        if field.name in asked:
            found[field.name] = asked.pop(field.name)
        elif about := field.metadata.get(ABOUT):
            found[field.name] = Column(name=field.name, field=field.name, table="", about=about)
    assert not asked, f"Record has no field for {', '.join(asked)}"
    return found


COLUMNS = _declared()
BY_FIELD = {column.field: column for column in COLUMNS.values() if column.table}
"""zero -> the column zero_stage."""


def names(*tables: str) -> tuple[str, ...]:
    return tuple(name for name, column in COLUMNS.items() if column.table in tables)


SHAPE = tuple(name for name in names("model") if name != "size_label")
"""The network."""
LAYOUT = names("topology", "batch")
"""How it is laid out, with the batch."""
AROUND = (*names("cluster", "execution", "environment", "trial"), "optimizer")
"""What else changes a measurement: two rows that differ in it are no repeats."""
ASKED = tuple(name for name in COLUMNS if name in {"size_label", "gpus", *SHAPE, *LAYOUT, *AROUND})
SEARCHED = tuple(column.field for column in COLUMNS.values() if column.about.searched)
"""Degrees, batches, ZeRO, recompute, schedule, by the names of their tables: what `plan` is not given it searches."""
KNOBS = tuple(COLUMNS[name].field for name in LAYOUT)
"""Those with what is chosen once: precision, sequence parallelism. A layout by the names of its tables."""
DEGREES = tuple(column.field for column in COLUMNS.values() if column.about.degree)
"""What the world is the product of."""


def degrees(cp: int | None) -> tuple[str, ...]:
    """Those that a layout is said by: CP where a sequence is divided, which rows that do not name it leave whole."""
    return DEGREES if cp is not None and cp > 1 else tuple(name for name in DEGREES if name != "cp")


def flat(trial: Trial, of: Iterable[str] = ASKED) -> dict[str, Any]:
    """A trial as a row: column -> its effective value; None where it says nothing."""
    return {name: COLUMNS[name].of(trial) for name in of if COLUMNS[name].table or COLUMNS[name].about.of_trial}


def by_field(trial: Trial, of: Iterable[str] = ASKED) -> dict[str, Any]:
    """The same under the names of the tables: zero, precision. What templates, rules and the planner's answer speak of."""
    return {COLUMNS[name].field: value for name, value in flat(trial, of).items()}


@functools.cache
def aliases() -> dict[str, tuple[str, str]]:
    """What people call a field -> (column, how its cells are read)."""
    return {alias: (name, column.about.kind) for name, column in COLUMNS.items() for alias in column.about.names}


def shown(row: Mapping[str, Any], of: Iterable[str] = LAYOUT) -> str:
    """A row in a few words: `DP 8, TP 4, ZeRO 1, 1f1b`."""
    return ", ".join(filter(None, (COLUMNS[name].text(row.get(name)) for name in of)))


def differing(rows: Sequence[Mapping[str, Any]], of: Iterable[str], always: Iterable[str] = ()) -> list[str]:
    """The columns that tell these rows apart, in their own order, with those that are named always."""
    kept = set(always)
    return [name for name in of if name in kept or len({row.get(name) for row in rows}) > 1]
