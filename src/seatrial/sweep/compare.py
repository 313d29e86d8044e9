"""A against B: both of one file in turns, or two sets of records of a logbook; the ratio of their times with its interval.

    sweep = in_turns(data, a=["topology.precision=bf16"], b=["topology.precision=fp16"], repeats=8, name="x")   A B, A B, B A
    groups = measured_in_turns(sweep, store)            configuration -> (values of A, values of B), failures counted
    groups = side_by_side(records_a, records_b, …)      the same from rows that were measured before, on other days, elsewhere
    found = paired([1.00, 1.02, 0.99, 1.01], [0.90, 0.93, 0.89, 0.90])      one value per repeat, A and B measured in turns
    found.ratio, found.low, found.high                  B's time over A's
    found.sentence("plain", "tcmalloc")                 "tcmalloc takes 0.900 of plain's time …"

Repeats, not iterations, are what is counted: iterations of one run share its luck (placement, memory layout, neighbours), and
an interval from them alone would be too narrow. Pairs run one after the other, and a coin decides which of a pair goes first.
So whatever else happens on the machine falls on A and B alike, however long it lasts, and each difference has the same chance
of either sign when there is none. Wilcoxon's signed ranks need nothing more than that. Fewer than six pairs can say nothing at
95 %.
"""
from __future__ import annotations

import itertools
import math
import random
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seatrial import columns, fields
from seatrial.errors import BadInput
from seatrial.sweep import forecasts
from seatrial.sweep.file import Sweep, Task, build
from seatrial.sweep.store import Store

CONFIDENCE = 0.95
SIDE = "versus"
"""The axis that A and B are the values of."""
CONFIGURATION = (*columns.ASKED, "machine", "env")
"""What two rows must share to be compared, but for what A and B are told apart by."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    ratio: float
    """B's time over A's: below 1, B is faster."""
    low: float
    high: float
    counts: tuple[int, int]
    """Repeats of A and of B."""

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return math.isfinite(self.high)

    @property
    def half_width(self) -> float:
        return (math.log(self.high) - math.log(self.low)) / 2 if self.known else math.inf

    @property
    def verdict(self) -> str:
        if not self.known:
            return "too few repeats"
        if self.low <= 1 <= self.high:
            return "no difference can be seen"
        return "b is faster" if self.ratio < 1 else "a is faster"

    def sentence(self, a: str, b: str) -> str:
        """For a person: the verdict, the numbers, and what could have been seen."""
        many = f"{self.counts[0]} and {self.counts[1]} repeats"
        if not self.known:
            return f"{b} takes {self.ratio:.3f} of {a}'s time, but {many} cannot say how sure that is"
        span = f"{self.ratio:.3f}, 95 % interval {self.low:.3f} to {self.high:.3f}, {many}"
        if self.verdict == "no difference can be seen":
            seen = f"one of {math.expm1(self.half_width):.1%} would have been"
            return f"no difference can be seen between {a} and {b}: {span}; {seen}"
        faster, slower = (b, a) if self.ratio < 1 else (a, b)
        times = 1 / self.ratio if self.ratio < 1 else self.ratio
        return f"{faster} is {times:.3f} times as fast as {slower} ({b} over {a}: {span})"


def paired(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """From repeats in turns; the i-th of A ran beside the i-th of B."""
    if len(a) != len(b) or not a:
        raise BadInput(f"{len(a)} repeats of A and {len(b)} of B are no pairs")
    logs = [math.log(y / x) for x, y in zip(a, b)]
    # The mean of every two differences, and of each with itself: their median is the estimate, two of them its interval.
    means = sorted((logs[i] + logs[j]) / 2 for i in range(len(logs)) for j in range(i + 1))
    k = signed_rank(len(logs))
    low, high = (means[k - 1], means[-k]) if k else (-math.inf, math.inf)
    return Comparison(ratio=math.exp(statistics.median(means)), low=math.exp(low), high=math.exp(high) if k else math.inf,
                      counts=(len(logs), len(logs)))


def signed_rank(n: int, confidence: float = CONFIDENCE) -> int:
    """The k for which the k-th smallest and k-th largest mean of two enclose the true difference; 0 if none does."""
    if n > 60:
        sigma = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return int(n * (n + 1) / 4 - statistics.NormalDist().inv_cdf((1 + confidence) / 2) * sigma)
    # How many of the 2^n ways to give signs to the ranks 1 … n have each sum of positive ranks.
    ways = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    outside, k = 0, 0
    while True:
        outside += 2 * ways[k]
        if outside > (1 - confidence) * 2**n:
            return k
        k += 1


def unpaired(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """From two sets that were not measured in turns: Welch's interval of the logarithms."""
    if not a or not b:
        raise BadInput(f"{len(a)} measurements of A and {len(b)} of B: each side needs at least one")
    x, y = [math.log(v) for v in a], [math.log(v) for v in b]
    return _comparison(statistics.fmean(y) - statistics.fmean(x), y, x, counts=(len(x), len(y)))


