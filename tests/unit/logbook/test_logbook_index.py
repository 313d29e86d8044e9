"""The index of a logbook is never the truth: whatever happens to it, the answers stay right."""
from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import time
from pathlib import Path

import pytest

from books import bare, read, segments
from seatrial.errors import BadInput
from seatrial.logbook import Logbook, index

FORK = multiprocessing.get_context("fork")


def index_file(cache: Path) -> Path:
    (file,) = (cache / "seatrial").glob("*.sqlite")
    return file


@pytest.mark.parametrize(
    "damage", ["garbage", "empty", "halved", "deleted", "noise", "flipped", "directory", "older", "locked"]
)
def test_whatever_happens_to_the_index_the_answers_stay_right(path, cache, damage, monkeypatch):
    import sqlite3

    with Logbook(path, create=True) as book:
        book.append_many([{"dp": n, "padding": "x" * 900} for n in range(300)])
        assert len(book) == 300
    file = index_file(cache)
    holder = None
    if damage == "garbage":
        file.write_bytes(b"not a database" * 1000)
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "halved":
        os.truncate(file, file.stat().st_size // 2)
    elif damage == "deleted":
        file.unlink()
    elif damage == "noise":
        with file.open("r+b") as handle:
            for place in range(5000, file.stat().st_size - 100, 20_000):
                handle.seek(place)
                handle.write(b"\xa5" * 64)
    elif damage == "flipped":
        content = file.read_bytes()
        assert content.count(b'"dp":250,') == 1
        file.write_bytes(content.replace(b'"dp":250,', b'"dp":251,'))
    elif damage == "directory":
        file.unlink()
        file.mkdir()
    elif damage == "older":
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE meta SET version = 0")
        connection.close()
    elif damage == "locked":
        real = sqlite3.connect
        holder = real(file)
        holder.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(index.sqlite3, "connect", lambda *a, timeout, **k: real(*a, timeout=0.1, **k))
    try:
        assert [row["dp"] for row in read(path)] == list(range(300))
        assert [row["dp"] for row in read(path, dp=[7, 8])] == [7, 8]
    finally:
        if holder is not None:
            holder.close()


def test_the_index_follows_segments_that_are_added_changed_and_taken_away(path, tmp_path):
    with Logbook(path, create=True) as book:
        book.append_many([{"record_id": "a", "dp": 1}, {"record_id": "b", "dp": 2}])
    (file,) = segments(path)
    reader = Logbook(path)
    assert [row["dp"] for row in reader.records()] == [1, 2]
    with Logbook(path) as book:
        book.append({"record_id": "a", "dp": 9})
    assert [row["dp"] for row in reader.records()] == [9, 2]
    (newer,) = set(segments(path)) - {file}
    newer.rename(tmp_path / "away")
    assert [row["dp"] for row in reader.records()] == [1, 2]
    file.write_bytes(bare(file.read_bytes()).replace(b'"dp":1', b'"dp":7'))
    assert [row["dp"] for row in reader.records()] == [7, 2]
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[1])
    assert [row["dp"] for row in reader.records()] == [2]
    (tmp_path / "away").rename(newer)
    assert [row["dp"] for row in reader.records()] == [2, 9]
    shutil.rmtree(path)
    with pytest.raises(BadInput, match="no logbook here"):
        reader.records()


def test_an_append_by_another_is_read_from_where_the_last_look_ended(path, monkeypatch):
    writer, reader = Logbook(path, create=True), Logbook(path, create=True)
    writer.append_many([{"dp": n} for n in range(50)])
    assert len(reader) == 50
    writer.append({"dp": 50})
    seen = []
    real = index.row_of
    monkeypatch.setattr(index, "row_of", lambda raw, *rest: (seen.append(raw), real(raw, *rest))[1])
    assert len(reader) == 51
    assert len(seen) == 1


def test_the_index_is_never_inside_the_logbook(path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(path / "cache"))
    with Logbook(path, create=True) as book:
        book.append({"dp": 1})
        assert len(book) == 1
    assert [entry.name for entry in path.iterdir()] == ["segments"]


def _count(path: Path, start: float, queue) -> None:
    time.sleep(max(0.0, start - time.monotonic()))
    with Logbook(path) as book:
        queue.put(len(book))


def test_processes_that_build_the_index_at_once_all_get_it_right(path, cache):
    with Logbook(path, create=True) as book:
        book.append_many([{"dp": n} for n in range(2000)])
    queue = FORK.SimpleQueue()
    start = time.monotonic() + 0.2
    readers = [FORK.Process(target=_count, args=(path, start, queue)) for _ in range(6)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert [queue.get() for _ in readers] == [2000] * 6
    assert index_file(cache).stat().st_size > 0


def test_files_that_are_not_segments_are_left_alone(path):
    with Logbook(path, create=True) as book:
        book.append({"dp": 1})
    (path / "segments" / "notes.txt").write_text("mine")
    (path / "segments" / ".nfs0001").write_text("theirs")
    assert read(path) == [{"dp": 1}]


def test_a_warm_logbook_is_filtered_faster_than_it_is_read(path):
    with Logbook(path, create=True) as book:
        book.append_many([{"dp": n % 100, "run_id": str(n), "padding": ["x"] * 200} for n in range(5000)])
        assert len(book) == 5000

    def timed(job) -> float:
        start = time.perf_counter()
        job()
        return time.perf_counter() - start

    whole = min(timed(lambda: [json.loads(line) for line in segments(path)[0].open()]) for _ in range(5))
    assert min(timed(lambda: read(path, dp=7)) for _ in range(5)) < whole


def test_who_has_no_home_has_the_index_in_memory(path, tmp_path, monkeypatch):
    def unknown(_user):
        raise KeyError("getpwuid(): uid not found")

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Logbook(path, create=True) as book:
        book.append_many([{"dp": n} for n in range(30)])
        assert len(book) == 30
    assert list((tmp_path / "here").iterdir()) == []
