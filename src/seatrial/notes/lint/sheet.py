"""All rows that the rules look at together, in their tables and files, and what is learned of those.

    sheet = Sheet.of(records, prose={"notes.md": Prose.of(text)})
    sheet.tables, sheet.files                        rows that stand together, in the order of the page
"""
from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from seatrial.notes.labels import is_mixture
from seatrial.notes.lint import digits
from seatrial.notes.lint.headings import field_of, fields_of
from seatrial.notes.lint.row import CONFIGURATION, MEASURED, MOST, NEAR, Row
from seatrial.notes.lint.text.prose import Prose
from seatrial.notes.read.rows import sequences
from seatrial.notes.read.told import of_all
from seatrial.record import Record
from seatrial.tables.headings import batch_of_tokens, clean

if TYPE_CHECKING:
    from seatrial.notes.lint.columns import counts, relations
    from seatrial.notes.lint.models.formulas import Reading
    from seatrial.notes.lint.phases.ledger import Law

FIGURES = (*MEASURED, "tokens_per_s_per_process", "mfu", "hfu", "loss")
_FIGURES = operator.attrgetter(*FIGURES)
_SIZE = re.compile(r"\d+(?:\.\d+)? ?[MBT]")


@dataclass(eq=False)
class Sheet:
    """All rows of all files that are looked at together."""

    rows: list[Row]
    prose: Mapping[str, Prose]
    names: Mapping[str, str] = field(default_factory=dict)
    """Chapter -> its file: see `chapters`."""
    readers: dict[tuple[str, Reading], list[Row]] = field(default_factory=dict)
    """(file, reading) -> the rows that follow it and agree; filled when it is needed."""
    followed: dict[str, Counter[Reading | None]] = field(default_factory=dict)
    """File -> how many of its rows follow each reading; filled when it is needed."""
    proven: dict[tuple[str, Reading, object], bool] = field(default_factory=dict)
    """(file, reading, model) -> whether rows of the file agree with it; filled when it is needed."""
    trusted: dict[Row, bool] = field(default_factory=dict)
    """Row -> whether its time and TFLOPs agree as printed; filled when it is needed."""
    rules: dict[tuple[str, object, object], relations.Rule] = field(default_factory=dict)
    """Which relations between columns the rows of a table and of a file keep to: see `relations`."""
    found: dict[tuple[str, int | None], list[relations.Relation]] = field(default_factory=dict)
    """Table -> what its columns that no field takes follow from: see `relations`."""
    laws: dict[tuple[str, int | None], list[Law]] = field(default_factory=dict)
    """Table -> what its columns have to do with each other by definition: see `ledger`."""
    asked: dict[tuple[str, int | None], tuple[relations.Relation, ...]] = field(default_factory=dict)
    """Table -> the relations that its rows are asked for."""
    in_step: tuple[Row, int, dict[str, float], counts.Columns, dict[frozenset[str], list[counts.Law]]] | None = None
    """The row that counts were last looked at for, those and their laws: see `counts`."""
    ends: dict[tuple[object, ...], list[tuple[float, float] | None]] = field(default_factory=dict)
    """Readings and a shape -> the fewest and the most FLOPs of a sequence: see `formulas`."""
    thinned: set[tuple[str, int | None]] = field(default_factory=set)
    """Tables of which rows with the figures of another one are left out: nothing adds them up."""
    loose: set[object] = field(default_factory=set)
    """Tables whose figures scatter; filled when it is needed."""
    peaks: dict[object, bool] = field(default_factory=dict)
    """Table -> whether its MFU are shares of a peak that a data sheet has."""
    costs: dict[tuple[object, str], tuple[float, float]] = field(default_factory=dict)
    """(table, size) -> what a token costs, and a token for each token of the sequence, where no formula is known."""
    titled: dict[tuple[str, int | None], frozenset[str]] = field(default_factory=dict)
    """Table -> the fields that the names of its runs are right about: see `titled`."""
    mentioned: dict[tuple[str, tuple[int, ...]], object] = field(default_factory=dict)
    """A sentence and rows -> what it names of them: see `mentions`, which several rules ask once nothing changes any more."""
    _steps: dict[tuple[tuple[str, int | None], str], digits.Steps] = field(default_factory=dict)
    _ordered: dict[tuple[tuple[str, int | None], str], list[float]] = field(default_factory=dict)
    _filled: dict[tuple[str, int | None], frozenset[str]] = field(default_factory=dict)
    _unknown: dict[tuple[str, int | None], bool] = field(default_factory=dict)
    _shared: dict[tuple[str, int | None], frozenset[str]] = field(default_factory=dict)
    _counts: dict[tuple[tuple[str, int | None], str], Counter[object]] = field(default_factory=dict)
    _laid_out: dict[str, dict[tuple[int | None, ...], list[Row]]] = field(default_factory=dict)
    _bearers: dict[tuple[str, str, int | None], dict[object, list[Row]]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record], prose: Mapping[str, Prose] | None = None, names: Mapping[str, str] | None = None
           ) -> Sheet:  # fmt: skip
        sheet = cls([], dict(prose or {}), names or {})
        for record in _with_settings(list(records)):
            text = sheet.prose.get(record.source_file)
            record = _labelled(record)
            known = _in_sequences(record if text is None else text.hints.enriched(of_all(record, text.hints)))
            row = Row(known, len(sheet.rows), sheet, layers=known.layers, hidden=known.hidden, seq=known.seq, vocab=known.vocab)
            told = text is not None and text.hints.mixture(known)
            row.mixture = told or is_mixture(known.size_label) or bool(known.experts) or row.beside("ep") is not None
            sheet.rows.append(row)
        for rows in sheet.tables.values():
            _nearly_in_sequences(rows)
            _as_fractions(rows)
            if rows[0].record.tokens_per_s and len(rows) > 2 and _of_one_device([row.record for row in rows[:NEAR]]):
                for row in rows if "tokens_per_s" in rows[0].columns else ():
                    heading = row.columns.pop("tokens_per_s", "")
                    row.columns.update({"tokens_per_s_per_process": heading} if heading else {})
                    rate = {"tokens_per_s": None, "tokens_per_s_per_process": row.record.tokens_per_s}
                    row.record = row.record.changed(rate)
        return sheet

    @cached_property
    def tables(self) -> dict[tuple[str, int | None], list[Row]]:
        """(file, number of the table) -> its rows; what is no table row stands under None."""
        tables = _grouped(self.rows, lambda row: row.key)
        for rows in tables.values():
            for place, row in enumerate(rows):
                row.place = place
        return tables

    @cached_property
    def _of_files(self) -> dict[str, list[list[Row]]]:
        found: dict[str, list[list[Row]]] = {}
        for (file, table), rows in self.tables.items():
            if table is not None:
                found.setdefault(file, []).append(rows)
        return found

    def tables_of(self, file: str) -> list[list[Row]]:
        """The tables of a file, in its order."""
        return self._of_files.get(file, [])

    def tables_beside(self, file: str) -> list[list[Row]]:
        """Those of all chapters of the file that a chapter is of: a sentence at the end may speak of each."""
        return self._of_whole.get(self.names.get(file, file), [])

    @cached_property
    def _of_whole(self) -> dict[str, list[list[Row]]]:
        found: dict[str, list[list[Row]]] = {}
        for file, tables in self._of_files.items():
            found.setdefault(self.names.get(file, file), []).extend(tables)
        return {file: sorted(tables, key=lambda rows: rows[0].record.source_line or 0) for file, tables in found.items()}

    @cached_property
    def defines(self) -> bool:
        """Whether a text says what a heading stands for."""
        return any(text.defined for text in self.prose.values())

    @cached_property
    def turned(self) -> set[tuple[str, int | None]]:
        """Files and lines in which several rows of a table begin: one that has its runs side by side."""
        starts = Counter((row.record.source_file, row.record.source_line) for row in self.rows if row.record.table is not None)
        return {where for where, rows in starts.items() if rows > 1}

    @cached_property
    def files(self) -> dict[str, list[Row]]:
        return _grouped(self.rows, lambda row: row.record.source_file)

    def steps(self, key: tuple[str, int | None], name: str) -> digits.Steps:
        """How fine the figures of one column are."""
        steps = self._steps.get((key, name))
        if steps is None:
            shown = [digits.read(cell, getattr(row.record, name, None)) for row in self.tables[key] if (cell := row.cell(name))]
            steps = self._steps[key, name] = digits.Steps.of([figure for figure in shown if figure is not None])
        return steps

    def ordered(self, key: tuple[str, int | None], name: str) -> list[float]:
        """What the rows of a table have in a field, the least first."""
        if (key, name) not in self._ordered:
            values = (getattr(row.record, name) for row in self.tables[key][:MOST])
            self._ordered[key, name] = sorted(value for value in values if value)
        return self._ordered[key, name]

    def rare(self, row: Row, name: str, value: object) -> bool:
        """Whether no other row of the table may have a value; in a very long one, whether hardly any has."""
        key = row.key, name
        if key not in self._counts:
            self._counts[key] = Counter(getattr(mate.record, name) for mate in row.mates)
        return self._counts[key][value] < fewest(row.mates)

    def filled(self, key: tuple[str, int | None]) -> frozenset[str]:
        """What is measured in a row of the table at all: rules of anything else need not look at its rows."""
        if key not in self._filled:
            columns = zip(*(_FIGURES(row.record) for row in self.tables[key]))
            self._filled[key] = frozenset(n for n, column in zip(FIGURES, columns) if column.count(None) < len(column))
        return self._filled[key]

    def refilled(self, key: tuple[str, int | None]) -> None:
        """The rows of a table measure something else than was read."""
        self._filled.pop(key, None)

    def laid_out(self, file: str) -> dict[tuple[int | None, ...], list[Row]]:
        """DP, TP and PP as they are printed -> the rows of a file that have them."""
        if file not in self._laid_out:
            self._laid_out[file] = _grouped(self.files[file][:MOST], lambda row: (row.record.dp, row.record.tp, row.record.pp))
        return self._laid_out[file]

    def has_unknown(self, key: tuple[str, int | None]) -> bool:
        """Whether a column of the table that no field takes holds different numbers."""
        if key not in self._unknown:
            rows = self.tables[key][:NEAR]
            headings = rows[0].extras
            self._unknown[key] = any(len({row.figure(heading) for row in rows} - {None}) > 1 for heading in headings)
        return self._unknown[key]

    def shared(self, key: tuple[str, int | None]) -> frozenset[str]:
        """The columns that no field takes whose figures most rows of the table share with another row."""
        if key not in self._shared:
            rows = self.tables[key][:NEAR]
            columns = {heading: [row.figure(heading) for row in rows] for heading in rows[0].extras}
            self._shared[key] = frozenset(
                heading for heading, column in columns.items() if len({*column}) < len(column)
                and 2 * sum(n for n in Counter(column).values() if n > 1) > len(rows))  # fmt: skip
        return self._shared[key]

    def in_file(self, row: Row, name: str, *, hidden: int | None = None) -> list[object]:
        """The values that the other rows of the file have in a field, each once, in the order they first come; of rows with
        one hidden size, where that is said."""
        key = row.record.source_file, name, hidden
        if key not in self._bearers:
            bearers: dict[object, list[Row]] = {}
            for other in row.elsewhere:
                if (value := getattr(other.record, name)) and (hidden is None or other.hidden == hidden):
                    first = bearers.setdefault(value, [])
                    if len(first) < 2:
                        first.append(other)
            self._bearers[key] = bearers
        own = self._bearers[key].get(getattr(row.record, name))
        if not own or own[0] is not row:
            return list(self._bearers[key])  # in the order they first come without the row too
        others = ((value, [b for b in first if b is not row]) for value, first in self._bearers[key].items())
        return [value for value, first in sorted(((v, b) for v, b in others if b), key=lambda pair: pair[1][0].index)]

    def text(self, row: Row) -> Prose:
        """What is said of a row."""
        return row.prose


