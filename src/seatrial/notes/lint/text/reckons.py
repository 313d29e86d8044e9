"""Sentences that reckon for themselves, in any tongue: what follows from what in one sentence, and which figure of it is wrong.

    check(sheet)          findings, each of one figure of a sentence

    15.4 days on 512 GPUs are 18,923 GPU-hours, or $416k at $2.20.          189,235: the money is that of the days as well
    32,222 GPU hours, or $7,089 at our internal rate of $2.20               70,888
    4096 sequences of 4096 tokens, i.e. 1.68 million tokens per step        16.8
    512 GPUs at 700 W for 15.4 days are 312 MWh.                            132

Each law is a product (see `LAWS`). It holds where any figures of its kinds do; it is broken where there is one of each kind and
they do not. Wrong is the figure that all broken laws have and no holding one, of those the one that is worked out.
"""
from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from seatrial.notes.either import either
from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import scope_of
from seatrial.notes.lint.text.columns_of import Columns
from seatrial.notes.lint.text.figures import FACTOR, Figure, figures
from seatrial.notes.lint.text.mentions import mentions, spoken_of
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.read.sentences import read_sentence
from seatrial.tables.headings import NUMBER, decimal

MOST_LINES, MOST_WAYS, MOST_FIGURES, SAID_AGAIN, AGAIN = 4000, 48, 14, 8, 0.03
NEAR, OFF, CLEARLY, FAR = 0.03, 0.07, 0.03, 5.0
"""Beyond what the digits leave open: within which a law holds, from which logarithm on it is broken, where a slip of the hand
explains it from which, and beyond which factor only such a slip or a mistaken unit does."""
MISTAKEN = (8.0, 24.0, 60.0, 1000.0, 3600.0)
"""Of a node, days for hours, minutes, thousands, seconds."""
CLEAR = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost")
LAWS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("device hours", ("hours", "devices"), 1.0),
    ("node hours", ("hours", "nodes"), 1.0),
    ("money", ("device hours", "price of a device hour"), 1.0),
    ("money", ("hours", "devices", "price of a device hour"), 1.0),
    ("energy", ("device hours", "power of a device"), 1.0),
    ("energy", ("hours", "devices", "power of a device"), 1.0),
    ("carbon", ("energy", "carbon of energy"), 1.0),
    ("energy", ("hours", "power"), 1.0),
    ("money", ("energy", "price of energy"), 1.0),
    ("energy of the site", ("energy", "overhead of the site"), 1.0),
    ("hours", ("steps", "step seconds"), 1 / 3600),
    ("tokens", ("steps", "tokens of a step"), 1.0),
    ("tokens", ("steps", "samples", "sequence"), 1.0),
    ("tokens of a step", ("samples", "sequence"), 1.0),
    ("tokens of a step", ("tokens a second", "step seconds"), 1.0),
    ("hours", ("tokens", "tokens a second"), 1 / 3600),
)  # fmt: skip
"""What is worked out, of what, and times how much."""
_N = rf"(?<![\w.,])({NUMBER.pattern})"
_DEVICE = r"(?:GPUs?|[HNT]PUs?|devices?|cards?|chips?|GCDs?|accelerators?|[AHBVL]\d{2,3}s?|karten|cartes|tarjetas|schede|卡|枚)"
_HOUR = r"(?:hours?|hr|h|stunden?|std|heures?|horas?|ora|ore|uur|час\w*|时|小时|時間|시간)"
_PRICE = re.compile(r"(?:(?:\bat|@|\bzu(?: je)?|\ba|\bpor|\bper|[×x]|\btimes|(?:rate|price|tariff|cost)(?: is| of| being)?|"
                    r"(?:satz|preis|tarif) von|(?:tarif|prix|tarifa|precio|prezzo|tariffa)(?: de| di)?) (?:about )?|[@×] ?)"
                    r"(?:US)?[$€£]?\s?$", re.IGNORECASE)  # fmt: skip
_EACH = re.compile(rf"\s?(?:each\b|an hour\b|a {_DEVICE}[- ]{_HOUR}\b|/ ?h\b|(?:per|pro|je|die|par|la|l'|por|all'|"
                   rf"/) ?(?:{_DEVICE}[- ]?)?"
                   rf"{_HOUR}\b)", re.IGNORECASE)  # fmt: skip
