"""What sentences say of rows: ratios, what is kept and lost, shares of a named column, figures and settings of another row."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes import lint
from seatrial.notes.lint import Finding


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


SCALING = """# Weak scaling

| nodes | GPUs | batch | s/step | samples/s | efficiency |
| ---: | ---: | ---: | ---: | ---: | ---: |
| 1 | 8 | 64 | 4.000 | 16.0 | 100 % |
| 2 | 16 | 128 | 4.082 | 31.4 | 98 % |
| 4 | 32 | 256 | 4.211 | 60.8 | 95 % |
| 8 | 64 | 512 | 4.494 | 113.9 | 89 % |

"""
PRECISIONS = """# Two cards

| card | precision | s/step | tokens/s/GPU | TFLOPs |
| --- | --- | ---: | ---: | ---: |
| X1 | bf16 | 9.120 | 7,186 | 401 |
| X1 | fp8 | 6.805 | 9,631 | 537 |
| X2 | bf16 | 4.310 | 15,206 | 848 |
| X2 | fp8 | 3.190 | 20,544 | 1146 |

"""


@pytest.mark.parametrize(("note", "right", "wrong", "proposed"), [
    (SCALING, "On 8 nodes the efficiency is 89 %.", "On 8 nodes the efficiency is 69 %.", "89"),
    (SCALING, "Mit 8 Knoten liegt die Effizienz bei 89 %.", "Mit 8 Knoten liegt die Effizienz bei 68 %.", "89"),
    (SCALING, "Sur quatre nœuds l'efficacité est de 95 %.", "Sur quatre nœuds l'efficacité est de 75 %.", "95"),
    (SCALING, "At 8 nodes we lose 11 % against one node.", "At 8 nodes we lose 21 % against one node.", "11"),
    (SCALING, "Going from 1 to 8 nodes gives 7.1x the samples/s.", "Going from 1 to 8 nodes gives 5.6x the samples/s.", "7.1"),
    (PRECISIONS, "With fp8 a step on the X2 is 26 % shorter.", "With fp8 a step on the X2 is 46 % shorter.", "26"),
    (PRECISIONS, "fp8 brings 35 % on the X2.", "fp8 brings 53 % on the X2.", "35"),
    (PRECISIONS, "In bf16 the X2 is 2.12x as fast as the X1.", "In bf16 the X2 is 2.75x as fast as the X1.", "2.12"),
])  # fmt: skip
def test_a_ratio_of_rows_that_are_named(tmp_path: Path, note: str, right: str, wrong: str, proposed: str) -> None:
    assert _found(tmp_path, f"{note}{right}\n") == []
    (found,) = _found(tmp_path, f"{note}{wrong}\n")
    assert (found.line, found.proposed) == (note.count("\n") + 1, proposed)


@pytest.mark.parametrize("line", [
    "fp8 brings 30 to 40 % on both cards.", "The paper has 80 % for fp8 on the X2.",
    "We hope for 60 % more with fp8 on the X2.",
    "The X2 costs 70 % more than the X1.", "fp8 needs less than 80 % of the power of bf16 on the X2.",
    "All runs were 12 % faster last week.",
])  # fmt: skip
def test_ratios_of_what_no_table_has(tmp_path: Path, line: str) -> None:
    assert _found(tmp_path, f"{PRECISIONS}{line}\n") == []


SEARCH = """# Search

| run | TP | PP | mbs | s/step | TFLOPs |
| --- | --- | --- | --- | ---: | ---: |
| 01 | 4 | 2 | 1 | 7.412 | 380 |
| 02 | 4 | 2 | 2 | 6.903 | 408 |
| 03 | 8 | 1 | 1 | 7.655 | 368 |
| 04 | 8 | 1 | 2 | 7.180 | 392 |