def fewest(mates: list[Row]) -> int:
    """Rows of a table below which hardly any has a value."""
    return 2 + len(mates) // (2 * NEAR)


def _labelled(record: Record) -> Record:
    """A size in the first cell is the model's, whatever stands above it: `8B` under `Llama 3`."""
    first = clean(next(iter(record.printed.values()), "")) if not record.size_label else ""
    return replace(record, size_label=first) if _SIZE.fullmatch(first) else record


def _in_sequences(record: Record) -> Record:
    """With the batch that a column has in tokens, where a sentence says how long a sequence is."""
    heading = fields_of(tuple(record.printed)).get("gbs", "") if record.printed else ""
    unit = batch_of_tokens(heading) if heading else None
    if unit is None or record.gbs and "gbs" not in (*record.inferred, *record.context) and "seq" not in record.inferred:
        return record
    inferred = tuple(name for name in record.inferred if name != "gbs")
    return replace(record, gbs=sequences(record, heading, unit), inferred=inferred)


_SETTINGS = ("gpus", "machine", "size_label", *CONFIGURATION)


def _with_settings(records: list[Record]) -> list[Record]:
    """Rows of a table of results with what a table above lists under the same name: `P1` of 64 GPUs, and below its times."""
    tables: dict[tuple[str, int], list[int]] = {}
    for at, record in enumerate(records):
        if record.table is not None:
            tables.setdefault((record.source_file, record.table), []).append(at)
    lists: dict[tuple[str, str], dict[str, Record]] = {}
    for (file, _), places in tables.items() if len(tables) > 1 else ():
        rows = [records[at] for at in places[:MOST]]
        name = next(iter(rows[0].printed), "")
        keys = [row.printed.get(name, "").strip() for row in rows]
        if len(rows) < 3 or len(keys) != len(places) or not all(keys) or len({*keys}) < len(keys) or field_of(name):
            continue
        listed = lists.get((file, name))
        if listed is None and all(row.state == "planned" for row in rows):
            lists[file, name] = dict(zip(keys, rows))
        elif listed is not None and {*keys} <= {*listed}:
            for at, key in zip(places, keys):
                own, theirs = (fields_of(tuple(row.printed)) for row in (records[at], listed[key]))
                values = {one: value for one in _SETTINGS if one in theirs and one not in own
                          and (value := getattr(listed[key], one, None))}  # fmt: skip
                if "gpus" in values or "nodes" in values:
                    values.pop("dp", None)  # whether they multiply is asked once, where they are listed
                if _multiplies(listed[key]):
                    records[at] = records[at].changed(values)
    return records


