"""A fault in a rank of any engine, from outside its code: this folder on PYTHONPATH, SEATRIAL_THEIR_FAULT=kind:rank:step:phase

Steps are counted by the optimizer's; `forward` strikes in a module's forward pass of the step, `optimizer` before its update.
"""
import os
import signal
import time

KEPT = []


def strike(kind: str) -> None:
    import torch

    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "raise":
        raise ValueError("a value of this rank is gone")
    elif kind == "loop":
        while True:
            time.sleep(0.01)
    elif kind == "busy":
        while True:
            pass
    elif kind == "tensor":
        KEPT.append(torch.empty(1 << 50))
    elif kind == "memory":
        KEPT.append(bytearray(1 << 55))
    elif kind == "leak":
        while True:
            KEPT.append(torch.ones(1 << 22))


def arm(kind: str, step: int, phase: str) -> None:
    import torch
    from torch.nn.modules.module import register_module_forward_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    done: dict[int, int] = {}
    struck = []

    def now() -> bool:
        if struck or max(done.values(), default=0) != step - 1:
            return False
        struck.append(True)
        return True

    def after(optimizer: object, *_: object) -> None:
        done[id(optimizer)] = done.get(id(optimizer), 0) + 1

    def before(*_: object) -> None:
        if phase == "optimizer" and now():
            strike(kind)

    def forward(module: object, _: object, output: object) -> object:
        if phase == "forward" and isinstance(output, torch.Tensor) and output.is_floating_point() and now():
            if kind == "nan":
                return output * float("nan")
            strike(kind)
        return None

    register_optimizer_step_post_hook(after)
    register_optimizer_step_pre_hook(before)
    register_module_forward_hook(forward)


words = os.environ.get("SEATRIAL_THEIR_FAULT", "").split(":")
if len(words) == 4 and os.environ.get("RANK") == words[1]:
    arm(words[0], int(words[2]), words[3])
