"""A share of a core for each rank: a control group of its own, whose processor time the kernel measures and cuts off.

    shares = Shares(0.5, ranks=range(4))        BadInput, with what would work, where this machine does not let us
    shares.join(2)                              called by rank 2 between fork and exec
    shares.close()                              when the ranks are gone

On a machine with fewer cores than ranks, scaling from one rank to many says something only when each has the same part of a
core all along. A group lets a process run for its share of every period and then stops it until the next one. Both versions
of control groups do that; the right to make one has root, or a user whose session was given a group of its own (systemd-run
--user --scope -p Delegate=yes).
"""
from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from seatrial.errors import BadInput

PERIOD_US = 20_000
"""Short beside an iteration, so that a rank is not stopped for long where others wait for it."""
SLOW_PERIOD_US = 100_000
"""For shares so small that a short period would give less than the kernel's least, a millisecond."""
LEAST_CORES = 0.01
PREFIX = "seatrial"


class Shares:
    def __init__(self, cores: float, *, ranks: Iterable[int]):
        if not cores >= LEAST_CORES:
            raise BadInput(f"{cores:g} cores per rank: the kernel gives {LEAST_CORES:g} at the least")
        self._folders: dict[int, Path] = {}
        period = PERIOD_US if cores * PERIOD_US >= 1000 else SLOW_PERIOD_US
        ranks, refused = list(ranks), []
        for parent, version in _parents():
            try:
                _sweep_out(parent)
                for rank in ranks:
                    self._make(parent / f"{PREFIX}-{os.getpid()}-{id(self):x}-{rank}", rank, version, cores, period)
                _try_to_enter(self._folders[ranks[0]])
                return
            except OSError as error:
                self.close()
                refused.append(f"{parent}: {error.strerror or error}")
        why = "; ".join(refused) or "no control groups with processor time are mounted"
        raise BadInput(f"a rank cannot be held to {cores:g} cores here ({why}): root may, and a session with groups of its own")

    def _make(self, folder: Path, rank: int, version: int, cores: float, period: int) -> None:
        if version == 2:
            control = folder.parent / "cgroup.subtree_control"
            if "cpu" not in control.read_text().split():
                control.write_text("+cpu")
        folder.mkdir()
        self._folders[rank] = folder
        quota = round(cores * period)
        if version == 2:
            (folder / "cpu.max").write_text(f"{quota} {period}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(period))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))

    def join(self, rank: int) -> None:
        """The calling process and all that it starts."""
        _enter(self._folders[rank], os.getpid())

    def close(self) -> None:
        """Groups that still hold a process stay, and the next one to come sweeps them out."""
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()
        self._folders = {}


def _enter(folder: Path, pid: int) -> None:
    with open(folder / "cgroup.procs", "w") as file:
        file.write(str(pid))


def _try_to_enter(folder: Path) -> None:
    """Making a group and being let into it are two rights; a rank should not be what finds out."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as probe:
        _enter(folder, probe.pid)


def _parents() -> Iterator[tuple[Path, int]]:
    """Groups that ours could be put under, with the version of their kind: our own first, then those above it."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return
    for mount in mounts:
        kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
        if kind == "cgroup2":
            version, own = 2, next((path for _, names, path in groups if not names), None)
        elif kind == "cgroup" and "cpu" in options:
            version, own = 1, next((path for _, names, path in groups if "cpu" in names.split(",")), None)
        else:
            continue
        if own is None:
            continue
        top = Path(mount[4])
        folder = top / own.lstrip("/")
        while folder.is_relative_to(top):
            if version == 1 or "cpu" in _words(folder / "cgroup.controllers"):
                yield folder, version
            if folder == top:
                break
            folder = folder.parent


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _sweep_out(parent: Path) -> None:
    """Empty groups of launchers that died."""
    for folder in parent.glob(f"{PREFIX}-*-*"):
        pid = folder.name.split("-")[1]
        if not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
