"""Equilibrium: static and in steady rotation, its stability, and paths of equilibria."""
