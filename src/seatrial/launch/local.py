"""Ranks on this machine: one process each, on loopback, none left behind.

    local = Local()
    handle = local.submit(Job(name="a", run_dir=Path("out"), argv=("python", "-m", "seatrial.engine", …), world=8))
    wait(local, handle)                         Finished(codes=(0, 0, …), …)

The processes are children of this one: `poll` is what moves a job on, and when this process dies, so do they.
"""
from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from seatrial.engines import engine_for
from seatrial.errors import BadInput, Infeasible
from seatrial.launch import files
from seatrial.launch.base import POLL_S, Finished, Handle, Job, Launcher, State
from seatrial.launch.guard import Guard
from seatrial.launch.processes import Processes

if TYPE_CHECKING:
    from seatrial.launch.follow import Follow
    from seatrial.spec import Trial

PRECISIONS = ("fp32", "bf16", "fp16")
"""That every device has."""


class Local(Launcher):
    name, poll_s, here = "local", POLL_S, True

    def __init__(self) -> None:
        self._running: dict[str, Processes] = {}
        self._cores: dict[str, list[int]] = {}
        """Of the jobs that run, so that two side by side do not share one."""
        self._pins: bool | None = None
        self._count = 0
        self._guard = Guard()

    def check(self, trial: Trial, job: Job) -> None:
        """Nodes, GPUs, fp8 and what is to be preloaded, of this machine."""
        _one_node(job)
        if job.device:
            _check_devices(trial, job)
        if wrong := preload_problem(job.env):
            raise Infeasible(wrong, code="preload")

    def submit(self, job: Job) -> Handle:
        _one_node(job)
        taken = {core for cores in self._cores.values() for core in cores}
        free = [core for core in sorted(os.sched_getaffinity(0)) if core not in taken]
        self._count += 1
        key = f"{job.run_dir}#{self._count}"
        # Cores are given out only where all ranks can have one of their own; else the kernel divides them.
        mine = free[: job.world * (job.threads or 1)] if job.world <= len(free) and taken else free
        ranks = range(job.world) if job.per == "rank" else range(1)
        if self._pins is None:
            # Once for all: trials that are compared start alike.
            self._pins = ours_to_pin()
        self._guard.watch(job.run_dir)
        try:
            self._running[key] = Processes(job, ranks=ranks, cores=mine, pin=self._pins or bool(taken))
        except OSError as error:
            raise BadInput(f"{job.argv[0]}: {error.strerror}: the ranks cannot be started") from None
        self._cores[key] = mine if job.world <= len(mine) else []
        return Handle(key=key, job=job, job_id=str(os.getpid()), submitted=time.time())

    def poll(self, handles: Sequence[Handle]) -> dict[str, State]:
        found: dict[str, State] = {}
        for handle in handles:
            processes = self._running[handle.key]
            processes.poll()
            if processes.done:
                self._cores.pop(handle.key, None)
            found[handle.key] = "done" if processes.done else "running"
        return found

    def cancel(self, handle: Handle) -> None:
        self._running[handle.key].ask_to_stop()

    def kill(self, handle: Handle) -> None:
        """At once, and gone when this returns."""
        self._running[handle.key].found.stopped = True
        self._running[handle.key].kill()

    def finished(self, handle: Handle) -> Finished:
        """Once: the launcher then forgets the job."""
        found = self._running.pop(handle.key).result()
        self._guard.forget(handle.job.run_dir)
        return files.merged(handle.job, {0: found})

    def find(self, name: str) -> str:
        return ""  # processes of an earlier controller died with it

    def end(self, job_id: str) -> None:
        pass  # the same

    def close(self) -> None:
        self._guard.close()

    def room_for(self, job: Job, running: Sequence[Handle]) -> bool:
        """Beside others only where every rank has a core of its own: trials that share cores measure each other."""
        wanted = sum(h.job.world * (h.job.threads or 1) for h in running) + job.world * (job.threads or 1)
        return not running or wanted <= len(os.sched_getaffinity(0))


BUSY = 0.15
"""Of one core: what others may use before cores are not ours alone."""
LOOK_S = 0.1


def ours_to_pin() -> bool:
    """Whether ranks may be held to cores: those that somebody dealt out to us, or all of a machine where nobody else computes.
    Held to a core that another program wants, a rank waits for it while others stand idle, and all ranks wait for that one."""
    mine = os.sched_getaffinity(0)
    if len(mine) < (os.cpu_count() or 1):
        return True
    import psutil

    psutil.cpu_percent()
    time.sleep(LOOK_S)
    return psutil.cpu_percent() / 100 * len(mine) < BUSY


