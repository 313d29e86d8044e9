"""`seatrial run` and `seatrial train` as a person uses them: real ranks, real failures, one JSON object whatever happens."""
from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pytest

import attempts
from seatrial.engine.io import checkpoint, indexed
from seatrial.engine.watch import events, heartbeat

SMALL = ["--set", "model.layers=2", "--set", "model.hidden=32", "--set", "model.heads=4", "--set", "model.seq=16"]
KEYS = {"status", "losses", "grad_norms", "sec_per_it", "tflops", "formula", "mem_gib", "breakdown", "events"}


def seatrial(*args: object, env: dict[str, str] | None = None) -> tuple[int, dict, str]:
    done = subprocess.run([sys.executable, "-m", "seatrial", *map(str, args), "--json"], capture_output=True, text=True,
                          timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})})
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found.keys() >= KEYS
    return done.returncode, found, done.stderr


CUBE = ["run", "--model", "tiny", "--dp", 2, "--tp", 2, "--pp", 2, "--mbs", 1, "--gbs", 8, "--steps", 4,
        "--set", "model.layers=2", "--set", "recipe.trace_steps=[3]"]


def iterations_of(found: dict) -> list[list[dict]]:
    """Of each iteration, what each rank's timers took."""
    return [e["ranks"] for e in events.read_events(found["events"]) if e["event"] == "iteration"]


