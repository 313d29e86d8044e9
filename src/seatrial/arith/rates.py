"""What a time per iteration means: TFLOPs per process and node, aggregate, samples and tokens a second, MFU and HFU."""
from __future__ import annotations

from dataclasses import dataclass

from seatrial.arith.flops import flops
from seatrial.errors import BadInput
from seatrial.spec import Model

TIE = 0.01
"""Under this nobody can tell two apart: repeats of one configuration mostly differ by 0.4 %, and some by much more."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    formula: str
    tflops: float
    """Per process."""
    tflops_per_node: float
    pflops: float
    """Of all processes together, 1 PFLOPs = 1000 TFLOPs."""
    samples_per_s: float
    tokens_per_s: float
    mfu: float | None
    """`model` FLOPs against the device's peak, where a peak is known."""
    hfu: float | None
    """The same with what is recomputed."""


def rates(formula: str, model: Model, *, samples: float, sec_per_it: float, processes: int, procs_per_node: int = 1,
          recompute: str = "none", tp: int = 1, pp: int = 1, peak_tflops: float | None = None) -> Rates:
    if not sec_per_it > 0 or processes < 1:
        raise BadInput(f"{sec_per_it} s per iteration on {processes} processes: both must be above 0")

    def per_process(name: str) -> float:
        return flops(name, model, samples=samples, recompute=recompute, tp=tp, pp=pp) / (sec_per_it * processes * 1e12)

    each = per_process(formula)
    return Rates(
        formula=formula, tflops=each, tflops_per_node=each * procs_per_node, pflops=each * processes / 1000,
        samples_per_s=samples / sec_per_it, tokens_per_s=samples * model.seq / sec_per_it,
        mfu=None if peak_tflops is None else per_process("model") / peak_tflops,
        hfu=None if peak_tflops is None else per_process("hardware") / peak_tflops,
    )


def aggregate_pflops(tflops: float, processes: int, *, divisor: float = 1000.0) -> float:
    """PetaFLOPs of all processes; the hand-kept tables divide by 1024, which is 2.4 % low."""
    return tflops * processes / divisor
