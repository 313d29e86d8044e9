"""`seatrial serve`: the report live, while a sweep or a tune runs.

    seatrial serve book
    seatrial serve book --host 0.0.0.0                  others on the network, with the token that is printed
"""
from __future__ import annotations

import re
import secrets
import threading
from pathlib import Path

import typer

from seatrial.commands.report import ASSUME, CLUSTER, TITLE
from seatrial.errors import EXIT_GOOD, BadInput

SHORTEST_TOKEN = 16
TOKEN = re.compile(rf"[A-Za-z0-9_-]{{{SHORTEST_TOKEN},200}}")


def register(app: typer.Typer) -> None:
    @app.command("serve", help="The report live in a browser, while a sweep or a tune runs, with a planner and remarks.")
    def serve(
        logbook: Path = typer.Argument(..., metavar="LOGBOOK", help="Folder of the logbook."),
        port: int = typer.Option(8765, min=0, max=65535, help="0 takes any that is free."),
        host: str = typer.Option("127.0.0.1", help="Address to listen on; beyond this machine it answers only to a token."),
        token: str | None = typer.Option(None, envvar="SEATRIAL_TOKEN", show_default=False,
                                         help="What readers must know; made up where it is needed and not given."),
        title: str | None = TITLE,
        cluster: list[str] = CLUSTER,
        assume: list[str] = ASSUME,
        tokens: str | None = typer.Option(None, help="Tokens of the whole run, as 300B, for its price.", show_default=False),
    ) -> int:
        from seatrial.plan.request import number
        from seatrial.report.forecasts import Clusters
        from seatrial.report.serve import Server, is_loopback
        from seatrial.report.source import Source

        if token is not None and not TOKEN.fullmatch(token):
            raise BadInput(f"--token: {len(token)} letters; it takes {SHORTEST_TOKEN} or more, of letters, digits, - and _")
        if token is None and not is_loopback(host):
            token = secrets.token_urlsafe(24)
        count = None if tokens is None else number("tokens", tokens)
        source = Source(logbook, title=title or f"Trials of {logbook.resolve().name}", clusters=Clusters.read(cluster, assume),
                        tokens=count)
        server = Server((host, port), source, token=token or "")
        try:
            print(*server.addresses, sep="\n", flush=True)
            # Read while the reader goes to the browser: 20,000 rows take seconds.
            threading.Thread(target=source.current, name="first", daemon=True).start()
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return EXIT_GOOD
        finally:
            server.server_close()
            source.close()
        return EXIT_GOOD
