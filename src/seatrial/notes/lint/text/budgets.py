"""How long a budget of tokens takes, at the rate of the row that a sentence names, in any tongue.

    check(sheet)          findings on hours, days and weeks that no row gives

    30B tokens with b4: 27.5 days.                  at the 30,303 tokens/s of b4 11.5
    At 1024 GPUs: 28 days for the 5T tokens         at the 4980 ktok/s of that row 12
    The best line needs 87 days for 500B tokens     70

A row is named as `mentions` has it, or it is the best one. Nothing is said where any row of the file gives the time, a rate of
the text does, or the hours of devices beside it.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import scope_of
from seatrial.notes.lint.text.figures import Figure, figures
from seatrial.notes.lint.text.mentions import mentions, spoken_of
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.tables.headings import decimal

MOST_LINES, FEWEST_TOKENS = 4000, 1e8
NEAR, ABOUT, OFF, FAR = 0.05, 0.15, 0.09, 4.0
"""Within which a time is what a row gives, roughly gives; from which logarithm on it is another one; and beyond which factor
only a slip of the hand leads to it."""
_A_RUN = re.compile(r"(?<![\w.,])(\d+(?:[.,]\d+)?) ?(B|T)(?:[- ]tok\w*)?[- ](?:run|training)\b")
_BEST = re.compile(r"\b(?:best|fastest|winner|beste[rn]?|schnellste[rn]?|meilleure?|mejor|migliore|melhor|snelste|лучш\w*)\b|"
                   r"最快|最优|最速|가장 빠른", re.IGNORECASE)  # fmt: skip
_OTHERS = re.compile(r"\b(?:papers?|others|elsewhere|published|vendors?|save[sd]?|saving|left|remaining|lost|instead|less|"
                     r"more than|fewer|extra|after|every|each|per day|checkpoint\w*|restart\w*|planned for|budget of|"
                     r"within|eval\w*|longer|shorter|apart|half of|\d+ ?%)\b|只能|以内", re.IGNORECASE)  # fmt: skip


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = sheet.tables_of(file)
        if not tables or len(text.lines) > MOST_LINES:
            continue
        for sentence in text.sentences:
            if not any([one.kind == "hours" for one in figures(sentence.text)]):
                continue
            some = _together(sentence.text)
            times = [one for one in some if one.kind == "hours" and not one.bound]
            if len(times) == 1 and not _OTHERS.search(sentence.text) and (tokens := _tokens(sentence.text, some)):
                scope = scope_of(tables, text.lines, sentence.line)
                rows = [row for row in scope.last if not is_aggregate(row)]
                if rows and scope.near:
                    every = [row for table in tables for row in table]
                    found += _judged(file, sentence, times[0], tokens, some, rows, every)
    return found


def _together(text: str) -> tuple[Figure, ...]:
    """The figures of the part that the tokens stand in."""
    some = figures(text)
    for match in _PARTS.finditer(text):
        part = tuple(one for one in some if match.start() <= one.start < match.end())
        if any(one.kind == "tokens" for one in part):
            return part
    return some


_PARTS = re.compile(r"[^;；]+")


def _tokens(text: str, some: tuple[Figure, ...]) -> float:
    """The budget, where there is one."""
    its = [one.value for one in some if one.kind == "tokens" and one.value >= FEWEST_TOKENS and not one.bound]
    its = its or [float(decimal(match[1])) * {"B": 1e9, "T": 1e12}[match[2]] for match in _A_RUN.finditer(text)]
    return its[0] if len(its) == 1 else 0.0


def _judged(file: str, sentence: Sentence, time: Figure, tokens: float, some: tuple[Figure, ...], rows: list[Row],
            every: list[Row]) -> Iterator[Finding]:  # fmt: skip
    rates = {id(row): (row, rate) for row in rows if (rate := _rate(row))}
    if not rates:
        return
    its = [one for one in mentions(sentence.text, rows) if one.start != time.start]
    named = spoken_of(its, rows)
    if not its and _BEST.search(sentence.text) and len(rates) > 1:
        named = [max(rates.values(), key=lambda one: one[1])[0]]
    named = named or (rows if len(rows) == 1 else [])
    known = [rates[id(one)] for one in named if id(one) in rates]
    if not known or len(known) < len(named) or max(rate for _, rate in known) > (1 + NEAR) * min(rate for _, rate in known):
        return
    row, rate = known[0]
    meant = tokens / rate / 3600
    told = [other.value for other in some if other.kind == "tokens a second"]
    near = ABOUT if time.about else NEAR
    others = [of_row for one in every if (of_row := _rate(one, surely=False))]
    if any(time.near(tokens / one / 3600, near) for one in (*others, *told)):
        return
    value = time.closest(meant)
    for other in some:  # what the hours of devices say
        if other.kind == "device hours" and row.world and other.near(value * row.world, NEAR):
            return
    off = abs(math.log(value / meant))
    shown = time.text.replace(" ", "")
    slips = digits.slips(decimal(shown), (0.97 * meant / time.scale, 1.03 * meant / time.scale))
    if off < max(OFF, ABOUT * time.about, 1.5 * time.half / value) or off > math.log(FAR) and not slips:
        return
    moved = next((slip.text for slip in slips if slip.how == "the point moved"), "")
    right = (moved.replace(".", ",") if "," in shown else moved) or time.like(meant)
    message = f"{time.text} -> {right}: so long {tokens:.4g} tokens take at the {rate:.4g} tokens/s of {row.where}"
    yield Finding(file=file, line=sentence.line_at(time.start), code="aggregate", level="error", message=message,
                  column="hours", printed=time.text, proposed=right)  # fmt: skip


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
