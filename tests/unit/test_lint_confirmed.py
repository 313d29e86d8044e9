"""Rows that are told apart by a column or a word, and figures that were misread, are no slips; their twins still are."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at
from seatrial.notes.lint.phases.quantities import many
from seatrial.notes.lint.text.figures import figures, plain
from seatrial.tables.headings import read_heading, settle


def told(tmp_path: Path, text: str, name: str = "notes.md") -> list[Finding]:
    path = tmp_path / name
    path.write_text(text)
    return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]


def flagged(tmp_path: Path, text: str, right: str, wrong: str) -> set[int | None]:
    """The lines of the twin of which something is said; nothing is of the note itself."""
    assert told(tmp_path, text) == []
    assert text.count(right) == 1
    return {finding.line for finding in told(tmp_path, text.replace(right, wrong))}


def table(head: str, *rows: str) -> str:
    return "\n".join([f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {row} |" for row in rows)]) + "\n"


COUNTED = "GPT 6.7B: 32 layers, hidden 4096, vocabulary 50304, 6.65B parameters. 16 A100, batch 256 of 2048.\n\n" + table(
    "framework | counts | MBS | step (s) | samples/s | TFLOP/s/GPU",
    "Megatron | 72BsLh² | 2 | 8.00 | 32.0 | 179.0", "Megatron | 72BsLh² | 4 | 7.91 | 32.4 | 181.1",
    "Megatron | 72BsLh² | 1 | 8.18 | 31.3 | 175.1", "plain loop | 6N | 2 | 9.26 | 27.6 | 141.1",
    "plain loop | 6N | 1 | 9.48 | 27.0 | 137.8", "plain loop | 6N | 4 | 9.13 | 28.0 | 143.1",
    "plain loop | 6N | 8 | 9.07 | 28.2 | 144.1", "shards | 6N | 1 | 9.61 | 26.6 | 136.0",
    "shards | 6N | 2 | 9.40 | 27.2 | 139.1")  # fmt: skip


def test_rows_of_a_column_that_names_the_count_are_held_against_each_other(tmp_path: Path):
    assert 8 in flagged(tmp_path, COUNTED, "| 27.6", "| 72.6")


LADDER = "Llama-3-8B, 64 H100 (989 TFLOP/s). TFLOP/s count causal attention by half.\n\n" + table(
    "precision | length | batch | s/step | tokens/s/GPU | TFLOP/s/GPU | MFU (%)",
    "bf16 | 8192 | 512 | 7.97 | 8,223 | 449 | 45.4", "bf16 | 8192 | 512 | 8.06 | 8,131 | 444 | 44.9",
    "fp8 | 8192 | 512 | 5.75 | 11,398 | 623 | 63.0", "bf16 | 32768 | 128 | 11.00 | 5,958 | 441 | 44.6",
    "bf16 | 131072 | 32 | 22.47 | 2,917 | 441 | 44.6")  # fmt: skip


def test_the_cost_of_a_token_lies_on_the_line_of_its_lengths(tmp_path: Path):
    assert flagged(tmp_path, LADDER, "| 441 | 44.6 |\n| bf16 | 131072", "| 244 | 44.6 |\n| bf16 | 131072")


WORDS = [
    ("Un ajuste de 20 mil millones de tokens", 2e10), ("Für 300 Milliarden Token", 3e11), ("300 Mrd. Token", 3e11),
    ("20 miliardi di token", 2e10), ("100 miljard tokens", 1e11), ("25 milyar token", 2.5e10), ("2 bi de tokens", 2e9),
    ("5 miljoner token", 5e6), ("30 mln tokenów", 3e7), ("3 миллиарда токенов", 3e9)]  # fmt: skip


@pytest.mark.parametrize(("text", "tokens"), WORDS)
def test_a_word_for_many_is_read_with_its_scale(text: str, tokens: float):
    assert [one.value for one in figures(plain(text))] == [tokens]


def test_words_of_many_are_a_thousand_millions():
    assert {many(word) for word in ("Milliarden", "miliardi", "miljard", "mil millones", "Mrd")} == {1e9}
    assert many("mil") == 1e3 and many("mln") == many("Millionen") == 1e6


POINTED = "Llama-2-13B, Sequenz 4096, Batch 256.\n\n" + table(
    "GPUs | s/Schritt | Token/s", "16 | 18,41 | 56.957", "32 | 9,30 | 112.750", "64 | 4,77 | 219.826") + (
    "\nMit 64 GPUs sind es zusammen 219.826 Token/s. Für 300 Milliarden Token sind das 15,8 Tage,\n"
    "also rund 24.262 GPU-Stunden.\n")  # fmt: skip


def test_a_rate_of_the_sentence_before_may_have_a_point_for_thousands(tmp_path: Path):
    assert flagged(tmp_path, POINTED, "15,8 Tage", "158 Tage") == {9}


def test_side_by_side_mb_and_gb_are_batches():
    def fields(*headings: str) -> list[str]:
        return [one.field for one in settle([read_heading(heading) for heading in headings])]

    assert fields("GPUs", "MB", "GB", "s/step", "Mem (GiB)") == ["gpus", "mbs", "gbs", "sec_per_it", "mem_value"]
    assert fields("GPUs", "MB", "GB", "tokens/step", "s/step")[1:3] == ["mbs", ""]


LOG = table("job | GPUs | seq | GBS | s/it | tok/s | status | comment",
            "811 | 32 | 4096 | 512 | 21.02 | 99,770 | done | ",
            "812 | 32 | 4096 | 512 | 21.15 | 99,157 | killed | maintenance",
            "813 | 32 | 4096 | 512 | 20.98 | 99,960 | crashed | node failed at step 9,120",
            "814 | 32 | 4096 | 512 | 21.07 | 99,533 | done | resumed")  # fmt: skip


def test_what_was_stopped_has_figures_until_then(tmp_path: Path):
    assert told(tmp_path, LOG) == []
    assert [one.line for one in told(tmp_path, LOG.replace("killed | maintenance", "OOM | "))] == [4]


PRICED = "Eine Stunde kostet auf der A100 (1,60 € je GPU-Stunde) wenig, auf der H100\n(2,90 €) fast das Doppelte.\n\n" + table(
    "GPUs | Token/s | GPU-Stunden | Kosten (€)", "16 × A100 | 58.156 | 1.528 | 2.445", "32 × A100 | 115.377 | 1.541 | 2.466",
    "64 × A100 | 227.910 | 1.560 | 2.496", "16 × H100 | 153.873 | 578 | 1.676", "32 × H100 | 301.526 | 590 | 1.711")


def test_each_device_has_its_own_price(tmp_path: Path):
    assert 10 in flagged(tmp_path, PRICED, "| 1.711", "| 1.171")


PARTS = table("item | GPU-h | cost ($)", "R-1 | 1,900 | 4,465", "R-2 | 6,200 | 14,570", "R-3 | 18,800 | 44,180",
              "R-4 | 16,200 | 38,070", "sum of R-1..R-2 | | 19,035", "sum without R-3 | | 57,105")


def test_a_total_is_of_the_rows_that_it_names(tmp_path: Path):
    assert flagged(tmp_path, PARTS, "19,035", "13,095") == {7}
    assert flagged(tmp_path, PARTS, "57,105", "51,705") == {8}


REMARKED = """date;model;GPUs;GBS;seq;s/it;tok/s;remarks
2024-05-02;7B;16;256;4096;12.41;84494;
2024-05-03;7B;16;256;4096;12.44;84291;link down; went on as 4831
2024-05-04;7B;32;256;4096;6.29;166705;
"""


def test_a_remark_may_have_the_sign_of_the_file_in_it(tmp_path: Path):
    assert told(tmp_path, REMARKED, "runs.csv") == []
    shifted = REMARKED.replace("link down; went on as 4831", "77;4831")
    assert [one.line for one in told(tmp_path, shifted, "runs.csv")] == [3]


AXES = "8B, length 8192\n\n" + table(
    "GPUs | TP | PP | DP | GBS | remark | s/it | tok/s/GPU", "32 | 2 | 1 | 16 | 128 | | 3.91 | 8,381",
    "32 | 4 | 1 | 8 | 128 | | 4.05 | 8,091", "32 | 2 | 1 | 8 | 128 | ZeRO-1, CP 2 | 4.22 | 7,765")  # fmt: skip


def test_an_axis_of_a_remark_is_one_of_the_layout(tmp_path: Path):
    assert flagged(tmp_path, AXES, "CP 2", "no CP") == {7}


KERNELS = "bf16 on one GPU\n\n" + table(
    "M | N | K | ms | TFLOP/s", "4096 | 4096 | 4096 | 0.215 | 639",
    "8192 | 8192 | 8192 | 1.530 | 719",
    "16384 | 16384 | 16384 | 12.10 | 727", "8192 | 28672 | 8192 | 5.31 | 725")  # fmt: skip
ASKED = table(
    "item | GPUs | hours each | GPU hours | €", "ablations, 40 runs of 1B | 8 | 10 | 3,200 | 6,400",
    "main run | 128 | 410 | 52,480 | 104,960", "extension | 128 | 36 | 4,608 | 9,216", "tuning | 16 | 60 | 960 | 1,920",
    "storage | | | | 4,800", "**total** | | | **61,248** | **127,296**", "reserve 10 % | | | 6,125 | 12,730")
SAVED = table("model | before GiB | after GiB | saved | before s/it | after s/it", "7B | 36.8 | 30.4 | 6.4 | 8.04 | 6.91",
              "8B | 48.3 | 39.7 | 8.6 | 8.12 | 6.80", "13B | 46.5 | 38.3 | 8.2 | 7.35 | 6.31",
              "14B | 13.4 | 11.4 | 2.0 | 9.98 | 8.47", "32B | 69.6 | 57.0 | 12.6 | 18.61 | 15.84",
              "70B | 33.0 | 27.2 | 5.8 | 26.44 | 22.77")  # fmt: skip
GENERATED = table("prompts | samples each | longest | rollout (s) | tok/s", "128 | 8 | 2048 | 41.2 | 31,100",
                  "256 | 8 | 2048 | 74.9 | 34,200", "256 | 16 | 4096 | 210.4 | 36,800",
                  "128 | 8 | 2048 | 66.0 | 19,400")  # fmt: skip
CARDS = table("cards | len | tok/s | W at the wall | kWh/10M tok", "1x 3090 | 2048 | 522 | 375 | 2.0",
              "1x 3090 | 2048 | 605 | 445 | 2.0", "1x 3090 | 4096 | 493 | 375 | 2.1", "1x 4090 | 2048 | 1,104 | 395 | 1.0",
              "1x 4090 | 2048 | 1,220 | 545 | 1.2", "1x 4090 | 4096 | 998 | 395 | 1.1", "2x 3090 | 2048 | 518 | 680 | 3.6",
              "1x 4090 | 4096 | 617 | 395 | 1.8")  # fmt: skip


@pytest.mark.parametrize("text", [KERNELS, ASKED, SAVED, GENERATED, CARDS],
                         ids=["kernels", "several runs", "a difference", "another setting", "all cards"])  # fmt: skip
def test_what_goes_with_something_else_is_no_slip(tmp_path: Path, text: str):
    assert told(tmp_path, text) == []


def test_a_run_takes_a_minute_to_start(tmp_path: Path) -> None:
    rows = [("a", 1982.4, 2059, 1000), ("b", 2243.9, 1182, 500), ("c", 5688.9, 380, 60), ("d", 2902.5, 769, 250),
            ("e", 3363.5, 915, 250), ("f", 2101.2, 482, 200)]  # fmt: skip
    text = "name,gpus,step_time_ms,runtime_s,steps\n" + "".join(f"{n},8,{ms},{s},{steps}\n" for n, ms, s, steps in rows)
    note = tmp_path / "runs.csv"
    note.write_text(text, encoding="utf-8")
    assert not [one for one in look_at([str(note)])[0] if one.level == "error"]
