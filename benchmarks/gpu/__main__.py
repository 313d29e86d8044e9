"""Our engine and its peers on one GPU, each in a process of its own; the table is printed as it grows.

    python -m benchmarks.gpu                            everything, in the order of what it tells
    python -m benchmarks.gpu --only smoke ours          the kernels first, then our four lines
    python -m benchmarks.gpu --only bf16@1.3b -o out    one row; out/gpu.json is rewritten after each
    python -m benchmarks.gpu --peers build/peers        also the engines of others that lie unpacked there
    python -m benchmarks.gpu --peers build/peers --only check       does each of them start? tiny models, also without a GPU
    python -m benchmarks.gpu --records out/gpu.json --logbook book

TFLOP/s is formula `model`: no recompute counted, the optimizer's time included. A row that fails says so and the next one runs.
Forecasts are the planner's for our engine on an H200. At the end each peer stands beside ours of the same shape.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.shapes import GROUPS, PLAIN, ROWS, names

EXTRA = {"smoke": 120, "losses": 300, "experts": 240, "start": 400}
"""Parts that are no rows, and their limits in seconds."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"{', '.join((*EXTRA, *GROUPS))}, or a row")
    parser.add_argument("-o", "--out", type=Path, help="folder for gpu.json")
    parser.add_argument("--budget", type=float, default=1e9, metavar="S", help="start no row after so many seconds")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="where the engines of others lie unpacked (docs/gpu.md)")
    parser.add_argument("--no-profile", action="store_true", help="leave out the kernels of one step of our lines")
    parser.add_argument("--list", action="store_true", help="names of the rows")
    parser.add_argument("--records", type=Path, metavar="GPU.JSON", help="measure nothing: write these rows into --logbook")
    parser.add_argument("--logbook", type=Path, help="also write the rows into this logbook")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.list:
        print("\n".join([*EXTRA, *(f"{name}  {row.what} ({row.group})" for name, row in ROWS.items())]))
        return 0
    if asked.records:
        return _recorded(asked.records, asked.logbook or Path("logbook"))
    if asked.peers and not asked.peers.is_dir():
        parser.error(f"--peers {asked.peers}: no such folder; docs/gpu.md says how to make one")
    if asked.one:
        sys.path += [str(asked.peers.resolve())] if asked.peers else []
        return _one(asked.one, profile=not asked.no_profile)
    wanted = _wanted(asked.only)
    if asked.peers is None and (left_out := [n for n in wanted if n in ROWS and ROWS[n].kind not in ("ours", *PLAIN)]):
        wanted = [n for n in wanted if n not in left_out]
        print(f"not run: {', '.join(left_out)}; --peers DIR says where those engines lie (docs/gpu.md)", flush=True)
    began, found = time.monotonic(), {}
    print(f"{'row':<26} {'ms':>8} {'forecast':>9} {'TFLOP/s':>8} {'GiB':>7} {'forecast':>9}  what", flush=True)
    for name in wanted:
        left = asked.budget - (time.monotonic() - began)
        if left <= 0:
            print(f"{name:<26} not started: the budget of {asked.budget:g} s is used up", flush=True)
            continue
        options = [*(["--no-profile"] if asked.no_profile else []), *(["--peers", str(asked.peers)] if asked.peers else [])]
        found[name] = _child(name, options, min(left + 15, EXTRA[name] if name in EXTRA else ROWS[name].limit_s))
        print(_line(name, found[name]), flush=True)
        if asked.out:
            asked.out.mkdir(parents=True, exist_ok=True)
            part = asked.out / ".gpu.json"
            part.write_text(json.dumps({"schema": 1, "rows": found}, indent=1) + "\n", encoding="utf-8")
            os.replace(part, asked.out / "gpu.json")
    for line in ratios(found):
        print(line, flush=True)
    return _recorded(asked.out / "gpu.json", asked.logbook) if asked.logbook and asked.out else 0


def _recorded(source: Path, book: Path) -> int:
    from benchmarks.gpu import records

    print(f"{records.write(source, book)} rows written to {book}", flush=True)
    return 0


def _wanted(only: list[str]) -> list[str]:
    if not only:
        first = names(["ours"])
        return ["smoke", *first, "losses", "experts", *(n for n in names([]) if n not in first and ROWS[n].group != "check")]
    return [n for word in only for n in ([word] if word in EXTRA else names([word]))]


