"""Where lint cries wolf: a clean note is changed so that it stays clean, and lint is asked again.

    python -m benchmarks.notes_clean                     every half of tests/data/notes, 6 changes of each note
    python -m benchmarks.notes_clean keel --times 40     one half, more of it
    python -m benchmarks.notes_clean --change joined     one kind of change
    python -m benchmarks.notes_clean --list              every error that was said then, with the change

What is left out can make nothing wrong that was right: a column of figures, a row, a sentence, all sentences. Neither can
another note below it, the columns in another order, nor another way to write the same (`notes_rewritten.py`). Mixed notes
count too, with their slips put right. A few changes do make something wrong (a total without one of its rows), so that the
share tells little by itself; what it is for is the list.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from benchmarks.notes_rewritten import FORMS, SUFFIXES, Lines, cells, tables

import notes_corpus
from seatrial.errors import BadInput
from seatrial.notes import lint
from seatrial.notes.read.rows import TOPOLOGY
from seatrial.tables.headings import accumulates, read_heading

ADDED_UP = re.compile(
    r"\b(?:total|sum|altogether|overall|mean|average|cumulative|somm\w+|gesamt|summe)\b|合计|総計|合計|합계|итого",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\W*\d[\d,.\u202f' ]*\W*(?:[kKMGT]?i?B?|s|ms|%)?\W*")


def mended(truth: Path) -> Lines | None:
    """A note without its slips, or None where one of them cannot be put right."""
    lines = notes_corpus.note_of(truth).read_text(encoding="utf-8").split("\n")
    for slip in json.loads(truth.read_text(encoding="utf-8"))["slips"]:
        cells = slip.get("cells", [slip])
        if slip["right"] is None or len({cell["line"] for cell in cells}) < len(cells):
            return None  # cells of one line that were exchanged need their places
        for cell in cells:
            parts = re.split(rf"(?<![\d.,]){re.escape(cell['wrong'])}(?![\d.,])", lines[cell["line"] - 1])
            if cell["right"] is None or len(parts) != 2:
                return None
            lines[cell["line"] - 1] = cell["right"].join(parts)
    return lines


def without_columns(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """One to three columns of figures are left out of a table: what was measured or worked out, or is the same in all rows."""
    return _without(lines, rng, rng.randint(1, 3), varied=False)


def without_a_setting(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """A column of counts by which most rows differ is left out: they differ by something that nobody says. Where one row alone
    differs so, what is left is what a slip looks like."""
    return _without(lines, rng, 1, varied=True)


def _without(lines: Lines, rng: random.Random, most: int, *, varied: bool) -> Lines:
    if not (found := list(tables(lines))):
        return lines
    table = rng.choice(found)
    rows = [cells(lines[at]) for at in table]
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        return lines
    figures = [i for i in range(width) if all(NUMBER.fullmatch(row[i]) or not re.search(r"\d", row[i]) for row in rows[2:])
               and any(re.search(r"\d", row[i]) for row in rows[2:])]  # fmt: skip
    figures = [i for i in figures if _varied([row[i] for row in rows]) is varied]
    gone = set(rng.sample(figures, min(len(figures), most)))
    changed = list(lines)
    for at, row in zip(table, rows, strict=True):
        changed[at] = "|" + "|".join(cell for i, cell in enumerate(row) if i not in gone) + "|"
    return changed if gone else lines


def _varied(column: list[str]) -> bool | None:
    """Whether a column, its heading first, holds a setting that differs from row to row; None where few rows have another."""
    heading, count = column[0].strip(), Counter(cell.strip() for cell in column[2:])
    if len(count) == 1 or not (read_heading(heading).field in TOPOLOGY | {"mbs", "gbs"} or accumulates(heading)):
        return False
    return True if 2 * max(count.values()) <= count.total() else None


def other_order(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """The columns of a table but the first in another order."""
    if not (found := list(tables(lines))):
        return lines
    table = rng.choice(found)
    rows = [cells(lines[at]) for at in table]
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        return lines
    order = [0, *rng.sample(range(1, width), width - 1)]
    changed = list(lines)
    for at, row in zip(table, rows, strict=True):
        changed[at] = "|" + "|".join(row[i] for i in order) + "|"
    return changed


def without_rows(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """Rows between the first and the last are left out of a table; of none that is added up."""
    found = [table for table in tables(lines) if len(table) > 5]
    if not found or ADDED_UP.search("\n".join(lines)):
        return lines
    table = rng.choice(found)
    inner = list(table)[3:-1]
    gone = set(rng.sample(inner, rng.randint(1, len(inner))))
    return [line for at, line in enumerate(lines) if at not in gone]


def sentences(lines: Lines) -> list[int]:
    inside = {at for table in tables(lines) for at in table}
    fenced, found = False, []
    for at, line in enumerate(lines):
        fenced ^= line.startswith("```")
        marked = line.lstrip().startswith(("#", "```", "|", "=", "-", "*", "<"))
        if not fenced and at not in inside and line.strip() and not marked:
            found.append(at)
    return found


def without_a_sentence(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    if not (found := sentences(lines)):
        return lines
    at = rng.choice(found)
    parts = re.split(r"(?<=[.;:。])\s+", lines[at])
    del parts[rng.randrange(len(parts))]
    return [*lines[:at], " ".join(parts), *lines[at + 1 :]]


def without_sentences(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    gone = set(sentences(lines))
    return [line for at, line in enumerate(lines) if at not in gone]


def joined(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """Another note stands above it, as another chapter of the same file."""
    return [*_chapter(rng.choice(others), "A"), "", *_chapter(lines, "B")]


def pasted(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """Another note stands above it as it is: two documents in one file, each with its title."""
    return [*rng.choice([other for other in others if _titled(other)]), "", *lines] if _titled(lines) else lines


HARDWARE = """The partitions we may use, for reference:

