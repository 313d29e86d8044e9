"""Tables of energy, carbon and money, in units and with prices as people of many tongues write them."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at
from seatrial.notes.lint.phases.ledger import price_list, prices
from seatrial.notes.lint.phases.quantities import meanings

BILAN = """# Bilan énergétique

| entraînement | partition | GPU | durée (j) | heures GPU | W/GPU | énergie IT (MWh) | énergie site (MWh) | CO₂ (t) |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
| 1B | A100 | 32 | 9,5 | 7 296 | 520 | 3,8 | 4,7 | 0,27 |
| 7B | H100 | 256 | 21,0 | 129 024 | 930 | 120,0 | 150,0 | 8,40 |
| 7B long | H100 | 128 | 4,2 | 12 902 | 940 | 12,1 | 15,2 | 0,85 |
| 400M | A100 | 64 | 6,0 | 9 216 | 505 | 4,7 | 5,8 | 0,33 |
| MoE | H100 | 128 | 17,5 | 53 760 | 890 | 47,8 | 59,8 | 3,35 |
| MoE bis | H100 | 128 | 5,5 | 16 896 | 885 | 15,0 | 18,7 | 1,05 |
| parole | V100 | 64 | 14,0 | 21 504 | 390 | 8,4 | 10,5 | 0,59 |
| **Total** | | | | **250 598** | | **211,8** | **264,7** | **14,84** |
"""
SPENT = """# Consuntivo; separatore ";", decimali con la virgola
# tariffe: A100 1,60 euro/h per GPU - H100 2,90 - L40S 0,95
esecuzione;tipo;GPU;ore;ore GPU;W;kWh;euro
uno;A100;8;96,0;768;480;369;1229
due;A100;32;140,5;4496;495;2226;7194
tre;A100;64;290,0;18560;480;8909;29696
quattro;L40S;8;60,0;480;390;187;456
cinque;H100;128;336,0;43008;910;39137;124723
sei;H100;128;168,0;21504;905;19461;62362
TOTALE;;;;88816;;70289;225660
"""
DISCOUNTED = """project,card,cards,days,card_hours,list_usd_per_card_hour,discount_pct,usd
a,A100,8,4,768,1.29,0,990.72
b,A100,16,3,1152,1.29,0,1486.08
c,H100,32,6,4608,2.39,0,11013.12
d,H100,32,5.5,4224,2.39,0,10095.36
e,H100,128,2,6144,2.39,10,13215.74
f,H100,256,19,116736,2.39,15,237149.18
g,H100,256,3,18432,2.39,15,37444.61
h,H200,8,1.5,288,3.59,0,1033.92
i,H100,64,7,10752,2.39,10,23127.55
j,H100,64,7,10752,2.39,10,23127.55
TOTAL,,,,173856,,,358683.83
"""


def found(folder: Path, text: str, name: str = "notes.md") -> list[Finding]:
    (folder / name).write_text(text)
    return [one for one in look_at([str(folder / name)])[0] if one.level != "info"]


@pytest.mark.parametrize(("heading", "kind", "unit"), [
    ("durée (j)", "hours", 24.0), ("durata (g)", "hours", 24.0), ("J/token", "energy of a token", 1 / 3.6e6),
    ("J/jeton", "energy of a token", 1 / 3.6e6), ("Wh per token", "energy of a token", 1e-3),
    ("débit moyen (kjetons/s)", "tokens a second", 1.0)])
def test_units_of_french_and_italian_tables(heading: str, kind: str, unit: float):
    assert meanings(heading)[0] == (kind, pytest.approx(unit))


def test_energy_has_no_days_nor_joules_of_its_own():
    assert not {"hours"} & {kind for heading in ("énergie (J)", "J", "g") for kind, _ in meanings(heading)}


@pytest.mark.parametrize(("slips", "expected"), [
    ([("8,40", "84,0")], {6: 8.4}), ([("| 4,2 |", "| 2,4 |")], {7: 4.2}), ([("**264,7**", "**214,7**")], {12: 264.7}),
    ([("8,40", "84,0"), ("| 4,2 |", "| 2,4 |"), ("| 16 896 |", "| 53 760 |"), ("**264,7**", "**214,7**")],
     {6: 8.4, 7: 4.2, 10: 16896.0, 12: 264.7})])  # fmt: skip
def test_several_slips_of_one_energy_table(tmp_path: Path, slips: list[tuple[str, str]], expected: dict[int, float]):
    assert found(tmp_path, BILAN) == []
    text = BILAN
    for right, wrong in slips:
        text = text.replace(right, wrong)
    told = {one.line: float((one.proposed or "0").replace(",", ".")) for one in found(tmp_path, text)}
    assert told == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize(("right", "wrong", "line", "proposed"), [
    ("8909;29696", "8909;53824", 6, 29696), ("187;456", "187;1392", 7, 456), (";225660", ";252660", 10, 225660),
    ("1229", "2219", 4, 1229)])  # fmt: skip
def test_prices_of_several_chips_in_a_comment_with_the_money_said_once(
    tmp_path: Path, right: str, wrong: str, line: int, proposed: float
):
    assert found(tmp_path, SPENT, "spent.csv") == []
    told = found(tmp_path, SPENT.replace(right, wrong), "spent.csv")
    assert [(one.line, float(one.proposed or 0)) for one in told] == [(line, pytest.approx(proposed, rel=0.01))]


@pytest.mark.parametrize(("line", "expected"), [
    ("tariffe: A100 1,60 euro/h per GPU - H100 2,90 - L40S 0,95", {"a100": 1.6, "h100": 2.9, "l40s": 0.95}),
    ("Prices per GPU-h: A100 $1.20, H100 $2.30", {"a100": 1.2, "h100": 2.3}),
    ("A100 80 GB and H100 80 GB, 2.10 EUR per GPU hour", {})])
def test_lists_of_prices(line: str, expected: dict[str, float]):
    assert price_list((line,)) == expected
    assert bool(prices((line,)).get("hour")) == (line.startswith("A100"))


def test_list_prices_with_a_discount_are_not_what_was_paid(tmp_path: Path):
    assert [one for one in found(tmp_path, DISCOUNTED, "spent.csv") if one.level == "error"] == []
    told = found(tmp_path, DISCOUNTED.replace("256,19,116736", "256,91,116736"), "spent.csv")
    assert [(one.line, one.proposed) for one in told] == [(7, "19")]


PLANNED = """# Compute plan

