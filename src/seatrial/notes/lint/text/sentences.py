"""The sentences of a text, which may go over several lines: see `Prose.sentences`.

    for one in sentences(lines):
        one.text, one.line, one.line_at(12)          in plain letters, where it begins, and where its twelfth letter stands
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.notes.either import either
from seatrial.notes.lint.text.figures import plain
from seatrial.notes.lint.text.words import SPELLED
from seatrial.notes.read.listed import is_row_of_commas

ABBREVIATED = "".join(rf"(?<!\b{one}\.)" for one in (
    "Mrd", "Mio", "Bio", "Tsd", "Mld", "mln", "mld", "ca", "i\\.e", "e\\.g", "approx", "avg", "resp", "bzw", "vs", "Std", "env",
    "max", "min", "incl", "inkl", "z\\.B", "d\\.h", "млрд", "млн", "тыс", "т", "е"))
"""Behind these no sentence ends."""
_MONTHS = "(?:Jan|Feb|M[aä]r|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)"
ENDS = re.compile(rf"(?=\s)(?:(?<=[^\d\s][.!?]){ABBREVIATED}\s|(?<=\d\.)\s(?=[A-ZÀ-Ý])(?!{_MONTHS})|(?<=%\.)\s)|[。！？]")


@dataclass(frozen=True)
class Sentence:
    """In plain letters, and where it stands: it may go over several lines."""

    text: str
    starts: tuple[tuple[int, int], ...]
    """Where in the text a line begins, and its number."""

    @property
    def line(self) -> int:
        return self.starts[0][1]

    first = line

    @property
    def last(self) -> int:
        return self.starts[-1][1]

    def line_at(self, place: int) -> int:
        return next(number for start, number in reversed(self.starts) if start <= place or number == self.line)


_FIRST = (r"fastest|slowest|quickest|cheapest|dearest|most expensive|longest|shortest|\bbest\b|\bwins\b|winner|schnellste|"
          r"langsamste|"
          r"gunstigste|billigste|teuerste|beste|plus rapide|plus lent|moins cher|plus cher|mas rapid|mas lent|mas barat|"
          r"mas car|piu "
          r"veloc|piu lent|piu economic|piu car|mais rapid|mais car|snelste|traagste|goedkoopste|duurste|быстр|дешев|"
          r"дорог|最快|最慢|最速|最安")
_DIGIT = re.compile(r"\d")
_TOLD = either(rf"{SPELLED.pattern}|{_FIRST}")
"""A number in words, or a word of what is first."""
_ITEM = re.compile(r"\s*(?:[-*+•] |\d{1,2}[.)] |> ?[-*] )")
_MARKS = re.compile(r"(?<![\w*])[*`_]{1,3}(?=\S)|(?<=\S)[*`]{1,3}|\*\*")
_LABEL = re.compile(r"\s*(?:- )?(?:[^\W\d_]+ ){0,2}[^\W\d_]{3,}[.:] ")
"""`Totals.` before what they are: one sentence with what follows."""
LONGEST, MOST_TOGETHER = 1500, 12


def sentences(lines: tuple[str, ...]) -> tuple[Sentence, ...]:
    """All that have a number, in words too; those of tables, headings and code are none."""
    found: list[Sentence] = []
    block: list[tuple[int, str]] = []
    fenced = False

    def close() -> None:
        if any([_DIGIT.search(line) for _, line in block]) or any([_TOLD.has(plain(line)) for _, line in block]):
            found.extend(_split(block))
        block.clear()

    for number, line in enumerate((*lines, ""), 1):
        if not line and not block:
            continue
        bare = line.strip()
        if bare[:3] in ("```", "~~~"):
            fenced = not fenced
        row = bare[:1] == "|" or "|" in bare and bare.count("|") > 1 or is_row_of_commas(bare)
        if fenced or not bare or row or bare[0] in "#=<" or len(line) > LONGEST:
            close()
            continue
        if _ITEM.match(line) or len(block) >= MOST_TOGETHER:
            close()
        block.append((number, bare))
    close()
    return tuple(found)


def _split(block: list[tuple[int, str]]) -> Iterator[Sentence]:
    text, starts = "", []
    for number, line in block:
        starts.append((len(text), number))
        text += _MARKS.sub("", plain(line)) + " "
    begin = 0
    for end in (*(match.end() for match in ENDS.finditer(text)), len(text)):
        part = text[begin:end]
        if _LABEL.fullmatch(part):
            continue
        if _DIGIT.search(part) or _TOLD.has(part):
            own = [(max(0, start - begin), number) for start, number in starts if start < end]
            within = [one for one in own if one[0] > 0] or []
            first = [(0, next(number for start, number in reversed(starts) if start <= begin))]
            yield Sentence(part, (*first, *within))
        begin = end


def each(some: tuple[Sentence, ...], *, lines: bool) -> Iterator[Sentence]:
    """Sentences, or each of their lines by itself: remarks between rows of commas go on in no next one."""
    for sentence in some:
        ends = [*(start for start, _ in sentence.starts[1:]), len(sentence.text)]
        if not lines or len(ends) == 1:
            yield sentence
            continue
        for (start, number), end in zip(sentence.starts, ends):
            yield Sentence(sentence.text[start:end], ((0, number),))
