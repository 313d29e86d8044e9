"""One training iteration from its parts, for many configurations at once.

    parts = step.measure(configs, cluster)              seconds of each part, nothing added up yet
    step.assemble(parts, coefficients)                  the iteration; calibration calls this alone
    step.time(configs, cluster).sec                     both, in bounded memory

A micro-batch passes each stage forward and backward; the slowest stage sets the pace, the others are filled and drained once,
and then gradients travel and the optimizer runs. Every byte and every operation below is counted as Megatron's layers do them.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial.arith.experts import expert_tensors, rest_split, rest_whole
from seatrial.arith.layer import norm, numbers, tensors
from seatrial.arith.layout import FP32
from seatrial.plan import experts, facts, network
from seatrial.plan.configs import PRECISIONS, RECOMPUTE, SPLITS, Configs, Floats, Ints, execution_at
from seatrial.plan.kernels import Machine, copy_s
from seatrial.plan.layer import Cost, embedding, expert_layer, further, head, layer
from seatrial.plan.network import Copies
from seatrial.schedule.vector import Layouts, makespans_of
from seatrial.spec import BYTES, Cluster

CHUNK = 16_384
"""Configurations worked on at once: columns that stay in cache."""

FULL = RECOMPUTE.index("full")
FP8 = PRECISIONS.index("fp8")
FIRST, MIDDLE, LAST = range(3)

class Shape(NamedTuple):
    """What decides which kernels a library picks for a layer. 0 stands for any value."""

    hidden: int
    heads: int
    seq: int
    """Tokens of a sequence on one rank."""
    tp: int
    mbs: int

    def of(self, c: Configs) -> NDArray[np.bool_]:
        """Which configurations have it."""
        same = np.ones(len(c), dtype=bool)
        for name, value in self._asdict().items():
            if value:
                same &= getattr(c, "stretch" if name == "seq" else name) == value
        return same


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """Multipliers of the cold model, all 1 when nothing was learned."""

    compute: Floats | float = 1.0
    """GEMMs and attention of the layers."""
    head: float = 1.0
    """Logits and loss on the last stage."""
    memory: float = 1.0
    """Kernels that only move memory."""
    tensor: float = 1.0
    """Collectives of tensor and context parallelism."""
    pipeline: float = 1.0
    """Messages between pipeline stages."""
    gradients: float = 1.0
    """Traffic of data parallelism: gradients, and what ZeRO gathers."""
    launch: float = 1.0
    """What starting kernels costs."""
    whole: Floats | float = 1.0
    """Everything: the session's and the environment's factor, one for all or one a configuration."""
    waiting: float = 0.0
    """By how much the logarithm grows with each doubling of DP: replicas wait for the slowest of them."""
    shapes: tuple[tuple[Shape, float], ...] = ()
    """Further factors of `compute` for layers of one shape."""
    covariance: Floats | None = None
    """Of the logarithms, in the order of NAMES; None before anything was learned: SPREAD on the diagonal."""
    noise: float = 0.0
    """What a single iteration adds: half of the 90 % interval of its logarithm."""


COLD = Coefficients()

SPREAD = {"compute": 0.10, "head": 0.25, "memory": 0.25, "tensor": 0.30, "pipeline": 0.40,
          "gradients": 0.40, "launch": 0.60, "whole": 0.08}
"""How sure the cold model is of each coefficient: the standard deviation of its logarithm. GEMMs are known within a
tenth (published sustained rates of one GPU type differ by that much), links between nodes hardly (a third to all of the
nominal rate)."""

SPREAD_CPU = {"compute": 0.45, "head": 0.45, "memory": 0.45, "tensor": 0.50, "pipeline": 0.60,
              "gradients": 1.50, "launch": 0.60, "whole": 0.20}
"""CPU libraries, thread pools and allocators differ far more than GPU libraries do; what reducing gradients costs through a
general message library is anybody's guess."""

SCALES = {"matmul": "compute", "attention": "compute", "logits": "head", "memory": "memory", "accumulate": "memory",
          "embedding": "memory", "tensor": "tensor", "exchange": "tensor", "p2p": "pipeline", "launch": "launch",
          "gradients": "gradients", "optimizer": "memory", "fixed": "launch", "experts": "compute", "wait": "compute",
          "dispatch": "tensor"}
"""Which coefficient scales which part."""

NAMES = ("compute", "head", "memory", "tensor", "pipeline", "gradients", "launch", "whole")

