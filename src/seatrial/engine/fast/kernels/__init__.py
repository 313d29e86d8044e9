"""Kernels of the fused step: Triton's where they are named, plain torch's everywhere else.

    kernels = Kernels.of(("norm", "gelu"))              Triton's, and the others in plain torch
    kernels.norm(x, weight, bias, 1e-5)
    works, notes = verified.usable(NAMES, device, dtype, 2048)          each is tried once against plain torch on the device

Triton is never required: without it the engine runs the same functions out of `plain`.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from seatrial.engine.fast.kernels import plain, plain_experts
from seatrial.spec import Model


class Kernels:
    """Functions of the names, arguments and results of `plain` and `plain_experts`."""

    norm = staticmethod(plain.norm)
    norm_recompute = staticmethod(plain.norm_recompute)
    norm_backward = staticmethod(plain.norm_backward)
    gelu = staticmethod(plain.gelu)
    gelu_backward = staticmethod(plain.gelu_backward)
    gated = staticmethod(plain.gated)
    gated_backward = staticmethod(plain.gated_backward)
    rotate = staticmethod(plain.rotate)
    rotate_backward = staticmethod(plain.rotate_backward)
    cat_qkv = staticmethod(plain.cat_qkv)
    reduce_partials = staticmethod(plain.reduce_partials)
    add_rows = staticmethod(plain.add_rows)
    softmax_parts = staticmethod(plain.softmax_parts)
    softmax_gradient = staticmethod(plain.softmax_gradient)
    squared = staticmethod(plain.squared)
    adamw = staticmethod(plain.adamw)
    adamw_split = staticmethod(plain.adamw_split)
    cast8 = staticmethod(plain.cast8)
    norm8 = staticmethod(plain.norm8)
    norm_recompute8 = staticmethod(plain.norm_recompute8)
    gelu8 = staticmethod(plain.gelu8)
    gelu_backward8 = staticmethod(plain.gelu_backward8)
    gated8 = staticmethod(plain.gated8)
    gated_backward8 = staticmethod(plain.gated_backward8)
    cat_qkv8 = staticmethod(plain.cat_qkv8)
    put_rows = staticmethod(plain_experts.put_rows)
    sum_rows = staticmethod(plain_experts.sum_rows)
    grouped = staticmethod(plain_experts.grouped)
    grouped_gradient = staticmethod(plain_experts.grouped_gradient)

    def __init__(self, **others: Callable[..., Any]):
        """`others`: in place of plain torch's, by name."""
        for name, kernel in others.items():
            assert name in NAMES, name
            setattr(self, name, kernel)

    @classmethod
    def of(cls, triton: Iterable[str]) -> Kernels:
        """Those that are named are Triton's."""
        names = tuple(triton)
        return cls(**{name: kernel for name, kernel in triton_kernels().items() if name in names}) if names else cls()


NAMES = tuple(name for name, value in vars(Kernels).items() if isinstance(value, staticmethod))
FP8 = tuple(name for name in NAMES if name.endswith("8"))
EXPERTS = tuple(name for name in NAMES if hasattr(plain_experts, name))


def used(names: Iterable[str], model: Model, *, eight: bool, experts: bool) -> tuple[str, ...]:
    """Of these, the ones that a model's choices ask for."""
    a = model.architecture
    without = {"gelu": a.mlp != "gelu", "gated": not model.gated, "rotate": not (model.rope or model.normed_qk)}
    return tuple(name for name in names if (eight or name not in FP8) and (experts and model.mixture or name not in EXPERTS)
                 and not without.get(name.removesuffix("8").removesuffix("_backward"), False))


def triton_kernels() -> dict[str, Callable[..., Any]]:
    kinds = ("activation", "adamw", "columns", "experts", "grouped", "norm", "rotate", "rows", "softmax")
    modules = [import_module(f"seatrial.engine.fast.kernels.triton_{kind}") for kind in kinds]
    own = {name: value for m in modules for name, value in vars(m).items() if getattr(value, "__module__", "") == m.__name__}
    return {name: own[name] for name in NAMES}
