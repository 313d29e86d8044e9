"""Options that commands have in common, each list once: a class of them takes one place in a command's parameters.

    @app.command("plan")
    @spread
    def plan(model: str = …, space: Space = OPTIONS, as_json: bool = …) -> int:
        space.nodes, space.fixed()              --nodes, --gbs, --dp, … stand in the help between --model and --json
"""
from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer

from seatrial.launch.registry import LAUNCHERS

OPTIONS: Any = None
"""The default of a parameter that stands for many."""
RULE = "Your own condition, as 'dp % 4 == 0'; of dp, tp, pp, vp, mbs, gbs, zero, nodes, world, microbatches, layers, heads, …"
MODEL = typer.Option(None, "--model", help="A preset, or a TOML file with a [model] table.", show_default=False)
CLUSTER = typer.Option(..., "--cluster", help="A preset, or a TOML file with a [cluster] table.")
MACHINE = typer.Option(None, "--machine", show_default=False,
                       help="What `seatrial probe` wrote, in place of the data sheet; alone it is the cluster.")  # fmt: skip
CALIBRATE = typer.Option(None, "--calibrate", help="Measured rows (CSV) to learn from first.", show_default=False)
SET = typer.Option([], "--set", help="Any value by its path: model.layers=70, cluster.device.power_w=500.", show_default=False)
JSON = typer.Option(False, "--json", help="Print one JSON document.")
NODES = typer.Option(None, "--nodes", help="Nodes to use; by default all of the cluster.", show_default=False)
PROCS = typer.Option(None, "--procs-per-node", help="Processes a node, where not the cluster's own.", show_default=False)
SEQUENCE = typer.Option("off", "--sequence-parallel", help="on, off, or both to search it.")
PRECISION = typer.Option(None, "--precision", help="By default bf16, else fp16, by device; fp32 on CPUs.", show_default=False)
SPLIT = typer.Option(None, "--sequence-parallel/--no-sequence-parallel", help="Split the sequence over TP outside its regions.")
LAUNCHER = typer.Option("local", "--launcher", help=f"{', '.join(LAUNCHERS.builtin)}, or one that is installed.")
CONFIG = typer.Option(None, "--config", show_default=False,
                      help="How jobs are started here; by default ~/.config/seatrial/config.toml.")  # fmt: skip
SET_OTHER = typer.Option([], "--set", help="Any other value, as model.layers=6; may be repeated.")


def knob(name: str, what: str) -> str | None:
    return typer.Option(None, f"--{name}", help=what, show_default=False)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Space:
    """Of `plan` and `tune`: where to lay a model out, and which layouts to look at."""

    nodes: int | None = NODES
    nodes_max: int | None = typer.Option(None, help="Also try fewer: from --nodes (or 1) up to this.", show_default=False)
    procs_per_node: int | None = PROCS
    gbs: str | None = knob("gbs", "Global batch size, in sequences.")
    dp: str | None = knob("dp", "Data parallel; each knob is a value, several with commas, or searched when left out.")
    tp: str | None = knob("tp", "Tensor parallel.")
    pp: str | None = knob("pp", "Pipeline parallel.")
    vp: str | None = knob("vp", "Virtual stages a rank.")
    mbs: str | None = knob("mbs", "Micro-batch size.")
    zero: str | None = knob("zero", "ZeRO stage: 0, 1, 2, 3.")
    recompute: str | None = knob("recompute", "none, selective, full.")
    schedule: str | None = knob("schedule", "gpipe, 1f1b, interleaved, zb-h1.")
    sequence_parallel: str = SEQUENCE
    precision: str | None = PRECISION

    def fixed(self) -> dict[str, str | None]:
        """The knobs as they were given; None is searched."""
        return {"gbs": self.gbs, "dp": self.dp, "tp": self.tp, "pp": self.pp, "vp": self.vp, "mbs": self.mbs,
                "zero": self.zero, "recompute": self.recompute, "schedule": self.schedule}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Of `run` and `doctor`: one trial, or what is put over a file's."""

    model: str | None = typer.Option(None, help="A model by name (see `seatrial presets`).")
    dp: int | None = typer.Option(None, help="Data-parallel replicas.")
    tp: int | None = typer.Option(None, help="Tensor-parallel ranks.")
    pp: int | None = typer.Option(None, help="Pipeline stages.")
    vp: int | None = typer.Option(None, help="Virtual stages a rank (schedule interleaved).")
    mbs: int | None = typer.Option(None, help="Micro-batch size.")
    gbs: int | None = typer.Option(None, help="Global batch size.")
    zero: int | None = typer.Option(None, help="ZeRO stage, 0 to 3.")
    recompute: str | None = typer.Option(None, help="none, selective or full.")
    schedule: str | None = typer.Option(None, help="gpipe, 1f1b, interleaved or zb-h1.")

    def tables(self, **topology: Any) -> dict[str, dict[str, Any]]:
        """As the tables of a trial's file; None stands for what was not said."""
        return {"model": {"base": self.model},
                "topology": {"dp": self.dp, "tp": self.tp, "pp": self.pp, "vp": self.vp, "mbs": self.mbs, "zero": self.zero,
                             "recompute": self.recompute, "schedule": self.schedule, **topology},
                "batch": {"gbs": self.gbs}}


def spread(command: Callable[..., int]) -> Callable[..., int]:
    """The same command, with the options of each class above in the place of the parameter that has it."""
    hints = typing.get_type_hints(command)
    classes = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint) and isinstance(hint, type)}
    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(command).parameters.items():
        if name in classes:
            types = typing.get_type_hints(classes[name])
            parameters += [own.replace(name=field.name, default=field.default, annotation=types[field.name])
                           for field in dataclasses.fields(classes[name])]
        else:
            parameters.append(own.replace(annotation=hints[name]))

    @functools.wraps(command)
    def spread_out(**given: Any) -> int:
        for name, of in classes.items():
            given[name] = of(**{field.name: given.pop(field.name) for field in dataclasses.fields(of)})
        return command(**given)

    spread_out.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": int}
    spread_out.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    return spread_out
