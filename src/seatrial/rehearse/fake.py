"""What is not there: peers, memory, a GPU's kernels. All of it made up, for one rank in one process.

    with fake_world(rank=17, world=6144):                   torch's `fake` backend, whose collectives return at once
        mesh = Mesh(topology, device=device, acts_as="gloo")
    with no_memory():                                       tensors of shapes, types and lifetimes alone
        with tracker(engine) as live, Answers(engine): engine.step(1, first_sample=0, batches=batches)
    kernels().norm(x, weight, bias, 1e-5)                   what a GPU's kernel hands back: three tensors, never written
    FakeGemm()(x, weight.t())                               [tokens, out]

The backend lies in torch's testing modules, which make no promises: this is the one place that knows where. Plain torch's
kernels would be counted with matrices in fp32 that a GPU never makes: these hand back tensors of the right shape and type.
"""
from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seatrial.engine.core.step import Engine
from seatrial.engine.fast.grouped import FastGrouped
from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.fast.kernels.plain import CosSin, HeadNorms, Parts
from seatrial.engine.fast.kernels.scaling import ScalingState
from seatrial.errors import SeatrialError


@contextlib.contextmanager
def fake_world(*, rank: int, world: int) -> Iterator[None]:
    """The default process group is `fake` inside; a world of one needs none."""
    if dist.is_initialized():
        raise SeatrialError("a rehearsal needs a process of its own: this one is in a process group already")
    if world == 1:
        yield
        return
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as error:
        raise SeatrialError(f"this torch has no fake backend to rehearse with ({error}): 2.11 and 2.13 have it") from None
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        with warnings.catch_warnings():
            # Names that newer versions call old.
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def no_memory() -> Iterator[None]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), warnings.catch_warnings():
        # Whether two tensors begin at one address is asked of all tensors; these have none, and it is no matter.
        warnings.filterwarnings("ignore", message=".*data pointer of FakeTensor")
        yield


class Answers(TorchDispatchMode):
    """Every number that the host asks for is 0, but the optimizer's count of steps, which is 1."""

    def __init__(self, engine: Engine):
        super().__init__()
        self._steps = engine.optimizer.steps_done.untyped_storage()._cdata

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return 1.0 if args[0].untyped_storage()._cdata == self._steps else 0.0
        return func(*args, **(kwargs or {}))


