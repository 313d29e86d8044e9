"""Models of transformers beside ours: random ones of theirs, and our engine's logits from a checkpoint."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.io import checkpoint
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Topology, Trial


def random_model(prefix: str, config: dict[str, Any]) -> Any:
    """With nothing zero that would hide a mistake: no bias, no correction of a router."""
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, prefix + ("LMHeadModel" if prefix == "GPT2" else "ForCausalLM"))
    model = kind(getattr(transformers, f"{prefix}Config")(**config))
    with torch.no_grad():
        for p in (*model.parameters(), *(b for n, b in model.named_buffers() if n.endswith("correction_bias"))):
            p.add_(torch.randn_like(p) * 0.05)
    return model.eval()


def our_logits(model: Model, folder: Path, tokens: Tensor) -> Tensor:
    """The engine's own, started from a checkpoint that has its weights and no others."""
    topology = Topology(mbs=tokens.shape[0])
    trial = Trial(model=model, batch=Batch(gbs=tokens.shape[0]), topology=topology)
    engine = Engine(trial, Recipe(steps=1), Mesh(topology, device=torch.device("cpu")))
    reader, weights = checkpoint.latest(folder).reader(), [s for s in engine.shards() if s.kind == "weight"]
    assert {key.removeprefix("model.") for key in reader.tensors} == {s.name for s in weights}
    checkpoint.fill(reader, weights)
    engine.loaded()
    (chunk,), x = engine.chunks, tokens
    with torch.no_grad():
        for _, unit in chunk.stage.path():
            x = unit(x)
        return (x @ chunk.stage.head.weight.t())[..., : model.vocab]
