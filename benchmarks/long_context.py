"""Requests that need sequences divided over ranks, sharding groups or stages that differ: how long each plan takes, and why the
first of it is.

    python -m benchmarks.long_context               as text
    python -m benchmarks.long_context --json

- llama3.1-8b at 131,072 tokens on one node of eight H100, and of eight H200, for every engine that divides sequences.
- llama3.1-405b at 131,072 tokens with CP 16 on 2,048 H100; TP 8 x CP 16 x PP 16, as its authors lay it out (arXiv:2407.21783,
  table 4), must be among those that fit.
- llama3-70b with ZeRO 3 in groups of 32 and replicas across on 256 H100; groups of 8 must be refused with what the states take.
- 61, 94 and 126 layers: every PP up to 16 of a world of 16 must be there.

Wanted: under 10 s each.
"""
from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from seatrial.plan.ask import Answer, ask, question
from seatrial.plan.explain import explain

LONG = 131_072


def planned(model: str, cluster: str, nodes: int, gbs: int, engine: str, settings: tuple[str, ...] = (),
            **knobs: Any) -> Answer:
    request = question(model=model, cluster=cluster, nodes=nodes, engine=engine, knobs={"gbs": gbs, **knobs},
                       settings=settings).request
    return ask(request, top=5)


def has(found: Answer, **knobs: int) -> bool:
    """Whether a layout of these is among those that are likely to fit."""
    ranked = found.found
    return any(ranked.odds[i] >= 0.8 and all(int(ranked.ranked[name][i]) == value for name, value in knobs.items())
               for i in range(len(ranked)))


def eight(engine: str, cluster: str) -> tuple[Answer, dict[str, bool]]:
    found = planned("llama3.1-8b", cluster, 1, 8, engine, (f"model.seq={LONG}",))
    recipes = {"TP 1 x CP 8": {"tp": 1, "cp": 8}, "TP 2 x CP 4": {"tp": 2, "cp": 4}, "TP 4 x CP 2": {"tp": 4, "cp": 2}}
    return found, {name: has(found, **knobs) for name, knobs in recipes.items()}


def large() -> tuple[Answer, dict[str, bool]]:
    found = planned("llama3.1-405b", "dgx-h100", 256, 128, "megatron-core", (f"model.seq={LONG}",), cp=16)
    return found, {"TP 8 x CP 16 x PP 16": has(found, tp=8, cp=16, pp=16)}


def grouped(group: int) -> tuple[Answer, dict[str, bool]]:
    found = planned("llama3-70b", "dgx-h100", 32, 512, "fsdp2", tp=1, pp=1, zero=3, zero_group=group)
    return found, {f"group {group} fits": len(found.found) > 0}


def layered(layers: int) -> tuple[Answer, dict[str, bool]]:
    found = planned("llama3-8b", "dgx-h100", 2, 64, "fsdp2", (f"model.layers={layers}",))
    return found, {f"PP {pp}": has(found, pp=pp) for pp in (1, 2, 4, 8, 16)}


REQUESTS: dict[str, Callable[[], tuple[Answer, dict[str, bool]]]] = {
    **{f"8B, {LONG:,} tokens, 8 {device}, {engine}": lambda engine=engine, cluster=cluster: eight(engine, cluster)
       for cluster, device in (("dgx-h100", "H100"), ("h200", "H200"))
       for engine in ("megatron-core", "fsdp2", "deepspeed", "seatrial")},
    f"405B, {LONG:,} tokens, CP 16, 2,048 H100": large,
    "70B, ZeRO 3 in groups of 32, 256 H100": lambda: grouped(32),
    "70B, ZeRO 3 in groups of 8, 256 H100": lambda: grouped(8),
    **{f"{layers} layers, 16 H100": lambda layers=layers: layered(layers) for layers in (61, 94, 126)},
}  # fmt: skip


def measured(run: Callable[[], tuple[Answer, dict[str, bool]]]) -> dict[str, Any]:
    start = time.perf_counter()
    found, offered = run()
    seconds = time.perf_counter() - start
    told: dict[str, Any] = {"seconds": seconds, "considered": found.document["considered"],
                            "accepted": found.document["accepted"], "offered": offered}
    if not len(found.found):
        return {**told, "first": None, "reasons": [found.document["reason"]]}
    why = explain(found.found.trial(0))
    first = found.document["candidates"][0]
    return {**told, "first": {name: first.get(name) for name in ("dp", "tp", "pp", "cp", "cp_kind", "mbs", "zero", "zero_group",
                                                                 "recompute", "sec_per_it", "mem_gib")},
            "reasons": [*found.document["reasons"], *why.limits]}  # fmt: skip


def shown(name: str, r: Mapping[str, Any]) -> None:
    print(f"{name}: {r['seconds']:.1f} s, {r['accepted']:,} of {r['considered']:,} can run")
    if r["first"] is not None:
        print("  first: " + ", ".join(f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}"
                                      for key, value in r["first"].items() if value is not None))
    for reason in r["reasons"]:
        print(f"  {reason}")
    print("  offered as fitting: " + ", ".join(f"{what} {'yes' if there else 'no'}" for what, there in r["offered"].items()))


def main() -> None:
    results = {}
    for name, run in REQUESTS.items():
        results[name] = measured(run)
        if "--json" not in sys.argv:
            shown(name, results[name])
    if "--json" in sys.argv:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
