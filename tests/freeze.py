"""Makes the samples under tests/data/frozen, and holds what the tests of them share.

    PYTHONPATH=src:tests python -m freeze ids forecasts losses files interface       all, or those named

The samples are what one version of seatrial wrote and said; `test_frozen_*.py` hold every later version to them. So they are
not made again when a test fails: only where a change of behaviour is wanted, and then the part that changed alone.
"""
from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parent / "data" / "frozen"


class Said(NamedTuple):
    status: int
    out: str
    err: str


def cli(*args: object) -> Said:
    """`seatrial ARGS` in this process."""
    from seatrial.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(arg) for arg in args])
    return Said(status, out.getvalue(), err.getvalue())


def document(*args: object) -> Any:
    """The JSON document that a command prints; status 1 is a finding, such as a layout that does not fit."""
    said = cli(*args)
    assert said.status in (0, 1), f"seatrial {' '.join(map(str, args))}: status {said.status}\n{said.err}"
    return json.loads(said.out)


def frozen(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def keep(name: str, value: Any) -> None:
    """One entry of the top tables a line, so that a difference can be read."""
    DATA.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {_entry(entry)}" for key, entry in value.items()]
    (DATA / name).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _entry(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in value) + "\n]"
    if isinstance(value, dict) and any(isinstance(item, dict | list) for item in value.values()):
        return "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()) + "\n}"
    return json.dumps(value, ensure_ascii=False)


def toml(path: Path, data: dict[str, Any]) -> Path:
    import tomli_w

    path.write_text(tomli_w.dumps(data), encoding="utf-8")
    return path


def cpu() -> dict[str, str]:
    """What the last bits of a sum may depend on."""
    import torch

    names = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "cpu family", "model", "stepping"):
                names.setdefault(key.strip(), value.strip())
    return {"cpu": " ".join(names.values()) or platform.processor(), "vector": torch.backends.cpu.get_cpu_capability(),
            "torch": torch.__version__}


# ---- run ids

TINY = {"layers": 2, "hidden": 32, "heads": 4, "vocab": 101, "seq": 16}
LLAMA = {**TINY, "family": "llama"}
SCHEDULES = ("gpipe", "1f1b", "zb-h1")
OWN_CLUSTER = {
    "name": "own", "nodes": 2, "procs_per_node": 2,
    "device": {"name": "gadget", "kind": "gpu", "peak_tflops": {"fp32": 20.0, "bf16": 300.0}, "memory_gib": 48,
               "memory_gb_s": 1500, "units": 90, "clock_ghz": 1.5, "power_w": 300.0},
    "intra": {"bandwidth_gb_s": 200, "latency_us": 4.0}, "inter": {"bandwidth_gb_s": 25, "latency_us": 8.0, "efficiency": 0.7},
}  # fmt: skip


def asked(model: Any = TINY, gbs: int = 8, **tables: Any) -> dict[str, Any]:
    """A trial as its TOML file holds it; what is no table's name is a field of the topology."""
    known = ("batch", "cluster", "environment", "command", "engine", "repeat")
    topology = {key: value for key, value in tables.items() if key not in known}
    rest = {key: value for key, value in tables.items() if key in known}
    model = {"base": model} if isinstance(model, str) else model
    return {"model": model, "batch": {"gbs": gbs, **rest.pop("batch", {})}, **({"topology": topology} if topology else {}), **rest}


