"""Rows of one configuration: the same row again, two results for one configuration, and time and TFLOPs in each other's cells.

The product of time and TFLOPs does not change when the two cells are exchanged, so no formula sees it. It takes a twin (the
same configuration elsewhere) or neighbours that only one of the two orders agrees with.
"""

from __future__ import annotations

import math
import operator
import re
import statistics
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, pairwise

from seatrial.columns import LAYOUT
from seatrial.notes.lint.columns.broken import broken_and_kept
from seatrial.notes.lint.columns.derived import rate_fits
from seatrial.notes.lint.digits import Slip, overlap, slip
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import field_of, is_extra
from seatrial.notes.lint.row import CONFIGURATION, MEASURED, Row
from seatrial.notes.lint.rows.nearby import Nearby
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.read.statements import read_status
from seatrial.tables.headings import NUMBER, read_heading

_FAR = 0.15
"""Logarithm of the ratio from which a figure is far from its neighbours'."""

_UNDER, _OVER = 0.8, 1.25
"""How far beyond the TFLOPs of the other rows a figure may lie that is one."""
_BEST = 0.05
"""By how much the best micro-batch is ahead of the next, and no more."""
_RERUN = 0.04
"""What two runs of one configuration differ by."""
_OTHER_MEMORY = 0.2
"""Logarithm of the ratio from which memory is not that of the same run."""
_MOST_TWINS = 50
"""Of one configuration."""


def check(sheet: Sheet) -> list[Finding]:
    rows = [row for row in sheet.rows if row.tabular]
    found, swapped = [], set()
    pairs = list(_pairs(rows))
    figures = {row: _figures(row) for row in dict.fromkeys(chain.from_iterable(pairs)) if row.complete}
    for a, b in pairs:
        both = a in figures and b in figures and a.record.source_file == b.record.source_file
        if both and _crossed(*figures[a], *figures[b]):
            wrong, right = (a, b) if _odd_one(a, b) is a else (b, a)
            swapped.add(wrong)
            its = f"{right.record.sec_per_it:g} s and {right.record.tflops:g} TFLOPs"
            found.append(_swap(wrong, f"{right.where} has the same configuration with {its}", certain=True))
    near: dict[object, Nearby] = {}
    reach: dict[object, tuple[float, float]] = {}
    for row in rows:
        if row not in swapped and row.complete:
            if row.key not in reach:
                rates = [mate.get("tflops") or 1.0 for mate in row.mates]
                reach[row.key] = min(rates), max(rates)
            low, high = reach[row.key]
            if _UNDER * low < _figures(row)[0] < _OVER * high:  # as a time hardly ever is
                if row.key not in near:
                    near[row.key] = Nearby(row.mates, _rate)
                found += _out_of_order(row, near[row.key])
                reach[row.key] = min(low, row.get("tflops") or low), max(high, row.get("tflops") or high)
    return found + _pasted(rows) + _memories(pairs) + _repeats(rows) + _duplicates(rows, pairs)


# one configuration


def same_configuration(a: Row, b: Row, *, but: tuple[str, ...] = ()) -> bool:
    """As far as both rows say; settings in the environment must be equal."""
    here, there = a.configuration or _configuration(a), b.configuration or _configuration(b)
    if here != there:
        for name, one, two in zip(CONFIGURATION, here, there):
            if one != two and one is not None and two is not None and name not in but:
                return False
    if (a.record.machine or b.record.machine) != (b.record.machine or a.record.machine) or a.devices != b.devices:
        return False
    freq = (a.record.freq_ghz or b.record.freq_ghz) == (b.record.freq_ghz or a.record.freq_ghz)
    return a.record.env == b.record.env and freq


_SETTINGS, _SHAPE = operator.attrgetter(*CONFIGURATION), CONFIGURATION.index("layers")


_UNSAID: dict[object, object] = {"": None}
_OF_ONE_LAYOUT = ("tp", "pp", "mbs", "gbs")
_LAYOUT = operator.attrgetter(*_OF_ONE_LAYOUT)


