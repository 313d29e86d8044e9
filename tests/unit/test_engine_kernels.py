"""The kernels of the fused step against autograd and torch's own optimizer; eight bits and what refuses them."""
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from seatrial.engine.core.ops import PlainGemm
from seatrial.engine.core.rope import rotate
from seatrial.engine.fast import fp8
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.kernels import NAMES, Kernels, plain
from seatrial.engine.fast.kernels.grid import fewer_programs, groups_of, programs
from seatrial.engine.fast.kernels.scaling import Scales
from seatrial.engine.fast.kernels.verified import difference
from seatrial.engine.fast.product import Product8
from seatrial.errors import BadInput
from seatrial.spec import Model, Topology

CPU = torch.device("cpu")
T, H = 24, 16


def some(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).float().requires_grad_(grad)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("rms", [False, True])
def test_the_norms_backward_pass_is_autograds_with_the_residual_and_the_sums(rms):
    x, weight, bias, dh, residual = some(T, H, grad=True), some(H, grad=True), some(H, grad=True), some(T, H), some(T, H)
    expected = F.rms_norm(x, (H,), weight, 1e-5) if rms else F.layer_norm(x, (H,), weight, bias, 1e-5)
    expected.backward(dh)
    given = x.detach(), weight.detach(), None if rms else bias.detach()
    h, stats = plain.norm(*given, 1e-5)
    torch.testing.assert_close(h, expected.detach())
    own = [weight.grad] if rms else [weight.grad, bias.grad]
    for named, sums_expected in (({}, own), ({"residual": residual}, own),
                                 ({"residual": residual, "sum_residual": True}, [*own, residual.sum(0)])):
        dx, sums = plain.norm_backward(dh, x.detach(), stats, weight.detach(), **named)
        torch.testing.assert_close(dx, x.grad + residual if named else x.grad)
        for found, one in zip(sums.sum(1), sums_expected, strict=True):
            torch.testing.assert_close(found, one)
    torch.testing.assert_close(plain.norm_recompute(x.detach(), stats, *given[1:]), h)


