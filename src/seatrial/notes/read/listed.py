"""Runs whose figures each carry their name, as the rows between pipes that everything else reads.

    - 32 GPUs, TP=2 PP=2 DP=8, GBS 256: 20.43 s/it, 141 TFLOPs        an item of a list
    03 rook  compile   mbs 8 x acc 16   9.31 s/it   39.7k tok/s        names and figures set by gaps
    nodes=4 tp=2 step_time_ms=931.2                                    pairs on a line
    {"nodes": 4, "tp": 2, "step_time_ms": 931.2}                       a line of JSON
    - nodes: 4                                                         YAML, a line each
      step_time_ms: 931.2

Three runs or more that say the same things of a layout, and what was measured; anything else stays as it is.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from seatrial.errors import BadInput
from seatrial.notes.read.htmltables import row_text
from seatrial.plaindata import parse_json
from seatrial.tables.headings import MEASURES, read_heading, settle

FEWEST, MOST, LONGEST = 3, 500, 600
"""Runs of a list; letters of one line."""
MOST_COMMAS = 8
Line = tuple[int, str]
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(\S.*)")
_NUMBER = r"(\d[\d.,]*\d|\d)"
_TWO = re.compile(r"\d\D+\d")
_MANY = r"(\d[\d.,]*\d[kKM]?|\d[kKM]?)"
_SAID = re.compile(
    rf"\b(TP|PP|DP|CP|EP|MBS|GBS|GAS?|acc(?:um)?|seq|ctx|(?:micro[ -]|global[ -])?batch|bs|MFU|HFU)(?:\s?[=:]\s?|\s{{1,4}})?"
    rf"{_NUMBER}(%?)(?![\w.])|"
    rf"(?<![\w.,]){_MANY}\s?[x×]?\s?(GPUs?|cards?|nodes?|(?:s|secs?|ms)/(?:it|iter|iteration|step)|TFLOPs?(?:/s)?(?:/GPU)?|"
    r"tok(?:en)?s?/s(?:ec)?(?:/GPU)?|tps|samples?/s(?:ec)?|it/s|Gi?B)(?![\w/])", re.IGNORECASE
)
_PAIR = re.compile(
    r"(?:^|[\s,;|{(])([^\W\d][^=:,;|{}\"]{0,40}?)\s?[=:]\s?"
    r"([^\s,;|={}][^,;|={}\s]*(?:[ \u00a0\u2009\u202f]\d{3}(?:[.,]\d+)?)*(?:,\d+(?:\.\d+)?)*(?: ?%)?)(?=[\s,;|})]|$)"
)
_YAML = re.compile(r"(\s*)(- +)?([^\W\d][^=:{}\"]{0,40}):\s+(\S.{0,60}?)\s*(?:#.*)?")
_FAILED = re.compile(r"\bOOM\b|\bout of memory\b", re.IGNORECASE)
_LEAD = re.compile(r"\s*(\S.*?[^\W\d].*?)\s*(?:-> ?)?$")
"""What stands before the first figure of a line whose parts are set by gaps."""
RUN = "run"
_TITLES = {"gpu": "gpus", "card": "gpus", "cards": "gpus", "node": "nodes", "gib": "mem (GiB)", "gb": "mem (GB)"}


def pipes_of_lists(lines: Iterable[Line]) -> Iterator[Line]:
    stream = iter(lines)
    block: list[tuple[list[Line], dict[str, str]]] = []
    held: Line | None = None
    while (found := held or next(stream, None)) is not None:
        held = None
        given, said = [found], _said(found[1])
        if not said and (first := _YAML.fullmatch(found[1])) and first[2]:
            given, said, held = _mapping(found, stream, len(first[1]) + len(first[2]))
        if said and (_is_run(said) or len(given) == 1) and len(block) < MOST:
            block.append((given, said))
            continue
        if block:
            yield from _rows(block)
            block = []
        yield from given
    yield from _rows(block)


def _mapping(first: Line, stream: Iterator[Line], depth: int) -> tuple[list[Line], dict[str, str], Line | None]:
    """An item of YAML with one name and value a line, and the line after it."""
    given, said = [first], {}
    match = _YAML.fullmatch(first[1])
    following: Line | None = first
    while match and len(given) < LONGEST:
        said[match[3].strip()] = match[4].strip("'\"")
        following = next(stream, None)
        match = _YAML.fullmatch(following[1]) if following else None
        if match is None or match[2] or len(match[1]) != depth:
            break
        given.append(following)  # type: ignore[arg-type]
    return given, said if len(given) > 1 else {}, following


def _said(line: str) -> dict[str, str]:
    """What a line says of a run: heading -> cell; nothing where one is said twice, or no layout is."""
    first = line.lstrip()[:1]
    if first in ("|", "#", "<", "") or len(line) > LONGEST or first != "{" and is_row_of_commas(line):
        return {}
    item = _ITEM.match(line)
    if first == "{":
        return _of_json(line)
    text = item[1] if item else line
    several = text.count("=") + text.count(":") >= FEWEST
    if not several and not _TWO.search(text):
        return {}  # no run has one number
    found: dict[str, str] = {}
    for match in _SAID.finditer(text):
        title = match[1] or _TITLES.get(match[5].lower(), match[5])
        if title in found and found[title] == (match[2] or match[4]):
            continue  # in its name as well
        if title in found:
            found = {}
            break
        if not found and item is None and (lead := _LEAD.fullmatch(text, 0, match.start())) and "  " in text.strip():
            found[RUN] = " ".join(lead[1].split()).rstrip(" ,;:")
        found[title] = f"{match[2]}{match[3]}" if match[1] else match[4]
    pairs = [(match[1].strip(), match[2].strip("'\"")) for match in _PAIR.finditer(text)] if several else []
    if len(pairs) > len(found) and len(dict(pairs)) == len(pairs):
        found = dict(pairs)
    if item is None and not pairs and len(found) <= FEWEST:
        return {}  # of a sentence
    return found if _is_run(found) or item and len(found) > 1 and _FAILED.search(item[1]) else {}


def is_row_of_commas(line: str) -> bool:
    """Whether a line is a row of a file of commas: a sentence has gaps behind nearly all of them."""
    commas = line.count(",")
    return commas > MOST_COMMAS and 2 * line.count(", ") < commas


def _of_json(line: str) -> dict[str, str]:
    try:
        given = parse_json(line.strip().rstrip(","))
    except (BadInput, ValueError):
        return {}
    plain = isinstance(given, dict) and not any(isinstance(value, dict | list) for value in given.values())
    said = {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in given.items()} if plain else {}
    return said if _is_run(said) else {}


def _measured(title: str) -> bool:
    return read_heading(title).field in (*MEASURES, "throughput")


def _is_run(said: dict[str, str]) -> bool:
    """Whether it names a layout and what was measured, and little else."""
    columns = settle([read_heading(title) for title in said])
    fields = [column.field for column in columns if column.field]
    measured = [name for name in fields if name in (*MEASURES, "throughput")]
    return 0 < len(measured) < len(fields) > 2 and 2 * len(fields) > len(said) and "iteration" not in fields


def _in_one_unit(block: list[tuple[list[Line], dict[str, str]]]) -> None:
    """Times under one heading, with their unit in the cell where it is another than that of most."""
    units = [title for _, said in block for title in said if _OF_A_STEP.fullmatch(title)]
    most = max(units, key=units.count, default="")
    for _, said in block:
        for title in [title for title in said if title in units and title != most]:
            said[most] = f"{said.pop(title)} {title.partition('/')[0]}"


_OF_A_STEP = re.compile(r"(?:s|secs?|ms)/(?:it|iter|iteration|step)", re.IGNORECASE)


def _rows(block: list[tuple[list[Line], dict[str, str]]]) -> Iterator[Line]:
    _in_one_unit(block)
    titles = list(dict.fromkeys(title for _, said in block for title in said))
    measured = [title for title in titles if _measured(title)]
    laid_out = {frozenset(said) - {*measured, RUN} for _, said in block}
    # Where each has a name, some say more than what all say.
    named = len(laid_out) > 1 and all(RUN in said for _, said in block)
    alike = len(laid_out) == 1 or named and bool(frozenset.intersection(*laid_out))
    if len(block) < FEWEST or not alike or not measured:
        yield from (line for given, _ in block for line in given)
        return
    first = block[0][0][0][0]
    yield first, ""
    yield first, row_text(titles)
    yield first, row_text(["---"] * len(titles))
    for given, said in block:
        text = " ".join(line for _, line in given)
        failed = {measured[0]: "OOM"} if _FAILED.search(text) and not said.keys() & {*measured} else {}
        yield given[0][0], row_text([{**said, **failed}.get(title, "") for title in titles])
    yield block[-1][0][0][0], ""
