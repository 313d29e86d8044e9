"""How long a budget of tokens takes, and how many a time is enough for, at the rate of the row that a sentence names.

    check(sheet)          findings on hours, days and tokens that no row gives

    30B tokens with b4: 27.5 days.                             at the 30,303 tokens/s of b4 11.5
    3T tokens are 16 days on 1024 GPUs and 13 on 2048.         each at the rate of its own row
    With 512 nodes one day is enough for 247 billion tokens.   at the 5719 ktok/s of that row 494
    18.6 h, or 2,380 GPU-hours on 512 GPUs                     9,520

A row is named as `mentions` has it, by its place, as the best one, or in the sentence before. Nothing is said where any row of
the file gives the time, a rate of the text does, or the hours of devices beside it.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import scope_of
from seatrial.notes.lint.text.figures import Figure, figures, in_another_unit
from seatrial.notes.lint.text.mentions import FIRST_ROW, LAST_ROW, Mention, mentions, spoken_of
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.tables.headings import NUMBER, decimal

MOST_LINES, FEWEST_TOKENS, MOST_TIMES, MOST_BETWEEN, MOST_ROWS = 4000, 1e8, 4, 3, 40
NEAR, ABOUT, OFF, FAR, FARTHER = 0.05, 0.15, 0.09, 4.2, 30.0
"""Within which a time is what a row gives, roughly gives; from which logarithm on it is another one; and beyond which factor
only a slip of the hand leads to it, also where the row is named surely."""
_A_RUN = re.compile(rf"(?<![\w.,$€£])({NUMBER.pattern}) ?(T)(?!\w)(?! ?(?:param\w*|model\w*|weights|FLOP\w*|\d))|"
                    rf"(?<![\w.,$€£])({NUMBER.pattern}) ?(B)(?:[- ]tok\w*)?[- ](?:run|training|budget)\b|"
                    rf"(?<=[训練练]) ?({NUMBER.pattern}) ?(B)(?!\w)")  # fmt: skip
"""`the 2T run`, `只能训 109B`"""
_LARGE = re.compile(r"\d\.? ?[TB]")
"""Without which there is none: cheaper to ask."""
_ONE_DAY = re.compile(r"\b(?:(?:one|an?|the|per|each|every|ein(?:em|en|e)?|un|una|une|um|uma|en un) "
                      r"(?:(day|tag|jour|dia|giorno|dag)|(week|woche|semaine|semana|settimana)|(month|monat|mois|mes|mese)))\b|"
                      r"(?:一|每|1) ?(?:(天)|(周)|(个月))|1 ?日で()()()", re.IGNORECASE)  # fmt: skip
_AS_WELL = re.compile(rf"(?:,|,? (?:and|or|und|oder|et|ou|y|o|e|en|worst|slowest|best|fastest)) ({NUMBER.pattern})"
                      r"(?= (?:on|with|at|for|auf|mit|bei|sur|avec|con|su|met|op|com|em) |\.(?: |$))")  # fmt: skip
"""`21 days on 256 GPUs, 11 on 512`"""
_BEST = re.compile(r"\b(?:best|fastest|winner|beste[rn]?|schnellste[rn]?|meilleure?|mejor|migliore|melhor|snelste|лучш\w*|"
                   r"plus rapide|mas rapid[oa]|piu veloce)\b|最快|最优|最速|가장 빠른", re.IGNORECASE)  # fmt: skip
_WORST = re.compile(r"\b(?:worst|slowest|langsamste[rn]?|schlechteste[rn]?|pire|plus lente?|peor|mas lent[oa]|peggiore|"
                    r"piu lent[oa]|pior|traagste|худш\w*)\b|最慢|最遅|가장 느린", re.IGNORECASE)  # fmt: skip
_THAT = re.compile(r"\b(?:that|this|then|so|such|it|there|thus|das|damit|dies\w*|so|cela|ainsi|eso|asi|questo|cosi|isso|dat|"
                   r"the (?:same )?(?:run|setting|rate|speed))\b|这|此|その|この|これ", re.IGNORECASE)  # fmt: skip
_OTHERS = re.compile(
    r"\b(?:papers?|others|elsewhere|published|vendors?|save[sd]?|saving|left|remaining|lost|instead(?! of)|less|more than|"
    r"fewer|extra|after|next|rest of|every|each|per day|planned for|budget of|within|eval\w*|longer|shorter|apart|half of|ago|"
    r"later|earlier|in hand|spare|wait\w*|queue\w*|\d+ ?%)|以内", re.IGNORECASE)  # fmt: skip
_HOLDS_MORE = re.compile(r"\b(?:restarts?|checkpoint(?:s|ing)?|interruptions?|down ?time|neustarts?|ausfalle?n?|redemarrages?|"
                         r"reinicios?|riavvii)\b|перезапуск|重启|再開|재시작", re.IGNORECASE)  # fmt: skip
"""Time that no row has."""
_PARTS = re.compile(r"[;；。]|(?<!\d),(?!\d)|(?<=\d), |[，、](?!\d)|: | [–—-] | (?:but|aber|mais|pero|while|so|also|daher|"
                    r"instead of|rather than|statt|au lieu de|en vez de|invece di) ")  # fmt: skip
_GIVES = re.compile(r"\b(?:gives?|yields?|makes?|sees?|saw|holds?|fits?|trains?|process\w*|are|is|enough|allows?|covers?|"
                    r"get|ergeben|ergibt|sind|reich\w+|schafft|schaffen|verarbeite\w+|donnent?|permet\w*|traite\w*|sont|"
                    r"dan|da|permiten?|alcanzan?|procesa\w*|son|sono|bastano|sufficien\w+|elabora\w*|dao|permitem|sao|"
                    r"goed voor)\b|能训|可训|可以训|处理|学習でき|処理|분량", re.IGNORECASE)  # fmt: skip
"""Between a time and the tokens that it is enough for."""
_MISTAKEN = (8, 24, 60, 1000)
"""Of a node, hours for days, minutes for hours, thousands."""
_DEVICE_HOURS = frozenset(("device hours", "node hours"))


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = sheet.tables_beside(file)
        if not tables or len(text.lines) > MOST_LINES:
            continue
        told = _Told(file, text.lines, tables)
        for sentence in text.sentences:
            found += told.judged(sentence)
    # Chapters share the sentences that are of none.
    return list({(sheet.names.get(one.file, one.file), one.line, one.printed): one for one in reversed(found)}.values())[::-1]


@dataclass(frozen=True)
class _Before:
    """A sentence, the budget that it told, and its rates."""

    sentence: Sentence
    tokens: Figure | None
    rates: tuple[float, ...]


@dataclass
class _Told:
    file: str
    lines: tuple[str, ...]
    tables: list[list[Row]]
    before: _Before | None = None

    @cached_property
    def every(self) -> list[float]:
        """Rates of all rows, by each of their columns."""
        return [rate for rows in self.tables for row in rows for rate in _rates(row)]

    @cached_property
    def every_of_devices(self) -> list[tuple[float, int]]:
        return [(rate, row.world) for rows in self.tables for row in rows if row.world for rate in _rates(row)]

    def judged(self, sentence: Sentence) -> Iterator[Finding]:
        near, self.before = self.before, None
        if near is not None and sentence.first - near.sentence.last > MOST_BETWEEN:
            near = None
        its = _Sentence(self, sentence, near)
        budget = its.tokens[0] if len(its.tokens) == 1 else near.tokens if near and not its.tokens else None
        self.before = _Before(sentence, budget, its.told)
        alone = not its.times and any(one.kind in _DEVICE_HOURS for one in its.figures)
        if (alone or 0 < len(its.times) <= MOST_TIMES) and (its.tokens or budget is not None):
            scope = scope_of(self.tables, self.lines, sentence.line)
            tables = [list(rows[:MOST_ROWS]) for rows in reversed(scope.tables)
                      if any(_rate(row, surely=False) for row in rows)]  # fmt: skip
            its.tables = [_Named(its, rows, scope.near and rows[0] is scope.last[0]) for rows in tables]
            yield from its.of_devices_alone() if alone else its.findings()


@dataclass
class _Sentence:
    of: _Told
    sentence: Sentence
    near: _Before | None
    tables: list[_Named] = field(default_factory=list)
    """With rates, the nearest first."""

    @property
    def text(self) -> str:
        return self.sentence.text

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        return figures(self.text)

    @cached_property
    def tokens(self) -> list[Figure]:
        """The budgets, where there are any."""
        its = [one for one in self.figures if one.kind == "tokens" and one.value >= FEWEST_TOKENS and not one.bound]
        for match in _A_RUN.finditer(self.text) if _LARGE.search(self.text) else ():
            place = next(at for at, group in enumerate(match.groups(), 1) if group)
            scale = {"B": 1e9, "T": 1e12}[match[place + 1]]
            if all(match.end() <= one.start or one.end <= match.start() for one in self.figures):
                its.append(Figure("tokens", match[place], match.start(place), match.end(place + 1),
                                  (float(decimal(match[place])) * scale,), scale))  # fmt: skip
        return sorted((one for one in its if 0 < one.value < digits.MOST_WORKED_OUT), key=lambda one: one.start)

    @cached_property
    def rates(self) -> list[Figure]:
        return [one for one in self.figures if one.kind == "tokens a second"]

    @cached_property
    def times(self) -> list[Figure]:
        its = [one for one in self.figures if one.kind == "hours" and not one.bound]
        for match in _AS_WELL.finditer(self.text) if its else ():
            before = [one for one in its if one.end <= match.start()]
            if before and not any(one.start <= match.start(1) < one.end for one in self.figures):
                scale = before[-1].scale
                its.append(Figure("hours", match[1], match.start(1), match.end(1), (float(decimal(match[1])) * scale,), scale))
        its = sorted((one for one in its if 0 < one.value < digits.MOST_WORKED_OUT), key=lambda one: one.start)
        if not its and self.tokens:
            one = _ONE_DAY.search(self.text)
            at = next((at for at, group in enumerate(one.groups()) if group is not None), 0) % 3 if one is not None else 0
            its = [Figure("hours", "1", one.start(), one.end(), ((24.0, 168.0, 730.5)[at],), 1.0)] if one is not None else []
        return its

    @cached_property
    def told(self) -> tuple[float, ...]:
        """Rates that it gives, and the sentence before."""
        own = tuple(one.value for one in self.rates)
        return own or (self.near.rates if self.near is not None else ())

    def findings(self) -> Iterator[Finding]:
        if _HOLDS_MORE.search(self.text):
            return
        pairs = [(time, tokens) for time in self.times if (tokens := self._budget(time)) is not None]
        for time, tokens in pairs:
            row = self._row(time)
            if row is not None and not _OTHERS.search(self._around(time, tokens)):
                one = self._judged(time, tokens, *row)
                if one is not None:
                    yield one
                    return
        yield from self._of_devices(pairs)

    def of_devices_alone(self) -> Iterator[Finding]:
        """What the tokens cost in hours of devices, where no other time is said."""
        its = [one for one in self.figures if one.kind in _DEVICE_HOURS and not one.bound]
        if len(its) != 1 or len(self.tokens) != 1 or self.tokens[0].bound or _OTHERS.search(self.text):
            return
        (one,), (tokens,) = its, self.tokens
        row = self._row(one)
        size = row and (row[0].world if one.kind == "device hours" else row[0].record.nodes)
        if row is None or not size or not row[2]:
            return
        near, its_ = ABOUT if one.about else NEAR, [tokens.value / rate / 3600 * size for rate in (*self.told, *_rates(row[0]))]
        every = [tokens.value / rate / 3600 * its_world for rate, its_world in self.of.every_of_devices]
        if not any(one.near(way, near) for way in its_) and not any(one.near(way, NEAR) for way in every):
            what = f"so many {tokens.value:.4g} tokens"
            told = self._told(one, tokens.value / row[1] / 3600 * size, what, row[0], row[1], "error", one.scale)
            yield from [told] if told is not None else []

    def _of_devices(self, pairs: list[tuple[Figure, Figure]]) -> Iterator[Finding]:
        """Hours of devices beside the time that a row needs for the tokens."""
        its = [one for one in self.figures if one.kind in _DEVICE_HOURS and not one.bound]
        if len(its) != 1 or len(pairs) != 1 or _OTHERS.search(self.text):
            return
        (one,), ((time, tokens),) = its, pairs
        rows = [found for table in self.tables if (found := table.row(time))]
        sizes = {row.world if one.kind == "device hours" else row.record.nodes for row, _, _ in rows}
        world = next(iter(sizes), None)
        if len(sizes) == 1 and world and any(time.near(tokens.value / rate / 3600, NEAR) for row, _, _ in rows
                                             for rate in _rates(row)) and not one.near(time.value * world, NEAR):  # fmt: skip
            row, rate, _ = rows[0]
            told = self._told(one, time.value * world, f"so many {time.text}", row, rate, "error", one.scale)
            yield from [told] if told is not None else []

    def _budget(self, time: Figure) -> Figure | None:
        """What so long is needed for: in its own part, else in the sentence, else in the one before."""
        if len(self.tokens) > 1:
            start, end = self.part(time)
            its = [one for one in self.tokens if start <= one.start < end]
            return its[0] if len(its) == 1 else None
        if self.tokens:
            return self.tokens[0]
        return self.near.tokens if self.near is not None else None

    def part(self, time: Figure) -> tuple[int, int]:
        cuts = [0, *(match.start() for match in _PARTS.finditer(self.text)), len(self.text)]
        return max(cut for cut in cuts if cut <= time.start), min(cut for cut in cuts if cut >= time.end)

    def _around(self, time: Figure, tokens: Figure) -> str:
        start, end = self.part(time)
        if tokens in self.tokens:
            first, last = self.part(tokens)
            start, end = min(start, first), max(end, last)
        return self.text[start:end]

    def _row(self, time: Figure) -> tuple[Row, float, bool] | None:
        """The row that the time is of, its rate, and whether the sentence itself names it, in the table above it."""
        found = [(table.near, one) for table in self.tables if (one := table.row(time)) is not None]
        if not found:
            return None
        near, (row, rate, named) = found[0]
        if not near and any(abs(other / rate - 1) > NEAR for _, (_, other, _) in found[1:]):
            return None
        return row, rate, named

    def _judged(self, time: Figure, tokens: Figure, row: Row, rate: float, named: bool) -> Finding | None:
        near = ABOUT if time.about or tokens.about else NEAR
        meant = tokens.value / rate / 3600
        odd = [one for one in self.rates if not any(one.near(of_row, ABOUT) for of_row in _rates(row))]
        if time.near(meant, near):  # what both give, and the row has, is no other rate
            return self._told(odd[0], rate, "so many", row, rate, "error", odd[0].scale) if (
                named and len(odd) == len(self.rates) == len(self.times) == 1) else None
        rates = [*self.told, *_rates(row)]
        every = [*rates, *self.of.every]
        if any(time.near(tokens.value / one / 3600, near) for one in rates):
            return None
        elsewhere = any(time.near(tokens.value / one / 3600, NEAR) for one in every)
        for one in self.figures:  # what the hours of devices say
            world = {"device hours": row.world, "node hours": row.record.nodes}.get(one.kind)
            if world and one.near(time.closest(meant) * world, NEAR):
                return None
        if time.near(meant * (row.world or 1), NEAR):  # of all devices: `131k h`
            return None
        if elsewhere and not (named and near == NEAR):
            return None
        agreed = any(abs(rate / one - 1) < NEAR for one in self.told)
        level: Level = "error" if named and (not elsewhere or agreed) or not named and _THAT.search(self.text) else "warning"
        if self._is_of_time(time, tokens):
            return self._told(tokens, time.value * 3600 * rate, f"so many {time.text}", row, rate, level, tokens.scale)
        return self._told(time, meant, f"so long {tokens.value:.4g} tokens", row, rate, level, time.scale)

    def _is_of_time(self, time: Figure, tokens: Figure) -> bool:
        """Whether the tokens are what is worked out of a time."""
        if tokens not in self.tokens or tokens.start < time.end:
            return False
        if self._stands(tokens) and not self._stands(time):
            return False
        between = self.text[time.end : tokens.start]
        return time.start == time.end or _GIVES.search(between) is not None or self._stands(time)

    def _stands(self, one: Figure) -> bool:
        """Whether another line has it as well."""
        form = re.compile(rf"(?<![\d.,]){re.escape(one.text)}(?![.,]?\d)")
        return len(one.text) > 1 and any(one.text in line and form.search(line) for at, line in enumerate(self.of.lines, 1)
                                         if not self.sentence.first <= at <= self.sentence.last)  # fmt: skip

    def _told(self, one: Figure, meant: float, what: str, row: Row, rate: float, level: Level, scale: float) -> Finding | None:
        value = one.closest(meant)
        off = abs(math.log(value / meant))
        shown = one.text.replace(" ", "")
        slips = digits.slips(decimal(shown), (0.97 * meant / scale, 1.03 * meant / scale))
        mistaken = any(abs(off - math.log(times)) < 0.03 for times in (*_MISTAKEN, row.world or 8))
        far = math.log(FARTHER if level == "error" and not one.about and scale < 1000 else FAR)
        if off < max(OFF, ABOUT * one.about, 1.5 * one.half / value) or off > far and not slips and not mistaken:
            return None
        moved = next((slip.text for slip in slips if slip.how == "the point moved"), "")
        level = "error" if moved else level
        unit = in_another_unit(one.text, self.text[one.start + len(one.text) :], meant) if one.kind == "hours" else ""
        meant = meant if off <= math.log(FAR) or one.fine > 1 else scale * float(f"{meant / scale:.2g}")
        right = (moved.replace(".", ",") if "," in shown else moved) or unit or one.like(meant)
        message = f"{one.text} -> {right}: {what} take at the {rate:.4g} tokens/s of {row.where}"
        return Finding(file=self.of.file, line=self.sentence.line_at(one.start), code="aggregate", level=level, message=message,
                       column=one.kind, printed=one.text, proposed=right)  # fmt: skip


@dataclass
class _Named:
    """The rows of a table that a sentence names."""

    of: _Sentence
    rows: list[Row]
    near: bool
    """Whether it is the last one above, with no heading between."""

    @cached_property
    def mentions(self) -> list[Mention]:
        text, rows = self.of.text, self.rows
        its = [*mentions(text, rows), *_numbers(text, rows)]
        if self.near:
            for pattern, at in ((FIRST_ROW, 0), (LAST_ROW, len(rows) - 1)):
                its += [Mention(match.start(), match.end(), "#", match[0], frozenset({at})) for match in pattern.finditer(text)]
        rates = [_rate(row, surely=False) for row in rows]
        if sum(rate > 0 for rate in rates) > 1:
            for pattern, meant in ((_BEST, max(rates)), (_WORST, min(rate for rate in rates if rate))):
                utmost = frozenset({rates.index(meant)})
                its += [Mention(match.start(), match.end(), "#", match[0], utmost) for match in pattern.finditer(text)
                        if self.near and not any(one.rows <= utmost for one in its)]  # fmt: skip
        taken = [(one.start, one.end) for one in (*self.of.times, *self.of.tokens)]
        return sorted((one for one in its if not any(start <= one.start < end for start, end in taken)),
                      key=lambda one: one.start)  # fmt: skip

    def row(self, time: Figure) -> tuple[Row, float, bool] | None:
        for some in self._near_to(time):
            if some and (one := self._known(spoken_of(some, self.rows))):
                return *one, True
        before = self.of.near
        if self.mentions:
            return None
        if before is not None and len(self.rows) > 1:
            text = before.sentence.text
            one = self._known(spoken_of([*mentions(text, self.rows), *_numbers(text, self.rows)], self.rows))
            return (*one, any(abs(rate / one[1] - 1) < NEAR for rate in before.rates)) if one else None
        one = self._known(self.rows) if len(self.rows) == 1 and self.near else None
        return (*one, True) if one else None

    def _known(self, named: Sequence[Row]) -> tuple[Row, float] | None:
        """Rows that have one rate."""
        its = [(row, rate) for row in named if (rate := _rate(row, surely=self._sure))]
        alike = its and max(rate for _, rate in its) <= (1 + NEAR) * min(rate for _, rate in its)
        return its[0] if alike and len(its) == len(named) else None

    @cached_property
    def _sure(self) -> bool:
        """Whether the columns of any row agree; else they are of two times, as before and after."""
        return any(map(_rate, self.rows))

    def _near_to(self, time: Figure) -> Iterator[list[Mention]]:
        """What is named in all of the sentence, then in the part of a time; of several times each has its own share."""
        its, times, text = self.mentions, self.of.times, self.of.text
        if len(times) > 1 and its:
            at = times.index(time)
            before = its[0].start < times[0].start and any(times[0].end <= one.start < times[-1].start for one in its)
            start = times[at - 1].end if before and at else 0 if before else time.start
            end = time.start if before else times[at + 1].start if at + 1 < len(times) else len(text)
            yield [one for one in its if start <= one.start < end]
            early = [one for one in its if one.start < times[0].start]
            sides = list(dict.fromkeys(one.rows for one in its))
            if len(times) == len(sides) == 2 and early == its:
                yield [one for one in its if one.rows == sides[at]]  # `from 256 to 512 GPUs it goes from 21.1 to 11.0 days`
            yield early
            return
        start, end = self.of.part(time)
        yield its
        yield [one for one in its if start <= one.start < end]
        first = self.of.tokens[0].start if self.of.tokens else time.start
        yield [one for one in its if one.start < max(first, time.start)]


_WITH = re.compile(r"\b(?:[Ww]ith|[Bb]y|[Rr]un|[Cc]onfig|[Oo]f|mit|avec|con|com) (\d{1,3})(?= (?:is|it|would|takes?|needs?|has|"
                   r"will|that|ist|ware|braucht|est|il|es|serait|prend|tarda|seria|sarebbe|e)\b)")  # fmt: skip
_OF_A_KIND = re.compile(r"(?<![\w.,])(\d{1,5}) ([A-Z][\w-]{0,9})[ -](?:nodes|Knoten|noeuds|nodos|nodi|nos)\b")
_WORDY = re.compile(r"(?<![\w.,])(\d{3,5})(?![\d.,]*\d)")


def _numbers(text: str, rows: Sequence[Row]) -> list[Mention]:
    """Rows by a number of their own: `13` of a table that counts from 01, `280 W` of `-pl 280`."""
    found = []
    firsts = [next(iter(row.cells.values()), "").strip("#* ") for row in rows]
    if any(re.fullmatch(r"0\d+", one) for one in firsts):
        places = [(match, {at for at, one in enumerate(firsts) if one.isdecimal() and int(one) == int(match[1])})
                  for match in _WITH.finditer(text)]  # fmt: skip
        found += [Mention(match.start(1), match.end(), "#", match[1], frozenset(its)) for match, its in places if its]
    for match in _OF_A_KIND.finditer(text):
        its = {at for at, row in enumerate(rows) if row.record.nodes == int(match[1])
               and match[2].casefold() in {cell.casefold() for cell in row.cells.values()}}  # fmt: skip
        found += [Mention(match.start(), match.end(), "nodes", match[1], frozenset(its))] if its else []
    for match in _WORDY.finditer(text):
        its = {at for at, row in enumerate(rows) for cell in row.worded.values()
               if match[1] in cell and re.search(rf"[^\W\d][\w ]* {match[1]}(?!\w|[.,]\d)", cell)}  # fmt: skip
        found += [Mention(match.start(1), match.end(), "text", match[1], frozenset(its))] if len(its) == 1 else []
    return found


_OF_TIME = re.compile(r"(?<!\w)(?:s|sec|seconds|sekunden|before|after|vorher|nachher|avant|apres|antes|old|new)(?!\w)",
                      re.IGNORECASE)  # fmt: skip


def _rates(row: Row) -> list[float]:
    """All that its columns give, in tokens a second of all devices; those of another time too, as before and after."""
    seconds, batch = row.get("sec_per_it") or 0.0, (row.get("gbs") or 0.0) * (row.seq or 0)
    others = [value for heading, cell in row.cells.items() if _OF_TIME.search(heading) and (value := digits.alone(cell))
              and 1 / 3 < value / seconds < 3] if seconds and batch else []  # fmt: skip
    its = [rate for surely in (True, False) if (rate := _rate(row, surely=surely))]
    return list(dict.fromkeys([*its, *(batch / value for value in others)]))


def _rate(row: Row, *, surely: bool = True) -> float:
    """Tokens a second of all devices; `surely`: as more than one column has it, where more than one tell it."""
    world, seconds = row.world or 0, row.get("sec_per_it")
    ways = [row.get("tokens_per_s") or 0.0, (row.get("tokens_per_s_per_process") or 0.0) * world]
    if seconds and row.get("gbs") and row.seq:
        ways.append((row.get("gbs") or 0.0) * row.seq / seconds)
    ways = [way for way in ways if way > 0]
    if not ways:
        return 0.0
    own = sorted(ways)[len(ways) // 2]
    alike = sum(abs(way / own - 1) < NEAR for way in ways)
    first = next(way for way in ways if abs(way / own - 1) < NEAR)
    return first if not surely or len(ways) == 1 or alike > 1 else 0.0
