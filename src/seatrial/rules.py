"""What takes two words to check: does this topology fit this model, batch and cluster, for this engine?

    rules.violations(trial)     every broken rule, with the numbers and the nearest values that work
    rules.check(trial)          raises the first as Infeasible, returns the warnings

The ramp-up rule is often shortened to "DP % 4 and GBS % 32". That is not enough: with DP 8 and MBS 8 a start of 32 is half a
micro-batch for each replica. Start, increment and final size must each be a multiple of DP x MBS.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from seatrial.engines import model as engine_models
from seatrial.errors import Infeasible
from seatrial.schedule import GROUPED, KINDS
from seatrial.spec import Batch, Cluster, Model, Topology, Trial, context_split, divisors, divisors_near, kv_fits, stage_split
from seatrial.stages import said, short


@dataclass(frozen=True, kw_only=True)
class Violation:
    code: str
    message: str
    level: Literal["error", "warning"] = "error"


_PIPELINES = {"megatron-deepspeed": "DeepSpeed's pipeline engine", "deepspeed": "DeepSpeed's pipeline engine"}


LACKS = ("no-degree", "no-recompute", "zero-replicas", "zero-pipeline")
"""Warnings of what an engine is not known to have: a row that somebody ran so is a row, but nothing proposes it."""
_CUT_FROM = {"zero_group": (1, "the optimizer's state"), "gradients_group": (2, "the gradient"),
             "weights_group": (3, "the model")}  # fmt: skip
"""Of what has a group of its own: the ZeRO stage that first divides it."""


def _facts(engine: str) -> engine_models.EngineModel:
    return engine_models.model_of(engine)


def violations(trial: Trial) -> list[Violation]:
    found = [*topology_fits_model(trial.model, trial.topology, trial.engine), *batch_fits(trial.batch, trial.topology),
             *execution_fits(trial)]  # fmt: skip
    if all(violation.level == "warning" for violation in found):
        found.extend(schedule_fits(trial))
    if trial.cluster is not None:
        found = [*world_fits(trial.topology, trial.cluster), *found, *device_fits(trial.topology, trial.cluster)]
    return found


def check(trial: Trial) -> list[Violation]:
    """Raises the first error; returns what is only a warning."""
    found = violations(trial)
    for violation in found:
        if violation.level == "error":
            raise Infeasible(violation.message, code=violation.code)
    return found


def world_fits(t: Topology, cluster: Cluster) -> Iterator[Violation]:
    if t.world == cluster.world:
        return
    there = f"{cluster.nodes} nodes x {cluster.procs_per_node} processes = {cluster.world}"
    rest, product = t.tp * t.pp * t.cp, "TP x PP x CP" if t.cp > 1 else "TP x PP"
    if cluster.world % rest == 0:
        works = f"DP {cluster.world // rest} would"
    else:
        works = f"{product} = {rest} does not divide {cluster.world}; it divides {_multiples_near(cluster.world, rest)}"
    yield Violation(code="world-size", message=f"{t.product}, but {there}: {works}")


def batch_fits(batch: Batch, t: Topology) -> Iterator[Violation]:
    replica = t.dp * t.mbs
    sizes = (("gbs", "GBS", batch.gbs), ("rampup-start", "ramp-up start", batch.rampup_start),
             ("rampup-increment", "ramp-up increment", batch.rampup_increment))
    for code, what, size in sizes:
        if size is not None and size % replica:
            yield Violation(code="batch-divisible" if code == "gbs" else code,
                            message=f"{what} {size} is not a multiple of DP {t.dp} x MBS {t.mbs}: "
                                    f"the nearest are {_multiples_near(size, replica)}")


def topology_fits_model(model: Model, t: Topology, engine: str) -> Iterator[Violation]:
    yield from stages_fit(model, t, engine)
    if model.heads % t.tp:
        yield Violation(code="heads-divisible", message=f"{model.heads} heads are not a multiple of TP {t.tp}: "
                                                        f"TP {divisors_near(model.heads, t.tp, between=' or ')} would do")
    elif not kv_fits(model.kv, t.tp):
        works = [tp for tp in divisors(model.heads) if kv_fits(model.kv, tp)]
        near = sorted({max(tp for tp in works if tp < t.tp), min((tp for tp in works if tp > t.tp), default=works[-1])})
        yield Violation(code="kv-heads-divisible",
                        message=f"{model.kv} key-value heads and TP {t.tp}: neither is a multiple of the other, so ranks "
                                f"cannot share them evenly: TP {' or '.join(map(str, near))} would do")
    if model.dense_inner % t.tp:
        yield Violation(code="ffn-divisible", message=f"ffn {model.inner} is not a multiple of TP {t.tp}: the nearest are "
                                                      f"{_multiples_near(model.inner, t.tp)}")
    if model.pad_vocab_to is not None and model.pad_vocab_to % t.tp:
        yield Violation(code="vocab-divisible", message=f"pad_vocab_to {model.pad_vocab_to} is not a multiple of TP {t.tp}: "
                                                        f"the nearest are {_multiples_near(model.pad_vocab_to, t.tp)}")
    facts = _facts(engine)
    yield from experts_fit(model, t, facts)
    yield from modules_fit(model, t, facts)
    if t.cp > 1:
        yield from context_fits(model, t, facts)
    elif t.sequence_parallel and model.seq % t.tp:
        yield Violation(code="seq-divisible", message=f"sequence {model.seq} is not a multiple of TP {t.tp}, which sequence "
                                                      f"parallelism needs: the nearest are {_multiples_near(model.seq, t.tp)}")
    lacks = [("no-degree", why) for degree in engine_models.BESIDE_DATA if (why := facts.lacks(degree, getattr(t, degree)))]
    if t.recompute not in facts.recomputes:
        lacks.append(("no-recompute", f"recompute {t.recompute}: {facts.name} has {' and '.join(facts.recomputes)}"))
    if facts.replicas_alone and t.zero == 0 and t.data_ranks > 1 and t.world > t.dp:
        lacks.append(("zero-replicas", f"ZeRO 0 with {t.product}: {facts.name} has whole replicas with nothing but DP; "
                                  f"ZeRO {' or '.join(str(zero) for zero in facts.zero_stages if zero)} would do"))
    if t.pp > 1 and t.zero > facts.zero_with_pipeline:
        lacks.append(("zero-pipeline", f"ZeRO {t.zero} with PP {t.pp}: {_PIPELINES.get(facts.name, facts.name)} refuses ZeRO "
                                       f"above {facts.zero_with_pipeline}"))
    yield from (Violation(code=code, message=why, level="warning") for code, why in lacks)
    for what, (stage, cut) in _CUT_FROM.items():
        group = getattr(t, what)
        if group not in (None, 1) and t.zero < stage:
            yield Violation(code="zero-group", message=f"{what} {group} with ZeRO {t.zero}, which leaves {cut} whole: "
                                                       f"ZeRO {stage}{' or above' if stage < 3 else ''} would divide it")
    if t.zero_group not in (None, t.data_ranks) and not facts.hybrid_sharding:
        yield Violation(code="zero-group", message=f"zero_group {t.zero_group}: {facts.name} shards over all of DP {t.dp}"
                                                   + (f" x CP {t.cp}" if t.cp > 1 else ""))
    for what, group in (("gradients_group", t.gradients_group), ("weights_group", t.weights_group)):
        if group not in (None, t.zero_group or t.data_ranks) and what not in facts.own_groups:
            yield Violation(code="zero-group", message=f"{what} {group}: {facts.name} has no group of its own for them; "
                                                       "zero_group divides all that ZeRO cuts")


def experts_fit(model: Model, t: Topology, facts: engine_models.EngineModel) -> Iterator[Violation]:
    if model.experts is None or model.expert_inner is None:
        if t.spreads_experts:
            said = f"EP {t.ep}" if t.ep > 1 else f"ETP {t.expert_tp} with TP {t.tp}"
            yield Violation(code="no-experts", message=f"{said}: the model has no experts to divide; EP 1 would do")
        return
    if model.experts % t.ep:
        yield Violation(code="experts-divisible", message=f"{model.experts} experts are not a multiple of EP {t.ep}: "
                                                          f"EP {divisors_near(model.experts, t.ep, between=' or ')} would do")
    if model.expert_inner % t.expert_tp:
        yield Violation(code="expert-ffn-divisible",
                        message=f"expert_ffn {model.expert_inner} is not a multiple of ETP {t.expert_tp}: ETP "
                                f"{divisors_near(model.expert_inner, t.expert_tp, between=' or ')} would do")
    if model.shared_inner % t.tp:
        yield Violation(code="ffn-divisible", message=f"shared experts of {model.shared_inner} together are not a multiple of "
                                                      f"TP {t.tp}: TP "
                                                      f"{divisors_near(model.shared_inner, t.tp, between=' or ')} would do")
    tokens = t.mbs * (model.seq // t.cp)
    if tokens % t.tp:
        yield Violation(code="tokens-divisible", message=f"{tokens} tokens of a micro-batch are not a multiple of TP {t.tp}, "
                                                         "whose ranks share them before they go to their experts")
    if t.ep > 1 and not facts.expert_parallel:
        yield Violation(code="expert-parallel", message=f"EP {t.ep}: {facts.name} has no expert parallelism; EP 1 would do")
    elif t.ep > 1 and t.zero > facts.zero_with_experts:
        yield Violation(code="zero-experts", message=f"ZeRO {t.zero} with EP {t.ep}: {facts.name} takes ZeRO "
                                                     f"{facts.zero_with_experts} at most with experts on ranks apart")
    ways = {"tp": t.tp, "whole": 1}
    if "any" not in facts.expert_tensor and t.expert_tp not in (works := [ways[way] for way in facts.expert_tensor]):
        yield Violation(code="expert-parallel", message=f"ETP {t.expert_tp} with TP {t.tp}: {facts.name} cannot; ETP "
                                                        f"{' or '.join(map(str, dict.fromkeys(works)))} would do")
    if t.expert_tp * t.ep > 1 and facts.dispatchers and t.moe_dispatcher not in facts.dispatchers:
        yield Violation(code="dispatcher", message=f"moe_dispatcher {t.moe_dispatcher}: {facts.name} has "
                                                   f"{' and '.join(facts.dispatchers)}")
    if facts.experts_cut_sequence and t.tp > 1 and not t.sequence_parallel:
        yield Violation(code="experts-sequence", level="warning",
                        message=f"TP {t.tp} without sequence parallelism: {facts.name} refuses that with experts; it is "
                                "forecast with it")


_MODULES_OF = {"mla_up_proj": "latent attention", "moe_act": "experts", "moe": "experts", "shared_experts": "shared experts"}


def modules_fit(model: Model, t: Topology, facts: engine_models.EngineModel) -> Iterator[Violation]:
    if t.recompute_modules is None:
        return
    said = f"recompute_modules {t.recompute_modules}"
    if not facts.modules:
        yield Violation(code="recompute-modules", message=f"{said}: {facts.name} takes no list of modules; recompute none, "
                                                          "selective or full alone would do")
    elif t.recompute != "selective":
        yield Violation(code="recompute-modules", message=f"{said} with recompute {t.recompute}: a list of modules goes with "
                                                          "recompute selective")
    elif "mlp" in t.recompute_modules.split("+") and model.architecture.biases == "all":
        yield Violation(code="recompute-modules", message=f"{said} with biases in all linears: {facts.name} checkpoints an MLP "
                                                          "that hands on its bias, and its backward pass never ends; without "
                                                          "mlp, or with biases none, it would do")
    has = {"latent attention": model.latent is not None, "experts": model.mixture, "shared experts": bool(model.shared_inner)}
    for name in t.recompute_modules.split("+"):
        if name in _MODULES_OF and not has[_MODULES_OF[name]]:
            yield Violation(code="recompute-modules", message=f"{said}: the model has no {_MODULES_OF[name]} for {name}; "
                                                              f"left out, the rest would do")


def context_fits(model: Model, t: Topology, facts: engine_models.EngineModel) -> Iterator[Violation]:
    if t.cp_kind not in facts.context:
        has = f"it has {', '.join(facts.context)}" if facts.context else "it has none"
        yield Violation(code="context-kind", message=f"CP {t.cp} by {t.cp_kind}: {facts.name} cannot; {has}")
    held, (heads, ring) = max(1, model.kv // t.tp), context_split(model, t)
    whose = f"{held} key-value heads of a rank" + (f" (of {model.kv}, TP {t.tp})" if t.tp > 1 else "")
    if t.cp_kind == "ulysses" and held % t.cp:
        yield Violation(code="context-heads", message=f"CP {t.cp} by all-to-all over heads: {whose} are not a multiple of it: "
                                                      f"CP {divisors_near(held, t.cp, between=' or ')} would do, or a ring")
    elif t.cp_kind == "ulysses+ring" and 1 in (heads, ring):
        which = "a ring alone" if heads == 1 else "an all-to-all alone"
        yield Violation(code="context-heads", message=f"CP {t.cp} by all-to-all and ring: {whose} leave {which}: "
                                                      f"cp_kind {'ring' if heads == 1 else 'ulysses'} says so")
    # A ring deals two stretches to each member, one from either end: causal attention is then as long on all of them.
    parts = math.lcm(2 * ring if ring > 1 else 1, t.cp * (t.tp if t.sequence_parallel else 1))
    if model.seq % parts:
        beside = f" and TP {t.tp}" if t.sequence_parallel and t.tp > 1 else ""
        yield Violation(code="seq-divisible", message=f"sequence {model.seq} is not a multiple of {parts}, which CP {t.cp} by "
                                                      f"{t.cp_kind}{beside} divide it into: the nearest are "
                                                      f"{_multiples_near(model.seq, parts)}")


def stages_fit(model: Model, t: Topology, engine: str) -> Iterator[Violation]:
    stages, layers = t.pp * t.vp, model.layers
    uneven = _facts(engine).uneven
    if t.stage_layers is not None and sum(t.stage_layers) != layers:
        yield Violation(code="layers-divisible", message=f"stage_layers {t.stages_said} adds up to {sum(t.stage_layers)}, the "
                                                         f"model has {layers} layers")
        return
    if t.stage_layers not in (None, stage_split(layers, stages)) and uneven != "any":
        yield Violation(code="stages-own", message=f"stage_layers {t.stages_said}: {_facts(engine).name} divides layers by "
                                                   f"itself; left out they would be {said(stage_split(layers, stages))}")
        return
    if uneven in ("equal", "embedding-slots"):
        if layers % stages and uneven == "equal":
            yield Violation(code="layers-divisible",
                            message=f"{layers} layers over {stages} stages: {layers} % {stages} = {layers % stages}; "
                                    f"{divisors_near(layers, stages, between=' or ')} stages would do")
        elif layers % stages and (layers + 2) % stages:
            over = f"PP {t.pp}" + (f" x VP {t.vp}" if t.vp > 1 else "")
            yield Violation(code="layers-divisible",
                            message=f"{layers} layers over {over}: {layers} % {stages} = {layers % stages}, and with embedding "
                                    f"slots {layers + 2} % {stages} = {(layers + 2) % stages}; "
                                    f"{divisors_near(layers, stages, between=' or ')} stages would do")
        return
    if t.stage_layers is None and layers < stages:
        yield Violation(code="layers-divisible", message=f"{layers} layers over {stages} stages leave some without a layer: "
                                                         f"PP x VP can be {layers} at most")
    elif t.stage_layers is None and layers % stages and (layers + 2) % stages:
        yield Violation(code="uneven-stages", level="warning",
                        message=f"{layers} layers over {stages} stages are uneven ({short(stage_split(layers, stages))}): "
                                "the longest stage sets the pace; "
                                f"{divisors_near(layers, stages, between=' or ')} stages would be even")


def schedule_fits(trial: Trial) -> Iterator[Violation]:
    """The schedule's own conditions, for the final size and for every size of the ramp-up."""
    t, b = trial.topology, trial.batch
    group = KINDS[t.schedule].group(t.pp)
    sizes = [b.gbs] if b.rampup_start is None else [b.rampup_start, b.rampup_increment or b.gbs, b.gbs]
    for size in sizes:
        microbatches = size // (t.dp * t.mbs)
        if microbatches % group:
            works = _multiples_near(size, t.dp * t.mbs * group)
            yield Violation(code=GROUPED,
                            message=f"{t.schedule} stages need micro-batches in groups of PP {t.pp}: a batch of {size} gives "
                                    f"{microbatches}; batches of {works} would do")
            return


