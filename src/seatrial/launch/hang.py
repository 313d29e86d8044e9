"""Who is behind a hang: of all ranks that stand still, the one that waits for nobody.

    find_hang(run_dir, topology, beats=…)       Hang(rank=5, message="rank 5 (pp2 …) owes rank 7 …; it is in data.py:88 in …")
    culprit(standings, topology)                its rank from what the ranks' watches saw, without a file

Each rank's stack says what it waits in, its counters and its phase for whom: a collective for the peers that have not entered
it, a message for the stage that makes it. A rank in code of its own waits for nobody. So does one that cannot even say where it
stands. Following who waits for whom ends at the cause, however long the pipeline between is. An edge too many does no harm, as
every rank that waits has one of its own to go on by; where the chain closes to a ring, the rank furthest behind is taken.
"""
from __future__ import annotations

import json
import linecache
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from seatrial.engine.watch.heartbeat import Beat
from seatrial.launch import files
from seatrial.spec import Topology

GROUPS = ("tp", "heads", "ring", "cp", "dp", "pp", "world")
"""Innermost first: the order in which a hang spreads outwards."""
FLIGHT_ENTRIES = 3
PHASES = {"start": 0, "join": 1, "build": 2, "load": 2, "meet": 3,
          "forward": 1, "backward": 1, "weight": 1, "reduce": 4, "optimizer": 5,
          "checkpoint": 6, "report": 7, "evaluation": 8, "finish": 9, "end": 10}  # fmt: skip
"""How far in its step a rank is; before the first step, how far in its start."""
ALONE = ("start", "forward", "backward", "weight", "reduce", "optimizer")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
_THREAD = re.compile(r"hread (?P<id>0x[0-9a-f]+)[^\n]*\(most recent call first\):\n(?P<frames>(?:  [^\n]*\n?)*)")
_LIBRARIES = ("/torch/", "/lib/python", "<frozen", "<string>")
_WAITS = re.compile(r"\.(?:wait|item|tolist|cpu|synchronize)\(")
"""What a line of somebody's own calls that leaves no frame of torch's: it waits for another rank, or for a device that does."""

Wait = Literal["", "collective", "message", "sent", "tied", "world", "save", "device"]
"""What a rank stands in: code of its own, a counted collective, a message of the stage before, one that nobody takes, the tied
embedding's, something that all ranks enter, the others' parts of a checkpoint, or the device, which waits for any of these."""
WAITS: dict[tuple[str, str], Wait] = {
    ("comm.py", "wait"): "collective", ("comm.py", "_compare"): "collective",
    ("pipeline.py", "receive"): "message", ("pipeline.py", "_let_go"): "message",
    ("pipeline.py", "send"): "sent", ("pipeline.py", "finish"): "sent", ("pipeline.py", "exchange_tied"): "tied",
    ("checkpoint.py", "wait"): "save", ("rendezvous.py", "join"): "world",
}  # fmt: skip
"""By the innermost line of the engine's own, where it stands in a wait of torch's."""
Report = dict[str, Any]
"""What the watch of a rank wrote when it saw the stall."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} in {self.function}"

    @property
    def own(self) -> bool:
        return not any(words in self.file for words in _LIBRARIES)

    @property
    def waits(self) -> bool:
        return "/torch/" in self.file or _WAITS.search(linecache.getline(self.file, self.line)) is not None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where one rank stands."""

    rank: int
    wait: Wait = ""
    phase: str = ""
    step: int = 0
    microbatch: int = 0
    groups: Mapping[str, int] = field(default_factory=dict)
    """How many collectives it has entered, by the kind of group."""
    works: str = ""
    """`save` or `load`: what of its own is under way besides."""
    told: bool = True
    """Whether it could say so itself; of one that could not, the counters are not all known."""
    beats: int = 0

    @property
    def progress(self) -> tuple[int, int]:
        return self.step, PHASES.get(self.phase, PHASES["checkpoint"])


@dataclass(frozen=True, kw_only=True)
class Hang:
    rank: int | None
    message: str
    iteration: int | None = None
    phase: str = ""
    evidence: dict[str, object] = field(default_factory=dict)


def rank_label(rank: int, t: Topology) -> str:
    """rank 1 (pp0 dp0 tp1)"""
    return f"rank {rank} ({t.label(rank)})"


