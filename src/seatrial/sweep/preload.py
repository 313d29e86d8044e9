"""Whether a library can be preloaded at all: the loader only warns, and a comparison would then measure nothing.

    problem({"LD_PRELOAD": "libtcmalloc_minimal.so.4"})         "" or what is wrong with it
"""
from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Mapping

VARIABLE = "LD_PRELOAD"


def problem(variables: Mapping[str, str]) -> str:
    return _problem(variables[VARIABLE]) if variables.get(VARIABLE) else ""


@functools.lru_cache(maxsize=64)
def _problem(value: str) -> str:
    env = {"PATH": os.defpath, VARIABLE: value}
    found = subprocess.run(["/bin/true"], env=env, capture_output=True, text=True, check=False)
    if "ERROR" not in found.stderr and found.returncode == 0:
        return ""
    first = next((line.strip() for line in found.stderr.splitlines() if line.strip()), f"exit code {found.returncode}")
    return f"LD_PRELOAD={value}: the loader of this machine does not take it ({first.partition('ERROR: ld.so: ')[2] or first})"
