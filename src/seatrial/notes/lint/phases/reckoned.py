"""Sentences that reckon a whole run: hours by tokens and a rate, money by hours and a price, each by what rows of a table have.

    check(sheet)          findings, each of one figure of a sentence

    226,224 GPU-hours at $1.95 = $0.64 M.                          that are $0.44 M
    20 billion tokens for the 8B on two nodes are 52.6 hours.      by the 208,700 tokens/s of that row 26.6

A sentence is a row of the ledger (`ledger`, `quantities`): its figures are cells, what it does not say it has from the heading
above, the sentence before, the prices of the text, or one row of a table. Sentences round: a law is broken where no row gives
what is said, and the figure is told that a slip of the hand or of the units explains.
"""
from __future__ import annotations

import bisect
import functools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.phases.ledger import CLEAR, FROM_FIELDS, WORKED_OUT, prices
from seatrial.notes.lint.phases.quantities import AMOUNTS, DEVICE, FIELDS, Equation, equations, many
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.figures import FACTOR, in_another_unit, plain
from seatrial.notes.lint.text.figures import figures as spoken
from seatrial.notes.lint.text.sentences import ABBREVIATED
from seatrial.notes.read.listed import is_row_of_commas
from seatrial.tables.headings import NUMBER, clean, decimal
from seatrial.tables.tongues import in_english

MOST_LINES, LONGEST, MOST_ROWS, MOST_FIGURES, AROUND = 4000, 1500, 40, 12, 60
NEAR, OFF, VAGUE = 0.04, 0.09, 0.08
"""Beyond the digits: within which a sentence keeps to a law, from where on it breaks it, and how much more may be about."""
_LETTERS = (r"(?:\s?(k|K|M|B|T|bn|thousand|million|billion|trillion|millones|milliards?|Milliarden|miliardi|miljard|Mrd\.?|"
            r"Mio\.?|mil millones|mil)(?![\w-]))?")  # fmt: skip
