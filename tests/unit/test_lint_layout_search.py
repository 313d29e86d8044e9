"""Slips in logs of layout searches and scaling studies: memory, pasted figures, totals, durations in sentences."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes import lint
from seatrial.notes.lint import Finding


def _found(folder: Path, text: str, name: str = "note.md") -> list[Finding]:
    note = folder / name
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


def _told(found: list[Finding]) -> list[tuple[int | None, str | None, str | None]]:
    return [(finding.line, finding.printed, finding.proposed) for finding in found]


MEMORY = """# Search

16 nodes of 8 GPUs with 64 GB each. Model of 20 B, sequence 4096, GBS 512.

| TP | PP | DP | MBS | recompute | s/step | GiB |
| ---: | ---: | ---: | ---: | :---: | ---: | ---: |
| 8 | 1 | 16 | 1 | no | 20.3 | 33 |
| 8 | 2 | 8 | 1 | no | 21.4 | 22 |
| 8 | 4 | 4 | 1 | no | 21.6 | 16 |
| 4 | 4 | 8 | 1 | no | 22.3 | {memory} |
| 4 | 4 | 8 | 1 | yes | 29.1 | 18 |
"""


def test_memory_over_the_device_is_what_layouts_like_it_leave(tmp_path: Path):
    assert _told(_found(tmp_path, MEMORY.format(memory="88"))) == [(10, "88", "28")]
    assert _found(tmp_path, MEMORY.format(memory="28")) == []


PARTS = """# What fits in 40 GB

| stage | weights | grads | optimizer | activations | total | fits? |
| :---: | ---: | ---: | ---: | ---: | ---: | :---: |
| 0 | 14.2 | 14.2 | 85.2 | 12.1 | 125.7 | OOM |
| 1 | 14.2 | 14.2 | {optimizer} | 12.0 | 51.1 | OOM |
| 2 | 14.2 | 1.8 | 10.7 | 12.1 | {total} | {fits} |
| 2b | 14.2 | 1.8 | 10.7 | 2.4 | 29.1 | yes |
| 3 | 1.8 | 1.8 | 10.7 | 18.0 | 32.3 | yes |
| 3b | 1.8 | 1.8 | 10.7 | 2.6 | 16.9 | {last} |
"""
RIGHT = {"optimizer": "10.7", "total": "38.8", "fits": "yes", "last": "yes"}


@pytest.mark.parametrize(("field", "typed", "line", "meant"), [
    ("optimizer", "85.2", 6, "10.7"), ("total", "57.4", 7, "38.8"), ("last", "OOM", 10, "yes")])  # fmt: skip
def test_what_is_called_the_total_is_the_sum_of_its_parts(tmp_path: Path, field: str, typed: str, line: int, meant: str):
    found = _found(tmp_path, PARTS.format(**{**RIGHT, field: typed}))
    assert _told(found) == [(line, typed, meant)]
    assert field != "optimizer" or "is that of line 5" in found[0].message
    assert _found(tmp_path, PARTS.format(**RIGHT)) == []


TOKENS = """# Longer sequences on eight A100

batch 32

| seq | tokens/step | step | tokens/s |
| ---: | ---: | ---: | ---: |
| 2,048 | 65,536 | 2.91 s | 22,521 |
| 4,096 | {tokens} | 6.12 s | 21,417 |
| 8,192 | 262,144 | 13.70 s | 19,135 |
| 16,384 | 524,288 | 34.20 s | 15,330 |
"""


def test_tokens_of_the_row_above_are_mended_in_tokens(tmp_path: Path):
    assert [finding.proposed for finding in _found(tmp_path, TOKENS.format(tokens="65,536"))] == ["131072"]
    assert _found(tmp_path, TOKENS.format(tokens="131,072")) == []


BINDING = """# One node with two sockets of 48 cores

