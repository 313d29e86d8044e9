"""A heading with the wrong unit: milliseconds over seconds, millions over thousands, MiB over GiB.

    mend(sheet)          findings on headings; the rows are read with the right unit from then on

    | GPUs | time/step [ms] | tokens/s |
    |    8 |         125.12 |   33,688 |          4.2 M tokens a step at 33,688 a second take 125 s

What is off by one and the same factor of units in nearly every row of a table is no slip in any of its cells. Of two columns
that do not belong together it is the one that a third one, or the FLOPs of the model, denies too.
"""
from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import FIGURES, Sheet
from seatrial.tables.headings import clean

FEWEST, SHARE, ALIKE = 3, 0.7, 0.06
"""Rows that tell; which share of them keeps to the factor, and how nearly, as a logarithm."""
ROUGHLY = math.log(2.5)
"""What the FLOPs of a token may be off by where a model is known by its size alone."""
Terms = tuple[tuple[str, int], ...]
_BATCH: Terms = (("gbs", -1), ("seq", -1))
LAWS: tuple[Terms, ...] = (
    (("tokens_per_s", 1), ("sec_per_it", 1), *_BATCH), (("samples_per_s", 1), ("sec_per_it", 1), ("gbs", -1)),
    (("tokens_per_s_per_process", 1), ("sec_per_it", 1), ("world", 1), *_BATCH),
    (("tokens_per_s", 1), ("tokens_per_s_per_process", -1), ("world", -1)),
    (("tokens_per_s", 1), ("samples_per_s", -1), ("seq", -1)),
)  # fmt: skip
"""Products that are one."""
ROUGH: tuple[Terms, ...] = (
    (("tflops", 1), ("sec_per_it", 1), ("world", 1), ("flops", -1), *_BATCH),
    (("tflops", 1), ("tokens_per_s", -1), ("world", 1), ("flops", -1)),
    (("tflops", 1), ("tokens_per_s_per_process", -1), ("flops", -1)),
)  # fmt: skip
"""The same with what the multiplications of a token are, in TFLOPs."""
_TERMS = tuple({name for law in (*LAWS, *ROUGH) for name, _ in law})
POSSIBLE = (1.0, 2500.0)
"""TFLOPs that a device does."""
_DONE: tuple[Terms, ...] = (
    (("flops", 1), ("tokens_per_s_per_process", 1)), (("flops", 1), ("tokens_per_s", 1), ("world", -1)),
    (("flops", 1), ("gbs", 1), ("seq", 1), ("sec_per_it", -1), ("world", -1)),
)  # fmt: skip
_THOUSAND = 1000.0
UNITS: dict[str, tuple[tuple[float, str, str], ...]] = {
    "sec_per_it": ((_THOUSAND, r"(?<![a-z])ms(?![a-z])|milliseconds?|millisekunden", "s"),
                   (1 / _THOUSAND, r"(?<![a-z])(?:s|sec|secs|seconds?|sek)(?![a-z])", "ms"),
                   (60.0, r"(?<![a-z])(?:s|sec|secs|seconds?)(?![a-z])", "min"),
                   (1 / 60.0, r"(?<![a-z])min(?:utes?)?(?![a-z])", "s")),
    "rate": ((1 / _THOUSAND, r"(?<![a-z])M(?:io\.?)?(?= ?[Tt]ok)|million(?= tok)", "k"),
             (1 / _THOUSAND, r"(?<![a-z])k(?= ?tok)", ""), (1e-6, r"(?<![a-z])M(?= ?[Tt]ok)", ""),
             (_THOUSAND, r"(?<![a-z])k(?= ?tok)", "M"), (_THOUSAND, r"(?=\btok)", "k "), (1e6, r"(?=\btok)", "M ")),
    "tflops": ((1 / _THOUSAND, r"P(?=FLOP)", "T"), (_THOUSAND, r"T(?=FLOP)", "P"), (1 / _THOUSAND, r"T(?=FLOP)", "G"),
               (_THOUSAND, r"G(?=FLOP)", "T")),
}  # fmt: skip
"""By what a column is to be multiplied, and what in its heading is to be read otherwise."""
_CODES = {"sec_per_it": "time-unit", "tflops": "tflops-mismatch", "mem_value": "memory-unit"}
_OF_MEMORY = ((1024.0, r"M(?=i?[Bo]\b)", "G"), (1 / 1024.0, r"G(?=i?[Bo]\b)", "M"))
LITTLE = 4.0
"""How many times the weights of a device are more than what is printed, where that is no memory of it."""


