"""The topology: how a model is laid over ranks, and where each of them stands."""
from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from seatrial import fields, stages
from seatrial.errors import BadInput
from seatrial.schedule import ScheduleKind, virtual_stages_wrong
from seatrial.spec.model import Model
from seatrial.spec.numbers import divisors_near

Recompute = Literal["none", "selective", "full"]
Precision = Literal["fp32", "bf16", "fp16", "fp8"]
ContextKind = Literal["ring", "gather", "ulysses", "ulysses+ring"]
Balance = Literal["natural", "forced"]
Dispatcher = Literal["alltoall", "allgather", "flex"]
Module = Literal["core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe", "shared_experts"]

MODULES: tuple[Module, ...] = get_args(Module)
"""Parts of a layer that selective recompute can be told to make again, as Megatron-core calls them."""

_MOST_LAYOUT = {"dp": 10**9, "tp": 100_000, "pp": 100_000, "cp": 100_000, "vp": 10_000, "mbs": 1_000_000,
                "zero_group": 10**9, "ep": 1_000_000, "etp": 100_000}  # fmt: skip


def read_modules(text: str) -> str:
    """moe_act+layernorm, `moe_act, layernorm` and ['moe_act', 'layernorm'] alike, in the order of MODULES."""
    given = [word for word in re.split(r"[\s,;+/'\"\[\]()]+", text.strip().lower()) if word]
    if wrong := [word for word in given if word not in MODULES]:
        raise BadInput(f"recompute_modules {wrong[0]!r}: some of {', '.join(MODULES)}, with + between")
    if not given:
        raise BadInput(f"recompute_modules {text!r} names none: some of {', '.join(MODULES)}, with + between")
    return "+".join(sorted(set(given), key=MODULES.index))


def usual_modules(*, experts: Any, latent: Any) -> dict[Module, Any]:
    """What selective recompute makes again where nobody says, of a model (0 or 1 each) or columns of them: attention, as
    Megatron does by itself; with experts or latent attention the list of its guide."""
    either = experts | latent
    return {"core_attn": 1 - either, "layernorm": either, "moe_act": experts, "mla_up_proj": latent}


class ExpertPlace(NamedTuple):
    """Where a rank stands among those of its pipeline stage, as experts are laid over them."""

    edp: int = 0
    ep: int = 0
    etp: int = 0


class Place(NamedTuple):
    """Where a rank stands in each of the degrees."""

    pp: int = 0
    dp: int = 0
    cp: int = 0
    tp: int = 0