def id_cases() -> list[dict[str, Any]]:
    ramp = {"rampup_start": 4, "rampup_increment": 4, "rampup_samples": 64}
    env = {"variables": {"LD_PRELOAD": "libtcmalloc_minimal.so.4", "OMP_NUM_THREADS": "2"}}
    presets = ("tiny", "tiny-bloom", "tiny-llama", "gpt2-124m", "gpt-1.3b", "gpt-30b", "bloom-176b", "bloom-181b", "llama3-8b",
               "llama3-70b")  # fmt: skip
    command = {"argv": ["python", "train.py", "--tp", "{tp}", "--out", "{run_dir}"]}
    return [
        *(asked(name) for name in presets),
        asked(), asked(LLAMA), asked({**TINY, "family": "bloom"}),
        asked({**LLAMA, "kv_heads": 2}), asked({**LLAMA, "kv_heads": 1, "ffn": 96}), asked({**LLAMA, "tied": True}),
        asked({**TINY, "tied": False}), asked({**TINY, "family": "bloom", "tied": False}), asked({**TINY, "ffn": 64}),
        asked({**TINY, "pad_vocab_to": 256}), asked({**LLAMA, "rope_theta": 500000.0, "norm_eps": 1e-6}),
        asked({**TINY, "name": "mine"}),
        asked(dp=2), asked(tp=2), asked(pp=2), asked(dp=2, tp=2, pp=2, mbs=2), asked(mbs=4),
        *(asked(dp=2, zero=stage) for stage in (1, 2, 3)),
        *(asked(recompute=how) for how in ("selective", "full")),
        *(asked(pp=2, schedule=kind) for kind in SCHEDULES if kind != "1f1b"),
        asked({**TINY, "layers": 4}, pp=2, vp=2, schedule="interleaved"),
        *(asked(precision=kind) for kind in ("bf16", "fp16")),
        asked(tp=2, sequence_parallel=True), asked({**TINY, "layers": 3}, pp=2, stage_layers=[2, 1]),
        asked(batch=ramp), asked("tiny-llama", batch=ramp, dp=2),
        asked("bloom-181b", 2048, cluster={"base": "jz-a100", "nodes": 48}, dp=8, tp=4, pp=12, mbs=2, zero=1, recompute="full",
              precision="bf16"),
        asked("llama3-8b", 256, cluster={"base": "h200", "nodes": 1, "procs_per_node": 8}, dp=8, zero=3, precision="bf16"),
        asked("gpt-1.3b", 64, cluster={"base": "fugaku", "nodes": 64, "procs_per_node": 1}, dp=16, tp=4),
        asked(cluster=OWN_CLUSTER, dp=4),
        asked(environment=env), asked(environment={"clock_ghz": 2.2, "torch": "2.1", "scheduler": {"freq": "2200"}}),
        asked(command=command, engine="command", dp=2), asked(command={**command, "per": "rank"}, engine="command", tp=2),
        asked(repeat=3), asked("tiny-llama", repeat=1, dp=2),
    ]  # fmt: skip


def run_ids(cases: list[dict[str, Any]], folder: Path, **training: Any) -> list[str]:
    """Of many trials at once: `sweep --dry-run` lists a trial's id as its key. The file's [training] is the same for all."""
    rows = [{"name": f"n{number}", **case} for number, case in enumerate(cases)]
    path = toml(folder / "ids.toml", {"order": "file", "axes": {"case": rows}, **({"training": training} if training else {})})
    listed = document("sweep", path, "--dry-run", "--json")["trials"]
    assert [row["case"] for row in listed] == [row["name"] for row in rows]
    assert not (wrong := [row for row in listed if "invalid" in row]), wrong
    return [row["key"] for row in listed]


def freeze_ids(folder: Path) -> None:
    cases = id_cases()
    keep("run_ids.json", {"trials": [{"run_id": key, "trial": case} for key, case in zip(run_ids(cases, folder), cases)]})
    print(len(cases), "run ids")


# ---- losses

FOUR = {**TINY, "layers": 4}
RATES = {"steps": 3, "lr": 1e-2, "min_lr": 1e-3, "bucket_mib": 0.05, "device": "cpu", "threads": 1, "warmup_iterations": 0}


