"""A layer of experts (MoE): the router, the dispatch of tokens to their experts and back, the products, the shared experts.

    experts = ExpertParallel(model, comm, tp)           what the layers of a rank share; every rank calls it
    layer = Experts(3, "layers.3", shared, up, down)    as many of its experts as the rank holds
    y_BSH = layer(h_BSH)                                differentiable

The tokens of a layer are divided over all ranks of a stage: with sequence parallelism they are already, else each
tensor-parallel rank takes its part of the flat micro-batch. Each (token, choice) goes to all ranks that share its expert, which
compute with their part of the expert's width; the sender adds up what comes back, with the weights of the router.

The balance losses are sums over tokens, on the scale of the token losses: their gradient starts where the router's weights are
used, and there, once for each micro-batch whatever is recomputed, they and the loads are counted.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from seatrial.engine.core.comm import Comm, Pending, TensorParallel
from seatrial.engine.core.layers import column_linear, main_grad_of, row_linear
from seatrial.engine.core.mesh import Group
from seatrial.engine.core.params import Held, whole_matrix, whole_vector
from seatrial.engine.core.tokensets import TIMER, TokenSets
from seatrial.spec import Model, Router

if TYPE_CHECKING:
    from seatrial.engine.core.model import Linear, Shared
    from seatrial.engine.core.ops import Grouped


Move = Callable[[Tensor, Comm, Group], Tensor]


@dataclass(frozen=True, kw_only=True)
class Balance:
    """How even a step's tokens went to their experts, over all layers."""

    least: int
    """Tokens that chose an expert of a layer …"""
    mean: float
    most: int
    dropped: int
    """Choices that an expert had no room for."""
    excess: float
    """What the fullest rank of each micro-batch and layer computed above the mean, of that mean."""


class ExpertParallel:
    """What the expert layers of a rank share."""

    def __init__(self, model: Model, comm: Comm, tp: TensorParallel):
        mesh, t = comm.mesh, comm.mesh.topology
        assert model.experts is not None and model.chosen is not None
        self.model, self.comm, self.tp = model, comm, tp
        self.experts, self.top_k = model.experts, model.chosen
        self.group, self.etp, self.stage = mesh.experts, mesh.etp, mesh.sharing(data=True)
        self.gathers, self.forced = t.moe_dispatcher == "allgather", t.moe_balance == "forced"
        held = self.experts // t.ep
        self.held = Held(experts=self.experts, first=t.expert_place(mesh.rank).ep * held, count=held, rank=self.etp.rank,
                         size=self.etp.size)
        self.sets = TokenSets(model, t, comm, sequence_parallel=tp.sequence_parallel)
        self.layers: list[Experts] = []
        self.scale = 0.0
        """Of the gradient of a token's loss."""
        self.losses = torch.zeros((), dtype=torch.float64, device=mesh.device)
        """Of this rank's tokens, since `begin`."""
        self.dropped = torch.zeros((), dtype=torch.int64, device=mesh.device)
        self.received: list[int] = []
        """Rows that this rank's experts computed, pass by pass."""
        self.loads = torch.zeros(0, self.experts, dtype=torch.int64, device=mesh.device)
        """Tokens that chose each expert of each layer of this rank in the last step, on all ranks of the stage."""

    def begin(self) -> None:
        """Before a step's first micro-batch."""
        for count in (self.losses, self.dropped, *(layer.load for layer in self.layers)):
            count.zero_()
        self.received.clear()

    def end(self, *, overflowed: Tensor) -> Tensor:
        """After a step's last: what corrects the choice moves; least, mean and most load, dropped, excess, on the device.

        Each stage of the pipeline knows its own: -least, most and excess are to be the most over the stages, the others sums.
        """
        device = self.losses.device
        figures = torch.full((3,), -math.inf, dtype=torch.float64, device=device)
        if self.layers:
            loads = self.loads = torch.stack([layer.load for layer in self.layers])
            self.comm.all_reduce(loads, self.stage, timer=TIMER)
            mean = loads.double().mean(1, keepdim=True)
            rows = torch.tensor(self.received, dtype=torch.float64, device=device)
            most, total = rows.clone(), rows.sum()
            self.comm.all_reduce(most, self.stage, timer=TIMER, op=torch.distributed.ReduceOp.MAX)
            self.comm.all_reduce(total, self.stage, timer=TIMER)
            for layer, load, even in zip(self.layers, loads, mean):
                if layer.correction is not None:
                    step = (self.model.router.correction or 0.0) * (1.0 - overflowed)
                    layer.correction.add_((even - load).sign().float() * step)
            figures = torch.stack((-loads.min().double(), loads.max().double(),
                                   most.sum() * self.stage.size / total.clamp(min=1.0) - 1.0))
        self.comm.all_reduce(figures, self.comm.mesh.world, timer=TIMER, op=torch.distributed.ReduceOp.MAX)
        return figures


