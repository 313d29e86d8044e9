"""What a newcomer meets first: the screen, the version, completion in a shell."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial import cli


def test_the_first_screen_is_one_line_a_command_in_groups_and_says_where_to_start(seatrial):
    lines = seatrial().out.splitlines()
    assert len(lines) <= 48 and max(map(len, lines)) <= 80
    titles = [line.rstrip(":") for line in lines if line.endswith(":")]
    assert titles[:4] == ["Look ahead", "Run", "Learn", "Show"] and titles[-1] == "Where to start" and "Other" not in titles
    assert not [line for line in lines if "..." in line or "…" in line], "no line is cut off"


def test_what_the_screen_proposes_to_start_with_is_a_command_line_that_is_understood(seatrial):
    proposed = [line.split() for line in cli.START.splitlines() if line.startswith("  seatrial ")]
    names = {command.name for command in cli.build_app().registered_commands}
    assert {words[1] for words in proposed} - {"COMMAND"} <= names
    plan = next(words for words in proposed if words[1] == "plan")
    assert seatrial(*plan[1:]).status == 0


def test_every_line_of_the_screen_is_of_a_command_that_exists(seatrial):
    names = {command.name for command in cli.build_app().registered_commands}
    named = {name for group in cli.GROUPS.values() for name in group}
    assert names <= named, "a command without a line of its own stands under Other"


@pytest.fixture
def on_path(tmp_path: Path) -> dict[str, str]:
    """An environment in which `seatrial` is this checkout's."""
    tool = tmp_path / "bin" / "seatrial"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m seatrial "$@"\n')
    tool.chmod(0o755)
    return {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize(("typed", "offers", "not_offers"), [
    ("seatrial pl", {"plan"}, {"run"}),
    ("seatrial plan --clus", {"--cluster"}, {"--model"}),
    ("seatrial doctor --z", {"--zero"}, set()),
])
def test_bash_completes_commands_and_options(on_path, typed, offers, not_offers):
    words = typed.split()
    script = ('eval "$(seatrial completion bash)"; complete -p seatrial; '
              f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _seatrial_completion seatrial; "
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "--norc", "-c", script], env=on_path, capture_output=True, text=True, timeout=120)
    registered, *offered = done.stdout.split("\n")
    assert registered.endswith("-F _seatrial_completion seatrial"), done.stderr
    assert offers <= set(offered) and not not_offers & set(offered), done


def test_zsh_and_fish_are_answered_in_their_own_way(on_path):
    env = {**on_path, "_TYPER_COMPLETE_ARGS": "seatrial pl", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for shell in ("zsh", "fish"):
        said = subprocess.run(["seatrial"], env={**env, cli.COMPLETING: f"complete_{shell}"}, capture_output=True, text=True,
                              timeout=120).stdout  # fmt: skip
        assert "plan" in said and "doctor" not in said
        printed = subprocess.run(["seatrial", "completion", shell], env=on_path, capture_output=True, text=True, timeout=120)
        script = printed.stdout
        assert f"{cli.COMPLETING}=complete_{shell}" in script
        if program := shutil.which(shell):
            assert subprocess.run([program, "-n"], input=script, text=True, timeout=60).returncode == 0


def test_a_shell_that_is_not_known_is_one_line(seatrial):
    said = seatrial("completion", "csh")
    assert (said.status, said.out) == (2, "") and "did you mean 'zsh'" in said.err
