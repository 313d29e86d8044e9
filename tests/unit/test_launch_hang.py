"""Whoever stands still of up to eight ranks is found by what the others wait for: layouts and schedules, without a process."""
from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from seatrial.launch import files
from seatrial.launch.hang import Frame, Standing, Wait, culprit, find_hang, peers, reachable, waits_for, waits_in
from seatrial.schedule import KINDS, Kind, comes_from, goes_to, schedule
from seatrial.spec import Topology

Op = tuple[str, object]


def program(rank: int, t: Topology, *, microbatches: int, steps: int, overlap: bool) -> Iterator[Op]:
    """What the engine does, as far as ranks wait for each other in it."""
    at = peers("pp", rank, t).index(rank)
    for step in range(1, steps + 1):
        yield "step", step
        yield "phase", ("start", 0)
        for action in schedule(t.schedule, pp=t.pp, rank=at, microbatches=microbatches, virtual=t.vp):
            yield "phase", (action.kind.name.lower(), action.microbatch)
            if source := comes_from(action, pp=t.pp, rank=at, virtual=t.vp):
                yield "receive", (step, source, (at, action))
            if action.kind is not Kind.WEIGHT:
                yield "enter and wait", "tp"
                yield "shift", "cp"
                yield "shift", "cp"
                if overlap and action.kind is Kind.BACKWARD:
                    yield "enter", "dp"
                yield "enter and wait", "tp"
            if target := goes_to(action, pp=t.pp, rank=at, virtual=t.vp):
                yield "send", (step, (at, action), target)
        yield "sent", None
        yield "phase", ("reduce", 0)
        if not overlap:
            yield "enter", "dp"
        yield "wait", "dp"
        if t.pp > 1 and at in (0, t.pp - 1):
            yield "tied", step
        yield "phase", ("optimizer", 0)
        yield "enter and wait", "world"
        yield "phase", ("report", 0)
        yield "gather", step


@dataclass
class Rank:
    ops: list[Op]
    at: int = 0
    step: int = 0
    phase: tuple[str, int] = ("start", 0)
    groups: dict[str, int] = field(default_factory=dict)
    last: str = ""
    wait: Wait = ""
    sent: list[object] = field(default_factory=list)
    entered: bool = False


class World:
    def __init__(self, t: Topology, seed: random.Random, *, microbatches: int, overlap: bool):
        self.t, self.random = t, seed
        self.ranks = [Rank(list(program(r, t, microbatches=microbatches, steps=3, overlap=overlap))) for r in range(t.world)]
        self.messages: set[object] = set()
        self.taken: set[object] = set()
        self.here: dict[object, set[int]] = {}

    def stop(self, culprit: int, at: int) -> dict[int, Standing]:
        """All go on until nothing moves; the culprit never starts its operation number `at`."""
        moved = True
        while moved:
            moved = False
            for r in self.random.sample(range(self.t.world), self.t.world):
                me = self.ranks[r]
                while me.at < len(me.ops) and not (r == culprit and me.at == at) and self._done(r, *me.ops[me.at]):
                    me.at, me.wait, me.entered, moved = me.at + 1, "", False, True
        return {r: Standing(rank=r, wait="" if r == culprit else me.wait, phase=me.phase[0], microbatch=me.phase[1],
                            step=me.step, groups=me.groups, beats=me.at) for r, me in enumerate(self.ranks)}

    def _done(self, r: int, what: str, about: object) -> bool:
        me = self.ranks[r]
        if what == "step":
            me.step = about  # type: ignore[assignment]
        elif what == "phase":
            me.phase = about  # type: ignore[assignment]
        elif what in ("enter", "enter and wait", "wait", "shift"):
            group = str(about)
            members = peers(group, r, self.t)
            if len(members) == 1:
                return True
            if what != "wait" and not me.entered:
                me.entered, me.last = True, group
                me.groups[group] = me.groups.get(group, 0) + 1
            me.wait = "collective"
            if what == "shift":  # of a ring only the one before is waited for
                members = [members[members.index(r) - 1]]
            return what == "enter" or all(self.ranks[p].groups.get(group, 0) >= me.groups[group] for p in members)
        elif what in ("send", "receive"):
            step, source, target = about  # type: ignore[misc]
            key = (r % (self.t.tp * self.t.data_ranks), step, source, target)
            if what == "send":
                self.messages.add(key)
                me.sent.append(key)
            else:
                me.wait = "message"
                if key not in self.messages:
                    return False
                self.taken.add(key)
                me.groups["pp"] = me.groups.get("pp", 0) + 1
        elif what == "sent":
            me.wait = "sent"
            return self.taken.issuperset(me.sent)
        else:
            me.wait = "tied" if what == "tied" else "world"
            line = peers("pp", r, self.t)
            wanted = {line[0], line[-1]} if what == "tied" else set(range(self.t.world))
            there = self.here.setdefault((what, about, min(wanted), max(wanted)), set())
            there.add(r)
            return there == wanted
        return True


