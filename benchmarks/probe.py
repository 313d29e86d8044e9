"""What a probe is worth: trials forecast from the data sheet and from machine.json, and then run. `python -m benchmarks.probe`

    python -m benchmarks.probe --ranks 2 -o benchmarks/results/probe-cpu.json
    python -m benchmarks.probe --machine machine.json           a probe made before
    python -m benchmarks.probe --cpu-time                       one process, in its own CPU seconds

Probes this machine with its usual shapes (not those of the trials), forecasts each trial with cluster `local` (what the kernel
says of the CPU) and with the machine file, and runs it for real. Both errors come from one run. The load of the machine before
and after is printed: on a busy one neither means much. There `--cpu-time` helps: probe and trials in one process with one
thread, both by the CPU time that it used, so that waiting for others does not count; what ranks say to each other is left out.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial import presets
from seatrial.launch.trial import run_now
from seatrial.plan import step
from seatrial.plan.configs import Configs
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Cluster, Model, Topology, Trial

SMALL = Model(layers=6, hidden=256, heads=8, vocab=4096, seq=128, name="small")
MIDDLE = Model(layers=4, hidden=512, heads=8, vocab=8192, seq=256, name="middle")
LLAMA = Model(layers=4, hidden=384, heads=6, vocab=8192, seq=256, family="llama", name="llama")
TRIALS = [
    (SMALL, Topology(dp=2, mbs=2), 8), (SMALL, Topology(tp=2, mbs=2), 8), (SMALL, Topology(pp=2, mbs=1), 8),
    (MIDDLE, Topology(dp=2, mbs=1), 4), (MIDDLE, Topology(dp=2, mbs=2, zero=1), 8), (MIDDLE, Topology(tp=2, mbs=2), 4),
    (MIDDLE, Topology(pp=2, mbs=1), 6), (MIDDLE, Topology(dp=2, mbs=1, recompute="full"), 4), (LLAMA, Topology(dp=2, mbs=2), 4),
    (LLAMA, Topology(tp=2, mbs=2, sequence_parallel=True), 4),
]  # fmt: skip
BLOOM = Model(layers=4, hidden=384, heads=6, vocab=8192, seq=256, family="bloom", name="bloom")
ALONE = [
    (SMALL, Topology(mbs=1), 1), (SMALL, Topology(mbs=2), 4), (MIDDLE, Topology(mbs=1), 2), (MIDDLE, Topology(mbs=4), 4),
    (MIDDLE, Topology(mbs=1, recompute="full"), 2), (LLAMA, Topology(mbs=2), 4), (BLOOM, Topology(mbs=2), 4),
    (presets.model("tiny"), Topology(mbs=4), 8),
]  # fmt: skip
"""Of one process."""


def forecast_s(trial: Trial, cluster: Cluster) -> tuple[float, float, float]:
    here = replace(trial, cluster=cluster)
    found = step.time(Configs.from_trials([here]), cluster)
    return float(found.sec[0]), float(found.lo[0]), float(found.hi[0])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--ranks", type=int, default=2)
    arguments.add_argument("--steps", type=int, default=10)
    arguments.add_argument("--machine", type=Path)
    arguments.add_argument("--cpu-time", action="store_true")
    arguments.add_argument("-o", "--output", type=Path)
    asked = arguments.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        machine = asked.machine or Path(folder) / "machine.json"
        if asked.cpu_time:
            count_cpu_time(machine, probes=asked.machine is None)
        elif asked.machine is None:
            argv = [sys.executable, "-m", "seatrial", "probe", "--ranks", str(asked.ranks), "-o", str(machine)]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        probed = json.loads(machine.read_text())
        trials = ALONE if asked.cpu_time else TRIALS
        rows = [measured(*one, asked, machine, Path(folder) / str(i)) for i, one in enumerate(trials)]
    print(f"probe: {probed['seconds']:.0f} s, noise {probed['noise']:.1%}, {len(probed['missing'])} not measured; "
          f"load before {before:.1f}, after {os.getloadavg()[0]:.1f}")
    print(f"{'trial':44} {'real s':>8} {'local s':>8} {'error':>7} {'machine s':>9} {'error':>7}  in 90 %")
    for row in rows:
        print(f"{row['trial']:44} {row['sec']:8.4f} {row['local_s']:8.4f} {row['local_error']:+7.0%} {row['machine_s']:9.4f} "
              f"{row['machine_error']:+7.0%}  {'yes' if row['held'] else 'no'}")
    for name in ("local", "machine"):
        errors = [abs(row[f"{name}_error"]) for row in rows]
        factor = math.exp(statistics.mean(abs(math.log(1 + row[f"{name}_error"])) for row in rows))
        print(f"{name}: mean error {statistics.mean(errors):.0%}, a factor of {factor:.2f} on average")
    print(f"the machine's 90 % intervals hold {sum(row['held'] for row in rows)} of {len(rows)}")
    if asked.output is not None:
        told = {"load": before, "noise": probed["noise"], "seconds": probed["seconds"], "rows": rows}
        asked.output.write_text(json.dumps(told, indent=1) + "\n")


def measured(model: Model, topology: Topology, gbs: int, asked: argparse.Namespace, machine: Path,
             out: Path) -> dict[str, Any]:
    trial = Trial(model=model, topology=topology, batch=Batch(gbs=gbs))
    if asked.cpu_time:
        sec, parts = steps_s(trial, asked.steps), {}
        # One thread has one core: as many processes as there are cores share the node.
        procs = len(os.sched_getaffinity(0))
    else:
        found = run_now(trial, Recipe(steps=asked.steps, warmup_iterations=2), out=out, timeout_s=300)
        sec, parts, procs = found["sec_per_it"], found["breakdown"], asked.ranks
    local, _, _ = forecast_s(trial, presets.cluster("local", procs_per_node=procs))
    known, low, high = forecast_s(trial, presets.cluster(str(machine), procs_per_node=procs))
    t = topology
    words = [f"{name.upper()} {getattr(t, name)}" for name in ("dp", "tp", "pp") if getattr(t, name) > 1]
    words += [f"MBS {t.mbs}", *(["ZeRO 1"] if t.zero else []), *(["SP"] if t.sequence_parallel else [])]
    words += [f"recompute {t.recompute}"] if t.recompute != "none" else []
    return {"trial": f"{model.name} {' '.join(words)} GBS {gbs}", "sec": sec, "local_s": local, "local_error": local / sec - 1,
            "machine_s": known, "machine_error": known / sec - 1, "held": low <= sec <= high, "breakdown": parts}


def count_cpu_time(machine: Path, *, probes: bool) -> None:
    """From here on this process's clock stands still while others run."""
    import torch

    from seatrial import machine as files
    from seatrial.engine.rendezvous import RankInfo
    from seatrial.probe.options import ProbeOptions
    from seatrial.probe.run import probe

    torch.set_num_threads(1)
    time.perf_counter = time.process_time
    if probes:
        files.write(probe(ProbeOptions.of(device="cpu", budget_s=600.0), RankInfo(), torch.device("cpu"), say=print), machine)


def steps_s(trial: Trial, steps: int) -> float:
    """The median step of the engine in this process."""
    import torch

    from seatrial.engine.core.mesh import Mesh
    from seatrial.engine.core.step import Engine
    from seatrial.engine.io.data import Batches

    recipe = Recipe(steps=1000)
    engine = Engine(trial, recipe, Mesh(trial.topology, device=torch.device("cpu")))
    batches, seconds = Batches(recipe, trial.model, recipe.seed), []
    for number in range(1, steps + 3):
        began = time.process_time()
        engine.step(number, first_sample=0, batches=batches)
        seconds.append(time.process_time() - began)
    return statistics.median(seconds[2:])


if __name__ == "__main__":
    main()
