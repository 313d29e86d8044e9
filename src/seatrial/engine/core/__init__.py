"""Parameters, parallelism, schedule, loss and step in plain torch: readable end to end, no kernel in it."""
