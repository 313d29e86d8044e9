"""One rank of any topology on one device: real kernels, real memory, peers that answer at once and a network that is charged.

    found = rehearse(trial, training, Asked(rank=0), cluster=cluster)
    found.ranks[0].memory.peak_bytes, found.iteration.sec

Read on in this order: `world.py` (peers that are not there), `recorder.py` (when what happened), `stand_in.py` (the engine with
both), `rank.py` (one rank's actions and bytes), `charge.py` (what communication would have taken), `assemble.py` (the whole
iteration), `whole.py` (which ranks, and all of it together).
"""
from __future__ import annotations
