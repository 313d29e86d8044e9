"""The GEMMs of experts, each by the fastest of what the device has: torch's grouped product, our kernels, one after the other.

    grouped = FastGrouped(choices, kernels)                   an `Ops.grouped`
    choices, note = autotune(GroupedShape(...), device, kernels, gemm)      a way for each GEMM, measured at drawn loads

A way that is not within rounding of plain torch, on experts of uneven load and one without any, is not taken. For a loop over
the experts the host must wait until it knows their loads; it is taken where it is clearly faster, or nothing else works.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seatrial.engine.core.ops import Gemm, PlainGemm
from seatrial.engine.fast import turns
from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.fast.kernels.verified import CLOSE

TORCH, LOOP = "torch", "loop"
"""torch's own grouped product, and a GEMM for each expert."""
WAITS = 1.03
"""What a loop's time is multiplied by, for the wait."""
Way = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class GroupedShape:
    """Of one rank's experts."""

    rows: int
    """At even load."""
    experts: int
    hidden: int
    up: int
    """Rows of an expert's first matrix, gate and up together, on this rank; and of its second."""
    down: int
    dtype: torch.dtype
    gradients: torch.dtype

    def cases(self) -> dict[str, tuple[str, int, int, bool]]:
        """Each GEMM, forward, for the input and for the weight: its kind, the expert's matrix, whether that is transposed."""
        both = [(m, self.hidden, transposed) for m in dict.fromkeys((self.up, self.down)) for transposed in (True, False)]
        products = {key(*case): ("grouped", *case) for case in both}
        return products | {key(m, n): ("grouped_gradient", m, n, False) for m, n, transposed in both if transposed}


def key(m: int, n: int, transposed: bool | None = None) -> str:
    """Of a product with an expert's [m, n] matrix, as it is or transposed; of that matrix's gradient."""
    return f"{m} x {n}" + {True: " transposed", False: "", None: " gradient"}[transposed]


class FastGrouped:
    """What `core.ops.Grouped` says. `choices`: a way for each GEMM by its key; those without are a loop."""

    def __init__(self, choices: Mapping[str, str] | None = None, kernels: Kernels | None = None, gemm: Gemm | None = None):
        self.choices, self._ways = dict(choices or {}), _ways(kernels or Kernels(), gemm or PlainGemm())

    def __call__(self, x_NK: Tensor, weight_EKM: Tensor, counts_E: Tensor) -> Tensor:
        transposed = weight_EKM.stride(2) != 1
        return self.rows(x_NK, weight_EKM.mT if transposed else weight_EKM, ends_of(counts_E), transposed=transposed)

    @torch.no_grad()
    def into(self, out_EMN: Tensor, left_TM: Tensor, right_TN: Tensor, counts_E: Tensor, *, add: bool = False) -> None:
        _, m, n = out_EMN.shape
        way = self._way("grouped_gradient", key(m, n), left_TM, right_TN)
        way(left_TM, right_TN, ends_of(counts_E), out_EMN, add=add)

    def rows(self, rows_RK: Tensor, matrices_EMN: Tensor, ends_E: Tensor, *, transposed: bool = False) -> Tensor:
        _, m, n = matrices_EMN.shape
        way = self._way("grouped", key(m, n, transposed), rows_RK, matrices_EMN)
        return way(rows_RK, matrices_EMN, ends_E, transposed=transposed)  # type: ignore[no-any-return]

    def _way(self, kind: str, of: str, *operands: Tensor) -> Way:
        ways = self._ways[kind]
        return ways[self.choices.get(of, LOOP) if all(map(_aligned, operands)) else LOOP]


def ends_of(counts_E: Tensor) -> Tensor:
    return counts_E.cumsum(0, dtype=torch.int32)


def _aligned(x: Tensor) -> bool:
    """As the device's copy engine wants it: rows and the first of them at multiples of 16 bytes. There must be one, too."""
    return x.is_contiguous() and x.data_ptr() % 16 == 0 and x.shape[-1] * x.element_size() % 16 == 0 and x.numel() > 0


def torch_grouped(rows_RK: Tensor, matrices_EMN: Tensor, ends_E: Tensor, *, transposed: bool = False) -> Tensor:
    return F.grouped_mm(rows_RK, matrices_EMN.mT if transposed else matrices_EMN, offs=ends_E)


def torch_grouped_gradient(left_RM: Tensor, right_RN: Tensor, ends_E: Tensor, out_EMN: Tensor, *, add: bool) -> None:
    found = F.grouped_mm(left_RM.t(), right_RN, offs=ends_E)
    out_EMN.add_(found) if add else out_EMN.copy_(found)


class _Loop:
    """One GEMM after the other, those for weights straight to their places."""

    def __init__(self, gemm: Gemm):
        self.gemm = gemm

    def __call__(self, left_RM: Tensor, right_RN: Tensor, ends_E: Tensor, out_EMN: Tensor, *, add: bool) -> None:
        first = 0
        for out, end in zip(out_EMN, ends_E.tolist(), strict=True):
            self.gemm.into(out, left_RM[first:end].t(), right_RN[first:end], add=add)
            first = end


