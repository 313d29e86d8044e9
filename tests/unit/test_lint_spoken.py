"""What sentences give of rows: levels in many tongues, the best of a column, from where to where it goes, bounds."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes import lint
from seatrial.notes.lint import Finding
from seatrial.notes.lint.text.figures import figures, plain


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


SCALING = """# Strong scaling

4 GPUs per node (A100 80GB), TP 4, PP 2. Sequence length 2048, global batch 1536.

| nodes | GPUs | DP | s/step | tokens/s | tok/s/GPU | TFLOP/s/GPU | MFU | efficiency | mem GiB |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 16 | 64 | 8 | 27.90 | 112,750 | 1,762 | 151.2 | 48.5 % | 100 % | 71.2 |
| 32 | 128 | 16 | 14.21 | 221,375 | 1,730 | 148.4 | 47.6 % | 98.2 % | 63.5 |
| 64 | 256 | 32 | 7.38 | 426,250 | 1,665 | 142.9 | 45.8 % | 94.5 % | 59.8 |
| 96 | 384 | 48 | 5.14 | 612,000 | 1,594 | 136.7 | 43.8 % | 90.5 % | 58.6 |
| 192 | 768 | 96 | 2.87 | 1,096,100 | 1,427 | 122.5 | 39.3 % | 81.0 % | 57.3 |

"""
RUNS = """# FP8 on one node

| run | precision | MBS | ms/step | tok/s/GPU | TFLOPs | MFU (%) | peak mem (GB) |
|---|---|---|---|---|---|---|---|
| B | bf16 | 2 | 7890 | 8306 | 384 | 38.8 | 44.9 |
| C | bf16 | 2 | 6310 | 10386 | 480 | 48.5 | 66.0 |
| D | fp8 | 1 | 4720 | 13885 | 641 | 64.8 | 61.3 |
| E | fp8 | 2 | 4511 | 14528 | 671 | 67.8 | 68.2 |

