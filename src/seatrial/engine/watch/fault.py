"""Faults on purpose, for tests and `benchmarks.faults` only: one rank misbehaves at one moment.

    SEATRIAL_FAULT=kind:rank:step[:phase[:argument]] python -m seatrial.engine out/run.json
    die:1:3                 kills rank 1 as step 3 begins
    exit:0:2:backward:7     rank 0 leaves with code 7 in the first backward pass of step 2
    slow:2:1:forward:0.2    from step 1 on each forward pass of rank 2 takes 0.2 s longer

A phase is one that the heartbeat names, or `data` (a micro-batch is read) or `save` (a chunk of a checkpoint is written).
SEATRIAL_FAULT_AT names a file for the moment at which it struck.
"""
from __future__ import annotations

import itertools
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from seatrial.errors import BadInput
from seatrial.fields import nearest

if TYPE_CHECKING:
    from seatrial.engine.io.data import Batches

VARIABLE = "SEATRIAL_FAULT"
MOMENT = "SEATRIAL_FAULT_AT"
SIGNALS = {"stop": signal.SIGSTOP, "die": signal.SIGKILL, "segv": signal.SIGSEGV, "abrt": signal.SIGABRT,
           "term": signal.SIGTERM}
LASTING = ("slow", "leak")
"""From their step on, each time that the phase comes."""
KINDS = (*SIGNALS, *LASTING, "exit", "raise", "oom", "spin", "busy", "sleep", "skip", "nan", "double", "shape", "message")
PHASES = ("join", "build", "load", "meet", "start", "forward", "backward", "weight", "reduce", "optimizer", "checkpoint",
          "report", "evaluation", "finish", "data", "save")
KEPT: list[torch.Tensor] = []
"""What `leak` does not give back."""


class InjectedFault(RuntimeError):
    """What `raise` raises: its name tells a test that the failure is the one it asked for."""


@dataclass(kw_only=True)
class Fault:
    kind: str = ""
    """Empty: no fault."""
    rank: int = -1
    step: int = -1
    phase: str = "start"
    argument: float = 0.0
    """The code of `exit`; seconds of `slow`; MiB of `leak`."""
    _due: bool = field(default=False, repr=False)
    _struck: bool = field(default=False, repr=False)
    _now: int = field(default=0, repr=False)

    @classmethod
    def from_env(cls) -> Fault:
        return cls.parse(os.environ.get(VARIABLE, ""))

    @classmethod
    def parse(cls, text: str) -> Fault:
        if not text:
            return cls()
        kind, *rest = text.split(":")
        if kind not in KINDS:
            raise BadInput(f"{VARIABLE}={text}: no fault {kind!r}; {nearest(kind, KINDS)}")
        try:
            rank, step, phase, argument = [*rest, *("start", "0")[len(rest) - 2 :]] if len(rest) >= 2 else rest
            found = cls(kind=kind, rank=int(rank), step=int(step), phase=phase, argument=float(argument))
        except ValueError:
            raise BadInput(f"{VARIABLE}={text}: expected kind:rank:step[:phase[:argument]], for example die:1:3") from None
        if phase not in PHASES:
            raise BadInput(f"{VARIABLE}={text}: no phase {phase!r}; {nearest(phase, PHASES)}")
        return found

    def at(self, rank: int, step: int, phase: str = "start") -> None:
        """Called at every beat of the heart."""
        self._now = step
        if self.kind and rank == self.rank and phase == self.phase:
            self._come()

    def arm(self, rank: int, batches: Batches) -> None:
        """Puts the fault where no heart beats: into the reading of data, or the writing of a checkpoint's chunks."""
        if self.kind and rank == self.rank and self.phase == "data":
            batches.source.samples = self._before(batches.source.samples)  # type: ignore[method-assign]
        if self.kind and rank == self.rank and self.phase == "save":
            torch.save = self._before(torch.save)

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def struck(*values: Any, **named: Any) -> Any:
            self._come()
            return call(*values, **named)

        return struck

    def _come(self) -> None:
        if self.kind in LASTING and self._now >= self.step or not self._struck and self._now == self.step:
            if not self._struck and os.environ.get(MOMENT):
                with open(os.environ[MOMENT], "w") as file:
                    file.write(repr(time.time()))
            self._struck = True
            self._strike()

    def _strike(self) -> None:
        if self.kind in SIGNALS:
            os.kill(os.getpid(), SIGNALS[self.kind])
        elif self.kind == "exit":
            os._exit(int(self.argument))
        elif self.kind == "raise":
            raise InjectedFault(f"asked to fail on rank {self.rank} at step {self.step}")
        elif self.kind == "oom":
            exhaust_memory()
        elif self.kind == "leak":
            KEPT.append(torch.ones(int(self.argument * 2**18)))
        elif self.kind == "slow":
            time.sleep(self.argument)
        elif self.kind == "sleep":
            time.sleep(1e6)
        elif self.kind == "spin":
            while True:
                pass
        elif self.kind == "busy":
            sum(itertools.repeat(0))  # never gives up the interpreter
        elif self.kind in ("double", "shape", "message"):
            _astray(self.kind)
        else:
            self._due = True

    def takes(self, kind: str) -> bool:
        """Whether the fault of this kind is due now; true once."""
        if self._due and self.kind == kind:
            self._due = False
            return True
        return False


def _astray(kind: str) -> None:
    """The next sum is entered twice, or with a tensor of another size; or the next message to a stage has another size."""
    name = "isend" if kind == "message" else "all_reduce"
    right = getattr(dist, name)

    def wrong(x: torch.Tensor, *values: Any, **named: Any) -> Any:
        setattr(dist, name, right)
        if kind == "double":
            right(x.clone(), *values, **{**named, "async_op": False})
            return right(x, *values, **named)
        return right(torch.cat((x.flatten(), x.flatten())), *values, **named)

    setattr(dist, name, wrong)


def exhaust_memory() -> None:
    """Allocates until the allocator refuses, without harming the rest of the machine."""
    kept = []
    if torch.cuda.is_available():
        while True:
            kept.append(torch.empty(2**30, dtype=torch.uint8, device="cuda"))
    # A CPU node would swap or be shot by the kernel; a limit on the address space makes the same refusal come at once.
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**28, hard))
    try:
        while True:
            kept.append(torch.empty(2**26, dtype=torch.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