def overall(found: Sequence[Comparison]) -> Comparison:
    """One figure for several configurations: the mean of their ratios, judged by how far they lie apart."""
    if len(found) == 1:
        return found[0]
    logs = [math.log(c.ratio) for c in found]
    return _comparison(statistics.fmean(logs), logs, counts=(sum(c.counts[0] for c in found), sum(c.counts[1] for c in found)))


def _comparison(middle: float, *samples: Sequence[float], counts: tuple[int, int]) -> Comparison:
    """With Student's interval of the mean of one sample of logarithms, or Welch's of the difference of two."""
    if min(map(len, samples)) < 2:
        return Comparison(ratio=math.exp(middle), low=0.0, high=math.inf, counts=counts)
    from scipy import stats  # 0.8 s, and no other command needs it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # repeats that are equal to the last digit are an answer all the same
        test = stats.ttest_ind(*samples, equal_var=False) if len(samples) > 1 else stats.ttest_1samp(samples[0], 0.0)
        low, high = test.confidence_interval(CONFIDENCE)
    return Comparison(ratio=math.exp(middle), low=math.exp(low), high=math.exp(min(high, 700.0)), counts=counts)


@dataclass(kw_only=True)
class Group:
    """One configuration, measured both ways."""

    label: str
    key: str = ""
    """Of the configuration, where records are compared."""
    a: list[float] = field(default_factory=list)
    """Seconds per sample, one value per repeat."""
    b: list[float] = field(default_factory=list)
    failed: dict[str, dict[str, int]] = field(default_factory=lambda: {"a": {}, "b": {}})
    """Side -> outcome -> how often."""
    ran: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    busy: float = 0.0
    """The highest load of the machine as a share of its cores, before any of the runs: above 1 others were computing too."""
    in_turns: bool = False
    also: dict[str, tuple[object, object]] = field(default_factory=dict)
    """What else differs between A and B because it must: with another TP, the DP that fills the same devices."""
    forecast: dict[str, float] = field(default_factory=dict)
    """Side -> seconds per sample that were forecast, where the trial has a cluster."""

    @property
    def forecast_ratio(self) -> float | None:
        return self.forecast["b"] / self.forecast["a"] if len(self.forecast) == 2 else None

    @property
    def comparison(self) -> Comparison | None:
        if not self.a or not self.b:
            return None
        return paired(self.a, self.b) if self.in_turns else unpaired(self.a, self.b)


