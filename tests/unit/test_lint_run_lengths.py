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
])  # fmt: skip
def test_how_long_a_budget_takes(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{said.format(right)}\n") == []
    (one,) = _found(tmp_path, f"{said.format(wrong)}\n")
    assert (one.level, one.printed, one.proposed) == ("error", wrong, right)


@pytest.mark.parametrize("said", [
    "300B tokens with b4 are 21.9 days in the paper.", "With b4 we saved 2.5 days on 300B tokens.",
    "After 100B tokens b4 had run for 9.9 days, with restarts.", "b4 or b5 for 300B tokens: 9 days each.",
    "At 256 GPUs 300B tokens are done in less than 9 days.",
])  # fmt: skip
def test_times_of_something_else_are_fine(tmp_path: Path, said: str) -> None:
    assert _found(tmp_path, f"{said}\n") == []
