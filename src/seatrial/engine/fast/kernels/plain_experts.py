"""What a layer of experts does beside attention, norms and SwiGLU, in plain torch: the references of Triton's kernels.

T tokens, K choices each, R rows: one for each choice that is not dropped, expert by expert. `place_TK` says where a choice's
row lies (-1: dropped), `ends_E` where each expert's rows end.
"""
from __future__ import annotations

import torch
from torch import Tensor


def put_rows(x_TH: Tensor, place_TK: Tensor, rows: int) -> Tensor:
    """Each token's row to its places. Rows that nothing is put to hold anything."""
    kept = place_TK >= 0
    out = x_TH.new_zeros(rows, x_TH.shape[1])
    out[place_TK[kept].long()] = x_TH.repeat_interleave(kept.sum(1), 0)
    return out


def sum_rows(rows_RH: Tensor, place_TK: Tensor) -> Tensor:
    """Of each token the sum of its rows, added up in fp32."""
    taken = rows_RH[place_TK.long().clamp(min=0)].float()
    return torch.where((place_TK >= 0)[..., None], taken, 0.0).sum(1).to(rows_RH.dtype)


def grouped(rows_RK: Tensor, matrices_EMN: Tensor, ends_E: Tensor, *, transposed: bool = False) -> Tensor:
    """Each expert's rows times its matrix, or times that matrix transposed. Rows behind the last end hold anything."""
    right = matrices_EMN.mT if transposed else matrices_EMN
    out = rows_RK.new_zeros(rows_RK.shape[0], right.shape[2])
    first = 0
    for matrix, end in zip(right, ends_E.tolist(), strict=True):
        torch.mm(rows_RK[first:end], matrix, out=out[first:end])
        first = end
    return out


def grouped_gradient(left_RM: Tensor, right_RN: Tensor, ends_E: Tensor, out_EMN: Tensor, *, add: bool) -> None:
    """leftᵀ right of each expert's rows, written to `out` or added to it; `out` may be of a wider type."""
    first = 0
    for out, end in zip(out_EMN, ends_E.tolist(), strict=True):
        found = left_RM[first:end].t() @ right_RN[first:end]
        out.add_(found) if add else out.copy_(found)
        first = end