def settings_table(settings: Iterable[str]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for setting in settings:
        if setting.strip():
            fields.assign(data, setting)
    return data


def in_turns(data: Mapping[str, Any], *, a: Sequence[str], b: Sequence[str], repeats: int, name: str) -> Sweep:
    """The file's trials, each with the settings of A and of B; within a pair a coin decides which goes first."""
    sides = [{"name": "a", **settings_table(a)}, {"name": "b", **settings_table(b)}]
    axes = dict(data.get("axes", {}))
    if "case" in axes:
        raise BadInput("axes.case: compare puts A and B there; make an axis of what differs instead")
    sweep = build({**data, "axes": {**axes, "case": sides}, "repeats": repeats, "order": "file"}, name=name)
    # Repeats outermost, so that all configurations see the same hours; A and B of one next to each other. The coin is thrown
    # once for all time: a comparison that is resumed goes on in the same order.
    groups = list(dict.fromkeys(label_of(task) for task in sweep.tasks))
    tasks = sorted(sweep.tasks, key=lambda t: (t.repeat, groups.index(label_of(t)), (t.knobs["case"] == "b") ^ _coin(t)))
    return replace(sweep, tasks=tuple(replace(t, knobs={**{k: v for k, v in t.knobs.items() if k != "case"},
                                                        SIDE: t.knobs["case"]}) for t in tasks))


def _coin(task: Task) -> bool:
    return random.Random(f"{label_of(task)} {task.repeat}").random() < 0.5


def label_of(task: Task) -> str:
    return " ".join(f"{axis}={text}" for axis, text in task.knobs.items() if axis not in ("case", SIDE))


def measured_in_turns(sweep: Sweep, store: Store) -> list[Group]:
    tasks = {store.record_id(task.key): task for task in sweep.tasks}
    values: dict[str, dict[int, dict[str, float]]] = {}
    groups: dict[str, Group] = {}
    clusters = any(task.trial is not None and task.trial.cluster is not None for task in sweep.tasks)
    expected = forecasts.of_trials(sweep) if clusters else {}
    for data in store.records():
        task = tasks.get(data["record_id"])
        if task is None:
            continue
        label, side = label_of(task), task.knobs[SIDE]
        group = groups.setdefault(label, Group(label=label, in_turns=True))
        group.ran[side] += 1
        group.busy = max(group.busy, _busy(data))
        if task.key in expected and task.trial is not None:
            group.forecast[side] = expected[task.key].sec / task.trial.batch.gbs
        value = _value(data)
        if value is None:
            status = _part(data, "outcome").get("status", "ok")
            group.failed[side][status] = group.failed[side].get(status, 0) + 1
        else:
            values.setdefault(label, {}).setdefault(task.repeat, {})[side] = value
    for label, group in groups.items():
        whole = [pair for _, pair in sorted(values.get(label, {}).items()) if len(pair) == 2]
        group.a, group.b = [pair["a"] for pair in whole], [pair["b"] for pair in whole]
    return list(groups.values())


def side_by_side(a: Iterable[dict[str, Any]], b: Iterable[dict[str, Any]], *, apart: Iterable[str]) -> list[Group]:
    """Rows of one configuration are compared; `apart` names the fields (or env variables) that tell A from B."""
    apart = set(apart)
    groups: dict[str, Group] = {}
    first: dict[str, dict[str, Any]] = {}
    for side, rows in (("a", a), ("b", b)):
        for data in rows:
            key = _configuration(data, apart)
            first.setdefault(key, data)
            group = groups.setdefault(key, Group(label="", key=key))
            group.ran[side] += 1
            group.busy = max(group.busy, _busy(data))
            value = _value(data)
            if value is not None:
                (group.a if side == "a" else group.b).append(value)
            elif status := _part(data, "outcome").get("status", ""):
                group.failed[side][status] = group.failed[side].get(status, 0) + 1
    found = {key: group for key, group in groups.items() if group.a and group.b}
    more = columns.differing([{name: fields.canonical(first[key].get(name)) for name in columns.ASKED} for key in found],
                             columns.ASKED)
    return [replace(group, label=_shown(first[key], apart, more)) for key, group in found.items()]


DERIVED = ("gpus", "nodes", "procs_per_node")
"""Follow from the degrees: one of them differs seldom alone."""
MOST_ALSO = 3


def side_by_side_or_near(a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]], *, apart: Iterable[str]) -> list[Group]:
    """The same; where no configuration is there both ways, those that differ in the fewest other fields, which `also` names."""
    apart = [*apart]
    if found := side_by_side(a, b, apart=apart):
        return found
    values = [[{name: fields.canonical(row.get(name)) for name in CONFIGURATION} for row in rows if _value(row) is not None]
              for rows in (a, b)]
    differ = [name for name in CONFIGURATION if name not in (*apart, "env")
              and {row[name] for row in values[0]} != {row[name] for row in values[1]}]
    units = [(name,) for name in differ if name not in DERIVED] + [tuple(n for n in DERIVED if n in differ)] * any(
        name in DERIVED for name in differ)
    for count in range(1, MOST_ALSO + 1):
        for chosen in itertools.combinations(units, count):
            more = [name for unit in chosen for name in unit]
            if found := _alone(side_by_side(a, b, apart=[*apart, *more]), a, b, apart, more):
                return found
    return []


