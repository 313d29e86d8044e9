"""A search that people made by hand, told again: what the planner would have said, and which trials nobody had to run.

    story = replay.tell("bloom-prequel")            one of the shipped logs, or a file with a cluster
    story["stages"][0]["top"], story["tune"]["trials"], story["saved"]["device_hours"]
    print(text(story)), print(markdown(story))      for a terminal or as markdown

The question is taken from the rows: the model with the most topologies on one number of nodes, by seconds per sample; where a
log varies the nodes instead, the model with the most topologies on any, by device-seconds per sample. The planner answers it
before any row, after the first five of the log, and after all. Then `tune` makes the search anew with the rows as its machine,
and sees none before it asks.
"""
from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from seatrial import presets, shipped, terminal
from seatrial.errors import BadInput
from seatrial.plan import calibrate
from seatrial.plan import rows as table
from seatrial.plan.configs import Configs
from seatrial.plan.held import Held
from seatrial.plan.odds import EVEN, UNLIKELY, expected
from seatrial.plan.rows import SLOW_ALLOCATOR, Row
from seatrial.record import Record
from seatrial.spec import Cluster, Trial
from seatrial.tune.candidates import knobs, label
from seatrial.tune.oracle import FAILED, Oracle, names, outcome_of
from seatrial.tune.posterior import By, row_of, unit
from seatrial.tune.show import digits
from seatrial.tune.tuner import Tuner

LOGS = ("bloom-prequel", "fugaku-1.3b", "fugaku-30b", "fugaku-sweep", "tcmalloc")
FIRST = 5
FEWEST = 4
"""Topologies that make a search."""
ITERATIONS = 2
"""What a row cost at the least: the A100 log reads the second iteration of a run."""
NEVER_BEST = 0.01
NEVER_RUN = ("not_run", "estimated", "planned")


@dataclass(frozen=True, kw_only=True)
class Question:
    """Rows that answer one question."""

    name: str
    cluster: Cluster
    by: By
    """`cost` where the rows have different numbers of nodes."""
    rows: tuple[Row, ...]
    """In the order of the log; also those that failed, were refused by a rule, or repeat another."""
    in_log: int
    unread: tuple[str, ...] = ()
    """What could not be read of the log."""

    @property
    def trials(self) -> list[Trial]:
        return Oracle(self.believed).trials

    @property
    def believed(self) -> list[Row]:
        return [row for row in self.rows if doubt(row) is None]

    @property
    def timed(self) -> list[Row]:
        return [row for row in self.believed if row.trial is not None and row.counts and row.sec_per_it is not None]


def tell(name: str, *, cluster: str | None = None, format: str | Path | None = None) -> dict[str, Any]:
    """`format`: of a log, as `import_file` has it."""
    question = read(name, cluster=cluster, format=format)
    oracle = Oracle(question.believed)
    trials = oracle.trials
    named = dict(zip((t.run_id() for t in trials), knobs(trials)))
    best = min(question.timed, key=lambda row: _each(row, question.by))
    tuned = _tune(question, oracle, named)
    model = _trial(best).model
    nodes = sorted({trial.cluster.nodes for trial in trials if trial.cluster})
    counts = (0, FIRST, None) if len(question.timed) > FIRST else (0, None)
    stages = [_stage(question, trials, named, best, learned) for learned in counts]
    verdicts = _verdicts(question, tuned["asked"], tuned.pop("chances"))
    dates = sorted({row.cells.get("date", "") for row in question.rows} - {""})
    return {
        "log": question.name, "cluster": question.cluster.name, "by": question.by, "nodes": nodes,
        "devices": sorted({trial.topology.world for trial in trials}),
        "model": {"layers": model.layers, "hidden": model.hidden, "heads": model.heads, "seq": model.seq},
        "rows_in_log": question.in_log, "rows": len(question.rows), "topologies": len(trials), "dates": dates,
        "doubted": [{"row": names(row)[1], "why": why} for row in question.rows if (why := doubt(row)) is not None],
        "best": _measured(best, named, question.by), "stages": stages, "tune": tuned, "rows_left_out": verdicts,
        "saved": _saved(question, verdicts), "unread": list(question.unread),
    }


