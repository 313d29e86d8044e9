"""The processes of one job on one machine: started, watched, ended, none left behind.

    group = Processes(job, ranks=range(8), master=("127.0.0.1", 29500))
    while not group.done:
        group.poll()                            never waits
        time.sleep(POLL_S)
    group.result()                              exit codes, who failed first, peaks of memory

The ranks get the variables that torchrun would give them; each writes to a log of its own. When one fails, the others have a
moment to say where they stood and are then ended. They end with this process too, whatever ends it.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Self

from seatrial.engine.watch import heartbeat
from seatrial.launch import files, memory
from seatrial.launch.base import Job, NodeResult
from seatrial.launch.deaths import Deaths
from seatrial.launch.guard import MARK, end_marked
from seatrial.launch.memory import Whose
from seatrial.launch.share import Shares

GRACE_AFTER_STALL_S = 6.0
"""Longer than the watch waits for the other ranks' stacks: those of another node may come late."""
SPEAK_S = 2.0
"""The same where all ranks are here: who has not said where it stands by then is asked by a signal."""
GRACE_AFTER_DEATH_S = 0.8
"""What the survivors have to say is written in milliseconds, and who was first is known without it."""
GRACE_AFTER_LEAVING_S = 0.3
"""A rank that leaves for a stall has waited for the others' words already; who has not said them by then is asked."""
GRACE_AFTER_TERM_S = 2.0
KILL_AFTER_DEATH_S = 0.3
"""The same where a rank is gone: what the others could still leave cleanly needs it."""
STACKS_S = 1.0
"""How long a rank may take to write its stacks when asked."""
SAMPLE_S = 0.25
OOM_SCORE = 300
"""Before others of their size, and after one that holds a third of the machine more."""
LEAST_FREE = 0.015
"""Below this share of a machine's memory the fullest rank is ended, before the kernel chooses somebody or all stands still."""
LAST_FREE = 0.005
"""The same where others took the memory: ending a rank gives little back, so only when nothing else is left."""
WAITS = "OMP_WAIT_POLICY"
WAITS_OWN = (WAITS, "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
"""What says how OpenMP's threads wait: the standard's word, which both libraries that torch comes with heed, and their own."""
PR_SET_PDEATHSIG = 1
NODE_MARK = "SEATRIAL_RUN_NODE"
_LIBC = ctypes.CDLL(None)
"""Loaded here, because little is safe to do between fork and exec."""


def waiting(job: Job, env: Mapping[str, str], *, threads: int, cores: int) -> dict[str, str]:
    """How OpenMP's threads wait for each other: asleep where they do not all have a core.

    Spinning they keep a shared core, or a rank's share of one, from those that they wait for; where each has its own, spinning
    is the faster way and stays. What somebody set is left as it is.
    """
    given = env.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    a_rank = job.threads or (int(given) if given.isdecimal() else threads)
    shared = job.local_world * a_rank > cores or job.cores is not None and a_rank > job.cores
    return {WAITS: "passive"} if shared and not any(name in env for name in WAITS_OWN) else {}


def rank_environment(rank: int, world: int, env: Mapping[str, str], *, local_rank: int | None = None,
                     local_world: int | None = None, master: tuple[str, int], threads: int) -> dict[str, str]:
    """What torchrun would set, and what keeps a trial on loopback when it is on one machine."""
    found = {
        **env,
        "RANK": str(rank), "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank if local_rank is None else local_rank),
        "LOCAL_WORLD_SIZE": str(world if local_world is None else local_world),
        "MASTER_ADDR": master[0], "MASTER_PORT": str(master[1]),
        "OMP_NUM_THREADS": env.get("OMP_NUM_THREADS", str(threads)),
        "TORCH_FR_BUFFER_SIZE": env.get("TORCH_FR_BUFFER_SIZE", "2000"),
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    if master[0] == "127.0.0.1":
        # Nothing listens on, or asks for, an address outside this machine.
        found |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    return found


class HeldPort:
    """A port for ranks to meet at, theirs from the moment it is chosen.

    Rank 0 takes seconds to load torch before it listens, and in that time the kernel could give a port that is merely free to
    anybody. One that is bound, without listening, it gives to nobody; whoever names it with SO_REUSEADDR may still listen
    there, as torch's store and every server of Python's does.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = int(self._socket.getsockname()[1])

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Processes:
    """`ranks` are the global numbers of those that run here; for a program that is started once a node, the node's."""

    def __init__(self, job: Job, *, ranks: Sequence[int], node: int = 0, master: tuple[str, int] | None = None,
                 cores: Sequence[int] | None = None, pin: bool = True):
        """`pin`: whether the cores are ours to deal out; else all ranks have all of them."""
        self.job, self.ranks, self.node = job, list(ranks), node
        self.started = time.monotonic()
        self.until = self._latest = self.started + job.time_limit_s
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.found = NodeResult(codes={}, host=socket.gethostname())
        shared = job.cores is not None and job.cores <= 1
        self.done = False
        self._asked = self._elsewhere = self._ending = False
        self._deaths = Deaths()
        self._unwatched: list[int] = []
        self._leaving: Leaving | None = None
        self._asked_for_stacks: set[int] = set()
        self._kill_at = 0.0
        self._sampled = 0.0
        self._oom_kills = memory.kills()
        self._used_before = memory.machine().used_bytes
        self._low: Whose | None = None
        self._node_mark = f"{job.run_dir}#{node}"
        self._shares = Shares(job.cores, ranks=self.ranks) if job.cores is not None else None
        (job.run_dir / files.LOGS).mkdir(parents=True, exist_ok=True)
        cores = sorted(os.sched_getaffinity(0)) if cores is None else list(cores)
        threads = job.threads or max(1, len(cores) // job.local_world)
        self._port: HeldPort | None = None
        if master is None:
            self._port = HeldPort()
            master = ("127.0.0.1", self._port.number)
        try:
            for i, rank in enumerate(self.ranks):
                own = _share(cores, i, len(self.ranks)) if pin else cores
                if shared and cores:
                    own = [cores[i % len(cores)]]  # the kernel cuts off a share at each core that it is used on
                self.found.pinned |= 0 < len(own) < len(cores)
                self.processes[rank] = self._start(rank, i, master, threads, own, len(cores))
                if not self._deaths.watch(rank, self.processes[rank].pid):
                    self._unwatched.append(rank)
        except BaseException:
            self.kill()
            raise

    def _start(self, rank: int, local_rank: int, master: tuple[str, int], threads: int, cores: Sequence[int],
               cores_here: int) -> subprocess.Popen[bytes]:
        job = self.job
        env = {**os.environ, **job.env, MARK: str(job.run_dir), NODE_MARK: self._node_mark}
        env |= waiting(job, env, threads=threads, cores=cores_here)
        if job.per == "rank":
            env = rank_environment(rank, job.world, env, local_rank=local_rank, local_world=job.local_world, master=master,
                                   threads=threads)
            log = files.log(job.run_dir, rank)
        else:
            env |= {"SEATRIAL_NODES": str(job.nodes), "SEATRIAL_NODE": str(self.node), "MASTER_ADDR": master[0],
                    "MASTER_PORT": str(master[1]), "OMP_NUM_THREADS": env.get("OMP_NUM_THREADS", str(threads))}
            log = files.node_log(job.run_dir, rank)
        parent, cap, shares = os.getpid(), job.memory_cap_bytes, self._shares

        def before_exec() -> None:
            # A session of its own keeps the terminal's Ctrl-C from reaching the ranks before we have noted it.
            os.setsid()
            _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            # Should the kernel have to kill somebody for memory, let it be a rank: that is a row of the table.
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write(str(OOM_SCORE))
            if shares is not None:
                shares.join(rank)
            if cap is not None:
                hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
                limit = cap if hard == resource.RLIM_INFINITY else min(cap, hard)
                resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            if cores:
                with contextlib.suppress(OSError):  # a core that was taken from us meanwhile
                    os.sched_setaffinity(0, cores)

        late = {"rank": rank, "local_rank": local_rank, "node": self.node, "master_addr": master[0], "master_port": master[1]}
        argv = [_filled(part, late) for part in job.argv]
        with log.open("wb") as file:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                    preexec_fn=before_exec, env=env, close_fds=True)

    # ---- watching

    def poll(self) -> None:
        """One look at all of them: notes who ended, and goes on to the next stage of ending them where that is due."""
        if self.done:
            return
        now = time.monotonic()
        self._sample(now)
        for rank in [*self._deaths.order(), *self._unwatched]:
            process = self.processes[rank]
            if rank not in self.found.codes and process.poll() is not None:
                self.found.codes[rank] = process.returncode
                self._end_children(process.pid)
                if not self._ending and (process.returncode or not self._was_done(rank)):
                    self._note_failure(rank, process.returncode, now)
        alive = [r for r, p in self.processes.items() if p.returncode is None]
        if not alive:
            self._finish(now)
        elif self._ending:
            self._go_on_ending(alive, now)
        else:
            self._decide(alive, now)

    def _was_done(self, rank: int) -> bool:
        """Whether a good exit code is one: a rank that leaves quietly in the middle of a step also has it."""
        if not self.job.says_end:
            return True
        return any(beat.rank == rank and beat.phase == heartbeat.END for beat in heartbeat.read(self.job.run_dir))

    def _note_failure(self, rank: int, code: int, now: float) -> None:
        if not self.found.died:
            self.until = min(self.until, now + (GRACE_AFTER_LEAVING_S if code == heartbeat.EXIT_STALL else self._grace_s))
        self.found.died.append(rank)
        self.found.died_at.append(time.time())
        if code == -signal.SIGKILL and rank not in self.found.shot and memory.kills() > self._oom_kills:
            self._oom_kills = memory.kills()
            self._note_shot(rank)

    @property
    def _grace_s(self) -> float:
        """After a death. A program that starts ranks itself hears of it in its own time."""
        return GRACE_AFTER_DEATH_S if self.job.per == "rank" else GRACE_AFTER_STALL_S

    def _decide(self, alive: list[int], now: float) -> None:
        stalled = files.alarm(self.job.run_dir).exists() if self.job.per == "rank" else False
        if stalled or self.found.died or now > self.until:
            frozen = [r for r in alive if r not in self.found.frozen and _state(self.processes[r].pid) in ("T", "t")]
            self.found.frozen += frozen
            self._ask_for_stacks(frozen, now)
        if stalled:
            self.until = min(self.until, now + (SPEAK_S if self.job.nodes == 1 else GRACE_AFTER_STALL_S))
        elif self._leaving is not None and not self.found.died and not self._elsewhere:
            self.until = min(self._latest, self._leaving.until(now))
        if now <= self.until:
            if not (self.found.died and set(alive) <= set(self.found.frozen)):
                return  # stopped processes will not say anything more; all others may
        elif not self.found.died and not stalled and not self._asked and not self._elsewhere:
            self.found.timed_out = True
            self._ask_for_stacks(alive, now)
        elif stalled:
            self._ask_for_stacks([r for r in alive if not files.stall(self.job.run_dir, r).exists()], now)
        self._ending = True
        lost = self.job.per == "rank" and (self.found.died or self._elsewhere or self._asked_for_stacks)
        self._kill_at = now + (KILL_AFTER_DEATH_S if lost else GRACE_AFTER_TERM_S)
        self._kill_at += STACKS_S if self.found.timed_out and self._asked_for_stacks else 0.0
        if not self._asked_for_stacks:
            self._signal(alive, signal.SIGTERM)

    def _ask_for_stacks(self, ranks: Sequence[int], now: float) -> None:
        """Python's fault handler answers this signal, once the watch runs, from the very line the rank stands at."""
        paths = {rank: files.stacks(self.job.run_dir, rank) for rank in ranks}
        asked = [rank for rank in ranks if rank not in self._asked_for_stacks and paths[rank].exists()]
        self._asked_for_stacks.update(asked)
        for rank in asked:
            # To its main thread: any other one could take it, and the main thread would be a few lines further by then.
            _LIBC.tgkill(self.processes[rank].pid, self.processes[rank].pid, signal.SIGUSR2)
            # Pending signals come first, so a stopped rank writes its stacks before it runs on.
            self._signal([rank], signal.SIGCONT)
        while any(paths[r].stat().st_size == 0 and self.processes[r].poll() is None for r in asked) \
                and time.monotonic() < now + STACKS_S:
            time.sleep(0.01)
        self._signal(asked, signal.SIGSTOP)

    def _go_on_ending(self, alive: list[int], now: float) -> None:
        stopped = [r for r in alive if _state(self.processes[r].pid) in ("T", "t")]
        self._signal(alive if now > self._kill_at else stopped, signal.SIGKILL)

    def _sample(self, now: float) -> None:
        if now - self._sampled < SAMPLE_S:
            return
        self._sampled = now
        for rank, process in self.processes.items():
            if process.returncode is None:
                rss, data = memory.of_process(process.pid)
                self.found.rss_peak_bytes[rank] = max(rss, self.found.rss_peak_bytes.get(rank, 0))
                self.found.data_peak_bytes[rank] = max(data, self.found.data_peak_bytes.get(rank, 0))
        alive = [r for r, p in self.processes.items() if p.returncode is None]
        free = memory.machine().free_share
        self._low = memory.whose(self.job.run_dir, self._used_before) if free < 2 * LEAST_FREE else None
        if alive and not self.found.shot and self._low is not None and \
                free < (LEAST_FREE if self._low.ours_is_the_cause else LAST_FREE):
            fullest = max(alive, key=lambda rank: self.found.rss_peak_bytes.get(rank, 0))
            self._note_shot(fullest)
            self._signal([fullest], signal.SIGKILL)

    def _note_shot(self, rank: int) -> None:
        self.found.shot.append(rank)
        if self._low is not None and not self._low.ours_is_the_cause:
            self.found.crowd = asdict(self._low)

    # ---- ending

    def ask_to_stop(self) -> None:
        """The ranks may leave cleanly; those that have not started to work, or do not, are ended."""
        if not self._asked:
            self._asked = self.found.stopped = True
            self._leaving = Leaving(self.job.run_dir, self.ranks, stop_s=self.job.stop_s, now=time.monotonic())
            self._signal([r for r, p in self.processes.items() if p.poll() is None], signal.SIGTERM)

    def failed_elsewhere(self) -> None:
        """A process on another node failed: ours have the usual moment."""
        if not self._elsewhere:
            self._elsewhere = True
            self.until = min(self.until, time.monotonic() + self._grace_s)

    def kill(self) -> None:
        """All gone when this returns."""
        self._signal([r for r, p in self.processes.items() if p.poll() is None], signal.SIGKILL)
        for process in self.processes.values():
            process.wait()
        self._finish(time.monotonic())

    def _signal(self, ranks: Sequence[int], number: int) -> None:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                # Each rank leads a group of its own; what it started is in it.
                if number in (signal.SIGKILL, signal.SIGTERM):
                    os.killpg(self.processes[rank].pid, number)
                elif self.processes[rank].returncode is None:
                    os.kill(self.processes[rank].pid, number)

    def _finish(self, now: float) -> None:
        if self.job.per == "node" or self.found.died:
            # Of this node alone: agents of several may share a machine, and the others' ranks may still have to say something.
            end_marked([f"{NODE_MARK}={self._node_mark}"])
        if self._shares is not None:
            self._shares.close()
        if self._port is not None:
            self._port.close()
        self._deaths.close()
        for rank, process in self.processes.items():
            self.found.codes.setdefault(rank, process.returncode)
        self.found.seconds = now - self.started
        self.done = True

    def _end_children(self, pid: int) -> None:
        """What a rank started shares its group and may outlive it. At once, before the number can be given to somebody else."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def result(self) -> NodeResult:
        return self.found


class Leaving:
    """How long ranks that were asked to stop are waited for: while their last step goes on, and while its checkpoint moves.

        leaving = Leaving(run_dir, ranks, stop_s=60, now=time.monotonic())
        leaving.until(time.monotonic())             when to end them, as things stand
    """

    def __init__(self, run_dir: Path, ranks: Sequence[int], *, stop_s: float, now: float):
        self._run_dir, self._ranks, self._stop_s = run_dir, ranks, stop_s
        self._until, self._looked = now + stop_s, now
        self._saves = heartbeat.Changes(run_dir / files.WATCH / heartbeat.MOVES)
        self._saves.changed(now)
        # They agree on leaving after a step, which may be the one that follows.
        self._last_step = max((beat.step for beat in heartbeat.read(run_dir, ranks)), default=0) + 1
        self._beats = self._last_steps()

    def until(self, now: float) -> float:
        if now - self._looked >= min(SAMPLE_S, self._stop_s / 4):
            self._looked = now
            before, self._beats = self._beats, self._last_steps()
            if self._saves.changed(now) or self._beats != before:
                self._until = now + self._stop_s
        return self._until

    def _last_steps(self) -> dict[int, int]:
        """How often each rank has said something, of those that do not train on."""
        return {b.rank: b.beats for b in heartbeat.read(self._run_dir, self._ranks) if b.step <= self._last_step}


def end_leftovers(run_dir: Path) -> list[int]:
    """Kills what still runs of a trial, whoever started it and under whatever session; returns the process ids."""
    return end_marked([f"{MARK}={run_dir}"])


def _filled(text: str, late: Mapping[str, object]) -> str:
    """The words of a command's template that are known only here."""
    for name, value in late.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def _share(cores: Sequence[int], i: int, count: int) -> Sequence[int]:
    """The cores of the i-th of `count` processes; when there are not enough for all, the kernel places them better."""
    each = len(cores) // count
    return cores[i * each : (i + 1) * each]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
