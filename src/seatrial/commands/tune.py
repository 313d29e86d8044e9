"""`seatrial tune`: the best topology with as few trials as it takes.

    seatrial tune --model tiny --cluster local --procs-per-node 4 --gbs 16 --logbook book --seconds 60
    seatrial tune theirs.toml --logbook book --trials 8         the trials of a sweep's file, also of any program's [command]
    seatrial tune --model bloom-181b --cluster jz-a100 --oracle examples/rows.csv       a table in the machine's place

Plan, measure what teaches most, learn, and stop when nothing left can beat the best by more than the noise, or when the budget
is spent. Killed and started again with --resume it goes on from the logbook.
"""
from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seatrial.commands.plan import learned_from
from seatrial.errors import EXIT_FINDINGS, EXIT_GOOD, EXIT_INTERRUPTED, EXIT_OTHER_OUTCOME, BadInput, Infeasible
from seatrial.options import (
    ATTENTION,
    CALIBRATE,
    CONFIG,
    HEADROOM,
    JSON,
    LAUNCHER,
    MODEL,
    OPTIONS,
    RULE,
    SET,
    Space,
    engine,
    spread,
)
from seatrial.report.read import say_unread

if TYPE_CHECKING:
    from seatrial.plan.rows import Row
    from seatrial.spec import Cluster, Trial
    from seatrial.sweep.board import Board
    from seatrial.tune import Oracle, Tuner
    from seatrial.tune.search import Budget, Machine, Measure, Spent, Step

EXITS = ("Exit status: 0 a best was measured; 1 no layout works, with the reason; 2 bad input; 3 no trial ran to its end; "
         "130 interrupted, --resume goes on.")
MOST = 400
"""Candidates that are weighed against each other; the planner's first so many."""
OWN = ("measure", "limits", "execution", "environment", "recipe", "training")
SEARCHED = ("model", "cluster", "topology", "batch", "engine")
"""Tables that --set may change: how trials are measured, and what is searched."""
NO_SEARCH = ("repeats", "order", "stop", "name", "notes")
"""Of a sweep's file: a search measures each trial once, in its own order, and ends by itself."""
ORACLE = "Rows to take the measurements from, in place of the machine: CSV, or the folder of a logbook."
LEAVE = "A row of the oracle that is not believed, as FILE:LINE; may be repeated."


