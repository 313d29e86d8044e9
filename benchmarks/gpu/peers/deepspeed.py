"""DeepSpeed's ZeRO 1 in bf16 with fp32 masters, over the plain model with compiled blocks, with torch's fused AdamW."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable

from benchmarks.gpu.peers import ADAMW, CLIP, alone
from benchmarks.gpu.peers.plain import Plain
from benchmarks.gpu.shapes import Row
from torch import Tensor

from seatrial.spec import Trial


def build(row: Row, trial: Trial, tokens: Tensor, targets: Tensor) -> Callable[[], Tensor]:
    alone()
    os.environ.setdefault("DS_ACCELERATOR", tokens.device.type)
    import deepspeed

    if not tokens.is_cuda:
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]  # a C++ extension
    deepspeed.init_distributed("nccl" if tokens.is_cuda else "gloo")
    with tokens.device:
        model = Plain(trial.model)
    for block in model.blocks if row.compiled else ():
        block.compile()
    mbs = trial.topology.mbs
    adamw = {**ADAMW, "torch_adam": True, "fused": True}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_batch_size": mbs, "train_micro_batch_size_per_gpu": mbs, "gradient_clipping": CLIP, "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1}, "optimizer": {"type": "AdamW", "params": adamw}, "steps_per_print": 10**9})

    def step() -> Tensor:
        loss = engine(tokens, targets)
        engine.backward(loss)
        engine.step()
        return loss.detach()  # type: ignore[no-any-return]

    return step