def loss_cases() -> dict[str, dict[str, Any]]:
    """Label -> a run.json, without the folder it writes to."""
    four_llama = {**FOUR, "family": "llama", "kv_heads": 2, "ffn": 40}
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "gpt2": (asked(FOUR), {}),
        "bloom": (asked({**FOUR, "family": "bloom"}), {}),
        "llama": (asked({**FOUR, "family": "llama"}), {}),
        "llama gqa": (asked(four_llama), {}),
        "gpt2 untied": (asked({**FOUR, "tied": False}), {}),
        "llama tied bf16": (asked({**four_llama, "tied": True}, precision="bf16"), {}),
        "gpt2 recompute full": (asked(FOUR, mbs=2, recompute="full"), {}),
        "llama recompute selective bf16": (asked(four_llama, mbs=2, recompute="selective", precision="bf16"), {}),
        "gpt2 moments bf16": (asked(FOUR), {"moments": "bf16"}),
        "gpt2 adamw-plain": (asked(FOUR, mbs=4), {"optimizer": "adamw-plain", "weight_decay": 0.3, "clip": 0.5}),
        "gpt2 fp16": (asked(FOUR, precision="fp16"), {"loss_scale": 1024.0}),
        "gpt2 rampup logits_chunk": (asked(FOUR, batch={"rampup_start": 4, "rampup_increment": 4, "rampup_samples": 8}),
                                     {"logits_chunk": 8, "warmup_steps": 2}),
        "gpt2 dp2": (asked(FOUR, dp=2), {}),
        "bloom tp2": (asked({**FOUR, "family": "bloom"}, tp=2), {}),
        "llama tp2 sequence parallel": (asked(four_llama, tp=2, sequence_parallel=True), {}),
        "gpt2 pp2 gpipe": (asked(FOUR, pp=2, schedule="gpipe"), {}),
        "gpt2 pp2 1f1b untied": (asked({**FOUR, "tied": False}, pp=2, stage_layers=[3, 1]), {}),
        "llama pp2 interleaved": (asked(four_llama, pp=2, vp=2, schedule="interleaved"), {}),
        "gpt2 pp2 zb-h1": (asked(FOUR, pp=2, schedule="zb-h1"), {}),
        "gpt2 dp2 zero1 bf16": (asked(FOUR, dp=2, zero=1, precision="bf16"), {}),
        "bloom dp2 zero2": (asked({**FOUR, "family": "bloom"}, dp=2, zero=2), {"moments": "bf16"}),
        "llama dp2 zero3 recompute": (asked(four_llama, dp=2, zero=3, recompute="full"), {}),
        "gpt2 dp2 tp2 zero1 sequence parallel": (asked(FOUR, dp=2, tp=2, zero=1, sequence_parallel=True), {}),
        "llama tp2 pp2 bf16": (asked(four_llama, tp=2, pp=2, precision="bf16", recompute="selective"), {}),
        "gpt2 dp2 pp2 zero2 zb-h1": (asked(FOUR, dp=2, pp=2, zero=2, schedule="zb-h1"), {}),
        "gpt2 dp4 zero3": (asked(FOUR, dp=4, zero=3), {"optimizer": "adamw-plain"}),
    }  # fmt: skip
    return {label: {"trial": trial, "training": {**RATES, **more}, "schema": 1} for label, (trial, more) in cases.items()}


def train_all(runs: dict[str, dict[str, Any]], folder: Path) -> dict[str, dict[str, list[str]]]:
    """The series of each run.json, in full digits; one process group a world size."""
    from dist.looping import go
    from dist.many import in_world
    from seatrial.engine.runfile import read

    files = {}
    for number, (label, data) in enumerate(runs.items()):
        path = folder / f"run{number}" / "run.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({**data, "out": str(path.parent)}), encoding="utf-8")
        files[label] = read(path)
    for world in sorted({run.trial.topology.world for run in files.values()}):
        in_world(world, go, [run for run in files.values() if run.trial.topology.world == world])
    return {label: series(Path(run.out)) for label, run in files.items()}


