"""Columns of a table that follow from each other: which relations its rows keep to.

    learn(sheet)                         what is kept to in each table, and by how much rows scatter
    holds(row, world=64)                 whether the relations hold with so many processes; None where none can say

Tokens a second times the time are the batch; TFLOPs over MFU are the device's peak; TFLOPs times time and processes are the
FLOPs of the batch. A relation counts only where most rows keep to it: a table may count in a way that nobody states. What is to
be changed where a row does not is in `repairs.py`.
"""
from __future__ import annotations

import bisect
import functools
import itertools
import math
import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from seatrial.notes.labels import bits_of, label_parameters
from seatrial.notes.lint.columns import discover, named, ratios, sums
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.means import NONE, WINDOW, Misses
from seatrial.notes.lint.models import stated
from seatrial.notes.lint.models.devices import PEAKS
from seatrial.notes.lint.models.formulas import ALIKE, STATED_FORMULA, row_fits
from seatrial.notes.lint.phases import ledger, steps
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import normal


@dataclass(frozen=True)
class Relation:
    """A product of fields, each with its exponent, that is the same in every row of a table."""

    name: str
    terms: tuple[tuple[str, int], ...]
    """The first is what people work out from the others."""
    exact: bool = True
    """Whether the product is 1; else it is learned from the rows."""
    apart: tuple[str, ...] = ()
    """Fields by which rows differ in what is learned."""

    @functools.cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.terms)

    @functools.cached_property
    def measures(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.terms if is_measure(name))

    @functools.cached_property
    def needs(self) -> tuple[str, ...]:
        """What a row cannot do without, whatever else it leaves unsaid."""
        return tuple(name for name, _ in self.terms if name in MEASURES)

    @functools.cached_property
    def timed(self) -> bool:
        """Whether a time or a rate is part of it, which are means."""
        return any(name in _TIMED for name, _ in self.terms)

    @functools.cached_property
    def of_steps(self) -> bool:
        """Whether the steps of accumulation are part of it."""
        return any(name == "ga" for name, _ in self.terms)

    @functools.cached_property
    def alone(self) -> bool:
        """Whether it is one and the same in all rows."""
        return not self.apart and not any(self.unsaid)

    @functools.cached_property
    def of_peak(self) -> bool:
        """Whether the peak of the device is part of it, as the text or a data sheet has it."""
        return any(name in ("peak", "said_peak") for name, _ in self.terms)

    @functools.cached_property
    def by_steps(self) -> bool:
        """Whether it gives the batch by them."""
        return ("ga", -1) in self.terms

    @functools.cached_property
    def unsaid(self) -> tuple[bool, bool, bool, bool]:
        """What a row may leave unsaid, for what is learned to stand for it: batch, sequence, replicas, devices."""
        timed = ("sec_per_it", 1) in self.terms and ("gbs", -1) in self.terms
        return timed, timed and ("seq", -1) in self.terms, self.by_steps, self.by_devices

    @functools.cached_property
    def by_devices(self) -> bool:
        """Whether it may tell how many devices there are, where no row says it."""
        each = self.exact and ("tokens_per_s_per_process" in self.measures)
        return any(name == "world" for name, _ in self.terms) if each else not self.exact and ("world", 1) in self.terms


_STEP = (("sec_per_it", 1), ("gbs", -1))
RELATIONS = (
    Relation("tokens a second", (("tokens_per_s", 1), *_STEP, ("seq", -1))),
    Relation("tokens a second and GPU", (("tokens_per_s_per_process", 1), *_STEP, ("seq", -1), ("world", 1))),
    Relation("samples a second", (("samples_per_s", 1), *_STEP)),
    Relation("tokens of the samples", (("tokens_per_s", 1), ("samples_per_s", -1), ("seq", -1))),
    Relation("tokens of a GPU's samples", (("tokens_per_s_per_process", 1), ("world", 1), ("samples_per_s", -1), ("seq", -1))),
    Relation("tokens of all GPUs", (("tokens_per_s", 1), ("tokens_per_s_per_process", -1), ("world", -1))),
    Relation("TFLOPs and time", (("tflops", 1), *_STEP, ("flops", -1), ("world", 1)), exact=False, apart=("model",)),
    Relation("TFLOPs and tokens", (("tflops", 1), ("tokens_per_s_per_process", -1), ("token_flops", -1)), exact=False,
             apart=("model",)),
    Relation("TFLOPs and all tokens", (("tflops", 1), ("world", 1), ("tokens_per_s", -1), ("token_flops", -1)), exact=False,
             apart=("model",)),
    Relation("TFLOPs and samples", (("tflops", 1), ("world", 1), ("samples_per_s", -1), ("flops", -1)), exact=False,
             apart=("model",)),
    Relation("MFU", (("mfu", 1), ("tflops", -1)), exact=False, apart=("device", "recompute")),
    Relation("HFU and MFU", (("hfu", 1), ("mfu", -1)), exact=False, apart=("model",)),
    Relation("HFU", (("hfu", 1), ("tflops", -1)), exact=False, apart=("device", "recompute")),
    Relation("MFU and time", (("mfu", 1), *_STEP, ("flops", -1), ("world", 1)), exact=False, apart=("model", "device")),
    Relation("MFU and tokens", (("mfu", 1), ("tokens_per_s_per_process", -1), ("token_flops", -1)), exact=False,
             apart=("model", "device")),
    Relation("MFU and all tokens", (("mfu", 1), ("world", 1), ("tokens_per_s", -1), ("token_flops", -1)), exact=False,
             apart=("model", "device")),
    Relation("MFU of the stated peak", (("mfu", 1), ("said_peak", 1), ("tflops", -1)), exact=False),
    Relation("MFU of the peak and tokens", (("mfu", 1), ("peak", 1), ("tokens_per_s_per_process", -1), ("token_flops", -1)),
             exact=False, apart=("model",)),
    Relation("MFU of the peak and all tokens", (("mfu", 1), ("peak", 1), ("world", 1), ("tokens_per_s", -1),
             ("token_flops", -1)), exact=False, apart=("model",)),
    Relation("MFU of the peak and time", (("mfu", 1), ("peak", 1), *_STEP, ("flops", -1), ("world", 1)), exact=False,
             apart=("model",)),
    Relation("MFU and samples", (("mfu", 1), ("world", 1), ("samples_per_s", -1), ("flops", -1)), exact=False,
             apart=("model", "device")),
    Relation("the aggregate", (("aggr_pflops", 1), ("tflops", -1), ("world", -1)), exact=False),
    Relation("the aggregate and MFU", (("aggr_pflops", 1), ("mfu", -1), ("world", -1)), exact=False,
             apart=("device", "recompute")),
    Relation("the aggregate and time", (("aggr_pflops", 1), *_STEP, ("flops", -1)), exact=False, apart=("model",)),
    Relation("the aggregate and tokens", (("aggr_pflops", 1), ("tokens_per_s", -1), ("token_flops", -1)), exact=False,
             apart=("model",)),
    Relation("the aggregate and samples", (("aggr_pflops", 1), ("samples_per_s", -1), ("flops", -1)), exact=False,
             apart=("model",)),
    Relation("the aggregate and tokens of a GPU", (("aggr_pflops", 1), ("tokens_per_s_per_process", -1), ("world", -1),
             ("token_flops", -1)), exact=False, apart=("model",)),
    Relation("the accumulation", (("gbs", 1), ("mbs", -1), ("dp", -1), ("ga", -1))),
    Relation("a micro-batch of each replica", (("gbs", 1), ("mbs", -1), ("dp", -1))),
    Relation("a micro-batch of each device", (("gbs", 1), ("mbs", -1), ("world", -1))),
    Relation("micro-batches of all replicas", (("ga", 1), ("dp", 1)), exact=False, apart=("batch",)),
    Relation("GPUs and nodes", (("gpus", 1), ("nodes", -1)), exact=False, apart=("device",)),
    Relation("processes of the nodes", (("gpus", 1), ("nodes", -1), ("procs_per_node", -1))),
    Relation("GPUs of a replica", (("gpus", 1), ("dp", -1)), exact=False, apart=("axes",)),
    Relation("the layout", (("world", 1), ("dp", -1), ("tp", -1), ("pp", -1), ("cp", -1))),
)  # fmt: skip
AT_ONCE = tuple(relation for relation in RELATIONS if relation.name.startswith("a micro-batch"))
"""A batch that is done in one step of accumulation: a table may keep to it without a word, and a row may not."""
OF_STATED = "MFU of the stated peak"
_AT_ONCE = frozenset(relation.name for relation in AT_ONCE)
MEASURES = ("sec_per_it", "tflops", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "mfu", "hfu", "aggr_pflops")
_TIMED = frozenset(("sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s"))
_SAID = frozenset((*MEASURES, "nodes"))
"""What proves nothing where it was worked out from another cell."""
ENOUGH_ROWS, MOST = 3, 0.66
"""How many rows, and which share of them, have to agree on what is learned."""
FEWER = 0.42
"""Share that is enough where rows agree to their last digit."""
LOOSE_ROWS, LOOSE_MOST = 5, 0.8
"""The same where rows agree within a few hundredths only; of five rows four, within half of that."""
KNOWN_MOST = 0.66
"""Share of them that is enough where what they keep to is a law, and nothing to be learned."""
_FEW, FEW_NEAR = 40, 4
_MOST_ROWS = 300
UNSAID, UNSAID_MOST = "without a batch or a sequence", 0.7
ANY = "any model"
TERA = math.log(1e12)
GRAVE, SMALL = 0.05, 0.015
"""From which difference on a broken relation is an error; less is one when a slip of the hand explains it."""
COST = 0.006
"""Within which the FLOPs of a token are those of a line through other rows."""


