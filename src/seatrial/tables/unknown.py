"""Columns that no field takes: named, never dropped in silence; and those that would change a forecast refuse the row.

    unknown_columns(["DP", "SP size", "Mood"], [["8", "1", "good"], ["8", "2", ""]])
        -> (["Mood"], {1: "SP size 2: sequence parallelism of so many ranks is not modelled; a row with SP size 1 …"})

A parallelism that we do not have is harmless at its neutral value: 1, 0, none, off, `-` or nothing.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from seatrial.tables.codec import PLAIN, TYPES
from seatrial.tables.headings import clean, normal, read_heading

_AXES = {
    "sequence parallelism of so many ranks": "ulysses, ring attention, sp size, sequence parallel size",
    "a mixture of experts": "moe, expert",
    "sharding within a part of the replicas": "dp shard, hsdp, hybrid shard, data parallel shard, dp replicate, "
                                              "data parallel replicate, hpz, zero hpz partition, mics shard",
}  # fmt: skip
"""What a forecast would have to know and does not -> what authors call it, in plain words (see `normal`)."""
_AXIS_OF = {name.strip(): axis for axis, names in _AXES.items() for name in names.split(",")}
_ENDINGS = (" size", " degree", " ways", " count")
_OURS = frozenset({"status", "seatrial", "duplicate_of", "corrected"})
"""What tables of our own have beside the fields of a record."""
NEUTRAL = frozenset({"", "0", "1", "none", "no", "off", "false", "n/a", "na", "null", "unstated", "disabled", "dense", "x1"})


def is_known(heading: str, also: Collection[str] = ()) -> bool:
    """By what a table's author calls a field, by the field's own name, or as a corrected value beside it (`dp_fixed`)."""
    name = heading.strip().removesuffix("_fixed")
    column = read_heading(heading)
    return bool(column.field or column.parts) or name in TYPES or name in PLAIN or name in _OURS or name in also


@lru_cache(maxsize=64)
def axes_lacking(headings: tuple[str, ...]) -> dict[int, str]:
    """Index of a column -> the axis it stands for that no forecast knows."""
    found = {}
    for index, heading in enumerate(headings):
        name = normal(clean(heading)).removeprefix("num ").removeprefix("n ").removeprefix("number of ")
        for ending in _ENDINGS:
            name = name if name in _AXIS_OF else name.removesuffix(ending)
        if name in _AXIS_OF and not is_known(heading):
            found[index] = _AXIS_OF[name]
    return found


def refusal(axes: Mapping[int, str], headings: Sequence[str], cells: Sequence[str]) -> str:
    """Why a row cannot be read as one of ours; empty where every such column is at its neutral value."""
    for index, axis in axes.items():
        value = clean(cells[index]) if index < len(cells) else ""
        plain = value.lower().strip("-–— .")
        if plain.removesuffix(".0") in NEUTRAL:
            continue
        name = headings[index].strip()
        return f"{name} {value}: {axis} is not modelled; a row with {name} 1 or without it can be read"
    return ""


def unknown_columns(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, also: Collection[str] = ()
) -> tuple[list[str], dict[int, str]]:
    """The columns that no field takes, and for each row that has to be refused its index and the reason.

    `also` are names that the caller knows beside a record's fields.
    """
    axes = axes_lacking(tuple(headings))
    ignored = [h.strip() for i, h in enumerate(headings)
               if i not in axes and any(map(str.isalnum, h)) and not is_known(h, also)]  # fmt: skip
    refused = {number: why for number, cells in enumerate(rows) if axes and (why := refusal(axes, headings, cells))}
    return list(dict.fromkeys(ignored)), refused
