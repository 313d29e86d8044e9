"""Memory of the fullest process from its parts, for many configurations at once.

    memory.peak(configs, cluster).gib

What a tool like nvidia-smi shows: everything reserved, so also what the allocator keeps for later. The first pipeline rank
holds the most micro-batches in flight and the embedding, the last one the logits; the fullest of all decides.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from seatrial.arith.experts import expert_tensors
from seatrial.arith.layer import numbers, tensors, widths
from seatrial.plan import context, experts, facts, ours, probed
from seatrial.plan.configs import PRECISIONS, RECOMPUTE, Configs, Floats
from seatrial.plan.network import Copies
from seatrial.plan.step import CHUNK, FIRST, LAST, MIDDLE, Z90, dense_parameters, expert_parameters
from seatrial.schedule.vector import peaks
from seatrial.spec import BYTES, GIB, Cluster

NONE, SELECTIVE, FULL = (RECOMPUTE.index(r) for r in ("none", "selective", "full"))
FP32, FP8 = PRECISIONS.index("fp32"), PRECISIONS.index("fp8")

FP32_BYTES = 12.0
"""A parameter's share of the optimizer in fp32 alone: the two moments, and the contiguous buffer in which gradients are summed
and travel beside their own tensors."""

MEASURES: dict[str, tuple[str, ...]] = {"used": (), "reserved": ("context", "communicators"),
                                        "allocated": ("context", "communicators", "slack")}
"""What tools call a peak -> the parts that it does not count: NCCL and the driver are not the framework's, and what its
allocator keeps for later is no tensor's."""

SURE = 0.06
"""The spread of an engine whose memory was seen: what is learned from rows may move others further."""

