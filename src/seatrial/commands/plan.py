"""`seatrial plan`: every layout of a model on a cluster, forecast and ranked.

    seatrial plan --model bloom-181b --cluster jz-a100 --nodes 48 --gbs 2048 --zero 1 --recompute full --top 5
    seatrial plan sweep.toml --top 5
    seatrial plan --model bloom-181b --cluster jz-a100 --size 181B --gbs 2048 --zero 1 --recompute full --tokens 300e9
"""
from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seatrial.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from seatrial.options import CALIBRATE, JSON, MACHINE, MODEL, OPTIONS, RULE, SET, Space, knob, spread

if TYPE_CHECKING:
    from seatrial.plan.calibrate import Fit
    from seatrial.spec import Batch, Cluster, Trial

EXITS = "Exit status: 0 a layout was found; 1 nothing works, with the reason and the nearest that does; 2 bad input."
BY = ("time", "tflops", "cost", "energy", "memory")
ENGINE = typer.Option("megatron", "--engine", help="Whose rules hold: megatron (equal stages, or layers + 2), or seatrial.")


def learned_from(rows: Path | None, cluster: Cluster) -> Fit | None:
    """What the user's rows teach, or nothing."""
    if rows is None:
        return None
    from seatrial.plan import calibrate

    return calibrate.fit_csv(rows, cluster)


def with_machine(machine: Path | None, cluster: str | None, settings: list[str]) -> tuple[str | None, list[str]]:
    """The cluster and the settings that a machine file makes of those given."""
    if machine is None:
        return cluster, settings
    if machine.suffix != ".json":
        from seatrial import presets

        shipped, asked = sorted(presets.machine_path("any").parent.glob("*.json")), str(machine)
        if asked not in [path.stem for path in shipped]:
            raise BadInput(f"--machine {asked}: expected the .json file that `seatrial probe` writes, or the name of one that "
                           f"comes with seatrial: {', '.join(path.stem for path in shipped)}")
        machine = presets.machine_path(asked)
    return (str(machine), settings) if cluster is None else (cluster, [f"cluster.machine={machine}", *settings])


def say_gaps(cluster: Cluster, *, precision: str, processes: int) -> dict[str, object]:
    """What the forecast rests on where a machine was measured, for the document; what was not measured is said."""
    from seatrial.plan import probed

    found = probed.told(cluster, precision=precision, processes=processes)
    if found is None:
        return {}
    # Of a file that comes with a preset nobody asked; the document says what it lacks.
    if found["not_measured"] and not found["shipped"]:
        print(f"{found['file']}: not measured, taken from the data sheet: {', '.join(found['not_measured'])}", file=sys.stderr)
    return {"machine": found}


