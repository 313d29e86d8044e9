"""How many parameters a model has, part by part, whole or on one rank of one pipeline stage."""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from seatrial.arith import experts, layer
from seatrial.spec import Model, Topology, stages_of


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Of a whole model, tokens of the vocabulary counted without padding."""

    embedding: int
    """The word embedding."""
    positions: int
    """Learned positions, and the embedding's norm."""
    layer: int
    """One transformer layer, dense …"""
    layers: int
    """… how many of them …"""
    expert_layer: int
    """… one with experts …"""
    expert_layers: int
    """… and how many of these."""
    active_layer: int
    """What one token passes of a layer with experts."""
    final_norm: int
    head: int
    """The output projection, 0 when it is the word embedding."""
    mtp: int
    """Layers of multi-token prediction. Published sizes leave them out, and so does `total`: DeepSeek-V3 has 671 billion
    beside the 11.6 of its one, which has embedding and head in common with the model."""

    @property
    def total(self) -> int:
        return self.embedding + self.positions + self.without_embedding + self.head

    @property
    def without_embedding(self) -> int:
        return self.layer * self.layers + self.expert_layer * self.expert_layers + self.final_norm

    @property
    def active(self) -> int:
        """What one token passes: of the experts those that it chooses. Word embedding and head count whole, as on the cards of
        Mixtral and Qwen3; those of DeepSeek-V3 and gpt-oss leave the word embedding out."""
        return self.total - (self.expert_layer - self.active_layer) * self.expert_layers


@lru_cache(maxsize=1024)
def parameters(model: Model) -> Parameters:
    dense = layer.matrices(model) + layer.vectors(model)
    mixed = layer.numbers(experts.layer_tensors(model)) if model.mixture else 0
    joins = 2 * model.hidden**2 + 3 * layer.norm(model, model.hidden)
    return Parameters(
        embedding=model.vocab * model.hidden,
        positions=layer.numbers(layer.entry(model)),
        layer=dense,
        layers=model.layers - model.expert_layers,
        expert_layer=mixed,
        expert_layers=model.expert_layers,
        active_layer=experts.active(model) if model.mixture else 0,
        final_norm=layer.norm(model, model.hidden),
        head=0 if model.ties else model.vocab * model.hidden,
        mtp=sum(joins + (mixed if model.has_experts(model.layers + i) else dense) for i in range(model.mtp)),
    )


def label_sizes(model: Model) -> tuple[float, float]:
    """The size in billions as tables label it: with the embedding, and without. Both habits are in use."""
    p = parameters(model)
    return p.total / 1e9, p.without_embedding / 1e9


@dataclass(frozen=True, kw_only=True)
class StageParameters:
    """On one rank of one pipeline rank (all its virtual stages together), padding of the vocabulary included."""

    split: int
    """This rank's share of what tensor parallelism divides; key-value heads that it must share with others included."""
    replicated: int
    """What every tensor-parallel rank holds whole."""
    experts: int = 0
    """Its experts."""

    @property
    def total(self) -> int:
        return self.split + self.replicated + self.experts


def stage_parameters(model: Model, topology: Topology, rank: int) -> StageParameters:
    """Parameters held by one process of pipeline rank `rank`. A tied embedding lives on the first and on the last stage."""
    split = stages_of(model, topology)
    last = len(split) - 1
    tp, h = topology.tp, model.hidden
    rows = model.padded_vocab(tp) // tp
    ends = list(accumulate(split))
    mine = [number for end, layers in list(zip(ends, split))[rank :: topology.pp] for number in range(end - layers, end)]
    mixed = sum(map(model.has_experts, mine))
    divided = (len(mine) - mixed) * layer.numbers(layer.split_tensors(model, tp))
    whole = (len(mine) - mixed) * layer.numbers(layer.whole_tensors(model))
    routed = 0
    if mixed:
        divided += mixed * layer.numbers(experts.rest_split(model, tp))
        whole += mixed * layer.numbers(experts.rest_whole(model))
        routed = mixed * layer.numbers(experts.expert_tensors(model, topology.ep, topology.expert_tp))
    first_here, last_here = rank == 0, last % topology.pp == rank
    if first_here:
        divided += rows * h
        whole += parameters(model).positions
    if last_here:
        whole += layer.norm(model, h)
        if not model.ties or not first_here:
            divided += rows * h
    return StageParameters(split=divided, replicated=whole, experts=routed)