| procs x threads | step | tok/s |
| --- | --- | --- |
| 1 x 96 | 12.8 s | 5,120 |
| 2 x 48 | 7.4 s | 8,856 |
| 4 x 24 | 7.2 s | 9,102 |
| 8 x {threads} | 7.3 s | 8,977 |
| 16 x 6 | 8.1 s | 8,090 |
"""


def test_processes_and_threads_fill_the_cores_of_a_node(tmp_path: Path):
    assert _told(_found(tmp_path, BINDING.format(threads=21))) == [(8, "8 x 21", "8 x 12")]
    assert _found(tmp_path, BINDING.format(threads=12)) == []


@pytest.mark.parametrize(("days", "meant"), [("0.6", "13"), ("13", None), ("12", None)])
def test_a_run_lasts_as_long_as_its_tokens_at_the_rate_beside_them(tmp_path: Path, days: str, meant: str | None):
    found = _found(tmp_path, f"# Plan\n\nA full 12 B token run at 10500 tok/s would take {days} days on one node.\n")
    assert [finding.proposed for finding in found] == ([meant] if meant else [])


EPOCH = """# Fine-tuning

| run | bs | samples/s |
| --- | --- | --- |
| q1 | 1 | 0.587 |
| q2 | 2 | 0.618 |
| q3 | 4 | 0.640 |

The set has 48 000 samples; with q3 an epoch is {hours} hours.
"""


def test_an_epoch_lasts_as_long_as_its_samples_at_the_rate_of_the_row(tmp_path: Path):
    assert [finding.proposed for finding in _found(tmp_path, EPOCH.format(hours="1250"))] == ["20.8"]
    assert _found(tmp_path, EPOCH.format(hours="20.8")) == []


def test_a_feed_forward_is_told_by_the_digits_of_the_parameters(tmp_path: Path):
    text = "# Card\n\nDecoder-only, 40 layers, hidden size 5120, intermediate {ffn}, 40 heads: 13.0 B parameters.\n"
    assert _told(_found(tmp_path, text.format(ffn=18324))) == [(3, "18324", "13824")]
    assert _found(tmp_path, text.format(ffn=13824)) == []


def test_active_parameters_are_not_more_than_all(tmp_path: Path):
    text = "# Mixture\n\n| | |\n|---|---|\n| layers | 28 |\n| total parameters | 15.7 B |\n| active parameters | {} B |\n"
    assert _told(_found(tmp_path, text.format("24.1"))) == [(7, "24.1", "2.41")]
    assert _found(tmp_path, text.format("2.41")) == []


SCALING = """# 集群

全局批 1024。

| 台数 | 卡数 | 秒/步 | tokens/s |
| ---: | ---: | ---: | ---: |
| 2 | 16 | 82.22 | 5.10 万 |
| 4 | 32 | 42.21 | {rate} |
| 8 | 64 | 21.51 | 19.50 万 |
| 16 | 128 | 11.14 | 37.66 万 |
"""


def test_ten_thousands_are_read_and_missed_where_they_are_missing(tmp_path: Path):
    assert _told(_found(tmp_path, SCALING.format(rate="9.94"))) == [(8, "9.94", "9.94 万")]
    assert _found(tmp_path, SCALING.format(rate="9.94 万")) == []


SHARES = """# Rig

Peaks: 70 TFLOP/s for the old card and 160 for the new one.

| card | GPUs | tokens/s | MFU |
| --- | ---: | ---: | ---: |
| old | 1 | 14,000 | 42.4 % |
| old | 2 | 28,100 | 42.6 % |
| old | 4 | 56,000 | 42.4 % |
| new | 4 | 130,000 | {mfu} % |
| new | 4 | 131,000 | 43.3 % |
"""


def test_a_share_that_no_training_reaches_is_over_the_peak_of_another_card(tmp_path: Path):
    assert _told(_found(tmp_path, SHARES.format(mfu="98.3"))) == [(10, "98.3 %", "43.0%")]
    assert _found(tmp_path, SHARES.format(mfu="43.0")) == []


SHIFTED = """date,gpu,gpus,tp,pp,dp,mbs,ga,gbs,iter_s,tokens_per_s,tflops,mfu,peak_mem_gb,status
04-28,h100,8,1,1,8,4,8,256,2.462,212927,476.9,48.2,47.6,ok
04-28,h100,16,1,1,16,4,8,512,2.515,416954,466.9,47.2,45.4,ok
04-28,h100,32,1,1,32,4,8,1024,2.531,828648,464.0,46.9,44.9,ok
04-28,h100,64,1,1,64,4,4,1024,,1.290,1625690,455.1,46.0,ok
04-28,a100,8,1,1,8,4,8,256,7.306,71762,160.7,51.5,47.7,ok
04-28,a100,16,1,1,16,4,8,512,7.299,143669,160.9,51.6,45.5,ok
"""


def test_cells_moved_beside_a_column_of_names_that_reads_as_a_count(tmp_path: Path):
    found = _found(tmp_path, SHIFTED, "bench.csv")
    assert [(finding.line, finding.code, finding.printed, finding.proposed) for finding in found] == [
        (5, "cells-shifted", "1.290", "1625690")]  # fmt: skip


ARROW = """# Pods

