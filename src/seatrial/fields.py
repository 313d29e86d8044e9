"""Frozen dataclasses from plain data and back: unknown keys named with their nearest, types checked, defaults left out.

    from seatrial.fields import build, plain, digest
    build(Model, {"layers": 2, ...}, where="model")     raises BadInput with the path of the key
    plain(model)                                        only what differs from the defaults, ready for JSON or TOML
    digest(plain(model))                                the hash that identities are made of

Every word of `spec/` goes through here, so a TOML file, a run.json and `--set a.b=c` all fail in the same words.
"""
from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import hashlib
import itertools
import json
import math
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, Union

from seatrial.errors import BadInput
from seatrial.plaindata import DEEPEST, MOST_FIGURE, MOST_WHOLE, bounded, mended

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """What the rest of the product calls a field: everything that lists fields takes it from here (`columns.py`)."""

    label: str
    """Heading of a table's column, and the word before a value in a sentence: DP."""
    kind: str = "word"
    """How a cell of a hand-typed table is read (`notes`)."""
    column: str = ""
    """The record's field, where that has another name: zero_stage."""
    of_trial: str = ""
    """Where a trial has its effective value, where not in the field itself: model.kv for kv_heads, None meaning heads."""
    names: tuple[str, ...] = ()
    """What authors of tables, logs and command lines call it, in lower case and plain words."""
    title: str = ""
    """In a picture, where the label is too short."""
    word: str | None = None
    """Before a value in a sentence where the label is an abbreviation of tables: ZeRO; empty where a value needs none: 1f1b."""
    unit: str = ""
    searched: bool = False
    """Whether `plan` and `tune` search it; then it is also an option and a name in rules."""
    degree: bool = False
    """Whether the number of processes is a multiple of it."""
    read: Callable[[str], Any] | None = None
    """A text of it as its value, where it is no word: 1-4-3."""


def field(default: Any = dataclasses.MISSING, *, label: str, names: str = "", factory: Any = dataclasses.MISSING,
          **about: Any) -> Any:
    """A dataclass field with its `About`; `names` with commas between."""
    said = About(label=label, names=tuple(name.strip() for name in names.split(",") if name.strip()), **about)
    if factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=factory, metadata={ABOUT: said})
    return dataclasses.field(default=default, metadata={ABOUT: said})


ABOUT = "about"


@functools.cache
def meanings(cls: type) -> dict[str, str]:
    """Field -> the docstring under it: help of options. Read from the source, since Python keeps no docstring of a field."""
    classes = (node for node in _source(cls.__module__) if isinstance(node, ast.ClassDef))
    body = next((node.body for node in classes if node.name == cls.__name__), [])
    found = {}
    for node, after in itertools.pairwise(body):
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(text, str):
            found[node.target.id] = " ".join(text.split())
    return found


@functools.cache
def _source(module: str) -> list[ast.stmt]:
    path = getattr(sys.modules[module], "__file__", None)
    try:
        with open(str(path), encoding="utf-8") as file:
            return ast.parse(file.read()).body
    except (OSError, SyntaxError):
        return []  # installed without its source: options have no help, and work


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint to append to an error: the closest known word, or all of them when none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return "known are " + ", ".join(names) if names else "none are known here"


def build(cls: type[T], data: object, *, where: str) -> T:
    """An instance of the dataclass `cls` from plain data; `where` is the path that errors name."""
    if not isinstance(data, Mapping):
        raise BadInput(f"{where}: expected a table of {cls.__name__}'s fields, found {shown(data)}")
    hints, as_they_are, required, readers = _known(cls)  # type: ignore[arg-type]
    for key in data:
        if key not in hints:
            raise BadInput(f"{where}.{key}: no such key; {nearest(str(key), hints)}")
    for key, reads in readers.items():
        if isinstance(data.get(key), str):
            try:
                data = {**data, key: reads(data[key])}
            except BadInput as error:
                raise BadInput(f"{where}.{key}: {error}") from None
    values = {key: value if type(value) in as_they_are[key] and _within(value)
              else convert(value, hints[key], where=f"{where}.{key}") for key, value in data.items()}
    missing = [name for name in required if name not in values]
    if missing:
        raise BadInput(f"{where}: {', '.join(missing)} must be given")
    return cls(**values)


