"""Formulations of the constraints: stabilisation, projection, coordinate partitioning, kinematic analysis."""
