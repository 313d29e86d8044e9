"""Every page: what it points to is there, every command it names exists, and the reference says something of every key."""
from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path

import pytest

from docs_tools import insert, links, pages

PAGES = pages.all_pages()
RUN = ("console",)
SHOWN = ("text", "toml", "yaml", "python", "markdown", "json", "{toctree}")


@pytest.fixture(params=PAGES, ids=lambda path: str(path.relative_to(pages.ROOT)))
def path(request) -> Path:
    return request.param


def test_links_lead_somewhere(path):
    assert links.dead(path) == []


def test_commands_in_the_text_exist(path):
    assert links.unknown(path) == []


def test_every_block_says_what_it_is(path):
    """A block without a language, or of a shell's, would be a command that nobody runs."""
    blocks = pages.read(path).blocks
    assert [f"{block.line}: {block.language!r}" for block in blocks if block.language not in RUN + SHOWN] == []


def test_files_that_a_page_shows_are_what_they_claim_to_be(path):
    import tomllib

    for block in pages.read(path).blocks:
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "yaml":
            pytest.importorskip("yaml").safe_load(block.text)
        elif block.language == "python":
            ast.parse(block.text)


def test_every_key_of_the_files_that_people_write_has_a_meaning():
    empty = []
    for name in ("trial-file", "recipe", "sweep-file", "config"):
        asked = insert.fields_in(pages.DOCS / f"reference/{name}.md")
        assert asked
        for words in asked:
            rows = [line for line in insert.fields(*words).splitlines()[2:] if not line.startswith("| **")]
            empty += [f"{words[0]}: {row}" for row in rows if row.endswith("|  |")]
    assert empty == []


def test_every_event_of_the_engine_is_in_the_reference():
    """Kinds are found where the engine writes them; keys are those of a run's own file (see test_docs_commands)."""
    written = set()
    for source in (pages.ROOT / "src/seatrial/engine").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "write" and node.args
                    and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str) and node.keywords):
                written.add(node.args[0].value)
    assert {"start", "iteration", "end", "failure"} <= written
    table = (pages.DOCS / "reference/events.md").read_text(encoding="utf-8")
    assert written - set(re.findall(r"^\| `(\w+)` \|", table, flags=re.M)) == set()


def test_every_part_of_a_machine_file_is_in_the_reference():
    from seatrial.machine import PARTS

    page = (pages.DOCS / "reference/machine.md").read_text(encoding="utf-8")
    assert [part for part in PARTS if f"| `{part}` |" not in page] == []


def test_every_formula_of_tflops_is_in_the_reference():
    from seatrial.arith.flops import FORMULAS

    page = (pages.DOCS / "reference/glossary.md").read_text(encoding="utf-8")
    assert [formula for formula in FORMULAS if f"| `{formula}` |" not in page] == []


def test_every_command_is_in_the_reference():
    from seatrial.cli import command_modules

    text = insert.commands()
    assert len(command_modules()) > 10
    for name in links._options():
        assert f"### {name}\n" in text


def test_every_name_of_the_python_door_is_on_its_page_with_its_parameters():
    from seatrial import api

    page = (pages.DOCS / "python.md").read_text(encoding="utf-8")
    rows = {row[1]: row[2] for row in re.finditer(r"^\| `(\w+)` \| (.*?) \|", page, flags=re.M)}
    assert set(rows) == set(api.__all__)
    for name in api.__all__:
        if inspect.isfunction(function := getattr(api, name)):
            by_place, _, by_name = rows[name].partition(";")
            asked = inspect.signature(function).parameters.values()
            assert re.findall(r"`(\w+)`", by_place) == [p.name for p in asked if p.kind is p.POSITIONAL_OR_KEYWORD], name
            assert re.findall(r"`(\w+)`", by_name) == [p.name for p in asked if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)], name


def test_a_reference_that_the_site_completes_says_where_the_repository_has_it():
    for path in (pages.DOCS / "reference").glob("*.md"):
        for words in insert.fields_in(path):
            module = "src/" + words[0].rpartition(".")[0].replace(".", "/")
            source = f"{module}/" if (pages.DOCS.parent / module).is_dir() else f"{module}.py"
            assert f"`{source}`" in path.read_text(encoding="utf-8"), path.name
