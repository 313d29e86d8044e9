"""What a layer's experts keep of a micro-batch and make for a while, in rows: tokens x hidden numbers of one rank.

    Routed.of(lay, load, gpu=False).kept            from the forward pass to the backward pass
    Routed.of(lay, load, gpu=False).backward        what the backward pass adds to it at its fullest

A rank has its own tokens, each of which makes `chosen` pairs; of those that are sent to it an even share is as many, on each of
the ranks that share an expert. It keeps what came, by expert; both inner widths; results by choice, which the router's weights
add up (`engine/core/experts.py`).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from seatrial.arith.counts import Count, larger, pick

if TYPE_CHECKING:
    from seatrial.arith.layout import Layout

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
        # On a GPU in 16 bits gated experts are one function: what is between their GEMMs is made again, in place.
        fast = gpu * lay.half * gated * (1 - s.mlp_bias)
        alone = fast * (group == 1)
        """… and the way to them and back is of it."""
        between = (1 - fast) * inner
        silu = gated * gpu * (between + shared)
        # Numbers of a token beside rows of hidden: its scores and weights, and which row goes where.
        width = lay.element * s.hidden
        scores = (s.experts + (2 - alone) * s.chosen + 1) * FP32 * own / width + lay.half * (1 - alone) * pairs / s.hidden
        ordered = pick(gathers, s.chosen * every, pairs)
        index = (pairs + ordered + pick(gathers, rows, sent) + (exchanges + gathers) * rows) * INDEX / width
        index = pick(alone, pairs * (INDEX + FP32) / width, index) + fast * rows * FP32 / width
        results = pick(gathers, rows, (1 - alone) * pairs)
        selective = lay.selective
        kept = rows + up + between + results + shared_up + shared + silu + scores + index
        # Gradients of results by choice, as they travel, and in the order of the experts.
        begins = pick(gathers, every + rows, pick(alone, rows, pairs))
        travels = exchanges * (sent + rows - pairs)
        in_order = pick(exchanges, 2 * rows, 0) - pick(gathers, 0, results)
        at_down = rows + inner + pick(fast, rows, selective * inner) - pick(gathers, 0, results)
        activation = pick(gated, (2 if gpu else 4) * inner, inner) + selective * inner - results
        # The gradient of what came, while what came is still there; then of the shared experts, while rows travel.
        gone = results + (1 - selective) * between + gated * gpu * between
        at_up = rows - gone
        back = pick(exchanges, rows + sent, pick(gathers, every + rows, rows + own)) - gone - up - rows
        at_shared = (pick(exchanges, rows + sent, rows) - gone - up - rows + selective * shared
                     + pick(gated, (2 if gpu else 4) * shared, shared))
        backward = larger(begins, travels, in_order, at_down, (1 - fast) * activation, at_up, back, at_shared)
        forward = pick(exchanges, larger(2 * rows, rows + sent), pick(gathers, 2 * every + rows, rows)) - results
        waits = 2 * rows + up + inner + shared_up + shared + 1 + lay.outside + s.experts * FP32 * own / width
        return cls(kept=kept, cheap=between + shared, backward=backward, norm=own, forward=larger(0, forward) + lay.outside,
                   waits=waits, late=(1 - fast) * (rows + inner))
