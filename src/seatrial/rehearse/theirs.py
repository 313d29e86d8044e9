"""One rank of an engine that is not ours, in a process of its own: its bytes over time, its collectives, the network's time.

    found = theirs.rehearse(trial, recipe, RehearsalOptions(rank=3, memory_only=True), adapter, cluster=cluster)
    found.ranks[0].memory.peak_bytes, found.ranks[0].collectives

The script runs as its adapter starts it (`engines/drivers/rehearse_rank.py`): the second step's bytes count, later ones are
timed. Without a GPU, for a GPU's cluster or for memory alone, its tensors are CUDA's without memory.
"""
from __future__ import annotations

import json
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seatrial.arith.footprint import WORKSPACE
from seatrial.engines import engine_for
from seatrial.engines.base import Adapter
from seatrial.engines.foreign import Foreign
from seatrial.engines.scripted import Scripted, driver
from seatrial.errors import BadInput, SeatrialError
from seatrial.plan import network
from seatrial.recipe import Recipe
from seatrial.rehearse.asked import Collective, Rank, Rehearsal, RehearsalOptions, distinct, words
from seatrial.rehearse.iteration import Free, Iteration, Modelled, Network, Passed, replay
from seatrial.rehearse.load import BALANCED
from seatrial.rehearse.rank import Memory, OutOfMemory
from seatrial.rehearse.recorder import Moment
from seatrial.spec import Cluster, Trial

WATCHED = 2
"""Steps whose storages are counted: the first makes the optimizer's state."""
GEMM_THREADS = 2
"""Forward and backward issue GEMMs from a thread each, with a workspace of cuBLAS each."""


def adapter_of(trial: Trial) -> Adapter | None:
    """Of an engine that can be started from here and is not ours."""
    found = engine_for(trial)
    return found if isinstance(found, Scripted) or isinstance(found, Foreign) and trial.command is not None else None


class Between(Modelled):
    """The planner's network, between ranks that are given by their numbers."""

    def _seconds(self, name: str, group: str, size_bytes: int) -> float:
        return self.send_s(size_bytes) if name in ("send", "recv") else super()._seconds(name, group, size_bytes)

    def _group(self, name: str) -> network.Group:
        ranks = [int(rank) for rank in name.split(",")]
        return network.every(np.array([ranks[1] - ranks[0]]), np.array([len(ranks)]), self.configs)


def rehearse(trial: Trial, recipe: Recipe, options: RehearsalOptions, adapter: Adapter, *, cluster: Cluster | None,
             network: Network | None = None) -> Rehearsal:
    t = trial.topology
    if isinstance(adapter, Scripted) and adapter.unrehearsed:
        raise BadInput(f"engine {trial.engine}: {adapter.unrehearsed}")
    if t.pp > 1:
        raise BadInput(f"PP {t.pp}: what stages of {trial.engine} would send each other cannot be made up; PP 1 is rehearsed, "
                       "and the seatrial engine at any PP")
    if trial.execution.compile:
        raise BadInput("execution.compile: a rehearsal runs blocks as they are written; leave it out")
    if not 0 <= options.rank < t.world:
        raise BadInput(f"--rank {options.rank}: {t.product}, counted from 0 to {t.world - 1}")
    there = torch.cuda.is_available() and trial.execution.device != "cpu" and not options.memory_only
    gpu = there or options.memory_only or cluster is not None and cluster.device.kind == "gpu"
    tensors = "cuda" if there else "fake" if gpu else "cpu"
    said = report(trial, recipe, options, adapter, tensors)
    charged = network or (Between(replace(trial, cluster=cluster), cluster) if cluster is not None else Free())
    steps = [[Moment(**moment) for moment in step["moments"]] for step in said["steps"]]
    counted, timed = steps[WATCHED - 1], [] if tensors == "fake" else steps[WATCHED:]
    [candidate] = distinct(replace(trial, engine="seatrial"), options)
    rank = Rank(**vars(candidate), times=None, memory=memory(said, tensors, trial), collectives=_collectives(counted, charged))
    notes = ["tensors have no memory, so nothing was computed: communication alone has times"] if tensors == "fake" else []
    if cluster is None and network is None and t.world > 1:
        notes.append("no cluster was named: communication is counted but takes no time; --cluster NAME charges it")
    device = torch.device("cuda" if there else "cpu")
    return Rehearsal(trial=trial, device=words(device), device_type=device.type, threads=torch.get_num_threads(), ranks=(rank,),
                     iteration=_iteration([replay(moments, charged, overlap=there) for moments in timed]), assumes_alike=False,
                     cluster=cluster, send_s=0.0, load=BALANCED, notes=tuple(notes))


