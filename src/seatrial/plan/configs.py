"""Many configurations at once: one numpy column a quantity, so that the physics is written once and runs over all of them.

    Configs.from_trials([trial, …])             from the words of `spec/`
    Configs.from_columns(n, layers=72, tp=…)    numbers or arrays; what is left out takes the default of its column
    configs.take(mask_or_indices)

    coded(trial)                                {"dp": 8, "schedule": 1, …}: the knobs of `columns.py` as numbers
    decoded({"dp": 8, "schedule": 1})           {"dp": 8, "schedule": "1f1b"}

Names in words (`recompute`, `schedule`, `precision`) are codes here: the index in CHOICES.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seatrial.columns import BY_FIELD, KNOBS, LAYOUT, by_field
from seatrial.engines.model import DEFAULT, EngineModel, model_of
from seatrial.errors import BadInput
from seatrial.spec import MODULES, OVERLAPS, Cluster, Execution, Topology, Trial, stage_split, stages_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CHOICES: dict[str, tuple[str, ...]] = {name: choices for name in KNOBS if (choices := BY_FIELD[name].choices)}
"""Knob -> its words, each coded by its place."""
RECOMPUTE, SCHEDULES, PRECISIONS = CHOICES["recompute"], CHOICES["schedule"], CHOICES["precision"]
CONTEXTS = CHOICES["cp_kind"]
RING, GATHER, ULYSSES, BOTH = (CONTEXTS.index(kind) for kind in ("ring", "gather", "ulysses", "ulysses+ring"))

OF_MODEL = ("layers", "hidden", "heads", "kv", "head_size", "inner", "seq", "gated", "layernorm", "learned", "rope", "qkv_bias",
            "out_bias", "mlp_bias", "normed_qk", "normed_embedding", "ties", "experts", "chosen", "expert_inner",
            "shared_inner", "router_bias", "expert_layers", "dense_layers", "expert_every", "is_latent", "q_rank", "kv_rank",
            "rope_dim", "value_dim", "has_sinks", "mtp", "sliding_window", "full_every", "capacity_permille",
            "router_groups", "router_limit")
"""Columns that are a model's effective values, under the same names."""



OVERLAP_BITS = {name: bit for bit, name in enumerate(OVERLAPS)}
ATTENTION = BY_FIELD["attention"].choices


def encode(knobs: Mapping[str, Any]) -> dict[str, int]:
    """What is not stated counts 0. Layers of each stage are no number: `split` has them."""
    return {name: CHOICES[name].index(value) if value and name in CHOICES else documents_code(value) if name == "documents"
            else modules_code(value) if name == "recompute_modules" else int(value or name == "ep")
            for name, value in knobs.items() if name != "stage_layers"}  # fmt: skip


def decoded(row: Mapping[str, int]) -> dict[str, Any]:
    """The knobs among a row's numbers, as a topology and a batch have them."""
    found = {name: CHOICES[name][row[name]] if name in CHOICES else DOCUMENTS[row[name]] if name == "documents"
             else modules_of(row[name]) if name == "recompute_modules" else BY_FIELD[name].type(row[name])
             for name in KNOBS if name in row and (row[name] or BY_FIELD[name].default is not None)}  # fmt: skip
    split = SPLITS[row["split"]] if "split" in row else ()
    return {**found, "stage_layers": split} if split and split != stage_split(sum(split), len(split)) else found


DOCUMENTS: list[str | None] = [None]
"""Every `Batch.documents` that was met, each once."""


def documents_code(documents: str | None) -> int:
    if documents not in DOCUMENTS:
        DOCUMENTS.append(documents)
    return DOCUMENTS.index(documents)


def modules_code(modules: str | None) -> int:
    """A bit each of MODULES; 0 as the engine has it."""
    return sum(1 << MODULES.index(name) for name in MODULES if name in (modules or "").split("+"))


def modules_of(code: int) -> str:
    return "+".join(name for bit, name in enumerate(MODULES) if code >> bit & 1)


def coded(trial: Trial) -> dict[str, int]:
    """Its knobs as numbers."""
    return encode(by_field(trial, LAYOUT))


