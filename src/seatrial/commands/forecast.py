"""`seatrial forecast` and `seatrial calibrate`: a table of trials forecast row by row, and what measured rows teach.

    seatrial forecast rows.csv --cluster jz-a100 -o forecast.csv
    seatrial forecast sweep.toml
    seatrial forecast rows.csv --cluster jz-a100 --calibrate measured.csv -o forecast.csv
    seatrial calibrate measured.csv --cluster jz-a100 -o calibration.json
    seatrial forecast rows.csv --cluster jz-a100 --calibrate calibration.json
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seatrial.commands.plan import say_gaps
from seatrial.options import CALIBRATE, FORMAT, HEADROOM, JSON, MACHINE, engine
from seatrial.terminal import say

if TYPE_CHECKING:
    from seatrial.plan.calibrate import Calibration


def register(app: typer.Typer) -> None:
    @app.command("forecast", help="Forecast each row of a CSV table: seconds, TFLOPs, memory, whether it fits.")
    def forecast(
        rows: Path = typer.Argument(None, help="CSV of trials, notes, logs, a logbook, or a sweep.", metavar="ROWS.csv"),
        cluster: str | None = typer.Option(None, help="Name of a cluster, or a TOML file with a [cluster] table; a sweep has "
                                                      "its own.", show_default="jz-a100"),
        machine: Path | None = MACHINE,
        engine: str | None = engine("megatron-deepspeed", "Who trains where a row does not say"),
        headroom: str | None = HEADROOM,
        calibrate: Path | None = CALIBRATE,
        form: Path | None = FORMAT,
        output: Path = typer.Option(None, "--output", "-o", help="Where to write; else to the screen.", metavar="OUT.csv"),
        defaults: bool = typer.Option(False, help="Print what an empty cell of each column means, and stop."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
    ) -> int:
        from seatrial.engines import engine_name
        from seatrial.errors import EXIT_GOOD, BadInput
        from seatrial.plan import calibrate as learning
        from seatrial.plan import forecast as forecasting
        from seatrial.plan.odds import Headroom
        from seatrial.plan.rows import DEFAULTS
        from seatrial.report.read import say_unread

        if defaults:
            if as_json:
                print(json.dumps(DEFAULTS))
            else:
                say("\n".join(f"{name:32} {meant}" for name, meant in DEFAULTS.items()), 33)
            return EXIT_GOOD
        if rows is None:
            raise BadInput("which table? seatrial forecast ROWS.csv --cluster NAME -o OUT.csv")
        assume = {} if engine is None else {"engine": engine_name(engine)}
        table, here = forecasting.table_of(rows, cluster, machine, assume, format=form)
        fit = learning.cold(here) if calibrate is None else learning.from_file(calibrate, here)
        made = forecasting.columns(table, fit, Headroom.read(headroom))
        rejected = sum(line["forecast_reject"] != "" for line in made)
        if output is not None:
            forecasting.write(output, table, made)
        if table.ignored:
            say(f"{rows}: nothing reads {', '.join(table.ignored)}", to=sys.stderr)
        say_unread(table.unread)
        lines = [{**row.cells, **line} for row, line in zip(table.rows, made)]
        document = {"rows": lines, "rejected": rejected, "learned": fit.describe() if fit.rows else None,
                    **forecasting.rests_on(table, here)}
        say_gaps(document)
        if as_json:
            print(json.dumps(document))
        elif output is None:
            _screen(table.header, lines, forecasting.COLUMNS)
        _doubts(fit)
        where = f", written to {output}" if output is not None else ""
        print(f"{len(made)} rows, {rejected} rejected{where}", file=sys.stderr)
        return EXIT_GOOD

    @app.command("calibrate", help="Say what measured rows teach about a cluster, and which of them were not believed.")
    def calibrate_command(
        rows: Path = typer.Argument(..., help="Measured rows: CSV, notes, logs, or the folder of a logbook.",
                                    metavar="ROWS.csv"),
        cluster: str = typer.Option("jz-a100", help="Name of a cluster, or a TOML file with a [cluster] table."),
        machine: Path | None = MACHINE,
        form: Path | None = FORMAT,
        output: Path | None = typer.Option(None, "--output", "-o", metavar="FILE.json", show_default=False, help=(
            "Keep what was learned; --calibrate FILE.json of plan, forecast, explain, tune and report reads it.")),
        as_json: bool = JSON,
    ) -> int:
        from seatrial.errors import EXIT_GOOD
        from seatrial.plan import calibrate as learning
        from seatrial.plan.forecast import cluster_of
        from seatrial.report.read import say_unread

        fit = learning.from_file(rows, cluster_of(cluster, machine), format=form)
        found = fit.describe()
        if output is not None:
            fit.save(output)
        if as_json:
            print(json.dumps(found))
            return EXIT_GOOD
        print(f"{found['rows']} rows; one differs from the fit by {found['noise_percent']} % (scale of Student's t)")
        print(f"  of this a session never seen gets {found['carried_percent']} %: the rest may be how sessions differ")
        for name, value in found["learned"].items():
            print(f"  {name:52} x {value['factor']:<8} ± {value['percent']} %")
        _doubts(fit)
        if fit.ignored:
            say(f"{rows}: nothing reads {', '.join(fit.ignored)}", to=sys.stderr)
        say_unread(fit.unread)
        if output is not None:
            print(f"written to {output}", file=sys.stderr)
        return EXIT_GOOD


REJECT = "forecast_reject"
SPARE = ("mem_lo", "mem_hi", "fit_odds", "engine", "hidden", "tflops", "nodes", "layers", "sec_lo", "sec_hi")
"""What a narrow terminal does without, first to last."""


def _doubts(fit: Calibration) -> None:
    for doubt in fit.doubted:
        say(f"not believed: {doubt.where}: {doubt.measured_s:.5g} s where {doubt.expected_s:.4g} s were expected",
            to=sys.stderr)


def _screen(header: tuple[str, ...], lines: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """The trial, what tells it from the others, and the forecast; why there is none stands below on a terminal."""
    from seatrial.terminal import fitting, plain_table

    own = [c for c in ("trial", "nodes", "layers", "hidden", "dp", "tp", "pp", "cp", "mbs", "gbs") if c in header]
    if "trial" in own:
        own = [c for c in own if c == "trial" or len({line.get(c, "") for line in lines}) > 1]
    made = [c for c in columns if any(line.get(c) for line in lines)]
    shown = dict(zip([*own, *made], [*own, *(c.removeprefix("forecast_") for c in made)]))
    why: dict[str, list[str]] = {}
    if sys.stdout.isatty() and shown.pop(REJECT, None):
        shown = {"#": "#", **shown}
        for number, line in enumerate(lines, 1):
            line["#"] = str(number)
            if line[REJECT]:
                why.setdefault(line[REJECT], []).append(str(number))
    headers, cells, said = fitting(list(shown.values()), [[str(line.get(c, "")) for c in shown] for line in lines],
                                   alike=shown.values(), spare=SPARE)
    print(plain_table(headers, cells, left=[n for n, c in enumerate(headers) if c in ("trial", "reject")]))
    for reason, numbers in why.items():
        say(f"{', '.join(numbers)}: {reason}")
    if said:
        say(said)
