"""The files of torch.distributed.checkpoint, written and read by each rank alone.

    items = write_chunks(folder, rank, {"model.wte": …})       __3_0.distcp, one torch.save a chunk, with checksums
    write_metadata(folder, items_of_all_ranks)                 .metadata, as torch's own tools read it
    reader = Reader(folder, checksums); reader.fill([chunk])   any slice of any tensor, from whatever slices were saved

torch's `dcp.save` and `dcp.load` agree on plans with `*_object` collectives, which pickle, and would run beside the collectives
of training. The format needs neither: a rank knows its slices, and whoever loads finds the overlap of what it wants with what
is there. The one pickle of the format, `.metadata`, is read through an allow-list.
"""
from __future__ import annotations

import io
import os
import pickle
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seatrial.errors import BadInput
from seatrial.files import naming

if TYPE_CHECKING:  # a second of every start where nothing is saved
    from torch.distributed.checkpoint import metadata as dcp_metadata
    from torch.distributed.checkpoint.filesystem import _StorageInfo

METADATA = ".metadata"
PIECE_BYTES = 16 << 20
"""Written and read at a time: after each one it is said how far the work is."""
SYNC_BYTES = 256 << 20
"""Written before they are waited for: what the kernel only took is not on the disk, and at the end all would be to wait for."""

Moved = Callable[[int], None]
"""Is told how many bytes further the work is."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A slice of a global tensor."""

    key: str
    shape: tuple[int, ...]
    """Of the whole tensor."""
    offsets: tuple[int, ...]
    tensor: Tensor

    def __post_init__(self) -> None:
        ends = [o + s for o, s in zip(self.offsets, self.tensor.shape)]
        assert len(self.shape) == len(self.offsets) == self.tensor.dim(), (self.key, self.shape, self.offsets)
        assert all(e <= s for e, s in zip(ends, self.shape)), (self.key, self.shape, self.offsets, tuple(self.tensor.shape))


@dataclass(frozen=True, kw_only=True)
class Item:
    """Where a chunk was written: what a rank tells rank 0, as JSON."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    at: int
    length: int
    crc: int


def write_chunks(folder: Path, rank: int, chunks: Iterable[Chunk], moved: Moved = lambda count: None) -> list[Item]:
    """One file with all chunks of this rank; on disk when this returns."""
    name = f"__{rank}_0.distcp"
    items, at, synced = [], 0, 0
    with naming(folder / name), (folder / name).open("wb") as file:
        for chunk in chunks:
            buffer = io.BytesIO()
            tensor = chunk.tensor.detach().cpu().contiguous()
            # A view would drag its whole storage along.
            torch.save(tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone(), buffer)
            data, crc = buffer.getbuffer(), 0
            for start in range(0, len(data), PIECE_BYTES):
                piece = data[start : start + PIECE_BYTES]
                file.write(piece)
                crc = zlib.crc32(piece, crc)
                at += len(piece)
                if at - synced >= SYNC_BYTES:
                    file.flush()
                    os.fdatasync(file.fileno())
                    synced = at
                # What frames a tensor is none of its bytes.
                moved(max(0, min(len(piece), tensor.nbytes - start)))
            items.append(Item(key=chunk.key, dtype=str(chunk.tensor.dtype).removeprefix("torch."), shape=tuple(chunk.shape),
                              offsets=tuple(chunk.offsets), sizes=tuple(chunk.tensor.shape), file=name, at=at - len(data),
                              length=len(data), crc=crc))
        file.flush()
        os.fsync(file.fileno())
    return items


def write_metadata(folder: Path, items: Iterable[Item]) -> tuple[int, int]:
    """The `.metadata` of all ranks' items; returns its length and checksum."""
    from torch.distributed.checkpoint import metadata as dcp_metadata
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    tensors: dict[str, dcp_metadata.TensorStorageMetadata] = {}
    storage: dict[dcp_metadata.MetadataIndex, _StorageInfo] = {}
    for item in items:
        known = tensors.get(item.key)
        if known is None:
            properties = dcp_metadata.TensorProperties(dtype=getattr(torch, item.dtype))
            known = tensors[item.key] = dcp_metadata.TensorStorageMetadata(properties, torch.Size(item.shape), [])
        known.chunks.append(dcp_metadata.ChunkStorageMetadata(torch.Size(item.offsets), torch.Size(item.sizes)))
        index = dcp_metadata.MetadataIndex(item.key, torch.Size(item.offsets), len(known.chunks) - 1)
        storage[index] = _StorageInfo(item.file, item.at, item.length)
    _refuse_gaps(tensors)
    made = dcp_metadata.Metadata(state_dict_metadata=dict(tensors), planner_data={key: (key,) for key in tensors},
                                 storage_data=storage, storage_meta=dcp_metadata.StorageMeta())
    data = pickle.dumps(made)
    write_synced(folder / METADATA, data)
    return len(data), zlib.crc32(data)


def write_synced(path: Path, data: bytes) -> None:
    with naming(path), path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _refuse_gaps(tensors: dict[str, dcp_metadata.TensorStorageMetadata]) -> None:
    """Every element exactly once, or a rank forgot a slice: better to fail at the save than at the load."""
    for key, tensor in tensors.items():
        held = sum(chunk.sizes.numel() for chunk in tensor.chunks)
        if held != tensor.size.numel():
            raise RuntimeError(f"checkpoint: {key} has {tensor.size.numel()} elements and {held} were written")


