"""Tables, bars and small pictures for people: with colour on a terminal, as plain aligned text in a pipe or with NO_COLOR.

    say("A line of words, which goes on below itself where the terminal is narrow.")
    table(["DP", "s/it"], [["8", "103.1"], ["4", "105.9"]])
    painted([("███", "blue"), (" 1.2 s", "")])
    stacked({"matmul": 70.0, "bubble": 30.0}, longest=120.0, cells=40)          [("██████████████", "blue"), ("······", …)]
    Axis(0.8, 1.1, cells=40).interval(0.86, 0.91, 0.97, marks={1.0: "┆"})       "       ├────●─────┤   ┆     "

Every group of a stacked bar has a letter of its own beside its colour, so that nothing is lost without colours or on paper.
"""
from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

BLOCKS = " ▏▎▍▌▋▊▉█"
UNSEEN = ("\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
          "\U000e0000-\U000e007f\ud800-\udfff")
"""Letters that move the cursor, turn the line round or cannot be seen, as the inside of a pattern's brackets."""
_UNSEEN = re.compile(f"[{UNSEEN}]")


def visible(text: str) -> str:
    """For a terminal: what came from files and names cannot move its cursor, colour it or reorder a line.

    As JSON writes them (\\u001b), so that a printed document is still the same document.
    """
    return _UNSEEN.sub(lambda m: f"\\u{ord(m.group()):04x}" if m.group() < "\U00010000" else json.dumps(m.group())[1:-1], text)


class Visible:
    """A stream on which everything is made visible. What draws on a terminal writes to `stream` itself, its texts made so."""

    def __init__(self, stream: Any):
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def drawn_on(stream: Any) -> Any:
    """Where colours and cursor movements of our own go."""
    return stream.stream if isinstance(stream, Visible) else stream


def on_terminal() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def width() -> int:
    return shutil.get_terminal_size((120, 24)).columns


def say(text: str, indent: int = 4, *, to: Any = None) -> None:
    """Lines of words, each folded where it is printed; `to` is standard output where nothing is said."""
    for line in text.split("\n"):
        print(folded(line, indent, on=to), file=to or sys.stdout)


def folded(text: str, indent: int, *, on: Any = None) -> str:
    """On a terminal that is too narrow for it, below itself; elsewhere one line, as programs read it."""
    import textwrap

    if not (on or sys.stdout).isatty() or len(text) <= width():
        return text
    return textwrap.fill(text, max(40, width()), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
                         replace_whitespace=False, drop_whitespace=True)


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> str:
    """Columns two spaces apart, numbers to the right; `left` names the columns that hold words."""
    widths = [max(map(len, column)) for column in zip(headers, *rows)]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths))).rstrip()

    return "\n".join(line(cells) for cells in (headers, *rows))


def fitting(headers: list[str], rows: list[list[str]], *, alike: Iterable[str] = (),
            spare: Iterable[str] = ()) -> tuple[list[str], list[list[str]], str]:
    """On a terminal too narrow for a table: what is left of it, and what became of the rest in words.

    Columns of `alike` go first, where all rows say the same; then those of `spare`, which are named.
    """
    def without(name: str) -> tuple[list[str], list[list[str]]]:
        place = headers.index(name)
        return headers[:place] + headers[place + 1 :], [row[:place] + row[place + 1 :] for row in rows]

    def too_wide(name: str) -> bool:
        return sum(max(map(len, column)) + 2 for column in zip(headers, *rows)) > width() and name in headers

    same, gone = [], []
    if sys.stdout.isatty():
        for name in alike if len(rows) > 1 else ():
            if too_wide(name) and len(said := {row[headers.index(name)] for row in rows}) == 1:
                same.append(f"{name} {said.pop()}".rstrip())
                headers, rows = without(name)
        for name in spare:
            if too_wide(name):
                gone.append(name)
                headers, rows = without(name)
    words = [f"All of them: {', '.join(same)}."] if same else []
    words += [f"No room for {', '.join(gone)}: a wider terminal, a pipe or --json has them."] if gone else []
    return headers, rows, " ".join(words)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = (), bold: int = 0) -> None:
    """Print it; on a terminal the first `bold` rows stand out."""
    if not on_terminal():
        print(plain_table(headers, rows, left))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for i, header in enumerate(headers):
        made.add_column(Text(visible(header)), justify="left" if i in left else "right", no_wrap=True)
    for i, row in enumerate(rows):
        made.add_row(*(Text(visible(cell)) for cell in row), style="bold green" if i < bold else None)
    # Wider than the terminal it wraps there, which is ugly but loses no figure.
    needed = sum(max(map(len, column)) + 2 for column in zip(headers, *rows))
    Console(file=drawn_on(sys.stdout), highlight=False, width=max(width(), needed)).print(made)


def painted(*lines: Sequence[tuple[str, str]]) -> None:
    """Lines of (text, colour); the colours are for a terminal alone."""
    if not on_terminal():
        for line in lines:
            print("".join(text for text, _ in line).rstrip())
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=drawn_on(sys.stdout), highlight=False, width=max(width(), 20))
    for line in lines:
        console.print(Text.assemble(*((visible(text), style) for text, style in line)), no_wrap=True, overflow="crop")


