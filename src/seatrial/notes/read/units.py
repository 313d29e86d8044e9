"""Units of cells: which dimension a word beside a number has, and the number in the unit that a record keeps.

    take("memory", " MiB (peak)")              ("MiB", " (peak)")
    foreign("seconds", " MiB")                 "memory": no number of a column of times
    seconds(750.0, "us")                       0.00075
    rate(1.2, "K/min")                         20.0
    compound("33 hr 13 min")                   (119580.0, "")
"""
from __future__ import annotations

import re
from decimal import Decimal

_TIME = {
    "ns": "ns nsec nanoseconds", "us": "us usec usecs microsecond microseconds",
    "ms": "ms msec msecs millisecond milliseconds millisekunden мс мсек ミリ秒 毫秒 밀리초",
    "s": "s sec secs second seconds sek sekunden seg segundos secondes secondi сек с 秒 초",
    "min": "min mins minute minutes minuten мин 分 分钟 분", "h": "h hr hrs hour hours stunden ч 小时 時間 시간",
    "d": "d day days tage",
}  # fmt: skip
_TIME_WORDS = {word: unit for unit, words in _TIME.items() for word in words.split()}
_EXACT = {"ms": 3, "us": 6, "ns": 9}
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_GIB = {"B": 2.0**-30, "KB": 2.0**-20, "KiB": 2.0**-20, "TB": 2.0**10, "TiB": 2.0**10}
_BYTES = {f"{scale}{i}{byte}".lower(): f"{scale.upper()}{i}B" for scale in "KMGT" for i in ("", "i") for byte in "bo"}
_BYTES |= {"гб": "GB", "гиб": "GiB", "мб": "MB", "миб": "MiB"}
_SHORT = {"g": "GB", "gi": "GiB", "m": "MB", "mi": "MiB", "b": "B", "byte": "B", "bytes": "B"}
_PER = r"\s*(?:/|per\s)\s*"
_EACH = rf"(?:{_PER}(?:gpu|node|device|rank|chip|card))?"
_A_SECOND = rf"{_PER}(?:s|secs?|second|秒|초|с|сек)"
_UNITS: dict[str, re.Pattern[str]] = {
    kind: re.compile(rf"(?:{pattern})(?!\w)", re.IGNORECASE)
    for kind, pattern in {
        "seconds": rf"({'|'.join(sorted(_TIME_WORDS, key=len, reverse=True))}|(?:its?|iters?|iterations|steps?){_A_SECOND})"
                   rf"(?:{_PER}(?:it|iter|iteration|step)s?)?",
        "memory": rf"([KMGT]i?[BO]|[МГ]и?Б|[MG]i?|bytes?|B)(?:ytes?)?{_EACH}",
        "figure": rf"((?:[KMGTPE]|kilo|mega|giga|tera|peta|exa)FLOPS?(?:{_A_SECOND})?|T){_EACH}",
        "frequency": r"([GMk]?Hz)",
        "rate": rf"((?:samples?|seqs?|sequences?|tokens?|toks?|jetons?|トークン|토큰|токен(?:ов|а)?|ток){_A_SECOND}{_EACH})",
    }.items()
}  # fmt: skip
_UNITS["percent"] = re.compile("(%)")
_NAMES = {"seconds": "a time", "memory": "memory", "figure": "FLOP/s", "percent": "a share", "frequency": "a clock",
          "rate": "a rate"}  # fmt: skip
_ABBREVIATED = re.compile(r"(?:[MGTBhd]|Mi|Gi)(?!\w)", re.IGNORECASE)
"""What is a unit in a column of that unit alone: elsewhere it may be millions, thousands or a variable."""


def take(kind: str, rest: str) -> tuple[str, str]:
    """The unit at the start of what follows a number in a column of that kind, and what follows the unit."""
    pattern = _UNITS.get(kind)
    match = pattern.match(rest.lstrip()) if pattern is not None and rest else None
    if match is None:
        return "", rest
    word = match.group(1)
    if kind == "seconds":
        word = _TIME_WORDS.get(word.lower(), "it/s")
    elif kind == "memory":
        word = _BYTES.get(word.lower()) or _SHORT[word.lower()]
    elif kind == "frequency":
        word = {"ghz": "GHz", "mhz": "MHz", "khz": "kHz", "hz": "Hz"}[word.lower()]
    after = rest.lstrip()[match.end() :]
    return word, after[1:] if after == "." else after  # `8,1 Sek.`


def is_unit(kind: str, text: str) -> bool:
    return kind in _UNITS and _UNITS[kind].fullmatch(text) is not None


def foreign(kind: str, rest: str) -> str:
    """What the unit after a number is of, where a column of that kind cannot hold it; empty where there is none."""
    rest = rest.lstrip()
    if not rest or _ABBREVIATED.match(rest):
        return ""
    return next((_NAMES[other] for other, pattern in _UNITS.items() if other != kind and pattern.match(rest)), "")


def shifted(value: float, places: int) -> float:
    """The number with its decimal point moved left: 41.2 % is 0.412, not 0.41200000000000003."""
    return float(Decimal(repr(value)).scaleb(-places))


def seconds(value: float, unit: str) -> float:
    if unit == "it/s":
        return 1 / value
    return shifted(value, _EXACT[unit]) if unit in _EXACT else value * _SECONDS.get(unit, 1.0)


def memory(value: float, unit: str) -> tuple[float, str]:
    """In a unit that a record keeps: MiB, GiB, or as the tools behind such tables write them MB, GB."""
    return (value * _GIB[unit], "GB" if unit == "TB" else "GiB") if unit in _GIB else (value, unit)


def tera(value: float, unit: str) -> float:
    """FLOP/s in TFLOPs."""
    places = {"k": 9, "m": 6, "g": 3, "p": -3, "e": -6, "f": 12}.get(unit[:1].lower(), 0)
    return shifted(value, places) if places else value


THOUSANDS = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "万": 1e4, "萬": 1e4, "億": 1e8}


def inverts(unit: str) -> bool:
    """Whether a column of rates has the time of one: `s/`, `ms/`."""
    return unit.endswith("/")


def rate(value: float, unit: str, own: str = "") -> float:
    """A rate a second: `K/min` are thousands a minute, and `ms/` is the time of one. `own`: the thousands that a cell says."""
    many, _, time = unit.partition("/")
    if inverts(unit):
        return 1 / seconds(value, many) if value > 0 else value
    return value * THOUSANDS.get(own or many, 1.0) / _SECONDS.get(time, 1.0)


_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*(days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])\W*", re.IGNORECASE)


def compound(text: str) -> tuple[float, str] | None:
    """A time of several parts, from the longest to the shortest, and what follows it: `1h20m30s`."""
    total, at, last = 0.0, 0, float("inf")
    parts = 0
    while match := _PARTS.match(text, at):
        size = _SECONDS[_TIME_WORDS.get(match.group(2).lower(), "min")]
        if size >= last:
            return None
        total, at, last, parts = total + float(match.group(1)) * size, match.end(), size, parts + 1
    return (total, text[at:]) if parts > 1 else None
