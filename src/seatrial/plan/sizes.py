"""Shape and layout together: which layers x hidden x heads of about one size trains fastest on this cluster.

    seatrial plan --size 181B --size-tolerance 3% --model bloom-181b --cluster jz-a100 --gbs 2048 --tokens 300e9

Family, vocabulary, sequence and the ratios of ffn and key-value heads come from `--model`. A larger shape may take longer and
be as good, so seconds and days are normalised to the size that was asked for.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from seatrial import arith
from seatrial.errors import BadInput
from seatrial.expression import Expression
from seatrial.plan.calibrate import Calibration
from seatrial.plan.request import Request
from seatrial.plan.search import By, Found, search
from seatrial.plan.shape import HEAD_SIZES, heads_width, scaled
from seatrial.plan.space import Space, inner
from seatrial.spec import Batch, Model

ASPECT = (48.0, 320.0)
"""Hidden size over layers: published models from 124M to 530B lie between 64 and 200."""
_MOST_OPTIONS = 8
"""How many combinations of ZeRO, recompute, schedule and sequence parallelism are carried to all shapes."""


def base_settings(model: str | None) -> list[str]:
    """A gpt2 of 50257 tokens and sequence 2048 where no model says otherwise; its own shape is of no account."""
    if model is not None:
        return []
    return ["model.family=gpt2", "model.vocab=50257", "model.seq=2048", "model.layers=1", "model.hidden=128", "model.heads=1"]


def shapes(base: Model, size: float, tolerance: float) -> tuple[Model, ...]:
    """Every shape within `tolerance` of `size` parameters, embedding included."""
    found = []
    low, high = ((aspect * size / 12) ** (1 / 3) for aspect in ASPECT)
    step = 64 if high < 2048 else 128 if high < 8192 else 256
    for hidden in range(max(step, int(low) // step * step), int(high) + step, step):
        for head in HEAD_SIZES:
            width = heads_width(base, hidden)
            shaped = None if width % head else scaled(base, hidden=hidden, heads=width // head, ffn_multiple=256)
            if shaped is None:
                continue
            one = replace(shaped, layers=1)
            counted = arith.parameters(one)
            outside = counted.total - counted.layer
            least = max(1, math.ceil((size * (1 - tolerance) - outside) / counted.layer))
            most = math.floor((size * (1 + tolerance) - outside) / counted.layer)
            found += [replace(one, layers=layers) for layers in range(least, most + 1)
                      if ASPECT[0] <= hidden / layers <= ASPECT[1]]
    if not found:
        raise BadInput(f"no shape has {size / 1e9:g}B parameters within {tolerance:.1%}: a larger --size-tolerance would help, "
                       f"or a smaller vocabulary than {base.vocab}")
    return tuple(found)


def search_shapes(request: Request, size: float, tolerance: float, *, rules: Sequence[Expression] = (),
                  ramp: Batch | None = None, by: By = "time", fit: Calibration | None = None) -> Found:
    """All shapes with all layouts. Where many options are open, those that win for a few shapes are tried on all."""
    models = shapes(request.model, size, tolerance)
    space = replace(request.space, models=models)

    def searched(where: Space) -> Found:
        return search(where, rules=rules, ramp=ramp, precision=request.precision, by=by, fit=fit)

    combinations = np.unique(inner(space)[:, 2:], axis=0)
    if len(combinations) > _MOST_OPTIONS:
        few = models[:: max(1, len(models) // 8)]
        best = searched(replace(space, models=few))
        chosen: dict[tuple[int, ...], None] = {}
        names = ("zero", "recompute", "schedule", "vp", "sequence_parallel")
        for i in range(len(best)):
            chosen.setdefault(tuple(int(best.ranked[name][i]) for name in names))
            if len(chosen) == _MOST_OPTIONS:
                break
        if chosen:
            space = replace(space, options=tuple(chosen))  # type: ignore[arg-type]
    return replace(searched(space), reference=size)
