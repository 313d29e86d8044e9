"""The planner against measured tables: `python -m benchmarks.planner` prints what it forecasts cold and after learning.

Cold means the data sheets, the published facts about the machine and kernels timed on one GPU (`benchmarks/kernels_gpu.py`); no
row of these tables. Learned means from other rows than those forecast: from all sections of the log but one, from all dates but
one, or from a few rows at random of other sections, dates or widths than those forecast. Rows that contradict themselves or
their twins stand in LEFT_OUT, each with its reason.
"""
from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import ndtr
from scipy.stats import spearmanr

from seatrial import presets
from seatrial.plan import calibrate, forecast, memory, step
from seatrial.plan.configs import Configs
from seatrial.plan.rows import Row, read

ROWS = Path(__file__).parents[1] / "examples" / "rows.csv"

SECTIONS = ("48 node contenders", "Final round comparison", "GBS Variations")

LEFT_OUT = {
    ("bloom-prequel", "447"): "a smaller batch takes as long as a larger one",
    ("bloom-prequel", "475"): "the same configuration as the row above it, with other figures",
    ("bloom-prequel", "340"): "seconds and TFLOPs exchanged",
    ("bloom-prequel", "341"): "another branch of the code",
    ("fugaku-30b", "24"): "extrapolated from a smaller batch",
    ("fugaku-sweep", "15"): "marked by its authors: forward and reduction took a lot of time",
}

OTHERS = (
    ("calculon", "32", "0.67", "8.2", "40", "0 of 3 / 0", "97"),
    ("llm-analysis", "14-42", "0.56-0.85", "picks the failing PP 48", "32", "3 of 3 / 0", "2,580"),
    ("SimuMax, links from the data sheet", "7.3", "0.34", "1.1", "11", "3 of 3 / 1", "12"),
    ("constant TFLOPs, one fitted scale", "6.1", "-", "9.6", "-", "-", "-"),
)
"""What other tools say of the same 33 rows, measured elsewhere; not run here."""


def mape(forecast_: np.ndarray, measured: np.ndarray) -> float:
    return float(100 * np.mean(np.abs(forecast_ / measured - 1)))


def seconds(rows: Sequence[Row]) -> np.ndarray:
    return np.array([r.sec_per_it for r in rows], dtype=float)


def key(row: Row) -> tuple[str, str]:
    return row.cells["source_file"], row.cells["line_no"]


def of_machine(name: str) -> tuple[calibrate.Cluster, list[Row]]:
    cluster = presets.cluster(name)
    return cluster, [r for r in read(ROWS, cluster).rows if r.cells["machine"] == name]


def timed(rows: Sequence[Row]) -> list[Row]:
    return [r for r in rows if r.counts and r.trial is not None and r.sec_per_it is not None and key(r) not in LEFT_OUT]


def contest(rows: Sequence[Row]) -> list[Row]:
    """The 33 rows: one model on 48 nodes, topology and batch varied."""
    cells = {"hidden": "14336", "layers": "72", "heads": "64", "zero_stage": "1", "duplicate_of": ""}
    return [r for r in rows if r.cells["section"] in SECTIONS and all(r.cells[k] == v for k, v in cells.items())]


def per_sample(rows: Sequence[Row], sec: np.ndarray) -> np.ndarray:
    return sec / np.array([r.trial.batch.gbs for r in rows if r.trial is not None])


def picked(rows: Sequence[Row], sec: np.ndarray) -> tuple[Row, float]:
    """The row forecast as the fastest a sample, and by how many per cent the best measured one beats it."""
    found, measured = per_sample(rows, sec), per_sample(rows, seconds(rows))
    best = int(np.argmin(found))
    return rows[best], float(100 * (measured[best] / measured.min() - 1))


def last_session(rows: Sequence[Row]) -> list[Row]:
    return [r for r in rows if r.session == "2022-02-25"]


