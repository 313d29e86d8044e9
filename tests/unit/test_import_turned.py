"""Tables whose runs stand side by side: settings above the columns, units in a column of their own, columns that are no run."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.read import import_file
from seatrial.notes.read.composed import composed
from seatrial.record import Record


def read(tmp_path: Path, text: str, name: str = "notes.md") -> list[Record]:
    path = tmp_path / name
    path.write_text(text)
    return list(import_file(path).records)


def turned(*heads: str) -> str:
    return (f"| {' | '.join(heads)} |\n{'|--' * len(heads)}|\n"
            "| step time (s) | 21.12 | 10.66 |\n| tokens/s | 99.3k | 196.7k |\n")


@pytest.mark.parametrize(("heads", "field", "values"), [
    (("", "4 nodes", "8 nodes"), "nodes", [4, 8]), (("metric", "32 GPUs", "64 GPUs"), "gpus", [32, 64]),
    (("", "4 Knoten", "8 Knoten"), "nodes", [4, 8]), (("", "4ノード", "8ノード"), "nodes", [4, 8]),
    (("", "8K", "16K"), "seq", [8192, 16384]), (("", "seq 2048", "seq 4096"), "seq", [2048, 4096]),
    (("", "TP=4", "TP=8"), "tp", [4, 8]), (("", "mbs 1", "mbs 2"), "mbs", [1, 2]),
    (("", "7B", "13B"), "size_label", ["7B", "13B"]), (("", "A100", "H100"), "machine", ["A100", "H100"]),
    (("", "TP4 PP2", "TP8 PP1"), "pp", [2, 1]), (("", "8x A100", "16x A100"), "gpus", [8, 16]),
    (("GPUs", "8", "16"), "gpus", [8, 16]), (("nodes", "1", "2"), "nodes", [1, 2]),
])  # fmt: skip
def test_what_stands_above_the_columns_is_a_setting(tmp_path: Path, heads: tuple[str, ...], field: str, values: list[object]):
    rows = read(tmp_path, turned(*heads))
    assert [getattr(one, field) for one in rows] == values
    assert [(one.sec_per_it, one.tokens_per_s) for one in rows] == [(21.12, 99300), (10.66, 196700)]


@pytest.mark.parametrize("heads", [("", "min", "max"), ("", "mean", "std"), ("", "baseline", "ours"), ("", "p50", "p95"),
                                   ("", "week 1", "week 2")])  # fmt: skip
def test_two_rows_under_words_are_no_runs(tmp_path: Path, heads: tuple[str, ...]):
    assert read(tmp_path, turned(*heads)) == []


def test_a_matrix_of_one_measure_is_not_turned(tmp_path: Path):
    assert read(tmp_path, "| model | 8 GPUs | 16 GPUs |\n|--|--|--|\n| 7B | 5.1 | 5.2 |\n| 13B | 9.1 | 9.2 |\n") == []


def test_statistics_side_by_side_are_no_runs_however_many_they_are(tmp_path: Path):
    rows = "| nodes | 4 | 4 | 4 |\n| step time (s) | 1.1 | 1.2 | 1.3 |\n| tokens/s | 99 | 100 | 101 |\n"
    assert read(tmp_path, f"| | min | mean | max |\n|--|--|--|--|\n{rows}") == []


def test_units_in_a_column_of_their_own_and_columns_that_are_no_run(tmp_path: Path):
    text = """| metric | unit | before | after | change |
|--|--|--|--|--|
| GPUs | | 64 | 64 | |
| global batch | sequences | 512 | 512 | |
| step time | ms | 4120 | 3300 | -19.9 % |
| throughput | k tokens/s | 254.5 | 317.8 | +24.9 % |
| peak memory | GiB | 61.2 | 70.1 | |
"""
    first, second = read(tmp_path, text)
    assert (first.sec_per_it, first.tokens_per_s, first.mem_unit, first.gbs) == (4.12, 254_500, "GiB", 512)
    assert (second.sec_per_it, second.tokens_per_s) == (3.3, 317_800)


@pytest.mark.parametrize(("text", "fields"), [
    ("7B, 4 nodes, seq 4096", {"size_label": "7B", "nodes": 4, "seq": 4096}),
    ("16 nodes × 8 H100", {"nodes": 16, "procs_per_node": 8, "gpus": 128, "machine": "H100"}),
    ("4 nodes (32 GPUs)", {"nodes": 4, "procs_per_node": 8, "gpus": 32}), ("4 nodes (8 GPUs)", {"nodes": 4}),
    ("mbs 2, ga 16", {"mbs": 2, "accumulation": 16}), ("no recompute", {"recompute": "none"}),
    ("64x A100-80GB", {"gpus": 64, "machine": "A100-80GB"}), ("2×8×H100", {"nodes": 2, "procs_per_node": 8, "gpus": 16,
                                                                            "machine": "H100"}),
    ("run A", {}), ("GPU 0", {}), ("rank 3", {}), ("v0.6", {}), ("2024", {}), ("4096", {}), ("week 17", {}), ("p50", {}),
    ("TP4 and something else", {}), ("TP2 TP4", {}), ("7 apples", {}), ("100k", {}), ("step 100", {}),
])  # fmt: skip
def test_short_texts_that_are_settings_and_nothing_else(text: str, fields: dict[str, object]):
    assert composed(text) == fields
