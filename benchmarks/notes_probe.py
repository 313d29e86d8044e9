"""Where lint is blind: one cell or number of a clean note is changed as a hand slips, and lint is asked again.

    python -m benchmarks.notes_probe                     every half of tests/data/notes, 12 cells of each note
    python -m benchmarks.notes_probe quay --cells 60     one half, more of it
    python -m benchmarks.notes_probe --list              every change that nothing was said of
    python -m benchmarks.notes_probe --list --heading mem
    python -m benchmarks.notes_probe --list --unexplained what was flagged, and something else proposed than what stood there
    python -m benchmarks.notes_probe --sentences --list  figures of sentences in place of cells, by what they count
    python -m benchmarks.notes_probe --sentences --list --heading tokens

Nobody says of these changes whether an expert would see them: a micro-batch that nothing else in the note follows from may
be anything. The share that is flagged tells nothing by itself; what it is for is the list, by heading: a column in which ten
times the value goes by without a word is one that no rule reads. What is explained has the value that stood there proposed.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import notes_corpus
from seatrial.errors import BadInput
from seatrial.notes import lint
from seatrial.notes.lint.text.figures import figures
from seatrial.notes.lint.text.prose import Prose
from seatrial.notes.read import import_file

NOTES = notes_corpus.NOTES
CELL = re.compile(r"(?P<before>[*~≈$€ ]*)(?P<number>\d[\d,.]*\d|\d)(?P<after>[^\d]*|\s*\(.*\))")
OF_DEVICES = re.compile(r"tok|samples|seq\w*/s|flop|gpu|devices|chips|cards|hours|卡", re.IGNORECASE)
SHARE = re.compile(r"mfu|hfu|util|peak ?%|% of peak", re.IGNORECASE)
MEMORY = re.compile(r"mem|vram|speicher|mémoire|gi?b\b|gio\b|显存", re.IGNORECASE)
LEAST = 0.08
"""By how much a change changes a figure at least."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cell that holds one number."""

    line: int
    place: int
    """Of the number in its line."""
    heading: str | None
    """None in a sentence."""
    number: str
    column: int = 0
    """Of its table, which the cells of other rows share."""
    row: int = 0
    """The line that its row starts on."""
    kind: str = ""
    """Of a figure of a sentence: what it counts."""

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


def sites(note: Path) -> Iterator[Site]:
    """The cells of Markdown as they stand, and those of any other table as it is read."""
    lines = note.read_text(encoding="utf-8").split("\n")
    return between_pipes(lines) if note.suffix == ".md" else read(note, lines)


def between_pipes(lines: list[str]) -> Iterator[Site]:
    headings: list[str] = []
    fenced, table = False, 0
    for at, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if fenced or not line.lstrip().startswith("|"):
            headings = []
        elif not headings:
            headings, table = line.split("|"), at
        elif not set(line) <= set("|-: "):
            place = 0
            for column, cell in enumerate(line.split("|")[: len(headings)]):
                where = {"heading": headings[column].strip(), "column": 1000 * table + column}
                if site := _site(cell, line=at, place=place, row=at, **where):
                    yield site
                place += len(cell) + 1


def read(note: Path, lines: list[str]) -> Iterator[Site]:
    """Where the cells of a row stand one behind the other, from the line that it starts on."""
    imported = import_file(note)
    left = [record for problem in imported.problems for record in problem.left]
    for record in [*imported.records, *left]:
        row = (record.source_line or 1) - 1
        at, place = row, 0
        for column, (heading, cell) in enumerate(record.printed.items()):
            starts = ((n, _find(lines[n], cell, place if n == at else 0)) for n in range(at, min(len(lines), row + MOST_LINES)))
            found = next(((n, start) for n, start in starts if start >= 0), None)
            if found is None or not cell:
                continue
            (at, start), place = found, found[1] + len(cell)
            if site := _site(cell, line=at, place=start, heading=heading, column=1000 * (record.table or 0) + column, row=row):
                yield site


MOST_LINES = 40
"""That a row goes over."""


def _find(line: str, cell: str, start: int) -> int:
    match = re.compile(rf"(?<![\w.,]){re.escape(cell)}(?![\w.,]*\w)").search(line, start)
    return match.start() if match else -1