@pytest.mark.parametrize("normed", [False, True])
def test_queries_and_keys_turn_and_turn_back_as_the_cores_do(normed):
    heads, size, seq = (4, 2), 8, T // 2
    angles = torch.arange(seq)[:, None] * torch.rand(size // 2)
    cos_sin = angles.cos(), angles.sin()
    qkv, weights = some(T, 8 * size, grad=True), (some(size, grad=True), some(size, grad=True))
    q, k, _ = qkv.view(2, seq, 8, size).split((4, 2, 2), 2)
    if normed:
        q, k = (F.rms_norm(t, (size,), w, 1e-5) for t, w in zip((q, k), weights))
    expected = [rotate(t, *cos_sin).flatten(2).flatten(0, 1) for t in (q, k)]
    grads = [torch.randn_like(t) for t in expected]
    torch.autograd.backward(expected, grads)
    norms = (*(w.detach() for w in weights), 1e-5) if normed else None
    given = qkv.detach().clone()
    found = plain.rotate(given, heads, cos_sin, norms)
    assert (found is given) is not normed, "in place, where nothing has to be kept"
    torch.testing.assert_close(found[:, : 6 * size], torch.cat(expected, 1).detach())
    assert torch.equal(given[:, 6 * size :], qkv.detach()[:, 6 * size :])
    sums = plain.rotate_backward(*grads, qkv.detach() if normed else None, cos_sin, norms)
    torch.testing.assert_close(torch.cat(grads, 1), qkv.grad[:, : 6 * size])
    for number, weight in enumerate(weights if normed else ()):
        torch.testing.assert_close(sums.sum(1)[number], weight.grad)


@pytest.mark.parametrize("weighted", [False, True])
def test_swiglus_backward_pass_leaves_the_gradient_and_the_activation_where_it_found_their_input(weighted):
    pre, d, weight = some(T, 2 * H, grad=True), some(T, H), some(T, grad=True) if weighted else None
    gate, up = pre.chunk(2, 1)
    out = F.silu(gate) * up if weight is None else F.silu(gate) * up * weight[:, None]
    out.backward(d)
    by = None if weight is None else weight.detach()
    torch.testing.assert_close(plain.gated(pre.detach(), by), out.detach())
    given, activation = pre.detach().clone(), d.clone()
    d_weight = plain.gated_backward(activation, given, by)
    torch.testing.assert_close(given, pre.grad)
    torch.testing.assert_close(activation, out.detach())
    assert weight is None or torch.allclose(d_weight, weight.grad, atol=1e-5)
    if weight is None:
        scales = Scales(CPU, capacity=2)
        e5, e4 = scales.state(torch.float8_e5m2), scales.state(torch.float8_e4m3fn)
        d8, d8_t, g8_t, sums = plain.gated_backward8(d, pre.detach(), e5, e4)
        assert torch.equal(d8.float(), given.to(torch.float8_e5m2).float()) and torch.equal(d8_t.float(), d8.float().t())
        assert torch.equal(g8_t.float(), activation.t().to(torch.float8_e4m3fn).float())
        torch.testing.assert_close(sums.sum((0, 1)), pre.grad.sum(0))


def test_the_activations_backward_pass_overwrites_its_gradient_and_adds_up_the_columns():
    pre, dg = some(T, H, grad=True), some(T, H)
    g = F.gelu(pre, approximate="tanh")
    g.backward(dg)
    assert torch.equal(plain.gelu(pre.detach()), g.detach())
    scales = Scales(CPU, capacity=2)
    e5, e4 = scales.state(torch.float8_e5m2), scales.state(torch.float8_e4m3fn)
    d8, d8_t, g8_t, sums8 = plain.gelu_backward8(dg, pre.detach(), e5, e4)
    assert torch.equal(d8.float(), pre.grad.to(torch.float8_e5m2).float()) and torch.equal(d8_t.float(), d8.float().t())
    assert torch.equal(g8_t.float(), g.detach().t().to(torch.float8_e4m3fn).float())
    assert float(e5.amax) == pre.grad.abs().max() and float(e4.amax) == g.abs().max()
    torch.testing.assert_close(sums8.sum((0, 1)), pre.grad.sum(0))
    d, again, sums = plain.gelu_backward(dg, pre.detach(), recompute=True)
    assert d.data_ptr() == dg.data_ptr()
    torch.testing.assert_close(d, pre.grad)
    torch.testing.assert_close(again, g.detach())
    torch.testing.assert_close(sums.sum((0, 1)), pre.grad.sum(0))


@pytest.mark.parametrize("real", [H, H - 3])
def test_logits_become_their_own_gradient(real):
    logits = some(T, H)
    targets = torch.randint(0, real, (T,))
    leaf = logits[:, :real].clone().requires_grad_()
    loss = F.cross_entropy(leaf, targets, reduction="none")
    loss.sum().backward()
    largest, total, at_target = plain.softmax_parts(logits, targets, real)
    log_sum = largest + total.log()
    torch.testing.assert_close(log_sum - at_target, loss.detach())
    plain.softmax_gradient(logits, targets, log_sum, real)
    torch.testing.assert_close(logits[:, :real], leaf.grad)
    assert not logits[:, real:].any()


def test_one_pass_of_adamw_is_torchs_and_writes_the_weights_too():
    master, grad, first, second = some(100), some(100), some(100), some(100).square()
    theirs = [t.clone() for t in (master, grad, first, second)]
    step = torch.tensor(7.0)
    torch._fused_adamw_([theirs[0]], [theirs[1]], [theirs[2]], [theirs[3]], [], [step], lr=0.1, beta1=0.9, beta2=0.95,
                        weight_decay=0.2, eps=1e-8, amsgrad=False, maximize=False, grad_scale=torch.tensor(3.0),
                        found_inf=torch.tensor(0.0))
    numbers = torch.tensor([3.0, 0.1 / (1 - 0.9**7), (1 - 0.95**7) ** 0.5, 0.0])
    weights = torch.zeros(100, dtype=torch.bfloat16)
    plain.adamw(master, grad, first, second, weights, numbers, beta1=0.9, beta2=0.95, eps=1e-8, keep=1 - 0.1 * 0.2)
    for mine, expected in zip((master, first, second), (theirs[0], theirs[2], theirs[3]), strict=True):
        torch.testing.assert_close(mine, expected)
    assert torch.equal(weights, master.bfloat16())
    before = master.clone()
    numbers[3] = 1.0
    plain.adamw(master, grad * torch.nan, first, second, weights, numbers, beta1=0.9, beta2=0.95, eps=1e-8, keep=0.5)
    assert torch.equal(master, before), "a step that overflowed changes nothing"


def test_a_scale_follows_what_was_seen_and_a_cast_saturates():
    scales = Scales(CPU, capacity=2)
    scaling, other = scales.state(torch.float8_e4m3fn), scales.state(torch.float8_e5m2)
    scaling.update_amax(torch.tensor([3.0, -7.0]))
    scales.update()
    assert float(scaling.scale) == pytest.approx(448 / 1.25 / 7) and float(scaling.inverse) == pytest.approx(1.25 * 7 / 448)
    assert float(other.scale) == 1.0, "what was never seen keeps its scale"
    held = scaling.cast(torch.tensor([7.0, 1000.0])).float() * scaling.inverse
    assert held[0] == pytest.approx(7.0, rel=0.07) and held[1] == pytest.approx(1.25 * 7.0)
    other.update_amax(torch.tensor([torch.inf]))
    scales.update()
    assert float(other.scale) == 1.0, "an overflow says nothing about the next step"


class Weight(torch.nn.Parameter):
    """One whose gradient is kept as it came."""

    @property
    def main_grad(self) -> Weight:
        return self

    def add_gemm(self, left: torch.Tensor, right: torch.Tensor) -> None:
        self.found = left.t() @ right

    def add_computed(self, make) -> None:
        self.found = make(None, torch.float32)


def test_products_in_eight_bits_are_the_products_of_what_was_cast():
    scales = Scales(CPU)
    weight = some(32, 16)
    alone = SimpleNamespace(size=1, sequence_parallel=False, deferred=None)
    given = {"scales": scales, "fast": "all", "kernels": Kernels(), "gemm": PlainGemm(), "tp": alone, "gated": False}
    weights = Weight(weight), Weight(weight.t().contiguous())
    bias, stream = some(32), some(1, 48, 32)
    column, row = (Product8(SimpleNamespace(weight=w, bias=b), column=w is weights[0], **given)
                   for w, b in zip(weights, (None, bias)))
    x, dy = some(48, 16), some(48, 32)
    for first in (True, False):
        for each, main in zip((column, row), weights):
            assert each.warming_up is first
            operand, d = each.mixed(x), each.gradient(dy, 1)
            each.weight_gradient(each.mixed_again(x), d)
            for found, expected in ((each(operand) if each is column else each.onto(stream, operand)[0] - stream[0] - bias,
                                     x @ weight.t()), (each.input_gradient(d), dy @ weight),
                                    (main.main_grad.found, dy.t() @ x if each is column else x.t() @ dy)):
                assert found.shape == expected.shape
                off = ((found.float() - expected).norm() / expected.norm()).item()
                assert off < 1e-5 if first else 1e-3 < off < 0.15
        scales.update()


@pytest.mark.parametrize(("changed", "words"), [
    ({"hidden": 40, "heads": 4}, "hidden is 40"), ({"seq": 12}, "MBS x sequence is 12"),
    ({"family": "llama", "ffn": 168}, "MLP down / TP is 168"),
    ({"family": "llama", "experts": 4}, "llama works in bf16"),
])
def test_what_eight_bits_cannot_do_is_refused_with_what_works(changed, words):
    model = Model(**{"layers": 2, "hidden": 64, "heads": 4, "vocab": 101, "seq": 32, **changed})
    with pytest.raises(BadInput, match=words):
        fp8.check_shape(model, Topology(precision="fp8"), compiled=False)
    with pytest.raises(BadInput, match="needs a GPU"):
        fp8.check(CPU, model, Topology(precision="fp8"), compiled=False)


def test_on_a_cpu_nothing_is_switched_on():
    assert KernelConfig.of(CPU, "bf16") == KernelConfig()


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(("name", "hidden"), [*((name, 80) for name in NAMES), ("norm", 4112), ("norm8", 4112),
                                              ("norm_backward", 4112)])
def test_tritons_kernels_agree_under_its_interpreter(name, hidden):
    """Its casts to 16 and 8 bits cut off instead of rounding: fp32 shows the arithmetic, eight bits are given an eighth."""
    code = ("import torch; from seatrial.engine.fast.kernels.verified import *; "
            f"print(difference({name!r}, triton_kernels()[{name!r}], device=torch.device('cpu'), dtype=torch.float32, "
            f"{hidden=}, tokens=24))")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                           env={**os.environ, "TRITON_INTERPRET": "1"})
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) < (0.15 if name.endswith("8") else 1e-5)


