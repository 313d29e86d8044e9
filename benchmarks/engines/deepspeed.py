"""DeepSpeed's own: ZeRO 0 to 3, and its pipeline with ZeRO 0 and 1."""
from __future__ import annotations

from benchmarks.engines.each import MODEL, Data
from benchmarks.engines.scripts import Script

PP = {"pp": 2, "dp": 2}
LAYOUTS: tuple[Data, ...] = (
    {"dp": 2}, {"dp": 2, "zero": 1}, {"dp": 2, "zero": 2}, {"dp": 2, "zero": 3}, {"dp": 4, "zero": 3, "mbs": 2},
    {"dp": 2, "zero": 3, "recompute": "full"}, {"dp": 2, "zero": 1, "precision": "bf16"},
    {"dp": 2, "zero": 2, "precision": "bf16"}, {"dp": 2, "zero": 3, "precision": "bf16"}, {"pp": 2},
    {"pp": 2, "recompute": "full"}, PP, {**PP, "zero": 1},
    {**PP, "zero": 1, "precision": "bf16"}, {"pp": 3}, {"pp": 4},
)  # fmt: skip
REFUSED: tuple[Data, ...] = (
    {"model": MODEL, "batch": {"gbs": 10}, "topology": {"dp": 2, "mbs": 2, "zero": 3}},
    {"model": MODEL, "batch": {"gbs": 16}, "topology": {"pp": 2, "zero": 2}},
)
ENGINE = Script(name="deepspeed", layouts=LAYOUTS, refused=REFUSED, drawn={"pp": (1, 1, 1, 2, 3, 4)},
                faulty=({"dp": 2}, {"dp": 2, "zero": 2}, {"dp": 2, "zero": 3}, {"pp": 2}, {**PP, "zero": 1}))
