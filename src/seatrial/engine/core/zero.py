"""Flat buckets: weights, gradients and optimizer state of some layers, each as one tensor, cut over the data-parallel ranks.

ZeRO 0 keeps everything on every rank; 1 cuts the optimizer state (with the fp32 masters); 2 also the gradients, which are
summed and cut after every micro-batch; 3 also the weights, which are gathered layer by layer and let go after use. A bucket
starts its reduction when the last gradient it waits for has arrived, while the backward pass goes on.

Each of the three is divided over ranks of its own, in groups one inside the other (`Mesh.levels`; 1 is whole): a rank's
optimizer state is a part of its gradients, and these of its weights. Gradients are summed outwards, scattered level by level
and then over the replicas of the state; new weights come back inwards.
"""
from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from seatrial.engine.core.comm import Comm, Pending
from seatrial.engine.core.masters import Masters
from seatrial.engine.core.mesh import Group
from seatrial.engine.core.ops import Ops
from seatrial.engine.core.params import Layout, ParamSpec, Piece, Segment, fill, spec_of

if TYPE_CHECKING:
    from seatrial.engine.core.model import Stage

OWN_BUCKET = ("tokens", "lookup", "head")
"""The vocabulary's matrices: as large as many layers, and the tied ones must lie alike on first and last stage."""
EXPERTS = ".experts"
"""A layer's experts have a bucket beside the rest of it: other ranks hold them alike."""
FILLED_AT_ONCE = 1 << 26
"""Numbers: first values of split masters are made beside them."""


