"""Values of a config.json, asked for by key; what is not as it must be is refused by the key's name and value."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.errors import BadInput
from seatrial.fields import shown

Config = Mapping[str, Any]


class Reader:
    def __init__(self, config: Config, where: str):
        self.config, self.where = config, where

    def must(self, key: str, *allowed: object) -> None:
        if self.config.get(key, allowed[0]) not in allowed:
            known = " or ".join(map(repr, dict.fromkeys(allowed)))
            raise BadInput(f"{self.where}: {key} is {shown(self.config[key])}; the engine has {known} alone")

    def number(self, *keys: str, default: int | None = None) -> int:
        for key in keys:
            value = self.config.get(key)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise BadInput(f"{self.where}: {key} is {shown(value)}: expected a whole number above 0")
                return value
        if default is None:
            raise BadInput(f"{self.where}: {keys[0]} must be given")
        return default

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise BadInput(f"{self.where}: {key} is {shown(value)}: expected true or false")
        return value

    def count(self, key: str, *, default: int) -> int:
        """A number that may be 0."""
        value = self.config.get(key)
        return 0 if value == 0 and value is not False else self.number(key, default=default)

    def table(self, *keys: str) -> dict[str, Any]:
        """The first of these that is given; nothing where none is."""
        for key in keys:
            if value := self.config.get(key):
                if not isinstance(value, Mapping):
                    raise BadInput(f"{self.where}: {key} is {shown(value)}: expected a table")
                return dict(value)
        return {}
