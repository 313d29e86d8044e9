"""How many parameters a model has, part by part, whole or on one rank of one pipeline stage."""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from seatrial.arith import layer
from seatrial.spec import Model, Topology, stages_of


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Of a whole model, tokens of the vocabulary counted without padding."""

    embedding: int
    """The word embedding."""
    positions: int
    """Learned positions, and the embedding's norm."""
    layer: int
    """One transformer layer."""
    layers: int
    """How many of them."""
    final_norm: int
    head: int
    """The output projection, 0 when it is the word embedding."""

    @property
    def total(self) -> int:
        return self.embedding + self.positions + self.layer * self.layers + self.final_norm + self.head

    @property
    def without_embedding(self) -> int:
        return self.layer * self.layers + self.final_norm


@lru_cache(maxsize=1024)
def parameters(model: Model) -> Parameters:
    return Parameters(
        embedding=model.vocab * model.hidden,
        positions=layer.numbers(layer.entry(model)),
        layer=layer.numbers(layer.tensors(model, 1)),
        layers=model.layers,
        final_norm=layer.norm(model, model.hidden),
        head=0 if model.ties else model.vocab * model.hidden,
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

    @property
    def total(self) -> int:
        return self.split + self.replicated


def stage_parameters(model: Model, topology: Topology, rank: int) -> StageParameters:
    """Parameters held by one process of pipeline rank `rank`. A tied embedding lives on the first and on the last stage."""
    split = stages_of(model, topology)
    last = len(split) - 1
    tp, h = topology.tp, model.hidden
    rows = model.padded_vocab(tp) // tp
    layers = sum(split[stage] for stage in range(rank, len(split), topology.pp))
    divided = layers * layer.numbers(layer.split_tensors(model, tp))
    whole = layers * layer.numbers(layer.whole_tensors(model))
    first_here, last_here = rank == 0, last % topology.pp == rank
    if first_here:
        divided += rows * h
        whole += parameters(model).positions
    if last_here:
        whole += layer.norm(model, h)
        if not model.ties or not first_here:
            divided += rows * h
    return StageParameters(split=divided, replicated=whole)