8B, context 8192.

| chips | global batch | step time | tok/s/chip |
|--:|--:|--:|--:|
| 16 | 32 | 4.18 s | 3,920 |
| 32 | 64 | 4.25 s | 3,855 |
| 64 | 128 | 4.23 s | 3,873 |
| 256 | 1024 | 8.55 s | {rate} |
"""


def test_what_stands_behind_an_arrow_is_the_figure_of_the_row(tmp_path: Path):
    assert _found(tmp_path, ARROW.format(rate="3,498 → 3,833")) == []
    assert [finding.line for finding in _found(tmp_path, ARROW.format(rate="3,498"))] == [10]


def test_the_batch_of_the_text_says_nothing_of_what_is_planned(tmp_path: Path):
    text = """# Strong scaling

Global batch 1024, TP 8, micro batch 2.

| GPUs | DP | s/step |
| ---: | ---: | ---: |
| 64 | 8 | 34.60 |
| 128 | 16 | 17.99 |
| 256 | 32 | 9.21 |
| 384 | 48 | planned |
"""
    assert _found(tmp_path, text) == []


TWO_WAYS = """# Search

8 nodes of 8 H100. GPT, 24 layers, hidden 4096, 32 heads, sequences of 2048, vocabulary 51200, global batch 512.

TF per GPU = F/(t·64), with F = 72·B·s·l·h²·(1 + s/6h + V/12lh) and, where rc is `y`, F = 96·B·s·l·h²·(1 + s/6h + V/16lh).

| TP | PP | DP | MBS | rc | s/it | TF |
| --- | --- | --- | --- | --- | --- | --- |
| 8 | 1 | 8 | 1 | n | 10.31 | 51.9 |
| 8 | 1 | 8 | 2 | n | 9.87 | 54.2 |
| 4 | 2 | 8 | 1 | n | 10.05 | 53.3 |
| 4 | 2 | 8 | 2 | n | 9.76 | 54.8 |
| 4 | 4 | 4 | 2 | y | {time} | 54.7 |
| 8 | 1 | 8 | 4 | y | 12.48 | 56.6 |
| 2 | 4 | 8 | 1 | n | 10.22 | 52.4 |
"""


def test_each_row_is_counted_by_the_formula_of_its_own_cell(tmp_path: Path):
    assert _found(tmp_path, TWO_WAYS.format(time="12.91")) == []
    found = _found(tmp_path, TWO_WAYS.format(time="9.76"))  # of the row above
    assert _told(found) == [(13, "9.76", "12.92")] and "line 12" in found[0].message


SHAPE_ABOVE = """# Engines for the 13B

40 layers, hidden 5120, ffn 13824, 40 heads, 32k vocabulary (13.0 B).

## A

4 nodes × 8 A100 80 GB. Sequence length {seq}, batch 256. TFLOP/s per GPU, 6N + 12·l·h·s.

| layout | mbs | ga | s/iter | TFLOP/s |
| --- | --- | --- | --- | --- |
| tp2 pp2 dp8 | 1 | 32 | 19.35 | 149 |
| tp4 pp1 dp8 | 1 | 32 | 19.30 | 149 |
| tp4 pp1 dp8 | 2 | 16 | 18.63 | 155 |
| tp8 pp1 dp4 | 2 | 32 | 18.82 | 153 |
"""


def test_parameters_that_a_label_rounds_are_those_of_its_model(tmp_path: Path):
    assert [(finding.line, finding.proposed) for finding in _found(tmp_path, SHAPE_ABOVE.format(seq=2048))] == [(7, "4096")]
    assert _found(tmp_path, SHAPE_ABOVE.format(seq=4096)) == []


COUNTED_ABOVE = """# Layouts

{where}. Sequence 4096, batch 256.

