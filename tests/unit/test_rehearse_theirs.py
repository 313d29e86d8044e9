"""One rank of a plain FSDP2 script without its peers and without a GPU: what it holds, what it says to whom."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial import presets, trialfile
from seatrial.arith import parameters
from seatrial.errors import BadInput, SeatrialError
from seatrial.rehearse.asked import Rehearsal, RehearsalOptions
from seatrial.rehearse.run import rehearse

LAYERS, WORLD, GROUP = 2, 8, 4
MODEL = {"base": "tiny", "layers": LAYERS}
LAYOUT = {"dp": WORLD, "zero": 3, "zero_group": GROUP, "precision": "bf16", "mbs": 2}


def asked(engine: str = "fsdp2", **more: Any) -> tuple[Any, Any]:
    data = {"engine": engine, "model": MODEL, "topology": LAYOUT, "batch": {"gbs": 2 * WORLD}}
    return trialfile.build({**data, **more})


PARAMETERS = parameters(asked()[0].model).total


@pytest.fixture(scope="module")
def found() -> Rehearsal:
    trial, recipe = asked()
    return rehearse(trial, recipe, RehearsalOptions(rank=5, memory_only=True), cluster=presets.cluster("jz-a100"))


def test_optimizer_holds_two_moments_of_a_shard(found: Rehearsal) -> None:
    optimizer = found.ranks[0].memory.parts["optimizer"]
    assert optimizer == pytest.approx(8 * PARAMETERS / GROUP, rel=0.01)


def test_bytes_over_time_reach_the_peak(found: Rehearsal) -> None:
    memory = found.ranks[0].memory
    assert max(sum(sample.values()) for sample in memory.over_time) == memory.peak_bytes == sum(memory.at_peak.values())
    assert memory.fake and all(memory.parts[part] > 0 for part in memory.parts)


def test_collectives_of_hsdp_come_with_their_groups_and_sizes(found: Rehearsal) -> None:
    said = found.ranks[0].collectives
    gathers = [one for one in said if one.name == "all_gather"]
    assert [(one.phase, one.ranks) for one in gathers] == [("forward", (4, 5, 6, 7))] * (LAYERS + 1) + [
        ("backward", (4, 5, 6, 7))] * (LAYERS + 1)
    # Weights go round in bf16, gradients in fp32: inside a shard group whole, across its copies a shard each.
    assert sum(one.size_bytes for one in gathers) == pytest.approx(2 * 2 * PARAMETERS, rel=0.01)
    scattered = sum(one.size_bytes for one in said if one.name == "reduce_scatter")
    across = [one for one in said if one.name == "all_reduce" and one.ranks == (1, 5) and one.phase == "backward"]
    assert scattered == GROUP * sum(one.size_bytes for one in across) == pytest.approx(4 * PARAMETERS, rel=0.01)
    assert len(across) == LAYERS + 1


def test_network_takes_time_and_nothing_else_does(found: Rehearsal) -> None:
    assert found.iteration is None
    assert all(one.seconds > 0 for one in found.ranks[0].collectives)


def test_script_of_ones_own_is_rehearsed_from_its_file(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nfrom torch import nn\nmodel = nn.Linear(512, 512, bias=False).cuda()\n"
                      "optimizer = torch.optim.AdamW(model.parameters(), foreach=True)\n"
                      "for _ in range(2):\n    model(torch.ones(4, 512, device='cuda')).sum().backward()\n"
                      "    optimizer.step()\n    optimizer.zero_grad()\n")
    described = tmp_path / "mine.toml"
    described.write_text('base = "fsdp2"\n[command]\nper = "rank"\nargv = ["{python}", "{here}/train.py"]\n')
    trial, recipe = asked(str(described), topology={}, batch={"gbs": 1})
    memory = rehearse(trial, recipe, RehearsalOptions(memory_only=True)).ranks[0].memory
    matrix = 4 * 512 * 512
    assert memory.parts["weights"] == memory.parts["gradients"] == matrix
    # Two moments stay; an optimizer by lists makes the square roots and the step beside them.
    assert 2 * matrix < memory.parts["optimizer"] < 5 * matrix


def test_weights_that_fsdp_finds_on_the_cpu_are_sharded_and_told_apart(tmp_path: Path) -> None:
    """As accelerate does: no mesh is given, the model was never moved, and parameters are found again by their addresses."""
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch import nn\nfrom torch.distributed.fsdp import fully_shard\n"
        "torch.distributed.init_process_group('nccl')\n"
        "model = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(3)))\n"
        "assert len({p.data_ptr() for p in model.parameters()}) == 3\nfully_shard(model)\n"
        "optimizer = torch.optim.AdamW(model.parameters(), foreach=False)\n"
        "for _ in range(3):\n    model(torch.ones(4, 512, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n")
    described = tmp_path / "mine.toml"
    described.write_text('base = "fsdp2"\n[command]\nper = "rank"\nargv = ["{python}", "{here}/train.py"]\n')
    trial, recipe = asked(str(described), topology={"dp": 8, "zero": 3}, batch={"gbs": 8})
    memory = rehearse(trial, recipe, RehearsalOptions(memory_only=True)).ranks[0].memory
    assert memory.parts["optimizer"] >= 2 * 3 * 4 * 512 * 512 / 8 and memory.parts["weights"] >= 3 * 4 * 512 * 512


def test_ddp_reduces_all_gradients_and_holds_them_twice() -> None:
    trial, recipe = asked(topology={"dp": WORLD}, batch={"gbs": 2 * WORLD})
    rank = rehearse(trial, recipe, RehearsalOptions(memory_only=True)).ranks[0]
    reduced = [one for one in rank.collectives if one.name == "all_reduce" and one.phase == "backward"]
    assert {one.ranks for one in reduced} == {tuple(range(WORLD))}
    assert sum(one.size_bytes for one in reduced) == 4 * PARAMETERS
    assert rank.memory.parts["gradients"] == pytest.approx(2 * 4 * PARAMETERS, rel=0.01)  # and in DDP's buckets


def test_what_is_said_before_the_forward_pass_counts_once_a_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, torch\nimport torch.distributed as dist\ndist.init_process_group()\nmodel = torch.nn.Linear(8, 8).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters())\nfor _ in range(int(sys.argv[1])):\n"
        "    dist.all_reduce(torch.ones(4, device='cuda'))\n    model(torch.ones(4, 8, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n")  # fmt: skip
    described = tmp_path / "mine.toml"
    described.write_text('base = "fsdp2"\n[command]\nper = "rank"\nargv = ["{python}", "{here}/train.py", "{steps}"]\n')
    trial, recipe = asked(str(described), topology={"dp": 2}, batch={"gbs": 2})
    said = rehearse(trial, recipe, RehearsalOptions(memory_only=True)).ranks[0].collectives
    assert [(one.name, one.ranks, one.size_bytes) for one in said] == [("all_reduce", (0, 1), 16)]


def test_weights_that_are_made_on_the_gpu_after_they_were_divided(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, torch\nimport torch.distributed as dist\nfrom torch.distributed.fsdp import fully_shard\n"
        "dist.init_process_group()\nwith torch.device('meta'):\n    model = torch.nn.Linear(8, 7, bias=False)\n"
        "fully_shard(model, mesh=dist.init_device_mesh('cuda', (3,)))\nmodel.to_empty(device='cuda')\n"
        "optimizer = torch.optim.SGD(model.parameters())\nfor _ in range(int(sys.argv[1])):\n"
        "    model(torch.ones(4, 8, device='cuda')).sum().backward()\n    optimizer.step()\n")  # fmt: skip
    described = tmp_path / "mine.toml"
    described.write_text('base = "fsdp2"\n[command]\nper = "rank"\nargv = ["{python}", "{here}/train.py", "{steps}"]\n')
    trial, recipe = asked(str(described), topology={"dp": 3}, batch={"gbs": 3})
    said = rehearse(trial, recipe, RehearsalOptions(rank=2, memory_only=True)).ranks[0].collectives
    whole = 3 * 3 * 8 * 4  # of 7 rows the last rank has one, and pads it as all have 3
    assert [(one.name, one.size_bytes) for one in said] == [("all_gather", whole), ("reduce_scatter", whole)]


def test_script_that_fails_says_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise ValueError('no such shape: 3 x 5')\n")
    described = tmp_path / "mine.toml"
    described.write_text('base = "fsdp2"\n[command]\nper = "rank"\nargv = ["{python}", "{here}/train.py"]\n')
    trial, recipe = asked(str(described), topology={}, batch={"gbs": 1})
    with pytest.raises(SeatrialError, match="exit code 1: ValueError: no such shape: 3 x 5"):
        rehearse(trial, recipe, RehearsalOptions(memory_only=True))


@pytest.mark.parametrize(("more", "rank", "why"), [
    ({"execution": {"compile": True}}, 0, "as they are written"),
    ({}, 8, "counted from 0 to 7"),
    ({"topology": {"dp": 4, "pp": 2}}, 0, "PP 2: what stages of fsdp2 would send"),
])
def test_what_cannot_be_rehearsed_is_said(more: dict[str, Any], rank: int, why: str) -> None:
    trial, recipe = asked(**more)
    with pytest.raises(BadInput, match=why):
        rehearse(trial, recipe, RehearsalOptions(rank=rank, memory_only=True))


def test_program_that_starts_its_own_ranks_is_not_rehearsed(tmp_path: Path) -> None:
    described = tmp_path / "mine.toml"
    described.write_text('base = "fsdp2"\n[command]\nper = "node"\nargv = ["torchrun", "train.py"]\n')
    trial, recipe = asked(str(described))
    with pytest.raises(BadInput, match="once a node"):
        rehearse(trial, recipe, RehearsalOptions(memory_only=True))


@pytest.mark.parametrize("engine, instead", [
    ("megatron-deepspeed", "seatrial, torchtitan, .* accelerate have one"), ("nemo", "seatrial, torchtitan, "),
    ("megatron-lm", "--engine megatron-core")])  # fmt: skip
def test_engine_without_a_rank_to_rehearse_says_what_would_do(engine: str, instead: str) -> None:
    trial, recipe = asked(engine, topology={"dp": 2}, batch={"gbs": 2})
    with pytest.raises(BadInput, match=f"engine {engine}: .*{instead}"):
        rehearse(trial, recipe, RehearsalOptions())
