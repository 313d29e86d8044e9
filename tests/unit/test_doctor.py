"""The doctor's checks on machines that are not this one, and the scaling and the verdict of its proof."""
from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial import arith, presets, rules
from seatrial.doctor import Finding, machine, network, proof, software, worst
from seatrial.doctor import proof as nodes
from seatrial.spec import GIB, Batch, Model, Topology, Trial


def test_an_old_python_and_an_old_torch_fail_and_a_new_python_is_a_warning() -> None:
    assert [software.python(v).level for v in ((3, 10), (3, 11), (3, 12), (3, 14))] == ["fail", "ok", "ok", "warn"]
    levels = [software.torch_version(v, cuda=None, threads=1).level for v in ("2.9.1", "2.11.0", "2.13.0+cpu", "3.0")]
    assert levels == ["fail", "ok", "ok", "ok"]


def test_a_torch_that_cannot_be_imported_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    last = list(software.findings())[-1]
    assert (last.name, last.level) == ("torch", "fail") and "ModuleNotFoundError" in last.says and last.works


@pytest.mark.parametrize(("there", "gpus", "level"), [
    ({"gloo": True, "nccl": False, "mpi": False}, 0, "ok"),
    ({"gloo": True, "nccl": False, "mpi": False}, 8, "fail"),
    ({"gloo": True, "nccl": True, "mpi": True}, 8, "ok"),
    ({"gloo": False, "nccl": True, "mpi": False}, 0, "fail"),
])  # fmt: skip
def test_the_backend_that_trials_need_must_be_there(there: dict[str, bool], gpus: int, level: str) -> None:
    assert software.backends(there, gpus=gpus).level == level


def test_devices_that_torch_does_not_see_are_told() -> None:
    a100 = ("A100", 80 * GIB)
    assert software.devices([], built_for=None, on_the_bus=0).level == "ok"
    hidden = software.devices([], built_for=None, on_the_bus=8)
    assert hidden.level == "fail" and "build of torch with CUDA" in hidden.works
    assert "driver for CUDA 12.8" in software.devices([], built_for="12.8", on_the_bus=8).works
    assert software.devices([a100], built_for="12.8", on_the_bus=8).level == "warn"
    assert software.devices([a100] * 8, built_for="12.8", on_the_bus=8).says == "8 x A100, 80 GiB each"
    assert software.devices([a100, ("V100", 32 * GIB)], built_for="12.8", on_the_bus=2).level == "warn"


NONE = dict.fromkeys(("torchtitan", "deepspeed", "ninja", "megatron-core", "transformer-engine", "accelerate",
                      "transformers", "megatron-lm"), "")


def test_engines_of_others_are_named_with_what_they_lack() -> None:
    nothing = software.engines(NONE, set())
    assert nothing.level == "ok" and "megatron-core or accelerate or megatron-lm as trials: make engines" in nothing.says
    half = software.engines({**NONE, "megatron-core": "0.14.0"}, {"megatron-core"})
    assert half.level == "warn" and "megatron-core lacks transformer-engine" in half.says
    assert half.works == "pip install transformer-engine" and half.facts == {"megatron-core": "0.14.0"}
    whole = software.engines({**NONE, "deepspeed": "0.18.2", "ninja": "1.13"}, {"deepspeed"})
    assert whole.level == "ok" and "deepspeed 0.18.2" in whole.says
    assert software.engines({**NONE, "torchtitan": "0.2.2"}, set()).level == "warn"


def test_programs_that_start_ranks_are_named_with_how_to_have_them() -> None:
    assert software.launchers({"torchrun"}).says.startswith("ours, torchrun; not here: srun (Slurm's")
    assert software.launchers({"torchrun", "srun"}).level == "warn"
    assert software.launchers({"srun", "sbatch"}).level == "ok"
    assert "mpiexec" in software.launchers({"pjsub"}).says


def test_a_quota_of_cores_and_too_many_threads_are_warnings() -> None:
    assert machine.cores(8, 8, None, None).level == "ok"
    assert machine.cores(8, 64, None, "8").says == "8 of 64 cores, OMP_NUM_THREADS=8"
    assert "gives 2 of them" in machine.cores(8, 8, 2.0, None).says
    assert [machine.cores(2, 2, None, threads).level for threads in ("2", "3", "many")] == ["ok", "warn", "warn"]


