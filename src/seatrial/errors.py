"""The errors that are part of the interface: one line that says what is wrong, the numbers, and what would work.

The command line prints the message and leaves with `exit_code`; a traceback is always a bug of ours.
"""
from __future__ import annotations

EXIT_GOOD, EXIT_FINDINGS, EXIT_BAD_INPUT, EXIT_OTHER_OUTCOME = 0, 1, 2, 3
EXIT_INTERRUPTED = 128 + 2
"""What a shell gives for SIGINT."""


class SeatrialError(Exception):
    """What was asked did not come about; the message is all a person needs."""

    exit_code = EXIT_OTHER_OUTCOME


class BadInput(SeatrialError):
    """A file, an option or a value that cannot be used as it stands."""

    exit_code = EXIT_BAD_INPUT


class Remark(UserWarning):
    """Something of a person's file that is not used, or taken for something else; commands print it on stderr."""


class Infeasible(BadInput):
    """What was asked cannot run; the message gives the numbers and what would work."""

    def __init__(self, message: str, *, code: str = "infeasible"):
        super().__init__(message)
        self.code = code
        """The rule that was broken, as `plan` and `forecast` count and print it: `world-size`, `layers-divisible`, …"""
