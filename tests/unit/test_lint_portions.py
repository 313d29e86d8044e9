"""Shares of a column's total, shares that a column shows, and averages by two totals, in sentences."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

FAMILY = "# Training\n\n" + table("""
    stage  tokens (B)  GPUs  GPU hours  days  MWh
    1B base  1200  64  5,751  3.7  3.74
    1B anneal  100  64  483  0.3  0.31
    4B base  2500  256  37,115  6.0  24.12
    4B anneal  200  256  2,983  0.5  1.94
    12B base  3200  512  149,004  12.1  96.85
    12B anneal  300  512  14,034  1.1  9.12
    12B long  60  256  3,152  0.5  2.05
""") + "\n"
FRENCH = "# Bilan\n\n" + table("""
    entraînement  partition  GPU  durée (j)  heures GPU  puissance/GPU (W)  énergie IT (MWh)
    ara-1B  A100  32  9,5  7 296  520  3,8
    ara-7B  H100  256  21,0  129 024  930  120,0
    encodeur  A100  64  6,0  9 216  505  4,7
    MoE  H100  128  17,5  53 760  890  47,8
    parole  V100  64  14,0  21 504  390  8,4
""") + "\n"
CONTEXT = "# Context\n\n" + table("""
    Context  CP  Step time (s)  Tokens/s/GPU  MFU (%)  Attention part of FLOPs
    8K  1  9.20  7,120  42.8  12%
    32K  1  12.78  5,128  42.1  36%
    128K  4  25.27  2,594  44.1  69%
    512K  8  75.66  866  44.6  90%
""") + "\n"
MONTHS = "# Spend\n\n" + table("""
    month  job  GPUs  GPU hours  $
    2025-05  pilot  16  1,920  5,664
    2025-05  mix  32  6,912  20,390
    2025-06  3b  128  36,864  86,630
    2025-06  evals  8  3,840  6,874
    2025-07  14b-1  384  156,672  407,347
    2025-07  14b-2  384  87,552  227,635
    2025-08  sft  16  2,304  5,990
""") + "\n"
COSTS = "# Consuntivo\n\n" + table("""
    run  type  GPU  hours  GPU hours  kWh  tokens (B)  $
    a-1b  A100  32  140.5  4,496  2,226  210  7,194
    a-3b  A100  64  290.0  18,560  9,373  480  29,696
    b-7b  H100  128  336.0  43,008  39,137  1150  124,723
    b-7b long  H100  128  168.0  21,504  19,461  575  62,362
    moe  H100  128  108.0  13,824  12,027  300  40,090
""") + "\n"


def _found(folder: Path, text: str, name: str = "note.md") -> list[Finding]:
    note = folder / name
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("note", "said", "right", "wrong"), [
    (FAMILY, "The 12B took {} % of the GPU hours.", "78", "58"),
    (FAMILY, "Le 12B a pris {} % des heures GPU.", "78", "58"),
    (FAMILY, "{} % of all GPU hours went into 12B base.", "70", "40"),
    (FAMILY, "Das 12B verbrauchte {} % der GPU-Stunden.", "78", "87"),
    (FAMILY, "{} percent of the energy is that of the 12B.", "78", "58"),
    (FAMILY, "Of the GPU hours, the 12B took {} %.", "78", "58"),
    (FAMILY, "The annealing phases took {} % of the GPU hours.", "8", "18"),
    (FRENCH, "Le ara-7B à lui seul représente {} % de l'énergie IT.", "65", "34"),
    (FRENCH, "Auf MoE entfallen {} % der GPU-Stunden.", "24", "42"),
    (CONTEXT, "At 128K {} % of the FLOPs are attention.", "69", "48"),
    (CONTEXT, "At 128K attention is already {} % of the FLOPs, at 512K 90 %.", "69", "96"),
    (CONTEXT, "Bei 128K sind {} % der FLOPs Attention.", "69", "96"),
    (CONTEXT, "At 128K already {} % of the FLOPs are attention; the rate at 512K is 8.2 times lower than at 8K.", "69", "48"),
    (MONTHS, "July was {} % of the whole.", "83", "38"),
    (MONTHS, "July took {} % of the bill.", "83", "38"),
    (MONTHS, "In June we spent {} % of the money.", "12", "21"),
    (MONTHS, "Im Juli fielen {} % der Kosten an.", "83", "38"),
    (MONTHS, "{} % of the total was spent on the 14b in July.", "83", "38"),
    (COSTS, "On average we paid ${} per GPU hour.", "2.60", "6.20"),
    (COSTS, "in media {} euro per ora GPU; con 0,21 euro/kWh la corrente costa 17 mila euro", "2,60", "3,65"),
    (COSTS, "Im Mittel {} € je GPU-Stunde.", "2,60", "2,06"),
    (COSTS, "En moyenne {} kWh par heure GPU.", "0,81", "0,18"),
    (COSTS, "The average is {} per GPU-hour.", "0.81 kWh", "0.81 MWh"),
])  # fmt: skip
def test_parts_and_averages(tmp_path: Path, note: str, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{note}{said.format(right)}\n") == []
    (one,) = _found(tmp_path, f"{note}{said.format(wrong)}\n")
    assert (one.printed, one.proposed) == (wrong, right)


@pytest.mark.parametrize(("note", "said"), [
    (FAMILY, "The 12B lost 58 % of the GPU hours to restarts."), (FAMILY, "For the 12B communication is 30 % of the time."),
    (FAMILY, "12B base took 90 % of the GPU hours of the 12B."), (FAMILY, "The 12B had 58 % of the memory in use."),
    (FAMILY, "The 12B should take 60 % of the GPU hours."), (CONTEXT, "At 128K 20 % of the FLOPs are recomputed."),
    (CONTEXT, "At 128K attention takes 33 points more of the FLOPs than at 32K, i.e. 33 %."),
    (COSTS, "An A100 hour was $1.60 per GPU hour."),
])  # fmt: skip
def test_parts_of_other_things(tmp_path: Path, note: str, said: str) -> None:
    assert _found(tmp_path, f"{note}{said}\n") == []


def test_each_remark_of_an_export_is_by_itself(tmp_path: Path) -> None:
    rows = ["month,job,gpus,gpu_h,usd", "2025-05,pilot,16,1920,5664.00", "2025-05,mix,32,6912,20390.40",
            "2025-06,3b,128,36864,86630.40", "2025-07,14b,384,156672,407347.20", "2025-08,sft,16,2304,5990.40",
            "# 8 GPUs to a node everywhere, also where we only used some", "# July was {} % of the whole"]  # fmt: skip
    assert _found(tmp_path, "\n".join(rows).format(77), "burn.csv") == []
    (one,) = _found(tmp_path, "\n".join(rows).format(57), "burn.csv")
    assert (one.line, one.printed, one.proposed) == (8, "57", "77")
