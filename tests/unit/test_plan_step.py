"""Laws of the planner's physics: what must grow, what must shrink, what must add up."""
from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

import attempts
from seatrial import arith, presets
from seatrial.engines.model import names
from seatrial.plan import kernels, memory, network, step
from seatrial.plan.configs import RECOMPUTE, SCHEDULES, Configs, engine_code
from seatrial.schedule import KINDS
from seatrial.spec import Batch, Device, Execution, Link, Topology, Trial

JZ = presets.cluster("jz-a100")
DGX = presets.cluster("dgx-a100")
BLOOM = {"layers": 72, "hidden": 14336, "heads": 64, "seq": 2048, "vocab": 250880, "dp": 8, "tp": 4, "pp": 12, "mbs": 2,
         "gbs": 2048, "learned": 0, "zero": 1, "recompute": 2, "procs_per_node": 8, "nodes": 48}


def configs(n: int = 1, **changes: object) -> Configs:
    return Configs.from_columns(n, **{**BLOOM, **changes})


def seconds(cluster=JZ, **changes: object) -> float:
    return float(step.time(configs(**changes), cluster).sec[0])


def gib(cluster=JZ, **changes: object) -> float:
    return float(memory.peak(configs(**changes), cluster).gib[0])


def machine(**changes: object) -> kernels.Machine:
    return kernels.Machine.of(configs(**changes), DGX)


def matmul(rows: int, cols: int, inner: int, align: int = 128) -> float:
    return float(kernels.matmul_s(machine(), rows, cols, inner, np.array([align]))[0])


def test_the_parts_add_up_to_the_whole_and_the_interval_holds_it():
    for pp, vp, schedule in ((12, 1, "1f1b"), (12, 2, "interleaved"), (12, 1, "gpipe"), (12, 1, "zb-h1")):
        found = step.time(configs(pp=pp, vp=vp, schedule=SCHEDULES.index(schedule), gbs=12 * 8 * 2 * 8), JZ)
        assert sum(v[0] for v in found.parts.values()) == pytest.approx(found.sec[0])
        assert found.lo[0] < found.sec[0] < found.hi[0]
        assert min(v[0] for v in found.parts.values()) >= 0


def test_memory_parts_add_up_to_the_fullest_rank():
    found = memory.peak(configs(), JZ)
    assert sum(v[0] for v in found.parts.values()) == pytest.approx(found.gib[0])
    assert found.gib[0] == pytest.approx(found.by_rank[:, 0].max())
    assert found.need_gib[0] <= found.gib[0]


def test_parameters_of_a_stage_are_those_of_arith():
    model = presets.model("bloom-181b")
    topology = Topology(dp=8, tp=4, pp=12)
    found = step.stage_parameters(configs())[:, 0]
    for kind, rank in ((0, 0), (1, 5), (2, 11)):
        assert found[kind] == pytest.approx(arith.stage_parameters(model, topology, rank).total, rel=5e-3)


def test_columns_from_trials_are_those_from_numbers():
    trial = Trial(model=presets.model("bloom-181b"), batch=Batch(gbs=2048), cluster=presets.cluster("jz-a100"),
                  topology=Topology(dp=8, tp=4, pp=12, mbs=2, zero=1, recompute="full", precision="bf16"), engine="megatron")
    assert step.time(Configs.from_trials([trial]), JZ).sec[0] == pytest.approx(seconds())


def test_time_grows_with_work():
    assert seconds(gbs=4096) > 1.8 * seconds(gbs=2048)
    assert seconds(layers=144) > 1.8 * seconds()
    assert seconds(recompute=RECOMPUTE.index("none")) < seconds(recompute=RECOMPUTE.index("selective")) < seconds()


def test_slower_links_and_blocking_launches_cost_time():
    slow = replace(JZ, inter=replace(JZ.inter, efficiency=JZ.inter.efficiency / 2))
    assert seconds(slow) > seconds()
    assert seconds(replace(JZ, blocking_launch=False)) < seconds()
    assert seconds(replace(JZ, intra=replace(JZ.intra, efficiency=0.2))) > seconds()


