"""Tables and bars for people: with rules and colour on a terminal, as plain aligned text in a pipe or with NO_COLOR.

    show.table(["DP", "s/it"], [["8", "103.1"], ["4", "105.9"]])
    show.painted([("███", "blue"), (" 1.2 s", "")])
"""
from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

BLOCKS = " ▏▎▍▌▋▊▉█"


def on_terminal() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def width() -> int:
    return shutil.get_terminal_size((120, 24)).columns


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> str:
    """Columns two spaces apart, numbers to the right; `left` names the columns that hold words."""
    widths = [max(map(len, column)) for column in zip(headers, *rows)]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths))).rstrip()

    return "\n".join(line(cells) for cells in (headers, *rows))


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
        made.add_column(header, justify="left" if i in left else "right", no_wrap=True)
    for i, row in enumerate(rows):
        made.add_row(*(Text(cell) for cell in row), style="bold green" if i < bold else None)
    # Wider than the terminal it wraps there, which is ugly but loses no figure.
    needed = sum(max(map(len, column)) + 2 for column in zip(headers, *rows))
    Console(highlight=False, width=max(width(), needed)).print(made)


def painted(*lines: Sequence[tuple[str, str]]) -> None:
    """Lines of (text, colour); the colours are for a terminal alone."""
    if not on_terminal():
        for line in lines:
            print("".join(text for text, _ in line).rstrip())
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, width=max(width(), 20))
    for line in lines:
        console.print(Text.assemble(*((text, style) for text, style in line)), no_wrap=True, overflow="crop")


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
    for name, value in shown.items():
        why = f"  {said[name]}" if said and name in said else ""
        lines.append(f"  {name.ljust(label)}  {value:9.3f} {unit}  {value / total:6.1%}  {bar(value / total)}{why}".rstrip())
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
