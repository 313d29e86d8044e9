"""The columns of a table by what they count, as sentences speak of them: see `figures`.

    table = Columns.of(rows)
    for column in table.of("tokens a second"):
        column.heading, column.values[row]           in units of the kind
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from seatrial.notes.lint.headings import EXTRA, is_extra
from seatrial.notes.lint.phases.quantities import meanings
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.text.claims import heading_words
from seatrial.tables.headings import read_heading

_FIELDS = {"step seconds": "sec_per_it", "tokens a second": "tokens_per_s",
           "device tokens a second": "tokens_per_s_per_process",
           "samples a second": "samples_per_s", "tflops": "tflops", "pflops": "aggr_pflops", "mfu": "mfu", "hfu": "hfu",
           "steps": "iteration"}  # fmt: skip
_ALSO = {"tokens a second": ("device tokens a second",), "device tokens a second": ("tokens a second",),
         "node tokens a second": ("tokens a second", "device tokens a second"), "hours": ("step seconds",)}  # fmt: skip
"""What else a figure may be whose unit leaves something out."""
WORKED_OUT = {"price of tokens": ("money", "tokens", 1.0), "energy of a token": ("energy", "tokens", 1.0),
               "price of a device hour": ("money", "device hours", 1.0), "tokens a second": ("tokens", "hours", 1 / 3600)}
"""What a sentence may tell of rows that do not show it: one column over another."""
_SPEEDUP = re.compile(r"\bspeed ?up\b|\bgain\b|\bfaster\b|\bbeschleunigung\b|\bacceleration\b")


@dataclass(frozen=True)
class Column:
    kind: str
    heading: str
    values: dict[Row, float]
    """As findings mend them."""
    printed: dict[Row, float]


@dataclass
class Columns:
    rows: tuple[Row, ...]
    _found: dict[str, list[Column]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Column]:
        """Those of a kind, and of what it may be else."""
        if not self._found:
            for column in self._all():
                # What is less than nothing was measured by nobody.
                if values := {row: value for row, value in column.values.items() if value > 0}:
                    self._found.setdefault(column.kind, []).append(replace(column, values=values))
            self._found.setdefault("", [])
        found = list(self._found.get(kind, ()))
        return found + [one for also in _ALSO.get(kind, ()) if kind != "hours" for one in self._found.get(also, ())]

    def _all(self) -> list[Column]:
        found: list[Column] = []
        first = self.rows[0]
        for kind, name in _FIELDS.items():
            times = 100.0 if name in ("mfu", "hfu") else 1.0
            values = {row: times * value for row in self.rows if row.shows(name) and (value := row.get(name))}
            shown = {row: times * (getattr(row.record, name) or value) for row, value in values.items()}
            found += [Column(kind, first.column(name), values, shown)] if values else []
        memory = {row: value / (1024.0 if row.record.mem_unit in ("MiB", "MB") else 1.0) for row in self.rows
                  if row.shows("mem_value") and (value := row.get("mem_value"))}  # fmt: skip
        found += [Column("memory", first.column("mem_value"), memory, memory)] if memory else []
        for heading in first.record.printed:
            if not is_extra(heading):
                found += self._again(heading)
                continue
            values = {row: value for row in self.rows if (value := row.get(EXTRA + heading))}
            if not values:
                continue
            shown = {row: row.figure(heading) or value for row, value in values.items()}
            if "efficien" in heading_words(heading):
                times = 100.0 if max(values.values()) < 2 else 1.0
                found.append(Column("efficiency", heading, {row: times * value for row, value in values.items()},
                                    {row: times * value for row, value in shown.items()}))  # fmt: skip
            cells = [row.cells.get(heading, "") for row in values]
            if 2 * sum("%" in cell for cell in cells) > len(cells) or heading.rstrip(")] ").endswith("%"):
                found.append(Column("percent", heading, values, shown))
            if _SPEEDUP.search(heading_words(heading)):
                found.append(Column("factor", heading, values, shown))
            found += [Column(kind, heading, {row: unit * value for row, value in values.items()},
                             {row: unit * value for row, value in shown.items()})
                      for kind, unit in meanings(heading)]  # fmt: skip
        kinds = {column.kind: column for column in reversed(found)}
        for kind, (over, under, times) in WORKED_OUT.items():
            if kind not in kinds and over in kinds and under in kinds:
                one, other = kinds[over], kinds[under]
                found.append(Column(kind, one.heading, {row: times * value / other.values[row]
                                                        for row, value in one.values.items() if other.values.get(row)}, {}))
        return found

    def _again(self, heading: str) -> list[Column]:
        """A second column of what a field holds: that of before, or of another version."""
        first = self.rows[0]
        known = [(kind, name) for kind, _ in meanings(heading) if (name := _FIELDS.get(kind)) is not None]
        if not known or first.column(known[0][1]) == heading or read_heading(heading).unit not in ("", "s"):
            return []
        values = {row: value for row in self.rows if (value := row.figure(heading))}
        return [Column(known[0][0], heading, values, values)] if values else []
