"""Our engine and its peers on one GPU: `python -m benchmarks.gpu --help`. Needs torch alone, so it runs on a bare machine."""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
