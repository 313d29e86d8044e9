"""The words: model, topology, batch, cluster, environment, trial. Frozen, validated, the same in TOML, JSON and Python.

    trial, recipe = trialfile.load("trial.toml", settings=["topology.tp=2", "batch.gbs=16"])
    rules.check(trial)            raises Infeasible with the numbers and the nearest values that work
    trial.run_id()                the hash of what was asked, defaulted fields left out

Each word checks what it can see alone; what takes two words (`dp x tp x pp = nodes x processes`) is in `rules.py`.
"""
from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from seatrial import fields, stages
from seatrial.documents import Documents
from seatrial.errors import BadInput
from seatrial.schedule import ScheduleKind, virtual_stages_wrong

Family = Literal["gpt2", "bloom", "llama", "mistral", "qwen2", "qwen3"]
Norm = Literal["layernorm", "rmsnorm"]
Positions = Literal["learned", "alibi", "rope"]
Mlp = Literal["gelu", "swiglu", "swiglu-clamped"]
Biases = Literal["all", "attention", "qkv", "mlp", "none"]
Recompute = Literal["none", "selective", "full"]
Precision = Literal["fp32", "bf16", "fp16", "fp8"]
Attention = Literal["stored", "fused", "fused-hopper"]
ContextKind = Literal["ring", "gather", "ulysses", "ulysses+ring"]
Balance = Literal["natural", "forced"]
Dispatcher = Literal["alltoall", "allgather", "flex"]
RopeScaling = Literal["llama3", "yarn"]
TokenSet = Literal["sequence", "rank", "global"]

