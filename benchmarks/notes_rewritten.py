"""Other ways to write a note down that keep it as it is: other signs in numbers, units elsewhere, another format of file.

    for change in FORMS: change(lines, rng, others)          used by `notes_clean.py`, which says what lint makes of it
"""

from __future__ import annotations

import csv
import functools
import io
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import notes_corpus
from seatrial.tables.headings import read_heading

Lines = list[str]


def tables(lines: Lines) -> Iterator[range]:
    """Lines of each Markdown table, heading and rule first."""
    start, fenced = None, False
    for at, line in enumerate([*lines, ""]):
        fenced ^= line.startswith("```")
        inside = not fenced and line.lstrip().startswith("|")
        if inside and start is None:
            start = at
        elif not inside and start is not None:
            if at - start > 3 and set(lines[start + 1]) <= set("|-: "):
                yield range(start, at)
            start = None


def cells(line: str) -> list[str]:
    return line.strip().strip("|").split("|")


NUMERIC = re.compile(r"[-+~≈]?\d[\d,]*(?:\.\d+)?")
BESIDE = re.compile(r"(?<![\w.,/-])(\d+)\.(\d+)(?=\s?(?:%|(?:s|ms|h|GiB|GB|B|M|k|TFLOPs?|days?)\b))")


def _rewritten(lines: Lines, rewrite: Callable[[str], str]) -> Lines:
    """Each cell below the headings of each table."""
    changed = list(lines)
    for table in tables(lines):
        for at in [*table][2:]:
            changed[at] = "|" + "|".join(f" {rewrite(cell.strip())} " for cell in cells(lines[at])) + "|"
    return changed


