"""Bytes by part that one rank of this engine holds at its fullest, counted from the shapes alone.

    footprint(trial, rank=0).activations            rank: of the pipeline; the ranks of a stage are alike
    footprint(trial, rank=0).total

Each part is the peak of its own, as the engine's tracker reports them; the whole is at most their sum. Rows below are tokens x
hidden numbers: a GPT block keeps 16 of them (see `block_rows`).
"""
from __future__ import annotations

from dataclasses import dataclass

from seatrial import schedule
from seatrial.arith import layer
from seatrial.spec import BYTES, Execution, Model, Topology, Trial, round_up, stages_of

FP32 = 4
LOGITS_BYTES = 2**30


@dataclass(frozen=True, kw_only=True)
class Footprint:
    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    buffers: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.buffers


def footprint(trial: Trial, *, rank: int = 0, gpu: bool = False) -> Footprint:
    execution = trial.execution
    m, t = trial.model, trial.topology
    element = 2 if t.precision == "fp8" else BYTES[t.precision]
    state = _LocalState.of(m, t, execution, rank)
    mixed = element < FP32
    shards = t.dp if t.zero and t.dp > 1 else 1
    zero = t.zero if t.dp > 1 else 0
    own = state.flat // shards
    gathered = state.widest_pair * element if zero == 3 else 0
    # Moments, and what masters take beside the weights: on a GPU the 16 bits that these leave out.
    split = gpu and t.precision in ("bf16", "fp8") and execution.optimizer == "adamw-fused"
    states = 2 * BYTES[execution.moments] + ((FP32 - element if split else FP32) if mixed else 0)
    # Whole gradients with ZeRO 2 and 3 are those of the bucket that fills and of the one that travels.
    # On a GPU they stay in 16 bits where nothing is added to them.
    narrow = gpu and t.precision in ("bf16", "fp8") and t.dp == t.pp == trial.microbatches == 1 and not _cuts_sequence(t)
    gradients = own * FP32 + state.fullest_buckets * FP32 if zero >= 2 else state.flat * (element if narrow else FP32)
    # Eight bits beside the sixteen, as they are and transposed.
    eight = 2 * sum(stages_of(m, t)[rank :: t.pp]) * layer.matrices(m, t.tp) if t.precision == "fp8" else 0
    if m.ties and t.pp > 1 and shards == 1 and (state.has_head or rank == 0):
        # The two stages that hold the embedding exchange its gradients; a shard of them is never the fullest moment.
        gradients += m.padded_vocab(t.tp) // t.tp * m.hidden * FP32
    return Footprint(
        weights=(own if zero == 3 else state.flat) * element + gathered + eight,
        gradients=gradients,
        optimizer=own * states,
        activations=_activations(trial, rank, element, gpu=gpu),
        logits=_logits(m, t, execution, element, gpu=gpu) if state.has_head else 0,
        buffers=_buffers(m, t, element),
    )


def _cuts_sequence(t: Topology) -> bool:
    return t.sequence_parallel and t.tp > 1


# what the buckets hold


@dataclass(frozen=True, kw_only=True)
class _LocalState:
    flat: int
    """Numbers in all buckets, with what rounding adds."""
    widest_pair: int
    """Of two neighbouring units, the one in use and the one on its way (ZeRO 3)."""
    fullest_buckets: int
    """Of two neighbouring buckets."""
    has_head: bool

    @classmethod
    def of(cls, m: Model, t: Topology, execution: Execution, rank: int) -> _LocalState:
        split = stages_of(m, t)
        shards = t.dp if t.zero and t.dp > 1 else 1
        flat = pair = fullest = 0
        has_head = False
        for stage in range(rank, len(split), t.pp):
            first, last = stage == 0, stage == len(split) - 1
            has_head |= last
            units = _units(m, t.tp, layers=split[stage], first=first, last=last)
            alone = t.zero == 3
            buckets = [round_up(size, m.hidden * shards) for size in _buckets(units, execution.bucket_mib, alone=alone)]
            flat += sum(buckets)
            path = [round_up(size, m.hidden * shards) for name, size in units if name not in ("tokens", "head")]
            alone_sizes = [size for name, size in units if name in ("tokens", "head")]
            pair = max([pair, *(a + b for a, b in zip(path, path[1:] + [0])), *alone_sizes])
            # A tied matrix waits from the head's gradient to the embedding's.
            waiting = buckets.pop() if first and last and m.ties else 0
            fullest = max([fullest, *(a + b + waiting for a, b in zip(buckets, buckets[1:] + [0]))])
        return cls(flat=flat, widest_pair=pair, fullest_buckets=fullest, has_head=has_head)


def _units(m: Model, tp: int, *, layers: int, first: bool, last: bool) -> list[tuple[str, int]]:
    """(name, numbers) in the order of the forward pass; every parameter begins at a multiple of hidden."""
    rows = m.padded_vocab(tp) // tp * m.hidden

    def aligned(tensors: list[layer.Tensor]) -> int:
        return sum(round_up(tensor.numbers, m.hidden) for tensor in tensors)

    block, entry = aligned(layer.tensors(m, tp)), aligned(layer.entry(m))
    units = [("tokens", rows)] if first else []
    if first and entry:
        units.append(("entry", entry))
    units += [("layer", block)] * layers
    if last:
        units.append(("final_norm", layer.norm(m, m.hidden)))
        if not (m.ties and first):
            units.append(("head", rows))
    return units


