#!/bin/bash
exec srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 /work/main/.venv/bin/python -m seatrial.launch.agent /tmp/seatrial-docs-kltyewg1/logbook/runs/partitions/476413cdf115/job.json
