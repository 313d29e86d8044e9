"""Engines that are not ours through every layout that they have on a few processes here: emitted, run, read, recorded.

    python -m benchmarks.engines                            all that are installed (`make engines`), a row a layout
    python -m benchmarks.engines --engine torchtitan --steps 8
    python -m benchmarks.engines --engine seatrial --engine fsdp2       our own beside it, started alike

Times are of this machine as it is: engines are compared only inside one call.
"""
from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from seatrial import trialfile
from seatrial.engines import ENGINES, engine_for, homes
from seatrial.errors import BadInput
from seatrial.launch.local import Local
from seatrial.launch.trial import Limits, run_trial

ENGINES_HERE = ("seatrial", "fsdp2", "torchtitan", "deepspeed", "megatron-core")
SP = {"sequence_parallel": True}
LAYOUTS: list[dict[str, object]] = [
    {"dp": 2}, {"dp": 2, "zero": 1}, {"dp": 2, "zero": 2}, {"dp": 2, "zero": 3}, {"dp": 2, "zero": 3, "recompute": "full"},
    {"dp": 4, "zero": 3, "zero_group": 2}, {"dp": 2, "zero": 3, "precision": "bf16"}, {"tp": 2}, {"tp": 2, **SP},
    {"tp": 2, "dp": 2, "zero": 3, **SP}, {"tp": 2, "dp": 2}, {"pp": 2}, {"pp": 2, "zero": 1, "dp": 2},
    {"pp": 2, "dp": 2, "zero": 3}, {"pp": 2, "vp": 2, "schedule": "interleaved"},
    {"pp": 2, "schedule": "gpipe"}, {"pp": 4}, {"pp": 2, "tp": 2}, {"pp": 3},
    {"pp": 2, "tp": 2, **SP}, {"dp": 2, "precision": "bf16"}, {"pp": 2, "stage_layers": [3, 5]}, {"dp": 2, "mbs": 2},
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=ENGINES_HERE)
    parser.add_argument("--model", default="tiny-llama")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--most", type=int, default=len(LAYOUTS), help="layouts of each engine")
    asked = parser.parse_args()
    local, counts = Local(), {}
    for name in asked.engine or ENGINES_HERE:
        adapter = ENGINES.get(name)()
        if name != "seatrial" and not homes.found(name, adapter.module):
            print(f"{name:14} is not installed: make engines ENGINES={name}")
            continue
        for layout in LAYOUTS:
            data = {"model": asked.model, "batch": {"gbs": 16}, "topology": layout, "engine": name,
                    "recipe": {"steps": asked.steps}}
            label = " ".join(f"{key} {value}" for key, value in layout.items())
            trial, recipe = trialfile.build(data)
            try:
                engine_for(trial).can_run(trial)
            except BadInput as error:
                print(f"{name:14} {label:44} refused: {error}"[:150])
                continue
            if counts.get(name, [0, 0])[1] >= asked.most:
                break
            with tempfile.TemporaryDirectory(prefix="seatrial-engines-") as folder:
                record = run_trial(trial, recipe, local, Path(folder) / "run", limits=Limits(time_limit_s=300))
            assert record.outcome is not None
            good = record.outcome.status == "ok"
            done = counts.setdefault(name, [0, 0])
            done[0], done[1] = done[0] + good, done[1] + 1
            said = record.outcome.message
            if good:
                said = f"loss {record.loss:.4f}  {record.sec_per_it:.3f} s/it  {record.mem_gib:.2f} GiB"
            print(f"{name:14} {label:44} {record.outcome.status:8} {said}"[:200], flush=True)
    local.close()
    for name, (good, tried) in counts.items():
        print(f"{name}: {good} of {tried} layouts ran")


if __name__ == "__main__":
    main()
