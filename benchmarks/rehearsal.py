"""Rehearsals against the truth, as far as a machine can tell it.

    python -m benchmarks.rehearsal                      memory, time, fugaku: about ten minutes on two quiet cores
    python -m benchmarks.rehearsal --only memory        12 topologies on up to 8 gloo ranks, against a tracker in real ranks
    python -m benchmarks.rehearsal --only time          2 ranks on 2 cores, real and rehearsed in turns
    python -m benchmarks.rehearsal --only fugaku        a rank of 6144 of the 30B model, on this CPU
    python benchmarks/rehearsal.py --h200 -o OUT.json   bloom-181b on one GPU, beside the log's GB and the planner's seconds
    python -m benchmarks.rehearsal --show OUT.json      the table of such a file

`--h200` needs torch and numpy alone, writes after every point, and leaves out what does not fit into `--seconds`.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT)]

import torch  # noqa: E402

from seatrial import presets  # noqa: E402
from seatrial.recipe import Recipe  # noqa: E402
from seatrial.rehearse.asked import RehearsalOptions  # noqa: E402
from seatrial.rehearse.fake import fake_world  # noqa: E402
from seatrial.rehearse.iteration import (  # noqa: E402
    Curve,
    Free,
    Measured,
    RankTimes,
    replay,
)
from seatrial.rehearse.rank import OutOfMemory, measure_memory, time_and_memory  # noqa: E402
from seatrial.rehearse.run import rehearse  # noqa: E402
from seatrial.spec import GIB, Batch, Execution, Model, Topology, Trial  # noqa: E402

MEMORY_BAR, TIME_BAR, FUGAKU_BAR_S = 0.03, 0.15, 300.0

# memory: 12 topologies


def small(family: Any = "gpt2", **layout: Any) -> Trial:
    model = Model(family=family, layers=8, hidden=128, heads=8, vocab=1000, seq=64, kv_heads=4 if family == "llama" else None)
    return Trial(model=model, batch=Batch(gbs=32), topology=Topology(mbs=2, **layout), execution=SMALL_EXECUTION)


TWELVE = {
    "dp2": small(dp=2),
    "dp2 zero1 bf16": small(dp=2, zero=1, precision="bf16"),
    "dp2 zero2": small("llama", dp=2, zero=2),
    "dp4 zero3 selective": small(dp=4, zero=3, recompute="selective"),
    "tp2 bloom full": small("bloom", tp=2, recompute="full"),
    "tp4 sequence parallel": small("llama", tp=4, sequence_parallel=True),
    "pp2 gpipe": small(pp=2, schedule="gpipe", recompute="full"),
    "pp4 1f1b": small(pp=4),
    "pp4 zb-h1": small(pp=4, schedule="zb-h1"),
    "pp2 vp2 tp2": small("bloom", pp=2, vp=2, tp=2, schedule="interleaved"),
    "dp2 tp2 pp2 zero1": small(dp=2, tp=2, pp=2, zero=1, precision="bf16"),
    "tp2 pp4 sequence parallel": small("llama", tp=2, pp=4, sequence_parallel=True, recompute="selective"),
}
SMALL_RECIPE = Recipe()
SMALL_EXECUTION = Execution(bucket_mib=0.5, logits_chunk=64, device="cpu", threads=1)


def memory() -> bool:
    from dist.many import in_world
    from dist.rehearsing import fullest

    real: dict[str, dict[int, int]] = {}
    for world in sorted({t.topology.world for t in TWELVE.values()}):
        group = {name: t for name, t in TWELVE.items() if t.topology.world == world}
        for answer in in_world(world, fullest, group, SMALL_RECIPE, timeout_s=1800.0):
            for name, seen in answer.items():
                real.setdefault(name, {}).setdefault(seen.pp, seen.peak)
    print("\nbytes at the fullest moment, rehearsed on tensors without memory, against a tracker in the real rank")
    worst = 0.0
    for name, trial in TWELVE.items():
        found = rehearse(trial, SMALL_RECIPE, RehearsalOptions(all_stages=True, memory_only=True))
        cells = []
        for one in found.ranks:
            off = one.memory.peak_bytes / real[name][one.pp_rank] - 1
            worst = max(worst, abs(off))
            cells.append(f"pp{one.pp_rank} {real[name][one.pp_rank] / 2**20:.2f} MiB {off:+.2%}")
        print(f"  {name:28} {'  '.join(cells)}")
    return verdict("memory of each distinct rank", worst, MEMORY_BAR)


# time: 2 ranks on 2 cores


def medium(**layout: Any) -> Trial:
    model = Model(layers=8, hidden=256, heads=4, vocab=4096, seq=256)
    return Trial(model=model, batch=Batch(gbs=16), topology=Topology(mbs=2, **layout), execution=PAIR_EXECUTION)


PAIRS = {
    "dp2": medium(dp=2),
    "dp2 zero1": medium(dp=2, zero=1),
    "dp2 zero3": medium(dp=2, zero=3),
    "tp2": medium(tp=2),
    "pp2 1f1b": medium(pp=2),
    "pp2 gpipe full": medium(pp=2, schedule="gpipe", recompute="full"),
    "pp2 zb-h1": medium(pp=2, schedule="zb-h1"),
    "pp2 interleaved": medium(pp=2, vp=2, schedule="interleaved"),
}
PAIR_RECIPE = Recipe()
PAIR_EXECUTION = Execution(device="cpu", threads=1)


def network(curves: dict[str, list[tuple[int, float]]]) -> Measured:
    made = {name: Curve(tuple((size, s) for size, s in points)) for name, points in curves.items()}
    return Measured(collectives={name: curve for name, curve in made.items() if name != "message"}, message=made["message"])


def timing(rounds: int) -> bool:
    from dist.many import in_world
    from dist.rehearsing import curves, step_s

    real: dict[str, list[float]] = {name: [] for name in PAIRS}
    rehearsed: dict[str, list[float]] = {name: [] for name in PAIRS}
    for number in range(rounds):
        links = network(in_world(2, curves, timeout_s=1800.0)[0])
        for name, sec in in_world(2, step_s, PAIRS, PAIR_RECIPE, 3, timeout_s=1800.0)[0].items():
            real[name].append(sec)
        for name, trial in PAIRS.items():
            found = rehearse(trial, PAIR_RECIPE, RehearsalOptions(all_stages=True), network=links)
            assert found.iteration is not None
            rehearsed[name].append(found.iteration.sec)
        print(f"round {number + 1} of {rounds}: load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    print("\nseconds per iteration on 2 ranks, real and assembled from rehearsed actions; medians of the rounds")
    worst = 0.0
    for name in PAIRS:
        truth, guess = statistics.median(real[name]), statistics.median(rehearsed[name])
        worst = max(worst, abs(guess / truth - 1))
        spread = max(real[name]) / min(real[name]) - 1
        print(f"  {name:20} real {truth:7.3f} s (rounds within {spread:5.1%})   rehearsed {guess:7.3f} s   "
              f"{guess / truth - 1:+6.1%}")
    return verdict("assembled iteration", worst, TIME_BAR)


# a rank of the largest layout of the logs


def fugaku() -> bool:
    cluster = presets.cluster("fugaku", nodes=6144)
    trial = Trial(model=presets.model("gpt-30b"), batch=Batch(gbs=1536), cluster=cluster,
                  topology=Topology(dp=32, tp=4, pp=48, mbs=1), execution=Execution(device="cpu"))
    began, cpu = time.perf_counter(), time.process_time()
    found = rehearse(trial, Recipe(), RehearsalOptions(rank=3072), cluster=cluster, say=print)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    one, iteration = found.ranks[0], found.iteration
    assert one.times is not None and iteration is not None
    print(f"  memory {one.memory.peak_bytes / GIB:.2f} GiB ({'without memory' if one.memory.fake else 'real'}, "
          f"{one.memory.microbatches} micro-batches), forward {one.times.forward[0].compute_s:.2f} s, backward "
          f"{one.times.backward[0].compute_s:.2f} s, iteration {iteration.sec:.0f} s with this CPU in place of an A64FX")
    print(f"  rank 3072 of 6144 in {took:.0f} s ({cpu:.0f} s of a core, {found.threads} threads), bar {FUGAKU_BAR_S:.0f} s: "
          f"{'met' if took <= FUGAKU_BAR_S else 'MISSED'}")
    return took <= FUGAKU_BAR_S


def verdict(what: str, worst: float, bar: float) -> bool:
    print(f"{what}: worst {worst:.1%}, bar {bar:.0%}: {'met' if worst <= bar else 'MISSED'}")
    return worst <= bar


# bloom-181b on one GPU

LOG_GB = {1: 29, 2: 37, 4: 49, 8: 69}
"""Of the A100 log, by micro-batch: DP 4, TP 8, PP 12, ZeRO 1, full recompute, with DeepSpeed."""
STAGES = {"first": 0, "middle": 6, "last": 11}


def bloom(mbs: int, precision: Any, scale: int) -> Trial:
    model = presets.model("bloom-181b")
    if scale > 1:
        # To try the script where there is no such GPU: the same layout of a narrow model.
        model = replace(model, hidden=model.hidden // scale, vocab=4096, seq=64, pad_vocab_to=None)
    return Trial(model=model, batch=Batch(gbs=2048),
                 topology=Topology(dp=4, tp=8, pp=12, mbs=mbs, zero=1, recompute="full", precision=precision))


def point(trial: Trial, stage: str, device: torch.device, repeats: int, *, fake: bool) -> dict[str, Any]:
    t = trial.topology
    recipe = Recipe()
    began = time.perf_counter()
    made: dict[str, Any] = {"precision": t.precision, "mbs": t.mbs, "stage": stage, "pipeline_rank": STAGES[stage]}
    try:
        with fake_world(rank=STAGES[stage] * t.dp * t.tp, world=t.world):
            if fake:
                found, times = measure_memory(trial, recipe, torch.device("cpu"), fake=True, as_gpu=True), None
            else:
                moments, found = time_and_memory(trial, recipe, device, repeats=repeats, as_gpu=True)
                times = RankTimes.of(replay(moments, Free(), overlap=True), t)
    except OutOfMemory as error:
        return {**made, "error": str(error), "took_s": time.perf_counter() - began}
    made |= {
        "peak_gib": found.peak_bytes / GIB, "at_peak_gib": {part: size / GIB for part, size in found.at_peak.items()},
        "parts_gib": {part: size / GIB for part, size in found.parts.items()}, "microbatches_run": found.microbatches,
        "allocated_gib": None if found.allocated_bytes is None else found.allocated_bytes / GIB,
        "reserved_gib": None if found.reserved_bytes is None else found.reserved_bytes / GIB,
    }  # fmt: skip
    if times is not None:
        made |= {"forward_s": times.forward[0].compute_s, "backward_s": times.backward[0].compute_s,
                 "forward_repeats_s": list(times.forward[0].repeats), "backward_repeats_s": list(times.backward[0].repeats),
                 "update_s": times.update.compute_s}
    return {**made, "took_s": time.perf_counter() - began}


def planner(trial: Trial, stage: str) -> dict[str, Any]:
    from seatrial.rehearse.show import Forecast, kind

    at = kind(STAGES[stage], trial.topology.pp)
    a100, h200 = (Forecast.of(trial, presets.cluster(name, nodes=48)) for name in ("jz-a100", "h200"))
    return {"planner_compute_s": h200.compute_s[at], "planner_a100_gib": a100.by_rank_gib[at],
            "planner_h200_gib": h200.by_rank_gib[at], "planner_a100_parts_gib": a100.memory}


def h200(out: Path, *, seconds: float, scale: int, fake: bool) -> bool:
    began = time.perf_counter()
    device = torch.device("cuda" if torch.cuda.is_available() and not fake else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    found: dict[str, Any] = {"schema": 1, "device": name, "torch": torch.__version__, "python": sys.version.split()[0],
                             "scale": scale, "fake": fake, "points": [], "left_out": []}
    for precision, repeats in (("bf16", 3), ("fp16", 1)):
        for mbs in LOG_GB:
            for stage in STAGES:
                if time.perf_counter() - began > seconds:
                    found["left_out"].append([precision, mbs, stage])
                    continue
                trial = bloom(mbs, precision, scale)
                made = point(trial, stage, device, repeats, fake=fake) | planner(trial, stage) | {"log_gb": LOG_GB[mbs]}
                found["points"].append(made)
                write(out, found)
                print(line(made), flush=True)
    found["took_s"] = time.perf_counter() - began
    write(out, found)
    print(f"{len(found['points'])} points in {found['took_s']:.0f} s, {len(found['left_out'])} left out: {out}")
    return not found["left_out"] and all("error" not in made for made in found["points"])


def write(path: Path, data: dict[str, Any]) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(data, indent=1), encoding="utf-8")
    os.replace(part, path)


def line(made: dict[str, Any]) -> str:
    head = f"{made['precision']} MBS {made['mbs']} {made['stage']:6}"
    if "error" in made:
        return f"{head}  {made['error']}"
    said = f"{head}  live {made['peak_gib']:6.2f} GiB"
    if made["allocated_gib"] is not None:
        said += f", allocated {made['allocated_gib']:6.2f}, reserved {made['reserved_gib']:6.2f}"
    said += f"; log {made['log_gb']} GB, planner {made['planner_a100_gib']:.1f} (A100)"
    if "forward_s" in made:
        both_s = made["forward_s"] + made["backward_s"]
        said += (f"; {1e3 * made['forward_s']:.1f} + {1e3 * made['backward_s']:.1f} ms a micro-batch, planner "
                 f"{1e3 * made['planner_compute_s']:.1f} ms ({both_s / made['planner_compute_s'] - 1:+.0%})")
    return f"{said}; {made['took_s']:.1f} s"


def difference(points: list[dict[str, Any]]) -> str:
    """What the log's GB hold that a rehearsal does not, and the other way round: the fullest rank by part, beside the
    planner's account of DeepSpeed on an A100."""
    said = []
    for mbs in LOG_GB:
        mine = [p for p in points if p["mbs"] == mbs and p["precision"] == "bf16" and "error" not in p]
        if not mine:
            continue
        fullest = max(mine, key=lambda p: p["peak_gib"])
        ours, theirs = fullest["at_peak_gib"], fullest["planner_a100_parts_gib"]
        rows = [("weights", ours["weights"], theirs["weights"], ""),
                ("gradients", ours["gradients"], theirs["gradients"], "here fp32, there 16 bits"),
                ("optimizer", ours["optimizer"], theirs["optimizer"], "there with fp32 copies of the shard's gradients"),
                ("activations", ours["activations"] + ours["buffers"], theirs["activations"] + theirs["working"],
                 "there scores are stored, here attention is fused"),
                ("logits", ours["logits"], theirs["logits"], "here a chunk of tokens at a time"),
                ("the rest", 0.0, theirs["slack"] + theirs["communication"] + theirs["context"],
                 "allocator's slack, communication buffers, context: not tensors of a rank")]
        said.append(f"MBS {mbs}, {fullest['stage']} rank: {fullest['peak_gib']:.1f} GiB here, {LOG_GB[mbs]} in the log, "
                    f"{sum(theirs.values()):.1f} by the planner's account of it")
        said += [f"    {name:12} {here:6.2f} {there:6.2f}  {there - here:+6.2f}  {why}" for name, here, there, why in rows]
    return "\n".join(said)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=("memory", "time", "fugaku"))
    parser.add_argument("--rounds", type=int, default=3, help="of the comparison of times")
    parser.add_argument("--h200", action="store_true", help="bloom-181b on the GPU at hand")
    parser.add_argument("-o", "--output", type=Path, default=Path("rehearsal-h200.json"))
    parser.add_argument("--seconds", type=float, default=90.0, help="no further point of --h200 is begun after this")
    parser.add_argument("--scale", type=int, default=1, help="--h200 with a model this many times narrower, to try the script")
    parser.add_argument("--fake", action="store_true", help="--h200 at full size without memory, to try the script")
    parser.add_argument("--show", type=Path, help="the table of a file that --h200 wrote")
    asked = parser.parse_args(argv)
    if asked.show is not None:
        points = json.loads(asked.show.read_text())["points"]
        print("\n".join(line(made) for made in points))
        print(difference(points))
        return 0
    if asked.h200:
        return 0 if h200(asked.output, seconds=asked.seconds, scale=asked.scale, fake=asked.fake) else 1
    good = True
    for name, run in (("memory", memory), ("time", lambda: timing(asked.rounds)), ("fugaku", fugaku)):
        if asked.only in (None, name):
            print(f"== {name}", flush=True)
            good = run() and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
