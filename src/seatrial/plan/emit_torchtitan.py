"""A trial as torchtitan's options.

    emit_torchtitan.torchtitan(trial)["torchtitan.args"]

Degrees, batch and recompute; the model is one of torchtitan's own flavours, which the user names. Its data-parallel shards lie
over `data_parallel_shard_degree` x CP ranks, so a ZeRO group is a multiple of CP (torchtitan/distributed/parallel_dims.py).
"""
from __future__ import annotations

from collections.abc import Iterator

from seatrial.errors import BadInput
from seatrial.plan.emit import Dialect, Flags
from seatrial.spec import Topology, Trial

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
ROTATES = {"ring": "alltoall", "gather": "allgather"}
"""Kind of context parallelism -> context_parallel_rotate_method."""


def torchtitan(trial: Trial) -> dict[str, str]:
    """File name -> content; BadInput with the reasons where its options cannot say it."""
    if why_not := list(_beyond(trial)):
        raise BadInput("; ".join(f"not for torchtitan: {reason}" for reason in why_not))
    notes = ["the model is yours to name: --model.name, --model.flavor; so are data, optimizer and checkpoints"]
    flags: Flags = [(f"--{name}={value}",) for name, value in _options(trial)]
    return {"torchtitan.args": Dialect(flags=flags, notes=notes).text()}


def _shards(t: Topology) -> int:
    return 1 if t.zero == 0 else t.zero_group or t.data_ranks


def _beyond(trial: Trial) -> Iterator[str]:
    t = trial.topology
    if t.zero == 1:
        yield "ZeRO 1: FSDP2 shards gradients as well (ZeRO 2), or weights too (ZeRO 3)"
    if t.cp > 1 and t.cp_kind not in ROTATES:
        yield f"CP {t.cp} by {t.cp_kind}; it has {' and '.join(ROTATES)}"
    if t.cp > 1 and _shards(t) % t.cp:
        yield f"shards over {_shards(t)} ranks with CP {t.cp}: CP is always a part of what it shards over"
    if t.gradients_group is not None or t.weights_group is not None:
        yield "groups of their own for gradients or weights"
    if t.schedule not in SCHEDULES:
        yield f"schedule {t.schedule}; it has {', '.join(SCHEDULES)}"
    if t.stage_layers is not None or trial.model.layers % (t.pp * t.vp):
        yield f"{trial.model.layers} layers over {t.pp * t.vp} stages, which are not equal"
    if t.tp > 1 and not t.sequence_parallel:
        yield "tensor parallelism that leaves the sequence whole in norms"
    if trial.batch.rampup_start is not None:
        yield "a ramp-up of the batch"
    if trial.batch.documents is not None:
        yield "attention inside documents, which is a mask of the model's own arguments there and no option"


def _options(trial: Trial) -> Iterator[tuple[str, object]]:
    m, t, shards = trial.model, trial.topology, _shards(trial.topology)
    yield "training.seq_len", m.seq
    yield "training.global_batch_size", trial.batch.gbs
    yield "training.local_batch_size", t.mbs if t.pp == 1 else t.mbs * trial.microbatches
    yield "parallelism.data_parallel_replicate_degree", t.data_ranks // shards
    yield "parallelism.data_parallel_shard_degree", max(1, shards // t.cp)
    if t.zero:
        yield "parallelism.fsdp_reshard_after_forward", "always" if t.zero == 3 else "never"
    yield "parallelism.tensor_parallel_degree", t.tp
    yield "parallelism.context_parallel_degree", t.cp
    if t.cp > 1:
        yield "parallelism.context_parallel_rotate_method", ROTATES[t.cp_kind]
    yield "parallelism.pipeline_parallel_degree", t.pp
    if t.pp > 1:
        yield "parallelism.pipeline_parallel_schedule", SCHEDULES[t.schedule]
        yield "parallelism.pipeline_parallel_microbatch_size", t.mbs
        yield "parallelism.pipeline_parallel_layers_per_stage", m.layers // (t.pp * t.vp)
    yield "activation_checkpoint.mode", t.recompute
    if t.recompute == "selective":
        yield "activation_checkpoint.selective_ac_option", "op"
    if t.precision == "fp8":
        yield "model.converters", "float8"