| partition | nodes | device | memory (GB) | peak (TFLOP/s) | interconnect |
|---|---|---|---|---|---|
| small | 24 | 4x V100 | 16 | 125 | EDR 100 Gb/s |
| medium | 120 | 4x A100 | 40 | 312 | HDR 200 Gb/s |
| large | 64 | 8x H100 | 80 | 989 | NDR 400 Gb/s |
""".splitlines()
EVALUATION = """Scores after the last checkpoint, 5-shot unless said otherwise:

| model | MMLU | GSM8K | HellaSwag | ARC-c | average |
|---|---|---|---|---|---|
| ours | 45.3 | 14.6 | 76.0 | 53.1 | 47.3 |
| baseline | 46.9 | 13.2 | 77.2 | 51.6 | 47.2 |
| larger baseline | 54.8 | 28.7 | 80.7 | 57.3 | 55.4 |
""".splitlines()
ELSEWHERE = """Another team reports 39 % MFU for its 13B on 256 A100 (40 GB, tensor parallel 2, global batch 1024, seq 2048),
with 8 micro-batches each and 2,310 tokens/s per GPU; we did not repeat that.
""".splitlines()


def with_something_else(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """A section about something else between two, or behind all of them: a list of machines, scores, what others report."""
    title, text = rng.choice([("Partitions", HARDWARE), ("Evaluation", EVALUATION), ("Related results", ELSEWHERE)])
    return _put(lines, rng, title, text)


def with_a_section(lines: Lines, rng: random.Random, others: list[Lines]) -> Lines:
    """A section with the text and tables of another note, which has no headings of its own, beside those of the note.

    What stands above all sections speaks for all of them: here it is in a section, too."""
    theirs = [other for other in others if sum(line.startswith("#") for line in other) < 2 and _titled(other)]
    if not theirs or not _titled(lines):
        return lines
    title, text = _opened(lines)
    return _put(["# Notes", "", f"## {title}", *text], rng, *_opened(rng.choice(theirs)))


def _opened(lines: Lines) -> tuple[str, Lines]:
    at = next(at for at, line in enumerate(lines) if line.startswith("# "))
    return lines[at].strip("# "), lines[at + 1 :]


def _put(lines: Lines, rng: random.Random, title: str, text: Lines) -> Lines:
    """Between two sections of the second level, or below all."""
    fenced, places = False, []
    for at, line in enumerate(lines):
        fenced ^= line.startswith("```")
        places += [at] if line.startswith("## ") and not fenced else []
    at = rng.choice([*places[1:], len(lines)])
    return [*lines[:at], "", f"## {title}", "", *text, "", *lines[at:]]


def _titled(lines: Lines) -> bool:
    return next(filter(str.strip, lines), "").startswith("# ")


def _chapter(lines: Lines, name: str) -> Lines:
    fenced, changed = False, [f"# Part {name}", ""]
    for line in lines:
        fenced ^= line.startswith("```")
        changed.append(f"#{line}" if not fenced and re.match(r"#{1,5} ", line) else line)
    return changed


CHANGES: dict[str, Callable[[Lines, random.Random, list[Lines]], Lines]] = {
    change.__name__: change
    for change in (without_columns, without_a_setting, other_order, without_rows, without_a_sentence, without_sentences,
                   joined, pasted, with_something_else, with_a_section, *FORMS)
}  # fmt: skip


def said_of(lines: Lines, note: Path, level: str) -> list[str]:
    note.write_text("\n".join(lines), encoding="utf-8")
    try:
        found = lint.look_at([str(note)])[0]
    except BadInput:
        return []  # a table of no run, alone in a file
    return [f"{f.code} :{f.line} {f.column} {f.printed}: {f.message} || {lines[(f.line or 1) - 1]}"
            for f in found if f.level == level]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    every_half = [path.name for path in sorted(notes_corpus.NOTES.iterdir()) if path.is_dir()]
    parser.add_argument("halves", nargs="*", default=every_half)
    parser.add_argument("--times", type=int, default=6, help="each note is changed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--change", choices=CHANGES, action="append")
    parser.add_argument("--level", choices=("error", "warning"), default="error")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", type=Path, help="folder for the changed notes in which an error was said")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    truths = [truth for half in asked.halves for truth in sorted((notes_corpus.NOTES / half).glob("*/*.json"))
              if notes_corpus.note_of(truth).suffix == ".md"]  # fmt: skip
    notes = {truth: lines for truth in truths if (lines := mended(truth)) is not None}
    tried, rows, said = Counter[str](), Counter[str](), Counter[str]()
    codes, listing = Counter[str](), []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "note.md"
        before = {truth: said_of(lines, copy, asked.level) for truth, lines in notes.items()}
        listing += [f"MENDED {truth.parents[1].name}/{truth.stem} {one}" for truth, said_ in before.items() for one in said_]
        every = [lines for truth, lines in notes.items() if not before[truth]]
        for truth, lines in notes.items():
            if before[truth]:
                continue
            count = json.loads(truth.read_text(encoding="utf-8"))["rows"]
            for n in range(asked.times):
                name = rng.choice(asked.change or list(CHANGES))
                changed = CHANGES[name](lines, rng, every)
                if changed == lines:
                    continue
                found = said_of(changed, copy.with_suffix(SUFFIXES.get(name, ".md")), asked.level)
                tried[name] += 1
                rows[name] += count
                said[name] += len(found)
                codes.update(one.split()[0] for one in found)
                listing += [f"{name} {truth.parents[1].name}/{truth.parent.name}/{truth.stem} {n} {one}" for one in found]
                if found and asked.keep:
                    asked.keep.mkdir(parents=True, exist_ok=True)
                    kept = f"{truth.parents[1].name}-{truth.stem}-{n}-{name}{SUFFIXES.get(name, '.md')}"
                    (asked.keep / kept).write_text("\n".join(changed), "utf-8")
    for name, count in tried.items():
        share = 200 * said[name] / rows[name]
        print(f"{name:18} {count:5} notes, {rows[name]:6} rows, {said[name]:4} errors: {share:.2f} in 200 rows")
    print(codes)
    if asked.list:
        print(*listing, sep="\n")


if __name__ == "__main__":
    main()
