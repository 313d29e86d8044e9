"""What a row is worth: unreadable, planned, dated but empty, estimated, extrapolated; and text beside its numbers.

    check_reading(sheet, problems)       what the importer could not read as it stands, and columns that nothing is known about
    check(sheet)
"""
from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from seatrial.notes.lint.digits import slip
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import field_of, kind_beside
from seatrial.notes.lint.row import MEASURED, Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.read.statements import read_status
from seatrial.tables import Problem
from seatrial.tables.headings import NUMBER, read_heading
from seatrial.tables.unknown import is_known

_CLOCK = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?([kKMG]?)[Hh][Zz]\b")
_NUMERIC = {"count", "figure", "memory", "seconds", "rate", "percent"}
_UNITS = re.compile(
    r"\b(?:[KMGT]i?[BO]?|bytes?|[mu]?s(?:ecs?)?|mins?|minutes?|secs?|seconds?|h|hrs?|hours?|d|days?|steps?|[GTPE]FLOPs?|PetaFLOPs?|%|"
    r"samples|seqs?|tokens?|tok|/|per|it|iter|gpu|device|node|x)\b",
    re.IGNORECASE,
)
_GROUPS = re.compile(r"\d{1,3}(?:[ ,'\u00a0\u2009\u202f]\d{1,4})+(?:\.\d+)?")
_FOREIGN = re.compile(r"' is (?:a share|memory|FLOP/s|another rate)$")
_JOB = re.compile(r"\b\d{6,}\b")


def check(sheet: Sheet) -> list[Finding]:
    rules = (clock, text_in_number, state, contradicted, text_above)
    found = [finding for row in sheet.rows for rule in rules for finding in rule(row)]
    for mates in sheet.tables.values():
        found += [*extrapolated(mates), *dates(mates), *moved_points(mates)]
    return found


def clock(row: Row) -> Iterator[Finding]:
    """Processors run at some gigahertz."""
    for heading, cell in row.record.printed.items() if "z" in row.text or "Z" in row.text else ():
        for match in _CLOCK.finditer(cell):
            value, prefix = float(match[1]), match[2].upper()
            ghz = value * {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0}[prefix]
            if 0.1 <= ghz <= 10:
                continue
            meant = f"{match[1]}GHz" if 0.1 <= value <= 10 else f"{match[1]}MHz" if 100 <= value <= 10000 else None
            message = f"a clock of {match[0]}" + (f" can only be {meant}" if meant else " is none of a processor")
            yield row.find("clock-unit", "error", message, column=heading, printed=match[0], proposed=meant)


def text_in_number(row: Row) -> Iterator[Finding]:
    """A number with words beside it; words alone say what happened and are read as such."""
    for heading, cell in row.worded.items():
        if number := number_among_words(heading, cell):
            message, text = f'"{cell.strip()}" has words in a column of numbers: they belong into the notes', cell.strip()
            yield row.find("text-in-number", "info", message, column=heading, printed=text, proposed=number)


@functools.lru_cache(maxsize=65536)
def number_among_words(heading: str, cell: str) -> str:
    """The number of a cell of a numeric column that has words beside it."""
    column, number = read_heading(heading), NUMBER.search(cell)
    if column.kind not in _NUMERIC or column.field in ("nodes", "gpus", "size_label", "") or number is None:
        return ""
    if NUMBER.match(cell.strip("~≈<> *`")) is None and read_status(cell).failed:
        return ""  # `hang, killed after 20 min`: what came of it
    rest = _UNITS.sub(" ", cell[: number.start()] + " " + cell[number.end() :])
    return number.group() if re.search(r"[^\W\d_]{2,}", re.sub(r"`|\*", "", rest)) else ""


def state(row: Row) -> Iterator[Finding]:
    record = row.record
    if record.state == "estimated":
        marks = f" (marked {' '.join(record.flags)})" if record.flags else ""
        yield row.find("estimated", "info", f"estimated and not measured{marks}: keep it out of fits")
    empty = all(getattr(record, name) is None for name in MEASURED)
    if record.state == "planned" or empty and record.state == "measured":
        notes = " ".join(cell for heading, cell in record.printed.items() if field_of(heading) in ("notes", "date", "run_id"))
        job = _JOB.search(notes)
        if record.date or job:
            what = [f"a date ({record.date})"] * bool(record.date) + ([f"a job number ({job[0]})"] if job else [])
            yield row.find("dated-but-empty", "warning", f"{' and '.join(what)} but no result: did it run?")
        else:
            yield row.find("plan-only", "info", "never run: no date and no result")


