"""What Megatron-LM's own validate_args says of many argument lists: PYTHON -P validate/megatron_lm.py CHECKOUT < lists.jsonl

A line of JSON for each, {"argv", "world", "connections"}; it answers with a line for each, empty where the arguments are taken.
The checkout is the user's: nothing of it is here.
"""
import json
import os
import sys
import typing
from pathlib import Path

if not hasattr(typing, "override"):  # Python 3.12's
    from typing_extensions import override

    typing.override = override  # type: ignore[attr-defined]
sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "engines"))
sys.path.insert(0, sys.argv[1])
import cpu_cuda

cpu_cuda.install()
from megatron.training.argument_utils import core_transformer_config_from_args  # noqa: E402
from megatron.training.arguments import parse_args, validate_args  # noqa: E402


def refusal(asked: dict[str, typing.Any]) -> str:
    os.environ.update(RANK="0", WORLD_SIZE=str(asked["world"]))
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    if asked["connections"]:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    sys.argv = ["pretrain_gpt.py", *asked["argv"]]
    said, out, error = sys.stdout, open(os.devnull, "w"), sys.stderr  # noqa: SIM115
    sys.stdout = sys.stderr = out
    try:
        args = parse_args()
        validate_args(args)
        core_transformer_config_from_args(args)
        return ""
    except SystemExit:
        return "usage"
    except BaseException as wrong:
        return f"{type(wrong).__name__}: {' '.join(str(wrong).split())}"[:300]
    finally:
        sys.stdout, sys.stderr = said, error


for line in sys.stdin:
    print(json.dumps(refusal(json.loads(line))), flush=True)
