"""Configurations that people have, read as they are written: what is not understood is said, contradictions are refused."""
from __future__ import annotations

import contextlib
import json
import re
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial import native, trialfile
from seatrial.errors import BadInput, Remark
from seatrial.native import shell

SCRIPT = r"""
#!/bin/bash
#SBATCH --nodes=4
# this one doesn't count: --num-layers 3
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-2}
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
TP=4
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --master_addr localhost"
GPT_MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --num-attention-heads 32   # as Llama
    --seq-length 4096
    --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear
    --group-query-attention --num-query-groups 8 --untie-embeddings-and-output-weights
)
DATA="--data-path my data --tokenizer-type Llama2Tokenizer --vocab-size 32000"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_MODEL_ARGS[@]} $DATA \
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size=2 --sequence-parallel \
    --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer --overlap-grad-reduce \
    --recompute-activations --attention-dropout 0.0 --hidden-dropout 0.0 --lr 6.0e-5
"""


def tables(folder: Path, text: str, name: str = "train.sh") -> dict[str, Any]:
    found = read(folder, text, name)
    assert not found.unread, found.unread
    return found.tables


def read(folder: Path, text: str, name: str = "train.sh") -> native.Native:
    (folder / name).write_text(textwrap.dedent(text))
    found = native.read(folder / name)
    assert found is not None
    return found


def test_a_megatron_script_is_a_trial(tmp_path: Path) -> None:
    found = tables(tmp_path, SCRIPT)
    assert found["engine"] == "megatron-core" and found["batch"] == {"gbs": 128}
    assert found["model"] == {"layers": 32, "hidden": 4096, "heads": 32, "seq": 4096, "vocab": 32000, "ffn": 10880,
                              "kv_heads": 8,
                              "family": "llama"}
    assert found["topology"] == {"tp": 4, "pp": 2, "cp": 1, "mbs": 1, "dp": 2, "precision": "bf16", "sequence_parallel": True,
                                 "zero": 1, "recompute": "selective"}
    assert found["execution"] == {"overlap": "gradients"}
    trial, _ = trialfile.load(tmp_path / "train.sh")
    assert trial.world == 16 and trial.microbatches == 64


def test_what_is_not_understood_is_said_as_it_was_written(tmp_path: Path) -> None:
    found = read(tmp_path, SCRIPT.replace("--bf16", "--bf16 --heterogeneous-layers-config x.json --moe-latent-size 8"))
    assert found.unread == ("--heterogeneous-layers-config", "--moe-latent-size")
    with pytest.warns(Remark, match="not understood, and not in the forecast: --heterogeneous-layers-config"):
        trialfile.load(tmp_path / "train.sh")


