"""Where lint is blind: one cell or number of a clean note is changed as a hand slips, and lint is asked again.

    python -m benchmarks.notes_probe                     every half of tests/data/notes, 12 cells of each note
    python -m benchmarks.notes_probe quay --cells 60     one half, more of it
    python -m benchmarks.notes_probe --list              every change that nothing was said of
    python -m benchmarks.notes_probe --list --heading mem
    python -m benchmarks.notes_probe --sentences --list  numbers of sentences and lists in place of cells

Nobody says of these changes whether an expert would see them: a micro-batch that nothing else in the note follows from may
be anything. The share that is flagged tells nothing by itself; what it is for is the list, by heading: a column in which ten
times the value goes by without a word is one that no rule reads.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.notes import lint

NOTES = Path(__file__).parents[1] / "tests" / "data" / "notes"
CELL = re.compile(r"(?P<before>[*~≈$€ ]*)(?P<number>\d[\d,.]*\d|\d)(?P<after>[^\d]*|\s*\(.*\))")
LEAST = 0.08
"""By how much a change changes a figure at least."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cell that holds one number."""

    line: int
    place: int
    """Of the cell in its line, or of the number in its sentence."""
    heading: str | None
    """None in a sentence."""
    number: str

    @property
    def value(self) -> float:
        return float(self.plain)

    @property
    def plain(self) -> str:
        """As Python reads it: a comma before one, two or four digits is a decimal one."""
        if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", self.number):
            return self.number.replace(",", "")
        return self.number.replace(",", ".") if re.fullmatch(r"\d+,\d+", self.number) else self.number

    def like(self, value: float, decimals: int | None = None) -> str:
        """Another value as this one is printed."""
        places = len(self.plain.partition(".")[2]) if decimals is None else max(0, decimals)
        if "," in self.number and "," not in self.plain and "." not in self.plain:
            return f"{value:,.{places}f}"
        comma = "," in self.number and "." in self.plain and "." not in self.number
        return f"{value:.{places}f}".replace(".", ",") if comma else f"{value:.{places}f}"


def sites(lines: list[str]) -> Iterator[Site]:
    headings: list[str] = []
    fenced = False
    for at, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if fenced or not line.lstrip().startswith("|"):
            headings = []
        elif not headings:
            headings = line.split("|")
        elif not set(line) <= set("|-: "):
            for place, cell in enumerate(line.split("|")[: len(headings)]):
                if match := CELL.fullmatch(cell):
                    site = Site(line=at, place=place, heading=headings[place].strip(), number=match["number"])
                    if re.fullmatch(r"\d+(?:\.\d+)?", site.plain) and site.value > 0:
                        yield site


SPOKEN = re.compile(r"(?<![\w.,/:#-])(?:\d[\d,.]*\d|\d(?!\w))")


def spoken(lines: list[str]) -> Iterator[Site]:
    """The numbers of sentences and lists."""
    fenced = False
    for at, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if not fenced and not line.lstrip().startswith(("|", "#")):
            for match in SPOKEN.finditer(line):
                site = Site(line=at, place=match.start(), heading=None, number=match[0])
                if re.fullmatch(r"\d+(?:\.\d+)?", site.plain) and site.value > 0:
                    yield site


def ten_times(site: Site, same: list[str], rng: random.Random) -> str:
    return site.like(10 * site.value, len(site.plain.partition(".")[2]) - 1)


def a_tenth(site: Site, same: list[str], rng: random.Random) -> str:
    places = len(site.plain.partition(".")[2])
    return site.like(site.value / 10, places + 1 if places or site.value >= 1000 else 0)


def twice(site: Site, same: list[str], rng: random.Random) -> str:
    return site.like(2 * site.value)


def half(site: Site, same: list[str], rng: random.Random) -> str:
    return site.like(site.value / 2)


def exchanged(site: Site, same: list[str], rng: random.Random) -> str:
    plain = site.plain
    at = next((i for i in range(len(plain) - 1) if plain[i : i + 2].isdigit() and plain[i] != plain[i + 1] != "0"), None)
    return "" if at is None else site.like(float(plain[:at] + plain[at + 1] + plain[at] + plain[at + 2 :]))


def pasted(site: Site, same: list[str], rng: random.Random) -> str:
    """The cell of another row."""
    return rng.choice(same) if same else ""


SLIPS: tuple[Callable[[Site, list[str], random.Random], str], ...] = (ten_times, a_tenth, twice, half, exchanged, pasted)


def said(note: Path) -> set[tuple[int | None, str, str | None, str]]:
    found = lint.look_at([str(note)])[0]
    return {(f.line, f.code, f.column, f.message) for f in found if f.level != "info"}


def probed(note: Path, cells: int, rng: random.Random, folder: Path, find: Callable[[list[str]], Iterator[Site]] = sites,
           ) -> Iterator[tuple[str, Site, str, bool]]:  # fmt: skip
    """Kind of slip, where, what stands there then, and whether anything is said of the line that was not said before."""
    lines = note.read_text(encoding="utf-8").split("\n")
    copy = folder / note.name
    copy.write_text("\n".join(lines), encoding="utf-8")
    before = said(copy)
    there = list(find(lines))
    for site in rng.sample(there, min(cells, len(there))):
        slip = rng.choice(SLIPS)
        same = [other.number for other in there if (other.place, other.heading) == (site.place, site.heading)]
        new = slip(site, same, rng)
        other = Site(line=0, place=0, heading="", number=new)
        if not re.fullmatch(r"\d+(?:\.\d+)?", other.plain) or not other.value or abs(other.value / site.value - 1) < LEAST:
            continue
        line = lines[site.line]
        if site.heading is not None:
            row = line.split("|")
            row[site.place] = row[site.place].replace(site.number, new, 1)
            line = "|".join(row)
        else:
            line = line[: site.place] + new + line[site.place + len(site.number) :]
        copy.write_text("\n".join([*lines[: site.line], line, *lines[site.line + 1 :]]), encoding="utf-8")
        more = said(copy) - before
        yield slip.__name__, site, new, any(site.heading is None or line == site.line + 1 for line, *_ in more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("halves", nargs="*", default=[path.name for path in sorted(NOTES.iterdir()) if path.is_dir()])
    parser.add_argument("--cells", type=int, default=12, help="of each note")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--heading", default="", help="list only changes under a heading with this word")
    parser.add_argument("--sentences", action="store_true", help="numbers of sentences and lists in place of cells")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    rng, find = random.Random(asked.seed), spoken if asked.sentences else sites
    flagged: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    listing: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for note in (note for half in asked.halves for note in sorted((NOTES / half / "clean").glob("*.md"))):
            for slip, site, new, seen in probed(note, asked.cells, rng, Path(folder), find):
                for name in ("all", slip):
                    tried[name] += 1
                    flagged[name] += seen
                if not seen and asked.heading.lower() in (site.heading or "").lower():
                    where = f"{note.parents[1].name}/clean/{note.name}:{site.line + 1}"
                    sentence = note.read_text(encoding="utf-8").split("\n")[site.line].strip()
                    about = sentence if site.heading is None else site.heading.lower()
                    listing.append(f"{about} | {where} {site.number} -> {new} ({slip})")
    for name, count in tried.items():
        print(f"{name:10} {flagged[name]:5} of {count:5} flagged, {flagged[name] / count:.0%}")
    if asked.list:
        print(*sorted(listing), sep="\n")


if __name__ == "__main__":
    main()
