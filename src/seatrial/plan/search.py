"""Every layout of a model on a cluster, forecast and ranked; what is rejected is counted by its reason.

    found = search(Space(models=(model,), cluster=cluster, gbs=(2048,), zero=(1,)), rules=[parse("dp % 4 == 0")])
    found.considered, found.rejected, found.ranked["dp"][:5], found.sec[:5]

A layout goes through `rules.py`'s conditions, the user's own rules, memory, and then time; each rejected one is counted once,
under the first that it breaks. What may not fit ranks by the time until one survives, and never first where
another is likely to. Chunks bound the memory, and only the best of each are kept.
"""
from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seatrial import arith
from seatrial.arith import TIE
from seatrial.columns import BY_FIELD, COLUMNS, KNOBS, SHAPE
from seatrial.expression import Expression
from seatrial.plan import stages, step
from seatrial.plan.calibrate import Calibration
from seatrial.plan.configs import (
    CHOICES,
    OF_MODEL,
    PRECISIONS,
    RECOMPUTE,
    Configs,
    Floats,
    asked,
    decoded,
    documents_code,
    engine_code,
    modules_code,
    rank_layers,
)
from seatrial.plan.held import Held
from seatrial.plan.layer import fastest_kinds
from seatrial.plan.odds import LIKELY, UNLIKELY, expected
from seatrial.plan.space import CHUNK, GROUPS, PLACE, ROUTING, TRIED, Columns, Space, divisors, expand, product
from seatrial.plan.verdicts import CODES, hopeless, verdicts
from seatrial.spec import Batch, Model, Topology, Trial

By = Literal["time", "tflops", "cost", "energy", "memory"]

KEPT = 4096
"""The best that are carried from chunk to chunk."""
TIMED = 1 << 15
"""Layouts that fit memory and are timed together."""

NO_NUMBER = (*CHOICES, "stage_layers", "documents", "recompute_modules")
RULE_NAMES = (*(name for name in KNOBS if name not in NO_NUMBER), "nodes", "world", "microbatches", "stages",
              *(name for name in SHAPE if COLUMNS[name].about.kind == "count"))  # fmt: skip
"""What a user's rule can speak of; `stages` is PP x VP, `world` all processes."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search came to. Arrays are in the order of rank, best first."""

    space: Space
    precision: str
    formula: str
    considered: int
    rejected: dict[str, int]
    """Reason -> how many layouts it cost, each counted once."""
    accepted: int
    ranked: Columns
    """The best accepted layouts, `KEPT` at most."""
    sec: Floats
    lo: Floats
    hi: Floats
    mem_gib: Floats
    odds: Floats
    """That each fits: `odds.py`."""
    key: Floats
    """What the rank goes by: smaller is better."""
    closest: tuple[Columns, float, float] | None
    """Where nothing fits memory: the layout that needs least, its GiB, and the odds that it fits all the same."""
    reference: float | None = None
    """Where shapes were searched too: the size that their seconds are normalised to."""

    def __len__(self) -> int:
        return len(self.sec)

    @property
    def ties(self) -> int:
        """How many of the best cannot be told from the first, itself included."""
        return int((_excess(self.key) < TIE).sum()) if len(self) else 0

    def excess(self, i: int) -> float:
        """How much worse than the first by what was ranked by: 0.02 is 2 %."""
        return float(_excess(self.key)[i])

    def trial(self, i: int) -> Trial:
        return trial_of({name: int(column[i]) for name, column in self.ranked.items()}, self.space, self.precision)

    def normal(self, i: int) -> float:
        """What the seconds of layout `i` are multiplied with to be those of a model of the reference size."""
        return 1.0 if self.reference is None else self.reference / arith.parameters(self.trial(i).model).total

    def tflops(self, i: int) -> float:
        trial = self.trial(i)
        return arith.tflops(self.formula, trial.model, samples=trial.batch.gbs, sec_per_it=float(self.sec[i]),
                            processes=trial.topology.world, recompute=trial.topology.recompute, tp=trial.topology.tp,
                            pp=trial.topology.pp)


