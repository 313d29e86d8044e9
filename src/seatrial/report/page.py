"""The page: the template with the style, the script and the data put into it; one file that asks nobody for anything.

    Path("report.html").write_text(page.html(data.build(records, title="Round one")))

The browser is told by a Content-Security-Policy to run this one script and nothing else, whatever a record holds. Data stands
in script tags of type JSON, with every `<` escaped. Whole records are packed by the hundred and unpacked when a row is opened.
"""
from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

from seatrial.report.data import Made

STATIC = Path(__file__).with_name("static")
SCRIPTS = ("base.js", "save.js", "filter.js", "table.js", "answer.js", "charts.js", "more.js", "scatter.js", "detail.js",
           "compare.js", "address.js")
LIVE_SCRIPTS = ("live.js",)
RECORDS_A_CHUNK = 100


def html(made: Made) -> str:
    """The page of a logbook as it is now."""
    rows = range(len(made.records))
    parts = [rows[i : i + RECORDS_A_CHUNK] for i in range(0, len(rows), RECORDS_A_CHUNK)]
    chunks = [_packed([made.detail(row) for row in part]) for part in parts]
    return _render(made.view, {"each": RECORDS_A_CHUNK, "chunks": chunks}, live=False)


def live_html(view: dict[str, Any]) -> str:
    """The same page, which asks its own server for records and for news."""
    return _render(view, {}, live=True)


def policy(*, live: bool) -> str:
    """Nothing may be loaded; our own script and style may run; live, the page may ask its own server."""
    connect = "; connect-src 'self'" if live else ""
    return (f"default-src 'none'; script-src 'sha256-{_digest(script(live=live))}'; style-src 'sha256-{_digest(style())}'; "
            f"img-src data:; base-uri 'none'; form-action 'none'{connect}")


@functools.cache
def script(*, live: bool) -> str:
    names = [*SCRIPTS, *(LIVE_SCRIPTS if live else ()), "main.js"]
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in names)


@functools.cache
def style() -> str:
    return (STATIC / "page.css").read_text(encoding="utf-8")


def _render(view: dict[str, Any], details: dict[str, Any], *, live: bool) -> str:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((STATIC / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        title=view["title"], version=view["version"], live=live, policy=Markup(policy(live=live)), css=Markup(style()),
        script=Markup(script(live=live)), view=Markup(inline_json(view)), details=Markup(inline_json(details)),
    )  # fmt: skip


def inline_json(value: object) -> str:
    """JSON that cannot end the script tag it stands in, nor be read as a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(letter, escaped)
    # A lone surrogate is no letter in any file.
    return text.encode("utf-8", "replace").decode("utf-8")


def _packed(records: list[dict[str, Any]]) -> str:
    text = json.dumps(records, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), 9, mtime=0)).decode("ascii")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
