"""Whether a page shows what a command prints.

    matches(shown, printed)                     line by line; `…` stands for any text, alone on a line for any lines
    matches(shown, printed, measured=True)      numbers, bars and the order of lines are left out of it
    renewed(shown, printed)                     what the page should show, as much of it as it shows now
"""
from __future__ import annotations

import re

ANY = "…"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")
BARS = re.compile(r"\s*[█▉▊▋▌▍▎▏░▒▓]+")
SHARE = re.compile(r"\s+\S.* # \S+ +#%(?: .*)?")
BAR = "(bars)"


def lines_of(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def masked(line: str) -> str:
    """`ok: 0.302 s/it` -> `ok: # s/it`: the words and their order stay. A row of shares is one of however
    many there are, a figure may come without its spread, and another may be the best."""
    has_bar = BARS.search(line) is not None
    line = NUMBER.sub("#", BARS.sub("", line)).replace(" ± #%", "").replace("**", "")
    line = re.sub(r"\bbest \S+:", "best #:", line)
    if has_bar or SHARE.fullmatch(line):
        return BAR
    return " ".join(re.sub(r"-{2,}", "-", line).split())


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in line.split(ANY)))


def matches(shown: str, printed: str, *, measured: bool = False) -> bool:
    want, got = lines_of(shown), lines_of(printed)
    if measured:
        return _same_lines(_once([masked(line) for line in want]), _once([masked(line) for line in got]))
    parts = ["(?:.*\n)*?" if line.strip() == ANY else _pattern(line).pattern + "\n" for line in want]
    return re.fullmatch("".join(parts), "".join(line + "\n" for line in got)) is not None


def _once(lines: list[str]) -> list[str]:
    """Small parts of a whole are shown or not as they come out: all bars count as one line."""
    return [line for at, line in enumerate(lines) if line != BAR or BAR not in lines[:at]]


def _same_lines(want: list[str], got: list[str]) -> bool:
    """Each line of one is a line of the other, in any order; those without `…` are placed first."""
    some_left_out = ANY in want
    left = list(got)
    for line in sorted((line for line in want if line != ANY), key=lambda line: ANY in line):
        found = next((other for other in left if _pattern(line).fullmatch(other)), None)
        if found is None:
            return False
        left.remove(found)
    return some_left_out or not left


def renewed(shown: str, printed: str) -> str:
    """What was printed; where the page leaves lines out, as many before and after the gap as it shows now."""
    want, got = lines_of(shown), lines_of(printed)
    gaps = [number for number, line in enumerate(want) if line.strip() == ANY]
    if not gaps:
        return "\n".join(got)
    head, tail = gaps[0], len(want) - 1 - gaps[-1]
    if head + tail >= len(got):
        return "\n".join(got)
    return "\n".join([*got[:head], ANY, *got[len(got) - tail :]])