def _ways(kernels: Kernels, gemm: Gemm) -> dict[str, dict[str, Way]]:
    """By kind and name. Triton's are there where `kernels` has them: they were held against plain torch."""
    found: dict[str, dict[str, Way]] = {"grouped": {LOOP: Kernels.grouped}, "grouped_gradient": {LOOP: _Loop(gemm)}}
    if hasattr(F, "grouped_mm"):
        found["grouped"][TORCH], found["grouped_gradient"][TORCH] = torch_grouped, torch_grouped_gradient
    for kind, ways in found.items():
        kernel = getattr(kernels, kind)
        if kernel is not getattr(Kernels, kind):
            from seatrial.engine.fast.kernels.triton_grouped import TILES

            ways.update({tile.name: _with_tile(kernel, tile) for tile in TILES})
    return found


def _with_tile(kernel: Way, tile: object) -> Way:
    return lambda *given, **named: kernel(*given, **named, tile=tile)


# ---- which is the fastest


def autotune(shape: GroupedShape, device: torch.device, kernels: Kernels, gemm: Gemm) -> tuple[dict[str, str], str]:
    """The fastest way of each GEMM that agrees with plain torch, and what it came to."""
    choices: dict[str, str] = {}
    notes = []
    for of, took in measure(shape, device, kernels, gemm).items():
        if not took:
            notes.append(f"{of} not measured: no memory for it")
            continue
        choices[of] = best = fastest(took)
        rest = f" instead of {took[TORCH]:.3f}" if best != TORCH and TORCH in took else ""
        notes.append(f"{of} {took[best]:.3f} ms{rest} ({best})")
    return choices, "; ".join(notes)


def fastest(took: Mapping[str, float]) -> str:
    return min(took, key=lambda way: took[way] * (WAITS if way == LOOP else 1.0))


def measure(shape: GroupedShape, device: torch.device, kernels: Kernels, gemm: Gemm) -> dict[str, dict[str, float]]:
    """Milliseconds of each GEMM by each way that agrees with plain torch; none where memory is short."""
    found: dict[str, dict[str, float]] = {}
    for of, case in shape.cases().items():
        ways = _ways(kernels, gemm)[case[0]]
        try:
            run = _Run(shape, *case, device=device)
            usable = {name: way for name, way in ways.items() if run.agrees(way)} or {LOOP: ways[LOOP]}
            found[of] = turns.milliseconds({name: partial(run, way, run.drawn) for name, way in usable.items()}, device)
        except torch.OutOfMemoryError:
            found[of] = {}
    torch.cuda.empty_cache()
    return found


def refusal(choices: Mapping[str, str], shape: GroupedShape, device: torch.device, kernels: Kernels, gemm: Gemm) -> str | None:
    """Why this device cannot run what was chosen."""
    for of, case in shape.cases().items():
        way = _ways(kernels, gemm)[case[0]].get(choices.get(of, LOOP))
        if way is None or (choices.get(of, LOOP) != LOOP and not _Run(shape, *case, device=device).agrees(way)):
            return f"the experts' GEMM {of} by {choices.get(of, LOOP)}"
    return None


class _Run:
    """One GEMM on the same numbers each time."""

    def __init__(self, s: GroupedShape, kind: str, m: int, n: int, transposed: bool, *, device: torch.device):
        generator = torch.Generator(device=device).manual_seed(0)

        def some(*size: int) -> Tensor:
            return torch.randn(*size, generator=generator, device=device, dtype=s.dtype)

        self.kind, self.transposed = kind, transposed
        # As tokens fall on experts that are liked alike: no expert's rows are whole tiles, and what is fastest on those can be
        # a sixth slower here.
        loads = torch.randint(s.experts, (s.rows,), generator=generator, device=device).bincount(minlength=s.experts)
        self.drawn = loads.cumsum(0, dtype=torch.int32)
        # The second expert has nothing; what it had the first and the third have.
        self.uneven = self.drawn.clone()
        if s.experts > 2:
            self.uneven[:2] = (self.drawn[:2].sum() // 2 - 37).clamp(min=0)
        if kind == "grouped":
            self.left, self.right = some(s.rows, n if transposed else m), some(s.experts, m, n)
        else:
            self.left, self.right = some(s.rows, m), some(s.rows, n)
            self.out = torch.empty(s.experts, m, n, device=device, dtype=s.gradients)

    def __call__(self, way: Way, ends: Tensor) -> Tensor:
        if self.kind == "grouped":
            return way(self.left, self.right, ends, transposed=self.transposed)  # type: ignore[no-any-return]
        way(self.left, self.right, ends, self.out, add=False)
        return self.out

    def agrees(self, way: Way) -> bool:
        try:
            expected = self(getattr(Kernels, self.kind), self.uneven).clone()
            if self.kind != "grouped":
                self.out.fill_(torch.nan)
            found = self(way, self.uneven)
            return bool((found - expected).norm(dtype=torch.float32) <= CLOSE * expected.norm(dtype=torch.float32))
        except Exception:  # whatever a compiler, a driver or torch raises: this way is not taken
            return False
