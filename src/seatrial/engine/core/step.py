"""One training step on this rank: the model laid out, the schedule run, gradients reduced, weights updated.

    engine = Engine(trial, training, mesh)
    result = engine.step(1, first_sample=0, batches=batches)        result.loss, result.grad_norm

The host waits for the device once a step, at its end.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend

from seatrial.engine.core.attention import Positions
from seatrial.engine.core.comm import Comm, TensorParallel
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.messages import Messages
from seatrial.engine.core.model import Shared, Stage
from seatrial.engine.core.optim import MOMENTS, AdamW, divisor, learning_rate, squared_norm
from seatrial.engine.core.params import spec_of
from seatrial.engine.core.pipeline import Chunk, Feed, Pipeline
from seatrial.engine.core.precision import LossScale, compute_type
from seatrial.engine.core.state import Shard, iter_shards
from seatrial.engine.core.zero import Bucket, stay_alone
from seatrial.engine.fast import fp8
from seatrial.engine.fast.attention_backend import BACKENDS, fastest
from seatrial.engine.fast.choices import Choices, fusable
from seatrial.engine.fast.fused8 import Fused8
from seatrial.engine.fast.kernels import Kernels, choose, plain_kernels
from seatrial.engine.fast.kernels.slot import Scales
from seatrial.engine.fast.product_forms import forms_of
from seatrial.engine.fast.products import Products, measured, wide_products_work
from seatrial.engine.io.data import Batches
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.engine.watch.timers import Timers
from seatrial.schedule import Action, Kind, schedule
from seatrial.spec import Trial, stages_of
from seatrial.training import Training

OWN_BUCKET = ("tokens", "head")
"""The vocabulary's matrices: as large as many layers, and the tied ones must lie alike on first and last stage."""


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


