"""What to measure: the shapes of given or usual models, sizes and repeats by device and mode.

    options = ProbeOptions.of(models=[], tps=(), mbss=(), device="cpu", full=False)
    options.shapes, options.budget_s
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from seatrial import presets
from seatrial.probe import kernels, shapes
from seatrial.probe.shapes import RankShape
from seatrial.probe.timing import Item
from seatrial.spec import Model

KIB, MIB = 2**10, 2**20

USUAL = {
    "cpu": (("tiny", (1, 2), (1, 4)), ("gpt2-124m", (1, 2), (1,))),
    "cuda": (("gpt-1.3b", (1,), (1, 16)), ("bloom-181b", (8, 4), (1, 4)), ("llama3-8b", (1, 2, 4, 8), (1,)),
             ("gpt2-124m", (1,), (8,)), ("gpt-30b", (1, 4), (1,))),
}
"""Model, TP and micro-batch where nobody says which: widths from small to large, whole and cut."""

TYPES = {"cpu": ("fp32", "bf16"), "cuda": ("bf16", "fp8", "fp32", "fp16")}
"""Of GEMMs, the usual one first; the others on fewer shapes."""


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    device: str
    full: bool
    shapes: tuple[RankShape, ...]
    budget_s: float
    """What does not fit into this is listed, not measured."""
    target_s: float
    """Of the repeats of one figure."""

    @classmethod
    def of(cls, *, models: Sequence[Model] = (), tps: Sequence[int] = (), mbss: Sequence[int] = (), device: str,
           full: bool = False, budget_s: float | None = None) -> ProbeOptions:
        wanted: list[RankShape] = []
        if models:
            wanted = shapes.possible(models, tps or (1, 2, 4, 8), mbss or (1, 4))
        else:
            for name, usual_tps, usual_mbss in USUAL[device]:
                wanted += shapes.possible([presets.model(name)], tps or usual_tps, mbss or usual_mbss)
        usual_s = {("cpu", False): 40.0, ("cpu", True): 300.0, ("cuda", False): 75.0, ("cuda", True): 400.0}[device, full]
        return cls(device=device, full=full, shapes=tuple(wanted), budget_s=budget_s or usual_s,
                   target_s=(0.25 if full else 0.04) if device == "cpu" else (0.2 if full else 0.05))

    @property
    def head_tokens(self) -> int:
        """Logits of this many tokens: on a CPU more would take seconds."""
        return 2048 if self.device == "cuda" else 128

    @property
    def stream_sizes(self) -> tuple[int, ...]:
        near = (64 * KIB, MIB, 16 * MIB) if self.device == "cpu" else (4 * MIB, 64 * MIB, 512 * MIB)
        return (*near, 4 * near[-1]) if self.full else near

    @property
    def message_sizes(self) -> tuple[int, ...]:
        if self.device == "cpu":
            return (4 * KIB, 64 * KIB, MIB, 8 * MIB, *((32 * MIB, 128 * MIB) if self.full else (32 * MIB,)))
        return (64 * KIB, MIB, 16 * MIB, 128 * MIB, *((512 * MIB,) if self.full else ()))

    @property
    def most_message(self) -> int:
        """Of a message between two stages."""
        return 16 * MIB if self.device == "cpu" else 128 * MIB

    def short(self, device: torch.device) -> Iterator[Item]:
        """What is always needed and quickly measured."""
        main = TYPES[self.device][0]
        tokens, vocab, parameters = (256, 16384, 4 * MIB) if self.device == "cpu" else (2048, 50304, 128 * MIB)
        yield kernels.launches(device)
        yield from kernels.streams(self.stream_sizes, main, device)
        yield kernels.cross_entropy(tokens, vocab, main, device)
        yield kernels.optimizer(parameters, main, device)
        if self.device == "cuda":
            yield kernels.optimizer(parameters, "fp32", device)
            yield from kernels.copies((MIB, 256 * MIB), device)

    def long(self, device: torch.device) -> Iterator[Item]:
        """GEMMs and attention, layer by layer, so that a budget cuts off the last layers and not all of a kind."""
        main, *others = TYPES[self.device]
        # fp8 is a property of the device, not of torch: other devices would fail at every GEMM.
        if self.device == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
            others.remove("fp8")
        seen: set[str] = set()
        for i, shape in enumerate(self.shapes):
            for dtype in (main, *(others if self.full or i == 0 or shape.model != self.shapes[i - 1].model else ())):
                for item in self._layer(shape, dtype, device):
                    if item.label not in seen:
                        seen.add(item.label)
                        yield item

    def _layer(self, shape: RankShape, dtype: str, device: torch.device) -> Iterator[Item]:
        model, tp, mbs = shape
        usual = dtype == TYPES[self.device][0]
        if usual:
            yield from kernels.attentions([shapes.attention(model, tp=tp, mbs=mbs)], dtype, device)
        yield from kernels.gemms(shapes.gemms(model, tp=tp, mbs=mbs), dtype, device)
        if not usual:
            return
        yield from kernels.gemms(shapes.head(model, tp=tp, tokens=min(self.head_tokens, mbs * model.seq)), dtype, device)
        if self.full or self.device == "cuda":
            yield from kernels.gemms(shapes.stored(model, tp=tp, mbs=mbs), dtype, device)
