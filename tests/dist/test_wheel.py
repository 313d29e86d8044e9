"""The wheel alone: installed where only its declared dependencies can be imported, it runs the demo away from the checkout.

Torch and the others are not downloaded again: the new environment sees those packages of this one that the wheel asks for, and
what they ask for, each by a link of its own. So a dependency that is used and not declared is missing there.
"""
from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(ROOT)], check=True,
                   capture_output=True, timeout=300)  # fmt: skip
    (found,) = out.glob("*.whl")
    return found


def needed(requirements: list[str]) -> Iterator[importlib.metadata.Distribution]:
    """The distributions that these ask for, and those they ask for."""
    waiting, seen = list(requirements), set[str]()
    while waiting:
        asked = Requirement(waiting.pop())
        if (asked.marker and not asked.marker.evaluate({"extra": ""})) or asked.name.lower() in seen:
            continue
        seen.add(asked.name.lower())
        found = importlib.metadata.distribution(asked.name)
        waiting += found.requires or []
        yield found


def link_into(folder: Path, found: importlib.metadata.Distribution) -> None:
    for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
        target = Path(str(found.locate_file(top)))
        if target.exists() and not (folder / top).exists():
            (folder / top).symlink_to(target)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that has the wheel, and of other packages only what it declares."""
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=120)
    # Before the links are there: pip must find nothing to replace.
    subprocess.run([sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--no-deps", "--no-index",
                    "--quiet", str(wheel)], check=True, timeout=300)  # fmt: skip
    (own,) = venv.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith("METADATA"))
        declared = importlib.metadata.PathDistribution(own / metadata.split("/")[0]).requires or []
    links = venv / "declared"
    links.mkdir()
    for found in needed([text for text in declared if "extra ==" not in text]):
        link_into(links, found)
    (own / "declared.pth").write_text(f"{links}\n")
    return venv / "bin"


def run(program: Path, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run([str(program), *args], cwd=cwd, env={**env, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
                          timeout=800)  # fmt: skip


def test_the_demo_runs_from_the_wheel_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "python", "-c", "import seatrial; print(seatrial.__file__)", cwd=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(installed.parent), "not the checkout's"
    done = run(installed / "seatrial", "demo", "-o", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    for page in document["pages"]:
        assert (tmp_path / page).stat().st_size > 50_000
    assert "6 of 6 trials" in done.stderr and "Traceback" not in done.stderr


def test_what_only_the_tests_need_is_not_there(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "python", "-c", "import pytest", cwd=tmp_path)
    assert done.returncode != 0 and "No module named 'pytest'" in done.stderr


def test_it_has_the_first_screen_the_doctor_and_every_example(installed: Path, tmp_path: Path) -> None:
    assert "Where to start" in run(installed / "seatrial", cwd=tmp_path).stdout
    said = run(installed / "seatrial", "doctor", "--no-train", "--json", cwd=tmp_path)
    assert json.loads(said.stdout)["schema"] == 1, said.stderr
    printed = run(installed / "python", "-c", "from seatrial import shipped; print(*shipped.examples())", cwd=tmp_path).stdout
    tracked = subprocess.run(["git", "-C", str(ROOT / "examples"), "ls-files"], capture_output=True, text=True)
    here = tracked.stdout.split() or [path.name for path in (ROOT / "examples").iterdir() if path.is_file()]
    assert "rows.csv" in here and set(here) <= set(printed.split())
