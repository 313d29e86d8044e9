"""Experts in the planner's columns: which layers have them, what their ranks receive, and by how much the fullest has more.

    depths(c)                   [3, n]: layers with experts on the first pipeline rank, the fullest in between, the last
    share(c)                    of all (token, choice) pairs those that experts have room for
    rows(c)                     pairs that a rank computes in one layer and micro-batch, at even load
    excess(c)                   by how much the fullest rank of a layer has more: 0 where balance is forced
    kept_excess(c, layers)      the same over layers that one rank keeps at once, and its standard deviation

Where balance is natural an expert's load differs from its share by SKEW, whatever it is asked to be, and by chance: tokens of
one document choose alike, so that ALIKE of them count as one. A rank's experts even each other out, a maximum over ranks does
not. A capacity takes off what an expert has above it.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from seatrial.plan import network
from seatrial.plan.configs import CHOICES, SPLITS, Configs, Floats, Ints
from seatrial.plan.kernels import SLOWEST, Machine, copy_s
from seatrial.plan.odds import normal
from seatrial.spec import Cluster

FORCED = CHOICES["moe_balance"].index("forced")
ALLGATHER, FLEX = (CHOICES["moe_dispatcher"].index(name) for name in ("allgather", "flex"))

SKEW = 0.2
"""Standard deviation of an expert's load over its even share once training runs: with an auxiliary loss the fullest of 64
experts has some 1.5 to 1.7 times its share (Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy", 2024: their largest
violation); without one, by a bias, the same over a batch and hardly any over a run."""

ALIKE = 16
"""Tokens of a document that choose as one."""


def depths(c: Configs) -> Floats:
    """Of ranks between the first and the last: of one that has the most layers, and of those the most with experts."""
    # Numbers of few digits each, far below 2^63.
    packed = ((c.split * 2_000_003 + c.pp) * 10_007 + c.dense_layers) * 1009 + c.expert_every
    _, first, back = np.unique(np.where(c.experts > 0, packed, -1), return_index=True, return_inverse=True)
    found = np.zeros((3, len(first)))
    for i, at in enumerate(first.tolist()):
        if c.experts[at]:
            layers, pp = np.array(SPLITS[c.split[at]]), int(c.pp[at])
            routed = _within(layers, c.dense_layers[at], c.expert_every[at])
            ranks = [(int(layers[rank::pp].sum()), int(routed[rank::pp].sum())) for rank in range(pp)]
            found[:, i] = ranks[0][1], max(ranks[1:-1], default=(0, 0))[1], ranks[-1][1]
    return found[:, back.reshape(-1)]


def of_stages(c: Configs, layers: Floats) -> Floats:
    """[stages, n]: those of each stage's layers that have experts."""
    return np.where(c.experts > 0, _within(layers, c.dense_layers, c.expert_every), 0.0)


def _within(layers: Any, dense: Any, every: Any) -> Any:
    """Layers are numbered from 1 here: the multiples of `every` beyond the first `dense` (`Model.has_experts`)."""
    ends = np.cumsum(layers, axis=0)
    return np.maximum(ends // every - np.maximum(ends - layers, dense) // every, 0)


def own_tokens(c: Configs) -> Floats:
    """Tokens of a micro-batch that one rank sends to experts: ranks of a stage have other ones each."""
    return c.tokens / c.tp


def rows(c: Configs) -> Floats:
    return own_tokens(c) * c.chosen * c.expert_tp * share(c)


def share(c: Configs) -> Floats:
    """1 without a capacity; else the mean of a normal load that ends there, counted over the tokens that meet on a rank."""
    if not c.capacity_permille.any():
        return np.ones(len(c))
    spread, room = _expert_deviation(c), c.capacity_permille / 1000 - 1
    dropped = spread * np.exp(-((room / spread) ** 2) / 2) / math.sqrt(2 * math.pi) - room * normal(-room / spread)
    return np.where(c.capacity_permille > 0, 1 - dropped, 1.0)


def held(c: Configs) -> Ints:
    return np.maximum(1, c.experts // c.ep)


def excess(c: Configs) -> Floats:
    return _capped(c, _most(c.ep) * _deviation(c))


def kept_excess(c: Configs, layers: Floats) -> tuple[Floats, Floats]:
    """Layers differ from each other, so that a rank which is full in one is not in the next; micro-batches hardly do."""
    deviation = _deviation(c) / np.sqrt(np.maximum(layers, 1.0))
    most = _capped(c, _most(c.ep) * deviation)
    return most, np.where(c.capacity_permille > 0, np.minimum(deviation, most), deviation)


def _capped(c: Configs, more: Floats) -> Floats:
    """Above the mean of what is computed."""
    if not c.capacity_permille.any():
        return more
    most = np.minimum(1 + more, c.capacity_permille / 1000)
    return np.where(c.capacity_permille > 0, np.maximum(most / share(c) - 1, 0.0), more)


def _deviation(c: Configs) -> Floats:
    """Standard deviation of a rank's load over its even share."""
    even = (c.ep == 1) | (c.moe_balance == FORCED)
    return np.where(even, 0.0, _expert_deviation(c) / np.sqrt(held(c)))


def _expert_deviation(c: Configs) -> Floats:
    """… and of an expert's."""
    tokens = own_tokens(c) * c.expert_ranks
    chance = ALIKE * c.experts / np.maximum(c.chosen * tokens, 1.0)
    return np.where(c.moe_balance == FORCED, 1e-9, np.sqrt(SKEW**2 + chance))


def _most(ranks: Ints) -> Floats:
    """By how many standard deviations the fullest of so many lies above the mean."""
    return np.interp(np.log2(np.maximum(ranks, 1)), range(len(SLOWEST)), SLOWEST)


def dispatch_s(c: Configs, cluster: Cluster, machine: Machine) -> Floats:
    """There or back, one micro-batch: to every rank that shares the chosen expert, to every node that has one, or of all
    tokens to all ranks."""
    group, size = network.expert_group(c), own_tokens(c) * c.hidden * machine.element_bytes
    pairs = size * c.chosen * c.expert_tp * share(c)
    once = np.where(c.moe_dispatcher == FLEX, _nodes_share(c, cluster, group), 1.0)
    dealt = network.all_to_all_s(cluster, group, pairs, crossing=once)
    gathers = c.moe_dispatcher == ALLGATHER
    return np.where(gathers, network.gather_s(cluster, group, size * c.expert_ranks), dealt) if gathers.any() else dealt


def _nodes_share(c: Configs, cluster: Cluster, group: network.Group) -> Floats:
    """Nodes that have an expert of a token, over the experts that it chose: several of them lie on one, and where it may choose
    from some groups alone, on the nodes of these."""
    every, groups = group.in_domains(cluster.domain_nodes).nodes, np.maximum(c.router_groups, 1)
    nodes = every * (1 - (1 - c.router_limit / groups) ** np.maximum(1.0, groups / every))
    return nodes * (1 - (1 - 1 / np.maximum(nodes, 1)) ** c.chosen) / np.maximum(c.chosen, 1)


def permuted_s(c: Configs, machine: Machine) -> Floats:
    """Tokens put in the order of their experts and back: on the rank they come from, and once more where several senders'
    meet several experts."""
    size = c.hidden * machine.element_bytes
    sorts = (held(c) > 1) & (c.expert_ranks > 1)
    return copy_s(machine, size * (2 * own_tokens(c) * (1 + c.chosen) + np.where(sorts, 4 * rows(c), 0.0)))
