"""Starting ranks, waiting for them, and saying what became of them."""
