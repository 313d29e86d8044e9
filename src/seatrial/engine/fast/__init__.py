"""What makes a step fast on a device: blocks with their backward pass written out, kernels, and which of them run."""
