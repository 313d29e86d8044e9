"""machine.json: whole or not at all, and one line for whatever cannot be used."""
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import machines
from seatrial import machine, presets, trialfile
from seatrial.errors import BadInput
from seatrial.probe.shapes import GemmShape


def test_what_is_written_is_read(tmp_path):
    found = machines.empty()
    found["figures"]["matmul"] = [machines.product(GemmShape("forward", 64, 128, 256), 1e-6)]
    found["missing"] = [{"what": "p2p", "why": "one process alone"}]
    assert machine.read(machines.written(found, tmp_path)) == found


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = machines.written(machines.empty(), tmp_path)
    before = Path(path).read_text()

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadInput, match="No space left on device"):
        machine.write(machines.empty(seconds=99.0), path)
    assert Path(path).read_text() == before
    assert os.listdir(tmp_path) == ["machine.json"]


def broken(**changes: object) -> str:
    return json.dumps({**machines.empty(), **changes})


@pytest.mark.parametrize(("text", "said"), [
    ("{", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("{}", "not a machine file"),
    (json.dumps({"kind": "record"}), "not a machine file"),
    (broken(schema=2), "schema 2, and this version reads 1: probe the machine again"),
    (broken(device={"name": "x"}), "device.kind"),
    (broken(device={**machines.empty()["device"], "usable_gib": -1.0}), "device.usable_gib is -1.0"),
    (broken(figures=[]), "not what a probe writes"),
    (broken(procs_per_node=0), "procs_per_node is 0"),
    (broken(figures={"matmul": [{"rows": 1, "cols": 2, "inner": 3, "batch": 1, "s": 0.0}]}), r"figures.matmul\[0\].s"),
    (broken(between={"rows": 64}), "between is not what a probe writes"),
    (broken(figures={"p2p": [7]}), r"figures.p2p\[0\].nodes"),
])  # fmt: skip
def test_what_is_no_machine_file_is_one_line(tmp_path, text, said):
    path = tmp_path / "machine.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=said) as error:
        machine.read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there_says_how_to_get_one(tmp_path):
    with pytest.raises(BadInput, match=r"No such file or directory; `seatrial probe -o .*` writes one"):
        machine.read(tmp_path / "none.json")


@pytest.mark.parametrize(("measured", "name", "kind", "gib", "same"), [
    ("NVIDIA H200", "H200-SXM-141GB", "gpu", 140.4, True),
    ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB", "gpu", 80.0, False),
    ("NVIDIA H100 80GB HBM3", "H200-SXM-141GB", "gpu", 140.4, False),
    ("NVIDIA H200", "H200-SXM-141GB", "gpu", 80.0, False),
    ("NVIDIA H200", "nvidia h200", "gpu", 80.0, True),
    ("NVIDIA H200", "cpu", "cpu", 140.0, False),
])  # fmt: skip
def test_devices_are_told_apart_by_name_and_memory(measured, name, kind, gib, same):
    found = {"name": measured, "kind": "gpu", "memory_gib": 139.8}
    assert machine.same_device(found, name=name, kind=kind, memory_gib=gib) is same


def test_a_cpu_is_whatever_is_here_unless_it_has_a_name():
    found = {"name": "AMD EPYC", "kind": "cpu", "memory_gib": 24.0}
    assert machine.same_device(found, name="cpu", kind="cpu", memory_gib=8.0)
    assert machine.same_device(found, name="AMD EPYC", kind="cpu", memory_gib=8.0)
    assert not machine.same_device(found, name="A64FX", kind="cpu", memory_gib=24.0)


def test_a_machine_of_another_device_is_refused_when_the_cluster_is_made(tmp_path):
    path = machines.written(machines.empty(), tmp_path)
    with pytest.raises(BadInput, match=r"measured on NVIDIA H200 .*jz-a100 has A100-SXM4-80GB .*cluster.device.name"):
        presets.cluster("jz-a100", {"machine": path})
    named = presets.cluster("jz-a100", {"machine": path, "device": {"name": "NVIDIA H200"}})
    assert named.machine == path


def test_a_machine_file_beside_the_trial_that_names_it_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    path = machines.written(machines.empty(), tmp_path / "runs")
    text = 'model = "tiny"\nbatch = { gbs = 8 }\ncluster = { base = "h200", machine = "machine.json" }\n'
    (tmp_path / "runs" / "trial.toml").write_text(text)
    trial, _ = trialfile.load("runs/trial.toml")
    assert trial.cluster is not None and os.path.samefile(trial.cluster.machine, path)


def test_a_machine_file_changes_no_identity(tmp_path):
    tables = {"model": "tiny", "batch": {"gbs": 8}, "cluster": {"base": "h200", "machine": None}}
    plain, _ = trialfile.build(tables)
    tables["cluster"]["machine"] = machines.written(machines.empty(), tmp_path)
    probed, _ = trialfile.build(tables)
    assert probed.cluster != plain.cluster and probed.run_id() == plain.run_id()
