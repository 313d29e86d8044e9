"""Layers and width of models that many train, by the names that they were published under.

    shape_of("Qwen2.5-14B")               (48, 5120)
    named_in("## Llama-3-8B, one node")   {"llama-3-8b"}
    check(sheet)                          layers of a sentence that the model named above it does not have
"""
from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.prose import read_sentence
from seatrial.tables.tongues import in_english

MOST_LINES = 4000
SHAPES: dict[str, tuple[int, int]] = {
    "llama-7b": (32, 4096), "llama-13b": (40, 5120), "llama-30b": (60, 6656), "llama-65b": (80, 8192),
    "llama-2-7b": (32, 4096), "llama-2-13b": (40, 5120), "llama-2-70b": (80, 8192),
    "llama-3-8b": (32, 4096), "llama-3-70b": (80, 8192), "llama-3-405b": (126, 16384),
    "mistral-7b": (32, 4096), "mixtral-8x7b": (32, 4096), "mixtral-8x22b": (56, 6144),
    "qwen2.5-0.5b": (24, 896), "qwen2.5-1.5b": (28, 1536), "qwen2.5-3b": (36, 2048), "qwen2.5-7b": (28, 3584),
    "qwen2.5-14b": (48, 5120), "qwen2.5-32b": (64, 5120), "qwen2.5-72b": (80, 8192),
    "qwen3-0.6b": (28, 1024), "qwen3-1.7b": (28, 2048), "qwen3-4b": (36, 2560), "qwen3-8b": (36, 4096),
    "qwen3-14b": (40, 5120), "qwen3-32b": (64, 5120),
}  # fmt: skip
_NAME = re.compile(r"(?<![\w-])(llama|mistral|mixtral|qwen)[- ]?(?:v?([1-3](?:\.\d)?)[- ])?(\d+x\d+|\d+(?:\.\d+)?)[- ]?b"
                   r"(?![\w]|[- ](?:like|style|ish|shaped|sized|class)\b)", re.IGNORECASE)  # fmt: skip
_CHANGED = re.compile(r"scaled|shrunk|reduced|truncated|\bcut\b|proxy|prun|distill|draft|deeper|shallow|grown|stack|depth|"
                      r"stage|first|last|every|of the|\bPP\b|only|frozen|per ", re.IGNORECASE)  # fmt: skip


_SENTENCES, _LAYERS = re.compile(r"[.;]\s"), re.compile(r"\blayers\b", re.IGNORECASE)


@functools.lru_cache(maxsize=4096)
def named_in(text: str) -> frozenset[str]:
    """The published models that a text names."""
    found = set()
    for family, version, size in _NAME.findall(text) if "b" in text or "B" in text else ():
        family, version = family.lower(), version if family.lower() in ("qwen", "llama") else ""
        version = version.split(".")[0] if family == "llama" else version
        joined = f"{family}{version}" if family == "qwen" else f"{family}-{version}" if version else family
        found.add(f"{joined}-{size}b".lower())
    return frozenset(found & SHAPES.keys())


def shape_of(label: str) -> tuple[int, int] | None:
    """The layers and the width of the one published model that a label names."""
    names = named_in(label)
    return SHAPES[next(iter(names))] if len(names) == 1 else None


def check(sheet: Sheet) -> list[Finding]:
    return [finding for file, text in sheet.prose.items() if len(text.lines) <= MOST_LINES
            and text.has("layer", "couche", "schicht", "strati", "capas", "camadas", "层", "層")
            for finding in _sentences(file, text.lines)]  # fmt: skip


def _sentences(file: str, lines: tuple[str, ...]) -> Iterator[Finding]:
    above: frozenset[str] = frozenset()
    for number, line in enumerate(lines, 1):
        names = named_in(line)
        if line.startswith("#"):
            above = names
        if line.startswith("|") or len(line) > 1500 or len(names or above) != 1:
            continue
        sentence = next((one for one in _SENTENCES.split(in_english(line)) if _LAYERS.search(one)), "")
        said = read_sentence(sentence)
        layers, hidden = said.get("layers"), said.get("hidden")
        right = SHAPES[next(iter(names or above))]
        if not isinstance(layers, int) or hidden != right[1] or layers == right[0] or _CHANGED.search(sentence):
            continue
        if digits.slip(str(layers), (right[0] - 0.1, right[0] + 0.1)) is None:
            continue
        message = f"{layers} layers -> {right[0]}: {next(iter(names or above))} was published with {right[0]} of {right[1]}"
        yield Finding(file=file, line=number, code="label-vs-params", level="warning", message=message, column="layers",
                      printed=str(layers), proposed=str(right[0]))  # fmt: skip
