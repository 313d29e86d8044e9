"""The parts of lint that read numbers and sentences."""
from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.notes.lint import digits, lint, look_at
from seatrial.notes.lint.models.devices import device_named
from seatrial.notes.lint.rows.nearby import Nearby
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.prose import Prose
from seatrial.notes.read.sentences import Hints, read_sentence
from seatrial.record import Record


@given(value=st.floats(0.001, 1e6), places=st.integers(0, 5))
def test_the_true_value_lies_within_what_the_printed_digits_hide(value: float, places: int):
    text = f"{value:.{places}f}"
    printed = digits.read(text, float(text))
    assert printed is not None
    assert printed.rounded[0] - 1e-9 <= value <= printed.rounded[1] + 1e-9


def test_a_cell_keeps_its_precision_when_the_importer_changes_the_unit():
    printed = digits.read("1841598.9", 1841.5989)
    assert printed is not None and printed.unit == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("typed", "meant", "how"),
    [("138.64", 183.64, "two digits exchanged"), ("18364", 183.64, "the point moved"), ("183.84", 183.64, "one digit changed"),
     ("13.64", 183.64, "a digit lost"), ("1833.64", 183.64, "a digit too many")],
)  # fmt: skip
def test_a_slip_of_the_hand_is_named_and_undone(typed: str, meant: float, how: str):
    slip = digits.slip(typed, (meant * 0.9999, meant * 1.0001))
    assert slip is not None and (slip.how, slip.value) == (how, meant)


@given(cents=st.integers(1, 10**6), places=st.integers(0, 3), at=st.floats(0.05, 20), width=st.sampled_from([0, 1e-3, 0.2]))
def test_slips_of_one_digit_are_those_that_a_list_of_all_has(cents: int, places: int, at: float, width: float):
    shown = f"{cents / 100:.{places}f}"
    low, high = cents / 100 * at * (1 - width), cents / 100 * at * (1 + width)
    every = digits._slips(shown)
    found = {how: (count, set(texts)) for how, count, texts in digits._one_digit(shown, low, high)}
    for how in ("one digit changed", "a digit lost"):
        inside = {text for text in every[how] if text != shown and low <= float(text) <= high}
        assert found.get(how, (len(every[how]), set())) == (len(every[how]), inside)


@given(figures=st.lists(st.none() | st.floats(1, 9), min_size=2, max_size=700), changed=st.integers(0, 699))
@settings(max_examples=20, deadline=None)
def test_the_middle_of_the_rows_around_one_while_walking_down(figures: list[float | None], changed: int):
    sheet = Sheet.of([Record(state="measured", table=0, source_file="x", mem_value=figure) for figure in figures])
    (mates,) = sheet.tables.values()
    near = Nearby(mates, lambda row: row.get("mem_value"))
    for row in mates:
        others = [value for mate in row.around if mate is not row and (value := mate.get("mem_value")) is not None]
        count, middle = near.middle(row)
        assert count == len(others) and (not others or middle == pytest.approx(statistics.median(others)))
        if row.place == changed:
            row.propose("mem_value", 99.0, "x")
            near.changed(row)


def test_of_two_devices_of_one_name_and_size_the_faster_is_meant():
    device = device_named("on 8x H100 nodes")
    assert device is not None and device.name.startswith("H100-SXM")


def test_with_few_digits_a_slip_is_likely_an_accident():
    fine, coarse = digits.slip("138.64", (183.6, 183.7)), digits.slip("1.4", (1.6, 1.9))
    assert fine is not None and coarse is not None
    assert fine.chance < 0.05 < coarse.chance


def test_figures_that_all_end_in_0_or_5_are_means_of_two():
    column = [digits.read(text, float(text)) for text in ("1.115", "1.045", "0.975", "0.92", "0.505")]
    steps = digits.Steps.of([figure for figure in column if figure is not None])
    assert steps.applied(column[4]).rounded == pytest.approx((0.5, 0.51))  # type: ignore[arg-type]
    assert steps.applied(column[3]).rounded == pytest.approx((0.915, 0.925))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The model has 32 layers, a hidden size of 4096 and 32 heads.", {"layers": 32, "hidden": 4096, "heads": 32}),
        ("32 attention heads, 8 KV heads, FFN 14336", {"heads": 32, "kv_heads": 8, "ffn": 14336}),
        ("Sequence length 8k, vocab 128,256, no activation recomputation", {"seq": 8192, "vocab": 128256, "recompute": "none"}),
        ("Sixteen nodes with 4x V100 32GB each", {"procs_per_node": 4, "gpus": 64}),
        ("8 GPUs per node", {"procs_per_node": 8}),
        ("l=24 h=2048 a=16 s=2048 V=50257", {"layers": 24, "hidden": 2048, "heads": 16, "seq": 2048, "vocab": 50257}),
        ("72 layers against 80 layers", {}),
        ("it took 3 weeks", {}),
    ],
)
def test_a_sentence_gives_its_hyperparameters(text: str, said: dict[str, object]):
    assert read_sentence(text) == said