def contradicted(row: Row) -> Iterator[Finding]:
    """A cell for the outcome that says it failed, beside a time and a rate."""
    cell = row.cell("outcome") or row.cell("state")
    failed = read_status(cell).failed if cell else ""
    record = row.record
    if not failed:
        yield from _ran_all_the_same(row)
        return
    if not record.sec_per_it or (record.iteration or 0) > 1:  # it ran so far before it failed
        return
    name = "outcome" if row.cell("outcome") else "state"
    if record.tflops or record.tokens_per_s or record.tokens_per_s_per_process:
        message = f"{cell}, but {row.cell('sec_per_it') or record.sec_per_it} and a rate as of a run that went through"
        yield row.find("outcome-vs-figures", "warning", message, name=name, proposed="ok")
    elif not any(mate is not row and mate.record.sec_per_it and read_status(mate.cell(name)).failed for mate in row.around):
        message = f"{cell}, but a time of {row.cell('sec_per_it') or record.sec_per_it}: did it run?"
        yield row.find("outcome-vs-figures", "warning", message, name=name)


_BARE_OOM = re.compile(r"\W*(?:oom|out[ -]of[ -]memory)\W*", re.IGNORECASE)
RATES = ("tflops", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "mfu")


def _ran_all_the_same(row: Row) -> Iterator[Finding]:
    """Nothing but `OOM` for the memory, or as the remark, beside a time and a rate; in several rows it is a habit."""
    def says(one: Row) -> str:
        timed = one.record.sec_per_it and any(getattr(one.record, name) for name in RATES)
        there = [name for name in ("mem_value", "notes") if timed and _BARE_OOM.fullmatch(one.cell(name))]
        return there[0] if there else ""

    name = says(row) if "mem_value" in row.columns or "notes" in row.columns else ""
    if name and sum(bool(says(mate)) for mate in row.around) == 1:
        time = row.cell("sec_per_it") or row.record.sec_per_it
        message = f"{row.cell(name)}, but {time} and a rate as of a run that went through"
        yield row.find("outcome-vs-figures", "warning", message, name=name)


def text_above(row: Row) -> Iterator[Finding]:
    """A row that breaks with what the text says while the rest of its table keeps to it."""
    told = {*row.record.context, *row.record.inferred}
    for name in ("layers", "hidden", "seq", "gbs"):
        stated, value = row.stated_above(name) if name in told and row.states(name) else None, getattr(row.record, name)
        if stated is None or value == stated[0]:
            continue
        others = [getattr(mate.record, name) for mate in row.around if mate is not row]
        if others and sum(other == stated[0] for other in others) > len(others) / 2:
            message = f"{row.column(name)} {value}, but line {stated[1]} says {stated[0]}"
            yield row.find("header-vs-row", "info", message, name=name)


def extrapolated(mates: list[Row]) -> Iterator[Finding]:
    """A long iteration that is a whole number of short ones, to the last digit, was not timed."""
    rows = [row for row in mates if row.record.sec_per_it and row.record.gbs and row.record.tflops][:500]
    alike: dict[float | None, list[Row]] = {}
    for row in rows:
        alike.setdefault(row.record.tflops, []).append(row)
    for row in rows:
        figure = row.printed("sec_per_it")
        assert figure is not None
        for other in alike[row.record.tflops]:
            a, b = row.record, other.record
            if row is other or not (a.sec_per_it and b.sec_per_it and a.gbs and b.gbs) or a.gbs % b.gbs:
                continue
            times = a.gbs // b.gbs
            fine = times > 1 and max(figure.slack, (other.printed("sec_per_it") or figure).slack) < 0.002
            if fine and abs(a.sec_per_it - times * b.sec_per_it) < 1e-6 * a.sec_per_it:
                exact = f"{a.sec_per_it:g} s is exactly {times} x the {b.sec_per_it:g} s of {other.where}, as its GBS is"
                yield row.find("extrapolated", "warning", f"{exact}: extrapolated and not measured", name="sec_per_it")


