"""A trial as torchtitan's options.

    emit_torchtitan.torchtitan(trial)["torchtitan.args"]

Degrees, batch and recompute; the model is one of torchtitan's own flavours, which the user names. Its data-parallel shards lie
over `data_parallel_shard_degree` x CP ranks, so a ZeRO group is a multiple of CP (torchtitan/distributed/parallel_dims.py).
Its stages are dealt out with embedding and loss as so many layers each (1 where nobody says), the first taking what is left
over (torchtitan/distributed/pipeline_parallel.py); any other split is a list of the modules of each stage, in stages.json.
"""
from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from seatrial.errors import BadInput
from seatrial.plan.emit import Dialect, Flags
from seatrial.spec import Topology, Trial, stages_of

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
ROTATES = {"ring": "alltoall", "gather": "allgather"}
"""Kind of context parallelism -> context_parallel_rotate_method."""


def torchtitan(trial: Trial) -> dict[str, str]:
    """File name -> content; BadInput with the reasons where its options cannot say it."""
    if why_not := list(_beyond(trial)):
        raise BadInput("; ".join(f"not for torchtitan: {reason}" for reason in why_not))
    notes = ["the model is yours to name: --model.name, --model.flavor; so are data, optimizer and checkpoints"]
    stages = weights(trial)
    files = {}
    if stages is None:
        files["stages.json"] = json.dumps(modules(stages_of(trial.model, trial.topology)), indent=1) + "\n"
        notes.append("parallelism.module_fqns_per_model_part is what stages.json has")
    flags: Flags = [(f"--{name}={value}",) for name, value in [*_options(trial), *(stages or ())]]
    return {"torchtitan.args": Dialect(flags=flags, notes=notes).text(), **files}


def weights(trial: Trial) -> list[tuple[str, object]] | None:
    """Embedding and loss in layers, and where the stages are not as many as it would make the layers of one; None where no
    such numbers make the split."""
    t, split = trial.topology, stages_of(trial.model, trial.topology)
    if t.pp == 1:
        return []
    usual = (2 if t.schedule == "interleaved" else 1) * t.pp
    pairs = itertools.product(range(max(split) + 1), repeat=2)
    for first, last in sorted(pairs, key=lambda pair: abs(pair[0] - 1) + abs(pair[1] - 1)):
        places = sum(split) + first + last
        each, more = divmod(places, len(split))
        dealt = [each + (stage < more) for stage in range(len(split))]
        dealt[0] -= first
        dealt[-1] -= last
        # Told the layers of a stage, it makes as many stages as all of them take.
        whole = each + (more > 0)
        if max(first, last) <= each and tuple(dealt) == split and (len(split) == usual or -(-places // whole) == len(split)):
            asked = [("pipeline_parallel_layers_per_stage", whole)] if len(split) != usual else []
            ends = [("pipeline_parallel_first_stage_less_layers", first), ("pipeline_parallel_last_stage_less_layers", last)]
            return [(f"parallelism.{name}", value) for name, value in [*ends, *asked]]
    return None


def modules(split: tuple[int, ...]) -> list[list[str]]:
    """The modules of each stage, by their names in torchtitan's decoders."""
    found, at = [], 0
    for layers in split:
        found.append([f"layers.{number}" for number in range(at, at + layers)])
        at += layers
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", "lm_head"]
    return found


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
    if m.mixture:
        yield "parallelism.expert_parallel_degree", t.ep
        yield "parallelism.expert_tensor_parallel_degree", t.expert_tp
    if t.cp > 1:
        yield "parallelism.context_parallel_rotate_method", ROTATES[t.cp_kind]
    yield "parallelism.pipeline_parallel_degree", t.pp
    if t.pp > 1:
        yield "parallelism.pipeline_parallel_schedule", SCHEDULES[t.schedule]
        yield "parallelism.pipeline_parallel_microbatch_size", t.mbs
    yield "activation_checkpoint.mode", t.recompute
    if t.recompute == "selective":
        yield "activation_checkpoint.selective_ac_option", "op"
    if t.precision == "fp8":
        yield "model.converters", "float8"
