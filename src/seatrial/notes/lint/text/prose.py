"""What the sentences around tables say: the device, the memory that can be used, peaks, prices, formulas.

    Prose.of(text).capacity(120)                  the limit that holds at line 120, with the words that say so
    Prose.of(text).hints                          the settings that sentences state: see `sentences`

What lint takes from a sentence has to prove itself on the rows.
"""
from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from seatrial.notes.lint import means
from seatrial.notes.lint.models.devices import OF_DEVICES_SOLD, device_cues, device_named, preset_cues, presets_in
from seatrial.notes.lint.once import once
from seatrial.notes.lint.text import exceptions
from seatrial.notes.lint.text.sentences import Sentence, sentences
from seatrial.notes.read.outline import Chapters, Outline
from seatrial.notes.read.sentences import Hints, piped
from seatrial.spec import Device
from seatrial.tables.tongues import in_english

_LIMIT = re.compile(
    r"\b(?:max(?:imum)?(?: usable)?|usable(?: maximum| memory)?|at most|limit|capacity)\b"
    r"[^|\d.\n]{0,40}?(\d+(?:\.\d+)?) ?(Gi?B|Mi?B)\b",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\]\([^()\s]*")
"""Where a link or a picture leads to, which names nothing: `icons/p100.svg`."""
_OF_MEMORY = re.compile(r"mem|GPU|node|device|usable|card", re.IGNORECASE)
_OF_A_DEVICE = re.compile(
    r"\b(A100|H100|H200|H800|A800|V100|P100|A40|A[456]000|A30|L40S?|L4|T4|H20|B[123]00|G[BH][23]00|MI\d+X?|"
    r"(?:TPU )?v[2-6][ep]?)\b"
    r"[^|\n\d]{0,12}?(?:\d+(?:\.\d+)? ?[TP]FLOP[^|\n.;]{0,24}?)?(\d{2,3}) ?Gi?B\b(?! per node| a node|/node)", re.IGNORECASE
)
_A_DEVICE = re.compile(
    r"(?<![\w.,])(\d{1,3}) ?Gi?B\b(?: of)?(?: HBM\w*| VRAM| memory| RAM)? ?(?:per|/|a|each|on each)? ?"
    r"(?:GPU|device|card|GCD|accelerator|chip)s?\b|(?<![\w.,])(\d{1,3}) ?Gi?B each\b|"
    r"\b(?:GPU|device|HBM\w*|VRAM)(?: memory| capacity)?(?: of| is|:|=) ?(\d{1,3}) ?Gi?B\b(?! per node| a node|/node)|"
    r"\b(?:GPU|device|card|GCD|accelerator|chip)s?,? (?:with|have|has|of|at) (\d{1,3}) ?Gi?B\b|"
    r"\b(?:GPU|device|card|GCD|accelerator|chip)s?(?:, | \()(\d{1,3}) ?Gi?B\)",
    re.IGNORECASE,
)
_SIZED = re.compile(r"gpu|device|card|gcd|accelerator|chip|each|hbm|vram|[ahvpblt]\d|g[bh][23]00|mi\d")
"""Letters without which neither speaks of a device."""
_FIGURE = r"(?<![\d.])(\d{2,4}(?:\.\d+)?)(?!\d|\.\d| ?%| ?[GM]i?B)"
_PEAK = re.compile(
    rf"\bpeaks?\b(?: (?:of|at|is|being|dense|bf16|fp16))*[ :=]{{1,3}}{_FIGURE}|"
    rf"{_FIGURE} ?TFLOP\S*(?: \w+){{0,2}} (?:dense|peak)\b|"
    rf"{_FIGURE} (?:TFLOP\S* )?(?:\(|for (?:the |an? )?)(?=(?:TPU )?v[2-6][ep]?\b|[AHVBL]\d{{2,3}}S?\b|MI\d|Gaudi)|"
    rf"\b(?:[AHVBL]\d{{2,3}}S?|MI\d+X?|(?:TPU )?v[2-6][ep]?|Gaudi ?\d)(?::| has| does| \() ?{_FIGURE} ?TFLOP", re.IGNORECASE
)
_AN_HOUR = re.compile(r"[$€£]|\b(?:dollars?|euros?|usd|eur)\b|\bpri(?:ces?|x)\b|\bpreise?\b", re.IGNORECASE)
_A_PRICE = re.compile(
    r"\b((?:[AHVBPL]\d{2,3}S?|L4|T4|GH200|GB[23]00|MI\d{3}X?))(?:[- ]\d+ ?GB)?(?: at| is| costs|:|=)? [$€£]? ?"
    r"(\d{1,3}[.,]\d{1,3})(?![\d.,]\d)"
)
_UNEVEN = re.compile(
    r"\buneven\b|unevenly|first-pipeline-num-layers|last-pipeline-num-layers|account-for-embedding|account-for-loss|"
    r"pipeline-model-parallel-layout|num-layers-in-(?:first|last)|\btorchtitan\b",
    re.IGNORECASE,
)


_DEFINED = re.compile(r"`([\w#./-]{1,12})`\s*(?:=|:|is|are|means|counts?)\s+(?:the )?(?:number of )?([a-z][a-z -]{2,30}?)"
                      r"(?=[.,;()]|$| (?:per|of|that|in|for|which|a|each|and)\b)", re.IGNORECASE)  # fmt: skip
_PAIRS = re.compile(r"\b(?:in|are|is|of|preference|a) \**pairs?\b|\bchosen (?:and|/|\+) ?rejected\b", re.IGNORECASE)
_BY = r" ?[·*×x⋅]? ?"
_OF_ALL = rf"{_BY}(?:N(?:_\w+)?|P|params?|parameters|参数量?)"
_FACTOR = re.compile(rf"(?<![\w.])(?:([2-9])(?:\.0)?{_OF_ALL}|(72|96){_BY}B{_BY}[sSlL]\w*)(?![a-zA-Z])|"
                     r"\b(?:factor|with|or|and|by) (72|96)\b")  # fmt: skip
_WITH_ATTENTION = re.compile(rf"(?<![\w.])6{_OF_ALL}\s*(?:\+|plus)\s*12(?![\d.])", re.IGNORECASE)
_AMOUNT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?([MBT]|billion|million|trillion)(?!\w)")
_RATE_OF_TOKENS = re.compile(r"\btok(?:en)?s? ?(?:/|per\b|a (?:second|gpu))")
_AMOUNTS = {"M": 1e6, "B": 1e9, "T": 1e12}
_FEW = 6
T = TypeVar("T")


def kept(work: Callable[[Prose], T]) -> Callable[[Prose], T]:
    """What is worked out of a text once, and kept with it."""
    name = f"{work.__module__}.{work.__name__}"

    def known(text: Prose) -> T:
        if name not in text.__dict__:
            text.__dict__[name] = work(text)
        return text.__dict__[name]  # type: ignore[no-any-return]

    return known


def _apart(amounts: set[float]) -> frozenset[float]:
    """The logarithms of their ratios; of many amounts some two have any ratio."""
    few = sorted(amounts - {0.0}) if len(amounts) <= _FEW else []
    return frozenset(math.log(more / less) for at, less in enumerate(few) for more in few[at + 1 :])


def peaks_in(lines: Iterable[str]) -> list[float]:
    """The TFLOPs that lines call a peak, or that of a device that they name."""
    said = [line for line in lines if "peak" in (letters := line.casefold()) or "flop" in letters]
    return [float(next(filter(None, match.groups()))) for line in said for match in _PEAK.finditer(line)]


_FIGURES = " .0123456789"
MOST_ABOVE, LONGEST = 12, 2000
"""Lines that belong to a table below them; letters of one that patterns look at."""


@dataclass(frozen=True)
class Prose:
    lines: tuple[str, ...]
    _near: dict[int, tuple[float, str]] = field(default_factory=dict, compare=False)
    """Section -> the size of the device that holds there; filled when it is needed."""
    _parts: dict[int, Prose] = field(default_factory=dict, compare=False)
    """Section -> the text that speaks for its rows; filled when it is needed."""
    whole: Prose | None = field(default=None, compare=False)
    """What a text that speaks for some rows is part of."""

    @once
    def letters(self) -> str:
        """The whole text in small letters: patterns without one of whose words in it no line has to be asked for.

        What stands between two commas or pipes is there once, and figures are not: most of a long table is the same in row
        after row, and no pattern looks for a bare number."""
        parts = {*",".join(self.lines).casefold().replace("|", ",").split(",")}
        return "\n".join([part for part in parts if part.strip(_FIGURES)])

    def has(self, *words: str) -> bool:
        letters = self.letters
        for word in words:  # noqa: SIM110, asked too often for a generator
            if word in letters:
                return True
        return False

    @once
    def said(self) -> tuple[tuple[int, str], ...]:
        """The lines that have something, with their numbers, but for those of tables."""
        return tuple([(number, line) for number, line in enumerate(self.lines, 1) if line and line[0] != "|"])

    @once
    def spoken(self) -> list[str]:
        """Those that are not too long for patterns that look at all of a line, and in no table that is set in by gaps."""
        return [line for _, line in self.said if len(line) <= LONGEST and not line.lstrip().startswith("|")]

    @once
    def hints(self) -> Hints:
        return Hints(self.lines)

    @once
    def sentences(self) -> tuple[Sentence, ...]:
        return sentences(self.lines)

    @classmethod
    def of(cls, text: str) -> Prose:
        return cls(piped(text))

    def right_above(self, line: int) -> tuple[str, ...]:
        """The lines between the table of a row and what stands above it: a heading, or another table."""
        at = line - 1
        while at > 0 and self.lines[at - 1 : at] and self.lines[at - 1].lstrip().startswith("|"):
            at -= 1
        above = self.lines[max(0, at - MOST_ABOVE) : at]
        last = max((place for place, text in enumerate(above) if text.lstrip().startswith(("|", "#"))), default=-1)
        return above[last + 1 :]

    def heard(self, chapters: Chapters, part: int) -> Prose:
        """The text of a chapter and what speaks for it, each line where it was."""
        return self._of_hints(self.hints.heard(chapters, part))

    def at(self, line: int) -> Prose:
        """The text that speaks for a row, as the importer has it: its sections, and those that set them up."""
        tree = self.hints.sections
        section = tree.at(line)
        if section not in self._parts:
            chain, lines = {*tree.chain(section)}, list(self.lines)
            starts = [max(one.line, 1) for one in tree.sections]
            for index, (start, end) in enumerate(pairwise([*starts, len(lines) + 1])):
                if tree.scope(index) not in chain:
                    lines[start - 1 : end - 1] = [""] * (end - start)
            self._parts[section] = self if tuple(lines) == self.lines else self._of_hints(self.hints.among(tuple(lines)), self)
        return self._parts[section]

    def _of_hints(self, hints: Hints, whole: Prose | None = None) -> Prose:
        made = Prose(hints.lines, whole=whole)
        made.__dict__["hints"] = hints
        return made

    @once
    def limits(self) -> list[tuple[int, float, str]]:
        """(line, GiB, words) of each sentence that limits memory; tables are no sentences."""
        found = []
        for number, line in self.said if self.has("max", "usable", "at most", "limit", "capacity") else ():
            if line.lstrip().startswith("|") or not _OF_MEMORY.search(line):
                continue
            for match in _LIMIT.finditer(line):
                size = float(match[1]) / (1024 if match[2][0] in "mM" else 1)
                found.append((number, size, match[0].strip()))
        return found

    @once
    def least_limit(self) -> float:
        """What no row below has to be asked for more than."""
        return min((size for _, size, _ in (self.whole or self).limits), default=math.inf)

    @once
    def uneven(self) -> bool:
        """Whether the text speaks of an engine whose stages may have different numbers of layers."""
        spoken = self.has("uneven", "pipeline", "account-for", "num-layers-in", "torchtitan")
        return spoken and any(_UNEVEN.search(line) for line in self.lines)

    @once
    def device_sizes(self) -> list[tuple[int, float, str]]:
        found = []
        for number, line in self.said:
            letters = line.casefold()
            sized = "gb" in letters or "gi" in letters or "go" in letters
            if sized and not line.lstrip().startswith("|"):
                line = in_english(line)
                if not _SIZED.search(line.casefold()):
                    continue
                found += [(number, float(match[2]), match[0].strip()) for match in _OF_A_DEVICE.finditer(line)]
                found += [(number, float(size), match[0].strip()) for match in _A_DEVICE.finditer(line)
                          if int(size := next(filter(None, match.groups()))) in OF_DEVICES_SOLD]  # fmt: skip
        return found

    @once
    def peaks(self) -> list[float]:
        """The TFLOPs that the text says devices can do at most, where it names none that is known."""
        known = self.has(*preset_cues()) and presets_in("\n".join(self.lines).lower())
        return [] if known or not self.has("peak", "flop") else peaks_in(self.spoken)

    @once
    def exceptions(self) -> list[tuple[frozenset[float], str]]:
        """What the text says of some rows otherwise than of the others: see `exceptions`."""
        bracketed = self.has("(") and self.has(": ")
        return exceptions.said(self.spoken) if bracketed or self.has(*exceptions.WORDS) else []

    @once
    def ratios(self) -> tuple[frozenset[float], frozenset[float]]:
        """By which factors, as logarithms, rows may differ where the text counts in two ways: FLOPs, and tokens to train on.
        What it excepts, it says of whom (`exceptions`)."""
        some = self.has(*exceptions.WORDS)
        lines = [line for line in self.spoken if not (some and exceptions.excepts(line))]
        flops = {float(match[1] or match[2] or match[3]) for line in lines for match in _FACTOR.finditer(line)}
        tokens = {float(match[1]) * _AMOUNTS[match[2][0].upper()] for line in lines
                  if "token" in _RATE_OF_TOKENS.sub("", in_english(line).casefold())
                  for match in _AMOUNT.finditer(line)}  # fmt: skip
        return _apart(flops), _apart(tokens)

    @once
    def scatter(self) -> float:
        """By how much times and rates differ, as the text says."""
        return means.said(self.spoken) if self.has(*means.WORDS) else 0.0

    @once
    def paired(self) -> bool:
        """Whether samples may be pairs of sequences, as those of preferences are."""
        return self.has("pair", "chosen") and any(_PAIRS.search(line) for line in self.lines)

    @once
    def defined(self) -> dict[str, str]:
        """What the text says that a heading stands for: `m` = micro batches per step."""
        lines = (line for line in self.spoken if "`" in line)
        return {match[1]: match[2] for line in lines for match in _DEFINED.finditer(in_english(line))}

    @once
    def formula(self) -> str:
        """The formula of FLOPs that attention is a part of, where the text writes it down: `6 N + 12 L H S`."""
        lines = self.lines if self.has("+", "plus") else ()
        return "palm" if any(_WITH_ATTENTION.search(line) for line in lines if len(line) <= 2000 and "12" in line) else ""

    @once
    def counts_twice(self) -> bool:
        """Whether the text writes down the formula for rows that recompute, and that for those that do not: 96 and 72 times."""
        return self.has("96") and self.has("72") and all(any(re.search(rf"(?<![\d.,]){factor} ?[·*×x]? ?[a-zA-Z]", line)
                                                             for line in self.lines) for factor in (72, 96))  # fmt: skip

    @once
    def prices(self) -> dict[str, float]:
        """What an hour of each device costs, where a line gives several: `H100 2.40, H200 3.10 dollars per GPU hour`."""
        found: dict[str, float] = {}
        for line in self.spoken:
            if _AN_HOUR.search(line):
                said = [(match[1].upper(), float(match[2].replace(",", "."))) for match in _A_PRICE.finditer(line)]
                found |= dict(said) if len(said) == len(dict(said)) > 1 else {}
        return found

    @once
    def device(self) -> Device | None:
        """The one device that the file names; none when it names several, or elsewhere."""
        named = device_named(_ADDRESS.sub("]", "\n".join(self.lines))) if self.has(*device_cues()) else None
        return named if self.whole is None or named is None or self.whole.device == named else None

    @once
    def written(self) -> Outline:
        """How the tables of the file write numbers."""
        return Outline.of(self.lines)

    def capacity(self, line: int | None) -> tuple[float, str] | None:
        """The usable memory in GiB as the text puts it, and where: the nearest sentence above, or right below the table.

        A sentence above holds up to the next heading of the first level, one below only where no heading stands between; where
        the row's own sections have none, one of those beside them speaks for the machine."""
        at = line or 0
        if not self.limits:
            return None if self.whole is None else self.whole.capacity(line)
        above = [limit for limit in self.limits if limit[0] <= at and not self._heading_between(limit[0], at, "# ")]
        below = [limit for limit in self.limits if limit[0] > at and not self._heading_between(at, limit[0], "#")]
        near = min([*above, *below], key=lambda limit: (abs(limit[0] - at), limit[0] > at), default=None)
        return None if near is None else (near[1], f'line {near[0]}: "{near[2]}"')

    @once
    def _headings(self) -> dict[str, list[int]]:
        return {mark: [n for n, text in enumerate(self.lines, 1) if text.startswith(mark)] for mark in ("#", "# ")}

    def _heading_between(self, low: int, high: int, mark: str) -> bool:
        after = bisect.bisect_right(self._headings[mark], low)
        return after < len(self._headings[mark]) and self._headings[mark][after] <= high

    def physical(self, line: int | None = None) -> tuple[float, str] | None:
        """The whole memory of the device as the text names it for a line, of several the largest; else the preset's."""
        if self.device_sizes:
            return self._nearest(self.device_sizes, line or 0)
        if self.device is not None:
            return self.device.memory_gib, f"{self.device.name} has {self.device.memory_gib:g} GiB"
        return None

    def _nearest(self, said: list[tuple[int, float, str]], line: int) -> tuple[float, str]:
        """Of what lines say the most of the innermost section around a line, headings included; of all where none is there."""
        tree = self.hints.sections
        section = tree.at(line)
        if section not in self._near:
            depth = {section: place for place, section in enumerate(tree.chain(section))}
            # The line of a heading belongs to what it opens.
            places = [(depth[scope], each) for each in said if (scope := tree.scope(tree.at(each[0] + 1))) in depth]
            inner = min((place for place, _ in places), default=None)
            near = [each for place, each in places if place == inner] or said
            number, size, words = max(near, key=lambda each: each[1])
            self._near[section] = size, f'line {number}: "{words}"'
        return self._near[section]


SILENT = Prose.of("")
