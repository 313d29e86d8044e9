"""Which matrix products a rank's fused blocks and its head compute: the forms whose kernels are worth choosing."""
from __future__ import annotations

from collections.abc import Iterator

import torch

from seatrial.engine.fast.cublaslt import Form
from seatrial.engine.fast.fp8 import FORWARD, GRADIENT
from seatrial.spec import Model, Topology


def forms_of(model: Model, topology: Topology, dtype: torch.dtype, *, gradients: torch.dtype | None, onto: bool,
             logits_chunk: int, fast: str = "all") -> list[Form]:
    """`gradients`: the type that weights' are made in, None where no product makes them; `onto`: a block's products add to the
    residual stream."""
    t = topology
    tokens, hidden = t.mbs * model.seq, model.hidden
    heads, inner = model.heads * model.head_size // t.tp, model.inner // t.tp
    found: list[Form] = []
    for wide, narrow in ((3 * heads, heads), (inner, inner)):
        if t.precision == "fp8":
            found += _eight(tokens, hidden, wide, narrow, bias=t.tp == 1, fast=fast)
        else:
            found += _sixteen(tokens, hidden, wide, narrow, dtype, gradients, onto=onto)
    chunk, vocab = min(logits_chunk, tokens), model.padded_vocab(t.tp) // t.tp
    found.append(_form(dtype, rows=chunk, cols=vocab, inner=hidden, right_t=True))
    found.append(_form(dtype, rows=chunk, cols=hidden, inner=vocab))
    found += _gradient(dtype, gradients, vocab, hidden, chunk, added=chunk < tokens)
    return found


def _sixteen(tokens: int, hidden: int, wide: int, narrow: int, dtype: torch.dtype, gradients: torch.dtype | None, *,
             onto: bool) -> Iterator[Form]:
    """Into a half of the block, `wide` columns, and out of it, `narrow` ones; with the gradients of inputs and weights."""
    yield _form(dtype, rows=tokens, cols=wide, inner=hidden, right_t=True, bias=True)
    yield _form(dtype, rows=tokens, cols=hidden, inner=wide)
    yield from _gradient(dtype, gradients, wide, hidden, tokens)
    yield _form(dtype, rows=tokens, cols=hidden, inner=narrow, add=onto)
    yield _form(dtype, rows=tokens, cols=narrow, inner=hidden, right_t=True)
    yield from _gradient(dtype, gradients, narrow, hidden, tokens)


def _gradient(dtype: torch.dtype, kept: torch.dtype | None, rows: int, cols: int, tokens: int, *,
              added: bool = False) -> Iterator[Form]:
    if kept is None:
        return
    for add in (False, True) if added or kept != dtype else (False,):
        yield Form(rows=rows, cols=cols, inner=tokens, left_t=True, left=dtype, right=dtype, out=kept, add=add)


def _eight(tokens: int, hidden: int, wide: int, narrow: int, *, bias: bool, fast: str) -> Iterator[Form]:
    """The same six; both operands lie along what is summed over."""
    forward, backward = fast != "none", fast == "all"

    def form(left: torch.dtype, right: torch.dtype, fast: bool, *, rows: int, cols: int, inner: int,
             bias: bool = False) -> Form:
        return Form(rows=rows, cols=cols, inner=inner, right_t=True, left=left, right=right, fast=fast, bias=bias)

    yield form(FORWARD, FORWARD, forward, bias=True, rows=tokens, cols=wide, inner=hidden)
    yield form(GRADIENT, FORWARD, backward, rows=tokens, cols=hidden, inner=wide)
    yield form(GRADIENT, FORWARD, backward, rows=wide, cols=hidden, inner=tokens)
    yield form(FORWARD, FORWARD, forward, bias=bias, rows=tokens, cols=hidden, inner=narrow)
    yield form(GRADIENT, FORWARD, backward, rows=tokens, cols=narrow, inner=hidden)
    yield form(FORWARD, GRADIENT, backward, rows=narrow, cols=hidden, inner=tokens)


def _form(dtype: torch.dtype, *, rows: int, cols: int, inner: int, right_t: bool = False, bias: bool = False,
          add: bool = False) -> Form:
    return Form(rows=rows, cols=cols, inner=inner, right_t=right_t, bias=bias, add=add, left=dtype, right=dtype, out=dtype)