_N = rf"(?<![\w.,/^$€£-])({NUMBER.pattern}){_LETTERS}"
_ANY_DEVICE = rf"(?:{DEVICE}|[AHBVL]\d{{2,3}}s?|MI\d+X?s?|GH200|cards?|chips?|sockets?)"
_A = r"\s?(?:/|per |a |an |pro |par |por )\s?"
_SIGN = r"(?:US)?[$€£]"
_UNITS: tuple[tuple[str, str, float], ...] = (
    ("device hours", rf"{_N}[\s-]?{_ANY_DEVICE}[\s-]?(?:hours?|hrs?|h)\b", 1.0),
    ("device hours", rf"{_N}\shours {_ANY_DEVICE}\b", 1.0),
    ("node hours", rf"{_N}[\s-]?node[\s-]?(?:hours?|h)\b", 1.0),
    ("price of a device hour", rf"{_SIGN}\s?({NUMBER.pattern}){_A}{_ANY_DEVICE}[\s-]?(?:and |{_A})?(?:hour|hr|h)\b", 1.0),
    ("price of a node hour", rf"{_SIGN}\s?({NUMBER.pattern}){_A}(?:node|instance|box)[\s-]?(?:and |{_A})?(?:hour|hr|h)\b", 1.0),
    ("price of a device hour", rf"{_N}\s?(?:{_SIGN}|EUR|USD|euros?){_A}{_ANY_DEVICE}[\s-]?(?:and |{_A})?(?:hour|hr|h)\b", 1.0),
    ("device tokens a second", rf"{_N}\s?(?:tokens?|tok){_A}s(?:ec(?:ond)?)?(?:,? and|{_A}|\s)+{_ANY_DEVICE}\b", 1.0),
    ("tokens a second", rf"{_N}\s?(?:tokens?|tok){_A}s(?:ec(?:ond)?)?\b", 1.0),
    ("samples a second", rf"{_N}\s?(?:samples|sequences|seqs?){_A}s(?:ec(?:ond)?)?\b", 1.0),
    ("step seconds", rf"{_N}\s?(?:s|sec|seconds){_A}(?:step|iteration|it|iter)\b", 1.0),
    ("step seconds", rf"{_N}\s?ms{_A}(?:step|iteration|it|iter)\b", 1e-3),
    ("price of energy", rf"{_N}\s?(?:{_SIGN}|EUR|USD|ct)?{_A}kWh\b", 1.0),
    ("carbon of energy", rf"{_N}\s?g(?: of)?(?: CO2e?(?:q)?)?{_A}kWh\b", 1e-3),
    ("carbon of energy", rf"{_N}\s?kg(?: of)?(?: CO2e?(?:q)?)?{_A}kWh\b", 1.0),
    ("overhead of the site", rf"\bPUE (?:of |is |was )?({NUMBER.pattern})", 1.0),
    ("power of a device", rf"{_N}\s?W{_A}{_ANY_DEVICE}\b", 1e-3),
    ("energy", rf"{_N}\s?kWh\b", 1.0), ("energy", rf"{_N}\s?MWh\b", 1e3), ("energy", rf"{_N}\s?GWh\b", 1e6),
    ("carbon", rf"{_N}\s?(?:t|tons?|tonnes?)(?: of)? CO2", 1e3), ("carbon", rf"{_N}\s?kg(?: of)? CO2", 1.0),
    ("sequence", rf"(?:\bof|length|x|×)\s({NUMBER.pattern})\stokens\b", 1.0),
    ("tokens of a step", rf"{_N}\s?tokens?{_A}(?:step|iteration|batch|update)\b", 1.0),
    ("tokens", rf"{_N}\s?(?:tokens?|tok)\b(?!{_A})", 1.0),
    ("samples", rf"{_N}\s?(?:samples|sequences|examples)\b(?!{_A})", 1.0),
    ("steps", rf"{_N}\s(?:steps|iterations|updates)\b(?! per)", 1.0),
    ("nodes", rf"{_N}\s(?:nodes|instances|boxes|servers)\b", 1.0),
    ("devices", rf"{_N}\s?(?:x\s|×\s)?{_ANY_DEVICE}\b(?![\s-]?(?:hours?|h\b|memory|days?))", 1.0),
    ("hours", rf"(?<!of ){_N}[\s-]?(?:hours?|hrs?|h)\b(?![\s-]?{_ANY_DEVICE})(?!{_A})", 1.0),
    ("hours", rf"{_N}[\s-]?days?\b(?!{_A})", 24.0),
    ("hours", rf"{_N}[\s-]?weeks?\b", 168.0), ("hours", rf"{_N}\s?(?:min|minutes)\b", 1 / 60),
    ("money", rf"{_SIGN}\s?({NUMBER.pattern}){_LETTERS}(?!\s?[\d.,]*{_A}(?!total))", 1.0),
    ("money", rf"{_N}\s?k(?:EUR|USD)(?!\w)(?!{_A})", 1e3),
    ("money", rf"{_N}\s?(?:[$€£]|EUR|USD|euros?|dollars?)(?!\w)(?!{_A})", 1.0),
)  # fmt: skip
"""What a figure with its unit is, those first that are part of another."""
_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE if kind not in ("energy", "power of a device") else 0), unit)
                  for kind, pattern, unit in _UNITS)  # fmt: skip
_NEEDS = {"tokens": ("tok",), "tokens a second": ("tok",), "device tokens a second": ("tok",), "tokens of a step": ("tok",),
          "sequence": ("tok",), "energy": ("Wh",), "price of energy": ("wh",), "carbon of energy": ("wh",), "carbon": ("co2",),
          "overhead of the site": ("pue",), "node hours": ("node",), "samples": ("ampl", "sequen"),
          "steps": ("step", "iter", "updat"), "nodes": ("node", "instan", "box", "server"), "hours": ("#h",),
          "device hours": ("#h",),
          "samples a second": ("ampl", "seq"), "step seconds": ("step", "it"),
          "price of a device hour": ("$", "€", "£", "eur", "usd"),
          "price of a node hour": ("$", "€", "£"), "money": ("$", "€", "£", "eur", "usd", "dollar")}  # fmt: skip