Z90 = 1.6449


class Hidden(NamedTuple):
    """Traffic that may travel beside computation."""

    traffic: Floats
    forward: Floats
    """Share of an iteration's forward passes behind which it may …"""
    backward: Floats
    """… and of its backward passes."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Seconds, before anything is added up. Arrays of [n], or [3, n] for the first, fullest middle and last pipeline rank."""

    configs: Configs
    layer: dict[str, Cost]
    """One layer, one micro-batch, by part …"""
    expert_layer: dict[str, Cost]
    """… and one with experts; nothing where no model has any."""
    head: Cost
    embedding: Cost
    send: Floats
    """One message between two stages."""
    gradients: Floats
    """Traffic of data parallelism, an iteration, that nothing hides …"""
    hidden: tuple[Hidden, ...]
    """… and what may hide."""
    shown: Floats
    """Share of what hides that shows in any case …"""
    contention: Floats
    """… and by which it slows what it hides behind."""
    optimizer: Floats
    fixed: Floats
    gpu: bool
    probed: bool
    """Whether a machine file stands behind it, and …"""
    unsteady: float
    """… the noise of its figures."""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """What one micro-batch takes on any stage, from its parts: arrays are [2, n], forward and the whole backward pass."""

    configs: Configs
    layer: Floats
    expert_layer: Floats
    embedding: Floats
    """On the first stage …"""
    head: Floats
    """… and on the last."""
    message: Floats
    """[n]: either way. Sends and receives block: a stage waits for two in each direction, an end of the model for one."""

    @classmethod
    def join(cls, pieces: Sequence[Stages]) -> Stages:
        return cls(configs=Configs.join([piece.configs for piece in pieces]),
                   **{name: np.concatenate([getattr(piece, name) for piece in pieces], axis=-1)
                      for name in ("layer", "expert_layer", "embedding", "head", "message")})

    def seconds(self, rows: Ints) -> tuple[Floats, Floats]:
        """[stages, rows] forward, and backward, of rows that have as many stages."""
        codes, back = np.unique(self.configs.split[rows], return_inverse=True)
        layers = np.array([SPLITS[code] for code in codes], dtype=np.float64).T.take(back, axis=1)
        routed = experts.of_stages(self.configs.take(rows), layers) if self.configs.experts.any() else None
        messages = np.full(len(layers), 2.0 if len(layers) > 1 else 0.0)
        messages[[0, -1]] /= 2
        found = []
        for way in (0, 1):
            seconds = layers * self.layer[way, rows] + messages[:, None] * self.message[rows]
            if routed is not None:
                seconds += routed * (self.expert_layer - self.layer)[way, rows]
            seconds[0] += self.embedding[way, rows]
            seconds[-1] += self.head[way, rows]
            found.append(seconds)
        return found[0], found[1]

    def makespans(self) -> Floats:
        """[n]: from the first forward to the last backward, as `schedule.walk` has it. What is alike is worked out once."""
        c, m = self.configs, self.configs.microbatches
        routed = [self.expert_layer, [c.dense_layers, c.expert_every]] if c.experts.any() else []
        what = np.concatenate([[c.schedule, c.pp, c.vp, c.split, m], self.layer, self.embedding, self.head,
                               self.message[None], *routed])
        # Weights without a pattern, and no import of numpy.random for them (17 ms): that equal sums mean equal rows is checked.
        mixed = np.sin(np.arange(1, len(what) + 1)) @ what
        _, first, back = np.unique(mixed, return_index=True, return_inverse=True)
        if not np.array_equal(what[:, first[back]], what):
            first = back = np.arange(len(c))
        groups = list(c.by_schedule(first))
        span = np.empty(len(first))
        for (*_, group), seconds in zip(groups, makespans_of([
            Layouts(kind, pp, virtual, m[first[group]], *self.seconds(first[group])) for kind, pp, virtual, group in groups
        ])):
            span[group] = seconds
        return span[back]


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """An iteration."""

    sec: Floats
    parts: dict[str, Floats]
    """Seconds by part on the slowest pipeline rank; `bubble` is its waiting. They add up to `sec`."""
    lo: Floats
    """The 90 % interval."""
    hi: Floats
    stages: Stages | None = field(default=None, repr=False)
    """What one micro-batch takes, for the picture."""