def cold(cluster: calibrate.Cluster, rows: Sequence[Row]) -> dict[str, object]:
    fit = calibrate.cold(cluster)
    all_timed = [r for r in rows if r.counts and r.trial is not None and r.sec_per_it is not None]
    kept, late = timed(rows), last_session(timed(rows))
    pick, regret = picked(late, fit.forecast(late).sec)
    with_memory = [r for r in rows if r.trial is not None and r.mem_gib is not None]
    gib = fit.forecast(with_memory).mem
    limit = forecast.limit_gib(cluster)
    failed = [r for r in rows if r.trial is not None and r.cells["status"] == "oom"]
    over = fit.forecast(failed).mem > limit
    all_timed_forecast = fit.forecast(all_timed)
    inside = (all_timed_forecast.sec_lo <= seconds(all_timed)) & (seconds(all_timed) <= all_timed_forecast.sec_hi)
    return {
        "time_mape": mape(all_timed_forecast.sec, seconds(all_timed)), "time_rows": len(all_timed),
        "time_mape_believed": mape(fit.forecast(kept).sec, seconds(kept)), "covered_percent": float(100 * inside.mean()),
        "rank": float(spearmanr(per_sample(late, fit.forecast(late).sec), per_sample(late, seconds(late))).statistic),
        "pick": "/".join(pick.cells[k] for k in ("dp", "tp", "pp", "mbs")), "regret_percent": regret,
        "memory_mape": mape(gib, np.array([r.mem_gib for r in with_memory], dtype=float)), "memory_rows": len(with_memory),
        "oom_found": int(over.sum()), "oom": len(failed), "oom_false": int((gib > limit).sum()),
        "rejected": [f"{r.cells['pp']} stages: {r.reject}" for r in rows if r.reject],
    }


def memory_steps(cluster: calibrate.Cluster, rows: Sequence[Row]) -> list[tuple[str, float, float, float, float]]:
    """Two changes that the log itself remarks on: measured before and after, forecast before and after."""
    by_line = {r.cells["line_no"]: r for r in rows}
    fit = calibrate.cold(cluster)
    steps = []
    for name, before, after in (("DP 1 -> 2", "61", "62"), ("ZeRO 1 -> 0", "279", "341")):
        pair = [by_line[before], by_line[after]]
        gib = fit.forecast(pair).mem
        steps.append((name, float(pair[0].mem_gib or 0), float(pair[1].mem_gib or 0), float(gib[0]), float(gib[1])))
    return steps


KINDS = {
    "section": lambda row: row.cells["source_file"] + ": " + row.cells["section"],
    "date": lambda row: row.session or "no date",
    "width": lambda row: row.cells["hidden"],
}
"""What rows are kept apart by."""

DRAWS = 200


def from_few(cluster: calibrate.Cluster, rows: Sequence[Row], count: int, draws: int = DRAWS) -> dict[str, float]:
    """Learned from so many rows at random; forecast are those of a section, date or width that none of them has."""
    rng = np.random.default_rng(0)
    cold_sec = calibrate.cold(cluster).forecast(rows).sec
    errors, cold_errors, inside, made = [], [], [], 0
    while made < draws:
        of = list(KINDS.values())[made % len(KINDS)]
        labels = np.array([of(row) for row in rows])
        rest = np.flatnonzero(labels == rng.choice(np.unique(labels)))
        others = np.setdiff1d(np.arange(len(rows)), rest)
        if len(others) < count:
            continue
        made += 1
        fit = calibrate.learn([rows[i] for i in rng.choice(others, count, replace=False)], cluster)
        asked = [rows[i] for i in rest]
        found, sec = fit.forecast(asked), seconds(asked)
        errors.append(np.abs(found.sec / sec - 1))
        cold_errors.append(np.abs(cold_sec[rest] / sec - 1))
        inside.append((found.sec_lo <= sec) & (sec <= found.sec_hi))
    return {"rows": count, "draws": draws, "mape": float(100 * np.concatenate(errors).mean()),
            "cold_mape": float(100 * np.concatenate(cold_errors).mean()),
            "covered_percent": float(100 * np.concatenate(inside).mean()),
            "binomial_percent": float(100 * np.sqrt(0.9 * 0.1 / draws))}


def left_out(cluster: calibrate.Cluster, rows: Sequence[Row], groups: Sequence[object]) -> calibrate.Forecast:
    """Each group of rows forecast from all the others."""
    columns: dict[str, np.ndarray] = {}
    for group in dict.fromkeys(groups):
        inside = [i for i, g in enumerate(groups) if g == group]
        fit = calibrate.learn([r for r, g in zip(rows, groups) if g != group], cluster)
        for name, values in vars(fit.forecast([rows[i] for i in inside])).items():
            columns.setdefault(name, np.zeros(len(rows)))[inside] = values
    return calibrate.Forecast(**columns)


