"""A file that is written whole is never seen in halves, and leaves nothing beside it."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.errors import BadInput
from seatrial.files import save, whole, write_whole

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