| DP | TP | PP | MBS | accum | s/step |
|---:|---:|---:|---:|---:|---:|
| 16 | 1 | 1 | 1 | 16 | 9.10 |
| 8 | 2 | 1 | 1 | 32 | 9.42 |
| 4 | 4 | 1 | 2 | 32 | 9.77 |
| {dp} | 2 | 2 | 1 | 64 | 9.83 |
| 2 | 4 | 2 | 2 | 64 | 9.91 |
"""


@pytest.mark.parametrize("where, dp, wrong", [("Two nodes, 16 A100", 8, True), ("Two nodes, 16 A100", 4, False),
                                              ("Our cluster", 4, False)])  # fmt: skip
def test_a_layout_of_another_number_of_devices_than_the_text_counts(tmp_path: Path, where: str, dp: int, wrong: bool):
    found = _found(tmp_path, COUNTED_ABOVE.format(where=where, dp=dp))
    assert [finding.line for finding in found] == ([10] if wrong else [])


@pytest.mark.parametrize("said, right", [("4 per node", "8"), ("8 per node", None), ("4 cards = 8 GCDs per node", None),
                                         ("16 sequences per node", None)])  # fmt: skip
def test_devices_of_a_node_that_no_row_has(tmp_path: Path, said: str, right: str | None):
    rows = "".join(f"| {n} | {8 * n} | {9.1 + n / 100:.2f} |\n" for n in (1, 2, 4, 8))
    found = _found(tmp_path, f"# Sweep\n\nGCDs: {said}.\n\n| nodes | GPUs | s/step |\n|---|---|---|\n{rows}")
    assert [(one.line, one.proposed) for one in found] == ([(3, right)] if right else [])


@pytest.mark.parametrize("said, right", [("v5p-256 (256 chips)", "128"), ("v5p-256 (128 chips)", None),
                                         ("v5e-64, 64 chips", None)])  # fmt: skip
def test_chips_of_a_slice_are_those_of_its_name(tmp_path: Path, said: str, right: str | None):
    rows = "| batch | s/step |\n|---|---|\n| 64 | 2.1 |\n| 128 | 4.0 |\n"
    found = _found(tmp_path, f"# Study\n\nAll on one slice, {said}.\n\n{rows}")
    assert [one.proposed for one in found] == ([right] if right else [])


def test_memory_with_a_digit_too_many_is_what_rows_around_need(tmp_path: Path):
    note = ["# One H100 80 GB node", "", "| MBS | GBS | s/step | Mem [GiB] |", "|---|---|---|---|", "| 1 | 64 | 9.11 | 31.2 |",
            "| 2 | 64 | 8.73 | 36.9 |", "| 4 | 64 | 8.52 | 148.3 |", "| 8 | 64 | 8.44 | 71.0 |"]  # fmt: skip
    assert _told(_found(tmp_path, "\n".join(note))) == [(7, "148.3", "48.3")]


def test_devices_that_a_layout_does_not_fill_are_a_number_that_people_have(tmp_path: Path):
    rows = [(64, 4, 2, 4.1), (36, 4, 2, 8.2), (32, 2, 4, 8.1), (128, 8, 2, 2.2)]
    note = "| GPUs | TP | PP | s/step |\n|---|---|---|---|\n" + "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)
    assert [(one.line, one.proposed) for one in _found(tmp_path, note)] == [(4, "32")]


def test_a_batch_that_all_other_rows_have_is_meant(tmp_path: Path):
    rows = [("a", 4, 8, 32), ("b", 2, 16, 32), ("c", 1, 32, 32), ("d", 2, 16, 32), ("e", 2, 16, 16), ("f", 4, 8, 32),
            ("g", 1, 32, 32), ("h", 8, 4, 32)]  # fmt: skip
    note = "One GPU.\n\n| model | micro | accum | eff. batch | s/step |\n|---|---|---|---|---|\n" + "".join(
        f"| {' | '.join(map(str, row))} | {5 + len(row[0]) + at / 7:.2f} |\n" for at, row in enumerate(rows))
    assert [(one.line, one.proposed) for one in _found(tmp_path, note)] == [(9, "32")]


def test_a_batch_beside_accumulation_is_of_all_devices_where_the_rates_say_so(tmp_path: Path):
    rows = [(16, 16, 128, 4, 3.00, 42.7), (32, 32, 256, 4, 3.03, 84.5), (64, 64, 256, 4, 3.05, 167.9),
            (128, 128, 1024, 4, 3.09, 331.4), (256, 256, 2048, 4, 3.14, 652.2)]  # fmt: skip
    note = "Micro-batch 2, sequences of 2048.\n\n"
    note += "| GPUs | DP | batch | accum | s/step | samples/s |\n|---|---|---|---|---|---|\n" + "".join(
        f"| {' | '.join(map(str, row))} |\n" for row in rows)
    assert [(one.line, one.column, one.proposed) for one in _found(tmp_path, note)] == [(7, "batch", "512")]


@pytest.mark.parametrize("row, right", [("A100 | 4 | 16 | 8 | 4 | 1024 | 4.01 | 522978", "32"),
                                        ("A100 | 4 | 32 | 8 | 1024 | 4 | 4.01 | 522978", "4")])  # fmt: skip
def test_counts_of_a_row_are_those_of_its_device_and_of_their_own_columns(tmp_path: Path, row: str, right: str):
    rows = ["V100 | 1 | 4 | 4 | 8 | 128 | 12.32 | 21278", "V100 | 4 | 16 | 4 | 8 | 512 | 13.05 | 80350",
            "A100 | 1 | 8 | 8 | 4 | 256 | 3.90 | 134433", "A100 | 2 | 16 | 8 | 4 | 512 | 3.95 | 265463",
            "A100 | 8 | 64 | 8 | 2 | 1024 | 2.10 | 998644", "V100 | 8 | 32 | 4 | 8 | 1024 | 13.20 | 158875", row]  # fmt: skip
    note = "Sequences of 2048.\n\n"
    note += "| GPU | nodes | GPUs | MBS | accum | GBS | s/step | tokens/s |\n|---|---|---|---|---|---|---|---|\n"
    found = _found(tmp_path, note + "".join(f"| {one} |\n" for one in rows))
    assert {one.line for one in found} == {11} and found[0].proposed == right


BY_THE_BATCH = """# FP8, Layout is TP·PP·DP

