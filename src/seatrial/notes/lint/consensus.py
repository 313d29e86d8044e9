"""Which reading of TFLOPs a table follows, from how many of its rows agree; and layer counts that nobody stated.

    consensus.establish(sheet)        sets row.reading, row.support, and row.layers where they can be solved

A row alone proves little: with two digits one of many formulas fits by chance. What most rows of a table follow is its reading,
and a table too small to tell takes that of its file.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from dataclasses import replace

from seatrial.notes.lint.finding import Finding
from seatrial.notes.lint.formulas import ALIKE, Reading, candidates, label_parameters
from seatrial.notes.lint.sheet import Row, Sheet
from seatrial.spec import is_gated

TIME_SCALES = {1e-3: "milliseconds", 1e3: "seconds", 60.0: "minutes", 3600.0: "hours"}
"""Seconds in a unit of what may stand in a column of times by mistake; 1000: seconds under a heading of ms."""
_MOST_ROWS = 300
"""A long table is judged by so many of its rows."""


def complete(row: Row) -> bool:
    """Whether time and TFLOPs of the row can be compared at all."""
    record = row.record
    return bool(
        record.sec_per_it
        and record.tflops
        and record.sec_per_it > 0
        and record.tflops > 0
        and record.gbs
        and (row.counted or row.product)
    )


def fits(row: Row, reading: Reading) -> bool:
    """With the processes of either column, as one process or as a node: which of them is right is another rule's question."""
    # This is asked more often than anything else, so the FLOPs of a sequence are worked out once for all of them.
    each = reading.per_sample(row)
    if not each:
        return False
    readings = (reading,) if (row.procs or 1) == 1 else (reading, _per_node(reading))
    return any(r.fits_work(row, r.work(row, each, world)) for r in readings for world in {row.counted, row.product} if world)


@functools.lru_cache(maxsize=4096)
def _per_node(reading: Reading) -> Reading:
    return replace(reading, per="node")


def establish(sheet: Sheet) -> list[Finding]:
    borrow_hidden(sheet)
    for rows in sheet.files.values():
        _establish_file([row for row in rows if complete(row)])
    return [finding for rows in sheet.files.values() for finding in _report_solved(rows)]


def _establish_file(rows: list[Row]) -> None:
    tables: dict[object, list[Row]] = {}
    for row in rows:
        tables.setdefault(row.key, []).append(row)
    readings = list(candidates(rows))
    matched = {key: _matched(mates, readings) for key, mates in tables.items()}
    tally = Counter({reading: sum(len(m[reading]) for m in matched.values()) for reading in readings})
    undecided = []
    for key, mates in tables.items():
        known = [row for row in mates if row.layers and row.hidden]
        best = _best(matched[key], tally, readings)
        if best is None or len(matched[key][best]) < 0.4 * len(known[:_MOST_ROWS]):
            scaled = [replace(reading, scale=scale) for scale in TIME_SCALES for reading in readings]
            found = _matched(mates, scaled)
            other = _best(found, Counter(), scaled)
            if other is not None and (best is None or len(found[other]) > len(matched[key][best])):
                best = other
        if best is None or not _convincing(best, mates, known):
            undecided.append(mates)
            continue
        for row in mates:
            row.reading = best
    for mates in tables.values():
        _take_shape_of_mates(mates)
    for mates in undecided:
        reading = _best_of_file(tally, readings) if not _solve_layers(mates, tally, readings) else None
        for row in mates:
            row.reading = row.reading or reading
    for mates in tables.values():
        _solve_layers([row for row in mates if not row.layers], tally, readings)
    for mates in tables.values():
        _agree_without_shape(mates)
    usual = Counter(row.reading.vocab for row in rows if row.reading is not None and row.reading.vocab)
    for row in rows:
        row.vocab = (
            row.record.vocab or (row.reading.vocab if row.reading else None) or (usual.most_common(1)[0][0] if usual else None)
        )