_INSIDE = {"tp": ("tp",), "kv": ("tp",), "cp": ("cp",), "heads": ("cp",), "ring": ("cp",), "dp": ("dp", "cp"), "pp": ("pp",),
           **dict.fromkeys(("shard", "gradients", "state", "replicas"), ("dp", "cp"))}  # fmt: skip
"""In which of the degrees the ranks of a group may differ; of groups inside another the whole of that one."""


def peers(group: str, rank: int, t: Topology) -> list[int]:
    """All ranks of one group, this one among them."""
    inside = _INSIDE.get(group)
    if inside is None:
        return list(range(t.world))
    at = t.place(rank)
    return [r for r in range(t.world) if all(one == other for name, one, other in zip(at._fields, at, t.place(r))
                                             if name not in inside)]


# ---- who waits for whom


def waits_for(rank: int, every: Mapping[int, Standing], t: Topology) -> set[int]:
    """The ranks that this one may be waiting for."""
    me = every[rank]
    found: set[int] = set()
    if me.wait in ("message", "sent", "tied"):
        line = peers("pp", rank, t)
        at = line.index(rank)
        # Virtual stages lie round the ranks: what comes forward is always the rank's before, the first one's the last one's.
        forward = -1 if me.phase != "backward" else 1
        found = {"message": {line[(at + forward) % t.pp]}, "tied": {line[0], line[-1]},
                 "sent": {line[(at - 1) % t.pp], line[(at + 1) % t.pp]}}[me.wait]
    if me.wait in ("collective", "device"):
        for group, entered in me.groups.items():
            if group != "pp":  # stages take different numbers of messages
                found |= {r for r in peers(group, rank, t) if r in every and _entered(every[r], group) < entered}
    if me.wait == "save":
        found |= {r for r, other in every.items() if other.works or not other.wait}
    if me.wait in ("world", "device"):
        found |= {r for r, other in every.items() if not other.wait or other.progress < me.progress}
    return (found & every.keys()) - {rank}


def _entered(of: Standing, group: str) -> int:
    return of.groups.get(group, 0 if of.told else -1)


def culprit(every: Mapping[int, Standing], t: Topology) -> int | None:
    """The end of the chain that most are in, the one furthest behind of several; None where all wait and none is missing."""
    after = {rank: waits_for(rank, every, t) for rank in every}
    ends = [rank for rank in every if not after[rank]]
    alone = [rank for rank in ends if not every[rank].wait]
    waiting = dict.fromkeys(every, 0)
    for rank in every:
        for reached in reachable(rank, after):
            waiting[reached] += 1
    if candidates := [rank for rank in alone or ends if waiting[rank] or alone]:
        return min(candidates, key=lambda r: (-waiting[r], every[r].told, every[r].progress, every[r].beats, r))
    return _behind(every, t)


def reachable(rank: int, after: Mapping[int, set[int]]) -> set[int]:
    seen: set[int] = set()
    ahead = [rank]
    while ahead:
        new = after[ahead.pop()] - seen
        seen |= new
        ahead += new
    return seen - {rank}


def _behind(every: Mapping[int, Standing], t: Topology) -> int | None:
    """Of ranks that all wait for each other: one that its group is ahead of, the innermost group first."""
    for group in GROUPS:
        if group == "pp":
            continue  # stages take different numbers of messages
        entered = {r: _entered(of, group) for r, of in every.items()}
        if late := [r for r in every if entered[r] < max(entered[p] for p in peers(group, r, t) if p in every)]:
            return min(late, key=lambda r: entered[r])
    return None


# ---- from the files that the watch left


def reports(run_dir: Path) -> dict[int, Report]:
    found = {}
    for path in (run_dir / files.WATCH).glob("rank*.stall.json"):
        try:
            report = json.loads(path.read_text())
            found[int(report["rank"])] = report
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half a file of a rank that was ended while it wrote
    return found