| model | GPUs | layout | mbs | grad acc | gbs | ms/it |
|---|---|---|---|---|---|---|
| Llama-3 8B | 32 | 1·1·32 | 2 | 4 | 256 | 3,704 |
| Llama-3 8B | 32 | 2·1·16 | 2 | 8 | 256 | 3,816 |
| Llama-2 13B | 32 | 2·1·16 | 2 | 8 | 256 | 5,829 |
| Qwen2.5-32B | 64 | 4·2·8 | 1 | 32 | 256 | 7,457 |
| Llama-3 70B | 128 | 4·4·8 | 1 | 32 | 256 | 8,145 |
| Llama-3 70B | 128 | 8·2·8 | 1 | 32 | 256 | 8,078 |
"""
BY_THE_WEEK = """# Weeks of one run, TP 8, PP 4

| week | GPUs | DP | batch | steps | s/step |
|---|---|---|---|---|---|
| 1 | 1024 | 32 | 1024 | 63,802 | 8.5 |
| 2 | 1024 | 32 | 1024 | 66,924 | 8.5 |
| 3 | 1024 | 32 | 1024 | 54,603 | 8.5 |
| 4 | 1024 | 32 | 2048 | 34,973 | 16.5 |
| 5 | 896 | 28 | 1792 | 31,605 | 17.0 |
| 6 | 896 | 28 | 1792 | 33,230 | 17.1 |
| 7 | 1024 | 32 | 2048 | 35,562 | 16.5 |
"""
BY_THE_METHOD = """# 64K context, TP 1

