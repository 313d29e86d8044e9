"""One slip in a table that was right: where it is, what lint must say of it, and how cells are changed."""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from lint_tables import Table


@dataclass
class Planted:
    table: Table
    row: int
    code: str
    proposed: str | None = None
    """What must be proposed; None where lint may leave it open."""
    column: str | None = None
    level: str = "error"
    other: int | None = None
    """The other row of two whose cells were exchanged: what is said may stand at either."""

    @property
    def lines(self) -> list[int]:
        return [self.table.line_of(row) for row in (self.row, self.other) if row is not None]


Slip = Callable[[Table, random.Random], "Planted | None"]


def change(table: Table, index: int, **cells: str) -> Table:
    rows = [replace(row, cells=dict(row.cells)) for row in table.rows]
    rows[index].cells.update({name.replace("_", "/"): value for name, value in cells.items()})
    return replace(table, rows=rows)
