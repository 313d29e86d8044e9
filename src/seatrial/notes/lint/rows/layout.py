"""The layout of a row: DP x TP x PP must be the processes of the job, and batch, layers and heads must divide over it.

    count_processes(sheet)               sets row.procs, the processes per node
    check_processes(sheet); check_divisible(sheet)

Which of the cells is wrong is decided by what else the row says. Evidence, strongest first: the TFLOPs agree with one of the
two process counts and not with the other; layers, heads and batch must still divide; another row of the file has the proposed
configuration; the column is otherwise constant.
"""
from __future__ import annotations

import functools
import math
import operator
import re
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from seatrial.errors import BadInput
from seatrial.notes.labels import experts_in, label_parameters
from seatrial.notes.lint import titles
from seatrial.notes.lint.columns import counts, relations
from seatrial.notes.lint.digits import alone, powers_that_lost_one, slip, slips
from seatrial.notes.lint.findings import Finding, Ground
from seatrial.notes.lint.models.model_size import fits_label, sizes
from seatrial.notes.lint.row import MEASURED, Row
from seatrial.notes.lint.rows.meant import meant, odd
from seatrial.notes.lint.sheet import Sheet, fewest
from seatrial.notes.lint.usual import mode, round_number
from seatrial.record import Record
from seatrial.stages import read as read_split
from seatrial.tables.headings import NUMBER, is_any_batch, normal, read_heading

# Scores of a change of one cell that would make the counts agree.
TFLOPS_AGREE = {True: 4.0, False: -4.0, None: 0.0}
"""By whether the TFLOPs fit afterwards, and did not before; None where they cannot say."""
COLUMN_HAS_IT, COLUMN_HAS_PRINTED = 6.0, -2.0
"""Times the share of the column that has the new value beyond one half, and the printed one."""
LAYOUT_ELSEWHERE, BATCH_TOO, CONTRADICTED, NOT_DIVISIBLE = 2.0, 3.0, -3.0, -2.0
"""Another row of the file has the layout, and the batch with it; one of the table has it with another time; the batch does not
divide any more."""
UNEVEN = -1.0
"""The layers do not divide over the stages: some engines do that, most people do not."""
REPLICAS = 1.5
"""DP is counted last and typed from memory; the other three are chosen with care."""
DEFINED = 6.0
"""The replicas, micro-batch and accumulation are the batch again, or the parameters of a device those of the model."""
NAMED = 4.0
"""The name of the run says so, as those of the other rows do; or says another one."""
IN_STEP = 3.0
"""A count goes in step with others again, as it does in the other rows; against it where one that did does not."""
MARGIN = 0.4
"""By how much the best change must lead to be proposed."""
NAMES = {"dp": "DP", "tp": "TP", "pp": "PP", "cp": "CP", "nodes": "nodes", "gpus": "GPUs"}


def fill_axes(sheet: Sheet) -> None:
    """An axis that a table does not name is 1, or what it leaves of the devices in every row, and the devices are those that
    the text names, where most rows prove it."""
    for mates in sheet.tables.values():
        _take_foreign(mates)
        _fill_ordered(mates)
        _fill_single(mates)
        _fill_data(mates)
        for row in mates:
            shard = row.beside("shard") if row.tabular and row.record.dp is None else None
            if shard is not None:
                dp = shard * (row.beside("replicate") or 1)
                row.record = replace(row.record, dp=dp, inferred=(*row.record.inferred, "dp"))
                row.columns.setdefault("dp", row.columns["shard"])
        rows = [row for row in mates if row.tabular and row.record.dp][:500]
        _fill_unnamed(rows)
        if len(rows) < FEWEST:
            continue
        open_ = [name for name in ("tp", "pp") if all(getattr(row.record, name) is None for row in rows)]
        counted = any(row.record.gpus or row.record.nodes for row in rows)
        devices = stated = None if counted else sheet.text(rows[0]).hints.devices(rows[0].record.source_line or 0)
        if not open_ and devices is None:
            continue
        if devices is None and not counted:
            devices = _same_devices(rows)
        count = {row: row.record.gpus or row.record.nodes or devices for row in rows}
        shares = {row: Fraction(count, _product(row)) for row, count in count.items() if count}
        usual, often = mode(shares.values())
        # An axis that differs from row to row without a word is no slip of several rows; what the text counts is said.
        odd = 0.25 if usual == 1 and devices is not None and devices == stated else 0.1
        if not isinstance(usual, Fraction) or often < FEWEST or len(shares) - often > max(1, odd * len(shares)):
            continue
        rest = {name: 1 for name in open_}
        if usual != 1 and not any(row.record.nodes and not row.record.gpus for row in rows):
            agree = [row for row in rows if shares.get(row) == usual]
            layouts = {(row.record.dp, row.record.tp, row.record.pp, row.beside("cp")) for row in agree}
            if not open_ or usual.denominator > 1 or devices and len(layouts) < FEWEST:
                continue
            rest[open_[0]] = int(usual)  # the same in every row, and not worth a column
        for row in rows:
            known = rest | ({} if row.record.gpus or not devices else {"gpus": devices})
            row.record = replace(row.record, **known, inferred=tuple(sorted({*row.record.inferred, *known})))  # type: ignore[arg-type]


def _take_foreign(mates: list[Row]) -> None:
    """Degrees that the text states and no row of the table has the devices for are another job's: taken away, those that are
    said farthest from the rows first. Of one row alone they are where a heading stands between."""
    first = mates[0]
    said = {name: stated[1] for name in ("tp", "pp", "cp") if getattr(first.record, name)
            and not first.shows(name) and (stated := first.stated_above(name))}  # fmt: skip
    rows = [row for row in mates[:500] if row.tabular and row.shows("gpus") and row.record.gpus] if said else []
    if not rows or any(row.shows(name) for row in rows for name in said) or any(map(_holds, rows)):
        return
    sections = first.sheet.text(first).hints.sections
    if len(rows) == 1 and sections.at(max(said.values())) == sections.at(first.record.source_line or 0):
        return
    before = [row.record for row in mates]
    for line in sorted({*said.values()}):
        gone = [name for name, its in said.items() if its == line]
        for row in mates:
            inferred = tuple(name for name in row.record.inferred if name not in gone)
            context = {name: stated for name, stated in row.record.context.items() if name not in gone}
            row.record = replace(row.record, **dict.fromkeys(gone), inferred=inferred, context=context)  # type: ignore[arg-type]
        if any(map(_holds, rows)):
            return
    for row, record in zip(mates, before):
        row.record = record  # one of them is wrong, and not another's


def _holds(row: Row) -> bool:
    """Whether the devices of a row are a whole number of replicas, and as many as it says."""
    record = row.record
    replicas, rest = divmod(record.gpus or 0, (record.tp or 1) * (record.pp or 1) * (record.cp or 1))
    return not rest and record.dp in (None, replicas)


_AXIS = r"(?:TP|PP|DP|CP|FSDP|DDP|MP|tensor|pipeline|data|fsdp)"
_ORDER = re.compile(rf"(?<![\w/]){_AXIS}(?:\s?[x×·*/-]\s?{_AXIS}){{1,3}}(?![\w/])")
_SIDES = re.compile(r"\(?\s*\d{1,5}(?:\s*[x×·*/-]\s*\d{1,5}){1,3}\s*\)?")
_AXES = {"TP": "tp", "MP": "tp", "tensor": "tp", "PP": "pp", "pipeline": "pp", "CP": "cp"}


