"""When each action of a pipeline schedule runs: the walk over the lists, and its picture in plain text.

    python -m seatrial.schedule zb-h1 4 8

The walk is the plain truth; `vector.py` has the same times for many layouts at once.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seatrial.errors import BadInput
from seatrial.schedule.lists import Action, Kind, check, comes_from, global_stage, goes_to, schedule, splits_backward

Seconds = float | Sequence[float]
"""One number for every stage (or boundary), or one for each: a stage is a global stage, a boundary lies after one."""


class Span(NamedTuple):
    action: Action
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Timeline:
    ranks: tuple[tuple[Span, ...], ...]
    """What each rank did, in order."""
    total_s: float
    """From the first action's start to the last action's end."""

    @property
    def busy_s(self) -> tuple[float, ...]:
        """Seconds of work, a rank."""
        return tuple(sum(span.end_s - span.start_s for span in spans) for spans in self.ranks)

    @property
    def wait_s(self) -> tuple[float, ...]:
        """Seconds without work until the last rank is done, a rank: the bubble."""
        return tuple(self.total_s - busy for busy in self.busy_s)


class Durations(NamedTuple):
    """Seconds per global stage; the two parts of backward are one in schedules that do not split it."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    weight_s: tuple[float, ...]
    send_s: tuple[float, ...]
    """Per boundary: between global stage g and g + 1, either way."""


def durations(
    kind: str, *, pp: int, virtual: int = 1, forward_s: Seconds, backward_s: Seconds, weight_s: Seconds | None, send_s: Seconds
) -> Durations:
    """Spread scalars over the stages and settle what B and W last.

    With `weight_s`, `backward_s` is the input-gradient part: a schedule that does not split does both in B. Without it,
    `backward_s` is the whole backward pass: a schedule that splits takes one half for each, as in a linear both cost the
    same FLOPs.
    """
    stages = pp * virtual
    forward = _spread("forward_s", forward_s, stages)
    backward = _spread("backward_s", backward_s, stages)
    if splits_backward(kind):
        weight = tuple(b / 2 for b in backward) if weight_s is None else _spread("weight_s", weight_s, stages)
        backward = weight if weight_s is None else backward
    else:
        extra = (0.0,) * stages if weight_s is None else _spread("weight_s", weight_s, stages)
        backward, weight = tuple(b + w for b, w in zip(backward, extra)), (0.0,) * stages
    return Durations(forward, backward, weight, _spread("send_s", send_s, stages - 1))


def _spread(name: str, value: Seconds, count: int) -> tuple[float, ...]:
    values = (float(value),) * count if isinstance(value, int | float) else tuple(float(v) for v in value)
    if len(values) != count:
        raise BadInput(f"{name} has {len(values)} values: give one number, or {count}")
    if any(v < 0 for v in values):
        raise BadInput(f"{name} has {min(values)} s: durations are not negative")
    return values


def walk(
    kind: str,
    *,
    pp: int,
    microbatches: int,
    virtual: int = 1,
    forward_s: Seconds,
    backward_s: Seconds,
    weight_s: Seconds | None = None,
    send_s: Seconds = 0.0,
) -> Timeline:
    """Each rank does its list in order, each action as soon as its rank is free and its input has arrived.

    A message takes `send_s` from the end of the action that makes it and holds neither rank up. For B and W see `durations`.
    """
    check(kind, pp=pp, microbatches=microbatches, virtual=virtual)
    spent = durations(
        kind, pp=pp, virtual=virtual, forward_s=forward_s, backward_s=backward_s, weight_s=weight_s, send_s=send_s
    )
    seconds = {Kind.FORWARD: spent.forward_s, Kind.BACKWARD: spent.backward_s, Kind.WEIGHT: spent.weight_s}
    plan = [schedule(kind, pp=pp, rank=rank, microbatches=microbatches, virtual=virtual) for rank in range(pp)]
    spans: list[list[Span]] = [[] for _ in plan]
    arrives: dict[tuple[int, Action], float] = {}
    blocked: dict[tuple[int, Action], int] = {}
    ready = list(range(pp))
    while ready:
        rank = ready.pop()
        clock_s = spans[rank][-1].end_s if spans[rank] else 0.0
        for action in plan[rank][len(spans[rank]) :]:
            if comes_from(action, pp=pp, rank=rank, virtual=virtual):
                arrival_s = arrives.pop((rank, action), None)
                if arrival_s is None:
                    blocked[rank, action] = rank
                    break
                clock_s = max(clock_s, arrival_s)
            stage = global_stage(pp, rank, action.chunk)
            end_s = clock_s + seconds[action.kind][stage]
            spans[rank].append(Span(action, clock_s, end_s))
            clock_s = end_s
            if target := goes_to(action, pp=pp, rank=rank, virtual=virtual):
                boundary = stage if action.kind is Kind.FORWARD else stage - 1
                arrives[target] = end_s + spent.send_s[boundary]
                if target in blocked:
                    ready.append(blocked.pop(target))
    if blocked:
        raise RuntimeError(f"schedule {kind} deadlocks with {', '.join(f'rank {r} waiting for {a}' for r, a in blocked)}")
    return Timeline(ranks=tuple(map(tuple, spans)), total_s=max(spans[rank][-1].end_s for rank in range(pp)))


def picture(timeline: Timeline, width: int = 120) -> str:
    """A plain-text Gantt chart, one line a rank: F or B or W begins with the micro-batch's last digits where there is room.

    The bubble is dots. Virtual stages after the first are drawn in lower case.
    """
    label = len(f"rank {len(timeline.ranks) - 1} ")
    columns = max(1, width - label)
    scale = columns / timeline.total_s if timeline.total_s else 0.0
    lines = []
    for rank, spans in enumerate(timeline.ranks):
        row = ["."] * columns
        for span in spans:
            start, end = round(span.start_s * scale), round(span.end_s * scale)
            row[start:end] = _bar(span.action, end - start)
        lines.append(f"rank {rank}".ljust(label) + "".join(row))
    return "\n".join(lines)


def _bar(action: Action, cells: int) -> str:
    """The letter, the number if it fits with a cell to spare, then `-` up to the end."""
    letter = action.kind.value.lower() if action.chunk else action.kind.value
    number = str(action.microbatch)
    return (letter + (number if len(number) < cells else "")).ljust(cells, "-")[:cells]
