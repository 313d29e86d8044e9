"""What the runner itself costs: 1,000 stub trials, and real ones against the bare start of their processes.

    python benchmarks/runner.py [--trials 1000] [--real 4] [--json]

A stub trial is a process that writes the events of a run and leaves (tests/stub_engine.py). The runner's time is what the sweep
took less what those processes lived, so preparing, starting, judging, recording and the fsync of the logbook all count. It is
also given as CPU time of the controller, which a busy machine does not stretch. Memory is the controller's after each tenth of
the trials. For real trials the overhead is the time from one trial's start to the next's, less the time its ranks lived.
"""
from __future__ import annotations

import argparse
import io
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from seatrial.launch.local import Local
from seatrial.logbook import Logbook
from seatrial.sweep.controller import Controller, View
from seatrial.sweep.file import build
from seatrial.sweep.progress import Lines
from seatrial.sweep.store import Store

STUB = Path(__file__).parent.parent / "tests" / "stub_engine.py"


class Watch(Lines):
    """Notes the controller's memory while it goes."""

    def __init__(self, every: int):
        super().__init__(io.StringIO())
        self.every, self.mib = every, []
        self.starts: list[float] = []

    def started(self, view: View, task: object) -> None:
        self.starts.append(time.monotonic())

    def finished(self, view: View, task: object, record: object) -> None:
        if len(view.rows) % self.every == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.mib.append(round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1))
        self.out.seek(0)
        self.out.truncate()


def swept(data: dict, every: int) -> tuple[float, float, list[dict], Watch]:
    """Wall seconds, CPU seconds of the controller, the records, and what was noted."""
    with tempfile.TemporaryDirectory() as folder, Logbook(Path(folder) / "book", create=True) as book:
        watch = Watch(every)
        controller = Controller(build(data), Store(book, "bench"), Local(), watch)
        began, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
        controller.run()
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
        return wall, after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime, list(book.records()), watch


def stubs(trials: int) -> dict[str, object]:
    argv = [sys.executable, "-I", "-S", str(STUB), "{run_dir}", "1", "ok"]
    data = {"model": "tiny", "batch": {"gbs": 8}, "repeats": trials, "command": {"argv": argv, "per": "node"}}
    wall, cpu, records, watch = swept(data, max(1, trials // 10))
    lived = sum(record["host"]["seconds"] for record in records)
    assert len(records) == trials and all(record["outcome"]["status"] == "ok" for record in records)
    return {"trials": trials, "wall_ms_a_trial": round(1e3 * wall / trials, 2),
            "runner_ms_a_trial": round(1e3 * (wall - lived) / trials, 2), "runner_cpu_ms_a_trial": round(1e3 * cpu / trials, 2),
            "memory_mib": watch.mib, "memory_growth_mib_after_first_tenth": round(watch.mib[-1] - watch.mib[0], 1)}  # fmt: skip


def real(trials: int) -> dict[str, object]:
    data = {"model": "tiny", "batch": {"gbs": 4}, "topology": {"dp": 2}, "repeats": trials,
            "training": {"device": "cpu", "threads": 1, "steps": 2}, "measure": {"known_to": 0}}
    wall, _, records, _ = swept(data, 1)
    lived = [record["host"]["seconds"] for record in records]
    statuses = sorted({record["outcome"]["status"] for record in records})
    return {"trials": trials, "overhead_s_a_trial": round((wall - sum(lived)) / trials, 4),
            "processes_lived_s": round(statistics.median(lived), 2), "statuses": statuses}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--real", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: dict[str, object] = {"load": os.getloadavg()[0], "stub": stubs(asked.trials)}
    if asked.real:
        found["real"] = real(asked.real)
    print(json.dumps(found, indent=None if asked.json else 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
