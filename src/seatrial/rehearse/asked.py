"""What is asked of a rehearsal, which ranks stand for all, and what comes out.

    options = RehearsalOptions(all_stages=True)
    distinct(trial, options)                    ranks that hold and do the same stand once

A rehearsal of our engine is in `run.py`, of somebody else's in `theirs.py`.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from seatrial.errors import BadInput
from seatrial.rehearse.iteration import Iteration, RankTimes
from seatrial.rehearse.load import BALANCED, Load
from seatrial.rehearse.rank import Memory
from seatrial.schedule import peak_activations, schedule
from seatrial.spec import Cluster, Place, Trial, experts_of_stages, stages_of


@dataclass(frozen=True, kw_only=True)
class RehearsalOptions:
    rank: int = 0
    """Which process of the layout."""
    all_stages: bool = False
    memory_only: bool = False
    repeats: int = 3
    load: Load = BALANCED
    """What experts receive."""

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise BadInput(f"--repeats {self.repeats}: each action is timed at least once")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A rank that stands for others: they hold and do the same."""

    rank: int
    pp_rank: int
    alike: tuple[int, ...]
    """Pipeline ranks that this one stands for."""
    layers: tuple[int, ...]
    """Of each of its virtual stages …"""
    expert_layers: tuple[int, ...]
    """… and those of them that have experts."""
    has_embedding: bool
    has_head: bool
    in_flight: int

    @property
    def work(self) -> tuple[Any, ...]:
        """Ranks that have this in common take the same time."""
        return self.layers, self.expert_layers, self.has_embedding, self.has_head


@dataclass(frozen=True, kw_only=True)
class Collective:
    name: str
    ranks: tuple[int, ...]
    size_bytes: int
    """Of the whole result, or of what is summed."""
    phase: str
    seconds: float
    """That the network takes, hidden or not."""


@dataclass(frozen=True, kw_only=True)
class Rank(Candidate):
    """One that was rehearsed."""

    times: RankTimes | None
    memory: Memory
    collectives: tuple[Collective, ...] = ()
    """Of one step in their order; of engines that are not ours."""


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    trial: Trial
    device: str
    """What it ran on, in words."""
    device_type: str
    threads: int
    ranks: tuple[Rank, ...]
    iteration: Iteration | None
    """None where memory alone was options for, or had to be."""
    assumes_alike: bool
    """Whether stages that were not rehearsed are taken to be like the one that was."""
    cluster: Cluster | None
    send_s: float
    load: Load
    notes: tuple[str, ...]


def stage_rank(trial: Trial, stage: str) -> int:
    """The first process of the first, a middle or the last stage."""
    t = trial.topology
    places = {"first": 0, "middle": t.pp // 2, "last": t.pp - 1}
    if stage not in places:
        raise BadInput(f"--stage {stage!r}: use first, middle or last")
    if stage == "middle" and t.pp < 3:
        raise BadInput(f"--stage middle: PP {t.pp} has none; first and last are there")
    return t.rank_at(Place(pp=places[stage]))


def distinct(trial: Trial, options: RehearsalOptions) -> list[Candidate]:
    t = trial.topology
    split, mixed = stages_of(trial.model, t), experts_of_stages(trial.model, t)
    groups: dict[tuple[Any, ...], list[int]] = {}
    wanted = range(t.pp) if options.all_stages else [t.place(options.rank).pp]
    for r in wanted:
        peak = peak_activations(schedule(t.schedule, pp=t.pp, rank=r, microbatches=trial.microbatches, virtual=t.vp))
        groups.setdefault((split[r :: t.pp], mixed[r :: t.pp], r == 0, r == t.pp - 1, peak), []).append(r)
    first_of = {r: t.rank_at(Place(pp=r)) for r in wanted}
    return [Candidate(rank=first_of[group[0]] if options.all_stages else options.rank, pp_rank=group[0], alike=tuple(group),
                      layers=layers, expert_layers=experts, has_embedding=first, has_head=last, in_flight=peak.activations)
            for (layers, experts, first, last, peak), group in groups.items()]


def words(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return "CPU"