def _site(cell: str, *, place: int, **where: Any) -> Site | None:
    if not (match := CELL.fullmatch(cell)):
        return None
    site = Site(number=match["number"], place=place + match.start("number"), **where)
    return site if re.fullmatch(r"\d+(?:\.\d+)?", site.plain) and site.value > 0 else None


def spoken(note: Path) -> Iterator[Site]:
    """The figures of sentences, where one number of their line is printed so."""
    lines = note.read_text(encoding="utf-8").split("\n")
    for sentence in Prose.of("\n".join(lines)).sentences:
        for one in figures(sentence.text):
            at = sentence.line_at(one.start) - 1
            places = [match.start() for match in re.finditer(rf"(?<![\w.,]){re.escape(one.text)}(?!\d|[.,]\d)", lines[at])]
            site = Site(line=at, place=places[0], heading=None, number=one.text, row=at, kind=one.kind) if places else None
            if site and len(places) == 1 and re.fullmatch(r"\d+(?:\.\d+)?", site.plain) and site.value > 0:
                yield site


def ten_times(site: Site, same: list[str], rng: random.Random) -> str:
    return site.like(10 * site.value, len(site.plain.partition(".")[2]) - 1)


def a_tenth(site: Site, same: list[str], rng: random.Random) -> str:
    places = len(site.plain.partition(".")[2])
    return site.like(site.value / 10, places + 1 if places or site.value >= 1000 else 0)


def twice(site: Site, same: list[str], rng: random.Random) -> str:
    """A count: nobody doubles what was measured."""
    return site.like(2 * site.value) if "." not in site.plain else ""


def half(site: Site, same: list[str], rng: random.Random) -> str:
    return site.like(site.value / 2) if "." not in site.plain and site.value > 1 else ""


def exchanged(site: Site, same: list[str], rng: random.Random) -> str:
    plain = site.plain
    at = next((i for i in range(len(plain) - 1) if plain[i : i + 2].isdigit() and plain[i] != plain[i + 1] != "0"), None)
    return "" if at is None else site.like(float(plain[:at] + plain[at + 1] + plain[at] + plain[at + 2 :]))


def mistyped(site: Site, same: list[str], rng: random.Random) -> str:
    """One of its first two digits is another."""
    plain = site.plain
    at = rng.choice([i for i, digit in enumerate(plain[:3]) if digit.isdigit()][:2])
    digit = rng.choice([digit for digit in "123456789" if digit != plain[at]])
    return site.like(float(plain[:at] + digit + plain[at + 1 :]))


def of_a_node(site: Site, same: list[str], rng: random.Random) -> str:
    """A rate, or a count of devices; eight of them have a node in most notes."""
    return site.like(rng.choice((8, 0.125, 4, 0.25)) * site.value) if OF_DEVICES.search(site.heading or "") else ""


def of_another_peak(site: Site, same: list[str], rng: random.Random) -> str:
    """Twice or half of what it is, as with and without sparsity, or in the ratio of A100, H100 and B200."""
    times = (2, 0.5, 312 / 989, 989 / 312, 989 / 2250)
    return site.like(rng.choice(times) * site.value) if SHARE.search(site.heading or "") else ""


def above_the_device(site: Site, same: list[str], rng: random.Random) -> str:
    return site.like(site.value + rng.choice((10, 20, 60, 90, 100))) if MEMORY.search(site.heading or "") else ""


def pasted(site: Site, same: list[str], rng: random.Random) -> str:
    """The cell of another row."""
    return rng.choice(same) if same else ""


def stale(site: Site, same: list[str], rng: random.Random) -> str:
    """The cell of the row above or below."""
    return rng.choice(same[:2]) if same else ""


SLIPS: tuple[Callable[[Site, list[str], random.Random], str], ...] = (
    ten_times, a_tenth, twice, half, exchanged, mistyped, of_a_node, of_another_peak, above_the_device, pasted, stale,
)  # fmt: skip


