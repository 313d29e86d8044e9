"""Tables between pipes that stand otherwise than one row a run: turned round, or with headings on two lines.

    for number, line in reshaped(pipes_of_rst(pipes_of_html(read_lines(path)))): ...

A table is turned where its first column reads as headings of runs and its first line does not. A second line of headings is one
whose cells are units or names, with no number among them.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from seatrial.notes.read.htmltables import one_title, row_text
from seatrial.tables.headings import NUMBER, clean, normal, read_heading, settle
from seatrial.tables.markdown import MARK, UNTITLED_MARK

Lines = Iterable[tuple[int, str]]
LONGEST_TABLE = 2000
FEWEST_HEADINGS = 3
_DELIMITER = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?\|?\s*")
_PIPE = re.compile(r"(?<!\\)\|")
_UNIT = re.compile(r"\(.{1,30}\)|\[.{1,30}\]|%|[kKMGT]i?B|m?s|secs?|it/s|TFLOP\S*|[\w/]+/(?:s|sec|it|GPU|gpu|node)")


def reshaped(lines: Lines) -> Iterator[tuple[int, str]]:
    stream = iter(lines)
    held: tuple[int, str] | None = None
    marked = False
    fence = ""
    while (found := held or next(stream, None)) is not None:
        held = None
        bare = found[1].strip()
        if bare[:3] in ("```", "~~~"):
            fence = "" if fence else bare[:3]
        if not bare.startswith("|") or fence:
            marked = bare in (MARK, UNTITLED_MARK) or marked and not bare
            yield found
            continue
        block = [found]
        for held in stream:
            if not held[1].strip().startswith("|") or len(block) >= LONGEST_TABLE:
                break
            block.append(held)
            held = None
        yield from block if marked else _made(block)
        marked = False


def _made(block: list[tuple[int, str]]) -> list[tuple[int, str]]:
    at = next((index for index, (_, line) in enumerate(block[:4]) if _DELIMITER.fullmatch(line)), None)
    if at is None or at == 0 or len(block) < at + 2:
        return block
    heads = [_cells(line) for _, line in block[:at]]
    rows = [(number, _cells(line)) for number, line in block[at + 1 :]]
    if at == 1 and _is_second(heads[0], rows[0][1]) and len(rows) > 1:
        heads.append(rows.pop(0)[1])
    elif at == 2 and any(_has_number(cells) for cells in heads):
        return block
    joined = len(heads) > 1 and len({len(cells) for cells in heads}) == 1
    titles = [one_title(texts) for texts in zip(*heads)] if joined else heads[-1]
    if _is_turned(titles, rows):
        return _turned(block[0][0], titles, rows)
    if not joined:
        return block
    top = block[0][0]
    return [(top, row_text(titles)), (top, row_text(["---"] * len(titles))), *((n, row_text(cells)) for n, cells in rows)]


def _cells(line: str) -> list[str]:
    return [part.strip().replace("\\|", "|") for part in _PIPE.split(line.strip().removeprefix("|").removesuffix("|"))]


def _has_number(cells: list[str]) -> bool:
    return any(NUMBER.match(clean(cell)) for cell in cells)


def _is_second(titles: list[str], cells: list[str]) -> bool:
    """Whether a row under the alignment is the rest of the headings: units, each under a name."""
    said = [clean(cell) for cell in cells if clean(cell)]
    return len(titles) == len(cells) and bool(said) and all(_UNIT.fullmatch(cell) for cell in said)


def _is_turned(titles: list[str], rows: list[tuple[int, list[str]]]) -> bool:
    from seatrial.notes.read.rows import is_table_of_runs

    if len(titles) < 2 or any(len(cells) != len(titles) for _, cells in rows):
        return False
    if sum(bool(read_heading(title).field) for title in titles[1:]) > 0 and not _has_number(titles[1:]):
        return False
    names = [cells[0] for _, cells in rows]
    known = [name for name in names if read_heading(name).field and not NUMBER.match(clean(name))]
    columns = settle([read_heading(name) for name in [titles[0], *names]])
    return len(known) >= FEWEST_HEADINGS and 2 * len(known) > len(names) and is_table_of_runs(columns)


def _turned(top: int, titles: list[str], rows: list[tuple[int, list[str]]]) -> list[tuple[int, str]]:
    first = titles[0] if read_heading(titles[0]).field else "Model" if all(map(_is_size, titles[1:])) else "Run"
    made = [(top, row_text([first, *(cells[0] for _, cells in rows)])), (top, row_text(["---"] * (len(rows) + 1)))]
    for at, title in enumerate(titles[1:], 1):
        made.append((top, row_text([title, *(cells[at] for _, cells in rows)])))
    return made


def _is_size(text: str) -> bool:
    return re.fullmatch(r"\d+(?:\.\d+)?\s*[mbt]", normal(text).strip()) is not None
