"""What a sentence says one row is against another: 39 % less, 1.48x, twice the time.

    check(sheet)          findings on sentences whose rows give another ratio

    LoRA against full: 60% saved ($12.67 for $21.19).               12.67 / 21.19 saves 40 %
    mxfp8 in the layout of row 5 is 1.84x of bf16                   11,921 / 8,042 are 1.48

The rows are those that the sentence names: by their number, by a word of a cell, by a count with its unit, by a figure that it
repeats. Nothing is said where any two of them give the ratio in any column, or two figures of the text do; and of the
others only where a slip of the hand leads from what they do give to what is printed.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import field_of
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import CONFIGURATION, Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import NUMBER, clean, decimal, normal
from seatrial.tables.tongues import in_english, plain_letters

MOST_ROWS, MOST_LINES, LONGEST = 24, 4000, 1200
FEWEST_DIGITS = 3
"""Of a figure that names the row that it stands in."""
GROSS = 0.05
"""By how much a ratio has to be off, as a logarithm, to be another one and no mean of other steps."""
_NUMBER = rf"(?<![\w.,$€£-])({NUMBER.pattern})"
_LESS = (r"less|fewer|saved|savings?|cheaper|lower|smaller|shorter|off|reduction|moins|menos|meno|weniger|billiger|gunstiger|"
         r"niedriger|geringer|inferieur\w*|minder|mniej|меньше|дешевле|goedkoper|kurzer|gespart|taniej")
_MORE = (r"more|faster|slower|higher|quicker|longer|larger|dearer|pricier|gain|extra|above|plus|mas|piu|mais|mehr|schneller|"
         r"langsamer|hoher|teurer|meer|sneller|trager|wiecej|szybciej|больше|быстрее|медленнее|дороже|speed-?up|rapide|rapido")
_PERCENT = re.compile(rf"{_NUMBER}\s?(?:%|percent|per cent|Prozent)\s(?:de |in )?(?:(?P<less>{_LESS})|(?P<more>{_MORE}))\b",
                      re.IGNORECASE)  # fmt: skip
_BY = re.compile(rf"\b(?:by|um|de|del|di|por|на)\s(?:(?:an?|un|una|ein|about|rund|etwa|some) )?{_NUMBER}\s?%", re.IGNORECASE)
_CHANGES = re.compile(r"\b(?P<less>goes down|falls?|drops?|shrinks?|decreases?|reduces?|cuts?|sinkt|fallt|baisse|baja|cae|"
                      r"reduce|cala|снижает\w*)\b|\b(?P<more>goes up|grows?|rises?|increases?|improves?|beats?|wins?|"
                      r"outperforms?|leads?|steigt|wachst|schlagt|gewinnt|gana|gagne|supera|vince|augmente|sube|aumenta|"
                      r"cresce|растет|вырос\w*)\b", re.IGNORECASE)  # fmt: skip
_TIMES = re.compile(rf"{_NUMBER}\s?(?:[x×](?=\s*(?:$|[.,;:)!?]|[a-z(]))(?!\s*(?:gpu|node|box|card|chip))|"
                    r"times(?! \d)|fois\b|veces\b|volte\b|vezes\b|mal\b|-?fach\w*|раза?\b|倍|배)", re.IGNORECASE)  # fmt: skip
_MULTIPLIED = re.compile(rf"\bmultipli\w+ .{{0,40}}?\b(?:par|por|per|by|mit)\s{_NUMBER}", re.IGNORECASE)
_OTHERS = re.compile(r"\b(?:papers?|others|elsewhere|published|claims?|claimed|vendors?|competitor\w*|theor\w+|targets?|goals?|"
                     r"expect\w*|hope|hoped|should|would|could|data ?sheets?|spec|planned|last (?:year|week|month|time)|"
                     r"previous\w*|yesterday|before|ago|up to|bis zu|jusqu|hasta|if|wenn|si|tables? (?:above|below|in)|section|"
                     r"budget|at least|contract|wenigstens|au moins)\b", re.IGNORECASE)  # fmt: skip
"""Ratios of somebody else, and of what stands in no table."""
_SENTENCES = re.compile(r"(?<=[^\d\s][.!?])\s|(?<=\d\.)\s(?=[A-ZÀ-Ý])|(?<=%\.)\s|[。！？]")
_ROW = re.compile(r"\b(?:rows?|lines?|runs?|lignes?|filas?|zeilen?|righe|riga|linhas?|#)\s?#?(\d{1,2})"
                  r"(?:\s?(?:and|or|to|,|und|et|y|e)\s?(\d{1,2})(?!\s?%|[.,]\d))?(?!\w|[.,]\d)", re.IGNORECASE)  # fmt: skip
_FIRST = re.compile(r"\b(?:first|top) (?:row|line|setup|run|one)\b|\bfrom the first\b", re.IGNORECASE)
_LAST = re.compile(r"\b(?:last|bottom) (?:row|line|setup|run|one|variant|layout)\b|\bto the last\b", re.IGNORECASE)
_COUNT = re.compile(r"(?<![\w.,])(\d{1,3}(?:,\d{3})+|\d+)(k)?(?![\d.,]*\d)(?:[ -](?:x )?(?:[A-Z]+\d+\w* )?([A-Za-z]{2,}))?")
_WORDS = {"money": r"cost|price|pay|cheap|dollar|euro|\busd\b|\beur\b|[$€£]|bill|money|\bspend|saved|savings|dear|barat|billig",
          "time": r"time|step|second|minute|hour|day|slow|long|\bs/|\bms\b|latenc|\bh\b|wait|finish|dauert|duree",
          "memory": r"memor|\bgi?b\b|speicher", "rate": r"tok|throughput|sample|rate|fast|speed|quick|debit|durchsatz|rapid",
          "energy": r"energ|kwh|mwh|\bj\b|joule|power|watt|\bk?w\b", "share": r"mfu|hfu|utili|tflop|efficien"}  # fmt: skip
_KINDS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _WORDS.items()}
_CLAUSES = re.compile(r"[;:]\s|,\s| and | while | und | et | y ")
MOST_PAIRS, NEAR, POINTS, TINY = 20, 0.012, 0.1, 1e-12
"""Pairs of rows; within which a ratio of two figures of the text, and a percentage, are what is meant."""
CLEAR = ("the point moved", "two digits exchanged", "a digit too many")


@dataclass(frozen=True)
class _Claim:
    text: str
    start: int
    ways: tuple[str, ...]
    """Of a percent: less, more; of a factor: times."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    by_file: dict[str, list[list[Row]]] = {}
    for (file, table), rows in sheet.tables.items():
        if table is not None and rows[0].tabular and len(rows) > 1:
            by_file.setdefault(file, []).append(rows)
    for file, tables in by_file.items():
        text = sheet.prose.get(file)
        for number, line in enumerate(text.lines, 1) if text is not None and len(text.lines) <= MOST_LINES else ():
            if line[:1] not in ("|", "#", "") and len(line) <= LONGEST and _may_claim(line):
                found += _line(file, number, line, text.lines, tables)  # type: ignore[union-attr]
    return found


