"""One at a time in a folder: the kernel's lock, and a lease for hosts whose kernels do not know of each other."""
from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from seatrial import lock
from seatrial.errors import BadInput
from seatrial.launch.trial import Claim
from seatrial.recipe import Recipe

HOLDING = """
import sys, time
from seatrial.lock import alone
with alone(sys.argv[1], "a run"):
    print("up", flush=True)
    time.sleep(600)
"""


def leave(folder, *, age_s: float, **owner: object) -> None:
    """What a holder on another host, or one that was killed, leaves."""
    folder.mkdir(exist_ok=True)
    (folder / lock.FILE).write_text(json.dumps({**lock.me("a run"), **owner}))
    then = time.time() - age_s
    os.utime(folder / lock.FILE, (then, then))


@pytest.fixture
def no_locks(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)


def test_a_second_one_is_told_who_is_there_and_a_dead_one_is_taken_over_at_once(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDING, tmp_path], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"up\n"
        with pytest.raises(BadInput, match=rf"a run is running here \(process {holder.pid} on .*, since 20.* UTC\); wait"):
            with lock.alone(tmp_path, "another"):
                pass
    finally:
        holder.kill()
        holder.wait()
    with lock.alone(tmp_path, "another") as said:
        assert f"taken over from process {holder.pid} on " in said
    with lock.alone(tmp_path, "another") as said:
        assert said == ""


def test_another_hosts_fresh_lease_is_believed_though_the_lock_is_free(tmp_path):
    leave(tmp_path, age_s=20, host="beta", pid=7, boot="of beta")
    with pytest.raises(BadInput, match=r"process 7 on beta.*ends by itself in (39|40) s"):
        with lock.alone(tmp_path, "another"):
            pass
    leave(tmp_path, age_s=61, host="beta", pid=7, boot="of beta")
    with lock.alone(tmp_path, "another") as said:
        assert "process 7 on beta" in said


def test_without_locks_the_lease_decides_on_one_host_too(tmp_path, no_locks):
    with lock.alone(tmp_path, "a run"):
        with pytest.raises(BadInput, match="a run is running here"):
            with lock.alone(tmp_path, "another"):
                pass
    with lock.alone(tmp_path, "another") as said:
        assert said == ""


def test_a_lease_is_renewed(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "RENEW_S", 0.02)
    with lock.alone(tmp_path, "a run"):
        os.utime(tmp_path / lock.FILE, (0, 0))
        until = time.monotonic() + 20
        while (tmp_path / lock.FILE).stat().st_mtime == 0:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_a_holder_that_was_suspended_and_has_lost_its_lease_ends_and_leaves_the_others_name(tmp_path):
    soon = HOLDING.replace("with", "import seatrial.lock\nseatrial.lock.RENEW_S = 0.2\nwith", 1)
    holder = subprocess.Popen([sys.executable, "-c", soon, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"up\n"
        holder.send_signal(signal.SIGSTOP)
        # To another host, whose kernel does not know of the holder's lock, the lease is over: it writes its own.
        leave(tmp_path, age_s=0, what="another", host="beta", pid=7, boot="of beta")
        holder.send_signal(signal.SIGCONT)
        _, err = holder.communicate(timeout=60)
    finally:
        holder.kill()
        holder.wait()
    assert holder.returncode != 0
    assert b"another is running here (process 7 on beta" in err and b"was silent for more than 60 s and ends now" in err
    assert json.loads((tmp_path / lock.FILE).read_text())["host"] == "beta"


def test_a_batch_job_that_outlived_its_controller_is_not_started_over(tmp_path):
    (tmp_path / "nodes").mkdir()
    with lock.alone(tmp_path / "nodes", "a batch job"):
        with pytest.raises(BadInput, match="nodes: a batch job is running here"), Claim(Recipe(), tmp_path, say=print) as claim:
            claim.take(there=True)
    with Claim(Recipe(), tmp_path, say=print) as claim:
        claim.take(there=True)
        with pytest.raises(BadInput, match="a training is running here"), Claim(Recipe(), tmp_path, say=print) as second:
            second.take(there=True)


def test_checkpoints_that_lie_elsewhere_are_one_runs_too(tmp_path):
    recipe = Recipe(checkpoint_dir=str(tmp_path / "c"))
    with Claim(recipe, tmp_path / "a", say=print) as claim:
        claim.take(there=True)
        assert list(tmp_path.iterdir()) == []  # before it is known that all is well, nothing is made
        claim.take(there=False)
        with pytest.raises(BadInput, match="c: a training is running here"), Claim(recipe, tmp_path / "b", say=print) as second:
            second.take(there=True)
