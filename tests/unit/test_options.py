"""A class of options takes one parameter's place, in the order and with the words of each."""
from __future__ import annotations

from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from seatrial.columns import BY_FIELD, SEARCHED
from seatrial.options import CHOSEN, OPTIONS, ROUTING, Layout, Space, spread


@dataclass(frozen=True, kw_only=True)
class Pair:
    left: int | None = typer.Option(None, help="The left one.")
    right: str = typer.Option("r", "--right-hand", help="The right one.")


def spoken(*args: str) -> str:
    app = typer.Typer()

    @app.command()
    @spread
    def say(first: str = typer.Option("f"), pair: Pair = OPTIONS, last: bool = typer.Option(False, "--last")) -> int:
        """Says it."""
        print(first, pair, last)
        return 0

    return CliRunner().invoke(app, list(args)).output


def test_options_stand_where_the_parameter_stood_and_come_as_one():
    assert spoken("--left", "3", "--right-hand", "x", "--last") == "f Pair(left=3, right='x') True\n"
    assert spoken() == "f Pair(left=None, right='r') False\n"
    said = spoken("--help")
    places = [said.index(words) for words in ("Says it.", "--first", "--left", "The left one.", "--right-hand", "--last")]
    assert places == sorted(places) and "--pair" not in said


def test_a_value_of_another_type_is_refused_as_anywhere(seatrial):
    said = seatrial("run", "--model", "tiny", "--gbs", "8", "--dp", "x")
    assert said.status == 2 and "--dp" in said.err and len(said.err.strip().splitlines()) == 1


def test_what_was_given_becomes_knobs_and_tables():
    app, heard = typer.Typer(), []

    @app.command()
    @spread
    def say(space: Space = OPTIONS) -> int:
        heard.append(space)
        return 0

    assert CliRunner().invoke(app, ["--gbs", "64", "--tp", "2,4", "--nodes", "2"]).exit_code == 0
    assert heard[0].nodes == 2 and tuple(heard[0].knobs) == (*SEARCHED, *CHOSEN, *ROUTING)
    assert {name: text for name, text in heard[0].knobs.items() if text is not None} == {"gbs": "64", "tp": "2,4"}
    layout = Layout(model="tiny", knobs={"dp": 2, "gbs": 8, "precision": "bf16", "pp": None})
    assert layout.tables() == {"model": {"base": "tiny"}, "batch": {"gbs": 8},
                               "topology": {"dp": 2, "pp": None, "precision": "bf16"}}


@pytest.mark.parametrize("command", ["plan", "tune", "run", "doctor", "explain", "rehearse"])
def test_every_knob_of_the_table_is_an_option_with_its_meaning(seatrial, command):
    said = " ".join(seatrial(command, "--help").out.split())
    for name in SEARCHED:
        assert f"--{name}" in said and BY_FIELD[name].help.split(".")[0].split(";")[0][:40] in said
