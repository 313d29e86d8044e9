"""Documents packed into a sequence: their words, where they begin, and attention that stays inside each."""
from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from context_cases import in_pieces
from seatrial import rules
from seatrial.arith.footprint import footprint
from seatrial.documents import Documents
from seatrial.engine.core.comm import Comm
from seatrial.engine.core.context import Context, alibi_bias, cut, positions_of, ring_stretches
from seatrial.engine.core.lse_kernels import Cudnn, Efficient, Flash, OnCpu
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.pieces import Piece, Starts, Stretch, packed
from seatrial.engine.core.step import Engine
from seatrial.engine.io import data
from seatrial.engine.io.data import Batches
from seatrial.engine.io.indexed import Writer
from seatrial.engine.watch.timers import Timers
from seatrial.engine.watch.tracker import tracker
from seatrial.errors import BadInput
from seatrial.plan.configs import Configs
from seatrial.plan.ours import footprints
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

MODEL = Model(layers=2, hidden=16, heads=2, vocab=50, seq=24)
STARTS: Starts = ((0, 5, 6, 17), (0,), (0, 12, 23))


@pytest.mark.parametrize("text", ["fixed:1024", "uniform:256:4096", "uniform:3:3", "lognormal:800:1.2", "exponential:300",
                                  "corpus"])  # fmt: skip
def test_documents_are_said_in_a_word(text: str) -> None:
    assert Batch(gbs=1, documents=text).documents == text


@pytest.mark.parametrize("text, says", [
    ("", "fixed:LENGTH, uniform:LEAST:MOST, lognormal:MEAN:SIGMA, exponential:MEAN, corpus"), ("fixed", "fixed:1024"),
    ("fixed:many", "fixed:1024"), ("fixed:0", "from 1 to"), ("fixed:1.5", "whole"), ("fixed:nan", "from 1 to"),
    ("uniform:8:4", "uniform:4:8"), ("lognormal:800", "lognormal:800:1.2"), ("lognormal:800:0", "goes up to 5"),
    ("exponential:1e12", "from 1 to 1e+09"), ("corpus:3", "corpus"), ("zipf:2", "lognormal:MEAN:SIGMA"),
])  # fmt: skip
def test_a_word_that_is_none_says_what_would_work(text: str, says: str) -> None:
    with pytest.raises(BadInput, match="batch.documents") as caught:
        Batch(gbs=1, documents=text)
    assert says in str(caught.value)


def test_where_documents_begin_depends_on_seed_and_sample_alone() -> None:
    one, other = (Batches(Recipe(), MODEL, 3, documents="uniform:1:9") for _ in range(2))
    together = one.documents(4, 4)
    assert together is not None and len(set(together)) == 4
    assert together == tuple(found for sample in (7, 6, 5, 4) for found in other.documents(sample, 1) or ())[::-1]
    assert together != Batches(Recipe(), MODEL, 4, documents="uniform:1:9").documents(4, 4)
    assert together != Batches(Recipe(), MODEL, 3, split="valid", documents="uniform:1:9").documents(4, 4)
    assert Batches(Recipe(), MODEL, 3).documents(4, 4) is None
    assert Batches(Recipe(), MODEL, 3, documents="fixed:10").documents(0, 2) == ((0, 10, 20), (0, 10, 20))


@pytest.mark.parametrize("text, mean", [("uniform:10:30", 20.0), ("exponential:40", 40.0), ("lognormal:50:0.8", 50.0)])
def test_lengths_have_the_mean_that_was_asked_for(text: str, mean: float) -> None:
    starts = Documents.parse(text).starts(400_000, data.uniforms(1))
    assert 400_000 / len(starts) == pytest.approx(mean, rel=0.03)


