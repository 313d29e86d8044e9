"""The words: what is refused is refused with the numbers and what would work; what is asked has one identity."""
import tomllib
from dataclasses import replace

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from seatrial import arith, fields, presets, rules, trialfile
from seatrial.errors import BadInput, Infeasible
from seatrial.spec import Batch, Model, Topology, Trial, model_of, stage_split

TINY = {"model": {"base": "tiny"}, "batch": {"gbs": 16}}


def trial(*, model="bloom-181b", gbs=2048, engine="seatrial", cluster=None, batch=None, **topology) -> Trial:
    return Trial(model=presets.model(model), topology=Topology(**topology), batch=batch or Batch(gbs=gbs), engine=engine,
                 cluster=presets.cluster(cluster) if cluster else None)


def codes(t: Trial) -> list[str]:
    return [v.code for v in rules.violations(t) if v.level == "error"]


def message(t: Trial, code: str) -> str:
    return next(v.message for v in rules.violations(t) if v.code == code)


@pytest.mark.parametrize("name", presets.names("models"))
def test_every_model_preset_builds(name):
    assert presets.model(name).layers > 0


@pytest.mark.parametrize("name", presets.names("clusters"))
def test_every_cluster_preset_builds_and_names_its_sources(name):
    cluster = presets.cluster(name)
    assert cluster.device.source and cluster.intra.source and cluster.inter.source


def test_tiny_in_its_llama_form_has_4_key_value_heads():
    assert presets.model("tiny", {"family": "llama"}).kv == presets.model("tiny-llama").kv == 4
    assert presets.model("tiny").kv == 16


SHAPE = dict(layers=2, hidden=64, heads=4, vocab=100, seq=32)


def test_a_choice_left_out_is_the_familys_and_one_given_stands_alone():
    assert (presets.model("qwen2.5-7b").qkv_bias, presets.model("qwen2.5-7b").out_bias) == (True, False)
    odd = Model(**SHAPE, family="llama", norm="layernorm", biases="mlp", tied=True)
    assert odd.rope and odd.gated and odd.layernorm and odd.mlp_bias and odd.ties
    assert not (odd.qkv_bias or odd.out_bias or odd.learned or odd.normed_qk)


def test_a_family_without_a_choice_of_its_own_keeps_its_run_id():
    asked = fields.plain(Model(**SHAPE, family="llama"))
    assert asked == {**SHAPE, "family": "llama"}


@pytest.mark.parametrize(("given", "words"), [
    (dict(heads=5), "head_dim can say another size"), (dict(head_dim=15, positions="rope"), "head_dim is 15"),
    (dict(rope_factor=8.0), "positions are learned"), (dict(full_every=2), "sliding_window says how far"),
    (dict(rope_low_freq=4.0), "must be above rope_low_freq"), (dict(norm="batchnorm"), "is not one of layernorm, rmsnorm"),
])
def test_a_model_that_cannot_be_is_answered_with_what_could(given, words):
    with pytest.raises(BadInput, match=words):
        fields.build(Model, {**SHAPE, **given}, where="model")


def test_a_misspelt_key_is_answered_with_the_nearest():
    with pytest.raises(BadInput, match=r"model\.layer: no such key; did you mean 'layers'\?"):
        trialfile.build({**TINY, "model": {"base": "tiny", "layer": 3}})
    with pytest.raises(BadInput, match=r"topologie: no such table or key; did you mean 'topology'\?"):
        trialfile.build({**TINY, "topologie": {}})


def test_an_unknown_preset_is_answered_with_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'bloom-176b'"):
        presets.model("bloom176b")


def test_a_key_of_a_router_leaves_the_others_of_its_base(tmp_path):
    base = presets.model("tiny-deepseek")
    for table in ({"aux_loss": 0.5}, {"capacity": 1.5, "correction": 0}):
        wanted = replace(base.router, **table)
        assert trialfile.build({**TINY, "model": {"base": "tiny-deepseek", "router": table}})[0].model.router == wanted
        settings = [f"model.router.{name}={value}" for name, value in table.items()]
        assert trialfile.build({**TINY, "model": {"base": "tiny-deepseek"}}, settings)[0].model.router == wanted
        path = tmp_path / "model.toml"
        path.write_text(tomli_w.dumps({"model": {"base": "tiny-deepseek", "router": {"scale": 3.0}}}))
        assert presets.model(str(path), {"router": table}).router == replace(wanted, scale=3.0)
    assert not wanted.corrected


def test_a_circle_of_presets_is_shown():
    circle = {"models": {"a": {"base": "b"}, "b": {"base": "c"}, "c": {"base": "a"}}}
    with pytest.raises(BadInput, match="a -> b -> c -> a"):
        trialfile.build({**TINY, **circle, "model": {"base": "a"}})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 0, "many", True, [1]])
