"""Fitting as a probability, and engines by their models: one meaning in every command."""
from __future__ import annotations

import json
import math
import random
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from freeze import cli, document
from seatrial import api, presets
from seatrial.engines.model import model_of, names
from seatrial.errors import BadInput, Infeasible
from seatrial.plan import calibrate, forecast, rows
from seatrial.plan.held import Held
from seatrial.plan.odds import Headroom, limit_gib, odds, word

CLUSTER = presets.cluster("dgx-a100")


def cells(**changes: object) -> dict[str, str]:
    base = {"layers": 48, "hidden": 8192, "heads": 64, "vocab": 51200, "dp": 4, "tp": 8, "pp": 4, "mbs": 2, "gbs": 512,
            "zero_stage": 1, "activation_ckpt": "true", "nodes": 16}
    return {name: str(value) for name, value in {**base, **changes}.items()}


def test_fits_is_a_word_for_the_odds():
    found = odds(np.array([60.0, 76.0, 80.0, 84.0, 90.0]), 0.06, 80.0)
    assert found[2] == pytest.approx(0.5) and (np.diff(found) < 0).all()
    assert found[1] == pytest.approx(NormalDist().cdf(math.log(80 / 76) / 0.06), abs=1e-6)
    assert [word(one) for one in found] == ["yes", "yes", "tight", "tight", "no"]
    assert [word(one) for one in (0.8, 0.79999, 0.2, 0.19999)] == ["yes", "tight", "tight", "no"]


def test_a_table_says_the_odds_and_the_engine_of_each_row():
    lines = [cells(engine="fsdp2", zero_stage="3"), cells(engine="seatrial"), cells(engine=""), cells(pp="7")]
    table = rows.from_records(lines, CLUSTER, "rows", {"engine": "deepspeed"})
    made = forecast.figures(table.rows, calibrate.cold(CLUSTER))
    assert [one["forecast_engine"] for one in made] == ["fsdp2", "seatrial", "deepspeed", None]
    held = [Held.of(rows.configs_of([row]), CLUSTER, None) for row in table.rows[:3]]
    for one, alone in zip(made, held):
        assert one["forecast_fit_odds"] == pytest.approx(alone.odds[0]) and one["forecast_fits"] == word(alone.odds[0])
    tight = forecast.figures(table.rows[:1], calibrate.cold(CLUSTER), Headroom(gib=held[0].device_gib - held[0].need_gib[0]))[0]
    assert tight["forecast_fit_odds"] == pytest.approx(0.5, abs=1e-6) and tight["forecast_fits"] == "tight"


@pytest.mark.parametrize(("text", "left"), [("", 80.0), ("4", 76.0), ("4GiB", 76.0), ("4 gib", 76.0), ("5%", 76.0), (4, 76.0)])
def test_headroom_is_gib_or_a_share(text: object, left: float):
    room = Headroom.read(text)
    assert 80.0 * (1 - room.share) - room.gib == pytest.approx(left)


@pytest.mark.parametrize("text", ["many", "-1", "100%", "4GB", "nan"])
def test_headroom_that_is_none_is_refused(text: str):
    with pytest.raises(BadInput, match="--headroom"):
        Headroom.read(text)
    with pytest.raises(BadInput, match="has"):
        limit_gib(CLUSTER, Headroom.read("500"))


