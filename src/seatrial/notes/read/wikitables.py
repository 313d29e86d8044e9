"""Tables and headings of wikis, as the rows between pipes and the headings that everything else reads.

    ||nodes||s/it||          Confluence and Jira: headings between doubled pipes, `h2. Results` above them
    |4|9.31|
    {| class="wikitable"     MediaWiki: a row after each `|-`, its cells on one line or a line each; `== Results ==`
    ! nodes !! s/it
    |-
    | 4 || 9.31
    |}
    |-------+------|         org: a rule between rows
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from seatrial.notes.read.htmltables import row_text
from seatrial.notes.read.reshaped import LONGEST_TABLE

Line = tuple[int, str]
_HEADING = re.compile(r"h([1-6])\. +(\S.*)|(={2,6}) *([^=\s](?:.*[^=\s])?) *\3")
_RULE = re.compile(r"\|(?:-+\+)+-+\|")


def pipes_of_wiki(lines: Iterable[Line]) -> Iterator[Line]:
    stream = iter(lines)
    for number, line in stream:
        bare = line.strip()
        if bare.startswith(("h", "=")) and (match := _HEADING.fullmatch(bare)):
            yield number, f"{'#' * int(match[1] or len(match[3]))} {match[2] or match[4]}"
        elif bare.startswith("|-") and _RULE.fullmatch(bare):
            yield number, bare.replace("+", "|")
        elif bare.startswith("||") and bare.endswith("||") and bare.count("||") > 2:
            yield from _headed(number, bare[2:-2].split("||"))
        elif bare.startswith("{|"):
            block = [(number, line)]
            for found in islice(stream, LONGEST_TABLE):
                block.append(found)
                if found[1].strip() == "|}":
                    break
            yield from _rows(block) or block
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
