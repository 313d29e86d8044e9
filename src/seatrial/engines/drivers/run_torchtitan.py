"""torchtitan.train for one rank, on a GPU or on the CPU: run_torchtitan.py CONFIG.toml [auto|cpu|cuda]

torchtitan knows no CPU device: here it is named, asked for its memory as a GPU would be, and FSDP's gradients are summed by a
plain sum, since gloo has no PREMUL_SUM. Nothing of torchtitan's own files is changed.
"""
import math
import os
import resource
import sys
from collections import defaultdict

TOTAL_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Properties:
    name = "cpu"
    total_memory = TOTAL_BYTES


def memory_stats(*_: object) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found["active_bytes.all.peak"] = found["reserved_bytes.all.peak"] = peak
    return found


def on_the_cpu() -> None:
    import torch._utils
    from torch.distributed.fsdp import FSDPModule

    torch._utils._get_available_device_type = lambda: "cpu"
    answers = {"get_device_name": lambda *_: "cpu", "get_device_properties": lambda *_: Properties,
               "memory_stats": memory_stats,
               "reset_peak_memory_stats": lambda *_: None, "empty_cache": lambda *_: None, "set_device": lambda *_: None,
               "mem_get_info": lambda *_: (TOTAL_BYTES // 2, TOTAL_BYTES), "current_device": lambda: 0}
    for name, answer in answers.items():
        setattr(torch.cpu, name, answer)
    divide = FSDPModule.set_gradient_divide_factor

    def by_a_sum(self: FSDPModule, factor: float) -> None:
        divide(self, factor)
        self.set_force_sum_reduction_for_comms(True)

    FSDPModule.set_gradient_divide_factor = by_a_sum  # type: ignore[method-assign]


def main() -> None:
    import seatrial_driver  # beside this file
    import torch

    config, device = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "auto"
    if seatrial_driver.begin("torchtitan", device) == "cpu":
        on_the_cpu()
    folder = os.path.dirname(os.path.abspath(config))
    sys.path.insert(0, folder)  # the trial's model
    os.chdir(folder)
    sys.argv = ["torchtitan.train", "--job.config_file", os.path.abspath(config)]
    from torchtitan.train import Trainer
    from torchtitan.train import main as train

    class Watched(Trainer):
        """Its losses before they are summed over ranks are looked at where the sum is no number."""

        own: tuple[torch.Tensor, ...] = ()
        of_step = 0

        def forward_backward_step(self, **batch: object) -> torch.Tensor:
            found = super().forward_backward_step(**batch)
            kept = self.own if self.of_step == self.step else ()
            self.own, self.of_step = (*kept, found.detach()), self.step
            return found

        def train(self) -> None:
            log = self.metrics_processor.log

            def said(step: int, loss: float, *more: object, **others: object) -> None:
                log(step, loss, *more, **others)
                if not math.isfinite(loss) and not all(bool(torch.isfinite(own).all()) for own in self.own):
                    seatrial_driver.lost(step)

            self.metrics_processor.log = said
            super().train()

    train(Watched)
    seatrial_driver.leave()


if __name__ == "__main__":
    main()
