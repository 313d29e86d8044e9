"""Each large GEMM of a step by the fastest of the algorithms that cuBLASLt's heuristic offers; torch takes the first of them.

    library = cublaslt()                                            None where torch has loaded none
    found, note = autotune(gemm_shapes(trial, config), device, PlainGemm(), library, Cache.of(device, library.version))
    gemm = TunedGemm(found, gemm_shapes(trial, config), device, PlainGemm(), library)
    gemm(x, weight.t(), bias), gemm.into(grad, dy.t(), x, add=True), gemm.scaled(x8, weight8, a, b)

The heuristic assumes a device that may draw what it likes. A large one at its power limit runs at three quarters of its clock,
and there the algorithm that draws least is the fastest: each runs until the clock has settled before it is timed, a quarter of
a second a GEMM. Rank 0 tunes, the others verify what it sends (`refusal`); what is not tuned falls back to the plain GEMM.
"""
from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import json
import os
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import POINTER, byref, c_float, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seatrial.arith import layer
from seatrial.engine.core.ops import Gemm
from seatrial.engine.core.optim import TYPES
from seatrial.engine.fast import fp8
from seatrial.engine.fast.config import KernelConfig, Tuned, fusable
from seatrial.files import write_whole
from seatrial.spec import Trial

DTYPES = {torch.float32: ("fp32", 0), torch.float16: ("fp16", 2), torch.bfloat16: ("bf16", 14),
          torch.float8_e4m3fn: ("e4m3", 28), torch.float8_e5m2: ("e5m2", 29)}
"""Our name, and cudaDataType_t."""
COMPUTE_32F, SCALE_32F = 68, 0
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER, A_SCALE_POINTER, B_SCALE_POINTER, FAST_ACCUM = 3, 4, 7, 8, 17, 18, 25
EPILOGUE_BIAS = 4
MAX_WORKSPACE_BYTES, MIN_ALIGNMENTS = 1, (5, 6, 7, 8)
ALIGNED = 16
"""Bytes that an address must be a multiple of; the algorithms' own loads want no more."""
WORKSPACE_BYTES = 32 * 2**20
OFFERED = 8
"""Algorithms that the heuristic is asked for; it has seldom more."""
WORTH = 2e10
"""FLOPs from which a GEMM is long enough for the choice to matter."""
BURST_MS, BEHIND, LEFT = 4.0, 1.05, 4
"""Algorithms slower than the fastest by this in a burst are out, and all but so many."""
SETTLE_MS, SLICE_MS = 20.0, 20.0
"""The others run for so long that the clock follows what they draw, and are timed then."""
GAIN = 0.985
"""Less than this of torch's time, or torch keeps the GEMM: twice what one slice differs from the next."""
CLOSE = 1e-2
"""‖difference‖ / ‖torch's‖ of an algorithm that computes the same."""
Scales = tuple[Tensor, Tensor]
Run = Callable[..., None]
"""run(left, right, out, alpha=1.0, bias=None, onto=None, scales=None): one algorithm on one shape."""
Ways = dict[str, Callable[[], object]]
"""By algorithm; "" is torch's own."""


class GemmShape(NamedTuple):
    """out [rows, cols] = left [rows, inner] right [inner, cols]; `_t`: an operand is stored by columns."""

    rows: int
    cols: int
    inner: int
    left: torch.dtype
    right: torch.dtype
    out: torch.dtype
    left_t: bool = False
    right_t: bool = False
    bias: bool = False
    add: bool = False
    """To what is in `out` already."""
    onto: bool = False
    """To another matrix of `out`'s shape."""
    fast: bool = False
    """fp8: added up without the detour through fp32 registers."""

    @property
    def name(self) -> str:
        left, right, out = (DTYPES[dtype][0] for dtype in (self.left, self.right, self.out))
        stored = "NT"[self.left_t] + "NT"[self.right_t]
        more = "".join(f" {flag}" for flag in ("bias", "add", "onto", "fast") if getattr(self, flag))
        return f"{self.rows}x{self.cols}x{self.inner} {stored} {left} {right} {out}{more}"

    @classmethod
    def of(cls, left: Tensor, right: Tensor, out: torch.dtype, **flags: bool) -> GemmShape | None:
        """None where an operand is neither a whole matrix nor the transpose of one."""
        left_t, right_t = _by_columns(left), _by_columns(right)
        if left_t is None or right_t is None:
            return None
        return cls(left.shape[0], right.shape[1], left.shape[1], left.dtype, right.dtype, out, left_t, right_t, **flags)


