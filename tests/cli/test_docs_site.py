"""`make docs`: the site builds without a warning, every page is in it, and the generated tables are really there."""
from __future__ import annotations

import subprocess
import sys

from docs_tools import pages


def test_the_site_builds_without_a_warning(tmp_path):
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-c", str(pages.DOCS)]
    build += ["-d", str(tmp_path / "doctrees"), str(pages.ROOT), str(tmp_path / "site")]
    done = subprocess.run(build, capture_output=True, text=True, timeout=560, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for path in pages.all_pages()[1:]:
        assert (tmp_path / "site" / path.relative_to(pages.ROOT).with_suffix(".html")).exists()
    commands = (tmp_path / "site/docs/reference/commands.html").read_text(encoding="utf-8")
    assert 'id="plan"' in commands and "--recompute" in commands
    trial = (tmp_path / "site/docs/reference/trial-file.html").read_text(encoding="utf-8")
    assert "Grouped-query attention" in trial and "docs: insert" not in trial
