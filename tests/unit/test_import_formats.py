"""Formats of logs as data: one's own as TOML, what is wrong with it, and how runs, ranks and warm-up are told apart."""
from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seatrial.errors import BadInput
from seatrial.notes.read import import_file, runs, sniff
from seatrial.notes.read.logformat import Figure, load, shipped

MINE = '''
starts = ['^starting ']
[[line]]
pattern = 'it (?P<iteration>[0-9]+): (?P<sec_per_it>[0-9.]+), mem (?P<mem_value>[0-9.]+)'
units = { sec_per_it = "ms", mem_value = "GiB reserved" }
[[line]]
kind = "config"
pattern = '^(?P<key>[a-z_]+) = (?P<value>[^ ]+)'
[settings]
n_layer = "layers"
'''
STEPS = "".join(f"it {n}: {ms}, mem {mem}\n" for n, ms, mem in ((1, 2513.4, 31.2), (2, 812.0, 33.9), (3, 808.6, 33.5),
                                                                (4, 815.1, 33)))  # fmt: skip


def read(tmp_path: Path, log: str, form: str = MINE, **options):
    (tmp_path / "mine.toml").write_text(form)
    (tmp_path / "mine.txt").write_text(log)
    return import_file(tmp_path / "mine.txt", format=tmp_path / "mine.toml", **options)


def test_a_format_of_ones_own(tmp_path):
    (run,) = read(tmp_path, f"starting \nn_layer = 24\n{STEPS}").records
    assert (run.sec_per_it, run.time_unit) == (0.812, "ms")
    assert (run.mem_value, run.mem_unit, run.mem_measure) == (33.9, "GiB", "reserved")
    assert (run.layers, run.iteration, run.context["layers"].line) == (24, 4, 2)
    assert [step["sec"] for step in run.iterations] == [2.5134, 0.812, 0.8086, 0.8151] and run.iterations[0]["warmup"]
    assert run.measurement["counted"] == 3
    each = read(tmp_path, STEPS, each=True).records
    assert [record.sec_per_it for record in each] == [2.5134, 0.812, 0.8086, 0.8151]


def test_a_start_and_a_count_from_the_beginning_are_other_runs(tmp_path):
    found = read(tmp_path, f"starting \nn_layer = 24\n{STEPS}starting \n{STEPS}{STEPS}").records
    assert [(run.layers, len(run.iterations)) for run in found] == [(24, 4), (None, 4), (None, 4)]


def test_ranks_speak_for_one_run_and_the_fullest_counts(tmp_path):
    lines = [f"[rank{rank}]: {line}" for line in STEPS.splitlines() for rank in (0, 1)]
    text = "\n".join(lines).replace("[rank1]: it 2: 812.0, mem 33.9", "[rank1]: it 2: 999.0, mem 70.5")
    (run,) = read(tmp_path, text).records
    assert (run.sec_per_it, run.mem_value, len(run.iterations)) == (0.812, 70.5, 4)


@pytest.mark.parametrize(("form", "why"), [
    ("[[line]]\npattern = '(?P<iteration>'", "no regular expression"),
    ("[[line]]\npattern = '(?P<tfops>x)'", "no field 'tfops'"),
    ("[[line]]\nkind = 'config'\npattern = 'x'", "no .*line.* of kind step"), ("[[line]]\npatern = 'x'", "no such key"),
    ("[[line]]\npattern = '(?P<sec_per_it>x)'\nunits = { sec_per_it = 'hrs' }", "no unit of time"),
    ("line = 3", "expected a list"),
    ("[[line]]\npattern = 'x'\npairs = 'y'", "needs the groups"), ("x = [", "not TOML"),
    (f"[[line]]\npattern = 'x{{{'9' * 5000}}}'", "no regular expression: a count of thousands of digits"),
    ("starts = ['(?P<a>x)', '(?P<a>y)']\n[[line]]\npattern = 'x'", "starts is no regular expression: redefinition"),
])  # fmt: skip
def test_what_is_wrong_with_a_format_is_one_line(tmp_path, form, why):
    with pytest.raises(BadInput, match=why):
        read(tmp_path, STEPS, form)


ENDLESS = "[[line]]\npattern = 'it (?P<iteration>[0-9]+) (?:(?:[a-z]+)+)+ in (?P<sec_per_it>[0-9.]+)'\n"


