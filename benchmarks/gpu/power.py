"""What the device drew and how fast its clock ran, sampled beside a measurement.

    with Power() as power:
        ...
        power.since(began)          {"watts": 697.0, "mhz": 1440.0, "limit_watts": 700.0}; {} where nvidia-smi is silent
"""
from __future__ import annotations

import contextlib
import statistics
import subprocess
import threading
import time

QUERY = "power.draw.instant,clocks.sm,power.limit"


class Power:
    def __init__(self) -> None:
        self._samples: list[tuple[float, float, float, float]] = []
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Power:
        command = ["nvidia-smi", "-i", "0", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", "-lms", "20"]
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def _read(self) -> None:
        assert self._child is not None and self._child.stdout is not None
        for line in self._child.stdout:
            with contextlib.suppress(ValueError):
                watts, mhz, limit = (float(part) for part in line.split(","))
                self._samples.append((time.perf_counter(), watts, mhz, limit))

    def since(self, began: float) -> dict[str, float]:
        """Means of what was seen after `began`, of the host's clock."""
        rows = [row[1:] for row in self._samples if row[0] >= began]
        return dict(zip(("watts", "mhz", "limit_watts"), (statistics.fmean(col) for col in zip(*rows)))) if rows else {}
