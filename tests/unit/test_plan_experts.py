"""Experts and latent attention in the planner: counts by hand, what is held and sent, and plans that fit."""
from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from seatrial import arith, presets, rules
from seatrial.arith.experts import expert_tensors
from seatrial.arith.layer import numbers
from seatrial.engines.torchtitan import Torchtitan, config, spec
from seatrial.errors import BadInput, Infeasible
from seatrial.plan import emit, experts, memory, network, rows, step
from seatrial.plan.ask import ask, question
from seatrial.plan.configs import CHOICES, Configs, decoded
from seatrial.plan.explain import explain
from seatrial.plan.kernels import Machine
from seatrial.plan.search import search
from seatrial.plan.shape import check_shape, shapes
from seatrial.plan.space import Space, chunks, not_searched
from seatrial.plan.verdicts import CODES, verdicts
from seatrial.recipe import Recipe
from seatrial.spec import GIB, Batch, Model, Router, Topology, Trial

ENGINES = ["megatron-core", "fsdp2", "deepspeed", "seatrial", "plain-3d", "megatron-deepspeed"]
H100 = presets.cluster("dgx-h100", nodes=8)


def trial(model="qwen3-30b-a3b", gbs=512, engine="megatron-core", cluster=H100, **topology):
    base = presets.model(model) if isinstance(model, str) else model
    return Trial(model=base, batch=Batch(gbs=gbs), topology=Topology(**{"precision": "bf16", "zero": 1, **topology}),
                 cluster=cluster, engine=engine)


def configs(*args, **knobs):
    return Configs.from_trials([trial(*args, **knobs)])


@pytest.mark.parametrize("topology", [
    dict(dp=64, ep=8), dict(dp=16, tp=4, ep=16, etp=1), dict(dp=16, tp=4, ep=2), dict(dp=8, pp=8, ep=4), dict(dp=4, tp=4, pp=4),
    dict(dp=4, pp=4, cp=4, ep=16), dict(dp=16, pp=4, vp=3, schedule="interleaved", ep=8),
])
@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3", "tiny-deepseek", "llama3-8b"])
def test_parameters_of_each_rank_are_those_of_the_arithmetic(model, topology):
    model = presets.model(model)
    if not model.mixture:
        topology = {name: value for name, value in topology.items() if name not in ("ep", "etp")}
    model = replace(model, layers=max(model.layers, 12))
    one = trial(model, **topology)
    t, c = one.topology, Configs.from_trials([one])
    dense, routed = step.dense_parameters(c)[:, 0], step.expert_parameters(c)[:, 0]
    for row, rank in [(0, 0), (2, t.pp - 1)]:
        found = arith.stage_parameters(model, t, rank)
        assert (dense[row], routed[row]) == (pytest.approx(found.split + found.replicated, rel=1e-3), found.experts)
    if t.pp > 2:
        between = [arith.stage_parameters(model, t, rank) for rank in range(1, t.pp - 1)]
        assert routed[1] == max(found.experts for found in between)


def test_layers_with_experts_are_counted_stage_by_stage():
    model = replace(presets.model("deepseek-v3"), layers=16, dense_layers=3, expert_every=2)
    c = Configs.from_trials([trial(model, gbs=64, dp=16, pp=4)])
    layers = np.array([[5.0], [3.0], [2.0], [6.0]])
    wanted = [sum(model.has_experts(i) for i in range(*ends)) for ends in ((0, 5), (5, 8), (8, 10), (10, 16))]
    assert experts.of_stages(c, layers)[:, 0].tolist() == wanted
    assert experts.depths(c)[:, 0].tolist() == [1, 2, 2]


