"""Rows whose figures confirm each other, every one of them by others: what still says that they do not was misread.

    drop(findings, sheet)       without those on time, rates, TFLOPs and MFU of rows that are confirmed

A slip changes one cell, and then nothing that it has to do with holds any more. Where the time goes with the rate, what a token
costs is what another row of the model has or lies on the line of its lengths, and the TFLOPs over the MFU are a peak of the
row's own device, no cell of them is wrong: the row is counted by another formula than most (`FLOPs by: Megatron | 6N`), of
another precision, length or model than it was taken for, or of a batch that nobody says.
"""
from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint.columns.relations import kind_of
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.models import stated
from seatrial.notes.lint.models.known import shape_of
from seatrial.notes.lint.phases.quantities import clock
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.tongues import in_english, plain_letters

JUDGED = frozenset(("rate-mismatch", "tflops-mismatch", "formula-mixed"))
FEWEST, MOST_ROWS = 3, 60
SAME, EXACT, COST, PEAK = 0.02, 0.003, 0.004, 0.004
"""Beyond the digits: within which a time goes with a rate at most, and where they do not scatter; two rows have one cost of a
token; and a share goes with a peak."""
UNITS = (1.0, 1e3, 1024.0, 1e6, 2.0**20)
"""What a cell of tokens may count in."""
FLOPS = (1e6, 1e9, 1e12)
OF_SIZE = 0.12
"""By which share what a token costs at no length may differ from six times, or eight, the parameters of the label."""
Costs = tuple[tuple[float, float], ...]
_RATES = ("tokens_per_s", "tokens_per_s_per_process", "samples_per_s")


def drop(found: Iterable[Finding], sheet: Sheet) -> list[Finding]:
    found = list(found)
    asked = {(one.file, one.line) for one in found if one.code in (*JUDGED, "aggregate") and one.level != "info"}
    if not asked:
        return found
    # All runs of a table that is turned round begin in one line: there a finding names no row.
    rows = {where: row for row in sheet.rows if row.tabular
            and (where := (row.record.source_file, row.record.source_line)) in asked - sheet.turned}  # fmt: skip
    judged = {(one.file, one.line) for one in found if one.code in JUDGED}
    sure = {where for where, row in rows.items() if where in judged and _is_confirmed(row)}
    return [one for one in found if not (
        one.code in JUDGED and (one.file, one.line) in sure and not _is_beside(rows[one.file, one.line], one)
        or one.code == "aggregate" and (row := rows.get((one.file, one.line))) is not None
        and any(explains(row, one) for explains in EXPLAINED))]


def _is_beside(row: Row, one: Finding) -> bool:
    """Whether it is said of steps, hours or money, which confirmed times and rates say nothing of."""
    return one.column == row.columns.get("iteration") or one.column in row.extras


def _is_share(row: Row, one: Finding) -> bool:
    """Whether a column of percent that no field takes is what the TFLOPs are of a peak of the row's own device."""
    value, done = row.figure(one.column or ""), row.record.tflops
    if not value or not done or row.device is None or "%" not in (one.column or "") + (one.printed or ""):
        return False
    open_ = _slack(row, "tflops") + 0.05 / value + PEAK
    return any(abs(100 * done / value / peak - 1) < open_ for peak in row.device.peak_tflops.values())


_SEVERAL = re.compile(r"(?<![\w.,])(\d{1,4}) ?(?:(?:\w+ )?(?:runs?|seeds?|jobs?|trials?|repeats?|models?|sweeps?|experiments?|"
                      r"repetitions?|laufe?|wiederholungen|essais|corridas|ensayos|prove|запус\w*|прогон\w*)\b|回|本|번)",
                      re.IGNORECASE)  # fmt: skip
_TIMES = re.compile(r"would be ([\d.]+(?:e[+-]?\d+)?), printed ([\d.]+(?:e[+-]?\d+)?)")


