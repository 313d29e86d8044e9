"""torchtitan's TOML file as a trial, with the options that a command puts over it.

    of_config(tables, where="train_configs/llama3_8b.toml", folder=Path("train_configs"))

Keys by torchtitan/config/job_config.py (0.2). The model is a flavor of its llama3, or of its mixtures of experts, or the
arguments of a TrainSpec in a file beside it that `experimental.custom_import` names: read as text, never run.
"""
from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial.engines.torchtitan import CLASSES, ROTATES, SCHEDULES
from seatrial.errors import BadInput
from seatrial.native.base import Native, beside, data_parallel, enough
from seatrial.native.told import Told
from seatrial.plaindata import read_text
from seatrial.spec import round_up, stage_split

MARKS = ("job", "training", "parallelism", "activation_checkpoint")
QWEN3 = {"num_experts": 128, "num_shared_experts": 0, "top_k": 8, "score_func": "softmax", "route_norm": True,
         "load_balance_coeff": None}
FLAVORS: dict[tuple[str, str], Mapping[str, Any]] = {
    ("llama3", "debugmodel"): {"dim": 256, "n_layers": 6, "n_heads": 16, "vocab_size": 2048, "rope_theta": 500000},
    ("llama3", "8B"): {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "ffn_dim_multiplier": 1.3,
                       "multiple_of": 1024, "rope_theta": 500000, "vocab_size": 128256},
    ("llama3", "70B"): {"dim": 8192, "n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "ffn_dim_multiplier": 1.3,
                        "multiple_of": 4096, "rope_theta": 500000, "vocab_size": 128256},
    ("llama3", "405B"): {"dim": 16384, "n_layers": 126, "n_heads": 128, "n_kv_heads": 8, "ffn_dim_multiplier": 1.2,
                         "multiple_of": 4096, "rope_theta": 500000, "vocab_size": 128256},
    ("qwen3", "30B-A3B"): {"vocab_size": 151936, "head_dim": 128, "dim": 2048, "n_layers": 48, "n_heads": 32, "n_kv_heads": 4,
                           "hidden_dim": 6144, "moe_inter_dim": 768, "moe_args": QWEN3},
    ("qwen3", "235B-A22B"): {"vocab_size": 151936, "head_dim": 128, "dim": 4096, "n_layers": 94, "n_heads": 64, "n_kv_heads": 4,
                             "hidden_dim": 12288, "rope_theta": 5000000, "moe_inter_dim": 1536, "moe_args": QWEN3},
    ("deepseek_v3", "671B"): {
        "vocab_size": 129280, "dim": 7168, "inter_dim": 18432, "moe_inter_dim": 2048, "n_layers": 61, "n_dense_layers": 3,
        "n_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "moe_args": {"num_experts": 256, "num_shared_experts": 1, "top_k": 8, "num_expert_groups": 8,
                                        "num_limited_groups": 4, "score_func": "sigmoid", "route_norm": True,
                                        "route_scale": 2.5}},
}  # fmt: skip
"""torchtitan/models/llama3/__init__.py, and its neighbours'. The bias of qwen3's router is not moved by its optimizer."""
LLAMA31 = {"scaling_factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""RoPEScalingArgs where nothing is said; a factor of 1 is none."""
NEUTRAL = ("job", "profiling", "metrics", "checkpoint", "comm", "debug", "lr_scheduler", "validation", "fault_tolerance",
           "memory_estimation")
NEUTRAL_IN = {"training": ("steps", "max_norm", "dataset", "dataset_path", "seed", "deterministic", "gc_freq", "gc_debug",
                           "warmup_steps"),
              "optimizer": ("lr", "beta1", "beta2", "eps", "weight_decay", "early_step_in_backward", "name"),
              "experimental": ("custom_import", "custom_args_module"),
              "model": ("tokenizer_path", "hf_assets_path", "name", "flavor", "print_after_conversion"),
              "compile": ("components", "backend"), "activation_checkpoint": ("per_op_sac_force_recompute_mm_shapes_by_fqns",),
              "parallelism": ("enable_async_tensor_parallel", "disable_loss_parallel", "enable_compiled_autograd",
                              "pipeline_parallel_split_points")}
PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}
KINDS = {theirs: ours for ours, theirs in ROTATES.items()}
DEGREES = ("data_parallel_shard_degree", "data_parallel_replicate_degree", "tensor_parallel_degree", "pipeline_parallel_degree",
           "context_parallel_degree", "context_parallel_rotate_method", "pipeline_parallel_schedule", "disable_loss_parallel",
           "pipeline_parallel_microbatches", "pipeline_parallel_split_points", "enable_async_tensor_parallel",
           "fsdp_reshard_after_forward", "enable_compiled_autograd")
