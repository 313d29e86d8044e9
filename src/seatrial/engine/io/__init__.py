"""Files that a run reads and writes: tokens, checkpoints, weights of other programs."""
