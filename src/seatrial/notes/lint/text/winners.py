"""Which row a sentence says is the fastest, the slowest, the cheapest or the fullest of all.

    check(sheet)          findings on rows that are not, as their own table has it

    #7 wins with 438.2 TFLOP/s/GPU.                  the figure is that of #3, the most of the column
    Fastest is run 3.                                run 5 is faster in every column
    The cheapest is 16 x L40S: $626.                 the bill of 8 x H100

Of a label and the figure beside it the one is wrong: the figure, where the label is that of the first row; else the label. A
label alone is held against the rows of the same model on as many devices, in all columns that tell who is first.
"""
from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seatrial.notes.either import either
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import field_of
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import scope_of
from seatrial.notes.lint.text.columns_of import Column, Columns
from seatrial.notes.lint.text.figures import Figure, figures
from seatrial.notes.lint.text.mentions import Mention, mentions
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.lint.text.sides import apart
from seatrial.tables.headings import clean

MOST_LINES, MOST_ROWS, FEWEST, OFF, EXACT, NEAR, FINE = 4000, 40, 3, 0.03, 0.005, 0.002, 3
"""By which share the first is ahead at least; within which a figure is that of a row, and of how many digits at least."""
_FAST = (r"fastest|quickest|schnellste\w*|plus rapide|mas rapid[oa]|piu veloce|mais rapid[oa]|snelste|najszybsz\w*|"
         r"быстрее всех|самый быстрый|snabbast\w*|hurtigst\w*|nejrychlejsi|en hizli")
_BEST = (r"best|winn(?:er|ing)|wins|won|beste[rnms]?|gewinnt|siegt|meilleure?|gagne|mejor|gana|migliore|vince|melhor|vence|"
         r"wint|najlepsz\w*|лучш\w+|bast|bedst")
_SLOW = (r"slowest|worst|langsamste\w*|schlechteste\w*|plus lente?|pire|mas lent[oa]|peor|piu lent[oa]|peggiore|mais lent[oa]|"
         r"pior|traagste|slechtste|najwolniejsz\w*|самый медленный|медленнее всех|langsammast\w*|langsomst\w*|nejpomalejsi")
_CHEAP = (r"cheapest|least expensive|billigste\w*|gunstigste\w*|moins cher\w*|mas barat[oa]|mas economic[oa]|piu economic[oa]|"
          r"mais barat[oa]|goedkoopste|najtansz\w*|самый дешев\w+|дешевле всего|billigast\w*|nejlevnejsi")
_DEAR = (r"dearest|priciest|most expensive|teuerste\w*|plus cher\w*|mas car[oa]|piu car[oa]|piu costos[oa]|mais car[oa]|"
         r"duurste|najdrozsz\w*|самый дорог\w+|дороже всего|dyrast\w*|dyrest\w*|nejdrazsi")
_FULL = (r"fullest|most memory|tightest|meiste[nr]? Speicher|plus de memoire|mas memoria|piu memoria|mais memoria|"
         r"meeste geheugen")
_LEAN = r"leanest|least memory|wenigsten? Speicher|moins de memoire|menos memoria|meno memoria|minste geheugen"
_LONG = r"longest|langste[rn]?|plus longue?|mas larg[oa]|piu lung[oa]|mais long[oa]|najdluzsz\w*|самый долгий"
_SHORT = r"shortest|kurzeste[rn]?|plus courte?|mas cort[oa]|piu cort[oa]|mais curt[oa]|kortste|najkrotsz\w*"
_HIGH = (r"highest|most|largest|maximum|top|peaks?|hochste\w*|meiste\w*|plus (?:haute?|eleve\w*)|mas alt[oa]|mayor|piu alt[oa]|"
         r"maggiore|mais alt[oa]|maior|hoogste|najwyzsz\w*|высш\w+|максим\w*|hogst\w*|hojest\w*|nejvyssi")
_LOW = (r"lowest|least|smallest|minimum|niedrigste\w*|wenigste\w*|plus (?:basse?|faible)|mas baj[oa]|menor|piu bass[oa]|minore|"
        r"mais baix[oa]|laagste|najnizsz\w*|минимал\w*|lagst\w*|lavest\w*|nejnizsi")
