"""Drivers: a coordinate as a given function of time."""