def drawn(seed: random.Random) -> tuple[Topology, int]:
    while True:
        dp, tp, pp = (seed.choice((1, 2, 3, 4, 8)) for _ in range(3))
        cp = seed.choice((1, 1, 2, 4))
        kind = seed.choice(list(KINDS))
        vp = seed.choice((2, 3)) if KINDS[kind].virtual else 1
        if 2 <= dp * tp * pp * cp <= 8 and (pp > 1 or vp == 1):
            layout = Topology(dp=dp, tp=tp, pp=pp, cp=cp, schedule=kind, vp=vp)  # type: ignore[arg-type]
            return layout, pp * seed.choice((1, 2, 3))


@pytest.mark.parametrize("told", [True, False], ids=["in code of its own", "without a word"])
def test_the_rank_that_stands_still_is_found_in_every_layout_and_schedule(told: bool) -> None:
    seed, longest = random.Random(7), 0
    for _ in range(400):
        t, microbatches = drawn(seed)
        world = World(t, seed, microbatches=microbatches, overlap=seed.random() < 0.5)
        wanted = seed.randrange(t.world)
        every = world.stop(wanted, seed.randrange(len(world.ranks[wanted].ops)))
        if not told:
            last = world.ranks[wanted].last
            groups = {last: every[wanted].groups[last]} if last else {}
            every[wanted] = replace(every[wanted], told=False, groups=groups)
        found = culprit(every, t)
        edges = {r: waits_for(r, every, t) for r in every}
        assert found == wanted, f"{t} {microbatches} micro-batches: {every} {edges}"
        # Each one's own chain leads there: none was found for standing in code of its own alone.
        assert all(wanted in reachable(r, edges) for r in every if r != wanted), f"{t} {microbatches}: {every} {edges}"
        longest = max(longest, t.pp)
    assert longest == 8


@pytest.mark.parametrize(("lines", "wait"), [
    ((("/x/engine/core/comm.py", "wait"), ("/x/engine/core/zero.py", "_drain")), "collective"),
    ((("/x/engine/core/pipeline.py", "receive"), ("/x/engine/core/pipeline.py", "run")), "message"),
    ((("/v/torch/distributed/distributed_c10d.py", "barrier"), ("/x/engine/loop.py", "train")), "world"),
    ((("/v/torch/distributed/distributed_c10d.py", "all_gather_into_tensor"), ("/x/engine/core/comm.py", "_compare")),
     "collective"),
    ((("/x/engine/rendezvous.py", "join"), ("/x/engine/loop.py", "main")), "world"),
    ((("/x/engine/core/comm.py", "_enter"), ("/x/engine/core/comm.py", "all_reduce")), ""),
    ((("/home/me/data.py", "batch"), ("/x/engine/core/pipeline.py", "receive")), ""),
    ((("/v/torch/nn/functional.py", "linear"), ("/x/engine/core/layers.py", "forward")), ""),
])  # fmt: skip
def test_what_a_rank_stands_in_is_its_innermost_line(lines: tuple[tuple[str, str], ...], wait: str) -> None:
    stack = [Frame(file=file, line=1, function=function) for file, function in lines]
    assert waits_in(stack, {"group": "tp"}) == wait


def test_what_all_ranks_enter_is_entered_between_steps_and_one_that_is_there_in_a_step_has_strayed() -> None:
    barrier = [Frame(file="/v/torch/distributed/distributed_c10d.py", line=1, function="barrier")]
    assert waits_in(barrier, {"phase": "start", "step": 0}) == waits_in(barrier, {"phase": "report", "step": 3}) == "world"
    assert waits_in(barrier, {"phase": "forward", "step": 3}) == ""