GPU-h from the MFU in the column and the dense bf16 peak: A100 312, H100 989 TFLOP/s. Prices per GPU-h: A100 $1.20, H100 $2.30.

| run | N | D | {} | chip | # | MFU | GPU-h | days | USD |
|---|---|---|---|---|---|---|---|---|---|
| 400M | 0.4B | 8B | 1.92e+19 | A100 | 8 | 35 | 49 | 0.25 | 59 |
| 1B | 1B | 20B | 1.20e+20 | A100 | 16 | 38 | 281 | 0.73 | 337 |
| 3B | 3B | 60B | 1.08e+21 | A100 | 32 | 40 | 2,404 | 3.13 | 2,885 |
| 7B full | 7B | 4T | 1.68e+23 | H100 | 256 | 41 | 115,087 | 18.7 | 264,700 |
| 7B math | 7B | 500B | 2.10e+22 | H100 | 256 | 41 | 14,386 | 2.34 | 33,088 |
| 13B | 13B | 5T | 3.90e+23 | H100 | 512 | 42 | 260,805 | 21.2 | 599,852 |
"""
CARD = """# Runs

Batch is in tokens.

| run | tokens | steps | batch | A100s | s/step | tokens/s |
|---|---|---|---|---|---|---|
| nano | 600B | 286,102 | 2.10M | 32 | 1.23 | 1,710,969 |
| mini | 600B | 286,102 | 2.10M | 64 | 2.05 | 1,021,128 |
| base | 1200B | 286,102 | 4.19M | 256 | 4.87 | 860,972 |
| large | 1800B | 381,470 | 4.72M | 384 | 6.33 | 745,266 |
| xl | 2400B | 381,470 | 6.29M | 768 | 7.74 | 812,369 |
"""
LONG = """# Long context