def register(app: typer.Typer) -> None:
    @app.command("tune", help="Find the best topology with few measured trials: plan, measure, learn, stop.", epilog=EXITS)
    @spread
    def tune(
        file: Path | None = typer.Argument(None, show_default=False,
                                           help="A sweep as TOML: its trials are the candidates, its rules hold."),
        model: str | None = MODEL,
        cluster: str = typer.Option("local", "--cluster", help="A preset, or a TOML file with a [cluster] table."),
        space: Space = OPTIONS,
        engine: str = engine("seatrial"),
        attention: str | None = ATTENTION,
        headroom: str | None = HEADROOM,
        rule: list[str] = typer.Option([], "--rule", help=RULE, show_default=False),
        settings: list[str] = SET,
        calibrate: Path | None = CALIBRATE,
        trials: int | None = typer.Option(None, "--trials", min=1, help="Most trials to run.", show_default=False),
        seconds: float | None = typer.Option(None, "--seconds", help="Most time for all trials.", show_default=False),
        device_hours: float | None = typer.Option(None, "--device-hours", help="Most device-hours.", show_default=False),
        by: str = typer.Option("time", "--by", help="time (per sample), or cost (device-seconds per sample, for --nodes-max)."),
        sure: float = typer.Option(0.95, help="Stop when nothing left is better with this certainty."),
        margin: float | None = typer.Option(None, help="What is not faster by more than this share is no better; by default "
                                            "the noise: 0.01 on GPUs, 0.05 on CPUs.", show_default=False),
        oracle: Path | None = typer.Option(None, "--oracle", help=ORACLE, show_default=False),
        leave_out: list[str] = typer.Option([], "--leave-out", help=LEAVE, show_default=False),
        seed: int = typer.Option(0, help="Of the draws that the odds come from, and of which repeat an oracle gives."),
        logbook: Path = typer.Option(Path("logbook"), "--logbook", help="Folder of the logbook; made if it is not there."),
        resume: bool = typer.Option(False, "--resume", help="Go on with what the logbook holds of this search."),
        session: str | None = typer.Option(None, help="Name of this search; by default tune-MODEL.", show_default=False),
        launcher: str = LAUNCHER,
        config: Path | None = CONFIG,
        top: int = typer.Option(5, "--top", min=1, help="How many to show at the end."),
        as_json: bool = JSON,
    ) -> int:
        from seatrial import presets
        from seatrial.engines import engine_for
        from seatrial.launch.registry import opened
        from seatrial.logbook import Logbook
        from seatrial.plan import answer, ask
        from seatrial.plan.odds import Headroom
        from seatrial.plan.search import search
        from seatrial.recipe import Recipe
        from seatrial.sweep.store import Store
        from seatrial.tune import Tuner
        from seatrial.tune.search import Budget, Machine, Spent

        if by not in ("time", "cost"):
            raise BadInput(f"--by {by!r}: time or cost")
        budget = Budget(trials=trials, seconds=seconds, device_hours=device_hours)
        how: dict[str, Any] = {"sure": sure, "margin": margin, "seed": seed, "by": by, "headroom": Headroom.read(headroom)}
        wanted = space.knobs
        _have_effect(settings, file=file, oracle=oracle)
        if file is not None:
            if used := [name for name, value in {**wanted, "model": model, "rule": rule or None, "oracle": oracle,
                                                 "engine": engine, "attention": attention}.items() if value is not None]:
                raise BadInput(f"--{used[0]} with {file}: the file says what is searched; --set puts a value over it")
            return _of_file(file, settings, cluster, calibrate, how, budget, resume, logbook, session, launcher, config,
                            top=top, as_json=as_json)
        if oracle is not None:
            if used := [name for name, value in {**wanted, "rule": rule or None}.items() if value is not None]:
                raise BadInput(f"--{used[0]} with --oracle: candidates are the rows of the table; --leave-out takes one out")
            table = _oracle(oracle, model, cluster, space.nodes_max or space.nodes, settings, leave_out, seed)
            there = presets.cluster(cluster)
            tuner = Tuner(table.trials, there, known=_known(calibrate, there), **how)
            opening = f"{len(tuner.trials)} candidates from {oracle.name} on {there.name}"
            return _run(tuner, table.measure, budget, Spent(), Shown(opening=opening, top=top, as_json=as_json))
        if model is None:
            raise BadInput("--model must be given")
        settings = settings if attention is None else [*settings, f"execution.attention={attention}"]
        own = [text for text in settings if text.partition(".")[0] in OWN]
        asked, rules = ask.question(
            model=model, cluster=cluster, knobs=space.knobs, nodes=space.nodes, nodes_max=space.nodes_max,
            procs_per_node=space.procs_per_node, sequence_parallel=space.sequence_parallel, precision=space.precision,
            engine=engine or "seatrial", headroom=headroom, rules=rule,
            settings=[text for text in settings if text not in own or text.startswith("execution.")])  # fmt: skip
        found = search(asked.space, rules=ask.rules_of(rules), precision=asked.precision,
                       fit=learned_from(calibrate, asked.cluster))
        if not len(found):
            print(f"seatrial: {answer.reason(found)}", file=sys.stderr)
            return EXIT_FINDINGS
        around, measuring = _measuring(own)
        able = list(itertools.islice(_runnable(replace(found.trial(i), **around) for i in range(len(found))), MOST))
        if not able:
            raise BadInput(f"--engine {engine}: it can run none of the {len(found):,} layouts that were found")
        tuner = Tuner(able, asked.cluster, known=_known(calibrate, asked.cluster), **how)
        more = f", the planner's first {MOST} of {found.accepted:,} that can run" if found.accepted > MOST else ""
        opening = (f"{model} on {asked.cluster.name}, {asked.cluster.world} processes: {len(tuner.trials)} candidates of "
                   f"{found.considered:,} layouts{more}")
        with Logbook(logbook, create=True) as book, opened(launcher, config) as chosen:
            store = Store(book, session or f"tune-{asked.model.name or 'model'}")
            say_unread(store.unread())
            engine_for(tuner.trials[0]).check(tuner.trials[0], Recipe(), here=chosen.here)  # an engine that is not installed
            machine = Machine(store, chosen, tuner.trials, budget_s=seconds, **measuring)
            return _measured(tuner, machine, budget, resume,
                             Shown(opening=opening, top=top, as_json=as_json, logbook=logbook))


