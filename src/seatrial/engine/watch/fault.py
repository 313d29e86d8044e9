"""Faults on purpose, for tests and `benchmarks.faults` only: one rank misbehaves at the start of one step.

    SEATRIAL_FAULT=kind:rank:step python -m seatrial.engine out/run.json        die:1:3 kills rank 1 as step 3 begins
"""
from __future__ import annotations

import os
import resource
import signal
from dataclasses import dataclass, field

import torch

from seatrial.errors import BadInput
from seatrial.fields import nearest

VARIABLE = "SEATRIAL_FAULT"
KINDS = ("stop", "skip", "raise", "nan", "oom", "die")


class InjectedFault(RuntimeError):
    """What `raise` raises: its name tells a test that the failure is the one it asked for."""


@dataclass(kw_only=True)
class Fault:
    kind: str = ""
    """Empty: no fault."""
    rank: int = -1
    step: int = -1
    _due: bool = field(default=False, repr=False)

    @classmethod
    def from_env(cls) -> Fault:
        return cls.parse(os.environ.get(VARIABLE, ""))

    @classmethod
    def parse(cls, text: str) -> Fault:
        if not text:
            return cls()
        kind, *numbers = text.split(":")
        if kind not in KINDS:
            raise BadInput(f"{VARIABLE}={text}: no fault {kind!r}; {nearest(kind, KINDS)}")
        try:
            rank, step = (int(n) for n in numbers)
        except ValueError:
            raise BadInput(f"{VARIABLE}={text}: expected kind:rank:step, for example die:1:3") from None
        return cls(kind=kind, rank=rank, step=step)

    def at(self, rank: int, step: int) -> None:
        """Called at the start of every step."""
        if not self.kind or (rank, step) != (self.rank, self.step):
            return
        if self.kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "raise":
            raise InjectedFault(f"asked to fail on rank {rank} at step {step}")
        elif self.kind == "oom":
            exhaust_memory()
        else:
            self._due = True

    def takes(self, kind: str) -> bool:
        """Whether the fault of this kind is due now; true once."""
        if self._due and self.kind == kind:
            self._due = False
            return True
        return False


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
