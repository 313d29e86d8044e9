"""Random faults on random layouts, each with what is expected of it written down before.

    python -m benchmarks.faults --n 1000 --seed 7                   from the repository's root
    python -m benchmarks.faults --seed 7 --from 200 --to 400        a part of them; what is in the file already is left out
    python -m benchmarks.faults --seed 7 --n 40 --list              what would happen, and what must come of it
    python -m benchmarks.faults --report a.jsonl b.jsonl            one table of both

A line a case is added to --out. Exit status 1 where anything is not as it was expected.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.faults import warm
from benchmarks.faults.draw import KINDS, Case, draw
from benchmarks.faults.table import table, wrongs


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100, help="cases 0 to n - 1 of the seed")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first case")
    parser.add_argument("--to", type=int, dest="last", help="the case after the last; by default n")
    parser.add_argument("--kinds", nargs="+", default=[], choices=[*KINDS], metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--first-of", nargs="+", default=[], choices=[*KINDS], metavar="KIND",
                        help="of each of these kinds the first case that has no more than two ranks")
    parser.add_argument("--out", type=Path, default=Path("faults.jsonl"), help="results, a line a case; added to")
    parser.add_argument("--work", type=Path, default=Path("faults-work"), help="run folders, the logbook and the references")
    parser.add_argument("--budget", type=float, default=1e9, metavar="S", help="start no case after so many seconds")
    parser.add_argument("--report", type=Path, nargs="+", metavar="FILE", help="run nothing: the table of these results")
    parser.add_argument("--list", action="store_true", help="run nothing: the cases and what is expected of them")
    asked = parser.parse_args(argv)
    if asked.report:
        return _told(read(asked.report))
    cases = [draw(asked.seed, n) for n in range(asked.first, asked.last or asked.n)]
    cases = [case for case in cases if not asked.kinds or case.kind in asked.kinds]
    if asked.first_of:
        small = {case.kind: case for case in reversed(cases) if case.layout.world <= 2}
        cases = [small[kind] for kind in asked.first_of if kind in small]
    if asked.list:
        for case in cases:
            print(json.dumps(case.to_dict()))
        return 0
    warm.room(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PYTHONPATH"] = os.pathsep.join([sys.path[0], os.environ.get("PYTHONPATH", "")])
    done = {(r["seed"], r["index"]) for r in read([asked.out])} if asked.out.exists() else set()
    run_all([case for case in cases if (case.seed, case.index) not in done], asked.out, asked.work, asked.budget)
    ran = {(case.seed, case.index) for case in cases}
    return _told([r for r in read([asked.out]) if (r["seed"], r["index"]) in ran])


def run_all(cases: list[Case], out: Path, work: Path, budget_s: float) -> None:
    from benchmarks.faults.run import Campaign, wrong

    until = time.monotonic() + budget_s
    lacks = {ground: why for ground in sorted({case.ground for case in cases}) if (why := missing(ground))}
    for ground, why in lacks.items():
        kinds = sorted({case.kind for case in cases if case.ground == ground})
        print(f"skipped: {', '.join(kinds)}: {why}", file=sys.stderr)
    with Campaign(work) as campaign:
        for case in cases:
            if case.ground in lacks or case.kind == "full_disk" and os.getuid() != 0:
                continue
            if time.monotonic() > until:
                print(f"the budget is used up before case {case.index}", file=sys.stderr)
                return
            found = campaign.run(case)
            found["wrong"] = wrong(case, found)
            with out.open("a") as file:
                file.write(json.dumps(found) + "\n")
            _say(case, found)


def _say(case: Case, found: dict[str, Any]) -> None:
    print(f"{case.seed}:{case.index} {case.kind:<10} {case.layout!s:<18} rank {case.rank} {case.moment} {case.step}: "
          f"{found['status']} of {found['named']} {found['verdict_s']} s resumed {found['resumed']} "
          f"{found['seconds']} s {' '.join(found['wrong']).upper()}", file=sys.stderr, flush=True)


def missing(ground: str) -> str:
    from benchmarks.faults import hosts, slurm

    return hosts.missing() if ground == "links" else slurm.missing() if ground == "slurm" else ""


def read(paths: list[Path]) -> list[dict[str, Any]]:
    """Of a case that is there twice, the last."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["seed"], row["index"]] = row
    return [found[key] for key in sorted(found)]


def _told(results: list[dict[str, Any]]) -> int:
    print(table(results))
    for line in wrongs(results):
        print(line)
    return int(any(r["wrong"] for r in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