def _by_columns(x: Tensor) -> bool | None:
    rows, cols = x.shape
    if x.data_ptr() % ALIGNED or x.stride() not in ((cols, 1), (1, rows)):
        return None
    return x.stride() != (cols, 1)


def gemm_shapes(trial: Trial, config: KernelConfig) -> list[GemmShape]:
    """Of one layer and of the head on one rank, as far as they go through `Ops.gemm` or the blocks' GEMMs."""
    t, m, dtype = trial.topology, trial.model, TYPES[trial.topology.precision]
    tokens, hidden = t.mbs * m.seq // t.cp, m.hidden
    once = trial.microbatches == t.data_ranks == t.pp == 1 and not (t.sequence_parallel and t.tp > 1)
    grad = dtype if config.narrow_gradients and once else torch.float32 if config.fp32_gradient_gemm else None
    of16 = partial(GemmShape, left=dtype, right=dtype, out=dtype)
    found: list[GemmShape] = []

    def weight_gradient(rows: int, inner: int, *, adds: bool) -> Iterator[GemmShape]:
        if grad is not None:
            yield from (of16(rows, hidden, inner, out=grad, left_t=True, add=add) for add in (False, True)[: 1 + adds])

    def eights(tokens: int, cols: int, inner: int, *, column: bool, **added: Any) -> list[GemmShape]:
        eight, x, dy = partial(GemmShape, out=torch.bfloat16, right_t=True), fp8.FORWARD, fp8.GRADIENT
        forward, backward = config.fast_accumulation != "none", config.fast_accumulation == "all"
        sides, (left, right) = ((cols, inner), (dy, x)) if column else ((inner, cols), (x, dy))
        return [eight(tokens, cols, inner, left=x, right=x, fast=forward, **added),
                eight(tokens, inner, cols, left=dy, right=x, fast=backward),
                eight(*sides, tokens, left=left, right=right, fast=backward)]

    for linear in layer.linears(m):
        width = linear.width(t.tp)
        cols, inner = (width, hidden) if linear.column else (hidden, width)
        alone = t.tp == 1 and not linear.column
        added: dict[str, Any] = {"bias": bool(linear.bias) and (linear.column or alone), "onto": alone}
        if config.fused and t.precision == "fp8":
            found += eights(tokens, cols, inner, column=linear.column, **added)
            continue
        if config.fused and fusable(m) and not m.mixture:
            found.append(of16(tokens, cols, inner, right_t=linear.column, **added))
            found.append(of16(tokens, inner, cols, right_t=not linear.column))
        found += weight_gradient(width, tokens, adds=trial.microbatches > 1)
    head, chunk = layer.head_gemm(m, m.padded_vocab(t.tp) // t.tp), config.logits_chunk(trial)
    if t.precision == "fp8" and config.fused and config.fp8_head and fp8.head_fits(m, t, chunk):
        found += eights(chunk, head.cols, hidden, column=True)
        return list(dict.fromkeys(found))
    found.append(of16(chunk, head.cols, hidden, right_t=True))
    found.append(of16(chunk, hidden, head.cols))
    found += weight_gradient(head.cols, chunk, adds=trial.microbatches > 1 or chunk < tokens)
    return list(dict.fromkeys(found))


class TunedGemm:
    """The `Gemm` protocol, and `scaled` for fp8."""

    def __init__(self, found: Mapping[str, Tuned], shapes: Iterable[GemmShape], device: torch.device, fallback: Gemm,
                 library: CublasLt):
        self.runs = {s: library.bind(found[s.name].algorithm, s, device) for s in shapes if s.name in found}
        self.fallback = fallback

    def __call__(self, left: Tensor, right: Tensor, bias: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        run = self._run(left, right, left.dtype, bias, onto)
        if run is None:
            return self.fallback(left, right, bias, onto)
        out = left.new_empty(left.shape[0], right.shape[1])
        run(left, right, out, bias=bias, onto=onto)
        return out

    def into(self, out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False) -> Tensor:
        run = self._run(left, right, out.dtype, out=out, add=add)
        if run is None:
            return self.fallback.into(out, left, right, alpha=alpha, add=add)
        run(left, right, out, alpha=alpha)
        return out

    def scaled(self, left: Tensor, right_t: Tensor, left_inverse: Tensor, right_inverse: Tensor, *,
               bias: Tensor | None = None, out_dtype: torch.dtype = torch.bfloat16, fast: bool = True,
               out: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        right, dtype = right_t.t(), out_dtype if out is None else out.dtype
        run = self._run(left, right, dtype, bias, onto, out=out, fast=fast)
        if run is None:
            return fp8.scaled_gemm(left, right_t, left_inverse, right_inverse, bias=bias, out_dtype=dtype, fast=fast, out=out,
                                   onto=onto)
        if out is None:
            out = torch.empty(left.shape[0], right.shape[1], dtype=dtype, device=left.device)
        run(left, right, out, bias=bias, onto=onto, scales=(left_inverse, right_inverse))
        return out

    def _run(self, left: Tensor, right: Tensor, dtype: torch.dtype, bias: Tensor | None = None, onto: Tensor | None = None, *,
             out: Tensor | None = None, add: bool = False, fast: bool = False) -> Run | None:
        others = [x for x in (bias, onto, out) if x is not None]
        if any(x.data_ptr() % ALIGNED or not x.is_contiguous() for x in others):
            return None
        shape = GemmShape.of(left, right, dtype, bias=bias is not None, add=add, onto=onto is not None, fast=fast)
        return self.runs.get(shape) if shape else None


def autotune(shapes: Iterable[GemmShape], device: torch.device, plain: Gemm, library: CublasLt, cache: Cache, *,
             time_ms: Callable[[Ways], dict[str, float]] | None = None, worth: float = WORTH) -> tuple[dict[str, Tuned], str]:
    """The shapes for which another algorithm than torch's is faster, and what was found in a line."""
    found: dict[str, Tuned] = {}
    wanted = [s for s in shapes if 2 * s.rows * s.cols * s.inner >= worth]
    known = 0
    for shape in wanted:
        cached = cache.get(shape)
        # The run itself may fit: it need not hold both operands and two results at once.
        with contextlib.suppress(torch.OutOfMemoryError):
            if cached is None or cached.algorithm and not _Bench(shape, device, plain, library).agrees(cached.algorithm):
                found[shape.name] = _Bench(shape, device, plain, library).best(time_ms or settled_ms)
            else:
                found[shape.name], known = cached, known + 1
    cache.add(found)
    if device.type == "cuda":
        # Operands are of sizes that training does not ask the allocator for again.
        torch.cuda.empty_cache()
    chosen = {name: tuned for name, tuned in found.items() if tuned.algorithm}
    ms, torch_ms = (sum(getattr(tuned, of) for tuned in found.values()) for of in ("ms", "torch_ms"))
    return chosen, (f"{len(chosen)} of {len(wanted)} GEMMs by another algorithm than torch's: {ms:.2f} ms instead of "
                    f"{torch_ms:.2f}, one of each; {known} from the cache" if wanted else "GEMMs too small to be tuned")


def refusal(config: KernelConfig, trial: Trial, device: torch.device, plain: Gemm, library: CublasLt | None) -> str | None:
    """Why this rank cannot run the algorithms that rank 0 tuned, or None."""
    if not config.gemm_algorithms:
        return None
    if library is None or library.version != config.cublaslt_version:
        return f"GEMM algorithms of cuBLASLt {config.cublaslt_version} ({library.version if library else 'none'} here)"
    for shape in gemm_shapes(trial, config):
        tuned = config.gemm_algorithms.get(shape.name)
        with contextlib.suppress(torch.OutOfMemoryError):
            if tuned and not _Bench(shape, device, plain, library).agrees(tuned.algorithm):
                return f"the algorithm tuned for GEMM {shape.name}"
    return None


class _Bench:
    """One shape on random operands."""

    def __init__(self, shape: GemmShape, device: torch.device, plain: Gemm, library: CublasLt):
        self.shape, self.device, self.plain, self.library = shape, device, plain, library
        self.left = _operand(shape.left, shape.rows, shape.inner, shape.left_t, device)
        self.right = _operand(shape.right, shape.inner, shape.cols, shape.right_t, device)
        one = torch.ones(4, device=device)[:1]
        self.scales = (one, one.clone()) if shape.left in (fp8.FORWARD, fp8.GRADIENT) else None
        self.added: dict[str, Any] = {"bias": torch.randn(shape.cols, device=device).to(shape.out) if shape.bias else None,
                                      "onto": self._filled() if shape.onto else None}
        self.out = self._filled()
        self.expected = self.torchs().clone()

    def _filled(self) -> Tensor:
        """As large as the result: adding where nothing is to be added, or not adding, shows."""
        return torch.full((self.shape.rows, self.shape.cols), self.shape.inner**0.5, dtype=self.shape.out, device=self.device)

    def torchs(self) -> Tensor:
        if self.scales is not None:
            return fp8.scaled_gemm(self.left, self.right.t(), *self.scales, fast=self.shape.fast, **self.added)
        if self.shape.bias or self.shape.onto:
            return self.plain(self.left, self.right, **self.added)
        return self.plain.into(self.out, self.left, self.right, add=self.shape.add)

    def agrees(self, algorithm: str) -> bool:
        """Whether it computes what torch does."""
        self.out.fill_(self.shape.inner**0.5)
        try:
            self.library.bind(algorithm, self.shape, self.device)(self.left, self.right, self.out, scales=self.scales,
                                                                  **self.added)
        except (ValueError, Refused):
            return False
        off = torch.linalg.vector_norm(self.out - self.expected, dtype=torch.float32)
        return bool(off < CLOSE * torch.linalg.vector_norm(self.expected, dtype=torch.float32))

    def best(self, time_ms: Callable[[Ways], dict[str, float]]) -> Tuned:
        ways: Ways = {"": self.torchs}
        for algorithm in self.library.heuristic(self.shape, self.device):
            if self.agrees(algorithm):
                run = self.library.bind(algorithm, self.shape, self.device)
                ways[algorithm] = partial(run, self.left, self.right, self.out, scales=self.scales, **self.added)
        took = time_ms(ways)
        best = min(took, key=lambda algorithm: took[algorithm])
        best = best if took[best] <= GAIN * took[""] else ""
        return Tuned(algorithm=best, torch_ms=took[""], ms=took[best])


def _operand(dtype: torch.dtype, rows: int, cols: int, transposed: bool, device: torch.device) -> Tensor:
    made = torch.empty((cols, rows) if transposed else (rows, cols), dtype=torch.bfloat16, device=device).normal_().to(dtype)
    return made.t() if transposed else made


def settled_ms(ways: Ways) -> dict[str, float]:
    """Milliseconds of one GEMM each with the clock settled, of those that are not far behind in a burst."""
    once = _turn(ways, {})
    took = _turn(ways, once, BURST_MS)
    left = [a for a in sorted(took, key=lambda a: took[a]) if took[a] <= BEHIND * min(took.values())][:LEFT]
    ways = {a: run for a, run in ways.items() if not a or a in left}
    return _turn(ways, once, SETTLE_MS, SLICE_MS)


def _turn(ways: Ways, once_ms: dict[str, float], *slices_ms: float) -> dict[str, float]:
    """Timed in the last of the slices, one algorithm after the other without a pause."""
    marks = {}
    for algorithm, run in ways.items():
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for slice_ms in slices_ms or (0.0,):
            repeats = max(1, round(slice_ms / (once_ms.get(algorithm) or 1.0)))
            start.record()
            for _ in range(repeats):
                run()
        end.record()
        marks[algorithm] = start, end, repeats
    torch.cuda.synchronize()
    return {algorithm: start.elapsed_time(end) / repeats for algorithm, (start, end, repeats) in marks.items()}


class Cache:
    """What was tuned on this kind of device with this version of the library. A file that cannot be read, or whose checksum is
    not its own, is as none; one that cannot be written is left. None: no cache."""

    def __init__(self, path: Path | None):
        self.path = path
        self._known = self._read()

    @classmethod
    def of(cls, device: torch.device, version: int) -> Cache:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        kind = re.sub(r"\W+", "-", torch.cuda.get_device_name(device) if device.type == "cuda" else device.type).lower()
        return cls(None if home.startswith("~") else Path(home) / "seatrial" / f"gemm-{kind}-{version}.json")

    def get(self, shape: GemmShape) -> Tuned | None:
        return self._known.get(shape.name)

    def add(self, found: Mapping[str, Tuned]) -> None:
        """Beside what other processes wrote meanwhile."""
        if self.path is None or all(self._known.get(name) == tuned for name, tuned in found.items()):
            return
        self._known = {**self._read(), **found}
        gemms = {name: asdict(tuned) for name, tuned in self._known.items()}
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps({"sha256": self._sum(gemms), "gemms": gemms}, indent=1) + "\n")

    def _read(self) -> dict[str, Tuned]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8")) if self.path else {}
            # cuBLASLt is not asked what it makes of bytes that are not its own.
            if found["sha256"] != self._sum(found["gemms"]):
                return {}
            return {name: Tuned(**tuned) for name, tuned in found["gemms"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _sum(self, gemms: dict[str, Any]) -> str:
        """Of the file's name, too: one copied from another device or version is foreign."""
        assert self.path is not None
        return hashlib.sha256(json.dumps([self.path.name, gemms], sort_keys=True).encode()).hexdigest()


# cuBLASLt by ctypes


class Refused(Exception):
    """cuBLASLt's status, and which of its functions gave it."""


class _Algorithm(ctypes.Structure):
    _fields_ = [("data", c_uint64 * 8)]


class _Heuristic(ctypes.Structure):
    _fields_ = [("algorithm", _Algorithm), ("workspace", c_size_t), ("status", c_int), ("waves", c_float),
                ("reserved", c_int * 4)]


CREATED, ATTRIBUTE = POINTER(c_void_p), (c_void_p, c_int, c_void_p, c_size_t)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtMatmulDescCreate": (CREATED, c_int, c_int),
    "cublasLtMatmulDescSetAttribute": ATTRIBUTE,
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatrixLayoutCreate": (CREATED, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceCreate": (CREATED,),
    "cublasLtMatmulPreferenceSetAttribute": ATTRIBUTE,
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    "cublasLtMatmulAlgoGetHeuristic": (c_void_p,) * 7 + (c_int, POINTER(_Heuristic), POINTER(c_int)),
    "cublasLtMatmul": (c_void_p, c_void_p, POINTER(c_float), c_void_p, c_void_p, c_void_p, c_void_p, POINTER(c_float), c_void_p,
                       c_void_p, c_void_p, c_void_p, POINTER(_Algorithm), c_void_p, c_size_t, c_void_p),
}


class CublasLt:
    """An algorithm is base64 of the library's 64 opaque bytes, which another process with the same version understands."""

    def __init__(self, path: str):
        self._lib = ctypes.CDLL(path)
        for name, argtypes in SIGNATURES.items():
            function = getattr(self._lib, name)
            function.argtypes, function.restype = argtypes, c_int
        self._lib.cublasLtGetVersion.argtypes, self._lib.cublasLtGetVersion.restype = (), c_size_t
        self.version = int(self._lib.cublasLtGetVersion())
        self._workspaces: dict[tuple[torch.device, int], Tensor] = {}

    def heuristic(self, shape: GemmShape, device: torch.device) -> list[str]:
        try:
            found = _Problem(self, shape, device).heuristic()
        except Refused:
            return []
        return [base64.b64encode(bytes(offer.algorithm)).decode() for offer in found if offer.status == 0]

    def bind(self, algorithm: str, shape: GemmShape, device: torch.device) -> Run:
        """ValueError where that is no algorithm; the run raises Refused where the library says no."""
        data = base64.b64decode(algorithm, validate=True)
        if len(data) != ctypes.sizeof(_Algorithm):
            raise ValueError(f"an algorithm of {len(data)} bytes")
        return partial(_Problem(self, shape, device).run, _Algorithm.from_buffer_copy(data))

    def workspace(self, device: torch.device, stream: int) -> Tensor:
        """GEMMs of one stream follow each other; those of two would race for one workspace."""
        if (device, stream) not in self._workspaces:
            self._workspaces[device, stream] = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        return self._workspaces[device, stream]

    def call(self, function: str, *given: Any) -> None:
        status = getattr(self._lib, f"cublasLt{function}")(*given)
        if status:
            raise Refused(f"cublasLt{function} gave status {status}")


class _Problem:
    """A shape's descriptors. The library's matrices are by columns: out's transpose is right's transpose by left's."""

    def __init__(self, lib: CublasLt, shape: GemmShape, device: torch.device):
        self.lib, (m, n, k) = lib, shape[:3]
        with torch.cuda.device(device):
            # A handle of cuBLAS is one of cuBLASLt's, too; torch keeps it.
            self.handle = torch.cuda.current_blas_handle()
        self.description = self._create("MatmulDesc", COMPUTE_32F, SCALE_32F)
        self._set("MatmulDesc", self.description, TRANSA, c_int32(shape.right_t))
        self._set("MatmulDesc", self.description, TRANSB, c_int32(shape.left_t))
        if shape.bias:
            self._set("MatmulDesc", self.description, EPILOGUE, c_int32(EPILOGUE_BIAS))
        if shape.fast:
            self._set("MatmulDesc", self.description, FAST_ACCUM, c_int8(1))
        self.right = self._matrix(shape.right, *((k, n) if shape.right_t else (n, k)))
        self.left = self._matrix(shape.left, *((m, k) if shape.left_t else (k, m)))
        self.out = self._matrix(shape.out, n, m)
        self.beta = c_float(float(shape.add or shape.onto))

    def heuristic(self) -> list[_Heuristic]:
        preference = self._create("MatmulPreference")
        self._set("MatmulPreference", preference, MAX_WORKSPACE_BYTES, c_uint64(WORKSPACE_BYTES))
        for alignment in MIN_ALIGNMENTS:
            self._set("MatmulPreference", preference, alignment, c_uint32(ALIGNED))
        found, count = (_Heuristic * OFFERED)(), c_int()
        self.lib.call("MatmulAlgoGetHeuristic", self.handle, self.description, self.right, self.left, self.out, self.out,
                      preference, OFFERED, found, byref(count))
        return list(found[: count.value])

    def run(self, algorithm: _Algorithm, left: Tensor, right: Tensor, out: Tensor, *, alpha: float = 1.0,
            bias: Tensor | None = None, onto: Tensor | None = None, scales: Scales | None = None) -> None:
        pointers = {BIAS_POINTER: bias} | ({A_SCALE_POINTER: scales[1], B_SCALE_POINTER: scales[0]} if scales else {})
        for attribute, x in pointers.items():
            if x is not None:
                self._set("MatmulDesc", self.description, attribute, c_uint64(x.data_ptr()))
        place, stream = out.data_ptr(), torch.cuda.current_stream(out.device).cuda_stream
        before = place if onto is None else onto.data_ptr()
        self.lib.call("Matmul", self.handle, self.description, byref(c_float(alpha)), right.data_ptr(), self.right,
                      left.data_ptr(), self.left, byref(self.beta), before, self.out, place, self.out, byref(algorithm),
                      self.lib.workspace(out.device, stream).data_ptr(), WORKSPACE_BYTES, stream)

    def _matrix(self, dtype: torch.dtype, rows: int, cols: int) -> c_void_p:
        return self._create("MatrixLayout", DTYPES[dtype][1], rows, cols, rows)

    def _set(self, what: str, made: c_void_p, attribute: int, value: Any) -> None:
        self.lib.call(f"{what}SetAttribute", made, attribute, byref(value), ctypes.sizeof(value))

    def _create(self, what: str, *given: Any) -> c_void_p:
        """Destroyed with this object."""
        made = c_void_p()
        self.lib.call(f"{what}Create", byref(made), *given)
        weakref.finalize(self, self.lib.call, f"{what}Destroy", made).atexit = False
        return made


@cache
def cublaslt() -> CublasLt | None:
    """The one in this process; a second copy of it would be half a gigabyte."""
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return None
    torch.cuda.current_blas_handle()
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if "libcublasLt.so" in line}
        return CublasLt(min(paths)) if paths else None
    except (OSError, AttributeError):
        return None
