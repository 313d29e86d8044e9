"""Weights of Hugging Face in and out. Host ring: the engine itself reads and writes checkpoints alone."""
