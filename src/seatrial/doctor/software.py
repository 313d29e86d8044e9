"""Python, torch, its backends, and the devices that it sees.

    findings()      python, torch, backends, devices, engines, launchers
"""
from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.doctor import Finding
from seatrial.engines import homes
from seatrial.spec import GIB

OLDEST_TORCH = (2, 11)
TRIED_PYTHONS = ((3, 11), (3, 12))
ENGINES: dict[str, tuple[str, dict[str, str]]] = {
    "torchtitan": ("torchtitan", {}),
    "deepspeed": ("deepspeed", {"ninja": "compiles its operators at their first use"}),
    "megatron-core": ("megatron.core", {"transformer-engine": "its default layers, and fp8"}),
    "accelerate": ("accelerate", {"transformers": "its models"}),
    "megatron-lm": ("megatron.training", {}),
}
"""Distribution -> the module it has, and the distributions that it works without only in part."""
PROGRAMS = {"torchrun": "comes with torch", "srun": "Slurm's: --launcher slurm", "sbatch": "Slurm's: --launcher slurm",
            "pjsub": "PJM's: --launcher pjm", "mpiexec": "PJM's jobs are started with it", "deepspeed": "pip install deepspeed",
            "accelerate": "pip install accelerate"}  # fmt: skip


def findings() -> Iterator[Finding]:
    yield python(sys.version_info[:2])
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a broken build raises what it likes
        yield Finding("torch", "fail", f"cannot be imported ({type(error).__name__}: {_first_line(error)})",
                      "pip install torch, with the build that suits this machine")
        return
    yield torch_version(torch.__version__, cuda=torch.version.cuda, threads=torch.get_num_threads())
    dist = importlib.import_module("torch.distributed")
    if not dist.is_available():
        yield Finding("backends", "fail", "this torch was built without torch.distributed", "install a build that has it")
        return
    there = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available(), "mpi": dist.is_mpi_available()}
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    yield backends(there, gpus=len(gpus))
    yield devices([(gpu.name, gpu.total_memory) for gpu in gpus], built_for=torch.version.cuda,
                  on_the_bus=len(list(Path("/dev").glob("nvidia[0-9]*"))))
    apart = {name: f"{version} in {homes.place(name)}" for name in ENGINES if (version := homes.version(name))}
    theirs = {need: "not asked" for name in apart for need in ENGINES[name][1]}
    yield engines({name: _version(name) for engine, (_, more) in ENGINES.items() for name in (engine, *more)} | apart | theirs,
                  {name for name, (module, _) in ENGINES.items() if name in apart or _importable(module)})
    yield launchers({name for name in PROGRAMS if shutil.which(name)})


def engines(versions: dict[str, str], importable: set[str]) -> Finding:
    """Other programs that train: which are here, what those lack, how to have the others. Plans and forecasts need none."""
    facts: dict[str, Any] = {name: versions[name] for name in ENGINES if versions[name]}
    broken = [name for name in facts if name not in importable]
    lacking = {need: f"{name} lacks {need} ({why})" for name in facts for need, why in ENGINES[name][1].items()
               if not versions[need]}
    have = ", ".join(f"{name} {version}" for name, version in facts.items())
    if broken:
        return Finding("engines", "warn", f"{have}; installed and not to be imported: {', '.join(broken)}",
                       f"pip install --force-reinstall {' '.join(broken)}", facts)
    if lacking:
        return Finding("engines", "warn", f"{have}; {'; '.join(lacking.values())}", f"pip install {' '.join(lacking)}", facts)
    others = [name for name in ENGINES if name not in facts]
    named = "".join(f", {homes.CHECKOUTS[name][0]} for its checkout" for name in others if name in homes.CHECKOUTS)
    missing = f"to run {' or '.join(others)} as trials: make engines ENGINES=NAME{named}; forecasts need none" if others else ""
    return Finding("engines", "ok", "; ".join(filter(None, (f"our own{', ' * bool(have)}{have}", missing))), facts=facts)


