"""The ranks that probe together: they start each figure at the same time and agree on what became of it.

    crew = Crew(place, device)
    crew.share(1.0, 2.0)            [[1.0, 2.0], …] by rank; everybody waits for everybody

All ranks measure the same kernel at once, since that is how a machine is used: memory, caches and power are shared.
"""
from __future__ import annotations

import signal
import sys
from types import FrameType

import torch
import torch.distributed as dist

from seatrial.engine.rendezvous import RankInfo

GOOD, NO_MEMORY, FAILED = 0.0, 1.0, 2.0
WHY = {NO_MEMORY: "out of memory", FAILED: "failed"}


class Crew:
    def __init__(self, place: RankInfo, device: torch.device):
        self.place, self.device = place, device
        self.asked_to_stop = False

    @property
    def leads(self) -> bool:
        return self.place.rank == 0

    @property
    def nodes(self) -> int:
        return -(-self.place.world // self.place.local_world)

    def share(self, *numbers: float) -> list[list[float]]:
        if self.place.world == 1:
            return [list(numbers)]
        mine = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        every = [torch.empty_like(mine) for _ in range(self.place.world)]
        dist.all_gather(every, mine)
        return [one.tolist() for one in every]

    def worst(self, status: float) -> float:
        """What the ranks agree on: the largest."""
        return max(one[0] for one in self.share(status))

    def stop_when_asked(self) -> None:
        """The first signal ends the probe after the figure at hand; a second one ends the process."""

        def note(number: int, _frame: FrameType | None) -> None:
            if self.asked_to_stop:
                raise KeyboardInterrupt
            self.asked_to_stop = True
            if self.leads:
                print("stopping after this figure; once more to leave at once", file=sys.stderr, flush=True)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, note)


def status_of(error: BaseException) -> float:
    """Out of memory, as a GPU or a CPU's allocator says it, or any other failure."""
    text = str(error).lower()
    full = isinstance(error, torch.OutOfMemoryError | MemoryError) or "out of memory" in text or "can't allocate memory" in text
    return NO_MEMORY if full else FAILED