DEFAULTS: dict[str, float] = {
    "gated": 0, "layernorm": 1, "learned": 1, "rope": 0, "qkv_bias": 1, "out_bias": 1, "mlp_bias": 1, "normed_qk": 0,
    "normed_embedding": 0, "ties": 1, "attention": -1, "overlap": -1, "engine": 0, "execution": 0, "documents": 0, "nodes": 1,
    "procs_per_node": 1, "clock_ghz": np.nan, "experts": 0, "chosen": 0, "expert_inner": 0, "shared_inner": 0,
    "router_bias": 0, "expert_layers": 0, "dense_layers": 0, "expert_every": 1, "is_latent": 0,
    "q_rank": 0, "kv_rank": 0, "rope_dim": 0, "value_dim": 0, "has_sinks": 0, "mtp": 0,
    "sliding_window": 0, "full_every": 0, "capacity_permille": 0, "router_groups": 1, "router_limit": 1,
    **encode({name: getattr(Topology(precision="bf16"), name) for name in KNOBS if BY_FIELD[name].table == "topology"}),
}


@dataclass(frozen=True, kw_only=True)
class Configs:
    """Columns of one length. Integers but for `clock_ghz`."""

    layers: Ints
    hidden: Ints
    heads: Ints
    kv: Ints
    """Key-value heads."""
    head_size: Ints
    inner: Ints
    """Of the MLP."""
    seq: Ints
    vocab: Ints
    """Rows of the embedding as stored, padding included."""
    gated: Ints
    """1 for SwiGLU; so are the next ones 1 for what they name, as in `Model`."""
    layernorm: Ints
    learned: Ints
    rope: Ints
    qkv_bias: Ints
    out_bias: Ints
    mlp_bias: Ints
    normed_qk: Ints
    normed_embedding: Ints
    ties: Ints
    experts: Ints
    """0 where there are none; so the next ones."""
    chosen: Ints
    expert_inner: Ints
    shared_inner: Ints
    router_bias: Ints
    expert_layers: Ints
    dense_layers: Ints
    """The first so many layers have none …"""
    expert_every: Ints
    """… and of all layers each so-manieth has some."""
    is_latent: Ints
    """0, as the next ones, where attention is not latent."""
    q_rank: Ints
    kv_rank: Ints
    rope_dim: Ints
    value_dim: Ints
    has_sinks: Ints
    mtp: Ints
    """Layers after the last that predict further tokens, on the last stage."""
    sliding_window: Ints
    """0 where attention looks back over all …"""
    full_every: Ints
    """… as each so-manieth layer does in any case; 0 for none."""
    capacity_permille: Ints
    """What an expert takes, over its even share; 0 where it takes all."""
    router_groups: Ints
    router_limit: Ints
    """Groups of experts, and those of them that a token may choose from."""
    dp: Ints
    tp: Ints
    pp: Ints
    cp: Ints
    cp_kind: Ints
    vp: Ints
    mbs: Ints
    gbs: Ints
    documents: Ints
    """Packed into a sequence: the index in DOCUMENTS."""
    zero: Ints
    recompute: Ints
    recompute_modules: Ints
    """What selective recompute makes again, a bit each of MODULES; 0 as the engine has it."""
    schedule: Ints
    precision: Ints
    sequence_parallel: Ints
    zero_group: Ints
    """Ranks of one sharded copy; 0 for all of DP x CP …"""
    gradients_group: Ints
    """… of the gradients; 0 for the same …"""
    weights_group: Ints
    """… and of the weights."""
    ep: Ints
    etp: Ints
    """0 for TP."""
    moe_balance: Ints
    moe_dispatcher: Ints
    attention: Ints
    """The kernel: the index in ATTENTION, -1 as the engine has it on the device."""
    overlap: Ints
    """What is hidden, a bit each of OVERLAP_BITS; -1 as the engine has it."""
    engine: Ints
    """Who trains: `engine_at` has its facts."""
    execution: Ints
    """How our own engine computes: `execution_at` has it."""
    nodes: Ints
    procs_per_node: Ints
    split: Ints
    """Layers of each of the pp x vp stages: the index in SPLITS."""
    first_layers: Ints
    """Layers of the first pipeline rank, all its virtual stages …"""
    middle_layers: Ints
    """… of the fullest between the first and the last, 0 where there is none …"""
    last_layers: Ints
    """… and of the last."""
    clock_ghz: Floats
    """The device's clock where the row names one, else NaN: the clock of the device itself."""

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def microbatches(self) -> Ints:
        return np.maximum(self.gbs // (self.dp * self.mbs), 1)

    @property
    def world(self) -> Ints:
        return self.dp * self.tp * self.pp * self.cp

    @property
    def stretch(self) -> Ints:
        """Tokens of a sequence on one rank …"""
        return self.seq // self.cp

    @property
    def tokens(self) -> Ints:
        """… and of a micro-batch."""
        return self.mbs * self.stretch

    @property
    def data_ranks(self) -> Ints:
        """Ranks that hold the same weights and see other tokens."""
        return self.dp * self.cp

    @property
    def shards(self) -> Ints:
        """Ranks over which ZeRO cuts the optimizer's state …"""
        return np.where(self.zero_group > 0, self.zero_group, self.data_ranks)

    @property
    def gradient_shards(self) -> Ints:
        """… the gradients …"""
        return np.where((self.zero >= 2) & (self.gradients_group > 0), self.gradients_group, self.shards)

    @property
    def weight_shards(self) -> Ints:
        """… and the weights."""
        return np.where((self.zero == 3) & (self.weights_group > 0), self.weights_group, self.gradient_shards)

    @property
    def divided_over(self) -> tuple[Ints, Ints, Ints]:
        """`Topology.divided_over`."""
        weights, gradients, state = self.weight_shards, self.gradient_shards, self.shards
        return np.where(self.zero == 3, weights, 1), np.where(self.zero >= 2, gradients, 1), np.where(self.zero > 0, state, 1)

    @property
    def expert_tp(self) -> Ints:
        return np.where(self.etp > 0, self.etp, self.tp)

    @property
    def expert_ranks(self) -> Ints:
        """Ranks that hold all experts of a layer between them: neighbours."""
        return self.expert_tp * self.ep

    @property
    def edp(self) -> Ints:
        """Ranks of a stage that hold the same experts."""
        return np.maximum(1, self.data_ranks * self.tp // self.expert_ranks)

    @property
    def further(self) -> Ints:
        """[3, n]: layers of multi-token prediction on the first pipeline rank, those in between and the last."""
        return np.stack([np.where(self.pp == 1, self.mtp, 0), 0 * self.mtp, self.mtp])

    @property
    def expert_shards(self) -> tuple[Ints, Ints, Ints]:
        """Ranks over which weights, gradients and state of experts would be cut: a group that is not said is all of them."""
        state = np.gcd(self.edp, self.zero_group)
        gradients = np.gcd(state, self.gradients_group)
        return np.gcd(gradients, self.weights_group), gradients, state

    @property
    def experts_divided_over(self) -> tuple[Ints, Ints, Ints]:
        """`Topology.experts_divided_over`."""
        weights, gradients, state = self.expert_shards
        return np.where(self.zero == 3, weights, 1), np.where(self.zero >= 2, gradients, 1), np.where(self.zero > 0, state, 1)

    @property
    def attention_size(self) -> Ints:
        """Of a head as attention computes with it; latent attention's queries are wider than its values."""
        return np.where(self.is_latent == 1, (self.head_size + self.rope_dim + self.value_dim) // 2, self.head_size)

    @property
    def context_split(self) -> tuple[Ints, Ints]:
        """Context parallelism as neighbours that share heads, and the ring or the gathering of such: `spec.context_split`."""
        held = np.maximum(1, self.kv // self.tp)
        heads = np.where(self.cp_kind == ULYSSES, self.cp, np.where(self.cp_kind == BOTH, np.gcd(self.cp, held), 1))
        return heads, self.cp // heads

    def by_schedule(self, rows: Ints) -> Iterator[tuple[str, int, int, Ints]]:
        """Kind, PP, VP and which of `rows` have them, for each that there is."""
        packed = (self.schedule << 48 | self.pp << 16 | self.vp)[rows]
        order = np.argsort(packed, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(packed[order])) + 1):
            if len(group):
                first = rows[group[0]]
                yield SCHEDULES[self.schedule[first]], int(self.pp[first]), int(self.vp[first]), group

    def take(self, index: Any) -> Configs:
        return Configs(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    @classmethod
    def from_columns(cls, n: int, **columns: Any) -> Configs:
        """Each value a number or an array of n; stages are split as the engine splits them unless given."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(columns) - known):
            raise BadInput(f"no such column: {', '.join(unknown)}")
        got: dict[str, Any] = {}
        for f in fields(cls):
            value = columns.get(f.name, DEFAULTS.get(f.name))
            if value is None:
                continue
            kind = np.float64 if f.name == "clock_ghz" else np.int64
            got[f.name] = np.broadcast_to(np.asarray(value, dtype=kind), (n,))
        for name in ("layers", "hidden", "heads", "seq", "vocab", "gbs"):
            if name not in got:
                raise BadInput(f"column {name} is needed")
        got.setdefault("kv", got["heads"])
        got.setdefault("head_size", got["hidden"] // got["heads"])
        got.setdefault("inner", np.where(got["gated"] == 1, -(-(8 * got["hidden"] // 3) // 256) * 256, 4 * got["hidden"]))
        if "split" not in got:
            got.update(split_stages(got["layers"], got["pp"], got["vp"]))
        elif "first_layers" not in got:
            got.update(over_ranks(got["split"], got["pp"]))
        return cls(**got)

    @classmethod
    def join(cls, pieces: Sequence[Configs]) -> Configs:
        return cls(**{f.name: np.concatenate([getattr(piece, f.name) for piece in pieces]) for f in fields(cls)})

    @classmethod
    def from_trials(cls, trials: Iterable[Trial], cluster: Cluster | None = None) -> Configs:
        """The cluster of a trial (or the one given) says how many nodes and processes per node there are."""
        rows = [_row(trial, trial.cluster or cluster) for trial in trials]
        names = rows[0] if rows else {}
        return cls.from_columns(len(rows), **{name: np.array([row[name] for row in rows]) for name in names})


def _row(trial: Trial, cluster: Cluster | None) -> dict[str, float]:
    m, t = trial.model, trial.topology
    split = stages_of(m, t)
    procs = cluster.procs_per_node if cluster else t.world
    return {
        **{name: getattr(m, name) or 0 for name in OF_MODEL}, "vocab": m.padded_vocab(t.tp),
        **coded(trial), "nodes": cluster.nodes if cluster else 1, "procs_per_node": procs,
        **rank_layers(split, t.pp), **asked(trial.execution), "engine": engine_code(trial.engine),
        "clock_ghz": np.nan if trial.environment.clock_ghz is None else trial.environment.clock_ghz,
    }


def asked(execution: Execution) -> dict[str, int]:
    """What an execution says of attention and overlap, as the columns have it."""
    said = execution.overlap
    chosen = set() if said in (None, "none") else set(OVERLAPS) if said == "all" else set(str(said).split("+"))
    return {"execution": execution_code(execution),
            "attention": -1 if execution.attention is None else ATTENTION.index(execution.attention),
            "overlap": -1 if said is None else sum(1 << OVERLAP_BITS[name] for name in chosen)}


_ENGINES: list[EngineModel] = [model_of(DEFAULT)]
"""Every engine that was met, each once; the first is that of a row that names none."""


def engine_code(name: str) -> int:
    found = model_of(name)
    if found not in _ENGINES:
        _ENGINES.append(found)
    return _ENGINES.index(found)


_EXECUTIONS: list[Execution] = [Execution()]


def execution_code(execution: Execution) -> int:
    """What attention and overlap are has columns of its own."""
    plain = replace(execution, attention=None, overlap=None)
    if plain not in _EXECUTIONS:
        _EXECUTIONS.append(plain)
    return _EXECUTIONS.index(plain)


def execution_at(code: int) -> Execution:
    return _EXECUTIONS[code]


def engine_at(code: int) -> EngineModel:
    return _ENGINES[code]


SPLITS: list[tuple[int, ...]] = []
"""Every division of layers over stages that was met, each once."""
_CODES: dict[tuple[int, ...], int] = {}


def rank_layers(split: tuple[int, ...], pp: int) -> dict[str, int]:
    """The columns that follow from the layers of each stage; stages are dealt round the ranks."""
    if split not in _CODES:
        _CODES[split] = len(SPLITS)
        SPLITS.append(split)
    ranks = [sum(split[rank::pp]) for rank in range(pp)]
    return {"split": _CODES[split], "first_layers": ranks[0], "middle_layers": max(ranks[1:-1], default=0),
            "last_layers": ranks[-1]}


def over_ranks(split: Ints, pp: Ints) -> dict[str, Ints]:
    """`rank_layers` for columns of codes."""
    packed, back = np.unique(split << 24 | pp, return_inverse=True)
    rows = [rank_layers(SPLITS[n >> 24], n & 0xFFFFFF) for n in packed.tolist()]
    return {name: np.array([row[name] for row in rows], dtype=np.int64)[back] for name in (rows[0] if rows else ())}


def split_stages(layers: Ints, pp: Ints, vp: Ints) -> dict[str, Ints]:
    """`spec.stage_split` for columns. The few that are distinct are split one by one."""
    packed, back = np.unique(layers << 40 | pp << 16 | vp, return_inverse=True)
    rows = [rank_layers(stage_split(n >> 40, (n >> 16 & 0xFFFFFF) * (n & 0xFFFF)), n >> 16 & 0xFFFFFF) for n in packed.tolist()]
    return {name: np.array([row[name] for row in rows], dtype=np.int64)[back] for name in (rows[0] if rows else ())}
