"""Learning from rows: stays with the priors when told little, follows the rows when they insist, names what it doubts."""
from __future__ import annotations

import csv
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seatrial import presets
from seatrial.errors import BadInput
from seatrial.plan import calibrate, forecast, memory, rows, step
from seatrial.spec import Cluster

CLUSTER = presets.cluster("dgx-a100")


def cells(**changes: object) -> dict[str, str]:
    base = {"layers": 48, "hidden": 8192, "heads": 64, "vocab": 51200, "dp": 4, "tp": 8, "pp": 4, "mbs": 2, "gbs": 512,
            "zero_stage": 1, "activation_ckpt": "true", "nodes": 16}
    return {name: str(value) for name, value in {**base, **changes}.items()}


def row(**changes: object) -> rows.Row:
    return rows.read_row(cells(**changes), CLUSTER)


def measured(truth: step.Coefficients, count: int = 24, noise: float = 0.0, session: str = "a", **changes: object,
             ) -> list[rows.Row]:
    """Rows as a machine with those coefficients would give them."""
    rng = np.random.default_rng(3)
    found = []
    for i in range(count):
        tp = int(rng.choice([1, 2, 4, 8]))
        pp = int(rng.choice([1, 2, 4, 8]))
        dp = int(rng.choice([1, 2, 4, 8]))
        mbs = int(rng.choice([1, 2, 4]))
        nodes = max(1, dp * tp * pp // 8)
        one = row(tp=tp, pp=pp, dp=dp, mbs=mbs, nodes=nodes, procs_per_node=min(8, dp * tp * pp), session=session,
                  **changes)
        sec = step.time(rows.configs_of([one]), CLUSTER, truth).sec[0] * np.exp(noise * rng.normal())
        found.append(replace(one, sec_per_it=float(sec), counts=True, where=f"row {i}"))
    return found


def test_nothing_learned_is_the_cold_model():
    learned = calibrate.learn([], CLUSTER)
    trial = [row()]
    assert learned.forecast(trial).sec[0] == pytest.approx(step.time(rows.configs_of(trial), CLUSTER).sec[0])
    assert learned.rows == 0


def test_a_machine_half_as_fast_is_learned_from_a_few_rows():
    slow = measured(step.Coefficients(whole=2.0), 6)
    fit = calibrate.learn(slow, CLUSTER)
    other = row(pp=2, dp=8, mbs=1, session="a")
    truth = step.time(rows.configs_of([other]), CLUSTER, step.Coefficients(whole=2.0)).sec[0]
    assert fit.forecast([other]).sec[0] == pytest.approx(truth, rel=0.05)


def test_a_slow_link_is_told_from_a_slow_device():
    fit = calibrate.learn(measured(step.Coefficients(tensor=2.0)), CLUSTER)
    factors = fit.coefficients("a")
    assert factors.tensor > 1.6
    assert 0.85 < float(factors.compute) < 1.15


def test_what_costs_almost_nothing_is_learned_as_such_and_no_forecast_falls_below_the_rest():
    truth = step.Coefficients(gradients=0.01)
    factors = calibrate.learn(measured(truth, gbs=64), CLUSTER).coefficients("a")
    assert 0 < factors.gradients < 0.8, "what is small beside the rest is learned slowly"
    others = [row(pp=2, dp=8, mbs=mbs, session="a") for mbs in (1, 2, 4)]
    timed = step.time(rows.configs_of(others), CLUSTER, factors)
    assert all((values >= 0).all() for values in timed.parts.values())


def test_intervals_shrink_with_rows_and_hold_what_they_claim():
    truth = step.Coefficients(compute=1.1, tensor=1.3, gradients=0.7)
    everything = measured(truth, 60, noise=0.015)
    few, many = calibrate.learn(everything[:4], CLUSTER), calibrate.learn(everything[:30], CLUSTER)
    rest = everything[30:]
    wide, narrow = few.forecast(rest), many.forecast(rest)
    assert np.median(narrow.sec_hi / narrow.sec_lo) < np.median(wide.sec_hi / wide.sec_lo)
    sec = np.array([r.sec_per_it for r in rest])
    assert np.mean((narrow.sec_lo <= sec) & (sec <= narrow.sec_hi)) >= 0.8


def test_an_outlier_is_named_and_moves_nothing():
    good = measured(step.Coefficients(compute=1.05), 20, noise=0.004)
    bad = replace(good[7], sec_per_it=1.4 * float(good[7].sec_per_it or 0))
    fit, clean = (calibrate.learn([*good[:7], one, *good[8:]], CLUSTER) for one in (bad, good[7]))
    assert [d.where for d in fit.doubted] == ["row 7"]
    assert fit.forecast(good[:7]).sec == pytest.approx(clean.forecast(good[:7]).sec, rel=0.01)


def test_a_session_has_its_own_term_and_shrinks():
    before, after = measured(step.Coefficients(), 12, session="a"), measured(step.Coefficients(whole=0.95), 12, session="b")
    fit = calibrate.learn([*before, *after], CLUSTER)
    a, b = (fit.forecast([replace(before[0], session=s)]).sec[0] for s in ("a", "b"))
    assert b / a == pytest.approx(0.95, abs=0.02)
    new = fit.forecast([replace(before[0], session="c")])
    assert new.sec_hi[0] / new.sec_lo[0] > (fit.forecast([before[0]]).sec_hi[0] / fit.forecast([before[0]]).sec_lo[0])


def test_a_new_session_takes_what_all_sessions_agree_on_and_not_the_last_one():
    def three(*speeds: float) -> calibrate.Calibration:
        return calibrate.learn([r for s, speed in zip("abc", speeds)
                                for r in measured(step.Coefficients(whole=speed), 8, session=s)], CLUSTER)  # fmt: skip

    asked = [row(pp=2, dp=8, mbs=1, session="d")]
    cold = calibrate.cold(CLUSTER).forecast(asked).sec[0]
    agree, differ = three(1.3, 1.3, 1.3).forecast(asked), three(1.04, 0.96, 1.06).forecast(asked)
    assert agree.sec[0] / cold == pytest.approx(1.3, abs=0.05)
    assert differ.sec[0] / cold == pytest.approx(1.0, abs=0.01), "not as fast as the last, nor as the mean of three by chance"
    assert differ.sec_lo[0] < 0.96 * cold and differ.sec_hi[0] > 1.06 * cold
    fit = three(1.3, 1.3, 1.3)
    planned = step.time(rows.configs_of(asked), CLUSTER, fit.coefficients())
    assert planned.sec[0] == pytest.approx(agree.sec[0], rel=0.01), "a plan is forecast as a table is"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_rows_that_lie_a_little_off_leave_another_session_as_it_was(count: int):
    fit = calibrate.learn(measured(step.Coefficients(whole=1.05), count), CLUSTER)
    asked = [row(pp=2, dp=8, mbs=1, session="b")]
    cold, found = calibrate.cold(CLUSTER).forecast(asked), fit.forecast(asked)
    assert found.sec[0] == pytest.approx(cold.sec[0], rel=0.005)
    assert found.sec_lo[0] < cold.sec[0] < found.sec_hi[0]


def test_engines_share_the_cluster_and_have_their_own_effect():
    def of(engine: str, whole: float) -> list[rows.Row]:
        return [replace(r, trial=replace(r.trial, engine=engine)) for r in measured(step.Coefficients(whole=whole), 12)
                if r.trial is not None]

    fit = calibrate.learn([*of("megatron", 1.5), *of("command", 1.2)], CLUSTER)
    asked = of("megatron", 1.0)[:4]
    cold = calibrate.cold(CLUSTER).forecast(asked).sec
    for engine, whole in (("megatron", 1.5), ("command", 1.2)):
        mine = [replace(r, trial=replace(r.trial, engine=engine)) for r in asked if r.trial is not None]
        assert fit.forecast(mine).sec / cold == pytest.approx(whole, rel=0.03)
    strange = [replace(r, trial=replace(r.trial, engine="seatrial")) for r in asked if r.trial is not None]
    other, known = fit.forecast(strange), fit.forecast(asked)
    assert (other.sec / calibrate.cold(CLUSTER).forecast(strange).sec > 1.15).all()
    assert (other.sec_hi / other.sec_lo > 1.1 * known.sec_hi / known.sec_lo).all()


def test_rows_of_one_set_of_nodes_share_what_is_special_about_it():
    good, slow = measured(step.Coefficients(), 10), measured(step.Coefficients(whole=1.05), 10)
    fit = calibrate.learn([*(replace(r, node_set="a") for r in good), *(replace(r, node_set="b") for r in slow)], CLUSTER)
    a, b = (fit.forecast([replace(good[0], node_set=name)]).sec[0] for name in "ab")
    assert 1.01 < b / a < 1.06


@pytest.mark.parametrize("count", [80, 1000])
def test_learning_is_quick(count: int):
    seen = measured(step.Coefficients(compute=1.1), count, noise=0.02)
    begin = time.process_time()
    calibrate.learn(seen, CLUSTER)
    assert time.process_time() - begin < {80: 1.0, 1000: 5.0}[count]


# Memory


def test_a_row_that_ran_out_of_memory_raises_the_need_where_it_was_thought_to_fit():
    asked = [row(mbs=2)]
    cold = calibrate.cold(CLUSTER).forecast(asked)
    near = row(mbs=2, zero_stage=0, tp=4, dp=8)
    need = calibrate.cold(CLUSTER).forecast([near]).need[0]
    crashed = [replace(near, status="oom", trial=replace(near.trial, cluster=with_memory(1.15 * need)))]
    ran = [replace(r, status="ok", counts=True, sec_per_it=1.0, trial=replace(r.trial, cluster=with_memory(0.85 * need)))
           for r in crashed if r.trial is not None]
    more, less = (calibrate.learn(one * 4, CLUSTER).forecast(asked) for one in (crashed, ran))
    assert more.need[0] > 1.03 * cold.need[0] and less.need[0] < 0.97 * cold.need[0]
    far = [replace(r, trial=replace(r.trial, cluster=with_memory(0.3 * need))) for r in crashed if r.trial is not None]
    assert calibrate.learn(far * 4, CLUSTER).forecast(asked).need[0] == pytest.approx(cold.need[0], rel=0.005), \
        "what was known not to fit teaches nothing"


def with_memory(limit_gib: float) -> Cluster:
    return presets.cluster("dgx-a100", {"device": {"usable_gib": limit_gib}})


def test_figures_teach_the_parts_of_memory_and_narrow_it():
    seen = measured(step.Coefficients(), 16)
    gib = memory.peak(rows.configs_of(seen), CLUSTER)
    moving = gib.parts["activations"] + gib.parts["working"] + gib.parts["logits"]
    fit = calibrate.learn([replace(r, mem_gib=float(m)) for r, m in zip(seen, gib.gib + 0.2 * moving)], CLUSTER)
    assert fit.held.theta[0] == pytest.approx(0.2, abs=0.08)
    found, cold = fit.forecast(seen), calibrate.cold(CLUSTER).forecast(seen)
    assert (found.mem_sigma < cold.mem_sigma).mean() > 0.8
    assert np.log(found.mem_hi / found.mem) == pytest.approx(step.Z90 * found.mem_sigma)


def test_a_crash_is_kept_in_the_file_for_whoever_learns_more(tmp_path: Path):
    crashed = [replace(r, status="oom_device", counts=False, sec_per_it=None) for r in measured(step.Coefficients(), 2)]
    fit = calibrate.learn([*measured(step.Coefficients(), 4), *crashed], CLUSTER)
    fit.save(tmp_path / "calibration.json")
    again = calibrate.Calibration.load(tmp_path / "calibration.json")
    assert [r.status for r in again.used] == [""] * 4 + ["oom_device"] * 2
    assert (calibrate.learn(again.used, CLUSTER).held.theta == fit.held.theta).all()


def test_an_environment_has_its_own_factor():
    plain, tuned = measured(step.Coefficients(), 10), measured(step.Coefficients(whole=0.6), 10)
    tuned = [replace(r, factors=("allocator",)) for r in tuned]
    fit = calibrate.learn([*plain, *tuned], CLUSTER)
    with_it, without = (fit.forecast([replace(plain[0], factors=f)]).sec[0] for f in (("allocator",), ()))
    assert with_it / without == pytest.approx(0.6, rel=0.05)


def test_estimates_and_copies_teach_nothing():
    odd = [replace(r, counts=False, sec_per_it=1e9) for r in measured(step.Coefficients(), 5)]
    assert calibrate.learn(odd, CLUSTER).rows == 0


def test_rows_of_one_shape_share_what_is_special_about_it():
    base = measured(step.Coefficients(), 24)
    odd = [replace(r, sec_per_it=1.06 * float(r.sec_per_it or 0)) if r.trial and r.trial.topology.mbs == 2 else r for r in base]
    fit = calibrate.learn(odd, CLUSTER)
    two = [r for r in base if r.trial and r.trial.topology.mbs == 2]
    ratio = fit.forecast(two).sec / np.array([r.sec_per_it for r in two])
    assert np.mean(ratio) > 1.03


# Tables


@pytest.mark.parametrize(("given", "nodes", "procs"), [
    ({"dp": "12"}, 2, 6), ({"dp": "16"}, 2, 8), ({"dp": "3"}, 1, 3), ({"dp": "8", "nodes": "2"}, 2, 4), ({"nodes": "2"}, 2, 8),
    ({"dp": "4", "procs_per_node": "2"}, 2, 2),
])  # fmt: skip
def test_nodes_and_processes_follow_from_what_is_given(given: dict[str, str], nodes: int, procs: int):
    trial = rows.read_row({"layers": "24", "hidden": "2048", "gbs": "48", **given}, CLUSTER).trial
    assert trial is not None and trial.cluster is not None
    assert (trial.cluster.nodes, trial.cluster.procs_per_node) == (nodes, procs)


def test_other_names_of_precisions_and_engines_are_known():
    trial = rows.read_row(cells(dtype="BFloat16", engine="Megatron-DeepSpeed"), CLUSTER).trial
    assert trial is not None
    assert (trial.topology.precision, trial.engine) == ("bf16", "megatron-deepspeed")
    for said, name in (("Megatron-LM 0.12.1", "megatron-lm"), ("torchtitan", "torchtitan"), ("DeepSpeed v0.16.4", "deepspeed"),
                       ("nemo", "nemo"), ("FSDP2", "fsdp2"), ("Megatron core", "megatron-core")):
        found = rows.read_row(cells(engine=said), CLUSTER).trial
        assert found is not None and found.engine == name
    assert rows.read_row(cells(engine="horse"), CLUSTER).reject.startswith("bad-value: engine is 'horse'")


def test_an_empty_cell_takes_the_stated_default():
    trial = rows.read_row({"layers": "24", "hidden": "2048", "dtype": "unstated", "tp": "2"}, CLUSTER).trial
    assert trial is not None
    assert (trial.model.heads, trial.model.seq, trial.model.vocab, trial.topology.precision) == (16, 2048, 50257, "bf16")
    assert (trial.topology.world, trial.engine, trial.topology.recompute, trial.batch.gbs) == (2, "megatron", "none", 1)


def test_every_column_of_the_interface_is_read():
    trial = rows.read_row(
        cells(kv_heads=8, ffn=22016, seq=4096, vp=3, gbs=768, recompute="selective", activation_ckpt="", dtype="fp16",
              zero_stage=2, procs_per_node=8, engine="seatrial", sequence_parallel="yes", freq_ghz="1.2"), CLUSTER).trial
    assert trial is not None
    m, t = trial.model, trial.topology
    assert (m.kv, m.ffn, m.seq, m.family) == (8, 22016, 4096, "llama")
    assert (t.vp, t.schedule, t.recompute, t.precision) == (3, "interleaved", "selective", "fp16")
    assert (t.zero, t.sequence_parallel) == (2, True)
    assert (trial.engine, trial.environment.clock_ghz) == ("seatrial", 1.2)


@pytest.mark.parametrize(("changes", "code"), [
    ({"pp": 7, "dp": 1, "nodes": 7}, "layers-divisible"), ({"dp": 3, "procs_per_node": 8}, "world-size"),
    ({"gbs": 511}, "batch-divisible"), ({"hidden": "wide"}, "bad-value"), ({"layers": ""}, "bad-value"),
    ({"recompute": "some"}, "bad-value"), ({"mbs": "1.5"}, "bad-value"), ({"heads": 63}, "bad-value"),
    ({"nodes": -1}, "bad-value"), ({"gbs": "1e400"}, "bad-value"), ({"vp": 2, "schedule": "1f1b"}, "bad-value"),
])  # fmt: skip
def test_a_row_that_cannot_be_is_rejected_with_its_reason(changes: dict[str, object], code: str):
    found = row(**changes)
    assert found.trial is None
    assert found.reject.startswith(code + ": ")


def test_a_rejected_row_keeps_its_place(tmp_path: Path):
    lines = [cells(), cells(pp=7), cells(dp=2, nodes=8)]
    source, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    with source.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    table = rows.read(source, CLUSTER)
    forecast.write(out, table, forecast.columns(table, calibrate.cold(CLUSTER)))
    found = list(csv.DictReader(out.open()))
    assert [r["pp"] for r in found] == ["4", "7", "4"]
    assert [bool(r["forecast_sec"]) for r in found] == [True, False, True]
    assert [bool(r["forecast_reject"]) for r in found] == [False, True, False]
    for r in (found[0], found[2]):
        assert float(r["forecast_sec_lo"]) < float(r["forecast_sec"]) < float(r["forecast_sec_hi"])
        assert float(r["forecast_mem_lo"]) < float(r["forecast_mem_gib"]) < float(r["forecast_mem_hi"])
        assert r["forecast_fits"] in ("yes", "tight", "no")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "layers\n3\n"])
