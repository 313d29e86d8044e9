"""How long lint takes for ten thousand rows: the rows of the five logs over and over, times a little apart.

    python -m benchmarks.lint_speed [--rows 10000] [--one-file]

Prints one JSON object: seconds of the clock and of the processor, to read the rows and to lint them. With --one-file all rows
stand in the five files they came from; else every copy has files of its own, as a folder of notes would.
"""
from __future__ import annotations

import argparse
import csv
import json
import random
import tempfile
import time
from pathlib import Path

from seatrial.notes.lint import lint
from seatrial.notes.read import import_file

ROWS = Path(__file__).parents[1] / "examples" / "rows.csv"


def write(path: Path, count: int, *, one_file: bool) -> None:
    with ROWS.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows, header = list(reader), list(reader.fieldnames or ())
    rng = random.Random(3)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--one-file", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.csv"
        write(path, asked.rows, one_file=asked.one_file)
        clock, cpu = time.perf_counter(), time.process_time()
        records = import_file(path).records
        read_s, read_cpu_s = time.perf_counter() - clock, time.process_time() - cpu
        clock, cpu = time.perf_counter(), time.process_time()
        found = lint(records)
        print(json.dumps({"rows": len(records), "findings": len(found), "read_s": round(read_s, 2),
                          "read_cpu_s": round(read_cpu_s, 2), "lint_s": round(time.perf_counter() - clock, 2),
                          "lint_cpu_s": round(time.process_time() - cpu, 2)}))


if __name__ == "__main__":
    main()