def _is_of_several(row: Row, one: Finding) -> bool:
    """Whether a row is of as many runs, by its words, as it is off by: `ablations, 40 runs`."""
    off = _TIMES.search(one.message)
    counts = {int(match[1]) for cell in row.worded.values() for match in _SEVERAL.finditer(plain_letters(cell)) if off}
    if off is None or not counts or not float(off[1]) or not float(off[2]):
        return False
    times = float(off[2]) / float(off[1])
    return any(count > 1 and abs(max(times, 1 / times) / count - 1) < SAME for count in counts)


_POINTED = re.compile(r"\d{1,3}(?:\.\d{3})*")
_OFF_BY = re.compile(r"off by \+?(-?[\d.]+)%")


def _is_in_thousands(row: Row, one: Finding) -> bool:
    """Whether it is off by a thousand times, where points part the thousands of a column that has figures below a thousand."""
    off = _OFF_BY.search(one.message)
    times = 1 + float(off[1]) / 100 if off is not None else 0.0
    if times <= 0 or abs(abs(math.log(times)) - math.log(1000.0)) > SAME:
        return False
    columns = ([mate.cells[heading] for mate in row.around[:MOST_ROWS]] for heading in row.cells)
    return any(all(map(_POINTED.fullmatch, column)) and len({"." in cell for cell in column}) == 2 for column in columns)


def _is_set_otherwise(row: Row, one: Finding) -> bool:
    """Whether a product that was found in rows of one setting is held against the only row of another: it alone has other
    counts in two columns at least."""
    if one.ground == "definition" or len(row.around) <= FEWEST:
        return False
    others = 0
    for heading in row.extras:
        column = {mate.cells[heading] for mate in _mates(row)}
        others += len(column) == 1 and row.cells[heading] not in column and row.cells[heading].replace(",", "").isdecimal()
    return others > 1


STARTING_S = 300.0


def _is_started(row: Row, one: Finding) -> bool:
    """Whether a clock runs a few minutes longer than the steps take: a run has to start, and to write what it has."""
    unit, steps, each = clock(one.column or ""), row.record.iteration, row.get("sec_per_it")
    value = row.figure(one.column or "") if unit is not None else None
    return bool(unit and value and steps and each) and 0 < 3600 * unit * value - steps * each < STARTING_S  # type: ignore[operator]


EXPLAINED = (_is_share, _is_of_several, _is_set_otherwise, _is_in_thousands, _is_started)
"""What makes a row another case than those that a law was found in."""


def _is_confirmed(row: Row) -> bool:
    rate, own = _rate(row), _costs(row)
    if _is_split_otherwise(row) or row.record.hfu:
        return False
    return rate is not None and bool(own) and _is_timed(row, rate) and _is_shared(row) and _is_priced(row, own)


def _is_split_otherwise(row: Row) -> bool:
    return bool(row.product and row.counted) and row.product != row.counted


def _slack(row: Row, *names: str) -> float:
    return sum(figure.slack for name in names if (figure := row.printed(name)) is not None)


def _devices(row: Row) -> float | None:
    return row.counted or row.product


def _length(row: Row) -> int | None:
    """As printed, whatever was proposed."""
    return row.record.seq or (None if "seq" in row.fixed else row.seq)


def _rate(row: Row) -> float | None:
    """Tokens a second of all devices, by each of the row's rates; None where they contradict each other, or there is none."""
    record, world = row.record, _devices(row)
    rates = [record.tokens_per_s, record.tokens_per_s_per_process and world and record.tokens_per_s_per_process * world,
             record.samples_per_s and (seq := _length(row)) and record.samples_per_s * seq]  # fmt: skip
    its = [rate for name, rate in zip(_RATES, rates) if rate and rate > 0 and name not in record.inferred]
    if not its or max(its) > min(its) * (1 + SAME + _slack(row, *_RATES)):
        return None
    return its[0]


