"""Models in Hugging Face's words: which tensors a model type has, what each is called there and how it is laid out.

    tensor_names(model)                 of the files, in the order of the model: an expert's matrices by themselves
    tensor_names(model, fused=True)     of the modules of transformers, which have all experts of a layer in one
    entry.ours(theirs, model)           what one of theirs is in ours, by name
    entry.made_of(ours, model)          and back
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seatrial.arith import layer
from seatrial.huggingface.hfconfig import type_of
from seatrial.spec import Model

HEAD = "lm_head.weight"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One tensor of theirs and those of ours that it is made of."""

    theirs: str
    names: tuple[str, ...]
    expert: int | None = None
    """Where ours are all experts' of a layer: the one whose rows these are."""
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
    return _rotary(model, lambda i: _mlp(f"model.layers.{i}.mlp", f"layers.{i}.mlp", model))


def _rotary(model: Model, behind: Callable[[int], list[Entry]]) -> list[Entry]:
    """Llama and its kin; `behind`: the tensors of a layer that follow its attention and norms."""
    found = [_same("model.embed_tokens.weight", "embed.tokens.weight")]
    for i in range(model.layers):
        at, our = f"model.layers.{i}", f"layers.{i}"
        found += [_same(f"{at}.input_layernorm.weight", f"{our}.norm1.weight"),
                  *(_latent if model.is_latent else _attention)(f"{at}.self_attn", f"{our}.attn", model),
                  _same(f"{at}.post_attention_layernorm.weight", f"{our}.norm2.weight"), *behind(i)]
    return [*found, _same("model.norm.weight", "final_norm.weight")]


def _attention(at: str, our: str, model: Model) -> list[Entry]:
    found = [*(_same(f"{at}.{p}_proj.weight", f"{our}.{p}.weight") for p in "qkv"),
             _transposed(f"{at}.o_proj.weight", f"{our}.out.weight")]
    if model.qkv_bias:
        found += [_same(f"{at}.{p}_proj.bias", f"{our}.{p}.bias") for p in "qkv"]
    if model.out_bias:
        found.append(_same(f"{at}.o_proj.bias", f"{our}.out.bias"))
    if model.normed_qk:
        found += [_same(f"{at}.{p}_norm.weight", f"{our}.{p}_norm.weight") for p in "qk"]
    if model.has_sinks:
        found.append(_same(f"{at}.sinks", f"{our}.sinks"))
    return found


def _mlp(at: str, our: str, model: Model) -> list[Entry]:
    found = [*(_same(f"{at}.{p}_proj.weight", f"{our}.{p}.weight") for p in ("gate", "up")),
             _transposed(f"{at}.down_proj.weight", f"{our}.down.weight")]
    if model.mlp_bias:
        found += [_same(f"{at}.{p}_proj.bias", f"{our}.{p}.bias") for p in ("gate", "up", "down")]
    return found


# Latent attention. Theirs turns neighbours of a head's rotary part, 0 with 1 and 2 with 3; ours halves, 0 with n/2.


def _turned(rows: Tensor, *, back: bool = False) -> Tensor:
    """Rotary rows [..., rows, columns] in our order, or back in theirs."""
    pairs = rows.unflatten(-2, (2, -1) if back else (-1, 2))
    return pairs.transpose(-3, -2).flatten(-3, -2)


def _latent(at: str, our: str, model: Model) -> list[Entry]:
    queries = "q_b_proj" if model.q_rank else "q_proj"
    found = [_queries(f"{at}.{queries}.weight", f"{our}.q_up.weight"),
             _compressed(f"{at}.kv_a_proj_with_mqa.weight", f"{our}.kv_down.weight"),
             _same(f"{at}.kv_a_layernorm.weight", f"{our}.kv_down_norm.weight"),
             _flat(f"{at}.kv_b_proj.weight", f"{our}.kv_up.weight"),
             _transposed(f"{at}.o_proj.weight", f"{our}.out.weight")]
    if model.q_rank:
        found += [_same(f"{at}.q_a_proj.weight", f"{our}.q_down.weight"),
                  _same(f"{at}.q_a_layernorm.weight", f"{our}.q_down_norm.weight")]
    return found


def _queries(theirs: str, ours: str) -> Entry:
    """Head by head, and in each head the part without positions before the rotary one."""

    def turned(tensor: Tensor, model: Model, back: bool) -> Tensor:
        heads = tensor.view(model.heads, model.head_size + model.rope_dim, -1)
        plain, rotary = heads.split([model.head_size, model.rope_dim], 1)
        return torch.cat([plain, _turned(rotary, back=back)], 1)

    return Entry(theirs=theirs, names=(ours,), split=lambda t, m: (turned(t, m, False).reshape(shape_of(ours, m)),),
                 join=lambda ts, m: turned(ts[0], m, True).flatten(0, 1))


