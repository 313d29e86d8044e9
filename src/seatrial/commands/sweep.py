"""`seatrial sweep`: many trials from one file, each ending as a row of the logbook; resumed after anything.

    seatrial sweep examples/first-sweep.toml --logbook book
    seatrial sweep examples/first-sweep.toml --logbook book --resume         after a kill, a full disk, a reboot
    seatrial sweep examples/first-sweep.toml --launcher slurm --dry-run      what would be run, and how; nothing is

Exit status: 0 when every trial has its row and one of them ended well, 2 for a file that cannot be used, 3 when none ended well
or the sweep did not come to its end (budget spent, another controller, disk full, trials that were kept from running or ended
from outside: --resume runs those again).
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typer

from seatrial.errors import EXIT_GOOD, EXIT_INTERRUPTED, EXIT_OTHER_OUTCOME, BadInput
from seatrial.options import CONFIG, LAUNCHER, engine


def register(app: typer.Typer) -> None:
    @app.command("sweep", help="Run every trial of a sweep file; each ends as a row of the logbook.")
    def sweep(
        file: Path = typer.Argument(..., help="A TOML file: fixed values, [axes], rules, repeats."),
        logbook: Path = typer.Option(Path("logbook"), "--logbook", help="Folder of the logbook; made if it is not there."),
        resume: bool = typer.Option(False, "--resume", help="Go on with what the logbook does not have yet."),
        session: str = typer.Option(None, help="Name of this round of measurements; by default the sweep's own."),
        launcher: str = LAUNCHER,
        allocation: int = typer.Option(None, min=1, help="With slurm: one allocation of so many nodes for all trials."),
        config: Path = CONFIG,
        engine: str = engine("the file's, or seatrial"),
        settings: list[str] = typer.Option([], "--set", help="Any value of the file, as batch.gbs=16; may be repeated."),
        dry_run: bool = typer.Option(False, "--dry-run", help="Print the trials, their commands and forecasts; run nothing."),
        scripts: Path = typer.Option(None, "--scripts", metavar="DIR", show_default=False,
                                     help="With --dry-run and a batch system: each trial's script into this folder."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON object; progress goes to stderr."),
    ) -> int:
        from seatrial.launch.registry import opened
        from seatrial.logbook import Logbook
        from seatrial.report.read import say_unread
        from seatrial.sweep.controller import Controller
        from seatrial.sweep.file import load
        from seatrial.sweep.progress import listener_for, summary
        from seatrial.sweep.store import Store

        wanted = load(file, settings if engine is None else [f"engine={engine}", *settings])
        if dry_run:
            return _listed(wanted, launcher, config, logbook / "runs" / (session or wanted.name), scripts, as_json=as_json)
        if scripts is not None:
            raise BadInput("--scripts: goes with --dry-run; without it scripts lie in the run folders")
        with Logbook(logbook, create=True) as book:
            store = Store(book, session or wanted.name)
            say_unread(store.unread())
            if not resume and (there := _already(store, wanted)):
                raise BadInput(f"{logbook}: holds {there} of the {len(wanted.tasks)} trials of session {store.session!r} "
                               "already: --resume goes on with the rest, --session NAME measures all of them again")
            time_s = wanted.budget_s or sum(wanted.limits.time_s for task in wanted.tasks if not task.invalid)
            with opened(launcher, config, allocation=allocation, time_s=time_s) as chosen, \
                    listener_for(sys.stderr) as listener:
                controller = Controller(wanted, store, chosen, listener)
                try:
                    view = controller.run()
                except KeyboardInterrupt:
                    done = f"{len(controller.view.rows)} of {len(wanted.tasks)} trials are in the logbook"
                    print(f"seatrial: interrupted: {done}; --resume goes on", file=sys.stderr)
                    return EXIT_INTERRUPTED
            if as_json:
                print(json.dumps(_document(wanted, store, view, logbook), ensure_ascii=False))
            else:
                print(summary(view))
                if view.not_run:
                    print(f"{view.not_run} not run: the budget of {wanted.budget_s:g} s is spent; --resume with a larger one "
                          "(--set budget_s=…) goes on")
                print(f"seatrial table {logbook}    prints the rows")
            if view.pending:
                counts = ", ".join(f"{n} {status}" for status, n in sorted(view.pending.items()))
                print(f"seatrial: {counts}: kept from running, or ended from outside; --resume runs them again",
                      file=sys.stderr)
            elif view.rows and not view.good:
                print(f"seatrial: none of {len(view.rows)} trials ended well", file=sys.stderr)
        return EXIT_GOOD if (view.good or not view.rows) and not view.not_run and not view.pending else EXIT_OTHER_OUTCOME


def _already(store: Any, wanted: Any) -> int:
    keys = {store.record_id(task.key) for task in wanted.tasks}
    return sum(data["record_id"] in keys for data in store.records())


def _listed(wanted: Any, launcher: str, config: Path | None, folder: Path, scripts: Path | None, *, as_json: bool) -> int:
    """The trials; of the first of its repeats what is forecast of each and, of another's program, what is started."""
    import contextlib

    from seatrial.launch import registry
    from seatrial.sweep.dryrun import shown
    from seatrial.terminal import say

    kind = registry.LAUNCHERS.get(launcher)
    with contextlib.closing(registry.launcher(launcher, registry.load(config).get(launcher, kind.Settings()))) as chosen:
        trials = list(shown(wanted, chosen, folder))
    written = _written([one for one in trials if one.script], scripts)
    if as_json:
        print(json.dumps({"sweep": wanted.name, "trials": [one.row() for one in trials], "left_out": wanted.left_out,
                          "starts": [one.start() for one in trials if not one.task.invalid]}, ensure_ascii=False))
        return EXIT_GOOD
    for one in trials:
        again = f" repeat {one.task.repeat}" if one.task.repeat else ""
        say(f"{one.task.key}  {one.task.label}{again}" + (f"  invalid: {one.task.invalid}" if one.task.invalid else ""))
        for line in _details(one) if not one.task.repeat else ():
            say(f"    {line}", 8)
    for rule, count in wanted.left_out.items():
        print(f"{count} left out by {rule}")
    if not any(one.forecast for one in trials):
        say("No forecast: the file names no cluster; cluster = \"local\" is this machine, `seatrial presets` has others")
    if written:
        print(f"{written} scripts are in {scripts}")
    elif first := next((one for one in trials if one.script), None):
        import shlex
        import textwrap

        print(f"\nThe first is submitted so ({sum(bool(one.script) for one in trials)} in all; --scripts DIR writes them):\n"
              f"    {shlex.join(first.submit)}\n" + textwrap.indent(first.script, "    "), end="")
    return EXIT_GOOD