def _runnable(trials: Iterable[Trial]) -> Iterator[Trial]:
    """Those that the engine's own rules let run."""
    from seatrial.engines import engine_for

    for trial in trials:
        try:
            engine_for(trial).can_run(trial)
        except Infeasible:
            continue
        yield trial


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What is printed beside the trials."""

    opening: str
    top: int
    as_json: bool
    logbook: Path | None = None


def _known(rows: Path | None, cluster: Cluster) -> tuple[Row, ...]:
    fit = learned_from(rows, cluster)
    return () if fit is None else fit.used


def _oracle(path: Path, model: str | None, cluster: str, nodes_max: int | None, settings: list[str], leave_out: list[str],
            seed: int) -> Oracle:
    from seatrial import presets, trialfile
    from seatrial.tune import Oracle

    shape = None
    if model is not None:
        shape = trialfile.build({"model": {"base": model}, "batch": {"gbs": 1}}, settings, where="tune")[0].model
    return Oracle.read(path, presets.cluster(cluster), model=shape, nodes_max=nodes_max, leave_out=leave_out, seed=seed)


def _have_effect(settings: list[str], *, file: Path | None, oracle: Path | None) -> None:
    """A value that nothing looks at is a mistake, and is said before the first trial."""
    for text in settings:
        table = text.partition("=")[0].partition(".")[0].strip()
        if oracle is not None and table != "model":
            raise BadInput(f"--set {text}: has no effect with --oracle, which measures nothing: of a table of rows only "
                           "model.… is asked, to choose those of a model")
        if table in NO_SEARCH:
            raise BadInput(f"--set {text}: has no effect on a search, which measures each trial once and ends by itself; "
                           f"{table} is for `seatrial sweep`")
        if file is None and table not in (*OWN, *SEARCHED):
            from seatrial.fields import nearest

            raise BadInput(f"--set {text}: has no effect here; {nearest(table, (*OWN, *SEARCHED))}; a sweep's file may say "
                           "more")


def _of_file(file: Path, settings: list[str], cluster: str, calibrate: Path | None, how: dict[str, Any], budget: Budget,
             resume: bool, logbook: Path, session: str | None, launcher: str, config: Path | None, *, top: int,
             as_json: bool) -> int:
    """The trials of a sweep's file through the sweep's own controller, chosen one by one."""
    from seatrial import presets
    from seatrial.columns import BY_FIELD
    from seatrial.fields import canonical, plain
    from seatrial.launch.registry import opened
    from seatrial.logbook import Logbook
    from seatrial.sweep.file import load
    from seatrial.sweep.store import Store
    from seatrial.tune import Tuner
    from seatrial.tune.search import Machine

    sweep = load(file, settings)
    tasks = [task for task in sweep.tasks if task.repeat == 0 and task.trial is not None and not task.invalid]
    trials = [task.trial for task in tasks if task.trial is not None]
    if not tasks:
        why = f": {sweep.tasks[0].invalid}" if sweep.tasks else ", its rules leave none"
        raise BadInput(f"{file}: none of its {len(sweep.tasks)} trials can run{why}")
    if any(task.key != trial.run_id() for task, trial in zip(tasks, trials)):
        raise BadInput(f"{file}: an axis of [recipe] tells trials apart that are one layout: a search has nothing to learn "
                       "there; `seatrial sweep` runs them")
    clusters = {canonical(plain(trial.cluster)): trial.cluster for trial in trials}
    if len(clusters) > 1:
        raise BadInput(f"{file}: its trials are on {len(clusters)} clusters: a search is on one; --set cluster.base=NAME")
    there = trials[0].cluster or presets.cluster(cluster, procs_per_node=max(trial.world for trial in trials))
    named = [{BY_FIELD[name].name if name in BY_FIELD else name: text for name, text in task.knobs.items()} for task in tasks]
    tuner = Tuner(trials, there, known=_known(calibrate, there), named=named, **how)
    if budget.seconds is None and sweep.budget_s is not None:
        budget = replace(budget, seconds=sweep.budget_s)
    opening = f"{len(tasks)} candidates of {file.name} on {there.name}"
    if left := sum(bool(task.invalid) for task in sweep.tasks if task.repeat == 0) + sum(sweep.left_out.values()):
        opening += f", {left} left out by its rules and the models'"
    if sweep.repeats > 1 or sweep.stop.factor is not None:
        print(f"seatrial: {file}: repeats and [stop] do not count in a search: each trial is measured once", file=sys.stderr)
    with Logbook(logbook, create=True) as book, opened(launcher, config) as chosen:
        store = Store(book, session or f"tune-{sweep.name}")
        say_unread(store.unread())
        machine = Machine(store, chosen, tuner.trials, budget_s=budget.seconds, measure=sweep.measure, limits=sweep.limits,
                          tasks=tasks)
        return _measured(tuner, machine, budget, resume, Shown(opening=opening, top=top, as_json=as_json, logbook=logbook))


def _measuring(settings: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`--set measure.seconds=5`, `limits.time_s`, `execution.threads`: tables of a sweep file that nothing is searched in."""
    from seatrial import fields
    from seatrial.recipe import Recipe, moved_path
    from seatrial.spec import Environment, Execution
    from seatrial.sweep.file import Limits, Measure

    data: dict[str, Any] = {}
    for text in settings:
        fields.assign(data, moved_path(text))
    execution = fields.build(Execution, data.get("execution", {}), where="execution")
    recipe = fields.build(Recipe, data.get("recipe", {}), where="recipe")
    recipe.check(execution)
    around = {"execution": execution,
              "environment": fields.build(Environment, data.get("environment", {}), where="environment")}
    return around, {"measure": fields.build(Measure, data.get("measure", {}), where="measure"),
                       "limits": fields.build(Limits, data.get("limits", {}), where="limits"), "recipe": recipe}


