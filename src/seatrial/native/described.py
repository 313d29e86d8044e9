"""The command of an engine that a TOML file describes, read back: its template says which option is which word of a trial.

    of_command(flags, "fsdp2", started, where="train.sh", folder=Path("."))
"""
from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

from seatrial import shipped
from seatrial.columns import BY_FIELD
from seatrial.errors import BadInput
from seatrial.native import deepspeed, shell
from seatrial.native.base import Native, data_parallel, near, shaped
from seatrial.native.told import Told
from seatrial.plaindata import read_toml

SCRIPTS = {"fsdp2.py": "fsdp2", "ds_train.py": "deepspeed", "mcore_train.py": "megatron-core",
           "accelerate_train.py": "accelerate"}
"""Script that the command names -> its engine among the examples."""
CHOICES = ("norm", "positions", "mlp")
UNSAID = frozenset("""
    device steps seed lr clip repeat model nodes procs_per_node world microbatches python
""".split())


def engine_of(text: str) -> str | None:
    return next((engine for script, engine in SCRIPTS.items() if script in text), None)


def of_command(found: list[shell.Flag], engine: str, started: shell.Started, *, where: str, folder: Path) -> Native:
    argv = read_toml(shipped.example(f"engines/{engine}.toml"))["command"]["argv"]
    words = {flag[2:].replace("-", "_"): word[1:-1] for flag, word in itertools.pairwise(argv)
             if flag.startswith("--") and re.fullmatch(r"\{\w+\}", word)}
    given = {flag.name: shell.one(flag, where) for flag in shell.of_program(found)}
    told = Told({words.get(name, name): value for name, value in given.items()}, where)
    tables: dict[str, dict[str, Any]] = {"model": {}, "topology": {}, "batch": {}, "execution": {}}
    for word in dict.fromkeys(words.values()):
        column = BY_FIELD.get(word)
        if word in UNSAID or word in CHOICES or column is None or not told.has(word) or column.table not in tables:
            continue
        value = told.on(word) if column.type is bool else told.whole(word, least=0) if column.type is int else told.values[word]
        told.neutral((word,))
        tables[column.table][word] = value
    told.neutral(UNSAID)
    model, layout = tables["model"], tables["topology"]
    if (padded := told.whole("padded_vocab")) is not None:
        model |= {"vocab": padded, "pad_vocab_to": padded}
    tied = model.pop("tied", False)
    model |= shaped(**{name: told.get(name) for name in CHOICES if told.has(name)}, tied=tied,
                    biases="all" if told.on("biased") else "none", qk_norm=False, embedding_norm=False)
    layout.setdefault("sequence_parallel", False)
    if layout.get("recompute") != "selective" or layout.get("recompute_modules") == "core_attn":
        layout.pop("recompute_modules", None)  # what is there without a list
    if layout.get("vp", 1) > 1:
        layout.setdefault("schedule", "interleaved")
    others = layout.get("tp", 1) * layout.get("pp", 1) * layout.get("cp", 1)
    product = f"TP {layout.get('tp', 1)} x PP {layout.get('pp', 1)}"
    layout |= data_parallel(where, started.world, others, said=None, product=product)
    notes, unread = [], [name for name in told.left() if name != "config"]
    if (config := told.get("config")) is not None:
        path = near(folder, str(config), where)
        read = deepspeed.of_config(deepspeed.config_of(path), where=str(path), dp=layout.get("dp"))
        for table, name in (("topology", "mbs"), ("batch", "gbs")):
            said, other = tables[table].get(name), read.tables[table].get(name)
            if other not in (None, said):
                raise BadInput(f"{where}: {name} {said} in the command and {other} in {path.name}")
        kept = ("zero", "zero_group", "weights_group", "precision")
        layout |= {name: value for name, value in read.tables["topology"].items() if name in kept}
        notes, unread = list(read.notes), [*unread, *read.unread]
    if layout.get("zero_group") == layout.get("dp", 0) * layout.get("cp", 1):
        layout.pop("zero_group")
    return Native(format=f"command of {engine}", unread=tuple(unread), notes=tuple(notes),
                  tables={"engine": engine, **{name: value for name, value in tables.items() if value}})