def test_memory_is_what_the_least_limit_leaves() -> None:
    there = (64 * GIB, 60 * GIB)
    assert machine.memory(there, None, 0, -1).facts["usable_gib"] == 60
    limited = machine.memory(there, 16 * GIB, 4 * GIB, -1)
    assert limited.facts["usable_gib"] == 12 and "allows 16.0" in limited.says
    assert machine.memory(there, GIB, GIB // 2, -1).level == "fail"
    assert machine.memory(there, None, 0, 2 * GIB).level == "warn"


def test_limits_are_read_from_both_kinds_of_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = tmp_path / "job" / "step", tmp_path / "memory" / "job"
    for folder in (new, old):
        folder.mkdir(parents=True)
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "groups", lambda: iter([new, new.parent, old]))
    assert (machine.limit_bytes(), machine.quota_cores(), machine.used_bytes()) == (None, None, 0)
    (new / "memory.max").write_text("max\n")
    (new.parent / "memory.max").write_text(f"{4 * GIB}\n")
    (old / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (new / "memory.current").write_text("4096\n")
    (new / "cpu.max").write_text("150000 100000\n")
    assert (machine.limit_bytes(), machine.quota_cores(), machine.used_bytes()) == (4 * GIB, 1.5, 4096)


def test_a_library_that_is_not_there_fails_and_one_that_is_loaded_is_named() -> None:
    assert machine.allocator({"LD_PRELOAD": "libnothing.so"}, "", "").level == "fail"
    assert machine.allocator({}, "libtcmalloc_minimal.so.4", "").says == "libtcmalloc_minimal.so.4 is loaded"
    assert "libtcmalloc.so" in machine.allocator({}, "", "libtcmalloc.so").says


def test_a_folder_without_rights_or_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.disk(tmp_path, "tmp").level == "ok"
    usage = machine.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: usage._replace(free=10 * 2**20))
    assert machine.disk(tmp_path, "tmp").level == "fail"
    assert machine.shared_memory(tmp_path).level == "warn"

    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine.tempfile, "NamedTemporaryFile", refused)
    assert (machine.disk(tmp_path, "tmp").level, machine.disk(tmp_path, "disk").level) == ("fail", "warn")


def test_a_clock_that_goes_backwards_fails() -> None:
    assert machine.clock([1e-6, 2e-6], newest=0).level == "ok"
    assert machine.clock([1e-6, -1e-6], newest=0).level == "fail"
    assert machine.clock([0.0, 0.015], newest=0).level == "warn"
    assert machine.clock([1e-6], newest=4e9).level == "warn"


def test_a_scheduler_that_does_not_answer_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "neither" in network.scheduler({}).says
    for name, text in (("sbatch", "exit 0"), ("sinfo", "echo 'slurm_load_partitions: Unable to contact' >&2; exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    found = network.scheduler({})
    assert found.level == "warn" and "Unable to contact" in found.says
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho 'gpu* 48 idle'\n")
    assert network.scheduler({}).says == "Slurm, gpu* 48 idle; --launcher slurm sends trials there"
    assert network.scheduler({"SLURM_JOB_ID": "7"}).says == "Slurm, gpu* 48 idle, inside job 7"


def test_a_name_that_leads_elsewhere_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def leads_to(*addresses: str) -> None:
        monkeypatch.setattr(network.socket, "getaddrinfo", lambda *_: [(0, 0, 0, "", (a, 0)) for a in addresses])

    leads_to("127.0.0.1")
    assert network.network("here").level == "ok"
    leads_to("192.0.2.77")
    assert "which is not this machine" in network.network("here").says

    def unknown(*_: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(network.socket, "getaddrinfo", unknown)
    assert "leads nowhere" in network.network("here").says


def test_clocks_of_nodes_are_compared_and_the_worse_nodes_are_named() -> None:
    assert nodes.skew({"a:0": (0.0, 0.0), "b:4": (0.004, 0.001)}).level == "ok"
    assert nodes.skew({"a:0": (0.0, 0.0), "b:4": (-3.0, 0.001)}).level == "warn"
    fine, full = Finding("disk", "ok", "9 GiB free"), Finding("disk", "fail", "0 GiB free", "100 MiB at least")
    assert nodes.merged({"a:0": [fine], "b:4": [fine]}) == [fine]
    (found,) = nodes.merged({"a:0": [fine], "b:4": [full], "c:8": [full], "d:12": [full]})
    assert found.level == "fail" and found.says.startswith("b:4: 0 GiB free") and found.says.endswith("(and 1 other nodes)")
    assert worst([fine, full]) == "fail" and worst([]) == "ok"


BLOOM = Trial(model=presets.model("bloom-181b"),
              batch=Batch(gbs=2048, rampup_start=192, rampup_increment=16, rampup_samples=9_000),
              topology=Topology(dp=8, tp=4, pp=12, mbs=2, zero=1, recompute="full", precision="bf16"))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 16])
def test_a_topology_is_cut_to_the_ranks_and_what_was_split_stays_split(ranks: int) -> None:
    small, notes = proof.scaled(BLOOM, ranks=ranks)
    t = small.topology
    assert t.world <= ranks and rules.check(small) is not None
    assert (t.zero, t.recompute, t.precision, small.model.family) == (1, "full", "fp32", "bloom")
    assert small.batch.rampup_start is not None
    assert arith.parameters(small.model).total <= proof.SMALL_PARAMETERS
    if ranks >= 8:
        assert min(t.dp, t.tp, t.pp) == 2
    assert any(note.startswith("DP 8 ->") for note in notes) and "GBS 2048 ->" in notes[-1]


LAYOUTS = [{"dp": 4, "zero": 3}, {"tp": 5}, {"tp": 6, "sequence_parallel": True}, {"pp": 4, "vp": 6, "schedule": "interleaved"},
           {"pp": 2, "dp": 3, "schedule": "zb-h1"}, {"dp": 100}, {"tp": 8, "pp": 8, "dp": 8},
           {"pp": 7, "stage_layers": (1,) * 7}, {"cp": 16}, {"cp": 4, "cp_kind": "ulysses", "tp": 2},
           {"cp": 8, "cp_kind": "ulysses+ring"}, {"cp": 8, "cp_kind": "ulysses+ring", "tp": 8, "dp": 4},
           {"cp": 4, "cp_kind": "gather", "tp": 4, "sequence_parallel": True}]
MODELS = [Model(layers=7, hidden=32, heads=4, vocab=101, seq=16), presets.model("llama3-70b"), presets.model("tiny")]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name or "own")
def test_whatever_is_asked_the_scaled_trial_can_run(model: Model, layout: dict) -> None:
    layout = {name: value for name, value in layout.items() if name != "stage_layers" or model.layers == 7}
    trial = Trial(model=model, batch=Batch(gbs=1), topology=Topology(**layout))
    small, _ = proof.scaled(trial, ranks=8, keep_model=False)
    assert 1 < small.topology.world <= 8
    rules.check(small)
    assert small.model.family == model.family and (small.model.kv < small.model.heads) == (model.kv < model.heads)