def time(configs: Configs, cluster: Cluster, coefficients: Coefficients = COLD) -> StepTime:
    if len(configs) <= CHUNK:
        return assemble(measure(configs, cluster), coefficients)
    # The physics runs in pieces that stay in cache; the pipeline over all of them, since a schedule is the better shared.
    every = [slice(start, start + CHUNK) for start in range(0, len(configs), CHUNK)]
    measured = [measure(configs.take(rows), cluster) for rows in every]
    span = Stages.join([_stages(p, _scales(p.configs, coefficients)) for p in measured]).makespans()
    whole = coefficients.whole
    pieces = []
    for rows, p in zip(every, measured):
        mine = coefficients if isinstance(whole, float | int) else replace(coefficients, whole=whole[rows])
        pieces.append(assemble(p, mine, span[rows]))
    names = dict.fromkeys(name for piece in pieces for name in piece.parts)
    return StepTime(
        sec=np.concatenate([p.sec for p in pieces]), lo=np.concatenate([p.lo for p in pieces]),
        hi=np.concatenate([p.hi for p in pieces]),
        parts={name: np.concatenate([p.parts.get(name, np.zeros(len(p.sec))) for p in pieces]) for name in names},
    )


def stages(c: Configs, cluster: Cluster, k: Coefficients = COLD) -> Stages:
    """What one micro-batch takes on the stages, before anything is scheduled."""
    return _stages(measure(c, cluster), _scales(c, k))


def measure(c: Configs, cluster: Cluster) -> Parts:
    machine = Machine.of(c, cluster)
    fact = facts.timed(c, machine)
    boundary = c.tokens * c.hidden * machine.element_bytes
    send = network.send_s(c, cluster, boundary)
    # The receiver puts the slices of the tensor-parallel ranks together again, unless each goes on with its own.
    whole = (c.pp > 1) & ~facts.cuts_sequence(c)
    send = send + np.where(whole, network.gather_s(cluster, network.tensor_group(c), boundary), 0.0)
    send = send * np.where(c.vp > 1, fact("messages_exposed_interleaved"), fact("messages_exposed"))
    gradients, hidden = _gradients(c, cluster, machine)
    stepped = dense_parameters(c).max(axis=0) / np.where(c.zero >= 1, c.shards, 1)
    if c.experts.any():
        stepped = stepped + expert_parameters(c).max(axis=0) / np.where(c.zero >= 1, Copies.of_experts(c).state, 1)
    each_s = machine.optimizer_s
    if each_s is None:
        each_s = (fact("optimizer_bytes") - (_spared_by_moments(c) if machine.gpu else 0.0)) / machine.memory_bytes_s
    dense, routed, top = layer(c, cluster, machine), expert_layer(c, cluster, machine), head(c, cluster, machine)
    return Parts(
        configs=c, layer=dense, expert_layer=routed, head=further(c, machine, top, dense, routed),
        embedding=embedding(c, cluster, machine), send=send, gradients=gradients, hidden=hidden,
        shown=np.broadcast_to(fact("exposed"), len(c)),
        contention=np.broadcast_to(fact("contention"), len(c)), optimizer=stepped * each_s,
        fixed=np.broadcast_to(fact("fixed_s"), len(c)) if machine.fixed_s is None else machine.fixed_s, gpu=machine.gpu,
        probed=machine.figures is not None, unsteady=0.0 if machine.figures is None else machine.figures.noise,
    )


def _spared_by_moments(c: Configs) -> Floats:
    """Bytes of the update that narrower moments need not read and write: two of them, both ways. A CPU widens them first."""
    codes, which = np.unique(c.execution, return_inverse=True)
    return np.array([4.0 * (FP32 - BYTES[execution_at(code).moments]) for code in codes.tolist()])[which]


def stage_parameters(c: Configs) -> Floats:
    """[3, n]: parameters on one process of the first rank, the fullest in between and the last."""
    return dense_parameters(c) + expert_parameters(c)


