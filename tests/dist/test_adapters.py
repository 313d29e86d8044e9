"""Engines that are not ours, end to end: emitted, started, read, recorded; and how they fail.

The plain FSDP2 script of the examples needs torch alone and always runs. The others run where they are installed
(`make engines`), and are skipped with a line elsewhere.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.engines.each import each
from benchmarks.engines.rules import rules

from seatrial import shipped, trialfile
from seatrial.arith import parameters
from seatrial.engines import ENGINES, homes
from seatrial.launch import files
from seatrial.launch.local import Local
from seatrial.launch.trial import Limits, run_now, run_trial
from seatrial.plan.emit import megatron_lm
from seatrial.record import Record

SMALL = {"model": {"base": "tiny", "layers": 2}, "batch": {"gbs": 4}, "recipe": {"steps": 3}}
LLAMA = {**SMALL, "model": {"base": "tiny-llama", "layers": 2}}
FAULTY = """
import os, signal, sys, time
rank, kind = os.environ["RANK"], {kind!r}
import torch
import torch.distributed as dist
def all_reduce(tensor, *more, before=dist.all_reduce):
    all_reduce.step += 1
    if rank == "1" and all_reduce.step == 2:
        if kind == "raise": raise ValueError("gradients of rank 1 are gone")
        if kind == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if kind == "stop": os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "loop":
            while True: time.sleep(0.1)
        if kind == "memory": torch.empty(1 << 50)
        if kind == "nan": tensor.fill_(float("nan"))
    return before(tensor, *more)
all_reduce.step = 0
dist.all_reduce = all_reduce
sys.path.insert(0, {folder!r})
import fsdp2
fsdp2.main()
"""


def needs(name: str) -> pytest.MarkDecorator:
    module = ENGINES.get(name)().module
    there = homes.version(name) if name in homes.CHECKOUTS else homes.found(name, module)
    return pytest.mark.skipif(not there, reason=f"{name} is not installed: make engines ENGINES={name}")


def run(tmp_path: Path, engine: str, data: dict, *settings: str) -> dict:
    trial, recipe = trialfile.build({**data, "engine": engine}, settings)
    return run_now(trial, recipe, out=tmp_path / "run", timeout_s=240)


OURS = {"status", "run_id", "losses", "grad_norms", "sec_per_it", "tflops", "formula", "tflops_per", "mfu", "mem_gib", "memory",
        "tokens_per_s_per_process", "breakdown", "events", "iterations", "validation", "checkpoints", "resumed"}  # fmt: skip


def check(found: dict, run_dir: Path, *, norm_of: int = 1) -> None:
    """`norm_of`: tokens whose losses are summed in what its gradient is of, in place of their mean."""
    assert found["status"] == "ok", found
    assert found.keys() == OURS
    assert len(found["losses"]) == len(found["iterations"]) == 3 and all(4 < loss < 8 for loss in found["losses"])
    assert all(0 < norm / norm_of < 10 for norm in found["grad_norms"])  # messages of stages that meet others' make hundreds
    assert found["sec_per_it"] > 0 and found["mem_gib"] > 0.1
    record = Record.from_dict(json.loads((run_dir / files.RECORD).read_text()))
    assert record.state == "measured" and record.torch_version and record.host["pinned"] in (True, False)
    assert Path(found["events"]).exists()


def test_a_plain_fsdp2_script_gives_what_our_own_engine_gives(tmp_path: Path) -> None:
    check(run(tmp_path, "fsdp2", SMALL, "topology.dp=2", "topology.zero=3"), tmp_path / "run")


def test_the_file_of_an_engine_of_ones_own_is_enough_to_run_it(tmp_path: Path) -> None:
    path = str(shipped.example("engines/fsdp2.toml"))
    found = run(tmp_path, path, LLAMA, "topology.dp=2", "topology.recompute=full")
    check(found, tmp_path / "run")
    refused = run_trial(*trialfile.build({**SMALL, "engine": path}, ["topology.tp=2"]), Local(), tmp_path / "not")
    assert refused.outcome.status == "invalid" and "it needs tp == 1, and here is tp 2" in refused.outcome.message


INSTALLED = [pytest.param(engine, data, layout, marks=needs(engine), id=" ".join((engine, *layout)))
             for engine, data, layout in (
    ("torchtitan", LLAMA, ("topology.dp=2", "topology.zero=3")), ("torchtitan", LLAMA, ("topology.pp=2",)),
    ("deepspeed", SMALL, ("topology.dp=2", "topology.zero=2")), ("deepspeed", LLAMA, ("topology.pp=2", "topology.zero=1")),
    ("megatron-core", SMALL, ("topology.tp=2",)),
    ("megatron-core", SMALL, ("model.layers=8", "batch.gbs=8", "topology.pp=2", "topology.vp=2",
                              "topology.schedule=interleaved")),
    ("megatron-lm", LLAMA, ("topology.dp=2", "topology.zero=1", "topology.pp=2")),
    ("accelerate", SMALL, ("topology.dp=2", "topology.zero=3")), ("accelerate", LLAMA, ("topology.dp=2", "topology.zero=2")))]


@pytest.mark.parametrize("engine, data, layout", INSTALLED)
def test_engines_give_what_our_own_gives(tmp_path: Path, engine: str, data: dict, layout: tuple[str, ...]) -> None:
    trial, _ = trialfile.build({**data, "engine": engine}, layout)
    sums = engine == "torchtitan" and trial.topology.pp > 1  # 0.2's own way, which its clipping hides
    check(run(tmp_path, engine, data, *layout), tmp_path / "run", norm_of=trial.batch.gbs * trial.model.seq if sums else 1)


COUNTED = """
import runpy, sys
import torch
from torchtitan.protocols import train_spec
found = []
train_spec.register_train_spec = lambda name, spec: found.append(spec)
for path in sys.argv[1:]:
    sizes = runpy.run_path(path)["MODEL"]
    sizes.moe_impl = "standard"  # what its trainer takes from the configuration
    with torch.device("meta"):
        print(sum(parameter.numel() for parameter in found[-1].model_cls(sizes).parameters()))
