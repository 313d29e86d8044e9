"""Keys of somebody else's configuration, asked for by name; what nobody asked for is known at the end.

    told = Told({"num_layers": "24", "fp16": "True"}, where="train.sh")
    told.whole("num_layers")        24; BadInput with the key and what it has where that is no whole number
    told.on("fp16")                 True
    told.left()                     what is left, without what says nothing (None, False, an empty list)
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from seatrial.errors import BadInput
from seatrial.fields import nearest, shown

NOTHING: tuple[object, ...] = (None, False, "", "None", "none", "null", "False", "false", [], {}, ())
"""Values that say that a key is not used."""
LONGEST = 19
"""Digits, so that 64 bits hold it."""


def counted(text: object) -> int | None:
    """The number of `32`, `9_765_625` and `1,000`; None of anything else, and of what nobody counts to."""
    digits = str(text).strip().replace("_", "").replace(",", "")
    return int(digits) if digits.isdecimal() and len(digits) < LONGEST else None


class Told:
    def __init__(self, values: Mapping[str, Any], where: str, *, prefix: str = "", seen: set[str] | None = None):
        self.values, self.where, self.prefix = values, where, prefix
        self.seen: set[str] = set() if seen is None else seen

    def table(self, name: str) -> Told:
        """A table in it; an empty one where it is not given."""
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(name, what="a table")
        return Told(value or {}, self.where, prefix=f"{self.prefix}{name}.", seen=self.seen)

    def get(self, *names: str) -> Any:
        """The first of these names that says something; all of them count as asked for."""
        self.seen.update(f"{self.prefix}{name}" for name in names)
        name, value = next(((name, value) for name in names if (value := self.values.get(name)) not in NOTHING), ("", None))
        if isinstance(value, str) and "$" in value:
            raise BadInput(f"{self.where}: {self.prefix}{name} {value[:60]}: the file does not set what stands there; put the "
                           f"number in its place")
        return value

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def whole(self, *names: str, least: int = 1) -> int | None:
        value = self.get(*names)
        if value is None:
            return None
        if isinstance(value, str):
            value = value if (number := counted(value)) is None else number
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(*names, what=f"a whole number from {least} on")
        return value

    def figure(self, *names: str) -> float | None:
        value = self.get(*names)
        try:
            found = None if value is None or isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            found = math.nan
        if found is not None and not math.isfinite(found):
            raise self.wrong(*names, what="a number")
        return found

    def on(self, *names: str) -> bool:
        """A switch; left out it is off."""
        value = self.get(*names)
        if value is None or isinstance(value, bool):
            return bool(value)
        if str(value).lower() not in ("true", "1", "yes"):
            raise self.wrong(*names, what="true or false")
        return True

    def switch(self, name: str) -> bool | None:
        """A switch whose false is said, too; None where it is left out."""
        return None if self.values.get(name) is None else self.on(name)

    def word(self, name: str, meanings: Mapping[str, Any], default: Any = None) -> Any:
        """What a word there means here; BadInput that names those that are known."""
        value = self.get(name)
        if value is None:
            return default
        if str(value) not in meanings:
            raise BadInput(f"{self.where}: {self.prefix}{name} is {shown(value)}: {nearest(str(value), meanings)}")
        return meanings[str(value)]

    def wrong(self, *names: str, what: str = "") -> BadInput:
        name = next((name for name in names if self.values.get(name) not in NOTHING), names[0])
        return BadInput(f"{self.where}: {self.prefix}{name} is {shown(self.values.get(name))}: expected "
                        f"{what or 'another value'}")

    def neutral(self, names: Iterable[str]) -> None:
        """Keys that change neither model nor layout."""
        self.seen.update(f"{self.prefix}{name}" for name in names)

    def left(self) -> list[str]:
        """Keys that nobody asked for and that say something, with the tables they stand in."""
        return [path for path, value in _flat(self.values, self.prefix) if path not in self.seen and value not in NOTHING]


def _flat(values: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
