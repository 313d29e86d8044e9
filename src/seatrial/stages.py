"""Layers of each pipeline stage as text, and back.

    read("1-4-3")                       (1, 4, 3); so 1,4,3 and [1, 4, 3], 5 + 10 x 6 + 5, and Megatron's Et*5|(t*6|)*10t*5L
    said((1, 4, 3))                     1-4-3: what a table, a CSV file and a record have
    short((5, *(6,) * 10, 5))           5 + 10 x 6 + 5: what a sentence has
    megatron((1, 4, 3))                 Et|tttt|tttL: what --pipeline-model-parallel-layout takes

Entries are in model order, one for each of the PP x VP stages. The first has the embedding and the last the loss beside its
layers, so either may have no layer of its own.
"""
from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from seatrial import fields
from seatrial.errors import BadInput

AUTO = "auto"
"""In the place of a list: the split of `plan/stages.py`, which is worked out where a trial is made, before its id is."""
MOST = 100_000
"""Stages that a text can stand for."""

_RUN = re.compile(r"(?:(\d{1,6})\s*[x×*]\s*)?(\d{1,6})")
_BETWEEN = re.compile(r"\s*[-–,;+/|→]\s*|\s+")
_PLACES = re.compile(r"E[EtmL|()*,\d\s]*L")


def with_experts(split: Sequence[int], *, dense: int, every: int) -> tuple[int, ...]:
    """Of each stage's layers, those that have experts: counted from 1, the multiples of `every` beyond the first `dense`; where
    it is 0, none."""
    ends = itertools.accumulate(split)
    return tuple(max(0, end // every - max(end - layers, dense) // every) if every else 0 for end, layers in zip(ends, split))


def read(text: str, stages: Sequence[int | None] = ()) -> tuple[int, ...]:
    """Raises for what is no list of whole numbers. In 3,4x14,2 either may be how often: as many as one of `stages` are meant,
    where one way gives that, else the first."""
    once = _read(text, turned=False)
    if not stages or len(once) in stages:
        return once
    try:
        turned = _read(text, turned=True)
    except BadInput:
        return once
    return turned if len(turned) in stages else once


def _read(text: str, *, turned: bool) -> tuple[int, ...]:
    plain = text.strip().strip("[](){}").strip()
    if _PLACES.fullmatch(text.strip()):
        return _places(text.strip())
    found: list[int] = []
    # A run is one piece, whatever stands around its sign.
    for piece in _BETWEEN.split(re.sub(r"\s*[x×*]\s*", "x", plain)):
        run = _RUN.fullmatch(piece)
        often, layers = (int(run[1] or 1), int(run[2])) if run else (0, 0)
        often, layers = (layers, often) if turned and run and run[1] else (often, layers)
        if run is None or len(found) + often > MOST:
            raise BadInput(f"{text[:60]!r}: expected the layers of each stage, as 1-4-3, a list, or {AUTO}")
        found += [layers] * often
    return tuple(found)


def listed(value: object, *, where: str) -> tuple[int, ...]:
    """A text, or a list of whole numbers; `where` is what an error names."""
    if isinstance(value, str):
        try:
            return read(value)
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from None
    split: tuple[int, ...] = fields.convert(value, tuple[int, ...], where=where)
    return split


def _places(text: str) -> tuple[int, ...]:
    """Megatron's own (pipeline_parallel_layer_layout.py): E, t, m and L of each stage, | between; t*5 and (tt|)*5 repeat."""
    text = re.sub(r"[,\s]", "", text)
    for pattern in (r"\(([^()]*)\)\*(\d{1,6})", r"([EtmL|])\*(\d{1,6})"):
        if sum(len(run[1]) * int(run[2]) for run in re.finditer(pattern, text)) > 10 * MOST:
            raise BadInput(f"{text[:60]!r}: a layout of more than {MOST:,} stages")
        text = re.sub(pattern, lambda run: run[1] * int(run[2]), text)
    if not re.fullmatch(r"E[tm|]*L", text):
        raise BadInput(f"{text[:60]!r}: expected a layout as Et|tttt|tttL, the embedding first and the loss last")
    return tuple(stage.count("t") for stage in text.split("|"))


def said(split: Sequence[int] | None) -> str:
    return "" if split is None else "-".join(map(str, split))


def short(split: Sequence[int]) -> str:
    runs = [(len(list(group)), layers) for layers, group in itertools.groupby(split)]
    return " + ".join(f"{count} x {layers}" if count > 1 else f"{layers}" for count, layers in runs)


def megatron(split: Sequence[int]) -> str:
    """Runs of equal stages in brackets, so that a hundred of them stay readable."""
    last = len(split) - 1
    stages = ["E" * (i == 0) + _layers(count) + "L" * (i == last) for i, count in enumerate(split)]
    runs = [(stage, len(list(group))) for stage, group in itertools.groupby(stages[:-1])]
    return "".join(f"({stage}|)*{count}" if count > 2 else f"{stage}|" * count for stage, count in runs) + stages[-1]


def _layers(count: int) -> str:
    return "t" * count if count < 5 else f"t*{count}"