def _configuration(row: Row) -> tuple[object, ...]:
    """All that was asked, None where nobody said; kept until a finding proposes another value."""
    if row.configuration is None:
        values = _SETTINGS(row.record)
        if row.fixed:
            values = tuple(_setting(row, name) for name in CONFIGURATION)
        known = tuple(map(_UNSAID.get, values, values))
        row.configuration = (*known[:_SHAPE], row.layers, row.hidden, *known[_SHAPE + 2 :])
    return row.configuration


def _setting(row: Row, name: str) -> object:
    if name in ("layers", "hidden"):
        return getattr(row, name)
    return row.get(name) if name in row.fixed else getattr(row.record, name)


def printed_configuration(row: Row) -> tuple[tuple[str, ...], list[str]]:
    """Every cell that says what was asked, as it is printed, below its headings."""
    cells = row.cells
    asked, figures = _asked(tuple(cells))
    more = [heading for heading in figures if (cell := cells[heading]).lower() != cell.upper() and _names(heading, cell)]
    if "" in cells and _is_name(cells[""]):  # of the row, which is what was tried there
        more.append("")
    asked += tuple(more)
    said = list(map(cells.__getitem__, asked))
    return asked, said if _is_plain("|".join(said)) else [_plain_cell(cell) for cell in said]


_FIGURES = {*MEASURED, "mfu", "hfu", "loss", "tokens_per_s_per_process", "throughput"}
_RESULTS = _FIGURES | {"notes", "date", "outcome", "state"}


