"""What is emitted reaches Megatron word for word, whatever the names in a file hold."""
from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial import presets
from seatrial.engines import ENGINES
from seatrial.engines.torchtitan import Torchtitan, config
from seatrial.errors import BadInput
from seatrial.native import WRITERS
from seatrial.plan import emit
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Topology, Trial

BLOOM = Trial(
    model=presets.model("bloom-176b"), cluster=presets.cluster("jz-a100", nodes=48), engine="megatron",
    batch=Batch(gbs=2048, rampup_start=192, rampup_increment=16, rampup_samples=9_765_625),
    topology=Topology(dp=8, tp=4, pp=12, mbs=2, zero=1, recompute="full", precision="bf16"),
)  # fmt: skip
LLAMA = Trial(
    model=presets.model("llama3-8b"), cluster=presets.cluster("dgx-h100", nodes=2), batch=Batch(gbs=512), engine="megatron",
    topology=Topology(dp=2, tp=4, pp=2, vp=4, mbs=1, zero=1, recompute="selective", schedule="interleaved", precision="bf16",
                      sequence_parallel=True),
)  # fmt: skip


def words(text: str) -> list[str]:
    return shlex.split(text, comments=True)


def test_bloom_comes_out_with_its_own_flags():
    flags = words(emit.megatron(BLOOM)["megatron-deepspeed.args"])
    pairs = dict(itertools.pairwise(flags))
    assert pairs["--num-layers"] == "70" and pairs["--tensor-model-parallel-size"] == "4"
    assert pairs["--pipeline-model-parallel-size"] == "12" and pairs["--micro-batch-size"] == "2"
    assert pairs["--pp-partition-method"] == "type:transformer|embedding"
    assert flags[flags.index("--rampup-batch-size"):][:4] == ["--rampup-batch-size", "192", "16", "9765625"]
    assert {"--embed-layernorm", "--bf16", "--checkpoint-activations"} <= set(flags)
    config = json.loads(emit.megatron(BLOOM)["ds_config.json"])
    assert config["zero_optimization"]["stage"] == 1 and config["train_batch_size"] == 2048


def test_a_dialect_that_cannot_run_it_says_why_and_has_no_file(tmp_path: Path):
    bloom, llama = emit.megatron(BLOOM), emit.megatron(LLAMA)
    assert words(bloom["megatron-lm.args"]) == [] and "ALiBi" in bloom["megatron-lm.args"]
    assert "ds_config.json" not in llama and "rotary" in llama["megatron-deepspeed.args"]
    assert {p.name for p in emit.write(bloom, tmp_path / "b")} == {"megatron-deepspeed.args", "ds_config.json", "train.slurm"}
    assert {p.name for p in (tmp_path / "b").iterdir()} == {"megatron-deepspeed.args", "ds_config.json", "train.slurm"}
    assert {p.name for p in emit.write(llama, tmp_path / "l")} == {"megatron-lm.args", "train.slurm"}


def test_a_script_asks_for_what_its_engine_device_and_user_need():
    script = emit.megatron(LLAMA)["train.slurm"]
    assert "#SBATCH --cpus-per-task=64\n" in script and "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" in script
    own = emit.megatron(LLAMA, options={"partition": "gpu_p5", "cpus-per-task": "96", "exclusive": ""})["train.slurm"]
    assert "#SBATCH --partition=gpu_p5\n#SBATCH --exclusive\n" in own and "--cpus-per-task=96\n" in own and "=64" not in own
    assert "MAX_CONNECTIONS" not in emit.megatron(replace(LLAMA, cluster=presets.cluster("dgx-b200", nodes=2)))["train.slurm"]
    alone = replace(LLAMA, topology=Topology(dp=16, zero=1, precision="bf16"))
    assert "MAX_CONNECTIONS" not in emit.megatron(alone)["train.slurm"]
    in_context = replace(LLAMA, topology=Topology(dp=8, cp=2, zero=1, precision="bf16"))
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" in emit.megatron(in_context)["train.slurm"]


