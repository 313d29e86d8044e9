"""Learn from measured rows: a few physical coefficients, never below zero, that stay near the cold model unless rows insist.

    fit = calibrate.learn(table.rows, cluster)
    fit = calibrate.from_file("measured.csv", cluster)          or a logbook, or a file that `save` wrote
    fit.save("calibration.json")
    fit.coefficients()                  for `step.time`, as of a session to come
    fit.forecast(rows)                  seconds and memory with intervals, each row with its own session and environment
    fit.doubted                         rows that the fit did not believe

The logarithm of the seconds is the cold model with eight coefficients and effects of several levels. On the whole: the
engine, the session (drivers and settings change between two), each thing of the software that a row names, the set of nodes.
On the compute: the layer's shape, since libraries pick other kernels for other shapes, some luckier than others; shapes with
as many heads; and all with the same TP and micro-batch. Effects have normal priors whose widths are learned too
(`hierarchy`): with few rows, or with rows that do not agree, the answer is the cold model's. What a row shares with no other,
it has not taught: a session, shape or engine never seen is forecast without an effect of its own, and its interval pays for
that.
"""
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seatrial import __version__, fields, files
from seatrial.engines.model import model_of
from seatrial.errors import BadInput
from seatrial.plaindata import read_json
from seatrial.plan import fitmemory, hierarchy, memory, step
from seatrial.plan.configs import Configs, Floats
from seatrial.plan.fitmemory import T90, MemoryFit
from seatrial.plan.hierarchy import FREEDOM as FREEDOM
from seatrial.plan.rows import Row, Table, configs_of, read
from seatrial.plan.step import NAMES, SPREAD, SPREAD_CPU, Coefficients, Shape
from seatrial.spec import Cluster, Trial

DOUBTED = 0.25
"""A row is named when it counts less than this share of a row that fits."""


@dataclass(frozen=True, kw_only=True)
class Belief:
    """What is expected of a kind of device before any row was seen; standard deviations of logarithms."""

    spread: Mapping[str, float]
    """Of the coefficients."""
    groups: Mapping[str, float]
    """Of the effects on the whole, by the kind of what rows have in common."""
    shape: float
    """How far the products of one shape lie from the smooth model: each of its three levels has a third of the variance."""
    session: Mapping[str, float] = field(default_factory=lambda: {name: sigma / 2 for name, sigma in SPREAD.items()})
    """Of the coefficients between two sessions on one machine: half of what a data sheet leaves open. New drivers, a repaired
    network, other neighbours bring a few per cent, on a device that is little known no more than on any other."""
    waiting: float
    """What each doubling of DP may cost beyond its traffic: an iteration ends with its slowest replica."""
    noise: float
    """Scale of a single row's error."""


GPU = Belief(spread=SPREAD, groups={"software": 0.35, "nodes": 0.02}, shape=0.025 * 2**0.5,
             waiting=0.006, noise=0.015)
"""Neighbouring shapes differed by up to 5 % in `benchmarks/kernels_gpu.py`; iterations repeat within half a per cent."""

CPU = Belief(spread=SPREAD_CPU, groups={"software": 0.35, "nodes": 0.04}, shape=0.06 * 2**0.5,
             waiting=0.03, noise=0.04)
"""Thread pools, page allocation and the system itself disturb more; an allocator makes half as fast again."""

OWN = ("engine", "session")
"""Kinds of groups that have coefficients of their own around what all share, so that many rows of few sessions say little of
the next one; other kinds have one effect, on the whole."""


class Group(NamedTuple):
    """What some rows have in common and others have not."""

    kind: str
    name: str


