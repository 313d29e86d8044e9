"""The engine's speed on this machine's CPU, as ratios measured in one run.

    python -m benchmarks.engine_cpu                     all three, about ten minutes
    python -m benchmarks.engine_cpu --only one          one process: 124M, fp32, sequence 1024, MBS 1, forward + backward
    python -m benchmarks.engine_cpu --only eight        8 ranks, tp2 pp2 dp2, against torch's own 1F1B x FSDP2 x DTensor
    python -m benchmarks.engine_cpu --only saved        bytes kept for the backward pass, with and without recompute

Contenders take turns, round by round, so that a change of the machine's mood touches all; ratios are of medians. Wall seconds
are what counts on a quiet machine; the CPU seconds beside them say whether it was quiet.
"""
from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from seatrial import arith
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.io.data import Batches
from seatrial.engine.watch.tracker import LiveStorages
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Topology, Trial

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

GPT_124M = Model(layers=12, hidden=768, heads=12, vocab=50257, seq=1024)
SMALL = Model(layers=4, hidden=128, heads=4, vocab=1024, seq=64, tied=False)
GEMM = 4096


def engine_of(trial: Trial, recipe: Recipe | None = None) -> tuple[Engine, Batches]:
    recipe = recipe or Recipe()
    engine = Engine(trial, recipe, Mesh(trial.topology, device=torch.device("cpu")))
    return engine, Batches(recipe, trial.model, recipe.seed)


def forward_backward(engine: Engine, batches: Batches) -> None:
    """All of a step up to the reduced gradients."""
    gbs = engine.trial.batch.gbs
    for bucket in engine.buckets:
        bucket.begin(engine.microbatches(gbs))
    engine.pipeline.run(engine.plan(gbs), engine.feeder.feed(batches, 0), scale=1.0 / (gbs * engine.trial.model.seq))
    for bucket in engine.buckets:
        bucket.finish()


def take_turns(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median wall and CPU seconds of each."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            if number:  # the first round warms up
                seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: (statistics.median(w for w, _ in s), statistics.median(c for _, c in s)) for name, s in seconds.items()}


def one(rounds: int) -> dict[str, float]:
    import transformers

    m = GPT_124M
    engine, batches = engine_of(Trial(model=m, batch=Batch(gbs=1), topology=Topology()))
    config = transformers.GPT2Config(n_layer=m.layers, n_embd=m.hidden, n_head=m.heads, vocab_size=m.vocab, n_positions=m.seq,
                                     attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, use_cache=False)
    theirs = transformers.GPT2LMHeadModel(config).train()
    tokens, _ = batches.microbatch(0, 1)
    a, b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)

    def run_theirs() -> None:
        theirs.zero_grad()
        theirs(tokens, labels=tokens).loss.backward()

    found = take_turns({"sgemm": lambda: torch.mm(a, b), "transformers": run_theirs,
                        "seatrial": lambda: forward_backward(engine, batches)}, rounds)
    flops = arith.flops("model", m, samples=1)
    rate = 2 * GEMM**3 / found["sgemm"][0]
    return {
        "threads": torch.get_num_threads(), "rounds": rounds,
        "sgemm_gflops": rate / 1e9, "seatrial_gflops": flops / found["seatrial"][0] / 1e9,
        **{f"{name}_s": wall for name, (wall, _) in found.items()},
        **{f"{name}_cpu_s": cpu for name, (_, cpu) in found.items()},
        "share_of_sgemm": flops / found["seatrial"][0] / rate,
        "share_of_sgemm_cpu_time": flops / found["seatrial"][1] / (2 * GEMM**3 / found["sgemm"][1]),
        "x_transformers": found["transformers"][0] / found["seatrial"][0],
        "x_transformers_cpu_time": found["transformers"][1] / found["seatrial"][1],
    }  # fmt: skip


def both_on_eight(steps: int) -> dict[str, tuple[float, float]]:
    """On each of 8 ranks: our step and the native one in turns."""
    from dist.native import Native

    trial = Trial(model=SMALL, batch=Batch(gbs=8), topology=Topology(dp=2, tp=2, pp=2))
    recipe = Recipe(steps=steps)
    engine, batches = engine_of(trial, recipe)
    native = Native(trial, recipe)
    optimizer = torch.optim.AdamW(native.module.parameters(), lr=recipe.lr, betas=(recipe.beta1, recipe.beta2))
    count = {"ours": 0}

    def ours() -> None:
        count["ours"] += 1
        engine.step(count["ours"], first_sample=0, batches=batches)

    def theirs() -> None:
        native.forward_backward(0)
        optimizer.step()
        optimizer.zero_grad()

    def after_all(run: Callable[[], None]) -> Callable[[], None]:
        def both() -> None:
            run()
            torch.distributed.barrier()

        return both

    return take_turns({"seatrial": after_all(ours), "native": after_all(theirs)}, steps)


def eight(steps: int) -> dict[str, float]:
    from dist.many import in_world

    found = in_world(8, both_on_eight, steps, timeout_s=1200)[0]
    return {"steps": steps, "seatrial_s": found["seatrial"][0], "native_s": found["native"][0],
            "x_native": found["native"][0] / found["seatrial"][0]}


def saved() -> dict[str, float]:
    """Bytes alive between the forward and the backward pass of one micro-batch."""
    kept = {}
    for recompute in ("none", "selective", "full"):
        trial = Trial(model=GPT_124M, batch=Batch(gbs=1), topology=Topology(recompute=recompute))
        engine, batches = engine_of(trial)
        tokens, _ = batches.microbatch(0, 1)
        with LiveStorages(tagged={"weights": [b.flat for b in engine.buckets]}) as live:
            out = engine.chunks[0].forward(tokens)
            kept[recompute] = live.live["activations"]
        del out
    return {**{f"{name}_mib": value / 2**20 for name, value in kept.items()},
            "selective_share": kept["selective"] / kept["none"], "full_share": kept["full"] / kept["none"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=("one", "eight", "saved"), nargs="*", default=["one", "eight", "saved"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None, help="compute threads of the single process")
    wanted = parser.parse_args()
    if wanted.threads:
        torch.set_num_threads(wanted.threads)
    runs: dict[str, Callable[[], dict[str, float]]] = {
        "one": lambda: one(wanted.rounds), "eight": lambda: eight(wanted.steps), "saved": saved}
    print(json.dumps({name: runs[name]() for name in wanted.only}, indent=1))


if __name__ == "__main__":
    main()
