"""Engines that are not ours, held to what is promised of them, on a few processes of this machine.

    python -m benchmarks.engines torchtitan --part layouts      emitted, launched, read, recorded: a row a layout
    python -m benchmarks.engines torchtitan --part rules        200 random layouts: our rules against its own validation
    python -m benchmarks.engines torchtitan --part steps        20 random layouts that our rules allow take a step
    python -m benchmarks.engines torchtitan --part faults       20 faults: the outcome, and the rank that failed first
    python -m benchmarks.engines torchtitan --part tune         tune in half of the trials against a full sweep of 12
    python -m benchmarks.engines seatrial fsdp2 --part layouts  our own beside it, started alike

What is an engine's own is one file here (`torchtitan.py`) and, for `rules`, a script that its own Python runs (`validate/`).
Times are of this machine as it is: engines are compared only inside one call.
"""