MOVED = {**{(table, key): ("parallelism", key) for key in DEGREES for table in ("training", "experimental")},
         ("training", "data_parallel_degree"): ("parallelism", "data_parallel_shard_degree"),
         ("training", "compile"): ("compile", "enable"), ("training", "enable_fp8_linear"): ("float8", "enable_float8_linear")}
"""Where keys stood in 2024 and 2025 -> where they stand now."""


def is_config(data: Mapping[str, Any]) -> bool:
    return "parallelism" in data or sum(mark in data for mark in MARKS) > 1


def _moved(data: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: dict(table) if isinstance(table, Mapping) else table for name, table in data.items()}
    for (table, key), (to, name) in MOVED.items():
        if isinstance(there := found.get(table), dict) and key in there:
            value = there.pop(key)
            if isinstance(now := found.setdefault(to, {}), dict):
                now.setdefault(name, value)
    return found


def of_config(data: Mapping[str, Any], *, where: str, folder: Path, world: int | None = None) -> Native:
    told, notes = Told(_moved(data), where), list[str]()
    par, training = told.table("parallelism"), told.table("training")
    seq = training.whole("seq_len")
    model = _model(told, folder, where, notes)
    if model is not None and seq is not None:
        model["seq"] = seq
    degree = {ours: par.whole(theirs) or 1 for ours, theirs in (
        ("tp", "tensor_parallel_degree"), ("pp", "pipeline_parallel_degree"), ("cp", "context_parallel_degree"),
        ("replicate", "data_parallel_replicate_degree"))}  # fmt: skip
    tp, pp, cp, replicate = degree.values()
    others, rest = tp * pp * cp * replicate, par.get("data_parallel_shard_degree") in (None, -1)
    shard = None if rest else par.whole("data_parallel_shard_degree")
    if rest:
        shard = data_parallel(where, world, others, said=None,
                              product=f"TP {tp} x PP {pp} x CP {cp} x replicas {replicate}").get("dp")
    elif world is not None and shard is not None and shard * others != world:
        raise BadInput(f"{where}: replicas {replicate} x shards {shard} x CP {cp} x TP {tp} x PP {pp} = {shard * others} "
                       f"processes, and "
                       f"{world} are started")
    layout: dict[str, Any] = {"tp": tp, "pp": pp, "cp": cp, "sequence_parallel": tp > 1}
    layout |= _sharding(par, shard, replicate, cp, pp, notes)
    if cp > 1:
        layout["cp_kind"] = par.word("context_parallel_rotate_method", KINDS, "gather")
    if (experts := par.whole("expert_parallel_degree") or 1) > 1:
        layout |= {"ep": experts, "etp": par.whole("expert_tensor_parallel_degree") or 1}
    if told.table("debug").on("moe_force_load_balance"):
        layout["moe_balance"] = "forced"
    layout["precision"] = training.word("mixed_precision_param", PRECISIONS, "bf16")
    converters = told.table("model").get("converters") or []
    if told.table("float8").on("enable_float8_linear") or any(
            "float8" in str(name) for name in (converters if isinstance(converters, list) else [converters])):
        layout["precision"] = "fp8"
    if training.on("enable_cpu_offload"):
        notes.append("training.enable_cpu_offload: memory of the host is in no forecast here; taken for none")
    for table, key, usual in (("training", "mixed_precision_reduce", "float32"), ("model", "norm_type", "rmsnorm")):
        if told.table(table).values.get(key) == usual:
            told.table(table).neutral((key,))
    layout["recompute"] = _recompute(told, notes)
    batch, sizes = _batches(training, par, layout, where, notes)
    layout |= sizes
    layout |= _stages(par, model, pp, where, notes) if pp > 1 else {}
    par.neutral(("pipeline_parallel_schedule",))
    execution: dict[str, Any] = {"compile": True} if told.table("compile").on("enable") else {}
    if told.table("optimizer").get("implementation") in ("for-loop", "foreach"):
        execution["optimizer"] = "adamw-plain"
    for table, names in NEUTRAL_IN.items():
        told.table(table).neutral(names)
    left = [path for path in told.left() if path.split(".")[0] not in NEUTRAL]
    return Native(format="torchtitan TOML", notes=tuple(notes), unread=tuple(left), tables={
        "engine": "torchtitan", "topology": layout, "batch": batch, **({"model": model} if model is not None else {}),
        **({"execution": execution} if execution else {})})  # fmt: skip


