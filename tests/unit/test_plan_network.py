"""Who talks over which link: groups inside a node, in a domain of nodes and across, with a switch and without."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from seatrial import presets, rules
from seatrial.errors import BadInput
from seatrial.plan import network
from seatrial.plan.configs import Configs
from seatrial.spec import Batch, Link, Model, Topology, Trial

MB = 1e6


def configs(**columns):
    usual = {"layers": 32, "hidden": 4096, "heads": 32, "seq": 2048, "vocab": 32000, "gbs": 1024, "nodes": 16,
             "procs_per_node": 8}
    n = max(np.size(v) for v in columns.values())
    return Configs.from_columns(n, **{**usual, **columns})


def bus_gb_s(cluster, size, bytes_=4e9, *, passes):
    """As nccl-tests has it: bytes a rank sends over the time."""
    group = network.tensor_group(configs(tp=size, procs_per_node=cluster.procs_per_node))
    seconds = float(network.ring_s(cluster, group, bytes_, passes=passes)[0])
    return passes * (size - 1) / size * bytes_ / seconds / 1e9


def test_a_switch_that_adds_up_helps_the_all_reduce_alone():
    cluster = presets.cluster("dgx-h100")
    assert 420 < bus_gb_s(cluster, 8, passes=2) < 480
    assert 330 < bus_gb_s(cluster, 8, passes=1) < 370


def test_pairs_without_a_switch_have_their_own_links_alone():
    four = presets.cluster("jz-v100")
    assert bus_gb_s(four, 2, passes=1) == pytest.approx(bus_gb_s(four, 4, passes=1) / 3, rel=0.01)
    mesh = presets.cluster("mi300x-8")
    assert bus_gb_s(mesh, 2, passes=1) == pytest.approx(48, rel=0.01)
    assert bus_gb_s(mesh, 8, passes=1) == pytest.approx(336, rel=0.01)
    cube = presets.cluster("dgx-1")
    assert bus_gb_s(cube, 2, passes=2) < bus_gb_s(cube, 4, passes=2) / 3.5 < bus_gb_s(cube, 8, passes=2) / 5


def test_a_message_between_stages_of_one_node_goes_over_one_pair():
    c = configs(tp=1, pp=4, procs_per_node=4)
    wide = presets.cluster("jz-v100", {"intra": "nvlink2"})
    inside = [network.send_s(c, cluster, 1e9)[0] for cluster in (presets.cluster("jz-v100"), wide)]
    assert inside[0] == pytest.approx(3 * inside[1], rel=0.01)


@pytest.mark.parametrize(("kib", "op", "passes", "us"), [(1024, "all_reduce", 2, 25), (1024, "all_gather", 1, 17),
                                                         (8192, "all_reduce", 2, 79), (131072, "all_gather", 1, 390)])
def test_small_calls_in_a_node_of_eight_h100_take_what_nccl_takes(kib, op, passes, us):
    """Within 20 % of figures of NCCL 2.27 that the link's constants were fitted to, many at once."""
    group = network.tensor_group(configs(tp=8))
    seconds = float(network.ring_s(presets.cluster("dgx-h100"), group, kib * 1024, passes=passes)[0])
    assert 1e6 * seconds == pytest.approx(us, rel=0.2), op


def test_calls_cut_into_many_pay_many_latencies():
    cluster, group = presets.cluster("dgx-h100"), network.data_group(configs(dp=8))
    whole, cut = (float(network.gather_s(cluster, group, 64 * MB, n)[0]) for n in (1, 64))
    assert cut > 1.8 * whole
    assert cut == pytest.approx(64 * float(network.gather_s(cluster, group, MB)[0]))


def test_a_link_that_says_nothing_is_as_it_was():
    cluster = presets.cluster("jz-a100")
    group = network.tensor_group(configs(tp=8))
    by_hand = 2 * 7 / 8 * (64 * MB + 8e6) / (300e9 * 0.77) + 2 * 3 * 5e-6
    assert float(network.all_reduce_s(cluster, group, 64 * MB)[0]) == pytest.approx(by_hand, rel=1e-12)


def test_tensor_parallelism_across_nodes_passes_each_nodes_adapters_once():
    cluster = presets.cluster("dgx-h100")
    inside, across = (float(network.all_reduce_s(cluster, network.tensor_group(configs(tp=tp)), 1e9)[0]) for tp in (8, 16))
    assert across == pytest.approx(2 * 15 / 16 * 1.008e9 / 320e9, rel=0.03)
    assert across > inside
    # The slower way sets the pace: adapters faster than the links inside are waited for no more.
    wide = replace(cluster, inter=replace(cluster.inter, bandwidth_gb_s=4000.0))
    assert float(network.all_reduce_s(wide, network.tensor_group(configs(tp=16)), 1e9)[0]) > 0.9 * inside


