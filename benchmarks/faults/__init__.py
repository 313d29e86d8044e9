"""A campaign of faults: what was expected of each was written down before it happened.

    python -m benchmarks.faults --n 1000 --seed 7               from the repository's root; adds to faults.jsonl
    python -m benchmarks.faults --report faults.jsonl           the table again

`draw.py` makes a case out of a seed and a number alone: what goes wrong, when, on which rank of which layout, and what must
come of it. `run.py` lets it happen and measures. `warm.py` starts ranks without loading torch again.
"""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