def belief(cluster: Cluster) -> Belief:
    """A CPU that was probed is known as well as a GPU's data sheet; its iterations repeat no better for that."""
    if cluster.device.kind == "gpu":
        return GPU
    return CPU if cluster.machine is None else replace(CPU, spread=SPREAD)


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A row that was measured and not believed."""

    where: str
    measured_s: float
    expected_s: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Columns, a value for each row."""

    sec: Floats
    sec_lo: Floats
    sec_hi: Floats
    mem: Floats
    mem_lo: Floats
    mem_hi: Floats
    need: Floats
    """GiB that it cannot run without."""
    mem_sigma: Floats
    """Standard deviation of the logarithm of `mem` and of `need`, as of a single row to come."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    cluster: Cluster
    theta: Floats
    """Logarithms: NAMES, then waiting, groups (engines and sessions as many as NAMES, others one), shapes."""
    covariance: Floats
    groups: tuple[Group, ...]
    shapes: tuple[Shape, ...]
    unseen: Mapping[str, float] = field(default_factory=dict)
    """Kind of a group, or of a shape's level -> the standard deviation of an effect that no row has shown; of engines and
    sessions by what that of each coefficient is multiplied."""
    carried: float = 1.0
    """How much of what was learned a session never seen is forecast with: see `_carried`."""
    noise: float
    """The scale of the error."""
    rows: int
    doubted: tuple[Doubt, ...]
    held: MemoryFit
    used: tuple[Row, ...] = ()
    """The rows that it was learned from, so that more can be learned with them."""
    ignored: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Columns of their table that nothing reads."""

    @property
    def sessions(self) -> tuple[str, ...]:
        return tuple(group.name for group in self.groups if group.kind == "session")

    @property
    def factors(self) -> tuple[str, ...]:
        return tuple(group.name for group in self.groups if group.kind == "software")

    def coefficients(self, session: str = "", engine: str | None = None) -> Coefficients:
        """As of a session to come, whose effect nobody knows, or of one that was seen.

        A plan is for tomorrow. In the logs at hand the last session says no more of the next than any other does, so by
        default what all have in common counts, as far as it is `carried`, and what lies between them widens the interval.
        Rows that name no session are one, and a plan belongs to it. `engine`: by default the one that most rows ran.
        """
        ran = [model_of(row.trial.engine).name for row in self.used if row.trial is not None]
        named = model_of(engine).name if engine is not None else max(sorted(set(ran)), key=ran.count, default="")
        size = len(NAMES)
        combine = np.eye(size, len(self.theta))
        unknown, b = np.zeros(size), belief(self.cluster)
        for group in (Group("session", session), Group("engine", named)):
            if group in self.groups:
                combine[:, _columns(self.groups)[group]] += np.eye(size)
            else:
                unknown += (self.unseen.get(group.kind, 0.0) * _own(b, group.kind)) ** 2
        part = 1.0 if session in self.sessions else self.carried
        logs = part * (combine @ self.theta)
        covariance = combine @ self.covariance @ combine.T + np.diag(unknown)
        values = dict(zip(NAMES, np.exp(logs).tolist()))
        factors = np.exp(part * self.theta[len(self.theta) - len(self.shapes) :]).tolist()
        return Coefficients(**values, waiting=part * float(self.theta[size]), shapes=tuple(zip(self.shapes, factors)),
                            covariance=covariance, noise=T90 * self.noise)

    def forecast(self, rows: Sequence[Row]) -> Forecast:
        """Rows that were not rejected."""
        configs = configs_of(list(rows))
        parts = step.measure(configs, self.cluster)
        design, shaped = _design(rows, self.groups), _shaped(configs, self.shapes)
        middle, jacobian = _predict(parts, self.theta, design, shaped)
        part = np.array([1.0 if row.session in self.sessions else self.carried for row in rows])
        sec = middle if (part == 1).all() else _predict(parts, self.theta, design, shaped, part)[0]
        variance = np.einsum("ni,ij,nj->n", jacobian, self.covariance, jacobian) + self._strange(rows, shaped, jacobian)
        reach = np.sqrt(step.Z90**2 * variance + (T90 * self.noise) ** 2)
        held = memory.peak(configs, self.cluster)
        mem, mem_reach = self.held.apply(held)
        mem = np.maximum(mem - held.beyond([row.mem_measure for row in rows]), 0.05 * mem)
        return Forecast(sec=sec, sec_lo=middle * np.exp(-reach), sec_hi=middle * np.exp(reach), mem=mem,
                        mem_lo=mem * np.exp(-mem_reach), mem_hi=mem * np.exp(mem_reach), need=self.held.need(held),
                        mem_sigma=self.held.sigma(held))

    def _strange(self, rows: Sequence[Row], shaped: Floats, jacobian: Floats) -> Floats:
        """Variance of effects that the rows have and nothing was learned of."""
        known, shares = set(self.groups), jacobian[:, : len(NAMES)]
        each = {kind: shares**2 @ _own(belief(self.cluster), kind) ** 2 for kind in OWN}
        found = np.zeros(len(rows))
        for i, row in enumerate(rows):
            for group in _groups(row):
                if group not in known:
                    found[i] += self.unseen.get(group.kind, 0.0) ** 2 * (each[group.kind][i] if group.kind in OWN else 1.0)
        kinds = np.array([_level(shape) for shape in self.shapes])
        for kind in SHAPE_LEVELS:
            seen = shaped[:, kinds == kind].sum(axis=1) if len(kinds) else 0.0
            found = found + (1 - seen) * (self.unseen.get(kind, 0.0) * shares[:, 0]) ** 2
        return found

    def linear(self, rows: Sequence[Row]) -> tuple[Floats, Floats]:
        """Logarithms of the seconds, and how each moves with `theta`: with `covariance` they say what rows have in common."""
        configs = configs_of(list(rows))
        sec, jacobian = _predict(step.measure(configs, self.cluster), self.theta,
                                 _design(rows, self.groups), _shaped(configs, self.shapes))
        return np.log(sec), jacobian

    def describe(self) -> dict[str, Any]:
        """Plain data: what was learned, each with the half width of its 90 % interval in per cent; of an engine or a session
        what all its coefficients make of the mean of the rows."""
        timed = [row for row in self.used if row.counts and row.sec_per_it is not None]
        share = self.linear(timed)[1][:, : len(NAMES)].mean(axis=0) if timed else np.ones(len(NAMES))
        whole, labels = np.eye(len(self.theta)), [*NAMES, "waiting, a doubling of DP"]
        keep = list(range(len(labels)))
        for group, place in _columns(self.groups).items():
            whole[place.start, place] = share if group.kind in OWN else 1.0
            labels.append(" ".join(group) if group.kind != "software" else group.name)
            keep.append(place.start)
        labels += map(_label, self.shapes)
        keep += range(len(self.theta) - len(self.shapes), len(self.theta))
        logs, half = whole @ self.theta, step.Z90 * np.sqrt(np.einsum("ki,ij,kj->k", whole, self.covariance, whole))
        learned = {label: {"factor": round(float(np.exp(logs[i])), 4), "percent": round(float(100 * half[i]), 1)}
                   for label, i in zip(labels, keep)}
        return {"rows": self.rows, "noise_percent": round(100 * self.noise, 2), "learned": learned,
                "carried_percent": round(100 * self.carried), "doubted": [vars(d) for d in self.doubted]}


    # As a file

    def to_dict(self) -> dict[str, Any]:
        """Plain data, from which `from_dict` makes the same to the last bit."""
        return {
            "schema": SCHEMA, "kind": KIND, "version": __version__, "cluster": fields.plain(self.cluster), "rows": self.rows,
            "noise": self.noise, "theta": self.theta.tolist(), "covariance": self.covariance.tolist(),
            "coefficients": list(NAMES), "groups": [list(group) for group in self.groups], "unseen": dict(self.unseen),
            "carried": self.carried, "shapes": [list(shape) for shape in self.shapes],
            "doubted": [vars(doubt) for doubt in self.doubted],
            "memory": {"theta": self.held.theta.tolist(), "covariance": self.held.covariance.tolist(),
                       "noise": self.held.noise},
            "used": [_plain_row(row) for row in self.used],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Any, cluster: Cluster | None = None, *, where: str = "calibration") -> Calibration:
        """For `cluster`, which must be the one that it was learned on; by default that one."""
        if not isinstance(data, Mapping) or data.get("kind") != KIND:
            raise BadInput(f"{where}: not a calibration: it has no kind {KIND!r}; `seatrial calibrate ROWS -o FILE` writes one")
        if data.get("schema") != SCHEMA or data.get("coefficients") != list(NAMES):
            raise BadInput(f"{where}: schema {data.get('schema')!r} of seatrial {data.get('version', '?')}, and this version "
                           f"reads {SCHEMA}: calibrate again")
        try:
            learned_on = fields.build(Cluster, data["cluster"], where=f"{where}: cluster")
            here = learned_on if cluster is None else _same_machine(learned_on, cluster, where)
            held, known = data["memory"], len(fitmemory.LEARNED)
            groups = tuple(Group(*map(str, group)) for group in data["groups"])
            size = len(NAMES) + 1 + sum(len(NAMES) if group.kind in OWN else 1 for group in groups) + len(data["shapes"])
            return cls(
                cluster=here, theta=_array(data["theta"], (size,)), covariance=_array(data["covariance"], (size, size)),
                groups=groups,
                unseen={str(kind): _share(sigma) for kind, sigma in dict(data["unseen"]).items()},
                carried=_share(data["carried"]),
                shapes=tuple(Shape(*map(int, shape)) for shape in data["shapes"]), noise=_share(data["noise"]),
                rows=int(data["rows"]), doubted=tuple(fields.build(Doubt, doubt, where="doubted") for doubt in data["doubted"]),
                held=MemoryFit(theta=_array(held["theta"], (known,)), covariance=_array(held["covariance"], (known, known)),
                               noise=None if held["noise"] is None else _share(held["noise"])),
                used=tuple(_row_of(row, here) for row in data["used"]))  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"{where}: {type(error).__name__} {error}: not what `seatrial calibrate` writes") from None

    def save(self, path: str | Path) -> None:
        files.save(path, json.dumps(self.to_dict(), allow_nan=False, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path, cluster: Cluster | None = None) -> Calibration:
        data = read_json(path, hint=f"; `seatrial calibrate ROWS -o {path}` writes one")
        return cls.from_dict(data, cluster, where=str(path))


SCHEMA = 2
KIND = "seatrial calibration"


def _same_machine(learned_on: Cluster, asked: Cluster, where: str) -> Cluster:
    """Coefficients are shares of what the cold model says of one device, from its data sheet or as it was probed."""
    for what, there, here in (("cluster", learned_on.name, asked.name), ("device", learned_on.device.name, asked.device.name),
                              ("machine file", Path(learned_on.machine or "").name, Path(asked.machine or "").name)):
        if there != here:
            raise BadInput(f"{where}: learned on {what} {there or 'none'}, asked for {here or 'none'}: calibrate for that one")
    return asked


def _array(values: Any, shape: tuple[int, ...]) -> Floats:
    found = np.array(values, dtype=np.float64).reshape(shape)
    if not np.isfinite(found).all() or np.abs(found).max(initial=0.0) > MOST_LOG:
        raise ValueError("a number that is no logarithm of a factor")
    if len(shape) == 2 and (not np.allclose(found, found.T) or np.linalg.eigvalsh(found).min(initial=0.0) < -1e-6):
        raise ValueError("numbers that are no covariance")
    return found


MOST_LOG = 100.0
"""Factors are learned as logarithms: e^100 is none."""


def _share(value: Any) -> float:
    """A spread, as a share."""
    found = float(value)
    if not 0 <= found <= MOST_LOG:
        raise ValueError(f"a spread of {found}")
    return found


def _plain_row(row: Row) -> dict[str, Any]:
    assert row.trial is not None and row.trial.cluster is not None
    said = {"where": row.where, "session": row.session, "factors": list(row.factors),
            "sec_per_it": row.sec_per_it, "mem_gib": row.mem_gib, "nodes": row.trial.cluster.nodes,
            "procs_per_node": row.trial.cluster.procs_per_node, "status": row.status, "counts": row.counts,
            "node_set": row.node_set, "mem_measure": row.mem_measure}
    return {**said, "trial": fields.plain(replace(row.trial, cluster=None))}


def _row_of(data: Mapping[str, Any], cluster: Cluster) -> Row:
    trial = fields.build(Trial, data["trial"], where="trial")
    nodes, procs = (fields.convert(data[name], int, where=f"used.{name}") for name in ("nodes", "procs_per_node"))
    fields.positive("used", nodes=nodes, procs_per_node=procs)
    here = cluster.with_procs(procs).with_nodes(nodes)
    said = {name: fields.convert(data[name], hint, where=f"used.{name}") for name, hint in _SAID.items()}
    fields.positive("used", sec_per_it=said["sec_per_it"], mem_gib=said["mem_gib"])
    return Row(cells={}, trial=replace(trial, cluster=here), **said)


_SAID = {**dict.fromkeys(("where", "session", "status", "node_set", "mem_measure"), str), "counts": bool,
         "sec_per_it": float | None, "mem_gib": float | None, "factors": tuple[str, ...]}  # fmt: skip


def cold(cluster: Cluster) -> Calibration:
    """Nothing learned: the priors themselves. What the cold model is off on the whole has every session and engine in it."""
    b = belief(cluster)
    sigma = np.array([*(b.spread[name] for name in NAMES), b.waiting])
    return Calibration(cluster=cluster, theta=np.zeros(len(sigma)), covariance=np.diag(sigma**2), groups=(), shapes=(),
                       unseen={"software": b.groups["software"], **dict.fromkeys(SHAPE_LEVELS, b.shape / 3**0.5)},
                       noise=0.0, rows=0, doubted=(), held=MemoryFit.cold(cluster))


def learn(rows: Sequence[Row], cluster: Cluster, *, also: Sequence[Row] = ()) -> Calibration:
    """From the rows that were measured and are not copies or estimates, and of memory from those that crashed for want of it.

    `also`: rows to come, whose shapes get a term of their own now, so that `linear` knows what they share.
    """
    timed = [r for r in rows if r.counts and r.trial is not None and r.sec_per_it is not None]
    others = [r for r in rows if not (r.counts and r.sec_per_it is not None) and _of_memory(r)]
    shapes, held, b = _shapes_of([*timed, *also]), fitmemory.learn(rows, cluster), belief(cluster)
    first = cold(cluster)
    if not timed:
        sigma = np.array([*(b.spread[name] for name in NAMES), b.waiting, *[b.shape / 3**0.5] * len(shapes)])
        return replace(first, theta=np.zeros(len(sigma)), covariance=np.diag(sigma**2), shapes=shapes, held=held,
                       used=tuple(others))
    groups = tuple(sorted({group for row in timed for group in _groups(row)}))
    configs = configs_of(timed)
    parts = step.measure(configs, cluster)
    design, shaped = _design(timed, groups), _shaped(configs, shapes)
    measured = np.log([r.sec_per_it for r in timed if r.sec_per_it is not None])
    prior = _prior(b, groups, shapes)
    found = hierarchy.fit(lambda theta: _logarithms(parts, theta, design, shaped), measured, prior, usual=b.noise)
    doubted = tuple(
        Doubt(where=r.where, measured_s=float(np.exp(y)), expected_s=float(np.exp(y - e)))
        for r, y, e, w in zip(timed, measured, found.residual, found.weight) if w < DOUBTED
    )
    unseen = {**b.groups, "session": found.scales["session"], "engine": found.scales["whole"]}
    unseen.update({kind: b.shape / 3**0.5 * found.scales[kind] for kind in SHAPE_LEVELS})
    fit = Calibration(cluster=cluster, theta=found.mean, covariance=found.covariance, groups=groups, shapes=shapes,
                      unseen=unseen, noise=found.noise, rows=len(timed), doubted=doubted, held=held, used=(*timed, *others))
    return replace(fit, carried=_carried(fit, parts, design, shaped))


def _carried(fit: Calibration, parts: step.Parts, design: _Design, shaped: Floats) -> float:
    """The share of what was learned that the forecast of a session never seen moves by.

    What a few sessions have in common may be chance: a forecast that moves by less than sessions lie apart is as likely to
    become worse than the cold one as better. So the move is shrunk as James and Stein shrink a mean: by the part of its
    square, over the rows learned from, that its own variance and that between sessions account for, to nothing where that is
    all of it. Intervals stay around what was learned.
    """
    new = design._replace(member=design.member * np.array([group.kind != "session" for group in fit.groups]))
    sec, jacobian = _predict(parts, fit.theta, new, shaped)
    moved = np.log(sec) - np.log(step.assemble(parts).sec)
    between = jacobian[:, : len(NAMES)] ** 2 @ (fit.unseen["session"] * _own(belief(fit.cluster), "session")) ** 2
    chance = np.einsum("ni,ij,nj->n", jacobian, fit.covariance, jacobian) + between
    return float(max(0.0, 1 - chance.sum() / max(float((moved**2).sum()), 1e-12)))


def _of_memory(row: Row) -> bool:
    return row.trial is not None and bool(fitmemory.bound(row) or row.counts and row.mem_gib is not None)


def from_table(table: Table, cluster: Cluster) -> Calibration:
    """Rows of this machine, where the table names machines and this one is among them."""
    return replace(learn(table.of_machine(cluster.name), cluster), ignored=table.ignored, unread=table.unread)


def from_file(path: str | Path, cluster: Cluster, *, format: str | Path | None = None) -> Calibration:
    """What `Calibration.save` wrote (.json) as it is; measured rows of a file or a logbook are learned from here and now."""
    if Path(path).suffix == ".json" and format is None and not _has_runs(path):
        return Calibration.load(path, cluster)
    found = from_table(read(path, cluster, format=format), cluster)
    if not found.rows:
        raise BadInput(f"{path}: no row to learn from: it takes a column sec_per_it, and rows that a topology fits")
    return found


def _has_runs(path: str | Path) -> bool:
    """Whether a JSON file is one of records or of a run's metrics, and no calibration."""
    from seatrial.notes.read import import_file

    try:
        return bool(import_file(path).records)
    except BadInput:
        return False


SHAPE_LEVELS = ("kin", "heads", "shape")
"""The same TP and micro-batch; the same number of heads as well, at any width; the same shape."""


def _level(shape: Shape) -> str:
    return "shape" if shape.hidden else "heads" if shape.heads else "kin"


def _own(b: Belief, kind: str) -> Floats:
    """Of each of NAMES. What the cold model may be off is the cluster's by half of the variance and the engine's by half."""
    return np.array([b.session[name] if kind == "session" else b.spread[name] / 2**0.5 for name in NAMES])


def _columns(groups: Sequence[Group]) -> dict[Group, slice]:
    """Where in theta the effects of each group are."""
    found, place = {}, len(NAMES) + 1
    for group in groups:
        size = len(NAMES) if group.kind in OWN else 1
        found[group] = slice(place, place + size)
        place += size
    return found


def _prior(b: Belief, groups: Sequence[Group], shapes: Sequence[Shape]) -> hierarchy.Prior:
    cold = ["whole" if name in ("whole", "compute") else "parts" for name in NAMES]
    sigma, level = [*_own(b, "cluster"), b.waiting], [*cold, "parts"]
    for group in groups:
        sigma += [*_own(b, group.kind)] if group.kind in OWN else [b.groups[group.kind]]
        level += {"engine": cold, "session": ["session"] * len(NAMES)}.get(group.kind, [""])
    sigma += [b.shape / 3**0.5] * len(shapes)
    level += map(_level, shapes)
    known = [hierarchy.LEVELS.index(name) if name in hierarchy.LEVELS else hierarchy.FIXED for name in level]
    return hierarchy.Prior(np.array(sigma), np.array(known))


def _groups(row: Row) -> Iterable[Group]:
    """What a row's whole time may share with that of others."""
    if row.trial is not None:
        yield Group("engine", model_of(row.trial.engine).name)
        yield Group("nodes", row.node_set or str(row.trial.cluster.nodes if row.trial.cluster else row.trial.nodes))
    yield Group("session", row.session)
    for factor in row.factors:
        yield Group("software", factor)


def _shapes_of(rows: Sequence[Row]) -> tuple[Shape, ...]:
    """The shapes of the rows' layers, on all levels."""
    found = set()
    for row in rows:
        if row.trial is not None:
            m, t = row.trial.model, row.trial.topology
            one = Shape(hidden=m.hidden, heads=m.heads, seq=m.seq // t.cp, tp=t.tp, mbs=t.mbs)
            found |= {one, one._replace(hidden=0), one._replace(hidden=0, heads=0)}
    return tuple(sorted(found))


def _shaped(configs: Configs, shapes: Sequence[Shape]) -> Floats:
    """[n, shapes]: 1 where a configuration has the shape."""
    return np.array([shape.of(configs) for shape in shapes], dtype=float).reshape(len(shapes), len(configs)).T


def _label(shape: Shape) -> str:
    return "shape " + " ".join(f"{name} {value}" for name, value in shape._asdict().items() if value)


class _Design(NamedTuple):
    """What of theta each row has."""

    doublings: Floats
    """[n]: of DP."""
    member: Floats
    """[n, groups]: 1 where a row is of the group."""
    groups: tuple[Group, ...]


def _design(rows: Sequence[Row], groups: tuple[Group, ...]) -> _Design:
    place = {group: i for i, group in enumerate(groups)}
    member = np.zeros((len(rows), len(groups)))
    for i, row in enumerate(rows):
        member[i, [place[group] for group in _groups(row) if group in place]] = 1.0
    return _Design(np.log2([row.trial.topology.dp for row in rows if row.trial is not None]), member, groups)


def _predict(parts: step.Parts, theta: Floats, design: _Design, shaped: Floats,
             part: Floats | float = 1.0) -> tuple[Floats, Floats]:
    """Seconds, and how their logarithm moves with each entry of theta; `part`: of what theta says, for each row."""
    size, columns = len(NAMES), _columns(design.groups)
    logs = np.tile(theta[:size], (len(shaped), 1))
    logs[:, -1] += design.doublings * theta[size]
    for group, member in zip(design.groups, design.member.T):
        # An engine and a session move every coefficient, other groups the whole alone.
        logs[:, slice(0, size) if group.kind in OWN else slice(size - 1, size)] += member[:, None] * theta[columns[group]]
    logs[:, 0] += shaped @ theta[len(theta) - shaped.shape[1] :]
    found = step.assemble(parts, Coefficients(**dict(zip(NAMES, np.exp(logs.T * part)))))
    share = step.shares(found.parts, found.sec)
    of_groups = [member[:, None] * (share if group.kind in OWN else 1.0)
                 for group, member in zip(design.groups, design.member.T)]
    return found.sec, np.concatenate([share, design.doublings[:, None], *of_groups, shaped * share[:, :1]], axis=1)


def _logarithms(parts: step.Parts, theta: Floats, design: _Design, shaped: Floats) -> tuple[Floats, Floats]:
    sec, moves = _predict(parts, theta, design, shaped)
    return np.log(sec), moves