| context | tokens | CP | DP | sequences | s/step | tokens/s |
|---|---|---|---|---|---|---|
| 8K | 8,192 | 1 | 32 | 128 | 1.80 | 581,696 |
| 16K | 16,384 | 1 | 32 | 64 | 2.03 | 516,182 |
| 32K | 32,768 | 2 | 16 | 32 | 2.52 | 416,830 |
| 64K | 65,536 | 4 | 8 | 16 | 3.51 | 298,960 |
"""


@pytest.mark.parametrize("heading", ["FLOP", "total FLOPs", "training compute (FLOP)"])
@pytest.mark.parametrize(("right", "wrong", "line", "proposed"), [
    ("1.92e+19", "1.92e+18", 7, ""), ("| 41 | 115,087", "| 14 | 115,087", 10, "41"), ("| 512 |", "| 256 |", 12, ""),
    ("| 38 | 281 |", "| 38 | 218 |", 8, "281")])  # fmt: skip
def test_flops_are_device_hours_at_a_share_of_the_peak(
    tmp_path: Path, heading: str, right: str, wrong: str, line: int, proposed: str
):
    text = PLANNED.format(heading)
    assert found(tmp_path, text) == []
    told = found(tmp_path, text.replace(right, wrong))
    assert {(one.line, one.level) for one in told} == {(line, "error")}
    assert not proposed or [one.proposed for one in told] == [proposed]


@pytest.mark.parametrize(("right", "wrong", "line"), [
    ("4.72M", "4.19M", 10), ("| base | 1200B | 286,102", "| base | 1200B | 268,102", 9), ("2400B", "240B", 11)])
def test_millions_under_batch_are_tokens_of_a_step(tmp_path: Path, right: str, wrong: str, line: int):
    assert [one for one in found(tmp_path, CARD) if one.level == "error"] == []
    told = found(tmp_path, CARD.replace(right, wrong))
    assert {one.line for one in told if one.level == "error"} == {line}


def test_a_power_of_ten_is_proposed_as_it_is_printed(tmp_path: Path):
    text = PLANNED.format("FLOP") + "| 30B | 30B | 6T | 1.08e+24 | H100 | 1024 | 40 | 758,342 | 30.9 | 1,744,186 |\n" \
        "| 30B bis | 30B | 1T | 1.80e+23 | H100 | 1024 | 40 | 126,390 | 5.14 | 290,698 |\n"
    assert found(tmp_path, text) == []
    assert [one.proposed for one in found(tmp_path, text.replace("1.08e+24", "1.08e+23"))] == ["1.08e+24"]


def test_sequences_beside_the_time_of_a_step_are_the_batch(tmp_path: Path):
    assert found(tmp_path, LONG) == []
    assert [(one.line, one.proposed) for one in found(tmp_path, LONG.replace("| 64 | 2.03", "| 128 | 2.03"))] == [(6, "64")]


ADAPTERS = """# How large is an adapter?

| base | rank | {} | {} | file | state |
|---|---|---|---|---|---|
| Llama-3 8B | 8 | 21.0M | 0.26% | 42 MB | 0.34 GB |
| Llama-3 8B | 16 | 41.9M | 0.52% | 84 MB | 0.67 GB |
| Llama-3 8B | 64 | 167.8M | 2.09% | 336 MB | 2.68 GB |
| Llama-3 70B | 16 | 207.1M | 0.29% | 414 MB | 3.31 GB |
| Llama-3 70B | 64 | 828.4M | 1.17% | 1657 MB | 13.25 GB |
"""


@pytest.mark.parametrize(("heading", "share"), [("trainable", "share"), ("trainable params", "% of model"),
                                               ("adapter params", "% of total")])  # fmt: skip
@pytest.mark.parametrize(("right", "wrong", "line"), [
    ("167.8M", "16.78M", 7), ("| 414 MB", "| 414 GB", 8), ("2.09%", "20.9%", 7), ("| 84 MB", "| 48 MB", 6)])
def test_adapters_have_two_bytes_a_parameter_and_a_share_of_their_model(
    tmp_path: Path, heading: str, share: str, right: str, wrong: str, line: int
):
    text = ADAPTERS.format(heading, share)
    assert found(tmp_path, text) == []
    assert {(one.line, one.level) for one in found(tmp_path, text.replace(right, wrong))} == {(line, "error")}


def test_a_share_of_the_parameters_is_of_its_own_model(tmp_path: Path):
    note = ("# LoRA\n\n| run | params | trainable | share | GPUs |\n|---|---|---|---|---|\n"
            "| full | 8.03B | 8.03B | 100.00% | 8 |\n| r=16 | 8.03B | 41.9M | 0.52% | 1 |\n"
            "| r=64 | 8.03B | 167.8M | {share}% | 1 |\n"
            "| r=32 | 8.03B | 83.9M | 1.04% | 1 |\n| QLoRA r=16 | 70.60B | 207.0M | 0.29% | 8 |\n")  # fmt: skip
    assert found(tmp_path, note.format(share="2.09")) == []
    assert [one.line for one in found(tmp_path, note.format(share="20.9"))] == [7]
