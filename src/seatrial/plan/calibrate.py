"""Learn from measured rows: a few physical coefficients, never below zero, that stay near the cold model unless rows insist.

    fit = calibrate.learn(table.rows, cluster)
    fit = calibrate.from_file("measured.csv", cluster)          or a logbook, or a file that `save` wrote
    fit.save("calibration.json")
    fit.coefficients()                  for `step.time`, as of the last session
    fit.forecast(rows)                  seconds and memory with intervals, each row with its own session and environment
    fit.doubted                         rows that the fit did not believe

The logarithm of the seconds is the cold model with seven coefficients, a term for the machine as a whole, one for each session
(drivers and settings change between two), one for each thing in the environment that a row names, and one for each shape of a
layer: libraries pick other kernels for other shapes, some luckier than others, and rows of one shape share that. All have
normal priors, so with few rows the answer is the cold model's. Errors have Student's distribution with 4 degrees of freedom:
an outlier counts little and is named.
"""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seatrial import __version__, fields, files
from seatrial.errors import BadInput
from seatrial.plan import memory, step
from seatrial.plan.configs import Configs, Floats
from seatrial.plan.rows import Row, Table, configs_of, read
from seatrial.plan.step import NAMES, SPREAD, SPREAD_CPU, Coefficients, Shape
from seatrial.spec import Cluster, Trial

SESSION_SIGMA = 0.04
"""How far two sessions on one machine lie apart: new drivers, a repaired network, other neighbours bring a few per cent."""

FACTOR_SIGMA = 0.35
"""How much an allocator or another version of the framework may change: on CPUs half as fast again is common."""

FREEDOM = 4.0
"""Degrees of freedom of the error: most repeats agree within half a per cent, a few differ by ten."""

NOISE_ROWS = 4.0
"""How many rows the belief about the error is worth."""

T90 = 2.132
"""Half of the 90 % interval of Student's distribution with 4 degrees of freedom, in units of its scale."""

DOUBTED = 0.25
"""A row is named when it counts less than this share of a row that fits."""

ROUNDS = 60

MEMORY_SIGMA = {"activations": 0.15, "states": 0.05, "fixed_gib": 1.5}
MEMORY_NOISE = 0.03


@dataclass(frozen=True, kw_only=True)
class Belief:
    """What is expected of a kind of device before any row was seen; standard deviations of logarithms."""

    spread: Mapping[str, float]
    """Of the coefficients."""
    shape: float
    """How far the products of one shape lie from the smooth model on their own …"""
    kin: float
    """… and together with all shapes of the same TP and micro-batch."""
    waiting: float
    """What each doubling of DP may cost beyond its traffic: an iteration ends with its slowest replica."""
    noise: float
    """Scale of a single row's error."""


GPU = Belief(spread=SPREAD, shape=0.025, kin=0.025, waiting=0.006, noise=0.015)
"""Neighbouring shapes differed by up to 5 % in `benchmarks/kernels_gpu.py`; iterations repeat within half a per cent."""

CPU = Belief(spread=SPREAD_CPU, shape=0.06, kin=0.06, waiting=0.03, noise=0.04)
"""Thread pools, page allocation and the system itself disturb more."""


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


