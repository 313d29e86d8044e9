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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from seatrial.errors import Infeasible

KINDS = ("gpipe", "1f1b", "interleaved", "zb-h1")


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
class Held:
    """What a rank holds at its fullest moment, counted in (micro-batch, chunk) pairs."""

    activations: int
    """Forward done, backward not: everything that the backward pass needs."""
    weight_inputs: int
    """Backward done, weight gradient not: inputs and output gradients of the linears alone. 0 unless the schedule splits."""


def splits_backward(kind: str) -> bool:
    """Whether B is the input gradient alone and W follows as an action of its own."""
    return kind == "zb-h1"


def global_stage(pp: int, rank: int, chunk: int) -> int:
    """The stage of the whole model that is this rank's virtual stage `chunk`: stages are dealt round the ranks."""
    return chunk * pp + rank


def check(kind: str, *, pp: int, microbatches: int, virtual: int = 1) -> None:
    """Raise `Infeasible`, with the numbers and the nearest that works, unless the schedule exists."""
    if kind not in KINDS:
        raise Infeasible(f"schedule {kind!r} is not known: use one of {', '.join(KINDS)}", code="schedule-kind")
    if pp < 1:
        raise Infeasible(f"PP {pp}: a pipeline has at least 1 stage", code="pp")
    if microbatches < 1:
        raise Infeasible(f"{microbatches} micro-batches: GBS must be at least DP x MBS", code="microbatches")
    if kind != "interleaved":
        if virtual != 1:
            raise Infeasible(
                f"{virtual} virtual stages with schedule {kind}: it takes 1; virtual stages need schedule interleaved",
                code="virtual-stages",
            )
        return
    if pp < 2:
        raise Infeasible(f"schedule interleaved with PP {pp}: it needs PP 2 or more; with PP 1 use 1f1b", code="virtual-stages")
    if virtual < 2:
        raise Infeasible(
            f"schedule interleaved with {virtual} virtual stage(s): it needs 2 or more; with 1 use 1f1b", code="virtual-stages"
        )
    if microbatches % pp:
        below = microbatches // pp * pp
        nearest = f"the nearest are {below} and {below + pp}" if below else f"the nearest is {pp}"
        raise Infeasible(
            f"{microbatches} micro-batches are not a multiple of PP {pp}, which schedule interleaved needs: {nearest}",
            code="interleaved-microbatches",
        )


def schedule(kind: str, *, pp: int, rank: int, microbatches: int, virtual: int = 1) -> list[Action]:
    """The list of `rank`. Raises `Infeasible` for what cannot run."""
    check(kind, pp=pp, microbatches=microbatches, virtual=virtual)
    if not 0 <= rank < pp:
        raise Infeasible(f"rank {rank} of PP {pp}: ranks count from 0 to {pp - 1}", code="pp")
    if kind == "interleaved":
        forwards, backwards = _interleaved_halves(pp, microbatches, virtual)
    else:
        forwards = [Action(Kind.FORWARD, m) for m in range(microbatches)]
        backwards = [Action(Kind.BACKWARD, m) for m in range(microbatches)]
    ordered = _alternate(forwards, backwards, warm_up(kind, pp=pp, rank=rank, microbatches=microbatches, virtual=virtual))
    return _with_weights(ordered, delay=rank) if splits_backward(kind) else ordered


def warm_up(kind: str, *, pp: int, rank: int, microbatches: int, virtual: int = 1) -> int:
    """How many forwards come before the first pair of one forward and one backward."""
    later = pp - rank - 1
    wanted = {"gpipe": microbatches, "interleaved": 2 * later + (virtual - 1) * pp}.get(kind, later)
    return min(wanted, microbatches * virtual)


def _alternate(forwards: list[Action], backwards: list[Action], warmup: int) -> list[Action]:
    """Forwards to warm up, then pairs of one forward and one backward, then the backwards that are left."""
    pairs = [action for pair in zip(forwards[warmup:], backwards) for action in pair]
    return forwards[:warmup] + pairs + backwards[len(forwards) - warmup :]


def _interleaved_halves(pp: int, microbatches: int, virtual: int) -> tuple[list[Action], list[Action]]:
    """Groups of `pp` micro-batches; a group goes through all chunks before the next begins, backwards from the last chunk."""
    forwards, backwards = [], []
    for first in range(0, microbatches, pp):
        for chunk in range(virtual):
            forwards += [Action(Kind.FORWARD, m, chunk) for m in range(first, first + pp)]
            backwards += [Action(Kind.BACKWARD, m, virtual - 1 - chunk) for m in range(first, first + pp)]
    return forwards, backwards


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


def held(actions: Iterable[Action]) -> Held:
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
    return Held(fullest[1], fullest[0] - fullest[1])


def in_flight(actions: Iterable[Action]) -> int:
    """The most (micro-batch, chunk) activations held at once, each from its forward to its backward. `held` counts until W."""
    now = peak = 0
    for action in actions:
        now += {Kind.FORWARD: 1, Kind.BACKWARD: -1, Kind.WEIGHT: 0}[action.kind]
        peak = max(peak, now)
    return peak


def peak_in_flight(kind: str, *, pp: int, rank: int, microbatches: int, virtual: int = 1) -> int:
    """`in_flight` of the list without making it: the warm-up and one more, but never more than there are.

    gpipe m; 1f1b and zb-h1 min(pp - rank, m); interleaved min(2 (pp - rank) - 1 + (virtual - 1) pp, m virtual).
    """
    check(kind, pp=pp, microbatches=microbatches, virtual=virtual)
    return min(
        warm_up(kind, pp=pp, rank=rank, microbatches=microbatches, virtual=virtual) + 1,
        microbatches * virtual,
    )


def peak_held(kind: str, *, pp: int, rank: int, microbatches: int, virtual: int = 1) -> Held:
    """`held` of the list without making it: zb-h1 holds min(pp, m) in all on every rank, the first rank as 1F1B does."""
    activations = peak_in_flight(kind, pp=pp, rank=rank, microbatches=microbatches, virtual=virtual)
    return Held(activations, min(pp, microbatches) - activations if splits_backward(kind) else 0)


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
