"""Tables of two or three rows: what the rest of the note, or the words of a heading, say of them."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes.lint import Finding, look_at
from seatrial.notes.lint.text.prose import Prose


@pytest.fixture
def lint(tmp_path: Path):
    def look(text: str) -> list[Finding]:
        path = tmp_path / "notes.md"
        path.write_text(text, encoding="utf-8")
        return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]

    return look


LONG = "## A100\n\n" + table("""
    GPUs  s/it  tokens/s  Days for 1T
    8  2.10  99864  115.9
    16  2.15  195083  59.3
    32  2.22  377865  30.6
    64  2.31  726284  15.9
    128  2.51  1336838  8.66
""")
SHORT = "\n## H100\n\n" + table("""
    GPUs  s/it  tokens/s  Days for 1T
    8  1.90  110376  104.9
    16  1.95  215092  53.8
""")


def test_what_a_long_table_shows_holds_in_a_short_one_of_the_same_headings(lint):
    assert lint(LONG + SHORT) == []
    found = lint(LONG + SHORT.replace("53.8", "35.8"))
    assert [(f.line, f.column, f.proposed) for f in found] == [(16, "Days for 1T", "53.8")]


def test_a_short_table_that_no_row_has_in_common_with_the_long_one_is_of_another_kind(lint):
    assert lint(LONG + SHORT.replace("104.9", "52.4").replace("53.8", "26.9")) == []


MOVED = "Sequence length 4096. Speed-up is after over before.\n\n" + table("""
    Training  Cluster  GPUs  GBS  s/step  Tokens/s  Tokens/s/GPU  Speed-up
    7B  before  32  256  8.15  128660  4021  -
    7B  after  16  256  5.98  175350  10959  2.73x
    13B  before  64  512  16.11  130178  2034  -
    13B  after  32  512  11.29  185753  5805  2.85x
    30B  before  64  512  36.40  57614  900  -
    30B  after  32  512  25.80  81285  2540  2.82x
    70B  before  128  512  44.47  47159  368  -
    70B  after  64  512  29.92  70092  1095  2.97x
