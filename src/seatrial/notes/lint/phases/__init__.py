"""Whole runs rather than steps: hours, tokens, energy and money of a phase, its days and steps, totals over phases."""