def _is_timed(row: Row, rate: float) -> bool:
    """Whether the time, where there is one, goes with the rate: by the batch in the row, by the tokens of a step, or as in rows
    with the same devices or the same work for each."""
    record = row.record
    if not record.sec_per_it:
        return True
    tokens, open_ = record.sec_per_it * rate, _slack(row, "sec_per_it", *_RATES)
    if row.shows("gbs") or row.shows("mbs"):
        its = _sequence(row, rate)
        kin = [(one, _length(mate)) for mate in _mates(row) if (one := _sequence(mate, _rate(mate)))]
        seq = _length(row) or statistics.median([one for one, _ in kin] or [0.0])
        if its is None or not seq:
            return False
        scatter = 3 * statistics.median([abs(math.log(one / (length or seq))) for one, length in kin] or [0.0])
        return abs(math.log(its / seq)) < open_ + min(SAME, EXACT + scatter)
    near = SAME + open_
    for heading in row.extras:
        value = row.figure(heading) if "tok" in in_english(heading).casefold() else None
        if value and any(abs(value * unit / tokens - 1) < near for unit in UNITS):
            return True
    world, alike = _devices(row) or 0, 0
    for mate in _mates(row):
        other = _rate(mate) if mate.record.sec_per_it != record.sec_per_it else None
        if other is not None and mate.record.sec_per_it:
            ratio = tokens / (mate.record.sec_per_it * other)
            each = ratio * (_devices(mate) or 0) / world if world else ratio
            alike += min(abs(ratio - 1), abs(each - 1)) < near
    return alike > 1


def _mates(row: Row) -> list[Row]:
    return [mate for mate in row.around[:MOST_ROWS] if mate is not row]


def _sequence(row: Row, rate: float | None) -> float | None:
    """How long one is by the time, the rate and the batch in the row."""
    record = row.record
    return record.sec_per_it * rate / record.gbs if record.sec_per_it and rate and record.gbs else None


def _costs(row: Row) -> tuple[tuple[float, float], ...]:
    """FLOPs of a token by the row's TFLOPs and rate, and by its time and batch, and what the digits leave open."""
    record, rate, world, seq = row.record, _rate(row), _devices(row), _length(row)
    if not record.tflops or rate is None or not world or "tflops" in record.inferred:
        return ()
    done, open_ = record.tflops * world * 1e12, _slack(row, "tflops")
    by_rate = done / rate, open_ + min(_slack(row, name) or 1.0 for name in _RATES)
    if not record.sec_per_it or not record.gbs or not seq or not (row.shows("gbs") or row.shows("mbs")):
        return (by_rate,)
    return by_rate, (done * record.sec_per_it / record.gbs / seq, open_ + _slack(row, "sec_per_it"))


def _are_one(one: Costs, other: Costs) -> bool:
    """Whether two rows have one cost of a token, by their rates or by their times, which are other means: the one to the
    digits, and the other nearly."""
    offs = [abs(a / b - 1) - open_ - its for (a, open_), (b, its) in zip(one, other)]
    return min(offs) < COST and max(offs) < SAME


def _is_priced(row: Row, own: Costs) -> bool:
    """Whether another row, the line of the lengths of the model, or a cell of the row has the cost of its tokens."""
    cost, open_ = own[0]
    for heading in row.extras:
        value = row.figure(heading)
        if value and any(abs(value * unit / cost - 1) < open_ + COST for unit in FLOPS) and len(row.cell(f"+{heading}")) > 2:
            return True
    seq, mine = _length(row), (row.record.sec_per_it, row.record.tflops)
    lengths: dict[float, list[float]] = {}
    alike: list[Row] = []
    again: list[Row] = []
    others: list[Row] = []
    for mate in _mates(row):
        its = _costs(mate) if _of_one_model(row, mate) and not _is_split_otherwise(mate) else ()
        if not its or (mate.record.sec_per_it, mate.record.tflops) == mine:
            continue
        other, same = _length(mate), mate.record.recompute == row.record.recompute
        if other == seq and _are_one(own, its):
            (alike if same else again).append(mate)  # what is done again may count or not
        elif other == seq:
            others.append(mate)
        elif other and seq and same:
            lengths.setdefault(float(other), []).append(its[0][0])
    enough = alike and len(alike) + len(again) > min(1, len(others) - 1)
    if enough or _is_published(row, own) or (alike or len(again) > 1) and _is_told_apart(row, [*alike, *again], others):
        return True
    return bool(lengths) and _is_on_line(row, float(seq or 0), cost, open_, lengths)