def test_bytes_of_an_all_to_all_and_where_they_go():
    """8192 tokens x 8 experts x 2048 numbers of 2 bytes: seven eighths of them leave the node where EP is 64."""
    size = 8192 * 8 * 2048 * 2
    inside, across = configs(dp=64, ep=8), configs(dp=64, ep=64)
    assert network.expert_group(inside).nodes[0] == 1 and network.expert_group(across).nodes[0] == 8
    machine = Machine.of(across, H100)
    fast = network.all_to_all_s(H100, network.expert_group(inside), size)[0]
    slow = network.all_to_all_s(H100, network.expert_group(across), size)[0]
    assert experts.dispatch_s(inside, H100, machine)[0] == fast
    assert experts.dispatch_s(across, H100, machine)[0] == slow
    # Each of a node's eight ranks sends so much through the adapters that they share.
    rate = H100.inter.bandwidth_gb_s * 1e9 * H100.inter.efficiency
    assert slow == pytest.approx(8 * size * 7 / 8 / rate, rel=0.1)
    assert slow > 3 * fast


def test_a_token_that_chooses_from_some_groups_goes_to_fewer_nodes():
    """DeepSeek-V3: 8 of 256 experts from 4 of 8 groups, over 8 nodes."""
    limited = configs("deepseek-v3", dp=64, ep=64, moe_dispatcher="flex")
    free = replace(limited, router_limit=limited.router_groups)
    group = network.expert_group(limited)
    assert experts._nodes_share(limited, H100, group)[0] == pytest.approx(4 * (1 - (3 / 4) ** 8) / 8)
    assert experts._nodes_share(free, H100, group)[0] == pytest.approx(8 * (1 - (7 / 8) ** 8) / 8)


def test_every_rank_of_an_expert_gets_its_rows():
    """Rows of a layer over all ranks: tokens x choices, as often as an expert is cut."""
    for knobs, times in ((dict(dp=64, ep=8), 1), (dict(dp=16, tp=4, ep=4), 4), (dict(dp=16, tp=4, ep=16, etp=1), 1),
                         (dict(dp=16, cp=4, ep=32), 1)):
        c = configs(**knobs)
        ranks = int(c.world[0])
        assert experts.rows(c)[0] * ranks == times * 8 * 8192 * c.dp[0]


def test_forced_balance_has_no_excess_and_is_no_heavier():
    natural, forced = configs(dp=64, ep=16), configs(dp=64, ep=16, moe_balance="forced")
    assert experts.excess(forced)[0] == 0 < experts.excess(natural)[0] < 1
    assert step.time(forced, H100).parts["wait"][0] == 0 < step.time(natural, H100).parts["wait"][0]
    light, heavy = memory.peak(forced, H100), memory.peak(natural, H100)
    assert light.gib[0] < heavy.gib[0] and light.sigma[0] < heavy.sigma[0]


def test_the_fullest_rank_has_more_the_fewer_experts_each_holds():
    found = [float(experts.excess(configs(dp=64, ep=ep))[0]) for ep in (1, 4, 16, 64)]
    assert found[0] == 0 and found == sorted(found) and found[-1] > 3 * found[1]
    few = configs(replace(presets.model("qwen3-30b-a3b"), seq=128), dp=64, ep=16)
    assert experts.excess(few)[0] > 1.2 * experts.excess(configs(dp=64, ep=16))[0]
    over_layers, _ = experts.kept_excess(configs(dp=64, ep=16), np.array([16.0]))
    assert over_layers[0] == pytest.approx(experts.excess(configs(dp=64, ep=16))[0] / 4)


@pytest.mark.parametrize("capacity", [0.5, 1.0, 1.25, 2.0])
def test_what_is_above_an_experts_capacity_is_dropped(capacity: float) -> None:
    plain = presets.model("qwen3-30b-a3b")
    model = replace(plain, router=replace(plain.router, capacity=capacity))
    free, full = (configs(one, dp=64, ep=16) for one in (plain, model))
    loads = np.random.default_rng(0).normal(1, float(experts._expert_deviation(free)[0]), 1_000_000)
    assert experts.share(full)[0] == pytest.approx(np.minimum(loads, capacity).mean(), abs=2e-3)
    assert experts.rows(full)[0] == pytest.approx(experts.rows(free)[0] * experts.share(full)[0])
    fullest = experts.share(full)[0] * (1 + experts.excess(full)[0])
    assert fullest <= min(capacity, 1 + experts.excess(free)[0]) + 1e-9
    assert step.time(full, H100).sec[0] <= step.time(free, H100).sec[0] * (1 + 1e-9)
    ours = [memory.peak(configs(one, dp=64, ep=16, engine="seatrial"), H100).gib[0] for one in (model, plain)]
    assert ours[0] <= ours[1] and memory.peak(full, H100).gib[0] <= memory.peak(free, H100).gib[0]
    forced = configs(model, dp=64, ep=16, moe_balance="forced")
    assert experts.share(forced)[0] == pytest.approx(min(1, capacity), abs=1e-6) and experts.excess(forced)[0] < 1e-6


