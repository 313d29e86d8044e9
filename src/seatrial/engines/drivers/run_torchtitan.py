"""torchtitan.train for one rank, on a GPU or on the CPU: run_torchtitan.py CONFIG.toml [auto|cpu|cuda]

torchtitan knows no CPU device: here it is named, asked for its memory as a GPU would be, and FSDP's gradients are summed by a
plain sum, since gloo has no PREMUL_SUM. Nothing of torchtitan's own files is changed.
"""
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
    from torch.distributed.tensor import DTensor
    from torchtitan.train import Trainer
    from torchtitan.train import main as train

    class Watched(Trainer):
        """Its losses before they are summed over ranks, or what its stages hand on, are looked at after every step."""

        own: dict[int, list[torch.Tensor]]
        last = 0

        def forward_backward_step(self, **batch: object) -> torch.Tensor:
            found = super().forward_backward_step(**batch)
            if not self.parallel_dims.pp_enabled or self.pp_has_last_stage:
                self.keep(self.last, found)
            return found

        def keep(self, stage: int, found: torch.Tensor) -> None:
            found = found.detach()
            self.own.setdefault(stage, []).append((found.to_local() if isinstance(found, DTensor) else found).sum())

        def train(self) -> None:
            log, self.own = self.metrics_processor.log, {}
            if self.parallel_dims.pp_enabled:
                schedule = self.pp_schedule
                for one in getattr(schedule, "_stages", None) or [schedule._stage]:
                    if one.is_last:
                        self.last = one.stage_index
                    else:
                        one.submod.register_forward_hook(lambda _, __, out, stage=one.stage_index: self.keep(stage, out))

            def said(step: int, *more: object, **others: object) -> None:
                log(step, *more, **others)
                bad = [stage for stage, found in self.own.items() if not torch.isfinite(torch.stack(found)).all()]
                if bad:
                    seatrial_driver.lost(step, min(bad))
                self.own.clear()

            self.metrics_processor.log = said
            super().train()

    train(Watched)
    seatrial_driver.leave()


if __name__ == "__main__":
    main()