def ratios(found: dict[str, dict[str, Any]]) -> list[str]:
    """How many steps of ours each peer's step takes, and its memory over ours, shape by shape."""
    said = []
    for shape in dict.fromkeys(ROWS[name].shape for name in found if name in ROWS):
        done = {name: row for name, row in found.items() if name in ROWS and ROWS[name].shape == shape and "sec" in row}
        base = done.get(f"bf16@{shape}")
        others = [(name, row) for name, row in done.items() if row is not base]
        if base is not None and others:
            said.append(f"bf16@{shape} against: " + ", ".join(
                f"{name.split('@')[0]} {row['sec'] / base['sec']:.3f} x" + (
                    f" and {row['allocated_gib'] / base['allocated_gib']:.2f} x the memory" if base["allocated_gib"] else "")
                for name, row in others))
    return said


def _child(name: str, options: list[str], limit_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu", "--one", name, *options]
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stderr is not None
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.extend(child.stderr or ()), daemon=True)
    reader.start()
    late = threading.Timer(limit_s, child.kill)
    late.start()
    result: dict[str, Any] | None = None
    for line in child.stdout:
        if line.startswith("RESULT "):
            result = json.loads(line[7:])
        else:
            print(line, end="", flush=True)
    child.wait()
    late.cancel()
    reader.join(5)
    took_s = round(time.monotonic() - began, 1)
    if result is not None:
        return {**result, "took_s": took_s}
    reasons = [line.strip() for line in errors if line.strip()]
    if took_s >= limit_s:
        reasons.append(f"ended after its limit of {limit_s:.0f} s")
    error = reasons[-1] if reasons else f"exit {child.returncode}"
    return {"error": error, "stderr": "".join(errors)[-4000:], "took_s": took_s}


def _line(name: str, found: dict[str, Any]) -> str:
    if "error" in found:
        return f"{name:<26} failed after {found['took_s']} s: {found['error'][:300]}"
    if "missing" in found:
        return f"{name:<26} not run: {found['missing']}"
    if "sec" not in found:
        return f"{name:<26} took {found['took_s']} s"
    expected = found.get("forecast")
    known = (1e3 * expected["sec"], expected["mem_gib"]) if isinstance(expected, dict) else ()
    ms, gib = [f"{figure:9.1f}" for figure in known] or [f"{'-':>9}"] * 2
    fell_back = [n for n, note in found.get("notes", {}).items() if "plain torch is used" in note or n == "gemm"]
    figures = f"{1e3 * found['sec']:8.1f} {ms} {found['tflops']:8.1f} {found['reserved_gib']:7.1f} {gib}"
    more = [f"allocated {found['allocated_gib']:.1f} GiB", f"loss {found['losses'][0]:.3f} to {found['losses'][-1]:.3f}"]
    if "watts" in found:
        more.append(f"{found['watts']:.0f} of {found['limit_watts']:.0f} W at {found['mhz']:.0f} MHz")
    more.append(f"took {found['took_s']} s")
    more += [f"FELL BACK: {', '.join(fell_back)}"] if fell_back else []
    more += [f"{n} {found['notes'][n]}" for n in ("attention", "tuned gemm") if n in found.get("notes", {})]
    return f"{name:<26} {figures}  {ROWS[name].what}; {', '.join(more)}"


def _one(name: str, *, profile: bool) -> int:
    def say(line: str) -> None:
        print(line, flush=True)

    if name in EXTRA:
        from benchmarks.gpu import experts, losses, smoke, start

        result = {"smoke": smoke.run, "losses": losses.run, "experts": experts.layers, "start": start.run}[name](say)
    else:
        from benchmarks.gpu import ours, peers
        from benchmarks.gpu.profile import lines

        row = ROWS[name]
        if row.kind == "ours":
            result = ours.measure(row, profile=profile and row.group in ("ours", "small", "llama", "moe"))
        else:
            try:
                result = peers.measure(row)
            except ModuleNotFoundError as error:
                result = {"missing": str(error)}
        if "sec" in result:
            result["tflops"] = ours.tflops(row, result["sec"])
        if row.kind == "ours":
            result["forecast"] = ours.forecast(row)
        if "kernels_error" in result:
            say(f"    no profile: {result['kernels_error']}")
        if "kernels" in result:
            for line in lines(result["kernels"]):
                say(line)
    import torch

    result.update(device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu", torch=torch.__version__)
    print("RESULT " + json.dumps(result), flush=True)
    sys.stderr.flush()
    os._exit(0)  # process groups of others have threads that may not end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
