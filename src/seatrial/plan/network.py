"""How long processes talk: collectives inside a node or across, and messages between pipeline stages.

Ranks are laid out as Megatron lays them: tensor-parallel neighbours next to each other, then context, data, pipeline. So a
node's adapters are shared by as many data-parallel groups as it holds tensor-parallel ranks. Nodes of one NVLink domain count
as one: `Cluster.domain_nodes`. A ring over several nodes enters and leaves each of them once, whatever it does inside: its
bytes pass the node's adapters once, and the slower of the two ways sets the pace; tensor parallelism is no exception. Where the
cluster names a machine file, what was measured corrects the model, group by group.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from seatrial.plan import probed
from seatrial.plan.configs import Configs, Floats, Ints
from seatrial.spec import Cluster, Link

HALF_RATE_BYTES = 8e6
"""A ring moves at half its best rate when this much is reduced: its steps are filled one after another. NCCL's own tests show
half of the best rate at 4 to 16 MB in a node of eight. For links that say nothing of their own (`Link.half_rate_mb`)."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Processes that talk to each other, as columns."""

    size: Ints
    per_node: Ints
    """Members that share a node."""
    sharers: Ints
    """Groups of this kind that use a node's adapters at the same time."""
    stride: Ints | None = None
    """Ranks from one member to the next, where the group may be wider than a node and a node less than a domain."""
    procs: Ints | None = None
    """Ranks of a node; with `stride`."""

    @property
    def nodes(self) -> Ints:
        return -(-self.size // self.per_node)

    def in_domains(self, nodes: int) -> Group:
        """The same group where so many nodes are as one."""
        if nodes == 1 or self.stride is None or self.procs is None:
            return self
        reach = self.procs * nodes
        per_domain = np.clip(reach // self.stride, 1, self.size)
        return replace(self, per_node=per_domain, sharers=np.maximum(1, reach // per_domain), stride=None)


def _every(stride: Ints, size: Ints, c: Configs) -> Group:
    """`size` ranks, each so many after the one before."""
    per_node = np.clip(c.procs_per_node // stride, 1, size)
    return Group(size=size, per_node=per_node, sharers=np.maximum(1, c.procs_per_node // per_node), stride=stride,
                 procs=c.procs_per_node)


def tensor_group(c: Configs) -> Group:
    return _every(np.ones_like(c.tp), c.tp, c)


def heads_group(c: Configs) -> Group:
    """Ranks of one sequence that share heads by all-to-all: neighbours …"""
    return _every(c.tp, c.context_split[0], c)


def context_group(c: Configs) -> Group:
    """… and those that keys and values go round: one of each such neighbourhood."""
    heads, ring = c.context_split
    return _every(c.tp * heads, ring, c)


def data_group(c: Configs) -> Group:
    """All that hold the same weights, over data and context."""
    return _every(c.tp, c.data_ranks, c)


def replica_group(c: Configs, shards: Ints, of: Ints) -> Group:
    """Those of `of` ranks that hold the same of so many shards."""
    return Copies.of(c).replicas(c, shards, of)


class Copies(NamedTuple):
    """Ranks that hold the same parameters, and over how many of them ZeRO cuts weights, gradients and optimizer state."""

    ranks: Ints
    stride: Ints
    """From one to the next."""
    weights: Ints
    gradients: Ints
    state: Ints

    @classmethod
    def of(cls, c: Configs) -> Copies:
        """Of all but experts: over data and context."""
        return cls(c.data_ranks, c.tp, c.weight_shards, c.gradient_shards, c.shards)

    @classmethod
    def of_experts(cls, c: Configs) -> Copies:
        """`Topology.experts_divided_over`."""
        state = np.gcd(c.edp, c.shards)
        gradients = np.gcd(state, c.gradient_shards)
        return cls(c.edp, c.expert_ranks, np.gcd(gradients, c.weight_shards), gradients, state)

    def group(self, c: Configs, shards: Ints) -> Group:
        """Ranks that hold one copy between them: consecutive ones, inside a node where they fit."""
        return _every(self.stride, shards, c)

    def replicas(self, c: Configs, shards: Ints, of: Ints) -> Group:
        """Those of `of` ranks that hold the same of so many shards."""
        return _every(self.stride * shards, np.maximum(1, of // shards), c)


def expert_group(c: Configs) -> Group:
    """Ranks that tokens are dealt out to: all experts of a layer are among them."""
    return _every(np.ones_like(c.tp), c.expert_ranks, c)


def embedding_group(c: Configs) -> Group:
    """The first and the last stage, which hold the same matrix."""
    near = c.world <= c.procs_per_node
    return Group(size=np.full_like(c.tp, 2), per_node=np.where(near, 2, 1),
                 sharers=np.minimum(c.procs_per_node, c.data_ranks * c.tp), stride=-(-c.world // 2), procs=c.procs_per_node)


def _rate(link: Link) -> float:
    return link.bandwidth_gb_s * 1e9 * link.efficiency


def _by_size(table: Mapping[str, float], size: Ints) -> Floats | float:
    """A figure that depends on the size of a group; 1 where nothing is said."""
    if not table:
        return 1.0
    known = sorted((int(size), value) for size, value in table.items())
    return np.interp(np.log2(np.maximum(size, 1)), np.log2([at for at, _ in known]), [value for _, value in known])


def _inside_rate(link: Link, members: Ints, passes: int) -> Floats | float:
    """Bytes per second of a ring of so many members inside a node."""
    gain = _by_size(link.reduce_gain, members) if passes == 2 else 1.0
    return _rate(link) * _by_size(link.group_share, members) * gain


def _across_rate(cluster: Cluster, sharers: Ints) -> Floats:
    """Bytes per second of one group's ring through a node's adapters, or a domain's."""
    rate = _rate(cluster.inter) * cluster.domain_nodes / np.maximum(sharers, 1)
    return rate if cluster.inter.flow_gb_s is None else np.minimum(rate, cluster.inter.flow_gb_s * 1e9)


def _filling(link: Link, size_bytes: Floats, messages: Any) -> Any:
    """Bytes that could have moved while the steps of so many calls were filled."""
    if link.half_rate_mb is None:
        return HALF_RATE_BYTES * messages
    half = link.half_rate_mb * 1e6 * np.asarray(messages, dtype=np.float64)
    return half * size_bytes / (size_bytes + half)


def _inside_us(link: Link, members: Ints, passes: int) -> Floats:
    """Latency of one call inside a node."""
    if link.hop_us is None:
        return passes * np.log2(np.maximum(members, 1)) * link.latency_us
    return np.where(members > 1, link.latency_us, 0.0) + passes * (members - 1) * link.hop_us


def ring_s(cluster: Cluster, group: Group, size_bytes: Any, *, passes: int, messages: Any = 1) -> Floats:
    """A ring collective: 2 passes for an all-reduce, 1 for a reduce-scatter or an all-gather of `size_bytes` in all.

    `messages`: how many calls the bytes are cut into; each pays the latency. Libraries go over to trees when latency rules, so
    a pass over n nodes pays log2 n hops between them, and n for the scatter and gather collectives, which have no tree.
    """
    group = group.in_domains(cluster.domain_nodes)
    intra, inter = cluster.intra, cluster.inter
    size = np.asarray(size_bytes, dtype=np.float64)
    g = group.size.astype(np.float64)
    moved = passes * (g - 1) / g
    inside_s = moved * (size + _filling(intra, size, messages)) / _inside_rate(intra, group.per_node, passes)
    across = group.nodes > 1
    across_s = moved * (size + _filling(inter, size, messages)) / _across_rate(cluster, group.sharers)
    across_s = np.maximum(across_s, np.where(group.per_node > 1, inside_s, 0.0))
    nodes = group.nodes.astype(np.float64)
    hops = np.where(across, np.log2(np.maximum(nodes, 1)) if passes == 2 else nodes - 1, 0.0)
    latency_s = (passes * hops * inter.latency_us + _inside_us(intra, group.per_node, passes)) * 1e-6
    seconds = np.where(g > 1, np.where(across, across_s, inside_s) + latency_s * messages, 0.0)
    found = probed.of(cluster)
    if found is None:
        return seconds
    return seconds * _ring_factor(found, passes, group, size / messages)


def _ring_factor(figures: probed.Probed, passes: int, group: Group, call_bytes: Any) -> Floats:
    size, nodes = group.size, group.nodes
    found = np.ones(len(size))
    call_bytes = np.broadcast_to(np.asarray(call_bytes, dtype=np.float64), found.shape)
    for across in (False, True):
        known = _rings_off_by(figures).get((passes, across))
        where = (nodes > 1) == across
        if not known or not where.any():
            continue
        wide, deep = np.log2(np.maximum(size[where], 1)), np.log2(np.maximum(nodes[where], 1))
        apart = [np.abs(wide - math.log2(talk.size)) + np.abs(deep - math.log2(talk.nodes)) for talk in known]
        nearest = np.argmin(apart, axis=0)
        mine = np.ones(len(wide))
        for i, talk in enumerate(known):
            chosen = nearest == i
            if chosen.any():
                mine[chosen] = talk.factor.at(call_bytes[where][chosen])
        found[where] = mine
    return found


class Talk(NamedTuple):
    """One kind of group: how far the ring model is off, by the bytes of one call."""

    size: float
    nodes: float
    factor: probed.Curve


@functools.lru_cache(maxsize=64)
def _rings_off_by(figures: probed.Probed) -> dict[tuple[int, bool], tuple[Talk, ...]]:
    """By passes and whether nodes are crossed: measured seconds of a ring over the model's."""
    cluster, entries = figures.cluster, figures.entries("collectives")
    found: dict[tuple[int, bool], list[Talk]] = {}
    kinds = dict.fromkeys((e["size"], e["per_node"], e["nodes"], e["groups"]) for e in entries)
    for size, per_node, nodes, groups in kinds:
        for passes, ops in ((2, ("all_reduce",)), (1, ("all_gather", "reduce_scatter"))):
            seconds: dict[float, list[float]] = {}
            for e in entries:
                if (e["size"], e["per_node"], e["nodes"]) == (size, per_node, nodes) and e["op"] in ops:
                    seconds.setdefault(e["bytes"], []).append(e["s"])
            if not seconds:
                continue
            group = Group(size=np.array([size]), per_node=np.array([per_node]), sharers=np.array([groups]))
            modelled = {b: max(float(ring_s(cluster, group, b, passes=passes)[0]), 1e-12) for b in seconds}
            # Where one half of the pair is missing the other stands for both.
            factors = [float(np.mean(s)) / modelled[b] for b, s in seconds.items()]
            curve = probed.Curve(seconds, factors)
            found.setdefault((passes, nodes > 1), []).append(Talk(size=size, nodes=nodes, factor=curve))
    return {key: tuple(talks) for key, talks in found.items()}


def all_reduce_s(cluster: Cluster, group: Group, size_bytes: Any, messages: Any = 1) -> Floats:
    return ring_s(cluster, group, size_bytes, passes=2, messages=messages)


def gather_s(cluster: Cluster, group: Group, size_bytes: Any, messages: Any = 1) -> Floats:
    """An all-gather or a reduce-scatter of `size_bytes` in all."""
    return ring_s(cluster, group, size_bytes, passes=1, messages=messages)


def all_to_all_s(cluster: Cluster, group: Group, size_bytes: Any, messages: Any = 1, crossing: Any = 1.0) -> Floats:
    """Each rank deals its `size_bytes` out to all of the group, itself included. Unlike in a ring every member's bytes leave
    the node, as far as they are for other nodes; `crossing`: the share of those that do, where a node gets what several of its
    ranks need once."""
    group = group.in_domains(cluster.domain_nodes)
    size = np.asarray(size_bytes, dtype=np.float64)
    g = group.size.astype(np.float64)
    inside_s = (g - 1) / g * (size + _filling(cluster.intra, size, messages)) / _inside_rate(cluster.intra, group.per_node, 1)
    leaves = (1 - group.per_node / g) * crossing
    across_s = leaves * (size + _filling(cluster.inter, size, messages)) / _across_rate(cluster, group.sharers * group.per_node)
    latency_s = np.where(group.nodes > 1, cluster.inter.latency_us, cluster.intra.latency_us) * 1e-6 * messages
    return np.where(g > 1, np.where(group.nodes > 1, np.maximum(across_s, inside_s), inside_s) + latency_s, 0.0)


def send_s(c: Configs, cluster: Cluster, size_bytes: Any) -> Floats:
    """One message of one replica to the next stage: its tensor-parallel ranks each send their slice of `size_bytes`, and ranks
    that share its sequences as much at the same time.

    Replicas meet at the end of an iteration only and drift apart in between, and a node's adapters are idle most of the time:
    each replica finds them free. Stages on one node use the links inside it.
    """
    size = np.asarray(size_bytes, dtype=np.float64)
    stage = c.data_ranks * c.tp
    reach = c.procs_per_node * cluster.domain_nodes
    per_node = np.minimum(c.tp * c.cp, c.procs_per_node)
    rate = np.full(len(c), _rate(cluster.inter))
    if cluster.inter.flow_gb_s is not None:
        rate = np.minimum(rate, cluster.inter.flow_gb_s * 1e9 * per_node)
    across_s = size * (per_node / c.tp) / rate + cluster.inter.latency_us * 1e-6
    pair = _inside_rate(cluster.intra, np.full_like(c.tp, 2), passes=1)
    inside_s = size / c.tp / pair + cluster.intra.latency_us * 1e-6
    if (found := probed.of(cluster)) is not None:
        inside_s = found.messages[False].grown(size / c.tp) if False in found.messages else inside_s
        across_s = found.messages[True].grown(size / c.tp) if True in found.messages else across_s
    crossing = np.where(c.world <= reach, 0.0, np.minimum(1.0, stage / reach))
    return np.where(c.pp > 1, crossing * across_s + (1 - crossing) * inside_s, 0.0)
