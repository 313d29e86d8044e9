"""The share of a device's peak that a run reached: of the device that it ran on, and nothing where that is not known."""
from __future__ import annotations

from dataclasses import replace

import pytest

from seatrial import presets
from seatrial.measurement import rates
from seatrial.spec import Batch, Topology, Trial


@pytest.mark.parametrize(("called", "peak"), [
    ("NVIDIA A100-SXM4-80GB", 312), ("NVIDIA A100-SXM4-40GB", 312), ("NVIDIA A100 80GB PCIe", 312), ("NVIDIA H200", 989.4),
    ("NVIDIA H100 80GB HBM3", 989.4), ("NVIDIA H100 PCIe", 756), ("NVIDIA B200", 2250), ("AMD Instinct MI300X", 1307.4),
    ("NVIDIA H100 NVL", None), ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None), ("NVIDIA A100-PCIE-40GB", None),
    ("NVIDIA H20", None), ("Tesla V100-PCIE-32GB", None), ("x86_64", None), ("", None),
])  # fmt: skip
def test_a_device_is_known_by_what_its_driver_calls_it(called, peak):
    found = presets.device_called(called)
    assert (found and found.peak_tflops["bf16"]) == (peak and pytest.approx(peak, rel=0.01))


def test_mfu_is_of_the_device_that_it_ran_on():
    trial = Trial(model=presets.model("tiny"), batch=Batch(gbs=8), topology=Topology(precision="bf16"))
    on = replace(trial, cluster=presets.cluster("jz-a100"))
    gpu, cpu = ({"event": "memory", "fullest": {name: 1.0}} for name in ("reserved_peak_gib", "rss_peak_gib"))
    hopper, here = ({"event": "start", "device": name} for name in ("NVIDIA H100 80GB HBM3", "x86_64"))
    a100 = rates(on, 1.0)["mfu"]
    assert rates(on, 1.0, [hopper, gpu])["mfu"] == a100, "the cluster that is described comes first"
    assert rates(on, 1.0, [here, cpu])["mfu"] is None, "the A100's peak is not this CPU's"
    assert rates(trial, 1.0)["mfu"] is rates(trial, 1.0, [here, cpu])["mfu"] is None
    assert rates(trial, 1.0, [hopper, gpu])["mfu"] == pytest.approx(a100 * 312 / 989.4, rel=1e-3)
