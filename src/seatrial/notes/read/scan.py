"""The lines of notes as tokens: text, headings of tables, their rows, log lines.

    for token in scan(lines_of(path)): token.kind          text, log, header, row, stray or mark, with one line of look-ahead

Tables of every kind come as rows between pipes: with or without outer pipes, inside quotes and code fences, the boxes that
command lines draw, HTML, reStructuredText, wikis, lists and columns set by gaps.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from seatrial.notes.read import logs
from seatrial.notes.read.fenced import pipes_of_fences
from seatrial.notes.read.files import read_lines
from seatrial.notes.read.gapped import pipes_of_gaps
from seatrial.notes.read.htmltables import pipes_of_html
from seatrial.notes.read.led import led_sections
from seatrial.notes.read.listed import pipes_of_lists
from seatrial.notes.read.reshaped import reshaped
from seatrial.notes.read.rsttables import pipes_of_rst
from seatrial.notes.read.wikitables import pipes_of_wiki
from seatrial.tables.headings import NUMBER, clean, read_heading
from seatrial.tables.markdown import MARK, UNTITLED_MARK

TokenKind = Literal["text", "log", "header", "header without alignment", "row", "stray", "mark"]


class Token(NamedTuple):
    kind: TokenKind
    line: int
    text: str
    fenced: bool = False


_QUOTE = re.compile(r"^\s*(?:>\s?)+")
_DELIMITER = re.compile(
    r"\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?\|?\s*|\s*\|?\s*:?-{2,}:?\s*\|\s*|\s*\+[-=+:]+\s*"
)
_FENCE = re.compile(r"(`{3,}|~{3,})(?!.*`)")
_UNDERLINE = re.compile(r"={3,}|-{3,}")
_PIPE = re.compile(r"(?<!\\)\|")
_STARS = re.compile(r"^\*{1,6}(?= )")
"""Of a heading in an org file."""
_BOX = {ord(drawn): plain for plain, letters in (("|", "│┃║┆"), ("-", "─━"), ("=", "═"),
        ("+", "┌┬┐├┼┤└┴┘╒╤╕╞╪╡╘╧╛┏┳┓┡╇┩┢╈┪┣╋┫┗┻┛┠╂┨╔╦╗╠╬╣╚╩╝╟╫╢╭╮╰╯")) for drawn in letters}  # fmt: skip


def split_row(text: str) -> list[str]:
    """The cells of a row; an escaped pipe is part of its cell."""
    text = text.strip().removeprefix("|")
    if "\\|" not in text:
        return [cell.strip() for cell in text.removesuffix("|").split("|")]
    parts = _PIPE.split(text)
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return [part.strip().replace("\\|", "|") for part in parts]


_RULED = frozenset("-:+=")


def is_delimiter(text: str | None) -> bool:
    return text is not None and text.lstrip().lstrip("| \t")[:1] in _RULED and _DELIMITER.fullmatch(text) is not None


def is_rule(line: str) -> bool:
    """What makes a heading of the line above."""
    return _UNDERLINE.fullmatch(line.strip()) is not None


def is_header(cells: list[str], below: str = "") -> bool:
    """Whether cells read as headings of a table of runs, for a table whose alignment row is missing; `below`: the next line."""
    named = [cell for cell in cells if cell]
    if any(NUMBER.match(clean(cell)) for cell in named):
        return False
    known = sum(bool(read_heading(cell).field) for cell in named)
    under = split_row(below) if below else []
    figures = sum(NUMBER.match(clean(cell)) is not None for cell in under)
    return known >= 2 and (2 * known > len(named) or len(under) == len(cells) and 4 * figures > 3 * len(cells))


def is_picture(cells: list[str]) -> bool:
    """Whether a line between pipes is part of a tree or a drawing: fewer than two of its cells hold figures."""
    return sum(NUMBER.match(clean(cell)) is not None for cell in cells) < 2


def _body(line: str) -> str:
    return _QUOTE.sub("", line) if ">" in line[:8] else line


def _undrawn(line: str) -> str:
    """The lines of a box in ASCII; a directory tree is drawn with the same letters, but none is closed on the right."""
    last = line.rstrip()[-1:]
    return line.translate(_BOX) if not last.isascii() and last.translate(_BOX) in ("|", "+") else line


def scan(lines: Iterable[tuple[int, str]]) -> Iterator[Token]:
    stream = iter(lines)
    current = next(stream, None)
    table = fence = ""
    width = 0
    after_gap = in_log = False
    while current is not None:
        number, line = current
        following = next(stream, None)
        body = _body(line)
        bare = body.strip()
        nxt = _body(following[1]) if following else None
        current = following
        marks = _FENCE.match(bare) if bare[:3] in ("```", "~~~") else None
        if marks and (not fence or bare.startswith(fence) and not bare.strip(fence[0])):
            fence, in_log, table = "" if fence else marks.group(1), False, ""
            yield Token("text", number, "")
            continue
        if (in_log and logs.belongs(line)) or (not bare.startswith(("|", "#")) and logs.starts(line)):
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
        cells = split_row(bare) if piped and _PIPE.search(bare) else []
        if table == "bare" and bare[0] == "|" and len(cells) == width - 1:
            bare, cells = f"|{bare}", ["", *cells]  # its first cell is empty
        aligned = is_delimiter(nxt) and nxt is not None and nxt.strip().startswith("|")
        if table and cells and (bare.startswith("|") or (table == "bare" and not after_gap)):
            # After an empty line whatever stands over an alignment row heads another table, and so do headings alone.
            again = (aligned or after_gap) and (is_header(cells) or after_gap and aligned and is_picture(cells))
            if again and aligned:
                width = len(cells)
                yield Token("header", number, bare)
                current, after_gap = next(stream, None), False
                continue
            if not (after_gap and (again or len(cells) != width)):
                yield Token("row", number, bare)
                after_gap = False
                continue
        table, after_gap = "", False
        if cells and is_delimiter(nxt) and ("|" in (nxt or "") or "+" in (nxt or "")[:3]):
            table, width = "outer" if bare.startswith("|") else "bare", len(cells)
            yield Token("header", number, bare)
            current = next(stream, None)
        elif cells and bare.startswith("|") and nxt is not None and nxt.strip().startswith("|") and is_header(cells, nxt):
            table, width = "outer", len(cells)
            yield Token("header without alignment", number, bare)
        elif cells and bare.startswith("|") and len(bare) > 1 and not is_picture(cells):
            yield Token("stray", number, bare, bool(fence))
        elif nxt is not None and not fence and not bare.startswith("#") and is_rule(nxt):
            yield Token("text", number, ("# " if nxt.strip()[0] == "=" else "## ") + bare)
            current = next(stream, None)
        elif not (is_delimiter(bare) and bare[0] == "+"):
            yield Token("text", number, body, bool(fence))


def heading_of_org(line: str) -> str:
    return _STARS.sub(lambda stars: "#" * len(stars[0]), line)


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The file's lines, with every kind of table as rows between pipes."""
    lines = read_lines(path)
    if path.suffix.lower() == ".org":
        lines = ((number, heading_of_org(line)) for number, line in lines)
    return piped(lines)


def piped(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    plain = ((number, _undrawn(line)) for number, line in without_hidden_rows(lines))
    drawn = pipes_of_rst(pipes_of_html(pipes_of_wiki(plain)))
    return led_sections(reshaped(pipes_of_gaps(pipes_of_lists(pipes_of_fences(drawn)))))


LONGEST_COMMENT = 500


def without_hidden_rows(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines but for comments that hold rows: they are not said, and do not end the table that they stand in."""
    stream = iter(lines)
    for number, line in stream:
        if not line.lstrip().startswith("<!--"):
            yield number, line
            continue
        block = [(number, line)]
        while "-->" not in block[-1][1] and len(block) < LONGEST_COMMENT and (more := next(stream, None)) is not None:
            block.append(more)
        closed = block[-1][1].rstrip().endswith("-->")
        if not closed or not any(text.count("|") > 1 for _, text in block):
            yield from block
