"""Hugging Face weights in and out: GPT-2, BLOOM, Llama, Mistral and Qwen as safetensors, never pickles.

    import_weights("gpt2/", "start/")           a checkpoint of step 0 that `recipe.resume` starts from, on any topology
    export_weights("out/checkpoints", "hf/")    a folder that `from_pretrained` loads

Each model type is a table of our names and theirs, with what turns one into the other (`tensor_names`). A model larger than the
machine passes through: one tensor at a time is in memory on the way in, one file of 5 GB on the way out. A tensor that nothing
takes, and a number that is none, is refused by the tensor's name.
"""
from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from seatrial.arith import layer
from seatrial.engine.io import checkpoint
from seatrial.engine.io.checkpoint import Checkpointer
from seatrial.engine.io.dcp import Chunk
from seatrial.errors import BadInput
from seatrial.fields import build
from seatrial.files import write_whole
from seatrial.huggingface import hfconfig
from seatrial.huggingface.hfconfig import type_of
from seatrial.plaindata import read_json
from seatrial.spec import Model

SHARD_BYTES = 5_000_000_000
WEIGHT_PREFIX = "model."
HEAD = "lm_head.weight"


class File:
    """The tensors of one safetensors file, by name."""

    def __init__(self, path: Path):
        try:
            self._file = safe_open(path, framework="pt")
        except FileNotFoundError:
            raise BadInput(f"{path}: no such file") from None
        except (SafetensorError, OSError) as error:
            raise BadInput(f"{path}: not a safetensors file, or damaged: {error}") from None
        self.names = dict.fromkeys(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        found: Tensor = self._file.get_tensor(name)
        return found


class HuggingFace:
    """A folder with config.json and safetensors files."""

    def __init__(self, folder: Path | str, *, seq: int | None = None):
        self.folder = Path(folder)
        config = _read_json(self.folder / "config.json")
        self.model = hfconfig.model_of(config, where=str(self.folder / "config.json"), seq=seq)
        self._files: dict[str, File] = {}
        self._where = self._weight_map()

    def _weight_map(self) -> dict[str, str]:
        index = self.folder / "model.safetensors.index.json"
        if index.exists():
            where = _read_json(index).get("weight_map", {})
            names = where.values() if isinstance(where, dict) else [where]
            if bad := [name for name in names if not isinstance(name, str) or Path(name).name != name]:
                raise BadInput(f"{index}: {bad[0]!r} is not the name of a file beside it")
            return dict(where)
        if not (self.folder / "model.safetensors").exists():
            pickled = [p.name for p in self.folder.glob("pytorch_model*.bin")]
            why = f": {pickled[0]} is a pickle, which is never opened; save it again with safe_serialization" if pickled else ""
            raise BadInput(f"{self.folder}: no model.safetensors{why}")
        return dict.fromkeys(self._file("model.safetensors").names, "model.safetensors")

    def _file(self, name: str) -> File:
        if name not in self._files:
            self._files[name] = File(self.folder / name)
        return self._files[name]

    def _known(self, name: str) -> str:
        # The base model's own checkpoints leave out the prefix that the model with a head adds.
        for known in (name, name.partition(".")[2]):
            if known in self._where and known in self._file(self._where[known]).names:
                return known
        raise BadInput(f"{self.folder}: no tensor {name}, which a {self.model.family} of {self.model.layers} layers has")

    def __getitem__(self, name: str) -> Tensor:
        known = self._known(name)
        return self._file(self._where[known])[known]

    def check_names(self, wanted: Iterable[str]) -> None:
        """Refuses a file that lacks any of them, or that has another tensor with something to say."""
        taken = {self._known(name) for name in wanted}
        # An index may leave out what is in its files.
        there = dict.fromkeys([*self._where, *(n for f in dict.fromkeys(self._where.values()) for n in self._file(f).names)])
        rest = [name for name in there if name not in taken and not harmless(name, self.model)]
        if rest:
            more = f", and {len(rest) - 1} more," if len(rest) > 1 else ","
            raise BadInput(f"{self.folder}: tensor {rest[0]}{more} has no place in a {self.model.family} of "
                           f"{self.model.layers} layers as its config.json describes it")
        if HEAD in self._where and HEAD not in taken and not torch.equal(self[HEAD], self[tensor_names(self.model)[0].theirs]):
            raise BadInput(f"{self.folder}: {HEAD} is not the embedding that config.json ties it to; "
                           "set tie_word_embeddings to false there if it is to be kept")


def _read_json(path: Path) -> dict:
    found = read_json(path)
    if not isinstance(found, dict):
        raise BadInput(f"{path}: expected a table")
    return found


def read_weights(source: HuggingFace) -> Iterator[tuple[str, Tensor]]:
    """Our names and fp32 tensors, one at a time."""
    entries = tensor_names(source.model)
    source.check_names(entry.theirs for entry in entries)
    for entry in entries:
        theirs = source[entry.theirs].float()
        if not bool(theirs.isfinite().all()):
            bad = int((~theirs.isfinite()).sum())
            raise BadInput(f"{source.folder}: {entry.theirs} has {bad} of {theirs.numel()} numbers that are NaN or infinite")
        for name, tensor in entry.ours(theirs, source.model).items():
            wanted = shape_of(name, source.model)
            if tuple(tensor.shape) != wanted:
                raise BadInput(f"{source.folder}: {entry.theirs} has shape {list(theirs.shape)}: {name} would be "
                               f"{list(tensor.shape)}, the configuration says {list(wanted)}")
            yield name, tensor


def import_weights(source: Path | str, target: Path | str, *, seq: int | None = None) -> Model:
    """A checkpoint of step 0 with weights alone; the optimizer starts from nothing.

    `seq`: the training sequence, where it is not the longest that the model has positions for.
    """
    found = HuggingFace(source, seq=seq)
    if checkpoint.latest(target) is not None:
        raise BadInput(f"{target}: already holds a checkpoint; name another folder")
    was_there = Path(target).exists()
    keeper = Checkpointer(target, rank=0, world=1, model=found.model, about={"imported_from": str(source)})
    try:
        keeper.write(0, _chunks(found), {"step": 0, "consumed_samples": 0, "weights_only": True})
    except BaseException:
        if not was_there:
            shutil.rmtree(target)
        raise
    return found.model


def _chunks(source: HuggingFace) -> Iterator[Chunk]:
    for name, tensor in read_weights(source):
        yield Chunk(key=WEIGHT_PREFIX + name, shape=tuple(tensor.shape), offsets=(0,) * tensor.dim(), tensor=tensor)


def export_weights(source: Path | str, target: Path | str, *, dtype: torch.dtype = torch.float32,
                   shard_bytes: int = SHARD_BYTES) -> Model:
    """The newest checkpoint in `source` (or `source` itself) as a Hugging Face folder."""
    source, target = Path(source), Path(target)
    found = checkpoint.open_checkpoint(source) if (source / checkpoint.MANIFEST).exists() else checkpoint.latest(source)
    if found is None or found.model is None:
        raise BadInput(f"{source}: no checkpoint to export")
    if target.exists() and any(target.iterdir()):
        raise BadInput(f"{target}: is not empty; name another folder")
    model = build(Model, found.model, where=str(found.folder / checkpoint.MANIFEST))
    reader = found.reader()
    entries = tensor_names(model)
    shards: list[list[Entry]] = [[]]
    held = 0
    for entry in entries:
        size = torch.Size(their_shape(entry, model)).numel() * dtype.itemsize
        if shards[-1] and held + size > shard_bytes:
            shards.append([])
            held = 0
        shards[-1].append(entry)
        held += size
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        weight_map: dict[str, str] = {}
        for number, shard in enumerate(shards, 1):
            name = "model.safetensors" if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            tensors = {e.theirs: e.made_of({n: reader.whole(WEIGHT_PREFIX + n) for n in e.names}, model) for e in shard}
            try:
                save_file({n: t.to(dtype).contiguous() for n, t in tensors.items()}, part / name, metadata={"format": "pt"})
            except SafetensorError as error:
                raise BadInput(f"{target / name}: {error}") from None
            weight_map |= dict.fromkeys(tensors, name)
        if len(shards) > 1:
            total = sum(torch.Size(their_shape(e, model)).numel() * dtype.itemsize for e in entries)
            index = {"metadata": {"total_size": total}, "weight_map": weight_map}
            write_whole(part / "model.safetensors.index.json", json.dumps(index, indent=1))
        config = hfconfig.config_of(model, dtype=str(dtype).removeprefix("torch."))
        write_whole(part / "config.json", json.dumps(config, indent=1))
        if target.exists():
            target.rmdir()
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return model


# ---- models in Hugging Face's words: which tensors a model type has, what each is called there and how it is laid out


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


def tensor_names(model: Model) -> list[Entry]:
    """Every tensor of theirs, in the order of the model."""
    return _TABLES[type_of(model)](model) + ([] if model.ties else [_same(HEAD, "head.weight")])


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
