"""What lint says: a finding with its code and how grave it is.

    Finding(file="a.md", line=12, code="over-peak", level="error", message="400 TFLOPs is above the peak")
    in_order(findings, ["a.md"])                     by file as given, line, gravity
"""
from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["error", "warning", "info"]
LEVELS: tuple[Level, ...] = ("error", "warning", "info")
"""error: an expert would bet on it; warning: it points at a slip; info: it could not be read, or is worth knowing."""

Ground = Literal["law", "definition", "found", "text", "counts", "figures", "exchange", "name", "open"]
"""What a finding rests on: a law of all runs; what headings mean; what most rows of the table keep to; a line of text that
says otherwise; counts of the row alone; a figure that agrees with what is proposed; the row that has the other cell of an
exchange; a total by its name; or a law that no change of one cell mends."""
SURE: tuple[Ground, ...] = ("definition", "text", "counts", "figures", "exchange")
"""Of which a row may be wrong however many others are."""

CODES: dict[str, str] = {
    "world-size": "dp x tp x pp is not nodes x processes per node",
    "batch-divisible": "the global batch is not a multiple of DP x MBS",
    "layers-divisible": "neither layers nor layers + 2 divide over the pipeline stages",
    "stages-sum": "the layers of each stage do not add up to the model's, or are not one for each stage",
    "experts-divisible": "the experts do not divide over expert parallelism, or a token passes more than there are",
    "heads-divisible": "the heads do not divide over tensor parallelism, or the hidden size over the heads",
    "ms-not-s": "milliseconds in a column of seconds",
    "time-unit": "another slip of the unit of time: seconds under ms, minutes or hours under seconds",
    "tflops-mismatch": "time and TFLOPs of a row do not belong together",
    "rate-mismatch": "samples or tokens per second do not belong to the time and the batch",
    "formula-mixed": "a row of the table counts its TFLOPs by another formula",
    "tflops-per-node": "TFLOPs of a whole node where other rows give one process",
    "another-device": "the figures of a row are those of another device of the table",
    "over-peak": "more TFLOPs than the device can do",
    "swap-twin": "the cells of time and TFLOPs are exchanged",
    "duplicate-config": "one configuration, two results",
    "pasted-pair": "time and rate of another row, to the last digit, at another layout",
    "repeat": "the same row again: count it once",
    "memory-monotone": "memory falls when the micro-batch grows",
    "memory-unit": "memory in another unit than the cell or the heading says",
    "memory-mismatch": "memory that a slip of the hand makes differ from the same configuration elsewhere",
    "memory-over-capacity": "more memory than the device has, or than the text says is usable",
    "outlier": "far from what rows have that differ in little",
    "gbs-scaling-outlier": "the time does not follow the number of micro-batches",
    "label-vs-params": "the size label does not fit the layers and the hidden size",
    "label-convention": "one table labels sizes with the embedding and without",
    "header-vs-row": "the text above the table says otherwise than the row",
    "cells-shifted": "the cells of a row stand one column too far left or right",
    "outcome-vs-figures": "a run that failed by its status, with the figures of one that went through",
    "cells-vs-header": "more or fewer cells than headings",
    "text-in-number": "words in a cell of numbers",
    "unreadable": "a cell or line that could not be read",
    "unknown-column": "a heading that nothing is known about",
    "clock-unit": "a clock in Hz or MHz that can only be GHz",
    "aggregate": "the aggregate does not follow from TFLOPs and processes, or only by 1024 or truncation",
    "layers-solved": "layers or hidden size are not stated and were worked out from the TFLOPs",
    "plan-only": "a row that was never run",
    "dated-but-empty": "a date or a job number, but no result",
    "estimated": "an estimate and not a measurement: keep it out of fits",
    "extrapolated": "an exact multiple of another row's time",
    "rule-failed": "a rule of lint failed, which is no fault of the notes",
    "date-order": "dates that run backwards in a table, or leave no room for the days between them",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    file: str
    line: int | None
    code: str
    level: Level
    message: str
    """One line: what, with the numbers that show it."""
    column: str | None = None
    """The heading as it is printed."""
    printed: str | None = None
    proposed: str | None = None
    """What the cell should say, when the evidence points to one value."""
    slip: str | None = None
    """How a hand made what is printed of what is meant, `the point moved`; of one of several changes where none is proposed."""
    ground: Ground = "law"

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def in_order(findings: list[Finding], files: list[str]) -> list[Finding]:
    """By file as given, line, gravity; the same thing is said once."""
    place = {name: i for i, name in enumerate(dict.fromkeys([*files, *(f.file for f in findings)]))}
    return sorted(dict.fromkeys(findings), key=lambda f: (place[f.file], f.line or 0, LEVELS.index(f.level), f.code))