@dataclass(frozen=True, kw_only=True)
class Calibration:
    cluster: Cluster
    theta: Floats
    """Logarithms: NAMES, then waiting, sessions, factors, shapes."""
    covariance: Floats
    sessions: tuple[str, ...]
    factors: tuple[str, ...]
    shapes: tuple[Shape, ...]
    noise: float
    """The scale of the error."""
    rows: int
    doubted: tuple[Doubt, ...]
    held: MemoryFit
    used: tuple[Row, ...] = ()
    """The rows that it was learned from, so that more can be learned with them."""
    ignored: tuple[str, ...] = ()
    """Columns of their table that nothing reads."""

    def coefficients(self, session: str | None = None) -> Coefficients:
        """As of one session, by default the last one."""
        named = self.sessions[-1] if session is None and self.sessions else session
        size = len(NAMES)
        combine = np.eye(size, len(self.theta))
        if named in self.sessions:
            combine[size - 1, size + 1 + self.sessions.index(named)] = 1.0
        logs = combine @ self.theta
        values = dict(zip(NAMES, np.exp(logs).tolist()))
        factors = np.exp(self.theta[len(self.theta) - len(self.shapes) :]).tolist()
        return Coefficients(**values, waiting=float(self.theta[size]), shapes=tuple(zip(self.shapes, factors)),
                            covariance=combine @ self.covariance @ combine.T, noise=T90 * self.noise)

    def forecast(self, rows: Sequence[Row]) -> Forecast:
        """Rows that were not rejected."""
        configs = configs_of(list(rows))
        parts = step.measure(configs, self.cluster)
        design = _design(rows, self.sessions, self.factors)
        shaped = _shaped(configs, self.shapes)
        sec, jacobian = _predict(parts, self.theta, design, shaped)
        new = np.array([row.session not in self.sessions for row in rows]) * SESSION_SIGMA**2 if self.sessions else 0.0
        unknown = np.array([sum(f not in self.factors for f in row.factors) for row in rows]) * FACTOR_SIGMA**2
        strange = (2 - shaped.sum(axis=1)) * belief(self.cluster).shape ** 2 * jacobian[:, 0] ** 2
        variance = np.einsum("ni,ij,nj->n", jacobian, self.covariance, jacobian) + new + unknown + strange
        reach = np.sqrt(step.Z90**2 * variance + (T90 * self.noise) ** 2)
        held = memory.peak(configs, self.cluster)
        mem, mem_reach = self.held.apply(held)
        return Forecast(sec=sec, sec_lo=sec * np.exp(-reach), sec_hi=sec * np.exp(reach), mem=mem,
                        mem_lo=mem * np.exp(-mem_reach), mem_hi=mem * np.exp(mem_reach))

    def linear(self, rows: Sequence[Row]) -> tuple[Floats, Floats]:
        """Logarithms of the seconds, and how each moves with `theta`: with `covariance` they say what rows have in common."""
        configs = configs_of(list(rows))
        sec, jacobian = _predict(step.measure(configs, self.cluster), self.theta,
                                 _design(rows, self.sessions, self.factors), _shaped(configs, self.shapes))
        return np.log(sec), jacobian

    def describe(self) -> dict[str, Any]:
        """Plain data: what was learned, each with the half width of its 90 % interval in per cent."""
        half = step.Z90 * np.sqrt(np.diag(self.covariance))
        sessions = [f"session {s}" for s in self.sessions]
        labels = [*NAMES, "waiting, a doubling of DP", *sessions, *self.factors, *map(_label, self.shapes)]
        learned = {label: {"factor": round(float(np.exp(t)), 4), "percent": round(float(100 * h), 1)}
                   for label, t, h in zip(labels, self.theta, half)}
        return {"rows": self.rows, "noise_percent": round(100 * self.noise, 2), "learned": learned,
                "doubted": [vars(d) for d in self.doubted]}


    # As a file

    def to_dict(self) -> dict[str, Any]:
        """Plain data, from which `from_dict` makes the same to the last bit."""
        return {
            "schema": SCHEMA, "kind": KIND, "version": __version__, "cluster": fields.plain(self.cluster), "rows": self.rows,
            "noise": self.noise, "theta": self.theta.tolist(), "covariance": self.covariance.tolist(),
            "coefficients": list(NAMES), "sessions": list(self.sessions), "factors": list(self.factors),
            "shapes": [list(shape) for shape in self.shapes], "doubted": [vars(doubt) for doubt in self.doubted],
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
            held, size = data["memory"], len(data["theta"])
            return cls(
                cluster=here, theta=_array(data["theta"], (size,)), covariance=_array(data["covariance"], (size, size)),
                sessions=tuple(data["sessions"]), factors=tuple(data["factors"]),
                shapes=tuple(Shape(*shape) for shape in data["shapes"]), noise=float(data["noise"]), rows=int(data["rows"]),
                doubted=tuple(Doubt(**doubt) for doubt in data["doubted"]),
                held=MemoryFit(theta=_array(held["theta"], (3,)), covariance=_array(held["covariance"], (3, 3)),
                               noise=float(held["noise"])),
                used=tuple(_row_of(row, here) for row in data["used"]))  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{where}: {type(error).__name__} {error}: not what `seatrial calibrate` writes") from None

    def save(self, path: str | Path) -> None:
        files.save(path, json.dumps(self.to_dict(), allow_nan=False, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path, cluster: Cluster | None = None) -> Calibration:
        try:
            data = json.loads(Path(path).read_bytes())
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}: not JSON: {error}; `seatrial calibrate ROWS -o {path}` writes one") from None
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror or error}") from None
        return cls.from_dict(data, cluster, where=str(path))