def series(out: Path) -> dict[str, list[str]]:
    said = [json.loads(line) for line in (out / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [event for event in said if event["event"] == "iteration"]
    return {"losses": [float(row["loss"]).hex() for row in rows], "grad_norms": [float(row["grad_norm"]).hex() for row in rows]}


def freeze_losses(folder: Path) -> None:
    cases = loss_cases()
    found = train_all(cases, folder)
    keep("losses.json", {"on": cpu(), "runs": {label: {"run": run, **found[label]} for label, run in cases.items()}})
    print(len(cases), "series of losses")


# ---- forecasts

SHAPES = {
    "gpt2": {"layers": 24, "hidden": 2048, "heads": 16, "vocab": 50257, "seq": 2048},
    "bloom": {"layers": 70, "hidden": 14336, "heads": 112, "vocab": 250680, "seq": 2048, "family": "bloom"},
    "llama": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256, "seq": 4096,
              "family": "llama"},
}  # fmt: skip
CLOSED_FORMS = ("interleaved", "zb-h1")
"""Their seconds were an approximation when the samples were made; gpipe and 1f1b were exact."""
MACHINES = {"jz-a100": 8, "dgx-h100": 8, "h200": 8, "fugaku": 1}
"""Cluster -> processes a node."""
LAYOUTS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"dp": 8, "gbs": 64}),
    ("gpt2", {"dp": 8, "gbs": 64, "zero_stage": 1, "mbs": 2, "recompute": "selective"}),
    ("gpt2", {"dp": 8, "gbs": 64, "zero_stage": 2, "mbs": 4, "recompute": "full"}),
    ("gpt2", {"dp": 16, "gbs": 128, "zero_stage": 3, "mbs": 2}),
    ("gpt2", {"dp": 2, "tp": 4, "gbs": 64, "mbs": 2, "sequence_parallel": "yes"}),
    ("gpt2", {"dp": 2, "tp": 2, "pp": 4, "gbs": 64, "schedule": "gpipe"}),
    ("gpt2", {"dp": 2, "tp": 2, "pp": 4, "gbs": 64, "schedule": "1f1b", "dtype": "fp16"}),
    ("gpt2", {"dp": 2, "tp": 2, "pp": 4, "vp": 3, "gbs": 64, "schedule": "interleaved", "recompute": "full"}),
    ("gpt2", {"dp": 2, "tp": 2, "pp": 4, "gbs": 16, "schedule": "zb-h1", "engine": "seatrial"}),
    ("gpt2", {"dp": 4, "tp": 2, "gbs": 32, "dtype": "fp32"}),
    ("bloom", {"dp": 8, "tp": 4, "pp": 12, "gbs": 2048, "mbs": 2, "zero_stage": 1, "recompute": "full"}),
    ("bloom", {"dp": 4, "tp": 8, "pp": 12, "gbs": 512, "zero_stage": 1, "recompute": "selective", "sequence_parallel": "yes"}),
    ("llama", {"dp": 8, "tp": 2, "gbs": 128, "zero_stage": 1, "recompute": "selective", "sequence_parallel": "yes"}),
    ("llama", {"dp": 16, "gbs": 64, "zero_stage": 3, "recompute": "full"}),
    ("llama", {"dp": 2, "tp": 4, "pp": 4, "vp": 2, "gbs": 64, "schedule": "interleaved", "zero_stage": 1}),
]
ROWS = ("family", "layers", "hidden", "heads", "kv_heads", "ffn", "seq", "vocab", "nodes", "dp", "tp", "pp", "vp", "mbs", "gbs",
        "zero_stage", "recompute", "schedule", "dtype", "sequence_parallel", "engine")  # fmt: skip
EXPLAINED = ("sec_per_it", "sec_lo", "sec_hi", "mem_gib", "mem_limit_gib", "fits", "parts_s", "memory_gib", "precision")
FORECAST = ("forecast_sec", "forecast_sec_lo", "forecast_sec_hi", "forecast_tflops", "forecast_mem_gib", "forecast_mem_lo",
            "forecast_mem_hi", "forecast_fits", "forecast_reject")  # fmt: skip
