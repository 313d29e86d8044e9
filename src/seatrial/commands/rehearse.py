"""`seatrial rehearse`: one rank of any topology on this one device.

    seatrial rehearse --model gpt2-124m --cluster jz-a100 --dp 4 --tp 2 --pp 4 --gbs 64
    seatrial rehearse trial.toml --stage last --json
    seatrial rehearse --engine torchtitan --model llama3-8b --cluster jz-a100 --dp 64 --zero 3 --memory-only
    seatrial rehearse --model bloom-181b --cluster jz-a100 --dp 4 --tp 8 --pp 12 --gbs 2048 --memory-only

Exit status: 0 good, 2 what was asked cannot run, 3 the device ran out of memory.
"""
from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seatrial.commands.run import asked_for
from seatrial.errors import EXIT_GOOD, BadInput
from seatrial.options import JSON, OPTIONS, SET_OTHER, Layout, engine, spread

if TYPE_CHECKING:
    from seatrial.recipe import Recipe
    from seatrial.spec import Trial


def register(app: typer.Typer) -> None:
    @app.command("rehearse", help="Run one rank of any topology on this device: its memory, its actions, the iteration.")
    @spread
    def rehearse(
        file: Path = typer.Argument(None, help="A trial or sweep as TOML; options are put over it.", show_default=False),
        which: str = typer.Option("", "--trial", help="Which of a sweep, as 'dp=8 tp=4'; by default its first.",
                                  show_default=False),
        layout: Layout = OPTIONS,
        engine: str = engine("the file's, or seatrial", "Whose rank"),
        cluster: str = typer.Option(None, help="Whose network is charged, whose forecast stands beside.", show_default=False),
        machine: Path = typer.Option(None, help="machine.json of `seatrial probe`, in place of the data sheet.",
                                     show_default=False),
        rank: int = typer.Option(None, help="Which process of the layout; by default the first.", show_default=False),
        stage: str = typer.Option(None, help="first, middle or last pipeline stage, in place of --rank.", show_default=False),
        all_stages: bool = typer.Option(False, "--all-stages", help="Each distinct rank once, and the pipeline from them."),
        memory_only: bool = typer.Option(False, "--memory-only", help="Bytes alone, without allocating them."),
        repeats: int = typer.Option(3, help="How often each action is timed."),
        moe_load: str = typer.Option("1", help="Tokens that this rank's experts receive: 1.5 is half as many again as at "
                                               "balance; or a file with the tokens of each expert, a line a layer."),
        device: str = typer.Option(None, help="auto, cpu or cuda.", show_default=False),
        settings: list[str] = SET_OTHER,
        logbook: Path = typer.Option(None, help="Keep it in this logbook, marked as rehearsed.", show_default=False),
        as_json: bool = JSON,
    ) -> int:
        if file is None and layout.model is None:
            raise BadInput("--model must be given, or a TOML file with a [model]")
        if sum((rank is not None, stage is not None, all_stages)) > 1:
            raise BadInput("--rank, --stage and --all-stages each say which ranks: give one")
        measured = None if machine is None else str(machine)
        given = layout.tables()
        # A measured machine is a cluster of its own, or takes the place of another's data sheet.
        given["cluster"] = {"base": cluster, "machine": measured} if cluster else {"base": measured}
        given["execution"] = {"device": device}
        trial, recipe = _asked(file, given, settings if engine is None else [f"engine={engine}", *settings], which)
        from seatrial.logbook import Logbook
        from seatrial.rehearse import asked, load, run, show

        process = rank or 0 if stage is None else asked.stage_rank(trial, stage)
        options = asked.RehearsalOptions(rank=process, all_stages=all_stages, memory_only=memory_only, repeats=repeats,
                                         load=load.Load.of(moe_load))
        began = time.perf_counter()
        found = run.rehearse(trial, recipe, options, cluster=trial.cluster, say=_say)
        said = show.document(found, recipe, seconds=time.perf_counter() - began)
        if logbook is not None:
            with Logbook(logbook, create=True) as book:
                said["record_id"] = book.append(show.record(found, recipe).to_dict())
        if as_json:
            print(json.dumps(said, allow_nan=False))
        else:
            show.print_rehearsal(said)
        return EXIT_GOOD


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _asked(file: Path | None, given: dict[str, dict[str, Any]], settings: list[str], which: str) -> tuple[Trial, Recipe]:
    """The trial on as many nodes as it takes, in the precision that one trains in there."""
    from dataclasses import replace

    from seatrial.plan.request import usual_precision

    trial, recipe = asked_for(file, given, settings, which)
    cluster = trial.cluster
    if cluster is None:
        return trial, recipe
    said = given["topology"]["precision"] is not None or any(s.startswith("topology.precision") for s in settings)
    if not said and file is None:
        precision = usual_precision(cluster.device)
        trial = replace(trial, topology=replace(trial.topology, precision=precision))  # type: ignore[arg-type]
    nodes = -(-trial.topology.world // cluster.procs_per_node)
    return replace(trial, cluster=cluster.with_nodes(nodes)), recipe
