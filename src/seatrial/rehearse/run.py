"""Which ranks to rehearse, each of them once, and the iteration put together from them.

    found = rehearse(trial, recipe, RehearsalOptions(all_stages=True), cluster=cluster)
    found.ranks, found.iteration

Ranks of a stage are alike. Stages differ in time by their layers, embedding and head; in memory also by how many micro-batches
they have in flight. What was rehearsed once stands for all that are alike.
"""
from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from seatrial import rules
from seatrial.arith import footprint
from seatrial.engine.rendezvous import RankInfo, device_of
from seatrial.engine.watch import memory as engine_memory
from seatrial.engines import named, started
from seatrial.errors import BadInput, Infeasible
from seatrial.recipe import Recipe
from seatrial.rehearse.asked import Candidate, Rank, Rehearsal, RehearsalOptions, distinct, words
from seatrial.rehearse.fake import fake_world
from seatrial.rehearse.iteration import Free, Modelled, Network, RankTimes, assemble, replay
from seatrial.rehearse.load import Load
from seatrial.rehearse.rank import Memory, measure_memory, microbatches_to_peak, time_actions, time_and_memory
from seatrial.rehearse.recorder import Moment
from seatrial.spec import BYTES, GIB, Cluster, Trial

PRECISIONS = ("fp32", "bf16", "fp16")
REAL_WITHIN_S = 20.0
"""On a CPU the schedule runs on real tensors where that takes no longer; else on tensors without memory, which count alike."""
TRACKED = 4.0
"""How much longer a step takes at most while its storages are watched."""


def rehearse(trial: Trial, recipe: Recipe, options: RehearsalOptions, *, cluster: Cluster | None = None,
             network: Network | None = None, say: Callable[[str], None] = lambda line: None) -> Rehearsal:
    """`network`: measured curves in place of the cluster's model."""
    from seatrial.rehearse import theirs

    if (adapter := theirs.adapter_of(trial)) is not None:
        return theirs.rehearse(trial, recipe, options, adapter, cluster=cluster, network=network)
    check(trial, options)
    if trial.engine != "seatrial":
        able = [name for name in started() if not getattr(named(name), "unrehearsed", "")]
        raise BadInput(f"engine {trial.engine}: nothing of it is started from here, so there is no rank of it to rehearse; "
                       f"{', '.join(able)} have one, and any program that a [command] starts")
    t = trial.topology
    device = device_of(trial.execution.device, RankInfo())
    threads = threads_for(trial, recipe, cluster)
    if trial.execution.compile:
        raise BadInput("execution.compile: a rehearsal runs blocks as they are written; leave it out")
    notes: list[str] = []
    chosen = distinct(trial, options)
    memory_only = options.memory_only
    there = _free_gib(device)
    needs = {c.pp_rank: _needs_gib(trial, c, device, options.load) for c in chosen}
    least = max(one for one, _ in needs.values())
    if not memory_only and least > there:
        memory_only = True
        notes.append(f"a rank needs {least:.1f} GiB or more, {there:.1f} are free here: memory alone, on tensors without any")
    as_gpu = device.type == "cuda" or cluster is not None and cluster.device.kind == "gpu"
    charged = network or (Modelled(replace(trial, cluster=cluster), cluster) if cluster is not None else Free())
    if cluster is None and network is None and t.world > 1 and not memory_only:
        notes.append("no cluster was named: communication is counted but takes no time; --cluster NAME charges it")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found: list[Rank] = []
    timed: dict[tuple[Any, ...], list[Moment]] = {}
    try:
        for number, candidate in enumerate(chosen, 1):
            say(f"rank {candidate.rank} of {t.world} ({number} of {len(chosen)}): pipeline rank {candidate.pp_rank}, "
                f"{sum(candidate.layers)} layers, {candidate.in_flight} in flight")
            found.append(_one(trial, recipe, candidate, device, options, charged, memory_only, timed, as_gpu=as_gpu,
                              fits=needs[candidate.pp_rank][1] <= there))
    finally:
        torch.set_num_threads(before)
    iteration, send_s = None, 0.0
    if not memory_only:
        part = trial.model.seq // t.cp // (t.tp if t.sequence_parallel else 1)
        send_s = charged.send_s(t.mbs * part * trial.model.hidden * BYTES[t.precision]) if t.pp > 1 else 0.0
        by_rank = {r: one.times for one in found for r in one.alike if one.times is not None}
        ranks = [by_rank[r] for r in range(t.pp)] if options.all_stages else [next(iter(by_rank.values()))] * t.pp
        iteration = assemble(trial, ranks, send_s=send_s)
    return Rehearsal(trial=trial, device=words(device), device_type=device.type, threads=threads, ranks=tuple(found),
                     iteration=iteration, assumes_alike=not options.all_stages and t.pp > 1, cluster=cluster, send_s=send_s,
                     load=options.load, notes=tuple(notes))


