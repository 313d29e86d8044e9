"""When nothing works: the nearest that does. Each thing that was asked for is let go in turn, and what opens up is named.

    for way in ways(request.space, rules=rules): way.freed, way.found
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seatrial.columns import BY_FIELD, DEGREES, SEARCHED
from seatrial.expression import Expression
from seatrial.plan.calibrate import Calibration
from seatrial.plan.odds import LIKELY
from seatrial.plan.search import Found, search
from seatrial.plan.space import GROUPS, Space, chunks
from seatrial.plan.verdicts import verdicts
from seatrial.spec import Batch

KNOBS = (*sorted((name for name in SEARCHED if BY_FIELD[name].table == "topology"), key=DEGREES.__contains__), "cp_kind",
         *GROUPS, "ep", "etp")
"""In the order they are let go: the degrees late, then what goes with them."""
COUNTS = tuple(name for name in SEARCHED if BY_FIELD[name].type is int and BY_FIELD[name].default != 0)
"""Those that lie steps of two apart."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way out."""

    freed: str
    """What was let go, in words."""
    found: Found
    index: int
    """The layout in `found` that is nearest to what was asked: of those likely to fit, fewest steps of two away, then the
    fastest."""


def ways(space: Space, *, rules: Sequence[Expression] = (), ramp: Batch | None = None, precision: str = "bf16",
         fit: Calibration | None = None) -> Iterator[Way]:
    """Small changes first: another kernel of attention where the scores are stored, one knob, then a knob with DP to make up
    for it, a rule, more nodes."""
    def tried(freed: str, other: Space, others: Sequence[Expression] = rules, batch: Batch | None = ramp) -> Way | None:
        found = search(other, rules=others, ramp=batch, precision=precision, fit=fit)
        return Way(freed=freed, found=found, index=_nearest(found, space)) if len(found) else None

    kernel = space.execution.attention or space.facts.attention_on(space.cluster.device)
    if kernel == "stored" and (way := tried("attention stored (fused in place of it)", replace(
            space, execution=replace(space.execution, attention="fused")))):
        yield way
    fixed = [name for name in KNOBS if getattr(space, name) is not None]
    attempts: list[tuple[str, tuple[str, ...]]] = [(name, (name,)) for name in fixed]
    # The degrees make up for each other, DP for any; virtual stages come with their schedule.
    pairs = [tuple(sorted(pair, key="dp".__eq__)) for pair in itertools.combinations(DEGREES, 2)]
    attempts += [(" and ".join(pair), pair) for pair in (*pairs, ("schedule", "vp")) if set(pair) <= set(fixed)]
    for freed, names in attempts:
        if way := tried(freed, space.freed(*names)):
            yield way
    for i, rule in enumerate(rules):
        if way := tried(f"rule {rule.text!r}", space, [*rules[:i], *rules[i + 1 :]]):
            yield way
    if ramp is not None and ramp.rampup_start is not None and (way := tried("the ramp-up", space, batch=None)):
        yield way
    batches = near_batches(space, precision)
    if batches and (way := tried(f"gbs {','.join(map(str, space.gbs))}", replace(space, gbs=batches), batch=None)):
        yield way
    most = max(space.nodes or (space.cluster.nodes,))
    for factor in (2, 4, 8, 16):
        cluster = space.cluster.with_nodes(most * factor)
        if way := tried(f"nodes ({most * factor} in place of {most})",
                        replace(space.freed("dp"), cluster=cluster, nodes=None)):  # fmt: skip
            yield way
            if way.found.odds[way.index] >= LIKELY:
                return


def near_batches(space: Space, precision: str, most: int = 8) -> tuple[int, ...]:
    """Batches close to the one asked for that some layout of this model on these nodes can deal out evenly."""
    wanted = max(space.gbs)
    replicas: set[int] = set()
    # With a batch of one micro-batch for each replica, only the other rules speak.
    for c in chunks(replace(space, mbs=space.mbs or (1,))):
        c = {**c, "gbs": c["dp"] * c["mbs"] * c["pp"]}
        able = verdicts(c, space, None, precision) == 0
        replicas.update((c["dp"] * c["mbs"])[able].tolist())
    near = {max(1, wanted // each + more) * each for each in replicas for more in (0, 1)} - set(space.gbs)
    return tuple(sorted(near, key=lambda gbs: abs(gbs - wanted))[:most])


def _nearest(found: Found, asked: Space) -> int:
    def steps(i: int) -> float:
        away = 0.0
        for name in COUNTS:
            wanted = getattr(asked, name)
            if wanted:
                away += min(abs(math.log2(int(found.ranked[name][i]) / value)) for value in wanted)
        return away

    return min(range(len(found)), key=lambda i: (found.odds[i] < LIKELY, steps(i), i))
