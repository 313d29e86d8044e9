"""Where the tables of a text are: each line as a token of its kind, one line of look-ahead, nothing kept.

    for token in scan(lines): token.kind in ("text", "log", "header", "row", "stray")

Pipe tables with or without outer pipes, inside quotes and code fences, and the boxes that command lines draw.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from seatrial.notes.read import megatron
from seatrial.tables.headings import MEASURES, NUMBER, Column, clean, normal, read_heading
from seatrial.tables.markdown import MARK, UNTITLED_MARK

TokenKind = Literal["text", "log", "header", "header without alignment", "row", "stray", "mark"]


class Token(NamedTuple):
    kind: TokenKind
    line: int
    text: str
    fenced: bool = False


_QUOTE = re.compile(r"^\s*(?:>\s?)+")
_DELIMITER = re.compile(
    r"\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?\|?\s*|\s*\|?\s*:?-{2,}:?\s*\|\s*|\s*[+┌├└╞][-=+:─┬┼┴═╪┐┤┘╡]+\s*"
)
_UNDERLINE = re.compile(r"={3,}|-{3,}")
_PIPE = re.compile(r"(?<!\\)\|")
_BOX = re.compile(r"[│┃║]")


def split_row(text: str) -> list[str]:
    """The cells of a row; an escaped pipe is part of its cell."""
    text = text.strip().removeprefix("|")
    if "\\|" not in text:
        return [cell.strip() for cell in text.removesuffix("|").split("|")]
    parts = _PIPE.split(text)
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return [part.strip().replace("\\|", "|") for part in parts]


def is_delimiter(text: str | None) -> bool:
    return text is not None and _DELIMITER.fullmatch(text) is not None


def is_header(cells: list[str]) -> bool:
    """Whether cells read as headings of a table of runs, for a table whose alignment row is missing."""
    named = [cell for cell in cells if cell]
    known = sum(bool(read_heading(cell).field) for cell in named)
    return known >= 2 and 2 * known > len(named) and not any(NUMBER.match(clean(cell)) for cell in named)


TOPOLOGY = frozenset(
    {"nodes", "gpus", "dp", "tp", "pp", "mbs", "gbs", "layers", "hidden", "size_label", "zero_stage", "seq", "iteration"}
)


def is_table_of_runs(columns: list[Column]) -> bool:
    """A row of it says what was run and what was measured, or at least how it would be laid out."""
    fields = {column.field for column in columns} | {name for column in columns for name in column.parts}
    measures = fields & {*MEASURES, "throughput"}
    asked = fields & TOPOLOGY
    clear = {column.field for column in columns if normal(column.heading) not in ("time", "mem", "memory", "loss", "speed")}
    return bool(measures and (asked or len(measures) > 1 or measures & clear)) or len(asked) >= 3


def _body(line: str) -> str:
    body = _QUOTE.sub("", line) if ">" in line[:8] else line
    return _BOX.sub("|", body) if not body.isascii() else body


def scan(lines: Iterable[tuple[int, str]]) -> Iterator[Token]:
    stream = iter(lines)
    current = next(stream, None)
    table = ""
    after_gap = False
    fenced = in_log = False
    while current is not None:
        number, line = current
        following = next(stream, None)
        body = _body(line)
        bare = body.strip()
        nxt = _body(following[1]) if following else None
        current = following
        if bare.startswith(("```", "~~~")):
            fenced, in_log, table = not fenced, False, ""
            yield Token("text", number, "")
            continue
        if (in_log and megatron.belongs(line)) or (not bare.startswith(("|", "#")) and megatron.starts(line)):
            in_log, table = True, ""
            yield Token("log", number, line)
            continue
        if not bare:
            after_gap = True
            yield Token("text", number, "")
            continue
        in_log = False
        if bare in (MARK, UNTITLED_MARK):
            table, after_gap = "", False
            yield Token("mark", number, line)
            continue
        piped = "|" in bare
        if table and is_delimiter(bare) and not bare.startswith("|"):
            after_gap = False
            continue
        if table and piped and (bare.startswith("|") or (table == "bare" and not after_gap and _PIPE.search(bare))):
            if is_delimiter(nxt) and nxt is not None and nxt.strip().startswith("|") and is_header(split_row(bare)):
                yield Token("header", number, bare)
                current = next(stream, None)
            else:
                yield Token("row", number, bare)
            after_gap = False
            continue
        table, after_gap = "", False
        if (
            piped
            and _PIPE.search(bare)
            and is_delimiter(nxt)
            and ("|" in (nxt or "") or "+" in (nxt or "")[:3] or not (nxt or "").isascii())
        ):
            table = "outer" if bare.startswith("|") else "bare"
            yield Token("header", number, bare)
            current = next(stream, None)
        elif bare.startswith("|") and nxt is not None and nxt.strip().startswith("|") and is_header(split_row(bare)):
            table = "outer"
            yield Token("header without alignment", number, bare)
        elif bare.startswith("|") and len(bare) > 1:
            yield Token("stray", number, bare, fenced)
        elif nxt is not None and not fenced and not bare.startswith("#") and _UNDERLINE.fullmatch(nxt.strip()):
            yield Token("text", number, ("# " if nxt.strip()[0] == "=" else "## ") + bare)
            current = next(stream, None)
        elif not (is_delimiter(bare) and bare[0] in "+┌├└╞"):
            yield Token("text", number, body)
