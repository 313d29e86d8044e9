"""A heading with the wrong unit is said once, at its line, with the right one; every row is then read with that."""
from __future__ import annotations

import pytest

from lint_tables import table
from seatrial.notes.lint import look_at

ABOVE = "A model of 32 layers, hidden size 4096, sequence length 2048.\n\n"
NODES = (1, 2, 4, 8)


def sheet(heads: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = "\n".join("  ".join(map(str, row)) for row in rows)
    return ABOVE + table("  ".join(head.replace(" ", "_") for head in heads) + "\n" + lines).replace("_", " ")


def speeds(time: str, rate: str, *, each: float = 1.0, rated: float = 1.0) -> str:
    """Eight devices a node, 64 sequences each, and 3,100 tokens a second on each."""
    rows = []
    for at, nodes in enumerate(NODES):
        tokens = 3100 * 8 * nodes * (1 - 0.01 * at)
        rows.append((8 * nodes, 512 * nodes, f"{512 * nodes * 2048 / tokens / each:.3f}", f"{tokens / rated:.4g}"))
    return sheet(("GPUs", "GBS", time, rate), rows)


@pytest.mark.parametrize(("right", "wrong", "code"), [
    (("Step [s]", "tokens/s", 1.0, 1.0), ("Step [ms]", "tokens/s"), "time-unit"),
    (("Step (ms)", "tokens/s", 1e-3, 1.0), ("Step (s)", "tokens/s"), "ms-not-s"),
    (("Zeit/Schritt [s]", "Tokens/s", 1.0, 1.0), ("Zeit/Schritt [ms]", "Tokens/s"), "time-unit"),
    (("Durée/pas (s)", "jetons/s", 1.0, 1.0), ("Durée/pas (ms)", "jetons/s"), "time-unit"),
    (("Step (s)", "k tokens/s", 1.0, 1e3), ("Step (s)", "M tokens/s"), "rate-mismatch"),
    (("Step (s)", "M tokens/s", 1.0, 1e6), ("Step (s)", "k tokens/s"), "rate-mismatch"),
    (("Step (s)", "k tok/s", 1.0, 1e3), ("Step (s)", "M tok/s"), "rate-mismatch"),
])  # fmt: skip
def test_the_heading_is_the_slip_where_all_rows_are_off_alike(lint, right: tuple, wrong: tuple[str, str], code: str):
    time, rate, each, rated = right
    assert [one for one in lint(speeds(time, rate, each=each, rated=rated)) if one.level != "info"] == []
    (found,) = (one for one in lint(speeds(*wrong, each=each, rated=rated)) if one.level != "info")
    at = 0 if wrong[0] != time else 1
    assert (found.line, found.code, found.level) == (3, code, "error")
    assert (found.printed, found.proposed) == (wrong[at], (time, rate)[at])


@pytest.mark.parametrize(("right", "wrong"), [
    ("Memory (GiB)", "Memory (MiB)"), ("Mémoire (Gio)", "Mémoire (Mio)"), ("Speicher [GB]", "Speicher [MB]")])
def test_memory_that_would_not_hold_the_weights_is_in_larger_units(lint, right: str, wrong: str):
    rows = [("7B", 8, 41.2), ("7B", 16, 36.9), ("13B", 16, 61.5), ("13B", 32, 52.8)]
    note = sheet(("Model", "GPUs", right), rows).replace(ABOVE, "")
    assert [one for one in lint(note) if one.level != "info"] == []
    (found,) = (one for one in lint(note.replace(right, wrong)) if one.level != "info")
    assert (found.code, found.printed, found.proposed, found.line) == ("memory-unit", wrong, right, 1)


def test_no_model_of_billions_is_trained_in_a_tenth_of_a_gigabyte(lint):
    rows = [("7B", 4, 41.2), ("7B", 8, 56.9), ("13B", 4, 61.5), ("13B", 8, 72.8)]
    note = sheet(("Model", "MBS", "Memory (GiB)"), rows).replace(ABOVE, "")
    assert [one for one in lint(note) if one.level != "info"] == []
    (found,) = (one for one in lint(note.replace("GiB", "MiB")) if one.level != "info")
    assert (found.code, found.printed, found.proposed) == ("memory-unit", "Memory (MiB)", "Memory (GiB)")


@pytest.mark.parametrize("rate", ["tok/s/GPU", "tokens/s per device"])
def test_a_part_of_a_device_does_no_batch(lint, rate: str):
    rows = [(f"v{at}", gbs, f"{gbs * 2048 / 64 / tokens * 1000:.0f}", tokens)
            for at, (gbs, tokens) in enumerate([(512, 3100), (512, 3390), (1024, 3505), (1024, 3610)])]  # fmt: skip
    note = sheet(("Release", "GBS", "Step (ms)", rate), rows)
    assert [one for one in lint(note) if one.level != "info"] == []
    (found,) = (one for one in lint(note.replace("Step (ms)", "Step (s)")) if one.level != "info")
    assert (found.code, found.printed, found.proposed) == ("ms-not-s", "Step (s)", "Step (ms)")


def test_the_memory_of_small_models_is_left_in_its_unit(lint):
    note = sheet(("Model", "GPUs", "Memory (MiB)"), [("20M", 1, 612), ("40M", 1, 701), ("60M", 1, 855)]).replace(ABOVE, "")
    assert [one for one in lint(note) if one.level != "info"] == []


def test_one_row_in_milliseconds_is_its_own_slip(lint):
    note = speeds("Step (s)", "tokens/s")
    row = note.splitlines()[6]
    time = row.split("|")[3].strip()
    (found,) = (one for one in lint(note.replace(time, f"{float(time) * 1000:.0f}")) if one.level == "error")
    assert found.line is not None and found.line > 4 and found.printed != "Step (s)"


def test_a_batch_beside_the_accumulation_is_that_of_all_where_the_text_has_the_micro_batch(lint):
    note = "Micro batch 2, TP=4, PP=2, sequence length 2048.\n\n" + table("""
        nodes  GPUs  DP  batch  accum  step[s]  tokens/s
        2  16  2  128  32  31.14  8418
        4  32  4  256  32  31.48  16655
        8  64  8  512  32  31.94  32830
        16  128  16  1024  32  32.32  64887
    """)
    assert [one for one in lint(note) if one.level != "info"] == []
    (found,) = (one for one in lint(note.replace("| 512 |", "| 256 |")) if one.level != "info")
    assert (found.line, found.column, found.printed, found.proposed) == (7, "batch", "256", "512")


def test_a_finding_in_a_ruled_table_of_runs_side_by_side_names_its_line(tmp_path):
    path = tmp_path / "sizes.rst"
    path.write_text("Gaudi 2 (96 GB)\n\n" + "\n".join((
        "============  =====  =====  =====", "Run              M1     M2     M3", "============  =====  =====  =====",
        "Micro batch       1      2      4", "Step [s]      36.69  35.30  34.11", "Tokens/s      28576  29703  30740",
        "Memory [GiB]   47.2  153.6   71.9", "============  =====  =====  =====", "")), encoding="utf-8")
    found = [one for one in look_at([str(path)])[0] if one.code == "memory-over-capacity"]
    assert [(one.line, one.printed) for one in found] == [(9, "153.6")]


@pytest.mark.parametrize(("right", "wrong", "printed", "proposed"), [
    ("On H200 (141 GB HBM, 8 a node).", "On H200 (114 GB HBM, 8 a node).", "114", "141"),
    ("Nodes with 8 MI300X (192 GB each).", "Nodes with 8 MI300X (129 GB each).", "129", "192"),
    ("Peaks, dense bf16: A100 312, H100 989, B200 2250 TFLOP/s.", "Peaks, dense bf16: A100 312, H100 1979, B200 2250 TFLOP/s.",
     "H100 1979", "H100 989"),
])  # fmt: skip
def test_what_a_sentence_says_of_a_device_is_what_its_data_sheet_has(lint, right: str, wrong: str, printed: str, proposed: str):
    rows = "\n\n" + table("""
        GPUs  GBS  step[s]
        8  128  31.14
        16  256  31.48
        32  512  31.94
    """)
    assert [one for one in lint(right + rows) if one.level != "info"] == []
    (found,) = (one for one in lint(wrong + rows) if one.level != "info")
    assert (found.line, found.printed, found.proposed) == (1, printed, proposed)
