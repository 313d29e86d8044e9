"""A sequence attended by the members of a ring in one process, and the whole of it by SDPA: the two are the same.

    found, expected = in_pieces(q, k, v, d_out, ring=3, kernel=OnCpu(), slopes=None), whole(q, k, v, d_out, slopes=None)

Both: the output and the gradients of queries, keys and values, [batch, tokens, heads, head size].
"""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seatrial.engine.core.context import alibi_bias, positions_of, ring_stretches
from seatrial.engine.core.lse_kernels import Kernel
from seatrial.engine.core.pieces import Bias, Piece, Softmax, SoftmaxBackward, Starts, Stretch, packed, pieces


def whole(q: Tensor, k: Tensor, v: Tensor, d_out: Tensor, *, slopes: Tensor | None) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    every = torch.arange(q.shape[1], dtype=torch.float32, device=q.device)
    bias = None if slopes is None else alibi_bias(slopes, every, every).to(q.dtype)
    out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in leaves), attn_mask=bias, is_causal=bias is None,
                                         enable_gqa=q.shape[2] != k.shape[2]).transpose(1, 2)
    out.backward(d_out)
    return [out.detach(), *(x.grad for x in leaves if x.grad is not None)]


def in_pieces(q: Tensor, k: Tensor, v: Tensor, d_out: Tensor, *, ring: int, kernel: Kernel,
              slopes: Tensor | None, documents: Starts | None = None) -> list[Tensor]:
    def met(mine: tuple[Stretch, ...], theirs: tuple[Stretch, ...]) -> list[Piece]:
        return pieces(mine, theirs) if documents is None else packed(mine, theirs, documents, q.shape[1])

    of = [ring_stretches(q.shape[1], ring, member) for member in range(ring)]
    at = [positions_of(one, q.device) for one in of]
    out, dq, dk, dv = (torch.zeros_like(x) for x in (d_out, q, k, v))

    def bias_of(here: Tensor, there: Tensor) -> Bias | None:
        def bias(p: Piece) -> Tensor:
            assert slopes is not None
            return alibi_bias(slopes, here[p.q : p.q + p.q_len].float(), there[p.k : p.k + p.k_len].float()).to(q.dtype)

        return None if slopes is None else bias

    for mine, here in zip(of, at):
        softmax = Softmax(q[:, here], kernel)
        for theirs, there in zip(of, at):
            softmax.add(k[:, there], v[:, there], met(mine, theirs), bias_of(here, there))
        out[:, here], lse = softmax.result()
        assert torch.isfinite(lse).all()
        backward = SoftmaxBackward(d_out[:, here], q[:, here], out[:, here], lse, kernel)
        for theirs, there in zip(of, at):
            parts = backward.add(k[:, there], v[:, there], met(mine, theirs), bias_of(here, there))
            for total, part in zip((dk, dv), parts):
                total[:, there] += part
        dq[:, here] = backward.result()
    return [out, dq, dk, dv]
