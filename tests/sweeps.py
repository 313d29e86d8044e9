"""What the tests of sweeps share: files of stub trials, controllers as processes, logbooks compared apart from times."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STUB = Path(__file__).with_name("stub_engine.py")


def stub(fate: str, *, scale: str = "{tp}") -> dict[str, Any]:
    """[command] of a trial that the stub engine pretends to run."""
    return {"argv": [sys.executable, "-I", "-S", str(STUB), "{run_dir}", scale, fate], "per": "node"}


def write(path: Path, data: dict[str, Any]) -> Path:
    import tomli_w

    path.write_text(tomli_w.dumps(data))
    return path


def start(file: Path, logbook: Path, *more: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "seatrial", "sweep", str(file), "--logbook", str(logbook), "--json", *more]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})})


def run(file: Path, logbook: Path, *more: str, timeout_s: float = 280.0, env: dict[str, str] | None = None) -> dict[str, Any]:
    controller = start(file, logbook, *more, env=env)
    out, err = controller.communicate(timeout=timeout_s)
    assert controller.returncode == 0, err
    return json.loads(out)


def kill_at(file: Path, logbook: Path, after_s: float) -> bool:
    """Kills a controller that long after it holds the lock; False when it had ended by then."""
    controller = start(file, logbook, "--resume")
    lock = logbook / "runs" / file.stem / "lock"
    while controller.poll() is None and not _holds(controller.pid, lock):
        time.sleep(0.002)
    time.sleep(after_s)
    ended = controller.poll() is not None
    controller.send_signal(signal.SIGKILL)
    controller.communicate()
    return not ended


def _holds(pid: int, lock: Path) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        return any(os.readlink(f"{folder}/{fd}") == str(lock) for fd in os.listdir(folder))
    except OSError:
        return False


def left_running(folder: Path, patience_s: float = 60.0) -> list[int]:
    """Processes of trials under this folder that are still there after a while; ending them takes a crowded machine longer."""
    mark = f"SEATRIAL_RUN_DIR={folder}".encode()
    until = time.monotonic() + patience_s
    while True:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


TIMES = ("host", "written_at", "date", "versions")
"""Versions too: somebody may commit to this checkout between two sweeps of one test."""


def rows(logbook: Path, *, without: tuple[str, ...] = TIMES) -> dict[str, dict[str, Any]]:
    """Record id -> what holds, apart from times."""
    from seatrial.logbook import Logbook

    with Logbook(logbook) as book:
        assert book.problems() == []
        return {r["record_id"]: {k: v for k, v in r.items() if k not in without} for r in book.records()}


def lines(logbook: Path) -> list[dict[str, Any]]:
    """Every line ever written, corrections too."""
    return [json.loads(line) for path in (logbook / "segments").glob("*.jsonl") for line in path.read_text().splitlines()]
