"""torchtitan's Trainer on its llama3, blocks and loss compiled, fused AdamW, by the file that our adapter writes for it.

On one GPU it computes fp32 weights under autocast; the row `fsdp` has it shard over that one GPU instead, with bf16 weights for
computing, as it does on several.
"""
from __future__ import annotations

import importlib
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.peers import ADAMW, CLIP, alone
from benchmarks.gpu.shapes import Row
from torch import Tensor

from seatrial.engines.drivers import run_torchtitan
from seatrial.engines.torchtitan import SPEC, config, spec
from seatrial.recipe import Recipe
from seatrial.spec import Trial

NOT_USED = {"datasets": ("Dataset", "load_dataset"), "datasets.distributed": ("split_dataset_by_node",),
            "torch.utils.tensorboard": ("SummaryWriter",)}
"""Imported by torchtitan's own data and logs, which are not what is measured."""


def build(row: Row, trial: Trial, tokens: Tensor, targets: Tensor) -> Callable[[], Tensor]:
    alone()
    for name, parts in NOT_USED.items():
        _stand_in(name, *parts)
    if not tokens.is_cuda:
        run_torchtitan.on_the_cpu()
    from torchtitan.config import JobConfig
    from torchtitan.train import Trainer

    if row.settings.get("fsdp"):
        _shard_over_one()
    recipe = Recipe(lr=ADAMW["lr"], min_lr=ADAMW["lr"], clip=CLIP, weight_decay=ADAMW["weight_decay"])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{SPEC}.py").write_text(spec(trial), encoding="utf-8")
        sys.path.insert(0, folder)
        importlib.import_module(SPEC)
        job = JobConfig()
        for table, values in config(trial, recipe).items():
            for key, value in values.items():
                setattr(getattr(job, table), key, value)
        job.job.dump_folder, job.metrics.log_freq, job.experimental.custom_import = folder, 10**9, ""
        job.parallelism.fsdp_reshard_after_forward = "never"
        trainer = Trainer(job)
    losses: list[Tensor] = []
    both_ways = trainer.forward_backward_step

    def kept(**given: Any) -> Tensor:
        losses[:] = [both_ways(**given).detach()]
        return losses[0]

    trainer.forward_backward_step = kept
    trainer.metrics_processor.should_log = lambda _: False
    batches = trainer.batch_generator(_same(tokens.cpu(), targets.cpu()))

    def step() -> Tensor:
        trainer.step += 1
        trainer.train_step(batches)
        return losses[0]

    return step


def _same(tokens: Tensor, targets: Tensor) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    while True:
        yield {"input": tokens}, targets


def _shard_over_one() -> None:
    from torchtitan.distributed import ParallelDims

    exists = ParallelDims._mesh_exist
    ParallelDims._mesh_exist = lambda self, name, degree: name == "fsdp" or exists(self, name, degree)
    ParallelDims.fsdp_enabled = property(lambda self: True)


def _stand_in(name: str, *parts: str) -> None:
    """A module of empty classes where one that torchtitan imports is not installed."""
    try:
        importlib.import_module(name)
    except ImportError:
        found = types.ModuleType(name)
        found.__path__ = []
        vars(found).update({part: type(part, (), {}) for part in parts})
        sys.modules[name] = found
        if "." in name:
            parent, child = name.rsplit(".", 1)
            setattr(sys.modules[parent], child, found)