def _compressed(theirs: str, ours: str) -> Entry:
    """The compressed keys and values before the rotary key of all heads."""

    def turned(tensor: Tensor, model: Model, back: bool) -> Tensor:
        plain, rotary = tensor.split([model.kv_rank, model.rope_dim])
        return torch.cat([plain, _turned(rotary, back=back)])

    return Entry(theirs=theirs, names=(ours,), split=lambda t, m: (turned(t, m, False),),
                 join=lambda ts, m: turned(ts[0], m, True))


def _flat(theirs: str, ours: str) -> Entry:
    """A matrix whose rows are not `hidden` wide: ours is one row of numbers."""
    return Entry(theirs=theirs, names=(ours,), split=lambda t, _: (t.flatten(),), join=lambda ts, m: ts[0].view(-1, m.kv_rank))


# Experts. Ours lie one under the other, gates, ups and downs apart.


def _routed(model: Model, i: int, router: str, each: str, fused: bool, names: tuple[str, str, str]) -> list[Entry]:
    """Router and experts of a layer; `each`: where an expert's matrices lie in files, under `names` of gate, up and down."""
    at, our = f"model.layers.{i}.mlp", f"layers.{i}.experts"
    if fused:
        return [_same(f"{at}.gate.weight", f"layers.{i}.router.weight"), _fused(f"{at}.experts.gate_up_proj", our),
                _fused_down(f"{at}.experts.down_proj", our)]
    found = [_same(f"{router}.weight", f"layers.{i}.router.weight")]
    for e in range(model.experts or 0):
        gate, up, down = (f"{each}.{e}.{name}.weight" for name in names)
        found += [replace(_same(gate, f"{our}.gate.weight"), expert=e), replace(_same(up, f"{our}.up.weight"), expert=e),
                  replace(_transposed(down, f"{our}.down.weight"), expert=e)]
    return found


def _fused(theirs: str, our: str) -> Entry:
    """[experts, gate rows then up rows, hidden]."""
    return Entry(theirs=theirs, names=(f"{our}.gate.weight", f"{our}.up.weight"),
                 split=lambda t, _: tuple(part.flatten(0, 1) for part in t.chunk(2, 1)),
                 join=lambda ts, m: torch.cat([t.unflatten(0, (m.experts, -1)) for t in ts], 1))


def _fused_down(theirs: str, our: str) -> Entry:
    """[experts, hidden, in]."""
    return Entry(theirs=theirs, names=(f"{our}.down.weight",), split=lambda t, _: (t.transpose(1, 2).flatten(0, 1),),
                 join=lambda ts, m: ts[0].unflatten(0, (m.experts, -1)).transpose(1, 2))


def _mixtral(model: Model, fused: bool = False) -> list[Entry]:
    def behind(i: int) -> list[Entry]:
        at = f"model.layers.{i}.block_sparse_moe"
        return _routed(model, i, f"{at}.gate", f"{at}.experts", fused, ("w1", "w3", "w2"))

    return _rotary(model, behind)


def _with_dense_layers(model: Model, fused: bool = False) -> list[Entry]:
    """Qwen3-MoE and DeepSeek-V3."""

    def behind(i: int) -> list[Entry]:
        at = f"model.layers.{i}.mlp"
        if not model.has_experts(i):
            return _mlp(at, f"layers.{i}.mlp", model)
        found = _routed(model, i, f"{at}.gate", f"{at}.experts", fused, ("gate_proj", "up_proj", "down_proj"))
        if model.router.corrected:
            found.append(_same(f"{at}.gate.e_score_correction_bias", f"layers.{i}.router.correction"))
        return found + (_mlp(f"{at}.shared_experts", f"layers.{i}.shared", model) if model.shared else [])

    return _rotary(model, behind)


def _gpt_oss(model: Model) -> list[Entry]:
    def behind(i: int) -> list[Entry]:
        at, our = f"model.layers.{i}.mlp", f"layers.{i}"
        return [*_both(f"{at}.router", f"{our}.router"), *_alternating(f"{at}.experts.gate_up_proj", f"{our}.experts"),
                Entry(theirs=f"{at}.experts.down_proj", names=(f"{our}.experts.down.weight",),
                      split=lambda t, _: (t.flatten(0, 1),), join=lambda ts, m: ts[0].unflatten(0, (m.experts, -1))),
                _same(f"{at}.experts.down_proj_bias", f"{our}.experts.down.bias")]

    return _rotary(model, behind)