# ---- the question

def read(name: str, *, cluster: str | None = None, format: str | Path | None = None) -> Question:
    path = shipped.example(f"{name}/rows.csv") if name in LOGS else Path(name)
    if not path.is_file():
        from seatrial.fields import nearest

        raise BadInput(f"{name}: neither a shipped log nor a file of measured rows; {nearest(name, LOGS)}")
    machine = presets.cluster(cluster or _machine(path, format))
    made = table.read(path, machine, format=format)
    found = made.rows
    for by in ("time", "cost"):
        group, count = _largest(found, by)
        if group is not None and count >= FEWEST:
            return Question(name=name if name in LOGS else path.name, cluster=machine, by=by, in_log=len(found),
                            rows=tuple(row for row in found if _belongs(row, group)), unread=made.unread)
    raise BadInput(f"{name}: there is no search to replay: that takes {FEWEST} topologies of one model in one environment, and "
                   f"the most is {count}; `seatrial forecast` and `seatrial calibrate` take these rows")


def _largest(rows: Sequence[Row], by: By) -> tuple[tuple[object, ...] | None, int]:
    """The group with the most topologies, and how many they are."""
    groups: dict[tuple[object, ...], set[str]] = {}
    for row in rows:
        if row.trial is not None and _tells(row):
            groups.setdefault(_group(row, by), set()).add(row.trial.run_id())
    most = max(groups, key=lambda key: len(groups[key]), default=None)
    return most, 0 if most is None else len(groups[most])


def _machine(path: Path, format: str | Path | None) -> str:
    named = table.machines(path, format=format)
    if len(named) != 1:
        said = f"its rows name {', '.join(named)}" if named else "its rows name no machine"
        raise BadInput(f"{path}: --cluster must be given: {said}")
    return named[0]


def _tells(row: Row) -> bool:
    return row.counts and row.sec_per_it is not None or outcome_of(row) in FAILED


def _group(row: Row, by: By) -> tuple[object, ...]:
    """Shape, nodes (0 for any), clock and environment; the allocator's factor comes with the second process and is neither."""
    trial = _trial(row)
    m = trial.model
    nodes = trial.cluster.nodes if trial.cluster and by == "time" else 0
    clock = trial.environment.clock_ghz
    return m.layers, m.hidden, m.heads, m.seq, nodes, clock, tuple(f for f in row.factors if f != SLOW_ALLOCATOR)


def _belongs(row: Row, group: tuple[object, ...]) -> bool:
    """A row that a rule refuses has no trial; its cells say what it was about."""
    nodes = group[4]
    if row.status in NEVER_RUN:
        return False
    if row.trial is not None:
        return _group(row, "time" if nodes else "cost") == group
    shape = tuple(str(row.cells.get(name, "")) for name in ("layers", "hidden", "heads", "seq"))
    return shape == tuple(map(str, group[:4])) and (not nodes or str(row.cells.get("nodes", "")) == str(nodes))


def doubt(row: Row) -> str | None:
    """Why a row is not believed, where its table has a column that says so."""
    return str(row.cells.get("doubted") or "") or None


def _trial(row: Row) -> Trial:
    assert row.trial is not None
    return row.trial


def _each(row: Row, by: By) -> float:
    """Seconds, or device-seconds, a sample."""
    assert row.sec_per_it is not None
    return row.sec_per_it / unit(_trial(row), by)


def _measured(row: Row, named: dict[str, dict[str, str]], by: By) -> dict[str, Any]:
    return {"topology": label(named[_trial(row).run_id()]), "row": names(row)[1], "sec_per_it": row.sec_per_it,
            "each_s": _each(row, by)}


# ---- what the planner says