def test_documents_of_a_corpus_are_those_of_its_index(tmp_path: Path) -> None:
    lengths = [7, 30, 1, 1, 40, 24, 5]
    with Writer(tmp_path / "c", vocab=50) as out:
        for number, length in enumerate(lengths):
            out.add([number] * length)
    batches = Batches(Recipe(data=str(tmp_path / "c")), MODEL, 3, documents="corpus")
    for sample in range(4):
        tokens = batches.sample(sample)[: MODEL.seq]
        changes = [0, *(i for i in range(1, MODEL.seq) if tokens[i] != tokens[i - 1])]
        assert batches.documents(sample, 1) == (tuple(changes),)
    with pytest.raises(BadInput, match=r"recipe\.data"):
        data.check(Recipe(), MODEL, Batch(gbs=1, documents="corpus"))


def inside(starts: Starts, seq: int) -> Tensor:
    """Which pairs may meet, [samples, 1, queries, keys]."""
    which = torch.zeros(len(starts), seq, dtype=torch.int64)
    for sample, begins in enumerate(starts):
        for start in begins[1:]:
            which[sample, start:] += 1
    causal = torch.ones(seq, seq, dtype=torch.bool).tril()
    return ((which[:, :, None] == which[:, None]) & causal)[:, None]


def with_mask(q: Tensor, k: Tensor, v: Tensor, d_out: Tensor, starts: Starts, slopes: Tensor | None) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    every = torch.arange(q.shape[1], dtype=torch.float32)
    bias = torch.zeros(1) if slopes is None else alibi_bias(slopes, every, every)
    mask = bias.masked_fill(~inside(starts, q.shape[1]), -torch.inf)
    out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in leaves), attn_mask=mask, enable_gqa=True).transpose(1, 2)
    out.backward(d_out)
    return [out.detach(), *(x.grad for x in leaves if x.grad is not None)]


@pytest.mark.parametrize("slopes", [None, torch.tensor([0.5, 0.25, 0.1, 0.02])], ids=["plain", "alibi"])
@pytest.mark.parametrize("ring", [1, 2, 3, 4])
@pytest.mark.parametrize("starts", [STARTS, (STARTS[0],) * 3], ids=["different", "alike"])
def test_pieces_of_documents_are_attention_under_a_mask(starts: Starts, ring: int, slopes: Tensor | None) -> None:
    torch.manual_seed(0)
    shape = (3, 24, 4, 8)
    q, d_out = torch.randn(shape), torch.randn(shape)
    k, v = torch.randn(3, 24, 2, 8), torch.randn(3, 24, 2, 8)
    found = in_pieces(q, k, v, d_out, ring=ring, kernel=OnCpu(), slopes=slopes, documents=starts)
    for one, other in zip(found, with_mask(q, k, v, d_out, starts, slopes)):
        assert torch.allclose(one, other, atol=2e-6)


@pytest.mark.parametrize("queries, keys", [
    ([Stretch(0, 0, 24)], [Stretch(0, 0, 24)]), (ring_stretches(24, 2, 1), [Stretch(0, 0, 24)]),
    (ring_stretches(24, 3, 0), ring_stretches(24, 3, 0)), (ring_stretches(24, 3, 0), ring_stretches(24, 3, 2)),
    (cut(ring_stretches(24, 2, 0), 0, 6), ring_stretches(24, 2, 0)),
])  # fmt: skip
def test_pieces_are_all_the_pairs_that_meet_and_no_other(queries: list[Stretch], keys: list[Stretch]) -> None:
    pairs = inside(STARTS, 24)[:, 0]
    expected = pairs[:, positions_of(queries)][:, :, positions_of(keys)].long()
    seen = torch.zeros_like(expected)
    found = packed(queries, keys, STARTS, 24)
    for p in found:
        square = torch.ones(p.q_len, p.k_len, dtype=torch.int64)
        seen[p.samples, p.q : p.q + p.q_len, p.k : p.k + p.k_len] += square.tril() if p.causal else square
    assert torch.equal(seen, expected)
    assert sum(p.pairs(3) for p in found) == int(expected.sum())


@pytest.mark.parametrize("starts, ends", [
    (((0, 5, 6, 17), (0, 12)), [0, 5, 6, 17, 24, 36, 48]), (((0, 5), (0, 5)), [0, 5, 24, 29, 48])])