SIGMA_CPU = 0.15
"""Standard deviation of the logarithm where there is no caching allocator to count and pages belong to the system."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    gib: Floats
    """Of the fullest process, or of the node where the machine counts so."""
    lo: Floats
    hi: Floats
    parts: dict[str, Floats]
    """GiB by part on the fullest pipeline rank; they add up to `gib`."""
    by_rank: Floats
    """[3, n]: the first pipeline rank, the fullest in between, the last."""
    need_gib: Floats
    """The least it can run with: gradient copies of the optimizer step may lie where activations lay before."""
    sigma: Floats
    """Standard deviation of the logarithm of either, before any row was seen."""

    def beyond(self, measures: Sequence[str]) -> Floats:
        """GiB that `gib`, what a tool sees used on the device, counts beyond another measure of it (MEASURES)."""
        return np.array([sum(float(self.parts[part][i]) for part in MEASURES.get(name, ())) for i, name in enumerate(measures)])


def peak(configs: Configs, cluster: Cluster) -> Memory:
    if len(configs) <= CHUNK:
        return _peak(configs, cluster)
    pieces = [_peak(configs.take(slice(i, i + CHUNK)), cluster) for i in range(0, len(configs), CHUNK)]
    return Memory(
        gib=np.concatenate([p.gib for p in pieces]), lo=np.concatenate([p.lo for p in pieces]),
        hi=np.concatenate([p.hi for p in pieces]), need_gib=np.concatenate([p.need_gib for p in pieces]),
        sigma=np.concatenate([p.sigma for p in pieces]),
        parts={name: np.concatenate([p.parts[name] for p in pieces]) for name in pieces[0].parts},
        by_rank=np.concatenate([p.by_rank for p in pieces], axis=1),
    )


def _peak(c: Configs, cluster: Cluster) -> Memory:
    gpu, device = cluster.device.kind == "gpu", probed.device_of(cluster)
    element = np.array([float(max(2, BYTES[p])) for p in PRECISIONS])[c.precision]
    parameters = dense_parameters(c), expert_parameters(c)
    exists = np.stack([np.ones(len(c), bool), c.pp > 2, np.ones(len(c), bool)])
    parts = _tensors(c, cluster, parameters, element)
    shape = parts["logits"].shape
    moving = parts["activations"] + parts["working"] + parts["logits"]
    parts["slack"] = facts.of(c, "slack") * moving * (1.0 if gpu else 0.5)
    groups = (c.tp > 1) * 1.0 + (c.data_ranks > 1) + (c.cp > 1) + 5.0 * (c.pp > 1) + (c.world > 1) + 2.0 * (c.ep > 1)
    parts["communicators"] = np.broadcast_to(facts.of(c, "group_gib") * GIB * groups * gpu, shape)
    parts["context"] = np.full(shape, device.context_gib * GIB)
    in_gib = {name: np.where(exists, value / GIB, 0.0) for name, value in parts.items()}
    passing = sum((held * _passing(c, copies) for held, copies in zip(parameters, copies_of(c))), np.zeros(shape))
    saved = np.minimum(passing / GIB, in_gib["activations"] + in_gib["working"] + in_gib["logits"])
    saved = np.where(exists, saved, 0.0)
    by_rank = np.stack(list(in_gib.values())).sum(axis=0)
    # An allocator keeps both as long as there is room.
    given = np.minimum(saved, np.maximum(by_rank - device.limit_gib, 0.0)) if gpu else 0.0 * saved
    in_gib["optimizer"] = in_gib["optimizer"] - given
    by_rank, saved = by_rank - given, saved - given
    fullest = by_rank.argmax(axis=0)[None]
    pick = {name: np.take_along_axis(value, fullest, 0)[0] for name, value in in_gib.items()}
    gib = sum(pick.values())
    assert not isinstance(gib, int)
    need = gib - np.take_along_axis(saved, fullest, 0)[0]
    if cluster.memory_convention == "node":
        share = np.maximum(1, c.procs_per_node)
        system = device.context_gib * (share - 1)
        gib, need = gib * share - system, need * share - system
        pick = {name: value * share - (system if name == "context" else 0.0) for name, value in pick.items()}
    sigma = np.broadcast_to(facts.of(c, "memory_sigma") if gpu else SIGMA_CPU, len(c))
    if c.experts.any():
        # How full the fullest rank gets is not known beforehand.
        uneven = np.take_along_axis(uneven_bytes(c, element), fullest, 0)[0] / GIB
        sigma = np.sqrt(sigma**2 + (uneven / gib) ** 2)
    return Memory(gib=gib, lo=gib * np.exp(-Z90 * sigma), hi=gib * np.exp(Z90 * sigma), parts=pick, by_rank=by_rank,
                  need_gib=need, sigma=sigma)


Parameters = tuple[Floats, Floats]
"""[3, n] of all but experts, and of experts."""


def copies_of(c: Configs) -> tuple[Copies, ...]:
    """Who holds the same of them."""
    return (Copies.of(c), Copies.of_experts(c)) if c.experts.any() else (Copies.of(c),)


def _tensors(c: Configs, cluster: Cluster, parameters: Parameters, element: Floats) -> dict[str, Floats]:
    """[3, n] bytes by part: our own engine's as it counts them itself, others' from their facts."""
    gpu = cluster.device.kind == "gpu"
    own = np.broadcast_to(facts.of(c, "footprint"), len(c))
    if own.all() and len(c):
        parts = ours.footprints(c, gpu=gpu).parts
    else:
        parts = _states(c, parameters, element)
        parts["activations"], parts["working"] = activations(c, cluster, element)
        parts["logits"] = _logits(c, element)
        size = np.minimum(facts.of(c, "bucket_elements"), sum(parameters)) * facts.of(c, "buckets") * element
        parts["communication"] = np.where((c.zero >= facts.of(c, "bucket_from")) & gpu, size, 0.0)
        if (c.cp > 1).any():
            parts["communication"] = parts["communication"] + np.where(c.cp > 1, context.exchanged_bytes(c, element), 0.0)
        if own.any():
            counted = ours.footprints(c.take(own), gpu=gpu).parts
            for name, value in counted.items():
                parts[name] = np.array(parts[name])
                parts[name][:, own] = value
    return parts


def states_gib(c: Configs) -> Floats:
    """What the fullest rank holds of weights, gradients and optimizer whatever it does, nothing gathered or copied beside."""
    element = np.array([float(max(2, BYTES[p])) for p in PRECISIONS])[c.precision]
    found = _states(c, (dense_parameters(c), expert_parameters(c)), element, at_work=False)
    return np.asarray(sum(found.values(), np.zeros((3, len(c)))).max(axis=0) / GIB)


def _states(c: Configs, parameters: Parameters, element: Floats, *, at_work: bool = True) -> dict[str, Floats]:
    """Weights, gradients and optimizer, [3, n] bytes; `at_work`: with what is gathered and copied for a while."""
    dense, routed = parameters
    one_layer = (dense[MIDDLE] / np.maximum(c.middle_layers, 1))[None]
    one_layer = np.where(c.pp > 2, one_layer, (numbers(tensors(c, c.tp)))[None])
    depth = np.stack([c.first_layers, c.middle_layers, c.last_layers]).astype(np.float64)
    found = _held(c, dense, one_layer, depth, Copies.of(c), element, at_work=at_work)
    head = np.where(c.zero >= 2, c.vocab / c.tp * c.hidden * facts.of(c, "head_bytes") * (element / 2), 0.0) * at_work
    found["gradients"] = found["gradients"] + np.stack([np.where(c.pp == 1, head, 0.0), np.zeros(len(c)), head])
    if c.experts.any():
        each = numbers(expert_tensors(c, c.ep, c.expert_tp))[None]
        beside = _held(c, routed, each, experts.depths(c), Copies.of_experts(c), element, at_work=at_work)
        found = {name: value + beside[name] for name, value in found.items()}
    return found


def _held(c: Configs, parameters: Floats, one_layer: Floats, depth: Floats, copies: Copies, element: Floats, *, at_work: bool
          ) -> dict[str, Floats]:
    """Of parameters that lie so over ranks; `one_layer` of them are a layer's."""
    shards, held = copies.state.astype(np.float64), copies.weights
    mixed = c.precision != FP32
    wide = facts.of(c, "fp32_weights")
    # A copy to compute with is made of fp32 weights where nothing is sharded too, and of shards in fp32 as well.
    weights = np.where(wide & mixed, 4.0, element)
    computed = np.where(wide & (mixed | (c.zero > 0)) & (c.zero < 3), element, 0.0)
    masters = np.where(wide | ~mixed, 0.0, 4.0)
    alone = np.where(wide, facts.of(c, "moments_bytes"), FP32_BYTES)
    optimizer = np.where(mixed, masters + facts.of(c, "moments_bytes") + _copies(c) * at_work, alone)
    gradient = np.where(mixed, facts.gradient_bytes(c, "gradient_bytes"), element)
    full = element / 2
    keeps = (c.zero >= 2) & (c.pp > 1) & np.asarray(facts.of(c, "pipeline_unshards"))
    layer = np.where(c.zero == 3, one_layer * facts.of(c, "gathered_bytes") * full, 0.0)
    most = facts.of(c, "gathered_elements")
    layer = layer + np.where((c.zero == 3) & (np.asarray(most) > 0), np.minimum(most, parameters) * element, 0.0)
    reduced = np.where(c.zero >= 2, one_layer * facts.of(c, "reduced_bytes") * full, 0.0)
    cut = c.zero >= facts.of(c, "gradients_sharded_from")
    summed = np.where((c.zero >= 2) & (c.microbatches > 1), facts.of(c, "accumulated_bytes") * full, 0.0)
    # The linears alone: embedding and head stay in 16 bits.
    linears = depth * one_layer
    eight = np.where(c.precision == FP8, facts.of(c, "fp8_weight_bytes"), 0.0) * np.where(c.zero == 3, one_layer, linears)
    # Weights in groups of their own (hpZ) lie beside the shards that the optimizer writes.
    twice = np.where(held < copies.state, weights / shards, 0.0)
    own = np.where((c.zero == 3) | (np.asarray(wide) & (c.zero > 0)), weights / held + twice, weights)
    return {
        "weights": parameters * (own + np.where(keeps, element, computed)) + (np.where(keeps, 0.0, layer) + eight) * at_work,
        "gradients": parameters * np.maximum(np.where(cut & ~keeps, gradient / copies.gradients, gradient), summed)
                     + reduced * at_work,
        "optimizer": parameters * np.where(c.zero >= 1, optimizer / shards, optimizer),
    }


