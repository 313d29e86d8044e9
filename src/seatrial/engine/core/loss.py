"""Cross-entropy that never holds the whole logits: a chunk of tokens at a time, its gradients at once.

    total, d_hidden = token_loss(hidden, head, targets, tp, vocab=50257, chunk=1024, scale=1 / tokens, ops=Ops())

Loss and gradients of a chunk come out of one set of logits, which is overwritten by its own softmax; then it is gone. The ranks
of a tensor-parallel group each have a part of the vocabulary and exchange three numbers a token. Padding rows are masked.
"""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from seatrial.engine.core.comm import TensorParallel
from seatrial.engine.core.layers import main_grad_of

if TYPE_CHECKING:
    from seatrial.engine.core.ops import Gemm, Ops


class CrossEntropy(Protocol):
    def __call__(self, logits_TV: Tensor, targets_T: Tensor, tp: TensorParallel, *, real: int,
                 gradient: bool) -> tuple[Tensor, Tensor]:
        """The loss of each token, and softmax minus one at the target: the gradient of the logits, where it is asked for.

        Targets count from this rank's first logit, of which the first `real` are no padding. The logits are used up.
        """


class Head(Protocol):
    """The GEMMs with the vocabulary's matrix."""

    def logits(self, h_TH: Tensor, weight_VH: Tensor) -> Tensor: ...

    def back(self, d_logits_TV: Tensor, h_TH: Tensor, weight_VH: Tensor, d_h_TH: Tensor, *, scale: float, last: bool) -> None:
        """`scale` x the gradients: of h into its place, the weight's to its main_grad; `last`: of this use."""


class PlainHead:
    def __init__(self, gemm: Gemm):
        self.gemm = gemm

    def logits(self, h_TH: Tensor, weight_VH: Tensor) -> Tensor:
        return self.gemm(h_TH, weight_VH.t())

    def back(self, d_logits_TV: Tensor, h_TH: Tensor, weight_VH: Tensor, d_h_TH: Tensor, *, scale: float, last: bool) -> None:
        self.gemm.into(d_h_TH, d_logits_TV, weight_VH, alpha=scale)
        main_grad = main_grad_of(weight_VH)
        if main_grad is not None:
            main_grad.add_gemm(d_logits_TV, h_TH, alpha=scale, last=last)


def token_loss(hidden_BSH: Tensor, weight_VH: Tensor, targets_BS: Tensor, tp: TensorParallel, *, vocab: int, chunk: int,
               scale: float | None, ops: Ops, counted_BS: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """The summed loss (fp32), and `scale` x its gradient by `hidden`; the head's goes to its main_grad. None: no gradients.

    `counted_BS`: 1 for those that count, where not all do.
    """
    whole_BSH = tp.into_region(hidden_BSH)
    hidden, targets = whole_BSH.reshape(-1, whole_BSH.shape[-1]), targets_BS.reshape(-1)
    first = tp.rank * weight_VH.shape[0]
    real = max(0, min(weight_VH.shape[0], vocab - first))
    total = torch.zeros((), dtype=torch.float32, device=hidden.device)
    d_hidden = torch.empty_like(hidden) if scale is not None else None
    head = ops.head or PlainHead(ops.gemm)
    for at in range(0, hidden.shape[0], chunk):
        h = hidden[at : at + chunk]
        losses, probabilities = ops.cross_entropy(head.logits(h, weight_VH), targets[at : at + chunk] - first, tp, real=real,
                                                  gradient=scale is not None)
        if counted_BS is not None:
            counts = counted_BS.reshape(-1)[at : at + chunk]
            losses, probabilities = losses * counts, probabilities.mul_(counts.unsqueeze(1))
        total += losses.sum()
        if d_hidden is None or scale is None:
            continue
        # What is left of the logits is their gradient but for the factor, which the GEMMs take as alpha.
        d_logits = probabilities.to(h.dtype)
        head.back(d_logits, h, weight_VH, d_hidden[at : at + chunk], scale=scale, last=at + chunk >= hidden.shape[0])
        # Else the next chunk's logits would be made beside these.
        del probabilities, d_logits
    if d_hidden is None:
        return total, None
    return total, tp.out_of_region(d_hidden.view_as(whole_BSH)).wait()


def cross_entropy(logits_TV: Tensor, targets_T: Tensor, tp: TensorParallel, *, real: int,
                  gradient: bool) -> tuple[Tensor, Tensor]:
    """On fp32 logits, which become their gradient in place."""
    logits_TV = logits_TV.float()
    if real < logits_TV.shape[1]:
        logits_TV[:, real:] = -math.inf
    index = targets_T.clamp(0, logits_TV.shape[1] - 1).unsqueeze(1)
    here = (targets_T >= 0) & (targets_T < logits_TV.shape[1])
    at_target = logits_TV.gather(1, index).squeeze(1).masked_fill_(~here, 0.0)
    largest = logits_TV.amax(1)
    if tp.size == 1:
        torch.ops.aten._softmax.out(logits_TV, 1, False, out=logits_TV)
        # The largest probability is one over the sum of the exponentials.
        log_sum = largest - logits_TV.amax(1).log()
    else:
        tp.comm.all_reduce(largest, tp.group, timer="tp_comm", op=dist.ReduceOp.MAX)
        logits_TV.sub_(largest.unsqueeze(1)).exp_()
        both = torch.stack((logits_TV.sum(1), at_target))
        tp.comm.all_reduce(both, tp.group, timer="tp_comm")
        exponentials, at_target = both
        logits_TV.div_(exponentials.unsqueeze(1))
        log_sum = largest + exponentials.log()
    logits_TV.scatter_add_(1, index, -here.to(logits_TV.dtype).unsqueeze(1))
    return log_sum - at_target, logits_TV
