"""Every layout of a model on a cluster, as chunks of numpy columns.

    space = Space(models=(model,), cluster=cluster, gbs=(2048,), zero=(1,))
    for columns in chunks(space): columns["dp"], columns["tp"], ...

What is given is fixed, what is left out takes every value that makes sense. No layout comes twice: where a knob changes nothing
(ZeRO with DP x CP 1, sequence parallelism with TP 1, the schedule with PP 1) a searched knob keeps its plainest value.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from seatrial.columns import BY_FIELD, DEGREES, SEARCHED
from seatrial.engines.model import BESIDE_DATA, EngineModel, model_of
from seatrial.errors import BadInput
from seatrial.plan.configs import CHOICES, SCHEDULES
from seatrial.plan.odds import Headroom
from seatrial.schedule import KINDS
from seatrial.spec import Cluster, Execution, Model

Columns = dict[str, np.ndarray]
"""Name -> one value a layout. `recompute` and `schedule` are codes as in `Configs`, `shape` is a position in `Space.models`."""



CHUNK = 1 << 16
"""Layouts in one chunk: what bounds the memory of a search, large enough that numpy's own overhead vanishes."""
MOST_WORLD = 100_000_000
"""Processes: far beyond any machine, and few enough to find all divisors at once."""
MOST_LAYOUTS = 2_000_000_000
"""Some ten minutes of search; a space beyond it was not meant."""
LONG = 16_384
"""Tokens from which on a sequence is worth dividing over ranks, where nobody asks …"""
LEAST_TOKENS = 2048
"""… and of one rank, below which it is not."""
_MOST_VIRTUAL = 12
_MOST_ODD_MBS = 64
_MOST_MBS = 1024


