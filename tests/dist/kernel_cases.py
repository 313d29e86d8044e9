"""Ranks that would each choose their own kernels: what they run, and what one says that cannot."""
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dist.fused_cases import run_some
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.fast import choose
from seatrial.engine.fast.choose import CannotRun
from seatrial.engine.fast.config import KernelConfig
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Topology, Trial

RECIPE = Recipe(steps=2, lr=1e-2)
TRIAL = Trial(model=Model(layers=2, hidden=32, heads=4, vocab=101, seq=16), batch=Batch(gbs=2),
              topology=Topology(tp=2))
FUSED = KernelConfig(fused=True)


def as_chosen(by_rank: list[KernelConfig]) -> tuple[dict[str, Any], bool, list[tuple[float, float]]]:
    """This rank's config when each would choose its own; whether its blocks are fused; and its steps."""
    mine = by_rank[dist.get_rank()]
    choose.choose = lambda *_: (mine, {})  # type: ignore[assignment]
    mesh = Mesh(TRIAL.topology, device=torch.device("cpu"))
    ops, config, _ = choose.ops_for(TRIAL, mesh)
    engine = Engine(TRIAL, RECIPE, mesh, ops=ops)
    fused = all(block.impl is not None for chunk in engine.chunks for _, block in chunk.stage.blocks())
    found = run_some(engine, 1, RECIPE.steps)
    mesh.close()
    return config.plain(), fused, found


def refusal(config: KernelConfig) -> str:
    """What a rank says whose device has none of what rank 0 chose."""
    mine = config if dist.get_rank() == 0 else KernelConfig()
    choose.choose = lambda *_: (mine, {})  # type: ignore[assignment]
    mesh = Mesh(TRIAL.topology, device=torch.device("cpu"))
    try:
        choose.agree(mine, {}, TRIAL, mesh)
    except CannotRun as error:
        return str(error)
    finally:
        mesh.close()
    return ""
