"""Measurement: what counts and what does not, and whole iterations from a few micro-batches."""
from __future__ import annotations

import random
from dataclasses import replace

import pytest

from seatrial.errors import BadInput
from seatrial.launch.trial import record_of
from seatrial.measurement import by_size, estimate, measure, rise, sizes
from seatrial.recipe import Recipe
from seatrial.record import Outcome, Record
from seatrial.schedule.vector import makespan
from seatrial.spec import Batch, Model, Topology, Trial, stages_of
from seatrial.sweep.file import Measure, build, run_config


def task(gbs=64, **topology):
    return build({"model": "tiny", "batch": {"gbs": gbs}, "topology": topology}).tasks[0]


def timed(timings, gbs=64):
    return [{"event": "iteration", "step": i, "sec": s, "gbs": gbs} for i, s in enumerate(timings, 1)]


def judged(events, one, measure, status="ok") -> Record:
    """The record of a task whose run wrote these events."""
    wanted = run_config(one, measure)
    return record_of(one.trial, wanted.recipe, Outcome(status=status), events, ran=wanted.trial)


def test_warm_up_is_left_out_and_outliers_are_kept_and_marked():
    one, measure = task(), Measure(warmup=2)
    record = judged(timed([9, 5, 1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 4.0]), one, measure)
    assert record.sec_per_it == 1.0
    assert [i["sec"] for i in record.iterations if i.get("warmup")] == [9, 5]
    assert [i["sec"] for i in record.iterations if i.get("outlier")] == [4.0]
    assert record.measurement["counted"] == 7 and record.measurement["outliers"] == 1
    assert record.samples_per_s == 64 and record.formula == "sc21"


def test_a_median_that_is_not_known_says_so():
    one, measure = task(), Measure()
    record = judged(timed([1.0, 1.2, 0.9, 1.5]), one, measure)
    assert record.measurement["ended"] == "time or iterations spent" and "low_s" not in record.measurement


def test_what_was_measured_before_a_failure_is_kept():
    one, measure = task(), Measure()
    record = judged(timed([1.0] * 4), one, measure, status="hang")
    assert (record.state, record.sec_per_it, len(record.iterations)) == ("failed", 1.0, 4)


def test_compile_time_stands_apart():
    one = build({"model": "tiny", "batch": {"gbs": 8}, "training": {"compile": True}}).tasks[0]
    record = judged(timed([31.0, *[1.0] * 8], gbs=8), one, Measure())
    assert record.measurement["compile_s"] == pytest.approx(30.0) and record.sec_per_it == 1.0


def test_a_batch_that_did_not_grow_to_its_size_has_no_time():
    batch = {"gbs": 64, "rampup_start": 16, "rampup_increment": 16, "rampup_samples": 1000}
    one, measure = build({"model": "tiny", "batch": batch}).tasks[0], Measure()
    record = judged(timed([1.0] * 6, gbs=16), one, measure)
    assert (record.sec_per_it, record.tflops, record.state, len(record.iterations)) == (None, None, "failed", 6)
    assert judged(timed([1.0] * 4, gbs=16) + timed([4.0] * 6, gbs=64), one, measure).sec_per_it == 4.0


def test_batch_sizes_are_never_mixed():
    rows = [{"step": i, "sec": 1.0, "gbs": 4} for i in range(5)] + [{"step": i, "sec": 2.0, "gbs": 8} for i in range(5)]
    groups, marked = by_size(rows, warmup=1)
    assert groups == {4: [1.0] * 4, 8: [2.0] * 4}
    assert [i.get("warmup", False) for i in marked] == [True, *[False] * 4] * 2


CASES = [dict(pp=1), dict(pp=4), dict(pp=3), dict(pp=4, schedule="gpipe"), dict(pp=4, schedule="zb-h1"),
         dict(pp=2, vp=2, schedule="interleaved"), dict(dp=2, pp=2, recompute="full"), dict(pp=8)]


def truth(trial, microbatches, *, fixed=0.7, layer=0.011, backward=2.3, head=0.008):
    """An iteration as the schedule walks it, with a head that makes the last stage longer than its layers say."""
    stages = [layer * n for n in stages_of(trial.model, trial.topology)]
    stages[-1] += head
    t = trial.topology
    return fixed + makespan(t.schedule, pp=t.pp, microbatches=microbatches, virtual=t.vp, forward_s=stages,
                            backward_s=[backward * s for s in stages])


@pytest.mark.parametrize("topology", CASES, ids=str)
def test_an_iteration_is_told_from_two_short_ones_where_the_pipeline_is_full(topology):
    one = task(gbs=512 * topology.get("dp", 1), **topology)
    few, more = sizes(one.trial, 8)
    found = estimate(one.trial, {m: [truth(one.trial, m)] * 8 for m in (few, more)})
    whole = truth(one.trial, one.trial.microbatches)
    assert found.sec_per_it == pytest.approx(whole, rel=0.01)
    assert found.low_s - 1e-9 <= found.sec_per_it <= found.high_s + 1e-9
    # Scaling the short one instead, as is done by hand, counts bubble and optimizer once too often each time.
    by_hand = truth(one.trial, few) * one.trial.microbatches / few
    assert abs(by_hand / whole - 1) > 5 * abs(found.sec_per_it / whole - 1)