_PRICED = re.compile(rf"\b(?:at|for|zu|a|por) {_N} (?:a|per|je|pro|par|por|/) ?{_DEVICE}[- ]?{_HOUR}\b", re.IGNORECASE)
_TIMES = re.compile(r"(?:\btimes|[×x]|\bmal|\bfois|\bpor|\bper) (\d{1,6})\b(?! ?(?:%|[a-z]*[.,]\d|h\b|hours|days|s\b|\$|€|"
                    r"tok))")
_PUE = re.compile(rf"\bPUE\b(?: (?:of|is|was|von|de|di|=))? ?({NUMBER.pattern})")
_CARBON = re.compile(rf"{_N} ?(kg|g|t|tons?|tonnes?|tonnen|toneladas|tonnellate)(?: (?:of|de|di|von))? ?CO2?₂?(?:e|eq)?\b"
                     rf"(?! ?/| per)", re.IGNORECASE)  # fmt: skip
_INTENSITY = re.compile(rf"{_N} ?(kg|g)(?: ?CO2(?:e|eq)?)?(?: ?/ ?| per | je | pro | par | por | al )kWh", re.IGNORECASE)
_OF_TOKENS = re.compile(r"(?:\b(?:of|zu(?: je)?|de|di|a|with|mit|con|avec)|[×x]) $", re.IGNORECASE)
_A_STEP = re.compile(r"\b(?:per|a|each|every|pro|je|par|por|ogni) (?:step|batch|update|iteration|schritt|pas|paso|passo|"
                     r"etape)\b|"
                     r"\bbatch\b|\bbatches\b|batch ?size|バッチ|批", re.IGNORECASE)  # fmt: skip
_SPELLED = {"one": 1, "a": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
            "ten": 10, "zwei": 2, "drei": 3, "vier": 4, "deux": 2, "trois": 3, "quatre": 4, "dos": 2, "tres": 3, "cuatro": 4,
            "due": 2, "tre": 3, "quattro": 4}  # fmt: skip
_WEEKS = either(rf"\b({'|'.join(_SPELLED)}) (?:(weeks?|wochen|semaines|semanas|settimane)|"
                r"(days|tage|jours|dias|giorni))\b")  # fmt: skip
_OTHERS = re.compile(
    r"\b(?:save[sd]?|saving|left|remaining|remain|used?|had|of them|instead|more|less|fewer|than|up to|at least|at most|"
    r"queue\w*|discount|idle|"
    r"lost|wasted|without|within|restarts?|budget|quota|limit|planned|ago|later|earlier|if|unless|every|first|last|next|"
    r"between|"
    r"of which|except|including|storage|plus|extra|on top|other|others|half|cheaper|dearer|would have|could have|weniger|"
    r"mehr|ohne|sans|sin|"
    r"moins|menos|meno|davon|dont|\d+ ?%)\b|%", re.IGNORECASE)  # fmt: skip
"""Of something else than what the rest of the sentence gives: only a slip of the hand tells."""
OF_A_STEP = ("samples", "sequence", "tokens of a step")
_RESULTS = tuple(dict.fromkeys(result for result, _, _ in LAWS))
_CHOSEN = frozenset(("devices", "nodes", "sequence", "steps", "samples", "price of a device hour", "price of energy",
                     "carbon of energy", "overhead of the site", "power of a device"))  # fmt: skip


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        if len(text.lines) > MOST_LINES:
            continue
        tables = sheet.tables_beside(file)
        before: tuple[Sentence, dict[str, list[Figure]]] | None = None
        for sentence in text.sentences:
            if len(figures(sentence.text)) > MOST_FIGURES:
                before = None
                continue
            its = read(sentence.text)
            near = before[1] if before is not None and sentence.first - before[0].last < 2 else {}
            found += _told_twice(file, sentence)
            if its:
                found += _judged(file, sentence, its, near, tables, text.lines)
            before = (sentence, its)
    return list({(sheet.names.get(one.file, one.file), one.line, one.printed): one for one in found}.values())