def _fill_ordered(mates: list[Row]) -> None:
    """Cells such as `4x10x16` are degrees in the order that a line above says, `Layout TP x PP x DP`, where most rows have the
    devices or nodes for them."""
    first, degrees = mates[0], ("dp", "tp", "pp", "cp")
    heading = next((one for one in first.extras if _SIDES.fullmatch(first.cells.get(one, ""))), "")
    if not heading or any(row.record.dp or row.record.tp and row.shows("tp") for row in mates) or _OF_THE_BATCH.search(heading):
        return
    sides = {row: [*map(int, re.findall(r"\d+", cell))] for row in mates
             if _SIDES.fullmatch(cell := row.cells.get(heading, ""))}  # fmt: skip
    many = len(sides[first])
    above = first.sheet.text(first).lines[: (first.record.source_line or 1) - 1]
    orders = (match[0] for line in reversed(above) if not line.lstrip().startswith("|") for match in _ORDER.finditer(line))
    order = next((axes for one in orders if len(axes := re.findall(_AXIS, one)) == many), None)
    names = [_AXES.get(axis, "dp") for axis in order or ()]
    whole = [Fraction(math.prod(its), count) for row, its in sides.items()
             if len(its) == many and (count := row.record.gpus or row.record.nodes)]
    usual, often = mode(whole)
    if len({*names}) < max(1, len(names)) or often < max(2, 0.6 * len(whole)) or (usual != 1 and first.record.gpus):
        return
    for row, its in sides.items():
        if len(its) == many and all(its):
            known = dict(zip(names, its)) | {name: 1 for name in degrees[:3] if name not in names}
            row.axes, row.axes_in = tuple(names), heading
            row.record = replace(row.record, **known, inferred=tuple(name for name in row.record.inferred if name not in known))  # type: ignore[arg-type]


_OF_THE_BATCH = re.compile(r"(?<![^\W_])(?:m?bs|micro|batch|acc|accum|ga|gas)(?![^\W_])", re.IGNORECASE)
"""`mbs x acc x dp` are factors of the batch."""
_MANY = re.compile(r"\d+\s?[x×]\s?")
_BOX = re.compile(r"\b(?:DGX|HGX|POD|SuperPOD|nodes?|servers?|slice)\b", re.IGNORECASE)


def _fill_single(rows: list[Row]) -> None:
    """A device by its name alone is one, where another row of the table has `2x` of the same."""
    counted = [row for row in rows if row.record.gpus and row.record.machine]
    if not counted or len(counted) == len(rows) or {"gpus", "nodes", "dp"} & {*counted[0].record.context}:
        return
    headings = (counted[0].columns.get(name) for name in ("machine", "gpus"))
    heading = next((one for one in headings if one is not None and _MANY.match(counted[0].cells.get(one, ""))), None)
    if heading is None:
        return
    many = {_MANY.sub("", row.cells.get(heading, ""), count=1) for row in counted}
    bare = {row: name for row in rows if not (row.record.gpus or row.record.nodes or row.record.dp)
            and (name := row.cells.get(heading)) and not _MANY.match(name)}  # fmt: skip
    if any(name in many for name in bare.values()) and not any(map(_BOX.search, many)):
        for row, name in bare.items():
            known = tuple(sorted({*row.record.inferred, "gpus"}))
            row.record = replace(row.record, gpus=1, machine=row.record.machine or name, inferred=known)


_DATA = frozenset(("data", "data axis", "axis data", "mesh data", "data mesh", "dp axis", "batch axis"))


def _fill_data(mates: list[Row]) -> None:
    """`data` with counts is an axis of a mesh, where it gives the devices with the others in nearly every row."""
    if mates[0].record.dp is not None or not mates[0].record.gpus:
        return
    heading = next((one for one in mates[0].extras if normal(one) in _DATA), "")
    if not heading:
        return
    rows = [row for row in mates[:500] if row.tabular and row.record.gpus and row.cells.get(heading, "").isdecimal()]
    before = [row.record for row in rows]
    for row in rows:
        row.record = replace(row.record, dp=int(row.cells[heading][:6]), inferred=(*row.record.inferred, "dp"))
    _fill_unnamed(rows)
    odd = sum(_product(row) != row.record.gpus for row in rows)
    for row, record in zip(rows, before):
        if len(rows) > FEWEST and odd <= max(1, 0.15 * len(rows)):
            row.columns["dp"] = heading
        else:
            row.record = record


def _fill_unnamed(rows: list[Row]) -> None:
    """A column under a heading that nobody knows, by which the other axes give the devices in nearly every row, is one too; so
    is `model` with counts for names, the axis of a mesh."""
    if len(rows) <= FEWEST or any(row.record.tp or not row.record.gpus for row in rows):
        return
    model = rows[0].columns.get("size_label")
    for heading in (*rows[0].extras, *([model] if model else [])):
        if not rows[0].cells.get(heading, "").isdecimal():
            continue
        factors = [int(cell) if (cell := row.cells.get(heading, "")).isdecimal() and len(cell) < 6 else 0 for row in rows]
        agree = [factor for row, factor in zip(rows, factors) if factor * _product(row) == row.record.gpus]
        differ = {*(agree if heading != model else factors)}
        if all(factors) and len(differ) > 1 and len(rows) - len(agree) <= max(1, 0.15 * len(rows)) and len(agree) > FEWEST:
            for row, factor in zip(rows, factors):
                row.record = replace(row.record, tp=factor, size_label=row.record.size_label if heading != model else "")
                row.columns["tp"] = heading
            return


def _same_devices(rows: list[Row]) -> int | None:
    """How many devices different layouts of a table are all of, though nobody counts them."""
    layouts = {(row.record.dp, row.record.tp, row.record.pp, row.beside("cp")): _product(row) for row in rows}
    usual, often = mode(layouts.values())
    return usual if isinstance(usual, int) and usual > 1 and often >= max(FEWEST, 0.9 * len(layouts) - 1) else None


def fill_micro_batch(sheet: Sheet) -> None:
    """A `batch` beside steps of accumulation that is of all devices, where most rows prove it by their times and rates."""
    for mates in sheet.tables.values():
        rows = [row for row in mates if row.tabular and row.record.mbs and "gbs" in row.record.inferred]
        if len(rows) < max(FEWEST, len(mates)) or not is_any_batch(rows[0].columns.get("mbs", "")):
            continue
        told = [after for row in rows[:500] if (after := _follows(row, row.record.mbs or 1)) is not None]
        if len(told) < FEWEST or sum(told) < ALIKE * len(told):
            continue
        each, _ = mode(Fraction(row.record.mbs or 0, (row.beside("ga") or 1) * _replicas(row)) for row in rows)
        if isinstance(each, Fraction) and each.denominator == 1 and each:
            for row in rows:
                inferred = tuple(sorted({*row.record.inferred, "mbs"} - {"gbs"}))
                row.record = replace(row.record, gbs=row.record.mbs, mbs=int(each), inferred=inferred)
                vars(row).pop("columns", None)