def dense_parameters(c: Configs) -> Floats:
    """The same without experts, whose copies lie elsewhere …"""
    each = numbers(tensors(c, c.tp))
    words = c.vocab / c.tp * c.hidden
    # An embedding's norm is far below what a forecast can tell.
    positions = c.learned * c.seq * c.hidden
    final = norm(c, c.hidden)
    one = c.pp == 1
    first, middle, last = (depth * each for depth in (c.first_layers, c.middle_layers, c.last_layers))
    if c.experts.any():
        beside = numbers([*rest_split(c, c.tp), *rest_whole(c)]) - each
        first, middle, last = (own + depth * beside for own, depth in zip((first, middle, last), experts.depths(c)))
    first = first + words + positions
    last = last + words + final
    first = np.where(one, first + final + np.where(c.ties == 1, 0, words), first)
    found = np.stack([first, middle, np.where(one, first, last)])
    if not c.mtp.any():
        return found
    # A layer, three norms, and what joins it with the next token's embedding, of which the last stage has a copy.
    block = np.where(c.experts > 0, numbers([*rest_split(c, c.tp), *rest_whole(c)]), each)
    copy = np.where((c.ties == 1) | one | (c.mtp == 0), 0, words) * np.array([[0], [0], [1]])
    return found + c.further * (block + 2 * c.hidden * c.hidden / c.tp + 3 * norm(c, c.hidden)) + copy


def expert_parameters(c: Configs) -> Floats:
    """… and theirs."""
    if not c.experts.any():
        return np.zeros((3, len(c)))
    return (experts.depths(c) + c.further) * numbers(expert_tensors(c, c.ep, c.expert_tp))


def _gradients(c: Configs, cluster: Cluster, machine: Machine) -> tuple[Floats, tuple[Hidden, ...]]:
    """Seconds of data-parallel traffic an iteration: what nothing hides, and what may hide."""
    exposed, hidden = _traffic(c, cluster, machine, dense_parameters(c), Copies.of(c))
    if c.experts.any():
        more, others = _traffic(c, cluster, machine, expert_parameters(c), Copies.of_experts(c))
        has = c.experts > 0
        exposed = exposed + has * more
        hidden = tuple(one._replace(traffic=one.traffic + has * other.traffic) for one, other in zip(hidden, others))
    tied = network.all_reduce_s(cluster, network.embedding_group(c), c.vocab / c.tp * c.hidden * _wire(c, machine))
    return exposed + np.where((c.pp > 1) & (c.ties == 1), tied, 0.0), hidden


def _wire(c: Configs, machine: Machine) -> Floats:
    """Bytes of a gradient on its way."""
    each = facts.gradient_bytes(c, "reduce_bytes") if machine.gpu else facts.timed(c, machine)("reduce_bytes")
    return np.minimum(each * machine.element_bytes / 2, 4.0)


