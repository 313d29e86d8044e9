"""`seatrial report`: a logbook as one page, and its pictures as files.

    seatrial report book -o report.html
    seatrial report book -o report.html --cluster jz-a100 --tokens 300B --plots figures
"""
from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from seatrial.errors import EXIT_GOOD, BadInput
from seatrial.files import save
from seatrial.options import FORMAT, engine

CLUSTER = typer.Option([], "--cluster", metavar="[TEXT=]NAME", show_default=False, help=(
    "The machine to forecast rows on that name none: a preset or a TOML file; TEXT=NAME for rows of files, sessions or "
    "machines with TEXT in their name. May be repeated."))
ASSUME = typer.Option([], "--assume", metavar="NAME=VALUE", show_default=False, help=(
    "What the forecast takes where a row does not say, as recompute=full or seq=2048. May be repeated."))
ENGINE = engine("megatron-deepspeed", "Who trained, where a row does not say")
TITLE = typer.Option(None, help="Heading of the page.", show_default=False)


def register(app: typer.Typer) -> None:
    @app.command("report", help="A logbook as one page that opens anywhere, and its pictures as files.")
    def report(
        sources: list[Path] = typer.Argument(..., metavar="LOGBOOK...", help="Logbooks, or files as `seatrial import` reads."),
        output: Path | None = typer.Option(None, "--output", "-o", help="The page to write.", show_default=False),
        plots: Path | None = typer.Option(None, metavar="DIR", show_default=False,
                                          help="Also write pictures (SVG, PNG) and the tables (markdown) here."),
        title: str | None = TITLE,
        cluster: list[str] = CLUSTER,
        assume: list[str] = ASSUME,
        engine: str | None = ENGINE,
        calibrate: Path | None = typer.Option(None, metavar="FILE.json", show_default=False,
                                              help="What `seatrial calibrate -o` wrote, for forecasts on its cluster."),
        tokens: str | None = typer.Option(None, help="Tokens of the whole run, as 300B, for its price.", show_default=False),
        price: float | None = typer.Option(None, min=0, help="Price of a device-hour.", show_default=False),
        lint: bool | None = typer.Option(None, "--lint/--no-lint", show_default=False,
                                         help="Look for doubts in imported rows; by default where they are not too many."),
        form: Path | None = FORMAT,
        as_json: bool = typer.Option(False, "--json", help="Print the data that the page is made from, as one JSON document."),
    ) -> int:
        """Exit status 0; lines that cannot be read are named on stderr and left out."""
        from seatrial.plan.request import number
        from seatrial.report import data, page
        from seatrial.report.forecasts import Clusters
        from seatrial.report.read import read, remarks

        if output is None and plots is None and not as_json:
            raise BadInput("nothing to write: say -o report.html, --plots DIR or --json")
        count = None if tokens is None else number("tokens", tokens)
        assume = assume if engine is None else [f"engine={engine}", *assume]
        clusters = Clusters.read(cluster, assume, [calibrate] if calibrate is not None else [])
        records, unread = read(sources, format=form)
        for line in unread:
            print(line, file=sys.stderr)
        book = next((path for path in sources if path.is_dir()), None)
        made = data.build(records, title=title or f"Trials of {sources[0].resolve().name}", clusters=clusters, book=book,
                          lint=lint, tokens=count, price=price, remarks=remarks(sources))
        if output is not None:
            text = page.html(made)
            save(output, text)
            print(f"{output}: {len(records)} records, {len(text.encode()) / 1e6:.2f} MB", file=sys.stderr)
        if plots is not None:
            from seatrial.report import plot

            written = plot.write(made, plots)
            print(f"{plots}: {len(written)} files", file=sys.stderr)
        if as_json:
            print(json.dumps(made.view, ensure_ascii=False, allow_nan=False))
        return EXIT_GOOD
