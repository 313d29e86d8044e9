"""`seatrial explain`: one layout taken apart.

    seatrial explain --model bloom-181b --cluster jz-a100 --gbs 2048 --tp 4 --pp 12 --mbs 2
    seatrial explain trial.toml --svg pipeline.svg
    seatrial explain sweep.toml --trial "dp=8 tp=4 mbs=2"
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seatrial.commands.plan import learned_from, say_gaps
from seatrial.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from seatrial.options import CALIBRATE, JSON, MACHINE, NODES, OPTIONS, PROCS, SET, Layout, spread

if TYPE_CHECKING:
    from seatrial.plan.explain import Explained
    from seatrial.spec import Trial


def register(app: typer.Typer) -> None:
    @app.command("explain", help="Take one layout apart: time, memory, its pipeline as a picture, what to change.")
    @spread
    def explain(
        file: Path | None = typer.Argument(None, help="A trial or sweep as TOML; options go over it.", show_default=False),
        which: str = typer.Option("", "--trial", help="Which of a sweep, as 'dp=8 tp=4'; by default its first.",
                                  show_default=False),
        layout: Layout = OPTIONS,
        cluster: str | None = typer.Option(None, help="A preset, or a TOML file with a [cluster] table.", show_default=False),
        machine: Path | None = MACHINE,
        nodes: int | None = NODES,
        procs_per_node: int | None = PROCS,
        engine: str | None = typer.Option(None, help="megatron (the default) or seatrial.", show_default=False),
        settings: list[str] = SET,
        calibrate: Path | None = CALIBRATE,
        svg: Path | None = typer.Option(None, help="Also write the pipeline as a picture.", show_default=False),
        top: int = typer.Option(5, min=0, help="How many changes to propose."),
        as_json: bool = JSON,
    ) -> int:
        from seatrial.plan import explain as taking_apart
        from seatrial.plan.ask import rests_on, with_machine

        if file is None:
            cluster, settings = with_machine(machine, cluster, settings) if machine is not None else (cluster, settings)
        elif machine is not None:
            settings = [f"cluster.machine={machine}", *settings]
        given = {**layout.tables(), "cluster": {"base": cluster, "nodes": nodes, "procs_per_node": procs_per_node}}
        trial = asked_trial(file, given, engine, settings, which)
        assert trial.cluster is not None
        told = taking_apart.explain(trial, learned_from(calibrate, trial.cluster))
        if svg is not None:
            if told.timeline is None:
                raise BadInput(f"--svg: PP {told.trial.topology.pp} has more stages than a picture can show")
            svg.write_text(taking_apart.svg(told.timeline, title=_title(told)), encoding="utf-8")
        found = taking_apart.document(told, top)
        found |= rests_on(trial.cluster, precision=trial.topology.precision, processes=trial.world)
        say_gaps(found)
        if as_json:
            print(json.dumps(found, allow_nan=False))
        else:
            _tell(told, top)
        return EXIT_GOOD if told.fits else EXIT_FINDINGS


def asked_trial(file: Path | None, given: dict[str, dict[str, Any]], engine: str | None, settings: list[str],
                which: str = "") -> Trial:
    """A trial from a file, from options, or from options over a file; of a sweep's file the one that `which` names."""
    from seatrial.plan.ask import one_trial
    from seatrial.sweep import one

    data, label = one.tables(file, which) if file is not None else ({}, "")
    if label and not which:
        print(f"{file}: {label}; --trial names another", file=sys.stderr)
    return one_trial(data, given, settings, engine=engine, where=str(file or "explain"))


def _title(told: Explained) -> str:
    t = told.trial.topology
    return (f"{t.schedule}: PP {t.pp}{f' x VP {t.vp}' if t.vp > 1 else ''}, {told.drawn} of {told.trial.microbatches} "
            f"micro-batches, {told.trial.model.name or 'model'}")


def _tell(told: Explained, top: int) -> None:
    from seatrial import terminal
    from seatrial.arith import TIE
    from seatrial.columns import DEGREES
    from seatrial.plan import explain
    from seatrial.schedule import picture

    t, cluster = told.trial.topology, told.trial.cluster
    assert cluster is not None
    degrees = " x ".join(f"{name.upper()} {getattr(t, name)}" for name in DEGREES)
    print(f"{told.trial.model.name or 'the model'} on {cluster.name}: {degrees} = {t.world} devices, "
          f"MBS {t.mbs}, batch {told.trial.batch.gbs} = {told.trial.microbatches} micro-batches, ZeRO {t.zero}, "
          f"recompute {t.recompute}, {t.precision}")
    print(f"\n{told.sec:.2f} s an iteration (90 %: {told.lo:.1f} to {told.hi:.1f})")
    print(terminal.breakdown(told.parts, "s", said=explain.WHY))
    print(f"\n{told.mem_gib:.1f} GiB of {told.limit_gib:.1f} on the fullest device")
    print(terminal.breakdown(told.memory, "GiB", whole=told.limit_gib))
    if told.timeline is not None:
        print(f"\n{_title(told)}; dots are the bubble")
        print(picture(told.timeline, width=min(terminal.width(), 160)))
    print("\nWhat limits it")
    print("\n".join(f"  {line}" for line in told.limits) or "  nothing stands out")
    for warning in told.warnings:
        print(f"  {warning.code}: {warning.message}")
    chosen = explain.better(told.changes)[:top]
    print("\nWhat to change")
    for change in chosen:
        print(f"  {change.what}: {change.gain:.1%} faster, {change.sec:.2f} s, {change.mem_gib:.1f} GiB")
    if not chosen:
        print("  no single change is forecast to gain more than 1 %")
    full = [change for change in told.changes if change.reject == "memory" and (change.gain or 0) > TIE]
    if full and top:
        print("  it would be faster, but does not fit: "
              + "; ".join(f"{c.what} ({c.mem_gib:.1f} GiB)" for c in sorted(full, key=lambda c: c.mem_gib or 0.0)[:top]))
