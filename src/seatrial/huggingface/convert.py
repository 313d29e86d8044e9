"""Hugging Face weights in and out: GPT-2, BLOOM, Llama, Mistral, Qwen and mixtures of experts as safetensors, never pickles.

    import_weights("gpt2/", "start/")           a checkpoint of step 0 that `recipe.resume` starts from, on any topology
    export_weights("out/checkpoints", "hf/")    a folder that `from_pretrained` loads

Each model type is a table of our names and theirs, with what turns one into the other (`names.py`). A model larger than the
machine passes through: one tensor at a time is in memory on the way in, one file of 5 GB on the way out. A tensor that nothing
takes, and a number that is none, is refused by the tensor's name.
"""
from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from seatrial.engine.io import checkpoint
from seatrial.engine.io.checkpoint import Checkpointer
from seatrial.engine.io.dcp import Chunk, Reader
from seatrial.errors import BadInput
from seatrial.fields import build
from seatrial.files import write_whole
from seatrial.huggingface import hfconfig
from seatrial.huggingface.names import HEAD, Entry, harmless, part_of, shape_of, tensor_names, their_shape
from seatrial.plaindata import read_json
from seatrial.spec import Model

SHARD_BYTES = 5_000_000_000
WEIGHT_PREFIX = "model."


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
        if how := config.get("quantization_config"):
            method = how.get("quant_method", "quantised") if isinstance(how, dict) else how
            raise BadInput(f"{self.folder}: its weights are stored as {method} (quantization_config), which is not read here: "
                           "save them in bf16 first, from a model that transformers has loaded with dequantize=True")
        self.model = hfconfig.model_of(config, where=str(self.folder / "config.json"), seq=seq)
        self._files: dict[str, File] = {}
        self._where = self._weight_map()
        # Modules of transformers have all experts of a layer in one tensor; files mostly have each by itself.
        self.fused = any(name.endswith(".experts.gate_up_proj") for name in self._where)

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
        # Layers that draft tokens beyond the next, which transformers leaves out too.
        drafting = tuple(name.removesuffix("eh_proj.weight") for name in there if name.endswith(".eh_proj.weight"))
        rest = [n for n in there if n not in taken and not harmless(n, self.model) and not n.startswith(drafting)]
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


def read_weights(source: HuggingFace) -> Iterator[Chunk]:
    """Ours in fp32, one of theirs at a time."""
    model = source.model
    entries = tensor_names(model, fused=source.fused)
    source.check_names(entry.theirs for entry in entries)
    for entry in entries:
        theirs = source[entry.theirs].float()
        if not bool(theirs.isfinite().all()):
            bad = int((~theirs.isfinite()).sum())
            raise BadInput(f"{source.folder}: {entry.theirs} has {bad} of {theirs.numel()} numbers that are NaN or infinite")
        _refuse_shape(source, entry, theirs)
        for name, tensor in entry.ours(theirs, model).items():
            yield Chunk(key=WEIGHT_PREFIX + name, shape=shape_of(name, model), offsets=part_of(entry, name, model)[0],
                        tensor=tensor.contiguous())


def _refuse_shape(source: HuggingFace, entry: Entry, theirs: Tensor) -> None:
    wanted = their_shape(entry, source.model)
    if tuple(theirs.shape) != wanted:
        raise BadInput(f"{source.folder}: {entry.theirs} has shape {list(theirs.shape)}, the configuration says {list(wanted)}")


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
        keeper.write(0, read_weights(found), {"step": 0, "consumed_samples": 0, "weights_only": True})
    except BaseException:
        if not was_there:
            shutil.rmtree(target)
        raise
    return found.model


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
            tensors = _theirs(shard, reader, model)
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


def _theirs(entries: list[Entry], reader: Reader, model: Model) -> dict[str, Tensor]:
    """Tensors of theirs out of a checkpoint; each saved slice is read once."""
    chunks: dict[tuple[str, str], Chunk] = {}
    for entry in entries:
        for name in entry.names:
            offsets, shape = part_of(entry, name, model)
            chunks[entry.theirs, name] = Chunk(key=WEIGHT_PREFIX + name, shape=shape_of(name, model), offsets=offsets,
                                               tensor=torch.empty(shape))
    reader.fill(chunks.values())
    return {e.theirs: e.made_of({n: chunks[e.theirs, n].tensor for n in e.names}, model) for e in entries}
