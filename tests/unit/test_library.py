"""The library as a notebook would use it: plain values in, rows out, nothing of the command line between."""
from __future__ import annotations

import json
import subprocess
import sys

import pytest

from docs_tools import pages
from seatrial import api, presets
from seatrial.columns import COLUMNS
from seatrial.errors import BadInput

ASKED = {"model": "gpt-1.3b", "cluster": "dgx-a100", "nodes": 1, "gbs": 64}
ROWS = pages.ROOT / "examples" / "rows.csv"


def test_a_plan_is_rows_and_says_what_the_command_says(seatrial):
    plan = api.plan(**ASKED, zero=1, tp=(1, 2), top=5, rules=["mbs <= 4"], tokens=1e9, price=2.0)
    said = seatrial("plan", "--model", "gpt-1.3b", "--cluster", "dgx-a100", "--nodes", 1, "--gbs", 64, "--zero", 1,
                    "--tp", "1,2", "--top", 5, "--rule", "mbs <= 4", "--tokens", "1e9", "--price", 2.0, "--json")  # fmt: skip
    assert plan.document == json.loads(said.out)
    assert plan.rows == plan.document["candidates"] == plan.to_dicts() and len(plan) == 5
    assert [(t.topology.tp, t.topology.zero) for t in plan.trials] == [(row["tp"], 1) for row in plan]


def test_what_cannot_be_is_a_reason_or_one_line():
    nothing = api.plan(**ASKED, tp=3)
    assert not nothing.rows and "TP 3" in nothing.document["reason"] and nothing.document["nearest"]
    for wrong, words in (({"tpp": 2}, "did you mean 'tp'"), ({"recompute": "some"}, "recompute"), ({"tp": 1.5}, "whole number"),
                         ({"by": "luck"}, "--by"), ({"rules": ["dp %"]}, "dp %"), ({"gbs": None}, "--gbs")):
        with pytest.raises(BadInput, match=words) as refused:
            api.plan(**{**ASKED, **wrong})
        assert len(str(refused.value).splitlines()) == 1


def test_models_and_clusters_are_names_tables_or_values():
    model, cluster = presets.model("gpt-1.3b"), presets.cluster("dgx-a100", nodes=1)
    named = api.plan(**ASKED, top=3)
    assert api.plan(model=model, cluster=cluster, gbs=64, top=3).rows == named.rows
    tables = api.plan(model={"base": "gpt-1.3b"}, cluster={"base": "dgx-a100", "nodes": 1}, gbs=64, top=3)
    assert tables.rows == named.rows


def test_one_layout_is_explained_as_the_command_explains_it(seatrial):
    said = seatrial("explain", "--model", "gpt-1.3b", "--cluster", "dgx-a100", "--nodes", 1, "--gbs", 64, "--tp", 2, "--json")
    told = api.explain(**ASKED, tp=2)
    assert told == json.loads(said.out)
    assert api.explain(api.trial(**ASKED, tp=2)) == told
    assert sum(told["parts_s"].values()) == pytest.approx(told["sec_per_it"])
    with pytest.raises(BadInput, match="no such knob; did you mean 'tp'"):
        api.trial(**ASKED, ttp=2)


def test_rows_and_trials_are_forecast_in_their_order():
    plan = api.plan(**ASKED, top=4)
    made = api.forecast(plan.trials)
    assert [row["forecast_sec"] for row in made] == [pytest.approx(row["sec_per_it"], rel=1e-5) for row in plan]
    typed = {"layers": 24, "hidden": 2048, "dp": 4, "tp": 2, "gbs": 64, "sequence_parallel": True}
    text = {name: str(value) for name, value in typed.items()}
    first, second, bad = api.forecast([typed, text, {**typed, "tp": 3}], "dgx-a100")
    assert first["forecast_sec"] == second["forecast_sec"] > 0
    assert bad["forecast_sec"] is None and bad["forecast_reject"]


