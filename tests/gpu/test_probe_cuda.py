"""The probe on a CUDA device: every part that one process can measure, in a few seconds."""
from __future__ import annotations

import pytest
import torch

from seatrial import machine, presets
from seatrial.engine.rendezvous import RankInfo
from seatrial.plan import probed, step
from seatrial.plan.configs import Configs
from seatrial.probe import run as probing
from seatrial.probe.options import ProbeOptions

pytestmark = pytest.mark.gpu


def test_a_probe_of_a_gpu_makes_a_cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(probing.Ranks, "stop_on_signal", lambda self: None)
    monkeypatch.setattr(probing, "BURN_S", 0.2)
    model = presets.model("gpt2-124m")
    ask = ProbeOptions.of(models=[model], tps=(1,), mbss=(4,), device="cuda", budget_s=240.0)
    found = probing.probe(ask, RankInfo(), torch.device("cuda", 0), say=print)
    machine.write(found, tmp_path / "machine.json")
    figures = machine.read(tmp_path / "machine.json")["figures"]
    assert all(figures[part] for part in ("host", "launch", "memory", "optimizer", "copies", "matmul", "attention"))
    assert {entry["dtype"] for entry in figures["matmul"]} >= {"bf16", "fp16", "fp32"}
    device = found["device"]
    assert 0.8 * device["memory_gib"] < device["usable_gib"] <= device["memory_gib"]
    # No product is faster than any device there is, and a copy cannot outrun its memory.
    best = max(2e-12 * p["rows"] * p["cols"] * p["inner"] * p["batch"] / p["s"] for p in figures["matmul"])
    assert 1 < best < 5000
    # Within a kernel's own order of magnitude the clock must not count the host: a tiny copy takes microseconds, not tens.
    assert figures["launch"][0]["s"] < 50e-6

    cluster = presets.cluster(str(tmp_path / "machine.json"))
    c = Configs.from_columns(1, layers=12, hidden=768, heads=12, seq=1024, vocab=50304, gbs=4, mbs=4)
    assert 0 < step.time(c, cluster).sec[0] < 5
    told = probed.basis(cluster, precision="bf16", processes=1)
    assert told is not None and told["not_measured"] == []
