"""What every driver does first; it runs in an engine's own Python, so: torch and the standard library alone.

    device = seatrial_driver.begin("torchtitan")        cpu or cuda; a stuck rank can be asked where it stands from then on
    seatrial_driver.lost(7, 0)                             this rank's loss of step 7 is no number
"""
import faulthandler
import importlib.metadata
import json
import os
import platform
import signal
import sys

import torch

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def begin(engine: str, device: str = "auto", version: str = "") -> str:
    if folder := os.environ.get("SEATRIAL_RUN_DIR"):
        watch = os.path.join(folder, "watch")
        os.makedirs(watch, exist_ok=True)
        stacks = open(os.path.join(watch, f"rank{rank}.stacks"), "w")  # noqa: SIM115 - open until the process ends
        faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=True)
    faulthandler.enable()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if rank == 0:
        said = {"engine": engine, "engine_version": version or _version(engine), "torch": torch.__version__,
                "python": platform.python_version(), "backend": "nccl" if device == "cuda" else "gloo",
                "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "world": world}
        print("seatrial-engine", json.dumps(said), flush=True)
    return device


def lost(step: int, stage: int) -> None:
    """Of a step this rank's own loss, or what that stage hands on, is no number, before any sum over ranks."""
    print("seatrial-nan", json.dumps({"rank": rank, "step": step, "stage": stage}), flush=True)


def leave() -> None:
    """Taking gloo's threads down can stand still, once in some hundred times, and nothing is left to do."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return getattr(sys.modules.get(name), "__version__", "")
