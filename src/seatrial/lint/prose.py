"""What the text around the tables says of the machine: the memory that can be used, the device.

Prose.of(text).capacity(120)          the limit that holds at line 120, with the words that say so
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from seatrial import presets
from seatrial.lint.hints import Hints
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
        named = {name.split("-")[0]: name for name in presets.names("devices")}
        found = {name for short, name in named.items() if re.search(rf"\b{short}s?\b", text)}
        if "fugaku" in text:
            found.add("a64fx")
        return (
            presets.fields.build(Device, presets.resolve("devices", found.pop(), presets.shipped()), where="device")
            if len(found) == 1
            else None
        )

    def capacity(self, line: int | None) -> tuple[float, str] | None:
        """The usable memory in GiB as the text puts it, and where: the nearest sentence, the one above before the one below."""
        at = line or 0
        if not self.limits:
            return None
        number, size, words = min(self.limits, key=lambda limit: (abs(limit[0] - at), limit[0] > at))
        return size, f'line {number}: "{words}"'

    def physical(self) -> tuple[float, str] | None:
        """The whole memory of the device as the text names it."""
        sizes = {size for _, size, _ in self.device_sizes}
        if len(sizes) == 1:
            number, size, words = self.device_sizes[0]
            return size, f'line {number}: "{words}"'
        if not sizes and self.device is not None:
            return self.device.memory_gib, f"{self.device.name} has {self.device.memory_gib:g} GiB"
        return None
