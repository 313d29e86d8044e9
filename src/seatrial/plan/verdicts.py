"""The verdicts of `rules.py` for a hundred thousand layouts at once.

    codes = verdicts(columns, space, batch, "bf16")        0 where a layout is accepted, else 1 + its position in CODES

`rules.py` is the truth: it says why and what would work, for one trial. Here is only whether, for columns, and a test holds the
two equal on random layouts, code by code. The order of CODES is the order in which `rules.check` would meet them.
"""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seatrial.plan.configs import BOTH, CHOICES, CONTEXTS, ULYSSES
from seatrial.plan.space import GROUPS, Columns, Space
from seatrial.schedule import GROUPED, KINDS
from seatrial.spec import Batch, kv_fits

CODES = (
    "layers-divisible", "heads-divisible", "kv-heads-divisible", "ffn-divisible", "vocab-divisible", "no-experts",
    "experts-divisible", "expert-ffn-divisible", "tokens-divisible", "expert-parallel", "zero-experts", "dispatcher",
    "context-kind", "context-heads", "seq-divisible", "zero-group", "batch-divisible", "rampup-start", "rampup-increment",
    GROUPED, "precision",
)  # fmt: skip
"""Those of `rules.py` that a layout can break: its world always fits, it was made to."""


def verdicts(c: Columns, space: Space, ramp: Batch | None, precision: str) -> np.ndarray:
    """`ramp`: a batch whose ramp-up every layout must serve."""
    found = np.zeros(len(c["dp"]), dtype=np.int8)

    def reject(code: str, where: np.ndarray) -> None:
        found[where & (found == 0)] = 1 + CODES.index(code)

    def of_model(name: str) -> np.ndarray:
        return np.array([getattr(model, name) for model in space.models], dtype=np.int64)[c["shape"]]

    if space.facts.uneven not in ("equal", "embedding-slots"):
        reject("layers-divisible", of_model("layers") < c["pp"] * c["vp"])
    layers, tp, replica = of_model("layers"), c["tp"], c["dp"] * c["mbs"]
    stages = c["pp"] * c["vp"]
    facts, uneven = space.facts, space.facts.uneven
    reject("layers-divisible", layers < stages if uneven in ("any", "balanced") else
           (layers % stages != 0) & ((uneven == "equal") | ((layers + 2) % stages != 0)))
    reject("heads-divisible", of_model("heads") % tp != 0)
    reject("kv-heads-divisible", ~kv_fits(of_model("kv"), tp))
    reject("ffn-divisible", of_model("dense_inner") % tp != 0)
    padded = np.array([model.pad_vocab_to or 0 for model in space.models], dtype=np.int64)[c["shape"]]
    reject("vocab-divisible", padded % tp != 0)
    for code, where in _experts(c, space):
        reject(code, where)
    if space.divides_sequence:
        for code, where in _context(c, space, of_model("kv"), of_model("seq")):
            reject(code, where)
    else:
        reject("seq-divisible", (c["sequence_parallel"] != 0) & (of_model("seq") % tp != 0))
    shards = whole = c["dp"] * c["cp"]
    for stage, name in enumerate(GROUPS, 1):
        if name in c:
            reject("zero-group", (c[name] > 1) & (c["zero"] < stage))
            has = facts.hybrid_sharding if name == "zero_group" else name in facts.own_groups
            reject("zero-group", (c[name] > 0) & ((whole % np.maximum(c[name], 1) != 0) | (c[name] != shards) & (not has)))
            whole = np.where(c[name] > 0, c[name], whole)
            shards = whole if name == "zero_group" else shards
    reject("batch-divisible", c["gbs"] % replica != 0)
    sizes: list[np.ndarray | int] = [c["gbs"]]
    if ramp is not None and ramp.rampup_start is not None and ramp.rampup_increment is not None:
        reject("rampup-start", ramp.rampup_start % replica != 0)
        reject("rampup-increment", ramp.rampup_increment % replica != 0)
        sizes = [ramp.rampup_start, ramp.rampup_increment, c["gbs"]]
    group = np.where(np.array([kind.grouped for kind in KINDS.values()])[c["schedule"]], c["pp"], 1)
    for size in sizes:
        reject(GROUPED, size // replica % group != 0)
    if precision == "fp8" and precision not in space.cluster.device.peak_tflops:
        reject("precision", np.ones(len(found), dtype=bool))
    return found


def _experts(c: Columns, space: Space) -> Iterator[tuple[str, np.ndarray]]:
    """`rules.experts_fit`, in its order."""
    tp, ep, facts = c["tp"], c["ep"], space.facts
    etp = np.where(c["etp"] > 0, c["etp"], tp)

    def of_model(name: str) -> np.ndarray:
        return np.array([int(getattr(model, name) or 0) for model in space.models], dtype=np.int64)[c["shape"]]

    experts = of_model("experts")
    has = experts > 0
    yield "no-experts", ~has & ((ep > 1) | (etp != tp))
    if not has.any():
        return
    yield "experts-divisible", has & (experts % ep != 0)
    yield "expert-ffn-divisible", has & (of_model("expert_inner") % etp != 0)
    yield "ffn-divisible", has & (of_model("shared_inner") % tp != 0)
    yield "tokens-divisible", has & (c["mbs"] * (of_model("seq") // c["cp"]) % tp != 0)
    if not facts.expert_parallel:
        yield "expert-parallel", has & (ep > 1)
    yield "zero-experts", has & (ep > 1) & (c["zero"] > facts.zero_with_experts)
    if "any" not in facts.expert_tensor:
        works = [etp == (tp if way == "tp" else 1) for way in facts.expert_tensor]
        yield "expert-parallel", has & ~np.logical_or.reduce(works)
    asked = space.moe_dispatcher or facts.dispatchers[:1]
    if facts.dispatchers and not set(asked) <= set(facts.dispatchers):
        has_it = np.isin(CHOICES["moe_dispatcher"], facts.dispatchers)
        given = c.get("moe_dispatcher", np.full(len(tp), CHOICES["moe_dispatcher"].index(asked[0])))
        yield "dispatcher", has & (etp * ep > 1) & ~has_it[given]


def _context(c: Columns, space: Space, kv: np.ndarray, seq: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """`rules.context_fits`, in its order."""
    cp, tp, kind = c["cp"], c["tp"], c.get("cp_kind", np.full(len(c["cp"]), CONTEXTS.index(space.kinds[0])))
    several, held = cp > 1, np.maximum(1, kv // tp)
    heads = np.select([kind == ULYSSES, kind == BOTH], [cp, np.gcd(cp, held)], default=1)
    ring = cp // heads
    yield "context-kind", several & ~np.isin(kind, [CONTEXTS.index(name) for name in space.facts.context])
    yield "context-heads", several & np.select([kind == ULYSSES, kind == BOTH], [held % cp != 0, (heads == 1) | (ring == 1)],
                                               default=False)
    parts = np.lcm(np.where(ring > 1, 2 * ring, 1), cp * np.where(c["sequence_parallel"] != 0, tp, 1))
    yield "seq-divisible", seq % parts != 0


def hopeless(where: np.ndarray, space: Space) -> np.ndarray:
    """Which places (rows of PLACE) no micro-batch, batch or schedule can save: TP does not divide what it must."""
    shape, tp = where[:, 0], where[:, 3]

    def of_model(name: str) -> np.ndarray:
        return np.array([getattr(model, name) for model in space.models], dtype=np.int64)[shape]

    return (of_model("heads") % tp != 0) | ~kv_fits(of_model("kv"), tp) | (of_model("dense_inner") % tp != 0)