@dataclass(frozen=True, kw_only=True)
class Space:
    """Where to look. A field that is None is searched."""

    models: tuple[Model, ...]
    """One, or several shapes to choose between."""
    cluster: Cluster
    nodes: tuple[int, ...] | None = None
    """Node counts to use; by default all nodes of the cluster."""
    gbs: tuple[int, ...]
    dp: tuple[int, ...] | None = None
    tp: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    cp: tuple[int, ...] | None = None
    """Searched where a sequence has `long` tokens, else 1."""
    long: int = LONG
    cp_kind: tuple[str, ...] | None = None
    """By default those of the engine: its own default, and another where that is clearly faster."""
    vp: tuple[int, ...] | None = None
    mbs: tuple[int, ...] | None = None
    zero: tuple[int, ...] | None = None
    recompute: tuple[str, ...] | None = None
    recompute_modules: tuple[str, ...] | None = None
    """Of every layout with selective recompute; by default the engine's own."""
    schedule: tuple[str, ...] | None = None
    stage_layers: tuple[int, ...] | None = None
    """Of every layout; where it is None the engine's own split, and for the best layouts the one that balances them."""
    sequence_parallel: tuple[bool, ...] = (False,)
    zero_group: tuple[int, ...] | None = None
    """By default all of DP x CP; of the best layouts whole nodes as well, where the engine has hybrid sharding."""
    gradients_group: tuple[int, ...] | None = None
    weights_group: tuple[int, ...] | None = None
    ep: tuple[int, ...] | None = None
    """Searched where a model has experts and the engine can spread them; so the next."""
    etp: tuple[int, ...] | None = None
    moe_balance: tuple[str, ...] | None = None
    """Of every layout, natural by default …"""
    moe_dispatcher: tuple[str, ...] | None = None
    """… and as the engine has it."""
    options: tuple[tuple[int, ...], ...] | None = None
    """Rows of OPTIONS, in numbers, to use in place of the product of those fields."""
    engine: str = "megatron"
    documents: str | None = None
    """Packed into each sequence."""
    execution: Execution = field(default_factory=Execution)
    """Attention and overlap, where they are not the engine's own."""
    headroom: Headroom = field(default_factory=Headroom)
    """What is to stay free of the memory."""

    @property
    def facts(self) -> EngineModel:
        return model_of(self.engine)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of context parallelism, the usual first."""
        return self.cp_kind or self.facts.context or CHOICES["cp_kind"][:1]

    @property
    def divides_sequence(self) -> bool:
        """Whether context parallelism is among what is looked at."""
        if self.cp is not None:
            return max(self.cp) > 1
        return bool(self.facts.context) and max(model.seq for model in self.models) >= self.long

    @property
    def mixture(self) -> bool:
        """Whether a model has experts."""
        return any(model.mixture for model in self.models)

    def freed(self, *names: str) -> Space:
        """The same with these fields searched."""
        found = replace(self, **{name: None for name in names})  # type: ignore[arg-type]
        return replace(found, long=0) if "cp" in names else found


def divisors(n: int) -> list[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def degrees(space: Space) -> np.ndarray:
    """Rows of (nodes, dp, tp, pp, cp, ep, etp) with dp x tp x pp x cp = nodes x processes, largest TP last."""
    rows: list[tuple[int, ...]] = []
    for nodes in space.nodes or (space.cluster.nodes,):
        world = nodes * space.cluster.procs_per_node
        contexts = {cp for cp in divisors(world) if _worth(cp, space)}
        for tp in divisors(world):
            if tp not in (space.tp or (tp,)) or space.facts.lacks("tp", tp):
                continue
            for pp in divisors(world // tp):
                if pp not in (space.pp or (pp,)) or space.facts.lacks("pp", pp):
                    continue
                for cp in divisors(world // tp // pp) if len(contexts) > 1 else contexts:
                    dp, left = divmod(world // tp // pp, cp)
                    if cp in contexts and not left and (space.dp is None or dp in space.dp):
                        rows += ((nodes, dp, tp, pp, cp, *spread) for spread in _spreads(space, dp * cp * tp, tp))
    return np.array(rows, dtype=np.int64).reshape(-1, len(PLACE) - 1)


def _spreads(space: Space, ranks: int, tp: int) -> Iterator[tuple[int, int]]:
    """EP and ETP that fill the ranks of a stage; ETP 0 stands for TP. Experts are left whole or cut like all else."""
    facts, counts = space.facts, [model.experts for model in space.models if model.experts is not None]
    usual = [1]
    if facts.expert_parallel and counts:
        usual = sorted({ep for count in counts for ep in divisors(count)})
    whole = "any" in facts.expert_tensor or "whole" in facts.expert_tensor
    cuts = space.etp or ((tp, 1) if counts and tp > 1 and whole else (tp,))
    for etp in cuts:
        for ep in space.ep or usual:
            if ranks % (ep * etp) == 0:
                yield ep, 0 if etp == tp else etp


def _worth(cp: int, space: Space) -> bool:
    """Those that were asked for; else such as leave each rank equal stretches of some length."""
    if space.cp is not None:
        return cp in space.cp
    return cp == 1 or space.divides_sequence and any(model.seq % cp == 0 and model.seq // cp >= LEAST_TOKENS
                                                     for model in space.models)


def micro_batches(gbs: int) -> list[int]:
    """Sizes worth a look: powers of two, and for batches that are not powers of two their small divisors."""
    powers = {1 << i for i in range(11) if 1 << i <= min(gbs, _MOST_MBS)}
    return sorted(powers | {d for d in divisors(gbs) if d <= _MOST_ODD_MBS})


def inner(space: Space) -> np.ndarray:
    """Rows of TRIED: what every place is tried with."""
    options = space.options if space.options is not None else tuple(_options(space))
    rows = [(gbs, mbs, *option) for gbs in space.gbs for mbs in (space.mbs or micro_batches(gbs)) for option in options]
    return np.array(rows, dtype=np.int64).reshape(-1, len(TRIED))


def _options(space: Space) -> Iterator[tuple[int, ...]]:
    # A stage holds a layer at least, or there is nothing to interleave.
    most = min(_MOST_VIRTUAL, max(model.layers for model in space.models) + 2)
    facts = space.facts
    usual: dict[str, Any] = {"zero": facts.zero_stages, "vp": range(1, most + 1), **CHOICES, "schedule": facts.schedules,
                             "recompute": facts.recomputes}
    # Where tensor parallelism always cuts the sequence, `_distinct` leaves it cut.
    given = replace(space, sequence_parallel=(False, True)) if facts.sequence_parallel else space
    virtual = OPTIONS.index("vp"), OPTIONS.index("schedule")
    values = [[CHOICES[name].index(value) if name in CHOICES else int(value) for value in getattr(given, name) or usual[name]]
              for name in OPTIONS]
    for option in itertools.product(*values):
        vp, kind = (option[place] for place in virtual)
        if (vp > 1) == KINDS[SCHEDULES[kind]].virtual:
            yield option


PLACE = ("shape", "nodes", *DEGREES, "ep", "etp")
OPTIONS = (*(name for name in SEARCHED if name not in (*DEGREES, "gbs", "mbs", "vp")), "vp", "sequence_parallel")
"""What is tried at every place with every batch; those that come last differ first."""
TRIED = ("gbs", "mbs", *OPTIONS)
GROUPS = ("zero_group", "gradients_group", "weights_group")
"""What a layout may be given beside that; 0 for all of the next larger."""
ROUTING = ("moe_balance", "moe_dispatcher")
"""How tokens reach experts; no knob of the search, but what is asked for."""


def places(space: Space) -> np.ndarray:
    """Rows of PLACE: every shape with all degrees that fill the world."""
    outer = degrees(space)
    shape = np.repeat(np.arange(len(space.models)), len(outer))
    return np.column_stack([shape, np.tile(outer, (len(space.models), 1))])


def chunks(space: Space, rows: int = CHUNK) -> Iterator[Columns]:
    """Every distinct layout, `rows` at most at a time."""
    yield from expand(*product(space), space, rows)


def product(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Places, and what each is tried with."""
    refuse_what_cannot_be(space)
    tried = inner(space)
    where = places(space)
    if len(where) * len(tried) > MOST_LAYOUTS:
        raise BadInput(f"{len(where):,} places x {len(tried):,} settings are too many layouts: fix a knob or try fewer nodes")
    return where, tried


