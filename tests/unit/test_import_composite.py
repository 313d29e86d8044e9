"""Cells that say more than a number: units of any tongue, what is used of what there is, settings in one cell."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.notes.read import import_file
from seatrial.notes.read.parsing import read_cell
from seatrial.record import Record
from seatrial.tables.headings import read_heading


def read(tmp_path: Path, text: str) -> list[Record]:
    path = tmp_path / "notes.md"
    path.write_text(text)
    return list(import_file(path).records)


def table(*lines: str) -> str:
    head, *rows = lines
    return "\n".join([f"| {head} |", "|--" * (head.count("|") + 1) + "|", *(f"| {row} |" for row in rows)]) + "\n"


@pytest.mark.parametrize(("heading", "cell", "value", "unit"), [
    ("step time", "8.1秒", 8.1, "s"), ("step time", "2,61 сек", 2.61, "s"), ("step time", "8,1 Sek.", 8.1, "s"),
    ("step time", "410 мс", 0.41, "ms"), ("step time", "410 ミリ秒", 0.41, "ms"),
    ("memory", "61.2/80 GiB", 61.2, "GiB"), ("memory", "61GB/80GB", 61, "GB"), ("memory", "61.2 of 80 GB", 61.2, "GB"),
    ("memory", "61.2 GiB / 80 GiB (76%)", 61.2, "GiB"), ("memory", "61,2 ГБ", 61.2, "GB"),
    ("tok/s", "258.5 k/s", 258_500, ""), ("tok/s", "1.02 M/s", 1_020_000, ""),
    ("tok/s", "32,4 Tsd. Token/s", 32_400, "Token/s"),
    ("tok/s", "3.24万 tokens/s", 32_400, "tokens/s"), ("tok/s", "12,4 тыс. ток/с", 12_400, "ток/с"),
])  # fmt: skip
def test_units_in_cells(heading: str, cell: str, value: float, unit: str):
    found = read_cell(read_heading(heading), cell)
    assert (found.value, found.unit, found.unread) == (value, unit, "")


@pytest.mark.parametrize(("heading", "cell"), [
    ("memory", "62/40 GB"), ("step time", "8.1 GiB"), ("tok/s", "258 tok/s/GPU"), ("step time", "8.1/9.2"),
    ("tok/s", "258 k/m"),
    ("memory", "61.2/80/4"),
])  # fmt: skip
def test_other_cells_stay_unread(heading: str, cell: str):
    assert read_cell(read_heading(heading), cell).unread


@pytest.mark.parametrize(("heading", "cell", "fields"), [
    ("batch", "mbs 2, ga 16", {"mbs": 2}), ("nodes", "16 × 8", {"nodes": 16, "procs_per_node": 8}),
    ("nodes", "16 nodes x 8 H100", {"nodes": 16, "procs_per_node": 8}),
    ("model", "70B (8K)", {"size_label": "70B", "seq": 8192}),
    ("model", "13B, seq 4096", {"size_label": "13B", "seq": 4096}),
    ("hardware", "16 nodes × 8 H100", {"nodes": 16, "gpus": 128}), ("hardware", "64 x A100", {"gpus": 64}),
    ("run", "7B, 4 nodes, seq 4096", {"size_label": "7B", "nodes": 4, "seq": 4096}),
    ("setup", "TP=2, PP=4, mbs=1, 64 GPUs", {"tp": 2, "pp": 4, "mbs": 1, "gpus": 64}),
    ("workload", "GPT-2 XL, 8x A100 80GB", {"gpus": 8}), ("TP/PP/DP", "TP8/PP4/DP2", {"tp": 8, "pp": 4, "dp": 2}),
    ("config", "8K", {"seq": 8192}),
    ("tokens seen", "8K", {"seq": None}), ("run", "fast", {"size_label": ""}), ("data", "4096 tokens", {"seq": None}),
    ("batch", "two", {"mbs": None, "gbs": None}),
])  # fmt: skip
def test_settings_in_one_cell(tmp_path: Path, heading: str, cell: str, fields: dict[str, Any]):
    (row,) = read(tmp_path, table(f"{heading} | step time (s) | tok/s", f"{cell} | 1.82 | 258000"))
    assert {name: getattr(row, name) for name in fields} == fields and row.sec_per_it == 1.82


@pytest.mark.parametrize(("heading", "cells", "field", "value"), [
    ("Durchsatz", ("32,4 Token/s", "63,1 Token/s"), "tokens_per_s", 32.4),
    ("Schritt", ("8,1 s", "8,2 s"), "sec_per_it", 8.1),
    ("step", ("8.1", "8.25"), "sec_per_it", 8.1),
    ("speed", ("3.2k tok/s/GPU", "3.1k tok/s/GPU"), "tokens_per_s_per_process", 3200),
    ("tok/s", ("3.2k tok/s/GPU", "3.1k tok/s/GPU"), "tokens_per_s_per_process", 3200),
    ("step", ("60,000", "80,000"), "sec_per_it", None), ("step", ("100", "200"), "sec_per_it", None),
    ("target", ("3.2k tok/s", "3.1k tok/s"), "tokens_per_s", None), ("warm-up", ("8.1 s", "8.2 s"), "sec_per_it", None),
])  # fmt: skip
def test_a_unit_that_all_cells_have(tmp_path: Path, heading: str, cells: tuple[str, str], field: str, value: Any):
    rows = [f"{gpus} | {cell} | 0.4" for gpus, cell in zip((8, 16), cells)]
    assert getattr(read(tmp_path, table(f"GPUs | {heading} | MFU", *rows))[0], field) == value


@pytest.mark.parametrize(("heading", "cells", "fields"), [
    ("tok/s/GPU (MFU)", ("2,580 (41.2%)", "1,280 (40.2%)"), {"tokens_per_s_per_process": 2580, "mfu": 0.412}),
    ("tok/s/GPU / MFU", ("2580 / 41.2%", "1280 / 40.2%"), {"tokens_per_s_per_process": 2580, "mfu": 0.412}),
    ("GPUs (nodes)", ("64 (8)", "128 (16)"), {"gpus": 64, "nodes": 8}),
    ("batch (mbs×ga)", ("2×16", "2×8"), {"mbs": 2}), ("mbs x accum", ("2 x 16", "2 x 8"), {"mbs": 2}),
    ("job / GPUs", ("dense-3b / 64", "dense-8b / 128"), {"gpus": 64, "size_label": "dense-3b"}),
    ("memory (GB)", ("61.2 (76%)", "60.1 (75%)"), {"mem_value": 61.2, "mem_unit": "GB"}),
    ("tok/s/GPU (MFU)", ("2,580", "1,280"), {"tokens_per_s_per_process": 2580, "mfu": None}),
])  # fmt: skip
def test_two_things_in_one_column(tmp_path: Path, heading: str, cells: tuple[str, str], fields: dict[str, Any]):
    rows = [f"{cell} | 1.82 | 2.5" for cell in cells]
    (first, _) = read(tmp_path, table(f"{heading} | step time (s) | loss", *rows))
    assert {name: getattr(first, name) for name in fields} == fields


@pytest.mark.parametrize(("job", "fields"), [
    ("llama8b_bf16_tp1_a100", {"size_label": "llama8b", "tp": 1, "dtype": "bf16", "machine": "a100"}),
    ("gpt3_20b_tp2pp4", {"size_label": "gpt3_20b", "tp": 2, "pp": 4}), ("dense-1b7", {"size_label": "dense-1.7B"}),
    ("data=512 model=2", {"dp": 512, "tp": 2}), ("nightly_2025", {"size_label": "", "tp": None}),
])  # fmt: skip
def test_names_of_jobs_that_say_what_they_run(tmp_path: Path, job: str, fields: dict[str, Any]):
    (row,) = read(tmp_path, table("job | step time (s) | tok/s", f"{job} | 1.82 | 258000"))
    assert {name: getattr(row, name) for name in fields} == fields


GAPS = """no  zero  tp  dp  act   sum        s/step  tok/s/gpu
01  z1    1   32  1.1   96.0  OOM  -       -
02  z2    1   32  1.1   56.2  ok   81.5    402
03  z2    1   32  8.9   64.0  ok   50.0    655
"""


def test_a_column_that_gaps_part_and_that_has_no_heading(tmp_path: Path):
    first, second, third = read(tmp_path, GAPS)
    assert (first.state, first.zero_stage, second.zero_stage) == ("failed", 1, 2)
    assert [(one.sec_per_it, one.tokens_per_s_per_process) for one in (second, third)] == [(81.5, 402), (50.0, 655)]


@pytest.mark.parametrize(("cells", "seq", "time"), [(("4K", "8K"), 4096, None), (("4.1", "8.2"), None, 4.1)])
def test_a_letter_over_lengths_is_the_sequence(tmp_path: Path, cells: tuple[str, str], seq: Any, time: Any):
    first, _ = read(tmp_path, table("s | TP | tok/s", *(f"{cell} | 1 | 531953" for cell in cells)))
    assert (first.seq, first.sec_per_it) == (seq, time)
