"""One row of a peer: the same shape, tokens and optimizer, in the form that a user would write."""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from benchmarks.gpu.ours import STEPS, WARM, memory, trial_of
from benchmarks.gpu.plain_gpt import PlainGpt
from benchmarks.gpu.power import Power
from benchmarks.gpu.shapes import Row
from torch import Tensor

from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe


def measure(row: Row) -> dict[str, Any]:
    began = time.perf_counter()
    trial = trial_of(replace(row, precision="bf16"))
    dtype = torch.bfloat16 if row.precision == "bf16" else torch.float32
    with torch.device("cuda"):
        torch.set_default_dtype(dtype)
        model, loss_of = _plain(trial.model) if row.kind == "plain" else _transformers(trial.model, compiled=row.compiled)
        torch.set_default_dtype(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    batches = Batches(Recipe(), trial.model, 1234)
    tokens, targets = (t.cuda() for t in batches.microbatch(0, trial.topology.mbs))
    casting = torch.autocast("cuda", torch.bfloat16) if row.precision == "autocast" else nullcontext()
    seconds, losses = [], []
    with Power() as power:
        for i in range(WARM + STEPS):
            if i == WARM:
                torch.cuda.reset_peak_memory_stats()
                measured_from = time.perf_counter()
            start = time.perf_counter()
            with casting:
                loss = loss_of(tokens, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        drawn = power.since(measured_from)
    return {"sec": statistics.median(seconds[WARM:]), "all_sec": seconds, "losses": losses, "first_s": seconds[0],
            "built_s": time.perf_counter() - began - sum(seconds), **memory(), **drawn}


def _plain(model: Any) -> tuple[torch.nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    found = PlainGpt(model)
    return found, torch.compile(found)


def _transformers(m: Any, *, compiled: bool) -> tuple[torch.nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=m.vocab, n_positions=m.seq, n_embd=m.hidden, n_layer=m.layers, n_head=m.heads,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation="sdpa")
    found = GPT2LMHeadModel(config).train()
    run = torch.compile(found) if compiled else found

    def loss_of(tokens: Tensor, targets: Tensor) -> Tensor:
        logits = run(tokens).logits
        return torch.nn.functional.cross_entropy(logits.view(-1, m.vocab), targets.view(-1))  # type: ignore[no-any-return]

    return found, loss_of
