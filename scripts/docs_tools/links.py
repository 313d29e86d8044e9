"""Where pages point: other pages, their headings, files of the repository, commands and their options.

    dead(Path("docs/tour.md"))          "docs/tour.md:12: probe.md#speed: no such heading", …
    unknown(Path("docs/tour.md"))       "docs/tour.md:20: `seatrial plan --fast`: no such option", …

Addresses of the network are left alone: whether they answer is not for a test to depend on.
"""
from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

from docs_tools import insert
from docs_tools.pages import DOCS, ROOT, prose, read

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^()\s]+)\)|(?:src|href)=\"(?P<attribute>[^\"]+)\"")
CODE = re.compile(r"`([^`]+)`")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
PLACES = ("src/", "docs/", "examples/", "scripts/", "tests/", "benchmarks/")
"""A code span that begins so is a path of the repository."""


def slug(heading: str) -> str:
    """The anchor of a heading, as forges and MyST make it."""
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda m: m[1] or "", heading)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    found: dict[str, int] = {}
    names = set()
    for _, line in prose(insert.expand(path.read_text(encoding="utf-8"))):
        if heading := HEADING.match(line):
            name = slug(heading[1])
            names.add(f"{name}-{found[name]}" if name in found else name)
            found[name] = found.get(name, 0) + 1
    return frozenset(names)


def dead(path: Path) -> list[str]:
    found = []
    for number, line in prose(path.read_text(encoding="utf-8")):
        for link in LINK.finditer(re.sub(r"`[^`]*`", "``", line)):
            target = link["target"] or link["attribute"]
            if reason := _dead(path, target):
                found.append(f"{path.relative_to(ROOT)}:{number}: {target}: {reason}")
        for code in CODE.findall(line):
            if code.startswith(PLACES) and re.fullmatch(r"[\w./+-]+", code) and not (ROOT / code).exists():
                found.append(f"{path.relative_to(ROOT)}:{number}: `{code}`: no such file in the repository")
    return found


def _dead(path: Path, target: str) -> str:
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return ""
    name, _, anchor = target.partition("#")
    file = (path.parent / name).resolve() if name else path
    if not file.is_relative_to(ROOT):
        return "leaves the repository"
    if not file.exists():
        return "no such file"
    if path.is_relative_to(DOCS) and file.is_dir():
        return "is a folder, which the site cannot show; name a page in it"
    if anchor and (file.suffix != ".md" or anchor not in anchors(file)):
        return "no such heading"
    return ""


@cache
def _options() -> dict[str, frozenset[str]]:
    """Command -> its options."""
    import typer

    from seatrial.cli import build_app

    group = typer.main.get_command(build_app())
    return {name: frozenset({"--help", "-h", *(o for p in command.params for o in (*p.opts, *p.secondary_opts))})
            for name, command in group.commands.items()}  # type: ignore[attr-defined]


def unknown(path: Path) -> list[str]:
    """Commands that are named in running text or in a block that is not run, and that the command line does not have."""
    page = read(path)
    named = [(number, code) for number, line in prose(page.text) for code in CODE.findall(line)]
    for block in page.blocks:
        if block.language != "console":
            named += [(block.line + at, re.sub(r"^[\s$#]+", "", line)) for at, line in enumerate(block.text.splitlines())]
    found = []
    for number, text in named:
        if reason := _unknown(text):
            found.append(f"{path.relative_to(ROOT)}:{number}: `{text}`: {reason}")
    return found


def _unknown(text: str) -> str:
    if target := re.fullmatch(r"make ([a-z-]+)", text):
        return "" if re.search(rf"^{target[1]}:", (ROOT / "Makefile").read_text(), flags=re.M) else "no such target"
    if module := re.match(r"python3? -m (benchmarks(?:\.\w+)+)", text):
        path = ROOT / module[1].replace(".", "/")
        return "" if path.with_suffix(".py").exists() or (path / "__main__.py").exists() else "no such module"
    if not text.startswith("seatrial "):
        return ""
    try:
        words = shlex.split(text, comments=True)[1:]
    except ValueError:
        return ""
    if not words or words[0].startswith("-") or words[0].isupper():
        return ""
    if words[0] not in _options():
        return f"no such command as {words[0]}"
    for word in words[1:]:
        option = word.split("=")[0]
        if option.startswith("--") and option not in _options()[words[0]]:
            return f"{words[0]} has no {option}"
    return ""
