"""How many parameters a model has, part by part, whole or on one rank of one pipeline stage."""
from __future__ import annotations

from dataclasses import dataclass

from seatrial.spec import Model, Topology, stages_of


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Of a whole model, tokens of the vocabulary counted without padding."""

    embedding: int
    """The word embedding."""
    positions: int
    """Learned positions (gpt2) or the embedding's norm (bloom)."""
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


def _norm(model: Model) -> int:
    return model.hidden if model.family == "llama" else 2 * model.hidden


def layer_matrices(model: Model) -> int:
    """Weights of one layer that tensor parallelism divides."""
    h, kv_width = model.hidden, model.kv * model.head_dim
    return h * (h + 2 * kv_width) + h * h + (3 if model.glu else 2) * h * model.inner


def layer_split_vectors(model: Model) -> int:
    """Biases of the column-parallel linears, divided as their outputs are."""
    return 0 if model.family == "llama" else model.hidden + 2 * model.kv * model.head_dim + model.inner


def layer_replicated(model: Model) -> int:
    """Norms, and the biases of the row-parallel linears: whole on every tensor-parallel rank."""
    return 2 * _norm(model) + (0 if model.family == "llama" else 2 * model.hidden)


def parameters(model: Model) -> Parameters:
    h = model.hidden
    return Parameters(
        embedding=model.vocab * h,
        positions={"gpt2": model.seq * h, "bloom": 2 * h, "llama": 0}[model.family],
        layer=layer_matrices(model) + layer_split_vectors(model) + layer_replicated(model),
        layers=model.layers,
        final_norm=_norm(model),
        head=0 if model.ties else model.vocab * h,
    )


def label_sizes(model: Model) -> tuple[float, float]:
    """The size in billions as tables label it: with the embedding, and without. Both habits are in use."""
    p = parameters(model)
    return p.total / 1e9, p.without_embedding / 1e9


@dataclass(frozen=True, kw_only=True)
class StageParameters:
    """On one rank of one pipeline rank (all its virtual stages together), padding of the vocabulary included."""

    split: int
    """This rank's share of what tensor parallelism divides."""
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
    divided = layers * (layer_matrices(model) + layer_split_vectors(model)) // tp
    whole = layers * layer_replicated(model)
    first_here, last_here = rank == 0, last % topology.pp == rank
    if first_here:
        divided += rows * h
        whole += parameters(model).positions
    if last_here:
        whole += _norm(model)
        if not model.ties or not first_here:
            divided += rows * h
    return StageParameters(split=divided, replicated=whole)
