"""The report's command and its files: pictures that exist and repeat themselves, errors in one line, nothing half-written."""
from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.logbook import Logbook


@pytest.fixture
def book(tmp_path: Path) -> Path:
    base = {"state": "measured", "size_label": "181B", "layers": 72, "hidden": 14336, "heads": 64, "seq": 2048, "gbs": 2048,
            "tp": 4, "procs_per_node": 8, "machine": "m", "recompute": "full", "zero_stage": 1}
    with Logbook(tmp_path / "book", create=True) as logbook:
        for nodes, dp in ((24, 4), (48, 8)):
            for mbs, sec in ((1, 120.0), (2, 110.0)):
                logbook.append({**base, "nodes": nodes, "dp": dp, "pp": 12, "mbs": mbs, "sec_per_it": sec * 48 / nodes,
                                "tflops": 140.0, "mem_value": 44.0, "mem_unit": "GiB"})
    return tmp_path / "book"


def test_pictures_are_svg_and_png_and_the_table_markdown(book: Path, tmp_path: Path, seatrial: Callable):
    out = tmp_path / "figures"
    assert seatrial("report", book, "--plots", out, "--cluster", "jz-a100").status == 0
    names = {path.name for path in out.iterdir()}
    assert names == {f"{name}.{kind}" for name in ("time", "memory", "parts", "scaling", "knobs", "pipeline")
                     for kind in ("svg", "png")} | {"table.md"}
    for path in out.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    for path in out.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    assert "181B" in (out / "table.md").read_text()
    again = tmp_path / "again"
    seatrial("report", book, "--plots", again, "--cluster", "jz-a100")
    assert all((again / path.name).read_bytes() == path.read_bytes() for path in out.iterdir())


def test_a_picture_with_nothing_in_it_is_not_written(tmp_path: Path, seatrial: Callable):
    with Logbook(tmp_path / "book", create=True) as logbook:
        logbook.append({"state": "planned", "dp": 2})
    assert seatrial("report", tmp_path / "book", "--plots", tmp_path / "figures").status == 0
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["table.md"]


@pytest.mark.parametrize("arguments", [
    ["book"], ["nowhere", "-o", "x.html"], ["book", "-o", "missing/x.html"], ["book", "-o", "x.html", "--cluster", "jz-a10"],
    ["book", "-o", "x.html", "--assume", "colour=red"], ["book", "-o", "x.html", "--tokens", "many"],
    ["book", "--plots", "file"],
])  # fmt: skip
def test_bad_input_is_one_line_and_leaves_nothing(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  seatrial: Callable, arguments: list[str]):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    said = seatrial("report", *arguments)
    assert said.status == 2 and said.err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"book", "file"}


def test_the_data_of_the_page_is_one_json_document(book: Path, seatrial: Callable):
    said = seatrial("report", book, "--json")
    assert said.status == 0 and json.loads(said.out)["count"] == 4


def test_a_torn_line_is_named_and_the_rest_is_shown(book: Path, tmp_path: Path, seatrial: Callable):
    (book / "segments" / "torn.jsonl").write_text('{"schema": 1, "state": "meas')
    said = seatrial("report", book, "-o", tmp_path / "x.html")
    assert said.status == 0 and "torn.jsonl" in said.err and "4 records" in said.err


@pytest.mark.parametrize("token", ["short", "with spaces in it, and long", "ünïcödé-and-long-enough"])
def test_a_token_that_is_weak_is_refused(book: Path, seatrial: Callable, token: str):
    said = seatrial("serve", book, "--token", token)
    assert said.status == 2 and "--token" in said.err


def test_serving_what_is_no_logbook_is_one_line(tmp_path: Path, seatrial: Callable):
    said = seatrial("serve", tmp_path / "nowhere")
    assert said.status == 2 and said.err.count("\n") == 1
