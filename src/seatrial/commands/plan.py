"""`seatrial plan`: every layout of a model on a cluster, forecast and ranked.

    seatrial plan --model bloom-181b --cluster jz-a100 --nodes 48 --gbs 2048 --zero 1 --recompute full --top 5
    seatrial plan sweep.toml --top 5
    seatrial plan --around train.sh --cluster h100-sxm --top 5     what a Megatron script runs, and what would be faster
    seatrial plan --model bloom-181b --cluster jz-a100 --size 181B --gbs 2048 --zero 1 --recompute full --tokens 300e9
"""
from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seatrial import shipped
from seatrial.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from seatrial.options import (
    ATTENTION,
    CALIBRATE,
    CONFIG,
    ENGINE,
    HEADROOM,
    JSON,
    MACHINE,
    MODEL,
    OPTIONS,
    RULE,
    SET,
    Space,
    knob,
    spread,
)

if TYPE_CHECKING:
    from seatrial.plan.calibrate import Calibration
    from seatrial.plan.search import Found
    from seatrial.spec import Batch, Cluster, Trial

MOST_EMITTED = 1000
FORMATS = {"megatron": "", "megatron-lm": "megatron-core", "megatron-deepspeed": "megatron-deepspeed", "nemo": "megatron-core",
           **{name: name for name in ("megatron-core", "torchtitan", "deepspeed", "fsdp2", "accelerate")}}
"""What --emit writes -> the engine whose layouts are searched; `megatron` is whichever of two dialects can say the model."""
EXITS = "Exit status: 0 a layout was found; 1 nothing works, with the reason and the nearest that does; 2 bad input."


def learned_from(path: Path | None, cluster: Cluster) -> Calibration | None:
    """What the user's rows teach, or a file says that they taught; or nothing."""
    from seatrial.plan import calibrate

    return None if path is None else calibrate.from_file(path, cluster)


def say_gaps(document: dict[str, Any]) -> None:
    """What was not measured of the machine that a forecast rests on; of a file that comes with a preset nobody asked."""
    found = document.get("machine")
    if found is not None and found["not_measured"] and not found["shipped"]:
        print(f"{found['file']}: not measured, taken from the data sheet: {', '.join(found['not_measured'])}", file=sys.stderr)


def register(app: typer.Typer) -> None:
    @app.command("plan", help="Forecast every layout of a model on a cluster and rank them.", epilog=EXITS)
    @spread
    def plan(
        file: Path | None = typer.Argument(None, help="A trial or sweep as TOML: what it fixes is fixed, the rest is searched.",
                                           show_default=False),
        around: Path | None = typer.Option(
            None, "--around", metavar="FILE", show_default=False,
            help="What you run now: a trial, or the configuration of Megatron, torchtitan, DeepSpeed, NeMo or accelerate."),
        model: str | None = MODEL,
        cluster: str | None = typer.Option(None, help="A preset, or a TOML file with a [cluster] table.", show_default=False),
        machine: Path | None = MACHINE,
        space: Space = OPTIONS,
        engine: str | None = ENGINE,
        attention: str | None = ATTENTION,
        headroom: str | None = HEADROOM,
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
        emit: str | None = knob("emit", f"{', '.join(FORMATS)}, FILE.toml: "
                                        "write the pick as that engine is told, with its script."),
        out: Path | None = typer.Option(None, "--out", "-o", help="Folder for --emit; by default they are printed.",
                                        show_default=False),
        preamble: Path | None = typer.Option(None, help="Your shell file for the Slurm script to source.", show_default=False),
        config: Path | None = CONFIG,
        as_json: bool = JSON,
    ) -> int:
        from seatrial.plan import ask, show
        from seatrial.plan.around import place, question_around
        from seatrial.plan.request import number, share

        if emit is not None and emit not in FORMATS and not _writes(emit):
            raise BadInput(f"--emit {emit!r}: {', '.join(FORMATS)} are the formats, and so is an engine of yours: by its name, "
                           "or as FILE.toml with a [command]")
        started = None
        if around is not None:
            started = started_from(around, file, model, cluster, machine, space, engine, attention, settings)
        question = functools.partial(
            ask.question, file=file, model=model, cluster=cluster, machine=machine, nodes=space.nodes,
            nodes_max=space.nodes_max, procs_per_node=space.procs_per_node, sequence_parallel=space.sequence_parallel,
            precision=space.precision, attention=attention, headroom=headroom, rampup=rampup, rules=rule,
            settings=settings, shape_searched=size is not None)  # fmt: skip
        free = engine is None and file is None and started is None
        if free and emit is not None and emit != "megatron":
            # Megatron-core has more than the script that is run here, whose file says so.
            engine = str(shipped.example("engines/megatron-core.toml")) if emit == "megatron-core" else FORMATS.get(emit, emit)
        if started is not None:
            asked, rules = question_around(started, knobs=space.knobs, rules=rule, headroom=headroom, settings=settings,
                                           sequence_parallel=space.sequence_parallel)
        else:
            asked, rules = question(knobs=space.knobs, engine=engine)
        if free and emit == "megatron":
            from seatrial.plan.emit import writable

            engine, fixed = writable(asked.model)
            given = {name: value for name, value in space.knobs.items() if value is not None}
            asked, rules = question(knobs={**space.knobs, **fixed, **given}, engine=engine)
        told = ask.ask(asked, rules=rules, by=by, top=top, tokens=None if tokens is None else number("tokens", tokens),
                       price=price, size=None if size is None else number("size", size),
                       size_tolerance=share("size-tolerance", size_tolerance), fit=learned_from(calibrate, asked.cluster))
        document, found = told.document, told.found
        if started is not None:
            document["around"] = place(started, found, source=str(around), headroom=asked.space.headroom,
                                       fit=learned_from(calibrate, asked.cluster))
        say_gaps(document)
        if emit and len(found):
            document["emitted"] = _emitted(emit, found, asked.batch, preamble, config, out)
        if as_json:
            print(json.dumps(document, allow_nan=False))
            if not len(found):
                print(f"seatrial: {document['reason']}", file=sys.stderr)
        else:
            show.print_plan(document, asked)
            for name, text in document.get("emitted", {}).items():
                print(f"wrote {name}" if out is not None else f"\n# ---- {name}\n{text}", end="\n" if out is not None else "")
        return EXIT_GOOD if len(found) else EXIT_FINDINGS