def report(trial: Trial, recipe: Recipe, options: RehearsalOptions, adapter: Adapter, tensors: str, *,
           peers: bool = False, folder: Path | None = None, port: int = 29500) -> dict[str, Any]:
    """What the script's process saw; `peers`: they are there, and this is one of them."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="seatrial-rehearse-") as made:
            return report(trial, recipe, options, adapter, tensors, peers=peers, folder=Path(made), port=port)
    # As for our own: a part of a node's processes will do.
    trial = replace(trial, cluster=None, execution=replace(trial.execution, device="cpu" if tensors == "cpu" else "cuda"))
    # What is said before a forward pass counts with the step before, so one more follows the last that counts.
    recipe = replace(recipe, steps=WATCHED + (1 if tensors == "fake" else options.repeats))
    adapter.check(trial, recipe, here=True)
    python, *script = adapter.argv(trial, recipe, folder)
    if adapter.per(trial) == "node" or not script or not script[0].endswith(".py"):
        raise BadInput(f"engine {trial.engine}: a rehearsal runs a Python script that is started once a rank, as "
                       f'argv = ["{{python}}", "train.py", …] with per = "rank"; here it is {Path(python).name} '
                       f"{' '.join(script[:1])}, once a {adapter.per(trial)}")
    world, out = trial.topology.world, folder / f"rank{options.rank}.json"
    env = {**os.environ, **trial.environment.variables, "RANK": str(options.rank), "WORLD_SIZE": str(world),
           "LOCAL_RANK": str(options.rank if peers else 0), "LOCAL_WORLD_SIZE": str(world if peers else 1),
           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ran = subprocess.run([python, driver("rehearse_rank.py"), str(out), tensors, "peers" if peers else "fake-peers", *script],
                         env=env, capture_output=True, text=True, check=False)
    if ran.returncode or not out.exists():
        raise _failed(trial, ran)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    if len(found["steps"]) < WATCHED:
        raise SeatrialError(f"{trial.engine}: {len(found['steps'])} steps of forward, backward and an optimizer's were seen in "
                            f"{script[0]}, and a rehearsal needs {WATCHED}")
    return found


def _failed(trial: Trial, ran: subprocess.CompletedProcess[str]) -> SeatrialError:
    lines = [re.sub(r"^\[rank\d+\]: ", "", line).strip() for line in (ran.stderr or ran.stdout).splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "")
    kind = OutOfMemory if "OutOfMemoryError" in last or "allocate memory" in last else SeatrialError
    return kind(f"{trial.engine}: the script ended with exit code {ran.returncode}: {last[:400]}")


def memory(said: dict[str, Any], tensors: str, trial: Trial) -> Memory:
    """Of the step that counts. Workspaces are what an allocator gave out to nobody that was seen."""
    step, workspaces = said["steps"][WATCHED - 1], 0
    if tensors == "fake":
        workspaces = WORKSPACE * GEMM_THREADS
    elif step["allocated_bytes"] is not None:
        workspaces = max(0, step["allocated_bytes"] - step["peak_bytes"])
    fixed = {"workspaces": workspaces}
    times = [dict(zip(said["parts"], sample)) | fixed for sample in step["bytes_over_time"]]
    return Memory(peak_bytes=step["peak_bytes"] + workspaces, at_peak=step["at_peak_bytes"] | fixed,
                  parts=step["parts_bytes"] | fixed, microbatches=trial.microbatches, fake=tensors == "fake",
                  allocated_bytes=step["allocated_bytes"], reserved_bytes=step["reserved_bytes"], over_time=tuple(times),
                  start_bytes=said["start"]["peak_bytes"])


def _collectives(moments: Sequence[Moment], charged: Network) -> tuple[Collective, ...]:
    found, phase = [], ""
    for moment in moments:
        if moment.kind == "mark":
            phase = moment.phase
        elif moment.kind == "issue":
            found.append(Collective(name=moment.name, ranks=tuple(int(rank) for rank in moment.group.split(",")),
                                    size_bytes=moment.size_bytes, phase=phase,
                                    seconds=charged.seconds(moment.name, moment.group, moment.size_bytes)))
    return tuple(found)


def _iteration(steps: list[list[Passed]]) -> Iteration | None:
    """The median of whole steps, each by what it spent its time on."""
    if not steps:
        return None
    middle = sorted(steps, key=lambda step: sum(passed.sec for passed in step))[(len(steps) - 1) // 2]
    parts = {phase: sum(passed.compute_s for passed in middle if passed.phase == phase)
             for phase in ("forward", "backward", "reduce", "optimizer", "end")}
    parts["gradients"], parts["between steps"] = parts.pop("reduce"), parts.pop("end")
    parts["communication"] = sum(passed.charged_s for passed in middle)
    return Iteration(sec=math.fsum(parts.values()), parts=parts, busiest=0)
