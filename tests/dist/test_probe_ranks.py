"""Two ranks probe together: on one node through the command, and as two nodes of one rank each."""
from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from seatrial import machine, presets
from seatrial.plan import network, probed

QUICK = ("--model", "tiny", "--tp", "1", "--mbs", "1", "--device", "cpu")


def test_two_ranks_measure_what_they_say_to_each_other(tmp_path):
    argv = [sys.executable, "-m", "seatrial", "probe", "--ranks", "2", *QUICK, "--seconds", "500"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stderr
    found = machine.read(tmp_path / "machine.json")
    assert (found["world"], found["nodes"], found["procs_per_node"], found["backend"]) == (2, 1, 2, "gloo")
    heard = {(e["op"], e["size"], e["nodes"]) for e in found["figures"]["collectives"]}
    assert heard == {(op, 2, 1) for op in ("all_reduce", "all_gather", "reduce_scatter")}
    large = {e["op"]: e["s"] for e in found["figures"]["collectives"] if e["bytes"] == 32 * 2**20}
    small = {e["op"]: e["s"] for e in found["figures"]["collectives"] if e["bytes"] == 4 * 2**10}
    assert all(large[op] > small[op] for op in large)
    summed = {op: [e["s"] for e in found["figures"]["collectives"] if e["op"] == op] for op in large}
    assert summed["reduce_scatter"] == summed["all_reduce"] != summed["all_gather"], "gloo has no other"
    assert found["between"]["rows"] >= 64 and found["between"]["s"] > 0
    assert [e["nodes"] for e in found["figures"]["p2p"]] == [1] * 4
    assert found["figures"]["matmul"] and found["figures"]["attention"]
    assert [entry["what"] for entry in found["missing"]] == ["collectives and p2p across nodes"]

    cluster = presets.cluster(str(tmp_path / "machine.json"))
    assert cluster.procs_per_node == 2
    group = network.Group(size=np.array([2]), per_node=np.array([2]), sharers=np.array([1]))
    for e in found["figures"]["collectives"]:
        if e["op"] == "all_reduce":
            assert network.all_reduce_s(cluster, group, e["bytes"])[0] == pytest.approx(e["s"], rel=1e-6)
    assert probed.basis(cluster, precision="fp32", processes=2)["not_measured"] == []


def test_ranks_of_two_nodes_measure_across_them(tmp_path, port):
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
           "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    argv = [sys.executable, "-m", "seatrial.probe", *QUICK, "--seconds", "500", "-o", "machine.json"]
    ranks = [subprocess.Popen(argv, cwd=tmp_path, env={**env, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
             for rank in range(2)]
    said = [rank.communicate(timeout=560)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    found = machine.read(tmp_path / "machine.json")
    assert (found["nodes"], found["procs_per_node"]) == (2, 1)
    assert {(e["size"], e["per_node"], e["nodes"]) for e in found["figures"]["collectives"]} == {(2, 1, 2)}
    assert {e["nodes"] for e in found["figures"]["p2p"]} == {2}
    cluster = presets.cluster(str(tmp_path / "machine.json"))
    assert (cluster.nodes, cluster.inter.name) == (2, "measured")


def test_a_rank_that_dies_leaves_a_file_that_says_so(tmp_path, port):
    """The survivor keeps what was measured until then."""
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
           "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    argv = [sys.executable, "-m", "seatrial.probe", "--device", "cpu", "--full", "--seconds", "500", "-o", "machine.json"]
    ranks = [subprocess.Popen(argv, cwd=tmp_path, env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                              stderr=subprocess.PIPE, text=True) for rank in range(2)]
    assert ranks[0].stderr is not None
    ranks[0].stderr.readline()
    ranks[1].kill()
    said = ranks[0].communicate(timeout=560)[1]
    ranks[1].communicate(timeout=60)
    assert ranks[0].returncode == 0, said
    found = machine.read(tmp_path / "machine.json")
    assert any("the connection to another rank was lost" in entry["why"] for entry in found["missing"])
    assert found["figures"]["memory"]
