"""The controller on stub trials: rows, resume after kill -9 at any moment, budget, rates, second tries, early stop."""
from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import attempts
import sweeps
from seatrial.errors import SeatrialError
from seatrial.launch.local import Local
from seatrial.logbook import Logbook, Unwritten
from seatrial.sweep.board import time_left_s
from seatrial.sweep.controller import Controller
from seatrial.sweep.file import build
from seatrial.sweep.progress import Lines, summary, table
from seatrial.sweep.store import Store

MIXED = {
    "name": "mixed", "model": "tiny", "batch": {"gbs": 8}, "repeats": 2,
    "axes": {"tp": [1, 2, 3], "case": [
        {"name": "good", "command": sweeps.stub("ok")}, {"name": "crash", "command": sweeps.stub("crash")},
        {"name": "nan", "command": sweeps.stub("nan")}, {"name": "slow", "command": sweeps.stub("slow")},
        {"name": "flaky", "command": sweeps.stub("sometimes:{repeat}")}]},
}  # fmt: skip


class Heard(Lines):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def controlled(data, folder: Path, *, session="one", book=None, launcher=None):
    heard = Heard()
    with Logbook(folder / "book", create=True) if book is None else book as opened:
        sweep = build({"model": "tiny", "batch": {"gbs": 8}, **data})
        view = Controller(sweep, Store(opened, session), launcher or Local(), heard).run()
        return view, list(opened.records()), heard.said


def test_every_row_ends_with_its_outcome(tmp_path):
    found = sweeps.run(sweeps.write(tmp_path / "mixed.toml", MIXED), tmp_path / "book")
    status = {(row["knobs"]["case"], row["knobs"]["tp"], row["repeat"]): row["status"] for row in found["trials"]}
    expected = {"good": "ok", "crash": "crash", "nan": "nan", "slow": "ok"}
    for (case, tp, repeat), is_now in status.items():
        assert is_now == ("invalid" if tp == "3" else expected.get(case) or ("ok" if repeat else "crash"))
    assert len(status) == 30 and found["not_run"] == 0
    rates = {row["knobs"]["case"]: row.get("rate") for row in found["trials"] if row["knobs"]["tp"] == "1"}
    assert rates == {"good": None, "slow": None, "crash": [2, 2], "nan": [2, 2], "flaky": [1, 2]}


def test_killed_at_twenty_random_moments_the_logbook_is_that_of_an_undisturbed_sweep(tmp_path):
    file = sweeps.write(tmp_path / "mixed.toml", MIXED)
    began = time.monotonic()
    sweeps.run(file, tmp_path / "quiet")
    whole_s = time.monotonic() - began
    expected = sweeps.rows(tmp_path / "quiet")
    rng, kills, books = random.Random(20), 0, 0
    while kills < 20:
        book = tmp_path / f"disturbed{books}"
        books += 1
        while kills < 20 and sweeps.kill_at(file, book, rng.uniform(0, whole_s / 6)):
            kills += 1
            assert sweeps.left_running(book) == []
        sweeps.run(file, book, "--resume")
        assert sweeps.rows(book) == expected
        # A row is written once, and once more where its rate over the repeats becomes known.
        written = [line["record_id"] for line in sweeps.lines(book)]
        assert all(written.count(key) <= 2 for key in expected)
        finished = [key for key, row in expected.items() if row["outcome"] == {"status": "ok"}]
        assert finished and all(written.count(key) == 1 for key in finished)


def test_a_sweep_that_is_done_runs_nothing_again(tmp_path):
    file = sweeps.write(tmp_path / "mixed.toml", MIXED)
    sweeps.run(file, tmp_path / "book")
    before = sweeps.lines(tmp_path / "book")
    sweeps.run(file, tmp_path / "book", "--resume")
    assert sweeps.lines(tmp_path / "book") == before