def by_kind(cluster: calibrate.Cluster, rows: Sequence[Row], kind: str) -> dict[str, object]:
    """Each section, date or width from all others, with the cold forecast beside it."""
    labels = [KINDS[kind](row) for row in rows]
    found, cold_sec, sec = left_out(cluster, rows, labels), calibrate.cold(cluster).forecast(rows).sec, seconds(rows)
    each = []
    for label in dict.fromkeys(labels):
        i = [j for j, other in enumerate(labels) if other == label]
        each.append({"name": label, "rows": len(i), "mape": mape(found.sec[i], sec[i]), "cold_mape": mape(cold_sec[i], sec[i])})
    return {"mape": mape(found.sec, sec), "cold_mape": mape(cold_sec, sec), "rows": len(rows),
            "covered_percent": covered(found, rows), "each": each}


BINS = (0.0, 0.2, 0.5, 0.8, 1.0)


def odds(cluster: calibrate.Cluster, rows: Sequence[Row]) -> dict[str, object]:
    """The odds of fitting against what happened: rows that ran, and those that ran out of memory."""
    known = [r for r in rows if r.trial is not None and (r.status == "oom" or r.counts and r.sec_per_it is not None)]
    found = calibrate.cold(cluster).forecast(known)
    chance = ndtr(np.log(forecast.limit_gib(cluster) / found.need) / found.mem_sigma)
    ran = np.array([r.status != "oom" for r in known])
    table = []
    for low, high in itertools.pairwise(BINS):
        here = (chance >= low) & ((chance < high) | (high == 1.0))
        table.append({"from": low, "to": high, "rows": int(here.sum()), "ran": int(ran[here].sum()),
                      "mean_odds": float(chance[here].mean()) if here.any() else None})
    return {"brier": float(np.mean((chance - ran) ** 2)), "base_rate_brier": float(ran.mean() * (1 - ran.mean())),
            "rows": len(known), "oom": int((~ran).sum()), "oom_odds": chance[~ran].tolist(),
            "least_odds_that_ran": float(chance[ran].min()), "table": table}


def covered(found: calibrate.Forecast, rows: Sequence[Row]) -> float:
    return float(100 * np.mean((found.sec_lo <= seconds(rows)) & (seconds(rows) <= found.sec_hi)))


def speed(cluster: calibrate.Cluster, count: int = 200_000) -> float:
    """Distinct configurations a second on one core, time and memory together."""
    rng = np.random.default_rng(0)
    many = Configs.from_columns(
        count, layers=rng.integers(1, 25, count) * 12, hidden=rng.integers(8, 120, count) * 128, heads=64, seq=2048,
        vocab=51200, dp=rng.integers(1, 65, count), tp=2 ** rng.integers(0, 4, count),
        pp=rng.choice([1, 2, 3, 4, 6, 12], count),
        mbs=2 ** rng.integers(0, 4, count), gbs=65536, zero=1, recompute=rng.integers(0, 3, count), procs_per_node=8)
    begin = time.process_time()
    step.time(many, cluster)
    memory.peak(many, cluster)
    return count / (time.process_time() - begin)


