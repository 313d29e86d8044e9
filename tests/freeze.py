"""Makes the samples under tests/data/frozen, and holds what the tests of them share.

    PYTHONPATH=src:tests python -m freeze               all of them, minutes
    PYTHONPATH=src:tests python -m freeze ids losses    those named: ids, forecasts, losses, files, checkpoint, interface

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

from books import bare

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
    if topology:
        rest["topology"] = topology
    batch = {"gbs": gbs, **rest.pop("batch", {})}
    return {"model": {"base": model} if isinstance(model, str) else model, "batch": batch, **rest}


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


def run_ids(cases: list[dict[str, Any]], folder: Path, **recipe: Any) -> list[str]:
    """Of many trials at once: `sweep --dry-run` lists a trial's id as its key. The file's [training] is the same for all."""
    rows = [{"name": f"n{number}", **case} for number, case in enumerate(cases)]
    path = toml(folder / "ids.toml", {"order": "file", "axes": {"case": rows}, **({"training": recipe} if recipe else {})})
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
"""Cluster -> processes per node."""
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
EXPLAINED = ("sec_per_it", "sec_lo", "sec_hi", "mem_gib", "mem_limit_gib", "fits", "fit_odds", "engine", "attention",
             "parts_s", "memory_gib", "precision")  # fmt: skip
FORECAST = ("forecast_sec", "forecast_sec_lo", "forecast_sec_hi", "forecast_tflops", "forecast_mem_gib", "forecast_mem_lo",
            "forecast_mem_hi", "forecast_fits", "forecast_fit_odds", "forecast_engine", "forecast_reject")  # fmt: skip
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
    topology = {names.get(key, key): row[key] for key in known if key in row}
    topology["sequence_parallel"] = "sequence_parallel" in row
    cluster = {"base": case["cluster"], "nodes": row["nodes"], "procs_per_node": MACHINES[case["cluster"]]}
    path = toml(folder / "trial.toml", {"model": SHAPES[row["family"]], "topology": topology, "batch": {"gbs": row["gbs"]},
                                        "cluster": cluster, "engine": row.get("engine", "megatron")})  # fmt: skip
    usual = "fp32" if case["cluster"] == "fugaku" else "bf16"
    found = document("explain", path, "--precision", row.get("dtype", usual), "--json")
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
    lines = forecasts(cases, folder)
    rows = [{**case, "explain": explained(case, folder), "forecast": line} for case, line in zip(cases, lines)]
    plans = [{"args": args, "plan": planned(args)} for args in PLANS]
    assert not (wrong := [row for row in rows if row["forecast"]["forecast_reject"]]), wrong
    keep("forecasts.json", {"layouts": rows, "plans": plans})
    print(len(rows), "forecasts and", len(plans), "plans")


# ---- files

NOTES = """# Medium model

- layers: 24
- hidden: 2048
- heads: 16

