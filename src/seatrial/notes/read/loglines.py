"""The figures of one line of a log, by its description (`logformat.py`): in the units of a record, and as printed.

    figures(line, line.match(text))        {"iteration": 5, "sec_per_it": 1.25, "time_unit": "ms"}, {"elapsed time …": "1250.0"}
    judge(step)                            a loss that is no number becomes the step's outcome
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from seatrial.notes.read.logformat import Figure, Line, plain
from seatrial.notes.read.runs import Step
from seatrial.record import Outcome

MEASURES_OF_MEMORY = ("allocated", "reserved", "used")


def pairs(line: Line, match: re.Match[str]) -> Iterator[tuple[str, str]]:
    if line.pair is not None:
        for pair in line.pair.finditer(match.string, match.end()):
            yield pair.group("key").strip(), pair.group("value").strip()


def figures(line: Line, match: re.Match[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """A line's values in the units of a record, and its texts by what stands before them."""
    values: dict[str, Any] = {}
    printed: dict[str, str] = {}
    for name, text in match.groupdict().items():
        if text is not None and name not in ("key", "value", "unit", "rank"):
            unit = match.groupdict().get("unit") if name == "sec_per_it" else ""
            figure = line.groups[name]
            put(values, Figure(name, unit or figure.unit, figure.also), text)
            printed |= {name: text} if name not in ("iteration", "of") else {}
    if values.get("epoch") and values.get("of") and "iteration" in values:
        # Counted from 1, with the steps of an epoch beside it.
        values["iteration"] += (values.pop("epoch") - 1) * values["of"]
    if match.groupdict().get("key") is not None:
        _take(line, values, printed, match.group("key"), match.group("value"))
    head = match.string[: match.start()]
    if line.pair is not None and "|" in head:
        # What a program prints before the step's number belongs to it too: ` samples/sec: 3.4 | iteration 5/ 100 |`.
        for pair in line.pair.finditer(head):
            _take(line, values, printed, pair.group("key"), pair.group("value"), only=True)
    for key, text in pairs(line, match):
        _take(line, values, printed, key, text)
    return values, printed


def _take(line: Line, values: dict[str, Any], printed: dict[str, str], key: str, text: str, only: bool = False) -> None:
    key, text = key.strip(), text.strip()
    figure = line.figures.get(plain(key))
    if figure is None and only:
        return
    printed[key] = text
    if figure is not None and figure.name:
        put(values, figure, text)


def put(values: dict[str, Any], figure: Figure, text: str) -> None:
    if figure.name in ("names", "values", "elapsed"):
        return
    value, unit = figure.read(text)
    if value is None or figure.name in values and not (figure.name == "mem_value" and value > values["mem_value"]):
        return
    if figure.name in ("mfu", "hfu") and value < 0:
        return
    values[figure.name] = value
    if figure.name == "sec_per_it":
        values["time_unit"] = unit
    elif figure.name == "mem_value":
        values["mem_unit"] = unit
        values["mem_measure"] = next((word for word in figure.also if word in MEASURES_OF_MEMORY), "")
    elif figure.name == "tflops":
        for word in figure.also:
            values["tflops_per" if word in ("process", "node") else "formula"] = word


def judge(step: Step) -> None:
    """A loss that is no number, or steps that the program says had none."""
    iteration = step.values.get("iteration")
    loss = step.values.get("loss")
    if isinstance(loss, float) and loss != loss:
        key, text = next(((k, t) for k, t in step.printed.items() if "loss" in k.lower()), ("loss", "nan"))
        step.outcome = Outcome(status="nan", message=f"{key}: {text}", iteration=iteration)
        del step.values["loss"]
    elif step.values.get("nan"):
        message = next((f"{k}: {t}" for k, t in step.printed.items() if "nan" in k), "nan")
        step.outcome = Outcome(status="nan", message=message, iteration=iteration)
