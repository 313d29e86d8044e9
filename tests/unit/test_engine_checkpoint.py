"""Checkpoints: any layout reads what any other wrote, nothing half-written is ever found, and no flipped byte passes."""
from __future__ import annotations

import io
import os
import pickle
import random
import threading
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.engine.io import checkpoint, dcp
from seatrial.engine.io.checkpoint import Checkpointer
from seatrial.engine.io.dcp import Chunk
from seatrial.errors import BadInput
from seatrial.files import write_whole
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
    with pytest.raises(BadInput, match="sliding_window None, this one has 4"):
        checkpoint.check(tmp_path, replace(MODEL, sliding_window=4), resume=True)
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
    monkeypatch.setattr(dcp, "write_chunks", lambda folder, rank, *rest: full() if rank else written(folder, rank, *rest))

    def full():
        raise OSError(28, "No space left on device")

    for keeper, chunks in zip(keepers, cut(2)):
        keeper.save(2, chunks, {})
    with pytest.raises(RuntimeError, match="rank 1: OSError.*No space"):
        keepers[0].wait()
    with pytest.raises(OSError):
        keepers[1].wait()
    assert checkpoint.latest(tmp_path).step == 1


# ---- a save happens or fails, and what is gone on from is said


def one(step: int, value: float) -> list[Chunk]:
    return [Chunk(key="x", shape=(2,), offsets=(0,), tensor=torch.full((2,), value))]


def train(folder, steps: list[int], *, value: float, keep: int = 9) -> None:
    """A run that goes on from what is there and saves at these steps."""
    keeper = Checkpointer(folder, rank=0, world=1, keep=keep, model=MODEL)
    found = checkpoint.latest(folder)
    keeper.after = found.digest if found is not None else ""
    for step in steps:
        keeper.save(step, one(step, value), {"consumed_samples": step})
    keeper.wait()
    assert keeper.saved == steps


def values(folder) -> dict[int, float]:
    return {s: checkpoint.open_checkpoint(folder / checkpoint.folder_name(s)).reader().whole("x")[0].item()
            for s in checkpoint.steps_in(folder)}


def test_after_latest_was_pointed_back_the_new_past_replaces_the_old(tmp_path):
    train(tmp_path, [1, 2, 3], value=1.0)
    (tmp_path / "latest").write_text("step-00000001\n")
    found, why = checkpoint.choose(tmp_path)
    assert found.step == 1 and "step 3 is newer: write step-00000003 into latest" in why
    train(tmp_path, [2], value=2.0)
    assert values(tmp_path) == {1: 1.0, 2: 2.0, 3: 1.0}
    found, why = checkpoint.choose(tmp_path)  # step 3 is of the other past, and was not saved after this step 2
    assert found.step == 2 and "step 3 is newer" in why
    train(tmp_path, [3], value=2.0)
    assert values(tmp_path) == {1: 1.0, 2: 2.0, 3: 2.0} and checkpoint.choose(tmp_path)[1] == "step 3, which latest names"
    assert not list(tmp_path.glob(".*"))


def test_a_new_past_does_not_remove_its_own_checkpoints_for_the_old_ones(tmp_path):
    train(tmp_path, [1, 5, 6, 7], value=1.0)
    (tmp_path / "latest").write_text("step-00000001")
    train(tmp_path, [2, 3], value=2.0, keep=2)
    assert values(tmp_path) == {2: 2.0, 3: 2.0, 5: 1.0, 6: 1.0, 7: 1.0}
    assert checkpoint.latest(tmp_path).step == 3


def test_a_run_killed_between_the_name_and_the_pointer_goes_on_from_the_newer(tmp_path, monkeypatch):
    train(tmp_path, [1], value=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_whole",
                      lambda path, *rest, **how: killed() if path.name == "latest" else write_whole(path, *rest, **how))
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, [2], value=1.0)
    assert (tmp_path / "latest").read_text().startswith("step-00000001")
    found, why = checkpoint.choose(tmp_path)
    assert found.step == 2 and "write step-00000001 into latest" in why
    (tmp_path / "latest").write_text("step-00000001")  # as it says
    assert checkpoint.choose(tmp_path)[0].step == 1


def killed():
    raise KeyboardInterrupt