| method | GPUs | CP | DP | step (s) | tok/s/GPU |
|---|---|---|---|---|---|
| ring | 32 | 4 | 8 | 8.02 | 4,086 |
| zigzag | 32 | 4 | 8 | 7.06 | 4,641 |
| all-gather KV | 32 | 4 | 8 | 6.99 | 4,691 |
| Ulysses | 32 | 4 | 8 | 6.87 | 4,770 |
| zigzag | 64 | 8 | 8 | 3.63 | 4,513 |
| all-gather KV | 64 | 8 | 8 | 3.58 | 4,582 |
| Ulysses | 64 | 8 | 8 | 3.49 | 4,701 |
"""


@pytest.mark.parametrize(("note", "right", "wrong", "line", "proposed"), [
    (BY_THE_BATCH, "4·4·8", "4·4·4", 9, "4·4·8"), (BY_THE_WEEK, "896 | 28 | 1792 | 31", "896 | 32 | 1792 | 31", 9, "28"),
    (BY_THE_METHOD, "64 | 8 | 8 | 3.63", "64 | 4 | 8 | 3.63", 9, "8")])
def test_the_batch_and_the_other_rows_say_which_side_of_a_layout_is_wrong(
        tmp_path: Path, note: str, right: str, wrong: str, line: int, proposed: str):  # fmt: skip
    assert _found(tmp_path, note) == []
    assert [(one.line, one.proposed) for one in _found(tmp_path, note.replace(right, wrong))] == [(line, proposed)]


def test_the_parameters_of_a_device_are_those_of_the_model_over_its_parts(tmp_path: Path):
    note = ("# Memory\n\n| model | TP | PP | DP | GPUs | params/GPU | total |\n|---|---|---|---|---|---|---|\n"
            "| 7B | 1 | 1 | 256 | 256 | 7.00 | 28.33 |\n| 13B | 2 | 1 | 256 | 512 | 6.50 | 26.30 |\n"
            "| 13B | 1 | 4 | 128 | 512 | 3.25 | 13.30 |\n| 40B | 4 | 4 | 64 | 1024 | 2.50 | 10.47 |\n")  # fmt: skip
    assert _found(tmp_path, note) == []
    (told,) = _found(tmp_path, note.replace("4 | 4 | 64", "4 | 8 | 64"))
    assert told.line == 8 and "one cell is wrong, TP 2, PP 4 would each do" in told.message


def test_memory_that_a_failed_run_wanted_is_none_that_the_device_has(tmp_path: Path):
    note = ("# H100 80GB\n\n| policy | mbs | s/step | GB |\n|---|---|---|---|\n| full | 4 | 16.44 | 21.2 |\n"
            "| none | 1 | 3.22 | 44.3 |\n| none | 4 | OOM | 101.3 wanted |\n")  # fmt: skip
    assert _found(tmp_path, note) == []
    assert [one.code for one in _found(tmp_path, note.replace("44.3", "144.3"))] == ["memory-over-capacity"]


SET_BY_GAPS = """Model of 32 layers, hidden size 2560, vocabulary 50304, sequences of 2048.

B. Other layouts of 8 nodes (64 A100), micro-batch 4, batch 1024

run   TP  PP  DP  accum  s/step  ktok/s  TFLOPS  MFU,%
------------------------------------------------------
B1     2   1  32      8    3.91   536.4   133.3   42.7
B2     4   1  16     16    4.24   494.6   123.0   39.4
B3     8   1  {dp}     32    5.20   403.3   100.3   32.1
B4     1   2  32      8    3.86   543.3   135.1   43.3
B5     2   2  16     16    3.99   525.6   {tflops}   41.9
B6     1   4  16     16    4.17   502.9   125.0   40.1
"""


@pytest.mark.parametrize(("dp", "tflops", "line", "printed", "proposed"), [
    (" 8", "130.7", None, None, None), ("16", "130.7", 9, "16", "8"), (" 8", "174.3", 11, "174.3", "130.7"),
])  # fmt: skip
def test_what_stands_over_a_table_set_by_gaps_is_of_it_and_one_wrong_layout_makes_no_aggregate(
        tmp_path: Path, dp: str, tflops: str, line: int, printed: str, proposed: str):
    said = _told(_found(tmp_path, SET_BY_GAPS.format(dp=dp, tflops=tflops), "log.txt"))
    assert said == ([(line, printed, proposed)] if line else [])


MESHES = """H100, sequences of 2048, micro-batch 4.

