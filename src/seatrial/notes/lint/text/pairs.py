"""How many times or percent as fast one row of a table is as another, in the words of a sentence that names the two.

    check(sheet)          findings on factors and percentages that no column of the two rows gives

    From 4 to 16 nodes (TP 4, PP 1) it runs 2.70 times as fast.     235k tokens/s over 60k: 3.85
    четыре карты в 2,5 раза быстрее одной; 从 1 机扩到 32 机,总吞吐提高 16.9 倍
    Going from one node to sixteen keeps 68 % of the rate per GPU.

The rows are those of `mentions`: of the clause that the claim stands in, else of the whole sentence. A claim is fine that any
column of any of them gives, of one device or of all, or that two figures of the sentence do.
"""
from __future__ import annotations

import bisect
import itertools
import math
import re
import statistics
from collections.abc import Iterator, Sequence

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import field_of
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text import measures
from seatrial.notes.lint.text.across import across
from seatrial.notes.lint.text.claims import ATTRIBUTED, OTHERS, Claim, claims, may_claim, scope_of
from seatrial.notes.lint.text.figures import figures
from seatrial.notes.lint.text.mentions import Mention, mentions, spelled, spoken_of, two_sides
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.lint.text.sides import FIRST, THAN, Sides, apart, is_setting, of_claim, sides, twins
from seatrial.tables.headings import NUMBER, clean, decimal