def test_a_3d_trial_gives_its_figures_and_its_timers_account_for_the_time(tmp_path):
    status, found, _ = seatrial(*CUBE, "--out", tmp_path)
    assert (status, found["status"]) == (0, "ok")
    assert len(found["losses"]) == len(found["grad_norms"]) == 4 and found["losses"][-1] < found["losses"][0]
    assert found["sec_per_it"] > 0 and found["tflops"] > 0 and found["formula"] == "sc21" and found["mem_gib"] > 0.05
    assert found["tokens_per_s_per_process"] == pytest.approx(8 * 64 / found["sec_per_it"] / 8, rel=1e-3)
    said = events.read_events(found["events"])
    for rank in iterations_of(found)[0]:
        assert rank.keys() <= {"sec", "data", "forward", "recompute", "backward", "loss", "tp_comm", "pp_wait", "pp_send",
                               "grad_reduce", "optimizer", "checkpoint", "weight_gather"}
    # Another process of this machine may have its turn between two timers: then a new run is looked at.
    more = (seatrial(*CUBE)[1] for _ in range(2))
    runs = chain([found], more)

    def the_timers_account_for_the_time() -> None:
        iterations = iterations_of(next(runs))
        for rank in range(8):
            whole = sum(ranks[rank]["sec"] for ranks in iterations)
            named = sum(seconds for ranks in iterations for name, seconds in ranks[rank].items() if name != "sec")
            assert 0.95 <= named / whole <= 1.0001, iterations

    attempts.one_of_three(the_timers_account_for_the_time)
    memory = [e for e in said if e["event"] == "memory"][-1]
    assert len(memory["ranks"]) == 8 and memory["mem_gib"] == found["mem_gib"]
    # Dense fp32 with ZeRO 0: gradients are as large as weights, the optimizer twice that.
    for rank in memory["ranks"]:
        parts = rank["parts"]
        assert parts["optimizer"] == 2 * parts["weights"] > 0 and parts["gradients"] >= parts["weights"]
        assert parts["activations"] > 0
    assert [bool(r["parts"]["logits"]) for r in memory["ranks"]] == [False] * 4 + [True] * 4
    spans = [e for e in json.loads((tmp_path / "trace.step3.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert {e["pid"] for e in spans} == set(range(8))


FAULTS = {
    "raise:1:2": ("crash", 1, "InjectedFault"),
    "die:0:2": ("crash", 0, "SIGKILL"),
    "oom:1:2": ("oom_host", 1, "out of host memory"),
    "nan:1:2": ("nan", 1, "loss of step 2"),
    "stop:1:2": ("hang", 1, "it was stopped by a signal"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_is_an_outcome_with_its_rank_and_what_was_measured_is_kept(tmp_path, fault):
    expected, rank, words = FAULTS[fault]
    status, found, _ = seatrial("run", "--model", "tiny", *SMALL, "--tp", 2, "--gbs", 2, "--steps", 3, "--out", tmp_path,
                                "--set", "recipe.stall_s=8", env={"SEATRIAL_FAULT": fault})
    assert (status, found["status"], found["rank"]) == (3, expected, rank)
    assert words in found["message"] and found["iteration"] == 2
    assert isinstance(found["losses"][0], float) and found["sec_per_it"] > 0
    beats = heartbeat.read(tmp_path)
    assert [b.rank for b in beats] == [0, 1]
    if fault.startswith("stop"):
        assert "step.py" in (tmp_path / heartbeat.FOLDER / "rank0.stacks").read_text()
        flight = json.loads((tmp_path / heartbeat.FOLDER / "rank0.flight.json").read_text())
        assert any("all_reduce" in e["profiling_name"] for e in flight["entries"])
    assert left_behind(tmp_path) == []


def left_behind(out: Path) -> list[str]:
    """Processes that still run with this run file."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().replace("\0", " ")
        except OSError:
            continue
        if f"{out}/run.json" in words:
            found.append(words)
    return found


BAD = {
    "topology": (["--tp", 3], "TP 3"),
    "batch": (["--dp", 4, "--gbs", 6], "DP 4"),
    "schedule": (["--schedule", "interleaved", "--vp", 2], "pp >= 2"),
    "key": (["--set", "model.layer=6"], "did you mean 'layers'"),
    "model": (["--model", "tinny"], "tiny"),
    "precision": (["--precision", "fp8"], "fp32"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_run_is_one_line_and_no_rank_starts(tmp_path, what):
    args, words = BAD[what]
    status, found, err = seatrial("run", "--model", "tiny", "--gbs", 4, *args, "--out", tmp_path / "out")
    assert (status, found["status"]) == (2, "invalid")
    assert words in found["message"] and err.splitlines() == [f"seatrial: {found['message']}"]
    assert not (tmp_path / "out").exists()


def write_corpus(prefix: Path, vocab: int) -> None:
    rng = random.Random(0)
    with indexed.Writer(prefix, vocab=vocab) as out:
        for _ in range(30):
            out.add([rng.randrange(vocab) for _ in range(rng.randrange(5, 60))])


def test_damaged_data_is_refused_before_any_rank_starts(tmp_path):
    write_corpus(tmp_path / "corpus", 300)
    asked = ["run", "--model", "tiny", *SMALL, "--gbs", 2, "--steps", 1, "--out", tmp_path / "out", "--set",
             f"recipe.data={tmp_path / 'corpus'}"]
    status, found, _ = seatrial(*asked)
    assert (status, found["status"]) == (2, "invalid") and "vocabulary of 256" in found["message"]
    bin_path = indexed.bin_path(tmp_path / "corpus")
    bin_path.write_bytes(bin_path.read_bytes()[:-7])
    status, found, _ = seatrial(*asked, "--set", "model.vocab=300")
    assert status == 2 and "cut short" in found["message"] and not (tmp_path / "out").exists()


TOML = """
model = {{ base = "tiny", layers = 2, hidden = 32, heads = 4, seq = 16 }}
topology = {{ tp = 2 }}
batch = {{ gbs = 4 }}
[training]
steps = {steps}
decay_steps = 8
save_every = 1
keep = 20
eval_every = 4
eval_batches = 1
warmup_iterations = 0
stall_s = 60
"""


def losses(out: Path) -> dict[int, float]:
    """The last word on each step: a resumed run trains again what was not saved."""
    return {e["step"]: e["loss"] for e in events.read_events(out / "events.jsonl") if e["event"] == "iteration"}


def test_killed_at_a_random_step_and_resumed_on_another_topology_it_trains_the_same(tmp_path):
    (tmp_path / "run.toml").write_text(TOML.format(steps=8))
    status, whole, _ = seatrial("train", tmp_path / "run.toml", "--out", tmp_path / "whole")
    assert (status, len(whole["losses"]), len(whole["validation"])) == (0, 8, 2)

    # A save waits for the one before: in step 3 that of step 1 is whole, however busy the machine is.
    step = random.randrange(3, 8)
    print(f"killed at step {step}")
    status, killed, _ = seatrial("train", tmp_path / "run.toml", "--out", tmp_path / "cut",
                                 env={"SEATRIAL_FAULT": f"die:{random.randrange(2)}:{step}"})
    assert (status, killed["status"]) == (3, "crash")
    saved = checkpoint.latest(tmp_path / "cut" / "checkpoints")
    assert saved is not None and 1 <= saved.step < step

    refused, found, _ = seatrial("train", tmp_path / "run.toml", "--out", tmp_path / "cut")
    assert refused == 2 and "--resume" in found["message"]

    flipped = next((tmp_path / "cut" / "checkpoints" / checkpoint.folder_name(saved.step)).glob("__1_0.distcp"))
    raw = flipped.read_bytes()
    flipped.write_bytes(raw[:100] + bytes([raw[100] ^ 1]) + raw[101:])
    refused, found, _ = seatrial("train", tmp_path / "run.toml", "--out", tmp_path / "cut", "--resume")
    assert (refused, found["status"]) == (2, "invalid") and "__1_0.distcp" in found["message"]
    flipped.write_bytes(raw)

    status, rest, _ = seatrial("train", tmp_path / "run.toml", "--out", tmp_path / "cut", "--resume", "--set", "topology.tp=1",
                               "--set", "topology.pp=2", "--set", "topology.zero=1")
    assert (status, len(rest["losses"])) == (0, 8 - saved.step)
    assert losses(tmp_path / "cut") == pytest.approx(losses(tmp_path / "whole"), rel=1e-5)
    assert rest["validation"][-1]["loss"] == pytest.approx(whole["validation"][-1]["loss"], rel=1e-5)


def start(*args: object) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "seatrial", *map(str, args), "--json"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_for_step(out: Path, step: int) -> None:
    until = time.monotonic() + 200
    while not (out / "events.jsonl").exists() or max(losses(out), default=0) < step:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_live_folder_is_refused_and_sigterm_writes_a_checkpoint_and_leaves_cleanly(tmp_path):
    (tmp_path / "run.toml").write_text(TOML.format(steps=100_000).replace("save_every = 1\n", ""))
    process = start("train", tmp_path / "run.toml", "--out", tmp_path / "out")
    wait_for_step(tmp_path / "out", 3)
    second = start("train", tmp_path / "run.toml", "--out", tmp_path / "out", "--resume")
    _, refused = second.communicate(timeout=120)
    assert second.returncode == 2 and f"a training is running here (process {process.pid} on " in refused
    assert process.poll() is None and len(left_behind(tmp_path / "out")) == 2
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    found = json.loads(out)
    assert (process.returncode, found["status"]) == (0, "cancelled"), err
    assert found["message"] == f"asked to stop; the checkpoint of step {found['checkpoints'][-1]} is whole"
    said = events.read_events(tmp_path / "out" / "events.jsonl")
    assert said[-1]["event"] == "end" and said[-1]["status"] == "stopped"
    assert checkpoint.latest(tmp_path / "out" / "checkpoints").step == said[-1]["step"] == max(losses(tmp_path / "out"))
    assert left_behind(tmp_path / "out") == []


def test_no_rank_outlives_a_launcher_that_was_killed(tmp_path):
    (tmp_path / "run.toml").write_text(TOML.format(steps=100_000).replace("save_every = 1", "save_every = 50000"))
    process = start("train", tmp_path / "run.toml", "--out", tmp_path / "out")
    wait_for_step(tmp_path / "out", 1)
    assert len(left_behind(tmp_path / "out")) == 2
    process.kill()
    process.communicate(timeout=120)
    until = time.monotonic() + 90
    while left_behind(tmp_path / "out") and time.monotonic() < until:
        time.sleep(0.1)
    assert left_behind(tmp_path / "out") == []
