"""Single cells and headings, as people write them."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.notes.read.parsing import read_cell, take_date
from seatrial.notes.read.statements import read_statements, read_status
from seatrial.tables.headings import Column, clean, read_heading, setting

MEM, SEC, COUNT = (
    Column(field="mem_value", kind="memory"),
    Column(field="sec_per_it", kind="seconds"),
    Column(field="dp", kind="count"),
)
FIGURE = Column(field="tflops", kind="figure")


@pytest.mark.parametrize(
    ("column", "text", "value", "unit"),
    [
        (MEM, "67GB", 67.0, "GB"),
        (MEM, "28406.7 MiB", 28406.7, "MiB"),
        (MEM, "28,406.7 mib", 28406.7, "MiB"),
        (MEM, "40.5G", 40.5, "GB"),
        (MEM, "**53 GB**", 53.0, "GB"),
        (MEM, "GB", None, ""),
        (MEM, "- MiB", None, ""),
        (MEM, "—", None, ""),
        (SEC, "1,234.5", 1234.5, ""),
        (SEC, "850 ms", 0.85, "ms"),
        (SEC, "`2.5s`", 2.5, "s"),
        (SEC, "[3.5](https://example.org/run)", 3.5, ""),
        (SEC, "1.5e3", 1500.0, ""),
        (SEC, "12&nbsp;345", 12345.0, ""),
        (SEC, "12\u202f345", 12345.0, ""),
        (COUNT, "2048", 2048, ""),
        (COUNT, "06", 6, ""),
        (COUNT, "8.0", 8, ""),
        (COUNT, "xxxx", None, ""),
        (COUNT, "n/a", None, ""),
        (FIGURE, "145.92 TFLOPs", 145.92, "TFLOPs"),
        (FIGURE, ".5", 0.5, ""),
    ],
)
def test_a_number_is_read_with_its_unit(column, text, value, unit):
    cell = read_cell(column, text)
    assert (cell.value, cell.unit, cell.unread) == (value, unit, "")


@pytest.mark.parametrize(
    ("heading", "text", "value", "unit"),
    [
        ("Sec/it", "750 us", 0.00075, "us"),
        ("Sec/it", "750µs", 0.00075, "us"),
        ("Sec/it", "2 hours", 7200.0, "h"),
        ("Sec/it", "1.5h", 5400.0, "h"),
        ("Sec/it", "2.5 days", 216000.0, "d"),
        ("Sec/it", "33 hr 13 min", 119580.0, "s"),
        ("Sec/it", "1h20m30s", 4830.0, "s"),
        ("Sec/it", "2 min 5.5 s", 125.5, "s"),
        ("Sec/it", "27,92", 27.92, "s"),
        ("Sec/it", "0,125", 0.125, "s"),
        ("Sec/it", "1.234,5", 1234.5, "s"),
        ("Sec/it", "3.2 it/s", 0.3125, "it/s"),
        ("Time (us)", "750", 0.00075, "us"),
        ("Time (µs)", "750", 0.00075, "us"),
        ("Params (B)", "7", "7B", ""),
        ("Time (h)", "2", 7200.0, "h"),
        ("TFLOPs", "0.12 PFLOPs", 120.0, "PFLOPs"),
        ("TFLOPs", "98000 GFLOPS", 98.0, "GFLOPS"),
        ("PFLOPs", "120 TFLOPs", 0.12, "TFLOPs"),
        ("Mem", "85899345920 bytes", 80.0, "GiB"),
        ("Mem (bytes)", "85899345920", 80.0, "GiB"),
        ("Mem", "2 TB", 2048.0, "GB"),
        ("Mem (KiB)", "1048576", 1.0, "GiB"),
        ("Sequence Length (K)", "8", 8192, ""),
        ("Sequence Length (K)", "32K", 32768, ""),
        ("Seq", "8k", 8192, ""),
        ("tokens/s (k)", "3,4", 3400.0, ""),
        ("GBS", "1,024", 1024, ""),
        ("MFU", "41,7 %", 0.417, ""),
    ],
)
def test_another_unit_is_converted_where_that_is_certain(heading, text, value, unit):
    cell = read_cell(read_heading(heading), text)
    assert (cell.value, cell.unread) == (value if isinstance(value, str) else pytest.approx(value), "")
    assert unit in ("", cell.unit) or read_heading(heading).kind not in ("seconds", "memory", "figure")


@pytest.mark.parametrize(
    ("heading", "text"),
    [
        ("Sec/it", "20033.7 MiB"),
        ("Sec/it", "120 TFLOPs"),
        ("Sec/it", "41 %"),
        ("TFLOPs", "20 GB"),
        ("TFLOPs", "41.2%"),
        ("TFLOPs", "12.5 s"),
        ("Mem", "12.5 s"),
        ("Mem", "120 TFLOPs"),
        ("MFU", "120 TFLOPs"),
        ("GBS", "4M tokens"),
        ("GBS", "12 GB"),
        ("DP", "12.5 s"),
        ("Sequence Length (K)", "8192"),
        ("samples/s", "12 tokens/s"),
        ("samples/s", "12 GB"),
    ],
)
def test_a_cell_in_the_unit_of_something_else_is_no_number_of_its_column(heading, text):
    cell = read_cell(read_heading(heading), text)
    assert cell.value is None and cell.unread


def test_a_batch_in_tokens_is_no_batch_of_samples():
    assert read_heading("GBS (tokens)").field == "" and read_heading("Global batch size (M tokens)").field == ""


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (COUNT, "-4"),
        (COUNT, "\u22124"),
        (COUNT, "0"),
        (COUNT, "2.5"),
        (COUNT, "8x8"),
        (COUNT, "10-12"),
        (COUNT, "1.2.3"),
        (COUNT, "12abc"),
        (SEC, "nan"),
        (SEC, "inf"),
        (SEC, "-3.5"),
        (SEC, "1e999"),
        (SEC, "fast"),
        (MEM, "85%"),
    ],
)
def test_what_is_no_number_of_its_column_is_unread_and_says_why(column, text):
    cell = read_cell(column, text)
    assert cell.value is None and cell.unread


@pytest.mark.parametrize(
    ("text", "value", "flags"),
    [
        ("1.36^/^^", 1.36, ("^", "^^")),
        ("210.0^", 210.0, ("^",)),
        ("14.39†", 14.39, ("†",)),
        ("12.5*", 12.5, ("*",)),
        ("12.5 \\*", 12.5, ("*",)),
        ("**12.5**", 12.5, ()),
        ("~120", 120.0, ("~",)),
        ("≈ 120", 120.0, ("~",)),
    ],
)
def test_marks_are_told_from_the_number(text, value, flags):
    cell = read_cell(FIGURE, text)
    assert (cell.value, cell.flags, cell.unread) == (value, flags, "")


def test_words_beside_a_number_are_kept():
    assert read_cell(SEC, "12.5(1itrのみ実行)").text == "(1itrのみ実行)"
    assert read_cell(MEM, "700.5 MiB (OOM after first epoch)").text == "(OOM after first epoch)"


@given(st.floats(1e-9, 1e15), st.sampled_from([SEC, FIGURE, MEM]))
def test_any_number_that_python_prints_is_read_to_the_last_bit(value, column):
    assert read_cell(column, repr(value)).value == value


@given(st.text(max_size=40), st.sampled_from([SEC, FIGURE, MEM, COUNT, Column(field="recompute", kind="recompute")]))
def test_no_text_whatever_breaks_a_cell(text, column):
    cell = read_cell(column, text)
    assert cell.value is None or not cell.unread


def test_markdown_inside_cells_is_removed():
    assert clean(" **a** `b` [c](d) &amp; \\| <b>e</b> ") == "a b c & | e"
    assert clean("NHIDDEN_SIZE") == "NHIDDEN_SIZE"


@pytest.mark.parametrize(
    ("text", "date", "rest"),
    [
        ("02-20", "02-20", ""),
        ("02-20 too close", "02-20", "too close"),
        ("4/22", "04-22", ""),
        ("22/4", "04-22", ""),
        ("2024-3-5, job 7", "2024-03-05", "job 7"),
        ("02-15, 21103755", "02-15", "21103755"),
        ("13-45", "", "13-45"),
        ("02-20x", "", "02-20x"),
        ("1.5-2", "", "1.5-2"),
        ("12 nodes", "", "12 nodes"),
    ],
)
def test_a_date_is_taken_from_the_start_of_a_note(text, date, rest):
    assert take_date(text) == (date, rest)


HEADINGS = {
    "Nodes": "nodes",
    "#GPUs": "gpus",
    "GPUs": "gpus",
    "Num GPUs": "gpus",
    "MP": "tp",
    "TP": "tp",
    "ZS": "zero_stage",
    "ZeRO": "zero_stage",
    "AC": "recompute",
    "recompute": "recompute",
    "Layers": "layers",
    "hidden-size": "hidden",
    "NHIDDEN": "hidden",
    "num-attention-heads": "heads",
    "NHEADS": "heads",
    "seq len": "seq",
    "VP": "vp",
    "SP": "sequence_parallel",
    "micro-batch": "mbs",
    "Global batch": "gbs",
    "Mem": "mem_value",
    "peak mem": "mem_value",
    "Memory (GB)": "mem_value",
    "Sec/it": "sec_per_it",
    "s/iter": "sec_per_it",
    "ms/it": "sec_per_it",
    "step time": "sec_per_it",
    "Time (s)": "sec_per_it",
    "Iteration time [ms]": "sec_per_it",
    "TFLOPs": "tflops",
    "TFLOP/s/GPU": "tflops",
    "TFLOPS per GPU": "tflops",
    "Est. Aggr. PetaFLOPs": "aggr_pflops",
    "Samples/s": "samples_per_s",
    "tokens/s": "tokens_per_s",
    "Tokens/sec/GPU": "tokens_per_s_per_process",
    "MFU": "mfu",
    "MFU (%)": "mfu",
    "params": "size_label",
    "Freq": "freq_ghz",
    "hidden": "hidden",
    "heads": "heads",
    "layers": "layers",
    "`DP`": "dp",
    "**PP**": "pp",
    "Throughput (samples/s)": "samples_per_s",
    "Throughput (tokens/s)": "tokens_per_s",
    "favourite colour": "",
    "": "",
}


@pytest.mark.parametrize(("heading", "name"), HEADINGS.items())
def test_a_heading_is_known_by_many_names(heading, name):
    assert read_heading(heading).field == name


@pytest.mark.parametrize(
    ("heading", "unit"),
    [
        ("Sec/it", "s"),
        ("ms/it", "ms"),
        ("Time (ms)", "ms"),
        ("step time [s]", "s"),
        ("it/s", "it/s"),
        ("Memory (GB)", "GB"),
        ("MFU (%)", "%"),
    ],
)
def test_a_heading_says_the_unit(heading, unit):
    assert read_heading(heading).unit == unit


def test_a_heading_says_per_what_and_by_which_formula():
    column = read_heading("TFLOPs (sc21, per node)")
    assert (column.formula, column.per) == ("sc21", "node")
    assert read_heading("TFLOP/s/GPU").per == "process"
    assert read_heading("Model TFLOPs").formula == "model"


def test_the_same_names_serve_options_and_variables():
    assert [setting(key).field for key in ("num-layers", "NHIDDEN", "SEQ_LEN", "tensor_model_parallel_size")] == [
        "layers",
        "hidden",
        "seq",
        "tp",
    ]
    assert setting("TFLOPs") is None, "figures are never taken from prose"


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("OOM", "oom"),
        ("OOM after first epoch", "oom"),
        ("too close to OOM", ""),
        ("no OOM", ""),
        ("avoids OOM", ""),
        ("always hangs", "hang"),
        ("may hang", "hang"),
        ("Stuck after the first epoch", "hang"),
        ("doesn't hang", ""),
        ("fail", "crash"),
        ("does not work", "crash"),
        ("loss went NaN", "nan"),
        ("timed out", "timeout"),
        ("1 iteration only", ""),
        ("fixed the hang", ""),
        ("out of memory", "oom"),
        ("bad alloc, killed", "crash"),
        ("", ""),
        ("change", ""),
    ],
)
def test_words_say_what_happened(text, failed):
    assert read_status(text).failed == failed


@pytest.mark.parametrize(
    "text", ["Estimated from the others", "extrapolated", "1 iteration only", "1itrのみ実行", "only one iteration"]
)
def test_words_say_that_a_figure_was_worked_out(text):
    assert read_status(text).estimated


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("- --num-layers 24 ", {"layers": 24}),
        ("NHIDDEN=512 / NLAYERS=6 / GBS=64", {"hidden": 512, "layers": 6, "gbs": 64}),
        ("all NHEADS=64", {"heads": 64}),
        ("`MBS=4, TP=8`", {"mbs": 4, "tp": 8}),
        ("Seq len: 4096, bf16, ZeRO-1", {"seq": 4096, "dtype": "bf16", "zero_stage": 1}),
        ("4 nodes, 2 replicas", {"nodes": 4, "dp": 2}),
        ("PyTorch 2.3", {"torch_version": "2.3"}),
        # Sentences explain and compare; they state nothing.
        ("It was puzzling why much less memory was used with DP=2 over DP=1", {}),
        ("* DP=4, PP=12, MBS=4: 123 secs/it | 130 TFLOPS", {}),
        ("Trying with ZeRO_STAGE=0/1", {}),
        ("nhidden % 128 = 0", {}),
        ("nhidden = 108*8*c = 864*c", {}),
        ("NHEADS=108 breaks the constraints for the optimized fused softmax kernel", {}),
        ("MBS = micro batch size", {}),
        ("PP=6/DP=8 or PP=12/DP=4", {}),
    ],
)
def test_only_lines_of_settings_state_settings(line, fields):
    assert read_statements(line, heading=False).fields == fields


def test_a_heading_is_searched_for_settings():
    said = read_statements("7B model, Sequence Length=256 \\w activation checkpointing, w\\o LD_PRELOAD=libx.so", heading=True)
    assert said.fields == {"seq": 256, "recompute": "full"} and said.env == {"LD_PRELOAD": ""} and said.label == "7B"
    assert read_statements("Sequence Length=256 w/o activation checkpointing", heading=True).fields["recompute"] == "none"


def test_a_rounded_setting_is_no_value():
    said = read_statements("7B model: TP=8, VOCAB_LENGTH=32k", heading=False)
    assert said.inexact == {"vocab": "32k"} and "vocab" not in said.fields
