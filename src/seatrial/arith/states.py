"""Numbers that the buckets of one rank hold: weights, gradients and the optimizer's state are so many of each.

    state_of(layout, chunks).flat       in all buckets, with what rounding adds; chunks: virtual stages that are alike
    Routes.of(layout, chunks).flat      the same of experts
"""
from __future__ import annotations

from typing import NamedTuple

from seatrial.arith import experts, layer
from seatrial.arith.counts import Count, larger, pick, smaller
from seatrial.arith.layout import Layout


class Chunk(NamedTuple):
    """Virtual stages of a rank that are alike."""

    count: Count
    layers: Count
    first: Count
    last: Count
    mixed: Count = 0
    """Layers that have experts."""


class State(NamedTuple):
    """Numbers on one rank."""

    flat: Count
    """In all buckets, with what rounding adds."""
    block: Count
    """A block's parameters, each at a multiple of hidden …"""
    gathered: Count
    """… and rounded up to be cut over replicas."""
    deep: Count
    """Blocks of a full bucket."""
    bucket: Count
    """The fullest of blocks."""
    several: Count
    """Whether there is more than one as full …"""
    chained: Count
    """… and one after the other."""
    tail: Count
    """What the optimizer updates right before the embedding or the head, if anything."""
    joined: Count
    """Whether the last norm lies in a bucket with blocks."""
    owns_head: Count
    """Whether the head is a matrix of its own here."""


def chunks_of(layers: tuple[int, ...], mixed: tuple[int, ...], *, first: bool, last: bool) -> list[Chunk]:
    """Of a rank's virtual stages, those that are alike as one; `mixed`: their layers that have experts."""
    found: dict[tuple[int, int, int, int], int] = {}
    for number, (count, routed) in enumerate(zip(layers, mixed)):
        key = count, int(first and number == 0), int(last and number == len(layers) - 1), routed
        found[key] = found.get(key, 0) + 1
    return [Chunk(count, *key) for key, count in found.items()]


def state_of(lay: Layout, chunks: list[Chunk]) -> State:
    s, tp = lay.shape, lay.topology.tp
    unit = s.hidden * lay.over[2]
    tensors, entries = layer.tensors(s, tp), layer.entry(s)
    block, raw = aligned(tensors, s), layer.numbers(tensors)
    if lay.mixture:
        rest, mixed = [*experts.rest_split(s, tp), *experts.rest_whole(s)], sum(c.count * c.mixed for c in chunks)
        every = larger(1, sum(c.count * c.layers for c in chunks))
        # Layers of both kinds lie in the same buckets.
        block, raw = (both + mixed * (own - both) // every for both, own in
                      ((block, aligned(rest, s)), (raw, layer.numbers(rest))))
    entry, raw_entry, norm = aligned(entries, s), layer.numbers(entries), layer.norm(s, s.hidden)
    alone = (lay.topology.zero == 3) * 1
    deep = pick(alone, 1, larger(1, lay.bucket // raw))
    flat = owns_head = fullest = buckets = stages = tail = chained = 0
    for count, layers, first, last, _ in chunks:
        own_head = last * (1 - s.ties * first)
        begins = last * (1 - alone) * smaller(layers, larger(0, (lay.bucket - norm) // raw))
        """Blocks in the bucket of the last norm."""
        left = layers - begins
        rest = left % deep
        open_blocks = pick((rest > 0) * 1, rest, pick((left > 0) * 1, deep, begins))
        open_norm = last * norm * (left == 0)
        joins = (1 - alone) * (open_blocks * raw + open_norm + raw_entry <= lay.bucket) * ((open_blocks > 0) | (open_norm > 0))
        apart = up(entry, unit)
        joined = up(open_blocks * block + open_norm + entry, unit) - up(open_blocks * block + open_norm, unit)
        path = last * up(norm + begins * block, unit) + left // deep * up(deep * block, unit) + up(rest * block, unit)
        path = path + first * (entry > 0) * pick(joins, joined, apart)
        flat = flat + count * (path + (first + own_head) * up(lay.rows, unit))
        owns_head = owns_head + count * own_head
        buckets = buckets + count * (layers // larger(1, smaller(deep, layers)))
        chained = larger(chained, (layers >= 2 * deep) * 1)
        stages = stages + count
        tail = tail + count * first * pick(larger(joins, 1 - s.learned), open_blocks * block, 0)
        fullest = larger(fullest, (count > 0) * up(smaller(deep, layers) * block, unit))
    return State(
        flat=flat, block=block, gathered=up(block, unit), deep=deep, bucket=fullest, several=(buckets > 1) * 1,
        chained=larger(chained, (buckets > 1) * (1 - owns_head)), tail=larger(tail, owns_head * (stages > 1) * fullest),
        owns_head=owns_head, joined=(1 - alone) * (norm + raw <= lay.bucket),
    )  # fmt: skip


class Routes(NamedTuple):
    """The same of experts, whose buckets are their own."""

    flat: Count = 0
    block: Count = 0
    """Of a layer that has some …"""
    mean: Count = 0
    """… and over all layers of the rank."""
    gathered: Count = 0
    deep: Count = 1
    bucket: Count = 0

    @classmethod
    def of(cls, lay: Layout, chunks: list[Chunk]) -> Routes:
        if not lay.mixture:
            return cls()
        s, unit = lay.shape, lay.shape.hidden * lay.experts_over[2]
        tensors = experts.expert_tensors(s, lay.topology.ep, lay.topology.expert_tp)
        block, raw = aligned(tensors, s), larger(1, layer.numbers(tensors))
        deep = pick((lay.topology.zero == 3) * 1, 1, larger(1, lay.bucket // raw))
        flat = fullest = 0
        for chunk in chunks:
            flat = flat + chunk.count * (chunk.mixed // deep * up(deep * block, unit) + up(chunk.mixed % deep * block, unit))
            fullest = larger(fullest, (chunk.count > 0) * up(smaller(deep, chunk.mixed) * block, unit))
        mean = flat // larger(1, sum(chunk.count * chunk.layers for chunk in chunks))
        return cls(flat=flat, block=block, mean=mean, gathered=up(block, unit), deep=deep, bucket=fullest)


def up(value: Count, multiple: Count) -> Count:
    return -(-value // multiple) * multiple


def aligned(tensors: list[layer.Tensor], s: layer.Shape) -> Count:
    return sum(up(tensor.numbers, s.hidden) for tensor in tensors)