def test_a_trial_that_ended_unrecorded_is_written_down_and_not_run_again(tmp_path):
    data = {"command": sweeps.stub("ok")}
    controlled(data, tmp_path)
    events = next((tmp_path / "book" / "runs").glob("one/*/events.jsonl"))
    stamp = events.stat().st_mtime_ns
    for segment in (tmp_path / "book" / "segments").iterdir():
        segment.unlink()
    view, records, _ = controlled(data, tmp_path)
    assert len(records) == 1 and records[0]["outcome"]["status"] == "ok"
    assert events.stat().st_mtime_ns == stamp and view.ran == 1


def test_without_resume_a_finished_session_is_not_touched(tmp_path, seatrial):
    file = sweeps.write(tmp_path / "one.toml", {**MIXED, "name": "one", "axes": {}, "repeats": 1, "command": sweeps.stub("ok")})
    assert seatrial("sweep", file, "--logbook", tmp_path / "book").status == 0
    said = seatrial("sweep", file, "--logbook", tmp_path / "book")
    assert said.status == 2 and "--resume" in said.err and "--session" in said.err
    assert seatrial("sweep", file, "--logbook", tmp_path / "book", "--session", "again").status == 0
    assert {row["session"] for row in sweeps.rows(tmp_path / "book").values()} == {"one", "again"}


def test_two_controllers_do_not_run_one_session(tmp_path):
    with Logbook(tmp_path / "book", create=True) as book:
        with Store(book, "one").alone(), pytest.raises(SeatrialError, match="another sweep of session 'one'"):
            with Store(book, "one").alone():
                pass


def test_a_full_disk_ends_the_sweep_in_one_line_and_resume_goes_on(tmp_path):
    class Full(Logbook):
        def append(self, record):
            if len(self) == 2:
                raise Unwritten(f"{self.path}: No space left on device: 1 record not written")
            return super().append(record)

    data = {"axes": {"tp": [1, 2, 4, 8]}, "command": sweeps.stub("ok")}
    with pytest.raises(Unwritten, match="No space left"):
        controlled(data, tmp_path, book=Full(tmp_path / "book", create=True))
    view, records, said = controlled(data, tmp_path)
    assert len(records) == 4 and said[0] == "2 of 4 trials are in the logbook already" and view.ran == 2


def test_a_disk_that_really_is_full_makes_no_rows_of_its_own(tmp_path):
    mounted = tmp_path / "small"
    mounted.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", mounted], capture_output=True).returncode:
        pytest.skip("a small file system can only be made by root")
    try:
        file = sweeps.write(tmp_path / "many.toml", {**MIXED, "axes": {"tp": [1, 2, 4]}, "repeats": 15,
                                                     "command": sweeps.stub("ok")})
        controller = sweeps.start(file, mounted / "book")
        _, err = controller.communicate(timeout=250)
        assert controller.returncode == 3 and "No space left on device" in err.splitlines()[-1], err
        subprocess.run(["mount", "-o", "remount,size=20m", mounted], check=True)
        before = sweeps.rows(mounted / "book")
        assert 0 < len(before) < 45 and {row["outcome"]["status"] for row in before.values()} == {"ok"}
        found = sweeps.run(file, mounted / "book", "--resume")
        assert len(found["trials"]) == 45 and {row["status"] for row in found["trials"]} == {"ok"}
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)


def test_an_interrupted_sweep_leaves_nothing_running_and_no_row_of_what_it_cut_off(tmp_path):
    one = {**MIXED, "name": "slow", "axes": {}, "repeats": 1, "command": sweeps.stub("slow")}
    file = sweeps.write(tmp_path / "slow.toml", one)
    controller = sweeps.start(file, tmp_path / "book", env={"STUB_SLEEP_S": "60"})
    while not list(tmp_path.glob("book/runs/slow/*/logs/node0.log")):
        assert controller.poll() is None, controller.communicate()
        time.sleep(0.02)
    controller.send_signal(signal.SIGINT)
    _, err = controller.communicate(timeout=120)
    assert controller.returncode == 130 and "interrupted: 0 of 1 trials" in err
    assert sweeps.left_running(tmp_path / "book") == []
    assert len(sweeps.run(file, tmp_path / "book", "--resume")["trials"]) == 1


