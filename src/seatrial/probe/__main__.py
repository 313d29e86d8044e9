"""`python -m seatrial.probe`: one process per rank, under any launcher, with nothing but torch installed."""
from __future__ import annotations

import argparse
import json
import os
import sys

import torch
import torch.distributed as dist

from seatrial import machine, presets
from seatrial.engine.rendezvous import device_of, rank_from_env
from seatrial.errors import SeatrialError
from seatrial.probe.options import ProbeOptions
from seatrial.probe.run import probe

BUSY = 0.9
"""A process that had less of its core than this was not alone."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m seatrial.probe", description="Measure this machine for the planner.")
    made.add_argument("-o", "--output", default="machine.json")
    mode = made.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="under a minute on a CPU, two on a GPU (the default)")
    mode.add_argument("--full", action="store_true", help="more shapes, types and repeats: minutes")
    made.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    made.add_argument("--model", action="append", default=[], help="a preset, or a TOML file with a [model] table")
    made.add_argument("--tp", type=_several, default=(), help="tensor-parallel sizes, as 1,2,4")
    made.add_argument("--mbs", type=_several, default=(), help="micro-batch sizes, as 1,4")
    made.add_argument("--seconds", type=float, default=None, help="what does not fit into this is left out, and listed")
    made.add_argument("--json", action="store_true", help="print the file as well")
    return made


def _several(text: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in text.split(","))
    if min(found) < 1:
        raise ValueError(text)
    return found


def main(argv: list[str]) -> int:
    try:
        return leave(measured(argv))
    except SeatrialError as error:
        if rank_from_env().rank == 0:
            print(f"seatrial: {error}", flush=True)
        return leave(error.exit_code)
    except KeyboardInterrupt:
        print("seatrial: interrupted: nothing was written", flush=True)
        return leave(130)


def measured(argv: list[str]) -> int:
    """Probe, and on rank 0 write the file."""
    options = parser().parse_args(argv)
    place = rank_from_env()
    leads = place.rank == 0

    def say(line: str) -> None:
        if leads:
            print(line, file=sys.stderr, flush=True)

    models = [presets.model(name) for name in options.model]
    device = device_of(options.device, place)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // place.local_world))
    wanted = ProbeOptions.of(models=models, tps=options.tp, mbss=options.mbs, device=device.type, full=options.full,
                             budget_s=options.seconds)
    found = probe(wanted, place, device, say=say)
    if leads:
        machine.write(found, options.output)
        say(f"wrote {options.output}: {found['device']['name']}, {found['seconds']:.0f} s, noise {found['noise']:.1%}, "
            f"{len(found['missing'])} not measured")
        if found["core_share"] < BUSY:
            say(f"this machine is busy: the probe had {found['core_share']:.0%} of its core, and the figures are short of what "
                "training beside the same others takes; probe again when it is quiet")
        if options.json:
            print(json.dumps(found, allow_nan=False))
    return 0


def leave(status: int) -> int:
    """With peers there are threads of theirs, which were seen to abort when the interpreter takes itself apart."""
    if not dist.is_initialized():
        return status
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
