"""Tokens that a rank's experts receive, as told: one device has no peers whose tokens would come.

    Load.of("1.5")                      half as many again as where every expert has as many
    Load.of("tokens.txt")               of each expert, one line for all layers or one a layer: a run's, or made up
    load.rows(trial, rank, layer=3)     [rows of each expert that the rank holds] of one micro-batch
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.spec import Trial


@dataclass(frozen=True)
class Load:
    times: float = 1.0
    """What each of the rank's experts receives, of an even share."""
    trace: tuple[tuple[float, ...], ...] = ()
    """In its place, by layer: tokens of each expert."""

    @classmethod
    def of(cls, said: str) -> Load:
        try:
            return cls(float(said))
        except ValueError:
            path = Path(said)
        if not path.is_file():
            raise BadInput(f"--moe-load {said}: neither a number, as 1.5 for half as many tokens again as at balance, nor a "
                           "file with the tokens of each expert")
        try:
            lines = [line.replace(",", " ").split() for line in path.read_text().splitlines()]
            trace = tuple(tuple(map(float, line)) for line in lines if line and not line[0].startswith("#"))
        except (ValueError, OSError) as error:
            raise BadInput(f"--moe-load {said}: {error}; it has a line a layer, with the tokens of each expert") from None
        if not trace:
            raise BadInput(f"--moe-load {said}: it is empty; it has a line a layer, with the tokens of each expert")
        return cls(trace=trace)

    def check(self, trial: Trial) -> None:
        m = trial.model
        if m.experts is None or m.chosen is None:
            if self != BALANCED:
                raise BadInput("--moe-load: this model has no experts")
            return
        most = m.experts / m.chosen
        if not 0 < self.times <= most:
            raise BadInput(f"--moe-load {self.times:g}: more than 0 and at most {most:g}, where every token chooses the expert "
                           f"({m.chosen} of {m.experts})")
        if self.trace and len(self.trace) not in (1, m.layers):
            raise BadInput(f"--moe-load: {len(self.trace)} lines; one, or one for each of {m.layers} layers")
        for number, line in enumerate(self.trace, 1):
            if len(line) != m.experts:
                raise BadInput(f"--moe-load: line {number} has {len(line)} numbers; {m.experts} experts have as many")
            if not min(line) >= 0 or not 0 < sum(line) < math.inf:
                raise BadInput(f"--moe-load: line {number}: tokens are 0 at least, and some in all")
            if max(line) * m.chosen > sum(line) * 1.001:
                raise BadInput(f"--moe-load: line {number}: expert {line.index(max(line))} has {max(line) / sum(line):.0%} of "
                               f"the choices; {1 / m.chosen:.0%} at most, since a token chooses {m.chosen} different ones")

    def rows(self, trial: Trial, rank: int, *, layer: int) -> list[int]:
        m, t = trial.model, trial.topology
        assert m.experts is not None
        held, pairs = m.experts // t.ep, pairs_of(trial) * t.ep * t.expert_tp
        first = t.expert_place(rank).ep * held
        shares = [self.times / m.experts] * held
        if self.trace:
            line = self.trace[layer % len(self.trace)]
            shares = [one / sum(line) for one in line[first : first + held]]
        if m.router.capacity is not None:
            shares = [min(share, m.router.capacity / m.experts) for share in shares]
        ends = [round(sum(shares[: i + 1]) * pairs) for i in range(held)]
        return [high - low for low, high in zip([0, *ends], ends)]

    def of_balance(self, trial: Trial, rank: int) -> tuple[float, float]:
        """Rows of all its experts over an even share: the mean over layers, and the most."""
        m, t = trial.model, trial.topology
        if not m.mixture:
            return 1.0, 1.0
        found = [sum(self.rows(trial, rank, layer=n)) / (pairs_of(trial) * t.expert_tp)
                 for n in range(m.layers) if m.has_experts(n)]
        return sum(found) / len(found), max(found)


BALANCED = Load()


def pairs_of(trial: Trial) -> int:
    """(Token, choice) pairs of a micro-batch that start on one rank."""
    m, t = trial.model, trial.topology
    return t.mbs * m.seq // t.cp // t.tp * (m.chosen or 0)