"""Without one of these a sentence has no such figure."""
_ALL_CUES = tuple({cue for cues in _NEEDS.values() for cue in cues} - {"#h"})
_OF_TIME = re.compile(r"\d[\s-]?h|hour|hr|day|week|min")
"""What stands for `#h`."""


@functools.lru_cache(maxsize=4096)
def _worth(cues: frozenset[str]) -> list[tuple[str, re.Pattern[str], float]]:
    """The patterns that may be found in a sentence with these cues."""
    return [one for one in _PATTERNS if one[0] not in _NEEDS or not cues.isdisjoint(_NEEDS[one[0]])]


_THOUSANDS = re.compile(r"[ \u00a0\u202f](?<=\d.)(?=\d{3}(?!\d))")
_ABOUT = re.compile(r"(?:\b(?:about|some|around|roughly|approximately|nearly|almost|over|under|more than|less than|up to|"
                    r"at least|at most|well|good|circa|ca\.?|etwa|rund|knapp|environ|unos|unas|casi|cerca)|[~≈<>])"
                    r"\s?(?:de |of |that's )?[$€£]?$", re.IGNORECASE)  # fmt: skip
_OTHERS = re.compile(r"\b(?:budget|quota|limit|planned|plans?|left|remaining|save[sd]?|saving|lost|loses?|wasted|used|queue|"
                     r"chain|earlier|later|ago|more|less|fewer|against|instead|within|every|each|first|last|next|between|"
                     r"from|if|unless|including|storage|plus)\b|%",
                     re.IGNORECASE)  # fmt: skip
"""Figures of something else than what the rest of the sentence works out."""
_SENTENCES = re.compile(rf"(?<=[^\d\s][.!?]){ABBREVIATED}\s(?=[^a-z])|(?<=\d[.!?])\s(?=[A-ZÀ-Ý*])|(?<=[;。])\s?|\s[–—]\s")


_CUES = ("hour", " h", "day", "token", "$", "€", "wh", "eur", "usd", "stunden", "tage", "heures", "jours", "horas", "días",
         "ore", "дн", "час", "时", "時", "天", "日")  # fmt: skip
"""Without one of these, in small letters, a text reckons nothing."""


@dataclass(frozen=True)
class Figure:
    """A figure of a sentence."""

    kind: str
    text: str
    value: float
    """In units of its kind."""
    open_: float
    """What its digits and its words leave open, as a logarithm."""
    line: int


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        if len(text.lines) <= MOST_LINES and text.has(*_CUES):
            rows = [row for mates in sheet.tables_of(file) for row in mates[:MOST_ROWS] if not is_aggregate(row)]
            places = [row.record.source_line or 0 for row in rows]
            heading: list[Figure] = []
            at = 0
            of_rows = str(file).endswith((".csv", ".tsv"))
            for paragraph in (_comments if of_rows else _paragraphs)(text.lines):
                for line in text.lines[at : paragraph[0][0]]:
                    if line.startswith("#"):
                        heading = [one for one in _figures(line, 0, [(len(line) + 1, 0)]) if one.kind in FROM_FIELDS]
                at = paragraph[-1][0]
                here = bisect.bisect_left(places, at)
                found += _told(file, paragraph, heading, rows[max(0, here - AROUND) : here + AROUND], text.lines)
    return found


def _comments(lines: tuple[str, ...]) -> Iterator[list[tuple[int, str]]]:
    """Of a file of commas, each in a line; and its rows, where they are short."""
    for number, line in enumerate(lines, 1):
        if not is_row_of_commas(line):
            yield [(number, line)]


