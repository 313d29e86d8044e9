"""Options that commands have in common, each list once: a class of them takes one place in a command's parameters.

    @app.command("plan")
    @spread
    def plan(model: str = …, space: Space = OPTIONS, as_json: bool = …) -> int:
        space.nodes, space.knobs                --nodes, --gbs, --dp, … stand in the help between --model and --json

The knobs of a layout are not listed here: those of `columns.py` are options, with the docstring of their field as the help.
"""
from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import typer

from seatrial.columns import BY_FIELD, KNOBS, SEARCHED
from seatrial.engines import ENGINES
from seatrial.launch.registry import LAUNCHERS

OPTIONS: Any = None
"""The default of a parameter that stands for many."""
CHOSEN = ("cp_kind", "zero_group", "stage_layers", "ep", "etp")
"""Knobs that `plan` and `tune` can be given, and choose for each layout where they are not …"""
ROUTING = ("moe_balance", "moe_dispatcher", "recompute_modules")
"""… and those that are the same of all."""
NUMBERS = tuple(name for name in SEARCHED if BY_FIELD[name].type is int)
RULE = f"Your own condition, as 'dp % 4 == 0'; of {', '.join(NUMBERS)}, nodes, world, microbatches, layers, heads, …"
MODEL_HELP = "A preset, a TOML file with a [model] table, a Hugging Face config.json or its folder, or BOOK:RUN-ID."
MODEL = typer.Option(None, "--model", help=MODEL_HELP, show_default=False)
CLUSTER = typer.Option(..., "--cluster", help="A preset, or a TOML file with a [cluster] table.")
MACHINE = typer.Option(None, "--machine", show_default=False,
                       help="What `seatrial probe` wrote, in place of the data sheet; alone it is the cluster.")  # fmt: skip
FORMAT = typer.Option(None, "--format", metavar="FILE.toml", show_default=False, help="Describes a log format of your own.")
CALIBRATE = typer.Option(None, "--calibrate", show_default=False,
                         help="Measured rows to learn from first (CSV, logbook), or what `calibrate -o` wrote.")  # fmt: skip
ENGINES_NAMED = ", ".join(name for name in ENGINES.builtin if name not in ("megatron", "command"))


def engine(default: str, what: str = "Who trains, so whose rules and facts hold") -> Any:
    return typer.Option(None, "--engine", metavar="NAME|FILE.toml", show_default=default,
                        help=f"{what}: {ENGINES_NAMED}, or a TOML file of one's own (base = NAME and what differs).")


ENGINE = engine("megatron-deepspeed")
ATTENTION = typer.Option(None, "--attention", show_default=False,
                         help=f"The kernel of attention: {', '.join(BY_FIELD['attention'].choices)}; by default the engine's.")
HEADROOM = typer.Option(None, "--headroom", metavar="GIB|SHARE%", show_default=False,
                        help="What is to stay free of a device's memory, as 4, 4GiB or 5%.")  # fmt: skip
SET = typer.Option([], "--set", help="Any value by its path: model.layers=70, cluster.device.power_w=500.", show_default=False)
JSON = typer.Option(False, "--json", help="Print one JSON document.")
NODES = typer.Option(None, "--nodes", help="Nodes to use; by default all of the cluster.", show_default=False)
PROCS = typer.Option(None, "--procs-per-node", help="Processes per node, where not the cluster's own.", show_default=False)
SEQUENCE = typer.Option("auto", "--sequence-parallel",
                        help="on, off, both to search it; auto: both on GPUs, if the engine has it.")
PRECISION = typer.Option(None, "--precision", help="By default bf16, else fp16, by device; fp32 on CPUs.", show_default=False)
LAUNCHER = typer.Option("local", "--launcher", help=f"{', '.join(LAUNCHERS.builtin)}, or one that is installed.")
CONFIG = typer.Option(None, "--config", show_default=False,
                      help="How jobs are started here; by default ~/.config/seatrial/config.toml.")  # fmt: skip
