"""Which rows of a table, in which order: rules and columns that people name.

    rows = chosen(records, where=["tp == 2 and status == 'ok'"], sort="-mfu,sec_per_it", top=5)

Names are those of a record (`zero_stage`), of a trial's tables (`zero`), of a sweep's axes and settings, and `status`, `world`.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from seatrial import expression
from seatrial.columns import COLUMNS
from seatrial.errors import BadInput
from seatrial.fields import nearest
from seatrial.record import Record

ABSENT = math.nan
"""What a row does not say: it equals nothing, and is neither above nor below."""


def chosen(records: Iterable[Record], *, where: Sequence[str] = (), sort: str = "", top: int | None = None) -> list[Record]:
    rows = list(records)
    if not where and not sort:
        return rows[:top]
    valued = [(values(row), row) for row in rows]
    known = frozenset(name for found, _ in valued for name in found) | names()
    for text in where:
        rule = expression.parse(text, known, cells=True)
        valued = [(found, row) for found, row in valued if rule.holds({name: found.get(name, ABSENT) for name in rule.names})]
    for column in reversed([part.strip() for part in sort.split(",") if part.strip()]):
        name, down = column.removeprefix("-"), column.startswith("-")
        if name not in known:
            raise BadInput(f"--sort {column!r}: {nearest(name, known)}")
        said = [pair for pair in valued if not _absent(pair[0].get(name, ABSENT))]
        said.sort(key=lambda pair, name=name: _key(pair[0][name]), reverse=down)  # type: ignore[misc]
        valued = said + [pair for pair in valued if _absent(pair[0].get(name, ABSENT))]
    return [row for _, row in valued][:top]


def names() -> frozenset[str]:
    """Those that every record may have."""
    fields = {name for column in COLUMNS.values() for name in (column.name, column.field)}
    return frozenset({*fields, "status", "world"} - {"outcome", "env", "extra"})


def values(row: Record) -> dict[str, Any]:
    """What a rule can say of a row, as numbers and texts."""
    found: dict[str, Any] = {}
    for key, value in {**row.env, **row.extra}.items():
        if key.isidentifier():
            found[key] = _number(value)
    for name, column in COLUMNS.items():
        value = getattr(row, name)
        if isinstance(value, int | float | str) and value != "":
            found[name] = found[column.field] = int(value) if isinstance(value, bool) else value
    found["status"] = row.outcome.status if row.outcome is not None else "ok" if row.state == "measured" else row.state
    if row.gpus is not None:
        found["world"] = row.gpus
    return found


def _number(text: str) -> Any:
    try:
        return float(text) if not text.isdigit() else int(text)
    except ValueError:
        return text


def _absent(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _key(value: Any) -> tuple[bool, Any]:
    """Numbers before texts."""
    return isinstance(value, str), value
