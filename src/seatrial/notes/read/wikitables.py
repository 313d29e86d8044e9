"""Tables and headings of wikis and other markups, as the rows between pipes and the headings that everything else reads.

    ||nodes||s/it||          Confluence and Jira: headings between doubled pipes, `h2. Results` above them
    |4|9.31|
    {| class="wikitable"     MediaWiki: a row after each `|-`, its cells on one line or a line each; `== Results ==`
    ! nodes !! s/it
    |-
    | 4 || 9.31
    |}
    ^ nodes ^ s/it ^         DokuWiki
    |-------+------|         org: a rule between rows; so prints psql, without the outer pipes
    |===                     AsciiDoc: a row a line, or its cells a line each; `== Results`
    |nodes |s/it

    |4 |9.31
    |===
    \\begin{tabular}{rr}      LaTeX: cells between &, a row up to \\\\; `\\section{Results}`
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from seatrial.notes.read.htmltables import row_text, titles_of
from seatrial.notes.read.reshaped import LONGEST_TABLE

Line = tuple[int, str]
_HEADING = re.compile(r"h([1-6])\. +(\S.*)|(={2,6}) *([^=\s](?:.*[^=\s])?) *\3|(={1,6}) ([^=\s](?:.*[^=\s])?)|"
                      r"\\(sub)*section\*?\{(.+)\}")
_RULE = re.compile(r"(\|?)(?:-+\+)+-+\1")
_TABULAR = re.compile(r"\\begin\{(tabular[*xy]?|longtable|tblr|array)\}")
_COMMAND = re.compile(r"\\(?:[hc]line|(?:top|mid|bottom|cmid)rule|centering|small|caption|label|addlinespace|"
                      r"end(?:first)?head)\b(?:\(\w*\)|\[[^\]]*\]|\{[^{}]*\})*")
_SPANS = re.compile(r"\\multi(column|row)\{(\d{1,2})\}\{[^{}]*\}\{([^{}]*)\}")
_STYLED = re.compile(r"\\(?:text\w+|math\w+|num|emph|SI|makecell|shortstack)(?:\[[^\]]*\])?\{([^{}]*)\}")
_SIGNS = (("\\times", "x"), ("\\,", "\u202f"), ("\\;", " "), ("~", " "), ("\\mu", "µ"), ("$", ""), ("\\\\", " "))


def pipes_of_wiki(lines: Iterable[Line]) -> Iterator[Line]:
    stream = iter(lines)
    for number, line in stream:
        bare = line.strip()
        if bare.startswith(("h", "=", "\\")) and (match := _HEADING.fullmatch(bare)):
            depth = int(match[1] or 0) or len(match[3] or match[5] or "") or 1 + bare.count("sub")
            yield number, f"{'#' * depth} {match[2] or match[4] or match[6] or match[8]}"
        elif bare[:1] in ("|", "-") and "-+-" in bare and _RULE.fullmatch(bare):
            yield number, bare.replace("+", "|")
        elif bare[:1] == bare[-1:] == "`" and "|" in bare and "`" not in (inside := bare[1:-1]):
            yield number, f"| {inside.strip().strip('|')} |"  # rows in a chat
        elif bare.startswith("||") and bare.endswith("||") and bare.count("||") > 2:
            yield from _headed(number, bare[2:-2].split("||"))
        elif bare.startswith("^") and bare.endswith("^") and bare.count("^") > 2:
            yield from _headed(number, bare[1:-1].split("^"))
        elif bare.startswith("{|"):
            block = [(number, line)]
            for found in islice(stream, LONGEST_TABLE):
                block.append(found)
                if found[1].strip() == "|}":
                    break
            yield from _rows(block) or block
        elif bare in ("|===", ",===") or bare.startswith("\\begin{") and _TABULAR.match(bare):
            end = bare if bare[0] != "\\" else "\\end{" + bare.split("{")[1].split("}")[0] + "}"
            block = [(number, line)]
            for found in islice(stream, LONGEST_TABLE):
                block.append(found)
                if found[1].strip().startswith(end):
                    break
            closed = block[-1][1].strip().startswith(end) and len(block) > 1
            rows = (_latex if bare[0] == "\\" else _asciidoc)(block[1:-1]) if closed else []
            made = [*_headed(*rows[0]), *((n, row_text(cells)) for n, cells in rows[1:]), (block[-1][0], "")] if rows else block
            yield from made
        else:
            yield number, line


def _headed(number: int, titles: list[str]) -> Iterator[Line]:
    yield number, row_text([title.strip() for title in titles])
    yield number, row_text(["---"] * len(titles))


def _rows(block: list[Line]) -> list[Line]:
    """Of the lines from `{|` to `|}`; nothing where it is not closed, or its first row is not one of headings."""
    rows: list[tuple[int, bool, list[str]]] = []
    begun = False
    for number, line in block[1:-1]:
        bare = line.strip()
        if bare.startswith(("|-", "|+")):
            begun = False
        elif bare[:1] in ("!", "|"):
            # Before a single pipe stand a cell's attributes.
            cells = [cell.rpartition("|")[2].strip() for cell in re.split(r"!!|\|\|" if bare[0] == "!" else r"\|\|", bare[1:])]
            if begun:
                rows[-1][2].extend(cells)
            else:
                rows.append((number, bare[0] == "!", cells))
            begun = True
        elif begun and bare:
            rows[-1][2][-1] = f"{rows[-1][2][-1]} {bare}".strip()  # a cell of several lines
    if len(rows) < 2 or not rows[0][1] or block[-1][1].strip() != "|}":
        return []
    return [*_headed(rows[0][0], rows[0][2]), *((number, row_text(cells)) for number, _, cells in rows[1:]), (block[-1][0], "")]


def _asciidoc(block: list[Line]) -> list[tuple[int, list[str]]]:
    """A line with several cells is a row; where each has one, as many make a row as stand before the first gap."""
    parted = ((number, re.split(r"(?:^|(?<=\s))\w{0,2}\|", line.strip())) for number, line in block)
    lines = [(number, [cell.strip() for cell in cells[1:]]) for number, cells in parted]
    told = [(number, cells) for number, cells in lines if cells]
    wide = len(told[0][1]) if told else 0
    if wide == 1:
        wide = next((at for at, (_, cells) in enumerate(lines) if not cells and at), 0)
    flat = [(number, cell) for number, cells in told for cell in cells]
    return [(flat[at][0], [cell for _, cell in flat[at : at + wide]]) for at in range(0, len(flat), wide)] if wide > 1 else []


def _latex(block: list[Line]) -> list[tuple[int, list[str]]]:
    """Rows end with a double backslash; the headings are those before the first rule that has a row above it."""
    rows: list[tuple[int, list[str]]] = []
    heads, begun, start = 0, "", 0
    for number, line in block:
        text = re.sub(r"(?<!\\)%.*", "", line)
        if _COMMAND.search(text):
            heads = heads or len(rows)
            text = _COMMAND.sub("", text)
        start = start if begun else number
        *whole, begun = f"{begun} {text}".strip().split("\\\\")
        rows += [(start, _cells(one)) for one in whole if one.strip()]
    if len(rows) < 2:
        return []
    wide = max(len(cells) for _, cells in rows)
    rows = [(number, [*cells, *[""] * (wide - len(cells))]) for number, cells in rows]
    heads = max(1, heads)
    return [(rows[0][0], titles_of([cells for _, cells in rows[:heads]])), *rows[heads:]]


def _cells(row: str) -> list[str]:
    """Of a row of LaTeX, its commands as what they print."""
    cells = []
    for cell in re.split(r"(?<!\\)&", row):
        span = _SPANS.search(cell)
        text = _STYLED.sub(r"\1", _STYLED.sub(r"\1", _SPANS.sub(r"\3", cell)))
        for sign, plain in _SIGNS:
            text = text.replace(sign, plain)
        cells += [re.sub(r"\\([%#_&])|[{}]", r"\1", text).strip()] * (int(span[2]) if span and span[1] == "column" else 1)
    return cells