@functools.cache
def _known(cls: Any) -> tuple[dict[str, Any], dict[str, tuple[type, ...]], tuple[str, ...], dict[str, Callable[[str], Any]]]:
    """Field -> annotation; field -> types whose values stay as they are (numbers within bounds); what must be given; who
    reads a text.

    Once a class: a logbook builds 100,000 records.
    """
    declared = dataclasses.fields(cls)
    resolved = typing.get_type_hints(cls)
    hints = {f.name: resolved[f.name] for f in declared}
    plain: dict[str, tuple[type, ...]] = {}
    for name, hint in hints.items():
        origin, args, _ = _form(hint)
        given = args if origin in (Union, types.UnionType) and len(args) == 2 and type(None) in args else (hint,)
        plain[name] = given if all(one in (*_AS_THEY_ARE, type(None)) for one in given) else ()
    readers = {f.name: about.read for f in declared if (about := f.metadata.get(ABOUT)) and about.read}
    return hints, plain, tuple(f.name for f in declared if _required(f)), readers


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def convert(value: object, hint: Any, *, where: str) -> Any:
    """`value` as the annotated type, or a BadInput that names the place, the value and what was expected."""
    if type(value) is hint and hint in _AS_THEY_ARE and _within(value):
        return value
    origin, args, composed = _form(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        chosen = [a for a in args if a is not type(None)]
        return convert(value, chosen[0], where=where)
    if composed:
        return value if isinstance(value, hint) else build(hint, value, where=where)  # type: ignore[arg-type]
    if origin is typing.Literal:
        if value not in args:
            raise BadInput(f"{where}: {shown(value)} is not one of {', '.join(map(str, args))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise BadInput(f"{where}: expected a list, found {shown(value)}")
        if args[0] is dict and all(type(v) is dict and set(map(type, v)) <= {str} for v in value):
            return tuple(map(dict, value))  # the iterations of thousands of records
        return tuple(convert(v, args[0], where=f"{where}[{i}]") for i, v in enumerate(value))
    if origin in (dict, Mapping) or hint is dict:
        if not isinstance(value, Mapping):
            raise BadInput(f"{where}: expected a table, found {shown(value)}")
        item = args[1] if len(args) == 2 else object
        if item is object:
            return {str(k): v for k, v in value.items()}
        if item is str and set(map(type, value)) | set(map(type, value.values())) <= {str}:
            return dict(value)  # the cells of thousands of rows
        return {str(k): convert(v, item, where=f"{where}.{k}") for k, v in value.items()}
    if hint in (object, Any):
        return value
    return _scalar(value, hint, where=where)


_AS_THEY_ARE = (str, bool, int, float)
_MOST = {int: MOST_WHOLE, float: MOST_FIGURE}


def _within(value: Any) -> bool:
    """Of one of those types: whether it can stay as it is. A number may be beyond all bounds."""
    most = _MOST.get(type(value))
    return most is None or -most <= value <= most


@functools.cache
def _form(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """What an annotation is made of, and whether it is a dataclass: thousands of records ask for the same few."""
    return typing.get_origin(hint), typing.get_args(hint), dataclasses.is_dataclass(hint)


def _scalar(value: object, hint: type, *, where: str) -> object:
    if hint is bool:
        if isinstance(value, bool):
            return value
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool) or isinstance(value, float) and value.is_integer():
            if not -MOST_WHOLE <= value <= MOST_WHOLE:
                raise BadInput(f"{where}: a whole number beyond {MOST_WHOLE:.0e}, the largest there is here")
            return int(value)
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not -MOST_FIGURE <= value <= MOST_FIGURE:
                beyond = isinstance(value, int) or math.isfinite(value)
                raise BadInput(f"{where}: a number beyond {MOST_FIGURE:.0e}, the largest there is here" if beyond else
                               f"{where}: {value} is not a finite number")
            return float(value)
    elif hint is str and isinstance(value, str):
        return value
    raise BadInput(f"{where}: expected {_NAMES.get(hint, hint.__name__)}, found {shown(value)}")


_NAMES: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def shown(value: object) -> str:
    """A value in a message, whatever it is and however long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
        text = f"a {type(value).__name__} beyond all bounds"
    return text if len(text) <= 60 else text[:57] + "..."


_LEAST = 1 / MOST_WHOLE


def positive(where: str, **values: float | None) -> None:
    """Raises for any value that is given and not above zero, or so far from 1 that nothing can be worked out with it."""
    for name, value in values.items():
        if value is None or _LEAST <= value <= MOST_WHOLE:
            continue
        if not value > 0:
            raise BadInput(f"{where}.{name}: {value} must be above 0")
        raise BadInput(f"{where}.{name}: {value:.3g} is beyond {MOST_WHOLE:.0e}, or its inverse")


def at_most(where: str, limits: Mapping[str, int], values: object) -> None:
    """Raises for a field beyond its limit: what is larger was not meant, and 64 bits would not hold what follows from it."""
    for name, most in limits.items():
        if (value := getattr(values, name)) is not None and value > most:
            raise BadInput(f"{where}: {name} {value} is beyond {most:,}, the most that can be worked out")


def plain(value: Any, *, keep_defaults: bool = False) -> Any:
    """Plain data for JSON or TOML. Fields at their default are left out: a new option does not change old identities."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        out = {}
        for f in dataclasses.fields(value):
            v = getattr(value, f.name)
            if v is None or (not keep_defaults and not _required(f) and v == _default(f)):
                continue
            out[f.name] = plain(v, keep_defaults=keep_defaults)
        return out
    if isinstance(value, Mapping):
        return {k: plain(v, keep_defaults=keep_defaults) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v, keep_defaults=keep_defaults) for v in value]
    return value


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def canonical(data: object) -> str:
    """The one JSON text of some data: sorted keys, no spaces, no NaN."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(data: object, *, length: int = 12) -> str:
    return hashlib.sha256(canonical(data).encode("utf-8", "surrogatepass")).hexdigest()[:length]


def assign(data: dict[str, Any], setting: str) -> None:
    """Puts one `a.b.c=value` of the command line into nested plain data; the value is read as TOML, else as text."""
    import tomllib

    path, sep, text = mended(setting).partition("=")
    keys = [k.strip() for k in path.split(".")]
    if not sep or not all(keys) or len(keys) > DEEPEST:
        raise BadInput(f"--set {shown(setting)}: expected a.b=value, for example model.layers=6")
    value: object = text.strip()
    try:
        found = tomllib.loads(f"v = {value}")
        value = found["v"] if len(found) == 1 else value
    except tomllib.TOMLDecodeError:
        pass
    except (ValueError, RecursionError):
        raise BadInput(f"--set {shown(setting)}: the value has too many digits, or is nested too deeply") from None
    value = bounded(value, f"--set {'.'.join(keys)}")
    table = data
    for depth, key in enumerate(keys[:-1]):
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise BadInput(f"--set {setting!r}: {'.'.join(keys[: depth + 1])} is a value, not a table")
    table[keys[-1]] = value
