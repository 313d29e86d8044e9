"""What every test may ask for: the raw logs, the command line, and a machine that has what the test's marker names."""
from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from seatrial.launch.processes import HeldPort

# How long one example takes depends on what else the machine does; a test that wants a bar on time sets its own.
settings.register_profile("seatrial", deadline=None, suppress_health_check=[HealthCheck.too_slow],
                          derandomize=bool(os.environ.get("CI")))
settings.load_profile("seatrial")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="also run the tests marked slow")


def _lacks_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device on this machine"


def _lacks(*programs: str) -> Callable[[], str | None]:
    def reason() -> str | None:
        # CI installs them, so there a missing program must fail and not skip.
        # Daemons live where an ordinary user's PATH does not look.
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
        missing = [program for program in programs if shutil.which(program, path=path) is None]
        if not missing or os.environ.get("CI") == "true":
            return None
        return f"{', '.join(missing)} not installed (scripts/system-packages as root installs it)"

    return reason


NEEDS: dict[str, Callable[[], str | None]] = {
    "gpu": _lacks_gpu,
    "slurm": _lacks("slurmctld", "slurmd", "munged"),
    "browser": _lacks("chromium", "chromedriver"),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--run-slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        if slow:
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if item not in slow]
    for marker, reason_of in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = reason_of() if marked else None
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def seeds_dir() -> Path:
    """The folder of the raw logs; it is not part of the package."""
    folder = os.environ.get("SEATRIAL_SEEDS")
    if not folder:
        pytest.skip("SEATRIAL_SEEDS does not name the folder of the raw logs")
    assert Path(folder).is_dir(), f"SEATRIAL_SEEDS={folder} is not a directory"
    return Path(folder)


@pytest.fixture
def port() -> Iterator[int]:
    """To meet at on loopback; nobody else is given it meanwhile."""
    with HeldPort() as held:
        yield held.number


class Said(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def seatrial(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command in this process: `seatrial("lint", path).status == 1`."""
    from seatrial.cli import main

    def run(*args: object) -> Said:
        capsys.readouterr()
        status = main([str(arg) for arg in args])
        return Said(status, *capsys.readouterr())

    return run


@pytest.fixture
def lint(tmp_path: Path) -> Callable[[str], list[Any]]:
    """What lint doubts of a note: errors and warnings."""
    from seatrial.notes.lint import look_at

    def look(text: str) -> list[Any]:
        path = tmp_path / "notes.md"
        path.write_text(text, encoding="utf-8")
        return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]

    return look
