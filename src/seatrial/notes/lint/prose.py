"""What the text around the tables says of the machine: the memory that can be used, the device.

Prose.of(text).capacity(120)          the limit that holds at line 120, with the words that say so
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from functools import cached_property

from seatrial import fields, presets
from seatrial.notes.lint.hints import Hints
from seatrial.spec import Device

_LIMIT = re.compile(
    r"\b(?:max(?:imum)?(?: usable)?|usable(?: maximum| memory)?|at most|limit|capacity)\b"
    r"[^|\d.\n]{0,40}?(\d+(?:\.\d+)?) ?(Gi?B|Mi?B)\b",
    re.IGNORECASE,
)
_OF_A_DEVICE = re.compile(
    r"\b(A100|H100|H200|H800|A800|V100|P100|A40|L40S?|B200|GH200|MI\d+X?)\b[^|\n\d]{0,12}?(\d{2,3}) ?Gi?B\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Prose:
    lines: tuple[str, ...]

    @cached_property
    def hints(self) -> Hints:
        return Hints(self.lines)

    @classmethod
    def of(cls, text: str) -> Prose:
        return cls(tuple(text.splitlines()))

    @cached_property
    def limits(self) -> list[tuple[int, float, str]]:
        """(line, GiB, words) of each sentence that limits memory; tables are no sentences."""
        found = []
        for number, line in enumerate(self.lines, 1):
            if line.lstrip().startswith("|") or not re.search(r"mem|GPU|node|device|usable|card", line, re.IGNORECASE):
                continue
            for match in _LIMIT.finditer(line):
                size = float(match[1]) / (1024 if match[2][0] in "mM" else 1)
                found.append((number, size, match[0].strip()))
        return found

    @cached_property
    def device_sizes(self) -> list[tuple[int, float, str]]:
        found = []
        for number, line in enumerate(self.lines, 1):
            found += [(number, float(match[2]), match[0].strip()) for match in _OF_A_DEVICE.finditer(line)]
        return found

    @cached_property
    def device(self) -> Device | None:
        """The one device of our presets that the file names; none when it names several."""
        text = "\n".join(self.lines).lower()
        found = {name for name in presets.names("devices") if re.search(rf"\b{name.split('-')[0]}s?\b", text)}
        if "fugaku" in text:
            found.add("a64fx")
        if len({name.split("-")[0] for name in found}) != 1:
            return None
        devices = [presets.resolve("devices", name, presets.shipped()) for name in found]
        return fields.build(Device, max(devices, key=lambda device: device["memory_gib"]), where="device")

    def capacity(self, line: int | None) -> tuple[float, str] | None:
        """The usable memory in GiB as the text puts it, and where: the nearest sentence above, or right below the table.

        A sentence above holds up to the next heading of the first level, one below only where no heading stands between."""
        at = line or 0
        above = [limit for limit in self.limits if limit[0] <= at and not self._heading_between(limit[0], at, "# ")]
        below = [limit for limit in self.limits if limit[0] > at and not self._heading_between(at, limit[0], "#")]
        near = min([*above, *below], key=lambda limit: (abs(limit[0] - at), limit[0] > at), default=None)
        return None if near is None else (near[1], f'line {near[0]}: "{near[2]}"')

    @cached_property
    def _headings(self) -> dict[str, list[int]]:
        return {mark: [n for n, text in enumerate(self.lines, 1) if text.startswith(mark)] for mark in ("#", "# ")}

    def _heading_between(self, low: int, high: int, mark: str) -> bool:
        after = bisect.bisect_right(self._headings[mark], low)
        return after < len(self._headings[mark]) and self._headings[mark][after] <= high

    def physical(self) -> tuple[float, str] | None:
        """The whole memory of the device as the text names it."""
        sizes = {size for _, size, _ in self.device_sizes}
        if len(sizes) == 1:
            number, size, words = self.device_sizes[0]
            return size, f'line {number}: "{words}"'
        if not sizes and self.device is not None:
            return self.device.memory_gib, f"{self.device.name} has {self.device.memory_gib:g} GiB"
        return None
