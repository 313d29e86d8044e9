"""What `import` takes from sentences: the model, the sequence and the batch of the rows below, where nothing denies them.

    told = Told(Hints.of(tokens))
    told.of(record)                    with the shape, vocabulary, sequence and batch that sentences state for it

A wrong setting costs more than a missing one. A paragraph is read as a whole, however its lines are wrapped; of two that speak
of the same thing the nearer one counts, or none where it leaves the value open. A shape is that of one paragraph, has the
parameters of the row's label, and its heads divide its width; a batch can be divided by the replicas. Each value carries its
line and is marked as inferred.
"""
from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from typing import Any

from seatrial.notes.labels import is_mixture, label_parameters
from seatrial.notes.read.sentences import SHAPE, Hints, is_of, read_sentence
from seatrial.notes.read.sound import MOST_COUNTED
from seatrial.record import Record, Stated
from seatrial.tables import Problem
from seatrial.tables.headings import accumulates, is_any_batch, read_heading
from seatrial.tables.worded import heading_in_english

TOLD = (*SHAPE, "vocab", "seq", "gbs")
"""A layout is as often spoken of as it is used: sentences tell none."""
LONGEST = 2000
"""Letters of a paragraph, beyond which it is no description of a run."""
WIDEST_HEAD, SLIMMEST_HEAD = 256, 32
BESIDE_LAYERS = (0.5, 1.7)
"""Of the parameters of a label, what layers of attention and a feed-forward part four times as wide may have: gates, more
or fewer key heads, embeddings."""
_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,2}[.)])\s")
_OF_LENGTH = re.compile(r"\b(?:seq|sequences?|contexts?|lengths?)\b", re.IGNORECASE)
_OF_A_ROW = re.compile(r"\b(?:rows?|runs?|line|lines|typo)\b", re.IGNORECASE)
_OTHERWISE = re.compile(r"\d[\d,. ]*\(\s?\d(?=[^()]*\d[MB]\b)|\b(?:the|all) (?:rest|others?|smaller|smallest|larger|largest)\b")
"""`51,200 (50,304 up to 6.7B)`, `4096 for the rest`: two values, and which is whose takes a reader."""
_ROUNDED = re.compile(r"\bvocab[^\d.;]{0,20}\d+(?:\.\d+)?\s?k", re.IGNORECASE)
"""`a vocabulary of 250k`: 250,880, it may be."""

Values = dict[str, Stated]


