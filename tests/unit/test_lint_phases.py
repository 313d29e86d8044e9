"""Phases of a run between restarts: tokens and days of the steps between, and phases that begin where the last one ended."""
from __future__ import annotations

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.read import import_file

RESTARTS = "34B on 128 x H100, sequence 4096.\n\n" + table("""
    phase  from step  to step  GBS  tokens (B)  days  ended by
    1  0  4,000  256  4.2  0.22  ramp
    2  4,000  12,000  512  16.8  0.79  ramp
    3  12,000  19,440  1024  31.2  1.41  NCCL
    4  19,440  31,200  1024  49.3  2.22  link
    5  31,200  44,850  1024  57.3  2.57  rewound
    6  44,700  58,200  1024  56.6  2.55  disk
    7  58,200  80,110  1024  91.9  4.08  planned
""")
TIMED = table("""
    фаза  с шага  до шага  токены, млрд  с/шаг  сутки
    1  0  20000  167.8  4.511  1.04
    2  20000  45000  209.7  4.418  1.28
    3  45000  60000  125.8  4.395  0.76
    4  60000  95000  293.6  4.502  1.82
""")
RANGES = table("""
    Stage  Steps  Batch (M tokens)  Tokens (B)  Days
    warm  0–2000  2.1  4.2  0.10
    main  2001–50000  4.2  201.6  4.8
    cool  50001–60000  4.2  42.0  1.0
    long  60001–64000  4.2  16.8  0.4
""")
DOTTED = table("""
    von Schritt  bis Schritt  Tokens (Mrd.)  Tage  Grund
    0  12.000  50,3  0,81  Ausfall
    12.000  21.500  39,8  0,65  NCCL
    21.500  32.100  44,5  0,72  Strom
    32.100  40.000  33,1  0,54  fertig
""")
REWOUND = table("""
    run  start  end  loss  note
    a  0  12000  2.41  crash
    b  12000  21500  2.31  crash
    c  21500  32100  2.25  rewound
    d  30000  40000  2.21  crash
    e  40000  44000  2.20  crash
    f  44000  50000  2.19  done
""")
DOUBLING = table("""
    ideal  measured max  throughput of all
    1  2  100
    2  4  190
    4  8  350
    8  16  710
""")


def _found(text, tmp_path):
    path = tmp_path / "run.md"
    path.write_text(text, encoding="utf-8")
    found = import_file(path)
    return [one for one in lint.lint(found.records, found.problems, prose={"run.md": text}) if one.code == "aggregate"]


@pytest.mark.parametrize("text", [RESTARTS, TIMED, RANGES, DOTTED, REWOUND, DOUBLING])
def test_phases_that_belong_together_are_fine(text, tmp_path):
    assert _found(text, tmp_path) == []


@pytest.mark.parametrize(("text", "right", "wrong"), [
    (RESTARTS, " 49.3 ", " 94.3 "), (RESTARTS, "| 2.22 ", "| 22.2 "), (RESTARTS, "4,000 | 256", "40,000 | 256"),
    (RESTARTS, "19,440 | 1024", "14,940 | 1024"), (RESTARTS, "80,110", "81,010"), (RESTARTS, "31,200 | 1024", "13,200 | 1024"),
    (RESTARTS, "19,440 | 1024", "19,440 | 512"), (TIMED, "1.28", "12.8"), (TIMED, "293.6", "209.7"),
    (RANGES, "201.6", "20.16"), (DOTTED, "32.100 | 44,5", "52.100 | 44,5"),
])  # fmt: skip
def test_a_phase_that_the_others_deny_is_told_with_what_it_should_be(text, right, wrong, tmp_path):
    assert text.count(right) == 1
    (found,) = _found(text.replace(right, wrong), tmp_path)
    assert found.level == "error"
    assert found.proposed in [part.strip() for part in right.split("|")]
    assert found.printed in [part.strip() for part in wrong.split("|")]


def test_steps_that_no_phase_has_are_doubted_where_nothing_else_tells(tmp_path):
    (found,) = _found(REWOUND.replace("| 21500 | 32100", "| 25100 | 32100"), tmp_path)
    assert (found.level, found.column, found.proposed) == ("warning", "start", None)


COLUMN = "Sequência 4096.\n\n" + table("""
    GPUs  s/passo  lote global  tokens/s  custo (US$)
    8  10,11  64  25.929  164,55
    8  9,44  64  27.769  753,58
    8  9,00  64  29.127  547,05
""")
LISTED = "\n## Totals\n\n- tokens: 307B\n- training days: 13.8\n- GPU hours: 42,500\n- lost: 14 h\n"


@pytest.mark.parametrize("text", [
    RESTARTS + LISTED, RESTARTS + LISTED.replace("## Totals", "Totals:"), RESTARTS + LISTED.replace("Totals", "Plan"),
    RESTARTS + "\nIn all 307.3B tokens in 13.84 days, 42,516 GPU hours.\n",
    COLUMN + "\nSomando a coluna do custo, foram US$ 1.465.\n",
])  # fmt: skip
def test_totals_of_the_rows_are_fine_in_a_list_or_a_sentence(text, tmp_path):
    assert _found(text, tmp_path) == []


@pytest.mark.parametrize(("text", "wrong", "right"), [
    (RESTARTS + LISTED.replace("42,500", "1,020,000"), "1,020,000", "42,516"),
    (RESTARTS + LISTED.replace("13.8", "18.3"), "18.3", "13.8"),
    (RESTARTS + LISTED.replace("307B", "37B"), "37", "307"),
    (RESTARTS + "\nIn all 307.3B tokens in 13.84 days, 24,516 GPU hours.\n", "24,516", "42,516"),
    (COLUMN + "\nSomando a coluna do custo, foram US$ 1.256.\n", "1.256", "1.465"),
])  # fmt: skip
def test_a_total_that_the_rows_do_not_give_is_told(text, wrong, right, tmp_path):
    (found,) = _found(text, tmp_path)
    assert (found.printed, found.proposed) == (wrong, right)


PLAIN = """phase,start_step,end_step,gbs,tokens_b,hours,gpu_hours
1,0,3000,512,6.29,10.0,640
2,3000,9000,1024,25.17,40.0,2560
3,9000,20000,1024,46.14,73.3,4691
4,20000,35000,1024,62.91,100.0,6400
5,35000,41000,1024,25.17,40.0,2560
"""


def test_a_file_of_phases_that_has_no_run_is_looked_at_too(tmp_path):
    path = tmp_path / "phases.csv"
    path.write_text(PLAIN, encoding="utf-8")
    assert not [one for one in lint.look_at([str(path)])[0] if one.level != "info"]
    path.write_text(PLAIN.replace("6400", "640"), encoding="utf-8")
    assert {one.line for one in lint.look_at([str(path)])[0] if one.level == "error"} == {5}


def test_days_that_are_exchanged_are_put_back(tmp_path):
    note = table("""
        phase  from  to  steps  tokens (B)
        ramp  02_Mar  03_Mar  2,000  8.4
        main  04_Mar  19_Mar  40,000  167.8
        anneal  20_Mar  22_Mar  5,000  21.0
    """).replace("_", " ")
    path = tmp_path / "phases.md"
    path.write_text(note, encoding="utf-8")
    assert not [one for one in lint.look_at([str(path)])[0] if one.level != "info"]
    path.write_text(note.replace("04 Mar | 19 Mar", "19 Mar | 04 Mar"), encoding="utf-8")
    (found,) = [one for one in lint.look_at([str(path)])[0] if one.level != "info"]
    assert (found.level, found.printed, found.proposed) == ("error", "19 Mar", "04 Mar")
