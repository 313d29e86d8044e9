"""Totals and means of a table's last row; those of sentences are in `summed`.

    check(sheet)          findings on those that the rows do not give

    | sum |  |  | 20.651 | 165.2 |

A total agrees with the rows as they are printed, or as other findings mend them.
"""
from __future__ import annotations

import csv
import functools
import itertools
import math
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import EXTRA, is_extra
from seatrial.notes.lint.phases.quantities import meanings
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import NUMBER, clean, normal
from seatrial.tables.worded import heading_in_english

FEWEST, MOST_ROWS = 2, 500
_TOTAL = re.compile(r"(?:(?:grand|sub)[ -]?)?(?:total|sum|totals|all|overall)|Σ|∑|"
                    r"(?:zwischen|teil|gesamt)?summe|gesamt|insgesamt|somme|sous[ -]total|total g[eé]n[eé]ral|"
                    r"(?:sub)?tota(?:le|al)|sub[ -]?tota(?:le|al)|soma|suma|razem|[lł][aą]cznie|celkem|"
                    r"somma|toplam|summa|samlet|сумма|(?:suma )?cz[eę][sś]ciowa|suma parcial|подытог|"
                    r"итого|всего|小?計|合計|总计|合计|總計|합계|계|(?:total|sum) .{0,20}", re.IGNORECASE)  # fmt: skip
_OF_A_PART = re.compile(r"(?:sub|sous|zwischen|teil|小|под|cz|suma (?:parcial|cz)).*", re.IGNORECASE)
_MEAN = re.compile(r"mean|average|avg\.?|Ø|⌀|mittel(?:wert)?|schnitt|moyenne|media|promedio|średnia|среднее|平均",
                   re.IGNORECASE)  # fmt: skip
_ADDED = re.compile(r"\b(?:hours?|days?|weeks?|h|costs?|price|usd|eur|dollars?|euros?|tokens|steps|iterations|iters|updates|"
                    r"kwh|mwh|energy|samples|charge)\b|[$€£]", re.IGNORECASE)  # fmt: skip
