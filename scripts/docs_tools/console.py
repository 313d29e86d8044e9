"""Runs the commands of a page in a folder of its own and holds what they print to what the page shows.

    for result in run(chain, folder):           `chain` are pages that go on in one folder (`chains()` makes them)
        result.complaint()                      "" or what is not as shown, with the page and the line

The folder holds what a fresh checkout has for a reader: examples/ and the files beside it. Commands run in bash with the
seatrial of this interpreter, without colours, with one thread a rank and a home of their own. What goes to stdout and stderr
comes in the order in which a terminal shows it.
"""
from __future__ import annotations

import difflib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from docs_tools import compare
from docs_tools.pages import ROOT, Block, Page, read

TIMEOUT_S = 600.0
HOST = "laptop"
"""Stands in pages where the machine's own name was printed."""


@dataclass(frozen=True)
class Command:
    text: str
    shown: str
    line: int
    """Where it stands in the page, counted from 1."""
    output_lines: tuple[int, int]
    """First line of what is shown, and the one after the last."""


@dataclass(frozen=True)
class Result:
    page: Page
    block: Block
    command: Command
    ran: str
    status: int
    wanted_status: int
    printed: str

    @property
    def compared(self) -> bool:
        return "instead" not in self.block.asks

    @property
    def as_shown(self) -> bool:
        return not self.compared or compare.matches(self.command.shown, self.printed, measured="measured" in self.block.asks)

    def complaint(self) -> str:
        where = f"{self.page.name}:{self.command.line}: $ {self.ran}"
        if self.status != self.wanted_status:
            return f"{where}\nended with {self.status}, not {self.wanted_status}:\n{self.printed}"
        if self.as_shown:
            return ""
        difference = difflib.unified_diff(compare.lines_of(self.command.shown), compare.lines_of(self.printed),
                                          "the page", "the command", lineterm="", n=1)
        return "\n".join([where, *difference, f"scripts/docs-output --write {self.page.name} puts it right"])


def commands(block: Block) -> list[Command]:
    """`$ ` begins a command, a backslash at the end of a line goes on with it, the rest is output."""
    found: list[Command] = []
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            if lines[at].strip():
                raise ValueError(f"line {block.line + at}: {lines[at]!r} stands before any command")
            at += 1
            continue
        start, text = at, lines[at][2:]
        while text.endswith("\\") and at + 1 < len(lines):
            at += 1
            text += "\n" + lines[at]
        at += 1
        begin = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        found.append(Command(text, "\n".join(lines[begin:at]), block.line + start, (block.line + begin, block.line + at)))
    return found


def chains(paths: Iterable[Path]) -> list[list[Page]]:
    """Pages with something to run, each group in the order in which they go on in one folder."""
    waiting = [read(path) for path in paths]
    groups: dict[Path, list[Page]] = {}
    while waiting:
        ready = [page for page in waiting if page.after is None or page.after in groups]
        if not ready:
            raise ValueError(f"docs: after: no such page, or a circle: {', '.join(page.name for page in waiting)}")
        for page in ready:
            group = groups[page.path] = groups[page.after] if page.after is not None else []
            group.append(page)
            waiting.remove(page)
    different = {id(group): group for group in groups.values()}.values()
    return [group for group in different if any(runs(block) for page in group for block in page.blocks)]


def lacking(chain: Iterable[Page]) -> str:
    """Why these pages cannot be run here: the engine that one of them is about is not installed. Empty where they can."""
    from seatrial.engines import homes

    missing = next((page for page in chain if page.needs and not homes.version(page.needs)), None)
    return "" if missing is None else f"{missing.name}: {missing.needs} is not here; make engines ENGINES={missing.needs}"


def runs(block: Block) -> bool:
    return block.language == "console" or "file" in block.asks


def run(pages: Iterable[Page], folder: Path) -> Iterator[Result]:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
    for name in ("Makefile", "constraints.txt", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("scripts", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    ran: dict[str, tuple[Path, int, str]] = {}
    for page in pages:
        for block in page.blocks:
            if "file" in block.asks:
                target = folder / block.asks["file"]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text + "\n", encoding="utf-8")
            elif block.language == "console":
                yield from _run_block(page, block, folder, ran)


def _run_block(page: Page, block: Block, folder: Path, ran: dict[str, tuple[Path, int, str]]) -> Iterator[Result]:
    """`ran` holds what the pages before this one ran: the same command is not run twice for two pages of one folder."""
    found = commands(block)
    for number, command in enumerate(found):
        last = number == len(found) - 1
        if "instead" in block.asks and not last:
            continue
        text = block.asks.get("instead", command.text)
        if text not in ran or ran[text][0] == page.path:
            ran[text] = (page.path, *_bash(text, folder))
        _, status, printed = ran[text]
        yield Result(page, block, command, text, status, int(block.asks.get("exit", 0)) if last else 0, printed)


KEPT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "PYENV_VERSION", "MEGATRON_DIR")


def _bash(text: str, folder: Path) -> tuple[int, str]:
    home = folder / ".home"
    home.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    env = {**kept, "HOME": str(home), "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "110", "TERM": "dumb",
           "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1",
           "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])}
    try:
        done = subprocess.run(["bash", "-c", text], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        return 124, f"{(error.stdout or b'').decode(errors='replace')}\nstill running after {TIMEOUT_S:g} s"
    printed = done.stdout.decode(errors="replace").replace(str(folder), ".")
    return done.returncode, re.sub(rf"\b{re.escape(platform.node())}\b", HOST, printed)
