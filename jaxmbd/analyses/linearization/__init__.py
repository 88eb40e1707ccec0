"""Linearisation: small motions about a state, their state-space form, modes and responses."""
