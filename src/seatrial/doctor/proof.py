"""Proof that a topology trains like one process does: the same small model on real gloo ranks and alone, losses compared.

    trial, notes = scaled(trial, ranks=8)       what this machine can hold, and what was made smaller for it
    finding = proof(trial, notes, timeout_s=120)

Splits survive the scaling: what was divided over several ranks still is, with the same schedule, ZeRO stage and recompute.
Weights depend on a parameter's name alone, so both runs start from the same numbers.
"""
from __future__ import annotations

import math
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from seatrial import arith, columns, rules
from seatrial.doctor import Finding, worst
from seatrial.doctor.machine import usable_bytes
from seatrial.engine.rendezvous import RankInfo, join
from seatrial.errors import BadInput
from seatrial.recipe import Recipe
from seatrial.schedule import KINDS
from seatrial.spec import GIB, Batch, Environment, Execution, Latent, Model, Topology, Trial, kv_fits, round_up

BAR = 1e-5
"""Largest relative difference of a loss or a gradient norm, as the tests of the engine have it."""
TOPOLOGY = [columns.COLUMNS[name] for name in columns.names("topology")]
STEPS = 4
SMALL_PARAMETERS = 3e6
"""Up to here a model is taken as it is."""
SMALL_BATCH = 64
RANK_BYTES = GIB // 2
"""What a rank of a small model takes, most of it torch itself."""
LEARNING = Recipe(steps=STEPS, lr=1e-2, min_lr=1e-3, warmup_steps=1, warmup_iterations=0,
                    stall_s=60.0)
EXECUTION = Execution(bucket_mib=0.05, logits_chunk=24, device="cpu", threads=1)


