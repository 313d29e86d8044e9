"""The probe in one process: what it measures, and what it says of what it could not."""
from __future__ import annotations

import time

import pytest
import torch

from seatrial import machine, presets
from seatrial.engine.rendezvous import RankInfo
from seatrial.probe import collectives, kernels
from seatrial.probe import run as probing
from seatrial.probe.collectives import InterleavedGemm, Kind, Ranks
from seatrial.probe.options import ProbeOptions
from seatrial.probe.timing import Clock, Item, summary

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """The probe takes Ctrl-C for itself, a test run keeps it; threads that wait for each other crawl on a busy machine."""
    monkeypatch.setattr(probing.Ranks, "stop_on_signal", lambda self: None)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_host(monkeypatch):
    """Without the engine's own steps, which have a test."""
    monkeypatch.setattr(probing.Probe, "_host", lambda self: None)


def ask(budget_s: float = 600.0) -> ProbeOptions:
    return ProbeOptions.of(models=[presets.model("tiny")], tps=(1,), mbss=(1,), device="cpu", budget_s=budget_s)


def short(monkeypatch, *items: Item) -> None:
    monkeypatch.setattr(ProbeOptions, "short", lambda self, device: iter(()))
    monkeypatch.setattr(ProbeOptions, "long", lambda self, device: iter(items))


def probed(asked: ProbeOptions) -> dict:
    return machine.checked(probing.probe(asked, RankInfo(), CPU, say=lambda line: None), "test")


def test_a_real_probe_has_every_part_that_one_process_can_measure():
    found = probed(ask())
    counts = {part: len(entries) for part, entries in found["figures"].items()}
    assert counts == {"host": 1, "launch": 1, "memory": 19, "optimizer": 1, "copies": 0, "collectives": 0, "p2p": 0,
                      "matmul": 12 + 3 + 12, "attention": 1}
    said = {entry["what"]: entry["why"] for entry in found["missing"]}
    assert set(said) == {"collectives", "p2p"} and "one process alone" in said["p2p"]
    product = found["figures"]["matmul"][0]
    rate = 2e-9 * product["rows"] * product["cols"] * product["inner"] / product["s"]
    assert 0.1 < rate < 10_000, "GFLOP/s of a CPU core"
    assert found["device"]["kind"] == "cpu" and 0 < found["device"]["usable_gib"] <= found["device"]["memory_gib"]


def test_what_the_budget_leaves_out_is_listed_and_the_file_is_whole(no_host):
    asked = ask(budget_s=1e-9)
    found = probed(asked)
    measured = sum(len(entries) for part, entries in found["figures"].items() if part != "host")
    wanted = len(list(asked.short(CPU))) + len(list(asked.long(CPU)))
    assert measured == 0 and sum("not reached in" in entry["why"] for entry in found["missing"]) == wanted


def test_a_kernel_without_memory_is_missing_and_the_next_one_is_not(monkeypatch, no_host):
    def full() -> kernels.Works:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    def vast() -> kernels.Works:
        return {"s": lambda: torch.empty(2**60, dtype=torch.uint8)}  # what a CPU's allocator says is another sentence

    good = next(kernels.streams((2**16,), "fp32", CPU))
    short(monkeypatch, Item("memory", {"name": "full"}, full), Item("memory", {"name": "vast"}, vast), good)
    found = probed(ask())
    assert [entry["name"] for entry in found["figures"]["memory"]] == ["copy"]
    said = {entry["what"]: entry["why"] for entry in found["missing"]}
    assert said["memory full"].startswith("out of memory") and said["memory vast"].startswith("out of memory")


def test_a_kernel_that_this_device_does_not_have_is_missing_with_its_reason(monkeypatch, no_host):
    def none() -> kernels.Works:
        raise RuntimeError("no kernel image is available\nsecond line")

    short(monkeypatch, Item("matmul", {"dtype": "fp8"}, none))
    assert {"what": "matmul fp8", "why": "failed: no kernel image is available"} in probed(ask())["missing"]


