"""DeepSpeed's JSON file as a trial; of the model it knows nothing, which a Hugging Face config.json beside it may say.

    of_config({"train_batch_size": 512, "zero_optimization": {"stage": 2}, …}, where="ds_config.json", dp=None)

Keys by deepspeed/runtime/config.py and runtime/zero/config.py. The sequence, and the stages of its pipeline, are of the script.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial.errors import BadInput
from seatrial.native import shell
from seatrial.native.base import Native, near
from seatrial.native.told import Told
from seatrial.native.trainer import Options
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
    """The configuration that a script writes itself: the first object in it that is one, with the script's variables."""
    known = shell.variables(text) if "{" in text else {}
    for found in re.finditer(r'(?<!\$)\{\s*"', text):
        there = text[found.start() : found.start() + shell.LONGEST // 2]
        try:
            data, _ = json.JSONDecoder().raw_decode(shell.put_in(there, known))
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
    told = Told({key: None if value == "auto" else value for key, value in config.items()} | (
        {"zero_optimization": {"stage": 1}} if config.get("zero_optimization") is True else {}), where)  # as until 2020
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
        if stage == 3:
            layout["weights_group"] = zero.whole("zero_hpz_partition_size")
        else:
            notes.append(f"zero_optimization.zero_hpz_partition_size {weights}: nothing to do at stage {stage}")
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
    if gbs is None and "train_batch_size" not in open_values:
        notes.append(f"the batch is micro-batch {mbs or 1} x {steps or 1} steps x DP: --gbs says it")
    told.neutral(NEUTRAL)
    told.neutral(path for path in told.left() if path.split(".")[0] in NEUTRAL)
    return Native(format="DeepSpeed JSON", notes=tuple(notes), unread=tuple(told.left()), tables={
        "engine": "deepspeed", "topology": layout | _data(where, gbs, mbs, steps, dp),
        "batch": {} if gbs is None else {"gbs": gbs},
        **({"model": dict(model)} if model is not None else {})})  # fmt: skip


AUTO = {"train_micro_batch_size_per_gpu": "per_device_train_batch_size",
        "gradient_accumulation_steps": "gradient_accumulation_steps"}
"""What the Trainer fills in -> its option."""


def of_script(found: Sequence[shell.Flag], started: shell.Started, *, where: str, folder: Path,
              model: Callable[[int | None], Mapping[str, Any] | None]) -> Native | None:
    """A command that names a DeepSpeed file beside it, whose "auto" its own options fill in; None where it names none."""
    given = {flag.name: flag for flag in shell.of_program(found)}
    named = next((given[name].values[0] for name in ("deepspeed_config",
                                                     "deepspeed") if name in given and given[name].values), None)
    if named is None:
        return None
    options = Options({name: flag.values[0] if flag.values else True for name, flag in given.items()}, where)
    options.neutral(("deepspeed", "deepspeed_config"))
    read = filled(config_of(near(folder, named, where)), options, where=where, dp=started.world, model=model(options.seq))
    return replace(read, format="DeepSpeed JSON with its command",
                   unread=(*read.unread, *(given[name].written for name in options.left())))


def filled(config: Mapping[str, Any], options: Options, *, where: str, dp: int | None,
           model: Mapping[str, Any] | None) -> Native:
    """With the Trainer's options for what the file leaves to them."""
    config = dict(config)
    for key, size in zip(AUTO, (options.mbs, options.steps)):
        if config.get(key) in (None, "auto") and size is not None:
            config[key] = size
    for name in ("fp16", "bf16"):
        if isinstance(table := config.get(name), Mapping) and table.get("enabled") == "auto" and options.values:
            config[name] = {"enabled": options.half == name}
    sizes = [config.get(key) for key in AUTO]
    if config.get("train_batch_size") in (None, "auto") and dp and all(isinstance(size, int) for size in sizes):
        config["train_batch_size"] = dp * sizes[0] * sizes[1]  # type: ignore[operator]
    read = of_config(config, where=where, dp=dp, model=model)
    more = {"topology": read.tables["topology"] | ({"recompute": "full"} if options.recompute == "full" else {})}
    return replace(read, tables=read.tables | more | ({"execution": {"compile": True}} if options.compiled else {}))


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
