"""What surrounded a trial: versions, the machine with its clock and load, and the variables that may be recorded.

    versions(), machine(), recorded(os.environ)

Variables are recorded by allow-list, so a secret never reaches a record: not from the environment of the controller, and not
from the ones a trial sets itself.
"""
from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from seatrial import __version__
from seatrial.spec import GIB, Trial

ALLOWED = re.compile(
    r"(OMP|MKL|KMP|GOMP|OPENBLAS|BLIS|NUMEXPR|NCCL|RCCL|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|CUDA|CUBLAS|CUDNN|HIP|ROCR|HSA|UCX|FI|"
    r"MALLOC|TCMALLOC|JEMALLOC|XOS|FLIB|OMPI|PMIX|I_MPI|DNNL|ONEDNN|TF32|NVIDIA|SEATRIAL)_[A-Z0-9_]+"
    r"|LD_PRELOAD|PYTHONHASHSEED|OMP_NUM_THREADS|MASTER_ADDR"
    r"|[A-Z]+_(JOB_?ID|JOB_?NAME|JOB_NODELIST|NNODES|JOB_NUM_NODES|NTASKS|CPUS_PER_TASK|JOB_PARTITION|CLUSTER_NAME|QUEUE)"
)
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|SESSION_ID", re.IGNORECASE)
"""Never recorded, whatever the list above says."""
_CREDENTIALS = re.compile(r"://[^/\s]*@")
HIDDEN = "(not recorded)"


def recorded(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that a record may hold."""
    return {name: _CREDENTIALS.sub("://(hidden)@", value) for name, value in sorted(env.items()) if may_record(name)}


def may_record(name: str) -> bool:
    return ALLOWED.fullmatch(name) is not None and SECRET.search(name) is None


def public(trial: Trial) -> Trial:
    """The trial as it may be written down: a variable off the list keeps its name alone."""
    variables = trial.environment.variables
    safe = {name: recorded({name: value}).get(name, HIDDEN) for name, value in variables.items()}
    if safe == variables:
        return trial
    return replace(trial, environment=replace(trial.environment, variables=safe))


@functools.lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Of what launches, torch without loading it; an engine that came to start says its own."""
    found = {"seatrial": __version__, "python": platform.python_version()}
    try:
        found["torch"] = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        pass
    if commit := _commit():
        found["git"] = commit
    if driver := _first_line(Path("/proc/driver/nvidia/version")):
        found["driver"] = driver
    return found


def _commit() -> str:
    """The commit that this package stands at, when it is run from a checkout."""
    folder = Path(__file__).parent
    if not any((parent / ".git").exists() for parent in folder.parents):
        return ""
    try:
        found = subprocess.run(["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"],
                               capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip()


@functools.lru_cache(maxsize=1)
def _fixed() -> dict[str, object]:
    found: dict[str, object] = {"name": platform.node(), "kernel": platform.release(), "arch": platform.machine(),
                                "cores": len(os.sched_getaffinity(0)),
                                "memory_gib": round(psutil.virtual_memory().total / GIB, 2)}
    for line in _lines(Path("/proc/cpuinfo")):  # psutil has no processor's name
        if line.startswith(("model name", "Model")):
            found["cpu"] = line.partition(":")[2].strip()
            break
    if governor := _first_line(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")):
        found["governor"] = governor
    return found


def machine() -> dict[str, object]:
    """This machine now: name, processor, clock, load and free memory."""
    found = dict(_fixed())
    found["load"] = round(os.getloadavg()[0], 2)
    if (clock := psutil.cpu_freq()) is not None:
        found["clock_mhz"] = round(clock.current)
    found["available_gib"] = round(psutil.virtual_memory().available / GIB, 2)
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _first_line(path: Path) -> str:
    return next((line.strip() for line in _lines(path) if line.strip()), "")