class _AllowList(pickle.Unpickler):
    """Only the plain classes that a `.metadata` is made of; anything else in it is an attack or damage."""

    ALLOWED = frozenset({
        *(("torch.distributed.checkpoint.metadata", name) for name in (
            "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties",
            "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING")),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch", "Size"), ("torch.serialization", "_get_layout"), ("torch._utils", "_get_layout"),
        *(("torch", name) for name in ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool")),
    })  # fmt: skip

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint needs")
        return super().find_class(module, name)


def read_metadata(folder: Path) -> dcp_metadata.Metadata:
    from torch.distributed.checkpoint.metadata import Metadata

    path = folder / METADATA
    try:
        found = _AllowList(io.BytesIO(path.read_bytes())).load()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file: {folder} is not a checkpoint") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise BadInput(f"{path}: refused: {error}") from None
    if not isinstance(found, Metadata) or not isinstance(found.storage_data, dict):
        raise BadInput(f"{path}: not the metadata of a checkpoint")
    return found


class Reader:
    """Slices of saved tensors. `checksums` maps (file, offset) to (length, crc); what has none is refused."""

    def __init__(self, folder: Path, checksums: dict[tuple[str, int], tuple[int, int]], moved: Moved = lambda count: None):
        from torch.distributed.checkpoint.metadata import TensorStorageMetadata

        self.folder, self.checksums, self.moved = folder, checksums, moved
        found = read_metadata(folder)
        self.tensors = {key: value for key, value in found.state_dict_metadata.items()
                        if isinstance(value, TensorStorageMetadata)}
        self._where: dict[tuple[str, tuple[int, ...]], _StorageInfo] = {
            (index.fqn, tuple(index.offset or ())): info for index, info in found.storage_data.items()}

    def fill(self, wanted: Iterable[Chunk]) -> None:
        """Copies into each chunk's tensor what was saved of it; each saved slice is read once."""
        by_key: dict[str, list[Chunk]] = {}
        for chunk in wanted:
            by_key.setdefault(chunk.key, []).append(chunk)
        for key, chunks in by_key.items():
            saved = self.tensors.get(key)
            if saved is None:
                raise BadInput(f"{self.folder}: holds no {key}")
            for chunk in chunks:
                if tuple(saved.size) != tuple(chunk.shape):
                    raise BadInput(f"{self.folder}: {key} has shape {list(saved.size)}, this model wants {list(chunk.shape)}")
            filled = dict.fromkeys(range(len(chunks)), 0)
            for piece in saved.chunks:
                overlaps = [(n, o) for n, c in enumerate(chunks) if (o := _overlap(piece, c)) is not None]
                if not overlaps:
                    continue
                data = self._read(key, piece)
                for n, (source, target) in overlaps:
                    with torch.no_grad():
                        chunks[n].tensor[target].copy_(data[source])
                    filled[n] += data[source].numel()
                    self.moved(chunks[n].tensor[target].nbytes)
            for n, count in filled.items():
                if count != chunks[n].tensor.numel():
                    raise BadInput(f"{self.folder}: {key} was saved with {chunks[n].tensor.numel() - count} elements missing")

    def whole(self, key: str) -> Tensor:
        saved = self.tensors[key]
        tensor = torch.empty(saved.size, dtype=saved.properties.dtype)
        self.fill([Chunk(key=key, shape=tuple(saved.size), offsets=(0,) * tensor.dim(), tensor=tensor)])
        return tensor

    def _read(self, key: str, piece: dcp_metadata.ChunkStorageMetadata) -> Tensor:
        info = self._where[key, tuple(piece.offsets)]
        path = self.folder / info.relative_path
        expected = self.checksums.get((info.relative_path, info.offset))
        buffer, crc = io.BytesIO(), 0
        with naming(path), path.open("rb") as file:
            file.seek(info.offset)
            while data := file.read(min(PIECE_BYTES, info.length - buffer.tell())):
                crc = zlib.crc32(data, crc)
                buffer.write(data)
                self.moved(0)
        if expected is None or expected != (buffer.tell(), crc):
            raise damaged(path, info.offset, info.length)
        buffer.seek(0)
        return torch.load(buffer, map_location="cpu", weights_only=True)


def damaged(path: Path, at: int, length: int) -> BadInput:
    return BadInput(f"{path}: bytes {at} to {at + length} are not those that were saved (checksum differs): the checkpoint is "
                    f"damaged; move {path.parent.name} away to resume from the one before it")


def _overlap(piece: dcp_metadata.ChunkStorageMetadata, chunk: Chunk) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """Where the two slices meet, in the coordinates of each."""
    source, target = [], []
    for a, n, b, m in zip(piece.offsets, piece.sizes, chunk.offsets, chunk.tensor.shape):
        start, stop = max(a, b), min(a + n, b + m)
        if start >= stop:
            return None
        source.append(slice(start - a, stop - a))
        target.append(slice(start - b, stop - b))
    return tuple(source), tuple(target)
