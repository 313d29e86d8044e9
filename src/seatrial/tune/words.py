"""How candidates are named: by what they differ in.

    knobs(trials)[0]            {"dp": "2", "mbs": "4"}
    label(knobs(trials)[0])     DP 2 MBS 4
    digits(11951.3)             11,950
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from seatrial.spec import Trial

SHORT = {"zero_stage": "ZeRO", "recompute": "recompute", "schedule": "", "nodes": "nodes", "sequence_parallel": "SP",
         "freq_ghz": "GHz"}


def knobs(trials: Sequence[Trial]) -> list[dict[str, str]]:
    """Of each trial what not all have alike; DP, TP, PP and MBS always. Names are columns of a record."""
    rows = [_all(trial) for trial in trials]
    always = ("dp", "tp", "pp", "mbs")
    varied = [name for name in rows[0] if name in always or len({row[name] for row in rows}) > 1] if rows else []
    return [{name: row[name] for name in varied} for row in rows]


def _all(trial: Trial) -> dict[str, str]:
    t = trial.topology
    return {"nodes": str(trial.cluster.nodes if trial.cluster else 1), "dp": str(t.dp), "tp": str(t.tp), "pp": str(t.pp),
            "vp": str(t.vp), "mbs": str(t.mbs), "gbs": str(trial.batch.gbs), "zero_stage": str(t.zero),
            "recompute": t.recompute, "schedule": t.schedule, "sequence_parallel": "on" if t.sequence_parallel else "off",
            "freq_ghz": f"{trial.environment.clock_ghz or 0:g}"}


def label(named: Mapping[str, str]) -> str:
    return " ".join(f"{SHORT.get(name, name.upper())} {value}".strip() for name, value in named.items())


def digits(value: float, count: int = 4) -> str:
    """So many significant digits, never as a power of ten: 3535, 0.5037, 12,950."""
    return f"{float(f'{value:.{count}g}'):,.10g}"
