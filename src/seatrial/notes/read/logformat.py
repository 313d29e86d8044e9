"""One description of a log format, as data: which lines are steps of a run, what their figures are, where settings are printed.

    shipped()                                     the formats in presets/formats, the most particular first
    load("mine.toml")                             a format of one's own
    Figure.of("sec_per_it ms").read("387.8")      0.3878

    name = "mine"
    [[line]]
    pattern = 'it (?P<iteration>[0-9]+) took (?P<sec_per_it>[0-9.]+), (?P<tflops>[0-9.]+) TFLOPs'
    units = { sec_per_it = "ms" }

The names of the groups are fields of a record. A line of `key: value` pairs has `pairs`, a pattern with the groups `key` and
`value`, and `keys`: what is printed = "field unit …". Kinds of lines: `step`; `more` and `ahead`, which belong to the step
before and after them; `run`, whose figures are those of the whole run; `memory` and `timers`, by rank and by part; `config`,
which says what was asked.
"""
from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from seatrial import fields
from seatrial.columns import COLUMNS
from seatrial.errors import BadInput
from seatrial.presets import read_toml
from seatrial.tables.headings import MEASURES

TIME = {"s": 0, "sec": 0, "secs": 0, "seconds": 0, "s/it": 0, "s/step": 0, "ms": -3, "ms/it": -3, "us": -6, "µs": -6}
FLOPS = {"flops": -12, "flop": -12, "kflops": -9, "mflops": -6, "gflops": -3, "tflops": 0, "tflop": 0, "pflops": 3, "eflops": 6}
SCALES = {"k": 3, "m": 6, "b": 9, "g": 9, "t": 12, "p": 15}
MEMORY = {"mib": "MiB", "mb": "MB", "gib": "GiB", "gb": "GB", "b": "B", "bytes": "B", "kb": "KiB", "kib": "KiB", "m": "MB",
          "g": "GB", "1e9b": "1e9B"}  # fmt: skip
BYTES = {"B": 1, "KiB": 1024, "1e9B": 10**9}
"""Units that a record has not: kept in GiB. `1e9B` is a GB of a program that means it."""
COUNTS = frozenset({"iteration", "of", "epoch", "gbs", "seq", "nan", "skipped"})
RATES = frozenset({"samples_per_s", "tokens_per_s", "tokens_per_s_per_process"})
HELPERS = (
    "of", "epoch", "nan", "skipped", "grad_norm", "loss_scale", "dp_replicate", "dp_shard",
    "grad_accum", "batch_tokens", "runtime_s", "steps", "steps_per_s", "last_pipe", "last_data", "last_model", "rank", "key",
    "value", "unit", "names", "values",
)  # fmt: skip
"""Names that a pattern may use beside the fields of a record: what others are worked out from."""
KNOWN = frozenset({*COLUMNS, *MEASURES, *HELPERS, "iteration", "size_label", "world"})
_VALUE = re.compile(r"\s*[\"']?([+-]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%]+(?:/(?:s|it|iter|step)\b)?)?")
LONGEST_VALUE = 40


