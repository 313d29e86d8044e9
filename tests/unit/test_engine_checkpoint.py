"""Checkpoints: any layout reads what any other wrote, nothing half-written is ever found, and no flipped byte passes."""
from __future__ import annotations

import io
import os
import pickle
import random
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.engine.io import checkpoint, dcp
from seatrial.engine.io.checkpoint import Checkpointer
from seatrial.engine.io.dcp import Chunk
from seatrial.errors import BadInput
from seatrial.spec import Model

MODEL = Model(layers=2, hidden=8, heads=2, vocab=300, seq=16)
TENSORS = {"model.a": torch.arange(60, dtype=torch.float32).reshape(12, 5), "optim.exp_avg.b": torch.arange(7.0),
           "model.c": torch.tensor(3.5)}


def cut(world: int, *, rows: bool = True) -> list[list[Chunk]]:
    """The tensors over `world` ranks, by rows or by columns, as uneven as it comes; a scalar belongs to rank 0."""
    ranks: list[list[Chunk]] = [[] for _ in range(world)]
    for key, tensor in TENSORS.items():
        if tensor.dim() == 0:
            ranks[0].append(Chunk(key=key, shape=(), offsets=(), tensor=tensor.clone()))
            continue
        dim = 0 if rows or tensor.dim() == 1 else 1
        at = 0
        for rank, piece in enumerate(tensor.tensor_split(world, dim)):
            offsets = [0] * tensor.dim()
            offsets[dim] = at
            at += piece.shape[dim]
            if piece.numel():
                ranks[rank].append(Chunk(key=key, shape=tuple(tensor.shape), offsets=tuple(offsets), tensor=piece))
    return ranks


def save(folder, world: int, step: int, *, rows: bool = True, keep: int = 3) -> None:
    keepers = [Checkpointer(folder, rank=r, world=world, keep=keep, model=MODEL) for r in range(world)]
    for keeper, chunks in reversed(list(zip(keepers, cut(world, rows=rows)))):
        keeper.save(step, chunks, {"consumed_samples": step * 16})
    for keeper in keepers:
        keeper.wait()


@settings(max_examples=12, deadline=None)
@given(before=st.integers(1, 5), after=st.integers(1, 5), rows_before=st.booleans(), rows_after=st.booleans())
def test_any_layout_reads_what_any_other_wrote(tmp_path_factory, before, after, rows_before, rows_after):
    folder = tmp_path_factory.mktemp("c")
    save(folder, before, 3, rows=rows_before)
    found = checkpoint.check(folder, MODEL, resume=True)
    assert (found.step, found.state) == (3, {"consumed_samples": 48})
    for wanted in cut(after, rows=rows_after):
        expected = [c.tensor.clone() for c in wanted]
        targets = [Chunk(key=c.key, shape=c.shape, offsets=c.offsets, tensor=torch.full_like(c.tensor, -1)) for c in wanted]
        found.reader().fill(targets)
        assert all(torch.equal(t.tensor, e) for t, e in zip(targets, expected))


def test_torchs_own_tools_read_it(tmp_path):
    import torch.distributed.checkpoint as torch_dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    save(tmp_path, 3, 1)
    state = {key: torch.zeros_like(tensor) for key, tensor in TENSORS.items()}
    torch_dcp.load(state, checkpoint_id=str(tmp_path / "step-00000001"), no_dist=True)
    assert all(torch.equal(state[key], tensor) for key, tensor in TENSORS.items())
    dcp_to_torch_save(str(tmp_path / "step-00000001"), str(tmp_path / "whole.pt"))
    whole = torch.load(tmp_path / "whole.pt", weights_only=True)
    assert all(torch.equal(whole[key], tensor) for key, tensor in TENSORS.items())


def test_training_goes_on_while_a_checkpoint_is_written_and_does_not_change_it(tmp_path, monkeypatch):
    written, go = dcp.write_chunks, threading.Event()
    monkeypatch.setattr(dcp, "write_chunks", lambda *args: go.wait(30) and written(*args))
    keeper = Checkpointer(tmp_path, rank=0, world=1)
    tensor = torch.ones(4)
    keeper.save(1, [Chunk(key="x", shape=(4,), offsets=(0,), tensor=tensor)], {})
    assert keeper.busy and checkpoint.latest(tmp_path) is None
    tensor += 1
    go.set()
    keeper.wait()
    assert torch.equal(checkpoint.latest(tmp_path).reader().whole("x"), torch.ones(4))