def expand(where: np.ndarray, tried: np.ndarray, space: Space, rows: int = CHUNK) -> Iterator[Columns]:
    """Each row of `where` with each row of `tried` that makes a distinct layout; a column after TRIED's is `weight`."""
    if not len(where) or not len(tried):
        return
    layers = np.array([model.layers for model in space.models])
    names = (*TRIED, "weight")[: tried.shape[1]]
    for first in range(0, len(tried), rows):
        right = {name: np.ascontiguousarray(tried[first : first + rows, i]) for i, name in enumerate(names)}
        step = max(1, rows // len(right["gbs"]))
        for start in range(0, len(where), step):
            left = {name: np.ascontiguousarray(where[start : start + step, i]) for i, name in enumerate(PLACE)}
            grid = {**{name: column[:, None] for name, column in left.items()},
                    **{name: column[None, :] for name, column in right.items()}}  # fmt: skip
            i, j = np.nonzero(_distinct(grid, space, layers))
            yield {**{name: column[i] for name, column in left.items()}, **{name: column[j] for name, column in right.items()}}


def _distinct(c: Columns, space: Space, layers: np.ndarray) -> np.ndarray:
    """Drop what says the same as another row, and what has no meaning (virtual stages without a pipeline or without layers) or
    no use."""
    virtual = np.array([kind.virtual for kind in KINDS.values()])[c["schedule"]]
    stages, held = c["pp"] * c["vp"], layers[c["shape"]]
    kept = ~virtual | ((c["pp"] > 1) & (stages <= held + 2))
    if space.vp is None and space.stage_layers is None and space.facts.uneven == "any":
        # Virtual stages that hardly two alike are of fill the ranking with what nobody would run: embedding and head may take
        # a layer's place, or one place in twenty stay free (61 layers over 32 stages).
        free = -held % stages
        kept &= ~virtual | (free <= 2) | (20 * free <= held + free)
    if space.zero is None:
        kept &= (c["dp"] * c["cp"] > 1) | (c["zero"] == 0)
        if space.zero_group or space.gradients_group or space.weights_group:
            kept &= c["zero"] >= (3 if space.weights_group else 2 if space.gradients_group else 1)
    if space.facts.sequence_parallel:
        kept &= (c["tp"] > 1) == (c["sequence_parallel"] == 1)
    elif len(space.sequence_parallel) > 1:
        kept &= (c["tp"] > 1) | (c["sequence_parallel"] == 0)
    if space.facts.experts_cut_sequence and space.mixture and True in space.sequence_parallel:
        mixture = np.array([model.mixture for model in space.models])[c["shape"]]
        kept &= ~mixture | (c["tp"] == 1) | (c["sequence_parallel"] == 1)
    if space.schedule is None:
        kept &= (c["pp"] > 1) | (c["schedule"] == SCHEDULES.index("1f1b"))
    return kept


def not_searched(space: Space, precision: str) -> list[str]:
    """What a layout could differ in that was not looked at, though nobody asked to leave it out."""
    facts, found = space.facts, []
    found += [f"{name.upper()} (not in {facts.name})" for name in BESIDE_DATA
              if getattr(space, name) is None and name not in facts.divides]
    if not facts.sequence_parallel and len(space.sequence_parallel) == 1:
        found.append("sequence parallelism" + ("" if facts.cuts_sequence else f" (not in {facts.name})"))
    for name, word, all_values, has in (("zero", "ZeRO", (0, 1, 2, 3), facts.zero_stages),
                                        ("recompute", "recompute", CHOICES["recompute"], facts.recomputes),
                                        ("schedule", "schedule", SCHEDULES, facts.schedules)):
        if getattr(space, name) is None and (lacks := [str(value) for value in all_values if value not in has]):
            found.append(f"{word} {', '.join(lacks)} (not in {facts.name})")
    if facts.hybrid_sharding and not space.zero_group:
        found.append("sharding groups other than whole nodes")
    if space.cp is None and not space.divides_sequence:
        found.append("context parallelism " + (f"(sequences from {space.long:,} tokens on, or --cp auto)" if facts.context
                                               else f"(not in {facts.name})"))
    if facts.modules and not space.recompute_modules and "selective" in (space.recompute or ("selective",)):
        found.append("lists of recomputed modules other than the engine's own")
    if facts.uneven != "any":
        found.append(f"layers per stage of one's own (not in {facts.name})")
    found.append(f"precisions other than {precision}")
    if space.mixture:
        if space.ep is None and not facts.expert_parallel:
            found.append(f"expert parallelism (not in {facts.name})")
        elif space.etp is None and "any" in facts.expert_tensor:
            found.append("ETP other than 1 and TP")
        others = [name for name in facts.dispatchers if name not in (space.moe_dispatcher or facts.dispatchers[:1])]
        found += [f"dispatcher {name}" for name in others]
    return found


def refuse_what_cannot_be(space: Space) -> None:
    for name in (*SEARCHED, *GROUPS, "ep", "etp", "nodes"):
        for value in getattr(space, name) or ():
            if name not in CHOICES and BY_FIELD[name].default != 0 and value < 1:
                raise BadInput(f"{name} {value}: it must be above 0")
    for name in BESIDE_DATA:
        if (asked := getattr(space, name)) and (why := space.facts.lacks(name, min(asked))):
            raise BadInput(why)
    counts = space.nodes or (space.cluster.nodes,)
    if max(counts) * space.cluster.procs_per_node > MOST_WORLD:
        raise BadInput(f"{max(counts)} nodes x {space.cluster.procs_per_node} processes: at most {MOST_WORLD:,} in all can be "
                       "planned for")
    if len(counts) > 2000:
        raise BadInput(f"{len(counts)} node counts are too many to search: at most 2000; --nodes gives the lowest")
    for value in space.zero or ():
        if value not in (0, 1, 2, 3):
            raise BadInput(f"zero {value} is not a ZeRO stage; 0, 1, 2 and 3 are")
    if space.schedule and space.vp and not any((v > 1) == KINDS[k].virtual for v in space.vp for k in space.schedule):
        raise BadInput(f"schedule {', '.join(space.schedule)} with vp {', '.join(map(str, space.vp))}: virtual stages above 1 "
                       "go with schedule interleaved, and only with it")
