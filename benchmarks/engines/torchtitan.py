"""torchtitan's own: the layouts that it has on a CPU, and what random ones are drawn from."""
from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.engines.each import MODEL, SP, Data, Each

LAYOUTS: tuple[Data, ...] = (
    {"dp": 2}, {"dp": 2, "zero": 2}, {"dp": 2, "zero": 3}, {"dp": 4, "zero": 3, "zero_group": 2}, {"tp": 2, **SP},
    {"tp": 2, "dp": 2, "zero": 3, **SP}, {"pp": 2}, {"pp": 2, "schedule": "gpipe"},
    {"pp": 2, "vp": 2, "schedule": "interleaved"}, {"pp": 2, "stage_layers": [3, 5]}, {"pp": 3, "mbs": 2},
    {"pp": 2, "dp": 2, "zero": 3}, {"pp": 2, "tp": 2, "dp": 2, "zero": 3, **SP},
    {"dp": 2, "zero": 3, "precision": "bf16"}, {"dp": 2, "precision": "bf16"}, {"dp": 2, "zero": 3, "recompute": "full"},
    {"dp": 2, "recompute": "selective", "mbs": 2},
)  # fmt: skip
REFUSED: tuple[Data, ...] = (
    {"model": MODEL, "batch": {"gbs": 12}, "topology": {"tp": 3, **SP}},
    {"model": MODEL, "batch": {"gbs": 10}, "topology": {"dp": 2, "mbs": 2, "zero": 3}},
)
SWEEP: Data = {
    "name": "titan", "model": {**MODEL, "hidden": 128, "ffn": 256, "seq": 64}, "batch": {"gbs": 16},
    "measure": {"iterations_max": 8, "known_to": 0.02}, "limits": {"time_s": 240},
    "axes": {"case": [
        {"name": f"{where}-m{mbs}", "topology": {**layout, "mbs": mbs}}
        for where, layout in (("ddp", {"dp": 2}), ("fsdp", {"dp": 2, "zero": 3}), ("tp", {"tp": 2, **SP}), ("pp", {"pp": 2}))
        for mbs in (1, 2, 4)]},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Titan(Each):
    def draw(self, rng: random.Random) -> Data:
        layout: Data = {name: rng.choice((1, 1, 1, 2, 2, 3, 4)) for name in ("dp", "tp", "pp")}
        layout |= {"mbs": rng.choice((1, 1, 2, 3)), "zero": rng.choice((0, 2, 3)), "cp": rng.choice((1, 1, 1, 1, 2)),
                   "precision": rng.choice(("fp32", "fp32", "bf16")), "recompute": rng.choice(("none", "selective", "full")),
                   "schedule": rng.choice(("1f1b", "gpipe")), "sequence_parallel": layout["tp"] > 1}  # fmt: skip
        if layout["pp"] > 1 and rng.random() < 0.4:
            layout |= {"vp": rng.choice((2, 2, 3)), "schedule": "interleaved"}
        if layout["zero"] and layout["dp"] == 4 and layout["cp"] == 1 and rng.random() < 0.5:
            layout["zero_group"] = 2
        model = {**MODEL, "layers": rng.choice((2, 5, 7, 8, 12)), "seq": rng.choice((18, 24, 32, 36, 48, 96)),
                 "kv_heads": rng.choice((1, 2, 4)), "heads": 4, "ffn": rng.choice((96, 128, 130))}
        stages = layout["pp"] * layout.get("vp", 1)
        if stages > 1 and rng.random() < 0.2:
            cuts = sorted(rng.randint(0, model["layers"]) for _ in range(stages - 1))
            layout["stage_layers"] = [high - low for low, high in zip([0, *cuts], [*cuts, model["layers"]])]
        return {"model": model, "batch": {"gbs": rng.choice((6, 8, 12, 24, 48))}, "topology": layout,
                "execution": {"device": "cpu"}}


ENGINE = Titan(name="torchtitan", layouts=LAYOUTS, refused=REFUSED, sweep=SWEEP,
               faulty=({"dp": 2}, {"dp": 2, "zero": 3}, {"tp": 2, **SP}, {"pp": 2}, {"dp": 4, "zero": 3},
                       {"pp": 2, "dp": 2, "zero": 3}))
