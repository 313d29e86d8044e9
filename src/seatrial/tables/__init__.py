"""Tables of runs: their headings, and the formats of our own that are written and read back to the last bit.

    from seatrial.tables.markdown import to_markdown         one table per section, the best row in bold
    from seatrial.tables.csvjson import to_csv, to_json      one row per record
    from seatrial.tables.short import to_short               what fits a screen
    from seatrial.tables.headings import read_heading        which field a column of anybody's table holds

`seatrial.notes.read` reads tables that people keep; this package knows nothing of it.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from seatrial.record import Record

__all__ = ["Problem", "Where"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that could not be read as it stands, and where."""

    file: str
    line: int
    column: str = ""
    cell: str = ""
    message: str
    level: Literal["note", "cell", "row"] = "cell"
    """note: read all the same; cell: its record has no value there; row: there is no record."""
    rows: int = 0
    """How many rows this stands for that gave no record."""
    columns: tuple[str, ...] = ()
    """Of a note that names the columns of a table which no field takes."""
    left: tuple[Record, ...] = ()
    """Those rows, where they stand in a table that is not one of runs: its columns may belong together all the same."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class Where:
    file: str
    line: int
    table: int | None = None
