"""Megatron's pair of token files: `corpus.bin` holds all tokens one after the other, `corpus.idx` says where documents are.

    with Writer("corpus", vocab=257) as out:
        out.add([72, 105, 256])
    tokens = open_tokens("corpus")              mapped, not read; `len(tokens)`, `tokens.slice(0, 100)`
    check("corpus", vocab=257, seq=128)         one clear line for a file cut short, a wrong magic, a token too large

The index: magic `MMIDIDX` and two zero bytes, u64 version 1, u8 type code, u64 sequences, u64 document marks, then int32 sizes,
int64 byte offsets and int64 document marks.
"""
from __future__ import annotations

import array
import os
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from seatrial.errors import BadInput
from seatrial.files import naming

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
CODES: dict[int, tuple[torch.dtype, str]] = {
    1: (torch.uint8, "B"), 2: (torch.int8, "b"), 3: (torch.int16, "h"), 4: (torch.int32, "i"), 5: (torch.int64, "q"),
    # torch's uint16 knows few operations: the bits are mapped as int16 and masked on the way out.
    8: (torch.int16, "H"),
}  # fmt: skip
UINT16 = 8
LARGEST_UINT16_VOCAB = 65500
"""Megatron writes two bytes per token below this vocabulary, four from there on."""
SCAN_ALL_BYTES = 4 << 30
SCAN_CHUNKS, SCAN_CHUNK_TOKENS = 256, 1 << 21


def bin_path(prefix: Path | str) -> Path:
    return Path(f"{prefix}.bin")


def idx_path(prefix: Path | str) -> Path:
    return Path(f"{prefix}.idx")


@dataclass(frozen=True, kw_only=True)
class Index:
    code: int
    sequences: int
    documents: int
    tokens: int
    """Sum of all sizes; `open_tokens` has found that the .bin file holds exactly these."""


def read_index(prefix: Path | str) -> Index:
    return _read_index(prefix)[0]


def document_starts(prefix: Path | str) -> Tensor:
    """The token that each document begins with; a sequence is one where the index has no marks."""
    return _read_index(prefix)[1]


