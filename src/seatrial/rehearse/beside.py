"""What the planner says of the same layout, to stand beside what was rehearsed.

    forecast = Forecast.of(trial, cluster)
    forecast.sec, forecast.action_s("forward", pp_rank=0), forecast.mem_gib(pp_rank=0)

The planner forecasts the cluster's devices and Megatron's way of keeping memory; a rehearsal runs this device and this engine.
Beside the planner's GiB stand the bytes that this engine's own accounting counts from the shapes (`arith.footprint`).
"""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seatrial.plan import memory, step
from seatrial.plan.configs import Configs, Floats
from seatrial.spec import Cluster, Trial


@dataclass(frozen=True, kw_only=True)
class Forecast:
    sec: float
    lo: float
    hi: float
    parts: dict[str, float]
    """Seconds of an iteration."""
    forward_s: tuple[float, float, float]
    """One micro-batch on the first pipeline rank, one in between, the last; with tensor-parallel traffic and messages."""
    backward_s: tuple[float, float, float]
    compute_s: tuple[float, float, float]
    """Forward and backward of one micro-batch without any communication."""
    by_rank_gib: tuple[float, float, float]
    memory: dict[str, float]
    """GiB by part on the fullest rank."""

    @classmethod
    def of(cls, trial: Trial, cluster: Cluster) -> Forecast:
        configs = Configs.from_trials([replace(trial, cluster=cluster)])
        timed, kept = step.time(configs, cluster), memory.peak(configs, cluster)
        assert timed.stages is not None
        talk = _talk(configs, cluster)
        forward, backward = (_ranks(seconds[:, 0], trial.topology.pp) for seconds in timed.stages.seconds(np.zeros(1, int)))
        return cls(
            sec=float(timed.sec[0]), lo=float(timed.lo[0]), hi=float(timed.hi[0]),
            parts={name: float(values[0]) for name, values in timed.parts.items()},
            forward_s=_three(forward), backward_s=_three(backward), compute_s=_three(forward + backward - talk),
            by_rank_gib=_three(kept.by_rank[:, 0]),
            memory={name: float(values[0]) for name, values in kept.parts.items()},
        )  # fmt: skip


def _ranks(stages: Floats, pp: int) -> Floats:
    """[3]: the first rank, the slowest in between and the last of seconds by stage; 0 where there is no such rank."""
    ranks = stages.reshape(-1, pp).sum(axis=0)
    return np.array([ranks[0], ranks[1:-1].max(initial=0.0), ranks[-1] if pp > 1 else 0.0])


def _three(values: Floats) -> tuple[float, float, float]:
    first, middle, last = (float(v) for v in values)
    return first, middle, last


def _talk(configs: Configs, cluster: Cluster) -> Floats:
    """[3]: seconds of one micro-batch that are communication."""
    parts = step.measure(configs, cluster)
    talking: Floats = np.zeros(3)
    for side in step._sides(parts, step._scales(configs, step.COLD)):
        talking = talking + side["tensor"][:, 0] + side["p2p"][:, 0]
    return talking


def kind(pp_rank: int, pp: int) -> int:
    """Which of the planner's three ranks this one is."""
    return step.FIRST if pp_rank == 0 else step.LAST if pp_rank == pp - 1 else step.MIDDLE