def test_where_processes_run_ahead_of_their_device_a_line_of_the_engine_is_no_proof() -> None:
    computing = [Frame(file="/x/engine/core/step.py", line=1, function="_update")]
    assert waits_in(computing, {"group": "world", "phase": "optimizer"}, run_ahead=True) == "device"
    assert waits_in([Frame(file="/home/me/data.py", line=1, function="batch")], {"group": "world"}, run_ahead=True) == ""
    t = Topology(dp=4)
    every = {r: Standing(rank=r, wait="device", phase="optimizer", step=3, groups={"dp": 8, "world": 3}) for r in range(4)}
    every[2] = Standing(rank=2, wait="device", phase="forward", step=3, groups={"dp": 7, "world": 2})
    assert culprit(every, t) == 2


def test_a_ring_of_waits_ends_at_the_rank_that_its_group_is_ahead_of() -> None:
    """Rank 1 left one of its tp group's out and went on to the next of the world's, where it now waits."""
    t = Topology(tp=2)
    every = {0: Standing(rank=0, wait="collective", groups={"tp": 5, "world": 1}),
             1: Standing(rank=1, wait="collective", groups={"tp": 4, "world": 2})}
    assert waits_for(0, every, t) == {1} and waits_for(1, every, t) == {0}
    assert culprit(every, t) == 1


@pytest.mark.parametrize(("t", "waits"), [
    (Topology(dp=2), [("collective", "reduce"), ("collective", "reduce")]),
    (Topology(pp=2), [("message", "backward"), ("message", "forward")]),
    (Topology(pp=4), [("message", "backward"), ("message", "backward"), ("message", "forward"), ("message", "forward")]),
])  # fmt: skip
def test_where_all_wait_and_none_is_missing_no_rank_is_blamed_but_what_is_between_them(tmp_path: Path, t: Topology, waits):
    (tmp_path / files.WATCH).mkdir()
    for rank, (wait, phase) in enumerate(waits):
        groups = {"dp": 4} if t.dp > 1 else {"pp": 7 + rank}
        report = {"rank": rank, "step": 3, "phase": phase, "collective": "all_reduce", "group": "dp" if t.dp > 1 else "",
                  "seq": 4, "groups": groups}  # fmt: skip
        files.stall(tmp_path, rank).write_text(json.dumps(report))
        where = {"collective": '"/x/comm.py", line 1 in wait', "message": '"/x/pipeline.py", line 1 in receive'}[wait]
        files.stacks(tmp_path, rank).write_text(f"Current thread 0x1 (most recent call first):\n  File {where}\n")
    found = find_hang(tmp_path, t, beats={})
    assert found.rank is None and "none is missing: a connection between them is cut" in found.message
    assert ("all are in all_reduce 4 of their dp group" in found.message) == (t.dp > 1)


def test_who_waits_for_a_checkpoint_waits_for_the_rank_whose_part_does_not_come() -> None:
    join = Frame(file="/usr/lib/python3.12/threading.py", line=1, function="join")
    save = Frame(file="/x/engine/io/checkpoint.py", line=1, function="wait")
    assert waits_in([join, save], {"phase": "checkpoint", "step": 4, "work": ""}) == "save"
    assert waits_in([join, save], {"phase": "checkpoint", "step": 4, "work": "save"}) == ""
    t = Topology(pp=3)
    every = {0: Standing(rank=0, wait="save", step=4), 1: Standing(rank=1, wait="", works="save", step=4),
             2: Standing(rank=2, wait="world", phase="report", step=4)}
    assert waits_for(0, every, t) == waits_for(2, every, t) - {0} == {1} and culprit(every, t) == 1


def test_before_the_first_step_the_rank_that_has_not_come_is_waited_for() -> None:
    t = Topology(dp=3)
    every = {0: Standing(rank=0, wait="world", phase="join"), 1: Standing(rank=1, told=False),
             2: Standing(rank=2, wait="world", phase="join")}
    assert culprit(every, t) == 1 and waits_for(0, every, t) == {1}


def test_the_engine_has_every_wait_by_the_name_that_the_stacks_give_it() -> None:
    """A line that was renamed would make every rank that waits there look busy."""
    from seatrial.engine import rendezvous
    from seatrial.engine.core import comm, pipeline
    from seatrial.engine.io import checkpoint
    from seatrial.launch.hang import WAITS

    paths = [Path(module.__file__ or "") for module in (comm, pipeline, checkpoint, rendezvous)]
    sources = {path.name: path.read_text() for path in paths}
    assert all(f"def {function}(" in sources[file] for file, function in WAITS)