| Nodes | Size | DP | TP | PP | MBS | GBS | Mem | Sec/it | TFLOPs | Notes |
| ----: | ---: | -: | -: | -: | --: | --: | --: | -----: | -----: | ----: |
| 4 | 1.3B | 8 | 4 | 1 | 2 | 512 | 21GB | 4.61 | 101.20 | 02-11 |
| 4 | 1.3B | 4 | 4 | 2 | 2 | 512 | 17GB | 4.87 | 95.80 | 02-11 |
| 8 | 1.3B | 16 | 4 | 1 | 8 | 512 | OOM | - | - | 02-12 |
| 8 | 1.3B | 32 | 2 | 1 | 2 | 512 | hangs | - | - | 02-12 |
| 16 | 1.3B | 32 | 4 | 1 | 2 | 512 | - | - | - | - |
"""
COLLECTION = """source_file,line_no,section,machine,nodes,gpus,procs_per_node,layers,hidden,heads,seq,vocab,dp,tp,pp,mbs,gbs,\
zero_stage,activation_ckpt,dtype,mem_value,mem_unit,sec_per_it,tflops,formula,status,env,freq_ghz,flags,notes
notes.md,12,first,v100,4,16,4,24,2048,16,2048,50257,8,2,1,4,512,1,true,fp16,18.2,GB,6.02,70.4,old,ok,,,,first try
notes.md,13,first,v100,4,16,4,24,2048,16,2048,50257,4,2,2,4,512,1,false,fp16,,,,,,oom,,,^,
notes.md,14,first,v100,8,32,4,24,2048,16,2048,50257,16,2,1,4,512,0,true,fp16,,,,,,not_run,,,,
notes.md,20,second,cpu,16,16,1,24,1024,16,1024,50257,16,1,1,1,512,0,false,fp32,9152.9,MiB,63.0,1.22,new,measured,\
"2.4GHz, LD_PRELOAD=libtcmalloc.so",2.4,,slow
notes.md,21,second,cpu,32,32,1,24,1024,16,1024,50257,32,1,1,1,512,0,false,fp32,,,,,,hang,,2.4,,
"""
TRIAL_TOML = """# every table, and words of [training] that change how it runs
engine = "seatrial"
repeat = 1
[model]
base = "own"
layers = 2
[models.own]
layers = 4
hidden = 32
heads = 4
kv_heads = 2
vocab = 101
seq = 16
family = "llama"
[topology]
dp = 2
mbs = 2
zero = 1
recompute = "selective"
precision = "bf16"
[batch]
gbs = 8
rampup_start = 4
rampup_increment = 4
rampup_samples = 16
[cluster]
base = "jz-a100"
nodes = 1
procs_per_node = 2
[environment]
variables = { OMP_NUM_THREADS = "1" }
[training]
steps = 2
compile = true
bucket_mib = 0.5
moments = "bf16"
optimizer = "adamw-plain"
logits_chunk = 16
threads = 1
device = "cpu"
lr = 1e-3
min_lr = 1e-4
trace_steps = [2]
seed = 7
"""
SWEEP_TOML = """name = "frozen-sweep"
model = "tiny"
batch = { gbs = 8 }
rules = ["dp * tp == 2", "microbatches >= 2"]
repeats = 2
order = "interleaved"
budget_s = 900
notes = "nothing of note"
[axes]
dp = [1, 2]
tp = [1, 2]
"training.moments" = ["fp32", "bf16"]
environment = [{ name = "plain" }, { name = "one", variables = { OMP_NUM_THREADS = "1" } }]
[training]
steps = 3
compile = true
bucket_mib = 8.0
optimizer = "adamw-plain"
[measure]
warmup = 2
known_to = 0.02
iterations_max = 20
seconds = 60.0
microbatches = 2
[stop]
factor = 1.5
by = "samples_per_s"
forecast = true
[limits]
time_s = 120.0
memory_gib = 2.0
cores = 0.5
side_by_side = 2
retry_blocking = true
"""
SPELLED = {"base": "tiny", "layers": 2}
OUTCOMES = {
    "model": SPELLED, "batch": {"gbs": 4}, "training": {"steps": 3, "stall_s": 6.0}, "measure": {"known_to": 0},
    "limits": {"time_s": 150.0, "memory_gib": 1.0}, "name": "outcomes",
    "axes": {"case": [
        {"name": "good", "topology": {"dp": 2}},
        {"name": "llama", "model": {"base": "tiny-llama"}, "topology": {"tp": 2}},
        {"name": "over the cap", "model": {"hidden": 512, "layers": 20}, "topology": {"pp": 2, "stage_layers": [19, 1]}},
        {"name": "stopped", "topology": {"dp": 2}, "environment": {"variables": {"SEATRIAL_FAULT": "stop:1:2"}}},
        {"name": "raises", "topology": {"dp": 2}, "environment": {"variables": {"SEATRIAL_FAULT": "raise:1:2"}}},
        {"name": "nan", "topology": {"dp": 2}, "environment": {"variables": {"SEATRIAL_FAULT": "nan:1:2"}}},
        {"name": "impossible", "topology": {"dp": 3}},
    ]},
}  # fmt: skip
RUNS = {
    "gpt2": {"model": {"base": "tiny", "layers": 2}, "topology": {"dp": 2}, "batch": {"gbs": 4}, "training": {"steps": 3}},
    "llama": {"model": {"base": "tiny-llama", "layers": 2}, "batch": {"gbs": 4}, "training": {"steps": 3}},
}
STEPS, STOP = 6, 3
LEARNING = {"steps": STEPS, "decay_steps": STEPS, "lr": 1e-2, "min_lr": 1e-3, "warmup_iterations": 0, "device": "cpu",
            "threads": 1}  # fmt: skip
TO_SAVE = {"model": {"layers": 1, "hidden": 16, "heads": 2, "vocab": 64, "seq": 16}, "batch": {"gbs": 8}}
READERS = {"dp2": {"dp": 2, "zero": 1}, "dp1": {}, "tp2": {"tp": 2}}
EXPORTS = {"table.csv": ["--format", "csv"], "table.json": ["--format", "json"], "wide.md": ["--wide"], "short.md": []}
READ_BACK = ("tables/table.csv", "tables/table.json", "tables/wide.md", "tables/short.md", "collection.csv", "notes.md")


def own_process(*args: object, cwd: Path) -> str:
    """A command that runs trials, in a process of its own and with nothing of this machine's settings."""
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "PYTHONPATH", "HOME", "TMPDIR")}
    done = subprocess.run([sys.executable, "-m", "seatrial", *map(str, args)], cwd=cwd, env={**kept, "OMP_NUM_THREADS": "1"},
                          capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def records_in(path: Path) -> list[dict[str, Any]]:
    """What `seatrial table` reads of a file or logbook; a cell that cannot be read is status 1."""
    found: list[dict[str, Any]] = document("table", path, "--format", "json")["records"]
    return found


def runs_on_files(folder: Path) -> dict[str, dict[str, Any]]:
    """The frozen checkpoint gone on from in each reader's layout, and the run.json of each run folder once more."""
    runs = {f"run {name}": json.loads((DATA / "runs" / name / "run.json").read_text(encoding="utf-8")) for name in RUNS}
    for reader, layout in READERS.items():
        shutil.copytree(DATA / "checkpoint", folder / reader)
        recipe = {**LEARNING, "resume": True, "checkpoint_dir": str(folder / reader)}
        runs[f"resume {reader}"] = {"trial": {**TO_SAVE, "topology": layout}, "training": recipe, "schema": 1}
    return runs


def freeze_files(folder: Path) -> None:
    work = Path("/tmp/trials")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for part in ("logbook", "tables", "runs"):
        shutil.rmtree(DATA / part, ignore_errors=True)
    texts = {"notes.md": NOTES, "collection.csv": COLLECTION, "trial.toml": TRIAL_TOML, "sweep.toml": SWEEP_TOML}
    for name, text in texts.items():
        (DATA / name).write_text(text, encoding="utf-8")
    toml(DATA / "outcomes.toml", OUTCOMES)
    own_process("sweep", DATA / "outcomes.toml", "--logbook", "book", cwd=work)
    own_process("import", DATA / "notes.md", DATA / "collection.csv", "--logbook", "book", cwd=work)
    (DATA / "logbook" / "segments").mkdir(parents=True)
    for number, path in enumerate(sorted((work / "book" / "segments").glob("*.jsonl"))):
        copy_public(path, DATA / "logbook" / "segments" / f"host-{number + 1}-20250101T00000{number}-0000000{number}.jsonl")
    (DATA / "tables").mkdir()
    for name, options in EXPORTS.items():
        (DATA / "tables" / name).write_text(cli("table", DATA / "logbook", *options).out, encoding="utf-8")
    for name, trial in RUNS.items():
        own_process("run", toml(work / f"{name}.toml", trial), "--out", name, "--json", cwd=work)
        (DATA / "runs" / name).mkdir(parents=True)
        for file in ("run.json", "events.jsonl", "record.json"):
            copy_public(work / name / file, DATA / "runs" / name / file)
    own_process("probe", "--quick", "--device", "cpu", "--ranks", "2", "-o", "machine.json", cwd=work)
    copy_public(work / "machine.json", DATA / "machine.json")
    keep_readings()


def keep_readings() -> None:
    """What is read of the files above."""
    keep("records.json", {name: records_in(DATA / name) for name in READ_BACK})
    keep("files.json", {"trial.toml": words_of(DATA / "trial.toml"), "sweep.toml": listed(DATA / "sweep.toml"),
                        "machine.json": with_machine(DATA / "machine.json")})
    print("files", {name: len(found) for name, found in frozen("records.json").items()})


def words_of(path: Path) -> dict[str, Any]:
    """A trial's file as it is understood: the values given, by path."""
    from seatrial import fields, trialfile

    trial, recipe = trialfile.load(path)
    return flat({**fields.plain(trial), "training": fields.plain(recipe)})


def flat(data: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(data, dict):
        return {path: data}
    inside = [flat(inner, f"{path}.{key}" if path else key) for key, inner in data.items()]
    return {place: value for values in inside for place, value in values.items()}


def listed(path: Path) -> dict[str, Any]:
    """A sweep's trials without their keys, which say how they run as well."""
    found = document("sweep", path, "--dry-run", "--json")
    return {"left_out": found["left_out"], "trials": [{k: v for k, v in row.items() if k != "key"} for row in found["trials"]]}


def with_machine(path: Path) -> dict[str, Any]:
    """A plan that rests on a probed machine."""
    found = document("plan", "--model", "tiny", "--machine", path, "--gbs", 16, "--schedule", "1f1b", "--top", 3, "--json")
    return {"candidates": found["candidates"], "not_measured": found["machine"]["not_measured"]}


def freeze_checkpoint(folder: Path) -> None:
    shutil.rmtree(DATA / "checkpoint", ignore_errors=True)
    whole = {"trial": {**TO_SAVE, "topology": READERS["dp2"]}, "training": LEARNING, "schema": 1}
    first = {**whole, "training": {**LEARNING, "steps": STOP, "checkpoint_dir": str(DATA / "checkpoint")}}
    made = train_all({"whole": whole, "first": first}, folder / "made")
    keep("resumed.json", {"on": cpu(), "whole": made["whole"], "runs": train_all(runs_on_files(folder), folder / "again")})


def copy_public(source: Path, to: Path) -> None:
    """Without the name of the machine and the folders that it was made in."""
    text = source.read_text(encoding="utf-8").replace(socket.gethostname(), "host")
    for here, there in ((Path(__file__).parents[1], "/opt/seatrial"), (Path(sys.prefix), "/opt/venv")):
        text = text.replace(str(here), there)
    git = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=Path(__file__).parent, check=True,
                         capture_output=True, text=True).stdout.strip()  # fmt: skip
    # A line of which a word was changed has no checksum any more.
    to.write_bytes(bare(text.replace(git, "663c9c1").encode()))


PARTS = {"ids": freeze_ids, "forecasts": freeze_forecasts, "losses": freeze_losses, "files": freeze_files,
         "checkpoint": freeze_checkpoint}  # fmt: skip


def main(wanted: Iterable[str]) -> None:
    import tempfile

    import freeze_interface

    for part in wanted or (*PARTS, "interface"):
        folder = Path(tempfile.mkdtemp(prefix=f"freeze-{part}-"))
        freeze_interface.freeze_interface(keep, folder) if part == "interface" else PARTS[part](folder)


if __name__ == "__main__":
    main(sys.argv[1:])