def _buckets(units: list[tuple[str, int]], bucket_mib: float, *, alone: bool) -> list[int]:
    """Whole units from the last to the first until a bucket is full; the vocabulary's matrices have their own."""
    limit = bucket_mib * 2**20 / FP32
    found: list[int] = []
    open_bucket = False
    for name, size in reversed(units):
        own = name in ("tokens", "head")
        if own or alone or not open_bucket or found[-1] + size > limit:
            found.append(size)
        else:
            found[-1] += size
        open_bucket = not own
    return found


# what a micro-batch keeps


@dataclass(frozen=True, kw_only=True)
class BlockRows:
    """In rows of tokens x hidden numbers on one tensor-parallel rank."""

    kept: float
    """From a block's forward pass to its backward pass."""
    working: float
    """What the backward pass adds at its fullest: what it makes again, and gradients of the MLP's inner width."""
    gemms: float
    """Inputs and gradients of the four GEMMs, which a split backward pass keeps for the weights."""


def block_rows(m: Model, t: Topology, *, gpu: bool = False) -> BlockRows:
    """norm in and out twice, query-key-value, attention out, the MLP's inner width before and after its activation."""
    outside = 1 / t.tp if t.sequence_parallel else 1.0
    h = m.hidden
    qkv, rotated, context, up, inner = (width / h for width in layer.widths(m, t.tp))
    if gpu and t.precision == "fp32" and m.kv != m.heads:
        rotated += m.heads * m.seq / h / t.tp  # no fused kernel takes grouped heads in fp32: the scores are kept
    # Of each token: a number a head of attention, one or two of each norm, and one a head of a norm of queries and keys.
    small = (m.heads / t.tp + 2 * (1 + m.layernorm)) / h
    if m.normed_qk:
        small += (1 + m.layernorm) * (m.heads // t.tp + -(-m.kv // t.tp)) / h
    whole = 4 * outside + qkv + rotated + context + up + inner + small + (inner if m.gated and gpu else 0.0)
    kept = {"none": whole, "selective": whole - 2 * outside - inner, "full": outside}[t.recompute]
    # The gradient of the activation's output and, for a gated one, of its input with two GEMMs between.
    gradients = 4 * inner if m.gated else inner
    again = {"none": 0.0, "selective": inner, "full": whole - outside}[t.recompute]
    return BlockRows(kept=kept, working=again + gradients, gemms=2 * outside + 2 + qkv + context + up + inner)


def _activations(trial: Trial, rank: int, element: int, *, gpu: bool) -> int:
    m, t = trial.model, trial.topology
    split = stages_of(m, t)
    rows = block_rows(m, t, gpu=gpu)
    outside = 1 / t.tp if t.sequence_parallel else 1.0
    row_bytes = t.mbs * m.seq * m.hidden * element
    last = len(split) - 1
    splits = schedule.splits_backward(t.schedule)
    actions = schedule.schedule(t.schedule, pp=t.pp, rank=rank, microbatches=trial.microbatches, virtual=t.vp)
    # Weight gradients that are not fp32 themselves are made in 16 bits before they are added up.
    temporary = m.hidden * layer.widths(m, t.tp).up * element if element < FP32 else 0
    head = m.padded_vocab(t.tp) // t.tp * m.hidden * element if element < FP32 else 0
    held = peak = 0.0
    for action in actions:
        stage = action.chunk * t.pp + rank
        chunk = split[stage] * rows.kept + (outside if m.normed_embedding and stage == 0 else 0.0)
        # Before the head: the norm's input and output.
        chunk += 2 * outside if stage == last else 0.0
        deferred = split[stage] * rows.gemms if splits else 0.0
        if action.kind is schedule.Kind.FORWARD:
            held += chunk
            peak = max(peak, held * row_bytes)
        elif action.kind is schedule.Kind.BACKWARD:
            # The gradient that comes in, gathered where the sequence is cut. At the head the loss's gradient has come and the
            # norm's input is gone when the first block's backward pass begins.
            coming = 1.0 + (rows.working if split[stage] else 0.0) + (outside if _cuts_sequence(t) else 0.0)
            # What the weights' GEMMs wait for is not let go as the pass goes on.
            coming += m.inner / m.hidden / t.tp + 2 * outside if splits else 0.0
            peak = max(peak, (held + coming) * row_bytes + temporary)
            if stage == last:
                peak = max(peak, (held + 1) * row_bytes + head)
            held += deferred - chunk
        else:
            held -= deferred
    # Posted receives, and what was sent and perhaps not read yet.
    messages = 2 * outside * row_bytes if t.pp > 1 else 0.0
    return round(peak + messages)


def _logits(m: Model, t: Topology, execution: Execution, element: int, *, gpu: bool) -> int:
    """One chunk in fp32, beside its 16-bit form where there is one; on a GPU in 16 bits that form alone, a GiB at most."""
    tokens = min(execution.logits_chunk, t.mbs * m.seq)
    if gpu and element < FP32:
        fit = LOGITS_BYTES // (element * m.padded_vocab(t.tp) // t.tp)
        tokens = min(max(execution.logits_chunk, 2 ** max(0, fit.bit_length() - 1)), t.mbs * m.seq)
        return tokens * (m.padded_vocab(t.tp) // t.tp) * element
    return tokens * (m.padded_vocab(t.tp) // t.tp) * (FP32 + (element if element < FP32 else 0))


def _buffers(m: Model, t: Topology, element: int) -> int:
    if m.alibi:
        return m.heads // t.tp * m.seq * m.seq * element
    return m.seq * m.head_size * element if m.rope else 0
