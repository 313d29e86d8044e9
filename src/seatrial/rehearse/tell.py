"""A rehearsal for a person: each rank's memory and actions, the iteration, and the planner's figures beside them.

    tell(document(found, training, seconds=12.0))
"""
from __future__ import annotations

from typing import Any

from seatrial import terminal
from seatrial.spec import GIB

MANY = 4
"""With more ranks than this one table of all of them is enough."""


def tell(said: dict[str, Any]) -> None:
    t = said["topology"]

    def knob(name: str, otherwise: object) -> object:
        return t.get(name, otherwise)

    print(f"{said['model'] or 'the model'}: DP {knob('dp', 1)} x TP {knob('tp', 1)} x PP {knob('pp', 1)} = {said['world']} "
          f"process{'es' if said['world'] > 1 else ''}, MBS {knob('mbs', 1)}, batch {said['gbs']} = {said['microbatches']} "
          f"micro-batches, ZeRO {knob('zero', 0)}, recompute {knob('recompute', 'none')}, {knob('schedule', '1f1b')}, "
          f"{knob('precision', 'fp32')}")
    threads = f", {said['threads']} thread{'s' if said['threads'] > 1 else ''}" if said["threads"] else ""
    network = f"network of {said['cluster']}" if said["cluster"] else "no network"
    print(f"rehearsed on {said['device']}{threads}; {network}")
    for note in said["notes"]:
        print(f"  {note}")
    if len(said["ranks"]) > MANY:
        _many(said)
    else:
        for one in said["ranks"]:
            _rank(one, said["topology"])
    if said["iteration"] is not None:
        _iteration(said)


def _rank(one: dict[str, Any], topology: dict[str, Any]) -> None:
    ends = [word for word, there in (("embedding", one["has_embedding"]), ("head", one["has_head"])) if there]
    layers = sum(one["layers"])
    has = ", ".join([f"{layers} layer{'s' if layers > 1 else ''}", *ends, f"{one['in_flight']} in flight"])
    print(f"\nrank {one['rank']}: pipeline rank {one['pipeline_rank']} of {topology.get('pp', 1)}, {has}")
    memory = one["memory"]
    print(f"  memory: {_bytes(memory['peak_bytes'])} at the fullest moment of {memory['microbatches_run']} micro-batches, "
          f"by {memory['by']}" + _allocator(memory))
    parts = [p for p, size in memory["parts_bytes"].items() if size or memory["counted_bytes"][p]]
    rows = [[p, *(_bytes(memory[column][p]) for column in ("at_peak_bytes", "parts_bytes", "counted_bytes"))] for p in parts]
    _table(["part", "then", "its own peak", "counted from the shapes"], rows)
    forecast = one["forecast"]
    if forecast is not None:
        print(f"  the planner expects {forecast['mem_gib']:.2f} GiB in use there, kept as Megatron and DeepSpeed keep it, "
              "with context and slack")
    if one["actions"] is not None:
        _actions(one["actions"], forecast)


def _allocator(memory: dict[str, Any]) -> str:
    if memory["allocated_gib"] is None:
        return ""
    return f"; the allocator gave out {memory['allocated_gib']:.2f} GiB and held {memory['reserved_gib']:.2f}"


def _actions(actions: dict[str, Any], forecast: dict[str, Any] | None) -> None:
    rows = []
    for name in ("forward", "backward", "weight"):
        chunks = actions[name]
        for i, timed in enumerate(chunks):
            label = name if len(chunks) == 1 else f"{name} of stage {i}"
            beside = _time(forecast[f"{name}_s"]) if forecast and f"{name}_s" in forecast and len(chunks) == 1 else ""
            rows.append([label, _time(timed["compute_s"]), _time(timed["charged_s"]), _spread(timed["repeats_s"]), beside])
    for name in ("reduce", "update"):
        rows.append([name, _time(actions[name]["compute_s"]), _time(actions[name]["charged_s"]), "", ""])
    headers = ["action", "compute", "network", "repeats"] + (["planner, both"] if forecast else [])
    _table(headers, [row[: len(headers)] for row in rows])


def _many(said: dict[str, Any]) -> None:
    rows = []
    for one in said["ranks"]:
        actions, forecast = one["actions"], one["forecast"]
        both = sum(t["compute_s"] for name in ("forward", "backward", "weight") for t in actions[name]) if actions else None
        rows.append([_range(one["stands_for"]), str(sum(one["layers"])), str(one["in_flight"]),
                     _bytes(one["memory"]["peak_bytes"]), f"{forecast['mem_gib']:.2f} GiB" if forecast else "",
                     "" if both is None else _time(both), _time(forecast["compute_s"]) if forecast else ""])
    headers = ["pipeline rank", "layers", "in flight", "memory", "planner", "compute a micro-batch", "planner"]
    kept = [i for i in range(len(headers)) if any(row[i] for row in rows)]
    print()
    _table([headers[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _iteration(said: dict[str, Any]) -> None:
    found, forecast = said["iteration"], said["forecast"]
    sec = terminal.seconds(found["sec_per_it"])
    print(f"\niteration: {sec} s put together from these actions, {found['tflops']:.3g} TFLOPs a process "
          f"({found['formula']})" + ("" if found["charged"] else "; communication not charged"))
    if found["stages_taken_alike"]:
        print("  every stage taken to be like this one; --all-stages rehearses each")
    print(terminal.breakdown(found["parts_s"], "s"))
    if forecast is not None:
        print(f"the planner expects {terminal.seconds(forecast['sec_per_it'])} s on {said['cluster']}'s own devices "
              f"(90 %: {terminal.seconds(forecast['sec_lo'])} to {terminal.seconds(forecast['sec_hi'])})")
        print(terminal.breakdown(forecast["parts_s"], "s"))
    if forecast is not None:
        print(f"and in memory, on its fullest rank, {sum(forecast['memory_gib'].values()):.2f} GiB")
        print(terminal.breakdown(forecast["memory_gib"], "GiB"))


def _range(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _table(headers: list[str], rows: list[list[str]]) -> None:
    print("\n".join(f"    {line}" for line in terminal.plain_table(headers, rows, left=(0,)).splitlines()))


def _bytes(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.2f} MiB"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds else "0"


def _spread(repeats: list[float]) -> str:
    return f"{_time(min(repeats))} to {_time(max(repeats))}" if len(repeats) > 1 else ""
