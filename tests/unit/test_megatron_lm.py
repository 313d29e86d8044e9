"""Megatron-LM as an engine: what it is told, what it refuses, what is read of its ranks' logs. The checkout here is made up,
with the names that are touched; `benchmarks.engines megatron-lm` runs a real one."""
from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial import presets
from seatrial.engines import engine_for
from seatrial.engines.megatron_lm import ARGS, MegatronLM
from seatrial.errors import BadInput, Infeasible
from seatrial.launch.local import Local
from seatrial.launch.trial import Limits, run_trial
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Environment, Execution, Topology, Trial


def trial(model: str = "tiny", gbs: int = 8, **topology: object) -> Trial:
    return Trial(model=presets.model(model), batch=Batch(gbs=gbs), topology=Topology(**topology),  # type: ignore[arg-type]
                 engine="megatron-lm", execution=Execution(device="cpu"))


def flags(of: Trial, recipe: Recipe | None = None) -> dict[str, str]:
    words = shlex.split(MegatronLM().files(of, recipe or Recipe())[ARGS], comments=True)
    pairs = zip(words, [*words[1:], "--"])
    return {flag: "" if value.startswith("--") else value for flag, value in pairs if flag.startswith("--")}


PRETRAIN = """
import os, sys
from megatron.core import parallel_state
from megatron.training import global_vars
parallel_state.initialize_model_parallel(int(sys.argv[sys.argv.index("--tensor-model-parallel-size") + 1]))
rank, iterations = int(os.environ["RANK"]), int(sys.argv[sys.argv.index("--train-iters") + 1])
assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "1" and "--transformer-impl" in sys.argv
for step in range(1, iterations + 1):
    print({steps!r}.format(step) if rank == 1 else {memory!r}.format(0, 400.0, 512.0), end="", flush=True)
"""
STATE = """
sizes = dict(data=1, pipeline_model=1, context=1, expert_model=1, virtual_pipeline_model=None)
def initialize_model_parallel(tensor):
    sizes["tensor_model"] = tensor
def __getattr__(name):
    if name.startswith("get_") and name.endswith("_parallel_world_size"):
        return lambda: sizes[name[4:-20]]
    raise AttributeError(name)
"""
ARGUMENTS = """
from types import SimpleNamespace
def get_args():
    return SimpleNamespace(use_distributed_optimizer=False, sequence_parallel=False, recompute_granularity=None, fp8=None,
                           bf16=False, fp16=False, num_layers={layers}, hidden_size=128, num_attention_heads=16, seq_length=64,
                           micro_batch_size=1, global_batch_size=8)
"""


def checkout(folder: Path, *, layers: int = 8) -> Path:
    for name in ("core", "training"):
        (folder / "megatron" / name).mkdir(parents=True)
    (folder / "pretrain_gpt.py").write_text(PRETRAIN.format(steps=STEP, memory=MEMORY))
    (folder / "megatron/core/parallel_state.py").write_text(STATE)
    (folder / "megatron/training/global_vars.py").write_text(ARGUMENTS.format(layers=layers))
    (folder / "megatron/core/package_info.py").write_text("MAJOR = 0\nMINOR = 21\nPATCH = 3\n")
    return folder


