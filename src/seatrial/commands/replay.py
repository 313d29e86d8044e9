"""`seatrial replay`: a search that was made by hand, told again with the planner beside it.

    seatrial replay bloom-prequel
    seatrial replay my-rows.csv --cluster my-cluster --markdown > story.md
"""
from __future__ import annotations

import json
from pathlib import Path

import typer

from seatrial.errors import EXIT_GOOD, BadInput
from seatrial.options import FORMAT

WHAT = "A log that comes with the package (bloom-prequel), or a file of measured rows: CSV, notes, logs."


def register(app: typer.Typer) -> None:
    @app.command("replay", help="Tell a search of the past again: what was known when, which trials could be left out.")
    def replay(
        log: str = typer.Argument(..., help=WHAT),
        cluster: str | None = typer.Option(None, "--cluster", help="Where the rows were measured, if they do not say.",
                                           show_default=False),
        form: Path | None = FORMAT,
        as_markdown: bool = typer.Option(False, "--markdown", help="Print the story as markdown."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
    ) -> int:
        from seatrial.report.read import say_unread
        from seatrial.tune import replay as replaying

        if as_json and as_markdown:
            raise BadInput("--json and --markdown: one of them")
        story = replaying.tell(log, cluster=cluster, format=form)
        say_unread(story["unread"])
        if as_json:
            print(json.dumps(story, ensure_ascii=False, allow_nan=False))
        else:
            print(replaying.markdown(story) if as_markdown else replaying.text(story))
        return EXIT_GOOD
