"""What a run computes with beside the trial itself: which kernels, and how weights and gradients are held.

    KernelConfig.of(device, "bf16", execution)                      what suits the device, before anything was tried on it
    replace(config, attention="flash")                              one switch changed, for a benchmark or a test

Plain data: rank 0 chooses (`choose.py`), all ranks run the same, and the events say what it was. On a CPU nothing is switched
on: there the blocks are those of `core/model.py`, number for number.
"""
from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from seatrial.engine.fast.kernels import NAMES
from seatrial.spec import Execution, Model, Trial

DEFAULT = Execution()


def fusable(model: Model) -> bool:
    """Whether a dense block can run as one function."""
    return (model.architecture.mlp in ("gelu", "swiglu") and not model.is_latent and not model.sinks
            and not (model.normed_qk and model.layernorm))


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """One GEMM's algorithm (`tuned_gemm.py`), and milliseconds with the clock settled."""

    algorithm: str
    """Empty where torch's own was the fastest."""
    torch_ms: float
    ms: float


@dataclass(frozen=True, kw_only=True)
class KernelConfig:
    fused: bool = False
    """A dense block is one function with its backward pass written out (`block.py`)."""
    triton: tuple[str, ...] = ()
    """Kernels that are Triton's; the others are the same functions in plain torch."""
    logits_in_16_bits: bool = False
    """The loss works on 16-bit logits, which become their own gradient in place."""
    one_pass_update: bool = False
    """AdamW and the gradients' norm by kernels of our own; `narrow_gradients` and `split_masters` need it."""
    narrow_gradients: bool = False
    """Gradients stay in 16 bits where nothing is added to them: one micro-batch, one replica."""
    fp32_gradient_gemm: bool = False
    """Where gradients are added up, GEMMs of 16-bit operands come out in fp32."""
    split_masters: bool = False
    """A master is its bf16 weight and the 16 bits that are missing to fp32 (`masters.py`); with `adamw-fused`."""
    release_gradients: bool = False
    """Gradients' memory goes back to the allocator after the update: activations of the next step can have it."""
    attention: str = "default"
    """cudnn, flash or efficient: SDPA's kernels; `measured`: the fastest on the run's shape, `default`: torch's choice."""
    fast_accumulation: Literal["none", "forward", "all"] = "all"
    """Which fp8 GEMMs add up without the detour through fp32 registers."""
    fp8_head: bool = False
    """In fp8 the GEMMs with the vocabulary's matrix, too."""
    logits_bytes: int = 0
    """Logits of so many bytes are made at once, where that is more than `execution.logits_chunk` tokens."""
    tuned_gemm: bool = False
    """Each GEMM by the fastest of cuBLASLt's algorithms (`tuned_gemm.py`), where torch takes the heuristic's first."""
    gemm_algorithms: dict[str, Tuned] = field(default_factory=dict)
    """What that came to on rank 0, by the GEMM's name; for this version of the library alone."""
    cublaslt_version: int = 0
    experts: bool = False
    """Experts gated by SwiGLU are one function with its backward pass written out (`experts.py`)."""
    grouped_gemm: dict[str, str] = field(default_factory=dict)
    """How each GEMM of experts is computed (`grouped.py`), the fastest on rank 0; one that is not named is a loop."""

    @classmethod
    def of(cls, device: torch.device, precision: str, execution: Execution = DEFAULT) -> KernelConfig:
        if device.type != "cuda":
            return cls()
        half, bf16 = precision != "fp32", precision in ("bf16", "fp8")
        # A GPU in fp32 has torch's kernels, but none of torch's updates takes moments in 16 bits beside masters in 32.
        triton = NAMES if half else ("adamw",) if execution.moments != "fp32" else ()
        return cls(fused=half and not execution.compile, triton=triton, logits_in_16_bits=half, one_pass_update=bool(triton),
                   narrow_gradients=bf16, fp32_gradient_gemm=half, split_masters=bf16,
                   release_gradients=True, attention="measured", fp8_head=precision == "fp8", logits_bytes=2**31 if half else 0,
                   tuned_gemm=half and not execution.compile, experts=half and not execution.compile)

    def logits_tokens(self, vocab_rows: int) -> int:
        """How many tokens' logits fit into `logits_bytes`, as a power of two."""
        fit = self.logits_bytes // (2 * vocab_rows)
        return 2 ** (fit.bit_length() - 1) if fit else 0

    def logits_chunk(self, trial: Trial) -> int:
        """Tokens whose logits one rank makes at once."""
        t, m = trial.topology, trial.model
        most = max(trial.execution.logits_chunk, self.logits_tokens(m.padded_vocab(t.tp) // t.tp))
        return min(most, t.mbs * m.seq // t.cp)

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_plain(cls, found: dict[str, Any]) -> KernelConfig:
        algorithms = {name: Tuned(**tuned) for name, tuned in found["gemm_algorithms"].items()}
        return cls(**{**found, "triton": tuple(found["triton"]), "gemm_algorithms": algorithms})

    def summary(self) -> dict[str, Any]:
        """For the events: of a tuned GEMM what it gained, not the algorithm's bytes."""
        gains = {name: f"{tuned.ms:.3f} ms instead of {tuned.torch_ms:.3f}" for name, tuned in self.gemm_algorithms.items()}
        return {**self.plain(), "gemm_algorithms": gains}