@pytest.mark.parametrize(("trial", "name"), [(LLAMA, "megatron-lm"), (BLOOM, "megatron-deepspeed")])
def test_dropout_is_off_whatever_the_default_of_the_dialect(trial, name):
    pairs = dict(itertools.pairwise(words(emit.megatron(trial)[f"{name}.args"])))
    assert pairs["--attention-dropout"] == pairs["--hidden-dropout"] == "0.0"


def test_llamas_overlap_what_the_forecast_overlaps():
    assert {"--overlap-grad-reduce", "--overlap-param-gather"} <= set(words(emit.megatron(LLAMA)["megatron-lm.args"]))


def test_llama_comes_out_in_megatron_lm():
    flags = words(emit.megatron(LLAMA)["megatron-lm.args"])
    pairs = dict(itertools.pairwise(flags))
    assert pairs["--num-layers-per-virtual-pipeline-stage"] == "4" and pairs["--num-query-groups"] == "8"
    assert pairs["--recompute-granularity"] == "selective"
    assert {"--use-distributed-optimizer", "--sequence-parallel", "--swiglu"} <= set(flags)


@pytest.mark.parametrize("layers, split, vp, said", [
    (32, None, 1, ""), (30, None, 1, "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"),
    (31, (8, 8, 8, 7), 1, "--decoder-last-pipeline-num-layers 7"),
    (31, (7, 8, 8, 8), 1, "--decoder-first-pipeline-num-layers 7"),
    (32, (9, 8, 8, 7), 1, "--decoder-first-pipeline-num-layers 9 --decoder-last-pipeline-num-layers 7"),
    (31, (9, 8, 7, 7), 1, "--pipeline-model-parallel-layout Et*9|t*8|t*7|t*7L"),
    (30, (8, 8, 8, 6), 1, "--decoder-last-pipeline-num-layers 6"),
    (16, (0, 8, 8, 0), 1, "--pipeline-model-parallel-layout E|t*8|t*8|L"),
    (32, None, 2, "--num-layers-per-virtual-pipeline-stage 4"),
    (31, (4, 4, 4, 4, 4, 4, 4, 3), 2, "--pipeline-model-parallel-layout Etttt|(tttt|)*6tttL"),
])
def test_stages_come_out_in_the_plainest_flags_that_can_say_them(layers, split, vp, said):
    topology = Topology(dp=2, tp=2, pp=4, vp=vp, schedule="interleaved" if vp > 1 else "1f1b", precision="bf16",
                        stage_layers=split)
    trial = replace(LLAMA, model=replace(LLAMA.model, layers=layers), topology=topology)
    text = emit.megatron(trial)["megatron-lm.args"]
    found = [word for flag in text.splitlines() if not flag.startswith("#") and re.search(
        "stage|pipeline-num-layers|pipeline-split|layout", flag) for word in words(flag)]
    assert " ".join(found) == said
    assert ("core 0.13" in text) == ("layout" in said)
    if said and "account" not in said and vp == 1:
        assert "not for Megatron-DeepSpeed: its stages are equal" in emit.megatron_deepspeed(trial).text()


def test_what_neither_can_run_is_refused_with_both_reasons():
    trial = replace(LLAMA, topology=Topology(dp=8, tp=2, schedule="gpipe", zero=3))
    with pytest.raises(BadInput, match="ZeRO 3.*rotary"):
        emit.megatron(trial)


def test_zero_beyond_one_leaves_the_pipeline_engine():
    gpt = replace(LLAMA, model=presets.model("gpt-1.3b"), topology=Topology(dp=16, zero=2, precision="bf16"))
    text = emit.megatron(gpt)["megatron-deepspeed.args"]
    assert "--no-pipeline-parallel" in words(text) and "Microsoft" in text
    plain = replace(gpt, topology=replace(gpt.topology, zero=1))
    assert "--no-pipeline-parallel" not in words(emit.megatron(plain)["megatron-deepspeed.args"])
    with pytest.raises(BadInput, match="refuses ZeRO 3"):
        emit.megatron(replace(BLOOM, topology=Topology(dp=384, zero=3, precision="bf16")))