# ---- the router


class _RouterLinear(Function):
    """Logits in fp32 whatever the weights are in: a choice must not hang on a rounded product."""

    @staticmethod
    def forward(ctx: Any, x_TH: Tensor, weight_EH: Tensor, tp: TensorParallel) -> Tensor:
        ctx.save_for_backward(x_TH)
        ctx.weight, ctx.tp = weight_EH, tp
        if _has_wide_results(x_TH):
            return torch.mm(x_TH, weight_EH.t(), out_dtype=torch.float32)
        return F.linear(x_TH.float(), weight_EH.float())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,), (dy,), main_grad = ctx.saved_tensors, grads, main_grad_of(ctx.weight)
        kind = x.dtype if _has_wide_results(x) else torch.float32
        dy = dy.detach().to(kind)
        dx = (dy @ ctx.weight.to(kind)).to(x.dtype)
        if main_grad is None:
            return dx, (dy.t() @ x.to(kind)).to(ctx.weight.dtype), None
        kept = x.detach()

        def product() -> None:
            main_grad.add_gemm(dy, kept.to(kind))

        product() if ctx.tp.deferred is None else ctx.tp.deferred.append(product)
        return dx, None, None


def _has_wide_results(x: Tensor) -> bool:
    """Whether the device multiplies numbers of 16 bits exactly and adds them up in fp32, so they need no cast."""
    return x.is_cuda and x.dtype != torch.float32


def router_linear(x_TH: Tensor, weight_EH: Tensor, tp: TensorParallel) -> Tensor:
    return _RouterLinear.apply(x_TH, weight_EH, tp)  # type: ignore[no-any-return]


def choose(scores_TE: Tensor, correction_E: Tensor | None, router: Router, top_k: int) -> Tensor:
    """Each token's experts."""
    ranked = scores_TE.detach()
    if correction_E is not None:
        ranked = ranked + correction_E
    if router.limit < router.groups:
        groups = ranked.unflatten(1, (router.groups, -1))
        best = groups.topk(min(2, groups.shape[2]), -1).values.sum(-1).topk(router.limit, -1).indices
        closed = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter_(1, best, False)
        ranked = groups.masked_fill(closed.unsqueeze(-1), -math.inf).flatten(1)
    return ranked.topk(top_k, -1).indices


class Routing(NamedTuple):
    """Of the tokens of this rank."""

    expert_Tk: Tensor
    """Where a choice was dropped, one more than there are."""
    weight_Tk: Tensor


@dataclass
class Passed:
    """What one micro-batch's pass through a layer adds to the step's counts."""

    load_E: Tensor
    dropped: Tensor | None
    received: int = 0


class _Counted(Function):
    """The router's weights, and where the gradient of the balance losses starts."""

    @staticmethod
    def forward(ctx: Any, weight_Tk: Tensor, loss: Tensor | None, layer: Experts, passed: Passed) -> Tensor:
        ctx.layer, ctx.passed, ctx.loss = layer, passed, None if loss is None else loss.detach()
        return weight_Tk.view_as(weight_Tk)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        layer, passed = ctx.layer, ctx.passed
        common: ExpertParallel = layer.common
        layer.load += passed.load_E
        common.received.append(passed.received)
        if passed.dropped is not None:
            common.dropped += passed.dropped
        if ctx.loss is None:
            return grads[0], None, None, None
        common.losses += ctx.loss
        return grads[0], torch.full_like(ctx.loss, common.scale), None, None


