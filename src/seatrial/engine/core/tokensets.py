"""The tokens over which experts are counted together: a sequence, a replica's micro-batch, or that of all replicas.

    sets = TokenSets(model, topology, comm, sequence_parallel=False)        every rank calls it, in the same order
    chosen_SE, before_TE = sets.count(mask_TE)          how often each expert was chosen in each set, and before each token

A rank has runs of consecutive tokens of some sequences: context parallelism, and tensor parallelism by stretches of the
sequence or by parts of the flat micro-batch, cut them. The order of the tokens in a set is that of its sequences, whichever
ranks they lie on, so what is counted is the same on every layout.
"""
from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from seatrial.engine.core.comm import Comm
from seatrial.engine.core.context import cut, own_stretches
from seatrial.spec import Model, Place, Topology, context_split

TIMER = "ep_comm"


class Run(NamedTuple):
    """Consecutive tokens of one sequence."""

    sample: int
    """Of the micro-batch."""
    start: int
    length: int


def runs_at(place: Place, model: Model, t: Topology, *, sequence_parallel: bool) -> list[Run]:
    """What a rank takes of a micro-batch of its replica, in the order in which it lies there."""
    heads, ring = context_split(model, t) if t.cp > 1 else (1, 1)
    stretches, part = own_stretches(model.seq, heads=heads, ring=ring, rank=place.cp), model.seq // t.cp
    found: list[Run] = []
    for sample in range(t.mbs):
        if sequence_parallel:
            low, high = place.tp * part // t.tp, (place.tp + 1) * part // t.tp
        else:
            tokens = t.mbs * part // t.tp
            low, high = (max(0, min(part, i * tokens - sample * part)) for i in (place.tp, place.tp + 1))
        found += [Run(sample, one.start, one.length) for one in cut(stretches, low, high)]
    return found


class TokenSets:
    def __init__(self, model: Model, topology: Topology, comm: Comm, *, sequence_parallel: bool):
        t, over, mesh = topology, model.router.over, comm.mesh
        self.comm, self.group = comm, mesh.sharing(data=over == "global")
        self.number = t.mbs if over == "sequence" else 1
        self.tokens = model.seq * t.mbs * (t.dp if over == "global" else 1) // self.number
        """Of one set."""
        places = [t.place(rank) for rank in self.group.ranks]
        runs = [runs_at(place, model, t, sequence_parallel=sequence_parallel) for place in places]
        mine = runs[self.group.rank]
        self.most = max(map(len, runs))

        def integers(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=mesh.device)

        def by_token(values: list[int]) -> Tensor:
            return integers(values).repeat_interleave(integers([run.length for run in mine]))

        self.positions = integers([run.start + i for run in mine for i in range(run.length)])
        """Of this rank's tokens, each in its sequence."""
        self.run_of = by_token(list(range(len(mine))))
        self.first_of = by_token([0, *accumulate(run.length for run in mine)][:-1])
        """The first of a token's run, among this rank's tokens."""
        ordered = sorted((place.dp if over == "global" else 0, run.sample, run.start, rank * self.most + i)
                         for rank, (place, those) in enumerate(zip(places, runs)) for i, run in enumerate(those))
        sets = [sample if over == "sequence" else 0 for _, sample, _, _ in ordered]
        where = {run: at for at, (*_, run) in enumerate(ordered)}
        own = [where[self.group.rank * self.most + i] for i in range(len(mine))]
        self.ordered, self.set_of_run = integers([run for *_, run in ordered]), integers(sets)
        self.set_begins = integers([sets.index(one) for one in sets])
        self.own_runs = integers(own)
        self.set_of = by_token([sets[at] for at in own])
        """Of this rank's tokens."""

    def count(self, mask_TE: Tensor, *, before: bool) -> tuple[Tensor, Tensor | None]:
        """[sets, experts], and where it is asked for [tokens of this rank, experts]."""
        mask_TE = mask_TE.to(torch.int32)
        here_RE = mask_TE.new_zeros(self.most, mask_TE.shape[1]).index_add_(0, self.run_of, mask_TE)
        every = here_RE.new_empty(self.group.size * self.most, mask_TE.shape[1])
        self.comm.all_gather(every, here_RE, self.group, timer=TIMER)
        runs = every.index_select(0, self.ordered)
        chosen = runs.new_zeros(self.number, runs.shape[1]).index_add_(0, self.set_of_run, runs)
        if not before:
            return chosen, None
        earlier = runs.cumsum(0, dtype=torch.int32) - runs
        earlier = (earlier - earlier.index_select(0, self.set_begins)).index_select(0, self.own_runs)
        inside = mask_TE.cumsum(0, dtype=torch.int32) - mask_TE
        inside = inside - inside.index_select(0, self.first_of)
        return chosen, inside + earlier.index_select(0, self.run_of)
