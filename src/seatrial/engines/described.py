"""An engine that a TOML file describes: whose facts forecast it, its rules, its command, how its lines are read.

    engine = "mine.toml"            in a trial; or --engine mine.toml

    base = "fsdp2"                                      the engine model, with any figure that differs
    rules = ["tp == 1", "heads % tp == 0"]              what it can run, of all words that a command may name
    speaks = "last"                                     the rank that prints its steps, where not the first
    [command]
    argv = ["{python}", "{here}/train.py", "--dp", "{dp}"]
    [[log.line]]                                        as in a log format of one's own (`notes.read.logformat`)

`examples/engines/fsdp2.toml` is one, with the script that it starts; it is what `--engine fsdp2` runs.
"""
from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from seatrial import expression, fields, shipped
from seatrial.engines import homes
from seatrial.engines.base import Per
from seatrial.engines.command import fill, resolved, template_values
from seatrial.engines.foreign import APPLIED
from seatrial.engines.scripted import Scripted, on_cpu
from seatrial.errors import BadInput
from seatrial.files import save
from seatrial.plaindata import read_toml
from seatrial.recipe import Recipe
from seatrial.rules import Violation
from seatrial.spec import Command, Trial


@functools.lru_cache(maxsize=64)
def _read(path: Path) -> dict[str, Any]:
    data = read_toml(path)
    return data.get("engine", data) if isinstance(data.get("engine", data), dict) else data


def describes(path: str) -> bool:
    """Whether the file says how to run its engine, beyond how to forecast it."""
    return "command" in _read(Path(path))


class Described(Scripted):
    beside: tuple[str, ...] = ()
    """Files that its scripts import."""

    def __init__(self, path: Path):
        data = _read(path)
        self.path, self.name, self.model = path, path.stem, str(path)
        self.module = fields.convert(data.get("module", "torch"), str, where=f"{path}: module")
        self.command = fields.build(Command, data["command"], where=f"{path}: command")
        self.rules = fields.convert(data.get("rules", []), tuple[str, ...], where=f"{path}: rules")
        self.format = str(path) if "log" in data else ""
        self.last = fields.convert(data.get("speaks", "first"), Literal["first", "last"], where=f"{path}: speaks") == "last"

    def per(self, trial: Trial) -> Per:
        return self.command.per

    def speaks(self, trial: Trial) -> int:
        return trial.world - 1 if self.last else 0

    def why_not(self, trial: Trial) -> Iterator[Violation]:
        return self._broken(trial, device="cpu" if on_cpu(trial) else trial.execution.device)

    def needs_gpu(self, trial: Trial) -> str:
        """What one of its rules about `device` says."""
        elsewhere = [wrong.message for wrong in self._broken(trial, device="cuda")]
        return next((wrong.message for wrong in self._broken(trial, device="cpu") if wrong.message not in elsewhere), "")

    def _broken(self, trial: Trial, *, device: str) -> Iterator[Violation]:
        words = {name: 0 if value is None else value for name, value in resolved(trial).items()}
        words |= {"rampup_start": trial.batch.rampup_start or 0, "device": device}
        for text in self.rules:
            rule = expression.parse(text, words, cells=True)
            if not rule.holds(words):
                has = ", ".join(f"{name} {words[name]}" for name in sorted(rule.names))
                yield Violation(code="engine", message=f"not for {self.name}: it needs {text}, and here is {has}")

    def _argv(self, trial: Trial, recipe: Recipe, run_dir: Path, *, here: str, python: str) -> tuple[str, ...]:
        return fill(self.command.argv, template_values(trial, recipe, run_dir) | {"here": here, "python": python})

    def check(self, trial: Trial, recipe: Recipe, *, here: bool) -> None:
        super().check(trial, recipe, here=here)
        self._argv(trial, recipe, Path("."), here=".", python="python")
        if self.format:
            from seatrial.notes.read import logformat

            logformat.load(self.format)  # a trial would be run, and nothing of it read
        if here:
            self._scripts()

    def configuration(self, trial: Trial, recipe: Recipe) -> dict[str, str]:
        """File name -> text, of what it is told beside its arguments."""
        return {}

    def argv(self, trial: Trial, recipe: Recipe, run_dir: Path) -> tuple[str, ...]:
        for name, text in self.configuration(trial, recipe).items():
            save(run_dir / name, text)
        return self._argv(trial, recipe, run_dir, here=str(self.path.parent.absolute()),
                          python=homes.python_of(self.name, self.module, trial))

    def files(self, trial: Trial, recipe: Recipe) -> dict[str, str]:
        """The scripts beside it that its command names, and its configuration."""
        return self._scripts() | self.configuration(trial, recipe)

    def _scripts(self) -> dict[str, str]:
        named = [word.removeprefix("{here}/") for word in self.command.argv if word.startswith("{here}/")]
        try:
            return {name: (self.path.parent / name).read_text(encoding="utf-8") for name in (*named, *self.beside)}
        except OSError as error:
            raise BadInput(f"{error.filename}: {error.strerror}; {self.path} names it") from None

    def emitted(self, trial: Trial, recipe: Recipe) -> dict[str, str]:
        if self.command.per == "node" or self.command.argv[0] != "{python}":
            raise BadInput(f"{self.path}: its command starts with {self.command.argv[0]}, once a {self.command.per}: what is "
                           "written is a Python script that torchrun starts once a rank")
        return super().emitted(trial, recipe)

    def by_hand(self, trial: Trial, recipe: Recipe) -> tuple[str, ...]:
        return self._argv(trial, recipe, Path("."), here=".", python="python")[1:]


class Deepspeed(Described):
    """A plain script on DeepSpeed, with its own JSON file."""

    beside, without_layers = ("fsdp2.py",), True
    applied = (*APPLIED, "zero_stage", "mbs")

    def __init__(self) -> None:
        super().__init__(shipped.example("engines/deepspeed.toml"))

    def configuration(self, trial: Trial, recipe: Recipe) -> dict[str, str]:
        from seatrial.plan.emit import deepspeed_config

        optimizer = {"lr": recipe.lr, "betas": [recipe.beta1, recipe.beta2], "eps": recipe.eps, "torch_adam": True,
                     "weight_decay": recipe.weight_decay}
        config = deepspeed_config(trial) | {"gradient_clipping": recipe.clip, "steps_per_print": 1,
                                            "optimizer": {"type": "AdamW", "params": optimizer}}
        return {"ds_config.json": json.dumps(config, indent=2) + "\n"}


class MegatronCore(Described):
    """A small loop over Megatron-core."""

    beside = ("fsdp2.py", "cpu_cuda.py")

    def __init__(self) -> None:
        super().__init__(shipped.example("engines/megatron-core.toml"))


class Accelerate(Described):
    """A transformers model under accelerate."""

    beside = ("fsdp2.py",)

    def __init__(self) -> None:
        super().__init__(shipped.example("engines/accelerate.toml"))


class Fsdp2(Described):
    """The plain script of the examples."""

    def __init__(self) -> None:
        super().__init__(shipped.example("engines/fsdp2.toml"))
