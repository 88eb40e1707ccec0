"""Sensors: readings of a motion."""
