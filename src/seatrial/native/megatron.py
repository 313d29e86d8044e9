"""Megatron's arguments as a trial: flags of a script, an arguments file, the block that a log begins with, a YAML file's names.

    of_text("GPT_ARGS=\"--num-layers 24 …\"", where="train.sh")
    of_values({"num_layers": 24, …}, where="nemo.yaml", world=16)           by argparse's names

What is left out is what Megatron takes then (megatron/training/arguments.py, core/transformer/transformer_config.py). Both
dialects of `plan/emit.py` are read: Megatron-LM's, and Megatron-DeepSpeed's with its DeepSpeed file.
"""
from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial import stages
from seatrial.errors import BadInput
from seatrial.native import deepspeed, shell
from seatrial.native.base import Native, beside, data_parallel, enough, shaped
from seatrial.native.told import Told, counted
from seatrial.plan.emit import COMM_TYPES
from seatrial.plan.emit_experts import BALANCES
from seatrial.spec import MODULES, read_modules, round_up, stage_split, usual_modules

BLOCK = re.compile(r"^-+ (?:end of )?arguments -+\s*$", re.M)
_PRINTED = re.compile(r"^\s*(?:\[\w+\]:)?\s*(?P<key>[a-z]\w*) \.{2,} ?(?P<value>.*?)\s*$", re.M)
KINDS = {theirs: ours for ours, theirs in COMM_TYPES.items()}
TOKENS = {theirs: ours for ours, theirs in BALANCES.items()}
SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}

NEUTRAL = re.compile(r"""(?:
    (?:min_|max_|decoupled_|override_)?lr(?:_\w+)?|adam_\w+|sgd_\w+|muon_\w+|\w*weight_decay\w*|clip_grad|optimizer|seed|init_method\w*
    |embedding_init\w*|\w*loss_scale\w*|hysteresis|apply_residual\w*|apply_query_key_layer_scaling|attention_softmax_in_fp32
    |(?:train|valid|test|eval|save|load|log|tensorboard|wandb|tokenizer|data|dataloader|ckpt|dist_ckpt|exit|profile|timing|no_load
      |no_save|rerun|straggler|check|non_persistent|async|auto_detect|inference|retro|vision|biencoder|ict|bert|pretrained
      |consumed|manual_gc|use_checkpoint|use_dist_ckpt|error|result|report|record|one_logger|app_tag|logging|skip|mock|per_split
      |create|cache|num_dataset|reset_position|eod|kitchen|mup|hf)(?:_\w+)?
    |vocab_file|vocab_extra_ids|merge_file|split|finetune|num_workers|mmap\w*|short_seq_prob|mask_prob|sample_rate|iteration
    |distributed_(?:backend|timeout\w*)|local_rank|rank|lazy_mpu_init|use_cpu_initialization|perform_initialization|empty_unused\w*
    |no_\w+|enable_one_logger|enable_ft_package|transformer_impl|use_mcore_models|use_legacy_models|use_flash_attn|masked_softmax\w*
    |bias_\w+_fusion|rope_fusion|gradient_accumulation_fusion|cross_entropy\w*|persist_layer_norm|deterministic_mode|use_te\w*
    |params_dtype|accumulate_allreduce_grads_in_fp32|batch_p2p_\w+|overlap_p2p\w*
    |align_param_gather|align_grad_reduce|ddp_\w+|use_ring_exchange_p2p|variable_seq_lengths|moe_grouped_gemm|moe_permute_fusion
    |moe_router_dtype|moe_shared_expert_overlap|moe_per_layer_logging|moe_pad\w*|moe_token_drop_policy|moe_enable_deepep
    |moe_flex_dispatcher_backend|moe_(deepep|hybridep)_num_sms|moe_router_fusion|group_query_attention|max_position_embeddings
    |use_rotary_position_embeddings|tokens_to_keep|untie_\w+|deepspeed(?:_activation_checkpointing)?|onnx_safe|squad\w*
    |standalone|loss_scale_window|recompute_(?:method|num_layers)|fp8_(?:recipe|amax\w*|interval|margin|wgrad)
    |attention_backend|make_vocab_size_divisible_by|nccl_\w+|high_priority\w*|enable_gloo\w*|start_weight\w*
    |end_weight\w*|DDP_impl|kill_switch_path|sync_tp_duplicated\w*|abort_on_unmet\w*|pipeline_dtype|grad_reduce_in_fp32
    |average_in_collective|rotary_percent|rotary_interleaved|head_lr_mult|mscale\w*
)\Z""", re.X)
"""What changes neither the model's size nor its layout: the optimizer's numbers, data, checkpoints, logs, fusions."""


