"""The shapes that are measured, and the rows: ours in every form, each choice switched off alone, and the peers.

    ROWS["bf16@1.3b"]               what to build and with which switches
    names(["ours", "peers"])        rows and groups of rows, in the order of what they tell
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seatrial.spec import Model

SHAPES = {
    "1.3b": (Model(layers=24, hidden=2048, heads=32, vocab=50304, seq=1024, name="1.3b"), 16),
    "5.6b": (Model(layers=2, hidden=14336, heads=64, vocab=50304, seq=2048, name="5.6b"), 4),
    "124m": (Model(layers=12, hidden=768, heads=12, vocab=50304, seq=1024, name="124m"), 8),
}
"""Model and micro-batch size. The second has the layers of a hundred-billion model, two of them."""


@dataclass(frozen=True, kw_only=True)
class Row:
    group: str
    kind: str
    """ours, hf or plain."""
    shape: str
    precision: str = "bf16"
    recompute: str = "none"
    microbatches: int = 1
    compiled: bool = False
    moments: str = "fp32"
    switches: dict[str, Any] = field(default_factory=dict)
    """What differs from the engine's own config."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of torch itself."""
    what: str = ""
    limit_s: int = 90


def _rows() -> dict[str, Row]:
    found: dict[str, Row] = {}

    def add(name: str, group: str, kind: str, shape: str, **given: Any) -> None:
        found[f"{name}@{shape}"] = Row(group=group, kind=kind, shape=shape, **given)

    add("bf16", "ours", "ours", "1.3b", what="bf16, fp32 masters")
    add("bf16", "ours", "ours", "5.6b", what="bf16, fp32 masters")
    add("fp8", "ours", "ours", "5.6b", precision="fp8", what="fp8, fp32 masters")
    add("fp8", "ours", "ours", "1.3b", precision="fp8", what="fp8, fp32 masters")
    for shape in ("5.6b", "1.3b"):
        add("bf16-moments16", "ours", "ours", shape, moments="bf16", what="bf16, fp32 masters, moments in bf16")
    add("bf16-selective", "recompute", "ours", "1.3b", recompute="selective", what="selective recompute")
    add("bf16-full", "recompute", "ours", "1.3b", recompute="full", what="full recompute")
    off = {
        "unfused": ({"fused": False}, "blocks of separate functions"),
        "torch-kernels": ({"triton": ()}, "plain torch kernels"),
        "wide-gradients": ({"narrow_gradients": False}, "gradients in fp32"),
        "flash": ({"attention": "flash"}, "flash attention"),
        "cudnn": ({"attention": "cudnn"}, "cuDNN attention"),
        "whole-masters": ({"split_masters": False}, "fp32 masters beside the weights"),
        "small-logits": ({"logits_bytes": 0}, "1024 tokens' logits at once"),
        "untuned": ({"tuned_gemm": False}, "GEMMs by the algorithms that torch takes"),
    }
    for name, (switches, what) in off.items():
        add(f"bf16-{name}", "ablate", "ours", "1.3b", switches=switches, what=what)
    add("bf16-lt", "ablate", "ours", "1.3b", settings={"blas": "cublaslt"}, what="products through cuBLASLt")
    add("fp8-slow-back", "ablate", "ours", "5.6b", precision="fp8", switches={"fast_accumulation": "forward"},
        what="fp8, gradients' products added up in fp32")
    add("fp8-untuned", "ablate", "ours", "1.3b", precision="fp8", switches={"tuned_gemm": False},
        what="fp8, GEMMs by the algorithms that torch takes")
    add("bf16-2mb", "ablate", "ours", "1.3b", microbatches=2, what="two micro-batches, fp32 gradients")
    add("bf16-compiled", "ablate", "ours", "1.3b", compiled=True, what="torch.compile on each block", limit_s=150)
    add("bf16", "small", "ours", "124m", what="bf16, fp32 masters")
    for shape in ("1.3b", "5.6b"):
        add("plain-bf16", "peers", "plain", shape, what="plain PyTorch, compiled, all bf16", limit_s=150)
        add("plain-autocast", "peers", "plain", shape, precision="autocast", what="plain PyTorch, compiled, fp32 + autocast",
            limit_s=150)
    add("hf-compiled", "peers", "hf", "1.3b", precision="autocast", compiled=True, what="transformers, compiled, autocast",
        limit_s=180)
    add("hf-eager", "peers", "hf", "1.3b", precision="autocast", what="transformers, eager, autocast")
    return found


ROWS = _rows()
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS.values()))


def names(asked: list[str]) -> list[str]:
    """Of rows and groups; all by default."""
    if not asked:
        return list(ROWS)
    unknown = [a for a in asked if a not in ROWS and a not in GROUPS]
    if unknown:
        raise SystemExit(f"benchmarks.gpu: no row or group {unknown[0]!r}; there are {', '.join((*GROUPS, *ROWS))}")
    return [n for a in asked for n in ([a] if a in ROWS else [r for r, row in ROWS.items() if row.group == a])]
