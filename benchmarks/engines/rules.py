"""Random layouts, legal and illegal: what our rules say against what the engine's own validation says of what we would emit.

The engine's side is `validate/NAME.py`, run once by the engine's own Python with a folder: in it a folder for each trial, with
the files that the adapter writes and `asked.json` (the trial, its processes, its argv). It prints a JSON line for each,
`{"trial": 3, "refused": "AssertionError: …"}`, with nothing refused where it would train.
"""
from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.engines.each import Each, label
from benchmarks.engines.layouts import Row

from seatrial import trialfile
from seatrial.columns import by_field, flat
from seatrial.engines import engine_for
from seatrial.errors import BadInput, Infeasible

SILENT = "engine-silent"
"""Code of what an engine takes without a word and does not do: refused by us alone, and rightly so."""


def rules(engine: Each, *, count: int = 200, seed: int = 7) -> Iterator[Row]:
    rng, ours, said = random.Random(seed), [], []
    with tempfile.TemporaryDirectory(prefix="seatrial-rules-") as name:
        for number in range(count):
            data = engine.draw(rng)
            trial, recipe = trialfile.build({**data, "engine": engine.name})
            adapter = engine_for(trial)
            folder = Path(name) / str(number)
            folder.mkdir()
            try:
                adapter.check(trial, recipe, here=False)
                ours.append(("", ""))
            except Infeasible as error:
                ours.append((error.code, str(error)))
            except BadInput as error:
                ours.append(("bad-input", str(error)))
            for file, text in adapter.files(trial, recipe).items():
                (folder / file).write_text(text)
            asked = {"world": trial.world, "trial": flat(trial), "data": data, "fields": by_field(trial),
                     "argv": adapter.by_hand(trial, recipe), "speaks": adapter.speaks(trial)}
            (folder / "asked.json").write_text(json.dumps(asked, default=str))
            said.append(label({**data["topology"], **data["batch"], **data["model"]}))
        theirs = validated(engine, Path(name))
    for number, (code, why) in enumerate(ours):
        refused = theirs[number]
        agrees = bool(why) == bool(refused) or code == SILENT and not refused
        status = "both refuse" if why and refused else "silent" if why and agrees else "ours refuses" if why else \
            "theirs refuses" if refused else "both take"
        yield {"part": "rules", "engine": engine.name, "case": said[number], "status": status, "good": agrees,
               "said": f"ours: {why or 'takes it'} | theirs: {refused or 'takes it'}"}


def validated(engine: Each, folder: Path) -> dict[int, str]:
    """Number of the trial -> why the engine refuses it."""
    argv = [engine.python, "-P", str(engine.validation), str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith('{"trial"'):
            row = json.loads(line)
            found[row["trial"]] = row["refused"]
    if done.returncode or len(found) < sum(1 for _ in folder.iterdir()):
        raise SystemExit(f"{engine.validation.name} judged {len(found)} trials and ended with {done.returncode}:\n"
                         f"{done.stderr[-2000:]}")
    return found
