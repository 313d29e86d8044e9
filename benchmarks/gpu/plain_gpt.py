"""A GPT as one would write it without us: modules, autograd, one optimizer from torch. What users could have instead."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seatrial.spec import Model


class Block(nn.Module):
    def __init__(self, m: Model):
        super().__init__()
        self.heads = m.heads
        self.norm1, self.norm2 = nn.LayerNorm(m.hidden), nn.LayerNorm(m.hidden)
        self.qkv, self.out = nn.Linear(m.hidden, 3 * m.hidden), nn.Linear(m.hidden, m.hidden)
        self.up, self.down = nn.Linear(m.hidden, m.inner), nn.Linear(m.inner, m.hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class PlainGpt(nn.Module):
    def __init__(self, m: Model):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(m.vocab, m.hidden), nn.Embedding(m.seq, m.hidden)
        self.blocks = nn.ModuleList(Block(m) for _ in range(m.layers))
        self.final = nn.LayerNorm(m.hidden)
        self.head = nn.Linear(m.hidden, m.vocab, bias=False)
        self.head.weight = self.tokens.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.final(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
