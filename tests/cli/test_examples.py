"""The sweeps of examples/ are taken as they are by the commands that look ahead, and say what their READMEs say."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FULL = sorted(path for path in EXAMPLES.glob("*/*.toml") if path.stem != "small" and path.parent.name != "engines")


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", FULL, ids=name)
def test_a_full_sweep_is_forecast_planned_and_explained_as_it_is(seatrial, path):
    said = json.loads(seatrial("forecast", path, "--json").out)
    assert said["rows"] and all(row["forecast_sec"] or row["forecast_reject"] for row in said["rows"])
    planned = seatrial("plan", path, "--top", "1", "--json")
    assert planned.status == 0 and json.loads(planned.out)["candidates"]
    explained = seatrial("explain", path, "--json")
    assert explained.status in (0, 1) and json.loads(explained.out)["sec_per_it"] > 0


def forecasts(seatrial, path: str) -> dict[str, dict[str, str]]:
    rows = json.loads(seatrial("forecast", EXAMPLES / path, "--json").out)["rows"]
    return {row["trial"].removeprefix("case="): row for row in rows}


def test_the_a100_log_is_told_its_best_topology_before_any_row(seatrial):
    path = EXAMPLES / "bloom-prequel/full.toml"
    said = json.loads(seatrial("plan", path, "--rule", "dp % 4 == 0", "--top", "5", "--json").out)
    ranked = [(row["dp"], row["tp"], row["pp"], row["mbs"]) for row in said["candidates"]]
    assert ranked[0] == (16, 4, 6, 2) and (8, 4, 12, 2) in ranked


def test_the_a100_log_is_told_what_does_not_fit_and_what_is_slow(seatrial):
    rows = forecasts(seatrial, "bloom-prequel/full.toml")
    assert {case for case, row in rows.items() if row["forecast_fits"] == "no"} == {"tp8-pp1-mbs1", "tp2-pp6-mbs2"}
    assert rows["tp2-pp6-mbs1"]["forecast_fits"] == "tight"
    sec = {case: float(row["forecast_sec"]) for case, row in rows.items() if row["forecast_sec"]}
    assert sec["tp4-pp12-mbs2"] < sec["tp8-pp6-mbs4"] < sec["tp8-pp12-mbs4"] < sec["tp8-pp12-mbs8"]


def test_the_30b_log_is_told_where_its_efficiency_goes(seatrial):
    rows = forecasts(seatrial, "fugaku-30b/full.toml")
    sec = {case: float(row["forecast_sec"]) for case, row in rows.items()}
    assert sec["384-nodes"] < sec["384-nodes-tp8"] and sec["1152-nodes"] < sec["1152-nodes-tp6"]
    assert rows["384-nodes-tp8-no-recompute"]["forecast_fits"] == "no"
    explained = json.loads(seatrial("explain", EXAMPLES / "fugaku-30b/full.toml", "--trial", "6144-nodes", "--json").out)
    assert explained["parts_s"]["bubble"] > 0.3 * explained["sec_per_it"]


def test_the_allocator_is_learned_from_rows_and_not_known_before(seatrial):
    def ratio(*options: object) -> float:
        rows = json.loads(seatrial("forecast", EXAMPLES / "tcmalloc/full.toml", "--json", *options).out)["rows"]
        sec = {row["trial"]: float(row["forecast_sec"]) for row in rows}
        return sec["case=8 environment=plain"] / sec["case=8 environment=tcmalloc"]

    assert ratio() == 1
    assert 1.5 < ratio("--calibrate", EXAMPLES / "tcmalloc/corrected.csv") < 1.8


def test_a_trial_of_a_sweep_is_chosen_by_its_words(seatrial):
    path = EXAMPLES / "bloom-prequel/heads.toml"
    assert json.loads(seatrial("explain", path, "--trial", "heads=112", "--json").out)["tp"] == 8
    said = seatrial("explain", path, "--trial", "heads=100")
    assert said.status == 2 and "no trial is 'heads=100': name one of heads=16; heads=32" in said.err
    first = seatrial("explain", path)
    assert "heads=16; --trial names another" in first.err


def test_what_a_plan_holds_fast_is_what_the_file_fixes(seatrial, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('engine = "seatrial"\nbatch = { gbs = 64 }\ntopology = { tp = 2, mbs = 1 }\nrules = ["pp <= 2"]\n'
                    '[model]\nbase = "gpt2-124m"\n[cluster]\nbase = "dgx-a100"\nnodes = 1\n[axes]\nmbs = [1, 2]\n')
    rows = json.loads(seatrial("plan", path, "--top", "100", "--json").out)["candidates"]
    assert {row["tp"] for row in rows} == {2} and {row["pp"] for row in rows} <= {1, 2}
    assert {row["mbs"] for row in rows} - {1, 2}, "what stands on an axis is searched"
    assert {row["tp"] for row in json.loads(seatrial("plan", path, "--tp", "4", "--json").out)["candidates"]} == {4}
    path.write_text("batch = { gbs = 64 }\n")
    said = seatrial("plan", path)
    assert said.status == 2 and "a plan needs a [model] table in it" in said.err


def test_one_rank_of_the_largest_layout_is_rehearsed_from_the_sweep(seatrial):
    """The memory of the first stage among 6144 processes, without allocating it; two micro-batches show that it runs."""
    path = EXAMPLES / "fugaku-30b/full.toml"
    said = seatrial("rehearse", path, "--trial", "6144-nodes", "--engine", "seatrial", "--memory-only", "--gbs", "64", "--json")
    assert said.status == 0, said.err
    assert '"tp": 4' in said.out


@pytest.mark.parametrize("log", sorted(path.parent.name for path in EXAMPLES.glob("*/small.toml")))
def test_a_small_sweep_lists_its_trials(seatrial, log):
    said = seatrial("sweep", EXAMPLES / log / "small.toml", "--dry-run", "--json")
    assert said.status == 0 and len(json.loads(said.out)["trials"]) >= 5
