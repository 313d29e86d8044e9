"""`seatrial demo`: the main job on this machine's CPU, every command of it shown with what it prints.

    seatrial demo                   into demo-out
    seatrial demo -o somewhere

It finds what is wrong in hand-typed rows, forecasts every layout, proves some with real training steps, and writes the page
that the decision is made from. The commands stand in STEPS, as one would type them in the folder that the demo fills.
"""
from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from seatrial.errors import EXIT_FINDINGS, EXIT_GOOD, EXIT_OTHER_OUTCOME

FILES = ("rows.csv", "first-sweep.toml")
"""Examples that are put into the folder first."""
MARK = ".seatrial-demo"
"""What tells a folder of an earlier demo, which may be filled anew, from anybody else's."""


@dataclass(frozen=True, kw_only=True)
class Step:
    says: str
    typed: str
    into: str = ""
    """A file that takes the output; shown are its first lines with `picks` in them."""
    picks: str = ""
    good: tuple[int, ...] = (EXIT_GOOD,)


STEPS = (
    Step(says="180 rows that were typed by hand: what is wrong in them?", typed="lint rows.csv", into="lint.txt",
         picks=": error ", good=(EXIT_GOOD, EXIT_FINDINGS)),
    Step(says="Before anything is run: every layout of 181B parameters on 384 GPUs",
         typed="plan --model bloom-181b --cluster jz-a100 --nodes 48 --gbs 2048 --zero 1 --recompute full --schedule 1f1b "
               "--vp 1 --rule 'dp % 4 == 0' --top 3"),
    Step(says="Real training steps: six layouts of a small model on this CPU, one of which cannot be",
         typed="sweep first-sweep.toml --logbook logbook"),
    Step(says="The best layout of two processes, with as few trials as it takes",
         typed="tune --model tiny --procs-per-node 2 --gbs 16 --zero 0 --recompute none --schedule 1f1b --trials 4 "
               "--seconds 200 --set measure.seconds=1 --logbook logbook"),
    Step(says="What was measured", typed="table logbook"),
    Step(says="The rows of the logs, kept like one's own", typed="import rows.csv --logbook logs"),
    Step(says="The page of the trials that just ran", typed="report logbook -o report.html --cluster local"),
    Step(says="The page of the logs", typed="report logs -o five-logs.html"),
)  # fmt: skip
SHOWN = 4
STDERR = 2


def register(app: typer.Typer) -> None:
    @app.command("demo", help="Run the main job from end to end on this machine's CPU, into a folder of its own.")
    def demo(
        out: Path = typer.Option(Path("demo-out"), "--out", "-o", help="The folder to fill; an earlier demo's is replaced."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON document at the end, and the steps to stderr."),
    ) -> int:
        prepare(out)
        began = time.monotonic()
        done = []
        for step in STEPS:
            with _speaking_aside(as_json):
                print(f"\n# {step.says}\n$ seatrial {step.typed}", flush=True)
                status, seconds = run(step, out, aside=as_json)
            done.append({"command": f"seatrial {step.typed}", "status": status, "seconds": round(seconds, 2)})
            if status not in step.good:
                message = f"seatrial: demo: `seatrial {step.typed}` ended with status {status}; what there is, is in {out}"
                print(message, file=sys.stderr)
                break
        good = len(done) == len(STEPS) and status in step.good
        took_s = time.monotonic() - began
        if as_json:
            pages = [str(out / name) for name in ("report.html", "five-logs.html")] if good else []
            print(json.dumps({"schema": 1, "out": str(out), "steps": done, "pages": pages, "seconds": round(took_s, 2)}))
        elif good:
            print(f"\nDone in {took_s:.0f} s. Open in a browser:\n"
                  f"  {out / 'report.html'}     the trials that just ran\n"
                  f"  {out / 'five-logs.html'}  the logs of others\n"
                  f"To go on: cd {shlex.quote(str(out))}, edit first-sweep.toml, and sweep it into another --logbook.")
        return EXIT_GOOD if good else EXIT_OTHER_OUTCOME


def prepare(out: Path) -> None:
    """An empty folder with the examples in it; never somebody's files."""
    from seatrial import shipped
    from seatrial.errors import BadInput

    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: is a file; name a folder with -o")
    if out.is_dir() and any(out.iterdir()):
        if not (out / MARK).exists():
            raise BadInput(f"{out}: has files in it that no demo made; name another folder with -o")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()
    for name in FILES:
        shutil.copyfile(shipped.example(name), out / name)


def run(step: Step, out: Path, *, aside: bool) -> tuple[int, float]:
    """One command, in the demo's folder; its exit status and how long it took."""
    began = time.monotonic()
    argv = [sys.executable, "-m", "seatrial", *shlex.split(step.typed)]
    # The checkout's src, say, may be named relative to where the demo was started.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in _search_path())}
    if step.into:
        done = subprocess.run(argv, cwd=out, env=env, stdout=subprocess.PIPE, text=True)
        (out / step.into).write_text(done.stdout)
        lines = done.stdout.splitlines()
        picked = [line for line in lines if step.picks and step.picks in line]
        print("\n".join([*picked[:SHOWN], f"({len(lines)} lines in {out / step.into})"]), flush=True)
    else:
        done = subprocess.run(argv, cwd=out, env=env, stdout=STDERR if aside else None, text=True)
    return done.returncode, time.monotonic() - began


def _search_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


@contextlib.contextmanager
def _speaking_aside(aside: bool) -> Iterator[None]:
    """With --json, stdout is for the document alone."""
    with contextlib.redirect_stdout(sys.stderr) if aside else contextlib.nullcontext():
        yield
