"""Patterns that take either case, asked of a text's small letters first: most texts have nothing of most patterns, and small
letters say so in a third of the time.

    OTHERS = either(r"\b(?:papers?|elsewhere|Hersteller)\b")
    OTHERS.search("Elsewhere they have more.")           what `re.compile(..., re.IGNORECASE).search` finds
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.tables.tongues import lowered

_LARGE = re.compile(r"\\.|\(\?P|[^\W\d_a-z]")
"""What a pattern has beside small letters; its signs for classes and groups stay as they are."""


def small(pattern: str) -> re.Pattern[str]:
    """The pattern for texts in small letters, see `lowered`."""
    return re.compile(_LARGE.sub(lambda match: match[0] if len(match[0]) > 1 else lowered(match[0]), pattern))


class either:
    def __init__(self, pattern: str) -> None:
        self.pattern, self._small, self._whole = pattern, small(pattern), re.compile(pattern, re.IGNORECASE)

    def has(self, text: str) -> bool:
        """Whether it stands in a text, wherever that is."""
        return self._small.search(lowered(text)) is not None

    def search(self, text: str) -> re.Match[str] | None:
        return self._whole.search(text) if self.has(text) else None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self._whole.finditer(text) if self.has(text) else iter(())