_WAYS: tuple[tuple[str, bool, str, str], ...] = (
    ("speed", True, _FAST, r"最快|最速|가장 빠른"), ("speed", False, _SLOW, r"最慢|最遅|가장 느린"),
    ("best", True, _BEST, r"最好|最佳|最优"),
    ("money", False, _CHEAP, r"最便宜|最安|가장 저렴"), ("money", True, _DEAR, r"最贵|最高価|가장 비싼"),
    ("memory", True, _FULL, r"显存最高|显存最多"), ("memory", False, _LEAN, r"显存最低|显存最少"),
    ("hours", True, _LONG, r"最长|最長"), ("hours", False, _SHORT, r"最短"),
    ("figure", True, _HIGH, r"最高|最大|최고"), ("figure", False, _LOW, r"最低|最小|최저"),
)  # fmt: skip
_PATTERNS = tuple((kind, most, either(rf"\b(?:{words})\b|{signs}")) for kind, most, words, signs in _WAYS)
_ANY = either("|".join(rf"\b(?:{words})\b|{signs}" for _, _, words, signs in _WAYS))
_STEMS = ("fast", "quick", "best", "win", "won", "slow", "worst", "cheap", "expensiv", "dear", "pric", "memor",
          "speicher", "most", "least", "long", "short", "high", "low", "large", "small", "max", "min", "top",
          "peak", "schnell", "langsam", "schlecht", "billig", "gunstig", "teuer", "meist", "wenig", "hochst",
          "niedrig", "siegt", "kurz", "lang", "plus", "moins", "meilleur", "gagne", "pire", "mas ", "menos",
          "mejor", "gana", "peor", "mayor", "menor", "piu", "meno", "miglior", "vince", "peggio", "maggior",
          "minor", "mais", "melhor", "pior", "maior", "snel", "traag", "goedkoop", "duur", "hoog", "laag",
          "kort", "naj", "быстр", "медлен", "дешев", "дорог", "лучш", "высш", "долг", "snabb", "hurtig", "bast",
          "bedst", "billig", "dyr", "hog", "lag", "nej", "en hizli", "最", "가장", "최", "显存",
          "tight", "full", "lean")  # fmt: skip
"""Without one of which nothing is the first: cheaper than the patterns."""
_COLUMNS = {"speed": ("tokens a second", "device tokens a second", "samples a second", "tflops", "mfu", "step seconds",
                      "hours"),
            "money": ("money", "price of tokens"), "memory": ("memory",), "hours": ("hours",)}  # fmt: skip
_COSTS = frozenset(("step seconds", "hours"))
"""Of these the least is the fastest."""
_RATED = frozenset(("tokens a second", "device tokens a second", "samples a second", "tflops", "mfu", "step seconds", "memory",
                    "hours", "money", "device hours", "energy"))  # fmt: skip
_OF_ELSE = re.compile(r"\b(?:loss|perplexit\w*|accura\w*|score|value|ratio|efficien\w*|trade-?off|compromise|memory|cost|price|"
                      r"per dollar|per watt|energy|balance|quality|kompromiss|effizien\w*|speicher|verlust|rapport|cout|"
                      r"memoire|perte|coste|memoria|compromiso|compromesso|second|third|next|than|zweit\w*|almost|nearly|"
                      r"not|nicht|pas|no|non|unless|if|would|should|before|until|expect\w*|except|practice|effort)\b|"
                      r"性价比|损失|第二|除", re.IGNORECASE)  # fmt: skip
"""The best of something else, or not quite the best."""
_CLAUSES = re.compile(r"[;；，、]\s?|,\s(?!\d)| (?:and|und|et|y|e|en|while|but|aber|mais|pero|ma|maar) |(?<=\)) ")
_NUMBER_OF = re.compile(r"(?:#|\b[^\W\d_\u3040-\u9fff\uac00-\ud7af]{1,12}\.? |第 ?)$")