def _convincing(reading: Reading, mates: list[Row], known: list[Row]) -> bool:
    """A few rows with coarse digits agree with something by chance; a third of the rows do not, and neither do fine digits."""
    agreeing = [row for row in mates[:_MOST_ROWS] if fits(row, reading)]
    fine = [row for row in agreeing if slack(row) < 0.003]
    return len(agreeing) >= 0.34 * max(1, len(known[:_MOST_ROWS])) or reading.formula != "label" and len(fine) >= 2


def slack(row: Row) -> float:
    """How far time and TFLOPs may miss each other within their printed digits."""
    sec, shown = row.printed("sec_per_it"), row.printed("tflops")
    return (sec.slack if sec else 0.0) + (shown.slack if shown else 0.0)


def _matched(rows: list[Row], readings: list[Reading]) -> dict[Reading, list[Row]]:
    known = [row for row in rows if row.layers and row.hidden or row.record.size_label][:_MOST_ROWS]
    return {reading: [row for row in known if fits(row, reading)] for reading in readings}


UNUSUAL = {"hardware": 1.0, "palm": 1.5, "parameters": 1.5, "label": 2.0}
"""How many rows more a formula must explain that tables are rarely made with."""


def _best(matched: dict[Reading, list[Row]], tally: Counter[Reading], order: list[Reading]) -> Reading | None:
    """The reading that most rows follow; what the rest of the file follows, and what is usual, counts as a row or so."""
    place = {reading: i for i, reading in enumerate(order)}
    first = {reading.formula: reading.vocab for reading in reversed(order)}

    stated = {row.record.recompute for rows in matched.values() for row in rows if row.record.recompute}

    gated = any(is_gated(row.record.family) for rows in matched.values() for row in rows)
    unusual = {**UNUSUAL, "hardware": 0.25, "megatron-2022-old": 0.75} if gated else UNUSUAL

    def score(reading: Reading) -> float:
        elsewhere = tally[reading] - len(matched[reading])
        rare = unusual.get(reading.formula, 0.0) + 0.5 * (reading.vocab != first[reading.formula]) + 0.5 * reading.plain
        rare += 0.5 * bool(stated and reading.recompute not in stated)
        return len(matched[reading]) + min(0.9, 0.15 * max(0, elsewhere)) - rare

    best = max((reading for reading in order if matched[reading]), key=lambda r: (score(r), -place[r]), default=None)
    return best


def _best_of_file(tally: Counter[Reading], order: list[Reading]) -> Reading | None:
    best = max(order, key=lambda r: tally[r] - UNUSUAL.get(r.formula, 0.0), default=None)
    return best if best is not None and tally[best] and best.formula != "label" else (order[0] if order else None)


def borrow_hidden(sheet: Sheet) -> None:
    """A row without a hidden size takes that of rows with its label, else of the nearest row above: solving will prove it.
    Sequence and vocabulary come from its table, where that has one."""
    for mates in sheet.tables.values():
        for name in ("seq", "vocab"):
            known = {getattr(row.record, name) for row in mates} - {None}
            for row in mates if len(known) == 1 else ():
                setattr(row, name, getattr(row, name) or min(known))
    for rows in sheet.files.values():
        by_label: dict[str, Counter[int]] = {}
        for row in rows:
            if row.record.hidden and row.record.size_label:
                by_label.setdefault(row.record.size_label, Counter())[row.record.hidden] += 1
        last = None
        for row in rows:
            last = row.record.hidden or last
            if row.hidden is None:
                same = by_label.get(row.record.size_label)
                row.hidden = same.most_common(1)[0][0] if same else last