def standings(run_dir: Path, stalls: Mapping[int, Report], beats: Mapping[int, Beat], *, world: int,
              lost: frozenset[int] = frozenset(), run_ahead: bool = False) -> dict[int, Standing]:
    """Without the `lost`: ranks that only say that another is gone. `run_ahead`: whether processes enqueue what a device does,
    so that their stacks do not tell what they wait for."""
    found = {}
    for rank in range(world):
        if (stall := stalls.get(rank)) is not None:
            found[rank] = Standing(rank=rank, wait=waits_in(frames(run_dir, rank), stall, run_ahead=run_ahead),
                                   phase=str(stall.get("phase", "")), step=int(stall.get("step", 0)),
                                   microbatch=int(stall.get("microbatch", 0)), groups=stall.get("groups", {}),
                                   works=str(stall.get("work", "")),
                                   beats=int(stall.get("beats", 0)))
        elif rank not in lost:
            beat, stack = beats.get(rank), frames(run_dir, rank)
            found[rank] = Standing(rank=rank, told=False) if beat is None else Standing(
                rank=rank, phase=beat.phase, step=beat.step, microbatch=beat.microbatch, beats=beat.beats, told=False,
                groups={beat.group: beat.seq} if beat.group else {},
                # Asked for its stack from outside, it may be one that only came late.
                wait=waits_in(stack, asdict(beat), run_ahead=run_ahead) if stack else "")
    return found


def waits_in(stack: list[Frame], stall: Report, *, run_ahead: bool = False) -> Wait:
    while stack and stack[0].file.endswith("/threading.py"):
        stack = stack[1:]
    if not stack or run_ahead and ("/torch/" in stack[0].file or "/engine/core/" in stack[0].file
                                   or "/engine/fast/" in stack[0].file):
        return "device" if stall.get("group") or stall.get("phase") else ""
    for frame in stack[:1] if "/torch/distributed/" not in stack[0].file else stack:
        if wait := WAITS.get((Path(frame.file).name, frame.function)):
            return "" if wait == "save" and stall.get("work") else wait
    # In the middle of a step there is nothing that all ranks enter but what is counted: that one is there alone.
    strayed = int(stall.get("step", 0)) > 0 and stall.get("phase") in ALONE
    return "world" if "/torch/distributed/" in stack[0].file and not strayed else ""


def find_hang(run_dir: Path, t: Topology, *, beats: Mapping[int, Beat], frozen: tuple[int, ...] = (),
              lost: frozenset[int] = frozenset(), run_ahead: bool = False) -> Hang:
    stalls = reports(run_dir)
    every = standings(run_dir, stalls, beats, world=t.world, lost=lost, run_ahead=run_ahead)
    rank = frozen[0] if frozen else culprit(every, t)
    if rank is None:
        return _nobody(run_dir, stalls, every, t)
    me, beat, where = every[rank], beats.get(rank), standing_at(run_dir, rank)
    why = ("was stopped (state T)" if frozen else "did not report" if not me.told else "waits for nobody" if not me.wait
           else "lags its group")
    waiting = sorted(r for r in stalls if r != rank)
    words = [f"{rank_label(rank, t)} {_owed(rank, every, stalls, t) or _since(beat)}"]
    if frozen:
        words.append("it was stopped by a signal")
    if where:
        words.append(f"it is in {where[0]}")
    if waiting:
        words.append("1 other waits" if len(waiting) == 1 else f"{len(waiting)} others wait")
    evidence: dict[str, object] = {"why": why, "waiting": waiting,
                                   "waits_for": {str(r): sorted(waits_for(r, every, t)) for r in waiting}}
    if missed := _missed(rank, every, stalls, t):
        evidence["missed"] = missed
    if where:
        evidence["stack"] = where
    if flight := last_collectives(run_dir, waiting[0] if waiting else rank):
        evidence["flight_recorder"] = flight
    return Hang(rank=rank, message="; ".join(words), iteration=beat.step if beat else None, phase=beat.phase if beat else "",
                evidence=evidence)


def silent(run_dir: Path, t: Topology, *, frozen: tuple[int, ...] = ()) -> Hang:
    """Of a program that is not ours, and so has no watch: a rank that was stopped, or the one whose main thread is in code of
    its own while others are inside torch, where they wait for each other, or wait for what torch does (`request.wait()`)."""
    stacks = {rank: found for rank in range(t.world) if (found := frames(run_dir, rank))}
    alone = [rank for rank, found in stacks.items() if not found[0].waits]
    rank = frozen[0] if frozen else alone[0] if alone and (len(alone) < len(stacks) or t.world == 1) else None
    where = [] if rank is None else standing_at(run_dir, rank)
    if rank is None:
        words = "all that could be asked wait inside torch" if stacks else "no rank could be asked where it stands"
    else:
        how = "was stopped by a signal" if frozen else f"is in {where[0]}, the others inside torch"
        words = f"{rank_label(rank, t)} {how}"
    why = "was stopped (state T)" if frozen else "waits for nobody" if rank is not None else "unknown"
    evidence: dict[str, object] = {"why": why, "stacks": {str(r): [str(f) for f in found[:3]] for r, found in stacks.items()}}
    if where:
        evidence["stack"] = where
    return Hang(rank=rank, message=words, iteration=None, phase="", evidence=evidence)