def fill_batch(sheet: Sheet) -> None:
    """A batch that is each device's, where most rows prove it by their times and rates: all of them together are the batch."""
    for mates in sheet.tables.values():
        rows = [row for row in mates if row.tabular and row.record.sec_per_it and row.seq][:500]
        said = [row.record.gbs for row in rows]
        if len(rows) < FEWEST or any(said) and not all(_vague(row) or _of_another(row) for row in rows):
            continue
        each = {row: batch for row in rows if (batch := row.record.mbs or row.record.gbs)}
        same = _same_replicas(rows)
        makers = (_replicas, _devices) if any(map(_of_each, rows)) and not same else (_replicas,)
        # A batch for each device is one for each replica, or for each of the devices that share one: as the rates have it.
        count = max(makers, key=lambda many: sum(_follows(row, batch * many(row) * (row.beside("ga") or 1)) or 0
                                                 for row, batch in each.items()))  # fmt: skip
        made = {row: batch * (same or count(row)) * (row.beside("ga") or 1) for row, batch in each.items()}
        proof = {row: [_follows(row, batch, NEARLY if same else 0.01) for batch in (gbs, row.record.gbs)]
                 for row, gbs in made.items()}  # fmt: skip
        told = [after for after, _ in proof.values() if after is not None]
        if len(told) >= FEWEST and sum(told) >= max(2, 0.5 * len(told)) and not any(before for _, before in proof.values()):
            for row in mates:
                batch = row.record.gbs if _vague(row) else row.record.mbs if not row.states("gbs") else None
                if batch:
                    inferred = tuple(sorted({*row.record.inferred, "gbs"}))
                    gbs = batch * (same or count(row)) * (row.beside("ga") or 1)
                    row.record = replace(row.record, gbs=gbs, mbs=batch, inferred=inferred)


def fill_devices(sheet: Sheet) -> None:
    """As many devices in every row of a table as batch, micro-batch and accumulation leave, where nobody counts them and the
    rates of one prove it, or where they leave as many whatever the steps."""
    for mates in sheet.tables.values():
        if any(row.record.gpus or row.record.nodes or row.record.dp or row.record.tp or row.record.pp for row in mates):
            continue
        rows = [row for row in mates if row.shows("gbs") and row.shows("mbs") and row.record.gbs and row.record.mbs][:500]
        if len(rows) < FEWEST:
            continue
        many, often = mode(Fraction(row.record.gbs, row.record.mbs * (row.beside("ga") or 1)) for row in rows)  # type: ignore[arg-type, operator]
        proof = [(rate * row.record.sec_per_it / row.seq / row.record.gbs) for row in rows  # type: ignore[operator]
                 if (rate := row.record.tokens_per_s_per_process) and row.record.sec_per_it and row.seq]  # fmt: skip
        proven = sum(abs(share * many - 1) < NEARLY for share in proof) if isinstance(many, Fraction) else 0
        steps = {(row.record.mbs, row.beside("ga")) for row in rows} if not proof and often == len(rows) else set()
        told = len(steps) > 1 and all(ga for _, ga in steps) or proven >= max(2, ALIKE * len(proof))
        if isinstance(many, Fraction) and many > 1 and many.denominator == 1 and often >= ALIKE * len(rows) and told:
            for row in mates:
                row.record = row.record.changed({"gpus": many.numerator, "inferred": (*row.record.inferred, "gpus")})


NEARLY = 0.02


def _vague(row: Row) -> bool:
    """A column called `batch` beside none of the micro-batch may be either."""
    heading = normal(row.columns.get("gbs", ""))
    return bool(row.record.gbs) and row.record.mbs is None and heading in ("batch", "batch size", "bs", "bsz")


def _of_another(row: Row) -> bool:
    """A batch that a sentence speaks of, beside micro-batches in the row: it may be another table's."""
    return "gbs" in row.record.inferred and row.shows("mbs")


def _same_replicas(rows: list[Row]) -> int | None:
    """How many replicas most rows have by their times and rates, where nobody counts them and rows say how they accumulate."""
    if any(row.record.dp or row.record.gpus or row.record.nodes for row in rows):
        return None
    if not all(row.shows("ga") for row in rows) and len({row.record.mbs for row in rows}) < FEWEST:
        return None  # else their batch grows with the micro-batch, whatever it is
    rates = [(row, (row.record.tokens_per_s or 0.0) / (row.seq or 1) or row.record.samples_per_s) for row in rows]
    tokens = [(row, rate * row.record.sec_per_it) for row, rate in rates if rate and row.record.mbs]  # type: ignore[operator]
    shares = [done / (row.record.mbs * (row.beside("ga") or 1)) for row, done in tokens]  # type: ignore[operator]
    usual, often = mode(round(share) for share in shares if abs(share / max(1, round(share)) - 1) < NEARLY)
    return usual if isinstance(usual, int) and often >= max(FEWEST, ALIKE * len(rows)) else None