def test_nodes_of_one_domain_are_one():
    rack = presets.cluster("gb200-nvl72")
    apart = replace(rack, domain_nodes=1)
    c = configs(tp=16, dp=4, procs_per_node=4)
    tp_in, tp_out = (float(network.all_reduce_s(k, network.tensor_group(c), 256 * MB)[0]) for k in (rack, apart))
    assert tp_out > 3 * tp_in
    # 72 of a data-parallel group fit, and 64 of every second rank do not: 2 domains.
    assert network.data_group(configs(dp=72, tp=1, procs_per_node=4)).in_domains(18).nodes.tolist() == [1]
    spread = network.data_group(configs(dp=64, tp=2, procs_per_node=4)).in_domains(18)
    assert (spread.per_node.tolist(), spread.nodes.tolist(), spread.sharers.tolist()) == ([36], [2], [2])
    # Whose adapters are those of all 18 nodes.
    two = rack.with_nodes(36)
    seconds = float(network.gather_s(two, network.data_group(configs(dp=144, nodes=36, procs_per_node=4)), 10e9)[0])
    assert seconds == pytest.approx(143 / 144 * 10e9 / (900e9 * 0.8 * 0.85), rel=0.05)


def test_stages_of_one_domain_talk_over_its_links():
    rack = presets.cluster("gb200-nvl72")
    c = configs(tp=4, pp=8, dp=2, procs_per_node=4)
    inside, across = (float(network.send_s(c, k, 256 * MB)[0]) for k in (rack, replace(rack, domain_nodes=1)))
    assert across > 2 * inside


def test_shards_lie_in_a_node_and_replicas_across():
    c = configs(dp=32, tp=1)
    assert network.Copies.of(c).group(c, c.shards).size.tolist() == [32]
    assert network.replica_group(c, c.shards, c.data_ranks).size.tolist() == [1]
    hybrid = configs(dp=32, tp=1, zero_group=8)
    shard = network.Copies.of(hybrid).group(hybrid, hybrid.shards)
    replica = network.replica_group(hybrid, hybrid.shards, hybrid.data_ranks)
    assert (shard.size.tolist(), shard.nodes.tolist()) == ([8], [1])
    assert (replica.size.tolist(), replica.nodes.tolist(), replica.sharers.tolist()) == ([4], [4], [8])
    cluster = presets.cluster("dgx-a100")
    whole = float(network.gather_s(cluster, network.data_group(c), 1e9)[0])
    assert float(network.gather_s(cluster, shard, 1e9)[0]) < whole


def test_a_group_of_no_number_is_refused():
    with pytest.raises(BadInput, match="'all' is no number of processes"):
        Link(bandwidth_gb_s=1.0, latency_us=1.0, group_share={"all": 1.0})
    with pytest.raises(BadInput, match=r"reduce_gain\.4: -1.0 must be above 0"):
        Link(bandwidth_gb_s=1.0, latency_us=1.0, reduce_gain={"4": -1.0})


def test_what_is_known_of_a_machine_does_not_change_a_run():
    model, cluster = Model(layers=2, hidden=64, heads=2, vocab=64, seq=32), presets.cluster("h200")

    def run_id(of):
        return Trial(model=model, batch=Batch(gbs=8), topology=Topology(), cluster=of).run_id()

    knows = replace(cluster, domain_nodes=2, device=replace(cluster.device, sustained=0.5),
                    intra=replace(cluster.intra, group_share={}, reduce_gain={}, hop_us=None, half_rate_mb=None))
    assert run_id(knows) == run_id(cluster)
    assert run_id(cluster.with_nodes(2)) != run_id(cluster)


@pytest.mark.parametrize("name", presets.names("devices"))
def test_every_device_and_link_says_where_its_figures_come_from(name):
    values = presets.resolve("devices", name, presets.shipped())
    assert values["source"] and values["power_w"] > 0


def test_every_link_has_a_source():
    assert [n for n in presets.names("links") if not presets.resolve("links", n, presets.shipped()).get("source")] == []


def test_a_device_that_holds_its_rate_is_faster():
    from seatrial.plan import kernels

    cluster = presets.cluster("h200")
    c = configs(tp=1)
    times = []
    for share in (0.5, 1.0):
        machine = kernels.Machine.of(c, replace(cluster, device=replace(cluster.device, sustained=share)))
        times.append(float(kernels.matmul_s(machine, 16384, 16384, 16384, np.array([128]))[0]))
    assert times[0] == pytest.approx(2 * 2 * 16384**3 / (989.4e12 * 0.8), rel=0.01)
    assert times[1] < 0.6 * times[0]


def test_tensor_parallelism_is_warned_of_where_it_leaves_the_domain():
    def codes(cluster: str, tp: int) -> set[str]:
        asked = Trial(model=presets.model("bloom-181b"), batch=Batch(gbs=64), topology=Topology(tp=tp, precision="bf16"),
                      cluster=presets.cluster(cluster), engine="megatron-core")
        return {v.code for v in rules.violations(asked)}

    assert "tp-across-nodes" in codes("dgx-h100", 16) and "tp-across-nodes" not in codes("gb200-nvl72", 64)
