"""`seatrial device`: the devices that are known by name, and tables of measured kernels that others publish.

    seatrial device list                                        all of them, a line each
    seatrial device show h100-80gb                              one, its figures and their source
    seatrial device import gemm_perf.txt all_reduce.log -o h100.json
    seatrial plan --cluster dgx-h100 --machine h100.json --model llama3-8b --gbs 256
"""
from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from seatrial.errors import BadInput

EXITS = "Exit status: 0 shown or written; 2 bad input, such as a log that is not understood."
WIDTH = 80


def register(app: typer.Typer) -> None:
    @app.command("device", help="List devices known by name, show one, or import published kernel and collective tables.",
                 epilog=EXITS)
    def device(
        action: str = typer.Argument("list", help="list, show or import.", metavar="[list|show|import]"),
        names: list[str] = typer.Argument(None, metavar="[NAME|FILE...]", show_default=False,
                                          help="A device; or logs of nccl-tests, tables of aiconfigurator, machine files."),
        base: str | None = typer.Option(None, help="The device that was measured, if not said.", show_default=False),
        output: Path | None = typer.Option(None, "--output", "-o", help="A machine file, as plan --machine reads it.",
                                           show_default=False),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
    ) -> None:
        names = names or []
        if action == "import":
            _import(names, base, output, as_json)
        elif base is not None or output is not None:
            raise BadInput(f"--base and --output belong to `seatrial device import`, not to {action}")
        elif action == "list" and not names:
            _list(as_json)
        elif action == "show" and len(names) == 1:
            _show(names[0], as_json)
        else:
            raise BadInput(f"device {' '.join([action, *names])}: use `list`, `show NAME` or `import FILE... -o OUT.json`")


def _devices() -> dict[str, Any]:
    from seatrial import fields, presets
    from seatrial.spec import Device

    book = presets.shipped()
    return {name: fields.build(Device, presets.resolve("devices", name, book), where=f"device {name}")
            for name in book["devices"]}


def _half(device: Any) -> str:
    """The precision that models are trained in there."""
    return next((p for p in ("bf16", "fp16", "fp32") if p in device.peak_tflops), next(iter(device.peak_tflops)))


def _list(as_json: bool) -> None:
    from seatrial import fields

    devices = _devices()
    if as_json:
        every = {name: fields.plain(d, keep_defaults=True) for name, d in devices.items()}
        print(json.dumps({"devices": every}, ensure_ascii=False))
        return
    print(f"{'device':16s} {'GiB':>5s} {'GB/s':>5s} {'TFLOP/s':>12s} {'best':>5s} {'sustained':>9s} {'W':>5s}")
    for name, d in devices.items():
        p = _half(d)
        best = d.peak_tflops[p] * d.matmul_efficiency
        held = f"{best * d.sustained:.0f}" if d.kind == "gpu" else "-"
        print(f"{name:16s} {d.memory_gib:5.0f} {d.memory_gb_s:5.0f} {d.peak_tflops[p]:7.0f} {p:4s} {best:5.0f} {held:>9s} "
              f"{d.power_w or 0:5.0f}")


def _show(name: str, as_json: bool) -> None:
    from seatrial import fields, presets

    devices = _devices()
    if name not in devices:
        raise BadInput(f"{name!r}: no such device; {fields.nearest(name, devices)}")
    d = devices[name]
    clusters = [c for c in presets.names("clusters") if c != "local" and presets.cluster(c).device == d]
    if as_json:
        print(json.dumps({"device": fields.plain(d, keep_defaults=True), "clusters": clusters}, ensure_ascii=False))
        return
    rows = [("peak", ", ".join(f"{p} {v:g}" for p, v in d.peak_tflops.items()) + " TFLOP/s, dense"),
            ("best GEMM", f"{d.matmul_efficiency:.0%} of it"),
            ("sustained", f"{d.sustained:.0%} of the best, under {d.power_w or 0:g} W"),
            ("memory", f"{d.memory_gib:g} GiB, {d.limit_gib:g} usable, {d.context_gib:g} taken by driver and libraries"),
            ("bandwidth", f"{d.memory_gb_s:g} GB/s"),
            ("units", f"{d.units} at {d.clock_ghz or 0:g} GHz"), ("source", d.source),
            ("clusters", ", ".join(clusters) or "none")]
    print(f"{name}: {d.name}")
    for label, text in rows:
        print(textwrap.fill(text, WIDTH, initial_indent=f"  {label:10s} ", subsequent_indent=" " * 13))
    for c in clusters:
        for way in ("intra", "inter"):
            link = getattr(presets.cluster(c), way)
            text = f"{link.name}, {link.bandwidth_gb_s:g} GB/s x {link.efficiency:g}: {link.source}"
            print(textwrap.fill(text, WIDTH, initial_indent=f"  {c} {'inside' if way == 'intra' else 'between nodes'}: ",
                                subsequent_indent=" " * 4))


def _import(files: list[str], base: str | None, output: Path | None, as_json: bool) -> None:
    from seatrial import machine
    from seatrial.plan import imported
    from seatrial.probe import published

    if not files:
        raise BadInput("device import: name logs of nccl-tests, tables of aiconfigurator, or machine files")
    if output is None:
        raise BadInput("device import: -o names the machine file to write, as -o h100.json")
    if output.suffix != ".json":
        raise BadInput(f"-o {output}: a machine file is JSON; -o {output.with_suffix('.json')}")
    if not output.absolute().parent.is_dir():
        raise BadInput(f"{output.absolute().parent}: no such folder")
    made = imported.build([published.read(path) for path in files], device=base)
    machine.write(machine.checked(made, str(output)), output)
    if as_json:
        print(json.dumps({key: value for key, value in made.items() if key != "figures"}, ensure_ascii=False))
        return
    for line in _said(made):
        print(line)
    print(f"{output}: seatrial plan --cluster … --machine {os.path.relpath(output)} --model … --gbs …")


def _said(made: dict[str, Any]) -> Iterator[str]:
    yield f"{made['device']['name']}, as {made['base']}"
    for source in made["sources"]:
        yield f"{source['file']}: {source['form']}, {source['read']} measurements read"
        for why, count in source["left"].items():
            yield from textwrap.wrap(f"{count} left: {why}", WIDTH, initial_indent="  ", subsequent_indent="    ")
    for part, found in made["error"].items():
        for what, of in found.items():
            after = "" if of["after"] is None else f", with this file {of['after']:.1%} at the others"
            yield f"  {part} {what}: {of['kept']} of {of['measured']} kept; data sheet off by {of['before']:.1%}{after}"
    by_reason: dict[str, list[str]] = {}
    for entry in made["missing"]:
        by_reason.setdefault(entry["why"], []).append(entry["what"])
    for why, parts in by_reason.items():
        yield from textwrap.wrap(f"not there: {', '.join(parts)} ({why})", WIDTH, initial_indent="  ", subsequent_indent="    ")
