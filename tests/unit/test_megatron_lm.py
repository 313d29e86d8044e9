"""Megatron-LM from a checkout: what it is told, how it is started, what is read of it. The checkout here is made up: it has the
two files that are touched, and prints what Megatron-LM prints."""
from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from seatrial import trialfile
from seatrial.engines import engine_for
from seatrial.errors import BadInput, Infeasible
from seatrial.launch.local import Local
from seatrial.launch.trial import Limits, run_trial
from seatrial.plan import emit

ARGUMENTS = """
def parse():
    import argparse, sys
    parser = argparse.ArgumentParser()
    for name in ("tensor-model-parallel-size", "num-layers", "global-batch-size", "train-iters"):
        parser.add_argument("--" + name, type=int)
    args, _ = parser.parse_known_args()
    args.bf16 = args.fp16 = False
    {slip}
    return args

def _print_args(title, args):
    print("------------------------ arguments ------------------------")
"""
PRETRAIN = """
import os, torch
from megatron.training import arguments
args = arguments.parse()
arguments._print_args("arguments", args)
assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "1" and torch.cuda.current_device() is not None
rank = int(os.environ["RANK"])
for step in range(1, args.train_iters + 1):
    if rank == 1:
        print(f" [2026-08-22 10:00:0{step}] iteration {step:8}/{args.train_iters:8} | consumed samples: {4 * step:12} | "
              f"elapsed time per iteration (ms): {200 + step}.0 | throughput per GPU (TFLOP/s/GPU): 0.0 | "
              f"learning rate: 1.0E-04 | global batch size: {4:5} | lm loss: 5.{step}00000E+00 | loss scale: 1.0 | "
              "grad norm: 2.5 | number of skipped iterations:   0 | number of nan iterations:   0 |", flush=True)
    elif step == 1:
        print("[Rank 0] (after 1 iterations) memory (MB) | allocated: 300.00 | max allocated: 400.00 | reserved: 450.00 | "
              "max reserved: 512.00", flush=True)
"""


def checkout(folder: Path, slip: str = "pass") -> str:
    inside = folder / "checkout" / "megatron" / "training"
    inside.mkdir(parents=True)
    for path in (inside.parent, inside):
        (path / "__init__.py").touch()
    (inside / "arguments.py").write_text(ARGUMENTS.format(slip=slip))
    (folder / "checkout" / "pretrain_gpt.py").write_text(PRETRAIN)
    return str(folder / "checkout")


def asked(where: str | None = None, **more: Any) -> tuple[Any, Any]:
    variables = {} if where is None else {"MEGATRON_DIR": where}
    data = {"engine": "megatron-lm", "model": "tiny-llama", "topology": {"tp": 2}, "batch": {"gbs": 4}, "recipe": {"steps": 3}}
    return trialfile.build({**data, "execution": {"device": "cpu"}, "environment": {"variables": variables}, **more})


def ran(folder: Path, where: str) -> Any:
    trial, recipe = asked(where)
    local = Local()
    try:
        return run_trial(trial, recipe, local, folder / "run", limits=Limits(time_limit_s=60.0))
    finally:
        local.close()


def test_run_is_read_from_the_last_ranks_steps_and_the_first_ranks_memory(tmp_path: Path) -> None:
    record = ran(tmp_path, checkout(tmp_path))
    assert record.outcome is not None and record.outcome.status == "ok", record.outcome
    assert [step["loss"] for step in record.iterations] == [5.1, 5.2, 5.3]
    assert record.sec_per_it == pytest.approx(0.2025) and record.mem_gib == pytest.approx(0.5)


def test_what_it_made_of_its_flags_is_held_against_what_was_asked(tmp_path: Path) -> None:
    record = ran(tmp_path, checkout(tmp_path, "args.num_layers //= 2"))
    assert record.outcome is not None and record.outcome.status == "invalid"
    assert "Layers 4 where 8 was asked" in record.outcome.message


def test_it_is_told_what_is_emitted_then_mock_data_and_the_recipe(tmp_path: Path) -> None:
    trial, recipe = asked(checkout(tmp_path))
    words = shlex.split(engine_for(trial).files(trial, recipe)["megatron-lm.args"])  # type: ignore[attr-defined]
    emitted = [word for flag in emit.megatron_lm(trial).flags for word in flag]
    assert words[: len(emitted)] == emitted and "--mock-data" in words
    assert words[words.index("--train-iters") + 1] == "3"


@pytest.mark.parametrize("where, why", [(None, "MEGATRON_DIR does not say where"), ("", "MEGATRON_DIR does not say where"),
                                        ("/nowhere", "/nowhere, where no pretrain_gpt.py is")])  # fmt: skip
def test_without_a_checkout_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, where: str | None, why: str) -> None:
    monkeypatch.delenv("MEGATRON_DIR", raising=False)
    trial, recipe = asked(where)
    with pytest.raises(BadInput, match=why):
        engine_for(trial).check(trial, recipe, here=True)
    engine_for(trial).check(trial, recipe, here=False)


@pytest.mark.parametrize("layout, why", [
    ({"dp": 2, "zero": 3}, "ZeRO 3 is not in Megatron-LM"), ({"tp": 2, "sequence_parallel": True}, "sequence parallelism"),
    ({"cp": 2}, "CP 2: of Transformer Engine"), ({"tp": 3}, "16 heads")])  # fmt: skip
def test_layouts_that_it_or_a_cpu_cannot_run_are_refused(layout: dict[str, Any], why: str) -> None:
    trial, _ = asked(topology=layout)
    with pytest.raises(Infeasible, match=why):
        engine_for(trial).can_run(trial)