def _excess(key: Floats) -> Floats:
    """Relative distance from the best; keys are negative where more is better."""
    return key / key[0] - 1 if key[0] > 0 else key[0] / key - 1


def trial_of(row: dict[str, int], space: Space, precision: str) -> Trial:
    knobs = decoded(row)
    return Trial(model=space.models[row["shape"]], batch=Batch(gbs=knobs.pop("gbs"), documents=space.documents),
                 engine=space.engine, execution=space.execution,
                 topology=Topology(**{**knobs, "precision": precision}), cluster=space.cluster.with_nodes(row["nodes"]))


def configs_of(c: Columns, space: Space, precision: str) -> Configs:
    """The layouts as the physics takes them."""
    models = space.models

    def of_model(name: str) -> np.ndarray:
        each = np.array([int(getattr(model, name) or 0) for model in models], dtype=np.int64)
        return np.broadcast_to(each[0], c["shape"].shape) if (each == each[0]).all() else each[c["shape"]]

    of_models = {name: of_model(name) for name in OF_MODEL}
    return Configs.from_columns(
        len(c["shape"]), **of_models, vocab=_padded_vocab(c, models), precision=PRECISIONS.index(precision),
        procs_per_node=space.cluster.procs_per_node, engine=engine_code(space.engine), **asked(space.execution),
        documents=documents_code(space.documents),
        **{name: column for name, column in c.items() if name != "shape"},
    )  # fmt: skip


