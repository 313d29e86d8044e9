"""`seatrial compare`: A against B, by repeats in turns or from the rows of a logbook.

    seatrial compare trial.toml --b environment.variables.LD_PRELOAD=libtcmalloc_minimal.so.4 --logbook book
    seatrial compare trial.toml --a topology.precision=fp16 --b topology.precision=bf16 --logbook book --repeats 12
    seatrial compare --logbook book --a session=monday --b session=tuesday
    seatrial compare --logbook notes.md --a tp=1 --b tp=2       fields as `table` has them; what must differ with them is named

With a file, --a and --b are settings put over it and both are run, pair by pair; without, they choose records. Exit status: 0
when there is an answer, also "no difference can be seen"; 3 when one side could not be measured.
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typer

from seatrial.errors import EXIT_GOOD, EXIT_OTHER_OUTCOME, BadInput
from seatrial.options import CONFIG, FORMAT, LAUNCHER
from seatrial.plaindata import parse_json

FEWEST = 6
"""Repeats of each before an interval that is narrow enough may end the comparison."""
STEP = 2
NARROWEST, WIDEST = 44, 100
"""Columns of a terminal that the picture needs at least, and takes at most."""
BUSY = 0.5
"""A load of others, as a share of the cores, that is worth a word."""


def register(app: typer.Typer) -> None:
    @app.command("compare", help="A against B: the ratio with its interval, or that no difference can be seen.")
    def compare(
        file: Path = typer.Argument(None, help="A trial or sweep to run both ways; without it, records are compared."),
        logbook: Path = typer.Option(Path("logbook"), "--logbook", help="Folder of a logbook, or a file of records."),
        a: list[str] = typer.Option([], "--a", help="What makes it A: a setting, or field=value of a record; may be repeated."),
        b: list[str] = typer.Option([], "--b", help="What makes it B."),
        repeats: int = typer.Option(8, min=2, help="Runs of each, at most."),
        known_to: float = typer.Option(0.005, help="Enough when half of the ratio's interval is this share."),
        session: str = typer.Option(None, help="Name of this round of measurements."),
        launcher: str = LAUNCHER,
        config: Path = CONFIG,
        settings: list[str] = typer.Option([], "--set", help="Any value of the file, for A and B alike."),
        form: Path = FORMAT,
        as_json: bool = typer.Option(False, "--json", help="Print one JSON object; progress goes to stderr."),
    ) -> int:
        from seatrial.sweep import compare as versus

        if a == b:
            raise BadInput("--a and --b say the same: name what makes B differ, for example --b topology.precision=bf16")
        if file is None:
            groups = _recorded(logbook, a, b, form)
        else:
            groups = _run(file, logbook, a, b, repeats, known_to, session, launcher, config, settings)
        found = versus.all_together(groups)
        name_a, name_b = _name(a), _name(b)
        if as_json:
            print(json.dumps(_document(groups, found, name_a, name_b), ensure_ascii=False))
        else:
            _print(groups, found, name_a, name_b)
        return EXIT_GOOD if found is not None else EXIT_OTHER_OUTCOME


def _name(side: list[str]) -> str:
    """`environment.variables.LD_PRELOAD=x` is called LD_PRELOAD=x; nothing set is plain."""
    parts = [text.partition("=") for text in side if text.strip()]
    return " ".join(f"{path.rpartition('.')[2]}{sep}{value}" for path, sep, value in parts) or "plain"


def _run(file: Path, logbook: Path, a: list[str], b: list[str], repeats: int, known_to: float, session: str | None,
         launcher: str, config: Path | None, settings: list[str]) -> list[Any]:
    """More pairs until the ratio is known or the repeats are spent. A pair that the logbook has is not run again."""
    from seatrial import fields, trialfile
    from seatrial.launch.registry import opened
    from seatrial.logbook import Logbook
    from seatrial.sweep import compare as versus
    from seatrial.sweep.controller import Controller
    from seatrial.sweep.progress import listener_for
    from seatrial.sweep.store import Store

    data = trialfile.tables_of(file)
    for setting in settings:
        fields.assign(data, setting)
    groups: list[Any] = []
    with Logbook(logbook, create=True) as book, opened(launcher, config) as chosen:
        pairs = min(repeats, FEWEST)
        while True:
            sweep = versus.in_turns(data, a=a, b=b, repeats=pairs, name="compare")
            store = Store(book, session or f"compare-{fields.digest([sorted(a), sorted(b)], length=6)}")
            with listener_for(sys.stderr) as listener:
                Controller(sweep, store, chosen, listener).run()
            groups = versus.measured_in_turns(sweep, store)
            found = [group.comparison for group in groups]
            if pairs >= repeats or not any(c is not None and c.half_width > known_to for c in found):
                return groups
            pairs = min(repeats, pairs + STEP)


def _recorded(logbook: Path, a: list[str], b: list[str], form: Path | None = None) -> list[Any]:
    from seatrial.report.read import read, say_unread
    from seatrial.sweep import compare as versus
    from seatrial.tables.choose import values

    if not a or not b:
        raise BadInput("without a file, --a and --b choose records: for example --a session=monday --b session=tuesday")
    records, unread = read([logbook], format=form)
    say_unread(unread)
    rows = [({**values(record), **{f"env.{name}": text for name, text in record.env.items()}}, record.to_dict())
            for record in records]
    where_a, where_b = (dict(_filter(text, rows, logbook) for text in side) for side in (a, b))
    sides = [[data for known, data in rows if all(known.get(name) == value for name, value in where.items())]
             for where in (where_a, where_b)]
    for side, found in zip((a, b), sides):
        if not found:
            raise BadInput(f"{logbook}: none of {len(rows)} rows has {' and '.join(side)}; {_there(side, rows)}")
    groups = versus.side_by_side_or_near(*sides, apart=[_record_name(name) for name in (*where_a, *where_b)])
    if not groups:
        raise BadInput(f"{logbook}: no configuration was measured both with {' '.join(a)} and with {' '.join(b)}: they differ "
                       "in too much else; say more of each side, as --a tp=1 --a dp=2")
    return groups


def _record_name(name: str) -> str:
    from seatrial.columns import BY_FIELD

    return BY_FIELD[name].name if name in BY_FIELD else name


def _there(side: list[str], rows: list[Any]) -> str:
    """Of the first field that is asked for, the values that there are."""
    name = side[0].partition("=")[0].strip()
    seen = sorted({str(known[name]) for known, _ in rows if name in known})
    return f"{name} is there as {', '.join(seen[:8])}{' …' if len(seen) > 8 else ''}" if seen else f"no row says its {name}"


def _filter(text: str, rows: list[Any], logbook: Path) -> tuple[str, Any]:
    """A name of the table (a field, its heading, an axis, env.NAME) and what it is to be."""
    from seatrial.fields import nearest
    from seatrial.tables.choose import names
    from seatrial.tables.codec import HEADINGS

    name, sep, value = text.partition("=")
    if not sep or not name.strip():
        raise BadInput(f"{text!r}: expected field=value, as session=monday; an empty value means a field that is not there")
    headings = {heading.lower(): field for field, heading in HEADINGS.items()}
    name = headings.get(name.strip().lower(), name.strip())
    there = {known for row, _ in rows for known in row}
    if name not in there and name not in names() and not name.startswith("env."):
        raise BadInput(f"{logbook}: no row has a field {name!r}; {nearest(name, there)}")
    if not value.strip():
        return name, None
    try:
        found = parse_json(value)
    except ValueError:
        return name, value.strip()
    return name, int(found) if isinstance(found, bool) else value.strip() if name.startswith("env.") else found


def _print(groups: list[Any], found: Any, a: str, b: str) -> None:
    for group in groups:
        one = group.comparison
        label = f"{group.label}: " if group.label and len(groups) > 1 else ""
        if one is not None:
            print(f"{label}{one.sentence(a, b)}")
        for side, name in (("a", a), ("b", b)):
            for status, count in group.failed[side].items():
                print(f"{label}{name}: {status} in {count} of {group.ran[side]} repeats")
    for group in groups:
        if group.also:
            label = f"{group.label}: " if group.label and len(groups) > 1 else ""
            print(f"{label}{a} and {b} also differ in " + ", ".join(
                f"{name} ({one} and {other})" for name, (one, other) in group.also.items()))
    _draw(groups, found, a, b)
    busy = max((group.busy for group in groups), default=0.0)
    if busy > BUSY:
        print(f"note: others used this machine meanwhile (load {busy:.1f} times its cores at worst): a quiet one needs fewer "
              "repeats and sees smaller differences")
    if found is None:
        print(f"{a} and {b} cannot be compared: one of them was never measured")
    elif len(groups) > 1:
        print(f"all {len(groups)} configurations: {found.sentence(a, b)}")


def _draw(groups: list[Any], found: Any, a: str, b: str) -> None:
    """One configuration: every repeat of both sides. And of each configuration the ratio, beside what was forecast."""
    import statistics

    from seatrial import terminal

    drawn = [group for group in groups if group.comparison is not None]
    cells = min(terminal.width(), WIDEST)
    if not drawn or cells < NARROWEST:
        return
    print()
    if len(drawn) == 1:
        sides = {a: drawn[0].a, b: drawn[0].b}
        label = min(max(map(len, sides)), cells // 4)
        axis = terminal.Axis(min(map(min, sides.values())), max(map(max, sides.values())), cells - label - 24)
        for (name, values), colour in zip(sides.items(), ("blue", "yellow")):
            middle = statistics.median(values)
            terminal.painted([(f"{name[:label]:<{label}}  ", ""), (axis.dots(values, middle), colour),
                              (f"  {terminal.digits(middle)} s per sample", "")])
        print()
    alike = set.intersection(*(set(group.label.split()) for group in drawn))
    rows = [(" ".join(word for word in group.label.split() if word not in alike) if len(drawn) > 1 else "ratio",
             group.comparison, group.forecast_ratio) for group in drawn]
    if len(drawn) > 1:
        rows.append(("all", found, None))
    ends = [1.0, *(end for _, one, seen in rows for end in (one.ratio, *_ends(one), *([seen] if seen else [])))]
    span = max(ends) - min(ends) or 0.02
    label = min(max(len(name) for name, _, _ in rows), cells // 3)
    axis = terminal.Axis(min(ends) - 0.03 * span, max(ends) + 0.03 * span, cells - label - 24)
    for name, one, seen in rows:
        marks = {1.0: "┆"} | ({seen: "○"} if seen else {})
        line = axis.interval(one.low, one.ratio, one.high, marks=marks) if one.known else axis.point(one.ratio, marks=marks)
        terminal.painted([(f"{name[:label]:<{label}}  ", ""), (line, "blue"), (f"  {one.ratio:.3f}", "")])
    forecast = ", ○ as forecast" if any(seen for _, _, seen in rows) else ""
    print(f"{b} over {a}: ● the ratio in its 95 % interval, ┆ equal{forecast}")


def _ends(one: Any) -> tuple[float, ...]:
    return (one.low, one.high) if one.known else ()


def _document(groups: list[Any], found: Any, a: str, b: str) -> dict[str, Any]:
    return {"a": a, "b": b, **_figures(found),
            "groups": [{"label": g.label, **_figures(g.comparison), "seconds_a_sample": {"a": g.a, "b": g.b},
                        "forecast_ratio": g.forecast_ratio,
                        "also": {name: list(pair) for name, pair in g.also.items()},
                        "failed": g.failed, "ran": g.ran, "busy": round(g.busy, 2), "in_turns": g.in_turns} for g in groups]}


def _figures(found: Any) -> dict[str, Any]:
    if found is None:
        return {"ratio": None, "low": None, "high": None, "verdict": "not measured"}
    return {"ratio": found.ratio, "low": found.low if found.known else None, "high": found.high if found.known else None,
            "confidence": 0.95, "repeats": list(found.counts), "verdict": found.verdict}
