"""What the count of one rank's bytes asks of a trial: numbers, or the planner's columns of them.

    Layout.of(trial).outside            of a row, what a rank has of it outside of tensor parallelism
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from seatrial.arith import layer
from seatrial.arith.counts import Count, pick
from seatrial.schedule import splits_backward
from seatrial.spec import BYTES, Trial, context_split

FP32 = 4
EVEN = (1.0, 1.0)
"""Rows that experts receive over an even share: over layers and micro-batches, and most in the layer that a backward pass
begins with, when all others are still held."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the count asks of a trial. Choices are 0 or 1."""

    shape: layer.Shape
    """A Model …"""
    topology: Any
    """… and a Topology, or columns under the same names."""
    vocab: Count
    """Rows of the embedding as stored, padding included."""
    microbatches: Count
    selective: Count
    full: Count
    splits: Count
    """Whether the schedule splits the backward pass."""
    element: Count
    """Bytes of a weight as it is computed with."""
    bf16: Count
    """… whether these are upper halves of fp32 …"""
    fp8: Count
    """… and whether blocks compute in eight bits."""
    moments: Count
    """Bytes."""
    plain: Count
    """adamw-plain"""
    bucket: Count
    """Numbers in a full bucket."""
    logits_chunk: Count
    neighbours: Count = 1
    """Context-parallel ranks that share heads …"""
    gathers_keys: Count = 0
    """… and whether keys of the others are gathered, where they do not come round a ring."""
    packs: Count = 0
    """Whether documents are packed: one rank alone then attends as a ring of one does."""
    mixture: bool = False
    """Whether there are experts anywhere …"""
    gathers_tokens: Count = 0
    """… whether all tokens are gathered for them …"""
    load: Count = 1.0
    """… and rows that they receive over an even share, over layers and micro-batches …"""
    most_load: Count = 1.0
    """… and where they are most."""

    @classmethod
    def of(cls, trial: Trial, load: tuple[float, float] = EVEN) -> Layout:
        m, t, execution = trial.model, trial.topology, trial.execution
        return cls(
            shape=m, topology=t, vocab=m.padded_vocab(t.tp), microbatches=trial.microbatches,
            selective=int(t.recompute == "selective"), full=int(t.recompute == "full"), splits=int(splits_backward(t.schedule)),
            element=max(2, BYTES[t.precision]), bf16=int(t.precision in ("bf16", "fp8")), fp8=int(t.precision == "fp8"),
            moments=BYTES[execution.moments], plain=int(execution.optimizer == "adamw-plain"),
            bucket=int(execution.bucket_mib * 2**20 / FP32), logits_chunk=execution.logits_chunk,
            neighbours=context_split(m, t)[0], gathers_keys=int(t.cp_kind == "gather"),
            packs=int(trial.batch.documents is not None), mixture=m.mixture,
            gathers_tokens=int(t.moe_dispatcher == "allgather"), load=load[0], most_load=load[1],
        )  # fmt: skip

    @cached_property
    def seq(self) -> Count:
        """Tokens of a sequence that a rank has."""
        return self.shape.seq // self.topology.cp

    @cached_property
    def divided(self) -> Count:
        """Whether other ranks have the rest, or attention is in pieces all the same."""
        return ((self.topology.cp > 1) | (self.packs > 0)) * 1

    @cached_property
    def fuses(self) -> Count:
        """Whether a GPU runs a block as one function (`engine/fast/config.py`)."""
        s = self.shape
        return (1 - s.is_latent) * (1 - s.has_sinks) * (1 - s.normed_qk * s.layernorm) * self.half

    @cached_property
    def rows(self) -> Count:
        """Numbers of the vocabulary's matrix on one rank."""
        return self.vocab // self.topology.tp * self.shape.hidden

    @cached_property
    def row(self) -> Count:
        """Bytes."""
        return self.topology.mbs * self.seq * self.shape.hidden * self.element

    @cached_property
    def cuts(self) -> Count:
        """Whether norms see a stretch of the sequence."""
        return self.topology.sequence_parallel * (self.topology.tp > 1)

    @cached_property
    def outside(self) -> Count:
        """Rows of the residual stream."""
        return 1 / pick(self.cuts, self.topology.tp, 1)

    @cached_property
    def over(self) -> tuple[Count, Count, Count]:
        """Ranks that weights, gradients and optimizer state are divided over."""
        found: tuple[Count, Count, Count] = self.topology.divided_over
        return found

    @cached_property
    def experts_over(self) -> tuple[Count, Count, Count]:
        """The same of experts."""
        found: tuple[Count, Count, Count] = self.topology.experts_divided_over
        return found

    @cached_property
    def half(self) -> Count:
        return (self.element < FP32) * 1