def _details(one: Any) -> list[str]:
    """A line of what is forecast, one of the command where it is not our own engine's, one of why it cannot start."""
    import shlex

    from seatrial.plan.odds import percent
    from seatrial.terminal import short

    lines = []
    if (seen := one.forecast) is not None:
        lines.append(f"forecast {short(seen.sec)} s/it (90 %: {short(seen.low_s)} to {short(seen.high_s)}), "
                     f"{seen.mem_gib:.1f} GiB, fits with {percent(seen.fit_odds)}")
    if one.argv and (one.task.trial.command is not None or one.task.trial.engine != "seatrial"):
        lines.append(f"$ {shlex.join(one.argv)}")
    return [*lines, *([f"would not start: {one.refused}"] if one.refused else [])]


def _written(trials: list[Any], folder: Path | None) -> int:
    if folder is None:
        return 0
    if not trials:
        raise BadInput("--scripts: no trial has a script: --launcher slurm and pjm submit scripts")
    folder.mkdir(parents=True, exist_ok=True)
    for one in trials:
        (folder / f"{one.task.key}.sh").write_text(one.script, encoding="utf-8")
    return len(trials)


def _document(wanted: Any, store: Any, view: Any, logbook: Path) -> dict[str, Any]:
    from seatrial.sweep.board import best_labels

    of = {store.record_id(task.key): task for task in wanted.tasks}
    rows = []
    for data in store.records():
        task = of.get(data["record_id"])
        outcome = data.get("outcome", {})
        rows.append({
            "record_id": data["record_id"], "run_id": data.get("run_id"), "knobs": task.knobs if task else {},
            "repeat": task.repeat if task else None, "state": data["state"], "status": outcome.get("status", "ok"),
            **{k: outcome[k] for k in ("message", "rank", "iteration", "phase", "rate") if k in outcome},
            **{k: data[k] for k in ("sec_per_it", "tflops", "formula", "samples_per_s", "mem_value", "mem_unit", "measurement",
                                    "estimated") if k in data}})
    return {"sweep": wanted.name, "session": store.session, "logbook": str(logbook), "trials": rows,
            "left_out": wanted.left_out, "not_run": view.not_run, "pending": view.pending,
            "best": best_labels(view.best) or None, "best_of": {model: row.label for model, row in view.best.items()}}
