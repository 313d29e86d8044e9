"""Clean notes of kinds that lint once took for something else: what is read, learned or counted otherwise than it was meant."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at


def table(*rows: str) -> str:
    head, *cells = rows
    return "\n".join([f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {row} |" for row in cells)]) + "\n"


NOTES = {
    "a batch of tokens that is rounded to two digits": "256 A100-80GB throughout, 4096 tokens a sequence.\n\n" + table(
        "phase | batch (tokens) | steps | tokens | s/step | hours | GPU-hours", "1 | 1.0M | 2,000 | 2.1B | 1.20 | 0.7 | 171",
        "2 | 2.1M | 8,000 | 16.8B | 2.41 | 5.4 | 1,373", "3 | 4.2M | 40,000 | 167.8B | 7.22 | 80.3 | 20,547"),
    "days of which two went alike": "7.44 s a step, 1024 x 4096 tokens, 512 H100.\n\n" + table(
        "day | hours up | hours down | goodput | steps | tokens (B)", "2024-05-01 | 23.1 | 0.9 | 96.2% | 11,177 | 46.88",
        "2024-05-02 | 24.0 | 0.0 | 100.0% | 11,612 | 48.70", "2024-05-03 | 19.4 | 4.6 | 80.8% | 9,387 | 39.37",
        "2024-05-04 | 24.0 | 0.0 | 100.0% | 11,612 | 48.70", "2024-05-05 | 22.7 | 1.3 | 94.6% | 10,983 | 46.07"),
    "one model of a ladder with another vocabulary": (
        "All on H100 SXM5 80GB, global batch 1024, 4096 context. TFLOP/s are 6 N and 12 L h s per token.\n\n" + table(
            "name | parameters | layers | d_model | heads | GPUs | iteration (s) | TFLOP/s/GPU",
            "1.3B | 1.42B | 24 | 2048 | 16 | 8 | 11.77 | 487",
            "3B | 3.43B | 26 | 3200 | 32 | 16 | 17.23 | 375",
            "7B | 6.74B | 32 | 4096 | 32 | 32 | 13.01 | 472",
            "13B | 13.02B | 40 | 5120 | 40 | 64 | 13.17 | 439",
            "34B | 33.74B | 48 | 8192 | 64 | 128 | 19.08 | 381")),
    "images, whose lengths nobody says": table(
        "model | params | GFLOPs | GPUs | batch | s/step | images/s | TFLOP/s/GPU",
        "ViT-B/16 | 86.6M | 17.6 | 8 | 4096 | 0.247 | 16,583 | 109", "ViT-L/16 | 304M | 61.6 | 16 | 4096 | 0.429 | 9,548 | 110",
        "ViT-H/14 | 632M | 167.4 | 32 | 4096 | 0.565 | 7,250 | 114",
        "ViT-g/14 | 1011M | 267 | 64 | 4096 | 0.444 | 9,234 | 116"),
    "hours that the dates give, of which some went by without a step": "About 6.1 s a step in 2024.\n\n" + table(
        "segment | from | to | hours | first step | last step", "1 | 04 Mar 09:12 | 05 Mar 22:48 | 37.6 | 0 | 21,836",
        "2 | 06 Mar 01:48 | 07 Mar 13:19 | 35.5 | 21,836 | 42,491", "3 | 07 Mar 17:19 | 10 Mar 14:09 | 68.8 | 42,491 | 82,622",
        "4 | 10 Mar 15:09 | 14 Mar 01:10 | 82.0 | 82,622 | 131,015",
        "5 | 14 Mar 05:10 | 15 Mar 01:54 | 20.7 | 131,015 | 142,818"),
    "active parameters with a decimal comma": "64 routed experts, 6 active. 16,4B parameters, 2,35B active.\n\n"
                                                  + table("GPUs | s/step", "64 | 4.31"),
    "memory in several GB": table("engine | s | Peak memory usage (GBs)", "DuckDB | 0.05 | 0.3", "Pandas | 3.51 | 56",
                                  "Arrow | 0.61 | 4"),
    "a picture whose file is called as a device": table(
        "flavor | cores | Memory (GiB) | power", "large | 8 | 31 | ![full](img/p100.svg)",
        "fat | 16 | 62 | ![full](img/p100.svg)"),
    "times of anything": table("what | Time (s)", "Pandas to DuckDB | 0.03", "Pandas | 15.2", "DuckDB | 24.4",
                               "PandaSQL | 18.1", "DuckDB, sorted | 19.3"),
    "three things that one is held against": (
        "{fmt} is now 15 times faster than\nlibc++'s `std::ostringstream`, 11 times faster than `printf` and 10%\n"
        "faster than double-conversion:\n\n" + table(
            "Function | Time (ns) | Speedup", "ostringstream | 1,346.30 | 1.00x", "ostrstream | 1,195.74 | 1.13x",
            "sprintf | 995.08 | 1.35x", "doubleconv | 99.10 | 13.59x", "fmt | 88.34 | 15.24x")),
    "a share below none": table("data | BM25 | ours | vs BM25", "ESCI | 0.305 | 0.389 | +27.5%",
                                "WANDS | 0.329 | 0.355 | +7.9%",
                                "MARCO | 0.915 | 0.751 | -17.9%") + "\nOut of the domain (MARCO): -18% vs BM25.\n",
    "as many experts as a token sees": "We follow a DeepSeek-V3 setting (128 tokens per batch, 7168 hidden, "
                                        "top-8 experts, fp8).\n\n" + table("GPUs | s/step", "64 | 4.31"),
    "replicas of attention": "The recipe runs on one 8-GPU node with DP8 attention x TP8 x EP8.\n",
    "a product that goes on": "240 × 0.15 = 240 × (15/100) = 36.\n",
    "a list of files": "```\n    size  date     time   name\n16662202  11-09-09 10:41  sample1.txt\n 1303352  11-09-09 10:41  "
                       "sample2.txt\n 1925824  11-10-09 10:43  sample3.txt\n```\n",
    "two devices, by a share of their memory": "2x RTX 4090.\n\n" + table(
        "model | batch | tokens/s | memory", "7B | 1 | 61.2 | 5.2 GB (11 %)", "13B | 1 | 33.0 | 9.4 GB (20 %)",
        "46.7B | 1 | 77.1 | 28.0 GB (59 %)"),
}  # fmt: skip


def told(tmp_path: Path, text: str) -> list[Finding]:
    path = tmp_path / "notes.md"
    path.write_text(text, encoding="utf-8")
    return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]


@pytest.mark.parametrize("kind", NOTES)
def test_nothing_is_said_of(tmp_path: Path, kind: str):
    assert told(tmp_path, NOTES[kind]) == []


@pytest.mark.parametrize(("kind", "right", "wrong", "line"), [
    ("a batch of tokens that is rounded to two digits", "| 80.3 |", "| 8.03 |", 7),
    ("days of which two went alike", "2024-05-03", "2024-05-30", 7),
    ("three things that one is held against", "15.24x", "12.54x", 11),
    ("a product that goes on", "= 240 × (15/100) = 36", "= 63", 1),
])  # fmt: skip
def test_what_is_wrong_there_is_said(tmp_path: Path, kind: str, right: str, wrong: str, line: int):
    assert right in NOTES[kind]
    assert line in [finding.line for finding in told(tmp_path, NOTES[kind].replace(right, wrong))]


RATES = table("GPUs | DP | GBS | seq | s/step | tokens/s", "8 | 8 | 128 | 4096 | 8.40 | 62,415",
              "16 | 16 | 128 | 4096 | 4.31 | 121,644",
              "32 | 32 | 256 | 4096 | 4.40 | 238,313", "64 | 64 | 256 | 4096 | 2.25 | 466,034")  # fmt: skip


def test_a_finding_says_by_which_slip_and_on_what_it_stands(tmp_path: Path):
    assert told(tmp_path, RATES) == []
    (found,) = told(tmp_path, RATES.replace("238,313", "283,313"))
    assert (found.level, found.proposed, found.slip, found.ground) == ("error", "238313", "two digits exchanged", "law")
