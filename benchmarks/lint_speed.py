"""What a row costs lint and the readers: milliseconds of the processor for 400, 4,000 and 40,000 rows of four kinds of notes.

    python -m benchmarks.lint_speed [--rows 400 4000 40000] [--kinds notes table collection copies]

A kind that is linear costs the same in every line; nothing is counted but reading the files and linting their rows.

notes       Markdown files of three small tables, each of another model and in one of four hands, a slip in every fifth
table       the rows of such tables in one CSV file by one formula, with a column for each setting
collection  the rows of the five logs over and over, times a little apart, every copy under the names of other notes
copies      the same under the names of the five notes, as if they were that long
"""
from __future__ import annotations

import argparse
import csv
import gc
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from lint_slips import SLIPS  # noqa: E402
from lint_tables import Table, clean_table  # noqa: E402
from seatrial.notes.lint import lint  # noqa: E402
from seatrial.notes.read import import_file  # noqa: E402

ROWS = ROOT / "examples" / "rows.csv"


def tables() -> Iterator[Table]:
    rng, slips = random.Random(3), list(SLIPS.values())
    while True:
        table = clean_table(rng)
        planted = rng.choice(slips)(table, rng) if rng.random() < 0.2 else None
        yield planted.table if planted is not None else table


def notes(folder: Path, count: int) -> list[Path]:
    made, paths = tables(), []
    while count > 0:
        some = [next(made) for _ in range(3)]
        count -= sum(len(table.rows) for table in some)
        paths.append(folder / f"notes{len(paths)}.md")
        paths[-1].write_text("\n".join(table.text() for table in some), encoding="utf-8")
    return paths


def table(folder: Path, count: int) -> list[Path]:
    names = {"Layers": "layers", "Hidden": "hidden", "Heads": "heads", "Seq": "seq", "Vocab": "vocab"}
    made = (one for one in tables() if one.formula == "sc21" and one.recompute == "full" and not one.model.gated)
    path = folder / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        for n, one in enumerate(made):
            if n == 0:
                writer.writerow([*one.columns, *names, "Procs per node"])
            shape = [getattr(one.model, name) for name in names.values()]
            writer.writerows([*(row.cells.get(c, "") for c in one.columns), *shape, one.procs] for row in one.rows)
            count -= len(one.rows)
            if count <= 0:
                return [path]
    raise AssertionError


def collection(folder: Path, count: int, *, one_file: bool = False) -> list[Path]:
    with ROWS.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows, header = list(reader), list(reader.fieldnames or ())
    rng, path = random.Random(3), folder / "many.csv"
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, header)
        writer.writeheader()
        for n in range(count):
            copy, row = n // len(rows), dict(rows[n % len(rows)])
            row["source_file"] = row["source_file"] if one_file else f"copy{copy}-{row['source_file']}"
            row["line_no"] = str(int(row["line_no"] or 0) + 1000 * copy)
            if row["sec_per_it"]:
                row["sec_per_it"] = repr(round(float(row["sec_per_it"]) * rng.uniform(0.997, 1.003), 2))
            writer.writerow(row)
    return [path]


def copies(folder: Path, count: int) -> list[Path]:
    return collection(folder, count, one_file=True)


KINDS = {made.__name__: made for made in (notes, table, collection, copies)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[400, 4_000, 40_000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    asked = parser.parse_args()
    print(f"{'kind':10s} {'rows':>7s} {'findings':>8s} {'read ms/row':>11s} {'lint ms/row':>11s}")
    for kind in asked.kinds:
        for count in asked.rows:
            with tempfile.TemporaryDirectory() as name:
                paths = KINDS[kind](Path(name), count)
                gc.collect()  # what the last size left behind is not this one's
                began = time.process_time()
                imported = [(path, import_file(path)) for path in paths]
                records = [record for _, one in imported for record in one.records]
                read = time.process_time()
                prose = {path.name: path.read_text(encoding="utf-8") for path in paths}
                found = lint(records, [problem for _, one in imported for problem in one.problems], prose=prose)
                linted = time.process_time()
            each = 1e3 / len(records)
            print(f"{kind:10s} {len(records):7d} {len(found):8d} {(read - began) * each:11.3f} {(linted - read) * each:11.3f}")


if __name__ == "__main__":
    main()
