"""What is rejected in bulk is what `rules.py` rejects one by one, for the same reason."""
from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial import presets, rules
from seatrial.plan.configs import CONTEXTS, RECOMPUTE, SCHEDULES
from seatrial.plan.space import Space, chunks
from seatrial.plan.verdicts import CODES, verdicts
from seatrial.spec import Batch, Model, Topology, Trial, divisors

models = st.builds(
    lambda layers, heads, size, kv, seq, pad, family: Model(
        layers=layers, heads=heads, hidden=heads * size, seq=seq, vocab=1000, family=family,
        kv_heads=heads // kv if heads % kv == 0 else None, pad_vocab_to=pad),
    st.integers(1, 30), st.sampled_from([1, 2, 3, 4, 6, 12, 16]), st.sampled_from([8, 10, 64]), st.sampled_from([1, 2, 3]),
    st.sampled_from([64, 100, 127]), st.sampled_from([None, 1024, 1030]), st.sampled_from(["gpt2", "bloom", "llama"]),
)  # fmt: skip


@st.composite
def batches(draw):
    gbs = draw(st.integers(1, 64))
    if draw(st.booleans()):
        return Batch(gbs=gbs)
    increment = draw(st.integers(1, gbs))
    start = gbs - increment * draw(st.integers(0, (gbs - 1) // increment))
    return Batch(gbs=gbs, rampup_start=start, rampup_increment=increment, rampup_samples=100)


def first_error(trial: Trial) -> str:
    return next((v.code for v in rules.violations(trial) if v.level == "error"), "")


@settings(max_examples=120, deadline=None)
@given(models, batches(), st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 4, 8]),
       st.sampled_from(["megatron", "seatrial", "deepspeed", "plain-3d"]), st.sampled_from(["bf16", "fp8"]),
       st.randoms(use_true_random=False))
def test_a_layout_is_rejected_in_bulk_as_it_is_alone(model, batch, nodes, procs, engine, precision, random):
    cluster = presets.cluster("jz-a100", nodes=nodes, procs_per_node=procs)
    space = Space(models=(model,), cluster=cluster, gbs=(batch.gbs,), sequence_parallel=(False, True), engine=engine,
                  cp=(1, 2, 4, 6) if random.random() < 0.5 else None)
    for columns in chunks(space):
        count = len(columns["dp"])
        columns["cp_kind"] = np.array([random.randrange(len(CONTEXTS)) for _ in range(count)], dtype=np.int64)
        # Groups that do not divide what they must are no topology at all.
        shards = columns["dp"] * columns["cp"]
        columns["zero_group"] = np.array([random.choice([0, *divisors(int(n))]) for n in shards], dtype=np.int64)
        codes = verdicts(columns, space, batch, precision)
        rows = random.sample(range(len(codes)), min(30, len(codes)))
        for i in rows:
            row = {name: int(column[i]) for name, column in columns.items()}
            topology = Topology(
                dp=row["dp"], tp=row["tp"], pp=row["pp"], cp=row["cp"], cp_kind=CONTEXTS[row["cp_kind"]], vp=row["vp"],
                zero_group=row["zero_group"] or None, mbs=row["mbs"], zero=row["zero"],
                recompute=RECOMPUTE[row["recompute"]], schedule=SCHEDULES[row["schedule"]], precision=precision,
                sequence_parallel=bool(row["sequence_parallel"]))
            trial = Trial(model=model, topology=topology, batch=batch, cluster=cluster, engine=engine)
            assert (CODES[codes[i] - 1] if codes[i] else "") == first_error(trial), topology


@settings(max_examples=60, deadline=None)
@given(models, st.integers(1, 96), st.sampled_from([1, 2, 3, 6]), st.sampled_from([1, 4, 8]), st.sampled_from([50, 1 << 16]))
def test_no_layout_comes_twice_and_each_fills_the_world(model, gbs, nodes, procs, rows):
    cluster = presets.cluster("jz-a100", nodes=nodes, procs_per_node=procs)
    seen: Counter[tuple[int, ...]] = Counter()
    space = Space(models=(model,), cluster=cluster, gbs=(gbs,), sequence_parallel=(False, True), engine="seatrial")
    for c in chunks(space, rows):
        assert (c["dp"] * c["tp"] * c["pp"] == cluster.world).all()
        seen.update(zip(*(column.tolist() for column in c.values())))
    assert seen and max(seen.values()) == 1


def test_chunks_change_nothing_but_the_memory_taken():
    space = Space(models=(presets.model("tiny"),), cluster=presets.cluster("jz-a100", nodes=2), gbs=(32,))

    def everything(rows: int) -> set[tuple[int, ...]]:
        return {row for c in chunks(space, rows) for row in zip(*(column.tolist() for column in c.values()))}

    assert everything(100) == everything(1 << 16)
    assert max(len(c["dp"]) for c in chunks(space, 100)) <= 100


def test_what_is_given_is_fixed():
    space = Space(models=(presets.model("tiny"),), cluster=presets.cluster("jz-a100", nodes=1), gbs=(32,), dp=(2,), zero=(1, 3),
                  schedule=("1f1b",), vp=(1,), recompute=("full",), mbs=(4,))  # fmt: skip
    (c,) = chunks(space)
    assert set(c["dp"]) == {2} and set(c["zero"]) == {1, 3} and set(c["mbs"]) == {4} and set(c["vp"]) == {1}
    assert np.array_equal(np.unique(c["tp"] * c["pp"]), [4])