def test_states_of_experts_are_cut_over_their_own_copies():
    """Megatron's distributed optimizer: 2 bytes of weights and 4 of gradients whole, 12 over the ranks that hold the same."""
    c = configs(dp=64, ep=8)
    each = float(numbers(expert_tensors(presets.model("qwen3-30b-a3b"), 8, 1))) * 48
    dense = float(step.dense_parameters(c)[0, 0])
    assert memory.states_gib(c)[0] * GIB == pytest.approx(dense * (6 + 12 / 64) + each * (6 + 12 / 8), rel=1e-9)
    sharded = configs(dp=64, ep=8, zero=3, engine="fsdp2")
    assert memory.states_gib(sharded)[0] * GIB == pytest.approx(dense * 16 / 64 + each * 16 / 8, rel=1e-9)


def test_a_larger_ep_holds_fewer_experts_and_a_dense_model_knows_none():
    found = [memory.states_gib(configs(dp=64, ep=ep))[0] for ep in (1, 2, 4, 8)]
    assert found == sorted(found, reverse=True)
    plain, coded = configs("llama3-8b", dp=64), configs("llama3-8b", dp=64, moe_balance="forced")
    assert memory.peak(plain, H100).gib == memory.peak(coded, H100).gib
    assert not {"experts", "wait", "dispatch"} & set(step.time(plain, H100).parts)


def test_what_one_layer_of_experts_keeps_is_megatrons_count():
    """Of each row: the input of fc1 (2 h), its output (4 f), the weighted activation (2 f); selective leaves the last out."""
    c = configs(dp=64, ep=8, moe_balance="forced", recompute="selective")
    element, count = np.array([2.0]), 8192 * 8
    left = memory.expert_left_bytes(c, H100, element, experts.rows(c))
    beside = memory.left_bytes(replace(c, inner=c.shared_inner), H100, element, routed=True)
    router = 8192 * 128 * 20
    assert left.everything[0] - beside.everything[0] == count * (2 * 2048 + 6 * 768) + router
    assert left.partly[0] - beside.partly[0] == count * (2 * 2048 + 4 * 768) + router
    # Around them: both norms' inputs and outputs, q and attention's output, k and v, q and k before their norms, and a number
    # of each head.
    assert beside.everything[0] == 8192 * (8 * 2048 + 4 * 4096 + 4 * 512 + 2 * (4096 + 512) + 4 * 32)


def test_latent_attention_keeps_what_it_expanded_and_what_it_compressed():
    c = configs("deepseek-v3", dp=64, ep=8, recompute="selective")
    kept = memory.left_bytes(replace(c, inner=0 * c.inner), H100, np.array([2.0]))
    heads, tokens = 128, 4096
    expanded, out = 2 * heads * (192 + 192 + 128), 2 * heads * 128
    compressed = 4 * (1536 + 512) + 2 * 64
    assert kept.everything[0] == tokens * (8 * 7168 + expanded + out + compressed + 4 * heads)
    # Without the norm's output before attention and those of what is compressed; the MLP's norm is part of its first linear.
    assert kept.partly[0] == tokens * (6 * 7168 + out + compressed - 2 * (1536 + 512) + 4 * heads)


def test_a_layer_takes_its_gemms_and_its_share_of_the_experts():
    c, machine = configs(dp=64, ep=8, moe_balance="forced"), Machine.of(configs(dp=64), H100)
    from seatrial.plan.layer import expert_layer, layer

    assert layer(c, H100, machine) == {}
    cost = expert_layer(c, H100, machine)
    flops = 2 * 8192 * 8 * 3 * 2048 * 768
    rate = flops / cost["experts"].forward[0]
    assert 0.35 < rate / (H100.device.peak_tflops["bf16"] * 1e12) < 0.8
    assert cost["experts"].backward[0] == pytest.approx(2 * cost["experts"].forward[0], rel=0.25)
    full = expert_layer(configs(dp=64, ep=8, moe_balance="forced", recompute="full"), H100, machine)
    assert full["experts"].backward[0] == pytest.approx(cost["experts"].backward[0] + cost["experts"].forward[0])
    assert full["dispatch"].backward[0] == pytest.approx(2 * cost["dispatch"].backward[0])


