"""What of `benchmarks.gpu` needs no GPU: peers have our shape and train, rows become records, ratios are of one shape."""
from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import pytest
from benchmarks.gpu import peers, records
from benchmarks.gpu.__main__ import main, ratios
from benchmarks.gpu.ours import forecast
from benchmarks.gpu.peers import floor
from benchmarks.gpu.peers.plain import Plain
from benchmarks.gpu.shapes import GROUPS, ROWS, SHAPES, Row, names
from benchmarks.gpu.steps import WARM

from seatrial import arith, presets
from seatrial.engine.core.ops import PlainGemm
from seatrial.logbook import Logbook
from seatrial.plan import step
from seatrial.plan.configs import Configs
from seatrial.record import Record
from seatrial.spec import Batch, Topology, Trial


@pytest.mark.parametrize("shape", ["tiny", "tiny-llama"])
def test_a_plain_model_has_our_parameters_and_learns(shape):
    model, _ = SHAPES[shape]
    assert sum(p.numel() for p in Plain(model).parameters()) == arith.parameters(model).total
    found = peers.measure(replace(ROWS[f"plain-bf16@{shape}"], compiled=False), steps=1)
    assert found["losses"][-1] < found["losses"][0] and found["sec"] > 0


@pytest.mark.parametrize("shape", ["tiny", "tiny-llama"])
def test_transformers_model_has_our_parameters(shape):
    pytest.importorskip("transformers")
    from benchmarks.gpu.peers.transformers import _model

    model, _ = SHAPES[shape]
    assert sum(p.numel() for p in _model(model).parameters()) == arith.parameters(model).total


@pytest.mark.parametrize("shape", ["tiny", "tiny-llama"])
def test_the_floor_leaves_no_gemm_out(shape, monkeypatch):
    flops = []

    class Counted(PlainGemm):
        def __call__(self, left, right, bias=None, onto=None):
            flops.append(2 * left.shape[0] * left.shape[1] * right.shape[1])
            return super().__call__(left, right, bias, onto)

        def into(self, out, left, right, **how):
            flops.append(2 * left.shape[0] * left.shape[1] * right.shape[1])
            return super().into(out, left, right, **how)

    def counted(*given):
        ops, *others = plain(*given)
        return replace(ops, gemm=Counted()), *others

    plain = floor.ops_for
    monkeypatch.setattr(floor, "ops_for", counted)
    model, mbs = SHAPES[shape]
    peers.measure(Row(group="floor", kind="floor", shape=shape), steps=1)
    attention = 12 * model.layers * mbs * model.seq**2 * model.heads * model.head_size
    steps = 1e12 * arith.tflops("model", model, samples=mbs, sec_per_it=1.0, processes=1)
    assert sum(flops) / (WARM + 1) + attention == steps


def test_each_row_has_a_module_that_builds_it():
    kinds = {row.kind for row in ROWS.values()} - {"ours"}
    assert all(importlib.util.find_spec(f"benchmarks.gpu.peers.{kind}") for kind in kinds)
    assert {"llama", "moe", "engines", "peers"} <= set(GROUPS) and names(["moe"]) == ["bf16@qwen3-moe"]


def test_rows_become_records_also_those_that_failed(tmp_path):
    done = {"sec": 0.14, "tflops": 581.0, "reserved_gib": 30.5, "device": "NVIDIA H200", "torch": "2.11"}
    rows = {"bf16@llama3": done, "megatron@llama3": {"error": "out of memory"}, "smoke": {"took_s": 3.0},
            "deepspeed@llama3": {"missing": "No module named 'deepspeed'"}}
    (tmp_path / "gpu.json").write_text(json.dumps({"schema": 1, "rows": rows}))
    assert records.write(tmp_path / "gpu.json", tmp_path / "book") == 2
    with Logbook(tmp_path / "book") as book:
        ours, theirs = (Record.from_dict(row) for row in book.rows()[0])
    assert (ours.engine, ours.kv_heads, ours.ffn, ours.layers, ours.sec_per_it) == ("seatrial", 8, 14336, 4, 0.14)
    assert (theirs.engine, theirs.state, theirs.outcome.message) == ("megatron-core", "failed", "out of memory")


def test_each_peer_stands_beside_ours_of_its_shape():
    def row(sec: float, gib: float) -> dict[str, float]:
        return {"sec": sec, "allocated_gib": gib}

    found = {"bf16@llama3": row(0.1, 30.0), "titan-amp@llama3": row(0.15, 33.0), "megatron@llama3": {"error": "no"},
             "plain-bf16@1.3b": row(0.2, 40.0)}
    assert ratios(found) == ["bf16@llama3 against: titan-amp 1.500 x and 1.10 x the memory"]


def test_engines_of_others_are_left_out_without_their_folder(capsys, tmp_path):
    assert main(["--only", "megatron@tiny"]) == 0
    assert "not run: megatron@tiny; --peers DIR says where those engines lie" in capsys.readouterr().out
    assert main(["--only", "deepspeed@tiny", "--peers", str(tmp_path)]) == 0
    assert "not run: No module named 'deepspeed'" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--peers", str(tmp_path / "nowhere")])
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["bf16@llama3", "bf16-compiled@llama3", "fp8@llama3", "bf16@qwen3-moe"])
def test_the_planner_can_say_each_row_of_ours(name):
    found = forecast(ROWS[name])
    assert isinstance(found, dict), found
    assert 0.0 < found["sec_lo"] < found["sec"] < found["sec_hi"] < 1.0 and 20 < found["mem_gib"] < 80


@pytest.mark.parametrize(("name", "measured_s"), [("bf16@llama3", 0.1321), ("fp8@llama3", 0.0875)])
def test_layers_of_llama_are_forecast_as_they_were_measured(name, measured_s):
    """One H200, nothing learned from these rows."""
    found = forecast(ROWS[name])
    assert isinstance(found, dict) and found["sec"] == pytest.approx(measured_s, rel=0.05)


def test_eight_bits_are_for_the_vocabularys_matrix_too_where_its_sides_allow():
    model, mbs = SHAPES["llama3"]
    cluster = replace(presets.cluster("h200"), nodes=1, procs_per_node=1)

    def logits_s(vocab: int, precision: str) -> float:
        trial = Trial(model=replace(model, vocab=vocab, pad_vocab_to=vocab), batch=Batch(gbs=mbs), cluster=cluster,
                      topology=Topology(mbs=mbs, precision=precision))  # type: ignore[arg-type]
        return float(step.time(Configs.from_trials([trial]), cluster).parts["logits"][0])

    assert logits_s(128256, "fp8") < 0.7 * logits_s(128256, "bf16")
    assert logits_s(128264, "fp8") == pytest.approx(logits_s(128264, "bf16"), rel=0.01)
