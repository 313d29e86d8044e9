"""The one interface of all launchers: a job goes in, states come out, and what the processes left lies in the run folder.

    launcher = Local()
    job = Job(name="a", run_dir=Path("out"), argv=("python", "-m", "seatrial.engine", …), world=8)
    launcher.check(trial, job)                  raises BadInput for what cannot run where the launcher runs it
    handle = launcher.submit(job)
    launcher.poll([handle])[handle.key]         "queued", "running" or "done"; one question to the batch system for all handles
    launcher.cancel(handle)
    launcher.finished(handle)                   exit codes of all ranks and what the batch system says

A launcher never judges: `outcome.classify` does, from the same files whoever launched. `submit` and `poll` return at once.
"""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from seatrial.engines.base import Per
from seatrial.errors import BadInput

if TYPE_CHECKING:
    from seatrial.spec import Trial

State = Literal["queued", "running", "done"]

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
    """Whether `argv` is started once per rank, or once per node because it starts the ranks itself (torchrun)."""
    procs_per_node: int | None = None
    """All on one node when not given."""
    env: dict[str, str] = field(default_factory=dict)
    """Put over the environment that the launcher has."""
    device: str = ""
    """`cpu`, `cuda` or `auto`; empty where only the program knows what it computes on."""
    threads: int | None = None
    """Compute threads per rank; by default the cores divided by the ranks of a node."""
    cores: float | None = None
    """Processor time that one rank may have, in cores: 0.5 is every second moment of one (control groups)."""
    memory_cap_bytes: int | None = None
    """Data that one rank may have (RLIMIT_DATA)."""
    time_limit_s: float = 600.0
    stop_s: float = 60.0
    """Asked to stop, ranks are ended after this long in which neither their last step nor its checkpoint moved."""
    scheduler: dict[str, str] = field(default_factory=dict)
    """Options for the batch system, by its own names."""
    says_end: bool = False
    """Whether a rank that is done says so in its last beat: without it, leaving with exit code 0 is no end."""
    node_variables: tuple[str, ...] = ()
    """Where the agents of a batch system find their node's number: the first of these that is set."""

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


@dataclass(kw_only=True)
class NodeResult:
    """How the processes of one node ended: the file an agent leaves."""

    codes: dict[int, int]
    died: list[int] = field(default_factory=list)
    """In the order in which they ended."""
    died_at: list[float] = field(default_factory=list)
    """Wall clock of each, to put the nodes' failures in order."""
    timed_out: bool = False
    stopped: bool = False
    seconds: float = 0.0
    frozen: list[int] = field(default_factory=list)
    rss_peak_bytes: dict[int, int] = field(default_factory=dict)
    data_peak_bytes: dict[int, int] = field(default_factory=dict)
    shot: list[int] = field(default_factory=list)
    host: str = ""
    pinned: bool = False
    """Whether each of its processes was held to cores of its own."""
    crowd: dict[str, Any] = field(default_factory=dict)
    """`memory.Whose`, where a rank was ended for memory that others took."""
    refused: str = ""
    """Why none of its processes was started."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How the processes of a job ended; what they said is in the run folder."""

    codes: tuple[int | None, ...]
    """Exit code of each rank (of each node when the program was started once per node); negative is a signal; None: unknown."""
    died: tuple[int, ...] = ()
    """Those that ended by themselves and were not done, whatever their exit code; of a node in the order of their ends."""
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
    """Ranks that were killed for memory, by the kernel, where it says so, or by whoever watches it."""
    crowd: dict[str, Any] = field(default_factory=dict)
    """`memory.Whose`, where that was memory that others took."""
    scheduler_state: str = ""
    """The batch system's own word: COMPLETED, TIMEOUT, CANCELLED, NODE_FAIL, …"""
    refused: str = ""
    """Why a node started none of its processes."""
    job_id: str = ""
    hosts: tuple[str, ...] = ()
    pinned: bool = False
    """Whether processes were held to cores of their own; else the kernel places them, as it does with torchrun's."""

    @property
    def good(self) -> bool:
        return not self.timed_out and all(code == 0 for code in self.codes)


class Launcher(Protocol):
    """Explicit subclasses inherit what most have in common; a batch system starts from `batch.Batch`, which has more."""

    name: ClassVar[str]
    poll_s: ClassVar[float]
    """How long to wait between two polls."""
    here: ClassVar[bool]
    """Whether the ranks are children of this process: they end with it, and no later controller can take them over."""
    title: ClassVar[str] = ""
    """Its name in a sentence."""
    question: ClassVar[tuple[str, ...]] = ()
    """A command that `doctor` asks whether the batch system answers."""
    job_variable: ClassVar[str] = ""
    """Where a process inside a job finds the job's number."""
    allocated: str = ""
    """The number of the allocation whose steps the jobs are; empty where each job queues for itself."""

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """What a user may set in the configuration's table of this launcher's name; given to the constructor."""

    @classmethod
    def missing(cls) -> str:
        """What this machine lacks for it; empty when it can be used."""
        return ""

    @classmethod
    def allocation(cls, *, nodes: int, time_limit_s: float, settings: Settings) -> AbstractContextManager[Launcher]:
        """Nodes for many trials; given back at the end."""
        raise BadInput(f"--allocation {nodes}: is for --launcher slurm; {cls.name} has none")

    def check(self, trial: Trial, job: Job) -> None:
        """Raises BadInput for what cannot run there: of this machine only where the job would run on it."""

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
        """The number of a job that still runs or waits, by its name; empty when there is none. Raises BadInput where the batch
        system does not answer."""

    def end(self, job_id: str) -> None:
        """Ends what an earlier controller left, by its number: a job, or an allocation with all that runs in it."""

    def over(self) -> str:
        """Why nothing can be started any more: what it holds nodes by has ended. Empty while something can."""
        return ""

    def room_for(self, job: Job, running: Sequence[Handle]) -> bool:
        """Whether the job can run now beside those."""

    def close(self) -> None:
        """Nothing is submitted after it."""