def execution_fits(trial: Trial) -> Iterator[Violation]:
    """What is asked of an engine beyond the layout."""
    x, facts, m, t = trial.execution, _facts(trial.engine), trial.model, trial.topology
    kernel = x.attention or facts.attention_on(None if trial.cluster is None else trial.cluster.device)
    if kernel == "stored" and m.heads % t.tp == 0 and m.heads // t.tp * t.mbs % 4:
        yield Violation(code="fused-softmax", level="warning",
                        message=f"(heads {m.heads} / TP {t.tp}) x MBS {t.mbs} = {m.heads // t.tp * t.mbs} is not a multiple of "
                                "4: Megatron's fused softmax is not used")
    if facts.footprint and x.attention == "stored":
        yield Violation(code="attention", message="attention stored: this engine never keeps the scores; fused is what it has")
    if facts.footprint and x.overlap is not None:
        yield Violation(code="overlap", message=f"overlap {x.overlap}: what this engine overlaps is not a choice; leave it out")
    if facts.footprint and m.has_windows and (t.cp > 1 or trial.batch.documents is not None):
        beside = f"CP {t.cp}: CP 1" if t.cp > 1 else f"documents {trial.batch.documents}: whole sequences"
        yield Violation(code="sliding-window", message=f"sliding_window {m.sliding_window} in a sequence of {m.seq} with "
                                                       f"{beside} would do, or a sequence of {m.sliding_window}")
    if facts.footprint and m.mtp and (t.cp > 1 or trial.batch.documents is not None):
        beside = f"CP {t.cp}: CP 1" if t.cp > 1 else f"documents {trial.batch.documents}: whole sequences"
        yield Violation(code="mtp", message=f"mtp {m.mtp}, whose tokens are further on in the sequence, with {beside} would do")
    if x.attention == "fused-hopper" and trial.cluster is not None and "fp8" not in trial.cluster.device.peak_tflops:
        yield Violation(code="attention", message=f"attention fused-hopper: {trial.cluster.device.name} is older than those "
                                                  "kernels; fused or stored would do")


def device_fits(t: Topology, cluster: Cluster) -> Iterator[Violation]:
    peaks = cluster.device.peak_tflops
    if t.precision not in peaks:
        yield Violation(code="precision", level="error" if t.precision == "fp8" else "warning",
                        message=f"{cluster.device.name} has no {t.precision} rate: known are {', '.join(peaks)}")
    if t.tp > cluster.domain and cluster.domain > 1:
        whose = "a node" if cluster.domain_nodes == 1 else f"{cluster.domain_nodes} nodes on one fabric"
        yield Violation(code="tp-across-nodes", level="warning",
                        message=f"TP {t.tp} is wider than {whose} of {cluster.domain} processes: its all-reduces "
                                "cross the network at every layer")


def _multiples_near(value: int, multiple: int) -> str:
    below = value // multiple * multiple
    if below == 0:
        return f"{multiple} and {2 * multiple}"
    return f"{below}" if below == value else f"{below} and {below + multiple}"