def some(random):
    """A layout of a model with experts or without, by any engine."""
    names = ["tiny-moe", "tiny-deepseek", "qwen3-30b-a3b", "deepseek-v3", "mixtral-8x7b", "llama3-8b"]
    model = replace(presets.model(random.choice(names)), mtp=random.choice([0, 1]))
    tp, pp, cp = random.choice([1, 1, 2, 4]), random.choice([1, 2, 4]), random.choice([1, 1, 2])
    spread = dict(ep=random.choice([1, 2, 4]), etp=random.choice([None, 1])) if model.mixture else {}
    return trial(model, engine=random.choice(ENGINES), dp=64 // tp // pp // cp, tp=tp, pp=pp, cp=cp,
                 zero=random.choice([0, 1, 2, 3]), recompute=random.choice(["none", "selective", "full"]),
                 mbs=random.choice([1, 2]), precision=random.choice(["bf16", "fp8"]), sequence_parallel=tp == 2,
                 moe_balance=random.choice(["natural", "forced"]),
                 moe_dispatcher=random.choice(["alltoall", "allgather", "flex"]), **spread)


def test_layouts_together_are_what_each_is_alone():
    random = Random(5)
    trials = [some(random) for _ in range(60)]
    together, held = (of(Configs.from_trials(trials), H100) for of in (step.time, memory.peak))
    for i, one in enumerate(trials):
        timed, alone = (of(Configs.from_trials([one]), H100) for of in (step.time, memory.peak))
        assert together.sec[i] == pytest.approx(timed.sec[0]) and held.gib[i] == pytest.approx(alone.gib[0])
        assert sum(values[0] for values in timed.parts.values()) == pytest.approx(timed.sec[0])
        assert min(values[0] for values in timed.parts.values()) >= 0
        even = Configs.from_trials([replace(one, topology=replace(one.topology, moe_balance="forced"))])
        assert step.time(even, H100).sec[0] <= timed.sec[0] * (1 + 1e-9)
        assert memory.peak(even, H100).gib[0] <= alone.gib[0] * (1 + 1e-9)


def test_a_layer_of_multi_token_prediction_is_one_more_on_the_last_stage():
    plain = presets.model("deepseek-v3")
    one, more = (configs(model, gbs=256, dp=8, pp=8, ep=8) for model in (plain, replace(plain, mtp=1)))
    grown = (step.stage_parameters(more) - step.stage_parameters(one))[:, 0]
    size = arith.parameters(plain)
    held = size.expert_layer - numbers(expert_tensors(plain)) * 7 / 8
    assert grown.tolist() == pytest.approx([0, 0, held + 2 * 7168**2 + 3 * 7168 + one.vocab[0] * 7168])
    assert (memory.activations(more, H100, np.array([2.0]))[0] > memory.activations(one, H100, np.array([2.0]))[0])[2, 0]
    assert step.measure(more, H100).head.forward[0] > 2 * step.measure(one, H100).head.forward[0]


