"""The answer of a logbook: for each model and machine size, which layout is fastest, how far ahead, and how sure that is.

    questions = answers.questions(records, set_aside={12: "ms-not-s"})
    questions[0].ranked[0].rows, questions[0].verdict

Rows of one configuration are repeats: their median counts, and how far they lie apart says what a difference is worth. A row
whose arithmetic cannot be right is set aside, and named. What nobody measured is not ranked.
"""
from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seatrial.arith import TIE
from seatrial.columns import AROUND, COLUMNS, DEGREES, LAYOUT, SHAPE, degrees, differing, shown
from seatrial.record import Record

DOUBTFUL = frozenset(
    "ms-not-s time-unit tflops-mismatch swap-twin world-size batch-divisible over-peak rate-mismatch extrapolated".split()
)
"""Findings after which a row's time, or what it was the time of, is not known."""

CONFIGURATION = (*SHAPE, *LAYOUT, *AROUND)
"""The columns in which two rows differ that are no repeats of each other; with the environment, and what a sweep varied."""
_configured = operator.attrgetter(*CONFIGURATION)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One configuration with all its repeats."""

    rows: tuple[int, ...]
    """Places in the list of records; the first is the one whose time is nearest to the median."""
    sec_per_it: float
    samples_per_s: float
    lo_s: float | None
    hi_s: float | None
    """From the repeats, or from the iterations of the only run; None where nothing says."""

    def at(self, end_s: float | None) -> float:
        """Seconds per sample at one end of the interval, or at the median where there is none."""
        return (self.sec_per_it if end_s is None else end_s) / (self.samples_per_s * self.sec_per_it)

    @property
    def spread(self) -> float:
        """Half of the interval, as a share."""
        return 0.0 if self.lo_s is None or self.hi_s is None else (self.hi_s - self.lo_s) / 2 / self.sec_per_it


@dataclass(frozen=True, kw_only=True)
class Question:
    """One model on one number of processes: what a meeting decides about."""

    source: str
    """The machine where a record names one, else the file that the rows stand in."""
    model: str
    world: int | None
    nodes: int | None
    rows: tuple[int, ...]
    ranked: tuple[Candidate, ...]
    """Best first: most samples per second."""
    set_aside: tuple[tuple[int, str], ...]
    """Row and the finding that took it out."""

    @property
    def gap(self) -> float | None:
        """How much slower the second is: 0.03 is 3 %."""
        return None if len(self.ranked) < 2 else self.ranked[0].samples_per_s / self.ranked[1].samples_per_s - 1

    @property
    def ties(self) -> int:
        """How many are tied with the first, itself included."""
        return sum(self.ranked[0].samples_per_s / c.samples_per_s - 1 < TIE for c in self.ranked) if self.ranked else 0

    @property
    def noise(self) -> float:
        """What repeats of the two best differ by, at least what nobody can tell."""
        return max([TIE, *(c.spread for c in self.ranked[:2])])

    @property
    def verdict(self) -> str:
        """clear where the two best do not overlap, open where they do, tie where nobody could tell.

        once: nothing says what a repeat of one of them would differ by; alone: there is nothing to compare with.
        """
        if self.gap is None:
            return "alone"
        if self.gap < TIE:
            return "tie"
        first, second = self.ranked[:2]
        if first.at(first.hi_s) >= second.at(second.lo_s):
            return "open"
        return "clear" if first.lo_s is not None and second.lo_s is not None else "once"


def world(record: Record) -> int | None:
    """Devices: as the row counts them, else what its layout takes. Nodes alone do not say how many each has."""
    return _stated(record) or _laid_out(record)


def world_from(record: Record) -> str | None:
    """What the devices were counted from, where the row does not say them."""
    return " x ".join(name.upper() for name in degrees(record.cp)) if not _stated(record) and _laid_out(record) else None


def _stated(record: Record) -> int | None:
    return record.gpus or (record.nodes * record.procs_per_node if record.nodes and record.procs_per_node else None)


def _laid_out(record: Record) -> int | None:
    sizes = [getattr(record, name) for name in degrees(record.cp)]
    return math.prod(sizes) if all(sizes) else None


def tokens_per_device(record: Record) -> float | None:
    """Tokens a second of one device: as the row has it, else from what it does say; None where that is not enough."""
    if record.tokens_per_s_per_process is not None:
        return record.tokens_per_s_per_process
    devices, rate = world(record), record.tokens_per_s
    if rate is None and record.gbs and record.seq and record.sec_per_it:
        rate = record.gbs * record.seq / record.sec_per_it
    return None if rate is None or not devices else rate / devices


def source(record: Record) -> str:
    return record.machine or record.source_file or record.session


def model(record: Record) -> str:
    if record.size_label:
        return record.size_label
    return f"{record.layers} x {record.hidden}" if record.layers and record.hidden else "model not said"


def config(record: Record) -> tuple[object, ...]:
    """What makes two rows repeats of each other: everything that was configured.

    What else a sweep varied stands in `extra`; of an imported row those are columns nothing is known about, often results.
    """
    varied = {} if record.source_file else record.extra
    around = (tuple(sorted(record.env.items())), tuple(sorted(varied.items())))
    return (model(record), *_configured(record), around)


def ranks(record: Record) -> bool:
    """Whether it was measured to a good end, with a batch to compare it by."""
    good = record.outcome is None or record.outcome.status == "ok"
    return record.state == "measured" and good and bool(record.sec_per_it) and bool(record.gbs)


def questions(records: Sequence[Record], set_aside: Mapping[int, str], copies: frozenset[int] = frozenset()) -> list[Question]:
    """Those with most rows to choose from first. `copies` are rows that stand in the table twice."""
    groups: dict[tuple[str, str, int | None], list[int]] = {}
    for place, record in enumerate(records):
        groups.setdefault((source(record), model(record), world(record)), []).append(place)
    found = [_question(key, places, records, set_aside, copies) for key, places in groups.items()]
    return sorted(found, key=lambda q: (-len(q.ranked), -len(q.rows)))


def _question(key: tuple[str, str, int | None], places: list[int], records: Sequence[Record], set_aside: Mapping[int, str],
              copies: frozenset[int]) -> Question:
    configs: dict[tuple[object, ...], list[int]] = {}
    for place in places:
        if ranks(records[place]) and place not in set_aside and place not in copies:
            configs.setdefault(config(records[place]), []).append(place)
    ranked = sorted((_candidate(rows, records) for rows in configs.values()), key=lambda c: -c.samples_per_s)
    nodes = {records[place].nodes for place in places}
    return Question(
        source=key[0], model=key[1], world=key[2], nodes=nodes.pop() if len(nodes) == 1 else None, rows=tuple(places),
        ranked=tuple(ranked), set_aside=tuple((place, set_aside[place]) for place in places if place in set_aside),
    )  # fmt: skip


def _candidate(rows: list[int], records: Sequence[Record]) -> Candidate:
    seconds = [float(records[place].sec_per_it or 0) for place in rows]
    middle = statistics.median(seconds)
    if len(rows) > 1:
        low, high = min(seconds), max(seconds)
    else:
        low, high = interval(records[rows[0]]) or (None, None)  # type: ignore[assignment]
    nearest = sorted(rows, key=lambda place: abs(float(records[place].sec_per_it or 0) - middle))
    return Candidate(rows=tuple(nearest), sec_per_it=middle, samples_per_s=(records[rows[0]].gbs or 0) / middle, lo_s=low,
                     hi_s=high)


def interval(record: Record) -> tuple[float, float] | None:
    """Of a row's own iterations, where they were enough for one."""
    low, high = record.measurement.get("low_s"), record.measurement.get("high_s")
    return (float(low), float(high)) if isinstance(low, int | float) and isinstance(high, int | float) else None


