"""What anybody wrote, as plain data: the bytes of one file, JSON and TOML, within bounds that everything behind can take.

    read_bytes(path, most=MOST_JSON)            of a regular file: no folder, pipe or device, and never more than it says
    read_json(path), read_toml(path)            one line of BadInput for anything that is none
    parse_json(text)                            ValueError with the reason; a key that stands twice is one
    bounded(data, "sweep.toml")                 the same data: finite, of numbers and of a depth that mean something

Standard library only: the engine reads with it too.
"""
from __future__ import annotations

import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from typing import Any

from seatrial.errors import BadInput

Name = str | os.PathLike[str]

DEEPEST = 60
"""Tables in tables; Python's own recursion is bounded too."""
MOST_WHOLE = 10**18
"""It fits 64 bits; rules have the same bound."""
MOST_FIGURE = 1e40
"""Above what fp32 can hold, so above any loss; a product of a few of them is still a number."""
MOST_TOML = 1 << 20
MOST_JSON = 64 << 20
MOST_VALUES = 5_000_000
"""Of one JSON document: small ones take far more memory than text."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE = re.compile("[\ud800-\udfff]")


def read_bytes(path: Name, *, most: int, what: str = "file") -> bytes:
    """All of a regular file. Opened without waiting: a pipe that nobody writes to would block for ever."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise BadInput(f"{shown_path(path)}: {getattr(error, 'strerror', None) or error}") from None
    try:
        kind = os.fstat(handle)
        if stat.S_ISDIR(kind.st_mode):
            raise BadInput(f"{path}: a directory, where a {what} was expected")
        if not stat.S_ISREG(kind.st_mode):
            raise BadInput(f"{path}: not a regular file; save it to one first")
        if kind.st_size > most:
            raise BadInput(f"{path}: {kind.st_size} bytes is too large for a {what} (limit {most >> 20} MiB)")
        with os.fdopen(handle, "rb", closefd=False) as file:
            # Never the whole limit at once: Python would set it aside. A file may grow meanwhile.
            data = file.read(kind.st_size)
            if more := file.read(1):
                data += more + file.read(min(most - len(data), 1 << 20))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None
    finally:
        os.close(handle)
    if len(data) > most or len(data) - kind.st_size > 1 << 20:
        raise BadInput(f"{path}: grows while it is read, or over {most >> 20} MiB, too large for a {what}")
    return data


def shown_path(path: Name) -> str:
    return os.fspath(path).replace("\0", "\\0")


def read_text(path: Name, *, most: int, what: str = "file") -> str:
    """UTF-8, with or without its mark."""
    try:
        return read_bytes(path, most=most, what=what).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None


def read_json(path: Name, *, most: int = MOST_JSON, what: str = "JSON file", hint: str = "") -> Any:
    """`hint` is said after what is wrong with its text: the command that writes such a file."""
    try:
        return bounded(parse_json(read_bytes(path, most=most, what=what)), str(path))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON: {error}{hint}") from None


def parse_json(text: bytes | str) -> Any:
    """Without lone surrogates, which no file can hold: they become U+FFFD, as bytes that are no UTF-8 do."""
    try:
        words = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text ({error.reason} at byte {error.start})") from None
    if words.count(",") + words.count("[") + words.count("{") > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    try:
        found = json.loads(words, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        digits = "int_max_str_digits" in str(error)
        raise ValueError("a whole number of thousands of digits" if digits else str(error)) from None
    return _mended(found, 0) if _SURROGATE.search(words) or _LONE.search(words) else found


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; ValueError where a key stands twice, since readers differ in which of them holds."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:60]!r} stands twice in one object")
    return found


def mended(text: str) -> str:
    return _LONE.sub("\ufffd", text)


def _mended(data: Any, depth: int) -> Any:
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(data, str):
        return mended(data)
    if isinstance(data, dict):
        return {mended(key): _mended(value, depth + 1) for key, value in data.items()}
    return [_mended(value, depth + 1) for value in data] if isinstance(data, list) else data


def read_toml(path: Name) -> dict[str, Any]:
    return parse_toml(read_text(path, most=MOST_TOML, what="TOML file of settings"), str(path))


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """One line that says why not."""
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise BadInput(f"{where}: not TOML that can be read: nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, and a whole number of thousands of digits
        raise BadInput(f"{where}: not TOML: {error}") from None
    return bounded(found, where)  # type: ignore[no-any-return]


def bounded(data: Any, where: str) -> Any:
    """Walked with a list, since what is nested too deeply cannot be walked by calls."""
    waiting: list[tuple[Any, Any, int]] = [((data,), None, -1)]
    while waiting:
        holder, at, depth = waiting.pop()
        for key, value in holder.items() if type(holder) is dict or isinstance(holder, Mapping) else enumerate(holder):
            kind = type(value)
            if kind is str or kind is bool or value is None:
                continue
            if kind is int:
                if -MOST_WHOLE <= value <= MOST_WHOLE:
                    continue
                wrong = f"a whole number beyond {MOST_WHOLE:.0e}, the largest there is here"
            elif kind is float:
                if -MOST_FIGURE <= value <= MOST_FIGURE:
                    continue
                wrong = (f"{value} is beyond {MOST_FIGURE:.0e}, the largest there is here" if math.isfinite(value) else
                         f"{value} is not a finite number")
            elif kind is dict or kind is list or isinstance(value, Mapping | list | tuple):
                if depth + 1 < DEEPEST:
                    waiting.append((value, (at, key) if depth >= 0 else None, depth + 1))
                    continue
                raise BadInput(f"{where}: nested too deeply: {DEEPEST} tables in each other are the most")
            elif isinstance(value, str | int | float):
                continue
            else:
                wrong = f"{value} is a {kind.__name__}, which nothing here takes; write it in quotes"
            raise BadInput(f"{_place(where, (at, key) if depth >= 0 else None)}: {wrong}")
    return data


def _place(where: str, at: Any) -> str:
    keys = []
    while at is not None:
        at, key = at
        keys.append(f"[{key}]" if isinstance(key, int) else f".{str(key)[:60]}")
    return f"{where}: {''.join(reversed(keys)).lstrip('.')}" if keys else where