LITTLE = {"mfu": 2.0, "tflops": 2.0, "mem_value": 2.5}
"""What hardly differs between rows of one model and device, and by which factor it may."""


def moved_points(mates: list[Row]) -> Iterator[Finding]:
    """A figure whose point moved: ten times or a tenth of those of a column that hardly differs."""
    filled = mates[0].sheet.filled(mates[0].key)
    rows = [row for row in mates[:500] if row.tabular]
    for name, most in LITTLE.items() if len(rows) > 3 else ():
        groups: dict[object, list[tuple[float, Row]]] = {}
        for row in rows if name in filled else ():
            figure = row.printed(name) if row.cell(name) else None
            if figure is not None and figure.value > 0 and not row.settled and name not in row.reasons:
                alike = row.record.size_label, row.record.machine, row.record.mem_unit
                groups.setdefault(alike, []).append((figure.shown(figure.value), row))
        for group in groups.values():
            values = sorted(value for value, _ in group)
            if len(values) < 4 or values[-2] > most * values[1]:
                continue
            for value, row in group:
                low, high = (values[0], values[-2]) if value == values[-1] else (values[1], values[-1])
                odd = value in (values[0], values[-1]) and high < most * low and not 0.3 * low < value < 3 * high
                odd = odd and not (name == "mem_value" and value > high and _needs_more(row, [mate for _, mate in group]))
                figure = row.printed(name)
                typed = slip(figure.like(figure.value), (0.8 * low, 1.25 * high)) if odd and figure is not None else None
                if typed is not None and typed.how == "the point moved":
                    there = f"the other rows have {low:g} to {high:g}"
                    message = f"{row.cell(name)} -> {typed.text} (the point moved): {there}"
                    yield row.find("outlier", "error", message, name=name, proposed=typed.text)


def _needs_more(row: Row, mates: list[Row]) -> bool:
    """Whether no other row has so many samples of a micro-batch for each device that shares a layer."""
    def share(one: Row) -> float:
        return (one.record.mbs or 1) * (one.seq or 1) / ((one.record.tp or 1) * (one.record.pp or 1) * (one.beside("cp") or 1))

    return share(row) > max(share(mate) for mate in mates if mate is not row)


def dates(mates: list[Row]) -> Iterator[Finding]:
    """Dates as month and day or in full; a table over New Year counts as running backwards once."""
    last: Row | None = None
    for row in mates:
        if not row.record.date:
            continue
        if last is not None and len(row.record.date) == len(last.record.date) and row.record.date < last.record.date:
            yield row.find("date-order", "info", f"dated {row.record.date}, below a row of {last.record.date}")
        last = row


def _is_used(row: Row, heading: str) -> bool:
    """Whether no field takes the column, and rules all the same do: by its heading, or by the unit of its cells."""
    return bool(kind_beside(heading)) or heading in row.columns.values()


def check_reading(sheet: Sheet, problems: Iterable[Problem]) -> list[Finding]:
    found = []
    problems = list(problems)
    foreign = Counter((problem.file, problem.column) for problem in problems if _FOREIGN.search(problem.message))
    for problem in problems:
        cells = re.search(r"\bcells?\b.*\b(headings?|headers?|columns?)\b", problem.message)
        code = "cells-vs-header" if cells else "unreadable"
        level: Level = "error" if cells and "taken as empty" not in problem.message else "info"
        if "is not one number" in problem.message and _GROUPS.fullmatch(problem.cell.strip()):
            level = "warning"  # of its thousands one has lost a digit, or has one too many
        if _FOREIGN.search(problem.message) and foreign[problem.file, problem.column] == 1:
            level = "warning"  # one cell with the unit of another column
        found.append(Finding(file=problem.file, line=problem.line, code=code, level=level, message=problem.message,
                             column=problem.column or None, printed=problem.cell or None))  # fmt: skip
    reported: set[tuple[str, str]] = set()
    for first in (mates[0] for mates in sheet.tables.values() if mates[0].record.table is not None):
        for heading in first.record.printed:
            where = (first.record.source_file, heading)
            if heading.strip() and where not in reported and not is_known(heading) and not _is_used(first, heading):
                reported.add(where)
                message = f'nothing is known about the column "{heading}": its cells are kept as text'
                found.append(first.find("unknown-column", "info", message))
    return found
