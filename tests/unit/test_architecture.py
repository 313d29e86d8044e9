"""What holds the house: who may import whom, what is listed once, and docstrings that show what the code takes."""
from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from seatrial import columns

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
FILES = {".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
         for path in sorted(SOURCE.rglob("*.py"))}  # fmt: skip
RING = ("seatrial.engine", "seatrial.probe.__main__", "seatrial.probe.run")
"""What runs on a cluster's image: PyTorch and the standard library, whatever it imports included."""
GIVEN = {"torch", "triton"} | sys.stdlib_module_names


class Import(NamedTuple):
    module: str
    """Of ours the module itself, of others the package's name."""
    name: str
    """What is taken from it, or nothing."""
    lazy: bool
    """Inside a function."""


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


@cache
def imports(module: str) -> list[Import]:
    """All that run, so without those for types alone."""
    found: list[Import] = []

    def visit(node: ast.AST, lazy: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, "", lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.append(Import(inner, "", lazy) if inner in FILES else Import(node.module or "", alias.name, lazy))
        for child in ast.iter_child_nodes(node):
            visit(child, lazy or isinstance(node, ast.FunctionDef | ast.Lambda))

    visit(tree(module), False)
    return found


def ours(module: str, *, lazy: bool) -> set[str]:
    """Modules of ours that it imports; a module runs its packages' __init__ first."""
    named = {one.module for one in imports(module) if one.module.startswith("seatrial") and (lazy or not one.lazy)}
    all_ = {".".join(name.split(".")[:depth]) for name in named for depth in range(1, name.count(".") + 2)}
    return all_ & FILES.keys() - {module}


def reachable(start: str, *, lazy: bool) -> dict[str, str]:
    """Module -> who imports it, of all that `start` comes to import."""
    found, open_ = {start: ""}, [start]
    while open_:
        here = open_.pop()
        for module in ours(here, lazy=lazy):
            if module not in found:
                found[module] = here
                open_.append(module)
    return found


def test_the_engine_needs_torch_and_the_standard_library_alone():
    wrong = set()
    for start in (module for module in FILES if module.startswith(RING)):
        for module, importer in reachable(start, lazy=False).items():
            wrong |= {f"{module} (imported by {importer}) imports {one.module}" for one in imports(module)
                      if not one.lazy and one.module.split(".")[0] not in GIVEN | {"seatrial"}}
    assert not wrong


def test_the_engines_core_knows_no_kernel():
    wrong = {f"{module} imports {one.module}" for module in FILES if module.startswith("seatrial.engine.core")
             for one in imports(module) if one.module.startswith(("seatrial.engine.fast", "triton"))}
    assert not wrong


@pytest.mark.parametrize("lazy", [False, True], ids=["at import", "with lazy imports"])
def test_there_is_no_import_cycle(lazy):
    graph = {module: ours(module, lazy=lazy) for module in FILES}
    if lazy:
        # The command line imports its commands when it is asked for one, and they ask it for its list: by design.
        graph = {module: found for module, found in graph.items()
                 if not module.startswith(("seatrial.cli", "seatrial.commands"))}
    done: set[str] = set()

    def follow(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module):], module])
        if module not in done:
            # A package's __init__ is there before its modules are: only what it imports itself counts as its edge.
            for other in sorted(graph.get(module, ())):
                if not module.startswith(f"{other}."):
                    follow(other, (*path, module))
            done.add(module)

    for module in graph:
        follow(module, ())


def test_no_module_takes_another_packages_private_names():
    def package(module: str) -> str:
        return module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]

    def private(name: str) -> bool:
        return name.startswith("_") and not name.startswith("__")

    wrong = {f"{module} takes {one.module}.{one.name}" for module in FILES for one in imports(module)
             if one.module in FILES and private(one.name) and package(one.module) != package(module)}
    for module in FILES:
        known = {one.module.rpartition(".")[2]: one.module for one in imports(module) if one.module in FILES and not one.name}
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and private(node.attr):
                other = known.get(node.value.id)
                if other is not None and package(other) != package(module):
                    wrong.add(f"{module} uses {other}.{node.attr}")
    assert not wrong


