"""A sweep file becomes the list of trials it says, and says what is wrong with it."""
from __future__ import annotations

import math

import pytest

from seatrial.errors import BadInput
from seatrial.sweep import file
from seatrial.sweep.file import build

FIXED = {"model": "tiny", "batch": {"gbs": 8}}


def sweep(**more):
    return build({**FIXED, **more})


def test_every_combination_is_a_trial_and_its_key_is_the_run_id():
    found = sweep(axes={"dp": [1, 2], "tp": [1, 2, 4], "zero": [0, 1]}, repeats=3)
    assert len(found.tasks) == 2 * 3 * 2 * 3
    assert all(task.key == task.trial.run_id() for task in found.tasks)
    assert len({task.key for task in found.tasks}) == len(found.tasks)
    assert {task.trial.repeat for task in found.tasks} == {0, 1, 2}


def test_rules_take_combinations_out_and_are_counted():
    found = sweep(axes={"dp": [1, 2, 4], "tp": [1, 2, 4]}, rules=["dp * tp == 4", "world <= 4", "heads % tp == 0"])
    assert [(t.trial.topology.dp, t.trial.topology.tp) for t in found.tasks] == [(1, 4), (2, 2), (4, 1)]
    assert found.left_out == {"dp * tp == 4": 6}


def test_rules_see_the_cluster_and_the_microbatches():
    found = sweep(axes={"dp": [1, 2, 4]}, cluster={"base": "local", "nodes": 2, "procs_per_node": 2},
                  rules=["nodes * procs_per_node == world", "microbatches == 2"])
    assert [t.trial.topology.dp for t in found.tasks] == [4]


def test_what_cannot_run_is_a_row_with_the_rules_own_words():
    found = sweep(axes={"tp": [1, 3]})
    good, bad = found.tasks
    assert not good.invalid
    assert bad.invalid == "16 heads are not a multiple of TP 3: TP 2 or 4 would do" and bad.code == "heads-divisible"


def test_words_that_do_not_even_make_a_topology_are_a_row_too():
    found = sweep(axes={"schedule": ["1f1b", "interleaved"]})
    assert found.tasks[1].trial is None and "interleaved" in found.tasks[1].invalid
    assert found.tasks[1].key != found.tasks[0].key


def test_environments_are_an_axis_with_names():
    found = sweep(axes={"environment": [{"name": "plain"}, {"name": "tcmalloc", "variables": {"LD_PRELOAD": "libx.so"}}],
                        "environment.variables.OMP_NUM_THREADS": ["1", "2"]})
    assert [t.label for t in found.tasks][-1] == "environment=tcmalloc environment.variables.OMP_NUM_THREADS=2"
    assert found.tasks[-1].trial.environment.variables == {"LD_PRELOAD": "libx.so", "OMP_NUM_THREADS": "2"}


def test_scheduler_options_and_interpreters_are_axes():
    found = sweep(axes={"environment.scheduler": [{"name": "2.0 GHz", "freq": "2000"}, {"name": "2.2 GHz", "freq": "2200"}],
                        "python": ["/a/bin/python", "/b/bin/python"]})
    assert [t.trial.environment.scheduler["freq"] for t in found.tasks] == ["2000", "2000", "2200", "2200"]
    assert {t.trial.environment.python for t in found.tasks} == {"/a/bin/python", "/b/bin/python"}


def test_a_case_is_put_over_everything_key_by_key():
    cases = [{"name": "a", "topology": {"dp": 2}}, {"name": "b", "model": {"layers": 4}}]
    found = sweep(topology={"mbs": 2}, axes={"case": cases})
    assert (found.tasks[0].trial.topology.dp, found.tasks[0].trial.topology.mbs) == (2, 2)
    assert (found.tasks[1].trial.model.layers, found.tasks[1].trial.model.hidden) == (4, 128)


def test_training_on_an_axis_makes_keys_of_its_own():
    found = sweep(axes={"lr": [1e-3, 1e-4], "seed": [1, 2]})
    assert len({t.key for t in found.tasks}) == 4 and len({t.trial.run_id() for t in found.tasks}) == 1


