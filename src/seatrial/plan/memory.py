"""Memory of the fullest process from its parts, for many configurations at once.

    memory.peak(configs, cluster).gib

What a tool like nvidia-smi shows: everything reserved, so also what the allocator keeps for later. The first pipeline rank
holds the most micro-batches in flight and the embedding, the last one the logits; the fullest of all decides.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seatrial.arith.layer import widths
from seatrial.plan import probed
from seatrial.plan.configs import PRECISIONS, RECOMPUTE, Configs, Floats
from seatrial.plan.step import CHUNK, FIRST, LAST, MIDDLE, Z90, stage_parameters
from seatrial.schedule.vector import peaks
from seatrial.spec import BYTES, GIB, Cluster

NONE, SELECTIVE, FULL = (RECOMPUTE.index(r) for r in ("none", "selective", "full"))
FP32 = PRECISIONS.index("fp32")

SHARDED_BYTES = 18
"""A parameter's share of the optimizer in mixed precision: master and two moments in fp32 (12), and at the step the gradient
of the own shard joined in 16 bits (2) and in fp32 (4). ZeRO divides it by DP."""

LASTING_BYTES = 12
"""Of either: master and moments."""

UNSHARDED_BYTES = 20
"""The same without ZeRO, where DeepSpeed copies the gradients to fp32 tensor by tensor (4) and joins the copies into one
(4)."""

BUCKET_ELEMENTS = 5e8
"""DeepSpeed's default size of the buffer in which gradients travel."""

GROUP_GIB = 0.25
"""Buffers of one NCCL communicator: some two dozen channels of 4 MiB and more each way. A pipeline has one to each neighbour,
its own group, the group that shares a replica and that of the tied embedding; tensor and data parallelism and the whole job
one each."""

FRAGMENTED = 0.15
"""What a caching allocator holds beyond the activations it handed out. Shapes repeat, so most freed blocks fit the next
request; the rest lie between blocks in use."""

SIGMA, SIGMA_CPU = 0.06, 0.15
"""Standard deviation of the logarithm: allocator and communication buffers are rules of thumb, the tensors are counted."""


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


def peak(configs: Configs, cluster: Cluster) -> Memory:
    if len(configs) <= CHUNK:
        return _peak(configs, cluster)
    pieces = [_peak(configs.take(slice(i, i + CHUNK)), cluster) for i in range(0, len(configs), CHUNK)]
    return Memory(
        gib=np.concatenate([p.gib for p in pieces]), lo=np.concatenate([p.lo for p in pieces]),
        hi=np.concatenate([p.hi for p in pieces]), need_gib=np.concatenate([p.need_gib for p in pieces]),
        parts={name: np.concatenate([p.parts[name] for p in pieces]) for name in pieces[0].parts},
        by_rank=np.concatenate([p.by_rank for p in pieces], axis=1),
    )


def _peak(c: Configs, cluster: Cluster) -> Memory:
    gpu, device = cluster.device.kind == "gpu", probed.device_of(cluster)
    element = np.array([float(max(2, BYTES[p])) for p in PRECISIONS])[c.precision]
    parameters = stage_parameters(c)
    exists = np.stack([np.ones(len(c), bool), c.pp > 2, np.ones(len(c), bool)])
    parts = _states(c, parameters, element)
    held, working = activations(c, cluster, element)
    parts["activations"] = held
    parts["working"] = working
    parts["logits"] = _logits(c, element)
    parts["slack"] = FRAGMENTED * (held + working + parts["logits"]) * (1.0 if gpu else 0.5)
    groups = (c.tp > 1) * 1.0 + (c.dp > 1) + 5.0 * (c.pp > 1) + (c.world > 1)
    buffers = GROUP_GIB * GIB * groups * gpu
    bucket = np.where((c.zero >= 1) & gpu, np.minimum(BUCKET_ELEMENTS, parameters) * element, 0.0)
    parts["communication"] = bucket + buffers
    parts["context"] = np.full_like(held, device.context_gib * GIB)
    in_gib = {name: np.where(exists, value / GIB, 0.0) for name, value in parts.items()}
    saved = np.minimum(parameters * _passing(c) / GIB, in_gib["activations"] + in_gib["working"] + in_gib["logits"])
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
    sigma = SIGMA if gpu else SIGMA_CPU
    return Memory(gib=gib, lo=gib * np.exp(-Z90 * sigma), hi=gib * np.exp(Z90 * sigma), parts=pick, by_rank=by_rank,
                  need_gib=need)


