"""Equilibrium at rest and in steady rotation, its stability, and paths of equilibria."""
