"""Models in Hugging Face's words: which tensors a model type has, what each is called there and how it is laid out.

    entries(model)                                      every tensor of theirs, in the order of the model
    entry.ours(tensor, model), entry.made_of(tensors, model)

Ours keeps q, k and v apart, and the matrices that lead back into the residual stream as [in, out]. GPT-2's Conv1D keeps all of
them as [in, out]; BLOOM mixes q, k and v head by head; Llama, Mistral and Qwen are plain [out, in] under the same names, and a
bias or a norm is there where the model has one. Configurations are read and written by `hfconfig.py`.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from seatrial.arith import layer
from seatrial.huggingface.hfconfig import type_of
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


def _transposed(theirs: str, ours: str) -> Entry:
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
                  *_both(f"{at}.ln_2", f"{our}.norm2"), _transposed(f"{at}.mlp.c_fc.weight", f"{our}.mlp.up.weight"),
                  _same(f"{at}.mlp.c_fc.bias", f"{our}.mlp.up.bias"), *_both(f"{at}.mlp.c_proj", f"{our}.mlp.down")]
    return [*found, *_both("transformer.ln_f", "final_norm")]


def _bloom(model: Model) -> list[Entry]:
    found = [_same("transformer.word_embeddings.weight", "embed.tokens.weight"),
             *_both("transformer.word_embeddings_layernorm", "embed.norm")]
    for i in range(model.layers):
        at, our = f"transformer.h.{i}", f"layers.{i}"
        found += [*_both(f"{at}.input_layernorm", f"{our}.norm1"),
                  *(_by_head(f"{at}.self_attention.query_key_value.{k}", i, k) for k in ("weight", "bias")),
                  _transposed(f"{at}.self_attention.dense.weight", f"{our}.attn.out.weight"),
                  _same(f"{at}.self_attention.dense.bias", f"{our}.attn.out.bias"),
                  *_both(f"{at}.post_attention_layernorm", f"{our}.norm2"), *_both(f"{at}.mlp.dense_h_to_4h", f"{our}.mlp.up"),
                  _transposed(f"{at}.mlp.dense_4h_to_h.weight", f"{our}.mlp.down.weight"),
                  _same(f"{at}.mlp.dense_4h_to_h.bias", f"{our}.mlp.down.bias")]
    return [*found, *_both("transformer.ln_f", "final_norm")]


def _llama(model: Model) -> list[Entry]:
    found = [_same("model.embed_tokens.weight", "embed.tokens.weight")]
    for i in range(model.layers):
        at, our = f"model.layers.{i}", f"layers.{i}"
        attn, mlp = f"{at}.self_attn", f"{at}.mlp"
        found += [_same(f"{at}.input_layernorm.weight", f"{our}.norm1.weight"),
                  *(_same(f"{attn}.{p}_proj.weight", f"{our}.attn.{p}.weight") for p in "qkv"),
                  _transposed(f"{attn}.o_proj.weight", f"{our}.attn.out.weight"),
                  _same(f"{at}.post_attention_layernorm.weight", f"{our}.norm2.weight"),
                  *(_same(f"{mlp}.{p}_proj.weight", f"{our}.mlp.{p}.weight") for p in ("gate", "up")),
                  _transposed(f"{mlp}.down_proj.weight", f"{our}.mlp.down.weight")]
        if model.qkv_bias:
            found += [_same(f"{attn}.{p}_proj.bias", f"{our}.attn.{p}.bias") for p in "qkv"]
        if model.out_bias:
            found.append(_same(f"{attn}.o_proj.bias", f"{our}.attn.out.bias"))
        if model.mlp_bias:
            found += [_same(f"{mlp}.{p}_proj.bias", f"{our}.mlp.{p}.bias") for p in ("gate", "up", "down")]
        if model.normed_qk:
            found += [_same(f"{attn}.{p}_norm.weight", f"{our}.attn.{p}_norm.weight") for p in "qk"]
    return [*found, _same("model.norm.weight", "final_norm.weight")]


_TABLES = {"gpt2": _gpt2, "bloom": _bloom, "llama": _llama, "mistral": _llama, "qwen2": _llama, "qwen3": _llama}


def entries(model: Model) -> list[Entry]:
    """Every tensor of theirs, in the order of the model."""
    return _TABLES[type_of(model)](model) + ([] if model.ties else [_same("lm_head.weight", "head.weight")])


def harmless(name: str, model: Model) -> bool:
    """Whether a tensor of theirs says nothing: a mask or RoPE's frequencies, which are computed, or the head's copy of a tied
    embedding."""
    if name == "lm_head.weight":
        return model.ties
    return name.endswith((".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", ".position_ids"))


@functools.lru_cache(maxsize=4)
def _layer_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for linear in layer.linears(model):
        for part in linear.parts:
            found[f"{part.name}.weight"] = part.rows, model.hidden
            found[f"{part.name}.bias"] = (part.rows if linear.column else model.hidden,)
    return found | {f"attn.{p}_norm.{kind}": (model.head_size,) for p in "qk" for kind in ("weight", "bias")}


def shape_of(name: str, model: Model) -> tuple[int, ...]:
    """Of our whole tensor, without padding."""
    if name in ("embed.tokens.weight", "head.weight"):
        return model.vocab, model.hidden
    if name == "embed.positions.weight":
        return model.seq, model.hidden
    inside = name.split(".", 2)[-1] if name.startswith("layers.") else name
    return _layer_shapes(model).get(inside, (model.hidden,))


def their_shape(entry: Entry, model: Model) -> tuple[int, ...]:
    empty = {n: torch.empty(shape_of(n, model), device="meta") for n in entry.names}
    return tuple(entry.made_of(empty, model).shape)