class Engine:
    def __init__(self, trial: Trial, training: Training, mesh: Mesh, *, timers: Timers | None = None,
                 heartbeat: Heartbeat | None = None, comm: Comm | None = None, choices: Choices | None = None):
        """`choices`: what a benchmark or a test switches on and off; by default what suits the device."""
        self.trial, self.training, self.mesh = trial, training, mesh
        t, m = trial.topology, trial.model
        dtype = compute_type(t.precision)
        if t.precision == "fp8":
            fp8.check(mesh.device, m, t, compiled=trial.execution.compile, anywhere=choices is not None)
        self.choices = choices or Choices.of(mesh.device, precision=t.precision, compiled=trial.execution.compile)
        self.notes: dict[str, str] = {}
        """What was chosen on this device, and why."""
        self.timers = comm.timers if comm is not None else timers or Timers(mesh.device.type)
        self.comm = comm or Comm(mesh, self.timers, heartbeat, check_order=training.check_order)
        if m.kv < t.tp:
            # Before anything else, on every rank alike: one without a layer would not ask for it.
            mesh.neighbours(t.tp // m.kv)
        self.tp = TensorParallel(self.comm, sequence_parallel=t.sequence_parallel, direct=not trial.execution.compile)
        heads = m.heads // t.tp
        positions = Positions(m, first_head=mesh.tp_rank * heads, heads=heads, device=mesh.device, dtype=dtype)
        self.kernels = self._kernels(dtype)
        self.scales = Scales(mesh.device) if t.precision == "fp8" else None
        self.products = self._products(dtype)
        self.shared = Shared(model=m, tp=self.tp, positions=positions, std=training.init_std,
                             selective=t.recompute == "selective" and not trial.execution.compile, fused=self.choices.fused,
                             recompute=t.recompute, kernels=self.kernels or plain_kernels(), products=self.products,
                             scales=self.scales,
                             attention=self._attention(positions, heads, dtype),
                             fast_accumulation=self.choices.fast_accumulation,
                             residual_in_product=self.choices.residual_in_product)
        self.chunks = [self._chunk(c, dtype) for c in range(t.vp)]
        self.buckets: list[Bucket] = [b for c in self.chunks for b in dict.fromkeys(c.buckets.values())]
        travelling: list[Bucket] = []
        for bucket in self.buckets:
            bucket.travelling = travelling
        part = m.seq // t.tp if self.tp.sequence_parallel else m.seq
        messages = Messages(self.comm, shape=(t.mbs, part, m.hidden), dtype=dtype)
        self.pipeline = Pipeline(self.chunks, messages, kind=t.schedule)
        self.optimizer = AdamW(self.buckets, training, mesh.device, self.kernels or self._update_alone(),
                               trial.execution)
        self.loss_scale = LossScale(t.precision, training)
        self._prepared: tuple[Batches, int, tuple[Tensor, Tensor]] | None = None
        self.stop_asked = False
        """Set by a signal; the next step's sum over the ranks carries it to all."""
        self.local_loss = 0.0
        """This rank's part of the last step's summed loss: where a NaN came from."""

    def _kernels(self, dtype: torch.dtype) -> Kernels | None:
        """None: the loss and the optimizer are those of plain torch, in fp32."""
        if self.choices.wide_products and not wide_products_work(self.mesh.device, dtype):
            self.choices = replace(self.choices, wide_products=False)
            self.notes["products"] = "weight gradients are rounded to 16 bits before they are added up: this torch has no other"
        splits = self.choices.split_masters and dtype == torch.bfloat16 and self.trial.execution.optimizer == "adamw-fused"
        self.choices = replace(self.choices, split_masters=splits)
        if not self.choices.triton and not self.choices.narrow_gradients and not splits:
            return None
        if not self.choices.triton:
            return plain_kernels("not asked for")
        return self._chosen(dtype, eight=self.trial.topology.precision == "fp8")

    def _update_alone(self) -> Kernels | None:
        """A GPU in fp32 has torch's kernels, but none of torch's updates takes moments in 16 bits beside masters in 32."""
        if self.trial.execution.moments == "fp32" or self.mesh.device.type != "cuda":
            return None
        return self._chosen(torch.float32, only=("adamw",))

    def _chosen(self, dtype: torch.dtype, **which: Any) -> Kernels:
        kernels = choose(self.mesh.device, dtype, hidden=self.trial.model.hidden, moments=MOMENTS[self.trial.execution.moments],
                         **which)
        self.notes.update({f"kernel {name}": note for name, note in kernels.notes.items()})
        return kernels

    def _products(self, dtype: torch.dtype) -> Products:
        """The fastest kernel for each of the products of fused blocks and of the head."""
        t, m = self.trial.topology, self.trial.model
        if self.choices.products == "library" or not self.choices.fused or not fusable(m):
            return Products()
        narrow = self.choices.narrow_gradients and stay_alone(self.microbatches(self.trial.batch.gbs), self.mesh,
                                                              sums_over_tp=self.tp.sequence_parallel)
        forms = forms_of(m, t, dtype, gradients=dtype if narrow else torch.float32 if self.choices.wide_products else None,
                         onto=t.tp == 1 and self.choices.residual_in_product, logits_chunk=self._logits_chunk(),
                         fast=self.choices.fast_accumulation)
        products, self.notes["kernels of products"] = measured(forms, self.mesh.device)
        return products

    def _attention(self, positions: Positions, heads: int, dtype: torch.dtype) -> SDPBackend | None:
        """The fastest of SDPA's kernels on this shape; None leaves it to torch."""
        m, t, choice = self.trial.model, self.trial.topology, self.choices.attention
        if choice == "default" or m.kv != m.heads:
            return None
        if choice != "measured":
            return BACKENDS[choice]
        backend, took_s = fastest(batch=t.mbs, seq=m.seq, heads=heads, head_dim=m.head_size, dtype=dtype, bias=positions.bias,
                                  device=self.mesh.device)
        self.notes["attention"] = ", ".join(f"{name} {1e3 * s:.2f} ms" for name, s in took_s.items()) or "nothing to choose"
        return backend

    def _logits_chunk(self) -> int:
        """Tokens whose logits are made at once: few leave a large device idle in the product back to the hidden size."""
        t = self.trial.topology
        fit = self.choices.logits_bytes // (2 * self.trial.model.padded_vocab(t.tp) // t.tp)
        return max(self.trial.execution.logits_chunk, 2 ** (fit.bit_length() - 1) if fit else 0)

    def _chunk(self, number: int, dtype: torch.dtype) -> Chunk:
        t = self.trial.topology
        split, stage_number = stages_of(self.trial.model, t), self.mesh.stage(number)
        first = sum(split[:stage_number])
        stage = Stage(self.shared, first=first, last=first + split[stage_number], has_embedding=stage_number == 0,
                      has_head=stage_number == len(split) - 1)
        buckets = self._buckets(stage, dtype)
        if self.trial.execution.compile:
            for block in stage.layers.values():
                block.compile()
        for name, block in stage.layers.items():
            if isinstance(block.fused, Fused8):
                buckets[f"layers.{name}"].when_weights_change.append(block.fused.drop_weights)
        return Chunk(stage, buckets, full_recompute=t.recompute == "full", logits_chunk=self._logits_chunk(),
                     kernels=self.kernels)

    def _buckets(self, stage: Stage, dtype: torch.dtype) -> dict[str, Bucket]:
        """Whole units until a bucket is full, in the order in which their gradients come; alone with ZeRO 3."""
        limit = self.trial.execution.bucket_mib * 2**20 / 4
        groups: list[list[tuple[str, nn.Module]]] = []
        held = 0.0
        for name, unit in reversed(stage.units()):
            size = sum(math.prod(spec_of(p).shape) for p in unit.parameters())
            alone = name in OWN_BUCKET or self.trial.topology.zero == 3
            if not groups or alone or groups[-1][0][0] in OWN_BUCKET or held + size > limit:
                groups.append([])
                held = 0.0
            groups[-1].append((name, unit))
            held += size
        found: dict[str, Bucket] = {}
        for group in groups:
            params = [p for _, unit in group for p in unit.parameters()]
            bucket = Bucket(group[-1][0], params, hidden=self.trial.model.hidden, zero=self.trial.topology.zero, comm=self.comm,
                            dtype=dtype, sums_over_tp=self.tp.sequence_parallel, choices=self.choices, products=self.products,
                            moments=MOMENTS[self.trial.execution.moments])
            bucket.initialize(self.training.seed)
            found.update({name: bucket for name, _ in group})
        path = [found[name] for name, _ in stage.path() if name != "tokens"]
        for before, bucket, after in zip([None, *path], path, [*path[1:], None]):
            bucket.neighbours = (after, before)
        return found

    def step(self, number: int, *, first_sample: int, batches: Batches, poison: bool = False) -> StepResult:
        """Step 1, 2, …; `poison` makes the loss a NaN, for tests."""
        gbs = self.trial.batch.size_at(first_sample)
        scale = self.loss_scale.value / (gbs * self.trial.model.seq)
        with self.timers("data"):
            plan = self.plan(gbs)
            for bucket in self.buckets:
                bucket.begin(self.microbatches(gbs))
        total = self.pipeline.run(plan, self.feed(batches, first_sample), scale=scale,
                                  order=lambda rank: self._places(gbs, rank))
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
            return self._update(number, total, gbs, lambda: self._prepare(batches, first_sample + gbs))

    def _sum_tied(self) -> None:
        """The embedding's gradient comes from two stages, when the head is its copy."""
        first, last = self.mesh.pp_rank == 0, self.mesh.pp_rank == self.mesh.pp.size - 1
        if self.trial.model.ties and first != last:
            bucket = self.chunks[0].buckets["tokens"] if first else self.chunks[-1].buckets["head"]
            self.pipeline.messages.sum_of_ends(bucket.reduced())

    def _update(self, number: int, total: Tensor, gbs: int, meanwhile: Callable[[], None]) -> StepResult:
        self.comm.heartbeat.beat(phase="optimizer")
        squared = squared_norm(self.buckets, self.mesh.device, self.kernels)
        # Each token's loss counts on one rank of a TP group; a loss that is not a number counts on whichever has it.
        counted = total.double() * float(self.mesh.tp_rank == 0)
        # One sum over all ranks carries all that they must agree on.
        sums = torch.stack((squared, counted, torch.full_like(squared, float(self.stop_asked)), counted))
        self.comm.all_reduce(sums[:3], self.mesh.world, timer="grad_reduce")
        norm = sums[0].sqrt()
        scale, lr = self.loss_scale.value, learning_rate(self.training, number)
        overflowed = (~norm.isfinite()).float()
        self.optimizer.step(lr=lr, overflowed=overflowed,
                            divide_by=divisor(norm / scale, clip=self.training.clip, loss_scale=scale))
        for pending in [bucket.publish() for bucket in self.buckets]:
            pending.wait()
        for bucket in self.buckets:
            bucket.updated()
        if self.scales is not None:
            self.scales.update()
        meanwhile()
        # Here, and nowhere before, the host waits for the device.
        squared_sum, loss_sum, stops, self.local_loss = sums.tolist()
        grad_norm = math.sqrt(squared_sum) / scale if squared_sum >= 0 else math.nan
        skipped = not math.isfinite(grad_norm)
        self.loss_scale.update(overflowed=skipped)
        return StepResult(loss=loss_sum / (gbs * self.trial.model.seq), grad_norm=grad_norm, lr=lr, gbs=gbs, loss_scale=scale,
                          skipped=skipped, stop=stops > 0)

    def evaluate(self, batches: Batches, *, first_sample: int, samples: int) -> float:
        """The mean loss of some samples, forward alone."""
        plan = [a for a in self.plan(samples) if a.kind is Kind.FORWARD]
        total = self.pipeline.run(plan, self.feed(batches, first_sample), scale=None).double()
        if self.mesh.tp_rank:
            total.zero_()
        self.comm.all_reduce(total, self.mesh.world, timer="evaluation")
        return total.item() / (samples * self.trial.model.seq)

    def microbatches(self, gbs: int) -> int:
        return gbs // (self.trial.topology.dp * self.trial.topology.mbs)

    def plan(self, gbs: int) -> list[Action]:
        t = self.trial.topology
        return _plan(t.schedule, t.pp, self.mesh.pp_rank, self.microbatches(gbs), t.vp)

    def _places(self, gbs: int, rank: int) -> dict[Action, int]:
        t = self.trial.topology
        return _places(t.schedule, t.pp, rank, self.microbatches(gbs), t.vp)

    def feed(self, batches: Batches, first_sample: int) -> Feed:
        t = self.trial.topology

        def microbatch(number: int) -> tuple[Tensor, Tensor]:
            first = first_sample + (number * t.dp + self.mesh.dp_rank) * t.mbs
            prepared, self._prepared = self._prepared, None
            return prepared[2] if prepared is not None and prepared[:2] == (batches, first) else self._load(batches, first)

        return microbatch

    def _load(self, batches: Batches, first: int) -> tuple[Tensor, Tensor]:
        tokens, targets = batches.microbatch(first, self.trial.topology.mbs)
        if self.mesh.device.type == "cuda":
            # From pageable memory the copy would wait for the device.
            tokens, targets = tokens.pin_memory(), targets.pin_memory()
        return tokens.to(self.mesh.device, non_blocking=True), targets.to(self.mesh.device, non_blocking=True)

    def _prepare(self, batches: Batches, first_sample: int) -> None:
        """The next step's first micro-batch, while the device still works on this one's: it then starts at once."""
        if self.mesh.device.type == "cuda" and any(c.stage.has_embedding or c.stage.has_head for c in self.chunks):
            first = first_sample + self.mesh.dp_rank * self.trial.topology.mbs
            self._prepared = batches, first, self._load(batches, first)

    def shards(self) -> list[Shard]:
        """All of the state that this rank holds."""
        return list(iter_shards(self.buckets))

    def loaded(self) -> None:
        """After shards were changed: the weights follow their masters."""
        for bucket in self.buckets:
            bucket.publish().wait()


@lru_cache(maxsize=64)
def _plan(kind: str, pp: int, rank: int, microbatches: int, virtual: int) -> list[Action]:
    return schedule(kind, pp=pp, rank=rank, microbatches=microbatches, virtual=virtual)


@lru_cache(maxsize=64)
def _places(kind: str, pp: int, rank: int, microbatches: int, virtual: int) -> dict[Action, int]:
    return {action: place for place, action in enumerate(_plan(kind, pp, rank, microbatches, virtual))}