def test_a_number_that_is_none_is_refused_in_one_line(value):
    with pytest.raises(BadInput) as caught:
        trialfile.build({**TINY, "model": {"base": "tiny", "layers": value}})
    assert "layers" in str(caught.value) and "\n" not in str(caught.value)


def test_settings_of_the_command_line_reach_their_place():
    t, recipe = trialfile.build(TINY, ["topology.tp=2", "model.family=llama", "recipe.lr=1e-3", "topology.schedule=gpipe"])
    assert (t.topology.tp, t.model.family, t.model.kv, recipe.lr, t.topology.schedule) == (2, "llama", 4, 1e-3, "gpipe")


@pytest.mark.parametrize("setting", ["tp", "=3", "a..b=3", "model.name.x=3"])
def test_a_setting_that_cannot_be_placed_is_refused(setting):
    with pytest.raises(BadInput):
        trialfile.build({**TINY, "model": {"base": "tiny", "name": "n"}}, [setting])


def test_a_trial_survives_toml():
    t, recipe = trialfile.build({**TINY, "cluster": {"base": "jz-a100", "nodes": 2}, "topology": {"dp": 4, "pp": 4}},
                                  ["recipe.steps=3"])
    assert trialfile.build(tomllib.loads(trialfile.dumps(t, recipe))) == (t, recipe)


def test_identity_does_not_change_when_a_default_is_spelt_out():
    spelt, _ = trialfile.build({**TINY, "topology": {"dp": 1, "schedule": "1f1b"}})
    plain, _ = trialfile.build(TINY)
    other, _ = trialfile.build({**TINY, "topology": {"dp": 2}})
    assert spelt.run_id() == plain.run_id() != other.run_id()


def test_world_size_names_the_dp_that_would_do():
    t = trial(dp=8, tp=8, pp=10, cluster="jz-a100")
    assert "world-size" in codes(t)
    assert "640 processes, but 48 nodes x 8 processes = 384" in message(t, "world-size")
    assert "DP 6 would" in message(trial(dp=8, tp=8, pp=8, cluster="jz-a100"), "world-size")


def test_batch_names_the_nearest_sizes():
    assert message(trial(dp=12), "batch-divisible") == ("GBS 2048 is not a multiple of DP 12 x MBS 1: "
                                                        "the nearest are 2040 and 2052")


def test_each_size_of_a_ramp_up_must_divide():
    ramp = Batch(gbs=2048, rampup_start=32, rampup_increment=32, rampup_samples=9_000)
    assert codes(trial(batch=ramp, dp=4, mbs=8)) == []
    # The shorthand DP % 4 = 0 and GBS % 32 = 0 holds here and is not enough.
    assert codes(trial(batch=ramp, dp=8, mbs=8)) == ["rampup-start", "rampup-increment"]


def test_a_ramp_up_that_misses_its_goal_is_refused():
    with pytest.raises(BadInput, match="never becomes 2048: the nearest are 2032 and 2132"):
        Batch(gbs=2048, rampup_start=32, rampup_increment=100, rampup_samples=9_000)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 60), st.integers(1, 10_000))
