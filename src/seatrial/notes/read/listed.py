"""Runs that stand in a list, one in each item, as the rows between pipes that everything else reads.

    - 32 GPUs, TP=2 PP=2 DP=8, GBS 256: 20.43 s/it, 141 TFLOPs

Three items or more that say the same things of a layout, and what was measured; anything else stays a list.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from seatrial.notes.read.htmltables import row_text

FEWEST, MOST, LONGEST = 3, 500, 300
"""Items of a list of runs; letters of one."""
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(\S.*)")
_NUMBER = r"(\d[\d.,]*\d|\d)"
_SAID = re.compile(
    rf"\b(TP|PP|DP|CP|EP|MBS|GBS|GAS?|seq|micro[ -]batch|global[ -]batch|MFU)(?:\s?[=:]\s?|\s)?{_NUMBER}(%?)(?![\w.])|"
    rf"(?<![\w.,]){_NUMBER}\s?[x×]?\s?(GPUs?|nodes?|(?:s|secs?|ms)/(?:it|iter|iteration|step)|TFLOPs?(?:/s)?(?:/GPU)?|"
    r"tok(?:en)?s?/s(?:ec)?(?:/GPU)?|samples?/s(?:ec)?|Gi?B)(?![\w/])", re.IGNORECASE
)
_MEASURED = re.compile(r"/(?:it|iter|iteration|step)$|flop|/s|mfu", re.IGNORECASE)
_FAILED = re.compile(r"\bOOM\b|\bout of memory\b", re.IGNORECASE)
_TITLES = {"gpu": "gpus", "node": "nodes", "gib": "mem (GiB)", "gb": "mem (GB)"}


def pipes_of_lists(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    block: list[tuple[int, str, dict[str, str]]] = []
    for number, line in lines:
        said = _said(line) if len(block) < MOST else {}
        if said:
            block.append((number, line, said))
            continue
        yield from _rows(block)
        block = []
        yield number, line
    yield from _rows(block)


def _said(line: str) -> dict[str, str]:
    """What an item says: heading -> cell; nothing where one is said twice, or no layout is."""
    item = _ITEM.match(line) if len(line) <= LONGEST else None
    found: dict[str, str] = {}
    for match in _SAID.finditer(item[1]) if item else ():
        title = match[1] or _TITLES.get(match[5].lower(), match[5])
        if title in found:
            return {}
        found[title] = f"{match[2]}{match[3]}" if match[1] else match[4]
    measured = [title for title in found if _MEASURED.search(title)]
    return found if len(found) - len(measured) > 1 and (measured or item and _FAILED.search(item[1])) else {}


def _rows(block: list[tuple[int, str, dict[str, str]]]) -> Iterator[tuple[int, str]]:
    titles = list(dict.fromkeys(title for _, _, said in block for title in said))
    measured = [title for title in titles if _MEASURED.search(title)]
    laid_out = {frozenset(said) - {*measured, "mem (GB)", "mem (GiB)"} for _, _, said in block}
    if len(block) < FEWEST or len(laid_out) > 1 or not measured:
        yield from ((number, line) for number, line, _ in block)
        return
    first = block[0][0]
    yield first, ""
    yield first, row_text(titles)
    yield first, row_text(["---"] * len(titles))
    for number, line, said in block:
        failed = {measured[0]: "OOM"} if _FAILED.search(line) and not said.keys() & {*measured} else {}
        yield number, row_text([{**said, **failed}.get(title, "") for title in titles])
    yield block[-1][0], ""