def _nobody(run_dir: Path, stalls: Mapping[int, Report], every: Mapping[int, Standing], t: Topology) -> Hang:
    """All wait for each other, and each has done what it is waited for: what is between them does not carry it."""
    first = min(every.values(), key=lambda one: (one.progress, one.beats), default=Standing(rank=0))
    words = f"all {len(every)} ranks wait for each other and none is missing: a connection between them is cut or stands still"
    entered = {(s["collective"], s["group"], s["seq"]) for s in stalls.values() if s.get("group")}
    if len(entered) == 1:
        words += "; all are in {0} {2} of their {1} group".format(*next(iter(entered)))
    evidence: dict[str, object] = {"why": "nobody is missing", "waiting": sorted(stalls),
                                   "waits_for": {str(r): sorted(waits_for(r, every, t)) for r in every}}
    if flight := last_collectives(run_dir, first.rank):
        evidence["flight_recorder"] = flight
    return Hang(rank=None, message=words, iteration=first.step, phase=first.phase, evidence=evidence)


def _since(beat: Beat | None) -> str:
    return f"has not moved since step {beat.step} ({beat.phase})" if beat else "never came"


def _owed(rank: int, every: Mapping[int, Standing], stalls: Mapping[int, Report], t: Topology) -> str:
    """What the others wait for of this rank; empty when that cannot be told."""
    if missed := _missed(rank, every, stalls, t):
        return f"never entered {missed}"
    for other in every.values():
        if other.wait == "message" and rank in waits_for(other.rank, every, t):
            return f"owes rank {other.rank} the message for {other.phase} of micro-batch {other.microbatch}"
    return ""


def _missed(rank: int, every: Mapping[int, Standing], stalls: Mapping[int, Report], t: Topology) -> str:
    """The collective that a peer of this rank waits in and this rank has not entered; empty when none can be told."""
    mine = every[rank].groups
    for group in GROUPS:
        waits = [stalls[r] for r in peers(group, rank, t) if r != rank and r in stalls and stalls[r].get("group") == group]
        if ahead := [w for w in waits if int(w.get("seq", 0)) > mine.get(group, 0) and group != "pp"]:
            first = min(ahead, key=lambda w: int(w["seq"]))
            return f"{first['collective']} {mine.get(group, int(first['seq']) - 1) + 1} of its {group} group"
    return ""


def frames(run_dir: Path, rank: int) -> list[Frame]:
    """Of a rank's main thread, the innermost first."""
    try:
        text = files.stacks(run_dir, rank).read_text(errors="replace")
    except OSError:
        return []
    threads = list(_THREAD.finditer(text))
    if not threads:
        return []
    # The main thread is the oldest, and the oldest is written last. Of several dumps the first counts: it was asked for.
    first = next(t for t in threads if t["id"] == threads[-1]["id"])
    return [Frame(file=m["file"], line=int(m["line"]), function=m["function"]) for m in _FRAME.finditer(first["frames"])]


def standing_at(run_dir: Path, rank: int, *, most: int = 6) -> list[str]:
    """Innermost lines of a rank's main thread, those of its own code first: `data.py:88 in batch`."""
    found = frames(run_dir, rank)
    return [str(frame) for frame in [f for f in found if f.own] or found][:most]


def last_collectives(run_dir: Path, rank: int) -> list[dict[str, object]]:
    """The newest entries of torch's own flight recorder, where it kept any."""
    try:
        entries = json.loads(files.flight(run_dir, rank).read_text()).get("entries", [])
    except (OSError, ValueError, AttributeError):
        return []
    wanted = ("collective_seq_id", "profiling_name", "state", "input_sizes", "process_group")
    return [{k: e[k] for k in wanted if k in e} for e in entries[-FLIGHT_ENTRIES:] if isinstance(e, dict)]
