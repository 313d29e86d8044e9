"""One of the five logs runs for real, and a sweep holds its ranks to a part of a core."""
from __future__ import annotations

from pathlib import Path

import pytest

import sweeps
from seatrial.errors import BadInput
from seatrial.launch.local import preload_problem
from seatrial.launch.share import Shares

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.timeout(600)
def test_the_small_sweep_of_a_log_runs_every_trial_to_its_row(tmp_path):
    """examples/fugaku-sweep/small.toml as it is: half a minute on two quiet cores."""
    found = sweeps.run(EXAMPLES / "fugaku-sweep" / "small.toml", tmp_path / "book", timeout_s=500)
    rows = {row["knobs"]["case"]: row for row in found["trials"]}
    assert set(rows) == {"1-process-2-threads", "2-processes", "2-processes-tcmalloc", "4-processes", "2-processes-tp2"}
    without = preload_problem({"LD_PRELOAD": "libtcmalloc_minimal.so.4"})
    for case, row in rows.items():
        if "tcmalloc" in case and without:
            assert row["status"] == "invalid" and "libtcmalloc" in row["message"]
        else:
            assert row["status"] == "ok" and row["sec_per_it"] > 0 and row["tflops"] > 0, row


@pytest.mark.timeout(300)
def test_a_sweep_can_hold_its_ranks_to_a_part_of_a_core(tmp_path):
    """How well the kernel keeps it is in tests/unit/test_launch_share.py; here that it reaches the ranks and the record."""
    try:
        Shares(0.5, ranks=[0]).close()
    except BadInput as error:
        pytest.skip(str(error))
    file = sweeps.write(tmp_path / "half.toml", {
        "model": {"base": "tiny", "layers": 2}, "batch": {"gbs": 4}, "training": {"steps": 2, "threads": 1, "device": "cpu"},
        "measure": {"known_to": 0}, "limits": {"time_s": 240, "cores": 0.5}, "axes": {"dp": [1, 2]}})
    found = sweeps.run(file, tmp_path / "book", timeout_s=280)
    assert [row["status"] for row in found["trials"]] == ["ok", "ok"]
    assert [record["host"]["cores_a_rank"] for record in sweeps.lines(tmp_path / "book")] == [0.5, 0.5]
