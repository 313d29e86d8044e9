"""DeepSpeed's JSON file as a trial; of the model it knows nothing, which a Hugging Face config.json beside it may say.

    of_config({"train_batch_size": 512, "zero_optimization": {"stage": 2}, …}, where="ds_config.json", dp=None)

Keys by deepspeed/runtime/config.py and runtime/zero/config.py. The sequence, and the stages of its pipeline, are of the script.
"""
from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial.errors import BadInput
from seatrial.native import shell
from seatrial.native.base import Native
from seatrial.native.told import Told
from seatrial.plaindata import parse_json, read_json

MARKS = ("train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization", "gradient_accumulation_steps")
NEUTRAL = frozenset("""
    optimizer scheduler gradient_clipping steps_per_print wall_clock_breakdown dump_state tensorboard wandb csv_monitor
    monitor_config comet flops_profiler zero_allow_untested_optimizer prescale_gradients gradient_predivide_factor
    communication_data_type checkpoint data_types memory_breakdown seed zero_force_ds_cpu_optimizer comms_logger
    data_efficiency elasticity torch_adam disable_allgather
""".split())
NEUTRAL_ZERO = frozenset("""
    overlap_comm contiguous_gradients reduce_scatter allgather_partitions reduce_bucket_size allgather_bucket_size
    stage3_prefetch_bucket_size stage3_param_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance
    stage3_gather_16bit_weights_on_model_save sub_group_size round_robin_gradients ignore_unused_parameters
    stage3_gather_fp16_weights_on_model_save load_from_fp32_weights elastic_checkpoint mics_hierarchical_params_gather
    memory_efficient_linear override_module_apply stage3_model_persistence_threshold legacy_stage1
    use_multi_rank_bucket_allreduce log_trace_cache_warnings
""".split())
"""Sizes of buffers and what has no word in a forecast."""


def is_config(data: Any) -> bool:
    return isinstance(data, Mapping) and any(key in data for key in MARKS)


def config_of(path: Path) -> Mapping[str, Any]:
    data = read_json(path)
    if not is_config(data):
        raise BadInput(f"{path}: no DeepSpeed configuration: none of {', '.join(MARKS)} is in it")
    return dict(data)


def written_in(text: str) -> Mapping[str, Any] | None:
    """The configuration that a script writes itself: the first object in it that is one."""
    for found in re.finditer(r"\{", text):
        try:
            data, _ = json.JSONDecoder().raw_decode(text[found.start() : found.start() + 100_000])
        except ValueError:
            continue
        if is_config(data):
            return dict(parse_json(json.dumps(data)))
    return None


def of_config(config: Mapping[str, Any], *, where: str, dp: int | None = None,
              model: Mapping[str, Any] | None = None) -> Native:
    """`dp`: what is known of the processes. What the Trainer fills in ("auto") is left out and said."""
    open_values = [key for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
                   if config.get(key) == "auto"]
    told = Told({key: None if value == "auto" else value for key, value in config.items()}, where)
    notes = [f"{key} is auto: the Trainer's arguments say it, and --mbs or --gbs here" for key in open_values]
    mbs, gbs = told.whole("train_micro_batch_size_per_gpu"), told.whole("train_batch_size")
    steps = told.whole("gradient_accumulation_steps")
    layout: dict[str, Any] = {}
    zero = told.table("zero_optimization")
    layout["zero"] = stage = 0 if zero.get("stage") in (None, "auto") else zero.whole("stage", least=0) or 0
    zero.neutral(NEUTRAL_ZERO)
    for name in ("offload_param", "offload_optimizer", "cpu_offload"):
        if (moved := zero.get(name)) is not None and not (isinstance(moved, Mapping) and moved.get("device") in (None, "none")):
            notes.append(f"zero_optimization.{name}: memory of the host is in no forecast here; taken for none")
        zero.neutral((name, *(f"{name}.{key}" for key in (moved if isinstance(moved, Mapping) else ()))))
    if (shards := zero.get("mics_shard_size")) is not None and shards != -1:
        layout["zero_group"] = zero.whole("mics_shard_size")
    if (weights := zero.get("zero_hpz_partition_size")) is not None and weights != 1:
        layout["weights_group"] = zero.whole("zero_hpz_partition_size")
    layout["precision"] = _precision(told, where)
    parallel = told.table("tensor_parallel")
    tp = parallel.whole("autotp_size")
    if tp is None:
        tp = parallel.table("tp").whole("tp_size")
    layout |= {"tp": tp or 1, "sequence_parallel": False}
    pipeline = told.table("pipeline")
    layout["pp"] = pipeline.whole("stages") or 1 if pipeline.get("stages") != "auto" else 1
    pipeline.neutral(("partition", "seed_layers", "activation_checkpoint_interval", "pipe_partitioned", "grad_partitioned"))
    layout["cp"] = told.whole("sequence_parallel_size") or 1
    if layout["cp"] > 1:
        layout["cp_kind"] = "ulysses"
    checkpointing = told.table("activation_checkpointing")
    checkpointing.neutral(list(checkpointing.values))
    if checkpointing.values:
        notes.append("activation_checkpointing: whether layers are checkpointed is in the script; --recompute full says so")
    if layout["pp"] > 1 and stage > 1:
        raise BadInput(f"{where}: ZeRO {stage} with {layout['pp']} pipeline stages: DeepSpeed's pipeline engine takes 0 and 1")
    if dp is not None:
        layout["dp"] = dp
    layout |= {} if mbs is None else {"mbs": mbs}
    told.neutral(NEUTRAL)
    told.neutral(path for path in told.left() if path.split(".")[0] in NEUTRAL)
    return Native(format="DeepSpeed JSON", notes=tuple(notes), unread=tuple(told.left()), tables={
        "engine": "deepspeed", "topology": layout | _data(where, gbs, mbs, steps, dp),
        "batch": {} if gbs is None else {"gbs": gbs},
        **({"model": dict(model)} if model is not None else {})})  # fmt: skip


