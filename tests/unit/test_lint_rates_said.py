"""Rates by the minute, the hour and the day, of one device or one node, and the time of one token: read, doubted, put right."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.cli import main
from seatrial.notes.read import import_file

HEAD = """# Runs

7B model, 32 layers, hidden 4096, 32 heads, vocab 32000, sequence 4096.

| nodes | GPUs | GBS | step time (s) | {said} |
|---|---|---|---|---|
"""
ROWS = ((8, 64, 256, 4.11), (8, 64, 512, 8.05), (16, 128, 512, 4.17), (16, 128, 1024, 8.31), (32, 256, 1024, 4.33),
        (32, 256, 2048, 8.44))  # fmt: skip
Said = Callable[[int, int, float], str]
"""Devices, samples and seconds of a step -> what is printed."""
SAID: dict[str, Said] = {
    "tokens/min": lambda g, b, t: f"{b * 4096 / t * 60:.0f}",
    "tokens / day (B)": lambda g, b, t: f"{b * 4096 / t * 86.4e-6:.1f}",
    "Mtok/min": lambda g, b, t: f"{b * 4096 / t * 60e-6:.2f}",
    "ms/token (train)": lambda g, b, t: f"{1e3 * t / b / 4096:.5f}",
    "µs per token": lambda g, b, t: f"{1e6 * t / b / 4096:.3f}",
    "s/sample": lambda g, b, t: f"{t / b:.5f}",
    "sec per training sample": lambda g, b, t: f"{t / b:.5f}",
    "samples/s/GPU": lambda g, b, t: f"{b / t / g:.3f}",
    "throughput/device/samples_per_sec": lambda g, b, t: f"{b / t / g:.3f}",
    "tok/GPU/h": lambda g, b, t: f"{b * 4096 / t * 3600 / g:.0f}",
    "tokens per GPU per day (M)": lambda g, b, t: f"{b * 4096 / t * 86.4e-3 / g:.1f}",
    "k tok/s per node": lambda g, b, t: f"{b * 4096e-3 / t / g * 8:.1f}",
    "samples/min": lambda g, b, t: f"{b / t * 60:.0f}",
}


def note(said: str, slip: int | None = None) -> tuple[str, str, str]:
    """A note, the figure that stands in its fourth row where that has a slip, and the right one."""
    lines, typed, right = [], "", ""
    for at, (nodes, gpus, batch, seconds) in enumerate(ROWS):
        shown = right_here = SAID[said](gpus, batch, seconds)
        if at == slip:
            digits = [place for place, sign in enumerate(shown) if sign.isdigit() and shown[: place + 1].strip("0.")]
            shown = f"{shown[: digits[0]]}{int(shown[digits[0]]) % 9 + 1}{shown[digits[0] + 1 :]}"
            typed, right = shown, right_here
        lines.append(f"| {nodes} | {gpus} | {batch} | {seconds} | {shown} |")
    return HEAD.format(said=said) + "\n".join(lines) + "\n", typed, right


def findings(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    path = tmp_path / "note.md"
    path.write_text(text)
    main(["lint", "--json", "--level", "warning", str(path)])
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out or "[]")
    return found


@pytest.mark.parametrize("said", SAID)
def test_a_rate_in_any_unit_is_held_against_the_step(said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(note(said)[0], tmp_path, capsys) == []
    text, typed, right = note(said, slip=3)
    found = findings(text, tmp_path, capsys)
    assert [one["printed"] for one in found] == [typed]
    assert float(found[0]["proposed"]) == pytest.approx(float(right), rel=2e-3)


@pytest.mark.parametrize("said", SAID)
def test_a_rate_in_any_unit_is_a_record_s(said: str, tmp_path: Path) -> None:
    path = tmp_path / "note.md"
    path.write_text(note(said)[0])
    record = import_file(path).records[3]
    rate = record.samples_per_s or (record.tokens_per_s or (record.tokens_per_s_per_process or 0) * 128) / 4096
    assert rate == pytest.approx(1024 / 8.31, rel=2e-3)
