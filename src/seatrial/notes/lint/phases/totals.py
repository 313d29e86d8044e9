"""Totals and means: of a table's last row, and of a sentence below it.

    check(sheet)          findings on those that the rows do not give

    | sum |  |  | 20.651 | 165.2 |
    In total 72,868 GPU hours and $160,310 in 10.4 days.

A total agrees with the rows as they are printed, or as other findings mend them. In a sentence it may be of more than the
table: it is told only where another total of the same sentence agrees, where it says that it is of the rows, or where a slip
of the hand leads from the sum to it.
"""
from __future__ import annotations

import csv
import functools
import math
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import EXTRA, is_extra
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import NUMBER, clean, decimal, normal
from seatrial.tables.tongues import in_english

FEWEST, MOST_ROWS = 2, 500
_TOTAL = re.compile(r"(?:(?:grand|sub)[ -]?)?(?:total|sum|totals|all|overall)|Σ|∑|summe|gesamt|insgesamt|somme|totale|suma|"
                    r"итого|всего|小?計|合計|总计|合计|總計|합계|계|(?:total|sum) .{0,20}", re.IGNORECASE)  # fmt: skip
_MEAN = re.compile(r"mean|average|avg\.?|Ø|⌀|mittel(?:wert)?|schnitt|moyenne|media|promedio|średnia|среднее|平均",
                   re.IGNORECASE)  # fmt: skip
_ADDED = re.compile(r"\b(?:hours?|days?|weeks?|h|costs?|price|usd|eur|dollars?|euros?|tokens|steps|iterations|iters|updates|"
                    r"kwh|mwh|energy|samples|charge)\b|[$€£]", re.IGNORECASE)  # fmt: skip
_A_RATE = re.compile(r"\bper\b|\ba second\b|rate\b|\bbatch|\bseq|tflops|mfu", re.IGNORECASE)
_IN_ALL = re.compile(r"\b(?:in total|totals?|total(?:ling|led)|all in all|sums? (?:up )?to|adds? up to|combined|"
                     r"so far|insgesamt|zusammen|gesamt|au total|en total|in totale|итого|всего|in all|somando|(?:al)?together|"
                     r"overall|tutti insieme|nel complesso|samen|razem|tillsammans|"
                     r"ao todo|no total|sumando|en todo|sommando|en tout|aufsummiert)\b|合計|总计|合计|總計|합계|총합",
                     re.IGNORECASE)  # fmt: skip
_OF_THE_ROWS = re.compile(r"\b(?:sums?|totals?) of (?:the|all|these|those)\b|\b(?:all|the) rows\b|\b(?:rows?|table) above\b|"
                          r"\b(?:of|in) (?:the|this) (?:\w+ )?(?:column|table)\b|\b(?:Summe der|somme des?|suma de|soma da)\b|"
                          r"\b(?:coluna|columna|colonn[ea]|Spalte)\b|столбц",
                          re.IGNORECASE)  # fmt: skip
"""Words by which a sentence says that its total is of the rows, and of nothing else."""
_WORDS = ("total", "together", "overall", "insieme", "complesso", "samen", "razem", "tillsammans", "all in all", "sum",
          "add", "combined", "so far", "gesamt", "zusammen", "итого", "всего", "in all", "soma", "todo", "en tout", "somma",
          "aufsumm", "합계", "총합", "合計", "总计", "合计", "總計")  # fmt: skip
"""Without one of these, in small letters, a text has no such sentence."""
_MADE = r"(?:[AHVBLP]|GH|GB|MI)\d{2,3}X?"
"""Devices by their names, in whose hours people count too."""
_UNIT = (rf"(?:[kMBT]\s)?(?:(?:GPU|node|TPU|chip|card|device|NPU|HPU|{_MADE})[ -]?)?(?:hours?|h|days?|iterations?|iters|"
         r"steps|updates|tokens|kWh|MWh|k?EUR|k?USD|euros?|dollars?)")  # fmt: skip
