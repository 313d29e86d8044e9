"""What surrounds the processes, how an engine computes, and any program in its place."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from seatrial import fields
from seatrial.errors import BadInput

Attention = Literal["stored", "fused", "fused-hopper"]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What surrounds the processes and may change their speed."""

    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables set for the trial (LD_PRELOAD, OMP_NUM_THREADS, CUDA_LAUNCH_BLOCKING, …)."""
    python: str | None = None
    """Another interpreter, for comparing versions of PyTorch."""
    scheduler: dict[str, str] = field(default_factory=dict)
    """Options for the batch system (clock, retention state, partition)."""
    clock_ghz: float | None = fields.field(None, label="Freq", kind="frequency", column="freq_ghz", unit="GHz", word="",
        title="Clock (GHz)",
        names="freq, frequency, clock, clock speed, cpu freq, freq ghz")
    """Of the processors, where the batch system sets it."""
    torch: str | None = fields.field(None, label="PyTorch", column="torch_version",
        names="torch, pytorch, torch version, pytorch version")
    """Version of PyTorch, for the record."""

    def __post_init__(self) -> None:
        fields.positive("environment", clock_ghz=self.clock_ghz)


OVERLAPS = ("gradients", "parameters", "tensor")
"""Collectives that an engine may hide behind computation."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How an engine computes a trial: what changes its time or its memory and is neither model nor layout."""

    optimizer: Literal["adamw-fused", "adamw-plain"] = "adamw-fused"
    """`adamw-plain` is one operation at a time, for comparison."""
    moments: Literal["fp32", "bf16"] = "fp32"
    """How AdamW's two means are held; in bf16 they are computed in fp32 and rounded once, 4 bytes per parameter less."""
    device: Literal["auto", "cpu", "cuda"] = fields.field("auto", label="Device", names="execution device")
    """auto takes CUDA where it is there."""
    compile: bool = fields.field(False, label="Compile", kind="yesno", title="torch.compile",
        names="compile, compiled, torch compile")
    """torch.compile on the layers."""
    bucket_mib: float = fields.field(32.0, label="Bucket", kind="figure", unit="MiB", title="Gradient bucket (MiB)",
        names="bucket mib, bucket size")
    """Size of one flat gradient bucket."""
    logits_chunk: int = fields.field(1024, label="Logits", kind="count", title="Tokens of logits at once",
        names="logits chunk")
    """Tokens whose logits are held at once in the loss."""
    threads: int | None = fields.field(None, label="Threads", kind="count", title="Threads per process",
        names="threads, omp threads")
    """Compute threads per process; by default the cores divided by the processes of the node."""
    attention: Attention | None = fields.field(None, label="Attention",
        names="attention, attention kernel, attention implementation, attn implementation, attn impl, attention backend")
    """The kernel of attention: stored keeps the scores; fused is FlashAttention 2 and its like; fused-hopper is the generation
    after it (FlashAttention 3, cuDNN). By default as the engine has it on the device."""
    overlap: str | None = fields.field(None, label="Overlap", names="overlap, comm overlap, communication overlap")
    """What travels beside computation where the engine leaves the choice: none, all, or some of gradients, parameters, tensor
    with + between. By default as the engine has it."""

    def __post_init__(self) -> None:
        if self.overlap is not None and not set(self.overlap.split("+")) <= {"none", "all", *OVERLAPS}:
            raise BadInput(f"execution.overlap {self.overlap!r}: none, all, or some of {', '.join(OVERLAPS)} with + between")
        fields.positive("execution", bucket_mib=self.bucket_mib, logits_chunk=self.logits_chunk, threads=self.threads)

    @property
    def update(self) -> str:
        """How weights are updated, where that is not the usual way: what a table's Optimizer column says."""
        unusual = [self.optimizer] if self.optimizer != Execution.optimizer else []
        return ", ".join([*unusual, f"moments in {self.moments}"] if self.moments != Execution.moments else unusual)


@dataclass(frozen=True, kw_only=True)
class Command:
    """Any program as an engine: its arguments with {tp}, {gbs}, {run_dir} and the like in them, never seen by a shell."""

    argv: tuple[str, ...]
    """The program and its arguments."""
    per: Literal["rank", "node"] = "node"
    """Whether it is started once a rank, or once a node because it starts the ranks itself (torchrun)."""

    def __post_init__(self) -> None:
        if not self.argv:
            raise BadInput("command.argv: names no program")
