"""Lint on whole notes in other hands than the five logs': what is planted is found, and nothing else is said."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import CODES, look_at
from seatrial.notes.lint.text.prose import Prose

NOTES = Path(__file__).parents[1] / "data" / "notes"
PLANTED: dict[str, set[tuple[int, str, str, str | None, str | None]]] = {
    "v100.md": {
        (13, "error", "world-size", "TP", "4"),
        (14, "warning", "memory-monotone", "Mem", "19GB"),
        (15, "warning", "memory-monotone", "Mem", "25GB"),
        (18, "error", "ms-not-s", "Sec/it", "21.600"),
        (19, "error", "memory-over-capacity", "Mem", None),
        (20, "error", "tflops-mismatch", "Sec/it", "20.42"),
        (21, "error", "batch-divisible", "GBS", None),
    },
    "h100.md": {
        (11, "error", "rate-mismatch", "tokens/s/GPU", "7561"),
        (12, "error", "tflops-mismatch", "Step time (s)", "9.437"),
        (14, "error", "world-size", "GPUs", "64"),
        (15, "error", "rate-mismatch", "MFU", "39.6%"),
    },
    "a100.csv": {
        (4, "error", "tflops-mismatch", "gbs", "1024"),
        (5, "error", "swap-twin", "sec/it", "21.82"),
        (7, "error", "tflops-mismatch", "layers", "44"),
        (8, "error", "label-vs-params", "size", "20B"),
        (10, "error", "heads-divisible", "tp", None),
        (10, "error", "heads-divisible", "heads", None),
    },
    "cpu.md": {
        (17, "error", "clock-unit", "Freq", "2.4GHz"),
        (20, "error", "aggregate", "Est. Aggr. PetaFLOPs", "0.0359"),
        (21, "error", "world-size", "Nodes", "32"),
        (22, "error", "cells-vs-header", None, None),  # type: ignore[arg-type]
        (23, "error", "heads-divisible", "TP", "1"),
        (23, "warning", "dated-but-empty", None, None),  # type: ignore[arg-type]
        (25, "error", "batch-divisible", "GBS", None),
    },
}
"""Line, level, code, column, proposal."""


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_and_nothing_else(name: str):
    found = look_at([str(NOTES / name)])[0]
    told = {(f.line, f.level, f.code, f.column, f.proposed) for f in found if f.level != "info"}
    assert told == PLANTED[name]


def test_estimates_and_plans_are_told_apart():
    told = {(f.line, f.code) for f in look_at([str(NOTES / "cpu.md")])[0]}
    assert {(24, "estimated"), (25, "plan-only")} <= told


def test_every_code_is_explained_once():
    told = {f.code for name in PLANTED for f in look_at([str(NOTES / name)])[0]}
    assert told <= set(CODES) and len(set(CODES.values())) == len(CODES)


@pytest.mark.parametrize("heads", ["== {} ==", "h2. {}", "## {}", "= {}"])
def test_headings_of_wikis_are_sections_of_the_text(heads: str):
    text = "\n\n".join(f"{heads.format(name)}\n\nSequences of 2048." for name in ("First", "Second"))
    assert [section.title for section in Prose.of(text).hints.sections.sections] == ["", "First", "Second"]