def of_text(text: str, *, where: str, folder: Path) -> Native:
    if BLOCK.search(text):
        return _of_block(text, where)
    found = shell.flags(text)
    started = shell.launched(found, text)
    world = started.nodes * started.procs_per_node if started.nodes and started.procs_per_node else None
    values: dict[str, Any] = {}
    notes, written = [], {flag.name: flag.written for flag in found}
    for flag in shell.of_program(found):
        value: Any = True if not flag.values else flag.values[0] if len(flag.values) == 1 else list(flag.values)
        if flag.name in values and values[flag.name] != value:
            notes.append(f"{flag.written} stands there twice, with {values[flag.name]} and {value}: the last one holds")
        values[flag.name] = value
    if not values:
        raise BadInput(f"{where}: no flags of Megatron in it")
    read = of_values(values, where=where, world=world, notes=notes, config=_deepspeed(text, values, folder, notes))
    return replace(read, unread=tuple(written.get(name, name) for name in read.unread))


def _of_block(text: str, where: str) -> Native:
    """A log repeats its arguments with each start: the last block holds."""
    begin = [found.end() for found in BLOCK.finditer(text) if "end of" not in found.group()]
    block = text[begin[-1] :] if begin else text
    if (end := re.search(r"^-+ end of arguments -+\s*$", block, re.M)) is not None:
        block = block[: end.start()]
    values = {found["key"]: _literal(found["value"]) for found in _PRINTED.finditer(block)}
    size = re.search(r"padded vocab \(size: (\d{1,12})\).*?\(new size: (\d{1,12})\)", text)
    if values.get("vocab_size") is None and size is not None:
        values |= {"vocab_size": int(size[1]), "padded_vocab_size": int(size[2])}
    world = values.pop("world_size", None)
    started = re.search(r"using world size: (\d{1,12})", text)
    world = world if isinstance(world, int) else int(started[1]) if started else None
    return of_values(values, where=where, world=world, printed=True)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _deepspeed(text: str, values: Mapping[str, Any], folder: Path, notes: list[str]) -> Mapping[str, Any] | None:
    """The DeepSpeed file that the flags name: beside it, or written by the script itself."""
    name = values.get("deepspeed_config")
    if not isinstance(name, str):
        return None
    if (inline := deepspeed.written_in(text)) is not None:
        return inline
    if (path := beside(folder, name)) is not None:
        return deepspeed.config_of(path)
    notes.append(f"{name} is neither beside it nor written by it: ZeRO is what --zero-stage says")
    return None


def of_values(values: Mapping[str, Any], *, where: str, world: int | None = None, notes: list[str] | None = None,
              printed: bool = False, config: Mapping[str, Any] | None = None, format: str = "") -> Native:
    """`printed`: a block that has every argument with its default. `config`: DeepSpeed's."""
    told, notes = Told(values, where), list(notes or [])
    model = _model(told, notes)
    layout = _layout(told, notes, model, world)
    batch = _batch(told, notes, layout)
    theirs = told.has("deepspeed") or told.has("zero_stage")
    if theirs:
        layout |= _by_deepspeed(told, config, layout, batch, where)
    if layers := model.get("layers"):
        layout |= _stages(told, layers, layout)
        model |= _vocabulary(told, notes, model.get("vocab"), layout["tp"])
    else:
        notes.append("no num_layers, so no model: --model says it")
    dropout = [name for name in ("attention_dropout", "hidden_dropout") if told.figure(name) or layers and not told.has(name)]
    if dropout:
        notes.append(f"{' and '.join(dropout)} on, 0.1 where nothing is said: forecasts and trials have none")
    for key in ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
        if not (kept := str(told.get(key) or "fp32")).endswith(("fp32", "float32")):
            notes.append(f"{key} {kept}: forecast with fp32")
    execution = {} if theirs else _execution(told, layout)
    left = [name for name in told.left() if not NEUTRAL.match(name)]
    return Native(
        format=format or ("Megatron-DeepSpeed flags" if theirs else "Megatron-LM flags"),
        tables={"engine": "megatron-deepspeed" if theirs else "megatron-core", "topology": layout, "batch": batch,
                **({"model": model} if layers else {}), **({"execution": execution} if execution else {})},
        unread=tuple(left), notes=tuple(notes), brief=printed)


