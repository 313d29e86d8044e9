"""accelerate's YAML with the model's config.json and the Trainer's arguments beside it, written and read; not run here.

    files(trial)                            accelerate.yaml, config.json, training_args.json, train.sh
    of_yaml(data, where="accelerate.yaml", folder=Path("."))

Keys by accelerate/commands/config/config_args.py, utils/dataclasses.py (FullyShardedDataParallelPlugin) and
parallelism_config.py. FSDP2's `reshard_after_forward` true is ZeRO 3, false ZeRO 2; without FSDP it is DDP.
"""
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial.engines.scripted import WHICH_NODE
from seatrial.errors import BadInput
from seatrial.huggingface import hfconfig
from seatrial.native import deepspeed
from seatrial.native.base import Native, data_parallel, near
from seatrial.native.told import Told
from seatrial.native.trainer import Options
from seatrial.plaindata import read_json
from seatrial.presets import foreign
from seatrial.spec import Trial

FILE, ARGUMENTS = "accelerate.yaml", "training_args.json"
ROTATES = {"ring": "alltoall", "gather": "allgather"}
PRECISIONS = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
NEUTRAL = frozenset("""
    compute_environment config_name debug dynamo_config.dynamo_mode downcast_bf16 enable_cpu_affinity machine_rank
    main_training_function main_process_ip
    main_process_port rdzv_backend same_network tpu_env tpu_use_cluster tpu_use_sudo gpu_ids num_machines
    deepspeed_multinode_launcher mpirun_config use_cpu
""".split())
OVER = ("num_processes", "num_machines", "mixed_precision")
"""Options of `accelerate launch` that its file has too."""
NEUTRAL_FSDP = frozenset("""
    fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap fsdp_state_dict_type fsdp_backward_prefetch
    fsdp_backward_prefetch_policy fsdp_cpu_ram_efficient_loading fsdp_forward_prefetch fsdp_sync_module_states
    fsdp_use_orig_params fsdp_min_num_params
""".split())
STRATEGIES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2, "1": 3, "2": 2,
              "3": 0, "4": 3, "5": 2}


def why_not(trial: Trial) -> Iterator[str]:
    t = trial.topology
    if t.pp > 1 or t.ep > 1:
        yield f"PP {t.pp} and EP {t.ep}: accelerate has neither pipeline stages nor experts of its own in FSDP"
    if t.tp > 1:
        yield f"TP {t.tp}: a model that is made from its config.json is not cut by transformers, and accelerate skips TP then"
    if t.zero == 1:
        yield "ZeRO 1: FSDP shards gradients as well (ZeRO 2), or weights too (ZeRO 3)"
    if t.zero == 0 and t.cp > 1:
        yield f"ZeRO 0 with CP {t.cp}: composing it with DDP is not supported there"
    if t.cp > 1 and t.cp_kind not in ROTATES:
        yield f"CP {t.cp} by {t.cp_kind}; it has {' and '.join(ROTATES)}"
    if t.cp > 1 and (t.zero_group or t.data_ranks) % t.cp:
        yield f"shards over {t.zero_group} ranks with CP {t.cp}: CP is a part of what it shards over"
    if t.precision not in PRECISIONS:
        yield f"precision {t.precision}; {', '.join(PRECISIONS)} are written"
    if t.recompute == "selective":
        yield "selective recompute; none and full are there"
    if t.gradients_group is not None or t.weights_group is not None:
        yield "groups of their own for gradients or weights"
    if t.sequence_parallel:
        yield "sequence parallelism in norms, which is a plan of the model's own there"
    if trial.batch.rampup_start is not None or trial.batch.documents is not None:
        yield "a ramp-up of the batch, or attention inside documents"
    if trial.model.pad_vocab_to not in (None, trial.model.vocab):
        yield f"pad_vocab_to {trial.model.pad_vocab_to}: a config.json has one vocabulary"


