"""Machine files made by hand: the planner's own times with known factors on them, so that a test knows what must come out."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seatrial import machine
from seatrial.plan import kernels, network
from seatrial.plan.configs import PRECISIONS, Configs
from seatrial.probe.shapes import GemmShape
from seatrial.spec import Cluster


def empty(**changes: Any) -> dict[str, Any]:
    """Of an H200, with nothing measured."""
    device = {"name": "NVIDIA H200", "kind": "gpu", "memory_gib": 139.8, "usable_gib": 138.0, "context_gib": 0.5, "units": 132}
    return {"kind": machine.KIND, "schema": machine.SCHEMA, "device": device, "host": "node1", "torch": "2.11.0", "threads": 1,
            "cores": 16, "world": 1, "nodes": 1, "procs_per_node": 1, "when": "2026-01-01T00:00:00Z", "mode": "quick",
            "seconds": 1.0, "noise": 0.0, "figures": {part: [] for part in machine.PARTS}, "missing": [], **changes}


def cpu(**changes: Any) -> dict[str, Any]:
    """Of a CPU with two cores, one process of two threads."""
    device = {"name": "A CPU", "kind": "cpu", "memory_gib": 32.0, "usable_gib": 30.0, "units": 2}
    return empty(device=device, cores=2, threads=2, **changes)


def product_s(cluster: Cluster, shape: GemmShape, dtype: str = "bf16") -> float:
    """What the data sheet makes of one product."""
    configs = Configs.from_columns(1, layers=1, hidden=1024, heads=8, seq=1024, vocab=1024, gbs=1,
                                   procs_per_node=cluster.procs_per_node, precision=PRECISIONS.index(dtype))
    found = kernels.Machine.of(configs, cluster)
    widths = (shape.rows, shape.cols) if shape.kind == "weight" else (shape.cols, shape.inner)
    align = kernels.alignment_bytes(found, *(np.array([w]) for w in widths))
    return float(kernels.matmul_s(found, *shape[1:4], align, shape.batch, kind=shape.kind)[0])


def product(shape: GemmShape, s: float, dtype: str = "bf16") -> dict[str, Any]:
    return {"dtype": dtype, **shape._asdict(), "s": s, "spread": 0.0}


def all_reduce_s(cluster: Cluster, size: int, per_node: int, bytes_: float, groups: int = 1) -> float:
    group = network.Group(size=np.array([size]), per_node=np.array([per_node]), sharers=np.array([groups]))
    return float(network.all_reduce_s(cluster, group, bytes_)[0])


def written(found: dict[str, Any], folder: Path, name: str = "machine.json") -> str:
    path = folder / name
    machine.write(found, path)
    return str(path)
