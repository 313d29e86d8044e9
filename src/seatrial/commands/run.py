"""`seatrial run`: one trial, on this machine or through a batch system. `seatrial train`: a real run from a TOML file.

    seatrial run --model tiny --dp 2 --tp 2 --pp 2 --mbs 1 --gbs 16 --steps 5 --json
    seatrial run --engine torchtitan --model tiny-llama --dp 2 --json
    seatrial run trial.toml --launcher slurm
    seatrial run trial.toml --set topology.tp=2
    seatrial train run.toml --out out --resume

With --json one object goes to stdout, also on failure; iteration lines and messages go to stderr. Exit status: 0 good, 2 what
was asked cannot run, 3 any other outcome.
"""
from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer

from seatrial.errors import EXIT_GOOD, BadInput
from seatrial.options import CONFIG, LAUNCHER, OPTIONS, SET_OTHER, Layout, engine, spread
from seatrial.outcomes import OUTCOMES

LONGEST_S = 10 * 365 * 86400.0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _lines(quiet: bool) -> Any:
    return None if quiet else _say


def report(found: dict[str, Any], *, as_json: bool) -> int:
    """The one object, or for a person a line and where the time went; and the exit status that goes with it."""
    status = found["status"]
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    elif status == "ok":
        last = f"loss {found['losses'][-1]:.4f}, " if found["losses"] else ""
        if found["sec_per_it"]:
            share = f" {found['mfu']:.1%} MFU," if found["mfu"] is not None else ""
            memory = f", {found['mem_gib']:.2f} GiB on the fullest rank" if found["mem_gib"] is not None else ""
            print(f"ok: {last}{found['sec_per_it']:.3f} s/it, {found['tflops']:.3f} TFLOPs per process ({found['formula']}),"
                  f"{share} {found['tokens_per_s_per_process']:,.0f} tokens/s per device{memory}")
        from seatrial.terminal import breakdown

        if found["breakdown"]:
            print(breakdown(found["breakdown"], "s"))
        if "attended_max" in found:
            print(f"  attention inside documents: ranks have {found['attended_min']:.2f} to {found['attended_max']:.2f} of the "
                  "mean's pairs of tokens")
        if "notes" in found:
            print(f"  {found['notes']}")
        print(f"  {found['events']}")
    else:
        _say(f"seatrial: {status}: {found['message']}")
    done = [i["step"] for i in found.get("iterations", [])]
    if status == "cancelled" and done and found["checkpoints"][-1:] >= done[-1:]:
        return EXIT_GOOD  # asked to stop, it saved what it had: --resume goes on
    return OUTCOMES[status].exit_code


def asked_for(file: Path | None, given: dict[str, dict[str, Any]], settings: list[str], which: str = "") -> tuple[Any, Any]:
    """The file's words (of a sweep, those of the trial that `which` names), the options over them, --set over both."""
    from dataclasses import replace

    from seatrial import trialfile
    from seatrial.recipe import moved
    from seatrial.sweep import file as one

    data, label = one.tables(file, which) if file is not None else ({}, "")
    if label and not which:
        _say(f"{file}: {label}; --trial names another")
    data = trialfile.over(moved(data, where=str(file)), given)
    batch = data.get("batch", {})
    stated = file is not None or bool(set(batch) - {"documents"}) or any(
        setting.startswith("batch") and not setting.startswith("batch.documents") for setting in settings)
    where = str(file or "seatrial run")
    trial, recipe = trialfile.build(data if stated else {**data, "batch": {**batch, "gbs": 1}}, settings, where=where)
    if not stated:
        t = trial.topology
        trial = replace(trial, batch=replace(trial.batch, gbs=t.dp * t.mbs * 2 * t.pp))
        _say(f"batch {trial.batch.gbs}: two micro-batches for each stage and replica; --gbs says another")
    return trial, recipe