_ADDED_KINDS = frozenset(("money", "carbon", "energy", "energy of the site", "device hours", "node hours"))
_A_RATE = re.compile(r"\bper\b|\ba second\b|rate\b|\bbatch|\bseq|tflops|mfu", re.IGNORECASE)
_BYTES = re.compile(r"\b[kmgtp]i?b\b|\bmemory\b|\bbytes\b")
GAPS = 3
"""Cells that a total leaves empty which does not begin with its name: the settings. A subtotal leaves one at least."""
MOST_OF_PARTS = 3
"""Columns of a table of parts: what they are, how much, and which share."""
MOVED, FAR = ("the point moved", "two digits exchanged"), 5.0
"""Slips that change a figure by far, and how many times what the digits leave open they have to."""
ROUNDED = 1.45
"""What the digits of several figures leave open together, in those of one times the root of how many there are."""
OFF, CLOSELY, EXACTLY = 0.02, 0.01, 0.0005
"""From which share on a total is off, and how closely one row's figure has to make up for what it is off by, and where it is
half or twice that."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for (_, table), mates in sheet.tables.items():
        if table is not None and len(mates) >= FEWEST:
            found += _rows([*mates[:MOST_ROWS], *last_row(mates)])
    return found


# ---- rows


def _kind(row: Row) -> tuple[bool, bool]:
    """Whether a row is a total, and whether it is a mean."""
    if row.added is None:
        row.added = _added(row)
    return row.added


def _added(row: Row) -> tuple[bool, bool]:
    first, second = [*map(_named, itertools.islice(row.record.printed.values(), 2)), None, None][:2]
    if first == second == (False, False):
        return False, False  # as nearly all are
    cells = [cell for cell in row.record.printed.values() if cell and not cell.isspace()]
    if _is_nameless(row, cells):
        return True, False
    first, second = [*map(_named, cells[:2]), None, None][:2]
    gaps = 1 if second and second[0] and _OF_A_PART.fullmatch(clean(cells[1]).strip(" :*_")) else GAPS
    if first is not None and any(first) or second is None or len(cells) + gaps > len(row.record.printed):
        return first or second or (False, False)
    return second  # `2025-06 | subtotal |  |  |  | 57600`: the first says of what


def _is_nameless(row: Row, cells: list[str]) -> bool:
    """A last row without a word whose figures, all but one at most, are the sums of those above them."""
    first = next(iter(row.record.printed.values()), "")
    if first.strip() or row.worded or not FEWEST <= row.place == len(row.mates) - 1 < MOST_ROWS or len(cells) < FEWEST:
        return False
    sums = 0
    for heading, cell in row.record.printed.items():
        figures = [digits.alone(mate.record.printed.get(heading, "")) for mate in row.mates] if cell.strip() else [None]
        above, last = math.fsum(one for one in figures[:-1] if one is not None), figures[-1]
        sums += None not in figures and last is not None and abs(last - above) <= _half(cell) + 0.002 * above
    return sums >= max(FEWEST, len(cells) - 1)


def is_aggregate(row: Row) -> bool:
    if row.aggregate is None:
        row.aggregate = any(_kind(row)) or row.place > 1 and _is_part_of_all(next(iter(row.record.printed.values()), ""))
    return row.aggregate


@functools.lru_cache(maxsize=16384)
def _is_part_of_all(cell: str) -> bool:
    """`reserve 10 %`, `MwSt. 19 %`: of what stands above, and no item of its own."""
    return "%" in cell and _PART_OF_ALL.search(cell) is not None


_PART_OF_ALL = re.compile(r"reserv|r[eé]serve|contingenc|buffer|puffer|margin|marge|margen|imprevist|impr[eé]vus|overhead|"
                          r"\b(?:vat|tax|mwst|ust|tva|iva|btw|moms|discount|rabatt|remise|sconto)\b|запас|резерв|НДС|予備|消費税|预留|예비",
                          re.IGNORECASE)  # fmt: skip


def is_added(heading: str) -> bool:
    """Whether a column is of what is added up: hours, money, tokens, memory."""
    words = _words(heading)
    return _is_told(words, heading) or _BYTES.search(words) is not None


def _is_told(words: str, heading: str) -> bool:
    return _ADDED.search(words) is not None or any(kind in _ADDED_KINDS for kind, _ in meanings(heading)[:1])


def _words(heading: str) -> str:
    return f"{normal(heading_in_english(clean(heading), surely=True))} {heading}"


def is_total_row(row: Row) -> bool:
    return _kind(row)[0]


@functools.lru_cache(maxsize=16384)
def _named(cell: str) -> tuple[bool, bool] | None:
    """Which of them a cell says that its row is; None where it says nothing at all."""
    words = clean(cell).strip(" :*_")
    return (_TOTAL.fullmatch(words) is not None, _MEAN.fullmatch(words) is not None) if words else None


def is_named(cell: str) -> bool:
    """Whether a cell is the name of a total or a mean."""
    return any(_named(cell) or ())


def _rows(mates: list[Row]) -> Iterator[Finding]:
    members: list[Row] = []
    parts: list[Row] = []
    for row in mates:
        total, mean = _kind(row)
        if not total and not mean:
            members.append(row)
            continue
        if total and (chosen := _chosen(row, [mate for mate in mates[: mates.index(row)] if not any(_kind(mate))])) is not None:
            yield from _one_row(row, chosen, _sums, added=True) if len(chosen) >= FEWEST else ()
            continue
        of_parts = total and not members and len(parts) >= FEWEST  # the whole below its subtotals
        if len(members) >= FEWEST or of_parts:
            for finding in _one_row(row, parts if of_parts else members, _sums if total else _means, added=total):
                _propose(row, finding)
                yield finding
        parts = [] if of_parts else [*parts, row] if total else parts
        members = members if mean else []


def _chosen(row: Row, above: list[Row]) -> list[Row] | None:
    """The rows that a total names as its own, `sum of P-05..P-08`, or all but those that it leaves out; None where it names
    none."""
    said = "\n".join(row.worded.values())
    names: dict[str, int] = {}
    for at, mate in enumerate(above):
        name = clean(next(iter(mate.record.printed.values()), "")).strip()
        if 1 < len(name) <= LONGEST_NAME and name in said and any(map(str.isalpha, name)):
            names[name] = at
    if not names:
        return None
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?!\w)")
    left_out = _WITHOUT.search(said)
    its: dict[bool, set[int]] = {True: set(), False: set()}
    last: re.Match[str] | None = None
    for match in pattern.finditer(said):
        kept, at = left_out is None or match.start() < left_out.start(), names[match[1]]
        first = names[last[1]] if last is not None and _UP_TO.fullmatch(said[last.end() : match.start()]) else at
        its[kept] |= {*range(first, at + 1)}
        last = match
    chosen = its[True] or {*range(len(above))}
    return [above[at] for at in sorted(chosen - its[False])] if its[True] or its[False] else None


LONGEST_NAME = 24
_UP_TO = re.compile(r"\s?(?:\.\.\.?|…|-|–|—|〜|～|→|to|through|bis|à|a|al|hasta|até|до)\s?", re.IGNORECASE)
_WITHOUT = re.compile(r"\b(?:without|w/o|except|excluding|excl|not counting|minus|ohne|sans|hors|sin|sem|senza|zonder|bez|"
                      r"utan|без)\b|除く|除外|不含|제외", re.IGNORECASE)  # fmt: skip


def _propose(row: Row, finding: Finding) -> None:
    """What a subtotal should be, for the total of them."""
    name = EXTRA + (finding.column or "")
    if finding.line == row.record.source_line and finding.proposed and (value := digits.alone(finding.proposed)):
        row.propose(name, value, "aggregate")


def last_row(mates: list[Row]) -> Iterator[Row]:
    """A total below the rows that says nothing else, which makes it no run."""
    last = mates[-1]
    lines, number = last.sheet.text(last).lines, last.record.source_line or 0
    line = lines[number].strip() if len(mates) < MOST_ROWS and 0 < number < len(lines) else ""
    cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] if line[:1] == "|" else []
    if cells and last.sheet.text(last).written.comma_at(number):  # as the rows above have their thousands
        cells = [cell.replace(".", "\u202f") if _POINTED.fullmatch(cell) else cell for cell in cells]
    if not cells and _named(re.split(r"[,;\t]", line, maxsplit=1)[0]) == (True, False):
        cells = next((one for part in ",;\t" if len(one := next(csv.reader([line], delimiter=part))) > 1), [])
    if len(cells) == len(last.record.printed):
        yield Row(replace(last.record, printed=dict(zip(last.record.printed, cells)), source_line=number + 1), last.index,
                  last.sheet, place=last.place + 1)  # fmt: skip


_POINTED = re.compile(r"\W*\d{1,3}(?:\.\d{3})+\W*")
_TWO_FIGURES = re.compile(r"\d\s?(?:-|–|—|→|\.\.)\s?\d")


def _one_row(row: Row, members: list[Row], ways: Callable[[list[float]], list[float]], *, added: bool) -> Iterator[Finding]:
    for heading, cell in row.record.printed.items():
        shown, column = digits.plain(cell), [_figures(member, heading) for member in members]
        if not shown or any(one is None for one in column) or not 0 < float(shown) < math.inf:
            continue
        if any(_TWO_FIGURES.search(member.record.printed.get(heading, "")) for member in members):
            continue  # from here to there
        words = _words(heading)
        of_memory = added and len(row.record.printed) <= MOST_OF_PARTS and _BYTES.search(words) is not None
        told = _is_told(words, heading) or of_memory or added and _lasts(cell, members, heading)
        if added and (not told and not is_extra(heading) or _A_RATE.search(words)):
            continue
        letters = {_many(member.record.printed.get(heading, "")) for member in members}
        if _many(cell) not in letters | {""} and letters != {""}:
            continue  # `$2.791M` below `$181.4k`
        given = [ways([one[at] for one in column if one is not None]) for at in (0, 1)]
        rounding = sum(_half(member.record.printed.get(heading, "")) for member in members)
        open_ = _half(cell) + rounding / (1 if added else len(members))
        likely = _half(cell) + min(1.0, ROUNDED / math.sqrt(len(members))) * rounding if added else open_
        if any(abs(float(shown) - meant) <= likely + 0.002 * abs(meant) for each in given for meant in each):
            continue
        meant = given[1][0]
        level: Level = "error"
        if any(abs(float(shown) - each[0]) <= open_ + 0.002 * abs(each[0]) for each in given):
            level = "warning"  # all figures rounded the same way
        if meant > 0 and abs(math.log(float(shown) / meant)) > OFF:
            figures = {member: one[1] for member, one in zip(members, column) if one is not None}
            blamed = member(cell, float(shown) - meant, open_, figures, heading) if added else None
            if not told and added and not _adds_up(row, members, heading):
                continue  # nobody says that it is added up
            # Of memory the last row may be what all others leave.
            if blamed is not None or of_memory or added and not told:
                yield from [blamed] if blamed is not None else ()
                continue
            what = "the rows above add up to" if added else "the mean of the rows above is"
            proposed = _like(cell, meant)
            if added and not _adds_up(row, members, heading) and digits.slip(cell, (meant - open_, meant + open_)) is None:
                level = "warning"  # it may be of more than these rows, or of fewer
            message = f"{heading} {cell.strip()} -> {proposed}: {what} {proposed}"
            yield row.find("aggregate", level, message, column=heading, printed=cell.strip(), proposed=proposed)


def _many(cell: str) -> str:
    """The letter for thousands or millions behind a figure."""
    found = _LETTER.search(cell)
    return found[1] if found is not None else ""


_LETTER = re.compile(r"\d\s?([kKMBGT])(?![^\W_])")
_SO_LONG = re.compile(r"\s*[\d.,]+\s?(?:h|hrs?|hours?|d|days?|min|minutes?|Stunden|heures|horas|ore)\s*")


def _lasts(cell: str, members: list[Row], heading: str) -> bool:
    """Whether all cells of a column are hours, days or minutes, whatever stands above them."""
    return all(_SO_LONG.fullmatch(one) for one in (cell, *(row.record.printed.get(heading, "") for row in members)))


def _adds_up(row: Row, members: list[Row], but: str) -> bool:
    """Whether the row is the sum of those above it in another column."""
    for heading, cell in row.record.printed.items():
        figures = [figure for member in members if (figure := member.figure(heading))] if heading != but else []
        total = digits.alone(cell) if len(figures) == len(members) else None
        if total and abs(total - math.fsum(figures)) <= _half(cell) + 0.002 * total:
            return True
    return False


def member(cell: str, short: float, open_: float, figures: dict[Row, float], heading: str) -> Finding | None:
    """The one row whose figure, mended by a slip of the hand or the devices of a node, gives the total as it is printed, which
    no slip turns into what the rows add up to."""
    total = math.fsum(figures.values())
    typed = digits.slip(cell, (total - open_, total + open_))
    if typed is not None and (typed.how != "one digit changed" or open_ > CLOSELY / 2 * total):
        return None
    found: list[tuple[Row, str, str]] = []
    for row, figure in figures.items():
        if _is_proven(row, heading):
            continue
        needed, own = figure + short, row.record.printed[heading]
        slips = digits.slips(own, (needed - open_, needed + open_)) if FAR * open_ < needed else []
        if not open_ < needed * CLOSELY:  # what is coarse tells a slip by which much is moved
            slips = [slip for slip in slips if slip.how in MOVED and abs(figure / needed - 1) > FAR * open_ / needed]
            found += [(row, slips[0].text, f" ({slips[0].how})")] if slips else []
            continue
        parts = {count for count in (row.procs, row.world, 4, 8) if count and count > 1}  # four or eight in nodes, mostly
        of = any(abs(figure / needed / times - 1) <= CLOSELY for count in parts for times in (count, 1 / count))
        of = of or any(abs(figure / needed / times - 1) <= EXACTLY for times in (2, 0.5))
        how = f" ({slips[0].how})" if slips else " (of more devices or fewer)"
        found += [(row, _like(own, needed), how)] if slips or of else []
    if typed is not None:  # any one digit of the total explains less than two that were exchanged in a row
        found = [one for one in found if one[2].strip(" ()") in MOVED]
    if len(found) != 1:
        return None
    row, proposed, how = found[0]
    own = row.record.printed[heading].strip()
    message = f"{heading} {own} -> {proposed}{how}: with it the rows add up to {cell.strip()} below"
    return row.find("aggregate", "error", message, column=heading, printed=own, proposed=proposed)


def _is_proven(row: Row, heading: str) -> bool:
    """Whether what else stands in the row gives the figure as it is."""
    laws = (law for law in row.sheet.laws.get(row.key, ()) if law.power(heading))
    return EXTRA + heading in row.sure or any(law.keeps(row) and row in law.offs for law in laws)


def _sums(values: list[float]) -> list[float]:
    """And what else a last row may have: of runs at the same time the longest."""
    return [math.fsum(values), max(values)]


def _means(values: list[float]) -> list[float]:
    positive = all(value > 0 for value in values)
    more = [statistics.harmonic_mean(values), statistics.geometric_mean(values)] if positive else []
    return [statistics.fmean(values), statistics.median(values), *more]


def _figures(row: Row, heading: str) -> tuple[float, float] | None:
    """The number of a cell as it is printed, and as findings mend it."""
    shown = digits.plain(row.record.printed.get(heading, ""))
    if not shown or abs(float(shown)) > digits.MOST_WORKED_OUT:
        return None
    name = next((name for name, its in row.columns.items() if its == heading), EXTRA + heading)
    figure, value = row.printed(name) if name in row.fixed else None, row.get(name) if name in row.fixed else None
    return float(shown), figure.shown(value) if figure is not None and value is not None else float(shown)


def _half(cell: str) -> float:
    return 0.5 * 10.0 ** -digits.places(cell) if digits.plain(cell) else 0.0


def _like(cell: str, value: float) -> str:
    """With the sign of money, the thousands and the digits that a cell has."""
    match = NUMBER.search(clean(cell))
    printed = match.group() if match else ""
    text = f"{value:,.{digits.places(cell)}f}"
    text = text if re.search(r",\d{3}", printed) else text.replace(",", "")
    return (cell[: cell.index(printed[0])] if cell[:1] in ("$", "€", "£") else "") + text