| model | nodes | GPUs | TP×PP×DP | accum | batch | ms/step | tokens/s |
|---|---|---|---|---|---|---|---|
| 1.3B | 1 | 4 | 1×1×4 | 16 | 256 | 2528 | 207,392 |
| 1.3B | 2 | 8 | {mesh} | 16 | 512 | 2575 | 407,214 |
| 1.3B | 4 | 16 | 1×1×16 | 8 | 512 | 1289 | 813,480 |
| 6.7B | 8 | 32 | 2×1×16 | 16 | 1024 | 6181 | 339,290 |
| 13B | 8 | 32 | 4×1×8 | 16 | 512 | 6220 | 168,581 |
"""


def test_of_a_mesh_in_one_cell_the_whole_cell_is_shown(tmp_path: Path):
    assert _found(tmp_path, MESHES.format(mesh="1×1×8")) == []
    (found,) = _found(tmp_path, MESHES.format(mesh="1×1×4"))
    assert (found.line, found.column, found.printed, found.proposed) == (6, "TP×PP×DP", "1×1×4", "1×1×8")


EXPORT = """name,n_gpus,tp,pp,dp,mbs,accum,gbs,seq_len,step_time_s,tokens_per_s
7B_a100x32_tp1pp1_s4k,32,1,1,32,4,4,512,4096,20.831,100675
7B_a100x32_tp2pp1_s4k,32,2,1,16,4,8,512,4096,21.756,96394
7B_a100x64_tp1pp1_s4k,64,1,1,64,4,4,1024,4096,21.202,197827
13B_a100x64_tp2pp2_s4k,64,2,2,16,2,16,512,4096,20.746,101087
13B_a100x64_tp4pp1_s4k,64,{tp},1,{dp},2,16,512,4096,21.323,98351
13B_a100x128_tp2pp2_s4k,{gpus},2,2,32,2,16,1024,4096,20.976,199957
13B_a100x64_tp1pp4_s8k,64,1,4,16,2,16,512,{seq},41.123,101990
"""


@pytest.mark.parametrize(("cells", "line", "printed", "proposed"), [
    ({}, None, None, None), ({"gpus": 64}, 7, "64", "128"), ({"tp": 16, "dp": 4}, 6, "16", "4"),
    ({"seq": 4096}, 8, "4096", "8192"),
])  # fmt: skip
def test_names_of_runs_that_carry_settings_tell_which_cell_is_wrong(
        tmp_path: Path, cells: dict[str, int], line: int, printed: str, proposed: str):
    note = EXPORT.format(**{"gpus": 128, "tp": 4, "dp": 16, "seq": 8192} | cells)
    assert _told(_found(tmp_path, note, "runs.csv")) == ([(line, printed, proposed)] if line else [])


def test_names_that_carry_something_else_deny_nothing(tmp_path: Path):
    note = EXPORT.format(gpus=128, tp=4, dp=16, seq=8192)
    for old, new in (("_tp1pp1", "_v3"), ("_tp2pp1", "_tp9 try"), ("_tp2pp2", "_tp7"), ("_tp4pp1", "_tp5")):
        note = note.replace(old, new)
    assert _found(tmp_path, note, "runs.csv") == []


PHASES = """# Model card

All on H100-80GB, 989.4 TFLOP/s; model FLOPs are 6N per token. The 7B saw 2.35 T tokens in all, and the 13B 3.72 T.

| model | phase | GPUs | tokens | throughput | MFU | days | GPU-hours |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| Dunlin-1.3B | main | 64 | 0.50 T | 3.071 M/s | 38.9 % | 1.88 | 2,895 |
| Dunlin-7B | main | 256 | 2.00 T | 2.607 M/s | 43.2 % | {days} | 54,559 |
| Dunlin-7B | anneal | 256 | 0.25 T | 2.631 M/s | 43.6 % | 1.10 | 6,756 |
| Dunlin-13B | main | 512 | 2.80 T | {rate} | 43.2 % | 11.64 | 142,985 |
| Dunlin-13B | anneal | 512 | 0.35 T | 2.774 M/s | 43.0 % | 1.46 | 17,944 |
"""


@pytest.mark.parametrize(("cells", "line", "printed", "proposed"), [
    ({}, None, None, None), ({"days": "5.55"}, 8, "5.55", "8.88"), ({"rate": "27.85 M/s"}, 10, "27.85 M/s", "2.785"),
])  # fmt: skip
def test_millions_a_second_are_tokens_and_a_ratio_of_the_text_excuses_no_days(
        tmp_path: Path, cells: dict[str, str], line: int, printed: str, proposed: str):
    note = PHASES.format(**{"days": "8.88", "rate": "2.785 M/s"} | cells)
    found = [(one.line, one.printed, (one.proposed or "")[:5].rstrip("M ")) for one in _found(tmp_path, note)]
    assert found == ([(line, printed, proposed)] if line else [])


def test_bytes_of_a_number_are_no_billions(tmp_path: Path):
    note = "The logits in fp32 take 4 × 2048 × 32000 × 4 B = {} GB.\n\n| TP | s/step |\n|---|---|\n| 1 | 9.1 |\n"
    assert _found(tmp_path, note.format("1.05")) == []
    assert [one.proposed for one in _found(tmp_path, note.format("1.50"))] == ["1.05"]


BOXES = """rook has two RTX 4090 (165 TF), pawn four RTX 3090 (71 TF). GPT-2 medium, 355M, sequences of 1024.

