"""cuBLASLt by hand: all the kernels that it offers for one product, where torch asks for the first alone.

    for kernel in kernels(Form(rows=16384, cols=8192, inner=2048, right_t=True, bias=True)):
        kernel(x, weight.t(), out, bias=bias)       out = x weightᵀ + bias

The library is the one that torch has loaded already; without it there are no kernels, and products are left to torch.
"""
from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14, torch.float8_e4m3fn: 28, torch.float8_e5m2: 29}
COMPUTE_IN_FP32, SCALE_IN_FP32 = 68, 0
TRANSPOSE_LEFT, TRANSPOSE_RIGHT, EPILOGUE, BIAS, LEFT_SCALE, RIGHT_SCALE, FAST_ACCUMULATION = 3, 4, 7, 8, 17, 18, 25
WITH_BIAS = 4
MOST_WORKSPACE, ALIGNMENTS = 1, (5, 6, 7, 8)
ALIGNED = 16
"""Bytes that an address must be a multiple of; the kernels' own loads want no more."""
WORKSPACE_BYTES = 32 * 2**20
OFFERED = 8
"""Kernels that are asked for; the library has seldom more."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """out [rows, cols] = left [rows, inner] right [inner, cols], each `_t` stored the other way round."""

    rows: int
    cols: int
    inner: int
    left_t: bool = False
    right_t: bool = False
    left: torch.dtype = torch.bfloat16
    right: torch.dtype = torch.bfloat16
    out: torch.dtype = torch.bfloat16
    bias: bool = False
    add: bool = False
    """To what is in the place already."""
    fast: bool = False
    """In eight bits: added up without the detour through fp32 registers."""

    @property
    def operations(self) -> int:
        return 2 * self.rows * self.cols * self.inner

    @classmethod
    def of(cls, left: Tensor, right: Tensor, out: torch.dtype, *, bias: bool = False, add: bool = False,
           fast: bool = False) -> Form | None:
        """None where an operand is neither a whole matrix nor the transpose of one."""
        left_t, right_t = _stored(left), _stored(right)
        if left_t is None or right_t is None:
            return None
        return cls(rows=left.shape[0], cols=right.shape[1], inner=left.shape[1], left_t=left_t, right_t=right_t,
                   left=left.dtype, right=right.dtype, out=out, bias=bias, add=add, fast=fast)


def _stored(x: Tensor) -> bool | None:
    """Whether by columns."""
    rows, cols = x.shape
    if x.data_ptr() % ALIGNED or x.stride() not in ((cols, 1), (1, rows)):
        return None
    return x.stride() != (cols, 1)


class _Algorithm(ctypes.Structure):
    _fields_ = [("data", c_uint64 * 8)]


class _Offer(ctypes.Structure):
    _fields_ = [("algorithm", _Algorithm), ("workspace", c_size_t), ("status", c_int), ("waves", c_float),
                ("reserved", c_int * 4)]


class Refused(Exception):
    """cuBLASLt's status, and which of its functions gave it."""


class Kernel:
    """One way to compute a form; `code` brings it back in another process with the same library."""

    def __init__(self, problem: _Problem, algorithm: _Algorithm):
        self._problem, self._algorithm = problem, algorithm
        self.code = bytes(algorithm).hex()

    def __call__(self, left: Tensor, right: Tensor, out: Tensor, *, alpha: float = 1.0, bias: Tensor | None = None,
                 scales: tuple[Tensor, Tensor] | None = None) -> None:
        """`scales`: what undoes those of eight-bit operands."""
        self._problem.run(self._algorithm, left, right, out, alpha, bias, scales)


