"""What other engines said when they failed: their own error and its rank, never torchrun's footer or a lost connection."""
from __future__ import annotations

import contextlib
import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from seatrial import presets, shipped, trialfile
from seatrial.engines import engine_for, foreign, named, words
from seatrial.engines.described import Fsdp2
from seatrial.engines.torchtitan import Torchtitan
from seatrial.errors import BadInput, Infeasible
from seatrial.launch.base import Job
from seatrial.launch.local import Local
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Topology, Trial

FOOTER = """\
============================================================
pretrain_gpt.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
Root Cause (first observed failure):
[0]:
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 4711)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


@pytest.mark.parametrize("text, status, rank, kind", [
    ("[rank1]: ValueError: num_attention_heads (16) must be a multiple of tensor_model_parallel_size (3).", "invalid", 1,
     "ValueError"),
    ("AssertionError: Invalid parallel dims: dp_replicate(1) * dp_shard(1) * cp(1) * tp(3) * pp(1) != WORLD_SIZE(4)", "invalid",
     None, "AssertionError"),
    ("AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism", "invalid", None, "AssertionError"),
    ("[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "oom_device", 0, "OutOfMemoryError"),
    ("RuntimeError: [enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 45 "
     "bytes.", "oom_host", None, "RuntimeError"),
    ("[rank2]: MemoryError", "oom_host", 2, "MemoryError"),
    ("[rank3]: KeyError: 'lm_head'", "crash", 3, "KeyError"),
    ("ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 1 at iteration #3 invocation #1 (message='found "
     "NaN in local forward loss calculation')", "nan", 1, "ResultValidation"),
    ("[rank0]: RuntimeError: Rank 0, node n, device 0, iteration 3: Unexpected result nan (message='found NaN in local forward "
     "loss calculation')", "nan", 0, "RuntimeError"),
    ("train.py: error: unrecognized arguments: --tensor-degree 2", "invalid", None, "usage"),
    ("train.py: error: argument --precision: invalid choice: 'fp8' (choose from fp32, bf16)", "invalid", None, "usage"),
])  # fmt: skip
def test_an_engines_own_error_is_found_and_judged(text: str, status: str, rank: int | None, kind: str):
    log = ("Traceback (most recent call last):\n  File \"/e/megatron/arguments.py\", line 12, in validate_args\n    assert x\n"
           f"{text}\nE1115 torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n{FOOTER}")
    said = words.cause(words.errors(log))
    assert said is not None and (said.status, said.rank, said.kind) == (status, rank, kind)
    assert kind in ("usage", "ResultValidation") or said.line == "arguments.py:12 in validate_args"
    assert "exitcode" not in said.text and words.first_rank(log) == 2


def test_a_lost_connection_is_no_cause(tmp_path: Path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank0.log").write_text("RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:7\n")
    (logs / "rank1.log").write_text("ValueError: the tokens are gone\n")
    found = foreign.failures(tmp_path)
    assert [(e["rank"], e["consequence"]) for e in found] == [(1, False), (0, True)]
    assert found[0]["message"] == "the tokens are gone"


def test_an_error_that_a_rank_got_over_is_none(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    steps = "".join(f"step: {step}  loss: 5.9  of a log that goes on\n" for step in range(1000))
    (tmp_path / "logs" / "rank0.log").write_text(f"ValueError: no such mirror, the next is asked\n{steps}")
    assert foreign.failures(tmp_path) == []


def titan(**layout: object) -> Trial:
    return Trial(model=presets.model("tiny-llama"), batch=Batch(gbs=16), topology=Topology(**layout), engine="torchtitan")


@pytest.mark.parametrize("layout, why", [
    ({"dp": 2, "zero": 1}, "ZeRO 1"), ({"dp": 2, "pp": 2}, "ZeRO 2 or 3 would do"), ({"tp": 2}, "sequence_parallel = true"),
    ({"pp": 2, "precision": "bf16"}, "compute in fp32"), ({"dp": 2, "precision": "fp16"}, "precision fp16"),
    ({"pp": 8, "mbs": 4}, "4 micro-batches over PP 8"), ({"pp": 4, "stage_layers": (4, 0, 2, 2)}, "nothing to train"),
    ({"pp": 3, "vp": 2, "schedule": "interleaved"}, "16 micro-batches in 5 rounds"),
])
def test_torchtitan_refuses_what_its_code_would(layout: dict, why: str):
    with pytest.raises(Infeasible, match=why):
        engine_for(titan(**layout)).can_run(titan(**layout))


def test_torchtitan_takes_what_its_code_takes():
    for layout in ({"dp": 2}, {"dp": 2, "zero": 3}, {"tp": 2, "sequence_parallel": True}, {"pp": 2, "mbs": 4},
                   {"dp": 2, "pp": 2, "zero": 2, "precision": "bf16"}, {"pp": 8, "mbs": 4, "schedule": "gpipe"},
                   {"pp": 2, "vp": 2, "schedule": "interleaved", "mbs": 16}, {"pp": 10}, {"cp": 2, "zero": 3}):
        Torchtitan().can_run(titan(**layout))


def test_torchtitan_divides_a_context_on_gpus_alone(monkeypatch):
    trial = titan(cp=2, zero=3)
    here = Job(name="a", run_dir=Path("a"), argv=(), world=2, device="auto")
    monkeypatch.setattr("seatrial.launch.local.gpus", lambda: 2)
    Local().check(trial, here)
    monkeypatch.setattr("seatrial.launch.local.gpus", lambda: 0)
    for refuses in (lambda: Local().check(trial, here),
                    lambda: Torchtitan().can_run(replace(trial, execution=Execution(device="cpu"))),
                    lambda: Torchtitan().can_run(replace(trial, cluster=presets.cluster("local", procs_per_node=2)))):
        with pytest.raises(Infeasible, match="CP 2: torch divides attention over ranks on GPUs alone"):
            refuses()


@pytest.mark.parametrize(("said", "ranks"), [
    (("{", '{"rank": 1, "step": 2}'), [1]),
    # Of two virtual stages each, rank 1's second and rank 0's third.
    (('{"rank": 0, "step": 2, "stage": 2}', '{"rank": 1, "step": 2, "stage": 1}'), [1, 0])])
def test_the_rank_whose_own_loss_is_no_number_is_named(tmp_path: Path, said: tuple[str, str], ranks: list[int]):
    (tmp_path / "logs").mkdir()
    for rank, lost in enumerate(said):
        (tmp_path / "logs" / f"rank{rank}.log").write_text(
            "".join(f"[titan] 2026-11-15 18:04:1{step},456 - root - INFO - step:  {step}  loss:  {loss}  grad_norm:  0.3805  "
                    "memory:  0.60GiB(2.51%)  tps: 616  tflops: 0.01  mfu: 0.00%\n"
                    for step, loss in ((1, "5.9"), (2, "nan"))) + f"seatrial-nan {lost}\n")
    found = [(e["step"], e.get("loss"), e.get("nan_ranks")) for e in Torchtitan().read(tmp_path) if e["event"] == "iteration"]
    assert found == [(1, 5.9, None), (2, "nan", ranks)]


def test_what_a_log_says_was_applied_is_held_against_what_was_asked(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank0.log").write_text(
        "[titan] 2026-11-15 18:04:18,456 - root - INFO - Building device mesh with parallelism: pp=1, dp_replicate=1, "
        "dp_shard=2, cp=1, tp=1, ep=1, etp=1\n[titan] 2026-11-15 18:04:18,456 - root - INFO - Trainer is initialized with "
        "local batch size 4, global batch size 16, gradient accumulation steps 2, "
        "sequence length 64, total steps 4 (warmup 2)\n"
        + "".join(f"[titan] 2026-11-15 18:04:1{step},456 - root - INFO - step:  {step}  loss:  5.9687{step}  "
                  "grad_norm:  0.3805  memory:  0.60GiB(2.51%)  tps: 616  tflops: 0.01  mfu: 0.00%\n" for step in (1, 2, 3)))
    asked = titan(dp=2, zero=3)
    assert Torchtitan().differs(asked, tmp_path) == {}
    wrong = titan(dp=2, pp=2, zero=3)
    assert Torchtitan().differs(wrong, tmp_path) == {"pp": (2, 1)}
    events = Torchtitan().events(tmp_path)
    assert [e["step"] for e in events if e["event"] == "iteration"] == [1, 2, 3]
    assert events[0]["sec"] == pytest.approx(16 * 64 / (2 * 616)) and events[0]["grad_norm"] == 0.3805


def test_an_engine_that_is_not_installed_says_what_to_do(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SEATRIAL_ENGINES", str(tmp_path))
    monkeypatch.setattr("seatrial.engines.homes._importable", lambda module: False)
    trial, recipe = trialfile.build({"model": "tiny-llama", "batch": {"gbs": 2}, "engine": "torchtitan"})
    with pytest.raises(BadInput, match="make engines ENGINES=torchtitan"):
        engine_for(trial).check(trial, recipe, here=True)
    engine_for(trial).check(trial, recipe, here=False)


def asked(engine: str, *settings: str) -> Trial:
    return trialfile.build({"model": {"base": "tiny"}, "batch": {"gbs": 16}, "engine": engine}, settings)[0]


def test_tensor_parallelism_that_always_cuts_the_sequence_need_not_be_told_to():
    assert asked("torchtitan", "topology.tp=2").topology.sequence_parallel
    assert not asked("torchtitan", "topology.tp=2", "topology.sequence_parallel=false").topology.sequence_parallel
    assert not asked("megatron-core", "topology.tp=2").topology.sequence_parallel
    assert not asked("torchtitan").topology.sequence_parallel


@pytest.mark.parametrize("engine, files", [
    ("fsdp2", {"fsdp2.py", "train.sh"}), ("deepspeed", {"ds_train.py", "fsdp2.py", "ds_config.json", "train.sh"}),
    ("megatron-core", {"mcore_train.py", "fsdp2.py", "cpu_cuda.py", "train.sh"}),
    ("accelerate", {"accelerate_train.py", "fsdp2.py", "train.sh"}),
])
def test_a_described_engine_is_written_whole(engine: str, files: set[str]):
    trial = asked(engine, "topology.dp=2")
    written = engine_for(trial).emitted(trial, Recipe(steps=9))
    assert written.keys() == files and "--steps 9" in written["train.sh"] and "--nproc-per-node 2" in written["train.sh"]
    for name in files - {"train.sh", "ds_config.json"}:
        compile(written[name], name, "exec")


CHANGES = ("model.tied=true", "model.biases=qkv", "model.qk_norm=true", "model.head_dim=16", "model.sliding_window=16",
           "model.mtp=1", "model.sinks=true", "model.ffn=768", "topology.mbs=2", "topology.zero=2", "topology.recompute=full",
           "topology.recompute=selective", "topology.precision=bf16", "topology.zero_group=2", "topology.gradients_group=2",
           "batch.gbs=32", "batch.documents=fixed:16", "execution.compile=true", "execution.optimizer=adamw-plain",
           "execution.moments=bf16", "execution.attention=stored", "execution.overlap=tensor", "execution.logits_chunk=128")


@pytest.mark.parametrize("engine", ["torchtitan", "fsdp2", "deepspeed", "megatron-core", "accelerate"])
def test_nothing_that_changes_a_measurement_is_left_out_without_a_word(engine: str):
    def told(*settings: str) -> dict[str, str]:
        layout = {"dp": 4, "zero": 1 if engine == "megatron-core" else 3}
        data = {"engine": engine, "model": {"base": "tiny-llama"}, "batch": {"gbs": 16}, "topology": layout}
        trial, recipe = trialfile.build(data, settings)
        adapter = engine_for(trial)
        adapter.check(trial, recipe, here=False)
        return adapter.emitted(trial, recipe)

    def left_out(change: str) -> bool:
        try:
            return told(change) == usual
        except BadInput:
            return False

    usual = told()
    assert [change for change in CHANGES if left_out(change)] == []


@pytest.mark.parametrize("engine, settings, why", [
    ("fsdp2", ("topology.tp=2",), "needs tp == 1, and here is tp 2"),
    ("deepspeed", ("topology.pp=2", "topology.dp=2", "topology.zero=2"), "needs zero <= 1 or pp == 1, and here is pp 2, zero"),
    ("megatron-core", ("topology.zero=2", "topology.dp=2"), "needs zero <= 1"),
    ("megatron-core", ("model.experts=4",), "needs experts == 0"),
    ("megatron-core", ("topology.pp=2", "topology.stage_layers=[3, 5]"), "here is stage_layers 3-5"),
    ("accelerate", ("model.kv_heads=4",), "needs positions == 'rope' or kv_heads == heads, and here is heads 16, kv_heads 4"),
    ("deepspeed", ("topology.precision=fp16", "execution.device=cpu"), "and here is device cpu, precision fp16"),
])
def test_a_described_engine_refuses_by_its_rules_with_the_numbers(engine: str, settings: tuple[str, ...], why: str):
    trial = asked(engine, *settings)
    with pytest.raises(Infeasible, match=why):
        engine_for(trial).can_run(trial)


@pytest.mark.parametrize("engine, settings", [
    ("megatron-core", ("topology.tp=4", "model.kv_heads=2")), ("megatron-core", ("topology.schedule=gpipe",)),
    ("megatron-core", ("topology.dp=4", "topology.zero=1", "topology.zero_group=2")),
    ("deepspeed", ("topology.schedule=gpipe",)), ("deepspeed", ("topology.precision=fp16", "execution.device=cuda")),
])
def test_a_described_engine_takes_what_its_own_code_takes(engine: str, settings: tuple[str, ...]):
    trial = asked(engine, *settings)
    engine_for(trial).can_run(trial)


def test_what_of_a_described_engine_needs_a_gpu_is_known_before_a_machine_is():
    trial = asked("deepspeed", "topology.precision=fp16")
    engine_for(trial).can_run(trial)
    assert "needs precision != 'fp16' or device != 'cpu'" in engine_for(trial).needs_gpu(trial)
    assert engine_for(trial).needs_gpu(asked("deepspeed", "topology.precision=bf16")) == ""


def test_what_a_script_says_that_it_built_is_held_against_what_was_asked(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank0.log").write_text('seatrial-applied {"dp": 2, "zero": 0, "precision": "fp32", "own": 1}\n')
    assert Fsdp2().differs(asked("fsdp2", "topology.dp=2"), tmp_path) == {}
    assert Fsdp2().differs(asked("fsdp2", "topology.dp=2", "topology.zero=3"), tmp_path) == {"zero_stage": (3, 0)}


WRAPPED = """\
[rank1]: {error}