def _paragraphs(lines: tuple[str, ...]) -> Iterator[list[tuple[int, str]]]:
    """Lines that belong together, with their numbers; those of tables are none."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate((*lines, ""), 1):
        if not line and not block:
            continue
        plain = line.strip()
        if not plain or plain[:1] in "|#=+<" or len(line) > LONGEST or plain.count(",") > 8:
            if block:
                yield block
            block = []
            continue
        if plain[:2] in ("- ", "* ", "+ ") and block:
            yield block
            block = []
        block.append((number, line))


def _told(file: str, block: list[tuple[int, str]], heading: list[Figure], rows: list[Row],
          lines: tuple[str, ...]) -> Iterator[Finding]:  # fmt: skip
    text = " ".join(line for _, line in block)
    if sum(map(str.isdigit, text)) < 3:
        return
    ends = []
    total = 0
    for number, line in block:
        total += len(line) + 1
        ends.append((total, number))
    before: list[Figure] = []
    start = 0
    for sentence in _split(text):
        at = text.index(sentence, start)
        start = at + len(sentence)
        figures = _read(sentence, at, ends)[:MOST_FIGURES]
        if figures:
            yield from _judged(file, sentence, figures, [*heading, *before], rows, lines)
        before = figures or before


def _split(text: str) -> list[str]:
    return [part for part in _SENTENCES.split(text) if part]


def _read(sentence: str, start: int, ends: Sequence[tuple[int, int]]) -> list[Figure]:
    """By the patterns of English, or by the units of any tongue where those read more."""
    told = spoken(plain(sentence)) if _DIGIT.search(sentence) else ()
    found = list(_figures(sentence, start, ends)) if any([one.kind in _KINDS for one in told]) else []
    others = [one for one in told if one.kind in _KINDS and not one.bound and not one.each
              and one.value and one.value >= FEWEST.get(one.kind, 0.0)]  # fmt: skip
    if len(others) <= len(found) or any(not math.isclose(one.value, other.value) for one in found for other in others
                                        if one.kind == other.kind and one.text == other.text):  # fmt: skip
        return found
    made = []
    for one in others:
        line = next(number for end, number in ends if start + one.start < end)
        open_ = 0.0 if one.kind in EXACT or one.kind.startswith("price") else one.half / one.value
        made.append(Figure(one.kind, one.text, one.value, min(0.5, open_ + (VAGUE if one.about else 0.0)), line))
    return made


_KINDS = frozenset(kind for kind, _, _ in _UNITS)


def _figures(sentence: str, start: int, ends: Sequence[tuple[int, int]]) -> Iterator[Figure]:
    if not _DIGIT.search(sentence):
        return
    plain = _THOUSANDS.sub("", sentence)
    english = in_english(plain)
    taken: list[tuple[int, int]] = []
    letters = english.casefold() + ("Wh" if "Wh" in english else "")
    cues = [cue for cue in _ALL_CUES if cue in letters] + ["#h"] * (_OF_TIME.search(letters) is not None)
    for kind, pattern, unit in _worth(frozenset(cues)):
        for match in pattern.finditer(english):
            if any(match.start(1) < end and begin < match.end(1) for begin, end in taken):
                continue
            taken.append((match.start(1), match.end(1)))
            shown = decimal(match[1])
            value = float(shown) * unit * many(match[2] if match.re.groups > 1 else None)
            if not 0 < value < digits.MOST_WORKED_OUT or value < FEWEST.get(kind, 0.0):
                continue  # so many are a sequence, or a batch
            priced = kind == "money" and value < MOST_OF_A_PRICE and _AT.search(english[: match.start()]) is not None
            its = "price of a device hour" if priced else kind
            open_ = 0.5 * 10.0 ** -len(shown.partition(".")[2]) / float(shown)
            open_ = 0.0 if its in EXACT or its.startswith("price") else open_
            about = VAGUE if _ABOUT.search(english[: match.start(1)]) else 0.0
            # Where a number of the text is in the line depends on what English is longer by.
            line = next(number for end, number in ends if start + sentence.find(match[1]) < end)
            yield Figure(its, match[1], value, min(0.5, open_ + about), line)
    for match in _SPELLED.finditer(english):
        yield Figure("nodes", match[0], float(_NUMBERS.index(match[1].lower()) + 1), 0.0, ends[0][1])


_DIGIT = re.compile(r"\d")
_POINTED = re.compile(r"\d{1,3}\.\d{3}")
_AT = re.compile(r"(?:\bat|@|\bzu|\bà|\ba|\bpor|\b(?:rate|price|tariff|cost)(?: is| of| being)?|\b(?:Satz|Preis|Tarif) von|"
                 r"\b(?:tarif|prix|tarifa|precio|prezzo|tariffa) (?:de|di)|\btimes|×|\bx)\s?(?:US|"
                 r"\()?$", re.IGNORECASE)  # fmt: skip
MOST_OF_A_PRICE = 100.0
MOSTLY = 0.7
FEWEST = {"tokens": 1e6, "samples": 5e3}
EXACT = ("devices", "nodes", "sequence", "steps", "tokens", "tokens of a step")
"""What is chosen or counted."""
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
_SPELLED = re.compile(rf"\b({'|'.join(_NUMBERS)}) nodes?\b", re.IGNORECASE)


# ---- what a sentence is held against

_RATES = ("tokens a second", "device tokens a second", "step seconds", "samples a second")


def _judged(file: str, sentence: str, figures: list[Figure], before: list[Figure], rows: list[Row],
            lines: tuple[str, ...]) -> Iterator[Finding]:  # fmt: skip
    kinds: dict[str, list[Figure]] = {}
    for one in figures:
        kinds.setdefault(one.kind, []).append(one)
    given = {kind: some[0] for kind, some in kinds.items() if len(some) == 1}
    if len(given) + bool(before) + bool(rows) < 2 or not given.keys() & AMOUNTS:
        return
    carried = {one.kind: one for one in before
               if one.kind not in kinds and (one.kind not in AMOUNTS or one.kind in ("tokens", "samples"))}  # fmt: skip
    known = {"price of a device hour": prices(lines).get("hour"), "price of energy": prices(lines).get("kwh")}
    stated = {kind: price for kind, price in known.items() if price and price < digits.MOST_WORKED_OUT and kind not in kinds}
    broken: list[tuple[Equation, float, float]] = []
    fine: set[str] = set()
    for equation in _of_sentence(frozenset(given), frozenset(carried), frozenset(stated), bool(rows)):
        ways = list(_ways(equation, given, carried, stated, rows, sentence))
        if not ways:
            continue
        # A point before three digits parts decimals or thousands.
        shifts = [0.0, *(power * math.log(1000.0) for kind, power in equation.powers
                         if (its := given.get(kind) or carried.get(kind)) and _POINTED.fullmatch(its.text))]  # fmt: skip
        if any(abs(off + shift) <= NEAR + may for off, may, _ in ways for shift in shifts):
            fine |= {kind for kind, _ in equation.powers if kind in given}
            continue
        named = [(off, may) for off, may, surely in ways if surely]
        if named and all(abs(off) > OFF + may for off, may in named):
            off, may = min(named, key=lambda one: abs(one[0]))
            broken.append((equation, off, may))
    parts = [{kind for kind, _ in equation.powers} for equation, _, _ in broken]
    if not broken or any(len(kinds[kind]) > 1 for kind in set.union(*parts) & kinds.keys()):
        return
    candidates = [kind for kind in given if kind not in fine and all(kind in part for part in parts)]
    meant = [made for kind in candidates if (made := _meant(given[kind], *_needed(kind, broken))) is not None]
    clear = [one for one in meant if one[2]]
    best = min(clear or [], key=lambda one: ((*WORKED_OUT, one[0].kind).index(one[0].kind)), default=None)
    own = meant if any(all(kind in given for kind, _ in equation.powers) for equation, _, _ in broken) else []
    if best is None and own and not _OTHERS.search(sentence):
        printed = {float(decimal(one)) for line in lines if line.lstrip()[:1] == "|" for one in NUMBER.findall(line)} - {0.0}
        shown = [one for one in own if any(abs(float(decimal(one[1])) / value - 1) < NEAR / 4 for value in printed)]
        best = shown[0] if len(shown) == 1 else min(own, key=lambda one: (*WORKED_OUT, one[0].kind).index(one[0].kind))
    if best is None or not own and _OTHERS.search(sentence) and len(clear) > 1:
        return
    figure, right, why = best
    if _is_a_sum(figure.text, lines) or any(abs(abs(math.log(float(decimal(match[1])))) - abs(broken[0][1])) < NEAR
                                            for match in FACTOR.finditer(sentence) if float(decimal(match[1]))):  # fmt: skip
        return
    if figure.kind == "hours" and why.startswith(" (those are"):
        hours = figure.value * (24.0 if "days" in why else 1 / 24)
        right = in_another_unit(figure.text, plain(sentence).partition(figure.text)[2], hours) or right
    law = broken[0][0]
    what = " and ".join(kind for kind, _ in law.powers if kind != figure.kind)
    message = f"{figure.text} -> {right}{why}: by {what} it is {right}"
    yield Finding(file=file, line=figure.line, code="aggregate", level="error", message=message, column=figure.kind,
                  printed=figure.text, proposed=right)  # fmt: skip


def _is_a_sum(text: str, lines: tuple[str, ...]) -> bool:
    """Whether a column of a table that stands there adds up to it: devices come and go in a log of weeks."""
    whole = digits.alone(text.replace(" ", "")) if sum(map(str.isdigit, text)) > 3 else None
    columns: dict[int, float] = {}
    for line in (*lines, "") if whole else ():
        if line.lstrip()[:1] == "|":
            for at, cell in enumerate(line.split("|")):
                columns[at] = columns.get(at, 0.0) + (digits.alone(cell.strip()) or 0.0)
        elif any(value and abs(value / whole - 1) < CLOSE for value in columns.values()):  # type: ignore[operator]
            return True
        else:
            columns = {}
    return False


CLOSE = 0.001


@functools.lru_cache(maxsize=512)
def _of_sentence(given: frozenset[str], carried: frozenset[str], stated: frozenset[str], rows: bool) -> tuple[Equation, ...]:
    """Laws between at least two figures of a sentence, or one and a row's rate, and what else is known."""
    known = given | carried | stated | (frozenset(FIELDS.values()) if rows else frozenset())
    slow = given | carried | stated | ({"batch", "sequence", "devices", "nodes"} if rows else frozenset())
    return tuple(one for one in dict.fromkeys((*equations(known), *equations(frozenset(slow)))) if not one.free and not one.past
                 and sum(kind in given or kind in carried and kind in AMOUNTS for kind, _ in one.powers) > 1
                 and any(kind in given for kind, _ in one.powers if kind in AMOUNTS))  # fmt: skip


