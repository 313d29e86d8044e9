"""Context parallelism without ranks: who holds which tokens, and attention put together out of pieces."""
from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from context_cases import in_pieces, whole
from seatrial.engine.core import context
from seatrial.engine.core.attention import alibi_slopes
from seatrial.engine.core.comm import Comm, Pending
from seatrial.engine.core.context import Context, Ring, own_stretches, positions_of, ring_stretches
from seatrial.engine.core.lse_kernels import OnCpu
from seatrial.engine.core.mesh import Group, Mesh
from seatrial.engine.core.pieces import Piece, Softmax, Stretch, pieces
from seatrial.engine.io.data import Batches
from seatrial.engine.watch.timers import Timers
from seatrial.recipe import Recipe
from seatrial.spec import Model, Topology

SPLITS = [(1, 2), (1, 4), (2, 1), (2, 2), (4, 2), (2, 3)]


@pytest.mark.parametrize(("heads", "ring"), SPLITS)
def test_every_token_has_one_rank_and_neighbours_share_a_member_of_the_ring(heads: int, ring: int) -> None:
    seq = 48
    held = [positions_of(own_stretches(seq, heads=heads, ring=ring, rank=rank)) for rank in range(heads * ring)]
    assert {len(one) for one in held} == {seq // (heads * ring)}
    assert torch.equal(torch.cat(held).sort().values, torch.arange(seq))
    for member in range(ring):
        together = torch.cat(held[member * heads : (member + 1) * heads])
        assert torch.equal(together, positions_of(ring_stretches(seq, ring, member)))


@pytest.mark.parametrize("ring", [2, 3, 4, 8])
def test_members_of_a_ring_attend_as_many_pairs_in_every_step(ring: int) -> None:
    seq = 48
    of = [ring_stretches(seq, ring, member) for member in range(ring)]

    def pairs(found: list[Piece]) -> int:
        return sum(p.q_len * (p.q_len + 1) // 2 if p.causal else p.q_len * p.k_len for p in found)

    for step in range(ring):
        assert len({pairs(pieces(of[j], of[(j - step) % ring])) for j in range(ring)}) == 1
    assert all(len(pieces(mine, theirs)) == 1 for mine, theirs in itertools.product(of, of))
    assert sum(pairs(pieces(mine, theirs)) for mine, theirs in itertools.product(of, of)) == seq * (seq + 1) // 2


def test_pieces_are_all_pairs_that_a_query_may_see_and_no_others() -> None:
    queries, keys = (Stretch(0, 4, 3), Stretch(3, 20, 5)), (Stretch(0, 0, 9), Stretch(9, 18, 10))
    seen = torch.zeros(8, 19, dtype=torch.bool)
    for p in pieces(queries, keys):
        block = torch.ones(p.q_len, p.k_len, dtype=torch.bool)
        here = seen[p.q : p.q + p.q_len, p.k : p.k + p.k_len]
        assert not here.any()
        here |= block.tril() if p.causal else block
    assert torch.equal(seen, positions_of(keys)[None, :] <= positions_of(queries)[:, None])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 3e-2),
                                              (torch.float16, 4e-3)])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_pieces_put_together_are_the_whole_attention(kv_heads: int, dtype: torch.dtype, error: float, biased: bool) -> None:
    torch.manual_seed(1)
    seq, ring, heads, size = 48, 3, 4, 12
    q, d_out = (torch.randn(2, seq, heads, size, dtype=dtype) for _ in range(2))
    k, v = (torch.randn(2, seq, kv_heads, size, dtype=dtype) for _ in range(2))
    slopes = alibi_slopes(heads) if biased else None
    found = in_pieces(q, k, v, d_out, ring=ring, kernel=OnCpu(), slopes=slopes)
    for ours, theirs in zip(found, whole(q, k, v, d_out, slopes=slopes), strict=True):
        assert ours.dtype == dtype and (ours - theirs).norm() <= error * theirs.norm()


def test_the_log_sum_exp_is_that_of_the_scores() -> None:
    q, k = torch.randn(1, 5, 2, 8), torch.randn(1, 7, 2, 8)
    softmax = Softmax(q, OnCpu())
    softmax.add(k, k, [Piece(0, 5, 0, 4, False), Piece(0, 5, 4, 3, False)])
    scores = torch.einsum("bqnd,bknd->bnqk", q, k) / math.sqrt(8)
    assert torch.allclose(softmax.result()[1], scores.logsumexp(-1), atol=1e-6)