[rank1]: The above exception was the direct cause of the following exception:

[rank1]: Traceback (most recent call last):
[rank1]:   File "/x/torch/distributed/pipelining/stage.py", line 900, in forward_one_chunk
[rank1]:     raise RuntimeError(exc_msg) from e
[rank1]: RuntimeError:
[rank1]:             [Stage 1] failed to run forward:
[rank1]:             args: ('Tensor(torch.Size([1, 32, 64]), grad=True, dtype=torch.float32)',)
"""


@pytest.mark.parametrize("error, status, consequence", [
    ("ValueError: a value is gone", "crash", False), ("MemoryError", "oom_host", False),
    ("RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer", "crash", True),
])
def test_the_error_of_a_stage_is_not_what_torchs_pipeline_says_around_it(error: str, status: str, consequence: bool) -> None:
    said = words.cause(words.errors(WRAPPED.format(error=error)))
    assert said is not None and (said.rank, said.status, said.consequence) == (1, status, consequence)
    assert f"{said.kind}: {said.text}".removesuffix(": ") == error


def test_the_stage_that_hands_on_no_number_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.syspath_prepend(str(shipped.example("engines/fsdp2.py").parent))
    script = importlib.import_module("fsdp2")
    stage = torch.nn.Linear(2, 2)
    kept = script.handed_on(stage)
    for value in (1.0, 2.0):
        stage(torch.full((1, 2), value))
    script.lost(0, 1, {4: kept})
    assert not kept and not capsys.readouterr().out
    stage(torch.tensor([[1.0, torch.nan]]))
    script.lost(0, 2, {0: [torch.ones(())], 4: kept})
    assert capsys.readouterr().out == 'seatrial-nan {"rank": 0, "step": 2, "stage": 4}\n'


OWN = """base = "fsdp2"
[command]
per = "rank"
argv = ["{python}", "{here}/train.py", "--dp", "{dp}"]
[[log.line]]
pattern = 'it (?P<iteration>[0-9]+): (?P<sec_per_it>[0-9.]+)'
units = { sec_per_it = "s" }
"""


@pytest.mark.parametrize("wrong, why", [
    (('"s"', '"fortnight"'), "'fortnight' is no unit of time"), (("train.py", "trian.py"), "trian.py: No such file"),
    (("iteration", "itration"), "no field 'itration'"), (('per =', 'module = "frobnicate"\nper ='), "module"),
    (('base = "fsdp2"', 'base = "fsdp2"\nmodule = "frobnicate"'), "frobnicate is not installed here: its environment"),
])  # fmt: skip
def test_what_is_wrong_with_ones_own_engine_is_said_before_it_runs(tmp_path: Path, wrong: tuple[str, str], why: str) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "mine.toml").write_text(OWN.replace(*wrong))
    trial, recipe = trialfile.build({"model": "tiny", "batch": {"gbs": 2}, "topology": {"dp": 2},
                                     "engine": str(tmp_path / "mine.toml")})
    with pytest.raises(BadInput, match=why):
        engine_for(trial).check(trial, recipe, here=True)


def test_ones_own_engine_is_written_by_its_file_unless_it_starts_the_ranks_itself(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()\n")
    trial, recipe = trialfile.build({"model": "tiny", "batch": {"gbs": 2}, "topology": {"dp": 2}})
    for per in ("rank", "node"):
        (tmp_path / f"{per}.toml").write_text(OWN.replace('per = "rank"', f'per = "{per}"'))
    written = named(str(tmp_path / "rank.toml")).emitted(trial, recipe)  # type: ignore[attr-defined]
    assert written["train.py"] == "print()\n" and "--nproc-per-node 2 ./train.py --dp 2" in written["train.sh"]
    with pytest.raises(BadInput, match="once a node"):
        named(str(tmp_path / "node.toml")).emitted(trial, recipe)  # type: ignore[attr-defined]


@pytest.mark.parametrize("device, waits", [("cuda", 1), ("cpu", 0)])
def test_the_scripts_take_the_time_when_the_gpu_is_done(monkeypatch: pytest.MonkeyPatch, device: str, waits: int) -> None:
    monkeypatch.syspath_prepend(str(shipped.example("engines/fsdp2.py").parent))
    script, now, waited = importlib.import_module("fsdp2"), [10.0], []

    def synchronize() -> None:
        waited.append(now[0])
        now[0] += 5.0

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(script.time, "perf_counter", lambda: now[0])
    assert script.passed(9.0, torch.device(device)) == 1.0 + 5.0 * waits and len(waited) == waits
    for name in ("fsdp2", "ds_train", "mcore_train", "accelerate_train"):
        text = shipped.example(f"engines/{name}.py").read_text()
        assert text.count("passed(began, device)") == 1 + (name == "fsdp2"), name


@pytest.mark.parametrize("layers, pp, runs", [(3, 4, True), (1, 4, True), (1, 5, False)])
def test_deepspeed_leaves_stages_without_a_layer_as_long_as_each_has_a_part(layers: int, pp: int, runs: bool) -> None:
    """Beside its layers there are the embedding, the last norm and the head."""
    trial, _ = trialfile.build({"model": {"base": "tiny", "layers": layers}, "batch": {"gbs": 8}, "topology": {"pp": pp},
                                "engine": "deepspeed"})
    refused = pytest.raises(Infeasible, match=f"it needs layers . 3 >= pp, and here is layers {layers}")
    with contextlib.nullcontext() if runs else refused:
        engine_for(trial).can_run(trial)
