"""The training step as a graph of operations on lanes."""
