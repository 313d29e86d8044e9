"""Ranks of engines that are not ours, rehearsed: bytes against a GPU's allocator, collectives against processes that talk.

    python -m benchmarks.rehearse_engines                                   counts here, beside what an H200's allocator said
    python -m benchmarks.rehearse_engines --device cuda -o OUT.json         the same ranks on this GPU, their peers made up
    python -m benchmarks.rehearse_engines --peers                           the collectives of each kind of layout, over gloo

Bytes are of whole layouts, one rank of 2 to 64; collectives of the same kinds of layout on a few processes.
"""
from __future__ import annotations

import argparse
import json
import platform
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from seatrial import trialfile
from seatrial.engines import homes
from seatrial.rehearse import theirs
from seatrial.rehearse.asked import RehearsalOptions
from seatrial.spec import GIB, Trial

RESULTS = Path(__file__).parent / "results" / "rehearse-engines-h200.json"
BAR = 0.03
GPT: dict[str, Any] = {"base": "gpt2-124m"}
LLAMA: dict[str, Any] = {"base": "llama3-8b", "layers": 4, "seq": 2048}
SMALL: dict[str, Any] = {"base": "llama3.2-1b", "layers": 4, "seq": 2048}
BF16, SP = {"precision": "bf16"}, {"sequence_parallel": True}
Case = tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]
CASES: dict[str, Case] = {
    # engine, model, layout, the same kind of layout on a few processes
    "fsdp2-zero3": ("fsdp2", GPT, {"dp": 64, "zero": 3, "mbs": 8, **BF16}, {"dp": 4, "zero": 3, **BF16}),
    "fsdp2-zero2-fp32": ("fsdp2", GPT, {"dp": 2, "zero": 2, "mbs": 4}, {"dp": 2, "zero": 2}),
    "fsdp2-hsdp": ("fsdp2", GPT, {"dp": 16, "zero": 3, "zero_group": 8, "mbs": 8, **BF16},
                   {"dp": 4, "zero": 3, "zero_group": 2, **BF16}),
    "fsdp2-recompute": ("fsdp2", SMALL, {"dp": 8, "zero": 3, "recompute": "full", "mbs": 4, **BF16},
                        {"dp": 2, "zero": 3, "recompute": "full", **BF16}),
    "torchtitan-zero3": ("torchtitan", LLAMA, {"dp": 8, "zero": 3, "mbs": 2, **BF16}, {"dp": 4, "zero": 3, **BF16}),
    "torchtitan-tp": ("torchtitan", LLAMA, {"dp": 4, "tp": 2, "zero": 3, "mbs": 2, **BF16, **SP},
                      {"dp": 2, "tp": 2, "zero": 3, **BF16, **SP}),
    "torchtitan-hsdp-recompute": ("torchtitan", LLAMA,
                                  {"dp": 32, "zero": 3, "zero_group": 8, "recompute": "full", "mbs": 4, **BF16},
                                  {"dp": 4, "zero": 3, "zero_group": 2, "recompute": "full", **BF16}),
    "torchtitan-tp8-selective": ("torchtitan", LLAMA,
                                 {"dp": 8, "tp": 8, "zero": 2, "recompute": "selective", "mbs": 8, **BF16, **SP},
                                 {"tp": 4, "recompute": "selective", **SP}),
}  # fmt: skip


def built(engine: str, model: dict[str, Any] | str, layout: dict[str, Any], *, microbatches: int = 1) -> tuple[Trial, Any]:
    gbs = microbatches * layout.get("dp", 1) * layout.get("mbs", 1)
    return trialfile.build({"engine": engine, "model": model, "topology": layout, "batch": {"gbs": gbs},
                            **({"environment": {"python": asked.python}} if asked.python else {})})


def counted(name: str, tensors: str) -> dict[str, Any]:
    """The bytes of one rank: what a GPU's allocator gave out, or what is counted without one."""
    engine, model, layout, _ = CASES[name]
    trial, recipe = built(engine, model, layout)
    adapter = theirs.adapter_of(trial)
    assert adapter is not None
    found = theirs.report(trial, recipe, RehearsalOptions(repeats=1), adapter, tensors)
    memory = theirs.memory(found, tensors, trial)
    return {"peak_bytes": memory.peak_bytes, "allocated_bytes": memory.allocated_bytes, "at_peak_bytes": memory.at_peak,
            "start_bytes": memory.start_bytes, "start_allocated_bytes": found["start"]["allocated_bytes"],
            "tracked_bytes": found["steps"][theirs.WATCHED - 1]["peak_bytes"], "attention": found["attention"],
            "torch": found["torch"]}


def collectives(report: dict[str, Any]) -> list[list[tuple[str, str, int]]]:
    """Of the start and each step, in their order: what, among whom, how much."""
    return [[(m["name"], m["group"], m["size_bytes"]) for m in step["moments"] if m["kind"] == "issue"]
            for step in (report["start"], *report["steps"][: theirs.WATCHED])]


def with_peers(name: str) -> tuple[int, bool, str]:
    """How many collectives the first and the last rank have, whether they say the same alone as among peers, and the layout."""
    engine, _, _, layout = CASES[name]
    trial, recipe = built(engine, "tiny-llama", layout, microbatches=2)
    adapter, world = theirs.adapter_of(trial), trial.topology.world
    assert adapter is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def one(rank: int) -> dict[str, Any]:
        return theirs.report(trial, recipe, RehearsalOptions(rank=rank, repeats=1), adapter, "cpu", peers=True, port=port)

    with ThreadPoolExecutor(world) as ranks:
        real = [collectives(report) for report in ranks.map(one, range(world))]
    real = [real[0], real[-1]]
    alone = [collectives(theirs.report(trial, recipe, RehearsalOptions(rank=rank), adapter, "fake")) for rank in (0, world - 1)]
    return sum(len(step) for rank in real for step in rank), real == alone, trial.topology.product


def main() -> None:
    names = [name for name in asked.only.split(",") if name] or list(CASES)
    names = [name for name in names if asked.python or homes.found(CASES[name][0], "torch" if name[0] == "f" else "torchtitan")]
    if asked.peers:
        for name in names:
            said, same, layout = with_peers(name)
            print(f"{name:28} {layout}, {said:,} collectives: {'the same, in order' if same else 'NOT THE SAME'}", flush=True)
        return
    tensors = "cuda" if asked.device == "cuda" else "fake"
    there = json.loads(Path(asked.against).read_text())["cases"] if Path(asked.against).exists() and tensors == "fake" else {}
    rows: dict[str, Any] = {}
    with ThreadPoolExecutor(asked.at_once) as pool:
        for name, row in zip(names, pool.map(lambda name: counted(name, tensors), names)):
            rows[name] = row
            real = there.get(name, row)["allocated_bytes"]
            off = f", allocated {real / GIB:7.3f} GiB: {row['peak_bytes'] / real - 1:+.2%}" if real else ""
            print(f"{name:28} counted {row['peak_bytes'] / GIB:7.3f} GiB{off} ({row['attention']})", flush=True)
    if tensors == "cuda":
        said = {"schema": 1, "device": torch.cuda.get_device_name(), "python": platform.python_version(), "cases": rows}
        Path(asked.out).write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", default="", help="names of cases, with commas")
    parser.add_argument("--against", default=str(RESULTS))
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--python", default="", help="that has the engines")
    parser.add_argument("-o", "--out", default="rehearse-engines.json")
    asked = parser.parse_args()
    main()