def mend(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        rows = [row for row in mates[:60] if row.tabular and not row.planned]
        if len(rows) >= FEWEST:
            found += [*(_of_times(rows, mates) or _by_devices(rows, mates)), *_of_memory(rows, mates)]
    return found


def _of_times(rows: Sequence[Row], mates: Sequence[Row]) -> list[Finding]:
    """Of the ways to read one heading otherwise the one by which everything belongs together, where there is only one."""
    there = rows[0].sheet.filled(rows[0].key)
    logs = {name: [_log(row, name) for row in rows] for name in _TERMS if name in there or name not in FIGURES}
    laws = {law: off for laws, close in ((LAWS, ALIKE), (ROUGH, ROUGHLY)) for law in laws
            if all(name in logs for name, _ in law) and (off := _off(logs, law, close)) is not None}  # fmt: skip
    if not any(abs(off) > ROUGHLY for off in laws.values()):
        return []
    ways = []
    for name in ("sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "tflops"):
        if name in rows[0].columns:
            for times, pattern, unit in UNITS.get(name, UNITS["rate"]):
                heading = _read_otherwise(rows[0].columns[name], pattern, unit)
                if heading and all(abs(off + dict(law).get(name, 0) * math.log(times)) <= (ALIKE if law in LAWS else ROUGHLY)
                                   for law, off in laws.items()) and _is_possible(rows, name, times):  # fmt: skip
                    ways.append((name, times, heading))
    if len({(name, times) for name, times, _ in ways}) == 1:
        name, times, heading = ways[0]
        law = next(law for law, off in laws.items() if abs(off) > ROUGHLY and name in dict(law))
        others = " and ".join(rows[0].column(one) for one, _ in law if one != name and one in rows[0].columns)
        why = f"by {others or 'the model'} all {len(rows)} rows are {max(times, 1 / times):,.0f} times off"
        return [*_said(rows, mates, name, times, heading, why)]
    return []


_COUNTS = ("gpus", "nodes", "dp", "tp", "pp", "procs_per_node")


def _by_devices(rows: Sequence[Row], mates: Sequence[Row]) -> list[Finding]:
    """Where nobody counts the devices, batch, time and the rate of one do: a time in another unit makes it a thousandth."""
    if not {"sec_per_it", "tokens_per_s_per_process"} <= rows[0].columns.keys() or any(row.get(one) for row in rows
                                                                                      for one in _COUNTS):  # fmt: skip
        return []
    law: Terms = (("gbs", 1), ("seq", 1), ("sec_per_it", -1), ("tokens_per_s_per_process", -1))
    logs = {name: [_log(row, name) for row in rows] for name, _ in law}
    devices = [math.exp(sum(power * one for (_, power), one in zip(law, each) if one is not None))
               for each in zip(*(logs[name] for name, _ in law)) if None not in each]  # fmt: skip
    if len(devices) < FEWEST or max(devices) >= LEAST:
        return []
    whole = [_THOUSAND * one for one in devices if abs(_THOUSAND * one - round(_THOUSAND * one)) <= WHOLE * _THOUSAND * one]
    heading = _read_otherwise(rows[0].columns["sec_per_it"], UNITS["sec_per_it"][1][1], "ms")
    if not heading or len(whole) < SHARE * len(devices) or min(whole) < 1 - WHOLE:
        return []
    why = f"by {rows[0].column('tokens_per_s_per_process')} the batch would be done by {max(devices):.2g} of a device"
    return [*_said(rows, mates, "sec_per_it", 1 / _THOUSAND, heading, why)]


LEAST, WHOLE = 0.5, 0.02
"""A part of a device that none is; how near a count is to a whole number."""


def _log(row: Row, name: str) -> float | None:
    if name == "flops":
        label = label_parameters(row.record.size_label)
        size = label[0] if label else 12.0 * row.layers * row.hidden**2 if row.layers and row.hidden else None
        value: float | None = None if size is None or row.mixture else 6e-12 * size
    else:
        value = row.world if name == "world" else row.seq if name == "seq" else getattr(row.record, name)
    return math.log(value) if value and 0 < value < math.inf else None


def _off(logs: dict[str, list[float | None]], law: Terms, close: float) -> float | None:
    """By how much nearly all rows are off, as a logarithm; None where they do not agree, or too few of them can say."""
    columns = [logs[name] for name, _ in law]
    if any(column.count(None) > len(column) - FEWEST for column in columns):
        return None
    offs = [sum(power * one for (_, power), one in zip(law, each) if one is not None)
            for each in zip(*columns) if None not in each]  # fmt: skip
    if len(offs) < FEWEST:
        return None
    middle = statistics.median(offs)
    return middle if sum(abs(off - middle) <= close for off in offs) >= max(FEWEST, SHARE * len(offs)) else None


def _is_possible(rows: Sequence[Row], name: str, times: float) -> bool:
    """Whether a device of most rows then does no more than one can, where the model is known."""
    given = ("flops", "world", "tokens_per_s", "tokens_per_s_per_process", "sec_per_it", "gbs", "seq")
    done = []
    for row in rows:
        known = {one: value for one in given if (value := _log(row, one)) is not None}
        if name in known:
            known[name] += math.log(times)
        done += [sum(power * known[one] for one, power in ways) for ways in _DONE if all(one in known for one, _ in ways)]
    return bool(done) and math.log(POSSIBLE[0]) <= statistics.median(done) <= math.log(POSSIBLE[1])


def _of_memory(rows: Sequence[Row], mates: Sequence[Row]) -> Iterator[Finding]:
    """MiB that would not hold the weights in any row, and GiB that no device has."""
    heading = rows[0].columns.get("mem_value", "")
    held = [(row, memory) for row in rows if (memory := row.record.mem_gib) and row.cell("mem_value")[-1:].isdigit()]
    if not heading or len(held) < FEWEST:
        return
    more = _read_otherwise(heading, *_OF_MEMORY[0][1:])
    heavy = any(_weights(row) > LITTLE * memory for row, memory in held)
    if more and all(memory < NOTHING for _, memory in held) and not heavy and all(map(_is_large, rows)):
        why = f"no device trains a model of {rows[0].record.size_label} in {max(memory for _, memory in held):.2g} GiB"
        yield from _said(rows, mates, "mem_value", 1024.0, more, why)
    elif more and all(memory < 1 for _, memory in held) and heavy:
        row, memory = max(held, key=lambda one: _weights(one[0]) / one[1])
        why = f"the weights of a device in line {row.record.source_line} alone are {_weights(row):.1f} GiB"
        yield from _said(rows, mates, "mem_value", 1024.0, more, why)
    less = _read_otherwise(heading, *_OF_MEMORY[1][1:])
    if less and all(memory > 600 for _, memory in held):
        yield from _said(rows, mates, "mem_value", 1 / 1024.0, less, "no device has as much")


NOTHING, LARGE = 0.1, 1e9
"""GiB of a device in which no model of so many parameters is trained, however it is spread."""


def _is_large(row: Row) -> bool:
    label = label_parameters(row.record.size_label)
    return label is not None and label[0] >= LARGE


def _weights(row: Row) -> float:
    """GiB that the weights of a device take at least, however they are spread."""
    label = label_parameters(row.record.size_label)
    return 2 * label[0] / 2**30 / row.world if label is not None and row.world else 0.0


def _read_otherwise(heading: str, pattern: str, unit: str) -> str:
    """The heading with another unit; empty where it has none such."""
    plain = clean(heading)
    matches = list(re.finditer(pattern, plain))
    if not matches:
        return ""
    last = matches[-1]
    return f"{plain[: last.start()]}{unit}{plain[last.end() :]}".replace("  ", " ").strip()


def _said(rows: Sequence[Row], mates: Sequence[Row], name: str, times: float, right: str, why: str) -> Iterator[Finding]:
    heading, first = rows[0].columns[name], rows[0].record
    for row in mates:
        if (value := getattr(row.record, name)) is not None:
            row.record = row.record.changed({name: value * times})
    code = "ms-not-s" if name == "sec_per_it" and times < 1 else _CODES.get(name, "rate-mismatch")
    yield Finding(file=first.source_file, line=_line_of(rows[0], heading), code=code, level="error", column=heading,
                  printed=clean(heading), proposed=right, message=f"{clean(heading)} -> {right}: {why}")  # fmt: skip


def _line_of(row: Row, heading: str) -> int | None:
    """The line that a heading stands in: the nearest above the rows that has its words."""
    text, line = row.sheet.prose.get(row.record.source_file), row.record.source_line
    if text is None or line is None:
        return line
    words = [word for word in re.split(r"[^\w]+", clean(heading)) if word]
    above = range(line - 1, max(0, line - 40), -1)
    return next((at for at in above if all(word in text.lines[at - 1] for word in words)), line)