def _vocabulary(told: Told, notes: list[str], vocab: int | None, tp: int) -> dict[str, Any]:
    """The rows that are stored, where they are not the next multiple of 128 x TP."""
    each, stored = told.whole("make_vocab_size_divisible_by") or 128, told.whole("pad_vocab_size_to", "padded_vocab_size")
    if vocab is None and stored is not None:
        return {"vocab": stored, "pad_vocab_to": stored}
    if vocab is None:
        notes.append("the vocabulary is the tokenizer's and not in it: --set model.vocab=50257 says it")
        return {}
    padded = stored or round_up(vocab, each * tp)
    return {} if padded == round_up(vocab, 128 * tp) else {"pad_vocab_to": padded}


def _model(told: Told, notes: list[str]) -> dict[str, Any]:
    m: dict[str, Any] = {ours: value for ours, value in (
        ("layers", told.whole("num_layers", "encoder_num_layers")), ("hidden", told.whole("hidden_size")),
        ("heads", told.whole("num_attention_heads")), ("seq", told.whole("seq_length", "encoder_seq_length")),
        ("vocab", told.whole("vocab_size"))) if value is not None}  # fmt: skip
    gated, hidden = told.on("swiglu", "gated_linear_unit"), m.get("hidden")
    ffn = told.whole("ffn_hidden_size")
    if hidden and ffn is None:
        ffn = int((4 * hidden * 2 / 3) / 64) * 64 if gated else 4 * hidden
    if ffn is not None:
        m["ffn"] = ffn
    grouped = told.switch("group_query_attention")
    groups = told.whole("num_query_groups")
    if groups is not None and (grouped or grouped is None) and groups != m.get("heads"):
        m["kv_heads"] = groups
    latent, size = _latent(told), told.whole("kv_channels")
    if latent is not None:
        size = told.whole("qk_head_dim") or 128
    if size is not None and hidden and size * m.get("heads", 0) != hidden:
        m["head_dim"] = size
    biased = not (told.on("disable_bias_linear") or told.switch("add_bias_linear") is False)
    positions = told.word("position_embedding_type", {"learned_absolute": "learned", "rope": "rope", "alibi": "alibi",
                                                      "rotary": "rope", "absolute": "learned", "yarn": "rope"}, "learned")
    qk_norm = told.on("qk_layernorm") and latent is None
    m |= shaped(norm=told.word("normalization", {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}, "layernorm"),
                positions="rope" if told.on("use_rotary_position_embeddings") else positions,
                mlp="swiglu" if gated else "gelu", biases="all" if biased else "qkv" if told.on("add_qkv_bias") else "none",
                qk_norm=qk_norm, embedding_norm=told.on("embed_layernorm"),
                tied=not told.on("untie_embeddings_and_output_weights"))
    if (eps := told.figure("norm_epsilon", "layernorm_epsilon")) is not None:
        m["norm_eps"] = eps
    if (base := told.figure("rotary_base")) is not None:
        m["rope_theta"] = base
    if told.on("use_rope_scaling"):
        m["rope_factor"] = told.figure("rope_scaling_factor") or 8.0
    if latent is not None:
        m["latent"] = latent
        if told.word("rope_type", {"yarn": True, "rope": False}, True):
            m |= {"rope_scaling": "yarn", "rope_factor": told.figure("rotary_scaling_factor") or 1.0, "rope_original_seq": 4096,
                  "rope_mscale": told.figure("mscale"), "rope_mscale_all_dim": told.figure("mscale_all_dim")}
    if (further := told.whole("mtp_num_layers")) is not None:
        m["mtp"] = further
        m["mtp_loss"] = told.figure("mtp_loss_scaling_factor") or 0.1
    m |= _experts(told, m.get("layers"), ffn)
    return {name: value for name, value in m.items() if value is not None}


def _latent(told: Told) -> dict[str, Any] | None:
    if not told.on("multi_latent_attention"):
        return None
    said = {"kv_rank": told.whole("kv_lora_rank") or 512, "q_rank": told.whole("q_lora_rank"),
            "rope_dim": told.whole("qk_pos_emb_head_dim") or 64, "value_dim": told.whole("v_head_dim") or 128}
    return {name: value for name, value in said.items() if value is not None}


