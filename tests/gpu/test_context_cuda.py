"""On a CUDA device the kernels that attend pieces put together what the whole attention is."""
from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend

from context_cases import in_pieces, whole
from seatrial.engine.core.attention import alibi_slopes
from seatrial.engine.core.lse_kernels import Cudnn, Efficient, Flash, Kernel, kernel_for

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)


CASES = [(Flash(), torch.bfloat16, False), (Flash(), torch.float16, False), (Cudnn(), torch.bfloat16, False),
         (Cudnn(), torch.float16, False), (Efficient(), torch.bfloat16, True), (Efficient(), torch.float32, True),
         (Efficient(), torch.float32, False)]


@pytest.mark.parametrize(("kernel", "dtype", "biased"), CASES, ids=[f"{type(k).__name__}-{d}-{b}" for k, d, b in CASES])
@pytest.mark.parametrize(("seq", "size"), [(384, 64), (90, 92), (768, 128)])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_pieces_put_together_are_the_whole_attention(kernel: Kernel, dtype: torch.dtype, biased: bool, seq: int, size: int,
                                                     kv_heads: int) -> None:
    torch.manual_seed(1)
    q, d_out = (torch.randn(2, seq, 4, size, device=CUDA).to(dtype) for _ in range(2))
    k, v = (torch.randn(2, seq, kv_heads, size, device=CUDA).to(dtype) for _ in range(2))
    slopes = alibi_slopes(4).to(CUDA) if biased else None
    found = in_pieces(q, k, v, d_out, ring=3, kernel=kernel, slopes=slopes)
    expected = whole(*(x.double().cpu() for x in (q, k, v, d_out)), slopes=None if slopes is None else slopes.cpu())
    for ours, theirs in zip(found, expected, strict=True):
        error = (ours.double().cpu() - theirs).norm() / theirs.norm()
        assert error < (1e-3 if dtype == torch.float32 else 2e-2)


def test_the_kernel_is_the_one_that_was_chosen_or_what_takes_the_numbers() -> None:
    def name(dtype: torch.dtype, backend: SDPBackend | None = None, *, biased: bool = False) -> str:
        return type(kernel_for(CUDA, dtype, backend=backend, biased=biased)).__name__

    assert name(torch.bfloat16, SDPBackend.FLASH_ATTENTION) == "Flash"
    assert name(torch.bfloat16, SDPBackend.CUDNN_ATTENTION) == "Cudnn"
    assert name(torch.float32, SDPBackend.FLASH_ATTENTION) == name(torch.bfloat16, biased=True) == "Efficient"
