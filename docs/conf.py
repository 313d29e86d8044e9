"""How the site is built: `make docs` writes it to site/, and a warning is an error.

Its source is the repository itself, so that links between docs/ and examples/ are the same here and on a forge.
The pages are Markdown that any forge shows as it is; tables of commands and fields are put in from the code (`docs_tools`).
"""
from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "src")]

from docs_tools import insert  # noqa: E402
from seatrial import __version__  # noqa: E402

project = "seatrial"
release = version = __version__
language = "en"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = ["docs/**", "examples/*/README.md"]
exclude_patterns = [".*", "site", "dist", "build", "demo-out", "src", "tests", "benchmarks", "scripts"]
nitpicky = True
smartquotes = False
"""Two hyphens begin an option, and are no dash."""

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"seatrial {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_extra"]
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
suppress_warnings = ["misc.highlighting_failure"]
"""A console block holds whatever a command prints; a lexer that stumbles over it is no fault of the page."""


def _insert(_app: Sphinx, _name: str, source: list[str]) -> None:
    source[0] = insert.expand(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _insert)
    return {"parallel_read_safe": True}