def check(trial: Trial, options: RehearsalOptions) -> None:
    rules.check(replace(trial, cluster=None, engine="seatrial"))
    t = trial.topology
    if t.precision not in PRECISIONS:
        raise Infeasible(f"precision {t.precision}: a rehearsal has {', '.join(PRECISIONS)}", code="precision")
    options.load.check(trial)
    if not 0 <= options.rank < t.world:
        raise BadInput(f"--rank {options.rank}: {t.product}, counted from 0 to {t.world - 1}")


def threads_for(trial: Trial, recipe: Recipe, cluster: Cluster | None) -> int:
    """As many as the rank would have: the cores of this machine divided by the processes of a node."""
    if trial.execution.threads:
        return trial.execution.threads
    if "OMP_NUM_THREADS" in os.environ:
        return torch.get_num_threads()
    cores = len(os.sched_getaffinity(0))
    return max(1, cores // min(trial.topology.world, cluster.procs_per_node if cluster is not None else cores))


def _one(trial: Trial, recipe: Recipe, candidate: Candidate, device: torch.device, options: RehearsalOptions,
         network: Network, memory_only: bool, timed: dict[tuple[Any, ...], list[Moment]], *, as_gpu: bool, fits: bool) -> Rank:
    t = trial.topology
    times: RankTimes | None = None
    found: Memory | None = None
    with fake_world(rank=candidate.rank, world=t.world):
        if not memory_only:
            if candidate.work not in timed and device.type == "cuda" and fits:
                timed[candidate.work], found = time_and_memory(trial, recipe, device, repeats=options.repeats, as_gpu=as_gpu,
                                                                 load=options.load)
            elif candidate.work not in timed:
                timed[candidate.work] = time_actions(trial, recipe, device, repeats=options.repeats, as_gpu=as_gpu,
                                                     load=options.load)
            times = RankTimes.of(replay(timed[candidate.work], network, overlap=as_gpu), t)
        if found is None:
            # A GPU's ways can be followed on a CPU, but only without memory: see `gpu_ways`.
            fake = times is None or not fits or device.type == "cpu" and (as_gpu or _long(trial, candidate.pp_rank, times))
            found = measure_memory(trial, recipe, torch.device("cpu") if fake else device, fake=fake, as_gpu=as_gpu,
                                   load=options.load)
    return Rank(**vars(candidate), times=times, memory=found)


def _long(trial: Trial, pp_rank: int, times: RankTimes) -> bool:
    one_s = sum(timed.compute_s for name in ("forward", "backward", "weight") for timed in getattr(times, name))
    return one_s * microbatches_to_peak(trial, pp_rank) * TRACKED > REAL_WITHIN_S


def _free_gib(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / GIB
    found = engine_memory.peaks(device)
    return found["node_total_gib"] - found.get("node_used_gib", 0.0)


def _needs_gib(trial: Trial, candidate: Candidate, device: torch.device, load: Load) -> tuple[float, float]:
    """With one micro-batch at a time, which is enough for times, and with all that are in flight."""
    counted = footprint(trial, rank=candidate.pp_rank, gpu=device.type == "cuda", load=load.of_balance(trial, candidate.rank))
    one = counted.total - counted.at_peak["activations"] * (1 - 1 / max(1, candidate.in_flight))
    return one / GIB, counted.total / GIB