def test_stop_requested_it_keeps_what_it_has(monkeypatch, no_host):
    first, second = (next(kernels.streams((size,), "fp32", CPU)) for size in (2**16, 2**17))
    probe = probing.Probe(ask(), RankInfo(), CPU, lambda line: None)

    def last() -> kernels.Works:
        probe.ranks.stop_requested = True
        return first.prepare()

    short(monkeypatch, first._replace(prepare=last), second)
    found = machine.checked(probe.run(), "test")
    assert [entry["bytes"] for entry in found["figures"]["memory"]] == [2**16]
    assert {"what": second.label, "why": "stopped"} in found["missing"]


def test_the_clock_gives_the_median_and_how_far_repeats_lie_apart():
    sample = summary([1.0] * 10 + [100.0])
    assert sample.s == 1.0 and sample.spread == 0.0
    assert summary([0.9, 1.0, 1.1] * 10).spread == pytest.approx(0.1)
    slept = Clock(CPU, target_s=0.02)(lambda: time.sleep(0.002))
    assert slept.s >= 0.002 and slept.repeats >= 3


@pytest.mark.parametrize(("world", "local", "wanted"), [
    (1, 1, []), (2, 2, [Kind(2, 1)]), (8, 8, [Kind(2, 1), Kind(4, 1), Kind(8, 1)]), (6, 6, [Kind(2, 1), Kind(6, 1)]),
    (16, 4, [Kind(2, 1), Kind(4, 1), Kind(1, 2), Kind(4, 2), Kind(1, 4), Kind(4, 4)]),
])  # fmt: skip
def test_groups_of_every_size_present(world, local, wanted):
    assert collectives.kinds(RankInfo(world=world, local_world=local), every=False) == wanted


@pytest.mark.parametrize("local", [1, 2, 4, 6])
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_a_kind_of_group_cuts_all_ranks_into_equal_parts(local, nodes):
    world = local * nodes
    for kind in collectives.kinds(RankInfo(world=world, local_world=local), every=True):
        found = {}
        for rank in range(world):
            mine = collectives.members(kind, RankInfo(rank=rank, world=world, local_rank=rank % local, local_world=local))
            assert rank in mine and len(set(mine)) == kind.size
            per_node = [sum(member // local == node for member in mine) for node in range(nodes)]
            assert sorted(per_node)[-kind.nodes :] == [kind.per_node] * kind.nodes
            found[rank] = tuple(mine)
        assert all(found[member] == group for group in found.values() for member in group)


class Sleepy:
    """Time that passes only in what is timed: 3 ms in a product, 10 ms in a call whose threads have gone to sleep."""

    def __init__(self):
        self.now = self.called = 0.0

    def product(self, *_):
        self.now += 3e-3

    def call(self):
        self.now += 1e-2 if self.now - self.called > 5e-4 else 1e-4
        self.called = self.now


def test_a_call_among_products_pays_for_being_woken_and_one_back_to_back_does_not(monkeypatch):
    ranks, clock = Ranks(RankInfo(), CPU), Sleepy()
    between = InterleavedGemm(64, 3e-3, torch.ones(1), torch.ones(1))
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(InterleavedGemm, "_work", clock.product)
    assert collectives.timed(ranks, clock.call, 0.05).s == pytest.approx(1e-4)
    assert collectives.timed(ranks, clock.call, 0.05, between).s == pytest.approx(1e-2), "and nothing of the product"


def test_what_a_call_adds_is_never_less_than_it_was_seen_to_take():
    ranks = Ranks(RankInfo(), CPU)
    found = InterleavedGemm.on(ranks).added_by(ranks, lambda: None, once_s=1e-6, floor_s=2e-4)
    assert found.s >= 2e-4 and found.repeats >= 12


def test_the_product_between_calls_takes_a_few_milliseconds_where_it_can():
    told = InterleavedGemm.on(Ranks(RankInfo(), CPU)).describe()
    assert 64 <= told["rows"] <= 2048 and (told["cols"], told["inner"]) == (1024, 256) and told["s"] > 0