SCHEMA = 1
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
    if not np.isfinite(found).all():
        raise ValueError("a number that is not finite")
    return found


def _plain_row(row: Row) -> dict[str, Any]:
    assert row.trial is not None and row.trial.cluster is not None
    said = {"where": row.where, "session": row.session, "factors": list(row.factors),
            "sec_per_it": row.sec_per_it, "mem_gib": row.mem_gib, "nodes": row.trial.cluster.nodes,
            "procs_per_node": row.trial.cluster.procs_per_node}
    return {**said, "trial": fields.plain(replace(row.trial, cluster=None))}


def _row_of(data: Mapping[str, Any], cluster: Cluster) -> Row:
    trial = fields.build(Trial, data["trial"], where="trial")
    here = cluster.with_procs(data["procs_per_node"]).with_nodes(data["nodes"])
    return Row(cells={}, trial=replace(trial, cluster=here), where=data["where"], session=data["session"],
               factors=tuple(data["factors"]), sec_per_it=data["sec_per_it"], mem_gib=data["mem_gib"], counts=True)


def cold(cluster: Cluster) -> Calibration:
    """Nothing learned: the priors themselves."""
    sigma = _prior(cluster, 0, 0, ())
    return Calibration(cluster=cluster, theta=np.zeros(len(sigma)), covariance=np.diag(sigma**2), sessions=(), factors=(),
                       shapes=(), noise=0.0, rows=0, doubted=(), held=MemoryFit.cold(cluster))


def learn(rows: Sequence[Row], cluster: Cluster, *, also: Sequence[Row] = ()) -> Calibration:
    """From the rows that were measured and are not copies or estimates.

    `also`: rows to come, whose shapes get a term of their own now, so that `linear` knows what they share.
    """
    timed = [r for r in rows if r.counts and r.trial is not None and r.sec_per_it is not None]
    if not timed:
        shapes = _shapes_of(also)
        sigma = _prior(cluster, 0, 0, shapes)
        return replace(cold(cluster), theta=np.zeros(len(sigma)), covariance=np.diag(sigma**2), shapes=shapes,
                       held=_learn_memory(rows, cluster))
    sessions = tuple(sorted({r.session for r in timed}))
    factors = tuple(sorted({f for r in timed for f in r.factors}))
    configs = configs_of(timed)
    shapes = _shapes_of([*timed, *also])
    parts = step.measure(configs, cluster)
    design = _design(timed, sessions, factors)
    shaped = _shaped(configs, shapes)
    measured = np.log([r.sec_per_it for r in timed if r.sec_per_it is not None])
    sigma = _prior(cluster, len(sessions), len(factors), shapes)
    theta, covariance, noise, weight, residual = _fit(parts, design, shaped, measured, sigma, belief(cluster).noise)
    doubted = tuple(
        Doubt(where=r.where, measured_s=float(np.exp(y)), expected_s=float(np.exp(y - e)))
        for r, y, e, w in zip(timed, measured, residual, weight) if w < DOUBTED
    )
    return Calibration(cluster=cluster, theta=theta, covariance=covariance, sessions=sessions, factors=factors, shapes=shapes,
                       noise=noise, rows=len(timed), doubted=doubted, held=_learn_memory(rows, cluster), used=tuple(timed))