def _copies(c: Configs) -> Floats:
    """Bytes of gradients in the optimizer's step alone, for each parameter that a rank steps."""
    widened = facts.gradient_bytes(c, "gradient_bytes") < facts.of(c, "gradient_bytes")
    return np.where(c.zero == 0, facts.of(c, "step_copy_whole_bytes"), facts.of(c, "step_copy_bytes")) + 4.0 * widened


def _passing(c: Configs, copies: Copies) -> Floats:
    """The same for each parameter that it holds."""
    return np.where(c.precision == FP32, 0.0, _copies(c) / np.where(c.zero == 0, 1, copies.state))


def in_flight(c: Configs) -> Floats:
    """[3, n]: micro-batches whose activations the first, second and last rank hold, in units of all their layers."""
    found, m = np.empty((3, len(c))), c.microbatches
    for kind, pp, virtual, rows in c.by_schedule(np.arange(len(c))):
        for row, rank in enumerate((0, min(1, pp - 1), pp - 1)):
            found[row, rows] = peaks(kind, pp=pp, rank=rank, virtual=virtual, microbatches=m[rows]) / virtual
    return found


class Left(NamedTuple):
    """Bytes that one layer leaves behind of one micro-batch."""

    everything: Floats
    partly: Floats
    """With selective recompute."""
    boundary: Floats
    """With full recompute: its input."""
    passing: Floats
    """Gradients while its backward runs."""
    stored: Any
    """Whether attention's scores are among them."""

    def of(self, c: Configs) -> tuple[Floats, Floats]:
        """What is kept, and what is used while it is (re)computed."""
        kept = np.select([c.recompute == FULL, c.recompute == SELECTIVE], [self.boundary, self.partly], default=self.everything)
        at_work = np.select([c.recompute == NONE, c.recompute == FULL], [0.0, self.everything],
                            default=self.everything - kept * (1 - self.stored))
        return kept, np.maximum(at_work, 0.0) + self.passing


