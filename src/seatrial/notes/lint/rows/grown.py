"""Batches that nobody states and that are not the same in all rows: as much for each device, or as many tokens in a step.

    fill(sheet)                          sets the batch, as inferred, of rows in tables that print none

Where no row says its batch, times and rates do: of one batch in all rows, one for each device (weak scaling) and one of as many
tokens whatever the length of a sequence, that holds on which most rows agree to their digits; of two that are as good the text
decides, else the first.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

from seatrial.notes.lint.row import NEAR, Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.usual import mode

FEWEST, CLOSELY, WHOLE = 3, 0.002, 0.004
"""Rows that can tell; beyond its digits by how much one may miss another; how near a whole number of samples has to be."""
_EACH = re.compile(r"\b(?:batch(?: size)?|sequences?|samples?|seqs?)\b[^.|\n]{0,20}?\b(?:per|a|for each|each) "
                   r"(?:GPU|device|card|chip|GCD|accelerator|rank|process)\b|\bweak scaling\b", re.IGNORECASE)  # fmt: skip
_OF_TOKENS = re.compile(r"\btok(?:en)?s ?(?:per|/|a|in each) ?(?:optimizer )?(?:step|iteration|update|batch)\b", re.IGNORECASE)


def fill(sheet: Sheet) -> None:
    for mates in sheet.tables.values():
        if len(mates) < FEWEST or len(mates) > NEAR or any(row.record.gbs or row.record.mbs for row in mates):
            continue
        rows = [(row, *batch) for row in mates if row.tabular and not row.planned and (batch := _batch(row)) is not None]
        if len(rows) < FEWEST:
            continue
        most = len(_agree([(batch, may) for _, batch, may in rows]))
        for of, said in ((_devices, _EACH), (_tokens, _OF_TOKENS)):
            shares = [(batch - math.log(of(row)), may) for row, batch, may in rows]
            agree = _agree(shares) if _varies(mates, of) else []
            if len(agree) > 1 and len(agree) + _says(rows[0][0], said) > most:
                _take(mates, of, math.exp(sum(agree) / len(agree)))
                break


def _devices(row: Row) -> float:
    return row.counted or 1


def _tokens(row: Row) -> float:
    return 1 / (row.seq or 1)


def _varies(mates: list[Row], of: Callable[[Row], float]) -> bool:
    """Whether it is not the same in all rows, nor in all but one of whom it may be wrong."""
    return len(mates) - mode(map(of, mates))[1] > (1 if of is _tokens else 0)


def _take(mates: list[Row], of: Callable[[Row], float], share: float) -> None:
    if not any(row.seq for row in mates):
        share = 1.0  # how long a sequence is nobody says either, and it is the same in all rows
    batches = {row: share * of(row) for row in mates if of is _devices or row.seq}
    if all(batch > 1 - WHOLE and abs(batch / round(batch) - 1) < WHOLE for batch in batches.values()):
        for row, batch in batches.items():
            inferred = tuple(sorted({*row.record.inferred, "gbs"}))
            row.record = replace(row.record, gbs=round(batch), inferred=inferred)


def _batch(row: Row) -> tuple[float, float] | None:
    """How many samples a step has by the row's own time and rate, as a logarithm, and what their digits leave open."""
    record, seq = row.record, row.seq or 1
    if not record.sec_per_it:
        return None
    for name, times in (("tokens_per_s_per_process", _devices(row) / seq), ("tokens_per_s", 1 / seq), ("samples_per_s", 1.0)):
        rate, figures = getattr(record, name), (row.printed(name), row.printed("sec_per_it"))
        if rate and all(figures):
            return math.log(rate * times * record.sec_per_it), sum(2 * figure.slack for figure in figures if figure)
    return None


def _agree(shares: list[tuple[float, float]]) -> list[float]:
    """Those of most rows that agree with one of them to their digits."""
    near = ([other for other, its in shares if abs(other - share) <= may + its + CLOSELY] for share, may in shares)
    return max(near, key=len)


def _says(row: Row, words: re.Pattern[str]) -> bool:
    """Whether the text right above the table speaks of such a batch."""
    return any(words.search(line) for line in row.sheet.text(row).right_above(row.record.source_line or 1))