def decimal_commas(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """As in most of Europe: 1.234,5 for 1,234.5, in the tables and beside units in sentences."""
    if re.search(r"\d,\d{1,2}(?!\d)|\d\.\d{3}(?!\d)|\d[ \u202f']\d{3}|<t[dhr]\b|```", "\n".join(lines)):
        return lines  # commas that are decimal ones already, points that would be thousands, or figures that stay as they are

    def rewrite(cell: str) -> str:
        number = NUMERIC.match(cell)
        plain = number is not None and not re.search(r"[\d.]", cell[number.end() :])
        return cell.translate(str.maketrans(",.", ".,")) if plain else cell

    inside = {at for table in tables(lines) for at in table}
    changed = _rewritten(lines, rewrite)
    return [line if at in inside else BESIDE.sub(r"\1,\2", re.sub(r"(?<=\d),(?=\d{3}\b)", ".", line))
            for at, line in enumerate(changed)]  # fmt: skip


def other_thousands(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """Figures from 10,000 on with other signs between their thousands, or with none."""
    sign = rng.choice(["", ",", " ", "\u202f", "'"])
    if re.search(r"\d,\d{1,2}(?!\d)", "\n".join(lines)):
        return lines

    def rewrite(cell: str) -> str:
        bare = re.sub(r"(?<=\d)[, \u202f'](?=\d{3}(?!\d))", "", cell)
        if not re.fullmatch(r"\d{5,8}", bare) or not re.fullmatch(r"\d{5,8}|\d{1,3}([, \u202f']\d{3})+", cell):
            return cell
        return f"{int(bare):,}".replace(",", sign)

    return _rewritten(lines, rewrite)


def _columns(lines: Lines, rng: random.Random) -> tuple[range, list[list[str]]] | None:
    found = [table for table in tables(lines) if len({len(cells(lines[at])) for at in table}) == 1]
    table = rng.choice(found) if found else None
    return None if table is None else (table, [[cell.strip() for cell in cells(lines[at])] for at in table])


def _with(lines: Lines, table: range, rows: list[list[str]]) -> Lines:
    changed = list(lines)
    changed[table.start : table.stop] = ["| " + " | ".join(row) + " |" for row in rows]
    return changed


def in_thousands(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """A column of rates from 10,000 on as 37.88k."""
    if (chosen := _columns(lines, rng)) is None:
        return lines
    table, rows = chosen
    rates = [i for i, heading in enumerate(rows[0]) if re.search(r"tok\w*\s?/\s?s|tokens per sec", heading, re.IGNORECASE)
             and not re.search(r"\b[kM]\b|\bktok", heading) and all(re.fullmatch(r"\d{1,3},?\d{3,6}", row[i].replace(",", ""))
             and float(row[i].replace(",", "")) >= 1e4 for row in rows[2:])]  # fmt: skip
    for i in rates:
        for row in rows[2:]:
            row[i] = f"{float(row[i].replace(',', '')) / 1000:.2f}k"
    return _with(lines, table, rows) if rates else lines


UNIT = re.compile(r"(.*\w)\s*[(\[]\s*(s|ms|GiB|GB|%|h|TFLOPs?|kWh|MWh|tokens/s)\s*[)\]]\s*$")


def units_in_cells(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """`Step (s)` over 4.31 as `Step` over `4.31 s`."""
    if (chosen := _columns(lines, rng)) is None:
        return lines
    table, rows = chosen
    moved = False
    for i, heading in enumerate(rows[0]):
        bare = all(NUMERIC.fullmatch(row[i]) or not re.search(r"\d", row[i]) for row in rows[2:])
        if (named := UNIT.fullmatch(heading)) and bare:
            moved, rows[0][i] = True, named[1]
            for row in rows[2:]:
                row[i] += f" {named[2]}" if NUMERIC.fullmatch(row[i]) else ""
    return _with(lines, table, rows) if moved else lines


def units_in_headings(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """`Step` over `4.31 s` as `Step (s)` over 4.31."""
    if (chosen := _columns(lines, rng)) is None:
        return lines
    table, rows = chosen
    moved = False
    for i, heading in enumerate(rows[0]):
        units = {match[1] for row in rows[2:] if (match := re.fullmatch(r"[\d.,]+\s?(s|ms|GiB|GB|%|h|kWh|MWh)", row[i]))}
        if len(units) == 1 and "(" not in heading and "[" not in heading:
            if any(NUMERIC.fullmatch(row[i]) for row in rows[2:]):
                continue
            (unit,) = units
            moved, rows[0][i] = True, f"{heading} ({unit})"
            for row in rows[2:]:
                row[i] = re.sub(rf"(?<=\d)\s?{re.escape(unit)}$", "", row[i])
    return _with(lines, table, rows) if moved else lines


def other_headings(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """Headings of tests/data/headings for others of the same quantity, unit and what it is of."""
    alike, meant = _headings()
    if (chosen := _columns(lines, rng)) is None:
        return lines
    table, rows = chosen
    there, moved = {*rows[0]}, False
    for i, heading in enumerate(rows[0]):
        if (kind := meant.get(heading.casefold())) is not None and len(alike[kind]) > 1:
            other = rng.choice(alike[kind])
            if other not in there:
                there.add(other)
                moved, rows[0][i] = True, other
    return _with(lines, table, rows) if moved else lines


@functools.cache
def _headings() -> tuple[dict[tuple[object, ...], list[str]], dict[str, tuple[object, ...]]]:
    alike: dict[tuple[object, ...], list[str]] = {}
    meant = {}
    for line in (notes_corpus.NOTES.parent / "headings" / "english.jsonl").open(encoding="utf-8"):
        one = json.loads(line)
        if one["f"] != "none" and "|" not in one["h"]:
            kind = (one["f"], one["u"], one["per"])
            alike.setdefault(kind, []).append(one["h"])
            meant[one["h"].casefold()] = kind
    return alike, meant


MORE = {
    "commit": ["8f31c2e", "a94be01", "77d02f4", "1e5c9a8", "c0ffee1", "3b8d7f0", "90a1b2c", "5e4d3c2"],
    "job": ["4410213", "4410377", "4411020", "4411984", "4412230", "4413018", "4413555", "4414001"],
    "host": ["gpu-a07", "gpu-a11", "gpu-b02", "gpu-b09", "gpu-c01", "gpu-c14", "gpu-d03", "gpu-d08"],
    "who": ["mk", "jr", "mk", "sb", "lt", "jr", "mk", "sb"],
    "loss": ["2.981", "2.874", "2.913", "2.802", "2.795", "2.841", "2.776", "2.760"],
    "temp (°C)": ["61", "63", "62", "64", "66", "63", "65", "62"],
}


def with_a_column(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """Where it ran, who ran it, what came of it: nothing that belongs to the figures."""
    if (chosen := _columns(lines, rng)) is None:
        return lines
    table, rows = chosen
    if not read_heading(rows[0][0]).field and not rows[0][0]:
        return lines  # turned round: a column is a run
    heading = rng.choice([*MORE])
    at = rng.randint(1, len(rows[0]))
    values = [heading, "---", *(MORE[heading][n % 8] if len(set(row)) > 1 else "" for n, row in enumerate(rows[2:]))]
    if len(rows) > 10:
        return lines
    return _with(lines, table, [[*row[:at], value, *row[at:]] for row, value in zip(rows, values, strict=True)])


def turned(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """A table with a run in each column."""
    if (chosen := _columns(lines, rng)) is None:
        return lines
    table, rows = chosen
    if len(rows) > 9 or len(rows[0]) < 3:
        return lines
    body = [rows[0], *rows[2:]]
    across = [list(column) for column in zip(*body, strict=True)]
    return [*lines[: table.start], *("| " + " | ".join(row) + " |" for row in [across[0], ["---"] * len(body), *across[1:]]),
            *lines[table.stop :]]  # fmt: skip


def other_sections(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """Sections of the second level in another order; what says above or below is left alone."""
    if re.search(r"\babove\b|\bbelow\b|\bprevious\b|\bearlier\b|\bagain\b|\bsame\b|\bnext\b", "\n".join(lines), re.IGNORECASE):
        return lines
    fenced, places = False, []
    for at, line in enumerate(lines):
        fenced ^= line.startswith("```")
        places += [at] if line.startswith("## ") and not fenced else []
    if len(places) < 2:
        return lines
    parts = [lines[a:b] for a, b in zip(places, [*places[1:], len(lines)], strict=True)]
    order = rng.sample(parts, len(parts))
    return [*lines[: places[0]], *(line for part in order for line in [*part, ""])]


def as_html(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """The note as a page; paragraphs as they are."""
    inside = {at: table for table in tables(lines) for at in table}
    if any(line.startswith("```") for line in lines):
        return lines
    page = ["<html><body>"]
    for at, line in enumerate(lines):
        if (table := inside.get(at)) is not None:
            if at == table.start:
                page.append("<table>")
            if at != table.start + 1:
                tag = "th" if at == table.start else "td"
                page.append("<tr>" + "".join(f"<{tag}>{_plain(cell)}</{tag}>" for cell in cells(line)) + "</tr>")
            if at == table.stop - 1:
                page.append("</table>")
        elif heading := re.fullmatch(r"(#{1,6}) (.*)", line):
            page.append(f"<h{len(heading[1])}>{heading[2]}</h{len(heading[1])}>")
        else:
            page.append(f"<p>{line}</p>" if line.strip() else "")
    return [*page, "</body></html>"]


def as_wiki(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    inside = {at: table for table in tables(lines) for at in table}
    if any(line.startswith("```") for line in lines):
        return lines
    page = []
    for at, line in enumerate(lines):
        if (table := inside.get(at)) is not None:
            if at == table.start:
                page += ['{| class="wikitable"', "! " + " !! ".join(_plain(cell) for cell in cells(line))]
            elif at != table.start + 1:
                page += ["|-", "| " + " || ".join(_plain(cell) for cell in cells(line))]
            if at == table.stop - 1:
                page.append("|}")
        elif heading := re.fullmatch(r"(#{1,6}) (.*)", line):
            marks = "=" * len(heading[1])
            page.append(f"{marks} {heading[2]} {marks}")
        else:
            page.append(line)
    return page


def as_rst(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    inside = {at: table for table in tables(lines) for at in table}
    if any(line.startswith("```") for line in lines):
        return lines
    page = []
    for at, line in enumerate(lines):
        if (table := inside.get(at)) is not None:
            if at == table.start:
                rows = [[_plain(cell) for cell in cells(lines[one])] for one in table if one != table.start + 1]
                wide = [max(map(len, column)) for column in zip(*rows, strict=False)]
                rule = "+" + "+".join("-" * (width + 2) for width in wide) + "+"
                page += ["", rule]
                for n, row in enumerate(rows):
                    page.append("|" + "|".join(f" {cell:<{width}} " for cell, width in zip(row, wide, strict=False)) + "|")
                    page.append(rule.replace("-", "=") if n == 0 else rule)
                page.append("")
        elif heading := re.fullmatch(r"(#{1,6}) (.*)", line):
            page += [heading[2], "=-~^\"'"[len(heading[1]) - 1] * len(heading[2])]
        else:
            page.append(line)
    return page


def as_csv(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """One table alone; what the text says of it is left out."""
    if (chosen := _columns(lines, rng)) is None:
        return lines
    _, rows = chosen
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[_plain(cell) for cell in row] for n, row in enumerate(rows) if n != 1])
    return text.getvalue().split("\n")


def _plain(cell: str) -> str:
    return cell.strip().replace("**", "").replace("`", "")


FORMS = (decimal_commas, other_thousands, in_thousands, units_in_cells, units_in_headings, other_headings, with_a_column,
         turned, other_sections, as_html, as_wiki, as_rst, as_csv)  # fmt: skip
SUFFIXES = {"as_html": ".html", "as_wiki": ".wiki", "as_rst": ".rst", "as_csv": ".csv"}
"""Of changes after which the note is no Markdown."""
