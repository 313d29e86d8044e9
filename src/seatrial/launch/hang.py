"""Who never arrived: the rank behind a hang, the collective that the others wait in, and the line of code it stands at.

    find(run_dir, topology, beats=…, frozen=())      Hang(rank=1, message="rank 1 (pp0 dp0 tp1) never entered all_reduce 412 …")

Three kinds, surest first: a rank that was stopped by a signal; a rank that did not even report; a rank that entered fewer
collectives of a group than its peers, taken in the innermost group where one lags, as in outer ones others lag because of it.
"""
from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.engine.watch.heartbeat import Beat
from seatrial.launch import files
from seatrial.spec import Topology

GROUPS = ("tp", "dp", "pp", "world")
"""Innermost first: the order in which a hang spreads outwards."""
FLIGHT_ENTRIES = 3
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
_THREAD = re.compile(r"hread (?P<id>0x[0-9a-f]+)[^\n]*\(most recent call first\):\n(?P<frames>(?:  [^\n]*\n?)*)")
_LIBRARIES = ("/torch/", "/lib/python", "<frozen", "<string>")

Report = dict[str, Any]
"""What the watch of a rank wrote when it saw the stall."""


@dataclass(frozen=True, kw_only=True)
class Hang:
    rank: int
    message: str
    iteration: int | None = None
    phase: str = ""
    evidence: dict[str, object] = field(default_factory=dict)


def label(rank: int, t: Topology) -> str:
    """rank 1 (pp0 dp0 tp1)"""
    return f"rank {rank} (pp{rank // (t.tp * t.dp)} dp{rank // t.tp % t.dp} tp{rank % t.tp})"


def peers(group: str, rank: int, t: Topology) -> list[int]:
    """All ranks of one group, this one among them."""
    everyone = range(t.world)
    if group == "tp":
        return [r for r in everyone if r // t.tp == rank // t.tp]
    if group == "dp":
        return [r for r in everyone if (r // (t.tp * t.dp), r % t.tp) == (rank // (t.tp * t.dp), rank % t.tp)]
    if group == "pp":
        return [r for r in everyone if r % (t.tp * t.dp) == rank % (t.tp * t.dp)]
    return list(everyone)


def reports(run_dir: Path) -> dict[int, Report]:
    found = {}
    for path in (run_dir / files.WATCH).glob("rank*.stall.json"):
        try:
            report = json.loads(path.read_text())
            found[int(report["rank"])] = report
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half a file of a rank that was ended while it wrote
    return found


def find(run_dir: Path, t: Topology, *, beats: dict[int, Beat], frozen: tuple[int, ...] = ()) -> Hang:
    stalls = reports(run_dir)
    silent = [r for r in range(t.world) if r not in stalls]
    why = "was stopped (state T)" if frozen else "did not report" if silent else "lags its group"
    rank = frozen[0] if frozen else silent[0] if silent else _behind(stalls, t)
    beat = beats.get(rank)
    missed = _missed(rank, stalls, beats, t)
    where = standing_at(run_dir, rank)
    waiting = sorted(r for r in stalls if r != rank)
    words = [f"{label(rank, t)} " + (f"never entered {missed}" if missed else _since(beat))]
    if frozen:
        words.append("it was stopped by a signal")
    if where:
        words.append(f"it is in {where[0]}")
    if waiting:
        words.append("1 other waits" if len(waiting) == 1 else f"{len(waiting)} others wait")
    evidence: dict[str, object] = {"why": why, "waiting": waiting}
    if missed:
        evidence["missed"] = missed
    if where:
        evidence["stack"] = where
    if flight := last_collectives(run_dir, waiting[0] if waiting else rank):
        evidence["flight_recorder"] = flight
    return Hang(rank=rank, message="; ".join(words), iteration=beat.step if beat else None, phase=beat.phase if beat else "",
                evidence=evidence)


def _since(beat: Beat | None) -> str:
    return f"has not moved since step {beat.step} ({beat.phase})" if beat else "never came"


def _behind(stalls: dict[int, Report], t: Topology) -> int:
    for group in GROUPS:
        if group == "pp":
            continue  # stages take different numbers of messages
        entered = {r: int(stalls[r].get("groups", {}).get(group, 0)) for r in stalls}
        late = [r for r in stalls if entered[r] < max(entered[p] for p in peers(group, r, t) if p in stalls)]
        if late:
            return min(late, key=lambda r: entered[r])
    return min(stalls, key=lambda r: (stalls[r].get("step", 0), stalls[r].get("beats", 0)))


def _missed(rank: int, stalls: dict[int, Report], beats: dict[int, Beat], t: Topology) -> str:
    """The collective that a peer of this rank waits in and this rank has not entered; empty when none can be told."""
    mine: dict[str, int] = stalls[rank].get("groups", {}) if rank in stalls else {}
    if not mine and rank in beats and beats[rank].group:
        mine = {beats[rank].group: beats[rank].seq}
    for group in GROUPS:
        waits = [stalls[r] for r in peers(group, rank, t) if r != rank and r in stalls and stalls[r].get("group") == group]
        ahead = [w for w in waits if int(w.get("seq", 0)) > mine.get(group, 0) or group == "pp"]
        if ahead:
            first = min(ahead, key=lambda w: int(w["seq"]))
            number = mine.get(group, int(first["seq"]) - 1) + 1 if group != "pp" else int(first["seq"])
            return f"{first['collective']} {number} of its {group} group"
    return ""


def standing_at(run_dir: Path, rank: int, *, most: int = 6) -> list[str]:
    """Innermost lines of a rank's main thread, those of its own code first: `data.py:88 in batch`."""
    try:
        text = files.stacks(run_dir, rank).read_text(errors="replace")
    except OSError:
        return []
    threads = list(_THREAD.finditer(text))
    if not threads:
        return []
    # The main thread is the oldest, and the oldest is written last. Of several dumps the first counts: it was asked for.
    first = next(t for t in threads if t["id"] == threads[-1]["id"])
    frames = [(m["file"], f"{Path(m['file']).name}:{m['line']} in {m['function']}") for m in _FRAME.finditer(first["frames"])]
    own = [said for file, said in frames if not any(words in file for words in _LIBRARIES)]
    return (own or [said for _, said in frames])[:most]


def last_collectives(run_dir: Path, rank: int) -> list[dict[str, object]]:
    """The newest entries of torch's own flight recorder, where it kept any."""
    try:
        entries = json.loads(files.flight(run_dir, rank).read_text()).get("entries", [])
    except (OSError, ValueError, AttributeError):
        return []
    wanted = ("collective_seq_id", "profiling_name", "state", "input_sizes", "process_group")
    return [{k: e[k] for k in wanted if k in e} for e in entries[-FLIGHT_ENTRIES:] if isinstance(e, dict)]
