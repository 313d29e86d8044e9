"""Many write to one logbook at once: processes, threads, forks; nothing that was appended is lost."""
from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

from books import segments
from seatrial.logbook import Logbook

FORK = multiprocessing.get_context("fork")


def _append(path: Path, writer: int, count: int) -> None:
    with Logbook(path, create=True) as book:
        for number in range(count):
            book.append({"writer": writer, "number": number, "padding": "x" * 500})


def test_processes_appending_at_once_lose_nothing_though_one_is_killed(path):
    writers = [FORK.Process(target=_append, args=(path, writer, 500)) for writer in range(3)]
    victim = FORK.Process(target=_append, args=(path, 3, 1_000_000))
    for process in (*writers, victim):
        process.start()
    try:
        with Logbook(path, create=True) as reader:
            # Reading while they write, and killing one in the middle of it.
            deadline = time.monotonic() + 60
            while sum(1 for _ in reader.records({"writer": 3})) < 50:
                assert time.monotonic() < deadline
            os.kill(victim.pid, signal.SIGKILL)
            for process in (*writers, victim):
                process.join(60)
            assert [process.exitcode for process in writers] == [0, 0, 0]
            back = [(record["writer"], record["number"]) for record in reader.records()]
    finally:
        for process in (*writers, victim):
            process.kill()
            process.join()
    whole = [(writer, number) for writer in range(3) for number in range(500)]
    assert sorted(pair for pair in back if pair[0] < 3) == whole
    killed = sorted(number for writer, number in back if writer == 3)
    assert killed == list(range(len(killed))) and len(killed) >= 50
    assert len(segments(path)) == 4


def test_threads_share_one_logbook(path):
    with Logbook(path, create=True) as book:
        threads = [threading.Thread(target=lambda t=t: [book.append({"t": t, "n": n}) for n in range(20)]) for t in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(book) == 80
    assert len(segments(path)) == 1


def test_a_fork_begins_a_segment_of_its_own(path):
    with Logbook(path, create=True) as book:
        book.append({"who": "parent"})
        len(book)
        child = FORK.Process(target=lambda: (book.append({"who": "child"}), os._exit(0 if len(book) == 2 else 1)))
        child.start()
        child.join(30)
        book.append({"who": "parent again"})
        assert child.exitcode == 0
        assert [record["who"] for record in book.records()] == ["parent", "child", "parent again"]
    assert len(segments(path)) == 2
