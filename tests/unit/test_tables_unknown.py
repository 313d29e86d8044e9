"""Columns that no field takes are named, and those that would change a forecast refuse their rows unless they are neutral."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial import presets
from seatrial.notes.read import import_file
from seatrial.plan import rows as planner_rows
from seatrial.tables.unknown import unknown_columns


def test_columns_that_no_field_takes_are_named_once_in_their_order():
    headings = ["#", "Nodes", "Mood", "DP/TP/PP", "sec_per_it", "dp_fixed", "", "Rack", "Mood"]
    assert unknown_columns(headings, []) == (["Mood", "Rack"], {})


@pytest.mark.parametrize("heading", ["Ulysses", "sp_size", "# MoE", "HSDP"])
def test_an_axis_that_no_forecast_knows_refuses_the_row_unless_it_is_neutral(heading):
    neutral = ["", "1", "0", "none", "off", "-", "–", "1.0", "N/A", "No"]
    ignored, refused = unknown_columns(["DP", heading], [["8", value] for value in [*neutral, "2", "8"]])
    assert ignored == []
    assert list(refused) == [len(neutral), len(neutral) + 1]
    assert refused[len(neutral)].startswith(f"{heading} 2: ") and "is not modelled" in refused[len(neutral)]


@pytest.mark.parametrize("heading", ["Context", "ctx", "SP", "sequence parallel", "MBS", "ZeRO", "DP size", "EP",
                                     "expert_parallel_size", "Experts", "num_experts", "# experts",
                                     "top_k", "MoE top-k", "ETP", "shared experts"])
def test_what_a_field_takes_is_no_such_axis(heading):
    assert unknown_columns([heading], [["8"]]) == ([], {})


@pytest.mark.parametrize("name", ["notes.md", "rows.csv", "named.csv"])
def test_an_import_names_the_columns_and_the_planner_refuses_the_rows(tmp_path: Path, name: str):
    path = tmp_path / name
    if name == "notes.md":
        path.write_text("| DP | TP | Ulysses | GBS | Sec/it | Mood |\n| - | - | - | - | - | - |\n"
                        "| 8 | 4 | 1 | 512 | 1.5 | good |\n| 8 | 4 | 2 | 512 | 0.9 | |\n")
    else:
        heads = "DP,TP,Ulysses,GBS,Sec/it,Mood" if name == "rows.csv" else "dp,tp,ulysses,gbs,sec_per_it,mood"
        path.write_text(f"{heads}\n8,4,1,512,1.5,good\n8,4,2,512,0.9,\n")
    found = import_file(path)
    assert [(record.sec_per_it, record.extra.get("Ulysses") or record.extra.get("ulysses")) for record in found.records] == [
        (1.5, "1"), (0.9, "2")]  # fmt: skip
    assert [name.lower() for name in found.unknown_columns] == ["mood"] and not found.problems
    of_shape = [{**record.to_dict(), "layers": 24, "hidden": 2048} for record in found.records]
    fits, refused = planner_rows.from_records(of_shape, presets.cluster("jz-a100"), name).rows
    assert fits.trial is not None and "sequence parallelism of so many ranks is not modelled" in refused.reject


def test_the_planner_refuses_the_same_rows_and_names_the_same_columns(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text("layers,hidden,dp,tp,ulysses,gbs,sec_per_it,glu,mood\n24,2048,8,1,0,512,1.5,no,good\n24,2048,8,1,8,512,0.9,no,\n")
    table = planner_rows.read(path, presets.cluster("jz-a100"))
    assert table.ignored == ("mood",)
    assert table.rows[0].trial is not None
    assert table.rows[1].trial is None
    assert table.rows[1].reject.startswith("unknown-axis: ulysses 8: sequence parallelism of so many ranks is not modelled")


def test_rows_of_dense_models_and_of_mixtures_are_read_from_one_table(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text("layers,hidden,heads,dp,tp,ep,experts,top_k,expert_ffn,gbs,sec_per_it,engine\n"
                    "24,2048,16,8,1,1,0,,,512,1.5,\n24,2048,16,8,1,4,8,2,1024,512,0.9,megatron-core\n")
    dense, mixed = (row.trial for row in planner_rows.read(path, presets.cluster("jz-a100")).rows)
    assert dense is not None and not dense.model.mixture
    assert mixed is not None and (mixed.model.experts, mixed.model.chosen, mixed.model.expert_inner) == (8, 2, 1024)
    assert (mixed.topology.ep, mixed.topology.edp) == (4, 2)
