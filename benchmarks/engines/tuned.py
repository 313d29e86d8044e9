"""`seatrial tune` in half of the trials against a full sweep of the same file: the same best, or one that ties with it."""
from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tomli_w
from benchmarks.engines.each import Each
from benchmarks.engines.layouts import Row

from seatrial.logbook import Logbook
from seatrial.tune.tuner import NOISE


def tune(engine: Each, *, seed: int = 0) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="seatrial-tune-") as name:
        folder = Path(name)
        (folder / "sweep.toml").write_text(tomli_w.dumps({**engine.sweep, "engine": engine.name}))
        call(folder, "sweep", "sweep.toml", "--logbook", "swept")
        with Logbook(folder / "swept") as book:
            swept = {row["run_id"]: row.get("sec_per_it") for row in book.records()}
        timed = {key: seconds for key, seconds in swept.items() if seconds is not None}
        most = len(swept) // 2
        found = json.loads(call(folder, "tune", "sweep.toml", "--logbook", "tuned", "--trials", str(most), "--seed", str(seed),
                                "--json"))
        with Logbook(folder / "tuned") as book:
            tried = len(list(book.records()))
    best, chosen = min(timed, key=lambda key: timed[key]), found["best"]["run_id"]
    over = timed[chosen] / timed[best] - 1
    yield {"part": "tune", "engine": engine.name, "case": f"{tried} of {len(swept)} trials", "status": "ok",
           "good": over <= NOISE["cpu"] and tried <= most,
           "said": f"chosen {timed[chosen]:.3f} s/it in the sweep, its best {timed[best]:.3f}: {over:+.1%}"}


def call(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "seatrial", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"seatrial {' '.join(words)}: {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout
