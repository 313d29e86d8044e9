"""Devices that sentences count: of nodes, of layouts and of rows; batches beside their tokens."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes import lint
from seatrial.notes.lint import Finding


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


NODES = """# Strong scaling

TP 4, PP 2. Sequence length 2048, global batch 1536.

| nodes | GPUs | DP | s/step | tokens/s |
| ---: | ---: | ---: | ---: | ---: |
| 16 | 64 | 8 | 27.90 | 112,750 |
| 32 | 128 | 16 | 14.21 | 221,375 |
| 64 | 256 | 32 | 7.38 | 426,250 |
| 192 | 768 | 96 | 2.87 | 1,096,100 |

"""
GCDS = """# MI250X log

Pre-training 22B, seq 2048, 8 GCDs per node.

| nodes | TP | PP | DP | GBS | sec/it | TFLOPs/GCD |
|------:|---:|---:|---:|----:|-------:|-----------:|
| 8 | 8 | 1 | 8 | 256 | 23.10 | 66.3 |
| 8 | 4 | 2 | 8 | 256 | 21.85 | 70.1 |
| 8 | 2 | 4 | 8 | 256 | 22.40 | 68.4 |
| 16 | 4 | 2 | 16 | 512 | 22.31 | 68.7 |

"""


@pytest.mark.parametrize(("note", "said", "right", "wrong"), [
    (NODES, "256 GPUs ({} nodes) are where the cluster is used best.", "64", "32"),
    (NODES, "The whole machine (192 nodes, {} GPUs) was free.", "768", "786"),
    (NODES, "Auf 64 Knoten ({} GPUs) lief es am stabilsten.", "256", "512"),
    (NODES, "Sur 32 nœuds ({} GPU) tout va bien.", "128", "64"),
    (NODES, "TP 4 x PP 2 x DP {} for 768 GPUs.", "96", "48"), (NODES, "On 768 GPUs: TP 4, PP 2, DP {}.", "96", "69"),
    (NODES, "With DP {} (256 GPUs) the batch still divides.", "32", "16"),
    (NODES, "1536 sequences, that is {}M tokens per step.", "3.15", "6.29"),
    (NODES, "Batch {} x 2048 = 3.146M tokens per step.", "1536", "1563"),
    (GCDS, "8 nodes are {} GCDs.", "64", "32"), (GCDS, "16 nodes ({} GCDs) were the most we got.", "128", "64"),
    (GCDS, "TP4/PP2/DP{} on 16 nodes is what we use.", "16", "32"),
])  # fmt: skip
def test_counts_of_a_sentence(tmp_path: Path, note: str, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{note}{said.format(right)}\n") == []
    (found,) = _found(tmp_path, f"{note}{said.format(wrong)}\n")
    proposed = (found.proposed or "").removeprefix("DP ")
    assert (found.line, proposed) == (note.count("\n") + 1, right)


@pytest.mark.parametrize("line", [
    "Two of the nodes are down, so we have 188 nodes with 4 GPUs each.", "We use 60 of the 64 nodes, 240 GPUs.",
    "A node has 4 GPUs, 192 nodes 768.", "The H100 partition has 40 nodes (320 GPUs), 8 GPUs per node.",
    "64 nodes, TP 4, PP 2, DP 32.", "192 nodes x 4 GPUs, TP 4, PP 2, DP 96.", "About 1,500 sequences or 3M tokens per step.",
    "TP 4 and PP 2 on 16 to 192 nodes.", "DP 8 on 64 GPUs, DP 96 on 768.",
])  # fmt: skip
def test_counts_that_are_right(tmp_path: Path, line: str) -> None:
    assert _found(tmp_path, f"{NODES}{line}\n") == []
