"""A record: a trial with its outcome, its measurements and where they came from; one line of the logbook.

    Record.from_dict({...}) / record.to_dict()          plain data, nothing at its default, unknown keys refused by name

An imported table row rarely says everything, so every figure is optional and `inferred` names those that were worked out
rather than printed. `None` means that nobody said: tables print it as an empty cell, never as a guess.
"""
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from seatrial import fields
from seatrial.errors import BadInput
from seatrial.outcomes import Status
from seatrial.plaindata import bounded

SCHEMA = 1

ABOVE_ZERO = ("sec_per_it", "tflops", "mem_value", "samples_per_s", "tokens_per_s", "tokens_per_s_per_process", "mfu", "hfu",
              "nodes", "gpus", "procs_per_node", "layers", "hidden", "heads", "kv_heads", "ffn", "seq", "vocab", "head_dim",
              "dp", "tp", "pp", "cp", "vp", "mbs", "gbs", "zero_group", "gradients_group", "weights_group",
              "ep", "etp", "freq_ghz")  # fmt: skip
"""Figures and counts of which nothing, or less, was never measured."""
MEMORY_UNITS = ("", "MiB", "MB", "GiB", "GB")
State = Literal["measured", "estimated", "planned", "failed"]
"""measured: ran and was timed; estimated: worked out from less than an iteration; planned: never ran; failed: see outcome."""



