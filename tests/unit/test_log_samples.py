"""Samples of logs and tables that someone other than the readers' author wrote from the engines' code, every value compared.

What a sample says stands beside it in `.expected.json`; `tests/data/logs/README.md` has its form and the rules. `runs_of` and
`rows_of` alone know how a record holds a run, its series and what no field takes.
"""
from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.engines.model import known, model_of
from seatrial.notes.read import import_file
from seatrial.record import Record

DATA = Path(__file__).parents[1] / "data"
LOGS = sorted(path for path in (DATA / "logs").iterdir() if path.suffix in (".log", ".json", ".jsonl", ".csv", ".tfevents")
              and not path.name.endswith(".expected.json"))  # fmt: skip
TABLES = sorted(path for path in (DATA / "tables").iterdir() if path.suffix in (".md", ".html", ".rst"))
IN_SERIES = {"sec_per_it": "sec"}
"""A column -> its name in a run's iterations, where that is another."""
BESIDE = {"cp": "CP", "ep": "EP"}
"""Sizes that a record may keep beside its fields."""
STATED = ("gpus", "nodes", "dp", "tp", "pp", "cp", "ep", "vp", "mbs", "gbs", "zero_stage", "layers", "hidden", "heads",
          "kv_heads", "seq", "vocab")  # fmt: skip
"""What no reader may fill in without marking it as worked out."""
DEGREES = ("dp", "tp", "pp", "cp", "ep")
PREFIXED = ("composer-llm-foundry", "deepspeed-pipeline-0.14", "gpt-neox-v2.0-timers", "maxtext-2025-config",
            "megatron-deepspeed-bigscience-time-limit", "megatron-lm-core0.12-moe", "nanochat-2025-10", "nanogpt-gpt2",
            "nanotron-0.4", "nemo2-2.0-printer", "primus-0.2-colours", "torchtitan-0.2-five-dimensions")  # fmt: skip
"""One sample of each engine whose lines a launcher's label may precede."""
RATES = ("sec_per_it", "tflops", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "mfu", "hfu")


def of(record: Record, name: str) -> Any:
    """A column of a record, worked out or read."""
    value = getattr(record, name, None)
    return int(record.extra[BESIDE[name]]) if value is None and BESIDE.get(name, "") in record.extra else value


def program(name: str) -> str:
    """What trains under that name, where seatrial knows it."""
    return model_of(name).name if known(name) else name


def runs_of(path: Path) -> list[tuple[Record, list[dict[str, Any]]]]:
    """The seam: the runs in a file, each with its steps as `{"step": 10, "sec": 1.25, …}`."""
    found = []
    for record in import_file(path).records:
        steps = [dict(step) for step in record.iterations]
        if not steps and record.iteration is not None:
            names = {**{name: name for name in (*RATES, "loss", "mem_gib")}, **IN_SERIES}
            steps = [{"step": record.iteration, **{new: getattr(record, old) for old, new in names.items()}}]
        found.append((record, steps))
    return found


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        return isinstance(found, int | float) and math.isclose(found, expected, rel_tol=1e-6)
    return bool(found == expected) and isinstance(found, bool) == isinstance(expected, bool)


def differing(record: Record, steps: list[dict[str, Any]], run: dict[str, Any]) -> Iterator[str]:
    status = record.outcome.status if record.outcome else "ok"
    if status != run["status"]:
        yield f"status: {status}, not {run['status']}"
    skipped = run.get("not_compared", [])
    stated = {**run["layout"], **run["model"]}
    for name, value in stated.items():
        found = of(record, name)
        if not same(found, value) and not (name in DEGREES and value == 1 and found is None):
            yield f"{name}: {found}, not {value}"
    for name in set(STATED) - stated.keys() - set(skipped):
        found = None if name in record.inferred else of(record, name)
        one = name in DEGREES and found == 1
        if found is not None and not one and not (name == "kv_heads" and found == stated.get("heads")):
            yield f"{name}: {found}, which the log does not say"
    if len(steps) != run["steps"]:
        yield f"{len(steps)} steps, not {run['steps']}"
        return
    numbers = [step.get("step") for step in steps]
    if not run.get("iterations_unknown") and numbers != run.get("iterations", []):
        yield f"iterations: {numbers}, not {run.get('iterations')}"
    for name, values in run["series"].items():
        found = [step.get(IN_SERIES.get(name, name)) for step in steps]
        for number, value, expected in zip(numbers, found, values):
            if expected == "nan" and (value is None or math.isnan(value)):
                continue
            if not (value is None if expected is None else same(value, expected)):
                yield f"{name} of step {number}: {value}, not {expected}"
                break
    warm = [step.get("step") for step in steps if step.get("warmup")]
    if warm and warm != run["warmup"]:
        yield f"warm-up: {warm}, not {run['warmup']}"
    for name, value in run["figures"].items():
        found = getattr(record, name)
        if not same(found, value):
            yield f"the run's {name}: {found}, not {value}"
    about = run.get("sec_per_it_about")
    if about is not None and not (record.sec_per_it and math.isclose(record.sec_per_it, about, rel_tol=0.01)):
        yield f"the run's sec_per_it: {record.sec_per_it}, not about {about}"
    for name, value in run["per"].items():
        if getattr(record, f"{name}_per") != value:
            yield f"{name} are of a {getattr(record, f'{name}_per')!r}, not {value!r}"


