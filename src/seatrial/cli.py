"""The command line: one typer app, put together from the modules in `seatrial.commands`.

    seatrial                    the commands, grouped, on one screen, and where to start
    seatrial COMMAND --help     one of them

Each module in `commands/` has a `register(app)` and imports what is heavy inside its functions, so that the help is instant.
A command may return its exit status. `main` is the only place where an error becomes a line on stderr and a number.
"""
from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from seatrial import __version__, commands
from seatrial.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_INTERRUPTED, Remark, SeatrialError
from seatrial.terminal import Visible, say

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

EXIT_PIPE_CLOSED = 128 + 13
"""What a shell gives for SIGPIPE, so that `seatrial … | head` looks like any other tool."""

LONGEST = 4000
"""Letters of a complaint: a value that a file gives may be of megabytes."""

GROUPS: dict[str, dict[str, str]] = {
    "Look ahead": {
        "plan": "every layout of a model on a cluster, forecast and ranked",
        "forecast": "each row of a table forecast: time, memory, TFLOPs",
        "explain": "one layout taken apart, its pipeline drawn",
        "shape": "what the hardware likes about a model's shape",
        "rehearse": "one rank of any layout on one device, the rest charged",
    },
    "Run": {
        "run": "one trial on this machine, timed and measured",
        "sweep": "every trial of a file, each ends as a row",
        "tune": "plan, measure, learn, until nothing better can be left",
        "train": "a real run: checkpoints, validation, resume",
        "data": "text into the tokens that train reads",
        "convert": "Hugging Face weights in and out",
    },
    "Learn": {
        "probe": "this machine's own rates, for the planner",
        "device": "devices known by name; tables of others read into one",
        "import": "tables, logs, CSV and JSON into a logbook",
        "lint": "what is wrong in benchmark tables, and what is right",
        "calibrate": "what measured rows teach about a cluster",
        "compare": "is A faster than B, and how sure is that",
        "replay": "a log's search again: what could have been left out",
    },
    "Show": {
        "table": "records as markdown, CSV or JSON",
        "report": "a logbook as one page that opens anywhere",
        "serve": "the same page live, while a sweep runs",
    },
    "Around it": {
        "doctor": "check this machine, prove that a topology trains right",
        "demo": "the main job from end to end on this CPU",
        "presets": "models and clusters known by name",
        "completion": "the script by which a shell completes commands",
    },
}
"""Where each command stands on the first screen, and its line there; what is not named here stands under Other."""

START = """Where to start:
  seatrial doctor                   is this machine ready?
  seatrial demo -o out              real trials and the page, in minutes
  seatrial plan --model bloom-181b --cluster jz-a100 --gbs 2048
  seatrial COMMAND --help           its options; most commands have --json

Exit status: 0 good, 1 findings, 2 bad input, 3 any other outcome."""

COMPLETING = "_SEATRIAL_COMPLETE"
"""Set by the script of `seatrial completion` when a shell asks what could come next."""

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""Click's own ClickException, which typer keeps in different places in different versions."""


class Screen(TyperGroup):
    """The group of all commands: its help is one screen in plain text."""

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        shown = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        groups = dict(GROUPS)
        others = sorted(set(shown).difference(*GROUPS.values()))
        groups["Other"] = {name: self.commands[name].get_short_help_str(60) for name in others}
        width = max(map(len, shown), default=0)
        lines = [f"seatrial {__version__}: sea trials for large training runs (-h this screen, --version)", ""]
        for title, commands_there in groups.items():
            rows = [f"  {name:{width}s}  {line}" for name, line in commands_there.items() if name in shown]
            lines += [f"{title}:", *rows] if rows else []
        formatter.write("\n".join([*lines, "", START]) + "\n")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"seatrial {__version__}")
        raise typer.Exit(EXIT_GOOD)


def build_app(only: str = "") -> typer.Typer:
    """The app with every command that `seatrial.commands` holds, or with those of one of its modules."""
    app = typer.Typer(
        name="seatrial",
        cls=Screen,
        no_args_is_help=False,
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )

    @app.callback()
    def screen(
        ctx: typer.Context,
        version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
    ) -> None:
        """Sea trials for large training runs: forecast every layout, prove the best ones, keep the log."""
        if ctx.invoked_subcommand is None:
            print(ctx.get_help())

    for module in command_modules(only):
        module.register(app)
    return app


def command_modules(only: str = "") -> list[ModuleType]:
    return [importlib.import_module(f"{commands.__name__}.{name}") for name in _names() if only in ("", name)]


def _names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))


def _own_module(words: Sequence[str]) -> str:
    """The module of the command that is asked for, where it has the command's name: the others need not be loaded (60 ms)."""
    known = {name for group in GROUPS.values() for name in group}
    return words[0] if words and words[0] in known.intersection(_names()) else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is returned, and anything a person did wrong is one line on stderr."""
    # A terminal that cannot show a letter of ours gets a question mark, never a traceback.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Visible(sys.stdout), Visible(sys.stderr)
    try:
        with warnings.catch_warnings():
            _say_remarks()
            return _run(argv)
    finally:
        sys.stdout, sys.stderr = streams


def _say_remarks() -> None:
    """What a library would warn of is a line of its own, once."""
    said: set[str] = set()
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, Remark):
            others(message, category, *where, **more)
        elif str(message) not in said:
            said.add(str(message))
            say(str(message), to=sys.stderr)

    warnings.simplefilter("always", Remark)
    warnings.showwarning = show


def _run(argv: Sequence[str] | None) -> int:
    if COMPLETING in os.environ:
        from typer.completion import completion_init

        completion_init()
    try:
        words = sys.argv[1:] if argv is None else list(argv)
        only = "" if COMPLETING in os.environ else _own_module(words)
        status = build_app(only)(args=words, prog_name="seatrial", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else EXIT_GOOD
    except BrokenPipeError:
        return _pipe_closed()
    except SystemExit as end:
        # Typer answers a closed pipe with exit status 1, which is our word for findings.
        if isinstance(end.__context__, BrokenPipeError):
            return _pipe_closed()
        raise
    except SeatrialError as error:
        return _complain(str(error), error.exit_code)
    except USAGE_ERROR as error:
        return _complain(_usage(error), EXIT_BAD_INPUT)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        return _complain(f"{where}{error.strerror or error}", EXIT_BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", EXIT_INTERRUPTED)


def _usage(error: Exception) -> str:
    """Click's message, with the command whose help would say more."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    ctx = getattr(error, "ctx", None)
    return f"{message.rstrip('.')} (see {ctx.command_path} --help)" if ctx is not None else message


def _pipe_closed() -> int:
    # Python flushes once more at exit, and would complain: give it somewhere to flush to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return EXIT_PIPE_CLOSED


def _complain(message: str, status: int) -> int:
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]} …"
    say(f"seatrial: {' '.join(message.splitlines())}", to=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
