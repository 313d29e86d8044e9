"""Our own trials as a table that fits a screen: what tells the rows apart, what was measured, and one line of what they share.

    print(to_short(records))                            own trials short, imported rows in the layout of their notes
    print(to_short(records, columns=("dp", "mfu")))     these columns alone

Figures have as many digits as their interval allows, four at most. `table.to_markdown` has every column and every digit.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from seatrial.columns import ASKED, COLUMNS
from seatrial.errors import BadInput
from seatrial.fields import nearest
from seatrial.record import Record
from seatrial.tables.codec import HEADINGS, encode, encode_pairs
from seatrial.tables.markdown import aligned, best_row, cell, shared_formula, to_markdown

ALWAYS = ("dp", "tp", "pp", "mbs", "gbs")
WHERE_ROWS_DIFFER = (
    *(name for name in ASKED if name not in (*ALWAYS, "size_label")), "machine", "mem_scope", "formula", "tflops_per",
    "session",
)  # fmt: skip
"""Fields that become a column where rows differ in them, and are named above the table where they do not."""
NOT_SHARED = {"cp", "procs_per_node", "kv_heads", "ffn", "family", "engine", "torch_version", "gpus", "vocab",
              "sequence_parallel", "threads", "device"}
"""Shared by all rows, these are not worth naming."""
DEFAULTS = {name: COLUMNS[name].default for name in ("vp", "zero_stage", "recompute", "schedule", "engine")}
"""Nor are these at their default."""


LONGEST = 72
"""Letters of an outcome's message."""


def to_short(records: Iterable[Record], *, columns: Sequence[str] = ()) -> str:
    """One table a model; with `columns`, those alone and all models in one."""
    records = list(records)
    if columns:
        return _chosen(records, columns)
    own: dict[object, list[Record]] = {}
    imported: list[Record] = []
    for record in records:
        if record.source_file or record.section:
            imported.append(record)
        else:
            own.setdefault(record.size_label or (record.layers, record.hidden), []).append(record)
    tables = [to_markdown(imported)] if imported else []
    return "\n".join(tables + [_short(rows) for rows in own.values()])


def _short(rows: Sequence[Record]) -> str:
    columns = _columns(rows)
    cells = [[text(row) for text in columns.values()] for row in rows]
    best, notes = best_row(rows), ""
    if best is not None:
        place = list(columns).index("Sec/it" if rows[best].sec_per_it is not None else _tflops(rows))
        cells[best][place] = f"**{cells[best][place]}**"
        notes = "\nBold: the fastest of this table.\n"
    guessed = [row for row in rows if row.state == "estimated"]
    if guessed:
        rehearsed = any(row.measurement.get("kind") == "rehearsed" for row in guessed)
        notes += f"\n~ not measured whole: {'rehearsed, or ' if rehearsed else ''}estimated from less than an iteration.\n"
    return f"{_shared(rows)}\n\n{aligned(list(columns), cells)}{notes}"


def _columns(rows: Sequence[Record]) -> dict[str, Callable[[Record], str]]:
    """Heading -> what stands below it."""
    found: dict[str, Callable[[Record], str]] = {}
    differing = {name for name in WHERE_ROWS_DIFFER if len({cell(row, name) for row in rows}) > 1}
    if any((row.cp or 1) > 1 for row in rows):
        differing.add("cp")  # a degree, as those that always are
    # What never ran has no version and no machine, which tells nothing; on one node its processes are all there are.
    differing -= {name for name in ("torch_version", "machine") if len({cell(row, name) for row in rows} - {""}) == 1}
    if all(row.procs_per_node == row.gpus for row in rows):
        differing.discard("procs_per_node")
    if _tflops(rows) != "TFLOPs":
        differing -= {"formula", "tflops_per"}  # the heading says them of all rows that have any
    for name in HEADINGS:
        if name in ALWAYS or name in differing:
            found[HEADINGS[name]] = lambda row, name=name: cell(row, name)  # type: ignore[misc]
    for table in ("env", "extra"):
        for key in _differing([getattr(row, table) for row in rows]):
            found.setdefault(encode(key), lambda row, t=table, k=key: encode(str(getattr(row, t).get(k, ""))))  # type: ignore[misc]
    if any(row.mem_value is not None for row in rows):
        found["Mem"] = memory
    found["Sec/it"] = seconds
    found[_tflops(rows)] = lambda row: digits(row.tflops, known_to(row))
    if any(row.mfu is not None for row in rows):
        found["MFU"] = mfu
    found["Samples/s"] = lambda row: digits(row.samples_per_s, known_to(row))
    if any(tokens(row) is not None for row in rows):
        found["Tok/s/device"] = lambda row: digits(tokens(row), known_to(row))
    if any(row.outcome is not None and (row.outcome.status != "ok" or row.outcome.rate) for row in rows):
        found["Outcome"] = outcome
    if len({row.notes for row in rows}) > 1:
        found["Notes"] = lambda row: encode(row.notes)
    return found


def _tflops(rows: Sequence[Record]) -> str:
    shared = shared_formula(rows) or shared_formula([row for row in rows if row.tflops is not None])
    return f"TFLOPs ({shared})" if shared else "TFLOPs"


