"""Totals of sentences: of all rows, of some of them, with a margin on top, and what one costs on average."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

COSTS = "# Costs\n\n" + table("""
    run  pool  GPUs  hours  GPU-hours  cost (€)  tokens (B)
    main-7b  H100 reserved  128  310.0  39680  99200  900
    main-1b  H100 reserved  64  120.5  7712  19280  250
    anneal  H100 on-demand  128  41.0  5248  16794  110
    evals  A100 reserved  16  90.0  1440  1800  0.5
    sft  A100 reserved  32  22.0  704  880  1.5
""") + "\n"
ENERGY = "# Énergie\n\n" + table("""
    run  heures GPU  énergie IT (MWh)  énergie site (MWh)
    1B  12000  5.4  6.75
    3B  40000  18.8  23.5
    7B  99000  47.1  58.9
""") + "\n"
WON = "# 비용\n\n" + table("""
    작업  카드  시간  카드·시간  비용(원)
    13B  64  312.0  19,968  3,395만
    70B  128  455.0  58,240  22,714만
    시험  32  40.0  1,280  499만
""") + "\n"


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("head", "said", "right", "wrong"), [
    (COSTS, "All of it was booked on project A0-12, that is {} GPU hours.", "54,784", "45,784"),
    (COSTS, "Le tout a été imputé au projet A0-1234, soit {} heures GPU.", "54 784", "74 784"),
    (COSTS, "All five together are {} GPU hours.", "54,784", "45,784"),
    (COSTS, "Insgesamt also {} Tsd. €.", "138", "183"),
    (COSTS, "That's €{}k for everything.", "138", "183"),
    (COSTS, "We add 20 % for restarts and ask for {} GPU hours in total.", "65,741", "56,741"),
    (COSTS, "Für Abbrüche rechnen wir 20 % hinzu und beantragen insgesamt {} GPU-h.", "65.741", "76.741"),
    (COSTS, "Avec 10 % de marge, nous demandons au total {} heures GPU.", "60 262", "66 262"),
    (COSTS, "In total {} GPU hours; with 10 % on top 60,262.", "54,784", "45,784"),
    (COSTS, "The reserved runs alone cost {} €.", "121,160", "112,160"),
    (COSTS, "Reserved capacity alone is {} €, the rest we can cancel.", "121,160", "86,160"),
    (COSTS, "Allein die H100 kosten {} €.", "135.274", "153.274"),
    (COSTS, "The two main runs together took {} GPU hours.", "47,392", "74,392"),
    (COSTS, "{} GPU hours went to the H100s.", "52,640", "25,640"),
    (COSTS, "On average a GPU hour cost us {} €.", "2.52", "3.65"),
    (COSTS, "Im Mittel kostet die GPU-Stunde {} €.", "2,52", "3,65"),
    (COSTS, "In media {} euro per ora GPU.", "2,52", "3,65"),
    (COSTS, "So in the mean {} €/GPU-h.", "2.52", "3.25"),
    (COSTS, "Per billion tokens that is {} € on average.", "109", "190"),
    (ENERGY, "Rapporté aux heures GPU, le site a consommé en moyenne {} par heure GPU.", "0,59 kWh", "0,59 MWh"),
    (ENERGY, "Au total {} MWh pour le site.", "89,2", "98,2"),
    (WON, "세 작업의 비용 합계는 {}억 원.", "2.7", "1.9"),
])  # fmt: skip
def test_what_the_rows_have_together(tmp_path: Path, head: str, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, head + said.format(right) + "\n") == []
    (one,) = _found(tmp_path, head + said.format(wrong) + "\n")
    assert (one.printed, one.proposed) == (wrong, right)


@pytest.mark.parametrize("said", [
    "Per GPU hour the H100 pool has cost 2.57 €.", "The A100 runs would have cost 4,000 € on the H100.",
    "The two main runs together took 431 hours.", "The main runs cost less than 150,000 €.",
    "In total 54,784 GPU hours, 20 % of them for nothing.", "The H100 runs took 310 hours.",
    "With a 10 % reserve that makes 60,262 GPU hours in total.", "On average a GPU hour was 2.57 €.",
])  # fmt: skip
def test_what_else_is_said_of_them_is_fine(tmp_path: Path, said: str) -> None:
    assert _found(tmp_path, COSTS + said + "\n") == []