def _is_published(row: Row, own: Costs) -> bool:
    """Whether it is what the published model that the row names costs, attention counted as in all rows of such models."""
    ways = _published(row, own)
    others = [told for mate in _mates(row) if (told := _published(mate, _costs(mate))) is not None]
    return bool(ways) and bool(others) and sum(bool(ways & told) for told in others if ways) * 2 > len(others)  # type: ignore[operator]


def _published(row: Row, own: Costs) -> frozenset[int] | None:
    """How many FLOPs of attention for each layer, width and token of the sequence the row may count: 0, 6 or 12."""
    label, seq = row.record.size_label, _length(row)
    shape = shape_of(label) if label and own and seq else None
    size = label_parameters(label) if shape and all(shape) else None
    if shape is None or size is None or not seq:
        return None
    open_ = own[0][1] + COST + size[1] / size[0]
    return frozenset(way for way in (0, 6, 12) if abs((6 * size[0] + way * shape[0] * shape[1] * seq) / own[0][0] - 1) < open_)


def _of_one_model(row: Row, other: Row) -> bool:
    one, two = row.record, other.record
    return (one.size_label, one.layers, one.hidden, one.ffn) == (two.size_label, two.layers, two.hidden, two.ffn)


def _is_told_apart(row: Row, alike: list[Row], others: list[Row]) -> bool:
    """Whether a word of the row stands in all rows that are counted alike, and in none of the others."""
    for heading, cell in row.worded.items():
        if (heading in row.record.extra and all(mate.record.printed.get(heading) == cell for mate in alike)
                and not any(mate.record.printed.get(heading) == cell for mate in others)):  # fmt: skip
            return True
    return False


def _is_on_line(row: Row, length: float, cost: float, open_: float, lengths: dict[float, list[float]]) -> bool:
    """Attention costs a token as much more as the sequence is longer."""
    points = [(seq, each) for seq, costs in lengths.items() for each in costs[:4]]
    near = 2 * open_ + 2 * COST
    for (one, low), (two, high) in itertools.combinations(sorted(points), 2):
        slope = (high - low) / (two - one) if one != two else 0.0
        if slope > 0 and abs((low + slope * (length - one)) / cost - 1) < near and 5 * sum(
                abs((low + slope * (seq - one)) / each - 1) < near for seq, each in points) >= 3 * len(points):  # fmt: skip
            return True
    size = label_parameters(row.record.size_label)
    if size is None or not size[0] or len(lengths) > 1:
        return False
    for seq, each in points:
        slope = (cost - each) / (length - seq)
        if slope > 0 and any(abs((cost - slope * length) / (passes * size[0]) - 1) < OF_SIZE for passes in (6.0, 8.0)):
            return True
    return False


def _is_shared(row: Row) -> bool:
    """Whether TFLOPs over MFU, where there is one, are a peak of the row's device, or one that the text says."""
    record = row.record
    if not record.mfu:
        return True
    if not record.tflops:
        return False
    peak, open_ = record.tflops / record.mfu, _slack(row, "mfu", "tflops") + PEAK
    own = row.device.peak_tflops if row.device is not None else {}
    said = row.sheet.text(row).peaks
    # What rows of the same device and precision have tells more than what a device may have at all.
    kin = [mate.record.tflops / mate.record.mfu for mate in _mates(row) if mate.record.tflops and mate.record.mfu
           and mate.record.dtype == record.dtype and mate.devices == row.devices
           and kind_of(mate.record.machine) == kind_of(record.machine)]  # fmt: skip
    if own or said:
        kin = [one for one in kin if any(abs(one / known - 1) < 2 * open_ for known in (*own.values(), *said))]
    if kin:
        return 2 * sum(abs(one / peak - 1) < 2 * open_ for one in kin) >= len(kin)
    if told := stated.peak_of(row) or stated.said_of(row).only_peak:
        return abs(peak / told - 1) < open_
    kinds = ("fp8", "int8") if record.dtype[:3] in ("fp8", "mxf", "int") else ("bf16", "fp16")
    return any(abs(peak / one - 1) < open_ for one in [own[kind] for kind in kinds if kind in own] or said)
