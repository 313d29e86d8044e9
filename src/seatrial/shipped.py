"""The files of examples/, which come with the package: the demo, the replay and the docs read them from here.

    shipped.example("rows.csv")                     a path that exists, in a checkout and after `pip install`
    shipped.example("bloom-prequel/sweep.toml")
    shipped.examples()                              the names of all of them

A wheel carries examples/ inside the package as `_examples`; a checkout reads the folder itself, so that what is edited is used.
"""
from __future__ import annotations

from pathlib import Path, PurePosixPath

from seatrial import fields
from seatrial.errors import BadInput

PACKAGE = Path(__file__).resolve().parent


def folder() -> Path:
    """Where the examples lie."""
    candidates = (PACKAGE / "_examples", PACKAGE.parents[1] / "examples")
    for path in candidates:
        if path.is_dir():
            return path
    raise BadInput(f"the examples are not in {candidates[0]} nor in {candidates[1]}: a wheel and a checkout have them")


def examples() -> list[str]:
    """The name of every file that is shipped, as `example` takes it."""
    top = folder()
    found = (path.relative_to(top) for path in top.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in found if not any(part.startswith((".", "__")) for part in path.parts))


def example(name: str) -> Path:
    """The path of one example, a file or a folder of them."""
    inside = PurePosixPath(name)
    path = folder().joinpath(*inside.parts)
    if not inside.parts or inside.is_absolute() or ".." in inside.parts or not path.exists():
        known = examples()
        folders = sorted({str(parent) for one in known for parent in PurePosixPath(one).parents} - {"."})
        raise BadInput(f"{name!r} is not among the examples; {fields.nearest(name, [*known, *folders])}")
    return path
