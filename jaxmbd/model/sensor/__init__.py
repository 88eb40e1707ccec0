"""Sensors: what can be read from a motion."""