def test_rows_of_many_engines_at_once_are_what_they_are_alone():
    rng = random.Random(14)
    made = [cells(engine=rng.choice(names()), tp=str(rng.choice([1, 2, 4])), mbs=str(rng.choice([1, 2, 4])), gbs="64",
                  dp=str(rng.choice([1, 2, 4])), pp=str(rng.choice([1, 2, 4])), seq=str(rng.choice([1024, 4096])),
                  recompute=rng.choice(["none", "selective", "full"]), attention=rng.choice(["", "fused"]), layers="24",
                  hidden="2048", heads="16", zero_stage=str(rng.choice([0, 1])), nodes="", procs_per_node="")
            for _ in range(20)]
    found = [rows.read_row(line, CLUSTER) for line in made]
    assert not [row.reject for row in found if row.trial is None] and len({row.trial.engine for row in found}) >= 5
    together, fit = rows.configs_of(found), calibrate.cold(CLUSTER)
    seen, held = fit.forecast(found), Held.of(together, CLUSTER, None)
    for i, row in enumerate(found):
        alone = rows.configs_of([row])
        assert fit.forecast([row]).sec[0] == pytest.approx(seen.sec[i], rel=1e-12)
        assert Held.of(alone, CLUSTER, None).need_gib[0] == pytest.approx(held.need_gib[i], rel=1e-12)
        assert Held.of(alone, CLUSTER, None).odds[0] == pytest.approx(held.odds[i], rel=1e-9)


def test_an_engine_of_ones_own_is_a_base_and_what_differs(tmp_path: Path):
    own = tmp_path / "Ours.toml"
    own.write_text('base = "fsdp2"\ngradient_bytes = 2.0\nfixed_s = 0.5\n')
    base, mine = (rows.read_row(cells(engine=name, zero_stage="1"), CLUSTER) for name in ("fsdp2", str(own)))
    fit = calibrate.cold(CLUSTER)
    assert fit.forecast([mine]).sec[0] - fit.forecast([base]).sec[0] == pytest.approx(0.49, rel=1e-6)
    made = forecast.figures([mine], fit)[0]
    assert made["forecast_engine"] == "Ours" and made["forecast_mem_gib"] < forecast.figures([base], fit)[0]["forecast_mem_gib"]


@pytest.mark.parametrize(("text", "said"), [
    ("", "needs base"), ('base = "horse"', "horse"), ('base = "fsdp2"\nfixed_s = -1', "negative"), ("base = ", "not TOML"),
    ('base = "fsdp2"\nexposed = 2.0', "share"), ('base = "fsdp2"\nhorses = 2', "horses"),
])  # fmt: skip
def test_an_engine_file_that_is_none_is_one_line(text: str, said: str, tmp_path: Path):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=said):
        model_of(str(path))


# ---- commands

ONE = ["--model", "gpt-1.3b", "--cluster", "dgx-a100", "--nodes", "1", "--gbs", "64", "--zero", "0"]


def test_explain_exits_by_the_odds_and_says_them():
    fits = document("explain", *ONE, "--mbs", "2", "--recompute", "full", "--json")
    assert fits["fits"] is True and fits["fit_odds"] > 0.99 and (fits["engine"], fits["attention"]) == ("megatron-deepspeed",
                                                                                                     "stored")
    assert cli("explain", *ONE, "--mbs", "2", "--recompute", "full").status == 0
    full = document("explain", *ONE, "--mbs", "64", "--dp", "1", "--tp", "8", "--json")
    assert full["fits"] is False and full["fit_odds"] < 0.2 and cli(
        "explain", *ONE, "--mbs", "64", "--dp", "1", "--tp", "8").status == 1
    # Headroom that leaves about what it needs: a coin's throw, and no longer a refusal.
    need = fits["mem_gib"]
    said = document("explain", *ONE, "--mbs", "2", "--recompute", "full", "--json", "--headroom",
                    f"{fits['mem_limit_gib'] - need:.3f}GiB")
    assert 0.2 < said["fit_odds"] < 0.95 and said["fits"] is True