def measure() -> dict[str, object]:
    jz, every = of_machine("jz-a100")
    rows = contest(every)
    kept = timed(rows)
    one_out = left_out(jz, kept, list(range(len(kept))))
    late = [i for i, r in enumerate(kept) if r.session == "2022-02-25"]
    pick, regret = picked([kept[i] for i in late], one_out.sec[late])
    best = min(late, key=lambda i: float(per_sample([kept[i]], seconds([kept[i]]))[0]))
    chosen = late[int(np.argmin(per_sample([kept[i] for i in late], one_out.sec[late])))]
    scale = float(per_sample([kept[best]], np.ones(1))[0] / per_sample([kept[chosen]], np.ones(1))[0])
    tie = bool(one_out.sec_hi[chosen] >= one_out.sec_lo[best] * scale)
    all_rows = timed(every)
    fugaku, there = of_machine("fugaku")
    cpu = timed(there)
    return {
        "cold": cold(jz, rows), "memory_steps": memory_steps(jz, every),
        "one_row_out": {"mape": mape(one_out.sec, seconds(kept)), "rows": len(kept), "covered_percent": covered(one_out, kept),
                        "pick": "/".join(pick.cells[k] for k in ("dp", "tp", "pp", "mbs")), "regret_percent": regret,
                        "best_within_its_interval": tie},
        "left_out": {name: {kind: by_kind(cluster, measured, kind) for kind in KINDS}
                     for name, cluster, measured in (("A100", jz, all_rows), ("Fugaku", fugaku, cpu))},
        "from_few": {"A100": [from_few(jz, all_rows, count) for count in (1, 2, 3, 6, 30)],
                     "Fugaku": [from_few(fugaku, cpu, count) for count in (6, 20)]},
        "odds": odds(jz, every), "configurations_a_second": speed(jz),
    }


def show(found: dict) -> None:
    c, one = found["cold"], found["one_row_out"]
    print("| tool, untuned | time MAPE % | rank correlation | regret % | memory MAPE % | OOM found / false | "
          "configurations a second |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for line in OTHERS:
        print("| " + " | ".join(line) + " |")
    ours = ("**seatrial, cold**", f"{c['time_mape']:.1f}", f"{c['rank']:.2f}", f"{c['regret_percent']:.1f}",
            f"{c['memory_mape']:.1f}", f"{c['oom_found']} of {c['oom']} / {c['oom_false']}",
            f"{found['configurations_a_second']:,.0f}")
    print("| " + " | ".join(ours) + " |\n")
    print(f"cold: {c['time_rows']} timed rows; {c['time_mape_believed']:.1f} % without the two that contradict themselves; "
          f"picks DP/TP/PP/MBS {c['pick']}; the 90 % interval holds {c['covered_percent']:.0f} % of the rows; "
          f"rejected: {c['rejected']}")
    for name, before, after, was, is_ in found["memory_steps"]:
        print(f"memory, {name}: measured {before:.0f} -> {after:.0f} GiB, forecast {was:.1f} -> {is_:.1f}")
    tie = "within its interval" if one["best_within_its_interval"] else "outside its interval"
    print(f"all rows of the model but the one forecast: {one['mape']:.2f} % of {one['rows']} rows, "
          f"intervals hold {one['covered_percent']:.0f} %; picks {one['pick']}, {one['regret_percent']:.1f} % "
          f"from the best measured, which lies {tie}")
    for name, kinds in found["left_out"].items():
        for kind, got in kinds.items():
            print(f"\n{name}, each {kind} from the others: {got['mape']:.2f} % of {got['rows']} rows, "
                  f"cold {got['cold_mape']:.2f} %; intervals hold {got['covered_percent']:.0f} %")
            for line in got["each"]:
                print(f"  {line['mape']:6.2f} % cold {line['cold_mape']:6.2f} %  {line['rows']:3d} rows  {line['name']}")
    for name, lines in found["from_few"].items():
        print(f"\n{name}, learned from a few rows of other sections, dates or widths than those forecast, {DRAWS} draws:")
        for line in lines:
            print(f"  {line['rows']:2d} rows: {line['mape']:.2f} %, cold {line['cold_mape']:.2f} %; intervals hold "
                  f"{line['covered_percent']:.1f} % (binomial error of the draws {line['binomial_percent']:.1f})")
    o = found["odds"]
    print(f"\nodds of fitting, cold, {o['rows']} rows of which {o['oom']} ran out of memory: Brier {o['brier']:.3f} "
          f"(always the base rate: {o['base_rate_brier']:.3f}); those that did not fit have "
          f"{', '.join(f'{x:.2f}' for x in o['oom_odds'])}, the least of those that ran {o['least_odds_that_ran']:.2f}")
    for line in o["table"]:
        print(f"  odds {line['from']:.1f} to {line['to']:.1f}: {line['ran']} of {line['rows']} ran")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true", help="print the figures as one JSON document")
    found = measure()
    if options.parse_args().json:
        print(json.dumps(found))
    else:
        show(found)


if __name__ == "__main__":
    main()
