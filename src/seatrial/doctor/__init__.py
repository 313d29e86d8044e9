"""`seatrial doctor`: what this machine has, what would not work on it, and whether a topology trains like one process does.

    for finding in local_findings(): print(finding.level, finding.name, finding.says)

`software`, `machine` and `network` check one thing each; `nodes` joins the nodes of a job; `proof` trains. Nothing here needs
torch to be importable: that it is not is a finding.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["ok", "warn", "fail"]
LEVELS: tuple[Level, ...] = ("ok", "warn", "fail")
"""`ok` is what one needs to know, `warn` costs time or may surprise, `fail` means that a trial would not run."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's answer: Finding("shm", "warn", "64 MiB in /dev/shm", works="docker run --shm-size=1g")."""

    name: str
    level: Level
    says: str
    works: str = ""
    """What would work instead; empty when nothing is wrong."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The figures behind the words, for --json."""

    @property
    def text(self) -> str:
        return f"{self.says}: {self.works}" if self.works else self.says

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in ("", {})}


def worst(findings: Iterable[Finding]) -> Level:
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")


def local_findings() -> list[Finding]:
    """Every check of this one machine, in reading order."""
    from seatrial.doctor import machine, network, software

    return [finding for module in (software, machine, network) for finding in module.findings()]