def _ways(equation: Equation, given: dict[str, Figure], carried: dict[str, Figure], stated: dict[str, float], rows: list[Row],
          sentence: str) -> Iterator[tuple[float, float, bool]]:  # fmt: skip
    """By what the sentence is off, what is left open, and whether it is held against what it speaks of."""
    base, open_, wanted = equation.constant, 0.0, []
    for kind, power in equation.powers:
        one = given.get(kind) or carried.get(kind)
        if one is not None:
            base += power * math.log(one.value)
            open_ += one.open_
        elif kind in stated:
            base += power * math.log(stated[kind])
        else:
            wanted.append((kind, power))
    if not wanted:
        yield base, open_, True
        return
    if any(kind not in _FROM_ROWS for kind, _ in wanted):
        return
    offs: dict[Row, float] = {}
    for row in rows:
        values = [value for kind, _ in wanted if (value := _of_row(row, kind))]
        if len(values) == len(wanted):
            offs[row] = base + sum(power * math.log(value) for (_, power), value in zip(wanted, values))
    speaking = _named(sentence, given, rows)
    for row, off in offs.items():  # of the rows that it names, or of what most of them have
        most = not speaking and sum(abs(off - other) < NEAR for other in offs.values()) >= MOSTLY * len(offs)
        yield off, open_, most or row in speaking