def _sharding(par: Told, shard: int | None, replicate: int, cp: int, pp: int, notes: list[str]) -> dict[str, Any]:
    """ZeRO by what is kept after the forward pass: with `default` the weights are, where there is a pipeline."""
    policy = par.get("fsdp_reshard_after_forward") or "default"
    if policy not in ("default", "always", "never"):
        raise par.wrong("fsdp_reshard_after_forward", what="default, always or never")
    stage = 3 if policy == "always" or policy == "default" and pp == 1 else 2
    if shard is None:
        if replicate > 1:
            notes.append(f"replicas {replicate} of shards over the rest: the group is known with the number of processes")
        return {"zero": stage}
    ranks = shard * cp
    return {"dp": replicate * shard, "zero": 0 if ranks == 1 else stage,
            **({"zero_group": ranks} if replicate > 1 and ranks > 1 else {})}


def _recompute(told: Told, notes: list[str]) -> str:
    table = told.table("activation_checkpoint")
    mode = table.word("mode", {name: name for name in ("none", "selective", "full")} | {"memory_budget": "selective"},
                      "selective")
    option = table.get("selective_ac_option")
    if mode == "selective" and option not in (None, "op"):
        notes.append(f"activation_checkpoint.selective_ac_option {option}: some layers whole; forecast as op")
    if table.values.get("mode") in (None, "none"):
        mode = "none" if table.has("mode") else "selective"
    return str(mode)


