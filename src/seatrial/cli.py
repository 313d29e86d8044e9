"""The command line: one typer app, put together from the modules in `seatrial.commands`.

    seatrial                    the commands, grouped, on one screen
    seatrial COMMAND --help     one of them

Each module in `commands/` has a `register(app)` and imports what is heavy inside its functions, so that the help is instant.
A command may return its exit status. `main` is the only place where an error becomes a line on stderr and a number.
"""
from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

from seatrial import __version__, commands
from seatrial.errors import EXIT_BAD_INPUT, EXIT_GOOD, SeatrialError

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

EXIT_INTERRUPTED, EXIT_PIPE_CLOSED = 128 + 2, 128 + 13
"""What a shell gives for SIGINT and SIGPIPE, so that `seatrial … | head` looks like any other tool."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Think": ("plan", "forecast", "explain", "shape", "calibrate"),
    "Run": ("run", "train", "sweep", "tune", "replay", "data", "convert"),
    "Measure": ("probe", "rehearse", "doctor"),
    "Keep": ("import", "lint", "table", "compare", "report", "serve"),
}
"""Where each command stands on the help screen, in reading order; what is not named here stands under Other."""

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""Click's own ClickException, which typer keeps in different places in different versions."""


class Screen(TyperGroup):
    """The group of all commands: its help is one screen in plain text."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        shown = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        groups = dict(GROUPS)
        groups["Other"] = tuple(sorted(set(shown).difference(*GROUPS.values())))
        width = max(map(len, shown), default=0)
        for title, names in groups.items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(formatter.width - width - 6))
                for name in names
                if name in shown
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"seatrial {__version__}")
        raise typer.Exit(EXIT_GOOD)


def build_app() -> typer.Typer:
    """The app with every command that `seatrial.commands` holds."""
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

    @app.callback(epilog="Exit status: 0 good, 1 findings, 2 bad input, 3 any other outcome.")
    def screen(
        ctx: typer.Context,
        version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
    ) -> None:
        """Sea trials for large training runs: forecast every layout, prove the best ones, keep the log."""
        if ctx.invoked_subcommand is None:
            print(ctx.get_help())

    for module in command_modules():
        module.register(app)
    return app


def command_modules() -> list[ModuleType]:
    names = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))
    return [importlib.import_module(f"{commands.__name__}.{name}") for name in names]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is returned, and anything a person did wrong is one line on stderr."""
    # A terminal that cannot show a letter of ours gets a question mark, never a traceback.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    try:
        status = build_app()(args=None if argv is None else list(argv), prog_name="seatrial", standalone_mode=False)
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
    print(f"seatrial: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
