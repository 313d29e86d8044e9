"""Columns and rows in groups: a setting over several columns, in their headings, or in a row alone above those it is of."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.read import import_file
from seatrial.record import Record

PIPED = """| | A100 | | H100 | |
|---|---|---|---|---|
| nodes | s/it | tok/s | s/it | tok/s |
| 4 | 8.1 | 258000 | 4.2 | 500000 |
| 8 | 4.3 | 486000 | 2.2 | 950000 |
"""
FLAT = """| nodes | A100 s/it | A100 tok/s | H100 s/it | H100 tok/s |
|---|---|---|---|---|
| 4 | 8.1 | 258000 | 4.2 | 500000 |
| 8 | 4.3 | 486000 | 2.2 | 950000 |
"""
BEHIND = """| nodes | s/it (A100) | tok/s (A100) | s/it (H100) | tok/s (H100) |
|---|---|---|---|---|
| 4 | 8.1 | 258000 | 4.2 | 500000 |
| 8 | 4.3 | 486000 | 2.2 | 950000 |
"""
HTML = """<table><tr><th rowspan=2>nodes</th><th colspan=2>A100</th><th colspan=2>H100</th></tr>
<tr><th>s/it</th><th>tok/s</th><th>s/it</th><th>tok/s</th></tr>
<tr><td>4</td><td>8.1</td><td>258000</td><td>4.2</td><td>500000</td></tr>
<tr><td>8</td><td>4.3</td><td>486000</td><td>2.2</td><td>950000</td></tr></table>
"""
LATEX = r"""\begin{tabular}{rrrrr}
 & \multicolumn{2}{c}{A100} & \multicolumn{2}{c}{H100} \\
nodes & s/it & tok/s & s/it & tok/s \\
\midrule
4 & 8.1 & 258000 & 4.2 & 500000 \\
8 & 4.3 & 486000 & 2.2 & 950000 \\
\end{tabular}
"""


def read(tmp_path: Path, text: str, name: str = "notes.md") -> list[Record]:
    path = tmp_path / name
    path.write_text(text)
    return list(import_file(path).records)


@pytest.mark.parametrize("text", [PIPED, FLAT, BEHIND, HTML, LATEX])
def test_a_setting_over_several_columns_is_of_a_row_for_each(tmp_path: Path, text: str):
    rows = read(tmp_path, text)
    assert [(one.machine, one.nodes, one.sec_per_it, one.tokens_per_s) for one in rows] == [
        ("A100", 4, 8.1, 258000), ("H100", 4, 4.2, 500000), ("A100", 8, 4.3, 486000), ("H100", 8, 2.2, 950000)]


@pytest.mark.parametrize(("groups", "field", "values"), [
    (("7B", "13B"), "size_label", ["7B", "13B"]), (("seq 2048", "seq 4096"), "seq", [2048, 4096]),
    (("TP=2", "TP=4"), "tp", [2, 4]), (("8 GPUs", "16 GPUs"), "gpus", [8, 16]), (("mbs 1", "mbs 2"), "mbs", [1, 2]),
])  # fmt: skip
def test_the_settings_of_groups(tmp_path: Path, groups: tuple[str, str], field: str, values: list[object]):
    text = FLAT.replace("A100", groups[0]).replace("H100", groups[1]).replace("nodes", "DP")
    assert [getattr(one, field) for one in read(tmp_path, text)][:2] == values


def test_an_empty_group_is_no_row(tmp_path: Path):
    rows = read(tmp_path, FLAT.replace("| 2.2 | 950000 |", "| - | - |"))
    assert [(one.machine, one.nodes) for one in rows] == [("A100", 4), ("H100", 4), ("A100", 8)]


@pytest.mark.parametrize("text", [
    "| nodes | A100 tok/s | H100 tok/s | ratio |\n|--|--|--|--|\n| 4 | 258000 | 500000 | 1.9 |\n| 8 | 486000 | 950000 | 2 |\n",
    "| nodes | before s/it | after s/it |\n|--|--|--|\n| 4 | 8.1 | 7.5 |\n| 8 | 4.3 | 4.1 |\n",
    "| nodes | A100 s/it | H100 tok/s |\n|--|--|--|\n| 4 | 8.1 | 500000 |\n| 8 | 4.3 | 950000 |\n",
])  # fmt: skip
def test_a_table_that_compares_or_mixes_stays_as_it_is(tmp_path: Path, text: str):
    assert all(not one.machine for one in read(tmp_path, text)) and len(read(tmp_path, text)) in (0, 2)


@pytest.mark.parametrize(("labels", "fields"), [
    (("*A100*", "*H100*"), ("machine",)), (("**7B, seq 4096**", "**13B, seq 2048**"), ("size_label", "seq")),
    (("seq 2048", "seq 4096"), ("seq",)), (("64x A100", "64x H100"), ("gpus", "machine")),
])  # fmt: skip
@pytest.mark.parametrize("wide", [False, True])
def test_a_row_alone_is_of_those_below_it(tmp_path: Path, labels: tuple[str, str], fields: tuple[str, ...], wide: bool):
    first, second = (f"| {' | '.join([label] * 4)} |" if wide else f"| {label} | | | |" for label in labels)
    text = f"| PP | TP | s/it | tok/s |\n|--|--|--|--|\n{first}\n| 4 | 1 | 8.1 | 258000 |\n{second}\n| 4 | 2 | 7.1 | 299000 |\n"
    rows = read(tmp_path, text)
    assert len(rows) == 2 and all(getattr(rows[0], name) != getattr(rows[1], name) or name == "gpus" for name in fields)
    assert all(getattr(one, name) for one in rows for name in fields)


def test_words_alone_in_a_row_stay(tmp_path: Path):
    text = "| nodes | TP | s/it |\n|--|--|--|\n| 4 | 1 | 8.1 |\n| to be run | | |\n| 8 | 2 | 7.1 |\n"
    assert [one.sec_per_it for one in read(tmp_path, text)] == [8.1, None, 7.1]
