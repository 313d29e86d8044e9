"""Headings that somebody wrote down without having read the rules: how many are read with their unit and scope."""
from __future__ import annotations

from pathlib import Path

import pytest

import headings_lists
import settings_list
from headings_lists import Reading, is_right
from seatrial.notes import lint


@pytest.mark.parametrize(("name", "named", "traps"), [("english", 0.98, 0.97), ("tongues", 0.97, 0.97)])
def test_headings_are_read_and_traps_left_alone(name: str, named: float, traps: float) -> None:
    score, wrong = headings_lists.judged(name)
    assert score["headings"] >= 500 and score["all traps"] >= 100
    assert score["named"] >= named and score["traps"] >= traps, [(line["h"], read) for line, read in wrong]


@pytest.mark.parametrize(("line", "read", "right"), [
    (("step_time", "ms", None), Reading("step_time", "sec_per_it", 1e-3), True),
    (("step_time", "ms", None), Reading("step_time", "sec_per_it", 1.0), False),
    (("throughput_tokens", "tokens/s", "device"), Reading("throughput_tokens", "tokens_per_s", 1.0), False),
    (("throughput_tokens", "tokens/s", None), Reading("throughput_tokens", "tokens_per_s_per_process", 1.0), False),
    (("memory", "GiB", None), Reading("memory", "mem_value", "GB"), False),
    (("none", None, None), Reading("tokens", "tokens", 1.0), False),
    (("energy", "kWh", "device"), Reading("energy", "energy", 1.0), False),
])
def test_the_wrong_unit_or_scope_is_not_right(line: tuple[str | None, ...], read: Reading, right: bool) -> None:
    assert is_right(dict(zip(("f", "u", "per"), line)), [read]) is right


def test_settings_that_sentences_state_are_taken_and_nothing_else(tmp_path: Path) -> None:
    count, wrong = settings_list.judged(tmp_path)
    assert count["right"] >= 0.69 * sum(count.values()) and count["wrong"] <= 0.035 * count["right"], wrong


@pytest.mark.parametrize("text", ["Llama ve Yı modelleri 8 GPU ile", "altı A100, 6 katman", "İki düğüm, ſix nodes of 8 GPUs",
                                  "FP8 ve ınt8"])  # fmt: skip
def test_letters_that_are_others_in_small_break_nothing(tmp_path: Path, text: str) -> None:
    note = tmp_path / "note.md"
    note.write_text(f"# {text}\n\n{text}.\n{settings_list.TABLE}", encoding="utf-8")
    assert lint.look_at([str(note)])[1].rows