GIB = 1024**3
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "fp64": 8}


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What a layer is made of. Each choice stands for itself; a family is a usual set of them."""

    norm: Norm
    """layernorm has a weight and a bias, rmsnorm a weight alone."""
    positions: Positions
    """learned: a vector a position; alibi: a bias on the scores; rope: queries and keys rotated."""
    mlp: Mlp
    """gelu: up, down; swiglu: gate, up, down; swiglu-clamped: both clamped to ±7, a steeper gate, up + 1 (gpt-oss)."""
    biases: Biases
    """Which linears have one: all, those of attention, query-key-value alone, those of the MLP, none."""
    qk_norm: bool = False
    """A norm over each head of queries and keys, before their positions."""
    embedding_norm: bool = False
    """A norm right after the word embedding."""
    tied: bool = False
    """Whether input and output embeddings are one matrix."""


FAMILIES: dict[str, Architecture] = {
    "gpt2": Architecture(norm="layernorm", positions="learned", mlp="gelu", biases="all", tied=True),
    "bloom": Architecture(norm="layernorm", positions="alibi", mlp="gelu", biases="all", embedding_norm=True, tied=True),
    "llama": Architecture(norm="rmsnorm", positions="rope", mlp="swiglu", biases="none"),
    "mistral": Architecture(norm="rmsnorm", positions="rope", mlp="swiglu", biases="none"),
    "qwen2": Architecture(norm="rmsnorm", positions="rope", mlp="swiglu", biases="qkv"),
    "qwen3": Architecture(norm="rmsnorm", positions="rope", mlp="swiglu", biases="none", qk_norm=True),
}

_CHOICES = tuple(f.name for f in dataclasses.fields(Architecture))
_MOST = {"layers": 10_000, "hidden": 1_000_000, "heads": 100_000, "seq": 100_000_000, "vocab": 100_000_000, "ffn": 10_000_000,
         "head_dim": 1_000_000, "pad_vocab_to": 1_000_000_000, "experts": 1_000_000, "top_k": 1_000_000,
         "shared_experts": 10_000, "expert_ffn": 10_000_000, "dense_layers": 10_000, "mtp": 100}  # fmt: skip
"""Beyond these a model was not meant, and 64 bits would not hold its counts."""
_MOST_LAYOUT = {"dp": 10**9, "tp": 100_000, "pp": 100_000, "cp": 100_000, "vp": 10_000, "mbs": 1_000_000,
                "zero_group": 10**9, "ep": 1_000_000, "etp": 100_000}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Router:
    """How the tokens of a mixture of experts choose theirs, and what keeps the choice even."""

    kind: Literal["softmax", "sigmoid"] = "softmax"
    """A token's score of each expert: softmax over all of them, or each by a sigmoid of its own."""
    normalised: bool = True
    """Whether the weights of the chosen experts add up to 1."""
    scale: float = 1.0
    """Of these weights."""
    bias: bool = False
    """Whether the router's linear has one."""
    correction: float | None = None
    """Balance without an auxiliary loss: a bias on each expert's score, for the choice alone, goes up by this much after a step
    in which the expert had fewer tokens than the mean, and down after one in which it had more."""
    groups: int = 1
    """Experts in so many groups …"""
    group_limit: int | None = None
    """… of which a token may choose from this many: those whose two best scores have the largest sum."""
    aux_loss: float = 0.0
    """Coefficient of the balance loss: experts x Σ (share of the tokens) x (mean score)."""
    z_loss: float = 0.0
    """Coefficient of the mean squared log-sum-exp of the router's logits."""
    capacity: float | None = None
    """Tokens that an expert takes, in multiples of an even share; more are dropped, the last in the order of the tokens first.
    Left out: dropless."""
    over: TokenSet = "sequence"
    """The tokens over which capacity and balance loss are counted: each sequence, those of a micro-batch on one data-parallel
    replica, or those of a micro-batch on all of them."""

    def __post_init__(self) -> None:
        fields.positive("model.router", scale=self.scale, groups=self.groups, group_limit=self.group_limit,
                        capacity=self.capacity, correction=self.correction)
        for name in ("aux_loss", "z_loss"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInput(f"model.router.{name}: {getattr(self, name)} is no coefficient; 0 turns it off")
        if self.group_limit is not None and self.group_limit > self.groups:
            raise BadInput(f"model.router.group_limit: {self.group_limit} of {self.groups} groups; {self.groups} at most")

    @property
    def corrected(self) -> bool:
        """Whether there is a bias on the scores for the choice alone."""
        return self.correction is not None

    @property
    def limit(self) -> int:
        """Groups that a token may choose from."""
        return self.group_limit if self.group_limit is not None else self.groups


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention: keys and values come out of one compressed vector a token. `head_dim` is the part of a head
    without positions."""

    kv_rank: int
    """Width of the compressed keys and values."""
    q_rank: int | None = None
    """Width of the compressed queries; left out, they come straight from the residual stream."""
    rope_dim: int = 64
    """The part of a head's query that is rotated; its key is one for all heads."""
    value_dim: int = 128
    """Of one head."""

    def __post_init__(self) -> None:
        fields.positive("model.latent", kv_rank=self.kv_rank, q_rank=self.q_rank, rope_dim=self.rope_dim,
                        value_dim=self.value_dim)
        if self.rope_dim % 2:
            raise BadInput(f"model.latent.rope_dim: {self.rope_dim} is odd; rotary positions turn pairs")


@dataclass(frozen=True, kw_only=True)
class Model:
    """The network's shape. A choice that is left out is the family's."""

    layers: int = fields.field(label="Layers", kind="count", word="layers",
        names="layers, layer, nlayers, num layers, n layers, number of layers, depth, num hidden layers, n layer, nlayer")
    """Transformer layers."""
    hidden: int = fields.field(label="Hidden", kind="count", word="hidden",
        names="hidden, nhidden, hidden size, hidden dim, hidden dimension, d model, dmodel, n embd, embedding size, width, "
              "model dim, n hidden")
    """Width of the residual stream."""
    heads: int = fields.field(label="Heads", kind="count", word="heads", title="Attention heads",
        names="heads, nheads, num heads, n heads, head, attention heads, num attention heads, number of heads, n head, nhead, "
              "attn heads")
    """Attention heads; `hidden` is a multiple of them unless `head_dim` is given."""
    vocab: int = fields.field(label="Vocab", kind="count",
        names="vocab, vocab size, vocabulary, vocabulary size, vocab length, padded vocab size")
    """Tokens of the tokenizer; what is stored is `padded_vocab(tp)`."""
    seq: int = fields.field(label="Seq", kind="count",
        names="seq, seq len, seqlen, seq length, sequence length, sequence len, sequence, context, context length, ctx, "
              "ctx len, sl, max seq len")
    """Tokens of one training sequence."""
    family: Family = fields.field("gpt2", label="Family", names="family, architecture, arch")
    """A usual set of the choices below: gpt2 (learned positions, LayerNorm, GELU), bloom (ALiBi, a norm after the embedding),
    llama and mistral (RoPE, RMSNorm, SwiGLU, no biases), qwen2 (llama with biases of query, key, value), qwen3 (llama with
    norms of queries and keys)."""
    kv_heads: int | None = fields.field(None, label="KV heads", kind="count", of_trial="model.kv",
        names="kv heads, nkvheads, num kv heads, n kv heads, num query groups, query groups, num key value heads, "
              "key value heads")
    """Grouped-query attention when smaller than heads."""
    ffn: int | None = fields.field(None, label="FFN", kind="count", of_trial="model.inner",
        names="ffn, ffn hidden size, ffn size, ffn dim, intermediate size, d ff, dff, mlp dim")
    """Inner width of the MLP: 4 x hidden, or with SwiGLU 8/3 x hidden rounded up to 256."""
    tied: bool | None = fields.field(None, label="Tied", kind="yesno", names="tied, tied embeddings, tie word embeddings")
    """Whether input and output embeddings are one matrix: yes for gpt2 and bloom, no for the others."""
    pad_vocab_to: int | None = None
    """Store this many rows whatever TP is, as Megatron's --pad-vocab-size-to."""
    rope_theta: float = 10_000.0
    """Base of the rotary positions."""
    norm_eps: float = 1e-5
    """Added under the root of every norm."""
    name: str = fields.field("", label="Size", kind="size", column="size_label",
        names="size, model, model size, params, parameters, num params, nparams, n params, number of parameters, model name")
    """What tables call it."""
    head_dim: int | None = fields.field(None, label="Head dim", kind="count",
        names="head dim, head size, kv channels, head dimension")
    """Size of one head where it is not hidden / heads."""
    norm: Norm | None = fields.field(None, label="Norm", names="norm, normalization, normalisation")
    """layernorm or rmsnorm."""
    positions: Positions | None = fields.field(None, label="Positions",
        names="positions, position embedding type, position embedding")
    """learned, alibi or rope."""
    mlp: Mlp | None = fields.field(None, label="MLP", names="mlp")
    """gelu (up, down) or swiglu (gate, up, down)."""
    biases: Biases | None = fields.field(None, label="Biases", names="biases")
    """Of the linears: all, attention, qkv (query, key, value alone), mlp, none."""
    qk_norm: bool | None = fields.field(None, label="QK norm", kind="yesno", names="qk norm, qk layernorm")
    """A norm over each head of queries and keys."""
    embedding_norm: bool | None = fields.field(None, label="Embedding norm", kind="yesno",
        names="embedding norm, embed layernorm")
    """A norm right after the word embedding."""
    rope_factor: float | None = None
    """Rotary frequencies scaled for longer sequences: waves longer than the original sequence are slowed by this factor."""
    rope_low_freq: float = 1.0
    """Of that scaling: a wave this often in the original sequence, or less, is slowed by all of the factor …"""
    rope_high_freq: float = 4.0
    """… this often, or more, not at all; between the two in part."""
    rope_original_seq: int = 8192
    """Of that scaling: the sequence before it."""
    rope_scaling: RopeScaling = "llama3"
    """How it is done: as Llama 3.1 does, or by YaRN, which has two other limits."""
    rope_beta_fast: float = 32.0
    """Of yarn: a pair that turns this often in the original sequence, or more, is not slowed …"""
    rope_beta_slow: float = 1.0
    """… this often, or less, by all of the factor; between the two in part, evenly over the pairs."""
    rope_truncate: bool = True
    """Of yarn: whether both ends are whole pairs."""
    rope_mscale: float | None = None
    """Of yarn: how much sharper attention gets, on what is rotated …"""
    rope_mscale_all_dim: float | None = None
    """… and on all of the head, which DeepSeek's latent attention has beside it. Left out: 1 on what is rotated."""
    sliding_window: int | None = None
    """Tokens that attention looks back over, its own included …"""
    full_every: int | None = None
    """… but in each so-manieth layer, which looks back over all. Left out: in every layer."""
    experts: int | None = fields.field(None, label="Experts", kind="count",
        names="experts, num experts, n experts, moe experts, routed experts, number of experts, num local experts, "
              "n routed experts")
    """Experts of a layer, of which each token passes a few in place of the MLP; left out, the model is dense."""
    top_k: int | None = fields.field(None, label="Top-k", kind="count", of_trial="model.chosen",
        names="top k, topk, moe top k, moe topk, router topk, router top k, moe router topk, experts per token, "
              "experts per tok, num experts per tok, active experts")
    """Experts that a token passes; 2 where there are experts and nothing is said."""
    shared_experts: int | None = fields.field(None, label="Shared experts", kind="count", of_trial="model.shared",
        names="shared experts, n shared experts, num shared experts")
    """Experts that every token passes, beside those it chooses."""
    expert_ffn: int | None = fields.field(None, label="Expert FFN", kind="count", of_trial="model.expert_inner",
        names="expert ffn, expert ffn size, moe ffn hidden size, moe intermediate size, expert intermediate size, "
              "moe ffn, expert hidden")
    """Inner width of one expert; by default that of the MLP."""
    dense_layers: int = 0
    """The first so many layers have an MLP in place of experts …"""
    expert_every: int = 1
    """… and of all layers each so-manieth has experts."""
    router: Router = field(default_factory=Router)
    """How tokens choose their experts."""
    latent: Latent | None = None
    """Multi-head latent attention, in place of keys and values of their own."""
    sinks: bool = False
    """A learned number of each head in the sum of the softmax: attention may go nowhere."""
    mtp: int = 0
    """Layers after the last that predict one token further each (multi-token prediction) …"""
    mtp_loss: float = 0.1
    """… and the weight of their mean loss."""

    def __post_init__(self) -> None:
        if self.experts == 0:  # what a table of dense and other models has for the dense ones
            object.__setattr__(self, "experts", None)
        fields.positive("model", layers=self.layers, hidden=self.hidden, heads=self.heads, vocab=self.vocab, seq=self.seq,
                        kv_heads=self.kv_heads, ffn=self.ffn, pad_vocab_to=self.pad_vocab_to, rope_theta=self.rope_theta,
                        norm_eps=self.norm_eps, head_dim=self.head_dim, rope_factor=self.rope_factor,
                        rope_low_freq=self.rope_low_freq, rope_high_freq=self.rope_high_freq,
                        rope_original_seq=self.rope_original_seq, rope_beta_fast=self.rope_beta_fast,
                        rope_beta_slow=self.rope_beta_slow, rope_mscale=self.rope_mscale,
                        rope_mscale_all_dim=self.rope_mscale_all_dim, sliding_window=self.sliding_window,
                        full_every=self.full_every, experts=self.experts,
                        top_k=self.top_k, expert_ffn=self.expert_ffn, expert_every=self.expert_every, mtp_loss=self.mtp_loss)
        fields.at_most("model", _MOST, self)
        self._check_experts()
        if self.head_dim is None and self.hidden % self.heads:
            works = divisors_near(self.hidden, self.heads)
            raise BadInput(f"model: hidden {self.hidden} is not a multiple of heads {self.heads}: nearest are {works}; "
                           "head_dim can say another size")
        if self.heads % self.kv:
            works = divisors_near(self.heads, self.kv)
            raise BadInput(f"model: heads {self.heads} is not a multiple of kv_heads {self.kv}: nearest are {works}")
        if self.rope and self.head_size % 2:
            whose = f"hidden {self.hidden} / heads {self.heads}" if self.head_dim is None else "head_dim"
            raise BadInput(f"model: rotary positions need an even head size, {whose} is {self.head_size}")
        if self.latent is not None:
            self._check_latent()
        if self.rope_factor is not None and not self.rope:
            raise BadInput(f"model.rope_factor: positions are {self.architecture.positions}, and only those of rope "
                           "have frequencies to scale")
        if self.rope_high_freq <= self.rope_low_freq:
            raise BadInput(f"model.rope_high_freq: {self.rope_high_freq} must be above rope_low_freq {self.rope_low_freq}")
        if self.rope_beta_fast <= self.rope_beta_slow:
            raise BadInput(f"model.rope_beta_fast: {self.rope_beta_fast} must be above rope_beta_slow {self.rope_beta_slow}")
        if self.full_every is not None and self.sliding_window is None:
            raise BadInput(f"model.full_every: {self.full_every}, but all layers look back over all: sliding_window says how "
                           "far the others do")
        for name, there in (("sliding_window", self.has_windows), ("sinks", self.sinks)):
            if there and (self.alibi or self.is_latent):
                whose = "latent attention" if self.is_latent else "ALiBi positions"
                raise BadInput(f"model.{name}: {getattr(self, name)} with {whose}, which looks back over all tokens and no "
                               "further; leave it out, or keep the sequence within the window")
        if self.pad_vocab_to is not None and self.pad_vocab_to < self.vocab:
            raise BadInput(f"model: pad_vocab_to {self.pad_vocab_to} is below the vocabulary of {self.vocab}")

    def _check_latent(self) -> None:
        if not self.rope:
            raise BadInput(f"model.latent: positions are {self.architecture.positions}, and a part of each head is rotated: "
                           "positions = \"rope\" would do")
        if self.kv != self.heads:
            raise BadInput(f"model.latent: every head has keys of its own, kv_heads is {self.kv} of {self.heads}: leave it out")
        if self.qkv_bias:
            raise BadInput(f"model.latent: biases {self.architecture.biases}, and queries, keys and values have none here: "
                           "mlp or none would do")
        if self.normed_qk:
            raise BadInput("model.latent: qk_norm, and the compressed queries and keys have norms of their own: leave it out")

    def _check_experts(self) -> None:
        for name in ("shared_experts", "dense_layers", "mtp"):
            if (getattr(self, name) or 0) < 0:
                raise BadInput(f"model.{name}: {getattr(self, name)} is below 0")
        if self.experts is None:
            for name in ("top_k", "shared_experts", "expert_ffn"):
                if getattr(self, name):
                    raise BadInput(f"model.{name}: {getattr(self, name)}, but the model has no experts: experts = 8 would give "
                                   "it some")
            return
        r = self.router
        if self.expert_layers == 0:
            raise BadInput(f"model: {self.experts} experts, but all of its {self.layers} layers are dense: dense_layers is "
                           f"{self.dense_layers}, expert_every {self.expert_every}")
        if self.experts % r.groups:
            raise BadInput(f"model.router.groups: {self.experts} experts are not a multiple of {r.groups} groups: nearest are "
                           f"{divisors_near(self.experts, r.groups)}")
        among = self.experts // r.groups * r.limit
        if (self.chosen or 0) > among:
            whose = f" that {r.limit} of {r.groups} groups have" if r.limit < r.groups else ""
            raise BadInput(f"model.top_k: {self.chosen} of {among} experts{whose}; {among} at most")

    # What holds when a field is left out. Code asks these, never the family.

    @property
    def mixture(self) -> bool:
        """Whether there are experts."""
        return self.experts is not None

    @property
    def chosen(self) -> int | None:
        """Experts that a token passes; None where there are none, as for the next two."""
        return None if self.experts is None else self.top_k if self.top_k is not None else min(2, self.experts)

    @property
    def shared(self) -> int | None:
        return None if self.experts is None else self.shared_experts or 0

    @property
    def expert_inner(self) -> int | None:
        return None if self.experts is None else self.expert_ffn if self.expert_ffn is not None else self.inner

    @property
    def shared_inner(self) -> int:
        """Inner width of all shared experts together: they are one MLP."""
        return (self.shared or 0) * (self.expert_inner or 0)

    @property
    def router_bias(self) -> bool:
        return self.router.bias

    @property
    def is_latent(self) -> bool:
        return self.latent is not None

    @property
    def q_rank(self) -> int:
        """Of latent attention, 0 where there is none; so the next three."""
        return (self.latent.q_rank or 0) if self.latent else 0

    @property
    def kv_rank(self) -> int:
        return self.latent.kv_rank if self.latent else 0

    @property
    def rope_dim(self) -> int:
        return self.latent.rope_dim if self.latent else 0

    @property
    def value_dim(self) -> int:
        return self.latent.value_dim if self.latent else 0

    @property
    def has_sinks(self) -> bool:
        return self.sinks

    @property
    def yarn(self) -> bool:
        return self.rope_scaling == "yarn"

    def window(self, layer: int) -> int | None:
        """Tokens that a layer, the first is 0, looks back over where they are not all."""
        if self.sliding_window is None or self.sliding_window >= self.seq:
            return None
        return None if self.full_every is not None and (layer + 1) % self.full_every == 0 else self.sliding_window

    @functools.cached_property
    def has_windows(self) -> bool:
        return any(self.window(layer) is not None for layer in range(self.layers))

    def has_experts(self, layer: int) -> bool:
        """Whether a layer, the first is 0, has experts in place of an MLP."""
        return self.mixture and layer >= self.dense_layers and (layer + 1) % self.expert_every == 0

    @functools.cached_property
    def expert_layers(self) -> int:
        return sum(map(self.has_experts, range(self.layers)))

    @functools.cached_property
    def architecture(self) -> Architecture:
        usual = FAMILIES[self.family]
        given = {name: value for name in _CHOICES if (value := getattr(self, name)) is not None}
        return replace(usual, **given) if given else usual

    @property
    def kv(self) -> int:
        return self.kv_heads if self.kv_heads is not None else self.heads

    @property
    def head_size(self) -> int:
        return self.head_dim if self.head_dim is not None else self.hidden // self.heads

    @property
    def inner(self) -> int:
        if self.ffn is not None:
            return self.ffn
        return round_up(8 * self.hidden // 3, 256) if self.gated else 4 * self.hidden

    @property
    def gated(self) -> bool:
        return self.architecture.mlp != "gelu"

    @property
    def layernorm(self) -> bool:
        return self.architecture.norm == "layernorm"

    @property
    def learned(self) -> bool:
        return self.architecture.positions == "learned"

    @property
    def alibi(self) -> bool:
        return self.architecture.positions == "alibi"

    @property
    def rope(self) -> bool:
        return self.architecture.positions == "rope"

    @property
    def qkv_bias(self) -> bool:
        return self.architecture.biases in ("all", "attention", "qkv")

    @property
    def out_bias(self) -> bool:
        return self.architecture.biases in ("all", "attention")

    @property
    def mlp_bias(self) -> bool:
        return self.architecture.biases in ("all", "mlp")

    @property
    def normed_qk(self) -> bool:
        return self.architecture.qk_norm

    @property
    def normed_embedding(self) -> bool:
        return self.architecture.embedding_norm

    @property
    def ties(self) -> bool:
        return self.architecture.tied

    def padded_vocab(self, tp: int) -> int:
        """Rows of the embedding as stored: the next multiple of 128 x TP, or `pad_vocab_to`."""
        return self.pad_vocab_to if self.pad_vocab_to is not None else round_up(self.vocab, 128 * tp)


def is_gated(family: str) -> bool:
    """Whether models of this family have a gated MLP; a word that is no family has not."""
    return family in FAMILIES and FAMILIES[family].mlp != "gelu"


def kv_fits(kv: Any, tp: Any) -> Any:
    """Whether key-value heads can lie over TP: divided, or each held by several ranks. Numbers or arrays."""
    return (kv % tp == 0) | (tp % kv == 0)


@functools.lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    """What divides `n`, from 1 to `n`; of a number beyond 1e12 these two alone."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0] if n <= 10**12 else [1]
    return tuple(dict.fromkeys([*small, *(n // d for d in reversed(small))]))


def divisors_near(n: int, wanted: int, *, between: str = " and ") -> str:
    """What divides `n` and lies nearest to `wanted` on both sides, in words."""
    found = divisors(n)
    below = max((d for d in found if d <= wanted), default=found[0])
    above = min((d for d in found if d >= wanted), default=found[-1])
    return f"{below}" if below == above else f"{below}{between}{above}"


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
              "tp size, mp size, tp degree, tensor parallelism, tmp")
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
        if self.zero not in (0, 1, 2, 3):
            raise BadInput(f"topology.zero: {self.zero} is not a ZeRO stage; 0, 1, 2 and 3 are")
        if wrong := virtual_stages_wrong(self.schedule, pp=self.pp, virtual=self.vp):
            raise BadInput(f"topology: {wrong}")
        if self.stage_ranks % (self.expert_tp * self.ep):
            raise BadInput(f"topology.ep: ETP {self.expert_tp} x EP {self.ep} = {self.expert_tp * self.ep} does not divide the "
                           f"{self.stage_ranks} ranks of a stage (DP {self.dp} x CP {self.cp} x TP {self.tp}): EP "
                           f"{divisors_near(max(1, self.stage_ranks // self.expert_tp), self.ep, between=' or ')} would")
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


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Global batch size, its ramp-up, and what a sequence is made of."""

    gbs: int = fields.field(label="GBS", kind="count", searched=True, title="Global batch (GBS)",
        names="gbs, global batch, global batch size, global bs, global batchsize, batch size, batch, bs, train batch size, "
              "train batch, total batch size")
    """Sequences of one iteration, over all replicas."""
    rampup_start: int | None = None
    """The batch grows from this …"""
    rampup_increment: int | None = None
    """… in steps of this …"""
    rampup_samples: int | None = None
    """… over this many samples."""
    documents: str | None = fields.field(None, label="Docs", title="Documents of a sequence",
        names="documents, packed, document lengths")
    """Documents packed into a sequence, by their lengths: fixed:1024, uniform:256:4096, lognormal:MEAN:SIGMA,
    exponential:MEAN, or corpus for those of the data's .idx file. Attention stays inside each; positions go on."""

    def __post_init__(self) -> None:
        if self.documents is not None:
            Documents.parse(self.documents)
        fields.positive("batch", gbs=self.gbs, rampup_start=self.rampup_start, rampup_increment=self.rampup_increment,
                        rampup_samples=self.rampup_samples)
        given = [self.rampup_start, self.rampup_increment, self.rampup_samples]
        if any(v is None for v in given) and any(v is not None for v in given):
            raise BadInput("batch: a ramp-up needs rampup_start, rampup_increment and rampup_samples together")
        if self.rampup_start is not None and self.rampup_increment is not None:
            if self.rampup_start > self.gbs:
                raise BadInput(f"batch: rampup_start {self.rampup_start} is above gbs {self.gbs}")
            if (self.gbs - self.rampup_start) % self.rampup_increment:
                steps = (self.gbs - self.rampup_start) // self.rampup_increment
                low = self.rampup_start + steps * self.rampup_increment
                raise BadInput(f"batch: from {self.rampup_start} in steps of {self.rampup_increment} the batch never becomes "
                               f"{self.gbs}: the nearest are {low} and {low + self.rampup_increment}")

    def size_at(self, consumed_samples: int) -> int:
        """The global batch size once `consumed_samples` have been trained on."""
        if self.rampup_start is None or self.rampup_increment is None or self.rampup_samples is None:
            return self.gbs
        steps = (self.gbs - self.rampup_start) // self.rampup_increment
        if steps == 0 or consumed_samples >= self.rampup_samples:
            return self.gbs
        done = consumed_samples * steps // self.rampup_samples
        return min(self.gbs, self.rampup_start + done * self.rampup_increment)


@dataclass(frozen=True, kw_only=True)
class Link:
    """A network link as one process (or one node) sees it."""

    bandwidth_gb_s: float
    """Bytes per second in one direction, in 1e9, of everything the owner of the link can inject."""
    latency_us: float
    """Of one message."""
    efficiency: float = 0.8
    """Share of the nominal bandwidth that large collectives reach."""
    flow_gb_s: float | None = None
    """The most that one communicator, or one pair of processes, gets of it, where that is less than its share."""
    group_share: dict[str, float] = field(default_factory=dict)
    """Share of the rate that a group of so many processes reaches, by its size; sizes between are interpolated, larger ones
    have the last. Without a switch few processes have few of the links: { 2 = 0.14 } where there is one to each of 7 peers."""
    reduce_gain: dict[str, float] = field(default_factory=dict)
    """What an all-reduce reaches relative to a gather or scatter, by the size of its group: a switch that adds up (NVLink
    SHARP) spares it a pass."""
    hop_us: float | None = None
    """Of one step of a ring, beside `latency_us` once a call. Where it is not known a call has log2(processes) latencies."""
    half_rate_mb: float | None = None
    """1e6 bytes of one call at which half of the rate is reached; smaller calls wait for their latency. Where it is not known
    any call, however small, pays for 8 more."""
    name: str = ""
    """What tables call it."""
    source: str = ""
    """Where the figures come from."""

    def __post_init__(self) -> None:
        fields.positive(f"link {self.name}".strip(), bandwidth_gb_s=self.bandwidth_gb_s, latency_us=self.latency_us,
                        efficiency=self.efficiency, flow_gb_s=self.flow_gb_s, hop_us=self.hop_us,
                        half_rate_mb=self.half_rate_mb)
        for name, by_size in (("group_share", self.group_share), ("reduce_gain", self.reduce_gain)):
            for size, value in by_size.items():
                if not size.isdecimal() or int(size) < 2:
                    raise BadInput(f"link {self.name}.{name}: {size!r} is no number of processes; 2 or more")
                fields.positive(f"link {self.name}.{name}", **{size: value})


@dataclass(frozen=True, kw_only=True)
class Device:
    """What one process computes on: a GPU, or a share of a CPU node."""

    name: str
    """What tables call it."""
    kind: Literal["gpu", "cpu"]
    """A GPU stays whole when a node runs more processes; a CPU node is divided."""
    peak_tflops: dict[str, float]
    """Dense matrix peak by precision, from the data sheet."""
    memory_gib: float
    """Of one device."""
    memory_gb_s: float
    """Peak memory bandwidth in 1e9 bytes per second."""
    usable_gib: float | None = None
    """What a process can really have; by default all of it less the framework's context."""
    context_gib: float = 0.0
    """Taken by driver, runtime and communication library before the first tensor."""
    units: int = 1
    """Streaming multiprocessors, or cores: what wave quantisation counts."""
    clock_ghz: float | None = None
    """The clock at which `peak_tflops` holds; a trial at another one is scaled."""
    launch_us: float = 5.0
    """Time to start one kernel when nothing hides it."""
    matmul_efficiency: float = 0.85
    """Share of `peak_tflops` that a large, well shaped GEMM reaches for a moment."""
    sustained: float = 0.88
    """What the power limit leaves of that when large GEMMs follow each other."""
    fused_attention: bool | None = None
    """Whether attention is computed without storing the scores (FlashAttention and its like); by default where the device has
    fp8, whose software is younger than that."""
    power_w: float | None = None
    """For the forecast's energy."""
    source: str = ""
    """Where the figures come from."""

    def __post_init__(self) -> None:
        fields.positive(f"device {self.name}", memory_gib=self.memory_gib, memory_gb_s=self.memory_gb_s, units=self.units,
                        usable_gib=self.usable_gib, clock_ghz=self.clock_ghz, launch_us=self.launch_us,
                        matmul_efficiency=self.matmul_efficiency, sustained=self.sustained)
        if not self.peak_tflops:
            raise BadInput(f"device {self.name}: peak_tflops must name at least one precision")
        for precision, value in self.peak_tflops.items():
            fields.positive(f"device {self.name}.peak_tflops", **{precision: value})

    @property
    def fuses_attention(self) -> bool:
        return "fp8" in self.peak_tflops if self.fused_attention is None else self.fused_attention

    @property
    def limit_gib(self) -> float:
        return self.usable_gib if self.usable_gib is not None else self.memory_gib


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes, devices and links."""

    name: str
    """What tables call it."""
    nodes: int = fields.field(label="Nodes", kind="count", of_trial="nodes", word="nodes",
        names="nodes, node, num nodes, nnodes, n nodes, no of nodes, number of nodes, hosts, servers")
    """Nodes that may be used."""
    procs_per_node: int = fields.field(label="Procs/node", kind="count", of_trial="procs_per_node", title="Processes per node",
        names="gpus per node, gpu per node, procs per node, processes per node, ranks per node, ppn, max proc per node, "
              "devices per node, nproc per node, num gpus per node, gpn")
    """Processes, and so ranks, of one node."""
    device: Device
    """Of one process when `procs_per_node` run; `with_procs` shares a node anew."""
    intra: Link
    """Between the processes of one node, as one process sees it."""
    inter: Link
    """Between nodes, as one NODE sees it (all its adapters together)."""
    domain_nodes: int = 1
    """Nodes whose processes reach each other over `intra`: 18 of 4 GPUs in one NVLink domain of 72."""
    nodes_per_switch: int | None = None
    """For the record; the planner does not use it."""
    memory_convention: Literal["device", "node"] = "device"
    """What the Mem column of this machine's tables means: the fullest device, or everything used on the fullest node."""
    blocking_launch: bool = False
    """Whether jobs run with CUDA_LAUNCH_BLOCKING=1: the device waits for the host at every kernel."""
    host_memory_gib: float | None = None
    """Of one node, beside the devices' own; for the record."""
    machine: str | None = None
    """A machine.json that `seatrial probe` wrote: the planner takes its figures in place of the data sheet."""
    price_per_device_hour: float | None = None
    """In any currency; `plan --price` goes over it."""
    notes: str = ""
    """Anything worth keeping."""

    def __post_init__(self) -> None:
        fields.positive(f"cluster {self.name}", nodes=self.nodes, procs_per_node=self.procs_per_node,
                        domain_nodes=self.domain_nodes, host_memory_gib=self.host_memory_gib)
        fields.at_most(f"cluster {self.name}", {"nodes": 1_000_000, "procs_per_node": 1_000_000}, self)

    @property
    def world(self) -> int:
        return self.nodes * self.procs_per_node

    @property
    def domain(self) -> int:
        """Processes that reach each other over `intra`."""
        return self.procs_per_node * self.domain_nodes

    def with_nodes(self, nodes: int) -> Cluster:
        return replace(self, nodes=nodes)

    def with_procs(self, procs: int) -> Cluster:
        """The same node shared by another number of processes: a CPU node is divided, GPUs stay whole."""
        if procs == self.procs_per_node or self.device.kind == "gpu":
            return replace(self, procs_per_node=procs)
        share = self.procs_per_node / procs
        d = self.device
        device = replace(d, peak_tflops={p: v * share for p, v in d.peak_tflops.items()}, memory_gib=d.memory_gib * share,
                         memory_gb_s=d.memory_gb_s * share, units=max(1, round(d.units * share)),
                         usable_gib=None if d.usable_gib is None else d.usable_gib * share)
        return replace(self, procs_per_node=procs, device=device)


KNOWN_OF_MACHINE = frozenset({"machine", "domain_nodes", "sustained", "group_share", "reduce_gain", "hop_us", "half_rate_mb"})
"""What later versions, or a measurement, say about the same machine."""


def _less_known(cluster: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in cluster.items() if key not in KNOWN_OF_MACHINE}
    for part in ("device", "intra", "inter"):
        if part in kept:
            kept[part] = {key: value for key, value in kept[part].items() if key not in KNOWN_OF_MACHINE}
    return kept


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What surrounds the processes and may change their speed."""

    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables set for the trial (LD_PRELOAD, OMP_NUM_THREADS, CUDA_LAUNCH_BLOCKING, …)."""
    python: str | None = None
    """Another interpreter, for comparing versions of PyTorch."""
    scheduler: dict[str, str] = field(default_factory=dict)
    """Options for the batch system (clock, retention state, partition)."""
    clock_ghz: float | None = fields.field(None, label="Freq", kind="frequency", column="freq_ghz", unit="GHz", word="",
        title="Clock (GHz)",
        names="freq, frequency, clock, clock speed, cpu freq, freq ghz")
    """Of the processors, where the batch system sets it."""
    torch: str | None = fields.field(None, label="PyTorch", column="torch_version",
        names="torch, pytorch, torch version, pytorch version")
    """Version of PyTorch, for the record."""

    def __post_init__(self) -> None:
        fields.positive("environment", clock_ghz=self.clock_ghz)


OVERLAPS = ("gradients", "parameters", "tensor")
"""Collectives that an engine may hide behind computation."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How an engine computes a trial: what changes its time or its memory and is neither model nor layout."""

    optimizer: Literal["adamw-fused", "adamw-plain"] = "adamw-fused"
    """`adamw-plain` is one operation at a time, for comparison."""
    moments: Literal["fp32", "bf16"] = "fp32"
    """How AdamW's two means are held; in bf16 they are computed in fp32 and rounded once, 4 bytes per parameter less."""
    device: Literal["auto", "cpu", "cuda"] = fields.field("auto", label="Device", names="execution device")
    """auto takes CUDA where it is there."""
    compile: bool = fields.field(False, label="Compile", kind="yesno", title="torch.compile",
        names="compile, compiled, torch compile")
    """torch.compile on the layers."""
    bucket_mib: float = fields.field(32.0, label="Bucket", kind="figure", unit="MiB", title="Gradient bucket (MiB)",
        names="bucket mib, bucket size")
    """Size of one flat gradient bucket."""
    logits_chunk: int = fields.field(1024, label="Logits", kind="count", title="Tokens of logits at once",
        names="logits chunk")
    """Tokens whose logits are held at once in the loss."""
    threads: int | None = fields.field(None, label="Threads", kind="count", title="Threads per process",
        names="threads, omp threads")
    """Compute threads per process; by default the cores divided by the processes of the node."""
    attention: Attention | None = fields.field(None, label="Attention",
        names="attention, attention kernel, attention implementation, attn implementation, attn impl, attention backend")
    """The kernel of attention: stored keeps the scores; fused is FlashAttention 2 and its like; fused-hopper is the generation
    after it (FlashAttention 3, cuDNN). By default as the engine has it on the device."""
    overlap: str | None = fields.field(None, label="Overlap", names="overlap, comm overlap, communication overlap")
    """What travels beside computation where the engine leaves the choice: none, all, or some of gradients, parameters, tensor
    with + between. By default as the engine has it."""

    def __post_init__(self) -> None:
        if self.overlap is not None and not set(self.overlap.split("+")) <= {"none", "all", *OVERLAPS}:
            raise BadInput(f"execution.overlap {self.overlap!r}: none, all, or some of {', '.join(OVERLAPS)} with + between")
        fields.positive("execution", bucket_mib=self.bucket_mib, logits_chunk=self.logits_chunk, threads=self.threads)

    @property
    def update(self) -> str:
        """How weights are updated, where that is not the usual way: what a table's Optimizer column says."""
        unusual = [self.optimizer] if self.optimizer != Execution.optimizer else []
        return ", ".join([*unusual, f"moments in {self.moments}"] if self.moments != Execution.moments else unusual)


@dataclass(frozen=True, kw_only=True)
class Command:
    """Any program as an engine: its arguments with {tp}, {gbs}, {run_dir} and the like in them, never seen by a shell."""

    argv: tuple[str, ...]
    """The program and its arguments."""
    per: Literal["rank", "node"] = "node"
    """Whether it is started once a rank, or once a node because it starts the ranks itself (torchrun)."""

    def __post_init__(self) -> None:
        if not self.argv:
            raise BadInput("command.argv: names no program")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One row of a table before it is run."""

    model: Model
    batch: Batch
    topology: Topology = field(default_factory=Topology)
    cluster: Cluster | None = None
    environment: Environment = field(default_factory=Environment)
    execution: Execution = field(default_factory=Execution)
    engine: str = fields.field("seatrial", label="Engine", names="engine, framework, code, codebase, library")
    """Who trains: seatrial, torchtitan, fsdp2, deepspeed, megatron-core; megatron-deepspeed, fsdp1, plain-3d, aliases and
    command with a [command]; one that is installed, or a TOML file of one's own."""
    command: Command | None = None
    """What is run in place of the engine's own program."""
    repeat: int = 0
    """Counts the runs of one and the same trial."""

    def to_dict(self) -> dict[str, Any]:
        return fields.plain(self)

    def run_id(self) -> str:
        """What is known about a machine changes the forecast, not the run: it is left out."""
        asked = self.to_dict()
        if "cluster" in asked:
            asked["cluster"] = _less_known(asked["cluster"])
        return fields.digest(asked)

    @property
    def world(self) -> int:
        return self.topology.world

    @property
    def has_experts(self) -> bool:
        """Whether there is something to say of experts and their layout."""
        return self.model.mixture or self.topology.spreads_experts

    @property
    def expert_parallel(self) -> int | None:
        return self.topology.ep if self.has_experts else None

    @property
    def expert_tensor_parallel(self) -> int | None:
        return self.topology.expert_tp if self.has_experts else None

    @property
    def moe_balance(self) -> Balance | None:
        return self.topology.moe_balance if self.has_experts else None

    @property
    def moe_dispatcher(self) -> Dispatcher | None:
        return self.topology.moe_dispatcher if self.has_experts else None

    @property
    def procs_per_node(self) -> int:
        return self.cluster.procs_per_node if self.cluster else self.world

    @property
    def nodes(self) -> int:
        return max(1, self.world // self.procs_per_node)

    @property
    def microbatches(self) -> int:
        return self.batch.gbs // (self.topology.dp * self.topology.mbs)


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
