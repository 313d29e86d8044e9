"""Files as people have them, of several years: what they say is in the trial, what is not understood is named."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial import native
from seatrial.errors import BadInput

SIZES = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 512"
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512,
         "intermediate_size": 128, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5}


def read(folder: Path, files: dict[str, Any], name: str) -> native.Native:
    for file, text in files.items():
        (folder / file).write_text(text if isinstance(text, str) else json.dumps(text))
    found = native.read(folder / name)
    assert found is not None
    return found


BLOOM = r"""
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
NNODES=$SLURM_NNODES
LAYERS=8
MICRO_BATCH_SIZE=2
ZERO_STAGE=1
GPT_ARGS=" --num-layers $LAYERS --hidden-size 64 --num-attention-heads 4 --seq-length 32 --pad-vocab-size-to 512 \
    --micro-batch-size $MICRO_BATCH_SIZE --rampup-batch-size 32 16 9_765_625 --global-batch-size 64 --bf16 \
    --kill-switch-path $KILL_SWITCH --checkpoint-activations "
config_json="./ds_config.$SLURM_JOBID.json"
cat <<EOT > $config_json
{
  "train_micro_batch_size_per_gpu": $MICRO_BATCH_SIZE,
  "train_batch_size": 64,
  "zero_optimization": {"stage": $ZERO_STAGE}
}
EOT
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node 8 --nnodes $NNODES "
export CMD=" `pwd`/pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 $GPT_ARGS \
    --deepspeed --deepspeed_config ${config_json} "