def test_a_calibration_goes_through_its_file(tmp_path):
    learned = api.calibrate(ROWS, "jz-a100")
    learned.save(tmp_path / "calibration.json")
    asked = {"model": "bloom-181b", "cluster": "jz-a100", "nodes": 48, "gbs": 2048, "zero": 1, "recompute": "full", "top": 5}
    plans = [api.plan(**asked, calibration=one).document for one in (learned, tmp_path / "calibration.json", ROWS)]
    assert plans[0] == plans[1] == plans[2] and plans[0]["calibration"]["rows"] == learned.rows > 30
    assert api.load_calibration(tmp_path / "calibration.json").describe() == learned.describe()
    with pytest.raises(BadInput, match="learned on cluster jz-a100"):
        api.load_calibration(tmp_path / "calibration.json", "dgx-a100")


def test_a_search_is_asked_and_told():
    search = api.tune(api.plan(**ASKED, engine="seatrial", zero=1, top=10).trials)
    asked = 0
    while (trial := search.ask()) is not None and asked < 10:
        search.tell(trial, 1.2 * api.forecast([trial])[0]["forecast_sec"])
        asked += 1
    assert search.standing().best is not None and asked >= 1
    assert api.tune(**{**ASKED, "cluster": "dgx-a100"}, most=7).ask() is not None


def test_a_logbook_is_rows_with_typed_columns_and_a_page(tmp_path):
    from seatrial.logbook import Logbook

    with Logbook(tmp_path / "book", create=True) as book:
        book.append({"state": "measured", "dp": 4, "tp": 2, "layers": 24, "hidden": 2048, "sec_per_it": 1.5, "tflops": 80.0,
                     "sequence_parallel": True, "mem_value": 2048.0, "mem_unit": "MiB"})
        book.append({"state": "failed", "dp": 8, "outcome": {"status": "oom_device", "message": "too much"}})
    rows = api.logbook(tmp_path / "book")
    assert set(COLUMNS) <= set(rows[0]) == set(rows[1])
    assert (rows[0]["dp"], rows[0]["sequence_parallel"], rows[0]["mem_gib"], rows[0]["dtype"]) == (4, True, 2.0, None)
    assert [row["outcome"] for row in rows] == [None, "oom_device"]
    assert api.report(tmp_path / "book", tmp_path / "page.html").read_text().lower().startswith("<!doctype html>")


def test_a_page_can_stand_on_a_calibration(tmp_path):
    from seatrial.report.forecasts import Clusters, of
    from seatrial.report.read import read

    api.calibrate(ROWS, "jz-a100").save(tmp_path / "calibration.json")
    records = [record for record in read([ROWS])[0] if record.machine == "jz-a100" and record.nodes == 48][:8]
    cold, learned = (of(records, Clusters.read(["jz-a100"], ["recompute=full"], files))
                     for files in ((), [tmp_path / "calibration.json"]))
    assert cold.keys() == learned.keys() and len(cold) > 4
    errors = [sum(abs(found[i].sec / records[i].sec_per_it - 1) for i in found if records[i].sec_per_it)
              for found in (cold, learned)]  # fmt: skip
    assert errors[1] < errors[0]
    assert all(found.hi / found.lo < cold[i].hi / cold[i].lo for i, found in learned.items())


def test_a_frame_takes_the_rows():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(api.plan(**ASKED, top=5).rows)
    assert frame["sec_per_it"].is_monotonic_increasing and frame["tp"].dtype.kind == "i"


def test_the_page_about_python_runs(tmp_path, monkeypatch):
    """Every block, in one namespace, from a folder with the examples beside it."""
    (tmp_path / "examples").symlink_to(pages.ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    blocks = [block.text for block in pages.read(pages.DOCS / "python.md").blocks if block.language == "python"]
    assert len(blocks) >= 6
    space: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), space)
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_importing_loads_nothing_heavy():
    code = ("import sys, time; began = time.perf_counter(); import seatrial; took = time.perf_counter() - began; "
            "print(sorted({'numpy', 'scipy', 'torch', 'typer', 'rich'} & set(sys.modules)), took < 0.05)")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "[] True\n"
    also = "import sys; from seatrial import api; print(sorted({'numpy', 'torch', 'typer'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", also], capture_output=True, text=True, check=True).stdout == "[]\n"