"""


@pytest.mark.parametrize(("note", "said", "right", "wrong"), [
    (SCALING, "The aggregate at 768 GPUs is {} tokens/s.", "1,096,100", "2,096,100"),
    (SCALING, "A step goes from {} s on 16 nodes to 2.87 s on 192.", "27.9", "37.9"),
    (SCALING, "MFU falls from 48.5 % to {} %.", "39.3", "29.3"),
    (SCALING, "The rate per GPU drops from 1762 to {} tokens/s.", "1427", "1247"),
    (SCALING, "The largest run does {} M tokens/s.", "1.1", "2.1"),
    (SCALING, "The last row still has {} % efficiency.", "81", "91"),
    (SCALING, "Best MFU: {} %, on 16 nodes.", "48.5", "45.8"),
    (SCALING, "Mit 768 GPUs erreichen wir {} % MFU.", "39,3", "49,3"),
    (SCALING, "Die Schrittzeit sinkt von {} s auf 2,87 s.", "27,9", "29,7"),
    (SCALING, "Sur 96 nœuds un pas prend {} s.", "5,14", "1,54"),
    (SCALING, "Con 96 nodos se obtienen {} tokens/s.", "612.000", "216.000"),
    (SCALING, "Su 64 nodi un passo richiede {} s.", "7,38", "8,73"),
    (SCALING, "Em 64 nós cada passo leva {} s.", "7,38", "3,78"),
    (SCALING, "Op 96 knooppunten duurt een stap {} s.", "5,14", "4,15"),
    (SCALING, "Na 192 węzłach krok trwa {} s.", "2,87", "7,28"),
    (SCALING, "На 192 узлах шаг занимает {} с.", "2,87", "2,17"),
    (SCALING, "192 ノードでは 1 ステップ {} 秒です。", "2.87", "8.72"),
    (SCALING, "在 768 卡上扩展效率为 {} %。", "81", "61"),
    (SCALING, "192 노드에서 스텝 시간은 {}초입니다.", "2.87", "5.87"),
    (RUNS, "Run B uses only {} GB.", "44.9", "49.4"),
    (RUNS, "Lauf E schafft {} TFLOPs.", "671", "617"),
    (RUNS, "La ejecución E es la mejor: {} ms por paso.", "4511", "4151"),
    (RUNS, "最好的是 E，{} TFLOPs。", "671", "617"),
    (RUNS, "The best run does {} TFLOPs.", "671", "617"),
])  # fmt: skip
def test_the_level_of_a_row(tmp_path: Path, note: str, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{note}{said.format(right)}\n") == []
    (found,) = _found(tmp_path, f"{note}{said.format(wrong)}\n")
    assert (found.line, found.printed, found.proposed) == (note.count("\n") + 1, wrong, right)


def test_a_sentence_of_several_lines_is_found_where_its_figure_stands(tmp_path: Path) -> None:
    text = "We also looked at the machine as a whole:\non 192 nodes a step takes\n8.27 s, as it has to.\n"
    (found,) = _found(tmp_path, f"{SCALING}{text}")
    assert (found.line, found.printed, found.proposed) == (15, "8.27", "2.87")


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("All runs stay above {} % efficiency.", "80", "90"), ("Every run fits into {} GiB.", "72", "62"),
    ("None of them needs more than {} GiB.", "72", "60"), ("No run is below {} % MFU.", "39", "49"),
])  # fmt: skip
def test_bounds_of_all_rows(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{SCALING}{said.format(right)}\n") == []
    (found,) = _found(tmp_path, f"{SCALING}{said.format(wrong)}\n")
    assert (found.line, found.printed) == (13, wrong)


@pytest.mark.parametrize("line", [
    "On 192 nodes a step takes nearly 3 s.", "At 768 GPUs we hoped for 160 TFLOP/s.", "The paper has 3.4 s on 192 nodes.",
    "With 192 nodes a checkpoint takes 41 s.", "The whole cluster of 768 GPUs does 94,080 TFLOP/s.",
    "Between 16 and 32 nodes the step gets 13.7 s shorter.", "A step on 192 nodes would take 2.3 s if it scaled ideally.",
    "On 192 nodes without overlap a step takes 3.6 s.", "Auf 192 Knoten sollte ein Schritt 2,3 s dauern.",
    "Up to 75 GiB are usable.", "Each of the 192 nodes has 512 GB of memory.", "One node does 5,709 tokens/s at 192 nodes.",
])  # fmt: skip
def test_figures_of_something_else(tmp_path: Path, line: str) -> None:
    assert _found(tmp_path, f"{SCALING}{line}\n") == []


@pytest.mark.parametrize(("sentence", "kinds"), [
    ("300B tokens on 768 GPUs take 3.2 days.", {"tokens": 3e11, "devices": 768, "hours": 76.8}),
    ("Es sind 18,3 Mrd. Token je Tag.", {"tokens a second": 18.3e9 / 86400}),
    ("1 ステップ 2.87 秒、185 億トークン/日", {"step seconds": 2.87, "tokens a second": 18.5e9 / 86400}),
    ("总计 243,303 卡时", {"device hours": 243303}), ("Au total 243 303 heures GPU", {"device hours": 243303}),
    ("64 узла по 8 карт: 1,9 млн токенов/с", {"nodes": 64, "devices": 8, "tokens a second": 1.9e6}),
    ("$381k at $2.20 per GPU hour", {"money": 381e3, "price of a device hour": 2.2}),
    ("an A100 80GB uses 71.4 GB at 48.5 % MFU", {"memory": 71.4, "mfu": 48.5}),
])  # fmt: skip
def test_quantities_of_a_sentence(sentence: str, kinds: dict[str, float]) -> None:
    found = {one.kind: one.value for one in figures(plain(sentence))}
    assert {kind: found.get(kind) for kind in kinds} == pytest.approx(kinds)


PHASES = """# What the training cost

512 H100 in 64 nodes; $2.20 per GPU hour.

| phase | tokens (B) | steps | days | GPU hours | cost (k$) |
| --- | ---: | ---: | ---: | ---: | ---: |
| 1 warm-up | 200 | 47,684 | 1.9 | 23,347 | 51.4 |
| 2 main | 1,500 | 357,628 | 14.1 | 173,261 | 381.2 |
| 3 anneal | 250 | 59,605 | 2.6 | 31,949 | 70.3 |
| 4 long | 50 | 11,921 | 1.2 | 14,746 | 32.4 |

