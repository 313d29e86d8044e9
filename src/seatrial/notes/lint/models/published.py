"""What notes say otherwise of a model than it was published with.

    check(sheet)          the one side of a paragraph or of a row of shapes that the model named there does not have

A side is held against the published one only where the others are its own: who trains another depth says so, or changes more.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.models.known import FAMILIES, SIDES_OF, places_of
from seatrial.notes.lint.models.shapes import in_tables
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.described import blocks
from seatrial.notes.lint.text.prose import Prose
from seatrial.notes.read.sentences import read_sentence

MOST_LINES, WIDELY, COUNTED = 4000, 3, 0.03
"""Of a text that is no log; how many sides that agree make it sure which model is meant; how far counts may differ."""
COUNTS = ("total", "active")
_CHANGED = re.compile(r"scaled|shrunk|as wide|as deep|\bmore\b|fewer|"
                      r"reduced|truncated|\bcut\b|proxy|prun|distill|draft|deeper|shallow|grown|stack|depth|half|"
                      r"\bstage|\bPP\b|only|frozen|variant|modif|instead|unlike|wider|narrow|extended|resized|padded|of the|"
                      r"\b(?:first|last|every|each|per) (?:\w+ ){0,2}(?:layer|block|stage|rank|GPU|device)", re.IGNORECASE)
_MORE = {"hidden": re.compile(r"\bdimension(?: of)? (\d{3,5})\b"),
         "experts": re.compile(r"(?<!\btop[- _=])(?<!\btop)\b(\d{1,4}) (?:routed )?experts\b", re.IGNORECASE),
         "top_k": re.compile(r"\btop[- _]?k?[ =]*(\d{1,2})\b|\b(?:of which|with) (\d{1,2}) (?:are )?(?:active|activated|chosen|"
                             r"used|routed)\b|\b(\d{1,2}) (?:active |activated )?(?:experts )?(?:per|for each|a|every) token\b",
                             re.IGNORECASE)}  # fmt: skip
_DIGITS = re.compile(r"(?<![\d.,])\d{1,3}(?:[ ,.\u202f]\d{3})*(?![\d])|(?<![\d.,])\d{2,7}(?!\d)")


def check(sheet: Sheet) -> list[Finding]:
    found = []
    for file, text in sheet.prose.items():
        if len(text.lines) <= MOST_LINES and text.has(*FAMILIES):
            found += [*_sentences(file, text), *_rows(file, text)]
    return found


def mend_rows(sheet: Sheet, found: Iterable[Finding]) -> None:
    """Rows that have a side from a sentence take what is proposed for it."""
    for one in found:
        name, was, right = one.column or "", *(re.sub(r"\D", "", text or "") for text in (one.printed, one.proposed))
        for row in sheet.files.get(one.file, ()) if right and name in ("layers", "hidden", "heads") else ():
            if str(getattr(row.record, name)) == was and not row.states(name):
                row.record = row.record.changed({name: int(right)})
                if name != "heads":
                    setattr(row, name, int(right))


def _sentences(file: str, prose: Prose) -> Iterator[Finding]:
    """Of each paragraph, the part behind each name, or all of it where it names one model or the heading above it does."""
    above = next((places_of(line) for line in prose.lines[:3] if places_of(line)), [])
    for start, block in blocks(prose):
        text = " ".join(block)
        if len(text) > 3000:
            continue
        places = places_of(text)
        if len(block) == 1 and places and not any(name in read_sentence(text) for name in ("layers", "hidden")):
            above = places
        names = {name for name, _, _ in places or above}
        if len(names) == 1:
            parts = [(next(iter(names)), text)]
        else:
            ends = [start for _, start, _ in places[1:]] + [len(text)]
            parts = [(name, text[begin:end]) for (name, _, begin), end in zip(places, ends)]
        for name, part in parts:
            said = {side: value for side, value in read_sentence(part).items() if isinstance(value, int) and value is not True}
            for side, pattern in _MORE.items():
                counts = {next(filter(None, match.groups())) for match in pattern.finditer(part)}
                said |= {side: int(counts.pop())} if len(counts) == 1 and side not in said else {}
            odd = _odd(name, said, named=bool(places))
            if odd is None:
                continue
            for number, line in enumerate(block, start):
                numbers = [one[0] for one in _DIGITS.finditer(prose.lines[number - 1])]
                shown = [one for one in numbers if re.sub(r"\D", "", one) == str(said[odd[0]])]
                if shown and (odd[0] == "vocab" or not _CHANGED.search(line)):
                    yield _finding(file, number, name, said, odd, odd[0], shown[0])
                if shown:
                    break


def _rows(file: str, text: Prose) -> Iterator[Finding]:
    for models in in_tables(text):
        for model in models:
            names = {name for name, _, _ in places_of(model.name)}
            said = {side: value for side, (value, _, _) in model.sides.items()}
            odd = _odd(next(iter(names)), said) if len(names) == 1 else None
            if odd is not None and not _CHANGED.search(model.name):
                _, number, title = model.sides[odd[0]]
                printed = said[odd[0]] if odd[0] not in COUNTS else said[odd[0]] / 1000
                yield _finding(file, number, next(iter(names)), said, odd, title, f"{printed:g}")


def _odd(name: str, said: Mapping[str, int], *, named: bool = True) -> tuple[str, int, int] | None:
    """The one side that is not the model's, what it was published with, and how many others are its own; `named`: whether by
    the same words, or by what stands above them."""
    right = {side: value for side, value in SIDES_OF[name].items() if side in said}
    words = right.get("vocab", 0)
    if words and said["vocab"] != words and _typed(said["vocab"], words) != "two digits exchanged":
        del right["vocab"]  # words are added to a vocabulary, and another tokenizer is taken
    if said.get("heads") == SIDES_OF[name].get("kv_heads"):
        right.pop("heads", None)  # those of the keys
    odd = [side for side, value in right.items() if abs(said[side] / value - 1) > (COUNTED if side in COUNTS else 0)]
    if len(odd) != 1:
        return None
    side, agreeing = odd[0], len(right) - 1
    typed = _typed(said[side], right[side]) or said[side] in (right[side] * 2, right[side] / 2)
    if agreeing < (0 if side == "vocab" else 1 if typed and named else 2 if typed or named else WIDELY):
        return None
    if side in ("heads", "kv_heads", "ffn") and not {"layers", "hidden"} <= right.keys():
        return None
    return side, right[side], agreeing


def _typed(printed: int, right: int) -> str:
    slip = digits.slip(str(printed), (right * (1 - 1e-9), right * (1 + 1e-9)))
    return slip.how if slip is not None else ""


def _finding(file: str, number: int, name: str, said: Mapping[str, int], odd: tuple[str, int, int], column: str,
             printed: str) -> Finding:  # fmt: skip
    side, right, agreeing = odd
    how = _typed(said[side], right)
    level: Level = "error" if agreeing >= 2 else "warning"
    separator = next((mark for mark in printed if not mark.isdigit()), "")
    proposed = f"{right / 1000:g}" if side in COUNTS else f"{right:,}".replace(",", separator)
    message = f"{side} {printed} -> {proposed}{f' ({how})' if how else ''}: {name} was published with {proposed}"
    return Finding(file=file, line=number, code="label-vs-params", level=level, message=message, column=column, printed=printed,
                   proposed=proposed)  # fmt: skip
