"""How many times or percent as fast one row of a table is as another, in the words of a sentence that names the two.

    check(sheet)          findings on factors and percentages that no column of the two rows gives

    From 4 to 16 nodes (TP 4, PP 1) it runs 2.70 times as fast.     235k tokens/s over 60k: 3.85
    четыре карты в 2,5 раза быстрее одной; 从 1 机扩到 32 机,总吞吐提高 16.9 倍
    Going from one node to sixteen keeps 68 % of the rate per GPU.

The rows are those of `mentions`: of the clause that the claim stands in, else of the whole sentence. A claim is fine that any
column of any of them gives, of one device or of all, or that two figures of the sentence do.
"""
from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import OTHERS, Claim, claims, may_claim, scope_of
from seatrial.notes.lint.text.figures import figures
from seatrial.notes.lint.text.mentions import Mention, mentions, spelled, two_sides
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.tables.headings import NUMBER, clean, decimal

MOST_LINES, MOST_PAIRS, NEAR, OFF, POINTS = 4000, 12, 0.015, 0.06, 2.6
RATES = ("tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "tflops", "mfu")
MOST = 3.0
"""By which factor a claim may be off to be of the same thing."""
_FASTER = re.compile(r"(?:快|提高|提升|高|高速|速く)(?:了|约|約|大约)? ?$")
_AFTER_MORE = re.compile(r" ?%? ?(?:も)?(?:速|向上|上が|빨라|증가|향상)")
_AFTER_LESS = re.compile(r" ?%? ?(?:も)?(?:落ち|下が|低下|減|遅|느|감소|떨어)")
_SLOWER = re.compile(r"(?:慢|降低|下降|减少|少)(?:了|约|約|大约)? ?$")
_SPEED = re.compile(
    r"fast|quick|speed|throughput|tok|rate|slow|longer|shorter|scal|"
    r"times (?:the|an?|as)\b|rend|gain|lose|lost|win|does|brings?|gives?|"
    r"better|schnell|durchsatz|langsam|rapide|rapido|vite|veloc|debit|rendimiento|tempo|snel|doorvoer|szybc|быстр|"
    r"ускор|произв|проп|快|吞吐|提速|速|スループット|倍|처리량|빠르|빨라|배|x one|x the|effi|keeps|"
    r"acelera|eficien|wydajn", re.IGNORECASE)  # fmt: skip
_PLAINLY = re.compile(r"fast|schnell|rapid|snel|быстр|tok", re.IGNORECASE)
_OF_OTHERS = re.compile(r"memor|speicher|\bgi?b\b|\bgo\b|cost|price|cheap|dollar|euro|[$€£]|kosten|prix|precio|energ|watt|kwh|"
                        r"power|память|显存|メモリ|메모리|loss|perplex|params|parameters|peak|spitze|batch|tokens seen|bubble|"
                        r"flops per token|attention|comm|larger|bigger|smaller|data\b", re.IGNORECASE)  # fmt: skip
_EACH = re.compile(r"(?:per|pro|je|par|por|na|за|на) (?:each )?(?:GPU|chip|card|device|accelerator|GCD|karte|carte|tarjeta|"
                   r"node|knoten|core)|(?:1 ?|每|单)(?:GPU|卡|カード)|/(?:GPU|chip|card|device|acc)|chip for chip|"
                   r"each (?:GPU|card)|GPU당", re.IGNORECASE)  # fmt: skip
_APART = re.compile(r"[;；。]\s?|,\s(?=\D)| and (?=an? |the )| und | et (?=un|l)")
_HARDER = re.compile(r";\s?|；|。")
_MORE = re.compile(r"\s?(?:x|×|times|mal|fois|veces|раза?|倍)?\s?(?:so )?(?:faster|more|higher|quicker|better|schneller|"
                   r"mehr|plus|mas|быстрее|больше|速)", re.IGNORECASE)  # fmt: skip
_IT = re.compile(r"\b(?:it|es|il|elle|lo|он|она)\b", re.IGNORECASE)
_TIMES_THE_DEVICES = re.compile(
    rf"({NUMBER.pattern})\s?(?:x|×|times|-?fach\w*|mal|fois|veces)\s?(?:the |so viele |die |der |le |de |as many |mas )?"
    rf"(?P<what>nodes?|hosts?|gpus?|chips?|cards?|ranks?|knoten|hardware|devices|noeuds|nodos)\b|"
    rf"(?P<two>\b(?:twice|double|doubling|doppelt so viele|deux fois plus de|el doble de)) (?:the |as many )?"
    rf"(?:nodes?|gpus?|chips?|cards?|ranks?|knoten|hardware|devices|noeuds|nodos)\b", re.IGNORECASE)  # fmt: skip
_OF_THE_TABLE = re.compile(r"#+\s.*\b(?:reading|conclusions?|results?|notes?|observations?|summary|takeaways?|"
                           r"lessons?|findings?|fazit|schluss\w*|discussion|remarks?|lectura|conclusion\w*)|[*#]+.*(?:結論|结论|考察|总结|выводы)|"
                           r"\* (?:Conclusions?|Results?|Notes?)", re.IGNORECASE)  # fmt: skip
_ALL_OF_THEM = re.compile(r"\b(?:all|every|average|mean|typically|mostly|usually|alle|im mittel|tous|moyenne|todos|"
                          r"media|steps? \d|between)\b", re.IGNORECASE)  # fmt: skip
_SHARE = re.compile(r"effi[czk]|eficien|wydajnosc|эффективн|効率|效率|효율|rendement\b", re.IGNORECASE)


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = [rows for rows in sheet.tables_of(file) if len(rows) > 1]
        before: Sentence | None = None
        for sentence in text.sentences if tables and len(text.lines) <= MOST_LINES else ():
            last, before = before, sentence
            its = _claims(sentence.text)
            its = [] if its and OTHERS.search(sentence.text) else its
            if its:
                scope = scope_of(tables, text.lines, sentence.line)
                rows = [row for row in scope.last if not is_aggregate(row)]
                if len(rows) > 1 and (scope.near or _still(rows, text.lines, sentence.line)):
                    every = [row for table in scope.tables for row in table]
                    last = last if last is not None and sentence.line - last.last < 2 else None
                    found += _sentence(file, sentence, its, rows, every, last)
    return found


def _still(rows: list[Row], lines: tuple[str, ...], number: int) -> bool:
    """Whether all headings between a table and a line say that they are of what stands above."""
    between = [line for line in lines[rows[-1].record.source_line or 0 : number - 1] if line.startswith(("#", "* "))]
    heads = [line for line in between if line.startswith("#")]
    return bool(heads) and all(_OF_THE_TABLE.match(line) for line in heads)


def _claims(text: str) -> list[Claim]:
    found = {one.start: one for one in claims(text)} if may_claim(text) else {}
    for figure in figures(text):
        if figure.kind == "factor" and not figure.bound:
            found.setdefault(figure.start, Claim(figure.text, figure.start, "times"))
    made = []
    for start, one in sorted(found.items()):
        way, after = one.way, text[start + len(one.text) :]
        if way == "share":
            before = text[max(0, start - 8) : start]
            way = "more" if _FASTER.search(before) or _AFTER_MORE.match(after) else way
            way = "less" if _SLOWER.search(before) or _AFTER_LESS.match(after) else way
            way = "kept" if way == "share" and _SHARE.search(text[max(0, start - 60) : start + 40]) else way
        made.append(Claim(one.text, start, way, one.alone))
    return made


def _sentence(file: str, sentence: Sentence, its: list[Claim], rows: list[Row], every: list[Row],
              before: Sentence | None) -> Iterator[Finding]:  # fmt: skip
    text = sentence.text
    times = list(_TIMES_THE_DEVICES.finditer(text))
    some: list[Mention] | None = None
    for claim in its:
        if claim.way == "share" or not claim.alone or not 0 < claim.value < 1000 or _ALL_OF_THEM.search(text):
            continue
        if any(match.start() <= claim.start < match.end() for match in times):
            continue
        start, end = _clause(sentence, claim, its, file.endswith((".csv", ".tsv")))
        clause = text[start:end]
        if _OF_OTHERS.search(clause) and not _PLAINLY.search(clause) or not _SPEED.search(text):
            continue
        if some is None:
            some = [one for one in mentions(text, rows) if not any(one.start == other.start for other in its)]
        here = [one for one in some if start <= one.start < end]
        sides = two_sides(here, rows)
        if sides is None and len(its) == 1:
            sides = two_sides(some, rows) or two_sides([one for one in some if one.start < claim.start], rows)
        if sides is None and len(here) == 1 and before is not None and _IT.search(clause):
            first = mentions(before.text, rows)
            sides = two_sides([*first, *here], rows) if len(first) == 1 else None
        if sides is None and not here and len(times) == 1 and claim.way != "kept" and start <= times[0].start() < end:
            sides = _so_many_times(float(decimal(times[0][1] or "2")), rows)
        if sides is None or len(sides[0]) * len(sides[1]) > MOST_PAIRS:
            continue
        yield from _judged(file, sentence, claim, sides, rows, every, clause)


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


def _judged(file: str, sentence: Sentence, claim: Claim, sides: tuple[list[Row], list[Row]], rows: list[Row],
            every: list[Row], clause: str) -> Iterator[Finding]:  # fmt: skip
    pairs = list(itertools.product(*sides))
    each = _EACH.search(clause) is not None or claim.way == "kept"
    more = _MORE.match(sentence.text, claim.start + len(claim.text)) is not None or _FASTER.search(
        sentence.text[: claim.start]) is not None and claim.value < MOST  # fmt: skip
    meant: list[float] = []
    for one, other in pairs:
        worlds = one.world / other.world if one.world and other.world else 0.0
        ways = sorted(_speeds(one, other, worlds))
        if not ways:
            return
        own = ways[len(ways) // 2]
        if len(ways) > 1 and sum(abs(way - own) < 0.03 for way in ways) < 2:
            return  # one of the cells is wrong
        of_one = each or claim.way in ("more", "less") and worlds not in (0.0, 1.0)
        meant.append(abs(own - math.log(worlds) if of_one and worlds else own))
    if not meant or max(meant) - min(meant) > 0.03 or any(_gives(claim, log, more) for log in _logs(pairs)):
        return
    if any(_gives(claim, log) for log in _said(sentence.text, claim)) or _stands(claim, every):
        return
    size = meant[0]
    value = _as_said(claim, size)
    if claim.way == "times":
        off = abs(math.log(claim.value / value))
        if off < OFF or off > math.log(MOST) and not digits.slips(decimal(claim.text), (value * 0.98, value * 1.02)):
            return
    elif abs(claim.value - value) < max(POINTS, 0.12 * value if claim.way != "kept" else 0.0):
        return
    if len(pairs) > 1 and any(_gives(claim, log) for log in _logs(list(itertools.combinations(rows, 2))[:200])):
        return
    text = f"{value:.{digits.places(claim.text)}f}"
    text = text.replace(".", ",") if "," in claim.text else text
    if not float(decimal(text)):
        return
    level: Level = "error" if len(pairs) == 1 else "warning"
    unit = "x" if claim.way == "times" else " %"
    one, other = pairs[0]
    message = f"{claim.text}{unit} -> {text}{unit}: the speeds of {one.where} and {other.where} give {text}{unit}"
    yield Finding(file=file, line=sentence.line_at(claim.start), code="aggregate", level=level, message=message,
                  printed=claim.text, proposed=text)  # fmt: skip


def _as_said(claim: Claim, size: float) -> float:
    return {"times": math.exp(size), "less": -100 * math.expm1(-size), "more": 100 * math.expm1(size),
            "kept": 100 * math.exp(-size)}[claim.way]  # fmt: skip


def _gives(claim: Claim, log: float, more: bool = False) -> bool:
    size = abs(log)
    half = claim.half
    if claim.way == "times":
        return any(abs(claim.value - way) <= half + NEAR * way for way in (math.exp(size), *((math.exp(size) - 1,) * more)))
    ways = [-100 * math.expm1(-size), 100 * math.exp(-size)] + ([100 * math.expm1(size)] if size < 5 else [])
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
    if first and second and batch and base and seq == length:
        yield math.log(batch / first / (base / second))
    elif first and second and not batch and not base:
        yield math.log(second / first)


def _logs(pairs: Sequence[tuple[Row, Row]]) -> Iterator[float]:
    """What any column of two rows gives, of one device or of all."""
    for one, other in pairs:
        worlds = math.log(one.world / other.world) if one.world and other.world else 0.0
        yield worlds
        names = ("tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "sec_per_it", "tflops", "mfu", "mem_value", "gbs")
        values = [(name, one.get(name), other.get(name)) for name in names]
        values += [("", digits.alone(clean(row)), digits.alone(clean(other.record.printed.get(heading, ""))))
                   for heading, row in one.record.printed.items()]  # fmt: skip
        for name, a, b in values:
            if a and b and a > 0 and b > 0:
                log = math.log(a / b)
                yield log
                if name in RATES:
                    yield from (log - worlds, log + worlds)


def _said(text: str, claim: Claim) -> Iterator[float]:
    """What two figures of the sentence give."""
    shown = [float(decimal(match[0])) for match in NUMBER.finditer(spelled(text)) if match.start() != claim.start
             and (claim.way == "times" or len(match[0]) > 1)]  # fmt: skip
    for a, b in itertools.combinations([one for one in shown[:12] if 0 < one < digits.MOST_WORKED_OUT], 2):
        if abs(a) != abs(b):
            yield math.log(a / b)


def _stands(claim: Claim, every: Sequence[Row]) -> bool:
    """In a cell of a table above."""
    shown = claim.text.replace(",", ".")
    return any(digits.plain(cell).replace(",", ".") == shown for row in every for heading, cell in row.record.printed.items()
               if claim.way == "times" or "%" in heading + cell or "." in shown)  # fmt: skip
