"""Bad input without end: mutated samples through the functions behind the commands, each within seconds and a GiB.

    python -m benchmarks.fuzz --n 1000000 --jobs 16             all that is not done yet of these seeds, on 16 cores
    python -m benchmarks.fuzz --from 4711 --to 4712             one case again, shrunk and printed
    python -m benchmarks.fuzz --sum                             what the file of results adds up to

A case is its seed and nothing else. Results go to a file of JSON lines, one for each thousand seeds, and a range that stands
there is not run again; after a change of the code name another file with --out. Exit status 1 where anything failed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import fuzzing

CHUNK = 1000
MORE_BYTES = 1 << 30
"""Beyond what a worker has when it starts."""
WAITS_S = 60.0
"""Of the clock, for a case that does not even compute: its own limit is of the processor's time."""
SHOWN = 3
"""Cases of one cause that are shrunk and kept."""


def worker(first: int, last: int, folder: Path, at: mmap.mmap) -> dict[str, Any]:
    """In a process of its own: the seeds from `first`, with where it stands, and since when, in `at`."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_BYTES, used + MORE_BYTES))
    cases: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    slowest = 0.0
    for seed in range(first, last):
        at[:] = struct.pack("qd", seed, time.monotonic())
        one = fuzzing.case(seed)
        began = time.process_time()
        found = fuzzing.failure(one, folder)
        slowest = max(slowest, time.process_time() - began)
        cases[one.target] += 1
        if found is not None:
            causes[found.what] += 1
            if causes[found.what] <= SHOWN:
                small = fuzzing.shrunk(one, folder)
                data = small.data.decode("utf-8", "backslashreplace")[:2000]
                failures.append({"seed": seed, "target": one.target, "what": found.what, "trace": found.trace[-1500:],
                                 "data": data})  # fmt: skip
    return {"cases": dict(cases), "causes": dict(causes), "failures": failures, "slowest_s": round(slowest, 2)}


def run(first: int, last: int) -> dict[str, Any]:
    """A range in processes of their own; one that dies is a failure of the case it stood at, and the rest is run without it."""
    at = mmap.mmap(-1, struct.calcsize("qd"))
    cases, causes = Counter[str](), Counter[str]()
    whole: dict[str, Any] = {"from": first, "to": last, "failures": [], "slowest_s": 0.0}
    began = time.monotonic()
    ranges = [(first, last)]
    while ranges:
        first, last = ranges.pop()
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
            os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
            answer = Path(name) / "answer.json"
            at[:] = struct.pack("qd", first, time.monotonic())
            child = os.fork()
            if child == 0:
                try:
                    answer.write_text(json.dumps(worker(first, last, Path(name), at)))
                    os._exit(0)
                except BaseException as error:
                    print(f"worker: {error!r}", file=sys.stderr)
                    os._exit(1)
            status = ended(child, at)
            if status == 0:
                part = json.loads(answer.read_text())
            else:
                seed = struct.unpack("qd", at[:])[0]
                died = {"seed": seed, "target": fuzzing.case(seed).target, "what": f"died with {status}"}
                part = {"cases": {died["target"]: 1}, "causes": {"died": 1}, "slowest_s": 0.0, "failures": [died]}
                ranges += [some for some in ((seed + 1, last), (first, seed)) if some[0] < some[1]]
        cases.update(part["cases"])
        causes.update(part["causes"])
        whole["failures"] += part["failures"]
        whole["slowest_s"] = max(whole["slowest_s"], part["slowest_s"])
    return {**whole, "cases": dict(cases), "causes": dict(causes), "seconds": round(time.monotonic() - began, 1)}


def ended(child: int, at: mmap.mmap) -> int:
    """Its exit status. One that stands at a case for a minute waits for something: it is killed."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() - struct.unpack("qd", at[:])[1] > WAITS_S:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)


def job(chunks: list[tuple[int, int]], out: Path, until: float) -> None:
    """One after the other; each adds a line to the file of results as it ends."""
    for first, last in chunks:
        if time.monotonic() > until:
            return
        found = run(first, last)
        for one in found["failures"]:
            show(one)
        with out.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(found) + "\n")


def jobs(count: int, chunks: list[tuple[int, int]], out: Path, until: float) -> None:
    """`count` processes side by side, each with every count-th chunk."""
    children = []
    for first in range(min(count, len(chunks))):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                job(chunks[first::count], out, until)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    broken = [child for child in children if os.waitpid(child, 0)[1]]
    if broken:
        raise SystemExit(f"{len(broken)} of {len(children)} jobs broke off: the same command goes on where they stood")


def summed(path: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    cases, causes = Counter[str](), Counter[str]()
    for line in lines:
        cases.update(line["cases"])
        causes.update(line["causes"])
    seconds = sum(line["seconds"] for line in lines)
    return {"cases": cases.total(), "failures": causes.total(), "causes": dict(causes.most_common()), "by_target": dict(cases),
            "slowest_s": max((line["slowest_s"] for line in lines), default=0.0), "seconds": round(seconds, 1),
            "cases_per_s": round(cases.total() / seconds, 1) if seconds else None}  # fmt: skip


def show(found: dict[str, Any]) -> None:
    said = f"--- seed {found['seed']}, {found['target']}: {found['what']}\n{found.get('trace', '')}"
    sys.stderr.write(f"{said}\n{found.get('data', '')!r}\n\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000, help="cases")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--from", dest="first", type=int)
    parser.add_argument("--to", dest="last", type=int)
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--out", type=Path, default=Path("fuzz.jsonl"), help="results, added to")
    parser.add_argument("--seconds", type=float, help="stop after this long")
    parser.add_argument("--sum", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if not asked.sum:
        first = asked.first if asked.first is not None else asked.seed
        last = asked.last if asked.last is not None else first + asked.n
        until = time.monotonic() + (asked.seconds or 1e9)
        fuzzing.warm()
        if last - first < CHUNK:
            found = run(first, last)
            for one in found["failures"]:
                show(one)
            print(f"{last - first} cases, {len(found['failures']) or 'none'} failed")
            return 1 if found["failures"] else 0
        lines = asked.out.read_text().splitlines() if asked.out.exists() else []
        done = {(line["from"], line["to"]) for line in map(json.loads, lines)}
        chunks = [(start, min(last, start + CHUNK)) for start in range(first, last, CHUNK)]
        jobs(max(1, asked.jobs), [chunk for chunk in chunks if chunk not in done], asked.out, until)
    total = summed(asked.out)
    print(json.dumps(total))
    return 1 if total["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