def test_only_the_last_few_are_kept_and_latest_names_the_newest(tmp_path):
    keeper = Checkpointer(tmp_path, rank=0, world=1, keep=2)
    for step in range(5):
        keeper.save(step, cut(1)[0], {})
    keeper.wait()
    assert checkpoint.steps_in(tmp_path) == [3, 4] and checkpoint.latest(tmp_path).step == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-00000003", "step-00000004"]


def test_a_run_killed_while_writing_leaves_the_last_whole_one(tmp_path):
    save(tmp_path, 2, 1)
    half = Checkpointer(tmp_path, rank=1, world=2)
    half.save(2, cut(2)[1], {})
    half.wait()  # rank 0 never writes
    assert checkpoint.latest(tmp_path).step == 1
    save(tmp_path, 2, 2)  # and the next run clears what it left
    assert checkpoint.latest(tmp_path).step == 2 and not list(tmp_path.glob(".writing*"))


def test_no_flipped_byte_passes(tmp_path):
    save(tmp_path, 2, 1)
    rng = random.Random(1)
    folder = tmp_path / "step-00000001"
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        for at in {0, len(raw) - 1, *(rng.randrange(len(raw)) for _ in range(20))}:
            path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :])
            with pytest.raises(BadInput) as caught:
                checkpoint.check(tmp_path, MODEL, resume=True)
            assert str(path) in str(caught.value) and "\n" not in str(caught.value)
        path.write_bytes(raw[:-1])
        with pytest.raises(BadInput, match=path.name.replace(".", r"\.")):
            checkpoint.check(tmp_path, MODEL, resume=True)
        path.write_bytes(raw)
    assert checkpoint.check(tmp_path, MODEL, resume=True).step == 1


def test_a_rank_that_loads_verifies_what_it_reads(tmp_path):
    save(tmp_path, 1, 1)
    path = tmp_path / "step-00000001" / "__0_0.distcp"
    reader = checkpoint.latest(tmp_path).reader()
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 6] ^= 4
    path.write_bytes(raw)
    with pytest.raises(BadInput, match="__0_0.distcp.*checksum"):
        for key in TENSORS:
            reader.whole(key)


def test_the_pickle_of_the_format_can_name_nothing_but_plain_classes(tmp_path):
    class Attack:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    (tmp_path / ".metadata").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(BadInput, match="mkdir"):
        dcp.read_metadata(tmp_path)
    assert not (tmp_path / "owned").exists()
    (tmp_path / ".metadata").write_bytes(pickle.dumps(io.BytesIO))
    with pytest.raises(BadInput, match="BytesIO"):
        dcp.read_metadata(tmp_path)


def test_another_model_and_an_unasked_resume_are_refused(tmp_path):
    save(tmp_path, 1, 1)
    with pytest.raises(BadInput, match="layers 2, this one has 4"):
        checkpoint.check(tmp_path, Model(layers=4, hidden=8, heads=2, vocab=300, seq=16), resume=True)
    said = Model(layers=2, hidden=8, heads=2, vocab=300, seq=16, tied=True, ffn=32, kv_heads=2, name="x", pad_vocab_to=512)
    assert checkpoint.check(tmp_path, said, resume=True).step == 1  # what the other left to its defaults
    with pytest.raises(BadInput, match="--resume"):
        checkpoint.check(tmp_path, MODEL, resume=False)
    assert checkpoint.check(tmp_path / "empty", MODEL, resume=True) is None


def test_a_forgotten_slice_is_found_when_saving(tmp_path):
    keeper = Checkpointer(tmp_path, rank=0, world=1)
    keeper.save(1, [Chunk(key="x", shape=(4,), offsets=(0,), tensor=torch.ones(3))], {})
    with pytest.raises(RuntimeError, match="4 elements and 3"):
        keeper.wait()
    assert checkpoint.latest(tmp_path) is None


def test_a_rank_that_cannot_write_stops_the_save_and_not_the_old_one(tmp_path, monkeypatch):
    save(tmp_path, 2, 1)
    keepers = [Checkpointer(tmp_path, rank=r, world=2) for r in range(2)]
    written = dcp.write_chunks
    monkeypatch.setattr(dcp, "write_chunks", lambda folder, rank, chunks: full() if rank else written(folder, rank, chunks))

    def full():
        raise OSError(28, "No space left on device")

    for keeper, chunks in zip(keepers, cut(2)):
        keeper.save(2, chunks, {})
    with pytest.raises(RuntimeError, match="rank 1: OSError.*No space"):
        keepers[0].wait()
    with pytest.raises(OSError):
        keepers[1].wait()
    assert checkpoint.latest(tmp_path).step == 1