AUTO = {"train_micro_batch_size_per_gpu": "per_device_train_batch_size",
        "gradient_accumulation_steps": "gradient_accumulation_steps"}
"""What the Trainer fills in -> the option of its script."""
OF_SCRIPT = re.compile(r"""(
    learning_rate|lr|warmup|weight_decay|adam|max_grad_norm|num_train_epochs|max_steps|seed|output|overwrite|logging|save|eval
    |report_to|run_name|dataset|data|train_file|validation_file|tokenizer|model_name|config_name|do_|ddp_|preprocessing|local_rank
    |trust_remote_code|use_fast|cache_dir)""", re.X)
"""Options of such scripts that change neither batch nor layout."""


def of_script(found: Sequence[shell.Flag], started: shell.Started, *, where: str, folder: Path,
              model: Mapping[str, Any] | None) -> Native | None:
    """A command that names a DeepSpeed file beside it, whose "auto" its own options fill in; None where it names none."""
    given = {flag.name: flag for flag in found if flag.name not in shell.OF_LAUNCHER}
    named = next((given[name].values[0] for name in ("deepspeed_config",
                                                     "deepspeed") if name in given and given[name].values), None)
    if named is None or not (folder / named).exists():
        return None
    config = dict(config_of(folder / named))
    for key, option in AUTO.items():
        if config.get(key) in (None, "auto") and option in given:
            config[key] = shell.one(given[option], where)
    for name in ("fp16", "bf16"):
        if isinstance(table := config.get(name), Mapping) and table.get("enabled") == "auto":
            config[name] = {"enabled": name in given and given[name].values[:1] in ((), ("True",), ("true",))}
    world = (started.nodes or 1) * started.procs_per_node if started.procs_per_node else None
    sizes = [config.get(key) for key in AUTO]
    if config.get("train_batch_size") in (None, "auto") and world and all(str(size).isdecimal() for size in sizes):
        config["train_batch_size"] = world * int(str(sizes[0])) * int(str(sizes[1]))
    read = of_config(config, where=where, dp=world, model=model)
    known = {"deepspeed", "deepspeed_config", "fp16", "bf16", *AUTO.values()}
    left = (flag.written for name, flag in given.items() if name not in known and not OF_SCRIPT.match(name))
    return replace(read, format="DeepSpeed JSON with its command", unread=(*read.unread, *left))


def _precision(told: Told, where: str) -> str:
    on = [name for name in ("fp16", "bf16") if _enabled(told, name)]
    if len(on) > 1:
        raise BadInput(f"{where}: fp16 and bf16 are both enabled; DeepSpeed takes one")
    return on[0] if on else "fp32"


def _enabled(told: Told, name: str) -> bool:
    key = "bfloat16" if name == "bf16" and told.has("bfloat16") else name
    table = told.table(key)
    value = table.get("enabled")
    table.neutral(list(table.values))
    return value is True or value == "auto" and name == "bf16"


def _data(where: str, gbs: int | None, mbs: int | None, steps: int | None, dp: int | None) -> dict[str, Any]:
    """DP, where batch, micro-batch and steps of accumulation settle it; what does not go together is an error."""
    if gbs is None or mbs is None:
        return {}
    if gbs % mbs:
        raise BadInput(f"{where}: train_batch_size {gbs} is no multiple of train_micro_batch_size_per_gpu {mbs}")
    if steps is None:
        if dp is not None and gbs % (mbs * dp):
            raise BadInput(f"{where}: train_batch_size {gbs} is no multiple of train_micro_batch_size_per_gpu {mbs} x DP {dp}")
        return {}
    if gbs % (mbs * steps) or dp is not None and gbs != mbs * steps * dp:
        processes = f" x DP {dp} = {mbs * steps * dp}" if dp is not None else ""
        raise BadInput(f"{where}: train_batch_size {gbs} is not train_micro_batch_size_per_gpu {mbs} x "
                       f"gradient_accumulation_steps {steps}{processes or ' x a whole number of processes'}")
    return {"dp": gbs // (mbs * steps)}