def _states(c: Configs, parameters: Floats, element: Floats) -> dict[str, Floats]:
    """Weights, gradients and optimizer, [3, n] bytes."""
    dp = c.dp.astype(np.float64)
    mixed = c.precision != FP32
    # fp32 alone: the two moments, and the contiguous buffer in which gradients are summed and travel beside their own tensors.
    optimizer = np.where(mixed, np.where(c.zero == 0, UNSHARDED_BYTES, SHARDED_BYTES), 12.0)
    one_layer = (parameters[MIDDLE] / np.maximum(c.middle_layers, 1))[None]
    gathered = np.where(c.zero == 3, 2 * one_layer * element, 0.0)
    return {
        "weights": parameters * np.where(c.zero == 3, element / dp, element) + gathered,
        "gradients": parameters * np.where(c.zero >= 2, element / dp, element),
        "optimizer": parameters * np.where(c.zero >= 1, optimizer / dp, optimizer),
    }


def _passing(c: Configs) -> Floats:
    """Bytes per parameter that exist during the optimizer's step alone."""
    copies = np.where(c.zero == 0, UNSHARDED_BYTES - LASTING_BYTES, (SHARDED_BYTES - LASTING_BYTES) / c.dp)
    return np.where(c.precision == FP32, 0.0, copies)


def in_flight(c: Configs) -> Floats:
    """[3, n]: micro-batches whose activations the first, second and last rank hold, in units of all their layers."""
    found, m = np.empty((3, len(c))), c.microbatches
    for kind, pp, virtual, rows in c.by_schedule(np.arange(len(c))):
        for row, rank in enumerate((0, min(1, pp - 1), pp - 1)):
            found[row, rows] = peaks(kind, pp=pp, rank=rank, virtual=virtual, microbatches=m[rows]) / virtual
    return found


def layer_bytes(c: Configs, cluster: Cluster, element: Floats) -> tuple[Floats, Floats]:
    """Bytes that one layer keeps of one micro-batch, and that it uses while it is (re)computed.

    After Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models": s b h (10 + 24/t + 5 a s / h t)
    in 16 bits.
    """
    tokens = (c.mbs * c.seq).astype(np.float64)
    h, scale = c.hidden, element / 2
    whole = 10 * h * scale / np.where(c.sequence_parallel == 1, c.tp, 1)
    # Of the 24: query, key, value and context (8 with as many key-value heads), the MLP's inner width before and after (16).
    split = 2 * widths(c, c.tp).linears * scale
    flash = np.where(c.flash >= 0, c.flash, int(cluster.device.fuses_attention)) == 1
    scores = np.where(flash, 0.0, (4 * scale + 1) * c.heads * c.seq / c.tp)
    everything = tokens * (whole + split + scores)
    boundary = tokens * 2 * h * scale / np.where(c.sequence_parallel == 1, c.tp, 1)
    kept = np.select([c.recompute == FULL, c.recompute == SELECTIVE], [boundary, tokens * (whole + split)], default=everything)
    # While its backward runs, a layer has its own activations and the gradients of the largest of them.
    working = np.where(c.recompute == NONE, 0.0, everything) + tokens * (2 * h * scale + np.maximum(split / 2, scores / 2))
    return kept, working


def activations(c: Configs, cluster: Cluster, element: Floats) -> tuple[Floats, Floats]:
    """[3, n] bytes held in flight, and [3, n] used at work."""
    kept, working = layer_bytes(c, cluster, element)
    depth = np.stack([c.first_layers, c.middle_layers, c.last_layers])
    flight = in_flight(c)
    boundary = c.mbs * c.seq * c.hidden * element
    # A pipeline also keeps each micro-batch's output until its gradient has come, and two buffers for messages.
    output = np.where(c.pp == 1, 0.0, (flight + 2) * boundary)
    return depth * flight * kept + output, np.broadcast_to(working, depth.shape)


def _logits(c: Configs, element: Floats) -> Floats:
    """The last rank: logits, their fp32 copy, and the gradient of either."""
    size = c.mbs * c.seq * (c.vocab / c.tp) * (2 * element + 8.0)
    out = np.zeros((3, len(c)))
    out[LAST] = size
    out[FIRST] = np.where(c.pp == 1, size, 0.0)
    return out
