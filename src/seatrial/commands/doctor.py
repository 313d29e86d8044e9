"""`seatrial doctor`: is this machine ready, and does a topology of one's own train on it like one process does?

    seatrial doctor                                     every check, and a small proof on two ranks
    seatrial doctor --dp 2 --tp 2 --pp 2 --zero 1       the proof for this topology
    seatrial doctor trial.toml                          for the topology of a file, scaled to what this machine can hold
    srun -N 4 seatrial doctor                           on all nodes of a job, with their clocks compared; without the proof

Exit status: 0 nothing fails (warnings may be there), 1 something does, 2 the topology asked for cannot be.
"""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seatrial.errors import EXIT_FINDINGS, EXIT_GOOD
from seatrial.options import JSON, OPTIONS, SET_OTHER, Layout, spread
from seatrial.terminal import drawn_on, visible

if TYPE_CHECKING:
    from seatrial.doctor import Finding
    from seatrial.spec import Trial

COLOURS = {"ok": "32", "warn": "33", "fail": "31"}
BESIDE = 17
"""Columns that level and name take."""
DEFAULT = {"dp": 2}
"""What is tried when no topology is asked for: two ranks that must agree."""


def register(app: typer.Typer) -> None:
    @app.command("doctor", help="Check this machine, and prove that a topology trains on it like one process does.",
                 epilog="Exit status: 0 nothing fails (warnings may be there), 1 something does, 2 what was asked cannot be.")
    @spread
    def doctor(
        file: Path = typer.Argument(None, help="A TOML file with the trial; options are put over it."),
        layout: Layout = OPTIONS,
        settings: list[str] = SET_OTHER,
        train: bool = typer.Option(True, "--train/--no-train", help="Whether to train for the proof."),
        ranks: int = typer.Option(None, min=1, help="Processes that the proof may start; by default what fits."),
        seed: int = typer.Option(1234, help="Of the proof's weights and data."),
        timeout: float = typer.Option(180.0, help="Seconds after which the proof is ended."),
        as_json: bool = JSON,
    ) -> int:
        from seatrial import doctor as checks

        place = launched()
        trial, chosen = asked_for(file, layout.tables(), settings)
        if place is not None:
            return on_all_nodes(place, as_json=as_json)
        found: list[Finding] = []
        lines = Lines(as_json)
        for finding in checks.local_findings():
            found.append(finding)
            lines.say(finding)
        if train and not any(f.name in ("torch", "backends", "ports") and f.level == "fail" for f in found):
            from seatrial.doctor import proof

            most = ranks or proof.most_ranks(len(os.sched_getaffinity(0)))
            small, notes = proof.scaled(trial, ranks=most, keep_model=chosen)
            found.append(proof.proof(small, notes, timeout_s=timeout, seed=seed))
            lines.say(found[-1])
        return lines.end(found)


def asked_for(file: Path | None, given: dict[str, dict[str, Any]], settings: list[str]) -> tuple[Trial, bool]:
    """The trial, and whether its model was chosen by somebody; one that was must go with the topology."""
    from seatrial import rules, trialfile
    from seatrial.recipe import moved

    data = trialfile.over(moved(trialfile.tables_of(file)) if file is not None else {}, given)
    chosen = "model" in data or any(word.startswith("model.") for word in settings)
    if "topology" not in data and not any(word.startswith("topology.") for word in settings):
        data["topology"] = dict(DEFAULT)
    data.setdefault("model", {"base": "tiny"})
    degrees = {"dp": 1, "mbs": 1, "pp": 1, **data.get("topology", {})}
    batch_chosen = "batch" in data or any(word.startswith("batch.") for word in settings)
    data.setdefault("batch", {"gbs": 2 * degrees["dp"] * degrees["mbs"] * degrees["pp"]})
    trial, _ = trialfile.build(data, settings, where=str(file or "seatrial doctor"))
    if chosen and batch_chosen:
        rules.check(trial)
    elif chosen:
        for violation in rules.topology_fits_model(trial.model, trial.topology, trial.engine):
            if violation.level == "error":
                from seatrial.errors import Infeasible

                raise Infeasible(violation.message, code=violation.code)
    return trial, chosen


def launched() -> Any:
    """Where a launcher put this process among others, if one did."""
    try:
        from seatrial.engine.rendezvous import rank_from_env
    except ImportError:
        return None  # torch is broken, which a check says
    # The shell of a batch script has the numbers of its job, but is one process of no step.
    if "SLURM_PROCID" in os.environ and not {"SLURM_STEP_ID", "RANK"} & os.environ.keys():
        return None
    place = rank_from_env()
    return place if place.world > 1 else None


def on_all_nodes(place: Any, *, as_json: bool) -> int:
    from seatrial import doctor as checks
    from seatrial.doctor import proof as nodes

    by_node = nodes.gathered(place, checks.local_findings() if place.local_rank == 0 else [])
    if by_node is None:
        return EXIT_GOOD
    lines = Lines(as_json)
    found = nodes.merged(by_node)
    for finding in found:
        lines.say(finding)
    return lines.end(found, nodes={name: [finding.to_dict() for finding in findings] for name, findings in by_node.items()})


class Lines:
    """A line as soon as it is known, or one document at the end."""

    def __init__(self, as_json: bool):
        self.as_json = as_json
        self.colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def say(self, finding: Finding) -> None:
        if not self.as_json:
            level = f"{finding.level:5s}"
            if self.colours:
                level = f"\x1b[{COLOURS[finding.level]}m{level}\x1b[0m"
            text = self.folded(visible(finding.text))
            print(f"{level} {visible(f'{finding.name:10s}')} {text}", file=drawn_on(sys.stdout), flush=True)
            if notes := finding.facts.get("scaled"):
                print(f"{'':17s}{self.folded('scaled to this machine: ' + '; '.join(notes))}", flush=True)

    def folded(self, text: str) -> str:
        """On a terminal, below itself."""
        import textwrap

        from seatrial.terminal import width

        return textwrap.fill(text, max(40, width() - BESIDE), break_long_words=False, break_on_hyphens=False).replace(
            "\n", "\n" + " " * BESIDE) if sys.stdout.isatty() else text

    def end(self, found: list[Finding], **more: Any) -> int:
        from seatrial.doctor import worst

        level = worst(found)
        if self.as_json:
            document = {"schema": 1, "level": level, "findings": [finding.to_dict() for finding in found], **more}
            print(json.dumps(document, ensure_ascii=False))
        else:
            counts = {word: sum(finding.level == word for finding in found) for word in COLOURS}
            failed = ", ".join(finding.name for finding in found if finding.level == "fail")
            said = f"{counts['fail']} fail ({failed})" if failed else "nothing fails"
            warned = f"{counts['warn']} warning{'s' * (counts['warn'] != 1)}, " if counts["warn"] else ""
            print(f"{len(found)} checks: {counts['ok']} ok, {warned}{said}")
        return EXIT_FINDINGS if level == "fail" else EXIT_GOOD
