"""One layout taken apart: where its seconds and its GiB go, what limits it, and which single change would make it better.

    explained = explain(trial)
    explained.parts["bubble"], explained.memory["weights"], explained.limits, explained.changes[0]

A change is one knob (micro-batch, ZeRO and its group, recompute, schedule, layers per stage, sequence parallelism, the kind of
context parallelism) or one factor moved between DP, TP, PP and CP.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from seatrial import rules
from seatrial.arith import TIE
from seatrial.arith.layer import widths
from seatrial.columns import DEGREES, LAYOUT, by_field
from seatrial.documents import CORPUS
from seatrial.engines.model import EngineModel, model_of
from seatrial.errors import BadInput
from seatrial.plan import experts, stages, step
from seatrial.plan.calibrate import Calibration
from seatrial.plan.configs import ATTENTION, Configs
from seatrial.plan.context import exchanged_bytes
from seatrial.plan.documents import packed, slowest
from seatrial.plan.held import Held
from seatrial.plan.odds import LIKELY, UNLIKELY, Headroom, percent, word
from seatrial.plan.search import learned, whole_nodes
from seatrial.schedule import KINDS, Kind, Timeline, walk
from seatrial.spec import BYTES, GIB, Topology, Trial, context_split, round_up, stages_of
from seatrial.stages import short

WHY = {
    "matmul": "the GEMMs of the layers: what the run is for",
    "attention": "scores, softmax and weighted sum",
    "logits": "the vocabulary's GEMM and loss, on the last stage alone",
    "memory": "norms, activations, dropout: as fast as the memory",
    "tensor": "all-reduces of tensor parallelism, at every layer",
    "exchange": "keys and values of other ranks' tokens, as far as attention does not hide them",
    "experts": "the GEMMs of the chosen experts, and the router's",
    "dispatch": "tokens on the way to their experts and back",
    "wait": "for the rank whose experts got the most tokens",
    "p2p": "activations and gradients between stages",
    "bubble": "waiting while the pipeline fills and drains, or for a slower stage",
    "gradients": "reducing gradients over the replicas",
    "optimizer": "the optimizer's pass over its state",
    "accumulate": "adding each micro-batch's gradient to the sum",
    "launch": "waiting for the host to start kernels",
    "fixed": "what every iteration pays once",
}
"""What each part is, in a few words."""

REMEDY = {
    "bubble": "more micro-batches (smaller MBS, larger batch), fewer stages, or virtual stages",
    "tensor": "a smaller TP, kept inside a node",
    "exchange": "a smaller CP, kept inside a node, or another kind of it",
    "dispatch": "a smaller EP, kept inside a node, or another dispatcher",
    "wait": "a smaller EP, so that a rank's experts even each other out, or a router that balances better",
    "experts": "a smaller ETP or a larger MBS, so that each expert has more rows",
    "p2p": "fewer stages, or fewer virtual ones",
    "gradients": "a larger batch, or fewer replicas",
    "launch": "a larger MBS or a smaller TP, so that kernels are longer",
    "memory": "selective recompute in place of full",
    "accumulate": "a larger MBS: fewer, larger micro-batches",
    "optimizer": "ZeRO 1, which shares the optimizer out",
    "matmul": "shapes that fill tiles and waves (seatrial shape), or less recompute",
    "attention": "fewer, larger heads, or fused attention",
    "logits": "a stage less loaded: give the last one fewer layers",
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One step away from the layout that was asked about."""

    what: str
    trial: Trial | None
    """None where the rules forbid it."""
    sec: float | None
    mem_gib: float | None
    gain: float | None
    """Share of the time saved; negative where it is slower."""
    odds: float | None
    """That it fits."""
    reject: str
    """Empty, or the code of the rule that forbids it, `memory` when it does not fit."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    trial: Trial
    sec: float
    lo: float
    hi: float
    parts: dict[str, float]
    """Seconds of one iteration; they add up to `sec`."""
    mem_gib: float
    memory: dict[str, float]
    """GiB on the fullest device."""
    limit_gib: float
    odds: float
    """That what it cannot run without is there; the allocator's reserve can shrink."""
    engine: EngineModel
    """Whose facts the forecast stands on."""
    attention: str
    """The kernel it is forecast with."""
    timeline: Timeline | None
    """None where there are more stages than a picture can show."""
    drawn: int
    """Micro-batches in the timeline: enough to see the pattern."""
    context: str
    """What context parallelism makes of it, in a line; empty without."""
    documents: str
    """What packed documents make of attention; empty without."""
    experts: str
    """What a rank holds of experts and gets of tokens; empty without."""
    limits: list[str]
    """What holds it back, most first."""
    warnings: list[rules.Violation]
    changes: list[Change]
    """Best first; those that cannot be come last."""

    @property
    def fits(self) -> bool:
        """False where it is likely to run out of memory."""
        return self.odds >= UNLIKELY