def _stage(question: Question, trials: list[Trial], named: dict[str, dict[str, str]], best: Row,
           learned: int | None) -> dict[str, Any]:
    """After so many rows of the log; None: after all."""
    rows = question.timed
    taken = rows if learned is None else rows[:learned]
    fit = calibrate.learn(taken, question.cluster)
    session = fit.sessions[-1] if fit.sessions else ""
    around = {_trial(row).run_id(): row.factors for row in reversed(question.believed) if row.trial is not None}
    found = fit.forecast([replace(row_of(trial, session=session), factors=around[trial.run_id()]) for trial in trials])
    each = found.sec / np.array([unit(trial, question.by) for trial in trials])
    odds = _odds(trials, question.cluster, fit)
    order = [int(i) for i in np.argsort(expected(each, np.maximum(odds, 1e-9)), kind="stable") if odds[i] >= UNLIKELY]
    winner = next((n for n, i in enumerate(order, 1) if trials[i].run_id() == _trial(best).run_id()), None)
    merit: dict[str, float] = {}
    for row in rows:
        key = _trial(row).run_id()
        merit[key] = min(merit.get(key, np.inf), _each(row, question.by))
    pick = merit.get(trials[order[0]].run_id()) if order else None
    error, judged = _error(question, taken, learned)
    return {
        "learned_rows": len(taken), "each_from_others": learned is None,
        "forecast_error_percent": error, "forecast_rows": judged,
        "rank_of_best": winner, "tied_with_first": int(sum(each[i] <= each[order[0]] * 1.01 for i in order)) if order else 0,
        "pick_behind_percent": None if pick is None else 100 * (pick / _each(best, question.by) - 1),
        "out_of_memory": [label(named[trials[i].run_id()]) for i in np.flatnonzero(odds < EVEN)],
        "top": [{"topology": label(named[trials[i].run_id()]), "sec_per_it": float(found.sec[i]),
                 "sec_lo": float(found.sec_lo[i]), "sec_hi": float(found.sec_hi[i]), "each_s": float(each[i])}
                for i in order[:3]],
    }


def _error(question: Question, taken: Sequence[Row], learned: int | None) -> tuple[float, int]:
    """Mean error over rows that were not learned from; after all rows, of each row from all the others."""
    rows = question.timed
    if learned is None:
        errors = [_errors(calibrate.learn([r for r in rows if r is not row], question.cluster), [row])[0] for row in rows]
    else:
        rest = [row for row in rows if not any(row is other for other in taken)]
        errors = _errors(calibrate.learn(taken, question.cluster), rest)
    return float(100 * np.mean(errors)), len(errors)


def _errors(fit: calibrate.Calibration, rows: Sequence[Row]) -> list[float]:
    return [abs(sec / row.sec_per_it - 1) for sec, row in zip(fit.forecast(rows).sec.tolist(), rows) if row.sec_per_it]


def _odds(trials: list[Trial], cluster: Cluster, fit: calibrate.Calibration) -> np.ndarray:
    return Held.of(Configs.from_trials(trials), cluster, fit).odds


# ---- the search made anew

def _tune(question: Question, oracle: Oracle, named: dict[str, dict[str, str]]) -> dict[str, Any]:
    tuner, trials = Tuner(oracle.trials, question.cluster, by=question.by), []
    while (trial := tuner.ask()) is not None:
        before, record = tuner.expect(trial), oracle.measure(trial)
        tuner.tell(trial, record)
        standing = tuner.standing()
        trials.append({"topology": label(named[trial.run_id()]), "row": _row_name(record),
                       "status": record.outcome.status if record.outcome else "ok", "sec_per_it": record.sec_per_it,
                       "forecast_s": before.sec_per_it, "odds_of_better": standing.odds})
    standing = tuner.standing()
    chances = dict(zip((t.run_id() for t in tuner.trials), tuner.view.chances.tolist()))
    found = None if standing.best is None else label(named[standing.best.run_id()])
    return {"trials": trials, "asked": [one["row"] for one in trials], "best": found, "best_s": standing.best_s,
            "odds_of_better": standing.odds, "margin": standing.margin, "settled": standing.settled, "chances": chances}


def _row_name(record: Record) -> str:
    return f"{record.source_file}:{record.source_line}"


