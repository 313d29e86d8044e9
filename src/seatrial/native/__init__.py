"""What people already run as a trial: the configuration of another engine, read by one door.

    read(Path("train.sh"))              Native with the tables of a trial, what was not understood, what is missing
    read(Path("trial.toml"))            None: a trial or a sweep of ours

Megatron's flags (a script, an arguments file, the block in a log), torchtitan's TOML, DeepSpeed's and Hugging Face's JSON,
NeMo's and accelerate's YAML, the commands of `examples/engines`, or a folder that has one of them. Nothing in it is executed.
"""
from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial import plaindata
from seatrial.errors import BadInput
from seatrial.native.base import Native, near
from seatrial.spec import Trial

__all__ = ["Native", "WRITERS", "read"]

INSIDE = ("train.slurm", "train.sh", "torchtitan.toml", "nemo.yaml", "accelerate.yaml", "megatron-lm.args",
          "megatron-deepspeed.args", "ds_config.json", "config.json")
"""Looked for in a folder, in this order."""
WRITTEN = (*INSIDE, "training_args.json", "run.json")
KINDS = (".sh", ".slurm", ".sbatch", ".toml", ".yaml", ".yml", ".json", ".args")
MOST = 64 << 20


def _nemo(trial: Trial) -> dict[str, str]:
    from seatrial.native import nemo

    return nemo.files(trial)


def _accelerate(trial: Trial) -> dict[str, str]:
    from seatrial.native import accelerate

    return accelerate.files(trial)


WRITERS: dict[str, Callable[[Trial], dict[str, str]]] = {"nemo": _nemo, "accelerate": _accelerate}
"""Configurations that are written and read alone: such an engine is not run here."""
KNOWN = "Megatron's flags, torchtitan's TOML, DeepSpeed's or Hugging Face's JSON, NeMo's or accelerate's YAML, a trial as TOML"


def read(path: Path) -> Native | None:
    """None for a TOML file in our own words. Raises BadInput for what is no configuration that is known here."""
    if path.is_dir():
        inside = next((path / name for name in INSIDE if (path / name).exists()), None)
        if inside is None:
            raise BadInput(f"{path}: a folder without any of {', '.join(INSIDE)}")
        found = read(inside)
        others = sorted(other.name for other in path.iterdir() if other.suffix in KINDS and other.name not in WRITTEN)
        return replace(found, notes=(f"of the folder {inside.name} is read; not {', '.join(others)}: name one of them for it",
                                     *found.notes)) if found is not None and others else found
    suffix = path.suffix.lower()
    if suffix == ".toml":
        return _of_toml(plaindata.read_toml(path), path)
    if suffix == ".json":
        return _of_json(plaindata.read_json(path), path)
    if suffix in (".yaml", ".yml"):
        return _of_yaml(_yaml(path), path)
    return _of_text(plaindata.read_text(path, most=MOST, what="configuration"), path)


def _of_toml(data: Mapping[str, Any], path: Path) -> Native | None:
    from seatrial.native import torchtitan

    if "topology" in data or "batch" in data or not torchtitan.is_config(data):
        return None
    return torchtitan.of_config(data, where=str(path), folder=path.parent)


def _of_json(data: Any, path: Path) -> Native:
    from seatrial.native import accelerate, deepspeed
    from seatrial.presets import foreign

    if deepspeed.is_config(data):
        notes: list[str] = []
        found = deepspeed.of_config(data, where=str(path), model=accelerate.model_beside(path.parent, None, notes))
        return replace(found, notes=(*found.notes, *notes))
    if isinstance(data, Mapping) and "model_type" in data:
        model = foreign.values_of(str(path)) or {}
        return Native(format="Hugging Face config.json", tables={"model": model},
                      notes=("a model alone: --gbs, --tp, --pp and their like say the rest", *accelerate.longest(model)))
    raise BadInput(f"{path}: neither a DeepSpeed configuration nor a model's config.json; known are {KNOWN}")


def _of_yaml(data: Mapping[str, Any], path: Path) -> Native:
    from seatrial.native import accelerate, nemo

    if accelerate.is_yaml(data):
        return accelerate.of_yaml(data, where=str(path), folder=path.parent)
    if nemo.is_yaml(data):
        return nemo.of_yaml(data, where=str(path))
    raise BadInput(f"{path}: neither accelerate's YAML (distributed_type) nor NeMo's (model.tensor_model_parallel_size); "
                   f"known are {KNOWN}")


def _of_text(text: str, path: Path) -> Native | None:
    from seatrial.native import accelerate, deepspeed, described, megatron, shell

    where, folder = str(path), path.parent
    if megatron.BLOCK.search(text) or re.search(r"--(?:num-layers|tensor-model-parallel-size|hidden-size)\b", text):
        return megatron.of_text(text, where=where, folder=folder)
    found = shell.flags(text)
    started = shell.launched(found, text)
    if (engine := described.engine_of(text)) is not None:
        return described.of_command(found, engine, started, where=where, folder=folder)
    if (run := deepspeed.of_script(found, started, where=where, folder=folder,
                                   model=functools.partial(accelerate.model_beside, folder))) is not None:
        return run
    named = next((flag.values[0] for flag in found if flag.name in ("job.config_file", "config_file") and flag.values), None)
    if named is not None:
        return _named(near(folder, named, where), found, started, where)
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"{path}: no configuration of an engine in it; known are {KNOWN}") from None
    return None


def _named(path: Path, found: list[Any], started: Any, where: str) -> Native:
    """The file that a command names, with the options that it puts over torchtitan's or accelerate's."""
    from seatrial.native import accelerate, shell, torchtitan

    if path.suffix == ".toml":
        data = plaindata.read_toml(path)
        for flag in found:
            table, dot, key = flag.name.partition(".")
            if dot and flag.name != "job.config_file":
                value: Any = flag.values[0] if len(flag.values) == 1 else list(flag.values) or True
                whole = isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value)
                data.setdefault(table, {})[key] = int(value) if whole else value
        return torchtitan.of_config(data, where=where, folder=path.parent, world=started.world)
    if path.suffix in (".yaml", ".yml") and accelerate.is_yaml(yaml := _yaml(path)):
        given = {flag.name: flag.values[0] if flag.values else True for flag in shell.of_program(found)}
        given |= {"num_processes": started.processes} if started.processes is not None else {}
        return accelerate.of_yaml(yaml, where=where, folder=path.parent, given=given)
    raise BadInput(f"{where}: it names {path.name}, which is neither torchtitan's TOML nor accelerate's YAML")


def _yaml(path: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError:
        raise BadInput(f"{path}: PyYAML is not installed here, which reads such a file: pip install pyyaml") from None

    class Loader(yaml.SafeLoader):
        """Without references: a few lines of them stand for more than memory holds."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise yaml.YAMLError("references (*name) are not read")
            return super().compose_node(parent, index)

    try:
        data = yaml.load(plaindata.read_text(path, most=1 << 20, what="YAML file"), Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadInput(f"{path}: not YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(data, dict):
        raise BadInput(f"{path}: expected tables, as a configuration has")
    found: Mapping[str, Any] = _named_keys(plaindata.bounded(data, str(path)))
    return found


def _named_keys(data: Any) -> Any:
    """Keys of YAML may be numbers; those of a configuration are names."""
    if isinstance(data, dict):
        return {str(key): _named_keys(value) for key, value in data.items()}
    return [_named_keys(value) for value in data] if isinstance(data, list) else data