def explain(trial: Trial, fit: Calibration | None = None, *, most_drawn: int = 12,
            headroom: Headroom = Headroom()) -> Explained:
    """Raises Infeasible for a layout that breaks a rule."""
    warnings = rules.check(trial)
    assert trial.cluster is not None
    cluster = trial.cluster
    configs = Configs.from_trials([trial])
    timed = step.time(configs, cluster, learned(fit))
    held = Held.of(configs, cluster, fit, headroom)
    sec, gib, need = float(timed.sec[0]), float(held.gib[0]), float(held.need_gib[0])
    parts = {name: float(values[0]) for name, values in timed.parts.items()}
    few = trial.topology.pp * trial.topology.vp <= MOST_STAGES_DRAWN
    timeline, drawn = draw(trial, timed, most_drawn) if few else (None, 0)
    limit, odds = float(held.limit_gib), float(held.odds[0])
    return Explained(
        trial=trial, sec=sec, lo=float(timed.lo[0]), hi=float(timed.hi[0]), parts=parts, mem_gib=gib,
        memory={name: float(values[0]) for name, values in held.parts.items()}, limit_gib=limit, odds=odds,
        engine=model_of(trial.engine), attention=kernel_of(trial), timeline=timeline, drawn=drawn,
        context=in_context(configs, trial), documents=in_documents(trial), experts=in_experts(configs, trial),
        limits=limits(parts, sec, need, limit, odds, model_of(trial.engine)), warnings=warnings,
        changes=changes(trial, sec, fit, headroom),
    )  # fmt: skip


MOST_STAGES_DRAWN = 256


def in_context(c: Configs, trial: Trial) -> str:
    """How a sequence lies over the ranks, what they send each other, and what they hold of it."""
    t, element = trial.topology, np.array([float(max(2, BYTES[trial.topology.precision]))])
    if t.cp == 1:
        return ""
    width = widths(c, c.tp)
    block = float((c.tokens * (width.qkv - width.context) * element)[0])
    # Our own engine counts it in what a block has at work.
    held = 0.0 if model_of(trial.engine).footprint else float(exchanged_bytes(c, element)[0])
    return (f"CP {t.cp} by {t.cp_kind}: {trial.model.seq // t.cp:,} tokens of a sequence a rank, their keys and values "
            f"{block / 2**20:,.0f} MiB a layer" + f"; {held / GIB:.2f} GiB of other ranks' while attention runs" * (held > 0))


def in_documents(trial: Trial) -> str:
    """What of attention is left inside documents, and how unevenly it lies over the ranks."""
    t, asked, seq = trial.topology, trial.batch.documents, trial.model.seq
    if asked is None:
        return ""
    if asked == CORPUS:
        return "documents of a corpus, whose lengths are not known here: attention as if each sequence were one of them"
    found, ring = packed(asked, seq), context_split(trial.model, t)[1]
    group, replica = slowest(asked, seq, ring, t.mbs, t.dp, trial.microbatches)
    ranks = "" if ring == 1 else f", {group - 1:.0%} more of it on the slowest rank of a ring of {ring}"
    replicas = "" if t.dp == 1 else f", {replica - 1:.1%} more on the slowest of {t.dp} replicas"
    return f"documents {asked}: {found.each:.3g} a sequence, {found.share:.1%} of its attention left{ranks}{replicas}"


