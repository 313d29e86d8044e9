"""Bytes that the planner counts for our own engine, against the engine itself.

    python -m benchmarks.own_memory [--layouts 200] [--seed 0]                  against rehearsals, half as CPU, half as GPU
    python -m benchmarks.own_memory --device cuda --layouts 30                  against the allocator of a real GPU, one process

Layouts of five models are drawn at random: every family, recompute, ZeRO stage, schedule, precision, optimizer; uneven and
virtual stages. A rehearsal runs the engine's own code on tensors without memory, for every pipeline rank that differs from the
others. On a GPU real steps run, and what is compared is `max_memory_allocated`; where $OUT is set all rows go to
$OUT/own_memory.json. The bar is 2 %, and at a device's limit nothing refused that fits and nothing accepted that does not,
outside a band of 3 %.
"""
from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import random
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import torch  # noqa: E402

from seatrial import rules  # noqa: E402
from seatrial.arith import footprint  # noqa: E402
from seatrial.errors import BadInput, SeatrialError  # noqa: E402
from seatrial.plan.configs import Configs  # noqa: E402
from seatrial.plan.ours import footprints  # noqa: E402
from seatrial.recipe import Recipe  # noqa: E402
from seatrial.rehearse.asked import RehearsalOptions, distinct  # noqa: E402
from seatrial.rehearse.fake import fake_world  # noqa: E402
from seatrial.rehearse.rank import measure_memory  # noqa: E402
from seatrial.spec import GIB, Batch, Execution, Model, Topology, Trial  # noqa: E402

BAR, BAND = 0.02, 0.03

MODELS = {
    "gpt2": Model(family="gpt2", layers=12, hidden=1536, heads=16, vocab=50257, seq=1024),
    "bloom": Model(family="bloom", layers=10, hidden=1536, heads=16, vocab=125000, seq=1024),
    "llama": Model(family="llama", layers=10, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=32000, seq=2048),
    "qwen2": Model(family="qwen2", layers=12, hidden=1792, heads=28, kv_heads=4, ffn=4864, vocab=151936, seq=1024, tied=True),
    "qwen3": Model(family="qwen3", layers=9, hidden=1024, heads=16, kv_heads=8, head_dim=128, ffn=3072, vocab=151936, seq=2048),
}
"""Widths of models that are in use, and fewer layers: a rehearsal takes as long as it has layers."""


def drawn(rng: random.Random, *, alone: bool = False) -> tuple[Trial, bool]:
    """One that can run, and whether as a GPU; `alone`: on one GPU."""
    while True:
        gpu = alone or rng.random() < 0.5
        try:
            trial = _draw(rng, gpu=gpu, alone=alone)
            rules.check(trial)
        except SeatrialError:
            continue
        return trial, gpu


def _draw(rng: random.Random, *, gpu: bool, alone: bool) -> Trial:
    family = rng.choice(list(MODELS))
    model = replace(MODELS[family], seq=rng.choice([256, 512, 1024, 2048]))
    precisions = ["fp32", "bf16", "bf16", "bf16", "fp16"] if gpu else ["fp32", "bf16", "fp16"]
    if gpu:
        precisions += ["fp8", "fp8"]
    dp, tp, pp = (1, 1, 1) if alone else (rng.choice([1, 1, 2, 4, 8]), rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 2, 3, 4]))
    schedule = rng.choice(["1f1b", "gpipe", "zb-h1", "interleaved"] if pp > 1 else ["1f1b", "1f1b", "gpipe", "zb-h1"])
    vp = rng.choice([2, 3]) if schedule == "interleaved" else 1
    m = rng.choice([1, 2, 3, 4, 6]) * (pp if schedule == "interleaved" else 1)
    mbs = rng.choice([1, 2, 4])
    topology = Topology(
        dp=dp, tp=tp, pp=pp, vp=vp, mbs=mbs, zero=rng.choice([0, 1, 2, 3]), recompute=rng.choice(["none", "selective", "full"]),
        schedule=schedule, precision=rng.choice(precisions), sequence_parallel=tp > 1 and rng.random() < 0.5,
        stage_layers=_uneven(rng, model.layers, pp * vp) if pp > 1 and rng.random() < 0.3 else None,
    )  # fmt: skip
    execution = Execution(
        optimizer=rng.choice(["adamw-fused"] * 3 + ["adamw-plain"]), moments=rng.choice(["fp32", "fp32", "bf16"]),
        bucket_mib=rng.choice([8.0, 32.0, 32.0, 128.0]), logits_chunk=rng.choice([256, 1024, 1024, 4096]),
        device="cuda" if alone else "cpu",
    )  # fmt: skip
    return Trial(model=model, batch=Batch(gbs=m * dp * mbs), topology=topology, execution=execution)