def test_a_run_killed_while_it_replaces_a_checkpoint_leaves_the_old_one(tmp_path, monkeypatch):
    train(tmp_path, [1, 2], value=1.0)
    (tmp_path / "latest").write_text("step-00000001")
    renamed = os.rename
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "rename", lambda a, b: killed() if a.name.startswith(".writing") else renamed(a, b))
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, [2], value=2.0)
    (tmp_path / "latest").write_text("step-00000002")
    assert checkpoint.latest(tmp_path).reader().whole("x")[0] == 1.0
    train(tmp_path, [3], value=3.0)
    assert values(tmp_path) == {1: 1.0, 2: 1.0, 3: 3.0} and not list(tmp_path.glob(".*"))


def test_a_step_without_its_manifest_is_said_and_written_again(tmp_path):
    train(tmp_path, [1, 2], value=1.0)
    (tmp_path / "step-00000002" / "manifest.json").unlink()
    found, why = checkpoint.choose(tmp_path)
    assert found.step == 1 and why == "step 1: latest names step-00000002, which has no manifest; this is the newest whole one"
    train(tmp_path, [2], value=2.0)
    assert values(tmp_path) == {1: 1.0, 2: 2.0}


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00", b"", b"../elsewhere", b"step-00000009"])
def test_a_latest_that_names_nothing_is_said(tmp_path, raw):
    train(tmp_path, [1, 2], value=1.0)
    (tmp_path / "latest").write_bytes(raw)
    found, why = checkpoint.choose(tmp_path)
    assert found.step == 2 and why.startswith("step 2: latest names ") and why.endswith("the newest whole one")


def test_a_full_disk_says_where(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dcp.os, "fsync", full)
    keeper = Checkpointer(tmp_path, rank=0, world=1)
    keeper.save(1, one(1, 1.0), {})
    with pytest.raises(OSError, match="No space left on device: '.*__0_0.distcp'"):
        keeper.wait()


def test_a_save_that_failed_is_said_before_the_next_one_is_due(tmp_path, monkeypatch):
    monkeypatch.setattr(dcp, "write_chunks", lambda *_: killed())
    keeper = Checkpointer(tmp_path, rank=0, world=1)
    keeper.save(1, one(1, 1.0), {})
    while keeper.busy:
        pass
    with pytest.raises(KeyboardInterrupt):
        keeper.check()


def test_rank_0_waits_while_another_part_grows(tmp_path):
    """Its own limit is a quarter of what the other takes."""
    keepers = [Checkpointer(tmp_path, rank=r, world=2, timeout_s=0.5) for r in range(2)]

    def slowly():
        for row in range(8):
            time.sleep(0.25)
            yield Chunk(key="y", shape=(8, 1 << 16), offsets=(row, 0), tensor=torch.ones(1, 1 << 16))

    keepers[0].save(1, one(1, 1.0), {})
    keepers[1].write(1, slowly(), {})
    keepers[0].wait()
    assert checkpoint.latest(tmp_path).step == 1


def test_every_piece_of_a_chunk_is_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(dcp, "PIECE_BYTES", 1000)
    monkeypatch.setattr(dcp, "SYNC_BYTES", 3000)
    told: list[int] = []
    tensor = torch.arange(5000, dtype=torch.float32)
    dcp.write_chunks(tmp_path, 0, [Chunk(key="x", shape=(5000,), offsets=(0,), tensor=tensor)], told.append)
    assert len(told) >= 20 and sum(told) == tensor.nbytes
    save(tmp_path / "c", 1, 1)
    read: list[int] = []
    monkeypatch.setattr(dcp, "PIECE_BYTES", 100)
    assert torch.equal(checkpoint.latest(tmp_path / "c").reader(read.append).whole("model.a"), TENSORS["model.a"])
    assert len(read) > 10 and sum(read) == TENSORS["model.a"].nbytes


def test_a_long_wait_says_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "TELL_S", 0.02)
    told, written = threading.Event(), dcp.write_chunks
    monkeypatch.setattr(dcp, "write_chunks", lambda *args: told.wait(30) and written(*args))
    keeper = Checkpointer(tmp_path, rank=0, world=1)
    keeper.save(1, one(1, 1.0), {})
    keeper.wait(told.set)
    assert checkpoint.latest(tmp_path).step == 1 and not keeper.busy
