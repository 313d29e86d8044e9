"""What the text says a token costs and a device can do at most: the formula of FLOPs, the parameters, the peak of each device.

    said_of(row).attentions                       {0.0, 12.0} of `6N` in one sentence and `6N + 12·L·h·s` in another
    said_of(row).parameters("7B")                 6.74e9 of `N = 6.74 B`
    said_of(row).peak("4060 Ti", "bf16")          44.0 of `peak, dense: 4090 165.2, 4060 Ti 44 TFLOPS`

A row whose text says all of it needs hardly any other row to tell what its TFLOPs and its MFU are; what was read here has to
prove itself on some row all the same.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from seatrial.notes.labels import bits_of, label_parameters
from seatrial.notes.lint.models.devices import device_named
from seatrial.notes.lint.models.portraits import counts_in, number
from seatrial.notes.lint.row import Row

LONGEST = 2000
FINE, WIDE = 0.0045, (0.84, 1.26)
"""Half a digit of a label that is the parameters themselves; how far those of others are from it."""
_BY = r"\s?(?:[·*×x⋅]|\\cdot|\\times)?\s?"
_NUMBER = r"\d{1,4}(?:[.,]\d{1,4})?"
_GIGA = r"(?:e\+?0?9|[·x×*] ?10(?:⁹|\^9)|B\b|Mrd|млрд|billions?\b|milliard\w*)"
_ALL = (rf"(?:(?-i:N)(?:_\w{{1,8}})?\b|(?-i:P)\b|`?n?_?params?\b"
        rf"|(?:active |total |model |all )?param[eèé]?t?\w*|参数量?|パラメータ数?|"
        rf"параметр\w*|파라미터\w*|{_NUMBER} ?{_GIGA})")
_SIX = re.compile(rf"(?<![\w.,])6{_BY}{_ALL}|(?<![\w.,])6 (?:FLOPs? |Op\w* )?(?:per|pro|par|por|je) param\w*|"
                  r"\bsix (?:times |FLOPs (?:per|for (?:each|a)) )(?:the |its )?(?:\*?active\*? |total )?param\w*",
                  re.IGNORECASE)  # fmt: skip
_A_SIX = re.compile(r"(?<![\w.,])6")
_THEN = re.compile(rf"[^|.;+]{{0,24}}?(?:\+|\bplus\b|\band\b)[^|.;+]{{0,24}}?(?<![\w.,])(12|6){_BY}(?:n_?)?"
                   rf"(?:[lL]\b|[lL]{_BY}[a-zA-Z]|layers?|层|層|Schichten|couches|capas|\d{{2,3}}\b)")
"""What attention adds: 12 or, of a causal mask, 6 for each layer, width and length."""
_INLINE = re.compile(rf"(?<![\w.,])6{_BY}({_NUMBER}) ?{_GIGA}", re.IGNORECASE)
_WORDS = re.compile(r"peak|flop|\b[mh]fu\b|pico\b|пик|spitze|piek|picco|cr[êe]te|ピーク|峰|分母|피크|szczyt", re.IGNORECASE)
_SURELY = re.compile(r"peak|dense|dicht|pico\b|пик|spitze|piek|picco|cr[êe]te|ピーク|峰|分母|피크|szczyt", re.IGNORECASE)
_AND = r"(?:\s?(?:,|/|&|and|und|et|en|y|e|i|и|と|和|、)\s?[\w-]+(?: [A-Za-z]{2,4})?)?"
_KIND = r"(?: ?\(?(?:dense )?((?:bf|fp|tf|mxfp|nvfp)\d{1,2})\b\)?)?"
_FIGURE = (r"(?<![\w.])(?![345]0[6-9]0\b)(\d{1,4}(?:[.,]\d{1,3})?)"
           r"(?![\d%]|[.,]\d| ?(?:%|[KMGT]i?B\b|Go\b|k?W\b|GHz|GPU|nodes?\b|[x×]|[€$]))")


@dataclass(frozen=True, eq=False)
class Stated:
    """What some lines say of costs and peaks."""

    lines: tuple[str, ...]
    attentions: frozenset[float] = frozenset()
    """How often formulas of the text count each layer, its width and the sequence for attention; 0 of one that does not."""
    inline: frozenset[float] = frozenset()
    """The parameters that stand in a formula."""
    _sizes: dict[str, float | None] = field(default_factory=dict)
    _peaks: dict[tuple[str, str], float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[str]) -> Stated:
        said = tuple(line for line in lines if len(line) <= LONGEST)
        text = " ".join([line for line in said if line[:1] != "|" and not line.lstrip().startswith("|")])
        ways, inline = set[float](), set[float]()
        for match in _SIX.finditer(text) if _A_SIX.search(text) or "six" in text.casefold() else ():
            attended = _THEN.match(text, match.end())
            ways.add(float(attended[1]) if attended else 0.0)
        if ways:
            inline = {number(match[1]) * 1e9 for match in _INLINE.finditer(text)}
        return cls(said, frozenset(ways), frozenset(inline))

    @functools.cached_property
    def counts(self) -> frozenset[float]:
        """Every number of millions or billions in the sentences that has digits enough for parameters."""
        found = {value for line in self._sentences for match, value, _ in counts_in(line)
                 if re.search(r"[.,]\d", match["figure"]) and len(re.sub(r"\D", "", match["figure"])) >= 3}  # fmt: skip
        for line in self._sentences:  # `N = 1.10 / 3.43 / 6.74 billions`
            for listed in _LISTED.finditer(line):
                found |= {number(figure) * 1e9 for figure in re.findall(r"\d{1,3}[.,]\d{1,3}", listed[0])}
        return frozenset(found) | self.inline

    @functools.cached_property
    def _sentences(self) -> list[str]:
        """Of paragraphs, whose sentences go on in the next line."""
        found, block = list[str](), list[str]()
        for line in (*self.lines, ""):
            ends = not line.strip() or line.lstrip().startswith("|")
            if ends or _BEGINS.match(line):
                found += _ENDS.split(" ".join(block))
                block = []
            block += [] if ends else [line.strip().removeprefix("# ")]
        return [one for one in found if one]

    def parameters(self, label: str) -> float | None:
        """Of a model by its name; without one those of the only one that the text has."""
        if label not in self._sizes:
            self._sizes[label] = self._parameters(label.strip())
        return self._sizes[label]

    def _parameters(self, label: str) -> float | None:
        if plain := re.fullmatch(r"(\d{1,4}(?:\.\d{1,6})?)e\+?0?(\d{1,2})", label, re.IGNORECASE):
            return float(plain[0])
        named = label_parameters(label)
        if named is None:
            sizes = {*self._beside(label)} | {*self._beside(label.rpartition("-")[2])} if label else self.inline or self.counts
            return next(iter(sizes)) if len(sizes) == 1 else None
        value, half = named
        if half / value < FINE:
            return value
        beside = {size for size in self._beside(label) if WIDE[0] < size / value < WIDE[1]}
        if len(beside) == 1:
            return beside.pop()
        near = [size for size in self.counts if abs(size - value) <= half * 1.02]
        near = near or [size for size in self.counts if WIDE[0] < size / value < WIDE[1]]
        return near[0] if len(near) == 1 else None

    def _beside(self, label: str) -> Iterator[float]:
        """A number right behind the name of a model, or before it: `3B 3.43`, `12.88 B (8x7B)`."""
        if not any(label.casefold() in line.casefold() for line in self._sentences):
            return
        name, giga = re.escape(label), 1e9
        behind = re.compile(rf"(?<![\w.]){name}[ :=は()`*]{{1,4}}(?:で |has |hat |a |is )?(\d{{1,4}}[.,]\d{{1,4}})"
                            r"(?![\d%]|[.,]\d| ?(?:s|ms|h|[GM]i?B|TF\w*|k|d|days)\b)", re.IGNORECASE)  # fmt: skip
        before = re.compile(rf"(?<![\w.])(\d{{1,4}}[.,]\d{{1,3}}) ?(?:B|Mrd\.?|млрд)? ?\((?:the )?{name}\)", re.IGNORECASE)
        for line in self._sentences:
            for match in (*behind.finditer(line), *before.finditer(line)):
                yield number(match[1]) * giga

    def peak(self, device: str, dtype: str = "") -> float | None:
        """TFLOPs that the device can do at most, with numbers of the kind where the text tells them apart."""
        asked = device.strip().casefold(), dtype
        if asked not in self._peaks:
            said = [(line, value) for line in self._of_peaks if (value := _peak_in(line, asked[0], dtype))] if asked[0] else []
            surely = {value for line, value in said if _SURELY.search(line)}
            found = surely or {value for _, value in said}
            self._peaks[asked] = found.pop() if len(found) == 1 else None
        return self._peaks[asked]

    @functools.cached_property
    def _of_peaks(self) -> list[str]:
        """Sentences of peaks, and rows of tables that have them, as `A100 SXM: 312`."""
        found = [part for line in self._sentences if _WORDS.search(line) for part in _without_memory(line)]
        heads: list[str] = []
        for line in self.lines:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not line.lstrip().startswith("|") or len(cells) < 2:
                heads = []
            elif not heads:
                heads = cells
            elif len(cells) == len(heads):
                found += [f"peak of {cells[0]}: {cell}" for head, cell in zip(heads[1:], cells[1:]) if _PEAKS.search(head)
                          and not _NO_PEAKS.search(head)]  # fmt: skip
        return found

    @functools.cached_property
    def only_peak(self) -> float | None:
        """The one figure that MFU is said to be over."""
        found = {number(match[1]) for line in self._sentences for match in _OVER.finditer(line)}
        return found.pop() if len(found) == 1 else None


_LISTED = re.compile(r"(?<![\w.,])\d{1,3}[.,]\d{1,3}(?: ?(?:/|,|and|et|und|y|e) ?\d{1,3}[.,]\d{1,3}){1,8}"
                     r" ?(?:B\b|Mrd|milliards|млрд|billion|mld|mil millones)")  # fmt: skip
_PEAKS = re.compile(r"peak|dense|bf16.*FLOP|FLOP.*(?:bf16|dense)|ピーク|峰值", re.IGNORECASE)
_NO_PEAKS = re.compile(r"%|mfu|mem|[GM]i?B\b|speicher", re.IGNORECASE)
_OVER = re.compile(rf"\bMFU\b[^|.;\d]{{0,40}}?(?:\b(?:over|against|of|gegen|über|sur|sobre|su|vs|to)\b|[/÷])\W{{1,3}}"
                   rf"(?:(?:the|a|our|dense|bf16|peak|of)\s){{0,4}}{_FIGURE}(?![A-SU-Za-z])", re.IGNORECASE)  # fmt: skip
_BEGINS = re.compile(r"\s*(?:[-*+•]|\d{1,2}[.)])\s|#+ ")
_ENDS = re.compile(r"(?<=[.!?])\s+(?=\W?[^\Wa-z])|(?<=。)")
_OF_MEMORY = re.compile(r"\b[GM]i?B\b|memory|speicher|mémoire|memoria|память|内存|显存", re.IGNORECASE)


def _without_memory(line: str) -> list[str]:
    """A sentence, without what it says of memory between two of its signs."""
    return [part for part in line.split("; ") if not _OF_MEMORY.search(part)] if "; " in line else [line]


def _peak_in(line: str, device: str, dtype: str) -> float | None:
    letters = line.casefold()
    if device not in letters:
        return None
    figures = _pattern(device).search(letters)
    if figures is None:
        return None
    values = [(number(figures[at]), figures[at + 1]) for at in (1, 3) if figures[at]] or [(number(figures[5]), None)]
    bits = bits_of(dtype) if dtype else None
    for value, kind in values:
        if kind and dtype and (kind == dtype or bits_of(kind) == bits):
            return value
    if len(values) > 1 and bits == 8:  # `989 and 1979`
        return values[1][0] if not any(kind for _, kind in values) and abs(values[1][0] / values[0][0] - 2) < TWICE else None
    return values[0][0]


TWICE = 0.1


@functools.lru_cache(maxsize=1024)
def _pattern(device: str) -> re.Pattern[str]:
    name = rf"(?<![\w.-]){re.escape(device)}s?(?![\w-])(?!, )"
    of_it = rf"{_FIGURE} ?(?:t?flop\S*,? ?)?(?:\(|for (?:the |an? )?)(?:the )?{name}"
    return re.compile(rf"{name}(?: \d{{2,3}} ?gb| sxm\d?| pcie| ti)?{_AND}[^\d,;|)]{{1,16}}{_FIGURE}(?: ?t?flop\S*)?{_KIND}"
                      rf"(?: ?(?:/|\b(?:and|und|et|y|e|и)\b) ?{_FIGURE}{_KIND})?|{of_it}")  # fmt: skip


def said_of(row: Row) -> Stated:
    text = row.sheet.text(row)
    if "stated" not in text.__dict__:
        text.__dict__["stated"] = Stated.of(text.lines)
    known: Stated = text.__dict__["stated"]
    return known


def size_of(row: Row) -> float | None:
    """The parameters that a token of the row passes, as its label or the text has them."""
    return said_of(row).parameters(row.record.size_label)


def peak_of(row: Row) -> float | None:
    """The peak that the text gives for the device of the row."""
    machine = _kind(row.record.machine or row.cell("gpus"))
    if not any(map(str.isalnum, machine)) or machine.isdecimal():
        return None
    said, dtype = said_of(row), row.record.dtype or ""
    short = machine.removeprefix("RTX ")
    names = dict.fromkeys((machine, short, short.split(" ")[0].split("-")[0]))
    peak = next((peak for name in names if (peak := said.peak(name, dtype))), None)
    known = device_named(machine) if peak else None
    most = max(known.peak_tflops.values()) if known is not None else 0.0
    half = known.peak_tflops.get("bf16", 0.0) if known is not None else 0.0
    if peak and bits_of(dtype) == 8 and abs(peak - half) < TWICE * half:
        return None  # that of 16 bits, which is not said of those of 8
    return peak if peak and (not most or LEAST * most < peak < 1.1 * most) else None


LEAST = 0.1
"""Of the most that a device can do, with numbers of any kind, which share a peak is at least."""


@functools.lru_cache(maxsize=4096)
def _kind(machine: str) -> str:
    """Without how many of them: `8x A100`."""
    return re.sub(r"^\d+\s?[x×*]?\s(?=\S)|^\d+[x×]", "", machine.strip())
