"""A Hugging Face config.json as a Model, and back.

    model_of(config, where="gpt2/config.json")          a key that may change what is computed is understood or refused
    config_of(model, dtype="float32")                   of the first type there that can say it
    type_of(model)

A configuration has keys that are read here, by model type, keys that change nothing (NEUTRAL), and others: these must have a
value that says "not used", or the file is refused by the key's name and value. So a model with cross attention, experts or
softcapped logits is never taken for a plain one. Of mixtures of experts `mixtures.py` has the words.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from seatrial.errors import BadInput
from seatrial.fields import build, nearest, shown
from seatrial.huggingface import mixtures
from seatrial.huggingface.reading import Config, Reader
from seatrial.spec import FAMILIES, Architecture, Model

CLASSES = {"gpt2": "GPT2LMHeadModel", "bloom": "BloomForCausalLM", "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
           "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", **mixtures.CLASSES}

LAYERNORM_KEYS = {
    "gpt2": ("n_layer", "n_embd", "n_head", "n_positions", "n_ctx", "n_inner", "layer_norm_epsilon", "activation_function",
             "scale_attn_weights", "scale_attn_by_inverse_layer_idx"),
    "bloom": ("n_layer", "num_hidden_layers", "hidden_size", "n_embed", "n_head", "num_attention_heads", "seq_length",
              "n_inner", "layer_norm_epsilon", "apply_residual_connection_post_layernorm"),
}  # fmt: skip
ROTARY_KEYS = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "max_position_embeddings", "rms_norm_eps", "hidden_act", "rope_theta", "rope_scaling", "rope_parameters", "attention_bias",
    "mlp_bias", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types",
)  # fmt: skip
COMMON_KEYS = ("model_type", "vocab_size", "tie_word_embeddings")

NEUTRAL = frozenset("""
    architectures transformers_version torch_dtype dtype auto_map use_cache initializer_range tokenizer_class
    attn_pdrop embd_pdrop resid_pdrop attention_dropout hidden_dropout summary_activation summary_first_dropout
    summary_proj_to_labels summary_type summary_use_proj reorder_and_upcast_attn pretraining_tp slow_but_exact
    skip_bias_add skip_bias_add_qkv offset_alibi masked_softmax_fusion attention_softmax_in_fp32 bias_dropout_fusion
    bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id decoder_start_token_id prefix task_specific_params
    finetuning_task problem_type id2label label2id num_labels return_dict output_attentions output_hidden_states torchscript
    is_decoder use_return_dict max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty
    temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
    bad_words_ids num_return_sequences output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id
    remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens max_new_tokens
    language_model_type n_special predict_special_tokens quantization_config
""".split())
"""Names of classes and versions, dropout, first values, tokens, what text is generated with, and how weights are stored."""

UNUSED_AT_ONE = ("partial_rotary_factor", "rotary_pct", "embedding_multiplier", "residual_multiplier", "logits_scaling",
                 "logit_scale", "scale_emb", "scale_depth", "rope_scaling_factor")
"""Factors: 1 says nothing."""


def _unused(key: str, value: Any, config: Config) -> bool:
    if key in UNUSED_AT_ONE and value == 1:
        return True
    if key == "query_pre_attn_scalar" and value == _head_size(config):
        return True
    return value is None or value is False or value in ("", 0) or value == [] or value == {}


def _refuse_unknown(config: Config, known: tuple[str, ...], where: str) -> None:
    for key, value in config.items():
        if key in known or key in COMMON_KEYS or key in NEUTRAL or key.startswith("_") or _unused(key, value, config):
            continue
        raise BadInput(f"{where}: {key} is {shown(value)}: the engine does not know this key, and it may change what is "
                       "computed; a file without it is taken for a model that does not use it")


def model_of(config: Config, *, where: str, seq: int | None = None) -> Model:
    """Our words for a config.json; `seq`: a training sequence other than the longest that it names."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in CLASSES:
        raise BadInput(f"{where}: model_type {shown(kind)} is not one of {', '.join(CLASSES)}; {nearest(str(kind), CLASSES)}")
    _refuse_unknown(config, LAYERNORM_KEYS.get(kind, ROTARY_KEYS) + mixtures.KEYS.get(kind, ()), where)
    read = Reader(config, where)
    made = (_gpt2 if kind == "gpt2" else _bloom if kind == "bloom" else _rotary)(read)
    if seq is not None and kind == "gpt2" and seq != made["seq"]:
        raise BadInput(f"{where}: its {made['seq']} positions are learned: a sequence of {seq} would be another model")
    made["seq"] = seq or made["seq"]
    if made.pop("unclear", False) and made["sliding_window"] < made["seq"]:
        window = made["sliding_window"]
        raise BadInput(f"{where}: sliding_window is {window} with positions up to {made['seq']}, in layers that there are no "
                       f"words for here: --seq {window} takes the model for sequences of which all layers see the same")
    family = mixtures.FAMILY.get(kind, kind)
    ties = bool(config.get("tie_word_embeddings", FAMILIES[family].tied))
    made |= {"family": family, "vocab": read.number("vocab_size"), "name": str(config.get("_name_or_path") or ""),
             "tied": None if ties == FAMILIES[family].tied else ties}
    try:
        return build(Model, made, where="model")
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def _gpt2(read: Reader) -> dict[str, Any]:
    read.must("activation_function", "gelu_new", "gelu_pytorch_tanh", "gelu_fast")
    read.must("scale_attn_by_inverse_layer_idx", False)
    read.must("scale_attn_weights", True)
    return dict(layers=read.number("n_layer"), hidden=read.number("n_embd"), heads=read.number("n_head"),
                seq=read.number("n_positions", "n_ctx"), ffn=read.config.get("n_inner"),
                norm_eps=read.config.get("layer_norm_epsilon", 1e-5))