def said(note: Path) -> dict[tuple[int | None, str, str | None, str], lint.Finding]:
    found = lint.look_at([str(note)])[0]
    return {(f.line, f.code, f.column, f.message): f for f in found if f.level != "info"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A slip that was made, and what was said of its line that was not said before."""

    slip: str
    site: Site
    new: str
    found: list[lint.Finding]

    @property
    def explained(self) -> bool:
        truth = {"line": self.site.row + 1, "column": "", "wrong": self.new, "right": self.site.number, "kind": ""}
        return any(notes_corpus.explains(asdict(finding), truth) for finding in self.found)


def probed(note: Path, cells: int, rng: random.Random, folder: Path, find: Callable[[Path], Iterator[Site]] = sites,
           ) -> Iterator[Case]:  # fmt: skip
    lines = note.read_text(encoding="utf-8").split("\n")
    copy = folder / note.name
    copy.write_text("\n".join(lines), encoding="utf-8")
    before = said(copy)
    there = list(find(note))
    for site in rng.sample(there, min(cells, len(there))):
        others = [other for other in there if other is not site
                  and (other.column, other.heading, other.kind) == (site.column, site.heading, site.kind)]  # fmt: skip
        others.sort(key=lambda other: abs(other.row - site.row))
        made = {slip: slip(site, [other.number for other in others], rng) for slip in SLIPS}
        may = [slip for slip, new in made.items() if new and not (site.kind and slip in (pasted, stale))]
        if not may:
            continue
        slip = rng.choice(may)
        new = made[slip]
        other = Site(line=0, place=0, heading="", number=new)
        if not re.fullmatch(r"\d+(?:\.\d+)?", other.plain) or not other.value or abs(other.value / site.value - 1) < LEAST:
            continue
        line = lines[site.line]
        line = line[: site.place] + new + line[site.place + len(site.number) :]
        copy.write_text("\n".join([*lines[: site.line], line, *lines[site.line + 1 :]]), encoding="utf-8")
        more = {key: finding for key, finding in said(copy).items() if key not in before}
        at = [f for f in more.values() if site.heading is None or f.line in (site.line + 1, site.row + 1)]
        yield Case(slip=slip.__name__, site=site, new=new, found=at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("halves", nargs="*", default=[path.name for path in sorted(NOTES.iterdir()) if path.is_dir()])
    parser.add_argument("--cells", type=int, default=12, help="of each note")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--heading", default="", help="list only changes under a heading, or of a kind, with this word")
    parser.add_argument("--sentences", action="store_true", help="figures of sentences in place of cells")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--unexplained", action="store_true", help="list what was flagged and not explained")
    asked = parser.parse_args()
    find = spoken if asked.sentences else sites
    flagged: Counter[str] = Counter()
    explained: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    listing: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for note in (note for half in asked.halves for note in _notes(half)):
            text = note.read_text(encoding="utf-8").split("\n")
            # The same slips whatever is asked besides.
            rng = random.Random(f"{asked.seed} {note.parents[1].name} {note.name}")
            for case in probed(note, asked.cells, rng, Path(folder), find):
                site, seen = case.site, bool(case.found)
                for name in filter(None, ("all", case.slip, site.kind)):
                    tried[name] += 1
                    flagged[name] += seen
                    explained[name] += case.explained
                asked_for = asked.heading.lower() in (site.heading or site.kind).lower()
                if seen is asked.unexplained and not case.explained and asked_for:
                    about = f"[{site.kind}] {text[site.line].strip()}" if site.heading is None else site.heading.lower()
                    where = f"{note.parents[1].name}/clean/{note.name}:{site.line + 1}"
                    listing.append(f"{about} | {where} {site.number} -> {case.new} ({case.slip})"
                                   f"{''.join(_brief(one) for one in case.found)}")
    for name, count in tried.most_common():
        print(f"{name:22} {flagged[name]:5} of {count:5} flagged, {flagged[name] / count:.0%}; "
              f"{explained[name]} explained, {explained[name] / max(1, flagged[name]):.0%} of them")
    if asked.list:
        print(*sorted(listing), sep="\n")


def _brief(finding: lint.Finding) -> str:
    return f"\n    {finding.level} {finding.code} {finding.column} {finding.printed} -> {finding.proposed}: {finding.message}"


def _notes(half: str) -> Iterator[Path]:
    for note in sorted((NOTES / half / "clean").glob("*.*")):
        if note.suffix != ".json":
            try:
                import_file(note)
            except BadInput:
                continue
            yield note


if __name__ == "__main__":
    main()
