"""What a layer's experts keep of a micro-batch and make for a while, in rows: tokens x hidden numbers of one rank.

    Routed.of(lay, load, gpu=False).kept            from the forward pass to the backward pass
    Routed.of(lay, load, gpu=False).backward        what the backward pass adds to it at its fullest

A rank has its own tokens, each of which makes `chosen` pairs; of those that are sent to it an even share is as many, on each of
the ranks that share an expert. It keeps what came, by expert; both inner widths; results by choice, which the router's weights
add up (`engine/core/experts.py`).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from seatrial.arith.layer import Count

if TYPE_CHECKING:
    from seatrial.arith.footprint import Layout

FP32 = 4
INDEX = 8


class Routed(NamedTuple):
    kept: Count
    cheap: Count
    """Of it, what selective recompute makes again."""
    backward: Count
    norm: Count
    """What is left of that when the norm before the experts has its gradient."""
    forward: Count
    """What the forward pass makes beside what it keeps."""
    waits: Count
    """Inputs and gradients of GEMMs, which a split backward pass keeps for the weights …"""
    late: Count
    """… and those of them that would be gone when `backward` is at its fullest."""

    @classmethod
    def of(cls, lay: Layout, load: Count, *, gpu: bool) -> Routed:
        from seatrial.arith.footprint import larger, pick

        s, t = lay.shape, lay.topology
        etp, group, gated = t.expert_tp, t.expert_tp * t.ep, s.gated
        exchanges = (group > 1) * (1 - lay.gathers_tokens)
        gathers = (group > 1) * lay.gathers_tokens
        own = 1 / t.tp
        pairs = s.chosen * own
        """Of this rank's tokens …"""
        rows = pairs * etp * load
        """… and those that come to it."""
        sent = pairs * pick(exchanges, etp, 1)
        every = gathers * group * own
        """All ranks' tokens."""
        inner = rows * (-(-s.expert_inner // etp)) / s.hidden
        up = (1 + gated) * inner
        shared = s.shared_inner / t.tp / s.hidden
        shared_up = (1 + gated) * shared
        silu = gated * gpu * (inner + shared)
        # Numbers of a token beside rows of hidden: its scores and weights, and which row goes where.
        width = lay.element * s.hidden
        scores = (s.experts + 2 * s.chosen + 1) * FP32 * own / width + lay.half * pairs / s.hidden
        sorted_ = pick(gathers, s.chosen * every, pairs)
        index = (pairs + sorted_ + pick(gathers, rows, sent) + (exchanges + gathers) * rows) * INDEX / width
        results = pick(gathers, rows, pairs)
        selective = lay.selective
        kept = rows + up + inner + results + shared_up + shared + silu + scores + index
        # Down to what the experts gave: by choice, as they came, and in the order of the experts.
        begins = pick(gathers, every + rows, pairs)
        travels = exchanges * (sent + rows - pairs)
        in_order = pick(exchanges, 2 * rows, 0) - pick(gathers, 0, pairs)
        at_down = rows + inner + selective * inner - pick(gathers, 0, pairs)
        through = pick(gated, (2 if gpu else 4) * inner, inner) + selective * inner - results
        rest = results + (1 - selective) * inner + silu
        # The gradient of what came, while what came is still there; then of the shared experts, while rows travel.
        at_up = up + rows - rest - up
        back = exchanges * (rows + sent) + (1 - exchanges) * pick(gathers, every + rows, rows + own) - rest - up - rows
        at_shared = (exchanges * (rows + sent) + (1 - exchanges) * rows - rest - up - rows
                     + pick(gated, (2 if gpu else 4) * shared, shared) + selective * shared)
        backward = larger(begins, travels, in_order, at_down, through, at_up, back, at_shared)
        forward = pick(exchanges, larger(2 * rows, rows + sent), pick(gathers, 2 * every + rows, rows)) - results
        waits = 2 * rows + up + inner + shared_up + shared + 1 + lay.outside + s.experts * FP32 * own / width
        return cls(kept=kept, cheap=inner + shared, backward=backward, norm=own, forward=larger(0, forward) + lay.outside,
                   waits=waits, late=rows + inner)
