"""Totals that sentences and lists give of the rows above them.

    check(sheet)          findings on those that the rows do not give

    In total 72,868 GPU hours and $160,310 in 10.4 days.
    Insgesamt 19,8 Tage; итого 243 303 GPU-часов; 总计 243,303 卡时.

A total agrees with the rows as they are printed, or as other findings mend them. It may be of more than the table: it is told
only where another total of the same sentence agrees, where it says that it is of the rows, or where a slip of the hand leads
from the sum to it; of one that is nearly it a warning is given.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.phases.totals import is_aggregate, member
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.columns_of import Column, Columns
from seatrial.notes.lint.text.figures import Figure, figures, plain
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.tables.headings import NUMBER, decimal

FEWEST, MOST_ROWS, MOST_LISTED = 2, 500, 12
IN_ALL = re.compile(r"\b(?:in total|totals?|total(?:ling|led)|all in all|sums? (?:up )?to|adds? up to|combined|"
                     r"so far|insgesamt|zusammen|gesamt|au total|en total|in totale|итого|всего|totaux|totales|totali|"
                     r"totais|in all|somando|suman|somam|sommano|summieren sich|totalisent|totalizan|amounts? to|"
                     r"(?:al)?together|"
                     r"overall|sums?|summe|somme|suma|soma|somma|totale|totaal|itogo|(?:the )?(?:whole|entire) "
                     r"(?:training|run|campaign|project|schedule|pre-?training)|tutti insieme|nel complesso|samen|razem|"
                     r"tillsammans|all of (?:it|them|this|that)|the lot|the (?:whole )?bill|everything|le tout|tutto|alles|"
                     r"das ganze|"
                     r"all (?:two|three|four|five|six|seven|eight|\d{1,2})|"
                     r"ao todo|no total|sumando|en todo|sommando|en tout|aufsummiert)\b|合計|总计|合计|總計|합계|총합",
                     re.IGNORECASE)  # fmt: skip
_OF_THE_ROWS = re.compile(r"\b(?:sums?|totals?) of (?:the|all|these|those)\b|\b(?:all|the) rows\b|\b(?:rows?|table) above\b|"
                          r"\b(?:of|in) (?:the|this) (?:\w+ )?(?:column|table)\b|\b(?:Summe der|somme des?|suma de|soma da)\b|"
                          r"\b(?:coluna|columna|colonn[ea]|Spalte)\b|столбц",
                          re.IGNORECASE)  # fmt: skip
"""Words by which a sentence says that its total is of the rows, and of nothing else."""
_WORDS = ("total", "totaux", "together", "overall", "insieme", "complesso", "samen", "razem", "tillsammans", "all in all",
          "sum", "add", "combined", "so far", "gesamt", "zusammen", "итого", "всего", "in all", "soma", "todo", "en tout",
          "somma", "aufsumm", "whole", "entire", "somme", "합계", "총합", "the lot", " bill", "all of", "all t", "all f",
          "everything", "le tout", "tutto", "alles", "ganze", "%", "合計", "总计", "合计", "總計")  # fmt: skip
"""Without one of these, in small letters, a text has no such sentence."""
_LIST_OF_TOTALS = re.compile(
    r"#{1,6}\s*(?:the )?(?:(?:grand )?totals?|in total|sums?|overall|summen?|gesamt|insgesamt|totaux|totales|totali|totais|"
    r"итого|всего|合計|总计|合计|總計|합계)\W*|(?:In total|Totals?|Summe|Gesamt|Итого)\s*:", re.IGNORECASE)  # fmt: skip
"""Above a list of totals."""
_A_TOTAL = re.compile(rf"(?:[-*+]\s+)?(?P<label>[^\d:=|]{{2,40}}?)\s*[:=]\s*[~≈]?(?P<sign>(?:[A-Z]{{0,2}}[$€£])?)\s?"
                      rf"(?P<number>{NUMBER.pattern})\s?(?P<many>(?:[kMBT](?!\w))?)(?P<rest>[^\d]{{0,20}})")  # fmt: skip
_MORE = re.compile(r"\b(?:so far|with|mit|avec|con|com|met|more|plus|other|others|includ\w+|restarts?|failed|"
                   r"besides|another|without|per|each|every|average|mean|"
                   r"budget|quota|limit|planned|left|remaining|of which|inklusive|einschlie\w+|y compris|inclu\w+|compres\w+|"
                   r"mehr als|bisher|booked|asked|applied|granted|allocat\w+|requested|beantragt|"
                   r"bewilligt)\b", re.IGNORECASE)  # fmt: skip
"""It is of something else than the table, or of more than it."""
ADDED = frozenset(("hours", "device hours", "node hours", "money", "energy", "energy of the site", "carbon", "tokens",
                   "samples", "steps"))  # fmt: skip
OFF, NEAR, PLAINLY, FAR = 0.08, 0.02, 2.5, 1100.0
"""From which logarithm on a total is off; within which share it agrees with what rows scatter about; up to which factor one
that nothing proves is doubted; and beyond which it is of something else."""


@dataclass(frozen=True)
class _Said:
    figure: Figure
    line: int
    sums: tuple[float, ...]
    """As the rows have it: printed, and mended."""

    @property
    def agrees(self) -> bool:
        return any(self.figure.near(total, 0.15 if self.figure.about else NEAR) for total in self.sums)


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        if text.has(*_WORDS):
            tables = [rows for rows in sheet.tables_of(file) if rows[0].key not in sheet.thinned]
            for sentence in text.sentences if tables else ():
                if IN_ALL.search(sentence.text):
                    told = [*_sentence(sentence, text.lines, tables, file)]
                    found += [] if any(_with_more(one, text.lines) for one in told) else told
            for number, line in text.said if tables else ():
                if line[:1] in "#ITSGИ" and _LIST_OF_TOTALS.fullmatch(line):
                    found += _listed(text.lines, number, tables, file)
    return found


def _with_more(one: Finding, lines: tuple[str, ...]) -> bool:
    """Whether a total has something besides the rows, as its line tells: `Reserve of 15 %: 63,048 GPU-h. Together 483,370`."""
    printed, rows = (digits.alone(text or "") for text in (one.printed, one.proposed))
    if one.line is None or not printed or not rows or printed <= rows:
        return False
    shown = [float(decimal(match[0])) for match in NUMBER.finditer(lines[one.line - 1])]
    return any(value and abs(value / (printed - rows) - 1) < CLOSELY for value in shown)


def _sentence(sentence: Sentence, lines: tuple[str, ...], tables: list[list[Row]], file: str) -> Iterator[Finding]:
    rows = rows_above(tables, lines, sentence.line)
    if len(rows) < FEWEST:
        return
    rows = _counted(rows, " ".join(lines[sentence.line - 1 : sentence.last]))
    margin = _margin(sentence.text)
    its = [one for one in figures(sentence.text) if not one.bound and one.kind in ADDED]
    said = [_Said(one, sentence.line_at(one.start), _and_more(one, its, sums, margin)) for one in its
            if (sums := _sums(one, rows, sentence.text))]  # fmt: skip
    many = counted(sentence.text)
    if many and len(rows) not in many:
        return  # of some of them: see `groups`
    of_rows = _OF_THE_ROWS.search(sentence.text) is not None or len(rows) in many
    yield from _told(said, file, of_rows, rows, sentence.text, margin is not None)


_MARGIN = re.compile(
    r"\b(?:on top|added|add|reserve|margin|contingenc\w+|buffer|head ?room|overhead|spare|slack|hinzu|zuschlag|aufschlag|"
    r"reserve|"
    r"puffer|marge|alea\w*|imprevus|reserve|margen|imprevist\w*|colchon|margine|imprevisti|margem|folga|toeslag|zapas\w*|"
    r"rezerw\w*|запас\w*|резерв\w*)\b|余量|余裕|预留|予備|여유", re.IGNORECASE)  # fmt: skip
"""More than the rows have, by a share that is said."""


def _margin(text: str) -> Figure | None:
    """The share that is put on top of a sum."""
    its = [one for one in figures(text) if one.kind in ("percent", "efficiency") and 1 <= one.value <= 60]
    return its[0] if len(its) == 1 and _MARGIN.search(text) else None


def _and_more(one: Figure, its: list[Figure], sums: tuple[float, ...], margin: Figure | None) -> tuple[float, ...]:
    """The sums of a figure, with and without what is put on top; the last is what it should be."""
    if margin is None or not sums:
        return sums
    more = tuple((1 + margin.value / 100) * each for each in sums)
    others = [other for other in its if other is not one and other.kind == one.kind]
    least = any(other.near(sums[-1], NEAR) for other in others)
    most = any(other.near(more[-1], NEAR) for other in others)
    last = least or not most and one.start > margin.start
    return (*sums, *more) if last else (*more, *sums)


_COUNTED = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "zwei": 2,
            "drei": 3, "vier": 4, "funf": 5, "sechs": 6, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "dos": 2,
            "tres": 3, "cuatro": 4, "cinco": 5, "due": 2, "tre": 3, "quattro": 4, "cinque": 5,
            "세": 3, "네": 4, "두": 2, "다섯": 5}  # fmt: skip
_ALL_OF = re.compile(rf"\b(?:all|the|alle|die|der|les|los|las|i|le|tutt[ei] e|os|as) "
                     rf"(\d{{1,2}}|{'|'.join(_COUNTED)})\b(?! ?%|[.,]?\d)|"
                     rf"({'|'.join(one for one in _COUNTED if not one.isascii())}) ", re.IGNORECASE)  # fmt: skip


def counted(text: str) -> set[int]:
    """How many rows it speaks of: `all four together`, `the two main runs`."""
    counts = [match[1] or match[2] for match in _ALL_OF.finditer(text)]
    return {int(one) if one.isdecimal() else _COUNTED[one.casefold()] for one in counts}


def rows_above(tables: list[list[Row]], lines: tuple[str, ...], number: int) -> list[Row]:
    """Of the last table above a line, in its section."""
    above = [rows for rows in tables if (rows[-1].record.source_line or 0) < number]
    rows = max(above, key=lambda rows: rows[-1].record.source_line or 0, default=[])
    between = lines[(rows[-1].record.source_line or 0) if rows else 0 : number - 1]
    if any(one.startswith("#") for one in between):
        return []
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
    rows = rows_above(tables, lines, number)
    if len(rows) < FEWEST:
        return
    said: list[_Said] = []
    for at, line in enumerate(lines[number : number + MOST_LISTED], number + 1):
        match = _A_TOTAL.fullmatch(line.strip())
        if line.strip() and match is None and (not said or not line.lstrip().startswith(("-", "*", "+"))):
            break
        if match is not None:  # a unit may stand on either side
            ways = (line, f"{match['sign']}{match['number']}{match['many']} {_OF_TRAINING.sub('', match['label'])}")
            its = [one for way in ways for one in figures(plain(way)) if one.kind in ADDED]
            said += [_Said(its[0], at, sums)] if its and (sums := _sums(its[0], rows)) else []
    yield from _told(said, file, False, rows, "")


_OF_TRAINING = re.compile(r"^(?:total|training|wall clock|wall|in training|all) ", re.IGNORECASE)


def _sums(one: Figure, rows: Sequence[Row], text: str = "") -> tuple[float, ...]:
    """What the rows add up to in the column of such figures; of tokens also what steps give, of hours of devices what hours."""
    columns = _whole(one.kind, rows)
    column = spoken_column(columns, text)
    if column is not None:
        return math.fsum(column.printed.values()), math.fsum(column.values.values())
    if columns:
        return ()
    if one.kind == "tokens":
        each = [(row.get("tokens_per_s") or 0.0) * (row.get("sec_per_it") or 0.0) * (row.record.iteration or 0) for row in rows]
        return (math.fsum(each),) if all(each) else ()
    if one.kind == "device hours" and all(row.world for row in rows):
        hours = _whole("hours", rows)
        if len(hours) == 1:
            return tuple(math.fsum(value * (row.world or 0) for row, value in its.items())
                         for its in (hours[0].printed, hours[0].values))  # fmt: skip
    return ()


def spoken_column(columns: Sequence[Column], text: str) -> Column | None:
    """The only one, or of several the one whose heading a sentence repeats: `MWh for the site`."""
    if len({column.heading for column in columns}) < 2:
        return columns[0] if columns else None
    words = {column.heading: {*_WORDS_OF.findall(plain(column.heading).casefold())} for column in columns}
    spoken = {*_WORDS_OF.findall(text.casefold())}
    named = [column for column in columns if spoken & words[column.heading].difference(
        *(its for heading, its in words.items() if heading != column.heading))]  # fmt: skip
    return named[0] if len(named) == 1 else None


_WORDS_OF = re.compile(r"[^\W\d_]{2,}")


def _whole(kind: str, rows: Sequence[Row]) -> list[Column]:
    """The columns of a kind in which every row has a figure."""
    return [column for column in Columns(tuple(rows)).of(kind) if column.kind == kind and len(column.values) == len(rows)]


def _is_of_one(one: Figure, rows: Sequence[Row]) -> bool:
    """Whether a row has it: of runs at the same time the longest."""
    return any(one.near(value, NEAR) for column in _whole(one.kind, rows) for value in column.values.values())


def _of_named(one: Figure, rows: list[Row], text: str) -> bool:
    """Whether it is the sum of the rows whose names begin with a word of the sentence: `the two 14b-main legs together`."""
    spoken = text.casefold()
    named: dict[str, list[Row]] = {}
    for row in rows:
        for word in {word for cell in [*row.cells.values()][:2] for word in _STEM.findall(cell.casefold())}:
            named.setdefault(word, []).append(row)
    groups = [its for word, its in named.items() if FEWEST <= len(its) < len(rows) and word in spoken]
    return any(one.near(math.fsum(column.values[row] for row in its), NEAR / 4) for its in groups
               for column in _whole(one.kind, rows))  # fmt: skip


_STEM = re.compile(r"[^\W\d_][\w.]{2,}(?:-[^\W\d_]\w+)*|\d\w*-[^\W\d_]{3,}")


def _blamed(one: _Said, rows: list[Row]) -> Finding | None:
    """The one row whose figure makes up for what a total is off by."""
    columns = _whole(one.figure.kind, rows)
    if not columns:
        return None
    column = columns[0]
    cells = {row: digits.alone(row.record.printed.get(column.heading, "")) for row in rows}
    shown = {row: cell for row, cell in cells.items() if cell}
    if len(shown) < len(rows):
        return None
    scale = math.fsum(column.printed.values()) / math.fsum(shown.values())
    figure, half = one.figure, one.figure.half / scale
    short = figure.closest(one.sums[-1]) / scale - math.fsum(shown.values())
    found = member(figure.like(figure.value), short, half, shown, column.heading)
    row = next((row for row in rows if found is not None and row.record.source_line == found.line), None)
    return None if row is not None and _keeps(row, one.figure.kind, rows) else found


def _keeps(row: Row, kind: str, rows: list[Row]) -> bool:
    """Whether its hours are those of so many devices: a total blames none whose own figures agree."""
    hours, its = (next(iter(_whole(name, rows)), None) for name in ("hours", kind))
    if kind != "device hours" or hours is None or its is None or not row.world:
        return False
    return abs(hours.printed[row] * row.world / its.printed[row] - 1) < NEAR


def _of_another_column(figure: Figure, rows: list[Row]) -> bool:
    """Whether a column that is taken for something else adds up to it: `22.19 MWh with PUE`, of `MWh (total)`."""
    told = digits.alone(figure.text.replace(",", ".") if figure.text.count(",") == 1 else figure.text)
    for heading in rows[0].cells if rows and told else ():
        its = [value for row in rows if (value := row.figure(heading))]
        if len(its) > 2 and abs(math.fsum(its) / told - 1) < CLOSELY:  # type: ignore[operator]
            return True
    return False


CLOSELY = 0.002


def _told(said: list[_Said], file: str, of_rows: bool, rows: list[Row], text: str, more: bool = False) -> Iterator[Finding]:
    said = [one for one in said if one.agrees or not text or not _of_named(one.figure, rows, text)]
    proven = of_rows or any(one.agrees for one in said)
    for one in said:
        meant, figure = one.sums[-1], one.figure
        value = figure.closest(meant)
        if one.agrees or not meant or not 1 / FAR < value / meant < FAR or _of_another_column(figure, rows):
            continue
        shown = figure.text.replace(" ", "")
        ends = (meant / figure.scale * (1 - NEAR / 2), meant / figure.scale * (1 + NEAR / 2))
        slip = digits.slip(shown, ends)
        typed = slip is not None and slip.how in ("the point moved", "two digits exchanged", "a digit too many")
        if abs(math.log(value / meant)) < OFF and not (typed and proven and figure.fine > 3):
            continue
        blamed = _blamed(one, rows) if proven and not typed else None
        lasts = figure.kind == "hours"  # of runs at the same time no sum
        if figure.kind == "tokens" and not of_rows and not typed and _is_of_one(figure, rows):
            continue  # `the cheapest way to 8B tokens`
        plainly = bool(text) and not figure.about and (more or not _MORE.search(text))
        sure = typed or proven and not (lasts and not of_rows)
        if blamed is not None:
            yield blamed
        elif sure or plainly and not (lasts and _is_of_one(figure, rows)) and 1 / PLAINLY < value / meant < PLAINLY:
            printed, proposed = figure.text, figure.like(meant)
            heading = next((column.heading for column in _whole(figure.kind, rows)), figure.kind)
            why = f" ({slip.how})" if slip is not None and typed else ""
            level: Level = "error" if sure or slip is not None and figure.fine > 3 else "warning"
            message = f"{printed} -> {proposed}{why}: the rows above add up to {meant / figure.scale:.6g}"
            yield Finding(file=file, line=one.line, code="aggregate", level=level, message=message, column=heading,
                          printed=printed, proposed=proposed)  # fmt: skip