# ---- the way there and back


class Exchange:
    """Rows between the ranks of one copy of the experts: under way between its two ends, forward as backward."""

    def __init__(self, common: ExpertParallel, sends: list[int], receives: list[int]):
        self.comm, self.group, self.sends, self.receives = common.comm, common.group, sends, receives
        self.pending: Pending | None = None

    def start(self, x: Tensor, *, back: bool) -> None:
        sends, receives = (self.receives, self.sends) if back else (self.sends, self.receives)
        self.pending = self.comm.exchange_rows(x.contiguous(), self.group, sends, receives, timer=TIMER)

    def wait(self) -> Tensor:
        assert self.pending is not None
        found, self.pending = self.pending.wait(), None
        return found


class _Depart(Function):
    """Forward: rows leave. Backward: their gradients have arrived."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        exchange.start(x, back=False)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        return ctx.exchange.wait(), None


class _Arrive(Function):
    """Forward: rows have arrived. Backward: their gradients leave; what it gives back is for `_Depart` to replace."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange, ctx.shape = exchange, x.shape
        return exchange.wait()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.exchange.start(grads[0], back=True)
        return grads[0].new_empty(1).expand(ctx.shape), None


def gather_rows(x: Tensor, comm: Comm, group: Group) -> Tensor:
    out = x.new_empty(group.size * x.shape[0], *x.shape[1:])
    return comm.all_gather(out, x.contiguous(), group, timer=TIMER).wait()


def sum_rows(x: Tensor, comm: Comm, group: Group) -> Tensor:
    part = comm.reduce_scatter(x.clone(memory_format=torch.contiguous_format).view(-1), group, timer=TIMER).wait()
    return part.clone().view(-1, *x.shape[1:])


def own_rows(x: Tensor, comm: Comm, group: Group) -> Tensor:
    """This rank's part of rows that all have."""
    return x.reshape(group.size, -1, x.shape[-1])[group.rank]


