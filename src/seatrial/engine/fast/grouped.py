"""The GEMMs of a layer of experts, each by the fastest of what the device has: torch's grouped product, our kernels.

    gemm = GroupedGemm({"up": "torch", "up_weight": TILES[1].name}, kernels)
    gemm.rows("up", rows_RH, up_EMH, ends_E, transposed=True)
    found, note = autotune(GroupedShape(...), device, kernels)           choices by name, measured at even load

A way that is not within rounding of plain torch is not taken; where none is, plain torch's loop over the experts runs.
"""
from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.fast.kernels.verified import CLOSE

TORCH, LOOP = "torch", ""
"""torch's own grouped product, and a loop over the experts, for which the host waits."""
ROUNDS, WARM = 5, 2
"""All ways take turns, so that a clock which is rising or falling is the same for each."""


@dataclass(frozen=True, kw_only=True)
class GroupedShape:
    """Of one rank's experts at even load."""

    rows: int
    experts: int
    hidden: int
    width: int
    """An expert's, of which this rank has so much."""
    dtype: torch.dtype
    gradients: torch.dtype


def torch_grouped(rows_RK: Tensor, matrices_EMN: Tensor, ends_E: Tensor, *, transposed: bool = False) -> Tensor:
    return F.grouped_mm(rows_RK, matrices_EMN.mT if transposed else matrices_EMN, offs=ends_E)


def torch_grouped_gradient(left_RM: Tensor, right_RN: Tensor, ends_E: Tensor, out_EMN: Tensor, *, add: bool) -> None:
    found = F.grouped_mm(left_RM.t(), right_RN, offs=ends_E)
    out_EMN.add_(found) if add else out_EMN.copy_(found)


class GroupedGemm:
    """`choices`: a way for each of NAMES; one that is not named is plain torch's."""

    def __init__(self, choices: Mapping[str, str] | None = None, kernels: Kernels | None = None):
        self.choices, ways = dict(choices or {}), _ways(kernels or Kernels())
        unknown = {name: way for name, way in self.choices.items() if name not in NAMES or way not in ways[_kind(name)]}
        assert not unknown, unknown
        self._of = {name: ways[_kind(name)][self.choices.get(name, LOOP)] for name in NAMES}

    def rows(self, name: str, rows_RK: Tensor, matrices_EMN: Tensor, ends_E: Tensor, *, transposed: bool = False) -> Tensor:
        return self._of[name](rows_RK, matrices_EMN, ends_E, transposed=transposed)  # type: ignore[no-any-return]

    def gradient(self, name: str, left_RM: Tensor, right_RN: Tensor, ends_E: Tensor, out_EMN: Tensor, *, add: bool) -> None:
        self._of[name](left_RM, right_RN, ends_E, out_EMN, add=add)


NAMES = ("up", "down", "up_input", "down_input", "up_weight", "down_weight")
"""Forward, for the input and for the weight."""


def _kind(name: str) -> str:
    return "grouped_gradient" if name.endswith("weight") else "grouped"


def _ways(kernels: Kernels) -> dict[str, dict[str, Callable[..., Any]]]:
    """By kind and name. Triton's are there where `kernels` has them: they were held against plain torch."""
    plain: dict[str, Callable[..., Any]] = {"grouped": Kernels.grouped, "grouped_gradient": Kernels.grouped_gradient}
    own: dict[str, Callable[..., Any]] = {"grouped": torch_grouped, "grouped_gradient": torch_grouped_gradient}
    found: dict[str, dict[str, Callable[..., Any]]] = {}
    for kind in plain:
        found[kind] = {LOOP: plain[kind]}
        if hasattr(F, "grouped_mm"):
            found[kind][TORCH] = own[kind]
        if getattr(kernels, kind) is not plain[kind]:
            from seatrial.engine.fast.kernels.triton_grouped import TILES

            found[kind].update({tile.name: _with_tile(getattr(kernels, kind), tile) for tile in TILES})
    return found


def _with_tile(kernel: Callable[..., Any], tile: object) -> Callable[..., Any]:
    return lambda *given, **named: kernel(*given, **named, tile=tile)


def autotune(shape: GroupedShape, device: torch.device, kernels: Kernels) -> tuple[dict[str, str], str]:
    """The fastest way of each GEMM that agrees with plain torch, and what it came to."""
    ways, choices, notes = _ways(kernels), dict[str, str](), []
    for name in NAMES:
        took = _measured(_case(name, shape, device), ways[_kind(name)], device)
        best = min(took, key=lambda way: took[way])
        choices[name] = best
        rest = f" instead of {took[TORCH]:.3f} by torch's" if best != TORCH and TORCH in took else ""
        notes.append(f"{name} {took[best]:.3f} ms by {best or 'a loop'}{rest}")
    return choices, "; ".join(notes)


def refusal(choices: Mapping[str, str], shape: GroupedShape, device: torch.device, kernels: Kernels) -> str | None:
    """Why this device cannot run what was chosen."""
    ways = _ways(kernels)
    for name, way in choices.items():
        if way not in ways[_kind(name)] or not _agrees(_case(name, shape, device), ways[_kind(name)][way], ways[_kind(name)][LOOP]):
            return f"the experts' GEMM {name} by {way or 'a loop'}"
    return None


Case = Callable[[Callable[..., Any]], Tensor]
"""One GEMM by a way, on the same numbers each time."""


def _case(name: str, shape: GroupedShape, device: torch.device) -> Case:
    generator = torch.Generator(device=device).manual_seed(0)

    def some(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, device=device, dtype=torch.float32).to(shape.dtype)

    s = shape
    ends = (torch.arange(1, s.experts + 1, device=device) * s.rows // s.experts).int()
    up, down = (2 * s.width, s.hidden), (s.width, s.hidden)
    m, n = up if name.startswith("up") else down
    if name.endswith("weight"):
        left, right = some(s.rows, m), some(s.rows, n)
        out = torch.empty(s.experts, m, n, device=device, dtype=s.gradients)

        def gradient(way: Callable[..., Any]) -> Tensor:
            way(left, right, ends, out, add=False)
            return out

        return gradient
    matrices, transposed = some(s.experts, m, n), name in ("up", "down_input")
    rows = some(s.rows, n if transposed else m)
    return lambda way: way(rows, matrices, ends, transposed=transposed)


def _agrees(case: Case, way: Callable[..., Any], plain: Callable[..., Any]) -> bool:
    try:
        expected = case(plain).clone()
        found = case(way)
        return bool((found - expected).norm(dtype=torch.float32) <= CLOSE * expected.norm(dtype=torch.float32))
    except Exception:  # whatever a compiler, a driver or torch raises: this way is not taken
        return False


def _measured(case: Case, ways: Mapping[str, Callable[..., Any]], device: torch.device) -> dict[str, float]:
    """Milliseconds of each way that agrees; the loop's where no other does."""
    usable = {name: way for name, way in ways.items() if name != LOOP and _agrees(case, way, ways[LOOP])} or {LOOP: ways[LOOP]}
    marks: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in usable}
    for _ in range(ROUNDS):
        for name, way in usable.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            case(way)
            end.record()
            marks[name].append((start, end))
    torch.cuda.synchronize(device)
    return {name: statistics.median(a.elapsed_time(b) for a, b in seen[WARM:]) for name, seen in marks.items()}
