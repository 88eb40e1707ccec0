"""Linearisation: small motions, their state space, modes and responses."""
