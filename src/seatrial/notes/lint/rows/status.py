"""What a row is worth: unreadable, planned, dated but empty, estimated, extrapolated; and text beside its numbers.

    check_reading(sheet, problems)       what the importer could not read as it stands, and columns that nothing is known about
    check(sheet)
"""
from __future__ import annotations

import functools
import itertools
import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint.digits import alone, slip
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import field_of, kind_beside
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import MEASURED, Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.read.rows import A_REMARK
from seatrial.notes.read.statements import read_status
from seatrial.tables import Problem
from seatrial.tables.headings import NUMBER, clean, normal, read_heading
from seatrial.tables.unknown import is_known
from seatrial.tables.worded import heading_in_english

_CLOCK = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?([kKMG]?)[Hh][Zz]\b")
_NUMERIC = {"count", "figure", "memory", "seconds", "rate", "percent"}
_UNITS = re.compile(
    r"\b(?:[KMGT]i?[BO]?|bytes?|[mu]?s(?:ecs?)?|mins?|minutes?|secs?|seconds?|h|hrs?|hours?|d|days?|steps?|[GTPE]FLOPs?|PetaFLOPs?|%|"
    r"samples|seqs?|tokens?|tok|/|per|it|iter|gpu|device|node|x)\b",
    re.IGNORECASE,
)
_GROUPS = re.compile(r"\d{1,3}(?:[ ,'\u00a0\u2009\u202f]\d{1,4})+(?:\.\d+)?")
_FOREIGN = re.compile(r"' is (?:a share|memory|FLOP/s|another rate)$")
_FRACTION = re.compile(r" is not a whole number$")
_WAITS = re.compile(r"pending|queued|scheduled|submitted|planned|waiting|skip(?:ped)?|disabled|not run", re.IGNORECASE)
_JOB = re.compile(r"\b\d{6,}\b")
_FIGURES = operator.attrgetter(*MEASURED)


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for row in sheet.rows:
        if row.worded:
            found += [*clock(row), *text_in_number(row)]
        found += [*state(row), *contradicted(row), *text_above(row), *backwards(row)]
    for mates in sheet.tables.values():
        found += [*extrapolated(mates), *dates(mates), *moved_points(mates), *of_another_name(mates)]
    return found


def clock(row: Row) -> Iterator[Finding]:
    """Processors run at some gigahertz."""
    for heading, cell in row.worded.items():
        for match in _CLOCK.finditer(cell) if "z" in cell or "Z" in cell else ():
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
    if record.state == "planned" or record.state == "measured" and not any(figure is not None for figure in _FIGURES(record)):
        notes = " ".join(cell for heading, cell in record.printed.items() if field_of(heading) in ("notes", "date", "run_id"))
        job = _JOB.search(notes)
        waits = any(_WAITS.fullmatch(row.cell(name)) for name in ("outcome", "state")) or is_aggregate(row)
        told = (row.cell("outcome") or row.cell("state"), *(cell for heading, cell in row.worded.items() if field_of(heading)))
        day = record.date if record.date and not _A_PERIOD.fullmatch(record.date) else None
        waits = waits or any(read_status(cell).planned for cell in told)
        if (day or job) and not waits and not _has_results(row) and any(map(_has_figures, row.around)):
            what = [f"a date ({day})"] * bool(day) + ([f"a job number ({job[0]})"] if job else [])
            yield row.find("dated-but-empty", "warning", f"{' and '.join(what)} but no result: did it run?")
        else:
            yield row.find("plan-only", "info", "never run: no date and no result")


_SETTINGS = ("gpus", "nodes", "dp", "tp", "pp", "mbs", "gbs", "seq", "machine", "layers", "hidden")
_A_PERIOD = re.compile(r"(?:(?:20)?\d\d[ /-]?)?[QTHS][1-4](?:[ /-](?:20)?\d\d)?")
"""A quarter or half of a year is when something is planned, and not the day on which it ran."""