def _differing(tables: Sequence[Mapping[str, str]]) -> list[str]:
    names = dict.fromkeys(name for table in tables for name in table)
    return [name for name in names if len({table.get(name) for table in tables}) > 1]


def _shared(rows: Sequence[Record]) -> str:
    """What holds for every row, in one line."""
    first = rows[0]
    same = [name for name in WHERE_ROWS_DIFFER if name not in NOT_SHARED and len({cell(row, name) for row in rows}) == 1]
    words = [f"{HEADINGS[name].lower() if name != 'zero_stage' else 'ZeRO'} {cell(first, name)}" for name in same
             if cell(first, name) and DEFAULTS.get(name) != getattr(first, name)
             and name not in ("formula", "tflops_per", "mem_scope", "dtype", "recompute")]
    words += [first.dtype] if "dtype" in same and first.dtype else []
    words += [f"recompute {first.recompute}"] if "recompute" in same and first.recompute not in ("", "none") else []
    for table in ("env", "extra"):
        tables = [getattr(row, table) for row in rows]
        alike = {key: value for key, value in tables[0].items() if key not in _differing(tables)}
        words += [encode_pairs(alike)] if alike else []
    words += [encode(first.notes)] if first.notes and len({row.notes for row in rows}) == 1 else []
    many = "1 trial" if len(rows) == 1 else f"{len(rows)} trials"
    return f"{encode(first.size_label) or 'The model'}: {', '.join([many, *words])}. Every column: --wide."


def seconds(row: Record) -> str:
    """With half of its interval, and a mark where it was not measured whole."""
    if row.sec_per_it is None:
        return ""
    share = known_to(row)
    sure = "" if share is None else f" ± {share:.1%}" if share < 0.1 else f" ± {share:.0%}"
    return ("~" if row.state == "estimated" else "") + digits(row.sec_per_it, share) + sure


def known_to(row: Record) -> float | None:
    """Half of the interval of its time, as a share; None where nobody knows."""
    low, high = row.measurement.get("low_s"), row.measurement.get("high_s")
    if not isinstance(low, float) or not isinstance(high, float) or not row.sec_per_it:
        return None
    return (high - low) / 2 / row.sec_per_it


def tokens(row: Record) -> float | None:
    """Tokens a second of one device."""
    if row.tokens_per_s_per_process is not None or not row.tokens_per_s or not row.gpus:
        return row.tokens_per_s_per_process
    return row.tokens_per_s / row.gpus


def mfu(row: Record) -> str:
    return "" if row.mfu is None else f"{digits(100 * row.mfu, known_to(row), most=3)} %"


def memory(row: Record) -> str:
    return f"{digits(row.mem_value)} {encode(row.mem_unit)}".strip() if row.mem_value is not None else ""


def outcome(row: Record) -> str:
    if row.outcome is None:
        return ""
    rate = f" {row.outcome.rate[0]} of {row.outcome.rate[1]}" if row.outcome.rate and len(row.outcome.rate) == 2 else ""
    message = row.outcome.message if len(row.outcome.message) <= LONGEST else f"{row.outcome.message[: LONGEST - 1].rstrip()}…"
    return row.outcome.status + rate + (f": {encode(message)}" if message else "")


def digits(value: float | None, share: float | None = None, *, most: int = 4) -> str:
    """Four that count, fewer where the value is known to a share of itself only, without an exponent; whole numbers as they
    are."""
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    if share:
        most = min(most, max(2, math.ceil(-math.log10(share)) + 1))
    return f"{value:.{max(0, most - 1 - math.floor(math.log10(abs(value))))}f}"


def _chosen(records: Sequence[Record], names: Sequence[str]) -> str:
    columns = dict(_column(name, records) for name in names)
    return aligned(list(columns), [[text(row) for text in columns.values()] for row in records])


def _column(text: str, records: Sequence[Record]) -> tuple[str, Callable[[Record], str]]:
    """By its field or its heading, by the name of a sweep's axis or of a setting, or a part of the memory: memory.weights."""
    by_heading = {heading.lower(): name for name, heading in HEADINGS.items()}
    name = text.strip().lower()
    name = by_heading.get(name, name)
    if name in HEADINGS:
        return HEADINGS[name], lambda row: cell(row, name)
    own = text.strip()
    if own.startswith("memory.") and any(_part(row, own) is not None for row in records):
        return f"{own.removeprefix('memory.')}, MiB", lambda row: digits(_part(row, own))
    if any(own in row.extra or own in row.env for row in records):
        return encode(own), lambda row: encode(str(row.extra.get(own, row.env.get(own, ""))))
    parts = (f"memory.{part}" for row in records for part in _parts(row))
    known = {*HEADINGS, *(key for row in records for key in (*row.extra, *row.env)), *parts}
    raise BadInput(f"--columns {text!r}: {nearest(name, known)}")


def _part(row: Record, name: str) -> float | None:
    found = _parts(row).get(name.removeprefix("memory."))
    return found / 2**20 if isinstance(found, int | float) else None


def _parts(row: Record) -> Mapping[str, object]:
    """What the fullest rank held at its fullest moment, in bytes by kind."""
    fullest = row.memory.get("fullest")
    parts = fullest.get("parts") if isinstance(fullest, Mapping) else None
    return parts if isinstance(parts, Mapping) else {}