class FakeGemm:
    """In their place, or in a matrix of their own."""

    def __call__(self, left: Tensor, right: Tensor, bias: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        return left.new_empty(left.shape[0], right.shape[1])

    def into(self, out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False) -> Tensor:
        return out


class FakeGrouped(FastGrouped):
    """Of experts; `narrow`: the gradient of one matrix is made in the type of its factors before it is added up."""

    def __init__(self, *, narrow: bool):
        super().__init__()
        self.narrow = narrow

    def __call__(self, x_NK: Tensor, weight_EKM: Tensor, counts_E: Tensor) -> Tensor:
        return x_NK.new_empty(x_NK.shape[0], weight_EKM.shape[2])

    def rows(self, rows_RK: Tensor, matrices_EMN: Tensor, ends_E: Tensor, *, transposed: bool = False) -> Tensor:
        return rows_RK.new_empty(rows_RK.shape[0], matrices_EMN.shape[1 if transposed else 2])

    def into(self, out_EMN: Tensor, left_TM: Tensor, right_TN: Tensor, counts_E: Tensor, *, add: bool = False) -> None:
        if self.narrow and out_EMN.dtype != left_TM.dtype:
            left_TM.new_empty(out_EMN.shape[1:])


def scaled_gemm(left: Tensor, right_t: Tensor, left_inverse: Tensor, right_inverse: Tensor, *, bias: Tensor | None = None,
                out_dtype: torch.dtype = torch.bfloat16, fast: bool = True, out: Tensor | None = None,
                onto: Tensor | None = None) -> Tensor:
    return left.new_empty(left.shape[0], right_t.shape[0], dtype=out_dtype) if out is None else out


class _RmsNorm(torch.autograd.Function):
    """Keeps its input and a number a row, as a GPU's own; the weight's gradient is small beside them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(x, weight, x.new_empty(*x.shape[:-1], 1, dtype=torch.float32))
        return torch.empty(x.shape, dtype=x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight, _ = ctx.saved_tensors
        return torch.empty(x.shape, dtype=x.dtype), torch.empty_like(weight), None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return _RmsNorm.apply(x, weight, eps)  # type: ignore[no-any-return]


class _NarrowValues(torch.autograd.Function):
    """Keeps what goes in and out and a number a query, as a GPU's fused kernels do."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:-1], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return tuple(x.new_empty(x.shape) for x in ctx.saved_tensors[:3])


def narrow_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _NarrowValues.apply(q, k, v)  # type: ignore[no-any-return]


def kernels() -> Kernels:
    return Kernels(norm=_norm, norm_recompute=_norm_recompute, norm_backward=_norm_backward, gelu=torch.empty_like,
                   gelu_backward=_gelu_backward, rotate=_rotate,
                   rotate_backward=_rotate_backward, cat_qkv=_cat_qkv, reduce_partials=_nothing, add_rows=_nothing,
                   softmax_parts=_softmax_parts, softmax_gradient=_nothing, squared=_squared, adamw=_nothing,
                   adamw_split=_nothing, cast8=_cast8, put_rows=_put_rows, sum_rows=_sum_rows, gated=_gated,
                   gated_backward=_gated_backward,
                   norm8=_norm8, norm_recompute8=_transposed, gelu8=_eight, gelu_backward8=_gelu_backward8, gated8=_gated8,
                   gated_backward8=_gated_backward8, cat_qkv8=_cat_qkv8)


def _nothing(*_given: Any, **_numbers: Any) -> None:
    pass


def _sums(like: Tensor, count: int, width: int) -> Tensor:
    return like.new_empty(count, 1, width, dtype=torch.float32)


def _stats(x: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(1 if bias is None else 2, x.shape[0], dtype=torch.float32)


def _norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), _stats(x, bias)


def _norm_recompute(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.empty_like(x)


def _norm_backward(dh: Tensor, x: Tensor, stats: Tensor, weight: Tensor, residual: Tensor | None = None, *,
                   sum_residual: bool = False) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), _sums(x, len(stats) + sum_residual, x.shape[1])


def _gelu_backward(dg: Tensor, pre: Tensor, *, recompute: bool) -> tuple[Tensor, Tensor | None, Tensor]:
    return dg, torch.empty_like(pre) if recompute else None, _sums(pre, 1, pre.shape[1])


def _gated(pre: Tensor, weight_R: Tensor | None = None) -> Tensor:
    return pre.new_empty(pre.shape[0], pre.shape[1] // 2)


def _gated_backward(d: Tensor, pre: Tensor, weight_R: Tensor | None = None) -> Tensor | None:
    return None if weight_R is None else torch.empty_like(weight_R)


def _rotate(qkv: Tensor, heads: tuple[int, int], cos_sin: CosSin | None, norms: HeadNorms | None) -> Tensor:
    return qkv if norms is None else qkv.new_empty(len(qkv), sum(heads) * len(norms[0]))


def _rotate_backward(d_q: Tensor, d_k: Tensor, qkv: Tensor | None, cos_sin: CosSin | None,
                     norms: HeadNorms | None) -> Tensor | None:
    return None if norms is None else _sums(d_q, 2, len(norms[0]))


def _cat_qkv(parts: Parts) -> tuple[Tensor, Tensor]:
    width = sum(part.shape[1] for part in parts)
    return parts[0].new_empty(len(parts[0]), width), _sums(parts[0], 1, width)


def _softmax_parts(logits: Tensor, targets: Tensor, real: int) -> Parts:
    largest, total, at_target = logits.new_empty(3, logits.shape[0], dtype=torch.float32)
    return largest, total, at_target


def _squared(parts: list[Tensor]) -> Tensor:
    return parts[0].new_empty((), dtype=torch.float64)


# experts


def _put_rows(x_TH: Tensor, place_TK: Tensor, rows: int) -> Tensor:
    return x_TH.new_empty(rows, x_TH.shape[1])


def _sum_rows(rows_RH: Tensor, place_TK: Tensor) -> Tensor:
    return rows_RH.new_empty(place_TK.shape[0], rows_RH.shape[1])


# eight bits


def _eight(x: Tensor, scaling: ScalingState) -> Tensor:
    return torch.empty_like(x, dtype=scaling.dtype)


def _transposed(x: Tensor, *given: Any) -> Tensor:
    """By the scaling that comes last."""
    return x.new_empty(x.shape[::-1], dtype=given[-1].dtype)


def _cast8(x: Tensor, scaling: ScalingState, *, rows: bool = True, cols: bool = False) -> tuple[Tensor | None, Tensor | None]:
    return _eight(x, scaling) if rows else None, _transposed(x, scaling) if cols else None


def _norm8(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, scaling: ScalingState) -> tuple[Tensor, Tensor]:
    return _eight(x, scaling), _stats(x, bias)


def _gelu_backward8(dg: Tensor, pre: Tensor, scaling: ScalingState,
                    g_scaling: ScalingState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _eight(pre, scaling), _transposed(pre, scaling), _transposed(pre, g_scaling), _sums(pre, 1, pre.shape[1])


def _gated8(pre: Tensor, scaling: ScalingState) -> Tensor:
    return _eight(_gated(pre), scaling)


def _gated_backward8(d: Tensor, pre: Tensor, scaling: ScalingState, g_scaling: ScalingState, *,
                     sums: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    added = _sums(pre, 1, pre.shape[1]) if sums else None
    return _eight(pre, scaling), _transposed(pre, scaling), _transposed(d, g_scaling), added


def _cat_qkv8(parts: Parts, scaling: ScalingState) -> tuple[Tensor, Tensor, Tensor]:
    whole, sums = _cat_qkv(parts)
    return _eight(whole, scaling), _transposed(whole, scaling), sums
