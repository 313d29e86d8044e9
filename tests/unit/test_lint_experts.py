"""Experts of each device beside the ranks that they are spread over."""
from __future__ import annotations

import pytest

from lint_tables import table

SPREAD = "Sequence 4096, H100.\n\n" + table("""
    model  GPUs  DP  EP  experts/GPU  GBS  step (s)  tok/s
    Mixtral  32  32  8  1  256  8.21  127719
    Mixtral  64  64  8  1  256  3.96  264792
    Mixtral  64  64  4  2  256  4.11  255128
    Mixtral  128  128  8  1  512  4.03  520381
    Small  8  8  8  2  128  3.42  153300
    Small  16  16  16  1  256  3.60  291271
    Small  32  32  16  1  256  1.84  569878
    Small  64  64  4  4  512  1.90  1103764
""")


@pytest.mark.parametrize("heading", ["experts/GPU", "Experts per rank", "local experts", "Experten pro GPU"])
def test_experts_of_each_device_and_their_ranks_are_those_of_the_model(lint, heading):
    note = SPREAD.replace("experts/GPU", heading)
    assert not lint(note)
    found = lint(note.replace("| 4 | 2 | 256", "| 4 | 8 | 256"))
    assert [(one.line, one.column, one.proposed) for one in found] == [(7, heading, "2")]


def test_ranks_that_other_rows_have_with_as_many_experts_are_meant(lint):
    found = lint(SPREAD.replace("| 8 | 1 | 512", "| 2 | 1 | 512"))
    assert [(one.line, one.column, one.proposed) for one in found] == [(8, "EP", "8")]


def test_models_of_different_experts_under_one_name_are_left_alone(lint):
    assert not lint(SPREAD.replace("Mixtral", "MoE").replace("Small", "MoE"))


@pytest.mark.parametrize(("above", "model"), [("", "Mixtral 8x7B"), ("## Mixtral 8x7B\n\n", "ours"), ("## 8×7B\n\n", "a")])
def test_more_ranks_than_the_experts_that_a_name_tells(lint, above: str, model: str):
    rows = [(32, 8, 8), (64, 8, 16), (128, 8, 32), (32, 8, 8)]
    note = above + "| model | GPUs | PP | EP | DP | GBS |\n|---|---|---|---|---|---|\n"
    note += "".join(f"| {model} | {gpus} | 4 | {ep} | {dp} | {gpus * (8 + at)} |\n" for at, (gpus, ep, dp) in enumerate(rows))
    assert lint(note) == []
    found = lint(note.replace("| 128 | 4 | 8 |", "| 128 | 4 | 16 |"))
    assert [(f.code, f.column, f.proposed) for f in found] == [("experts-divisible", "EP", "8")]