""")


@pytest.mark.parametrize(("right", "wrong"), [("2.73x", "1.36x"), ("2.97x", "1.49x")])
def test_a_speed_up_of_all_devices_among_those_of_one_is_off_though_another_column_agrees(lint, right: str, wrong: str):
    assert lint(MOVED) == []
    (found,) = lint(MOVED.replace(right, wrong))
    assert (found.column, found.printed, found.proposed) == ("Speed-up", wrong, f"{2 * float(wrong[:-1]):.2f}")


@pytest.mark.parametrize(("heading", "name"), [
    ("GPU", "RTX 4090"), ("card", "4090"), ("Karte", "A6000"), ("setup", "H100"), ("", "L40S"), ("hardware", "A100 80GB")])
def test_a_device_by_its_name_is_one_where_another_row_has_two_of_it(lint, heading: str, name: str):
    note = "TinyLlama 1.1B, sequence length 2048, a step is 64 sequences.\n\n" + \
        f"| {heading} | micro batch | accum | s/step | tokens/s | TFLOPS per GPU |\n|---|---|---|---|---|---|\n"
    runs = ((1, 2, 32, 11.87), (1, 4, 16, 11.09), (1, 8, 8, 10.85), (2, 2, 16, 6.36), (2, 4, 8, 6.01))
    for devices, mbs, accum, seconds in runs:
        rate = 64 * 2048 / seconds
        many = f"{devices}x {name}" if devices > 1 else name
        note += f"| {many} | {mbs} | {accum} | {seconds} | {rate:.0f} | {6.6e-3 * rate / devices:.1f} |\n"
    assert lint(note) == []
    assert [(f.line, f.proposed) for f in lint(note.replace("| 2 | 16 |", "| 2 | 32 |")) if f.proposed] == [(8, "16")]
    assert [(f.line, f.proposed) for f in lint(note.replace("78.0 |", "7.80 |"))] == [(6, "78.0")]


@pytest.mark.parametrize(("time", "pace", "times"), [
    ("s/it", "it/s", 1), ("ms/step", "steps/s", 1000), ("step time (ms)", "it/sec", 1000), ("s/Schritt", "iter/s", 1),
    ("sec/iter", "iterations per second", 1)])
def test_steps_a_second_are_one_over_the_time_beside_them(lint, time: str, pace: str, times: int):
    rows = [(8, 4, 2.28), (4, 4, 2.23), (2, 4, 2.32), (1, 4, 2.50)]
    note = f"Qwen, L4.\n\n| batch | accum | {pace} | {time} |\n|---|---|---|---|\n"
    note += "".join(f"| {mbs} | {ga} | {1 / sec:.3f} | {sec * times:g} |\n" for mbs, ga, sec in rows)
    assert lint(note) == []
    found = lint(note.replace("0.431", "0.341"))
    assert [(f.line, f.column, f.proposed) for f in found] == [(7, pace, "0.431")]


@pytest.mark.parametrize("others", [("batch", "accum"), ("micro batch", "grad accum"), ("MBS", "GA")])
def test_block_beside_a_batch_is_the_sequence(lint, others: tuple[str, str]):
    rows = [(512, 8, 4, 2.28), (1024, 4, 4, 2.23), (2048, 2, 4, 2.32), (4096, 1, 4, 2.50)]
    note = f"| block | {others[0]} | {others[1]} | s/it | tok/s |\n|---|---|---|---|---|\n"
    note += "".join(f"| {seq} | {mbs} | {ga} | {sec} | {seq * mbs * ga / sec:.0f} |\n" for seq, mbs, ga, sec in rows)
    assert lint(note) == []
    assert [(f.line, f.column, f.proposed) for f in lint(note.replace("4096", "8192"))] == [(6, "block", "4096")]


@pytest.mark.parametrize("heading", ["Beschl.", "scale", "×", "Faktor", "przyspieszenie", "ускорение"])
@pytest.mark.parametrize("share", ["{:.2f}", "{:.2f}x", "×{:.2f}", "{:.0%}"])
def test_shares_of_the_first_row_under_a_heading_that_says_nothing(lint, heading: str, share: str):
    rows = [(1, 32, 3.25), (2, 64, 3.39), (4, 128, 3.47), (8, 256, 3.52)]
    rates = [gbs * 1024 / sec for _, gbs, sec in rows]
    note = f"Sequence length 1024.\n\n| GPUs | GBS | s/step | tokens/s | {heading} |\n|---|---|---|---|---|\n"
    note += "".join(f"| {n} | {gbs} | {sec} | {rate:.0f} | {share.format(rate / rates[0])} |\n"
                    for (n, gbs, sec), rate in zip(rows, rates))  # fmt: skip
    assert lint(note) == []
    right, wrong = (share.format(one) for one in (rates[2] / rates[0], 3.21))
    assert [(f.line, f.column, f.printed) for f in lint(note.replace(f"| {right} |", f"| {wrong} |"))] == [(7, heading, wrong)]


@pytest.mark.parametrize("column", ["1.00  0.50  0.25  0.10", "1.0  1.0  0.9  0.9", "1.00  1.41  2.00  2.83", "1x  2x  4x  8x"])
def test_what_begins_with_one_and_follows_from_nothing_is_left_alone(lint, column: str):
    rows = zip((1, 2, 4, 8), (32, 64, 128, 256), (3.25, 3.39, 3.47, 3.52), column.split())
    note = "Sequence length 1024.\n\n| GPUs | GBS | s/step | tokens/s | lr scale |\n|---|---|---|---|---|\n"
    note += "".join(f"| {n} | {gbs} | {sec} | {gbs * 1024 / sec:.0f} | {one} |\n" for n, gbs, sec, one in rows)
    assert lint(note) == []


TIMES = ((1, 154), (2, 235), (4, 400), (8, 734))
OF_T = "TinyLlama 1.1B on one A100.\n\n{}\n\n| batch | ms/step | samples/s | tok/s |\n|---|---|---|---|\n" + "".join(
    f"| {gbs} | {ms} | {gbs / ms * 1000:.2f} | {gbs * 2048 / ms * 1000:.0f} |\n" for gbs, ms in TIMES)


@pytest.mark.parametrize("said", ["T = {}, batch 1 is slow because of Adam.", "bf16, T={}, 8-bit Adam", "T={} for this one"])
def test_a_capital_t_is_the_sequence_in_a_sentence(lint, said: str):
    assert lint(OF_T.format(said.format(2048))) == []
    found = lint(OF_T.format(said.format(4096)))
    assert [(f.line, f.code, f.proposed) for f in found] == [(3, "header-vs-row", "2048")]


@pytest.mark.parametrize("said", [
    "Sampled at T = 0.7.", "Diffusion with T = 1000.", "t = 4096 s into the run.", "1T = 1024 GB.", "TP = 4096 is no degree."])
def test_a_t_that_is_no_length_says_nothing_of_the_rows(lint, said: str):
    assert lint(OF_T.format(said)) == []


@pytest.mark.parametrize("said", [
    "a step is 128 sequences = 262,144 tokens", "128 samples = 262144 tokens", "128 sequences (262,144 tokens) each time",
    "batch 8 x 16 accumulation, 128 seqs ≈ 262,144 tokens"])
def test_what_sequences_add_up_to_is_not_the_length_of_one(said: str):
    near = Prose.of(f"# Runs\n\n{said}\n\n| GPU | s/step |\n|---|---|\n| A100 | 3.1 |\n").hints.near(7)
    assert near.get("seq") is None and near.get("gbs") in (None, 128)


@pytest.mark.parametrize(("nodes", "devices"), [
    ("Instances", "Chips"), ("VMs", "GPUs"), ("servers", "HPUs"), ("Boxes", "GPUs")])
def test_what_a_cloud_rents_out_has_as_many_devices_each(lint, nodes: str, devices: str):
    note = f"Sequence 4096.\n\n| {nodes} | {devices} | GBS | s/step | tokens/s | tokens/s/GPU |\n|---|---|---|---|---|---|\n"
    rows = [(1, 64, 10.249), (4, 256, 10.406), (16, 1024, 10.921), (32, 2048, 11.117), (64, 4096, 11.240)]
    note += "".join(f"| {n} | {16 * n} | {gbs} | {sec} | {gbs * 4096 / sec:.0f} | {gbs * 256 / n / sec:.0f} |\n"
                    for n, gbs, sec in rows)  # fmt: skip
    assert lint(note) == []
    found = lint(note.replace("| 32 | 512 |", "| 64 | 512 |"))
    assert [(f.line, f.column, f.proposed) for f in found] == [(8, nodes, "32")]


BUDGET = [("4", "4629504", "10.0"), ("6", "2142208", "32.4"), ("1.2", "1294080", "10.7"), ("0.8", "1132544", "8.2"),
          ("3", "2301440", "15.1"), ("1.5", "1953280", "8.9"), ("0.25", "1979136", "1.5")]  # fmt: skip


@pytest.mark.parametrize("headings", [
    ("Tokens (T)", "tokens/s", "Days"), ("budget [T]", "tok/s", "Tage"), ("T tokens", "tok/s", "d")])
def test_tokens_that_were_chosen_are_the_rate_times_the_days(lint, headings: tuple[str, str, str]):
    note = "| run | {} | {} | {} |\n|---|---|---|---|\n".format(*headings)
    note += "".join(f"| r{at} | {tokens} | {rate} | {days} |\n" for at, (tokens, rate, days) in enumerate(BUDGET))
    assert lint(note) == []
    found = lint(note.replace("| 1.5 | 1953280", "| 15 | 1953280"))
    assert [(f.line, f.column, f.proposed) for f in found] == [(8, headings[0], "1.5")]


def test_figures_of_two_digits_that_follow_from_nothing_are_left_alone(lint):
    odd = ("4", "6", "1.2", "0.7", "5", "1.5", "0.45")
    rows = "".join(f"| {one} | {rate} | {days} |\n" for one, (_, rate, days) in zip(odd, BUDGET))
    assert lint("| score | tokens/s | Days |\n|---|---|---|\n" + rows) == []


@pytest.mark.parametrize(("headings", "right", "wrong"), [
    (("tok/s", "tok/s/GPU"), "| 61285 |", "| 490283 |"), (("tok/s", "tok/s/GPU"), "| 490283 | 61285", "| 61285 | 61285"),
    (("tokens/s", "tokens/s per device"), "| 24486 |", "| 195890 |"), (("tok/s", "tok/s/Karte"), "| 61285 |", "| 6128 |")])
def test_of_two_rows_one_proves_what_the_headings_say_in_full(lint, headings: tuple[str, str], right: str, wrong: str):
    note = f"| | {headings[0]} | {headings[1]} |\n|---|---|---|\n"
    note += "| 8x A100 80GB | 195890 | 24486 |\n| 8x H100 SXM | 490283 | 61285 |\n"
    assert lint(note) == []
    assert note.count(right) == 1
    assert [f.level for f in lint(note.replace(right, wrong))] == ["error"]


@pytest.mark.parametrize("rows", [
    ["| 8x A100 | 195890 | 25100 |", "| 8x H100 | 490283 | 490283 |"],
    ["| 1x A100 | 24486 | 24486 |", "| 8x A100 | 195890 | 25100 |"]])
def test_of_two_rows_none_proves_what_neither_keeps_to_or_one_device_gives(lint, rows: list[str]):
    assert lint("| | tok/s | tok/s/GPU |\n|---|---|---|\n" + "\n".join(rows) + "\n") == []


@pytest.mark.parametrize(("headings", "times"), [
    (("days", "GPU-hours"), 24), (("Tage", "GPU-Stunden"), 24), (("hours", "GPU hours"), 1), (("d", "GPU-h"), 24),
    (("weeks", "device-hours"), 168)])  # fmt: skip
def test_device_hours_of_two_rows_are_the_devices_times_the_time(lint, headings: tuple[str, str], times: int):
    hours = [f"{8 * times * days:.2f}" for days in (5.91, 2.36)]
    note = "| | tok/s | {} | {} |\n|---|---|---|---|\n| 8x A100 | 196k | 5.91 | {} |\n| 8x H100 | 490k | 2.36 | {} |\n"
    assert lint(note.format(*headings, *hours)) == []
    (found,) = lint(note.format(*headings, hours[0], f"{times * 2.36:.2f}"))
    assert (found.line, found.column) == (4, headings[1])