def _uneven(rng: random.Random, layers: int, stages: int) -> tuple[int, ...]:
    if stages > layers:
        raise BadInput(f"{layers} layers for {stages} stages")
    cuts = sorted(rng.sample(range(1, layers), stages - 1))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, layers]))


def rehearsed(trial: Trial, *, gpu: bool) -> dict[int, tuple[int, dict[str, int]]]:
    """Bytes at the fullest moment, and by part then, of every pipeline rank that differs."""
    found = {}
    for one in distinct(trial, RehearsalOptions(all_stages=True, memory_only=True)):
        with fake_world(rank=one.rank, world=trial.topology.world):
            memory = measure_memory(trial, Recipe(), torch.device("cpu"), fake=True, as_gpu=gpu)
        found[one.pp_rank] = memory.peak_bytes, memory.at_peak
    return found


CACHE = os.environ.get("OWN_MEMORY_CACHE")
"""A folder of rehearsals that were made before, while the count is worked on."""


def truth(trial: Trial, *, gpu: bool) -> dict[int, tuple[int, dict[str, int]]]:
    if not CACHE:
        return rehearsed(trial, gpu=gpu)
    at = Path(CACHE) / f"{hashlib.sha256(repr((trial, gpu)).encode()).hexdigest()[:16]}.json"
    if not at.exists():
        at.write_text(json.dumps(rehearsed(trial, gpu=gpu)))
    return {int(rank): (peak, parts) for rank, (peak, parts) in json.loads(at.read_text()).items()}


def counted(trials: list[tuple[Trial, bool]]) -> list[float]:
    """Bytes of the fullest rank by the planner's columns; executions differ, so each has its own call."""
    found = []
    for trial, gpu in trials:
        found.append(float(footprints(Configs.from_trials([trial]), gpu=gpu).total.max()))
    return found


def words(trial: Trial, gpu: bool) -> str:
    t, e = trial.topology, trial.execution
    stages = f" stages {'-'.join(map(str, t.stage_layers))}" if t.stage_layers else ""
    return (f"{'gpu' if gpu else 'cpu'} {trial.model.family} seq {trial.model.seq} dp {t.dp} tp {t.tp}"
            f"{' sp' if t.sequence_parallel else ''} pp {t.pp} vp {t.vp} {t.schedule}{stages} mbs {t.mbs} x "
            f"{trial.microbatches} zero {t.zero} {t.recompute} {t.precision} {e.optimizer} moments {e.moments} "
            f"bucket {e.bucket_mib:g} logits {e.logits_chunk}")


def report(trials: list[tuple[Trial, bool]], ours: list[float], truths: list[float], what: str) -> bool:
    errors = [mine / truth - 1 for mine, truth in zip(ours, truths)]
    sizes = sorted(map(abs, errors))
    print(f"{len(trials)} layouts against {what}: mean {100 * statistics.mean(sizes):.2f} %, "
          f"p90 {100 * sizes[int(0.9 * (len(sizes) - 1))]:.2f} %, worst {100 * sizes[-1]:.2f} %")
    beyond = [i for i in sorted(range(len(errors)), key=lambda i: -abs(errors[i])) if abs(errors[i]) > BAR]
    for i in beyond:
        print(f"  {100 * errors[i]:+.1f} % of {truths[i] / GIB:.2f} GiB: {words(*trials[i])}")
    # A device that half of them fit on.
    limit = statistics.median(truths)
    clear = [(mine <= limit, truth <= limit) for mine, truth in zip(ours, truths) if abs(truth / limit - 1) > BAND]
    refused, accepted = clear.count((False, True)), clear.count((True, False))
    print(f"at a limit of {limit / GIB:.2f} GiB, {len(clear)} outside its band of {100 * BAND:.0f} %: {refused} refused that "
          f"fit, {accepted} accepted that do not")
    return not beyond and not refused and not accepted