class Told:
    def __init__(self, hints: Hints) -> None:
        self.hints = hints
        self._paragraphs: dict[int, tuple[int, ...]] = {}
        self._read: dict[int, dict[str, object]] = {}
        self._found: dict[tuple[int | None, str], Values] = {}

    def of(self, record: Record, asked: Container[str] = ()) -> Record:
        """`asked`: of what lines that are little else disagree."""
        if record.table is None or record.source_line is None:
            return record
        line, record = record.source_line, of_all(record, self.hints)
        key = record.table, record.size_label or _of_heading(record.section)
        if key not in self._found:
            self._found[key] = self._nearest(line, key[1])
        found = {name: stated for name, stated in self._found[key].items()
                 if name not in asked and getattr(record, name) is None}  # fmt: skip
        for name in _denied(record, found):
            found.pop(name, None)
        if not found:
            return record
        new: dict[str, Any] = {name: stated.value for name, stated in found.items()}
        inferred = tuple(sorted({*record.inferred, *found}))
        return record.changed({**new, "context": {**record.context, **found}, "inferred": inferred})

    def _nearest(self, line: int, label: str) -> Values:
        found: Values = {}
        closed: set[str] = set()
        """What nearer text has spoken of, said or not."""
        last = line
        labels: set[str] = set()
        for first in self._above(line):
            message = self._said(first)
            labels |= named if isinstance(named := message.get("labels"), set) else set()
            own = _for_label(message, label, labels)
            said = {name: own[name] for name in own if name not in closed}
            if {"layers", "hidden", "shapes"} & message.keys():
                closed.update(SHAPE)  # of one model
            text, between = self._text(first), self.hints.lines[self._paragraph(first)[-1] : last - 1]
            last = first
            if any(_OF_LENGTH.search(one) for one in between if not one.lstrip().startswith("|")):
                said.pop("seq", None)
                closed.add("seq")
            closed |= {name for name in ("vocab", "gbs") if name in message} | ({"seq"} if _OF_LENGTH.search(text) else set())
            if "gbs" in said and _OF_A_ROW.search(text):
                del said["gbs"]
            for name, value in said.items():
                if isinstance(value, int) and value <= MOST_COUNTED:
                    found.setdefault(name, Stated(value=value, line=self._line_of(first, name, value)))
        return found

    def _above(self, line: int) -> Iterator[int]:
        """The first lines of the paragraphs that hold for a table, the nearest first."""
        seen = set()
        for number, _ in self.hints.visible(line):
            first = self._paragraph(number)[0]
            if first not in seen:
                seen.add(first)
                yield first

    def _paragraph(self, number: int) -> tuple[int, ...]:
        if number not in self._paragraphs:
            lines = self.hints.lines
            first = last = number
            while first > 1 and not _BULLET.match(lines[first - 1]) and _flows(lines[first - 2]) and _flows(lines[first - 1]):
                first -= 1
            while last < len(lines) and _flows(lines[last - 1]) and _flows(lines[last]) and not _BULLET.match(lines[last]):
                last += 1
            whole = tuple(range(first, last + 1))
            whole = whole if sum(len(lines[at - 1]) for at in whole) < LONGEST else (number,)
            self._paragraphs |= dict.fromkeys(whole, whole)
        return self._paragraphs[number]

    def _text(self, first: int) -> str:
        return " ".join(self.hints.lines[at - 1].strip() for at in self._paragraph(first))

    def _said(self, first: int) -> dict[str, object]:
        if first not in self._read:
            text = self._text(first)
            said = dict(read_sentence(text))
            if _ROUNDED.search(text):
                said.pop("vocab", None)
            for name in ("vocab", "seq", "gbs") if _OTHERWISE.search(text) else ():
                said.pop(name, None)
            self._read[first] = said
        return self._read[first]

    def _line_of(self, first: int, name: str, value: object) -> int:
        whole = self._paragraph(first)
        return next((at for at in whole if read_sentence(self.hints.lines[at - 1]).get(name) == value), first)


_SIZE = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d)?B(?!\w)")


@lru_cache(maxsize=1024)
def _of_heading(section: str) -> str:
    """The one size that the innermost heading names: under `Larger model: Llama-3-70B` no layers of an 8B above it hold."""
    named = {*_SIZE.findall(section.rpartition(" / ")[2])}
    return named.pop() if len(named) == 1 else ""


def of_all(record: Record, hints: Hints) -> Record:
    """With the `batch` beside the accumulation as the global one, where a sentence says what the micro-batch is."""
    if not record.mbs or "mbs" in record.inferred or not _is_any_batch(tuple(record.printed)):
        return record
    said = hints.nearest(record, "mbs", surely=True)
    if said is None or not isinstance(said[0], int) or said[0] >= (record.mbs or 0):
        return record
    inferred = tuple(sorted({*record.inferred, "mbs"} - {"gbs"}))
    return record.changed({"gbs": record.mbs, "mbs": said[0], "inferred": inferred})


SAME = 0.03
"""By how much means over other steps differ at most."""


def by_rates(found: Iterable[Record | Problem]) -> Iterator[Record | Problem]:
    """With the `batch` beside the accumulation as what the rates and times of its table show it to be, in all of its rows; of
    a table as many rows as that are looked at together."""
    held: list[Record | Problem] = []
    table: int | None = None
    for one in found:
        new = isinstance(one, Record) and (one.table != table or len(held) == MOST_AT_ONCE or not _is_open(tuple(one.printed)))
        if new and held:
            yield from _shown(held)
            held = []
        if isinstance(one, Record) and _is_open(tuple(one.printed)) or held:
            held.append(one)
            table = one.table if isinstance(one, Record) else table
        else:
            yield one
    yield from _shown(held)


MOST_AT_ONCE = 200


@lru_cache(maxsize=4096)
def _is_open(headings: tuple[str, ...]) -> bool:
    return any(map(accumulates, headings)) and _is_any_batch(headings)


def _shown(found: list[Record | Problem]) -> Iterator[Record | Problem]:
    told = {whole for one in found if isinstance(one, Record) and (whole := _is_whole(one)) is not None}
    for one in found:
        yield _batched(one, *told) if isinstance(one, Record) and len(told) == 1 else one


