"""What the reference takes from the code when the site is built: a line in a page, replaced by Markdown.

    <!-- docs: insert commands -->                       every command with its arguments and options
    <!-- docs: insert fields seatrial.spec.Model -->     a dataclass as a table: key, type, default, the docstring under it;
                                                         names after it: these fields alone
    <!-- docs: insert presets -->                        models and clusters that are known by name
    <!-- docs: insert pages Parts: tune probe -->        these pages in the navigation, those of them that are there
    <!-- docs: insert examples -->                       the folders of examples/ in the navigation
    <!-- docs: insert decisions -->                      the decisions in their order
    <!-- docs: insert modules -->                        the code's packages, each with the first line of its docstring

    expand(text)        the page with all of them replaced; the site and the check of links both ask this
"""
from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import typing
from collections.abc import Iterable
from pathlib import Path

from docs_tools.pages import ASK, DOCS, ROOT


def expand(text: str) -> str:
    return "\n".join(_inserted(line) for line in text.split("\n"))


def _inserted(line: str) -> str:
    ask = ASK.match(line)
    if not ask or ask["word"] != "insert":
        return line
    kind, _, rest = (ask["rest"] or "").partition(" ")
    if kind not in _KINDS:
        raise ValueError(f"docs: insert {kind}: not one of {', '.join(_KINDS)}")
    return _KINDS[kind](*rest.split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in lines)


def commands() -> str:
    import typer

    from seatrial import cli

    group = typer.main.get_command(cli.build_app())
    assert isinstance(group, cli.Screen)
    shown = {name: command for name, command in group.commands.items() if not command.hidden}
    groups = {**cli.GROUPS, "Other": tuple(sorted(set(shown).difference(*cli.GROUPS.values())))}
    parts = []
    for title, names in groups.items():
        here = [name for name in names if name in shown]
        if here:
            parts += [f"## {title}", *(_command(name, shown[name]) for name in here)]
    return "\n\n".join(parts)


def _command(name: str, command: typing.Any) -> str:
    import typer

    context = typer.Context(command, info_name=f"seatrial {name}")
    usage = " ".join(command.get_usage(context).removeprefix("Usage:").split())
    parts = [f"### {name}", *inspect.cleandoc(command.help or "").split("\f")[:1], f"```text\n{usage}\n```"]
    rows: dict[str, list[list[str]]] = {"argument": [], "option": []}
    for param in command.params:
        record = param.get_help_record(context)
        if record is not None and not getattr(param, "hidden", False):
            rows[param.param_type_name].append([f"`{_cell(record[0])}`", _escaped(record[1])])
    for kind, heads in (("argument", ["argument", "meaning"]), ("option", ["option", "meaning"])):
        if rows[kind]:
            parts.append(_table(heads, rows[kind]))
    if command.epilog:
        parts.append(_escaped(command.epilog))
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """Help is plain text: what Markdown would take for its own is shown as it is."""
    return re.sub(r"([\[\]<>*_])", r"\\\1", text)


def fields(dotted: str, *only: str) -> str:
    module_name, _, class_name = dotted.rpartition(".")
    cls = getattr(importlib.import_module(module_name), class_name)
    meanings, headings = _docstrings(cls)
    rows = []
    for field in dataclasses.fields(cls):
        if only and field.name not in only:
            continue
        if field.name in headings:
            rows.append([f"**{headings[field.name]}**", "", "", ""])
        rows.append([f"`{field.name}`", f"`{_type(field.type)}`", _default(field), _meaning(meanings.get(field.name, ""))])
    return _table(["key", "type", "default", "meaning"], rows)


def _meaning(docstring: str) -> str:
    """Docstrings are Markdown already in what matters: code in backticks. Angle brackets and stars are not meant as such."""
    return re.sub(r"([<*])", r"\\\1", docstring)


