"""Engines behind the scripts of examples/engines: random layouts, and their own validation in a group that is not there."""
from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engines.each import MODEL, Data, Each

USUALLY: dict[str, tuple[Any, ...]] = {
    "dp": (1, 2, 2, 3, 4), "tp": (1,) * 15 + (2,), "pp": (1,) * 15 + (2,), "cp": (1,) * 25 + (2,), "mbs": (1, 1, 2, 3),
    "zero": (0, 1, 2, 3), "precision": ("fp32", "fp32", "fp32", "bf16", "bf16", "fp16"),
    "recompute": ("none", "none", "none", "full", "full", "selective"), "schedule": ("1f1b",) * 6 + ("gpipe",),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Script(Each):
    drawn: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Of a layout, in place of what is usual."""

    def draw(self, rng: random.Random) -> Data:
        layout: Data = {name: rng.choice(values) for name, values in {**USUALLY, **self.drawn}.items()}
        if layout["pp"] > 1 and rng.random() < 0.3:
            layout |= {"vp": rng.choice((2, 2, 3)), "schedule": "interleaved"}
        if layout["tp"] > 1 and rng.random() < 0.15:
            layout["sequence_parallel"] = True
        if layout["dp"] == 4 and rng.random() < 0.4:
            layout["zero_group"] = 2
        base = rng.choice(({"base": "tiny-llama"}, {"base": "tiny"}, {"base": "tiny", "tied": False}))
        model = {**MODEL, **base, "layers": rng.choice((3, 4, 6, 8, 8, 12)), "seq": rng.choice((18, 32)),
                 "heads": 4, "kv_heads": rng.choice((1, 2, 4, 4)), "ffn": rng.choice((96, 128, 128, 130))}
        if rng.random() < 0.03:
            model["positions"] = "alibi"
        return {"model": model, "batch": {"gbs": rng.choice((8, 12, 24, 24, 48, 48))}, "topology": layout,
                "execution": {"device": "cpu"}}

    @property
    def validation(self) -> Path:
        return Path(__file__).parent / "validate" / "fake_group.py"
