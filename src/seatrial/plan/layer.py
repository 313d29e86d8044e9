"""What one micro-batch costs in one layer, at the head and at the embedding: every GEMM, pass over memory and collective
counted.

Bytes below are multiples of the element `e` (2 for fp16 and bf16). Attention without a fused kernel stores the scores, which
is what Megatron did before FlashAttention: a fused scale-mask-softmax, then dropout with its mask.
"""
from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from seatrial.arith.experts import expert_tensors
from seatrial.arith.layer import Widths, gemms, latent_split, matrices, numbers, widths
from seatrial.plan import context, documents, experts, facts, network
from seatrial.plan.attention import fused_s
from seatrial.plan.configs import CONTEXTS, PRECISIONS, RECOMPUTE, Configs, Floats, Ints
from seatrial.plan.kernels import Machine, alignment_bytes, as_measured, copy_s, element_s, matmul_s
from seatrial.plan.probed import Points, Probed, first_of, types
from seatrial.spec import Cluster

FULL, SELECTIVE = RECOMPUTE.index("full"), RECOMPUTE.index("selective")
FP8 = PRECISIONS.index("fp8")
FP8_MULTIPLE = 16
"""Of the sides of GEMMs in 8 bits."""

USUAL_LAUNCH_S = 5e-6
"""Of the hosts that the engines' host times are of: one that starts kernels slower is slower in all."""

LOSS_FORWARD = 38 / 52
"""Share of the loss's traffic that is forward. Vocabulary-parallel cross entropy in separate kernels: to fp32 (6), maximum (4),
subtract (8), exponential (8), sum (4), divide (8); backward scale (8) and to 16 bits (6)."""

CPU_FORWARD, CPU_BACKWARD = 0.6, 0.45
"""Share of the large-GEMM rate that attention without stored scores reaches on a CPU."""

WEIGHTS_SHARE = 0.5
"""Of the backward pass's GEMMs: those of the weights, beside which collectives can travel."""


class Cost(NamedTuple):
    """Seconds of one micro-batch. Backward includes what is recomputed."""

    forward: Floats
    backward: Floats


def layer(c: Configs, cluster: Cluster, machine: Machine) -> dict[str, Cost]:
    """One without experts; nothing where every layer of every model has some."""
    if len(c) and (c.expert_layers == c.layers).all():
        return {}
    cost = _block(c, cluster, machine)
    cost["launch"] = _launch(c, machine, cost)
    return cost


def expert_layer(c: Configs, cluster: Cluster, machine: Machine) -> dict[str, Cost]:
    """One with experts, each part 0 where a model has none; nothing where no model has any."""
    has = c.experts > 0
    if has.all() or not has.any():
        return _routed(c, cluster, machine) if has.any() else {}
    found = {}
    for name, cost in _routed(c.take(has), cluster, machine.take(np.flatnonzero(has))).items():
        both = np.zeros((2, len(c)))
        both[:, has] = cost
        found[name] = Cost(both[0], both[1])
    return found


