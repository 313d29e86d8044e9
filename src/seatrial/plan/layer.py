"""What one micro-batch costs in one layer, at the head and at the embedding: every GEMM, pass over memory and collective
counted.

Bytes below are multiples of the element `e` (2 for fp16 and bf16). Attention without a fused kernel stores the scores, which
is what Megatron did before FlashAttention: a fused scale-mask-softmax, then dropout with its mask.
"""
from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from seatrial.arith.layer import gemms, widths
from seatrial.plan import network
from seatrial.plan.configs import RECOMPUTE, Configs, Floats, Ints
from seatrial.plan.kernels import Machine, alignment_bytes, as_measured, copy_s, element_s, matmul_s
from seatrial.plan.probed import Points, Probed, first_of, types
from seatrial.spec import Cluster

FULL, SELECTIVE = RECOMPUTE.index("full"), RECOMPUTE.index("selective")

KERNELS_FORWARD, KERNELS_BACKWARD = 24, 46
"""Kernels of one layer with unfused attention, counted from the operations below and the copies between them."""

HOST_FACTOR = 8.0
"""Host time for each of these kernels over a bare launch: module code, dispatch, autograd, the random state kept for
recompute. On the machine of `benchmarks/kernels_gpu.py` a layer small enough to be paced by the host takes 36 µs a kernel, and
blocking launches add 42."""

FLASH_FORWARD, FLASH_BACKWARD = 0.6, 0.45
"""Share of the large-GEMM rate that fused attention kernels reach, forward and backward (their authors' own figures: 0.5 to
0.7)."""

CROSS_ENTROPY_FORWARD, CROSS_ENTROPY_BACKWARD = 38, 14
"""Bytes for each logit in vocabulary-parallel cross entropy: to fp32 (6), maximum (4), subtract (8), exponential (8), sum (4),
divide (8); backward scale (8) and to 16 bits (6)."""


class Cost(NamedTuple):
    """Seconds of one micro-batch. Backward includes what is recomputed."""

    forward: Floats
    backward: Floats


def layer(c: Configs, cluster: Cluster, machine: Machine) -> dict[str, Cost]:
    e = machine.element_bytes
    tokens = c.mbs * c.seq
    wide = np.where(c.sequence_parallel == 1, c.tp, 1)
    w = widths(c, c.tp)
    full = c.recompute == FULL

    few, back = _distinct(c, machine)
    small = machine if back is None else machine.take(few)
    shapes = c if back is None else c.take(few)
    matmul_f, matmul_b = _spread(_linears(shapes, small), back)
    scores_f, scores_b = _spread(_attention(shapes, cluster, small), back)
    # The activation reads and writes; backward it also reads what came in.
    activation_f, activation_b = e * (w.up + w.inner), e * (2 * w.up + w.inner)
    # Two norms (read, write) and two bias-dropout-adds (two read, one written, a mask byte).
    whole_f = c.hidden * (10 * e + 2) / wide
    # The same backward, and the residual's gradient added twice.
    whole_b = c.hidden * (16 * e + 2) / wide
    copies = (w.qkv + w.context) * 2 * e + c.rope * w.qkv * 2 * e + c.normed_qk * w.rotated * 2 * e
    memory_f = element_s(machine, tokens * (whole_f + copies + activation_f))
    memory_b = element_s(machine, tokens * (whole_b + copies + activation_b + e * (w.inner + w.qkv)))
    tensor_f, tensor_b = _tensor_parallel(c, cluster, tokens * c.hidden * e)
    # Each micro-batch's weight gradient is added to what has accumulated: read both, write one.
    accumulate = np.where(c.microbatches > 1, copy_s(machine, w.linears * c.hidden * 3 * e), 0.0)
    cost = {
        "matmul": Cost(matmul_f, matmul_b + np.where(full, matmul_f, 0.0)),
        "attention": Cost(scores_f, scores_b + np.where(full | (c.recompute == SELECTIVE), scores_f, 0.0)),
        "memory": Cost(memory_f, memory_b + np.where(full, memory_f, 0.0)),
        "tensor": Cost(tensor_f, tensor_b + np.where(full, tensor_f, 0.0)),
        "accumulate": Cost(np.zeros_like(accumulate), accumulate),
    }
    cost["launch"] = _launch(machine, cost, full)
    return cost


SHAPED = ("mbs", "seq", "hidden", "heads", "kv", "head_size", "inner", "vocab", "tp", "gated", "rope", "learned", "precision",
          "flash", "procs_per_node")