BESIDE = "the figures beside it"
"""How a finding on a label ends whose figures are right."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = [rows for rows in sheet.tables_of(file) if rows[0].tabular and len(rows) >= FEWEST]
        for sentence in text.sentences if tables and len(text.lines) <= MOST_LINES else ():
            letters = sentence.text.casefold()
            if any([stem in letters for stem in _STEMS]) and _ANY.has(sentence.text):
                scope = scope_of(tables, text.lines, sentence.line)
                rows = [row for row in scope.last if not is_aggregate(row)][:MOST_ROWS] if scope.near else []
                found += _sentence(file, sentence, rows) if len(rows) >= FEWEST else ()
    return found


def _sentence(file: str, sentence: Sentence, rows: list[Row]) -> Iterator[Finding]:
    text = sentence.text
    ends = [0, *(match.end() for match in _CLAUSES.finditer(text)), len(text)]
    some = mentions(text, rows)
    labelled = {one.rows for one in some if len(one.rows) == 1 and _is_label(one, rows)}
    firsts = list(_ANY.finditer(text))
    if len(labelled) == 1 and len(firsts) == 1 and ";" not in text:
        start, end = next((a, b) for a, b in itertools.pairwise(ends) if a <= firsts[0].start() < b or b == len(text))
        if not any(start <= one.start < end for one in some):
            ends = [0, len(text)]  # `the slowest run that fits, by far, is #5`
    for start, end in itertools.pairwise(ends):
        clause = text[start:end]
        said = [(kind, most) for kind, most, pattern in _PATTERNS for _ in pattern.finditer(clause)]
        said = [one for one in said if one[0] != "figure"] or said
        if len({*said}) != 1:
            continue
        kind, most = said[0]
        if any(_HELD_AGAINST.search(text[: start + match.start()]) for _, _, pattern in _PATTERNS
               for match in pattern.finditer(clause)):  # fmt: skip
            continue  # `1.9 times as much as the cheapest`
        here = [one for one in some if start <= one.start < end]
        if any(_HELD_AGAINST.search(text[: one.start]) for one in here):
            continue  # `better than D`
        labels = [one for one in here if len(one.rows) == 1 and _is_label(one, rows)] or [
            whole for one in here if len((whole := replace(one, rows=_narrowed(one, here))).rows) == 1
            and _is_label(whole, rows) and one.heading == next(iter(rows[0].record.printed))]
        if len({one.rows for one in labels}) != 1:
            continue
        others = [one for one in here if len(one.rows) > 1 and one.start != labels[0].start]
        its = _Label(file, sentence, rows, labels[0], others)
        told = [one for one in figures(text) if one.kind in _RATED and not one.bound and not one.about
                and start <= one.start < end]
        if told:
            yield from its.by_figures(told, kind, most)
        elif kind in _COLUMNS and not _OF_ELSE.search(clause):
            yield from its.alone(kind, most)


_HELD_AGAINST = either(r"\b(?:as|than|below|above|under|over|against|vs\.?|versus|als|wie|que|gegen(?:uber)?|contre|di|dan|"
                       r"niz|чем) (?:the |der |die |das |dem |le |la |el |il |lo |de |het )?$")  # fmt: skip


def _narrowed(one: Mention, some: Sequence[Mention]) -> frozenset[int]:
    """Its rows that have what else is named: of two v5e-256 the one of the 7B."""
    left = one.rows
    for other in some:
        if other.heading != one.heading:
            left = left & other.rows or left
    return left


def _is_label(one: Mention, rows: Sequence[Row]) -> bool:
    """Whether it is the number of a row, or the name that it has in its first cell or in one of words."""
    if one.heading == "#":
        return True
    row = rows[next(iter(one.rows))]
    cell = clean(row.cells.get(one.heading, "")).strip()
    return one.heading in (next(iter(row.record.printed), ""), "") or one.heading in row.worded and (
        2 * len(one.value) > len(cell) and field_of(one.heading) not in ("size_label", "seq"))  # fmt: skip


@dataclass(frozen=True)
class _Label:
    """A row as a sentence names it, and what else the clause says of it."""

    file: str
    sentence: Sentence
    rows: list[Row]
    label: Mention
    others: list[Mention]

    @property
    def row(self) -> Row:
        return self.rows[next(iter(self.label.rows))]

    def by_figures(self, told: list[Figure], kind: str, most: bool) -> Iterator[Finding]:
        """The one row that has the figures beside the label."""
        columns = Columns(tuple(self.rows))
        having: list[tuple[Figure, Column, set[Row]]] = []
        for one in told:
            for column in columns.of(one.kind):
                its = {row for row, value in column.values.items() if one.near(value, NEAR)}
                if its and self.row in column.values:
                    having.append((one, column, its))
                    break
        if not having or any(self.row in its for _, _, its in having):
            return
        rows = set.intersection(*(its for _, _, its in having))
        if len(rows) != 1 or max(one.fine for one, _, _ in having) < FINE and len(having) < 2:
            return
        (other,) = rows
        one, column, _ = having[0]
        first = self._first(column, kind, most)
        if first is self.row and len(having) == 1:
            right = one.like(column.values[self.row])
            message = f"{one.text} -> {right}: {self.row.where} is the first, and {one.text} is that of {other.where}"
            yield self._finding(message, column.heading, one.text, right, one.start)
        else:
            yield from self._instead(other, f"of {other.where} are {BESIDE}")

    def alone(self, kind: str, most: bool) -> Iterator[Finding]:
        """Held against the rows that can be compared: none of its columns may have it first."""
        group = self._comparable(kind)
        columns = [column for name in _COLUMNS[kind] for column in Columns(tuple(self.rows)).of(name)
                   if column.kind == name and column.printed and self.row in column.values]  # fmt: skip
        firsts: set[Row] = set()
        for column in columns:
            values = {row: column.values[row] for row in group if row in column.values}
            high = most != (kind == "speed" and column.kind in _COSTS)
            end = (max if high else min)(values.values())
            own = values[self.row]
            if abs(end / own - 1) < (OFF if kind == "speed" else EXACT) or len(values) < 2:
                return
            firsts |= {row for row, value in values.items() if value == end}
        if len(firsts) == 1 and (len(columns) > 1 or kind != "speed"):
            (first,) = firsts
            yield from self._instead(first, f"{first.where} is in every column")

    def _comparable(self, kind: str) -> list[Row]:
        said = frozenset.intersection(*(one.rows for one in self.others)) if self.others else frozenset(range(len(self.rows)))
        named = [row for at, row in enumerate(self.rows) if at in said or row is self.row]
        if kind != "speed":
            return named
        return [row for row in named if row.world == self.row.world and row.record.gbs == self.row.record.gbs and not any(
            field_of(heading) in ("size_label", "machine", "seq") for heading in apart(row, self.row))]  # fmt: skip

    def _first(self, column: Column, kind: str, most: bool) -> Row | None:
        if column.kind not in _COLUMNS.get(kind, (column.kind,)):
            return None
        high = most != (kind in ("speed", "best") and column.kind in _COSTS)
        return (max if high else min)(column.values, key=lambda row: column.values[row])

    def _instead(self, other: Row, why: str) -> Iterator[Finding]:
        one, text = self.label, self.sentence.text
        if one.heading == "#":
            first = next(iter(other.cells.values()), "").strip("#* ")
            number = first if first.isdecimal() else str(1 + self.rows.index(other))
            before = _NUMBER_OF.search(text[: one.start])
            head = before[0] if before is not None else ""
            printed, right = head + text[one.start : one.end], head + number
        else:
            printed, right = (clean(row.cells.get(one.heading, "")).strip() for row in (self.row, other))
        if printed == right or not right:
            return
        heading = one.heading if one.heading != "#" else None
        yield self._finding(f"{printed} -> {right}: {why}", heading, printed, right, one.start)

    def _finding(self, message: str, heading: str | None, printed: str, right: str, place: int) -> Finding:
        return Finding(file=self.file, line=self.sentence.line_at(place), code="aggregate", level="error", message=message,
                       column=heading, printed=printed, proposed=right)  # fmt: skip
