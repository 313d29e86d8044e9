"""Numbers and how they change: compute types, the fp16 loss scale, AdamW over flat shards, clipping, the learning rate.

Two forms, since teams compare both: `adamw-fused` is one pass over each stretch, `adamw-plain` is a dozen with temporaries. The
factor for clipping and loss scale stays on the device; a step whose gradients are not finite changes nothing. `Ops.update` may
have a fused pass that also reads 16-bit gradients and writes the weights that are computed with. Moments may be held in bf16: a
step is computed with them in fp32, before they are rounded. Masters are always fp32, and so are gradients wherever they are
added up. fp8 is bf16 with the blocks' GEMMs in eight bits.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from seatrial.engine.core.ops import OnePassAdamW, Ops
from seatrial.engine.core.zero import Bucket
from seatrial.errors import BadInput
from seatrial.recipe import Recipe
from seatrial.spec import Execution

TYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
                                 "fp8": torch.bfloat16}
MOMENTS: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


def compute_type(precision: str, known: Sequence[str]) -> torch.dtype:
    """`known`: those that the device has."""
    if precision not in known:
        raise BadInput(f"topology.precision: this engine has no {precision} on this device; {', '.join(known)} work")
    return TYPES[precision]


class LossScale:
    """A power of two that keeps small fp16 gradients from vanishing: halved on overflow, doubled after a good stretch."""

    def __init__(self, precision: str, recipe: Recipe):
        self.dynamic = precision == "fp16"
        self.value = recipe.loss_scale if self.dynamic else 1.0
        self.window = recipe.loss_scale_window
        self.good_steps = 0

    def update(self, *, overflowed: bool) -> None:
        if not self.dynamic:
            return
        self.good_steps = 0 if overflowed else self.good_steps + 1
        if overflowed:
            self.value = max(1.0, self.value / 2)
        elif self.good_steps == self.window:
            self.value, self.good_steps = self.value * 2, 0

    def state(self) -> dict[str, float]:
        """Empty where there is none: an fp16 run that goes on from there begins with its own."""
        return {"value": self.value, "good_steps": self.good_steps} if self.dynamic else {}

    def restore(self, state: Mapping[str, float]) -> None:
        if self.dynamic and state:
            self.value, self.good_steps = float(state["value"]), int(state["good_steps"])


def learning_rate(recipe: Recipe, step: int) -> float:
    """Of step 1, 2, …: linear warm-up, then a cosine from lr to min_lr, then min_lr."""
    warmup = recipe.warmup_steps or 0
    if step <= warmup:
        return recipe.lr * step / warmup
    span = max(1, (recipe.decay_steps or recipe.steps) - warmup)
    done = min(1.0, (step - warmup) / span)
    return recipe.min_lr + (recipe.lr - recipe.min_lr) * 0.5 * (1.0 + math.cos(math.pi * done))


def squared_norm(buckets: list[Bucket], device: torch.device, ops: Ops) -> Tensor:
    """Of the gradients that this rank counts, in double precision."""
    parts = [part for bucket in buckets for part in bucket.counted()]
    return ops.squared_norm(parts) if parts else torch.zeros((), dtype=torch.float64, device=device)


def divisor(norm: Tensor, *, clip: float, loss_scale: float) -> Tensor:
    """What gradients are divided by: the loss scale, and more when their norm is above `clip`."""
    factor = (norm + 1e-6).div(clip).clamp(min=1.0) if clip > 0 else torch.ones_like(norm)
    return (factor * loss_scale).float()


class AdamW:
    def __init__(self, buckets: list[Bucket], recipe: Recipe, device: torch.device, *, execution: Execution,
                 one_pass: OnePassAdamW | None = None):
        self.recipe, self.execution, self.one_pass, self.buckets = recipe, execution, one_pass, buckets
        self.steps_done = torch.zeros((), dtype=torch.float32, device=device)
        """Updates that took place; skipped steps are not among them."""
        self.groups: list[tuple[float, list[tuple[Bucket, int, int]]]] = []
        for decays, weight_decay in ((True, recipe.weight_decay), (False, 0.0)):
            cut = [(b, lo, hi) for b in buckets for lo, hi in b.layout.stretches(*b.shard, decay=decays)]
            self.groups.append((weight_decay, [p for stretch in cut for p in _pieces(*stretch)] if self._widens else cut))

    @property
    def _widens(self) -> bool:
        """torch's fused update wants one type: moments in 16 bits are fp32 meanwhile, a piece at a time."""
        return self.one_pass is None and self.execution.optimizer == "adamw-fused" and self.execution.moments != "fp32"

    def step(self, *, lr: float, divide_by: Tensor, overflowed: Tensor) -> None:
        """`overflowed` is 1.0 where the gradients are not finite."""
        self.steps_done += 1.0 - overflowed
        if self.one_pass is not None and self.execution.optimizer == "adamw-fused":
            self._in_one_pass(self.one_pass, lr, divide_by, overflowed)
            return
        for weight_decay, cut in self.groups:
            if not cut:
                continue
            masters: list[Tensor] = []
            grads: list[Tensor] = []
            exp_avgs: list[Tensor] = []
            exp_avg_sqs: list[Tensor] = []
            for bucket, lo, hi in cut:
                here = slice(lo - bucket.shard[0], hi - bucket.shard[0])
                masters.append(bucket.masters.read(here.start, here.stop))
                grads.append(bucket.reduced()[here])
                exp_avgs.append(bucket.exp_avg[here])
                exp_avg_sqs.append(bucket.exp_avg_sq[here])
            fused = self.execution.optimizer == "adamw-fused"
            update = self._widened if self._widens else self._fused if fused else self._plain
            update(masters, grads, exp_avgs, exp_avg_sqs, lr, weight_decay, divide_by, overflowed)

    def _in_one_pass(self, kernels: OnePassAdamW, lr: float, divide_by: Tensor, overflowed: Tensor) -> None:
        t, done = self.recipe, self.steps_done.double()
        numbers = torch.stack((divide_by.double(), lr / (1.0 - t.beta1**done), (1.0 - t.beta2**done).sqrt(),
                               overflowed.double())).float()
        for weight_decay, cut in self.groups:
            for bucket, lo, hi in cut:
                here = slice(lo - bucket.shard[0], hi - bucket.shard[0])
                grad, first, second = (x[here] for x in (bucket.reduced(), bucket.exp_avg, bucket.exp_avg_sq))
                how = {"beta1": t.beta1, "beta2": t.beta2, "eps": t.eps, "keep": 1.0 - lr * weight_decay}
                weights, whole, rest = bucket.part, bucket.masters.whole, bucket.masters.rest
                if rest is not None:
                    kernels.adamw_split(weights[here], rest[here], grad, first, second, numbers, **how)
                else:
                    assert whole is not None
                    kernels.adamw(whole[here], grad, first, second, None if whole is weights else weights[here], numbers, **how)
        for bucket in self.buckets:
            bucket.weights_follow = True

    def _fused(self, masters: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor], lr: float,
               weight_decay: float, divide_by: Tensor, overflowed: Tensor) -> None:
        t = self.recipe
        torch._fused_adamw_(masters, grads, exp_avgs, exp_avg_sqs, [], [self.steps_done] * len(masters), lr=lr, beta1=t.beta1,
                            beta2=t.beta2, weight_decay=weight_decay, eps=t.eps, amsgrad=False, maximize=False,
                            grad_scale=divide_by, found_inf=overflowed)

    def _widened(self, masters: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
                 *how: Any) -> None:
        for master, grad, exp_avg, exp_avg_sq in zip(masters, grads, exp_avgs, exp_avg_sqs):
            first, second = exp_avg.float(), exp_avg_sq.float()
            self._fused([master], [grad], [first], [second], *how)
            exp_avg.copy_(first)
            exp_avg_sq.copy_(second)

    def _plain(self, masters: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor], lr: float,
               weight_decay: float, divide_by: Tensor, overflowed: Tensor) -> None:
        if overflowed.item():
            return
        t, done = self.recipe, self.steps_done.item()
        for master, grad, exp_avg, exp_avg_sq in zip(masters, grads, exp_avgs, exp_avg_sqs):
            grad = grad.float() / divide_by
            master.mul_(1.0 - lr * weight_decay)
            first, second = exp_avg.float(), exp_avg_sq.float()
            first.lerp_(grad, 1.0 - t.beta1)
            second.mul_(t.beta2).addcmul_(grad, grad, value=1.0 - t.beta2)
            spread = second.sqrt() / math.sqrt(1.0 - t.beta2**done) + t.eps
            master.addcdiv_(first, spread, value=-lr / (1.0 - t.beta1**done))
            exp_avg.copy_(first)
            exp_avg_sq.copy_(second)


def _pieces(bucket: Bucket, low: int, high: int) -> list[tuple[Bucket, int, int]]:
    """A stretch in at most 32 parts, none smaller than 4096 numbers but the last."""
    size = max(4096, -(-(high - low) // 32))
    return [(bucket, start, min(high, start + size)) for start in range(low, high, size)]