def _alternating(theirs: str, our: str) -> list[Entry]:
    """gpt-oss's [experts, hidden, gate up gate up …], and the same of biases."""

    def join(tensors: tuple[Tensor, ...], model: Model) -> Tensor:
        found = torch.stack([t.unflatten(0, (model.experts, -1)) for t in tensors], 2).flatten(1, 2)
        return found.transpose(1, 2) if found.dim() == 3 else found

    def split(tensor: Tensor, _: Model) -> tuple[Tensor, ...]:
        rows = tensor.transpose(1, 2) if tensor.dim() == 3 else tensor
        return tuple(rows[:, i::2].flatten(0, 1) for i in range(2))

    return [Entry(theirs=theirs + ending, names=(f"{our}.gate.{kind}", f"{our}.up.{kind}"), split=split, join=join)
            for kind, ending in (("weight", ""), ("bias", "_bias"))]


_TABLES: dict[str, Callable[[Model], list[Entry]]] = {
    "gpt2": _gpt2, "bloom": _bloom, "llama": _llama, "mistral": _llama, "qwen2": _llama, "qwen3": _llama, "mixtral": _mixtral,
    "qwen3_moe": _with_dense_layers, "deepseek_v3": _with_dense_layers, "gpt_oss": _gpt_oss,
}  # fmt: skip
_FUSED: dict[str, Callable[[Model], list[Entry]]] = {
    "mixtral": functools.partial(_mixtral, fused=True), "qwen3_moe": functools.partial(_with_dense_layers, fused=True),
    "deepseek_v3": functools.partial(_with_dense_layers, fused=True),
}  # fmt: skip


def tensor_names(model: Model, *, fused: bool = False) -> list[Entry]:
    """Every tensor of theirs, in the order of the model. gpt-oss knows its experts fused alone."""
    kind = type_of(model)
    table = _FUSED.get(kind, _TABLES[kind]) if fused else _TABLES[kind]
    return table(model) + ([] if model.ties else [_same(HEAD, "head.weight")])


def harmless(name: str, model: Model) -> bool:
    """Whether a tensor of theirs says nothing: a mask or RoPE's frequencies, which are computed, or the head's copy of a tied
    embedding."""
    if name == HEAD:
        return model.ties
    return name.endswith((".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", ".position_ids"))


@functools.lru_cache(maxsize=4)
def _layer_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for linear in layer.linears(model):
        for part in linear.parts:
            found[f"{part.name}.weight"] = part.rows, model.hidden
            found[f"{part.name}.bias"] = (part.rows if linear.column else model.hidden,)
    found |= {f"attn.{p}_norm.{kind}": (model.head_size,) for p in "qk" for kind in ("weight", "bias")}
    found["attn.sinks"] = (model.heads,)
    return found | (_latent_shapes(model) if model.is_latent else {}) | (_expert_shapes(model) if model.mixture else {})


def _latent_shapes(m: Model) -> dict[str, tuple[int, ...]]:
    query = m.heads * (m.head_size + m.rope_dim)
    return {"attn.q_down.weight": (m.q_rank, m.hidden), "attn.q_down_norm.weight": (m.q_rank,),
            "attn.q_up.weight": (query * m.q_rank,) if m.q_rank else (query, m.hidden),
            "attn.kv_down.weight": (m.kv_rank + m.rope_dim, m.hidden), "attn.kv_down_norm.weight": (m.kv_rank,),
            "attn.kv_up.weight": (m.heads * (m.head_size + m.value_dim) * m.kv_rank,),
            "attn.out.weight": (m.heads * m.value_dim, m.hidden)}


def _expert_shapes(m: Model) -> dict[str, tuple[int, ...]]:
    count, inner = m.experts or 0, m.expert_inner or 0
    found: dict[str, tuple[int, ...]] = {"router.weight": (count, m.hidden), "router.bias": (count,),
                                         "router.correction": (count,), "experts.down.bias": (count, m.hidden)}
    for part in ("gate", "up", "down"):
        found[f"experts.{part}.weight"] = count * inner, m.hidden
        found[f"shared.{part}.weight"] = m.shared_inner, m.hidden
    return found | {f"experts.{part}.bias": (count * inner,) for part in ("gate", "up")}


def shape_of(name: str, model: Model) -> tuple[int, ...]:
    """Of our whole tensor, without padding."""
    if name in ("embed.tokens.weight", "head.weight"):
        return model.vocab, model.hidden
    if name == "embed.positions.weight":
        return model.seq, model.hidden
    inside = name.split(".", 2)[-1] if name.startswith("layers.") else name
    return _layer_shapes(model).get(inside, (model.hidden,))


def part_of(entry: Entry, name: str, model: Model) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where what an entry has of one of ours starts in it, and the shape of that."""
    rows, *rest = shape_of(name, model)
    if entry.expert is None:
        return (0,) * (1 + len(rest)), (rows, *rest)
    held = rows // (model.experts or 1)
    return (entry.expert * held, *(0 for _ in rest)), (held, *rest)


def their_shape(entry: Entry, model: Model) -> tuple[int, ...]:
    empty = {n: torch.empty(part_of(entry, n, model)[1], device="meta") for n in entry.names}
    return tuple(entry.made_of(empty, model).shape)
