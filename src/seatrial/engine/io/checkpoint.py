"""Checkpoints: written beside training, whole or not at all, and read back on any topology.

    keeper = Checkpointer(folder, rank=0, world=8, keep=3)
    keeper.save(step, chunks, state)            copies the tensors and returns; a thread writes them
    keeper.wait()                               until the last one is on disk
    found, why = choose(folder)                 the checkpoint to go on from, its manifest verified, and why this one
    fill(found.reader(), shards)                slices of any layout, from slices of any other

A checkpoint is a folder `step-00000100` in the format of torch.distributed.checkpoint with a `manifest.json`: what it is of,
the step, and a checksum of every chunk. Each rank writes its file into a hidden folder and then says so in a small file beside
it; rank 0 waits for all of them, writes the metadata, renames the folder and points `latest` at it. So there is no collective
that could race with those of training, and a folder with the final name is always complete. A step that is there already is
replaced: the old folder steps aside, and is found there should the run be killed before the new one has its name.
"""
from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seatrial import fields
from seatrial.engine.core.state import Shard
from seatrial.engine.io import dcp
from seatrial.engine.io.dcp import Chunk
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.errors import BadInput
from seatrial.files import write_whole
from seatrial.plaindata import parse_json, read_bytes
from seatrial.spec import Model

SCHEMA = 1
MANIFEST, LATEST = "manifest.json", "latest"
WRITING, REPLACED = ".writing-", ".replaced-"
POLL_S = 0.02
TELL_S = 30.0
ROUTING = ("kind", "normalised", "scale", "bias", "corrected", "groups", "limit")
"""What a router is; losses and capacity are a run's."""


def key_of(shard: Shard) -> str:
    """A rectangle's name in a checkpoint: `model.` for weights, `optim.exp_avg.` and so on for the rest."""
    return f"model.{shard.name}" if shard.kind == "weight" else f"optim.{shard.kind}.{shard.name}"


def chunks_of(shards: Iterable[Shard]) -> Iterator[Chunk]:
    """To be saved, one by one: of split masters each is a copy."""
    return (Chunk(key=key_of(s), shape=s.global_shape, offsets=s.offsets, tensor=s.tensor) for s in shards)


def fill(reader: dcp.Reader, shards: Iterable[Shard]) -> None:
    """Each shard with what was saved of it."""
    for s in shards:
        with s.changing() as tensor:
            reader.fill([Chunk(key=key_of(s), shape=s.global_shape, offsets=s.offsets, tensor=tensor)])


def folder_name(step: int) -> str:
    return f"step-{step:08d}"


