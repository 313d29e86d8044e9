"""Slips that only the other rows of a table tell, and clean tables that look like one: a note as it should be says nothing."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes.lint import Finding, look_at
from seatrial.notes.lint.models.devices import device_named, of_devices


@pytest.fixture
def lint(tmp_path: Path):
    def look(text: str, name: str = "notes.md") -> list[Finding]:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]

    return look


TIMES = "MoE with 8 experts, seq 4096, nodes of 8 H800.\n\n" + table("""
    GPUs  TP  PP  EP  DP  MBS  GBS  s/step
    32  1  1  8  32  1  256  3.12
    32  2  1  4  16  1  256  3.21
    64  1  2  8  32  1  512  3.40
    64  2  1  8  32  2  512  3.09
    128  2  1  8  64  1  1024  3.18
""")
RATES = "8B, sequence 8192, FSDP on H100.\n\n" + table("""
    GPUs  local bs  tok/s/GPU
    8  1  6,512
    16  1  6,480
    32  2  6,733
    64  2  6,690
    128  2  6,611
""")
SHARES = "13B on A100.\n\n" + table("""
    GPUs  GBS  tok/s/GPU  MFU
    8  64  1,512  41.2%
    16  128  1,498  40.8%
    32  256  1,480  40.3%
    64  512  1,466  39.9%
""")
MOVED = "MoE, 46.7B total, 12.9B active, seq 8192, 8 MI300X per node.\n\n" + table("""
    GPUs  TP  EP  DP  GBS  ms/step  mfu %  Mem (GB)
    64  1  2  64  256  6597  29.4  75.8
    128  2  8  64  512  6808  28.5  17.1
    64  4  2  16  512  13770  28.2  22.9
    256  4  2  64  2048  14141  27.4  24.8
    64  4  4  16  256  6836  28.4  16.5
""")
SIZES = "Sequence 4096, GBS 512, 64 L40S.\n\n" + table("""
    Model  tok/s/GPU  TFLOPs
    1.3B  17927  141.0
    2.7B  9077  144.3
    7B  3998  161.6
    14B  1782  157.9
    30B  904  162.5
""")


@pytest.mark.parametrize(("note", "right", "wrong", "proposed"), [
    (TIMES, "| 3.09 |", "| 30.9 |", "3.09"),  # the point
    (RATES, "| 6,733 |", "| 53,864 |", "6733"),  # of a node
    (RATES, "| 6,690 |", "| 6.690 |", "6690"),  # in thousands
    (RATES, "| 16 | 1 |", "| 61 | 1 |", "16"),  # digits exchanged
    (SHARES, "| 40.3% |", "| 403% |", "40.3%"),  # more than the peak
    (MOVED, "| 13770 | 28.2 | 22.9 |", "| - | 13770 | 28.2 |", "13770"),  # cells moved
    (SIZES, "| 161.6 |", "| 121.2 |", None)])  # by the sizes of the other models
def test_what_is_far_from_the_other_rows_is_said_once(lint, note: str, right: str, wrong: str, proposed: str | None) -> None:
    assert lint(note) == []
    assert right in note
    found = lint(note.replace(right, wrong))
    line = 1 + note[: note.index(right)].count("\n")
    assert {f.line for f in found} == {line} and found[0].level == ("warning" if proposed is None else "error")
    assert proposed is None or proposed in {str(f.proposed).replace(",", "") for f in found}


def test_two_rates_of_another_row_are_pasted(lint) -> None:
    (found,) = lint(SHARES.replace("| 1,480 | 40.3% |", "| 1,512 | 41.2% |"))
    assert (found.code, found.line) == ("pasted-pair", 7) and "line 5" in found.message


LABELS = "Sequence 2048, GBS 512, A100 80GB, 8 per node.\n\n" + table("""
    Model  Layers  Hidden  Heads  s/step
    1.3B  24  2048  16  1.00
    7B  32  4096  32  4.95
    8B  32  4096  32  5.88
    13B  40  5120  40  9.45
    34B  48  8192  64  23.96