def _experts(told: Told, layers: int | None, ffn: int | None) -> dict[str, Any]:
    count = told.whole("num_experts", "num_moe_experts")
    if count is None:
        return {}
    inner = told.whole("moe_ffn_hidden_size") or ffn or 1
    found: dict[str, Any] = {"experts": count, "top_k": told.whole("moe_router_topk") or 2, "expert_ffn": inner}
    if shared := told.whole("moe_shared_expert_intermediate_size"):
        if shared % inner:
            raise BadInput(f"{told.where}: moe_shared_expert_intermediate_size {shared} is no multiple of moe_ffn_hidden_size "
                           f"{inner}: shared experts are as wide as the others here")
        found["shared_experts"] = shared // inner
    found |= _which_layers(told, layers)
    softmax = told.word("moe_router_score_function", {"softmax": "softmax", "sigmoid": "sigmoid"}, "softmax") == "softmax"
    balance = str(told.get("moe_router_load_balancing_type") or "aux_loss")
    aux, capacity = told.figure("moe_aux_loss_coeff") or 0.0, told.figure("moe_expert_capacity_factor")
    groups, limit = told.whole("moe_router_num_groups"), told.whole("moe_router_group_topk")
    router: dict[str, Any] = {
        "kind": "softmax" if softmax else "sigmoid",
        "normalised": not (told.on("moe_router_pre_softmax") and softmax),
        "scale": told.figure("moe_router_topk_scaling_factor"), "groups": groups,
        "group_limit": None if limit == groups else limit, "z_loss": told.figure("moe_z_loss_coeff"), "capacity": capacity,
    }  # fmt: skip
    if told.on("moe_router_enable_expert_bias"):
        router["correction"] = told.figure("moe_router_bias_update_rate") or 1e-3
    if aux and balance != "none":
        if balance not in TOKENS:
            raise BadInput(f"{told.where}: moe_router_load_balancing_type {balance}: {', '.join((*TOKENS, 'none'))} are known "
                           f"here")
        router |= {"aux_loss": aux, "over": TOKENS[balance]}
    elif capacity is not None:
        router["over"] = "rank"
    return found | {"router": {name: value for name, value in router.items() if value is not None}}


def _which_layers(told: Told, layers: int | None) -> dict[str, Any]:
    """From `1`, `2` or `[0,1,1]` (also `([0]*1+[1]*3)`): how many layers are dense at first, or how often experts come."""
    said = told.get("moe_layer_freq")
    if said is None:
        return {}
    if (every := counted(said)) is not None:
        return {} if every == 1 else {"expert_every": every}
    places = said if isinstance(said, list) else _pattern(str(said))
    if places is None or layers is not None and len(places) != layers:
        raise BadInput(f"{told.where}: moe_layer_freq {str(said)[:60]!r}: expected a number, or a 0 or 1 for each of {layers} "
                       f"layers")
    first = places.index(1) if 1 in places else len(places)
    if 0 in places[first:]:
        raise BadInput(f"{told.where}: moe_layer_freq {str(said)[:60]!r}: dense layers after layers of experts, of which "
                       "there are no words here")
    return {"dense_layers": first}


def _pattern(text: str) -> list[int] | None:
    """[0]*3+[1]*58, without evaluating it."""
    found: list[int] = []
    for part in re.sub(r"[\s()]", "", text).split("+"):
        run = re.fullmatch(r"\[([01](?:,[01])*)\](?:\*(\d{1,5}))?", part)
        if run is None:
            return None
        found += [int(bit) for bit in run[1].split(",")] * int(run[2] or 1)
    return found


