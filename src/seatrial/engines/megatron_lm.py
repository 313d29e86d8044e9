"""Megatron-LM's own pretrain_gpt.py out of the user's checkout: its flags, mock data, and how it is started.

    MEGATRON_DIR=~/Megatron-LM seatrial run --engine megatron-lm --model llama3-8b --tp 2 --dp 4

Its flags are those that `plan --emit megatron-lm` writes. Nothing of Megatron-LM is here; without a GPU it runs on gloo, with
its local layers, through `examples/engines/cpu_cuda.py`.
"""
from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from seatrial import shipped
from seatrial.engines.base import Event
from seatrial.engines.foreign import logs, tail
from seatrial.engines.scripted import Scripted, driver
from seatrial.errors import BadInput
from seatrial.recipe import Recipe
from seatrial.rules import Violation
from seatrial.spec import Trial

CHECKOUT, SCRIPT, ARGUMENTS = "MEGATRON_DIR", "pretrain_gpt.py", "megatron-lm.args"
MEMORY = re.compile(r"^\[Rank (\d+)\] \(after \d+ iterations\) memory \(MB\) .*\| max reserved: ([\d.]+)", re.M)
"""Its MB are MiB (megatron/training/utils.py)."""


class MegatronLM(Scripted):
    name, module, model = "megatron-lm", "torch", "megatron-core"
    takes = ("overlap",)
    unrehearsed = ("its training loop asks a GPU more than is stood in for without one; --engine megatron-core rehearses its "
                   "layers, optimizer and collectives")

    def speaks(self, trial: Trial) -> int:
        return trial.world - 1

    def why_not(self, trial: Trial) -> Iterator[Violation]:
        from seatrial.plan import emit

        dialect = emit.megatron_lm(trial)
        yield from (Violation(code="engine", message=note) for note in dialect.notes if not dialect.flags)
        if trial.execution.compile:
            yield Violation(code="engine", message="not for Megatron-LM: execution.compile, which it has no flag for")

    def needs_gpu(self, trial: Trial) -> str:
        t = trial.topology
        asked = {f"CP {t.cp}": t.cp > 1, "sequence parallelism": t.sequence_parallel,
                 f"precision {t.precision}": t.precision not in ("fp32", "bf16"), "experts": trial.model.mixture,
                 "latent attention": trial.model.is_latent,
                 "recompute_modules": t.recompute == "selective" and t.modules(trial.model) != ("core_attn",)}
        lacking = [what for what, wanted in asked.items() if wanted]
        return f"Megatron-LM: {', '.join(lacking)}: of Transformer Engine, which is for GPUs alone" if lacking else ""

    def check(self, trial: Trial, recipe: Recipe, *, here: bool) -> None:
        super().check(trial, recipe, here=here)
        if here:
            _checkout(trial)

    def files(self, trial: Trial, recipe: Recipe) -> dict[str, str]:
        from seatrial.plan import emit

        told: emit.Flags = [
            ("--mock-data",), ("--tokenizer-type", "NullTokenizer"), ("--train-iters", str(recipe.steps)),
            ("--lr", str(recipe.lr)), ("--min-lr", str(recipe.min_lr)), ("--lr-decay-style", "cosine"),
            ("--lr-warmup-iters", str(recipe.warmup_steps or 0)), ("--adam-beta1", str(recipe.beta1)),
            ("--adam-beta2", str(recipe.beta2)), ("--adam-eps", str(recipe.eps)), ("--weight-decay", str(recipe.weight_decay)),
            ("--clip-grad", str(recipe.clip)), ("--seed", str(recipe.seed)), ("--eval-iters", "0"), ("--eval-interval", "1000"),
            ("--log-interval", "1"), ("--log-throughput",), ("--rerun-mode", "disabled"),
            ("--distributed-timeout-minutes", str(max(2, int(2 * recipe.stall_s / 60) + 1))),
        ]  # fmt: skip
        return {ARGUMENTS: emit.Dialect(flags=[*emit.megatron_lm(trial).flags, *told], notes=[]).text()}

    def read(self, run_dir: Path, *, rank: int | None = None) -> list[Event]:
        """The last rank says the steps, and the first of each stage its memory, once."""
        found = [event for event in super().read(run_dir, rank=rank) if event["event"] != "memory"]
        held = [(float(said[2]) / 1024, int(said[1])) for path in logs(run_dir) for said in MEMORY.finditer(tail(path))]
        if found and held:
            most, fullest = max(held)
            measure = "rss_peak_gib" if found[0].get("device") == "cpu" else "reserved_peak_gib"
            found.append({"event": "memory", "step": found[-1].get("step"), "mem_gib": most, "rank": fullest,
                          "fullest": {measure: most}})
        return found

    def start(self, trial: Trial, folder: Path) -> tuple[str, ...]:
        return (driver("run_megatron_lm.py"), str(_checkout(trial) / SCRIPT), str(folder / ARGUMENTS), trial.execution.device,
                str(shipped.example("engines")))


def _checkout(trial: Trial) -> Path:
    given = trial.environment.variables.get(CHECKOUT) or os.environ.get(CHECKOUT)
    if not given:
        raise BadInput(f"engine megatron-lm: it is run from your checkout of it, and {CHECKOUT} does not say where that is; "
                       "megatron-core runs without one")
    if not (Path(given) / SCRIPT).exists():
        raise BadInput(f"engine megatron-lm: {CHECKOUT} is {given}, where no {SCRIPT} is")
    return Path(given).absolute()