"""


@needs("torchtitan")
def test_torchtitans_own_classes_make_the_mixtures_that_were_asked_for(tmp_path: Path) -> None:
    paths, wanted = [], []
    for name in ("qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3"):
        data = {"model": {"base": name, "router": {"aux_loss": 0.0}}, "batch": {"gbs": 8}, "engine": "torchtitan",
                "topology": {"dp": 8, "ep": 8, "zero": 3}}
        trial, recipe = trialfile.build(data)
        adapter = ENGINES.get("torchtitan")()
        assert not list(adapter.why_not(trial))
        paths.append(tmp_path / f"{name}.py")
        paths[-1].write_text(adapter.files(trial, recipe)["seatrial_trial.py"])
        wanted.append(parameters(trial.model).total)
    python = homes.found("torchtitan", "torchtitan")
    found = subprocess.run([python, "-c", COUNTED, *paths], capture_output=True, text=True, check=False)
    assert [int(line) for line in found.stdout.split()] == wanted, found.stderr[-2000:]


TAKEN = """
import ast, dataclasses, json, sys
import torch
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
NAMES = {"norm_epsilon": "layernorm_epsilon", "num_experts": "num_moe_experts"}
for flags in json.load(sys.stdin):
    said = {NAMES.get(name[2:].replace("-", "_"), name[2:].replace("-", "_")): values for name, *values in flags}
    kind = MLATransformerConfig if "multi_latent_attention" in said else TransformerConfig
    known = {field.name for field in dataclasses.fields(kind)} - {"moe_permute_fusion"}  # which asks for Transformer Engine
    given = {"add_bias_linear": False, "gated_linear_unit": True, "activation_func": torch.nn.functional.silu, "bf16": True,
             "pipeline_dtype": torch.bfloat16}
    for name in known & said.keys():
        values = [ast.literal_eval(word) if word[:1] in "[0123456789" else word for word in said[name]]
        given[name] = values if name == "recompute_modules" else values[0] if values else True
    kind(**given)
    print(given["expert_model_parallel_size"])