def _routed(c: Configs, cluster: Cluster, machine: Machine) -> dict[str, Cost]:
    fact = facts.timed(c, machine)
    beside = replace(c, inner=c.shared_inner)
    # The shared experts' sums over TP; without any, tokens that were whole on each rank are put together again.
    cost = _block(beside, cluster, machine, np.where(c.shared_inner > 0, 1.0, np.where(facts.cuts_sequence(c), 0.0, 0.5)),
                  routed=True)
    few, back = _distinct(c, machine, ROUTED)
    grouped = _grouped(c, machine) if back is None else _spread(_grouped(c.take(few), machine.take(few)), back)
    moved = _moved(c, machine)
    there = experts.dispatch_s(c, cluster, machine)
    shared = _gemms_s(machine, list(_mlp(beside)))
    # Recomputed shared experts run by themselves.
    hides = np.where(facts.redone(c, "shared_experts"), 0.0, fact("shared_hidden"))
    travels = [2 * there - np.minimum(2 * there, own) * hides for own in shared]
    wait = experts.excess(c)
    full, some, whole = c.recompute == FULL, c.recompute == SELECTIVE, facts.redone(c, "moe")
    again = np.where(full | whole, 1.0, 0.0)
    down = 1 / (2 + c.gated)
    gemms_again = np.where(full, np.where(fact("last_gemm_kept"), 1 - down, 1.0),
                           np.where(some & facts.says(c, "selective", "half-gemms"), down, again))
    activation = facts.redone(c, "moe_act") * _activation_s(c, machine) / np.maximum(moved[0], 1e-12)
    acts_again = np.where(some & ~whole, np.where(facts.listed(c), activation, 0.25), again)
    own = [_rested(machine, seconds, moves + far) for seconds, moves, far in zip(grouped, moved, travels)]
    cost["experts"] = Cost(own[0], own[1] + gemms_again * own[0])
    memory = cost["memory"]
    cost["memory"] = Cost(memory.forward + moved[0], memory.backward + moved[1] + acts_again * moved[0])
    cost["dispatch"] = Cost(travels[0], travels[1] + again * travels[0])
    waits = [wait * (one + far) for one, far in zip(own, travels)]
    cost["wait"] = Cost(waits[0], waits[1] + gemms_again * waits[0])
    adds = (c.microbatches > 1) | fact("always_accumulates")
    numbers_held = numbers(expert_tensors(c, c.ep, c.expert_tp))
    more = np.where(adds, copy_s(machine, numbers_held * fact("accumulate_bytes") * machine.element_bytes / 2), 0.0)
    cost["accumulate"] = Cost(cost["accumulate"].forward, cost["accumulate"].backward + more)
    kernels = fact("expert_kernels") + fact("held_kernels") * experts.held(c)
    launch = _launch(c, machine, cost, kernels)
    synced = np.where((c.expert_ranks > 1) & machine.gpu, fact("dispatch_sync_us") * 1e-6, 0.0)
    cost["launch"] = Cost(launch.forward + synced, launch.backward + again * synced)
    return cost


UNEVEN_ROWS = 64
"""Half a tile: what experts of uneven loads leave empty of their last one, on average."""
ROUTER_BYTES = 24.0
"""For each token and expert: scores in fp32 written, read for the choice, chosen ones scattered, and a map of them."""


