"""How long a schedule takes for any stages, exactly, without walking it: a recurrence over rounds that stops once they repeat.

    makespan("1f1b", pp=64, microbatches=512, forward_s=[...], backward_s=[...], send_s=0.01)

After the warm-up every rank does one backward and one forward a round, and a round needs only the round before it. Max-plus
algebra says what follows: from some round on, every time grows by the same amount each period (one micro-batch when the
slowest stage decides, up to PP of them when a round trip between stages does). So the recurrence runs until two states
differ by a constant, adds the periods that are left, and goes on with the drain. It is exact for all kinds and all
durations.
"""
from __future__ import annotations

from seatrial.schedule_lists import check, splits_backward, warm_up
from seatrial.schedule_walk import Durations, Seconds, durations


def makespan(
    kind: str,
    *,
    pp: int,
    microbatches: int,
    virtual: int = 1,
    forward_s: Seconds,
    backward_s: Seconds,
    weight_s: Seconds | None = None,
    send_s: Seconds = 0.0,
) -> float:
    """`walk(...).total_s`, for the same arguments."""
    check(kind, pp=pp, microbatches=microbatches, virtual=virtual)
    spent = durations(
        kind, pp=pp, virtual=virtual, forward_s=forward_s, backward_s=backward_s, weight_s=weight_s, send_s=send_s
    )
    if kind == "gpipe":
        return gpipe_s(spent, microbatches)
    return _Rounds(kind, pp, microbatches, virtual, spent).run()


def gpipe_s(spent: Durations, microbatches: int) -> float:
    """Two flow shops of equal jobs, one after the other: each takes one job through, and then its slowest stage m - 1 times."""
    one_s = sum(spent.forward_s) + sum(spent.backward_s) + 2 * sum(spent.send_s)
    return one_s + (microbatches - 1) * (max(spent.forward_s) + max(spent.backward_s))


class _Rounds:
    """The state of all ranks between two rounds, and how it moves.

    Position i of a rank is its i-th forward, or backward; (micro-batch, chunk) follows from it. The same position is the
    same pair on every rank, so a message goes from position i to position i of the neighbour, and round the ring (virtual
    stages) to i + pp. In round k rank r does backward k - skew_r and the forward that follows it. The skew is such that,
    with virtual stages, every input is of the round before; without, the skew is 0 and a gradient comes from the next rank
    in the same round.
    """

    def __init__(self, kind: str, pp: int, microbatches: int, virtual: int, spent: Durations):
        self.pp, self.virtual = pp, virtual
        self.total = microbatches * virtual
        self.split = splits_backward(kind)
        self.spent = spent
        self.warm = [warm_up(kind, pp=pp, rank=r, microbatches=microbatches, virtual=virtual) for r in range(pp)]
        self.skew = [pp - 1 - rank if virtual > 1 else 0 for rank in range(pp)]
        self.rows = self._fill()
        self.free = [row[-1] for row in self.rows]
        """When each rank is free."""
        self.fed = list(self.free)
        """When each rank's latest forward ended."""
        self.back = [0.0] * pp
        """When each rank's latest backward ended."""

    def _fill(self) -> list[list[float]]:
        """When the forwards of each rank end that come before its first backward."""
        pp, forward_s, send_s = self.pp, self.spent.forward_s, self.spent.send_s
        rows: list[list[float]] = [[] for _ in range(pp)]
        for first in range(0, self.total, pp):
            chunk = first // pp % self.virtual
            for rank, row in enumerate(rows):
                stage = chunk * pp + rank
                source = rows[rank - 1]
                lag = 0 if rank else pp
                for position in range(first, min(first + pp, self.warm[rank] + 1, self.total)):
                    clock_s = row[-1] if row else 0.0
                    if stage:
                        clock_s = max(clock_s, source[position - lag] + send_s[stage - 1])
                    row.append(clock_s + forward_s[stage])
            if first > self.warm[0]:
                break
        return rows

    def run(self) -> float:
        rounds = self.total + self.skew[0]
        group = self.pp * self.virtual if self.virtual > 1 else 1
        steady = range(
            max(self.skew[0], self.pp), min(self.total - self.warm[rank] - 1 + self.skew[rank] for rank in range(self.pp))
        )
        seen: dict[tuple[float, ...], tuple[int, float]] = {}
        k = 0
        while k < rounds:
            if k in steady and (k - steady.start) % group == 0:
                state = self._state()
                if state in seen:
                    start, then_s = seen[state]
                    period = k - start
                    times = (steady.stop - k) // period
                    self._shift(times * (self.free[0] - then_s))
                    k += times * period
                    steady = range(0)
                else:
                    seen[state] = (k, self.free[0])
            self._round(k)
            k += 1
        if not self.split:
            return max(self.free)
        put_off = [min(self.total, rank) for rank in range(self.pp)]
        return max(free + count * weight for free, count, weight in zip(self.free, put_off, self.spent.weight_s))

    def _state(self) -> tuple[float, ...]:
        """All that the next rounds depend on, seen from rank 0's clock; what differs by rounding alone counts as equal."""
        zero, unit = self.free[0], max(self.spent.backward_s) or 1.0
        return tuple([round((time - zero) / unit, 9) for times in (self.free, self.fed, self.back) for time in times])

    def _shift(self, by_s: float) -> None:
        self.free = [time + by_s for time in self.free]
        self.fed = [time + by_s for time in self.fed]
        self.back = [time + by_s for time in self.back]

    def _round(self, k: int) -> None:
        pp, virtual, total = self.pp, self.virtual, self.total
        forward_s, backward_s, weight_s, send_s = self.spent
        free, fed, back = self.free, self.fed, self.back
        sent, came = (list(fed), list(back)) if virtual > 1 else (fed, back)
        for rank in range(pp - 1, -1, -1):
            position = k - self.skew[rank]
            if not 0 <= position < total:
                continue
            stage = (virtual - 1 - position // pp % virtual) * pp + rank if virtual > 1 else rank
            clock_s = free[rank]
            if stage < pp * virtual - 1:
                clock_s = max(clock_s, came[(rank + 1) % pp] + send_s[stage])
            clock_s += backward_s[stage]
            back[rank] = clock_s
            if self.split and position >= rank:
                clock_s += weight_s[stage]
            position += self.warm[rank] + 1
            if position < total:
                stage = position // pp % virtual * pp + rank if virtual > 1 else rank
                if stage:
                    clock_s = max(clock_s, self._sent(rank, position, sent) + send_s[stage - 1])
                clock_s += forward_s[stage]
                fed[rank] = clock_s
            free[rank] = clock_s

    def _sent(self, rank: int, position: int, sent: list[float]) -> float:
        """When the input of this forward left the rank before: in the fill, or in the round before."""
        if rank == 0:
            position -= self.pp
        row = self.rows[rank - 1]
        return row[position] if position < len(row) else sent[rank - 1]