@dataclass(frozen=True)
class Figure:
    """A field with the unit that its figures are printed in, and what else its name says: `mem_value GiB reserved`."""

    name: str
    unit: str = ""
    also: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Figure:
        words = text.split()
        return cls(words[0], words[1] if len(words) > 1 else "", tuple(words[2:])) if words else cls("")

    def read(self, text: str) -> tuple[float | int | None, str]:
        """The value in the unit of a record, and the unit as it is printed; None where the text is no number."""
        match = _VALUE.match(text[:LONGEST_VALUE])
        if match is None:
            return (math.nan if re.match(r"[\s\"']*[+-]?(?:nan|inf)", text, re.IGNORECASE) else None), ""
        try:
            value = Decimal(match.group(1).replace(",", "").replace("_", ""))
            return self._scaled(value, match.group(2) or "")
        except (ArithmeticError, ValueError):  # of floats and of decimals alike
            return None, ""

    def _scaled(self, value: Decimal, suffix: str) -> tuple[float | int | None, str]:
        small = suffix.lower()
        if self.name == "sec_per_it":
            unit = suffix if small in TIME or small in ("it/s", "min") else self.unit or "s"
            if unit.lower() in ("it/s", "steps/s"):
                return float(1 / value), "it/s"
            if unit.lower() == "min":
                return float(value * 60), "min"
            human = SCALES.get(small, 0) if suffix.isupper() and small not in TIME else 0
            return float(value.scaleb(TIME[unit.lower()] + human)), "ms" if TIME[unit.lower()] == -3 else "s"
        if self.name in ("tflops", "aggr_pflops"):
            power = FLOPS.get(small, FLOPS.get(small.split("/")[0], FLOPS.get(self.unit.lower() or "tflops", 0)))
            if suffix.isupper() and small in SCALES:
                power += SCALES[small]
            return float(value.scaleb(power)), ""
        if self.name == "mem_value":
            if self.unit == "human":
                return float(value.scaleb(SCALES.get(small, 0))) / 2**30, "GiB"
            unit = MEMORY.get(small) or MEMORY.get(self.unit.lower(), "GiB")
            return (float(value) * BYTES[unit] / 2**30, "GiB") if unit in BYTES else (float(value), unit)
        if self.name in ("mfu", "hfu"):
            share = float(value)
            return (float(value.scaleb(-2)) if suffix == "%" or self.unit == "%" or abs(share) > 1.5 and self.unit != "share"
                    else share), ""  # fmt: skip
        human = len(suffix) == 1 and (self.name in RATES or self.unit == "human")
        number = float(value.scaleb(SCALES.get(small, 0) if human else 0))
        if self.name in COUNTS:
            return (int(number) if number.is_integer() else None), ""
        return (number if math.isfinite(number) else math.nan), ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One kind of line."""

    pattern: str
    """Searched for in the line; its named groups are fields."""
    kind: Literal["step", "more", "ahead", "run", "memory", "timers", "config"] = "step"
    has: str = ""
    """Words that such a line holds, looked for first: a log has millions of others."""
    pairs: str = ""
    """For the rest of the line: groups `key` and `value`."""
    keys: dict[str, str] = field(default_factory=dict)
    """What is printed -> `field unit …`; an empty one is known and left out."""
    units: dict[str, str] = field(default_factory=dict)
    """Of the groups of the pattern."""
    wrapped: int = 1
    """How many lines one of them may be broken into by those who copy it."""

    @functools.cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    @functools.cached_property
    def pair(self) -> re.Pattern[str] | None:
        return re.compile(self.pairs) if self.pairs else None

    @functools.cached_property
    def figures(self) -> Mapping[str, Figure]:
        return {plain(key): Figure.of(text) for key, text in self.keys.items()}

    @functools.cached_property
    def groups(self) -> Mapping[str, Figure]:
        return {name: Figure.of(f"{name} {self.units.get(name, '')}") for name in self.regex.groupindex}

    def match(self, text: str) -> re.Match[str] | None:
        return self.regex.search(text) if self.has in text else None


def plain(key: str) -> str:
    return " ".join(key.lower().split())


@dataclass(frozen=True, kw_only=True)
class Format:
    """A program's logs."""

    name: str
    line: tuple[Line, ...]
    engine: str = ""
    """The engine that a record names; empty where the log must say."""
    source: str = ""
    """Where its lines were read from."""
    before: tuple[str, ...] = ()
    """Formats whose lines may stand in the same log and count for less."""
    starts: tuple[str, ...] = ()
    """Lines that only the start of a run prints: a restart prints them again."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What a config line's key means: a field, or a table of what is printed -> `field=value`."""
    named: bool = False
    """Whether keys are known by the names that tables use too."""
    derived: dict[str, str] = field(default_factory=dict)
    """Field -> a product or quotient of others that it is where the log does not say."""
    needs: tuple[str, ...] = ()
    """A step without these is a line that could not be read."""
    counts_from: int = 1
    """The number of its first step."""

    @functools.cached_property
    def start(self) -> re.Pattern[str] | None:
        return re.compile(self.any_start) if self.starts else None

    @property
    def any_start(self) -> str:
        return "|".join(f"(?:{pattern})" for pattern in self.starts)

    @functools.cached_property
    def steps(self) -> tuple[Line, ...]:
        return tuple(line for line in self.line if line.kind == "step")


def _check(pattern: str, where: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        why = "a count of thousands of digits" if isinstance(error, ValueError) else error
        raise BadInput(f"{where} is no regular expression: {why}") from None


def build(data: Mapping[str, Any], where: str) -> Format:
    made = fields.build(Format, {"name": Path(where).stem, **data}, where=where)
    if not any(line.kind == "step" for line in made.line):
        raise BadInput(f"{where}: no [[line]] of kind step: nothing in it would be an iteration")
    for text in made.starts:
        _check(text, f"{where}: starts")
    _check(made.any_start, f"{where}: starts")  # a group's name may stand in one of them alone
    for number, line in enumerate(made.line, 1):
        for name, pattern in (("pattern", line.pattern), ("pairs", line.pairs)):
            _check(pattern, f"{where}: line {number}: {name}")
        if line.pairs and not {"key", "value"} <= line.pair.groupindex.keys():  # type: ignore[union-attr]
            raise BadInput(f"{where}: line {number}: pairs needs the groups (?P<key>…) and (?P<value>…)")
        for name in (*line.regex.groupindex, *line.units, *(f.name for f in line.figures.values() if f.name)):
            if name not in KNOWN:
                raise BadInput(f"{where}: line {number}: no field {name!r}; {fields.nearest(name, sorted(KNOWN))}")
        for name, unit in (*line.units.items(), *((f.name, f.unit) for f in line.figures.values())):
            if name == "sec_per_it" and unit and unit.lower() not in (*TIME, "it/s", "min", "steps/s"):
                known = fields.nearest(unit, [*TIME, "it/s", "min"])
                raise BadInput(f"{where}: line {number}: {unit!r} is no unit of time; {known}")
    return made


def load(path: str | os.PathLike[str]) -> Format:
    """Of a file that describes an engine too, its [log]."""
    data = read_toml(path)
    return build(data.get("log", data), str(path))


@functools.cache
def shipped() -> tuple[Format, ...]:
    """Those whose lines hold others' lines too come first."""
    from seatrial import presets

    folder = Path(presets.__file__).parent / "formats"
    found = {path.stem: load(path) for path in sorted(folder.glob("*.toml"))}
    ordered: list[Format] = []
    while found:
        later = {name for one in found.values() for name in one.before}
        name = next(name for name in found if name not in later)
        ordered.append(found.pop(name))
    return tuple(ordered)