def _measured(tuner: Tuner, machine: Machine, budget: Budget, resume: bool, shown: Shown) -> int:
    from seatrial.tune.search import Spent

    spent = Spent()
    for trial, record in machine.earlier():
        tuner.tell(trial, record)
        spent.add(trial, record)
    if spent.trials and not resume:
        raise BadInput(f"{shown.logbook}: holds {spent.trials} trials of session {machine.store.session!r} already: "
                       "--resume goes on with them, --session NAME starts anew")
    if spent.trials:
        shown = replace(shown, opening=f"{shown.opening}; {spent.trials} trials are in the logbook already")
    try:
        return _run(tuner, machine.measure, budget, spent, shown, board=machine.board)
    except KeyboardInterrupt:
        print(f"seatrial: interrupted: {spent.trials} trials are in the logbook; --resume goes on", file=sys.stderr)
        return EXIT_INTERRUPTED


def _run(tuner: Tuner, measure: Measure, budget: Budget, spent: Spent, shown: Shown, *, board: Board | None = None) -> int:
    from seatrial.terminal import folded
    from seatrial.tune.candidates import label
    from seatrial.tune.search import search
    from seatrial.tune.show import closing, document, line, names, relearned, standing_line, trial_entry

    named = names(tuner)
    width = max(len(label(own)) for own in named.values())
    out = sys.stderr if shown.as_json else sys.stdout
    print(shown.opening, file=out, flush=True)
    entries: list[dict[str, Any]] = []
    told: list[float] = []

    def on_trial(one: Step) -> None:
        own = named[one.trial.run_id()]
        entries.append(trial_entry(one, own))
        print(folded(line(one, label(own), width), 16), file=out, flush=True)
        if one.standing.relearned is not None and not told:
            told.append(one.standing.relearned)
            print(folded(relearned(one.standing.relearned), 5), file=out, flush=True)
        if board is not None:
            board.note = standing_line(one.standing, named, tuner.by)

    ended = search(tuner, measure, budget, on_trial, spent=spent)
    if board is not None:
        board.end()
    found = document(tuner, ended, entries, spent, top=shown.top)
    if shown.as_json:
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
    else:
        print("\n".join(folded(line, 4) for line in closing(found).split("\n")))
        if shown.logbook is not None:
            print(f"\nseatrial table {shown.logbook}    prints the rows")
    return EXIT_GOOD if found["best"] is not None else EXIT_OTHER_OUTCOME
