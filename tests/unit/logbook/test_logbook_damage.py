"""Torn lines and full disks: nothing torn is believed, and what was refused is said."""
from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import subprocess

import pytest

from books import bare, own, read, segments
from seatrial.logbook import Logbook, Unwritten
from seatrial.logbook.records import CHANGED, Unreadable, row_of
from seatrial.record import Record
from seatrial.tables import csvjson

FORK = multiprocessing.get_context("fork")


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


def test_any_flipped_bit_of_a_line_is_found(path):
    """Also one that leaves the line good JSON: a figure, an id, a moment, the schema, the checksum and its name."""
    with Logbook(path, create=True) as book:
        book.append({"dp": 1})
        book.append({"dp": 2, "sec_per_it": 1.25})
    (file,) = segments(path)
    first, second = file.read_bytes().splitlines(keepends=True)
    for bit in range(8 * (len(second) - 1)):
        hurt = bytearray(second)
        hurt[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Unreadable):
            row_of(bytes(hurt), "a", 2)
    for there, then in ((b'"dp":2', b'"dp":3'), (b'"schema":1', b'"schema":3'), (b'"crc32"', b'"crc02"')):
        file.write_bytes(first + second.replace(there, then))
        with Logbook(path) as book:
            assert [own(record) for record in book.records()] == [{"dp": 1}]
            (problem,) = book.problems()
            assert "does not match its crc32" in problem.message


def test_a_segment_that_is_read_as_a_file_is_looked_at_the_same_way(path):
    with Logbook(path, create=True) as book:
        book.append(Record(state="measured", dp=2).to_dict())
        book.append(Record(state="measured", dp=4).to_dict())
    (file,) = segments(path)
    assert [record.dp for record in csvjson.read_json(file, file.name)] == [2, 4]
    file.write_bytes(file.read_bytes().replace(b'"dp":4', b'"dp":5'))
    first, problem = csvjson.read_json(file, file.name)
    assert first.dp == 2 and (problem.line, problem.message) == (2, CHANGED)


def test_lines_of_before_they_had_a_checksum_are_read(path):
    with Logbook(path, create=True) as book:
        book.append({"dp": 1})
    (file,) = segments(path)
    file.write_bytes(bare(file.read_bytes()))
    assert read(path) == [{"dp": 1}]


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(path):
    with Logbook(path, create=True) as book:
        book.append({"dp": 1})
    (file,) = segments(path)
    first = file.read_bytes()
    line = bare(first).replace(b'"dp":1', b'"dp":2').replace(b'"record_id":"', b'"record_id":"x')
    with Logbook(path) as book:
        for cut in (10, len(line) - 1):
            file.write_bytes(first + line[:cut])
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