def _padded_vocab(c: Columns, models: Sequence[Model]) -> np.ndarray:
    vocab = np.array([model.vocab for model in models])[c["shape"]]
    fixed = np.array([model.pad_vocab_to or 0 for model in models])[c["shape"]]
    multiple = 128 * c["tp"]
    return np.where(fixed > 0, fixed, -(-vocab // multiple) * multiple)


def search(space: Space, *, rules: Sequence[Expression] = (), ramp: Batch | None = None, precision: str = "bf16",
           by: By = "time", fit: Calibration | None = None, rows: int = CHUNK) -> Found:
    """Forecast and rank everything in `space`, with what was learned in `fit`.

    `ramp`: the batch whose ramp-up every layout must be able to run.
    """
    coefficients = learned(fit)
    # sc21 credits full recompute with a third more operations, so it can only compare layouts of one recompute mode.
    formula = arith.FORMULA if space.recompute is not None and len(space.recompute) == 1 else "model"
    where, tried = product(space)
    lost = hopeless(where, space)
    rejected = _rejected_early(where[lost], tried, space, ramp, precision, rows)
    considered, accepted = sum(rejected.values()), 0
    best = _Best({}, *[np.zeros(0)] * 6)
    closest: tuple[Columns, float, float] | None = None
    waiting: list[tuple[Columns, Floats, Floats, Configs]] = []

    def timed() -> _Best:
        """The best so far together with those that wait: many are timed at once, since schedules are the better shared."""
        columns = {name: np.concatenate([c[name] for c, *_ in waiting]) for name in waiting[0][0]}
        mem, odds = (np.concatenate([each[place] for each in waiting]) for place in (1, 2))
        found = step.time(Configs.join([configs for *_, configs in waiting]), space.cluster, coefficients)
        waiting.clear()
        part = _Best(columns, found.sec, found.lo, found.hi, mem, odds, _key(by, formula, columns, space, found.sec, mem))
        return (best.joined(part) if len(best.sec) else part).best(by)

    for c in _beside(expand(where[~lost], tried, space, rows), space, precision):
        considered += len(c["dp"])
        codes = verdicts(c, space, ramp, precision)
        rejected.update({CODES[code - 1]: int(count) for code, count in enumerate(np.bincount(codes)) if code and count})
        c = _only(c, codes == 0)
        if space.zero is None:
            c = _counted(c, (c["zero"] <= space.facts.zero_with_pipeline) | (c["pp"] == 1), "zero-pipeline", rejected)
            if space.facts.replicas_alone:
                alone = (c["dp"] * c["cp"] == 1) | (c["dp"] == c["nodes"] * space.cluster.procs_per_node)
                c = _counted(c, (c["zero"] > 0) | alone, "zero-replicas", rejected)
        if space.stage_layers is not None:
            c = _counted(c, c["pp"] * c["vp"] == len(space.stage_layers), "stage-layers", rejected)
            c = {**c, "split": np.full(len(c["dp"]), rank_layers(space.stage_layers, 1)["split"])}
        for rule in rules:
            c = _counted(c, _holds(rule, c, space), f"rule: {rule.text}", rejected)
        if not len(c["dp"]):
            continue
        configs = configs_of(c, space, precision)
        held = Held.of(configs, space.cluster, fit, space.headroom)
        mem, odds = held.shown_gib, held.odds
        may = odds >= UNLIKELY
        if not may.all():
            rejected["memory"] += int((~may).sum())
            least = int(np.argmin(held.need_gib))
            if closest is None or held.need_gib[least] < closest[1]:
                closest = (_only(c, np.array([least])), float(held.need_gib[least]), float(odds[least]))
            c, mem, odds, configs = _only(c, may), mem[may], odds[may], configs.take(may)
        accepted += len(mem)
        if len(mem):
            waiting.append((c, mem, odds, configs))
            if sum(len(mem) for _, mem, *_ in waiting) >= TIMED:
                best = timed()
    if waiting:
        best = timed()
    groups_open = space.zero_group is None and not any("zero_group" in rule.names for rule in rules)
    for refined, wanted in ((_in_groups, groups_open and space.facts.hybrid_sharding),
                            (_in_stages, space.stage_layers is None and space.facts.uneven == "any")):
        if wanted and len(best.sec):
            best = refined(best, space, precision, by, formula, fit).best(by)
    return Found(space=space, precision=precision, formula=formula, considered=considered, rejected=dict(rejected),
                 accepted=accepted, ranked=best.columns, sec=best.sec, lo=best.lo, hi=best.hi, mem_gib=best.mem, odds=best.odds,
                 key=best.rank(by), closest=None if accepted else closest)


def _beside(chunks: Iterable[Columns], space: Space, precision: str) -> Iterator[Columns]:
    """Each chunk with the kind of context parallelism that is best for each layout, and in each of the groups asked for."""
    names = [name for name in GROUPS if any(getattr(space, one) for one in GROUPS)]
    given = [getattr(space, name) or (0,) for name in names]
    if space.mixture:
        names += ROUTING
        words = (space.moe_balance or CHOICES["moe_balance"][:1],
                 space.moe_dispatcher or space.facts.dispatchers[:1] or CHOICES["moe_dispatcher"][:1])
        given += [tuple(CHOICES[name].index(word) for word in values) for name, values in zip(ROUTING, words)]
    if space.recompute_modules:
        names.append("recompute_modules")
        given.append(tuple(modules_code(modules) for modules in space.recompute_modules))
    groups = [dict(zip(names, values)) for values in itertools.product(*given)]
    for c in chunks:
        if space.divides_sequence:
            c = {**c, "cp_kind": _kinds(c, space, precision)}
        for group in groups:
            yield {**c, **{name: np.full(len(c["dp"]), value) for name, value in group.items()}}


def _kinds(c: Columns, space: Space, precision: str) -> np.ndarray:
    """Of each layout; thousands have a few dozen pairs of attention and groups between them."""
    found = np.zeros(len(c["dp"]), dtype=np.int64)
    rows = np.flatnonzero(c["cp"] > 1)
    if not len(rows):
        return found
    names = [name for name in (*PLACE, "mbs", "sequence_parallel") if name not in ("dp", "pp", "ep", "etp")]
    packed = np.zeros(len(rows), dtype=np.int64)
    for name in names:
        packed = packed * (int(c[name].max()) + 1) + c[name][rows]
    _, first, back = np.unique(packed, return_index=True, return_inverse=True)
    few = _only(c, rows[first])
    # TP that heads do not divide is rejected for that.
    found[rows] = fastest_kinds(configs_of(few, space, precision), space.cluster, space.kinds)[back.reshape(-1)]
    return found


GROUPED_ROWS = 256
"""Of the best layouts, how many are tried with sharding groups of whole nodes."""


def _in_groups(best: _Best, space: Space, precision: str, by: By, formula: str, fit: Calibration | None) -> _Best:
    """The same, each in the group of whole nodes that makes it better by more than nobody can tell, and surely fits."""
    c = {name: column.copy() for name, column in best.columns.items()}
    c.setdefault("zero_group", np.zeros_like(c["dp"]))
    best = _Best(c, *best.figures)
    procs = space.cluster.procs_per_node
    tried = [(i, group) for i in range(min(len(best.sec), GROUPED_ROWS)) if c["zero"][i] for group in whole_nodes(
        int(c["tp"][i]), int(c["dp"][i] * c["cp"][i]), procs)]
    if not tried:
        return best
    rows, groups = (np.array(column) for column in zip(*tried))
    return _where_better(best, rows, {**_only(c, rows), "zero_group": groups}, space, precision, by, formula, fit)


STAGED_ROWS = 512
"""Of the best layouts, how many are tried with the layers of each stage as `stages.py` shares them out."""


def _in_stages(best: _Best, space: Space, precision: str, by: By, formula: str, fit: Calibration | None) -> _Best:
    """The same, each with the split whose longest stage is the shortest, where that is worth it."""
    first = np.arange(min(len(best.sec), STAGED_ROWS))
    first = first[best.columns["pp"][first] > 1]
    if not len(first):
        return best
    configs = configs_of(best.columns, space, precision)
    best = _Best({**best.columns, "split": configs.split.copy()}, *best.figures)
    rows, codes = stages.better(configs.take(first), space.cluster, learned(fit))
    if not len(rows):
        return best
    other = {**_only(best.columns, first[rows]), "split": codes}
    return _where_better(best, first[rows], other, space, precision, by, formula, fit)


def _where_better(best: _Best, rows: np.ndarray, other: Columns, space: Space, precision: str, by: By, formula: str,
                  fit: Calibration | None) -> _Best:
    """`best`, with what is in `other` in the place of row `rows` where that is better by more than nobody can tell, and surely
    fits; of several for one row the best."""
    configs = configs_of(other, space, precision)
    held = Held.of(configs, space.cluster, fit, space.headroom)
    found = step.time(configs, space.cluster, learned(fit))
    part = _Best(other, found.sec, found.lo, found.hi, held.shown_gib, held.odds,
                 _key(by, formula, other, space, found.sec, held.shown_gib))
    gain = (best.rank(by)[rows] - part.rank(by)) / np.abs(best.rank(by)[rows])
    order = np.lexsort((-gain, rows))
    wins = order[np.unique(rows[order], return_index=True)[1]]
    wins = wins[(gain[wins] > TIE) & (part.odds[wins] >= LIKELY)]
    kept = np.setdiff1d(np.arange(len(best.sec)), rows[wins])
    taken = _Best(_only(part.columns, wins), *(figure[wins] for figure in part.figures))
    return _Best(_only(best.columns, kept), *(figure[kept] for figure in best.figures)).joined(taken)


def whole_nodes(tp: int, data_ranks: int, procs: int) -> list[int]:
    """Sharding groups that fill one node, or two, four, … of them, and are less than all."""
    return [group for group in divisors(data_ranks)[:-1] if group > 1 and group * tp % procs == 0
            and (nodes := group * tp // procs) & (nodes - 1) == 0]


def _rejected_early(where: np.ndarray, tried: np.ndarray, space: Space, ramp: Batch | None, precision: str,
                    rows: int) -> Counter[str]:
    """The count by code of what no batch can save: batch, micro-batch and recompute change nothing, so one stands for all."""
    rejected: Counter[str] = Counter()
    if not len(where) or not len(tried):
        return rejected
    same = [TRIED.index(name) for name in TRIED if name not in ("gbs", "mbs", "recompute")]
    _, first, weight = np.unique(tried[:, same], axis=0, return_index=True, return_counts=True)
    for c in expand(where, np.column_stack([tried[first], weight]), space, rows):
        counted = np.bincount(verdicts(c, space, ramp, precision), weights=c["weight"])
        rejected.update({CODES[code - 1]: int(count) for code, count in enumerate(counted) if code and count})
    return rejected


@dataclass(frozen=True)
class _Best:
    columns: Columns
    sec: Floats
    lo: Floats
    hi: Floats
    mem: Floats
    odds: Floats
    key: Floats

    def rank(self, by: By) -> Floats:
        """The lighter is the likelier anyway."""
        return self.key if by == "memory" else expected(self.key, self.odds)

    @property
    def figures(self) -> tuple[Floats, ...]:
        return self.sec, self.lo, self.hi, self.mem, self.odds, self.key

    def best(self, by: By) -> _Best:
        """The first `KEPT` in order; among equals the lighter, then the one found first, so that a search repeats itself."""
        order = np.lexsort((self.mem, self.rank(by)))[:KEPT]
        return _Best(_only(self.columns, order), *(figure[order] for figure in self.figures))

    def joined(self, other: _Best) -> _Best:
        columns = {name: np.concatenate([column, other.columns[name]]) for name, column in self.columns.items()}
        return _Best(columns, *(np.concatenate(both) for both in zip(self.figures, other.figures)))


def learned(fit: Calibration | None) -> step.Coefficients:
    return step.COLD if fit is None else fit.coefficients()


def _only(c: Columns, index: np.ndarray) -> Columns:
    return {name: column[index] for name, column in c.items()}


def _counted(c: Columns, kept: np.ndarray, code: str, rejected: Counter[str]) -> Columns:
    lost = int((~kept).sum())
    if lost:
        rejected[code] += lost
        return _only(c, kept)
    return c


def _holds(rule: Expression, c: Columns, space: Space) -> np.ndarray:
    values: dict[str, np.ndarray] = {}
    for name in rule.names:
        if name == "etp":
            values[name] = np.where(c[name] > 0, c[name], c["tp"])
        elif name in c:
            values[name] = c[name]
        elif name == "world":
            values[name] = c["dp"] * c["tp"] * c["pp"] * c["cp"]
        elif name == "microbatches":
            values[name] = c["gbs"] // (c["dp"] * c["mbs"])
        elif name == "stages":
            values[name] = c["pp"] * c["vp"]
        elif name in GROUPS:
            values[name] = np.zeros_like(c["dp"])
        else:
            own = "head_size" if name == "head_dim" else (BY_FIELD[name].about.of_trial or name).removeprefix("model.")
            values[name] = np.array([getattr(model, own) for model in space.models], dtype=np.int64)[c["shape"]]
    return np.broadcast_to(np.asarray(rule.holds(values)), c["dp"].shape)


def _key(by: By, formula: str, c: Columns, space: Space, sec: Floats, mem: Floats) -> Floats:
    """Smaller is better. Seconds are for one token of one size: a model 2 % larger may take 2 % longer and be as good."""
    if by == "memory":
        return mem
    world = c["dp"] * c["tp"] * c["pp"] * c["cp"]
    if by == "tflops":
        return -_flops(formula, c, space) / (sec * world)
    sizes = np.array([arith.parameters(model).total * model.seq for model in space.models], dtype=np.float64)
    each = sec / c["gbs"] / sizes[c["shape"]]
    return each if by == "time" else each * world


def _flops(formula: str, c: Columns, space: Space) -> Floats:
    """Operations of one iteration; the formula is asked once for what differs."""
    packed = ((c["shape"] * 8 + c["recompute"]) << 40) | (c["tp"] << 20) | c["pp"]
    _, first, back = np.unique(packed, return_index=True, return_inverse=True)
    rows = [{name: int(c[name][i]) for name in ("shape", "recompute", "tp", "pp")} for i in first]
    each = np.array([arith.flops(formula, space.models[row["shape"]], samples=1, recompute=RECOMPUTE[row["recompute"]],
                                 tp=row["tp"], pp=row["pp"]) for row in rows])  # fmt: skip
    return each[back] * c["gbs"]