"""


def test_a_figure_of_the_run_that_a_sentence_names(tmp_path: Path) -> None:
    assert _found(tmp_path, f"{SEARCH}Best so far: run 02 with 6.9 s.\n") == []
    (found,) = _found(tmp_path, f"{SEARCH}Best so far: run 02 with 5.7 s.\n")
    assert (found.line, found.printed, found.proposed) == (10, "5.7", "6.9")


def test_a_setting_beside_the_figures_of_another_row(tmp_path: Path) -> None:
    assert _found(tmp_path, f"{SEARCH}The winner is TP 4 with mbs 2 at 6.903 s and 408 TFLOPs.\n") == []
    (found,) = _found(tmp_path, f"{SEARCH}The winner is TP 8 with mbs 2 at 6.903 s and 408 TFLOPs.\n")
    assert (found.line, found.printed, found.proposed) == (10, "TP 8", "TP 4")


def test_the_best_of_a_column_of_gains(tmp_path: Path) -> None:
    note = ("| model | GPU | old ms | new ms | gain |\n|---|---|---|---|---|\n| 1B | A100 | 812 | 741 | +10 % |\n"
            "| 3B | A100 | 2210 | 1995 | +11 % |\n| 7B | A100 | 5127 | 4420 | +16 % |\n"
            "| 7B | H100 | 2470 | 1990 | +24 % |\n\n")  # fmt: skip
    assert _found(tmp_path, f"{note}The best gain is +24 %, for the 7B on H100.\n") == []
    (found,) = _found(tmp_path, f"{note}The best gain is +16 %, for the 7B on H100.\n")
    assert (found.line, found.proposed) == (8, "24")


DAYS = """| phase | {} | {} | hours | steps |
| --- | --- | --- | ---: | ---: |
| 1 | 02 Mar 08:00 | 04 Mar 20:10 | 59.5 | 20000 |
| 2 | 05 Mar 01:30 | 09 Mar 13:00 | 106.8 | 36000 |
| 3 | 09 Mar 18:00 | {} | 83.0 | 28000 |
| 4 | 17 Mar 09:15 | 19 Mar 10:00 | 48.1 | 16000 |
| total | | | 297.4 | 100000 |
"""


def test_the_day_that_a_phase_of_so_many_hours_ended_on(tmp_path: Path) -> None:
    assert _found(tmp_path, DAYS.format("start", "stop", "13 Mar 05:40")) == []
    (found,) = _found(tmp_path, DAYS.format("start", "stop", "03 Mar 05:40"))
    assert (found.line, found.level, found.code, found.proposed) == (5, "error", "date-order", "13 Mar 05:40")


def test_a_day_out_of_line(tmp_path: Path) -> None:
    note = "| day | GPUs | s/it | loss |\n|---|---|---|---|\n" + "".join(
        f"| 2024-11-{day:02d} | 64 | 4.0{day:02d} | {3 - day / 50:.3f} |\n" for day in range(4, 12))  # fmt: skip
    assert _found(tmp_path, note) == []
    for wrong in ("2024-11-18", "2024-01-08", "2023-11-08"):
        (found,) = _found(tmp_path, note.replace("2024-11-08", wrong))
        assert (found.line, found.printed, found.proposed) == (7, wrong, "2024-11-08")


def test_two_series_of_days_are_no_slip(tmp_path: Path) -> None:
    days = ["03-02", "03-05", "03-09", "03-01", "03-04", "03-11"]
    rows = "".join(f"| {day} | {at} | {500 + 3 * at} |\n" for at, day in enumerate(days))
    assert _found(tmp_path, f"| date | job | steps |\n|---|---|---|\n{rows}") == []


FITS = """| # | TP | PP | s/step | max | outcome |
| --- | --- | --- | ---: | ---: | --- |
| 1 | 8 | 1 | {} |
| 2 | 8 | 2 | 31.3 | 61.5 | runs |
| 3 | 4 | 2 | | > 80 | OOM |
| 4 | 4 | 4 | | > 80 | OOM |
| 5 | 8 | 4 | 31.9 | 49.1 | runs |
"""


def test_memory_beyond_the_device_is_what_fails(tmp_path: Path) -> None:
    assert _found(tmp_path, FITS.format("| > 80 | OOM")) == []
    (found,) = _found(tmp_path, FITS.format("| > 80 | runs"))
    assert (found.line, found.code, found.proposed) == (3, "outcome-vs-figures", "OOM")


def test_gains_over_the_first_of_four_rows(tmp_path: Path) -> None:
    note = ("| setting | samples/s | over baseline |\n|---|---|---|\n| baseline | 41.2 | |\n| pinned | 44.1 | +7 % |\n"
            "| + fused | 48.2 | {} |\n| + tuned | 51.9 | +26 % |\n")  # fmt: skip
    assert _found(tmp_path, note.format("+17 %")) == []
    (found,) = _found(tmp_path, note.format("+71 %"))
    assert (found.line, found.proposed) == (5, "+17 %")
