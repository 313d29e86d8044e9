"""accelerate's own: DDP and FSDP2 of a transformers model."""
from __future__ import annotations

from benchmarks.engines.each import MODEL, Data
from benchmarks.engines.scripts import Script

LAYOUTS: tuple[Data, ...] = (
    {"dp": 2}, {"dp": 2, "zero": 2}, {"dp": 2, "zero": 3}, {"dp": 2, "zero": 3, "recompute": "full"},
    {"dp": 2, "precision": "bf16"}, {"dp": 2, "zero": 3, "precision": "bf16"}, {"dp": 4, "zero": 3, "mbs": 2},
    {"dp": 2, "recompute": "full", "mbs": 4},
)  # fmt: skip
REFUSED: tuple[Data, ...] = ({"model": MODEL, "batch": {"gbs": 10}, "topology": {"dp": 2, "mbs": 2, "zero": 3}},)
ENGINE = Script(name="accelerate", layouts=LAYOUTS, refused=REFUSED, drawn={"zero": (0, 0, 1, 2, 2, 3, 3, 3)},
                faulty=({"dp": 2}, {"dp": 2, "zero": 3}))