SET_OTHER = typer.Option([], "--set", help="Any other value, as model.layers=6; may be repeated.")


def knob(name: str, what: str) -> str | None:
    return typer.Option(None, f"--{name}", help=what, show_default=False)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Each:
    """Options made from fields: each is a parameter of its own, and together they are one dict of what was given."""

    options: dict[str, tuple[Any, Any]]
    """Field -> its type and its `typer.Option`."""


def _searched() -> Each:
    said = {name: BY_FIELD[name].help for name in SEARCHED}
    first = SEARCHED[0]
    said[first] = f"{said[first].rstrip('.')}; each of these is a value, several with commas, or searched when left out."
    said["cp"] = f"{said['cp'].rstrip('.')}; by default searched for long sequences, auto: for any."
    said |= {name: f"{BY_FIELD[name].help.partition(' By default')[0].rstrip('.')}; by default chosen for each layout."
             for name in CHOSEN}  # fmt: skip
    said |= {name: BY_FIELD[name].help for name in ROUTING}
    return Each({name: (str | None, knob(name.replace("_", "-"), what)) for name, what in said.items()})


def _layout() -> Each:
    made = {}
    for name in KNOBS:
        column, flag = BY_FIELD[name], f"--{name.replace('_', '-')}"
        names = [f"{flag}/--no-{flag[2:]}"] if column.type is bool else [flag]
        hint = column.type if column.type in (int, float, bool) else str
        made[name] = hint | None, typer.Option(None, *names, help=column.help, show_default=False)
    return Each(made)


SEARCHES: Any = _searched()
LAYOUTS: Any = _layout()


@dataclass(frozen=True, kw_only=True)
class Space:
    """Of `plan` and `tune`: where to lay a model out, and which layouts to look at."""

    nodes: int | None = NODES
    nodes_max: int | None = typer.Option(None, help="Also try fewer: from --nodes (or 1) up to this.", show_default=False)
    procs_per_node: int | None = PROCS
    knobs: dict[str, str | None] = SEARCHES
    """As they were given; None is searched."""
    sequence_parallel: str = SEQUENCE
    precision: str | None = PRECISION


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Of `run`, `doctor`, `explain` and `rehearse`: one trial, or what is put over a file's."""

    model: str | None = typer.Option(None, help=MODEL_HELP,
                                     show_default=False)
    knobs: dict[str, Any] = LAYOUTS

    def tables(self) -> dict[str, dict[str, Any]]:
        """As the tables of a trial's file; None stands for what was not said."""
        found: dict[str, dict[str, Any]] = {"model": {"base": self.model}}
        for name, value in self.knobs.items():
            found.setdefault(BY_FIELD[name].table, {})[name] = value
        return found


def spread(command: Callable[..., int]) -> Callable[..., int]:
    """The same command, with the options of each class above in the place of the parameter that has it."""
    hints = typing.get_type_hints(command)
    classes = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint) and isinstance(hint, type)}
    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(command).parameters.items():
        if name in classes:
            parameters += [own.replace(name=option, default=default, annotation=hint)
                           for option, hint, default in _options(classes[name])]
        else:
            parameters.append(own.replace(annotation=hints[name]))

    @functools.wraps(command)
    def spread_out(**given: Any) -> int:
        for name, of in classes.items():
            given[name] = of(**{field.name: {each: given.pop(each) for each in field.default.options}
                                if isinstance(field.default, Each) else given.pop(field.name)
                                for field in dataclasses.fields(of)})  # fmt: skip
        return command(**given)

    spread_out.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": int}
    spread_out.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    return spread_out


def _options(of: type) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of each parameter that a class stands for."""
    types = typing.get_type_hints(of)
    for field in dataclasses.fields(of):
        if isinstance(field.default, Each):
            yield from ((name, hint, option) for name, (hint, option) in field.default.options.items())
        else:
            yield field.name, types[field.name], field.default
