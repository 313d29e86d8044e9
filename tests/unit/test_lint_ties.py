"""Two changes that would each mend a row: what else the table says of their cells tells which is meant."""
from __future__ import annotations

import pytest

GAIN = """# 0.14, A100 80GB, 2048 tokens

| model | gpus | batch | 0.13 ms | 0.14 ms | faster | tokens/s |
|---|---|---|---|---|---|---|
| 350M | 8 | 512 | 3039 | 2797 | 8.7% | 374,892 |
| 760M | 8 | 512 | 5568 | 5201 | 7.1% | 201,627 |
| 1.3B | 16 | 512 | 4712 | 4403 | 7.0% | 238,160 |
| 2.7B | 32 | 512 | 4820 | 4511 | 6.9% | 232,460 |
"""
SUMS = """# Spend

| job | provider | nodes | gpus | days | gpu-h | $/gpu-h | $ |
|---|---|---|---|---|---|---|---|
| pilot | Nebius | 2 | 16 | 5 | 1920 | 2.95 | 5664.00 |
| 3b | Nebius | 4 | 32 | 9 | 6912 | 2.95 | 20390.40 |
| shakedown | Crusoe | 32 | 256 | 2 | 12288 | 2.60 | 31948.80 |
| main | Crusoe | 48 | 384 | 17 | 156672 | 2.60 | 407347.20 |
| evals | Lambda | 1 | 8 | 25 | 4800 | 1.79 | 8592.00 |
| anneal | Crusoe | 48 | 384 | 2.5 | 23040 | 2.60 | 59904.00 |
| red team | Lambda | 1 | 8 | 8 | 1536 | 1.79 | 2749.44 |
| tests | Lambda | 1 | 8 | 20 | 3840 | 1.79 | 6873.60 |
| 32k | Crusoe | 32 | 256 | 3 | 18432 | 2.60 | 47923.20 |
| total | | | | | 229440 | | 591392.64 |
"""


@pytest.mark.parametrize(("note", "right", "wrong", "line", "proposed"), [
    (GAIN, "374,892", "37,489", 5, "374890"), (SUMS, "32 | 256 | 2 |", "32 | 384 | 2 |", 7, "256"),
    (SUMS, "4800 | 1.79", "4800 | 2.60", 9, "1.79")])  # fmt: skip
def test_a_change_that_upsets_what_holds_is_not_meant(lint, note: str, right: str, wrong: str, line: int, proposed: str):
    assert [one for one in lint(note) if one.level != "info"] == []
    told = [one for one in lint(note.replace(right, wrong)) if one.level != "info"]
    assert [(one.line, one.proposed) for one in told] == [(line, proposed)]