def _multiplies(record: Record) -> bool:
    """Whether no degree of a layout is known to be wrong."""
    world = math.prod(degree or 1 for degree in (record.dp, record.tp, record.pp, record.cp))
    replicas = (record.dp or 1) * (record.mbs or 1)
    return (not record.gpus or not record.dp or world == record.gpus) and (record.gbs or 0) % replicas == 0


MOST_OF_PEAK = 10.0


def _as_fractions(rows: list[Row]) -> None:
    """`1.333` among 0.42 and 0.41 is more than the whole peak, and not 1.3 per cent."""
    for name in ("mfu", "hfu"):
        read = [(row, digits.alone(row.cell(name)), value) for row in rows[:MOST] if (value := getattr(row.record, name))]
        above = [(row, number) for row, number, value in read if number and number > 1.5 * value]
        others = [value for _, number, value in read if number == value]
        if 0 < len(above) <= max(1, len(read) // 4) and len(others) >= 3 and len(above) + len(others) == len(read):
            for row, number in above:
                if number < MOST_OF_PEAK:
                    row.record = row.record.changed({name: number})


FLAT, SEVERAL = 1.2, 4
"""By which factor a rate of one device differs at most over so many times the devices, where that of all grows with them."""


def _of_one_device(records: list[Record]) -> bool:
    """`wps` and `tok/s` are of all devices or of one, as each engine has it: more devices do more in all, and each no more."""
    rates = [(record, rate, devices) for record in records
             if (rate := record.tokens_per_s) and (devices := record.gpus or record.nodes)]  # fmt: skip
    counts = {devices for _, _, devices in rates}
    if len(rates) < 3 or max(counts) < SEVERAL * min(counts) or any(record.tokens_per_s_per_process for record in records):
        return False
    alike: dict[object, list[tuple[int, float]]] = {}
    for record, rate, devices in rates:
        name = record.size_label or next(iter(record.printed.values()), "")
        alike.setdefault((name, record.machine, record.seq), []).append((devices, rate))
    least = {key: min(some) for key, some in alike.items()}
    grown = [rate / least[key][1] for key, some in alike.items() for devices, rate in some
             if devices >= SEVERAL * least[key][0]]  # fmt: skip
    return sum(1 / SEVERAL < more < FLAT for more in grown) > max(1, 0.6 * len(grown))


def _nearly_in_sequences(rows: list[Row]) -> None:
    """What no whole number of sequences gives, where the other rows have one: a slip, which the row's figures tell."""
    heading = rows[0].columns.get("gbs", "")
    unit = batch_of_tokens(heading) if heading else None
    left = [row for row in rows if row.record.gbs is None and row.cell("gbs")] if unit is not None else []
    if left and len(rows) - len(left) >= max(2, 2 * len(left)):
        for row in left:
            row.record = replace(row.record, gbs=sequences(row.record, heading, unit or "", nearly=True))


def _grouped(rows: list[Row], key) -> dict:  # type: ignore[no-untyped-def]
    groups: dict = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
