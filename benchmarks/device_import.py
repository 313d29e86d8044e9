"""Our probe of an H200 against GEMMs that others measured: `python -m benchmarks.device_import PATH/TO/systems/data`.

PATH holds the kernel tables of github ai-dynamo/aiconfigurator (h200_sxm/gemm/*/*/gemm_perf.parquet or .txt). Each bf16 GEMM
that has each side within half a doubling of one that was probed is forecast with `--machine h200` and compared. The tables
differ among themselves: sglang and trtllm multiply random matrices, vllm weights that were never set, which draw less power;
all but vllm 0.22.0 ran six times, that one a second and more. So every table is shown, and the median of the tables with random
operands shape by shape.
"""
from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from seatrial import presets
from seatrial.plan import imported, probed
from seatrial.probe import published

RANDOM = ("sglang", "trtllm")
LIKE = 0.5
"""In doublings of a side."""


def sides(entries: Sequence[dict[str, Any]]) -> np.ndarray:
    return np.log2([[e[side] for side in ("rows", "cols", "inner")] for e in entries])


def like(entries: list[dict[str, Any]], known: np.ndarray, limit: float) -> list[dict[str, Any]]:
    apart = np.min([np.abs(sides(entries) - place).max(axis=1) for place in known], axis=0)
    return [e for e, far in zip(entries, apart) if far <= limit]


def compare(entries: list[dict[str, Any]], machine: str | None) -> dict[str, float]:
    cluster = presets.cluster("h200", {"machine": machine} if machine else {})
    off = imported._gemm_s(entries, cluster, probed.of(cluster)) / np.array([e["s"] for e in entries]) - 1
    return {"shapes": len(entries), "median": 100 * float(np.median(np.abs(off))),
            "p90": 100 * float(np.quantile(np.abs(off), 0.9)), "bias": 100 * float(np.median(off))}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--like", type=float, default=LIKE, help="doublings between a side here and there")
    arguments.add_argument("--json", action="store_true")
    asked = arguments.parse_args()
    paths = sorted(p for p in asked.data.glob("h200_sxm/gemm/*/*/gemm_perf.*") if p.suffix in (".parquet", ".txt", ".csv"))
    if not paths:
        raise SystemExit(f"{asked.data}: no h200_sxm/gemm/*/*/gemm_perf.parquet or .txt below it")
    file = json.loads(presets.machine_path("h200").read_text())
    known = sides([e for e in imported.known_gemms(file["figures"]["matmul"]) if e["dtype"] == "bf16"])
    found, repeats = {}, {}
    for path in paths:
        read = [e for e in published.read(path).figures["matmul"] if e["dtype"] == "bf16"]
        mine = like(read, known, asked.like)
        if not mine:
            continue
        name = "/".join(path.parts[-3:-1])
        found[name] = {"probe": compare(mine, "h200"), "sheet": compare(mine, None)}
        if name.split("/")[0] in RANDOM:
            for e in mine:
                repeats.setdefault((e["rows"], e["cols"], e["inner"]), []).append(e)
    joined = [{**each[0], "s": median(e["s"] for e in each)} for each in repeats.values()]
    found["random operands, median of the tables"] = {"probe": compare(joined, "h200"), "sheet": compare(joined, None)}
    if asked.json:
        print(json.dumps(found))
        return
    print("| table | shapes | probe: median % | p90 % | bias % | data sheet: median % |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, of in found.items():
        p = of["probe"]
        print(f"| {name} | {p['shapes']} | {p['median']:.1f} | {p['p90']:.1f} | {p['bias']:+.1f} "
              f"| {of['sheet']['median']:.1f} |")


if __name__ == "__main__":
    main()
