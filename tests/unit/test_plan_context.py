"""Context parallelism and sharding groups in the planner: what must halve halves, what hides hides, and what is searched."""
from __future__ import annotations

import itertools
import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

from seatrial import presets
from seatrial.arith.layer import widths
from seatrial.engines.model import model_of
from seatrial.engines.torchtitan import Torchtitan, config
from seatrial.errors import BadInput
from seatrial.expression import parse
from seatrial.plan import context, emit, memory, network, step
from seatrial.plan.answer import reason
from seatrial.plan.configs import CHOICES, CONTEXTS, Configs, engine_code
from seatrial.plan.explain import better, explain
from seatrial.plan.forecast import figures
from seatrial.plan.kernels import Machine
from seatrial.plan.reasons import reasons
from seatrial.plan.rows import read_row
from seatrial.plan.search import RULE_NAMES, search, whole_nodes
from seatrial.plan.space import Space, not_searched
from seatrial.recipe import Recipe
from seatrial.spec import GIB, Batch, Topology, Trial, context_split

LLAMA = replace(presets.model("llama3.1-8b"), seq=131_072)
NODE = presets.cluster("dgx-h100", nodes=1)
KINDS = CHOICES["cp_kind"]


def trial(cp=8, *, kind="ring", engine="megatron-core", model=LLAMA, cluster=NODE, gbs=8, **knobs):
    t = Topology(**{"dp": 1, "tp": 1, "pp": 1, "mbs": 1, "zero": 1, "recompute": "full", "precision": "bf16", **knobs}, cp=cp,
                 cp_kind=kind)
    return Trial(model=model, topology=t, batch=Batch(gbs=gbs), cluster=cluster.with_nodes(max(1, t.world // 8)), engine=engine)


def configs(*trials):
    return Configs.from_trials(trials)


def timed(*trials):
    return step.time(configs(*trials), trials[0].cluster)


def linked(gb_s):
    """A node whose links are as fast as that, and start at once."""
    return replace(NODE, intra=replace(NODE.intra, bandwidth_gb_s=gb_s, latency_us=1e-6, half_rate_mb=1e-6, efficiency=1.0,
                                       group_share={}))


@pytest.mark.parametrize("engine", ["megatron-core", "fsdp2", "deepspeed", "seatrial", "plain-3d"])
def test_twice_the_sequence_on_twice_the_ranks_computes_as_long_but_for_attention(engine):
    kind = model_of(engine).context[0]
    half = replace(LLAMA, seq=65_536)
    one = timed(trial(4, kind=kind, engine=engine, model=half, cluster=NODE)).parts
    two = timed(trial(8, kind=kind, engine=engine)).parts
    for part in ("memory", "logits", "embedding", "accumulate"):
        assert two[part][0] == pytest.approx(one[part][0], rel=0.01), part
    # GEMMs give way to the power that attention leaves unused: more of it, a little less for them.
    assert two["matmul"][0] == pytest.approx(one["matmul"][0], rel=0.1)
    assert two["attention"][0] == pytest.approx(2 * one["attention"][0], rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_shared_out_whatever_the_kind(kind):
    heads = {"ulysses+ring": replace(LLAMA, heads=32, kv_heads=4)}.get(kind, LLAMA)
    whole = timed(trial(1, model=heads, dp=8)).parts["attention"][0]
    parts = timed(trial(8, kind=kind, model=heads)).parts["attention"][0]
    # Eight replicas had one sample each, and now all have a part of each of eight; pieces are a little slower.
    assert whole < parts < 1.1 * whole


def test_a_ring_hides_behind_attention_and_shows_what_is_longer():
    c = configs(trial(8, engine="seatrial"))
    wide = widths(c, c.tp)
    block = float((c.tokens * (wide.qkv - wide.context) * 2)[0])
    engine = replace(model_of("seatrial"), contention=0.0)
    for gb_s, attention in ((1e6, 0.1), (1.0, 0.1)):
        cluster = linked(gb_s)
        machine = Machine.of(c, cluster)
        own = np.array([attention])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("seatrial.plan.configs._ENGINES", [engine] * (engine_code("seatrial") + 1))
            forward, backward = context.exchange_s(c, cluster, machine, own, 2 * own)
        transfer = 7 * block / (gb_s * 1e9)
        assert forward[0] == pytest.approx(max(0.0, transfer - 7 / 8 * attention), rel=1e-3, abs=1e-9)
        # … and gradients in fp32, one step behind.
        assert backward[0] == pytest.approx(max(0.0, 3 * transfer - 7 / 8 * 2 * attention), rel=1e-3, abs=1e-9)


def test_an_all_to_all_moves_queries_keys_values_and_the_output_once_each_way():
    c = configs(trial(8, kind="ulysses", engine="deepspeed"))
    cluster, wide = linked(10.0), widths(c, c.tp)
    machine, none = Machine.of(c, cluster), np.zeros(1)
    forward, backward = context.exchange_s(c, cluster, machine, none, none)
    expected = 7 / 8 * 131_072 / 8 * float((wide.qkv + wide.context)[0]) * 2 / 10e9
    assert forward[0] == backward[0] == pytest.approx(expected, rel=1e-3)


def test_an_all_to_all_across_nodes_sends_all_but_a_nodes_share_through_its_adapters():
    cluster = presets.cluster("dgx-h100", nodes=2)
    c = configs(trial(16, kind="ulysses", model=replace(LLAMA, heads=32, kv_heads=32), cluster=cluster))
    seconds = float(network.all_to_all_s(cluster, network.heads_group(c), 1e12)[0])
    link = cluster.inter
    assert seconds == pytest.approx(8 * 0.5e12 / (link.bandwidth_gb_s * 1e9 * link.efficiency), rel=1e-3)


def test_ranks_of_a_sequence_lie_beside_each_other():
    c = configs(trial(8, tp=2, dp=2, cluster=presets.cluster("dgx-h100", nodes=4), gbs=16))
    ring, data = network.context_group(c), network.data_group(c)
    assert (ring.size.tolist(), ring.per_node.tolist(), ring.nodes.tolist()) == ([8], [4], [2])
    assert (data.size.tolist(), data.nodes.tolist()) == ([16], [4])
    both = configs(trial(16, kind="ulysses+ring", cluster=presets.cluster("dgx-h100", nodes=2)))
    assert (network.heads_group(both).size.tolist(), network.context_group(both).nodes.tolist()) == ([8], [2])


def test_ranks_of_a_sequence_send_to_the_next_stage_at_the_same_time():
    cluster = presets.cluster("dgx-h100", nodes=8)
    one, two = (float(network.send_s(Configs.from_columns(
        1, layers=8, hidden=4096, heads=32, seq=8192 * cp, vocab=1024, gbs=64, dp=8 // cp, tp=4, pp=2, cp=cp, procs_per_node=8),
        cluster, 1e12)[0]) for cp in (1, 2))
    assert two == pytest.approx(2 * one, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tp", "cp"), [(1, 8), (2, 4), (4, 2), (1, 16), (8, 2)])
def test_columns_split_context_as_a_trial_does(kind, tp, cp):
    one = trial(cp, kind=kind, tp=tp, cluster=presets.cluster("dgx-h100", nodes=2))
    heads, ring = configs(one).context_split
    assert (int(heads[0]), int(ring[0])) == context_split(one.model, one.topology)


@pytest.mark.parametrize("engine", ["megatron-core", "fsdp2", "deepspeed", "seatrial", "plain-3d"])
def test_activations_are_those_of_a_ranks_own_tokens(engine):
    kind, half = model_of(engine).context[0], replace(LLAMA, seq=65_536)
    one = memory.peak(configs(trial(4, kind=kind, engine=engine, model=half)), NODE).parts
    two = memory.peak(configs(trial(8, kind=kind, engine=engine)), NODE).parts
    assert two["activations"][0] == pytest.approx(one["activations"][0], rel=1e-6)
    assert two["logits"][0] == pytest.approx(one["logits"][0], rel=1e-6)
    whole = memory.peak(configs(trial(1, engine=engine, dp=8)), NODE).parts
    assert two["activations"][0] < whole["activations"][0] / 7
    assert two["optimizer"][0] == pytest.approx(whole["optimizer"][0], rel=0.05)  # over DP x CP


def test_what_a_kind_holds_of_other_ranks():
    keys, query, tokens = 2 * 1024, 4096, 131_072 // 8
    expected = {"ring": 2 * 2 * keys, "gather": 8 * 2 * keys, "ulysses": 2 * (2 * query + keys)}
    for kind, numbers in expected.items():
        c = configs(trial(8, kind=kind, engine="plain-3d"))
        assert context.exchanged_bytes(c, np.array([2.0]))[0] == tokens * numbers * 2
    # Transformer Engine has every block, and each step's output, until the last.
    c = configs(trial(8))
    assert context.exchanged_bytes(c, np.array([2.0]))[0] == tokens * 8 * (keys + query) * 2


def states(engine, zero_group, **knobs):
    model = presets.model("llama3-70b")
    one = trial(1, model=model, engine=engine, dp=64, zero=3, gbs=64, zero_group=zero_group, kind="ring",
                cluster=presets.cluster("dgx-h100", nodes=8), **knobs)
    c = configs(one)
    parameters = step.dense_parameters(c), step.expert_parameters(c)
    return {name: float(value[0, 0]) for name, value in memory._states(c, parameters, np.array([2.0])).items()}


@pytest.mark.parametrize(("group", "gigabytes"), [(8, 141), (32, 35)])
def test_the_states_of_70b_in_groups(group, gigabytes):
    """16 bytes a parameter: 2 of weights, 2 of gradients, 12 of Adam."""
    c = configs(trial(1, model=presets.model("llama3-70b"), engine="deepspeed", dp=64, zero=3, gbs=64, zero_group=group,
                      cluster=presets.cluster("dgx-h100", nodes=8)))
    assert float(memory.states_gib(c)[0]) * GIB / 1e9 == pytest.approx(gigabytes, rel=0.01)
    found = states("deepspeed", group)
    whole = {name: states("deepspeed", 64)[name] for name in found}
    assert found["optimizer"] == pytest.approx(whole["optimizer"] * 64 / group)


def test_each_part_is_divided_by_its_own_group():
    plain, own = states("deepspeed", 64), states("deepspeed", 64, weights_group=8)
    assert own["optimizer"] == plain["optimizer"] and own["gradients"] == plain["gradients"]
    parameters = float(step.stage_parameters(configs(trial(1, model=presets.model("llama3-70b"), dp=64, gbs=64,
                                                           cluster=presets.cluster("dgx-h100", nodes=8))))[0, 0])
    assert own["weights"] - plain["weights"] == pytest.approx(parameters * 2 / 8)


def test_gathers_of_a_small_group_stay_in_the_node():
    def gradients(**knobs):
        nodes = presets.cluster("dgx-h100", nodes=8)
        slow = replace(nodes, inter=replace(nodes.inter, bandwidth_gb_s=1.0))
        one = trial(1, model=presets.model("llama3-8b"), engine="deepspeed", dp=64, zero=3, gbs=64, cluster=slow, **knobs)
        return timed(one).parts["gradients"][0]

    # Between nodes: three gathers of the weights and a reduction, against the two halves of one sum of the shards.
    assert gradients(zero_group=8) == pytest.approx(gradients() * 2 * 7 / 8 / (4 * 63 / 64), rel=0.1)


def test_weights_in_groups_of_their_own_come_from_all_once_a_step_or_once_a_forward_pass():
    def gathered(engine, gbs, **knobs):
        nodes = presets.cluster("dgx-h100", nodes=8)
        slow = replace(nodes, inter=replace(nodes.inter, bandwidth_gb_s=0.5))
        one = trial(1, model=presets.model("llama3-8b"), engine=engine, dp=64, zero=3, gbs=gbs, cluster=slow, recompute="none",
                    **knobs)
        return timed(one).parts["gradients"][0]

    for engine, often in (("seatrial", False), ("deepspeed", True)):
        # What a further micro-batch adds between nodes: gradients alone, or with one gather of the two.
        whole = gathered(engine, 192) - gathered(engine, 128)
        own = gathered(engine, 192, weights_group=8) - gathered(engine, 128, weights_group=8)
        wire = {"seatrial": 4, "deepspeed": 2}[engine]
        assert own / whole == pytest.approx((wire + 2 * often) / (wire + 4), rel=0.1), engine


def test_columns_of_groups_become_shards():
    c = Configs.from_columns(1, layers=2, hidden=64, heads=4, seq=64, vocab=128, gbs=64, dp=16, cp=2, zero=3, zero_group=16,
                             gradients_group=8, weights_group=4)
    assert [int(n[0]) for n in (c.data_ranks, c.shards, c.gradient_shards, c.weight_shards)] == [32, 16, 8, 4]
    lower = replace(c, zero=np.array([1]))
    assert [int(n[0]) for n in (lower.gradient_shards, lower.weight_shards)] == [16, 16]


# search


def plan(model=LLAMA, cluster=NODE, gbs=8, **fields):
    return search(Space(models=(model,), cluster=cluster, gbs=(gbs,), **{"engine": "megatron-core", **fields}))


def test_context_parallelism_is_searched_where_sequences_are_long():
    found = plan(sequence_parallel=(False, True))
    assert set(found.ranked["cp"].tolist()) >= {1, 2, 4}
    assert (found.ranked["dp"] * found.ranked["tp"] * found.ranked["pp"] * found.ranked["cp"] == 8).all()
    short = plan(model=replace(LLAMA, seq=8192))
    assert set(short.ranked["cp"].tolist()) == {1} and "cp_kind" not in short.ranked
    assert any("context parallelism (sequences from 16,384" in line for line in not_searched(short.space, "bf16"))
    assert not any("context parallelism" in line for line in not_searched(found.space, "bf16"))
    assert set(plan(model=replace(LLAMA, seq=8192), long=0).ranked["cp"].tolist()) > {1}


@pytest.mark.parametrize(("engine", "tp", "cp"), [("megatron-core", 2, 4), ("megatron-core", 4, 2), ("fsdp2", 1, 8),
                                                  ("fsdp2", 2, 4), ("deepspeed", 1, 8)])
def test_layouts_of_documented_recipes_are_offered(engine, tp, cp):
    """TP x CP on the eight devices of a node, as engines' own guides to long contexts lay an 8B model out."""
    found = plan(engine=engine, sequence_parallel=(False, True) if model_of(engine).cuts_sequence else (False,))
    here = (found.ranked["tp"] == tp) & (found.ranked["cp"] == cp)
    assert found.odds[here].max() > 0.8


def test_the_kind_is_the_engines_own_unless_another_is_clearly_faster():
    found = plan(cp=(4,), sequence_parallel=(True,))
    assert {CONTEXTS[code] for code in found.ranked["cp_kind"].tolist()} <= {"ring", "ulysses"}
    slow = replace(NODE, intra=replace(NODE.intra, bandwidth_gb_s=0.5))
    far = plan(cp=(4,), cluster=slow, tp=(2,))
    # Links that attention cannot cover: what moves least wins.
    c = configs(*(trial(4, kind=kind, tp=2, cluster=slow) for kind in ("ring", "gather", "ulysses")))
    least = int(step.time(c, slow).sec.argmin())
    assert KINDS[int(far.ranked["cp_kind"][0])] == ("ring", "gather", "ulysses")[least]
    asked = plan(cp=(4,), cp_kind=("gather",))
    assert {CONTEXTS[code] for code in asked.ranked["cp_kind"].tolist()} == {"gather"}


def test_a_kind_that_the_engine_lacks_is_refused():
    found = plan(engine="deepspeed", cp=(8,), cp_kind=("ring",))
    assert not len(found) and set(found.rejected) == {"context-kind", "batch-divisible"} - (
        set() if "batch-divisible" in found.rejected else {"batch-divisible"})


def test_groups_asked_for_are_kept_to_and_those_that_do_not_divide_refused():
    cluster = presets.cluster("dgx-h100", nodes=8)
    found = plan(model=presets.model("llama3-70b"), cluster=cluster, gbs=64, engine="fsdp2", zero_group=(32,), tp=(1,), pp=(1,))
    assert len(found) and set(found.ranked["zero_group"].tolist()) == {32} and (found.ranked["zero"] > 0).all()
    assert found.trial(0).topology.zero_group == 32
    none = plan(model=presets.model("llama3-70b"), cluster=cluster, gbs=64, engine="fsdp2", zero_group=(24,), tp=(1,), pp=(1,))
    assert not len(none) and "zero-group" in none.rejected
    eight = plan(model=presets.model("llama3-70b"), cluster=cluster, gbs=64, engine="fsdp2", zero_group=(8,), tp=(1,), pp=(1,))
    assert not len(eight) and eight.closest is not None and eight.closest[1] > 141e9 / GIB
    assert reason(eight).endswith("weights, gradients and optimizer alone take 131.4 GiB (141 GB)")


def test_groups_of_whole_nodes_are_tried_on_the_best():
    assert whole_nodes(2, 32, 8) == [4, 8, 16] and whole_nodes(1, 8, 8) == [] and whole_nodes(8, 4, 8) == [2]
    slow = presets.cluster("dgx-h100", nodes=8)
    slow = replace(slow, inter=replace(slow.inter, bandwidth_gb_s=5.0))
    found = plan(model=presets.model("llama3-8b"), cluster=slow, gbs=64, engine="fsdp2", tp=(1,), pp=(1,), zero=(3,), mbs=(1,))
    assert found.trial(0).topology.zero_group == 8
    one = search(replace(found.space, zero_group=(64,)))
    assert found.sec[0] < one.sec[0]
    ruled = search(found.space, rules=[parse("zero_group == 0", RULE_NAMES)])
    assert ruled.trial(0).topology.zero_group is None and ruled.sec[0] == one.sec[0]


def test_a_plan_says_why_it_divides_sequences_and_in_which_groups():
    found = plan(sequence_parallel=(False, True))
    context, other = reasons(found)
    assert context.startswith(f"CP {found.trial(0).topology.cp} by ")
    whole = int(np.flatnonzero(found.ranked["cp"] == 1)[0])
    assert other.startswith(f"with whole sequences the best is number {whole + 1}: {found.sec[whole]:.2f} s")
    assert reasons(plan(tp=(1,)))[1] == "with whole sequences nothing fits"
    cluster = presets.cluster("dgx-h100", nodes=8)
    (group,) = reasons(plan(model=presets.model("llama3-70b"), cluster=cluster, gbs=64, engine="fsdp2", zero_group=(32,),
                            tp=(1,), pp=(1,)))
    assert group.startswith("ZeRO group 32: weights, gradients and optimizer take 32.9 GiB a device; over all 64 ranks 16.4")
    assert reasons(plan(model=presets.model("llama3-8b"), cluster=cluster, gbs=64, engine="megatron-core", zero=(0,))) == []


# what is written, read and explained


def words(text):
    return shlex.split(text, comments=True)


def test_megatrons_flags():
    cluster = presets.cluster("dgx-h100", nodes=2)
    flags = words(emit.megatron(trial(16, kind="ulysses+ring", cluster=cluster, zero_group=8))["megatron-lm.args"])
    pairs = dict(itertools.pairwise(flags))
    assert pairs["--context-parallel-size"] == "16" and pairs["--cp-comm-type"] == "a2a+p2p"
    at = flags.index("--hierarchical-context-parallel-sizes")
    assert flags[at + 1 : at + 3] == ["8", "2"] and pairs["--num-distributed-optimizer-instances"] == "2"
    assert {"--overlap-grad-reduce", "--overlap-param-gather"} <= set(flags)  # gradients are summed over CP too
    files = emit.megatron(trial(8))
    assert "--cp-comm-type p2p" in files["megatron-lm.args"] and "-cp8-" in files["train.slurm"]
    assert "--context-parallel-size" not in emit.megatron(trial(1, dp=8))["megatron-lm.args"]


def test_deepspeeds_flags_and_what_it_refuses():
    gpt = replace(presets.model("gpt-1.3b"), seq=32_768)
    one = emit.megatron_deepspeed(trial(8, kind="ulysses", model=gpt))
    assert ("--ds-sequence-parallel-size", "8") in one.flags and ("--no-pipeline-parallel",) in one.flags
    assert "ulysses" in emit.megatron_deepspeed(trial(8, model=gpt)).text()
    cluster = presets.cluster("dgx-h100", nodes=2)
    grouped = trial(1, model=gpt, cluster=cluster, dp=16, zero=3, zero_group=8, weights_group=4, gbs=16)
    zero = emit.deepspeed_config(grouped)["zero_optimization"]
    assert zero == {"stage": 3, "mics_shard_size": 8, "zero_hpz_partition_size": 4}
    lower = replace(grouped, topology=replace(grouped.topology, zero=1, weights_group=None))
    assert "MiCS is of ZeRO 3" in emit.megatron_deepspeed(lower).text()
    assert json.dumps(emit.deepspeed_config(trial(1, model=gpt, dp=8))).count("mics") == 0


def test_torchtitans_options_and_what_it_refuses():
    cluster = presets.cluster("dgx-h100", nodes=2)
    said = config(trial(4, kind="gather", dp=4, zero=3, zero_group=8, cluster=cluster), Recipe())
    parallel = said["parallelism"]
    assert parallel["context_parallel_degree"] == 4 and said["training"]["seq_len"] == 131072
    assert parallel["context_parallel_rotate_method"] == "allgather"
    assert (parallel["data_parallel_replicate_degree"], parallel["data_parallel_shard_degree"]) == (2, 2)
    for wrong, why in ((trial(8, kind="ulysses", zero=3), "ulysses"), (trial(8), "ZeRO 1"),
                       (trial(4, dp=4, zero=3, zero_group=2, cluster=cluster), "shards over 2 ranks")):
        with pytest.raises(BadInput, match=why):
            Torchtitan().emitted(wrong, Recipe())


ROW = {"layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336", "seq": "131072", "vocab": "128256",
       "gbs": "8", "mbs": "1"}  # fmt: skip


@pytest.mark.parametrize(("said", "expected"), [
    ({"engine": "torchtitan", "cp": "8"}, {"dp": 1, "cp": 8, "cp_kind": "gather", "zero_group": None}),
    ({"engine": "deepspeed", "cp": "8"}, {"cp_kind": "ulysses"}),
    ({"engine": "megatron-core", "cp": "4", "tp": "2", "cp_kind": "all_gather"}, {"cp_kind": "gather", "dp": 1}),
    ({"engine": "megatron-core", "cp": "4", "tp": "2", "cp_kind": "p2p", "nodes": "2"}, {"cp_kind": "ring", "dp": 2}),
    ({"engine": "torchtitan", "cp": "2", "dp_shard": "4", "dp_replicate": "2"}, {"dp": 8, "cp": 2, "zero_group": 8}),
    ({"engine": "torchtitan", "cp": "2", "dp": "8", "dp_replicate": "2"}, {"dp": 8, "zero_group": 8}),
    ({"engine": "torchtitan", "cp": "2", "dp": "8", "zero_group": "4"}, {"dp": 8, "zero_group": 4}),
])  # fmt: skip
def test_rows_with_context_parallelism_are_forecast(said, expected):
    row = read_row({**ROW, **said}, NODE)
    assert row.reject == "", row.reject
    assert {name: getattr(row.trial.topology, name) for name in expected} == expected
    from seatrial.plan.calibrate import cold

    line = figures([row], cold(NODE))[0]
    assert line["forecast_sec"] > 0 and line["forecast_mem_gib"] > 0


def test_explain_has_a_line_for_context_and_proposes_it_where_it_would_fit():
    told = explain(trial(8))
    assert told.parts["exchange"] > 0 and told.context.startswith("CP 8 by ring: 16,384 tokens")
    whole = explain(trial(1, dp=8, engine="fsdp2", zero=3, recompute="full"))
    assert whole.context == "" and "exchange" not in whole.parts and whole.odds < 0.2
    assert any(change.what.startswith("CP 1 -> ") for change in whole.changes if not change.reject) or better(whole) == []
    assert any(change.what == "CP by ring -> gather" for change in told.changes)
    groups = explain(trial(1, dp=32, engine="fsdp2", zero=3, model=presets.model("llama3-8b"), gbs=32,
                           cluster=presets.cluster("dgx-h100", nodes=4)))
    assert {"ZeRO group 32 -> 8", "ZeRO group 32 -> 16"} <= {change.what for change in groups.changes}


def test_a_405b_model_at_128k_with_cp_16():
    """TP 8 x CP 16 x PP 16, as its authors lay it out (arXiv:2407.21783, table 4), on the fewest devices with those degrees."""
    model = replace(presets.model("llama3.1-405b"), seq=131_072)
    found = plan(model=model, cluster=presets.cluster("dgx-h100", nodes=256), gbs=128, cp=(16,), tp=(8,), pp=(16,),
                 sequence_parallel=(True,), recompute=("full",), zero=(1,))
    assert not ((found.ranked["pp"] * found.ranked["vp"]) > 126).any()  # no stage without a layer
    assert found.odds[0] > 0.8 and found.trial(0).topology.cp == 16
    told = explain(found.trial(0))
    assert told.context.startswith("CP 16 by ") and "8,192 tokens of a sequence a rank" in told.context


def test_a_calibrated_shape_is_that_of_a_ranks_own_tokens():
    """Libraries pick kernels by the tokens that a rank has."""
    shape = step.Shape(hidden=4096, heads=32, seq=16_384, tp=1, mbs=1)
    assert shape.of(configs(trial(8), trial(1, dp=8), trial(1, model=replace(LLAMA, seq=16_384), dp=8))).tolist() == [
        True, False, True]