_SAID = re.compile(rf"([$€£])\s?({NUMBER.pattern})(?P<times>\s?[kMB](?!\w)|\s(?:thousand|million)\b)?|"
                   rf"(?<![\w.,$€£-])({NUMBER.pattern})\s?({_UNIT})\b"
                   r"(?! ?(?:/|per\b|a\b|each\b))", re.IGNORECASE)  # fmt: skip
_LIST_OF_TOTALS = re.compile(
    r"#{1,6}\s*(?:the )?(?:(?:grand )?totals?|in total|sums?|overall|summen?|gesamt|insgesamt|totaux|totales|totali|totais|"
    r"итого|всего|合計|总计|合计|總計|합계)\W*|(?:In total|Totals?|Summe|Gesamt|Итого)\s*:", re.IGNORECASE)  # fmt: skip
"""Above a list of totals."""
_A_TOTAL = re.compile(rf"(?:[-*+]\s+)?([^\d:=|]{{2,40}}?)\s*[:=]\s*[~≈]?(?:[A-Z]{{0,2}}[$€£])?\s?({NUMBER.pattern})\s?"
                      r"([kMBT](?!\w))?[^\d]{0,20}")  # fmt: skip
_OF_TRAINING = re.compile(r"^(?:total|training|wall clock|wall|in training|all) ")
MOST_LISTED = 12
_SPELLED = {"thousand": "k", "million": "M"}
_TIMES = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_BYTES = re.compile(r"\b[kmgtp]i?b\b|\bmemory\b|\bbytes\b")
MOST_OF_PARTS = 3
"""Columns of a table of parts: what they are, how much, and which share."""
MOVED, FAR = ("the point moved", "two digits exchanged"), 5.0
"""Slips that change a figure by far, and how many times what the digits leave open they have to."""
ROUNDED = 1.45
"""What the digits of several figures leave open together, in those of one times the root of how many there are."""
OFF, NEAR, CLOSELY, EXACTLY = 0.02, 0.02, 0.01, 0.0005
"""From which share on a total is off; within which, of a sentence, it agrees with what rows scatter
about; and how closely one row's figure has to make up for what it is off by, and where it is half or twice that."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for (_, table), mates in sheet.tables.items():
        if table is not None and len(mates) >= FEWEST:
            found += _rows([*mates[:MOST_ROWS], *_last(mates)])
    for file, text in sheet.prose.items():
        if text.has(*_WORDS) and any(_IN_ALL.search(line) for line in text.lines):
            found += _sentences(sheet, file)
    return found


# ---- rows


def _kind(row: Row) -> tuple[bool, bool]:
    """Whether a row is a total, and whether it is a mean."""
    for cell in row.record.printed.values():
        if (kind := _named(cell)) is not None:
            return kind
    return False, False


def is_aggregate(row: Row) -> bool:
    return any(_kind(row))


@functools.lru_cache(maxsize=16384)
def _named(cell: str) -> tuple[bool, bool] | None:
    """Which of them a cell says that its row is; None where it says nothing at all."""
    words = clean(cell).strip(" :*_")
    return (_TOTAL.fullmatch(words) is not None, _MEAN.fullmatch(words) is not None) if words else None


def _rows(mates: list[Row]) -> Iterator[Finding]:
    members: list[Row] = []
    for row in mates:
        total, mean = _kind(row)
        if not total and not mean:
            members.append(row)
            continue
        if len(members) >= FEWEST:
            yield from _one_row(row, members, _sums if total else _means, added=total)
        members = members if mean else []


def _last(mates: list[Row]) -> Iterator[Row]:
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
        words = f"{normal(in_english(clean(heading), surely=True))} {heading}"
        of_memory = added and len(row.record.printed) <= MOST_OF_PARTS and _BYTES.search(words) is not None
        told = _ADDED.search(words) is not None or of_memory or added and _lasts(cell, members, heading)
        if added and (not told and not is_extra(heading) or _A_RATE.search(words)):
            continue
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
            blamed = _member(cell, float(shown) - meant, open_, figures, heading) if added else None
            if not told and added and not _adds_up(row, members, heading):
                continue  # nobody says that it is added up
            # Of memory the last row may be what all others leave.
            if blamed is not None or of_memory or added and not told:
                yield from [blamed] if blamed is not None else ()
                continue
            what = "the rows above add up to" if added else "the mean of the rows above is"
            proposed = _like(cell, meant)
            message = f"{heading} {cell.strip()} -> {proposed}: {what} {proposed}"
            yield row.find("aggregate", level, message, column=heading, printed=cell.strip(), proposed=proposed)


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


def _member(cell: str, short: float, open_: float, figures: dict[Row, float], heading: str) -> Finding | None:
    """The one row whose figure, mended by a slip of the hand or the devices of a node, gives the total as it is printed, which
    no slip turns into what the rows add up to."""
    total = math.fsum(figures.values())
    if digits.slip(cell, (total - open_, total + open_)) is not None:
        return None
    found: list[tuple[Row, str, str]] = []
    for row, figure in figures.items():
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
    if len(found) != 1:
        return None
    row, proposed, how = found[0]
    own = row.record.printed[heading].strip()
    message = f"{heading} {own} -> {proposed}{how}: with it the rows add up to {cell.strip()} below"
    return row.find("aggregate", "error", message, column=heading, printed=own, proposed=proposed)


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


# ---- sentences


@dataclass(frozen=True)
class _Said:
    line: int
    text: str
    value: float
    unit: str
    """hours, gpu hours, $ …"""
    sums: tuple[float, ...]
    """As the rows have it: printed, and mended."""

    @property
    def agrees(self) -> bool:
        half = _half(self.text) * self.value / float(digits.plain(self.text) or 1)
        return any(abs(self.value - total) <= half + NEAR * total for total in self.sums)


def _sentences(sheet: Sheet, file: str) -> Iterator[Finding]:
    lines = sheet.prose[file].lines
    tables = [rows for (its, table), rows in sheet.tables.items() if its == file and table is not None]
    for number, line in enumerate(lines, 1):
        if _LIST_OF_TOTALS.fullmatch(line):
            yield from _listed(lines, number, tables, file)
        if len(line) > 2000 or line.lstrip().startswith(("|", "#")) or not _IN_ALL.search(line):
            continue
        rows = _rows_above(tables, number)
        between = lines[(rows[-1].record.source_line or 0) if rows else 0 : number - 1]
        if len(rows) < FEWEST or any(one.startswith("#") for one in between):
            continue
        # A sentence may go on in the next line.
        more = lines[number] if number < len(lines) and not lines[number].lstrip().startswith(("|", "#")) else ""
        rows = _counted(rows, line)
        of_rows = _OF_THE_ROWS.search(line) is not None
        said = [one for sentence, at in _in_all(line, more) for one in _said(sentence, number + at, rows)]
        yield from _told(said, file, of_rows, rows)


_SENTENCES = re.compile(r"(?<=[^\d\s][.!?])\s|(?<=\d\.)\s(?=[A-ZÀ-Ý])|(?<=[。！？])|(?<=\)\.)\s")


def _in_all(line: str, more: str) -> Iterator[tuple[str, int]]:
    """The sentences of a line that tell a total, and what of the last of them stands in the next line."""
    sentences = _SENTENCES.split(line)
    for at, sentence in enumerate(sentences):
        if _IN_ALL.search(sentence):
            yield sentence, 0
            ends = at + 1 == len(sentences) and not line.rstrip().endswith((".", "!", "?", "。"))
            if ends and more and not _IN_ALL.search(more):
                yield _SENTENCES.split(more)[0], 1


def _rows_above(tables: list[list[Row]], number: int) -> list[Row]:
    """Of the last table above a line."""
    above = [rows for rows in tables if (rows[-1].record.source_line or 0) < number]
    rows = max(above, key=lambda rows: rows[-1].record.source_line or 0, default=[])
    return [row for row in rows[:MOST_ROWS] if not is_aggregate(row)]


_LEAVES = re.compile(r"\b(?:not (?:in|part of|counted|included|summed|added)|exclud(?:ing|ed|es)|except|leaving out|left out|"
                     r"nicht (?:in|mit|enthalten)|ausgenommen|außer|ohne|sans|hors|sin|excepto|without|other than)\b",
                     re.IGNORECASE)  # fmt: skip
_QUOTED = re.compile(r"[\"“„«`]([^\"”“»`]{2,40})[\"”“»`]")


def _counted(rows: list[Row], line: str) -> list[Row]:
    """Without the rows that a sentence says are not part of its total: those that it quotes, else those that it names."""
    if not _LEAVES.search(line):
        return rows
    quoted = [words.casefold() for words in _QUOTED.findall(line)]
    left = {row for row in rows if any(words in row.text.casefold() for words in quoted)}
    names = {row: next(iter(row.cells.values()), "").casefold() for row in rows if not left}
    said = line.casefold()
    for row, name in sorted(names.items(), key=lambda one: -len(one[1])):  # a name may be part of a longer one
        if len(name) > 1 and not name.isdecimal() and (match := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said)):
            left.add(row)
            said = said[: match.start()] + said[match.end() :]
    return [row for row in rows if row not in left] if len(rows) - len(left) >= FEWEST else rows


def _listed(lines: tuple[str, ...], number: int, tables: list[list[Row]], file: str) -> Iterator[Finding]:
    """Totals one below the other, under a heading that says so: `- GPU hours: 429,100`."""
    rows = _rows_above(tables, number)
    between = lines[(rows[-1].record.source_line or 0) if rows else 0 : number - 1]
    if len(rows) < FEWEST or any(one.startswith("#") for one in between):
        return
    said: list[_Said] = []
    for at, line in enumerate(lines[number : number + MOST_LISTED], number + 1):
        match = _A_TOTAL.fullmatch(line.strip())
        if line.strip() and match is None and (not said or not line.lstrip().startswith(("-", "*", "+"))):
            break
        label = normal(in_english(clean(match[1]), surely=True)) if match else ""
        if match and (sums := _of_rows(_OF_TRAINING.sub("", label), rows)):
            value = float(decimal(match[2])) * _TIMES.get(match[3] or "", 1.0)
            value = _in_thousands(match[2], value, sums)
            said += [_Said(at, match[2] + (match[3] or ""), value, match[1].strip(), sums)] if value else []
    yield from _told(said, file, False, rows)


def _in_thousands(text: str, value: float, sums: tuple[float, ...]) -> float:
    """A number whose point parts thousands, as what the rows add up to shows."""
    return 1000 * value if re.fullmatch(r"\d{1,3}[.,]\d{3}", text) and value < 1000 and sums[-1] > 100 * value else value


def _said(line: str, number: int, rows: list[Row]) -> Iterator[_Said]:
    for match in _SAID.finditer(line):
        groups = [group for group in match.groups() if group]
        text = next((group for group in groups if group[:1].isdigit()), "")
        unit = next((group for group in groups if group is not text), "")
        if not text:
            continue  # of less than nothing
        scale, _, bare = unit.partition(" ") if unit[:1] in _TIMES and unit[1:2] == " " else ("", "", unit)
        scale = _SPELLED.get(times := (match["times"] or "").strip(), times) or scale
        if bare.casefold() in ("kusd", "keur") and not any(bare.casefold() in one.casefold() for one in rows[0].record.printed):
            continue
        sums = _of_rows(normal(bare) or bare, rows)
        value = float(decimal(text)) * _TIMES.get(scale, 1.0)
        if sums and value:
            yield _Said(number, match.group().strip(), _in_thousands(text, value, sums), bare, sums)


_PLAIN = {"h": "hours", "hour": "hours", "day": "days", "iters": "iterations", "steps": "iterations", "iteration": "iterations",
          "usd": "$", "kusd": "$", "keur": "€", "dollars": "$", "dollar": "$", "eur": "€", "euros": "€",
          "euro": "€"}  # fmt: skip


def _plain(word: str) -> str:
    return _PLAIN.get(word) or ("gpu" if re.fullmatch(_MADE, word, re.IGNORECASE) else word)


def _of_rows(unit: str, rows: list[Row]) -> tuple[float, ...]:
    """The sums of the column that holds such figures, where one alone does; of tokens also what iterations give."""
    words = " ".join(_plain(word) for word in unit.split())
    sums: list[tuple[float, ...]] = []
    for heading in rows[0].record.printed:
        its = normal(in_english(clean(heading), surely=True))
        money = bool(re.search(r"\b(?:cost|price|usd|eur|dollars?|euros?|charge)\b|[$€£]", f"{its} {heading}"))
        its = " ".join(_plain(word) for word in its.split())
        same = money if words in ("$", "€", "£") else re.fullmatch(rf"(?:(?:wall|total|training) )?{words}(?: [bmt])?", its)
        column = [_figures(row, heading) for row in rows] if same and not _A_RATE.search(its) else []
        if column and all(one is not None for one in column):
            times = _TIMES.get(its[-1:].upper(), 1.0) if re.search(r" [bmt]$", its) else _suffix(rows, heading)
            sums.append(tuple(times * math.fsum(one[at] for one in column if one is not None) for at in (0, 1)))
    if not sums and words == "tokens":
        each = [(row.get("tokens_per_s") or 0.0) * (row.get("sec_per_it") or 0.0) * (row.record.iteration or 0) for row in rows]
        sums = [(math.fsum(each),)] if all(each) else []
    if not sums and re.fullmatch(r"(?:gpu|device|card|chip|tpu) hours", words) and all(row.world for row in rows):
        for unit_, hours in (("hours", 1.0), ("days", 24.0)):  # of the devices that each row has
            sums = sums or [of for of in [_of_rows(unit_, rows)] if of and len({row.world for row in rows}) == 1]
            if sums:
                return tuple(hours * (rows[0].world or 0) * one for one in sums[0])
    return sums[0] if len(sums) == 1 else ()


def _suffix(rows: list[Row], heading: str) -> float:
    """What the letter behind the figures of a column stands for, where all have the same: `12.6B`."""
    letters = {match[1] for row in rows if (match := re.search(r"\d\s?([kMBT])\b", row.record.printed.get(heading, "")))}
    return _TIMES[letters.pop()] if len(letters) == 1 else 1.0


def _blamed(one: _Said, rows: list[Row], scale: float) -> Finding | None:
    """The one row whose figure makes up for what a total of a sentence is off by."""
    for heading in rows[0].record.printed:
        column = {row: both[1] for row in rows if (both := _figures(row, heading)) is not None}
        total = math.fsum(column.values())
        if len(column) == len(rows) and total and abs(total * scale / one.sums[-1] - 1) < 1e-9:
            return _member(digits.plain(one.text), one.value / scale - total, _half(one.text), column, heading)
    return None


_LASTS = re.compile(r"(?:hours?|h|days?)", re.IGNORECASE)
"""Of runs at the same time no sum."""


def _told(said: list[_Said], file: str, of_rows: bool, rows: list[Row]) -> Iterator[Finding]:
    proven = of_rows or any(one.agrees for one in said)
    for one in said:
        meant = one.sums[-1]
        if one.agrees or not meant or abs(math.log(one.value / meant)) < 4 * OFF:
            continue
        scale = one.value / float(digits.plain(one.text))
        slip = digits.slip(digits.plain(one.text), (meant / scale * (1 - NEAR / 2), meant / scale * (1 + NEAR / 2)))
        typed = slip is not None and slip.how in ("the point moved", "two digits exchanged", "a digit too many")
        blamed = _blamed(one, rows, scale) if proven and not typed else None
        if blamed is not None:
            yield blamed
        elif typed or proven and not (_LASTS.fullmatch(one.unit) and not of_rows):
            match = NUMBER.search(one.text)
            printed = match.group() if match else one.text
            proposed = slip.text if slip is not None and typed else _like(printed, meant / scale)
            letter = re.match(r" ?([kMBT])\b", one.text[match.end() :]) if match and "," in printed else None
            if letter is not None:  # 21,220B, in which the comma parts thousands
                proposed = _like(printed, float(digits.plain(proposed))) + letter[1]
                printed += letter[1]
            why = f" ({slip.how})" if slip is not None and typed else ""
            message = f"{one.text} -> {proposed}{why}: the rows above add up to {meant / scale:.6g}"
            yield Finding(file=file, line=one.line, code="aggregate", level="error", message=message, column=one.unit,
                          printed=printed, proposed=proposed)  # fmt: skip