def _solve_layers(rows: list[Row], tally: Counter[Reading], readings: list[Reading]) -> bool:
    """Layers are whole and divide over the stages, and only the right formula gives such numbers row after row."""
    rows = [row for row in rows if not row.layers and row.hidden]
    if not rows:
        return False
    order = sorted(readings, key=lambda reading: -tally[reading])
    solved = {
        reading: [(row, n) for row in rows[:_MOST_ROWS] if (n := whole_layers(row, reading)) is not None] for reading in order
    }
    best = max(order, key=lambda reading: (len(solved[reading]), tally[reading]), default=None)
    if best is None or len(solved[best]) < max(1, len(rows) // 2):
        return False
    for row in rows:
        layers = whole_layers(row, best)
        row.reading = best
        if layers is not None:
            row.layers = layers
    return True


def _take_shape_of_mates(mates: list[Row]) -> None:
    """A row under another label whose TFLOPs agree with the model of the other rows is a row of that model."""
    donors = {
        (row.layers, row.hidden, row.seq, row.vocab): row
        for row in mates
        if row.layers and row.hidden and row.reading is not None
    }
    for row in mates:
        if row.layers:
            continue
        for (layers, hidden, seq, vocab), donor in donors.items():
            before = row.hidden, row.seq, row.vocab, row.reading
            row.layers, row.hidden, row.seq, row.vocab, row.reading = (
                layers,
                hidden,
                row.seq or seq,
                row.vocab or vocab,
                donor.reading,
            )
            if row.reading is not None and fits(row, row.reading):
                break
            row.layers, (row.hidden, row.seq, row.vocab, row.reading) = None, before


def _agree_without_shape(mates: list[Row]) -> None:
    """Rows of one model need the same FLOPs for a sequence, whatever they are: time x TFLOPs x processes / batch."""
    models: dict[tuple, list[Row]] = {}
    for row in mates:
        if row.reading is None or row.reading.per_sample(row) is None:
            record = row.record
            models.setdefault((record.size_label, record.layers, record.hidden, record.seq, record.recompute), []).append(row)
    for rows in models.values():
        figures = {row: figure for row in rows[:_MOST_ROWS] if (figure := _flops_of_a_sequence(row)) is not None}
        if len(figures) < 3:
            continue
        middle = statistics.median(figures.values())
        agreeing = [row for row, figure in figures.items() if abs(math.log(figure / middle)) < slack(row) + 0.007]
        if len(agreeing) >= max(3, 0.6 * len(figures)):
            each = statistics.median(figures[row] for row in agreeing)
            for row in rows:
                row.reading = Reading(formula=ALIKE, recompute="none", each=each)


def _flops_of_a_sequence(row: Row) -> float | None:
    record, world = row.record, row.counted or row.product
    if not record.sec_per_it or not record.tflops or not record.gbs or not world:
        return None
    return record.sec_per_it * record.tflops * world * 1e12 / record.gbs


def whole_layers(row: Row, reading: Reading) -> int | None:
    """The one number of layers that is whole, divides over the stages, and that the printed digits allow."""
    bounds = reading.solve_layers(row)
    if bounds is None or bounds[1] - bounds[0] > 0.5:
        return None
    layers, pp = math.ceil(bounds[0] - 1e-6), row.get("pp") or 1
    if layers < 1 or layers > bounds[1] + 1e-6 or (layers % pp and (layers + 2) % pp):
        return None
    size = label_parameters(row.record.size_label)
    rough = 12.0 * layers * (row.hidden or 0) ** 2
    return layers if size is None or 0.5 < rough / size[0] < 1.5 else None


def _report_solved(rows: list[Row]) -> list[Finding]:
    """Once for each model of a table."""
    found, told = [], set()
    for row in rows:
        key = (row.key, row.record.size_label, row.layers, row.hidden)
        if not row.layers or row.record.layers or row.reading is None or key in told:
            continue
        told.add(key)
        bounds = row.reading.solve_layers(row)
        if row.guessed:
            shape = f'{row.layers} layers x {row.hidden} as "{row.record.size_label}" has elsewhere'
            said = f"shape not stated: {shape}; the TFLOPs agree by {row.reading}"
        elif bounds is not None:
            said = (
                f"layers not stated: {row.layers} solved from time and TFLOPs by {row.reading} with hidden {row.hidden} "
                f"({sum(bounds) / 2:.3f})"
            )
        else:
            continue
        found.append(row.find("layers-solved", "info", said, proposed=str(row.layers)))
    return found
