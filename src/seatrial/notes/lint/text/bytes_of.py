"""Bytes of whole models that sentences give: parameters times the bytes of each, for weights, states and checkpoints.

    check(sheet)          findings on those that no model of the text has

    Un checkpoint completo del 7B (16 bytes por parámetro) son 1,14 TB          114 GB
    重みは BF16 だけで 69 GB                                                      138, of 69.0B parameters

A figure is fine that any model of the text gives, over any number of devices that the sentence has.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.figures import plain
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.read.sound import MOST_MEASURED
from seatrial.tables.headings import NUMBER, decimal

MOST_LINES, NEAR, OFF, MOST_SIZES, MOST_BYTES = 4000, 0.045, 0.12, 12, 64
_BYTES = {"two": 2.0, "four": 4.0, "six": 6.0, "eight": 8.0, "ten": 10.0, "twelve": 12.0, "sixteen": 16.0, "eighteen": 18.0}
_EACH = re.compile(rf"(?<![\w.,])({NUMBER.pattern}|{'|'.join(_BYTES)})[ -]?(?:bytes?|octets?|バイト|字节|байт\w*|바이트|B)"
                   r"(?: ?/ ?| per | a | an | je | pro | par | por | por cada | per ogni | al | na | на |每|毎)"
                   r"(?:param\w*|パラメータ|参数|파라미터|N\b)", re.IGNORECASE)  # fmt: skip
_TYPES = {"bf16": 2.0, "fp16": 2.0, "bfloat16": 2.0, "float16": 2.0, "fp32": 4.0, "float32": 4.0, "fp8": 1.0, "int8": 1.0}
_TYPE = re.compile(rf"\b({'|'.join(_TYPES)})(?![\w])", re.IGNORECASE)
_WEIGHTS = re.compile(r"\b(?:weights?|gewichte?n?|poids|pesos|pesi|wagi|вес\w*)\b|重み|权重|가중치", re.IGNORECASE)
_SIZE = re.compile(rf"(?<![\w.,])({NUMBER.pattern}) ?(TB|TiB|To|GB|GiB|Go|MB|MiB|ТБ|ГБ)(?![\w/])")
_UNITS = {"TB": (1e12, 2.0**40), "To": (1e12,), "ТБ": (1e12, 2.0**40), "GB": (1e9, 2.0**30), "Go": (1e9,), "ГБ": (1e9, 2.0**30),
          "MB": (1e6, 2.0**20), "TiB": (2.0**40,), "GiB": (2.0**30,), "MiB": (2.0**20,)}  # fmt: skip
_LABEL = re.compile(r"(?<![\w.,])(\d{1,3}(?:[.,]\d{1,3})?) ?(B|M)(?![\w/])(?!yte)")
_COUNT = re.compile(rf"(?<![\w.,])({NUMBER.pattern}) ?(?:(B|bn|billions?|Mrd\.?|milliards?(?: de)?|miliardi(?: di)?|"
                    rf"mil millones(?: de)?|"
                    r"bilh\w+(?: de)?|mld\.?|млрд\.?)|(M|millions?|Mio\.?|millones(?: de)?|milioni(?: di)?|млн\.?)) ?"
                    r"(?:of |de |di )?(?:param\w*|параметр\w*)|"
                    rf"\b[NP] ?[=≈] ?({NUMBER.pattern}) ?(?:[·x×*] ?10\^?(9|⁹)|e\+?0?(9)|(B)\b)", re.IGNORECASE)  # fmt: skip
_SHARDED = re.compile(r"\b(?:per|each|every|a|je|pro|par|por|chaque|cada) (?:GPU|device|rank|card|chip|GCD)\b|\bsharded\b|"
                      r"\bshards?\b|"
                      r"\bTP ?\d|\bPP ?\d|\bZeRO\b|\bFSDP\b|\bsplit\b|\bthirty|\bof the\b|あたり|每卡|"
                      r"每张", re.IGNORECASE)  # fmt: skip


_STATES = re.compile(r"\b(?:moment\w*|optimi[sz]er\w*|optimiseur|gradient\w*|gradienten|master|copy|copie|kopie|states?|"
                     r"adam\w*|activation\w*|"
                     r"aktivierung\w*|checkpoints?)\b|最適化|优化器|勾配|梯度", re.IGNORECASE)  # fmt: skip
"""What is in it besides weights."""


_WORDS = ("byte", "octet", "バイト", "字节", "байт", "바이트", "bf16", "fp16", "fp32", "fp8", "int8")


def check(sheet: Sheet) -> list[Finding]:
    found: dict[tuple[str, int | None, str | None], Finding] = {}
    for name, text in sheet.prose.items():
        if len(text.lines) > MOST_LINES or not text.has(*_WORDS):
            continue
        file = sheet.names.get(name, name)
        for sentence in text.sentences:
            if _SIZE.search(sentence.text) and (_EACH.search(sentence.text) or _TYPE.search(sentence.text)):
                for one in _judged(file, sentence, text.lines):
                    found.setdefault((file, one.line, one.printed), one)
    return list(found.values())


def _judged(file: str, sentence: Sentence, lines: tuple[str, ...]) -> Iterator[Finding]:
    text = sentence.text
    each = [(match.start(), match.end(), _BYTES.get(match[1].casefold()) or float(decimal(match[1])))
            for match in _EACH.finditer(text)]  # fmt: skip
    if _WEIGHTS.search(text) and (each or not _STATES.search(text)):
        each += [(match.start(), match.end(), _TYPES[match[1].casefold()]) for match in _TYPE.finditer(text)]
    each = [one for one in each if 0 < one[2] <= MOST_BYTES]
    sizes = _sizes(lines)
    labels = [float(decimal(match[1])) * {"B": 1e9, "M": 1e6}[match[2]] for match in _LABEL.finditer(text)]
    labels = [label for label in labels if label]
    named = [[size for size in sizes if abs(size / label - 1) < 0.2] or [label] for label in labels]
    own = named[0] if len(named) == 1 else sizes if not named else []
    if not each or not own or max(own) > 1.05 * min(own) or len(sizes) > MOST_SIZES:
        return
    counts = {int(one) for one in re.findall(r"(?<![\w.,])\d{1,4}(?![\w.,]*\d)", text)} | {1}
    counts |= {a * b for a in counts for b in counts if a * b < 10000}
    counts -= {0}
    for match in _SIZE.finditer(text):
        if not 0 < float(decimal(match[1])) < MOST_MEASURED:
            continue
        place, bytes_ = min((min(abs(match.start() - end), abs(start - match.end())), value) for start, end, value in each)
        before = text[: match.start()]
        behind = text[match.end() :].strip()
        if place > 60 or re.search(r"[=≈×x*·] ?$", before) or _SHARDED.search(before[-80:]) or _SHARDED.match(behind):
            continue
        values = [float(decimal(match[1])) * unit for unit in _UNITS[match[2]]]
        half = 0.5 * 10.0 ** -digits.places(match[1]) / float(decimal(match[1]))
        parts = {value for _, _, value in each} | {sum(value for _, _, value in each), 2.0, 4.0}
        known = {*sizes, *labels, *own}
        parts = {part for part in parts if part == bytes_ or part not in (2.0, 4.0)}
        if any(abs(value / (size * part / count) - 1) < NEAR + half for value in values for size in known for part in parts
               for count in counts):  # fmt: skip
            continue
        meant = own[0] * bytes_ / _UNITS[match[2]][0]
        off = abs(math.log(float(decimal(match[1])) / meant))
        slips = digits.slips(match[1], (0.96 * meant, 1.04 * meant))
        tens = any(abs(off - math.log(times)) < 0.045 for times in (2.0, 4.0, 8.0, 10.0, 1000.0))
        if off < OFF + half or not (slips or tens):
            continue
        unit, shown = match[2], meant
        if unit in ("TB", "To", "ТБ") and meant < 1.0:
            unit, shown = {"TB": "GB", "To": "Go", "ТБ": "ГБ"}[unit], 1000 * meant
        places = 0 if shown >= 100 else digits.places(match[1])
        right = f"{shown:.{places}f}"
        right = right.replace(".", ",") if "," in match[1] else right
        printed, proposed = f"{match[1]} {match[2]}", f"{right} {unit}"
        if unit == match[2]:
            printed, proposed = match[1], right
        message = f"{printed} -> {proposed}: {own[0]:.4g} parameters of {bytes_:g} bytes are {right} {unit}"
        yield Finding(file=file, line=sentence.line_at(match.start()), code="aggregate", level="error", message=message,
                      column="bytes", printed=printed, proposed=proposed)  # fmt: skip
        return


def _sizes(lines: tuple[str, ...]) -> list[float]:
    """The parameters that a text counts."""
    found: set[float] = set()
    for line in lines:
        if len(line) <= 2000 and ("param" in line.casefold() or "N" in line or "P" in line or "параметр" in line):
            for match in _COUNT.finditer(plain(line)):
                number = match[1] or match[4]
                found.add(float(decimal(number)) * (1e6 if match[3] else 1e9))
        if line.lstrip().startswith("|"):
            found |= {float(decimal(match[1])) * 1e9 for match in _LABEL.finditer(line) if match[2] == "B" and "." in match[1]}
    return sorted(one for one in found if 1e7 < one < 3e12)