def _docstrings(cls: type) -> tuple[dict[str, str], dict[str, str]]:
    """Field -> the text under it; field -> the comment that stands above it as a heading."""
    source = inspect.cleandoc("\n" + inspect.getsource(cls))
    lines = source.splitlines()
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    meanings, headings = {}, {}
    for node, after in zip(body, [*body[1:], None]):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            meanings[node.target.id] = after.value.value
        above = lines[node.lineno - 2].strip()
        if above.startswith("# "):
            headings[node.target.id] = above[2:]
    return meanings, headings


def _type(annotation: object) -> str:
    """As a file has it: choices spelt out, what may be left out without its None, lists and tables."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    text = text.removesuffix(" | None")
    if inner := re.fullmatch(r"tuple\[(.*), \.\.\.\]", text):
        return f"list of {inner[1]}"
    if inner := re.fullmatch(r"dict\[str, (.*)\]", text):
        return "table" if inner[1] == "object" else f"table of {inner[1]}"
    from seatrial import launch, record, spec

    for module in (spec, record, launch):
        alias = getattr(module, text, None)
        if typing.get_origin(alias) is typing.Literal:
            return " | ".join(map(str, typing.get_args(alias)))
    if text.startswith("Literal["):
        return " | ".join(str(choice) for choice in ast.literal_eval(f"[{text[8:-1]}]"))
    return text


def _default(field: dataclasses.Field) -> str:
    if field.default is not dataclasses.MISSING:
        return "" if field.default is None or field.default == "" else f"`{_toml(field.default)}`"
    if field.default_factory is not dataclasses.MISSING:
        return ""
    return "*must be given*"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value)) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def presets() -> str:
    from seatrial import presets as known

    models = [[f"`{name}`", m.family, str(m.layers), str(m.hidden), str(m.heads), str(m.seq), str(m.vocab)]
              for name in known.names("models") for m in [known.model(name)]]
    clusters = [[f"`{name}`", f"{c.nodes} × {c.procs_per_node}", c.device.name, c.intra.name, c.inter.name]
                for name in known.names("clusters") if name != "local" for c in [known.cluster(name)]]
    return "\n\n".join([_table(["model", "family", "layers", "hidden", "heads", "sequence", "vocabulary"], models),
                        _table(["cluster", "nodes × devices", "device", "inside a node", "between nodes"], clusters)])


def decisions() -> str:
    return _toctree((page.stem for page in sorted((DOCS / "decisions").glob("[0-9]*.md"))), ":maxdepth: 1")


def pages(*words: str) -> str:
    caption, _, names = " ".join(words).partition(": ")
    return _toctree((name for name in names.split() if (DOCS / f"{name}.md").exists()), ":hidden:", f":caption: {caption}")


def examples() -> str:
    folders = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
    overview = ["examples"] if (DOCS / "examples.md").exists() else []
    return _toctree([*overview, *(f"../examples/{name}/README" for name in folders)], ":hidden:", ":caption: Examples")


def _toctree(names: Iterable[str], *options: str) -> str:
    return "\n".join(["```{toctree}", *options, "", *names, "```"])


def modules() -> str:
    """A row for each package and each module beside them, in the words of its own docstring."""
    rows = []
    for path in sorted((ROOT / "src/seatrial").iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if path.name.startswith("_") or not source.exists() or source.suffix != ".py":
            continue
        text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
        rows.append([f"`{path.name}{'/' if path.is_dir() else ''}`", _meaning(text.split("\n\n")[0])])
    return _table(["in src/seatrial", "what it is"], rows)


_KINDS: dict[str, typing.Callable[..., str]] = {
    "commands": commands, "fields": fields, "presets": presets, "pages": pages, "examples": examples,
    "decisions": decisions, "modules": modules,
}  # fmt: skip


def fields_in(path: Path) -> list[list[str]]:
    """What a page asks `fields` for."""
    return [asked.split() for asked in re.findall(r"<!-- docs: insert fields (.*) -->", path.read_text(encoding="utf-8"))]
