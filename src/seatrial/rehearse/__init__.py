"""One rank of any topology on one device: real kernels, real memory, peers that answer at once and a network that is charged.

    found = rehearse(trial, recipe, RehearsalOptions(rank=0), cluster=cluster)
    found.ranks[0].memory.peak_bytes, found.iteration.sec

Read on in this order: `fake.py` (what is not there), `recorder.py` (when what happened), `rank.py` (the engine with both; one
rank's actions and bytes), `iteration.py` (what communication would have taken, and the whole iteration), `asked.py` (which
ranks), `run.py` (all of it together), `theirs.py` (a rank of an engine that is not ours), `show.py` (what comes out).
"""
from __future__ import annotations