def _levels(divided_over: tuple[int, int, int], ranks: int) -> list[tuple[str, int, int]]:
    over = 1, *divided_over, ranks
    names = ("shard", "gradients", "state", "replicas")
    return [(name if inner > 1 else "shard", inner, outer // inner) for name, inner, outer in zip(names, over, over[1:])]


@dataclass(frozen=True, kw_only=True)
class Topology:
    """How the model is laid out over the processes."""

    dp: int = fields.field(1, label="DP", kind="count", searched=True, degree=True, title="Data parallel (DP)",
        names="dp, data parallel, data parallel size, dp size, replicas, dp degree, data parallelism")
    """Data parallel: replicas of the model."""
    tp: int = fields.field(1, label="TP", kind="count", searched=True, degree=True, title="Tensor parallel (TP)",
        names="tp, mp, tensor parallel, tensor parallel size, tensor model parallel size, model parallel, model parallel size, "
              "tp size, mp size, tp degree, tensor parallelism, tmp, tensor")
    """Tensor parallel: ranks that share every layer."""
    pp: int = fields.field(1, label="PP", kind="count", searched=True, degree=True, title="Pipeline parallel (PP)",
        names="pp, pipeline parallel, pipeline parallel size, pipeline model parallel size, pp size, pp degree, pipeline, "
              "pipeline stages, stages, pipeline parallelism, pmp")
    """Pipeline parallel: ranks that the layers are divided over."""
    cp: int = fields.field(1, label="CP", kind="count", searched=True, degree=True, title="Context parallel (CP)",
        names="cp, context parallel, context parallel size, context parallel degree, cp size, cp degree, context parallelism")
    """Context parallel: ranks that share every sequence."""
    cp_kind: ContextKind = fields.field("ring", label="CP by", title="Context parallel by", word="",
        of_trial="topology.divides_by",
        names="cp kind, cp type, cp comm type, context parallel kind, context parallel rotate method")
    """How queries meet the keys of other ranks: blocks of keys and values go round a ring, are gathered whole, or an all-to-all
    gives each rank some heads of the whole sequence (Ulysses); ulysses+ring does that among neighbours and a ring around."""
    vp: int = fields.field(1, label="VP", kind="count", searched=True, title="Virtual stages (VP)",
        names="vp, vpp, virtual pipeline, virtual stages, virtual pp, virtual pipeline size, "
              "virtual pipeline model parallel size, interleave, chunks, model chunks")
    """Virtual stages per rank (interleaved 1F1B)."""
    mbs: int = fields.field(1, label="MBS", kind="count", searched=True, title="Micro-batch (MBS)",
        names="mbs, micro batch, microbatch, micro batch size, microbatch size, micro bs, micro batchsize, ubs, batch per gpu, "
              "per device batch size, train micro batch size per gpu, local batch size, lbs, bs per gpu, micro")
    """Micro-batch size: sequences that pass the pipeline together."""
    zero: int = fields.field(0, label="ZS", kind="zero", column="zero_stage", searched=True, title="ZeRO stage",
        word="ZeRO",
        names="zs, zero, zero stage, zero opt, zero level")
    """ZeRO stage: 1 shares the optimizer's state over DP, 2 also gradients, 3 also weights."""
    recompute: Recompute = fields.field("none", label="AC", kind="recompute", searched=True, title="Recompute",
        word="recompute",
        names="ac, activation checkpointing, activation ckpt, activation checkpoint, recompute, recomputation, "
              "activation recompute, activation recomputation, checkpoint activations, gradient checkpointing, grad ckpt, "
              "recompute activations, recompute granularity, gc")
    """Activations computed again in the backward pass: none, those of attention, or all of a layer's."""
    recompute_modules: str | None = fields.field(None, label="Modules", title="Recomputed modules", word="of",
        read=read_modules, names="recompute modules, recomputed modules, recompute module, ac modules")
    """What selective recompute makes again, where the engine takes a list: some of core_attn, layernorm, moe_act, mla_up_proj,
    mlp, moe, shared_experts with + between. By default as the engine has it."""
    schedule: ScheduleKind = fields.field("1f1b", label="Schedule", searched=True, word="",
        names="schedule, pipeline schedule, pp schedule")
    """The order of forward and backward passes of the micro-batches."""
    precision: Precision = fields.field("fp32", label="Precision", kind="dtype", column="dtype", word="",
        names="dtype, precision, data type, mixed precision, params dtype")
    """Of GEMMs and activations; masters and moments are fp32."""
    sequence_parallel: bool = fields.field(False, label="SP", kind="yesno", title="Sequence parallel",
        names="sp, sequence parallel, seq parallel, sequence parallelism")
    """Whether norms and dropout split the sequence over TP."""
    stage_layers: tuple[int, ...] | None = fields.field(None, label="Stage layers", kind="stages", title="Layers per stage",
        word="layers per stage", of_trial="topology.stages_said", read=stages.read,
        names="stage layers, layers per stage, layers per pipeline stage, num layers per stage, pipeline layout, "
              "pipeline model parallel layout, pipeline split, layer split, layers split, stage split, pp split, pp layout, "
              "layers by stage, split of layers, layer partition, stage sizes")
    """Layers of each of the PP x VP stages, in model order, as 1-4-3; auto: the split whose longest stage is the shortest, with
    embedding, loss and memory counted. By default as even as can be."""
    zero_group: int | None = fields.field(None, label="ZG", kind="count", title="ZeRO group", word="ZeRO group",
        names="zero group, shard group, sharding group, hsdp shard, dp shard, data parallel shard degree, "
              "data parallel shard, mics shard size")
    """Ranks that share one sharded copy, a divisor of DP x CP; the groups are replicas of each other (HSDP). By default all."""
    gradients_group: int | None = fields.field(None, label="GG", kind="count", title="Gradients' group",
        word="gradients' group", names="gradients group, gradient group")
    """Ranks that share one copy of the gradients (ZeRO 2 and 3), a divisor of zero_group. By default zero_group."""
    weights_group: int | None = fields.field(None, label="WG", kind="count", title="Weights' group", word="weights' group",
        names="weights group, weight group, zero hpz partition size, hpz")
    """Ranks that share one copy of the weights (ZeRO 3), a divisor of gradients_group, which it is by default: gathers of small
    groups stay inside a node."""
    ep: int = fields.field(1, label="EP", kind="count", title="Expert parallel (EP)", of_trial="expert_parallel",
        names="ep, expert parallel, expert parallelism, expert parallel size, ep size, ep degree, "
              "expert model parallel size, expert model parallel, expert parallel degree")
    """Expert parallel: ranks of a stage that the experts of a layer are divided over. TP x CP x DP = ETP x EP x EDP, the ranks
    that hold the same experts."""
    etp: int | None = fields.field(None, label="ETP", kind="count", title="Expert tensor parallel (ETP)",
        of_trial="expert_tensor_parallel",
        names="etp, expert tensor parallel, expert tensor parallel size, expert tensor parallelism, "
              "expert tensor parallel degree")
    """Expert tensor parallel: ranks that share every expert. By default TP; the tokens of a rank's experts come from all of its
    EP x ETP ranks."""
    moe_balance: Balance = fields.field("natural", label="Balance", title="Balance of experts", word="",
        of_trial="moe_balance",
        names="moe balance, router balance, load balance, moe load balancing, force balance")
    """natural: tokens go where the router sends them; forced: every expert gets as many, for benchmarks."""
    moe_dispatcher: Dispatcher = fields.field("alltoall", label="Dispatcher", title="Token dispatcher", word="",
        of_trial="moe_dispatcher",
        names="moe dispatcher, token dispatcher, moe token dispatcher type, dispatcher")
    """How tokens reach their experts: all-to-all of what each needs, every token gathered on all ranks of the experts, or sent
    once to each node and dealt out inside (flex: DeepEP and its like)."""

    def __post_init__(self) -> None:
        fields.positive("topology", dp=self.dp, tp=self.tp, pp=self.pp, cp=self.cp, vp=self.vp, mbs=self.mbs, ep=self.ep,
                        etp=self.etp)
        fields.at_most("topology", _MOST_LAYOUT, self)
        if self.recompute_modules is not None:
            read_modules(self.recompute_modules)
        if self.zero not in (0, 1, 2, 3):
            raise BadInput(f"topology.zero: {self.zero} is not a ZeRO stage; 0, 1, 2 and 3 are")
        if wrong := virtual_stages_wrong(self.schedule, pp=self.pp, virtual=self.vp):
            raise BadInput(f"topology: {wrong}")
        self._check_experts()
        whole, of = self.data_ranks, f"DP {self.dp}" + (f" x CP {self.cp}" if self.cp > 1 else "")
        for name in ("zero_group", "gradients_group", "weights_group"):
            group = getattr(self, name)
            fields.positive("topology", **{name: group})
            if group is not None and whole % group:
                raise BadInput(f"topology.{name}: {group} does not divide {of}: "
                               f"{divisors_near(whole, group, between=' or ')} would")
            if group is not None:
                whole, of = group, f"{name} {group}"
        if self.stage_layers is not None and len(self.stage_layers) != self.pp * self.vp:
            raise BadInput(f"topology.stage_layers {self.stages_said}: {len(self.stage_layers)} entries for pp {self.pp} x vp "
                           f"{self.vp} = {self.pp * self.vp} stages")
        if self.stage_layers is not None and min(self.stage_layers) < 0:
            raise BadInput(f"topology.stage_layers {list(self.stage_layers)}: a stage has 0 layers at least")

    def _check_experts(self) -> None:
        stage = f"the {self.stage_ranks} ranks of a stage (DP {self.dp} x CP {self.cp} x TP {self.tp})"
        if self.stage_ranks % self.expert_tp:
            raise BadInput(f"topology.etp: ETP {self.expert_tp} does not divide {stage}: ETP "
                           f"{divisors_near(self.stage_ranks, self.expert_tp, between=' or ')} would")
        if self.stage_ranks % (self.expert_tp * self.ep):
            raise BadInput(f"topology.ep: ETP {self.expert_tp} x EP {self.ep} = {self.expert_tp * self.ep} does not divide "
                           f"{stage}: EP {divisors_near(self.stage_ranks // self.expert_tp, self.ep, between=' or ')} would")

    def modules(self, model: Model) -> tuple[Module, ...]:
        """What selective recompute of it makes again, where the engine takes a list."""
        usual = usual_modules(experts=int(model.mixture), latent=int(model.latent is not None))
        given = [name for name, there in usual.items() if there]
        return tuple(name for name in MODULES if name in (self.recompute_modules or "+".join(given)).split("+"))

    @property
    def stages_said(self) -> str:
        """1-4-3; nothing where the default is."""
        return stages.said(self.stage_layers)

    @property
    def world(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    @property
    def divides_by(self) -> ContextKind | None:
        """The kind of context parallelism, where there is any."""
        return self.cp_kind if self.cp > 1 else None

    @property
    def data_ranks(self) -> int:
        """Ranks that hold the same weights and see other tokens: gradients are summed, and ZeRO cuts, over them."""
        return self.dp * self.cp

    @property
    def stage_ranks(self) -> int:
        """Ranks of a pipeline stage."""
        return self.dp * self.cp * self.tp

    @property
    def expert_tp(self) -> int:
        return self.etp if self.etp is not None else self.tp

    @property
    def edp(self) -> int:
        """Ranks of a stage that hold the same experts."""
        return self.stage_ranks // (self.expert_tp * self.ep)

    @property
    def spreads_experts(self) -> bool:
        """Whether experts are laid otherwise than the rest of a layer."""
        return self.ep > 1 or self.expert_tp != self.tp

    def expert_place(self, rank: int) -> ExpertPlace:
        """Ranks that share an expert are neighbours, then those of other experts, then those of the same."""
        rank, etp = divmod(rank % self.stage_ranks, self.expert_tp)
        edp, ep = divmod(rank, self.ep)
        return ExpertPlace(edp=edp, ep=ep, etp=etp)

    @property
    def divided_over(self) -> tuple[int, int, int]:
        """Ranks that ZeRO divides weights, gradients and optimizer state over; 1 is whole. Each divides the next."""
        return self._divided(self.data_ranks)

    @property
    def experts_divided_over(self) -> tuple[int, int, int]:
        """The same of experts, which fewer ranks hold alike."""
        return self._divided(self.edp)

    def _divided(self, ranks: int) -> tuple[int, int, int]:
        state = math.gcd(ranks, self.zero_group or ranks)
        gradients = math.gcd(state, self.gradients_group or state)
        weights = math.gcd(gradients, self.weights_group or gradients)
        return weights if self.zero == 3 else 1, gradients if self.zero >= 2 else 1, state if self.zero else 1

    @property
    def levels(self) -> list[tuple[str, int, int]]:
        """Groups that divide weights, gradients and state, each what the one before holds, and those that hold the same state:
        name, how far apart their ranks are among the `data_ranks`, and how many they are."""
        return _levels(self.divided_over, self.data_ranks)

    @property
    def expert_levels(self) -> list[tuple[str, int, int]]:
        """The same among the ranks that hold the same experts."""
        return _levels(self.experts_divided_over, self.edp)

    @property
    def product(self) -> str:
        """DP 2 x TP 2 x PP 2 = 8 processes; CP where there is one, and how experts are laid where that is otherwise."""
        degrees = [("DP", self.dp), ("TP", self.tp), ("PP", self.pp), *([("CP", self.cp)] if self.cp > 1 else [])]
        laid = f" (EP {self.ep}, ETP {self.expert_tp})" if self.spreads_experts else ""
        return " x ".join(f"{name} {size}" for name, size in degrees) + f" = {self.world} processes{laid}"

    def place(self, rank: int) -> Place:
        """Tensor-parallel ranks are neighbours, then context, data, pipeline: the busiest groups stay inside a node."""
        rank, tp = divmod(rank, self.tp)
        rank, cp = divmod(rank, self.cp)
        pp, dp = divmod(rank, self.dp)
        return Place(pp=pp, dp=dp, cp=cp, tp=tp)

    def rank_at(self, place: Place) -> int:
        return ((place.pp * self.dp + place.dp) * self.cp + place.cp) * self.tp + place.tp

    def label(self, rank: int) -> str:
        """pp0 dp1 tp0, with the context rank where there is one."""
        at = self.place(rank)
        return f"pp{at.pp} dp{at.dp} " + (f"cp{at.cp} " if self.cp > 1 else "") + f"tp{at.tp}"


def context_split(model: Model, topology: Topology) -> tuple[int, int]:
    """Context parallelism as neighbours that share heads by all-to-all, and a ring of such; their product is CP."""
    t = topology
    held = max(1, model.kv // t.tp)
    heads = {"ulysses": t.cp, "ulysses+ring": math.gcd(t.cp, held)}.get(t.cp_kind, 1)
    return heads, t.cp // heads


def stage_split(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage in model order.

    Even when it divides; else, when layers + 2 divides, the embedding and the head each take a layer's place (BLOOM: 70 + 2
    over 12); else as even as can be with the middle stages taking the surplus, since the last one has the logits and the first
    the embedding.
    """
    if layers % stages == 0:
        return (layers // stages,) * stages
    if (layers + 2) % stages == 0 and stages > 1 and (layers + 2) // stages > 1:
        each = (layers + 2) // stages
        return (each - 1, *(each,) * (stages - 2), each - 1)
    base, surplus = divmod(layers, stages)
    order = [*range(1, stages - 1), 0, stages - 1]
    extra = set(order[:surplus])
    return tuple(base + (i in extra) for i in range(stages))


def stages_of(model: Model, topology: Topology) -> tuple[int, ...]:
    """Layers of each of the pp x vp stages; stage `chunk * pp + rank` runs on pipeline rank `rank`."""
    split = topology.stage_layers or stage_split(model.layers, topology.pp * topology.vp)
    if sum(split) != model.layers:
        raise BadInput(f"topology.stage_layers {stages.said(split)} adds up to {sum(split)}, the model has {model.layers} "
                       "layers")
    return split


def experts_of_stages(model: Model, topology: Topology) -> tuple[int, ...]:
    """… and how many of each stage's layers have experts."""
    return stages.with_experts(stages_of(model, topology), dense=model.dense_layers,
                               every=model.expert_every if model.mixture else 0)
