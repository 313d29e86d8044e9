"""Iteration lines of Megatron's many versions, alone in a log or inside notes, as records.

     iteration        5/     100 | consumed samples: 40 | elapsed time per iteration (s): 1.25 | … | TFLOPs: 50.00 |

Milliseconds or seconds, rank prefixes, time stamps, one line broken into three, `lm-loss` with a dash, NVIDIA's throughput per
GPU: all give a record with `iteration` set. Memory and timer lines that follow belong to the iteration before them. Values are
taken as printed; a rate that is a thousand times too small stays so, for lint to say.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from seatrial.notes.read.outline import Outline, Statement
from seatrial.notes.read.parsing import shifted
from seatrial.notes.read.statements import Statements, read_statements
from seatrial.record import Outcome, Record, Status
from seatrial.tables import Problem
from seatrial.tables.headings import setting

_START = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+)\s*\||\biteration\s{2,}(\d+)/\s*(\d+)\s*$")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$")
_KNOWN = re.compile(
    r"(?:consumed (?:samples|tokens)|elapsed time per iteration \(m?s\)|learning rate|global batch size|lm[ -]loss|loss scale|"
    r"grad norm|num zeros|params norm|curriculum seqlen|actual seqlen|number of (?:skipped|nan) iterations|samples per second|"
    r"TFLOPs|tokens per gpu per second[^|:]*|throughput per GPU[^|:]*|random ltd reserved length|skipped samples)\s*:"
)
_MEMORY = re.compile(r"\[Rank (\d+)\] \(after (\d+) iterations\) (CPU )?memory \(MB\)\s*\|\s*(.*)")
_TIMES = re.compile(r"\btimes? \((ms|s)\)\s*\|\s*(.*)|^\s*(?:max|min)? ?time across ranks \((ms)\)")
_ARGUMENT = re.compile(r"^\s*(?:\[[^\]]*\]:?\s*|\d+:\s*)?([a-z][a-z0-9_]+) \.{3,} (\S.*?)\s*$")
_ENDS: tuple[tuple[Status, re.Pattern[str]], ...] = (
    ("oom_device", re.compile(r"CUDA out of memory|CUDA error: out of memory|OutOfMemoryError")),
    ("oom_host", re.compile(r"oom[-_]kill|Out of memory: Killed process|DefaultCPUAllocator: can't allocate")),
    ("hang", re.compile(r"Watchdog caught collective operation timeout|NCCL.*\bhang\b")),
    ("timeout", re.compile(r"DUE TO TIME LIMIT")),
    ("cancelled", re.compile(r"CANCELLED AT")),
    ("crash", re.compile(r"Segmentation fault|ChildFailedError|NCCL (?:error|failure)|terminate called")),
)
_END_WORDS = (
    "out of memory", "OutOfMemory", "oom", "allocate", "timeout", "hang", "TIME LIMIT", "CANCELLED", "fault", "ChildFailed",
    "NCCL", "terminate",
)  # fmt: skip
"""Looked for first, since a log of a thousand ranks has millions of other lines."""
_ENGINES = {("deepspeed", "True"): "megatron-deepspeed", ("use_mcore_models", "True"): "megatron-core",
            ("use_legacy_models", "False"): "megatron-core"}  # fmt: skip
"""Arguments that only one of the programs prints which print such lines."""
MOST_LINES = 4
"""How many lines one iteration line may be broken into."""


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """`key: value | key: value |` as pairs."""
    for part in text.split("|"):
        key, colon, value = part.partition(":")
        key = key.strip()
        if colon and key[:1].isalpha():
            yield key, value.strip()


def starts(line: str) -> bool:
    return "iteration" in line and _START.search(line) is not None


def belongs(line: str) -> bool:
    """Whether a line is part of a log: an iteration line, a piece of one, or what is printed after one."""
    return (
        _START.search(line) is not None
        or _KNOWN.search(line) is not None
        or _MEMORY.search(line) is not None
        or bool(_TIMES.search(line))
    )


@dataclass(kw_only=True)
class _Iteration:
    line: int
    text: str
    lines: int = 1
    breakdown: dict[str, float] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    ended: Outcome | None = None


class LogReader:
    """Fed with lines; gives a record an iteration once it is sure that nothing more belongs to it."""

    def __init__(self, file: str, outline: Outline, *, alone: bool):
        self.file, self.outline, self.alone = file, outline, alone
        self._open: _Iteration | None = None
        self._ended: tuple[int, Outcome] | None = None
        self._any = False

    def feed(self, number: int, line: str) -> Iterator[Record | Problem]:
        """One line. In a log that stands alone, arguments and the cause of its end are read too."""
        if starts(line):
            yield from self.flush()
            match = _START.search(line)
            assert match is not None
            self._open = _Iteration(line=number, text=line[match.start() :])
        elif "|" in line or ":" in line:
            self._after(line)
        if self.alone and self._open is None and (" ..." in line or "parallel" in line):
            self._argument(number, line)
        if self.alone and self._ended is None and any(word in line for word in _END_WORDS):
            for status, pattern in _ENDS:
                if pattern.search(line):
                    self._ended = number, Outcome(status=status, message=line.strip()[:300], evidence={"line": number})
                    break

    def _after(self, line: str) -> None:
        current = self._open
        if current is None:
            return
        memory = _MEMORY.search(line) if "memory (MB)" in line else None
        times = _TIMES.search(line) if "time" in line else None
        if memory:
            figures = {key: float(value) for key, value in _fields(memory.group(4)) if _NUMBER.match(value)}
            current.memory[f"rank {memory.group(1)}"] = {"of": "node" if memory.group(3) else "process", **figures}
        elif times and times.group(2):
            for key, value in _fields(times.group(2)):
                if _NUMBER.match(value):
                    current.breakdown[key] = float(value) if times.group(1) == "s" else shifted(float(value), 3)
        elif current.lines < MOST_LINES and (_KNOWN.search(line) or current.text.rstrip().endswith(":")):
            more = line.strip()
            bar = " |" if _KNOWN.match(more) and current.text.rstrip()[-1:].isdigit() else ""
            current.text += f"{bar} {more}"
            current.lines += 1

    def _argument(self, number: int, line: str) -> None:
        match = _ARGUMENT.match(line)
        content: Statements | None = None
        if match:
            column = setting(match.group(1))
            if match.group(1) in ("bf16", "fp16") and match.group(2) == "True":
                content = Statements(fields={"dtype": match.group(1)})
            elif engine := _ENGINES.get((match.group(1), match.group(2))):
                content = Statements(fields={"engine": engine})
            elif match.group(1) == "checkpoint_activations":
                content = Statements(fields={"recompute": "full" if match.group(2) == "True" else "none"})
            elif column is not None and match.group(2) not in ("None", "[]"):
                content = read_statements(f"--{match.group(1)} {match.group(2)}", heading=True)
        elif "parallel" in line and "size:" in line:
            content = read_statements(line, heading=True)
        if content and (content.fields or content.env):
            self.outline.statements.append(Statement(number, 0, content, heading=True, after=number))

    def flush(self, *, end: bool = False) -> Iterator[Record | Problem]:
        """What is still open; with `end`, also how the log ended."""
        current, self._open = self._open, None
        outcome = self._ended[1] if end and self._ended else None
        if current is not None:
            self._any = True
            yield _record(current, self.file, self.outline, outcome)
        elif outcome is not None and not self._any and self._ended is not None:
            line = self._ended[0]
            around = self.outline.around(line)
            values = {name: stated.value for name, stated in around.values.items()}
            yield Record(
                state="failed", outcome=outcome, source_file=self.file, source_line=line, section=around.section,
                context=around.values, inferred=tuple(sorted(around.inferred)), env=around.env, extra=around.extra, **values,  # type: ignore[arg-type]
            )  # fmt: skip


def _record(current: _Iteration, file: str, outline: Outline, ended: Outcome | None) -> Record | Problem:
    match = _START.match(current.text)
    assert match is not None
    printed = {key: value for key, value in _fields(current.text[match.end() :])}
    values: dict[str, Any] = {"iteration": int(match.group(1) or match.group(3))}
    outcome = ended
    for key, text in printed.items():
        name = _name(key)
        number = float(text) if _NUMBER.match(text) else math.nan
        if not math.isfinite(number):
            if name == "loss" or "loss" in key:
                outcome = outcome or Outcome(status="nan", message=f"{key}: {text}", iteration=values["iteration"])
            elif name in ("sec_per_it", "gbs"):
                message = f"{key}: {text!r} is not a number"
                return Problem(file=file, line=current.line, column=key, cell=text, message=message, level="row", rows=1)
        elif name == "sec_per_it":
            values["time_unit"] = "ms" if "(ms)" in key else "s"
            values["sec_per_it"] = shifted(number, 3) if "(ms)" in key else number
        elif name == "nan":
            if number > 0:
                outcome = outcome or Outcome(status="nan", message=f"{key}: {text}", iteration=values["iteration"])
        elif name in ("gbs", "seq"):
            if number >= 1 and number.is_integer():
                values[name] = int(number)
        elif name:
            values[name] = number
        if name == "tflops" and "per GPU" in key:
            values["tflops_per"] = "process"
    if "sec_per_it" not in values:
        message = "an iteration line without its time"
        return Problem(file=file, line=current.line, cell=current.text[:80], message=message, level="row", rows=1)
    if values["sec_per_it"] <= 0:
        message = f"{values['sec_per_it']} seconds per iteration is not above 0"
        return Problem(file=file, line=current.line, cell=current.text[:80], message=message, level="row", rows=1)
    around = outline.around(current.line)
    inferred = tuple(sorted(name for name in around.inferred if name not in values))
    for name, stated in around.values.items():
        values.setdefault(name, stated.value)
    return Record(
        state="measured", outcome=outcome, source_file=file, source_line=current.line, section=around.section, printed=printed,
        context=around.values, inferred=inferred, env=around.env, extra=around.extra, breakdown=current.breakdown,
        memory=current.memory, **_peak(current.memory), **values,
    )  # fmt: skip


def _name(key: str) -> str:
    key = key.lower()
    if key.startswith("elapsed time per iteration"):
        return "sec_per_it"
    if key.startswith("throughput per gpu"):
        return "tflops"
    if key.startswith("tokens per gpu per second"):
        return "tokens_per_s_per_process"
    return {
        "global batch size": "gbs", "lm loss": "loss", "lm-loss": "loss", "samples per second": "samples_per_s",
        "tflops": "tflops", "curriculum seqlen": "seq", "actual seqlen": "seq", "number of nan iterations": "nan",
    }.get(key, "")  # fmt: skip


def _peak(memory: dict[str, Any]) -> dict[str, Any]:
    """The fullest rank: what the tables' Mem column holds."""
    best: tuple[float, str, str] | None = None
    for figures in memory.values():
        for key in ("max reserved", "max allocated", "used"):
            if key in figures:
                candidate = (figures[key], "node" if figures["of"] == "node" else "fullest rank", key.removeprefix("max "))
                best = candidate if best is None or candidate > best else best
                break
    return {} if best is None else {"mem_value": best[0], "mem_unit": "MiB", "mem_scope": best[1],
                                   "mem_measure": best[2]}
