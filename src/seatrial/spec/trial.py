"""The trial: one row of a table before it is run, with its batch."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seatrial import fields
from seatrial.documents import Documents
from seatrial.errors import BadInput
from seatrial.spec.cluster import Cluster, less_known
from seatrial.spec.execution import Command, Environment, Execution
from seatrial.spec.model import Model
from seatrial.spec.topology import Balance, Dispatcher, Topology


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Global batch size, its ramp-up, and what a sequence is made of."""

    gbs: int = fields.field(label="GBS", kind="count", searched=True, title="Global batch (GBS)",
        names="gbs, global batch, global batch size, global bs, global batchsize, batch size, batch, bs, train batch size, "
              "train batch, total batch size, sequences per step, seqs per step, sequences per iteration")
    """Sequences of one iteration, over all replicas."""
    rampup_start: int | None = None
    """The batch grows from this …"""
    rampup_increment: int | None = None
    """… in steps of this …"""
    rampup_samples: int | None = None
    """… over this many samples."""
    documents: str | None = fields.field(None, label="Docs", title="Documents of a sequence",
        names="documents, packed, document lengths")
    """Documents packed into a sequence, by their lengths: fixed:1024, uniform:256:4096, lognormal:MEAN:SIGMA,
    exponential:MEAN, or corpus for those of the data's .idx file. Attention stays inside each; positions go on."""

    def __post_init__(self) -> None:
        if self.documents is not None:
            Documents.parse(self.documents)
        fields.positive("batch", gbs=self.gbs, rampup_start=self.rampup_start, rampup_increment=self.rampup_increment,
                        rampup_samples=self.rampup_samples)
        given = [self.rampup_start, self.rampup_increment, self.rampup_samples]
        if any(v is None for v in given) and any(v is not None for v in given):
            raise BadInput("batch: a ramp-up needs rampup_start, rampup_increment and rampup_samples together")
        if self.rampup_start is not None and self.rampup_increment is not None:
            if self.rampup_start > self.gbs:
                raise BadInput(f"batch: rampup_start {self.rampup_start} is above gbs {self.gbs}")
            if (self.gbs - self.rampup_start) % self.rampup_increment:
                steps = (self.gbs - self.rampup_start) // self.rampup_increment
                low = self.rampup_start + steps * self.rampup_increment
                raise BadInput(f"batch: from {self.rampup_start} in steps of {self.rampup_increment} the batch never becomes "
                               f"{self.gbs}: the nearest are {low} and {low + self.rampup_increment}")

    def size_at(self, consumed_samples: int) -> int:
        """The global batch size once `consumed_samples` have been trained on."""
        if self.rampup_start is None or self.rampup_increment is None or self.rampup_samples is None:
            return self.gbs
        steps = (self.gbs - self.rampup_start) // self.rampup_increment
        if steps == 0 or consumed_samples >= self.rampup_samples:
            return self.gbs
        done = consumed_samples * steps // self.rampup_samples
        return min(self.gbs, self.rampup_start + done * self.rampup_increment)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One row of a table before it is run."""

    model: Model
    batch: Batch
    topology: Topology = field(default_factory=Topology)
    cluster: Cluster | None = None
    environment: Environment = field(default_factory=Environment)
    execution: Execution = field(default_factory=Execution)
    engine: str = fields.field("seatrial", label="Engine", names="engine, framework, code, codebase, library")
    """Who trains: seatrial, torchtitan, fsdp2, deepspeed, megatron-core; megatron-deepspeed, fsdp1, plain-3d, aliases and
    command with a [command]; one that is installed, or a TOML file of one's own."""
    command: Command | None = None
    """What is run in place of the engine's own program."""
    repeat: int = 0
    """Counts the runs of one and the same trial."""

    def to_dict(self) -> dict[str, Any]:
        return fields.plain(self)

    def run_id(self) -> str:
        """What is known about a machine changes the forecast, not the run: it is left out."""
        asked = self.to_dict()
        if "cluster" in asked:
            asked["cluster"] = less_known(asked["cluster"])
        return fields.digest(asked)

    @property
    def world(self) -> int:
        return self.topology.world

    @property
    def has_experts(self) -> bool:
        """Whether there is something to say of experts and their layout."""
        return self.model.mixture or self.topology.spreads_experts

    @property
    def expert_parallel(self) -> int | None:
        return self.topology.ep if self.has_experts else None

    @property
    def expert_tensor_parallel(self) -> int | None:
        return self.topology.expert_tp if self.has_experts else None

    @property
    def moe_balance(self) -> Balance | None:
        return self.topology.moe_balance if self.has_experts else None

    @property
    def moe_dispatcher(self) -> Dispatcher | None:
        return self.topology.moe_dispatcher if self.has_experts else None

    @property
    def procs_per_node(self) -> int:
        return self.cluster.procs_per_node if self.cluster else self.world

    @property
    def nodes(self) -> int:
        return max(1, self.world // self.procs_per_node)

    @property
    def microbatches(self) -> int:
        return self.batch.gbs // (self.topology.dp * self.topology.mbs)
