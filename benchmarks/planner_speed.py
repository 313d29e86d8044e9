"""How fast the planner searches, and in how much memory.

    python benchmarks/planner_speed.py            three searches, best of three, as a table
    python benchmarks/planner_speed.py --json

- 384 GPUs, nothing fixed: every layout of a 181B model, all ZeRO stages, recompute modes, schedules, with and without sequence
  parallelism. Wanted: under 1 s.
- 100,000 GPUs, the same. Wanted: under 10 s.
- bulk: a small model, for which many layouts can run, on 1 to 48 nodes with two batches. Wanted: at least 100,000 accepted,
  distinct layouts per second on one core, each with its time, interval and memory.
- mixtures of experts, EP and ETP searched too, on 8 to 64 nodes. Wanted: at least 20,000 considered per second.

Seconds are of the process, so that other work on the machine counts less; the wall clock stands beside them. MiB is what the
process grew by.
"""
from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import replace

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_threads] = "1"

from seatrial import presets  # noqa: E402
from seatrial.plan.search import search  # noqa: E402
from seatrial.plan.space import Space  # noqa: E402

BOTH = (False, True)
BLOOM = presets.model("bloom-181b")
SEARCHES = {
    "384 GPUs": Space(models=(BLOOM,), cluster=presets.cluster("jz-a100", nodes=48), gbs=(2048,), sequence_parallel=BOTH,
                      engine="seatrial"),
    "100,000 GPUs": Space(models=(BLOOM,), cluster=presets.cluster("dgx-h100", nodes=12500), gbs=(10000,),
                          sequence_parallel=BOTH, engine="seatrial"),
    "bulk": Space(models=(presets.model("gpt-1.3b"),), cluster=presets.cluster("jz-a100", nodes=48), nodes=tuple(range(1, 49)),
                  gbs=(1024, 2048), sequence_parallel=BOTH, engine="seatrial"),
}  # fmt: skip
"""Our own engine's memory is counted by the moments of its schedule, which others' facts spare."""
SEARCHES |= {f"bulk, {engine}": replace(SEARCHES["bulk"], engine=engine) for engine in ("megatron-core", "fsdp2", "deepspeed")}
SEARCHES |= {f"{model}, {engine}": Space(models=(presets.model(model),), cluster=presets.cluster("dgx-h100", nodes=64),
                                          nodes=(8, 16, 32, 64), gbs=(1024, 2048), sequence_parallel=BOTH, engine=engine)
             for model, engine in (("qwen3-30b-a3b", "megatron-core"), ("deepseek-v3", "megatron-core"),
                                   ("qwen3-30b-a3b", "fsdp2"))}
REPEATS = 3


def measured(space: Space) -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, wall = [], []
    for _ in range(REPEATS):
        start_cpu, start = time.process_time(), time.perf_counter()
        found = search(space)
        cpu.append(time.process_time() - start_cpu)
        wall.append(time.perf_counter() - start)
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"considered": found.considered, "accepted": found.accepted, "cpu_s": min(cpu), "wall_s": min(wall),
            "considered_per_s": found.considered / min(cpu), "accepted_per_s": found.accepted / min(cpu),
            "grown_mib": grown_mib}  # fmt: skip


def main() -> None:
    results = {name: measured(space) for name, space in SEARCHES.items()}
    if "--json" in sys.argv:
        print(json.dumps(results))
        return
    print(f"{'search':20} {'considered':>11} {'accepted':>9} {'cpu s':>7} {'wall s':>7} {'considered/s':>13} {'accepted/s':>11}"
          f" {'MiB':>5}")
    for name, r in results.items():
        print(f"{name:20} {r['considered']:11,.0f} {r['accepted']:9,.0f} {r['cpu_s']:7.2f} {r['wall_s']:7.2f} "
              f"{r['considered_per_s']:13,.0f} {r['accepted_per_s']:11,.0f} {r['grown_mib']:5.0f}")


if __name__ == "__main__":
    main()
