"""The parts of `benchmarks.engines`, a line a case; exit status 1 where a bar is missed."""
from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter
from pathlib import Path

import benchmarks.engines
from benchmarks.engines.each import each
from benchmarks.engines.faults import faults
from benchmarks.engines.layouts import layouts, steps
from benchmarks.engines.rules import rules
from benchmarks.engines.tuned import tune

NAMES = ("seatrial", "fsdp2", "torchtitan", "deepspeed", "megatron-core", "megatron-lm", "accelerate")
PARTS = {"layouts": layouts, "rules": rules, "steps": steps, "faults": faults, "tune": tune}
CULPRITS = 0.9
"""Of the faults, those whose rank must be named."""


def main() -> int:
    parser = argparse.ArgumentParser(description=benchmarks.engines.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=f"{', '.join(NAMES)}; by default all that are installed")
    parser.add_argument("--part", choices=PARTS, default="layouts")
    parser.add_argument("--count", type=int, help="of what is drawn at random")
    parser.add_argument("--most", type=int, help="cases of each engine")
    parser.add_argument("--seed", type=int, help="of what is drawn at random")
    parser.add_argument("-o", "--out", type=Path, help="a file that gets a JSON line a case")
    asked = parser.parse_args()
    missed = False
    for name in asked.engines or NAMES:
        engine = each(name)
        if not engine.python:
            print(f"{name:14} is not installed: make engines ENGINES={name}")
            continue
        drawn = {name: value for name in ("seed", "count") if (value := getattr(asked, name)) is not None}
        rows = []
        for row in itertools.islice(PARTS[asked.part](engine, **drawn), asked.most):
            rows.append(row)
            print(f"{name:14} {row['status']!s:14} {row['case']!s:60} {row['said']}"[:300], flush=True)
            if asked.out is not None:
                with asked.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        tried = [row for row in rows if row["good"] is not None]
        good = sum(bool(row["good"]) for row in tried)
        said = f"{name} {asked.part}: {good} of {len(tried)} right"
        if named := [row["culprit"] for row in tried if "culprit" in row]:
            said += f", the rank in {sum(map(bool, named))}"
            missed |= sum(map(bool, named)) < CULPRITS * len(named)
        print(f"{said}; {', '.join(f'{count} {status}' for status, count in Counter(r['status'] for r in rows).items())}")
        missed |= good < len(tried)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