def _warmup(recipe: Any, out: Path) -> int:
    """The usual one, but a training that goes on keeps what it began with, which was none before this was the default."""
    from seatrial.engine import runfile
    from seatrial.launch.files import RUN

    began = out / RUN
    usual: int = recipe.usual_warmup
    return runfile.read(began).recipe.warmup_steps or 0 if recipe.resume and began.exists() else usual


def register(app: typer.Typer) -> None:
    @app.command("run", help="Run one trial: real training steps, timed and measured.")
    @spread
    def run(
        file: Path = typer.Argument(None, help="A TOML file with the trial; options are put over it."),
        layout: Layout = OPTIONS,
        engine: str = engine("the file's, or seatrial", "Who trains"),
        steps: int = typer.Option(None, help="Training steps."),
        seed: int = typer.Option(None, help="Of weights and data."),
        device: str = typer.Option(None, help="auto, cpu or cuda."),
        settings: list[str] = SET_OTHER,
        timeout: float = typer.Option(600.0, help="Seconds after which the ranks are ended."),
        out: Path = typer.Option(None, "--out", "-o", help="Folder for run.json, events.jsonl, logs and traces."),
        launcher: str = LAUNCHER,
        config: Path = CONFIG,
        as_json: bool = typer.Option(False, "--json", help="Print one JSON object, also on failure."),
    ) -> int:
        from seatrial.launch.registry import opened
        from seatrial.launch.trial import run_now, summary_of_invalid
        from seatrial.plan.fits import would_fit

        try:
            given = layout.tables()
            given["recipe"] = {"steps": steps, "seed": seed}
            given["execution"] = {"device": device}
            if file is None and layout.model is None:
                raise BadInput("--model must be given, or a TOML file with a [model]")
            trial, recipe = asked_for(file, given, settings if engine is None else [f"engine={engine}", *settings])
            with opened(launcher, config) as chosen:
                # A batch system's nodes see this folder, and not this machine's /tmp.
                near = None if chosen.here else "."
                folder = out or Path(tempfile.mkdtemp(prefix="seatrial-run-", dir=near))
                found = run_now(trial, recipe, out=folder, timeout_s=timeout, on_line=_lines(as_json), launcher=chosen,
                                fits=would_fit)
        except BadInput as error:
            if not as_json:
                raise
            _say(f"seatrial: {error}")
            found = summary_of_invalid(error)
        return report(found, as_json=as_json)

    @app.command("train", help="Train from a TOML file: checkpoints, validation loss, resume.")
    def train(
        file: Path = typer.Argument(..., help="[model], [topology], [batch] and [recipe]."),
        out: Path = typer.Option(Path("out"), "--out", "-o",
                                 help="Folder for events, logs and (unless the file says where) checkpoints."),
        launcher: str = LAUNCHER,
        config: Path = CONFIG,
        resume: bool = typer.Option(False, "--resume", help="Go on from the newest checkpoint, on this topology."),
        settings: list[str] = typer.Option([], "--set", help="Any value, as topology.tp=2; may be repeated."),
        timeout: float = typer.Option(LONGEST_S, help="Seconds after which the ranks are ended."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON object, also on failure."),
    ) -> int:
        from dataclasses import replace

        from seatrial.launch.registry import opened
        from seatrial.launch.trial import run_now, summary_of_invalid
        from seatrial.plan.fits import would_fit

        try:
            trial, recipe = asked_for(file, {}, settings)
            # A real run always has somewhere to save: at its end, and when it is asked to stop.
            folder = recipe.checkpoint_dir or str(out / "checkpoints")
            recipe = replace(recipe, checkpoint_dir=folder, resume=resume or recipe.resume)
            if recipe.warmup_steps is None:
                recipe = replace(recipe, warmup_steps=_warmup(recipe, out))
            with opened(launcher, config) as chosen:
                found = run_now(trial, recipe, out=out, timeout_s=timeout, on_line=_lines(as_json), launcher=chosen,
                                fits=would_fit)
        except BadInput as error:
            if not as_json:
                raise
            _say(f"seatrial: {error}")
            found = summary_of_invalid(error)
        return report(found, as_json=as_json)
