"""More memory than the device has, or than the text says is usable; and what stood there instead.

    check(row)          findings on the memory of a row
"""
from __future__ import annotations

import functools
import math
import re
from pathlib import Path

from seatrial.notes.lint.digits import slips
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.models.devices import OF_DEVICES_SOLD, device_named
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.rows import shares
from seatrial.notes.lint.rows.bounds import between, typed
from seatrial.notes.lint.rows.duplicates import same_configuration

_SIZED = re.compile(r"\b(\d{1,3}) ?Gi?B?\b", re.IGNORECASE)


MOST_SEEN = 100
"""Rows around one that are asked whether they have more memory than its device."""


def check(row: Row) -> list[Finding]:
    memory, text = row.record.mem_gib, row.sheet.text(row)
    if memory is None or "mem_value" in row.fixed:
        return []
    if memory in OF_DEVICES_SOLD and not row.sheet.filled(row.key) & _MEASURED and _is_a_peak(row):
        return []  # a list of hardware
    usable = text.capacity(row.record.source_line) if memory > text.least_limit else None
    if row.record.machine and (own := _SIZED.search(row.record.machine)) is not None:
        whole: tuple[float, str] | None = (float(own[1]), f'"{row.record.machine}"')
    elif text.device is None and row.device is not None and row.devices:
        # Several devices: what the row names counts, and a size beside that name, if there is one.
        whole = row.device.memory_gib, f"{row.device.name} has {row.device.memory_gib:g} GiB"
        several = memory > whole[0] and sum((mate.record.mem_gib or 0.0) > whole[0] for mate in row.around[:MOST_SEEN]) > 1
        stated = text.physical(row.record.source_line) if several else None
        whole = stated if stated is not None and stated[0] > whole[0] else whole  # of a device that is named nearer
    else:
        whole = text.physical(row.record.source_line) or _by_file(row.record.source_file)
    # A device of 80 GB has 80 GiB, which are 85.9 GB where somebody counts in thousands.
    most = whole[0] * (1.01 if row.record.mem_unit in ("GiB", "MiB") else 1.075) if whole is not None else math.inf
    over = memory > most
    if not over and usable is None or _WANTED.search(row.cell("mem_value")) or _A_SHARE.search(row.cell("mem_value")):
        return []
    nodewide = over and (row.record.mem_scope == "node" or bool(row.device and row.device.kind == "cpu"))
    shown = row.cell("mem_value") or f"{memory:g} GiB" if over or usable else ""
    several = (row.procs or 1) > 1 or row.record.mem_scope == "node" and not (row.device and row.device.kind == "cpu")
    if whole is not None and over and not (nodewide and several):
        message = f"{shown} is more than the device has ({whole[1]})"
        row.reasons.setdefault("mem_value", "memory-over-capacity")
        proposed = _meant(row, memory)
        message += f": {proposed} is meant" if proposed else ""
        # Of which device a row is two others show, whose memory it has; else it is as often the device that was misread.
        within = [mate for mate in row.around if mate is not row and 0 < (mate.record.mem_gib or 0.0) <= most]
        level: Level = "error" if len(within) > 1 else "warning"
        return [row.find("memory-over-capacity", level, message, name="mem_value", proposed=proposed)]
    if usable is not None and memory > usable[0] * 1.005 and usable[0] > 1:
        return [
            row.find("memory-over-capacity", "warning",
                     f"{shown} is more than the usable {usable[0]:g} GB ({usable[1]})", name="mem_value")
        ]
    return []


def _meant(row: Row, memory: float) -> str | None:
    """What stood there, by the rows that are most like it: what they allow says more than any slip by itself."""
    ends = between(row, "mem_value")
    text = typed(row, "mem_value", ends) if ends is not None else None
    if text is not None:
        return text + row.cell("mem_value").lstrip("0123456789.,'")
    return shares.meant(row) or _as_others_need(row, memory) or _as_much(row, memory)


_MEASURED = frozenset(("sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "mfu"))


def _is_a_peak(row: Row) -> bool:
    """Whether the TFLOPs of a row are none, or those of a data sheet."""
    tflops = row.record.tflops
    peaks = row.device.peak_tflops.values() if row.device is not None else ()
    return not tflops or any(abs(tflops / peak - 1) < 0.01 for peak in peaks)


_A_SHARE = re.compile(r"\d ?%")
"""Beside a figure that says of how much it is: `27.98 GB (59 %)` of two devices."""
_WANTED = re.compile(r"\b(?:wanted|needed|required|requested|tried|asked)\b", re.IGNORECASE)


@functools.lru_cache(maxsize=256)
def _by_file(name: str) -> tuple[float, str] | None:
    """The memory of the device that a file is named after, where its text names none: `sweep_h100.csv`."""
    device = device_named(re.sub(r"[_\W]+", " ", Path(name).stem))
    return (device.memory_gib, f"{device.name}, as the file is called, has {device.memory_gib:g} GiB") if device else None


_NEEDED = 1.1
"""Within which factor rows of one configuration need the same."""


def _as_others_need(row: Row, memory: float) -> str | None:
    """The cell without a digit too many, where that is what other rows of the configuration need."""
    figure, record = row.printed("mem_value"), row.record
    sizes = [mate.record.mem_gib or 0.0 for mate in row.around if mate is not row and mate.record.mem_gib
             and mate.world == row.world and mate.record.mem_unit == record.mem_unit
             and same_configuration(mate, row)]  # fmt: skip
    if figure is None or not sizes or max(sizes) > _NEEDED * min(sizes):
        return None
    ends = (end * figure.value / memory for end in (min(sizes) / _NEEDED, max(sizes) * _NEEDED))
    typed = {slip.text for slip in slips(figure.like(figure.value), figure.span(*ends)) if slip.how == "a digit too many"}
    return typed.pop() if len(typed) == 1 else None


def _as_much(row: Row, memory: float) -> str | None:
    """The number without a digit too many that is nearest to what rows of the same splits and recomputation need, or any."""
    figure, record = row.printed("mem_value"), row.record
    others = [mate for mate in row.around if mate is not row and 0 < (mate.record.mem_gib or 0.0) < memory]
    alike = [mate for mate in others
             if all(getattr(mate.record, name) == getattr(record, name) for name in ("tp", "pp", "recompute", "size_label"))]
    sizes = [math.log(mate.record.mem_gib or 1.0) for mate in alike or others]
    less = [math.log(mate.record.mem_gib or 1.0) for mate in alike if mate.world == row.world and mate.record.seq == record.seq
            and (mate.record.mbs or 0) < (record.mbs or 0)]  # fmt: skip
    if figure is None or not sizes:
        return None
    low, high = min(sizes), max(sizes)
    near: list[tuple[float, str, bool]] = []
    for one in slips(figure.like(figure.value), figure.span(figure.value / 10, figure.value)):
        size = math.log(figure.meant(one.value) * memory / figure.value)
        off = max(2 * (low - size), size - high, 0.0)  # what is new in a table needs more, not less
        near += [(off, one.text, size > high)] if one.how == "a digit too many" and size > max(less, default=-math.inf) else []
    (off, text, more), *rest = sorted(set(near)) or [(math.inf, "", False)]
    lead = rest[0][0] - off if rest else math.inf
    return text if off < _ABOUT and lead > _ABOUT / 2 or more and off < 1.5 * _ABOUT and lead > 2 * _ABOUT else None


_ABOUT = 0.4
