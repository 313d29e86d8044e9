"""Layers for each pipeline stage so that the longest stage is the shortest: what `stage_layers = "auto"` stands for.

    balanced(trial)                     (16, 16, 16, 13): 61 layers where the loss takes as long as three of them
    resolved(trial)                     the trial with that list in it, before its id is made
    better(configs, cluster, k, …)      for many layouts at once, each with what it would take; what `plan` asks

A stage takes its layers, its messages, on the first stage the embedding and on the last the loss, in seconds of the engine's
forecast on the cluster; where no cluster is known, on a machine of which only the ratio of operations to bytes counts. Where
the fullest rank would not fit, no rank gets more layers than its device holds. A split that the forecast does not find faster
than the default one is not taken.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seatrial import rules
from seatrial.engines.model import model_of
from seatrial.plan import step
from seatrial.plan.configs import SPLITS, Configs, Floats, Ints, over_ranks, rank_layers
from seatrial.plan.held import Held
from seatrial.plan.odds import EVEN, LIKELY, UNLIKELY, Headroom, expected
from seatrial.spec import Cluster, Device, Link, Trial, stage_split

if TYPE_CHECKING:
    from seatrial.plan.calibrate import Calibration

SAME = 1e-9
"""Two forecasts that differ by less are equal: the default split stays."""

MOST_STAGES = 256
"""Whose schedule is timed in a fraction of a second; nobody has more."""


def shared_out(layers: int, own: Sequence[float], each: float, pp: int = 0, most: Sequence[int] | None = None
               ) -> tuple[int, ...] | None:
    """Layers of each stage; `own` is what a stage takes beside its layers, `each` what a layer takes, `most` the layers that
    each of the `pp` ranks holds (stages are dealt round them). None where the ranks cannot hold all.

    One layer after the other goes to the stage that is the shortest with it. That is exact: let T be the least possible longest
    stage, and look at the moment before a stage would first exceed it. Every stage then either exceeds T with one layer more,
    or its rank is full: so each rank has as many layers as any split within T can give it, and all of them together have as
    many as the best split places, which is all. No layer is left to exceed T with. Among equals the last stage takes the
    layer: it holds the fewest micro-batches.
    """
    ranks = pp or len(own)
    room = list(most) if most is not None else [layers] * ranks
    split = [0] * len(own)
    heap = [(alone + each, -stage) for stage, alone in enumerate(own)]
    heapq.heapify(heap)
    for _ in range(layers):
        while heap and not room[-heap[0][1] % ranks]:
            heapq.heappop(heap)
        if not heap:
            return None
        stage = -heap[0][1]
        split[stage] += 1
        room[stage % ranks] -= 1
        heapq.heapreplace(heap, (own[stage] + (split[stage] + 1) * each, -stage))
    return tuple(split)


def shared_out_by_rank(layers: int, own: Sequence[float], each: float, pp: int, most: Sequence[int] | None = None
                       ) -> tuple[int, ...] | None:
    """The same with virtual stages, where the busiest rank is to be the least busy, and then its longest stage short."""
    ranks = shared_out(layers, [sum(own[rank::pp]) for rank in range(pp)], each, pp, most)
    if ranks is None:
        return None
    split = [0] * len(own)
    for rank, count in enumerate(ranks):
        split[rank::pp] = shared_out(count, own[rank::pp], each) or ()
    return tuple(split)


class _Costs(NamedTuple):
    """Seconds of one micro-batch, there and back."""

    layers: int
    pp: int
    each: float
    own: tuple[float, ...]

    def splits(self, most: Sequence[int] | None = None) -> Iterator[tuple[int, ...]]:
        """Worth a look. With virtual stages neither the longest stage nor the busiest rank alone decides."""
        ways = (shared_out, shared_out_by_rank) if len(self.own) > self.pp else (shared_out,)
        return (split for way in ways if (split := way(self.layers, self.own, self.each, self.pp, most)) is not None)


def _costs(c: Configs, stages: step.Stages) -> Iterator[_Costs]:
    each, embedding, head, routed = (figure.sum(axis=0) for figure in (stages.layer, stages.embedding, stages.head,
                                                                       stages.expert_layer))
    # Layers with experts take longer: as many as there are on average beyond the dense ones at the start, which are taken for
    # the first stage's.
    mixed = c.experts > 0
    embedding = embedding + np.where(mixed, c.dense_layers * (each - routed) / c.expert_every, 0.0)
    each = np.where(mixed, each + (routed - each) / c.expert_every, each)
    for i in range(len(c)):
        pp, count = int(c.pp[i]), int(c.pp[i] * c.vp[i])
        own = [2 * 2.0 * float(stages.message[i])] * count
        own[0] = own[0] / 2 + float(embedding[i])
        own[-1] = own[-1] / (2 if count > 1 else 1) + float(head[i])
        yield _Costs(int(c.layers[i]), pp, float(each[i]), tuple(own))


def better(c: Configs, cluster: Cluster, k: step.Coefficients = step.COLD) -> tuple[Ints, Ints]:
    """(Row, split code) of layouts whose longest stage can be shorter than with the split they have; what is alike is solved
    once. Whether the whole iteration is, and whether it fits, the forecast says."""
    rows: list[int] = []
    codes: list[int] = []
    solved: dict[_Costs, list[tuple[int, ...]]] = {}
    for i, costs in enumerate(_costs(c, step.stages(c, cluster, k))):
        if costs.pp == 1:
            continue
        if costs not in solved:
            solved[costs] = list(dict.fromkeys(costs.splits()))
        for split in solved[costs]:
            if split != SPLITS[c.split[i]]:
                rows.append(i)
                codes.append(rank_layers(split, costs.pp)["split"])
    return np.array(rows, dtype=np.int64), np.array(codes, dtype=np.int64)


def with_splits(c: Configs, rows: Ints, codes: Ints) -> Configs:
    """Those rows, each with another split."""
    taken = c.take(rows)
    return replace(taken, **over_ranks(codes, taken.pp))  # type: ignore[arg-type]


def resolved(trial: Trial) -> Trial:
    """Stages for which there is no layer, nor embedding or loss, are left to the rule that refuses them."""
    if trial.topology.pp * trial.topology.vp > trial.model.layers + 2:
        return trial
    return replace(trial, topology=replace(trial.topology, stage_layers=balanced(trial)))


def balanced(trial: Trial, fit: Calibration | None = None, headroom: Headroom = Headroom()) -> tuple[int, ...]:
    """The default split where the engine takes no other, where a rule is broken anyway, and beyond MOST_STAGES."""
    t, k = trial.topology, step.COLD if fit is None else fit.coefficients()
    default = stage_split(trial.model.layers, t.pp * t.vp)
    plain = replace(trial, topology=replace(t, stage_layers=None))
    broken = [found for found in rules.violations(plain) if found.level == "error" and found.code != "layers-divisible"]
    if not 1 < t.pp <= t.pp * t.vp <= MOST_STAGES or broken or model_of(trial.engine).uneven != "any":
        return default
    here = trial.cluster or nominal(trial)
    one = Configs.from_trials([plain], here)
    costs = next(_costs(one, step.stages(one, here, k)))
    tried = list(dict.fromkeys([default, *costs.splits()]))
    if trial.cluster is None:
        return _fastest(one, here, k, tried)
    held = Held.of(_each(one, tried), here, fit, headroom)
    for odds in (LIKELY, EVEN, UNLIKELY):
        # Where none fits, ranks get no more than they hold; with odds that are worse where there is nothing better.
        if held.odds.max() >= odds:
            break
        tried += [split for split in costs.splits(_room(one, here, fit, headroom, odds)) if split not in tried]
        held = Held.of(_each(one, tried), here, fit, headroom)
    return _fastest(one, here, k, tried, held.odds)


def _fastest(one: Configs, here: Cluster, k: step.Coefficients, tried: list[tuple[int, ...]], odds: Floats | None = None
             ) -> tuple[int, ...]:
    sec = step.time(_each(one, tried), here, k).sec
    key = sec if odds is None else expected(sec, odds)
    best = int(key.argmin())
    return tried[best if key[best] < key[0] * (1 - SAME) else 0]


def _each(one: Configs, splits: Sequence[tuple[int, ...]]) -> Configs:
    codes = np.array([rank_layers(split, int(one.pp[0]))["split"] for split in splits], dtype=np.int64)
    return with_splits(one, np.zeros(len(codes), dtype=np.int64), codes)


def _room(one: Configs, here: Cluster, fit: Calibration | None, headroom: Headroom, odds: float) -> list[int]:
    """The most layers that each rank holds with these odds, found by halving: more layers never need less. A rank is asked
    for with all others empty; its layers are dealt over its virtual stages."""
    pp, vp, layers = int(one.pp[0]), int(one.vp[0]), int(one.layers[0])
    least, most = np.zeros(pp, dtype=np.int64), np.full(pp, layers, dtype=np.int64)
    while (least < most).any():
        middle = (least + most + 1) // 2
        splits = []
        for rank, count in enumerate(middle.tolist()):
            split = [0] * (pp * vp)
            split[rank::pp] = stage_split(count, vp)
            splits.append(tuple(split))
        fits = Held.of(_each(one, splits), here, fit, headroom).odds >= odds
        least, most = np.where(fits, middle, least), np.where(fits, most, middle - 1)
    return [int(count) for count in least]


def nominal(trial: Trial) -> Cluster:
    """A core of a server's CPU: two AVX-512 units at 3.8 GHz (243 GFLOP/s) and its share of the memory, 12 GB/s, which gives
    the loss and the embedding in units of layers as they were measured on one. They follow from the operations and bytes of
    the model, and hardly from the machine once layers are large."""
    link = Link(bandwidth_gb_s=10, latency_us=1)
    device = Device(name="any machine", kind="cpu", peak_tflops={trial.topology.precision: 0.243, "fp32": 0.243},
                    memory_gib=1024, memory_gb_s=12, fused_attention=True)
    return Cluster(name="any machine", nodes=1, procs_per_node=trial.topology.world, device=device, intra=link, inter=link)
