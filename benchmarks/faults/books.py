"""Sweeps whose controller is killed, and logbooks whose bytes are damaged: every trial is in the book once at the end.

    swept(case, folder)         {"lost": 0, "doubled": 0, …}

The trials are small commands that print what a training prints; the controller and the logbook are the real ones.
"""
from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tomli_w
from benchmarks.faults.draw import Case

from seatrial.logbook import Logbook

ROWS = 5
TRIAL = """
import sys, time
for step in range(1, 4):
    time.sleep(0.05)
    print(f" iteration {step:8d}/       3 | consumed samples: {step * 8:12d} |"
          f" elapsed time per iteration (ms): {250.0 + step:.1f} | global batch size: {sys.argv[1]:>5} |"
          f" lm loss: {9.0 - step:.6E} | grad norm: 1.000 |", flush=True)
"""


def swept(case: Case, folder: Path) -> dict[str, Any]:
    from benchmarks.faults.run import orphans

    book = folder / "book"
    (folder / "trial.py").write_text(TRIAL)
    rows = [{"name": f"row {n}", "recipe": {"seed": n}} for n in range(ROWS)]
    command = {"argv": [sys.executable, "-I", "-S", str(folder / "trial.py"), "{gbs}"], "per": "node"}
    words = {"model": "tiny", "batch": {"gbs": 8}, "command": command, "axes": {"case": rows}, "measure": {"known_to": 0}}
    (folder / "rows.toml").write_text(tomli_w.dumps(words))
    why, struck = "", True
    controller = start(folder)
    if case.kind == "sweep_kill":
        while controller.poll() is None and not (book / "runs" / "rows" / "lock").exists():
            time.sleep(0.005)
        time.sleep(case.delay_s)
        struck = controller.poll() is None
        controller.send_signal(signal.SIGKILL)
        controller.communicate()
    else:
        why = ended(controller)
        before = held(book)
        harmed = hurt(case, book)
        left, problems = held(book), len(Logbook(book).problems())
        if len(left) != len(before) - 1 or not problems:
            why = why or f"{harmed}: {len(left)} of {len(before)} rows are read, {problems} problems are told"
    gone = orphans(folder, patience_s=3.0)
    why = why or ended(start(folder, "--resume"))
    found = held(book) if (book / "segments").exists() else []
    statuses = [row["outcome"]["status"] if row.get("outcome") else "ok" for row in found]
    unique = {row["record_id"] for row in found}
    return {"void": not struck, "status": ",".join(sorted(set(statuses))), "named": None, "message": why[:300],
            "outcome_right": not why and set(statuses) == {"ok"}, "culprit_right": None, "verdict_s": None,
            "lost": ROWS - len(unique), "doubled": len(found) - len(unique) + max(0, len(unique) - ROWS),
            "orphans": gone + orphans(folder), "resumed": not why and len(unique) == ROWS, "why": why}  # fmt: skip


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    argv = ["-m", "seatrial", "sweep", str(folder / "rows.toml"), "--logbook", str(folder / "book"), "--json", *more]
    return subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(controller: subprocess.Popen[str]) -> str:
    """What is wrong with how it ended; empty when nothing is."""
    out, err = controller.communicate(timeout=120)
    if controller.returncode != 0:
        return f"the sweep ended with {controller.returncode}: {err[-200:]}"
    return "" if json.loads(out) else "the sweep says nothing"


def held(book: Path) -> list[dict[str, Any]]:
    with Logbook(book) as found:
        return list(found.records())


def hurt(case: Case, book: Path) -> str:
    """The last line is cut off, as by a full disk; or a bit of some line is flipped."""
    path = max((book / "segments").glob("*.jsonl"), key=lambda p: p.stat().st_mtime)
    data = bytearray(path.read_bytes())
    starts = [0, *(n + 1 for n, byte in enumerate(data[:-1]) if byte == 10)]
    rng = random.Random(f"book {case.seed} {case.index}")
    if case.kind == "book_torn":
        at = rng.randrange(starts[-1] + 1, len(data) - 1)
        path.write_bytes(data[:at])
        return f"{path.name} ends at byte {at} of {len(data)}"
    line = rng.randrange(len(starts))
    end = (starts[line + 1] if line + 1 < len(starts) else len(data)) - 1
    at = rng.randrange(starts[line], end)
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"byte {at} of {path.name} is {data[at]:#x}"