def _has_figures(row: Row) -> bool:
    """Whether it tells of a run at all: a list of files has dates too."""
    record = row.record
    return any(figure is not None for figure in _FIGURES(record)) or any(map(row.shows, _SETTINGS))


def _has_results(row: Row) -> bool:
    """Whether what no field takes has figures, as hours, energy and costs, and no row of the table has others."""
    return not row.sheet.filled(row.key) and sum(row.figure(heading) is not None for heading in row.extras) > 1


STOPPED = ("timeout", "cancelled")
"""What ends a run that went well until then."""


_STOPPED = re.compile(r"kill|preempt|pre-empt|stopp?ed|abort|interrupt|terminat|evict|abgebrochen|unterbrochen|interromp|"
                      r"interrump|прерван|остановлен|снят|中断|中止|终止|중단", re.IGNORECASE)  # fmt: skip
_SO_FAR = re.compile(r"\b(?:at|after|bei|nach|apres|en el|tras|alla?|dopo|na|po|на|после) "
                     r"(?:step|iter|schritt|pas|paso|passo|krok|шаг)|\bresum|\bpreempt|\bnode (?:fail|went|died|lost)|"
                     r"第 ?\d+ ?步|\breanud|\brepris|\bfortgesetzt", re.IGNORECASE)  # fmt: skip
_NO_ROOM = re.compile(r"\boom\b|memory|\boom[- ]?kill|显存|メモリ|메모리", re.IGNORECASE)


def _was_stopped(row: Row, cell: str) -> bool:
    """Whether it went well until somebody, or a node, stopped it: by its status, or by the step that a remark gives."""
    others = row.worded.values()
    if _NO_ROOM.search(cell) or any(map(_NO_ROOM.search, others)):
        return False
    return _STOPPED.search(cell) is not None or any(map(_SO_FAR.search, others))


def contradicted(row: Row) -> Iterator[Finding]:
    """A cell for the outcome that says it failed, beside a time and a rate."""
    cell = row.cell("outcome") or row.cell("state")
    failed = read_status(cell).failed if cell else ""
    record = row.record
    if not failed:
        yield from _ran_all_the_same(row)
        return
    rated = any(getattr(record, one) for one in RATES)
    time = row.cell("sec_per_it") or record.sec_per_it
    if not (record.sec_per_it or rated) or (record.iteration or 0) > 1 or failed in STOPPED or _was_stopped(row, cell):
        return  # it ran so far before it failed
    name = "outcome" if row.cell("outcome") else "state"
    pasted = _of_another(row) if not record.sec_per_it else None
    if pasted is not None:
        rate, of = pasted
        message = f"{cell}, but {row.column(rate)} {row.cell(rate)}, that of {of.where}: did it run?"
        yield row.find("outcome-vs-figures", "warning", message, name=rate)
    elif rated:
        message = f"{cell}, but {f'{time} and ' if record.sec_per_it else ''}a rate as of a run that went through"
        proposed = _of_those_that_ran(row, row.columns[name]) or "ok"
        yield row.find("outcome-vs-figures", "warning", message, name=name, proposed=proposed)
    elif not any(mate is not row and mate.record.sec_per_it and read_status(mate.cell(name)).failed for mate in row.around):
        message = f"{cell}, but a time of {time}: did it run?"
        blank = _blank_of_those_that_failed(row)
        if blank is not None:  # as it stands in each of them, and as all else that is measured does in this one
            message = f"{cell}, but a time of {time}, which no other row that failed has"
            yield row.find("outcome-vs-figures", "warning", message, name="sec_per_it", proposed=blank)
        else:
            yield row.find("outcome-vs-figures", "warning", message, name=name)