def from_table(table: Table, cluster: Cluster) -> Calibration:
    """Rows of this machine, where the table names machines and this one is among them."""
    return replace(learn(table.of_machine(cluster.name), cluster), ignored=table.ignored)


def from_file(path: str | Path, cluster: Cluster) -> Calibration:
    """What `Calibration.save` wrote (.json) as it is; a CSV file or the folder of a logbook is learned from here and now."""
    if Path(path).suffix == ".json":
        return Calibration.load(path, cluster)
    found = from_table(read(path, cluster), cluster)
    if not found.rows:
        raise BadInput(f"{path}: no row to learn from: it takes a column sec_per_it, and rows that a topology fits")
    return found


def _prior(cluster: Cluster, sessions: int, factors: int, shapes: Sequence[Shape]) -> Floats:
    b = belief(cluster)
    common = [b.waiting, *[SESSION_SIGMA] * sessions, *[FACTOR_SIGMA] * factors]
    own = [b.shape if shape.hidden else b.kin for shape in shapes]
    return np.array([b.spread[name] for name in NAMES] + common + own)


def _shapes_of(rows: Sequence[Row]) -> tuple[Shape, ...]:
    """The shapes of the rows' layers, and the kin of each: the same TP and micro-batch with any width."""
    found = set()
    for row in rows:
        if row.trial is not None:
            m, t = row.trial.model, row.trial.topology
            found.add(Shape(hidden=m.hidden, heads=m.heads, seq=m.seq, tp=t.tp, mbs=t.mbs))
            found.add(Shape(hidden=0, heads=0, seq=m.seq, tp=t.tp, mbs=t.mbs))
    return tuple(sorted(found))


def _shaped(configs: Configs, shapes: Sequence[Shape]) -> Floats:
    """[n, shapes]: 1 where a configuration has the shape."""
    return np.array([shape.of(configs) for shape in shapes], dtype=float).reshape(len(shapes), len(configs)).T


def _label(shape: Shape) -> str:
    return "shape " + " ".join(f"{name} {value}" for name, value in shape._asdict().items() if value)


def _design(rows: Sequence[Row], sessions: tuple[str, ...], factors: tuple[str, ...]) -> Floats:
    """[n, 1 + sessions + factors]: the doublings of DP, and which of the others each row has."""
    design = np.zeros((len(rows), 1 + len(sessions) + len(factors)))
    for i, row in enumerate(rows):
        if row.trial is not None:
            design[i, 0] = np.log2(row.trial.topology.dp)
        if row.session in sessions:
            design[i, 1 + sessions.index(row.session)] = 1.0
        for factor in row.factors:
            if factor in factors:
                design[i, 1 + len(sessions) + factors.index(factor)] = 1.0
    return design


class _Found(NamedTuple):
    theta: Any
    covariance: Any
    noise: float
    weight: Any
    residual: Any


def _predict(parts: step.Parts, theta: Floats, design: Floats, shaped: Floats) -> tuple[Floats, Floats]:
    """Seconds, and how their logarithm moves with each entry of theta."""
    size, common = len(NAMES), design.shape[1]
    values = dict(zip(NAMES, np.exp(theta[:size])))
    whole = values["whole"] * np.exp(design @ theta[size : size + common])
    compute = values["compute"] * np.exp(shaped @ theta[size + common :])
    found = step.assemble(parts, Coefficients(**{**values, "compute": compute, "whole": whole}))
    share = step.shares(found.parts, found.sec)
    return found.sec, np.concatenate([share, design, shaped * share[:, :1]], axis=1)


