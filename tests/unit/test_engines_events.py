"""What an adapter reads of a run's events: in the order they were written, of this leg alone, and no more than is asked for."""
from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

from seatrial.engine.watch.events import FILE_NAME, EventWriter, rank_file_name
from seatrial.engines.base import read_events, said_so_far


def leg(run_dir: Path, *, first: int, clock: float) -> None:
    with (run_dir / FILE_NAME).open("a") as file:
        for step in range(first, first + 3):
            file.write(json.dumps({"event": "iteration", "time": clock + step, "step": step, "sec": 0.1}) + "\n")
        file.write(json.dumps({"event": "end", "time": clock + 9, "status": "finished", "step": first + 2}) + "\n")


def test_a_resumed_run_is_what_was_written_after_it_began_whatever_its_clock_says(tmp_path: Path) -> None:
    leg(tmp_path, first=1, clock=2e9)
    with (tmp_path / FILE_NAME).open("a") as file:
        file.write('{"event":"iterat')  # killed there
    before = said_so_far(tmp_path)
    leg(tmp_path, first=4, clock=1e9)
    assert [e.get("step") for e in read_events(tmp_path, after=before)] == [4, 5, 6, 6]
    assert [e.get("step") for e in read_events(tmp_path)] == [1, 2, 3, 3, 5, 6, 6], "in the order of the file"


def test_what_other_ranks_say_comes_after_in_the_order_of_their_time(tmp_path: Path) -> None:
    leg(tmp_path, first=1, clock=2e9)
    for rank in (3, 1):
        writer = EventWriter(tmp_path / rank_file_name(rank))
        writer.write("failure", rank=rank)
        writer.close()
    assert [e.get("rank") for e in read_events(tmp_path)[-2:]] == [3, 1]


def test_what_every_rank_took_in_every_iteration_is_not_kept(tmp_path: Path) -> None:
    with (tmp_path / FILE_NAME).open("w") as file:
        for step in range(2000):
            ranks = [{"sec": 0.1 + rank, "forward": 0.05, "backward": 0.05} for rank in range(16)]
            file.write(json.dumps({"event": "iteration", "step": step, "sec": 0.1, "timers": {"forward": 0.05}, "ranks": ranks})
                       + "\n")
            if step % 100 == 0:
                file.write(json.dumps({"event": "memory", "step": step, "mem_gib": 1.0, "ranks": ranks}) + "\n")
    size = (tmp_path / FILE_NAME).stat().st_size
    tracemalloc.start()
    found = read_events(tmp_path)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < size and found[-1]["timers"] == {"forward": 0.05}
    assert [len(e.get("ranks", [])) for e in found if e["event"] == "memory"] == [0] * 19 + [16]
