"""An end to what may not end: patterns that people wrote, searched for in their logs.

    with deadline(2.0, "mine.toml: line 7 of train.log"): ...        BadInput when it takes more of the processor

A pattern such as `(a+)+b` takes twice the time for each letter more. Python's `re` lets a signal in while it searches, so a
timer of the processor's time ends it; signals come to the main thread alone, and elsewhere a format of one's own is refused.
"""
from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from seatrial.errors import BadInput


class _Over(BaseException):
    """Not an Exception: nothing on the way may swallow it."""


def _over(*_: object) -> None:
    raise _Over


@contextmanager
def deadline(seconds: float, what: str) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        raise BadInput(f"{what}: a log format of one's own is read in the main thread alone, where its patterns can be stopped")
    before = signal.signal(signal.SIGPROF, _over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except _Over:
        works = "let no part of one that repeats hold another that repeats, as (a+)+ does"
        raise BadInput(f"{what}: over {seconds:g} s of searching for its patterns; {works}") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
