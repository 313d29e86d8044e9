"""Metrics of a tracker, a row a step: W&B's exports, Lightning's metrics.csv, JSON lines, trainer_state.json, event files.

    is_series(headings)                               whether a CSV file has a column of steps and none that says what was run
    runs_of_rows(name, rows)                          Run: {"step": 10, "train/loss": 2.5} and its like
    runs_of_json(path, name)                          None where it holds records of ours

What a metric is, `presets/metrics.toml` knows or a table's heading would say. Rows of one step are joined. A panel of W&B has a
column a run: `name - metric`.
"""
from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial import presets
from seatrial.errors import BadInput
from seatrial.notes.read.logformat import Figure, Format, plain
from seatrial.notes.read.loglines import judge, put
from seatrial.notes.read.runs import Run, Step
from seatrial.plaindata import parse_json
from seatrial.record import Stated
from seatrial.tables.headings import MEASURES, SETTINGS, normal, read_heading

TRACKER = Format(name="tracker", line=())
PANEL = " - "
RUNS = ("run", "run_name", "run name", "run_id", "run id", "name", "experiment")
"""Columns that tell runs apart which stand in one file."""
_OTHERS = ("val", "eval", "validation", "test")
MOST_DEEP = 4
WHOLE = ("runtime_s", "steps_per_s")
"""What a Trainer writes with the figures of the whole run."""


@functools.cache
def _names() -> tuple[tuple[str, ...], dict[str, Figure]]:
    data = presets.read_toml(Path(presets.__file__).parent / "metrics.toml")
    return tuple(data["steps"]), {plain(name): Figure.of(text) for name, text in data["names"].items()}


@functools.lru_cache(maxsize=4096)
def figure_of(name: str) -> Figure | None:
    """What a metric is; None for what is no figure of a training step."""
    known = _names()[1]
    last = name.rpartition("/")[2]
    if normal(name).split(" ")[0] in _OTHERS or normal(last).split(" ")[0] in _OTHERS:
        return None
    if plain(name) in known or plain(name).removeprefix("train/") in known:
        found = known.get(plain(name)) or known[plain(name).removeprefix("train/")]
        return found if found.name else None
    column = read_heading(name) if read_heading(name).field in MEASURES else read_heading(last)
    if column.field not in MEASURES or (column.field == "mem_value" and not column.unit):
        return None
    return Figure(column.field, column.unit, (column.per,) if column.per else ())


def step_column(names: Iterable[str]) -> str | None:
    given = {plain(name): name for name in names}
    return next((given[name] for name in _names()[0] if name in given), None)


def is_series(headings: Sequence[str]) -> bool:
    if step_column(headings) is None or is_panel(headings):
        return is_panel(headings)
    fields = {read_heading(heading).field for heading in headings}
    return not fields & (SETTINGS - {"gbs", "gpus", "seq"}) and any(figure_of(heading) for heading in headings)


def is_panel(headings: Sequence[str]) -> bool:
    return len(headings) > 1 and headings[0] in ("Step", "trainer/global_step", "train/global_step", "_step") and any(
        PANEL in heading and figure_of(heading.rpartition(PANEL)[2]) for heading in headings[1:])  # fmt: skip


def runs_of_rows(name: str, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Run]:
    """(line, metrics) as runs: one, or in a panel one a name."""
    found: dict[str, Run] = {}
    of_step: dict[str, tuple[Step, bool]] = {}
    """Of each run the open step, and whether it is among its steps."""
    for line, row in rows:
        column = step_column(row)
        number = Figure("iteration").read(str(row.get(column)))[0] if column else None
        for who, metrics in _by_run(row).items():
            run = found.setdefault(who, Run(file=name, format=TRACKER))
            step, added = of_step.get(who, (None, False))
            if step is None or step.values.get("iteration") != number:
                step, added = Step(line=line, values={} if number is None else {"iteration": number}), False
            before = len(step.values)
            _take(run, step, metrics)
            if len(step.values) > before and not added:
                run.add(step)
                added = True
            of_step[who] = step, added
    for who, run in found.items():
        _percent([step for step in run.steps if "mfu" in step.values])
        for step in run.steps:
            judge(step)
        if who:
            run.settings["run_id"] = Stated(value=who, line=1)
        if run.steps or run.figures:
            yield run