# ---- what the rows say beside each other: the effect of one knob at a time, and scaling over nodes


Value = int | float | str

GIVES_WAY = {name: ("dp",) for name in (*DEGREES, "procs_per_node") if name != "dp"}
"""What moves with a knob because the product is fixed."""
DERIVED = frozenset({"dp", "nodes", "layers", "hidden"})
"""No knobs: the first two follow from the others on so many processes, the last two make another model of it."""
ALLOCATOR = "allocator"
KNOBS = {**{name: COLUMNS[name].title for name in (*LAYOUT, *SHAPE, *AROUND) if name not in DERIVED},
         ALLOCATOR: "Allocator (LD_PRELOAD)"}
ACROSS_TABLES = frozenset({ALLOCATOR, "freq_ghz", "torch_version", "dtype"})
"""Knobs that notes give a table of their own: there rows of one file are compared, else rows of one table."""
MOST_SERIES = 12


@dataclass(frozen=True, kw_only=True)
class Series:
    label: str
    """What is fixed, in a few words."""
    points: tuple[tuple[Value, int], ...]
    """Value of the knob and the row, in order."""


@dataclass(frozen=True, kw_only=True)
class Knob:
    name: str
    title: str
    series: tuple[Series, ...]
    left_out: int
    """Series with fewer points that are not shown."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    label: str
    points: tuple[tuple[int, int], ...]
    """Processes, and the row with most samples per second on them."""


def knobs(records: Sequence[Record], usable: Sequence[int]) -> list[Knob]:
    """`usable`: the rows whose figures count. What was compared most comes first."""
    found = []
    counted = [records[place] for place in usable]
    varied = tuple(name for name in CONFIGURATION if len(set(map(operator.attrgetter(name), counted))) > 1)
    rows = {place: _Row.of(records[place], varied) for place in usable}
    for name, title in KNOBS.items():
        if name != ALLOCATOR and name not in varied:
            continue
        free = [varied.index(one) for one in (name, *GIVES_WAY.get(name, ())) if one in varied]
        said = [(value, place) for place in usable if (value := _value(records[place], name)) is not None]
        if len({value for value, _ in said}) < 2:
            continue
        groups: dict[tuple[object, ...], list[tuple[Value, int]]] = {}
        for value, place in said:
            groups.setdefault(rows[place].but_for(name, free), []).append((value, place))
        compared = [(len(values), points) for points in groups.values() if len(values := {value for value, _ in points}) > 1]
        compared.sort(key=lambda one: (-one[0], -len(one[1])))
        firsts = [{one: getattr(records[points[0][1]], one) for one in varied} for _, points in compared[:MOST_SERIES]]
        apart = differing(firsts, (one for one in varied if one in KNOBS))
        series = [Series(label=_label(records[points[0][1]], name, apart), points=tuple(sorted(points, key=_order)))
                  for _, points in compared[:MOST_SERIES]]
        if series:
            found.append(Knob(name=name, title=title, series=tuple(series), left_out=len(compared) - len(series)))
    return sorted(found, key=lambda knob: -sum(len(series.points) for series in knob.series))


def scaling(records: Sequence[Record], usable: Sequence[int]) -> list[Scaling]:
    """Per model and place, the best row on each number of processes; only where there are two numbers or more."""
    best: dict[tuple[str, str], dict[int, int]] = {}
    for place in usable:
        record, count = records[place], world(records[place])
        if count is None or not record.sec_per_it or not record.gbs:
            continue
        sizes = best.setdefault((source(record), model(record)), {})
        if count not in sizes or _rate(record) > _rate(records[sizes[count]]):
            sizes[count] = place
    return [Scaling(label=f"{name} · {where}", points=tuple(sorted(sizes.items())))
            for (where, name), sizes in sorted(best.items(), key=lambda item: -len(item[1])) if len(sizes) > 1]


def _rate(record: Record) -> float:
    return (record.gbs or 0) / (record.sec_per_it or 1)


def allocator(record: Record) -> str | None:
    """The preloaded library, or that there was none where the row's kind says so."""
    if "LD_PRELOAD" not in record.env:
        return None
    return record.env["LD_PRELOAD"].rsplit("/", 1)[-1] or "system's own"


