"""Traced functions as instructions for NumPy, which nothing has to compile."""
