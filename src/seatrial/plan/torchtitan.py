"""A trial's layout as torchtitan's flags: the [parallelism] part, whose names its releases have kept.

    torchtitan.emitted(trial)["torchtitan.args"]        --parallelism.pipeline_parallel_degree 4 and the rest
    torchtitan.emitted(trial)["stages.json"]            which modules each stage has, where no two numbers can say it

Read from torchtitan's config/configs.py and distributed/pipeline_parallel.py. It counts embedding and loss as so many layers
each (1 where nobody says) and deals out the sum, the first stages taking what is left over; any other split is a list of the
modules of each stage, `module_fqns_per_model_part`, which belongs into the configuration.
"""
from __future__ import annotations

import itertools
import json

from seatrial.errors import BadInput
from seatrial.plan.emit import Dialect, Flags
from seatrial.spec import Trial, stages_of

SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}


def emitted(trial: Trial) -> dict[str, str]:
    """File name -> content; raises where torchtitan cannot run it."""
    t, why_not = trial.topology, []
    if t.schedule not in SCHEDULES:
        why_not.append(f"schedule {t.schedule} is not in it; {', '.join(SCHEDULES)} are")
    if t.zero == 1:
        why_not.append("ZeRO 1 is not in it; 0 (replicas), 2 (never resharded) and 3 are")
    if trial.model.learned or trial.model.alibi:
        why_not.append("its models have rotary positions")
    if why_not:
        raise BadInput(f"not for torchtitan: {'; '.join(why_not)}")
    group = t.zero_group or t.dp
    shard = 1 if t.zero == 0 else max(1, group // t.cp)
    flags: Flags = [("data_parallel_replicate_degree", str(t.dp // shard)), ("data_parallel_shard_degree", str(shard)),
                    ("tensor_parallel_degree", str(t.tp)), ("context_parallel_degree", str(t.cp)),
                    ("pipeline_parallel_degree", str(t.pp))]
    if t.zero >= 2:
        flags.append(("fsdp_reshard_after_forward", "always" if t.zero == 3 else "never"))
    notes = ["batch, sequence, recompute and precision are flags that differ between its releases"]
    files = {}
    if t.pp > 1:
        flags.append(("pipeline_parallel_schedule", SCHEDULES[t.schedule]))
        split = stages_of(trial.model, t)
        if (said := weights(split, 2 if t.schedule == "interleaved" else 1, t.pp)) is not None:
            flags += said
        else:
            files["stages.json"] = json.dumps(modules(split), indent=1) + "\n"
            notes.append("parallelism.module_fqns_per_model_part is what stages.json has")
    named = [(f"--parallelism.{name}", *values) for name, *values in flags]
    return {"torchtitan.args": Dialect(flags=named, notes=notes).text(), **files}


def weights(split: tuple[int, ...], usual: int, pp: int) -> Flags | None:
    """Embedding and loss in layers, and where the stages are not `usual` for each rank the layers of one; None where no such
    numbers make the split."""
    stages, layers = len(split), sum(split)
    pairs = itertools.product(range(max(split) + 1), repeat=2)
    for first, last in sorted(pairs, key=lambda pair: abs(pair[0] - 1) + abs(pair[1] - 1)):
        each, more = divmod(layers + first + last, stages)
        dealt = [each + (stage < more) for stage in range(stages)]
        dealt[0] -= first
        dealt[-1] -= last
        whole = each + (more > 0)
        # It makes as many stages as it takes to put so many layers into each.
        makes = stages == usual * pp or -(-(layers + first + last) // whole) == stages
        if max(first, last) <= each and tuple(dealt) == split and makes:
            flags: Flags = [("pipeline_parallel_first_stage_less_layers", str(first)),
                            ("pipeline_parallel_last_stage_less_layers", str(last))]
            if stages != usual * pp:
                flags.append(("pipeline_parallel_layers_per_stage", str(whole)))
            return flags
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
