"""With a machine file what was measured comes out as measured, what lies between in between, the rest as it was."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import machines
from seatrial import presets
from seatrial.errors import BadInput
from seatrial.plan import attention, facts, layer, memory, network, probed, step
from seatrial.plan.configs import PRECISIONS, RECOMPUTE, Configs
from seatrial.plan.forecast import limit_gib
from seatrial.plan.kernels import Machine
from seatrial.probe import shapes
from seatrial.probe.shapes import GemmShape
from seatrial.spec import Cluster, Model

MODEL = Model(layers=8, hidden=2048, heads=16, vocab=50257, seq=1024)


@pytest.fixture
def h200() -> Cluster:
    return replace(presets.cluster("h200"), machine=None)


def configs(**columns: object) -> Configs:
    fixed = {"layers": 8, "hidden": 2048, "heads": 16, "seq": 1024, "vocab": 50304, "gbs": 64, "procs_per_node": 8}
    n = max([1, *(np.size(v) for v in columns.values())])
    return Configs.from_columns(n, **{**fixed, **columns})


def with_products(h200: Cluster, folder, factor_of) -> Cluster:
    """A machine on which every product of MODEL, TP 1 to 4, takes `factor_of(shape)` of what the sheet says."""
    found = machines.empty()
    for tp in (1, 2, 4):
        for mbs in (1, 4):
            for shape in [*shapes.gemms(MODEL, tp=tp, mbs=mbs), *shapes.head(MODEL, tp=tp, tokens=mbs * MODEL.seq)]:
                found["figures"]["matmul"].append(machines.product(shape, factor_of(shape) * machines.product_s(h200, shape)))
    return replace(h200, machine=machines.written(found, folder))


def test_the_probe_measures_what_the_planner_asks(h200, monkeypatch):
    asked: list[GemmShape] = []
    real = layer.matmul_s

    def heard(machine, rows, cols, inner, align, batch=1, kind="forward"):
        sides = [int(np.broadcast_to(side, 1)[0]) for side in (rows, cols, inner, batch)]
        asked.append(GemmShape(kind, *sides[:3], sides[3]))
        return real(machine, rows, cols, inner, align, batch, kind=kind)

    monkeypatch.setattr(layer, "matmul_s", heard)
    model = presets.model("llama3-8b")
    c = configs(hidden=4096, heads=32, kv=8, inner=14336, gated=1, rope=1, learned=0, seq=8192,
                vocab=model.padded_vocab(4), tp=4, mbs=2)
    machine = Machine.of(c, h200)
    layer.layer(c, h200, machine)
    layer.head(c, h200, machine)
    wanted = [*shapes.gemms(model, tp=4, mbs=2), *shapes.stored(model, tp=4, mbs=2),
              *shapes.head(model, tp=4, tokens=2 * 8192)]
    assert sorted(asked) == sorted(wanted)


def test_without_a_machine_file_nothing_changes(h200, tmp_path):
    c = configs(tp=[1, 2, 4], mbs=[1, 2, 4])
    nothing = replace(h200, machine=machines.written(machines.empty(), tmp_path))
    plain, empty = step.time(c, h200), step.time(c, nothing)
    assert np.array_equal(plain.sec, empty.sec)


def test_a_measured_product_takes_as_long_as_it_took(h200, tmp_path):
    shape = GemmShape("weight", 2048, 6144, 4096)
    found = machines.empty()
    found["figures"]["matmul"] = [machines.product(shape, 123e-6), machines.product(shape._replace(rows=8192), 1.0)]
    cluster = replace(h200, machine=machines.written(found, tmp_path))
    assert machines.product_s(cluster, shape) == pytest.approx(123e-6, rel=1e-3)


def test_a_kind_that_was_not_measured_keeps_the_data_sheet(h200, tmp_path):
    shape = GemmShape("weight", 2048, 6144, 4096)
    found = machines.empty()
    found["figures"]["matmul"] = [machines.product(shape, 123e-6)]
    cluster = replace(h200, machine=machines.written(found, tmp_path))
    other = shape._replace(kind="input")
    assert machines.product_s(cluster, other) == machines.product_s(h200, other)


def test_layers_follow_the_factor_of_their_products(h200, tmp_path, monkeypatch):
    monkeypatch.setattr(layer, "RESTED", 0.0)  # what other kernels leave of the power does not grow with the products
    slower = with_products(h200, tmp_path, lambda shape: 1.5)
    c = configs(tp=[1, 2, 4, 1, 2, 4], mbs=[1, 1, 1, 2, 4, 3], recompute=RECOMPUTE.index("full"))
    plain, probed_ = (layer.layer(c, cluster, Machine.of(c, cluster)) for cluster in (h200, slower))
    for way in (0, 1):
        assert probed_["matmul"][way] == pytest.approx(1.5 * plain["matmul"][way])
    heads = [layer.head(c, cluster, Machine.of(c, cluster)) for cluster in (h200, slower)]
    assert np.all(heads[1].forward > heads[0].forward) and np.all(heads[1].forward < 1.5 * heads[0].forward)


def test_between_two_shapes_the_factor_lies_between(h200, tmp_path):
    """Twice as slow at 1024 rows, as the sheet says at 16384."""
    few, many, between = (GemmShape("forward", rows, 2048, 2048) for rows in (1024, 16384, 4096))
    found = machines.empty()
    found["figures"]["matmul"] = [machines.product(few, 2 * machines.product_s(h200, few)),
                                  machines.product(many, machines.product_s(h200, many))]
    cluster = replace(h200, machine=machines.written(found, tmp_path))
    factor = machines.product_s(cluster, between) / machines.product_s(h200, between)
    assert factor == pytest.approx(2**0.5, rel=1e-3)  # the middle of the two on logarithmic scales


def test_many_layouts_at_once_are_what_they_are_one_by_one(h200, tmp_path):
    rng = np.random.default_rng(3)
    varied = with_products(h200, tmp_path, lambda shape: float(rng.uniform(0.5, 2.0)))
    n = 400
    c = configs(tp=rng.choice([1, 2, 4], n), mbs=rng.choice([1, 2, 3, 4, 8], n), dp=rng.choice([1, 2, 4], n),
                precision=rng.choice([PRECISIONS.index("bf16"), PRECISIONS.index("fp16"), PRECISIONS.index("fp32")], n))
    together = step.time(c, varied).sec
    alone = np.array([step.time(c.take(slice(i, i + 1)), varied).sec[0] for i in range(0, n, 7)])
    assert together[::7] == pytest.approx(alone, rel=1e-12)


def test_attention_is_corrected_by_way_and_by_bias(h200, tmp_path):
    found = machines.empty()
    c = configs(heads=16, mbs=2, attention=facts.HOPPER)
    forward, backward = attention.fused_s(Machine.of(c, h200), np.array([facts.HOPPER]), np.array([32]), c.seq, c.head_size)
    for bias, factor in ((False, 1.25), (True, 3.0)):
        found["figures"]["attention"].append(
            {"dtype": "bf16", "batch": 2, "heads": 16, "kv_heads": 16, "seq": 1024, "head_dim": 128, "bias": bias,
             "forward_s": float(factor * forward[0]), "backward_s": float(2 * factor * backward[0]), "spread": 0.0})
    cluster = replace(h200, machine=machines.written(found, tmp_path))
    for positions, factor in ((1, 1.25), (0, 3.0)):
        one = configs(heads=16, mbs=2, attention=facts.HOPPER, learned=positions)
        cost = layer.layer(one, cluster, Machine.of(one, cluster))["attention"]
        assert cost.forward[0] == pytest.approx(factor * forward[0], rel=1e-3)
        assert cost.backward[0] == pytest.approx(2 * factor * backward[0], rel=1e-3)


def talking(h200: Cluster, folder) -> Cluster:
    """A node whose groups of 2 are three times slower than the sheet, of 8 twice; across nodes 1.5 times."""
    found = machines.empty(world=16, nodes=2, procs_per_node=8)
    for size, per_node, nodes, factor in ((2, 2, 1, 3.0), (8, 8, 1, 2.0), (16, 8, 2, 1.5)):
        for size_bytes in (2**16, 2**20, 2**24):
            s = factor * machines.all_reduce_s(h200, size, per_node, size_bytes)
            found["figures"]["collectives"].append({"op": "all_reduce", "size": size, "per_node": per_node, "nodes": nodes,
                                                    "groups": 1, "bytes": size_bytes, "s": s, "spread": 0.0})
    for nodes, s in ((1, 1e-3), (2, 4e-3)):
        found["figures"]["p2p"] += [{"nodes": nodes, "bytes": 2**20, "s": s, "spread": 0.0},
                                    {"nodes": nodes, "bytes": 2**22, "s": 4 * s, "spread": 0.0}]
    return replace(h200, machine=machines.written(found, folder))


def test_collectives_take_as_long_as_they_took_by_group(h200, tmp_path):
    cluster = talking(h200, tmp_path)
    for size, per_node, factor in ((2, 2, 3.0), (8, 8, 2.0), (16, 8, 1.5)):
        for size_bytes in (2**16, 3e6, 2**24, 2**30):
            told, sheet = (machines.all_reduce_s(which, size, per_node, size_bytes) for which in (cluster, h200))
            assert told / sheet == pytest.approx(factor, rel=1e-6), (size, size_bytes)
    # Nobody measured a group of 4 in a node, nor 64 nodes: the nearest kind of group tells.
    assert machines.all_reduce_s(cluster, 512, 8, 2**24) / machines.all_reduce_s(h200, 512, 8, 2**24) == pytest.approx(1.5)


def test_messages_between_stages_are_measured_times(h200, tmp_path):
    cluster = talking(h200, tmp_path)
    one_node, two_nodes = configs(pp=2, procs_per_node=8), configs(pp=16, nodes=2, procs_per_node=8, dp=8, layers=16)
    assert network.send_s(one_node, cluster, 2**20)[0] == pytest.approx(1e-3)
    assert network.send_s(one_node, cluster, 2**21)[0] == pytest.approx(2e-3)
    assert network.send_s(one_node, cluster, 2**24)[0] == pytest.approx(16e-3)  # beyond the largest, in proportion
    assert network.send_s(two_nodes, cluster, 2**20)[0] == pytest.approx(4e-3)


def test_usable_memory_and_context_are_what_was_found(h200, tmp_path):
    found = machines.empty()
    found["device"] |= {"usable_gib": 100.0, "context_gib": 3.0}
    cluster = replace(h200, machine=machines.written(found, tmp_path))
    assert limit_gib(cluster) == 100.0 and limit_gib(h200) != 100.0
    assert memory.peak(configs(), cluster).parts["context"][0] == pytest.approx(3.0)


def measured_cpu() -> dict:
    found = machines.cpu()
    for shape in (GemmShape("forward", 512, 2048, 2048), GemmShape("input", 512, 2048, 2048),
                  GemmShape("weight", 2048, 2048, 512)):
        found["figures"]["matmul"].append(machines.product(shape, 2 * 512 * 2048 * 2048 / 100e9, "fp32"))
    for size in (2**16, 2**24):
        found["figures"]["memory"] += [{"name": n, "dtype": "fp32", "bytes": size, "moved": 2 * size, "s": 2 * size / 10e9,
                                        "spread": 0.0} for n in ("copy", "add", "norm", "gelu")]  # fmt: skip
    found["figures"]["host"] = [{"forward_s": 1e-3, "backward_s": 2e-3, "fixed_s": 5e-3, "spread": 0.0}]
    found["figures"]["optimizer"] = [{"name": "adamw", "dtype": "fp32", "parameters": 1000, "s": 1e-5, "spread": 0.0}]
    return found


def test_a_machine_file_alone_is_a_cluster(tmp_path):
    cluster = presets.cluster(machines.written(measured_cpu(), tmp_path))
    assert (cluster.nodes, cluster.procs_per_node, cluster.device.kind) == (1, 1, "cpu")
    assert cluster.device.peak_tflops["fp32"] == pytest.approx(0.1)
    c = configs(procs_per_node=1, precision=PRECISIONS.index("fp32"), mbs=1, gbs=1)
    parts = step.time(c, cluster).parts
    assert parts["fixed"][0] == pytest.approx(5e-3)
    assert parts["launch"][0] == pytest.approx(8 * 3e-3)
    assert parts["optimizer"][0] == pytest.approx(step.stage_parameters(c).max() * 1e-8)


def test_processes_of_a_cpu_node_share_what_was_measured(tmp_path):
    cluster = presets.cluster(machines.written(measured_cpu(), tmp_path))
    fp32 = PRECISIONS.index("fp32")
    one, two, four = (Machine.of(configs(procs_per_node=p, precision=fp32), cluster.with_procs(p)) for p in (1, 2, 4))
    assert one.matrix_flops[0] == pytest.approx(100e9)
    assert two.matrix_flops[0] == pytest.approx(50e9) and two.element_bytes_s[0] == pytest.approx(one.element_bytes_s[0] / 2)
    # Two cores: with four processes the interpreter waits for its turn as well.
    assert two.fixed_s[0] == pytest.approx(one.fixed_s[0]) and four.fixed_s[0] == pytest.approx(2 * one.fixed_s[0])


def test_a_process_that_used_one_core_of_two_is_not_halved_by_a_second(tmp_path):
    found = measured_cpu()
    found["threads"] = 1
    cluster = presets.cluster(machines.written(found, tmp_path)).with_procs(2)
    c = configs(procs_per_node=2, precision=PRECISIONS.index("fp32"))
    assert Machine.of(c, cluster).matrix_flops[0] == pytest.approx(100e9)


def test_noise_widens_the_interval_and_a_probe_narrows_a_cpus(tmp_path):
    found = measured_cpu()
    quiet = presets.cluster(machines.written(found, tmp_path, "quiet.json"))
    noisy = presets.cluster(machines.written({**found, "noise": 0.3}, tmp_path, "noisy.json"))
    c = configs(procs_per_node=1, precision=PRECISIONS.index("fp32"))
    busy = presets.cluster(machines.written({**found, "core_share": 0.5}, tmp_path, "busy.json"))
    clusters = {"quiet": quiet, "noisy": noisy, "busy": busy, "sheet": replace(quiet, machine=None)}
    width = {name: float(np.log(t.hi[0] / t.lo[0])) for name, t in ((n, step.time(c, k)) for n, k in clusters.items())}
    assert width["quiet"] < width["noisy"] < width["busy"] and width["quiet"] < 0.6 * width["sheet"]


def test_what_was_not_measured_is_named(h200, tmp_path):
    cluster = talking(h200, tmp_path)
    told = probed.basis(cluster, precision="bf16", processes=64)
    assert told is not None
    gaps = told["not_measured"]
    assert gaps[0] == "GEMMs in bf16" and "attention" in gaps and "the optimizer" in gaps
    assert "collectives across nodes over more than 16 processes" in gaps
    assert not any("inside a node" in gap for gap in gaps)
    assert probed.basis(h200, precision="bf16", processes=64) is None


def test_a_file_that_changes_is_read_again(h200, tmp_path):
    shape = GemmShape("forward", 2048, 2048, 2048)
    times = []
    for s in (1e-3, 2e-3):
        found = machines.empty()
        found["figures"]["matmul"] = [machines.product(shape, s)]
        cluster = replace(h200, machine=machines.written(found, tmp_path))
        times.append(machines.product_s(cluster, shape))
    assert times == pytest.approx([1e-3, 2e-3], rel=1e-3)


def test_here_without_a_file_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="no machine.json in this folder; `seatrial probe` writes it"):
        presets.cluster("here")