class _Moved(Function):
    """Rows from rank to rank by one of these; gradients by its conjugate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Move, back: Move, comm: Comm, group: Group) -> Tensor:
        ctx.back, ctx.comm, ctx.group = back, comm, group
        return there(x, comm, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.back(grads[0], ctx.comm, ctx.group), None, None, None, None


class _Put(Function):
    """Rows added up at their places among so many. torch's own `index_add` would keep the rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(places)
        return x.new_zeros(rows, x.shape[1]).index_add_(0, places, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (places,) = ctx.saved_tensors
        return grads[0].index_select(0, places), None, None


def tally(numbers: Tensor, size: int) -> Tensor:
    """How often each of 0 to `size` - 1 is there. `bincount` would make the host wait for the device."""
    found = torch.zeros(size + 1, dtype=torch.int64, device=numbers.device)
    return found.index_add_(0, numbers, torch.ones_like(numbers))[:size]


class AllToAll:
    """Each (token, choice) to the ranks of its expert, and their results back."""

    def __init__(self, common: ExpertParallel, routing: Routing, *, layer: int):
        self.common, self.routing = common, routing
        flat, group, etp = routing.expert_Tk.reshape(-1), common.group, common.etp.size
        self.pairs = flat.argsort(stable=True)
        """(token, choice) pairs by expert; those that were dropped are last."""
        mine_E = tally(flat, common.experts)
        self.exchange: Exchange | None = None
        self.order: Tensor | None = None
        """What came, by expert."""
        self.counts = mine_E
        """Rows for each expert of this rank."""
        if group.size == 1:
            if common.model.router.capacity is None:
                self.rows = flat.numel()
            else:
                self.counts, self.rows = common.comm.arrived(mine_E, group, layer=layer)
            self.pairs = self.pairs[: self.rows]
            return
        self.to_each, here_RE, receives = common.comm.deal(mine_E, group, common.held, layer=layer, timer=TIMER)
        self.rows = sum(receives)
        self.pairs = self.pairs[: sum(self.to_each)]
        self.exchange = Exchange(common, [size for size in self.to_each for _ in range(etp)], receives)
        self.counts = here_RE.sum(0)
        numbers = torch.arange(common.held.count, device=flat.device).repeat(group.size)
        self.order = numbers.repeat_interleave(here_RE.reshape(-1), output_size=self.rows).argsort(stable=True)

    def depart(self, x_TH: Tensor) -> Tensor:
        common = self.common
        if self.exchange is None:
            return x_TH.index_select(0, self.pairs // common.top_k)
        copies = [part for part in self.pairs.split(self.to_each) for _ in range(common.etp.size)]
        rows = x_TH.index_select(0, torch.cat(copies) // common.top_k)
        return _Depart.apply(rows, self.exchange)  # type: ignore[no-any-return]

    def arrive(self, sent: Tensor) -> Tensor:
        if self.exchange is None or self.order is None:
            return sent
        return _Arrive.apply(sent, self.exchange).index_select(0, self.order)

    def combine(self, y_NH: Tensor) -> Tensor:
        common, (_, weight_Tk) = self.common, self.routing
        if self.exchange is not None and self.order is not None:
            back = Exchange(common, self.exchange.receives, self.exchange.sends)
            y_NH = _Put.apply(y_NH, self.order, y_NH.shape[0])
            y_NH = _Arrive.apply(_Depart.apply(y_NH, back), back)
            if common.etp.size > 1:
                parts = y_NH.split([size * common.etp.size for size in self.to_each])
                y_NH = torch.cat([part.unflatten(0, (common.etp.size, -1)).sum(0) for part in parts])
        tokens, k = weight_Tk.shape
        by_choice = _Put.apply(y_NH, self.pairs, tokens * k)
        return torch.bmm(weight_Tk.to(y_NH.dtype).unsqueeze(1), by_choice.view(tokens, k, -1)).squeeze(1)


class AllGather:
    """Every token to all ranks, each of which computes its own experts' part; the sum of their results back."""

    def __init__(self, common: ExpertParallel, routing: Routing, *, layer: int):
        self.common, held, group = common, common.held, common.group
        self.weight = _Moved.apply(routing.weight_Tk, gather_rows, sum_rows, common.comm, group)
        expert = gather_rows(routing.expert_Tk, common.comm, group).reshape(-1) - held.first
        elsewhere = (expert < 0) | (expert >= held.count)
        expert = expert.masked_fill(elsewhere, held.count)
        self.counts, self.rows = common.comm.arrived(tally(expert, held.count), group, layer=layer)
        self.pairs = expert.argsort(stable=True)[: self.rows]

    def depart(self, x_TH: Tensor) -> Tensor:
        every = _Moved.apply(x_TH, gather_rows, sum_rows, self.common.comm, self.common.group)
        return every.index_select(0, self.pairs // self.common.top_k)  # type: ignore[no-any-return]

    def arrive(self, sent: Tensor) -> Tensor:
        return sent

    def combine(self, y_NH: Tensor) -> Tensor:
        weighted = y_NH * self.weight.reshape(-1).index_select(0, self.pairs).to(y_NH.dtype).unsqueeze(1)
        every = _Put.apply(weighted, self.pairs // self.common.top_k, self.weight.shape[0])
        return _Moved.apply(every, sum_rows, gather_rows, self.common.comm, self.common.group)  # type: ignore[no-any-return]


# ---- the experts


class _GroupedLinear(Function):
    """Each expert's rows times its matrix; weight gradients of all go where those of other layers do."""

    @staticmethod
    def forward(ctx: Any, x_NK: Tensor, weight: Tensor, counts_E: Tensor, column: bool, grouped: Grouped,
                tp: TensorParallel) -> Tensor:
        ctx.save_for_backward(x_NK, counts_E)
        ctx.weight, ctx.column, ctx.grouped, ctx.tp = weight, column, grouped, tp
        by_expert = weight.view(counts_E.numel(), -1, weight.shape[1])
        return grouped(x_NK, by_expert.transpose(1, 2) if column else by_expert, counts_E)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x, counts), dy, weight = ctx.saved_tensors, grads[0].contiguous(), ctx.weight
        by_expert = weight.view(counts.numel(), -1, weight.shape[1])
        dx = ctx.grouped(dy, by_expert if ctx.column else by_expert.transpose(1, 2), counts)
        left, right = (dy, x) if ctx.column else (x, dy)
        return dx, grouped_gradient(weight, left, right, counts, ctx.grouped, ctx.tp), None, None, None, None


def grouped_gradient(weight: Tensor, left: Tensor, right: Tensor, counts_E: Tensor, grouped: Grouped,
                     tp: TensorParallel) -> Tensor | None:
    """leftᵀ right of each expert's rows to the weight's main_grad, now or when the schedule says W; else a plain gradient."""
    main_grad, kept = main_grad_of(weight), (left.detach(), right.detach())
    if main_grad is None:
        found = torch.zeros_like(weight)
        grouped.into(found.view(counts_E.numel(), -1, weight.shape[1]), *kept, counts_E)
        return found
    if tp.deferred is not None:
        tp.deferred.append(lambda: main_grad.add_grouped(*kept, counts_E))
    else:
        main_grad.add_grouped(*kept, counts_E)
    return None


class Experts(nn.Module):
    """The half of a block behind attention, where it has experts."""

    def __init__(self, number: int, at: str, shared: Shared, up: Linear | None, down: Linear | None):
        """`number`, `at`: of the layer; `up`, `down`: of the shared experts."""
        super().__init__()
        assert shared.experts is not None
        self.of, self.common, m, self.number, self.at = shared, shared.experts, shared.model, number, at
        c, inner = self.common, m.expert_inner or 0
        back = shared.std / math.sqrt(2 * m.layers)
        self.router = whole_matrix({f"{at}.router.weight": c.experts}, m.hidden, std=shared.std, partial=True)
        self.router_bias = whole_vector(f"{at}.router.bias", c.experts, "zeros", partial=True) if m.router.bias else None
        names = [f"{at}.experts.{part}" for part in (("gate", "up") if m.gated else ("up",))]
        self.up = c.held.matrix([f"{name}.weight" for name in names], inner, m.hidden, std=shared.std)
        self.down = c.held.matrix([f"{at}.experts.down.weight"], inner, m.hidden, std=back)
        self.up_bias = c.held.split_vector([f"{name}.bias" for name in names], inner) if m.mlp_bias else None
        self.down_bias = c.held.whole_vectors(f"{at}.experts.down.bias", m.hidden) if m.mlp_bias else None
        self.shared_up, self.shared_down = up, down
        self.fast = shared.ops.experts if m.architecture.mlp == "swiglu" and not m.mlp_bias else None
        device = c.losses.device
        self.correction = torch.zeros(c.experts, device=device) if m.router.correction is not None else None
        """Added to the scores for the choice alone; every rank of the stage has the same."""
        self.load = torch.zeros(c.experts, dtype=torch.int64, device=device)
        """Tokens that chose each expert in this step."""
        c.layers.append(self)

    def forward(self, h_BSH: Tensor) -> Tensor:
        c, tp = self.common, self.of.tp
        x_TH, cuts = h_BSH.reshape(-1, h_BSH.shape[-1]), tp.size > 1 and not tp.sequence_parallel
        if cuts:
            x_TH = _Moved.apply(x_TH, own_rows, gather_rows, c.comm, tp.group)
        routing, passed = self.route(x_TH)
        if self.fast is not None and c.group.size == 1 and self.of.model.router.capacity is None:
            passed.received = routing.expert_Tk.numel()
            beside = self._shared(h_BSH)
            out_TH = self.fast(x_TH, routing.expert_Tk, routing.weight_Tk, self.up, self.down, tp)
        else:
            out_TH, beside = self._dispatched(x_TH, h_BSH, routing, passed)
        if cuts:
            out_TH = _Moved.apply(out_TH, gather_rows, own_rows, c.comm, tp.group)
        out = out_TH.view_as(h_BSH)
        return out if beside is None else out + beside

    def _dispatched(self, x_TH: Tensor, h_BSH: Tensor, routing: Routing, passed: Passed) -> tuple[Tensor, Tensor | None]:
        c = self.common
        dispatch = (AllGather if c.gathers and c.group.size > 1 else AllToAll)(c, routing, layer=self.number)
        passed.received = dispatch.rows
        rows_NH = dispatch.depart(x_TH)
        beside = self._shared(h_BSH)  # while tokens are on their way
        rows_NH = dispatch.arrive(rows_NH)
        return dispatch.combine(self._compute(rows_NH, dispatch.counts)), beside

    def route(self, x_TH: Tensor) -> tuple[Routing, Passed]:
        c, r = self.common, self.of.model.router
        logits = router_linear(x_TH, self.router, self.of.tp)
        if self.router_bias is not None:
            logits = logits + self.router_bias.float()
        scores = logits.softmax(-1) if r.kind == "softmax" else logits.sigmoid()
        if c.forced:
            turn = c.sets.positions.unsqueeze(1) * c.top_k + torch.arange(c.top_k, device=logits.device)
            expert = turn % c.experts
        else:
            expert = choose(scores, self.correction, r, c.top_k)
        weight = scores.gather(1, expert)
        if r.normalised:
            weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        weight = weight * r.scale
        passed = Passed(load_E=tally(expert.reshape(-1), c.experts), dropped=None)
        loss = r.z_loss * logits.logsumexp(-1).square().sum() if r.z_loss else None
        if r.aux_loss or r.capacity is not None:
            mask = torch.zeros_like(scores, dtype=torch.int32).scatter_(1, expert, 1)
            chosen, before = c.sets.count(mask, before=r.capacity is not None)
            if r.aux_loss:
                shares = chosen.float() / (c.sets.tokens * c.top_k)
                even = scores if r.kind == "softmax" else scores / scores.sum(-1, keepdim=True)
                aux = r.aux_loss * c.experts * (shares.index_select(0, c.sets.set_of) * even).sum()
                loss = aux if loss is None else loss + aux
            if r.capacity is not None and before is not None:
                room = math.ceil(r.capacity * c.sets.tokens * c.top_k / c.experts)
                full = before.gather(1, expert) >= room
                expert, passed.dropped = expert.masked_fill(full, c.experts), full.sum()
                weight = weight.masked_fill(full, 0.0)
        return Routing(expert, _Counted.apply(weight, loss, self, passed)), passed

    def _compute(self, x_NH: Tensor, counts_E: Tensor) -> Tensor:
        shared = self.of
        if self.fast is not None:
            return self.fast.mlp(x_NH, counts_E, self.up, self.down, shared.tp)

        def product(x: Tensor, weight: Tensor, bias: Tensor | None, *, column: bool) -> Tensor:
            y = _GroupedLinear.apply(x, weight, counts_E, column, shared.ops.grouped, shared.tp)
            if bias is None:
                return y  # type: ignore[no-any-return]
            rows = bias.view(counts_E.numel(), -1).repeat_interleave(counts_E, 0, output_size=x.shape[0])
            # Those that share an expert each have a part of its result: the last bias is in one of these, its gradient in all.
            return y + (rows if column or self.common.etp.rank == 0 else rows - rows.detach())

        inner = product(x_NH, self.up, self.up_bias, column=True)
        return shared.through(shared.activation, inner, lambda a: product(a, self.down, self.down_bias, column=False))

    def _shared(self, h_BSH: Tensor) -> Tensor | None:
        up, down, shared = self.shared_up, self.shared_down, self.of
        if up is None or down is None:
            return None
        inner = column_linear(h_BSH, up.weight, up.bias, shared.tp)
        return shared.through(shared.activation, inner, lambda a: row_linear(a, down.weight, down.bias, shared.tp))


