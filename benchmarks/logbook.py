"""How long a logbook of 100,000 records takes to write, to index, and to open and filter when the index is warm.

    python benchmarks/logbook.py [records]

Peer: reading the same JSON lines with `json.loads` and filtering in a loop, which is what a script without an index does.
Each warm figure is the best of five, in a process that opens the logbook anew each time.
"""
from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from seatrial.logbook import Logbook


def record(number: int, rng: random.Random) -> dict[str, object]:
    """About a kilobyte, as a trial of ours leaves it."""
    dp, tp, pp = rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 4, 12])
    return {
        "state": rng.choice(["measured", "estimated", "planned", "failed"]),
        "outcome": {"status": rng.choice(["ok", "ok", "ok", "oom_device", "hang"]), "message": "as the run left it"},
        "run_id": f"run-{number:06d}",
        "size_label": rng.choice(["104B", "176B", "200B"]),
        "machine": rng.choice(["a", "b"]),
        "nodes": dp * tp * pp // 4 or 1,
        "dp": dp,
        "tp": tp,
        "pp": pp,
        "mbs": rng.choice([1, 2, 4]),
        "gbs": 2048,
        "sec_per_it": rng.uniform(50, 200),
        "tflops": rng.uniform(50, 160),
        "iterations": [{"iteration": i, "sec": rng.uniform(50, 200), "loss": rng.uniform(2, 10)} for i in range(8)],
        "printed": {"Nodes": "48", "Size": "181B", "Sec/it": "102.4"},
        "source_file": "bench",
        "source_line": number,
    }


def seconds(job: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result


def best(job: Callable[[], object]) -> tuple[float, object]:
    return min((seconds(job) for _ in range(5)), key=lambda pair: pair[0])


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        path = Path(folder) / "logbook"
        rng = random.Random(0)
        rows = [record(number, rng) for number in range(count)]

        def opened(**options: object) -> int:
            with Logbook(path) as book:
                return sum(1 for _ in book.records(**options))  # type: ignore[arg-type]

        def by_hand() -> int:
            lines = (line for file in (path / "segments").iterdir() for line in file.open())
            return sum(1 for data in map(json.loads, lines) if data["state"] == "measured" and data["dp"] == 8)

        with Logbook(path, create=True) as book:
            took, _ = seconds(lambda: book.append_many(rows))
            size = sum(file.stat().st_size for file in (path / "segments").iterdir())
            print(f"append_many of {count:,} records, {size / 1e6:.0f} MB: {took:.2f} s")
            took, _ = seconds(lambda: [book.append(row | {"repeat": 1}) for row in rows[:200]])
            print(f"append, one by one and synced: {took / 200 * 1e3:.2f} ms a record")
        took, found = seconds(lambda: opened(where={"run_id": "run-000007"}))
        print(f"cold: build the index, find {found}: {took:.2f} s")
        for name, options in {
            "one run": {"where": {"run_id": "run-000007"}},
            "measured, dp 8": {"where": {"state": "measured", "dp": 8}},
            "measured, dp 8, by tflops": {"where": {"state": "measured", "dp": 8}, "order": ["-tflops"]},
            "everything": {},
        }.items():
            took, found = best(lambda options=options: opened(**options))  # type: ignore[misc]
            print(f"warm: open and filter, {name}: {found:,} records in {took * 1e3:.0f} ms")
        with Logbook(path) as book:
            book.append({"state": "planned", "dp": 3})
        took, _ = seconds(lambda: opened(where={"dp": 3}))
        print(f"warm: after one append by another process: {took * 1e3:.0f} ms")
        took, found = best(by_hand)
        print(f"peer: json.loads over the lines, measured, dp 8: {found:,} records in {took * 1e3:.0f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