def test_programs_walk_over_all_tiles_and_a_check_makes_them_walk_far():
    for tokens, rows, columns in ((16384, 2, 8), (336, 4, 14), (84, 32, 224), (3, 4, 1)):
        tiles = -(-tokens // rows)
        groups, walked = groups_of(tokens, rows, columns=columns, device=CPU, each=16)
        assert (groups - 1) * walked < tiles <= groups * walked and (groups * columns <= programs(16, CPU) or groups == 1)
        with fewer_programs():
            assert groups_of(tokens, rows, columns=columns, device=CPU, each=16)[1] >= min(tiles, walked + 1)

    def wrong_later(pre):
        return plain.gelu(pre) * (1.0 if programs(1, CPU) > 1 else 1.1)

    assert difference("gelu", wrong_later, device=CPU, dtype=torch.bfloat16, hidden=32, tokens=16) > 0.02


@pytest.mark.parametrize("name", NAMES)
def test_the_check_finds_a_kernel_that_is_wrong(name):
    """Every kernel has a case that tells: one whose inputs were changed on the way is far off."""
    def wrong(*given, **named):
        first, *others = given
        larger = first * 1.5 if isinstance(first, torch.Tensor) else type(first)(t * 1.5 for t in first)
        return getattr(Kernels, name)(larger, *others, **named)

    assert difference(name, getattr(Kernels, name), device=CPU, dtype=torch.bfloat16, hidden=32, tokens=16) == 0.0
    assert difference(name, wrong, device=CPU, dtype=torch.bfloat16, hidden=32, tokens=16) > 0.02
