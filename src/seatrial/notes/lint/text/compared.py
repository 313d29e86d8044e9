"""What a sentence says one row is against another, or has itself: 39 % less, 1.48x, keeps 95 % of, 94 % of efficiency.

    check(sheet)          findings on sentences whose rows give another ratio or share

    LoRA against full: 60% saved ($12.67 for $21.19).               12.67 / 21.19 saves 40 %
    mxfp8 in the layout of row 5 is 1.84x of bf16                   11,921 / 8,042 are 1.48
    fp8 brings 75 % on the second card                              of the row that differs in fp8 alone: 36 %

Nothing is said where any two of the rows that are named (see `claims`) give the ratio in any column, two figures of the text
do, or a cell of theirs. Of the others a slip of the hand tells what was meant, or the one column of the one pair of rows.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import EXTRA, field_of, is_extra
from seatrial.notes.lint.row import CONFIGURATION, Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import (
    CLAUSES,
    FEWEST_DIGITS,
    OTHERS,
    Claim,
    N,
    Named,
    Scope,
    claims,
    each_sentence,
    heading_words,
    may_claim,
    named,
    scope_of,
    stands,
    surely,
    tokens,
)
from seatrial.notes.lint.text.figures import figures, plain
from seatrial.notes.lint.text.sentences import ENDS
from seatrial.tables.headings import NUMBER, clean, decimal, normal
from seatrial.tables.tongues import in_english, plain_letters

MOST_LINES, LONGEST, MOST_CLAIMS = 4000, 1200, 8
GROSS = 0.05
"""By how much a ratio has to be off, as a logarithm, to be another one and no mean of other steps."""
_WORDS = {"money": r"cost|price|pay|cheap|dollar|euro|\busd\b|\beur\b|[$€£]|bill|money|\bspend|saved|savings|dear|barat|billig",
          "time": r"time|step|second|minute|hour|day|slow|long|\bs/|\bms\b|latenc|\bh\b|wait|finish|dauert|duree",
          "memory": r"memor|\bgi?b\b|speicher", "rate": r"tok|throughput|sample|rate|fast|speed|quick|debit|durchsatz|rapid",
          "energy": r"energ|kwh|mwh|\bj\b|joule|power|watt|\bk?w\b", "share": r"mfu|hfu|utili|tflop|efficien"}  # fmt: skip
_KINDS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _WORDS.items()}
_APART = {"memory", "money", "energy"}
"""Of these no column of another kind tells anything."""
MOST_PAIRS, NEAR, POINTS, TINY = 20, 0.012, 0.1, 1e-12
"""Pairs of rows; within which a ratio of two figures of the text, and a percentage, are what is meant."""
CLEAR = ("the point moved", "two digits exchanged", "a digit too many")


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = [rows for rows in sheet.tables_of(file) if rows[0].tabular and len(rows) > 1]
        for number, line in each_sentence(text.said, LONGEST) if tables and len(text.lines) <= MOST_LINES else ():
            if may_claim(line):
                found += _line(file, number, line, text.lines, tables)
    return found


def _line(file: str, number: int, line: str, lines: tuple[str, ...], tables: list[list[Row]]) -> Iterator[Finding]:
    scope = scope_of(tables, lines, number)
    for sentence in ENDS.split(line):
        its = claims(plain_letters(sentence)) if scope.tables else []
        if not its and not _LASTS.search(sentence) or OTHERS.search(in_english(sentence)):
            continue
        some = named(sentence, scope, its)
        near = [(row, by) for row, by in some if scope.near and row in scope.last]
        yield from _lasting(file, number, sentence, near, list(scope.last) if scope.near else [])
        yield from _a_day(file, number, sentence)
        for claim in its[:MOST_CLAIMS]:
            told = _Told(file, number, sentence, claim, its, scope, some, _prices(lines, number))
            yield from told.share() if claim.way == "share" else told.ratio()


@functools.lru_cache(maxsize=512)
def _prices(lines: tuple[str, ...], number: int) -> tuple[float, ...]:
    """Amounts of money that the text of the section gives."""
    top = number - 1
    while top > 0 and not lines[top].startswith("#"):
        top -= 1
    words = " ".join(line for line in lines[top : number - 1] if not line.startswith("|"))
    return tuple(float(decimal(one or other)) for one, other in
                 re.findall(rf"[$€£]\s?({NUMBER.pattern})|({NUMBER.pattern})\s?(?:[$€£]|EUR|USD)", words)[:12])  # fmt: skip


# ---- days

_DAYS = re.compile(rf"{N}\s?(?:days?|jours|dias|tagen?|giorni|dni)\b(?! (?:x|×|a|per|of|de|x 24)\b)", re.IGNORECASE)
_LASTS = re.compile(r"\d\s?(?:days?|jours|d[ií]as|tagen?|giorni|dni)\b|\b(?:day|jour|tag|d[ií]a|giorno)\b", re.IGNORECASE)
_PER = r"(?:/|per|a|par|pro|por|al)"
_MANY = r"([kKMBT]|(?:milli?on|bil?lion|trillion|milliard|miliard|millon)(?:s|en|es|i)?(?: de| di| of)?)"
_RATE = re.compile(rf"{N}\s?{_MANY}?\s?(?:tok(?:en)?s?|jetons)\s?{_PER}\s?"
                   r"s(?:ec(?:onde?)?|ekunde|egundo|econdo)?\b", re.IGNORECASE)  # fmt: skip
_A_DAY = re.compile(rf"{N}\s?{_MANY}\s?(?:tok(?:en)?s?|jetons)? ?{_PER} ?(?:day|jour|tag|dia|giorno)\b", re.IGNORECASE)
_TOKENS = re.compile(rf"{N}\s?([BT])(?![\w-])(?! ?(?:param|model|total|active|(?:tok(?:en)?s? ?)?{_PER} ))")
_STEPS = re.compile(rf"{N}\s(?:steps|iterations|updates|pas|pasos|schritte)\b", re.IGNORECASE)
_THOUSANDS = {"k": 1e3, "m": 1e6, "mil": 1e6, "b": 1e9, "bil": 1e9, "t": 1e12, "tri": 1e12}


def _times(letters: str) -> float:
    """What a letter or a word of many stands for; a milliard is a thousand millions."""
    word = letters.casefold()
    return 1e9 if word.startswith(("milliard", "miliard")) else _THOUSANDS.get(word[:3], 1.0)


def _a_day(file: str, number: int, sentence: str) -> Iterator[Finding]:
    """Tokens of a day that are not those of a second, where both stand in one sentence."""
    rates = [one for one in figures(plain(sentence)) if one.kind == "tokens a second" and not one.bound]
    days = [one for one in rates if abs(math.log10(86400 * one.scale) - round(math.log10(86400 * one.scale))) < TINY**0.5]
    if len(rates) != 2 or len(days) != 1:
        return
    day, second = days[0], next(one for one in rates if one is not days[0])
    meant = min((one for one in second.values), key=lambda one: abs(math.log(day.value / one)))
    if day.near(meant, 0.06):
        return
    shown = day.text.replace(" ", "")
    typed = {slip.text for slip in digits.slips(shown, (0.985 * meant / day.scale, 1.015 * meant / day.scale))
             if slip.how in CLEAR}  # fmt: skip
    if len(typed) == 1:
        right = typed.pop().replace(".", "," if "," in shown else ".")
        message = f"{day.text} -> {right}: so many are {second.text} a second"
        yield Finding(file=file, line=number, code="aggregate", level="error", message=message, column="tokens a day",
                      printed=day.text, proposed=right)  # fmt: skip


def _lasting(file: str, number: int, sentence: str, named: list[tuple[Row, frozenset[str]]], rows: list[Row]
             ) -> Iterator[Finding]:  # fmt: skip
    """Days that neither the tokens and rates nor the steps of a sentence give, with those of the rows that it names."""
    plain = plain_letters(sentence)
    days = [match[1] for match in _DAYS.finditer(plain)]
    if len(days) != 1 or len(re.sub(r"\D", "", days[0])) < 2:
        return
    tokens, rates, a_day = ([float(decimal(one)) * _times(letter) for one, letter in pattern.findall(plain)]
                            for pattern in (_TOKENS, _RATE, _A_DAY))  # fmt: skip
    steps = [float(decimal(one)) for one in _STEPS.findall(plain)]
    surely = [row for row, by in named if not any(by < other for _, other in named)]

    def lasts(some: list[Row]) -> list[float]:
        of_rows = [rate for row in some if (rate := row.get("tokens_per_s"))]
        each = [seconds for row in some if (seconds := row.get("sec_per_it"))]
        of_tokens = [one / day for one in tokens for day in (*a_day, *(86400 * rate for rate in (*rates, *of_rows))) if day > 0]
        return of_tokens + [one * second / 86400 for one in steps for second in each]

    value, own = float(decimal(days[0])), lasts(surely if len(surely) < 3 else [])
    if not value or any(abs(value / one - 1) < 0.06 for one in lasts(rows) if one > 0):
        return
    typed = [slip for one in own for slip in digits.slips(decimal(days[0]), (one * 0.985, one * 1.015))]
    meant = {slip.text for slip in typed if slip.how in CLEAR}
    if len(meant) == 1:
        right = meant.pop().replace(".", "," if "," in days[0] else ".")
        message = f"{days[0]} days -> {right}: so long the tokens or steps of the sentence take"
        yield Finding(file=file, line=number, code="aggregate", level="error", message=message, column="days", printed=days[0],
                      proposed=right)  # fmt: skip


# ---- ratios and shares

_ASIDE = re.compile(r"\([^()]*\)")
_ALL_OF_THEM = re.compile(r"\b(?:all|each|every|average|mean|typically|mostly|usually|between the|respectively|resp|alle|"
                          r"jeweils|im mittel|tous|chaque|moyenne|todos|media)\b", re.IGNORECASE)  # fmt: skip
_BEST = re.compile(r"\b(?:best|highest|largest|biggest|most|peaks?|maximum|greatest|record|winner|beste[rn]?|hochste\w*|"
                   r"grosste\w*|meilleure?|mejor|mayor|migliore|maggiore|melhor|maior|plus (?:grand|haut)e?)\b|最高|最大|最佳",
                   re.IGNORECASE)  # fmt: skip
_AGAINST = re.compile(r"\b(?:than|against|compared|versus|vs|over|from|between|gegen(?:uber)?|als|que|contre|rapport|entre|di|"
                      r"wobec|niz|zwischen)\b", re.IGNORECASE)  # fmt: skip
_WHERE = re.compile(r"\b(?:on|at|for|auf|bei|sur|en|su|em) (?:(?:the|an?|our|der|dem|den|le|la|les|el|il|un) )?([\w.+-]*\w)",
                    re.IGNORECASE)  # fmt: skip
"""What a sentence says of the place of a row, and not of what is compared."""
_SPEEDS = ("tokens_per_s_per_process", "tokens_per_s", "samples_per_s", "tflops", "mfu", "sec_per_it")
_OF_ALL = ("tokens_per_s", "samples_per_s")
FEW_POINTS, FEW, POINTS_OFF = 2.5, 0.2, 0.7
"""By how much a percentage has to be off to be none that was rounded, and as a share of it; how far what was typed may be."""
Ratio = tuple[float, float, str]
"""The logarithm of what a column has of two rows, what its digits leave open, and the heading."""


def _shared_words(some: Named) -> frozenset[str]:
    return frozenset.intersection(*(by for _, by in some)) if some else frozenset()


@dataclass
class _Meant:
    """A ratio that a slip of the hand turns into what is printed."""

    clear: bool
    rows: tuple[Row, Row]
    pairs: int
    headings: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Told:
    """One claim of a sentence, and what it is judged by."""

    file: str
    line: int
    sentence: str
    claim: Claim
    claims: list[Claim]
    scope: Scope
    named: Named
    prices: tuple[float, ...]

    def finding(self, level: Level, text: str, heading: str, why: str) -> Finding:
        unit = "x" if self.claim.way == "times" else " %"
        message = f"{self.claim.text}{unit} -> {text}{unit}: {why} {text}{unit}"
        return Finding(file=self.file, line=self.line, code="aggregate", level=level, message=message, column=heading,
                       printed=self.claim.text, proposed=text)  # fmt: skip

    @property
    def clause(self) -> str:
        start = self.claim.start
        before, after = (_ASIDE.sub(" ", part) for part in (self.sentence[:start], self.sentence[start:]))
        return CLAUSES.split(before)[-1] + CLAUSES.split(after)[0]

    @property
    def sure(self) -> Named:
        """Of several tables those of the last one that has any; those of the clause, where nothing is said to be compared."""
        some = surely(self.named)
        lasts = [[one for one in some if one[0] in table] for table in reversed(self.scope.tables)]
        its = next((its for its in lasts if its), [])
        words = {word for _, by in its for word in by if stands(word.casefold(), plain_letters(self.clause).casefold())}
        here = [one for one in its if (one[1] - _shared_words(its)) & words]
        return here if len(here) == 1 and len(its) > 1 and not _AGAINST.search(plain_letters(self.sentence)) else its

    # -- ratios

    def ratio(self) -> Iterator[Finding]:
        claim = self.claim
        if not self.named or not 0 < claim.value < 1000:
            return
        sure = self.sure
        implied = [(row, base) for row, by in sure for base in _bases(row, by)] if len(sure) == 1 else []
        places = {word.casefold() for word in _WHERE.findall(plain_letters(self.sentence))}

        def of_place(pair: tuple[Row, Row]) -> int:
            return sum(bool(tokens(cell) & places) and pair[1].cells.get(heading) != pair[0].cells[heading]
                       for heading, cell in pair[0].worded.items())  # fmt: skip

        implied.sort(key=of_place)
        likely = [pair for pair in implied if of_place(pair) == of_place(implied[0])]
        pairs = [(one, other) for one, by in sure for other, of in self.named if other is not one and not of < by
                 and (other.key == one.key or _AGAINST.search(plain_letters(self.sentence)))]  # fmt: skip
        every = [one for pair in (*pairs, *implied) for one in _ratios(*pair, measured=False)]
        every += [one for row, _ in sure for mate in row.mates[:24] if len(sure) == 1 and mate is not row
                  for one in _ratios(row, mate, measured=True)]  # fmt: skip
        if not _KINDS["memory"].search(self.sentence):
            every = [one for one in every if field_of(one[2]) != "mem_value"]
        if self._is_given([*every, *_in_cells([row for row, _ in self.named])]):
            return
        chosen = self._by_slip() if len(self.named) > 1 and len(re.sub(r"\D", "", claim.text)) > 1 else {}
        if len(chosen) == 1:
            text, meant = next(iter(chosen.items()))
            level: Level = "error" if meant.clear and meant.pairs == 1 else "warning"
            rows = f"{min(meant.headings)} of {meant.rows[0].where} and {meant.rows[1].where} gives"
            yield self.finding(level, text, min(meant.headings), f"no two rows that are named give it, and {rows}")
        elif not chosen and claim.alone and (claim.way != "times" or claim.half < 0.5):
            yield from self._plainly(likely)

    def _is_given(self, ratios: list[Ratio]) -> bool:
        """Whether rows, cells or two figures of the text give the ratio."""
        numbers = [float(decimal(match[1])) for match in re.finditer(N, plain_letters(self.sentence).replace("$", " "))
                   if not any(match.start(1) == one.start for one in self.claims)]  # fmt: skip
        said = [(math.log(a / b), NEAR, "") for figures in (numbers[:12], self.prices)
                for a, b in itertools.combinations([one for one in figures if TINY < one < 1 / TINY], 2)]  # fmt: skip
        return any(low - open_ <= abs(log) <= high + open_ for low, high in _spans(self.claim)
                   for log, open_, _ in (*ratios, *said))  # fmt: skip

    def _kinds(self) -> set[str]:
        return {kind for kind, pattern in _KINDS.items() if pattern.search(self.clause)}

    def _by_slip(self) -> dict[str, _Meant]:
        """What a slip of the hand leads from: of those that are named by more than others first."""
        for some in (surely(self.named), self.named):
            pairs = [(one, other) for (one, by), (other, of) in itertools.combinations(some, 2) if by != of]
            found: dict[str, _Meant] = {}
            for pair in pairs if len(pairs) <= MOST_PAIRS else ():
                for log, open_, heading in _ratios(*pair, measured=True):
                    for text, clear in _slips(self.claim, log, open_):
                        found.setdefault(text, _Meant(clear, pair, len(pairs))).headings.add(heading)
            kinds = self._kinds()
            own = {text: one for text, one in found.items() if any(kinds & _kinds_of(heading) for heading in one.headings)}
            # Of memory, money and power nobody speaks who does not say so.
            speeds = {text for text, one in found.items() if any(_kinds_of(heading) - _APART or not _kinds_of(heading)
                                                                 for heading in one.headings)}  # fmt: skip
            certain = {text: one for text, one in found.items() if one.clear and (
                text in own or text in speeds and not kinds)}  # fmt: skip
            chosen = certain or (own if some is not self.named and len(pairs) == 1 else {})
            chosen = {text: one for text, one in chosen.items() if text in own} or chosen
            most = max((len(one.headings) for one in chosen.values()), default=0)
            if chosen:
                return {text: one for text, one in chosen.items() if len(one.headings) == most}
        return {}

    def _plainly(self, implied: list[tuple[Row, Row]]) -> Iterator[Finding]:
        """The ratio of the two rows that the sentence names, or of the one and what it is held against, in the columns that it
        speaks of, where those agree."""
        rows, two = [row for row, _ in self.sure], len(self.sure) == 2
        if _ALL_OF_THEM.search(self.sentence):
            return
        letters = plain_letters(self.clause).casefold()
        if two and not _AGAINST.search(plain_letters(self.sentence)):  # else each may be held against something else
            one, other = self.sure[0][1], self.sure[1][1]
            two = all(any(stands(word.casefold(), letters) for word in words) for words in (one - other, other - one))
            rows = rows if two else []
        if len({*implied}) > 1:  # of several the one that all others are held against, where there is one
            implied = [pair for pair in implied if pair[1] is pair[0].mates[0] and _is_base(pair[1])]
        pair = (rows[0], rows[1]) if two else implied[0] if len(rows) == 1 and implied else None
        if pair is None or pair[0].key != pair[1].key or two and self.sure[0][1] == self.sure[1][1]:
            return
        kinds, per = self._kinds(), self.claim.way in ("kept", "less")
        ratios = [one for one in _ratios(*pair, measured=True) if kinds & _kinds_of(one[2])]
        ratio = self.claim.way == "times" and _FACTOR.search(self.clause) is not None
        told = kinds - {"time"} if ratio else kinds  # `times` tells of no time
        if told and told <= {"memory", "money", "energy"} and not any(told & _kinds_of(one[2]) for one in ratios):
            return  # of what no column tells
        if not kinds - {"share"} or not ratios:
            ratios = [one for one in _ratios(*pair, measured=True) if field_of(one[2]) in _SPEEDS]
        worlds = math.log(pair[0].world / pair[1].world) if pair[0].world and pair[1].world else 0.0
        made = []
        for log, open_, heading in ratios:
            of_all = field_of(heading) in _OF_ALL and per
            if worlds and per and field_of(heading) == "sec_per_it":
                continue  # of another batch, or of the same: who knows
            size = abs(log - worlds) if of_all else abs(log)
            if size > 1e-9 and not is_extra(heading):
                made.append((_as_said(self.claim, size), open_, heading))
        if not made or any(abs(one / made[0][0] - 1) > max(0.06, 1.0 / made[0][0]) for one, _, _ in made):
            return
        value, _, heading = min(made, key=lambda one: one[1])
        far = abs(math.log(self.claim.value / value)) > 2 * GROSS if self.claim.way == "times" else (
            abs(self.claim.value - value) > max(FEW_POINTS, FEW * value if self.claim.way != "kept" else 0.0))  # fmt: skip
        text = f"{value:.{digits.places(self.claim.text)}f}"
        typed = [slip.text for slip in digits.slips(decimal(self.claim.text), (value - POINTS_OFF, value + POINTS_OFF))
                 if self.claim.way != "times"] if value > POINTS_OFF else []  # fmt: skip
        text = typed[0] if len(typed) == 1 else text
        if far and float(text):
            text = text.replace(".", ",") if "," in self.claim.text else text
            level: Level = "error" if two and self.scope.near else "warning"
            why = f"{heading} of {pair[0].where} and {pair[1].where} gives"
            yield self.finding(level, text, heading, f"no rows that the sentence names give it, and {why}")

    # -- shares

    def share(self) -> Iterator[Finding]:
        """A percentage of a row that is named, in the column that is, or in one that has it but for the order of its digits."""
        claim, shown = self.claim, decimal(self.claim.text)
        cells = {digits.plain(cell) for row in self.scope.rows for cell in row.record.printed.values()}
        if len(self.sure) == 1 and len(re.sub(r"\D", "", shown)) >= FEWEST_DIGITS and shown not in cells:
            row = self.sure[0][0]
            meant = {(heading, its) for heading, cell in row.record.printed.items() if "%" in f"{heading} {cell}"
                     and _exchanged(shown, its := digits.plain(cell))}  # fmt: skip
            if len(meant) == 1:
                heading, right = next(iter(meant))
                right = right.replace(".", ",") if "," in claim.text else right
                yield self.finding("error", right, heading, f"no row has it, and {heading} of {row.where} is")
                return
        if claim.alone and claim.value <= 100:
            yield from self._of_a_column()

    def _of_a_column(self) -> Iterator[Finding]:
        table = self.scope.last if self.scope.near else ()
        sure = [row for row, _ in self.sure]
        if not table or len(sure) > 1 or sure and sure[0] not in table or _ALL_OF_THEM.search(self.sentence):
            return
        words = {*normal(in_english(plain_letters(self.clause))).split()}
        headings = [heading for heading in table[0].record.printed if _is_share(heading, table) and words & _key_words(heading)]
        if len(headings) != 1:
            return
        heading, best = headings[0], _BEST.search(plain_letters(self.sentence)) is not None
        values = {row: 100 * value if max(map(abs, _column(table, heading))) < 2 else value
                  for row in table if (value := _share_in(row, heading)) is not None}  # fmt: skip
        if not values or not best and not sure or sure and sure[0] not in values:
            return
        top = max(values.values())
        given = [top, *([values[sure[0]]] if sure else [])] if best else [*values.values()]
        near = [*given, *(100 - one for one in given)]
        rates = [one for row in sure if row is not table[0] for one in _ratios(row, table[0], measured=False)
                 if field_of(one[2]) in _SPEEDS]  # fmt: skip
        said = abs(self.claim.value)  # as the column is read
        if any(abs(said - one) <= self.claim.half + 1.0 for one in near) or self._is_given(rates):
            return
        value = values[sure[0]] if sure else top
        if abs(said - value) <= FEW_POINTS:
            return
        text = f"{value:.{digits.places(self.claim.text)}f}"
        text = text.replace(".", ",") if "," in self.claim.text else text
        where = sure[0].where if sure else "the best row"
        yield self.finding("error" if sure else "warning", text, heading, f"{heading} of {where} is")


_NO_KEY = frozenset("of per in vs the a and to on over against for from with one all max new old % gpu".split())


@functools.lru_cache(maxsize=4096)
def _key_words(heading: str) -> frozenset[str]:
    words = {word for word in heading_words(heading).split() if len(word) > 2} - _NO_KEY
    same = {"efficiency": "scaling", "mfu": "utilization utilisation", "gain": "speedup faster", "speedup": "gain faster"}
    return frozenset(words | {other for word in words for other in same.get(word, "").split()})


def _is_share(heading: str, table: tuple[Row, ...]) -> bool:
    cells = [row.cells.get(heading, "") for row in table]
    known = field_of(heading) in ("mfu", "hfu") or "efficiency" in heading_words(heading)
    return known or is_extra(heading) and ("%" in heading or 2 * sum("%" in cell for cell in cells) > len(cells))


def _column(table: tuple[Row, ...], heading: str) -> list[float]:
    return [value for row in table if (value := _share_in(row, heading)) is not None] or [0.0]


def _share_in(row: Row, heading: str) -> float | None:
    name = field_of(heading) or EXTRA + heading
    fixed = row.fixed.get(name)
    return fixed if fixed is not None else digits.alone(clean(row.record.printed.get(heading, "")).lstrip("+-−~ "))


def _bases(row: Row, by: frozenset[str]) -> list[Row]:
    """What a row is held against, where the sentence does not say it: those that differ from it in a cell that is named and in
    no other that is, the other one of two, or the first of its table, which others are shares of."""
    table = [mate for mate in row.mates[:60] if mate is not row]
    if len(table) < 2:
        return table
    hit = [heading for heading, cell in row.worded.items() if by & tokens(cell)]
    same = [heading for heading in row.record.printed if field_of(heading) in ("size_label", "machine", "gpus", "nodes", "seq")]
    alike = [mate for mate in table for heading in hit if mate.cells.get(heading) != row.cells[heading]
             and all(mate.cells.get(other) == row.cells[other] for other in {*hit, *same} - {heading})]  # fmt: skip
    first = row.mates[0]
    return [*dict.fromkeys([*alike, *([first] if _is_base(first) and first is not row else [])])]


def _is_base(row: Row) -> bool:
    return any(_BASE.search(cell) or _ONE.fullmatch(cell) for cell in row.cells.values())


_FACTOR = re.compile(r"\btimes (?:the|an?|as|more)\b")
_BASE = re.compile(r"\b(?:base(?:line)?|none|default|main|reference|before|bf16|off|without|basis|stock|plain|vanilla)\b",
                   re.IGNORECASE)  # fmt: skip
_ONE = re.compile(r"1[.,]0+ ?[x×]?|1 ?[x×]|[x×] ?1(?:[.,]0+)?|100(?:[.,]0+)? ?%|-|—")
_RELATIVE = re.compile(r"speed ?up|gain|effici|relativ|\bvs\b|\bover\b|against|change|faster|slower|saved|saving|scaling|%|"
                       r"ideal|\bx\b|ratio|factor|share|weak|strong")  # fmt: skip


def _in_cells(rows: list[Row]) -> Iterator[Ratio]:
    """What single cells of rows give, and two of one row: a speed-up, a change in percent, a share of what is ideal."""
    for row in rows[:MOST_PAIRS]:
        values = [(value, 0.5 * 10.0 ** -digits.places(cell) / value) for heading, cell in row.record.printed.items()
                  if is_extra(heading) and _RELATIVE.search(f"{heading_words(heading)} {cell}")
                  and (value := digits.alone(clean(cell).lstrip("+-−~ "))) and TINY < value < 1 / TINY]  # fmt: skip
        for value, open_ in values:
            yield math.log(value), open_, ""
            if value < 1000:
                yield math.log(value / 100), open_, ""
                yield math.log1p(value / 100), open_ * value / 100, ""
            if value < 100:
                yield math.log1p(-value / 100), 0.01, ""
        for (one, first), (other, second) in itertools.combinations(values[:4], 2):
            yield math.log(one / other), first + second, ""


def _as_said(claim: Claim, size: float) -> float:
    """A ratio, by its logarithm without a sign, as the claim has it."""
    return {"times": math.exp(size), "less": -100 * math.expm1(-size), "more": 100 * math.expm1(size),
            "kept": 100 * math.exp(-size)}[claim.way]  # fmt: skip


def _spans(claim: Claim) -> Iterator[tuple[float, float]]:
    """Between which logarithms of a ratio what is printed may be, whichever way round it was worked out."""
    value, half = claim.value, claim.half
    if claim.way == "times":
        yield math.log(max(value - half, 1e-9)), math.log(value + half)
        yield math.log(1 + max(value - half, 0)), math.log(1 + value + half)
        return
    low, high = max(value - half, 0.0) / 100, (value + half) / 100
    if claim.way in ("kept", "share"):
        ends = sorted(abs(math.log(max(one, 1e-9))) for one in (low, high))
        yield ends[0], ends[1]
    if claim.way != "kept":
        yield math.log1p(low), math.log1p(high)
        if high < (0.5 if claim.way == "more" else 1):
            yield -math.log1p(-low), -math.log1p(-high)


def _slips(claim: Claim, log: float, open_: float) -> Iterator[tuple[str, bool]]:
    """What would be right, where a slip of the hand turns it into what is printed; and whether one that is no accident."""
    size, places = abs(log), digits.places(claim.text)
    ways = [_as_said(claim, size)] + ([-100 * math.expm1(-size)] if claim.way == "more" else [])
    printed = claim.value
    for value in ways:
        text = f"{value:.{places}f}"
        was = math.log(printed / value) if claim.way == "times" else math.log1p(printed / 100) - math.log1p(value / 100)
        if abs(was) < GROSS + open_ or not float(text):
            continue
        shown = text.replace(".", ",") if "," in claim.text else text
        near = 0.004 * value if claim.way == "times" else max(0.004 * value, POINTS)
        typed = digits.slips(decimal(claim.text), (max(value - near, 1e-6), value + near))
        moved = next((slip.text for slip in typed if slip.how == "the point moved"), None)
        if moved is not None:
            yield moved.replace(".", ",") if "," in claim.text else moved, True
        elif _exchanged(decimal(claim.text), text) or any(
                slip.text == text and slip.how in CLEAR and (len(text) > 1 or slip.how != CLEAR[2])
                for slip in typed):  # fmt: skip
            yield shown, True
        elif len(text) == len(decimal(claim.text)) and text[0] != claim.text[0] and text[1:] == decimal(claim.text)[1:]:
            yield shown, False


def _exchanged(one: str, other: str) -> bool:
    """Whether two numbers have the same digits, and the point where it was."""
    return len(one) == len(other) > 2 and one.find(".") == other.find(".") and sorted(one) == sorted(other)


def _ratios(one: Row, other: Row, *, measured: bool) -> list[Ratio]:
    """Of each column, and of what one device has of it where there are more in one row."""
    found: list[Ratio] = []
    worlds = math.log(one.world / other.world) if one.world and other.world else 0.0
    for heading in one.record.printed:
        name = field_of(heading)
        if measured and name in _SET:
            continue
        values = [(digits.alone(row.record.printed.get(heading, "")), row) for row in (one, other)]
        if any(not value or value <= 0 for value, _ in values):
            continue
        open_ = sum(0.5 * 10.0 ** -digits.places(row.record.printed[heading]) / max(
            float(digits.plain(row.record.printed[heading]) or 1), 1e-9) for _, row in values)  # fmt: skip
        logs = [math.log(values[0][0] / values[1][0])]  # type: ignore[operator]
        mended = [row.fixed.get(name or EXTRA + heading, value) for value, row in values]
        if [value for value, _ in values] != mended and (times := _scale(heading, values, name)):
            both = [one * (times if one != value else 1.0) for one, (value, _) in zip(mended, values)]  # type: ignore[operator]
            logs = [math.log(both[0] / both[1])] if measured else [*logs, math.log(both[0] / both[1])]
        if not measured:
            logs += [log - sign * worlds for log in logs for sign in (1, -1) if worlds]
        found += [(log, min(open_, 0.02), heading) for log in logs if open_ < 0.1 and abs(log) > 1e-9]
    return found


def _scale(heading: str, values: list[tuple[float | None, Row]], name: str) -> float:
    """What is printed over the value of the field: 1000 under a heading of ms."""
    return next((value / read for value, row in values if value and (read := row.said(name or EXTRA + heading))
                 and isinstance(read, (int, float)) and read > 0), 0.0)  # fmt: skip


_SET = frozenset((*CONFIGURATION, "gpus", "nodes", "seq", "gbs", "mbs", "tp", "pp", "dp", "cp", "ep", "layers", "hidden",
                  "size_label", "machine", "iteration", "notes"))  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _kinds_of(heading: str) -> frozenset[str]:
    return frozenset(kind for kind, pattern in _KINDS.items() if pattern.search(f"{heading_words(heading)} {heading}"))
