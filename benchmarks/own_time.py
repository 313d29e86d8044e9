"""Our own engine's time, forecast and measured on an H200: `python -m benchmarks.own_time`.

The rows of `benchmarks/results/gpu-h200.json` (made by `benchmarks.gpu`), each forecast as engine `seatrial` from the data
sheet alone, and with the shipped probe of that device (`--machine h200`).
"""
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.gpu.shapes import ROWS, trial_of

from seatrial import presets
from seatrial.plan import step
from seatrial.plan.configs import Configs

RESULTS = Path(__file__).parent / "results" / "gpu-h200.json"
OWN = ("bf16@1.3b", "bf16@5.6b", "fp8@5.6b", "fp8@1.3b", "bf16-selective@1.3b", "bf16-full@1.3b", "bf16-moments16@5.6b",
       "bf16-moments16@1.3b", "bf16@llama3", "fp8@llama3", "bf16@1.3b-llama", "bf16@qwen3-moe")
"""Rows of the engine as it is, no choice of its switched off; of two runs that have one the later counts."""


def main() -> None:
    runs = json.loads(RESULTS.read_text(encoding="utf-8"))["runs"]
    measured = {name: row for run in runs for name, row in run.items()}
    for name, machine in (("data sheet", {}), ("--machine h200", {"machine": "h200"})):
        cluster = replace(presets.cluster("h200", machine), nodes=1, procs_per_node=1)
        errors = []
        for row in (name for name in OWN if "sec" in measured.get(name, {})):
            trial = replace(trial_of(ROWS[row]), cluster=cluster)
            found = step.time(Configs.from_trials([trial]), cluster)
            sec = float(found.sec[0])
            errors.append(sec / measured[row]["sec"] - 1)
            parts = " ".join(f"{part} {1e3 * float(s[0]):.1f}" for part, s in found.parts.items() if s[0] > 1e-4)
            print(f"{name:16}{row:22}{1e3 * measured[row]['sec']:8.1f} ms, forecast {1e3 * sec:7.1f}  "
                  f"{100 * errors[-1]:+5.1f} %  {parts}")
        print(f"{name}: mean {100 * np.mean(np.abs(errors)):.1f} %, worst {100 * np.max(np.abs(errors)):.1f} %")


if __name__ == "__main__":
    main()