def _traffic(c: Configs, cluster: Cluster, machine: Machine, parameters: Floats, copies: Copies
             ) -> tuple[Floats, tuple[Hidden, ...]]:
    """Of parameters that these ranks hold copies of.

    ZeRO 1: a reduce-scatter and an all-gather, the two halves of an all-reduce. ZeRO 2 reduces after each micro-batch, unless a
    pipeline makes it wait for the last. ZeRO 3 gathers the weights for each forward and each backward as well. Groups that
    shard apart from each other (HSDP) add up their shards after every reduction. Context parallelism counts as data here.
    """
    fact = facts.timed(c, machine)
    shards, held = copies.gradients, copies.weights
    group, replicas = copies.group(c, shards), copies.replicas(c, shards, copies.ranks)
    weights, states = copies.group(c, held), copies.group(c, copies.state)
    full = machine.element_bytes / 2
    most = parameters.max(axis=0)
    reduced = most * _wire(c, machine)
    gathered = most * np.where(c.precision == FP8, fact("fp8_gather_bytes"), fact("gather_bytes")) * full
    m = c.microbatches
    buckets = np.maximum(np.ceil(most / 5e8), 1)
    pieces = np.ceil(c.layers / c.pp * fact("messages_per_layer"))
    across = network.all_reduce_s(cluster, replicas, reduced / shards, buckets)
    scatter = np.where(facts.of(c, "reduces_whole"), network.all_reduce_s(cluster, group, reduced, buckets),
                       network.gather_s(cluster, group, reduced, buckets)) + across
    collect = network.gather_s(cluster, states, gathered, buckets)
    reductions = np.where((c.pp > 1) | ~np.asarray(facts.of(c, "reduces_each_microbatch")), 1, m)
    # ZeRO 3, layer by layer. A pipeline that keeps its weights gathered fetches them once.
    keeps = np.asarray(facts.of(c, "pipeline_unshards")) & (c.pp > 1)
    passes = np.where((c.recompute == FULL) & np.asarray(facts.of(c, "gathers_again")), 3, 2) * m
    each_fetch = network.gather_s(cluster, weights, gathered, pieces)
    fetch = np.where(keeps, 1, passes) * each_fetch
    if (held < copies.state).any():
        # Groups of their own get them from where the optimizer's state lies.
        far = m * (network.gather_s(cluster, states, gathered, pieces) - each_fetch)
        dealt = network.gather_s(cluster, copies.replicas(c, held, copies.state), gathered / held, buckets)
        fetch = fetch + np.where(held < copies.state, np.where(facts.of(c, "forward_gathers_all"), far, dealt), 0.0)
    piecewise = np.where(keeps, 1, m) * (network.gather_s(cluster, group, reduced, pieces) + across)

    every = network.all_reduce_s(cluster, copies.group(c, copies.ranks), reduced, buckets)
    zero1, sharded = c.zero == 1, c.zero >= 2
    reduce = np.select([c.zero == 0, zero1, c.zero == 2], [every, scatter, reductions * scatter], default=piecewise)
    gather = np.select([c.zero == 0, c.zero < 3], [0.0, collect], default=fetch)
    copied = np.where(keeps, 1, m) * copy_s(machine, most * fact("shard_copy_bytes") * full)
    exposed = np.where((c.zero == 3) & (held > 1), copied, 0.0)

    def share(name: str, asked: str) -> Floats:
        known, said = fact(name), facts.overlaps(c, asked)
        return np.where(said == 1, np.maximum(known, OVERLAPPED), np.where(said == 0, 0.0, known))

    travels = np.where(c.zero >= facts.of(c, "hides_from"), share("sharded_hidden", "gradients"),
                       share("gradients_hidden", "gradients"))
    behind = np.where(sharded, np.where(c.pp == 1, travels, 0.0), share("gradients_hidden", "gradients") / m)
    ahead = np.where(sharded, behind, share("parameters_hidden", "parameters") / m)
    none = np.zeros(len(c))
    # With sharded gradients both hide behind all of the computation; else one behind the last backward pass, and the other
    # behind the first forward pass.
    return exposed, (Hidden(np.where(sharded, reduce + gather, reduce), np.where(sharded, behind, none), behind),
                     Hidden(np.where(sharded, none, gather), ahead, none))


OVERLAPPED = 0.9
"""Share of the computation behind which traffic may hide where a row says that it does."""


def assemble(p: Parts, k: Coefficients = COLD, span: Floats | None = None) -> StepTime:
    """`span`: what the pipeline takes, where it was worked out together with that of other parts."""
    c = p.configs
    m = c.microbatches.astype(np.float64)
    scale = _scales(c, k)
    stages = _stages(p, scale)
    if span is None:
        span = stages.makespans()
    forward, backward = _sides(p, scale)
    both = {name: forward[name] + backward[name] for name in forward}
    slow = _total(both.values()).argmax(axis=0)[None]
    parts = {name: m * np.take_along_axis(seconds, slow, 0)[0] for name, seconds in both.items()}
    busy = _total(parts.values())
    parts["bubble"] = np.maximum(span - busy, 0.0)
    parts["gradients"] = p.gradients * scale["gradients"]
    sides = [m * np.take_along_axis(_total(side.values()), slow, 0)[0] for side in (forward, backward)] if p.hidden else []
    for traffic, ahead, behind in p.hidden:
        # The first layer's has nothing to hide behind, nor has what is longer than the computation.
        wanted = traffic * scale["gradients"]
        may = (ahead > 0) | (behind > 0)
        shown = np.where(may, np.maximum(wanted - ahead * sides[0] - behind * sides[1], p.shown * wanted), wanted)
        parts["gradients"] = parts["gradients"] + shown + p.contention * (wanted - shown)
    parts["optimizer"] = p.optimizer * scale["optimizer"]
    parts["fixed"] = p.fixed * scale["fixed"]
    whole = k.whole * np.exp(k.waiting * np.log2(c.dp)) if k.waiting else k.whole
    parts = {name: value * whole for name, value in parts.items()}
    sec = _total(parts.values())
    prior = SPREAD if p.gpu or p.probed else SPREAD_CPU
    covariance = np.diag([prior[name] ** 2 for name in NAMES]) if k.covariance is None else k.covariance
    reach = np.sqrt((Z90 * spread(parts, sec, covariance)) ** 2 + (Z90 * p.unsteady) ** 2 + k.noise**2)
    return StepTime(sec=sec, parts=parts, lo=sec * np.exp(-reach), hi=sec * np.exp(reach), stages=stages)


