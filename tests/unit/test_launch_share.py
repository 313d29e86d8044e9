"""A rank that is held to a part of a core gets that much of it and no more."""
from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

import pytest

import attempts
from seatrial.errors import BadInput
from seatrial.launch import share
from seatrial.launch.base import Job
from seatrial.launch.processes import waiting

BUSY = "import time\nuntil = time.monotonic() + 1.5\nwhile time.monotonic() < until: pass"


@pytest.fixture
def shares():
    try:
        made = share.Shares(0.25, ranks=[0, 1])
    except BadInput as error:
        pytest.skip(str(error))
    yield made
    made.close()


def test_a_busy_rank_gets_its_share_and_no_more(shares):
    def used() -> float:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([sys.executable, "-S", "-c", BUSY], preexec_fn=lambda: shares.join(1), check=True)
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / wall

    # Forking this large process counts too, and comes before the child is in its group.
    assert attempts.fastest_of_three(used) < 0.3, "a quarter of a core, and the rounding of one period"


def test_nothing_is_left_when_the_ranks_are_gone(shares):
    folders = list(shares._folders.values())
    assert len(folders) == 2 and all(folder.is_dir() for folder in folders)
    shares.close()
    assert not any(folder.exists() for folder in folders)


def test_the_group_of_a_launcher_that_died_is_swept_out(shares):
    parent = next(iter(shares._folders.values())).parent
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = parent / f"{share.PREFIX}-{dead.pid}-abc-0"
    left.mkdir()
    share.Shares(0.5, ranks=[0]).close()
    assert not left.exists()


def test_where_groups_cannot_be_made_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(share, "_parents", lambda: iter([(tmp_path / "not-there", 1)]))
    with pytest.raises(BadInput, match="cannot be held to 0.5 cores here .*not-there.*root may"):
        share.Shares(0.5, ranks=[0])
    monkeypatch.setattr(share, "_parents", lambda: iter([]))
    with pytest.raises(BadInput, match="no control groups with processor time are mounted"):
        share.Shares(0.5, ranks=[0])
    with pytest.raises(BadInput, match="0.001 cores per rank: the kernel gives 0.01"):
        share.Shares(0.001, ranks=[0])


@pytest.mark.parametrize(("cores", "said"), [(0.5, "10000 20000"), (2.0, "40000 20000"), (0.02, "2000 100000")])
def test_the_second_version_of_groups_is_told_quota_and_period(monkeypatch, tmp_path, cores, said):
    """A folder of plain files stands for what the kernel would offer."""
    (tmp_path / "cgroup.subtree_control").write_text("memory")
    monkeypatch.setattr(share, "_parents", lambda: iter([(tmp_path, 2)]))
    shares = share.Shares(cores, ranks=[0, 3])
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    assert [(folder / "cpu.max").read_text() for folder in shares._folders.values()] == [said, said]
    shares.join(3)
    assert (shares._folders[3] / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.parametrize(("job", "env", "asleep"), [
    (dict(world=4, threads=2), {}, False), (dict(world=5, threads=2), {}, True),
    (dict(world=8), {}, False), (dict(world=9), {}, True),
    (dict(world=4), {"OMP_NUM_THREADS": "2,1"}, False), (dict(world=4), {"OMP_NUM_THREADS": "3"}, True),
    (dict(world=4, threads=2), {"OMP_NUM_THREADS": "3"}, False),
    (dict(world=1, threads=2, cores=1.5), {}, True), (dict(world=1, threads=2, cores=2.0), {}, False),
    (dict(world=16, procs_per_node=8, threads=1), {}, False),
    (dict(world=9), {"KMP_BLOCKTIME": "200"}, False), (dict(world=9), {"OMP_WAIT_POLICY": "ACTIVE"}, False),
])
def test_threads_wait_asleep_where_they_do_not_all_have_a_core(tmp_path, job, env, asleep):
    wanted = Job(name="t", run_dir=tmp_path, argv=("true",), **job)
    assert waiting(wanted, env, threads=1, cores=8) == ({"OMP_WAIT_POLICY": "passive"} if asleep else {})
