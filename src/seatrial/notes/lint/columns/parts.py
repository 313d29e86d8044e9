"""Parts of a whole, one in each row: amounts, their shares in percent, and the whole in the last row or in none.

    check(sheet)          findings on an amount or a share that the others deny

    | part       |   ms  | share  |
    | forward    |   540 | 28.4 % |
    | backward   | 1,080 | 56.8 % |
    | all-reduce |   210 | 11.1 % |
    | optimizer  |    70 |  3.7 % |

Amounts over their shares are the whole in every row but one; which of its two cells is wrong is told by what adds up: the
amounts to the whole, or the shares to a hundred.
"""
from __future__ import annotations

import functools
import math
import re
import statistics
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import EXTRA, is_extra
from seatrial.notes.lint.phases.totals import is_added, is_total_row, last_row
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean, normal
from seatrial.tables.tongues import in_english

FEWEST, MOST_ROWS, MOST_COLUMNS = 3, 24, 8
CLOSE, OFF = 0.004, 0.06
ADDED = 0.012
"""Within which amounts add up to the whole, and shares to a hundred."""
CLEAR = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost")
_SHARE = re.compile(r"%|\b(?:share|percent(?:age)?|fraction|anteil|prozent|part du|pourcentage|quota|porcentaje|percentuale|"
                    r"aandeel|udział|доля)\b|割合|比率|占比|비율", re.IGNORECASE)  # fmt: skip
_OF_A_STEP = re.compile(r"\b(?:forward|backward|fwd|bwd|optimi[sz]er|compute|comms?|communication|bubbles?|all ?reduce|data|"
                        r"loader|loading|gather|scatter|idle|attention|mlp|weights|gradients|activations|adam|p2p|"
                        r"kommunikation|rechnen|calcul|communications?|calculo|comunicacion)\b")  # fmt: skip
_STEP = re.compile(r"(?:whole |total |full |one )?(?:step|iteration|schritt|pas|paso|etape|iter)(?: time| total)?")
_OF_ELSE = re.compile(r"\b(?:peak|mfu|hfu|util\w*|occupancy|busy|roofline|efficiency|hit|overlap\w*|hidden|"
                      r"faster|slower|gain|saved)\b")
_RATE = re.compile(r"\b(?:per (?:s|sec|second|hour|gpu)|rate|mfu|tflops|speed ?up|gain|efficiency|price)\b")
Column = dict[Row, tuple[float, float]]


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        if FEWEST <= len(mates) <= MOST_ROWS and mates[0].tabular:
            found += _told(mates)
    return found


def _told(mates: list[Row]) -> Iterator[Finding]:
    first, *headings = list(mates[0].record.printed)[: MOST_COLUMNS + 1] or [""]
    rows = [*mates, *last_row(mates)]
    ends = [row for row in rows if is_total_row(row) or _STEP.fullmatch(_words(row.cells.get(first, "")))]
    if len(ends) > 1 or ends and ends[0] is not rows[-1]:
        return
    members, last = (rows[:-1], rows[-1]) if ends else (rows, None)
    if len(members) < FEWEST or any(digits.alone(row.cells.get(first, "")) for row in members):
        return
    columns = {heading: column for heading in headings if len(column := _column(members, heading)) == len(members)}
    shares = [heading for heading in columns if _is_share(members, heading)]
    amounts = [heading for heading in columns if heading not in shares and not _RATE.search(_words(heading))]
    both = ((amount, share) for share in shares for amount in amounts)
    odd = (_odd(members, last, columns[amount], columns[share], amount, share) for amount, share in both)
    found = next((one for one in odd if one is not None), None)
    yield from [found] if found is not None else ()
    if 2 * sum(_OF_A_STEP.search(_words(row.cells.get(first, ""))) is not None for row in members) > len(members):
        left = [heading for heading in amounts if last is not None and not (is_total_row(last) and is_added(heading))]
        if found is None and last is not None:
            yield from _step(members, last, {heading: columns[heading] for heading in left})
        for row in members if len(columns) == len(headings) else ():
            row.settled = True  # it is no run


@functools.lru_cache(maxsize=4096)
def _words(text: str) -> str:
    return normal(in_english(clean(text), surely=True))


def _is_share(rows: list[Row], heading: str) -> bool:
    said = _SHARE.search(heading) is not None or all("%" in row.cells[heading] for row in rows)
    said = said and not _OF_ELSE.search(_words(heading))
    return said and all(0 <= float(digits.plain(row.cells[heading])) <= 100 for row in rows)


def _column(rows: list[Row], heading: str) -> Column:
    """Figures with half a step of their last digit."""
    column: Column = {}
    for row in rows:
        shown = digits.plain(cell := row.cells.get(heading, ""))
        if shown and digits.alone(cell) is not None and float(shown) >= 0:
            column[row] = float(shown), 0.5 * 10.0 ** -digits.places(cell)
    return column


