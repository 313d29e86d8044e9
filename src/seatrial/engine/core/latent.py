"""Multi-head latent attention (DeepSeek-V2): queries, keys and values come out of short vectors, one of each token.

    half = LatentAttention("layers.3", shared)
    x = x + half(x, norm1)

What compresses is whole on every tensor-parallel rank and works on the tokens that the rank has; what makes heads of it is cut
by heads. So with sequence parallelism the short vectors are gathered, and without it their gradients are summed: those of whole
matrices are then alike on all ranks, as a norm's are. A head's query and key are a part without positions and a rotated one,
whose key is one for all heads.
"""
from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seatrial.arith.layer import Part
from seatrial.engine.core.attention import mix
from seatrial.engine.core.comm import enter
from seatrial.engine.core.layers import Discarded, LayerNorm, RmsNorm, column_linear, row_linear, whole_linear
from seatrial.engine.core.params import flat_matrix, matrix, whole_matrix
from seatrial.engine.core.rope import rotate, score_scale

if TYPE_CHECKING:
    from seatrial.engine.core.model import Shared


class LatentAttention(nn.Module):
    def __init__(self, at: str, shared: Shared):
        super().__init__()
        m, tp, std = shared.model, shared.tp, shared.std
        cut = {"rank": tp.rank, "size": tp.size}
        self.shared, self.heads = shared, m.heads // tp.size
        self.nope, self.rope, self.value, self.q_rank, self.kv_rank = m.head_size, m.rope_dim, m.value_dim, m.q_rank, m.kv_rank
        kv_down = {f"{at}.attn.kv_down.weight": self.kv_rank + self.rope}
        q_down = {f"{at}.attn.q_down.weight": self.q_rank} if self.q_rank else {}
        self.down = whole_matrix(q_down | kv_down, m.hidden, std=std)
        self.q_norm = _norm(f"{at}.attn.q_down_norm", self.q_rank, shared) if self.q_rank else None
        self.kv_norm = _norm(f"{at}.attn.kv_down_norm", self.kv_rank, shared)
        q_up, heads = f"{at}.attn.q_up.weight", Part("attn.q_up", m.heads, self.nope + self.rope)
        self.q_up = (flat_matrix(q_up, heads, self.q_rank, std=std, **cut) if self.q_rank
                     else matrix({q_up: heads}, m.hidden, std=std, **cut))
        self.kv_up = flat_matrix(f"{at}.attn.kv_up.weight", Part("attn.kv_up", m.heads, self.nope + self.value), self.kv_rank,
                                 std=std, **cut)
        self.out = matrix({f"{at}.attn.out.weight": Part("attn.out", m.heads, self.value)}, m.hidden,
                          std=std / math.sqrt(2 * m.layers), **cut)

    def forward(self, x_BSH: Tensor, norm: nn.Module) -> Tensor:
        tp, positions = self.shared.tp, self.shared.positions
        if self.shared.selective:
            between = Discarded(norm, x_BSH, tp.comm.timers)
            query, down = self._from_stream(between.value)
            between.free(down, *(() if query is None else (query,)))
        else:
            query, down = self._from_stream(norm(x_BSH))
        q_down, kv_down, key = down.split((self.q_rank, self.kv_rank, self.rope), -1)
        if query is None:
            assert self.q_norm is not None
            query = self._up(self.q_norm, q_down, self.q_up)
        q = query.unflatten(-1, (self.heads, -1))
        kv = self._up(self.kv_norm, kv_down, self.kv_up).unflatten(-1, (self.heads, -1))
        k_nope, v = kv.split((self.nope, self.value), -1)
        k_rope = enter(key, tp).unsqueeze(2)
        assert positions.rope_cos_sin is not None
        q_nope, q_rope = q.split((self.nope, self.rope), -1)
        q = torch.cat((q_nope, rotate(q_rope, *positions.rope_cos_sin)), -1)
        k = torch.cat((k_nope, rotate(k_rope, *positions.rope_cos_sin).expand(-1, -1, self.heads, -1)), -1)
        mixed = self._mix(q, k, v).flatten(2)
        return row_linear(mixed, self.out, None, tp)

    def _from_stream(self, h_BSH: Tensor) -> tuple[Tensor | None, Tensor]:
        """Queries, where they are not compressed, and what is."""
        tp = self.shared.tp
        return None if self.q_rank else column_linear(h_BSH, self.q_up, None, tp), whole_linear(h_BSH, self.down, tp)

    def _up(self, norm: nn.Module, short: Tensor, weight: nn.Parameter) -> Tensor:
        return self.shared.through(norm, short, lambda h: column_linear(h, weight, None, self.shared.tp))

    def _mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Values as wide as keys where the kernel wants it so: zeros beside them change nothing."""
        positions = self.shared.positions
        wide = max(self.nope + self.rope, self.value) if positions.context is not None or not q.is_cuda else 0
        q, k, v = (x if x.shape[-1] >= wide else F.pad(x, (0, wide - x.shape[-1])) for x in (q, k, v))
        return mix(q, k, v, positions=positions, scale=score_scale(self.shared.model))[..., : self.value]


def _norm(name: str, width: int, shared: Shared) -> LayerNorm | RmsNorm:
    m = shared.model
    return LayerNorm(name, width, m.norm_eps) if m.layernorm else RmsNorm(name, width, m.norm_eps, shared.ops.rms_norm)
