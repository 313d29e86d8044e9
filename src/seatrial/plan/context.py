"""What context parallelism costs in one layer and micro-batch: keys and values of other ranks, on the way and in memory.

    forward, backward = exchange_s(c, cluster, machine, attention_f, attention_b)       seconds that nothing hides
    exchanged_bytes(c, element)                                                         what it holds while attention runs
    chosen(c, cluster, kinds)                                                           the kind that each layout is best with

A ring sends its block of keys and values on while attention works on it: only what is longer than that shows. Gathering is a
collective before attention, all-to-all over heads one before and one after; what an engine hides of them is its fact.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from seatrial.arith.layer import widths
from seatrial.plan import facts, network
from seatrial.plan.configs import BOTH, GATHER, ULYSSES, Configs, Floats, Ints
from seatrial.plan.kernels import Machine
from seatrial.spec import Cluster


def pieces(c: Configs) -> tuple[Ints, Ints, Ints]:
    """How attention is cut: heads by so many, a sequence into so many stretches worked on one after the other, and queries by
    so many that meet all keys at once."""
    heads, rest = c.context_split
    gathers = (c.cp_kind == GATHER) & (np.asarray(facts.of(c, "gather_hidden")) == 0)
    return heads, np.where(gathers, 1, rest), np.where(gathers, rest, 1)


def exchange_s(c: Configs, cluster: Cluster, machine: Machine, attention_f: Floats,
               attention_b: Floats) -> tuple[Floats, Floats]:
    """Seconds forward and backward beyond the attention's own, without what is recomputed."""
    e, w = machine.element_bytes, widths(c, c.tp)
    heads, rest = c.context_split
    gathers = c.cp_kind == GATHER
    block = c.tokens * (w.qkv - w.context) * e
    # All blocks of a sequence, for all but one's own.
    travel = network.gather_s(cluster, network.context_group(c), rest * block)
    drawn = np.asarray(facts.timed(c, machine)("contention"))

    def shown(wanted: Floats, behind: Floats) -> Floats:
        seen = np.maximum(wanted - behind, 0.0)
        return seen + drawn * (wanted - seen)

    # Of so many steps of attention all but one have a block under way; backward, their gradients as well.
    hidden = np.asarray(facts.of(c, "ring_hidden")) * (rest - 1) / rest
    # What is waited for after the first block of attention; then gradients go round, one step behind.
    ahead = np.asarray(facts.of(c, "gather_hidden"))
    ways = []
    wide = np.maximum(np.asarray(facts.of(c, "exchanged_gradient_bytes")), e) / e
    for blocks, first, attention in ((1.0, ahead / rest, attention_f), (1 + wide, ahead * hidden, attention_b)):
        ways.append(shown(blocks * travel, np.where(gathers, first, hidden) * attention))
    # Queries, keys, values there and the output back; backward their gradients the other way.
    deal = network.all_to_all_s(cluster, network.heads_group(c), c.tokens * (w.qkv + w.context) * e, messages=2)
    there = np.where(heads > 1, deal, 0.0)
    return ways[0] + there, ways[1] + there


def exchanged_bytes(c: Configs, element: Floats) -> Floats:
    """Of one layer at work: a ring's blocks (two, or all that an engine keeps until its end), the sequence's keys and values
    where they are gathered, the redistributed copies; backward the gradients of each."""
    w, (heads, rest) = widths(c, c.tp), c.context_split
    tokens = c.tokens.astype(np.float64) * element
    keys, both = w.qkv - w.context, 1 + np.maximum(np.asarray(facts.of(c, "exchanged_gradient_bytes")), element) / element
    most = np.asarray(facts.of(c, "ring_blocks"))
    every = most == 0
    # With the outputs of each step, which are put together at the end: that is forward, and more than two blocks with theirs.
    ring = np.where(every, np.maximum(rest * (keys + w.context), 2 * both * keys),
                    np.minimum(most, rest) * both * keys)
    found = np.where(rest > 1, np.where(c.cp_kind == GATHER, rest * both * keys, ring), 0)
    return tokens * (found + np.where(heads > 1, w.qkv + w.context, 0) * 2)


def kept_bytes(c: Configs, element: Floats) -> Floats:
    """For each token, until the backward pass: attention's output on the ranks that computed it, beside one's own."""
    return np.where(c.context_split[0] > 1, widths(c, c.tp).context * element, 0.0)


def allowed(c: Configs, kind: int) -> Any:
    """Where the rules let the kind be: `rules.context_fits`."""
    heads, rest = replace(c, cp_kind=np.full_like(c.cp, kind)).context_split
    parts = np.lcm(np.where(rest > 1, 2 * rest, 1), c.cp * np.where(c.sequence_parallel == 1, c.tp, 1))
    fits = (c.seq % parts == 0) & (c.heads % c.tp == 0)
    if kind == ULYSSES:
        return fits & (np.maximum(1, c.kv // c.tp) % c.cp == 0)
    return fits & (heads > 1) & (rest > 1) if kind == BOTH else fits
