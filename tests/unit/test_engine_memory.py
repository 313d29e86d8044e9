"""The tracker counts each live storage once and takes it off when it dies; a trace holds every rank's spans."""
from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch._C import _len_torch_dispatch_stack

from seatrial.engine import loop
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.io.data import Batches
from seatrial.engine.rendezvous import RankInfo
from seatrial.engine.runfile import RunFile
from seatrial.engine.watch import memory
from seatrial.engine.watch.events import FILE_NAME, read_events
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.engine.watch.report import RankSpans, Scalars, write_trace
from seatrial.engine.watch.timers import Span
from seatrial.engine.watch.tracker import LiveStorages, tracker
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial


def test_a_storage_is_counted_once_and_taken_off_when_it_dies():
    with LiveStorages() as live:
        x = torch.zeros(1000)
        views = [x[:10], x.view(10, 100), x.t()]
        assert live.live["activations"] == 4000
        y = x + 1
        assert live.live["activations"] == 8000
        del x
        assert live.live["activations"] == 8000  # the views hold it
        del views
        assert live.live["activations"] == 4000
        z = torch.zeros(500)
        assert live.peak_bytes == 8000 and live.live["activations"] == 6000
        del y, z
    assert sum(live.live.values()) == 0


def test_saved_activations_are_seen_until_backward_frees_them():
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)])
    static = sum(p.numel() * 4 for p in layers.parameters())
    x = torch.zeros(100, 64)
    with LiveStorages(tagged={"weights": layers.parameters()}) as live:
        loss = layers(x).square().mean()
        # Each layer keeps its linear's output and its activation's; of the last square's, one.
        held = live.live["activations"]
        assert 8 * 100 * 64 * 4 <= held <= 10 * 100 * 64 * 4
        loss.backward()
        assert live.live["activations"] < held - 6 * 100 * 64 * 4 + static
    assert live.live["weights"] == static == live.by_part()["weights"]


def test_parts_are_told_apart_and_the_fullest_moment_is_kept():
    weights = torch.zeros(10, 300)
    with LiveStorages(tagged={"weights": [weights, weights[0]]}, logits_cols=300) as live:
        h = torch.zeros(7, 10)
        logits = h @ weights
        del logits, h
        torch.zeros(5)
    assert live.at_peak == {"weights": 12000, "activations": 280, "logits": 8400, "gradients": 0, "optimizer": 0, "buffers": 0}
    assert live.peak_bytes == 12000 + 280 + 8400


def test_a_resized_storage_is_followed():
    whole = torch.zeros(1000)
    with LiveStorages(tagged={"weights": [whole]}) as live:
        whole.untyped_storage().resize_(0)
        torch.zeros(1)
        assert live.live["weights"] == 0
        whole.untyped_storage().resize_(4000)
        torch.zeros(1)
        assert live.live["weights"] == 4000


def test_the_kernel_is_asked_for_this_processs_own_peak():
    before = memory.peaks(torch.device("cpu"))
    block = torch.ones(2**27, dtype=torch.uint8)
    after = memory.peaks(torch.device("cpu"))
    assert block.sum() == 2**27
    assert after["rss_peak_gib"] >= before["rss_peak_gib"] > 0
    assert 0 < after["node_used_gib"] < after["node_total_gib"]
    assert memory.used_gib(after) == after["rss_peak_gib"]
    assert memory.used_gib({**after, "reserved_peak_gib": 5.0}) == 5.0


def test_a_gpus_peak_is_of_the_run_and_not_of_what_was_tried_before_it(monkeypatch):
    done = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("emptied"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: done.append(str(device)))
    memory.forget_peaks(torch.device("cpu"))
    assert done == []
    memory.forget_peaks(torch.device("cuda", 3))
    assert done == ["emptied", "cuda:3"]


def test_a_run_forgets_them_when_its_engine_is_built(monkeypatch, tmp_path):
    class Built(Exception):
        pass

    def forget(device):
        raise Built(str(device))

    monkeypatch.setattr(memory, "forget_peaks", forget)
    trial = Trial(model=Model(layers=1, hidden=16, heads=2, vocab=32, seq=8), batch=Batch(gbs=1), topology=Topology())
    with pytest.raises(Built, match="cpu"):
        loop.train(RunFile(out=str(tmp_path), trial=trial, recipe=Recipe(steps=1)), RankInfo(),
                   torch.device("cpu"), Heartbeat(None, 0))


def test_a_run_says_its_memory_with_no_tracker_in_it(monkeypatch, tmp_path):
    """Its parts are counted; a tracker of the same step sees them too, but only when it is asked for."""
    seen, resize, step = [], torch.UntypedStorage.resize_, Engine.step

    def watched(engine, *given, **named):
        seen.append((torch.UntypedStorage.resize_ is resize, _len_torch_dispatch_stack()))
        return step(engine, *given, **named)

    monkeypatch.setattr(Engine, "step", watched)
    trial = Trial(model=Model(layers=3, hidden=64, heads=4, vocab=512, seq=64), batch=Batch(gbs=4), topology=Topology(mbs=4),
                  execution=Execution(logits_chunk=64))
    recipe = Recipe(steps=2)
    loop.train(RunFile(out=str(tmp_path), trial=trial, recipe=recipe), RankInfo(), torch.device("cpu"), Heartbeat(None, 0))
    assert seen == [(True, 0)] * 2
    events = read_events(tmp_path / FILE_NAME)
    (kernels,) = (e for e in events if e["event"] == "kernels")
    assert {"fused": False, "triton": [], "attention": "default"}.items() <= kernels["config"].items()
    assert kernels["compile"] is False
    said = [e for e in events if e["event"] == "memory"]
    assert [e["step"] for e in said] == [1, 2] and all(e["mem_gib"] == e["fullest"]["rss_peak_gib"] > 0 for e in said)
    engine = Engine(trial, recipe, Mesh(trial.topology, device=torch.device("cpu")))
    with tracker(engine) as live:
        step(engine, 1, first_sample=0, batches=Batches(recipe, trial.model, recipe.seed))
    assert said[0]["fullest"]["parts"] == pytest.approx(live.by_part(), rel=0.05)


def test_scalars_are_written_where_tensorboard_is_and_nowhere_else(tmp_path, monkeypatch):
    import sys
    from types import SimpleNamespace

    written = []

    class Writer:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, *what):
            written.append(what)

        def close(self):
            written.append("closed")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as where it is not installed
    without = Scalars(tmp_path)
    without.write(1, {"loss": 2.0})
    assert not without.available
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    scalars = Scalars(tmp_path)
    scalars.write(3, {"loss": 2.5})
    scalars.close()
    assert scalars.available and written == [str(tmp_path), ("loss", 2.5, 3), "closed"]
    assert not Scalars(None).available


def test_a_trace_sets_the_ranks_under_each_other_on_one_clock(tmp_path):
    ranks = [RankSpans(rank=r, origin_s=100.0 + r, spans=[Span("forward", 0.0, 0.5), Span("backward", 0.5, 1.5)])
             for r in (1, 0)]
    write_trace(tmp_path / "trace.json", step=3, ranks=ranks)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [(e["pid"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert spans == [(0, "forward", 0, 5e5), (0, "backward", 5e5, 1e6), (1, "forward", 1e6, 5e5), (1, "backward", 1.5e6, 1e6)]
