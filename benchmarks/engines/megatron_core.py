"""Megatron-core's own: TP, PP with virtual stages, its distributed optimizer."""
from __future__ import annotations

from benchmarks.engines.each import MODEL, Data
from benchmarks.engines.scripts import Script

VP = {"pp": 2, "vp": 2, "schedule": "interleaved"}
LAYOUTS: tuple[Data, ...] = (
    {"dp": 2}, {"dp": 2, "zero": 1}, {"dp": 2, "mbs": 2, "zero": 1, "precision": "bf16"}, {"tp": 2},
    {"tp": 2, "precision": "bf16"}, {"dp": 4, "zero": 1, "zero_group": 2}, {"tp": 2, "recompute": "selective"}, {"pp": 2},
    {"tp": 2, "pp": 2, "recompute": "selective", "recompute_modules": "core_attn+mlp"},
    {"pp": 4}, {"pp": 2, "recompute": "full"}, VP, {**VP, "dp": 2, "zero": 1},
    {"tp": 2, "pp": 2}, {"tp": 2, "dp": 2, "zero": 1}, {"pp": 2, "dp": 2, "zero": 1}, {"tp": 4}, {"tp": 2, **VP},
)  # fmt: skip
REFUSED: tuple[Data, ...] = (
    {"model": MODEL, "batch": {"gbs": 12}, "topology": {"tp": 3}},
    {"model": {**MODEL, "layers": 3}, "batch": {"gbs": 16}, "topology": {"pp": 2}},
    {"model": MODEL, "batch": {"gbs": 10}, "topology": {"dp": 2, "mbs": 2}},
)
ENGINE = Script(name="megatron-core", layouts=LAYOUTS, refused=REFUSED,
                drawn={"tp": (1, 1, 2, 2, 2, 3, 4, 4), "pp": (1, 1, 2, 2, 3, 4), "zero": (0, 0, 0, 1, 1, 1, 1, 1, 1, 2),
                       "precision": ("fp32", "bf16", "bf16", "fp32", "fp32", "fp32", "fp32", "fp16")},
                faulty=({"dp": 2}, {"dp": 2, "zero": 1}, {"tp": 2}, {"pp": 2}, {"dp": 2, "pp": 2}))
