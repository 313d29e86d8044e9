"""A file that is written whole is never seen in halves, and leaves nothing beside it."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.engine.io import indexed
from seatrial.errors import BadInput
from seatrial.files import naming, save, whole, write_whole

WRITER = """
import sys
from seatrial.files import write_whole
n = 0
while True:
    n += 1
    write_whole(sys.argv[1], (str(n % 10) * 200_000), durable=False)
"""


def test_what_was_there_stays_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "old")
    with pytest.raises(RuntimeError), whole(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.json"]


def test_a_reader_beside_a_writer_that_is_killed_never_sees_a_part(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    until = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    for _ in range(200):
        seen = path.read_text()
        assert len(seen) == 200_000 and len(set(seen)) == 1
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    seen = path.read_text()
    assert len(seen) == 200_000 and len(set(seen)) == 1


def test_what_a_person_named_and_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file or directory"):
        save(tmp_path / "nowhere" / "a.html", "text")
    save(tmp_path / "ä.html", "τ ≤ 1\r\n")
    assert (tmp_path / "ä.html").read_bytes() == "τ ≤ 1\r\n".encode()


def full(path) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_says_which_file(tmp_path):
    with pytest.raises(OSError, match="No space left on device: '.*corpus.bin'"), naming(tmp_path / "corpus.bin"):
        full(tmp_path)
    with pytest.raises(OSError, match="No space left on device: '.*a.json'"), whole(tmp_path / "a.json"):
        full(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("documents", [1, 50_000])
def test_token_files_that_do_not_fit_leave_nothing(tmp_path, documents):
    """Found while writing, or only when the file is closed."""
    writer = indexed.Writer(tmp_path / "corpus", vocab=300)
    writer._parts[0].symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device: '.*corpus.bin'"), writer:
        for _ in range(documents):
            writer.add([1, 2, 3])
    assert list(tmp_path.iterdir()) == []