def in_lines(items: Sequence[Sequence[tuple[str, str]]], cells: int, gap: str = "  ") -> list[list[tuple[str, str]]]:
    """Items side by side, as many a line as `cells` hold."""
    lines: list[list[tuple[str, str]]] = []
    used = 0
    for item in items:
        size = sum(len(text) for text, _ in item)
        if lines and used + len(gap) + size <= cells:
            lines[-1] += [(gap, ""), *item]
            used += len(gap) + size
        else:
            lines.append(list(item))
            used = size
    return lines


def bar(share: float, cells: int = 30) -> str:
    """A bar of `share` of `cells`, in eighths."""
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (BLOCKS[part] if part else "")).ljust(cells)


def breakdown(parts: dict[str, float], unit: str, *, whole: float | None = None, said: dict[str, str] | None = None) -> str:
    """One line a part, largest first, with its share of the whole as a bar; parts under a thousandth are added up."""
    total = whole if whole is not None else sum(parts.values())
    if total <= 0:
        return ""
    shown = {name: value for name, value in sorted(parts.items(), key=lambda item: -item[1]) if abs(value) >= 0.001 * total}
    rest = sum(parts.values()) - sum(shown.values())
    if rest > 0:
        shown["the rest"] = rest
    label = max(map(len, shown))
    lines = []
    cells = 30 if not sys.stdout.isatty() else max(6, min(30, width() - label - len(unit) - 23 - (40 if said else 0)))
    for name, value in shown.items():
        why = f"  {said[name]}" if said and name in said else ""
        line = f"  {name.ljust(label)}  {value:9.3f} {unit}  {value / total:6.1%}  {bar(value / total, cells)}"
        lines.append(folded(f"{line}{why}".rstrip(), len(line) + 2))
    return "\n".join(lines)


def seconds(value: float) -> str:
    return f"{value:.2f}" if value >= 10 else f"{value:#.4g}"


def digits(value: float) -> str:
    """Four digits that count, with an exponent where they need one."""
    return f"{value:#.4g}"


def short(value: float) -> str:
    """Three digits that count, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:#.3g}"


def price(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


# ---- pictures in letters

Spans = list[tuple[str, str]]
"""Text with the colour it has on a terminal."""


class Group(NamedTuple):
    name: str
    letter: str
    colour: str
    parts: tuple[str, ...]


GROUPS = (
    Group("GEMMs", "█", "blue", ("matmul", "attention", "logits", "experts")),
    Group("memory", "▓", "cyan", ("memory", "accumulate", "embedding", "optimizer")),
    Group("tensor", "▒", "yellow", ("tensor",)),
    Group("exchange", "╳", "red", ("exchange", "dispatch")),
    Group("messages", "░", "magenta", ("p2p", "gradients")),
    Group("host", "╱", "green", ("launch", "fixed")),
    Group("bubble", "·", "bright_black", ("bubble", "wait")),
)
"""The planner's parts in the few that a line of letters can tell apart."""


def grouped(parts: Mapping[str, float]) -> dict[str, float]:
    """Seconds by group, in the order they are drawn; what belongs to none is drawn with the host's."""
    home = {part: group.name for group in GROUPS for part in group.parts}
    found = {group.name: 0.0 for group in GROUPS}
    for part, seconds in parts.items():
        found[home.get(part, "host")] += seconds
    return found


def stacked(parts: Mapping[str, float], *, longest: float, cells: int) -> Spans:
    """One bar; its length is the sum's share of `longest`. Ends are rounded, so no cell is counted twice or lost."""
    spans, drawn, upto = [], 0, 0.0
    for group, seconds in zip(GROUPS, grouped(parts).values()):
        upto += seconds
        end = min(cells, round(upto / longest * cells))
        if end > drawn:
            spans.append((group.letter * (end - drawn), group.colour))
        drawn = max(drawn, end)
    return [*spans, (" " * (cells - drawn), "")]


def legend(parts: Mapping[str, float]) -> list[Spans]:
    """What the letters mean, with the share of each in these parts."""
    total = sum(parts.values())
    shares = grouped(parts)
    return [[(group.letter * 2, group.colour), (f" {group.name} {shares[group.name] / total:.0%}", "")]
            for group in GROUPS if shares[group.name] >= 0.005 * total]


@dataclass(frozen=True)
class Axis:
    """A line of `cells` letters from `low` to `high`."""

    low: float
    high: float
    cells: int

    def place(self, value: float) -> int:
        span = self.high - self.low
        share = (value - self.low) / span if span > 0 else 0.5
        return round(max(0.0, min(1.0, share)) * (self.cells - 1))

    def interval(self, low: float, middle: float, high: float, *, marks: Mapping[float, str] = {}) -> str:
        """From end to end with its middle; `marks` are put over it, where they do not hide the middle."""
        line = [" "] * self.cells
        first, last = self.place(low), self.place(high)
        line[first : last + 1] = "─" * (last - first + 1)
        line[first], line[last] = "├", "┤"
        return self._marked(line, middle, marks)

    def point(self, middle: float, *, marks: Mapping[float, str] = {}) -> str:
        return self._marked([" "] * self.cells, middle, marks)

    def _marked(self, line: list[str], middle: float, marks: Mapping[float, str]) -> str:
        for value, letter in marks.items():
            if self.low <= value <= self.high:
                line[self.place(value)] = letter
        line[self.place(middle)] = "●" if line[self.place(middle)] != "◆" else "◈"
        return "".join(line)

    def dots(self, values: Iterable[float], middle: float) -> str:
        """Each value a dot, the middle a stroke."""
        line = [" "] * self.cells
        for value in values:
            line[self.place(value)] = "•"
        line[self.place(middle)] = "┃"
        return "".join(line)