def test_a_trial_is_told_as_a_benchmark_of_what_was_asked():
    told = flags(trial(tp=2, mbs=2), Recipe(steps=7, lr=1e-3, warmup_steps=2))
    assert told["--tensor-model-parallel-size"] == "2" and told["--micro-batch-size"] == "2" and told["--train-iters"] == "7"
    assert told["--lr"] == "0.001" and told["--lr-warmup-iters"] == "2" and told["--eval-iters"] == "0"
    assert told["--hidden-dropout"] == told["--attention-dropout"] == "0.0" and "--mock-data" in told


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("padded", [None, 50304])
@pytest.mark.parametrize("more", [0, 1])
def test_the_vocabulary_is_ours_whether_its_mock_tokenizer_adds_a_token_or_not(tp: int, padded: int | None, more: int):
    model = replace(presets.model("gpt2-124m"), pad_vocab_to=padded)
    told = flags(replace(trial(tp=tp), model=model))
    multiple = int(told["--make-vocab-size-divisible-by"]) * tp
    assert -(-(int(told["--vocab-size"]) + more) // multiple) * multiple == model.padded_vocab(tp)


def test_what_its_flags_cannot_say_is_refused_and_what_takes_a_gpu_without_one():
    with pytest.raises(Infeasible, match="ALiBi positions are not in Megatron-LM"):
        MegatronLM().can_run(replace(trial(), model=replace(presets.model("tiny"), positions="alibi")))
    with pytest.raises(Infeasible, match="ZeRO 3 is not in Megatron-LM's pipeline"):
        MegatronLM().can_run(trial(dp=2, zero=3))
    with pytest.raises(Infeasible, match="sequence parallelism takes Transformer Engine's layers"):
        MegatronLM().can_run(trial(tp=2, sequence_parallel=True))
    with pytest.raises(Infeasible, match="ffn 130 over TP 2 cannot be halved for SwiGLU: 128 or 132 would do"):
        MegatronLM().can_run(replace(trial(tp=2), model=replace(presets.model("tiny-llama"), ffn=130)))
    on_gpus = replace(trial(tp=2, sequence_parallel=True), execution=Execution(device="cuda"))
    MegatronLM().can_run(on_gpus)


def test_the_checkout_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEATRIAL_ENGINES", str(tmp_path / "engines"))
    monkeypatch.delenv("MEGATRON_DIR", raising=False)
    adapter = engine_for(trial(dp=2))
    with pytest.raises(BadInput, match=r"MEGATRON_DIR does not name a checkout .*engines/megatron-lm/Megatron-LM"):
        adapter.check(trial(dp=2), Recipe(), here=True)
    monkeypatch.setenv("MEGATRON_DIR", str(tmp_path))
    with pytest.raises(BadInput, match=f"MEGATRON_DIR {tmp_path} has no pretrain_gpt.py"):
        adapter.check(trial(dp=2), Recipe(), here=True)
    there, other = checkout(tmp_path / "mine"), checkout(tmp_path / "theirs")
    monkeypatch.setenv("MEGATRON_DIR", str(there))
    argv = adapter.argv(trial(dp=2), Recipe(), tmp_path)
    assert str(there / "pretrain_gpt.py") in argv and argv[-1] == "0.21.3" and (tmp_path / ARGS).exists()
    own = replace(trial(dp=2), environment=Environment(variables={"MEGATRON_DIR": str(other)}))
    assert str(other / "pretrain_gpt.py") in adapter.argv(own, Recipe(), tmp_path)


STEP = (" [2026-11-18 02:18:35.176394] iteration {0:8}/       2 | consumed samples: {0:12} | elapsed time per iteration (ms): "
        "529.9 | throughput per GPU (TFLOP/s/GPU): 312.4 | learning rate: 2.604594E-04 | global batch size:     8 | lm loss: "
        "5.589466E+00 | loss scale: 1.0 | grad norm: 4.834 | number of skipped iterations:   0 |\n")
MEMORY = ("[Rank {}] (after 1 iterations) memory (MB) | allocated: 512.00 | max allocated: {} | reserved: 600.00 | "
          "max reserved: {}\n")


def test_memory_is_of_the_fullest_rank_whoever_says_the_loss(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    start = 'seatrial-engine {"engine": "megatron-lm", "engine_version": "0.20.0", "device": "NVIDIA H200"}\n'
    (tmp_path / "logs/rank0.log").write_text(start + "  some_argument ...... 1\n" * 1100 + MEMORY.format(0, 1024.0, 3072.0))
    (tmp_path / "logs/rank1.log").write_text(STEP.format(1) + MEMORY.format(1, 1024.0, 2048.0) + STEP.format(2))
    found = MegatronLM().events(tmp_path)
    memory = [e for e in found if e["event"] == "memory"]
    assert [(e["mem_gib"], e["rank"], e["fullest"]["allocated_peak_gib"]) for e in memory] == [(3.0, 0, 1.0)]
    steps = [e for e in found if e["event"] == "iteration"]
    assert [e["step"] for e in steps] == [1, 2] and steps[0]["sec"] == pytest.approx(0.5299) and steps[1]["tflops"] == 312.4


def test_what_it_applied_and_nobody_asked_for_is_named(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    applied = 'seatrial-applied {"tp": 2, "dp": 1, "zero": 0, "precision": "bf16"}\n'
    (tmp_path / "logs/rank0.log").write_text("x\n" * 1500 + applied)
    assert MegatronLM().differs(trial(tp=2), tmp_path) == {"dtype": ("fp32", "bf16")}


@pytest.mark.parametrize("layers, status", [(8, "ok"), (4, "invalid")])
def test_a_run_is_started_read_and_held_against_what_was_asked(tmp_path: Path, layers: int, status: str):
    made = checkout(tmp_path / "mine", layers=layers)
    here = replace(trial(tp=2), environment=Environment(variables={"MEGATRON_DIR": str(made)}))
    local = Local()
    record = run_trial(here, Recipe(steps=2), local, tmp_path / "run", limits=Limits(time_limit_s=60.0))
    local.close()
    assert record.outcome is not None and record.outcome.status == status, record.outcome
    if status == "ok":
        assert record.sec_per_it == pytest.approx(0.5299) and record.mem_gib == pytest.approx(0.5) and record.iteration == 2
    else:
        assert "Layers 4 where 8 was asked" in record.outcome.message
