"""Megatron-LM's pretrain_gpt.py for one rank: run_megatron_lm.py SCRIPT ARGUMENTS auto|cpu|cuda STAND-IN

Without a GPU its device is stood in for by `cpu_cuda.py` of the folder STAND-IN, and what only kernels of a GPU have is turned
off. Nothing of Megatron-LM's own files is changed.
"""
import itertools
import json
import os
import runpy
import shlex
import sys
import typing
from pathlib import Path
from typing import Any

ON_THE_CPU = """
    --transformer-impl local --distributed-backend gloo --no-gradient-accumulation-fusion --no-masked-softmax-fusion
    --no-bias-gelu-fusion --no-bias-swiglu-fusion --no-bias-dropout-fusion --no-persist-layer-norm --no-rope-fusion
"""
APPLIED = {**{f"{kind}_parallel_size": f"{kind[0]}p" for kind in ("data", "tensor_model", "pipeline_model", "context")},
           **{f"{kind}_batch_size": f"{kind[0]}bs" for kind in ("global", "micro")}, "seq_length": "seq",
           "num_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads", "ffn_hidden_size": "ffn",
           "use_distributed_optimizer": "zero", "sequence_parallel": "sequence_parallel"}
"""Its arguments -> the fields of a trial."""


def say(args: Any) -> None:
    """What it made of its flags, before it lists them all."""
    applied = {field: getattr(args, name) for name, field in APPLIED.items() if hasattr(args, name)}
    applied["zero"] = int(applied.get("zero", 0))
    applied["precision"] = "fp8" if getattr(args, "fp8", None) else "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32"
    print("seatrial-applied", json.dumps(applied), flush=True)


def ordered(words: list[str]) -> bool:
    """Whether it orders communication and GEMMs by one queue, which it refuses to start without on GPUs before Blackwell."""
    return any(name in ("--tensor-model-parallel-size", "--context-parallel-size") and value != "1"
               for name, value in itertools.pairwise(words))


def main() -> None:
    import seatrial_driver  # beside this file
    import torch

    script, told, device, stand_in = sys.argv[1:]
    words = shlex.split(Path(told).read_text(), comments=True)
    if not hasattr(typing, "override"):  # Python 3.12's
        from typing_extensions import override

        typing.override = override  # type: ignore[attr-defined]
    device = seatrial_driver.begin("megatron-lm", device)
    if device == "cpu":
        os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiled code would ask for the device that is stood in for
        sys.path.append(stand_in)
        import cpu_cuda

        cpu_cuda.install()
        words += ON_THE_CPU.split()
    if ordered(words) and (device == "cpu" or torch.cuda.get_device_capability()[0] < 10):
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    sys.path.insert(0, os.path.dirname(script))
    sys.argv = [script, *words]
    from megatron.training import arguments

    listed = arguments._print_args

    def print_args(title: str, args: Any) -> None:
        if seatrial_driver.rank == 0 and title == "arguments":
            say(args)
        listed(title, args)

    arguments._print_args = print_args
    runpy.run_path(script, run_name="__main__")
    seatrial_driver.leave()


if __name__ == "__main__":
    main()
