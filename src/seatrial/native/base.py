"""What a reader of somebody's configuration gives: the tables of a trial, and what it did not understand.

    Native(format="torchtitan TOML", tables={"model": …, "topology": …, "batch": …, "engine": "torchtitan"}, unread=("…",))
    native.said()               what of the file is in no table, in lines
    shaped(norm="rmsnorm", positions="rope", mlp="swiglu", …)       a family's choices by its name: {"family": "llama"}
"""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.errors import BadInput
from seatrial.spec import FAMILIES, divisors_near

MOST_STAGES = 10_000
SHOWN = 20
"""Keys named of a file that gives all of them, with their defaults."""


@dataclass(frozen=True, kw_only=True)
class Native:
    format: str
    """What the file is: torchtitan TOML."""
    tables: dict[str, Any]
    """As a trial's file has them; without what the configuration does not say."""
    unread: tuple[str, ...] = ()
    """Keys that were not understood."""
    notes: tuple[str, ...] = ()
    """What was taken for something else, or is missing."""
    brief: bool = False
    """Whether it is a print-out of everything, of which a few unread keys are named and the rest counted."""

    def said(self) -> Iterator[str]:
        yield from self.notes
        if self.unread:
            named = self.unread[:SHOWN] if self.brief else self.unread
            more = f" and {len(self.unread) - len(named)} more" if len(named) < len(self.unread) else ""
            yield f"not understood, and not in the forecast: {', '.join(named)}{more}"


def beside(folder: Path, named: str) -> Path | None:
    """The file that a command names: as it says from its own folder, or beside it."""
    return next((place for place in (folder / named, folder / Path(named).name) if os.path.isfile(place)), None)


def near(folder: Path, named: str, where: str) -> Path:
    """The same; BadInput where it is not there."""
    if (found := beside(folder, named)) is None:
        raise BadInput(f"{where}: it names {named[:200]}, which is not beside it")
    return found


def enough(where: str, layers: int, stages: int) -> None:
    if stages > min(layers + 2, MOST_STAGES):
        raise BadInput(f"{where}: {stages} pipeline stages for {layers} layers")


def data_parallel(where: str, world: int | None, others: int, *, said: int | None, product: str) -> dict[str, int]:
    """DP by the number of processes, by the file's own word, or left out."""
    if world is None:
        return {} if said is None else {"dp": said}
    if world < 1:
        raise BadInput(f"{where}: {world} processes: expected 1 or more")
    if world % others:
        raise BadInput(f"{where}: {world} processes are not a multiple of {product} = {others}: "
                       f"{divisors_near(world, others, between=' or ')} would divide them")
    if said not in (None, world // others):
        raise BadInput(f"{where}: data parallel {said} x {product} = {said * others if said else 0} processes, and it starts "
                       f"{world}")
    return {"dp": world // others}


def shaped(**choices: Any) -> dict[str, Any]:
    """The family that has most of these choices, and those that it has otherwise."""
    def apart(family: str) -> dict[str, Any]:
        usual = dataclasses.asdict(FAMILIES[family])
        return {name: value for name, value in choices.items() if usual[name] != value}

    family = min(FAMILIES, key=lambda name: len(apart(name)))
    return {"family": family, **apart(family)}