"""


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("Sum: {} GPU-h.", "243,303", "423,303"), ("That makes {} k$ in total.", "535", "355"),
    ("Insgesamt {} GPU-Stunden.", "243.303", "423.303"), ("Au total {} heures GPU.", "243 303", "342 303"),
    ("In totale {} giorni.", "19,8", "29,8"), ("合計 {} GPU 時間。", "243,303", "423,303"),
    ("总计 {} 卡时。", "243,303", "423,303"), ("Итого {} GPU-часов.", "243 303", "423 303"),
    ("Altogether 2.0T tokens, {} GPU hours and $535k.", "243,303", "234,303"),
    ("The main phase cost {}.", "$381k", "$318k"), ("Phase 2 alone took {} days.", "14.1", "11.4"),
])  # fmt: skip
def test_totals_in_any_tongue(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{PHASES}{said.format(right)}\n") == []
    (found,) = _found(tmp_path, f"{PHASES}{said.format(wrong)}\n")
    assert (found.line, found.proposed) == (12, right.strip("$k"))


@pytest.mark.parametrize("line", [
    "In total 261,400 GPU hours with the evaluations.", "The whole project used 301,000 GPU hours, restarts included.",
    "Together about 240,000 GPU hours.", "In total each node was up for 480 hours.",
])  # fmt: skip
def test_totals_of_more_than_the_rows(tmp_path: Path, line: str) -> None:
    assert _found(tmp_path, f"{PHASES}{line}\n") == []


@pytest.mark.parametrize(("note", "said", "right", "wrong"), [
    (SCALING, "Per GPU we lose {} % between 64 and 768 GPUs.", "19", "29"),
    (SCALING, "The drop from 64 to 768 GPUs is {} %.", "19", "9"),
    (SCALING, "768 GPUs are {}x as fast as 64.", "9.7", "7.9"),
    (SCALING, "Le débit est multiplié par {} entre 64 et 768 GPU.", "9,7", "7,9"),
    (RUNS, "Run E is {} % faster than run C.", "40", "30"), (RUNS, "E ist um {} % schneller als C.", "40", "60"),
    (RUNS, "Le gain de E sur C est de {} %.", "40", "20"),
    (RUNS, "The difference between D and E is only {} ms.", "209", "902"),
    (RUNS, "D needs {} GB less than C.", "4.7", "7.4"),
])  # fmt: skip
def test_what_two_rows_differ_by(tmp_path: Path, note: str, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{note}{said.format(right)}\n") == []
    (found,) = _found(tmp_path, f"{note}{said.format(wrong)}\n")
    assert (found.line, found.proposed) == (note.count("\n") + 1, right)


@pytest.mark.parametrize("line", [
    "On 192 nodes the first ten steps take 4.1 s.", "On 96 nodes with the old driver a step took 6.3 s.",
    "For comparison: our A100-40GB cluster did 131 TFLOP/s at 256 GPUs.", "p99 on 192 nodes is 3.9 s per step.",
    "With GBS 3072 we see 146 TFLOP/s on 768 GPUs, but the loss suffers.", "A 70B model on 192 nodes runs at 9.8 s per step.",
    "Steps vary between 2.7 s and 3.4 s on 192 nodes.", "At TP 8 the 64-node run drops to 128 TFLOP/s.",
    "At 768 GPUs communication takes 0.61 s of each step.", "The best we have ever seen on 16 nodes is 155 TFLOP/s, in March.",
    "With the patch 64 nodes get 151 TFLOP/s.", "One of 192 nodes was slow: 3.4 s per step until we removed it.",
])  # fmt: skip
def test_runs_that_are_in_no_row(tmp_path: Path, line: str) -> None:
    assert _found(tmp_path, f"{SCALING}{line}\n") == []


BUDGET = """# Plan

Llama-8B, sequence 4096, H100 at $2.20 per GPU hour.

| nodes | GPUs | s/step | tokens/s | TFLOPs | MFU |
| ---: | ---: | ---: | ---: | ---: | ---: |
| 8 | 64 | 7.02 | 597,400 | 471 | 47.6 % |
| 16 | 128 | 3.61 | 1,161,900 | 458 | 46.3 % |
| 32 | 256 | 1.88 | 2,231,100 | 440 | 44.5 % |

