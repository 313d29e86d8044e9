"""torch's backward pass from gradients that are given, without its look at symbolic shapes: that imports sympy, a second
or more of the first step in every process, and here sizes are numbers.

    backward([hidden], [d_hidden])                  into .grad and main gradients
    gradients([mixed], [q, k, v], [d_mixed])        the same as a value
"""
from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.autograd.graph import _engine_run_backward


def backward(roots: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    _check(roots, given)
    _engine_run_backward(tuple(roots), tuple(given), False, False, (), allow_unreachable=True, accumulate_grad=True)


def gradients(outputs: Sequence[Tensor], inputs: Sequence[Tensor], given: Sequence[Tensor]) -> tuple[Tensor, ...]:
    _check(outputs, given)
    return _engine_run_backward(tuple(outputs), tuple(given), False, False, tuple(inputs), False, accumulate_grad=False)


def _check(outputs: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    for out, gradient in zip(outputs, given, strict=True):
        assert out.shape == gradient.shape, (out.shape, gradient.shape)