@pytest.mark.parametrize(("model", "nodes", "gbs", "engine"), [
    ("qwen3-30b-a3b", 8, 512, "megatron-core"), ("qwen3-30b-a3b", 8, 512, "fsdp2"), ("qwen3-30b-a3b", 8, 512, "seatrial"),
    ("deepseek-v3", 32, 2048, "megatron-core"), ("deepseek-v3", 256, 8192, "megatron-core"),
    ("mixtral-8x7b", 4, 128, "deepspeed"),
])
def test_a_plan_finds_what_fits_and_says_why(model, nodes, gbs, engine):
    start = time.process_time()
    asked = question(model=model, cluster="dgx-h100", nodes=nodes, knobs={"gbs": gbs}, engine=engine)
    found = ask(asked.request)
    assert time.process_time() - start < 20
    first, document = found.found.trial(0), found.document
    assert document["candidates"][0]["fits"] in ("yes", "tight")
    # ZeRO 3 can do without.
    assert first.topology.ep > 1 or first.topology.zero == 3
    assert not [v for v in rules.violations(first) if v.level == "error"]
    assert document["active_parameters"] < document["parameters"] / 3
    assert any(line.startswith(f"EP {first.topology.ep} with ETP") for line in document["reasons"])
    assert {"experts", "dispatch", "wait"} <= set(document["candidates"][0]["parts_s"])
    assert document["candidates"][0]["ep"] == first.topology.ep
    assert not any(line.startswith(f"with EP {first.topology.ep} and ETP {first.topology.expert_tp} the best")
                   for line in document["reasons"])


def test_layers_that_nearly_fill_virtual_stages_are_interleaved():
    """61 over 16 x 2, as DeepSeek-V3 is trained; 7 stages of 9 or 8 and one of none are not looked at."""
    space = Space(models=(presets.model("deepseek-v3"),), cluster=H100, gbs=(512,), engine="megatron-core")
    seen = {(pp, vp) for c in chunks(space) for pp, vp in zip(c["pp"].tolist(), c["vp"].tolist()) if vp > 1}
    assert {(16, 2), (8, 4), (4, 8)} <= seen and not {(8, 3), (16, 3), (4, 5)} & seen


def test_etp_that_does_not_divide_a_stage_is_told_by_its_own_name():
    with pytest.raises(BadInput, match=r"topology.etp: ETP 3 does not divide the 64 ranks .*: ETP 2 or 4 would"):
        Topology(dp=32, tp=2, ep=8, etp=3)
    with pytest.raises(BadInput, match=r"topology.ep: ETP 2 x EP 64 = 128 .*: EP 32 would"):
        Topology(dp=32, tp=2, ep=64)


def test_the_width_of_an_mlp_that_no_layer_has_is_of_no_account():
    model = replace(presets.model("tiny-moe"), ffn=500)
    assert not [v for v in rules.violations(trial(model, gbs=64, dp=8, tp=8)) if v.level == "error"]
    dense = replace(model, dense_layers=1)
    assert "ffn-divisible" in [v.code for v in rules.violations(trial(dense, gbs=64, dp=8, tp=8))]


def test_ep_and_etp_can_be_given():
    space = Space(models=(presets.model("qwen3-30b-a3b"),), cluster=H100, gbs=(512,), ep=(16,), etp=(1,),
                  moe_balance=("forced",), sequence_parallel=(False, True), engine="megatron-core")
    found = search(space)
    t = found.trial(0).topology
    assert (t.ep, t.expert_tp, t.moe_balance) == (16, 1, "forced") and set(found.ranked["ep"]) == {16}
    assert "expert parallelism" not in " ".join(not_searched(space, "bf16"))
    lacking = not_searched(replace(space, ep=None, engine="plain-3d"), "bf16")
    assert "expert parallelism (not in plain-3d)" in lacking


@pytest.mark.parametrize(("engine", "topology", "message"), [
    ("plain-3d", dict(dp=64, ep=2), "EP 2: plain-3d has no expert parallelism; EP 1 would do"),
    ("megatron-deepspeed", dict(dp=64, ep=2), "EP 2: megatron-deepspeed has no expert parallelism"),
    ("fsdp2", dict(dp=16, tp=4, ep=2, etp=2), "ETP 2 with TP 4: fsdp2 cannot; ETP 1 or 4 would do"),
    ("fsdp2", dict(dp=64, ep=2, moe_dispatcher="allgather"), "moe_dispatcher allgather: fsdp2 has alltoall"),
    ("deepspeed", dict(dp=64, ep=2, zero=3), "ZeRO 3 with EP 2: deepspeed takes ZeRO 2 at most"),
    ("deepspeed", dict(dp=64, zero=3), ""),
    ("megatron-core", dict(dp=64, ep=64, etp=1, moe_dispatcher="allgather"), ""),
    ("megatron-core", dict(dp=16, tp=4, ep=8, etp=2, sequence_parallel=True), ""),
])
def test_engines_say_what_they_cannot(engine, topology, message):
    one = trial(engine=engine, **topology)
    errors = [v.message for v in rules.violations(one) if v.level == "error"]
    assert errors[0].startswith(message) if message else not errors