def on_gpu(count: int, seed: int, seconds: float) -> bool:
    """Real steps in this process; what does not fit into `seconds`, or onto the GPU, is left out and said."""
    rng, device, began = random.Random(seed), torch.device("cuda"), time.monotonic()
    rows: list[dict[str, Any]] = []
    trials, ours, truths = [], [], []
    while len(rows) < count and time.monotonic() - began < seconds:
        trial, _ = drawn(rng, alone=True)
        mine = counted([(trial, True)])[0]
        if mine > 0.9 * torch.cuda.mem_get_info(device)[0]:
            print(f"left out, {mine / GIB:.0f} GiB: {words(trial, True)}")
            continue
        try:
            found = stepped(trial, device)
        except torch.OutOfMemoryError:
            print(f"ran out of memory, {mine / GIB:.1f} GiB counted: {words(trial, True)}")
            found = {}
        rows.append({"layout": words(trial, True), "counted_bytes": mine, **found,
                     "parts": footprint(trial, gpu=True).at_peak})
        if found:
            trials.append((trial, True))
            ours.append(mine)
            truths.append(float(found["allocated_bytes"]))
            gib = [f"{size / GIB:7.3f}" for size in (mine, truths[-1], found["reserved_bytes"])]
            print(f"{len(rows):3d}  {gib[0]} counted  {gib[1]} allocated  {gib[2]} reserved  "
                  f"{100 * (mine / truths[-1] - 1):+6.2f} %  {words(trial, True)}", flush=True)
        if out := os.environ.get("OUT"):
            (Path(out) / "own_memory.json").write_text(json.dumps(
                {"device": torch.cuda.get_device_name(device), "torch": torch.__version__, "rows": rows}, indent=1))
    return report(trials, ours, truths, torch.cuda.get_device_name(device))


def stepped(trial: Trial, device: torch.device) -> dict[str, int]:
    """The allocator's peaks over three steps: the first one of eight bits computes in bf16."""
    from seatrial.engine.core.mesh import Mesh
    from seatrial.engine.core.step import Engine
    from seatrial.engine.fast import choose, tuned_gemm
    from seatrial.engine.fast.config import KernelConfig, fusable
    from seatrial.engine.io.data import Batches

    config = KernelConfig.of(device, trial.topology.precision, trial.execution)
    # Algorithms are a matter of time, and looking for them takes some; their workspace is there all the same.
    library = tuned_gemm.cublaslt() if config.tuned_gemm and fusable(trial.model) else None
    if library is not None:
        library.workspace(device, torch.cuda.current_stream(device).cuda_stream)
    config, _ = choose.choose(trial, device, replace(config, tuned_gemm=False))
    recipe = Recipe()
    torch.cuda.empty_cache()
    engine = Engine(trial, recipe, Mesh(trial.topology, device=device), ops=choose.build(config, trial, device))
    batches = Batches(recipe, trial.model, recipe.seed)
    engine.step(1, first_sample=0, batches=batches)
    before = torch.cuda.memory_stats(device)["allocated_bytes.all.current"]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    for number in (2, 3):
        engine.step(number, first_sample=0, batches=batches)
    stats = torch.cuda.memory_stats(device)
    found = {"allocated_bytes": stats["allocated_bytes.all.peak"], "reserved_bytes": stats["reserved_bytes.all.peak"],
             "between_steps_bytes": before, "device_used_bytes": torch.cuda.mem_get_info(device)[1]
             - torch.cuda.mem_get_info(device)[0]}
    del engine
    gc.collect()
    torch.cuda.empty_cache()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: real steps on this machine's GPU")
    parser.add_argument("--seconds", type=float, default=280.0, help="of a GPU")
    asked = parser.parse_args()
    if asked.device == "cuda":
        return 0 if on_gpu(asked.layouts, asked.seed, asked.seconds) else 1
    torch.set_num_threads(1)
    rng = random.Random(asked.seed)
    trials = [drawn(rng) for _ in range(asked.layouts)]
    truths = [float(max(peak for peak, _ in truth(trial, gpu=gpu).values())) for trial, gpu in trials]
    good = True
    for kind in (False, True):
        those = [i for i, (_, gpu) in enumerate(trials) if gpu == kind]
        good &= report([trials[i] for i in those], counted([trials[i] for i in those]), [truths[i] for i in those],
                       f"rehearsals as a {'GPU' if kind else 'CPU'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