@pytest.mark.parametrize("axes", [{"compile": [False, True], "bucket_mib": [1, 32]},
                                  {"training.compile": [False, True], "execution.bucket_mib": [1, 32]},
                                  {"case": [{"training": {"compile": c, "bucket_mib": b}}
                                            for c in (False, True) for b in (1, 32)]}])
def test_execution_on_an_axis_makes_other_trials(axes):
    found = sweep(axes=axes)
    assert [t.key for t in found.tasks] == [t.trial.run_id() for t in found.tasks] and len({t.key for t in found.tasks}) == 4


def test_a_key_of_a_table_in_a_table_is_an_axis():
    axes = {"model.router.aux_loss": [0.0, 0.5], "model.latent.kv_rank": [16]}
    found = build({**FIXED, "model": "tiny-deepseek", "axes": axes})
    models = [task.trial.model for task in found.tasks]
    assert [m.router.aux_loss for m in models] == [0, 0.5]
    assert {(m.router.kind, m.kv_rank, m.q_rank) for m in models} == {("sigmoid", 16, 48)}
    for wrong, words in (({"model.router.aux": [0.1]}, "model.router has no 'aux'"),
                         ({"model.router.kind": ["relu"]}, "'relu'"),
                         ({"model.latent.kv_rank": ["x"]}, "expected a whole number")):
        with pytest.raises(BadInput, match=words):
            sweep(axes=wrong)


def test_repeats_lie_apart_unless_the_files_order_is_wanted():
    axes = {"dp": [1, 2]}
    assert [t.repeat for t in sweep(axes=axes, repeats=2).tasks] == [0, 0, 1, 1]
    assert [t.repeat for t in sweep(axes=axes, repeats=2, order="file").tasks] == [0, 1, 0, 1]
    shuffled = [sweep(axes={"dp": [1, 2, 4, 8]}, repeats=3, order="shuffled").tasks for _ in range(2)]
    assert shuffled[0] == shuffled[1] != sweep(axes={"dp": [1, 2, 4, 8]}, repeats=3).tasks


@pytest.mark.parametrize(("more", "words"), [
    ({"axes": {"recompte": [1]}}, "axes.recompte: no table has it; did you mean 'recompute'?"),
    ({"axes": {"name": ["x"]}}, "is in model and cluster"),
    ({"axes": {"topology.tpp": [1]}}, "topology has no 'tpp'; did you mean 'tp'?"),
    ({"axes": {"dp": 4}}, "axes.dp: expected a list of values"),
    ({"axes": {"dp": ["two"]}}, "axes.dp[0]: expected a whole number"),
    ({"axes": {"dp": [2, 2]}}, "axes.dp: '2' stands there twice"),
    ({"axes": {"dp": list(range(1, 400)), "mbs": list(range(1, 400))}}, "159,201 combinations: 100,000 at most"),
    ({"rules": ["dp ** 2 == 4"]}, "there are no powers"),
    ({"rules": ["nodes <= 4"]}, "rule 'nodes <= 4': nodes has no value"),
    ({"topology": {"recompte": 2}}, "topology.recompte: no such key; did you mean 'recompute'?"),
    ({"measures": {}}, "measures: no such table or key; did you mean 'measure'?"),
    ({"repeats": 0}, "repeats: 0 must be above 0"),
    ({"name": "../x"}, "it names a folder"),
    ({"stop": {"factor": 0.9}}, "stop.factor: 0.9 must be above 1"),
    ({"axes": {"case": [{"name": "a", "topology": {"dp": 1}}, {"name": "b"}]}}, "are the same trial"),
])
def test_a_file_that_cannot_be_used_is_one_line(more, words):
    with pytest.raises(BadInput) as error:
        sweep(**more)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_the_number_of_combinations_is_known_before_any_is_made():
    axes = {name: list(range(1, 101)) for name in ("dp", "tp", "pp", "mbs", "layers")}
    assert math.prod(len(v) for v in axes.values()) > file.MOST_TRIALS
    with pytest.raises(BadInput, match="combinations"):
        sweep(axes=axes)
