"""A machine file as text: the best and worst of each part, with the noise, and what is missing."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MOST_MISSING = 6


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    device, figures = found["device"], found["figures"]
    ranks = f"{found['world']} ranks on {found['nodes']} nodes" if found["world"] > 1 else "one process"
    yield (f"{device['name']}, {device['usable_gib']:.1f} of {device['memory_gib']:.1f} GiB usable; {ranks}, "
           f"{found['threads']} threads each; torch {found['torch']}")
    busy = f"; busy: it had {share:.0%} of its core" if (share := found.get("core_share", 1.0)) < 0.9 else ""
    yield f"{found['mode']}, {found['seconds']:.0f} s; noise {found['noise']:.1%} (the median figure's spread){busy}"
    yield from _gemms(figures["matmul"])
    yield from _attention(figures["attention"])
    yield from _streams(figures["memory"])
    for entry in figures["optimizer"]:
        each_ns = 1e9 * entry["s"] / entry["parameters"]
        yield _row("optimizer", f"{entry['dtype']} AdamW", f"{each_ns:.3g} ns per parameter", entry)
    for entry in figures["copies"]:
        pages = "pinned" if entry["pinned"] else "pageable"
        rate = entry["bytes"] / entry["s"] / 1e9
        yield _row("copy", f"{entry['way']}, {_size(entry['bytes'])} {pages}", f"{rate:.3g} GB/s", entry)
    for entry in figures["host"]:
        yield _row("host", "per layer, per iteration", f"{1e6 * (entry['forward_s'] + entry['backward_s']):.0f} µs, "
                   f"{1e3 * entry['fixed_s']:.2f} ms", entry)
    for entry in figures["launch"]:
        yield _row("launch", "one kernel", f"{1e6 * entry['s']:.1f} µs", entry)
    if between := found.get("between"):
        yield f"  collectives are what they add to GEMMs of {1e3 * between['s']:.2g} ms"
    yield from _network(figures["collectives"], figures["p2p"])
    yield from _missing(found["missing"])


def _row(part: str, what: str, value: str, entry: Mapping[str, Any]) -> str:
    return f"  {part:12} {what:34} {value:>28}  ± {100 * entry['spread']:.0f} %"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:g} {unit}"
        count /= 1024
    return f"{count:g} GiB"


def _gemms(entries: list[dict[str, Any]]) -> Iterator[str]:
    def tflops(e: dict[str, Any]) -> float:
        return float(2e-12 * e["rows"] * e["cols"] * e["inner"] * e["batch"] / e["s"])

    for dtype, kind in dict.fromkeys((e["dtype"], e["kind"]) for e in entries):
        mine = sorted((e for e in entries if (e["dtype"], e["kind"]) == (dtype, kind)), key=tflops)
        low, high = tflops(mine[0]), tflops(mine[-1])
        yield _row("GEMM", f"{dtype} {kind}, {len(mine)} shapes", f"{low:.3g} to {high:.3g} TFLOP/s", mine[len(mine) // 2])


def _attention(entries: list[dict[str, Any]]) -> Iterator[str]:
    for e in entries:
        flops = 2e-12 * e["batch"] * e["heads"] * e["seq"] ** 2 * e["head_dim"]
        what = f"{e['dtype']} {e['batch']}x{e['heads']} heads of {e['head_dim']}, {e['seq']}{', bias' if e['bias'] else ''}"
        yield _row("attention", what, f"{flops / e['forward_s']:.3g}, back {2.5 * flops / e['backward_s']:.3g} TFLOP/s", e)


def _streams(entries: list[dict[str, Any]]) -> Iterator[str]:
    for name in dict.fromkeys(e["name"] for e in entries):
        mine = [e for e in entries if e["name"] == name]
        rates = [f"{e['moved'] / e['s'] / 1e9:.3g}" for e in mine]
        yield _row("memory", f"{name}, {', '.join(_size(e['bytes']) for e in mine)}", f"{', '.join(rates)} GB/s", mine[-1])


def _network(collectives: list[dict[str, Any]], messages: list[dict[str, Any]]) -> Iterator[str]:
    kinds = dict.fromkeys((e["op"], e["size"], e["nodes"]) for e in collectives)
    for op, size, nodes in kinds:
        mine = [e for e in collectives if (e["op"], e["size"], e["nodes"]) == (op, size, nodes)]
        where = f"{size} ranks" + (f" on {nodes} nodes" if nodes > 1 else "")
        yield _row(op, where, f"{1e6 * mine[0]['s']:.0f} µs, {mine[-1]['bytes'] / mine[-1]['s'] / 1e9:.3g} GB/s", mine[-1])
    for nodes in dict.fromkeys(e["nodes"] for e in messages):
        mine = [e for e in messages if e["nodes"] == nodes]
        yield _row("message", "inside a node" if nodes == 1 else "across nodes",
                   f"{1e6 * mine[0]['s']:.0f} µs, {mine[-1]['bytes'] / mine[-1]['s'] / 1e9:.3g} GB/s", mine[-1])


def _missing(entries: list[dict[str, str]]) -> Iterator[str]:
    if entries:
        yield f"not measured: {len(entries)}"
    for entry in entries[:MOST_MISSING]:
        yield f"  {entry['what']}: {entry['why']}"
    if len(entries) > MOST_MISSING:
        yield f"  and {len(entries) - MOST_MISSING} more, in the file"
