"""The three families in Hugging Face's words: configuration, tensor names, and how each tensor is laid out there.

Ours keeps q, k and v apart, and the matrices that lead back into the residual stream as [in, out]. GPT-2's Conv1D keeps all of
them as [in, out]; BLOOM mixes q, k and v head by head; Llama is plain [out, in].
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seatrial.errors import BadInput
from seatrial.fields import nearest
from seatrial.spec import Model


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One tensor of theirs and those of ours that it is made of."""

    theirs: str
    names: tuple[str, ...]
    split: Callable[[Tensor, Model], tuple[Tensor, ...]]
    join: Callable[[tuple[Tensor, ...], Model], Tensor]

    def ours(self, tensor: Tensor, model: Model) -> dict[str, Tensor]:
        return dict(zip(self.names, self.split(tensor, model), strict=True))

    def made_of(self, tensors: Mapping[str, Tensor], model: Model) -> Tensor:
        return self.join(tuple(tensors[n] for n in self.names), model)


def _same(theirs: str, ours: str) -> Entry:
    return Entry(theirs=theirs, names=(ours,), split=lambda t, _: (t,), join=lambda ts, _: ts[0])


def _turned(theirs: str, ours: str) -> Entry:
    return Entry(theirs=theirs, names=(ours,), split=lambda t, _: (t.t().contiguous(),),
                 join=lambda ts, _: ts[0].t().contiguous())


def _qkv(layer: int, kind: str) -> tuple[str, ...]:
    return tuple(f"layers.{layer}.attn.{part}.{kind}" for part in "qkv")


def _columns(theirs: str, layer: int) -> Entry:
    """GPT-2's [in, q k v]."""
    return Entry(theirs=theirs, names=_qkv(layer, "weight"),
                 split=lambda t, _: tuple(p.t().contiguous() for p in t.chunk(3, 1)),
                 join=lambda ts, _: torch.cat([t.t() for t in ts], 1))


def _stacked(theirs: str, layer: int) -> Entry:
    """GPT-2's bias: q, k, v."""
    return Entry(theirs=theirs, names=_qkv(layer, "bias"), split=lambda t, _: t.chunk(3, 0), join=lambda ts, _: torch.cat(ts))


def _by_head(theirs: str, layer: int, kind: str) -> Entry:
    """BLOOM's rows: head by head, and in each head q, k, v."""

    def split(tensor: Tensor, model: Model) -> tuple[Tensor, ...]:
        heads = tensor.view(model.heads, 3, model.head_size, *tensor.shape[1:])
        return tuple(heads[:, i].reshape(model.hidden, *tensor.shape[1:]) for i in range(3))

    def join(tensors: tuple[Tensor, ...], model: Model) -> Tensor:
        parts = [t.view(model.heads, 1, model.head_size, *t.shape[1:]) for t in tensors]
        return torch.cat(parts, 1).reshape(3 * model.hidden, *tensors[0].shape[1:])

    return Entry(theirs=theirs, names=_qkv(layer, kind), split=split, join=join)


def _both(theirs: str, ours: str) -> list[Entry]:
    return [_same(f"{theirs}.{kind}", f"{ours}.{kind}") for kind in ("weight", "bias")]


def _gpt2(model: Model) -> list[Entry]:
    found = [_same("transformer.wte.weight", "embed.tokens.weight"), _same("transformer.wpe.weight", "embed.positions.weight")]
    for i in range(model.layers):
        at, our = f"transformer.h.{i}", f"layers.{i}"
        found += [*_both(f"{at}.ln_1", f"{our}.norm1"), _columns(f"{at}.attn.c_attn.weight", i),
                  _stacked(f"{at}.attn.c_attn.bias", i), *_both(f"{at}.attn.c_proj", f"{our}.attn.out"),
                  *_both(f"{at}.ln_2", f"{our}.norm2"), _turned(f"{at}.mlp.c_fc.weight", f"{our}.mlp.up.weight"),
                  _same(f"{at}.mlp.c_fc.bias", f"{our}.mlp.up.bias"), *_both(f"{at}.mlp.c_proj", f"{our}.mlp.down")]
    return [*found, *_both("transformer.ln_f", "final_norm")]


