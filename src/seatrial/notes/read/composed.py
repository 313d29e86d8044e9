"""Short texts that are settings and nothing else, as they stand over columns, in group rows and in cells.

    composed("7B, 4 nodes, seq 4096")          {"size_label": "7B", "nodes": 4, "seq": 4096}
    composed("16 nodes × 8 H100")              {"nodes": 16, "gpus": 128, "procs_per_node": 8, "machine": "H100"}
    composed("mbs 2, ga 16")                   {"mbs": 2, ACCUMULATION: 16}
    composed("the fast one")                   {}: what is not read whole is not read

A bare `8K` is a sequence, and a size is a model's.
"""
from __future__ import annotations

import re
from functools import lru_cache

from seatrial.columns import LAYOUT
from seatrial.notes.read.parsing import DTYPES
from seatrial.tables.headings import accumulates, clean, normal, setting
from seatrial.tables.tongues import in_english, lowered

ACCUMULATION = "accumulation"
"""Stands among the fields, though a record has none for it."""
LONGEST = 80
_DEVICE = (r"(?-i:(?:(?:NVIDIA|AMD|Intel|Nvidia|Tesla|GeForce|RTX) ?)*(?:[ABHPV]\d{2,3}s?|L40S?|L4|T4|MI\d{3}[AX]?|"
           r"G[BH]\d{3}|Gaudi ?\d|TPU ?v\d\w?|v[2-6][ep]?|A64FX|910[ABC]|RTX ?\d{4}|[2-5]0[6-9]0|A\d{4})(?: (?:Ti|Super))?"
           r"(?:[ -]?(?:SXM\d?|PCIe|NVL|OAM))?(?:[ -]?\(?\d{2,3} ?Gi?B\)?)?(?: (?:SXM\d?|PCIe))?|[abhv]100|[bh]200|mi\d{3}x?)")
_SIZE = r"(?:\d{1,4}(?:\.\d{1,3})?[ -]?[MBT]|\d{1,3}b\d)"
_MODEL = (r"(?:meta-?)?(?:llama|gpt|qwen|mi[sx]tral|gemma|phi|falcon|bloom|opt|pythia|olmo|deepseek|yi|nemotron|tinyllama|"
          rf"smollm|palm|mpt|bert|t5|vit|dense)[\w .-]{{0,16}}?[ -]?(?:\d{{1,3}}x)?{_SIZE}|{_SIZE}(?: params)?")
_N = r"(\d{1,3}(?:,\d{3})+|\d{1,7})"
_KEYS = (r"TP|PP|DP|CP|EP|VP|MP|FSDP|DDP|mbs|ubs|gbs|micro[ -]?batch(?:[ -]size)?|global[ -]?batch(?:[ -]size)?|seq(?:uence)?"
         r"(?:[ _-]?len(?:gth)?)?|ctx|context(?:[ -]?len(?:gth)?)?|gas?|grad[ -]?acc(?:um)?|acc(?:um)?|layers|"
         r"hidden(?: size)?|heads|vocab|nodes|GPUs")
_OF_ONE = r"nodes?|hosts?|servers?"
_PATTERNS = {
    "mesh": rf"{_N} ?(?:{_OF_ONE}|VMs?) ?(?:[x×*@(,]|of|with) ?(\d{{1,2}}) ?[x×]? ?"
            rf"(?:GPUs?(?:/node)?|(?P<mesh_of>{_DEVICE}))?\)?",
    "grid": rf"(\d{{1,4}}) ?[x×*] ?(\d{{1,2}}) ?[x×*]? ?(?:GPUs|(?P<grid_of>{_DEVICE}))",
    "devices": rf"{_N} ?[x×*]? ?(?:GPUs?|devices?|cards?|chips?|accelerators?|ranks?|GCDs?)",
    "counted": rf"{_N} ?[x×*]? ?(?P<counted_of>{_DEVICE})",
    "nodes": rf"{_N}[ -]?(?:{_OF_ONE})",
    "zero": r"ZeRO(?: stage)?[ -]?([0-3])",
    "recompute": r"(?P<how>no|without|w/o|full|selective|with) ?(?:activation |gradient |grad )?"
                 r"(?:re-?comp\w*|check-?pointing|ckpt|remat)",
    "axes": rf"data ?[=:] ?{_N}[ ,x×]+(?:model|tensor) ?[=:] ?{_N}",
    "axis": rf"(?P<axis>TP|PP|DP|CP|EP|VP){_N}(?=(?:TP|PP|DP|CP|EP|VP)\d)",
    "key": rf"(?P<key>{_KEYS}) ?[=:]? ?{_N} ?(?P<k>k)?",
    "letter": rf"(?P<letter>s|L|h) ?= ?{_N}",
    "length": r"(\d{1,4}) ?(?P<kilo>k)i?(?: ?(?:ctx|context|seq(?:uences?|[ _-]?len(?:gth)?)?|tok(?:en)?s?))?",
    "tokens": r"(\d{3,7}) ?(?:tok(?:en)?s?|ctx|context|seq)",
    "dtype": "|".join(name for name in DTYPES if name[-1].isdigit()),
    "model": _MODEL,
    "machine": rf"{_DEVICE}|(?:TPU )?v\d[ep]?-\d+",
}  # fmt: skip
_PARTS = [(name, re.compile(rf"(?:{pattern})" + ("" if name == "axis" else r"(?![^\W_])"), re.IGNORECASE))
          for name, pattern in _PATTERNS.items()]  # fmt: skip
