"""The examples that come with the package, from a checkout and from an install."""
from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from seatrial import shipped
from seatrial.errors import BadInput


def test_every_name_that_is_listed_is_a_file() -> None:
    names = shipped.examples()
    assert {"rows.csv", "first-sweep.toml"} <= set(names)
    assert all(shipped.example(name).is_file() for name in names)


def test_a_checkout_reads_the_folder_itself() -> None:
    assert shipped.example("rows.csv") == Path(__file__).parents[2] / "examples" / "rows.csv"


def test_an_install_reads_its_own_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "seatrial"
    (package / "_examples" / "tcmalloc").mkdir(parents=True)
    (package / "_examples" / "tcmalloc" / "sweep.toml").write_text("")
    monkeypatch.setattr(shipped, "PACKAGE", package)
    assert shipped.examples() == ["tcmalloc/sweep.toml"]
    assert shipped.example("tcmalloc").is_dir()


def test_an_install_without_them_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "PACKAGE", tmp_path / "lib" / "seatrial")
    with pytest.raises(BadInput, match="the examples are not in"):
        shipped.example("rows.csv")


@pytest.mark.parametrize("name", ["rows.cvs", "", "../pyproject.toml", "/etc/passwd"])
def test_what_is_not_shipped_is_an_error_with_the_nearest_name(name: str) -> None:
    with pytest.raises(BadInput, match="is not among the examples; (did you mean 'rows.csv'|known are)"):
        shipped.example(name)


def test_the_wheel_takes_the_examples_to_where_they_are_looked_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["sources"]["examples"] == "seatrial/_examples"
