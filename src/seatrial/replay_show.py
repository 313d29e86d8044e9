"""The story of a replayed search, for a terminal or as markdown.

    print(text(replay.tell("bloom-prequel")))
    print(markdown(replay.tell("bloom-prequel")))
"""
from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from seatrial.tune.show import digits

WIDTH = 118
WORDS = {"rule": "could never run, by the engine's rules", "memory": "forecast to run out of memory",
         "copy": "said again what an earlier row said", "repeat": "measured a topology again",
         "slower": "surely slower, by what tune's own trials taught", "behind": "too unlikely to be the best"}


def text(story: dict[str, Any]) -> str:
    lines = _lines(story, heading=lambda words: ["", words, "-" * len(words)], table=_aligned, item="  ")
    return "\n".join(part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent=_indent(line)) or [""])


def _indent(line: str) -> str:
    """Under the words of an item, else where the line began."""
    return " " * 5 if line.startswith("  ") else ""


def markdown(story: dict[str, Any]) -> str:
    return "\n".join(_lines(story, heading=lambda words: ["", f"## {words}", ""], table=_piped, item="- "))


def _lines(story: dict[str, Any], *, heading: Any, table: Any, item: str) -> Iterable[str]:
    m, best, saved = story["model"], story["best"], story["saved"]
    when = f" between {story['dates'][0]} and {story['dates'][-1]}" if len(story["dates"]) > 1 else ""
    yield (f"{story['log']}: {m['layers']} layers x {m['hidden']}, {m['heads']} heads, on {_range(story['nodes'])} nodes of "
           f"{story['cluster']} ({_range(story['devices'])} processes).")
    least = "time" if story["by"] == "time" else "device-time"
    yield (f"{story['rows']} of the log's {story['rows_in_log']} rows{when} ask one question: which topology takes the least "
           f"{least} per sample? They try {story['topologies']} that can be started.")
    yield f"The best: {best['topology']}, {best['sec_per_it']:g} s/it, {_each(best, story)} ({best['row']})."
    for one in story["doubted"]:
        yield f"Not believed: {one['row']}: {one['why']}."
    full: list[str] = []
    for stage in story["stages"]:
        yield from heading(_title(stage))
        yield from _stage(stage, story, table)
        if stage["out_of_memory"] and stage["out_of_memory"] != full:
            yield f"Would run out of memory: {'; '.join(stage['out_of_memory'])}."
        full = stage["out_of_memory"]
    tune = story["tune"]
    yield from heading("The same search by `seatrial tune`, from nothing")
    rows = [("trial", "topology", "outcome", "s/it", "forecast", "odds of better left")]
    rows += [(str(n), one["topology"], one["status"], f"{one['sec_per_it']:g}" if one["sec_per_it"] else "",
              digits(one["forecast_s"]), _percent(one["odds_of_better"])) for n, one in enumerate(tune["trials"], 1)]
    yield from table(rows)
    yield ""
    yield (f"It ends by itself after {len(tune['trials'])} trials with {tune['best']} at {tune['best_s']:g} s/it. The odds "
           f"that a topology left is more than {100 * tune['margin']:g} % better are {_percent(tune['odds_of_better'])}.")
    yield from heading("Rows that nobody had to run")
    for reason, words in WORDS.items():
        mine = [v for v in story["rows_left_out"] if v["reason"] == reason]
        if mine:
            yield f"{item}{len(mine):2d} {words}: line {', '.join(v['row'].rpartition(':')[2] for v in mine)}"
    yield ""
    yield (f"Saved: {saved['rows']} of {saved['of_rows']} rows, {saved['seconds'] / 60:.0f} of {saved['of_seconds'] / 60:.0f} "
           f"minutes of running, {digits(saved['device_hours'], 3)} of {digits(saved['of_device_hours'], 3)} device-hours.")
    yield f"Assumed: {saved['assumption']}."


def _title(stage: dict[str, Any]) -> str:
    if stage["each_from_others"]:
        return f"After all {stage['learned_rows']} rows"
    return f"After the first {stage['learned_rows']} rows of the log" if stage["learned_rows"] else "Before any row"


def _range(values: Sequence[int]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _each(one: dict[str, Any], story: dict[str, Any]) -> str:
    if story["by"] == "time":
        return f"{digits(1000 * one['each_s'])} ms per sample"
    return f"{digits(one['each_s'])} device-seconds per sample"


def _stage(stage: dict[str, Any], story: dict[str, Any], table: Any) -> Iterable[str]:
    rows = [("", "topology", "s/it", "90 %", "that is")]
    rows += [(str(n), one["topology"], digits(one["sec_per_it"]), f"{digits(one['sec_lo'], 3)}-{digits(one['sec_hi'], 3)}",
              _each(one, story)) for n, one in enumerate(stage["top"], 1)]
    yield from table(rows)
    yield ""
    behind = stage["pick_behind_percent"]
    pick = "was never measured" if behind is None else (
        "is the log's best" if behind < 1e-9 else f"was measured {behind:.1f} % behind the log's best")
    ties = stage["tied_with_first"] - 1
    tied = "" if ties < 1 else f", {ties} more within 1 % of it" if ties > 1 else ", one more within 1 % of it"
    stands = f"stands at number {stage['rank_of_best']}" if stage["rank_of_best"] else "would not fit"
    yield f"The first {pick}{tied}; the log's best {stands}."
    of = "each row from all the others" if stage["each_from_others"] else (
        f"the {stage['forecast_rows']} rows" + (" to come" if stage["learned_rows"] else ""))
    yield f"Forecasts of {of} are {stage['forecast_error_percent']:.1f} % off on average."


def _percent(share: float) -> str:
    return "under 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    words = [any(cell and not cell[0].isdigit() for cell in column[1:]) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(cell.ljust(w) if left else cell.rjust(w) for cell, w, left in zip(row, widths, words)).rstrip()


def _piped(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    for n, row in enumerate(rows):
        yield "| " + " | ".join(row) + " |"
        if n == 0:
            yield "|" + " --- |" * len(row)