def _one_node(job: Job) -> None:
    if job.nodes > 1:
        raise BadInput(f"{job.world} processes at {job.local_world} a node are {job.nodes} nodes, and this machine is one")


def _check_devices(trial: Trial, job: Job) -> None:
    """Processes share cores, but not GPUs; and fp8 is the one precision that depends on the device."""
    t = trial.topology
    there = gpus() if job.device != "cpu" else 0
    if t.precision == "fp8":
        why = "needs a GPU with 8-bit GEMMs"
        if there:
            import torch

            from seatrial.engine.fast import fp8

            why = fp8.refuse(torch.device("cuda")) or ""
        if why:
            raise Infeasible(f"precision {t.precision}: {why}; here the engine has {', '.join(PRECISIONS)}", code="precision")
    if there == 0 and (why := engine_for(trial).needs_gpu(trial)):
        raise Infeasible(why, code="devices")
    if job.device == "cuda" and there == 0:
        raise Infeasible("execution.device is cuda, but this machine has no CUDA device: use cpu or auto", code="devices")
    if 0 < there < t.world:
        raise Infeasible(f"{t.product}, but this machine has {there} CUDA "
                         f"device{'s' if there > 1 else ''}: use a topology of {there}, or execution.device = \"cpu\"",
                         code="devices")


def gpus() -> int:
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return 0  # most machines that plan have none, and asking torch takes seconds
    import torch

    return torch.cuda.device_count()


def preload_problem(variables: Mapping[str, str]) -> str:
    """Whether LD_PRELOAD can be preloaded at all: the loader only warns, and a comparison would then measure nothing."""
    return _preload_problem(variables["LD_PRELOAD"]) if variables.get("LD_PRELOAD") else ""


@functools.lru_cache(maxsize=64)
def _preload_problem(value: str) -> str:
    env = {"PATH": os.defpath, "LD_PRELOAD": value}
    found = subprocess.run(["/bin/true"], env=env, capture_output=True, text=True, check=False)
    if "ERROR" not in found.stderr and found.returncode == 0:
        return ""
    first = next((line.strip() for line in found.stderr.splitlines() if line.strip()), f"exit code {found.returncode}")
    return f"LD_PRELOAD={value}: the loader of this machine does not take it ({first.partition('ERROR: ld.so: ')[2] or first})"


def wait(launcher: Launcher, handle: Handle, *, on_line: Callable[[str], None] | None = None,
         follow: Follow | None = None, rank: int = 0) -> Finished:
    """Until it is done; SIGTERM and Ctrl-C are passed on. `on_line` hears the log of `rank` as it is written."""
    asked: list[int] = []
    passed_on = False
    with contextlib.ExitStack() as stack:
        stack.enter_context(_passing_on_signals(asked))
        hear = _hearing(stack, files.log(handle.job.run_dir, rank), on_line)
        try:
            while launcher.poll([handle])[handle.key] != "done":
                hear()
                if follow is not None and follow.look(time.monotonic()) == "enough":
                    launcher.kill(handle)
                if asked and not passed_on:
                    passed_on = True
                    launcher.cancel(handle)
                time.sleep(launcher.poll_s)
        except BaseException:
            launcher.kill(handle)
            raise
        hear()
    return launcher.finished(handle)


def launch(argv: Sequence[str], *, world: int, out: Path, timeout_s: float, env: Mapping[str, str] | None = None,
           threads: int | None = None, on_line: Callable[[str], None] | None = None) -> Finished:
    """Runs `argv` once a rank on this machine and waits."""
    local = Local()
    job = Job(name=out.name, run_dir=out, argv=tuple(argv), world=world, env=dict(env or {}), threads=threads,
              time_limit_s=timeout_s)
    try:
        return wait(local, local.submit(job), on_line=on_line)
    finally:
        local.close()


def _hearing(stack: contextlib.ExitStack, path: Path, on_line: Callable[[str], None] | None) -> Callable[[], None]:
    rest = b""
    file: IO[bytes] | None = None

    def hear() -> None:
        nonlocal rest, file
        if on_line is None or file is None and not path.exists():
            return
        if file is None:
            file = stack.enter_context(path.open("rb"))
        *lines, rest = (rest + file.read()).split(b"\n")
        for line in lines:
            on_line(line.decode(errors="replace"))

    return hear


@contextlib.contextmanager
def _passing_on_signals(asked: list[int]) -> Iterator[None]:
    """SIGTERM and Ctrl-C reach the ranks as SIGTERM; a second one is not waited for."""

    def note(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, note)
    except ValueError:
        pass  # only the main thread may: a sweep's worker leaves signals to its controller
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
