"""Where Python cannot keep what it compiles of torch's sources, every process compiles them anew: seconds of each start. Images
are made so by installers that leave it to the first import, and by PYTHONDONTWRITEBYTECODE. It then goes to the user's cache.

    bytecode.keep()         before torch is imported
"""
from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def keep(package: str = "torch") -> None:
    spec = importlib.util.find_spec(package)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if spec is None or spec.origin is None or sys.pycache_prefix or home.startswith("~"):
        return
    kept = Path(importlib.util.cache_from_source(spec.origin))
    if kept.exists() or not sys.dont_write_bytecode and os.access(kept.parent.parent, os.W_OK):
        return
    folder = Path(home) / "seatrial" / "bytecode"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        about = folder.stat()
    except OSError:
        return
    if about.st_uid == os.geteuid() and not about.st_mode & 0o022:  # nobody else's code is run
        sys.pycache_prefix, sys.dont_write_bytecode = str(folder), False