def _layout(told: Told, notes: list[str], model: Mapping[str, Any], world: int | None) -> dict[str, Any]:
    t: dict[str, Any] = {"tp": told.whole("tensor_model_parallel_size") or 1,
                         "pp": told.whole("pipeline_model_parallel_size") or 1,
                         "cp": told.whole("context_parallel_size", "ds_sequence_parallel_size") or 1,
                         "mbs": told.whole("micro_batch_size") or 1}
    if t["cp"] > 1:
        t["cp_kind"] = "ulysses" if told.has("ds_sequence_parallel_size") else _kind(told)
    others = t["tp"] * t["pp"] * t["cp"]
    t |= data_parallel(told.where, world, others, said=told.whole("data_parallel_size"),
                       product=f"TP {t['tp']} x PP {t['pp']} x CP {t['cp']}")
    half = [name for name in ("fp16", "bf16") if told.on(name)]
    if len(half) > 1:
        raise BadInput(f"{told.where}: fp16 and bf16 at once; Megatron takes one")
    t["precision"] = "fp8" if told.get("fp8_format", "fp8") is not None else half[0] if half else "fp32"
    t["sequence_parallel"] = told.on("sequence_parallel")
    if told.on("use_megatron_fsdp", "use_custom_fsdp") or told.has("zero_stage"):
        t["zero"] = told.word("data_parallel_sharding_strategy", SHARDING, 0)
        told.on("use_distributed_optimizer")
    else:
        t["zero"] = int(told.on("use_distributed_optimizer"))
    copies = told.whole("num_distributed_optimizer_instances") or 1
    if copies > 1 and "dp" not in t:
        notes.append(f"num_distributed_optimizer_instances {copies}: how many ranks share one is known with the number of "
                     f"processes")
    elif copies > 1:
        if t["dp"] * t["cp"] % copies:
            raise BadInput(f"{told.where}: num_distributed_optimizer_instances {copies} does not divide DP {t['dp']} x CP "
                           f"{t['cp']}")
        t["zero_group"] = t["dp"] * t["cp"] // copies
    t |= _recompute(told, notes, model)
    if model.get("experts") is not None:
        expert_tp = told.whole("expert_tensor_parallel_size")
        t |= {"ep": told.whole("expert_model_parallel_size") or 1,
              "moe_dispatcher": told.word("moe_token_dispatcher_type",
                                          {name: name for name in ("alltoall", "allgather", "flex")}, "allgather"),
              **({"etp": expert_tp} if expert_tp not in (None, t["tp"]) else {}),
              **({"moe_balance": "forced"} if told.on("moe_router_force_load_balancing") else {})}
    return t


def _kind(told: Told) -> str:
    kind = told.word("cp_comm_type", KINDS, "ring")
    told.get("hierarchical_context_parallel_sizes")
    return str(kind)


def _recompute(told: Told, notes: list[str], model: Mapping[str, Any]) -> dict[str, str]:
    if told.on("checkpoint_activations") or told.get("activations_checkpoint_method") is not None:  # until 2022
        told.neutral(("checkpoint_num_layers", "activations_checkpoint_num_layers"))
        return {"recompute": "full"}
    found = told.word("recompute_granularity", {"full": "full", "selective": "selective"},
                      "selective" if told.on("recompute_activations") else "none")
    modules, whole = told.get("recompute_modules"), told.on("moe_layer_recompute")
    method, each = told.get("recompute_method"), told.whole("recompute_num_layers")
    if found == "full" and (method == "block" or each not in (None, 1)):
        notes.append(f"full recompute by {method or 'uniform'} with {each or 1} layers: taken for every layer by itself")
    if found != "selective" and not whole:
        return {"recompute": str(found)}
    # Megatron's own default, of any model.
    given = modules if isinstance(modules, list) else [modules or "core_attn"]
    asked = read_modules("+".join(map(str, [*given, *(["moe"] if whole else [])])))
    usual = usual_modules(experts=int(model.get("experts") is not None), latent=int("latent" in model))
    own = "+".join(name for name in MODULES if usual.get(name))
    return {"recompute": "selective"} | ({"recompute_modules": asked} if asked != own else {})