def _is_whole(record: Record) -> bool | None:
    """Whether the batch is the global one, by the row's own rate and time; None where they do not tell."""
    printed, steps, seconds = record.mbs or record.gbs, _steps(record), record.sec_per_it
    world = record.gpus or (record.dp or 0) * (record.tp or 1) * (record.pp or 1) * (record.cp or 1)
    rate = record.tokens_per_s or (record.tokens_per_s_per_process or 0.0) * world
    if not printed or steps < 2 or not seconds or not rate or not record.seq:
        return None
    whole = rate * seconds / record.seq
    ways = {printed: True, printed * steps * (record.dp or record.gpus or 1): False}
    return next((way for batch, way in ways.items() if abs(whole / batch - 1) < SAME), None)


def _steps(record: Record) -> int:
    counts = (cell.strip() for heading, cell in record.printed.items() if accumulates(heading))
    return next((int(cell) for cell in counts if cell.isdecimal() and len(cell) < 6), 0)


def _batched(record: Record, whole: bool) -> Record:
    printed, replicas = record.mbs or record.gbs, (record.dp or record.gpus or 1) * _steps(record)
    if not printed or not replicas or whole == (record.gbs == printed):
        return record
    if not whole:
        inferred = tuple(sorted({*record.inferred, "gbs"} - {"mbs"}))
        return record.changed({"gbs": printed * replicas, "mbs": printed, "inferred": inferred})
    one, rest = divmod(printed, replicas)
    inferred = tuple(sorted({*record.inferred, "mbs"} - {"gbs"}))
    return record.changed({"gbs": printed, "mbs": one if one and not rest else None, "inferred": inferred})


@lru_cache(maxsize=4096)
def _is_any_batch(headings: tuple[str, ...]) -> bool:
    """Whether one column is of batches, and does not say of which."""
    batches = [heading for heading in headings if read_heading(heading).field in ("gbs", "mbs")]
    return len(batches) == 1 and any(map(is_any_batch, (batches[0], heading_in_english(batches[0], surely=True))))


def _flows(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(("|", "#", "```", "~~~"))


def _for_label(message: dict[str, object], label: str, labels: set[str]) -> dict[str, object]:
    """What a paragraph says of a model; `labels`: those that it and what is nearer name."""
    own = {name: value for name, value in message.items() if name in TOLD}
    shapes, own_labels = message.get("shapes"), message.get("labels")
    apart = message.get("except")
    if isinstance(apart, dict) and apart:
        own = {name: value for name, value in own.items() if not any(name in one for one in apart.values())}
    of_model = (*SHAPE, "vocab", "seq")
    if isinstance(shapes, dict):
        rest = {name: value for name, value in own.items() if name not in of_model}
        return {**rest, **shapes.get(label.upper(), {})}
    if isinstance(own_labels, set) and own_labels:
        if not (any(is_of(label, one) for one in own_labels) if label else len(labels) == 1):
            return {name: value for name, value in own.items() if name not in of_model}
    elif not label and len(labels) > 1:
        return {name: value for name, value in own.items() if name not in of_model}
    return own


def _denied(record: Record, found: Values) -> Iterator[str]:
    """The fields whose values cannot be this row's."""

    def value(name: str) -> int:
        here = found[name].value if name in found else getattr(record, name)
        return here if isinstance(here, int) else 0

    layers, hidden, heads, kv_heads = map(value, ("layers", "hidden", "heads", "kv_heads"))
    parameters = None if is_mixture(record.size_label) else label_parameters(record.size_label)
    blocks, (low, high) = 12 * layers * hidden**2, BESIDE_LAYERS
    few = parameters and low * parameters[0] > blocks + 2 * value("vocab") * hidden
    if bool(layers) != bool(hidden) or blocks and parameters and (few or blocks > high * parameters[0]):
        yield from (*SHAPE, "vocab")
    elif hidden and heads and (hidden % heads or not SLIMMEST_HEAD <= hidden // heads <= WIDEST_HEAD):
        yield from ("heads", "kv_heads")
    elif kv_heads and (not heads or heads % kv_heads):
        yield "kv_heads"
    if value("gbs") % ((record.dp or 1) * (record.mbs or 1)):
        yield "gbs"
