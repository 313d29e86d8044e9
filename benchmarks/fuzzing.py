"""Cases for `benchmarks/fuzz.py` and `tests/unit/test_fuzz.py`: what reads the bytes of `mutants.py`, and what must come of it.

    case = fuzzing.case(seed)                   the same for the same seed: a target, and the bytes it is given
    fuzzing.failure(case, folder)               None, or what came: any exception that is not ours, or more than its time
    fuzzing.shrunk(case, folder)                the smallest bytes that still end the same way

A target is the function behind a command. What it makes of a file goes on to what other commands make of that.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.mutants import mutated, samples

from seatrial.errors import SeatrialError

LIMIT_S = 5.0


@dataclass(frozen=True)
class Case:
    seed: int
    target: str
    data: bytes


class TooLong(BaseException):
    """Not an Exception: nothing that is tested may swallow it."""


@cache
def _cluster() -> Any:
    from seatrial import presets

    return presets.cluster("jz-a100")


@cache
def _cold() -> Any:
    from seatrial.plan import calibrate

    return calibrate.cold(_cluster())


class RuleFailed(Exception):
    """What lint tells its users in a finding is a failure here."""


def _none_failed(findings: Any) -> None:
    from seatrial.notes.lint.guard import FAILED

    for finding in findings:
        if finding.code == FAILED:
            raise RuleFailed(finding.message)


def _records(records: Any, rng: random.Random) -> None:
    """What every command makes of records, and that what is written is read again."""
    from seatrial.notes.lint import lint
    from seatrial.plan import rows
    from seatrial.tables.csvjson import to_csv, to_json
    from seatrial.tables.markdown import to_markdown
    from seatrial.tables.short import to_short
    from seatrial.terminal import visible

    records = list(records)[:40]
    which = rng.random()
    if which < 0.4:
        _none_failed(lint(records))
    elif which < 0.7:
        for text in (to_csv(records), to_json(records), to_markdown(records, source=True), to_short(records)):
            visible(text).encode()
    elif which < 0.95:
        _forecast(rows.from_records([record.to_dict() for record in records[:8]], _cluster(), "x"), rng)
    else:
        _page(records)


def _page(records: list[Any]) -> None:
    from seatrial.report import data, page

    page.html(data.build(records, title="t"))


def _forecast(table: Any, rng: random.Random, fit: Any = None) -> None:
    from seatrial.plan import calibrate, forecast

    fit = fit or _cold()
    small = replace(table, rows=table.rows[:8])
    for line in forecast.columns(small, fit):
        assert not any(value in ("nan", "inf", "-inf") for value in line.values()), f"a forecast of {line}"
    if rng.random() < 0.05:
        calibrate.from_table(small, fit.cluster).describe()


def _notes(path: Path, rng: random.Random) -> None:
    from seatrial.notes.lint import look_at
    from seatrial.notes.read import import_file

    found = import_file(path)
    if rng.random() < 0.3:
        _none_failed(look_at([str(path)])[0])
    else:
        _records(found.records, rng)


def _format(path: Path, rng: random.Random) -> None:
    from seatrial.notes.read import import_file

    log = path.with_suffix(".log")
    log.write_bytes(rng.choice(samples()["log"]))
    _records(import_file(log, format=path).records, rng)


def _csv(path: Path, rng: random.Random) -> None:
    from seatrial.plan import rows

    if rng.random() < 0.7:
        _notes(path, rng)
        return
    table = rows.read(path, _cluster())
    _forecast(table, rng)
    if rng.random() < 0.03:
        from seatrial.tune import replay

        replay.read(str(path), cluster="jz-a100")


def _sweep(path: Path, rng: random.Random) -> None:
    from seatrial import presets, trialfile
    from seatrial.plan import forecast
    from seatrial.sweep import file as sweeps

    for call in (
        lambda: trialfile.load(path),
        lambda: sweeps.asked(path),
        lambda: presets.model(str(path)),
        lambda: presets.cluster(str(path)),
        lambda: sweeps.tables(path),
    ):
        with contextlib.suppress(SeatrialError):
            call()
    data = presets.read_toml(path)
    made = sweeps.build({**data, "repeats": 1} if rng.random() < 0.5 else data, where=str(path))
    for task in made.tasks[:5]:
        assert task.label or task.invalid
    if len(made.tasks) <= 50:
        table, here = forecast.table_of(path)
        from seatrial.plan import calibrate

        _forecast(table, rng, calibrate.cold(here))


def _engine(path: Path, rng: random.Random) -> None:
    from seatrial.engines.model import model_of
    from seatrial.plan import rows

    model_of.cache_clear()
    model_of(str(path))
    _forecast(
        rows.from_records([{"layers": 2, "hidden": 1024, "tp": 2, "dp": 2, "engine": str(path)}], _cluster(), "x"), rng
    )


def _machine(path: Path, rng: random.Random) -> None:
    from seatrial import presets
    from seatrial.plan import calibrate, rows

    cluster = presets.cluster(str(path))
    line = {"layers": 2, "hidden": 1024, "dp": 2, "mbs": 2, "gbs": 8, "attention": "fused"}
    _forecast(
        rows.from_records([line, {**line, "tp": 2, "dp": 1}, {**line, "pp": 2, "dp": 1}], cluster, "x"),
        rng,
        calibrate.cold(cluster),
    )


def _calibrated(path: Path, rng: random.Random) -> None:
    from seatrial.plan import calibrate, rows

    fit = calibrate.from_file(path, _cluster())
    fit.describe()
    for doubt in fit.doubted:
        assert f"{doubt.measured_s:.5g}"
    table = rows.from_records([{"layers": 40, "hidden": 4096, "tp": 2, "pp": 2, "nodes": 1}], _cluster(), "x")
    _forecast(table, rng, fit)


def _config(path: Path, rng: random.Random) -> None:
    from seatrial.huggingface import hfconfig
    from seatrial.plaindata import read_json

    if isinstance(found := read_json(path), dict):
        hfconfig.config_of(hfconfig.model_of(found, where=str(path)), dtype="float32")


def _manifest(path: Path, rng: random.Random) -> None:
    from seatrial import fields
    from seatrial.engine.io import checkpoint
    from seatrial.plaindata import parse_json
    from seatrial.spec import Model

    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    data = path.read_bytes()
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError, KeyError):
        found = parse_json(data)
        found.pop("digest")
        data = json.dumps({**found, "digest": checkpoint._digest(found)}).encode()
    (folder / checkpoint.MANIFEST).write_bytes(data)
    try:
        found = checkpoint.open_checkpoint(folder)
        if found.model is not None:
            checkpoint.check_model(found, fields.build(Model, found.model, where="model"))
    finally:
        (folder / checkpoint.MANIFEST).unlink()
        folder.rmdir()


def _run(path: Path, rng: random.Random) -> None:
    from seatrial import rules
    from seatrial.engine import runfile

    found = runfile.read(path)
    rules.violations(found.trial)
    assert found.trial.run_id()


def _book(path: Path, rng: random.Random) -> None:
    from seatrial.logbook import Logbook
    from seatrial.plan import rows
    from seatrial.report.read import read
    from seatrial.sweep import compare

    folder = path.with_suffix("")
    (folder / "segments").mkdir(parents=True, exist_ok=True)
    segment = folder / "segments" / "a.jsonl"
    segment.write_bytes(path.read_bytes())
    try:
        records, unread = read([folder])
        _records(records, rng)
        with Logbook(folder) as book:
            found, _ = book.rows({"state": "measured"})
            list(book.records({"outcome": ["ok", None], "trial.topology.tp": 1}, order=["-tflops"]))
        compare.all_together(compare.side_by_side(found, found, apart=["session"]))
        rows.read(folder, _cluster())
        assert all(re.search(r"\.jsonl:\d+: ", line) for line in unread), unread
    finally:
        segment.unlink()
        (folder / "segments").rmdir()
        folder.rmdir()


def _options(path: Path, rng: random.Random) -> None:
    from seatrial.plaindata import parse_json
    from seatrial.plan.request import Request, number, share

    try:
        said = parse_json(path.read_bytes())
        assert isinstance(said, dict) and isinstance(said.get("fixed"), dict)
        words = {
            key: value if value is None or key == "nodes" else str(value)
            for key, value in said.items()
            if key in ("model", "cluster", "rampup", "sequence_parallel", "precision", "headroom", "nodes")
        }
        nodes = words.pop("nodes", None)
        fixed = {key: None if value is None else str(value) for key, value in said["fixed"].items()}
        settings = [str(value) for value in said.get("settings", [])]
        model, cluster = words.pop("model"), words.pop("cluster")
    except (ValueError, AssertionError, KeyError, TypeError, RecursionError):
        return  # not what a command line is made of
    for text in [*fixed.values(), *settings]:
        for read in (number, share):
            with contextlib.suppress(SeatrialError):
                read("x", text or "")
    Request.read(
        model=model,
        cluster=cluster,
        nodes=nodes if type(nodes) is int else None,
        fixed=fixed,
        settings=settings,
        **words,
    )  # type: ignore[arg-type]


def _rule(path: Path, rng: random.Random) -> None:
    from seatrial import expression
    from seatrial.commands.compare import _filter
    from seatrial.logbook.records import clause_of, matches

    text = path.read_bytes().decode("utf-8", "surrogateescape")
    values = dict.fromkeys(("dp", "tp", "pp", "vp", "mbs", "gbs", "nodes", "layers"), 8)
    for part in (text, *text.split(" and ")):
        with contextlib.suppress(SeatrialError):
            key, wanted = _filter(part.replace("==", "=").replace(" ", ""), [(values, {})], path)
            clause_of(key, wanted)
            matches({"dp": 8, "trial": {"a": [1]}}, key, wanted)
    expression.parse(text, names=values).holds(values)


def _set(path: Path, rng: random.Random) -> None:
    from seatrial import trialfile

    text = path.read_bytes().replace(b"\0", b"").decode("utf-8", "surrogateescape")
    trialfile.build({"model": "tiny", "batch": {"gbs": 8}, "cluster": "jz-a100"}, [text])


def _native(path: Path, rng: random.Random) -> None:
    """What other engines are told."""
    from seatrial import trialfile

    trialfile.load(path)


def _device(path: Path, rng: random.Random) -> None:
    from seatrial import machine
    from seatrial.plan import imported
    from seatrial.probe import published

    made = imported.build([published.read(path)], device=None if rng.random() < 0.5 else "h100-80gb")
    machine.checked(made, str(path))
    machine.dumps(made)


TARGETS: dict[str, tuple[str, str, Callable[[Path, random.Random], None], int]] = {
    "notes": ("md", "t.md", _notes, 20), "csv": ("csv", "t.csv", _csv, 20), "log": ("log", "t.log", _notes, 6),
    "records": ("records", "t.jsonl", _notes, 10), "json": ("records", "t.json", _notes, 3), "text": ("md", "t.txt", _notes, 2),
    "metrics": ("metrics", "t.jsonl", _notes, 4), "tracker": ("metrics", "t.json", _notes, 4),
    "events": ("events", "t.tfevents", _notes, 2), "format": ("format", "t.toml", _format, 3),
    "sweep": ("sweep", "t.toml", _sweep, 16), "engine": ("engine", "t.toml", _engine, 3),
    "machine": ("machine", "t.json", _machine, 4), "calibration": ("calibration", "t.json", _calibrated, 3),
    "config": ("config", "t.json", _config, 6), "manifest": ("manifest", "t.json", _manifest, 3),
    "run": ("run", "t.json", _run, 4),
    "book": ("book", "t.jsonl", _book, 8), "options": ("options", "t.json", _options, 5), "rule": ("rule", "t.txt", _rule, 5),
    "set": ("set", "t.txt", _set, 5), "device": ("device", "t.log", _device, 3), "script": ("script", "t.sh", _native, 4),
    "yaml": ("yaml", "t.yaml", _native, 2), "deepspeed": ("json", "t.json", _native, 2),
}  # fmt: skip
"""Kind of sample, name of the file, who reads it, how often."""


def case(seed: int, only: str = "") -> Case:
    rng = random.Random(seed)
    names = list(TARGETS)
    target = only or rng.choices(names, weights=[TARGETS[name][3] for name in names])[0]
    mine = samples()[TARGETS[target][0]] or samples()["md"]
    data = rng.choice(mine)
    if target == "book":
        data = b"".join(rng.choice(mine) for _ in range(rng.randint(1, 4)))
    if target == "json":
        data = b"[" + b",\n".join(rng.choice(mine) for _ in range(rng.randint(1, 3))) + b"]"
    every = mine if rng.random() < 0.8 else rng.choice(list(samples().values()))
    return Case(seed, target, mutated(data, rng, every, toml=TARGETS[target][1].endswith(".toml")))


@dataclass(frozen=True)
class Failure:
    what: str
    """The exception and where it was raised: the same for the same cause."""
    trace: str


def failure(one: Case, folder: Path, limit_s: float = LIMIT_S) -> Failure | None:
    _, name, read, _ = TARGETS[one.target]
    path = folder / name
    path.write_bytes(one.data)
    # By the processor's clock: a machine that others use is no slow input.
    signal.signal(signal.SIGVTALRM, _over)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path, random.Random(one.seed))
    except SeatrialError as error:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return None if str(error).strip() else Failure("an empty message", traceback.format_exc())
    except BaseException as error:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if isinstance(error, KeyboardInterrupt):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if f"{os.sep}seatrial{os.sep}" in f.filename] or frames
        where = (
            ""
            if isinstance(error, TooLong)
            else f" {error}"
            if isinstance(error, RuleFailed)
            else f" at {Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"
        )
        return Failure(f"{type(error).__name__}{where}", "".join(traceback.format_exception(error)[-6:]))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


def _over(*_: object) -> None:
    raise TooLong


def shrunk(one: Case, folder: Path, tries: int = 400, seconds: float = 20.0) -> Case:
    """Pieces are taken out, the larger first, as long as it ends the same way."""
    until = time.monotonic() + seconds
    found = failure(one, folder)
    if found is None:
        return one
    limit = tries
    size = max(1, len(one.data) // 2)
    while size and limit > 0 and time.monotonic() < until:
        at = 0
        while at < len(one.data) and limit > 0 and time.monotonic() < until:
            less = replace(one, data=one.data[:at] + one.data[at + size :])
            limit -= 1
            again = failure(less, folder)
            if again is not None and again.what == found.what:
                one = less
            else:
                at += size
        size //= 2
    return one


def warm() -> None:
    """Everything that is imported or made once, so that workers start with it and no case is blamed for it."""
    import tempfile

    samples()
    with tempfile.TemporaryDirectory() as name:
        for target in TARGETS:
            for seed in range(20):
                failure(case(seed, target), Path(name), limit_s=60.0)