@pytest.mark.parametrize("engine", ["megatron-core", "fsdp2", "deepspeed", "plain-3d", "seatrial"])
@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
def test_a_layout_of_experts_is_rejected_in_bulk_as_it_is_alone(engine, dispatcher):
    random = Random(f"{engine} {dispatcher}")
    model = Model(layers=4, hidden=96, heads=12, seq=36, vocab=1000, family="llama", ffn=240, experts=12, top_k=2,
                  expert_ffn=40, shared_experts=1)
    cluster = presets.cluster("jz-a100", nodes=3, procs_per_node=8)
    for one in (model, replace(model, experts=None, top_k=None, expert_ffn=None, shared_experts=None)):
        space = Space(models=(one,), cluster=cluster, gbs=(24,), mbs=(1, 2, 3), ep=(1, 2, 3, 4, 8), etp=(1, 2, 3, 4),
                      engine=engine, sequence_parallel=(False, True), moe_dispatcher=(dispatcher,))
        seen = set()
        for c in chunks(space):
            codes = verdicts(c, space, None, "bf16")
            for i in random.sample(range(len(codes)), min(150, len(codes))):
                row = {name: int(column[i]) for name, column in c.items() if name not in ("shape", "nodes")}
                knobs = decoded({**row, "moe_dispatcher": CHOICES["moe_dispatcher"].index(dispatcher)})
                alone = Trial(model=one, batch=Batch(gbs=knobs.pop("gbs")), topology=Topology(**knobs), cluster=cluster,
                              engine=engine)
                wanted = next((v.code for v in rules.violations(alone) if v.level == "error"), "")
                assert (CODES[codes[i] - 1] if codes[i] else "") == wanted, alone.topology
                seen.add(wanted)
        assert len(seen) > 3


