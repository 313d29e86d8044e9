"""What each pipeline rank does and in which order: GPipe, 1F1B, interleaved 1F1B and ZB-H1 as plain lists.

    python -m seatrial.schedule 1f1b 4 8        draws the lists with their times

A rank executes its list in order; an action starts when its rank is free and its input has arrived. A send is posted and
does not hold its rank up: with that, no list here can deadlock, and a test walks all of them. (With sends that wait for
their receiver 1F1B would: two neighbours send to each other at once.) `channels` gives the messages that follow from the
lists. Each channel, which is a pair of ranks and a direction (F or B), is read in the order in which it is fed, so first-in-
first-out delivery is enough; but the two directions are two channels, and with 2 ranks and virtual stages both run from rank
0 to rank 1: tag them, or use two groups.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from seatrial.errors import Infeasible

ScheduleKind = Literal["gpipe", "1f1b", "interleaved", "zb-h1"]
"""What a topology may name; KINDS below has the same names."""


class Kind(Enum):
    """The three things that a stage does with a micro-batch."""

    FORWARD = "F"
    BACKWARD = "B"
    """The whole backward pass, or its input-gradient part where the schedule splits it."""
    WEIGHT = "W"
    """The weight-gradient part, in schedules that split; nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Action:
    kind: Kind
    microbatch: int
    """0-based, in the order of the batch."""
    chunk: int = 0
    """Which of this rank's virtual stages, 0-based; always 0 unless interleaved."""

    def __str__(self) -> str:
        return f"{self.kind.value}{self.microbatch}" + (f".{self.chunk}" if self.chunk else "")


@dataclass(frozen=True, slots=True)
class PeakActivations:
    """What a rank holds at its fullest moment, counted in (micro-batch, chunk) pairs."""

    activations: int
    """Forward done, backward not: everything that the backward pass needs."""
    weight_inputs: int
    """Backward done, weight gradient not: inputs and output gradients of the linears alone. 0 unless the schedule splits."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One kind of schedule: the list of a rank, and which layouts it is for.

    The list of m micro-batches must be that of more of them with the others struck out: a rank meets its first ones in the
    same order however many follow. A test holds that for every kind; times and peaks in bulk (`vector.py`) rest on it.
    """

    actions: Callable[[int, int, int, int], list[Action]]
    """(pp, rank, microbatches, virtual) -> what the rank does, in order."""
    virtual: bool = False
    """Whether it takes 2 virtual stages or more, and so PP 2 or more; the others take 1."""
    grouped: bool = False
    """Whether micro-batches come in groups of PP."""
    splits_backward: bool = False
    """Whether B is the input gradient alone and W follows as an action of its own."""
    forwards_first: bool = False
    """Whether all forwards of a batch come before its first backward; the others repeat a block of actions."""
    fill: int = 2
    """With so many times PP micro-batches every rank fills up, repeats itself and drains; more where it runs further ahead."""

    def group(self, pp: int) -> int:
        """The number of micro-batches must be a multiple of this."""
        return pp if self.grouped else 1


def splits_backward(kind: str) -> bool:
    return KINDS[kind].splits_backward


def global_stage(pp: int, rank: int, chunk: int) -> int:
    """The stage of the whole model that is this rank's virtual stage `chunk`: stages are dealt round the ranks."""
    return chunk * pp + rank


def virtual_stages_wrong(kind: str, *, pp: int, virtual: int) -> str:
    """Why this kind cannot have so many virtual stages on so many ranks; empty where it can."""
    if KINDS[kind].virtual and (virtual < 2 or pp < 2):
        return (f"schedule {kind!r} needs vp >= 2 and pp >= 2, found vp {virtual}, pp {pp}; with one virtual stage, or one "
                "rank, it is '1f1b'")
    if not KINDS[kind].virtual and virtual != 1:
        able = " or ".join(repr(name) for name, one in KINDS.items() if one.virtual)
        return f"{virtual} virtual stages need schedule {able}, found {kind!r}"
    return ""


