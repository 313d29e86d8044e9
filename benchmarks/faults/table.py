"""The campaign's table: one line a kind, and under it each case that did not come as expected.

    print(table(results))
"""
from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

HEAD = "kind          n  outcome  culprit median s worst s late lost dbl orph  resumed"


def table(results: Iterable[dict[str, Any]]) -> str:
    every = [r for r in results if not r.get("skipped")]
    counted = [r for r in every if not r["void"]]
    kinds = sorted({r["kind"] for r in counted})
    lines = [HEAD, *(_line(kind, [r for r in counted if r["kind"] == kind]) for kind in kinds), _line("all", counted)]
    voids = len(every) - len(counted)
    if voids:
        lines.append(f"{voids} came too late to strike and do not count")
    return "\n".join(lines)


def _line(kind: str, rows: list[dict[str, Any]]) -> str:
    seconds = [r["verdict_s"] for r in rows if r["bar_s"] is not None and r["verdict_s"] is not None]
    late = sum(r["verdict_s"] > r["bar_s"] for r in rows if r["bar_s"] is not None and r["verdict_s"] is not None)
    middle = f"{statistics.median(seconds):.1f}" if seconds else "-"
    worst = f"{max(seconds):.1f}" if seconds else "-"
    total = {name: sum(r[name] for r in rows) for name in ("lost", "doubled", "orphans")}
    return (f"{kind:<11}{len(rows):>4}{_of(rows, 'outcome_right'):>9}{_of(rows, 'culprit_right'):>9}{middle:>9}{worst:>8}"
            f"{late or '-':>5}{total['lost'] or '-':>5}{total['doubled'] or '-':>4}{total['orphans'] or '-':>5}"
            f"{_of(rows, 'resumed'):>9}")


def _of(rows: list[dict[str, Any]], name: str) -> str:
    """Right ones of those that were asked: 11/12."""
    asked = [r[name] for r in rows if r[name] is not None]
    return f"{sum(asked)}/{len(asked)}" if asked else "-"


def wrongs(results: Iterable[dict[str, Any]]) -> list[str]:
    return [f"{r['seed']}:{r['index']} {r['kind']} of rank {r['rank']} of {r['layout']} at {r['moment']} {r['step']}: "
            f"{', '.join(r['wrong'])}: expected {'/'.join(r['outcomes'])} of {r['culprits']}, found {r['status']} of "
            f"{r['named']} after {r['verdict_s']} s: {r['message']} {r['why']}".rstrip() for r in results if r.get("wrong")]
