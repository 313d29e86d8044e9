"""Starts Megatron-LM's script in its own Python.

    run_megatron_lm.py CHECKOUT/pretrain_gpt.py megatron-lm.args DEVICE cpu_cuda.py VERSION

None of its files are changed. Beyond the file's flags it is told what this machine lacks: Transformer Engine, a GPU.
"""
import importlib.util
import json
import os
import runpy
import shlex
import sys
import typing
from pathlib import Path
from typing import Any

LOCAL = ("--transformer-impl local --no-gradient-accumulation-fusion --no-persist-layer-norm --no-masked-softmax-fusion "
         "--no-rope-fusion").split()
WITHOUT_GPU = ("--distributed-backend gloo --no-bias-gelu-fusion --no-bias-dropout-fusion --no-bias-swiglu-fusion").split()


def applied(state: Any) -> dict[str, Any]:
    """What Megatron made of its flags, by the fields of a trial."""
    from megatron.training.global_vars import get_args

    args = get_args()
    return {"tp": state.get_tensor_model_parallel_world_size(), "pp": state.get_pipeline_model_parallel_world_size(),
            "cp": state.get_context_parallel_world_size(), "dp": state.get_data_parallel_world_size(),
            "ep": state.get_expert_model_parallel_world_size(),
            "vp": state.get_virtual_pipeline_model_parallel_world_size() or 1,
            "zero": int(args.use_distributed_optimizer), "sequence_parallel": args.sequence_parallel,
            "recompute": args.recompute_granularity or "none", "precision": precision(args), "layers": args.num_layers,
            "hidden": args.hidden_size, "heads": args.num_attention_heads, "seq": args.seq_length,
            "mbs": args.micro_batch_size, "gbs": args.global_batch_size}


def precision(args: Any) -> str:
    if args.fp8:
        return "fp8"
    return "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32"


def said_once_laid_out() -> None:
    """Rank 0 says what was applied as soon as there are groups of ranks."""
    import seatrial_driver  # beside this file
    from megatron.core import parallel_state

    lay_out = parallel_state.initialize_model_parallel

    def initialize(*given: Any, **named: Any) -> Any:
        made = lay_out(*given, **named)
        if seatrial_driver.rank == 0:
            print("seatrial-applied", json.dumps(applied(parallel_state)), flush=True)
        return made

    parallel_state.initialize_model_parallel = initialize


def main() -> None:
    import seatrial_driver
    import torch

    script, args, device, cpu_cuda, version = sys.argv[1:]
    sys.path.insert(0, str(Path(script).parent))
    device = seatrial_driver.begin("megatron-lm", device, version)
    flags = shlex.split(Path(args).read_text(encoding="utf-8"), comments=True)
    if device == "cpu" or importlib.util.find_spec("transformer_engine") is None:
        flags += LOCAL
    if device == "cpu":
        flags += WITHOUT_GPU
        sys.path.append(str(Path(cpu_cuda).parent))
        import cpu_cuda as stand_in

        stand_in.install()
        if (Path(script).parent / "megatron/legacy/fused_kernels").is_dir():
            from megatron.legacy import fused_kernels  # releases before 0.17 compile them for a GPU at every start

            fused_kernels.load = lambda args: None
    if not hasattr(typing, "override"):  # Python 3.12's
        from typing_extensions import override

        typing.override = override  # type: ignore[attr-defined]
    if device == "cpu" or torch.cuda.get_device_capability()[0] < 10:
        # Before Blackwell it orders communication and GEMMs by one queue, and refuses to start otherwise.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    # It makes the helpers of its data sets by the python3 that is found first.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    said_once_laid_out()
    sys.argv = [script, *flags]
    runpy.run_path(script, run_name="__main__")
    if device == "cpu":
        seatrial_driver.leave()


main()
