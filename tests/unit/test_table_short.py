"""The short table of our own trials: what tells rows apart is a column, what they share is a line, nothing is invented."""
from __future__ import annotations

import pytest

from seatrial.errors import BadInput
from seatrial.record import Outcome, Record
from seatrial.tables.short import digits, seconds, to_short

ONE = dict(state="measured", size_label="tiny", layers=8, hidden=128, heads=16, seq=64, vocab=256, dp=2, tp=1, pp=2, vp=1,
           mbs=1, gbs=16, zero_stage=0, recompute="none", schedule="1f1b", dtype="fp32", nodes=1, machine="here",
           mem_value=0.33996, mem_unit="GiB", sec_per_it=0.18605659649983863, time_unit="s", tflops=0.028539643118778674,
           formula="sc21",
           tflops_per="process", samples_per_s=85.99533852063061, session="first", iteration=7, run_id="37ec79939359",
           outcome=Outcome(status="ok"), measurement={"low_s": 0.18, "high_s": 0.19})  # fmt: skip


def row(**more):
    return Record(**{**ONE, **more})


def cells(text):
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]


def test_a_column_is_what_varies_or_was_measured_and_the_rest_is_said_above():
    text = to_short([row(), row(zero_stage=1, sec_per_it=0.25, measurement={})])
    heading, _, first, second = cells(text)
    assert heading == ["DP", "TP", "PP", "MBS", "GBS", "ZS", "Mem", "Sec/it", "TFLOPs (sc21, per process)", "Samples/s"]
    assert first == ["2", "1", "2", "1", "16", "0", "0.3400 GiB", "**0.186 ± 2.7%**", "0.0285", "86.0"]
    assert second[7] == "0.2500"
    shared = "nodes 1, layers 8, hidden 128, heads 16, seq 64, machine here, session first, fp32"
    assert text.startswith(f"tiny: 2 trials, {shared}. Every")
    assert max(map(len, text.splitlines())) < 128


def test_a_divided_sequence_is_a_degree_with_a_column_and_a_whole_one_is_not_named():
    text = to_short([row(cp=2, cp_kind="ring"), row(cp=2, cp_kind="ring")])
    assert cells(text)[0][:6] == ["DP", "TP", "PP", "CP", "MBS", "GBS"] and "cp by ring" in text.splitlines()[0]
    assert "cp" not in to_short([row(cp=1), row(cp=1)]).lower()


def test_mfu_and_tokens_a_device_stand_beside_the_tflops_where_they_are_known():
    heading, _, first, second = cells(to_short([row(mfu=0.41234, tokens_per_s=5503.7, gpus=4), row(gpus=4)]))
    assert heading[-4:] == ["TFLOPs (sc21, per process)", "MFU", "Samples/s", "Tok/s/device"]
    assert first[-3:] == ["41.2 %", "86.0", "1376"] and second[-3:] == ["", "86.0", ""]


@pytest.mark.parametrize(("low", "high", "shown"), [(0.1860, 0.1861, "0.1861 ± 0.0%"), (0.18, 0.19, "0.186 ± 2.7%"),
                                                   (0.1, 0.27, "0.19 ± 46%")])
def test_a_figure_has_the_digits_that_its_spread_allows(low, high, shown):
    assert seconds(row(measurement={"low_s": low, "high_s": high})) == shown


def test_knobs_and_variables_that_differ_have_columns_and_others_do_not():
    rows = [row(extra={"case": "a", "sweep": "s"}, env={"OMP_NUM_THREADS": "1"}),
            row(extra={"case": "b|", "sweep": "s"}, env={"OMP_NUM_THREADS": "1", "LD_PRELOAD": "x.so"})]  # fmt: skip
    text = to_short(rows)
    heading, _, first, second = cells(text)
    assert heading[5:7] == ["LD_PRELOAD", "case"] and first[5:7] == ["", "a"] and second[5:7] == ["x.so", "b&#124;"]
    assert "OMP_NUM_THREADS=1, sweep=s" in text.splitlines()[0]


def test_what_failed_stands_in_the_same_table_with_empty_figures_and_its_reason():
    lost = row(state="failed", sec_per_it=None, tflops=None, formula="", tflops_per="", samples_per_s=None, mem_value=None,
               iteration=None, tp=4, outcome=Outcome(status="hang", message="rank 3 " * 40, rate=(2, 5)), measurement={})
    heading, _, first, second = cells(to_short([row(), lost]))
    assert heading[-1] == "Outcome" and first[-1] == "ok" and heading[7] == "TFLOPs (sc21, per process)"
    assert second[-1].startswith("hang 2 of 5: rank 3") and second[-1].endswith("…") and second[5:-1] == ["", "", "", ""]


def test_an_estimate_is_marked_and_is_never_the_best():
    text = to_short([row(), row(mbs=2, sec_per_it=0.3), row(mbs=4, sec_per_it=0.01, state="estimated",
                                                           measurement={"kind": "rehearsed"})])
    assert [line[6] for line in cells(text)[2:]] == ["**0.186 ± 2.7%**", "0.300 ± 1.7%", "~0.01000"]
    assert "~ not measured whole: rehearsed" in text


def test_imported_rows_keep_the_layout_of_their_notes():
    imported = row(source_file="notes.md", source_line=4, section="7B")
    text = to_short([imported, row()])
    assert "### 7B" in text and "KV heads" not in text
    assert sum(line.startswith("| DP") or line.startswith("|  DP") for line in text.splitlines()) == 1
    assert any("Nodes" in line and "Layers" in line for line in text.splitlines())


def test_columns_are_chosen_by_field_or_heading():
    assert cells(to_short([row()], columns=("dp", "Sec/it", "run_id"))) == [
        ["DP", "Sec/it", "Run"], ["--:", "------------------:", "-----------:"], ["2", "0.18605659649983863", "37ec79939359"]]
    with pytest.raises(BadInput, match="did you mean 'tflops'"):
        to_short([row()], columns=("tflop",))


def test_the_axis_of_a_sweep_is_a_column_too():
    rows = [row(extra={"case": "tp2"}), row(env={"LD_PRELOAD": "libtcmalloc.so"})]
    assert cells(to_short(rows, columns=("case", "LD_PRELOAD")))[2:] == [["tp2", ""], ["", "libtcmalloc.so"]]
    held = row(memory={"fullest": {"parts": {"activations": 3 * 2**19}}})
    assert cells(to_short([held, row(memory={})], columns=("memory.activations",)))[0::2] == [["activations, MiB"], ["1.500"]]
    with pytest.raises(BadInput, match="did you mean 'case'"):
        to_short(rows, columns=("cas",))


@pytest.mark.parametrize(("value", "text"), [(0.000123456, "0.0001235"), (12345.678, "12346"), (3.0, "3"), (0.0, "0"),
                                             (-1.5, "-1.500"), (None, "")])
def test_figures_have_four_digits(value, text):
    assert digits(value) == text
