"""The planner's kernel model against kernels timed on a GPU: `python -m benchmarks.kernels_model [results/kernels-h200.json]`.

    python -m benchmarks.kernels_model --machine machine-h200.json      also with what a probe of the device found

Products, attention and whole layers of `benchmarks/kernels_gpu.py`, measured and modelled. The layer there has no collectives
and no fused bias-dropout-add, so a few per cent below the measured time is what a good model says.
"""
from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from seatrial import presets
from seatrial.plan import kernels
from seatrial.plan.configs import PRECISIONS, Configs
from seatrial.plan.layer import layer
from seatrial.spec import Cluster

RESULTS = Path(__file__).parent / "results" / "kernels-h200.json"


def configs(**columns: object) -> Configs:
    fixed = {"layers": 1, "seq": 2048, "vocab": 50304, "recompute": 2, "attention": 0, "procs_per_node": 8}
    n = max(np.size(v) for v in columns.values())
    return Configs.from_columns(n, **fixed, precision=PRECISIONS.index("bf16"), **columns)


def products(found: list[dict], cluster: Cluster) -> list[tuple[str, float, float]]:
    """The four products of a layer, forward and backward, by width, shard and tokens: name, measured and modelled seconds."""
    machine = kernels.Machine.of(configs(hidden=1024, heads=16, gbs=1), cluster)
    sums: dict[str, list[float]] = {}
    for p in found:
        shapes = {"forward": (p["tokens"], p["cols"], p["inner"]), "input": (p["tokens"], p["inner"], p["cols"]),
                  "weight": (p["cols"], p["inner"], p["tokens"])}
        align = kernels.alignment_bytes(machine, np.array([p["cols"]]), np.array([p["inner"]]))
        total = sums.setdefault(f"hidden {p['hidden']} TP {p['tp']} tokens {p['tokens']}", [0.0, 0.0])
        total[0] += p["s"]
        total[1] += float(kernels.matmul_s(machine, *shapes[p["kind"]], align, kind=p["kind"])[0])
    return [(name, measured, modelled) for name, (measured, modelled) in sums.items()]


def layers(found: list[dict], cluster: Cluster) -> list[tuple[str, float, float]]:
    """Forward, recompute and backward of one layer."""
    column = {name: np.array([one[name] for one in found]) for name in ("hidden", "heads", "tp", "mbs")}
    c = configs(gbs=1000 * column["mbs"], **column)
    cost = layer(c, cluster, kernels.Machine.of(c, cluster))
    total = sum(part.forward + part.backward for name, part in cost.items() if name != "tensor")
    return [(f"hidden {one['hidden']} heads {one['heads']} TP {one['tp']} MBS {one['mbs']}", one["step_s"], float(s))
            for one, s in zip(found, total)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("results", nargs="?", default=str(RESULTS))
    arguments.add_argument("--machine", help="a machine file of the same device")
    arguments.add_argument("--short", action="store_true", help="the errors alone")
    asked = arguments.parse_args()
    found = json.loads(Path(asked.results).read_text())
    cluster = replace(presets.cluster("h200"), machine=None)
    compare("data sheet", found, cluster, short=asked.short)
    if asked.machine is not None:
        compare(asked.machine, found, presets.cluster("h200", {"machine": asked.machine}), short=asked.short)


def compare(name: str, found: dict, cluster: Cluster, *, short: bool) -> None:
    blocking = replace(cluster, blocking_launch=True)
    print(f"-- {name}")
    for title, rows in (("products of a layer", products(found["products"], cluster)),
                        ("a layer", layers(found["layers"], cluster)),
                        ("a layer, blocking launches", layers(found["layers_blocking"], blocking))):
        errors = [modelled / measured - 1 for _, measured, modelled in rows]
        print(f"{title}: mean error {100 * np.mean(np.abs(errors)):.1f} %, bias {100 * np.mean(errors):+.1f} %")
        for (name, measured, modelled), error in zip([] if short else rows, errors):
            print(f"  {name:44} {1e3 * measured:8.2f} ms, model {1e3 * modelled:8.2f} ms  {100 * error:+.0f} %")


if __name__ == "__main__":
    main()