def _bloom(model: Model) -> list[Entry]:
    found = [_same("transformer.word_embeddings.weight", "embed.tokens.weight"),
             *_both("transformer.word_embeddings_layernorm", "embed.norm")]
    for i in range(model.layers):
        at, our = f"transformer.h.{i}", f"layers.{i}"
        found += [*_both(f"{at}.input_layernorm", f"{our}.norm1"),
                  *(_by_head(f"{at}.self_attention.query_key_value.{k}", i, k) for k in ("weight", "bias")),
                  _turned(f"{at}.self_attention.dense.weight", f"{our}.attn.out.weight"),
                  _same(f"{at}.self_attention.dense.bias", f"{our}.attn.out.bias"),
                  *_both(f"{at}.post_attention_layernorm", f"{our}.norm2"), *_both(f"{at}.mlp.dense_h_to_4h", f"{our}.mlp.up"),
                  _turned(f"{at}.mlp.dense_4h_to_h.weight", f"{our}.mlp.down.weight"),
                  _same(f"{at}.mlp.dense_4h_to_h.bias", f"{our}.mlp.down.bias")]
    return [*found, *_both("transformer.ln_f", "final_norm")]


def _llama(model: Model) -> list[Entry]:
    found = [_same("model.embed_tokens.weight", "embed.tokens.weight")]
    for i in range(model.layers):
        at, our = f"model.layers.{i}", f"layers.{i}"
        found += [_same(f"{at}.input_layernorm.weight", f"{our}.norm1.weight"),
                  *(_same(f"{at}.self_attn.{p}_proj.weight", f"{our}.attn.{p}.weight") for p in "qkv"),
                  _turned(f"{at}.self_attn.o_proj.weight", f"{our}.attn.out.weight"),
                  _same(f"{at}.post_attention_layernorm.weight", f"{our}.norm2.weight"),
                  *(_same(f"{at}.mlp.{p}_proj.weight", f"{our}.mlp.{p}.weight") for p in ("gate", "up")),
                  _turned(f"{at}.mlp.down_proj.weight", f"{our}.mlp.down.weight")]
    return [*found, _same("model.norm.weight", "final_norm.weight")]


_TABLES = {"gpt2": _gpt2, "bloom": _bloom, "llama": _llama}


def entries(model: Model) -> list[Entry]:
    """Every tensor of theirs, in the order of the model."""
    return _TABLES[model.family](model) + ([] if model.ties else [_same("lm_head.weight", "head.weight")])


def shape_of(name: str, model: Model) -> tuple[int, ...]:
    """Of our whole tensor, without padding."""
    m, part, kind = model, name.split(".")[-2], name.split(".")[-1]
    if name.startswith("embed.tokens") or name == "head.weight":
        return m.vocab, m.hidden
    if name.startswith("embed.positions"):
        return m.seq, m.hidden
    rows = {"q": m.hidden, "k": m.kv * m.head_size, "v": m.kv * m.head_size, "out": m.hidden, "up": m.inner, "gate": m.inner,
            "down": m.inner}
    if part not in rows:
        return (m.hidden,)
    return (rows[part], m.hidden) if kind == "weight" else (m.hidden if part in ("out", "down") else rows[part],)


def their_shape(entry: Entry, model: Model) -> tuple[int, ...]:
    empty = {n: torch.empty(shape_of(n, model), device="meta") for n in entry.names}
    return tuple(entry.made_of(empty, model).shape)


