"""The last look at a record that was read, whoever read it: what no run ever measured is left out, and said.

    for found in sound(read_csv(path, name)): ...

Readers know their own format; that a time is above zero and a count fits 64 bits holds for all of them.
"""
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

from seatrial.errors import BadInput
from seatrial.plaindata import MOST_WHOLE, bounded
from seatrial.record import ABOVE_ZERO, Record
from seatrial.tables import Problem

MOST_MEASURED = 1e18
"""Also its inverse: FLOP/s typed under TFLOPs are far below."""
MOST_COUNTED = 10**12
_COUNTS = frozenset(f.name for f in dataclasses.fields(Record) if f.name in ABOVE_ZERO and str(f.type).startswith("int"))
_OTHERS = ("loss", "aggr_pflops", "iteration", "zero_stage", "bucket_mib", "logits_chunk", "threads", "source_line")
_NESTED = ("memory", "breakdown", "measurement", "iterations", "trial", "host", "forecast")


def sound(found: Iterator[Record | Problem]) -> Iterator[Record | Problem]:
    for one in found:
        if isinstance(one, Record) and (wrong := _wrong(one)):
            for name, (value, why) in wrong.items():
                yield Problem(file=one.source_file, line=one.source_line or 0, column=name, cell=str(value)[:80],
                              message=f"{name}: {why}")
            without: dict[str, Any] = {name: _EMPTY.get(name) for name in wrong}
            if "outcome" in wrong and one.outcome is not None:
                without["outcome"] = dataclasses.replace(one.outcome, rank=None, iteration=None, evidence={})
            yield dataclasses.replace(one, **without)
        elif isinstance(one, Problem) and not all(map(is_sound, one.left)):
            yield dataclasses.replace(one, left=tuple(filter(is_sound, one.left)))
        else:
            yield one


def is_sound(record: Record) -> bool:
    return not _wrong(record)


_HELD = (*_NESTED, "outcome", "context")
_ABOVE_ZERO, _PLAIN, _HOLDS = (operator.attrgetter(*names) for names in (ABOVE_ZERO, _OTHERS, _HELD))
_EMPTY: dict[str, Any] = {name: () if name == "iterations" else {} for name in (*_NESTED, "context")}


def _wrong(record: Record) -> dict[str, tuple[str, str]]:
    wrong: dict[str, tuple[str, str]] = {}
    for name, value in zip(ABOVE_ZERO, _ABOVE_ZERO(record)):
        if value is None:
            continue
        if not value > 0:
            wrong[name] = f"{value}", f"{value} is not above 0"
        elif not 1 / MOST_MEASURED <= value <= (MOST_COUNTED if name in _COUNTS else MOST_MEASURED):
            wrong[name] = "", "beyond any number that was ever measured"
    for name, value in zip(_OTHERS, _PLAIN(record)):
        if value is not None and not -MOST_WHOLE <= value <= MOST_WHOLE:
            wrong[name] = "", "beyond any number that was ever measured"
    for name, value in zip(_HELD, _HOLDS(record)):
        if value:
            if name == "outcome":
                value = [value.rank, value.iteration, value.evidence]
            elif name == "context":
                value = {key: stated.value for key, stated in value.items()}
            try:
                bounded(value, name)
            except BadInput as error:
                wrong[name] = "", str(error).removeprefix(f"{name}: ")
    return wrong
