"""The model: the shape of a network, from orthogonal choices; a family is a usual set of them."""
from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from seatrial import fields
from seatrial.errors import BadInput
from seatrial.spec.numbers import divisors_near, round_up

Family = Literal["gpt2", "bloom", "llama", "mistral", "qwen2", "qwen3"]
Norm = Literal["layernorm", "rmsnorm"]
Positions = Literal["learned", "alibi", "rope"]
Mlp = Literal["gelu", "swiglu", "swiglu-clamped"]
Biases = Literal["all", "attention", "qkv", "mlp", "none"]
RopeScaling = Literal["llama3", "yarn"]
TokenSet = Literal["sequence", "rank", "global"]


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
    in which the expert had fewer tokens than the mean, and down after one in which it had more. Left out or 0: none."""
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
    Left out or 0: dropless."""
    over: TokenSet = "sequence"
    """The tokens over which capacity and balance loss are counted: each sequence, those of a micro-batch on one data-parallel
    replica, or those of a micro-batch on all of them."""

    def __post_init__(self) -> None:
        for name in ("correction", "capacity"):
            if getattr(self, name) == 0:  # what turns it off over a base that has one
                object.__setattr__(self, name, None)
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
    router: Router = field(default_factory=functools.cache(Router))
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

    def __hash__(self) -> int:
        # What models differ in: all of the fields take longer than some of what is kept by model.
        return hash((self.layers, self.hidden, self.heads, self.kv_heads, self.vocab, self.seq, self.ffn, self.family,
                     self.experts, self.top_k))  # fmt: skip

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
    def capacity_permille(self) -> int:
        """What an expert takes, in thousandths of an even share; 0 where it takes all."""
        return round(1000 * (self.router.capacity or 0)) if self.mixture else 0

    @property
    def router_groups(self) -> int:
        return self.router.groups

    @property
    def router_limit(self) -> int:
        return self.router.limit

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
        return self.sliding_window is not None and any(self.window(layer) is not None for layer in range(self.layers))

    def has_experts(self, layer: int) -> bool:
        """Whether a layer, the first is 0, has experts in place of an MLP."""
        return self.mixture and layer >= self.dense_layers and (layer + 1) % self.expert_every == 0

    @functools.cached_property
    def expert_layers(self) -> int:
        return sum(map(self.has_experts, range(self.layers))) if self.mixture else 0

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
    def dense_inner(self) -> int:
        """0 where every layer has experts."""
        return self.inner if self.expert_layers < self.layers else 0

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


@functools.cache
def _unsaid(family: Family) -> dict[str, Any]:
    """All fields of a dense model of a family of which nothing else is said."""
    some = Model(layers=1, hidden=2, heads=1, vocab=1, seq=1, family=family)
    return {one.name: getattr(some, one.name) for one in dataclasses.fields(some)}


def model_of(family: Family, **sides: int | None) -> Model:
    """`Model(family=family, **sides)` in a fraction of the time: notes have another model in every table."""
    made: Model = object.__new__(Model)
    made.__dict__.update(_unsaid(family), **sides)
    whole = all(value is None or 1 <= value <= _MOST.get(name, value) for name, value in sides.items())
    if not whole or made.hidden % made.heads or made.heads % made.kv or made.rope and made.head_size % 2:
        return Model(family=family, **sides)  # type: ignore[arg-type]  # which says what is wrong
    return made


def is_gated(family: str) -> bool:
    """Whether models of this family have a gated MLP; a word that is no family has not."""
    return family in FAMILIES and FAMILIES[family].mlp != "gelu"


def kv_fits(kv: Any, tp: Any) -> Any:
    """Whether key-value heads can lie over TP: divided, or each held by several ranks. Numbers or arrays."""
    return (kv % tp == 0) | (tp % kv == 0)