def test_a_kernel_of_attention_can_be_said_and_stands_in_the_answer():
    asked = [*ONE, "--mbs", "8", "--json"]
    stored, fused = document("explain", *asked), document("explain", *asked, "--attention", "fused")
    assert fused["mem_gib"] < stored["mem_gib"] and fused["attention"] == "fused"
    assert document("explain", *asked, "--set", "execution.attention=fused") == fused
    plans = [document("plan", *ONE, "--json", "--top", "3", *more) for more in ([], ["--attention", "fused"])]
    assert [one["attention"] for one in plans] == ["stored", "fused"] and plans[1]["accepted"] > plans[0]["accepted"]
    text = cli("plan", *ONE, "--attention", "fused").out
    assert "Engine megatron-deepspeed, attention fused." in text and "fits with" in text
    assert max(map(len, text.splitlines()[:2])) <= 80
    wrong = cli("plan", *ONE, "--attention", "fused-hopper")
    assert wrong.status == 2 and "older than those kernels" in wrong.err
    assert "stored, fused" in cli("plan", *ONE, "--attention", "horse").err


def test_every_engine_can_be_planned_for_and_explained():
    seen = {}
    for name in names():
        found = document("plan", *ONE, "--engine", name, "--json", "--top", "1")
        seen[name] = found["candidates"][0]["sec_per_it"]
        assert found["engine"] == name == document("explain", *ONE, "--engine", name, "--json")["engine"]
        assert found["candidates"][0]["fit_odds"] >= 0.8
    assert len(set(seen.values())) == len(seen)
    assert "megatron-core" in "".join(cli("plan", "--help").out.split()) and cli("plan", *ONE, "--engine", "horse").status == 2


def test_a_models_file_is_explained_as_it_is_planned(tmp_path: Path):
    own = tmp_path / "mine.toml"
    own.write_text('[model]\nbase = "gpt-1.3b"\nlayers = 12\n')
    asked = ["--model", own, *ONE[2:], "--json"]
    assert document("explain", *asked, "--mbs", "2")["sec_per_it"] > 0
    (first, *_), told = document("plan", *asked, "--dp", "8", "--mbs", "2", "--recompute", "full")["candidates"], document(
        "explain", *asked, "--dp", "8", "--mbs", "2", "--recompute", "full")
    assert first["sec_per_it"] == pytest.approx(told["sec_per_it"], rel=1e-5)
    own.write_text("layers = 3\n")
    assert "needs a [model] table" in cli("explain", *asked).err


def test_from_python_the_same_words_are_taken():
    asked = {"model": "gpt-1.3b", "cluster": "dgx-a100", "nodes": 1, "gbs": 64}
    plan = api.plan(**asked, engine="fsdp2", attention="fused", headroom="5%", top=2)
    assert plan.document["engine"] == "fsdp2" and plan.trials[0].execution.attention == "fused"
    told = api.explain(**asked, zero=3, engine="fsdp2", headroom=4)
    assert told["mem_limit_gib"] == pytest.approx(limit_gib(CLUSTER) - 4)
    row = {"layers": 24, "hidden": 2048, "gbs": 64, "dp": 8}
    found = api.forecast([row, {**row, "engine": "seatrial"}], "dgx-a100", engine="fsdp2", attention="fused")
    assert [one["forecast_engine"] for one in found] == ["fsdp2", "seatrial"]
    with pytest.raises(Infeasible, match="never keeps"):
        api.plan(**asked, engine="seatrial", attention="stored")


def test_forecast_takes_an_engine_for_rows_that_name_none(tmp_path: Path):
    table = tmp_path / "rows.csv"
    table.write_text("layers,hidden,gbs,dp,engine\n24,2048,64,8,\n24,2048,64,8,seatrial\n")
    found = document("forecast", table, "--cluster", "dgx-a100", "--engine", "torchtitan", "--json")["rows"]
    assert [one["forecast_engine"] for one in found] == ["fsdp2", "seatrial"]
    assert all(0 <= float(one["forecast_fit_odds"]) <= 1 for one in found)
    assert cli("forecast", table, "--engine", "horse").status == 2
    assert json.loads(cli("forecast", table, "--cluster", "dgx-a100", "--json").out)["rows"][0]["forecast_engine"] == \
        "megatron-deepspeed"
