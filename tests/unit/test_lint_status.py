"""Words of failure and figures in one row: a run that is said to have failed, and was measured."""
from __future__ import annotations

import pytest

from lint_tables import table
from seatrial.notes.lint import look_at

OUT_OF_MEMORY = table("""
    GPUs  DP  TP  PP  MBS  GBS  Step [s]  Status
    1024  8  8  16  1  512  29.36  done
    1024  16  8  8  1  512  -  OOM
    2048  16  8  16  1  1024  29.67  done
""")


def test_a_failed_run_with_a_time_is_asked_about(lint):
    assert lint(OUT_OF_MEMORY) == []
    found = lint(OUT_OF_MEMORY.replace("| - |", "| 31.24 |"))
    assert [(f.line, f.code, f.level) for f in found] == [(4, "outcome-vs-figures", "warning")]


WORDS = "H100, sequence 4096, 64 GPUs, global batch 256.\n\n" + table("""
    mbs  s/step  tok/s/GPU  Ergebnis
    1  7.47  2193  ok
    2  7.38  2220  ok
    4  7.20  2275  ok
    8  -  -  OOM
""")


@pytest.mark.parametrize(("heading", "word"), [
    ("Ergebnis", "OOM"), ("結果", "✗ OOM"), ("状态", "显存不足"), ("state", "OUT_OF_MEMORY"), ("status", "OOM!"),
    ("fits?", "failed"),
])  # fmt: skip
def test_a_word_of_failure_beside_the_figures_of_a_run_is_asked_about(lint, heading: str, word: str):
    note = WORDS.replace("Ergebnis", heading)
    assert lint(note) == []
    found = lint(note.replace("2275 | ok", f"2275 | {word}"))
    assert [(f.line, f.code, f.level, f.column) for f in found] == [(7, "outcome-vs-figures", "warning", heading)]


FIGURES = "H100, sequence 4096, 64 GPUs, global batch 256.\n\n" + table("""
    TP  mbs  s/step  tok/s  mem
    1  1  3.21  326657  61.2
    1  2  3.02  347210  73.9
    1  4  OOM  -  79.1
    2  4  3.11  337163  66.0
    2  2  3.22  325643  46.0
""")


@pytest.mark.parametrize(("right", "typed", "column"), [
    ("OOM | -", "OOM | 347210", "tok/s"), ("OOM | -", "hang | 347210", "tok/s"), ("337163 | 66.0", "- | **OOM**", "s/step"),
    ("337163 | 66.0", "OOM | 66.0", "s/step"),
])  # fmt: skip
def test_a_failure_for_one_figure_beside_another_is_asked_about(lint, right: str, typed: str, column: str):
    assert lint(FIGURES) == []
    (found,) = lint(FIGURES.replace(right, typed))
    assert (found.code, found.level, found.column) == ("outcome-vs-figures", "warning", column)
    assert ("that of line 6" in found.message) == ("347210" in typed)


@pytest.mark.parametrize(("cells", "proposed"), [("OOM | - | 347210 | -", "-"), ("OOM | — | 347210 | —", "—"),
                                                 ("OOM | 79.1 | 347210 | -", None)])  # fmt: skip
def test_one_figure_between_the_dashes_of_a_failed_run_was_left_over(lint, cells: str, proposed: str | None):
    note = ("| MBS | s/step | GB | tok/s | MFU |\n|---|---|---|---|---|\n| 1 | 3.21 | 61.2 | 326657 | 44.1 % |\n"
            f"| 2 | 3.02 | 73.9 | 347510 | 46.9 % |\n| 4 | {cells} |\n")  # fmt: skip
    assert [one.proposed for one in lint(note) if one.level != "info"] == [proposed]


def test_a_failed_run_with_a_rate_and_no_time_is_asked_about(lint):
    note = WORDS.replace("s/step", "try").replace("8 | - | -", "8 | - | 2275")
    assert [(f.line, f.code) for f in lint(note)] == [(8, "outcome-vs-figures")]


def test_a_batch_that_did_not_fit_is_a_column_of_figures(lint):
    matrix = WORDS.replace("Ergebnis", "s/step, twice the batch").replace("7.47 | 2193 | ok", "7.47 | 2193 | 14.9")
    assert lint(matrix.replace("2220 | ok", "2220 | 14.7").replace("2275 | ok", "2275 | OOM")) == []


BEYOND = "A100 40GB, sequence 2048.\n\n" + table("""
    optimizer  bs  peak GB  result
    adamw  1  31.4  ok
    adamw  2  38.0  ok
    8-bit  1  22.5  ok
    8-bit  4  >40  OOM
    adamw  4  >40  OOM
""")


@pytest.mark.parametrize("right, typed, line, proposed", [("31.4 | ok", "31.4 | OOM", 5, "ok"),
                                                          (">40 | OOM", ">40 | ok", 8, "OOM")])  # fmt: skip
def test_what_fails_has_more_than_the_device(lint, right: str, typed: str, line: int, proposed: str):
    assert lint(BEYOND) == []
    assert lint(BEYOND.replace("38.0 | ok", "38.0 | OOM")) == []  # perhaps all that was free
    found = lint(BEYOND.replace(right, typed, 1))
    assert [(f.line, f.printed, f.proposed) for f in found] == [(line, typed.split()[-1], proposed)]


@pytest.mark.parametrize("word, said", [("skipped", []), ("ok", ["dated-but-empty"])])
def test_a_night_that_was_skipped_has_no_result(lint, word: str, said: list[str]):
    note = "H100, sequence 4096, 64 GPUs.\n\n" + table(f"""
        date  GBS  s/step  status
        2025-03-03  512  7.47  ok
        2025-03-04  512  -  {word}
        2025-03-05  512  7.44  ok
    """)
    assert [f.code for f in lint(note)] == said


def test_memory_of_the_device_that_a_file_is_named_after(tmp_path):
    rows = [f"{gpus},256,{step},{memory},ok" for gpus, step, memory in ((16, 10.1, 48.1), (32, 5.2, 41.3), (64, 2.6, 95.2))]
    for name, errors in (("sweep_h100.csv", 1), ("sweep.csv", 0)):
        path = tmp_path / name
        path.write_text("\n".join(["gpus,global_batch,iter_time_s,mem_gib,status", *rows, ""]), encoding="utf-8")
        assert [f.code for f in look_at([str(path)])[0] if f.level == "error"] == ["memory-over-capacity"] * errors
