"""The logbook's laws: nothing that was appended is lost, nothing torn is believed, and the index is never the truth."""
from __future__ import annotations

import dataclasses
import errno
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial import logbook_index
from seatrial.errors import BadInput
from seatrial.logbook import Logbook, Unwritten
from seatrial.record import Outcome, Record

FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "book"


def segments(path: Path) -> list[Path]:
    return sorted((path / "segments").glob("*.jsonl"))


def own(record: dict) -> dict:
    return {key: value for key, value in record.items() if key not in ("record_id", "written_at")}


def read(path: Path, **where: object) -> list[dict]:
    with Logbook(path) as book:
        return [own(record) for record in book.records(where)]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# ---- what goes in comes out

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
records_of_any_shape = st.dictionaries(
    st.text().filter(lambda key: key not in ("schema", "record_id", "written_at", "deleted")), json_values, max_size=5
)


@settings(max_examples=60, deadline=None)
@given(st.lists(records_of_any_shape, max_size=5, unique_by=lambda record: json.dumps(record, sort_keys=True)))
def test_every_record_comes_back_as_it_was_in_the_order_it_came(records):
    with tempfile.TemporaryDirectory() as folder, Logbook(f"{folder}/book", create=True) as book:
        ids = book.append_many(records)
        back = list(book.records())
        assert [own(record) for record in back] == records
        assert [record["record_id"] for record in back] == ids
        assert len(book) == len(records)


def test_a_name_that_is_not_unicode_survives(path):
    with Logbook(path, create=True) as book:
        book.append({"source_file": "caf\udce9.txt", "dp": 1 << 70})
        assert [own(record) for record in book.records()] == [{"source_file": "caf\udce9.txt", "dp": 1 << 70}]


def test_a_record_survives_the_logbook(path):
    record = Record(
        state="failed",
        outcome=Outcome(status="hang", message="may hang", rate=(2, 5)),
        dp=8,
        tflops=104.25,
        flags=("^", "†"),
        printed={"TFLOPs": "104.25", "DP": "8"},
    )
    with Logbook(path, create=True) as book:
        book.append(record.to_dict())
        (back,) = (Record.from_dict(row) for row in book.records({"outcome": "hang"}))
    assert dataclasses.replace(back, record_id="", written_at="") == record
    assert list(back.printed) == ["TFLOPs", "DP"]


def test_the_same_content_is_the_same_record(path):
    with Logbook(path, create=True) as book:
        assert book.append({"dp": 8, "tp": 4}) == book.append({"tp": 4, "dp": 8}) != book.append({"tp": 4, "dp": 9})
        assert len(book) == 2


def test_a_correction_holds_and_keeps_its_place_and_the_old_line_stays(path):
    with Logbook(path, create=True) as book:
        first, _ = book.append_many([{"dp": 8}, {"dp": 4}])
        old = next(book.records({"record_id": first}))
    with Logbook(path) as book:
        # A correction is made from what was read, and carries the old stamp: it must not matter.
        book.append(old | {"dp": 6})
        assert [record["dp"] for record in book.records()] == [6, 4]
        assert list(book.records({"dp": 8})) == []
    assert sum(file.read_bytes().count(b'"dp":8') for file in segments(path)) == 1


def test_a_correction_holds_even_when_the_clock_is_set_back(path, monkeypatch):
    import seatrial.logbook as module

    with Logbook(path, create=True) as book:
        book.append({"record_id": "a", "dp": 1})

        class Earlier(module.datetime):
            @classmethod
            def now(cls, tz=None):
                return cls(2001, 1, 1, tzinfo=tz)

        monkeypatch.setattr(module, "datetime", Earlier)
        book.append({"record_id": "a", "dp": 2})
        assert [record["dp"] for record in book.records()] == [2]


def test_a_deleted_record_is_gone_until_it_is_appended_again(path):
    with Logbook(path, create=True) as book:
        record_id = book.append({"dp": 8})
        assert book.append({"deleted": record_id}) == record_id
        assert (len(book), list(book.records())) == (0, [])
        book.append({"dp": 8})
        assert len(book) == 1


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"loss": float("nan")}, "record.loss is nan"),
        ({"a": [1, {"b": float("inf")}]}, "record.a.1.b is inf"),
        ({"record_id": 7}, "record_id 7"),
        ({"deleted": ""}, "record_id ''"),
        ({"deleted": "x", "dp": 1}, "nothing else"),
    ],
)
def test_what_cannot_be_a_line_is_refused_and_nothing_is_written(path, record, says):
    book = Logbook(path, create=True)
    with pytest.raises(BadInput, match=says):
        book.append_many([{"dp": 1}, record])
    assert not path.exists()


# ---- filters


