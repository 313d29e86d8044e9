"""The planner's answers as pages of text.

    print_plan(answer(found, request, top=5, by="time"), request)
    explained(explain(trial), top=5)
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from seatrial import terminal
from seatrial.arith import TIE, parameters
from seatrial.columns import BY_FIELD, SEARCHED, degrees
from seatrial.plan.answer import Document
from seatrial.plan.explain import WHY, Explained, better
from seatrial.plan.odds import LIKELY, percent
from seatrial.plan.request import Request
from seatrial.plan.space import GROUPS
from seatrial.schedule import picture
from seatrial.stages import read, short

DRAWN = 6
"""Layouts that are drawn: more are a wall, and the table has them."""
NARROWEST, WIDEST = 36, 100
"""Columns that the pictures need at least, and take at most."""
SPACIOUS = 72
"""From here on there is room for figures beside the intervals."""
MEASURED = "s measured"


ENGINE = "Engine {engine}, attention {attention}."


class _Column(NamedTuple):
    header: str
    cell: Callable[[dict[str, Any]], str]
    left: bool = False


def print_plan(document: Document, request: Request) -> None:
    cluster, candidates = request.cluster, document["candidates"]
    shapes = bool(candidates) and "layers" in candidates[0]
    of, nodes = "shapes" if shapes else request.model.name or "the model", f"{cluster.nodes} node{'s'[:cluster.nodes > 1]}"
    terminal.say(f"{of} on {cluster.name}: {nodes} x {cluster.procs_per_node} = {cluster.world} devices, "
                 f"batch {','.join(map(str, request.space.gbs))}, {document['precision']}")
    print(ENGINE.format(**document))
    if "around" in document:
        _around(document["around"])
    if "active_parameters" in document:
        terminal.say(_size(document["parameters"], document["active_parameters"], document["mtp_parameters"]))
    rejected = ", ".join(f"{code} {count:,}" for code, count in document["rejected"].items())
    terminal.say(f"{document['considered']:,} layouts considered, {document['accepted']:,} can run"
                 + (f"; rejected: {rejected}" if rejected else ""))
    print()
    if not candidates:
        terminal.say(document["reason"])
        for near in document["nearest"]:
            sure = near["fits"] == "yes"
            tight = "" if sure else f", tight {near['fit_odds']:.0%}"
            terminal.say(f"  letting go of {near['freed']}: {layout(near)} {'would' if sure else 'may'} run: "
                         f"{terminal.seconds(near['sec_per_it'])} s, {near['mem_gib']:.1f} GiB{tight}", 6)
        return
    columns = _columns(candidates, shapes, several_nodes=request.space.nodes is not None)
    rows = [[str(i + 1), *(column.cell(c) for column in columns)] for i, c in enumerate(candidates)]
    headers, rows, said = terminal.fitting(["#", *(column.header for column in columns)], rows,
                                           alike=(*(_header(name) for name in reversed(SEARCHED)), "nodes"),
                                           spare=("TFLOPs", "tok/s", "MFU"))
    left = {column.header for column in columns if column.left}
    terminal.table(headers, rows, bold=max(1, min(document["ties"], len(rows))),
               left=[i for i, header in enumerate(headers) if header in left])  # fmt: skip
    if said:
        terminal.say(said)
    print()
    draw(candidates[:DRAWN], cells=min(terminal.width(), WIDEST))
    _remarks(document)


def _around(given: dict[str, Any]) -> None:
    """The layout that the question began with, before those that might replace it."""
    rank = f"number {given['rank']:,} of {given['of']:,} by time and odds of fitting"
    if not given["of"] or given["fits"] == "no":
        rank = f"none of the {given['of']:,} that can run" if given["of"] else "and nothing else runs"
    behind = f", {given['slower_by']:.1%} behind the first" if (given["slower_by"] or 0) > 0 else ""
    fits = {"yes": "fits", "tight": f"fits with {percent(given['fit_odds'])}"}.get(given["fits"], "may well run out of memory")
    seconds, low, high = (terminal.seconds(given[name]) for name in ("sec_per_it", "sec_lo", "sec_hi"))
    terminal.say(f"{given['file']} runs {layout(given)}: {seconds} s ({low} to {high}), {given['mem_gib']:.1f} GiB, {fits}; "
                 f"{rank}{behind}.")
    if given["changes"]:
        changes = "; ".join(f"{change['what']} ({change['gain']:.1%} less time)" for change in given["changes"])
        terminal.say(f"With one change: {changes}.")


def _size(total: int, active: int, mtp: int) -> str:
    beside = f", beside {mtp / 1e9:.1f}B of multi-token prediction" if mtp else ""
    return f"{total / 1e9:.1f}B parameters, of which a token passes {active / 1e9:.2f}B{beside}."


def draw(candidates: list[dict[str, Any]], *, cells: int) -> None:
    """Where the time of the first layouts goes, and how sure that is; measured seconds beside the forecast."""
    if cells < NARROWEST:
        return
    values = [terminal.seconds(c["sec_per_it"]) for c in candidates]
    label, value = len(str(len(candidates))), max(map(len, values))
    room = cells - label - value - 6
    longest = max(c["sec_per_it"] for c in candidates)
    print("Where the forecast's time goes" + (", the first's shares below:" if len(candidates) > 1 else ":"))
    terminal.painted(*([(f"{i:>{label}}  ", ""), *terminal.stacked(c["parts_s"], longest=longest, cells=room),
                    (f"  {text:>{value}} s", "")] for i, (c, text) in enumerate(zip(candidates, values), 1)))
    terminal.painted(*([(" " * (label + 2), ""), *line] for line in
                   terminal.in_lines(terminal.legend(candidates[0]["parts_s"]), cells - label - 2)))
    print()
    ends = [end for c in candidates for end in (c["sec_lo"], c["sec_hi"], *c["measured_s"])]
    seen = any(c["measured_s"] for c in candidates)
    beside = seen and cells >= SPACIOUS
    axis = terminal.Axis(min(ends), max(ends), cells - label - 2 - (len(MEASURED) + value + 4 if beside else 0))
    reach = f"{terminal.short(axis.low)} to {terminal.short(axis.high)} s"
    print(f"90 % of each forecast, {reach}" + (", ◆ measured:" if seen else ":"))
    for i, c in enumerate(candidates, 1):
        line = axis.interval(c["sec_lo"], c["sec_per_it"], c["sec_hi"], marks=dict.fromkeys(c["measured_s"], "◆"))
        text = f"  {terminal.seconds(min(c['measured_s'])):>{value}} {MEASURED}" if beside and c["measured_s"] else ""
        terminal.painted([(f"{i:>{label}}  ", ""), (line, "blue"), (text, "")])
    print()


def _columns(candidates: list[dict[str, Any]], shapes: bool, several_nodes: bool) -> list[_Column]:
    columns, first = [], candidates[0]
    several = any(c["cp"] > 1 for c in candidates)
    if shapes:
        columns += [_plain(name) for name in ("layers", "hidden", "heads")]
        columns.append(_Column("size", lambda c: f"{c['parameters'] / 1e9:.1f}B"))
    columns += [_knob(name) for name in SEARCHED if name != "gbs" and (several or name != "cp")]
    if several:
        columns.append(_Column("CP by", lambda c: c["cp_kind"] if c["cp"] > 1 else "", left=True))
    if any("ep" in c for c in candidates):
        columns += [_Column("EP", lambda c: f"{c['ep']}"), _Column("ETP", lambda c: f"{c.get('etp') or c['tp']}")]
    if any(c.get("zero_group") for c in candidates):
        columns.append(_Column("group", lambda c: f"{c.get('zero_group') or 'all'}"))
    if several_nodes:
        columns.append(_plain("nodes"))
    columns += [
        _Column("s/it", lambda c: terminal.seconds(c["sec_per_it"])),
        _Column("90 %", lambda c: f"{terminal.short(c['sec_lo'])}-{terminal.short(c['sec_hi'])}"),
        _Column("GiB", lambda c: f"{c['mem_gib']:.1f}" + (f" tight {c['fit_odds']:.0%}" if c["fits"] == "tight" else "")),
        _Column("TFLOPs", lambda c: terminal.short(c["tflops"])),
        *([_Column("MFU", lambda c: f"{c['mfu']:.0%}")] if first["mfu"] is not None else []),
        _Column("tok/s", lambda c: terminal.short(c["tokens_per_s_per_process"])),
        _Column("vs first", lambda c: "tie" if c["tie"] else f"+{c['worse_by']:.1%}" if c["worse_by"] else ""),
    ]  # fmt: skip
    if shapes:
        columns.append(_Column("s at size", lambda c: terminal.seconds(c["sec_normalised"])))
    if "days" in first:
        columns.append(_Column("days", lambda c: f"{c.get('days_normalised', c['days']):.1f}"))
        if first["money"] is not None:
            columns.append(_Column("money", lambda c: terminal.price(c["money"])))
        if first["energy_mwh"] is not None:
            columns.append(_Column("MWh", lambda c: f"{c['energy_mwh']:,.0f}"))
    return columns


def _plain(name: str) -> _Column:
    return _Column(name, lambda c: f"{c[name]}")


def _header(name: str) -> str:
    return BY_FIELD[name].word or name


def _knob(name: str) -> _Column:
    """TP with an s where the sequence is split over it."""
    return _Column(_header(name), lambda c: f"{c[name]}" + "s" * (name == "tp" and c["sequence_parallel"]),
                   left=isinstance(BY_FIELD[name].default, str))


def _remarks(document: Document) -> None:
    candidates = document["candidates"]
    if document["ties"] > 1:
        within = f"{document['tie_within']:.0%}"
        terminal.say(f"The first {document['ties']} cannot be told apart: under {within} only measuring can tell.")
    if (runner_up := document["runner_up"]) is not None:
        more = f", {runner_up['days_more']:.1f} days more" if "days_more" in runner_up else ""
        more += f", {terminal.price(runner_up['money_more'])} more money" if "money_more" in runner_up else ""
        sign, sec = "+" if runner_up["sec_more"] >= 0 else "-", terminal.seconds(abs(runner_up["sec_more"]))
        terminal.say(f"The runner-up, number {runner_up['rank']}, is {runner_up['worse_by']:.1%} worse by {document['by']}: "
                     f"{sign}{sec} s per iteration{more}.")
    first, tight = candidates[0], any(c["fits"] == "tight" for c in candidates)
    terminal.say(f"The first takes {first['mem_gib']:.1f} GiB of {document['mem_limit_gib']:.1f}, and fits with "
                 f"{percent(first['fit_odds'])}." + (" Tight ones rank by time over odds." if tight else ""))
    for reason in document["reasons"]:
        terminal.say(f"{reason[0].upper()}{reason[1:]}.")
    if "calibration" in document:
        learned = document["calibration"]
        doubted = ", ".join(doubt["where"].rsplit("/", 1)[-1] for doubt in learned["doubted"])
        terminal.say(f"Learned from {learned['rows']} rows" + (f"; not believed: {doubted}." if doubted else "."))
    for what, name, text in (("Layers per stage, where not the engine's own split", "stage_layers", lambda v: short(read(v))),
                             ("Recomputed modules", "recompute_modules", str)):
        which: dict[str, list[str]] = {}
        for i, c in enumerate(candidates, 1):
            if c.get(name):
                which.setdefault(text(c[name]), []).append(str(i))
        if which:
            terminal.say(f"{what}: " + "; ".join(f"{', '.join(those)}: {said}" for said, those in which.items()) + ".")
    warned = sorted({code for c in candidates for code in c["warnings"]})
    if warned:
        terminal.say(f"Warnings among these: {', '.join(warned)}.")
    marked = "; an s after TP is sequence parallelism" if any(c["sequence_parallel"] for c in candidates) else ""
    terminal.say(f"TFLOPs and tok/s per device, TFLOPs by formula {document['tflops_formula']}, MFU by model{marked}.")
    terminal.say(f"Not searched: {'; '.join(document['not_searched'])}.")
    if "days" in candidates[0]:
        terminal.say("Days of training at this pace alone; energy is the devices' rated power, without hosts, network and "
                     "cooling.")


def layout(c: dict[str, Any]) -> str:
    """One layout in a few words."""
    knobs = [BY_FIELD[name].text(c[name]) for name in SEARCHED
             if name != "gbs" and (name, c[name]) not in (("vp", 1), ("cp", 1))]
    knobs += [f"by {c['cp_kind']}"] if c["cp"] > 1 else []
    knobs += [BY_FIELD[name].text(c[name]) for name in ("recompute_modules", "ep", "etp", *GROUPS) if c.get(name)]
    knobs += [f"layers per stage {short(read(c['stage_layers']))}"] if c.get("stage_layers") else []
    return " ".join([*knobs, *["sequence parallel"] * c["sequence_parallel"], f"on {c['nodes']} node{'s'[:c['nodes'] > 1]}"])


def pipeline_title(explained: Explained) -> str:
    trial, t = explained.trial, explained.trial.topology
    return (f"{t.schedule}: PP {t.pp}{f' x VP {t.vp}' if t.vp > 1 else ''}, {explained.drawn} of {trial.microbatches} "
            f"micro-batches, {trial.model.name or 'model'}")


def _end(sec: float) -> str:
    """Of an interval: three digits that count, one behind the point at least."""
    return f"{sec:.1f}" if sec >= 10 else f"{sec:#.3g}"


def _modules(explained: Explained) -> str:
    """What selective recompute makes again, where the engine takes a list."""
    t = explained.trial.topology
    if t.recompute != "selective" or not explained.engine.modules:
        return ""
    return f" of {' '.join(t.modules(explained.trial.model))}"


def explained(explained: Explained, top: int) -> None:
    """One layout taken apart, for a person."""
    t, cluster = explained.trial.topology, explained.trial.cluster
    assert cluster is not None
    layout = " x ".join(f"{name.upper()} {getattr(t, name)}" for name in degrees(t.cp))
    mixture = explained.trial.model.mixture
    spread = f", EP {t.ep} with ETP {t.expert_tp}" if mixture else ""
    terminal.say(
        f"{explained.trial.model.name or 'the model'} on {cluster.name}: {layout} = {t.world} devices{spread}, "
        f"MBS {t.mbs}, batch {explained.trial.batch.gbs} = {explained.trial.microbatches} micro-batches, ZeRO {t.zero}, "
        f"recompute {t.recompute}{_modules(explained)}, {t.precision}")
    print(ENGINE.format(engine=explained.engine.name, attention=explained.attention))
    if mixture:
        size = parameters(explained.trial.model)
        terminal.say(_size(size.total, size.active, size.mtp))
    print(f"\n{terminal.seconds(explained.sec)} s per iteration (90 %: {_end(explained.lo)} to {_end(explained.hi)})")
    print(terminal.breakdown(explained.parts, "s", said=WHY))
    print(f"\n{explained.mem_gib:.1f} GiB of {explained.limit_gib:.1f} on the fullest device: it fits with "
          f"{percent(explained.odds)}")
    print(terminal.breakdown(explained.memory, "GiB", whole=explained.limit_gib))
    if explained.timeline is not None:
        print(f"\n{pipeline_title(explained)}; dots are the bubble")
        print(picture(explained.timeline, width=min(terminal.width(), 160)))
    if explained.context:
        terminal.say("\n" + explained.context)
    if explained.documents:
        terminal.say("\n" + explained.documents)
    if explained.experts:
        terminal.say("\n" + explained.experts)
    print("\nWhat limits it")
    terminal.say("\n".join(f"  {line}" for line in explained.limits) or "  nothing stands out")
    for warning in explained.warnings:
        terminal.say(f"  {warning.code}: {warning.message}")
    if not top:
        return
    chosen = better(explained)[:top]
    print("\nWhat to change")
    for change in chosen:
        gain = change.gain or 0.0
        terminal.say(f"  {change.what}: " + ("" if explained.fits else f"fits with {percent(change.odds or 0.0)}, ")
                     + f"{abs(gain):.1%} {'faster' if gain >= 0 else 'slower'}, {terminal.seconds(change.sec or 0.0)} s, "
                     f"{change.mem_gib:.1f} GiB")
    if not chosen:
        print("  no single change is forecast to gain more than 1 %" if explained.fits else "  no single change makes it fit")
    full = [(change, odds) for change in explained.changes if (odds := change.odds) is not None and odds < LIKELY
            and (change.gain or 0) > TIE]
    if full:
        terminal.say("  faster, but not sure to fit: " + "; ".join(
            f"{c.what} ({c.mem_gib:.1f} GiB, {percent(odds)})" for c, odds in sorted(full, key=lambda pair: -pair[1])[:top]))
