"""A module that no test may import."""

raise RuntimeError("A model file was executed.")