def _verdicts(question: Question, asked: Sequence[str], chances: dict[str, float]) -> list[dict[str, Any]]:
    """Each row of the log that tune did not ask for, and from when on nobody needed it."""
    found = []
    cold = calibrate.cold(question.cluster)
    seen: set[str] = set()
    for row in question.rows:
        name = names(row)[1]
        again = row.trial is not None and row.trial.run_id() in seen
        if row.trial is not None:
            seen.add(row.trial.run_id())
        if name in asked:
            continue
        if row.trial is None:
            why = ("rule", row.reject)
        elif row.cells.get("duplicate_of", ""):
            why = ("copy", f"says again what {row.cells['duplicate_of']} said")
        elif again:
            why = ("repeat", "its topology had been measured")
        elif _odds([row.trial], question.cluster, cold)[0] < EVEN:
            why = ("memory", "forecast to run out of memory")
        elif chances.get(row.trial.run_id(), 0.0) < NEVER_BEST:
            why = ("slower", "surely slower, by what the trials of tune had taught")
        else:
            why = ("behind", f"{100 * chances[row.trial.run_id()]:.0f} % chance to be the best, not enough for a trial")
        found.append({"row": name, "reason": why[0], "why": why[1], "seconds": _seconds(row), "device_hours": _hours(row)})
    return found


def _seconds(row: Row) -> float:
    """A copy was not run; how long a failure took, nobody wrote down."""
    return ITERATIONS * row.sec_per_it if row.sec_per_it is not None and row.counts else 0.0


def _hours(row: Row) -> float:
    return _seconds(row) * _trial(row).topology.world / 3600 if row.trial is not None else 0.0


def _saved(question: Question, verdicts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"rows": len(verdicts), "of_rows": len(question.rows),
            "seconds": sum(v["seconds"] for v in verdicts), "of_seconds": sum(map(_seconds, question.rows)),
            "device_hours": sum(v["device_hours"] for v in verdicts), "of_device_hours": sum(map(_hours, question.rows)),
            "iterations_a_row": ITERATIONS,
            "assumption": f"{ITERATIONS} iterations a row, a warm-up and one that counts; nothing for starting a job, for "
                          "queueing, or for runs that failed. So this is the least that was saved"}


# ---- the story

WIDTH = 118
WORDS = {"rule": "could never run, by the engine's rules", "memory": "forecast to run out of memory",
         "copy": "said again what an earlier row said", "repeat": "measured a topology again",
         "slower": "surely slower, by what tune's own trials taught", "behind": "too unlikely to be the best"}


def text(story: dict[str, Any]) -> str:
    lines = _lines(story, heading=lambda words: ["", words, "-" * len(words)], table=_aligned, item="  ")
    cells = min(WIDTH, terminal.width()) if sys.stdout.isatty() else WIDTH
    return "\n".join(part for line in lines for part in textwrap.wrap(line, cells, subsequent_indent=_indent(line)) or [""])


def _indent(line: str) -> str:
    """Under the words of an item, else where the line began."""
    return " " * 5 if line.startswith("  ") else ""


def markdown(story: dict[str, Any]) -> str:
    return "\n".join(_lines(story, heading=lambda words: ["", f"## {words}", ""], table=_piped, item="- "))


