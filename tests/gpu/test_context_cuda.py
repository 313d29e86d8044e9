"""Attention in pieces on a CUDA device: every kernel's output, log-sum-exp and gradients, put together as a ring does."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from seatrial.engine.core.attention import alibi_slopes
from seatrial.engine.core.context import alibi_bias, positions_of, ring_stretches
from seatrial.engine.core.lse_kernels import Cudnn, Efficient, Flash, Kernel
from seatrial.engine.core.pieces import Piece, Softmax, SoftmaxBackward, pieces

pytestmark = pytest.mark.gpu
CASES = [(Cudnn(), torch.bfloat16, False), (Flash(), torch.bfloat16, False), (Efficient(), torch.bfloat16, False),
         (Efficient(), torch.float32, False), (Efficient(), torch.bfloat16, True), (Efficient(), torch.float32, True)]


@pytest.mark.parametrize(("kernel", "dtype", "biased"), CASES)
@pytest.mark.parametrize("kv", [8, 2])
def test_a_ring_of_pieces_is_the_whole_attention(kernel: Kernel, dtype: torch.dtype, biased: bool, kv: int) -> None:
    torch.manual_seed(1)
    seq, cp, heads, dim = 512, 4, 8, 64
    q, d_out = (torch.randn(2, seq, heads, dim, device="cuda") for _ in range(2))
    k, v = (torch.randn(2, seq, kv, dim, device="cuda") for _ in range(2))
    slopes, at = alibi_slopes(heads).cuda(), torch.arange(seq, device="cuda").float()
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in leaves), is_causal=not biased, enable_gqa=kv != heads,
                                         attn_mask=alibi_bias(slopes, at, at) if biased else None).transpose(1, 2)
    out.backward(d_out)
    expected = [out.detach(), *(x.grad for x in leaves)]
    got = [torch.zeros_like(x, dtype=torch.float32) for x in (q, q, k, v)]
    of = [ring_stretches(seq, cp, member) for member in range(cp)]
    where = [positions_of(one, q.device) for one in of]
    q, k, v, d_out = (x.to(dtype) for x in (q, k, v, d_out))
    for member in range(cp):
        rows = where[member]

        def bias(piece: Piece, keys: torch.Tensor, rows: torch.Tensor = rows) -> torch.Tensor:
            return alibi_bias(slopes, rows[piece.q : piece.q + piece.q_len].float(),
                              keys[piece.k : piece.k + piece.k_len].float()).to(dtype)

        softmax = Softmax(q[:, rows].contiguous(), kernel)
        for source in range(cp):
            keys = where[source]
            softmax.add(k[:, keys].contiguous(), v[:, keys].contiguous(), pieces(of[member], of[source]),
                        (lambda piece, keys=keys: bias(piece, keys)) if biased else None)
        mine, lse = softmax.result()
        backward = SoftmaxBackward(d_out[:, rows].contiguous(), q[:, rows].contiguous(), mine, lse, kernel)
        for source in range(cp):
            keys = where[source]
            dk, dv = backward.add(k[:, keys].contiguous(), v[:, keys].contiguous(), pieces(of[member], of[source]),
                                  (lambda piece, keys=keys: bias(piece, keys)) if biased else None)
            got[2][:, keys] += dk.float()
            got[3][:, keys] += dv.float()
        got[0][:, rows] = mine.float()
        got[1][:, rows] = backward.result().float()
    most = 2e-2 if dtype == torch.bfloat16 else 2e-5
    for name, one, other in zip(("out", "dq", "dk", "dv"), got, expected):
        assert other is not None
        assert (one - other).abs().max() < most * other.abs().max(), name
