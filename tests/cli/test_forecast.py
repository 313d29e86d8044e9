"""`seatrial forecast` and `seatrial calibrate` as a person calls them."""
from __future__ import annotations

import csv
import json
from pathlib import Path

ROWS = Path(__file__).parents[2] / "examples" / "rows.csv"


def test_a_table_comes_back_with_its_forecast(seatrial, tmp_path):
    out = tmp_path / "out.csv"
    said = seatrial("forecast", ROWS, "--cluster", "jz-a100", "-o", out)
    assert said.status == 0 and said.out == ""
    before, after = list(csv.DictReader(ROWS.open())), list(csv.DictReader(out.open()))
    assert [{k: r[k] for k in before[0]} for r in after] == before
    assert list(after[0])[-11:] == ["forecast_sec", "forecast_sec_lo", "forecast_sec_hi", "forecast_tflops", "forecast_mem_gib",
                                   "forecast_mem_lo", "forecast_mem_hi", "forecast_fits", "forecast_fit_odds",
                                    "forecast_engine", "forecast_reject"]
    rejected = [r for r in after if r["forecast_reject"]]
    assert any(r["pp"] == "48" and r["forecast_reject"].startswith("layers-divisible: 72 layers over PP 48") for r in rejected)
    assert all(r["forecast_sec"] == "" and r["forecast_fits"] == "" for r in rejected)


def test_rows_of_another_engine_have_its_rules(seatrial, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("layers,hidden,heads,dp,tp,pp,gbs,engine\n72,14336,64,8,1,48,2048,megatron\n72,14336,64,8,1,48,2048,seatrial\n")
    rows = json.loads(seatrial("forecast", table, "--cluster", "jz-a100", "--json").out)["rows"]
    assert [bool(r["forecast_sec"]) for r in rows] == [False, True]


def test_calibrating_on_rows_brings_the_forecast_nearer_and_names_doubts(seatrial, tmp_path):
    errors = []
    for options in ((), ("--calibrate", ROWS)):
        out = tmp_path / "out.csv"
        said = seatrial("forecast", ROWS, "--cluster", "jz-a100", "-o", out, *options)
        rows = [r for r in csv.DictReader(out.open()) if r["machine"] == "jz-a100" and r["status"] == "ok"]
        rows = [r for r in rows if r["sec_per_it_fixed"]]
        errors.append(sum(abs(float(r["forecast_sec"]) / float(r["sec_per_it_fixed"]) - 1) for r in rows) / len(rows))
    assert errors[1] < 0.7 * errors[0]
    assert "not believed: " in said.err


def test_a_cluster_of_the_users_own_is_a_toml_file(seatrial, tmp_path):
    table, toml = tmp_path / "rows.csv", tmp_path / "mine.toml"
    table.write_text("layers,hidden,dp,tp,gbs\n24,2048,4,2,64\n")
    toml.write_text('[cluster]\nbase = "dgx-a100"\nnodes = 2\nprocs_per_node = 4\n')
    said = seatrial("forecast", table, "--cluster", toml, "--json")
    assert said.status == 0
    assert float(json.loads(said.out)["rows"][0]["forecast_sec"]) > 0


def test_the_defaults_can_be_asked_for(seatrial):
    said = seatrial("forecast", "--defaults")
    assert said.status == 0 and "zero_stage" in said.out


def test_what_cannot_be_read_is_one_line_and_status_2(seatrial, tmp_path):
    broken = tmp_path / "rows.csv"
    broken.write_bytes(b"layers,hidden\n\xff\xfe,1\n")
    nowhere = tmp_path / "no" / "out.csv"
    for args in ((tmp_path / "no.csv",), (broken,), (ROWS, "--cluster", "nowhere"), (ROWS, "-o", nowhere), ()):
        said = seatrial("forecast", *args)
        assert said.status == 2
        assert said.err.count("\n") == 1 and "Traceback" not in said.err


def test_what_rows_teach_is_printed(seatrial):
    found = json.loads(seatrial("calibrate", ROWS, "--cluster", "jz-a100", "--json").out)
    assert found["rows"] > 50 and "compute" in found["learned"]
    assert "session 2022-02-25" in seatrial("calibrate", ROWS, "--cluster", "jz-a100").out


def test_what_is_learned_is_kept_and_columns_that_nothing_reads_are_named(seatrial, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("layers,hidden,dp,tp,gbs,sec_per_it,mood,cp\n24,2048,8,1,64,1.7,good,1\n24,2048,4,2,64,1.9,bad,1\n"
                    "24,2048,2,4,64,2.0,fair,2\n")  # fmt: skip
    said = seatrial("calibrate", rows, "--cluster", "dgx-a100", "-o", tmp_path / "learned.json")
    assert said.status == 0 and "nothing reads mood" in said.err and said.out.startswith("2 rows;")
    cold, learned = (seatrial("forecast", rows, "--cluster", "dgx-a100", *more, "--json") for more in
                     ((), ("--calibrate", tmp_path / "learned.json")))
    spot = seatrial("forecast", rows, "--cluster", "dgx-a100", "--calibrate", rows, "--json")
    assert json.loads(learned.out) == json.loads(spot.out) != json.loads(cold.out)
    assert json.loads(learned.out)["rows"][2]["forecast_reject"].startswith("context-kind: CP 2 by ring")
    assert seatrial("forecast", rows, "--cluster", "jz-a100", "--calibrate", tmp_path / "learned.json").status == 2