def _replicas(row: Row) -> int:
    record, shared = row.record, (row.record.tp or 1) * (row.record.pp or 1) * (row.beside("cp") or 1)
    return record.dp or max(1, (row.counted or (record.nodes or 1) * (record.procs_per_node or 1)) // shared)


def _devices(row: Row) -> int:
    return row.counted or _product(row)


def _of_each(row: Row) -> bool:
    """`per-device batch` of rows that share replicas."""
    return "per" in normal(row.columns.get("mbs", "")).split() and _devices(row) != _replicas(row)


def _follows(row: Row, gbs: int | None, closely: float = 0.01) -> bool | None:
    """Whether the rates are those of a batch; None where there are none."""
    record, each = row.record, (row.seq or 1) / (row.record.sec_per_it or 1.0)
    world = row.counted or _product(row)
    rates = [(record.tokens_per_s, each), (record.samples_per_s, 1 / (record.sec_per_it or 1.0)),
             (record.tokens_per_s_per_process, each / world), (record.tokens_per_s, each / world)]
    told = [rate for rate in rates if rate[0]]
    return any(abs(gbs * share / rate - 1) < closely for rate, share in told if rate) if told and gbs else None


FEWEST, ALIKE = 3, 0.6
"""Rows that prove a layout which is not said in full, and the share of them that has to agree."""


def _product(row: Row) -> int:
    record = row.record
    return (record.dp or 1) * (record.tp or 1) * (record.pp or 1) * (row.beside("cp") or 1)


def count_processes(sheet: Sheet) -> None:
    """Processes per node: as the row says, else as most rows of its device have it in its table or its file."""
    for rows in sheet.files.values():
        kinds = {row: row.device.name if row.device is not None else row.record.machine for row in rows}
        alike: dict[tuple[object, str | None], list[Row]] = {}
        for row in rows:
            for table in (row.key, None):
                alike.setdefault((table, kinds[row]), []).append(row)
        ratios = {key: _usual_ratio(its) for key, its in alike.items()}
        usual = _usual_ratio(rows)
        for row in rows:
            stated = row.record.procs_per_node
            if stated is not None and "procs_per_node" not in row.record.inferred:
                row.procs = stated
            else:
                own, shared = (ratios[table, kinds[row]] for table in (row.key, None))
                row.procs = (own if len(row.mates) >= 3 else None) or shared or usual or stated or 1
            record = row.record
            if (record.tflops_per == "node" and record.tflops and row.procs and "tflops" not in record.inferred
                    and (row.shows("procs_per_node") or "procs_per_node" in record.context)):  # fmt: skip
                # Of nodes that have different numbers of processes only those of one process can be compared.
                row.record = replace(record, tflops=record.tflops / row.procs, tflops_per="process")


def _usual_ratio(rows: list[Row]) -> int | None:
    ratios = [
        row.product // row.record.nodes
        for row in rows
        if row.product
        and row.record.nodes
        and row.product % row.record.nodes == 0
        and (row.record.procs_per_node is None or "procs_per_node" in row.record.inferred)
    ]
    value, _ = mode(ratios)
    return value if isinstance(value, int) else None


@dataclass(frozen=True)
class Change:
    name: str
    value: int
    score: float
    agrees: bool | None
    """Whether the TFLOPs fit afterwards; None where they cannot say."""
    defined: bool = False
    """Whether a definition holds then that did not."""


def _count_by_text(mates: list[Row]) -> None:
    """The devices of the one row whose layout is of another number than all others', where only the text counts them, as many
    as the others have."""
    products = Counter(row.product for row in mates[:MOST_TRIED])
    (usual, often), *rest = products.most_common()
    text = mates[0].sheet.prose.get(mates[0].record.source_file)
    if usual is None or often < MOST_ALIKE or [many for _, many in rest] != [1] or any(row.counted for row in mates):
        return
    (odd,) = (row for row in mates if row.product != usual)
    layouts = {(row.record.dp, row.record.tp, row.record.pp) for row in mates if row is not odd}
    own = any(re.search(rf"\bnodes?\b|(?<!\d){odd.product}(?!\d)", cell) for cell in odd.worded.values())
    said = re.compile(rf"(?<![\d.,x×-]){usual} ?(?:[x×] )?(?:[\w-]+ )?(?:[GHNX]PU|card|chip|GCD|device|rank|[AHBV]\d00)")
    if odd.product and len(layouts) > 2 and not own and text is not None and any(said.search(line) for line in text.lines):
        batches = {row.record.gbs for row in mates if row is not odd}
        batch = {"gbs": batches.pop()} if len(batches) == 1 and "gbs" in odd.record.inferred else {}  # worked out by the layout
        odd.record = odd.record.changed({"gpus": usual, "inferred": tuple(sorted({*odd.record.inferred, "gpus"})), **batch})


MOST_ALIKE = 4


def check_processes(sheet: Sheet) -> list[Finding]:
    found = []
    for mates in sheet.tables.values():
        _count_by_text(mates)
    for row in sheet.rows:
        if row.product and row.counted and row.product != row.counted and _counts_alike(row) and not _part_of_a_node(row):
            found.append(_explain(row, row.product, row.counted))
        elif row.record.dp is None and row.record.gpus and row.record.tp and row.record.pp:
            replica = row.record.tp * row.record.pp * (row.beside("cp") or 1)
            if row.record.gpus % replica:
                found.append(_no_multiple(row, row.record.gpus, replica))
    return found


MOST_TRIED = 1000


def _no_multiple(row: Row, gpus: int, replica: int) -> Finding:
    """Replicas that do not fill the devices: an axis of another run of the model on as many, or a slip of the hand."""
    axes = {"tp": row.record.tp, "pp": row.record.pp, "cp": row.beside("cp")}
    said = " x ".join(f"{NAMES[name]} {value}" for name, value in axes.items() if value and (name != "cp" or value > 1))
    message = f"{gpus} GPUs are no multiple of {said} = {replica}"
    column = {mate.record.gpus for mate in row.around if mate is not row}
    never = [name for name, value in axes.items() if value and row.shows(name) and odd(row, name, value)]
    if len(never) == 1 and (gpus in column or gpus & (gpus - 1) == 0):
        name, was = never[0], axes[never[0]] or 1
        size = meant(row, name, was, lambda n: gpus % (replica // was * n) == 0)
        if size is not None:
            row.propose(name, size, "world-size")
            message = f"{row.column(name)} {was} -> {size}: {message}"
        return row.find("world-size", "error", message, name=name, proposed=str(size) if size else None)
    alike: set[tuple[str, int]] = set()
    for mate in row.elsewhere if row.record.size_label else ():
        if (mate.record.size_label, mate.record.gpus) == (row.record.size_label, gpus):
            its = {"tp": mate.record.tp, "pp": mate.record.pp, "cp": mate.beside("cp")}
            others = [(name, value) for name, value in its.items() if value and value != axes[name]]
            alike.update(others if len(others) == 1 and gpus % math.prod(value or 1 for value in its.values()) == 0 else ())
    multiples = range(replica, 2 * gpus, replica) if gpus <= MOST_TRIED * replica else ()
    near = [value for value in multiples if 2 * value > gpus and slip(str(gpus), (value, value))]
    # Of several slips the one whose number people have: that of another row, or a power of two.
    usual = [[value for value in near if value in column], [value for value in near if value & (value - 1) == 0]]
    near = next((few for few in (near, *usual) if len(few) == 1), near)
    ways = list(alike) if alike else [("gpus", value) for value in near] if row.cell("gpus").isdecimal() else []
    if len(ways) != 1:
        return row.find("world-size", "error", message, name="gpus")
    name, value = ways[0]
    row.propose(name, value, "world-size")
    message = f"{row.column(name)} {axes.get(name, gpus)} -> {value}: {message}"
    return row.find("world-size", "error", message, name=name, proposed=str(value))


def _counts_alike(row: Row) -> bool:
    """Whether the processes of a node are said, or most rows around agree on them.

    Where they do not, the table counts in another way: experts as a further factor, or CP as a part of DP."""
    others = [mate for mate in row.around if mate is not row and mate.product and mate.counted]
    said = row.record.gpus is not None or row.record.procs_per_node is not None
    if said and len(others) < FEWEST:
        return True
    return not others or 2 * sum(mate.product == mate.counted for mate in others) >= len(others)


def _part_of_a_node(row: Row) -> bool:
    """One node of which some devices stay idle: not said in the row, but no slip where the TFLOPs agree with it."""
    if row.record.nodes != 1 or row.record.gpus is not None or not row.product or row.product >= (row.counted or 0):
        return False
    agrees = _tflops_agree(row, "nodes", 1, row.product)
    if agrees or agrees is None and (row.record.procs_per_node is None or "procs_per_node" in row.record.inferred):
        row.procs = row.product
        row.terms.clear()
        row.spans = None
        return True
    return False


def _explain(row: Row, product: int, counted: int) -> Finding:
    record = row.record
    nodes = "gpus" if record.gpus is not None else "nodes"
    there = (
        f"{counted} GPUs"
        if nodes == "gpus"
        else f"{record.nodes} nodes" + (f" x {row.procs} = {counted}" if (row.procs or 1) > 1 else "")
    )
    axes = [record.dp, record.tp, record.pp, *([row.beside("cp")] if row.beside("cp") else [])]
    says = f"{' x '.join(map(str, axes))} = {product} processes but {there}"
    changes = sorted(_in_step(row, _changes(row, product, counted, nodes)), key=lambda change: -change.score)
    if not changes or changes[0].agrees is False:
        return row.find("world-size", "error", f"{says}: no change of one cell makes them agree", name="dp",
                        ground="open")  # fmt: skip
    best = changes[0]
    others = [change for change in changes[1:] if best.score - change.score < MARGIN]
    listed = ", ".join(_would_stand(row, change) for change in ((best, *others) if best.defined else changes))
    if others:
        return row.find("world-size", "error", f"{says}: one cell is wrong, {listed} would each do",
                        name=best.name)
    row.propose(best.name, best.value, "world-size")
    if best.name in ("nodes", "gpus"):
        how = f"{' x '.join(map(str, axes))} = {product}"
    else:
        parts = [best.value if name == best.name else axis for name, axis in zip(("dp", "tp", "pp", "cp"), axes)]
        how = f"{' x '.join(map(str, parts))} = {counted}"
    evidence = ""
    if best.agrees and row.reading is not None:
        calc = row.reading.tflops(
            row, world=row.world or counted, **({best.name: best.value} if best.name in ("tp", "pp") else {})
        )
        shown = row.printed("tflops")
        if calc is not None and shown is not None:
            evidence = f" and the TFLOPs agree ({shown.value:g} printed, {calc:.4g} computed)"
    if best.name == "dp" and "shard" in row.columns and row.columns.get("dp") == row.columns["shard"]:
        return _of_sharding(row, best.value, says)
    printed = counted if best.name == "gpus" else row.beside("cp") if best.name == "cp" else getattr(record, best.name)
    return row.find("world-size", "error", f"{NAMES[best.name]} {printed} -> {best.value}: {says}; {how}{evidence}",
                    name=best.name, proposed=str(best.value), ground="figures" if evidence else "law")


def _would_stand(row: Row, change: Change) -> str:
    """`DP 2`, or the whole of a cell that holds several sizes: `TP/CP/DP 4/4/2`."""
    cell = row.find("world-size", "error", "", name=change.name, proposed=str(change.value))
    whole = change.name in row.axes or change.name in row.in_parts
    return f"{cell.column} {cell.proposed}" if whole and cell.column else f"{NAMES[change.name]} {change.value}"


def _of_sharding(row: Row, dp: int, says: str) -> Finding:
    """Replicas that are a product of two columns: groups of one size recur, and their number follows from the devices."""
    shard, replicate = row.beside("shard") or 1, row.beside("replicate") or 1
    others = [mate for mate in row.around if mate is not row]
    meant = {"replicate": dp // shard if dp % shard == 0 else 0, "shard": dp // replicate if dp % replicate == 0 else 0}
    usual = {"replicate": [mate.beside("shard") for mate in others].count(shard),
             "shard": [mate.beside("replicate") for mate in others].count(replicate)}  # fmt: skip
    there = [kind for kind in meant if meant[kind] and kind in row.columns]
    says = f"{shard} x {replicate} data ranks: {says}" if "replicate" in row.columns else says
    if not there:
        return row.find("world-size", "error", says, name="dp")
    kind = max(there, key=lambda one: usual[one])
    column, was = row.columns[kind], str(row.beside(kind))
    if len(there) > 1 and usual["shard"] == usual["replicate"]:
        listed = ", ".join(f"{row.columns[one]} {meant[one]}" for one in there)
        return row.find("world-size", "error", f"{says}: one cell is wrong, {listed} would each do", column=column, printed=was)
    message = f"{column} {was} -> {meant[kind]}: {says}"
    return row.find("world-size", "error", message, column=column, printed=was, proposed=str(meant[kind]))


def _changes(row: Row, product: int, counted: int, nodes: str) -> list[Change]:
    """Every change of one cell that makes the row agree, scored by what supports it."""
    record = row.record
    assert record.dp and record.tp and record.pp
    options: list[tuple[str, int]] = []
    for name in ("dp", "tp", "pp", "cp"):
        if name != "dp" and row.tabular and name in record.inferred:
            continue  # no cell of the row
        rest = product // ((row.beside("cp") or product + 1) if name == "cp" else getattr(record, name))
        if rest and counted % rest == 0:
            options.append((name, counted // rest))
    shared = 1 if nodes == "gpus" else row.procs or 1
    if product % shared == 0 and (nodes == "nodes" or row.shows("gpus")):
        options.append((nodes, product // shared))
    mates = [mate for mate in row.around if mate is not row and mate.product == (mate.counted or mate.product)]
    if len(mates) < 2:
        mates = [mate for mate in row.elsewhere if mate is not row and mate.product == mate.counted]
    return [change for name, value in options if (change := _scored(row, name, value, product, counted, mates)) is not None]


def _scored(row: Row, name: str, value: int, product: int, counted: int, mates: list[Row]) -> Change | None:
    """`mates`: rows whose own counts agree."""
    record = row.record
    trial = {n: value if n == name else getattr(record, n) for n in ("dp", "tp", "pp")}
    if name == "cp":
        trial["cp"] = value
    layers = row.layers
    if record.heads and record.heads % trial["tp"]:
        return None
    batch = trial["dp"] * (record.mbs or 1)
    score = NOT_DIVISIBLE if record.gbs and record.gbs % batch else 0.0
    defined = _defined(row, trial) - _defined(row, {})
    score += DEFINED * defined
    if layers and name == "pp" and layers % trial["pp"] and (layers + 2) % trial["pp"]:
        score += UNEVEN
    agrees = _tflops_agree(row, name, value, product if name in ("nodes", "gpus") else counted)
    score += TFLOPS_AGREE[agrees]
    printed, *column = [
        r.counted if name == "gpus" else r.beside("cp") if name == "cp" else getattr(r.record, name) for r in (row, *mates)
    ]
    if column:
        # A cell that breaks what the column usually says is suspect; one that keeps to it is not.
        score += COLUMN_HAS_IT * max(0.0, _share(column, value) - 0.5) + COLUMN_HAS_PRINTED * _share(column, printed)
    alike = row.sheet.laid_out(row.record.source_file).get((trial["dp"], trial["tp"], trial["pp"]), ())
    same = [other for other in alike if _same_layout(other, trial, row, name, value)]
    if defined <= 0 and any(other.key == row.key and _same_run(other, row) for other in same) and not _repeats(row):
        score += CONTRADICTED
    elif same:
        score += LAYOUT_ELSEWHERE + BATCH_TOO * any(record.gbs and other.record.gbs == record.gbs for other in same)
    score += NAMED * (titles.agrees(row, name, value) if name != "nodes" else 0.0)
    return Change(name, value, score + (REPLICAS if name == "dp" else 0.0), agrees, defined > 0)


def _defined(row: Row, trial: dict[str, int]) -> int:
    """How many definitions a layout keeps to: of the batch by what each replica sums, of what a device has of the model."""
    dp, tp, pp = (trial.get(name) or getattr(row.record, name) or 1 for name in ("dp", "tp", "pp"))
    steps = (row.beside("ga") or 0) * (row.record.mbs or 0)
    heading = next((one for one in row.extras if _SHARE_OF_A_DEVICE.fullmatch(normal(one))), "")
    size, share = label_parameters(row.record.size_label) if heading else None, alone(row.cells.get(heading, ""))
    held = size is not None and share and any(abs(size[0] / unit / (tp * pp) / share - 1) < NEARLY for unit in _UNITS)
    return bool(row.record.gbs and row.record.gbs == dp * steps) + bool(held)


_UNITS = (1.0, 1e6, 1e9)
_SHARE_OF_A_DEVICE = re.compile(r"(?:[bm] )?param(?:s|eters)? per (?:gpu|device|rank|card|chip)(?: [bm])?")


_LAYOUT = operator.attrgetter("dp", "tp", "pp", "gpus", "mbs", "gbs", "seq", "size_label")


def _repeats(row: Row) -> bool:
    """Whether other rows of the table have one layout and batch again and again: weeks of a run, nights of a test."""
    said = Counter((_LAYOUT(mate.record), str(mate.all_beside)) for mate in row.around[:MOST_TRIED] if mate is not row)
    return bool(said) and said.most_common(1)[0][1] > 1


def _in_step(row: Row, changes: list[Change]) -> list[Change]:
    """With what the counts that go in step say, unless one change leads by more than that could make up for."""
    first, second, *_ = (*sorted([change.score for change in changes], reverse=True), -math.inf, -math.inf)
    if not row.tabular or first - second >= 2 * IN_STEP + MARGIN or any(change.defined for change in changes):
        return changes
    return [replace(each, score=each.score + IN_STEP * counts.restored(row, each.name, each.value)) for each in changes]


def _same_run(other: Row, row: Row) -> bool:
    """The very configuration of another row of the table: nobody runs a layout twice in one sweep without a word."""
    a, b = other.record, row.record
    same = (a.mbs, a.size_label, a.env, a.seq, a.recompute) == (b.mbs, b.size_label, b.env, b.seq, b.recompute)
    return same and all(other.cells.get(heading) == row.cells.get(heading) for heading in row.extras
                        if not NUMBER.search(row.cells.get(heading, "")))  # fmt: skip


def _share(column: list[int | None], value: int | None) -> float:
    return sum(other == value for other in column) / len(column)


def _same_layout(other: Row, trial: dict[str, int], row: Row, name: str, value: int) -> bool:
    record = other.record
    if record.size_label != row.record.size_label or (other.layers, other.hidden) != (row.layers, row.hidden):
        return False
    if other is row or other.product != other.counted or any(
        (other.beside("cp") if n == "cp" else getattr(record, n)) != trial[n] for n in trial
    ):
        return False
    return other.counted == (value if name == "gpus" else value * (row.procs or 1) if name == "nodes" else row.counted)


def _tflops_agree(row: Row, name: str, value: int, world: int) -> bool | None:
    if row.reading is None or not row.complete:
        right = relations.holds(row, gpus=world)
        wrong = relations.holds(row, gpus=(row.product if world == row.counted else row.counted) or world)
        return None if right == wrong else right
    other: dict[str, float] = {name: value} if name in ("tp", "pp") else {}
    right = row.reading.fits(row, world=world, **other)
    wrong = row.reading.fits(row, world=(row.product if world == row.counted else row.counted) or world)
    return None if right == wrong else right


def check_divisible(sheet: Sheet) -> list[Finding]:
    rules = (typed, batch, layers, heads, hidden, experts)
    found: list[Finding] = []
    open_ = {key: sides for key, mates in sheet.tables.items() if (sides := _open_sides(mates))}
    for row in sheet.rows:
        found += swapped(row, open_[row.key]) if row.key in open_ else ()
        for rule in rules:
            found += rule(row)
    return found


def _open_sides(mates: list[Row]) -> set[tuple[str, str]]:
    """Counts that stand side by side and of which both have values that hardly another row has; most tables have none."""
    columns = zip(SIDES, zip(*[_COUNTS(mate.record) for mate in mates]))
    rare = {name for name, column in columns if any(column) and min(Counter(column).values()) < fewest(mates)}
    asked = {tuple(mate.record.printed) for mate in mates[:MOST_SWAPPED]} if len(rare) > 1 else ()
    return {pair for headings in asked for pair in _sides(headings) if rare.issuperset(pair)}


def swapped(row: Row, open_: set[tuple[str, str]]) -> list[Finding]:
    """Two counts side by side of which each is one of the other's column, where the columns have nothing in common."""
    if not row.tabular or row.settled or row.place >= MOST_SWAPPED:
        return []
    for left, right in _sides(tuple(row.record.printed)):
        one, two = getattr(row.record, left), getattr(row.record, right)
        if (left, right) not in open_ or not one or not two or one == two:
            continue
        if not row.sheet.rare(row, left, one) or not row.sheet.rare(row, right, two):
            continue
        others = [mate.record for mate in row.around[:MOST_SWAPPED] if mate is not row]
        first, second = ({getattr(other, name) for other in others} - {None} for name in (left, right))
        apart = first and second and (max(first) < min(second) or max(second) < min(first)) and len(others) > 2
        if not apart or one in first or two in second:
            continue
        if _in_order(row, left) and _in_order(row, right):
            continue  # fewer of one for more of the other
        if _near_to(two, first) and _near_to(one, second) and not _divides_as_it_is(row, left, right):
            both = f"{row.column(left)} {one} and {row.column(right)} {two}"
            message = f"{both} stand in each other's place: the other rows say so"
            row.propose(left, two, "cells-shifted")
            row.propose(right, one, "cells-shifted")
            return [row.find("cells-shifted", "error", message, name=left, proposed=str(two))]
    return []


def _in_order(row: Row, name: str) -> bool:
    """Whether a column, with the row, only grows or only falls."""
    column = [getattr(mate.record, name) or 0 for mate in row.around[:MOST_SWAPPED]]
    return len(column) > 3 and (all(a < b for a, b in pairwise(column)) or all(a > b for a, b in pairwise(column)))


def _divides_as_it_is(row: Row, left: str, right: str) -> bool:
    """Whether the batch divides over the replicas, and would not with two counts exchanged."""
    names, record = ("gbs", "mbs", "gpus"), row.record
    gbs, mbs, gpus = (getattr(record, {left: right, right: left}.get(name, name)) for name in names)
    shared = (record.tp or 1) * (record.pp or 1) * (row.beside("cp") or 1)
    before, after = (not (g and m) or g % (m * max(1, (n or 1) // shared)) == 0 for g, m, n in
                     ((record.gbs, record.mbs, record.gpus), (gbs, mbs, gpus)))  # fmt: skip
    return before and not after


@functools.lru_cache(maxsize=4096)
def _sides(headings: tuple[str, ...]) -> list[tuple[str, str]]:
    """Counts that stand side by side."""
    return list(pairwise(name for heading in headings if (name := read_heading(heading).field) in SIDES))


SIDES, MOST_SWAPPED = ("mbs", "gbs", "seq", "layers", "hidden", "heads", "gpus"), 300
_COUNTS = operator.attrgetter(*SIDES)


def _near_to(value: int, column: set[int]) -> bool:
    return min(column) <= 2 * value and value <= 2 * max(column) and round_number(value)


def typed(row: Row) -> list[Finding]:
    """A number that nobody chooses, where two digits exchanged, one less or one more give a power of two, among round ones."""
    found: list[Finding] = []
    columns, cells = row.columns, row.cells
    for name in ("gbs", "seq", "gpus", "nodes", "dp"):
        if name not in columns or not (cell := _not_chosen(cells.get(columns[name], ""))):
            continue
        if name == "gbs" and row.of_tokens or name in row.fixed or row.settled and not row.fixed:
            continue
        if name != "seq" and row.product and row.product == row.world and row.record.nodes and row.record.gpus:
            continue  # all that it counts agrees
        exchanged, shorter, lost = _powers_meant(cell)
        if not exchanged and not shorter and not lost:
            continue
        count = operator.attrgetter(name)
        if not all((other := count(mate.record)) and round_number(other) for mate in row.around if mate is not row):
            continue
        others = {count(mate.record) for mate in row.around if mate is not row}
        ways = (dict.fromkeys(exchanged, "two digits exchanged") or dict.fromkeys(shorter & others, "a digit too many")
                or dict.fromkeys(lost, "a digit lost"))  # fmt: skip
        meant = list(ways)
        if len(meant) == 1 and others:
            message = f"{row.column(name)} {cell} -> {meant[0]} ({ways[meant[0]]}): the other rows have round numbers"
            row.propose(name, meant[0], "batch-divisible")
            found.append(row.find("batch-divisible", "error", message, name=name, proposed=str(meant[0])))
    return found


_BETWEEN_THOUSANDS = re.compile(r"(?<=\d)[ ,.'\u00a0\u2009\u202f](?=\d{3}(?:\D|$))")


@functools.lru_cache(maxsize=16384)
def _not_chosen(cell: str) -> str:
    """The digits of a count that nobody chooses; empty where it is round, or none."""
    cell = cell if cell.isdecimal() else _BETWEEN_THOUSANDS.sub("", cell)
    return cell if cell.isdecimal() and 1 < len(cell) < 10 and not round_number(int(cell)) else ""


@functools.lru_cache(maxsize=4096)
def _powers_meant(cell: str) -> tuple[set[int], set[int], set[int]]:
    """The powers of two that two digits exchanged, a digit too many or a digit lost turn into the digits of a count."""
    exchanged = _powers({int(cell[:i] + cell[i + 1] + cell[i] + cell[i + 2 :]) for i in range(len(cell) - 1)})
    shorter = _powers({int(cell[:i] + cell[i + 1 :]) for i in range(len(cell))})
    return exchanged, shorter, set(powers_that_lost_one(cell)) if len(cell) > 2 else set()


def _powers(numbers: set[int]) -> set[int]:
    """Those that are powers of two, and not small ones."""
    return {n for n in numbers if n & (n - 1) == 0 and n > 8}


def _around(value: int, step: int) -> str:
    low = value // step * step
    return f"{low} and {low + step}" if low else f"{step}"


def batch(row: Row) -> list[Finding]:
    mbs, gbs = row.whole("mbs"), row.whole("gbs")
    if not mbs and gbs and row.beside("ga"):
        return _by_accumulation(row, gbs)
    if not mbs or not gbs:
        return []
    dp = row.whole("dp")
    dp = 1 if dp is None and row.shows("mbs") and row.shows("gbs") else dp  # of however many replicas, each has whole ones
    if not dp or gbs % (dp * mbs) == 0 or row.reasons.get("mbs") == "cells-shifted":
        return []
    if {"gbs", "mbs"} & set(row.record.inferred) and (row.record.state == "planned" or not _others_divide(row)):
        return []  # a sentence may speak of something else, and of what is planned nobody has chosen the batch yet
    planned = " (the row never ran, and could not)" if row.record.state == "planned" else ""
    ground: Ground = "counts" if gbs < dp * mbs else "law"
    if gbs < dp * mbs:
        message = f"GBS {gbs} is less than DP {dp} x MBS {mbs} = {dp * mbs}: not one micro-batch for each replica{planned}"
    else:
        nearest = _around(gbs, dp * mbs)
        message = f"GBS {gbs} is not a multiple of DP {dp} x MBS {mbs} = {dp * mbs}: the nearest are {nearest}{planned}"
    never = [name for name, value in (("mbs", mbs), ("gbs", gbs)) if row.shows(name) and odd(row, name, value)]
    if len(never) == 1 and not (never[0] == "gbs" and row.of_tokens):
        fits = {"mbs": lambda n: gbs % (dp * n) == 0, "gbs": lambda n: n % (dp * mbs) == 0}[never[0]]
        size = meant(row, never[0], mbs if never[0] == "mbs" else gbs, fits)
        if size is not None:
            message += f": {row.column(never[0])} {size} is meant"
            return [row.find("batch-divisible", "error", message, name=never[0], proposed=str(size), ground=ground)]
    name, proposed = _meant(row, dp, mbs, gbs) if gbs >= dp * mbs else ("gbs", None)
    if proposed is not None:
        return [
            row.find("batch-divisible", "error", f"{message}; {row.column(name)} {proposed} as in other rows would do",
                     name=name, proposed=str(proposed))
        ]
    return [row.find("batch-divisible", "error", message, name="gbs", ground=ground)]


def _by_accumulation(row: Row, gbs: int) -> list[Finding]:
    """Steps of accumulation that leave no whole micro-batch, of a size that nobody says, where those of the other rows do."""
    dp, steps = row.whole("dp"), row.beside("ga") or 1
    if not dp or gbs % (dp * steps) == 0 or row.record.dp is None or row.settled or not _is_said(row):
        return []
    mates = [mate for mate in row.around if mate is not row and mate.record.gbs and mate.record.dp and mate.beside("ga")]
    each = {mate: mate.record.gbs / mate.record.dp / (mate.beside("ga") or 1) for mate in mates}  # type: ignore[operator]
    if len(mates) < 2 or not all(size >= 1 and size.is_integer() for size in each.values()):
        return []
    near = min(mates, key=lambda mate: (mate.record.machine != row.record.machine, abs(mate.place - row.place)))
    meant = gbs / dp / each[near]
    message = f"GBS {gbs} is no multiple of DP {dp} x accumulation {steps} = {dp * steps}, and that of all other rows is"
    proposed = str(int(meant)) if meant >= 1 and meant.is_integer() else None
    return [row.find("batch-divisible", "error", message, column=row.column("ga"), printed=str(steps), proposed=proposed)]


def _is_said(row: Row) -> bool:
    """Whether the row or the text has its batch, which else was worked out from rates."""
    return "gbs" not in row.record.inferred or "gbs" in row.record.context or row.stated_above("gbs") is not None


def _others_divide(row: Row) -> bool:
    said = [(r.gbs, r.dp * r.mbs) for mate in row.around if mate is not row and (r := mate.record).gbs and r.dp and r.mbs]
    return len(said) > 2 and all(gbs % replica == 0 for gbs, replica in said if gbs)


def _meant(row: Row, dp: int, mbs: int, gbs: int) -> tuple[str, int | None]:
    """The batch or micro-batch that the rest of the table has, where it would divide."""
    mates = [mate.record for mate in row.around if mate is not row]
    usual, often = mode(mate.gbs for mate in mates)
    if isinstance(usual, int) and often > len(mates) / 2 and usual != gbs and usual % (dp * mbs) == 0:
        return "gbs", usual
    usual, often = mode(mate.mbs for mate in mates)
    if isinstance(usual, int) and often > 0.8 * len(mates) and usual != mbs and gbs % (dp * usual) == 0:
        return "mbs", usual
    # A micro-batch that no other row has, where one of theirs divides and makes the row none of them.
    others = Counter(mate.mbs for mate in mates if mate.mbs)
    theirs = [n for n in others if gbs % (dp * n) == 0 and not any(_same_but(mate, row.record, mbs=n) for mate in mates)]
    if _ran(row) and mbs not in others and len(theirs) == 1 and sum(others.values()) > 3 and others[theirs[0]] > 1:
        return "mbs", theirs[0]
    # A batch that no other row has, next to one that they have and that is as many of each replica's.
    near = {n for mate in mates if (mate.nodes, mate.gpus) == (row.record.nodes, row.record.gpus)
            and (n := mate.gbs) and n % (dp * mbs) == 0 and abs(n - gbs) < dp * mbs}
    return "gbs", near.pop() if len(near) == 1 and gbs not in {mate.gbs for mate in mates} else None


def _same_but(mate: Record, record: Record, *, mbs: int) -> bool:
    """Whether another row has the layout of this one with another micro-batch."""
    names = ("size_label", "nodes", "gpus", "dp", "tp", "pp", "cp", "gbs", "seq", "recompute")
    return mate.mbs == mbs and all(getattr(mate, name) == getattr(record, name) for name in names)


def layers(row: Row) -> list[Finding]:
    count, pp = row.layers, row.whole("pp")
    stages = (pp or 1) * (row.record.vp or 1)
    if row.record.stage_layers and len(split := _split(row)) > 1:
        return _listed(row, split, count, pp)
    if not count or stages == 1 or count % stages == 0 or (count + 2) % stages == 0 or _ran(row) or row.sheet.text(row).uneven:
        return []
    ran = [mate for mate in row.around if _ran(mate) and mate.layers == count]
    if any(count % ((mate.whole("pp") or 1) * (mate.record.vp or 1)) for mate in ran):
        return []  # the engine gives its stages different numbers of layers
    failed = ", which may be why it failed" if row.record.state == "failed" else ""
    swap = _exchange(row)
    message = (
        f"{count} layers over PP {pp}: {count} % {stages} = {count % stages}, and with the embedding's places "
        f"{count + 2} % {stages} = {(count + 2) % stages}{failed}{swap}"
    )
    return [row.find("layers-divisible", "warning", message, name="pp", proposed=str(row.record.tp) if swap else None)]


def _split(row: Row) -> tuple[int, ...]:
    """Layers of each stage where the row says them; a number alone may be that of a rank or of a virtual stage."""
    pp = row.whole("pp") or 0
    try:  # `10 x 8` may be either way round: as many as there are stages
        return read_split(row.cell("stage_layers") or row.record.stage_layers, (pp, pp * (row.record.vp or 1)))
    except BadInput:
        return ()


def _listed(row: Row, split: tuple[int, ...], count: int | None, pp: int | None) -> list[Finding]:
    found = []
    sums = Counter(sum(other) for mate in row.around if mate.layers == count and len(other := _split(mate)) > 1)
    # Where all rows of a table agree on another sum, some of their layers are none of the model's, as those that pad it are.
    if count and sum(split) != count and not (sums[count] == 0 and sums[sum(split)] > max(1, 0.6 * sums.total())):
        found.append(f"adds up to {sum(split)}, the model has {count} layers")
    vp = row.record.vp or 1
    if pp and len(split) not in (pp, pp * vp):
        over = f"PP {pp} x VP {vp} = {pp * vp}" if vp > 1 else f"PP {pp}"
        found.append(f"has {len(split)} entries for {over} stages")
    return [row.find("stages-sum", "warning", f"layers per stage {row.record.stage_layers} {' and '.join(found)}",
                     name="stage_layers")] if found else []


def _ran(row: Row) -> bool:
    """A row with figures has shown that its engine can do it: current ones give their stages different numbers of layers."""
    return any(getattr(row.record, name) is not None for name in MEASURED)


def heads(row: Row) -> list[Finding]:
    count, tp = row.record.heads, row.whole("tp") if row.record.heads else None
    if not count or not tp or count % tp == 0 or "tp" in row.record.inferred and row.stated_above("tp") is None:
        return []  # what is left of the devices may be those of pipelines too
    if count * 128 == row.hidden and "heads" in row.record.inferred and row.stated_above("heads") is None:
        return []  # nobody says how many there are
    around = [mate.record for mate in row.around]
    worlds = {(one.dp or 0) * (one.tp or 0) * (one.pp or 0) for one in around}
    if len(around) > 3 and len(worlds) == 1 and 0 not in worlds and row.record.sec_per_it and (
            2 * sum(count % (one.tp or 1) == 0 for one in around) > len(around)):  # fmt: skip
        return []  # it ran, and every layout of the table takes as many devices: engines may pad their heads
    stated = row.stated_above("heads") if _ran(row) and not row.states("heads") else None
    alike = [mate for mate in row.around if mate.record.heads == count and _ran(mate)] if stated else []
    odd = [mate for mate in alike if count % (mate.whole("tp") or 1)]
    if stated and len(odd) > 1:  # they ran: the sentence is in doubt, or the engine pads
        message = f"line {stated[1]} says {count} heads, and {len(odd)} rows below ran with a TP that does not divide them"
        found = row.find("heads-divisible", "warning", message, name="heads")
        return [replace(found, line=stated[1], printed=str(count))] if odd[0] is row else []
    swap = _exchange(row)
    message = f"{count} heads over TP {tp}: {count} % {tp} = {count % tp}{swap}"
    return [row.find("heads-divisible", "error", message, name="tp", proposed=str(row.record.pp) if swap else None)]


def hidden(row: Row) -> list[Finding]:
    size, count = row.record.hidden, row.record.heads
    if not size or not count or size % count == 0:
        return []
    name = "heads" if row.states("heads") or not row.states("hidden") else "hidden"
    above = {stated[1] for one in ("hidden", "heads") if not row.states(one) and (stated := row.stated_above(one))}
    if len(above) > 1 or not above and not (row.states("hidden") and row.states("heads")):
        return []  # lines that speak of two models, or nobody who says it
    message = f"hidden {size} over {count} heads: {size} % {count} = {size % count}"
    found = _uneven_heads(row, name, size, count, message)
    # What one line says is said of that line, however many rows are below it.
    return [replace(found, line=min(above))] if above and not row.states("hidden") and not row.states("heads") else [found]


def _uneven_heads(row: Row, name: str, size: int, count: int, message: str) -> Finding:
    # Heads are nearly always 128 or 64 wide: a size that is no such multiple, beside one that is and gives the label.
    wide = [count * width for width in (128, 64)]
    meant = [one for one in wide if row.record.size_label and fits_label(row, hidden=one)]
    if len(meant) == 1 and (sizes(row) is None or not fits_label(row)):
        message = f"hidden {size} -> {meant[0]}: {message}, and {count} x {meant[0] // count} is a {row.record.size_label}"
        return row.find("heads-divisible", "error", message, name="hidden", proposed=str(meant[0]))
    typed = [int(one.value) for one in slips(str(size), (min(wide), max(wide))) if one.value in wide]
    right = str(typed[0]) if len(typed) == 1 and name == "hidden" else None
    return row.find("heads-divisible", "error", message + (f": {right} is meant" if right else ""), name=name, proposed=right)


def experts(row: Row) -> list[Finding]:
    """The experts of a layer are spread over the devices of one stage: their number of groups divides those, and them."""
    ep = row.beside("ep")
    if ep is None and row.record.experts is None:
        return []
    world, pp = row.world, row.whole("pp") or 1
    there = row.whole("experts") or experts_in(row.record.size_label) or experts_in(row.record.section)
    chosen = row.whole("top_k")
    if there and chosen and chosen > there:
        return [row.find("experts-divisible", "error", f"top {chosen} of {there} experts", name="top_k")]
    if there and ep and there % ep:
        more = f"more than the {there} of a layer" if ep > there else f"{there} % {ep} = {there % ep}"
        model = row.record.size_label, row.record.experts
        others = [mate.beside("ep") for mate in row.around
                  if mate is not row and model == (mate.record.size_label, mate.record.experts)]  # fmt: skip
        alike = others[0] if len(others) > 1 and len({*others}) == 1 and there % (others[0] or there + 1) == 0 else None
        fits = functools.partial(_spreads, there, world, pp)
        most = alike or (there if ep == 2 * there else None)  # a step of a sweep too far
        most = most or (meant(row, "ep", ep, fits) if odd(row, "ep", ep) else None)
        message = f"EP {ep} of {there} experts: {more}" + (f"; the other rows have {alike}" if alike else "")
        message += f": {most} is meant" if most and not alike else ""
        return [row.find("experts-divisible", "error", message, name="ep", proposed=str(most) if most else None)]
    counted = row.record.gpus or row.product or row.record.procs_per_node or row.procs != 1
    if not counted or not ep or not world or world % pp or (world // pp) % ep == 0:
        return []
    stage = world // pp
    what = f"{world} devices" if pp == 1 else f"{world} devices in {pp} stages"
    more = f"more than the {stage} of a stage" if ep > stage else f"{stage} % {ep} = {stage % ep}"
    usual, often = mode([mate.beside("ep") for mate in row.around if mate is not row])
    likely = isinstance(usual, int) and often > 1 and stage % usual == 0 and slip(str(ep), (usual, usual))
    fits = functools.partial(_spreads, there, world, pp)
    size = usual if likely else meant(row, "ep", ep, fits) if odd(row, "ep", ep) else None
    message = f"EP {ep} over {what}: {more}" + (f": {size} is meant" if size else "")
    proposed = str(size) if size else None
    return [row.find("world-size", "error", message, column=row.columns.get("ep", "EP"), printed=str(ep), proposed=proposed)]


def _spreads(there: int | None, world: int | None, pp: int, ep: int) -> bool:
    """Whether so many groups divide the experts of a layer, and the devices of a stage."""
    return (there or 0) % ep == 0 and ((world or 0) % pp != 0 or (world or 0) // pp % ep == 0)


def _exchange(row: Row) -> str:
    """Whether TP and PP in each other's place would divide."""
    tp, pp, count = row.whole("tp"), row.whole("pp"), row.layers
    if not tp or not pp or tp == pp or not count:
        return ""
    fits = (count % tp == 0 or (count + 2) % tp == 0) and not (row.record.heads and row.record.heads % pp)
    mates = [mate.record for mate in row.around if mate is not row]
    known = any(mate.tp == pp and mate.pp == tp for mate in mates) or mode(mate.tp for mate in mates)[0] == pp
    return f"; TP {pp} and PP {tp}, exchanged, would divide" if fits and known else ""