@pytest.fixture
def fake_slurm(tmp_path: Path) -> dict[str, str]:
    """srun, scontrol and a python that writes down what it is given."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for name, body in {"srun": 'exec "$@"', "scontrol": "echo node0", "python": 'printf "%s\\0" "$@" > "$SEEN"'}.items():
        (bin_dir / name).write_text(f"#!/bin/bash\n{body}\n")
        (bin_dir / name).chmod(0o755)
    return {"PATH": f"{bin_dir}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "node[0-47]", "SLURM_PROCID": "0",
            "SLURM_SUBMIT_DIR": str(tmp_path), "MEGATRON_DIR": "/a b", "SEEN": str(tmp_path / "seen")}


@pytest.mark.parametrize("trial", [BLOOM, LLAMA], ids=["deepspeed", "lm"])
def test_the_script_hands_every_flag_over_untouched_and_the_users_own_after_them(trial, fake_slurm, tmp_path):
    folder = tmp_path / "it's; $(touch evil)"
    folder.mkdir()
    preamble = folder / "pre`amble`.sh"
    preamble.write_text("#!/bin/bash\n#SBATCH --account=x@a100\nexport FROM_PREAMBLE=yes\n#SBATCH --late\n")
    hostile = replace(trial, model=replace(trial.model, name="x; touch evil $(touch evil) 'q' \n#SBATCH --wrap=evil"))
    files = emit.megatron(hostile, preamble=preamble)
    script = tmp_path / "train.slurm"
    script.write_text(files["train.slurm"])
    assert "#SBATCH --account=x@a100" in files["train.slurm"] and "--late" not in files["train.slurm"]
    assert sum(line.startswith("#SBATCH") for line in files["train.slurm"].splitlines()) == 6
    command = ["bash", str(script), "--data-path", "my data; rm"]
    done = subprocess.run(command, env=fake_slurm, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    seen = (tmp_path / "seen").read_text().split("\0")[:-1]
    assert seen[seen.index("/a b/pretrain_gpt.py") + 1 :] == words(
        files["megatron-deepspeed.args" if trial is BLOOM else "megatron-lm.args"]) + ["--data-path", "my data; rm"]
    assert seen[seen.index("--nproc_per_node") + 1] == "8"
    assert not list(tmp_path.rglob("evil"))


def test_megatron_lm_without_arguments_of_the_users_is_a_benchmark_on_mock_data(fake_slurm, tmp_path):
    files = emit.megatron(LLAMA)
    (tmp_path / "train.slurm").write_text(files["train.slurm"])
    subprocess.run(["bash", str(tmp_path / "train.slurm")], env=fake_slurm, cwd=tmp_path, check=True, timeout=30)
    seen = (tmp_path / "seen").read_text().split("\0")[:-1]
    given = seen[seen.index("/a b/pretrain_gpt.py") + 1 :]
    assert given == [*words(files["megatron-lm.args"]), *emit.BENCHMARK] and "--mock-data" in given


@pytest.mark.parametrize(("given", "node"), [
    ({"NODE_RANK": "1", "MASTER_ADDR": "first"}, ("1", "first")),
    ({"SLURM_JOB_NODELIST": "node[0-1]", "SLURM_NODEID": "1"}, ("1", "node0")), ({"NODE_RANK": "1"}, None)])  # fmt: skip
@pytest.mark.parametrize("engine", ["fsdp2", "accelerate"])
def test_script_for_several_nodes_knows_its_own_and_where_they_meet_or_stops(engine, given, node, fake_slurm, tmp_path):
    trial = replace(LLAMA, topology=Topology(dp=16, zero=3, precision="bf16"), batch=Batch(gbs=16))
    files = WRITERS["accelerate"](trial) if engine == "accelerate" else ENGINES.get(engine)().emitted(trial, Recipe())
    (tmp_path / "train.sh").write_text(files["train.sh"])
    (tmp_path / "bin" / "accelerate").symlink_to(tmp_path / "bin" / "python")
    env = {name: value for name, value in fake_slurm.items() if name in ("PATH", "SEEN")} | given
    done = subprocess.run(["bash", str(tmp_path / "train.sh")], env=env, capture_output=True, text=True, timeout=30)
    if node is None:
        assert done.returncode and "MASTER_ADDR: the name of the first node" in done.stderr and not Path(env["SEEN"]).exists()
        return
    pairs = dict(itertools.pairwise(Path(env["SEEN"]).read_text().split("\0")))
    names = ("--machine_rank", "--main_process_ip") if engine == "accelerate" else ("--node-rank", "--master-addr")
    assert tuple(pairs[name] for name in names) == node


def test_accelerates_files_train_from_masters_in_fp32_and_cut_nothing_over_tp():
    trial = replace(LLAMA, topology=Topology(dp=16, zero=3, precision="bf16"), batch=Batch(gbs=16))
    files = WRITERS["accelerate"](trial)
    assert json.loads(files["training_args.json"])["do_train"] is True
    assert json.loads(files["config.json"])["torch_dtype"] == "float32"
    assert 'mixed_precision: "bf16"' in files["accelerate.yaml"]
    with pytest.raises(BadInput, match="TP 2.*accelerate skips TP"):
        WRITERS["accelerate"](replace(trial, topology=replace(trial.topology, dp=8, tp=2)))


def test_nothing_is_overwritten(tmp_path):
    emit.write({"a": "1", "b": "2"}, tmp_path / "new")
    with pytest.raises(BadInput, match="is already there"):
        emit.write({"c": "0", "b": "3"}, tmp_path / "new")
    assert (tmp_path / "new" / "b").read_text() == "2" and not (tmp_path / "new" / "c").exists()


@pytest.mark.parametrize("split, vp", [((7, 8, 8, 7), 1), ((8, 8, 8, 7), 1), ((4, 4, 4, 4, 4, 4, 4, 4), 2), ((1,) * 12, 3),
                                       ((7, 9, 7, 9), 1)])  # fmt: skip
def test_torchtitan_has_stages_by_their_modules_where_it_would_deal_others(split, vp):
    parallel = _titan(split, vp)["parallelism"]
    parts = parallel.get("module_fqns_per_model_part")
    if parts is None:
        # As torchtitan deals them out: what is left over to the first stages, then the ends less embedding and head.
        dealt_out = [len(range(stage, sum(split) + 2, len(split))) for stage in range(len(split))]
        assert (dealt_out[0] - 1, *dealt_out[1:-1], dealt_out[-1] - 1) == split
    else:
        names = [name for part in parts for name in part]
        assert names == ["tok_embeddings", *(f"layers.{i}" for i in range(sum(split))), "norm", "output"]
        assert tuple(sum(name.startswith("layers.") for name in part) for part in parts) == split
    assert parallel["pipeline_parallel_degree"] == 4 and parallel["data_parallel_shard_degree"] == 2
    assert (parts is None) == (split in ((7, 8, 8, 7), (8, 8, 8, 7)))


def _titan(split: tuple[int, ...], vp: int) -> dict:
    topology = Topology(dp=2, pp=4, vp=vp, zero=3, schedule="interleaved" if vp > 1 else "1f1b", stage_layers=split)
    return config(replace(LLAMA, model=replace(LLAMA.model, layers=sum(split)), topology=topology), Recipe())


def test_torchtitans_files_are_toml_a_module_and_a_script_that_starts():
    trial = replace(LLAMA, engine="torchtitan", topology=replace(LLAMA.topology, zero=3))
    files = Torchtitan().emitted(trial, Recipe(steps=7))
    said = tomllib.loads(files["torchtitan.toml"])
    assert said["training"]["steps"] == 7 and said["experimental"]["custom_import"] == "seatrial_trial"
    compile(files["seatrial_trial.py"], "seatrial_trial.py", "exec")
    assert "--nnodes 2" in files["train.sh"] and "--job.config_file torchtitan.toml" in files["train.sh"]
    inner = re.search(r"multiple_of=(\d+), ffn_dim_multiplier=([\d.]+)", files["seatrial_trial.py"])
    multiple, usual = int(inner[1]), int(2 * 4 * trial.model.hidden / 3)  # as its FeedForward works it out
    assert multiple * -(-int(float(inner[2]) * usual) // multiple) == trial.model.inner


def test_packed_documents_reset_the_mask():
    packed = replace(LLAMA, batch=replace(LLAMA.batch, documents="corpus"))
    assert "--reset-attention-mask" in words(emit.megatron(packed)["megatron-lm.args"])
    assert "--reset-attention-mask" not in words(emit.megatron(LLAMA)["megatron-lm.args"])