_FROM_ROWS = {kind: name for name, kind in FIELDS.items()}


def _of_row(row: Row, kind: str) -> float | None:
    value = row.world if kind == "devices" else row.seq if kind == "sequence" else row.get(_FROM_ROWS[kind])
    return float(value) if value and 0 < value < digits.MOST_WORKED_OUT else None


def _named(sentence: str, given: dict[str, Figure], rows: list[Row]) -> set[Row]:
    """The rows that a sentence speaks of: by its devices or nodes, and the words of a cell; of many none for sure."""
    some = rows
    for kind in ("devices", "nodes"):
        some = [row for row in some if kind in given and _of_row(row, kind) == given[kind].value] or some
    words = sentence.casefold()
    labels = {row: [label for label in (row.record.size_label, next(iter(row.cells.values()), "")) if label] for row in some}
    told = [row for row in some if any(re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])", words)
            for one in labels[row] if len(word := clean(one).casefold()) > 1 and not word.isdecimal())]  # fmt: skip
    some = told or (some if len(some) < len(rows) else [])
    return {*some} if len(some) <= 3 else set()


def _needed(kind: str, broken: list[tuple[Equation, float, float]]) -> tuple[float, float]:
    """By which logarithm a figure is too small, by the law that tells it best."""
    equation, off, may = min(broken, key=lambda one: one[2])
    return -off * dict(equation.powers)[kind], max(0.015, may)