def _made(kind: str, match: re.Match[str], scale: float = 1.0) -> Figure:
    value = float(decimal(match[1])) * scale
    return Figure(kind, match[1], match.start(1), match.end(1), (value,), scale)


def read(text: str) -> dict[str, list[Figure]]:
    """The figures of a sentence by their kinds, in its order."""
    found: list[Figure] = []
    told = figures(text)
    if not told:
        return {}
    own: list[Figure] = []
    for match in _CARBON.finditer(text):
        own.append(_made("carbon", match, {"k": 1.0, "g": 1e-3}.get(match[2][0].lower(), 1e3)))
    own += [_made("carbon of energy", match, 1.0 if match[2].lower() == "kg" else 1e-3) for match in _INTENSITY.finditer(text)]
    own += [_made("overhead of the site", match) for match in _PUE.finditer(text)]
    own += [_made("price of a device hour", match) for match in _PRICED.finditer(text)]
    hours = any(one.kind in ("hours", "device hours") for one in told)
    own += [_made("devices", match) for match in _TIMES.finditer(text) if hours]
    for match in _WEEKS.finditer(text):
        scale = 168.0 if match[2] else 24.0
        own.append(Figure("hours", match[1], match.start(1), match.end(1), (_SPELLED[match[1].casefold()] * scale,), scale))
    own = [one for one in own if 0 < one.value < digits.MOST_WORKED_OUT]
    own += _settings(text, told)
    taken = [(one.start, one.end) for one in own]
    for one in told:
        if any(start < one.end and one.start < end for start, end in taken):
            continue
        kind = one.kind
        if kind == "money" and one.value < 100 and (_PRICE.search(text[: one.start]) or _EACH.match(text, one.end)):
            kind = "price of a device hour"
        elif kind == "power" and one.value < 3:
            kind = "power of a device"
        elif kind == "tokens" and one.value < 3e6 and _OF_TOKENS.search(text[: one.start]):
            kind = "sequence"
        elif kind == "tokens" and 1e5 <= one.value < 3e8 and (_A_STEP.search(text) or _STEPPED.match(text, one.end)):
            kind = "tokens of a step"
        again = any([other.kind == kind and abs(other.value - one.value) < AGAIN * one.value
                     and 0 <= one.start - other.end < SAID_AGAIN and _AGAIN.fullmatch(text[other.end : one.start])
                     for other in found])  # fmt: skip
        if not again:  # `one day (24 hours)` is one
            values = (one.value, 1000 * one.value) if one.scale >= 1e3 and _THOUSANDS.fullmatch(one.text) else one.values
            found.append(replace(one, kind=kind, values=values))
    kinds: dict[str, list[Figure]] = {}
    for one in sorted([*found, *own], key=lambda one: one.start):
        kinds.setdefault(one.kind, []).append(one)
    energy = kinds.get("energy", [])
    if "overhead of the site" in kinds and len(energy) == 2:
        kinds["energy"], kinds["energy of the site"] = energy[:1], energy[1:]
    if "samples" in kinds and "sequence" in kinds and "steps" not in kinds and len(kinds.get("tokens", ())) == 1:
        kinds.setdefault("tokens of a step", kinds.pop("tokens"))
    return kinds


_A_SETTING = {"seq": "sequence", "gbs": "samples"}


def _settings(text: str, told: tuple[Figure, ...]) -> list[Figure]:
    """The sequence and the batch that it states beside tokens, where only one number of it is as many."""
    found: list[Figure] = []
    for name, value in read_sentence(text).items():
        kind = _A_SETTING.get(name)
        places = [match for match in _COUNT.finditer(text) if float(decimal(match[0])) == value] if kind else []
        if kind and len(places) == 1:
            start, end = places[0].span()
            its = next((one for one in told if one.start == start), None)
            if its is None or its.kind in ("tokens", "samples", "tokens of a step"):
                end = its.end if its is not None else end
                found.append(Figure(kind, places[0][0], start, end, (float(value),), 1.0))  # type: ignore[arg-type]
    return found


