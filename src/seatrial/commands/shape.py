"""`seatrial shape`: what the hardware likes about a model's shape, and why.

    seatrial shape --model bloom-181b --cluster jz-a100 --tp 4 --mbs 2
    seatrial shape --model bloom-181b --cluster jz-a100 --tp 4 --mbs 2 --set model.hidden=14400 --set model.heads=80
"""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from seatrial.errors import BadInput
from seatrial.options import CLUSTER, JSON, MODEL_HELP, PRECISION, SET

if TYPE_CHECKING:
    from seatrial.plan.shape import ShapeReport


def register(app: typer.Typer) -> None:
    @app.command("shape", help="Say what the hardware likes about a model's shape, and which near shapes it likes better.")
    def shape(
        model: str = typer.Option(..., "--model", help=MODEL_HELP),
        cluster: str = CLUSTER,
        tp: int = typer.Option(1, min=1, help="Tensor parallel."),
        mbs: int = typer.Option(1, min=1, help="Micro-batch size."),
        precision: str | None = PRECISION,
        recompute: str = typer.Option("full", help="none, selective, full."),
        reach: str = typer.Option("5%", help="How far from the hidden size to look."),
        settings: list[str] = SET,
        top: int = typer.Option(8, min=0, help="How many near shapes to show."),
        as_json: bool = JSON,
    ) -> None:
        from seatrial.plan import request
        from seatrial.plan.shape import check_shape

        asked = request.Request.read(model=model, cluster=cluster, fixed={"gbs": "1", "recompute": recompute},
                                     precision=precision, settings=settings)
        modes = asked.space.recompute
        if modes is None or len(modes) != 1:
            raise BadInput(f"--recompute {recompute}: one mode")
        report = check_shape(asked.model, asked.cluster, tp=tp, mbs=mbs, precision=asked.precision, recompute=modes[0],  # type: ignore[arg-type]
                    reach=request.share("reach", reach))  # fmt: skip
        if as_json:
            print(json.dumps(document(report, top), allow_nan=False))
        else:
            _tell(report, asked.cluster.device.name, asked.precision, top)


def document(report: ShapeReport, top: int) -> dict[str, Any]:
    import dataclasses

    m = report.model
    return {
        "layers": m.layers, "hidden": m.hidden, "heads": m.heads, "head_dim": m.head_size, "ffn": m.inner, "vocab": m.vocab,
        "padded_vocab": m.padded_vocab(report.tp), "tp": report.tp, "mbs": report.mbs,
        "products": [dataclasses.asdict(gemm) for gemm in report.gemms],
        "remarks": report.remarks,
        "near": [{"what": near.what, "hidden": near.model.hidden, "heads": near.model.heads, "head_dim": near.model.head_size,
                  "ffn": near.model.inner, "padded_vocab": near.model.padded_vocab(report.tp), "parameters": near.parameters,
                  "gain": near.gain} for near in report.near[:top]],
    }  # fmt: skip


def _tell(report: ShapeReport, device: str, precision: str, top: int) -> None:
    from seatrial import terminal

    m = report.model
    terminal.say(f"{m.name or 'the model'}: hidden {m.hidden}, {m.heads} heads of {m.head_size}, ffn {m.inner}, "
                 f"sequence {m.seq}, vocabulary {m.vocab}; TP {report.tp}, MBS {report.mbs}, {precision} on {device}\n")
    headers = ["GEMM", "rows", "cols", "inner", "each", "align", "tile", "tile fill", "waves", "wave fill", "of the best"]
    rows = [[p.name, str(p.rows), str(p.cols), str(p.inner), str(p.count), f"{p.align_bytes} B", p.tile, f"{p.tile_fill:.0%}",
             f"{p.waves:.2f}", f"{p.wave_fill:.0%}", f"{p.efficiency:.0%}"] for p in report.gemms]  # fmt: skip
    headers, rows, said = terminal.fitting(headers, rows, spare=("each", "align", "tile", "waves"))
    terminal.table(headers, rows, left=[0])
    if said:
        terminal.say(said)
    print("\nWhat stands out")
    terminal.say("\n".join(f"  {remark}" for remark in report.remarks) or "  nothing: tiles, waves and borders all fit")
    print("\nNear shapes that the device likes better, by time for each operation")
    for near in report.near[:top]:
        print(f"  {near.what}: {near.gain:.1%} faster, {near.parameters / 1e9:.1f}B parameters")
    if not report.near:
        print("  none within reach gains 1 %")
