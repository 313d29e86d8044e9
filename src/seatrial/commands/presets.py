"""`seatrial presets`: the models and clusters that are known by name.

    seatrial presets                    all of them, a line each
    seatrial presets bloom-181b         one, as the TOML that a file of one's own can begin with
"""
from __future__ import annotations

import json
import sys

import typer


def register(app: typer.Typer) -> None:
    @app.command("presets", help="List the models and clusters known by name, or show one as TOML.")
    def show(
        name: str = typer.Argument(None, help="A model or a cluster."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
    ) -> None:
        from seatrial import arith, fields, presets
        from seatrial.errors import BadInput
        from seatrial.terminal import say

        models, clusters = presets.names("models"), presets.names("clusters")
        if name is not None:
            if name not in [*models, *clusters]:
                raise BadInput(f"{name!r}: no such preset; {fields.nearest(name, [*models, *clusters])}")
            word = "model" if name in models else "cluster"
            found = fields.plain(presets.model(name) if word == "model" else presets.cluster(name), keep_defaults=as_json)
            if as_json:
                print(json.dumps({word: found}, ensure_ascii=False))
            else:
                import tomli_w

                sys.stdout.write(tomli_w.dumps({word: found}))
            return
        if as_json:
            print(json.dumps({"models": models, "clusters": clusters}))
            return
        print("models")
        for each in models:
            m = presets.model(each)
            mixed = "" if not m.mixture else (f"; {m.chosen} of {m.experts} experts, a token passes "
                                              f"{arith.parameters(m).active / 1e9:.3f}B")
            say(f"  {each:15s} {m.family:7s} {arith.label_sizes(m)[0]:8.3f}B  {m.layers} layers, hidden {m.hidden}, "
                f"{m.heads} heads, sequence {m.seq}, vocabulary {m.vocab}{mixed}", 18)
        print("clusters")
        for each in clusters:
            c = presets.cluster(each)
            peak = max(c.device.peak_tflops, key=lambda p: (p in ("bf16", "fp16"), c.device.peak_tflops[p]))
            say(f"  {each:15s} {c.nodes} x {c.procs_per_node} {c.device.name}, {c.device.peak_tflops[peak]:g} TFLOPs {peak}, "
                f"{c.device.memory_gib:g} GiB; {c.intra.name} inside, {c.inter.name} between nodes", 18)
