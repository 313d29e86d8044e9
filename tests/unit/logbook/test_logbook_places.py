"""Places that cannot hold a logbook, and logbooks of a newer version: one line, nothing written."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from books import tree
from seatrial.errors import BadInput
from seatrial.logbook import Logbook


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
