"""Time and TFLOPs of a row must belong together under the reading of its table.

Where they do not, one clear explanation (see `explain.py`) is proposed; else the row is left open. What most rows of a table
share is no slip of a row: a unit, a habit of cutting digits off, or a formula that nobody stated.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

from seatrial.notes.lint import digits
from seatrial.notes.lint.consensus import TIME_SCALES, complete, slack
from seatrial.notes.lint.explain import Explanation, explanations, reading_of
from seatrial.notes.lint.finding import Finding, Level
from seatrial.notes.lint.sheet import Row, Sheet

SMALL = 0.015
"""A difference below this may come from averages over other iterations; above it one of the figures is wrong."""
_MOST_EXPLAINED = 500
"""Of one table; a log of thousands of such lines has one cause and not thousands."""
MARGIN = 1.0
"""By how much the best explanation must lead to be proposed."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        found += _times_alone(mates)
        rows = [row for row in mates if complete(row) and row.reading is not None and row.reading.ratio(row) is not None]
        agreeing = {row for row in rows if _agrees(row)}
        wrong = [row for row in rows if row not in agreeing]
        found += [finding for row in rows if row in agreeing for finding in _slow_units(row)]
        if _all_cut(rows, wrong):
            found.append(
                wrong[0].find(
                    "tflops-mismatch",
                    "info",
                    f"{len(wrong)} of {len(rows)} rows agree with {wrong[0].reading} only "
                    "when their digits were cut off and not rounded",
                    name="tflops",
                )
            )
            continue
        explained = {row: explanations(row, agreeing) for row in wrong[:_MOST_EXPLAINED]}
        factor = _common_factor(rows, wrong, explained)
        if factor is not None:
            found.append(_unknown_formula(rows, factor))
            wrong = [row for row in rows if abs(math.log((_ratio(row) or 1) / factor)) > 0.02 + slack(row)]
        found += [finding for row in wrong for finding in _report(row, explained.get(row, []), factor)]
    return found


def _times_alone(mates: list[Row]) -> list[Finding]:
    """Without TFLOPs: a thousand times the time that the other rows of the model need for a sequence is another unit."""
    models: dict[str, dict[Row, float]] = {}
    for row in mates[:2000]:
        record = row.record
        if record.sec_per_it and not record.tflops and record.gbs and row.world:
            models.setdefault(record.size_label, {})[row] = record.sec_per_it * row.world / record.gbs
    found = []
    for each in models.values():
        if len(each) < 3:
            continue
        middle = statistics.median(each.values())
        for row, figure in each.items():
            for scale, unit in ((1e-3, "milliseconds"), (1e3, "seconds")):
                if 0.4 < figure / middle * scale < 2.5:
                    sec = row.printed("sec_per_it")
                    assert sec is not None
                    value = sec.value * scale
                    row.propose("sec_per_it", value, "ms-not-s")
                    times = f"{figure / middle:.3g} times what the other rows need for a sample"
                    said = f"{sec.value:g} s is {times}: the time is in {unit}"
                    shown = f"{value:.6g}" if scale == 1e-3 else f"{sec.value:.6g}"
                    code = "ms-not-s" if scale == 1e-3 else "time-unit"
                    found.append(row.find(code, "error", said, name="sec_per_it", proposed=shown))
    return found


def _agrees(row: Row) -> bool:
    return reading_of(row).fits(row)


def _ratio(row: Row) -> float | None:
    return reading_of(row).ratio(row)


def _slow_units(row: Row) -> list[Finding]:
    """A row that agrees, in a table whose times are all in another unit."""
    scale = reading_of(row).scale
    return [] if scale == 1.0 else [_unit_finding(row, scale, "all such rows of the table agree so")]


def _unit_finding(row: Row, scale: float, why: str) -> Finding:
    sec = row.printed("sec_per_it")
    assert sec is not None and row.record.sec_per_it is not None
    row.propose("sec_per_it", row.record.sec_per_it * scale, "ms-not-s")
    calc = replace(reading_of(row), scale=scale).tflops(row) or 0.0
    unit = TIME_SCALES.get(scale, "another unit")
    said = f"the time is in {unit}: {sec.value * scale:.6g} s gives {calc:.4g} TFLOPs ({row.record.tflops:g} printed), {why}"
    value = sec.value if scale == 1e3 else sec.value * scale
    decimals = max(0, -round(math.log10((sec.step or sec.unit) * (1e-3 if scale == 1e-3 else 1.0))))
    code = "ms-not-s" if scale == 1e-3 else "time-unit"
    return row.find(code, "error", said, name="sec_per_it", proposed=f"{value:.{decimals}f}")