def _odd(rows: list[Row], last: Row | None, amounts: Column, shares: Column, amount: str, share: str) -> Finding | None:
    wholes = {row: (100 * amounts[row][0] / shares[row][0], amounts[row][1] / amounts[row][0] + shares[row][1] / shares[row][0])
              for row in rows if amounts[row][0] and shares[row][0]}  # fmt: skip
    if len(wholes) < FEWEST:
        return None
    fine = sorted(wholes.values(), key=lambda one: one[1])[: max(3, (len(wholes) + 1) // 2)]
    whole = statistics.median(value for value, _ in fine)
    offs = {row: abs(math.log(value / whole)) - may for row, (value, may) in wholes.items()}
    odd = [row for row in offs if offs[row] > OFF]
    kept = [row for row in offs if offs[row] <= CLOSE]
    if len(odd) != 1 or len(kept) < max(2, len(offs) - 1) or odd[0].settled or odd[0].reasons:
        return None
    row = odd[0]
    rest = math.fsum(amounts[mate][0] for mate in rows if mate is not row)
    of_rest = math.fsum(shares[mate][0] for mate in rows if mate is not row)
    total = digits.alone(last.cells.get(amount, "")) if last is not None else None
    known = total if total and abs(total / whole - 1) < ADDED else None
    # The shares add up, or the amounts do, as they stand.
    fine_share = abs((of_rest + shares[row][0]) / 100 - 1) < ADDED
    fine_amount = abs((rest + amounts[row][0]) / (known or whole) - 1) < ADDED
    if fine_share == fine_amount:
        return None
    heading, column = (amount, amounts) if fine_share else (share, shares)
    meant = (known - rest if known else shares[row][0] * whole / 100) if fine_share else 100 * amounts[row][0] / whole
    if not 0 < meant < 1e15:
        return None
    cell, shown = row.cells[heading], column[row]
    may = max(shown[1], meant * (wholes[row][1] + CLOSE))
    typed = next((one for one in digits.slips(digits.plain(cell), (meant - may, meant + may)) if one.how in CLEAR), None)
    value = typed.text if typed is not None else f"{meant:.{digits.places(cell)}f}"
    proposed = digits.as_there(cell, None, value) or value
    why = f" ({typed.how})" if typed is not None else ""
    other = "the shares add up to a hundred" if fine_share else f"the amounts add up to {known or whole:.5g}"
    message = f"{heading} {cell} -> {proposed}{why}: {amount} over {share} is {whole:.5g} in the other rows, and {other}"
    _mended(row, heading, float(value))
    return row.find("aggregate", "error", message, column=heading, printed=cell, proposed=proposed)


def _step(rows: list[Row], last: Row, columns: dict[str, Column]) -> Iterator[Finding]:
    """The parts of a step one below the other, and the step in the last row: one column adds up, and another does not."""
    short: dict[str, tuple[float, float]] = {}
    for heading, column in columns.items():
        cell = last.cells.get(heading, "")
        if (total := digits.alone(cell)) and (shown := digits.plain(cell)):
            open_ = 0.5 * 10.0 ** -digits.places(cell) + sum(half for _, half in column.values())
            short[heading] = float(shown) - math.fsum(value for value, _ in column.values()), open_ + 0.004 * total
    wrong = [heading for heading, (off, may) in short.items() if abs(off) > may]
    if len(wrong) != 1 or last.settled or len(short) < 2 and len(rows) < FEWEST:
        return
    heading, (off, open_) = wrong[0], short[wrong[0]]
    column, cell = columns[heading], last.cells[heading]
    told: dict[Row, digits.Slip] = {}
    for row in (*rows, last):
        needed = float(digits.plain(row.cells[heading])) + (off if row is not last else -off)
        typed = digits.slips(digits.plain(row.cells[heading]), (needed - open_, needed + open_)) if needed > open_ else []
        if typed and typed[0].how in CLEAR:
            told[row] = typed[0]
    if len(told) != 1 and abs(off) < OFF * float(digits.plain(cell)):
        return
    row = next(iter(told)) if len(told) == 1 else last
    meant = math.fsum(value for value, _ in column.values())
    value = told[row].text if row in told else f"{meant:.{digits.places(cell)}f}"
    proposed, printed = digits.as_there(row.cells[heading], None, value) or value, row.cells[heading]
    why = f" ({told[row].how})" if row in told else ""
    message = f"{heading} {printed} -> {proposed}{why}: the parts of the step add up to {meant:.6g}, the step is {cell}"
    _mended(row, heading, float(value))
    yield row.find("aggregate", "error", message, column=heading, printed=printed, proposed=proposed)


def _mended(row: Row, heading: str, value: float) -> None:
    """What follows from the cell, as a total below it, follows from what it should be."""
    row.settled = True
    if is_extra(heading):
        row.propose(EXTRA + heading, value, "aggregate")