def files(trial: Trial) -> dict[str, str]:
    t, b = trial.topology, trial.batch
    if reasons := list(why_not(trial)):
        raise BadInput(f"not for accelerate: {'; '.join(reasons)}")
    group = t.zero_group or t.data_ranks
    config: dict[str, Any] = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP" if t.zero else "MULTI_GPU",
                              "mixed_precision": PRECISIONS[t.precision], "num_machines": trial.nodes, "num_processes": t.world,
                              "machine_rank": 0, "main_training_function": "main", "rdzv_backend": "static", "use_cpu": False}
    if t.zero:
        config["fsdp_config"] = {
            "fsdp_version": 2, "fsdp_reshard_after_forward": t.zero == 3, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_activation_checkpointing": t.recompute == "full", "fsdp_offload_params": False,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT", "fsdp_cpu_ram_efficient_loading": False}
        config["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": t.data_ranks // group, "parallelism_config_dp_shard_size": group // t.cp,
            "parallelism_config_tp_size": t.tp, "parallelism_config_cp_size": t.cp,
            **({"parallelism_config_cp_comm_strategy": ROTATES[t.cp_kind]} if t.cp > 1 else {})}
    arguments = {"config_name": "config.json", "block_size": trial.model.seq, "per_device_train_batch_size": t.mbs,
                 "gradient_accumulation_steps": trial.microbatches, "torch_compile": trial.execution.compile,
                 "gradient_checkpointing": t.recompute == "full" and not t.zero, "bf16": t.precision == "bf16",
                 "fp16": t.precision == "fp16", "do_train": True, "max_steps": 20, "logging_steps": 1, "save_strategy": "no",
                 "report_to": "none", "output_dir": "out"}  # fmt: skip
    which = ("", "") if trial.nodes == 1 else (
        WHICH_NODE, '--machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR" --main_process_port "${MASTER_PORT:-29500}" ')
    script = f"""#!/bin/bash
# bash train.sh run_clm.py: transformers' examples/pytorch/language-modeling, with data and a tokenizer of yours in
# {ARGUMENTS}: dataset_name or train_file, and tokenizer_name. {t.product}; batch {b.gbs}. Not run here.
cd "$(dirname "$0")"
{which[0]}exec accelerate launch --config_file {FILE} {which[1]}"${{@:-run_clm.py}}" {ARGUMENTS}
"""
    # Weights and Adam's moments in fp32, whatever is computed in: a model is made in the type that its config.json names.
    model = hfconfig.config_of(trial.model, dtype="float32")
    return {FILE: "# Written from accelerate's documentation; not run here.\n" + "\n".join(_lines(config)) + "\n",
            "config.json": json.dumps(model, indent=2) + "\n",
            ARGUMENTS: json.dumps(arguments, indent=2) + "\n", "train.sh": script}