def model_of(config: Mapping[str, Any], *, where: str) -> Model:
    """Our words for a config.json; what the engine does not do is refused by name."""
    family = config.get("model_type")
    if family not in _TABLES:
        raise BadInput(f"{where}: model_type {family!r} is not one of gpt2, bloom, llama; {nearest(str(family), _TABLES)}")

    def must(key: str, *allowed: object) -> None:
        if config.get(key, allowed[0]) not in allowed:
            raise BadInput(f"{where}: {key} is {config[key]!r}; the engine has {' or '.join(map(repr, allowed))} alone")

    def number(*keys: str) -> int:
        for key in keys:
            if isinstance(config.get(key), int):
                return config[key]
        raise BadInput(f"{where}: {keys[0]} must be given")

    name = str(config.get("_name_or_path") or "")
    if family == "gpt2":
        must("activation_function", "gelu_new", "gelu_pytorch_tanh", "gelu_fast")
        must("scale_attn_by_inverse_layer_idx", False)
        must("scale_attn_weights", True)
        must("tie_word_embeddings", True)
        return Model(family="gpt2", layers=number("n_layer"), hidden=number("n_embd"), heads=number("n_head"),
                     vocab=number("vocab_size"), seq=number("n_positions", "n_ctx"), ffn=config.get("n_inner"),
                     norm_eps=config.get("layer_norm_epsilon", 1e-5), name=name)
    if family == "bloom":
        must("apply_residual_connection_post_layernorm", False)
        must("tie_word_embeddings", True)
        return Model(family="bloom", layers=number("n_layer", "num_hidden_layers"), hidden=number("hidden_size", "n_embed"),
                     heads=number("n_head", "num_attention_heads"), vocab=number("vocab_size"),
                     seq=config.get("seq_length", 2048), norm_eps=config.get("layer_norm_epsilon", 1e-5), name=name)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise BadInput(f"{where}: rotary positions of kind {kind!r}; the engine has 'default' alone")
    must("hidden_act", "silu", "swish")
    must("attention_bias", False)
    must("mlp_bias", False)
    model = Model(family="llama", layers=number("num_hidden_layers"), hidden=number("hidden_size"),
                  heads=number("num_attention_heads"), kv_heads=config.get("num_key_value_heads"),
                  ffn=number("intermediate_size"), vocab=number("vocab_size"), seq=number("max_position_embeddings"),
                  norm_eps=config.get("rms_norm_eps", 1e-6),
                  rope_theta=float(config.get("rope_theta") or rope.get("rope_theta", 10_000.0)),
                  tied=bool(config.get("tie_word_embeddings", False)), name=name)
    must("head_dim", model.head_size, None)
    return model


def config_of(model: Model, *, dtype: str) -> dict[str, Any]:
    m = model
    common = {"model_type": m.family, "vocab_size": m.vocab, "tie_word_embeddings": m.ties, "torch_dtype": dtype}
    if m.family == "gpt2":
        return {**common, "architectures": ["GPT2LMHeadModel"], "n_layer": m.layers, "n_embd": m.hidden, "n_head": m.heads,
                "n_positions": m.seq, "n_ctx": m.seq, "n_inner": m.inner, "layer_norm_epsilon": m.norm_eps,
                "activation_function": "gelu_new", "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    if m.family == "bloom":
        if m.inner != 4 * m.hidden:
            raise BadInput(f"model: ffn {m.inner}: BLOOM's configuration knows 4 x hidden = {4 * m.hidden} alone")
        return {**common, "architectures": ["BloomForCausalLM"], "n_layer": m.layers, "hidden_size": m.hidden,
                "n_head": m.heads, "seq_length": m.seq, "layer_norm_epsilon": m.norm_eps,
                "attention_dropout": 0.0, "hidden_dropout": 0.0,
                "apply_residual_connection_post_layernorm": False}
    return {**common, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": m.layers, "hidden_size": m.hidden,
            "num_attention_heads": m.heads, "num_key_value_heads": m.kv, "intermediate_size": m.inner, "hidden_act": "silu",
            "max_position_embeddings": m.seq, "rms_norm_eps": m.norm_eps, "rope_theta": m.rope_theta, "rope_scaling": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": m.rope_theta}, "attention_bias": False, "mlp_bias": False,
            "head_dim": m.head_size}
