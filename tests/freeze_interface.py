"""What people and programs reach seatrial by: options, keys of JSON documents, headings, `--set` paths, axes, rules, statuses.

    PYTHONPATH=src:tests python -m freeze interface

Each function asks the code that is there; `freeze_interface` keeps the answers, and `test_frozen_interface.py` compares.
"""
from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from freeze import DATA, FORECAST, asked, cli, document, run_ids, toml

NOTES = DATA.parent / "notes"
SESSIONS = """session,nodes,procs_per_node,layers,hidden,heads,dp,tp,pp,mbs,gbs,sec_per_it
monday,1,8,24,2048,16,8,1,1,1,64,1.50
monday,1,8,24,2048,16,8,1,1,1,64,1.52
monday,1,8,24,2048,16,4,2,1,1,64,1.72
tuesday,1,8,24,2048,16,8,1,1,1,64,1.40
tuesday,1,8,24,2048,16,8,1,1,1,64,1.41
tuesday,1,8,24,2048,16,4,2,1,1,64,1.66
"""
MEASURED = """layers,hidden,dp,tp,pp,mbs,gbs,sec_per_it
24,2048,8,1,1,1,64,1.7
24,2048,4,2,1,1,64,1.9
24,2048,2,4,1,2,64,2.0
24,2048,3,4,1,2,64,
"""
TINY_TRAIN = {"model": {"base": "tiny", "layers": 1, "vocab": 300}, "batch": {"gbs": 2},
              "training": {"steps": 2, "eval_every": 1, "eval_batches": 1, "save_every": 1, "device": "cpu",
                           "threads": 1}}  # fmt: skip
ALSO_SPELLED = ["#GPUs", "Memory (GB)", "Peak mem [MiB]", "TFLOP/s/GPU", "TFLOPs (sc21, per process)", "Throughput (tokens/s)",
                "Step time (ms)", "Est. Aggr. PetaFLOPs", "DP/TP/PP", "micro-batch_size", "TP x PP", "Freq (MHz)", "MFU (%)",
                "zero_stage", "activation_ckpt", "dtype", "sec_per_it", "mem_value"]  # fmt: skip
ROW = {"layers": 24, "hidden": 2048, "heads": 16, "seq": 2048, "vocab": 50257, "nodes": 1, "dp": 4, "tp": 2, "pp": 1, "gbs": 64}
ROW_CELLS: list[dict[str, Any]] = [
    {}, {"zero_stage": 1}, {"zero": 1}, {"recompute": "full"}, {"activation_ckpt": "true"}, {"activation_ckpt": "selective"},
    {"dtype": "float16"}, {"precision": "fp16"}, {"dtype": "fp32"}, {"sequence_parallel": "on"}, {"kv_heads": 4},
    {"family": "bloom"}, {"glu": "yes"}, {"ffn": 4096}, {"flash": "yes"}, {"freq_ghz": 1.1}, {"mbs": 2}, {"dp_fixed": 2},
    {"procs_per_node": 4, "nodes": 2}, {"dp": "", "nodes": 2}, {"gbs": "unstated"}, {"engine": "deepspeed"},
    {"engine": "seatrial"}, {"session": "a"}, {"env": "LD_PRELOAD=libtcmalloc.so"}, {"torch_version": "2.1"},
    {"status": "oom"}, {"heads": ""}, {"pp": 2, "dp": 2, "schedule": "gpipe"}, {"tp": 3},
]  # fmt: skip
"""Cells put over ROW, one row each: names that `forecast` understands."""

