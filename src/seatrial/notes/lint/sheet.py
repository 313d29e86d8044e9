"""What the rules look at, and what they say: rows with their printed numbers and table mates, findings with their codes.

    sheet = Sheet.of(records, prose={"notes.md": Prose.of(text)})
    sheet.tables, sheet.files                        rows that stand together, in the order of the page
    row.find("over-peak", "error", "400 TFLOPs is above the peak", name="tflops")

A row collects, as rules run, what is known better than it is printed: solved layers, processes per node, and in `fixed` the
values that a finding proposes. Later rules use those, so that one slip is reported once.
"""
from __future__ import annotations

import bisect
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from seatrial.columns import AROUND, LAYOUT
from seatrial.notes.lint import digits
from seatrial.notes.lint.devices import device_named, is_preset
from seatrial.notes.lint.digits import Printed
from seatrial.notes.lint.labels import is_mixture, label_parameters
from seatrial.notes.lint.once import once
from seatrial.notes.lint.prose import Prose
from seatrial.notes.read.rows import holds_memory, laid_out
from seatrial.notes.read.sound import MOST_MEASURED
from seatrial.record import Record
from seatrial.spec import Device
from seatrial.tables.headings import NUMBER, accumulates, clean, decimal, normal, older, read_heading, settle

if TYPE_CHECKING:
    from seatrial.notes.lint import relations
    from seatrial.notes.lint.formulas import Reading

Level = Literal["error", "warning", "info"]
LEVELS: tuple[Level, ...] = ("error", "warning", "info")
"""error: an expert would bet on it; warning: it points at a slip; info: it could not be read, or is worth knowing."""