_COUNT = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\d,]*\d)|(?<![\w.,])\d+(?![\w]|[.,]\d)")
_AGAIN = re.compile(r"[ \w]{0,3}[=(（,] ?(?:i\.e\. |or )?|,? (?:or|i\.e\.|that is|=) ")
"""Between the same said twice: `97 h = 4.0 days`."""
_SAID_TWICE = re.compile(
    r"\s?(?:(?: ?\w+){0,2} ?\(|[（=]|[,;]? ?(?:i\.e\.|that is|or|which is|das sind|das ist|also|oder|d\.h\.|soit|ossia|"
    r"cioe|ou|dus|es decir|o sea|или|т\.е\.|即|つまり|is),?|,) ?"
    r"(?:(?:about|around|some|roughly|rund|etwa|environ|circa|unos|ca\.|约|約|~|≈) ?)?", re.IGNORECASE)  # fmt: skip
_TWICE = frozenset(("hours", "tokens a second", "tokens", "tokens of a step", "energy"))


def _told_twice(file: str, sentence: Sentence) -> Iterator[Finding]:
    """One amount in two units, `88 h, that is 3.7 days`, of which a slip of the hand made one."""
    for one, other in itertools.pairwise(figures(sentence.text)):
        between = sentence.text[one.end : other.start]
        alike = one.kind == other.kind in _TWICE and one.scale != other.scale and not one.bound and not other.bound
        if not alike or not _SAID_TWICE.fullmatch(between):
            continue
        width = NEAR + 0.02 + one.half / one.value + other.half / other.value + (0.1 if one.about or other.about else 0.0)
        off = abs(math.log(other.value / one.value))
        if off <= width or off > math.log(60) or any(abs(off - math.log(times)) < width for times in (1.048576, 1.073741824)):
            continue
        first = replace(other, values=(one.value,))
        meant = one.value / other.scale
        found = digits.slips(other.text.replace(" ", ""), (meant * math.exp(-width), meant * math.exp(width)))
        slip = next((slip for slip in found if slip.how in CLEAR), None)
        if slip is not None:
            right = other.like(first.value)
            message = f"{other.text} -> {right} ({slip.how}): {one.text} before it are as many"
            yield Finding(file=file, line=sentence.line_at(other.start), code="aggregate", level="error", message=message,
                          column=other.kind, printed=other.text, proposed=right)  # fmt: skip


_THOUSANDS = re.compile(r"[1-9]\d{0,2}[.]\d{3}")
"""`1.200 Mrd.` may be either."""
_STEPPED = re.compile(r" each\b", re.IGNORECASE)


@dataclass(frozen=True)
class _Broken:
    result: str
    parts: tuple[str, ...]
    off: float
    """By which logarithm the result is too large."""
    open_: float