def check(kind: str, *, pp: int, microbatches: int, virtual: int = 1) -> None:
    """Raise `Infeasible`, with the numbers and the nearest that works, unless the schedule exists."""
    if kind not in KINDS:
        raise Infeasible(f"schedule {kind!r} is not known: use one of {', '.join(KINDS)}", code="schedule-kind")
    if pp < 1:
        raise Infeasible(f"PP {pp}: a pipeline has at least 1 stage", code="pp")
    if microbatches < 1:
        raise Infeasible(f"{microbatches} micro-batches: GBS must be at least DP x MBS", code="microbatches")
    if wrong := virtual_stages_wrong(kind, pp=pp, virtual=virtual):
        raise Infeasible(wrong, code="virtual-stages")
    group = KINDS[kind].group(pp)
    if microbatches % group:
        below = microbatches // group * group
        nearest = f"the nearest are {below} and {below + group}" if below else f"the nearest is {group}"
        raise Infeasible(
            f"{microbatches} micro-batches are not a multiple of PP {pp}, which schedule {kind} needs: {nearest}",
            code=GROUPED,
        )


GROUPED = "interleave-divisible"
"""The code of what breaks `Schedule.grouped`."""


def schedule(kind: str, *, pp: int, rank: int, microbatches: int, virtual: int = 1) -> list[Action]:
    """The list of `rank`. Raises `Infeasible` for what cannot run."""
    check(kind, pp=pp, microbatches=microbatches, virtual=virtual)
    if not 0 <= rank < pp:
        raise Infeasible(f"rank {rank} of PP {pp}: ranks count from 0 to {pp - 1}", code="pp")
    return KINDS[kind].actions(pp, rank, microbatches, virtual)


# The kinds


def _gpipe(pp: int, rank: int, microbatches: int, virtual: int) -> list[Action]:
    return _alternate(*_halves(microbatches), warmup=microbatches)


def _one_f_one_b(pp: int, rank: int, microbatches: int, virtual: int) -> list[Action]:
    return _alternate(*_halves(microbatches), warmup=pp - rank - 1)


def _zb_h1(pp: int, rank: int, microbatches: int, virtual: int) -> list[Action]:
    return _with_weights(_one_f_one_b(pp, rank, microbatches, virtual), delay=rank)


def _interleaved(pp: int, rank: int, microbatches: int, virtual: int) -> list[Action]:
    """Groups of `pp` micro-batches; a group goes through all chunks before the next begins, backwards from the last chunk."""
    forwards, backwards = [], []
    for first in range(0, microbatches, pp):
        for chunk in range(virtual):
            forwards += [Action(Kind.FORWARD, m, chunk) for m in range(first, first + pp)]
            backwards += [Action(Kind.BACKWARD, m, virtual - 1 - chunk) for m in range(first, first + pp)]
    return _alternate(forwards, backwards, warmup=2 * (pp - rank - 1) + (virtual - 1) * pp)


KINDS: dict[str, Schedule] = {
    "gpipe": Schedule(actions=_gpipe, forwards_first=True),
    "1f1b": Schedule(actions=_one_f_one_b),
    "interleaved": Schedule(actions=_interleaved, virtual=True, grouped=True),
    "zb-h1": Schedule(actions=_zb_h1, splits_backward=True),
}
"""Every schedule there is: a further one is its function, its row here, its name above, and a row in the tests' table."""


def _halves(microbatches: int) -> tuple[list[Action], list[Action]]:
    return [Action(Kind.FORWARD, m) for m in range(microbatches)], [Action(Kind.BACKWARD, m) for m in range(microbatches)]


def _alternate(forwards: list[Action], backwards: list[Action], warmup: int) -> list[Action]:
    """Forwards to warm up, then pairs of one forward and one backward, then the backwards that are left."""
    warmup = min(warmup, len(forwards))
    pairs = [action for pair in zip(forwards[warmup:], backwards) for action in pair]
    return forwards[:warmup] + pairs + backwards[len(forwards) - warmup :]


