"""NeMo's YAML: overrides of a Megatron-Bridge recipe, written and read; NeMo 1's megatron_gpt_config, read.

    files(trial)                                {"nemo.yaml": …}; not run here
    of_yaml(data, where="nemo.yaml")            by the names of Megatron's arguments, which `megatron.py` reads

Names by Megatron-Bridge's docs/megatron-lm-to-megatron-bridge.md and models/gpt_provider.py: nearly all are the flags' own.
"""
from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from seatrial.errors import BadInput
from seatrial.native import megatron
from seatrial.native.base import Native
from seatrial.plan.emit import megatron_lm
from seatrial.spec import Trial

FILE = "nemo.yaml"
MODEL = {"num_experts": "num_moe_experts", "norm_epsilon": "layernorm_epsilon", "use_rope_scaling": "rope_scaling",
         "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
         "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage"}
"""argparse's name -> that of the model's provider, where they differ."""
INVERTED = {"untie_embeddings_and_output_weights": "share_embeddings_and_output_weights",
            "disable_bias_linear": "add_bias_linear"}
ELSEWHERE = {"micro_batch_size": "train", "global_batch_size": "train", "rampup_batch_size": "train",
             "use_distributed_optimizer": "ddp", "overlap_grad_reduce": "ddp", "overlap_param_gather": "ddp",
             "num_distributed_optimizer_instances": "ddp"}
"""What is not the model's."""
LEFT = ("group_query_attention", "max_position_embeddings", "bf16", "fp16", "fp8_format", "transformer_impl", "swiglu",
        "num_layers_per_virtual_pipeline_stage", "fp8_recipe")
LISTS = ("recompute_modules",)
"""Lists though of one."""
PRECISIONS = {"fp32": None, "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8": "bf16_with_fp8_delayed_scaling_mixed"}
OLD = {"encoder_seq_length": "seq_length", "activations_checkpoint_granularity": "recompute_granularity",
       "activations_checkpoint_method": "recompute_method", "activations_checkpoint_num_layers": "recompute_num_layers",
       "layernorm_epsilon": "norm_epsilon", "num_moe_experts": "num_experts",
       "ub_tp_comm_overlap": "tp_comm_overlap"}
"""NeMo 1's model -> argparse's name."""
NEUTRAL = frozenset("""
    dataset logger tokenizer checkpoint scheduler rng dist profiling validation ft exp_manager run data nsys_profile optim
    restore_from_path defaults name peft env_vars
""".split())


NEUTRAL_OLD = frozenset("""
    mcore_gpt use_scaled_init_method pre_process post_process transformer_block_type normalize_attention_scores attention_type
    native_amp_init_scale native_amp_growth_interval megatron_amp_O2 grad_allreduce_chunk_size_mb grad_div_ar_fusion
    get_attention_mask_from_fusion apex_transformer_log_level gradient_as_bucket_view transformer_engine fp8_hybrid fp8_e4m3
    activation_func should_pad_vocab optim tokenizer data precision bias rotary_percentage _target_ nsys_profile peft
    restore_from_path
""".split())
"""Of the model's table."""


def files(trial: Trial) -> dict[str, str]:
    """Raises BadInput with the reasons where Megatron's flags, or one provider, cannot say it."""
    dialect = megatron_lm(trial)
    reasons = [note.removeprefix("not for Megatron-LM: ") for note in dialect.notes] if not dialect.flags else []
    if trial.model.latent is not None:
        reasons.append("latent attention has a provider of its own, of which nothing is written here")
    if trial.batch.documents is not None:
        reasons.append("attention inside documents is its dataset's")
    if reasons:
        raise BadInput(f"not for NeMo: {'; '.join(reasons)}")
    tables: dict[str, dict[str, Any]] = {"model": {}, "train": {}, "ddp": {}}
    for flag, *values in dialect.flags:
        name = flag.removeprefix("--").replace("-", "_")
        if name in LEFT:
            continue
        said = True if not values else _scalar(values[0]) if len(values) == 1 and name not in LISTS else [
            _scalar(value) for value in values]
        table = tables[ELSEWHERE.get(name, "model")]
        table[INVERTED.get(name, MODEL.get(name, name))] = not said if name in INVERTED else said
    t, m = trial.topology, trial.model
    tables["model"] |= {"gated_linear_unit": True, "activation_func": "silu"} if m.gated else {}
    tables["model"] |= {"virtual_pipeline_model_parallel_size": t.vp} if t.vp > 1 else {}
    tables["model"] |= {"vocab_size": m.pad_vocab_to or m.vocab, "should_pad_vocab": m.pad_vocab_to is None}
    tables["dataset"] = {"seq_length": m.seq}
    if t.zero:
        tables["optimizer"] = {"use_distributed_optimizer": True}
    head = (f"# {t.product}: merged over the ConfigContainer of a Megatron-Bridge recipe, as its examples' --config-file is.\n"
            "# Written from NeMo's documentation; not run here.\n")
    precision = PRECISIONS[t.precision]
    if precision and ("--fp8-recipe", "tensorwise") in dialect.flags:
        precision = precision.replace("delayed", "current")
    lines = [f"mixed_precision: {precision}"] if precision else []
    for title, given in tables.items():
        lines += [f"{title}:", *(f"  {key}: {json.dumps(value)}" for key, value in given.items())] if given else []
    return {FILE: head + "\n".join(lines) + "\n"}


