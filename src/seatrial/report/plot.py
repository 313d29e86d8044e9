"""The report's pictures as files for papers and slides, and its tables as markdown.

    plot.write(made, Path("figures"))           time.svg, time.png, memory.svg, …, table.md

The same data as the page's, in the same colours; a picture that would be empty is not written.
"""
from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.columns import degrees, shown
from seatrial.errors import BadInput
from seatrial.report.answers import Question, world_from
from seatrial.report.data import Made
from seatrial.report.pipelines import SPANS
from seatrial.tables.markdown import to_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURED, FORECAST, BAND, LIMIT, IDEAL = "#0072b2", "#c25e00", "#f3c9a0", "#b3261e", "#8b95a0"
"""Told apart by people who see no red or no green, and by their shapes in print."""
PARTS = ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#7d5ba6", "#004b75", "#f0c987", "#a9b0b7",
         "#7fcdb3", "#9bd3f3", "#c9ced3"]  # fmt: skip
MOST_LINES = 20


def write(made: Made, folder: Path) -> list[Path]:
    """All pictures that there is something to show in, and the table; what was written."""
    import matplotlib

    figures: dict[str, Callable[[Made], Figure | None]] = {
        "time": time, "memory": memory, "parts": parts, "scaling": scaling, "knobs": knobs, "pipeline": pipeline,
    }  # fmt: skip
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A fixed salt and no date: the same rows give the same files, byte by byte.
        with matplotlib.rc_context({"svg.hashsalt": "seatrial", "svg.fonttype": "none", "font.size": 9,
                                    "axes.spines.top": False, "axes.spines.right": False,
                                    "figure.constrained_layout.use": True}):
            for name, draw in figures.items():
                figure = draw(made)
                if figure is None:
                    continue
                for path, metadata in ((folder / f"{name}.svg", {"Date": None}), (folder / f"{name}.png", {"Software": None})):
                    figure.savefig(path, dpi=150, metadata=metadata)
                    written.append(path)
        (folder / "table.md").write_text(to_markdown(made.records), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{folder}: {error.strerror or error}") from None
    return [*written, folder / "table.md"]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def _question(made: Made) -> Question | None:
    return next((q for q in made.questions if q.ranked), None)


def _counted(made: Made, rows: Sequence[int]) -> str:
    """Where the devices of one of these rows come from, unless it says them itself."""
    return next((f" (counted from {said})" for row in rows if (said := world_from(made.records[row]))), "")


def _title(made: Made, q: Question) -> str:
    size = f"{q.nodes} nodes" if q.nodes is not None else f"{q.world} processes{_counted(made, q.rows)}"
    return f"{q.model} on {size}"


def _label(made: Made, row: int) -> str:
    r = made.records[row]
    layout = " × ".join("?" if (value := getattr(r, name)) is None else str(value) for name in degrees(r.cp))
    said = ("mbs", "gbs", "heads")
    rest = shown({name: getattr(r, name) for name in said}, said)
    return f"{layout}, {rest}" if rest else layout


def _lines(axes: Axes, made: Made, rows: list[int]) -> None:
    axes.set_yticks(range(len(rows)), [_label(made, row) for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="x", color="#e3e7eb", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)


def time(made: Made) -> Figure | None:
    """Measured and forecast side by side, with their intervals."""
    q = _question(made)
    if q is None:
        return None
    ranked = q.ranked[:MOST_LINES]
    rows = [c.rows[0] for c in ranked]
    batch = made.records[rows[0]].gbs or 1
    figure = _figure(8, 1.2 + 0.28 * len(rows))
    axes = figure.subplots()
    _lines(axes, made, rows)
    for place, c in enumerate(ranked):
        scale = batch / (made.records[c.rows[0]].gbs or batch)
        f = made.forecasts.get(c.rows[0])
        if f is not None and not f.elsewhere:
            axes.barh(place, (f.hi - f.lo) * scale, left=f.lo * scale, height=0.34, color=BAND, zorder=1,
                      label=_once("its 90 % interval", axes))
            axes.plot(f.sec * scale, place, "D", color="white", markeredgecolor=FORECAST, markersize=6, zorder=2,
                      label=_once("forecast", axes))
        if c.lo_s is not None and c.hi_s is not None:
            axes.plot([c.lo_s * scale, c.hi_s * scale], [place, place], "-", color=MEASURED, linewidth=1.6, zorder=3)
        axes.plot(c.sec_per_it * scale, place, "o", color=MEASURED, markersize=6, zorder=4,
                  label=_once("measured", axes))
    axes.margins(x=0.03)
    axes.set_xlabel(f"seconds for {batch} samples")
    axes.set_title(_title(made, q), loc="left", fontweight="bold")
    axes.legend(frameon=False, fontsize=8, loc="best")
    return figure


def _once(label: str, axes: Axes) -> str | None:
    """For the legend, which says each thing once."""
    return None if label in axes.get_legend_handles_labels()[1] else label


def _stack(axes: Axes, place: float, height: float, parts: dict[str, float], colours: dict[str, str]) -> None:
    left = 0.0
    for name, value in parts.items():
        if value > 0:
            axes.barh(place, value, left=left, height=height, color=colours[name], edgecolor="white", linewidth=0.4)
            left += value


def _colours(axes: Axes, tables: list[dict[str, float]]) -> dict[str, str]:
    """A colour for each part, and the legend, largest parts first."""
    from matplotlib.patches import Patch

    sums: dict[str, float] = {}
    for table in tables:
        for name, value in table.items():
            sums[name] = sums.get(name, 0.0) + max(0.0, value)
    names = sorted(sums, key=lambda name: -sums[name])
    colours = {name: PARTS[i % len(PARTS)] for i, name in enumerate(names)}
    handles = [Patch(color=colours[name], label=name) for name in names if sums[name] > 0]
    axes.get_figure().legend(handles=handles, frameon=False, fontsize=8, ncols=5, loc="outside upper left")  # type: ignore[union-attr]
    return colours


def memory(made: Made) -> Figure | None:
    """Forecast by part above what was measured, against what a device has."""
    q = _question(made)
    rows = [] if q is None else [c.rows[0] for c in q.ranked]
    rows = [row for row in rows if made.records[row].mem_gib is not None or row in made.forecasts][:MOST_LINES]
    if not rows:
        return None
    figure = _figure(8, 1.6 + 0.34 * len(rows))
    axes = figure.subplots()
    _lines(axes, made, rows)
    colours = _colours(axes, [made.forecasts[row].memory_gib for row in rows if row in made.forecasts])
    for place, row in enumerate(rows):
        if row in made.forecasts:
            _stack(axes, place - 0.19, 0.34, made.forecasts[row].memory_gib, colours)
        if (peak := made.records[row].mem_gib) is not None:
            axes.barh(place + 0.19, peak, height=0.34, color="#44525f")
    limits = [f.limit_gib for row in rows if (f := made.forecasts.get(row)) is not None and f.limit_gib is not None]
    if limits:
        axes.axvline(max(limits), color=LIMIT, linewidth=1.2)
    axes.set_xlabel("GiB on the fullest device; lower bar: measured" + (f"; line: {max(limits):g} GiB" if limits else ""))
    return figure


def parts(made: Made) -> Figure | None:
    """Where the time goes: the forecast's parts, and the timers of runs that have them."""
    q = _question(made)
    rows = [] if q is None else [c.rows[0] for c in q.ranked]
    rows = [row for row in rows if made.records[row].breakdown or row in made.forecasts and made.forecasts[row].parts_s][:14]
    if not rows:
        return None
    figure = _figure(8, 1.8 + 0.36 * len(rows))
    axes = figure.subplots()
    _lines(axes, made, rows)
    tables = {row: [t for t in (made.forecasts[row].parts_s if row in made.forecasts else {}, made.records[row].breakdown) if t]
              for row in rows}
    colours = _colours(axes, [t for table in tables.values() for t in table])
    for place, row in enumerate(rows):
        both = len(tables[row]) == 2
        for i, table in enumerate(tables[row]):
            _stack(axes, place + (i - 0.5) * 0.38 if both else place, 0.34 if both else 0.6, table, colours)
        if (sec := made.records[row].sec_per_it) is not None:
            axes.plot([sec, sec], [place - 0.4, place + 0.4], color=MEASURED, linewidth=2)
    axes.set_xlabel("seconds per iteration; tick: measured")
    return figure


def scaling(made: Made) -> Figure | None:
    shown = [one for one in made.view["scaling"] if len(one["points"]) > 1][:6]
    if not shown:
        return None
    figure = _figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    for i, one in enumerate(shown):
        colour, marker = PARTS[i], "osD^vP"[i]
        worlds = [count for count, _ in one["points"]]
        rates = [(r.gbs or 0) / (r.sec_per_it or 1) for _, row in one["points"] for r in (made.records[row],)]
        each = rates[0] / worlds[0]
        left.plot(worlds, rates, f"-{marker}", color=colour, markersize=4, label=one["label"])
        left.plot(worlds, [each * w for w in worlds], "--", color=IDEAL, linewidth=0.8)
        right.plot(worlds, [100 * rate / w / each for rate, w in zip(rates, worlds)], f"-{marker}", color=colour, markersize=4)
    said = _counted(made, [row for one in shown for _, row in one["points"]])
    left.set(xscale="log", yscale="log", xlabel=f"processes{said}", ylabel="samples per second (dashed: ideal)")
    right.set(xscale="log", xlabel=f"processes{said}", ylabel="efficiency, %", ylim=(0, None))
    right.axhline(100, color=IDEAL, linestyle="--", linewidth=0.8)
    left.legend(frameon=False, fontsize=7)
    return figure


def knobs(made: Made) -> Figure | None:
    """One panel per knob; each line has rows that differ in that knob alone, against its own best."""
    shown: list[dict[str, Any]] = made.view["knobs"][:9]
    if not shown:
        return None
    across = min(3, len(shown))
    down = -(-len(shown) // across)
    figure = _figure(3.6 * across, 3.0 * down)
    for axes, knob in zip(figure.subplots(down, across, squeeze=False).flat, shown):
        values = sorted({v for one in knob["series"] for v, _ in one["points"]}, key=lambda v: (isinstance(v, str), v))
        for i, one in enumerate(knob["series"][:6]):
            rated = all(made.records[row].tflops is not None for _, row in one["points"])
            figures: dict[Any, list[float]] = {}
            for v, row in one["points"]:
                r = made.records[row]
                figure_of = r.tflops if rated else (r.gbs / r.sec_per_it if r.gbs and r.sec_per_it else None)
                if figure_of is not None:
                    figures.setdefault(v, []).append(figure_of)
            if len(figures) < 2:
                continue
            middle = {v: statistics.median(found) for v, found in figures.items()}
            best = max(middle.values())
            axes.plot([values.index(v) for v in middle], [100 * m / best for m in middle.values()], f"-{'osD^vP'[i]}",
                      color=PARTS[i], markersize=4, label=one["label"])
        axes.set_xticks(range(len(values)), [str(v) for v in values])
        axes.set_title(knob["title"], loc="left", fontsize=9, fontweight="bold")
        axes.set_ylabel("% of the line's best")
        axes.legend(frameon=False, fontsize=5, loc="best")
    for empty in figure.axes[len(shown):]:
        empty.remove()
    return figure


def pipeline(made: Made) -> Figure | None:
    """Forecast above measured, of the first row that has both, else of the first."""
    found = made.view["pipelines"]
    if not found:
        return None
    one = next((p for p in found if p["forecast"] and p["measured"]), found[0])
    drawn = [(name, one[name]) for name in ("forecast", "measured") if one[name]]
    figure = _figure(9, sum(0.9 + 0.22 * len(d["ranks"]) for _, d in drawn))
    for axes, (name, d) in zip(figure.subplots(len(drawn), 1, squeeze=False).flat, drawn):
        for place, spans in enumerate(d["spans"]):
            for kind, _, chunk, start, end in spans:
                drawn_as = SPANS.get(kind, SPANS["x"])
                axes.barh(place, end - start, left=start, height=0.82, color=drawn_as.colour, alpha=0.6 if chunk else 1.0,
                          edgecolor="white", linewidth=0.3, label=_once(drawn_as.word, axes))
        axes.legend(frameon=False, fontsize=7, ncols=8, loc="lower right", bbox_to_anchor=(1, 1))
        axes.set_yticks(range(len(d["ranks"])), d["ranks"], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlim(0, d["total_s"])
        axes.set_title(f"forecast: {_label(made, one['row'])}" if name == "forecast" else name, loc="left", fontsize=9)
        axes.set_xlabel("seconds")
    return figure
