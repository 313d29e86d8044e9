"""Benchmark notes: `read` makes records of what people write down, `lint` says what in it cannot be right."""
