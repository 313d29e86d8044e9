"""Patterns that take either case, asked of a text's small letters first: most texts have nothing of most patterns, and small
letters say so in a third of the time; and sooner still that no word stands there of which a pattern needs one.

    OTHERS = either(r"\b(?:papers?|elsewhere|Hersteller)\b")
    OTHERS.search("Elsewhere they have more.")           what `re.compile(..., re.IGNORECASE).search` finds
    OTHERS.words                                         ("paper", "elsewhere", "hersteller")
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from seatrial.tables.tongues import lowered

_LARGE = re.compile(r"\\.|\(\?P|[^\W\d_a-z]")
"""What a pattern has beside small letters; its signs for classes and groups stay as they are."""


def small(pattern: str) -> re.Pattern[str]:
    """The pattern for texts in small letters, see `lowered`."""
    return re.compile(_LARGE.sub(lambda match: match[0] if len(match[0]) > 1 else lowered(match[0]), pattern))


MOST_WORDS, LONGEST = 48, 700
"""To look for more of them takes as long as the pattern does, and to read a longer one takes longer than most texts."""


def words_of(parsed: Iterable[tuple[Any, Any]]) -> list[str]:
    """Words and signs of which some stands in whatever a pattern matches; none where one of them may be any letter.

    Of what stands one after the other all has to be there: the longest says the most."""
    ways, run = [], ""
    for kind, of in (*parsed, (None, None)):
        if (name := str(kind)) == "LITERAL":
            run += chr(of)
            continue
        ways += [[run]] if run else []
        run, way = "", []
        if name == "BRANCH":
            each = [words_of(branch) for branch in of[1]]
            way = [word for one in each for word in one] if all(each) else []
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            way = words_of(of[3] if name == "SUBPATTERN" else of)
        elif name == "IN":
            way = [chr(of) for _, of in of] if all(str(kind) == "LITERAL" for kind, _ in of) else []
        elif name.endswith("_REPEAT") and of[0]:
            way = words_of(of[2])
        ways += [way] if way else []
    ways = [way for way in ways if not any(len(word) == 1 and word.isascii() and word.isalnum() for word in way)]
    return max(ways, key=lambda way: (min(map(len, way)), -len(way)), default=[])


class either:
    def __init__(self, pattern: str) -> None:
        self.pattern, self._small, self._whole = pattern, small(pattern), re.compile(pattern, re.IGNORECASE)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Of which some stands in whatever it matches; none where that may be anything, or are too many."""
        parsed = _parser.parse(self._small.pattern) if len(self.pattern) < LONGEST else ()
        words = {*words_of(parsed)}
        least = sorted(word for word in words if not any(other in word for other in words - {word}))
        return tuple(least) if len(least) <= MOST_WORDS else ()

    def has(self, text: str) -> bool:
        """Whether it stands in a text, wherever that is."""
        letters = lowered(text)
        for word in self.words:
            if word in letters:
                break
        else:
            if self.words:
                return False
        return self._small.search(letters) is not None

    def search(self, text: str) -> re.Match[str] | None:
        return self._whole.search(text) if self.has(text) else None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self._whole.finditer(text) if self.has(text) else iter(())