def _with_weights(ordered: list[Action], *, delay: int) -> list[Action]:
    """Put W of micro-batch m right after B of m + `delay`, and the rest at the end.

    Later ranks have fewer activations to hold, so each may put off as many weight gradients as there are ranks before it,
    and all hold the same; their first backwards then follow each other faster, which is what shortens the wait of the first
    rank.
    """
    actions = []
    for action in ordered:
        actions.append(action)
        if action.kind is Kind.BACKWARD and action.microbatch >= delay:
            actions.append(Action(Kind.WEIGHT, action.microbatch - delay))
    microbatches = sum(action.kind is Kind.BACKWARD for action in ordered)
    return actions + [Action(Kind.WEIGHT, m) for m in range(max(0, microbatches - delay), microbatches)]


# What a rank holds


def peak_activations(actions: Iterable[Action]) -> PeakActivations:
    """What is held at the fullest moment: most in all, and of such moments the one with most activations (the heavier kind)."""
    actions = list(actions)
    split = any(action.kind is Kind.WEIGHT for action in actions)
    activations = weight_inputs = 0
    fullest = (0, 0)
    for action in actions:
        if action.kind is Kind.FORWARD:
            activations += 1
        elif action.kind is Kind.BACKWARD:
            activations -= 1
            weight_inputs += split
        else:
            weight_inputs -= 1
        fullest = max(fullest, (activations + weight_inputs, activations))
    return PeakActivations(fullest[1], fullest[0] - fullest[1])


# Who sends what to whom


def comes_from(action: Action, *, pp: int, rank: int, virtual: int = 1) -> tuple[int, Action] | None:
    """The rank and the action whose output this action waits for; None where it needs no message (ends of the model, W)."""
    if action.kind is Kind.WEIGHT:
        return None
    stage = global_stage(pp, rank, action.chunk) + (-1 if action.kind is Kind.FORWARD else 1)
    if not 0 <= stage < pp * virtual:
        return None
    return stage % pp, Action(action.kind, action.microbatch, stage // pp)


def goes_to(action: Action, *, pp: int, rank: int, virtual: int = 1) -> tuple[int, Action] | None:
    """The rank and the action that wait for this action's output; None where nobody does."""
    if action.kind is Kind.WEIGHT:
        return None
    stage = global_stage(pp, rank, action.chunk) + (1 if action.kind is Kind.FORWARD else -1)
    if not 0 <= stage < pp * virtual:
        return None
    return stage % pp, Action(action.kind, action.microbatch, stage // pp)


Channel = tuple[int, int, Kind]
"""From rank, to rank, and whether activations (F) or gradients (B) travel."""


def channels(plan: Sequence[Sequence[Action]], *, virtual: int = 1) -> dict[Channel, tuple[list[Action], list[Action]]]:
    """For each channel the messages as they are sent and as they are received, both named by the receiving action."""
    pp = len(plan)
    found: dict[Channel, tuple[list[Action], list[Action]]] = {}
    for rank, actions in enumerate(plan):
        for action in actions:
            if target := goes_to(action, pp=pp, rank=rank, virtual=virtual):
                found.setdefault((rank, target[0], action.kind), ([], []))[0].append(target[1])
            if source := comes_from(action, pp=pp, rank=rank, virtual=virtual):
                found.setdefault((source[0], rank, action.kind), ([], []))[1].append(action)
    return found


def arrivals_in_order(kind: str, *, pp: int, microbatches: int, virtual: int = 1) -> bool:
    """Whether every channel is read in the order in which it is fed, so that first-in-first-out delivery is enough."""
    plan = [schedule(kind, pp=pp, rank=rank, microbatches=microbatches, virtual=virtual) for rank in range(pp)]
    return all(sent == received for sent, received in channels(plan, virtual=virtual).values())