def test_a_product_pays_for_the_tile_and_the_wave_it_does_not_fill():
    def rate(rows: int, cols: int) -> float:
        return rows * cols * 4096 / matmul(rows, cols, 4096)

    assert rate(2048, 128 * 33) > rate(2048, 128 * 32 + 1)
    # 108 tiles of 256 x 128 are one wave on an A100, 109 are two.
    assert matmul(256 * 109, 128, 65536) > 1.25 * matmul(256 * 108, 128, 65536)


def test_widths_that_are_not_multiples_of_16_bytes_lose_the_tensor_cores():
    widths = np.array([108, 150, 112, 14400, 14336])
    aligned = kernels.alignment_bytes(kernels.Machine.of(configs(5), DGX), widths)
    assert aligned.tolist() == [8, 4, 32, 128, 128]
    assert matmul(2048, 2048, 1024, align=8) > 4 * matmul(2048, 2048, 1024, align=16)
    assert matmul(2048, 2048, 1024, align=4) > 1.9 * matmul(2048, 2048, 1024, align=8)


def test_head_sizes_that_are_not_multiples_of_8_cost_what_the_shape_suggests():
    assert seconds(hidden=13824, heads=128) > 1.15 * seconds(hidden=13824, heads=64)


def test_an_all_reduce_costs_twice_a_gather_and_sharing_adapters_divides_the_rate():
    sixteen, size = np.array([16]), 1e9
    alone = network.Group(size=sixteen, per_node=np.array([1]), sharers=np.array([1]))
    shared = network.Group(size=sixteen, per_node=np.array([1]), sharers=np.array([8]))
    assert network.all_reduce_s(DGX, alone, size)[0] == pytest.approx(2 * network.gather_s(DGX, alone, size)[0], rel=0.02)
    assert network.all_reduce_s(DGX, shared, size)[0] == pytest.approx(8 * network.all_reduce_s(DGX, alone, size)[0], rel=0.02)
    one = network.Group(size=np.array([1]), per_node=np.array([1]), sharers=np.array([1]))
    assert network.all_reduce_s(DGX, one, size)[0] == 0


def test_tensor_parallelism_across_nodes_is_dearer_than_inside():
    inside, across = seconds(tp=8, dp=4), seconds(tp=16, dp=2)
    assert across > 1.5 * inside


def test_zero_stages_trade_memory_for_traffic():
    sizes = [gib(zero=z, pp=1, tp=8, dp=48, layers=24) for z in range(4)]
    assert sizes == sorted(sizes, reverse=True)
    slow = [seconds(zero=z, pp=1, tp=8, dp=48, layers=24, gbs=48 * 32) for z in (1, 2, 3)]
    assert slow == sorted(slow)


def test_memory_grows_with_micro_batch_and_falls_with_recompute():
    assert gib(mbs=1) < gib(mbs=2) < gib(mbs=4)
    assert gib(recompute=2) < gib(recompute=1) < gib(recompute=0)


def test_sequence_parallelism_saves_activations():
    assert gib(recompute=1, sequence_parallel=1) < gib(recompute=1)