PLANS = [
    ["--model", "bloom-181b", "--cluster", "jz-a100", "--nodes", "48", "--gbs", "2048", "--zero", "1", "--recompute", "full"],
    ["--model", "llama3-8b", "--cluster", "h200", "--nodes", "2", "--gbs", "128", "--sequence-parallel", "both"],
    ["--model", "gpt-1.3b", "--cluster", "fugaku", "--nodes", "64", "--gbs", "512", "--mbs", "1,2", "--by", "memory"],
]


def forecast_cases() -> list[dict[str, Any]]:
    cases = []
    for cluster, procs in MACHINES.items():
        for shape, layout in LAYOUTS:
            layout = {key: value for key, value in layout.items() if (cluster, key) != ("fugaku", "dtype")}
            world = layout["dp"] * layout.get("tp", 1) * layout.get("pp", 1)
            row = {"family": shape, **SHAPES[shape], "nodes": world // procs, "schedule": "1f1b", **layout}
            cases.append({"cluster": cluster, "closed_form": row["schedule"] in CLOSED_FORMS, "row": row})
    return cases


def explained(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One layout as `explain --json` has it, with all digits."""
    row = case["row"]
    names = {"zero_stage": "zero", "dtype": "precision"}
    known = ("dp", "tp", "pp", "vp", "mbs", "zero_stage", "recompute", "schedule", "dtype")
    topology = {names.get(key, key): row[key] for key in known if key in row} | {"sequence_parallel": "sequence_parallel" in row}
    cluster = {"base": case["cluster"], "nodes": row["nodes"], "procs_per_node": MACHINES[case["cluster"]]}
    path = toml(folder / "trial.toml", {"model": SHAPES[row["family"]], "topology": topology, "batch": {"gbs": row["gbs"]},
                                        "cluster": cluster, "engine": row.get("engine", "megatron")})  # fmt: skip
    found = document("explain", path, "--precision", row.get("dtype", "fp32" if case["cluster"] == "fugaku" else "bf16"), "--json")
    return {key: found[key] for key in EXPLAINED}


def forecasts(cases: list[dict[str, Any]], folder: Path) -> list[dict[str, str]]:
    """All rows of each cluster as one table, as `forecast ROWS.csv -o OUT.csv` writes them."""
    found: dict[int, dict[str, str]] = {}
    for cluster in dict.fromkeys(case["cluster"] for case in cases):
        mine = [number for number, case in enumerate(cases) if case["cluster"] == cluster]
        table, out = folder / f"{cluster}.csv", folder / f"{cluster}-out.csv"
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ROWS)
            writer.writeheader()
            writer.writerows(cases[number]["row"] for number in mine)
        said = cli("forecast", table, "--cluster", cluster, "-o", out)
        assert said.status == 0, said.err
        with out.open(newline="", encoding="utf-8") as file:
            found.update(zip(mine, ({key: line[key] for key in FORECAST} for line in csv.DictReader(file))))
    return [found[number] for number in range(len(cases))]


def planned(args: list[str]) -> dict[str, Any]:
    found = document("plan", *args, "--schedule", "1f1b", "--top", 5, "--json")
    return {key: found[key] for key in ("considered", "rejected", "accepted", "candidates", "ties", "runner_up")}


def freeze_forecasts(folder: Path) -> None:
    cases = forecast_cases()
    rows = [{**case, "explain": explained(case, folder), "forecast": line} for case, line in zip(cases, forecasts(cases, folder))]
    plans = [{"args": args, "plan": planned(args)} for args in PLANS]
    assert not (wrong := [row for row in rows if row["forecast"]["forecast_reject"]]), wrong
    keep("forecasts.json", {"layouts": rows, "plans": plans})
    print(len(rows), "forecasts and", len(plans), "plans")