def _alone(groups: list[Group], a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]], apart: Sequence[str],
           more: Sequence[str]) -> list[Group]:
    """Those in which each side has one value of what else differs: repeats, not a mixture."""
    found = []
    for group in groups:
        sides = [[row for row in rows if _value(row) is not None and _configuration(row, {*apart, *more}) == group.key]
                 for rows in (a, b)]
        values = [{name: {fields.canonical(row.get(name)): row.get(name) for row in rows} for name in more} for rows in sides]
        if all(len(each) == 1 for side in values for each in side.values()):
            one, other = ({name: next(iter(each.values())) for name, each in side.items()} for side in values)
            found.append(replace(group, also={name: (one[name], other[name]) for name in more if one[name] != other[name]}))
    return found


def all_together(groups: Sequence[Group]) -> Comparison | None:
    found = [group.comparison for group in groups]
    known = [c for c in found if c is not None]
    return overall(known) if known else None


def _part(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table of a record; a row that others wrote may have null there."""
    return found if isinstance(found := data.get(name), Mapping) else {}


def _value(data: Mapping[str, Any]) -> float | None:
    """Seconds per sample: also right where A and B have different batches."""
    if data.get("state") not in ("measured", "estimated") or _part(data, "outcome").get("status", "ok") != "ok":
        return None
    if _part(data, "measurement").get("kind") == "rehearsed":
        return None  # no second machine ever saw it: it is a forecast, not a repeat
    seconds, samples = data.get("sec_per_it"), data.get("gbs")
    if not isinstance(seconds, int | float) or seconds <= 0:
        return None
    return seconds / samples if isinstance(samples, int) and samples > 0 else float(seconds)


def _busy(data: Mapping[str, Any]) -> float:
    """The load is a mean of the last minute, in which the trial before this one ran: its own processes are taken off."""
    host = _part(data, "host")
    load, cores = host.get("load"), host.get("cores")
    if not isinstance(load, int | float) or not isinstance(cores, int) or cores < 1:
        return 0.0
    return max(0.0, float(load) - float(data.get("gpus") or 0)) / cores


def _configuration(data: Mapping[str, Any], apart: set[str]) -> str:
    found = {name: data[name] for name in CONFIGURATION if name in data and name not in apart}
    if "env" in found:
        found["env"] = {k: v for k, v in found["env"].items() if f"env.{k}" not in apart}
    return fields.canonical({k: v for k, v in found.items() if v != {}})


def _shown(data: Mapping[str, Any], apart: set[str], more: Sequence[str]) -> str:
    """`more`: what tells this configuration from the others that were compared."""
    names = dict.fromkeys(("size_label", "nodes", *columns.degrees(data.get("cp")), "mbs", "gbs", "dtype", *more))
    return " ".join(f"{name}={data[name]}" for name in names if data.get(name) not in (None, "") and name not in apart)
