"""A layer of experts, described once as `layer.py` does a dense one: router, experts, shared experts.

    layer_tensors(model, tp=2, ep=4, etp=1)         what one rank holds of such a layer, attention and norms included
    active(model)                                   numbers that one token passes

The router has a row for each expert. The experts of a rank lie one under the other: of each its gate, up and down, whose rows
are `hidden` numbers and are divided over ETP. Shared experts are one MLP, divided over TP like any other.
"""
from __future__ import annotations

from typing import Any

from seatrial.arith import layer
from seatrial.arith.layer import Count, Linear, Part, Shape, Tensor

ROUTER = "router"
EXPERTS = "experts"
"""What parameters are named by inside a layer: layers.3.experts.gate.weight has all experts' rows, one after the other."""


def shared_linears(s: Shape) -> tuple[Linear, ...]:
    """The MLP that every token passes beside its experts."""
    inner = s.shared_inner
    return (Linear("shared_up", "shared experts up", (Part("shared.gate", s.gated * inner), Part("shared.up", inner)), True,
                   s.mlp_bias),
            Linear("shared_down", "shared experts down", (Part("shared.down", inner),), False, s.mlp_bias))


def router_tensors(s: Shape) -> list[Tensor]:
    """Whole on every rank."""
    return [Tensor(f"{ROUTER}.weight", s.experts * s.hidden), Tensor(f"{ROUTER}.bias", s.router_bias * s.experts)]


def expert_tensors(s: Shape, ep: Count = 1, etp: Count = 1) -> list[Tensor]:
    """Of all experts that one rank holds."""
    held, width = s.experts // ep, -(-s.expert_inner // etp)
    up = (1 + s.gated) * width
    return [Tensor(f"{EXPERTS}.up.weight", held * up * s.hidden), Tensor(f"{EXPERTS}.up.bias", s.mlp_bias * held * up),
            Tensor(f"{EXPERTS}.down.weight", held * width * s.hidden),
            Tensor(f"{EXPERTS}.down.bias", s.mlp_bias * held * s.hidden)]


def rest_split(s: Shape, tp: Count) -> list[Tensor]:
    """The rest of the layer, attention and shared experts: what tensor parallelism divides …"""
    return [*layer.attention_split(s, tp), *layer.divided(shared_linears(s), s, tp)]


def rest_whole(s: Shape) -> list[Tensor]:
    """… and, with router and norms, what every rank holds whole."""
    there: Any = (s.shared_inner > 0) * 1
    shared = [Tensor(name, there * numbers) for name, numbers in layer.whole_biases(shared_linears(s), s)]
    return [*layer.attention_whole(s), *shared, *router_tensors(s), *layer.norm_tensors(s)]


def layer_tensors(s: Shape, tp: Count = 1, ep: Count = 1, etp: Count = 1) -> list[Tensor]:
    return [*rest_split(s, tp), *rest_whole(s), *expert_tensors(s, ep, etp)]


def active(s: Shape) -> Count:
    """Numbers of a layer that one token passes: of the experts those that it chose."""
    experts = layer.numbers(expert_tensors(s))
    return layer.numbers(layer_tensors(s)) - experts + experts // s.experts * s.chosen


def passed(s: Shape) -> Count:
    """Numbers in the matrices that one token passes behind attention: router, its experts, the shared ones."""
    one = (2 + s.gated) * s.hidden
    return s.experts * s.hidden + one * (s.chosen * s.expert_inner + s.shared_inner)