Offs = list[tuple[float, float]]
"""What rows are off by, and what their digits leave open."""


@dataclass(frozen=True)
class Rule:
    """A relation as the rows of a table keep to it."""

    constant: float
    scatter: float
    support: int
    misses: Misses = NONE


EXACT = 1e-6
"""What is left of whole numbers by their logarithms."""


# ---- values


def term(row: Row, name: str, other: dict[str, object]) -> float | None:
    """The logarithm of a field; `other` replaces fields of the row."""
    work = _WORKED.get(name)
    value = work(row, other) if work is not None else other[name] if name in other else row.get(name)
    return math.log(value) if isinstance(value, (int, float)) and 0 < value < math.inf else None


def _token_flops(row: Row, other: dict[str, object]) -> float:
    each, seq = _flops(row, other), other.get("seq", row.seq)
    if not seq and row.reading is not None and row.reading.formula == STATED_FORMULA:
        seq = row.reading.seq
    return 1.0 if each is None or not seq else each / seq  # type: ignore[operator]


def cost_of_token(row: Row) -> float | None:
    """FLOPs of a token by the reading of the table."""
    each = _flops(row, {})
    return each / row.seq if each and row.seq else None


def attention_of(row: Row) -> tuple[float, float]:
    """What a token costs but for attention, and what that adds; 0 where nobody knows."""
    cost = row.sheet.costs.get((row.key, row.record.size_label))
    if cost is not None and row.seq:
        return cost[0], cost[1] * row.seq
    size, attention = stated.size_of(row), max(stated.said_of(row).attentions, default=0.0)
    if row.reading is not None and row.reading.formula == STATED_FORMULA:
        attention = row.reading.attention
    if size is None or not attention or not (row.layers and row.hidden and row.seq):
        return 0.0, 0.0
    return 6.0 * size, attention * row.layers * row.hidden * row.seq


def _batch(row: Row, other: dict[str, object]) -> object:
    return _composed(row, other) if other and row.composed else other.get("gbs", row.get("gbs"))


def _dp(row: Row, other: dict[str, object]) -> object:
    return other.get("dp", row.get("dp")) if row.record.dp is not None or "dp" in other else _replicas(row, other)


def _size(row: Row, other: dict[str, object]) -> float | None:
    return (label_parameters(str(other.get("size_label", row.record.size_label))) or (None,))[0]


def _peak(row: Row | None) -> float | None:
    """Of the row's own device, where rows have different ones: else it is part of what is learned anyway."""
    if row is None:
        return None
    if (said := stated.peak_of(row)) is not None:
        return said
    device = row.device if row.record.machine or row.names_device else None
    return None if device is None else device.peak_tflops.get("bf16") or device.peak_tflops.get("fp16")


def _said_peak(row: Row, other: dict[str, object]) -> float | None:
    """As the text has it: of each device, or the one that all shares are of."""
    like = row if "machine" not in other else like_row(row, "machine", other["machine"])
    return None if like is None else stated.peak_of(like) or stated.said_of(like).only_peak


def _replicas(row: Row, other: dict[str, object]) -> float | None:
    """DP where nobody prints it: what the other axes leave of the processes; an axis that nobody names is 1."""
    world, tp, pp = of_devices(row, other), other.get("tp", row.whole("tp")), other.get("pp", row.whole("pp"))
    return world / ((tp or 1) * (pp or 1) * (row.beside("cp") or 1)) if world else None  # type: ignore[operator]


def _composed(row: Row, other: dict[str, object]) -> float | None:
    """The batch that follows from other counts, where it is what follows from them."""
    value = other.get("gbs", row.get("gbs"))
    for name in composing(row) if "gbs" not in other else ():
        was = row.beside(name) if name == "ga" else row.get(name)
        value = value * other[name] / was if name in other and value and was else value  # type: ignore[operator]
    return value  # type: ignore[return-value]


def composing(row: Row) -> tuple[str, ...]:
    """The counts of which the batch is made that a row does not print."""
    return "mbs", "ga", "dp" if row.shows("dp") else "gpus" if row.shows("gpus") else "nodes"


def of_devices(row: Row, other: dict[str, object]) -> object:
    if "gpus" in other:
        return other["gpus"]
    if "nodes" in other and row.record.gpus is None:
        return other["nodes"] * (row.procs or 1)  # type: ignore[operator]
    if row.record.gpus is None and row.record.nodes is None:
        parts = [other.get(name, row.whole(name)) for name in ("dp", "tp", "pp")]
        return None if None in parts else math.prod(parts) * int(other.get("cp") or row.beside("cp") or 1)  # type: ignore[arg-type, call-overload]
    return row.world


def _flops(row: Row, other: dict[str, object]) -> float | None:
    """FLOPs of one sequence by the reading of the table, which need the row's shape."""
    if other:
        return _new_flops(row, other)
    if "each" not in row.terms:
        row.terms["each"] = _new_flops(row, other)
    return row.terms["each"]


def _new_flops(row: Row, other: dict[str, object]) -> float | None:
    if "size_label" in other:
        like = like_row(row, "size_label", other["size_label"])
        return None if like is None or like.reading is None else like.reading.per_sample(like)
    reading = row.reading
    cost, seq = row.sheet.costs.get((row.key, row.record.size_label)), other.get("seq", row.seq)
    mixed = row.mixture and reading is not None and reading.formula != STATED_FORMULA
    if cost is not None or reading is None or reading.formula == ALIKE or mixed:
        return (cost[0] + cost[1] * seq) * seq if cost is not None and seq else None  # type: ignore[operator]
    shape = {name: other[name] for name in ("layers", "hidden", "seq", "tp", "pp") if name in other}
    return reading.per_sample(row, **shape)  # type: ignore[arg-type]


def like_row(row: Row, name: str, value: object) -> Row | None:
    """A row of another model or device; of those the one that has the most else in common."""
    rest = [other for other in BELONGS if other != name]
    mates = [mate for mate in row.around if getattr(mate.record, name) == value and mate is not row]
    return max(mates, key=lambda mate: (sum(getattr(mate.record, n) == getattr(row.record, n) for n in rest),
                                        mate.seq == row.seq), default=None)  # fmt: skip


