"""Simulation: the motion from a state, its solution, and why one failed."""
