"""A disk that is slow, or stands still: a save that moves is waited for, by the watch and by a launcher that was asked to stop.

    pytest tests/dist/test_slow_disk.py

The disk's stand-in is a checksum that takes its time: one is made of every piece that is written.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.engine.io import checkpoint
from seatrial.engine.watch import heartbeat

SLOW = """
import os, time, zlib
if os.environ.get("RANK") == "1":
    plain, pieces = zlib.crc32, []
    def crc32(data, value=0):
        pieces.append(1)
        time.sleep(600 if len(pieces) == int(os.environ["STANDS_AT"]) else 0.15)
        return plain(data, value)
    zlib.crc32 = crc32
"""
TOML = """
model = { base = "tiny", layers = 2, vocab = 257 }
topology = { dp = 2, zero = 1 }
batch = { gbs = 2 }
[recipe]
stall_s = 2
"""


def start(folder: Path, *settings: str, stands_at: int = 0) -> subprocess.Popen[str]:
    (folder / "run.toml").write_text(TOML)
    (folder / "sitecustomize.py").write_text(SLOW)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    argv = [sys.executable, "-m", "seatrial", "train", folder / "run.toml", "--out", folder / "out", "--json"]
    argv += [word for setting in settings for word in ("--set", f"recipe.{setting}")]
    return subprocess.Popen([*map(str, argv)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": path, "STANDS_AT": str(stands_at), "OMP_NUM_THREADS": "1"})


def end(process: subprocess.Popen[str]) -> tuple[int, dict]:
    out, err = process.communicate(timeout=150)
    return process.returncode, json.loads(out or "{}") or pytest.fail(err)


def writes(folder: Path) -> bool:
    return any(b.work == "save" and b.done > 0 for b in heartbeat.read(folder / "out", [1]))


def test_a_save_that_takes_longer_than_a_stall_is_waited_for(tmp_path):
    """In the middle, where the next one waits for it, and at the end."""
    began = time.monotonic()
    status, found = end(start(tmp_path, "steps=2", "save_every=1", "save_s=3"))
    assert (status, found["status"], found["checkpoints"]) == (0, "ok", [1, 2]), found
    assert time.monotonic() - began > 6.0
    assert checkpoint.latest(tmp_path / "out" / "checkpoints").step == 2


def test_a_save_that_stands_still_is_a_hang_of_the_save(tmp_path):
    """Beside training, which goes on."""
    status, found = end(start(tmp_path, "steps=100000", "save_every=10", "save_s=3", stands_at=3))
    assert (status, found["status"], found["rank"], found["phase"], found["checkpoints"]) == (3, "hang", 1, "save", [])
    assert "its save stood still at " in found["message"] and " of 2.4 MiB for 3 s (recipe.save_s)" in found["message"]


@pytest.mark.parametrize("stands_at", [0, 3])
def test_a_stop_waits_for_a_save_as_long_as_it_moves(tmp_path, stands_at):
    process = start(tmp_path, "steps=5", "stop_s=2", stands_at=stands_at)
    until = time.monotonic() + 100
    while not writes(tmp_path):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    status, found = end(process)
    if not stands_at:
        # It was at its end when it was asked.
        assert (status, found["status"], found["checkpoints"]) == (0, "ok", [5]), found
        return
    assert (status, found["status"], found["checkpoints"]) == (3, "cancelled", [])
    assert found["message"].startswith("asked to stop; nothing was saved: the save of rank 1 stood at ")
