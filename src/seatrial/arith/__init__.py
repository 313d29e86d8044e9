"""Parameters, FLOPs by named formula, rates, and bytes by named part; no torch, no measurement.

    from seatrial import arith, presets
    m = presets.model("bloom-181b")
    arith.parameters(m).total / 1e9
    arith.tflops("sc21", m, samples=2048, sec_per_it=110.48, processes=384, recompute="full", tp=4, pp=12)
"""
from seatrial.arith.flops import (
    FORMULA,
    FORMULAS,
    TIE,
    Formula,
    Rates,
    aggregate_pflops,
    flops,
    per_parameter,
    rates,
    tflops,
)
from seatrial.arith.footprint import Footprint, footprint
from seatrial.arith.parameters import Parameters, label_sizes, parameters, stage_parameters

__all__ = ["FORMULA", "FORMULAS", "TIE", "Footprint", "Formula", "Parameters", "Rates", "aggregate_pflops", "flops",
           "footprint", "label_sizes", "parameters", "per_parameter", "rates", "stage_parameters", "tflops"]