def _fit(parts: step.Parts, design: Floats, shaped: Floats, measured: Floats, sigma: Floats,
         usual: float) -> _Found:
    """The most probable theta by repeated weighted least squares; its covariance; the error's scale; weights; residuals."""
    theta = np.zeros(len(sigma))
    weight = np.ones(len(measured))
    noise = 2 * usual
    inverse = np.diag(sigma**-2.0)
    for _ in range(ROUNDS):
        sec, jacobian = _predict(parts, theta, design, shaped)
        residual = measured - np.log(sec)
        weight = FREEDOM / (FREEDOM + (residual / noise) ** 2)
        gain = jacobian.T * (weight * (FREEDOM + 1) / FREEDOM / noise**2)
        moved = np.linalg.solve(gain @ jacobian + inverse, gain @ (residual + jacobian @ theta))
        # The columns that count are worth a row each at most: what they explain is not left to judge the noise by.
        explained = float(np.trace(np.linalg.solve(gain @ jacobian + inverse, gain @ jacobian)))
        left = np.sum(weight * (FREEDOM + 1) / FREEDOM * residual**2)
        degrees = max(len(measured) - explained, 0.0)
        noise = float(np.sqrt((left + NOISE_ROWS * usual**2) / (degrees + NOISE_ROWS)))
        step_size = np.abs(moved - theta).max()
        theta = 0.5 * theta + 0.5 * moved
        if step_size < 1e-7:
            break
    sec, jacobian = _predict(parts, theta, design, shaped)
    residual = measured - np.log(sec)
    weight = FREEDOM / (FREEDOM + (residual / noise) ** 2)
    gain = jacobian.T * (weight / noise**2)
    return _Found(theta, np.linalg.inv(gain @ jacobian + inverse), noise, weight, residual)


@dataclass(frozen=True, kw_only=True)
class MemoryFit:
    """Memory is the states and activations of the cold model, each with a factor, and a constant."""

    theta: Floats
    """Factor of the activations less 1, of the states less 1, GiB added."""
    covariance: Floats
    noise: float

    @classmethod
    def cold(cls, cluster: Cluster) -> MemoryFit:
        own = 0.06 if cluster.device.kind == "gpu" else memory.SIGMA_CPU
        return cls(theta=np.zeros(3), covariance=np.zeros((3, 3)), noise=own)

    def apply(self, held: memory.Memory) -> tuple[Floats, Floats]:
        """GiB, and half of the 90 % interval of its logarithm."""
        columns = _memory_columns(held.parts)
        gib = np.maximum(held.gib + columns @ self.theta, 0.05 * held.gib)
        variance = np.einsum("ni,ij,nj->n", columns, self.covariance, columns) / gib**2 + self.noise**2
        return gib, step.Z90 * np.sqrt(variance)


def _memory_columns(parts: Mapping[str, Floats]) -> Floats:
    moving = parts["activations"] + parts["working"] + parts["logits"] + parts["slack"]
    states = parts["weights"] + parts["gradients"] + parts["optimizer"]
    return np.stack([moving, states, np.ones_like(moving)], axis=1)


def _learn_memory(rows: Sequence[Row], cluster: Cluster) -> MemoryFit:
    seen = [r for r in rows if r.counts and r.trial is not None and r.mem_gib is not None]
    first = MemoryFit.cold(cluster)
    if not seen:
        return first
    held = memory.peak(configs_of(seen), cluster)
    gib = np.array([r.mem_gib for r in seen if r.mem_gib is not None])
    scale = 1.0 if cluster.device.kind == "gpu" else 3.0
    sigma = np.array(list(MEMORY_SIGMA.values())) * scale
    columns = _memory_columns(held.parts) / gib[:, None]
    target = (gib - held.gib) / gib
    inverse = np.diag(sigma**-2.0)
    theta, noise = np.zeros(3), 2 * MEMORY_NOISE * scale
    weight = np.ones(len(seen))
    for _ in range(ROUNDS):
        residual = target - columns @ theta
        weight = FREEDOM / (FREEDOM + (residual / noise) ** 2)
        gain = columns.T * (weight / noise**2)
        theta = np.linalg.solve(gain @ columns + inverse, gain @ target)
        left = np.sum(weight * (FREEDOM + 1) / FREEDOM * (target - columns @ theta) ** 2)
        noise = float(np.sqrt((left + NOISE_ROWS * (MEMORY_NOISE * scale) ** 2) / (len(seen) + NOISE_ROWS)))
    gain = columns.T * (weight / noise**2)
    return MemoryFit(theta=theta, covariance=np.linalg.inv(gain @ columns + inverse), noise=noise * T90 / step.Z90)
