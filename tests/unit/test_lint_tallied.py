"""Counts, durations and units of sentences, in digits and in words, against the rows and against each other."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes import lint
from seatrial.notes.lint import Finding
from seatrial.notes.lint.text import words


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


OOM = """# Hunting memory, 14B on GH200

One node has 4 GPUs, sequence 4096, global batch 128.

| no | nodes | tp | mbs | sec/it | tok/s | mem GiB | status |
|---|---|---|---|---|---|---|---|
| 1 | 1 | 1 | 1 |  |  |  | OOM |
| 2 | 1 | 4 | 1 | 27.06 | 19,376 | 74.4 | ok |
| 3 | 1 | 4 | 4 |  |  |  | OOM |
| 4 | 2 | 4 | 2 | 12.90 | 40,642 | 61.9 | ok |
| 5 | 4 | 4 | 2 | 6.76 | 77,558 | 52.0 | ok |

"""


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("{} of the 5 tries went out of memory.", "2", "3"),
    ("{} of the five configurations ran out of memory.", "two", "three"),
    ("{} Versuche liefen in OOM.", "Zwei", "Vier"),
    ("{} de los 5 intentos no cabían.", "2", "4"),
    ("{} essais ne tenaient pas.", "Deux", "Quatre"),
])  # fmt: skip
def test_how_many_failed(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert not _found(tmp_path, OOM + said.format(right) + "\n")
    (one,) = _found(tmp_path, OOM + said.format(wrong) + "\n")
    assert (one.level, one.printed, one.proposed) == ("error", wrong, right)


def test_tallies_of_something_else(tmp_path: Path) -> None:
    for said in ("3 of the 4 tries with tp 1 went out of memory.", "Three more runs went out of memory last week.",
                 "The first 3 of the 5 steps never failed."):  # fmt: skip
        assert not _found(tmp_path, OOM + said + "\n")


SIZES = """# Engines

Two models on {} nodes of four GPUs, sequence 4096, global batch 128.

| engine | GPUs | s/it | tok/s |
|---|---|---|---|
| A | 4 | 27.06 | 19,376 |
| B | 4 | 28.11 | 18,651 |
| A | 8 | 13.61 | 38,522 |
| A | 32 | 3.61 | 145,231 |

"""


@pytest.mark.parametrize(("right", "wrong", "meant"), [
    ("one, two and eight", "one, two and four", ("four", "eight")), ("1, 2 and 8", "1, 4 and 8", ("4", "2"))])
def test_on_how_many_nodes(tmp_path: Path, right: str, wrong: str, meant: tuple[str, str]) -> None:
    assert not _found(tmp_path, SIZES.format(right))
    (one,) = _found(tmp_path, SIZES.format(wrong))
    assert (one.printed, one.proposed) == meant


TUNED = """# Tuning

8 GPUs per node.

| model | GPUs | GBS | seq | s/it | tokens/s |
|---|---|---|---|---|---|
| 8B | 8 | 32 | 4096 | 1.79 | 73,224 |
| 13B | 8 | 32 | 4096 | 3.18 | 41,218 |
| 70B | 32 | 32 | 4096 | 4.70 | 27,888 |

"""


def test_nodes_of_a_model(tmp_path: Path) -> None:
    assert not _found(tmp_path, TUNED + "The 70B is tuned on 4 nodes.\n")
    (one,) = _found(tmp_path, TUNED + "The 70B is tuned on 8 nodes.\n")
    assert (one.printed, one.proposed) == ("8", "4")


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("Maintenance from 9:00 to 14:30, {} hours.", "5.5", "3.5"),
    ("Maintenance from 9:00 to 14:30, {} hours of nothing.", "five and a half", "three and a half"),
    ("Wartung von 9:00 bis 14:30, also {} Stunden nichts.", "fünfeinhalb", "dreieinhalb"),
    ("Ausfall 22:15-01:45 ({} h).", "3,5", "2,5"),
    ("Panne de 14h00 à 17h30, soit {} heures.", "3,5", "5,5"),
])  # fmt: skip
def test_the_clock(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert not _found(tmp_path, said.format(right) + "\n")
    (one,) = _found(tmp_path, said.format(wrong) + "\n")
    assert (one.printed, one.proposed) == (wrong, right)


def test_the_clock_of_something_else(tmp_path: Path) -> None:
    for said in ("From 9:00 to 14:30 the queue was full, and two hours later it was not.", "Ratio 14:30 to 9:15 in 2 hours."):
        assert not _found(tmp_path, said + "\n")


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("Per token the 7B takes {} at 8k.", "51 GFLOP", "51 TFLOP"),
    ("FLOPs per token are 6N + 6 L h s. For the 7B that is 51 GFLOP at 8k and {} at 1024k.", "677 GFLOP", "677 TFLOP"),
])  # fmt: skip
def test_operations_of_a_token(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert not _found(tmp_path, said.format(right) + "\n")
    (one,) = _found(tmp_path, said.format(wrong) + "\n")
    assert (one.printed, one.proposed) == (wrong, right)


CHIPS = """# Chips

