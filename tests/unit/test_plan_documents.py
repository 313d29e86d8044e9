"""Packed documents in the forecast: what is left of attention, and how unevenly it lies over ranks and replicas."""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from seatrial import presets
from seatrial.plan import documents, step
from seatrial.plan.configs import Configs
from seatrial.plan.explain import explain
from seatrial.plan.rows import read_row
from seatrial.plan.search import search
from seatrial.plan.space import Space
from seatrial.spec import Batch, Topology, Trial

LLAMA = replace(presets.model("llama3.1-8b"), seq=131_072)
NODE = presets.cluster("dgx-h100", nodes=1)


def trial(asked: str | None, *, cp: int = 8, kind: str = "ring", engine: str = "seatrial", gbs: int = 8, nodes: int = 1,
          **knobs: object) -> Trial:
    t = Topology(cp=cp, cp_kind=kind, precision="bf16", recompute="full", zero=1, **knobs)  # type: ignore[arg-type]
    return Trial(model=LLAMA, topology=t, batch=Batch(gbs=gbs, documents=asked), cluster=NODE.with_nodes(nodes), engine=engine)


def attention(*trials: Trial) -> list[float]:
    assert trials[0].cluster is not None
    return step.time(Configs.from_trials(trials), trials[0].cluster).parts["attention"].tolist()


def sequences(least: int, most: int, seq: int) -> Iterator[tuple[float, list[int]]]:
    """Every way to fill a sequence with documents of uniform lengths, and how likely it is."""
    def go(left: int, chance: float, before: list[int]) -> Iterator[tuple[float, list[int]]]:
        if left == 0:
            yield chance, before
            return
        for length in range(least, most + 1):
            yield from go(left - min(length, left), chance / (most - least + 1), [*before, min(length, left)])

    return go(seq, 1.0, [])


def expected(of: Callable[[list[int]], float], least: int, most: int, seq: int) -> float:
    return sum(chance * of(lengths) for chance, lengths in sequences(least, most, seq))


def pairs(lengths: list[int]) -> list[int]:
    """Keys that each token sees."""
    return [n + 1 for length in lengths for n in range(length)]


def test_what_is_left_of_attention_is_the_expected_sum_of_squares() -> None:
    found = documents.packed("uniform:1:4", 8)
    assert found.share == pytest.approx(expected(lambda one: sum(n * n for n in one), 1, 4, 8) / 64, rel=0.01)
    assert found.each == pytest.approx(expected(len, 1, 4, 8), rel=0.01)


def test_documents_of_one_length_are_exact() -> None:
    found = documents.packed("fixed:1000", 4096)
    assert found.share == (4 * 1000**2 + 96**2) / 4096**2 and found.each == 5
    assert documents.slowest("fixed:1024", 4096, dp=64) == (1.0, 1.0)
    assert documents.packed(None, 64) == documents.packed("corpus", 64) == (1.0, 64.0, 1.0)
    # One document as long as the sequence is what a ring is balanced for.
    assert documents.slowest("fixed:4096", 4096, ring=4)[0] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("mbs", [1, 2])
def test_the_slowest_member_of_a_ring_is_the_expected_maximum(mbs: int) -> None:
    def members(one: list[int]) -> tuple[int, int]:
        seen = pairs(one)
        return sum(seen[:2]) + sum(seen[6:]), sum(seen[2:6])

    every = [(chance, members(one)) for chance, one in sequences(1, 4, 8)]
    mean = sum(chance * sum(of) / 2 for chance, of in every)
    most = 0.0
    for several in itertools.product(every, repeat=mbs):
        chance = 1.0
        for one in several:
            chance *= one[0]
        most += chance * max(sum(of[member] for _, of in several) for member in (0, 1)) / mbs
    assert documents.slowest("uniform:1:4", 8, ring=2, mbs=mbs)[0] == pytest.approx(most / mean, rel=0.01)


@pytest.mark.parametrize("dp", [2, 3])
def test_the_slowest_replica_is_the_expected_maximum(dp: int) -> None:
    each = [(chance, sum(pairs(one))) for chance, one in sequences(1, 4, 6)]
    mean, most = sum(chance * value for chance, value in each), 0.0
    for several in itertools.product(each, repeat=dp):
        chance = 1.0
        for one in several:
            chance *= one[0]
        most += chance * max(value for _, value in several)
    assert documents.slowest("uniform:1:4", 6, dp=dp)[1] == pytest.approx(most / mean, rel=0.02)


def test_replicas_even_out_over_micro_batches() -> None:
    few, many, very_many = (documents.slowest("lognormal:4000:1.5", 65_536, dp=16, microbatches=m)[1] for m in (1, 16, 256))
    assert few > many > very_many > 1.0
    assert very_many - 1 == pytest.approx((many - 1) / 4, rel=0.35)


@pytest.mark.parametrize("kind", ["ring", "gather", "ulysses"])
def test_attention_follows_the_documents(kind: str) -> None:
    whole, one, short = attention(*(trial(asked, kind=kind) for asked in (None, "fixed:131072", "uniform:1024:8192")))
    assert one == pytest.approx(whole, rel=1e-9)
    # Fewer pairs, at the lower rate of shorter sequences.
    left = documents.packed("uniform:1024:8192", 131_072).share
    assert left * whole < short < 4 * left * whole


def test_heads_that_are_shared_leave_ranks_even() -> None:
    long = "lognormal:30000:1.5"
    ring, shared = attention(trial(long), trial(long, kind="ulysses"))
    group, _ = documents.slowest(long, LLAMA.seq, ring=8)
    assert group > 1.2
    whole = attention(trial(None), trial(None, kind="ulysses"))
    assert ring / shared > 1.1 * whole[0] / whole[1]


def test_stored_scores_are_computed_whatever_the_documents() -> None:
    short = replace(LLAMA, seq=4096)
    stored = [replace(one, model=short, execution=replace(one.execution, attention="stored"))
              for one in (trial(None, cp=1, tp=8), trial("fixed:256", cp=1, tp=8))]
    assert attention(stored[0]) == attention(stored[1])


def test_explain_says_what_documents_leave() -> None:
    said = explain(trial("lognormal:30000:1.5", gbs=16, dp=2, nodes=2)).documents
    assert "lognormal:30000:1.5" in said and "slowest rank of a ring of 8" in said and "slowest of 2 replicas" in said
    assert explain(trial(None)).documents == ""
    assert "not known" in explain(trial("corpus")).documents


def test_a_search_and_a_row_have_the_documents() -> None:
    space = Space(models=(LLAMA,), cluster=NODE, gbs=(8,), cp=(8,), tp=(1,), engine="seatrial", documents="fixed:4096")
    found, without = (search(one, precision="bf16") for one in (space, replace(space, documents=None)))
    assert found.trial(0).batch.documents == "fixed:4096" and found.sec[0] < 0.7 * without.sec[0]
    row = {"layers": "32", "hidden": "4096", "heads": "32", "seq": "8192", "dp": "8", "gbs": "8", "documents": "fixed:4096"}
    assert read_row(row, NODE).trial.batch.documents == "fixed:4096"
