"""The safetensors format: header length, a JSON header, raw bytes. Read by memory map, written in a stream.

    File(path)["wte.weight"]                                    a tensor, copied out of the map
    write(path, {"wte.weight": (torch.float32, (300, 8))}, tensors)     in the order of the header, one at a time in memory
"""
from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seatrial.errors import BadInput
from seatrial.files import whole

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LARGEST_HEADER = 100_000_000


class File:
    """One file's tensors by name; the header is checked before anything is believed."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        try:
            size = self.path.stat().st_size
            with self.path.open("rb") as file:
                start = file.read(8)
                length = struct.unpack("<Q", start)[0] if len(start) == 8 else LARGEST_HEADER + 1
                if length > min(size - 8, LARGEST_HEADER):
                    raise BadInput(f"{path}: not a safetensors file, or cut short ({size} bytes)")
                header = json.loads(file.read(length))
        except FileNotFoundError:
            raise BadInput(f"{path}: no such file") from None
        except (ValueError, RecursionError):
            raise BadInput(f"{path}: not a safetensors file: its header is not JSON") from None
        if not isinstance(header, dict):
            raise BadInput(f"{path}: not a safetensors file: its header is not a table")
        header.pop("__metadata__", None)
        self._start, self._data_bytes = 8 + length, size - 8 - length
        self.tensors: dict[str, tuple[torch.dtype, tuple[int, ...], int, int]] = {
            name: self._entry(name, entry) for name, entry in header.items()}
        self._map = torch.from_file(str(self.path), shared=False, size=size, dtype=torch.uint8)

    def _entry(self, name: str, entry: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
        try:
            dtype, shape, (low, high) = DTYPES[entry["dtype"]], tuple(int(n) for n in entry["shape"]), entry["data_offsets"]
            fits = 0 <= low <= high <= self._data_bytes and min(shape, default=1) >= 0
        except (KeyError, TypeError, ValueError):
            raise BadInput(f"{self.path}: {name}: cannot be read: {json.dumps(entry)[:80]}") from None
        if not fits or high - low != torch.Size(shape).numel() * dtype.itemsize:
            raise BadInput(f"{self.path}: {name}: shape {list(shape)} of {entry['dtype']} does not fit bytes {low} to {high} "
                           f"of {self._data_bytes}: cut short?")
        return dtype, shape, low, high

    def __getitem__(self, name: str) -> Tensor:
        dtype, shape, low, high = self.tensors[name]
        # A copy starts where any dtype may; the map's bytes need not.
        return self._map[self._start + low : self._start + high].clone().view(dtype).view(shape)


def write(path: Path, shapes: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], tensors: Iterable[tuple[str, Tensor]]) -> None:
    """`tensors` come in the order of `shapes`. The file appears whole or not at all."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in shapes.items():
        size = torch.Size(shape).numel() * dtype.itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with whole(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for (name, tensor), (wanted, (dtype, shape)) in zip(tensors, shapes.items(), strict=True):
            assert (name, tuple(tensor.shape)) == (wanted, shape), (name, wanted, tensor.shape, shape)
            data = tensor.detach().cpu().to(dtype).contiguous()
            # The tensor's own bytes, without numpy, which the engine does not ask for.
            file.write((ctypes.c_char * data.nbytes).from_address(data.data_ptr()) if data.nbytes else b"")