def _value(record: Record, name: str) -> Value | None:
    if name == ALLOCATOR:
        return allocator(record)
    value = getattr(record, name)
    if isinstance(value, bool):
        return "on" if value else "off"
    return None if value in (None, "") else value


class _Row(NamedTuple):
    """What a row is compared by, worked out once for all knobs."""

    file: tuple[object, ...]
    table: tuple[object, ...]
    asked: tuple[object, ...]
    config: tuple[object, ...]
    env: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, record: Record, varied: Sequence[str]) -> _Row:
        """`varied`: in which of what is configured the rows differ at all."""
        file = (source(record), record.session)
        return cls(file, (*file, record.section, record.table), (model(record), world(record)),
                   tuple([getattr(record, name) for name in varied]),
                   tuple(sorted(record.env.items())))

    def but_for(self, knob: str, free: Sequence[int]) -> tuple[object, ...]:
        """Equal in rows that differ in this knob alone, with what moves with it: those places of the configuration."""
        others = list(self.config)
        for place in free:
            others[place] = None
        env = self.env if knob != ALLOCATOR else tuple(pair for pair in self.env if pair[0] != "LD_PRELOAD")
        return self.file if knob in ACROSS_TABLES else self.table, self.asked, tuple(others), env


def _label(record: Record, knob: str, apart: Sequence[str]) -> str:
    """`apart`: what else tells the series of this knob from each other."""
    free = {knob, *GIVES_WAY.get(knob, ())}
    layout = {name: getattr(record, name) for name in (*DEGREES, "mbs", "gbs", *apart) if name not in free}
    nodes = f"{record.nodes} node{'s' if record.nodes != 1 else ''}" if record.nodes is not None else ""
    return ", ".join(part for part in (model(record), nodes, shown(layout, layout)) if part)


def _order(point: tuple[Value, int]) -> tuple[bool, float, str, int]:
    value, place = point
    return isinstance(value, str), value if not isinstance(value, str) else 0.0, str(value), place
