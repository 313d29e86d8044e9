"""A ratio of two figures of one sentence, which it names itself.

    check(sheet)          findings on ratios that the two figures before them do not give

    697 against 353 ktok/s, a factor of 1.97
    4.18 instead of 1.06 samples/s, 3.9x
    from 24.9 to 19.1 days, i.e. 23 % less
    ideal would be 16, we reach 13.2, i.e. 83 %

Nothing is said where the figures give it in any way, turned round or as a change.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text import measures
from seatrial.notes.lint.text.claims import Claim, claims, may_claim
from seatrial.notes.lint.text.figures import figures
from seatrial.notes.lint.text.sentences import Sentence, each
from seatrial.tables.headings import NUMBER, decimal

MOST_LINES, POINTS, NEAR, FAR, SHORT, STRICT = 4000, 2.5, 0.06, 12.0, 4, 3.0
_KINDS = frozenset(("tokens a second", "device tokens a second", "samples a second", "step seconds", "hours", "money", "energy",
                    "memory", "tflops", "device hours", "node hours", "mfu", "power", "tokens"))  # fmt: skip
_N = rf"(?<![\w.,-])(?P<number>{NUMBER.pattern})"
_TWO = re.compile(
    rf"{_N}\s?(?:[^\d.,;:()]{{1,14}}\s)??(?:against|versus|vs\.?|instead of|rather than|compared (?:to|with)|after|over|"
    r"down from|up from|to|->|→|gegen(?:uber)?|statt|nach|auf|contre|au lieu de|frente a|en vez de|en lugar de|contro|"
    r"invece di|a|tegen|in plaats van|naar|вместо|против|до|zamiast|wobec|na|から|比|对)\s?"
    r"(?:the |only |just |nur |its |rund |about )?[$€£]?$", re.IGNORECASE)  # fmt: skip
_INSTEAD = re.compile(rf"\b(?:instead of|statt|au lieu de|en vez de|en lugar de|invece di|in plaats van|вместо|zamiast)\s"
                      rf"[$€£]?{_N}[^\d.;:()]{{2,40}}$", re.IGNORECASE)  # fmt: skip
_SAYS = (r"(?:i\.e\.,?|that is|which is|that's|so|d\.h\.|das sind|das ist|also|soit|donc|o sea|es decir,?|cioe|dus|то есть|"
         r"а именно|т\.е\.|to jest|つまり|即)")  # fmt: skip
_SO = re.compile(
    rf"\s?[^\d.;]{{0,24}}?(?:[,:(=、，]|\b{_SAYS})\s?(?:{_SAYS} )?"
    r"(?:(?:an?|the|den|dem|le|el|il|about|around|roughly|rund|etwa|environ|un|una|ein|einen|um|by|a good) )*"
    r"(?:(?:factor|Faktor|facteur|fattore|fator|gain|speed-?up|ratio|loss|drop|decrease|reduction|increase|saving|Verlust|"
    r"Gewinn|"
    r"Ruckgang|Zuwachs|perte|baisse|hausse|perdida|caida|mejora|aumento|perdita|calo|guadagno|perda|queda|ganho|verlies|winst|"
    r"strata|zysk|потеря|прирост|падение|рост|выигрыш) )?(?:(?:of|von|de|di|um) )?[+~≈-]?$",
    re.IGNORECASE)  # fmt: skip
_IDEAL = re.compile(
    rf"\bideal\w*[^.;]{{0,40}}?\b(?:would be|is|are|ware|waren|ist|serait|seria|sarebbe|=|:)\s(?P<ideal>{NUMBER.pattern})x?"
    r"[^.;\d]{0,40}?\b(?:reach|get|have|see|got|measured?|erreichen|haben|sind|obtenons|atteignons|tenemos|abbiamo)\s"
    rf"(?P<own>{NUMBER.pattern})", re.IGNORECASE)  # fmt: skip
_SURELY = re.compile(r"\b(?:loss|drop|gain|increase|decrease|reduction|verlust|gewinn|ruckgang|zuwachs|perte|baisse|"
                     r"hausse|perdida|"
                     r"caida|mejora|perdita|calo|guadagno|perda|queda|ganho|verlies|winst|strata|zysk|потеря|прирост|also|"
                     r"donc|dunque|luego)\b|i\.e\.|that is|factor|faktor|facteur|fattore|fator|speed-?up|=|\(|\bsoit|"
                     r"d\.h\.|das sind|das ist|\bcioe|"
                     r"\bdus|es decir|o sea|т\.е\.|то есть|つまり|即", re.IGNORECASE)  # fmt: skip
"""What ties a ratio to two figures without a word that says of what it is."""
_LOSS = re.compile(r"\b(?:loss|lost|less|fewer|drop(?:s|ped)?|decrease[sd]?|down|reduction|verlust|weniger|ruckgang|"
                   r"einbusse|perte|"
                   r"moins|baisse|perdida|menos|caida|perdita|meno|calo|perda|queda|verlies|minder|strata|mniej|потер\w+|"
                   r"меньше)\b",
                   re.IGNORECASE)  # fmt: skip
"""Of what was there before, and never of what is left."""
_SPEEDS = ("speed", "hours")
_RATES = ("tokens a second", "device tokens a second", "samples a second", "step seconds", "tflops", "mfu")
_ALIKE = {**dict.fromkeys(_RATES, _SPEEDS), "hours": _SPEEDS, "device hours": ("device hours", "hours"),
          "node hours": ("device hours", "hours"),
          "tokens": ("speed", "other")}
_CLEAR = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost", "one digit changed")


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        lines = str(file).endswith((".csv", ".tsv"))
        for sentence in each(text.sentences, lines=lines) if len(text.lines) <= MOST_LINES else ():
            if may_claim(sentence.text):
                found += _sentence(file, sentence)
    return found


def _sentence(file: str, sentence: Sentence) -> Iterator[Finding]:
    text = sentence.text
    its = [_unsigned(one) for one in claims(text) if one.alone and 0 < abs(one.value) < 1000]
    for claim in its:
        pair = _two(text, claim)
        if pair is None:
            continue
        yield from _judged(file, sentence, claim, *pair)
    for match in _IDEAL.finditer(text) if "ideal" in text.casefold() else ():
        after = [one for one in its if one.way in ("share", "kept") and 0 < one.start - match.end() < 40]
        values = [float(decimal(match[name])) for name in ("own", "ideal")]
        if len(after) == 1 and 0 < values[0] <= 1.2 * values[1]:
            yield from _judged(file, sentence, after[0], values[0], values[1], 0.01, kept=True)


def _unsigned(claim: Claim) -> Claim:
    if claim.text[0] not in "+-":
        return claim
    way = claim.way if claim.way == "times" else "less" if claim.text[0] == "-" else "more"
    return Claim(claim.text[1:], claim.start + 1, way)


def _two(text: str, claim: Claim) -> tuple[float, float, float] | None:
    """The last two figures before a claim, of one kind, with a word of comparison between and one of consequence behind, and
    what their digits leave open."""
    before = [one for one in figures(text) if one.end <= claim.start and not one.bound]
    if not before or before[-1].kind not in _KINDS or not before[-1].value:
        return None
    second, gap = before[-1], text[before[-1].end : claim.start]
    head = text[: second.start]
    joined = _TWO.search(head)
    instead = _INSTEAD.search(head) if joined is None or not joined["number"] else None
    match = joined or instead
    if match is None or not _SO.fullmatch(gap):
        return None
    first = next((one for one in before[:-1] if one.start == match.start("number")), None)
    if first is not None and first.kind != second.kind:
        return None
    value = first.value if first is not None else float(decimal(match["number"])) * second.scale
    said = measures.kind_after(text, claim)
    tied = _SURELY.search(gap) is not None or claim.way == "times" and len(gap) < SHORT
    if not value or not (said in _ALIKE.get(second.kind, (second.kind,)) if said else tied):
        return None
    half = 0.5 * 10.0 ** -digits.places(match["number"]) * second.scale
    return value, second.value, half / value + second.half / second.value


def _judged(file: str, sentence: Sentence, claim: Claim, first: float, second: float, loose: float, *,
            kept: bool = False) -> Iterator[Finding]:  # fmt: skip
    low, high = sorted((first, second))
    if high > FAR * low * (10 if claim.way == "times" else 1) or high == low:
        return
    ratio = high / low
    down, up = 100 - 100 / ratio, 100 * ratio - 100
    ways = {"times": [ratio], "kept": [100 / ratio], "less": [down, up], "more": [up, down], "share": [down, up, 100 / ratio]}
    every = [ratio, ratio - 1, 1 / ratio] if claim.way == "times" else [100 / ratio, down, up, 100 * ratio]
    slack = [(0.02 + loose) * one if claim.way == "times" else 1.0 + 100 * loose for one in every]
    strict = claim.way == "less" and _LOSS.search(sentence.text[max(0, claim.start - 24) : claim.start + 24]) is not None
    if any(abs(claim.value - one) <= claim.half + near for one, near in zip(every, slack)) and not (
            strict and abs(claim.value - up) <= claim.half + 1 and abs(claim.value - down) > claim.half + STRICT):  # fmt: skip
        return
    meant = [100 / ratio] if kept else [down] if strict else ways[claim.way]
    shown, half = decimal(claim.text), 1.2 * claim.half
    typed = {slip.text for one in meant for slip in digits.slips(shown, (one - half, one + half)) if slip.how in _CLEAR}
    off = abs(math.log(claim.value / meant[0]))
    if off < NEAR or claim.way != "times" and min(abs(claim.value - one) for one in meant) < POINTS:
        return
    text = typed.pop() if len(typed) == 1 else f"{meant[0] * (1 + 1e-12):.{digits.places(claim.text)}f}"
    text = text.replace(".", ",") if "," in claim.text else text
    unit = "x" if claim.way == "times" else " %"
    message = f"{claim.text}{unit} -> {text}{unit}: so much {first:g} and {second:g} are"
    yield Finding(file=file, line=sentence.line_at(claim.start), code="aggregate", level="error", message=message,
                  printed=claim.text, proposed=text)  # fmt: skip