def _stages(told: Told, layers: int, t: Mapping[str, Any]) -> dict[str, Any]:
    pp = t["pp"]
    layout = told.get("pipeline_model_parallel_layout")
    each, virtual = told.whole("num_layers_per_virtual_pipeline_stage"), told.whole(
        "num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
    first = told.whole("decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage")
    last = told.whole("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage")
    slots = told.on("account_for_embedding_in_pipeline_split") + told.on("account_for_loss_in_pipeline_split")
    by_type = told.get("pp_partition_method")
    if layout is not None:
        split = stages.listed(str(layout), where=f"{told.where}: pipeline_model_parallel_layout")
        virtual = len(split) // pp
    else:
        if each is not None:
            if layers % (pp * each):
                raise BadInput(f"{told.where}: {layers} layers over PP {pp} in virtual stages of {each}: not a whole number "
                               f"of them")
            if virtual not in (None, layers // (pp * each)):
                raise BadInput(f"{told.where}: virtual stages of {each} layers are {layers // (pp * each)} a rank, and it "
                               f"says {virtual}")
            virtual = layers // (pp * each)
        count = pp * (virtual or 1)
        enough(told.where, layers, count)
        # DeepSpeed deals out as evenly as it goes; Megatron asks for a whole number.
        slots = slots or 2 * ("embedding" in str(by_type))
        split = stage_split(layers, count) if by_type is not None and (layers + slots) % count else _split(
            told.where, layers, count, first, last, slots)
    if sum(split) != layers or len(split) != pp * (virtual or 1):
        raise BadInput(f"{told.where}: stages {stages.said(split)} are {sum(split)} layers in {len(split)} stages; the model "
                       f"has {layers}, PP {pp} x VP {virtual or 1} = {pp * (virtual or 1)}")
    found: dict[str, Any] = {}
    if (virtual or 1) > 1:
        found |= {"vp": virtual, "schedule": "interleaved"}
    return found | ({"stage_layers": list(split)} if split != stage_split(layers, len(split)) else {})


def _split(where: str, layers: int, count: int, first: int | None, last: int | None, slots: int) -> tuple[int, ...]:
    if first is None and last is None:
        if (layers + slots) % count:
            raise BadInput(f"{where}: {layers} layers are not a multiple of {count} pipeline stages, which Megatron asks for")
        each = (layers + slots) // count
        return (each - (slots > 0), *(each,) * (count - 2), each - (slots > 1)) if count > 1 else (layers,)
    free = count - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    if rest < 0 or (free and rest % free) or (not free and rest):
        raise BadInput(f"{where}: {layers} layers less {first or 0} of the first and {last or 0} of the last stage leave "
                       f"{rest} for {free}")
    middle = (rest // free,) * free if free else ()
    return (*([first] if first is not None else []), *middle, *([last] if last is not None else []))


def _batch(told: Told, notes: list[str], t: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (size := told.whole("global_batch_size")) is not None:
        found["gbs"] = size
    elif "dp" in t:
        found["gbs"] = t["mbs"] * t["dp"]
    else:
        notes.append(f"no global_batch_size: Megatron takes micro-batch {t['mbs']} x DP then; --gbs says it here")
    ramp = told.get("rampup_batch_size")
    if ramp is not None:
        sizes = [counted(value) for value in ramp] if isinstance(ramp, list) else []
        if len(sizes) != 3 or None in sizes:
            raise told.wrong("rampup_batch_size", what="start, increment and samples")
        found |= dict(zip(("rampup_start", "rampup_increment", "rampup_samples"), sizes))
    return found


def _execution(told: Told, t: Mapping[str, Any]) -> dict[str, Any]:
    """What it overlaps, where that is not all that the engine has and `emit` writes."""
    words = [ours for ours, key in (("gradients", "overlap_grad_reduce"), ("parameters", "overlap_param_gather"),
                                    ("tensor", "tp_comm_overlap")) if told.on(key)]
    usual = ["gradients", *(["parameters"] if t["zero"] == 1 else [])]
    backend = str(told.get("attention_backend") or ("" if told.on("use_flash_attn") else told.get("transformer_impl")))
    kernel = {"unfused": "stored", "local": "stored"}.get(backend.rpartition(".")[2])
    alone = t.get("dp", 2) * t["cp"] == 1
    return {**({} if words == usual or alone and not words else {"overlap": "+".join(words) or "none"}),
            **({"attention": kernel} if kernel else {})}


def _by_deepspeed(told: Told, config: Mapping[str, Any] | None, t: Mapping[str, Any], batch: dict[str, Any],
                  where: str) -> dict[str, Any]:
    """ZeRO, precision and batch as DeepSpeed's file has them; what both say must be the same."""
    told.neutral(("deepspeed", "deepspeed_config", "no_pipeline_parallel"))
    stage = told.whole("zero_stage", least=0) or 0
    if config is None:
        return {"zero": stage}
    read = deepspeed.of_config(config, where=where, dp=t.get("dp"))
    theirs, sizes = read.tables["topology"], read.tables.get("batch", {})
    for name, ours, other in (("ZeRO", stage, theirs.get("zero", 0)), ("micro-batch", t["mbs"], theirs.get("mbs", t["mbs"])),
                              ("global batch", batch.get("gbs"), sizes.get("gbs", batch.get("gbs")))):
        if ours != other and not (name == "ZeRO" and not told.has("zero_stage")):
            raise BadInput(f"{where}: {name} {ours} in Megatron's flags and {other} in DeepSpeed's file")
    groups = {name: theirs[name] for name in ("zero_group", "weights_group") if name in theirs}
    return {"zero": theirs.get("zero", stage), **groups}