BELONGS = {"size_label": ("model", "label"), "machine": ("device",)}
"""What a row may be of by mistake, and what the relations that it changes are learned apart by."""


def belongs(row: Row, relation: Relation, name: str) -> bool:
    """Whether a relation is another one for another model or device."""
    own = name == "machine" and not {("peak", 1), ("said_peak", 1)}.isdisjoint(relation.terms)
    return own or relation.name in row.groups or any(kind in relation.apart for kind in BELONGS[name])


def residue(row: Row, relation: Relation, other: dict[str, object] | None = None) -> float | None:
    """The logarithm of the product; None where the row does not have all its fields."""
    if other:
        return _residue(row, relation, other, {})
    if relation.name not in row.terms:
        row.terms[relation.name] = _residue(row, relation, {}, row.terms)
    return row.terms[relation.name]


def _residue(row: Row, relation: Relation, other: dict[str, object], known: dict[str, float | None]) -> float | None:
    total = 0.0
    for name, power in relation.terms:
        if name not in known:
            known[name] = term(row, name, other)
        value = known[name]
        if value is None:
            if _learned(row, relation, name):
                continue
            return None
        if name in _SAID and (name in row.record.inferred or name in row.record.estimated):
            return None
        total += power * value
    return total


def _learned(row: Row, relation: Relation, name: str) -> bool:
    """Whether a term that nobody says is part of what is learned: one batch, as many devices in every row."""
    if name in ("gbs", "seq"):
        return ("sec_per_it", 1) in relation.terms
    if name == "world":
        return (relation.by_devices or not relation.exact) and _same_devices(row)
    if name in ("dp", "mbs"):
        return relation.by_steps and (_same_devices(row) if name == "dp" else _same_micro_batch(row))
    return False


def _same_devices(row: Row) -> bool:
    """Whether no row of the table says on how many devices it ran: all on the same, or the figures say otherwise."""
    return all(mate.world is None and mate.product is None and not mate.record.dp for mate in row.around)


def _same_micro_batch(row: Row) -> bool:
    """Whether no row of the table says its micro-batch."""
    return not row.sheet.filled(row.key) & {"mbs"} and all(mate.record.mbs is None for mate in row.around)


def is_measure(name: str) -> bool:
    return name in MEASURES or name[:1] == EXTRA


def slack(row: Row, relation: Relation, but: str = "") -> float:
    """What the printed digits leave open, whether they were rounded or cut off."""
    if but:
        return EXACT + sum(2 * figure.slack for name in relation.measures if name != but and (figure := row.printed(name)))
    if not relation.measures:
        return EXACT
    if relation.name not in row.slacks:
        row.slacks[relation.name] = EXACT + sum(2 * figure.slack for name in relation.measures if (figure := row.printed(name)))
    return row.slacks[relation.name]


_WORKED: dict[str, Callable[[Row, dict[str, object]], object]] = {
    "world": of_devices, "dp": _dp, "gbs": _batch, "size": _size, "token_flops": _token_flops,
    "flops": lambda row, other: 1.0 if (each := _flops(row, other)) is None else each,
    "seq": lambda row, other: other.get("seq", row.seq),
    "cp": lambda row, other: other.get("cp") or row.beside("cp") or 1,
    "ga": lambda row, other: other.get("ga") or row.beside("ga"),
    "price": lambda row, _: named.price_of(row),
    "said_peak": _said_peak,
    "peak": lambda row, other: _peak(row if "machine" not in other else like_row(row, "machine", other["machine"])),
}  # fmt: skip
"""The terms of relations that are no plain fields; FLOPs that nobody knows are part of what is learned."""


# ---- what the rows of a table keep to


def key_of(row: Row, relation: Relation, *, any_model: bool = False) -> tuple[object, ...]:
    asked = relation.name, any_model
    if asked not in row.keys:
        row.keys[asked] = _new_key(row, relation, any_model)
    return row.keys[asked]


def _new_key(row: Row, relation: Relation, any_model: bool) -> tuple[object, ...]:
    record = row.record
    if relation.name in row.groups:
        return relation.name, row.groups[relation.name]
    if relation.alone:
        return (relation.name,)
    key: list[object] = [relation.name]
    apart = relation.apart
    if "device" in apart:
        key += [kind_of(record.machine), row.devices, record.dtype]
    if "batch" in apart:
        key += [record.gbs, record.mbs]
    if "axes" in apart:
        key += [record.tp, record.pp, row.beside("cp")]
    if "recompute" in apart:
        key.append(record.recompute)
    if "label" in apart:
        key += [record.size_label, row.seq]
    if "model" in apart:
        known = _flops(row, {}) is not None
        key += [row.counted_by] if row.counted_by else []
        # A formula that only nearly holds is off by another factor at another sequence; what was fitted to several is not.
        fitted = (row.key, record.size_label) in row.sheet.costs
        key += [known, record.recompute, row.reading and (row.reading.formula, row.reading.per)]
        label = record.size_label or ("" if record.layers else _model_in(row))
        key += [ANY] if any_model and known else [label, record.layers, record.hidden, None if fitted else row.seq]
    batch, seq, replicas, devices = relation.unsaid
    unsaid = (batch and not record.gbs, seq and not row.seq, devices and row.world is None,
              replicas and (record.mbs is None or record.dp is None and _replicas(row, {}) is None))  # fmt: skip
    if any(unsaid):
        key += [UNSAID, unsaid]  # a factor that stands for a batch is none of a sequence
        key += [record.tp, record.pp] if replicas and relation.exact else []  # by which replicas differ that nobody says
    return tuple(key)


def _model_in(row: Row) -> str:
    """A size in a cell of words: `Llama 2 7B` under a heading that says nothing of models."""
    return next((match[0] for cell in row.record.extra.values() if (match := _SIZED.search(cell))), "")


_SIZED = re.compile(r"(?<![\w.])(?:\d{1,3}x)?\d{1,4}(?:\.\d+)?[BM](?!\w)")


@functools.lru_cache(maxsize=4096)
def kind_of(machine: str) -> str:
    """Without how many of them: `8x A100` and `v5p-128`."""
    return re.sub(r"^\d+\s?[x×]\s?|(?<=\w)-\d+$", "", machine)


