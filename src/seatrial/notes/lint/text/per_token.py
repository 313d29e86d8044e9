"""What one token takes, in operations and in energy: figures whose unit or point is wrong.

    check(sheet)          findings

    For the 7B that is 51 GFLOP a token at 8k and 677 TFLOP at 1024k.      GFLOP: no model of 7B needs so many
    On 64 Gaudi 2 a token costs 15.0 J.                                    1.50: 600 W at 401 tokens/s of a chip

Operations of a token are 2 to 6 for each parameter and what attention adds, in whichever way they are counted; its energy is
the power that the text or a table gives over the tokens that a device does a second.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from seatrial.notes.either import either
from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import scope_of
from seatrial.notes.lint.text.mentions import mentions
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.lint.text.sides import having_all
from seatrial.tables.headings import NUMBER, decimal

MOST_LINES, MOST_SIZES, NEAR = 4000, 24, 0.06
_OF_A_TOKEN = either(r"(?:per|a|each|every|/|je|pro|par|por|al|за|на) ?(?:tok|jet|ток)|每(?:个)?(?:token|词元)|"
                     r"トークン(?:あたり|当たり)|/ ?tok")  # fmt: skip
_OF_THE_DEVICE = re.compile(r"peak|dense|\b[mh]fu\b|utili|spec\b|spitze|\bpic\b|crete|\bpico\b|picco|пик|峰值|ピーク|피크",
                            re.IGNORECASE)  # fmt: skip
_FLOP = re.compile(rf"(?<![\w.,])({NUMBER.pattern}) ?([MGTP])(?:FLOPs?|flops?)(?!\w|/s|/ ?(?:GPU|s)| ?per (?:second|GPU))")
_SCALES = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SIZE = re.compile(r"(?<![\w.,])(\d{1,4}(?:[.,]\d{1,3})?) ?(B|M|Mrd|Md|млрд|billion)(?![\w/])")
LEAST, MOST = 1.8, 260.0
"""Operations for each parameter: forward alone, and with attention over a million tokens."""
_JOULE = re.compile(rf"(?<![\w.,])({NUMBER.pattern}) ?(m|k)?(?:J|Joules?|joules?)(?!\w)")
_WATTS = re.compile(rf"(?<![\w.,])({NUMBER.pattern}) ?(k)?W(?![\w/])")
_MOVED = (10.0, 100.0, 1000.0)


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        if len(text.lines) > MOST_LINES or not text.has("flop", " j", "j/", "joule"):
            continue
        tables = sheet.tables_of(file)
        before = False
        for sentence in text.sentences:
            of_one = _OF_A_TOKEN.has(sentence.text)
            if of_one or before:
                found += _operations(file, sentence, text.lines, surely=of_one)
            if of_one:
                found += _energy(file, sentence, tables, text.lines)
            before = of_one
    return found


@lru_cache(maxsize=64)
def _sizes(lines: tuple[str, ...]) -> tuple[float, ...]:
    """Parameters of models, as the text and the tables have them."""
    found = {float(decimal(match[1])) * (1e6 if match[2] == "M" else 1e9) for line in lines for match in _SIZE.finditer(line)}
    return tuple(found) if len(found) <= MOST_SIZES else ()


def _operations(file: str, sentence: Sentence, lines: tuple[str, ...], *, surely: bool) -> Iterator[Finding]:
    own = _sizes((sentence.text,))
    sizes = own or _sizes(lines)
    if not surely:  # of the sentence before, where another figure is of a token as well
        some = [float(decimal(match[1])) * _SCALES[match[2]] for match in _FLOP.finditer(sentence.text)]
        surely = any(LEAST * size <= one <= MOST * size for size in sizes for one in some)
    for match in _FLOP.finditer(sentence.text) if surely and not _OF_THE_DEVICE.search(sentence.text) else ():
        value = float(decimal(match[1])) * _SCALES[match[2]]
        if any(LEAST * size <= value <= MOST * size for size in (*sizes, *_sizes(lines))):
            continue
        right = [letter for letter, scale in _SCALES.items() if any(
            LEAST * size <= float(decimal(match[1])) * scale <= MOST * size for size in sizes)]  # fmt: skip
        if len(right) == 1:
            unit = match[0][len(match[1]) :]
            printed, meant = match[0], match[1] + unit.replace(match[2], right[0], 1)
            message = f"{printed} -> {meant}: so many no token of a model of {max(sizes):.3g} parameters takes"
            yield Finding(file=file, line=sentence.line_at(match.start()), code="aggregate", level="error", message=message,
                          printed=printed, proposed=meant)  # fmt: skip


def _energy(file: str, sentence: Sentence, tables: list[list[Row]], lines: tuple[str, ...]) -> Iterator[Finding]:
    its = list(_JOULE.finditer(sentence.text))
    rows = list(scope_of(tables, lines, sentence.line).last) if its else []
    watts = [float(decimal(match[1])) * (1000.0 if match[2] else 1.0) for line in lines if rows
             for match in _WATTS.finditer(line)]  # fmt: skip
    rates = {row: rate for row in rows if (rate := row.get("tokens_per_s_per_process") or (
        (row.get("tokens_per_s") or 0.0) / row.world if row.world else 0.0))}  # fmt: skip
    some = mentions(sentence.text, rows) if rates and 0 < len({*watts}) < MOST_SIZES else []
    for at, match in enumerate(its if some else ()):
        value = float(decimal(match[1])) * {"m": 1e-3, "k": 1e3}.get(match[2] or "", 1.0)

        def given(joule: float, of: list[Row]) -> bool:
            return any(abs(joule * rates[row] / watt - 1) < NEAR for row in of for watt in watts if row in rates)

        start = its[at - 1].end() if at else 0
        before = [one for one in some if start <= one.start < match.start()]
        own = {one.heading for one in before}
        shared = [one for one in some if one.start < its[0].start() and one.heading not in own]
        named = having_all([*shared, *before], rows)
        if not value or given(value, rows) or not 0 < len(named) < 4:
            continue
        moved = [value * way for times in _MOVED for way in (times, 1 / times) if given(value * way, named)]
        if len(moved) == 1:
            times = moved[0] / value
            shown = f"{float(decimal(match[1])) * times:.{max(digits.places(match[1]), 2 if times < 1 else 0)}f}"
            right = shown.replace(".", "," if "," in match[1] else ".") + match[0][len(match[1]) :]
            message = f"{match[0]} -> {right}: so much the power of a device is over the tokens of {named[0].where} a second"
            yield Finding(file=file, line=sentence.line_at(match.start()), code="aggregate", level="error", message=message,
                          printed=match[0], proposed=right)  # fmt: skip