def test_squares_of_all_samples_follow_each_other(starts: Starts, ends: list[int]) -> None:
    topology = Topology(mbs=2)
    context = Context(MODEL, topology, Comm(Mesh(topology, device=torch.device("cpu")), Timers()), packs=True)
    found = context.use(starts)
    assert found.squares is not None and found.squares.ends.tolist() == ends
    assert found.squares.longest == max(b - a for a, b in pairwise(ends))
    q = torch.empty(2, 24, 2, 8)
    taken = [found.squares.taken_by(kernel, q) for kernel in (Flash(), Cudnn(), Efficient(), OnCpu())]
    assert taken == [True, True, False, False]
    assert not found.squares.taken_by(Cudnn(), q.expand(2, 24, -1, -1).repeat(1, 4096, 1, 1))
    assert context.use(None).squares is None


def test_between_two_stretches_there_is_one_rectangle_at_most() -> None:
    found = packed([Stretch(0, 12, 6)], [Stretch(0, 0, 6)], ((0, 3), (0, 3, 14), (0, 12)), 24)
    assert found == [Piece(0, 6, 3, 3, False, 0), Piece(0, 2, 3, 3, False, 1)]


def _engine(**layout: object) -> tuple[Engine, Callable[[str], Batches]]:
    trial = Trial(model=MODEL, batch=Batch(gbs=4, documents="uniform:1:12"), topology=Topology(mbs=2, **layout),  # type: ignore[arg-type]
                  execution=Execution(bucket_mib=0.05))
    rules.check(trial)
    recipe = Recipe(steps=2, lr=1e-2, init_std=0.3)
    engine = Engine(trial, recipe, Mesh(trial.topology, device=torch.device("cpu")))
    return engine, lambda documents: Batches(recipe, MODEL, recipe.seed, documents=documents)


def test_tokens_do_not_see_other_documents() -> None:
    """One document as long as the sequence is what there is without any; documents of a token each are something else."""
    (engine, batches), seen = _engine(), []
    for documents in ("fixed:1", "fixed:24"):
        seen.append(engine.evaluate(batches(documents), first_sample=0, samples=4))
    assert seen[0] != pytest.approx(seen[1], rel=1e-3)
    assert seen[1] == pytest.approx(engine.evaluate(Batches(engine.recipe, MODEL, 1234), first_sample=0, samples=4), rel=1e-6)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputed_blocks_have_the_documents_of_their_micro_batch(recompute: str) -> None:
    results = []
    for layout in ({}, {"recompute": recompute}):
        engine, batches = _engine(**layout)
        results.append(engine.step(1, first_sample=0, batches=batches("uniform:1:12")))
        assert engine.take_pairs() > 0 and engine.take_pairs() == 0
    assert results[0].grad_norm == pytest.approx(results[1].grad_norm, rel=1e-6)


@pytest.mark.parametrize("family", ["gpt2", "bloom", "llama"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_memory_is_counted_as_a_ring_of_one_has_it(family: str, recompute: str) -> None:
    model = Model(layers=4, hidden=64, heads=4, vocab=256, seq=128, family=family, kv_heads=2 if family == "llama" else None)  # type: ignore[arg-type]
    trial = Trial(model=model, batch=Batch(gbs=2, documents="uniform:4:40"), execution=Execution(logits_chunk=64),
                  topology=Topology(mbs=2, recompute=recompute))  # type: ignore[arg-type]
    engine = Engine(trial, Recipe(steps=2), Mesh(trial.topology, device=torch.device("cpu")))
    with tracker(engine) as live:
        engine.step(1, first_sample=0, batches=Batches(Recipe(), model, 1, documents=trial.batch.documents))
    counted = footprint(trial, rank=0, gpu=False).total
    assert counted == pytest.approx(live.peak_bytes, rel=0.02)
    assert counted == pytest.approx(float(footprints(Configs.from_trials([trial]), gpu=False).total[0, 0]), rel=1e-6)
