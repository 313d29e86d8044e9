"""progress.json: what it says follows from the view, it is whole or not there, and a damaged one is none."""
from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from seatrial.report import live
from seatrial.sweep.board import FILE, Board, Progress, best_in_words, note_best, post, posted, time_left_s
from seatrial.sweep.controller import View
from seatrial.sweep.store import Row


def row(seconds, status="ok", sec_per_it=0.5, **more):
    rest = {"state": "measured", "label": "tp=1", "model": "tiny", **more}
    return Row(status=status, value=1.0, sec_per_it=sec_per_it, seconds=seconds, samples_per_s=8 / sec_per_it, **rest)


def view(*rows, total, running=(), hopeless=0):
    made = View(total=total, rows={str(n): one for n, one in enumerate(rows)}, hopeless=hopeless)
    made.running = [SimpleNamespace(since=time.monotonic() - ago) for ago in running]
    made.spent_s = sum(one.seconds for one in rows)
    for one in rows:
        note_best(made.best, one)
    return made


@pytest.mark.parametrize(("rows", "running", "more", "left_s"), [
    ([], [], dict(total=4), None),
    ([row(10), row(20)], [5], dict(total=4), 10 + 15),
    ([row(10), row(20)], [5, 5], dict(total=5), (10 + 10 + 15) / 2),
    ([row(10)], [60], dict(total=2), 0),
    ([row(10), row(0, "invalid")], [], dict(total=4, hopeless=1), 10),
    ([row(10), row(10)], [], dict(total=2), 0),
])
def test_time_left_is_what_the_finished_ones_took_for_those_that_will_run(rows, running, more, left_s):
    left = time_left_s(view(*rows, running=running, **more))
    assert left == (None if left_s is None else pytest.approx(left_s, abs=0.5))


def test_the_board_says_how_far_it_is_and_never_more_time_than_the_budget_has(tmp_path):
    board = Board(tmp_path, name="first", budget_s=50)
    board.show(view(row(20), row(20, "crash"), total=9, running=[0]))
    said = posted(tmp_path)
    assert (said.done, said.total, said.running, said.counts, said.state) == (2, 9, 1, {"ok": 1, "crash": 1}, "running")
    assert said.left_s == pytest.approx(10, abs=0.5) and said.spent_s == pytest.approx(40, abs=0.5) and said.best == "tp=1"
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_it_is_written_once_a_second_but_its_end_at_once(tmp_path):
    board = Board(tmp_path, name="first")
    board.show(view(total=2))
    board.show(view(row(1), total=2))
    assert posted(tmp_path).done == 0
    board.show(view(row(1), row(1), total=2), state="done")
    assert (posted(tmp_path).done, posted(tmp_path).state, posted(tmp_path).left_s) == (2, "done", None)


def test_a_tune_counts_what_came_before_and_may_not_know_its_total(tmp_path):
    board = Board(tmp_path, name="search", kind="tune")
    board.before, board.note = {"ok": 3}, "odds of something better: 12 %"
    assert (board.progress(view(row(1), total=1)).done, board.progress(view(row(1), total=1)).total) == (4, None)
    board.total = 12
    assert board.progress(view(row(1, "hang"), total=1)).total == 12
    assert board.progress(view(row(1, "hang"), total=1)).counts == {"ok": 3, "hang": 1}


def test_a_tune_runs_on_between_its_sweeps_and_adds_up_what_they_took(tmp_path):
    board = Board(tmp_path, name="search", kind="tune", budget_s=100)
    board.show(view(row(20), total=1), state="done")
    board.before = {"ok": 1}
    said = posted(tmp_path)
    assert (said.state, said.done, said.spent_s, said.left_s) == ("running", 1, 20, 80)
    board.show(view(row(30, sec_per_it=0.9, label="tp=2"), total=1), state="done")
    said = posted(tmp_path)
    assert (said.done, said.spent_s, said.left_s, said.best) == (2, 50, 50, "tp=1")
    board.note = "nothing better is left"
    board.end()
    said = posted(tmp_path)
    assert (said.state, said.done, said.left_s, said.note) == ("done", 2, None, "nothing better is left")


def test_what_was_measured_whole_is_best_before_any_estimate_and_each_model_has_its_own(tmp_path):
    guessed = row(1, sec_per_it=0.1, state="estimated", label="tp=8")
    assert best_in_words(view(guessed, total=1).best) == "best tp=8: 0.1 s/it (estimated)"
    assert best_in_words(view(guessed, row(1), total=2).best) == "best tp=1: 0.5 s/it"
    two = view(row(1), row(1, sec_per_it=3.0, model="large", label="tp=2"), row(1, "crash", sec_per_it=0.01), total=3)
    assert best_in_words(two.best) == "best of tiny tp=1: 0.5 s/it, best of large tp=2: 3 s/it"
    said = Board(tmp_path, name="first").progress(two)
    assert (said.best, said.best_s) == ("tp=1 (tiny), tp=2 (large)", None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": 3}', '{"name": "x", "state": "odd"}', '{"name": "x", "more": 1}'])
def test_a_damaged_file_is_no_progress(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert posted(tmp_path) is None


def test_a_folder_that_is_gone_is_nobodys_error(tmp_path):
    post(tmp_path / "gone", Progress(name="x"))


def test_the_page_hears_of_sweeps_that_run_or_ended_lately(tmp_path):
    now = time.time()
    for name, at, state in (("now", now - 4, "running"), ("ended", now - 60, "done"), ("old", now - 90_000, "running")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        said = Progress(name=name, at=at, state=state, running=1, spent_s=10, left_s=100.0, began=at - 9)
        post(tmp_path / "runs" / name, said)
    found = live.sweeps(tmp_path)
    assert [one["session"] for one in found] == ["now", "ended"]
    assert found[0]["left_s"] == pytest.approx(96, abs=1) and found[0]["spent_s"] == pytest.approx(14, abs=1)
    assert found[1]["spent_s"] == 10