def _adapter(name: str) -> Any:
    from seatrial.engines import named

    return named(FORMATS.get(name, name))


def _writes(name: str) -> bool:
    """Whether somebody's own engine of that name says what it is told."""
    try:
        return hasattr(_adapter(name), "emitted")
    except BadInput as error:
        if name.endswith(".toml"):
            raise BadInput(f"--emit {name}: {error}") from None
        return False


def started_from(around: Path, file: Path | None, model: str | None, cluster: str | None, machine: Path | None, space: Space,
                 engine: str | None, attention: str | None, settings: list[str]) -> Trial:
    """The layout that is run now, on the cluster that the options name."""
    from seatrial.plan.ask import one_trial, with_machine
    from seatrial.sweep import file as one

    if file is not None:
        raise BadInput(f"--around {around} and {file}: one of them says what the search begins with")
    chosen, with_it = with_machine(machine, cluster, settings) if machine is not None else (cluster, settings)
    tables, _ = one.tables(around)
    own = tables.get("topology")
    gbs, mbs = (int(text) if (text := space.knobs.get(name) or "").isdecimal() else None for name in ("gbs", "mbs"))
    if isinstance(own, dict) and "mbs" in own:
        mbs = None  # fixes what is searched, not what is run now
    given: dict[str, dict[str, Any]] = {
        "model": {"base": model}, "batch": {"gbs": gbs},
        "cluster": {"base": chosen, "nodes": space.nodes, "procs_per_node": space.procs_per_node},
        "topology": {"precision": space.precision, "mbs": mbs}, "execution": {"attention": attention}}  # fmt: skip
    return one_trial(tables, given, with_it, engine=engine, where=str(around))


def _emitted(to: str, found: Found, batch: Batch, preamble: Path | None, config: Path | None,
             out: Path | None) -> dict[str, str]:
    """Of the best that can be written: file name -> its text; with a folder, path -> nothing, and the files are there."""
    from dataclasses import replace

    from seatrial.launch.registry import load
    from seatrial.native import WRITERS
    from seatrial.plan import emit
    from seatrial.recipe import Recipe

    own: Any = load(config).get("slurm")
    refused: list[str] = []
    for i in range(min(len(found), MOST_EMITTED)):
        trial = found.trial(i)
        ramped = replace(trial, batch=batch) if trial.batch.gbs == batch.gbs else trial
        try:
            if to in ("megatron", "megatron-lm", "megatron-deepspeed"):
                files = emit.megatron(ramped, preamble=preamble, options=getattr(own, "options", None),
                                      shell=getattr(own, "preamble", ()), only=to)
            else:
                files = WRITERS[to](ramped) if to in WRITERS else _adapter(to).emitted(ramped, Recipe())
            break
        except BadInput as error:
            refused.append(str(error))
    else:
        raise BadInput(f"--emit {to}: none of the first {len(refused)} can be written; of the first: {refused[0]}")
    if refused:
        print(f"number {len(refused) + 1} is written, the best that {to}'s flags can say; of the first: {refused[0]}",
              file=sys.stderr)
    if out is None:
        return files
    return {str(path): "" for path in emit.write(files, out)}