_CUES = re.compile(r"\d\s?(?:[%x×]|times|[Pp]er|[Pp]ro|fois|vec|volte|vezes|mal|-?fach|倍|배|раз|days?|jours|"
                   r"d[ií]as|Tag|giorni|dni)|"
                   r"\b(?:par|por|by) \d|(?:per|a|par|pro|por|al|/) ?(?:day|jour|Tag|d[ií]a|giorno)\b")  # fmt: skip


def _may_claim(line: str) -> bool:
    return _CUES.search(line) is not None


def _line(file: str, number: int, line: str, lines: tuple[str, ...], tables: list[list[Row]]) -> Iterator[Finding]:
    rows = _near(tables, lines, number)
    for sentence in _SENTENCES.split(line):
        claims = list(_claims(plain_letters(sentence))) if len(rows) > 1 else []
        if "%" not in sentence and not claims and not _LASTS.search(sentence) or _OTHERS.search(in_english(sentence)):
            continue
        named = _named(sentence, rows, claims) if len(rows) > 1 else []
        yield from _lasting(file, number, sentence, named, rows)
        yield from _a_day(file, number, sentence)
        yield from _shares(file, number, sentence, claims, named, tables)
        for claim in claims:
            yield from _judged(file, number, claim, claims, sentence, rows, named, _prices(lines, number))


def _near(tables: list[list[Row]], lines: tuple[str, ...], number: int) -> list[Row]:
    """The rows of the last table above a line, where no heading stands between."""
    above = [rows for rows in tables if (rows[-1].record.source_line or 0) < number]
    last = max(above, key=lambda rows: rows[-1].record.source_line or 0, default=[])
    between = lines[(last[-1].record.source_line or 0) : number] if last else ()
    return [] if not last or any(one.startswith("#") for one in between) else [
        row for row in last[:MOST_ROWS] if not is_aggregate(row)]  # fmt: skip