Board power is 600 W (Gaudi 2) and 700 W (H100).

| chip | chips | tokens/s/chip | speed-up | bubble (%) |
|---|---|---|---|---|
| Gaudi 2 | 64 | 401 | 1.00 | 7.3 |
| H100 | 64 | 844 | 2.10 | 5.1 |
| H100 | 128 | 809 | 4.03 | 3.2 |

"""


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("On Gaudi 2 a token costs {}, i.e. energy of the board alone.", "1.50 J", "15.0 J"),
    ("The speed-up on 128 chips is {}.", "4.03", "5.03"),
    ("The bubble on 128 chips is {} %.", "3.2", "6.2"),
])  # fmt: skip
def test_what_a_row_has(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert not _found(tmp_path, CHIPS + said.format(right) + "\n")
    (one,) = _found(tmp_path, CHIPS + said.format(wrong) + "\n")
    assert (one.printed, one.proposed) == (wrong, right)


COSTS = """# Coûts

| essai | carte | GPU | heures | débit (jetons/s) | jetons (Md) | coût (€) |
|---|---|---|---|---|---|---|
| thym-1 | A100 | 64 | 72,5 | 222 919 | 58,18 | 5 568 |
| thym-2 | A100 | 64 | 118,0 | 228 278 | 96,97 | 9 062 |
| thym-3 | H100 | 64 | 66,0 | 617 386 | 146,69 | 9 715 |

"""


def test_figures_of_each_other(tmp_path: Path) -> None:
    said = "Le milliard de jetons a coûté {} € sur thym-2 et {} € sur thym-3.\n"
    assert not _found(tmp_path, COSTS + said.format(93, 66))
    (one,) = _found(tmp_path, COSTS + said.format(66, 93))
    assert (one.printed, one.proposed) == ("66", "93")


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("It went from 30216 to 23525 tokens/s, a loss of {} %.", "22", "28"),
    ("Von 24,9 auf 19,1 Tage, also {} % weniger.", "23", "30"),
])  # fmt: skip
def test_a_loss_is_of_what_was_there(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert not _found(tmp_path, said.format(right) + "\n")
    (one,) = _found(tmp_path, said.format(wrong) + "\n")
    assert one.proposed == right


RATES = """# Rates

| GPUs | tokens/s |
|---|---|
| 64 | 148,000 |
| 128 | 290,000 |
| 256 | 591,000 |

"""


@pytest.mark.parametrize(("said", "wrong", "right"), [
    ("256 GPUs run at 591 thousand tokens per second, so that a trillion tokens take {}.", "19.6 hours", "19.6 days"),
    ("On 256 GPUs the job reads {} billion tokens a day.", "2.1", "51.1"),
])  # fmt: skip
def test_the_unit_of_a_time(tmp_path: Path, said: str, wrong: str, right: str) -> None:
    assert not _found(tmp_path, RATES + said.format(right) + "\n")
    (one,) = _found(tmp_path, RATES + said.format(wrong) + "\n")
    assert one.proposed == right


def test_the_slower_one_is_no_multiple(tmp_path: Path) -> None:
    note = CHIPS + "On 64 chips an H100 is {} times as fast as a Gaudi 2.\n"
    assert not _found(tmp_path, note.format("2.10"))
    (one,) = _found(tmp_path, note.format("0.48"))
    assert one.proposed == "2.10"


@pytest.mark.parametrize(("word", "value", "other", "made"), [
    ("dreieinhalb", 3.5, 5.5, "fünfeinhalb"), ("Six", 6, 3, "Three"), ("trois", 3, 4, "quatre"), ("3,5", 3.5, 5.5, "5,5"),
    ("six", 6, 40, "40"), ("anderthalb", 1.5, 2.5, "zweieinhalb")])  # fmt: skip
def test_small_numbers_in_words(word: str, value: float, other: float, made: str) -> None:
    assert words.value(word) == value
    if word != "anderthalb":
        assert words.like(word, other) == made


SCALE = """# Scaling of the 13B

One node has 8 A100 80GB. Sequence 4096, 6N FLOPs per token, peak 312.

