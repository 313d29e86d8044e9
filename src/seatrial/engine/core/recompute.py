"""Recompute: what is thrown away in the forward pass and made again in the backward pass.

full        a block keeps its input alone (torch's non-reentrant checkpoint)
selective   a block keeps what is costly to make again (GEMMs, attention) and throws away what is cheap: the outputs of norms
            and activations, 6 of the 16 hidden-sized rows that a GPT block keeps for each token. The attention core keeps no
            scores: SDPA's kernels make them again from one number a row.
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from seatrial.engine.watch.timers import Timers


def full(block: Callable[[Tensor], Tensor], x: Tensor, timers: Timers) -> Tensor:
    def contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
        return nullcontext(), timers("recompute")

    return checkpoint(block, x, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)


class Discarded:
    """An intermediate whose storage is empty between its use in the forward pass and its reader's backward pass.

        h = Discarded(norm, x, timers)
        y = h.free(linear(h.value))           the linear kept h.value for its backward; it comes back just before
    """

    def __init__(self, make: Callable[[Tensor], Tensor], source: Tensor, timers: Timers):
        self.make, self.timers = make, timers
        self.value = make(source)
        self.bytes = self.value.untyped_storage().nbytes()
        self._kept: tuple[Tensor, Tensor] | None = (source, self.value)

    def free(self, result: Tensor) -> Tensor:
        """Throw the value away; the gradient of `result` brings it back."""
        value = self.value
        del self.value
        if result.requires_grad:
            value.untyped_storage().resize_(0)
            result.register_hook(self._restore)
        return result

    def _restore(self, grad: Tensor) -> None:
        assert self._kept is not None
        source, value = self._kept
        # Hooks outlive the tensors that autograd saved: what they held would pile up until the whole graph is gone.
        self._kept = None
        with self.timers("recompute"), torch.no_grad():
            again = self.make(source)
            value.untyped_storage().resize_(self.bytes)
            # Through .data: the saved tensor must not look modified, since it holds the same numbers again.
            value.data.copy_(again)
