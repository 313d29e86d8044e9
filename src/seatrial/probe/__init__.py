"""Measure the machine this runs on, for the planner: torch and the standard library alone.

    python -m seatrial.probe -o machine.json                    this process and its device
    torchrun --nproc-per-node 8 -m seatrial.probe -o machine.json       and the collectives of these ranks

`seatrial probe` is the same with help and a table. The file is read by `machine.py`, and by `plan/probed.py` for the planner.
"""