SET: dict[str, Any] = {
    "model.layers": 4, "model.hidden": 64, "model.heads": 8, "model.vocab": 203, "model.seq": 32, "model.family": "llama",
    "model.kv_heads": 4, "model.ffn": 96, "model.tied": True, "model.pad_vocab_to": 512, "model.rope_theta": 5e5,
    "model.norm_eps": 1e-6, "model.name": "mine",
    "topology.dp": 2, "topology.tp": 2, "topology.pp": 2, "topology.vp": 2, "topology.mbs": 2, "topology.zero": 1,
    "topology.recompute": "full", "topology.schedule": "interleaved", "topology.precision": "bf16",
    "topology.sequence_parallel": True, "topology.stage_layers": [1, 1, 1, 1],
    "batch.gbs": 16, "batch.rampup_start": 8, "batch.rampup_increment": 8, "batch.rampup_samples": 64,
    "cluster.name": "own", "cluster.nodes": 1, "cluster.procs_per_node": 8, "cluster.nodes_per_switch": 4,
    "cluster.memory_convention": "node", "cluster.blocking_launch": True, "cluster.host_memory_gib": 500.0,
    "cluster.price_per_device_hour": 2.5, "cluster.notes": "none",
    "cluster.device.name": "gadget", "cluster.device.kind": "gpu", "cluster.device.peak_tflops": {"fp32": 20.0, "bf16": 300.0},
    "cluster.device.memory_gib": 48.0, "cluster.device.memory_gb_s": 1500.0, "cluster.device.usable_gib": 46.0,
    "cluster.device.context_gib": 1.0, "cluster.device.units": 90, "cluster.device.clock_ghz": 1.5,
    "cluster.device.launch_us": 4.0, "cluster.device.matmul_efficiency": 0.8, "cluster.device.fused_attention": True,
    "cluster.device.power_w": 300.0, "cluster.device.source": "sheet",
    **{f"cluster.{link}.{name}": value for link in ("intra", "inter") for name, value in (
        ("bandwidth_gb_s", 100.0), ("latency_us", 5.0), ("efficiency", 0.7), ("flow_gb_s", 20.0), ("name", "wire"),
        ("source", "sheet"))},
    "environment.variables.OMP_NUM_THREADS": "2", "environment.python": "/usr/bin/python3",
    "environment.scheduler.freq": "2200", "environment.clock_ghz": 2.2, "environment.torch": "2.1",
    "command.argv": ["train", "{tp}"], "command.per": "rank", "engine": "command", "repeat": 2,
}  # fmt: skip
"""Path -> a value; together they are one trial that works."""
RECIPE: dict[str, Any] = {
    "steps": 3, "seed": 7, "optimizer": "adamw-plain", "moments": "bf16", "lr": 1e-3, "min_lr": 1e-4, "warmup_steps": 1,
    "decay_steps": 9, "weight_decay": 0.2, "beta1": 0.8, "beta2": 0.9, "eps": 1e-7, "clip": 0.5, "init_std": 0.01,
    "loss_scale": 256.0, "loss_scale_window": 10, "data": "corpus", "valid_data": "valid", "eval_every": 2, "eval_batches": 3,
    "checkpoint_dir": "saved", "save_every": 2, "keep": 2, "resume": True, "async_save": False, "device": "cpu",
    "compile": True, "bucket_mib": 4.0, "logits_chunk": 64, "threads": 1, "warmup_iterations": 2, "known_to": 0.02,
    "measure_s": 30.0, "slow_s": 5.0, "log_every": 2,
    "trace_steps": [2], "tensorboard": True, "stall_s": 60.0, "check_order": True,
}  # fmt: skip
STATUSES = ("ok", "oom_device", "oom_host", "hang", "crash", "nan", "timeout", "invalid", "cancelled")
STATES = ("measured", "estimated", "planned", "failed")
RULES = ("dp", "tp", "pp", "vp", "mbs", "gbs", "zero", "nodes", "world", "microbatches", "layers", "hidden", "heads", "seq",
         "vocab", "sequence_parallel")  # fmt: skip
RULES_OF = {"plan": (*RULES, "stages", "kv_heads", "ffn"), "sweep": (*RULES, "procs_per_node")}


def options() -> dict[str, list[str]]:
    """Command -> every option that it takes, hidden or not."""
    import typer

    from seatrial.cli import build_app

    commands = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
    return {name: sorted({word for one in command.params for word in (*one.opts, *one.secondary_opts) if word.startswith("-")})
            for name, command in sorted(commands.items())}


def heading(text: str) -> dict[str, Any]:
    """What a heading of anybody's table, or a KEY=VALUE of the text around it, stands for."""
    from seatrial.tables.headings import read_heading, setting

    found, stated = read_heading(text), setting(text)
    values = {name: getattr(found, name) for name in ("field", "unit", "per", "formula")}
    values |= {"parts": list(found.parts), "stated": stated and stated.field}
    return {key: value for key, value in values.items() if value}


def headings() -> list[dict[str, Any]]:
    """Those with one meaning together."""
    found: dict[str, list[str]] = {}
    for text in dict.fromkeys(known_headings()):
        found.setdefault(json.dumps(heading(text)), []).append(text)
    return [{"means": json.loads(means), "headings": texts} for means, texts in found.items()]


def known_headings() -> list[str]:
    """Of today's tables of names; asked once, when the sample is made."""
    from seatrial.tables import codec as exact
    from seatrial.tables import headings as columns

    return [*columns._BY_NAME, *exact.HEADINGS.values(), *ALSO_SPELLED]


def own_headings() -> dict[str, str]:
    """Of our own tables: heading -> field."""
    from seatrial.tables import codec as exact

    return dict(exact.FIELD_OF)


