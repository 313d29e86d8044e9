"""`seatrial demo`: whose folders it fills, and what it says of a step that fails; tests/dist/test_wheel.py runs it whole."""
from __future__ import annotations

import json
from dataclasses import replace

from seatrial.commands import demo


def steps(monkeypatch, *typed: str) -> None:
    monkeypatch.setattr(demo, "STEPS", tuple(demo.Step(says="try", typed=line) for line in typed))


def test_a_folder_with_files_of_others_is_not_touched(seatrial, tmp_path, monkeypatch):
    steps(monkeypatch, "presets")
    (tmp_path / "mine.txt").write_text("mine")
    said = seatrial("demo", "-o", tmp_path)
    assert said.status == 2 and "no demo made" in said.err and (tmp_path / "mine.txt").read_text() == "mine"
    assert seatrial("demo", "-o", tmp_path / "mine.txt").status == 2


def test_its_own_folder_is_filled_anew_and_the_commands_run_in_it(seatrial, tmp_path, monkeypatch):
    steps(monkeypatch, "table rows.csv --format csv")
    out = tmp_path / "out"
    assert seatrial("demo", "-o", out).status == 0
    (out / "old").touch()
    assert seatrial("demo", "-o", out).status == 0
    assert sorted(path.name for path in out.iterdir()) == [demo.MARK, "first-sweep.toml", "rows.csv"]


def test_a_step_that_fails_ends_the_demo_with_its_command(seatrial, tmp_path, monkeypatch):
    steps(monkeypatch, "presets", "table nowhere", "presets")
    said = seatrial("demo", "-o", tmp_path / "out", "--json")
    document = json.loads(said.out)
    assert said.status == 3 and [step["status"] for step in document["steps"]] == [0, 2] and document["pages"] == []
    assert "`seatrial table nowhere` ended with status 2" in said.err


def test_the_output_of_a_step_can_go_into_a_file(seatrial, tmp_path, monkeypatch):
    step = demo.Step(says="try", typed="presets", into="presets.txt", picks="bloom")
    monkeypatch.setattr(demo, "STEPS", (step, replace(step, picks="")))
    said = seatrial("demo", "-o", tmp_path / "out")
    lines = (tmp_path / "out" / "presets.txt").read_text().splitlines()
    assert f"({len(lines)} lines in " in said.out and len(lines) > 10
    assert 0 < sum("bloom" in line for line in said.out.splitlines()) <= 2 * demo.SHOWN


def test_what_the_demo_types_are_commands_with_files_that_are_shipped():
    from seatrial import cli, shipped

    names = {command.name for command in cli.build_app().registered_commands}
    assert {step.typed.split()[0] for step in demo.STEPS} <= names
    assert set(demo.FILES) <= set(shipped.examples())
