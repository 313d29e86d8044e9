"""Commands that begin with what somebody already runs: `plan --around`, `explain`, `plan --emit` of what is written alone."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.cli import main

SCRIPT = """
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
    --seq-length 4096 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear \\
    --untie-embeddings-and-output-weights --vocab-size 32000 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 \\
    --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer --overlap-grad-reduce \\
    --overlap-param-gather --sequence-parallel --attention-dropout 0.0 --hidden-dropout 0.0 --use-fancy-thing
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    return path


def test_plan_around_a_script_ranks_it_and_keeps_model_batch_and_processes(script, capsys):
    assert main(["plan", "--around", str(script), "--cluster", "dgx-h100", "--top", "3", "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    given, first = found["around"], found["candidates"][0]
    assert (given["dp"], given["tp"], given["pp"], given["mbs"], given["nodes"]) == (2, 4, 2, 1, 2)
    assert found["engine"] == "megatron-core" and found["precision"] == "bf16" and first["gbs"] == 128
    assert all(c["dp"] * c["tp"] * c["pp"] * c["cp"] == 16 for c in found["candidates"])
    assert given["rank"] > 1 and given["slower_by"] > 0 and given["sec_per_it"] > first["sec_per_it"]
    assert given["changes"][0]["gain"] > 0 and given["changes"][0]["sec_per_it"] < given["sec_per_it"]
    assert "not understood, and not in the forecast: --use-fancy-thing" in said.err


@pytest.mark.parametrize("engine", ["megatron-lm", "torchtitan"])
def test_the_best_of_a_plan_written_and_planned_around_is_first(engine, tmp_path, capsys):
    asked = ["--model", "llama3-8b", "--cluster", "dgx-h100", "--nodes", "2", "--gbs", "128"]
    assert main(["plan", *asked, "--emit", engine, "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert main(["plan", "--around", str(tmp_path / "out"), "--cluster", "dgx-h100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["around"]["rank"] <= found["ties"] and found["around"]["slower_by"] < 0.01
    assert found["around"]["sec_per_it"] == pytest.approx(found["candidates"][0]["sec_per_it"], rel=0.01)


def test_a_file_that_compiles_on_a_part_of_a_node_is_planned_around(tmp_path, capsys):
    path = tmp_path / "llama3.toml"
    path.write_text('[model]\nname = "llama3"\nflavor = "debugmodel"\n[training]\nlocal_batch_size = 2\nseq_len = 512\n'
                    "[parallelism]\ndata_parallel_shard_degree = 4\n[compile]\nenable = true\n")
    assert main(["plan", "--around", str(path), "--cluster", "dgx-h100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["around"]["dp"], found["around"]["nodes"]) == (4, 1)
    assert all(c["dp"] * c["tp"] * c["pp"] * c["cp"] == 4 for c in found["candidates"])


def test_explain_takes_the_same_file_and_says_what_is_missing(script, capsys):
    assert main(["explain", str(script), "--cluster", "dgx-h100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sec_per_it"] > 0
    script.write_text(SCRIPT.replace("--vocab-size 32000", ""))
    assert main(["explain", str(script), "--cluster", "dgx-h100"]) == 2
    said = capsys.readouterr().err
    assert "--set model.vocab=50257 says it" in said and "vocab" in said.splitlines()[-1]
    assert main(["explain", str(script), "--cluster", "dgx-h100", "--set", "model.vocab=32000", "--json"]) == 0


@pytest.mark.parametrize("to, file, says", [
    ("nemo", "nemo.yaml", "tensor_model_parallel_size"),
    ("accelerate", "accelerate.yaml", "fsdp_version: 2"),
    ("megatron-deepspeed", "megatron-deepspeed.args", "--deepspeed_config ds_config.json"),
])  # fmt: skip
def test_engines_that_are_written_alone(to, file, says, tmp_path, capsys):
    model = "gpt2-124m" if to == "megatron-deepspeed" else "llama3-8b"
    assert main(["plan", "--model", model, "--cluster", "dgx-h100", "--nodes", "1", "--gbs", "64", "--emit", to,
                 "-o", str(tmp_path / to)]) == 0, capsys.readouterr()  # fmt: skip
    text = (tmp_path / to / file).read_text()
    assert says in text and (to == "megatron-deepspeed" or "not run here" in text)


def test_around_and_a_file_at_once_is_one_line(script, capsys):
    assert main(["plan", str(script), "--around", str(script), "--cluster", "dgx-h100"]) == 2
    assert "one of them says what the search begins with" in capsys.readouterr().err


ROWS = """engine,size_label,layers,hidden,heads,vocab,seq,nodes,gpus,dp,tp,pp,mbs,gbs,zero_stage,recompute,dtype,sec_per_it
seatrial,tiny,8,128,16,256,128,1,2,2,1,1,4,16,3,none,fp32,0.136
torchtitan,tiny,8,128,16,256,128,1,2,2,1,1,4,16,3,none,fp32,0.190
seatrial,tiny,8,128,16,256,128,1,2,1,2,1,4,16,0,none,fp32,0.364
torchtitan,tiny,8,128,16,256,128,1,2,1,2,1,4,16,0,none,fp32,0.416
seatrial,tiny,8,128,16,256,128,1,2,1,2,1,4,16,1,none,fp32,0.300
torchtitan,tiny,8,128,16,256,128,1,2,1,2,1,4,16,1,none,fp32,0.600
"""


def test_engines_are_compared_on_the_same_layout_in_words_and_on_the_page(tmp_path, capsys):
    from seatrial.report import data
    from seatrial.report.read import read

    (tmp_path / "rows.csv").write_text(ROWS)
    assert main(["compare", "--logbook", str(tmp_path / "rows.csv"), "--a", "engine=torchtitan", "--b", "engine=seatrial",
                 "--json"]) == 0  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert [round(group["ratio"], 3) for group in found["groups"]] == [0.716, 0.875, 0.5]
    assert len({group["label"] for group in found["groups"]}) == 3 and "zero_stage=1" in found["groups"][2]["label"]
    records, _ = read([tmp_path / "rows.csv"])
    view = data.build(records, title="two engines").view
    assert [column["name"] for column in view["columns"][:3]] == ["state", "size", "engine"]
    knob = view["knobs"][0]
    assert knob["name"] == "engine" and [len(series["points"]) for series in knob["series"]] == [2, 2, 2]
    assert len({series["label"] for series in knob["series"]}) == 3
    [zero] = [knob for knob in view["knobs"] if knob["name"] == "zero_stage"]
    assert [series["label"].rpartition(", ")[2] for series in zero["series"]] == ["Engine seatrial", "Engine torchtitan"]
    alone = data.build([record for record in records if record.engine == "seatrial"], title="one").view
    assert alone["columns"][2]["name"] != "engine"