| box | mbs | acc | GPUs | s/it | tok/s | mfu |
|---|---|---|---|---|---|---|
| pawn | 4 | 32 | 4 | 10.00 | 52.4k | 39.2% |
| rook | 8 | 32 | 2 | 8.40 | 62.4k | 40.1% |
| pawn | 4 | 64 | 2 | 19.44 | 27.0k | 40.3% |
"""


def test_a_share_of_the_peak_that_nobody_uses_is_no_correction(tmp_path: Path):
    assert {one.level for one in _found(tmp_path, BOXES)} == {"warning"}


FOURTH = """# 405B trials, H100

126 layers x 16384, 128 heads / 8 kv. Embedding and head: 7 + 14 stages of 8 + 7 = 126.

|  | t1 | t4 | t5 |
|---|---|---|---|
| GPUs | 1024 | 4096 | 4096 |
| TP | 8 | 8 | 8 |
| TFLOPS/GPU | 260 | 259 | 307 |
| rank 0 GiB | 65 | 62 | 65 |
"""
FAILED = """64 H100, GBS 128.

| TP×PP×DP | mbs | recompute | offload | weights | s/it | TFLOPS |
|---|---|---|---|---|---|---|
| 8×1×8 | 1 | full | - | 16.4 | OOM (init) |  |
| 8×2×4 | 2 | none | - | 8.2 | OOM (1st fwd) |  |
| 8×4×2 | 1 | selective | - | 4.1 | 19.9 | 348 |
| 8×4×2 | 1 | full | - | 4.1 | 22.6 | 307 |
"""
LENGTHS = """| Model | Machine | Batch (seq × len) | Step | Tokens/s |
|---|---|---|---|---|
| 7B | 64 × A100 | 256 × 4096 | 4.17 s | 252.1k |
| 7B | 64 × H100 | 512 × 4096 | 3028 ms | 10813 per GPU |
| 13B | 32 × A100 | 128 × 4096 | 8.80 s | 59.6k |
| 8B | 512 × H200 | 512 × 8192 | 1042 ms | 7850 per GPU |
"""
SCRIPT = """JobID,NGPU,tensor,pipe,data,mb,accum,gb,iter_ms
1,8,1,1,8,1,32,256,6378.5
2,8,1,1,8,2,16,256,6211.0
3,8,2,1,4,2,32,256,6702.2
4,8,4,1,2,2,64,256,7012.9
"""
CLAUSES = """| run | ZeRO | tok/s | GiB |
|---|---|---|---|
| D | 1 | 68255 | 18.8 |
| E | 3 | 62808 | 15.1 |
| F | 2 | 67300 | 17.7 |

With ZeRO 3 (E) we lose 8.0 % against ZeRO 1 (D), but save 3.7 GiB per GPU.
"""


@pytest.mark.parametrize("note", [FOURTH, FAILED, LENGTHS, CLAUSES])
def test_odd_and_right(tmp_path: Path, note: str):
    """The fourth of several runs is no T4, a run that failed is not shifted, a batch may have its length and a rate its device
    in the cell, and a ratio is of its own clause."""
    assert [one for one in _found(tmp_path, note) if one.level == "error"] == []


def test_batches_of_a_script_are_no_memory(tmp_path: Path):
    path = tmp_path / "sweep.csv"
    path.write_text(SCRIPT, encoding="utf-8")
    rows = lint.look_at([str(path)])[1].rows
    assert [(row.record.mbs, row.record.gbs, row.record.mem_gib) for row in rows] == [
        (1, 256, None), (2, 256, None), (2, 256, None), (2, 256, None)]  # fmt: skip