@pytest.mark.parametrize("change, says", [
    (("--bf16", "--bf16 --fp16"), "fp16 and bf16 at once"),
    (("TP=4", "TP=3"), "16 processes are not a multiple of TP 3 x PP 2 x CP 1 = 6: 4 or 8 would divide them"),
    (("TP=4", ""), r"tensor_model_parallel_size \$\{TP\}: the file does not set"),
    (("--num-layers 32", "--num-layers 31"), "31 layers are not a multiple of 2 pipeline stages"),
    (("--bf16", "--bf16 --num-layers-per-virtual-pipeline-stage 3"), "32 layers over PP 2 in virtual stages of 3"),
    (("--hidden-size 4096", "--hidden-size many"), "hidden_size is 'many': expected a whole number"),
    (("RMSNorm", "MyNorm"), "normalization is 'MyNorm'"),
    (("--sequence-parallel", "--decoder-first-pipeline-num-layers 40"), "32 layers less 40 of the first"),
])  # fmt: skip
def test_contradictions_of_a_script_are_errors_with_the_numbers(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        read(tmp_path, SCRIPT.replace(*change))


BLOCK = """
using world size: 16, data-parallel size: 4, context-parallel size: 1, tensor-model-parallel size: 2
------------------------ arguments ------------------------
  add_bias_linear ................................. False
  attention_dropout ............................... 0.0
  bf16 ............................................ True
  data_parallel_size .............................. {dp}
  ffn_hidden_size ................................. 11008
  global_batch_size ............................... 64
  group_query_attention ........................... False
  hidden_dropout .................................. 0.0
  hidden_size ..................................... 4096
  lr .............................................. 0.0003
  micro_batch_size ................................ 2
  normalization ................................... RMSNorm
  num_attention_heads ............................. 32
  num_layers ...................................... 32
  num_query_groups ................................ 1
  overlap_grad_reduce ............................. True
  overlap_param_gather ............................ True
  padded_vocab_size ............................... None
  pipeline_model_parallel_size .................... 2
  position_embedding_type ......................... rope
  recompute_granularity ........................... None
  seq_length ...................................... 2048
  strange_new_thing ............................... 3
  swiglu .......................................... True
  tensor_model_parallel_size ...................... 2
  untie_embeddings_and_output_weights ............. True
  use_distributed_optimizer ....................... True
  world_size ...................................... 16
-------------------- end of arguments ---------------------
> padded vocab (size: 32000) with 256 dummy tokens (new size: 32256)
 iteration        1/      10 | elapsed time per iteration (ms): 900.0 |
"""


def test_the_arguments_that_a_log_begins_with(tmp_path: Path) -> None:
    found = read(tmp_path, BLOCK.format(dp=4), "train.log")
    assert found.unread == ("strange_new_thing",)
    assert found.tables["topology"] | {"dp": 4, "tp": 2, "pp": 2, "zero": 1, "mbs": 2} == found.tables["topology"]
    model = found.tables["model"]
    assert (model["vocab"], model["pad_vocab_to"]) == (32000, 32256) and "kv_heads" not in model
    assert "execution" not in found.tables
    with pytest.raises(BadInput, match=r"data parallel 8 x TP 2 x PP 2 x CP 1 = 32 processes, and it starts 16"):
        read(tmp_path, BLOCK.format(dp=8), "train.log")


TITAN = """
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 8
tensor_parallel_degree = 4
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""


def test_a_torchtitan_file_with_a_flavor_of_its_own(tmp_path: Path) -> None:
    found = tables(tmp_path, TITAN, "llama3_8b.toml")
    trial, _ = trialfile.build(found)
    assert trial.model.inner == 14336 and trial.model.kv == 8 and trial.model.seq == 8192 and trial.model.rope_factor == 8.0
    assert found["topology"] | {"dp": 16, "tp": 4, "pp": 2, "vp": 2, "zero": 2, "zero_group": 8, "schedule": "interleaved",
                                "sequence_parallel": True, "mbs": 1, "recompute": "selective"} == found["topology"]
    assert found["batch"] == {"gbs": 32}


def test_a_command_goes_over_torchtitans_file_and_says_how_many_processes(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(TITAN)
    command = "torchrun --nproc_per_node 8 --nnodes 2 -m torchtitan.train --job.config_file job.toml "
    found = read(tmp_path, f"{command} --parallelism.pipeline_parallel_degree 1 --parallelism.data_parallel_shard_degree -1")
    assert found.tables["topology"]["dp"] == 4 and found.tables["topology"]["zero"] == 3
    with pytest.raises(BadInput, match=r"replicas 2 x shards 8 x CP 1 x TP 4 x PP 2 = 128 processes, and 16 are started"):
        read(tmp_path, command)


def test_deepspeed_with_the_models_config_beside_it(tmp_path: Path) -> None:
    model = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
             "intermediate_size": 1024,
             "vocab_size": 32000, "max_position_embeddings": 2048}
    (tmp_path / "config.json").write_text(json.dumps(model))
    config = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
              "bf16": {"enabled": True},
              "zero_optimization": {"stage": 2, "overlap_comm": True,
                                    "offload_optimizer": {"device": "cpu"}}, "sparse_attention": 1}
    found = read(tmp_path, json.dumps(config), "ds_config.json")
    assert found.unread == ("sparse_attention",) and "offload_optimizer: memory of the host" in found.notes[0]
    trial, _ = trialfile.build(found.tables)
    assert (trial.model.layers, trial.topology.dp, trial.topology.zero, trial.topology.precision) == (4, 8, 2, "bf16")
    with pytest.raises(BadInput, match="train_batch_size 65 is no multiple of train_micro_batch_size_per_gpu 2"):
        read(tmp_path, json.dumps(config | {"train_batch_size": 65}), "ds_config.json")
    with pytest.raises(BadInput, match="fp16 and bf16 are both enabled"):
        read(tmp_path, json.dumps(config | {"fp16": {"enabled": True}}), "ds_config.json")


def test_a_trainers_command_fills_in_what_its_deepspeed_file_leaves_open(tmp_path: Path) -> None:
    config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
              "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}
    (tmp_path / "zero3.json").write_text(json.dumps(config))
    found = read(tmp_path, """
        deepspeed --num_gpus 8 run_clm.py --deepspeed zero3.json --per_device_train_batch_size 2 \\
            --gradient_accumulation_steps 4 --bf16 --learning_rate 1e-4 --output_dir out --torch_compile_mode x
        """)
    assert found.tables["batch"] == {"gbs": 64} and found.unread == ("--torch_compile_mode",)
    assert found.tables["topology"] | {"dp": 8, "mbs": 2, "zero": 3, "precision": "bf16"} == found.tables["topology"]
    alone = native.read(tmp_path / "zero3.json")
    assert alone is not None and "train_batch_size is auto" in alone.notes[0] and not alone.tables["batch"]


def test_nemo_1_and_references_of_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    found = read(tmp_path, """
        trainer: {devices: 8, num_nodes: 2, precision: bf16}
        model:
          micro_batch_size: 1
          global_batch_size: 64
          tensor_model_parallel_size: 4
          pipeline_model_parallel_size: 2
          encoder_seq_length: 2048
          num_layers: 24
          hidden_size: 2048
          ffn_hidden_size: 5504
          num_attention_heads: 16
          activation: fast-swiglu
          normalization: rmsnorm
          position_embedding_type: rope
          share_embeddings_and_output_weights: false
          bias: false
          sequence_parallel: true
          activations_checkpoint_granularity: selective
          hidden_dropout: 0.0
          attention_dropout: 0.0
          something_new: 3
          optim: {name: distributed_fused_adam, lr: 1e-4}
        """, "gpt.yaml")  # fmt: skip
    assert found.unread == ("something_new",)
    assert found.tables["topology"] | {"dp": 2, "tp": 4, "pp": 2, "zero": 1,
                                       "recompute": "selective"} == found.tables["topology"]
    assert found.tables["model"]["family"] == "llama" and "vocab" not in found.tables["model"]
    with pytest.raises(BadInput, match="references"):
        read(tmp_path, "model: &a {num_layers: 1}\nb: *a\n", "gpt.yaml")


def test_a_file_of_ours_is_none_of_theirs_and_a_folder_has_one(tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text('model = "tiny"\nbatch = { gbs = 8 }\n')
    assert native.read(tmp_path / "trial.toml") is None
    with pytest.raises(BadInput, match="a folder without any of train.slurm"):
        native.read(tmp_path)
    (tmp_path / "train.sh").write_text(SCRIPT)
    found = native.read(tmp_path)
    assert found is not None and found.format == "Megatron-LM flags"
    with pytest.raises(BadInput, match="no configuration of an engine in it; known are Megatron's flags"):
        read(tmp_path, "echo hello", "other.sh")


def test_nothing_of_a_script_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = SCRIPT.replace("TP=4", f"TP=$(touch {mark}; echo 4)")
    with pytest.raises(BadInput, match="the file does not set"):
        read(tmp_path, text)
    assert not mark.exists()


def test_flags_in_quotes_arrays_and_continuations() -> None:
    text = "A='--x 1 --y'\nB=(--z 2 \\\n 3)\nB+=(--w=4)\nbash -c 'exec python run.py --v 5' name \"$@\"\n"
    found = {flag.name: flag.values for flag in shell.flags(text)}
    assert found.items() >= {"x": ("1",), "y": (), "z": ("2", "3"), "w": ("4",), "v": ("5",)}.items()


def test_processes_are_torchruns_and_else_the_jobs() -> None:
    job = "#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n"
    assert shell.launched(shell.flags(text := f"{job}srun python train.py\n"), text) == (4, 8, None)
    text = f"{job}srun --nodes=1 hostname\nsrun torchrun --nnodes 2 --nproc-per-node=4 train.py\n"
    assert shell.launched(shell.flags(text), text) == (2, 4, None)


EXAMPLES = 60
WORDS = ("0", "-1", "1e999", "nan", "null", "[]", "{}", "[1, 2]", "auto", "9" * 20, "--", "$(", "${", "a b c", "[0]*3+[1]",
         "--num-experts 8", "--rampup-batch-size a b c", "--pipeline-model-parallel-layout Et|tL", "None", "3: 4")
CONFIG = json.dumps({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
                     "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "pipeline": {"stages": 2}})
YAML = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\nmodel: {tensor_model_parallel_size: 2}\n"


@pytest.mark.parametrize("name, text", [("a.sh", SCRIPT), ("a.log", BLOCK.format(dp=4)), ("a.toml", TITAN), ("a.json", CONFIG),
                                        ("a.yaml", YAML), ("b.yaml", YAML.replace("distributed_type", "x"))])
def test_whatever_stands_there_is_a_trial_or_one_line(name: str, text: str, tmp_path: Path) -> None:
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    parts = re.split(r"(\s+|[=:,{}])", text)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(st.lists(st.tuples(st.integers(0, len(parts) - 1), st.sampled_from(WORDS)), min_size=1, max_size=3))
    def holds(changes: list[tuple[int, str]]) -> None:
        other = list(parts)
        for place, word in changes:
            other[place] = f" {word} "
        (tmp_path / name).write_text("".join(other))
        with warnings.catch_warnings(), contextlib.suppress(BadInput):
            warnings.simplefilter("ignore", Remark)
            trialfile.load(tmp_path / name)

    holds()
