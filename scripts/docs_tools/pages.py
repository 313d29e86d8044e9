"""A page as blocks: fenced code with where it stands and what the comments above it ask for.

    page = read(Path("README.md"))
    page.blocks[0].language, page.blocks[0].line, page.blocks[0].asks       "console", 28, {"exit": "1"}
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

ASK = re.compile(r"^<!-- docs: (?P<word>[a-z]+)(?: (?P<rest>.*\S))? -->\s*$")
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[^`]*)$")
OF_BLOCK = ("file", "measured", "exit", "instead")
OF_PAGE = ("after", "insert", "needs")


@dataclass(frozen=True, kw_only=True)
class Block:
    language: str
    line: int
    """Of the first line inside the fence, counted from 1."""
    text: str
    asks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Page:
    path: Path
    text: str
    blocks: tuple[Block, ...]
    after: Path | None = None
    needs: str = ""
    """The engine without which its commands cannot be run."""

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT)) if self.path.is_relative_to(ROOT) else self.path.name


def all_pages() -> list[Path]:
    """Everything that a reader is sent to, in reading order."""
    docs = [path for path in sorted(DOCS.rglob("*.md")) if not path.relative_to(DOCS).parts[0].startswith("_")]
    return [ROOT / "README.md", *docs, *sorted((ROOT / "examples").glob("*/README.md"))]


def read(path: Path) -> Page:
    return parse(path.read_text(encoding="utf-8"), path)


def parse(text: str, path: Path) -> Page:
    blocks: list[Block] = []
    asks: dict[str, str] = {}
    after: Path | None = None
    needs = ""
    opened: tuple[str, str, int] | None = None
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is not None:
            ticks, language, start = opened
            if fence and not fence["language"].strip() and len(fence["ticks"]) >= len(ticks):
                blocks.append(Block(language=language, line=start, text="\n".join(inside), asks=asks))
                opened, inside, asks = None, [], {}
            else:
                inside.append(line)
        elif fence:
            opened = (fence["ticks"], fence["language"].strip(), number + 1)
        elif ask := ASK.match(line):
            word, rest = ask["word"], ask["rest"] or ""
            if word == "after":
                after = (path.parent / rest).resolve()
            elif word == "needs":
                needs = rest
            elif word in OF_BLOCK:
                asks[word] = rest
            elif word not in OF_PAGE:
                raise ValueError(f"{path}:{number}: docs: {word}: not one of {', '.join((*OF_BLOCK, *OF_PAGE))}")
        elif line.strip() and asks:
            raise ValueError(f"{path}:{number}: docs: {', '.join(asks)}: a fenced block must follow")
    if opened is not None or asks:
        raise ValueError(f"{path}: a fence is not closed, or a comment has no block after it")
    return Page(path=path, text=text, blocks=tuple(blocks), after=after, needs=needs)


def prose(text: str) -> list[tuple[int, str]]:
    """(line number, line) outside fenced blocks and comments."""
    found, ticks, comment = [], "", False
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if ticks:
            if fence and not fence["language"].strip() and len(fence["ticks"]) >= len(ticks):
                ticks = ""
        elif fence:
            ticks = fence["ticks"]
        elif comment or line.lstrip().startswith("<!--"):
            comment = "-->" not in line
        else:
            found.append((number, line))
    return found
