"""Multi-token prediction, as DeepSeek-V3 has it: layers behind the last that predict one token further each.

    layer = Further(0, shared)
    h, normed = layer(torch.cat((h, embedded), -1)).chunk(2, -1)

Each takes what the one before it made of a token, and the embedding of the token that is to be known by then; the head that all
share reads its output through a norm of the layer's own. They run where the loss is computed, forward and backward at once, so
nothing of them is kept between the micro-batches of a pipeline.
"""
from __future__ import annotations

import torch
from torch import Tensor, nn

from seatrial.arith.layer import Part
from seatrial.engine.core.comm import enter
from seatrial.engine.core.layers import row_linear
from seatrial.engine.core.model import Block, Shared, end_norm
from seatrial.engine.core.params import matrix


class Further(nn.Module):
    def __init__(self, depth: int, shared: Shared):
        super().__init__()
        m, self.tp, at = shared.model, shared.tp, f"mtp.{depth}"
        self.norm_hidden, self.norm_embedding = end_norm(f"{at}.norm_hidden", shared), end_norm(f"{at}.norm_embedding", shared)
        self.proj = matrix({f"{at}.proj.weight": Part("proj", 2 * m.hidden)}, m.hidden, std=shared.std, rank=self.tp.rank,
                           size=self.tp.size)
        self.block = Block(m.layers + depth, shared, at=at)
        self.norm = end_norm(f"{at}.norm", shared)

    def forward(self, both_BSH: Tensor) -> Tensor:
        """Out of hidden states and embeddings side by side, new hidden states and the same through the norm."""
        hidden, embedded = both_BSH.chunk(2, -1)
        normed = enter(torch.cat((self.norm_hidden(hidden), self.norm_embedding(embedded)), -1), self.tp)
        # By rows: each rank multiplies its part of the features, and they add up.
        part = normed.chunk(self.tp.size, -1)[self.tp.rank].contiguous()
        out = self.block(row_linear(part, self.proj, None, self.tp))
        return torch.cat((out, self.norm(out)), -1)
