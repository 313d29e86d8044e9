"""The command line as a whole: what it says when it is asked nothing, asked wrongly, or cut off."""
from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from seatrial import __version__, cli
from seatrial.errors import BadInput, Infeasible, SeatrialError


def with_command(monkeypatch: pytest.MonkeyPatch, command: Callable[[], object]) -> None:
    """A command line of one command, `try`."""
    module = SimpleNamespace(register=lambda app: app.command("try", help="Try it.")(command))
    monkeypatch.setattr(cli, "command_modules", lambda only="": [module])


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (SeatrialError("the run hung"), 3, "seatrial: the run hung\n"),
        (BadInput("dp 3: use 2 or 4"), 2, "seatrial: dp 3: use 2 or 4\n"),
        (Infeasible("no", code="world-size"), 2, "seatrial: no\n"),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), 2, "seatrial: /x/y: Permission denied\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "seatrial: No space left on device\n"),
        (KeyboardInterrupt(), 130, None),
        (typer.Exit(1), 1, ""),
        (typer.BadParameter("not a number"), 2, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_becomes_one_line_and_its_status(seatrial, monkeypatch, error, status, line):
    with_command(monkeypatch, raising(error))
    said = seatrial("try")
    assert (said.status, said.out) == (status, "")
    assert said.err == line if line is not None else len(said.err.splitlines()) <= 1


def test_a_bug_of_ours_is_not_hidden(seatrial, monkeypatch):
    with_command(monkeypatch, raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        seatrial("try")


def test_a_command_may_return_its_status(seatrial, monkeypatch):
    with_command(monkeypatch, lambda: 1)
    assert seatrial("try").status == 1


@pytest.mark.parametrize("args", [["no-such-command"], ["--no-such-option"], ["try", "--no-such-option"]])
def test_what_is_not_known_is_one_line_that_says_where_to_look(seatrial, monkeypatch, args):
    with_command(monkeypatch, lambda: None)
    said = seatrial(*args)
    assert (said.status, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert args[-1] in said.err and "--help" in said.err


def test_help_fits_one_screen_and_names_every_command_under_a_group(seatrial):
    bare, asked = seatrial(), seatrial("--help")
    assert bare.status == asked.status == 0
    assert bare.out == asked.out
    lines = bare.out.splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 110
    registered = {command.name for command in cli.build_app().registered_commands if not command.hidden}
    assert registered <= {line.split()[0] for line in lines if line.startswith("  ")}


def test_no_group_names_a_command_twice():
    names = [name for group in cli.GROUPS.values() for name in group]
    assert len(names) == len(set(names))


def test_version(seatrial):
    assert seatrial("--version") == (0, f"seatrial {__version__}\n", "")


@pytest.mark.parametrize("patch", ["", *(f"cli.build_app = lambda _: (lambda **_: print('x' * {n}));" for n in (1, 1_000_000))])
def test_a_closed_pipe_ends_the_command_quietly(patch):
    program = f"import sys; from seatrial import cli; {patch} sys.exit(cli.main(['--help']))"
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([sys.executable, "-c", program], stdout=write_end, stderr=subprocess.PIPE, timeout=60)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (cli.EXIT_PIPE_CLOSED, b"")


def test_help_loads_nothing_heavy():
    program = (
        "import sys; from seatrial import cli; cli.main(['--help']);"
        "print([m for m in ('torch', 'numpy', 'scipy', 'matplotlib', 'rich', 'jinja2') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"


def test_help_costs_less_than_half_a_second():
    def once_cpu_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "seatrial", "--help"], check=True, capture_output=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Processor time, which is all that starting up takes: waiting behind the machine's other work is not ours.
    assert min(once_cpu_s() for _ in range(3)) < 0.5


def test_a_terminal_without_our_letters_gets_question_marks():
    program = (
        "import sys; from seatrial import cli; import typer;"
        "cli.build_app = lambda only: (lambda **_: print('3 × 4'));"
        "sys.exit(cli.main([]))"
    )
    environment = dict(os.environ, PYTHONIOENCODING="ascii")
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "3 ? 4\n"), done.stderr


def test_no_folder_of_tests_is_passed_over(request):
    passed_over = request.config.getini("norecursedirs")
    folders = {file.parent for file in Path(__file__).parents[1].rglob("test_*.py")}
    assert not [folder for folder in folders for pattern in passed_over if fnmatch(folder.name, pattern)]


def test_a_command_loads_no_other(seatrial):
    code = ("import sys; from seatrial import cli; cli.main(['presets', '--json']); "
            "print(sorted(n for n in sys.modules if n.startswith('seatrial.commands.')), file=sys.stderr)")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stderr == "['seatrial.commands.presets']\n" and '"models"' in said.stdout
    # A command in a module of another name, and none at all, take them all.
    assert seatrial("calibrate", "--help").status == 0 and seatrial("train", "--help").status == 0
    assert "did you mean" in seatrial("pln").err.lower() or "No such command" in seatrial("pln").err