"""The columns that GEMMs and attention depend on."""


def _distinct(c: Configs, machine: Machine) -> tuple[Ints, Ints | None]:
    """Which configurations stand for all in what depends on shapes alone, and for each who stands for it.

    Looking measured shapes up costs more than computing; thousands of layouts have a few dozen shapes between them.
    """
    if machine.figures is None:
        return np.arange(len(c)), None
    key = machine.matrix_flops.view(np.int64).copy()
    for name in SHAPED:
        key = key * MIX + getattr(c, name)
    _, few, back = np.unique(key, return_index=True, return_inverse=True)
    return few, back.reshape(-1)


MIX = 6364136223846793005
"""An odd number with which columns are mixed into one, modulo 2^64: Knuth's multiplier."""


def _spread(pair: tuple[Floats, Floats], back: Ints | None) -> tuple[Floats, Floats]:
    return pair if back is None else (pair[0][back], pair[1][back])


def _linears(c: Configs, machine: Machine) -> tuple[Floats, Floats]:
    """The four GEMMs of a layer; backward twice as many, for the input's and the weight's gradient."""
    tokens = c.mbs * c.seq
    forward: Floats = np.zeros(len(c))
    backward: Floats = np.zeros(len(c))
    for _, _, cols, inner in gemms(c, c.tp):
        align = alignment_bytes(machine, cols, inner)
        forward = forward + matmul_s(machine, tokens, cols, inner, align)
        backward = (backward + matmul_s(machine, tokens, inner, cols, align, kind="input")
                    + matmul_s(machine, cols, inner, tokens, align, kind="weight"))
    return forward, backward


def _attention(c: Configs, cluster: Cluster, machine: Machine) -> tuple[Floats, Floats]:
    """Scores, softmax, dropout and the weighted sum."""
    e = machine.element_bytes
    heads = c.mbs * c.heads // c.tp
    flash = np.where(c.flash >= 0, c.flash, int(cluster.device.fuses_attention)) == 1
    align = alignment_bytes(machine, c.head_size)
    scores = matmul_s(machine, c.seq, c.seq, c.head_size, align, heads, kind="batched")
    context = matmul_s(machine, c.seq, c.head_size, c.seq, align, heads, kind="batched")
    elements = heads.astype(np.float64) * c.seq * c.seq
    # The fused softmax takes blocks of four heads and sequences up to 16384; else scale, mask, two casts and softmax are
    # kernels each.
    fused = (heads % 4 == 0) & (c.seq <= 16384) & machine.gpu
    softmax_f = elements * (4 * e + 1 + np.where(fused, 0.0, 4 * e + 17))
    softmax_b = elements * (5 * e + 1 + np.where(fused, 0.0, 4 * e + 12))
    stored_f = scores + context + element_s(machine, softmax_f)
    stored_b = scores + 3 * context + element_s(machine, softmax_b)
    flash_f, flash_b = fused_attention_s(machine, heads, c.seq, c.head_size)
    if machine.figures is not None:
        flash_f = flash_f * _attention_factor(machine.figures, "forward_s", c)
        flash_b = flash_b * _attention_factor(machine.figures, "backward_s", c)
    return np.where(flash, flash_f, stored_f), np.where(flash, flash_b, stored_b)


def fused_attention_s(machine: Machine, heads: Ints, seq: Ints, head_dim: Ints) -> tuple[Floats, Floats]:
    """Seconds forward and backward of so many heads, as the model has it."""
    elements = heads.astype(np.float64) * seq * seq
    flops = 2.0 * elements * head_dim  # both GEMMs, half of them masked away
    return flops / (machine.matrix_flops * FLASH_FORWARD), 2.5 * flops / (machine.matrix_flops * FLASH_BACKWARD)