def _blank_of_those_that_failed(row: Row) -> str | None:
    """What the other rows that failed have in place of a time, where the row has it in the place of its other figures."""
    measured = [name for name in (*RATES, "tflops", "mem_value") if row.columns.get(name)]
    failed = {mate.cell("sec_per_it") for mate in row.around
              if mate is not row and read_status(mate.cell("outcome") or mate.cell("state")).failed}  # fmt: skip
    blank = failed.pop() if len(failed) == 1 else ""
    return blank if blank.strip("-–— ") == "" and blank and row.cell("sec_per_it") and measured and all(
        row.cell(name) == blank for name in measured) else None  # fmt: skip


def _of_another(row: Row) -> tuple[str, Row] | None:
    """The one figure of a row, where it is another row's to the last digit, and that row."""
    rates = [name for name in RATES if getattr(row.record, name)]
    others = [mate for mate in row.around if len(rates) == 1 and mate is not row and mate.cell(rates[0]) == row.cell(rates[0])]
    return (rates[0], others[0]) if len(others) == 1 and sum(map(str.isdigit, row.cell(rates[0]))) > 2 else None


_NEED = re.compile(r"\b(?:total|sum|need(?:ed|s)?|required|peak|mem(?:ory)?|gi?b)\b")
_FITS = re.compile(r"\bfits?\b|\bstatus\b|\bstate\b|\boutcome\b|\bresult\b|\boom\b|\bok\b")
_DOES_NOT = {"no", "n", "✗", "✘", "❌", "nein", "non", "否"}


def fits_by_need(sheet: Sheet) -> list[Finding]:
    """Whether a layout fits, beside the memory that it needs: what fails needs more than all that runs."""
    return [finding for mates in sheet.tables.values() if 4 <= len(mates) <= MOST_FITTED
            for finding in (*_fits_by_need(mates), *_beyond(mates))]  # fmt: skip


MOST_FITTED = 60