def paths(value: Any, path: str = "") -> set[str]:
    """The key paths of a document; a list is one step whatever its length."""
    if isinstance(value, dict):
        return {path, *(found for key, inner in value.items() for found in paths(inner, f"{path}.{key}"))} - {""}
    if isinstance(value, list):
        return {f"{path}[]", *(found for inner in value for found in paths(inner, f"{path}[]"))}
    return {path}


def documents(folder: Path) -> dict[str, list[str]]:
    """Command line -> the key paths of what it prints with --json, of the commands that are quick."""
    (folder / "sessions.csv").write_text(SESSIONS, encoding="utf-8")
    (folder / "rows.csv").write_text(MEASURED, encoding="utf-8")
    (folder / "text.txt").write_text("a text\nof two lines\n", encoding="utf-8")
    shutil.copytree(DATA / "logbook", folder / "logbook")
    base = ["--model", "gpt-1.3b", "--cluster", "jz-a100", "--nodes", "1", "--gbs", "64"]
    layout = [*base, "--dp", "2", "--tp", "2", "--pp", "2"]
    lines = [
        ["presets", "--json"],
        ["plan", *base, "--schedule", "1f1b", "--tokens", "3e9", "--price", "2", "--top", "2", "--json"],
        ["plan", *base, "--emit", "megatron", "--rampup", "32,32,1000", "--json"],
        ["plan", *base, "--rule", "dp > 100", "--json"],
        ["plan", *base, "--calibrate", "rows.csv", "--by", "memory", "--json"],
        ["plan", "--cluster", "jz-a100", "--nodes", "1", "--size", "1.3B", "--gbs", "64", "--tp", "2", "--json"],
        ["plan", "--model", "tiny", "--machine", str(DATA / "machine.json"), "--gbs", "8", "--json"],
        ["explain", *layout, "--json"],
        ["explain", *layout, "--set", "model.layers=26", "--set", "cluster.device.power_w=500", "--calibrate", "rows.csv",
         "--json"],
        ["forecast", "rows.csv", "--json"],
        ["forecast", "rows.csv", "--calibrate", "rows.csv", "--json"],
        ["forecast", "--defaults", "--json"],
        ["calibrate", "rows.csv", "--json"],
        ["shape", "--model", "gpt-1.3b", "--cluster", "jz-a100", "--tp", "2", "--json"],
        ["lint", str(NOTES / "cpu.md"), "--json"],
        ["table", "logbook", "--format", "json"],
        ["import", "sessions.csv", "--logbook", "book", "--json"],
        ["compare", "--logbook", "book", "--a", "session=monday", "--b", "session=tuesday", "--json"],
        ["sweep", str(DATA / "sweep.toml"), "--dry-run", "--json"],
        ["sweep", str(DATA / "outcomes.toml"), "--logbook", "logbook", "--resume", "--json"],
        ["report", "logbook", "--json"],
        ["replay", "bloom-prequel", "--json"],
        ["tune", "--cluster", "jz-a100", "--oracle", "rows.csv", "--json"],
        ["data", "text.txt", "--out", "corpus", "--json"],
        ["rehearse", "--model", "tiny", "--gbs", "8", "--dp", "2", "--memory-only", "--json"],
        ["run", "--model", "tiny", "--gbs", "8", "--dp", "3", "--json"],
    ]  # fmt: skip
    before = Path.cwd()
    os.chdir(folder)
    try:
        return {shown(line): sorted(paths(_said(line))) for line in lines}
    finally:
        os.chdir(before)


def shown(line: list[str]) -> str:
    return " ".join(Path(word).name if word.startswith("/") else word for word in line)


def _said(line: list[str]) -> Any:
    said = cli(*line)
    assert said.out.startswith(("{", "[")), f"{shown(line)}: status {said.status}\n{said.err}"
    return json.loads(said.out)


