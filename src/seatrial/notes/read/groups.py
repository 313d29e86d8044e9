"""Tables whose columns stand in groups, one for each setting: `A100` over its time and rate, `H100` over the same of its own.

    side_by_side(["nodes", "A100 s/it", "A100 tok/s", "H100 s/it", "H100 tok/s"], rows)
        -> ["nodes", "Device", "s/it", "tok/s"], and a row for each of the groups

Every group has the same headings, and says the same settings with other values. What stands in no group is of all of them; a
figure there that nobody knows may be of two, as a ratio is, and then the table stays as it is.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from seatrial.notes.read.composed import LONGEST, TITLES, composed
from seatrial.notes.read.parsing import is_blank
from seatrial.tables.headings import MEASURES, clean, normal, read_heading

Row = tuple[int, list[str]]
FEWEST = 2
MEASURED = frozenset({*MEASURES, "throughput"})
_INSIDE = re.compile(r"(.*[^\s(\[])\s*[(\[]([^()\[\]]+)[)\]]")


def side_by_side(titles: Sequence[str], rows: Sequence[Row]) -> tuple[list[str], list[Row]] | None:
    """The headings and the rows, one for each group where one was; None where there are no such groups."""
    places: dict[str, list[int]] = {}
    heads: list[str] = []
    for at, title in enumerate(titles):
        group, head = _told(title)
        heads.append(head)
        if group:
            places.setdefault(group, []).append(at)
    if len(places) < FEWEST or any(len(cells) != len(heads) for _, cells in rows):
        return None
    shared = [at for at in range(len(heads)) if not any(at in where for where in places.values())]
    first, *others = ([normal(heads[at]) for at in where] for where in places.values())
    said = [composed(group) for group in places]
    own = [read_heading(heads[at]).field for at in shared]
    below = [heads[at] for at in next(iter(places.values()))]
    alike = all(other == first for other in others) and all(one.keys() == said[0].keys() for one in said)
    if not alike or not said[0].keys() <= TITLES.keys() - {*own} or MEASURED & {*own}:
        return None
    if any(not field and _are_figures([cells[at] for _, cells in rows]) for at, field in zip(shared, own)):
        return None
    made = [(number, [*(cells[at] for at in shared), *map(str, one.values()), *(cells[at] for at in where)])
            for number, cells in rows for one, where in zip(said, places.values())
            if not all(is_blank(clean(cells[at])) for at in where)]  # fmt: skip
    return [*(heads[at] for at in shared), *(TITLES[name] for name in said[0]), *below], made


def _told(title: str) -> tuple[str, str]:
    """The group and the heading of a title that holds both: `7B s/it`, `tok/s (H100)`; no group where it does not."""
    return next(((group, head) for group, head in _halves(clean(title))
                 if read_heading(head).field in MEASURED and composed(group)), ("", title))  # fmt: skip


def _halves(title: str) -> Iterator[tuple[str, str]]:
    if not any(map(str.isdigit, title)) or len(title) > LONGEST:
        return
    if match := _INSIDE.fullmatch(title):
        yield match[2], match[1]
    words = title.split(" ")
    for at in range(1, len(words)):
        first, last = " ".join(words[:at]).rstrip(",:;–-| "), " ".join(words[at:]).lstrip(",:;–-|@ ")
        yield first, last
        yield last, first


def _are_figures(cells: Sequence[str]) -> bool:
    return 2 * sum(clean(cell)[:1].isdigit() for cell in cells) > len(cells)
