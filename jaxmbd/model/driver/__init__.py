"""Drivers: prescribed functions of time for coordinates, and splines for measured motions."""
