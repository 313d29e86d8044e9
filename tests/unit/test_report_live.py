"""What runs now, from the files that runs leave: the engine's own heartbeats, or a program's log where there is no more."""
from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from seatrial.logbook import Logbook
from seatrial.report import data, forecasts, live, source


def started(book: Path, **logs: str) -> Path:
    run = book / "runs" / "first" / "abc123"
    (run / "logs").mkdir(parents=True)
    trial = {"model": {"name": "tiny"}, "topology": {"dp": 2, "pp": 2}, "batch": {"gbs": 16}}
    (run / "run.json").write_text(json.dumps({"trial": trial, "recipe": {"steps": 51}}))
    for n, (name, text) in enumerate(logs.items()):
        path = run / "logs" / f"{name}.log"
        path.write_text(text)
        os.utime(path, (time.time() - n, time.time() - n))
    return run


def lines(first: int, last: int, of: int) -> str:
    return "".join(f" iteration {n:8}/{of:8} | consumed samples: {n} | elapsed time per iteration (ms): 2000.0 |\n"
                   for n in range(first, last + 1))


def test_a_programs_progress_is_what_its_log_says(tmp_path):
    started(tmp_path, rank0="building the model\n", rank7=f"starting\n{lines(30, 39, 40)}times (ms) | forward: 3\n")
    (one,) = live.running(tmp_path)
    assert (one["step"], one["steps"], one["phase"]) == (39, 40, "")
    assert (one["sec"], one["left_s"]) == (2.0, 2.0)


def test_before_its_first_iteration_a_program_is_starting(tmp_path):
    started(tmp_path, node0="loading\niteration counts: none yet\n")
    (one,) = live.running(tmp_path)
    assert (one["step"], one["steps"], one["phase"], one["left_s"]) == (0, 51, "starting", None)
    assert one["line"] == "iteration counts: none yet"


def test_a_run_that_counts_its_own_steps_is_believed_before_its_log(tmp_path):
    run = started(tmp_path, rank0="step 3 of 9\n")
    (run / "events.jsonl").write_text("".join(json.dumps({"event": "iteration", "step": n, "sec": 1.0}) + "\n" for n in (1, 2)))
    (one,) = live.running(tmp_path)
    assert (one["step"], one["steps"], one["left_s"]) == (2, 51, 49.0)


def test_a_log_without_an_end_or_of_nonsense_costs_nothing(tmp_path):
    started(tmp_path, rank0="iteration 1/" + "9" * 4000 + "\n\0\xff iteration x/y")
    (one,) = live.running(tmp_path)
    assert one["phase"] == "starting"


def test_the_first_page_does_not_wait_for_what_takes_long_and_a_later_one_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "FORECAST_AT_ONCE", 2)
    go_on = threading.Event()
    lint = data.run_lint
    monkeypatch.setattr(data, "run_lint", lambda records: go_on.wait(20) and lint(records))
    row = {"state": "measured", "machine": "jz-a100", "layers": 72, "hidden": 14336, "heads": 64, "seq": 2048, "vocab": 50257,
           "nodes": 48, "dp": 8, "tp": 4, "pp": 12, "mbs": 2, "gbs": 2048, "dtype": "bf16", "sec_per_it": 100.0}
    with Logbook(tmp_path, create=True) as book:
        book.append_many([{**row, "source_file": "a.md", "source_line": n} for n in range(3)])
    served = source.Source(tmp_path, title="")
    first, made = served.current()
    assert made.view["waiting"] == 3 and made.view["linted"] == "being checked" and made.view["rows"]["sec"] == [100.0] * 3
    assert "f_sec" not in made.view["rows"]

    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "later":
            thread.join(20)
    served._next = 0
    version, made = served.current()
    assert version > first and made.view["waiting"] == 0 and made.view["linted"] == ""
    assert len(made.view["rows"]["f_sec"]) == 3 and None not in made.view["rows"]["f_sec"]

    # A row more costs its own forecast and no other.
    asked = []
    monkeypatch.setattr(forecasts, "of", lambda records, clusters: asked.append(len(records)) or {})
    with Logbook(tmp_path) as book:
        book.append({**row, "tp": 8, "pp": 6})
    served._next = 0
    assert served.current()[1].view["count"] == 4 and asked == [1]
    served.close()
