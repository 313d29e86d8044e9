"""Dates of sentences: how long it is between them, and the days of the week that they fall on."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

NOTE = "7B, sequences of 4096.\n\n" + table("""
    run  GPUs  batch  s/step  tokens/s
    b1  64  256  7.27  144,231
    b4  128  512  7.42  282,628
""") + "\n"


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(NOTE + text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("we have 256 h100 from 3 nov to 21 dec, i.e. {} days with both ends", "49", "39"),
    ("Laufzeit {} Monate, vom 01.04.2025 bis zum 31.03.2026, in vier Tranchen.", "12", "18"),
    ("The allocation runs from 1 March 2025 to 31 August 2025, {} months.", "6", "9"),
    ("From 2025-03-01 to 2025-03-14 ({} days) we trained.", "14", "41"),
    ("The run lasted {} days (3 Nov – 21 Dec).", "49", "94"),
    ("Der Lauf dauerte vom 3. bis 24. November, also {} Tage.", "22", "32"),
    ("Du 3 novembre au 21 décembre, soit {} jours.", "49", "39"),
    ("Dal 3 novembre al 21 dicembre, cioè {} giorni.", "49", "39"),
    ("11月3日から12月21日まで {} 日間。", "49", "39"),
    ("С 3 ноября по 21 декабря, т. е. {} дней.", "49", "39"),
    ("From 3 Nov to 21 Dec = {} weeks.", "7", "9"),
    ("It was booked from Nov 3 to Dec 21: {} days.", "49", "94"),
    ("Started on 2025-11-03 ({}), stopped on 2025-11-05 (Wed).", "Mon", "Tue"),
    ("# <2024-11-11 {}> Longer\n\n# <2024-11-12 Tue> Shorter\n", "Mon", "Fri"),
    ("{}, 3 November 2025: started. Wednesday, 5 November 2025: stopped.", "Monday", "Friday"),
    ("{}, 03.11.2025: los. Mittwoch, 05.11.2025: aus.", "Montag", "Freitag"),
    ("2025年11月3日({}) 開始、2025年11月5日(水) 終了。", "月", "金"),
    ("{} 3 Nov: start.\n\nTue 4 Nov: on.\n\nWed 5 Nov: on.\n\nThu 6 Nov: on.\n\nFri 7 Nov: off.", "Mon", "Sun"),
])  # fmt: skip
def test_what_the_calendar_denies(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, said.format(right)) == []
    (one,) = _found(tmp_path, said.format(wrong))
    assert (one.level, one.printed, one.proposed) == ("error", wrong, right)


@pytest.mark.parametrize("said", [
    "From 3 Nov to 21 Dec it trained for 39 days, the rest was queueing.", "From 3 Nov to 21 Dec: 39 days net.",
    "From 3 to 5 May, 61 hours.", "The 39 days of the first run, and those from 3 Nov to 21 Dec.",
    "From 3 Nov to 5 Nov, 12 hours.", "Started Fri 3 Nov, done on Mon 6 Nov.", "Between 3 Nov and 21 Dec about 39 days.",
    "So, 3 Nov 2025 it was.",
])  # fmt: skip
def test_what_it_leaves_open_is_fine(tmp_path: Path, said: str) -> None:
    assert _found(tmp_path, said + "\n") == []