@lru_cache(maxsize=4096)
def _asked(headings: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The headings of what was asked, and of figures."""
    return (tuple(heading for heading in headings if field_of(heading) not in _RESULTS and heading.strip("# ")),
            tuple(heading for heading in headings if field_of(heading) in _FIGURES))  # fmt: skip


@lru_cache(maxsize=16384)
def _is_name(cell: str) -> bool:
    """More than which run it is, as `#4`, `run 12` and `(b)` are."""
    return re.search(r"[^\W\d_]{2}", re.sub(r"\b(?:run|exp|trial|test|job|row|no|nr|id|lauf)\b", "", cell.lower())) is not None


def _is_plain(text: str) -> bool:
    return not ("^" in text or "†" in text or "‡" in text) and " ".join(text.split()) == text


@lru_cache(maxsize=16384)
def _plain_cell(cell: str) -> str:
    return re.sub(r"[\s^†‡]+", " ", cell).strip()


def settings(row: Row) -> list[str]:
    """What else was set, as its cells say it: flags and remarks that no field takes, words under a heading of figures, and
    figures that rows share. A figure that no other row has was measured."""
    printed, shared = row.record.printed, row.sheet.shared(row.key)
    first = next(iter(printed), "")  # by which the rows are told apart: `500 W` was set
    return [printed[heading].strip() for heading, kind in _may_set(tuple(printed))
            if kind == "notes" or kind == "extra" and (heading in shared or row.figure(heading) is None or heading == first
                                                       and not printed[heading].strip().isdecimal())
            or kind == "figure" and _names(heading, printed[heading])] + [
                cell for heading, cell in row.record.extra.items() if heading in printed and _is_product(cell)]  # fmt: skip


@lru_cache(maxsize=16384)
def _is_product(cell: str) -> bool:
    """`4 x 32` of a batch, which nobody measures."""
    return re.search(r"\d ?[x×*] ?\d", cell) is not None


@lru_cache(maxsize=4096)
def _may_set(headings: tuple[str, ...]) -> list[tuple[str, str]]:
    """The columns whose cells may say what else was set."""
    kinds = {"notes": "notes", "env": "notes", **dict.fromkeys(_FIGURES, "figure")}
    found = [(heading, kinds.get(field_of(heading)) or ("extra" if is_extra(heading) else "")) for heading in headings]
    return [(heading, kind) for heading, kind in found if kind]


@lru_cache(maxsize=16384)
def _names(heading: str, cell: str) -> bool:
    """Whether a cell has a name where others have figures: `fused` under a heading of losses, but not what came of a run."""
    figures = field_of(heading) in _FIGURES
    return figures and cell.lower() != cell.upper() and not NUMBER.search(cell) and not read_status(cell).failed


def _pairs(rows: list[Row]) -> Iterator[tuple[Row, Row]]:
    """Rows of one layout, two at a time."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        if row.record.sec_per_it or row.record.tflops:
            own = tuple(_setting(row, name) for name in _OF_ONE_LAYOUT) if row.fixed else _LAYOUT(row.record)
            groups.setdefault((row.world, own), []).append(row)
    for group in groups.values():
        told = [_told(row) for row in group[:_MOST_TWINS]] if len(group) > 1 else []
        for i, here in enumerate(told):
            for there in told[i + 1 :]:
                if _may_tell(here, there) and same_configuration(here[0], there[0], but=("nodes",)):
                    yield here[0], there[0]


Told = tuple[Row, str, int | None, float, float, float | None]
"""Of a row where it stands, the time and TFLOPs, if both are there, and memory."""


def _told(row: Row) -> Told:
    record = row.record
    sec, tflops = _figures(row) if row.complete else (math.nan, math.nan)
    return row, record.source_file, record.table, sec, tflops, record.mem_gib


def _may_tell(here: Told, there: Told) -> bool:
    """Whether two rows have figures that say something if they are of one configuration; most have not."""
    _, file, table, sec, _, memory = here
    _, its_file, its_table, _, its_tflops, its_memory = there
    if file == its_file and (table != its_table or _may_be_crossed(sec, its_tflops)):
        return True
    return bool(memory and its_memory and abs(math.log(memory / its_memory)) >= _OTHER_MEMORY)


# exchanged cells


def _crossed(s1: float, t1: float, s2: float, t2: float) -> bool:
    """Whether each of two rows has the other's TFLOPs as its time, exactly or within what two runs differ by."""
    if not _may_be_crossed(s1, t2):
        return False
    if (s1, t1) == (t2, s2) and s1 != t1:
        return True
    if min(s1, t1, s2, t2) <= 0:  # of a time whose unit is not understood
        return False
    across = abs(math.log(s1 / t2)) + abs(math.log(t1 / s2))
    straight = abs(math.log(s1 / s2)) + abs(math.log(t1 / t2))
    return across < 0.06 and straight > 0.16


def _may_be_crossed(sec: float, tflops: float) -> bool:
    return 0.9 * tflops <= sec <= 1.1 * tflops


def _figures(row: Row) -> tuple[float, float]:
    """As they are printed: cells are exchanged, whatever their units."""
    assert row.record.sec_per_it and row.record.tflops
    return row.record.sec_per_it * _scale(row), row.record.tflops


def _scale(row: Row) -> float:
    figure = row.printed("sec_per_it")
    return figure.scale if figure is not None else 1.0


def _odd_one(a: Row, b: Row) -> Row:
    """The row whose TFLOPs are farther from its neighbours'; without a difference the later one, as the copy."""
    one, two = _oddness(a), _oddness(b)
    return a if one > two + 0.01 else b


def _oddness(row: Row) -> float:
    """How much closer to its neighbours the row would stand with the two cells exchanged."""
    sec, tflops = _figures(row)
    expected = _neighbour_tflops(row)
    if expected is None:
        return 0.0
    return abs(math.log(tflops / expected)) - abs(math.log(sec / expected))


def _neighbour_tflops(row: Row) -> float | None:
    """TFLOPs of the rows nearest in configuration: those that differ in micro-batch alone, else the rest of the table."""
    others = [mate for mate in row.around if mate is not row and mate.complete]
    near = [mate for mate in others if same_configuration(row, mate, but=("mbs", "gbs"))]
    values = [mate.record.tflops for mate in near or others if mate.record.tflops]
    return statistics.median(values) if values else None


def _out_of_order(row: Row, nearby: Nearby) -> list[Finding]:
    """Without a twin: exchanged cells would make the row one of its table, and as it stands it is none."""
    if not _trusted(row) or row.record.time_unit == "it/s":
        return []
    (sec, tflops), (count, middle) = _figures(row), nearby.middle(row)
    if count < 3 or not 0 < sec < math.inf:
        return []
    far = abs(math.log(tflops / middle)) - abs(math.log(sec / middle))
    low, high = nearby.ends(row)
    if far <= 0 or not _UNDER * low < sec < _OVER * high or _each_is_told(row):
        return []
    alike = nearby.of(row.devices)
    count, _ = alike.middle(row)
    found = _swapped_alone(row, far, alike) if count > 2 else []
    nearby.changed(row)
    alike.changed(row)
    return found


def _each_is_told(row: Row) -> bool:
    """Whether something else of the row belongs to its time as it is printed, or to its TFLOPs."""
    return any(("sec_per_it" in relation.names) != ("tflops" in relation.names) for relation, _ in broken_and_kept(row)[1])


_ALIKE = ("mbs", "gbs", "zero_stage", "heads")


def _swapped_alone(row: Row, far: float, alike: Nearby) -> list[Finding]:
    """`far`: how much closer to the middle of its table the row would stand with the two cells exchanged."""
    time = row.printed("sec_per_it")
    if time is not None and any(rate_fits(row, name, time.rounded) for name in RATES[1:]):
        return []  # another rate has the time as it is printed
    (sec, tflops), (low, high) = _figures(row), alike.ends(row)
    slower = all((time > rate) == (sec <= tflops) for time, rate in (_figures(mate) for mate, _ in alike.others(row)))
    near: list[float] = []
    # Without a word on the order, only rows that are like the time and unlike the TFLOPs would tell.
    if slower or abs(math.log(sec / tflops)) > 0.19 and alike.has(sec * 0.81, sec * 1.23):
        # Most are of another model, which is told at a glance.
        hidden = row.hidden
        near = [rate for mate, rate in alike.others(row) if (mate.hidden == hidden or not mate.hidden or not hidden)
                and same_configuration(row, mate, but=_ALIKE)]  # fmt: skip
    if near and max(abs(math.log(sec / t)) for t in near) < 0.2 and min(abs(math.log(tflops / t)) for t in near) > 0.4:
        why = f"rows that differ in the micro-batch alone reach {min(near):g} to {max(near):g} TFLOPs"
        return [_swap(row, why, certain=True)]
    # The best of a few micro-batches is a little faster than the rest: that is no slip.
    beyond = bool(near) and min(abs(math.log(tflops / t)) for t in near) > _BEST
    if len(near) > 1 and _within(sec, near) and beyond and slower:
        reach = f"those that differ in the micro-batch alone reach {min(near):g} to {max(near):g} TFLOPs"
        why = f"no other row has this order, and {reach}"
        return [_swap(row, why, certain=False)]
    inside = low * 0.93 <= sec <= high * 1.07
    outside = not low * 0.87 <= tflops <= high * 1.15
    # A layout may well be slow, but hardly fast beyond all others.
    if not (inside and outside and far > (_FAR if tflops > high else 4 * _FAR)):
        return []
    # The narrower the column, the surer: where TFLOPs differ twofold anyway, one more is no proof.
    certain = far > 3 * _FAR and high / low < 1.5
    return [_swap(row, f"the other rows reach {low:g} to {high:g} TFLOPs", certain=certain)]


def _within(value: float, near: list[float]) -> bool:
    return min(near) * 0.97 <= value <= max(near) * 1.03


def _rate(row: Row) -> float | None:
    """The row's TFLOPs where they may be held against another's."""
    return (row.get("tflops") or 1.0) if _trusted(row) else None


def _trusted(row: Row) -> bool:
    """Whether the row's own TFLOPs may be held against another's."""
    if row not in row.sheet.trusted:
        row.sheet.trusted[row] = row.complete and row.reading is not None and row.reading.fits(row)
    return row.sheet.trusted[row] or "tflops" in row.fixed and row.complete


def _swap(row: Row, why: str, *, certain: bool) -> Finding:
    sec, tflops = _figures(row)
    if certain:
        row.propose("sec_per_it", tflops / _scale(row), "swap-twin")
        row.propose("tflops", sec, "swap-twin")
    there = row.cell("tflops") or f"{tflops:g}"
    cells = f"{row.column('sec_per_it')} {row.cell('sec_per_it') or f'{sec:g}'} and {row.column('tflops')} {there}"
    message = f"{cells} are exchanged: {why}; the product is the same"
    return row.find("swap-twin", "error" if certain else "warning", message, name="sec_per_it", proposed=there)


# pasted over


RATES = ("tflops", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s")
_SURE, _LIKELY = 0.02, 0.3
"""How many rows would agree so by accident, for an error and for a warning."""


def _pasted(rows: list[Row]) -> list[Finding]:
    """Time and a rate, or two rates, to the last digit those of a row with another layout: two runs never agree so."""
    seen: dict[tuple[object, ...], Row] = {}
    found: list[Finding] = []
    for row in rows:
        if row.record.state == "planned" or row.record.estimated or row.planned:
            continue
        for first_name, name in _figure_pairs(row):
            if row.settled and {first_name, name} & ({*row.fixed} - row.solved):
                continue
            key = (row.record.source_file, first_name, row.cell(first_name), name, row.cell(name))
            first = seen.setdefault(key, row)
            if first is row or (lead := row.printed(first_name)) is None or _same_but_names(first, row):
                continue
            if _one_schedule_for_another(first, row):
                continue
            quoted = first.key != row.key and not _told_apart(first, row)
            if quoted or printed_configuration(first) == printed_configuration(row):
                continue
            there = [mate.get(first_name) for mate in (row.around if first.key == row.key else [*row.around, *first.around])]
            near = sum(abs(math.log(value / lead.value)) < 0.1 for value in there if value)
            # As much for each device is as much time, but for a little; of two figures the finer one tells.
            alike = _share(row) is not None and _share(row) == _share(first) and row.devices == first.devices
            alike = alike or first_name != "sec_per_it"
            figures = [figure for figure in (lead, row.printed(name)) if figure is not None]
            open_ = min(2 * figure.slack for figure in figures) if alike else lead.unit / lead.value
            chance = near * open_ / (0.02 if alike else 0.2) * (len(row.around) / 4 if alike else 1)
            if chance > (_LIKELY if first.key == row.key else _SURE):
                continue
            if not _doubts(first) and not _doubts(row) and _apart(first, row):
                continue
            wrong, source = (first, row) if _doubts(first) > _doubts(row) else (row, first)
            shown = " and ".join(f"{wrong.column(n)} {wrong.cell(n)}" for n in (first_name, name))
            here = "pasted, and what was measured here is not known"
            message = f"{shown} are those of {source.where} to the last digit, at another layout: {here}"
            level: Level = "error" if chance < _SURE or _doubts(wrong) else "warning"
            found.append(wrong.find("pasted-pair", level, message, name=first_name))
            break
    return found


def _one_schedule_for_another(a: Row, b: Row) -> bool:
    """Whether rows differ in the schedule alone, to the last cell: GPipe and 1F1B wait as long as each other."""
    differ = [heading for heading in a.cells if a.cells[heading] != b.cells.get(heading, "")]
    return len(differ) == 1 and differ[0] == a.columns.get("schedule") == b.columns.get("schedule")


def _told_apart(a: Row, b: Row) -> bool:
    """Whether two rows themselves say something else of what was run: one of another table that does not quotes the first."""
    return any(one and two and one != two for one, two in ((_own(a, name), _own(b, name)) for name in _TELLING))


_TELLING = ("nodes", "gpus", "seq", "size_label", "machine", *LAYOUT)


def _own(row: Row, name: str) -> object:
    record = row.record
    return None if name in record.inferred or name in record.context and not row.shows(name) else getattr(record, name)


def _apart(a: Row, b: Row) -> bool:
    """Whether another figure of two rows differs: nobody pastes two of three."""
    return any(a.cell(name) and b.cell(name) and a.cell(name) != b.cell(name) for name in RATES)


def _figure_pairs(row: Row) -> list[tuple[str, str]]:
    """The time and each rate; without a time the rates of one device."""
    if row.record.sec_per_it is not None:
        return [("sec_per_it", name) for name in RATES if name in row.columns and row.cell(name)]
    return [*pairwise([name for name in ("tokens_per_s_per_process", "tflops", "mfu") if row.cell(name)])]


def _share(row: Row) -> float | None:
    """Sequences of a device, or tokens where the sequence is said; of all devices where nobody counts them."""
    return row.record.gbs * (row.seq or 1) / (row.world or 1) if row.record.gbs else None


def _doubts(row: Row) -> int:
    """How many relations of its time and rates the row breaks, or broke before one was worked out anew."""
    broken, _ = broken_and_kept(row)
    return len(row.solved) + sum(any(name in MEASURED for name, _ in relation.terms) for relation, _, _ in broken)


def _same_but_names(a: Row, b: Row) -> bool:
    """The same layout as far as anybody says: one run in two tables."""
    # One device under two names, as with two prices, does what it does.
    one_device = a.device is not None and a.device == b.device
    named = (a.record.machine, b.record.machine), (a.record.size_label, b.record.size_label), (a.seq, b.seq)
    if any(here and there and here != there for here, there in named[one_device:]):
        return False
    same = all((one := _setting(a, n)) == (two := _setting(b, n)) or None in (one, two) or "" in (one, two) for n in LAYOUT)
    return same and a.world == b.world and a.beside("cp") == b.beside("cp")


def _memories(pairs: list[tuple[Row, Row]]) -> list[Finding]:
    """One configuration, and memory that differs by exchanged or wrong digits."""
    found = []
    oddness: dict[Row, float] = {}
    for a, b in pairs:
        one, two = a.record.mem_gib, b.record.mem_gib
        if not one or not two or a.record.mem_scope != b.record.mem_scope or abs(math.log(one / two)) < _OTHER_MEMORY:
            continue
        if a.record.size_label != b.record.size_label or a.key == b.key and settings(a) != settings(b):
            continue
        slips = [slip for slip in (_memory_slip(a, b), _memory_slip(b, a)) if slip is not None]
        if not slips or a.key != b.key and _took_other_time(a, b) and all(slip.how == "one digit changed" for slip in slips):
            continue
        oddness.update({row: _memory_oddness(row) for row in (a, b) if row not in oddness})
        wrong, right = (a, b) if oddness[a] > oddness[b] else (b, a)
        typed = _memory_slip(wrong, right)
        if typed is not None:
            cell, its = wrong.cell("mem_value"), right.cell("mem_value")
            message = f"{cell} where {right.where} has {its} for the same configuration: {typed.how}"
            found.append(wrong.find("memory-mismatch", "warning", message, name="mem_value", proposed=its))
    return found


def _took_other_time(a: Row, b: Row) -> bool:
    """Whether rows of two tables differ in their time as well: what the heading above each says is another setting."""
    one, two = a.record.sec_per_it, b.record.sec_per_it
    return bool(one and two) and abs(math.log(one / two)) > _OTHER_TIME  # type: ignore[operator]


_OTHER_TIME = 0.03


def _memory_slip(wrong: Row, right: Row) -> Slip | None:
    there = right.printed("mem_value")
    same = there is not None and wrong.record.mem_unit == right.record.mem_unit
    return slip(wrong.cell("mem_value"), there.rounded) if same and there is not None else None


def _memory_oddness(row: Row) -> float:
    near = [mate.record.mem_gib for mate in row.around if mate is not row and mate.record.mem_gib and row.record.mem_gib
            and same_configuration(row, mate, but=("mbs", "gbs"))]  # fmt: skip
    others = near if len(near) > 1 else [mate.record.mem_gib for mate in row.around if mate is not row and mate.record.mem_gib]
    return abs(math.log((row.record.mem_gib or 1) / statistics.median(others))) if others else 0.0


# the same row again, and two results


def _repeats(rows: list[Row]) -> list[Finding]:
    found: list[Finding] = []
    seen: dict[tuple, list[Row]] = {}
    for row in rows:
        record = row.record
        figures = record.sec_per_it, record.tflops, record.tokens_per_s, record.tokens_per_s_per_process, record.mfu
        if figures.count(None) + (record.mem_value is None) > len(figures) - 1:
            continue
        key = (figures, record.dp, record.tp, record.pp, record.mbs)
        twins = seen.setdefault(key, [])
        first = next((other for other in twins if same_configuration(row, other, but=("torch_version",))
                      and _same_memory(row, other)), None) if twins else None  # fmt: skip
        if len(twins) < _MOST_TWINS:
            twins.append(row)
        if first is None:
            continue
        apart = row.key == first.key and row.cell("notes") != first.cell("notes")
        if apart and printed_configuration(row) == printed_configuration(first):
            continue
        there, here = first.record.date or "nothing", record.date or "nothing"
        dates = "" if record.date == first.record.date else f", dated {there} there and {here} here"
        below = (row.record.source_line or 0) - (first.record.source_line or 0) == 1
        pasted: Level = "warning" if below and not _goes_on(row, first) and not _ran_again(row, first) else "info"
        found.append(row.find("repeat", pasted, f"the same row as {first.seen_from(row)}{dates}: count it once"))
    return found


def _goes_on(row: Row, first: Row) -> bool:
    """Whether another figure of two rows differs, as steps and losses of one run do: nobody copies a row and changes that."""
    return any(read_heading(heading).field not in ("date", "notes") and heading.strip("# ") and NUMBER.search(cell)
               and cell.strip() != row.record.printed.get(heading, "").strip()
               for heading, cell in first.record.printed.items())


_AGAIN = re.compile(r"\bseed|\bre-?run|\bagain\b|\brepeat|\b(?:2nd|3rd|second|third)\b|\bcontrol\b", re.IGNORECASE)


def _ran_again(row: Row, first: Row) -> bool:
    """Whether a row says in its own words that it is another run of the same."""
    return any(cell != first.record.printed.get(heading) and _AGAIN.search(cell) for heading, cell in row.worded.items())


def _same_memory(a: Row, b: Row) -> bool:
    one, two = a.record.mem_gib, b.record.mem_gib
    return one is None or two is None or abs(one - two) < 1e-9


_OF_ANOTHER = frozenset(("machine", "size_label", "gpus", "nodes", "gbs", "mbs", "seq"))


def _duplicates(rows: list[Row], pairs: list[tuple[Row, Row]]) -> list[Finding]:
    """Within one table what is printed as one configuration; over tables only what differs by more than runs do."""
    found: list[Finding] = []
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        of_another = row.settled and not _OF_ANOTHER.isdisjoint(row.reasons)
        if (row.record.sec_per_it or row.record.tflops) and not of_another:
            headings, cells = printed_configuration(row)
            groups.setdefault((row.key, headings, *cells), []).append(row)
    for group in groups.values():
        for row in group if len(group) > 1 else ():
            other = next((other for other in group[:_MOST_TWINS] if other is not row and _differs(row, other)), None)
            if len(row.record.printed) < 2 or other is None:
                continue
            same_day = row.record.date == other.record.date and row.cell("notes") == other.cell("notes")
            same_day = same_day and _gap(row, other) > _RERUN
            found.append(row.find("duplicate-config", "warning" if same_day else "info", _two_results(row, other)))
    for a, b in pairs:
        fixed = {"sec_per_it", "tflops"} & {*a.fixed, *b.fixed}
        if a.key != b.key and a.record.source_file == b.record.source_file and not fixed and _gap(a, b) > _RERUN:
            found.append(b.find("duplicate-config", "info", _two_results(b, a)))
    return found


def _differs(a: Row, b: Row) -> bool:
    return any(
        (one := a.printed(name)) is not None and (two := b.printed(name)) is not None and not overlap(one.rounded, two.rounded)
        for name in ("sec_per_it", "tflops", "mem_value")
    )


def _gap(a: Row, b: Row) -> float:
    for name in ("sec_per_it", "tflops"):
        one, two = a.get(name), b.get(name)
        if one and two:
            return abs(math.log(one / two))
    return 0.0


def _two_results(row: Row, other: Row) -> str:
    here, there = (" / ".join(cell for name in ("mem_value", "sec_per_it", "tflops") if (cell := r.cell(name)))
                   for r in (row, other))  # fmt: skip
    one, two, memory = row.record.mem_gib, other.record.mem_gib, ""
    if one and two and row.record.mbs and abs(math.log(one / two)) > 0.08:
        memory = "; the memory differs so much that the micro-batch of one of them may be another"
    return f"the configuration of {other.seen_from(row)} with another result: {here} here, {there} there{memory}"
