"""A row of a table as the rules see it: its printed numbers, its table mates, and what is known better than it is printed.

    row.cell("tflops"), row.printed("tflops")        the text of a cell, and its number with how much the last digit hides
    row.get("tflops")                                the value after what earlier rules proposed
    row.find("over-peak", "error", "400 TFLOPs is above the peak", name="tflops")

A row collects, as rules run, solved layers, processes per node, and in `fixed` the values that a finding proposes. Later rules
use those, so that one slip is reported once.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from seatrial.columns import AROUND, LAYOUT
from seatrial.notes.labels import label_parameters
from seatrial.notes.lint import digits
from seatrial.notes.lint.digits import Printed
from seatrial.notes.lint.findings import Finding, Ground, Level
from seatrial.notes.lint.headings import EXTRA, extras, field_of, fields_of, kind_beside, kinds_beside, parts_of
from seatrial.notes.lint.models.devices import device_of, devices_in, is_preset, names_device, of_devices
from seatrial.notes.lint.once import once
from seatrial.notes.lint.text.prose import SILENT, Prose
from seatrial.notes.read import units
from seatrial.notes.read.rows import holds_flops, holds_memory, laid_out
from seatrial.notes.read.sound import MOST_MEASURED
from seatrial.record import Record
from seatrial.spec import Device
from seatrial.tables.headings import batch_of_tokens, clean, is_any_batch, read_heading

if TYPE_CHECKING:
    from seatrial.notes.lint.models.formulas import Reading
    from seatrial.notes.lint.sheet import Sheet

NEAR, MOST = 150, 1000
"""Tables and files beyond this are logs of a program: a row is compared with this many others, so that time stays linear."""
_RATES = ("tokens_per_s", "tokens_per_s_per_process", "samples_per_s")
MEASURED = ("mem_value", "sec_per_it", "tflops", "aggr_pflops", "samples_per_s", "tokens_per_s")
CONFIGURATION = (
    "nodes", "layers", "hidden", "heads", "kv_heads", "seq", *LAYOUT,
    *(name for name in AROUND if name not in ("nodes", "procs_per_node", "freq_ghz")),
)  # fmt: skip
"""What two rows of one configuration have in common, as far as both say."""
PLAIN_NAMES = {
    "nodes": "Nodes", "gpus": "GPUs", "size_label": "Size", "layers": "Layers", "hidden": "Hidden", "heads": "Heads",
    "seq": "Seq", "mem_value": "Mem", "sec_per_it": "Sec/it", "tflops": "TFLOPs", "aggr_pflops": "PFLOPs",
}  # fmt: skip
_COUNTED_BY = re.compile(r"\bflops? (?:by|formula|convention|counting|method|from)\b|\b(?:formula|fórmula|formule|formel|"
                         r"convention|konvention|counted (?:by|as|with))\b|公式|計算式|формула", re.IGNORECASE)  # fmt: skip
_FIELDS = frozenset(one.name for one in fields(Record))
_PLANNED = re.compile(r"planned|plan|estimate[d]?|est\.?|projected|projection|forecast|predicted|target|theoretical")
_THOUSANDS = re.compile(r"\d ?([kKM])\b")
_DIGIT, _NUMBER, _WORD = re.compile(r"\d"), re.compile(r"\d+"), re.compile(r"[A-Za-z0-9]+")
_LETTERED = re.compile(r"([A-Z])(\d{1,2})")
_CONTEXT = re.compile(r"(?<!\w)CP ?[=:]? ?(\d{1,2})(?!\d)")
_REFERENCE = re.compile(r"duplicate|same|line|\bsee\b|\bref", re.IGNORECASE)
"""A heading of cells that point at other rows, `L40` for line 40: they set nothing."""


@lru_cache(maxsize=4096)
def _refers(heading: str) -> bool:
    return _REFERENCE.search(heading) is not None


@lru_cache(maxsize=4096)
def _first_word(text: str) -> str:
    return (_WORD.search(text) or [""])[0]


@lru_cache(maxsize=4096)
def _is_plan(cell: str) -> bool:
    return _PLANNED.fullmatch(cell.strip().lower()) is not None


class Cells(dict[str, str]):
    def __missing__(self, heading: str) -> str:
        return ""


class _Kept:
    """Room for what is worked out `once`, beside the slots: a row has more fields than its class would lay out together."""


@dataclass(eq=False, slots=True)
class Row(_Kept):
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
    axes: tuple[str, ...] = ()
    """The degrees that one cell holds, `4x10x16`, in the order that the text says."""
    axes_in: str = ""
    """The heading of that cell."""
    sure: dict[str, float] = field(default_factory=dict)
    """Fields and columns that other evidence proves, dates or a total, and by which logarithm they may be off at most."""
    settled: bool = False
    """Whether a finding has explained how the row's figures belong together."""
    added: tuple[bool, bool] | None = None
    """Whether it is a total, and whether a mean, filled when it is needed: see `totals`."""
    aggregate: bool | None = None
    """Whether it is one of them or a part of all, filled when it is needed: see `totals`."""
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
        found = dict(fields_of(tuple(self.record.printed)))
        if self.record.sec_per_it and self.record.iteration is None and "sec_per_it" not in found and "iteration" in found:
            found["sec_per_it"] = found.pop("iteration")
        if self.record.tokens_per_s_per_process and self.record.tokens_per_s is None and "tokens_per_s" in found:
            found.setdefault("tokens_per_s_per_process", found.pop("tokens_per_s"))  # as the text says
        if "mbs" in self.record.inferred and "mbs" in found and "gbs" not in found:
            found["gbs"] = found.pop("mbs")  # as the rates have it
        for name, holds in (("mem_value", holds_memory), ("tflops", holds_flops)):
            if getattr(self.record, name) is not None and name not in found:
                by_cell = [heading for heading, cell in self.record.printed.items() if holds(heading, cell)]
                found.update(dict.fromkeys([name], by_cell[0]) if by_cell else {})
        if "mbs" in found and "gbs" not in found and "mbs" in self.record.inferred and is_any_batch(found["mbs"]):
            found["gbs"] = found.pop("mbs")
        if "gpus" in found and self.record.gpus and not any(map(str.isdigit, self.record.printed[found["gpus"]][:1])):
            # `gpu` names which, and `gpus` beside it how many.
            counted = [heading for heading, cell in self.record.printed.items()
                       if field_of(heading) == "gpus" and digits.alone(cell) == self.record.gpus]  # fmt: skip
            found["gpus"] = counted[0] if counted else found["gpus"]
        label = self.record.size_label
        if label and "size_label" in found and clean(self.record.printed[found["size_label"]]) != label:
            # `6.18 B` under `parameters`, beside a name.
            size = label_parameters(label)
            sized = [heading for heading, cell in self.record.printed.items() if size and heading != found["size_label"]
                     and field_of(heading) == "size_label" and label_parameters(clean(cell)) == size]  # fmt: skip
            found["size_label"] = sized[0] if len(sized) == 1 else found["size_label"]
        if self.record.machine and "machine" not in found and _first_word(self.record.machine) in self.text:
            named = next((heading for heading, cell in self.record.printed.items()
                          if self.record.machine[:1] in cell and clean(cell) == self.record.machine), None)  # fmt: skip
            found.update({} if named is None else {"machine": named})
        return found

    def figure(self, heading: str) -> float | None:
        """The number in a column that no field takes."""
        return digits.alone(self.record.printed.get(heading, ""))

    def said(self, name: str) -> int | float | str | None:
        """What is printed for a field, a count beside the layout or a column that no field takes, whatever was proposed."""
        if name in ("cp", "ga"):
            return self.beside(name)
        return self.figure(name[1:]) if name[:1] == EXTRA else getattr(self.record, name)

    @once
    def prose(self) -> Prose:
        """What is said of it."""
        whole = self.sheet.prose.get(self.record.source_file)
        return whole.at(self.record.source_line or 0) if whole is not None else SILENT

    @property
    def extras(self) -> list[str]:
        """The headings of columns that no field takes."""
        found = extras(tuple(self.record.printed))
        if not self.sheet.defines:
            return found
        defined = self.sheet.text(self).defined
        return [heading for heading in found if not kind_beside(defined.get(heading, ""))]

    def cell(self, name: str) -> str:
        heading = self.columns.get(name)
        if heading is None:
            return self.record.printed.get(name[1:], "").strip() if name[:1] == EXTRA else ""
        return self.cells[heading]

    @once
    def cells(self) -> dict[str, str]:
        """What is printed, without the gaps around it; nothing under a heading that only other rows have."""
        return Cells({heading: cell.strip() for heading, cell in self.record.printed.items()})

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

    @property
    def of_tokens(self) -> Printed | None:
        """The batch as it is printed, where that is in tokens."""
        unit = batch_of_tokens(self.columns.get("gbs", ""))
        figure = self.printed("gbs") if unit is not None else None
        if figure is None or not self.seq:
            return None
        times = _THOUSANDS.search(self.cell("gbs"))
        scale = self.seq / {"K": 1e3, "M": 1e6}.get((times[1].upper() if times else unit) or "", 1.0)
        return replace(figure, scale=scale, step=10.0 ** -digits.places(self.cell("gbs")) / scale)

    def _read(self, name: str) -> Printed | None:
        value = self.figure(name[1:]) if name[:1] == EXTRA else getattr(self.record, name, None)
        if value is None:
            return None
        plain = digits.read(cell, value) if (cell := self.cell(name)) else digits.from_value(value)
        if plain is not None and name == "sec_per_it" and self.record.time_unit == "it/s":
            plain = replace(plain, scale=1.0, inverse=True)
        elif plain is not None and name in _RATES and units.inverts(read_heading(self.columns.get(name, "")).unit):
            plain = replace(plain, scale=plain.scale * plain.value * plain.value, inverse=True)
        elif plain is not None and "," in cell and self.record.time_unit != "ms" and _in_thousands(plain.scale):
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
            for heading, kind in kinds_beside((*extra, *printed)):
                cell = printed[heading] if heading in printed else extra[heading]
                if cell.strip().isdecimal() and len(cell.strip()) < 10 and int(cell) > 0:
                    self._beside[kind] = int(cell)
                    self.columns.setdefault(kind, heading)
            for heading, words in self.sheet.text(self).defined.items() if self.sheet.defines else ():  # as the text has it
                kind, cell = kind_beside(words), printed.get(heading, "").strip()
                if kind and kind not in self._beside and cell.isdecimal() and 0 < len(cell) < 10 and int(cell) > 0:
                    self._beside[kind] = int(cell)
                    self.columns.setdefault(kind, heading)
            self._beside.update(self._axis_in_words())
        return self._beside.get(name)

    def _axis_in_words(self) -> dict[str, int]:
        """`ZeRO-1, CP 2` in a remark, where with it, and not without, the axes give the devices."""
        record = self.record
        if None in (record.dp, record.tp, record.pp) or not self.counted or "cp" in (self._beside or ()):
            return {}
        whole = record.dp * record.tp * record.pp  # type: ignore[operator]
        said = [int(match[1]) for cell in self.worded.values() if "CP" in cell for match in _CONTEXT.finditer(cell)]
        return {"cp": said[0]} if len(said) == 1 and whole * said[0] == self.counted != whole else {}

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
        each, replicas = record.mbs * (self.beside("ga") or 1), record.dp or (self.counted or 0) // shared
        if replicas or not self.shows("ga"):
            return record.gbs == each * replicas
        # As many replicas in every row, which the text tells or nobody does.
        near = [mate for mate in self.mates[max(0, self.place - 3) : self.place + 4] if mate.record.gbs and mate.record.mbs]
        return len(near) > 1 and all(
            mate.record.gbs * each == record.gbs * mate.record.mbs * (mate.beside("ga") or 1) for mate in near  # type: ignore[operator]
        )

    @once
    def in_parts(self) -> frozenset[str]:
        named = parts_of(tuple(self.record.printed))
        more = [self.axes, *map(laid_out, self.record.extra.values())]
        return named.union(*more) if any(more) else named

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
        """The cells that have letters; files and addresses that they lead to are none of their words."""
        cells = {heading: _ADDRESS.sub("]", cell) if "](" in cell else cell for heading, cell in self.record.printed.items()}
        return {heading: cell for heading, cell in cells.items() if cell.swapcase() != cell}

    @once
    def described(self) -> list[tuple[str, str]]:
        """Words of the row in columns that no field takes: what else was on."""
        return [(heading, cell) for heading, cell in self.record.extra.items()
                if heading in self.record.printed and not _DIGIT.search(cell) or " " in cell.strip()]  # fmt: skip

    @once
    def devices(self) -> frozenset[str]:
        """The kinds of device and number that the headings above the row and its own words name."""
        own = [cell for heading, cell in self.record.extra.items() if not _refers(heading)]
        own += [self.record.run_id] if self.names_device else []
        words = " ".join((of_devices(self.record.section), self.record.machine, self.record.size_label, *own))
        return devices_in(words)

    @once
    def names_device(self) -> bool:
        """Whether the name of the run is that of a device, `A100` or `H100, large`."""
        name = self.record.run_id
        return bool(name) and names_device(name) and not self._is_numbered(name)

    def _is_numbered(self, name: str) -> bool:
        """Whether it is one of names that are counted on: `L4` between L3 and L5 is no card."""
        match = _LETTERED.fullmatch(name.strip("*` "))
        if match is None:
            return False
        near = (self.mates[at] for at in (self.place - 1, self.place + 1) if 0 <= at < len(self.mates))
        nexts = {f"{match[1]}{int(match[2]) + step}" for step in (-1, 1)}
        return any(cell.strip("*` ") in nexts for mate in near for cell in mate.cells.values())

    @once
    def device(self) -> Device | None:
        """What the row's own cells name, else the headings above it, else the file."""
        words = [cell for cell in self.worded.values() if names_device(cell) and not self._is_numbered(cell)]
        named, unknown = device_of(" ".join((self.record.machine, *words)), self.record.section)
        return named or (None if unknown else self.sheet.text(self).device)

    @once
    def counted_by(self) -> str:
        """By what the row says that its FLOPs are counted: `6N` and `Megatron` under `FLOPs by`."""
        return next((cell for heading, cell in self.record.extra.items() if _COUNTED_BY.search(heading)), "")

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
        return (0, count) if count <= 2 * NEAR else (max(0, self.place - NEAR), min(count, self.place + NEAR))

    @property
    def elsewhere(self) -> list[Row]:
        """The rows of the file that a row is compared with: all, unless it is a very long one."""
        return self.sheet.files[self.record.source_file][:MOST]

    @once
    def key(self) -> tuple[str, int | None]:
        return self.record.source_file, self.record.table

    @property
    def file(self) -> str:
        """Also of a row whose source is a chapter of it."""
        return self.sheet.names.get(self.record.source_file, self.record.source_file)

    @property
    def where(self) -> str:
        return f"line {self.record.source_line}"

    def seen_from(self, other: Row) -> str:
        """This row's place as another row's finding names it."""
        return self.where if other.file == self.file else f"{self.file} {self.where}"

    def find(self, code: str, level: Level, message: str, *, name: str = "", proposed: str | None = None,
             column: str | None = None, printed: str | None = None, slip: str | None = None,
             ground: Ground = "law") -> Finding:  # fmt: skip
        """Something to say about this row, and of which cell: by its field, or by the heading and what is printed there."""
        if name:
            column, printed = self.column(name), self.cell(name) or _plain(getattr(self.record, name, None))
            if name in self.axes:
                column, printed = self.axes_in, self.cells.get(self.axes_in, "")
                proposed = proposed and _with_side(printed, self.axes.index(name), proposed)
            elif name in self.in_parts and (whole := self._whole_cell(name)):
                column, printed, at = whole
                proposed = proposed and _with_side(printed, at, proposed)
            if proposed and name == "gbs" and proposed.isdigit() and self.of_tokens:
                proposed = self.of_tokens.like(int(proposed))
            proposed = digits.as_there(printed or "", self.printed(name) if name in MEASURED else None, proposed)
        return Finding(file=self.record.source_file, line=self.record.source_line, code=code, level=level,
                       message=message, column=column, printed=printed, proposed=proposed, slip=slip, ground=ground)

    def _whole_cell(self, name: str) -> tuple[str, str, int] | None:
        """The heading and the cell of which a field is one number, and which: `TP×PP×DP`, `1×1×4`."""
        for heading, cell in self.cells.items():
            parts = read_heading(heading).parts
            if name in parts and len(_NUMBER.findall(cell)) == len(parts):
                return heading, cell, parts.index(name)
        return None

    def propose(self, name: str, value: float, code: str) -> None:
        self.configuration = self.judged = self.spans = None
        self.terms.clear()
        self.reasons[name] = code
        if abs(value) > MOST_MEASURED:
            return  # of a cell that nobody measured nothing is worked out
        self.fixed[name] = value
        if name in ("layers", "hidden", "seq"):
            setattr(self, name, round(value))


_ADDRESS = re.compile(r"\]\([^()\s]*\)")


def _with_side(mesh: str, at: int, side: str) -> str:
    """`4x10x16` with another number in one place."""
    sides = iter(range(len(mesh)))
    return _NUMBER.sub(lambda match: side if next(sides) == at else match.group(), mesh)


def _in_thousands(scale: float) -> bool:
    return abs(scale / 1000 - 1) < 1e-6


def _plain(value: object) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)
