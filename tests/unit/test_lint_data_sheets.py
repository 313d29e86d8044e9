"""What everybody knows: peaks and memory of devices that a note names, and the numbers of the formulas of FLOPs."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

NOTE = "Llama 7B on {}, sequences of 4096.\n\n" + table("""
    run  GPUs  batch  s/step  tokens/s/GPU  TFLOPS/GPU  MFU
    b1  64  256  7.27  2254  91.2  29.2 %
    b2  128  512  7.42  2208  89.3  28.6 %
    b3  256  1024  7.63  2147  86.8  27.8 %
    b4  512  2048  7.98  2053  83.0  26.6 %
""") + "\n"


def _found(folder: Path, text: str, devices: str = "A100-80GB") -> list[Finding]:
    note = folder / "note.md"
    note.write_text(NOTE.format(devices) + text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("MFU is against {} TFLOP/s.", "312", "132"),
    ("The dense bf16 peak is {} TFLOP/s.", "312", "3120"),
    ("Spitze {} TFLOP/s dicht.", "312", "31.2"),
    ("MFU uses 6N over {} TFLOP/s.", "312", "624"),
    ("One A100 does {} TFLOP/s at most.", "312", "321"),
    ("A node has 8x A100 ({} GB each).", "80", "800"),
    ("FLOPs are {}·B·s·l·h²·(1 + s/6h + V/12lh).", "72", "27"),
    ("FLOPs are 96 B s l h^2 (1 + s/({}h) + V/(16 l h)).", "6", "60"),
    ("FLOPs are 96 B s l h^2 (1 + s/6h + V/{}lh).", "16", "61"),
    ("We count 6·N + {}·L·h·s per token.", "12", "21"),
])  # fmt: skip
def test_what_is_known_of_devices_and_formulas(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, said.format(right) + "\n") == []
    (one,) = _found(tmp_path, said.format(wrong) + "\n")
    assert (one.level, one.printed, one.proposed) == ("error", wrong, right)


@pytest.mark.parametrize("said", [
    "Somebody else reports 410 TFLOP/s.",
    "Without recompute we once saw 132 TFLOP/s.",
    "The fabric caps us at 270 TFLOP/s.",
    "Full recompute is 8·N + 16·L·h·s, a causal mask 6·N + 6·L·h·s.",
    "Eight A100 (640 GB) hold it.",
])
def test_what_may_be(tmp_path: Path, said: str) -> None:
    assert _found(tmp_path, said + "\n") == []


def test_half_of_a_peak_is_doubted(tmp_path: Path) -> None:
    (one,) = _found(tmp_path, "The bf16 peak is 494.5 TFLOP/s.\n", "H200")
    assert (one.level, one.proposed) == ("warning", "989.4")


def test_the_peak_of_eight_bits_is_one(tmp_path: Path) -> None:
    assert _found(tmp_path, "In fp8 the peak is 1979 TFLOP/s.\n", "H200") == []
