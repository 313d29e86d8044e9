"""What the headings of a table stand for: fields, counts that a layout is not always told by, or columns that no field takes.

    fields_of(("GPUs", "TP", "Sec/it"))              {"sec_per_it": "Sec/it", "tp": "TP", "gpus": "GPUs"}
    kind_beside("context parallel size")             "cp"
    extras(("GPUs", "Speed-up"))                     ["Speed-up"]
"""
from __future__ import annotations

import re
from functools import lru_cache

from seatrial.tables.headings import accumulates, normal, older, read_heading, settle

EXTRA = "+"
"""Before the heading of a column that no field takes, where a field is named."""
_BESIDE = {
    "cp": "cp, context parallel, context parallelism, context parallel size, cp size",
    "ep": "ep, expert parallel, expert parallelism, expert parallel size, ep size, expert model parallel size",
    "shard": "dp shard, data parallel shard degree, fsdp, fsdp degree, fsdp size, shard size, shard group, sharding group, "
             "shard, shards, shard degree, sharding degree, dp shard degree, ici fsdp, ici fsdp parallelism",
    "replicate": "dp replicate, data parallel replicate degree, replicas, hsdp replicas, replicate, hsdp degree, "
                 "repl, replicate degree, dp repl, dp replicate degree, replication, ici data, ici data parallelism, dcn data, "
                 "dcn data parallelism",
}  # fmt: skip
LATER = re.compile(r"_(?:fixed|calc|inferred)$|^(?:line_no|table|section|size_label)$")
"""What somebody wrote beside the rows when they were corrected: that is the answer, and not what was printed."""
BESIDE = {name.strip(): kind for kind, names in _BESIDE.items() for name in names.split(",")}


@lru_cache(maxsize=4096)
def kind_beside(heading: str) -> str:
    """Which count a layout is not always told by a heading is of; empty where it is none."""
    return BESIDE.get(normal(heading), "") or ("ga" if accumulates(heading) else "")


@lru_cache(maxsize=4096)
def kinds_beside(headings: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(heading, kind) for heading in dict.fromkeys(headings) if (kind := kind_beside(heading))]


def field_of(heading: str) -> str:
    """Which field a heading stands for; empty when it is none of ours."""
    return read_heading(heading).field


@lru_cache(maxsize=4096)
def fields_of(headings: tuple[str, ...]) -> dict[str, str]:
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
def parts_of(headings: tuple[str, ...]) -> frozenset[str]:
    return frozenset(part for heading in headings for part in read_heading(heading).parts)


@lru_cache(maxsize=4096)
def extras(headings: tuple[str, ...]) -> list[str]:
    """The headings of columns that no field takes, not even by a letter."""
    taken, given = _in_company(headings), older(headings)
    return [heading for heading in headings if heading in given or heading not in taken and is_extra(heading)]


@lru_cache(maxsize=4096)
def is_extra(heading: str) -> bool:
    """Whether neither a field nor an axis of parallelism takes the column."""
    column = read_heading(heading)
    return not column.field and not column.parts and not kind_beside(heading) and not LATER.search(heading)


_CHOSEN = re.compile(r"(?<![^\W_])(?:(?:q?lora|dora|adapter)?[ _-]?(?:rank|rang|rango|r|alpha)|seeds?|lr|learning[ _-]rate|"
                     r"lernrate|dropout|warm-?up|id|nr\.?|no\.?|index|line)(?![^\W_])(?! ?/)", re.IGNORECASE)


@lru_cache(maxsize=4096)
def is_chosen(heading: str) -> bool:
    """Whether a column has what somebody chose, or numbers rows by: with others no measurement follows from that."""
    return _CHOSEN.search(heading) is not None