def _batches(training: Told, par: Told, layout: dict[str, Any], where: str,
             notes: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The batch, and the micro-batch: with a pipeline its own, which divides what a rank gets."""
    local = training.whole("local_batch_size", "batch_size") or 8
    size = training.get("global_batch_size")
    total = None if size in (None, -1) else training.whole("global_batch_size")
    micro, several = par.whole("pipeline_parallel_microbatch_size"), par.whole("pipeline_parallel_microbatches")
    if several is not None and layout["pp"] > 1 and local % several:
        raise BadInput(f"{where}: batch_size {local} is no multiple of pipeline_parallel_microbatches {several}")
    micro = micro or (local // several if several else 1)
    dp = layout.get("dp")
    if dp is not None and total is not None and total % (local * dp):
        raise BadInput(f"{where}: global_batch_size {total} is no multiple of local_batch_size {local} x DP {dp}")
    if layout["pp"] > 1 and local % micro:
        raise BadInput(f"{where}: local_batch_size {local} is no multiple of pipeline_parallel_microbatch_size {micro}")
    if total is None and dp is not None:
        total = local * dp
    elif total is None:
        notes.append(f"the batch is local_batch_size {local} x DP, and DP what the processes leave: --gbs says it")
    return {} if total is None else {"gbs": total}, {"mbs": micro if layout["pp"] > 1 else local}


def _stages(par: Told, model: Mapping[str, Any] | None, pp: int, where: str, notes: list[str]) -> dict[str, Any]:
    words = {theirs: ours for ours, theirs in SCHEDULES.items()}
    schedule = par.get("pipeline_parallel_schedule") or "1F1B"
    if str(schedule) not in words:
        notes.append(f"pipeline_parallel_schedule {schedule}: there is no forecast of it with this engine; taken for 1f1b")
    found: dict[str, Any] = {"schedule": words.get(str(schedule), "1f1b")}
    parts, each = par.get("module_fqns_per_model_part"), par.whole("pipeline_parallel_layers_per_stage")
    fewer = [par.whole(f"pipeline_parallel_{end}_stage_less_layers", least=0) for end in ("first", "last")]
    if model is None:
        return found
    layers = model["layers"]
    first, last = (1 if value is None else value for value in fewer)
    if isinstance(parts, list):
        split = tuple(sum(str(name).startswith("layers.") for name in part) for part in parts)
    else:
        count = pp * (2 if found["schedule"] == "interleaved" else 1) if each is None else -(-(layers + first + last) // each)
        enough(where, layers, count)
        more, surplus = divmod(layers + first + last, count)
        dealt = [more + (stage < surplus) for stage in range(count)]
        split = (dealt[0] - first, *dealt[1:-1], dealt[-1] - last) if count > 1 else (layers,)
    if len(split) % pp or sum(split) != layers:
        raise BadInput(f"{where}: {len(split)} pipeline stages with {sum(split)} layers; the model has {layers}, and PP is "
                       f"{pp}")
    if len(split) > pp:
        found["vp"] = len(split) // pp
    return found | ({"stage_layers": list(split)} if split != stage_split(layers, len(split)) else {})


def _model(told: Told, folder: Path, where: str, notes: list[str]) -> dict[str, Any] | None:
    table, par = told.table("model"), told.table("parallelism")
    name, flavor = table.get("name"), table.get("flavor")
    module = told.table("experimental").get("custom_import")
    which, arguments = str(name), FLAVORS.get((str(name), str(flavor)))
    tokens: int | None = None
    if arguments is None and isinstance(module, str) and (path := beside(folder, f"{module.replace('.', '/')}.py")):
        which, arguments, tokens = _arguments(read_text(path, most=1 << 20), str(path))
    if arguments is None:
        seq = told.table("training").whole("seq_len") or 2048
        notes.append(f"model {name} {flavor}: its sizes are in its code; --model with --set model.seq={seq} says them")
        return None
    told = Told(arguments, where)
    found, vocab = llama3(told) if which == "llama3" else mixture(told), told.whole("vocab_size")
    if tokens is not None:
        found["vocab"] = tokens
    if vocab is not None and round_up(found["vocab"], 128 * (par.whole("tensor_parallel_degree") or 1)) != vocab:
        found["pad_vocab_to"] = vocab
    return found


def llama3(told: Told) -> dict[str, Any]:
    """A Model's values from its TransformerModelArgs (models/llama3/model/args.py and model.py)."""
    hidden, heads = told.whole("dim") or 4096, told.whole("n_heads") or 32
    inner = int(2 * 4 * hidden / 3)
    if (factor := told.figure("ffn_dim_multiplier")) is not None:
        inner = int(factor * inner)
    found: dict[str, Any] = {"family": "llama", "layers": told.whole("n_layers") or 32, "hidden": hidden, "heads": heads,
             "kv_heads": told.whole("n_kv_heads") or heads, "ffn": round_up(inner, told.whole("multiple_of") or 256),
             "vocab": told.whole("vocab_size") or 128256, "norm_eps": told.figure("norm_eps") or 1e-5, "seq": 2048,
             "rope_theta": told.figure("rope_theta") or 10000.0}  # fmt: skip
    scaling = {**LLAMA31, **(told.get("rope_scaling_args") or {})}
    if scaling["scaling_factor"] != 1.0:
        found |= {ours: scaling[theirs] for theirs, ours in zip(LLAMA31, ("rope_factor", "rope_low_freq", "rope_high_freq",
                                                                          "rope_original_seq"))}
    return found


def mixture(told: Told) -> dict[str, Any]:
    """From its Qwen3ModelArgs or DeepSeekV3ModelArgs (models/qwen3, models/deepseek_v3), and MoEArgs (models/moe/moe.py)."""
    latent, routing, normed = told.has("kv_lora_rank"), told.table("moe_args"), told.switch("qk_norm")
    found: dict[str, Any] = {
        "family": "llama" if latent or normed is False else "qwen3", "layers": told.whole("n_layers"),
        "hidden": told.whole("dim"), "heads": told.whole("n_heads"), "vocab": told.whole("vocab_size"), "seq": 2048,
        "norm_eps": told.figure("norm_eps") or (1e-5 if latent else 1e-6),
        "rope_theta": told.figure("rope_theta") or (1e4 if latent else 1e6), "experts": routing.whole("num_experts") or 8,
        "top_k": routing.whole("top_k") or 1, "shared_experts": routing.whole("num_shared_experts", least=0),
        "expert_ffn": told.whole("moe_inter_dim")}  # fmt: skip
    if latent:
        found |= {"ffn": told.whole("inter_dim"), "dense_layers": told.whole("n_dense_layers", least=0) or 0,
                  "head_dim": told.whole("qk_nope_head_dim") or 128,
                  "latent": {"kv_rank": told.whole("kv_lora_rank"), "rope_dim": told.whole("qk_rope_head_dim") or 64,
                             "value_dim": told.whole("v_head_dim") or 128}}  # fmt: skip
        if rank := told.whole("q_lora_rank", least=0):
            found["latent"]["q_rank"] = rank
        if (factor := told.figure("rope_factor") or 40.0) != 1.0:
            scale = told.figure("mscale") or 1.0
            found |= {"rope_scaling": "yarn", "rope_factor": factor,
                      "rope_original_seq": told.whole("original_seq_len") or 4096,
                      "rope_beta_fast": told.figure("beta_fast") or 32.0, "rope_beta_slow": told.figure("beta_slow") or 1.0,
                      "rope_mscale": scale, "rope_mscale_all_dim": scale}
    else:
        found |= {"ffn": told.whole("hidden_dim"), "head_dim": told.whole("head_dim"), "kv_heads": told.whole("n_kv_heads")}
    usual = 0.0 if "load_balance_coeff" in routing.values else 1e-3
    router = {"kind": routing.get("score_func") or "sigmoid", "normalised": routing.on("route_norm"),
              "scale": routing.figure("route_scale") or 1.0, "bias": routing.on("gate_bias"),
              "correction": routing.figure("load_balance_coeff") or usual}
    if groups := routing.whole("num_expert_groups"):
        router |= {"groups": groups, "group_limit": routing.whole("num_limited_groups")}
    return found | {"router": router}


def _arguments(source: str, where: str) -> tuple[str, Mapping[str, Any] | None, int | None]:
    """Which model, the keywords of its first …ModelArgs(…) in a module, and the tokens that torch.randint is told to draw."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise BadInput(f"{where}: not Python: {error}") from None
    kinds = {arguments: kind for kind, (_, arguments, _) in CLASSES.items()}
    which, found, tokens = "", None, None
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in kinds and found is None:
            which, found = kinds[name], {word.arg: _value(word.value) for word in node.keywords if word.arg}
        elif name == "randint" and len(node.args) > 1 and isinstance(size := _value(node.args[1]), int):
            tokens = size
    return which, found, tokens


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        return {word.arg: _value(word.value) for word in node.keywords if word.arg}
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