def test_the_last_stage_pays_for_the_logits():
    assert seconds(vocab=250880) > seconds(vocab=50304)
    few, many = (step.time(configs(pp=pp, dp=96 // pp), JZ).parts["logits"][0] for pp in (6, 24))
    assert many > 3 * few


def test_memory_counts_the_micro_batches_that_the_schedule_holds():
    from seatrial import schedule

    for kind, vp in (("1f1b", 1), ("gpipe", 1), ("interleaved", 3), ("zb-h1", 1)):
        c = configs(schedule=SCHEDULES.index(kind), vp=vp, gbs=12 * 8 * 2 * 2)
        for row, rank in ((0, 0), (1, 1), (2, 11)):
            held = schedule.peak_activations(schedule.schedule(kind, pp=12, rank=rank, microbatches=24, virtual=vp))
            assert memory.in_flight(c)[row, 0] == pytest.approx((held.activations + held.weight_inputs) / vp)


def test_moments_in_16_bits_spare_a_gpu_half_of_what_they_cost_the_update():
    def update(moments: str, kind: str) -> float:
        trial = Trial(model=presets.model("gpt-1.3b"), batch=Batch(gbs=16), engine="seatrial",
                      topology=Topology(mbs=16, precision="bf16"), execution=Execution(moments=moments))  # type: ignore[arg-type]
        return float(step.measure(Configs.from_trials([trial]), presets.cluster(kind)).optimizer[0])

    # Of 28 bytes a parameter 16 are the two moments', read and written.
    assert update("bf16", "h200") == pytest.approx(20 / 28 * update("fp32", "h200"))
    assert update("bf16", "fugaku") == update("fp32", "fugaku")


def test_a_hundred_thousand_configurations_take_a_second():
    many = configs(100_000, mbs=np.tile([1, 2, 4, 8], 25_000))

    def cpu_s() -> float:
        begin = time.process_time()
        step.time(many, JZ)
        memory.peak(many, JZ)
        return time.process_time() - begin

    assert attempts.fastest_of_three(cpu_s) < 1.0


def test_chunks_change_nothing():
    n = step.CHUNK + 5
    mbs = np.tile([1, 2, 4], n)[:n]
    long = step.time(configs(n, mbs=mbs), JZ)
    short = step.time(configs(3, mbs=np.array([1, 2, 4])), JZ)
    np.testing.assert_array_equal(long.sec[-3:], short.sec[(np.arange(n - 3, n)) % 3])
    assert len(memory.peak(configs(n, mbs=mbs), JZ).gib) == n


@pytest.mark.parametrize("name", presets.names("clusters"))
def test_every_forecast_is_a_finite_number_on_every_machine(name: str):
    rng, n = np.random.default_rng(5), 3000
    cluster = presets.cluster(name)
    pick = {key: rng.choice(values, n) for key, values in {
        "hidden": [64, 768, 2048, 14400, 25600], "layers": [1, 7, 12, 96], "tp": [1, 2, 8, 64], "pp": [1, 2, 5, 64],
        "dp": [1, 3, 512], "mbs": [1, 7, 32], "zero": [0, 1, 2, 3], "recompute": [0, 1, 2],
        "schedule": range(len(SCHEDULES)), "precision": range(4), "seq": [128, 2048, 131072], "procs_per_node": [1, 4, 16],
        "attention": [-1, 0, 1, 2], "overlap": [-1, 0, 5, 7], "gated": [0, 1], "engine": [engine_code(n) for n in names()],
    }.items()}  # fmt: skip
    virtual = np.array([kind.virtual for kind in KINDS.values()])[pick["schedule"]]
    pick["vp"], pick["pp"] = np.where(virtual, 2, 1), np.where(virtual, np.maximum(pick["pp"], 2), pick["pp"])
    c = Configs.from_columns(n, **pick, heads=64, vocab=50257, gbs=pick["dp"] * pick["mbs"] * pick["pp"] * 2)
    timed, held = step.time(c, cluster), memory.peak(c, cluster)
    for column in (timed.sec, timed.lo, timed.hi, held.gib, held.lo, held.hi, held.need_gib):
        assert np.isfinite(column).all() and (column > 0).all()
    assert all((part >= 0).all() for part in [*timed.parts.values(), *held.parts.values()])
    assert np.allclose(sum(held.parts.values()), held.gib)


def test_a_device_described_by_its_peaks_alone_is_forecast_like_its_preset():
    bare = Device(name="A100", kind="gpu", peak_tflops={"bf16": 312.0}, memory_gib=80.0, memory_gb_s=2039.0)
    link = {"latency_us": 5.0}
    cluster = replace(DGX, device=bare, intra=Link(bandwidth_gb_s=300.0, **link), inter=Link(bandwidth_gb_s=200.0, **link))
    assert seconds(cluster) == pytest.approx(seconds(DGX), rel=0.1)