def test_a_table_without_a_model_is_one_line(text: str, tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match="no column|empty|no table of runs"):
        rows.read(path, CLUSTER)


def test_learning_from_a_table_without_seconds_is_one_line(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text("layers,hidden\n24,2048\n")
    with pytest.raises(BadInput, match="no row to learn from"):
        calibrate.from_file(path, CLUSTER)


def test_a_logbook_teaches_as_a_table_does(tmp_path: Path):
    from seatrial.logbook import Logbook

    seen = measured(step.Coefficients(whole=1.5), 8)
    with Logbook(tmp_path / "book", create=True) as book:
        for r in seen:
            t = r.trial.topology if r.trial else None
            assert t is not None
            book.append({"state": "measured", "layers": 48, "hidden": 8192, "heads": 64, "vocab": 51200, "gbs": 512, "dp": t.dp,
                         "tp": t.tp, "pp": t.pp, "mbs": t.mbs, "zero_stage": 1, "recompute": "full", "session": "a",
                         "sec_per_it": r.sec_per_it, "env": {"A": "1"}})
    learned = calibrate.from_file(tmp_path / "book", CLUSTER)
    assert learned.rows == 8
    assert learned.factors == ("A=1",)


def test_a_record_is_read_as_the_very_trial_that_it_ran(tmp_path: Path):
    from seatrial.columns import flat
    from seatrial.logbook import Logbook
    from seatrial.record import Record
    from seatrial.tables.csvjson import to_csv

    base = row().trial
    assert base is not None
    trial = replace(base, engine="seatrial", model=replace(base.model, pad_vocab_to=65536),
                    execution=replace(base.execution, compile=True, bucket_mib=8.0),
                    topology=replace(base.topology, stage_layers=(11, 12, 13, 12)))  # fmt: skip
    asked = {name: value for name, value in flat(trial).items() if value is not None}
    record = Record.from_dict({**asked, "state": "measured", "sec_per_it": 3.0, "trial": trial.to_dict()})
    with Logbook(tmp_path / "book", create=True) as book:
        book.append(record.to_dict())
    (tmp_path / "rows.csv").write_text(to_csv([record]))
    for path in (tmp_path / "book", tmp_path / "rows.csv"):
        (found,) = rows.read(path, CLUSTER).rows
        assert found.trial == trial and found.counts, found.reject


@pytest.mark.parametrize(("column", "value", "read"), [
    ("tied", "no", False), ("head_dim", "64", 64), ("norm", "rmsnorm", "rmsnorm"), ("positions", "rope", "rope"),
    ("mlp", "SwiGLU", "swiglu"), ("biases", "none", "none"), ("qk_norm", "yes", True), ("kv_heads", "8", 8),
    ("embedding_norm", "true", True),
])  # fmt: skip
def test_choices_of_a_model_are_columns_and_change_its_forecast_or_identity(column: str, value: str, read: object):
    trial, plain = row(**{column: value}).trial, row().trial
    assert trial is not None and plain is not None
    assert getattr(trial.model, column) == read
    assert trial.run_id() != plain.run_id()


# As a file


def test_a_calibration_is_the_same_from_its_file(tmp_path: Path):
    seen = [replace(r, mem_gib=40.0 + i, factors=("allocator",) * (i % 2)) for i, r in
            enumerate(measured(step.Coefficients(whole=1.3, tensor=0.8), 12, noise=0.01, session="b"))]
    fit = calibrate.learn([*seen, *measured(step.Coefficients(), 6, session="a")], CLUSTER)
    fit.save(tmp_path / "calibration.json")
    for again in (calibrate.Calibration.load(tmp_path / "calibration.json"),
                  calibrate.from_file(tmp_path / "calibration.json", CLUSTER.with_nodes(3))):
        assert again.describe() == fit.describe()
        assert replace(again.coefficients(), covariance=None) == replace(fit.coefficients(), covariance=None)
        assert (again.covariance == fit.covariance).all() and (again.held.theta == fit.held.theta).all()
        assert [(r.trial.run_id(), r.sec_per_it, r.factors) for r in again.used if r.trial] == \
               [(r.trial.run_id(), r.sec_per_it, r.factors) for r in fit.used if r.trial]
        assert (again.forecast(seen).sec_hi == fit.forecast(seen).sec_hi).all()
        assert (calibrate.learn(again.used, CLUSTER).theta == fit.theta).all()


@pytest.mark.parametrize(("change", "words"), [
    ({"kind": "else"}, "not a calibration"), ({"schema": 1}, "schema 1 of seatrial .* reads 2: calibrate again"),
    ({"theta": [1.0]}, "not what"), ({"covariance": None}, "not what"), ({"cluster": {"name": "x"}}, "must be given"),
    ({"groups": 3}, "not what"), ({"unseen": 1}, "not what"), ({"carried": "all"}, "not what"),
    ({"used": [{}]}, "not what"), ({"noise": "much"}, "not what"), ({"coefficients": ["compute"]}, "schema 2"),
])  # fmt: skip
def test_a_file_that_is_no_calibration_is_one_line(change: dict[str, object], words: str):
    data = {**calibrate.learn(measured(step.Coefficients(), 4), CLUSTER).to_dict(), **change}
    with pytest.raises(BadInput, match=words) as refused:
        calibrate.Calibration.from_dict(data)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(("other", "words"), [("jz-a100", "learned on cluster dgx-a100, asked for jz-a100")])
def test_a_calibration_of_another_cluster_is_refused(other: str, words: str, tmp_path: Path):
    fit = calibrate.learn(measured(step.Coefficients(), 4), CLUSTER)
    fit.save(tmp_path / "calibration.json")
    with pytest.raises(BadInput, match=words):
        calibrate.from_file(tmp_path / "calibration.json", presets.cluster(other))
    with pytest.raises(BadInput, match="learned on device"):
        calibrate.from_file(tmp_path / "calibration.json", presets.cluster("dgx-a100", {"device": {"name": "other"}}))
