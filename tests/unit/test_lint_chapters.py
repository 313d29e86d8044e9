"""A file of several chapters: what one of them says, and how it writes, is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import look_at
from seatrial.notes.read import import_file

METRIC = """
A100 40 GB, 4 je Knoten, Sequenzlänge 2048.

| GPUs | Batch | s/Schritt | Token/s | Speicher (GiB) |
|---|---|---|---|---|
| 8 | 64 | 3,870 | 33.868 | 23,9 |
| 16 | 128 | 3,926 | 66.771 | 24,2 |
| 32 | 256 | 4,011 | 130.713 | 24,4 |
"""
ENGLISH = """
H100 80 GB, sequence length 4096. tokens/s is per GPU.

| GPUs | batch | s/step | tokens/s | mem (GiB) |
|---|---|---|---|---|
| 8 | 128 | 9.62 | 6,812 | 61.2 |
| 16 | 256 | 9.71 | 6,749 | 60.9 |
| 32 | 512 | 9.88 | 6,633 | 60.7 |
"""


def chapters(path: Path, *texts: str, level: int = 1, parted: bool = False) -> Path:
    mark = "#" * level
    parts = [f"{mark} Part {name}\n" + (f"{text}\n{mark}# Next\n\nNothing yet.\n" if parted else text)
             for name, text in zip("ABC", texts)]  # fmt: skip
    path.write_text(("# Notes\n\nOf two machines.\n\n" if level > 1 else "") + "\n".join(parts), encoding="utf-8")
    return path


@pytest.mark.parametrize(("level", "parted"), [(1, False), (1, True), (2, True), (2, False)])
@pytest.mark.parametrize("texts", [(METRIC, ENGLISH), (ENGLISH, METRIC)])
def test_chapters_say_nothing_of_each_other(tmp_path: Path, texts: tuple[str, str], level: int, parted: bool):
    path = chapters(tmp_path / "notes.md", *texts, level=level, parted=parted)
    found, sheet = look_at([str(path)])
    assert [f for f in found if f.level != "info"] == []
    assert {row.file for row in sheet.rows} == {str(path)}
    rates = {(row.record.gpus, row.record.tokens_per_s, row.record.tokens_per_s_per_process) for row in sheet.rows}
    assert {(8, 33868, None), (8, None, 6812)} <= rates


def test_a_slip_is_found_in_its_chapter(tmp_path: Path):
    path = chapters(tmp_path / "notes.md", METRIC, ENGLISH.replace("6,749", "6,479"))
    found = [f for f in look_at([str(path)])[0] if f.level == "error"]
    assert [(f.file, f.printed, f.proposed) for f in found] == [(str(path), "6,479", "6749")]
    assert "6,479" in path.read_text(encoding="utf-8").split("\n")[(found[0].line or 0) - 1]


def test_what_stands_above_all_chapters_speaks_for_them(tmp_path: Path):
    said = "seq_len = 4096\n\n"
    short = ENGLISH.replace(", sequence length 4096", "")
    path = tmp_path / "notes.md"
    path.write_text(f"{said}# Setup\n\n8 GPUs per node.\n\n# One\n{short}\n# Two\n{short}", encoding="utf-8")
    records = import_file(path).records
    assert len(records) == 6 and {record.seq for record in records} == {4096}
    assert [record.table for record in records] == [0, 0, 0, 1, 1, 1]
    assert [record.nodes for record in records] == [1, 2, 4] * 2


NO_DEVICE = """
Sequence length 4096.

| GPUs | batch | s/step | tokens/s | mem (GiB) |
|---|---|---|---|---|
| 8 | 128 | 9.62 | 54,500 | 61.2 |
| 16 | 256 | 9.71 | 107,989 | 60.9 |
"""
ELSEWHERE = "Another team has A100 (40 GB) and reports 39 % MFU; we did not repeat that.\n"


@pytest.mark.parametrize(("title", "said"), [("Related results", 0), ("Setup", 2)])
def test_a_section_without_rows_speaks_for_others_where_it_sets_them_up(tmp_path: Path, title: str, said: int):
    path = tmp_path / "notes.md"
    path.write_text(f"# Notes\n\n## Runs\n{NO_DEVICE}\n## {title}\n\n{ELSEWHERE}", encoding="utf-8")
    over = [f for f in look_at([str(path)])[0] if f.code == "memory-over-capacity"]
    assert len(over) == said


def test_a_legend_below_explains_the_rates_of_the_tables_above_it(tmp_path: Path):
    path = tmp_path / "notes.md"
    rows = NO_DEVICE.replace("54,500", "6,812").replace("107,989", "6,749")
    path.write_text(f"# Notes\n\n## Runs\n{rows}\n## Columns\n\ntokens/s is per GPU.\n", encoding="utf-8")
    assert [record.tokens_per_s_per_process for record in import_file(path).records] == [6812, 6749]
