"""`seatrial probe`: measure this machine, for the planner.

    seatrial probe                                  machine.json in this folder: this process and its device
    seatrial probe --ranks 2                        and the collectives of two ranks on this machine
    torchrun --nproc-per-node 8 -m seatrial.probe   on a cluster, also across nodes (srun and mpiexec as well)
    seatrial plan --cluster here --model gpt2-124m --gbs 64
"""
from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer

from seatrial.errors import EXIT_BAD_INPUT, EXIT_GOOD, BadInput, SeatrialError

EXITS = "Exit status: 0 the file is there; 2 bad input; 3 the ranks failed."
MOST_RANKS = 4096
LONGEST_S = 3600.0


def register(app: typer.Typer) -> None:
    @app.command("probe", help="Measure this machine for the planner: kernels, memory, collectives.", epilog=EXITS)
    def probe(
        output: Path = typer.Option(Path("machine.json"), "--output", "-o", help="Written whole or not at all."),
        quick: bool = typer.Option(False, "--quick", help="Under a minute on a CPU, two on a GPU. The default."),
        full: bool = typer.Option(False, "--full", help="More shapes, types and repeats: minutes."),
        device: str = typer.Option("auto", help="auto, cpu or cuda."),
        model: list[str] = typer.Option([], help="Whose shapes to measure; by default some usual ones.", show_default=False),
        tp: str | None = typer.Option(None, help="Tensor-parallel sizes, as 1,2,4.", show_default=False),
        mbs: str | None = typer.Option(None, help="Micro-batch sizes, as 1,4.", show_default=False),
        seconds: float | None = typer.Option(None, min=1, help="Leave out, and list, what takes longer.", show_default=False),
        ranks: int | None = typer.Option(None, min=1, max=MOST_RANKS, show_default=False,
                                         help="Ranks to start on this machine; under torchrun or srun they are there already."),
        as_json: bool = typer.Option(False, "--json", help="Print the file as well."),
    ) -> int:
        from seatrial import presets

        if quick and full:
            raise BadInput("--quick and --full: one of them")
        if device not in ("auto", "cpu", "cuda"):
            raise BadInput(f"--device {device!r}: use auto, cpu or cuda")
        output = output.absolute()
        if not output.parent.is_dir():
            raise BadInput(f"{output.parent}: no such folder")
        argv = ["-o", str(output), "--device", device, *(["--full"] if full else [])]
        for name, text in (("tp", tp), ("mbs", mbs)):
            argv += [f"--{name}", _checked(name, text)] if text is not None else []
        for name in model:
            presets.model(name)
            argv += ["--model", name]
        argv += ["--seconds", str(seconds)] if seconds is not None else []
        status = _several(argv, ranks) if ranks is not None and ranks > 1 else _alone(argv)
        # Under a launcher every rank is here, and one has the file.
        if status == EXIT_GOOD and _first_rank():
            from seatrial import machine

            found = machine.read(output)
            print(json.dumps(found, allow_nan=False)) if as_json else _print(found, output)
        from seatrial.probe import __main__ as probing

        return probing.leave(status)


def _first_rank() -> bool:
    from seatrial.engine.rendezvous import rank_from_env

    return rank_from_env().rank == 0


def _checked(name: str, text: str) -> str:
    from seatrial.plan.request import integers

    return ",".join(map(str, integers(name, text)))


def _alone(argv: list[str]) -> int:
    """In this process, or as one of the ranks that a launcher started."""
    from seatrial.probe import __main__ as probing

    return probing.measured(argv)


def _several(argv: list[str], ranks: int) -> int:
    from seatrial.engine.rendezvous import rank_from_env
    from seatrial.launch import files, local

    if rank_from_env().world > 1:
        raise BadInput(f"--ranks {ranks}: the launcher has started {rank_from_env().world} ranks already; leave it out")
    with tempfile.TemporaryDirectory(prefix="seatrial-probe-") as folder:
        out = Path(folder)
        finished = local.launch([sys.executable, "-m", "seatrial.probe", *argv], world=ranks, out=out, timeout_s=LONGEST_S,
                                env=dict(os.environ), on_line=lambda line: print(line, file=sys.stderr, flush=True))
        if not any(finished.codes):
            return EXIT_GOOD
        if EXIT_BAD_INPUT in finished.codes:
            return EXIT_BAD_INPUT
        first = finished.died[0] if finished.died else 0
        log = files.log(out, first)
        last = (log.read_text(errors="replace").strip().splitlines() if log.exists() else [])[-1:] or ["no word"]
        raise SeatrialError(f"rank {first} of {ranks} ended with {finished.codes[first]}: {last[0]}")


def _print(found: dict[str, Any], output: Path) -> None:
    from seatrial.probe import show

    print("\n".join(show.lines(found)))
    print(f"{output}: seatrial plan --machine {os.path.relpath(output)} --model … --gbs …")