class OnTheWay:
    """What the buckets of a rank share while gradients travel."""

    def __init__(self, device: torch.device, buckets: Sequence[Bucket] = ()):
        self.buckets: list[Bucket] = []
        """Those whose reduction does not end with what is under way."""
        twice = [b for b in buckets if b.levels.weights.size > 1 and b.levels.gradients.size > 1]
        most = max((b.layout.size // b.levels.weights.size for b in twice), default=0)
        self.between = torch.empty(most, device=device)
        """What is left of one bucket when it was summed among those that share the weights, and travels on."""
        self._holder: Bucket | None = None
        for bucket in buckets:
            bucket.on_the_way = self

    def hold(self, bucket: Bucket, part: Tensor) -> Tensor:
        """A copy, so that the whole can go; the one before is out of its place by then."""
        if self._holder is not None:
            self._holder._advance()
        self._holder = bucket
        return self.between[: part.numel()].copy_(part)

    def let_go(self) -> None:
        self._holder = None


class Bucket:
    def __init__(self, name: str, params: list[nn.Parameter], *, hidden: int, comm: Comm, dtype: torch.dtype,
                 sums_over_tp: bool, ops: Ops, moments: torch.dtype = torch.float32):
        self.name, self.params, self.comm, self.ops = name, params, comm, ops
        mesh, experts = comm.mesh, spec_of(params[0]).expert
        self.levels, self.tp = (mesh.expert_levels, mesh.etp) if experts else (mesh.levels, mesh.tp)
        weights, gradients, state, _ = self.levels
        shards = weights.size * gradients.size * state.size
        self.layout = Layout([spec_of(p) for p in params], hidden=hidden, shards=shards)
        self.sums = list(self._sums(sums_over_tp))
        self.sums_over_tp = sums_over_tp or bool(self.sums)
        size, device = self.layout.size, comm.mesh.device
        self.weights_at = weights.part(0, size)
        """From where to where in the bucket this rank keeps weights …"""
        self.gradients_at = gradients.part(*self.weights_at)
        """… and gradients …"""
        self.shard = state.part(*self.gradients_at)
        """… and optimizer state."""
        low, high = self.shard

        self.flat = torch.zeros(size, dtype=dtype, device=device)
        """Weights as they are computed with; its storage is empty between uses where they are cut."""
        self.gathers = weights.size > 1
        self.kept = torch.zeros(size // weights.size, dtype=dtype, device=device) if self.gathers else self.flat
        """The weights that stay."""
        self.part = self.kept[low - self.weights_at[0] : high - self.weights_at[0]]
        """The weights of this rank's shard."""
        self.masters = Masters(self.part, split=ops.split_masters)
        self.exp_avg = torch.zeros(high - low, dtype=moments, device=device)
        self.exp_avg_sq = torch.zeros_like(self.exp_avg)
        self.grad: Tensor | None = None
        """All of the gradients of the micro-batches since the last reduction."""
        self.grad_dtype = torch.float32
        """16 bits in a step in which nothing is added to them, where `ops` says so."""
        self.weights_follow = False
        """Whether the optimizer wrote the weights along with their masters."""
        self.when_weights_change: list[Callable[[], None]] = []
        cuts = weights.size * gradients.size
        self.grad_shard = torch.zeros(size // cuts, device=device) if cuts > 1 else None
        """The sum over micro-batches, where whole gradients do not stay."""
        self.main_grads: list[BucketMainGrad] = []
        self._place_parameters()
        self._reduction: Generator[Pending, Tensor, None] | None = None
        self._reducing: Pending | None = None
        self._gathering: Pending | None = None
        self._gathered = True
        self._ready = self._expected = self._left = 0
        self._reduced_once = False
        self.on_the_way = OnTheWay(mesh.device)
        """One for all buckets of a rank."""
        self.neighbours: tuple[Bucket | None, Bucket | None] = (None, None)
        """Who is gathered next in the forward and in the backward pass."""

    def _place_parameters(self) -> None:
        for held in self.layout.ranges:
            p = self.params[held.index]
            # Through .data a parameter has a version counter of its own: gathering must not look like a modification.
            p.data = self.flat[held.start : held.start + held.numel].view(held.spec.shape)
            main_grad = BucketMainGrad(self, held.start, held.numel, held.spec.shape)
            self.main_grads.append(main_grad)
            p.main_grad = main_grad  # type: ignore[attr-defined]
            p.register_post_accumulate_grad_hook(_take_gradient)

    def initialize(self, seed: int | None) -> None:
        """First values of what this rank owns, then of the weights; None: they stay zero."""
        if seed is not None:
            for piece in (piece for whole in self.pieces(*self.shard) for piece in whole.cut(FILLED_AT_ONCE)):
                start = piece.start - self.shard[0]
                with self.masters.changing(start, start + piece.numel) as values:
                    fill(values, piece.spec, piece.segment, row=piece.row, seed=seed)
                self.comm.heartbeat.beat()
        self.publish().wait()

    def pieces(self, low: int, high: int) -> Iterator[Piece]:
        return self.layout.pieces(low, high)

    def is_primary(self, spec: ParamSpec, segment: Segment) -> bool:
        """Whether this rank's copy is the one that counts: each parameter is counted, and saved, once."""
        among = segment.replicas if spec.split else self.tp.size
        return self.levels.replicas.rank == 0 and self.tp.rank % among == 0 and not spec.copy

    # gradients

    def begin(self, microbatches: int) -> None:
        """Before a step's first gradient."""
        uses = sum(spec_of(p).uses for p in self.params)
        # Where gradients do not stay whole, every micro-batch's are reduced on their own.
        self._left = 1 if self.grad_shard is None else microbatches
        self._expected = uses * microbatches // self._left
        self._ready, self._reduced_once = 0, False
        alone = self.comm.mesh.pp.size * math.prod(level.size for level in self.levels) == 1 and not self.sums_over_tp
        narrow = self.ops.narrow_gradients and microbatches == 1 and alone
        self.grad_dtype = self.flat.dtype if narrow else torch.float32
        if self.grad is not None and self.grad.dtype != self.grad_dtype:
            self.grad = None
        for main_grad in self.main_grads:
            main_grad.fresh = True

    def updated(self) -> None:
        """After the optimizer read the gradients."""
        if self.ops.release_gradients:
            self.grad = None

    def keep_gradients(self) -> None:
        """As after a step, where whole gradients stay."""
        if self.grad_shard is None:
            self.writable()

    def writable(self) -> Tensor:
        if self.grad is None:
            self._drain()
            self.grad = torch.empty(self.layout.size, dtype=self.grad_dtype, device=self.comm.mesh.device)
            for low, high in self.layout.gaps():
                self.grad[low:high] = 0.0
        return self.grad

    def gradient_ready(self) -> None:
        self._ready += 1
        if self._ready == self._expected:
            self._reduce()

    def _reduce(self) -> None:
        grad = self.writable()
        for main_grad in self.main_grads:
            if main_grad.fresh:
                main_grad.view().zero_()
        for low, high, group in self.sums:
            self.comm.all_reduce(grad[low:high], group, timer="grad_reduce")
        self._ready = 0
        self._left -= 1
        earlier, self.on_the_way.buckets = self.on_the_way.buckets, []
        self._reduction = self._over_ranks(grad, last=self._left == 0)
        self._reducing = next(self._reduction, None)
        if self.grad_shard is not None:
            self.grad = None
            for main_grad in self.main_grads:
                main_grad.fresh = True
        # One may travel while the next fills; were all to travel, whole gradients would be there at once again.
        for bucket in reversed(earlier):
            bucket._advance()

    def _over_ranks(self, grad: Tensor, *, last: bool) -> Generator[Pending, Tensor, None]:
        """Sums, a level at a time of what the one before left to this rank; `last`: of the step."""
        weights, gradients, state, replicas = self.levels
        if self.grad_shard is not None:
            if weights.size > 1:
                grad = yield self._scatter(grad, weights)
                if gradients.size > 1:
                    grad = self.on_the_way.hold(self, grad)
            if gradients.size > 1:
                grad = yield self._scatter(grad, gradients)
                self.on_the_way.let_go()
            self.grad_shard.add_(grad) if self._reduced_once else self.grad_shard.copy_(grad)
            self._reduced_once = True
            grad = self.grad_shard
        if last and state.size > 1:
            grad = yield self._scatter(grad, state, ends=replicas.size == 1)
        if last and replicas.size > 1:
            yield self.comm.all_reduce(grad, replicas, timer="grad_reduce", wait=False)

    def _scatter(self, grad: Tensor, group: Group, *, ends: bool = False) -> Pending:
        if not ends:
            self.on_the_way.buckets.append(self)
        return self.comm.reduce_scatter(grad, group, timer="grad_reduce")

    def _advance(self) -> None:
        """To the next level, once the one under way has arrived."""
        if self._reducing is not None and self._reduction is not None:
            arrived = self._reducing.wait()
            self._reducing = None
            with contextlib.suppress(StopIteration):
                self._reducing = self._reduction.send(arrived)

    def _drain(self) -> None:
        while self._reducing is not None:
            self._advance()

    def _sums(self, sums_over_tp: bool) -> Iterator[tuple[int, int, Group]]:
        """Stretches of the gradients that each tensor-parallel rank has a part of, and whose sum each of these ranks needs."""
        if self.tp.size == 1:
            return
        size, mesh = self.layout.size, self.comm.mesh
        # With sequence parallelism each rank sees a stretch of the tokens: all that the ranks have alike.
        whole = self.layout.stretches(0, size, split=False, wanted=lambda spec, _: sums_over_tp or spec.partial)
        if whole:
            yield whole[0][0], whole[-1][1], self.tp  # one stretch, gaps included
        most = max((segment.replicas for p in self.params for segment in spec_of(p).segments), default=1)
        if most > 1:
            for low, high in self.layout.stretches(0, size, wanted=lambda _, segment: segment.replicas == most):
                yield low, high, mesh.neighbours(most, self.tp, "kv")

    def finish(self) -> Tensor:
        """After a step's last gradient: the sum over all micro-batches and ranks, of this rank's shard."""
        if self._ready:
            self._left = 1
            self._reduce()
        self._drain()
        self.on_the_way.buckets.clear()
        return self.reduced()

    def reduced(self) -> Tensor:
        summed = self.grad if self.grad_shard is None else self.grad_shard
        assert summed is not None
        return summed[self.shard[0] - self.gradients_at[0] : self.shard[1] - self.gradients_at[0]]

    def counted(self) -> list[Tensor]:
        """The parts of the reduced gradient that the global norm counts on this rank."""
        low, grad = self.shard[0], self.reduced()
        return [grad[a - low : b - low] for split in (True, False)
                for a, b in self.layout.stretches(*self.shard, split=split, wanted=self.is_primary)]

    # weights

    def publish(self) -> Pending:
        """After the masters changed: the weights that are computed with follow."""
        if not self.weights_follow:
            self.masters.publish()
        self.weights_follow = False
        for changed in self.when_weights_change:
            changed()
        self.release()
        _, gradients, state, _ = self.levels
        if state.size == 1:
            return self._spread(gradients, self.weights_at)
        pending = self._spread(state, self.gradients_at)
        return pending.then(lambda _: self._spread(gradients, self.weights_at).wait()) if gradients.size > 1 else pending

    def _spread(self, group: Group, stretch: tuple[int, int]) -> Pending:
        """The group's parts of a stretch of the weights that stay, to all of it."""
        first = self.weights_at[0]
        (low, high), (own_low, own_high) = stretch, group.part(*stretch)
        part = self.kept[own_low - first : own_high - first]
        if group.size > 1 and not self.comm.scatters:
            part = part.clone()  # gloo copies into the result while it still reads its input, which lies inside
        return self.comm.all_gather(self.kept[low - first : high - first], part, group, timer="optimizer", wait=False)

    def gather(self, *, backward: bool = False) -> None:
        """The whole weights, for a while; and the next bucket's on their way."""
        if not self.gathers:
            return
        self._start_gathering()
        following = self.neighbours[backward]
        if following is not None:
            following._start_gathering()
        if self._gathering is not None:
            self._gathering.wait()
            self._gathering = None

    def _start_gathering(self) -> None:
        if self._gathered:
            return
        self.flat.untyped_storage().resize_(self.layout.size * self.flat.element_size())
        self._gathering = self.comm.all_gather(self.flat, self.kept, self.levels.weights, timer="weight_gather", wait=False)
        self._gathered = True

    def release(self) -> None:
        if self.gathers and self._gathered:
            if self._gathering is not None:
                self._gathering.wait()
                self._gathering = None
            self.flat.untyped_storage().resize_(0)
            self._gathered = False
            for changed in self.when_weights_change:
                changed()


def buckets_of(stage: Stage, *, comm: Comm, dtype: torch.dtype, moments: torch.dtype, bucket_mib: float,
               seed: int | None) -> dict[str, Bucket]:
    """The bucket of each unit: whole units until one is full, in the order in which their gradients come; alone with ZeRO 3."""
    limit = bucket_mib * 2**20 / 4
    found: dict[str, Bucket] = {}
    passed = {name for name, _ in stage.path()} - {"tokens"}
    for experts in (False, True):
        units = [(name + EXPERTS * experts, [p for p in unit.parameters() if spec_of(p).expert == experts])
                 for name, unit in stage.units()]
        groups: list[list[tuple[str, list[nn.Parameter]]]] = []
        held = 0.0
        for name, params in reversed([unit for unit in units if unit[1]]):
            size = sum(math.prod(spec_of(p).shape) for p in params)
            alone = name in OWN_BUCKET or comm.mesh.topology.zero == 3
            if not groups or alone or groups[-1][0][0] in OWN_BUCKET or held + size > limit:
                groups.append([])
                held = 0.0
            groups[-1].append((name, params))
            held += size
        for group in groups:
            bucket = Bucket(group[-1][0], [p for _, params in group for p in params], hidden=stage.shared.model.hidden,
                            comm=comm, dtype=dtype, sums_over_tp=stage.shared.tp.sequence_parallel and not experts,
                            ops=stage.shared.ops, moments=moments)
            bucket.initialize(seed)
            found.update({name: bucket for name, _ in group})
        path = [found[name] for name, _ in units if name in found and name.removesuffix(EXPERTS) in passed]
        for before, bucket, after in zip([None, *path], path, [*path[1:], None]):
            bucket.neighbours = (after, before)
    return found


class BucketMainGrad:
    """One parameter's stretch of its bucket's gradient; the first of a step overwrites, the others add."""

    __slots__ = ("bucket", "fresh", "numel", "shape", "start")

    def __init__(self, bucket: Bucket, start: int, numel: int, shape: tuple[int, ...]):
        self.bucket, self.start, self.numel, self.shape = bucket, start, numel, shape
        self.fresh = True

    def view(self) -> Tensor:
        return self.bucket.writable()[self.start : self.start + self.numel].view(self.shape)

    def add(self, grad: Tensor) -> None:
        view = self.view()
        view.copy_(grad) if self.fresh else view.add_(grad)
        self.mark_ready()

    def add_gemm(self, left_TM: Tensor, right_TN: Tensor, alpha: float = 1.0, last: bool = True) -> None:
        self.bucket.ops.gemm.into(self.view(), left_TM.t(), right_TN, alpha=alpha, add=not self.fresh)
        self.mark_ready(last)

    def add_grouped(self, left_TM: Tensor, right_TN: Tensor, counts_E: Tensor) -> None:
        out_EMN = self.view().view(counts_E.numel(), left_TM.shape[1], right_TN.shape[1])
        self.bucket.ops.grouped.into(out_EMN, left_TM, right_TN, counts_E, add=not self.fresh)
        self.mark_ready()

    def add_rows(self, rows: Tensor, values_TN: Tensor, add: Callable[[Tensor, Tensor, Tensor], None] | None = None) -> None:
        view = self.view()
        if add is not None:
            if self.fresh:
                view.zero_()
            add(view, rows, values_TN)
        elif view.dtype != torch.float32:
            # Added up in fp32 inside: a common token's row would stand still in 16 bits.
            dense = torch.ops.aten.embedding_dense_backward(values_TN.to(view.dtype), rows, view.shape[0], -1, False)
            view.copy_(dense) if self.fresh else view.add_(dense)
        else:
            if self.fresh:
                view.zero_()
            view.index_add_(0, rows, values_TN.to(view.dtype))
        self.mark_ready()

    def add_computed(self, make: Callable[[Tensor | None, torch.dtype], Tensor], last: bool = True) -> None:
        view = self.view()
        if self.fresh and view.dtype == self.bucket.flat.dtype:
            make(view, view.dtype)
        else:
            made = make(None, self.bucket.flat.dtype)
            view.copy_(made) if self.fresh else view.add_(made)
        self.mark_ready(last)

    def buffer(self) -> tuple[Tensor, bool]:
        return self.view().view(-1), self.fresh

    def mark_ready(self, last: bool = True) -> None:
        self.fresh = False
        if last:
            self.bucket.gradient_ready()


def _take_gradient(p: Tensor) -> None:
    """What autograd itself computed (norms, biases, and all of a compiled block) moves into the bucket at once."""
    if p.grad is not None:
        p.main_grad.add(p.grad)  # type: ignore[attr-defined]
        p.grad = None


# ZeRO 3: weights come before a unit's forward and backward pass and go after each


class _BeforeBackward(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bucket: Bucket) -> Tensor:
        ctx.bucket = bucket
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.bucket.gather(backward=True)
        return grads[0], None


class _AfterBackward(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bucket: Bucket) -> Tensor:
        ctx.bucket = bucket
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.bucket.release()
        return grads[0], None


def with_weights(bucket: Bucket, unit: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """unit(x), its weights gathered just for that, and again for its backward pass."""
    if not bucket.gathers:
        return unit(x)
    bucket.gather()
    returns_gradient = x.requires_grad
    y = unit(_AfterBackward.apply(x, bucket) if returns_gradient else x)
    bucket.release()
    # An embedding's backward pass needs no weights.
    return _BeforeBackward.apply(y, bucket) if returns_gradient else y
