"""What is said about a shape follows from its numbers; near shapes can really be laid out."""
from __future__ import annotations

from dataclasses import replace

import pytest

from seatrial import arith, presets
from seatrial.errors import BadInput, Infeasible
from seatrial.plan.request import Request
from seatrial.plan.shape import check_shape, search_shapes, shapes

BLOOM = presets.model("bloom-181b")
A100 = presets.cluster("jz-a100")


def said(**changes):
    return check_shape(replace(BLOOM, **changes), A100, tp=4, mbs=2, precision="bf16")


def test_the_products_hold_all_operations_of_the_forward_pass():
    for model in (BLOOM, presets.model("llama3-8b")):
        report = check_shape(model, A100, tp=4, mbs=2, precision="bf16")
        work = {p.name: 2.0 * p.rows * p.cols * p.inner * p.count * 4 for p in report.gemms}
        logits = work.pop("logits")
        assert model.layers * sum(work.values()) + logits == pytest.approx(
            arith.flops("model", replace(model, vocab=model.padded_vocab(4)), samples=2) / 3)


def test_fills_and_efficiencies_are_shares():
    for model, tp, mbs in ((BLOOM, 4, 2), (presets.model("tiny"), 1, 1), (presets.model("gpt2-124m"), 4, 3)):
        for p in check_shape(model, A100, tp=tp, mbs=mbs, precision="bf16").gemms:
            assert 0 < p.tile_fill <= 1 and 0 < p.wave_fill <= 1 and 0 < p.efficiency <= 1 and p.waves > 0


def test_a_hidden_size_off_the_tiles_is_named_with_its_neighbours():
    assert not any("14336 is not a multiple" in remark for remark in said().remarks)
    assert any("14400 is not a multiple of 128" in r and "14336 or 14464" in r for r in said(hidden=14400, heads=80).remarks)


def test_heads_that_cannot_use_the_matrix_units_are_named_and_cost():
    odd = said(hidden=14336, heads=256, seq=2048)
    assert any("heads of 56 elements: a multiple of 8 but not of 64" in remark for remark in odd.remarks)
    worse = check_shape(replace(BLOOM, hidden=14400, heads=100), A100, tp=4, mbs=2, precision="bf16")
    assert any(near.model.hidden % 128 == 0 and near.gain > 0.02 for near in worse.near)


def test_near_shapes_are_better_and_fit_the_tensor_parallel_ranks():
    report = said(hidden=14400, heads=80)
    assert report.near == sorted(report.near, key=lambda near: -near.gain)
    for near in report.near:
        m = near.model
        assert near.gain > 0.01 and m.heads % 4 == 0 and m.inner % 4 == 0 and abs(m.hidden / 14400 - 1) <= 0.06
        assert near.parameters == arith.parameters(m).total


def test_a_vocabulary_is_padded_and_that_is_said():
    model = replace(BLOOM, vocab=250681)
    assert any("stored as 250880 rows" in r for r in check_shape(model, A100, tp=4, mbs=1, precision="bf16").remarks)


def test_ranks_that_do_not_divide_the_heads_are_refused():
    with pytest.raises(Infeasible, match="heads 64 is not a multiple of TP 3"):
        check_shape(BLOOM, A100, tp=3, mbs=1, precision="bf16")


@pytest.mark.parametrize(("base", "size", "tolerance"),
                         [("bloom-181b", 181e9, 0.03), ("llama3-8b", 8e9, 0.05), ("gpt2-124m", 1.3e8, 0.1)])
def test_every_shape_has_the_size_asked_for(base, size, tolerance):
    made = shapes(presets.model(base), size, tolerance)
    assert len(made) == len(set(made)) > 5
    for model in made:
        assert abs(arith.parameters(model).total / size - 1) <= tolerance
        assert model.family == presets.model(base).family and model.vocab == presets.model(base).vocab


def test_the_shapes_that_were_compared_by_hand_are_among_those_searched():
    made = {(m.layers, m.hidden) for m in shapes(BLOOM, 181e9, 0.09)}
    assert {(72, 14336), (84, 13312), (78, 13824), (96, 12288)} <= made


def test_a_size_that_no_shape_has_is_refused():
    with pytest.raises(BadInput, match="no shape has 0.1B parameters"):
        shapes(BLOOM, 1e8, 0.01)


def test_shapes_are_ranked_by_seconds_at_one_size():
    asked = Request.read(model="bloom-181b", cluster="jz-a100", fixed={"gbs": "2048", "zero": "1", "recompute": "full",
                                                                       "schedule": "1f1b", "tp": "4", "pp": "12"})
    found = search_shapes(asked, 181e9, 0.02)
    normalised = [float(found.sec[i]) * found.normal(i) for i in range(50)]
    assert normalised == sorted(normalised)
    assert len({found.trial(i).model for i in range(len(found))}) > 5


def test_open_options_are_narrowed_to_those_that_win():
    asked = Request.read(model="gpt-1.3b", cluster="dgx-a100", nodes=1, fixed={"gbs": "64"})
    found = search_shapes(asked, 1.3e9, 0.03)
    assert len(found) and len(found.space.models) > 5
