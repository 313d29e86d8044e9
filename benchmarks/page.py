"""What the first page of a large logbook costs `seatrial serve`, and what the server costs while nobody asks.

    python -m benchmarks.page [records] [--profile]

Three logbooks: trials of one's own on a cluster that is described, rows of other people's tables on a machine that is known by
name, and rows of which nothing can be forecast. CPU seconds of a fresh process, since a machine may be shared: `first` from the
start of the command to the last byte of the first page, the imports included; `later` what is then worked out beside it, with
the page after that; `again` the page once more after one row was added; `idle` of each second of waiting. The index of the
logbook is warm, as a sweep that has just written it leaves it.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CLUSTER = "jz-a100"
Row = dict[str, Any]


def layouts(count: int) -> Iterator[Row]:
    rng = random.Random(0)
    for number in range(count):
        dp, tp, pp = rng.choice([1, 2, 4, 8, 16]), rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 4, 12])
        yield {
            "session": f"round-{number % 40}", "date": f"2026-05-{number % 28 + 1:02d}", "size_label": "bloom-176b",
            "layers": 70, "hidden": 14336, "heads": 112, "seq": 2048, "vocab": 250880, "nodes": -(-dp * tp * pp // 8), "dp": dp,
            "tp": tp, "pp": pp, "mbs": rng.choice([1, 2, 4]), "gbs": 2048, "zero_stage": rng.choice([0, 1]),
            "recompute": "full", "dtype": "bf16", "sec_per_it": round(rng.uniform(50, 200), 2), "time_unit": "s",
            "tflops": round(rng.uniform(50, 160), 1), "formula": "sc21", "mem_value": rng.uniform(20, 79), "mem_unit": "GiB",
        }  # fmt: skip


def trials(count: int) -> Iterator[Row]:
    """About three kilobytes each, as a trial of ours leaves them; one in twelve failed."""
    from seatrial import fields, presets

    model, cluster = fields.plain(presets.model("bloom-176b")), fields.plain(presets.cluster(CLUSTER))
    oom = {"status": "oom_device", "message": "rank 3 asked for 2.1 GiB and had 0.4"}
    for number, row in enumerate(layouts(count)):
        failed, sec = number % 12 == 0, row["sec_per_it"]
        laid = {"zero": row["zero_stage"], **{name: row[name] for name in ("dp", "tp", "pp", "mbs", "recompute")}}
        yield {
            **row, "run_id": f"run-{number:06d}", "machine": "node", "state": "failed" if failed else "measured",
            "outcome": oom if failed else {"status": "ok"},
            "trial": {"model": model, "batch": {"gbs": 2048}, "topology": laid, "cluster": cluster | {"nodes": row["nodes"]}},
            "iterations": [{"step": step, "sec": sec + step / 100, "loss": 9 - step / 10, "grad_norm": 1.5, "gbs": 2048,
                            "skipped": False} for step in range(1, 11)],
            "measurement": {"median_s": sec, "counted": 9, "spread_s": 0.4, "low_s": sec - 0.3, "high_s": sec + 0.3},
            "breakdown": {"forward": sec / 3, "backward": sec / 2}, "versions": {"seatrial": "0.1.0", "torch": "2.13.0"},
            "host": {"name": f"node{number % 48}", "cores": 64, "seconds": 900.0},
        }  # fmt: skip


def imported(count: int, machine: str) -> Iterator[Row]:
    """Rows of a table, with the texts of its cells."""
    shown = ("nodes", "dp", "tp", "pp", "mbs", "gbs", "zero_stage", "sec_per_it", "tflops")
    for number, row in enumerate(layouts(count)):
        yield {**row, "state": "measured", "machine": machine, "source_file": "notes.md", "source_line": number + 3,
               "printed": {name: str(row[name]) for name in shown}}


KINDS: dict[str, Callable[[int], Iterator[Row]]] = {
    "own trials, forecast": trials,
    "imported rows, forecast": lambda count: imported(count, CLUSTER),
    "imported rows, machine unknown": lambda count: imported(count, "elsewhere"),
}


def serve(path: Path, profile: bool) -> dict[str, float]:
    """In a process of its own."""
    from seatrial.logbook import Logbook
    from seatrial.report import serve
    from seatrial.report.source import Source

    source = Source(path, title="Many")
    server = serve.Server(("127.0.0.1", 0), source)
    work, source._work = source._work, lambda *given: None  # type: ignore[method-assign]
    body = profiled(lambda: serve._page(server, {})[1]) if profile else serve._page(server, {})[1]
    first = time.process_time()
    source._work, source._working, source._built_from = work, False, None  # type: ignore[method-assign]
    while True:
        source._next = 0.0
        source.current()
        if not source._working:
            break
        time.sleep(0.2)
    later = time.process_time()
    with Logbook(path) as book:
        book.append(next(iter(book.records())) | {"session": "added"})
    source._next = 0.0
    serve._page(server, {})
    again = time.process_time()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
    time.sleep(1)
    began = time.process_time()
    time.sleep(4)
    assert source.made is not None
    return {"first": first, "later": later - first, "again": again - later, "idle": (time.process_time() - began) / 4,
            "bytes": len(body), "forecasts": len(source.made.forecasts)}


def profiled(job: Callable[[], bytes]) -> bytes:
    import cProfile
    import pstats

    profile = cProfile.Profile()
    body = profile.runcall(job)
    pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(60)
    return body


def measure(kind: str, count: int, *profile: str) -> dict[str, float]:
    from seatrial.logbook import Logbook

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        path = Path(folder) / "book"
        with Logbook(path, create=True) as book:
            book.append_many(KINDS[kind](count))
            sum(1 for _ in book.records({"run_id": "none"}))
        answer = subprocess.run([sys.executable, "-m", "benchmarks.page", "--served", path, *profile], check=True,
                                stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    reader.add_argument("records", type=int, nargs="?", default=20_000)
    reader.add_argument("--profile", action="store_true", help="what the first page is made of, on stderr")
    reader.add_argument("--served", type=Path, help=argparse.SUPPRESS)
    args = reader.parse_args()
    if args.served:
        print(json.dumps(serve(args.served, args.profile)))
        return
    print(f"{args.records:,} records; CPU seconds")
    for kind in KINDS:
        found = measure(kind, args.records, *(["--profile"] if args.profile else []))
        print(f"{kind:30}  first {found['first']:.2f}  later {found['later']:.2f}  again {found['again']:.2f}  "
              f"idle {found['idle']:.1%}  {found['bytes'] / 1e6:.1f} MB, {found['forecasts']:,.0f} forecasts", flush=True)


if __name__ == "__main__":
    main()
