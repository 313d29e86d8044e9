"""What the planner knows of engines: files that hold together, and numbers that follow from them."""
from __future__ import annotations

import dataclasses
import tomllib
from importlib import resources

import numpy as np
import pytest

from seatrial import presets, rules
from seatrial.engines import engine_name, model
from seatrial.errors import BadInput
from seatrial.plan import memory, rows, search, space, step
from seatrial.plan.configs import Configs
from seatrial.spec import GIB, Batch, Cluster, Execution, Model, Topology, Trial

LLAMA = Model(layers=8, hidden=1024, heads=16, kv_heads=4, vocab=32000, seq=2048, family="llama", ffn=3584)


def trial(engine: str, cluster: str = "dgx-h100", *, gbs: int = 64, attention: str | None = None, overlap: str | None = None,
          shape: Model = LLAMA, nodes: int = 1, **layout) -> Trial:
    place = dataclasses.replace(presets.cluster(cluster), nodes=nodes)
    return Trial(model=shape, batch=Batch(gbs=gbs), topology=Topology(**{"precision": "bf16", **layout}), cluster=place,
                 engine=engine, execution=Execution(attention=attention, overlap=overlap))  # type: ignore[arg-type]


def forecast(one: Trial) -> tuple[float, dict[str, float], dict[str, float]]:
    place = one.cluster
    assert isinstance(place, Cluster)
    c = Configs.from_trials([one])
    timed, held = step.time(c, place), memory.peak(c, place)
    return (float(timed.sec[0]), {name: float(v[0]) for name, v in timed.parts.items()},
            {name: float(v[0]) for name, v in held.parts.items()})


@pytest.mark.parametrize("name", model.names())
def test_every_file_says_its_release_and_its_source_and_no_name_stands_twice(name):
    found = model.model_of(name)
    assert found.version and found.source
    others = {alias for other in model.names() if other != name for alias in (other, *model.model_of(other).aliases)}
    assert not others & {name, *found.aliases}
    assert all(model.model_of(alias) is found and engine_name(alias) == alias for alias in found.aliases)


def test_every_field_of_a_file_is_known_and_every_fact_has_a_docstring():
    from seatrial.fields import meanings

    known = {f.name for f in dataclasses.fields(model.EngineModel)}
    assert set(meanings(model.EngineModel)) == known
    for file in (resources.files("seatrial.presets") / "engines").iterdir():
        assert set(tomllib.loads(file.read_text(encoding="utf-8"))) <= known


def test_megatron_and_an_empty_cell_are_what_they_were_and_nemo_is_core():
    assert model.model_of("megatron").name == "megatron-deepspeed" == model.DEFAULT
    assert model.model_of("nemo").name == model.model_of("megatron-lm").name == "megatron-core"
    assert model.model_of("torchtitan").name == "fsdp2" and model.model_of("accelerate").name == "accelerate"
    assert model.model_of("command").name == "plain-3d"


def test_a_file_of_ones_own_is_its_base_with_what_differs(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text('base = "megatron-core"\ngradient_bytes = 2.0\n')
    plain, own = forecast(trial("megatron-core", dp=8, zero=1)), forecast(trial(str(path), dp=8, zero=1))
    assert own[2]["gradients"] == pytest.approx(plain[2]["gradients"] / 2)
    assert own[2]["activations"] == plain[2]["activations"]


@pytest.mark.parametrize(("text", "why"), [("gradient_bytes = 2", "needs base"), ('base = "fsdp2"\nspeed = 3', "no such key"),
                                           ('base = "fsdp2"\ncontention = 3.0', "share"), ("base = [", "not TOML"),
                                           ('base = "fsdp3"', "fsdp")])
def test_a_bad_file_says_what_would_do(tmp_path, text, why):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=why):
        engine_name(str(path))


def test_an_unknown_engine_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match="fsdp2"):
        engine_name("fsdp3")


def test_megatron_cores_states_are_6_and_12_over_dp():
    held = forecast(trial("megatron-core", dp=8, zero=1))[2]
    whole = forecast(trial("megatron-core", dp=8, zero=0))[2]
    assert held["weights"] == whole["weights"] and held["gradients"] == pytest.approx(2 * held["weights"])
    assert whole["optimizer"] == pytest.approx(6 * whole["weights"])
    assert held["optimizer"] == pytest.approx(whole["optimizer"] / 8)


def test_fsdps_shards_are_16_over_the_group_that_shares_a_copy():
    over = [forecast(trial("fsdp2", dp=64, nodes=8, zero=3, zero_group=group))[2]["optimizer"] for group in (8, 16, 64)]
    assert over[0] == pytest.approx(2 * over[1]) == pytest.approx(8 * over[2])