def _total(values: Iterable[Floats]) -> Floats:
    return np.sum(list(values), axis=0)


def _scales(c: Configs, k: Coefficients) -> dict[str, Any]:
    """The factor of each part."""
    scale = {name: getattr(k, coefficient) for name, coefficient in SCALES.items()}
    if k.shapes:
        special = np.ones(len(c))
        for shape, factor in k.shapes:
            special = np.where(shape.of(c), special * factor, special)
        scale.update({name: k.compute * special for name, coefficient in SCALES.items() if coefficient == "compute"})
    return scale


def _depth(c: Configs) -> Floats:
    """[3, n]: layers on the first rank, the fullest in between, the last; a pipeline of one is all first."""
    return np.stack([c.first_layers, c.middle_layers, np.where(c.pp == 1, 0, c.last_layers)]).astype(np.float64)


def _sides(p: Parts, scale: dict[str, Any]) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Seconds of one micro-batch forward and backward, by part, each [3, n]."""
    c = p.configs
    one, none = c.pp == 1, np.zeros(len(c))
    depth = _depth(c)
    routed = experts.depths(c) * np.stack([none + 1, none + 1, c.pp > 1]) if p.expert_layer else 0.0
    logits_at = np.stack([np.where(one, 1.0, 0.0), none, np.where(one, 0.0, 1.0)])
    words_at = np.stack([np.ones(len(c)), none, none])
    # Sends and receives block: a rank in the middle waits for two messages in each direction, an end for one.
    end = np.where(one, 0.0, 2.0 * c.vp - 1)
    messages = np.stack([end, np.where(c.pp > 2, 2.0 * c.vp, 0.0), end])
    sides: list[dict[str, Floats]] = []
    for way in (0, 1):
        side = {name: (depth - routed) * (cost[way] * scale[name]) for name, cost in p.layer.items()}
        for name, cost in p.expert_layer.items():
            side[name] = side.get(name, 0.0) + routed * (cost[way] * scale[name])
        side["logits"] = logits_at * (p.head[way] * scale["logits"])
        side["embedding"] = words_at * (p.embedding[way] * scale["embedding"])
        side["p2p"] = messages * (p.send * scale["p2p"])
        sides.append(side)
    return sides[0], sides[1]


def communication_s(c: Configs, cluster: Cluster) -> Floats:
    """[3]: seconds of one micro-batch of the first configuration that are communication, on the three kinds of ranks."""
    found: Floats = np.zeros(3)
    for side in _sides(measure(c, cluster), _scales(c, COLD)):
        found = found + _total(side[name][:, 0] for name in ("tensor", "p2p", "exchange", "dispatch") if name in side)
    return found


def _stages(p: Parts, scale: dict[str, Any]) -> Stages:
    def both(cost: Cost, name: str) -> Floats:
        return np.stack([np.broadcast_to(cost[way] * scale[name], len(p.configs)) for way in (0, 1)])

    def one(parts: dict[str, Cost]) -> Floats:
        return _total(both(cost, name) for name, cost in parts.items()) if parts else np.zeros((2, len(p.configs)))

    return Stages(configs=p.configs, layer=one(p.layer), expert_layer=one(p.expert_layer),
                  embedding=both(p.embedding, "embedding"), head=both(p.head, "logits"), message=p.send * scale["p2p"])


def shares(parts: dict[str, Floats], sec: Floats) -> Floats:
    """[n, NAMES]: by how many per cent the iteration grows when a coefficient grows by one; the bubble scales with the rest."""
    outside = ("bubble", "gradients", "optimizer", "fixed")
    inside = np.maximum(sec - _total(parts[name] for name in outside), 1e-12)
    stretch = 1 + parts["bubble"] / inside
    found = {name: np.zeros_like(sec) for name in NAMES}
    for name, value in parts.items():
        if name != "bubble":
            found[SCALES[name]] = found[SCALES[name]] + value * (1.0 if name in outside else stretch) / sec
    found["whole"] = np.ones_like(sec)
    return np.stack([found[name] for name in NAMES], axis=1)


def spread(parts: dict[str, Floats], sec: Floats, covariance: Floats) -> Floats:
    """Standard deviation of log seconds when the coefficients are known as well as that."""
    weight = shares(parts, sec)
    return np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", weight, covariance, weight), 0.0))