def _bloom(read: Reader) -> dict[str, Any]:
    read.must("apply_residual_connection_post_layernorm", False)
    hidden = read.number("hidden_size", "n_embed")
    read.must("n_inner", None, 4 * hidden)
    return dict(layers=read.number("n_layer", "num_hidden_layers"), hidden=hidden,
                heads=read.number("n_head", "num_attention_heads"), seq=read.number("seq_length", default=2048),
                norm_eps=read.config.get("layer_norm_epsilon", 1e-5))


def _head_size(config: Config) -> Any:
    if config.get("head_dim") is not None:
        return config["head_dim"]
    if (usual := {"qwen3": 128, "gpt_oss": 64}.get(config.get("model_type", ""))) and "head_dim" not in config:
        return usual  # what its class fills in
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else None


def _rotary(read: Reader) -> dict[str, Any]:
    """Llama and its kin, with experts or without; what their classes fill in where a key is missing is filled in here."""
    config, kind = read.config, read.config["model_type"]
    read.must("hidden_act", "silu", "swish")
    hidden, heads, layers = (read.number(key) for key in ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    size = read.number("head_dim", default=_head_size(config))
    kv = {"llama": heads, "mistral": 8, **mixtures.KV_HEADS}.get(kind)
    made = dict(layers=layers, hidden=hidden, heads=heads, ffn=read.number("intermediate_size"),
                kv_heads=read.number("num_key_value_heads", default=kv),
                head_dim=None if size * heads == hidden else size, seq=read.number("max_position_embeddings"),
                norm_eps=config.get("rms_norm_eps", mixtures.EPS.get(kind, 1e-6)), biases=_biases(read),
                **_window(read, layers), **_rope(read))
    return made | (mixtures.words_of(read) if kind in mixtures.CLASSES else {})


def _biases(read: Reader) -> str | None:
    kind, of_attention, of_mlp = read.config["model_type"], False, False
    if kind in ("llama", "qwen3", "qwen3_moe", "gpt_oss"):
        of_attention = bool(read.config.get("attention_bias", kind == "gpt_oss"))
    else:
        read.must("attention_bias", kind == "qwen2", None, False)
    if kind == "llama":
        of_mlp = bool(read.config.get("mlp_bias", False))
    elif kind == "gpt_oss":
        of_mlp = True
    else:
        read.must("mlp_bias", False, None)
    return {(True, True): "all", (True, False): "attention", (False, True): "mlp"}.get((of_attention, of_mlp))


def _window(read: Reader, layers: int) -> dict[str, Any]:
    """How far layers look back that do not look back over all, and which; "unclear": no words of ours say which."""
    config, kind = read.config, read.config["model_type"]
    usual = {"mistral": 4096, "gpt_oss": 128}.get(kind)
    window = None if config.get("sliding_window", usual) is None else read.number("sliding_window", default=usual)
    kinds = config.get("layer_types")
    if kinds is not None and not isinstance(kinds, list):
        raise BadInput(f"{read.where}: layer_types is {shown(kinds)}: expected a list")
    if kinds is None:
        layers = min(layers, 10_000)  # a model has no more
        slides = _sliding(read, layers)
    else:
        if strange := sorted(set(map(str, kinds)) - {"full_attention", "sliding_attention"}):
            raise BadInput(f"{read.where}: layer_types has {strange[0]!r}; the engine has full_attention and "
                           "sliding_attention alone")
        slides = [one == "sliding_attention" for one in kinds]
    if window is None or not any(slides):
        return {"sliding_window": None}
    if len(slides) != layers:
        raise BadInput(f"{read.where}: layer_types has {len(slides)} entries for {layers} layers")
    every = None if all(slides) else slides.index(False) + 1
    said = [every is None or (i + 1) % every != 0 for i in range(layers)]
    if said != slides or kind in ("llama", "deepseek_v3"):  # whose classes look back over all whatever is said
        return {"sliding_window": window, "unclear": True}
    return {"sliding_window": window, "full_every": every}


def _sliding(read: Reader, layers: int) -> list[bool]:
    """Which layers have the window where layer_types does not say."""
    kind = read.config["model_type"]
    if kind == "gpt_oss":
        return [i % 2 == 0 for i in range(layers)]
    if kind not in ("qwen2", "qwen3", "qwen3_moe"):
        return [True] * layers
    if not read.config.get("use_sliding_window"):
        return [False] * layers
    first = 0 if kind == "qwen3_moe" else read.count("max_window_layers", default=28)
    return [i >= first for i in range(layers)]


SCALING = {"factor": "rope_factor", "original_max_position_embeddings": "rope_original_seq"}
LLAMA3 = {"low_freq_factor": "rope_low_freq", "high_freq_factor": "rope_high_freq", **SCALING}
YARN = {"beta_fast": "rope_beta_fast", "beta_slow": "rope_beta_slow", "mscale": "rope_mscale",
        "mscale_all_dim": "rope_mscale_all_dim", "truncate": "rope_truncate"}
"""Of what YaRN may leave out."""


def _rope(read: Reader) -> dict[str, Any]:
    config, where = read.config, read.where
    rope = read.table("rope_parameters", "rope_scaling")
    if not rope and config["model_type"] == "gpt_oss":
        rope = dict(mixtures.GPT_OSS_ROPE)
    theta = rope.pop("rope_theta", None) or config.get("rope_theta") or mixtures.THETA.get(config["model_type"], 10_000.0)
    kind = rope.pop("type", None)
    kind = rope.pop("rope_type", None) or kind or "default"
    if kind not in ("default", "llama3", "yarn"):
        raise BadInput(f"{where}: rotary positions of kind {kind!r}; the engine has 'default', 'llama3' and 'yarn' alone")
    made: dict[str, Any] = {"rope_theta": theta}
    for key, ours in {"llama3": LLAMA3, "yarn": SCALING}.get(kind, {}).items():
        if not isinstance(rope.get(key), int | float):
            raise BadInput(f"{where}: rope_scaling of kind {kind!r} must give {key}, found {rope.get(key)!r}")
        made[ours] = rope.pop(key)
    if kind == "yarn":
        made["rope_scaling"] = "yarn"
        made |= {ours: value for key, ours in YARN.items() if (value := rope.pop(key, None)) or value is False}
    for key, value in rope.items():
        if not _unused(key, value, config):
            raise BadInput(f"{where}: rotary positions of kind {kind!r} with {key} {shown(value)}, which the engine "
                           "does not know")
    return made


def _rope_keys(m: Model) -> dict[str, Any] | None:
    if m.rope_factor is None:
        return None
    if not m.yarn:
        return {"rope_type": "llama3", **{key: getattr(m, ours) for key, ours in LLAMA3.items()}}
    said = {key: getattr(m, ours) for key, ours in {**SCALING, **YARN}.items()}
    return {"rope_type": "yarn", **{key: value for key, value in said.items() if value is not None}}


# and back


BIASES = {"llama": ("none", "attention", "mlp", "all"), "mistral": ("none",), "qwen2": ("qkv",), "qwen3": ("none", "attention"),
          "mixtral": ("none",), "qwen3_moe": ("none", "attention"), "deepseek_v3": ("none",), "gpt_oss": ("all", "mlp")}


def _usual(kind: str) -> Architecture:
    found = FAMILIES[mixtures.FAMILY.get(kind, kind)]
    return replace(found, mlp="swiglu-clamped") if kind == "gpt_oss" else found


def why_not(model: Model, kind: str) -> str | None:
    """What a type there cannot say of this model."""
    m, a = model, model.architecture
    rotary, usual = kind not in LAYERNORM_KEYS, _usual(kind)
    for name in ("norm", "positions", "mlp", "qk_norm", "embedding_norm"):
        if getattr(a, name) != getattr(usual, name):
            return f"{name} {getattr(a, name)}"
    if a.biases not in BIASES.get(kind, ("all",)):
        return f"biases {a.biases}"
    if m.mtp:
        return f"mtp {m.mtp}"
    if m.sliding_window is not None and kind in ("gpt2", "bloom", "llama", "deepseek_v3"):
        return f"sliding_window {m.sliding_window}"
    if m.full_every is not None and kind not in ("qwen2", "qwen3", "gpt_oss"):
        return f"full_every {m.full_every}"
    if kind in mixtures.CLASSES:
        return mixtures.why_not(model, kind)
    if m.mixture or m.is_latent or m.has_sinks:
        return "experts" if m.mixture else "latent attention" if m.is_latent else "sinks"
    if not rotary and m.kv != m.heads:
        return f"kv_heads {m.kv}"
    if not rotary and m.heads * m.head_size != m.hidden:
        return f"head_dim {m.head_size}"
    if kind == "bloom" and m.inner != 4 * m.hidden:
        return f"ffn {m.inner}, where it knows 4 x hidden = {4 * m.hidden} alone"
    return None


def type_of(model: Model) -> str:
    """The model type there that can say it: the family's own where it can."""
    for kind in (model.family, *CLASSES):
        if why_not(model, kind) is None:
            return kind
    nearest_kinds = [kind for kind in mixtures.CLASSES if model.mixture] or [model.family]
    raise BadInput("model: no model type of Hugging Face's that is known here can say it; "
                   + ", ".join(f"{kind} has no {why_not(model, kind)}" for kind in nearest_kinds))


def config_of(model: Model, *, dtype: str) -> dict[str, Any]:
    m, kind = model, type_of(model)
    common = {"model_type": kind, "architectures": [CLASSES[kind]], "vocab_size": m.vocab, "tie_word_embeddings": m.ties,
              "torch_dtype": dtype}
    if kind == "gpt2":
        return {**common, "n_layer": m.layers, "n_embd": m.hidden, "n_head": m.heads, "n_positions": m.seq, "n_ctx": m.seq,
                "n_inner": m.inner, "layer_norm_epsilon": m.norm_eps, "activation_function": "gelu_new", "attn_pdrop": 0.0,
                "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    if kind == "bloom":
        return {**common, "n_layer": m.layers, "hidden_size": m.hidden, "n_head": m.heads, "seq_length": m.seq,
                "layer_norm_epsilon": m.norm_eps, "attention_dropout": 0.0, "hidden_dropout": 0.0,
                "apply_residual_connection_post_layernorm": False}
    scaling = _rope_keys(m)
    rope = {"rope_type": "default", **(scaling or {}), "rope_theta": m.rope_theta}
    made = {**common, "num_hidden_layers": m.layers, "hidden_size": m.hidden, "num_attention_heads": m.heads,
            "num_key_value_heads": m.kv, "head_dim": m.head_size, "intermediate_size": m.inner, "hidden_act": "silu",
            "max_position_embeddings": m.seq, "rms_norm_eps": m.norm_eps, "rope_theta": m.rope_theta, "rope_scaling": scaling,
            "rope_parameters": rope, "attention_dropout": 0.0}
    if kind in ("llama", "qwen3", "qwen3_moe", "gpt_oss"):
        made["attention_bias"] = m.qkv_bias
    if kind == "llama":
        made["mlp_bias"] = m.mlp_bias
    if kind in ("mistral", "mixtral") or m.sliding_window is not None:
        made["sliding_window"] = m.sliding_window
    if kind in ("qwen2", "qwen3", "qwen3_moe"):
        made |= {"use_sliding_window": m.sliding_window is not None, "max_window_layers": 0}
    if kind == "gpt_oss" or m.full_every is not None:
        every, slides = m.full_every, m.sliding_window is not None
        made["layer_types"] = ["sliding_attention" if slides and (every is None or (i + 1) % every) else "full_attention"
                               for i in range(m.layers)]
    return made | (mixtures.keys_of(m, kind) if kind in mixtures.CLASSES else {})
