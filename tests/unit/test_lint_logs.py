"""Lint on the five raw logs: every known anomaly at its line, and no error on a row that is right."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at

ANOMALIES: dict[str, tuple[str, str, dict[str, str | None]]] = {
    # id: (file, code, {line: what must be proposed, None where nothing is asked for})
    "A1": ("001", "world-size", {"35": "6", "36": "8", "37": "16", "38": "32"}),
    "A2": ("002", "world-size", {"319": "4"}),
    "A3": ("000", "batch-divisible", {"34": None, "35": None}),
    "A4": ("002", "layers-divisible", {"483": None}),
    "B1": ("001", "ms-not-s", {
        "32": "3534.8833", "33": "1841.59885", "34": "982.7666", "35": "701.6585", "36": "558.6969", "37": "353.8192",
        "38": "252.05295", "39": "1516.9546", "40": "806.28395", "41": "465.1534", "42": "297.1933"}),
    "B2 first": ("000", "clock-unit", {"22": "2.2GHz"}),
    "B2": ("004", "clock-unit", dict.fromkeys(["8", "12", "14", "15", "23", "25", "27", "35", "37", "39"], "2.2GHz")),
    "C1": ("002", "tflops-mismatch", {"329": "512", "330": "512", "331": "512"}),
    "C2": ("002", "swap-twin", {"340": "134.02"}),
    "C3": ("002", "formula-mixed", {"341": "117.38"}),
    "C4": ("004", "tflops-mismatch", {"34": None}),
    "C5": ("003", "tflops-mismatch", {"26": None}),
    "C6": ("004", "tflops-mismatch", {"10": None}),
    "C7": ("004", "tflops-per-node", {"6": "0.34", "8": "0.57", "26": "0.29", "27": "0.40"}),
    "C9": ("000", "estimated", {"23": None, "26": None}),
    "D1": ("002", "label-vs-params", {"331": "28B"}),
    "D2": ("002", "label-vs-params", dict.fromkeys(["150", "154", "170", "197", "198", "199", "200"])),
    "E1": ("002", "memory-monotone", {"305": "56GB", "306": "65GB"}),
    "E2": ("002", "duplicate-config", {"474": None, "475": None}),
    "E3": ("002", "duplicate-config", {"329": None, "330": None}),
    "E4": ("002", "memory-over-capacity", {"331": None}),
    "E5": ("002", "gbs-scaling-outlier", {"447": None}),
    "E9": ("002", "repeat", dict.fromkeys("168 169 170 171 179 188 197 206 253 410 422 431".split())),
    "E9 over files": ("004", "repeat", {"33": None, "35": None}),
    "G1": ("004", "cells-vs-header", {"36": None, "37": None, "38": None, "39": None}),
    "G2": ("001", "text-in-number", {"24": None, "27": None, "32": None}),
}  # fmt: skip
ERRORS_MAY_STAND_AT = {
    (file, int(line)) for key, (file, _, lines) in ANOMALIES.items() if key[0] in "ABCDG" and key != "C9" for line in lines
}


@pytest.fixture(scope="module")
def found(seeds_dir: Path) -> list[Finding]:
    return look_at(sorted(str(path) for path in seeds_dir.glob("*.txt")))[0]


@pytest.mark.parametrize("key", ANOMALIES)
def test_the_known_anomaly_is_found_at_its_lines(found: list[Finding], key: str):
    file, code, lines = ANOMALIES[key]
    there = {str(f.line): f for f in found if Path(f.file).name.startswith(file) and f.code == code}
    assert set(lines) <= set(there)
    wanted = {line: value for line, value in lines.items() if value}
    assert {line: there[line].proposed for line in wanted} == wanted


def test_no_error_stands_on_a_row_that_is_right(found: list[Finding]):
    errors = {(Path(f.file).name[:3], f.line) for f in found if f.level == "error"}
    assert errors <= ERRORS_MAY_STAND_AT


def test_the_time_that_was_cut_off_is_bracketed(found: list[Finding]):
    """The author's own history gives 3.774 s for the row that prints 3.7."""
    (row,) = [f for f in found if Path(f.file).name.startswith("004") and f.line == 10 and f.code == "tflops-mismatch"]
    assert row.proposed is not None and abs(float(row.proposed) - 3.774) < 0.01


def test_layers_that_nobody_stated_are_solved(found: list[Finding]):
    solved = {f.line: f.proposed for f in found if f.code == "layers-solved" and Path(f.file).name.startswith("002")}
    assert {149: "78", 150: "77", 152: "81", 154: "77", 155: "72"}.items() <= solved.items()


def test_each_file_alone_says_the_same_but_for_copies_between_files(seeds_dir: Path, found: list[Finding]):
    alone = [f for path in sorted(seeds_dir.glob("*.txt")) for f in look_at([str(path)])[0]]
    graver = [(f.file, f.line, f.code) for f in found if f.level != "info"]
    assert [(f.file, f.line, f.code) for f in alone if f.level != "info"] == graver
