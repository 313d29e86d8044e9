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
SCALING = "Global batch 1024, 4096 tokens. Budget of 300B tokens, 2.10 $ an hour.\n\n" + table("""
    GPUs  s/step  tokens/s  speed-up  efficiency (%)  days  cost (k$)
    32  25.18  166573  1.00  100.0  20.8  33.6
    64  12.89  325393  1.95  97.7  10.7  34.4
    128  6.48  647269  3.89  97.1  5.4  34.6
    256  3.31  1267160  7.61  95.1  2.7  35.4
""")
PAIRS = "8 x B200.\n\n" + table("""
    model  precision  MBS  step (s)  vs BF16
    8B  BF16  1  7.504  1.00x
    8B  FP8  1  5.709  1.31x
    8B  BF16  2  7.383  1.00x
    8B  FP8  2  5.547  1.33x
    70B  BF16  1  9.049  1.00x
    70B  FP8  1  6.704  1.35x
""")
BEFORE = "Without:\n\n" + table("""
    GPUs  s/it
    16  53.70
    32  26.85
    64  13.79
    128  6.90
""") + "\nWith the overlap:\n\n" + table("""
    GPUs  s/it  speed-up
    16  52.20  1.03x
    32  25.82  1.04x
    64  12.75  1.08x
    128  6.28  1.10x
""")
NO_PIPELINE = "7B, TP 2, micro batch 2, sequence 4096.\n\n" + table("""
    GPUs  DP  GBS  s/step  tok/s/GPU
    32  16  1024  13.68  9581
    64  32  1024  6.92  9470
    128  64  1024  3.52  9309
    256  128  2048  3.54  9257
""")
IN_PROSE = "What fits on 32 H100 of 80 GB. GBS 256.\n\n" + table("""
    DP  TP  PP  MBS  s/step  peak (GiB)
    16  2  1  1  6.24  61.7
    8  4  1  2  6.20  43.6
    4  8  1  8  6.49  52.1
    8  2  2  2  6.29  60.8
    4  4  2  4  6.68  51.8
""")
EXPERTS = "Mixture of 16 experts, EP is taken out of DP, sequence 4096.\n\n" + table("""
    gpus  tp  pp  ep  dp  mbs  gbs  sec/step  tok/s/gpu
    16  1  1  4  16  1  512  5.230  25061
    16  1  1  8  16  1  512  5.437  24107
    32  1  1  8  32  1  512  2.715  24137
    32  2  1  8  16  2  512  2.744  23882
    64  1  2  16  32  2  1024  2.716  24129
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
        pytest.param(SCALING, "| 3.89 |", "| 3.98 |", "speed-up", "3.89", id="speed-up"),
        pytest.param(SCALING, "| 97.1 |", "| 87.1 |", "efficiency (%)", "97.1", id="efficiency"),
        pytest.param(SCALING, "| 5.4 |", "| 10.4 |", "days", "5.4", id="days"),
        pytest.param(SCALING, "| 34.4 |", "| 68.9 |", "cost (k$)", "34.5", id="cost"),
        pytest.param(PAIRS, "| 1.31x |", "| 1.53x |", "vs BF16", "1.31", id="of the row above"),
        pytest.param(BEFORE, "| 1.08x |", "| 0.92x |", "speed-up", "1.08", id="of the table above"),
        pytest.param(NO_PIPELINE, "| 128 | 64 |", "| 128 | 128 |", "DP", "64", id="no pipeline, TP in the text"),
        pytest.param(IN_PROSE, "| 16 | 2 |", "| 32 | 2 |", "DP", "16", id="devices in the text"),
        pytest.param(EXPERTS, "| 2 | 16 |", "| 2 | 64 |", "ep", None, id="experts over more than the devices of a stage"),
    ],
)
def test_a_slip_is_named_with_what_stood_there(lint, note: str, was: str, typed: str, column: str, proposed: str):
    assert lint(note) == []
    assert note.count(was) == 1
    found = lint(note.replace(was, typed))
    line = note[: note.index(was)].count("\n") + 1
    assert [(f.line, f.level, f.column, f.proposed) for f in found] == [(line, "error", column, proposed)]