CODES: dict[str, str] = {
    "world-size": "dp x tp x pp is not nodes x processes per node",
    "batch-divisible": "the global batch is not a multiple of DP x MBS",
    "layers-divisible": "neither layers nor layers + 2 divide over the pipeline stages",
    "stages-sum": "the layers of each stage do not add up to the model's, or are not one for each stage",
    "experts-divisible": "the experts do not divide over expert parallelism, or a token passes more than there are",
    "heads-divisible": "the heads do not divide over tensor parallelism, or the hidden size over the heads",
    "ms-not-s": "milliseconds in a column of seconds",
    "time-unit": "another slip of the unit of time: seconds under ms, minutes or hours under seconds",
    "tflops-mismatch": "time and TFLOPs of a row do not belong together",
    "rate-mismatch": "samples or tokens per second do not belong to the time and the batch",
    "formula-mixed": "a row of the table counts its TFLOPs by another formula",
    "tflops-per-node": "TFLOPs of a whole node where other rows give one process",
    "another-device": "the figures of a row are those of another device of the table",
    "over-peak": "more TFLOPs than the device can do",
    "swap-twin": "the cells of time and TFLOPs are exchanged",
    "duplicate-config": "one configuration, two results",
    "pasted-pair": "time and rate of another row, to the last digit, at another layout",
    "repeat": "the same row again: count it once",
    "memory-monotone": "memory falls when the micro-batch grows",
    "memory-unit": "memory in another unit than the cell or the heading says",
    "memory-mismatch": "memory that a slip of the hand makes differ from the same configuration elsewhere",
    "memory-over-capacity": "more memory than the device has, or than the text says is usable",
    "outlier": "ten times, or a tenth of, a column that hardly differs",
    "gbs-scaling-outlier": "the time does not follow the number of micro-batches",
    "label-vs-params": "the size label does not fit the layers and the hidden size",
    "label-convention": "one table labels sizes with the embedding and without",
    "header-vs-row": "the text above the table says otherwise than the row",
    "cells-shifted": "the cells of a row stand one column too far left or right",
    "outcome-vs-figures": "a run that failed by its status, with the figures of one that went through",
    "cells-vs-header": "more or fewer cells than headings",
    "text-in-number": "words in a cell of numbers",
    "unreadable": "a cell or line that could not be read",
    "unknown-column": "a heading that nothing is known about",
    "clock-unit": "a clock in Hz or MHz that can only be GHz",
    "aggregate": "the aggregate does not follow from TFLOPs and processes, or only by 1024 or truncation",
    "layers-solved": "layers or hidden size are not stated and were worked out from the TFLOPs",
    "plan-only": "a row that was never run",
    "dated-but-empty": "a date or a job number, but no result",
    "estimated": "an estimate and not a measurement: keep it out of fits",
    "extrapolated": "an exact multiple of another row's time",
    "date-order": "dates that run backwards in a table",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    file: str
    line: int | None
    code: str
    level: Level
    message: str
    """One line: what, with the numbers that show it."""
    column: str | None = None
    """The heading as it is printed."""
    printed: str | None = None
    proposed: str | None = None
    """What the cell should say, when the evidence points to one value."""

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def in_order(findings: list[Finding], files: list[str]) -> list[Finding]:
    """By file as given, line, gravity; the same thing is said once."""
    place = {name: i for i, name in enumerate(dict.fromkeys([*files, *(f.file for f in findings)]))}
    return sorted(dict.fromkeys(findings), key=lambda f: (place[f.file], f.line or 0, LEVELS.index(f.level), f.code))


_NEAR, _MOST = 150, 1000
"""Tables and files beyond this are logs of a program: a row is compared with this many others, so that time stays linear."""
MEASURED = ("mem_value", "sec_per_it", "tflops", "aggr_pflops", "samples_per_s", "tokens_per_s")
FIGURES = (*MEASURED, "tokens_per_s_per_process", "mfu", "hfu", "loss")
_FIGURES = operator.attrgetter(*FIGURES)
CONFIGURATION = (
    "nodes", "layers", "hidden", "heads", "kv_heads", "seq", *LAYOUT,
    *(name for name in AROUND if name not in ("nodes", "procs_per_node", "freq_ghz")),
)  # fmt: skip
"""What two rows of one configuration have in common, as far as both say."""
PLAIN_NAMES = {
    "nodes": "Nodes", "gpus": "GPUs", "size_label": "Size", "layers": "Layers", "hidden": "Hidden", "heads": "Heads",
    "seq": "Seq", "mem_value": "Mem", "sec_per_it": "Sec/it", "tflops": "TFLOPs", "aggr_pflops": "PFLOPs",
}  # fmt: skip


_BESIDE = {
    "cp": "cp, context parallel, context parallelism, context parallel size, cp size",
    "ep": "ep, expert parallel, expert parallelism, expert parallel size, ep size, expert model parallel size",
}  # fmt: skip
_BESIDE |= {
    "shard": "dp shard, data parallel shard degree, fsdp, fsdp degree, fsdp size, shard size, shard group, sharding group, "
             "shard, shards, shard degree, sharding degree, dp shard degree, ici fsdp, ici fsdp parallelism",
    "replicate": "dp replicate, data parallel replicate degree, replicas, hsdp replicas, replicate, hsdp degree, "
                 "repl, replicate degree, dp repl, dp replicate degree, replication, ici data, ici data parallelism, dcn data, "
                 "dcn data parallelism",
}  # fmt: skip
BESIDE = {name.strip(): kind for kind, names in _BESIDE.items() for name in names.split(",")}
_FIELDS = frozenset(one.name for one in fields(Record))
EXTRA = "+"
"""Before the heading of a column that no field takes, where a field is named."""
_PLANNED = re.compile(r"planned|plan|estimate[d]?|est\.?|projected|projection|forecast|predicted|target|theoretical")
_KINDS = re.compile(r"\b(?:[AHBL]20|[AL]4|T4|A[13]0|[AL]40S?|V100S?|P[14]0|P100|[AH][18]00|H200|B[123]00|G[BH][23]00)\b|"
                    r"\bMI\d{3}X?\b|\bTPU ?v\d\w?|\bv[56][ep]\b|^v[2-6][ep]?$|\bGaudi ?\d?|\bA64FX\b",
                    re.IGNORECASE)  # fmt: skip
DEVICES = re.compile(rf"{_KINDS.pattern}|\b(?:mx|nv)?fp(?:4|8|16|32)\b|\bbf16\b|\bint8\b", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_REFERENCE = re.compile(r"duplicate|same|line|\bsee\b|\bref", re.IGNORECASE)
"""A heading of cells that point at other rows, `L40` for line 40: they set nothing."""


_A_FIGURE = re.compile(rf"[~≈<>]?\s*[$€£]?\s*({NUMBER.pattern})\s*(?:([kKMBT])\b)?\s*"
                       r"(?:%|[x×]|[$€£]|hrs?|h|d|days?|hours?|tokens?)?")  # fmt: skip
MOST_WORKED_OUT = 1e30
"""As the FLOPs of a whole training are."""
_TIMES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@lru_cache(maxsize=65536)
def _plain_figure(cell: str) -> float | None:
    """The number of a cell that holds one and hardly anything else: `3.68x`, `95.2%`, `$1.4k`."""
    match = _A_FIGURE.fullmatch(clean(cell))
    if match is None:
        return None
    value = float(decimal(match[1])) * _TIMES.get(match[2] or "", 1.0)
    return value if not value or 1 / MOST_MEASURED <= abs(value) <= MOST_WORKED_OUT else None


@lru_cache(maxsize=4096)
def _refers(heading: str) -> bool:
    return _REFERENCE.search(heading) is not None


@lru_cache(maxsize=4096)
def _devices(words: str) -> frozenset[str]:
    return frozenset(name.lower() for name in DEVICES.findall(words))


@lru_cache(maxsize=4096)
def _is_plan(cell: str) -> bool:
    return _PLANNED.fullmatch(cell.strip().lower()) is not None


@lru_cache(maxsize=4096)
def kind_beside(heading: str) -> str:
    """Which count a layout is not always told by a heading is of; empty where it is none."""
    return BESIDE.get(normal(heading), "") or ("ga" if accumulates(heading) else "")


@lru_cache(maxsize=4096)
def _kinds_beside(headings: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(heading, kind) for heading in dict.fromkeys(headings) if (kind := kind_beside(heading))]


def extras(row: Row) -> list[str]:
    """The headings of columns that no field takes, not even by a letter."""
    return _extras(tuple(row.record.printed))


@lru_cache(maxsize=4096)
def _extras(headings: tuple[str, ...]) -> list[str]:
    taken, given = _in_company(headings), older(headings)
    return [heading for heading in headings if heading in given or heading not in taken and is_extra(heading)]


@lru_cache(maxsize=4096)
def is_extra(heading: str) -> bool:
    """Whether neither a field nor an axis of parallelism takes the column."""
    column = read_heading(heading)
    return not column.field and not column.parts and not kind_beside(heading)


def field_of(heading: str) -> str:
    """Which field a heading stands for; empty when it is none of ours."""
    return read_heading(heading).field


@lru_cache(maxsize=4096)
def _fields_of(headings: tuple[str, ...]) -> dict[str, str]:
    """Field -> the first heading that stands for it."""
    beside, given = _in_company(headings), older(headings)
    return {name: heading for heading in reversed(headings)
            if (name := beside.get(heading) or field_of(heading)) and heading not in given}  # fmt: skip


@lru_cache(maxsize=4096)
def _in_company(headings: tuple[str, ...]) -> dict[str, str]:
    """Heading -> field of those that mean it beside the others alone: `#` behind `GPU`, `global` beside a micro-batch."""
    alone = [read_heading(heading) for heading in headings]
    return {one.heading: there.field for one, there in zip(alone, settle(alone)) if there.field and there.field != one.field}


@lru_cache(maxsize=4096)
def _parts_of(headings: tuple[str, ...]) -> frozenset[str]:
    return frozenset(part for heading in headings for part in read_heading(heading).parts)


@lru_cache(maxsize=16384)
def _names_device(cell: str) -> bool:
    return DEVICES.search(cell) is not None


@lru_cache(maxsize=4096)
def _device_of(own: str, section: str) -> tuple[Device | None, bool]:
    """What the words of a row name, else the headings above it; and whether they speak of one that nobody knows."""
    named = device_named(own) or (None if _KINDS.search(own) else device_named(section))
    return named, named is None and _KINDS.search(f"{own} {section}") is not None


@dataclass(eq=False)
class Row:
    record: Record
    index: int
    sheet: Sheet
    place: int = 0
    """Which row of its table it is."""
    procs: int | None = None
    """Processes per node, as stated or as the other rows of the file have it."""
    layers: int | None = None
    """As stated, as solved from the TFLOPs, or as the size label is known to have."""
    hidden: int | None = None
    guessed: bool = False
    """Whether layers or hidden size come from the size label alone."""
    seq: int | None = None
    vocab: int | None = None
    """As stated, or as the file's TFLOPs agree with it."""
    reading: Reading | None = None
    """How the TFLOPs of this row's table were worked out."""
    fixed: dict[str, float] = field(default_factory=dict)
    """Field -> the value that a finding proposes."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Field -> code of that finding."""
    solved: set[str] = field(default_factory=set)
    """Fields whose proposed value is what the others leave, and no slip of the hand from what is printed."""
    mixture: bool = False
    """Whether it is a mixture of experts, whose FLOPs and sizes no formula of a dense model gives."""
    settled: bool = False
    """Whether a finding has explained how the row's figures belong together."""
    configuration: tuple[object, ...] | None = None
    """The whole configuration, filled when it is needed."""
    _printed: dict[str, Printed | None] = field(default_factory=dict)
    _beside: dict[str, int] | None = None
    judged: Any = None
    """Which relations it breaks and keeps, until a finding proposes another value."""
    keys: dict[tuple[str, bool], tuple[object, ...]] = field(default_factory=dict)
    """What it has in common with the rows that it keeps to a relation with: see `relations`."""
    groups: dict[str, object] = field(default_factory=dict)
    """Relation -> which rows of the table it shares the rule with: see `named`."""
    terms: dict[str, float | None] = field(default_factory=dict)
    """The logarithms of its fields, and of the products of relations, until a finding proposes another value."""
    slacks: dict[str, float] = field(default_factory=dict)
    """Relation -> what the digits of the row leave open."""
    spans: list[tuple[float, float]] | None = None
    """What one sequence may cost by its figures, until a finding proposes another value: see `formulas`."""

    @once
    def columns(self) -> dict[str, str]:
        """Field -> heading."""
        found = dict(_fields_of(tuple(self.record.printed)))
        if self.record.sec_per_it and self.record.iteration is None and "sec_per_it" not in found and "iteration" in found:
            found["sec_per_it"] = found.pop("iteration")
        if self.record.tokens_per_s_per_process and self.record.tokens_per_s is None and "tokens_per_s" in found:
            found.setdefault("tokens_per_s_per_process", found.pop("tokens_per_s"))  # as the text says
        if self.record.mem_value is not None and "mem_value" not in found:
            by_cell = [heading for heading, cell in self.record.printed.items() if holds_memory(heading, cell)]
            found.update(dict.fromkeys(["mem_value"], by_cell[0]) if by_cell else {})
        label = self.record.size_label
        if label and "size_label" in found and clean(self.record.printed[found["size_label"]]) != label:
            # `6.18 B` under `parameters`, beside a name.
            size = label_parameters(label)
            sized = [heading for heading, cell in self.record.printed.items() if size and heading != found["size_label"]
                     and field_of(heading) == "size_label" and label_parameters(clean(cell)) == size]  # fmt: skip
            found["size_label"] = sized[0] if len(sized) == 1 else found["size_label"]
        if self.record.machine and "machine" not in found:
            named = next((heading for heading, cell in self.record.printed.items()
                          if self.record.machine[:1] in cell and clean(cell) == self.record.machine), None)  # fmt: skip
            found.update({} if named is None else {"machine": named})
        return found

    def figure(self, heading: str) -> float | None:
        """The number in a column that no field takes."""
        return _plain_figure(self.record.printed.get(heading, ""))

    def cell(self, name: str) -> str:
        heading = self.columns.get(name)
        if heading is None:
            return self.record.printed.get(name[1:], "").strip() if name[:1] == EXTRA else ""
        return self.cells.get(heading, "")

    @once
    def cells(self) -> dict[str, str]:
        """What is printed, without the gaps around it."""
        return {heading: cell.strip() for heading, cell in self.record.printed.items()}

    def column(self, name: str) -> str:
        if name[:1] == EXTRA:
            return name[1:]
        return self.columns.get(name) or PLAIN_NAMES.get(name, name.upper() if len(name) < 4 else name)

    def printed(self, name: str) -> Printed | None:
        try:
            return self._printed[name]
        except KeyError:
            figure = self._printed[name] = self._read(name)
            return figure

    def _read(self, name: str) -> Printed | None:
        value = self.figure(name[1:]) if name[:1] == EXTRA else getattr(self.record, name)
        if value is None:
            return None
        plain = digits.read(cell, value) if (cell := self.cell(name)) else digits.from_value(value)
        if plain is not None and name == "sec_per_it" and self.record.time_unit == "it/s":
            plain = replace(plain, scale=1.0, inverse=True)
        elif plain is not None and plain.scale != 1.0 and self.record.time_unit != "ms" and _in_thousands(plain.scale):
            plain = replace(plain, scale=1.0)  # 7,042 with a decimal comma
        return plain if plain is None else self.sheet.steps(self.key, name).applied(plain)

    def get(self, name: str) -> float | None:
        """The value after what earlier rules proposed."""
        if self.fixed and name in self.fixed:
            return self.fixed[name]
        return getattr(self.record, name) if name in _FIELDS else self.figure(name[1:])

    def whole(self, name: str) -> int | None:
        value = self.get(name)
        return None if value is None else round(value)

    def beside(self, name: str) -> int | None:
        """A count that a layout is not always told by: context or expert parallelism, gradient accumulation."""
        if self._beside is None:
            self._beside = {name: found for name in ("cp", "ep") if (found := getattr(self.record, name))}
            extra, printed = self.record.extra, self.record.printed
            for heading, kind in _kinds_beside((*extra, *printed)):
                cell = printed[heading] if heading in printed else extra[heading]
                if cell.strip().isdecimal() and len(cell.strip()) < 10 and int(cell) > 0:
                    self._beside[kind] = int(cell)
                    self.columns.setdefault(kind, heading)
        return self._beside.get(name)

    @once
    def all_beside(self) -> tuple[int | None, ...]:
        return tuple(map(self.beside, ("cp", "ep", "shard", "replicate")))

    def shows(self, name: str) -> bool:
        """Whether the field stands in the row: in a cell of its own, or in one that holds several."""
        if name in ("cp", "ga"):
            return self.beside(name) is not None
        return bool(self.cell(name)) or name in self.in_parts

    @property
    def composed(self) -> bool:
        """Whether the batch is in no cell, and is what the micro-batch, the accumulation and the devices in the row give."""
        record = self.record
        if not record.gbs or not record.mbs or "gbs" not in record.inferred or not self.shows("mbs"):
            return False
        shared = (record.tp or 1) * (record.pp or 1) * (self.beside("cp") or 1)
        return record.gbs == record.mbs * (self.beside("ga") or 1) * (record.dp or (self.counted or 0) // shared)

    @once
    def in_parts(self) -> frozenset[str]:
        named = _parts_of(tuple(self.record.printed))
        return named.union(part for cell in self.record.extra.values() for part in laid_out(cell))

    def states(self, name: str) -> bool:
        """Whether the row itself prints the field, rather than the text around it."""
        return bool(self.cell(name))

    def stated_above(self, name: str) -> tuple[object, int] | None:
        """What the text around the table says of a field, and in which line."""
        stated, text = self.record.context.get(name), self.sheet.prose.get(self.record.source_file)
        if stated is None and text is not None and name in self.record.inferred:
            line = text.hints.line_of(self.record, name)
            return None if line is None else (getattr(self.record, name), line)
        return None if stated is None else (stated.value, stated.line)

    @property
    def layers_line(self) -> int | None:
        """Where the text says how many layers there are."""
        stated = self.stated_above("layers")
        text = self.sheet.prose.get(self.record.source_file)
        return stated[1] if stated else text.hints.line_of(self.record, "layers") if text else None

    @once
    def complete(self) -> bool:
        """Whether time and TFLOPs of the row can be compared at all; asked once all is known that the text says of it."""
        sec, tflops = self.record.sec_per_it, self.record.tflops
        return bool(sec and tflops and sec > 0 and tflops > 0 and self.record.gbs and (self.counted or self.product))

    @once
    def product(self) -> int | None:
        """dp x tp x pp, and cp where there is one, as printed."""
        parts = (self.record.dp, self.record.tp, self.record.pp)
        return None if None in parts else parts[0] * parts[1] * parts[2] * (self.beside("cp") or 1)  # type: ignore[operator]

    @property
    def counted(self) -> int | None:
        """Processes by the column of nodes or GPUs."""
        if self.record.gpus is not None:
            return self.record.gpus
        nodes = self.record.nodes
        return None if nodes is None or self.procs is None else nodes * self.procs

    @property
    def world(self) -> int | None:
        """Processes, after corrections."""
        if not self.fixed and (counted := self.counted) is not None:
            return counted
        if {"dp", "tp", "pp"} & set(self.fixed) or self.counted is None:
            parts = [self.whole(n) for n in ("dp", "tp", "pp")]
            if None not in parts:
                return parts[0] * parts[1] * parts[2] * (self.beside("cp") or 1)  # type: ignore[operator]
        if "gpus" in self.fixed:
            return round(self.fixed["gpus"])
        if "nodes" in self.fixed:
            return round(self.fixed["nodes"] * (self.procs or 1))
        return self.counted

    @once
    def planned(self) -> bool:
        """Whether a word in the row says that it is a plan or an estimate; a measured row weighs more.

        Where no row of a table has a result under a heading that is known, its figures are all under others."""
        unlike = self.record.state != "planned" or any(mate.record.state != "planned" for mate in self.around)
        cells = (self.record.state if unlike else "", *self.record.extra.values())
        return any(_is_plan(cell) for cell in cells if isinstance(cell, str))

    @once
    def text(self) -> str:
        """All that is printed in the row."""
        return "\n".join(self.record.printed.values())

    @once
    def worded(self) -> dict[str, str]:
        """The cells that have letters."""
        return {heading: cell for heading, cell in self.record.printed.items() if cell.lower() != cell.upper()}

    @once
    def described(self) -> list[tuple[str, str]]:
        """Words of the row in columns that no field takes: what else was on."""
        return [(heading, cell) for heading, cell in self.record.extra.items()
                if heading in self.record.printed and not _DIGIT.search(cell) or " " in cell.strip()]  # fmt: skip

    @once
    def devices(self) -> frozenset[str]:
        """The kinds of device and number that the headings above the row and its own words name."""
        own = [cell for heading, cell in self.record.extra.items() if not _refers(heading)]
        words = " ".join((self.record.section, self.record.machine, self.record.size_label, *own))
        return _devices(words)

    @once
    def device(self) -> Device | None:
        """What the row's own cells name, else the headings above it, else the file."""
        words = [cell for cell in self.worded.values() if _names_device(cell)]
        named, unknown = _device_of(" ".join((self.record.machine, *words)), self.record.section)
        return named or (None if unknown else self.sheet.text(self).device)

    @once
    def peak(self) -> float | None:
        """The most TFLOPs of the row's device; of one that nobody has a preset for, what the text says."""
        said = self.sheet.text(self).peaks
        if self.device is not None and (is_preset(self.device) or not said):
            return max(self.device.peak_tflops.values()) * (1.15 if self.device.kind == "cpu" else 1.0)
        own = self.device.peak_tflops.get("bf16") if self.device is not None else None
        if self.device is not None and own and self.record.machine and not any(abs(peak / own - 1) < 0.02 for peak in said):
            return max(self.device.peak_tflops.values())  # what the text says is another device's
        return next((peak for peak in said if own and abs(peak / own - 1) < 0.02), max(said, default=None))

    @once
    def tabular(self) -> bool:
        """A row of a table or of a CSV file, not a line of a log."""
        return self.record.table is not None or self.record.iteration is None and bool(self.record.printed)

    @property
    def mates(self) -> list[Row]:
        return self.sheet.tables[self.key]

    @property
    def around(self) -> list[Row]:
        """The rows of the table that stand near this one: all of them, unless the table is a very long one."""
        start, end = self.nearby
        return self.mates if end - start == len(self.mates) else self.mates[start:end]

    @property
    def nearby(self) -> tuple[int, int]:
        """The first of the rows around and the one after the last, by their places."""
        count = len(self.mates)
        return (0, count) if count <= 2 * _NEAR else (max(0, self.place - _NEAR), min(count, self.place + _NEAR))

    @property
    def elsewhere(self) -> list[Row]:
        """The rows of the file that a row is compared with: all, unless it is a very long one."""
        return self.sheet.files[self.record.source_file][:_MOST]

    @once
    def key(self) -> tuple[str, int | None]:
        return self.record.source_file, self.record.table

    @property
    def where(self) -> str:
        return f"line {self.record.source_line}"

    def seen_from(self, other: Row) -> str:
        """This row's place as another row's finding names it."""
        same = other.record.source_file == self.record.source_file
        return self.where if same else f"{self.record.source_file} {self.where}"

    def find(self, code: str, level: Level, message: str, *, name: str = "", proposed: str | None = None,
             column: str | None = None, printed: str | None = None) -> Finding:  # fmt: skip
        """Something to say about this row, and of which cell: by its field, or by the heading and what is printed there."""
        if name:
            column, printed = self.column(name), self.cell(name) or _plain(getattr(self.record, name, None))
            proposed = _as_there(printed or "", self.printed(name) if name in MEASURED else None, proposed)
        return Finding(file=self.record.source_file, line=self.record.source_line, code=code, level=level,
                       message=message, column=column, printed=printed, proposed=proposed)

    def propose(self, name: str, value: float, code: str) -> None:
        self.configuration = self.judged = self.spans = None
        self.terms.clear()
        self.reasons[name] = code
        if abs(value) > MOST_MEASURED:
            return  # of a cell that nobody measured nothing is worked out
        self.fixed[name] = value
        if name in ("layers", "hidden", "seq"):
            setattr(self, name, round(value))


def _in_thousands(scale: float) -> bool:
    return abs(scale / 1000 - 1) < 1e-6


def _as_there(cell: str, figure: Printed | None, proposed: str | None) -> str | None:
    """A proposal with the decimal comma and the thousands that the cell has."""
    if proposed is None or not re.fullmatch(r"\d+(?:\.\d+)?", proposed):
        return proposed
    times = re.fullmatch(r"\s*[\d.,]+ ?([kKM])", cell)
    number = re.search(r"(?<![\d.,])\d+,\d+(?![\d.,])", cell)
    read = number and float(number[0].replace(",", "."))
    comma = read and (len(number[0].partition(",")[2]) != 3 if figure is None else abs(figure.value - read) < 1e-9)  # type: ignore[index]
    if money := re.match(r"[$€£]\s?", cell):
        return money[0] + (f"{int(proposed):,}" if proposed.isdigit() and "," in cell else proposed)
    if comma and re.fullmatch(r"\d+\.\d\d0", proposed):
        proposed = proposed[:-1]  # three digits behind a comma are thousands
    return (proposed.replace(".", ",") if comma else proposed) + (times[1] if times else "")


def _plain(value: object) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(eq=False)
class Sheet:
    """All rows of all files that are looked at together."""

    rows: list[Row]
    prose: Mapping[str, Prose]
    readers: dict[tuple[str, Reading], list[Row]] = field(default_factory=dict)
    """(file, reading) -> the rows that follow it and agree; filled when it is needed."""
    followed: dict[str, Counter[Reading | None]] = field(default_factory=dict)
    """File -> how many of its rows follow each reading; filled when it is needed."""
    proven: dict[tuple[str, Reading, object], bool] = field(default_factory=dict)
    """(file, reading, model) -> whether rows of the file agree with it; filled when it is needed."""
    trusted: dict[Row, bool] = field(default_factory=dict)
    """Row -> whether its time and TFLOPs agree as printed; filled when it is needed."""
    rules: dict[tuple[str, object, object], relations.Rule] = field(default_factory=dict)
    """Which relations between columns the rows of a table and of a file keep to: see `relations`."""
    found: dict[tuple[str, int | None], list[relations.Relation]] = field(default_factory=dict)
    """Table -> what its columns that no field takes follow from: see `relations`."""
    asked: dict[tuple[str, int | None], tuple[relations.Relation, ...]] = field(default_factory=dict)
    """Table -> the relations that its rows are asked for."""
    in_step: tuple[Row, int, dict[str, float], dict[str, list[float | None]]] | None = None
    """The row that counts were last looked at for, and those: see `counts`."""
    ends: dict[tuple[object, ...], list[tuple[float, float] | None]] = field(default_factory=dict)
    """Readings and a shape -> the fewest and the most FLOPs of a sequence: see `formulas`."""
    loose: set[object] = field(default_factory=set)
    """Tables whose figures scatter; filled when it is needed."""
    peaks: dict[object, bool] = field(default_factory=dict)
    """Table -> whether its MFU are shares of a peak that a data sheet has."""
    costs: dict[tuple[object, str], tuple[float, float]] = field(default_factory=dict)
    """(table, size) -> what a token costs, and a token for each token of the sequence, where no formula is known."""
    _steps: dict[tuple[tuple[str, int | None], str], digits.Steps] = field(default_factory=dict)
    _ordered: dict[tuple[tuple[str, int | None], str], list[float]] = field(default_factory=dict)
    _filled: dict[tuple[str, int | None], frozenset[str]] = field(default_factory=dict)
    _unknown: dict[tuple[str, int | None], bool] = field(default_factory=dict)
    _shared: dict[tuple[str, int | None], frozenset[str]] = field(default_factory=dict)
    _counts: dict[tuple[tuple[str, int | None], str], Counter[object]] = field(default_factory=dict)
    _laid_out: dict[str, dict[tuple[int | None, ...], list[Row]]] = field(default_factory=dict)
    _bearers: dict[tuple[str, str, int | None], dict[object, list[Row]]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record], prose: Mapping[str, Prose] | None = None) -> Sheet:
        sheet = cls([], dict(prose or {}))
        for record in records:
            text = sheet.prose.get(record.source_file)
            record = _labelled(record)
            known = record if text is None else text.hints.enriched(record)
            row = Row(known, len(sheet.rows), sheet, layers=known.layers, hidden=known.hidden, seq=known.seq, vocab=known.vocab)
            told = text is not None and text.hints.mixture(known)
            row.mixture = told or is_mixture(known.size_label) or bool(known.experts) or row.beside("ep") is not None
            sheet.rows.append(row)
        return sheet

    @cached_property
    def tables(self) -> dict[tuple[str, int | None], list[Row]]:
        """(file, number of the table) -> its rows; what is no table row stands under None."""
        tables = _grouped(self.rows, lambda row: row.key)
        for rows in tables.values():
            for place, row in enumerate(rows):
                row.place = place
        return tables

    @cached_property
    def turned(self) -> set[tuple[str, int | None]]:
        """Files and lines in which several rows of a table begin: one that has its runs side by side."""
        starts = Counter((row.record.source_file, row.record.source_line) for row in self.rows if row.record.table is not None)
        return {where for where, rows in starts.items() if rows > 1}

    @cached_property
    def files(self) -> dict[str, list[Row]]:
        return _grouped(self.rows, lambda row: row.record.source_file)

    def steps(self, key: tuple[str, int | None], name: str) -> digits.Steps:
        """How fine the figures of one column are."""
        if (key, name) not in self._steps:
            shown = (digits.read(cell, getattr(row.record, name, None)) for row in self.tables[key] if (cell := row.cell(name)))
            self._steps[key, name] = digits.Steps.of([figure for figure in shown if figure is not None])
        return self._steps[key, name]

    def ordered(self, key: tuple[str, int | None], name: str) -> list[float]:
        """What the rows of a table have in a field, the least first."""
        if (key, name) not in self._ordered:
            values = (getattr(row.record, name) for row in self.tables[key][:_MOST])
            self._ordered[key, name] = sorted(value for value in values if value)
        return self._ordered[key, name]

    def rare(self, row: Row, name: str, value: object) -> bool:
        """Whether no other row of the table may have a value; in a very long one, whether hardly any has."""
        key = row.key, name
        if key not in self._counts:
            self._counts[key] = Counter(getattr(mate.record, name) for mate in row.mates)
        return self._counts[key][value] < 2 + len(row.mates) // (2 * _NEAR)

    def filled(self, key: tuple[str, int | None]) -> frozenset[str]:
        """What is measured in a row of the table at all: rules of anything else need not look at its rows."""
        if key not in self._filled:
            columns = zip(*(_FIGURES(row.record) for row in self.tables[key]))
            self._filled[key] = frozenset(n for n, column in zip(FIGURES, columns) if column.count(None) < len(column))
        return self._filled[key]

    def laid_out(self, file: str) -> dict[tuple[int | None, ...], list[Row]]:
        """DP, TP and PP as they are printed -> the rows of a file that have them."""
        if file not in self._laid_out:
            self._laid_out[file] = _grouped(self.files[file][:_MOST], lambda row: (row.record.dp, row.record.tp, row.record.pp))
        return self._laid_out[file]

    def has_unknown(self, key: tuple[str, int | None]) -> bool:
        """Whether a column of the table that no field takes holds different numbers."""
        if key not in self._unknown:
            rows = self.tables[key][:_NEAR]
            headings = extras(rows[0])
            self._unknown[key] = any(len({row.figure(heading) for row in rows} - {None}) > 1 for heading in headings)
        return self._unknown[key]

    def shared(self, key: tuple[str, int | None]) -> frozenset[str]:
        """The columns that no field takes whose figures most rows of the table share with another row."""
        if key not in self._shared:
            rows = self.tables[key][:_NEAR]
            counts = {heading: Counter(row.figure(heading) for row in rows) for heading in extras(rows[0])}
            self._shared[key] = frozenset(heading for heading, seen in counts.items()
                                          if 2 * sum(n for n in seen.values() if n > 1) > len(rows))  # fmt: skip
        return self._shared[key]

    def in_file(self, row: Row, name: str, *, hidden: int | None = None) -> list[object]:
        """The values that the other rows of the file have in a field, each once, in the order they first come; of rows with
        one hidden size, where that is said."""
        key = row.record.source_file, name, hidden
        if key not in self._bearers:
            bearers: dict[object, list[Row]] = {}
            for other in row.elsewhere:
                if (value := getattr(other.record, name)) and (hidden is None or other.hidden == hidden):
                    first = bearers.setdefault(value, [])
                    if len(first) < 2:
                        first.append(other)
            self._bearers[key] = bearers
        own = self._bearers[key].get(getattr(row.record, name))
        if not own or own[0] is not row:
            return list(self._bearers[key])  # in the order they first come without the row too
        others = ((value, [b for b in first if b is not row]) for value, first in self._bearers[key].items())
        return [value for value, first in sorted(((v, b) for v, b in others if b), key=lambda pair: pair[1][0].index)]

    def text(self, row: Row) -> Prose:
        return self.prose.get(row.record.source_file) or _SILENT


_SILENT = Prose.of("")


class Nearby:
    """The figures of the rows around one, kept in order while one walks down a table: their middle without its own."""

    def __init__(self, mates: list[Row], figure: Callable[[Row], float | None]) -> None:
        self._mates, self._figure = mates, figure
        self._start = self._end = 0
        self._held: dict[int, float] = {}
        self._ordered: list[float] = []

    def middle(self, row: Row) -> tuple[int, float]:
        """How many other rows have a figure, and the median of theirs."""
        start, end = row.nearby
        if start < self._start:
            self._start, self._end, self._held, self._ordered = start, start, {}, []
        while self._end < end:
            self._take(self._end)
            self._end += 1
        while self._start < start:
            self._drop(self._start)
            self._start += 1
        own = self._held.get(row.place)
        at = len(self._ordered) if own is None else bisect.bisect_left(self._ordered, own)
        count = len(self._ordered) - (own is not None)
        if not count:
            return 0, math.nan
        low, high = (self._ordered[i if i < at else i + 1] for i in ((count - 1) // 2, count // 2))
        return count, low if count % 2 else (low + high) / 2

    def others(self, row: Row) -> Iterator[tuple[Row, float]]:
        """The other rows that have one with theirs, after `middle` was asked for the same row."""
        return ((self._mates[place], figure) for place, figure in self._held.items() if place != row.place)

    def ends(self, row: Row) -> tuple[float, float]:
        """The least and the most that another row has, after `middle` was asked for the same row."""
        own = self._held.get(row.place)
        first, last = self._ordered[:2], self._ordered[-2:]
        return first[1 if first[0] == own else 0], last[0 if last[-1] == own else -1]

    def changed(self, row: Row) -> None:
        """A finding proposed another figure for the row."""
        if self._start <= row.place < self._end:
            self._drop(row.place)
            self._take(row.place)

    def _take(self, place: int) -> None:
        figure = self._figure(self._mates[place])
        if figure is not None:
            self._held[place] = figure
            bisect.insort(self._ordered, figure)

    def _drop(self, place: int) -> None:
        figure = self._held.pop(place, None)
        if figure is not None:
            del self._ordered[bisect.bisect_left(self._ordered, figure)]


_SIZE = re.compile(r"\d+(?:\.\d+)? ?[MBT]")


def _labelled(record: Record) -> Record:
    """A size in the first cell is the model's, whatever stands above it: `8B` under `Llama 3`."""
    first = clean(next(iter(record.printed.values()), "")) if not record.size_label else ""
    return replace(record, size_label=first) if _SIZE.fullmatch(first) else record


def _grouped(rows: list[Row], key) -> dict:  # type: ignore[no-untyped-def]
    groups: dict = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def round_number(n: int) -> bool:
    """Whether people choose such batches, lengths and numbers of devices: a power of two, or a small multiple of one."""
    return n > 0 and n // (n & -n) <= 15


def mode(values: Iterable[object]) -> tuple[object, int]:
    """The most frequent value and how often it comes."""
    counts = Counter(value for value in values if value is not None)
    return counts.most_common(1)[0] if counts else (None, 0)