def _claims(sentence: str) -> Iterator[_Claim]:
    for match in _PERCENT.finditer(sentence):
        yield _Claim(match[1], match.start(1), ("less",) if match["less"] else ("more",))
    changes = _CHANGES.search(sentence)
    for match in _BY.finditer(sentence) if changes else ():
        yield _Claim(match[1], match.start(1), ("less",) if changes and changes["less"] else ("more",))
    for match in (*_TIMES.finditer(sentence), *_MULTIPLIED.finditer(sentence)):
        yield _Claim(match[1], match.start(1), ("times",))


@functools.lru_cache(maxsize=512)
def _prices(lines: tuple[str, ...], number: int) -> tuple[float, ...]:
    """Amounts of money that the text of the section gives."""
    top = number - 1
    while top > 0 and not lines[top].startswith("#"):
        top -= 1
    words = " ".join(line for line in lines[top : number - 1] if not line.startswith("|"))
    return tuple(float(decimal(one or other)) for one, other in
                 re.findall(rf"[$€£]\s?({NUMBER.pattern})|({NUMBER.pattern})\s?(?:[$€£]|EUR|USD)", words)[:12])  # fmt: skip


# ---- rows


def _named(sentence: str, rows: list[Row], claims: list[_Claim]) -> list[tuple[Row, frozenset[str]]]:
    """The rows that a sentence names, and by what."""
    said: dict[int, set[str]] = {at: set() for at in range(len(rows))}
    plain, letters = plain_letters(sentence), plain_letters(sentence).casefold()
    for match in _ROW.finditer(sentence):
        for place in filter(None, match.groups()):
            for at in _numbered(rows, int(place)):
                said[at].add(f"row {place}")
    for pattern, at in ((_FIRST, 0), (_LAST, len(rows) - 1)):
        if pattern.search(sentence):
            said[at].add("first" if not at else "last")
    words = Counter(word for row in rows for word in {word for cell in row.worded.values() for word in _tokens(cell)})
    for at, row in enumerate(rows):
        for cell in row.worded.values():
            for word in _tokens(cell):
                if words[word] < len(rows) and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", letters):
                    said[at].add(word)
    starts = {claim.start for claim in claims}
    for match in _COUNT.finditer(plain):
        value, unit = float(match[1].replace(",", "")) * (1024 if match[2] else 1), (match[3] or "").casefold()
        for at, row in enumerate(rows) if match.start(1) not in starts else ():
            for heading in row.record.printed:
                its = _heading(heading)
                if (unit and len(unit) > 2 and unit.rstrip("s") in its or match[2]) and row.figure(heading) == value:
                    said[at].add(match[0])
    for match in re.finditer(r"\b([A-Za-z]{3,}) (\d{1,4})(?![\w.,%-])", plain):
        for at, row in enumerate(rows):
            first = next(iter(row.record.printed), "")
            if match[1].casefold() in _heading(first).split() and row.cells[first] == match[2]:
                said[at].add(match[0])
    for match in re.finditer(r"\b(TP|PP|DP|CP|EP|MBS|GBS) ?=?(\d{1,5})\b", plain):
        for at, row in enumerate(rows):
            size = row.beside(match[1].lower()) if match[1] in ("CP", "EP") else row.whole(match[1].lower())
            if size == int(match[2]):
                said[at].add(match[0])
    for match in re.finditer(rf"{_NUMBER}(?![kKMBT]\b)", re.sub(r"[$€£]", " ", plain)):
        shown = decimal(match[1])
        if len(re.sub(r"\D", "", shown)) >= FEWEST_DIGITS and match.start(1) not in starts:
            for at, row in enumerate(rows):
                if any(digits.plain(cell) == shown for cell in row.record.printed.values()):
                    said[at].add(match[1])
    return [(rows[at], frozenset(by)) for at, by in said.items() if by]


