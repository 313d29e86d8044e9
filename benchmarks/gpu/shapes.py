"""The shapes that are measured, and the rows: ours in every form, each choice switched off alone, and the peers.

    ROWS["bf16@1.3b"]               what to build and with which switches
    names(["ours", "peers"])        rows and groups of rows, in the order of what they tell
    trial_of(ROWS["bf16@llama3"])   the same as a trial
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seatrial import presets
from seatrial.spec import Batch, Execution, Model, Topology, Trial

_LLAMA = {"family": "llama", "layers": 24, "hidden": 2048, "heads": 32, "ffn": 5504, "vocab": 50304, "seq": 1024}
SHAPES = {
    "1.3b": (Model(layers=24, hidden=2048, heads=32, vocab=50304, seq=1024, name="1.3b"), 16),
    "5.6b": (Model(layers=2, hidden=14336, heads=64, vocab=50304, seq=2048, name="5.6b"), 4),
    "124m": (Model(layers=12, hidden=768, heads=12, vocab=50304, seq=1024, name="124m"), 8),
    "llama3": (presets.model("llama3-8b", {"layers": 4}), 1),
    "1.3b-llama": (Model(**_LLAMA, name="1.3b-llama"), 16),
    "qwen3-moe": (presets.model("qwen3-30b-a3b", {"layers": 4}), 1),
    "tiny": (presets.model("tiny"), 4),
    "tiny-llama": (presets.model("tiny-llama"), 4),
}
"""Model and micro-batch size. The second has the layers of a hundred-billion model, two of them; the llama of 1.3B is as
wide and deep as the first, for engines that have no GPT; the tiny ones say whether a peer starts."""
PLAIN = ("plain", "transformers", "floor")
"""Kinds of peers that need no engine of others."""


@dataclass(frozen=True, kw_only=True)
class Row:
    group: str
    kind: str
    """ours, or the module of `peers` that builds it."""
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
        "wide-logits": ({"logits_in_16_bits": False}, "logits in fp32"),
        "torchs-update": ({"one_pass_update": False, "narrow_gradients": False, "split_masters": False}, "torch's fused AdamW"),
        "kept-gradients": ({"release_gradients": False}, "gradients' memory is kept"),
        "whole-masters": ({"split_masters": False}, "fp32 masters beside the weights"),
        "small-logits": ({"logits_bytes": 0}, "1024 tokens' logits at once"),
        "untuned": ({"tuned_gemm": False}, "GEMMs by the algorithms that torch takes"),
    }
    for shape in ("1.3b", "llama3"):
        for name, (switches, what) in off.items():
            add(f"bf16-{name}", "ablate", "ours", shape, switches=switches, what=what)
        add("floor", "floor", "floor", shape, what="GEMMs, attention and AdamW alone")
    add("floor", "floor", "floor", "5.6b", what="GEMMs, attention and AdamW alone")
    add("bf16-moments16", "ablate", "ours", "llama3", moments="bf16", what="moments in bf16")
    add("bf16-lt", "ablate", "ours", "1.3b", settings={"blas": "cublaslt"}, what="products through cuBLASLt")
    add("fp8-slow-back", "ablate", "ours", "5.6b", precision="fp8", switches={"fast_accumulation": "forward"},
        what="fp8, gradients' products added up in fp32")
    add("fp8-untuned", "ablate", "ours", "1.3b", precision="fp8", switches={"tuned_gemm": False},
        what="fp8, GEMMs by the algorithms that torch takes")
    add("bf16-2mb", "ablate", "ours", "1.3b", microbatches=2, what="two micro-batches, fp32 gradients")
    add("bf16-compiled", "ablate", "ours", "1.3b", compiled=True, what="torch.compile on each block", limit_s=150)
    add("bf16", "small", "ours", "124m", what="bf16, fp32 masters")
    add("bf16", "llama", "ours", "llama3", what="bf16, fp32 masters")
    add("bf16-compiled", "llama", "ours", "llama3", compiled=True, what="bf16, torch.compile on each block", limit_s=150)
    add("fp8", "llama", "ours", "llama3", precision="fp8", what="fp8, fp32 masters")
    add("bf16", "llama", "ours", "1.3b-llama", what="bf16, fp32 masters")
    add("bf16", "moe", "ours", "qwen3-moe", what="bf16, fp32 masters, 4 layers of 128 experts", limit_s=150)
    for shape in ("1.3b", "5.6b", "llama3"):
        add("plain-bf16", "peers", "plain", shape, compiled=True, what="plain PyTorch, compiled, all bf16", limit_s=150)
        add("plain-autocast", "peers", "plain", shape, precision="autocast", compiled=True, limit_s=150,
            what="plain PyTorch, compiled, fp32 + autocast")
    for shape in ("1.3b", "llama3", "qwen3-moe"):
        add("hf-compiled", "peers", "transformers", shape, precision="autocast", compiled=True, limit_s=180,
            what="transformers, compiled, autocast")
    add("hf-eager", "peers", "transformers", "1.3b", precision="autocast", what="transformers, eager, autocast")
    for group, gpt, llama in (("engines", "1.3b", "llama3"), ("check", "tiny", "tiny-llama")):
        for shape in (gpt, llama):
            add("megatron", group, "megatron", shape, compiled=True, what="Megatron-core, SDPA, fused AdamW", limit_s=150)
            add("deepspeed", group, "deepspeed", shape, compiled=True, what="DeepSpeed, ZeRO 1, blocks compiled", limit_s=150)
        for shape in (llama, *(["1.3b-llama"] if group == "engines" else [])):
            add("titan-amp", group, "torchtitan", shape, compiled=True, what="torchtitan, compiled, autocast", limit_s=150)
            add("titan-fsdp", group, "torchtitan", shape, compiled=True, settings={"fsdp": True}, limit_s=150,
                what="torchtitan, compiled, FSDP2")
    for shape in ("tiny", "tiny-llama"):
        add("bf16", "check", "ours", shape, what="bf16, fp32 masters")
        add("plain-bf16", "check", "plain", shape, compiled=True, what="plain PyTorch, compiled, all bf16")
        add("hf-compiled", "check", "transformers", shape, precision="autocast", compiled=True,
            what="transformers, compiled, autocast")
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


def trial_of(row: Row) -> Trial:
    """A peer's row computes in bf16, whatever its weights are."""
    model, mbs = SHAPES[row.shape]
    precision = "bf16" if row.precision == "autocast" else row.precision
    topology = Topology(mbs=mbs, precision=precision, recompute=row.recompute)  # type: ignore[arg-type]
    return Trial(model=model, batch=Batch(gbs=mbs * row.microbatches), topology=topology,
                 execution=Execution(compile=row.compiled, moments=row.moments))