"""


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("Bei 2.231.100 Token/s dauern 300 Mrd. Token {} Tage.", "1,56", "15,6"),
    ("At 2.23M tokens/s a trillion tokens take {} days.", "5.2", "52"),
    ("À 1 161 900 tokens/s, 300 milliards de tokens prennent {} heures.", "72", "27"),
    ("A 1.161.900 tokens/s, 300 mil millones de tokens tardan {} horas.", "72", "27"),
    ("При 1 161 900 токенов/с 300 млрд токенов займут {} часа.", "72", "27"),
    ("256 GPUs × 37.4 h = {} GPU hours.", "9,574", "5,974"),
])  # fmt: skip
def test_how_long_tokens_take_in_any_tongue(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{BUDGET}{said.format(right)}\n") == []
    found = _found(tmp_path, f"{BUDGET}{said.format(wrong)}\n")
    assert {one.line for one in found} == {11} and found[0].printed == wrong


@pytest.mark.parametrize("sentence", [
    "One checkpoint: 14 bytes × 70.55e9 = 988 GB.", "Attention adds 12*12*768*1024 = 0.113 G per token.",
    "512 x 4096 = 2.1 Mio. Token je Schritt.", "Peak 918 TFLOP/s, hosts with 8 chips.",
    "v4-128 are cores. On lumi 128 GCDs are 16 nodes of 4 MI250X.",
    "A model of 2.51B parameters, 18 layers, d 2048.",
])  # fmt: skip
def test_what_agrees_but_for_a_unit_or_is_of_the_device_is_fine(tmp_path: Path, sentence: str) -> None:
    assert _found(tmp_path, SCALING + sentence + "\n") == []


def test_a_product_of_another_size_is_told(tmp_path: Path) -> None:
    (one,) = _found(tmp_path, SCALING + "One checkpoint: 14 bytes × 70.55e9 = 698 GB.\n")
    assert (one.printed, one.proposed) == ("698", "988")


def test_a_total_blames_no_row_whose_own_hours_and_devices_agree(tmp_path: Path) -> None:
    note = """# Stages

| stage | GPUs | days | GPU hours | cost (USD) |
|---|---:|---:|---:|---:|
| warm-up | 64 | 0.20 | 307 | $675 |
| stable | 256 | 9.39 | 57,692 | $126,923 |
| decay | 256 | 1.00 | 6,168 | $13,570 |
| long | 128 | 2.83 | 8,701 | $19,142 |

In total {} GPU hours and $160,310.
"""
    assert _found(tmp_path, note.format("72,868")) == []
    (one,) = _found(tmp_path, note.format("86,713"))
    assert (one.printed, one.proposed) == ("86,713", "72,868")


def test_less_than_nothing_is_no_figure_of_a_column(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    note.write_text("| run | GPUh |\n|---|---|\n| a | -1 |\n| b | -2 |\n\nIn all 3 GPU hours.\n", encoding="utf-8")
    assert [one for one in lint.look_at([str(note)])[0] if "aggregate" in one.code] == []


@pytest.mark.parametrize("text", [
    "9" * 309 + " or 2H10\n", "|Nos|T|PP\n|7\n|>\n<r>3</d>128x\n",
    "S=34 GBS8\n||s|tok/s|M\n||19.4|433927\n||19.|440475|\n||19.8|425426\n",
    "|||9B\n-|\n|layer||0\n|hidden size||4\nparam 9.5B\n", "1.5B:0layer 1600\n",
])  # fmt: skip
def test_counts_beyond_any_number_and_spaced_factors_break_nothing(tmp_path: Path, text: str) -> None:
    note = tmp_path / "note.md"
    note.write_text(text, encoding="utf-8")
    lint.look_at([str(note)])  # whatever it says


def test_the_peak_of_a_device_is_no_claim_on_the_rows(tmp_path):
    note = tmp_path / "notes.md"
    note.write_text("| TP | PP | Sec/it | TFLOP/s/GPU |\n|---|---|---|---|\n| 2 | 1 | 8.1 | 410 |\n| 4 | 1 | 8.6 | 386 |\n"
                    "| 4 | 2 | 9.0 | 369 |\n\nThe fastest is TP=2, PP=1, with 41.4 % of 989 TFLOP/s.\n")  # fmt: skip
    assert [one for one in lint.look_at([str(note)])[0] if one.level != "info"] == []
