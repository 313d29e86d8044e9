"""Meshes of devices in one cell, `32x2` or `dp16 tp2`: their product, where most rows have so many devices.

    check(sheet)          findings on meshes that are not the devices of their row
"""
from __future__ import annotations

import functools
import math
import re
from collections import Counter

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.read.rows import chips_of
from seatrial.tables.headings import read_heading

_MESH = re.compile(r"\(?\s*(\d{1,5})((?:\s*[x×*,]\s*\d{1,5}){1,4})\s*\)?")
_AXIS = re.compile(r"(?:(?:d?dp|fsdp|tp|mp|pp|cp)\s?[=:]?\s?)(\d{1,5})(?!\d)", re.IGNORECASE)
_EITHER = rf"(?:{_AXIS.pattern}|ep\s?[=:]?\s?\d{{1,5}})"
_AXES = re.compile(rf"[(\[`]?{_EITHER}(?:[\s/,;·*×x+&_|-]*{_EITHER})*[)\]`]?", re.IGNORECASE)
"""Where an axis that a row does not need is left out, and experts lie within the others."""
FEWEST, MOST, MOST_ROWS = 4, 0.75, 500
"""Rows that prove what a column is, and which share of them."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        for heading in [name for name, cell in mates[0].record.printed.items()
                        if _sides(cell) and _unknown(name) and name != mates[0].axes_in]:  # fmt: skip
            rows = [(row, cell, sides) for row in mates
                    if row.record.gpus and (sides := _sides(cell := row.record.printed.get(heading, "")))]  # fmt: skip
            odd = [each for each in rows if math.prod(each[2]) != each[0].record.gpus]
            told = [row for row, _, _ in odd if row.reasons or row.product]  # by the layout itself
            fewest = FEWEST - 1 if _NAMED.search(heading) else FEWEST
            if len(rows) - len(odd) >= max(fewest, MOST * len(rows)) and len({sides for _, _, sides in rows}) > 1:
                known = {(row.record.gpus, sides) for row, _, sides in rows}
                found += [_finding(row, heading, cell, sides, known) for row, cell, sides in odd if row not in told]
        found += _of_one_node(mates) or _filled(mates)
    return found


def check_slices(sheet: Sheet) -> list[Finding]:
    return [finding for mates in sheet.tables.values() if mates[0].record.machine for finding in _of_slices(mates)]


def _of_slices(mates: list[Row]) -> list[Finding]:
    """`v5p-128` with 128 chips, where the other rows have the 64 that the name means."""
    chips = {row: many for row in mates[:MOST_ROWS] if row.record.gpus and row.shows("gpus")
             and (many := chips_of(row.record.machine))}  # fmt: skip
    odd = [row for row, many in chips.items() if row.record.gpus != many]
    if not odd or len(chips) - len(odd) < max(2, MOST * len(chips)):
        return []
    return [row.find("world-size", "error", f"{row.column('gpus')} {row.cell('gpus')} -> {chips[row]}: so many has "
                     f"{row.record.machine}, as in the other rows", name="gpus", proposed=str(chips[row])) for row in odd]


_NAMED = re.compile(r"\b(?:fsdp|dp|data|tp|tensor|model|pp|pipeline|pipe|replica)s?\b.*[x×*,].*"
                    r"\b(?:fsdp|dp|data|tp|tensor|model|pp|pipeline|pipe|replica)s?\b", re.IGNORECASE)  # fmt: skip
_BOUND = re.compile(r"thread|core|omp|bind|numa|socket", re.IGNORECASE)


@functools.lru_cache(maxsize=4096)
def _bound(headings: tuple[str, ...]) -> list[str]:
    return [heading for heading in headings if _BOUND.search(heading)]


def _of_one_node(mates: list[Row]) -> list[Finding]:
    """`8 x 14` processes and threads, which fill the cores of a node in all rows but one."""
    for heading in _bound(tuple(mates[0].record.printed)) if len(mates) >= FEWEST else ():
        sides = {row: two for row in mates if len(two := _sides(row.cells.get(heading, ""))) == 2}
        cores = {row: math.prod(two) for row, two in sides.items()}
        usual, kept = Counter(cores.values()).most_common(1)[0] if cores else (0, 0)
        odd = [row for row in sides if cores[row] != usual]
        if kept < FEWEST - 1 or len(odd) != 1 or len({sides[row] for row in sides}) < kept:
            continue
        row, cell = odd[0], odd[0].cells[heading]
        one, other = sides[row]
        meant = [(one, usual // one)] * (usual % one == 0) + [(usual // other, other)] * (usual % other == 0)
        between = re.sub(r"[\d\s]", "", cell) or "x"
        proposed = f" {between} ".join(map(str, meant[0])) if len(meant) == 1 else None
        proposed = proposed.replace(" ", "") if proposed and " " not in cell else proposed
        message = f"{heading} {cell}: {one} x {other} = {one * other}, and {kept} other rows fill {usual}"
        return [row.find("world-size", "error", message, column=heading, printed=cell, proposed=proposed)]
    return []


_PARTS = (re.compile(r"(?:rank|proc|process|task|worker)(?:e?s)?\b.*\b(?:node|host)", re.IGNORECASE),
          re.compile(r"thread|omp", re.IGNORECASE), re.compile(r"\bcores?\b(?!.*\bper (?:rank|proc|task))", re.IGNORECASE))


@functools.lru_cache(maxsize=4096)
def _counted(headings: tuple[str, ...]) -> list[str]:
    """The one column of each of them; none where there are others."""
    columns = [[heading for heading in headings if part.search(heading)] for part in _PARTS]
    return [names[0] for names in columns] if all(len(names) == 1 for names in columns) else []


def _filled(mates: list[Row]) -> list[Finding]:
    """Processes of a node, threads of each, and the cores that they use, each in a column of its own."""
    names = _counted(tuple(mates[0].record.printed)) if len(mates) > 2 else []
    if not names:
        return []
    counts = {row: values for row in mates
              if all(values := [int(digits.alone(row.cells.get(name, "")) or 0) for name in names])}  # fmt: skip
    odd = [row for row, (ranks, threads, cores) in counts.items() if ranks * threads != cores]
    if len(odd) != 1 or len({*map(tuple, counts.values())}) < 3 or odd[0].reasons:
        return []
    row, (ranks, threads, cores) = odd[0], counts[odd[0]]
    above = row.mates[row.place - 1].cells if row.place else {}
    fitting = {names[0]: (cores, threads), names[1]: (cores, ranks), names[2]: (ranks * threads, 1)}
    meant = {name: whole // part for name, (whole, part) in fitting.items() if whole % part == 0}
    pasted = [name for name in meant if above.get(name) == row.cells[name] and not any(
        mate.cells.get(name) == above.get(name) for mate in mates if mate not in (row, row.mates[row.place - 1]))]  # fmt: skip
    most = Counter(values[2] for mate, values in counts.items() if mate is not row).most_common(1)[0]
    only = pasted[0] if len(pasted) == 1 else names[2] if most[1] > 1 and cores != most[0] == ranks * threads else None
    options = "; ".join(f"{name} {value}" for name, value in meant.items())
    message = f"{ranks} x {threads} = {ranks * threads} and not {cores}, as in the other rows: {options}"
    name = only or names[1]
    return [row.find("world-size", "error", message, column=name, printed=row.cells[name],
                     proposed=str(meant[only]) if only else None)]  # fmt: skip


def _sides(cell: str) -> tuple[int, ...]:
    if _MESH.fullmatch(cell):
        return tuple(map(int, re.findall(r"\d+", cell)))
    return tuple(map(int, _AXIS.findall(cell))) if "p" in cell.casefold() and _AXES.fullmatch(cell.strip()) else ()


def _unknown(heading: str) -> bool:
    """`DPxTPxPP` is read as its parts."""
    column = read_heading(heading)
    return not column.field and not column.parts


def _finding(
    row: Row, heading: str, cell: str, sides: tuple[int, ...], known: set[tuple[int | None, tuple[int, ...]]]
) -> Finding:
    """One side is wrong; a mesh that another row has is hardly meant again."""
    devices, product = row.record.gpus or 1, math.prod(sides)
    meant = [(*sides[:at], devices * side // product, *sides[at + 1 :]) for at, side in enumerate(sides)
             if product and devices * side % product == 0]  # fmt: skip
    new = [each for each in meant if (devices, each) not in known]
    # Each side is one that another row has on the same axis.
    usual = [each for each in meant if all(any(len(its) > at and its[at] == side for _, its in known if its != sides)
                                           for at, side in enumerate(each))]  # fmt: skip
    only = new[0] if len(new) == 1 else meant[0] if len(meant) == 1 else usual[0] if len(usual) == 1 else None
    message = f"{heading} {cell}: {' x '.join(map(str, sides))} = {product}, and the row has {devices}"
    numbers = iter(map(str, only or ()))
    proposed = re.sub(r"(?<!ep)(?<!\d)\d+", lambda _: next(numbers), cell) if only else None
    return row.find("world-size", "error", message, column=heading, printed=cell, proposed=proposed)
