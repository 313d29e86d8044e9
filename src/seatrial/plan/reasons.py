"""Why the first of a plan divides its sequences, its states or its experts as it does: lines that hold it against the plainer
way.

    reasons(found, fit)         ["CP 4 by ring: …", "with whole sequences the best takes 0.5 % longer, …"]

Nothing where sequences are short and ZeRO cuts over all.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from seatrial.plan import memory, step
from seatrial.plan.calibrate import Calibration
from seatrial.plan.configs import Configs
from seatrial.plan.explain import in_context, in_experts
from seatrial.plan.odds import LIKELY, percent
from seatrial.plan.search import Found, learned
from seatrial.terminal import seconds


def reasons(found: Found, fit: Calibration | None = None) -> list[str]:
    if not len(found):
        return []
    trial, configs = found.trial(0), Configs.from_trials([found.trial(0)])
    lines = [line for line in (in_context(configs, trial), in_experts(configs, trial)) if line]
    if trial.model.mixture and found.space.ep is None:
        lines.append(_other_spread(found))
    if found.space.divides_sequence and found.space.cp is None:
        lines.append(_other_way(found))
    t = trial.topology
    if t.zero_group not in (None, t.data_ranks):
        plain = replace(t, zero_group=None, gradients_group=None, weights_group=None)
        whole = Configs.from_trials([replace(trial, topology=plain)])
        here, there = (float(memory.states_gib(c)[0]) for c in (configs, whole))
        took = float(step.time(whole, found.space.cluster, learned(fit)).sec[0])
        lines.append(f"ZeRO group {t.zero_group}: weights, gradients and optimizer take {here:.1f} GiB a device; over all "
                     f"{t.data_ranks} ranks {there:.1f} GiB and {seconds(took)} s")
    return lines


def _other_spread(found: Found) -> str:
    """The best whose experts lie otherwise."""
    # An ETP of 0 stands for TP.
    both = found.ranked["ep"], np.where(found.ranked["etp"] > 0, found.ranked["etp"], found.ranked["tp"])
    others = np.flatnonzero(np.any([column != column[0] for column in both], axis=0))
    if not len(others):
        return "with another EP nothing fits" if found.accepted == len(found) else "the best all have this EP"
    i = int(others[0])
    t = found.trial(i).topology
    return (f"with EP {t.ep} and ETP {t.expert_tp} the best is number {i + 1}: {seconds(float(found.sec[i]))} s, "
            f"{found.mem_gib[i]:.1f} GiB")


def _other_way(found: Found) -> str:
    """The best that leaves sequences whole, or divides them where the first does not."""
    divided = found.ranked["cp"] > 1
    others = np.flatnonzero(divided != divided[0])
    what = "with whole sequences" if divided[0] else "with context parallelism"
    if not len(others):
        return f"{what} nothing fits" if found.accepted == len(found) else f"{what} nothing is among the best {len(found):,}"
    i = int(others[0])
    tight = "" if found.odds[i] >= LIKELY else f", fits with {percent(float(found.odds[i]))}"
    return f"{what} the best is number {i + 1}: {seconds(float(found.sec[i]))} s, {found.mem_gib[i]:.1f} GiB{tight}"
