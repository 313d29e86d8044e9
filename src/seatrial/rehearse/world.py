"""A world of any size with one process in it: torch's `fake` backend, whose collectives return at once.

    with fake_world(rank=17, world=6144):
        mesh = Mesh(topology, device=device, acts_as="gloo")

The backend lies in torch's testing modules, which make no promises: this is the one place that knows where.
"""
from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import torch.distributed as dist

from seatrial.errors import SeatrialError


@contextlib.contextmanager
def fake_world(*, rank: int, world: int) -> Iterator[None]:
    """The default process group is `fake` inside; a world of one needs none."""
    if dist.is_initialized():
        raise SeatrialError("a rehearsal needs a process of its own: this one is in a process group already")
    if world == 1:
        yield
        return
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as error:
        raise SeatrialError(f"this torch has no fake backend to rehearse with ({error}): 2.11 and 2.13 have it") from None
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        with warnings.catch_warnings():
            # Names that newer versions call old.
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        dist.destroy_process_group()