def _judged(file: str, sentence: Sentence, its: dict[str, list[Figure]], near: dict[str, list[Figure]], tables: list[list[Row]],
            lines: tuple[str, ...]) -> Iterator[Finding]:  # fmt: skip
    known = dict(its)
    for kind, values in (("sequence", {row.seq for rows in tables for row in rows}),
                         ("samples", {row.record.gbs for rows in tables for row in rows})):  # fmt: skip
        value = next(iter(values)) if len(values) == 1 else None
        if kind not in known and value and known.keys() & {"tokens", "tokens of a step"}:
            known[kind] = near.get(kind) or [Figure(kind, str(value), -1, -1, (float(value),), 1.0)]
    if "samples" in its and "sequence" in known and not known.keys() & {"steps", "tokens of a step"} and len(
            known.get("tokens", ())) == 1 and known["tokens"][0].scale > 1.0:  # fmt: skip
        its = {**its, "tokens of a step": its["tokens"]}
        known["tokens of a step"] = known.pop("tokens")
    if "devices" not in known and "hours" in known and known.keys() & {"device hours", "money"} and tables:
        many = _devices(sentence, its, tables, lines)
        known |= {"devices": [Figure("devices", str(many), -1, -1, (float(many),), 1.0)]} if many else {}
    for kind in ("device hours", "price of a device hour", "energy", "samples", "sequence",
                 *(("hours",) if "power" in known else ())):  # fmt: skip
        if kind not in known and kind in near:
            known[kind] = near[kind]
    broken: list[_Broken] = []
    holding: set[str] = set()
    for result, parts, times in LAWS:
        kinds = (result, *parts)
        of_rows = result == "tokens of a step" and not its.keys() & {*parts}
        if any(kind not in known for kind in kinds) or sum(kind in its for kind in kinds) < 2 - of_rows or result not in its:
            continue
        if result == "tokens of a step" and any(_is_of_a_step(one, tables, sentence.text) for one in its[result]):
            holding.add(result)
        ways = list(itertools.islice(itertools.product(*(known[kind] for kind in kinds)), MOST_WAYS))
        offs = [(_off(way, times), sum(_open(one) for one in way)) for way in ways]
        if "power of a device" in parts and "overhead of the site" in known:  # of the site it is more
            more = math.log(known["overhead of the site"][0].value)
            if any(abs(off - more) <= NEAR + open_ for off, open_ in offs):
                continue
        if any(abs(off) <= NEAR + open_ for off, open_ in offs):
            holding |= {*kinds}
        elif len(ways) == 1 or result == "device hours" and _summed(known) or (
                end := _which(sentence.text, parts, its, known)) is not None:  # fmt: skip
            off, open_ = offs[0] if len(ways) == 1 else offs[-1] if result == "device hours" else offs[end or 0]
            broken.append(_Broken(result, parts, off, open_))
    broken = [one for one in broken if abs(one.off) < math.log(digits.MOST_WORKED_OUT)]  # nobody mistakes one for the other
    if not broken or any(one.bound for kind in {broken[0].result, *broken[0].parts} for one in known[kind]):
        return
    first = broken[0]
    candidates = [kind for kind in (first.result, *first.parts) if kind not in holding and kind in its
                  and all(kind == one.result or kind in one.parts for one in broken)]  # fmt: skip
    slips = {kind: made for kind in candidates if (made := _slip(known[kind][-1], first, kind)) is not None}
    others = _OTHERS.search(sentence.text) is not None
    known_ = [kind for kind in candidates if _stands(known[kind][-1], first, kind, sentence, tables, lines)]
    worked_out = [kind for kind in candidates if kind == first.result or kind not in _CHOSEN]
    chosen = known_[0] if len(known_) == 1 else next(iter(worked_out), "")
    if chosen not in slips and len(slips) == 1 and (chosen == "" or next(iter(slips)) not in _CHOSEN or len(candidates) == 1):
        chosen = next(iter(slips))
    if not chosen:
        return
    one, slip = known[chosen][-1], slips.get(chosen)
    off = abs(first.off)
    mistaken = any(abs(off - math.log(times)) < 0.03 for times in MISTAKEN)
    if any(abs(off - abs(math.log(float(decimal(match[1]))))) < NEAR + first.open_ for match in FACTOR.finditer(sentence.text)
           if float(decimal(match[1]))):  # fmt: skip
        return  # `262 h, times 256 GCDs times 0.5`
    if others and slip is None or off < (CLEARLY if slip and one.fine > 2 else OFF) + first.open_ or (
            off > math.log(FAR) and slip is None and not mistaken):  # fmt: skip
        return
    meant = one.value * math.exp(-first.off if chosen == first.result else first.off)
    right = one.like(meant)
    if slip is not None and slip.how == "the point moved" and "." in slip.text and one.fine < 5:
        right = slip.text.replace(".", ",") if "," in one.text else slip.text
    what = " and ".join(kind for kind in (first.result, *first.parts) if kind != chosen)
    message = f"{one.text} -> {right}{f' ({slip.how})' if slip else ''}: by {what} of the sentence it is {right}"
    yield Finding(file=file, line=sentence.line_at(one.start), code="aggregate", level="error", message=message, column=chosen,
                  printed=one.text, proposed=right)  # fmt: skip


def _is_of_a_step(one: Figure, tables: list[list[Row]], text: str) -> bool:
    """Whether the rate and the time of a row give as many tokens, or two counts of the sentence: then what else is said of the
    batch is wrong."""
    counts = [float(decimal(match[0])) for match in itertools.islice(_COUNT.finditer(text), MOST_FIGURES)]
    if any(one.near(a * b, NEAR) for a, b in itertools.combinations(counts, 2)):
        return True
    return any(one.near(rate * seconds, NEAR) for rows in tables for row in rows
               if (rate := row.record.tokens_per_s or (row.record.tokens_per_s_per_process or 0.0) * (row.world or 0))
               and (seconds := row.record.sec_per_it))  # fmt: skip