@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What happened, when and where, with the evidence."""

    status: Status
    message: str = ""
    """One sentence for a person; for imported rows the words of the table."""
    rank: int | None = None
    """The first rank that failed; the others' errors are consequences."""
    iteration: int | None = None
    phase: str = ""
    rate: tuple[int, ...] | None = None
    """How often it came over how many repeats: (2, 5) is 2 of 5."""
    evidence: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Stated:
    """A value that the text around a row gives."""

    value: object
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    state: State = fields.field(label="State")
    outcome: Outcome | None = fields.field(None, label="Outcome")
    """A failure can come after a measurement, so an outcome and figures may stand side by side."""

    # where it came from
    record_id: str = ""
    run_id: str = fields.field("", label="Run")
    session: str = fields.field("", label="Session")
    """Rows of one session saw the same machine; drivers and settings may change between two."""
    source_file: str = ""
    source_line: int | None = None
    section: str = ""
    table: int | None = None
    """Which table of the file, counted from 0: what is compared by lint stands in one table."""
    date: str = fields.field("", label="Date")
    written_at: str = ""

    # what was asked
    nodes: int | None = None
    gpus: int | None = fields.field(None, label="GPUs", kind="count", of_trial="world",
        names="gpus, gpu, num gpus, ngpus, n gpus, number of gpus, devices, num devices, world size, world, ranks, "
              "accelerators, cards, npus, chips, processes, procs, num processes")
    """Devices in all, where the row counts those; `nodes` may then be unknown."""
    procs_per_node: int | None = None
    size_label: str = ""
    family: str = ""
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    seq: int | None = None
    vocab: int | None = None
    head_dim: int | None = None
    """Where it is not hidden / heads."""
    tied: bool | None = None
    norm: str = ""
    """This and the next five where they are not the family's."""
    positions: str = ""
    mlp: str = ""
    biases: str = ""
    qk_norm: bool | None = None
    embedding_norm: bool | None = None
    experts: int | None = None
    """This and the next three where the model has experts."""
    top_k: int | None = None
    shared_experts: int | None = None
    expert_ffn: int | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    cp_kind: str = ""
    vp: int | None = None
    mbs: int | None = None
    gbs: int | None = None
    documents: str = ""
    zero_stage: int | None = None
    recompute: str = ""
    """none, selective or full; empty when nobody said."""
    schedule: str = ""
    dtype: str = ""
    sequence_parallel: bool | None = None
    stage_layers: str = ""
    """1-4-3: layers of each stage, where they are not the default."""
    zero_group: int | None = None
    gradients_group: int | None = None
    weights_group: int | None = None
    ep: int | None = None
    etp: int | None = None
    moe_balance: str = ""
    moe_dispatcher: str = ""
    recompute_modules: str = ""
    attention: str = ""
    overlap: str = ""
    compile: bool | None = None
    bucket_mib: float | None = None
    logits_chunk: int | None = None
    threads: int | None = None
    device: str = ""
    """As were asked for, where not the default."""
    optimizer: str = fields.field("", label="Optimizer", of_trial="execution.update", names="optimizer, optim, optimiser")
    engine: str = ""
    machine: str = fields.field("", label="Machine")
    freq_ghz: float | None = None
    torch_version: str = ""
    env: dict[str, str] = fields.field(factory=dict, label="Env")
    """Environment variables and scheduler options that the row names."""

    # what was measured
    mem_value: float | None = fields.field(None, label="Mem")
    mem_unit: str = ""
    """As printed: MiB, GiB, GB (which the tools behind such tables count in GiB)."""
    mem_scope: str = fields.field("", label="Mem of")
    """Which part of the job, where a table tells them apart: `1st node`, `all nodes`."""
    mem_measure: str = fields.field("", label="Mem is", names="mem measure, memory measure, mem is")
    """What was measured at the peak: `allocated` (in tensors), `reserved` (by the allocator), or `used` on the device."""
    sec_per_it: float | None = fields.field(None, label="Sec/it", unit="s")
    """In seconds; `time_unit` keeps what the heading or log line said."""
    time_unit: str = fields.field("", label="Time unit")
    tflops: float | None = fields.field(None, label="TFLOPs")
    formula: str = fields.field("", label="Formula")
    tflops_per: str = fields.field("", label="TFLOPs of")
    """process or node; empty when nobody said."""
    aggr_pflops: float | None = fields.field(None, label="Est. Aggr. PetaFLOPs")
    samples_per_s: float | None = fields.field(None, label="Samples/s")
    tokens_per_s: float | None = fields.field(None, label="Tokens/s")
    tokens_per_s_per_process: float | None = fields.field(None, label="Tokens/s/GPU")
    mfu: float | None = fields.field(None, label="MFU")
    """A share of the device's peak: 0.42, also where the table prints 42 %."""
    hfu: float | None = fields.field(None, label="HFU")
    loss: float | None = fields.field(None, label="Loss")
    iteration: int | None = fields.field(None, label="Iteration")

    # how it was written
    printed: dict[str, str] = field(default_factory=dict)
    """Column heading -> the cell's own text."""
    flags: tuple[str, ...] = fields.field((), label="Flags")
    """Marks such as ^ ^^ and a dagger."""
    notes: str = fields.field("", label="Notes")
    estimated: tuple[str, ...] = fields.field((), label="Estimated")
    """Figures that the table marks as worked out rather than measured; a row's other figures may still be measured."""
    inferred: tuple[str, ...] = fields.field((), label="Inferred")
    """Fields above that neither the row nor the text it stands under states, with a value all the same."""
    context: dict[str, Stated] = field(default_factory=dict)
    """What the text around a row states, by field: also where the row itself says otherwise, so that both can be compared."""
    extra: dict[str, str] = fields.field(factory=dict, label="Also")
    """Columns and settings that no field takes: heading -> text."""

    # what a trial of ours adds
    trial: dict[str, object] = field(default_factory=dict)
    iterations: tuple[dict, ...] = ()
    measurement: dict[str, object] = field(default_factory=dict)
    """How `sec_per_it` came about: the median's interval, how many iterations count, what ended the measuring."""
    memory: dict[str, object] = field(default_factory=dict)
    breakdown: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    host: dict[str, object] = field(default_factory=dict)
    forecast: dict[str, object] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return fields.plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, object], *, where: str = "record") -> Record:
        """From data that anybody wrote: finite, of the types above, and no figure below what can be measured."""
        record = fields.build(cls, bounded(data, where), where=where)
        for name in ABOVE_ZERO:
            value = getattr(record, name)
            if value is not None and not value > 0 and not (value == 0 and name == "mem_value"):
                raise BadInput(f"{where}.{name}: {value} must be above 0")
        for name, stated in record.context.items():
            if isinstance(stated.value, (list, dict)):
                raise BadInput(f"{where}.context.{name}.value: {fields.shown(stated.value)}, where one value was expected")
        if record.mem_unit not in MEMORY_UNITS:
            raise BadInput(f"{where}.mem_unit: {fields.shown(record.mem_unit)} is not one of {', '.join(MEMORY_UNITS[1:])}")
        return record

    def changed(self, values: Mapping[str, object]) -> Record:
        """With other values, in a fraction of the time of `dataclasses.replace`: of most rows something is inferred."""
        made = _Open(*_VALUES(self))
        for name, value in values.items():
            setattr(made, name, value)
        made.__class__ = Record  # of one layout
        return made  # type: ignore[no-any-return]

    @property
    def mem_gib(self) -> float | None:
        if self.mem_value is None:
            return None
        return self.mem_value / 1024 if self.mem_unit in ("MiB", "MB") else self.mem_value

    @property
    def world(self) -> int | None:
        if self.gpus is not None:
            return self.gpus
        return None if self.nodes is None else self.nodes * (self.procs_per_node or 1)


_FIELDS = tuple(one.name for one in dataclasses.fields(Record))
_VALUES = operator.attrgetter(*_FIELDS)
_Open: Any = dataclasses.make_dataclass("_Open", _FIELDS, slots=True)
"""A record that is being made: the same slots, which anybody may fill."""