def _numbered(rows: list[Row], place: int) -> list[int]:
    """The row that has a number in its first cell, else the one at that place."""
    first = [at for at, row in enumerate(rows) if next(iter(row.cells.values()), "").strip("#* ") == str(place)]
    return first[:1] or ([place - 1] if 0 < place <= len(rows) and not any(
        next(iter(row.cells.values()), "").strip("#* ").isdecimal() for row in rows) else [])  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _tokens(cell: str) -> frozenset[str]:
    """A cell and the words of it, in small letters."""
    whole = plain_letters(clean(cell)).casefold().strip()
    words = {word for word in re.findall(r"[^\W_][\w.+-]*[^\W_]", whole) if not word[0].isdigit() and word not in _COMMON}
    return frozenset(words | ({whole} if 1 < len(whole) < 40 and whole not in _COMMON and not whole[0].isdigit() else set()))


_COMMON = frozenset(
    "ok oom the and with for on no yes of in as we to at by is it not row gpu gpus node nodes batch micro step steps same our "
    "all one tokens what had new up only best phase per from de la el en le un con avec mit und run tp pp dp cp ep".split())


@functools.lru_cache(maxsize=4096)
def _heading(heading: str) -> str:
    return f"{normal(in_english(clean(heading), surely=True))} {plain_letters(heading).casefold()}"


# ---- days

_DAYS = re.compile(rf"{_NUMBER}\s?(?:days?|jours|dias|tagen?|giorni|dni)\b(?! (?:x|×|a|per|of|de|x 24)\b)", re.IGNORECASE)
_LASTS = re.compile(r"\d\s?(?:days?|jours|d[ií]as|tagen?|giorni|dni)\b|\b(?:day|jour|tag|d[ií]a|giorno)\b", re.IGNORECASE)
_PER = r"(?:/|per|a|par|pro|por|al)"
_MANY = r"([kKMBT]|(?:milli?on|bil?lion|trillion|milliard|miliard|millon)(?:s|en|es|i)?(?: de| di| of)?)"
_RATE = re.compile(rf"{_NUMBER}\s?{_MANY}?\s?(?:tok(?:en)?s?|jetons)\s?{_PER}\s?"
                   r"s(?:ec(?:onde?)?|ekunde|egundo|econdo)?\b", re.IGNORECASE)  # fmt: skip
_A_DAY = re.compile(rf"{_NUMBER}\s?{_MANY}\s?(?:tok(?:en)?s?|jetons)? ?{_PER} ?(?:day|jour|tag|dia|giorno)\b", re.IGNORECASE)
_TOKENS = re.compile(rf"{_NUMBER}\s?([BT])(?![\w-])(?! ?(?:param|model|total|active|(?:tok(?:en)?s? ?)?{_PER} ))")
_STEPS = re.compile(rf"{_NUMBER}\s(?:steps|iterations|updates|pas|pasos|schritte)\b", re.IGNORECASE)
_THOUSANDS = {"k": 1e3, "m": 1e6, "mil": 1e6, "b": 1e9, "bil": 1e9, "t": 1e12, "tri": 1e12}


def _times(letters: str) -> float:
    """What a letter or a word of many stands for; a milliard is a thousand millions."""
    word = letters.casefold()
    return 1e9 if word.startswith(("milliard", "miliard")) else _THOUSANDS.get(word[:3], 1.0)


def _a_day(file: str, number: int, sentence: str) -> Iterator[Finding]:
    """Tokens of a day that are not those of a second, where both stand in one sentence."""
    plain = plain_letters(re.sub(r"(?<=\d)[ \u00a0\u202f](?=\d{3}(?!\d))", "", sentence))
    rates, days = list(_RATE.finditer(plain)), list(_A_DAY.finditer(plain))
    if not len(rates) == len(days) == 1:
        return
    shown, scale = decimal(days[0][1]), _times(days[0][2])
    meant = float(decimal(rates[0][1])) * _times(rates[0][2] or "") * 86400 / scale
    value, half = float(shown), 0.5 * 10.0 ** -digits.places(days[0][1])
    if not value or not meant or abs(value / meant - 1) < 0.06 + half / value:
        return
    typed = {slip.text for slip in digits.slips(shown, (meant * 0.985, meant * 1.015)) if slip.how in CLEAR}
    if len(typed) == 1:
        right = typed.pop().replace(".", "," if "," in days[0][1] else ".")
        message = f"{days[0][1]} -> {right}: so many are {rates[0][1]} a second"
        yield Finding(file=file, line=number, code="aggregate", level="error", message=message, column="tokens a day",
                      printed=days[0][1], proposed=right)  # fmt: skip


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


# ---- shares

