"""Slips to plant in tables that are right, by name.

    planted = SLIPS["wrong-dp"](table, rng)    the same with one slip: the row's line, the code, what should be proposed
"""
from __future__ import annotations

import lint_slips_cells
import lint_slips_figures
import lint_slips_layout
from lint_slip import Slip

SLIPS: dict[str, Slip] = {**lint_slips_layout.SLIPS, **lint_slips_figures.SLIPS, **lint_slips_cells.SLIPS}