def left_bytes(c: Configs, cluster: Cluster, element: Floats, *, routed: bool = False) -> Left:
    """Of a layer without experts; `routed`: of one with them, but for what is theirs.

    The engine says what is kept of each width; scores where they are stored, 5 a s / h t, as Korthikanti et al. have it
    ("Reducing Activation Recomputation in Large Transformer Models").
    """
    tokens = c.tokens.astype(np.float64)
    h, scale = c.hidden, element / 2
    cut = np.where(facts.cuts_sequence(c), c.tp, 1)
    w = widths(c, c.tp)
    masks = 2.0 * np.asarray(facts.of(c, "masks"))
    stored = facts.attention(c, cluster.device) == facts.STORED
    twice = np.where(c.cp > 1, context.kept_bytes(c, element), 0.0) if (c.cp > 1).any() else 0.0
    normed = c.normed_qk * (1 - c.is_latent)
    # Latent attention: what it compressed, before its norm and after it.
    latent = (4.0 * (c.q_rank + c.kv_rank) + 2.0 * c.rope_dim) * scale / cut

    def kept_by(name: str) -> tuple[Floats, Floats]:
        """Bytes per token outside of tensor parallelism, and inside."""
        by_h, by_q, by_kv, by_f = np.moveaxis(np.asarray(facts.of(c, name), dtype=np.float64), -1, 0)
        gathered = np.where(np.asarray(facts.of(c, "gathers_norms")) & (c.tp > 1) & (by_h > 4), 4.0, 0.0)
        outside = ((by_h - gathered) / cut + gathered + masks / cut) * h * scale
        inner = np.where(c.gated == 1, by_f, np.minimum(by_f, 4.0))
        # Norms of queries and keys keep what came in.
        inside = (by_q * w.context + by_kv * (w.qkv - w.context) / 2 + 2 * normed * w.rotated + inner * w.inner) * scale
        return outside + latent, inside + np.where(stored, 0.0, 4.0 * c.heads / c.tp) + twice

    plain, eight, some = kept_by("kept"), kept_by("kept_fp8"), kept_by("kept_selective")
    lower = c.precision == FP8
    whole, split = np.where(lower, eight[0], plain[0]), np.where(lower, eight[1], plain[1])
    again = partial(facts.redone, c)
    # What a list of modules leaves out: outputs of norms that are modules of their own, which an MLP's is not; what latent
    # attention expands, with its norms; the MLP's inside. Checkpointed core attention keeps its inputs.
    up, mlp = again("mla_up_proj"), again("moe") | again("shared_experts") if routed else again("mlp")
    norms = again("layernorm") * (c.is_latent + routed) + mlp * (not routed)
    by_f = np.asarray(facts.of(c, "kept"), dtype=np.float64)[..., 3]
    by_f = np.where(lower, np.asarray(facts.of(c, "kept_fp8"), dtype=np.float64)[..., 3], by_f)
    less = norms * h * gemm_input(c) * scale / cut, up * (c.q_rank + c.kv_rank) * gemm_input(c) * scale / cut
    inside = (up * 2.0 * w.qkv + mlp * np.where(c.gated == 1, by_f, np.minimum(by_f, 4.0)) * w.inner) * scale
    kept_more = np.where(again("core_attn") & (c.is_latent == 0), some[1] - plain[1], 0.0)
    some_of = np.where(facts.listed(c), whole - sum(less) + split - inside + kept_more, some[0] + some[1])
    scores = np.where(stored, (4 * scale + 1) * c.heads * c.seq / c.tp, 0.0)
    return Left(everything=tokens * (whole + split + scores),
                partly=tokens * (some_of + np.where(again("core_attn"), 0.0, scores)),
                boundary=tokens * 2 * h * scale / cut, stored=stored,
                passing=tokens * (2 * h * scale + np.maximum(split / 2, scores / 2)))