def test_a_pattern_that_does_not_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("seatrial.notes.read.PATIENCE_S", 0.05)
    (run,) = read(tmp_path, "it 1 ab in 1.5\n", ENDLESS).records
    assert run.sec_per_it == 1.5
    with pytest.raises(BadInput, match=r"mine.toml: line 2 of .*mine.txt: over 0.05 s of searching"):
        read(tmp_path, f"it 1 ab in 1.5\nit 2 {'a' * 60} 1.5\n", ENDLESS)


def test_where_a_pattern_cannot_be_stopped_it_is_not_begun(tmp_path):
    with ThreadPoolExecutor(1) as pool, pytest.raises(BadInput, match="main thread"):
        pool.submit(read, tmp_path, STEPS).result()


def test_progress_that_no_format_reads_is_counted_and_said(tmp_path):
    path = tmp_path / "x.log"
    path.write_text(" iteration        1/      10 | elapsed time per iteration (ms): 2.50 |\n" + "step 5 took ms 1.25\n" * 2)
    (note,) = import_file(path).problems
    assert (note.line, note.level) == (2, "note") and note.message.startswith("2 lines look like progress")


@pytest.mark.parametrize(("spec", "text", "value"), [
    ("sec_per_it ms", "387.8/397.1", 0.3878), ("sec_per_it ms", "1.23K", 1.23), ("sec_per_it", "2.01s/it", 2.01),
    ("sec_per_it", "1.25it/s", 0.8), ("tflops FLOPs", "232.7TFLOPS", 232.7), ("tflops FLOPs", "1.1GFLOPS", 0.0011),
    ("mem_value", "170.61GB/21.37GB", 170.61), ("mem_value B", "66953674752", 62.35546875), ("mfu %", "41.2%", 0.412),
    ("mfu share", "0.4", 0.4), ("tokens_per_s", "1,472,300", 1472300), ("tokens_per_s", "12.7K", 12700), ("gbs", "4.000", 4),
])  # fmt: skip
def test_a_figure_is_read_in_its_unit(spec, text, value):
    assert Figure.of(spec).read(text)[0] == value


def test_every_shipped_format_has_its_source_and_loads():
    assert len(shipped()) >= 12 and all(form.source and form.steps for form in shipped())
    folder = Path(__file__).parents[2] / "src" / "seatrial" / "presets" / "formats"
    assert {load(path).name for path in folder.glob("*.toml")} == {form.name for form in shipped()}


def test_a_log_is_told_by_what_is_in_it(tmp_path):
    for text in ("{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 3e-05, 'epoch': 0.1}\n",
                 "iter 10: loss 3.2, time 135.20ms, mfu 41.20%\n"):  # fmt: skip
        path = tmp_path / "output.txt"
        path.write_text(f"hello\n{text}")
        assert sniff(path, path.read_bytes()) == "log"


def test_a_long_run_is_thinned_and_hostile_lines_take_no_time(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "MOST_STEPS", 500)
    path = tmp_path / "long.log"
    line = " iteration {:8}/  200000 | consumed samples: 640 | elapsed time per iteration (ms): 2500.0 | lm loss: 6.1E+00 |\n"
    with path.open("w") as file:
        for number in range(1, 2001):
            file.write(line.format(number) + "some chatter of a library that nobody reads\n" * 2)
        for word in ("step: 1 ", "iteration ", "{'loss': ", "step 1 loss ", "|", "a:", "[batch=", "Epoch 0|"):
            file.write(word * (100_000 // len(word)) + "\n")
    began = time.monotonic()
    (run,) = import_file(path).records
    assert (run.sec_per_it, run.iteration, run.measurement["every"]) == (2.5, 2000, 4) and len(run.iterations) == 501
    assert time.monotonic() - began < 10


def test_runs_in_one_file_of_metrics_are_told_by_their_name(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("name,step,train/loss,train/dt\na,1,3.0,0.5\na,2,2.9,0.5\nb,1,3.1,0.25\nb,2,3.0,0.25\n")
    assert [(run.run_id, run.loss, run.sec_per_it) for run in import_file(path).records] == [("a", 2.9, 0.5), ("b", 3.0, 0.25)]
