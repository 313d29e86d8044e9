"""What the text excepts from what it says of all rows: `300 B tokens, except the 7B (100 B)`.

    excepted(row, off)         whether a sentence gives the row another number than the others, by so much as a logarithm

Of which quantity it speaks need not be known: a row that the sentence names, and that is off by the ratio of its two numbers,
is what the sentence says it is. Then all rows of that name are: one that is like the others shows that the sentence speaks of
something else.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from seatrial.tables.headings import clean

if TYPE_CHECKING:
    from seatrial.notes.lint.row import Row

_BUT = re.compile(r"\b(?:except(?:ing)?|but|apart from|other than|excluding|save for|unless|otherwise|instead of|only)\b|"
                  r"\bsauf\b|\bau(?:ss|ß)er\b|\bexcepto\b|\bsalvo\b|\btranne\b|除|以外", re.IGNORECASE)  # fmt: skip
WORDS = ("except", "but", "apart", "other", "excluding", "save for", "unless", "instead", "only", "sauf", "ausser", "salvo",
         "tranne", "除", "以外")  # fmt: skip
"""Without one of these, in small letters, a text excepts nothing, but in brackets."""
_OF_ONE = re.compile(r"\d \([A-Za-z][\w.-]*(?: [\w.-]+)?: ?\d[\d,.]* ?[kK]?\)")
"""`4096 (Mistral: 8192)`"""
_NUMBER = re.compile(r"(?<![\w.,-])(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?) ?([kKMBT])?(?![\d-])")
_TIMES = {"k": 1024.0, "K": 1024.0, "M": 1e6, "B": 1e9, "T": 1e12}
NEAR = 0.012


def excepts(line: str) -> bool:
    return _BUT.search(line) is not None or "(" in line and _OF_ONE.search(line) is not None


def said(lines: Iterable[str]) -> list[tuple[frozenset[float], str]]:
    """Of each sentence that excepts something the logarithms of its ratios, and its words."""
    found = []
    for line in lines:
        if not excepts(line):
            continue
        for sentence in re.split(r"(?<=[.;])\s+(?=[A-Z`*])", line):
            numbers = [float(m[1].replace(",", "")) * _TIMES.get(m[2] or "", 1.0) for m in _NUMBER.finditer(sentence)][:12]
            numbers = [number for number in numbers if 0 < number < math.inf]
            logs = {math.log(one) - math.log(other) for one in numbers for other in numbers if one != other}
            if logs and excepts(sentence):
                found.append((frozenset(logs), sentence.casefold()))
    return found


def excepted(row: Row, off: float, keeps: Callable[[Row], bool] = lambda mate: False) -> bool:
    """`keeps`: whether a row is like the others in what this one is off by."""
    text = row.sheet.text(row).exceptions
    here = [words for logs, words in text if any(abs(abs(off) - log) < NEAR for log in logs)]
    names = {name.casefold() for name in _names(row)} if here else ()
    others = [mate for mate in row.around if mate is not row] if here else ()
    return any(_stands(name, words) and _is_meant(row, words, called := [mate for mate in others if _is_called(mate, name)])
               and not any(keeps(mate) for mate in called if _is_meant(mate, words, [row]))
               for words in here for name in names)  # fmt: skip


_COUNT = re.compile(r"(?<![\w.,-])(\d{1,5})(?: ?[x×] ?|[- ])(?:gpu|card|device|chip|node|karte|carte|tarjeta)")


def _is_meant(row: Row, words: str, others: list[Row]) -> bool:
    """Whether a sentence that says how large the run of a name is means this one of them: `the 32-GPU 8B (8192)`."""
    sizes = {float(count) for count in _COUNT.findall(words)}
    own, of_others = ({row.world, row.record.nodes} & sizes, any({mate.world, mate.record.nodes} & sizes for mate in others))
    return bool(own) or not of_others


def is_excepted(row: Row) -> bool:
    """Whether a sentence gives the row another number than the others, of whatever it is."""
    text = row.sheet.text(row).exceptions
    names = {name.casefold() for name in _names(row)} if text else ()
    return any(_stands(name, words) for _, words in text for name in names)


def _is_called(row: Row, name: str) -> bool:
    return any(_stands(name, cell.casefold()) for cell in row.worded.values())


def _stands(name: str, words: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name.casefold())}(?![\w.])", words) is not None


def _names(row: Row) -> Iterator[str]:
    """What the row is called: its cells of words, the sizes in them, and words of them that few other rows have."""
    for heading, cell in row.worded.items():
        yield clean(cell)
        yield from re.findall(r"\d+(?:\.\d+)?[mbt]\b", cell.casefold())
        yield from (f"{heading} {number}" for number in re.findall(r"^\d{1,3}(?![\d.,])", clean(cell)))
        cells = [mate.record.printed.get(heading, "") for mate in row.around]
        often = {word: sum(word in one for one in cells) for word in re.findall(r"[^\W\d_]{4,}", cell)}
        yield from (word for word, many in often.items() if many == 1 or 4 * many < len(cells))
