"""The plain FSDP2 script's own: data parallelism in all its kinds, and nothing else."""
from __future__ import annotations

from benchmarks.engines.each import MODEL, Data
from benchmarks.engines.scripts import Script

Z3 = {"dp": 2, "zero": 3}
LAYOUTS: tuple[Data, ...] = (
    {"dp": 1}, {"dp": 2}, {"dp": 2, "mbs": 4}, {"dp": 2, "zero": 2}, Z3, {"dp": 4, "zero": 3},
    {"dp": 4, "zero": 2, "zero_group": 2}, {"dp": 4, "zero": 3, "zero_group": 2},
    {**Z3, "recompute": "full"}, {**Z3, "precision": "bf16"}, {"dp": 2, "precision": "bf16"}, {"dp": 2, "recompute": "full"},
    {"dp": 2, "zero": 2, "mbs": 2, "precision": "bf16"},
    {"dp": 1, "zero": 3},
)  # fmt: skip
REFUSED: tuple[Data, ...] = (
    {"model": MODEL, "batch": {"gbs": 10}, "topology": {"dp": 2, "mbs": 2, "zero": 3}},
    {"model": MODEL, "batch": {"gbs": 9}, "topology": {"dp": 2}},
)
ENGINE = Script(name="fsdp2", layouts=LAYOUTS, refused=REFUSED, drawn={"zero": (0, 0, 1, 2, 2, 3, 3, 3)},
                faulty=({"dp": 2}, Z3, {"dp": 2, "zero": 2}, {"dp": 4, "zero": 3}))