@pytest.mark.parametrize(("title", "layers"), [("Model", [40, 24, None]), ("Quick start", [40, None, None])])
def test_a_sentence_holds_for_its_section_and_one_that_sets_up_for_the_section_around_it(title: str, layers: list[int | None]):
    text = f"# A\n## {title}\n24 layers\n## Runs\n### x\n40 layers\n|1|2|\n### y\n|1|2|\n# B\n|1|2|\n"
    hints = Hints(tuple(text.splitlines()))
    assert [hints.near(line).get("layers") for line in (7, 9, 11)] == layers


def test_two_sentences_that_disagree_give_nothing():
    hints = Hints(("24 layers and vocab 50257", "", "40 layers", "", "|1|2|", "32 layers", "|1|2|"))
    assert [hints.near(line) for line in (5, 7)] == [{"vocab": 50257}, {"layers": 32, "vocab": 50257}]


def test_a_sentence_about_another_size_gives_no_shape():
    hints = Hints(("20B model with 44 layers, sequence length 2048", "|"))
    assert hints.near(2, "200B") == {"seq": 2048}
    assert hints.near(2, "20B") == {"layers": 44, "seq": 2048}


@pytest.mark.parametrize(
    ("text", "capacity", "physical"),
    [
        ("Mem = max memory used - max is 77GB", 77, None),
        ("at most 48 nodes of 8 gpu a100 80gb nodes", None, 80),
        ("usable memory is 31.5 GB a card", 31.5, None),
        ("| max is 12GB |", None, None),
    ],
)
def test_the_text_says_how_much_memory_there_is(text: str, capacity: float | None, physical: float | None):
    prose = Prose.of(text)
    usable, whole = prose.capacity(1), prose.physical()
    assert (usable and usable[0], whole and whole[0]) == (capacity, physical)


def test_records_without_any_text_or_table_can_be_checked():
    rows = [Record(state="measured", nodes=2, procs_per_node=4, dp=dp, tp=2, pp=1, mbs=1, gbs=8) for dp in (4, 4, 8)]
    assert [(f.code, f.proposed) for f in lint(rows) if f.level == "error"] == [("world-size", "4")]


def test_nothing_is_said_of_nothing():
    assert lint([]) == []
    assert lint([Record(state="measured", tflops=1.0, sec_per_it=2.0)]) == []


WITHOUT_SHAPE = """| Nodes | Size | DP | TP | PP | MBS | GBS | Sec/it | TFLOPs |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| 16 | 52B | 8 | 4 | 4 | 1 | 1024 | 61.63 | 128.40 |
| 16 | 52B | 8 | 4 | 4 | 2 | 1024 | 57.68 | 137.20 |
| 16 | 52B | 4 | 8 | 4 | 1 | 2048 | 66.00 | 119.90 |
| 16 | 52B | 4 | 8 | 4 | 2 | 1024 | 62160 | 127.30 |
| 16 | 52B | 4 | 8 | 4 | 4 | 1024 | 60.41 | 131.00 |
| 8 | 52B | 4 | 4 | 4 | 4 | 1024 | 120.82 | 131.00 |
"""


def test_rows_of_one_model_are_held_against_each_other_when_nobody_states_its_shape(tmp_path: Path):
    """Time x TFLOPs x processes / batch is what one sequence costs, the same in every row."""
    notes = tmp_path / "notes.md"
    notes.write_text(WITHOUT_SHAPE)
    told = [(f.line, f.code, f.proposed) for f in look_at([str(notes)])[0] if f.level != "info"]
    assert told == [(5, "tflops-mismatch", "1024"), (6, "ms-not-s", "62.160")]


