"""A disk that is slow, or stands still: a save that moves is waited for, by the watch and by a launcher that was asked to stop.

    pytest tests/dist/test_slow_disk.py

The disk's stand-in is a checksum that takes its time: one is made of every piece that is written. All runs are started at once:
most of what they do is load torch, and wait.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.engine.io import checkpoint
from seatrial.engine.watch import heartbeat

SLOW = """
import os, time, zlib
if "RANK" in os.environ and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
    plain, pieces = zlib.crc32, []
    def crc32(data, value=0):
        pieces.append(1)
        time.sleep(600 if len(pieces) == int(os.environ["STANDS_AT"]) else float(os.environ["PIECE_S"]))
        return plain(data, value)
    zlib.crc32 = crc32
"""
TOML = """
model = { base = "tiny", layers = 2, vocab = 257 }
batch = { gbs = 2 }
[recipe]
stall_s = 2
"""
RUNS = {
    "leaves": (0, 0.035, "recipe.steps=5", "recipe.stop_s=2"),
    "stuck": (3, 0.035, "recipe.steps=5", "recipe.stop_s=2"),
    "slow": (0, 0.1, "topology.dp=2", "topology.zero=1", "recipe.steps=2", "recipe.save_every=1", "recipe.save_s=3"),
    "stands": (3, 0.035, "recipe.steps=100000", "recipe.save_every=10", "recipe.save_s=3"),
}  # fmt: skip
"""The piece of a save at which the disk stands still (0: at none), seconds of any other, and the run's settings."""


def start(folder: Path, stands_at: int, piece_s: float, *settings: str) -> subprocess.Popen[str]:
    folder.mkdir()
    (folder / "run.toml").write_text(TOML)
    (folder / "sitecustomize.py").write_text(SLOW)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    argv = [sys.executable, "-m", "seatrial", "train", folder / "run.toml", "--out", folder / "out", "--json"]
    argv += [word for setting in settings for word in ("--set", setting)]
    return subprocess.Popen([*map(str, argv)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": path, "STANDS_AT": str(stands_at), "PIECE_S": str(piece_s),
                                 "OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slow")


@pytest.fixture(scope="module")
def runs(folder: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    started = {name: start(folder / name, *settings) for name, settings in RUNS.items()}
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> tuple[int, dict]:
    out, err = process.communicate(timeout=150)
    return process.returncode, json.loads(out or "{}") or pytest.fail(err)


@pytest.fixture(scope="module")
def asked(runs, folder: Path) -> float:
    """When the two that are to stop were asked, each as it saved. First of all here: a save does not wait for us."""
    waiting, until = ["leaves", "stuck"], time.monotonic() + 100
    while waiting:
        for name in list(waiting):
            assert time.monotonic() < until and runs[name].poll() is None
            if any(b.work == "save" and b.done > 0 for b in heartbeat.read(folder / name / "out")):
                runs[name].send_signal(signal.SIGTERM)
                waiting.remove(name)
        time.sleep(0.02)
    return time.monotonic()


def test_a_stop_waits_for_a_save_as_long_as_it_moves(runs, asked):
    """It was at its end when it was asked."""
    status, found = end(runs["leaves"])
    assert (status, found["status"], found["checkpoints"]) == (0, "ok", [5]), found
    assert time.monotonic() - asked > 2.0


def test_a_stop_does_not_wait_for_a_save_that_stands_still(runs, asked):
    status, found = end(runs["stuck"])
    assert (status, found["status"], found["checkpoints"]) == (3, "cancelled", [])
    assert found["message"].startswith("asked to stop; nothing was saved: the save of rank 0 stood at ")


def test_a_save_that_takes_longer_than_a_stall_is_waited_for(runs, folder):
    """In the middle, where the next one waits for it, and at the end; by the other rank too."""
    status, found = end(runs["slow"])
    assert (status, found["status"], found["checkpoints"]) == (0, "ok", [1, 2]), found
    kept = checkpoint.latest(folder / "slow" / "out" / "checkpoints")
    assert kept.step == 2 and len(kept.files["__1_0.distcp"]) * RUNS["slow"][1] > 2.0


def test_a_save_that_stands_still_is_a_hang_of_the_save(runs):
    """Beside training, which goes on."""
    status, found = end(runs["stands"])
    assert (status, found["status"], found["rank"], found["phase"], found["checkpoints"]) == (3, "hang", 0, "save", [])
    assert "its save stood still at " in found["message"] and " MiB for 3 s (recipe.save_s)" in found["message"]
