"""Whole motions as kernels for a GPU."""