class _Problem:
    """Its matrices are by columns: out is computed as the transpose of right's transpose by left's."""

    def __init__(self, library: Any, form: Form, device: torch.device):
        self.blas, self.form = library, form
        self.handle, self.workspace = _handle(device), _workspace(device)
        self.description = self._create("cublasLtMatmulDescCreate", COMPUTE_IN_FP32, SCALE_IN_FP32)
        self._describe(TRANSPOSE_LEFT, c_int32(form.right_t))
        self._describe(TRANSPOSE_RIGHT, c_int32(form.left_t))
        if form.bias:
            self._describe(EPILOGUE, c_int32(WITH_BIAS))
        if form.fast:
            self._describe(FAST_ACCUMULATION, c_int8(1))
        n, m, k = form.cols, form.rows, form.inner
        self.right = self._matrix(form.right, *((k, n) if form.right_t else (n, k)))
        self.left = self._matrix(form.left, *((m, k) if form.left_t else (k, m)))
        self.out = self._matrix(form.out, n, m)
        self.beta = c_float(float(form.add))

    def offers(self) -> list[_Offer]:
        wish = self._create("cublasLtMatmulPreferenceCreate")
        wishes: list[tuple[int, Any]] = [(MOST_WORKSPACE, c_uint64(WORKSPACE_BYTES))]
        wishes += [(alignment, c_uint32(ALIGNED)) for alignment in ALIGNMENTS]
        for attribute, value in wishes:
            self._ask("cublasLtMatmulPreferenceSetAttribute", wish, attribute, byref(value), c_size_t(sizeof(value)))
        found, count = (_Offer * OFFERED)(), c_int()
        self._ask("cublasLtMatmulAlgoGetHeuristic", self.handle, self.description, self.right, self.left, self.out, self.out,
                  wish, OFFERED, found, byref(count))
        self.blas.cublasLtMatmulPreferenceDestroy(wish)
        return [offer for offer in found[: count.value] if offer.status == 0]

    def run(self, algorithm: _Algorithm, left: Tensor, right: Tensor, out: Tensor, alpha: float, bias: Tensor | None,
            scales: tuple[Tensor, Tensor] | None) -> None:
        if bias is not None:
            self._describe(BIAS, c_uint64(bias.data_ptr()))
        if scales is not None:
            self._describe(LEFT_SCALE, c_uint64(scales[1].data_ptr()))
            self._describe(RIGHT_SCALE, c_uint64(scales[0].data_ptr()))
        place = c_void_p(out.data_ptr())
        self._ask("cublasLtMatmul", self.handle, self.description, byref(c_float(alpha)), c_void_p(right.data_ptr()),
                  self.right, c_void_p(left.data_ptr()), self.left, byref(self.beta), place, self.out, place, self.out,
                  byref(algorithm), c_void_p(self.workspace.data_ptr()), c_size_t(WORKSPACE_BYTES),
                  c_void_p(torch.cuda.current_stream(out.device).cuda_stream))

    def _matrix(self, dtype: torch.dtype, rows: int, cols: int) -> c_void_p:
        return self._create("cublasLtMatrixLayoutCreate", TYPES[dtype], c_uint64(rows), c_uint64(cols), c_int64(rows))

    def _describe(self, attribute: int, value: Any) -> None:
        self._ask("cublasLtMatmulDescSetAttribute", self.description, attribute, byref(value), c_size_t(sizeof(value)))

    def _create(self, function: str, *given: Any) -> c_void_p:
        made = c_void_p()
        self._ask(function, byref(made), *given)
        return made

    def _ask(self, function: str, *given: Any) -> None:
        status = getattr(self.blas, function)(*given)
        if status:
            raise Refused(f"{function} gave status {status}")


def kernels(form: Form, device: torch.device) -> list[Kernel]:
    """In the library's own order; none where it has none, or where there is no library."""
    library = _library()
    if library is None or device.type != "cuda":
        return []
    try:
        problem = _Problem(library, form, device)
        return [Kernel(problem, offer.algorithm) for offer in problem.offers()]
    except Refused:
        return []


def kernel_of(code: str, form: Form, device: torch.device) -> Kernel:
    return Kernel(_Problem(_library(), form, device), _Algorithm.from_buffer_copy(bytes.fromhex(code)))


def version() -> int:
    """Of the library; 0 without one."""
    library = _library()
    if library is None:
        return 0
    library.cublasLtGetVersion.restype = c_size_t
    return int(library.cublasLtGetVersion())


@cache
def _library() -> Any:
    """The one in this process; a second copy of it would be half a gigabyte."""
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return None
    torch.cuda.current_blas_handle()
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if "libcublasLt.so" in line}
        return ctypes.CDLL(min(paths)) if paths else None
    except OSError:
        return None


@cache
def _handle(device: torch.device) -> c_void_p:
    made = c_void_p()
    with torch.cuda.device(device):
        status = _library().cublasLtCreate(byref(made))
    if status:
        raise Refused(f"cublasLtCreate gave status {status}")
    return made


@cache
def _workspace(device: torch.device) -> Tensor:
    return torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
