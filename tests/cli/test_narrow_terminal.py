"""On a terminal of 80 columns no line of a command for people is wider, and none is cut: words go on below, a table says which
of its columns have no room. In a pipe lines stay whole (`test_docs_commands.py`)."""
from __future__ import annotations

import shlex
import sys
import unicodedata
from pathlib import Path

import pytest

from seatrial.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
BLOOM = "--model bloom-176b --cluster jz-a100 --gbs 2048"
COMMANDS = {
    "": "Where to start", "plan --help": "--headroom", "presets": "dgx-h100", f"plan {BLOOM} --model nobodys": "known are",
    "shape --model bloom-176b --cluster jz-a100": "No room for", "forecast rows.csv --cluster jz-a100": "No room for",
    "forecast --defaults": "recompute", "calibrate rows.csv --cluster jz-a100": "not believed", "lint rows.csv": "ms-not-s",
    "import rows.csv --logbook book": "0 are new", "table book --top 5": "--wide has every one",
    "compare --logbook book --a tp=1 --b tp=2": "tp=1", "report book -o page.html": "180 records",
    f"plan {BLOOM} --zero 1 --top 3": "Not searched",
    "plan --model llama3-8b --cluster dgx-h100 --nodes 32 --gbs 1024 --engine megatron-core --tp 2 --top 3": "No room for",
    f"plan {BLOOM} --dp 7": "letting go",
    f"explain {BLOOM} --dp 8 --tp 4 --pp 12 --mbs 2 --zero 1 --recompute full": "What to change",
    "sweep first-sweep.toml --dry-run": "invalid: 16 heads", "doctor --no-train": "launchers",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("narrow")
    for name in ("rows.csv", "first-sweep.toml"):
        (made / name).write_bytes((EXAMPLES / name).read_bytes())
    assert main(["import", str(made / "rows.csv"), "--logbook", str(made / "book")]) == 0
    return made


def cells(line: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in line if not unicodedata.combining(letter))


@pytest.mark.parametrize("command", COMMANDS)
def test_eighty_columns_are_enough(seatrial, folder, monkeypatch, command):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    said = seatrial(*shlex.split(command))
    lines = (said.out + said.err).splitlines()
    assert COMMANDS[command] in " ".join(" ".join(lines).split())
    assert not [line for line in lines if cells(line) > 80]