def test_hybrid_sharding_keeps_gathers_inside_and_reduces_across():
    """On a slow network gathers inside the nodes are faster, though the shards must be added up across."""
    shape = dataclasses.replace(LLAMA, layers=32, hidden=4096, heads=32, ffn=14336, seq=512)
    slow = dataclasses.replace(presets.cluster("dgx-a100"), nodes=8, inter=presets.cluster("jz-a100").inter)
    one = dataclasses.replace(trial("fsdp2", "dgx-a100", shape=shape, dp=64, nodes=8, zero=3), cluster=slow)
    inside = dataclasses.replace(one, topology=dataclasses.replace(one.topology, zero_group=8))
    assert forecast(inside)[1]["gradients"] < 0.6 * forecast(one)[1]["gradients"]


def test_eight_bits_speed_the_linears_alone_and_casts_cost():
    shape = dataclasses.replace(LLAMA, layers=4, hidden=8192, heads=64, kv_heads=8, ffn=28672)
    for engine in ("megatron-core", "fsdp2"):
        wide, narrow = (forecast(trial(engine, shape=shape, dp=8, zero=1, precision=p))[1] for p in ("bf16", "fp8"))
        assert 0.5 < narrow["matmul"] / wide["matmul"] < 0.62
        assert narrow["attention"] == pytest.approx(wide["attention"])
        assert narrow["logits"] == pytest.approx(wide["logits"])
        assert narrow["memory"] > 1.2 * wide["memory"]


def test_kernels_of_attention_differ_as_they_were_measured():
    """Seconds of one layer's attention on an H200 within 15 % of benchmarks/attention_gpu.py, causal, many heads."""
    import json
    from pathlib import Path

    rows = json.loads((Path(__file__).parents[2] / "benchmarks/results/attention-h200.json").read_text())["attention"]
    kinds = {"flash": "fused", "cudnn": "fused-hopper"}
    errors = []
    for row in rows:
        if row["kernel"] not in kinds or row["bias"] or "error" in row or row["batch"] * row["heads"] < 16:
            continue
        shape = Model(layers=1, hidden=row["heads"] * row["head_dim"], heads=row["heads"], vocab=1024, seq=row["seq"])
        one = trial("fsdp1", "h200", shape=shape, gbs=row["batch"], mbs=row["batch"], attention=kinds[row["kernel"]])
        one = dataclasses.replace(one, cluster=dataclasses.replace(presets.cluster("h200"), procs_per_node=1))
        errors.append(forecast(one)[1]["attention"] / (row["forward_s"] + row["backward_s"]) - 1)
    assert len(errors) > 50
    assert np.median(np.abs(errors)) < 0.06 and np.abs(errors).max() < 0.25


def test_stored_scores_cost_memory_and_time_that_fused_attention_does_not():
    stored, fused = (forecast(trial("megatron-core", "dgx-a100", dp=8, attention=kind)) for kind in ("stored", "fused"))
    assert stored[2]["activations"] > 1.5 * fused[2]["activations"] and stored[1]["attention"] > 1.5 * fused[1]["attention"]


def test_overlap_hides_traffic_and_what_hides_it_is_slowed():
    shape = dataclasses.replace(LLAMA, layers=32, hidden=4096, heads=32, ffn=14336, seq=512)
    seen = {said: forecast(trial("megatron-core", shape=shape, dp=64, nodes=8, zero=1, overlap=said))[1]["gradients"]
            for said in (None, "none", "all", "gradients")}
    assert seen["all"] == seen[None] < seen["gradients"] < seen["none"]
    assert seen["all"] > 0.1 * seen["none"]


def test_tensor_overlap_is_asked_for():
    plain, asked, none = (forecast(trial("megatron-core", dp=1, tp=8, sequence_parallel=True, overlap=said))[1]["tensor"]
                          for said in (None, "tensor", "none"))
    assert asked < plain < none


def test_selective_recompute_saves_what_the_engine_makes_it_save():
    def kept(engine: str, mode: str) -> float:
        return forecast(trial(engine, dp=8, zero=1, mbs=2, recompute=mode))[2]["activations"]

    assert kept("fsdp2", "full") < kept("fsdp2", "selective") < 0.6 * kept("fsdp2", "none")
    # Checkpointed core attention keeps more than fused attention needs.
    assert kept("megatron-core", "selective") > kept("megatron-core", "none")