def wrong_in(path: Path, expected: dict[str, Any]) -> list[str]:
    runs = runs_of(path)
    if len(runs) != len(expected["runs"]):
        return [f"{len(runs)} runs, not {len(expected['runs'])}"]
    wrong = [f"run {index}: {text}" for index, (run, found) in enumerate(zip(expected["runs"], runs))
             for text in differing(*found, run)]  # fmt: skip
    for record, _ in runs:
        if expected["engine"] and record.engine and program(record.engine) != program(expected["engine"]):
            wrong.append(f"engine: {record.engine!r}, not {expected['engine']!r}")
    return wrong


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_says_what_its_author_reads_in_it(path):
    assert wrong_in(path, json.loads(path.with_suffix(".expected.json").read_text())) == []


@pytest.mark.parametrize(
    "label",
    ["2024-06-05T09:14:02.123456789Z ", "[1,0]<stdout>:", "gpu-h100-17: ", "worker-0  | ", "[rank0]:", "00: ",
     "\x1b[36m(TrainWorker pid=1234, ip=10.0.0.5)\x1b[0m "],
    ids=["kubectl", "mpirun", "pdsh", "compose", "torchrun", "srun", "ray"],
)  # fmt: skip
def test_what_a_launcher_puts_before_every_line_changes_nothing(tmp_path, label):
    wrong = {}
    for name in PREFIXED:
        path = DATA / "logs" / f"{name}.log"
        (tmp_path / path.name).write_text("".join(label + line for line in path.open(encoding="utf-8")), encoding="utf-8")
        wrong[name] = wrong_in(tmp_path / path.name, json.loads(path.with_suffix(".expected.json").read_text()))
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize("name", [*PREFIXED, "huggingface-trainer-5-quoted", "megatron-bridge-throughput"])
def test_a_number_that_was_cut_off_is_not_read(tmp_path, name):
    """The writer was killed, or the file is still being written: what is read of the steps stays true."""
    path = DATA / "logs" / f"{name}.log"
    (run,) = json.loads(path.with_suffix(".expected.json").read_text())["runs"]
    text = path.read_text(encoding="utf-8")
    inside = [at for at in range(len(text) // 2, len(text)) if text[at - 1].isdigit() and text[at] in "0123456789.,KMBE%"]
    for at in inside[:: len(inside) // 12 or 1]:
        (tmp_path / path.name).write_text(text[:at], encoding="utf-8")
        ((_, steps),) = runs_of(tmp_path / path.name)
        for step, (index, number) in zip(steps, enumerate(run["iterations"])):
            for column, values in run["series"].items():
                found = step.get(IN_SERIES.get(column, column))
                assert found is None or same(found, values[index]), (text[at - 40 : at], column, number)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_a_table_has_the_rows_that_its_author_reads_in_it(path):
    expected = json.loads(path.with_name(f"{path.name}.expected.json").read_text())["rows"]
    found = import_file(path).records
    assert len(found) == len(expected)
    wrong = [f"row {index}: {name}: {of(record, name)}, not {value}" for index, (record, row) in enumerate(zip(found, expected))
             for name, value in row.items() if not same(of(record, name), value)]  # fmt: skip
    assert wrong == []


def test_there_are_enough_of_them():
    engines = {json.loads(path.read_text())["engine"] for path in (DATA / "logs").glob("*.expected.json")}
    assert len(LOGS) >= 60 and len(engines - {""}) >= 12 and len(TABLES) >= 15
