"""Python's search for garbage, off while rows are made: they all stay, and it would look through them again and again."""
from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collecting() -> Iterator[None]:
    """A tenth of the time of lint and a fifth of that of reading, of which nothing is ever collected."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            if not gc.get_freeze_count():  # what was made is old now, and not to be looked through at once
                gc.freeze()
                gc.unfreeze()
            gc.enable()
