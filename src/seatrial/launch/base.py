"""The one interface of all launchers: a job goes in, states come out, and what the processes left lies in the run folder.

    launcher = Local()
    handle = launcher.submit(Job(name="a", run_dir=Path("out"), argv=("python", "-m", "seatrial.engine", …), world=8))
    launcher.poll([handle])[handle.key]         "queued", "running" or "done"; one question to the batch system for all handles
    launcher.cancel(handle)
    launcher.finished(handle)                   exit codes of all ranks and what the batch system says

A launcher never judges: `outcome.classify` does, from the same files whoever launched. `submit` and `poll` return at once.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from seatrial.errors import BadInput

State = Literal["queued", "running", "done"]
Per = Literal["rank", "node"]

POLL_S = 0.02
"""How often a local job wants to be looked at."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a launcher needs to know of a trial."""

    name: str
    run_dir: Path
    argv: tuple[str, ...]
    """The program, never seen by a shell."""
    world: int
    per: Per = "rank"
    """Whether `argv` is started once a rank, or once a node because it starts the ranks itself (torchrun)."""
    procs_per_node: int | None = None
    """All on one node when not given."""
    env: dict[str, str] = field(default_factory=dict)
    """Put over the environment that the launcher has."""
    threads: int | None = None
    """Compute threads a rank; by default the cores divided by the ranks of a node."""
    cores: float | None = None
    """Processor time that one rank may have, in cores: 0.5 is every second moment of one (control groups)."""
    memory_cap_bytes: int | None = None
    """Data that one rank may have (RLIMIT_DATA)."""
    time_limit_s: float = 600.0
    scheduler: dict[str, str] = field(default_factory=dict)
    """Options for the batch system, by its own names."""

    def __post_init__(self) -> None:
        if self.world % self.local_world:
            raise BadInput(f"{self.world} processes are not a multiple of {self.local_world} a node")

    @property
    def local_world(self) -> int:
        """Ranks of one node."""
        return self.procs_per_node or self.world

    @property
    def nodes(self) -> int:
        return self.world // self.local_world


@dataclass(frozen=True, kw_only=True)
class Handle:
    """A job that was submitted."""

    key: str
    """Unique within the launcher."""
    job: Job
    job_id: str = ""
    """The batch system's number, or the process id of the local supervisor."""
    submitted: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How the processes of a job ended; what they said is in the run folder."""

    codes: tuple[int | None, ...]
    """Exit code of each rank (of each node when the program was started once a node); negative is a signal; None: unknown."""
    died: tuple[int, ...] = ()
    """Those that failed by themselves, in the order that it was seen."""
    timed_out: bool = False
    stopped: bool = False
    """Whether somebody asked for it to stop: Ctrl-C, `cancel`, scancel."""
    seconds: float = 0.0
    frozen: tuple[int, ...] = ()
    """Ranks that were found stopped (state T) when the others gave up."""
    rss_peak_bytes: dict[int, int] = field(default_factory=dict)
    data_peak_bytes: dict[int, int] = field(default_factory=dict)
    """What RLIMIT_DATA counts."""
    shot: tuple[int, ...] = ()
    """Ranks that the kernel killed for memory, where it says so."""
    scheduler_state: str = ""
    """The batch system's own word: COMPLETED, TIMEOUT, CANCELLED, NODE_FAIL, …"""
    job_id: str = ""
    hosts: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not self.timed_out and all(code == 0 for code in self.codes)


class Launcher(Protocol):
    name: str

    def submit(self, job: Job) -> Handle:
        """Starts or queues it. Raises BadInput where the batch system refuses."""

    def poll(self, handles: Sequence[Handle]) -> dict[str, State]:
        """States by `key`; asks the batch system once for all."""

    def cancel(self, handle: Handle) -> None:
        """Asks it to stop; it is `done` when a later poll says so."""

    def kill(self, handle: Handle) -> None:
        """Ends it at once, without asking its ranks."""

    def finished(self, handle: Handle) -> Finished:
        """Of a job that is done."""

    def find(self, name: str) -> str:
        """The number of a job that still runs or waits, by its name; empty when there is none."""

    def room_for(self, job: Job, running: Sequence[Handle]) -> bool:
        """Whether the job can run now beside those."""

    @property
    def poll_s(self) -> float:
        """How long to wait between two polls."""
