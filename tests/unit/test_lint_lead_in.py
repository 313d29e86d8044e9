"""Batch, length and tokens of a step that a sentence states, against the rates and times of the rows below it."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

ROWS = table("""
    release  s/step  tokens/s  MFU
    0.9.0  26.44  79,315  35.2 %
    0.9.3  25.09  83,596  37.1 %
    0.10.0  22.98  91,257  40.5 %
    0.10.2  22.51  93,163  41.3 %
""")


def _found(folder: Path, above: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(f"# Releases\n\nThe 14.8B on 64 A100.\n\n{above}\n\n{ROWS}\n", encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("said", "right", "wrong", "level"), [
    ("Sequences of 4096 tokens, {} sequences per step.", "512", "5120", "error"),
    ("Sequences of 4096 tokens, {} sequences per step.", "512", "152", "error"),
    ("Every step takes {}M tokens per step.", "2.10", "21.0", "error"),
    ("Every step takes {}M tokens per step.", "2.10", "1.05", "warning"),
    ("Global batch 512, sequences of {} tokens.", "4096", "4906", "warning"),
    ("Global batch 512, sequences of {} tokens.", "4096", "409.6", "error"),
])  # fmt: skip
def test_what_all_rows_take_in_a_step(tmp_path: Path, said: str, right: str, wrong: str, level: str) -> None:
    assert _found(tmp_path, said.format(right)) == []
    found = _found(tmp_path, said.format(wrong))
    assert [one.level for one in found if one.line == 5] == [level]
    assert {(one.printed, one.proposed) for one in found} in ({(wrong, right)}, {("21.0", "2.1")})


@pytest.mark.parametrize("said", [
    "Pairs of 2048 tokens, 512 pairs per step.",
    "The old batch was 256 sequences of 4096 tokens.",
    "The batch starts at 128 sequences of 4096 tokens.",
    "An epoch is always 51,200 samples.",
])
def test_what_the_rows_do_not_deny(tmp_path: Path, said: str) -> None:
    assert _found(tmp_path, said) == []
