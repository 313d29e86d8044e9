"""What the labels of a model's size and of a precision say: parameters, whether it is a mixture of experts, bits.

    label_parameters("1.3B")                (1.3e9, 0.05e9), and so of `1,3 Md`
    is_mixture("30B-A3B")                   True
    bits_of("mxfp8")                        8
"""
from __future__ import annotations

import functools
import re

_LABEL = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(M(?:r|l)?d(?![^\W\d_])|млрд|млн|[億亿万]|[KMBT])", re.IGNORECASE)
_SCALES = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12, "md": 1e9, "mrd": 1e9, "mld": 1e9, "млрд": 1e9, "млн": 1e6, "億": 1e8,
           "亿": 1e8, "万": 1e4}  # fmt: skip
_MIXTURE = re.compile(r"\d\s?[x×]\s?\d|[-_ ]A\d+(?:\.\d+)?B|\bMoE\b|mixtral", re.IGNORECASE)
_WHOLE = re.compile(r"\d{1,3}(?:[,'_ .]\d{3}){2,3}|\d{7,12}")
"""All digits of a number of parameters."""
_ACTIVE = re.compile(r"(?<=[-_ ]A)(\d{1,9}(?:\.\d{1,9})?)(B)", re.IGNORECASE)
"""The parameters that a token passes through: 30B-A3B."""


@functools.lru_cache(maxsize=4096)
def is_mixture(label: str) -> bool:
    """A label such as 8x7B or 30B-A3B, of a mixture of experts."""
    return _MIXTURE.search(label) is not None


_TIMES = re.compile(r"(?<![\w.])(\d{1,3})\s?[x×]\s?\d{1,3}(?:\.\d+)?\s?[BM](?!\w)", re.IGNORECASE)


@functools.lru_cache(maxsize=4096)
def experts_in(text: str) -> int | None:
    """How many experts a model has by its name: 8 of `Mixtral 8x7B`; None where a text names none, or several."""
    found = {int(count) for count in _TIMES.findall(text)}
    return found.pop() if len(found) == 1 else None


_BITS = re.compile(r"(?:mxfp|nvfp|fp|bf|tf|int)(\d{1,2})\b.*", re.IGNORECASE)


@functools.cache
def bits_of(dtype: str) -> int | None:
    """Of the numbers that are multiplied: 8 of `mxfp8`."""
    match = _BITS.fullmatch(dtype)
    return int(match[1]) if match else None


@functools.cache
def label_parameters(label: str) -> tuple[float, float] | None:
    """Parameters and half a step of the last digit of a label: '1.3B' -> (1.3e9, 0.05e9)."""
    if _WHOLE.fullmatch(label.strip()):
        return (whole, 0.5) if (whole := float(re.sub(r"\D", "", label))) else None
    label = re.sub(r"(?<=\d),(?=\d{3}\b|\d{3}[A-Z])", "", label)
    label = re.sub(r"(?<=\d),(?=\d{1,2}(?!\d))", ".", label)
    match = _ACTIVE.search(label) or (None if is_mixture(label) else _LABEL.search(label))
    if match is None or not float(match[1]):
        return None  # a model has parameters
    scale = _SCALES[match[2].lower()]
    return float(match[1]) * scale, 0.5 * 10.0 ** -len(match[1].partition(".")[2]) * scale
