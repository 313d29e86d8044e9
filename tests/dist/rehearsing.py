"""Real ranks to hold rehearsals against: what a tracker of storages sees in each, and how long their steps take."""
from __future__ import annotations

import statistics
import time
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from seatrial.engine.core.mesh import Mesh, Pool
from seatrial.engine.core.pipeline import Messages
from seatrial.engine.core.step import Engine
from seatrial.engine.io.data import Batches
from seatrial.engine.rendezvous import RankInfo
from seatrial.engine.watch.tracker import tracker
from seatrial.probe import collectives
from seatrial.probe.collectives import InterleavedGemm, Ranks
from seatrial.probe.timing import Sample
from seatrial.recipe import Recipe
from seatrial.rehearse.load import pairs_of
from seatrial.schedule import Kind
from seatrial.spec import Trial


class Seen(NamedTuple):
    """What one rank of a trial held."""

    pp: int
    peak: int
    """Bytes at the fullest moment."""
    parts: dict[str, int]
    """Each part's own peak."""
    load: tuple[float, float] | None
    """What its experts were sent over an even share: the mean of all passes, and the most of those that a backward pass begins
    with."""


class _Sent(dist.Work):
    """A message that has left once it is waited for, as gloo has it."""

    def is_completed(self) -> bool:
        return False

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True


def _send_copies(messages: Messages) -> list[tuple[Tensor, dist.Work]]:
    """Copies that are not counted are sent: gloo's threads hold a message for some time after it was waited for. The list keeps
    the copies."""
    leaving: list[tuple[Tensor, dist.Work]] = []
    post_send = messages.post_send

    def send_copy(result: Tensor, kind: Kind, target: int) -> dist.Work:
        with _disable_current_modes():
            copy = result.clone()
            leaving.append((copy, post_send(copy, kind, target)))
        return _Sent()

    messages.post_send = send_copy  # type: ignore[method-assign]
    return leaving


def fullest(trials: dict[str, Trial], recipe: Recipe) -> dict[str, Seen]:
    """Of each trial's second step in this process, when gradients that stay are there; what else threads decide (when a
    gradient has been reduced) is counted by the least of several engines."""
    pool: Pool = {}
    found: dict[str, Seen] = {}
    for label, trial in trials.items():
        mesh = Mesh(trial.topology, device=torch.device("cpu"), pool=pool)
        for _ in range(1 if trial.topology.world == 1 else 2 if trial.model.mixture else 3):
            engine = Engine(trial, recipe, mesh)
            batches = Batches(recipe, trial.model, recipe.seed)
            engine.step(1, first_sample=0, batches=batches)
            leaving = _send_copies(engine.pipeline.messages)
            with tracker(engine) as live:
                engine.step(2, first_sample=0, batches=batches)
            for _, work in leaving:
                work.wait()
            parts, load = live.by_part(), None
            if experts := engine.shared.experts:
                even, rows = pairs_of(trial) * trial.topology.expert_tp, experts.received
                load = statistics.mean(rows) / even, max(rows[:: len(experts.layers)]) / even
            _, peak, least, _ = found.get(label, (0, live.peak_bytes, parts, None))
            found[label] = Seen(mesh.place.pp, min(peak, live.peak_bytes), {p: min(parts[p], least[p]) for p in parts}, load)
        mesh.close()
    return found


def step_s(trials: dict[str, Trial], recipe: Recipe, repeats: int) -> dict[str, float]:
    """Median seconds of each trial's steps, as rank 0 sees them."""
    pool: Pool = {}
    found = {}
    for label, trial in trials.items():
        mesh = Mesh(trial.topology, device=torch.device("cpu"), pool=pool)
        engine = Engine(trial, recipe, mesh)
        batches = Batches(recipe, trial.model, recipe.seed)
        engine.step(1, first_sample=0, batches=batches)
        taken = []
        for number in range(2, 2 + repeats):
            dist.barrier()
            began = time.perf_counter()
            engine.step(number, first_sample=0, batches=batches)
            taken.append(time.perf_counter() - began)
        found[label] = statistics.median(taken)
        mesh.close()
    return found


SIZES = (64, 2**14, 2**17, 2**20, 2**22, 2**24)


def curves() -> dict[str, list[tuple[int, float]]]:
    """Seconds by size of collectives over all ranks, as the probe measures it."""
    world = dist.get_world_size()
    rank = dist.get_rank()
    ranks = Ranks(RankInfo(rank=rank, world=world, local_rank=rank, local_world=world), torch.device("cpu"))
    found: dict[str, list[tuple[int, float]]] = {}
    gemm = InterleavedGemm.on(ranks)
    for what, sample in collectives.measure(ranks, collectives.Kind(world, 1), collectives.OPS[:3], SIZES, 0.1, gemm):
        assert isinstance(sample, Sample), what
        found.setdefault(what["op"], []).append((what["bytes"], sample.s))
    messages = [(size, collectives.message(ranks, 1, size, target_s=0.1)) for size in SIZES]
    return found | {"message": [(size, sample.s) for size, sample in messages if isinstance(sample, Sample)]}