def _all_cut(rows: list[Row], wrong: list[Row]) -> bool:
    """Whether the habit of the whole table is to cut digits off."""
    return (
        len(wrong) >= 3
        and len(wrong) >= 0.3 * len(rows)
        and all(reading_of(row).fits_truncated(row) for row in wrong)
    )


def _common_factor(rows: list[Row], wrong: list[Row], explained: dict[Row, list[Explanation]]) -> float | None:
    """A factor that nothing explains but that most rows share: a formula, sequence or vocabulary that nobody stated."""
    if len(wrong) < 3 or len(wrong) < 0.7 * len(rows):
        return None
    ratios = [ratio for row in wrong if (ratio := _ratio(row))]
    middle = statistics.median(ratios)
    alike = [row for row in wrong if abs(math.log((_ratio(row) or 1) / middle)) < 0.015 + slack(row)]
    if len(alike) < 0.6 * len(rows) or any(explained.get(row) and explained[row][0].score >= 4 for row in alike):
        return None
    return middle


def _unknown_formula(rows: list[Row], factor: float) -> Finding:
    return rows[0].find(
        "tflops-mismatch",
        "warning",
        f"the TFLOPs of this table are {1 / factor:.4g} times those of {rows[0].reading}: "
        "formula, sequence or vocabulary are not what the text states",
        name="tflops",
    )


def _report(row: Row, explanations: list[Explanation], factor: float | None) -> list[Finding]:
    reading, shown, sec = reading_of(row), row.printed("tflops"), row.printed("sec_per_it")
    calc = reading.tflops(row)
    assert shown is not None and sec is not None and calc is not None
    off = calc / shown.value / (factor or 1.0) - 1
    facts = f"{sec.value:g} s gives {calc / (factor or 1.0):.4g} TFLOPs by {reading}, printed {shown.value:g} ({off:+.1%})"
    if factor is None and reading.fits_truncated(row):
        low, high = reading.cut_time(row)
        said = f"{facts}: explained if digits were cut off and not rounded, the time lies between {low:.4g} and {high:.4g} s"
        return [
            row.find(
                "tflops-mismatch",
                "warning",
                said,
                name="sec_per_it",
                proposed=digits.as_printed((low + high) / 2, (sec.step or sec.unit) / 100),
            )
        ]
    best = explanations[0] if explanations and factor is None else None
    # A small difference is an error too when the digits are fine and one slip of the hand explains it.
    fine = best is not None and best.score >= 3 and abs(off) > 5 * slack(row)
    level: Level = "error" if (abs(off) > SMALL or fine) and _proven(row) else "warning"
    rivals = [e for e in explanations[1:] if best is not None and best.score - e.score < MARGIN]
    if best is not None and best.code in ("ms-not-s", "time-unit") and not rivals:
        return [_unit_finding(row, best.value, "the other rows are in seconds")]
    if best is not None and best.score >= 2 and not rivals:
        if best.name:
            row.propose(best.name, best.value, best.code)
        return [
            row.find(
                best.code,
                best.level if best.level != "error" else level,
                f"{best.said}: {facts}",
                name=best.name or "tflops",
                proposed=best.shown or None,
            )
        ]
    options = "; ".join(dict.fromkeys(e.said for e in explanations[:4] if e.score > -2))
    open_end = f"open: one of both is wrong{f', {options}' if options else ''}"
    return [row.find("tflops-mismatch", level, f"{facts}; {open_end}", name="tflops")]


def _proven(row: Row) -> bool:
    """Whether the reading stands on other rows, and not on a guess."""
    reading, proven = reading_of(row), row.sheet.proven
    key = (row.record.source_file, reading)
    if key not in proven:
        agreeing = [other for other in row.elsewhere if other.reading == reading and complete(other) and reading.fits(other)]
        proven[key] = len(agreeing) >= 2 or any(slack(other) < 0.002 for other in agreeing)
    return proven[key]