def test_rows_of_a_table_say_experts(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("layers,hidden,heads,kv_heads,experts,top_k,expert_ffn,shared_experts,dp,tp,ep,etp,moe_balance,"
                    "moe_dispatcher,recompute,gbs,engine,sec_per_it,mem_gib\n"
                    "48,2048,32,4,128,8,768,0,64,1,8,1,forced,DeepEP,moe_act layernorm,512,megatron-core,6,60\n"
                    "32,4096,32,8,,,,,64,1,,,,,,512,megatron-core,6,60\n")
    routed, dense = (row.trial for row in rows.read(path, H100).rows)
    assert routed is not None and dense is not None and not dense.model.mixture
    m, t = routed.model, routed.topology
    assert (m.experts, m.chosen, m.expert_inner, m.shared, m.family) == (128, 8, 768, 0, "llama")
    assert (t.ep, t.expert_tp, t.moe_balance, t.moe_dispatcher, t.recompute) == (8, 1, "forced", "flex", "selective")


def test_a_row_that_names_a_mixture_has_all_of_it(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("model,layers,hidden,seq,dp,pp,ep,gbs,engine,sec_per_it\nDeepSeek-V3,61,7168,4096,64,16,64,8192,megatron-core,50\n"
                    "DeepSeek-V3,30,7168,4096,64,15,64,8192,megatron-core,50\nMixtral 8x7B,,,4096,64,1,8,256,megatron-core,5\n")
    whole, another, named = (row.trial for row in rows.read(path, H100).rows)
    assert whole.model == replace(presets.model("deepseek-v3"), seq=4096)
    assert another.model == replace(whole.model, layers=30)
    assert named.model.experts == 8 and named.model.seq == 4096
    path.write_text("model,layers,hidden,dp,gbs,sec_per_it\nDeepSeek-V3,61,4096,64,64,50\n")
    assert not rows.read(path, H100).rows[0].trial.model.mixture


def test_explain_says_where_experts_lie_and_what_would_be_better():
    found = explain(trial(dp=64, ep=64))
    assert "2 of 128 experts a rank" in found.experts and "more on the fullest" in found.experts
    assert any(change.what.startswith("EP 64 -> 32") for change in found.changes)
    # One stage keeps all 48 layers, in which not the same rank is the fullest: 33 % / √48.
    assert found.experts.endswith("33% more on the fullest of a layer, 5% over the layers of a rank")
    assert explain(trial("llama3-8b", dp=64)).experts == ""
    with pytest.raises(Infeasible, match="EP 2: the model has no experts"):
        explain(trial("llama3-8b", dp=64, ep=2))


def test_the_shape_of_experts_is_checked_as_they_are_computed():
    found = {gemm.name: gemm for gemm in check_shape(presets.model("deepseek-v3"), H100, tp=1, mbs=1, precision="bf16").gemms}
    up = found["experts up"]
    assert (up.rows, up.cols, up.inner, up.count) == (4096 * 8 // 256, 4096, 7168, 256)
    assert (found["keys, values"].cols, found["keys, values"].inner) == (128 * 256, 512)
    assert {"MLP up", "shared experts up", "queries compressed"} <= set(found)
    assert "MLP up" not in [gemm.name for gemm in check_shape(presets.model("qwen3-30b-a3b"), H100, tp=1, mbs=1,
                                                              precision="bf16").gemms]


@pytest.mark.parametrize(("name", "size"), [("qwen3-30b-a3b", 30.5e9), ("deepseek-v3", 671e9), ("mixtral-8x7b", 46.7e9)])
def test_shapes_of_a_size_are_mixtures_of_that_size(name, size):
    base, found = presets.model(name), shapes(presets.model(name), size, 0.03)
    assert all(abs(arith.parameters(model).total / size - 1) < 0.03 for model in found)
    assert (base.layers, base.hidden, base.heads) in {(model.layers, model.hidden, model.heads) for model in found}
    near = check_shape(base, H100, tp=1, mbs=1, precision="bf16").near
    assert not base.is_latent or all(other.model.head_size == base.head_size for other in near)


def test_windows_leave_less_of_attention():
    model = replace(presets.model("gpt-oss-120b"), seq=8192)
    windows, whole = (step.time(configs(one, dp=64, ep=8), H100).parts["attention"][0] for one in (
        model, replace(model, sliding_window=None, full_every=None)))
    # Every second layer sees all; the others two blocks of 128 keys a row.
    part = 256 / 8192
    assert windows / whole == pytest.approx(0.5 + 0.5 * part * (2 - part), rel=0.05)


def test_megatrons_flags_say_it_all():
    one = trial("deepseek-v3", gbs=512, dp=32, tp=2, ep=32, etp=1, sequence_parallel=True, recompute="selective",
                moe_balance="forced")
    flags = dict((flag[0], flag[1:]) for flag in emit.megatron_lm(one).flags)
    wanted = {
        "--num-experts": "256", "--moe-router-topk": "8", "--moe-ffn-hidden-size": "2048", "--q-lora-rank": "1536",
        "--moe-shared-expert-intermediate-size": "2048", "--expert-model-parallel-size": "32", "--kv-lora-rank": "512",
        "--expert-tensor-parallel-size": "1", "--moe-router-score-function": "sigmoid", "--moe-router-num-groups": "8",
        "--moe-router-group-topk": "4", "--moe-router-bias-update-rate": "0.001", "--moe-router-topk-scaling-factor": "2.5",
        "--moe-aux-loss-coeff": "0.0001", "--moe-router-load-balancing-type": "seq_aux_loss", "--qk-head-dim": "128",
        "--moe-token-dispatcher-type": "alltoall", "--qk-pos-emb-head-dim": "64", "--v-head-dim": "128",
        "--rope-type": "yarn", "--rotary-scaling-factor": "40.0", "--mscale": "1.0", "--mscale-all-dim": "1.0",
    }  # fmt: skip
    assert {name: flags[name][0] for name in wanted} == wanted
    assert (flags["--rope-type"], flags["--rotary-scaling-factor"]) == (("yarn",), ("40.0",))
    assert flags["--recompute-modules"] == ("layernorm", "moe_act", "mla_up_proj")
    for name in ("--moe-grouped-gemm", "--multi-latent-attention", "--moe-router-enable-expert-bias",
                 "--moe-router-force-load-balancing"):
        assert flags[name] == ()
    assert flags["--moe-layer-freq"] == (f"[0,0,0,{','.join('1' * 58)}]",)
    plain = dict((flag[0], flag[1:]) for flag in emit.megatron_lm(trial("llama3-8b", dp=64)).flags)
    assert not [name for name in plain if "moe" in name or "expert" in name]


@pytest.mark.parametrize(("router", "top_k", "topology", "reason"), [
    (dict(correction=0.001), 2, {}, "a correction of softmax scores"),
    (dict(), 1, {}, "top_k 1 with weights that add up to 1"),
    (dict(groups=4, group_limit=2), 2, {}, "ranks them by logits"),
    (dict(kind="sigmoid", groups=4, group_limit=1), 2, {}, ""),
    (dict(kind="sigmoid", groups=4, group_limit=2), 2, {}, "by their 2 best scores: Megatron-LM takes top_k 2 / 2 groups = 1"),
    (dict(capacity=1.5, over="sequence"), 2, {}, "capacity over sequence"),
    (dict(capacity=1.5, over="rank"), 2, dict(moe_dispatcher="flex"), ""),
])
def test_a_router_that_megatron_would_run_otherwise_is_not_written(router, top_k, topology, reason):
    model = replace(presets.model("tiny-moe"), router=Router(**router), top_k=top_k)
    said = emit.megatron_lm(trial(model, gbs=64, dp=8, **topology))
    if reason:
        assert not said.flags and reason in " ".join(said.notes)
    else:
        flags = {flag[0]: flag[1:] for flag in said.flags}
        assert ("--moe-enable-deepep" in flags) == (topology.get("moe_dispatcher") == "flex")
        assert flags.get("--moe-token-drop-policy") == (("position",) if "capacity" in router else None)


@pytest.mark.parametrize(("name", "kind"), [
    ("qwen3-30b-a3b", "qwen3"), ("mixtral-8x7b", "qwen3"), ("deepseek-v3", "deepseek_v3"),
])
def test_torchtitan_has_a_model_for_each_mixture(name, kind):
    model = replace(presets.model(name), router=replace(presets.model(name).router, aux_loss=0.0))
    asked = trial(model, gbs=64, engine="torchtitan", dp=64, ep=8, zero=3, moe_balance="forced")
    assert not list(Torchtitan().why_not(asked))
    text = spec(asked)
    assert f"from torchtitan.models.{kind} import" in text and f"num_experts={model.experts}" in text
    for what in ("num_limited_groups=4", "with_moe_load_balancing", "kv_lora_rank=512"):
        assert (what in text) == model.is_latent
    compile(text, "spec", "exec")
    assert "on GPUs alone" in Torchtitan().needs_gpu(asked)
    for layout, reason in (({"zero": 0}, "over the 1 ranks"), ({"zero_group": 4}, "over the 4 ranks"),
                           ({"dp": 32, "tp": 2, "ep": 1, "etp": 1, "sequence_parallel": True}, "without EP")):
        spread = replace(asked, topology=replace(asked.topology, **layout))
        assert reason in " ".join(v.message for v in Torchtitan().why_not(spread))
    for other, reason in (({"aux_loss": 0.01}, "no loss of balance"), ({"capacity": 1.0}, "its experts take all tokens")):
        routed = replace(asked, model=replace(model, router=replace(model.router, **other)))
        assert reason in " ".join(v.message for v in Torchtitan().why_not(routed))


def test_torchtitan_has_the_degrees():
    asked = trial(engine="torchtitan", dp=64, ep=8, zero=3)
    said = config(asked, Recipe())
    degrees = said["parallelism"]
    assert (degrees["expert_parallel_degree"], degrees["expert_tensor_parallel_degree"]) == (8, 1)
    assert "moe_force_load_balance" not in said["debug"]
    forced = replace(asked, topology=replace(asked.topology, moe_balance="forced"))
    assert config(forced, Recipe())["debug"]["moe_force_load_balance"] is True