MOST_LINES, MOST_PAIRS, NEAR, OFF, POINTS = 4000, 12, 0.015, 0.06, 2.6
RATES = ("tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "tflops", "mfu")
MOST, ALIKE, NEXT, ABSURD, KEPT = 3.0, 0.05, 6, 4.5, 40
"""By which factor a claim may be off to be of the same thing; and by which logarithm several pairs may differ;
in how many lines a table begins that is right below; the logarithm of a ratio that nobody speaks of;
from how many percent on a change may be what is left."""
_CLEAR = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost")
_FASTER = re.compile(r"(?:快|提高|提升|高|高速|速く)(?:了|约|約|大约)? ?$")
_AFTER_MORE = re.compile(r" ?%? ?(?:も)?(?:速|向上|上が|빨라|증가|향상)")
_AFTER_LESS = re.compile(r" ?%? ?(?:も)?(?:落ち|下が|低下|減|遅|느|감소|떨어)")
_SLOWER = re.compile(r"(?:慢|降低|下降|减少|少)(?:了|约|約|大约)? ?$")
_SPEED = re.compile(
    r"fast|quick|speed|throughput|tok|\btps\b|rate|slow|longer|shorter|scal|"
    r"times (?:the|an?|as)\b|rend|gain|lose|lost|win|does|brings?|gives?|"
    r"better|schnell|durchsatz|langsam|rapide|rapido|vite|veloc|debit|rendimiento|tempo|snel|doorvoer|szybc|быстр|"
    r"ускор|скорост|произв|проп|快|吞吐|提速|速|スループット|倍|처리량|빠르|빨라|배|[x×] (?:one|the|an?)\b|effi|keeps|"
    r"acelera|eficien|wydajn|ideal|linear|perfect|fa[ck]tor|facteur|fattore|fator|коэфф|"
    r"效率|効率|效能|线性|線形|線性|효율", re.IGNORECASE)  # fmt: skip
_PLAINLY = re.compile(r"fast|schnell|rapid|snel|быстр|tok", re.IGNORECASE)
_OF_OTHERS = re.compile(r"memor|speicher|\bgi?b\b|\bgo\b|cost|price|cheap|dollar|euro|[$€£]|kosten|prix|precio|energ|watt|kwh|"
                        r"power|память|显存|メモリ|메모리|loss|perplex|params|parameters|peak|spitze|batch|tokens seen|bubble|"
                        r"flops per token|attention|comm|larger|bigger|smaller|data\b", re.IGNORECASE)  # fmt: skip
_EACH = re.compile(r"(?:per|pro|je|par|por|na|за|на) (?:each )?(?:GPU|chip|card|device|accelerator|GCD|karte|carte|tarjeta|"
                   r"node|knoten|core)|(?:1 ?|每|单)(?:GPU|卡|カード)|/(?:GPU|chip|card|device|acc)|chip for chip|"
                   r"each (?:GPU|card)|GPU당", re.IGNORECASE)  # fmt: skip
_OF_A_TOKEN = re.compile(r"\b(?:an?|per|each|een|ein|pro|je|un|une|par|por|el|le|il|o|der|das|al|every|na|за|"
                         r"на) (?:tok(?:en)?|jeton|"
                         r"токен\w*)\b|/ ?tok|每(?:个)?token|トークン(?:あたり|当たり)", re.IGNORECASE)  # fmt: skip
_APART = re.compile(r"[;；。]\s?|,\s(?=\D)| and (?=an? |the )| und | et (?=un|l)")
_HARDER = re.compile(r";\s?|；|。")
_ENDS, _PARTED = re.compile(r"[,;] |[;，；。]"), re.compile(r"[,;:] |[()，；。]")
_MORE = re.compile(r"\s?(?:x|×|times|mal|fois|veces|раза?|倍)?\s?(?:so )?(?:faster|more|higher|quicker|better|schneller|"
                   r"mehr|plus|mas|быстрее|больше|速)", re.IGNORECASE)  # fmt: skip
_SLOWER_THAN = re.compile(r" ?(?:%|percent|Prozent|pour cent) (?:slower|langsamer|plus lent|mas lent|piu lent|trager|langzamer|"
                          r"wolniej)")  # fmt: skip
_IT = re.compile(r"\b(?:it|es|il|elle|lo|он|она)\b", re.IGNORECASE)
_TIMES_THE_DEVICES = re.compile(
    rf"({NUMBER.pattern})\s?(?:x|×|times|-?fach\w*|mal|fois|veces)\s?(?:the |so viele |die |der |le |de |as many |mas )?"
    rf"(?P<what>nodes?|hosts?|gpus?|chips?|cards?|ranks?|knoten|hardware|devices|noeuds|nodos)\b"
    rf"(?![ -]?(?:hours?|h\b|stunden|days))|"
    rf"(?P<two>\b(?:twice|double|doubling|doppelt so viele|deux fois plus de|el doble de)) (?:the |as many )?"
    rf"(?:nodes?|gpus?|chips?|cards?|ranks?|knoten|hardware|devices|noeuds|nodos)\b", re.IGNORECASE)  # fmt: skip
_ALL_OF_THEM = re.compile(r"\b(?:all|every|average|mean|typically|mostly|usually|alle|im mittel|tous|moyenne|todos|"
                          r"media|steps? \d|between)\b", re.IGNORECASE)  # fmt: skip
_ALL_OF_IT = re.compile(r"\ball (?:of which|of that|of it|this|that|in all|else|its)\b")
_SAME = re.compile(r"(?:\bit(?:'s| is| was)|\bthat(?:'s| is)|\bsind es|\bist es|\bc'est|\bsono|\bson|\bonly|\beven|\bnur|"
                   r"\bsogar|\bsolo|\bby|\bis het|это|,|\band|\bund|\bet|\b[ye]|\bgives?|\bmakes?) "
                   r"(?:only |even |just |nur |solo )?$")  # fmt: skip
"""Before a change that goes on from the last one: `on 1024 it's 10.8 %`."""
_NO_CHANGE = re.compile(r"\s?%\s?(?:of|der|des|de|del|van|от|MFU|HFU)\b")
_SHARE = re.compile(r"effi[czk]|eficien|wydajnosc|эффективн|効率|效率|효율|线性|線形|線性|rendement\b|linearit", re.IGNORECASE)


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = sorted((rows for rows in sheet.tables_of(file) if len(rows) > 1), key=_first)
        before: Sentence | None = None
        for sentence in text.sentences if tables and len(text.lines) <= MOST_LINES else ():
            last, before = before, sentence
            its = [] if ATTRIBUTED.search(sentence.text) else _claims(sentence.text)
            if its:
                last = last if last is not None and sentence.line - last.last < 2 else None
                found += _around(file, sentence, its, tables, text.lines, last)
    return found


def _around(file: str, sentence: Sentence, its: list[Claim], tables: list[list[Row]], lines: tuple[str, ...],
            before: Sentence | None) -> Iterator[Finding]:  # fmt: skip
    """Of the table above; of what is not in it, of the one right below, and of two tables."""
    scope = scope_of(tables, lines, sentence.line)
    every = [row for table in scope.tables for row in table]
    above = [row for row in scope.last if not is_aggregate(row)]
    known: set[int] = set()
    if len(above) > 1 and scope.near:
        yield from _sentence(file, sentence, its, above, every, before, known)
    below = _below(tables, lines, sentence.last)
    if below and not known:
        yield from _sentence(file, sentence, its, below, [*every, *below], None, known)
    if known or not every and not below:
        return
    some = [*scope.tables, *([tuple(below)] if below else [])]
    names = [*scope.captions, *([""] if below else [])]
    for claim in its if len(some) > 1 and (scope.near or below) else ():
        start, end = _clause(sentence, claim, its, str(file).endswith((".csv", ".tsv")))
        plainly = _may_be(claim) and _is_plain(sentence.text)
        kind = _kind(sentence.text, claim, start, end) if plainly else ""
        kind = kind if kind and _is_of_speed(sentence.text, claim, kind) else ""
        way = across(sentence.text, claim, its, some, names) if kind else None
        if way is not None:
            yield from _judged(file, sentence, claim, kind, way, [], every, sentence.text[start:end])


def _below(tables: list[list[Row]], lines: tuple[str, ...], number: int) -> list[Row]:
    """The rows of a table that begins right below a line."""
    at = bisect.bisect_right(tables, number, key=_first)
    first = _first(tables[at]) if at < len(tables) else number + NEXT + 1
    if first > number + NEXT or any(line.startswith("#") for line in lines[number : first - 1]):
        return []
    return [row for row in tables[at] if not is_aggregate(row)]


def _first(rows: list[Row]) -> int:
    return rows[0].record.source_line or 0


def _claims(text: str) -> list[Claim]:
    found = {one.start: one for one in claims(text)} if may_claim(text) else {}
    for figure in figures(text):
        if figure.kind == "factor" and not figure.bound:
            found.setdefault(figure.start, Claim(figure.text, figure.start, "times"))
    made: list[Claim] = []
    for start, one in sorted(found.items()):
        way, after = one.way, text[start + len(one.text) :]
        if way == "share":
            before = text[max(0, start - 8) : start]
            way = "more" if _FASTER.search(before) or _AFTER_MORE.match(after) else way
            way = "less" if _SLOWER.search(before) or _AFTER_LESS.match(after) else way
            way = made[-1].way if way == "share" and made and made[-1].way in ("more", "less") and _SAME.search(
                text[max(0, start - 24) : start]) and not _NO_CHANGE.match(after) else way  # fmt: skip
            way = "kept" if way == "share" and _SHARE.search(text[max(0, start - 60) : start + 40]) else way
        made.append(Claim(one.text, start, way, one.alone))
    return made


def _sentence(file: str, sentence: Sentence, its: list[Claim], rows: list[Row], every: list[Row],
              before: Sentence | None, known: set[int]) -> Iterator[Finding]:  # fmt: skip
    text = sentence.text
    times = list(_TIMES_THE_DEVICES.finditer(text))
    some: list[Mention] | None = None
    for claim in its:
        if not _may_be(claim) or any(match.start() <= claim.start < match.end() for match in times):
            continue
        if OTHERS.search(_part(text, claim)):
            continue
        start, end = _clause(sentence, claim, its, str(file).endswith((".csv", ".tsv")))
        clause, kind = text[start:end], _kind(text, claim, start, end)
        if not kind:
            continue
        plainly = _is_plain(text) and _is_of_speed(text, claim, kind)
        if some is None:
            some = [one for one in mentions(text, rows) if not any(one.start == other.start for other in its)]
        if _is_against_another(text, claim, its, some):
            continue
        its_own = of_claim(text, claim, its, some)
        here = [one for one in its_own if start <= one.start < end]
        both = two_sides(here, rows)
        if both is None and len(its) == 1:
            ends = _ENDS.search(text, claim.start + len(claim.text))
            before_it = [one for one in some if one.start < claim.start]
            behind = {one.heading for one in some if claim.start < one.start < (ends.start() if ends else len(text))}
            alone = not {one.heading for one in before_it} & behind
            both = two_sides(some, rows) or (two_sides(before_it, rows) if alone else None)
        if both is None and len(here) == 1 and THAN.search(clause):
            both = two_sides([*(one for one in some if one.end <= claim.start), *here], rows)
        if both is None and len(here) == 1 and before is not None and _IT.search(clause):
            first = mentions(before.text, rows)
            both = two_sides([*first, *here], rows) if len(first) == 1 else None
        if both is None and not here and len(times) == 1 and claim.way != "kept" and start <= times[0].start() < end:
            both = _so_many_times(float(decimal(times[0][1] or "2")), rows)
        ordered = both is not None and _in_order(text, claim, here, rows, both)
        ways = sides(text, claim, its, some, rows) if both is None else iter([Sides(twins(text, *both), True, ordered)])
        for way in ways:
            if 0 < len(way.pairs) <= MOST_PAIRS and (plainly or way.said):
                known.add(claim.start)
                yield from _judged(file, sentence, claim, kind, way, rows, every, clause)


def _is_against_another(text: str, claim: Claim, its: Sequence[Claim], some: list[Mention]) -> bool:
    """Whether it has a `than` of its own, and behind it what no row is: `15 times faster than one, 11 times than another`."""
    ends = min((one.start for one in its if one.start > claim.start), default=len(text))
    than = THAN.search(text, claim.start, ends)
    several = than is not None and sum(1 for _ in THAN.finditer(text)) > 1
    return several and than is not None and not any(than.end() <= one.start < ends for one in some)


def _in_order(text: str, claim: Claim, some: list[Mention], rows: list[Row], both: tuple[list[Row], list[Row]]) -> bool:
    """Whether the first of the two is all that stands before the claim, and the second what it is held against behind it."""
    than = THAN.search(text, claim.start)
    if than is None:
        return False
    first, second = ([one for one in some if (one.start < claim.start) == before and (before or one.start > than.start())]
                     for before in (True, False))  # fmt: skip
    return bool(first and second) and all(spoken_of(its, rows) == side for its, side in zip((first, second), both))


def _part(text: str, claim: Claim) -> str:
    """What stands around a claim between commas and brackets."""
    start = max((match.end() for match in _PARTED.finditer(text, 0, claim.start)), default=0)
    end = _PARTED.search(text, claim.start + len(claim.text))
    return text[start : end.start() if end is not None else len(text)]


def _may_be(claim: Claim) -> bool:
    return claim.way != "share" and claim.alone and 0 < claim.value < 1000


def _is_plain(text: str) -> bool:
    """Whether it speaks of single rows, and of those that ran; else both rows of a claim have to be named."""
    return not OTHERS.search(text) and not _ALL_OF_THEM.search(_ALL_OF_IT.sub("", text))


def _kind(text: str, claim: Claim, start: int, end: int) -> str:
    """What is compared; nothing where the words of the clause are of something else."""
    if measures.kind_after(text, claim) == measures.SPEED:
        return measures.SPEED
    kind = measures.kind_of(text, claim, start, end) or measures.SPEED
    words = measures.bare(text, claim, start, end)
    return "" if kind == "other" or kind == measures.SPEED and _OF_OTHERS.search(words) and not _PLAINLY.search(words) else kind


def _is_of_speed(text: str, claim: Claim, kind: str) -> bool:
    """Whether a word says what is compared, so that one of the two rows may be left unsaid."""
    return bool(kind != measures.SPEED or _SPEED.search(text) or measures.AS_A_LOSS.search(text[: claim.start]))


def _clause(sentence: Sentence, claim: Claim, its: list[Claim], of_lines: bool) -> tuple[int, int]:
    """Where the words of a claim begin and end: what semicolons part, or commas, where several claims are left."""
    text, place = sentence.text, claim.start
    lines = [start for start, _ in sentence.starts] if of_lines else []
    for pattern in (_HARDER, _APART):
        ends = sorted({0, *(match.end() for match in pattern.finditer(text)), *lines, len(text)})
        start, end = next((a, b) for a, b in itertools.pairwise(ends) if a <= place < b or b == len(text))
        if sum(start <= one.start < end for one in its) == 1:
            break
    return start, end


def _so_many_times(times: float, rows: list[Row]) -> tuple[list[Row], list[Row]] | None:
    """The one pair of rows of which the one has so many times the devices of the other."""
    sizes = {row: row.world or row.record.nodes or 0 for row in rows}
    pairs = [([one], [other]) for one in rows for other in rows if sizes[other] and sizes[one] == times * sizes[other]]
    return pairs[0] if len(pairs) == 1 else None


def _judged(file: str, sentence: Sentence, claim: Claim, kind: str, way: Sides, rows: list[Row],
            every: list[Row], clause: str) -> Iterator[Finding]:  # fmt: skip
    pairs = way.pairs
    each = _EACH.search(clause) is not None or claim.way == "kept"
    more = _MORE.match(sentence.text, claim.start + len(claim.text)) is not None or _FASTER.search(
        sentence.text[: claim.start]) is not None and claim.value < MOST  # fmt: skip
    of_a_token = _OF_A_TOKEN.search(clause) is not None
    meant: list[float] = []
    witnesses: list[float] = []
    of_all: list[float] = []
    for one, other in pairs:
        worlds = _worlds(one, other)
        logs = sorted(_speeds(one, other, worlds) if kind == measures.SPEED else ())
        told = logs or sorted(log for log, _ in measures.ratios(kind, one, other, of_a_token=of_a_token))
        if not told and kind == "money" and re.search("tok|jeton|ток|token", clause, re.IGNORECASE):
            logs = told = sorted(_speeds(one, other, worlds))  # what a token costs, where the hour costs the same
        told = [log for log in told if abs(log) < ABSURD] or told
        if not told:
            return
        finer = sorted(-log for log in _speeds(one, other, worlds)) if kind == "money" and not logs else []
        if finer and all(abs(log - finer[len(finer) // 2]) < 0.02 for log in told):
            told = finer  # what a token costs, where the hour costs the same
        own = told[len(told) // 2]
        if len(told) > 1 and sum(abs(log - own) < 0.03 for log in told) < (2 if logs else len(told)):
            return  # one of the cells is wrong, or they are of different things
        of_one = logs and (each or claim.way in ("more", "less") and worlds not in (0.0, 1.0))
        shift = math.log(worlds) if of_one and worlds else 0.0
        if claim.way == "more" and not each and (own > 0) != (own - shift > 0):
            shift = 0.0  # each device does less, and all of them more
        meant.append(abs(own - shift))
        witnesses += [abs(log - shift) for log in told if abs(log - own) < 0.03]
        of_all += [abs(log) for log in told if abs(log - own) < 0.03 and shift and claim.way == "more" and not each]
    of_a_model = {heading for heading in pairs[0][0].record.printed if field_of(heading) in FIRST} - apart(*pairs[0])
    others = [] if way.said else [(one, row) for pair in pairs for one in pair for row in rows if row is not one]
    held = (log for one, row in others if one.world == row.world and not apart(one, row) & of_a_model
            for log in _speeds(one, row, 1.0))
    if not meant or max(meant) - min(meant) > ALIKE:
        return
    if turned := _turned(claim, sentence.text, way, meant, pairs, kind):
        one, other = pairs[0]
        message = f"{claim.text}x -> {turned}x: so many times as fast {one.where} is as {other.where}, not the other way round"
        yield Finding(file=file, line=sentence.line_at(claim.start), code="aggregate", level="error", message=message,
                      printed=claim.text, proposed=turned)  # fmt: skip
        return
    strictly = kind != measures.SPEED and claim.way == "less"
    every_way = _logs(pairs, measured=claim.way != "times", memory=measures.is_of("memory", sentence.text))
    if any(_gives(claim, log, more) for log in (*every_way, *held)) and not (
            strictly and not any(_nearly(claim, _as_said(claim, one)) for one in witnesses)):  # fmt: skip
        return
    if any(_gives(claim, log) for log in _said(sentence.text, claim)) or _stands(
            claim, [row for pair in pairs for row in pair] if way.said and kind == measures.SPEED else every):  # fmt: skip
        return
    if not way.said and max(meant) < math.log1p(OFF):
        return  # nobody speaks of that
    value = _as_said(claim, statistics.median(meant))
    if claim.way == "times" and max(meant) < math.log1p(OFF) and claim.value > 1 + 5 * OFF:
        return  # of something else: nobody tells so of what is alike
    if claim.way == "times" and claim.value < 1 < value and not (way.ordered and _is_first_faster(pairs[0], kind)):
        value = 1 / value
    if claim.way == "times":
        off = abs(math.log(claim.value / value))
        if off < OFF or off > math.log(MOST) and not digits.slips(decimal(claim.text), (value * 0.98, value * 1.02)):
            return
    elif abs(claim.value - value) < max(POINTS, 0.12 * value if claim.way != "kept" else 0.0):
        return
    elif max(meant) - _size(claim) > math.log(MOST) and not digits.slips(decimal(claim.text), (value * 0.98, value * 1.02)):
        return  # `3.7 %` of rows that differ by 293 is of others
    if len(pairs) > 1 and any(_gives(claim, log) for log in _logs(list(itertools.combinations(
            dict.fromkeys(row for pair in pairs for row in pair), 2))[:200])):
        return
    slower = claim.way == "more" and _SLOWER_THAN.match(sentence.text, claim.start + len(claim.text)) is not None
    fewer = [_as_said(Claim(claim.text, 0, "less"), one) for one in witnesses] if slower else []
    text = _typed(claim, [_as_said(claim, one) for one in witnesses]) or (_typed(claim, fewer) if slower else "")
    text = text or (_typed(claim, [_as_said(claim, one) for one in of_all]) if of_all else "")
    text = text or f"{statistics.median(fewer) if slower else value:.{digits.places(claim.text)}f}"
    text = text.replace(".", ",") if "," in claim.text else text
    if not float(decimal(text)):
        return
    level: Level = "error" if len(pairs) == 1 and way.said else "warning"
    unit = "x" if claim.way == "times" else " %"
    one, other = pairs[0]
    what = "speeds" if kind == measures.SPEED else next((heading for _, heading in measures.ratios(kind, one, other)), "speeds")
    message = f"{claim.text}{unit} -> {text}{unit}: the {what} of {one.where} and {other.where} give {text}{unit}"
    yield Finding(file=file, line=sentence.line_at(claim.start), code="aggregate", level=level, message=message,
                  printed=claim.text, proposed=text)  # fmt: skip


_AS_FAST = re.compile(r"\s?(?:x|×|times|-?mal|fois|veces|volte|vezes|keer|razy|раза?)?\s?(?:as fast|as quick|as many tok|"
                      r"so schnell|plus rapide|aussi rapide|mas rapid|tan rapid|piu veloc|mais rapid|zo snel|szybs|"
                      r"быстрее|faster)")  # fmt: skip


def _turned(claim: Claim, text: str, way: Sides, meant: list[float], pairs: Sequence[tuple[Row, Row]], kind: str) -> str:
    """What is right, where a ratio is that of the second over the first: `the faster one is 0.48 times as fast`."""
    if claim.way != "times" or not way.ordered or len(pairs) != 1 or claim.value > 0.95 or kind != measures.SPEED:
        return ""
    value = math.exp(meant[0])
    if not _AS_FAST.match(text, claim.start + len(claim.text)) or not _is_first_faster(pairs[0], kind):
        return ""
    shown = f"{value:.{digits.places(claim.text)}f}".replace(".", "," if "," in claim.text else ".")
    return shown if abs(claim.value * value - 1) < ALIKE else ""


def _nearly(claim: Claim, value: float) -> bool:
    return abs(claim.value - value) <= claim.half + 1.0


def _worlds(one: Row, other: Row) -> float:
    """How many times the devices; of two rows of one table of which nobody counts them, the same."""
    if one.world is None and other.world is None and one.key == other.key:
        return 1.0
    return one.world / other.world if one.world and other.world else 0.0


def _is_first_faster(pair: tuple[Row, Row], kind: str) -> bool:
    one, other = pair
    worlds = _worlds(one, other)
    told = _speeds(one, other, worlds) if kind == measures.SPEED else (log for log, _ in measures.ratios(kind, *pair))
    logs = sorted(told)
    return bool(logs) and logs[len(logs) // 2] > 0


def _typed(claim: Claim, values: list[float]) -> str:
    """What the witnesses leave open, where a slip of the hand leads to what is printed: of 2.45 and 2.46 it is 2.4 for 4.2."""
    low, high = min(values), max(values)
    near = {f"{value:.{digits.places(claim.text)}f}" for value in (low, high)}
    slips = [slip for slip in digits.slips(decimal(claim.text), (low * 0.98, high * 1.02)) if slip.how in _CLEAR]
    moved = {slip.text for slip in slips if slip.how == _CLEAR[0]}
    typed = moved if len(moved) == 1 else {slip.text for slip in slips} & near
    return typed.pop() if len(typed) == 1 else ""


def _size(claim: Claim) -> float:
    """The logarithm that a percentage stands for."""
    share = claim.value / 100
    return math.log1p(share) if claim.way == "more" else -math.log(max(share if claim.way == "kept" else 1 - share, 1e-9))


def _as_said(claim: Claim, size: float) -> float:
    return {"times": math.exp(size), "less": -100 * math.expm1(-size), "more": 100 * math.expm1(size),
            "kept": 100 * math.exp(-size)}[claim.way]  # fmt: skip


def _gives(claim: Claim, log: float, more: bool = False) -> bool:
    size = abs(log)
    half = claim.half
    if claim.way == "times":
        factors = (math.exp(size), *((math.exp(size) - 1,) * more))
        return any(abs(claim.value - way) <= half + NEAR * way for way in factors)
    if claim.way == "kept":
        return abs(claim.value - 100 * math.exp(-size)) <= half + 1.0
    ways = [-100 * math.expm1(-size)] + ([100 * math.expm1(size)] if size < 5 else [])
    ways += [100 * math.exp(-size)] if claim.value >= KEPT else []  # `fell by` and not `to`
    return any(abs(claim.value - way) <= half + 1.0 for way in ways)


def _speeds(one: Row, other: Row, worlds: float) -> Iterator[float]:
    """By which logarithm all devices of the one are as fast as all of the other, by each column that tells it."""
    for name in RATES[:4]:
        of_one = name in ("tokens_per_s_per_process", "tflops")
        a, b = one.get(name), other.get(name)
        if a and b and a > 0 and b > 0 and (worlds or not of_one):
            yield math.log(a / b * (worlds if of_one else 1.0))
    steps = [(row.get("sec_per_it"), row.get("gbs"), row.seq) for row in (one, other)]
    (first, batch, seq), (second, base, length) = steps
    if batch != base and not (one.shows("gbs") and other.shows("gbs")):
        return  # worked out from something else, of which nobody knows whether it is all
    if first and second and batch and base and seq == length:
        yield math.log(batch / first / (base / second))
    elif first and second and not batch and not base:
        yield math.log(second / first)


def _logs(pairs: Sequence[tuple[Row, Row]], *, measured: bool = False, memory: bool = True) -> Iterator[float]:
    """What any column of two rows gives, of one device or of all; of what was measured alone, settings are no change."""
    for one, other in pairs:
        worlds = math.log(one.world / other.world) if one.world and other.world else 0.0
        yield 0.0 if measured else worlds
        names = ("tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "sec_per_it", "tflops", "mfu", "mem_value", "gbs")
        values = [(name, one.get(name), other.get(name)) for name in names if memory or name != "mem_value"]
        values += [("", digits.alone(clean(row)), digits.alone(clean(other.record.printed.get(heading, ""))))
                   for heading, row in one.record.printed.items() if not (measured and is_setting(heading, one))
                   and (memory or field_of(heading) != "mem_value")]  # fmt: skip
        for name, a, b in values:
            if a and b and a > 0 and b > 0:
                log = math.log(a / b)
                yield log
                if name in RATES:
                    yield from (log - worlds, log + worlds)


_ALONE = re.compile(rf"(?<![^\W\d_])(?<![\w.,]-)(?!(?:A?[2-5]0[6-9]0)\b)({NUMBER.pattern})(?!\d|[BbMT](?![^\W\d_]))")
"""A number that is no part of a name: of `BF16`, `13B` and `4090` nobody makes a ratio."""


def _said(text: str, claim: Claim) -> Iterator[float]:
    """What two figures of the sentence give."""
    shown = [float(decimal(match[1])) for match in _ALONE.finditer(spelled(text)) if match.start() != claim.start
             and (claim.way == "times" or len(match[1]) > 1)]  # fmt: skip
    for a, b in itertools.combinations([one for one in shown[:12] if 0 < one < digits.MOST_WORKED_OUT], 2):
        if abs(a) != abs(b):
            yield math.log(a / b)


def _stands(claim: Claim, every: Sequence[Row]) -> bool:
    """In a cell of a table above."""
    shown = claim.text.replace(",", ".")
    return any(digits.plain(cell).replace(",", ".") == shown for row in every for heading, cell in row.record.printed.items()
               if claim.way == "times" or "%" in heading + cell or "." in shown)  # fmt: skip
