"""Sentences that reckon for themselves: hours, devices, money, energy, tokens of a step."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

NOTE = "7B, sequences of 4096, batch in sequences.\n\n" + table("""
    run  nodes  GPUs  TP  batch  s/step  tokens/s
    b1  8  64  1  256  7.27  144,231
    b4  16  128  2  512  7.42  282,628
    b5  32  256  2  1024  7.63  549,712
    b6  64  512  4  1024  3.98  1,053,848
""") + "\n"


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(NOTE + text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("At 1024 GPUs that is 32,222 GPU hours, or ${} at our internal rate of $2.20.", "70,888", "7,089"),
    ("Das sind 32.222 GPU-Stunden, bei einem Satz von 2,20 € also {} €.", "70.888", "80.888"),
    ("Soit 32 222 heures GPU, à 2,20 € l'heure : {} €.", "70 888", "80 888"),
    ("32,222 GPU hours cost ${} at $2.20 each.", "70,888", "80,888"),
    ("b6 for 15.4 days is {} GPU hours.", "189,235", "118,235"),
    ("15.4 days on 512 GPUs are {} GPU-hours, or $416k at $2.20.", "189,235", "18,923"),
    ("15.4 days on 512 GPUs are 189,235 GPU-hours, or ${}k at $2.20.", "416", "146"),
    ("For 2T tokens b6 needs 22 days, at 2.20 a GPU-hour that is {}k dollars.", "595", "959"),
    ("Two weeks of 512 GPUs at $2.20 per GPU-hour cost ${}k.", "378", "738"),
    ("16.9 h + 8.4 h = 25.3 h, times 128 that is {} GPU-hours.", "3,238", "1,619"),
    ("512 GPUs at 700 W for 15.4 days are {} MWh.", "132", "312"),
    ("132.6 MWh at 380 g CO2/kWh are {} t of CO2.", "50.4", "504"),
    ("89.2 MWh; at 0.21 kg/kWh that is {} t CO2.", "18.7", "81.7"),
    ("With a PUE of 1.2 the 132.6 MWh become {} MWh.", "159.1", "195.1"),
    ("40,000 steps at 4.19M tokens each are {}B tokens.", "168", "186"),
    ("40,000 Schritte zu 3,98 s sind {} Stunden.", "44,2", "24,4"),
    ("4096 sequences of 4096 tokens, i.e. {} million tokens per step.", "16.8", "1.68"),
    ("1024 Sequenzen zu 4096 Token, also {} Mio. Token pro Schritt.", "4,19", "1,49"),
    ("GBS 1024, sequence length 4096 ({}M tokens a step).", "4.19", "4.91"),
    ("A side job made 532k tokens/s, about {}B tokens a day.", "46", "64"),
    ("Es dauerte 88 h, das sind {} Tage.", "3,7", "7,3"),
])  # fmt: skip
def test_what_a_sentence_works_out(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, said.format(right) + "\n") == []
    (one,) = _found(tmp_path, said.format(wrong) + "\n")
    assert (one.level, one.printed.rstrip(".").replace(" ", ""), one.proposed) == (
        "error", wrong.replace(" ", ""), one.proposed)
    assert one.proposed is not None
    digits = [float(text.replace(" ", "").replace(".", "").replace(",", "")) for text in (one.proposed, right)]
    assert abs(digits[0] / digits[1] - 1) < 0.001


@pytest.mark.parametrize("said", [
    "We used 100,000 GPU hours of the 15.4 days on 512 GPUs, the rest was idle.",
    "Mean draw 512 W per GPU, PUE 1.18: 30 MWh for 50,279 GPU hours.",
    "After 32,222 GPU hours we had spent $90k, at $2.20 and with the storage.",
    "15.4 days on 512 GPUs save 30,000 GPU hours against 256.",
    "It had 128 GPUs for 10 days and 512 for 15.4 days, 219,955 GPU hours.",
    "The 32,222 GPU hours at $2.20 are 20 % of the $354k.",
])  # fmt: skip
def test_what_else_a_sentence_holds_is_fine(tmp_path: Path, said: str) -> None:
    assert _found(tmp_path, said + "\n") == []