def _devices(sentence: Sentence, its: dict[str, list[Figure]], tables: list[list[Row]], lines: tuple[str, ...]) -> int:
    """Of the row that the sentence names."""
    scope = scope_of(tables, lines, sentence.line)
    rows = list(scope.last)
    places = [(one.start, one.end) for some in its.values() for one in some]
    some = [one for one in mentions(sentence.text, rows) if not any(start <= one.start < end for start, end in places)
            ] if rows else []  # fmt: skip
    worlds = {row.world for row in spoken_of(some, rows)} if some else set()
    return next(iter(worlds)) or 0 if len(worlds) == 1 else 0


_SMALLER = re.compile(r"\b(?:smaller|cheaper|kleinere?n?|plus petite?|menor|mas pequen\w+|piu piccol\w+)\b", re.IGNORECASE)
_LARGER = re.compile(r"\b(?:larger|bigger|grossere?n?|plus grande?|mayor|maior|mas grande|piu grande)\b", re.IGNORECASE)


def _which(text: str, parts: tuple[str, ...], its: dict[str, list[Figure]], known: dict[str, list[Figure]]) -> int | None:
    """Of two figures that the sentence before compares the one of the smaller, or the larger, machine."""
    pairs = [kind for kind in parts if len(known[kind]) == 2 and kind not in its]
    less = _SMALLER.search(text) is not None
    if len(pairs) != 1 or less == (_LARGER.search(text) is not None) or any(
            len(known[kind]) > 1 for kind in parts if kind not in pairs):  # fmt: skip
        return None
    one, other = known[pairs[0]]
    return int((one.value > other.value) == less)


def _summed(its: dict[str, list[Figure]]) -> bool:
    """Whether the last of several times is the sum of those before it: `16.9 h + 8.4 h = 25.3 h`."""
    hours = its.get("hours", [])
    return len(hours) > 2 and len(its["devices"]) == len(its["device hours"]) == 1 and abs(
        sum(one.value for one in hours[:-1]) / hours[-1].value - 1) < 0.02  # fmt: skip


def _off(way: tuple[Figure, ...], times: float) -> float:
    """The logarithm of the result over what its parts give; where a point may part thousands the nearer."""
    offs = [math.log(values[0]) - sum(map(math.log, values[1:])) - math.log(times)
            for values in itertools.product(*(one.values for one in way))]  # fmt: skip
    return min(offs, key=abs)


def _open(one: Figure) -> float:
    exact = one.kind in _COUNTED or one.kind.startswith("price")
    return (0.12 if one.about else 0.0) + (0.0 if exact else min(0.4, one.half / one.value))


_COUNTED = frozenset(("devices", "nodes", "steps", "samples", "sequence", "overhead of the site"))


def _stands(one: Figure, law: _Broken, kind: str, sentence: Sentence, tables: list[list[Row]], lines: tuple[str, ...]) -> bool:
    """Whether what a figure should be stands elsewhere, or is what the rows above add up to."""
    meant = one.value * math.exp(-law.off if kind == law.result else law.off)
    rows = list(scope_of(tables, lines, sentence.line).last) if tables else []
    for column in Columns(tuple(rows)).of(kind) if rows else ():
        if column.kind == kind and abs(math.fsum(column.values.values()) / meant - 1) < NEAR / 3 + one.half / one.value:
            return True
    text = one.like(meant)
    form = re.compile(rf"(?<![\d.,]){re.escape(text)}(?![.,]?\d)")
    return len(re.sub(r"\D", "", text)) > 2 and any(text in line and form.search(line) for at, line in enumerate(lines, 1)
                                                   if not sentence.first <= at <= sentence.last)  # fmt: skip


def _slip(one: Figure, law: _Broken, kind: str) -> digits.Slip | None:
    meant = one.value * math.exp(-law.off if kind == law.result else law.off) / one.scale
    width = max(0.012, law.open_)
    found = digits.slips(one.text.replace(" ", ""), (meant * (1 - width), meant * (1 + width)))
    return next((slip for slip in found if slip.how in CLEAR), None)
