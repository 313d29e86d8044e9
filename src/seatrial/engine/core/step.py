"""One training step on this rank: the model laid out, the schedule run, gradients reduced, weights updated.

    engine = Engine(trial, recipe, mesh)
    result = engine.step(1, first_sample=0, batches=batches)        result.loss, result.grad_norm

The host waits for the device once a step, at its end.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from seatrial.engine.core.attention import Positions
from seatrial.engine.core.comm import Comm, TensorParallel
from seatrial.engine.core.context import Context
from seatrial.engine.core.eager import before_compiling
from seatrial.engine.core.experts import Balance, ExpertParallel
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.model import Shared, Stage
from seatrial.engine.core.mtp import Further
from seatrial.engine.core.ops import Ops
from seatrial.engine.core.optim import MOMENTS, AdamW, LossScale, compute_type, divisor, learning_rate, squared_norm
from seatrial.engine.core.pipeline import Chunk, Feeder, Messages, Pipeline, plan_of, positions_in_plan
from seatrial.engine.core.state import Shard, iter_shards, whole_shard
from seatrial.engine.core.zero import Bucket, OnTheWay, buckets_of
from seatrial.engine.io.data import Batches
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.engine.watch.timers import Timers
from seatrial.recipe import Recipe
from seatrial.schedule import Action, Kind
from seatrial.spec import Trial, stages_of


@dataclass(frozen=True, kw_only=True)
class StepResult:
    loss: float
    """Mean over the tokens of the whole batch."""
    grad_norm: float
    """Of the whole gradient, before clipping."""
    lr: float
    gbs: int
    loss_scale: float
    skipped: bool
    """Whether the gradients were not finite and nothing was updated."""
    stop: bool = False
    """Whether any rank was asked to stop; all ranks agree on it."""
    balance: Balance | None = None
    """Of a mixture of experts."""


class Engine:
    def __init__(self, trial: Trial, recipe: Recipe, mesh: Mesh, *, ops: Ops | None = None, timers: Timers | None = None,
                 heartbeat: Heartbeat | None = None, comm: Comm | None = None, first_values: bool = True):
        """`ops`: what suits the device (`engine/fast`); by default plain torch. `first_values`: else weights are zero."""
        self.trial, self.recipe, self.mesh, self.ops = trial, recipe, mesh, ops or Ops()
        t, m, execution = trial.topology, trial.model, trial.execution
        dtype = compute_type(t.precision, self.ops.precisions)
        self.timers = comm.timers if comm is not None else timers or Timers(mesh.device.type)
        self.comm = comm or Comm(mesh, self.timers, heartbeat, check_order=recipe.check_order)
        if m.kv < t.tp:
            # Before anything else, on every rank alike: one without a layer would not ask for it.
            mesh.neighbours(t.tp // m.kv, mesh.tp, "kv")
        packs = trial.batch.documents is not None
        context = Context(m, t, self.comm, packs=packs) if t.cp > 1 or packs else None
        self.tp = TensorParallel(self.comm, sequence_parallel=t.sequence_parallel, direct=not execution.compile)
        heads = m.heads // t.tp
        positions = Positions(m, first_head=mesh.place.tp * heads, heads=heads, device=mesh.device, dtype=dtype,
                              context=context)
        self.shared = Shared(model=m, tp=self.tp, positions=positions, std=recipe.init_std, ops=self.ops,
                             recompute=t.recompute, selective=t.recompute == "selective" and not execution.compile,
                             experts=ExpertParallel(m, self.comm, self.tp) if m.mixture else None)
        self.chunks = [self._chunk(c, dtype, recipe.seed if first_values else None) for c in range(t.vp)]
        self.buckets: list[Bucket] = [b for c in self.chunks for b in dict.fromkeys(c.buckets.values())]
        OnTheWay(mesh.device, self.buckets)
        part = m.seq // t.cp // (t.tp if self.tp.sequence_parallel else 1)
        messages = Messages(self.comm, shape=(t.mbs, part, m.hidden), dtype=dtype)
        self.pipeline = Pipeline(self.chunks, messages, kind=t.schedule)
        self.optimizer = AdamW(self.buckets, recipe, mesh.device, execution=execution, one_pass=self.ops.update)
        self.loss_scale = LossScale(t.precision, recipe)
        self.feeder = Feeder(t, mesh, stretches=context.own if context else None,
                             ahead=any(c.stage.has_embedding or c.stage.has_head for c in self.chunks))
        self.stop_asked = False
        """Set by a signal; the next step's sum over the ranks carries it to all."""
        self.local_loss = 0.0
        """This rank's part of the last step's summed loss: where a NaN came from."""

    def _chunk(self, number: int, dtype: torch.dtype, seed: int | None) -> Chunk:
        t, execution = self.trial.topology, self.trial.execution
        split, stage_number = stages_of(self.trial.model, t), self.mesh.stage(number)
        first = sum(split[:stage_number])
        stage = Stage(self.shared, first=first, last=first + split[stage_number], has_embedding=stage_number == 0,
                      has_head=stage_number == len(split) - 1)
        if stage.has_head:
            stage.further.update({str(depth): Further(depth, self.shared) for depth in range(self.trial.model.mtp)})
        buckets = buckets_of(stage, comm=self.comm, dtype=dtype, moments=MOMENTS[execution.moments],
                             bucket_mib=execution.bucket_mib, seed=seed)
        if execution.compile:
            before_compiling()
        for name, block in (*stage.blocks(), *stage.further_blocks()):
            if execution.compile and block.experts is None:
                block.compile()
            if block.impl is not None:
                buckets[name].when_weights_change.append(block.impl.weights_changed)
        return Chunk(stage, buckets, full_recompute=t.recompute == "full",
                     logits_chunk=max(execution.logits_chunk, self.ops.logits_tokens))

    def step(self, number: int, *, first_sample: int, batches: Batches, poison: bool = False) -> StepResult:
        """Step 1, 2, …; `poison` makes the loss a NaN, for tests."""
        gbs, t = self.trial.batch.size_at(first_sample), self.trial.topology
        scale = self.loss_scale.value / (gbs * self.trial.model.seq)
        with self.timers("data"):
            plan = self.plan(gbs)
            for bucket in self.buckets:
                bucket.begin(self.microbatches(gbs))
            if self.shared.experts is not None:
                self.shared.experts.begin()
        total = self.pipeline.run(plan, self.feeder.feed(batches, first_sample), scale=scale,
                                  order=lambda rank: positions_in_plan(t, rank, self.microbatches(gbs)))
        self.comm.heartbeat.beat(phase="reduce")
        with self.timers("grad_reduce"):
            for bucket in self.buckets:
                bucket.finish()
            self._sum_tied()
        if poison:
            total = total * math.nan
            for bucket in self.buckets:
                bucket.reduced().fill_(math.nan)
        with self.timers("optimizer"):
            return self._update(number, total, gbs, lambda: self.feeder.prepare(batches, first_sample + gbs))

    def _sum_tied(self) -> None:
        """The embedding's gradient comes from two stages, when the last has a copy of it."""
        first, last = self.mesh.place.pp == 0, self.mesh.place.pp == self.mesh.pp.size - 1
        if (self.trial.model.ties or self.trial.model.mtp) and first != last:
            copy = "head" if self.trial.model.ties else "lookup"
            bucket = self.chunks[0].buckets["tokens"] if first else self.chunks[-1].buckets[copy]
            self.pipeline.messages.sum_tied(bucket.reduced())

    def _update(self, number: int, total: Tensor, gbs: int, meanwhile: Callable[[], None]) -> StepResult:
        self.comm.heartbeat.beat(phase="optimizer")
        squared = squared_norm(self.buckets, self.mesh.device, self.ops)
        # Each token's loss counts on one rank of a TP group; a loss that is not a number counts on whichever has it.
        counted = total.double() * float(self.mesh.place.tp == 0)
        experts, dropped = self.shared.experts, torch.zeros_like(squared)
        if experts is not None:
            # Each token passes the experts of one rank.
            counted, dropped = counted + experts.losses, experts.dropped.double()
        # One sum over all ranks carries all that they must agree on.
        sums = torch.stack((squared, counted, torch.full_like(squared, float(self.stop_asked)), dropped, counted))
        self.comm.all_reduce(sums[:4], self.mesh.world, timer="grad_reduce")
        norm = sums[0].sqrt()
        scale, lr = self.loss_scale.value, learning_rate(self.recipe, number)
        overflowed = (~norm.isfinite()).float()
        if experts is not None:
            sums = torch.cat((sums, experts.end(overflowed=overflowed)))
        self.optimizer.step(lr=lr, overflowed=overflowed,
                            divide_by=divisor(norm / scale, clip=self.recipe.clip, loss_scale=scale))
        for pending in [bucket.publish() for bucket in self.buckets]:
            pending.wait()
        for bucket in self.buckets:
            bucket.updated()
        self.ops.step_done()
        meanwhile()
        # Here, and nowhere before, the host waits for the device.
        squared_sum, loss_sum, stops, dropped_sum, self.local_loss, *figures = sums.tolist()
        grad_norm = math.sqrt(squared_sum) / scale if squared_sum >= 0 else math.nan
        skipped = not math.isfinite(grad_norm)
        self.loss_scale.update(overflowed=skipped)
        return StepResult(loss=loss_sum / (gbs * self.trial.model.seq), grad_norm=grad_norm, lr=lr, gbs=gbs, loss_scale=scale,
                          skipped=skipped, stop=stops > 0, balance=self._balance(gbs, dropped_sum, figures))

    def _balance(self, gbs: int, dropped: float, figures: list[float]) -> Balance | None:
        if self.shared.experts is None:
            return None
        least, most, excess = figures
        mean = gbs * self.trial.model.seq * self.shared.experts.top_k / self.shared.experts.experts
        return Balance(least=int(-least), mean=mean, most=int(most), dropped=int(dropped), excess=excess)

    def evaluate(self, batches: Batches, *, first_sample: int, samples: int) -> float:
        """The mean loss of some samples, forward alone."""
        plan = [a for a in self.plan(samples) if a.kind is Kind.FORWARD]
        total = self.pipeline.run(plan, self.feeder.feed(batches, first_sample), scale=None).double()
        if self.mesh.place.tp:
            total.zero_()
        self.comm.all_reduce(total, self.mesh.world, timer="evaluation")
        return total.item() / (samples * self.trial.model.seq)

    def take_pairs(self) -> int:
        """Pairs of queries and keys that this rank attended since the last call, in one layer; counted where documents are
        packed."""
        context = self.shared.positions.context
        if context is None:
            return 0
        found, context.attended = context.attended, 0
        return found

    def microbatches(self, gbs: int) -> int:
        return gbs // (self.trial.topology.dp * self.trial.topology.mbs)

    def plan(self, gbs: int) -> list[Action]:
        t = self.trial.topology
        return plan_of(t, self.mesh.place.pp, self.microbatches(gbs))

    def shards(self) -> list[Shard]:
        """All of the state that this rank holds."""
        found = list(iter_shards(self.buckets))
        first = self.mesh.rank % self.trial.topology.stage_ranks == 0
        for layer in self.shared.experts.layers if self.shared.experts is not None else ():
            if layer.correction is not None:
                found.append(whole_shard(f"{layer.at}.router.correction", layer.correction, primary=first))
        return found

    def loaded(self) -> None:
        """After shards were changed: the weights follow their masters."""
        for bucket in self.buckets:
            bucket.publish().wait()