def most_ranks(cores: int) -> int:
    """Ranks that this machine can hold: 8 share two cores well enough for a proof."""
    return max(1, min(max(8, cores), usable_bytes() // RANK_BYTES))


def scaled(trial: Trial, *, ranks: int, keep_model: bool = True) -> tuple[Trial, list[str]]:
    """The trial cut down to so many ranks, and what was cut. A model that nobody chose may be any that fits (`keep_model`)."""
    topology = _fewer_ranks(trial.topology, ranks)
    topology = replace(topology, mbs=min(topology.mbs, 2), vp=min(topology.vp, 2), precision="fp32", stage_layers=None)
    small = replace(trial, topology=topology, cluster=None, command=None, engine="seatrial", environment=Environment(),
                    execution=EXECUTION)
    if not keep_model or arith.parameters(trial.model).total > SMALL_PARAMETERS or _breaks(small):
        small = replace(small, model=_small_model(trial.model, topology))
    else:
        small = replace(small, topology=replace(topology, stage_layers=_same_stages(trial, topology)))
    if not keep_model or trial.batch.gbs > SMALL_BATCH or any(v.level == "error" for v in rules.violations(small)):
        small = replace(small, batch=_small_batch(trial.batch, topology))
    if trial.batch.documents is not None:
        # Such that they end anywhere, in a short sequence too; but few tokens alone, whose queries and keys have gradients of
        # next to nothing, from which AdamW's first steps make large ones of either sign.
        seq = small.model.seq
        small = replace(small, batch=replace(small.batch, documents=f"uniform:{max(2, seq // 8)}:{5 * seq // 8}"))
    rules.check(small)
    return small, _notes(trial, small, keep_model=keep_model)


def _fewer_ranks(t: Topology, ranks: int) -> Topology:
    degrees = {name: getattr(t, name) for name in sorted(columns.DEGREES)}
    while math.prod(degrees.values()) > ranks:
        # What was split stays split as long as it can: all down to two before any to one.
        floor = 2 if max(degrees.values()) > 2 else 1
        name = max(degrees, key=lambda n: (degrees[n] > floor, degrees[n]))
        degrees[name] = max(floor, degrees[name] // 2)
    if degrees["cp"] < 4 and t.cp_kind == "ulysses+ring":
        t = replace(t, cp_kind="ring")  # two ranks are neighbours or a ring, not both
    if degrees["pp"] < 2 and KINDS[t.schedule].virtual:
        t = replace(t, vp=1, schedule="1f1b")
    ranks = math.prod(degrees[name] for name in ("dp", "cp", "tp"))
    etp = degrees["tp"] if t.etp is None else math.gcd(t.etp, ranks // (2 if t.ep > 1 and ranks > 1 else 1))
    return replace(t, **degrees, ep=math.gcd(ranks // etp, t.ep), etp=None if t.etp is None else etp)


def _breaks(trial: Trial) -> bool:
    """Whether the model itself does not go with the topology; the batch is made to fit later."""
    return any(v.level == "error" for v in rules.topology_fits_model(trial.model, trial.topology, trial.engine))


def _same_stages(trial: Trial, small: Topology) -> tuple[int, ...] | None:
    same = (trial.topology.pp, trial.topology.vp) == (small.pp, small.vp)
    return trial.topology.stage_layers if same else None


def _small_model(model: Model, t: Topology) -> Model:
    """Of the same architecture and kind of shape: uneven layers stay uneven, shared key-value heads stay shared, a head size
    of its own stays one."""
    stages = t.pp * t.vp
    uneven = model.layers % stages != 0
    shared, ring = {"ulysses": (t.cp, 1), "ulysses+ring": (t.cp // 2, 2)}.get(t.cp_kind, (1, t.cp))
    kv = t.tp * (1 if t.tp > 1 and shared == 1 else max(2, shared))
    heads = kv if model.kv == model.heads else 2 * kv
    heads *= 1 if heads >= 4 else 2
    kv_heads = None if model.kv == model.heads else heads // 2
    if model.kv < t.tp and kv_fits(model.kv, t.tp) and shared == 1:
        heads, kv_heads = t.tp, model.kv  # ranks that share a key-value head stay such
    hidden = 16 * heads
    ffn = None
    if model.ffn is not None:
        ffn = max(1, round(model.ffn / model.hidden * hidden / t.tp)) * t.tp
    seq = round_up(8 * t.tp if t.tp > 2 else 16, math.lcm(2 * ring, t.tp * t.cp) if t.cp > 1 else 1)
    layers = max(2, stages + uneven)
    return replace(model, layers=layers, hidden=hidden, heads=heads, vocab=101, pad_vocab_to=None,
                   seq=seq, kv_heads=kv_heads, ffn=ffn,
                   head_dim=None if model.head_dim is None else 24, **_small_experts(model, t, layers),
                   latent=None if model.latent is None else _small_latent(model.latent),
                   sliding_window=5 if model.has_windows else model.sliding_window)


def _small_latent(latent: Latent) -> Latent:
    return replace(latent, q_rank=None if latent.q_rank is None else 20, kv_rank=12, rope_dim=8, value_dim=16)


def _small_experts(model: Model, t: Topology, layers: int) -> dict[str, Any]:
    if model.experts is None or model.chosen is None:
        return {}
    r = model.router
    experts = round_up(8, math.lcm(t.ep, r.groups))
    return {"experts": experts, "top_k": min(model.chosen, 4, experts // r.groups * r.limit),
            "expert_ffn": 8 * math.lcm(t.tp, t.expert_tp), "dense_layers": min(model.dense_layers, layers // 2),
            "expert_every": min(model.expert_every, layers - layers // 2)}


def _alone(trial: Trial) -> Trial:
    """One process; where tokens of several sequences are counted together for their experts, it has these in a micro-batch."""
    t, mbs = trial.topology, 1
    if trial.model.mixture:
        mbs = {"sequence": 1, "rank": t.mbs, "global": t.mbs * t.dp}[trial.model.router.over]
    return replace(trial, topology=Topology(mbs=mbs, moe_balance=t.moe_balance))


def _small_batch(batch: Batch, t: Topology) -> Batch:
    """Two micro-batches per stage; a ramp-up stays one, of two sizes."""
    unit = t.dp * t.mbs * t.pp
    if batch.rampup_start is None:
        return Batch(gbs=2 * unit, documents=batch.documents)
    return Batch(gbs=2 * unit, rampup_start=unit, rampup_increment=unit, rampup_samples=2 * unit, documents=batch.documents)


def _notes(wanted: Trial, small: Trial, *, keep_model: bool) -> list[str]:
    found = []
    for column in TOPOLOGY:
        before, after = getattr(wanted.topology, column.field), getattr(small.topology, column.field)
        if before != after:
            why = ", whose rounding hides nothing" if column.field == "precision" else ""
            found.append(f"{column.text(before)} -> {after}{why}")
    if keep_model and wanted.model != small.model:
        found.append(f"the model -> {small.model.layers} layers of {small.model.hidden}, {small.model.heads} heads")
    if keep_model and wanted.batch.gbs != small.batch.gbs:
        found.append(f"GBS {wanted.batch.gbs} -> {small.batch.gbs}")
    if wanted.batch.documents != small.batch.documents:
        found.append(f"documents {wanted.batch.documents} -> {small.batch.documents}")
    if wanted.engine != "seatrial":
        found.append(f"engine {wanted.engine} -> seatrial")
    return found


@dataclass(frozen=True, kw_only=True)
class Series:
    losses: Sequence[float]
    norms: Sequence[float]


def difference(many: Sequence[float], alone: Sequence[float]) -> float:
    """The largest relative one; infinite where one has fewer steps or a value that is no number."""
    if len(many) != len(alone) or not alone or not all(map(math.isfinite, (*many, *alone))):
        return math.inf
    return max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(many, alone))


def verdict(what: str, many: Series, alone: Series, *, notes: list[str], facts: dict[str, Any]) -> Finding:
    losses, norms = difference(many.losses, alone.losses), difference(many.norms, alone.norms)
    facts = {**facts, "bar": BAR, "loss_difference": losses, "norm_difference": norms, "losses": list(many.losses),
             "losses_alone": list(alone.losses), "scaled": notes}
    if max(losses, norms) > BAR:
        message = f"losses differ by {losses:.1e}, gradient norms by {norms:.1e}, the bar is {BAR:g}"
        return Finding("topology", "fail", f"{what}, does not train like one process: {message}",
                       "this is a bug of the engine or of this torch, and worth a report with --json", facts)
    first, last = alone.losses[0], alone.losses[-1]
    if not last < first:
        return Finding("topology", "fail", f"{what}: the loss does not fall, {first:.4f} to {last:.4f}",
                       "equal losses prove nothing when nothing is learned; try another --seed", facts)
    message = f"losses of {len(alone.losses)} steps differ by {losses:.1e}, gradient norms by {norms:.1e}, the bar is {BAR:g}"
    return Finding("topology", "ok", f"{what}, trains like one process: {message}", facts=facts)


def proof(trial: Trial, notes: list[str], *, timeout_s: float, seed: int = LEARNING.seed) -> Finding:
    """Trains twice; the folder of a run that failed is kept and named."""
    from seatrial.launch.trial import run_now, summary_of_invalid

    what, began = described(trial.topology), time.monotonic()
    recipe = replace(LEARNING, seed=seed)
    folder = Path(tempfile.mkdtemp(prefix="seatrial-doctor-"))
    series = []
    for name, one in (("ranks", trial), ("alone", _alone(trial))):
        left_s = max(1.0, timeout_s - (time.monotonic() - began))
        try:
            found = run_now(one, recipe, out=folder / name, timeout_s=left_s)
        except BadInput as error:
            found = summary_of_invalid(error)
        if found["status"] != "ok":
            who = f"{one.topology.world} gloo ranks" if one.topology.world > 1 else "one process"
            return Finding("topology", "fail", f"{what}: {who} ended with {found['status']}: {found['message']}",
                           f"their output is in {folder / name}", {"status": found["status"], "scaled": notes})
        series.append(Series(losses=found["losses"], norms=found["grad_norms"]))
    shutil.rmtree(folder, ignore_errors=True)
    facts = {"topology": what, "world": trial.topology.world, "seconds": round(time.monotonic() - began, 1)}
    return verdict(what, series[0], series[1], notes=notes, facts=facts)


def described(t: Topology) -> str:
    degrees = t.product.rpartition(" = ")[0]
    more = [column.text(value) for column in TOPOLOGY if not column.about.degree and column.field != "mbs"
            and (value := getattr(t, column.field)) != column.default]
    return ", ".join([degrees, *more, f"on {t.world} gloo rank{'s' if t.world > 1 else ''}"])


# ---- the doctor on all nodes of a job at once: `srun seatrial doctor`, `torchrun … -m seatrial doctor`


ROUNDS = 7
JOIN_S = 120.0
LARGEST_SKEW_S = 1.0
"""Records of one run carry the time of their node: beyond this their order is not the order of events."""


def gathered(place: RankInfo, findings: list[Finding]) -> dict[str, list[Finding]] | None:
    """What every node found, and the clocks compared; on rank 0 alone."""
    try:
        join(place, torch.device("cpu"), timeout_s=JOIN_S)
    except (RuntimeError, OSError) as error:
        first = next(iter(str(error).splitlines()), "")[:200]
        raise BadInput(f"rank {place.rank} did not meet the other {place.world - 1} within {JOIN_S:.0f} s ({first}): "
                       "start the doctor once for every rank, as with srun or torchrun") from None
    try:
        mine = (f"{socket.gethostname()}:{place.rank}" if place.local_rank == 0 else "", findings)
        everyone: list[tuple[str, list[Finding]]] = [("", [])] * place.world
        dist.gather_object(mine, everyone if place.rank == 0 else None, dst=0)
        leaders = [place.local_rank == 0]
        flags: list[list[bool]] = [[False]] * place.world
        dist.all_gather_object(flags, leaders)
        offset_s = offsets(place.rank, [rank for rank, (leads,) in enumerate(flags) if leads and rank])
        dist.barrier()
    finally:
        dist.destroy_process_group()
    if place.rank:
        return None
    by_node = {name: found for name, found in everyone if name}
    first = next(iter(by_node))
    by_node[first] = [*by_node[first], skew({name: offset_s.get(int(name.rpartition(":")[2]), (0.0, 0.0)) for name in by_node})]
    return by_node


def offsets(rank: int, peers: list[int]) -> dict[int, tuple[float, float]]:
    """Rank 0: of each peer, how far its clock is ahead and how far that may be wrong, in seconds."""
    found: dict[int, tuple[float, float]] = {}
    beat = torch.zeros(1, dtype=torch.float64)
    for peer in peers:
        if rank == peer:
            for _ in range(ROUNDS):
                dist.recv(beat, src=0)
                dist.send(torch.tensor([time.time()], dtype=torch.float64), dst=0)
        elif rank == 0:
            answers = []
            for _ in range(ROUNDS):
                sent = time.time()
                dist.send(beat, dst=peer)
                dist.recv(beat, src=peer)
                received = time.time()
                answers.append((received - sent, float(beat) - (sent + received) / 2))
            trip_s, offset_s = min(answers)
            found[peer] = offset_s, trip_s / 2
    return found


def skew(by_node: Mapping[str, tuple[float, float]]) -> Finding:
    ahead = {name: offset for name, (offset, _) in by_node.items()}
    spread = max(ahead.values()) - min(ahead.values())
    error = max(error for _, error in by_node.values())
    message = f"{len(by_node)} nodes, clocks within {1000 * spread:.1f} ms of each other (± {1000 * error:.1f})"
    facts = {"ahead_s": ahead, "error_s": error}
    if spread > LARGEST_SKEW_S + error:
        return Finding("skew", "warn", message, "chrony or ntpd on every node", facts)
    return Finding("skew", "ok", message, facts=facts)


def merged(by_node: Mapping[str, list[Finding]]) -> list[Finding]:
    """One line a check: rank 0's where all agree on the level, and each node that is worse by name."""
    first, *others = by_node.items()
    out = []
    for finding in first[1]:
        same = {name: next((f for f in found if f.name == finding.name), finding) for name, found in others}
        all_of_them = [finding, *same.values()]
        level = worst(all_of_them)
        if level == "ok":
            out.append(finding)
            continue
        named = {first[0]: finding, **same}
        bad = [f"{name}: {f.text}" for name, f in named.items() if f.level == level]
        rest = f" (and {len(bad) - 2} other nodes)" if len(bad) > 2 else ""
        out.append(Finding(finding.name, level, "; ".join(bad[:2]) + rest, facts=finding.facts))
    return out
