"""Phases whose dates and time deny each other: which cell is wrong, in any way to write days and to count them."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint.phases import days


def _told(tmp_path: Path, text: str, name: str = "note.md") -> list[tuple[int | None, str | None, str | None]]:
    from seatrial.notes.lint import look_at

    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [(one.line, one.printed, one.proposed) for one in look_at([str(path)])[0] if one.level != "info"]


@pytest.mark.parametrize("cell, day", [
    ("04.11.", (0, 11, 4, 0, 0)), ("4.11.2024", (2024, 11, 4, 0, 0)),
    ("28/03", (0, 3, 28, 0, 0)), ("2025-02-03 14:00", (2025, 2, 3, 14, 0)),
    ("29 May 09:00", (0, 5, 29, 9, 0)), ("Mon 3 Mar", (0, 3, 3, 0, 0)),
    ("Jan 3, 2024", (2024, 1, 3, 0, 0)), ("5月3日", (0, 5, 3, 0, 0)),
    ("12 мая", (0, 5, 12, 0, 0)), ("27. Mai", (0, 5, 27, 0, 0)),
    ("3 août", (0, 8, 3, 0, 0)), ("16-Nov-2024", (2024, 11, 16, 0, 0)), ("2025-02-03T07:30", (2025, 2, 3, 7, 30)),
    ("3.14", None), ("4/8", None), ("7 nodes", None), ("64", None), ("2 x 4", None), ("31.31.", None), ("v0.9.1", None),
])  # fmt: skip
def test_days_as_people_write_them(cell: str, day: object) -> None:
    assert days.moments((cell,)) == [day]


def test_a_thirteenth_month_tells_which_of_two_is_the_day() -> None:
    assert [day and day[1:3] for day in days.moments(("03/04", "03/14"))] == [(3, 4), (3, 14)]
    assert [day and day[1:3] for day in days.moments(("03/04", "14/03"))] == [(4, 3), (3, 14)]


RESTARTS = """| job | started | died | hours | until restart |
|---|---|---|---:|---:|
| 17 | 27 May 09:00 | 29 May 11:30 | 50.5 | 3.5 h |
| 30 | 29 May 15:00 | {} | {} | 7 h |
| 41 | 31 May 02:41 | 03 Jun 22:00 | 91.3 | 1.5 h |
| 59 | 03 Jun 23:30 | 09 Jun 07:06 | 127.6 | 2 h |
| 66 | 09 Jun 09:06 | 12 Jun 18:03 | 81.0 | |
"""


@pytest.mark.parametrize("died, hours, told", [
    ("30 May 19:41", "28.7", []),
    ("30 May 19:41", "48.7", [(4, "48.7", "28.7")]), ("30 May 19:41", "287", [(4, "287", "28.7")]),
    ("29 May 19:41", "28.7", [(4, "29 May 19:41", "30 May 19:41")]),
])  # fmt: skip
def test_a_restart_lasts_from_its_start_to_its_end(tmp_path: Path, died: str, hours: str, told: list[object]) -> None:
    assert _told(tmp_path, RESTARTS.format(died, hours)) == told


@pytest.mark.parametrize("rows, told", [
    # The nights between.
    ("| I | 04.11. | 11.11. | 7 | 10.752 |\n| II | 13.11. | {} | 10 | 15.360 |\n| III | 25.11. | 01.12. | 6 | 9.216 |\n"
     "| IV | 01.12. | 03.12. | 2 | 3.072 |\n", [
        ("23.11.", []), ("18.11.", [("18.11.", "23.11.")])]),
    # Both ends.
    ("| I | 1 Jul | 4 Aug | 35 | 53.760 |\n| II | 5 Aug | {} | 5 | 7.680 |\n| III | 11 Aug | 24 Aug | 14 | 21.504 |\n"
     "| IV | 26 Aug | 31 Aug | 6 | 9.216 |\n", [
        ("9 Aug", []), ("6 Aug", [("6 Aug", "9 Aug")])]),
    # Whole days of such as are none.
    ("| I | 08/01 | 12/01 | 4.0 | 6144 |\n| II | 15/01 | {} | 5.9 | 9062 |\n| III | 29/01 | 01/02 | 3.0 | 4608 |\n"
     "| IV | 05/02 | 17/02 | 12.1 | 18586 |\n", [
        ("20/01", []), ("02/01", [("02/01", "20/01")]), ("20/02", [("20/02", "20/01")])]),
    ("| I | 2025-01-08 | 2025-01-12 | 4.3 | 6605 |\n| II | 2025-01-15 | {} | 5.9 | 9062 |\n"
     "| III | 2025-01-29 | 2025-02-01 | 3.0 | 4608 |\n| IV | 2025-02-05 | 2025-02-17 | 11.8 | 18125 |\n", [
        ("2025-01-21", []), ("2025-01-12", [("2025-01-12", "2025-01-21")])]),
])  # fmt: skip
def test_a_day_that_does_not_fit_the_time(tmp_path: Path, rows: str, told: list[tuple[str, list[tuple[str, str]]]]) -> None:
    for cell, found in told:
        head = "On 64 GPUs.\n\n| phase | from | to | days | GPU-hours |\n|---|---|---|---:|---:|\n"
        text = f"{head}{rows.format(cell)}"
        assert _told(tmp_path, text) == [(6, *one) for one in found]


@pytest.mark.parametrize("head", ["début;fin;durée (h)", "von;bis;Stunden", "inizio;fine;ore", "od;do;godziny", "с;по;часы",
                                  "开始;结束;小时"])  # fmt: skip
def test_days_of_a_file_in_other_tongues(tmp_path: Path, head: str) -> None:
    rows = ["a;08/01;12/01;96,0;1", "b;15/01;20/01;140,5;2", "c;29/01;01/02;72,0;3", "d;05/02;17/02;290,0;4"]
    text = "\n".join((f"run;{head};n", *rows))
    assert _told(tmp_path, text, "runs.csv") == []
    assert _told(tmp_path, text.replace("20/01", "30/01"), "runs.csv") == [(3, "30/01", "20/01")]
    assert _told(tmp_path, text.replace("140,5", "14,05"), "runs.csv") == [(3, "14,05", "140,5")]


BUDGET = """| what | GPUs | from | to | days | GPU-hours |
|---|---:|---|---|---:|---:|
| pre-training | 384 | 1 Jul | 4 Aug | 35 | 322,560 |
| annealing | 384 | 5 Aug | 9 Aug | 5 | 46,080 |
| sweeps | 64 | 11 Aug | 24 Aug | {} | {} |
| vision | 128 | 7 Jul | 27 Jul | 21 | 64,512 |
"""


@pytest.mark.parametrize("days_, hours, told", [
    ("14", "21,504", []), ("14", "215,040", [(5, "215,040", "21504")]), ("41", "21,504", [(5, "41", "14")]),
])  # fmt: skip
def test_dates_tell_which_of_two_cells_is_wrong(tmp_path: Path, days_: str, hours: str, told: list[object]) -> None:
    assert _told(tmp_path, BUDGET.format(days_, hours)) == told


def test_device_hours_say_how_long_a_phase_took(tmp_path: Path) -> None:
    text = ("| phase | start | end | GPUs | GPU h |\n|---|---|---|---:|---:|\n| P1 | 2025-01-13 | 2025-01-14 | 256 | 11,530 |\n"
            "| P2 | 2025-01-16 | 2025-01-22 | 256 | 33,780 |\n| P3 | 2025-01-24 | 2025-01-28 | 512 | 43,910 |\n"
            "| P4 | 2025-01-30 | 2025-01-30 | 512 | 3,140 |\n")  # fmt: skip
    assert _told(tmp_path, text) == []
    assert _told(tmp_path, text.replace("2025-01-22", "2025-02-22")) == [(4, "2025-02-22", "2025-01-22")]


TIMES = "| run | start | end | days |\n|---|---|---|---:|\n"


@pytest.mark.parametrize("text", [
    # Runs that overlap, and a clock that went on while nothing was done.
    f"{TIMES}| a | 1 Mar | 9 Mar | 5 |\n| b | 2 Mar | 20 Mar | 11 |\n| c | 4 Mar | 30 Mar | 20 |\n",
    # The turn of a year.
    f"{TIMES}| a | 1 Dec | 9 Dec | 8 |\n| b | 20 Dec | 4 Jan | 15 |\n| c | 6 Jan | 30 Jan | 24 |\n",
    # 2024 had a 29 February.
    f"Of 2024\n\n{TIMES}| a | 1 Feb | 9 Feb | 8 |\n| b | 20 Feb | 4 Mar | 13 |\n| c | 6 Mar | 30 Mar | 24 |\n",
    "| run | p | q | hours |\n|---|---|---|---:|\n| a | 1/8 | 2/8 | 8 |\n| b | 2/4 | 2/8 | 13 |\n| c | 8/4 | 2/4 | 24 |\n",
])  # fmt: skip
def test_other_days_are_no_slip(tmp_path: Path, text: str) -> None:
    assert _told(tmp_path, text) == []