def _meant(figure: Figure, more: float, open_: float) -> tuple[Figure, str, str] | None:
    shown = decimal(figure.text.replace(" ", ""))
    value = float(shown) * math.exp(min(more, 50.0))
    if not 0 < value < digits.MOST_WORKED_OUT or figure.kind in FROM_FIELDS and figure.kind not in ("devices", "nodes"):
        return None
    slips = [slip for slip in digits.slips(shown, (value * math.exp(-open_), value * math.exp(open_))) if slip.how in CLEAR]
    if slips:
        best = min(slips, key=lambda slip: abs(math.log(slip.value / value)))
        return figure, _like(figure.text, best.text), f" ({best.how})"
    times, why = next(((one, why) for one, why in _MISTAKEN.items() if abs(more - math.log(one)) < open_ + 0.01), (0.0, ""))
    value = float(shown) * times if 8 > times > 1000 or times in (8.0, 4.0, 2.0, 0.5, 0.25, 0.125) else value
    fine = max(2, len(re.sub(r"\D", "", shown).strip("0")))
    text = f"{value:.{fine}g}" if why and value < 10**fine else f"{value:.{len(shown.partition('.')[2])}f}"
    return figure, _like(figure.text, text), f" ({why})" if why else ""


_MISTAKEN = {1 / 24: "those are hours", 24.0: "those are days", 1 / 60: "those are minutes", 60.0: "those are seconds",
             8.0: "of one device of each node", 0.125: "of a node", 4.0: "of one device of each node", 0.25: "of a node",
             1000.0: "a thousand times", 1e-3: "a thousand times",
             2.0: "of half of them", 0.5: "of twice as many"}  # fmt: skip
"""What a figure lacks -> which unit or count was mistaken."""


def _like(printed: str, text: str) -> str:
    if re.search(r"\d,\d{3}", printed) and text.isdigit():
        return f"{int(text):,}"
    return text.replace(".", ",") if re.search(r"\d,\d{1,2}(?!\d)", printed) else text