def test_ramp_up_grows_from_start_to_final_size(start, increment, steps, samples):
    batch = Batch(gbs=start + steps * increment, rampup_start=start, rampup_increment=increment, rampup_samples=samples)
    sizes = [batch.size_at(n) for n in range(0, samples + 1, max(1, samples // 50))]
    assert sizes == sorted(sizes) and batch.size_at(0) == (start if steps else batch.gbs)
    assert batch.size_at(samples) == batch.gbs and all((size - start) % increment == 0 for size in sizes)


def test_uneven_stages_are_an_error_for_megatron_and_a_warning_for_ours():
    asked = dict(dp=8, pp=48, cluster="jz-a100")
    assert codes(trial(engine="megatron", **asked)) == ["layers-divisible"]
    assert "72 % 48 = 24, and with embedding slots 74 % 48 = 26; 36 or 72 stages" in message(trial(engine="megatron", **asked),
                                                                                           "layers-divisible")
    ours = trial(**asked)
    assert codes(ours) == [] and message(ours, "uneven-stages")


def test_embedding_slots_make_bloom_fit():
    assert codes(trial(model="bloom-176b", engine="megatron", dp=8, tp=4, pp=12, cluster="jz-a100")) == []
    assert stage_split(70, 12) == (5, *(6,) * 10, 5)


def test_heads_over_tensor_parallel_ranks():
    assert "TP 4 or 8 would do" in message(trial(tp=6), "heads-divisible")
    assert codes(trial(model="llama3-8b", tp=16)) == []  # 8 key-value heads, each on two ranks
    assert "4 key-value heads and TP 14: neither" in message(trial(model="qwen2.5-7b", tp=14), "kv-heads-divisible")
    assert "TP 4 or 28 would do" in message(trial(model="qwen2.5-7b", tp=14), "kv-heads-divisible")


def test_fused_softmax_is_a_warning_for_megatron_alone():
    odd = dict(tp=8, mbs=1)
    wide = presets.model("bloom-181b", {"heads": 112})
    t = Trial(model=wide, topology=Topology(**odd), batch=Batch(gbs=8), engine="megatron")
    assert [v.code for v in rules.check(t)] == ["fused-softmax"]
    assert rules.check(trial(**odd)) == []


def test_interleaved_micro_batches_come_in_groups_of_stages():
    assert codes(trial(model="tiny", gbs=6, pp=4, vp=2, schedule="interleaved")) == ["interleave-divisible"]
    assert codes(trial(model="tiny", gbs=8, pp=4, vp=2, schedule="interleaved")) == []


def test_check_raises_with_the_code():
    with pytest.raises(Infeasible) as caught:
        rules.check(trial(dp=12))
    assert caught.value.code == "batch-divisible" and caught.value.exit_code == 2


@given(st.integers(1, 200), st.integers(1, 64))
def test_a_split_holds_every_layer_and_is_as_even_as_can_be(layers, stages):
    split = stage_split(layers, stages)
    assert sum(split) == layers and len(split) == stages and max(split) - min(split) <= 1


@given(st.integers(1, 300_000), st.integers(1, 64))
def test_padded_vocabulary_divides_and_is_the_least_that_does(vocab, tp):
    padded = Model(layers=1, hidden=8, heads=1, vocab=vocab, seq=1).padded_vocab(tp)
    assert padded % (128 * tp) == 0 and vocab <= padded < vocab + 128 * tp


def test_sharing_a_cpu_node_divides_it_and_sharing_gpus_does_not():
    quarter = presets.cluster("fugaku", procs_per_node=4).device
    assert quarter.peak_tflops["fp32"] == pytest.approx(6.144 / 4) and quarter.units == 12
    assert presets.cluster("jz-a100", procs_per_node=4).device == presets.cluster("jz-a100").device


def test_a_cluster_of_ones_own_in_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[cluster]\nbase = "jz-a100"\nnodes = 3\n[cluster.inter]\nbase = "hdr-8"\nlatency_us = 2.0\n')
    cluster = presets.cluster(str(file))
    assert (cluster.nodes, cluster.inter.bandwidth_gb_s, cluster.inter.latency_us) == (3, 200.0, 2.0)


@pytest.mark.parametrize("text", ["[cluster", "\x00\x01", "x = 1", "[cluster]\nbase = 3\n", '[cluster]\nbase = "nowhere"\n'])
def test_a_bad_cluster_file_is_one_line(tmp_path, text):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(BadInput) as caught:
        presets.cluster(str(file))
    assert "\n" not in str(caught.value)


def test_canonical_text_knows_no_order():
    assert fields.digest({"a": 1, "b": [1, 2]}) == fields.digest({"b": [1, 2], "a": 1}) != fields.digest({"a": 1, "b": [2, 1]})


def test_a_float_that_is_not_finite_and_a_key_that_is_no_text_are_seen_on_the_quick_way_too():
    from seatrial.record import Record

    for wrong in (float("nan"), float("inf")):
        with pytest.raises(BadInput, match="finite"):
            Record.from_dict({"state": "measured", "sec_per_it": wrong})
    assert Record.from_dict({"state": "measured", "sec_per_it": 2}).sec_per_it == 2.0
    assert Record.from_dict({"state": "measured", "iterations": [{1: 2}, {"sec": 1.0}]}).iterations == ({"1": 2}, {"sec": 1.0})
    with pytest.raises(BadInput, match="dp"):
        Record.from_dict({"state": "measured", "dp": True})


@pytest.mark.parametrize("family, sides", [
    ("gpt2", {"layers": 24, "hidden": 1600, "heads": 1, "kv_heads": None, "vocab": 50257, "seq": 2048, "ffn": None}),
    ("llama", {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "vocab": 128256, "seq": 8192, "ffn": 14336}),
])  # fmt: skip
def test_a_model_of_sides_alone_is_what_the_word_gives(family, sides):
    made = model_of(family, **sides)
    assert made == Model(family=family, **sides) and hash(made) == hash(Model(family=family, **sides))
    assert arith.parameters(made) == arith.parameters(Model(family=family, **sides))


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"heads": 7}, {"kv_heads": 3}, {"hidden": 2_000_000}, {"hidden": 33 * 32}])
def test_a_model_of_sides_that_nobody_could_train_is_refused_in_the_same_words(wrong):
    sides = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "vocab": 50257, "seq": 2048} | wrong
    with pytest.raises(BadInput) as usual:
        Model(family="llama", **sides)
    with pytest.raises(BadInput) as made:
        model_of("llama", **sides)
    assert str(made.value) == str(usual.value)
