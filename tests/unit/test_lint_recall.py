"""What an expert sees in small tables: a note, the line of its slip, and what stood there. As it should be, nothing is said."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at


@pytest.fixture
def lint(tmp_path: Path):
    def look(text: str) -> list[Finding]:
        path = tmp_path / "notes.md"
        path.write_text(text, encoding="utf-8")
        return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]

    return look


def table(text: str) -> str:
    """Headings, and a row on each line, in words between spaces; two spaces part cells."""
    head, *rows = [[cell.strip() for cell in line.strip().split("  ") if cell] for line in text.strip().splitlines()]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in [head, ["---"] * len(head), *rows])


UNIT = "MI300X, TP 1, 4096 tokens.\n\n" + table("""
    GPUs  GBS  s/step  tok/s/GPU  GiB
    16  1024  30.01  8736  141
    32  1024  14.83  8838  139
    64  1024  7.78  8424  138
""")
COUNTED = "Llama 2, sequence 4096, bf16.\n\n" + table("""
    Model  GPU  #  TP  GBS  Latency (ms)  Tokens/s/GPU
    7B  A100-80G  8  2  128  21109  3105
    7B  H100-80G  8  2  128  6547  10010
    13B  A100-80G  16  4  128  20731  1581
    13B  H100-80G  16  4  128  6393  5126
    13B  H200-141G  16  2  128  6331  5176
""")
GERMAN = "24 Schichten, Sequenzlänge 2.048, A100-40GB, 8 je Knoten.\n\n" + table("""
    GPUs  Mikrobatch  GAS  Globalbatch  Schrittzeit (s)  Token/s
    8  1  32  256  3,788  138.409
    8  2  16  256  3,701  141.662
    8  4  8  256  3,637  144.155
    16  1  16  256  1,930  271.652
    16  2  8  256  1,853  282.940
""")
FRENCH = "Modèle 13B, séquence 4096, lot global 1024.\n\n## Micro-lots à 64 GPU\n\n" + table("""
    micro-lot  accumulation  s/pas  jetons/s
    1  16  13,24  316\u202f908
    2  8  12,75  328\u202f877
    4  4  12,70  330\u202f260
    8  2  12,60  332\u202f881
""")


@pytest.mark.parametrize(
    ("note", "was", "typed", "column", "proposed"),
    [
        pytest.param(UNIT, "| 138 |", "| 1381 |", "GiB", "138.1", id="a column of GiB is one of memory"),
        pytest.param(COUNTED, "| 5176 |", "| 41408 |", "Tokens/s/GPU", "5176", id="GPU and # are which and how many"),
        pytest.param(COUNTED, "| 20731 |", "| 20.73 |", "Latency (ms)", "20730", id="s under ms"),
        pytest.param(GERMAN, "| 1 | 16 |", "| 1 | 8 |", "GAS", "16", id="accumulation, in German"),
        pytest.param(GERMAN, "| 1,853 |", "| 1,583 |", "Schrittzeit (s)", "1,853", id="a proposal keeps the comma"),
        pytest.param(FRENCH, "| 2 | 8 |", "| 2 | 4 |", "accumulation", "8", id="the heading says on how many devices"),
    ],
)
def test_a_slip_is_named_with_what_stood_there(lint, note: str, was: str, typed: str, column: str, proposed: str):
    assert lint(note) == []
    assert note.count(was) == 1
    found = lint(note.replace(was, typed))
    line = note[: note.index(was)].count("\n") + 1
    assert [(f.line, f.level, f.column, f.proposed) for f in found] == [(line, "error", column, proposed)]