def _attention_factor(figures: Probed, way: str, c: Configs) -> Floats:
    found = np.ones(len(c))
    biased = (c.rope == 0) & (c.learned == 0)
    for code in np.unique(c.precision):
        for bias in (False, True):
            where = (c.precision == code) & (biased == bias)
            keys = [(name, with_bias, way) for with_bias in (bias, not bias) for name in types(code)]
            points = first_of(_attention_off_by(figures), keys)
            if points is not None and where.any():
                heads = np.maximum(c.mbs * c.heads // c.tp, 1)
                found[where] = points.at(heads[where], c.seq[where], c.head_size[where])
    return found


@functools.lru_cache(maxsize=64)
def _attention_off_by(figures: Probed) -> dict[tuple[str, bool, str], Points]:
    """By type, bias and way: measured seconds of fused attention over the model's."""
    known = figures.entries("attention")
    if not known:
        return {}
    machine = as_measured(figures, [e["dtype"] for e in known])
    heads = np.array([e["batch"] * e["heads"] for e in known])
    seq, dim = (np.array([e[side] for e in known]) for side in ("seq", "head_dim"))
    modelled = dict(zip(("forward_s", "backward_s"), fused_attention_s(machine, heads, seq, dim)))
    places = np.stack([heads, seq, dim], axis=1)
    found = {}
    for way, model_s in modelled.items():
        factors = np.array([e[way] for e in known]) / model_s
        for dtype, bias in dict.fromkeys((e["dtype"], bool(e["bias"])) for e in known):
            mine = np.array([e["dtype"] == dtype and e["bias"] == bias for e in known])
            found[dtype, bias, way] = Points(places[mine], factors[mine])
    return found


def _tensor_parallel(c: Configs, cluster: Cluster, size: Floats) -> tuple[Floats, Floats]:
    """Two all-reduces forward and two backward; sequence parallelism gathers its input once more for each weight gradient."""
    group = network.tensor_group(c)
    reduce = 2 * network.all_reduce_s(cluster, group, size)
    again = np.where(c.sequence_parallel == 1, 2 * network.gather_s(cluster, group, size), 0.0)
    return reduce, reduce + again


def _launch(machine: Machine, cost: dict[str, Cost], full: Floats) -> Cost:
    """Where the host sets the pace, what the device waits for it."""
    again = np.where(full, KERNELS_FORWARD, 0)
    waits = []
    for side, kernels in (("forward", np.full(len(full), KERNELS_FORWARD)), ("backward", KERNELS_BACKWARD + again)):
        host_s = kernels * machine.launch_s * HOST_FACTOR
        if machine.host_forward_s is not None and machine.host_backward_s is not None and not machine.exposed_launch:
            whole = machine.host_backward_s + np.where(full, machine.host_forward_s, 0.0)
            host_s = machine.host_forward_s if side == "forward" else whole
        if machine.exposed_launch or not machine.gpu:
            waits.append(host_s)
        else:
            waits.append(np.maximum(host_s - sum(getattr(part, side) for part in cost.values()), 0.0))
    return Cost(*waits)


def head(c: Configs, cluster: Cluster, machine: Machine) -> Cost:
    """Logits and cross entropy on the last stage; nothing here is recomputed."""
    e = machine.element_bytes
    tokens, rows = c.mbs * c.seq, c.vocab // c.tp
    size = tokens * c.hidden * e
    group = network.tensor_group(c)
    few, back = _distinct(c, machine)
    logits = _logits(c, machine) if back is None else _spread(_logits(c.take(few), machine.take(few)), back)
    forward = logits[0] + CROSS_ENTROPY_FORWARD * tokens * rows / machine.logits_bytes_s
    backward = (logits[1] + CROSS_ENTROPY_BACKWARD * tokens * rows / machine.logits_bytes_s
                + np.where(c.microbatches > 1, copy_s(machine, rows * c.hidden * 3 * e), 0.0)
                + network.all_reduce_s(cluster, group, size))
    return Cost(forward, backward)


def _logits(c: Configs, machine: Machine) -> tuple[Floats, Floats]:
    tokens, rows = c.mbs * c.seq, c.vocab // c.tp
    align = alignment_bytes(machine, rows, c.hidden)
    backward = (matmul_s(machine, tokens, c.hidden, rows, align, kind="input")
                + matmul_s(machine, rows, c.hidden, tokens, align, kind="weight"))
    return matmul_s(machine, tokens, rows, c.hidden, align), backward


def embedding(c: Configs, cluster: Cluster, machine: Machine) -> Cost:
    """The lookup, its sum over the vocabulary's slices, dropout; backward a dense gradient is cleared, filled and added."""
    e = machine.element_bytes
    size = c.mbs * c.seq * c.hidden * e
    forward = element_s(machine, 6 * size) + network.all_reduce_s(cluster, network.tensor_group(c), size)
    return Cost(forward, copy_s(machine, 4 * size + c.vocab / c.tp * c.hidden * 4 * e))