def launchers(there: set[str]) -> Finding:
    """Programs that start ranks."""
    facts = {name: name in there for name in PROGRAMS}
    have = [name for name in PROGRAMS if name in there]
    missing = [f"{name} ({why})" for name, why in PROGRAMS.items() if name not in there]
    if {"srun", "sbatch"} & there and not {"srun", "sbatch"} <= there:
        lacks = ({"srun", "sbatch"} - there).pop()
        return Finding("launchers", "warn", f"{', '.join(have)}, but no {lacks}",
                       "both of Slurm's clients, for --launcher slurm", facts)
    if "pjsub" in there and "mpiexec" not in there:
        return Finding("launchers", "warn", f"{', '.join(have)}, but no mpiexec", "the MPI that PJM's jobs start with", facts)
    return Finding("launchers", "ok", f"ours{', ' * bool(have)}{', '.join(have)}"
                   + (f"; not here: {', '.join(missing)}" if missing else ""), facts=facts)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _importable(module: str) -> bool:
    """Whether it is to be found; importing it may take half a minute, and a GPU."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def python(version: tuple[int, ...]) -> Finding:
    where = f"{platform.python_version()} ({sys.executable})"
    if version < TRIED_PYTHONS[0]:
        return Finding("python", "fail", where, "Python 3.11 or newer")
    if version > TRIED_PYTHONS[-1]:
        return Finding("python", "warn", where, "tested with 3.11 and 3.12")
    return Finding("python", "ok", where)


def torch_version(version: str, *, cuda: str | None, threads: int) -> Finding:
    facts = {"version": version, "cuda": cuda, "threads": threads}
    build = f"for CUDA {cuda}" if cuda else "without CUDA"
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_TORCH:
        return Finding("torch", "fail", version, f"torch {'.'.join(map(str, OLDEST_TORCH))} or newer", facts)
    return Finding("torch", "ok", f"{version}, built {build}", facts=facts)


def backends(there: dict[str, bool], *, gpus: int) -> Finding:
    have = [name for name, is_there in there.items() if is_there]
    message = f"{', '.join(have) or 'none'}; a trial takes {'nccl' if gpus else 'gloo'}"
    if gpus and not there["nccl"]:
        return Finding("backends", "fail", f"{gpus} CUDA devices, but this torch has no NCCL",
                       "a build with it, or execution.device = \"cpu\"", dict(there))
    if not there["gloo"]:
        return Finding("backends", "fail", "this torch has no gloo, which CPU ranks need", "a build with it", dict(there))
    return Finding("backends", "ok", message, facts=dict(there))


def devices(seen: list[tuple[str, int]], *, built_for: str | None, on_the_bus: int) -> Finding:
    """What torch sees, against what the driver shows."""
    facts: dict[str, Any] = {"cuda": [{"name": name, "memory_gib": round(size / GIB, 2)} for name, size in seen],
                             "device_files": on_the_bus}
    if on_the_bus and not seen:
        works = "a build of torch with CUDA" if built_for is None else f"a driver for CUDA {built_for}, or another torch"
        return Finding("devices", "fail", f"{on_the_bus} NVIDIA devices are there and torch sees none", works, facts)
    if 0 < len(seen) < on_the_bus:
        return Finding("devices", "warn", f"torch sees {len(seen)} of {on_the_bus} NVIDIA devices",
                       "CUDA_VISIBLE_DEVICES or the batch system hides the others", facts)
    if not seen:
        return Finding("devices", "ok", "no CUDA device: trials train on the CPU", facts=facts)
    kinds = {name: sum(other == name for other, _ in seen) for name, _ in seen}
    listed = ", ".join(f"{count} x {name}" for name, count in kinds.items())
    smallest = min(size for _, size in seen) / GIB
    if len(kinds) > 1:
        return Finding("devices", "warn", f"{listed}, {smallest:.0f} GiB on the smallest",
                       "unequal devices wait for the slowest", facts)
    return Finding("devices", "ok", f"{listed}, {smallest:.0f} GiB each", facts=facts)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "no reason given")[:200]
