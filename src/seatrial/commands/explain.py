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
from seatrial.files import save
from seatrial.options import ATTENTION, CALIBRATE, ENGINE, HEADROOM, JSON, MACHINE, NODES, OPTIONS, PROCS, SET, Layout, spread

if TYPE_CHECKING:
    from seatrial.spec import Trial


def register(app: typer.Typer) -> None:
    @app.command("explain", help="Take one layout apart: time, memory, its pipeline as a picture, what to change.",
                 epilog="Exit status: 0 it may fit; 1 the odds that it fits are under 20 %; 2 bad input.")
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
        engine: str | None = ENGINE,
        attention: str | None = ATTENTION,
        headroom: str | None = HEADROOM,
        settings: list[str] = SET,
        calibrate: Path | None = CALIBRATE,
        svg: Path | None = typer.Option(None, help="Also write the pipeline as a picture.", show_default=False),
        top: int = typer.Option(5, min=0, help="How many changes to propose."),
        as_json: bool = JSON,
    ) -> int:
        from seatrial.plan import explain as taking_apart
        from seatrial.plan import show
        from seatrial.plan.ask import rests_on, with_machine
        from seatrial.plan.odds import Headroom

        if file is None:
            cluster, settings = with_machine(machine, cluster, settings) if machine is not None else (cluster, settings)
        elif machine is not None:
            settings = [f"cluster.machine={machine}", *settings]
        given = {**layout.tables(), "cluster": {"base": cluster, "nodes": nodes, "procs_per_node": procs_per_node},
                 "execution": {"attention": attention}}
        trial = asked_trial(file, given, engine, settings, which)
        assert trial.cluster is not None
        explained = taking_apart.explain(trial, learned_from(calibrate, trial.cluster),
                                         headroom=Headroom.read(headroom))
        if svg is not None:
            if explained.timeline is None:
                raise BadInput(f"--svg: PP {explained.trial.topology.pp} has more stages than a picture can show")
            save(svg, taking_apart.svg(explained.timeline, title=show.pipeline_title(explained)))
        found = taking_apart.document(explained, top)
        found |= rests_on(trial.cluster, precision=trial.topology.precision, processes=trial.world)
        say_gaps(found)
        if as_json:
            print(json.dumps(found, allow_nan=False))
        else:
            show.explained(explained, top)
        return EXIT_GOOD if explained.fits else EXIT_FINDINGS


def asked_trial(file: Path | None, given: dict[str, dict[str, Any]], engine: str | None, settings: list[str],
                which: str = "") -> Trial:
    """A trial from a file, from options, or from options over a file; of a sweep's file the one that `which` names."""
    from seatrial.plan.ask import one_trial
    from seatrial.sweep import file as one

    data, label = one.tables(file, which) if file is not None else ({}, "")
    if label and not which:
        print(f"{file}: {label}; --trial names another", file=sys.stderr)
    return one_trial(data, given, settings, engine=engine, where=str(file or "explain"))