def _grouped(c: Configs, machine: Machine) -> tuple[Floats, Floats]:
    """The experts' GEMMs and the router's, of a rank that has its even share."""
    held = experts.held(c)
    # Sizes that differ end anywhere in a tile.
    rows = experts.rows(c) / held + np.where((c.moe_balance == experts.FORCED) | (held == 1), 0, UNEVEN_ROWS)
    width = -(-c.expert_inner // c.expert_tp)
    forward, backward = _gemms_s(machine, [(rows, (1 + c.gated) * width, c.hidden, None), (rows, c.hidden, width, None)], held)
    router = _gemms_s(machine.wide(), [(experts.own_tokens(c), c.experts, c.hidden, None)])
    rate = facts.timed(c, machine)("grouped_rate")
    return forward / rate + router[0], backward / rate + router[1]


def _moved(c: Configs, machine: Machine) -> tuple[Floats, Floats]:
    """What only moves memory in a layer of experts: tokens permuted, activations, the router's scores, casts to 8 bits."""
    fact, e = facts.timed(c, machine), machine.element_bytes
    rows, inner = experts.rows(c), -(-c.expert_inner // c.expert_tp)
    up = (1 + c.gated) * inner
    permuted = fact("permute_passes") * experts.permuted_s(c, machine)
    routed = element_s(machine, experts.own_tokens(c) * c.experts * ROUTER_BYTES)
    forward = permuted + routed + _activation_s(c, machine)
    backward = permuted + routed + copy_s(machine, rows * e * (2 * up + inner))
    eight = np.where(c.precision == FP8, fact("fp8_cast_bytes") / 2, 0.0)
    held = numbers(expert_tensors(c, c.ep, c.expert_tp))
    weights = np.where(c.precision == FP8, fact("fp8_weight_cast_bytes") / 2, 0.0) * held
    return (forward + copy_s(machine, rows * (c.hidden + inner) * eight + weights),
            backward + copy_s(machine, rows * (up + c.hidden) * eight + weights))


def _activation_s(c: Configs, machine: Machine) -> Floats:
    """Of the experts' rows."""
    return copy_s(machine, experts.rows(c) * machine.element_bytes * (2 + c.gated) * -(-c.expert_inner // c.expert_tp))


def _block(c: Configs, cluster: Cluster, machine: Machine, summed: Any = 1.0, *, routed: bool = False) -> dict[str, Cost]:
    """A layer without what the host adds; `summed`: of the tensor-parallel collectives behind attention, how many there are;
    `routed`: one whose MLP is the shared experts."""
    fact = facts.timed(c, machine)
    e = machine.element_bytes
    tokens = c.tokens
    wide = np.where(facts.cuts_sequence(c), c.tp, 1)
    w = widths(c, c.tp)

    few, back = _distinct(c, machine)
    small = machine if back is None else machine.take(few)
    shapes = c if back is None else c.take(few)
    matmul_f, matmul_b = _spread(_gemms_s(small, [*_projections(shapes), *_mlp(shapes)]), back)
    uneven = _uneven(c, cluster)
    scores_f, scores_b = (uneven * seconds for seconds in _spread(_attention(shapes, cluster, small.wide()), back))
    # The activation reads and writes; backward it also reads what came in.
    activation_f, activation_b = e * (w.up + w.inner), e * (2 * w.up + w.inner)
    # Two norms (read, write) and two bias-dropout-adds (two read, one written, a mask byte).
    whole_f = c.hidden * (10 * e + 2) / wide
    # The same backward, and the residual's gradient added twice.
    whole_b = c.hidden * (16 * e + 2) / wide
    copies = (w.qkv + w.context) * 2 * e + c.rope * w.qkv * 2 * e + c.normed_qk * w.rotated * 2 * e
    usual = (c.experts == 0) & (c.is_latent == 0) & (c.has_sinks == 0)
    fused = np.asarray(fact("fused_elements")) & (usual | np.asarray(fact("fuses_all")))
    more = np.where(fused, fact("element_bytes"), np.maximum(fact("element_bytes"), 1.0))
    moves_f = tokens * (whole_f + copies + activation_f) * more
    moves_b = tokens * (whole_b + copies + activation_b + e * (w.inner + w.qkv)) * more
    memory_f = np.where(fused, copy_s(machine, moves_f), element_s(machine, moves_f))
    memory_b = np.where(fused, copy_s(machine, moves_b), element_s(machine, moves_b))
    cast_f, cast_b = _casts(c, machine)
    memory_f, memory_b = memory_f + cast_f, memory_b + cast_b
    tensor_f, tensor_b = _tensor_parallel(c, cluster, machine, tokens * c.hidden * e, matmul_b, summed)
    # Each micro-batch's weight gradient is added to what has accumulated.
    adds = (c.microbatches > 1) | fact("always_accumulates")
    accumulate = np.where(adds, copy_s(machine, matrices(c, c.tp) * fact("accumulate_bytes") * e / 2), 0.0)
    # Of a list of modules: a norm reads and writes; an MLP without experts has its own inside.
    mlp = facts.redone(c, "moe") | facts.redone(c, "shared_experts") if routed else facts.redone(c, "mlp")
    norms = facts.redone(c, "layernorm") * (c.is_latent + routed) + mlp * (not routed)
    passes = norms * 2 * e * c.hidden / wide + facts.redone(c, "mla_up_proj") * copies + mlp * activation_f
    redone = _recomputed(c, machine, w, mlp, passes / (whole_f + copies + activation_f), mlp * summed / (1 + summed))
    matmul_f = _rested(machine, matmul_f, scores_f + memory_f)
    matmul_b = _rested(machine, matmul_b, scores_b + memory_b)
    cost = {
        "matmul": Cost(matmul_f, matmul_b + redone.gemms * matmul_f),
        "attention": Cost(scores_f, scores_b + redone.attention * scores_f),
        "memory": Cost(memory_f, memory_b + redone.elements * memory_f),
        "tensor": Cost(tensor_f, tensor_b + redone.collectives * tensor_f),
        "accumulate": Cost(np.zeros_like(accumulate), accumulate),
    }
    if (c.cp > 1).any():
        exchange_f, exchange_b = context.exchange_s(c, cluster, machine, scores_f, scores_b)
        cost["exchange"] = Cost(exchange_f, exchange_b + redone.attention * exchange_f)
    return cost


def scores_s(c: Configs, cluster: Cluster, machine: Machine) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Attention forward and backward, and what it exchanges between ranks of a sequence."""
    few, back = _distinct(c, machine)
    own = _spread(_attention(c.take(few), cluster, machine.take(few).wide()), back) if back is not None else _attention(
        c, cluster, machine.wide())
    uneven = _uneven(c, cluster)
    own = uneven * own[0], uneven * own[1]
    return own, context.exchange_s(c, cluster, machine, *own)


def _uneven(c: Configs, cluster: Cluster) -> Any:
    """By how much the slowest rank has more of attention inside documents; stored scores are all of the sequence's."""
    if not c.documents.any():
        return 1.0
    return np.where(facts.attention(c, cluster.device) == facts.STORED, 1.0, documents.excess(c))


RESTED = 0.12
"""Power that attention and passes over memory leave unused, which the clock gives to the GEMMs between them. On an H200 at its
limit 0.25 in a step a quarter of which is such kernels, 0.08 in one with an eighth (the profiles of docs/gpu.md), less in
single blocks (`benchmarks/attention_gpu.py`, `kernels_gpu.py`)."""


def _rested(machine: Machine, matmul_s: Floats, others_s: Floats) -> Floats:
    """GEMMs of a device that is at its power limit, between other kernels."""
    if not machine.power_bound:
        return matmul_s
    return np.maximum(matmul_s * machine.sustained, matmul_s - RESTED * others_s)


class Recomputed(NamedTuple):
    """Shares of the forward pass that the backward pass makes again."""

    gemms: Floats
    attention: Floats
    elements: Floats
    collectives: Floats


def _recomputed(c: Configs, machine: Machine, w: Widths, mlp: Any, passes: Floats, summed: Any) -> Recomputed:
    """`mlp`: whether a list of modules has the MLP; `passes`, `summed`: shares of passes over memory and of collectives that
    one makes again."""
    full, some, listed = c.recompute == FULL, c.recompute == SELECTIVE, facts.listed(c)
    linears = matrices(c, c.tp) / c.hidden
    half = some & facts.says(c, "selective", "half-gemms")
    elements = np.where(listed, passes, 0.5 * (some & facts.says(c, "selective", "elements")))
    # Every second GEMM of a block: the keys', the attention's output, the MLP's second; attention and its like are kept.
    redone = (w.context + np.where(c.gated == 1, (w.qkv - w.context) / 2, 0.0) + w.inner) / linears
    gemms = np.where(half, np.where(c.is_latent == 1, 0.5, redone), mlp * (w.up + w.inner) / linears)
    if (c.is_latent == 1).any():
        up = numbers([tensor for tensor in latent_split(c, c.tp) if tensor.name != "out.weight"])
        gemms = gemms + facts.redone(c, "mla_up_proj") * up / linears / c.hidden
    all_of = np.where(facts.timed(c, machine)("last_gemm_kept"), 1 - w.inner / linears, 1.0)
    return Recomputed(gemms=np.where(full, all_of, gemms), attention=np.where(full | facts.redone(c, "core_attn"), 1.0, 0.0),
                      elements=np.where(full | half, 1.0, elements),
                      collectives=np.where(full, 1.0, np.where(half, 0.5, summed)))


def _casts(c: Configs, machine: Machine) -> tuple[Any, Any]:
    """To 8 bits: what enters the linears, and backward their outputs' gradients."""
    fact = facts.timed(c, machine)
    eight = c.precision == FP8
    if not eight.any():
        return 0.0, 0.0
    every = [(rows * (1 if there is None else there), cols, inner) for rows, cols, inner, there in (*_projections(c), *_mlp(c))]
    enter = sum(rows * inner for rows, _, inner in every)
    leave = sum(rows * cols for rows, cols, _ in every)
    each = np.where(eight, fact("fp8_cast_bytes") / 2, 0.0)
    weights = np.where(eight, fact("fp8_weight_cast_bytes") / 2, 0.0) * matrices(c, c.tp)
    return copy_s(machine, enter * each + weights), copy_s(machine, leave * each + weights)


SHAPED = ("mbs", "seq", "hidden", "heads", "kv", "head_size", "inner", "vocab", "tp", "gated", "rope", "learned", "precision",
          "attention", "engine", "procs_per_node", "cp", "cp_kind", "documents", "sequence_parallel", "is_latent", "q_rank",
          "kv_rank", "rope_dim", "value_dim", "sliding_window", "full_every")
"""The columns that GEMMs and attention depend on …"""
ROUTED = ("mbs", "seq", "hidden", "tp", "gated", "precision", "cp", "engine", "experts", "chosen", "expert_inner", "ep", "etp",
          "moe_balance", "capacity_permille", "procs_per_node")
"""… and those of experts."""


def _distinct(c: Configs, machine: Machine, by: tuple[str, ...] = SHAPED) -> tuple[Ints, Ints | None]:
    """Which configurations stand for all in what depends on shapes alone, and for each who stands for it.

    Looking measured shapes up costs more than computing; thousands of layouts have a few dozen shapes between them.
    """
    if machine.figures is None:
        return np.arange(len(c)), None
    key = machine.matrix_flops.view(np.int64).copy()
    for name in by:
        key = key * MIX + getattr(c, name)
    _, few, back = np.unique(key, return_index=True, return_inverse=True)
    return few, back.reshape(-1)


MIX = 6364136223846793005
"""An odd number with which columns are mixed into one, modulo 2^64: Knuth's multiplier."""


def _spread(pair: tuple[Floats, Floats], back: Ints | None) -> tuple[Floats, Floats]:
    return pair if back is None else (pair[0][back], pair[1][back])


Gemm = tuple[Any, Any, Any, Any]
"""Rows, columns, inner dimension, and 1 where there is one; None: everywhere."""


def _projections(c: Configs) -> Iterator[Gemm]:
    """Of attention. What compresses for latent attention is whole on every rank, which has its own tokens where the sequence
    is cut."""
    latent = c.is_latent
    if not latent.all():
        for _, _, cols, inner in gemms(c, c.tp)[:2]:
            yield c.tokens, cols, inner, 1 - latent if latent.any() else None
    if latent.any():
        own = c.tokens // np.where(facts.cuts_sequence(c), c.tp, 1)
        heads = -(-c.heads // c.tp)
        yield own, c.q_rank, c.hidden, latent * (c.q_rank > 0)
        yield own, c.kv_rank + c.rope_dim, c.hidden, latent
        yield c.tokens, heads * (c.head_size + c.rope_dim), np.where(c.q_rank > 0, c.q_rank, c.hidden), latent
        yield c.tokens, heads * (c.head_size + c.value_dim), c.kv_rank, latent
        yield c.tokens, c.hidden, heads * c.value_dim, latent


def _mlp(c: Configs) -> Iterator[Gemm]:
    there = c.inner > 0
    for _, _, cols, inner in gemms(c, c.tp)[2:] if there.any() else ():
        yield c.tokens, cols, inner, None if there.all() else there


def _gemms_s(machine: Machine, shapes: Sequence[Gemm], batch: Any = 1) -> tuple[Floats, Floats]:
    """Forward; backward twice as many, for the input's and the weight's gradient."""
    forward: Floats = np.zeros(len(machine.matrix_flops))
    backward: Floats = np.zeros(len(machine.matrix_flops))
    for tokens, cols, inner, there in shapes:
        if there is not None:
            cols, inner = np.maximum(cols, 1), np.maximum(inner, 1)
        align = alignment_bytes(machine, cols, inner)
        one = matmul_s(machine, tokens, cols, inner, align, batch)
        two = matmul_s(machine, tokens, inner, cols, align, batch, kind="input")
        three = matmul_s(machine, cols, inner, tokens, align, batch, kind="weight")
        forward = forward + (one if there is None else one * there)
        backward = backward + two + three if there is None else backward + (two + three) * there
    return forward, backward


def _attention(c: Configs, cluster: Cluster, machine: Machine) -> tuple[Floats, Floats]:
    """Scores, softmax, dropout and the weighted sum. Context parallelism cuts them into pieces of which none waits for
    another rank's: in a ring each of two stretches, one from either end, meets as many keys in every step."""
    e = machine.element_bytes
    cut, steps, queries = context.pieces(c)
    heads, seq = c.mbs * c.heads // c.tp // cut, c.seq // steps
    kernel = facts.attention(c, cluster.device)
    size = c.attention_size
    align = alignment_bytes(machine, size)
    rows = seq // queries
    scores = matmul_s(machine, rows, seq, size, align, heads, kind="batched")
    weighted = matmul_s(machine, rows, size, seq, align, heads, kind="batched")
    elements = heads.astype(np.float64) * rows * seq
    # The fused softmax takes blocks of four heads and sequences up to 16384; else scale, mask, two casts and softmax are
    # kernels each.
    fused = (heads % 4 == 0) & (seq <= 16384) & machine.gpu
    softmax_f = elements * (4 * e + 1 + np.where(fused, 0.0, 4 * e + 17))
    softmax_b = elements * (5 * e + 1 + np.where(fused, 0.0, 4 * e + 12))
    stored_f = scores + weighted + element_s(machine, softmax_f)
    stored_b = scores + 3 * weighted + element_s(machine, softmax_b)
    # Inside documents: as much work as there is, at the rate of their length. Stored scores are masked and computed.
    share, length = documents.shares(c)
    inside = np.minimum(length, seq)
    many = heads * share * (seq / inside) ** 2 * _looked_back(c)
    fused_f, fused_b = fused_attention_s(machine, kernel, many, inside, size, queries)
    if machine.figures is not None:
        newest = (kernel == facts.newest(cluster.device)) | (not machine.gpu)
        # An engine that times kernels at its start is at least as good as the one that the probe met.
        most = np.where(facts.timed(c, machine)("tunes_attention"), 1.0, np.inf)
        off_f, off_b = (np.minimum(_attention_factor(machine.figures, way, c, many, inside), most)
                        for way in ("forward_s", "backward_s"))
        fused_f, fused_b = fused_f * np.where(newest, off_f, 1.0), fused_b * np.where(newest, off_b, 1.0)
    stored = kernel == facts.STORED
    # Each step but the first is added to what there is of the output, in fp32.
    added = (steps - 1) * copy_s(machine, heads * seq * size * (8 + e))
    return steps * np.where(stored, stored_f, fused_f) + added, steps * np.where(stored, stored_b, fused_b) + added


LEAST_WINDOW = 256
"""Keys that a fused kernel works through for a row of queries at least: two of its blocks."""


def _looked_back(c: Configs) -> Any:
    """What windows leave of attention, of all layers in the mean. Stored scores are computed whole."""
    has = (c.sliding_window > 0) & (c.sliding_window < c.seq)
    if not has.any():
        return 1.0
    part = np.minimum(1.0, np.maximum(c.sliding_window, LEAST_WINDOW) / c.seq)
    full = np.where(c.full_every > 0, 1 / np.maximum(c.full_every, 1), 0.0)
    return np.where(has, full + (1 - full) * part * (2 - part), 1.0)


def fused_attention_s(machine: Machine, kernel: Ints, heads: Ints, seq: Ints, head_dim: Ints,
                      queries: Any = 1) -> tuple[Floats, Floats]:
    """Seconds forward and backward of so many heads, as the model has it; `queries`: ranks that share them."""
    if machine.gpu:
        return fused_s(machine, kernel, heads, seq, head_dim, queries)
    flops = 2.0 * heads.astype(np.float64) * seq * seq * head_dim / queries  # both GEMMs, half of them masked away
    return flops / (machine.matrix_flops * CPU_FORWARD), 2.5 * flops / (machine.matrix_flops * CPU_BACKWARD)


def _attention_factor(figures: Probed, way: str, c: Configs, heads: Ints, seq: Ints) -> Floats:
    found = np.ones(len(c))
    biased = (c.rope == 0) & (c.learned == 0)
    for code in np.unique(c.precision):
        for bias in (False, True):
            where = (c.precision == code) & (biased == bias)
            keys = [(name, with_bias, way) for with_bias in (bias, not bias) for name in types(code)]
            points = first_of(_attention_off_by(figures), keys)
            if points is not None and where.any():
                found[where] = points.at(np.maximum(heads, 1)[where], seq[where], c.attention_size[where])
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
    kernel = np.full(len(known), facts.newest(figures.cluster.device))
    modelled = dict(zip(("forward_s", "backward_s"), fused_attention_s(machine, kernel, heads, seq, dim)))
    places = np.stack([heads, seq, dim], axis=1)
    found = {}
    for way, model_s in modelled.items():
        factors = np.array([e[way] for e in known]) / model_s
        for dtype, bias in dict.fromkeys((e["dtype"], bool(e.get("bias"))) for e in known):
            mine = np.array([e["dtype"] == dtype and bool(e.get("bias")) == bias for e in known])
            found[dtype, bias, way] = Points(places[mine], factors[mine])
    return found


def _tensor_parallel(c: Configs, cluster: Cluster, machine: Machine, size: Floats, matmul_b: Floats,
                     summed: Any) -> tuple[Floats, Floats]:
    """Two all-reduces forward and two backward; sequence parallelism gathers its input once more for each weight gradient,
    unless it was kept. What may hide behind the weights' GEMMs does as far as these last. Latent attention gathers what it
    compressed; `summed`: of the two, the share that is left of the second."""
    fact = facts.timed(c, machine)
    group = network.tensor_group(c)
    narrow = np.where(c.is_latent == 1, (1 + (c.q_rank + c.kv_rank + c.rope_dim) / c.hidden) / 2, 1.0)
    both = narrow + summed
    reduce = both * network.all_reduce_s(cluster, group, size)
    again = np.where(facts.cuts_sequence(c) & ~np.asarray(facts.of(c, "gathers_norms")),
                     both * network.gather_s(cluster, group, size), 0.0)
    hidden, asked, deep = fact("tensor_hidden"), facts.overlaps(c, "tensor"), fact("tensor_overlapped")
    backward = reduce + again
    share_f = np.where(asked == 1, deep, 0.0)
    share_b = np.where(asked == 1, np.maximum(deep, hidden), np.where(asked == 0, 0.0, hidden))
    drawn = fact("contention")
    hidden_b = np.minimum(backward * share_b, WEIGHTS_SHARE * matmul_b)
    return reduce * (1 - share_f * (1 - drawn)), backward - hidden_b * (1 - drawn)


def _launch(c: Configs, machine: Machine, cost: dict[str, Cost], more: Any = 0.0) -> Cost:
    """Where the host sets the pace, what the device waits for it; `more`: kernels of experts forward, backward half as many
    again."""
    fact, full = facts.timed(c, machine), c.recompute == FULL
    forward, each_s = fact("kernels_forward") + more, machine.launch_s / USUAL_LAUNCH_S * fact("host_us") * 1e-6
    again = np.where(full, forward, 0)
    waits = []
    for side, kernels in (("forward", forward), ("backward", fact("kernels_backward") + 1.5 * more + again)):
        host_s = kernels * each_s
        if machine.host_forward_s is not None and machine.host_backward_s is not None and not machine.exposed_launch:
            whole = machine.host_backward_s + np.where(full, machine.host_forward_s, 0.0)
            host_s = machine.host_forward_s if side == "forward" else whole
        if machine.exposed_launch or not machine.gpu:
            waits.append(np.broadcast_to(host_s, full.shape))
        else:
            waits.append(np.maximum(host_s - sum(getattr(part, side) for part in cost.values()), 0.0))
    return Cost(*waits)


def head(c: Configs, cluster: Cluster, machine: Machine) -> Cost:
    """Logits and cross entropy on the last stage; nothing here is recomputed."""
    fact = facts.timed(c, machine)
    e = machine.element_bytes
    tokens, rows = c.tokens, c.vocab // c.tp
    size = tokens * c.hidden * e
    group = network.tensor_group(c)
    few, back = _distinct(c, machine)
    plain = machine.wide(but=np.asarray(fact("fp8_head")) & (rows % FP8_MULTIPLE == 0))
    logits = _logits(c, plain) if back is None else _spread(_logits(c.take(few), plain.take(few)), back)
    loss_s = fact("loss_bytes") * tokens * rows / machine.logits_bytes_s
    forward = logits[0] + LOSS_FORWARD * loss_s
    backward = (logits[1] + (1 - LOSS_FORWARD) * loss_s
                + np.where(c.microbatches > 1, copy_s(machine, rows * c.hidden * 3 * e), 0.0)
                + network.all_reduce_s(cluster, group, size))
    return Cost(forward, backward)


def further(c: Configs, machine: Machine, top: Cost, dense: dict[str, Cost], routed: dict[str, Cost]) -> Cost:
    """The head with multi-token prediction: of each further token a layer, what joins it with that token's embedding, and a
    loss."""
    if not c.mtp.any():
        return top
    joined = _gemms_s(machine, [(c.tokens, c.hidden // c.tp, 2 * c.hidden, None)])
    ways = []
    for way in (0, 1):
        plain, mixed = (sum((cost[way] for cost in parts.values()), np.zeros(len(c))) for parts in (dense, routed))
        ways.append(top[way] + c.mtp * (top[way] + joined[way] + np.where(c.experts > 0, mixed, plain)))
    return Cost(*ways)


def _logits(c: Configs, machine: Machine) -> tuple[Floats, Floats]:
    tokens, rows = c.tokens, c.vocab // c.tp
    align = alignment_bytes(machine, rows, c.hidden)
    backward = (matmul_s(machine, tokens, c.hidden, rows, align, kind="input")
                + matmul_s(machine, rows, c.hidden, tokens, align, kind="weight"))
    return matmul_s(machine, tokens, rows, c.hidden, align), backward


def embedding(c: Configs, cluster: Cluster, machine: Machine) -> Cost:
    """The lookup, its sum over the vocabulary's slices, dropout; backward a dense gradient is cleared, filled and added."""
    e = machine.element_bytes
    size = c.tokens * c.hidden * e
    forward = element_s(machine, 6 * size) + network.all_reduce_s(cluster, network.tensor_group(c), size)
    return Cost(forward, copy_s(machine, 4 * size + c.vocab / c.tp * c.hidden * 4 * e))


CLEARLY = 0.05
"""Share of attention with its exchange by which another kind than the engine's default must be faster to be proposed."""


def fastest_kinds(c: Configs, cluster: Cluster, kinds: Sequence[str]) -> Ints:
    """The first of `kinds` that a layout allows, or another that is clearly faster; the first where none is allowed."""
    codes = [CONTEXTS.index(kind) for kind in kinds]
    best, least = np.full(len(c), codes[0]), np.full(len(c), np.inf)
    if len(codes) == 1:
        return best
    for code in codes:
        can = np.flatnonzero(context.allowed(c, code))
        one = replace(c.take(can), cp_kind=np.full(len(can), code))
        own, exchange = scores_s(one, cluster, Machine.of(one, cluster))
        seconds = sum((*own, *exchange), np.zeros(len(can)))
        wins = seconds < least[can] * (1 - CLEARLY)
        best[can[wins]], least[can[wins]] = code, seconds[wins]
    return best