def _learn_costs(sheet: Sheet) -> None:
    """FLOPs of a token are a + b x the sequence, whatever the model: from rows of one model with several sequences."""
    for key, rows in sheet.tables.items():
        if len({row.seq for row in rows[:_MOST_ROWS]}) < ENOUGH_ROWS:
            continue
        models: dict[str, dict[float, list[float]]] = {}
        some = [row for row in rows[:_MOST_ROWS] if row.reading is not None and row.record.tflops]
        in_tflops = any(row.record.tflops for row in rows[:_MOST_ROWS])  # else shares of one peak tell what a token costs
        fitting = (row for row in some if row.reading is not None and row_fits(row, row.reading))
        if some and sum(1 for _ in itertools.islice(fitting, (len(some) + 1) // 2)) == (len(some) + 1) // 2:
            continue  # by a formula, whatever the sequence
        for row in rows[:_MOST_ROWS]:
            record = row.record
            done = record.tflops if in_tflops else record.mfu
            if row.seq and done and not row.planned:
                tokens = record.tokens_per_s_per_process
                if not tokens and record.sec_per_it and record.gbs and row.world:
                    tokens = record.gbs * row.seq / record.sec_per_it / row.world
                if tokens:
                    models.setdefault(record.size_label, {}).setdefault(row.seq, []).append(done / tokens)
        for label, points in models.items():
            if len(points) < ENOUGH_ROWS:
                continue
            every = [(seq, cost) for seq, costs in points.items() for cost in costs]
            fit = _line(every)
            if fit is not None:
                sheet.costs[key, label] = fit


def _line(points: list[tuple[float, float]]) -> tuple[float, float] | None:
    """a + b x the sequence, through the two rows with whom most others agree."""
    best: tuple[int, float, float] = (0, 0.0, 0.0)
    for (one, low), (two, high) in itertools.combinations(points[:30], 2):
        slope = (high - low) / (two - one) if one != two else -1.0
        offset = low - slope * one
        if slope >= 0 < offset:
            best = max(best, (sum(abs(cost / (offset + slope * seq) - 1) < COST for seq, cost in points), offset, slope))
    near = {seq for seq, cost in points if best[0] and abs(cost / (best[1] + best[2] * seq) - 1) < COST}
    enough = best[0] > ENOUGH_ROWS + 1 or best[0] > ENOUGH_ROWS and len(near) >= ENOUGH_ROWS
    if not enough or best[0] < FEWER * len(points):
        return None
    # Two rows have the rounding of two rows: all that agree tell it better.
    agree = [(seq, cost) for seq, cost in points if abs(cost / (best[1] + best[2] * seq) - 1) < COST]
    slope, offset = statistics.linear_regression(*zip(*agree)) if len(near) > 1 else (best[2], best[1])
    return (offset, slope) if slope >= 0 < offset else best[1:]


def _find_more(sheet: Sheet) -> None:
    """Columns that no field takes and that follow, in most rows, from others: of the whole table, else of its first model."""
    for key, mates in sheet.tables.items():
        rows = [row for row in mates[: 4 * discover.MOST_SEARCHED] if row.tabular and not row.planned]
        headings = rows[0].extras if rows else []
        less = {parts[1] for _, parts, _ in sums.differences(rows)} if headings else set()
        headings = [heading for heading in headings if heading not in less]  # no product of others
        several = len({row.record.size_label for row in rows}) >= ENOUGH_ROWS
        threads = rows[0].columns.get("threads") if rows else None
        whole = [*headings, *([threads] if threads else [])]
        if not whole and not several:
            continue
        models: dict[object, list[Row]] = {}
        for row in rows:
            models.setdefault((row.record.size_label, row.record.machine, row.seq), []).append(row)
        found: list[Relation] = []
        for some, apart in ((rows, ()), (max(models.values(), key=len), ("device", "recompute", "label"))):
            left = [heading for heading in headings if not any(r.terms[0][0] == EXTRA + heading for r in found)]
            for terms in discover.followed(some, left) if apart == () or len(models) > 1 else ():
                found.append(Relation(_named(terms), terms, exact=False, apart=apart))
        if several:
            found += [Relation(_named(terms), terms, exact=False, apart=("device",)) for terms in discover.by_size(rows)]
        found += [Relation(_named(terms), terms, exact=False) for terms in discover.counted(rows, whole)
                  if not any(frozenset(r.terms) == frozenset(terms) for r in found)]  # fmt: skip
        found += _by_units(rows)
        if found:
            sheet.found[key] = found


BY_UNITS, BY_DEFINITION, FOUND = ", by their units", ", by definition", " = "
"""Of the names of relations that a table has of its own."""


def _by_units(rows: list[Row]) -> list[Relation]:
    """What is written or read over how much a second is the time: `GB | GB/s | s`."""
    headings = {normal(heading): heading for heading in rows[0].record.printed} if rows else {}
    time = next((headings[name] for name in ("s", "sec", "seconds", "time s") if name in headings), None)
    rates = [name for name in headings if re.fullmatch(r"[kmgt]i?b per s", name) and name.removesuffix(" per s") in headings]
    if time is None or len(rates) != 1:
        return []
    field = "sec_per_it" if rows[0].columns.get("sec_per_it") == time else EXTRA + time
    rate, amount = EXTRA + headings[rates[0]], EXTRA + headings[rates[0].removesuffix(" per s")]
    return [Relation(f"{time} = {amount[1:]} / {rate[1:]}{BY_UNITS}", ((field, 1), (rate, 1), (amount, -1)), exact=False)]


def _find_named(sheet: Sheet) -> dict[tuple[str, object, object], Rule]:
    """Columns that their headings explain, and the rules of their rows: one for each row that others are shares of."""
    rules: dict[tuple[str, object, object], Rule] = {}
    for key, ways in named.learn(sheet).items():
        explained = {way.terms[0][0] for way in ways}
        sheet.found[key] = [_of_another(relation, explained) for relation in sheet.found.get(key, ())]
        for way in ways:
            relation = Relation(_named(way.terms), way.terms, exact=False)
            known = sheet.found.setdefault(key, [])
            # A much longer product that some rows keep to as well is an accident.
            same = (frozenset(way.terms), frozenset((name, -power) for name, power in way.terms))
            known[:] = [other for other in known if not any(frozenset(other.terms) <= one for one in same)
                        and not (other.terms[0] == way.terms[0] and (len(other.terms) > len(way.terms) + 1
                                 or _kept(sheet.tables[key], other) - _of_any_batch(sheet.tables[key], other)
                                 < way.kept + (len(way.constants) == 1)))]  # fmt: skip
            known.append(relation)
            for row, group in way.groups.items():
                row.groups[relation.name] = group
            for group, constant in way.constants.items():
                offs = [(off, slack(row, relation)) for row, its in way.groups.items()
                        if its == group and (off := residue(row, relation)) is not None]  # fmt: skip
                rule = Rule(constant, way.scatter, max(2, way.kept), _misses(offs, constant))
                rules["table", key, (relation.name, group)] = rule
    return rules


def _of_another(relation: Relation, explained: set[str]) -> Relation:
    """The same product as one that another column follows from, where a heading explains the one that comes first."""
    first, power = next(((name, power) for name, power in relation.terms[1:]
                         if name[:1] == EXTRA and name not in explained), ("", 0))  # fmt: skip
    if relation.terms[0][0] not in explained or not power:
        return relation
    terms = ((first, 1), *((name, its * power) for name, its in relation.terms if name != first))
    return replace(relation, name=_named(terms), terms=terms)


def _of_any_batch(rows: list[Row], relation: Relation) -> bool:
    """Whether a time of a step goes with one of as much work, `1219 min` an epoch, whatever the batch, of which rows have
    several: most likely by accident."""
    names = {name for name, _ in relation.terms}
    timed = "sec_per_it" in names and names.isdisjoint(("gbs", "iteration"))
    lasts = timed and any(map(str.isalpha, rows[0].cell(relation.terms[0][0])))
    return lasts and len({row.get("gbs") for row in rows[:_FEW]}) > 1


def _find_defined(sheet: Sheet) -> dict[tuple[str, object, object], Rule]:
    """Columns of whole runs, which follow by definition: hours, tokens, money. What was found of them else says no more."""
    rules: dict[tuple[str, object, object], Rule] = {}
    for key, mates in sheet.tables.items():
        laws = [*ledger.learn(mates), *ratios.learn(mates)] if key[1] is not None else []
        if not laws:
            continue
        sheet.laws[key] = laws
        if steps.phases_of(mates):
            continue  # what goes with the steps between is told there
        columns = {ledger.name_of(mates[0], cell.heading) for law in laws for cell, _ in law.cells if cell.heading}
        columns |= {"world", "gpus", "nodes"}
        found = [other for other in sheet.found.get(key, ()) if not {name for name, _ in other.terms} <= columns]
        for law in laws:
            made = ledger.terms(mates[0], law)
            if made is None:
                continue
            terms, units = made
            relation = Relation(f"{_named(terms)}{BY_DEFINITION}", terms, exact=False)
            found.append(relation)
            for row, group in law.groups.items():
                row.groups[relation.name] = group
            for group, constant in law.constants.items():
                constant -= law.equation.constant + units
                offs = [(off, slack(row, relation)) for row, its in law.groups.items()
                        if its == group and (off := residue(row, relation)) is not None]  # fmt: skip
                misses = _misses(offs, constant)
                near = [abs(off - constant) for off, may in offs if abs(off - constant) <= may + ledger.LOOSE]
                rule = Rule(constant, statistics.median(near or [0.0]), max(2, law.kept), misses)
                rules["table", key, (relation.name, group)] = rule
        sheet.found[key] = found
    return rules


def _kept(rows: list[Row], relation: Relation) -> int:
    """How many rows agree on a relation within their digits."""
    offs = [(off, slack(row, relation)) for row in rows[:_FEW] if (off := residue(row, relation)) is not None]
    middle = statistics.median(off for off, _ in offs) if offs else 0.0
    return sum(abs(off - middle) <= may + EXACTLY for off, may in offs)


def _named(terms: tuple[tuple[str, int], ...]) -> str:
    """`Tokens (B) = gbs x iteration / seq`"""
    (first, _), *rest = terms
    work = "".join(f" {'x' if power < 0 else '/'} {name.removeprefix(EXTRA)}" for name, power in rest)
    return f"{first.removeprefix(EXTRA)} ={work.removeprefix(' x') if work.startswith(' x') else f' 1{work}'}"


def relations_of(row: Row) -> tuple[Relation, ...]:
    """Those that rows of the table can have: whose first field some of them print; once rules are learned, those with one."""
    key, sheet = row.key, row.sheet
    if key not in sheet.asked:
        mates = sheet.tables[key]
        there = {name for name in _FIRST if name == "world" or any(_has(mate, name) for mate in mates)} | sheet.filled(key)
        once = _at_once(mates) if "gbs" in there else None
        told = tuple(r for r in RELATIONS if r.terms[0][0] in there
                     and (r is once if r.name in _AT_ONCE else not _said_better(r, mates)))  # fmt: skip
        sheet.asked[key] = (*told, *sheet.found.get(key, ()))
    return sheet.asked[key]


_FIRST = {relation.terms[0][0] for relation in RELATIONS} - {*MEASURES}


def _has(row: Row, name: str) -> bool:
    return (row.beside(name) if name == "ga" else getattr(row.record, name)) is not None


def _said_better(relation: Relation, mates: list[Row]) -> bool:
    """Whether the table says in full what the relation would only learn, or would say again."""
    if relation.terms[:2] == (("gpus", 1), ("nodes", -1)):
        return (len(relation.terms) == 2) == any(row.shows("procs_per_node") for row in mates)
    if "aggregate and" in relation.name:
        return all(row.record.tflops or not row.record.aggr_pflops for row in mates)
    if "samples" in relation.name and relation.exact:
        return relation.name != "samples a second" and any(row.record.sec_per_it and row.record.gbs for row in mates)
    if "axes" in relation.apart:
        return any(row.record.tp or row.record.pp for row in mates)
    return "batch" in relation.apart and any(row.record.gbs and row.record.mbs for row in mates)


def _at_once(mates: list[Row]) -> Relation | None:
    """Of which micro-batches the batch is the product in nearly every row, and in rows that have little in common."""
    rows = [row for row in mates[:_MOST_ROWS] if row.record.gbs and row.record.mbs and row.shows("gbs") and row.shows("mbs")]
    if len(rows) < AT_ONCE_ROWS or any(row.beside("ga") for row in rows):
        return None
    for relation in AT_ONCE:
        kept, there, others = set(), 0, 0
        for row in rows:
            if row.tabular and not row.planned and (off := residue(row, relation)) is not None:
                there += 1
                others += abs(off) >= EXACT
                if others > max(1.0, 0.15 * len(rows)):
                    break
                kept |= {(row.record.gbs, row.record.mbs)} if abs(off) < EXACT else set()
        if len(kept) >= AT_ONCE_ROWS - 1 and there >= AT_ONCE_ROWS and others <= max(1.0, 0.15 * there):
            return relation
    return None


AT_ONCE_ROWS = 5


def _keep_learned(sheet: Sheet) -> None:
    """From here on a relation without a rule in its table or its file is not asked for."""
    learned = {(place, name[0]) for _, place, name in sheet.rules}  # type: ignore[index]
    peaks = {place for place, name in learned if name == "MFU"}
    by_text = {row.key for row in sheet.rows if row.reading is not None and row.reading.formula == STATED_FORMULA}
    for key, relations in sheet.asked.items():
        sheet.asked[key] = tuple(r for r in relations if (key, r.name) in learned or (key[0], r.name) in learned
                                 or r.name == "MFU" and key in peaks
                                 or key in by_text and r.terms[0][0] in ("tflops", "mfu"))  # fmt: skip


def learn(sheet: Sheet) -> list[Finding]:
    """Sets `sheet.rules`: (table or file, which, relation with what rows differ in) -> rule."""
    _learn_costs(sheet)
    _find_more(sheet)
    by_heading = _find_named(sheet) | _find_defined(sheet)
    files: dict[tuple[str, tuple[object, ...]], list[tuple[Offs, Rule | None]]] = {}
    for place, rows in sheet.tables.items():
        for key, offs in _offs(sheet, place, rows).items():
            rule = _learned_rule(key, offs)
            files.setdefault((place[0], key), []).append((offs, rule))
            if rule is not None:
                sheet.rules["table", place, key] = rule
    for (file, key), tables in files.items():
        if UNSAID in key and key[0] in _BY_DEVICES:
            continue  # another table is of another machine
        rule = tables[0][1] if len(tables) == 1 else _learned_rule(key, [off for offs, _ in tables for off in offs])
        if rule is not None:
            sheet.rules["file", file, key] = rule
    sheet.rules.update(by_heading)
    for place, rows in sheet.tables.items():
        if len(rows) == 2 and place[1] is not None:
            _define(sheet, rows)
    _keep_learned(sheet)
    _share(sheet)
    return []


def _offs(sheet: Sheet, place: tuple[str, int | None], rows: list[Row]) -> dict[tuple[object, ...], Offs]:
    """By what rows of a table have in common: what the relations leave over in each, and what its digits leave open."""
    some = [row for row in rows[:_MOST_ROWS] if row.tabular and not row.planned]
    there, steps = sheet.filled(place), any(row.beside("ga") is not None for row in some)
    here: dict[tuple[object, ...], Offs] = {}
    for relation in relations_of(rows[0]):
        if not there.issuperset(relation.needs) or relation.of_steps and not steps:
            continue
        of_any = "model" in relation.apart and "device" not in relation.apart
        for row in some:
            if (off := residue(row, relation)) is None:
                continue
            measured, key = (off, slack(row, relation)), key_of(row, relation)
            here.setdefault(key, []).append(measured)
            if of_any and (whole := key_of(row, relation, any_model=True)) != key:
                here.setdefault(whole, []).append(measured)
    return here


def _learned_rule(key: tuple[object, ...], offs: Offs) -> Rule | None:
    name, unsaid, of_any = str(key[0]), UNSAID in key, ANY in key
    devices = unsaid and name in _BY_DEVICES
    # What nobody says but is the same in all rows is no reason for them to differ, as a batch or a sequence is.
    most = UNSAID_MOST if unsaid and not devices and ONLY_DEVICES not in key else MOST
    rule = _rule(offs[: 4 * _MOST_ROWS], _known(name, unsaid, of_any), most)
    if rule is None or unsaid and name == "the accumulation" and not _whole(rule) or devices and not _many(rule):
        return None
    if name == OF_STATED and 2 * rule.support < len(offs):
        return None  # of all devices, where most rows have several
    return None if of_any and abs(rule.constant + TERA) > 0.004 else rule


ONLY_DEVICES = (False, False, True, False)


def _define(sheet: Sheet, rows: list[Row]) -> None:
    """What headings say in full needs the proof of one row, where there are two and the other is clearly off; so does the peak
    of their device, where the lines above them have it."""
    for relation in relations_of(rows[0]):
        if not all(row.tabular and not row.planned for row in rows):
            continue
        said = relation.exact and len(relation.measures) > 1 and all(
            row.world != 1 and not {"gbs", "seq"} & {n for n, _ in relation.terms if n in row.record.inferred} for row in rows)
        constants = [0.0] if said else [-math.log(peak) for peak in _above(rows[0])] if relation.name in ("MFU", "HFU") else []
        every = [(off, slack(row, relation)) for row in rows if (off := residue(row, relation)) is not None]
        for constant in constants if len(every) == 2 else ():
            offs = [(abs(off - constant), may) for off, may in every]
            if min(offs)[0] <= min(offs)[1] + EXACTLY < SMALL and max(offs)[0] > max(offs)[1] + GRAVE:
                for row in rows:
                    sheet.rules.setdefault(("table", row.key, key_of(row, relation)), Rule(constant, 0.0, 2))


LINES_ABOVE = 12


def _above(row: Row) -> list[float]:
    """Peaks of devices that the lines above a table have."""
    lines, line = row.sheet.text(row).lines, row.record.source_line or 1
    text = "\n".join(lines[max(0, line - LINES_ABOVE) : line - 1])
    return [peak for peak in PEAKS if re.search(rf"(?<![\d.,]){peak:g}(?![\d%]|[.,]\d)", text)]


def _share(sheet: Sheet) -> None:
    """What is found in one table holds in the others of the file with its headings, too short to show it, whose rows keep to
    it."""
    alike: dict[tuple[str, tuple[str, ...]], list[tuple[str, int | None]]] = {}
    for key in sheet.tables if sheet.found else ():
        if key[1] is not None:
            alike.setdefault((key[0], tuple(sheet.tables[key][0].record.printed)), []).append(key)
    for keys in alike.values():
        for key, other in itertools.permutations(keys[:MOST_ALIKE], 2):
            for relation in sheet.found.get(key, ()):
                if not any(its.terms[0] == relation.terms[0] for its in sheet.found.get(other, ())):
                    _share_one(sheet, relation, key, other)


MOST_ALIKE, FOREIGN = 8, 0.02
"""Tables of the same headings that are compared; how likely rows of another table keep to what is found in one, at most."""


def _share_one(sheet: Sheet, relation: Relation, key: tuple[str, int | None], other: tuple[str, int | None]) -> None:
    rows = [row for row in sheet.tables[other][:_FEW] if row.tabular and not row.planned]
    whole = sheet.rules.get(("table", key, (relation.name, "")))  # known by its heading, and the same in all rows
    offs: list[tuple[Row, Rule, float]] = []
    for row in rows:
        rule = whole or sheet.rules.get(("table", key, key_of(row, relation)))
        off = residue(row, relation) if rule is not None else None
        if rule is not None and off is not None:
            offs.append((row, rule, abs(off - rule.constant)))
    kept = [may for row, rule, off in offs if off <= (may := slack(row, relation) + EXACTLY + rule.scatter)]
    chance = math.prod(min(1.0, 2 * may / named.SPREAD) for may in kept)
    if len(kept) < len(offs) - max(1, len(offs) // 4) or chance > FOREIGN:
        return
    sheet.found.setdefault(other, []).append(relation)
    sheet.asked[other] = (*sheet.asked.get(other, ()), relation)
    for row, rule, _ in offs:
        if whole is not None:
            row.groups[relation.name] = ""
            row.keys.clear()
        sheet.rules["table", other, key_of(row, relation)] = rule


def _whole(rule: Rule) -> bool:
    """Whether a learned factor can be a number of replicas, and all that keep to it do so exactly."""
    count = math.exp(rule.constant)
    return count > 0.99 and abs(count - round(count)) < 1e-6 * count and rule.scatter < 1e-6


def _many(rule: Rule) -> bool:
    """Whether it can be a number of devices, as far as rows tell it that scatter."""
    count = math.exp(abs(rule.constant))
    return count > 1.5 and abs(count - round(count)) < (EXACTLY + rule.scatter) * count


_EXACT = {relation.name: relation.exact for relation in RELATIONS}
_BY_DEVICES = frozenset(relation.name for relation in RELATIONS if relation.exact and relation.by_devices)


EXACTLY = 0.002
"""Within which, beyond its digits, a row keeps to a figure that is known: two rows that do so are no accident."""


@functools.lru_cache(maxsize=256)
def _known(name: str, unsaid: bool, any_model: bool) -> tuple[float, ...]:
    """The figures that a product may be without anybody saying so."""
    if unsaid:
        return ()
    if name == "the aggregate":
        return -math.log(1000.0), -math.log(1024.0)
    if name == OF_STATED:
        return (0.0,)
    if name in ("MFU", "HFU"):
        return tuple(-math.log(peak) for peak in PEAKS)
    return (0.0,) if _EXACT.get(name) or name.endswith(BY_UNITS) else (-TERA,) if any_model else ()


def _rule(offs: Offs, known: tuple[float, ...], most: float) -> Rule | None:
    """A known figure that two rows keep to, unless more rows agree on another one; else what most rows agree on."""
    if len(offs) < (2 if known else ENOUGH_ROWS):
        return None
    for value in known:
        if all(abs(off - value) <= may + EXACTLY for off, may in offs):  # as nearly all do
            return Rule(value, 0.0, len(offs), _misses(offs, value))
    where = sorted(off for off, _ in offs)
    if len(offs) <= _FEW:
        middle = where[0]
        if where[-1] - middle > min(may for _, may in offs) + EXACTLY:  # they nearly always are alike
            # Rows with fine digits say more than those that agree with nearly anything.
            weighed = [(off, may + EXACTLY, -math.log(min(0.9, may + EXACTLY))) for off, may in offs]
            middle = max(where, key=lambda at: sum([weight for off, may, weight in weighed if abs(off - at) <= may]))
    else:
        middle = max(where, key=lambda at: bisect.bisect_right(where, at + EXACTLY) - bisect.bisect_left(where, at - EXACTLY))
    open_ = statistics.median(may for _, may in offs)
    near = [off for off in where if abs(off - middle) <= open_ + WINDOW / 3]
    for value in known:
        exactly = sum(abs(off - value) <= may + EXACTLY for off, may in offs)
        if exactly >= 2 and exactly >= len(near) - sum(abs(off - value) <= WINDOW / 3 for off in near):
            return Rule(value, 0.0, exactly, _misses(offs, value))
    if 0.0 in known and (rule := _by_definition(offs)) is not None:
        return rule
    if 0.0 in known and _but_exchanged(offs, 0.0, EXACTLY) == len(offs):
        return Rule(0.0, 0.0, len(offs) - 1, _misses(offs, 0.0))
    if not known and len(offs) == ENOUGH_ROWS and (length := _length_of(offs)):
        return Rule(length, 0.0, len(offs) - 1, _misses(offs, length))
    agreed = len(near) >= ENOUGH_ROWS and len(near) >= most * len(offs)
    agreed = agreed or len(near) >= ENOUGH_ROWS and _but_exchanged(offs, middle, WINDOW / 3) == len(offs) <= 2 * FEW_NEAR
    if not agreed and not _beyond_chance(offs, middle):
        return (_loosely(where, offs, known, open_) if most < UNSAID_MOST else None) or _but_for_a_point(offs)
    # Coarse digits tell the figure less well than fine ones do.
    fine = sorted((may, off) for off, may in offs if abs(off - middle) <= open_ + WINDOW / 3)
    constant = statistics.median(off for _, off in fine[: max(2, len(fine) // 2)])
    if len(near) <= FEW_NEAR:  # of a few rows that are alike the figure is what is known of it
        constant = next((value for value in known if abs(value - constant) <= WINDOW / 2), constant)
    scatter = statistics.median(abs(off - constant) for off in near)
    return Rule(constant, scatter, len(near), _misses(offs, constant))


def _but_exchanged(offs: Offs, middle: float, near: float) -> int:
    """How many rows keep to a figure, or would if two of them had exchanged a cell: of such two one has as much more as the
    other one less. Of few rows one pair at most."""
    far = [(off - middle, may) for off, may in offs if abs(off - middle) > may + near]
    both = len(far) == 2 and min(abs(off) for off, _ in far) > FAR_OFF
    exchanged = both and abs(far[0][0] + far[1][0]) <= far[0][1] + far[1][1] + 2 * near
    return len(offs) - len(far) + 2 * exchanged


def _length_of(offs: Offs) -> float:
    """The logarithm of a power of two, as sequences have, that one of three rows keeps to and the others would if they had not
    exchanged a cell; 0 where there is none."""
    for middle, may in offs:
        power = round(abs(middle) / math.log(2)) * math.log(2)
        whole = abs(abs(middle) - power) <= may + EXACTLY and 8 < power / math.log(2) < 20
        if whole and _but_exchanged(offs, math.copysign(power, middle), EXACTLY) == len(offs):
            return math.copysign(power, middle)
    return 0.0


def _by_definition(offs: Offs) -> Rule | None:
    """Of a few rows two that keep to what is so by definition, as means do, where all others are far off: no accident."""
    near = [off for off, may in offs if abs(off) <= min(may + EXACTLY, WINDOW / 3) + WINDOW / 3]
    far = [off for off, may in offs if abs(off) > may + FAR_OFF]
    if len(offs) > FEW_NEAR + 1 or len(near) < 2 or len(near) + len(far) < len(offs):
        return None
    return Rule(0.0, statistics.median(map(abs, near)), len(near), _misses(offs, 0.0))


FAR_OFF = 0.08


def _but_for_a_point(offs: Offs) -> Rule | None:
    """What all rows of a few but one keep to as means do, where that one is ten, a hundred or a thousand times off."""
    middle = statistics.median_low(off for off, _ in offs)
    *near, (off, may) = sorted(offs, key=lambda each: abs(each[0] - middle))
    constant = statistics.median(its for its, _ in near)
    scatter = [abs(its - constant) - its_may for its, its_may in near]
    powers = (off - constant) / math.log(10)
    moved = round(powers) and abs(powers) < 3.5 and abs(powers - round(powers)) * math.log(10) <= may + WINDOW
    if not ENOUGH_ROWS <= len(offs) <= _FEW or not moved or max(scatter) > WINDOW:
        return None
    return Rule(constant, statistics.median(abs(its - constant) for its, _ in near), len(near), _misses(offs, constant))


def _loosely(
    where: list[float], offs: Offs, known: tuple[float, ...], open_: float
) -> Rule | None:
    """What nearly all rows keep to within a few hundredths: means over other iterations, on both sides of it."""
    least = max(LOOSE_ROWS - 1, LOOSE_MOST * len(offs))
    for value in known:
        near = [off for off in where if abs(off - value) <= open_ + 2 * WINDOW]
        enough = len(near) >= max(LOOSE_ROWS - 1, KNOWN_MOST * len(offs))
        if enough and abs(statistics.median(near) - value) <= open_ + WINDOW / 2:
            close = [abs(off - value) for off in near if abs(off - value) <= open_ + WINDOW] or [WINDOW]
            return Rule(value, statistics.median(close), len(near), _misses(offs, value))
    wide = 2 * (open_ + (WINDOW if len(offs) > LOOSE_ROWS else WINDOW / 2))
    near = max((where[at : bisect.bisect_right(where, off + wide)] for at, off in enumerate(where)), key=len)
    if len(near) < least:
        return None
    middle = statistics.median(near)
    constant = next((value for value in known if abs(value - middle) <= WINDOW / 2), middle)
    return Rule(constant, statistics.median(abs(off - constant) for off in near), len(near), _misses(offs, constant))


def _misses(offs: Iterable[tuple[float, float]], constant: float) -> Misses:
    return Misses.of([(off - constant, may) for off, may in offs])


def wobble(row: Row, relation: Relation, rule: Rule) -> float:
    """By how much the row may miss the rule beyond its digits, as the other rows do."""
    off = residue(row, relation)
    others = rule.misses.but(off - rule.constant, slack(row, relation)) if off is not None else 0.0
    said = row.sheet.text(row).scatter if relation.timed else 0.0
    return max(4 * rule.scatter, others, said)


def scatters(row: Row) -> bool:
    """Whether rows of the table miss a relation by more than their digits: times and rates that are means."""
    loose = row.sheet.loose
    if not loose:
        loose |= {place for (_, place, _), rule in row.sheet.rules.items() if rule.misses.is_loose} | {None}
    return row.key in loose


def _beyond_chance(offs: Offs, middle: float) -> bool:
    """Rows with several slips: those left agree to their digits, more of them than by accident, and hardly any nearly does."""
    exactly = [may for off, may in offs if abs(off - middle) <= may + EXACTLY]
    if len(offs) in (3, 4) and len(exactly) >= 2 and max(exactly) < EXACTLY * 3:
        return all(abs(off - middle) <= may + EXACTLY or abs(off - middle) > GRAVE for off, may in offs)
    nearly = sum(may + EXACTLY < abs(off - middle) < may + WINDOW for off, may in offs)
    windows = [min(1.0, 2 * (may + EXACTLY)) for may in exactly] or [1.0]
    chance = math.comb(len(offs), len(exactly)) * math.prod(windows) / min(windows) if len(offs) <= 60 else 1.0
    rest = sorted(off for off, may in offs if abs(off - middle) > may + EXACTLY)
    if any(b - a <= EXACTLY for a, b in itertools.pairwise(rest)):
        return False  # two kinds of rows, and not slips
    return len(exactly) >= max(ENOUGH_ROWS, FEWER * len(offs)) and nearly <= 0.15 * len(offs) and chance < 0.005


def rule_of(row: Row, relation: Relation) -> Rule | None:
    """Of its model in its table, else in its file; else a formula by which rows of any model agree to the last digit."""
    if relation.of_peak and _has_another_peak(row, relation):
        return None
    learned = _learned_of(row, relation)
    if row.reading is None or row.reading.formula != STATED_FORMULA:  # as nearly all are, and asked very often
        return learned or _otherwise(row, relation)
    # What rows keep to closely says more than a formula that they nearly keep to.
    near = learned is not None and (abs(learned.constant + TERA) <= WINDOW or UNSAID in key_of(row, relation))
    rule = learned if near else _by_the_text(row, relation) or learned
    return rule or _otherwise(row, relation)


def _otherwise(row: Row, relation: Relation) -> Rule | None:
    return _by_data_sheet(row, relation) or _of_another_precision(row, relation) or _recomputed_otherwise(row, relation)


def _learned_of(row: Row, relation: Relation) -> Rule | None:
    rules, file = row.sheet.rules, row.record.source_file
    for any_model in (False, True) if "model" in relation.apart else (False,):
        name = key_of(row, relation, any_model=any_model)
        if (rule := rules.get(("table", row.key, name))) is not None and rule.support >= 2:
            return rule
        if not relation.exact and (row.sheet.has_unknown(row.key) or "model" in relation.apart and _of_any_model(row)):
            continue  # a column that nobody reads, or another model, may set what other tables have in common
        rule = None if _has_its_own_peak(row, relation) else rules.get(("file", file, name))
        if rule is not None and rule.support >= 2 and _is_kept(row, relation, rule, name):
            return rule
    return None


def _has_its_own_peak(row: Row, relation: Relation) -> bool:
    """Whether the shares of the row's table are of another peak than those of the file's other tables."""
    if relation.name == "MFU" or ("mfu", 1) not in relation.terms:
        return False
    name, rules = key_of(row, _MFU), row.sheet.rules
    own, others = rules.get(("table", row.key, name)), rules.get(("file", row.record.source_file, name))
    return own is not None and others is not None and abs(own.constant - others.constant) > GRAVE


def _by_the_text(row: Row, relation: Relation) -> Rule | None:
    """What the formula that the text writes down makes it, which is one and the same for all models and passes."""
    if relation.terms[0][0] not in ("tflops", "mfu") or not _in_full(row, relation):
        return None
    rules, key = row.sheet.rules, (relation.name, STATED_FORMULA)
    if ("stated", row.key, key) not in rules:
        rows = [mate for mate in row.mates[:_MOST_ROWS] if mate.tabular and not mate.planned and mate.reading == row.reading
                and _in_full(mate, relation)]  # fmt: skip
        offs = [(off, slack(mate, relation)) for mate in rows if (off := residue(mate, relation)) is not None]
        near = [abs(off + TERA) for off, may in offs if abs(off + TERA) <= may + 2 * WINDOW]
        rules["stated", row.key, key] = Rule(-TERA, statistics.median(near or [0.0]), len(near), _misses(offs, -TERA))
    rule = rules["stated", row.key, key]
    if rule.support < 2 or 2 * rule.support < rule.misses.rows:
        return None
    # Where none of those that recompute keep to it, the pass is counted in them; and none of a precision, another peak.
    kinds: list[tuple[str, ...]] = [("recompute",), *([("machine", "dtype")] if relation.of_peak else [])]
    for kind in kinds:
        alike = [abs(off + TERA) <= slack(mate, relation) + 2 * WINDOW for mate in row.mates[:_FEW]
                 if all(getattr(mate.record, name) == getattr(row.record, name) for name in kind) and _in_full(mate, relation)
                 and (off := residue(mate, relation)) is not None]  # fmt: skip
        if len(alike) > 1 and not any(alike):
            return None
    unsaid = relation.of_peak and bits_of(row.record.dtype or "") == 8 and stated.peak_of(row) is None
    return None if unsaid else rule


def _in_full(row: Row, relation: Relation) -> bool:
    """Whether the row has all that is part of the relation, so that nothing is left to be learned."""
    names = {name for name, _ in relation.terms}
    of_text = not names.isdisjoint(("flops", "token_flops")) and (not relation.of_peak or "mfu" in names)
    if not row.seq and "flops" in names:
        return False
    return of_text and ("mfu" not in names or relation.of_peak) and all(term(row, name, {}) is not None for name in names) and (
        _flops(row, {}) is not None)  # fmt: skip


def _has_another_peak(row: Row, relation: Relation) -> bool:
    """Whether rows of its device and precision keep to another peak than the text is read to give, or none of them to that."""
    own = row.sheet.rules.get(("table", row.key, key_of(row, _MFU)))
    peak = _said_peak(row, {})
    if own is not None and own.support >= 2 and peak is not None:
        return abs(own.constant + math.log(peak)) > GRAVE
    key = key_of(row, relation, any_model=True)
    alike = [off for mate in row.mates[:_FEW] if mate.record.machine == row.record.machine
             and mate.record.dtype == row.record.dtype and key_of(mate, relation, any_model=True) == key
             and (off := residue(mate, relation)) is not None]  # fmt: skip
    rule = row.sheet.rules.get(("table", row.key, key)) if len(alike) > 1 else None
    return rule is not None and all(abs(off - rule.constant) > GRAVE for off in alike)


_MFU = next(relation for relation in RELATIONS if relation.name == "MFU")


def _recomputed_otherwise(row: Row, relation: Relation) -> Rule | None:
    """What the rows of the model with other recomputation keep to, where a row alone of its kind is off by more than the
    recomputed pass, which may count or not."""
    if relation.exact or "model" not in relation.apart or not row.record.recompute:
        return None
    written = bool(row.sheet.text(row).formula)  # then what is recomputed is not counted, and no reading has to tell
    if row.reading is None and not written:
        return None
    blank = row.columns.get("recompute")  # where a dash says that nothing is
    mates = [mate for mate in row.around if mate.record.recompute != row.record.recompute
             and (mate.record.recompute or blank and mate.record.printed.get(blank, "").strip())
             and (mate.reading is not None or written)
             and (mate.record.size_label, mate.seq) == (row.record.size_label, row.seq)]  # fmt: skip
    rule = row.sheet.rules.get(("table", row.key, key_of(mates[0], relation))) if mates else None
    off = residue(row, relation) if rule is not None else None
    own = [mate for mate in row.around if mate is not row and key_of(mate, relation) == key_of(row, relation)]
    if rule is None or off is None or own:
        return None
    return rule if abs(off - rule.constant) > math.log(4 / 3) + GRAVE else None


def _is_kept(row: Row, relation: Relation, rule: Rule, name: tuple[object, ...]) -> bool:
    """Whether rows of its table keep to what other tables of the file show: where none does it is another case, whose sequence
    or batch nobody says again."""
    any_model = ANY in name
    mates = [mate for mate in row.mates[:_FEW] if mate is not row and key_of(mate, relation, any_model=any_model) == name]
    offs = [(off, slack(mate, relation)) for mate in mates if (off := residue(mate, relation)) is not None]
    wide = WINDOW if rule.scatter or rule.misses.is_loose else 2 * EXACTLY
    return not offs or any(abs(off - rule.constant) <= may + 4 * rule.scatter + wide for off, may in offs)


def _of_another_precision(row: Row, relation: Relation) -> Rule | None:
    """The peak that rows of the table with another precision keep to, where a row is off by neither that nor twice as much."""
    if "device" not in relation.apart or not row.record.dtype or (off := residue(row, relation)) is None:
        return None
    name, machine, _, dtype, *rest = key_of(row, relation)
    known = [rule for (_, place, other), rule in row.sheet.rules.items() if place == row.key and isinstance(other, tuple)
             and other[:2] == (name, machine) and other[3] != dtype and [*other[4:]] == rest]  # fmt: skip
    if len(known) != 1:
        return None
    rule, near = known[0], slack(row, relation) + GRAVE
    return None if any(abs(abs(off - rule.constant) - math.log(times)) < near for times in (1, 2)) else rule


def _of_any_model(row: Row) -> bool:
    """Whether nobody says of which model the row is, in a table long enough to tell what its own one costs."""
    record = row.record
    return not (record.size_label or record.layers or record.hidden) and len(row.mates) > ENOUGH_ROWS


def _by_data_sheet(row: Row, relation: Relation) -> Rule | None:
    """The peak of the row's own device, where rows with another one keep to that one's."""
    if relation.name != "MFU" or row.device is None or not row.record.machine:
        return None
    peaks = row.sheet.peaks
    if not peaks:
        for (_, key, name), rule in row.sheet.rules.items():
            peaks[key] = peaks.get(key, False) or name[0] == "MFU" and any(  # type: ignore[index]
                abs(rule.constant + math.log(peak)) < EXACTLY for peak in PEAKS)  # fmt: skip
    known = peaks.get(row.key, False)
    peak = stated.peak_of(row) or row.device.peak_tflops.get("bf16") or row.device.peak_tflops.get("fp16")
    return Rule(-math.log(peak), 0.0, 2) if known and peak else None


def off_by(row: Row, relation: Relation, rule: Rule, other: dict[str, object] | None = None) -> tuple[float, float] | None:
    """How far the row is from the rule, and how far it may be."""
    name = next((name for name in BELONGS if name in other), "") if other else ""
    if other and name and belongs(row, relation, name) and not (
            name == "machine" and not {("peak", 1), ("said_peak", 1)}.isdisjoint(relation.terms)):
        # Another model has its own rule, where its FLOPs are learned; another device its peak and its price.
        like = like_row(row, name, other[name])
        its = like and rule_of(like, relation)
        if not its:
            return None
        rule = its
    off = residue(row, relation, other)
    if off is None:
        return None
    but = next(iter(other)) if other else ""
    open_ = row.reading.rounded(row) if rule.constant == -TERA and row.reading is not None else 0.0
    open_ += slack(row, relation, but) + wobble(row, relation, rule)
    return off - rule.constant, open_ + (0.0 if rule.constant == 0.0 else 0.002)


def holds(row: Row, **other: object) -> bool | None:
    """Whether all relations hold with other values; None where nothing can say."""
    told = [abs(found[0]) <= found[1] + 0.005 for relation in relations_of(row) if relation.name != "the layout"
            and (rule := rule_of(row, relation)) is not None and (found := off_by(row, relation, rule, other))]  # fmt: skip
    return all(told) if told else None
