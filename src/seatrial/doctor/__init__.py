"""`seatrial doctor`: what this machine has, what would not work on it, and whether a topology trains like one process does.

    for finding in local_findings(): print(finding.level, finding.name, finding.says)

`finding` has the word; `software`, `machine` and `surroundings` look at one thing each; `together` joins the nodes of a job;
`proof` trains. Nothing here needs torch to be importable: that it is not is a finding.
"""
from __future__ import annotations

from seatrial.doctor.finding import Finding


def local_findings() -> list[Finding]:
    """Every check of this one machine, in reading order."""
    from seatrial.doctor import machine, software, surroundings

    return [finding for module in (software, machine, surroundings) for finding in module.findings()]