@functools.lru_cache(maxsize=4096)
def _need_and_said(headings: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The headings of the memory that is needed, and of whether it fits."""
    words = {heading: normal(heading_in_english(clean(heading), surely=True)) for heading in headings}
    need = [heading for heading, title in words.items() if _NEED.search(title) and not _FITS.search(title)]
    return need, [heading for heading, title in words.items() if _FITS.search(title)]


_BEYOND = re.compile(r"[>≥] ?(\d+(?:\.\d+)?)")


def _beyond(mates: list[Row]) -> Iterator[Finding]:
    """`>80` is how a table writes the memory of what fails: one such row that went well, or one that failed with less."""
    beyond = [heading for row in mates for heading, cell in row.cells.items() if cell[:1] in (">", "≥")]
    need, status = beyond[:1], _need_and_said(tuple(mates[0].record.printed))[1] if beyond else []
    said = next((row.cells[need[0]] for row in mates if need and row.cells.get(need[0], "")[:1] in (">", "≥")), "")
    if len({*beyond}) != 1 or len(status) != 1:
        return
    rows = [(row, row.cells[need[-1]], row.cells[status[0]]) for row in mates
            if row.cells.get(need[-1]) and row.cells.get(status[0])]  # fmt: skip
    limits = {row: float(match[1]) for row, memory, _ in rows if (match := _BEYOND.match(memory))}
    fails = {row for row, _, cell in rows if _is_bare(cell) or cell.lower() in _DOES_NOT}
    odd = [(row, memory, cell) for row, memory, cell in rows if (row in limits) != (row in fails)]
    if len(odd) != 1 or not fails & limits.keys() or len(fails | limits.keys()) == len(rows):
        return
    row, memory, cell = odd[0]
    value = alone(memory)
    if row.reasons or row not in limits and (not value or value * APART > min(limits.values())):
        return
    other = next(one for mate, _, one in rows if mate is not row and (mate in fails) != (row in fails))
    message = f"{cell}, but {need[-1]} {memory}, and what fails has {said}"
    yield row.find("outcome-vs-figures", "warning", message, column=status[0], printed=cell, proposed=other)


def _fits_by_need(mates: list[Row]) -> Iterator[Finding]:
    need, said = _need_and_said(tuple(mates[0].record.printed))
    if not need or len(said) != 1:
        return
    needs: dict[Row, float] = {row: value for row in mates if (value := alone(row.record.printed.get(need[-1], "")))}
    cells = {row: cell for row in needs if (cell := row.cells.get(said[0], "")) and not row.reasons}
    fails = {row for row, cell in cells.items() if _is_bare(cell) or cell.lower() in _DOES_NOT}
    found = []
    for row, cell in cells.items() if 1 < len(fails) < len(cells) - 1 else ():
        ran = [needs[mate] for mate in cells if mate not in fails and mate is not row]
        failed = [needs[mate] for mate in fails if mate is not row]
        above, below = row in fails and needs[row] * APART < max(ran), row not in fails and needs[row] > APART * min(failed)
        if max(ran) < min(failed) and (above or below):
            other = next(one for mate, one in cells.items() if (mate in fails) != (row in fails))
            ends = f"up to {max(ran):g} fits while {min(failed):g} does not"
            message = f"{cell}, but {need[-1]} {row.cells[need[-1]]}, and {ends}"
            found.append(row.find("outcome-vs-figures", "warning", message, column=said[0], printed=cell, proposed=other))
    yield from found if len(found) == 1 else ()  # else it is the figure of one of them


APART = 1.1
_BARE = re.compile(r"\W*(?:(?:cuda |gpu |host )?oom(?:ed)?|(?:cuda )?out[ _-]of[ _-]memory|fail(?:ed|ure)?|crash(?:ed)?|"
                   r"(?:显存|顯存|内存|メモリ)不足|메모리 ?부족|失敗|失败)\W*", re.IGNORECASE)  # fmt: skip
RATES = ("tflops", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "mfu")


@functools.lru_cache(maxsize=65536)
def _is_bare(cell: str) -> bool:
    return len(cell) < MOST_BARE and _BARE.fullmatch(cell) is not None


@functools.lru_cache(maxsize=65536)
def _is_failure(cell: str) -> bool:
    """Where a figure belongs: words alone, and of a failure."""
    return 0 < len(cell) < MOST_BARE and not NUMBER.search(cell) and bool(read_status(clean(cell)).failed)


def _ran_all_the_same(row: Row) -> Iterator[Finding]:
    """Nothing but `OOM` for the memory, as the remark, in a column of words or for one figure of the run, beside another one;
    in several rows it is a habit."""
    def says(one: Row, heading: str) -> bool:
        record = one.record
        ran = any(getattr(record, name) for name in RATES) and (record.sec_per_it or heading not in beside)
        return bool(ran) and _is_bare(one.cells.get(heading, ""))

    bare = [heading for heading, cell in row.cells.items() if cell and not cell[0].isdecimal() and _is_bare(cell)]
    beside = [row.columns[name] for name in ("mem_value", "notes") if name in row.columns] if bare else []
    for heading in bare:
        known = heading in beside or field_of(heading) == "" and _of_words(row, heading)
        if known and sum(says(mate, heading) for mate in row.around) == 1 and says(row, heading):
            time = row.cell("sec_per_it") or row.record.sec_per_it
            message = f"{row.cells[heading]}, but {f'{time} and ' if time else ''}a rate as of a run that went through"
            proposed = None if heading in beside else _of_those_that_ran(row, heading)
            yield row.find("outcome-vs-figures", "warning", message, column=heading, printed=row.cells[heading],
                           proposed=proposed)  # fmt: skip
            return
    if row.record.outcome:
        yield from _figure_beside(row)


def _figure_beside(row: Row) -> Iterator[Finding]:
    """`OOM` for the time and a rate beside it, or for the memory and a time: a run that failed has neither. What a device held
    when it failed may well be known."""
    def figures(one: Row, heading: str) -> list[str]:
        return [name for name in ("sec_per_it", *RATES) if one.columns.get(name) not in (None, heading)
                and getattr(one.record, name) and NUMBER.match(one.cell(name).lstrip("*`~"))]  # fmt: skip

    for heading in (row.columns.get(name, "") for name in ("mem_value", "sec_per_it", *RATES)):
        beside = figures(row, heading) if _is_failure(row.cells.get(heading, "")) else []
        others = (mate for mate in row.around if beside and mate is not row and _is_failure(mate.cells.get(heading, "")))
        if beside and not any(figures(mate, heading) for mate in others):
            name = beside[0]
            same = next((mate for mate in row.around if mate is not row and mate.cell(name) == row.cell(name)), None)
            pasted = f", that of {same.where}" if same is not None else ""
            message = f"{heading} {row.cells[heading]}, but {row.column(name)} {row.cell(name)}{pasted}: did it run?"
            yield row.find("outcome-vs-figures", "warning", message, name=name, proposed=_left_over(row, name))
            return


def _left_over(row: Row, name: str) -> str | None:
    """The dash of a failed row, where it has several and one figure only: that was left over."""
    dashes = [cell for one in ("sec_per_it", "mem_value", *RATES) if one != name and one in row.columns
              and _DASH.fullmatch(cell := row.cell(one))]  # fmt: skip
    return dashes[0] if len(dashes) > 1 else None


_DASH = re.compile(r"[-–—−]+|n/?a", re.IGNORECASE)


def _of_those_that_ran(row: Row, heading: str) -> str | None:
    """What a column says of rows with a rate."""
    said = Counter(cell for mate in row.around if mate is not row and any(getattr(mate.record, name) for name in RATES)
                   and (cell := mate.cells.get(heading, "")) and not read_status(cell).failed)  # fmt: skip
    return said.most_common(1)[0][0] if said else None


MOST_BARE = 30


def _of_words(row: Row, heading: str) -> bool:
    """Whether a column says in words what came of each row: no number stands there, and of another row something else."""
    cells = [mate.cells.get(heading, "") for mate in row.around if mate is not row]
    return not any(NUMBER.search(cell) for cell in cells) and any(cell and not _is_bare(cell) for cell in cells)


def text_above(row: Row) -> Iterator[Finding]:
    """A row that breaks with what the text says while the rest of its table keeps to it."""
    context, inferred = row.record.context, row.record.inferred
    for name in ("layers", "hidden", "seq", "gbs") if context or inferred else ():
        said = (name in context or name in inferred) and row.states(name)
        stated, value = row.stated_above(name) if said else None, getattr(row.record, name)
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


LITTLE = 2.0
"""By which factor MFU of one model and device may differ."""


def moved_points(mates: list[Row]) -> Iterator[Finding]:
    """MFU that is printed as a fraction among percentages, or the other way round: what is read is the same."""
    groups: dict[object, list[tuple[float, Row]]] = {}
    for row in mates[:500] if len(mates) > 3 and "mfu" in mates[0].sheet.filled(mates[0].key) else ():
        figure = row.printed("mfu") if row.tabular and row.cell("mfu") else None
        if figure is not None and figure.value > 0 and not row.settled and "mfu" not in row.reasons:
            groups.setdefault((row.record.size_label, row.record.machine), []).append((figure.shown(figure.value), row))
    for group in groups.values():
        values = sorted(value for value, _ in group)
        if len(values) < 4 or values[-2] > LITTLE * values[1]:
            continue
        for value, row in group:
            low, high = (values[0], values[-2]) if value == values[-1] else (values[1], values[-1])
            odd = value in (values[0], values[-1]) and high < LITTLE * low and not 0.3 * low < value < 3 * high
            figure = row.printed("mfu")
            typed = slip(figure.like(figure.value), (0.8 * low, 1.25 * high)) if odd and figure is not None else None
            if typed is not None and typed.how == "the point moved":
                message = f"{row.cell('mfu')} -> {typed.text} (the point moved): the other rows have {low:g} to {high:g}"
                yield row.find("outlier", "error", message, name="mfu", proposed=typed.text)


NAMED, OTHERWISE = 1.3, 1.6
"""By which factor parameters may differ from the name of their model, and from which on they are another's."""


def of_another_name(mates: list[Row]) -> Iterator[Finding]:
    """Parameters beside the name of a model, near it in all rows but one: `14B` of 7.62B."""
    rows = mates[:100] if len(mates) > 3 and mates[0].tabular else []
    sized = [heading for heading, cell in rows[0].cells.items() if _parameters(cell)] if rows else []
    for pair in itertools.combinations(sized, 2):
        both = [(row, one, other) for row in rows if (one := _parameters(row.cells.get(pair[0], "")))
                and (other := _parameters(row.cells.get(pair[1], "")))]  # fmt: skip
        odd = [row for row, one, other in both if not 1 / OTHERWISE < one / other < OTHERWISE]
        near = sum(1 / NAMED < one / other < NAMED for _, one, other in both)
        if len(odd) != 1 or near < max(3, len(both) - 1) or odd[0].reasons:
            continue
        # The name is the one with fewer digits.
        name, exact = sorted(pair, key=lambda heading: sum(len(_number_in(row.cells[heading])) for row, _, _ in both))
        row = odd[0]
        its = {mate.cells[exact] for mate, _, _ in both if mate is not row and mate.cells[name] == row.cells[name]}
        right = its.pop() if len(its) == 1 else None
        message = f"{exact} {row.cells[exact]}{f' -> {right}' if right else ''}: {name} is {row.cells[name]}"
        yield row.find("label-vs-params", "error", message, column=exact, printed=row.cells[exact], proposed=right)


def _number_in(cell: str) -> str:
    number = NUMBER.search(cell)
    return number[0] if number else ""


@functools.lru_cache(maxsize=4096)
def _parameters(cell: str) -> float | None:
    size = label_parameters(clean(cell)) if cell[-1:] in ("B", "M", "b", "m") and len(cell) < 40 else None
    return size[0] if size else None


_FROM_TO = re.compile(r"(20\d\d)-(\d\d)-(\d\d)\W{1,3}(?:to|bis|until|au|al|a|à|-)?\W{0,3}(20\d\d)-(\d\d)-(\d\d)")


def backwards(row: Row) -> Iterator[Finding]:
    """`2025-01-19 to 2024-01-23`: what ends before it begins; of two years the one that the other rows do not have is wrong."""
    for heading, cell in row.record.printed.items() if row.text.count("-") > 3 else ():
        match = _FROM_TO.search(cell) if len(cell) > 20 and cell.count("-") > 3 else None
        if match is None or match.groups()[3:] >= match.groups()[:3]:
            continue
        years = Counter(year for mate in row.around if mate is not row
                        for year in re.findall(r"(20\d\d)-\d\d-\d\d", mate.record.printed.get(heading, "")))  # fmt: skip
        right, at = (match[1], 4) if years[match[1]] >= years[match[4]] else (match[4], 1)
        proposed = f"{cell[: match.start(at)]}{right}{cell[match.end(at) :]}".strip()
        ordered = match[2] <= match[5] and match[1] != match[4]
        message = f"{cell.strip()} ends before it begins" + (f": {proposed}" if ordered else "")
        yield row.find("date-order", "error", message, column=heading, printed=cell.strip(),
                       proposed=proposed if ordered else None)  # fmt: skip


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


def _point_in_a_count(sheet: Sheet, problem: Problem) -> Finding:
    """The one fraction in a column of counts: without its point, or with it further on, mostly what other rows have."""
    level: Level = "info"
    message, name, meant = problem.message, read_heading(problem.column).field, None
    for row in sheet.files.get(problem.file, ()):
        if row.record.source_line == problem.line and problem.column in row.record.printed:
            others = {value for mate in row.around if (value := getattr(mate.record, name, None))}
            cell = problem.cell.strip().replace(",", ".")
            known = [n for n in others if any(cell == f"{n / ten:g}" for ten in (10, 100, 1000))]
            # What a device has of a batch may be a half; what else is counted is whole.
            level = "warning" if others and name != "mbs" or known else "info"
            if len(known) == 1:
                level, meant = "warning" if name == "mbs" else "error", known[0]
                message = f"{problem.column} {problem.cell} -> {meant} (the point moved): {problem.message}, other rows have it"
                row.propose(name, meant, "unreadable")
    return Finding(file=problem.file, line=problem.line, code="unreadable", level=level, message=message,
                   column=problem.column, printed=problem.cell, proposed=meant and str(meant))  # fmt: skip


def _lost_digit(sheet: Sheet, problem: Problem) -> Finding | None:
    """A rate in thousands that lack a digit, where batch and time tell about what it was."""
    row = next((row for row in sheet.files.get(problem.file, ()) if row.record.source_line == problem.line), None)
    name = read_heading(problem.column).field
    if row is None or name not in ("tokens_per_s", "samples_per_s") or not row.record.gbs or not row.record.sec_per_it:
        return None
    meant = row.record.gbs * ((row.seq or 0) if name == "tokens_per_s" else 1) / row.record.sec_per_it
    groups = re.split(r"(?<=\d)[ ,'\u00a0\u2009\u202f](?=\d)", problem.cell.strip())
    short = [at for at, group in enumerate(groups) if at and len(group) == 2]
    if len(short) != 1 or not meant:
        return None
    typed = [[*groups[: short[0]], groups[short[0]][:at] + digit + groups[short[0]][at:], *groups[short[0] + 1 :]]
             for at in range(3) for digit in "0123456789"]  # fmt: skip
    best = min(typed, key=lambda one: abs(int("".join(one)) / meant - 1))
    if abs(int("".join(best)) / meant - 1) > NEARLY:
        return None
    proposed = problem.cell.strip()[len(groups[0])].join(best)
    message = f"{problem.column} {problem.cell} -> {proposed} (a digit lost): the batch and the time give {meant:.5g} a second"
    row.propose(name, float("".join(best)), "unreadable")
    return Finding(file=problem.file, line=problem.line, code="unreadable", level="error", message=message,
                   column=problem.column, printed=problem.cell, proposed=proposed)  # fmt: skip


NEARLY = 0.03


def _others_are_whole(sheet: Sheet, problem: Problem) -> bool:
    """Whether all other cells of a batch in tokens give whole sequences, and there are some."""
    column = [row for row in sheet.files.get(problem.file, []) if row.columns.get("gbs") == problem.column and row.cell("gbs")]
    return sum(bool(row.record.gbs) for row in column) >= max(2, len(column) - 1)


def check_reading(sheet: Sheet, problems: Iterable[Problem]) -> list[Finding]:
    found = []
    problems = list(problems)
    foreign = Counter((problem.file, problem.column) for problem in problems if _FOREIGN.search(problem.message))
    fractions = Counter((problem.file, problem.column) for problem in problems if _FRACTION.search(problem.message))
    for problem in problems:
        cells = re.search(r"\bcells?\b.*\b(headings?|headers?|columns?)\b", problem.message)
        code = "cells-vs-header" if cells else "unreadable"
        harmless = "taken as empty" in problem.message or A_REMARK in problem.message
        level: Level = "error" if cells and not harmless else "info"
        if "is not one number" in problem.message and _GROUPS.fullmatch(problem.cell.strip()):
            level = "warning"  # of its thousands one has lost a digit, or has one too many
            if (mended := _lost_digit(sheet, problem)) is not None:
                found.append(mended)
                continue
        if _FOREIGN.search(problem.message) and foreign[problem.file, problem.column] == 1:
            level = "warning"  # one cell with the unit of another column
        if _FRACTION.search(problem.message) and fractions[problem.file, problem.column] == 1:
            found.append(_point_in_a_count(sheet, problem))
            continue
        if "no whole number of sequences" in problem.message and _others_are_whole(sheet, problem):
            level = "warning"
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