def test_a_pipeline_of_fsdp2_stays_gathered():
    """Its gradients are whole: 4 bytes per parameter beside moments of 8 over the group."""
    held = forecast(trial("fsdp2", dp=4, pp=2, zero=3, gbs=16))[2]
    assert held["gradients"] > 0.95 * held["optimizer"] * 4 / 8 * 4


def test_what_engines_hold_is_about_what_their_parameters_weigh():
    shape = dataclasses.replace(LLAMA, layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)
    from seatrial import arith

    weight = arith.parameters(shape).total / GIB
    for engine, each in (("megatron-core", 18), ("plain-3d", 18)):
        held = forecast(trial(engine, shape=shape, dp=8, zero=0, gbs=8))[2]
        assert held["weights"] + held["gradients"] + held["optimizer"] == pytest.approx(each * weight, rel=0.01)


def read(cluster: str = "dgx-h100", **cells: str) -> rows.Row:
    return rows.read_row({"layers": "24", "hidden": "2048", "dp": "8", "engine": "fsdp2", **cells}, presets.cluster(cluster))


@pytest.mark.parametrize("engine", ["megatron-core", "fsdp2", "fsdp1", "deepspeed"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_row_that_says_its_zero_stage_has_it_though_the_engine_usually_has_another(engine, stage):
    found = read(engine=engine, zero_stage=str(stage))
    assert found.trial and found.trial.topology.zero == stage


@pytest.mark.parametrize(("cells", "path", "value"), [
    ({"recompute": "per-op SAC"}, "topology.recompute", "selective"), ({"recompute": "uniform"}, "topology.recompute", "full"),
    ({"attention": "FlashAttention-2"}, "execution.attention", "fused"),
    ({"attention": "TE"}, "execution.attention", "fused-hopper"),
    ({"attention": "TE", "cluster": "dgx-a100"}, "execution.attention", "fused"),
    ({"attention": "unknown"}, "execution.attention", None), ({"precision": "amp_fp8"}, "topology.precision", "fp8"),
    ({"engine": "PyTorch FSDP"}, "engine", "fsdp"), ({"engine": "DeepSpeed ZeRO-3"}, "topology.zero", 3),
    ({"zero_stage": "ZeRO-2"}, "topology.zero", 2), ({"zero_stage": "none"}, "topology.zero", 0),
    ({"dp_shard": "4"}, "topology.zero_group", 4), ({"dp_replicate": "2"}, "topology.zero_group", 4),
    ({"dp_replicate": "2", "dp_shard": "16", "dp": ""}, "topology.dp", 32),
])  # fmt: skip
def test_words_of_tables(cells, path, value):
    import operator

    assert operator.attrgetter(path)(read(**cells).trial) == value


@pytest.mark.parametrize(("cells", "why"), [({"recompute": "block"}, "full, none, selective"),
                                            ({"recompute": "selective 2"}, "did you mean 'selective'"),
                                            ({"dp_replicate": "2", "dp_shard": "8"}, "are not DP 8"),
                                            ({"attention": "fa3", "cluster": "dgx-a100"}, "older")])
def test_words_that_nothing_here_models_are_refused_with_those_that_are(cells, why):
    assert why in read(**cells).reject


def test_a_row_whose_status_nobody_knows_does_not_count():
    assert read().counts and not read(status="unknown").counts


def test_what_stays_in_16_bits_has_no_copy_in_8():
    wide, narrow = (forecast(trial("megatron-core", dp=8, precision=p))[2]["weights"] for p in ("bf16", "fp8"))
    embeddings = 2 * 32000 * 1024
    assert narrow - wide == pytest.approx(2 * (wide * GIB / 2 - embeddings - 1024) / GIB, rel=1e-6)


def test_fp32_gradients_do_not_travel_wider_in_fp32():
    layout = {"dp": 64, "nodes": 8, "zero": 1, "overlap": "none"}
    half, single = (forecast(trial("megatron-core", precision=p, **layout))[1]["gradients"] for p in ("bf16", "fp32"))
    assert half < single < 1.4 * half  # the gather alone is twice as wide


def test_fsdp_in_fp32_is_16_over_the_group_and_zero_2_keeps_weights_gathered():
    shape = dataclasses.replace(LLAMA, vocab=1024)
    two, three = (forecast(trial("fsdp2", shape=shape, dp=8, zero=z, precision="fp32"))[2] for z in (2, 3))
    assert two["optimizer"] == three["optimizer"] and two["weights"] > three["weights"]
    assert two["weights"] == pytest.approx(4.5 * two["optimizer"])  # 4 whole and 4 / 8, moments 8 / 8


def test_a_pipeline_of_fsdp2_is_as_full_with_zero_2():
    two, three = (forecast(trial("fsdp2", dp=4, pp=2, zero=z, gbs=16))[2] for z in (2, 3))
    assert two["gradients"] == three["gradients"] and two["weights"] == three["weights"]


def test_one_rank_shards_nothing_and_copies_nothing():
    assert forecast(trial("fsdp2", dp=1, gbs=8, zero=3))[1]["gradients"] == 0


def test_deepspeed_hides_stage_2_where_it_is_asked_to():
    shape = dataclasses.replace(LLAMA, layers=32, hidden=4096, heads=32, ffn=14336)
    seen = {said: forecast(trial("deepspeed", shape=shape, dp=64, nodes=8, zero=2, overlap=said))[1]["gradients"]
            for said in (None, "none", "all")}
    assert seen["all"] < 0.8 * seen[None] and seen[None] == seen["none"]


def test_megatron_core_keeps_and_sends_gradients_in_16_bits_in_fp16():
    layout = {"dp": 64, "nodes": 8, "zero": 1, "overlap": "none"}
    (_, slow, wide), (_, fast, narrow) = (forecast(trial("megatron-core", precision=p, **layout)) for p in ("bf16", "fp16"))
    assert narrow["gradients"] == pytest.approx(wide["gradients"] / 2)
    assert narrow["optimizer"] == pytest.approx(wide["optimizer"] * 16 / 12)
    assert fast["gradients"] < 0.8 * slow["gradients"]


def test_groups_of_the_distributed_optimizer_are_emitted():
    from seatrial.plan import emit

    flags = emit.megatron_lm(trial("megatron-core", dp=16, nodes=2, zero=1, zero_group=8)).flags
    assert ("--num-distributed-optimizer-instances", "2") in flags


def test_megatron_core_stores_scores_on_a_v100_where_flash_attention_does_not_run():
    kernels = {name: model.model_of(name).attention_on(presets.cluster("dgx-1").device) for name in ("megatron-core", "fsdp2")}
    assert kernels == {"megatron-core": "stored", "fsdp2": "fused"}
    assert model.model_of("megatron-core").attention_on(presets.cluster("dgx-a100").device) == "fused"


def test_uneven_stages_of_megatron_core_are_forecast_though_no_search_proposes_them():
    from seatrial import rules

    odd = dataclasses.replace(LLAMA, layers=25)
    for engine, refused in (("megatron-core", []), ("megatron", ["layers-divisible"])):
        found = rules.violations(trial(engine, shape=odd, dp=2, pp=4))
        assert [violation.code for violation in found if violation.level == "error"] == refused


@pytest.mark.parametrize(("gbs", "rehearsed"), [(64, 66.54), (256, 81.49)])
def test_accelerate_holds_what_was_rehearsed(gbs, rehearsed):
    """seatrial rehearse --engine accelerate --model llama3-8b --cluster dgx-h100 --dp 64 --zero 3 --gbs GBS --memory-only"""
    held = forecast(trial("accelerate", shape=presets.model("llama3-8b"), dp=64, nodes=8, zero=3, gbs=gbs))[2]
    tensors = sum(value for part, value in held.items() if part not in memory.MEASURES["allocated"])
    assert tensors == pytest.approx(rehearsed, rel=0.05)


def lacking(engine: str, **layout) -> list[str]:
    return [found.code for found in rules.violations(trial(engine, **layout)) if found.code in rules.LACKS]


def test_what_an_engine_lacks_is_a_warning_and_no_plan_proposes_it():
    assert lacking("accelerate", dp=4, pp=2, zero=3) == ["no-degree"] == lacking("fsdp1", dp=4, tp=2, zero=3)
    assert lacking("accelerate", dp=4, tp=2) == ["zero-replicas"] == lacking("torchtitan", dp=4, pp=2)
    assert lacking("accelerate", dp=8, recompute="selective") == ["no-recompute"]
    assert not lacking("accelerate", dp=8) and not lacking("accelerate", tp=8) and not lacking("megatron-core", dp=4, pp=2)
    for engine in ("accelerate", "fsdp1", "torchtitan"):
        found = search.search(space.Space(models=(LLAMA,), cluster=presets.cluster("dgx-h100"), nodes=(1,), gbs=(64,),
                                          engine=engine))
        layouts = [found.trial(i) for i in range(len(found))]
        assert layouts and not any(one.code in rules.LACKS for layout in layouts for one in rules.violations(layout))
    asked = space.Space(models=(LLAMA,), cluster=presets.cluster("dgx-h100"), gbs=(64,), engine="accelerate", pp=(2,))
    with pytest.raises(BadInput, match="PP 2: accelerate has no pipeline; PP 1 would do"):
        search.search(asked)
