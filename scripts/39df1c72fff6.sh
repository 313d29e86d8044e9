#!/bin/bash
module purge
module load cuda/12.4
exec srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 /opt/train/bin/python -m seatrial.launch.agent /tmp/seatrial-docs-e82muf6a/logbook/runs/first-sweep/39df1c72fff6/job.json
