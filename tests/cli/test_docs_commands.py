"""Every command that README and docs show is run, and prints what they show. `scripts/docs-output --write` renews a page."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs_tools import console, pages

CHAINS = console.chains(pages.all_pages())


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chain", CHAINS, ids=[chain[0].name for chain in CHAINS])
def test_pages_show_what_their_commands_print(chain, tmp_path):
    if missing := console.lacking(chain):
        pytest.skip(missing)
    complaints = [complaint for result in console.run(chain, tmp_path / "folder") if (complaint := result.complaint())]
    assert not complaints, "\n\n".join(complaints)
    undocumented = {f"{kind}.{key}" for file in tmp_path.rglob("events*.jsonl") for kind, key in _keys(file)} - _documented()
    assert not undocumented, "docs/reference/events.md does not name these"


def _keys(file: Path) -> set[tuple[str, str]]:
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {(event["event"], key) for event in events for key in event if key not in ("event", "time")}


def _documented() -> set[str]:
    """kind.key, from the table of docs/reference/events.md: a kind holds for the rows below it."""
    found, kind = set(), ""
    for line in (pages.DOCS / "reference/events.md").read_text(encoding="utf-8").splitlines():
        if row := re.match(r"\| (?:`(\w+)`)? ?\| (.*?) ?\| ", line):
            kind = row[1] or kind
            found |= {f"{kind}.{key}" for key in re.findall(r"`(\w+)`", row[2])}
    return found