def in_experts(c: Configs, trial: Trial) -> str:
    """What a rank holds of experts and gets of tokens, and by how much the fullest has more."""
    t, m = trial.topology, trial.model
    if not m.mixture:
        return ""
    held, rows, more = int(experts.held(c)[0]), float(experts.rows(c)[0]), float(experts.excess(c)[0])
    kept = float(experts.kept_excess(c, experts.depths(c).max(axis=0))[0][0])
    share = "" if t.expert_tp == 1 else f", each over {t.expert_tp} ranks"
    uneven = "as many on every rank (balance forced)" if t.moe_balance == "forced" else (
        f"{more:.0%} more on the fullest of a layer, {kept:.0%} over the layers of a rank" if t.ep > 1 else "all on one rank")
    return (f"EP {t.ep} with ETP {t.expert_tp} by {t.moe_dispatcher}: {held} of {m.experts} experts a rank{share}"
            f"{f', {t.edp} times in all' if t.edp > 1 else ''}; {rows:,.0f} rows a layer and micro-batch, {uneven}")


def draw(trial: Trial, timed: step.StepTime, most: int) -> tuple[Timeline, int]:
    """The schedule walked with this layout's own times, with fewer micro-batches where there are very many."""
    t = trial.topology
    assert timed.stages is not None
    wanted = max(most, t.pp + t.pp // 2)
    drawn = min(trial.microbatches, round_up(wanted, KINDS[t.schedule].group(t.pp)))
    forward_s, backward_s = (seconds[:, 0].tolist() for seconds in timed.stages.seconds(np.zeros(1, dtype=np.int64)))
    return walk(t.schedule, pp=t.pp, microbatches=drawn, virtual=t.vp, forward_s=forward_s, backward_s=backward_s), drawn


def kernel_of(trial: Trial) -> str:
    """The kernel of attention that a trial is forecast with."""
    assert trial.cluster is not None
    return trial.execution.attention or model_of(trial.engine).attention_on(trial.cluster.device)


SAID = {"tight": "tight", "no": "it would run out"}


def limits(parts: dict[str, float], sec: float, need_gib: float, limit_gib: float, odds: float, can: EngineModel) -> list[str]:
    """What takes more than its due, in words."""
    lines = []
    if said := SAID.get(word(odds)):
        lines.append(f"memory: it cannot do without {need_gib:.1f} GiB of {limit_gib:.1f}, and fits with "
                     f"{percent(odds)}: {said}")
    for name, value in sorted(parts.items(), key=lambda item: -item[1]):
        due = 0.6 if name in ("matmul", "experts") else 0.05
        if value > due * sec and name in REMEDY:
            with_tp = "a larger TP with sequence parallelism, or " if name == "memory" and can.cuts_sequence else ""
            lines.append(f"{name}: {value / sec:.0%} of the time; {with_tp}{REMEDY[name]}")
    return lines


def changes(trial: Trial, sec: float, fit: Calibration | None = None, headroom: Headroom = Headroom()) -> list[Change]:
    """Everything one step away, forecast together."""
    assert trial.cluster is not None
    steps = [(what, replace(trial, topology=t)) for what, t in neighbours(trial) if t != trial.topology]
    split, balanced = stages_of(trial.model, trial.topology), stages.balanced(trial, fit, headroom)
    if balanced != split:
        steps.append((f"layers per stage {short(split)} -> {short(balanced)}",
                      replace(trial, topology=replace(trial.topology, stage_layers=balanced))))
    if not model_of(trial.engine).footprint:  # ours takes the fastest by itself
        steps += [(f"attention {now} -> {kernel}", replace(trial, execution=replace(trial.execution, attention=kernel)))  # type: ignore[arg-type]
                  for now in (kernel_of(trial),) for kernel in ATTENTION if kernel != now]
    able = [(what, other) for what, other in steps if not _refused(other)]
    found = [Change(what=what, trial=None, sec=None, mem_gib=None, gain=None, odds=None, reject=code) for what, other in steps
             if (code := _refused(other))]
    if able:
        configs = Configs.from_trials([other for _, other in able])
        held, timed = Held.of(configs, trial.cluster, fit, headroom), step.time(configs, trial.cluster, learned(fit)).sec
        odds = held.odds
        found += [Change(what=what, trial=other, sec=float(timed[i]), mem_gib=float(held.shown_gib[i]),
                         gain=1 - float(timed[i]) / sec, odds=float(odds[i]), reject="" if odds[i] >= UNLIKELY else "memory")
                  for i, (what, other) in enumerate(able)]
    return sorted(found, key=lambda change: (bool(change.reject), -(change.gain if change.gain is not None else -9)))


def _refused(trial: Trial) -> str:
    """The code of the rule that forbids it, or nothing."""
    return next((v.code for v in rules.violations(trial) if v.level == "error" or v.code in rules.LACKS), "")


def better(explained: Explained) -> list[Change]:
    """Those that are likely to fit and gain more than what nobody can tell; of a layout that does not fit, all that do."""
    return [change for change in explained.changes if change.odds is not None and change.odds >= LIKELY
            and (not explained.fits or (change.gain or 0) > TIE)]


def neighbours(trial: Trial) -> list[tuple[str, Topology]]:
    t, can = trial.topology, model_of(trial.engine)
    out: list[tuple[str, Topology]] = []

    def add(what: str, **other: Any) -> None:
        try:
            out.append((what, _moved(t, **other)))
        except BadInput:  # groups that the degrees would no longer be multiples of
            pass

    degrees = tuple(name for name in DEGREES if name in ("dp", *can.divides) or name == "cp" and can.context)
    for factor in (2, 3):
        if factor == 2 or t.mbs % 3 == 0:
            add(f"MBS {t.mbs} -> {t.mbs * factor}", mbs=t.mbs * factor)
        if t.mbs % factor == 0:
            add(f"MBS {t.mbs} -> {t.mbs // factor}", mbs=t.mbs // factor)
        for more in degrees:
            for less in degrees:
                a, b = getattr(t, more), getattr(t, less)
                if more == less or b % factor:
                    continue
                moved: dict[str, Any] = {more: a * factor, less: b // factor}
                if moved.get("pp", t.pp) == 1 and KINDS[t.schedule].virtual:
                    continue
                if more == "cp" and t.cp == 1:
                    moved["cp_kind"] = can.context[0]
                add(f"{more.upper()} {a} -> {a * factor}, {less.upper()} {b} -> {b // factor}", **moved)
    if t.cp > 1:
        for other in can.context:
            if other != t.cp_kind:
                add(f"CP by {t.cp_kind} -> {other}", cp_kind=other)
    if trial.model.mixture and can.expert_parallel:
        for ep in (t.ep * 2, t.ep // 2):
            if ep:
                add(f"EP {t.ep} -> {ep}", ep=ep)
        for etp in {1, t.tp} - {t.expert_tp}:
            add(f"ETP {t.expert_tp} -> {etp}", etp=etp)
            add(f"ETP {t.expert_tp} -> {etp}, EP {t.ep} -> {t.ep * t.expert_tp // etp}", etp=etp,
                ep=max(1, t.ep * t.expert_tp // etp))
        if t.ep * t.expert_tp > 1:
            for way in can.dispatchers:
                if way != t.moe_dispatcher:
                    add(f"dispatcher {t.moe_dispatcher} -> {way}", moe_dispatcher=way)
    if can.hybrid_sharding and t.zero and trial.cluster is not None:
        now = t.zero_group or t.data_ranks
        for group in (*whole_nodes(t.tp, t.data_ranks, trial.cluster.procs_per_node), t.data_ranks):
            if group != now:
                add(f"ZeRO group {now} -> {group}", zero_group=None if group == t.data_ranks else group)
    out += [(f"ZeRO {t.zero} -> {zero}", replace(t, zero=zero)) for zero in can.zero_stages
            if zero != t.zero and t.data_ranks > 1]
    out += [(f"recompute {t.recompute} -> {mode}", replace(t, recompute=mode, recompute_modules=None))
            for mode in can.recomputes if mode != t.recompute]
    if t.pp > 1:
        for kind in can.schedules:
            for vp in (2, 3, 4) if KINDS[kind].virtual else (1,):
                if (kind, vp) != (t.schedule, t.vp):
                    what = f"schedule {t.schedule} -> {kind}" + (f" with {vp} virtual stages" if vp > 1 else "")
                    out.append((what, _moved(t, schedule=kind, vp=vp)))
    if t.tp > 1 and not can.sequence_parallel and (can.cuts_sequence or t.sequence_parallel):
        out.append((f"sequence parallelism {'off' if t.sequence_parallel else 'on'}",
                    replace(t, sequence_parallel=not t.sequence_parallel)))
    return out


def _moved(t: Topology, **moved: Any) -> Topology:
    """A list of layers is for as many stages as it has entries."""
    changed = replace(t, stage_layers=None, **moved)
    return replace(changed, stage_layers=t.stage_layers) if changed.pp * changed.vp == t.pp * t.vp else changed


def document(explained: Explained, top: int) -> dict[str, Any]:
    """All of it as plain data, with the best `top` changes apart."""
    trial = explained.trial
    return {
        "model": trial.model.name or None, "cluster": trial.cluster.name if trial.cluster else None, **by_field(trial, LAYOUT),
        "sec_per_it": explained.sec, "sec_lo": explained.lo, "sec_hi": explained.hi, "parts_s": explained.parts,
        "mem_gib": explained.mem_gib, "mem_limit_gib": explained.limit_gib, "fits": explained.fits,
        "fit_odds": explained.odds, "engine": explained.engine.name, "attention": explained.attention,
        "memory_gib": explained.memory,
        "context": explained.context, "documents": explained.documents,
        **({"experts": explained.experts} if explained.experts else {}),
        "limits": explained.limits, "warnings": [warning.code for warning in explained.warnings],
        "better": [_change(change) for change in better(explained)[:top]],
        "changes": [_change(change) for change in explained.changes],
    }  # fmt: skip


def _change(change: Change) -> dict[str, Any]:
    return {"what": change.what, "sec_per_it": change.sec, "mem_gib": change.mem_gib, "gain": change.gain,
            "fit_odds": change.odds, "reject": change.reject}


COLOURS = {Kind.FORWARD: ("#4477aa", "#88aacc"), Kind.BACKWARD: ("#228833", "#77bb88"), Kind.WEIGHT: ("#ccbb44", "#ddd088")}
"""For the first virtual stage and for the later ones; told apart without colour by their letter."""
ROW, LEFT, TOP = 26, 64, 44


def svg(made: Timeline, *, title: str, width: int = 1200) -> str:
    """The timeline as a picture that stands alone: no script, no font, no outside reference."""
    scale = (width - LEFT - 10) / made.total_s if made.total_s else 0.0
    height = TOP + ROW * len(made.ranks) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
    ]
    for rank, spans in enumerate(made.ranks):
        y = TOP + rank * ROW
        lines.append(f'<text x="10" y="{y + 16}">rank {rank}</text>')
        lines.append(f'<rect x="{LEFT}" y="{y}" width="{made.total_s * scale:.2f}" height="{ROW - 4}" fill="#eeeeee"/>')
        for span in spans:
            x, w = LEFT + span.start_s * scale, (span.end_s - span.start_s) * scale
            colour = COLOURS[span.action.kind][min(1, span.action.chunk)]
            lines.append(f'<rect x="{x:.2f}" y="{y}" width="{w:.2f}" height="{ROW - 4}" fill="{colour}" stroke="#ffffff" '
                         f'stroke-width="0.5"><title>{span.action}: {span.start_s:.4f} s to {span.end_s:.4f} s</title></rect>')
            label = str(span.action)
            if w > 7 * len(label):
                lines.append(f'<text x="{x + w / 2:.2f}" y="{y + 15}" text-anchor="middle" fill="#ffffff">{label}</text>')
    end = TOP + ROW * len(made.ranks) + 16
    lines.append(f'<text x="{LEFT}" y="{end}">0 s</text>')
    lines.append(f'<text x="{width - 10}" y="{end}" text-anchor="end">{made.total_s:.3f} s</text>')
    return "\n".join([*lines, "</svg>", ""])