_SHARE = re.compile(rf"{_NUMBER}\s?%(?!\s?(?:{_LESS}|{_MORE}|points?|von|of)\b)", re.IGNORECASE)


def _shares(file: str, number: int, sentence: str, claims: list[_Claim], named: list[tuple[Row, frozenset[str]]],
            tables: list[list[Row]]) -> Iterator[Finding]:  # fmt: skip
    """A percentage that no cell has, where one of the row that is named has it but for the order of its digits."""
    surely = [row for row, by in named if not any(by < other for _, other in named)]
    starts = {claim.start for claim in claims}
    figures = [match[1] for match in _SHARE.finditer(plain_letters(sentence)) if match.start(1) not in starts]
    for text in figures if len(surely) == 1 else ():
        shown = decimal(text)
        cells = {digits.plain(cell) for rows in tables for row in rows[:MOST_ROWS] for cell in row.record.printed.values()}
        if len(re.sub(r"\D", "", shown)) < FEWEST_DIGITS or shown in cells:
            continue
        meant = {(heading, its) for heading, cell in surely[0].record.printed.items() if "%" in f"{heading} {cell}"
                 and _exchanged(shown, its := digits.plain(cell))}  # fmt: skip
        if len(meant) == 1:
            heading, right = next(iter(meant))
            right = right.replace(".", ",") if "," in text else right
            message = f"{text} % -> {right} %: no row has it, and {heading} of {surely[0].where} is {right} %"
            yield Finding(file=file, line=number, code="aggregate", level="error", message=message, column=heading,
                          printed=text, proposed=right)  # fmt: skip


# ---- ratios


def _judged(file: str, number: int, claim: _Claim, claims: list[_Claim], sentence: str, rows: list[Row],
            named: list[tuple[Row, frozenset[str]]], prices: tuple[float, ...]) -> Iterator[Finding]:  # fmt: skip
    value, half = float(decimal(claim.text)), 0.5 * 10.0 ** -digits.places(claim.text)
    if len(named) < 2 or not 0 < value < 1000 or len(re.sub(r"\D", "", claim.text)) < 2:
        return
    spans = list(_spans(claim, value, half))
    every = [one for pair in itertools.combinations([row for row, _ in named], 2) for one in _ratios(*pair, measured=False)]
    others = [float(decimal(match[1])) for match in re.finditer(_NUMBER, plain_letters(sentence).replace("$", " "))
              if not any(match.start(1) == one.start for one in claims)]  # fmt: skip
    said = [(math.log(a / b), NEAR, "") for figures in (others[:12], prices)
            for a, b in itertools.combinations([one for one in figures if TINY < one < 1 / TINY], 2)]  # fmt: skip
    if any(low - open_ <= abs(log) <= high + open_ for log, open_, _ in (*every, *said) for low, high in spans):
        return
    # Those that are named by more than others come first.
    surely = [(row, by) for row, by in named if not any(by < other for _, other in named)]
    chosen: dict[str, _Meant] = {}
    for some in (surely, named):
        pairs = [(one, other) for (one, by), (other, of) in itertools.combinations(some, 2) if by != of]
        chosen = chosen or _meant(claim, sentence, pairs, sure=some is surely)
    if len(chosen) != 1:
        return
    text, meant = next(iter(chosen.items()))
    level: Level = "error" if meant.clear and meant.pairs == 1 else "warning"
    unit, heading = "x" if claim.ways == ("times",) else " %", min(meant.headings)
    message = (f"{claim.text}{unit} -> {text}{unit}: no two rows that are named give it, and {heading} of "
               f"{meant.rows[0].where} and {meant.rows[1].where} gives {text}{unit}")  # fmt: skip
    yield Finding(file=file, line=number, code="aggregate", level=level, message=message, column=heading,
                  printed=claim.text, proposed=text)  # fmt: skip


@dataclass
class _Meant:
    """A ratio that a slip of the hand turns into what is printed."""

    clear: bool
    rows: tuple[Row, Row]
    pairs: int
    headings: set[str] = field(default_factory=set)