@pytest.mark.parametrize("spans", [[(0, 6), (18, 6)], [(3, 5)], [(5, 1), (23, 1)]])
def test_a_rank_reads_the_tokens_and_targets_of_its_stretches(spans: list[tuple[int, int]]) -> None:
    batches = Batches(Recipe(), Model(layers=1, hidden=8, heads=2, vocab=50, seq=24), 3)
    positions = torch.cat([torch.arange(start, start + length) for start, length in spans])
    for every, part in zip(batches.microbatch(5, 3), batches.microbatch(5, 3, spans)):
        assert torch.equal(every[:, positions], part)


class Watched:
    """A ring's talk without peers: what is sent comes back, and what happens is noted."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def shift(self, out: Tensor, x: Tensor, group: Group, *, timer: str) -> Pending:
        self.seen.append("post")
        return Pending(None, lambda: self._arrived(out.copy_(x)), Timers(), timer)

    def _arrived(self, out: Tensor) -> Tensor:
        self.seen.append("wait")
        return out


def test_the_next_block_of_keys_is_on_its_way_before_this_one_is_attended() -> None:
    comm = Watched()
    ring = Ring(cast(Comm, comm), Group(name="cp", ranks=(0, 1, 2), rank=1, handle=None), 24)
    kv = torch.randn(2, 1, 8, 2, 4)
    sources = []
    for source, block in ring.blocks(kv):
        comm.seen.append("attend")
        sources.append(source)
        assert torch.equal(block, kv)
    assert sources == [1, 0, 2]
    assert comm.seen == ["post", "attend", "wait", "post", "attend", "wait", "attend"]
    comm.seen.clear()
    gradients = ring.gradients(kv)
    sources.clear()
    for source, (keys, values) in ring.blocks(kv, own_again=True):
        comm.seen.append("attend")
        sources.append(source)
        gradients.add(source, keys, values)
    # Gradients leave as soon as they are there, and are waited for when those of the next block are; the last of them while
    # the rest of this rank's own keys is attended.
    assert comm.seen == ["post", "attend", "wait", "post", "attend", "post", "wait", "attend", "wait", "post", "attend"]
    # Here the one before is this rank itself: its own in two parts, and two others' that went by.
    assert torch.allclose(gradients.result(), 4 * kv)
    assert sources == [1, 0, 2, 1]


class Noted(OnCpu):
    def __init__(self, seen: list[str]):
        super().__init__()
        self.seen = seen

    def forward(self, *given: Any, **named: Any) -> Any:
        self.seen.append("attend")
        return super().forward(*given, **named)

    def backward(self, *given: Any, **named: Any) -> Any:
        self.seen.append("attend")
        return super().backward(*given, **named)


def test_attention_posts_a_shift_before_the_kernel_and_waits_after_it_forward_and_backward(monkeypatch: Any) -> None:
    """Through autograd, with the kernels themselves watched."""
    comm = Watched()
    model, topology = Model(layers=1, hidden=16, heads=2, vocab=50, seq=24), Topology(cp=2)
    group, alone = Group(name="cp", ranks=(0, 1), rank=1, handle=None), Group(name="heads", ranks=(1,), rank=0, handle=None)
    mesh = SimpleNamespace(cp=group, device=torch.device("cpu"), neighbours=lambda *_: alone, across=lambda *_: group)
    attention = Context(model, topology, cast(Comm, SimpleNamespace(mesh=mesh, shift=comm.shift, timers=Timers())))
    monkeypatch.setattr(context, "kernel_for", lambda *_, **__: Noted(comm.seen))
    q, k, v = (torch.randn(1, 12, 2, 8, requires_grad=True) for _ in range(3))
    out = attention.attend(q, k, v)
    assert comm.seen == ["post", "attend", "wait", "attend"]
    comm.seen.clear()
    out.sum().backward()
    # The gradients of the other's keys, the last that there are, travel while the rest of the own ones is attended.
    assert comm.seen == ["post", "attend", "wait", "attend", "post", "attend", "attend", "wait"]


def test_a_shift_asks_for_its_message_before_it_sends_its_own(monkeypatch: Any) -> None:
    """On gloo both directions of a pair share a connection: a request behind a block of keys waits until that has gone, and
    the two blocks take turns where the link could carry both."""
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(dist, "P2POp", lambda op, x, peer, *_: (op.__name__, peer))
    monkeypatch.setattr(dist, "batch_isend_irecv", lambda ops: seen.extend(ops) or [])
    comm = Comm(cast(Mesh, SimpleNamespace(rank=1, backend="gloo")), Timers())
    x = torch.randn(4)
    comm.shift(torch.empty(4), x, Group(name="cp", ranks=(4, 5, 6), rank=1, handle=None), timer="cp_comm").wait()
    assert seen == [("irecv", 4), ("isend", 6)]