KNOBS = {"dp", "tp", "pp", "vp", "mbs", "zero", "recompute", "schedule"}
LISTED = 8
"""Places that may: where the knobs mean something."""


def places() -> Iterator[str]:
    """Stretches of four lines that name five or more knobs of the layout."""
    for path in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.js"), *SOURCE.rglob("*.j2")]):
        lines, at = path.read_text(encoding="utf-8").splitlines(), 0
        while at < len(lines):
            words = set(re.findall(r"(?<![A-Za-z_])[a-z]+(?:_stage)?(?![A-Za-z_])", "\n".join(lines[at : at + 4])))
            if len(KNOBS & {"zero" if word == "zero_stage" else word for word in words}) >= 5:
                yield f"{path.relative_to(SOURCE)}:{at + 1}"
                at += 6
            else:
                at += 1


def test_the_knobs_of_a_layout_are_listed_in_one_place():
    found = list(places())
    assert len(found) <= LISTED, "\n".join(found)


def test_every_column_has_one_name_for_each_thing():
    names = defaultdict(set)
    for name, column in columns.COLUMNS.items():
        for alias in column.about.names:
            names[alias].add(name)
    assert not {alias: found for alias, found in names.items() if len(found) > 1}
    labels = [column.label for column in columns.COLUMNS.values()]
    assert len(labels) == len(set(labels))


def usage() -> Iterator[tuple[str, str, str]]:
    """Calls in the examples of module docstrings whose function is in that module: (module, line, what does not fit)."""
    for module in FILES:
        text = ast.get_docstring(tree(module), clean=False) or ""
        known: dict[str, tuple[ast.arguments, int]] = {}
        for node in tree(module).body:
            if isinstance(node, ast.FunctionDef):
                known[node.name] = (node.args, 0)
            elif isinstance(node, ast.ClassDef):
                init = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
                if init is not None:
                    known[node.name] = (init.args, 1)
        for line in text.splitlines():
            if not line.startswith("    "):
                continue
            shown = re.split(r"\s{3,}", line.strip())[0].replace("…", "...")
            shown = re.sub(r"^with (.*) as .*:$", r"\1", shown)
            shown = re.sub(r"^(?:for|while) .*? in (.*):.*$", r"\1", shown)
            try:
                parsed = ast.parse(shown)
            except SyntaxError:
                continue
            for call in ast.walk(parsed):
                if isinstance(call, ast.Call):
                    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
                    if name in known:
                        yield module, shown, unfit(call, *known[name])


def unfit(call: ast.Call, taken: ast.arguments, skipped: int) -> str:
    if any(isinstance(arg, ast.Constant) and arg.value is ... for arg in call.args):
        return ""
    places = [a.arg for a in taken.posonlyargs + taken.args][skipped:]
    named = [a.arg for a in taken.kwonlyargs]
    given = {k.arg for k in call.keywords}
    if len(call.args) > len(places) and not taken.vararg and not any(isinstance(a, ast.Starred) for a in call.args):
        return f"{len(call.args)} arguments for {len(places)}"
    if unknown := sorted(name for name in given if name and name not in places + named and not taken.kwarg):
        return f"takes no {', '.join(unknown)}"
    needed = [*places[: len(places) - len(taken.defaults)][len(call.args) :],
              *(name for name, default in zip(named, taken.kw_defaults) if default is None)]
    missing = [name for name in needed if name not in given]
    return f"needs {', '.join(missing)}" if missing and None not in given else ""


def test_examples_in_docstrings_are_calls_that_work():
    shown = list(usage())
    assert len(shown) > 100
    assert not [(module, line, why) for module, line, why in shown if why]