def _lines(table: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{key}: {json.dumps(value)}"


def is_yaml(data: Mapping[str, Any]) -> bool:
    return "distributed_type" in data


def of_yaml(data: Mapping[str, Any], *, where: str, folder: Path, given: Mapping[str, Any] | None = None) -> Native:
    """`given`: options of the command that names the file, which go over it and over the Trainer's arguments beside it."""
    given, notes = dict(given or {}), list[str]()
    told = Told({**data, **{key: given.pop(key) for key in OVER if key in given}}, where)
    kind, world = told.get("distributed_type"), told.whole("num_processes")
    options = _options(folder, given, notes)
    model = model_beside(folder, options.seq, notes)
    if kind == "DEEPSPEED":
        read = _by_deepspeed(told, folder, where, world, options, model)
        told.neutral(NEUTRAL)
        return replace(read, format="accelerate YAML (DeepSpeed)", unread=(*read.unread, *told.left(), *options.left()),
                       notes=(*read.notes, *notes))
    if kind not in ("FSDP", "MULTI_GPU", "MULTI_CPU", "NO", "MULTI_XPU", "MULTI_HPU"):
        raise BadInput(f"{where}: distributed_type {kind}: FSDP, DEEPSPEED, MULTI_GPU and NO are known here")
    par, fsdp = told.table("parallelism_config"), told.table("fsdp_config")
    tp, cp = par.whole("parallelism_config_tp_size") or 1, par.whole("parallelism_config_cp_size") or 1
    layout: dict[str, Any] = {"tp": tp, "cp": cp, "sequence_parallel": False}
    layout |= {} if options.mbs is None else {"mbs": options.mbs}
    layout |= data_parallel(where, world, tp * cp, said=None, product=f"TP {tp} x CP {cp}")
    if cp > 1:
        layout["cp_kind"] = par.word("parallelism_config_cp_comm_strategy",
                                     {theirs: ours for ours, theirs in ROTATES.items()}, "gather")
    layout |= _sharding(fsdp, par, layout, cp, where, notes) if kind == "FSDP" else {"zero": 0}
    layout["precision"] = told.word("mixed_precision", {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}, "fp32")
    layout["recompute"] = "full" if fsdp.on("fsdp_activation_checkpointing") else options.recompute
    batch = {"gbs": options.mbs * (options.steps or 1) * layout["dp"]} if "dp" in layout and options.mbs is not None else {}
    execution = {"compile": True} if told.table("dynamo_config").get("dynamo_backend") or options.compiled else {}
    fsdp.neutral(NEUTRAL_FSDP)
    told.neutral(NEUTRAL)
    old = kind == "FSDP" and fsdp.values.get("fsdp_version", 1) == 1
    return Native(format="accelerate YAML", unread=(*told.left(), *options.left()), notes=tuple(notes), tables={
        "engine": "fsdp1" if old else "accelerate", "topology": layout, "batch": batch,
        **({"model": model} if model is not None else {}), **({"execution": execution} if execution else {})})  # fmt: skip


def _sharding(fsdp: Told, par: Told, layout: Mapping[str, Any], cp: int, where: str, notes: list[str]) -> dict[str, Any]:
    version, kept = fsdp.whole("fsdp_version") or 1, fsdp.values.get("fsdp_reshard_after_forward")
    fsdp.neutral(("fsdp_reshard_after_forward",))
    strategy = fsdp.get("fsdp_sharding_strategy")
    if version == 2:
        zero = 2 if str(kept).lower() == "false" else 3
    else:
        word = str(strategy or (kept if isinstance(kept, str) else "FULL_SHARD"))
        if word not in STRATEGIES:
            raise BadInput(f"{where}: fsdp_sharding_strategy {word}: {', '.join(list(STRATEGIES)[:5])} are known here")
        zero = STRATEGIES[word]
        if "HYBRID" in word or word in ("4", "5"):
            notes.append(f"fsdp_sharding_strategy {word}: shards inside a node; --zero-group says how many processes that is")
    if fsdp.on("fsdp_offload_params"):
        notes.append("fsdp_offload_params: memory of the host is in no forecast here; taken for none")
    replicas, shards = par.whole("parallelism_config_dp_replicate_size") or 1, par.whole("parallelism_config_dp_shard_size")
    dp = layout.get("dp")
    if dp is not None and shards is not None and replicas * shards != dp:
        raise BadInput(f"{where}: replicas {replicas} x shards {shards} = {replicas * shards}, and num_processes "
                       f"leaves DP {dp}")
    if dp is not None and replicas > 1 and dp % replicas:
        raise BadInput(f"{where}: {replicas} replicas do not divide DP {dp}")
    return {"zero": zero, **({"zero_group": dp // replicas * cp} if dp is not None and replicas > 1 else {})}


def _by_deepspeed(told: Told, folder: Path, where: str, world: int | None, options: Options,
                  model: Mapping[str, Any] | None) -> Native:
    table = told.table("deepspeed_config")
    table.neutral(("gradient_clipping", "zero3_init_flag", "zero3_save_16bit_model", "deepspeed_multinode_launcher"))
    if isinstance(name := table.get("deepspeed_config_file"), str):
        path = near(folder, name, where)
        return deepspeed.filled(deepspeed.config_of(path), options, where=str(path), dp=world, model=model)
    moved = {f"offload_{what}": {"device": device} for what in ("optimizer", "param")
             if (device := table.get(f"offload_{what}_device")) is not None}
    config = {"zero_optimization": {"stage": table.whole("zero_stage", least=0) or 0, **moved},
              "gradient_accumulation_steps": table.whole("gradient_accumulation_steps"),
              str(told.get("mixed_precision")): {"enabled": True}}
    return deepspeed.filled({key: value for key, value in config.items() if value is not None and key not in ("no", "None")},
                            options, where=where, dp=world, model=model)


def _options(folder: Path, given: Mapping[str, Any], notes: list[str]) -> Options:
    path = folder / ARGUMENTS
    data = read_json(path) if path.exists() else {}
    found = Options({**(data if isinstance(data, Mapping) else {}), **given}, str(path))
    if found.mbs is None:
        notes.append(f"micro-batch and batch are the script's: --mbs and --gbs say them, or {ARGUMENTS} beside it")
    return found


def model_beside(folder: Path, seq: int | None = None, notes: list[str] | None = None) -> dict[str, Any] | None:
    """The model of a config.json in the same folder; a file there that is none of a model is no error."""
    path = folder / foreign.CONFIG
    if not path.exists() or not isinstance(data := read_json(path), Mapping) or "model_type" not in data:
        return None
    found = foreign.values_of(str(path), seq=seq)
    if found is not None and seq is None and notes is not None:
        notes += longest(found)
    return found


def longest(model: Mapping[str, Any]) -> list[str]:
    """What is said of a sequence that nobody chose: with learned positions the model has no other."""
    return [] if model.get("positions", model.get("family", "gpt2")) in ("learned", "gpt2") else [
        f"sequences of {model['seq']}, the longest that config.json names, since nothing else is said: --set model.seq=2048 "
        "says what is trained with"]
