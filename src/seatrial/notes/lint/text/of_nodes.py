"""Rates that the text above a table says are those of one node: `**tokens/s is per node** here`.

    fill(sheet)                          sets the rates of such rows to those of all their nodes
"""
from __future__ import annotations

import re
import statistics

from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import normal
from seatrial.tables.tongues import in_english

_PER_NODE = re.compile(
    r"(?<![\w/])(tok(?:en)?s?(?:/| per )s(?:ec(?:ond)?)?|samples?(?:/| per )s(?:ec(?:ond)?)?|throughputs?)"
    r"(?:(?!\b(?:not|all|whole|total|job|GPU|device|card|chip)\b)[^.;:|%\d]){0,30}?"
    r"\b(?:per|of one|of a|of each) (?:node|box)\b", re.IGNORECASE)
_A_NODE = re.compile(r"\bnodes (?:of|with) (\d{1,2}|two|four|eight|sixteen)\b|\b(\d{1,2}|two|four|eight|sixteen) (?:\w+ ){0,2}"
                     r"(?:per|a|in a|to a) node\b", re.IGNORECASE)
_COUNTS = {"two": 2, "four": 4, "eight": 8, "sixteen": 16}
_MARKS = re.compile(r"[*_`]+")
_RATES = {"tok": "tokens_per_s", "sam": "samples_per_s"}


def fill(sheet: Sheet) -> None:
    for key, mates in sheet.tables.items():
        names = {name for name in _RATES.values() if name in sheet.filled(key)} if key[1] is not None else set()
        if not names or (said := _said(mates[0])) is None:
            continue
        text, words = said
        names &= {_RATES.get(words[:3].lower(), name) for name in names}
        each = next((_COUNTS.get(count.lower()) or int(count) for match in _A_NODE.finditer(text)
                     if (count := match[1] or match[2])), None)  # fmt: skip
        names = {name for name in names if not _is_of_all(mates, name, each)}
        for row in mates if names else ():
            nodes = _nodes(row, each)
            rates = {name: rate * nodes for name in names if (rate := getattr(row.record, name)) and nodes
                     and not {"node", "nodes"} & {*normal(row.columns.get(name, "")).split()}}  # fmt: skip
            row.record = row.record.changed(rates) if rates else row.record


def _is_of_all(mates: list[Row], name: str, each: int | None) -> bool:
    """Whether the rate is that of the batch in the time of a step, on however many nodes: then it is of all of them."""
    work = [(rate * sec / gbs, nodes) for row in mates if (rate := getattr(row.record, name)) and (sec := row.record.sec_per_it)
            and (gbs := row.record.gbs) and (nodes := _nodes(row, each))]  # fmt: skip
    middle = statistics.median_low(done for done, _ in work) if work else 0.0
    return len({nodes for done, nodes in work if abs(done / middle - 1) < NEAR}) > 2


NEAR = 0.03
"""Within which times and rates, which are means, belong together."""


def _nodes(row: Row, each: int | None) -> int | None:
    record = row.record
    many = record.nodes or record.gpus and divmod(record.gpus, record.procs_per_node or each or record.gpus + 1)
    return many[0] if isinstance(many, tuple) and many[1] == 0 else many if isinstance(many, int) else None


def _said(row: Row) -> tuple[str, str] | None:
    """The text right above the table, and of which rate it says so."""
    above = row.sheet.text(row).right_above(row.record.source_line or 1)
    text = _MARKS.sub("", in_english(" ".join(above)))
    match = _PER_NODE.search(text) if len(text) < 4000 else None
    return (text, match[1]) if match else None