def _read_index(prefix: Path | str) -> tuple[Index, Tensor]:
    """The index alone, checked: its own length, the offsets against the sizes, the marks; and where documents begin."""
    path = idx_path(prefix)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; `seatrial data` writes it, and its prefix leaves out .bin and .idx") from None
    if len(raw) < HEADER.size:
        raise BadInput(f"{path}: {len(raw)} bytes, the header alone has {HEADER.size}: cut short?")
    magic, version, code, sequences, marks = HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise BadInput(f"{path}: not an index of tokens (it begins with {magic!r}, expected {MAGIC!r})")
    if version != 1 or code not in CODES:
        raise BadInput(f"{path}: version {version}, type code {code}: version 1 and {', '.join(map(str, CODES))} can be read")
    expected = HEADER.size + sequences * 12 + marks * 8
    if len(raw) != expected:
        raise BadInput(f"{path}: {len(raw)} bytes, but {sequences} sequences and {marks} document marks take {expected}: "
                       f"{'cut short' if len(raw) < expected else 'something was appended'}")
    at = HEADER.size
    sizes = _read(raw, at, sequences, torch.int32).long()
    offsets = _read(raw, at + sequences * 4, sequences, torch.int64)
    doc_marks = _read(raw, at + sequences * 12, marks, torch.int64)
    width = array.array(CODES[code][1]).itemsize
    if sequences == 0 or bool((sizes < 0).any()):
        raise BadInput(f"{path}: {'no sequences' if sequences == 0 else 'a negative size'}: write the files again")
    ends = sizes.cumsum(0) * width
    if int(offsets[0]) != 0 or not torch.equal(offsets[1:], ends[:-1]):
        where = int((offsets != torch.cat([ends.new_zeros(1), ends[:-1]])).nonzero()[0])
        raise BadInput(f"{path}: sequence {where} begins at byte {int(offsets[where])}, not where the one before ends")
    if marks and (int(doc_marks[-1]) > sequences or bool((doc_marks[1:] < doc_marks[:-1]).any())):
        raise BadInput(f"{path}: document marks do not rise to the {sequences} sequences")
    begins = offsets // width
    if marks:
        begins = begins[doc_marks[doc_marks < sequences]]
    return Index(code=code, sequences=sequences, documents=max(0, marks - 1), tokens=int(ends[-1]) // width), begins


def _read(raw: bytes, at: int, count: int, dtype: torch.dtype) -> Tensor:
    if count == 0:
        return torch.empty(0, dtype=dtype)
    # The arrays follow a 34-byte header, so they are copied to where a tensor may begin.
    return torch.frombuffer(bytearray(raw[at : at + count * dtype.itemsize]), dtype=dtype)


class Tokens:
    """All tokens of one .bin file, mapped into memory."""

    def __init__(self, path: Path, index: Index):
        self.index = index
        self._map = torch.from_file(str(path), shared=False, size=index.tokens, dtype=CODES[index.code][0])

    def __len__(self) -> int:
        return self.index.tokens

    def slice(self, start: int, stop: int) -> Tensor:
        """A copy as int64."""
        found = self._map[start:stop].long()
        return found & 0xFFFF if self.index.code == UINT16 else found


def open_tokens(prefix: Path | str) -> Tokens:
    index = read_index(prefix)
    path = bin_path(prefix)
    width = array.array(CODES[index.code][1]).itemsize
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file, though {idx_path(prefix)} is there") from None
    if size != index.tokens * width:
        raise BadInput(f"{path}: {size} bytes, but its index names {index.tokens} x {width} = {index.tokens * width}: "
                       f"{'cut short' if size < index.tokens * width else 'not the file of this index'}")
    if index.tokens == 0:
        raise BadInput(f"{path}: no tokens")
    return Tokens(path, index)


def check(prefix: Path | str, *, vocab: int, seq: int) -> Index:
    """Everything that can be wrong with the pair, found before any rank starts.

    Every token is compared with the vocabulary in files up to 4 GiB; in larger ones 256 stretches of 2M tokens spread evenly
    over the file are, and the rest as they are trained on.
    """
    tokens = open_tokens(prefix)
    if len(tokens) < seq + 1:
        raise BadInput(f"{bin_path(prefix)}: {len(tokens)} tokens are less than one sample of sequence {seq} + 1")
    width = CODES[tokens.index.code][0].itemsize
    chunks = -(-len(tokens) // SCAN_CHUNK_TOKENS)
    some = range(chunks)
    if len(tokens) * width > SCAN_ALL_BYTES:
        some = range(0, chunks, max(1, chunks // SCAN_CHUNKS))
    for chunk in some:
        start = chunk * SCAN_CHUNK_TOKENS
        refuse_outside(tokens.slice(start, start + SCAN_CHUNK_TOKENS), vocab=vocab, where=f"{bin_path(prefix)}", first=start)
    return tokens.index


def refuse_outside(tokens: Tensor, *, vocab: int, where: str, first: int) -> None:
    low, high = (int(v) for v in torch.aminmax(tokens))
    if low < 0 or high >= vocab:
        bad = high if high >= vocab else low
        at = first + int((tokens == bad).nonzero()[0])
        raise BadInput(f"{where}: token {bad} at position {at} is outside the model's vocabulary of {vocab}: "
                       f"set model.vocab to at least {high + 1}, or write the data with the model's tokenizer")


class Writer:
    """Writes both files under temporary names; they appear together when all went well, and not at all otherwise."""

    def __init__(self, prefix: Path | str, *, vocab: int):
        if sys.byteorder != "little":
            raise BadInput("the token files are little-endian and this machine is not")
        self.prefix = Path(prefix)
        self.code = UINT16 if vocab < LARGEST_UINT16_VOCAB else 4
        self._type = CODES[self.code][1]
        self._sizes = array.array("i")
        self._parts = [Path(f"{path}.part{os.getpid()}") for path in (bin_path(prefix), idx_path(prefix))]
        self._bin: IO[bytes] | None = None

    def __enter__(self) -> Writer:
        self.prefix.parent.mkdir(parents=True, exist_ok=True)
        self._bin = self._parts[0].open("wb")
        return self

    def add(self, document: Sequence[int]) -> None:
        assert self._bin is not None
        with naming(bin_path(self.prefix)):
            self._bin.write(array.array(self._type, document).tobytes())
        self._sizes.append(len(document))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._bin is not None
        try:
            with naming(bin_path(self.prefix)):
                self._bin.close()
            if kind is None and len(self._sizes):
                with naming(idx_path(self.prefix)):
                    self._write_index()
                os.replace(self._parts[0], bin_path(self.prefix))
                os.replace(self._parts[1], idx_path(self.prefix))
        finally:
            for part in self._parts:
                part.unlink(missing_ok=True)
        if kind is None and not len(self._sizes):
            raise BadInput(f"{self.prefix}: no documents to write")

    def _write_index(self) -> None:
        width = array.array(self._type).itemsize
        offsets, at = array.array("q"), 0
        for size in self._sizes:
            offsets.append(at)
            at += size * width
        with self._parts[1].open("wb") as file:
            file.write(HEADER.pack(MAGIC, 1, self.code, len(self._sizes), len(self._sizes) + 1))
            file.write(self._sizes.tobytes())
            file.write(offsets.tobytes())
            file.write(array.array("q", range(len(self._sizes) + 1)).tobytes())
