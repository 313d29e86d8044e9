"""Figures that rows with nearly the same layout deny, where nothing in the row itself tells."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from seatrial.notes.lint import Finding

Lint = Callable[[str], list[Finding]]
MEMORY = """# 13B on A100 80GB, seq 2048, ZeRO-1

| GPUs | TP | PP | MBS | mem (GiB) |
| --- | --- | --- | --- | --- |
| 64 | 1 | 4 | 1 | 41.2 |
| 64 | 2 | 2 | 1 | 40.3 |
| 64 | 2 | 4 | 1 | 24.9 |
| 64 | 2 | 4 | 2 | 33.8 |
| 64 | 4 | 2 | 1 | {one} |
| 64 | 4 | 4 | 4 | 36.0 |
| 128 | 4 | 4 | 4 | 34.6 |
"""
TIMES = """# weak scaling of a 7B

| Nodes | GBS | s/step |
| --- | --- | --- |
| 1 | 64 | 6.21 |
| 2 | 128 | 6.30 |
| 4 | 256 | {one} |
| 8 | 512 | 6.55 |
| 16 | 1024 | 6.80 |
"""



@pytest.mark.parametrize("text, right", [(MEMORY, "24.6"), (TIMES, "6.41")])
def test_rows_that_follow_their_layout_are_not_doubted(lint: Lint, text: str, right: str):
    assert lint(text.format(one=right)) == []


@pytest.mark.parametrize("text, wrong, line", [(MEMORY, "2.46", 9), (MEMORY, "246", 9), (TIMES, "64.1", 7), (TIMES, "3.20", 7)])
def test_one_that_does_not_is(lint: Lint, text: str, wrong: str, line: int):
    assert [f.line for f in lint(text.format(one=wrong))] == [line]


def test_a_point_that_moved_is_put_back(lint: Lint):
    (found,) = lint(MEMORY.format(one="2.46"))
    assert (found.code, found.level, found.proposed) == ("outlier", "error", "24.6")
    assert "line 7 has 24.9" in found.message or "line 6 has 40.3" in found.message


def test_what_a_switch_does_is_no_slip(lint: Lint):
    text = MEMORY.replace("| mem (GiB) |", "| mem (GiB) | recompute |").replace("| --- |\n", "| --- | --- |\n")
    rows = [f"{row} {'full' if '{one}' in row else 'none'} |" if row.startswith("| 64") or row.startswith("| 128") else row
            for row in text.split("\n")]  # fmt: skip
    assert lint("\n".join(rows).format(one="13.1")) == []


VARIANTS = """# 8B on H100 80GB

| framework | wrapping | recompute | tok/s/GPU | peak GiB |
| --- | --- | --- | --- | --- |
| torchtitan | FSDP2, compile | none | 7150 | {one} |
| Megatron-LM | TP 2 | none | 7317 | 62.3 |
| DeepSpeed | ZeRO-3{more} | full | 5707 | {other} |
| axolotl | FSDP1 | full | 5305 | 49.9 |
| llm-foundry | hybrid | full | 5858 | 74.6 |
"""


def test_a_tenth_of_the_memory_that_all_others_need_has_a_point_that_moved(lint: Lint):
    assert lint(VARIANTS.format(one="71.2", other="61.5", more="")) == []
    (found,) = lint(VARIANTS.format(one="7.12", other="61.5", more=""))
    assert (found.line, found.code, found.level, found.proposed) == (5, "outlier", "warning", "71.2")


def test_states_that_were_moved_out_need_none(lint: Lint):
    assert lint(VARIANTS.format(one="71.2", other="6.15", more=" with offload")) == []


EXPERTS = """# Mixture, 64 experts, one node of 8 H100

| top-k | s/step | TFLOPS per GPU | val loss |
| --- | --- | --- | --- |
| 2 | 7.972 | {one} | 2.940 |
| 4 | 8.211 | 192.8 | 2.910 |
| 6 | 8.923 | 220.1 | 2.892 |
| 8 | 9.770 | 240.0 | 2.880 |
"""


def test_more_experts_for_a_token_are_more_work(lint: Lint):
    assert lint(EXPERTS.format(one="150.8")) == []
    assert [f.line for f in lint(EXPERTS.format(one="15.08"))] == [5]
