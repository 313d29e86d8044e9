"""Megatron-LM's own pretrain_gpt.py from a checkout: what it can run, a trial as its flags, and how it is started.

    MEGATRON_DIR=~/Megatron-LM seatrial run --engine megatron-lm --model tiny --tp 2

    MegatronLM().files(trial, recipe)       megatron-lm.args: the flags of `plan --emit megatron-lm`, and those of a benchmark:
                                            mock data, no evaluation, every step in the log

Its scripts are in no package, so the checkout is the user's. Layers are Transformer Engine's where that is installed and its
own local ones where not (`drivers/run_megatron_lm.py`); without a GPU it runs on gloo through `cpu_cuda.py` of the examples.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial import shipped
from seatrial.engines import homes
from seatrial.engines.base import Event
from seatrial.engines.foreign import lines, logs
from seatrial.engines.scripted import Scripted, driver
from seatrial.recipe import Recipe
from seatrial.rules import Violation
from seatrial.spec import Trial

if TYPE_CHECKING:
    from seatrial.plan.emit import Dialect

ARGS = "megatron-lm.args"
MEMORY = re.compile(r"\[Rank (?P<rank>\d+)\].* max allocated: (?P<allocated>[\d.]+) .*max reserved: (?P<reserved>[\d.]+)")
"""In MiB, whatever it calls them."""
VOCABULARY = ("--vocab-size", "--make-vocab-size-divisible-by")


class MegatronLM(Scripted):
    name, module, model = "megatron-lm", "torch", "megatron-core"
    takes = ("overlap",)
    unrehearsed = ("its training loop asks a GPU more than is stood in for without one; --engine megatron-core rehearses its "
                   "layers, optimizer and collectives")

    def speaks(self, trial: Trial) -> int:
        return trial.world - 1

    def why_not(self, trial: Trial) -> Iterator[Violation]:
        dialect = _flags_of(trial)
        if not dialect.flags:
            yield from (Violation(code="engine", message=note) for note in dialect.notes)
        m, tp = trial.model, trial.topology.tp
        if m.gated and m.inner % (2 * tp):
            # megatron/training/initialize.py warms its fused SwiGLU up on half of what a rank has.
            less = m.inner // (2 * tp) * 2 * tp
            yield Violation(code="ffn-divisible", message=f"Megatron-LM: ffn {m.inner} over TP {tp} cannot be halved for "
                            f"SwiGLU: {less} or {less + 2 * tp} would do")
        if trial.execution.compile:
            yield Violation(code="engine", message="not for Megatron-LM: it compiles what it compiles, and is not told")

    def needs_gpu(self, trial: Trial) -> str:
        t = trial.topology
        asked = {"sequence parallelism": t.sequence_parallel, f"CP {t.cp}": t.cp > 1, "fp8": t.precision == "fp8",
                 "experts": trial.model.mixture, "latent attention": trial.model.is_latent,
                 f"recompute of {'+'.join(t.modules(trial.model))}":
                     t.recompute == "selective" and t.modules(trial.model) != ("core_attn",)}
        return next((f"megatron-lm: {what} takes Transformer Engine's layers, which are for GPUs alone"
                     for what, is_so in asked.items() if is_so), "")

    def check(self, trial: Trial, recipe: Recipe, *, here: bool) -> None:
        super().check(trial, recipe, here=here)
        if here:
            homes.checkout(self.name, trial)

    def files(self, trial: Trial, recipe: Recipe) -> dict[str, str]:
        dialect = _flags_of(trial)
        flags = [flag for flag in dialect.flags if flag[0] not in VOCABULARY]
        return {ARGS: replace(dialect, flags=[*flags, *_benchmark(trial, recipe)]).text()}

    def read(self, run_dir: Path, *, rank: int | None = None) -> list[Event]:
        """With the memory of every rank that says it: one of each stage does, and those without the loss say nothing else."""
        found = super().read(run_dir, rank=rank)
        said = [one for path in logs(run_dir) for line in lines(path, has="memory (MB)") if (one := MEMORY.search(line))]
        fullest = max(said, key=lambda one: float(one["reserved"]), default=None)
        if fullest is None or not any(e["event"] == "iteration" for e in found):
            return found
        allocated, reserved = (float(fullest[name]) / 2**10 for name in ("allocated", "reserved"))
        on_cpu = any(e.get("device") == "cpu" for e in found)
        peaks = {"rss_peak_gib": reserved} if on_cpu else {"allocated_peak_gib": allocated, "reserved_peak_gib": reserved}
        memory = {"event": "memory", "mem_gib": reserved, "rank": int(fullest["rank"]), "fullest": peaks}
        return [*(e for e in found if e["event"] != "memory"), memory]

    def start(self, trial: Trial, folder: Path) -> tuple[str, ...]:
        checkout, script = homes.checkout(self.name, trial), homes.CHECKOUTS[self.name][-1]
        return (driver("run_megatron_lm.py"), str(checkout / script), str(folder / ARGS), trial.execution.device,
                str(shipped.example("engines/cpu_cuda.py")), homes.version_in(checkout))


def _flags_of(trial: Trial) -> Dialect:
    from seatrial.plan.emit import megatron_lm  # it needs the rules, and they the engines

    return megatron_lm(trial)


def _benchmark(trial: Trial, recipe: Recipe) -> Iterator[tuple[str, ...]]:
    """Mock data, the recipe's optimizer, a line for every step. Of some versions the mock tokenizer has a token more than it is
    told, so it is told one less and the rest is padding: all have the same vocabulary."""
    vocab, tp = trial.model.padded_vocab(trial.topology.tp), trial.topology.tp
    yield ("--mock-data",)
    yield "--tokenizer-type", "NullTokenizer"
    yield VOCABULARY[0], str(vocab - 1)
    yield VOCABULARY[1], str(vocab // tp)
    for flag, value in (("train-iters", recipe.steps), ("seed", recipe.seed), ("lr", recipe.lr), ("min-lr", recipe.min_lr),
                        ("lr-decay-style", "cosine"), ("lr-decay-iters", recipe.decay_steps or recipe.steps),
                        ("lr-warmup-iters", recipe.warmup_steps or 0), ("weight-decay", recipe.weight_decay),
                        ("adam-beta1", recipe.beta1), ("adam-beta2", recipe.beta2), ("adam-eps", recipe.eps),
                        ("clip-grad", recipe.clip), ("init-method-std", recipe.init_std), ("log-interval", 1),
                        ("eval-iters", 0), ("eval-interval", recipe.steps + 1), ("rerun-mode", "disabled"),
                        ("distributed-timeout-minutes", max(2, int(recipe.stall_s / 30) + 1))):
        yield f"--{flag}", str(value)
    if trial.topology.precision == "fp16":
        yield "--initial-loss-scale", str(recipe.loss_scale)
        yield "--loss-scale-window", str(recipe.loss_scale_window)
    yield ("--log-throughput",)
