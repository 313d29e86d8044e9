"""Real ranks to hold rehearsals against: what a tracker of storages sees in each, and how long their steps take."""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from seatrial.engine.data import Batches
from seatrial.engine.loop import tracker
from seatrial.engine.mesh import Mesh, Pool
from seatrial.engine.step import Engine
from seatrial.spec import Trial
from seatrial.training import Training

Seen = tuple[int, int, dict[str, int]]
"""Pipeline rank, bytes at the fullest moment, and each part's own peak."""


def fullest(trials: dict[str, Trial], training: Training) -> dict[str, Seen]:
    """Of each trial's first step in this process; a message that is still leaving is counted or not, as the threads have it, so
    the least of three engines; alone, nothing leaves."""
    pool: Pool = {}
    found: dict[str, Seen] = {}
    for label, trial in trials.items():
        mesh = Mesh(trial.topology, device=torch.device("cpu"), pool=pool)
        for _ in range(3 if trial.topology.world > 1 else 1):
            engine = Engine(trial, training, mesh)
            with tracker(engine) as live:
                engine.step(1, first_sample=0, batches=Batches(training, trial.model, training.seed))
            parts = live.by_part()
            _, peak, least = found.get(label, (0, live.peak_bytes, parts))
            found[label] = mesh.pp_rank, min(peak, live.peak_bytes), {name: min(parts[name], least[name]) for name in parts}
        mesh.close()
    return found


def step_s(trials: dict[str, Trial], training: Training, repeats: int) -> dict[str, float]:
    """Median seconds of each trial's steps, as rank 0 sees them."""
    pool: Pool = {}
    found = {}
    for label, trial in trials.items():
        mesh = Mesh(trial.topology, device=torch.device("cpu"), pool=pool)
        engine = Engine(trial, training, mesh)
        batches = Batches(training, trial.model, training.seed)
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


def curves() -> dict[str, list[tuple[int, float]]]:
    """Seconds by size of what two ranks say to each other, as rank 0 sees it."""
    found: dict[str, list[tuple[int, float]]] = {"all_reduce": [], "all_gather": [], "message": []}
    peer = 1 - dist.get_rank()
    for size in (64, 2**14, 2**17, 2**20, 2**22, 2**24):
        x, out = torch.zeros(size // 4), torch.zeros(size // 4)
        half = torch.zeros(size // 8)

        def message(x: torch.Tensor = x, out: torch.Tensor = out) -> None:
            # There and back.
            for sender in (0, 1):
                if dist.get_rank() == sender:
                    dist.send(x, peer)
                else:
                    dist.recv(out, peer)

        calls = {
            "all_reduce": lambda x=x: dist.all_reduce(x),
            "all_gather": lambda out=out, half=half: dist.all_gather(list(out.chunk(2)), half),
            "message": message,
        }
        for name, call in calls.items():
            found[name].append((size, among_products(call) if name != "message" else after_a_barrier(call) / 2))
    found["reduce_scatter"] = found["all_reduce"]  # gloo has no other
    return found


def after_a_barrier(call: Callable[[], None]) -> float:
    taken = []
    for _ in range(9):
        dist.barrier()
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def among_products(call: Callable[[], None]) -> float:
    """What a collective adds to the work around it, as in a block of a model: ranks that computed a few milliseconds come to it
    one after the other, with cold caches, and its threads have to be woken."""
    x, weight = torch.ones(512, 256), torch.ones(256, 1024)

    def work() -> None:
        torch.nn.functional.gelu(x @ weight)

    alone, both = [], []
    for _ in range(60):
        began = time.perf_counter()
        work()
        alone.append(time.perf_counter() - began)
        began = time.perf_counter()
        work()
        call()
        both.append(time.perf_counter() - began)
    return max(statistics.median(both) - statistics.median(alone), 1e-6)