def test_a_model_that_is_small_already_is_taken_as_it_is() -> None:
    trial = Trial(model=MODELS[0], batch=Batch(gbs=8), topology=Topology(pp=2, stage_layers=(3, 4)))
    small, notes = proof.scaled(trial, ranks=8)
    assert small.model == MODELS[0] and small.topology == trial.topology and notes == []


GOOD = proof.Series(losses=(5.0, 4.5, 4.0), norms=(1.0, 1.1, 1.2))


def verdict(many: proof.Series, alone: proof.Series = GOOD) -> Finding:
    return proof.verdict("DP 2", many, alone, notes=[], facts={})


def test_losses_beyond_the_bar_fail_and_within_it_pass() -> None:
    assert verdict(replace(GOOD, losses=(5.0, 4.5, 4.0 * (1 + 5e-6)))).level == "ok"
    for wrong in ((5.0, 4.5, 4.0 * (1 + 5e-5)), (5.0, 4.5), (), (5.0, 4.5, float("nan"))):
        assert verdict(replace(GOOD, losses=wrong)).level == "fail"
    assert verdict(replace(GOOD, norms=(1.0, 1.1, 1.3))).level == "fail"


def test_equal_losses_that_do_not_fall_prove_nothing() -> None:
    flat = replace(GOOD, losses=(5.0, 5.0, 5.0))
    assert verdict(flat, flat).level == "fail"


def test_documents_are_proved_in_the_short_sequence_too() -> None:
    packed = replace(BLOOM, batch=replace(BLOOM.batch, documents="lognormal:800:1"))
    small, notes = proof.scaled(packed, ranks=4)
    assert small.batch.documents == f"uniform:{small.model.seq // 8}:{5 * small.model.seq // 8}"
    assert f"documents lognormal:800:1 -> {small.batch.documents}" in notes


@pytest.mark.parametrize("layout", [{"dp": 64, "ep": 64, "pp": 16}, {"tp": 4, "dp": 16, "ep": 32, "etp": 1},
                                    {"tp": 8, "dp": 2, "ep": 2}, {"dp": 8, "ep": 2, "etp": 4}], ids=str)
@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-235b-a22b", "deepseek-v3", "tiny-moe"])
def test_experts_stay_divided_in_the_scaled_trial(name: str, layout: dict) -> None:
    trial = Trial(model=presets.model(name), batch=Batch(gbs=1), topology=Topology(**layout))
    small, _ = proof.scaled(trial, ranks=8, keep_model=False)
    assert small.topology.ep > 1 and small.model.expert_layers > 0
    rules.check(small)