def test_no_trial_is_begun_after_the_budget_and_resume_counts_what_was_spent(tmp_path):
    data = {"axes": {"tp": [1, 2, 4, 8]}, "command": sweeps.stub("slow"), "budget_s": 0.3}
    first, records, _ = controlled(data, tmp_path)
    assert 1 <= len(records) <= 2 and first.not_run == 4 - len(records)
    again, records_again, _ = controlled(data, tmp_path)
    assert again.ran == 0 and len(records_again) == len(records)
    assert controlled({**data, "budget_s": 60}, tmp_path)[0].not_run == 0


def test_a_crash_can_have_a_second_try_with_blocking_launches_as_a_row_of_its_own(tmp_path):
    data = {"command": sweeps.stub("crash"), "limits": {"retry_blocking": True}}
    view, records, _ = controlled(data, tmp_path)
    assert [r["trial"].get("environment", {}) for r in records] == [{}, {"variables": {"CUDA_LAUNCH_BLOCKING": "1"}}]
    assert controlled(data, tmp_path)[0].ran == 0 and view.total == 2


def test_the_planner_leaves_out_what_is_certain_to_lose_and_says_so(tmp_path):
    # The stub is as fast as it likes; the planner thinks of a real GPU, and of a batch that wastes it.
    data = {"axes": {"case": [{"name": "fast", "command": sweeps.stub("ok", scale="0.0001")},
                              {"name": "slow", "command": sweeps.stub("ok", scale="9"), "model": {"layers": 80}}]},
            "model": {"base": "gpt-1.3b"}, "cluster": {"base": "local", "procs_per_node": 1},
            "stop": {"factor": 2, "forecast": True}}  # fmt: skip
    _, records, _ = controlled(data, tmp_path)
    assert records[0]["outcome"]["status"] == "ok"
    assert records[1]["state"] == "planned" and records[1]["outcome"]["message"].startswith("not run: forecast")
    assert records[1]["forecast"]["sec_lo"] < records[1]["forecast"]["sec_hi"]


def test_the_best_forecast_can_go_first(tmp_path):
    data = {"axes": {"layers": [24, 4, 12]}, "model": {"base": "gpt-1.3b"}, "cluster": {"base": "local", "procs_per_node": 1},
            "command": sweeps.stub("ok"), "order": "forecast", "stop": {"by": "samples_per_s"}}  # fmt: skip
    _, records, _ = controlled(data, tmp_path)
    assert [r["layers"] for r in records] == [4, 12, 24]


def test_progress_tells_what_runs_what_is_best_and_the_time_left(tmp_path):
    from rich.console import Console

    view, _, said = controlled({"axes": {"tp": [1, 2]}, "command": sweeps.stub("slow")}, tmp_path)
    assert [line.split()[1] for line in said] == ["ok", "ok"] and said[0].startswith("[1/2]")
    assert summary(view).startswith("2 of 2 trials, 2 ok, best tp=1")
    view.total = 4
    assert 0.2 < time_left_s(view) < 20
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table(view, [("ok", "tp=1", "0.1 s/it"), ("hang", "tp=2", "rank 1 never came")]))
    text = console.export_text()
    assert "best tp=1" in text and "rank 1 never came" in text


def test_the_runner_takes_twenty_milliseconds_a_trial_and_its_memory_does_not_grow():
    """Its own CPU time, which neighbours on this machine do not stretch; `benchmarks/runner.py` has the clock's too."""
    path = Path(__file__).parents[2] / "benchmarks" / "runner.py"
    # In a process of its own: starting a child costs a process that has loaded torch several times as much.
    grown = []

    def check() -> None:
        printed = subprocess.run([sys.executable, str(path), "--trials", "150"], stdout=subprocess.PIPE, check=True).stdout
        found = json.loads(printed)["stub"]
        grown.append(found["memory_growth_mib_after_first_tenth"])
        assert found["runner_cpu_ms_a_trial"] <= 20, found

    attempts.one_of_three(check)
    assert max(grown) < 5, "memory does not depend on the load"