""")


def test_labels_of_one_shape_may_differ_by_groups_gates_and_tokenizers(lint) -> None:
    assert lint(LABELS) == []
    (found,) = lint(LABELS.replace("| 13B | 40 |", "| 13B | 04 |"))
    assert (found.code, found.line, found.proposed) == ("label-vs-params", 8, "40")


GROUPED = "### Llama 70B burn-in\n\nSwiGLU 28672, {} layers, hidden 8192, {}vocab 32000, sequence 4096, TP 8, micro batch 1, " \
    "full recompute.\n\n" + table("""
    GPUs  PP  DP  GBS  s/step  tokens/s  HW TFLOPS/GPU
    64  8  1  256  71.0  14,771  137
    64  4  2  256  74.1  14,145  131
    128  4  4  512  75.4  27,796  129
    128  8  2  512  75.9  27,629  128
    256  8  4  1024  77.3  54,292  126
""")


@pytest.mark.parametrize("heads", ["GQA 8, ", "", "64 heads, 8 KV heads, "])
def test_heads_that_nobody_counts_may_stand_in_groups(lint, heads: str) -> None:
    assert lint(GROUPED.format(80, heads)) == []
    assert [(f.code, f.line) for f in lint(GROUPED.format(60, heads))] == [("label-vs-params", 3)]


EXPERTS = "57B with 14B active, seq 4096, A800 80GB.\n\n" + table("""
    GPUs  TP  PP  EP  DP  MBS  GBS  s/step  mem (GiB)
    64  1  2  2  32  1  512  5.01  61.0
    64  1  2  4  32  2  512  4.93  48.5
    64  1  2  8  32  4  512  4.90  44.1
""")


def test_memory_may_fall_with_the_micro_batch_where_experts_are_spread_wider(lint) -> None:
    assert lint(EXPERTS) == []
    assert {f.code for f in lint(EXPERTS.replace("| 2 | 4 |", "| 2 | 2 |"))} == {"memory-monotone"}


def test_memory_of_a_device_without_a_preset_is_that_of_its_data_sheet(lint) -> None:
    found = lint(EXPERTS.replace("A800 80GB", "L40S"))
    assert [(f.code, f.line) for f in found] == [("memory-over-capacity", 5), ("memory-over-capacity", 6)]


@pytest.mark.parametrize(("text", "name", "gib"), [("8x L40S a node", "L40S", 48), ("TPU v5p pods", "TPUV5P", 95),
                                                  ("8x 4090", "RTX4090", 24), ("four L4", "L4", 24), ("step 4090", None, 0),
                                                  ("H100 and H800", None, 0), ("two A100s", "A100-SXM4-80GB", 80)])  # fmt: skip
def test_a_device_is_known_by_its_name(text: str, name: str | None, gib: float) -> None:
    device = device_named(text)
    assert (device.name, device.memory_gib) == (name, gib) if device is not None else name is None


def test_a_row_of_another_device_is_not_held_to_the_one_that_the_text_names(lint) -> None:
    assert lint("The MI300X rows are new.\n\n" + table("""
        GPU  GPUs  tok/s/GPU  TFLOPs  MFU
        Foo9  8  8481  409  41.3%
        Foo9  16  8399  405  40.9%
        MI300X  8  11140  537  41.1%
        MI300X  16  11009  530  40.6%
        MI250X  16  1635  78.8  41.1%
    """)) == []


def test_text_above_the_headings_of_a_csv_file_sets_what_its_rows_do_not(lint) -> None:
    rows = ["# 8B, L=32, h=4096", "# sequence length 4096", "#GPUs,GBS,s/step,tok/s/GPU",
            "8,64,5.00,6554", "16,128,5.10,6425", "32,256,5.20,6302", "64,512,5.30,6183"]  # fmt: skip
    assert lint("\n".join(rows), "runs.csv") == []
    (found,) = lint("\n".join(rows).replace("5.20", "52.0"), "runs.csv")
    assert (found.line, found.proposed) == (6, "5.20")


WORDS = table("""
    Model  GPUs  Global batch  wps
    8B  8  16  9,080
    8B  64  128  8,910
    8B  128  256  8,815
    8B  256  512  8,700
    70B  256  128  1,041
    70B  512  256  1,018
""")


def test_a_rate_that_does_not_grow_with_the_devices_is_of_one_of_them(lint):
    text = f"# Weak scaling, H100, sequence 4096\n\n{WORDS}"
    assert not lint(text)
    assert [(f.line, f.proposed) for f in lint(text.replace("8,815", "1,128,320"))] == [(7, "8815")]


def test_the_innermost_heading_that_names_a_device_says_which_a_table_is_of():
    assert of_devices("Gaudi 2 and Gaudi 3 / Gaudi 2 (96 GB)") == "Gaudi 2 (96 GB)"
    assert of_devices("On H100 / Weak scaling") == "On H100 / Weak scaling"
