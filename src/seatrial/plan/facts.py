"""Facts of engines for the planner's columns: one number where all configurations have one engine, else a column.

    of(c, "gradient_bytes")             4.0, or an array of [n]
    timed(c, machine)("host_us")        the same of what happens on a GPU alone
    says(c, "selective", "attention")   whether the fact is that word
    attention(c, device)                the kernel each configuration takes: an index in ATTENTION
    redone(c, "moe_act")                whether selective recompute makes that module again
    overlaps(c, "tensor")               whether that was asked for, asked not, or is left to the engine: 1, 0, -1
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seatrial.engines.model import DEFAULT, EngineModel, model_of
from seatrial.plan.configs import ATTENTION, OVERLAP_BITS, PRECISIONS, RECOMPUTE, Configs, Ints, engine_at
from seatrial.spec import MODULES, Device, Module, usual_modules

if TYPE_CHECKING:
    from seatrial.plan.kernels import Machine

STORED, FUSED, HOPPER = range(3)
FP16 = PRECISIONS.index("fp16")
SELECTIVE = RECOMPUTE.index("selective")


def engines(c: Configs) -> tuple[list[EngineModel], Ints | None]:
    """Those that occur, and for each configuration which; None where there is one."""
    if not len(c):
        return [model_of(DEFAULT)], None
    first = c.engine[0]
    if (c.engine == first).all():
        return [engine_at(int(first))], None
    codes, back = np.unique(c.engine, return_inverse=True)
    return [engine_at(int(code)) for code in codes], back


def of(c: Configs, name: str) -> Any:
    found, back = engines(c)
    values = [getattr(engine, name) for engine in found]
    return values[0] if back is None else np.array(values)[back]


def timed(c: Configs, machine: Machine) -> Callable[[str], Any]:
    """Facts of kernels, host and traffic. On CPUs an engine's GPU kernels and streams do not count: there all are as plain as
    Megatron's of 2022."""
    return partial(of, c) if machine.gpu else partial(getattr, model_of(DEFAULT))


def says(c: Configs, name: str, word: str) -> Any:
    found, back = engines(c)
    values = [getattr(engine, name) == word for engine in found]
    return np.full(len(c), values[0]) if back is None else np.array(values)[back]


def attention(c: Configs, device: Device) -> Ints:
    found, back = engines(c)
    usual = np.array([ATTENTION.index(engine.attention_on(device)) for engine in found])
    return np.where(c.attention >= 0, c.attention, usual[0] if back is None else usual[back])


def listed(c: Configs) -> NDArray[np.bool_]:
    """Whether selective recompute takes a list of modules."""
    found, back = engines(c)
    values = np.array([bool(engine.modules) for engine in found])
    return np.broadcast_to(values[0], len(c)) if back is None else values[back]


def redone(c: Configs, module: Module) -> NDArray[np.bool_]:
    usual = usual_modules(experts=(c.experts > 0) * 1, latent=c.is_latent).get(module, 0)
    asked = np.where(c.recompute_modules > 0, (c.recompute_modules >> MODULES.index(module)) & 1, usual) == 1
    fixed = says(c, "selective", "attention") & (module == "core_attn")
    return (c.recompute == SELECTIVE) & np.where(listed(c), asked, fixed)


def overlaps(c: Configs, what: str) -> Ints:
    return np.where(c.overlap < 0, -1, (c.overlap >> OVERLAP_BITS[what]) & 1)


def newest(device: Device) -> int:
    """The kernel that libraries take on it by themselves: what a probe of the device measured."""
    return HOPPER if "fp8" in device.peak_tflops else FUSED


def gradient_bytes(c: Configs, name: str) -> Any:
    """Of a gradient kept (`gradient_bytes`) or on the wire (`reduce_bytes`) in mixed precision."""
    narrow = of(c, "fp16_gradient_bytes")
    return np.where((c.precision == FP16) & (np.asarray(narrow) > 0), narrow, of(c, name))


def cuts_sequence(c: Configs) -> NDArray[np.bool_]:
    """Whether norms lie over the tensor-parallel ranks."""
    always = np.asarray(of(c, "sequence_parallel")) | np.asarray(of(c, "experts_cut_sequence")) & (c.experts > 0)
    return (c.sequence_parallel == 1) | (always & (c.tp > 1))
