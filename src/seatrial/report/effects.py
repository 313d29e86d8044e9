"""What the rows say beside each other: the effect of one knob at a time, and scaling over nodes.

    effects.knobs(records, usable)[0].series[0].points          [(x, row), …]
    effects.scaling(records, usable)

A series holds rows that differ in the one knob alone, as people compare them by hand. Tensor and pipeline parallelism cannot
move alone: there data parallelism takes up what they leave, and the world stays as it is.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.columns import AROUND, COLUMNS, DEGREES, LAYOUT, SHAPE, shown
from seatrial.record import Record
from seatrial.report.answers import CONFIGURATION, model, source, world

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
    for name, title in KNOBS.items():
        groups: dict[tuple[object, ...], list[tuple[Value, int]]] = {}
        for place in usable:
            value = _value(records[place], name)
            if value is not None:
                groups.setdefault(_fixed(records[place], name), []).append((value, place))
        series = [Series(label=_label(records[points[0][1]], name), points=tuple(sorted(points, key=_order)))
                  for points in groups.values() if len({value for value, _ in points}) > 1]
        series.sort(key=lambda s: (-len({value for value, _ in s.points}), -len(s.points)))
        if series:
            found.append(Knob(name=name, title=title, series=tuple(series[:MOST_SERIES]),
                              left_out=max(0, len(series) - MOST_SERIES)))
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


def _fixed(record: Record, knob: str) -> tuple[object, ...]:
    free = {knob, *GIVES_WAY.get(knob, ())}
    env = {key: value for key, value in record.env.items() if not (knob == ALLOCATOR and key == "LD_PRELOAD")}
    where = (source(record), record.session) if knob in ACROSS_TABLES else (source(record), record.session, record.section,
                                                                            record.table)
    others = [None if name in free else getattr(record, name) for name in CONFIGURATION]
    return (*where, model(record), world(record), *others, tuple(sorted(env.items())))


def _label(record: Record, knob: str) -> str:
    free = {knob, *GIVES_WAY.get(knob, ())}
    layout = {name: getattr(record, name) for name in (*DEGREES, "mbs", "gbs") if name not in free}
    nodes = f"{record.nodes} node{'s' if record.nodes != 1 else ''}" if record.nodes is not None else ""
    return ", ".join(part for part in (model(record), nodes, shown(layout)) if part)


def _order(point: tuple[Value, int]) -> tuple[bool, float, str, int]:
    value, place = point
    return isinstance(value, str), value if not isinstance(value, str) else 0.0, str(value), place