def test_a_unit_of_time_is_seen_without_tflops(tmp_path: Path):
    notes = tmp_path / "notes.md"
    rows = [line.rsplit("|", 2)[0] + "|" for line in WITHOUT_SHAPE.splitlines()]
    notes.write_text("\n".join(row for i, row in enumerate(rows) if i != 4))
    told = [(f.line, f.code, f.proposed) for f in look_at([str(notes)])[0] if f.level != "info"]
    assert told == [(5, "ms-not-s", "62.16")]


def test_one_node_may_be_used_in_part(tmp_path: Path):
    notes = tmp_path / "notes.md"
    rows = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 16), (4, 32)]
    cells = "\n".join(f"| {nodes} | {dp} | 1 | 1 | 1 | 64 | {64 / dp:.3f} |" for nodes, dp in rows)
    notes.write_text("| Nodes | DP | TP | PP | MBS | GBS | Sec/it |\n| - | - | - | - | - | - | - |\n" + cells + "\n")
    assert [f for f in look_at([str(notes)])[0] if f.level != "info"] == []


@pytest.mark.parametrize("text", ["1e400", "9" * 400, "0e400", "0." + "0" * 400 + "1", "1e" + "9" * 5000, "0e-" + "9" * 5000])
def test_a_cell_beyond_any_float_leaves_a_figure_that_can_be_printed(text: str):
    printed = digits.read(text, 95.0)
    assert printed is not None and math.isfinite(printed.unit) and 0 < printed.scale < math.inf
    assert float(printed.like(96.0)) == 96.0


@pytest.mark.parametrize("value", [1e-200, 1e200])
def test_steps_a_second_are_printed_however_many(value: float):
    assert digits.Printed(value, value / 10, inverse=True).like(2.0)[:3] in ("0", "0.5")


def test_a_step_beyond_any_float_leaves_no_decimals():
    assert digits.as_printed(95.0, math.inf) == "95"


OOM = """w weights, g gradients, act activations; sum = w + g + opt + act + 5 for the rest

| no | zero | tp | dp | mbs | ckpt | w | g | opt | act | sum | s/step |
|---|---|---|---|---|---|---|---|---|---|---|---|
| 02 | z2 | 1 | 32 | 1 | full | 41.1 | 1.3 | 7.7 | 1.1 | 56.2 | 81.5 |
| 03 | z2 | 1 | 32 | 8 | full | 41.1 | 1.3 | 7.7 | 8.9 | 64.0 | 50.0 |
| 04 | z2 | 1 | 32 | 1 | none | 41.1 | 1.3 | 7.7 | 18.8 | 73.9 | 62.2 |
| 06 | z3 | 1 | 32 | 4 | full | 1.3 | 1.3 | 7.7 | 4.4 | 19.7 | 59.5 |
| 07 | z3 | 1 | 32 | 16 | full | 1.3 | 1.3 | 7.7 | 17.7 | 33.0 | 52.6 |
| 10 | z1 | 2 | 16 | 1 | full | 20.6 | 20.6 | 7.7 | 0.6 | 54.5 | 76.0 |
"""


@pytest.mark.parametrize(("right", "wrong", "told"), [
    ("| 73.9 |", "| 93.9 |", [(7, "73.9")]), ("| 1.3 | 7.7 | 1.1 |", "| 41.1 | 7.7 | 1.1 |", [(5, "1.3")]),
    ("| 8.9 |", "| 9.8 |", [(6, "8.9")]), ("| 54.5 |", "| 45.5 |", [(10, "54.5")]),
])  # fmt: skip
def test_parts_of_memory_add_up_with_what_is_left_over(lint, right: str, wrong: str, told: list[tuple[int, str]]):
    assert [one for one in lint(OOM) if one.level != "info"] == []
    assert [(one.line, one.proposed) for one in lint(OOM.replace(right, wrong)) if one.level != "info"] == told


def test_two_rows_with_each_others_part(lint):
    note = OOM.replace("| 4.4 |", "| @ |").replace("| 17.7 |", "| 4.4 |").replace("| @ |", "| 17.7 |")
    assert [(one.line, one.proposed) for one in lint(note) if one.level != "info"] == [(8, "4.4"), (9, "17.7")]


def test_what_is_left_over_in_no_two_rows_is_no_law(lint):
    rows = OOM.replace("56.2", "61.3").replace("64.0", "66.1").replace("73.9", "75.0").replace("19.7", "24.2")
    assert [one for one in lint(rows) if one.level == "error"] == []