def gemm_input(c: Configs) -> Floats:
    """Bytes of a number that a GEMM keeps for its weight's gradient, in 16 bits."""
    return np.where(c.precision == FP8, 1.0, 2.0)


def expert_left_bytes(c: Configs, cluster: Cluster, element: Floats, rows: Floats) -> Left:
    """Of a layer with experts whose rank computes so many rows."""
    beside = left_bytes(replace(c, inner=c.shared_inner), cluster, element, routed=True)
    scale, width = element / 2, -(-c.expert_inner // c.expert_tp)
    # Backward: the outputs' gradients before and after they are put in order; or the activation's.
    passing = rows * scale * np.maximum(4.0 * c.hidden, 2.0 * c.hidden + (2 + 2 * c.gated) * width)
    everything, eight, some = (rows * row_bytes(c, name) * scale + _routed(c, name) for name in (
        "kept_experts", "kept_experts_fp8", "kept_experts_selective"))
    everything = np.where(c.precision == FP8, eight, everything)
    some = np.where(facts.listed(c), everything - rows * facts.redone(c, "moe_act") * gemm_input(c) * width * scale, some)
    # Where all tokens are gathered: themselves and what comes back, and the scores of all.
    gathered = np.where(c.moe_dispatcher == experts.ALLGATHER, experts.own_tokens(c) * c.expert_ranks, 0.0)
    passing = passing + gathered * 4.0 * c.hidden * scale
    everything, some = (kept + gathered * c.experts * GATHERED_SCORE for kept in (everything, some))
    some = np.where(facts.redone(c, "moe"), 0.0, some)
    return beside._replace(everything=beside.everything + everything, partly=beside.partly + np.minimum(some, everything),
                           passing=np.maximum(beside.passing, passing))


GATHERED_SCORE = 5.0
"""Bytes of a score in fp32 and of the map of the choice, for each token and expert that a rank has of all."""


def row_bytes(c: Configs, name: str) -> Floats:
    """What is kept for each row of an expert."""
    by_h, by_f, _ = np.moveaxis(np.asarray(facts.of(c, name), dtype=np.float64), -1, 0)
    width = -(-c.expert_inner // c.expert_tp)
    return by_h * c.hidden + np.where(c.gated == 1, by_f, np.minimum(by_f, 4.0)) * width


def _routed(c: Configs, name: str) -> Floats:
    """What the router keeps."""
    return experts.own_tokens(c) * c.experts * np.asarray(facts.of(c, name), dtype=np.float64)[..., 2]


def activations(c: Configs, cluster: Cluster, element: Floats) -> tuple[Floats, Floats]:
    """[3, n] bytes held in flight, and [3, n] used at work."""
    kept, working = left_bytes(c, cluster, element).of(c)
    depth = np.stack([c.first_layers, c.middle_layers, c.last_layers])
    flight = in_flight(c)
    boundary = c.tokens * c.hidden * element
    # A pipeline also keeps each micro-batch's output until its gradient has come, and two buffers for messages.
    output = np.where(c.pp == 1, 0.0, (flight * np.asarray(facts.of(c, "stage_outputs")) + 2) * boundary)
    depth = depth + c.further
    if not c.experts.any():
        return depth * flight * kept + output, np.broadcast_to(working, depth.shape)
    routed = experts.depths(c) + np.where(c.experts > 0, c.further, 0)
    most = 1 + experts.kept_excess(c, np.where(_at_work_alone(c), 1.0, routed))[0]
    kept_here, working_here = expert_left_bytes(c, cluster, element, experts.rows(c) * most).of(c)
    # At work is one layer, whose fullest rank is fuller than that of several together.
    worst = expert_left_bytes(c, cluster, element, experts.rows(c) * (1 + experts.excess(c))).of(c)[1]
    return (((depth - routed) * kept + routed * kept_here) * flight + output,
            np.where(routed > 0, np.maximum(np.maximum(worst, working_here), np.where(depth > routed, working, 0.0)), working))


def _at_work_alone(c: Configs) -> Any:
    """Whether rows of experts are there in the layer at work alone."""
    return (c.recompute == FULL) | facts.redone(c, "moe")


def uneven_bytes(c: Configs, element: Floats) -> Floats:
    """[3, n]: standard deviation of what the fullest rank keeps of its experts' rows."""
    routed, alone = experts.depths(c), _at_work_alone(c)
    layers = np.where(alone, 1.0, routed * in_flight(c))
    deviation = experts.kept_excess(c, np.where(alone, 1.0, routed))[1]
    whole, width = row_bytes(c, "kept_experts"), -(-c.expert_inner // c.expert_tp)
    some = np.where(facts.listed(c), whole - facts.redone(c, "moe_act") * 2.0 * width, row_bytes(c, "kept_experts_selective"))
    each = np.where(c.recompute == SELECTIVE, some, whole)
    return np.where(routed > 0, layers * deviation * experts.rows(c) * each * element / 2, 0.0)


def _logits(c: Configs, element: Floats) -> Floats:
    """The last rank: logits, their fp32 copy, and the gradient of either."""
    size = (1 + c.mtp) * c.tokens * (c.vocab / c.tp) * np.where(c.precision == FP32, 16.0, facts.of(c, "logits_bytes"))
    out = np.zeros((3, len(c)))
    out[LAST] = size
    out[FIRST] = np.where(c.pp == 1, size, 0.0)
    return out
