"""Logs of twelve engines, written from their code with hand-read values beside them: every value is read right."""
from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from seatrial.notes.read import import_file
from seatrial.notes.read.logformat import shipped
from seatrial.notes.read.logs import unprefixed
from seatrial.record import Record

LOGS = Path(__file__).parents[1] / "data" / "logs"
SAMPLES = sorted(path for path in LOGS.glob("*") if path.suffix not in (".md",) and not path.name.endswith(".expected.json"))
SERIES = {"sec_per_it": "sec", "mem_gib": "mem_gib"}
AXES = {"cp": "CP", "ep": "EP", "etp": "ETP"}


def expected(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path.parent / f"{path.name.removesuffix(path.suffix)}.expected.json").read_text())
    return found


def runs(path: Path) -> list[Record]:
    return list(import_file(path).records)


def close(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, float | int) and not isinstance(wanted, bool):
        return isinstance(value, int | float) and math.isclose(value, wanted, rel_tol=1e-6)
    return bool(value == wanted)


def differing(record: Record, run: dict[str, Any]) -> list[str]:
    """What a record says otherwise than a careful reader."""
    wrong = []

    def ask(name: str, value: Any, wanted: Any) -> None:
        if not close(value, wanted):
            wrong.append(f"{name}: {value!r}, expected {wanted!r}")

    ask("status", record.outcome.status if record.outcome else "ok", run["status"])
    for name, wanted in {**run["layout"], **run["model"]}.items():
        ask(name, int(record.extra.get(AXES[name], 1)) if name in AXES else getattr(record, name), wanted)
    for name, wanted in run["figures"].items():
        ask(name, getattr(record, name), wanted)
    for name, wanted in run.get("per", {}).items():
        ask(f"{name}_per", getattr(record, f"{name}_per"), wanted)
    if run["steps"] > 1:
        ask("steps", len(record.iterations), run["steps"])
        ask("iterations", [step.get("step") for step in record.iterations], run["iterations"])
        for name, series in run["series"].items():
            read = [step.get(SERIES.get(name, name)) for step in record.iterations]
            for index, (value, wanted) in enumerate(zip(read, series)):
                if wanted not in (None, "nan"):
                    ask(f"{name}[{index}]", value, wanted)
    return wrong


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_every_value_of_a_sample_is_read(path: Path):
    wanted, found = expected(path)["runs"], runs(path)
    assert len(found) == len(wanted)
    assert not [line for record, run in zip(found, wanted) for line in differing(record, run)]


@pytest.mark.parametrize("path", [path for path in SAMPLES if path.suffix == ".log"], ids=lambda path: path.name)
def test_no_two_formats_claim_a_line(path: Path):
    for line in path.read_text(errors="replace").splitlines():
        text = unprefixed(line)[1]
        claims = {format.name for format in shipped() for one in format.steps if one.match(text)}
        assert len(claims) <= 1, line[:120]


def test_there_are_sixty_samples_of_twelve_engines():
    engines = {expected(path)["engine"] for path in SAMPLES} - {""}
    assert len(SAMPLES) >= 60 and len(engines) >= 12


def test_lint_finds_no_error_in_what_programs_print():
    """Their figures belong together: what would be said of them is said of every run of theirs."""
    from seatrial.notes.lint import look_at

    found = look_at([str(path) for path in SAMPLES])[0]
    assert not [finding for finding in found if finding.level == "error"]
