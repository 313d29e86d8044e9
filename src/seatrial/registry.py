"""Things that are called by name and that other distributions may add: launchers and engines.

    LAUNCHERS = Registry("launcher", group="seatrial.launchers", builtin={"local": "seatrial.launch.local:Local"})
    LAUNCHERS.get("local")          the class; only its own module is imported for it
    LAUNCHERS.names()               all there are, those of installed distributions too

What is built in is found without looking at what is installed. The installed distributions' metadata is read when a name is not
built in, or when all are listed: that takes as long as there are distributions.

    [project.entry-points."seatrial.launchers"]         in the pyproject.toml of somebody else's distribution
    lsf = "our_cluster.lsf:Lsf"
"""
from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seatrial import fields
from seatrial.errors import BadInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Registry:
    def __init__(self, kind: str, *, group: str, builtin: Mapping[str, str]):
        self.kind, self.group, self.builtin = kind, group, dict(builtin)

    def get(self, name: str) -> Any:
        """What is registered under that name. Raises BadInput that names the known ones."""
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        entry = self._installed().get(name)
        if entry is None:
            known = self.names()
            hint = fields.nearest(name, known)
            raise BadInput(f"{self.kind} {name!r}: {hint}" + ("" if "known are" in hint else f" known are {', '.join(known)}"))
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            whose = f" of {entry.dist.name}" if entry.dist is not None else ""
            raise BadInput(f"{self.kind} {name!r}: {entry.value}{whose} cannot be loaded: {error}") from None

    def check(self, name: str) -> None:
        """Raises BadInput for a name that nobody has registered; loads nothing."""
        if name not in self.builtin and name not in self._installed():
            self.get(name)

    def names(self) -> list[str]:
        return [*self.builtin, *sorted(set(self._installed()) - set(self.builtin))]

    def _installed(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        return {entry.name: entry for entry in entry_points(group=self.group)}
