"""Stages as `stage_layers = "auto"` shares the layers out, against even ones: forecast, and measured on real ranks.

    python -m benchmarks.stages                     five models of odd layers and large vocabularies, PP 2, a thread a rank
    python -m benchmarks.stages --only llama-11     one of them
    python -m benchmarks.stages --forecast 2000     random models and layouts on clusters: how often slower, how much faster

On each rank both engines stand side by side and train in turns, so that a change of the machine's mood touches both. The ratio
is even over auto: of the median step, with the 90 % interval of the median of the rounds' own ratios; of the fastest step; and
of the CPU seconds of the busier rank: the pace that a pipeline has on cores of its own. Where other work has the cores, a step
takes what both ranks do together, which no split changes, and only the last of these can tell.
"""
from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from seatrial.plan import step
from seatrial.plan.configs import Configs
from seatrial.plan.held import Held
from seatrial.plan.odds import LIKELY
from seatrial.plan.stages import balanced, nominal
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Topology, Trial, stage_split

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

MODELS = {
    "gpt2-7": Model(layers=7, hidden=256, heads=8, seq=64, vocab=20000, family="gpt2"),
    "llama-5": Model(layers=5, hidden=192, heads=4, seq=64, vocab=14000, family="llama"),
    "llama-11": Model(layers=11, hidden=256, heads=8, kv_heads=4, seq=48, vocab=28000, family="llama"),
    "bloom-9": Model(layers=9, hidden=192, heads=4, seq=64, vocab=24000, family="bloom"),
    "qwen3-7": Model(layers=7, hidden=192, heads=4, head_dim=64, kv_heads=2, seq=64, vocab=18000, family="qwen3"),
}
"""None of those with which the machine of `nominal` was chosen."""


def pair(model: Model) -> dict[str, Trial]:
    even = Trial(model=model, batch=Batch(gbs=8), topology=Topology(pp=2))
    return {name: replace(even, topology=replace(even.topology, stage_layers=split))
            for name, split in (("even", stage_split(model.layers, 2)), ("auto", balanced(even)))}


def in_turns(trials: dict[str, Trial], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """On each rank: wall and CPU seconds of every step; the first round warms up."""
    from benchmarks.engine_cpu import engine_of

    torch.set_num_threads(1)
    engines = {name: engine_of(trial, Recipe(steps=rounds)) for name, trial in trials.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in trials}
    for number in range(rounds + 1):
        # Who goes first changes from round to round.
        for name in sorted(engines, reverse=bool(number % 2)):
            engine, batches = engines[name]
            torch.distributed.barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            engine.step(number + 1, first_sample=0, batches=batches)
            torch.distributed.barrier()
            if number:
                found[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return found


def measured(model: Model, rounds: int) -> dict[str, Any]:
    from dist.many import in_world

    trials = pair(model)
    ranks = in_world(2, in_turns, trials, rounds, timeout_s=1200)
    wall = {name: [w for w, _ in ranks[0][name]] for name in trials}
    pace = {name: [max(rank[name][i][1] for rank in ranks) for i in range(rounds)] for name in trials}
    ratios = sorted(even / auto for even, auto in zip(wall["even"], wall["auto"]))
    low, high = median_interval(ratios)
    return {
        "layers": model.layers, "vocab": model.vocab, **{name: trial.topology.stages_said for name, trial in trials.items()},
        "even_s": statistics.median(wall["even"]), "auto_s": statistics.median(wall["auto"]),
        "ratio": statistics.median(wall["even"]) / statistics.median(wall["auto"]), "ratio_lo": low, "ratio_hi": high,
        "quiet_ratio": min(wall["even"]) / min(wall["auto"]),
        "cpu_ratio": statistics.median(pace["even"]) / statistics.median(pace["auto"]),
        "cpu_s": {name: [round(statistics.median(cpu for _, cpu in rank[name]), 4) for rank in ranks] for name in trials},
        "forecast_ratio": forecast_ratio(trials), "rounds": rounds,
    }  # fmt: skip


def forecast_ratio(trials: dict[str, Trial]) -> float:
    """What `auto` went by: a machine of which nothing is known."""
    here = nominal(trials["even"])
    even, auto = step.time(Configs.from_trials([trials["even"], trials["auto"]], here), here).sec.tolist()
    return float(even / auto)


def median_interval(ordered: list[float]) -> tuple[float, float]:
    """90 % of the median, from the order of the values alone."""
    n = len(ordered)
    reach = math.ceil(1.645 * math.sqrt(n) / 2)
    return ordered[max(0, n // 2 - reach)], ordered[min(n - 1, (n - 1) // 2 + reach)]


def forecasts(count: int, seed: int = 17) -> dict[str, Any]:
    from unit.test_stages import drawn

    rng, gains, changed, to_fit = random.Random(seed), [], 0, 0
    for _ in range(count):
        trial = drawn(rng)
        assert trial.cluster is not None
        default, found = stage_split(trial.model.layers, trial.topology.pp * trial.topology.vp), balanced(trial)
        configs = Configs.from_trials([replace(trial, topology=replace(trial.topology, stage_layers=split))
                                       for split in (default, found)])
        sec = step.time(configs, trial.cluster).sec
        changed += found != default
        if Held.of(configs.take([0]), trial.cluster, None).odds[0] < LIKELY:
            to_fit += found != default  # the default would run out: seconds are not what counts
            continue
        gains.append(1 - float(sec[1] / sec[0]))
    return {"layouts": count, "changed": changed, "changed_to_fit": to_fit, "slower": sum(gain < -1e-12 for gain in gains),
            "mean_gain": statistics.mean(gains), "largest_gain": max(gains)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=tuple(MODELS), nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--forecast", type=int, default=0)
    wanted = parser.parse_args()
    if wanted.forecast:
        print(json.dumps(forecasts(wanted.forecast)))
        return
    for name in wanted.only:
        found = measured(MODELS[name], wanted.rounds)
        print(json.dumps({"model": name, **{key: round(value, 4) if isinstance(value, float) else value
                                            for key, value in found.items()}}), flush=True)


if __name__ == "__main__":
    main()
