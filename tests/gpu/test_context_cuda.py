"""On a CUDA device the kernels that attend pieces put together what the whole attention is."""
from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend

from context_cases import in_pieces, whole
from seatrial.engine.core.attention import alibi_slopes
from seatrial.engine.core.comm import Comm
from seatrial.engine.core.context import Context
from seatrial.engine.core.lse_kernels import Cudnn, Efficient, Flash, Kernel, OnCpu, kernel_for
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.pieces import Starts
from seatrial.engine.watch.timers import Timers
from seatrial.spec import Model, Topology

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


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize(("size", "kv_heads"), [(64, 4), (92, 2)])
def test_documents_in_one_kernel_are_those_of_one_kernel_each(size: int, kv_heads: int, alike: bool) -> None:
    starts: Starts = ((0, 100, 101, 300), (0, 100, 101, 300)) if alike else ((0, 100, 101, 300), (0, 250))
    model = Model(layers=1, hidden=4 * size, heads=4, kv_heads=kv_heads, vocab=50, seq=384, family="llama")
    topology = Topology(mbs=2, precision="bf16")
    context = Context(model, topology, Comm(Mesh(topology, device=CUDA), Timers("cuda")), packs=True)
    torch.manual_seed(1)
    q, d_out = (torch.randn(2, 384, 4, size, device=CUDA).bfloat16() for _ in range(2))
    k, v = (torch.randn(2, 384, kv_heads, size, device=CUDA).bfloat16() for _ in range(2))
    assert context.use(starts).squares is not None
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = context.attend(*leaves)
    out.backward(d_out)
    expected = in_pieces(*(x.double().cpu() for x in (q, k, v, d_out)), ring=1, kernel=OnCpu(), slopes=None, documents=starts)
    for ours, theirs in zip([out, *(x.grad for x in leaves)], expected, strict=True):
        assert ours is not None
        assert (ours.double().cpu() - theirs).norm() / theirs.norm() < 2e-2
