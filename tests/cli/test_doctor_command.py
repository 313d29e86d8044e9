"""`seatrial doctor` as it is typed, without the proof, which tests/dist runs."""
from __future__ import annotations

import json

import pytest

NAMES = ["python", "torch", "backends", "devices", "engines", "launchers", "cores", "load", "memory", "allocator", "tmp",
         "disk", "shm", "limits", "clock", "scheduler", "network", "ports"]  # fmt: skip


def test_every_check_has_a_line_and_the_last_one_counts_them(seatrial) -> None:
    said = seatrial("doctor", "--no-train")
    *lines, last = said.out.splitlines()
    assert [line.split()[1] for line in lines] == NAMES
    assert {line.split()[0] for line in lines} <= {"ok", "warn", "fail"} and "\x1b" not in said.out
    assert last.startswith(f"{len(NAMES)} checks: ") and (said.status == 0) == last.endswith("nothing fails")


def test_the_document_has_what_the_lines_have(seatrial) -> None:
    document = json.loads(seatrial("doctor", "--no-train", "--json").out)
    assert [finding["name"] for finding in document["findings"]] == NAMES and document["schema"] == 1
    memory = next(finding for finding in document["findings"] if finding["name"] == "memory")
    assert 0 < memory["facts"]["usable_gib"] <= memory["facts"]["total_gib"]


def test_something_that_fails_is_the_exit_status(seatrial, monkeypatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libnothing.so")
    said = seatrial("doctor", "--no-train")
    assert said.status == 1 and "1 fail (allocator)" in said.out.splitlines()[-1]


@pytest.mark.parametrize(("args", "words"), [
    (("--model", "tiny", "--tp", 3), "TP 2 or 4 would do"),
    (("--model", "tiny", "--dp", 4, "--gbs", 6), "the nearest are 4 and 8"),
    (("--model", "tinny",), "tiny"),
    (("--schedule", "interleaved",), "pp >= 2"),
    (("nowhere.toml",), "nowhere.toml"),
    (("--ranks", 0), "--ranks"),
])  # fmt: skip
def test_a_topology_that_cannot_be_is_one_line_before_any_check(seatrial, args, words) -> None:
    said = seatrial("doctor", *args)
    assert (said.status, said.out) == (2, "") and words in said.err and len(said.err.splitlines()) == 1


def test_in_the_shell_of_a_batch_script_it_looks_at_this_node_alone(seatrial, monkeypatch) -> None:
    for name, value in {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0"}.items():
        monkeypatch.setenv(name, value)
    assert len(seatrial("doctor", "--no-train").out.splitlines()) == len(NAMES) + 1
