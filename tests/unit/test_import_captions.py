"""Units that a sentence, a caption or a section heading gives for columns whose headings have none."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.read import import_file
from seatrial.record import Record

ROWS = "| {nodes} | GBS | {time} | {rate} | {mem} |\n|--|--|--|--|--|\n" \
       "| 4 | 512 | 8120 | 8060 | 61.2 |\n| 8 | 512 | 4110 | 7970 | 61.1 |\n"
ENGLISH = dict(nodes="nodes", time="step time", rate="throughput", mem="memory")


def read(tmp_path: Path, text: str, name: str = "notes.md") -> list[Record]:
    path = tmp_path / name
    path.write_text(text)
    return list(import_file(path).records)


@pytest.mark.parametrize(("text", "heads"), [
    ("All times in ms, throughput in tokens/s/GPU, memory in GiB.", ENGLISH),
    ("## Scaling (throughput in tok/s/GPU, step time in ms, memory in GiB)", ENGLISH),
    ("Table 3: Throughput (tokens/s/GPU), step time (ms) and peak memory (GiB).", ENGLISH),
    ("Step times are in milliseconds; memory is GiB; speed is tokens per second per GPU.", ENGLISH),
    ("Zeiten in ms, Speicher in GiB, Durchsatz in Token/s/GPU.",
     dict(nodes="Knoten", time="Zeit/Schritt", rate="Durchsatz", mem="Speicher")),
    ("Temps en ms, mémoire en Gio, débit en jetons/s/GPU.",
     dict(nodes="noeuds", time="temps", rate="débit", mem="mémoire")),
    ("時間はミリ秒、メモリは GiB、スループットはトークン/秒/GPU。",
     dict(nodes="ノード数", time="時間", rate="スループット", mem="メモリ")),
    ("时间单位为毫秒，显存单位为GiB，吞吐量单位：tokens/s/GPU。",
     dict(nodes="节点数", time="时间", rate="吞吐量", mem="显存")),
])  # fmt: skip
def test_units_of_the_text_around(tmp_path: Path, text: str, heads: dict[str, str]):
    for notes in (f"{text}\n\n{ROWS.format(**heads)}", f"{ROWS.format(**heads)}\n{text.lstrip('# ')}\n\n## Next\n"):
        first, second = read(tmp_path, notes)
        assert (first.sec_per_it, second.sec_per_it) == (8.12, 4.11), notes
        assert (first.tokens_per_s_per_process, first.mem_value, first.mem_unit) == (8060, 61.2, "GiB"), notes


@pytest.mark.parametrize("text", [
    "Compile times are in ms and left out here.", "Total time in ms, load time in ms.", "Times are not in ms.",
    "One step took 4110 ms on the old cluster.", "Times in ms or in s, as the tool prints them: times in s below.",
    "The host's memory is in MiB; throughput of the disk in tokens/s.",
])  # fmt: skip
def test_what_is_said_of_something_else_is_no_unit(tmp_path: Path, text: str):
    first, _ = read(tmp_path, f"{text}\n\n{ROWS.format(**ENGLISH)}")
    assert (first.sec_per_it, first.mem_unit or "") == (8120, "")


def test_a_heading_with_a_unit_and_a_cell_with_one_keep_them(tmp_path: Path):
    heads = ENGLISH | {"time": "step time (s)"}
    rows = ROWS.format(**heads).replace("61.2", "61.2 GB")
    first, second = read(tmp_path, f"Times in ms, memory in MiB.\n\n{rows}")
    assert (first.sec_per_it, first.mem_unit, second.mem_unit) == (8120, "GB", "MiB")


def test_a_section_and_a_caption_speak_for_their_own(tmp_path: Path):
    rows = ROWS.format(**ENGLISH)
    notes = f"# A\n\nTimes in ms.\n\n{rows}\n{rows}\n## B\n\n{rows}\n# C\n\nTable 4: step time (ms)\n\n{rows}\n{rows}"
    assert [one.sec_per_it for one in read(tmp_path, notes)[::2]] == [8.12, 8.12, 8.12, 8.12, 8120]


def test_thousands_of_tokens(tmp_path: Path):
    rows = "| nodes | GBS | throughput |\n|--|--|--|\n| 4 | 512 | 258.5 |\n"
    (first,) = read(tmp_path, f"Throughput is given in thousands of tokens per second.\n\n{rows}")
    assert first.tokens_per_s == 258_500