def test_the_interval_of_an_estimate_holds_the_truth_as_often_as_it_should():
    one, held, rng = task(gbs=256, pp=4), 0, random.Random(3)
    whole = truth(one.trial, 256)
    for _ in range(300):
        noisy = {m: [truth(one.trial, m) * rng.lognormvariate(0, 0.01) for _ in range(12)] for m in (8, 16)}
        found = estimate(one.trial, noisy)
        held += found.low_s <= whole <= found.high_s
    assert held >= 0.93 * 300


def test_a_partial_iteration_runs_two_sizes_in_one_go_and_is_marked():
    one, measure = task(gbs=256, dp=2), Measure(microbatches=4)
    wanted = run_config(one, measure)
    assert wanted.trial.batch == Batch(gbs=16, rampup_start=8, rampup_increment=8, rampup_samples=8 * 9)
    batches, consumed = [], 0
    for _ in range(20):
        batches.append(wanted.trial.batch.size_at(consumed))
        consumed += batches[-1]
    assert batches == [8] * 9 + [16] * 11
    record = judged([{"event": "iteration", "step": i, "sec": 0.3 + 0.1 * s / 2, "gbs": s} for i, s in enumerate(batches)],
                    one, measure)
    assert record.state == "estimated" and record.gbs == 256 and "sec_per_it" in record.estimated
    assert record.sec_per_it == pytest.approx(0.3 + 0.1 * 128)
    assert record.measurement["from_microbatches"] == [4, 8] and record.run_id == one.key


def test_a_partial_run_that_died_early_has_no_estimate_but_its_iterations():
    one, measure = task(gbs=256, dp=2), Measure(microbatches=4)
    record = judged(timed([0.3] * 4, gbs=8), one, measure, status="timeout")
    assert (record.sec_per_it, record.tflops, record.state, len(record.iterations)) == (None, None, "failed", 4)


RAMP = {"gbs": 64, "rampup_start": 8, "rampup_increment": 8, "rampup_samples": 999}


@pytest.mark.parametrize("more", [{"command": {"argv": ["x"]}}, {"batch": RAMP}], ids=["command", "ramp-up"])
def test_what_cannot_be_run_in_part_says_so(more):
    one = build({"model": "tiny", "batch": {"gbs": 64}, **more}).tasks[0]
    with pytest.raises(BadInput, match="measure.microbatches"):
        run_config(one, Measure(microbatches=4))


def test_a_short_iteration_is_run_whole():
    one = task(gbs=16)
    assert run_config(one, Measure(microbatches=8)).trial == one.trial
    assert run_config(one, Measure(microbatches=4)).trial.batch == Batch(gbs=8, rampup_start=4, rampup_increment=4,
                                                                    rampup_samples=4 * 9)
    assert sizes(replace(one.trial, topology=Topology(pp=8)), 4) is None


def test_what_ranks_attend_of_documents_is_kept_over_their_mean():
    pairs = [{"min": 50, "mean": 100.0, "max": 150}, {"min": 80, "mean": 100.0, "max": 130}]
    events = [{"event": "iteration", "step": i, "sec": 1.0, "gbs": 4, "loss": 2.0, "attended_pairs": pairs[i % 2]}
              for i in range(5)]
    trial = Trial(model=Model(layers=1, hidden=8, heads=1, vocab=20, seq=4), batch=Batch(gbs=4, documents="fixed:2"))
    about = measure(events, trial, Recipe()).about
    assert (about["attended_min"], about["attended_max"]) == (0.65, 1.4)
    for event in events:
        del event["attended_pairs"]
    assert "attended_max" not in measure(events, trial, Recipe()).about


@pytest.mark.parametrize(("losses", "words"), [
    ((12.6, 13.0, 25.0, 20.0), "the loss rose from 12.6 to 25 at iteration 3: "),
    ((5.5, 5.9, 5.3), ""), ((5.5, "nan"), ""), ((), ""),
])  # fmt: skip
def test_a_loss_that_rises_over_its_start_is_a_note_of_the_record(losses, words):
    events = [{"event": "iteration", "step": i + 1, "sec": 1.0, "loss": loss, "gbs": 8} for i, loss in enumerate(losses)]
    trial = Trial(model=Model(layers=2, hidden=32, heads=4, vocab=101, seq=16), batch=Batch(gbs=8))
    found = record_of(trial, Recipe(), Outcome(status="ok"), events, notes="mine").notes
    assert found.startswith(f"mine; {words}") if words else found == "mine"


def test_a_resumed_run_has_no_start_to_rise_over():
    assert rise([{"step": 5, "loss": 1.0}, {"step": 6, "loss": 9.0}]) == ""