| nodes | GPUs | TP | DP | GBS | s/step | tokens/s | tok/s/GPU | TFLOP/s/GPU | MFU | GiB |
|---|---|---|---|---|---|---|---|---|---|---|
| 1 | 8 | 2 | 4 | 128 | 34.38 | 15,250 | 1,906 | 148.7 | 47.7 % | 56.6 |
| 2 | 16 | 2 | 8 | 128 | 17.36 | 30,201 | 1,888 | 147.2 | 47.2 % | 52.5 |
| 4 | 32 | 2 | 16 | 128 | 8.82 | 59,444 | 1,858 | 144.9 | 46.4 % | 50.3 |
| 8 | 64 | 2 | 32 | 128 | 4.56 | 114,975 | 1,796 | 140.1 | 44.9 % | 49.1 |
| 16 | 128 | 2 | 64 | 128 | 2.45 | 213,995 | 1,672 | 130.4 | 41.8 % | 48.4 |

"""
PRECISION = """# fp8 against bf16 (H100, seq 8192)

| model | GPUs | precision | GBS | s/step | tok/s/GPU | TFLOP/s/GPU | GiB | gain |
|---|---|---|---|---|---|---|---|---|
| 8B | 8 | bf16 | 128 | 15.43 | 8,496 | 461 | 62.1 | - |
| 8B | 8 | fp8 | 128 | 11.87 | 11,043 | 599 | 58.0 | 30 % |
| 13B | 16 | bf16 | 128 | 13.10 | 5,003 | 436 | 66.4 | - |
| 13B | 16 | fp8 | 128 | 10.32 | 6,350 | 553 | 61.0 | 27 % |
| 70B | 64 | bf16 | 128 | 17.52 | 935 | 426 | 55.9 | - |
| 70B | 64 | fp8 | 128 | 13.58 | 1,206 | 550 | 51.3 | 29 % |

"""
BILLED = """# Bill of the quarter

| run | GPU | GPUs | hours | GPU hours | tokens (B) | kWh | cost ($) |
|---|---|---|---|---|---|---|---|
| alder | A100 | 64 | 72.5 | 4,640 | 58.2 | 3,712 | 5,568 |
| beech | A100 | 128 | 31.0 | 3,968 | 49.9 | 3,174 | 4,762 |
| cedar | H100 | 64 | 66.0 | 4,224 | 146.7 | 5,914 | 9,715 |
| dogwood | H100 | 128 | 50.0 | 6,400 | 222.4 | 8,960 | 14,720 |
| elm | H100 | 32 | 25.5 | 816 | 28.3 | 1,142 | 1,877 |

"""


@pytest.mark.parametrize(("note", "said", "right", "wrong"), [
    (SCALE, "From 8 to 128 GPUs we lose {} points of MFU.", "5.9", "9.5"),
    (SCALE, "Con 8 nodos en vez de 4 el rendimiento sube un {} %.", "93", "63"),
    (SCALE, "Passando da 1 a 2 nodi si va {} volte più veloci.", "1,98", "1,58"),
    (SCALE, "На 16 узлах скорость в {} раза выше, чем на одном.", "14,0", "12,0"),
    (SCALE, "Doubling the nodes from 8 to 16 brings {} %.", "86", "68"),
    (SCALE, "The step time shrinks from 34.38 s to {} s.", "2.45", "4.25"),
    (SCALE, "All {} rows were taken on the same day, in 2024.", "five", "six"),
    (SCALE, "The largest job used {} GPUs.", "128", "256"),
    (SCALE, "We tried one to {} nodes.", "sixteen", "twelve"),
    (SCALE, "Each step processes {} tokens.", "524,288", "262,144"),
    (BILLED, "Energy adds up to {} kWh.", "22,902", "29,202"),
    (BILLED, "A GPU hour on H100 cost us ${}.", "2.30", "3.20"),
    (BILLED, "The most expensive run was {}.", "dogwood", "cedar"),
    (BILLED, "The A100 runs took {} GPU hours.", "8,608", "8,068"),
    (PRECISION, "The mean gain is {} %.", "29", "39"),
    (PRECISION, "fp8 saves {} GiB on the 13B.", "5.4", "4.5"),
    (PRECISION, "In fp8 the 13B steps in {} s instead of 13.10.", "10.32", "12.30"),
    (PRECISION, "The 70B does {} tok/s per GPU in fp8, against 935 in bf16.", "1,206", "1,602"),
    (PRECISION, "Going to fp8 shortens the step of the 8B by {} %.", "23", "33"),
])  # fmt: skip
def test_what_rows_give(tmp_path: Path, note: str, said: str, right: str, wrong: str) -> None:
    assert not _found(tmp_path, note + said.format(right) + "\n")
    (one,) = _found(tmp_path, note + said.format(wrong) + "\n")
    assert one.proposed == right