class Checkpointer:
    def __init__(self, folder: Path | str, *, rank: int, world: int, keep: int = 3, model: Model | None = None,
                 about: Mapping[str, object] | None = None, timeout_s: float = 1800.0,
                 barrier: Callable[[], None] = lambda: None, background: bool = True, heartbeat: Heartbeat | None = None):
        """`barrier` is called once, here: what a killed run left half-written is gone before any rank writes.

        Rank 0 waits for the others' parts as long as they grow, and `timeout_s` beyond; the `heartbeat` is told of every byte.
        """
        self.folder, self.rank, self.world, self.keep = Path(folder), rank, world, keep
        self.model, self.about, self.timeout_s, self.background = model, dict(about or {}), timeout_s, background
        self.heartbeat = heartbeat or Heartbeat(None, rank)
        self.saved: list[int] = []
        """Steps whose checkpoints this run has completed (rank 0)."""
        self.after = ""
        """Digest of the checkpoint that this run went on from, or saved last: the next one names it."""
        self._last_step: int | None = None
        self._pinned: dict[int, torch.Tensor] = {}
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        if rank == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(f"{REPLACED}*"):
                if not (self.folder / left.name.removeprefix(REPLACED)).exists():
                    os.rename(left, self.folder / left.name.removeprefix(REPLACED))
            for left in [*self.folder.glob(f"{WRITING}*"), *self.folder.glob(f"{REPLACED}*")]:
                self._remove(left)
        barrier()

    def save(self, step: int, chunks: Iterable[Chunk], state: Mapping[str, object]) -> None:
        """Takes a copy of everything now; the files follow. `state` is plain data that all ranks agree on."""
        self.wait()
        if step == self._last_step:
            return  # a stop right after a save: rank 0 may still be finishing what this would write again
        self._last_step = step
        copies = self._copied(chunks)
        self._thread = threading.Thread(target=self._guarded, args=(step, copies, dict(state)), name="checkpoint")
        self._thread.start()
        if not self.background:
            self.wait()

    def _copied(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        """Into pinned memory from a GPU: it is kept for the next save, since making it takes longer than filling it."""
        copies = []
        for n, c in enumerate(chunks):
            kept = self._pinned.get(n)
            if not c.tensor.is_cuda:
                kept = torch.empty(c.tensor.shape, dtype=c.tensor.dtype)
            elif kept is None or (kept.shape, kept.dtype) != (c.tensor.shape, c.tensor.dtype):
                kept = self._pinned[n] = torch.empty(c.tensor.shape, dtype=c.tensor.dtype, pin_memory=True)
            copies.append(dataclasses.replace(c, tensor=kept.copy_(c.tensor.detach(), non_blocking=True)))
            self.heartbeat.beat()
        if self._pinned:
            torch.cuda.current_stream().synchronize()
        return copies

    def wait(self, tell: Callable[[], None] = lambda: None) -> None:
        """Until the last save is finished; raises what went wrong with it. `tell` is called every half a minute meanwhile."""
        while self.busy:
            assert self._thread is not None
            self._thread.join(TELL_S)
            if self.busy:
                tell()
        self._thread = None
        self.check()

    def check(self) -> None:
        """Raises what went wrong with a save, as soon as that is known."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _guarded(self, step: int, chunks: list[Chunk], state: dict[str, object]) -> None:
        try:
            self.write(step, chunks, state)
        except BaseException as error:
            self._error = error
            self._say(self.folder / f"{WRITING}{folder_name(step)}", {"error": f"{type(error).__name__}: {error}"})

    def write(self, step: int, chunks: Iterable[Chunk], state: Mapping[str, object]) -> None:
        """The save itself, here and now; chunks that are made one by one are never in memory together."""
        part = self.folder / f"{WRITING}{folder_name(step)}"
        part.mkdir(parents=True, exist_ok=True)
        total = sum(c.tensor.nbytes for c in chunks) if isinstance(chunks, list) else 0
        with self.heartbeat.work("save", total=total):
            items = dcp.write_chunks(part, self.rank, chunks, self.heartbeat.moved)
        self._say(part, {"items": [dataclasses.asdict(item) for item in items]})
        if self.rank == 0:
            items = self._all_items(part)
            with self.heartbeat.work("save"):
                self._finish(part, items, step, dict(state))

    def _say(self, part: Path, words: dict[str, object]) -> None:
        try:
            write_whole(part / f"rank{self.rank}.json", json.dumps(words), durable=False)
        except OSError:
            pass  # the disk that refused the checkpoint refuses this as well; rank 0 gives up after its time

    def _all_items(self, part: Path) -> list[dcp.Item]:
        items: list[dcp.Item] = []
        size, until = -1, time.monotonic() + self.timeout_s
        for rank in range(self.world):
            path = part / f"rank{rank}.json"
            while not path.exists():
                if (now := _size(part)) != size:
                    size, until = now, time.monotonic() + self.timeout_s
                if time.monotonic() > until:
                    raise TimeoutError(f"{part}: rank {rank} has not written its part, and none has grown for "
                                       f"{self.timeout_s:g} s")
                time.sleep(POLL_S)
            words = json.loads(path.read_text())
            if "error" in words:
                raise RuntimeError(f"{part}: rank {rank}: {words['error']}")
            items += [_item(i) for i in words["items"]]
            path.unlink()
        return items

    def _finish(self, part: Path, items: list[dcp.Item], step: int, state: dict[str, object]) -> None:
        length, crc = dcp.write_metadata(part, items)
        files: dict[str, list[list[int]]] = {dcp.METADATA: [[0, length, crc]]}
        for item in items:
            files.setdefault(item.file, []).append([item.at, item.length, item.crc])
        manifest = {"schema": SCHEMA, "step": step, "state": state, "model": fields.plain(self.model), "about": self.about,
                    "torch": torch.__version__, "files": files, "after": self.after}
        digest = _digest(manifest)
        text = json.dumps({**manifest, "digest": digest}, ensure_ascii=False, allow_nan=False)
        dcp.write_synced(part / MANIFEST, text.encode())
        _sync_folder(part)
        final, aside = self.folder / folder_name(step), self.folder / f"{REPLACED}{folder_name(step)}"
        if final.exists():
            os.rename(final, aside)
        os.rename(part, final)
        write_whole(self.folder / LATEST, f"{final.name}\n{digest}\n")
        _sync_folder(self.folder)
        self.after = digest
        self.saved.append(step)
        # Newer steps are of another past, which somebody left by pointing `latest` back: not ours to count, or to remove.
        for old in [s for s in steps_in(self.folder) if s <= step][: -self.keep]:
            self._remove(self.folder / folder_name(old))
        if aside.exists():
            self._remove(aside)

    def _remove(self, folder: Path) -> None:
        """Under a name that the next run removes, should this one be killed; a file at a time, since each may be large."""
        hidden = self.folder / f"{WRITING}{folder.name.removeprefix(WRITING)}"
        os.rename(folder, hidden)
        for path in hidden.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.heartbeat.moved(0)
        hidden.rmdir()


def _size(folder: Path) -> int:
    """Bytes that the ranks have written so far; opened, because a file system over a network answers a stat from memory."""
    size = 0
    for path in folder.glob("*.distcp"):
        with path.open("rb") as file:
            size += os.fstat(file.fileno()).st_size
    return size


def _item(data: dict[str, Any]) -> dcp.Item:
    return dcp.Item(**{**data, **{k: tuple(data[k]) for k in ("shape", "offsets", "sizes")}})


def _digest(manifest: Mapping[str, object]) -> str:
    return hashlib.sha256(fields.canonical(manifest).encode()).hexdigest()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def steps_in(folder: Path | str) -> list[int]:
    """Steps that have a whole checkpoint, oldest first."""
    names = [p.parent.name for p in Path(folder).glob(f"step-*/{MANIFEST}")]
    return sorted(int(n.removeprefix("step-")) for n in names if n.removeprefix("step-").isdigit())


@dataclass(frozen=True, kw_only=True)
class Found:
    """A whole checkpoint on disk, its manifest read and verified."""

    folder: Path
    step: int
    state: dict[str, Any]
    model: dict[str, Any] | None
    about: dict[str, Any]
    files: dict[str, Sequence[tuple[int, ...]]]
    digest: str
    after: str = ""
    """Digest of the checkpoint that the run which saved this one had gone on from, or saved before."""

    def reader(self, moved: dcp.Moved = lambda count: None) -> dcp.Reader:
        sums = {(name, at): (length, crc) for name, chunks in self.files.items() for at, length, crc in chunks}
        self._verify_file(dcp.METADATA)
        return dcp.Reader(self.folder, sums, moved)

    def verify(self) -> None:
        """Reads every byte; a difference is one line that names the file."""
        for name in sorted(self.files):
            self._verify_file(name)

    def _verify_file(self, name: str) -> None:
        path = self.folder / name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise BadInput(f"{path}: no such file, though the checkpoint's manifest names it") from None
        expected = sum(length for _, length, _ in self.files[name])
        if size != expected:
            raise BadInput(f"{path}: {size} bytes, {expected} were saved: the checkpoint is damaged; move "
                           f"{self.folder.name} away to resume from the one before it")
        with path.open("rb") as file:
            for at, length, crc in sorted(self.files[name]):
                file.seek(at)
                if zlib.crc32(file.read(length)) != crc:
                    raise dcp.damaged(path, at, length)


def open_checkpoint(folder: Path | str) -> Found:
    """The checkpoint in exactly this folder."""
    path = Path(folder) / MANIFEST
    if not path.exists():
        raise BadInput(f"{path}: no such file: {folder} is not a whole checkpoint")
    try:
        manifest = parse_json(read_bytes(path, most=MOST_MANIFEST, what="manifest"))
        digest = manifest.pop("digest")
        whole = digest == _digest(manifest)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"{path}: damaged: {error}") from None
    if not whole:
        raise BadInput(f"{path}: damaged: it does not match its own digest")
    if manifest.get("schema") != SCHEMA:
        raise BadInput(f"{path}: schema {fields.shown(manifest.get('schema'))} is not the {SCHEMA} that this version reads")
    said = {name: fields.convert(manifest.get(name), hint, where=f"{path}: {name}") for name, hint in _HINTS.items()}
    for name, chunks in said["files"].items():
        if Path(name).name != name or not chunks or any(len(chunk) != 3 or min(chunk) < 0 for chunk in chunks):
            raise BadInput(f"{path}: files: {fields.shown(name)}: expected the name of a file here with [at, length, checksum]")
    after = fields.convert(manifest.get("after", ""), str, where=f"{path}: after")
    return Found(folder=Path(folder), digest=digest, after=after, **said)


MOST_MANIFEST = 1 << 30
_HINTS: dict[str, Any] = {"step": int, "state": dict[str, object], "model": dict[str, object] | None,
                          "about": dict[str, object], "files": dict[str, tuple[tuple[int, ...], ...]]}  # fmt: skip


def latest(folder: Path | str) -> Found | None:
    """The checkpoint to go on from, or None when there is none."""
    return choose(folder)[0]


def choose(folder: Path | str) -> tuple[Found | None, str]:
    """The checkpoint to go on from, and a line that says why this one.

    It is the one that `latest` names. A newer one is taken where a run was killed between a save's last two acts: `latest` then
    is as the run wrote it, with the digest of what it names, and the newer checkpoint says that it was saved after that one.
    A name that somebody wrote into `latest` has no digest, or another's: it is obeyed, whatever is newer.
    """
    folder = Path(folder)
    steps = steps_in(folder)
    name, digest = _pointer(folder)
    path = folder / name
    if name and not _whole(path) and _whole(folder / f"{REPLACED}{name}"):
        path = folder / f"{REPLACED}{name}"  # killed while it was being replaced
    if not name or not _whole(path):
        if not steps:
            return None, ""
        named = f"{LATEST} names {name}, which " + ("has no manifest" if path.exists() else "is not there") if name else \
            f"{LATEST} names nothing"
        return open_checkpoint(folder / folder_name(steps[-1])), f"step {steps[-1]}: {named}; this is the newest whole one"
    found = open_checkpoint(path)
    newer = [s for s in steps if s > found.step]
    for step in reversed(newer):
        # One that cannot be read is for the person who points `latest` at it.
        with contextlib.suppress(BadInput):
            other = open_checkpoint(folder / folder_name(step))
            if digest == found.digest == other.after:
                return other, (f"step {step}: saved after step {found.step}, which {LATEST} still names: the run was ended "
                               f"between the two; write {found.folder.name} into {LATEST} to go on from that one")
    why = f"step {found.step}, which {LATEST} names"
    if newer:
        why += f"; step {newer[-1]} is newer: write {folder_name(newer[-1])} into {LATEST} to go on from that one"
    if broken := [p.name for p in sorted(folder.glob("step-*")) if p.name > found.folder.name and not _whole(p)]:
        why += f"; {broken[-1]} is newer, but has no manifest"
    return found, why


def _whole(folder: Path) -> bool:
    return (folder / MANIFEST).exists()


def _pointer(folder: Path) -> tuple[str, str]:
    """What `latest` names, and the digest that only a save writes beside it; empty where it says nothing that could be used."""
    try:
        words = (folder / LATEST).read_bytes().decode().split()
    except (FileNotFoundError, UnicodeDecodeError):
        return "", ""
    name = words[0] if words else ""
    return (name, words[1] if len(words) > 1 else "") if Path(name).name == name else ("", "")


def check_model(found: Found, model: Model) -> None:
    """Refuses a checkpoint of another model, naming the first field that differs. Padding is none of its business."""
    if found.model is None:
        return
    theirs, ours = _shape(fields.build(Model, found.model, where=f"{found.folder / MANIFEST}: model")), _shape(model)
    for name, value in theirs.items():
        if ours.get(name) != value:
            raise BadInput(f"{found.folder}: is of a model with {name} {value}, this one has {ours.get(name)}")


def _shape(model: Model) -> dict[str, object]:
    """What a model is, whether its file says so or leaves it to the defaults."""
    found: dict[str, object] = {"layers": model.layers, "hidden": model.hidden, "heads": model.heads, "kv_heads": model.kv,
                                "head_dim": model.head_size, "ffn": model.inner, "vocab": model.vocab,
                                "norm_eps": model.norm_eps, **fields.plain(model.architecture, keep_defaults=True),
                                **{name: getattr(model, name) for name in ("experts", "latent", "sinks", "mtp",
                                                                           "sliding_window", "full_every")}}
    if model.mixture:
        found |= {"top_k": model.chosen, "shared_experts": model.shared, "expert_ffn": model.expert_inner,
                  "dense_layers": model.dense_layers, "expert_every": model.expert_every,
                  **{f"router.{name}": getattr(model.router, name) for name in ROUTING}}
    if model.learned:
        return found | {"seq": model.seq}
    scaling: tuple[str, ...] = ()
    if model.rope_factor is not None:
        yarn = ("rope_beta_fast", "rope_beta_slow", "rope_truncate", "rope_mscale", "rope_mscale_all_dim")
        scaling = ("rope_scaling", "rope_original_seq", *(yarn if model.yarn else ("rope_low_freq", "rope_high_freq")))
    return found | {name: getattr(model, name) for name in ("rope_theta", "rope_factor", *scaling) if model.rope}


def check(folder: Path | str, model: Model, *, resume: bool) -> Found | None:
    """What the host asks before any rank starts: is there something to resume from, whole and of this model?"""
    found = latest(folder)
    if not resume:
        if found is not None:
            raise BadInput(f"{folder}: already holds a checkpoint of step {found.step}: resume it (recipe.resume = true, "
                           "or --resume), or name another folder")
        return None
    if found is not None:
        check_model(found, model)
        found.verify()
    return found
