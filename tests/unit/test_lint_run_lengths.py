"""How long a budget of tokens takes at the row that a sentence names."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

NOTE = "7B, sequences of 4096.\n\n" + table("""
    run  nodes  GPUs  batch  s/step  tokens/s
    b1  8  64  256  7.27  144,231
    b4  16  128  512  7.42  282,628
    b5  32  256  1024  7.63  549,712
    b6  64  512  1024  3.98  1,053,848
""") + "\n"


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(NOTE + text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("300B tokens with b4: {} days. Hm.", "12.3", "21.9"),
    ("按 b5 的配置训 300B tokens 大约要 {} 天。", "6.3", "9.1"),
    ("Com 64 nós, 300 bilhões de tokens levam cerca de {} horas.", "79", "42"),
    ("The best line needs {} days for 500B tokens.", "5.5", "8.7"),
    ("At 256 GPUs: {} days for the 2T tokens we have in mind.", "42", "24"),
    ("At 512 that makes 1T tokens in {} days, if it stays up.", "11.0", "31.0"),
    ("A 300B token run with b1 would be {} days.", "24", "42"),
    ("The 2T run is planned on b6 and takes {} days.", "22", "31"),
    ("For 1T tokens that means 21 days on 256 GPUs and {} days on 512.", "11", "17"),
    ("For 1T tokens that means {} days on 256 GPUs and 11 days on 512.", "21", "31"),
    ("One epoch of 300B tokens is 3.3 days on 512 GPUs, {} on 256.", "6.3", "9.3"),
    ("Going from 256 to 512 GPUs cuts 1T tokens from 21.1 to {} days.", "11.0", "15.0"),
    ("Our 1.4T tokens need {} days with the last row.", "15.4", "51.4"),
    ("b6 is the one. 1.4T tokens need {} days that way.", "15.4", "21.4"),
    ("We have 1.4T tokens. On 512 GPUs that is {} days.", "15.4", "21.4"),
    ("In 30 days b6 would process {}T tokens.", "2.73", "1.73"),
    ("With 512 GPUs one day is enough for {} billion tokens.", "91", "70"),
    ("b6 sees {}B tokens per day, so 1T tokens take 11 days.", "91", "19"),
    ("On 64 nodes 1.4T tokens are 15.4 days, i.e. {} GPU hours.", "189,235", "23,600"),
    ("1.4T tokens on 512 GPUs: {} GPU-hours.", "188,937", "118,937"),
    ("Auf 64 Knoten dauern 500 Mrd. Token {} Tage, auf 32 Knoten 10,5 Tage.", "5,5", "8,5"),
    ("500 milliards de tokens prennent {} jours sur 64 nœuds.", "5,5", "8,5"),
    ("64 ノードで 500B トークンの学習は約 {} 日かかる。", "5.5", "9.5"),
    ("512 卡训练 1T token 需 {} 天。", "11.0", "17.0"),
    ("На 64 узлах 500 млрд токенов занимают {} дней.", "5,5", "8,5"),
    ("## So?\n\nWith b6 we do 1,054k tokens/s. The 2T run would need {} days.", "22", "33"),
])  # fmt: skip
def test_how_long_a_budget_takes(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{said.format(right)}\n") == []
    (one,) = _found(tmp_path, f"{said.format(wrong)}\n")
    assert (one.level, one.printed, one.proposed) == ("error", wrong, right)


@pytest.mark.parametrize("said", [
    "300B tokens with b4 are 21.9 days in the paper.", "With b4 we saved 2.5 days on 300B tokens.",
    "After 100B tokens b4 had run for 9.9 days, with restarts.", "b4 or b5 for 300B tokens: 9 days each.",
    "At 256 GPUs 300B tokens are done in less than 9 days.", "1T tokens on b6: 5.6k h.", "With b6 the next 2T take 30 days.",
    "1T tokens on b6 took 14 days, with the restarts.", "## Others\n\nThe 2T run takes 30 days.",
])  # fmt: skip
def test_times_of_something_else_are_fine(tmp_path: Path, said: str) -> None:
    assert _found(tmp_path, f"{said}\n") == []