srun bash -c "$LAUNCHER --node_rank \$SLURM_PROCID $CMD" 2>&1 | tee -a $LOGS_PATH/main_log.txt
"""


def test_flags_in_variables_in_variables_and_a_deepspeed_file_that_the_script_writes(tmp_path: Path) -> None:
    found = read(tmp_path, {"a.slurm": BLOOM}, "a.slurm")
    t = found.tables["topology"]
    assert not found.unread and (t["dp"], t["tp"], t["pp"], t["zero"], t["recompute"]) == (4, 4, 2, 1, "full")
    assert found.tables["model"]["layers"] == 8 and found.tables["model"]["vocab"] == 512
    assert found.tables["batch"]["rampup_samples"] == 9765625
    with pytest.raises(BadInput, match="micro-batch 2 in Megatron's flags and 4 in DeepSpeed's file"):
        read(tmp_path, {"a.slurm": BLOOM.replace('gpu": $MICRO_BATCH_SIZE', 'gpu": 4')}, "a.slurm")
    lost = read(tmp_path, {"a.slurm": BLOOM.replace("$ZERO_STAGE}", "$OTHER}")}, "a.slurm")
    assert any("is neither beside it nor written by it" in note for note in lost.notes)


@pytest.mark.parametrize("flags, table, says", [
    ("--activations-checkpoint-method uniform --DDP-impl local", "topology", {"recompute": "full"}),
    ("--bf16 --fp8-format hybrid", "topology", {"precision": "fp8"}),
    ("--transformer-impl local", "execution", {"attention": "stored"}),
    ("--multi-latent-attention --kv-channels 8 --qk-head-dim 32", "model", {"head_dim": 32}),
    ("--multi-latent-attention", "model", {"head_dim": 128}),
])  # fmt: skip
def test_flags_of_megatron_of_other_years(flags: str, table: str, says: dict[str, Any], tmp_path: Path) -> None:
    found = read(tmp_path, {"a.args": f"{SIZES} {flags}"}, "a.args")
    assert found.tables[table] | says == found.tables[table] and not found.unread


def test_what_is_not_said_of_the_batch_or_the_model_is_named(tmp_path: Path) -> None:
    start = "torchrun --nnodes 1 --nproc_per_node 4 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 3"
    assert read(tmp_path, {"a.sh": f"{start} {SIZES}"}, "a.sh").tables["batch"] == {"gbs": 6}
    assert "no num_layers, so no model: --model says it" in read(tmp_path, {"b.sh": start}, "b.sh").notes
    assert any("x DP then; --gbs says it here" in note for note in read(tmp_path, {"c.args": SIZES}, "c.args").notes)


def test_processes_that_a_launcher_counts_by_itself_are_not_the_jobs_tasks(tmp_path: Path) -> None:
    job = "#SBATCH --nodes=4 --ntasks-per-node=1\ntorchrun --nnodes 4 --nproc_per_node $SLURM_GPUS_ON_NODE pretrain_gpt.py "
    assert "dp" not in read(tmp_path, {"a.sh": job + SIZES}, "a.sh").tables["topology"]


def test_torchtitans_own_script_and_keys_where_they_stood_in_2024(tmp_path: Path) -> None:
    config = """
        [model]
        name = "llama3"
        flavor = "8B"
        norm_type = "rmsnorm"
        [training]
        batch_size = 4
        seq_len = 2048
        compile = true
        tensor_parallel_degree = 2
        data_parallel_degree = -1
        [experimental]
        pipeline_parallel_degree = 2
        pipeline_parallel_microbatches = 2
        new_and_strange = 3
    """
    script = """
        NGPU=${NGPU:-"8"}
        CONFIG_FILE=${CONFIG_FILE:-"./train_configs/llama3_8b.toml"}
        torchrun --nproc_per_node=${NGPU} --local-ranks-filter 0 -m torchtitan.train --job.config_file ${CONFIG_FILE} "$@"
    """
    found = read(tmp_path, {"llama3_8b.toml": config, "run_train.sh": script}, "run_train.sh")
    t = found.tables["topology"]
    assert (t["dp"], t["tp"], t["pp"], t["mbs"]) == (2, 2, 2, 2) and found.tables["execution"] == {"compile": True}
    assert found.tables["batch"] == {"gbs": 8} and found.unread == ("experimental.new_and_strange",)
    with pytest.raises(BadInput, match="it names ./train_configs/other.toml, which is not beside it"):
        read(tmp_path, {"run_train.sh": script.replace("llama3_8b", "other")}, "run_train.sh")


def test_the_trainers_options_fill_in_deepspeeds_file(tmp_path: Path) -> None:
    config = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": "auto"},
              "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    command = ("deepspeed --num_nodes 2 --num_gpus 8 run_clm.py --deepspeed ds.json --per_device_train_batch_size 2 "
               "--bf16 True --gradient_accumulation_steps 4 --block_size 1024 --gradient_checkpointing True --optim adafactor")
    found = read(tmp_path, {"ds.json": config, "config.json": LLAMA, "a.sh": command}, "a.sh")
    t = found.tables["topology"]
    assert (t["dp"], t["mbs"], t["recompute"], t["precision"]) == (16, 2, "full", "bf16")
    assert found.tables["batch"] == {"gbs": 128} and found.tables["model"]["seq"] == 1024
    assert found.unread == ("--optim",) and any("offload_optimizer" in note for note in found.notes)
    with pytest.raises(BadInput, match="it names other.json, which is not beside it"):
        read(tmp_path, {"a.sh": command.replace("ds.json", "other.json")}, "a.sh")
    with pytest.raises(BadInput, match="zero_optimization is 'yes': expected a table"):
        read(tmp_path, {"b.json": {"zero_optimization": "yes"}}, "b.json")
    assert read(tmp_path, {"b.json": {"zero_optimization": True}}, "b.json").tables["topology"]["zero"] == 1


def test_accelerates_launch_goes_over_its_file_and_nothing_of_either_is_lost(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    files = {"config.json": LLAMA, "f.yaml": "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n",
             "a.sh": "accelerate launch --config_file f.yaml --num_processes 4 x.py --per_device_train_batch_size 3 --liger 1"}
    found = read(tmp_path, files, "a.sh")
    assert found.tables["topology"]["dp"] == 4 and found.tables["batch"] == {"gbs": 12} and found.unread == ("liger",)
    assert any(note.startswith("sequences of 4096, the longest that config.json names") for note in found.notes)
    folder = native.read(tmp_path)
    assert folder is not None and folder.notes[0].startswith("of the folder config.json is read; not a.sh, f.yaml")
    deep = "distributed_type: DEEPSPEED\nnum_processes: 8\n"
    deep += "deepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu, x: 1}\n"
    files |= {"d.yaml": deep, "training_args.json": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}}
    found = read(tmp_path, files, "d.yaml")
    assert found.tables["batch"] == {"gbs": 32} and found.unread == ("deepspeed_config.x",)
    assert any("offload_optimizer" in note for note in found.notes)


def test_references_in_nemos_own_file_are_followed(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    text = """
trainer: {devices: 8, num_nodes: 1, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 16
  tensor_model_parallel_size: 2
  num_layers: 4
  hidden_size: 64
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 4
  encoder_seq_length: ${model.data.seq_length}
  fp8: False
  fp8_hybrid: True
  data: {seq_length: 128}
"""
    found = read(tmp_path, {"n.yaml": text}, "n.yaml")
    assert (found.tables["model"]["ffn"], found.tables["model"]["seq"]) == (256, 128) and not found.unread
    assert found.tables["topology"]["precision"] == "bf16"
    with pytest.raises(BadInput, match=r"ffn_hidden_size \$\{oc.env:FFN\}: the file does not set"):
        read(tmp_path, {"n.yaml": text.replace("${multiply:4, ${.hidden_size}}", "${oc.env:FFN}")}, "n.yaml")