"""


@needs("megatron-core")
def test_megatron_cores_own_checks_take_the_flags_of_mixtures() -> None:
    layouts = [("deepseek-v3", {"dp": 64, "pp": 16, "ep": 64, "recompute": "selective", "moe_dispatcher": "flex"}, {}),
               ("deepseek-v3", {"dp": 16, "tp": 2, "pp": 16, "ep": 8, "etp": 1, "recompute": "full"}, {}),
               ("deepseek-v3", {"dp": 128, "pp": 8, "ep": 32, "recompute": "selective",
                                "recompute_modules": "mla_up_proj+mlp+shared_experts"}, {}),
               ("mixtral-8x7b", {"dp": 32, "tp": 2, "ep": 8, "etp": 1}, {"capacity": 1.25, "over": "rank"}),
               ("qwen3-235b-a22b", {"dp": 16, "tp": 2, "pp": 8, "ep": 32, "etp": 1, "moe_balance": "forced"}, {"z_loss": 0.01})]
    flags = []
    for name, layout, router in layouts:
        data = {"model": {"base": name, "router": router}, "batch": {"gbs": 2048}, "engine": "megatron-core",
                "topology": {"zero": 1, "precision": "bf16", **layout}}
        flags.append(megatron_lm(trialfile.build(data)[0]).flags)
    python = homes.found("megatron-core", ENGINES.get("megatron-core")().module)
    found = subprocess.run([python, "-c", TAKEN], input=json.dumps(flags), capture_output=True, text=True, check=False)
    assert found.stdout.split() == [str(layout["ep"]) for _, layout, _ in layouts], found.stderr[-2000:]


DROPPED = """
import sys
sys.path.insert(0, {folder!r})
import accelerate_train
accelerate_train.put_back = lambda *_: None
accelerate_train.main()
"""


@needs("accelerate")
def test_sharding_that_accelerate_drops_without_a_word_is_noticed(tmp_path: Path) -> None:
    toml = shipped.example("engines/accelerate.toml")
    (tmp_path / "dropped.py").write_text(DROPPED.format(folder=str(toml.parent)))
    text = toml.read_text().replace("{here}/accelerate_train.py", str(tmp_path / "dropped.py"))
    (tmp_path / "accelerate.toml").write_text(text)
    data = {**SMALL, "engine": str(tmp_path / "accelerate.toml"), "execution": {"device": "cpu"}}
    trial, recipe = trialfile.build(data, ["topology.dp=2", "topology.zero=3"])
    outcome = run_trial(trial, recipe, Local(), tmp_path / "run", limits=Limits(time_limit_s=240)).outcome
    assert outcome.status == "invalid" and "applied ZS 0 where 3 was asked" in outcome.message, outcome


def faulty(tmp_path: Path, kind: str, *settings: str) -> Record:
    script = shipped.example("engines/fsdp2.py")
    text = shipped.example("engines/fsdp2.toml").read_text().replace("{here}/fsdp2.py", str(tmp_path / "faulty.py"))
    (tmp_path / "faulty.toml").write_text(text)
    (tmp_path / "faulty.py").write_text(FAULTY.format(kind=kind, folder=str(script.parent)))
    data = {**SMALL, "engine": str(tmp_path / "faulty.toml")}
    trial, recipe = trialfile.build(data, ["topology.dp=2", "recipe.steps=4", "recipe.stall_s=5", *settings])
    return run_trial(trial, recipe, Local(), tmp_path / "run", limits=Limits(time_limit_s=120))


@pytest.mark.parametrize("kind, status, says", [
    ("raise", "crash", "ValueError: gradients of rank 1 are gone"), ("stop", "hang", "was stopped by a signal"),
    ("nan", "nan", "the loss of step 2 is nan"),
    pytest.param("kill", "crash", "was ended by SIGKILL", marks=pytest.mark.slow),
    pytest.param("memory", "oom_host", "is out of host memory", marks=pytest.mark.slow),
    pytest.param("loop", "hang", "is in faulty.py", marks=pytest.mark.slow),
])
def test_what_happened_to_a_script_of_others_is_named_with_its_rank(tmp_path: Path, kind: str, status: str, says: str) -> None:
    outcome = faulty(tmp_path, kind).outcome
    assert (outcome.status, says in outcome.message) == (status, True), outcome
    assert outcome.rank == (None if kind == "nan" else 1), outcome


def test_a_program_that_torchrun_starts_fails_with_its_own_error(tmp_path: Path) -> None:
    script = tmp_path / "theirs.py"
    script.write_text("import os, time\nif os.environ['RANK'] == '1':\n"
                      "    raise ValueError('heads (16) must be a multiple of TP (3)')\ntime.sleep(60)\n")
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    trial, recipe = trialfile.build({**SMALL, "topology": {"dp": 2}, "command": {"argv": argv, "per": "node"}})
    outcome = run_trial(trial, recipe, Local(), tmp_path / "run", limits=Limits(time_limit_s=120)).outcome
    assert (outcome.status, outcome.rank) == ("invalid", 1), outcome
    assert outcome.message == "heads (16) must be a multiple of TP (3)"


def test_a_program_is_ended_when_enough_is_measured(tmp_path: Path) -> None:
    settings = ["topology.dp=2", "recipe.steps=100000", "recipe.measure_s=1"]
    trial, recipe = trialfile.build({**SMALL, "engine": "fsdp2"}, settings)
    record = run_trial(trial, recipe, Local(), tmp_path / "run", limits=Limits(time_limit_s=240))
    assert record.outcome.status == "ok" and record.sec_per_it, record.outcome


@pytest.mark.slow
@pytest.mark.parametrize("engine", [pytest.param(name, marks=needs(name)) for name in
                                    ("torchtitan", "fsdp2", "deepspeed", "megatron-core", "accelerate")])
def test_our_rules_for_an_engine_are_its_own(engine: str) -> None:
    """`python -m benchmarks.engines ENGINE --part rules` is the same for 200."""
    rows = list(rules(each(engine), count=20, seed=5))
    assert [row for row in rows if not row["good"]] == []
    assert {"both take", "both refuse"} <= {row["status"] for row in rows}