def _meant(claim: _Claim, sentence: str, pairs: list[tuple[Row, Row]], *, sure: bool) -> dict[str, _Meant]:
    found: dict[str, _Meant] = {}
    for pair in pairs if len(pairs) <= MOST_PAIRS else ():
        for log, open_, heading in _ratios(*pair, measured=True):
            for text, clear in _slips(claim, log, open_):
                found.setdefault(text, _Meant(clear, pair, len(pairs))).headings.add(heading)
    clause = _CLAUSES.split(sentence[: claim.start])[-1] + _CLAUSES.split(sentence[claim.start :])[0]
    kinds = {kind for kind, pattern in _KINDS.items() if pattern.search(clause)}
    own = {text: one for text, one in found.items() if any(kinds & _kinds_of(heading) for heading in one.headings)}
    certain = {text: one for text, one in found.items() if one.clear}
    chosen: dict[str, _Meant] = certain or (own if sure and len(pairs) == 1 else {})
    chosen = {text: one for text, one in chosen.items() if text in own} or chosen
    most = max((len(one.headings) for one in chosen.values()), default=0)
    return {text: one for text, one in chosen.items() if len(one.headings) == most}


def _spans(claim: _Claim, value: float, half: float) -> Iterator[tuple[float, float]]:
    """Between which logarithms of a ratio what is printed may be, whichever way round it was worked out."""
    if claim.ways == ("times",):
        yield math.log(max(value - half, 1e-9)), math.log(value + half)
        yield math.log(1 + max(value - half, 0)), math.log(1 + value + half)
        return
    low, high = max(value - half, 0.0) / 100, (value + half) / 100
    yield math.log1p(low), math.log1p(high)
    if high < 1:
        yield -math.log1p(-low), -math.log1p(-high)


def _slips(claim: _Claim, log: float, open_: float) -> Iterator[tuple[str, bool]]:
    """What would be right, where a slip of the hand turns it into what is printed; and whether one that is no accident."""
    size, places = abs(log), digits.places(claim.text)
    ways = {"times": [math.exp(size)], "less": [100 * -math.expm1(-size)],
            "more": [100 * math.expm1(size), 100 * -math.expm1(-size)]}[claim.ways[0]]  # fmt: skip
    printed = float(decimal(claim.text))
    for value in ways:
        text = f"{value:.{places}f}"
        was = math.log(printed / value) if claim.ways == ("times",) else math.log1p(printed / 100) - math.log1p(value / 100)
        if abs(was) < GROSS + open_ or not float(text):
            continue
        shown = text.replace(".", ",") if "," in claim.text else text
        near = 0.004 * value if claim.ways == ("times",) else max(0.004 * value, POINTS)
        typed = digits.slips(decimal(claim.text), (max(value - near, 1e-6), value + near))
        moved = next((slip.text for slip in typed if slip.how == "the point moved"), None)
        if moved is not None:
            yield moved.replace(".", ",") if "," in claim.text else moved, True
        elif _exchanged(decimal(claim.text), text) or any(slip.text == text and slip.how in CLEAR for slip in typed):
            yield shown, True
        elif len(text) == len(decimal(claim.text)) and text[0] != claim.text[0] and text[1:] == decimal(claim.text)[1:]:
            yield shown, False


def _exchanged(one: str, other: str) -> bool:
    """Whether two numbers have the same digits, and the point where it was."""
    return len(one) == len(other) > 2 and one.find(".") == other.find(".") and sorted(one) == sorted(other)


def _ratios(one: Row, other: Row, *, measured: bool) -> list[tuple[float, float, str]]:
    """The logarithm of what each column has of two rows, what its digits leave open, and the heading."""
    found = []
    for heading in one.record.printed:
        if measured and field_of(heading) in _SET:
            continue
        values = [(digits.alone(row.record.printed.get(heading, "")), row) for row in (one, other)]
        if any(not value or value <= 0 for value, _ in values):
            continue
        open_ = sum(0.5 * 10.0 ** -digits.places(row.record.printed[heading]) / max(
            float(digits.plain(row.record.printed[heading]) or 1), 1e-9) for _, row in values)  # fmt: skip
        log = math.log(values[0][0] / values[1][0])  # type: ignore[operator]
        if open_ < 0.1 and abs(log) > 1e-9:
            found.append((log, min(open_, 0.02), heading))
    return found


_SET = frozenset((*CONFIGURATION, "gpus", "nodes", "seq", "gbs", "mbs", "tp", "pp", "dp", "cp", "ep", "layers", "hidden",
                  "size_label", "machine", "iteration", "notes"))  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _kinds_of(heading: str) -> frozenset[str]:
    return frozenset(kind for kind, pattern in _KINDS.items() if pattern.search(f"{_heading(heading)} {heading}"))