def register(app: typer.Typer) -> None:
    @app.command("plan", help="Forecast every layout of a model on a cluster and rank them.", epilog=EXITS)
    @spread
    def plan(
        file: Path | None = typer.Argument(None, help="A trial or sweep as TOML: what it fixes is fixed, the rest is searched.",
                                           show_default=False),
        model: str | None = MODEL,
        cluster: str | None = typer.Option(None, help="A preset, or a TOML file with a [cluster] table.", show_default=False),
        machine: Path | None = MACHINE,
        space: Space = OPTIONS,
        engine: str = ENGINE,
        rule: list[str] = typer.Option([], "--rule", help=RULE, show_default=False),
        settings: list[str] = SET,
        by: str = typer.Option("time", "--by", help="time, tflops, cost, energy, memory."),
        top: int = typer.Option(10, "--top", min=1, max=1000, help="How many to show."),
        tokens: str | None = knob("tokens", "Tokens of the whole run, as 300e9 or 300B: adds days, device-hours, energy."),
        price: float | None = typer.Option(None, min=0, help="Price of a device-hour: adds money.", show_default=False),
        rampup: str | None = knob("rampup", "Batch ramp-up: start,increment,samples."),
        calibrate: Path | None = CALIBRATE,
        size: str | None = knob("size", "Search layers, hidden and heads too, around this size, as 181B."),
        size_tolerance: str = typer.Option("3%", help="How far from --size a shape may be."),
        emit: str | None = knob("emit", "megatron: write the pick as flags and as a Slurm script."),
        out: Path | None = typer.Option(None, help="Folder for --emit; by default they are printed.", show_default=False),
        preamble: Path | None = typer.Option(None, help="Your shell file for the Slurm script to source.", show_default=False),
        as_json: bool = JSON,
    ) -> int:
        from seatrial import expression
        from seatrial.fields import nearest
        from seatrial.plan import answer, request, sizes, tell
        from seatrial.plan.measured import Measured
        from seatrial.plan.nearest import ways
        from seatrial.plan.rows import read
        from seatrial.plan.search import RULE_NAMES, search

        if by not in BY:
            raise BadInput(f"--by {by!r}: {nearest(by, BY)}")
        if emit not in (None, "megatron"):
            raise BadInput(f"--emit {emit!r}: megatron is the one format")
        wanted = space.knobs
        if file is not None:
            from seatrial.sweep import one

            told = one.asked(file)
            settings = [*(f"topology.{name}={told.knobs[name]}" for name in ("precision", "sequence_parallel")
                          if name in told.knobs and (name != "precision" or space.precision is None)), *settings]
            wanted = {name: told.knobs.get(name) if value is None else value for name, value in wanted.items()}
            model, cluster, rampup = model or told.model, cluster or told.cluster, rampup or told.rampup
            engine, rule = told.engine or engine, [*told.rules, *rule]
        if model is None and size is None:
            raise BadInput("--model must be given (or --size, to look for a shape; or a file with a [model] table)")
        cluster, settings = with_machine(machine, cluster, settings)
        if cluster is None:
            raise BadInput("--cluster or --machine must be given, or a file with a [cluster] table")
        if price is not None and not math.isfinite(price):
            raise BadInput(f"--price {price}: expected a number")
        rules = [expression.parse(text, RULE_NAMES) for text in rule]
        count = None if tokens is None else request.number("tokens", tokens)
        if size is not None:
            settings = [*sizes.base_settings(model), *settings]
        asked = request.Request.read(
            model=model, cluster=cluster, nodes=space.nodes, nodes_max=space.nodes_max, procs_per_node=space.procs_per_node,
            fixed=wanted, sequence_parallel=space.sequence_parallel, precision=space.precision, engine=engine,
            rampup=rampup, settings=settings,
        )  # fmt: skip
        if by == "energy" and asked.cluster.device.power_w is None:
            raise BadInput(f"--by energy: the power of {asked.cluster.device.name} is not known; its device needs power_w")
        fit = learned_from(calibrate, asked.cluster)
        ramp = asked.batch if asked.batch.rampup_start is not None else None
        if size is not None:
            found = sizes.search_shapes(asked, request.number("size", size), request.share("size-tolerance", size_tolerance),
                                        rules=rules, ramp=ramp, by=by, fit=fit)  # type: ignore[arg-type]
        else:
            found = search(asked.space, rules=rules, ramp=ramp, precision=asked.precision, by=by,  # type: ignore[arg-type]
                           fit=fit)  # fmt: skip
        out_of_it = [] if len(found) or size is not None else list(
            ways(asked.space, rules=rules, ramp=ramp, precision=asked.precision, fit=fit))
        known = Measured() if calibrate is None else Measured.of(read(calibrate, asked.cluster).rows)
        document = answer.answer(found, asked, top=top, by=by, tokens=count, price=price,  # type: ignore[arg-type]
                                 fit=fit, ways=out_of_it, known=known)  # fmt: skip
        document |= say_gaps(asked.cluster, precision=asked.precision, processes=asked.cluster.world)
        if emit and len(found):
            document["emitted"] = _emitted(found.trial(0), asked.batch, preamble, out)
        if as_json:
            print(json.dumps(document, allow_nan=False))
            if not len(found):
                print(f"seatrial: {document['reason']}", file=sys.stderr)
        else:
            tell.tell(document, asked)
            for name, text in document.get("emitted", {}).items():
                print(f"wrote {name}" if out is not None else f"\n# ---- {name}\n{text}", end="\n" if out is not None else "")
        return EXIT_GOOD if len(found) else EXIT_FINDINGS


def _emitted(trial: Trial, batch: Batch, preamble: Path | None, out: Path | None) -> dict[str, str]:
    """File name -> its text; with a folder, path -> nothing, and the files are there."""
    from dataclasses import replace

    from seatrial.plan import emit

    ramped = replace(trial, batch=batch) if trial.batch.gbs == batch.gbs else trial
    files = emit.megatron(ramped, preamble=preamble)
    if out is None:
        return files
    return {str(path): "" for path in emit.write(files, out)}
