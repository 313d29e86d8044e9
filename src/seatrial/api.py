"""seatrial from Python: plain values in, plain values out. Everything else in the package is how it is done.

    from seatrial import api
    api.plan(model="bloom-181b", cluster="jz-a100", nodes=48, gbs=2048, zero=1, tp=(4, 8)).rows
    api.forecast("rows.csv", "jz-a100"), api.explain(model="bloom-181b", cluster="jz-a100", gbs=2048, tp=4, pp=12)
    api.calibrate("book", "jz-a100").save("calibration.json")
    api.tune(model="tiny", cluster="local", gbs=16)         an ask/tell search
    api.logbook("book"), api.report("book", "report.html")

Rows are lists of dicts, one key a column, None where nobody said: `pandas.DataFrame(rows)`, `polars.DataFrame(rows)` and
`csv.DictWriter` take them as they are. What cannot be is a `seatrial.errors.BadInput` with the reason in one line.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from seatrial.columns import BY_FIELD, COLUMNS, KNOBS
from seatrial.errors import BadInput
from seatrial.fields import nearest
from seatrial.spec import Cluster, Model, Trial

if TYPE_CHECKING:
    from seatrial.plan.calibrate import Calibration
    from seatrial.plan.rows import Row
    from seatrial.tune import Tuner

__all__ = ["Named", "Plan", "Rows", "calibrate", "explain", "forecast", "load_calibration", "logbook", "plan", "report",
           "trial", "tune"]

Named = str | Mapping[str, Any]
"""A preset's name, the path of a TOML file, or a table: {"base": "bloom-181b", "layers": 70}."""
Rows = str | Path | Iterable[Mapping[str, Any] | Trial]
"""A CSV file, the folder of a logbook, a sweep's TOML file; or dicts with the columns of a record; or trials."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A ranking, best first."""

    rows: list[dict[str, Any]]
    """One layout each: its knobs, `sec_per_it` with `sec_lo` and `sec_hi` (90 %), `mem_gib`, `tflops`, `tie`, `worse_by`, …"""
    document: dict[str, Any]
    """All of it, as `seatrial plan --json` prints: `considered`, `rejected` by reason, and where nothing works `reason` and
    `nearest`."""
    trials: list[Trial]
    """The layouts of `rows`, for `explain`, `tune` or a runner."""

    def to_dicts(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


def plan(*, model: Named | Model | None = None, cluster: Named | Cluster | None = None, gbs: int | Sequence[int] | None = None,
         nodes: int | None = None, nodes_max: int | None = None, procs_per_node: int | None = None,
         machine: str | Path | None = None, sequence_parallel: bool | str = "auto", precision: str | None = None,
         engine: str | None = None, attention: str | None = None, headroom: float | str | None = None,
         rules: Sequence[str] = (), rampup: Sequence[int] | None = None, by: str = "time",
         top: int = 10, tokens: float | None = None, price: float | None = None, size: float | None = None,
         size_tolerance: float = 0.03, calibration: Calibration | str | Path | None = None, settings: Sequence[str] = (),
         **knobs: Any) -> Plan:
    """Forecast every layout and rank them: `seatrial plan`.

    `knobs`: tp=4, zero=(0, 1), recompute="full" and the others of `seatrial.columns.SEARCHED`; what is left out is searched.
    cp_kind, zero_group, gradients_group, weights_group, ep and etp are chosen for each layout, or given.
    `engine`: who trains, by name or as the path of a TOML file; megatron-deepspeed by default. `headroom`: what is to stay free
    of the memory, 4 (GiB) or "5%". `calibration`: what `calibrate` gave, its file, or rows to learn from. `settings`:
    "cluster.device.power_w=500".
    """
    from seatrial.plan import ask

    asked = ask.question(
        model=model, cluster=cluster, machine=machine, knobs={"gbs": gbs, **knobs}, nodes=nodes, nodes_max=nodes_max,
        procs_per_node=procs_per_node, sequence_parallel=sequence_parallel, precision=precision, engine=engine,
        attention=attention, headroom=headroom, rampup=rampup, rules=rules, settings=settings,
        shape_searched=size is not None)  # fmt: skip
    told = ask.ask(asked.request, rules=asked.rules, by=by, top=top, tokens=tokens, price=price, size=size,
                   size_tolerance=size_tolerance, fit=_learned(calibration, asked.request.cluster))
    rows = told.document["candidates"]
    return Plan(rows=rows, document=told.document, trials=[told.found.trial(i) for i in range(len(rows))])


def trial(source: str | Path | Mapping[str, Any] | Trial | None = None, *, model: Named | None = None,
          cluster: Named | None = None, gbs: int | None = None, nodes: int | None = None, procs_per_node: int | None = None,
          engine: str | None = None, attention: str | None = None, settings: Sequence[str] = (), **knobs: Any) -> Trial:
    """One trial: of a TOML file or its tables, of values, or of values put over a file.

    DP is by default what the other degrees leave of the cluster, the precision what one trains in there.
    """
    from seatrial.plan.ask import one_trial

    if isinstance(source, Trial):
        return source
    if isinstance(source, str | Path):
        from seatrial.sweep import file as one

        data, _ = one.tables(source)
    else:
        data = dict(source or {})
    given: dict[str, dict[str, Any]] = {"batch": {"gbs": gbs}, "topology": {}, "execution": {"attention": attention}}
    for name, value in (("model", model), ("cluster", cluster)):
        given[name] = {"base": value} if value is None or isinstance(value, str) else dict(value)
    given["cluster"] |= {"nodes": nodes, "procs_per_node": procs_per_node}
    for name, value in knobs.items():
        if name not in KNOBS:
            raise BadInput(f"{name}: a layout has no such knob; {nearest(name, KNOBS)}")
        given[BY_FIELD[name].table][name] = value
    return one_trial(data, given, settings, engine=engine, where=str(source) if isinstance(source, str | Path) else "trial")


def explain(source: str | Path | Mapping[str, Any] | Trial | None = None, *, top: int = 5,
            headroom: float | str | None = None, calibration: Calibration | str | Path | None = None,
            **values: Any) -> dict[str, Any]:
    """One layout taken apart, as `seatrial explain --json` prints it: `parts_s`, `memory_gib`, `limits`, `better`.

    The layout is what `trial` takes: explain("trial.toml"), explain(model="bloom-181b", cluster="jz-a100", gbs=2048, tp=4).
    """
    from seatrial.plan import ask
    from seatrial.plan import explain as taking_apart
    from seatrial.plan.odds import Headroom

    asked = trial(source, **values)
    if asked.cluster is None:
        raise BadInput("a cluster must be given to forecast on")
    told = taking_apart.explain(asked, _learned(calibration, asked.cluster), headroom=Headroom.read(headroom))
    return taking_apart.document(told, top) | ask.rests_on(asked.cluster, precision=asked.topology.precision,
                                                           processes=asked.world)


def forecast(rows: Rows, cluster: str | Cluster | None = None, *, machine: str | Path | None = None,
             engine: str | None = None, attention: str | None = None, headroom: float | str | None = None,
             calibration: Calibration | str | Path | None = None) -> list[dict[str, Any]]:
    """A row each, in order: what it said, with `forecast_sec`, `forecast_mem_gib`, …; `forecast_reject` says why not.

    `engine`, `attention`: of rows that do not say.
    """
    from seatrial.plan import calibrate as learning
    from seatrial.plan import forecast as forecasting
    from seatrial.plan.odds import Headroom

    assume = {name: value for name, value in (("engine", engine), ("attention", attention)) if value is not None}
    found, here = _rows(rows, cluster, machine, assume)
    fit = _learned(calibration, here) or learning.cold(here)
    return [{**row.cells, **line} for row, line in zip(found, forecasting.figures(found, fit, Headroom.read(headroom)))]


def calibrate(rows: Rows, cluster: str | Cluster | None = None, *, machine: str | Path | None = None) -> Calibration:
    """What measured rows (`sec_per_it`) teach about a cluster: `.describe()`, `.doubted`, `.save(path)`."""
    from seatrial.plan.calibrate import learn

    found, here = _rows(rows, cluster, machine)
    fit = learn([row for row in found if row.machine == here.name] or found, here)
    if not fit.rows:
        raise BadInput("no row to learn from: it takes sec_per_it, and rows that a topology fits")
    return fit


def load_calibration(path: str | Path, cluster: str | Cluster | None = None) -> Calibration:
    """What `Calibration.save` or `seatrial calibrate -o` wrote; for a cluster, once it is known to be the same."""
    from seatrial.plan.calibrate import Calibration

    return Calibration.load(path, None if cluster is None else _cluster(cluster))


def tune(trials: Iterable[Trial] | None = None, cluster: str | Cluster | None = None, *, most: int = 400,
         calibration: Calibration | str | Path | None = None, sure: float = 0.95, margin: float | None = None, seed: int = 0,
         by: str = "time", **asked: Any) -> Tuner:
    """A search to drive by `ask()` and `tell(trial, seconds)`: over these trials, or over what `plan` finds for `asked`."""
    from seatrial.plan.odds import Headroom
    from seatrial.tune import Tuner

    if trials is None:
        trials = plan(cluster=cluster, top=most, calibration=calibration, **{"engine": "seatrial", **asked}).trials
    candidates = list(trials)
    if not candidates:
        raise BadInput("there is no trial to choose from")
    here = candidates[0].cluster if cluster is None or asked else _cluster(cluster)
    if here is None:
        raise BadInput("a cluster must be given: the trials name none")
    fit = _learned(calibration, here)
    headroom = Headroom.read(asked.get("headroom"))
    return Tuner(candidates, here, known=() if fit is None else fit.used, sure=sure, margin=margin, seed=seed,
                 headroom=headroom, by=by)  # type: ignore[arg-type]


def logbook(path: str | Path) -> list[dict[str, Any]]:
    """The records of a logbook, or of any table or log that `seatrial import` reads, as rows with typed columns.

    `outcome` is its status, `mem_gib` the memory in GiB whatever the table printed.
    """
    from seatrial.report.read import read

    records, _ = read([Path(path)])
    names = ("record_id", *COLUMNS, "source_file", "source_line", "section")
    found = []
    for record in records:
        row = {name: None if (value := getattr(record, name)) == "" else value for name in names}
        status = record.outcome.status if record.outcome is not None else None
        found.append({**row, "outcome": status, "mem_gib": record.mem_gib})
    return found


def report(book: str | Path | Sequence[str | Path], out: str | Path, *, title: str | None = None,
           clusters: Sequence[str] = (), assume: Sequence[str] = (), calibrations: Sequence[str | Path] = (),
           tokens: float | None = None, price: float | None = None, lint: bool | None = None) -> Path:
    """Write a logbook (or tables and logs) as one page that opens anywhere: `seatrial report`."""
    from seatrial.files import save
    from seatrial.report import data, page
    from seatrial.report.forecasts import Clusters
    from seatrial.report.read import read, remarks

    sources = [Path(one) for one in ([book] if isinstance(book, str | Path) else book)]
    records, _ = read(sources)
    made = data.build(records, title=title or f"Trials of {sources[0].resolve().name}", lint=lint, tokens=tokens, price=price,
                      clusters=Clusters.read(clusters, assume, calibrations), remarks=remarks(sources),
                      book=next((path for path in sources if path.is_dir()), None))
    save(out, page.html(made))
    return Path(out)


def _cluster(given: str | Cluster) -> Cluster:
    from seatrial import presets

    return presets.cluster(given) if isinstance(given, str) else given


def _learned(given: Calibration | str | Path | None, cluster: Cluster) -> Calibration | None:
    from seatrial.plan.calibrate import from_file

    return from_file(given, cluster) if isinstance(given, str | Path) else given


def _rows(rows: Rows, cluster: str | Cluster | None, machine: str | Path | None,
          assume: Mapping[str, str] = MappingProxyType({})) -> tuple[Sequence[Row], Cluster]:
    from seatrial.plan.forecast import cluster_of, table_of
    from seatrial.plan.rows import of_trial, read_row

    if isinstance(rows, str | Path):
        table, here = table_of(rows, cluster, machine, assume)
        return table.rows, here
    given = list(rows)
    if cluster is None and machine is None:
        cluster = next((one.cluster for one in given if isinstance(one, Trial) and one.cluster is not None), None)
    if cluster is None and machine is None:
        raise BadInput("a cluster must be given to forecast on")
    here = cluster_of(cluster, machine)
    return [of_trial(one, here) if isinstance(one, Trial) else read_row(one, here, f"row {n}", assume)
            for n, one in enumerate(given)], here
