"""Logs of training programs, alone or inside notes, by the formats that describe them (`logformat.py`).

    reader = LogReader("train.log", alone=True, formats=formats)         fed with lines, gives records
    starts(line), belongs(line)                              whether a line of notes is a step, or goes with one

A line belongs to the first format that claims it, and formats that may stand in each other's logs say which counts. Rank
prefixes are taken off; the rank that prints a step first speaks for the run, and of the others only memory counts. A run ends
where another starts: its program prints its start again, or its steps count from the beginning. Lines that look like progress
and that no format reads are counted, and said once.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from seatrial.notes.read.ends import ended_by
from seatrial.notes.read.files import read_lines
from seatrial.notes.read.logformat import Figure, Format, Line, plain, shipped
from seatrial.notes.read.loglines import figures, judge, pairs
from seatrial.notes.read.logsettings import say
from seatrial.notes.read.outline import Outline
from seatrial.notes.read.runs import Run, Step, gib, lacking, step_record
from seatrial.record import Outcome, Record
from seatrial.tables import Problem

LONGEST_STEP, LONGEST_SETTINGS, SEARCHED = 5000, 100_000, 400
"""Letters of a line that may be a step, of one that may be settings, and of one that is searched for progress."""
LINES_SEARCHED, LINES_AFTER = 50_000, 200
"""Lines in which the first step is looked for, and how many after it for a format that counts for more."""
_RANK = re.compile(
    r"\s*(?:\[(?:rank|default|trainer|worker)?_?(\d{1,6})\]:? ?|\[\d+,(\d{1,6})\]<std(?:out|err)>: ?|(\d{1,6}): |"
    r"(?:worker|node|host)[-_]?(\d{1,6}): |\(\w+ pid=(\d+)(?:, ip=[\d.]+)?\) |([A-Za-z][\w.]*(?:-[\w.]+)+): |"
    r"([a-z][\w.]*-\d+)\s+\| |\d{4}-\d\d-\d\dT[\d:.]+Z )"
)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$")
_PROGRESS = re.compile(
    r"^(?!.*\b(?:eval|valid|val_|val |CORE)).*\b(?:step|iter|iteration|batch)[ =:#]*\d+"
    r".*(?:loss|ms|s/it|tok\w*/s|tflops?|samples/s).*\d\.\d", re.IGNORECASE,
)  # fmt: skip


def unprefixed(line: str) -> tuple[str, str]:
    """(rank, text without the prefix that launchers put before it)."""
    match = _RANK.match(line)
    if match is None:
        return "", line
    return next((group for group in match.groups() if group is not None), ""), line[match.end() :]


def _claim(text: str, formats: Sequence[Format]) -> tuple[Format, Line, re.Match[str]] | None:
    if len(text) > LONGEST_STEP:
        return None
    for format in formats:
        for line in format.steps:
            if match := line.match(text):
                return format, line, match
    return None


def is_step(line: str) -> bool:
    """Whether a line is a step of any format."""
    return _claim(unprefixed(line)[1], shipped()) is not None


def starts(line: str) -> bool:
    """Whether a line of notes is a step of one of the formats that are told by a single line."""
    return any(found.match(line) for found in _told() if found.has in line)


@cache
def _told() -> list[Line]:
    return [found for format in shipped() if format.needs for found in format.steps]


def belongs(line: str) -> bool:
    """Whether a line is part of a log inside notes: a step, a piece of one, or what is printed after one."""
    of_notes = [found for format in shipped() if format.needs for found in format.line]
    return starts(line) or any(found.kind in ("memory", "timers") and found.match(line) is not None
                               or found.kind == "step" and _continues(found, line) for found in of_notes)  # fmt: skip


def _continues(line: Line, text: str) -> bool:
    if line.wrapped == 1 or line.pair is None or ":" not in text:
        return False
    return any(_key(line, match) is not None for match in line.pair.finditer(text))


def _key(line: Line, match: re.Match[str]) -> Figure | None:
    return line.figures.get(plain(match.group("key")))


def choose(path: Path, formats: Sequence[Format]) -> Format | None:
    """The format of the first step, or of one soon after it that counts for more."""
    lines = (unprefixed(text)[1] for _, text in read_lines(path))
    found: Format | None = None
    for text in islice(lines, LINES_SEARCHED):
        if claimed := _claim(text, formats):
            found = claimed[0]
            break
    for text in islice(lines, LINES_AFTER if found else 0):
        claimed = _claim(text, formats)
        if claimed and found and found.name in claimed[0].before:
            found = claimed[0]
    return found


class LogReader:
    """Fed with lines; gives a record a run, or a record a step once it is sure that nothing more belongs to it."""

    def __init__(self, file: str, outline: Outline | None = None, *, alone: bool, formats: Sequence[Format] = (),
                 first: Format | None = None, each: bool = True):
        self.file, self.outline, self.alone, self.each = file, outline, alone, each
        self.formats = tuple(formats) or shipped()
        self._format = first
        self._run: Run | None = None
        self._step: Step | None = None
        self._line: Line | None = None
        self._wrapped, self._text = 1, ""
        self._settings: dict[str, Run] = {}
        """Of each format, what its lines of configuration have said since the last run."""
        self._ended: Outcome | None = None
        self._rank: str | None = None
        self._done: set[int] = set()
        self._last: int | None = None
        self._runs = self._others = 0
        self._strange: tuple[int, int] | None = None
        self._held: Step | None = None
        self._apart = 0
        """Lines since the last step that do not belong to it."""
        self._waiting: dict[str, Any] = {}
        """Of a format that counts for less, for the step that follows."""

    # ---- one line

    def feed(self, number: int, line: str) -> Iterator[Record | Problem]:
        rank, text = unprefixed(line) if self.alone else ("", line)
        claimed = _claim(text, self._candidates())
        if claimed is not None:
            yield from self._begin(number, rank, *claimed)
            if not self.alone:
                return
        elif not self._goes_on(text):
            self._apart += 1
            if self.alone and not self._other(text) and _PROGRESS.search(text[:SEARCHED]):
                first, count = self._strange or (number, 0)
                self._strange = first, count + 1
        if self.alone:
            if self._run is not None and self._format is not None and self._format.start and self._format.start.search(text):
                yield from self._close()
            self._configure(number, text)
            if self._ended is None:
                self._ended = ended_by(number, text)

    def _candidates(self) -> Sequence[Format]:
        """The log's own format first: what it knows is never another's."""
        if self._format is None:
            return self.formats
        return (self._format, *(one for one in self.formats if one is not self._format))

    def _begin(self, number: int, rank: str, format: Format, line: Line, match: re.Match[str]) -> Iterator[Record | Problem]:
        values, printed = figures(line, match)
        if self._format is not None and format.name in self._format.before:
            self._merge(values)
            return
        if "iteration" not in values and "iteration" in self._waiting:
            values, self._waiting = {**self._waiting, **values}, {}
        iteration = values.get("iteration")
        same = self._step is not None and self._format is format and iteration is not None
        if same and iteration == self._last and not (self.alone and rank != (self._rank or rank)):
            assert self._step is not None
            if line is not self._line:
                self._step.values = {**values, **self._step.values}
                self._step.printed |= printed
                return
        if self.alone and self._run is not None and self._format is format and self._copy(rank, iteration):
            self._others += 1
            self._fuller(values)
            return
        if self._run is not None and self._new_run(format, iteration):
            yield from self._close()
        else:
            yield from self._finish()
        if self._run is None and self.alone:
            self._run = self._opened(format)
            self._rank, self._done = rank, set()
        self._format = format
        if self._waiting.get("iteration", iteration) == iteration:
            values = {**self._waiting, **values}
        self._waiting = {}
        self._step, self._line = Step(line=number, values=values, printed=printed), line
        self._wrapped, self._text = 1, match.string
        self._apart = 0
        if isinstance(iteration, int):
            self._last = iteration
            self._done.add(iteration)
            if len(self._done) > 64:
                self._done = {one for one in self._done if one > iteration - 32}

    def _copy(self, rank: str, iteration: object) -> bool:
        """Whether another rank prints a step that the run has already; after its end it is another run's."""
        if self._ended is not None:
            return False
        if rank != self._rank:
            return True
        if not isinstance(iteration, int) or self._last is None or iteration not in self._done:
            return False
        return iteration == self._last or iteration == self._last - 1 and self._apart == 0

    def _new_run(self, format: Format, iteration: object) -> bool:
        if format is not self._format or self._ended is not None:
            return True
        return isinstance(iteration, int) and self._last is not None and iteration <= self._last

    def _goes_on(self, text: str) -> bool:
        """What belongs to the open step: the rest of a line that was broken, memory, timers, lines of its block."""
        step, line, format = self._step, self._line, self._format
        if step is None or line is None or format is None or len(text) > LONGEST_STEP:
            return False
        for one in format.line:
            if one.kind in ("memory", "timers", "more") and (match := one.match(text)):
                self._more(step, one, match)
                return True
        broken = _continues(line, text) or self._text.rstrip().endswith(":")
        if line.pair is not None and self._wrapped < line.wrapped and broken:
            more = text.strip()
            known = line.pair.match(more)
            bar = " |" if known and _key(line, known) is not None and self._text.rstrip()[-1:].isdigit() else ""
            match = line.match(f"{self._text}{bar} {more}")
            if match is None:
                return False
            self._text += f"{bar} {more}"
            self._wrapped += 1
            step.values, step.printed = figures(line, match)
            return True
        return False

    def _more(self, step: Step, line: Line, match: re.Match[str]) -> None:
        if line.kind == "more":
            values, printed = figures(line, match)
            step.values |= {name: value for name, value in values.items() if name not in step.values or name == "loss"}
            step.printed |= printed
            return
        named = match.groupdict()
        texts = [(named["key"], named["value"])] if named.get("key") else pairs(line, match)
        found = {key: float(text) for key, text in texts if _NUMBER.match(text)}
        if line.kind == "memory":
            of = "node" if named.get("unit") else "process"
            step.memory[f"rank {named.get('rank') or 0}"] = {"of": of, **found}
        else:
            second = Figure("sec_per_it", named.get("unit") or line.units.get("value") or "ms")
            step.breakdown |= {key: value for key in found if (value := second.read(str(found[key]))[0]) is not None}

    def _merge(self, values: dict[str, Any]) -> None:
        """A line of another format in the same log adds what the step does not say."""
        self._fuller(values)
        if self._step is not None and values.get("iteration") in (None, self._last):
            self._step.values = {**values, **self._step.values}
        else:
            self._waiting = {**(self._waiting if self._waiting.get("iteration") == values.get("iteration") else {}), **values}

    def _fuller(self, values: dict[str, Any]) -> None:
        if "mem_value" in values and self._run is not None:
            best = {name: value for name, value in values.items() if name.startswith("mem_")}
            if gib(best) > gib(self._run.figures):
                self._run.figures |= best

    # ---- what was asked, and what else the log says

    def _opened(self, format: Format) -> Run:
        run = Run(file=self.file, format=format)
        for name in (*format.before, format.name):
            if name in self._settings:
                run.settings |= self._settings[name].settings
                run.figures |= self._settings[name].figures
        return run

    def _other(self, text: str) -> bool:
        """Figures of the run as a whole, or of the step that follows."""
        run, format = self._run, self._format
        for line in format.line if format is not None else ():
            if line.kind == "ahead" and (match := line.match(text)):
                self._waiting = figures(line, match)[0]
                return True
        if run is None or format is None:
            return False
        for line in format.line:
            if line.kind == "run" and (match := line.match(text)):
                values = figures(line, match)[0]
                self._fuller(values)
                run.figures |= {name: value for name, value in values.items() if not name.startswith("mem_")}
                return True
        return False

    def _configure(self, number: int, text: str) -> None:
        if len(text) > LONGEST_SETTINGS:
            return
        mine = self._format
        for format in self.formats if self._run is None or mine is None else (mine,):
            for line in format.line:
                if line.kind == "config" and line.has in text:
                    run = self._run or self._settings.setdefault(format.name, Run(file=self.file, format=format))
                    for match in line.regex.finditer(text):
                        say(run.settings, format, line, match, number)

    # ---- ends

    def _finish(self) -> Iterator[Record | Problem]:
        step, self._step = self._step, None
        if step is None or self._format is None:
            return
        judge(step)
        if not self.alone:
            assert self.outline is not None
            yield step_record(step, self.file, self.outline.around(step.line), format=self._format)
            return
        assert self._run is not None
        if self.each:
            # A step is said at once: a log of many gigabytes does not fit in memory.
            held, self._held = self._held, step
            if held is not None:
                yield from self._run_of(held).each()
            return
        problem = lacking(step, step.values, self.file, self._format)
        if problem is not None:
            yield problem
        else:
            self._run.add(step)

    def _run_of(self, step: Step, ended: Outcome | None = None) -> Run:
        run = self._run
        assert run is not None
        return Run(file=self.file, format=run.format, settings=run.settings, steps=[step], ended=ended)

    def _close(self, *, end: bool = False) -> Iterator[Record | Problem]:
        yield from self._finish()
        run, self._run = self._run, None
        ended, self._ended = self._ended, None
        self._settings, self._last, self._done = {}, None, set()
        if run is None:
            return
        self._runs += 1
        run.ended = ended
        if self.each:
            held, self._held = self._held, None
            if held is not None:
                self._run = run
                yield from self._run_of(held, ended).each()
                self._run = None
        elif (record := run.record()) is not None:
            yield record

    def flush(self, *, end: bool = False) -> Iterator[Record | Problem]:
        """What is still open; with `end`, also how the log ended."""
        if not self.alone:
            yield from self._finish()
            return
        if not end:
            return
        if self._run is None and self._ended is not None and not self._runs:
            said = max(self._settings.values(), key=lambda run: len(run.settings), default=None)
            # Without a step nobody can tell whose lines these are.
            nobody = replace(self.formats[0], engine="", derived={})
            self._run = Run(file=self.file, format=nobody, settings=said.settings if said else {})
            self._run.ended, self.each = self._ended, False
            record = self._run.record()
            if record is not None:
                yield record
            return
        yield from self._close(end=True)
        if self._strange is not None:
            line, count = self._strange
            message = (f"{count} line{'s look' if count > 1 else ' looks'} like progress and no format reads it; "
                       "--format FILE.toml describes one of your own")
            yield Problem(file=self.file, line=line, message=message, level="note")