def _lines(story: dict[str, Any], *, heading: Any, table: Any, item: str) -> Iterable[str]:
    m, best, saved = story["model"], story["best"], story["saved"]
    when = f" between {story['dates'][0]} and {story['dates'][-1]}" if len(story["dates"]) > 1 else ""
    yield (f"{story['log']}: {m['layers']} layers x {m['hidden']}, {m['heads']} heads, on {_range(story['nodes'])} nodes of "
           f"{story['cluster']} ({_range(story['devices'])} processes).")
    least = "time" if story["by"] == "time" else "device-time"
    yield (f"{story['rows']} of the log's {story['rows_in_log']} rows{when} ask one question: which topology takes the least "
           f"{least} per sample? They try {story['topologies']} that can be started.")
    yield f"The best: {best['topology']}, {best['sec_per_it']:g} s/it, {_shown_each(best, story)} ({best['row']})."
    for one in story["doubted"]:
        yield f"Not believed: {one['row']}: {one['why']}."
    full: list[str] = []
    for stage in story["stages"]:
        yield from heading(_title(stage))
        yield from _shown_stage(stage, story, table)
        if stage["out_of_memory"] and stage["out_of_memory"] != full:
            yield f"Would run out of memory: {'; '.join(stage['out_of_memory'])}."
        full = stage["out_of_memory"]
    tune = story["tune"]
    yield from heading("The same search by `seatrial tune`, from nothing")
    rows = [("trial", "topology", "outcome", "s/it", "forecast", "odds of better left")]
    rows += [(str(n), one["topology"], one["status"], f"{one['sec_per_it']:g}" if one["sec_per_it"] else "",
              digits(one["forecast_s"]), _percent(one["odds_of_better"])) for n, one in enumerate(tune["trials"], 1)]
    yield from table(rows)
    yield ""
    yield (f"It ends by itself after {len(tune['trials'])} trials with {tune['best']} at {tune['best_s']:g} s/it. The odds "
           f"that a topology left is more than {100 * tune['margin']:g} % better are {_percent(tune['odds_of_better'])}.")
    yield from heading("Rows that nobody had to run")
    for reason, words in WORDS.items():
        mine = [v for v in story["rows_left_out"] if v["reason"] == reason]
        if mine:
            yield f"{item}{len(mine):2d} {words}: line {', '.join(v['row'].rpartition(':')[2] for v in mine)}"
    yield ""
    yield (f"Saved: {saved['rows']} of {saved['of_rows']} rows, {saved['seconds'] / 60:.0f} of {saved['of_seconds'] / 60:.0f} "
           f"minutes of running, {digits(saved['device_hours'], 3)} of {digits(saved['of_device_hours'], 3)} device-hours.")
    yield f"Assumed: {saved['assumption']}."


def _title(stage: dict[str, Any]) -> str:
    if stage["each_from_others"]:
        return f"After all {stage['learned_rows']} rows"
    return f"After the first {stage['learned_rows']} rows of the log" if stage["learned_rows"] else "Before any row"


def _range(values: Sequence[int]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _shown_each(one: dict[str, Any], story: dict[str, Any]) -> str:
    if story["by"] == "time":
        return f"{digits(1000 * one['each_s'])} ms per sample"
    return f"{digits(one['each_s'])} device-seconds per sample"


def _shown_stage(stage: dict[str, Any], story: dict[str, Any], table: Any) -> Iterable[str]:
    rows = [("", "topology", "s/it", "90 %", "that is")]
    rows += [(str(n), one["topology"], digits(one["sec_per_it"]), f"{digits(one['sec_lo'], 3)}-{digits(one['sec_hi'], 3)}",
              _shown_each(one, story)) for n, one in enumerate(stage["top"], 1)]
    yield from table(rows)
    yield ""
    behind = stage["pick_behind_percent"]
    pick = "was never measured" if behind is None else (
        "is the log's best" if behind < 1e-9 else f"was measured {behind:.1f} % behind the log's best")
    ties = stage["tied_with_first"] - 1
    tied = "" if ties < 1 else f", {ties} more within 1 % of it" if ties > 1 else ", one more within 1 % of it"
    stands = f"stands at number {stage['rank_of_best']}" if stage["rank_of_best"] else "would not fit"
    yield f"The first {pick}{tied}; the log's best {stands}."
    of = "each row from all the others" if stage["each_from_others"] else (
        f"the {stage['forecast_rows']} rows" + (" to come" if stage["learned_rows"] else ""))
    yield f"Forecasts of {of} are {stage['forecast_error_percent']:.1f} % off on average."


def _percent(share: float) -> str:
    return "under 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    headers, cells, said = terminal.fitting(list(rows[0]), [list(row) for row in rows[1:]], spare=("forecast", "trial"))
    words = [i for i, column in enumerate(zip(*cells)) if any(cell and not cell[0].isdigit() for cell in column)]
    yield from terminal.plain_table(headers, cells, left=words).splitlines()
    if said:
        yield said


def _piped(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    for n, row in enumerate(rows):
        yield "| " + " | ".join(row) + " |"
        if n == 0:
            yield "|" + " --- |" * len(row)