def _by_run(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    if not any(PANEL in key for key in row):
        return {next((str(row[key]) for key in row if plain(key) in RUNS and row[key]), ""): dict(row)}
    found: dict[str, dict[str, Any]] = {}
    for key, value in row.items():
        who, dash, metric = key.rpartition(PANEL)
        if dash and not metric.endswith(("__MIN", "__MAX")) and value not in ("", None):
            found.setdefault(who, {})[metric] = value
    return found


def _take(run: Run, step: Step, metrics: Mapping[str, Any]) -> None:
    figures = {key: figure for key in metrics if (figure := figure_of(key)) is not None}
    whole = any(figure.name in WHOLE for figure in figures.values())
    for key, figure in figures.items():
        text = str(metrics[key]).strip()
        if text in ("", "None"):
            continue
        if figure.name in SETTINGS and figure.name != "gbs":
            value = Figure("gbs").read(text)[0]
            run.settings |= {figure.name: Stated(value=value, line=step.line)} if value else {}
        elif whole:
            if figure.name not in ("loss", "grad_norm"):
                put(run.figures, figure, text)
        else:
            put(step.values, Figure(figure.name, "share", figure.also) if figure == Figure("mfu") else figure, text)
            step.printed[key] = text


def _percent(steps: Sequence[Step]) -> None:
    """A share that is above 1 somewhere was in per cent all along."""
    if any(step.values["mfu"] > 1 and not any("%" in key for key in step.printed) for step in steps):
        for step in steps:
            step.values["mfu"] = float(f"{step.values['mfu'] / 100:.15g}")


# ---- JSON


def runs_of_json(path: Path, name: str) -> list[Run] | None:
    """The runs of a file of metrics; None where it is none."""
    rows = _rows(path)
    if rows is None:
        return None
    extra = rows[0][1].pop("__mbs__", None) if rows else None
    made = list(runs_of_rows(name, rows))
    for run in made:
        if isinstance(extra, int) and extra > 0:
            run.settings["mbs"] = Stated(value=extra, line=1)
    return made


def _rows(path: Path) -> list[tuple[int, dict[str, Any]]] | None:
    try:
        with path.open("rb") as file:
            first = file.readline(1 << 20)
        if path.suffix.lower() == ".jsonl" or _object(first):
            with path.open("rb") as file:
                lines = [(number, found) for number, line in enumerate(file, 1) if (found := _object(line)) is not None]
            return [(n, _flat(row)) for n, row in lines] if lines and _is_metrics(lines[0][1]) else None
        data = parse_json(path.read_bytes())
    except (ValueError, RecursionError, OSError):
        return None
    if isinstance(data, dict) and isinstance(data.get("log_history"), list):
        rows = [(1, _flat(row)) for row in data["log_history"] if isinstance(row, dict)]
        if not rows:
            raise BadInput(f"{path}: its log_history is empty: no step was logged")
        rows[0][1]["__mbs__"] = data.get("train_batch_size")
        return rows
    if isinstance(data, list) and data and all(isinstance(row, dict) for row in data) and _is_metrics(data[0]):
        return [(at, _flat(row)) for at, row in enumerate(data, 1)]
    return None


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = parse_json(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_metrics(row: Mapping[str, Any]) -> bool:
    return "state" not in row and "record_id" not in row and step_column(_flat(row)) is not None


def _flat(row: Mapping[str, Any], before: str = "", depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and depth < MOST_DEEP:
            found |= _flat(value, f"{before}{key}/", depth + 1)
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            found[f"{before}{key}"] = value
        elif value is None:
            found[f"{before}{key}"] = ""
    return found