def trained(folder: Path) -> dict[str, list[str]]:
    """Key paths of a real run's document and events, of one that ends well and one that fails."""
    found: dict[str, list[str]] = {}
    (folder / "valid.txt").write_text("a text of some length " * 50, encoding="utf-8")
    assert cli("data", folder / "valid.txt", "--out", folder / "valid").status == 0
    data = TINY_TRAIN | {"training": {**TINY_TRAIN["training"], "valid_data": str(folder / "valid")}}
    for name, more in (("train", []), ("fails", ["--set", "environment.variables.SEATRIAL_FAULT=raise:0:2"])):
        path = toml(folder / f"{name}.toml", data)
        argv = [sys.executable, "-m", "seatrial", "train", str(path), "--out", str(folder / name), *more, "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode in (0, 3), done.stderr
        found[f"{name} --json"] = sorted(paths(json.loads(done.stdout)))
        for line in (folder / name / "events.jsonl").read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            key = f"{name}: event {event['event']}"
            event.pop("training", None)  # what is asked, and no part of what is said
            found[key] = sorted({*found.get(key, []), *paths(event)})
    return found


def forecast_cells(folder: Path) -> list[dict[str, str]]:
    """A forecast of each of ROW_CELLS; a column that is another row's is empty, which is as if it were not there."""
    path, out = folder / "cells.csv", folder / "cells-out.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for cells in (ROW, *ROW_CELLS) for name in cells)))
        writer.writeheader()
        writer.writerows({**ROW, **cells} for cells in ROW_CELLS)
    assert cli("forecast", path, "--cluster", "jz-a100", "-o", out).status == 0
    with out.open(newline="", encoding="utf-8") as file:
        return [{key: line[key] for key in FORECAST} for line in csv.DictReader(file)]


def everything_set() -> list[str]:
    """All settings as words of a command line; a sweep counts its repeats itself."""
    values = {path: value for path, value in SET.items() if path != "repeat"}
    values |= {f"training.{name}": value for name, value in RECIPE.items()}
    return [word for path, value in values.items() for word in ("--set", f"{path}={_as_toml(value)}")]


def _as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_as_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def set_ids(folder: Path) -> dict[str, str]:
    """Path -> the run id of a trial with all settings but this one: what is set takes effect, as it did before."""
    needed = {
        "model.layers", "model.hidden", "model.heads", "model.vocab", "model.seq", "model.family", "batch.gbs", "topology.dp",
        "topology.tp", "topology.pp", "topology.vp", "topology.schedule", "topology.stage_layers", "batch.rampup_start",
        "batch.rampup_increment", "batch.rampup_samples", "cluster.name", "cluster.nodes", "cluster.procs_per_node",
        "cluster.device.name", "cluster.device.kind", "cluster.device.peak_tflops", "cluster.device.memory_gib",
        "cluster.device.memory_gb_s", "command.argv", "engine", "cluster.intra.bandwidth_gb_s", "cluster.intra.latency_us",
        "cluster.inter.bandwidth_gb_s", "cluster.inter.latency_us",
    }  # fmt: skip
    left_out = ["", *(path for path in SET if path not in needed)]
    cases = []
    for path in left_out:
        case: dict[str, Any] = {}
        for key, value in SET.items():
            if key != path:
                table = case
                *tables, last = key.split(".")
                for name in tables:
                    table = table.setdefault(name, {})
                table[last] = value
        cases.append(case)
    return dict(zip(left_out, run_ids(cases, folder)))


def axes(folder: Path) -> list[str]:
    """The short names that an axis may have; here of one value each."""
    values = {path.rpartition(".")[2]: value for path, value in SET.items()
              if path.startswith(("model.", "topology.", "batch.")) and path != "model.name"}
    values |= {"training.device" if name == "device" else name: value for name, value in RECIPE.items()}
    values |= {"environment.variables.OMP_NUM_THREADS": "2", "environment.scheduler.freq": "2200"}
    values |= {"nodes": 1, "procs_per_node": 8}
    one = {name: [value] for name, value in values.items()}
    path = toml(folder / "axes.toml", {"model": asked()["model"], "cluster": "jz-a100", "axes": one})
    trials = document("sweep", path, "--dry-run", "--json")["trials"]
    assert len(trials) == 1 and "invalid" not in trials[0], trials
    return sorted(set(trials[0]) - {"key", "repeat"})


def rules(command: str, names: tuple[str, ...], folder: Path) -> Any:
    """A search, or a sweep, with a rule that always holds for each name."""
    texts = [f"{name} >= 0" for name in names]
    if command == "plan":
        words = [word for text in texts for word in ("--rule", text)]
        found = document("plan", "--model", "llama3-8b", "--cluster", "h200", "--nodes", 1, "--gbs", 64, *words, "--json")
        return found["accepted"]
    path = toml(folder / "rules.toml", {**asked(cluster={"base": "jz-a100", "nodes": 1, "procs_per_node": 1}), "rules": texts})
    return len(document("sweep", path, "--dry-run", "--json")["trials"])


def freeze_interface(keep: Any, folder: Path) -> None:
    keep("interface.json", {
        "options": options(), "documents": documents(folder), "trained": trained(folder),
        "headings": headings(), "own_headings": own_headings(),
        "cells": [{"cells": cells, "forecast": line} for cells, line in zip(ROW_CELLS, forecast_cells(folder))],
        "set": SET, "training": RECIPE, "set_ids": set_ids(folder), "axes": axes(folder),
        "rules": {command: list(names) for command, names in RULES_OF.items()}, "statuses": list(STATUSES),
        "states": list(STATES),
    })  # fmt: skip
