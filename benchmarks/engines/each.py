"""What the parts ask of an engine: its layouts, what random ones are drawn from, what breaks it.

    engine = each("torchtitan")         an `Each`, or `Usual` layouts for one without a file of its own
"""
from __future__ import annotations

import random
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from seatrial.engines import ENGINES, homes

Data = dict[str, Any]
SP = {"sequence_parallel": True}
USUAL: tuple[Data, ...] = (
    {"dp": 2}, {"dp": 2, "zero": 1}, {"dp": 2, "zero": 2}, {"dp": 2, "zero": 3}, {"dp": 2, "zero": 3, "recompute": "full"},
    {"dp": 4, "zero": 3, "zero_group": 2}, {"dp": 2, "zero": 3, "precision": "bf16"}, {"tp": 2}, {"tp": 2, **SP},
    {"tp": 2, "dp": 2, "zero": 3, **SP}, {"tp": 2, "dp": 2}, {"pp": 2}, {"pp": 2, "zero": 1, "dp": 2},
    {"pp": 2, "dp": 2, "zero": 3}, {"pp": 2, "vp": 2, "schedule": "interleaved"},
    {"pp": 2, "schedule": "gpipe"}, {"pp": 4}, {"pp": 2, "tp": 2}, {"pp": 3},
    {"pp": 2, "tp": 2, **SP}, {"dp": 2, "precision": "bf16"}, {"pp": 2, "stage_layers": [3, 5]}, {"dp": 2, "mbs": 2},
)  # fmt: skip
MODEL = {"base": "tiny-llama", "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 32}
"""Small enough that a step is start-up alone."""


@dataclass(frozen=True, kw_only=True)
class Each:
    name: str
    layouts: tuple[Data, ...] = USUAL
    model: Data = field(default_factory=lambda: MODEL)
    faulty: tuple[Data, ...] = ({"dp": 2}, {"dp": 2, "zero": 3})
    """Layouts that faults are put into."""
    refused: tuple[Data, ...] = ()
    """Whole trials that the engine itself must refuse when it starts, our rules put aside."""
    sweep: Data = field(default_factory=dict)
    """Of the part `tune`: the tables of a sweep's file."""

    def draw(self, rng: random.Random) -> Data:
        """A random trial that its configuration can say, legal or not."""
        raise SystemExit(f"{self.name}: no random layouts are drawn for it")

    @property
    def adapter(self) -> Any:
        return ENGINES.get(self.name)()

    @property
    def python(self) -> str:
        """The Python that has it; empty where it is not installed."""
        return "python" if self.name == "seatrial" else homes.found(self.name, self.adapter.module)

    @property
    def validation(self) -> Path:
        return Path(__file__).parent / "validate" / f"{self.name.replace('-', '_')}.py"


def each(name: str) -> Each:
    own = name.replace("-", "_")
    if not (Path(__file__).parent / f"{own}.py").exists():
        return Each(name=name)
    found: Each = import_module(f"benchmarks.engines.{own}").ENGINE
    return found


def label(layout: Data) -> str:
    return " ".join(f"{key} {value}" for key, value in layout.items())
