"""The search for the best topology with as few trials as it takes: plan, measure what teaches most, learn, stop.

    from seatrial.tune import Oracle, Tuner

`seatrial tune` is this with the sweep's own runner behind it; `oracle.py` puts a table in the machine's place.
"""
from seatrial.tune.oracle import Oracle
from seatrial.tune.tuner import Expected, Standing, Tuner

__all__ = ["Expected", "Oracle", "Standing", "Tuner"]
