"""Masters that are split are exactly the fp32 numbers they stand for."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seatrial.arith import footprint
from seatrial.engine.core.masters import Masters, merge_bits, split_bits
from seatrial.engine.fast.kernels import plain
from seatrial.engine.fast.kernels.verified import difference
from seatrial.engine.watch.tracker import LiveStorages
from seatrial.recipe import Recipe
from seatrial.rehearse import rank
from seatrial.rehearse.fake import fake_world
from seatrial.spec import Batch, Execution, Model, Topology, Trial


def bits(*values: int) -> Tensor:
    return torch.tensor([v - 2**32 if v >= 2**31 else v for v in values], dtype=torch.int32).view(torch.float32)


def many() -> Tensor:
    """Every sign, exponent and upper part of the fraction, each with the lower halves where rounding turns; then at random."""
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32) << 16
    edges = torch.tensor([0, 1, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF], dtype=torch.int32)
    found = (upper[:, None] + edges).view(-1)
    drawn = torch.randint(-(2**31), 2**31, (1 << 20,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    return torch.cat((found, drawn)).view(torch.float32)


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


def test_every_number_comes_back_bit_for_bit():
    numbers = many()
    kept = numbers[~numbers.isnan()]
    assert kept.numel() > 1_500_000 and kept.isinf().any() and (kept[kept != 0].abs() < 2.0**-126).any()
    weights, rest = split_bits(kept)
    assert (weights.dtype, rest.dtype) == (torch.bfloat16, torch.int16)
    assert same_bits(merge_bits(weights, rest), kept)


def test_the_weight_is_the_nearest_and_of_two_the_one_further_from_zero():
    numbers = many()
    kept = numbers[numbers.isfinite()]
    weights = split_bits(kept)[0]
    tie = (kept.view(torch.int32) & 0xFFFF) == 0x8000
    assert tie.sum() > 60_000
    assert torch.equal(weights[~tie].view(torch.int16), kept[~tie].bfloat16().view(torch.int16))
    assert (weights[tie].float().abs() > kept[tie].abs()).all()
    assert split_bits(bits(0x80000000))[0].view(torch.int16).item() == -(2**15), "minus zero stays minus zero"


def test_what_is_not_a_number_stays_none():
    every = bits(0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000, 0xFFC00000)
    weights, rest = split_bits(every)
    assert weights.isnan().all() and merge_bits(weights, rest).isnan().all()


@pytest.mark.parametrize(("dtype", "split"), [(torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)])
def test_masters_read_and_change_alike_in_every_form(dtype, split):
    weights = torch.zeros(64, dtype=dtype)
    masters = Masters(weights, split=split)
    values = torch.randn(48, generator=torch.Generator().manual_seed(1))
    with masters.changing(8, 56) as there:
        there.copy_(values)
    with masters.changing(16, 24) as there:
        there.mul_(2.0)
    masters.publish()
    expected = torch.zeros(64)
    expected[8:56] = values
    expected[16:24] *= 2.0
    assert same_bits(masters.read(0, 64), expected)
    assert torch.equal(weights, expected.to(dtype))
    assert sum(t.nbytes for t in masters.beside) == {torch.float32: 0, torch.bfloat16: 64 * (2 if split else 4)}[dtype]


def test_what_is_not_half_of_fp32_cannot_be_split():
    with pytest.raises(AssertionError, match="float16"):
        Masters(torch.zeros(8, dtype=torch.float16), split=True)


def test_the_update_of_split_masters_is_that_of_whole_ones_to_the_last_bit():
    drawn = torch.Generator().manual_seed(2)
    master, first, grad = (torch.randn(1000, generator=drawn) for _ in range(3))
    second, grad = torch.rand(1000, generator=drawn), grad.bfloat16()
    weights, rest = split_bits(master)
    numbers = torch.tensor([1.5, 1e-5, 0.8, 0.0])
    moments = first.clone(), second.clone()
    named = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "keep": 0.9999}
    for _ in range(20):
        plain.adamw(master, grad, first, second, None, numbers, **named)
        plain.adamw_split(weights, rest, grad, *moments, numbers, **named)
    assert same_bits(merge_bits(weights, rest), master)
    assert torch.equal(moments[0], first) and torch.equal(moments[1], second)
    numbers[3] = 1.0
    plain.adamw_split(weights, rest, grad * torch.inf, *moments, numbers, **named)
    assert same_bits(merge_bits(weights, rest), master), "a step that overflowed changes nothing"


@pytest.mark.parametrize("split", [False, True])
def test_a_long_update_in_plain_torch_makes_no_vectors_as_long(split, monkeypatch):
    generator, count = torch.Generator().manual_seed(3), 1 << 16
    numbers, how = torch.tensor([2.0, 1e-3, 0.9, 0.0]), {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "keep": 0.999}
    before = [torch.randn(count, generator=generator) for _ in range(4)]
    found = []
    for at_once in (count, 1000):
        monkeypatch.setattr(plain, "AT_ONCE", at_once)
        master, grad, first, second = (t.clone() for t in before)
        second.square_()
        weights, rest = split_bits(master)
        with LiveStorages(tagged={"weights": [master, weights, rest, grad, first, second]}) as live:
            if split:
                plain.adamw_split(weights, rest, grad, first, second, numbers, **how)
            else:
                plain.adamw(master, grad, first, second, weights, numbers, **how)
        found.append((live.peaks["activations"], [master, weights.float(), rest, first, second]))
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))
    assert not torch.equal(found[0][1][3], before[2]) and found[1][0] < 64 * 1000 < found[0][0]


def test_a_kernel_that_loses_the_lower_half_is_found_out():
    def loses(weights: Tensor, rest: Tensor, *given: Tensor, **named: float) -> None:
        plain.adamw_split(weights, rest, *given, **named)
        rest.zero_()

    found = difference("adamw_split", loses, device=torch.device("cpu"), dtype=torch.bfloat16, hidden=32, tokens=16)
    assert found > 1.0


@pytest.mark.parametrize(("precision", "optimizer", "each"),
                         [("bf16", "adamw-fused", 10), ("bf16", "adamw-plain", 12), ("fp16", "adamw-fused", 12)])
@pytest.mark.parametrize("zero", [0, 3])
def test_a_gpus_rank_is_counted_with_the_masters_it_has(precision, optimizer, each, zero):
    model = Model(layers=2, hidden=64, heads=4, vocab=256, seq=32)
    trial = Trial(model=model, batch=Batch(gbs=4), topology=Topology(dp=2, zero=zero, precision=precision),
                  execution=Execution(optimizer=optimizer, bucket_mib=0.5))
    recipe = Recipe()
    with fake_world(rank=0, world=2):
        held = rank.measure_memory(trial, recipe, torch.device("cpu"), fake=True, as_gpu=True)
    counted = footprint(trial, gpu=True)
    assert held.parts["optimizer"] == counted.optimizer and counted.optimizer % each == 0
    assert held.parts["weights"] == pytest.approx(counted.weights, rel=0.05)


@pytest.mark.parametrize("gbs", [1, 4])
def test_a_gpus_gradients_are_counted_as_such_in_16_bits_too(gbs):
    """Of one micro-batch they stay narrow, of several they are added up in fp32."""
    trial = Trial(model=Model(layers=2, hidden=64, heads=4, vocab=256, seq=32), batch=Batch(gbs=gbs),
                  topology=Topology(precision="bf16"))
    with fake_world(rank=0, world=1):
        held = rank.measure_memory(trial, Recipe(), torch.device("cpu"), fake=True, as_gpu=True)
    assert held.parts["gradients"] == footprint(trial, gpu=True).gradients > 0