def test_filters_are_those_of_a_loop_over_the_records(path):
    rows = [
        {
            "number": number,
            "state": ("measured", "failed")[number % 2],
            "dp": (1, 2, 4, None)[number % 4],
            "outcome": {"status": ("ok", "hang", "nan")[number % 3]} if number % 5 else None,
            "size_label": ("104B", "176B")[number % 2],
            "trial": {"topology": {"pp": number % 3}},
        }
        for number in range(60)
    ]

    def status(row: dict) -> str | None:
        return (row["outcome"] or {}).get("status")

    with Logbook(path, create=True) as book:
        book.append_many(rows)
        for where, law in [
            ({"state": "measured", "dp": 4}, lambda row: row["state"] == "measured" and row["dp"] == 4),
            ({"dp": [1, 2]}, lambda row: row["dp"] in (1, 2)),
            ({"dp": {1, None}}, lambda row: row["dp"] in (1, None)),
            ({"dp": None}, lambda row: row["dp"] is None),
            ({"dp": "4"}, lambda row: False),
            ({"dp": []}, lambda row: False),
            ({"outcome": "hang"}, lambda row: status(row) == "hang"),
            ({"outcome": ["nan", None]}, lambda row: status(row) in ("nan", None)),
            ({"model": "176B"}, lambda row: row["size_label"] == "176B"),
            ({"trial.topology.pp": 2}, lambda row: row["number"] % 3 == 2),
            ({"trial.topology": [{"pp": 2}]}, lambda row: row["number"] % 3 == 2),
            ({"number": list(range(600))}, lambda row: True),
            ({"source_line": list(range(600))}, lambda row: False),
        ]:
            assert [own(row) for row in book.records(where)] == [row for row in rows if law(row)], where
        odd = book.records({"state": "failed"}, predicate=lambda row: row["number"] > 50)
        assert [row["number"] for row in odd] == [51, 53, 55, 57, 59]


def test_order_is_by_column_with_the_unknown_last_and_ties_as_they_came(path):
    with Logbook(path, create=True) as book:
        book.append_many([{"tflops": t, "dp": dp} for t, dp in [(5, 1), (None, 2), (9, 3), (5, 4), (-1, 5)]])
        assert [row["dp"] for row in book.records(order=["-tflops"])] == [3, 1, 4, 5, 2]
        assert [row["dp"] for row in book.records(order=["tflops", "-dp"])] == [5, 4, 1, 3, 2]
        with pytest.raises(BadInput, match="did you mean 'tflops'"):
            book.records(order=["tflop"])


def test_what_is_appended_while_reading_is_not_among_what_is_read(path):
    with Logbook(path, create=True) as book:
        book.append_many([{"dp": n} for n in range(3)])
        seen = [book.append({"copy": record["dp"]}) for record in book.records()]
        assert len(seen) == 3 and len(book) == 6


# ---- many writers


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


# ---- torn lines and full disks


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda line: line[:-1], "torn line"),
        (lambda line: line[:20], "torn line"),
        (lambda line: b"\0" * 100, "100 of them NUL"),
        (lambda line: line[:20] + b"\0" * 50 + b"\n", "50 of them NUL"),
        (lambda line: line[:20] + b"\n", "not JSON"),
        (lambda line: b"\xff\xfe" + line, "not JSON"),
        (lambda line: b"[1, 2]\n", "a record is a JSON object"),
        (lambda line: line.replace(b'"dp":2', b'"dp":NaN'), "NaN is not a JSON number"),
        (lambda line: b'{"schema":1,"dp":2}\n', "no record_id"),
        (lambda line: b'{"schema":"x"}\n', "schema 'x'"),
        (lambda line: b"[" * 100_000 + b"\n", "not JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_line_is_reported_and_skipped_and_the_next_append_is_whole(path, damage, says):
    with Logbook(path, create=True) as book:
        book.append({"dp": 1})
        book.append({"dp": 2})
    (file,) = segments(path)
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + damage(second))
    before = file.read_bytes()
    with Logbook(path) as book:
        (problem,) = book.problems()
        assert (problem.file, problem.line) == (str(file), 2) and says in problem.message
        book.append({"dp": 3})
        assert [own(record) for record in book.records()] == [{"dp": 1}, {"dp": 3}]
        assert book.problems() == [problem]
    assert read(path) == [{"dp": 1}, {"dp": 3}]
    assert file.read_bytes() == before


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(path):
    with Logbook(path, create=True) as book:
        book.append({"dp": 1})
    (file,) = segments(path)
    line = file.read_bytes().replace(b'"dp":1', b'"dp":2').replace(b'"record_id":"', b'"record_id":"x')
    with Logbook(path) as book:
        for cut in (10, len(line) - 1):
            file.write_bytes(file.read_bytes()[: len(line) - 1] + line[:cut])
            assert [record["dp"] for record in book.records()] == [1]
            assert len(book.problems()) == 1
        with file.open("ab") as writer:
            writer.write(line[-1:])
        assert [record["dp"] for record in book.records()] == [1, 2]
        assert book.problems() == []


def test_a_reached_file_size_limit_is_an_error_and_leaves_no_half_record(path):
    def child() -> None:
        book = Logbook(path, create=True)
        book.append({"number": 0})
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
        try:
            book.append_many([{"number": 1}, {"number": 2, "padding": "x" * 1000}])
        except Unwritten as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            book.append({"number": 3})
            os._exit(0 if os.strerror(errno.EFBIG) in str(error) and "2 records not written" in str(error) else 2)
        os._exit(1)

    process = FORK.Process(target=child)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert read(path) == [{"number": 0}, {"number": 3}]
    assert Logbook(path).problems() == []


