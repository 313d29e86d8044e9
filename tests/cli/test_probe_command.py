"""`seatrial probe` as it is typed, and what plan, explain and forecast make of its file."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import machines
from seatrial import machine

QUICK = ("--model", "tiny", "--tp", "1", "--mbs", "1", "--device", "cpu")


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "seatrial", *args], cwd=cwd, capture_output=True, text=True, timeout=560,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_probe_then_plan_on_a_laptop(tmp_path):
    probed = ran("probe", *QUICK, "--seconds", "400", cwd=tmp_path)
    assert probed.returncode == 0, probed.stderr
    assert "GiB usable; one process" in probed.stdout and "not measured: 2" in probed.stdout
    assert "one process alone" in probed.stdout and "AdamW" in probed.stdout
    assert os.listdir(tmp_path) == ["machine.json"]
    planned = ran("plan", "--cluster", "here", "--model", "tiny", "--gbs", "8", "--engine", "seatrial", "--json", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    document = json.loads(planned.stdout)
    assert document["machine"]["file"] == "machine.json" and document["machine"]["not_measured"] == []
    assert document["candidates"][0]["sec_per_it"] > 0


def test_ctrl_c_leaves_a_whole_file_that_lists_what_is_missing(tmp_path):
    argv = [sys.executable, "-m", "seatrial.probe", "--device", "cpu", "--full", "--seconds", "500", "-o", "machine.json"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        process.stderr.readline()  # the first parts are done
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(timeout=300) == 0, said
    found = machine.read(tmp_path / "machine.json")
    assert any(entry["why"] == "stopped" for entry in found["missing"]) and found["figures"]["memory"]
    assert os.listdir(tmp_path) == ["machine.json"]


def h200(folder: Path) -> str:
    return machines.written(machines.empty(), folder)


def test_a_machine_of_another_device_is_one_line(seatrial, here):
    said = seatrial("plan", "--machine", h200(here), "--cluster", "jz-a100", "--model", "tiny", "--gbs", 8)
    assert said.status == 2 and said.out == ""
    assert said.err.count("\n") == 1 and "measured on NVIDIA H200" in said.err and "jz-a100 has A100-SXM4-80GB" in said.err


def test_a_machine_of_another_schema_is_one_line(seatrial, here):
    path = here / "machine.json"
    path.write_text(json.dumps(machines.empty(schema=9)))
    for command in (("plan", "--model", "tiny", "--gbs", 8), ("explain", "--model", "tiny", "--gbs", 8)):
        said = seatrial(*command, "--machine", path)
        assert said.status == 2 and said.out == "" and said.err.count("\n") == 1 and "schema 9" in said.err


def test_explain_and_forecast_take_a_machine(seatrial, here):
    found = machines.empty()
    found["figures"]["host"] = [{"forward_s": 0.5, "backward_s": 1.0, "fixed_s": 2.0, "spread": 0.0}]
    path = machines.written(found, here)
    one = ("explain", "--model", "gpt-1.3b", "--cluster", "h200", "--gbs", 8, "--json")
    plain, probed = (json.loads(seatrial(*one, *more).out) for more in ((), ("--machine", path)))
    assert probed["parts_s"]["launch"] > 24 * 1.4 and plain["parts_s"].get("launch", 0.0) < 1.0
    assert "GEMMs in bf16" in probed["machine"]["not_measured"] and "machine" not in plain
    assert "not measured, taken from the data sheet: GEMMs in bf16" in seatrial(*one, "--machine", path).err
    (here / "rows.csv").write_text("layers,hidden,heads,tp,gbs\n24,2048,32,1,8\n")
    rows = [json.loads(seatrial("forecast", "rows.csv", "--cluster", "h200", "--json", *more).out)
            for more in ((), ("--machine", path))]
    assert float(rows[1]["rows"][0]["forecast_sec"]) > float(rows[0]["rows"][0]["forecast_sec"]) + 1.0


@pytest.mark.parametrize(("args", "said"), [
    (("--quick", "--full"), "one of them"),
    (("--device", "tpu"), "use auto, cpu or cuda"),
    (("--tp", "1,x"), "expected a whole number"),
    (("--model", "gpt5"), "no such preset"),
    (("-o", "no/such/folder/machine.json"), "no such folder"),
])  # fmt: skip
def test_what_cannot_be_probed_is_one_line(seatrial, here, args, said):
    found = seatrial("probe", *args)
    assert found.status == 2 and said in found.err and found.err.count("\n") == 1 and os.listdir(here) == []


def test_here_without_a_probe_says_what_to_do(seatrial, here):
    said = seatrial("plan", "--cluster", "here", "--model", "tiny", "--gbs", 8)
    assert said.status == 2 and "`seatrial probe` writes it" in said.err


def test_a_file_that_names_a_cluster_takes_a_machine_too(seatrial, here):
    found = machines.empty()
    found["figures"]["host"] = [{"forward_s": 0.5, "backward_s": 1.0, "fixed_s": 2.0, "spread": 0.0}]
    path = machines.written(found, here)
    trial = 'model = "gpt-1.3b"\nbatch = {{ gbs = 8 }}\ntopology = {{ dp = 8, precision = "bf16" }}\ncluster = {}\n'
    for number, cluster in enumerate(('"h200"', '{ base = "h200" }', '{ base = "h200", machine = "machine.json" }')):
        file = here / f"{number}.toml"
        file.write_text(trial.format(cluster))
        given = () if "machine" in cluster else ("--machine", path)
        said = seatrial("explain", file, *given, "--json")
        assert said.status == 0, said.err
        assert json.loads(said.out)["parts_s"]["launch"] > 24 * 1.4
    sweep = here / "sweep.toml"
    sweep.write_text(trial.format('"h200"') + '[axes]\n"topology.mbs" = [1]\n')
    said = seatrial("forecast", sweep, "--machine", path, "--json")
    assert said.status == 0, said.err
    assert float(json.loads(said.out)["rows"][0]["forecast_sec"]) > 2.0


def test_a_machine_file_that_comes_with_seatrial_goes_by_its_name(seatrial, here):
    asked = ("plan", "--cluster", "h200", "--model", "gpt2-124m", "--gbs", 64, "--json", "--machine")
    document = json.loads(seatrial(*asked, "h200").out)
    assert document["machine"]["file"].endswith("h200.json") and document["candidates"][0]["sec_per_it"] > 0
    said = seatrial(*asked, "nowhere")
    assert said.status == 2 and "comes with seatrial: a100-80gb" in said.err and "h200" in said.err
