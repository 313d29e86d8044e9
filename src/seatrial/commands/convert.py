"""`seatrial convert`: Hugging Face weights in and out of checkpoints.

    seatrial convert import gpt2/ start/          then train with recipe.checkpoint_dir = "start" and recipe.resume = true
    seatrial convert export out/checkpoints hf/   the newest checkpoint, or a step-… folder
"""
from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path

import typer


class Direction(StrEnum):
    IMPORT = "import"
    EXPORT = "export"


class Dtype(StrEnum):
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


def register(app: typer.Typer) -> None:
    @app.command("convert", help="Take Hugging Face weights (GPT-2, BLOOM, Llama, Mistral, Qwen) into a checkpoint, or out.")
    def convert(
        direction: Direction = typer.Argument(..., help="import: from Hugging Face; export: to it."),
        source: Path = typer.Argument(..., help="A folder with config.json and safetensors, or with checkpoints."),
        target: Path = typer.Argument(..., help="The folder to write; it must not hold any of this yet."),
        dtype: Dtype = typer.Option(Dtype.FP32, help="Of exported weights; checkpoints hold fp32."),
        seq: int | None = typer.Option(None, min=1, help="Training sequence of an import, where not its longest."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
    ) -> None:
        import torch

        from seatrial import fields
        from seatrial.huggingface.convert import export_weights, import_weights
        from seatrial.huggingface.hfconfig import type_of

        if direction is Direction.IMPORT:
            model = import_weights(source, target, seq=seq)
        else:
            dtypes = {Dtype.FP32: torch.float32, Dtype.BF16: torch.bfloat16, Dtype.FP16: torch.float16}
            model = export_weights(source, target, dtype=dtypes[dtype])
        if as_json:
            print(json.dumps({"target": str(target), "model": fields.plain(model)}))
        else:
            print(f"{target}: {type_of(model)} of {model.layers} layers, hidden {model.hidden}, {model.heads} heads, "
                  f"vocabulary {model.vocab}, sequence {model.seq}")
