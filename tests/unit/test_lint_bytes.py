"""Bytes of whole models in sentences: weights, states and checkpoints."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

NOTE = "Model of 13.02 billion parameters, sequences of 4096.\n\n" + table("""
    run  GPUs  batch  s/step  tokens/s
    b1  64  256  7.27  144,231
    b4  128  512  7.42  282,628
""") + "\n"


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(NOTE + text + "\n", encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("The weights alone are {} GB in BF16.", "26.0", "2.6"),
    ("A checkpoint (16 bytes per parameter) is {} GB.", "208", "280"),
    ("Ein Checkpoint mit 16 Byte je Parameter braucht {} GB.", "208", "20,8"),
    ("Un checkpoint completo (16 bytes por parámetro) son {} GB.", "208", "104"),
    ("重みは BF16 で {} GB。", "26.0", "13.0"),
    ("Optimizer states take 12 bytes per parameter, {} GB in all.", "156", "1560"),
])  # fmt: skip
def test_parameters_times_bytes(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, said.format(right)) == []
    (one,) = _found(tmp_path, said.format(wrong))
    assert (one.level, one.printed) == ("error", wrong)
    assert float((one.proposed or "").replace(",", ".")) == float(right)


@pytest.mark.parametrize("said", [
    "Over 64 GPUs the 16 bytes per parameter are 3.26 GB each.", "Weights and moments in BF16 and fp32 take 130 GB.",
    "With TP 8 the BF16 weights are 3.3 GB.", "The 7B weights are 14 GB in BF16.",
    "16 bytes per parameter, 1.04 TB for five of them.",
])  # fmt: skip
def test_parts_of_it_are_fine(tmp_path: Path, said: str) -> None:
    assert _found(tmp_path, said) == []