@pytest.fixture
def small_disk(tmp_path):
    """64 KiB of disk, and none where this user may not mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, timeout=30
    )
    if not made or made.returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


def test_a_full_disk_loses_only_what_it_said_it_did_not_take(small_disk):
    path, filler = small_disk / "book", small_disk / "filler"
    filler.write_bytes(b"x" * 16_384)
    book = Logbook(path, create=True)
    taken = 0
    with pytest.raises(Unwritten, match="No space left on device: 1 record not written"):
        for taken in range(1000):
            book.append({"number": taken, "padding": "x" * 3000})
    assert taken > 5
    assert [record["number"] for record in book.records()] == list(range(taken))
    # Still full: said again, for every record of the batch, and still nothing lost.
    with pytest.raises(Unwritten):
        book.append_many([{"number": number, "padding": "x" * 3000} for number in range(1000, 1020)])
    filler.unlink()
    book.append({"number": "after"})
    assert [record["number"] for record in book.records()] == [*range(taken), "after"]
    assert book.problems() == []


# ---- places that cannot be used


def test_a_missing_logbook_is_said_and_not_made(path):
    with pytest.raises(BadInput, match="no logbook here"):
        Logbook(path)
    path.mkdir()
    with pytest.raises(BadInput, match="no logbook here"):
        Logbook(path)
    assert list(path.iterdir()) == []


def test_a_new_logbook_reads_as_empty_and_is_made_by_its_first_append(path, cache):
    with Logbook(path, create=True) as book:
        assert (len(book), list(book.records()), book.problems(), book.append_many([])) == (0, [], [], [])
        assert not path.exists() and not cache.exists()
        book.append({})
        assert len(book) == 1


@pytest.mark.parametrize("create", [True, False])
def test_a_file_in_place_of_the_directory_is_said(path, create):
    path.write_text("mine")
    with pytest.raises(BadInput, match="this is a file"):
        Logbook(path, create=create)
    with pytest.raises(BadInput, match="Not a directory"):
        Logbook(path / "deeper", create=create)
    assert path.read_text() == "mine"


def as_nobody(program: str, path: Path) -> str:
    """What the program prints when it is run without rights; root has them all."""
    drop = "os.setuid(65534)" if os.getuid() == 0 else "pass"
    setup = f"import os, sys; from seatrial.logbook import *; from seatrial.errors import *\n{drop}\n"
    attempt = "try:\n    " + program + "\n    print('done')\nexcept BadInput as error: print(error)\n"
    done = subprocess.run(
        [sys.executable, "-c", setup + attempt, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"XDG_CACHE_HOME": "/nonexistent"},
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def open_folder():
    """A folder that everybody may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for part in (folder, *folder.rglob("*")):
        part.chmod(0o755)
    shutil.rmtree(folder)


def test_a_directory_without_rights_is_one_line_and_nothing_is_written(open_folder):
    path = open_folder / "book"
    with Logbook(path, create=True) as book:
        book.append({"dp": 1})
    (path / "segments").chmod(0o555)
    before = tree(open_folder)
    append = "Logbook(sys.argv[1], create=True).append({'dp': 2})"
    read_all = "print(len(Logbook(sys.argv[1])))"
    assert as_nobody(append, path) == f"{path}: Permission denied: the logbook cannot be written to"
    # Reading needs no right to write, neither there nor in the cache.
    assert as_nobody(read_all, path) == "1\ndone"
    open_folder.chmod(0o555)
    new = open_folder / "new"
    assert as_nobody(append, new) == f"{new}: Permission denied: the logbook cannot be made here"
    (path / "segments").chmod(0o000 if os.getuid() else 0o700)
    assert as_nobody(read_all, path) == f"{path / 'segments'}: Permission denied: the logbook cannot be read"
    path.chmod(0o000 if os.getuid() else 0o700)
    for program in (append, read_all):
        assert as_nobody(program, path) == f"{path}: Permission denied: the logbook cannot be read"
    path.chmod(0o755)
    (path / "segments").chmod(0o755)
    assert tree(open_folder) == before


def test_a_newer_logbook_is_neither_read_nor_written_to(path):
    (path / "segments").mkdir(parents=True)
    (path / "segments" / "a.jsonl").write_text('{"schema":2,"record_id":"a","written_at":"3000","what":"who knows"}\n')
    before = tree(path)
    book = Logbook(path)
    for attempt in (lambda: book.append({"dp": 1}), book.records, book.problems, lambda: len(book)):
        with pytest.raises(BadInput, match="schema 2 is newer than 1.*upgrade"):
            attempt()
    assert tree(path) == before


# ---- the index is never the truth


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
        monkeypatch.setattr(logbook_index.sqlite3, "connect", lambda *a, timeout, **k: real(*a, timeout=0.1, **k))
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
    file.write_bytes(file.read_bytes().replace(b'"dp":1', b'"dp":7'))
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
    real = logbook_index.row_of
    monkeypatch.setattr(logbook_index, "row_of", lambda raw, *rest: (seen.append(raw), real(raw, *rest))[1])
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