_BETWEEN = re.compile(r"(?:[\s,;/|+&@()\[\]·_–-]|(?<![^\W_])(?:and|with|on|at|model|und|mit|auf|avec|sur|con|en|fsdp2?|hsdp|"
                      r"ddp|megatron|deepspeed|interleaved|1f1b)(?![^\W_]))*", re.IGNORECASE)
_SHORT_SIZE = re.compile(r"(\d{1,3})b(\d)$")
"""`1b7` is 1.7B."""
_HOW = {"no": "none", "without": "none", "w/o": "none", "with": "full"}
_FIELDS = {"s": "seq", "ctx": "seq", "l": "layers", "h": "hidden"}
_WHOLE_LENGTHS = frozenset(power << times for power in (1, 3) for times in range(16))
"""Thousands of tokens that people train on."""


TITLES = {name: name.upper() for name in LAYOUT if len(name) < 4} | {
    "size_label": "Model", "machine": "Device", "nodes": "Nodes", "gpus": "GPUs", "procs_per_node": "GPUs per node",
    "seq": "Sequence length", "layers": "Layers", "hidden": "Hidden size", "heads": "Heads", "zero_stage": "ZeRO stage",
    "recompute": "Recompute", "dtype": "dtype", "vocab": "Vocab", ACCUMULATION: "Grad. acc."}  # fmt: skip
"""How settings that stand above columns or in a row alone head a column of their own."""
_MAY_SAY = re.compile(r"\d|re-?comp|check-?point|ckpt|remat")


@lru_cache(maxsize=4096)
def composed(text: str) -> dict[str, object]:
    if not text or len(text) > LONGEST or not _MAY_SAY.search(text):
        return {}
    text = in_english(clean(text)).strip().rstrip(":.")
    found: dict[str, object] = {}
    at = _BETWEEN.match(text).end()  # type: ignore[union-attr]
    while at < len(text):
        for kind, pattern in _PARTS:
            if (match := pattern.match(text, at)) and (said := _said(kind, match)):
                break
        else:
            return {}
        if any(found.get(name, value) != value for name, value in said.items()):
            return {}
        found |= said
        after = _BETWEEN.match(text, match.end())
        at = after.end() if after else match.end()
    return found


def _said(kind: str, match: re.Match[str]) -> dict[str, object]:
    given = match.groupdict()
    counts = [int(group.replace(",", "")) for group in match.groups() if group and group.replace(",", "").isdigit()]
    of = {"machine": machine} if (machine := given.get(f"{kind}_of")) else {}
    if kind in ("mesh", "grid"):
        return {**_nodes_of(*counts[:2], total="(" in match[0] and not _EACH.search(match[0])), **of}
    if kind == "axes":
        return {"dp": counts[0], "tp": counts[1]}
    if kind in ("devices", "counted"):
        return {"gpus": counts[0], **of}
    if kind in ("nodes", "zero"):
        return {{"nodes": "nodes", "zero": "zero_stage"}[kind]: counts[0]}
    if kind == "recompute":
        how = given["how"].lower()
        return {"recompute": _HOW.get(how, how)}
    if kind == "key":
        return _of_key(given["key"], counts[0], bool(given["k"]))
    if kind == "axis":
        return _of_key(given["axis"], counts[0], False)
    if kind == "letter":
        return _of_key(given["letter"], counts[0], False)
    if kind == "length":
        return {"seq": counts[0] * 1024} if counts[0] in _WHOLE_LENGTHS else {}
    if kind == "tokens":
        return {"seq": counts[0]} if 128 <= counts[0] <= 4_194_304 else {}
    if kind == "dtype":
        return {"dtype": DTYPES[lowered(match[0])]}
    if kind == "model":
        return {"size_label": _SHORT_SIZE.sub(r"\1.\2B", match[0].strip().removesuffix(" params"))}
    return {"machine": match[0].strip()}


_EACH = re.compile(r"[x×*@]|/|of|with")


def _nodes_of(nodes: int, count: int, *, total: bool) -> dict[str, object]:
    """`4 nodes (32 GPUs)` are 8 of each, and of `4 nodes (8 GPUs)` nobody knows."""
    if total and nodes > 1:
        each, rest = divmod(count, nodes)
        return {"nodes": nodes} if rest or each < 4 or count <= 8 else {"nodes": nodes, "procs_per_node": each, "gpus": count}
    return {"nodes": nodes, "procs_per_node": count, "gpus": nodes * count}


def _of_key(key: str, count: int, thousands: bool) -> dict[str, object]:
    if accumulates(key):
        return {ACCUMULATION: count}
    name = _FIELDS.get(key.lower())
    column = None if name else setting(normal(key))
    name = name or (column.field if column else "")
    if not name or count < 1:
        return {}
    if name in ("seq", "hidden") and not thousands and count < 32:
        return {}
    return {name: count * (1024 if thousands else 1)}