def _scalar(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def is_yaml(data: Mapping[str, Any]) -> bool:
    model = data.get("model")
    marks = ("tensor_model_parallel_size", "num_layers", "micro_batch_size")
    return isinstance(model, Mapping) and any(mark in model for mark in marks)


_REFERENCE = re.compile(r"\$\{(?:(?P<one>\.?[\w.]+)|multiply:\s*(?P<a>\d{1,9})\s*,\s*(?P<b>\d{1,9})\s*)\}")


def _put_in(value: Any, whole: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> Any:
    """${.hidden_size}, ${model.seq_length} and ${multiply:4, ${.hidden_size}} with what the file says; others stay."""
    if isinstance(value, Mapping):
        return {key: _put_in(one, whole, value) for key, one in value.items()}
    for _ in range(4):
        if not isinstance(value, str) or "${" not in value:
            return value
        value = _REFERENCE.sub(lambda found: str(_looked_up(found, whole, beside or {})), value)
        value = int(value) if value.isdecimal() and len(value) < 19 else value
    return value


def _looked_up(found: re.Match[str], whole: Mapping[str, Any], beside: Mapping[str, Any]) -> Any:
    if found["one"] is None:
        return int(found["a"]) * int(found["b"])
    there: Any = beside if found["one"].startswith(".") else whole
    for name in found["one"].strip(".").split("."):
        there = there.get(name) if isinstance(there, Mapping) else None
    return found.group() if there is None or isinstance(there, Mapping | list) else there


def of_yaml(data: Mapping[str, Any], *, where: str) -> Native:
    names: dict[str, str] = {theirs: ours for ours, theirs in MODEL.items()} | OLD
    data = _put_in(data, data)
    values: dict[str, Any] = {}
    for table in ("model", "train", "ddp", "comm_overlap"):
        given = data.get(table) or {}
        if not isinstance(given, Mapping):
            raise BadInput(f"{where}: {table}: expected a table")
        values |= {names.get(str(key), str(key)): value for key, value in given.items()}
    old = isinstance(data.get("trainer"), Mapping)
    for ours, theirs in INVERTED.items():
        if theirs in values:
            values[ours] = values.pop(theirs) is False
    _activation(values)
    _precision(data, values, where)
    world = _old(data["trainer"], values) if old else None
    known = {"model", "train", "ddp", "comm_overlap", "trainer", "mixed_precision", "optimizer", *NEUTRAL}
    beside = [f"{table}.{key}" if key else table for table, given in data.items() if table not in known
              for key in (given if isinstance(given, Mapping) else ("",))]
    values = {key: value for key, value in values.items() if key not in NEUTRAL_OLD}
    if isinstance(values.get("rampup_batch_size"), list):
        values["rampup_batch_size"] = [str(value) for value in values["rampup_batch_size"]]
    if data.get("model", {}).get("should_pad_vocab") is False and "vocab_size" in values:
        values["pad_vocab_size_to"] = values["vocab_size"]
    read = megatron.of_values(values, where=where, world=world, format="NeMo 1 YAML" if old else "NeMo YAML (Megatron-Bridge)")
    return replace(read, unread=(*read.unread, *beside))


def _activation(values: dict[str, Any]) -> None:
    if values.get("activation") in ("swiglu", "fast-swiglu"):
        values["gated_linear_unit"] = values.pop("activation") is not None
    elif values.get("activation") in ("gelu", "fast-gelu"):
        values.pop("activation")
    if str(values.get("normalization", "")).lower() in ("rmsnorm", "layernorm", "layernorm1p", "low_precision_layernorm"):
        values["normalization"] = "RMSNorm" if "rms" in str(values["normalization"]).lower() else "LayerNorm"
    if values.get("bias") is False:
        values["disable_bias_linear"] = True


def _precision(data: Mapping[str, Any], values: dict[str, Any], where: str) -> None:
    said = data.get("mixed_precision")
    if isinstance(said, Mapping):
        said = "fp8" if said.get("fp8") else "bf16" if said.get("bf16") else "fp16" if said.get("fp16") else None
    text = str(said or "").replace("-", "_")
    if "fp8" in text:
        values |= {"bf16": True, "fp8_format": "hybrid"}
    elif text.startswith(("bf16", "16", "fp16")):
        values["bf16" if text.startswith("bf16") else "fp16"] = True
    elif text:
        raise BadInput(f"{where}: mixed_precision {said}: {', '.join(filter(None, PRECISIONS.values()))} are known here")


def _old(trainer: Mapping[str, Any], values: dict[str, Any]) -> int | None:
    """NeMo 1's trainer: how many processes, the precision; its distributed Adam is ZeRO 1."""
    said = str(trainer.get("precision", ""))
    if said.startswith(("bf16", "16")):
        values["bf16" if said.startswith("bf16") else "fp16"] = True
    if values.pop("fp8", None):
        values["fp8_format"] = "hybrid"
    optimizer = values.get("optim")
    if isinstance(optimizer, Mapping) and "distributed" in str(optimizer.get("name")):
        values |= {"use_distributed_optimizer": True, "overlap_grad_reduce": bool(optimizer.get("overlap_grad_sync", True)),
                   "overlap_param_gather": bool(optimizer.get("overlap_param_sync", True))}
    devices, nodes = trainer.get("devices"), trainer.get("num_nodes", 1)
    return devices * nodes if isinstance(devices, int) and isinstance(nodes, int) and devices > 0 else None
