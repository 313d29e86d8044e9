"""`seatrial doctor` on real ranks: topologies that train like one process, one that is made to fail, and a job of two nodes."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def doctor(*args: object, env: dict[str, str] | None = None) -> tuple[int, dict, str]:
    done = subprocess.run([sys.executable, "-m", "seatrial", "doctor", *map(str, args), "--json"], capture_output=True,
                          text=True, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})})
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def named(document: dict, name: str) -> dict:
    return next(finding for finding in document["findings"] if finding["name"] == name)


@pytest.mark.parametrize("args", [
    ("--dp", 2, "--tp", 2, "--pp", 2, "--zero", 1),
    ("--model", "llama3-70b", "--pp", 4, "--vp", 2, "--schedule", "interleaved", "--mbs", 2, "--gbs", 1024),
], ids=lambda args: " ".join(map(str, args)))  # fmt: skip
def test_a_topology_of_ones_own_trains_like_one_process(args: tuple[object, ...]) -> None:
    status, document, err = doctor(*args)
    found = named(document, "topology")
    assert (status, found["level"]) == (0, "ok"), (found, err)
    assert found["facts"]["loss_difference"] <= 1e-5 and len(found["facts"]["losses"]) == 4
    assert found["facts"]["world"] == (8 if "--tp" in args else 4)
    assert bool(found["facts"]["scaled"]) == ("llama3-70b" in args)


def test_ranks_that_fail_are_a_finding_with_the_rank_and_where_its_words_are() -> None:
    status, document, _ = doctor("--tp", 2, env={"SEATRIAL_FAULT": "raise:1:2"})
    found = named(document, "topology")
    assert (status, document["level"], found["level"]) == (1, "fail", "fail")
    assert "2 gloo ranks ended with crash: rank 1" in found["says"]
    folder = Path(found["works"].rpartition(" ")[2])
    assert (folder / "events.jsonl").exists()


def test_the_nodes_of_a_job_answer_together(port: int) -> None:
    """Two processes that each believe to be alone on their node, as srun would start them."""
    ranks = [subprocess.Popen([sys.executable, "-m", "seatrial", "doctor", "--json"], stdout=subprocess.PIPE, text=True, env={
        **os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}) for rank in range(2)]  # fmt: skip
    said = [rank.communicate(timeout=200)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0] and said[1] == ""
    document = json.loads(said[0])
    assert len(document["nodes"]) == 2 and named(document, "skew")["level"] == "ok"
    assert "2 nodes, clocks within" in named(document, "skew")["says"]


def test_a_rank_whose_peers_do_not_come_says_so_in_one_line(port: int) -> None:
    code = ("import sys; from seatrial.doctor import proof; proof.JOIN_S = 2.0; from seatrial.cli import main; "
            "sys.exit(main(['doctor']))")
    env = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert "rank 1 did not meet the other 1" in done.stderr.splitlines()[-1]
